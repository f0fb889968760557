//! Taking a mount away: as root by the kernel's call, else by `fusermount3`, which may do it for who mounted it.

use crate::place::KIND;
use flashsift_host::{
    mounts::{self, Mount},
    users::{self, Found},
};
use rustix::{
    fs::{Mode, OFlags, minor},
    io::Errno,
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, UnmountFlags, fsconfig_create, fsmount, fsopen},
};
use std::{
    fs,
    io::{self, Write},
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

/// From now on the kernel asks the server of this mount for nothing more: who still uses it gets errors, so that nobody is promised
/// what nobody will keep. An error where that is not to be had: a plain user, and nobody has mounted fusectl.
pub fn cut_off(mount: &Mount) -> io::Result<()> {
    let abort = format!("{}/abort", minor(mount.dev));
    match fs::write(Path::new("/sys/fs/fuse/connections").join(&abort), "1") {
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            let connections = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
            fsconfig_create(&connections)?;
            let connections = fsmount(&connections, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
            match rustix::fs::openat(connections, &abort, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
                Ok(abort) => fs::File::from(abort).write_all(b"1"),
                // There is nobody any more who could ask.
                Err(Errno::NOENT) => Ok(()),
                Err(why) => Err(why.into()),
            }
        }
        done => done,
    }
}
