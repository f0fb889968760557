//! Taking a mount away: as root by the kernel's call, else by `fusermount3`, which may do it for who mounted it.

use crate::place::KIND;
use flashsift_host::mounts::{self, Mount};
use rustix::{
    fs::{Mode, OFlags, minor},
    io::Errno,
    mount::UnmountFlags,
};
use std::{
    fs, io,
    path::Path,
    process::{Command, Stdio},
};

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// It is gone; with `lazily`, from its place only, for as long as somebody uses it.
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

/// From now on nothing is asked of the server of this mount: who still uses it gets errors, so that nobody is promised what
/// nobody will keep. `false` where that is not to be had (a plain user, and no `/sys/fs/fuse/connections`).
pub fn cut_off(mount: &Mount) -> bool {
    match rustix::mount::unmount(&mount.point, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW) {
        Ok(()) | Err(Errno::BUSY) => true,
        Err(_) => fs::write(format!("/sys/fs/fuse/connections/{}/abort", minor(mount.dev)), "1").is_ok(),
    }
}
