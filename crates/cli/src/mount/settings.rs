//! Settings of a mount: from the command line, else from a file, else the defaults here.

use super::sift;
use crate::{size, usage::Usage};
use anyhow::Context;
use flashsift_events::duration::Exact;
use flashsift_files::sift::live::AGAIN;
use flashsift_host::foreground::Source;
use flashsift_mount::{SiftWish, metrics::address::Address};
use serde::{Deserialize, Deserializer, de};
use std::{num::NonZero, path::Path, thread, time::Duration};

const LOSE_AT_MOST: &str = "30m";
const BUDGET: &str = "256MiB";
/// Smallest and largest default number of threads: more do not answer faster.
const THREADS: [usize; 2] = [4, 8];
/// Options of a FUSE mount that the kernel knows; each cancels another.
const OPTIONS: [(&str, &str); 6] = [
    ("rw", "ro"),
    ("suid", "nosuid"),
    ("dev", "nodev"),
    ("exec", "noexec"),
    ("atime", "noatime"),
    ("allow_other", "allow_only_me"),
];

/// Settings that the command line and a configuration file share, under the same names.
#[derive(clap::Args, Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Settings {
    #[arg(long, alias = "settle-after", value_name = "TIME", value_parser = size::parse_time,
        help = format!("Data that no program synced reaches BACKING at most this long after it was \
            written: 60s, 10m [default: {LOSE_AT_MOST}]"))]
    #[serde(deserialize_with = "time", alias = "settle-after")]
    lose_at_most: Option<Duration>,

    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes,
        help = format!("RAM for new files; when it is full, those changed first leave it \
            [default: {BUDGET}]"))]
    #[serde(deserialize_with = "bytes")]
    budget: Option<u64>,

    /// Names of files that are written through, never held in RAM; `*` stands for any characters.
    /// Files of SQLite are always written through
    #[arg(long, alias = "settled", value_name = "PATTERN")]
    #[serde(alias = "settled")]
    write_through: Vec<String>,

    /// Delay the syncs of files that match, for at most this long: '*.db*=5m'. A sync returns when
    /// the data is in RAM. A crash takes all these files back together to one moment of the last
    /// TIME. A pattern with a slash is for the path in the mount, one without for the name
    #[arg(long, value_name = "PATTERN=TIME", value_parser = delay)]
    #[serde(rename = "group", deserialize_with = "groups")]
    delay_sync: Vec<(String, Duration)>,

    /// Let this sifter decide which files of known caches are dropped from RAM and never reach
    /// flash, such as controller or controller:again=0.02; `flashsift list sifters` lists
    /// them
    #[arg(long, value_name = "NAME")]
    sift: Option<String>,

    #[arg(long, value_name = "MODE", value_parser = ["on", "dry-run", "off"],
        help = "Drop files, or only show what would be dropped, or neither; `flashsift sift` \
            switches it later [default: on]")]
    sift_mode: Option<String>,

    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes,
        help = "Most RAM that the sifter's files take [default: all of --budget]")]
    #[serde(deserialize_with = "bytes")]
    sift_budget: Option<u64>,

    #[arg(long, value_name = "N%", value_parser = size::parse_share,
        help = format!("Most bytes that are fetched again because their file was dropped, as a \
            share of the bytes of such files that ext4 would write [default: {}%]", 100.0 * AGAIN))]
    #[serde(deserialize_with = "share")]
    fetch_again: Option<f64>,

    /// Known caches whose files the sifter may drop: chromium, pip … (docs/profiles.md) [default:
    /// all that were checked with the real program; `none`: none]
    #[arg(long = "profile", value_name = "NAME", value_delimiter = ',')]
    profiles: Vec<String>,

    /// Further files that the sifter may drop: 'Cache/*'; paths begin at the mounted directory, and
    /// `*` stands for any characters
    #[arg(long, value_name = "PATTERN")]
    drop: Vec<String>,

    /// Files that it never drops, whatever else says that it may
    #[arg(long, value_name = "PATTERN")]
    pin: Vec<String>,

    /// Serve the status as metrics of Prometheus, at /metrics of this address:
    /// unix:/run/flashsift.sock, for your own user, or 127.0.0.1:9101, for all users of this
    /// machine [default: nowhere]
    #[arg(long, value_name = "ADDRESS")]
    metrics: Vec<Address>,

    /// Tell the sifter which application is in the foreground: the oldest program of a control
    /// group, such as cgroup:/dev/cpuset/top-app, or of the session that a seat shows, logind or
    /// logind:seat0 [default: as `flashsift sift foreground` says]
    #[arg(long, value_name = "SOURCE")]
    #[serde(deserialize_with = "source")]
    foreground_from: Option<Source>,

    /// Do not let the kernel read and write the files on flash directly; flashsift does it instead
    #[arg(long)]
    no_passthrough: bool,

    /// Without extended attributes, so that the kernel does not ask for a file's capability after
    /// each change of its size; refused where a file of BACKING has an access control list, a
    /// capability or a security label
    #[arg(long)]
    no_xattr: bool,

    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64),
        help = "Number of threads that answer the kernel [default: one a processor, 4 to 8]")]
    threads: Option<u16>,

    /// Options of the mount: ro, suid, dev, noexec, noatime, allow_other, allow_only_me [default:
    /// nosuid, nodev; for root also allow_other]
    #[arg(short = 'o', long = "option", value_name = "OPTION", value_delimiter = ',')]
    #[serde(rename = "options")]
    options: Vec<String>,
}

