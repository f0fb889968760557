//! Profiles of known caches: where a program keeps its cache, and which files of it may be dropped.
//!
//! A profile is a TOML file and one line in [`ALL`]. Its patterns are shell patterns in which `*`
//! also stands for `/`. Those of `directories` are whole paths; those of `drop` and `pin` continue
//! them. A file that no pattern in `drop` matches is never dropped. Each profile carries examples
//! of both kinds, and a profile that contradicts them is refused.
//!
//! `checked` tells how the profile was checked with the real program. A profile that was not has
//! `unchecked` with the reason instead, and is off unless it is named.

use super::Droppable;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use thiserror::Error;

/// All shipped profiles, as TOML.
pub const ALL: &[&str] = &[
    include_str!("chromium.toml"),
    include_str!("firefox.toml"),
    include_str!("thumbnails.toml"),
    include_str!("pip.toml"),
    include_str!("npm.toml"),
    include_str!("cargo.toml"),
    include_str!("go-build.toml"),
    include_str!("ccache.toml"),
    include_str!("mesa.toml"),
    include_str!("fontconfig.toml"),
    include_str!("apt.toml"),
    include_str!("chrome.toml"),
    include_str!("brave.toml"),
    include_str!("edge.toml"),
    include_str!("electron.toml"),
    include_str!("android.toml"),
];

/// A known cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheProfile {
    /// Name, in lower case.
    pub name: String,
    /// Program and content, in a few words.
    pub title: String,
    /// Patterns of the directories of the cache, as whole paths.
    pub directories: Vec<String>,
    /// Patterns of files that may be dropped, below a directory.
    pub drop: Vec<String>,
    /// Patterns of files that are never dropped, below a directory.
    #[serde(default)]
    pub pin: Vec<String>,
    /// Program, version and command of the check.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checked: Option<String>,
    /// Reason for which the profile was not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unchecked: Option<String>,
    /// Example paths of files that may be dropped.
    pub may: Vec<String>,
    /// Example paths of files that may not.
    pub may_not: Vec<String>,
}

/// Reason why a profile is refused.
#[derive(Debug, Error)]
pub enum CacheProfileError {
    /// The text is no profile; the message names the key.
    #[error("{0}")]
    Text(#[from] toml::de::Error),
    /// A value does not make sense.
    #[error("`{key}`: {reason}")]
    Value {
        /// Key of the value.
        key: &'static str,
        /// Problem of the value.
        reason: String,
    },
    /// No profile has this name.
    #[error("no profile is named {name:?}; known: {known}")]
    Unknown {
        /// Name that was given.
        name: String,
        /// Names of all profiles.
        known: String,
    },
}

impl CacheProfile {
    /// Returns the profile that this TOML describes.
    ///
    /// # Errors
    /// A key is unknown or missing, a value does not make sense, or an example contradicts the
    /// patterns.
    pub fn parse(text: &str) -> Result<Self, CacheProfileError> {
        let profile: Self = toml::from_str(text)?;
        profile.validate()?;
        Ok(profile)
    }

    /// Returns whether the profile was checked with the real program. Others are off unless they
    /// are named.
    pub fn is_checked(&self) -> bool {
        self.checked.is_some()
    }

    fn validate(&self) -> Result<(), CacheProfileError> {
        let refuse = |key, reason: String| Err(CacheProfileError::Value { key, reason });
        let is_plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if self.name.is_empty() || !self.name.bytes().all(is_plain) {
            return refuse("name", format!("{:?} is not of a-z, 0-9 and -", self.name));
        }
        for (key, values) in [("directories", &self.directories), ("drop", &self.drop)] {
            if values.is_empty() {
                return refuse(key, "needs a pattern".into());
            }
        }
        for directory in &self.directories {
            let literal = directory.trim_matches(['*', '?', '/']);
            if !directory.starts_with(['/', '*']) || literal.is_empty() {
                return refuse("directories", format!("{directory:?} names no absolute path"));
            }
        }
        for (key, values) in [("drop", &self.drop), ("pin", &self.pin)] {
            if let Some(value) = values.iter().find(|at| at.is_empty() || at.starts_with('/')) {
                return refuse(key, format!("{value:?} is not relative to the directory"));
            }
        }
        match (&self.checked, &self.unchecked) {
            (Some(text), None) | (None, Some(text)) if !text.trim().is_empty() => {}
            _ => return refuse("checked", "needs a sentence here or in `unchecked`".into()),
        }
        let droppable = Droppable::by_profiles(std::slice::from_ref(self), &[], &[]);
        for (key, paths, expected) in [("may", &self.may, true), ("may_not", &self.may_not, false)]
        {
            if paths.is_empty() {
                return refuse(key, "needs an example".into());
            }
            if let Some(path) = paths.iter().find(|path| droppable.has(path) != expected) {
                let verb = if expected { "does not drop" } else { "drops" };
                return refuse(key, format!("the profile {verb} {path:?}"));
            }
        }
        Ok(())
    }
}

/// Returns all shipped profiles, in the order of [`ALL`].
///
/// # Panics
/// If one of them is not valid; a test reads them all.
pub fn shipped() -> Vec<CacheProfile> {
    let parsed = |text: &&str| CacheProfile::parse(text).expect("shipped profiles are valid");
    ALL.iter().map(parsed).collect()
}

/// Returns the profiles that are on by default: those that were checked with the real program.
pub fn checked() -> Vec<CacheProfile> {
    shipped().into_iter().filter(CacheProfile::is_checked).collect()
}

/// Returns the shipped profiles with these names, checked or not.
///
/// # Errors
/// No profile has one of the names.
pub fn named<N: AsRef<str>>(names: &[N]) -> Result<Vec<CacheProfile>, CacheProfileError> {
    let shipped = shipped();
    let find = |name: &N| {
        let name = name.as_ref();
        shipped.iter().find(|profile| profile.name.eq_ignore_ascii_case(name)).cloned().ok_or_else(
            || {
                let known: Vec<_> = shipped.iter().map(|profile| &profile.name[..]).collect();
                CacheProfileError::Unknown { name: name.to_owned(), known: known.join(", ") }
            },
        )
    };
    names.iter().map(find).collect()
}

/// Returns the page docs/profiles.md, which lists all profiles.
pub fn markdown() -> String {
    let mut page = include_str!("head.txt").to_owned();
    for profile in shipped() {
        let code = |patterns: &[String]| {
            let quoted: Vec<_> = patterns.iter().map(|at| format!("`{at}`")).collect();
            if quoted.is_empty() { "–".to_owned() } else { quoted.join(" ") }
        };
        let check = match (&profile.checked, &profile.unchecked) {
            (Some(how), _) => how.clone(),
            (None, reason) => format!("**Off, not checked.** {}", reason.as_deref().unwrap_or("")),
        };
        writeln!(
            page,
            "| `{}` | {} | {} | {} | {} | {check} |",
            profile.name,
            profile.title,
            code(&profile.directories),
            code(&profile.drop),
            code(&profile.pin),
        )
        .expect("writing to a string succeeds");
    }
    page
}

#[cfg(test)]
mod tests;
