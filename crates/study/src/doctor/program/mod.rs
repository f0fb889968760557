//! Programs with settings of their own that reduce writes: a TOML file each, and a line in [`ALL`].
//!
//! A program is known by the name that the kernel gives its process (cut to 15 bytes), or by files
//! that it writes. General advice is not given for a known program: its own setting costs less than
//! a library that ignores its syncs. Each statement about losses has its source.

use super::{Inspect, RemedyStep};
use serde::{Deserialize, Serialize};

/// All known programs: a word for each, and its TOML.
const ALL: &[(&str, &str)] = &[
    ("mariadb", include_str!("mariadb.toml")),
    ("postgresql", include_str!("postgresql.toml")),
    ("redis", include_str!("redis.toml")),
    ("influxdb", include_str!("influxdb.toml")),
    ("home-assistant", include_str!("home-assistant.toml")),
    ("journald", include_str!("journald.toml")),
    ("rsyslog", include_str!("rsyslog.toml")),
    ("nginx", include_str!("nginx.toml")),
    ("docker", include_str!("docker.toml")),
    ("prometheus", include_str!("prometheus.toml")),
    ("grafana", include_str!("grafana.toml")),
    ("apt", include_str!("apt.toml")),
    ("pihole", include_str!("pihole.toml")),
    ("zigbee2mqtt", include_str!("zigbee2mqtt.toml")),
    ("firefox", include_str!("firefox.toml")),
];

/// The kernel cuts names of processes after so many bytes.
const COMM_BYTES: usize = 15;

/// A program with settings of its own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Known {
    /// A word for it.
    #[serde(skip)]
    pub(super) word: &'static str,
    /// Name for people.
    pub(super) name: String,
    /// Names of its processes.
    programs: Vec<String>,
    /// Shell patterns of files that only it writes; `*` also stands for `/`.
    #[serde(default)]
    files: Vec<String>,
    /// Its settings, the one that saves most first.
    #[serde(rename = "setting")]
    pub(super) settings: Vec<Setting>,
}

/// A setting that reduces writes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Setting {
    /// The program and its change, as a title.
    pub(super) change: String,
    /// Shell patterns of the files that it concerns; empty: all that the program writes.
    #[serde(default)]
    files: Vec<String>,
    /// Or the beginning of their content.
    #[serde(default)]
    head: Option<String>,
    /// Least time between two syncs of one file with it.
    #[serde(default)]
    syncs_apart: Option<String>,
    /// Or the time for which the program holds what it writes. Without either the saving is not
    /// known.
    #[serde(default)]
    held: Option<String>,
    /// They make the change.
    pub(super) steps: Vec<RemedyStep>,
    /// Data that a crash or a power cut loses then.
    pub(super) lost: String,
    /// Document that says so.
    pub(super) source: String,
}

impl Known {
    /// Whether a process of this name, or a writer of this file, is the program.
    pub(super) fn is(&self, program: &str, file: &str) -> bool {
        let is_cut = |known: &str| program.len() == COMM_BYTES && known.starts_with(program);
        self.programs.iter().any(|known| known == program || is_cut(known))
            || matches(&self.files, file)
    }
}

fn matches(patterns: &[String], file: &str) -> bool {
    patterns.iter().any(|pattern| wildmatch::WildMatch::new(pattern).matches(file))
}

impl Setting {
    /// Whether it changes how this file of its program is written.
    pub(super) fn concerns(&self, file: &str, inspect: &dyn Inspect) -> bool {
        let begins = |head: &String| {
            inspect.ends(file).is_some_and(|ends| ends.head.starts_with(head.as_bytes()))
        };
        let is_any = self.files.is_empty() && self.head.is_none();
        is_any || matches(&self.files, file) || self.head.as_ref().is_some_and(begins)
    }

    /// Time for which the program holds what it writes, µs.
    pub(super) fn held_us(&self) -> Option<u64> {
        let held = self.held.as_deref()?;
        Some(flashsift_events::duration::parse_us(held).expect("a test parses each"))
    }

    /// Least time between two syncs of one file, µs.
    pub(super) fn syncs_apart_us(&self) -> Option<u64> {
        let apart = self.syncs_apart.as_deref()?;
        Some(flashsift_events::duration::parse_us(apart).expect("a test parses each"))
    }
}