/// The settings that take effect.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wanted {
    pub(super) lose_at_most: Duration,
    pub(super) budget_bytes: u64,
    pub(super) write_through: Vec<String>,
    /// Patterns of files whose syncs are delayed.
    pub(super) delayed: Vec<(String, Duration)>,
    pub(super) sift: Option<SiftWanted>,
    pub(super) metrics: Vec<Address>,
    pub(super) foreground: Option<Source>,
    pub(super) passthrough: bool,
    pub(super) xattrs: bool,
    pub(super) allow_other: bool,
    pub(super) threads: usize,
    pub(super) options: Vec<String>,
}

/// The sifter that a user wants.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SiftWanted {
    /// As [`sift::selected`] reads it.
    pub(super) sifter: String,
    pub(super) wish: SiftWish,
    /// The part of the RAM that it gets, bytes.
    pub(super) budget_bytes: u64,
    /// Most bytes that may be fetched again, as a share.
    pub(super) again: f64,
    pub(super) profiles: Vec<String>,
    pub(super) drop: Vec<String>,
    pub(super) pin: Vec<String>,
}

impl Settings {
    /// Reads the settings of a configuration file.
    pub(super) fn from_file(path: &Path) -> anyhow::Result<Self> {
        let at = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(at)?;
        toml::from_str(&text).with_context(at)
    }

    /// These settings as words of a command line.
    pub(super) fn arguments(&self) -> Vec<String> {
        let time = self.lose_at_most.map(|time| time.as_micros().try_into().unwrap_or(u64::MAX));
        let one = [
            time.map(|us| format!("--lose-at-most={}", Exact(us))),
            self.budget.map(|bytes| format!("--budget={bytes}")),
            self.sift.as_ref().map(|sifter| format!("--sift={sifter}")),
            self.sift_mode.as_ref().map(|mode| format!("--sift-mode={mode}")),
            self.sift_budget.map(|bytes| format!("--sift-budget={bytes}")),
            self.fetch_again.map(|share| format!("--fetch-again={}%", share * 100.0)),
            self.foreground_from.as_ref().map(|source| format!("--foreground-from={source}")),
            self.no_passthrough.then(|| "--no-passthrough".to_owned()),
            self.no_xattr.then(|| "--no-xattr".to_owned()),
            self.threads.map(|threads| format!("--threads={threads}")),
        ];
        let listed = [
            ("write-through", &self.write_through),
            ("profile", &self.profiles),
            ("drop", &self.drop),
            ("pin", &self.pin),
        ];
        let listed = listed.into_iter().flat_map(|(option, values)| {
            values.iter().map(move |value| format!("--{option}={value}"))
        });
        let delayed = self.delay_sync.iter().map(|(pattern, time)| {
            let us = time.as_micros().try_into().unwrap_or(u64::MAX);
            format!("--delay-sync={pattern}={}", Exact(us))
        });
        let metrics = self.metrics.iter().map(|address| format!("--metrics={address}"));
        let options = self.options.iter().map(|option| format!("--option={option}"));
        one.into_iter()
            .flatten()
            .chain(listed)
            .chain(delayed)
            .chain(metrics)
            .chain(options)
            .collect()
    }

