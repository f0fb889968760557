//! Settings of a mount: from the command line, else from a file, else the defaults here.

use crate::{size, usage::Usage};
use anyhow::Context;
use flashsift_core::duration::Exact;
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
    #[arg(long, value_name = "PATTERN")]
    settled: Vec<String>,

    /// Do not let the kernel read and write the files on flash directly; flashsift does it instead
    #[arg(long)]
    no_passthrough: bool,

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
    pub(super) settled: Vec<String>,
    pub(super) passthrough: bool,
    pub(super) allow_other: bool,
    pub(super) threads: usize,
    pub(super) options: Vec<String>,
}

impl Settings {
    /// Reads the settings of a configuration file.
    pub(super) fn from_file(path: &Path) -> anyhow::Result<Self> {
        let at = || path.display().to_string();
        let text = std::fs::read_to_string(path).with_context(at)?;
        toml::from_str(&text).with_context(at)
    }

    /// These settings as words of a command line.
    pub(super) fn words(&self) -> Vec<String> {
        let time = self.lose_at_most.map(|time| time.as_micros().try_into().unwrap_or(u64::MAX));
        let one = [
            time.map(|us| format!("--lose-at-most={}", Exact(us))),
            self.budget.map(|bytes| format!("--budget={bytes}")),
            self.no_passthrough.then(|| "--no-passthrough".to_owned()),
            self.threads.map(|threads| format!("--threads={threads}")),
        ];
        let settled = self.settled.iter().map(|pattern| format!("--settled={pattern}"));
        let options = self.options.iter().map(|option| format!("--option={option}"));
        one.into_iter().flatten().chain(settled).chain(options).collect()
    }

    /// Merges two sources: these settings take precedence over `other`; patterns and options add
    /// up.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            lose_at_most: self.lose_at_most.or(other.lose_at_most),
            budget: self.budget.or(other.budget),
            settled: [other.settled, self.settled].concat(),
            no_passthrough: self.no_passthrough || other.no_passthrough,
            threads: self.threads.or(other.threads),
            options: [other.options, self.options].concat(),
        }
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
        Ok(Wanted {
            lose_at_most,
            budget_bytes: self.budget.unwrap_or_else(|| size::parse_bytes(BUDGET).expect(default)),
            settled: self.settled,
            passthrough: root && !self.no_passthrough,
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

fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(from)?;
    size::parse_bytes(&text).map(Some).map_err(de::Error::custom)
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
            settled: vec!["b*".into()],
            options: vec!["suid".into()],
            ..Settings::default()
        };
        let in_file = file(
            "settle-after = \"5m\"\nbudget = \"64MiB\"\nsettled = [\"*.db\"]\n\
             no-passthrough = true\noptions = [\"noatime\"]",
        );
        let wanted = given.or(in_file.unwrap()).wanted(true).unwrap();
        assert_eq!(wanted.lose_at_most, Duration::from_secs(300));
        assert_eq!(wanted.budget_bytes, 1 << 20);
        assert_eq!(wanted.settled, ["*.db", "b*"]);
        assert_eq!(wanted.options, ["nodev", "noatime", "suid"]);
        assert!(!wanted.passthrough && wanted.allow_other);

        let wanted = Settings::default().wanted(true).unwrap();
        assert_eq!(wanted.lose_at_most, Duration::from_secs(1800));
        assert_eq!(wanted.budget_bytes, 256 << 20);
        assert!(wanted.passthrough);
    }

    /// `settle-after` is the name that `lose-at-most` had; files and scripts may still use it.
    #[test]
    fn the_old_name_of_the_window_is_understood() {
        for name in ["lose-at-most", "settle-after"] {
            let wanted = file(&format!("{name} = \"5m\"")).unwrap().wanted(true).unwrap();
            assert_eq!(wanted.lose_at_most, Duration::from_secs(300), "{name}");
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
            settled: vec!["-a b*".into(), "$c".into()],
            no_passthrough: true,
            threads: Some(3),
            options: vec!["noatime".into(), "ro".into()],
        };
        for settings in [all, Settings::default()] {
            let words = [String::new()].into_iter().chain(settings.words());
            assert_eq!(Line::try_parse_from(words).ok().unwrap().settings, settings);
        }
    }

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
        assert!(error("budget = \"lots\"").contains("write a size as 64MiB"));
        assert!(error("settle-after = \"soon\"").contains("write a time as 90s"));
        assert!(error("settle-after = 60").contains("expected a string"));
        let unknown = Settings { options: vec!["roo".into()], ..Settings::default() };
        assert!(
            unknown.wanted(true).unwrap_err().to_string().contains("unknown mount option \"roo\"")
        );
    }
}
