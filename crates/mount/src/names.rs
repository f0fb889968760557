//! Names with a meaning.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use wildmatch::WildMatch;

/// What is ours in BACKING; the mount does not show it.
pub const HIDDEN: &str = ".flashsift";

/// Databases that SQLite keeps, and what it keeps beside them. They are synced with every transaction, and their
/// shared memory is mapped: both are better in place from the start.
const SQLITE: [&str; 8] =
    ["*-journal", "*-wal", "*-shm", "*.sqlite", "*.sqlite3", "*.db", "*.db3", "*.sqlite-*"];

/// Which names are born settled.
#[derive(Debug)]
pub(crate) struct BornSettled(Vec<WildMatch>);

impl BornSettled {
    pub(crate) fn new(patterns: &[String]) -> BornSettled {
        BornSettled(
            SQLITE.into_iter().chain(patterns.iter().map(String::as_str)).map(WildMatch::new).collect(),
        )
    }

    pub(crate) fn matches(&self, name: &OsStr) -> bool {
        let name = String::from_utf8_lossy(name.as_bytes());
        self.0.iter().any(|pattern| pattern.matches(&name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_and_what_was_asked_for() {
        let settled = BornSettled::new(&["*.log".to_owned(), "LOCK".to_owned()]);
        for name in ["Cookies-journal", "a.db", "places.sqlite", "places.sqlite-wal", "x.log", "LOCK"] {
            assert!(settled.matches(OsStr::new(name)), "{name}");
        }
        for name in ["f_000012", "db", "LOCKS", "a.dbx", "journal"] {
            assert!(!settled.matches(OsStr::new(name)), "{name}");
        }
        assert!(!settled.matches(OsStr::from_bytes(b"\xff\xfe")));
    }
}