    /// Merges two sources: these settings take precedence over `other`; patterns and options add
    /// up.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            lose_at_most: self.lose_at_most.or(other.lose_at_most),
            budget: self.budget.or(other.budget),
            write_through: [other.write_through, self.write_through].concat(),
            delay_sync: [other.delay_sync, self.delay_sync].concat(),
            sift: self.sift.or(other.sift),
            sift_mode: self.sift_mode.or(other.sift_mode),
            sift_budget: self.sift_budget.or(other.sift_budget),
            fetch_again: self.fetch_again.or(other.fetch_again),
            profiles: [other.profiles, self.profiles].concat(),
            drop: [other.drop, self.drop].concat(),
            pin: [other.pin, self.pin].concat(),
            metrics: [other.metrics, self.metrics].concat(),
            foreground_from: self.foreground_from.or(other.foreground_from),
            no_passthrough: self.no_passthrough || other.no_passthrough,
            no_xattr: self.no_xattr || other.no_xattr,
            threads: self.threads.or(other.threads),
            options: [other.options, self.options].concat(),
        }
    }

    /// Returns whether a sifter is named.
    pub(super) fn has_sifter(&self) -> bool {
        self.sift.is_some()
    }

    /// Names a sifter.
    pub(super) fn sifting_with(self, sifter: &str) -> Self {
        Self { sift: Some(sifter.to_owned()), ..self }
    }

    /// Makes the sifter show what it would drop, and drop nothing.
    pub(super) fn rehearsing(self) -> Self {
        Self { sift_mode: Some(SiftWish::Rehearse.name().to_owned()), ..self }
    }

    /// Fills in the defaults. A plain user's differ: the kernel allows passthrough and access by
    /// other users to root's mounts only.
    pub(super) fn wanted(self, root: bool) -> Result<Wanted, Usage> {
        let default = "defaults are well-formed";
        let mut options: Vec<String> = ["nosuid", "nodev"].map(str::to_owned).to_vec();
        let mut allow_other = root;
        for option in self.options {
            let Some((yes, no)) =
                OPTIONS.into_iter().find(|(yes, no)| option == *yes || option == *no)
            else {
                let known: Vec<_> =
                    OPTIONS.iter().map(|(yes, no)| format!("{yes}, {no}")).collect();
                return Err(Usage(format!(
                    "unknown mount option {option:?}; there are {}",
                    known.join(", ")
                )));
            };
            if yes == "allow_other" {
                allow_other = option == yes;
                continue;
            }
            options.retain(|other| other != yes && other != no);
            // These are defaults of the kernel.
            if !["rw", "exec", "atime"].contains(&&*option) {
                options.push(option);
            }
        }
        let lose_at_most =
            self.lose_at_most.unwrap_or_else(|| size::parse_time(LOSE_AT_MOST).expect(default));
        let budget_bytes = self.budget.unwrap_or_else(|| size::parse_bytes(BUDGET).expect(default));
        let sift = match self.sift {
            Some(sifter) => Some(SiftWanted {
                sifter: sift::selected(&sifter)?.label(),
                wish: match self.sift_mode {
                    Some(mode) => SiftWish::new(&mode).ok_or_else(|| {
                        Usage(format!("sift-mode: {mode:?} is none of on, dry-run, off"))
                    })?,
                    None => SiftWish::On,
                },
                budget_bytes: self.sift_budget.unwrap_or(budget_bytes),
                again: self.fetch_again.unwrap_or(AGAIN),
                profiles: self.profiles,
                drop: self.drop,
                pin: self.pin,
            }),
            None => {
                let given = [
                    (self.sift_mode.is_some(), "sift-mode"),
                    (self.sift_budget.is_some(), "sift-budget"),
                    (self.fetch_again.is_some(), "fetch-again"),
                    (!self.profiles.is_empty(), "profiles"),
                    (!self.drop.is_empty(), "drop"),
                    (!self.pin.is_empty(), "pin"),
                ];
                if let Some((_, name)) = given.into_iter().find(|(is_given, _)| *is_given) {
                    return Err(Usage(format!(
                        "{name} is for a sifter, and none is named; add --sift controller, or \
                         sift = \"controller\" in the file"
                    )));
                }
                None
            }
        };
        Ok(Wanted {
            lose_at_most,
            budget_bytes,
            sift,
            write_through: self.write_through,
            delayed: self.delay_sync,
            metrics: self.metrics,
            foreground: self.foreground_from,
            passthrough: root && !self.no_passthrough,
            xattrs: !self.no_xattr,
            allow_other,
            threads: self.threads.map_or_else(threads, usize::from),
            options,
        })
    }
}

