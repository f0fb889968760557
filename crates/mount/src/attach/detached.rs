//! Mounting as root with the kernel's newer system calls: `fsopen`, `fsmount` and `move_mount`.
//! They allow our own type and any source name (fuser would call the mount `fuse`), and the mount
//! becomes visible only when the file system answers.

use super::AttachOptions;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::{Errno, Result};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount,
};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// A mount that is not attached to a directory yet.
pub(crate) struct Detached {
    /// The FUSE device, from which requests are read.
    pub(crate) device: OwnedFd,
    mount: OwnedFd,
}

impl Detached {
    /// `None` for a plain user.
    pub(crate) fn new(options: &AttachOptions) -> Result<Option<Detached>> {
        let context = match fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC) {
            Err(Errno::PERM) => return Ok(None),
            context => context?,
        };
        let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let us = rustix::process::geteuid().as_raw().to_string();
        let our_group = rustix::process::getegid().as_raw().to_string();
        let mode = rustix::fs::stat(&options.mountpoint)?.st_mode;
        for (key, value) in [
            ("source", options.name.as_str()),
            ("subtype", "flashsift"),
            ("fd", &device.as_raw_fd().to_string()),
            ("rootmode", &format!("{mode:o}")),
            ("user_id", &us),
            ("group_id", &our_group),
        ] {
            fsconfig_set_string(&context, key, value)?;
        }
        fsconfig_set_flag(&context, "default_permissions")?;
        if options.allow_other {
            fsconfig_set_flag(&context, "allow_other")?;
        }
        if options.kernel.iter().any(|option| option == "ro") {
            // Read-only for the file system, besides the mount's own flag: mount(8) sets both, and
            // a remount may change both.
            fsconfig_set_flag(&context, "ro")?;
        }
        fsconfig_create(&context)?;
        let mount = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes(&options.kernel))?;
        Ok(Some(Detached { device, mount }))
    }

    /// Attaches the mount to this directory. No link is followed.
    pub(crate) fn attach(mount: OwnedFd, point: &Path) -> Result<()> {
        move_mount(mount, "", CWD, point, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
    }

    pub(crate) fn split(self) -> (OwnedFd, OwnedFd) {
        (self.device, self.mount)
    }
}

/// By default, set-user-ID programs and device files have no effect in the mount.
fn attributes(options: &[String]) -> MountAttrFlags {
    let mut flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    for option in options {
        match option.as_str() {
            "suid" => flags -= MountAttrFlags::MOUNT_ATTR_NOSUID,
            "dev" => flags -= MountAttrFlags::MOUNT_ATTR_NODEV,
            "ro" => flags |= MountAttrFlags::MOUNT_ATTR_RDONLY,
            "noexec" => flags |= MountAttrFlags::MOUNT_ATTR_NOEXEC,
            "noatime" => flags |= MountAttrFlags::MOUNT_ATTR_NOATIME,
            _ => {}
        }
    }
    flags
}