/// Returns every known program.
pub(super) fn all() -> Vec<Known> {
    let read = |(word, text): &(&'static str, &str)| {
        let known: Known = toml::from_str(text).expect("a test reads each");
        Known { word, ..known }
    };
    ALL.iter().map(read).collect()
}

/// A setting of a known program, with its commands.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KnownSetting {
    /// A word for the program.
    pub program: &'static str,
    /// Its name for people.
    pub name: String,
    /// The program and the change, as a title.
    pub change: String,
    /// Data that a crash or a power cut loses then.
    pub lost: String,
    /// Document that says so.
    pub source: String,
    /// Commands that make the change.
    pub commands: Vec<String>,
    /// Commands that undo it.
    pub undo: Vec<String>,
    /// The same as steps that `doctor --apply` performs.
    pub steps: Vec<RemedyStep>,
}

/// Returns the settings of all known programs.
pub fn known_settings() -> Vec<KnownSetting> {
    let of = |known: Known| {
        known.settings.into_iter().map(move |setting| {
            let commands = super::steps::commands(&setting.steps);
            KnownSetting {
                program: known.word,
                name: known.name.clone(),
                change: setting.change,
                lost: setting.lost,
                source: setting.source,
                commands: commands.now,
                undo: commands.undo,
                steps: setting.steps,
            }
        })
    };
    all().into_iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_file_is_complete() {
        let mut seen = BTreeSet::new();
        for known in all() {
            assert!(!known.settings.is_empty(), "{}", known.name);
            for program in &known.programs {
                assert!(seen.insert(program.clone()), "{program} is in two files");
            }
            for setting in &known.settings {
                let texts = [&setting.change, &setting.lost, &setting.source];
                assert!(texts.iter().all(|text| text.len() > 10), "{}", setting.change);
                let commands = crate::doctor::steps::commands(&setting.steps);
                assert!(!commands.now.is_empty() && !commands.undo.is_empty());
                let times = [setting.syncs_apart_us(), setting.held_us()];
                assert!(!times.contains(&Some(0)), "{}", setting.change);
            }
        }
    }

    #[test]
    fn programs_are_known_by_name_and_by_file() {
        let found = |program: &str, file: &str| {
            let all = all();
            all.iter().find(|known| known.is(program, file)).map(|known| known.name.clone())
        };
        let is =
            |program, file, name: &str| assert_eq!(found(program, file).as_deref(), Some(name));
        is("mariadbd", "/var/lib/mysql/ib_logfile0", "MariaDB or MySQL");
        is("python3", "/config/home-assistant_v2.db-wal", "Home Assistant");
        is("systemd-journal", "/var/log/journal/1/system.journal", "systemd-journald");
        is("unattended-upgr", "/var/cache/apt/pkgcache.bin", "apt and unattended-upgrades");
        let redis = all().into_iter().find(|known| known.is("redis-server", "")).unwrap();
        // Without the append-only file, whatever its name, its setting changes nothing.
        struct Content(&'static [u8]);
        impl Inspect for Content {
            fn ends(&self, _: &str) -> Option<crate::doctor::Ends> {
                Some(crate::doctor::Ends { head: self.0.to_vec(), tail: Vec::new() })
            }
            fn entries(&self, _: &str, _: &mut dyn FnMut(&str, crate::doctor::EntryKind)) -> bool {
                false
            }
            fn program(&self, _: &str) -> Option<crate::doctor::ProgramFacts> {
                None
            }
        }
        let concerns = |file, content| redis.settings[0].concerns(file, &Content(content));
        assert!(concerns("/var/lib/redis/appendonlydir/appendonly.aof.1.incr.aof", b""));
        assert!(concerns("/srv/redis/mine", b"*2\r\n$6\r\nSELECT\r\n"));
        assert!(!concerns("/var/lib/redis/dump.rdb", b"REDIS0010"));
        // The client of MariaDB, and any program in Python.
        assert_eq!(found("mariadb", "/home/u/.mysql_history"), None);
        assert_eq!(found("python3", "/srv/app/data.db"), None);
    }
}