fn threads() -> usize {
    thread::available_parallelism().map_or(THREADS[0], NonZero::get).clamp(THREADS[0], THREADS[1])
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(from)?;
    size::parse_time(&text).map(Some).map_err(de::Error::custom)
}

/// Files of a group, and how they are synced.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    patterns: Vec<String>,
    sync: String,
}

fn groups<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(String, Duration)>, D::Error> {
    let mut all = Vec::new();
    for Group { patterns, sync } in Vec::deserialize(from)? {
        let Some(time) = sync.strip_prefix("delayed:") else {
            let why = format!("sync: {sync:?} is unknown; write it as \"delayed:5m\"");
            return Err(de::Error::custom(why));
        };
        for pattern in patterns {
            all.push(delay(&format!("{pattern}={time}")).map_err(de::Error::custom)?);
        }
    }
    Ok(all)
}

/// Reads a pattern and a time.
fn delay(text: &str) -> Result<(String, Duration), String> {
    let Some((pattern, time)) = text.rsplit_once('=').filter(|(pattern, _)| !pattern.is_empty())
    else {
        return Err(format!("{text:?} is no pattern with a time; write it as '*.db*=5m'"));
    };
    let time = size::parse_time(time).map_err(|why| why.to_string())?;
    Ok((pattern.to_owned(), time))
}

fn source<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Source>, D::Error> {
    String::deserialize(from)?.parse().map(Some).map_err(de::Error::custom)
}

fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(from)?;
    size::parse_bytes(&text).map(Some).map_err(de::Error::custom)
}

