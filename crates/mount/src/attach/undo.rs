//! Taking a mount away, or changing what it allows: as root by the kernel's calls; `fusermount3` takes away what its caller mounted.

use super::place::KIND;
use flashsift_host::{
    mounts::{self, Mount},
    users::{self, Found},
};
use rustix::{
    fs::{AtFlags, Mode, OFlags, StatVfsMountFlags, minor, statvfs},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, UnmountFlags, fsconfig_create, fsmount,
        fsopen, mount_remount,
    },
};
use std::{
    fs,
    io::{self, Write},
    os::fd::OwnedFd,
    path::Path,
    process::{Command, Stdio},
};

/// How often, where nobody is found who uses it; each time all processes are looked at.
const TRIES: u32 = 20;

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// It is gone; lazily, from its place only, for as long as somebody uses it.
    Gone,
    /// Somebody uses it.
    Busy,
}

/// Takes away what is mounted here. Lazily: from its place at once, wholly when nobody uses it any more.
pub fn unmount(point: &Path, lazily: bool) -> io::Result<Unmounted> {
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(point, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(Unmounted::Gone),
        Err(Errno::BUSY) => Ok(Unmounted::Busy),
        Err(Errno::PERM) => by_helper(point, lazily),
        Err(why) => Err(why.into()),
    }
}

/// Takes away what is mounted here, or says who uses it. Who only looks at it in this moment keeps the kernel from it, too, and is no
/// user: where nobody else is found it is tried again.
pub fn unmount_unused(point: &Path) -> io::Result<Option<Found>> {
    let mut found = Found::default();
    for _ in 0..TRIES {
        if unmount(point, false)? == Unmounted::Gone {
            return Ok(None);
        }
        // It may be somebody else's mount, of which even root is told nothing.
        found = users::of(point).unwrap_or_default();
        if !found.users.is_empty() {
            break;
        }
    }
    Ok(Some(found))
}

fn by_helper(point: &Path, lazily: bool) -> io::Result<Unmounted> {
    let output = Command::new("fusermount3")
        .args(if lazily { &["-u", "-z", "--"][..] } else { &["-u", "--"] })
        .arg(point)
        .stdin(Stdio::null())
        .output()
        .map_err(|why| {
            io::Error::new(why.kind(), format!("fusermount3, which users need (package fuse3): {why}"))
        })?;
    let says = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(Unmounted::Gone),
        false if says.contains("busy") => Ok(Unmounted::Busy),
        false => Err(io::Error::other(says.trim().to_owned())),
    }
}

/// What a mount allows, as it is to be from now on; what is not named stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allows {
    /// `rw`, not `ro`: the kernel refuses every change, and what is in RAM settles all the same.
    pub writes: Option<bool>,
    /// `suid`, not `nosuid`.
    pub setuid: Option<bool>,
    /// `dev`, not `nodev`.
    pub devices: Option<bool>,
    /// `exec`, not `noexec`.
    pub programs: Option<bool>,
}

/// Changes what is mounted here, which is all in the kernel; somebody may have files open for writing (`EBUSY`). Takes root.
pub fn remount(point: &Path, to: &Allows) -> io::Result<()> {
    let has = statvfs(point)?.f_flag;
    let mut flags = MountFlags::empty();
    for (allowed, off, flag) in [
        (to.writes, StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
        (to.setuid, StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (to.devices, StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (to.programs, StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
    ] {
        flags.set(flag, allowed.map_or(has.contains(off), |allowed| !allowed));
    }
    // Where nothing is said of times of access, the kernel leaves them as they are.
    Ok(mount_remount(point, flags, c"")?)
}

/// Whether a mount is one of ours whose server is gone.
pub fn is_dead(mount: &Mount) -> bool {
    mount.kind == KIND && fs::metadata(&mount.point).is_err_and(|why| mounts::is_dead(&why))
}

/// What a killed flashsift left mounted here is taken away. Whether there was something.
pub fn free_dead(point: &Path) -> io::Result<bool> {
    let point = mounts::resolved(point)?;
    match mounts::at(&point)? {
        Some(mount) if is_dead(&mount) => unmount(&point, true).map(|_| true),
        _ => Ok(false),
    }
}

/// What programs have written through mappings reaches us.
pub fn flush(point: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::syncfs(rustix::fs::open(point, flags, Mode::empty())?)?)
}

const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// The directory of the kernel in which each mount of FUSE has another, as long as it is mounted anywhere.
fn connections() -> io::Result<OwnedFd> {
    let connections = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&connections)?;
    Ok(fsmount(&connections, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

/// Whether a FUSE file system with this (minor) number of a device is mounted anywhere. A plain user is told only of his own mount namespace
/// where nobody has mounted fusectl.
pub(crate) fn is_mounted(number: u32) -> bool {
    let name = number.to_string();
    if Path::new(CONNECTIONS).join(&name).exists() {
        return true;
    }
    match connections() {
        Ok(all) => rustix::fs::statat(all, name, AtFlags::SYMLINK_NOFOLLOW).is_ok(),
        Err(_) => mounts::all()
            .is_ok_and(|all| all.iter().any(|mount| mount.kind == KIND && minor(mount.dev) == number)),
    }
}

/// From now on the kernel asks the server of this mount for nothing more: who still uses it gets errors, so that nobody is promised
/// what nobody will keep. An error where that is not to be had: a plain user, and nobody has mounted fusectl.
pub fn cut_off(mount: &Mount) -> io::Result<()> {
    let abort = format!("{}/abort", minor(mount.dev));
    match fs::write(Path::new(CONNECTIONS).join(&abort), "1") {
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            match rustix::fs::openat(connections()?, &abort, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            {
                Ok(abort) => fs::File::from(abort).write_all(b"1"),
                // There is nobody any more who could ask.
                Err(Errno::NOENT) => Ok(()),
                Err(why) => Err(why.into()),
            }
        }
        done => done,
    }
}
