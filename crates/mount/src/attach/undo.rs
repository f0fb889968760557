//! Unmounting and remounting: as root by system calls; a plain user's own mounts through
//! `fusermount3`.

use super::KIND;
use crate::control;
use flashsift_host::{
    mounts::{self, Mount},
    users::{self, Found},
};
use rustix::{
    fs::{AtFlags, Mode, OFlags, ResolveFlags, StatVfsMountFlags, minor, statvfs},
    io::Errno,
    mount::{
        FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, UnmountFlags, fsconfig_create,
        fsmount, fsopen, mount_remount,
    },
};
use std::{
    fs,
    io::{self, Write},
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
    process::{Command, Stdio},
};

/// Number of attempts while no user of the mount is found; each attempt looks at all processes.
const TRIES: u32 = 5;

/// Result of an unmount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unmounted {
    /// It is unmounted; a lazy unmount keeps the file system until no process uses it.
    Gone,
    /// A process uses it.
    Busy,
}

/// Unmounts this directory. A lazy unmount removes it from its place at once, and ends the file
/// system when no process uses it any more.
///
/// # Errors
///
/// The kernel or fusermount3 refuses: `EBUSY` while it is in use, unless `lazy`.
pub fn unmount(point: &Path, lazily: bool) -> io::Result<Unmounted> {
    let flags = if lazily { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match rustix::mount::unmount(point, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(Unmounted::Gone),
        Err(Errno::BUSY) => Ok(Unmounted::Busy),
        Err(Errno::PERM) => by_helper(point, lazily),
        Err(why) => Err(why.into()),
    }
}

/// Unmounts this directory, or returns its users. A process that only looks at the mount at this
/// moment also makes the kernel refuse, and is not a user: if no other user is found, the unmount
/// is tried again. There may always be another one that looks. So if `is_idle` says that nothing in
/// it is open, the kernel takes the mount away and lets them end.
///
/// # Errors
///
/// The unmount fails for a reason other than users, or the users cannot be listed.
pub fn unmount_unused(point: &Path, is_idle: impl Fn() -> bool) -> io::Result<Option<Found>> {
    let mut found = Found::default();
    for _ in 0..TRIES {
        if unmount(point, false)? == Unmounted::Gone {
            return Ok(None);
        }
        // It may be another user's mount, which is closed even to root.
        found = users::users_of(point).unwrap_or_default();
        if !found.users.is_empty() {
            return Ok(Some(found));
        }
    }
    let admits_others = mounts::at(point)?
        .is_some_and(|mount| mount.options.iter().any(|option| option == "allow_other"));
    let may_be_used =
        admits_others && found.unexamined > 0 && !rustix::process::geteuid().is_root();
    // A file that only the kernel uses, such as the image of a loop device, is open too.
    if !may_be_used && mounts::below(point)?.is_empty() && is_idle() {
        unmount(point, true)?;
        return Ok(None);
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
            io::Error::new(
                why.kind(),
                format!("fusermount3, which users need (package fuse3): {why}"),
            )
        })?;
    let says = String::from_utf8_lossy(&output.stderr);
    match output.status.success() {
        true => Ok(Unmounted::Gone),
        false if says.contains("busy") => Ok(Unmounted::Busy),
        false => Err(io::Error::other(says.trim().to_owned())),
    }
}

/// Permissions of a mount after a remount; `None` keeps the present one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allows {
    /// `rw` if true, `ro` if false: the kernel refuses every change, but files in RAM are still
    /// written back.
    pub writes: Option<bool>,
    /// `suid` if true, `nosuid` if false.
    pub setuid: Option<bool>,
    /// `dev` if true, `nodev` if false.
    pub devices: Option<bool>,
    /// `exec` if true, `noexec` if false.
    pub programs: Option<bool>,
}

/// Changes the flags of this mount in the kernel; needs root.
///
/// # Errors
///
/// `EBUSY` if files are open for writing and the mount is to be read-only.
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
    // Without a flag for access times, the kernel keeps the present one.
    Ok(mount_remount(point, flags, c"")?)
}

/// Whether a mount is one of ours whose server is gone.
pub fn is_dead(mount: &Mount) -> bool {
    mount.kind == KIND && control::is_dead(mount)
}

