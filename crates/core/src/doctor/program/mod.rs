//! Programs with settings of their own that reduce writes: a TOML file each, and a line in [`ALL`].
//!
//! A program is known by the name that the kernel gives its process (cut to 15 bytes), or by files
//! that it writes. General advice is not given for a known program: its own setting costs less than
//! a library that ignores its syncs. Each statement about losses has its source.

use serde::Deserialize;

/// All known programs, as TOML.
const ALL: &[&str] = &[
    include_str!("mariadb.toml"),
    include_str!("postgresql.toml"),
    include_str!("redis.toml"),
    include_str!("influxdb.toml"),
    include_str!("home-assistant.toml"),
    include_str!("journald.toml"),
    include_str!("rsyslog.toml"),
    include_str!("nginx.toml"),
    include_str!("docker.toml"),
    include_str!("prometheus.toml"),
    include_str!("grafana.toml"),
    include_str!("apt.toml"),
    include_str!("pihole.toml"),
    include_str!("zigbee2mqtt.toml"),
    include_str!("firefox.toml"),
];

/// The kernel cuts names of processes after so many bytes.
const COMM_BYTES: usize = 15;

/// A program with settings of its own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Known {
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
    /// Least time between two syncs of one file with it. Without one the saving is not known.
    #[serde(default)]
    syncs_apart: Option<String>,
    /// Commands that make the change. One that begins with `#` is for a person.
    pub(super) commands: Vec<String>,
    /// Commands that undo it.
    pub(super) undo: Vec<String>,
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
    pub(super) fn concerns(&self, file: &str) -> bool {
        self.files.is_empty() || matches(&self.files, file)
    }

    /// Least time between two syncs of one file, µs.
    pub(super) fn syncs_apart_us(&self) -> Option<u64> {
        let apart = self.syncs_apart.as_deref()?;
        Some(crate::duration::parse_us(apart).expect("a test parses each"))
    }
}

/// Returns every known program.
pub(super) fn all() -> Vec<Known> {
    ALL.iter().map(|text| toml::from_str(text).expect("a test reads each")).collect()
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
                assert!(!setting.commands.is_empty() && !setting.undo.is_empty());
                assert!(setting.syncs_apart_us() != Some(0), "{}", setting.change);
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
        // Without the append-only file, its setting changes nothing.
        assert!(
            redis.settings[0].concerns("/var/lib/redis/appendonlydir/appendonly.aof.1.incr.aof")
        );
        assert!(!redis.settings[0].concerns("/var/lib/redis/dump.rdb"));
        // The client of MariaDB, and any program in Python.
        assert_eq!(found("mariadb", "/home/u/.mysql_history"), None);
        assert_eq!(found("python3", "/srv/app/data.db"), None);
    }
}
