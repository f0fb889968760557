//! `noatime`: reads through our mount, and passthrough reads by the kernel, reach BACKING's files
//! through the mount that BACKING is on, and that mount's setting for access times applies. So
//! BACKING is held through a mount of its own.

use rustix::fs::{Mode, OFlags, StatVfsMountFlags, fstatvfs};
use rustix::io::{Errno, Result};
use rustix::mount::{MountPropagationFlags, OpenTreeFlags, open_tree};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Opens this directory so that no read in it updates an access time; `None` for a plain user, who
/// lacks the right to do so.
///
/// # Errors
///
/// The directory cannot be cloned for a reason other than a missing right.
pub fn held(dir: impl AsFd) -> Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if fstatvfs(&dir)?.f_flag.contains(StatVfsMountFlags::NOATIME) {
        return rustix::fs::openat(&dir, ".", flags, Mode::empty()).map(Some);
    }
    let clone = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let copy = match open_tree(&dir, "", clone | OpenTreeFlags::AT_EMPTY_PATH) {
        Err(Errno::PERM) => return Ok(None),
        copy => copy?,
    };
    match alone_without_atime(&copy) {
        // A user namespace cannot change mounts of its parent.
        Err(Errno::PERM) => return Ok(None),
        done => done?,
    }
    // The mount is not attached, and lives as long as a file in it is open.
    rustix::fs::openat(&copy, ".", flags, Mode::empty()).map(Some)
}

/// Mounts on the original are not visible in the copy: in place, that is our own.
#[expect(unsafe_code, reason = "the one call that rustix has no function for")]
fn alone_without_atime(mount: &OwnedFd) -> Result<()> {
    /// The kernel's `mount_attr`.
    #[repr(C)]
    struct Attributes {
        set: u64,
        clear: u64,
        propagation: u64,
        users: u64,
    }
    const NOATIME: u64 = 0x10;
    const ATIME: u64 = 0x70;
    let attributes = Attributes {
        set: NOATIME,
        clear: ATIME,
        propagation: u64::from(MountPropagationFlags::PRIVATE.bits()),
        users: 0,
    };
    // Safety: `mount_setattr` reads an empty path and the given number of bytes of attributes.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const attributes,
            size_of::<Attributes>(),
        )
    };
    match done {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)),
    }
}
