//! Names in BACKING: those of ours, and opening one without leaving its directory.

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, Result};
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::PathBuf;

/// The directory in BACKING that belongs to flashsift; the mount does not show it.
pub const HIDDEN: &str = ".flashsift";
/// The file in it that the daemon holds locked.
pub(crate) const LOCK: &str = "lock";

/// The attribute of BACKING that is there from the first change of a mount to its clean end, where
/// the file system needs no lock file.
pub(crate) const MARK: &str = "user.flashsift.mounted";

/// The log of epochs in the hidden directory.
pub(crate) const LOG: &str = "epochs";

/// The number of a hidden name.
pub(crate) fn hidden_name(number: u64) -> String {
    format!("{number:x}")
}

/// Opens one name, without following a link or entering another file system.
pub(crate) fn open_beneath(dir: impl AsFd, name: &OsStr, flags: OFlags) -> Result<OwnedFd> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
    loop {
        match rustix::fs::openat2(
            &dir,
            name,
            flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
            resolve,
        ) {
            // A rename interfered; try again.
            Err(Errno::AGAIN | Errno::INTR) => (),
            // A link is opened itself, not followed.
            Err(Errno::LOOP) if flags.contains(OFlags::PATH) => {
                return rustix::fs::openat(
                    &dir,
                    name,
                    flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
                    Mode::empty(),
                );
            }
            other => return other,
        }
    }
}

/// The path in /proc by which system calls that take only a path reach an open file.
pub(crate) fn proc_path(fd: impl AsFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd()))
}
