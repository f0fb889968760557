//! Temporary names of copies, and the directories in which there may be some.

use super::types::Ino;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Temporary names begin so, and end in this many hexadecimal digits.
const PREFIX: &[u8] = b".flashsift-";
const DIGITS: usize = 16;
/// Whether this is a temporary name of ours.
pub(crate) fn is_temporary(name: &OsStr) -> bool {
    let digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    name.as_bytes()
        .strip_prefix(PREFIX)
        .is_some_and(|digits| digits.len() == DIGITS && digits.iter().all(digit))
}

pub(crate) fn temporary(number: u64) -> String {
    format!("{}{number:0DIGITS$x}", String::from_utf8_lossy(PREFIX))
}

/// The end of the path in a record of all directories in one: no path of a directory ends so.
pub(super) const ALL_INSIDE: &[u8] = b"/.";

/// After so many records of directories in one, the next is of all that are in it: a record costs
/// an inode, and a block if its path has 60 bytes, and after a crash the next start looks into all
/// of them.
const RECORDED_APART: u32 = 4;

/// The record that the directories in one need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needed {
    /// None: all of them are recorded.
    Nothing,
    /// Of the one directory.
    One,
    /// Of all directories in that one.
    All,
}

/// The directories that have a record.
#[derive(Debug, Default)]
pub(crate) struct Temps {
    /// The number of copies in each at the moment.
    pub(super) dirs: HashMap<Ino, u32>,
    /// How many records were made of directories in this one.
    inside: HashMap<Ino, u32>,
}

impl Temps {
    /// Whether copies may be in this directory.
    pub(crate) fn may_be_in(&self, dir: Ino) -> bool {
        self.dirs.contains_key(&dir)
    }

    /// The directory is gone: BACKING may give its number to another one.
    pub(crate) fn forget(&mut self, dir: Ino) {
        self.dirs.remove(&dir);
        self.inside.remove(&dir);
    }

    /// The record that is needed for a directory in this one.
    pub(super) fn needed_in(&self, parent: Ino) -> Needed {
        match self.inside.get(&parent).copied().unwrap_or(0) {
            ..RECORDED_APART => Needed::One,
            RECORDED_APART => Needed::All,
            _ => Needed::Nothing,
        }
    }

    /// That record was made.
    pub(super) fn recorded_in(&mut self, parent: Ino) {
        let made = self.inside.entry(parent).or_default();
        *made = (*made + 1).min(RECORDED_APART + 1);
    }

    /// The directories of which some in them have a record.
    pub(super) fn parents(&self) -> Vec<Ino> {
        self.inside.keys().copied().collect()
    }

    /// The path of this directory changes: later copies in those that are in it need records anew.
    pub(super) fn moved(&mut self, dir: Ino) {
        self.inside.remove(&dir);
    }

    /// Forgets directories without copies whose next copy needs no record.
    pub(super) fn forget_covered(&mut self, parent: impl Fn(Ino) -> Option<Ino>) {
        let inside = &self.inside;
        let is_covered = |dir: Ino| {
            parent(dir).is_some_and(|parent| inside.get(&parent) > Some(&RECORDED_APART))
        };
        self.dirs.retain(|dir, copies| *copies > 0 || !is_covered(*dir));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_temporary_names_are_ours() {
        assert!(is_temporary(OsStr::new(&temporary(0))));
        assert!(is_temporary(OsStr::new(&temporary(u64::MAX))));
        for other in [".flashsift", ".flashsift-", ".flashsift-00000000000000001", "a"] {
            assert!(!is_temporary(OsStr::new(other)), "{other}");
        }
        let uppercase = temporary(0xabc).to_uppercase();
        assert!(!is_temporary(OsStr::new(&uppercase)));
    }
}
