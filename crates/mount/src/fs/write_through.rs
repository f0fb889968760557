//! Names of files that are written through: created on flash, never held in RAM.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use wildmatch::WildMatch;

/// SQLite's databases, journals and shared memory. They are synced with every transaction, and the
/// shared memory is mapped: both are better on flash from the start.
const SQLITE: [&str; 8] =
    ["*-journal", "*-wal", "*-shm", "*.sqlite", "*.sqlite3", "*.db", "*.db3", "*.sqlite-*"];

/// Patterns of names that are created on flash.
#[derive(Debug)]
pub(crate) struct WriteThrough(Vec<WildMatch>);

impl WriteThrough {
    pub(crate) fn new(patterns: &[String]) -> WriteThrough {
        WriteThrough(
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
        let settled = WriteThrough::new(&["*.log".to_owned(), "LOCK".to_owned()]);
        for name in ["Cookies-journal", "a.db", "places.sqlite", "places.sqlite-wal", "x.log", "LOCK"] {
            assert!(settled.matches(OsStr::new(name)), "{name}");
        }
        for name in ["f_000012", "db", "LOCKS", "a.dbx", "journal"] {
            assert!(!settled.matches(OsStr::new(name)), "{name}");
        }
        assert!(!settled.matches(OsStr::from_bytes(b"\xff\xfe")));
    }
}
