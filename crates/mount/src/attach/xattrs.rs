//! Extended attributes below a directory that decide what processes may do with its files.

use rustix::io::Errno;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Access control lists, capabilities and the labels of security modules.
const RIGHTS: [&[u8]; 2] = [b"system.posix_acl_", b"security."];
/// The most that the kernel lists for a file, bytes.
const NAMES_BYTES: usize = 64 << 10;

/// Finds a file with such an attribute, in this directory and below. Returns its path and the
/// attribute.
///
/// # Errors
///
/// A directory cannot be listed, or the attributes of a file cannot be.
pub(super) fn with_rights(top: &Path) -> io::Result<Option<(PathBuf, String)>> {
    let (mut left, mut names) = (vec![top.to_owned()], vec![0; NAMES_BYTES]);
    while let Some(path) = left.pop() {
        let listed = match rustix::fs::llistxattr(&path, &mut names[..]) {
            Err(Errno::OPNOTSUPP) => return Ok(None),
            // It was removed meanwhile.
            Err(Errno::NOENT) => continue,
            listed => listed?,
        };
        let found = names[..listed]
            .split(|byte| *byte == 0)
            .find(|name| RIGHTS.iter().any(|rights| name.starts_with(rights)));
        if let Some(name) = found {
            let name = String::from_utf8_lossy(name).into_owned();
            return Ok(Some((path, name)));
        }
        if fs::symlink_metadata(&path).is_ok_and(|about| about.is_dir()) {
            for entry in fs::read_dir(&path)? {
                left.push(entry?.path());
            }
        }
    }
    Ok(None)
}
