//! The status and the control requests of a mount, as extended attributes of its directory.
//!
//! In a mount without extended attributes the kernel asks for none. There a process looks up a name
//! in the mounted directory, `.flashsift-ask` and the attribute's: never found. The next list of
//! extended attributes that its thread asks for is the value, between `=` and a zero byte.

use crate::fs::sifting::SiftWish;
use crate::fs::types::Status;
use flashsift_files::sift::{Explanation, live::LiveDecision};
use flashsift_host::mounts::{self, Mount};
use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
    process::{Gid, Uid, geteuid},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use std::{
    ffi::OsString,
    io,
    os::{fd::AsRawFd, unix::ffi::OsStringExt},
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

/// [`Status`] as JSON: the value of this attribute of the mounted directory.
pub const STATUS: &str = "user.flashsift.status";
/// Reading this attribute of the mounted directory writes every file in RAM back first. Only root
/// and the user of the mount may. (It is read, not set: setting it would lock the directory
/// meanwhile, and would fail on a read-only mount.)
pub const SETTLE: &str = "user.flashsift.settle";
/// As [`SETTLE`], but BACKING's file system may keep what it gets in memory: for an unmount,
/// which makes everything durable at its end.
pub const WRITE_BACK: &str = "user.flashsift.write_back";

/// The path of BACKING now, which may have been renamed since the mount.
pub(crate) const BACKING: &str = "user.flashsift.backing";
/// `1` if a file of the mount is open, else `0`.
pub(crate) const IN_USE: &str = "user.flashsift.in_use";

/// Reading this attribute makes the process that reads it the one that announces drops. Only the
/// one that the daemon has started may.
pub(crate) const ANNOUNCE: &str = "user.flashsift.announce";
/// Reading the attribute of this name and a [wish](SiftWish) for the sifter makes it come true;
/// `reset` ends a suspension. Only root and the user of the mount may.
pub const SIFT: &str = "user.flashsift.sift.";

/// Reading the attribute of this name and a program's name makes the program the one in the
/// foreground; an empty name: there is none. Only root and the user of the mount may.
pub(crate) const FOREGROUND: &str = "user.flashsift.foreground.";

/// The last decisions of the sifter as JSON, the newest first: the value of the attribute of this
/// name and the number of decisions to skip. It ends where it would be longer than 64 KiB.
pub(crate) const DECISIONS: &str = "user.flashsift.decisions.";
/// The explanation of a file in the sifter's RAM as JSON: the value of this attribute of the file.
pub(crate) const EXPLAIN: &str = "user.flashsift.explain";

/// Looking up a name that begins so, in the mounted directory, asks for the attribute whose name
/// follows, where there are no extended attributes.
pub(crate) const ASK: &str = ".flashsift-ask ";
/// Longest answer, bytes: the kernel passes no longer value, and no longer list.
const ANSWER_BYTES: usize = 64 << 10;

/// Time that a daemon gets for an answer before the others are asked.
const PATIENCE: Duration = Duration::from_secs(5);

/// Asks a mount, without waiting for ever for a daemon that was stopped.
///
/// # Errors
///
/// Those of the request; `TimedOut`.
pub fn patiently<T: Send + 'static>(
    mount: &Mount,
    ask: fn(&Mount) -> io::Result<T>,
) -> io::Result<T> {
    let (sender, answer) = mpsc::channel();
    let mount = mount.clone();
    // Without an answer the thread ends with this process.
    thread::spawn(move || drop(sender.send(ask(&mount))));
    answer.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let what = "its process does not answer: it is stopped, or waits for its device";
        Err(io::Error::new(io::ErrorKind::TimedOut, what))
    })
}

/// The status of a mount. Root also reaches mounts of other users.
///
/// # Errors
///
/// The attribute cannot be read: it is no mount of flashsift, it is another user's, or its daemon
/// does not answer.
pub fn status(mount: &Mount) -> io::Result<Status> {
    let json = asked(mount, STATUS)?;
    serde_json::from_slice(&json).map_err(io::Error::other)
}

/// Writes back every file that a mount has in RAM. Root also reaches mounts of other users.
///
/// # Errors
///
/// The error of the first file that could not be written back, or of the request itself.
pub fn settle(mount: &Mount) -> io::Result<()> {
    asked(mount, SETTLE).map(drop)
}

/// Writes back every file that a mount has in RAM, before an unmount. Root also reaches mounts of
/// other users.
///
/// # Errors
///
/// The error of the first file that could not be written back, or of the request itself.
pub fn write_back(mount: &Mount) -> io::Result<()> {
    asked(mount, WRITE_BACK).map(drop)
}

/// Returns the path of BACKING, which may have been renamed since the mount.
pub fn backing(mount: &Mount) -> PathBuf {
    let path = asked(mount, BACKING).map(|path| PathBuf::from(OsString::from_vec(path)));
    path.unwrap_or_else(|_| PathBuf::from(&mount.source))
}

/// Returns whether a file of the mount is open.
///
/// # Errors
///
/// The request fails.
pub fn is_in_use(mount: &Mount) -> io::Result<bool> {
    Ok(asked(mount, IN_USE)? != b"0")
}