/// Unmounts what killed flashsifts have left on a directory, down to the first mount that lives or
/// is not ours. Returns whether there was anything.
///
/// # Errors
///
/// The list of mounts cannot be read, or an unmount fails.
pub fn free_dead(point: &Path) -> io::Result<bool> {
    let point = mounts::resolved(point)?;
    let mut any = false;
    while mounts::at(&point)?.is_some_and(|mount| is_dead(&mount)) {
        unmount(&point, true)?;
        any = true;
    }
    Ok(any)
}

/// Makes the kernel pass on all writes that programs have made through mappings.
///
/// # Errors
///
/// The directory cannot be opened, or its file system cannot be synced.
pub fn flush(point: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::syncfs(rustix::fs::open(point, flags, Mode::empty())?)?)
}

/// The same for a mount point below the root directory of another process, which may place links
/// there: none is followed.
pub(crate) fn flush_below(root: &Path, point: &Path) -> io::Result<()> {
    let root = rustix::fs::open(root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let within = point.strip_prefix("/").unwrap_or(point);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    Ok(rustix::fs::syncfs(rustix::fs::openat2(root, within, flags, Mode::empty(), resolve)?)?)
}

const CONNECTIONS: &str = "/sys/fs/fuse/connections";

/// The kernel's directory of FUSE connections, which has an entry for each FUSE file system that is
/// mounted anywhere.
fn connections() -> io::Result<OwnedFd> {
    let connections = fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&connections)?;
    Ok(fsmount(&connections, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?)
}

/// Whether a FUSE file system with this minor device number is mounted anywhere. If fusectl is not
/// mounted, a plain user learns this only for his own mount namespace.
pub(crate) fn is_mounted(number: u32) -> bool {
    let name = number.to_string();
    if Path::new(CONNECTIONS).join(&name).exists() {
        return true;
    }
    match connections() {
        Ok(all) => rustix::fs::statat(all, name, AtFlags::SYMLINK_NOFOLLOW).is_ok(),
        Err(_) => mounts::all().is_ok_and(|all| {
            all.iter().any(|mount| mount.kind == KIND && minor(mount.dev) == number)
        }),
    }
}

/// Ends the kernel's requests to the server of this mount: later operations get errors instead of
/// promises that no server would keep.
///
/// # Errors
///
/// The connection cannot be aborted by a plain user, or if fusectl is not mounted.
pub fn cut_off(mount: &Mount) -> io::Result<()> {
    match Connection::new(mount) {
        // The connection has ended already.
        Err(why) if why.kind() == io::ErrorKind::NotFound => Ok(()),
        connection => connection?.cut_off(),
    }
}

/// The connection of a mount to its server. The kernel gives the number of one that has ended to
/// the next; this stands for the same one as long as it exists.
#[derive(Debug)]
pub struct Connection {
    abort: fs::File,
    waiting: fs::File,
}

impl Connection {
    /// Returns the connection of a mount that is there.
    ///
    /// # Errors
    ///
    /// It has ended (`ENOENT`). A plain user can have it only if it is the user's own and fusectl
    /// is mounted.
    pub fn new(mount: &Mount) -> io::Result<Self> {
        let number = minor(mount.dev).to_string();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let there = rustix::fs::open(Path::new(CONNECTIONS).join(&number), flags, Mode::empty());
        let folder = match there {
            Err(Errno::NOENT) => rustix::fs::openat(connections()?, &number, flags, Mode::empty()),
            there => there,
        }?;
        let open = |name: &str, flags: OFlags| {
            rustix::fs::openat(&folder, name, flags | OFlags::CLOEXEC, Mode::empty())
                .map(fs::File::from)
        };
        Ok(Self {
            abort: open("abort", OFlags::WRONLY)?,
            waiting: open("waiting", OFlags::RDONLY)?,
        })
    }

    /// Returns whether a mount of it is left in any namespace.
    #[must_use]
    pub fn is_there(&self) -> bool {
        // It has to be read from its beginning. Of one that has ended the kernel says nothing.
        let anew = fs::read(format!("/proc/self/fd/{}", self.waiting.as_raw_fd()));
        anew.is_ok_and(|says| !says.is_empty())
    }

    /// Ends the kernel's requests to the server; nothing happens if it has ended.
    ///
    /// # Errors
    ///
    /// The kernel refuses.
    pub fn cut_off(&self) -> io::Result<()> {
        (&self.abort).write_all(b"1")
    }
}