fn share<'de, D: Deserializer<'de>>(from: D) -> Result<Option<f64>, D::Error> {
    let text = String::deserialize(from)?;
    size::parse_share(&text).map(Some).map_err(de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Result<Settings, String> {
        toml::from_str(text).map_err(|error: toml::de::Error| error.to_string())
    }

    #[test]
    fn the_command_line_overrides_the_file_and_the_file_the_defaults() {
        let given = Settings {
            budget: Some(1 << 20),
            write_through: vec!["b*".into()],
            options: vec!["suid".into()],
            ..Settings::default()
        };
        let in_file = file(
            "lose-at-most = \"5m\"\nbudget = \"64MiB\"\nwrite-through = [\"*.db\"]\n\
             no-passthrough = true\noptions = [\"noatime\"]\n\
             [[group]]\npatterns = [\"*.db*\", \"/p/*\"]\nsync = \"delayed:5m\"",
        );
        let wanted = given.or(in_file.unwrap()).wanted(true).unwrap();
        assert_eq!(wanted.lose_at_most, Duration::from_secs(300));
        assert_eq!(wanted.budget_bytes, 1 << 20);
        assert_eq!(wanted.write_through, ["*.db", "b*"]);
        let five = Duration::from_secs(300);
        assert_eq!(wanted.delayed, [("*.db*".to_owned(), five), ("/p/*".to_owned(), five)]);
        assert_eq!(wanted.options, ["nodev", "noatime", "suid"]);
        assert!(!wanted.passthrough && wanted.allow_other);

        let wanted = Settings::default().wanted(true).unwrap();
        assert_eq!(wanted.lose_at_most, Duration::from_secs(1800));
        assert_eq!(wanted.budget_bytes, 256 << 20);
        assert!(wanted.passthrough);
    }

    /// `settle-after` is the name that `lose-at-most` had, and `settled` that of `write-through`;
    /// files and scripts may still use them.
    // Promises: Mount 1.
    #[test]
    fn old_names_are_understood() {
        for name in ["lose-at-most", "settle-after"] {
            let wanted = file(&format!("{name} = \"5m\"")).unwrap().wanted(true).unwrap();
            assert_eq!(wanted.lose_at_most, Duration::from_secs(300), "{name}");
        }
        for name in ["write-through", "settled"] {
            let wanted = file(&format!("{name} = [\"*.db\"]")).unwrap().wanted(true).unwrap();
            assert_eq!(wanted.write_through, ["*.db"], "{name}");
        }
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        settings: Settings,
    }

    #[test]
    fn settings_become_words_that_give_them_again() {
        use clap::Parser;
        let all = Settings {
            lose_at_most: Some(Duration::from_millis(1500)),
            budget: Some(5000),
            write_through: vec!["-a b*".into(), "$c".into()],
            delay_sync: vec![("*/a=b c*".into(), Duration::from_millis(2500))],
            sift: Some("controller:again=0.02,price=2".into()),
            sift_mode: Some("dry-run".into()),
            sift_budget: Some(8192),
            fetch_again: Some(0.25),
            profiles: vec!["pip".into()],
            drop: vec!["*/a b/*".into()],
            pin: vec!["*/c".into()],
            metrics: ["unix:/run/a b", "[::1]:9101"].map(|at| at.parse().unwrap()).to_vec(),
            foreground_from: Some("logind".parse().unwrap()),
            no_passthrough: true,
            no_xattr: true,
            threads: Some(3),
            options: vec!["noatime".into(), "ro".into()],
        };
        for settings in [all, Settings::default()] {
            let words = [String::new()].into_iter().chain(settings.arguments());
            let line = Line::try_parse_from(words).unwrap_or_else(|why| panic!("{why}"));
            assert_eq!(line.settings, settings);
        }
    }

    // Promises: Mount 47.
    #[test]
    fn a_plain_user_gets_neither_passthrough_nor_allow_other() {
        let wanted = Settings::default().wanted(false).unwrap();
        assert!(!wanted.passthrough && !wanted.allow_other);
        let asked = Settings { options: vec!["allow_other".into()], ..Settings::default() };
        assert!(asked.wanted(false).unwrap().allow_other);
    }

    #[test]
    fn invalid_settings_are_errors() {
        let error = |text: &str| file(text).unwrap_err();
        assert!(error("budgte = \"1M\"").contains("unknown field `budgte`"));
        assert!(error("budget = \"lots\"").contains("write it as 64MiB"));
        assert!(error("settle-after = \"soon\"").contains("write a time as 90s"));
        assert!(error("settle-after = 60").contains("expected a string"));
        assert!(error("metrics = [\"0.0.0.0:9101\"]").contains("other machines could reach it"));
        assert!(error("foreground-from = \"me\"").contains("is no source; write cgroup:/"));
        assert!(error("metrics = [\"unix:a\"]").contains("has to begin with /"));
        assert!(error("[[group]]\npatterns = []\nsync = \"never\"").contains("\"delayed:5m\""));
        assert!(delay("*.db=0s").unwrap_err().contains("it must be above 0"));
        assert!(delay("*.db").unwrap_err().contains("no pattern with a time"));
        let unknown = Settings { options: vec!["roo".into()], ..Settings::default() };
        assert!(
            unknown.wanted(true).unwrap_err().to_string().contains("unknown mount option \"roo\"")
        );
    }
}
