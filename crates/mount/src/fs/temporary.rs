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

/// The directories that have a record, with the number of copies in each at the moment.
#[derive(Debug, Default)]
pub(crate) struct Temps {
    pub(super) dirs: HashMap<Ino, u32>,
}

impl Temps {
    /// Whether copies may be in this directory.
    pub(crate) fn may_be_in(&self, dir: Ino) -> bool {
        self.dirs.contains_key(&dir)
    }

    /// The directory is gone: BACKING may give its number to another one.
    pub(crate) fn forget(&mut self, dir: Ino) {
        self.dirs.remove(&dir);
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