/// Sets what the sifter of a mount does from now on.
///
/// # Errors
///
/// The mount has no sifter (`ENODATA`); or the request fails.
pub fn sift(mount: &Mount, wish: SiftWish) -> io::Result<()> {
    asked(mount, &format!("{SIFT}{}", wish.name())).map(drop)
}

/// Makes the sifter of a mount forget which dropped files came back.
///
/// # Errors
///
/// The request fails.
pub fn reset_sifter(mount: &Mount) -> io::Result<()> {
    asked(mount, &format!("{SIFT}reset")).map(drop)
}

/// Reports to a mount which program is in the foreground, by its name in `/proc/PID/comm`; empty:
/// there is none.
///
/// # Errors
///
/// The request fails.
pub fn set_foreground(mount: &Mount, program: &str) -> io::Result<()> {
    asked(mount, &format!("{FOREGROUND}{program}")).map(drop)
}

fn asked(mount: &Mount, attribute: &str) -> io::Result<Vec<u8>> {
    reach(mount, |point| {
        value(point, point, attribute).map_err(|why| match why {
            Errno::PERM => {
                let who = "only root and the user who has mounted it may do this";
                io::Error::new(io::ErrorKind::PermissionDenied, who)
            }
            why => why.into(),
        })
    })
}

/// The value of an attribute of this file in the mount on this directory.
fn value(root: &Path, file: &Path, attribute: &str) -> rustix::io::Result<Vec<u8>> {
    let mut bytes = vec![0; ANSWER_BYTES];
    match rustix::fs::getxattr(file, attribute, bytes.as_mut_slice()) {
        Err(Errno::OPNOTSUPP) => match rustix::fs::lstat(root.join(format!("{ASK}{attribute}"))) {
            Err(Errno::NOENT) => {
                let len = rustix::fs::listxattr(file, bytes.as_mut_slice())?;
                let value =
                    bytes[..len].strip_prefix(b"=").and_then(|rest| rest.strip_suffix(&[0]));
                value.map(<[u8]>::to_vec).ok_or(Errno::OPNOTSUPP)
            }
            Ok(_) => Err(Errno::OPNOTSUPP),
            Err(why) => Err(why),
        },
        read => {
            bytes.truncate(read?);
            Ok(bytes)
        }
    }
}

/// Returns the last decisions of a mount's sifter, the newest first.
///
/// # Errors
///
/// The request fails.
pub fn decisions(mount: &Mount) -> io::Result<Vec<LiveDecision>> {
    let mut all: Vec<LiveDecision> = Vec::new();
    loop {
        let json = asked(mount, &format!("{DECISIONS}{}", all.len()))?;
        let more: Vec<LiveDecision> = serde_json::from_slice(&json).map_err(io::Error::other)?;
        if more.is_empty() {
            return Ok(all);
        }
        all.extend(more);
    }
}

/// Explains a file of a mount that is in the RAM of its sifter; `None`: it is elsewhere.
///
/// # Errors
///
/// The request fails.
pub fn explain(mount: &Mount, file: &Path) -> io::Result<Option<Explanation>> {
    match value(&mount.point, file, EXPLAIN) {
        Ok(json) => serde_json::from_slice(&json).map(Some).map_err(io::Error::other),
        Err(Errno::NODATA) => Ok(None),
        Err(why) => Err(why.into()),
    }
}

/// Makes the calling process the one that announces drops.
pub(crate) fn announce(root: impl AsRawFd) -> rustix::io::Result<()> {
    let root = PathBuf::from(format!("/proc/self/fd/{}", root.as_raw_fd()));
    value(&root, &root, ANNOUNCE).map(drop)
}

/// Whether the server of this mount is gone: its process was killed.
///
/// The kernel answers questions about the directory itself from its memory, for up to an hour after
/// the server's end. It keeps neither extended attributes nor names that were not found, so it has
/// to ask for them.
pub fn is_dead(mount: &Mount) -> bool {
    asked(mount, STATUS).is_err_and(|why| mounts::is_dead(&why))
}

/// Makes a request at the mounted directory. Without `allow_other`, FUSE refuses processes of other
/// users, so root asks as the user of the mount if it is refused: in a thread of its own, as the
/// kernel keeps user and group for each thread.
fn reach<T: Send>(
    mount: &Mount,
    ask: impl Fn(&Path) -> io::Result<T> + Send + Sync,
) -> io::Result<T> {
    let refused = match ask(&mount.point) {
        Err(why) if why.kind() == io::ErrorKind::PermissionDenied && geteuid().is_root() => why,
        done => return done,
    };
    let Some((user, group)) = mount.user else { return Err(refused) };
    // The directories above may be closed to the user, and are the user's to change meanwhile. This
    // descriptor needs no right to use the mount.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::open(&mount.point, flags, Mode::empty())?;
    let point = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
    let as_user = || {
        let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
        set_thread_groups(&[])?;
        set_thread_res_gid(group, group, group)?;
        set_thread_res_uid(user, user, user)?;
        ask(&point)
    };
    thread::scope(|scope| {
        let asked = scope.spawn(as_user).join();
        asked.unwrap_or_else(|_| Err(io::Error::other("the thread that asks panicked")))
    })
}
