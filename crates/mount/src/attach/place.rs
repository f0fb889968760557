//! Checks before a mount: whether BACKING and MOUNTPOINT are suitable, unused and locked for us.

use super::directory_lock::{self, DirectoryLock, Holder};
use super::{KIND, system_directories, undo, xattrs};
use crate::fs::backing;
pub use crate::fs::beneath::HIDDEN;
use crate::fs::beneath::LOCK;
use crate::fs::types::{self, Time};
use flashsift_events::show;
use flashsift_host::{
    mounts::{self, Mount},
    users::{self, Found},
};
use parking_lot::Mutex;
use rustix::{
    fs::{
        Access, AtFlags, CWD, FlockOperation, MemfdFlags, Mode, OFlags, Stat, StatVfsMountFlags,
        flock, major,
    },
    io::Errno,
};
use std::{
    collections::VecDeque,
    ffi::OsStr,
    fmt::Write as _,
    fs::{self, File},
    io,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::{
            ffi::OsStrExt,
            fs::{FileExt, MetadataExt},
        },
    },
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};
use tracing::warn;

const LOG: &str = "log";
/// Number of users of a directory that a message names.
const NAMED: usize = 10;
/// Directories in which subvolumes are looked for before a mount.
const SUBVOLUMES_LOOKED_FOR: u32 = 10_000;
/// File systems on storage of this machine that have no block device of their own.
const WITHOUT_DEVICE: [&str; 4] = ["btrfs", "bcachefs", "zfs", "ubifs"];

/// The reason for a refused mount.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    /// The directories are unsuitable.
    #[error("{0}")]
    Unfit(String),
    /// A process would lose sight of files, or change them without our knowledge.
    #[error(
        "{} is in use:\n{}End these first, or give --even-if-used: files that they have open stay \
         open and bypass flashsift, which does not see changes made through them",
        .0.display(), listed(.1)
    )]
    Used(PathBuf, Found),
    /// Another flashsift has it mounted.
    #[error("{} is mounted by flashsift already{}", .0.display(), .1.map(|pid| format!(" (pid {pid})")).unwrap_or_default())]
    Locked(PathBuf, Option<u32>),
    /// Another flashsift has unmounted it, and is about to end.
    #[error(transparent)]
    Ending(Ending),
    /// A system call failed.
    #[error("{}: {what}: {why}", path.display())]
    System {
        /// The path of the failure.
        path: PathBuf,
        /// The operation that failed.
        what: &'static str,
        /// Its error.
        why: io::Error,
    },
}

/// A flashsift that has been unmounted and still writes files back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "flashsift{} has unmounted {}, and still writes its last files back{}",
    .pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default(),
    .backing.display(),
    if .stuck.is_empty() { String::new() } else { format!("; they cannot: {}", .stuck) }
)]
pub struct Ending {
    /// The directory to which it writes them back.
    pub backing: PathBuf,
    /// Its process, if that is known.
    pub pid: Option<u32>,
    /// The reason why files cannot be written back; empty if there is none.
    pub stuck: String,
}

impl Refused {
    fn at(path: &Path, what: &'static str, why: impl Into<io::Error>) -> Self {
        Self::System { path: path.to_owned(), what, why: why.into() }
    }
}

/// Lists the processes and mounts that use a directory, one a line.
pub fn listed(found: &Found) -> String {
    let mut text = String::new();
    for user in found.users.iter().take(NAMED) {
        let _ = writeln!(text, "  {}", show::name(&user.to_string()));
    }
    if found.users.len() > NAMED {
        let _ = writeln!(text, "  and {} more", found.users.len() - NAMED);
    }
    text
}

/// A request to mount, with the checks that the user waives.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// The directory to which files are written back.
    pub backing: &'a Path,
    /// The directory on which it is mounted; the same as `backing` for an in-place mount.
    pub mountpoint: &'a Path,
    /// Mount even if processes have files open there.
    pub even_if_used: bool,
    /// Types of file systems on which BACKING may lie although they are refused otherwise.
    pub even_on: &'a [String],
    /// Files keep their extended attributes, also those that decide who may use them.
    pub xattrs: bool,
    /// Mount even over a directory that the machine needs to start.
    pub force: bool,
}

/// A locked BACKING, and a directory to mount on.
#[derive(Debug)]
pub struct LockedPlace {
    /// BACKING, opened before anything can be mounted over it.
    pub root: OwnedFd,
    /// An absolute path without links and dots.
    pub backing: PathBuf,
    /// An absolute path without links and dots.
    pub mountpoint: PathBuf,
    /// The lock that keeps other daemons from mounting it.
    pub lock: Lock,
}

impl LockedPlace {
    /// Checks and locks the directories.
    ///
    /// # Errors
    ///
    /// The reason why the mount is refused.
    pub fn take(wanted: &Wanted<'_>) -> Result<Self, Refused> {
        let backing = directory(wanted.backing)?;
        let mountpoint = directory(wanted.mountpoint)?;
        let (on, over) = (mount_of(&backing)?, mount_of(&mountpoint)?);
        if let Some(mounted) = [&on, &over].into_iter().find(|mount| mount.kind == KIND) {
            return unfit(format!("{} is mounted by flashsift already", mounted.point.display()));
        }
        let root = suitable(wanted, &backing, &mountpoint, &on)?;
        if let Some(other) = overlapping(&backing, &on)
            .map_err(|why| Refused::at(&backing, "looking for mounts of flashsift", why))?
        {
            return unfit(format!(
                "{} and {}, which flashsift has mounted on {}, are parts of each other on {}: two \
                 mounts would change the same files",
                backing.display(),
                Path::new(&other.source).display(),
                other.point.display(),
                on.source.display()
            ));
        }
        // An ending daemon would be found as a user of the directory.
        if let Some(refused) = refused_by_holder(&root, &backing) {
            return Err(refused);
        }
        let places =
            if backing == mountpoint { vec![&backing] } else { vec![&backing, &mountpoint] };
        for place in places {
            let below = mounts::below(place)
                .map_err(|why| Refused::at(place, "what is mounted below", why))?;
            if let Some(mount) = below.first() {
                return unfit(format!(
                    "{} is mounted below {}: unmount it first, as flashsift holds one file system",
                    mount.point.display(),
                    place.display()
                ));
            }
            let look =
                || used(place).map_err(|why| Refused::at(place, "looking for its users", why));
            let mut found = look()?;
            if *place == backing && are_ours(&found) {
                if flock(&root, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK)
                {
                    return Err(running(backing, &found));
                }
                // The earlier daemon ended just now.
                found = look()?;
            }
            if !wanted.even_if_used && !found.users.is_empty() {
                return Err(Refused::Used(place.clone(), found));
            }
        }
        let lock = Lock::take(&root, &backing)?;
        // A daemon that waits for our end gets this lock once all our descriptors are closed. A
        // lock that another program holds on the directory is no hindrance.
        let _ = flock(&root, FlockOperation::NonBlockingLockShared);
        Ok(Self { root, backing, mountpoint, lock })
    }
}

/// Checks that the directories can ever be mounted, by this user. Returns the processes that use
/// them now, which keep the mount from being made.
///
/// # Errors
///
/// The reason why a mount would be refused, whatever runs.
pub fn can_ever_be_taken(wanted: &Wanted<'_>) -> Result<Found, Refused> {
    let backing = directory(wanted.backing)?;
    let mountpoint = directory(wanted.mountpoint)?;
    let (on, over) = (mount_of(&backing)?, mount_of(&mountpoint)?);
    if [&on, &over].iter().any(|mount| mount.kind == KIND) {
        return Ok(Found::default());
    }
    suitable(wanted, &backing, &mountpoint, &on)?;
    for place in [&backing, &mountpoint] {
        rustix::fs::access(place, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(|why| Refused::at(place, "writing in it", why))?;
    }
    let mut found =
        used(&backing).map_err(|why| Refused::at(&backing, "looking for its users", why))?;
    if backing != mountpoint {
        let over = used(&mountpoint);
        let over = over.map_err(|why| Refused::at(&mountpoint, "looking for its users", why))?;
        found.users.extend(over.users);
    }
    Ok(found)
}

/// Checks what does not change with the processes that run. Returns BACKING, opened.
fn suitable(
    wanted: &Wanted<'_>,
    backing: &Path,
    mountpoint: &Path,
    on: &Mount,
) -> Result<OwnedFd, Refused> {
    related(backing, mountpoint)?;
    ordinary(backing, on, wanted.even_on)?;
    if !wanted.force {
        not_of_the_system(backing)?;
        not_of_the_system(mountpoint)?;
    }
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let root = rustix::fs::open(backing, flags, Mode::empty())
        .map_err(|why| Refused::at(backing, "opening", why))?;
    if backing::folds_case(backing::flags(&root)) {
        return unfit(folded(backing));
    }
    if !wanted.xattrs
        && let Some((file, attribute)) =
            xattrs::with_rights(backing).map_err(|why| Refused::at(backing, "listing", why))?
    {
        return unfit(format!(
            "{} has the extended attribute {attribute}, and --no-xattr would lose what it allows \
             or forbids: remove it (setfacl -b, setcap -r), or leave out --no-xattr",
            file.display()
        ));
    }
    if on.kind == "btrfs"
        && let Some(below) = subvolume_below(backing)
    {
        return unfit(format!(
            "{} is a subvolume below {}, with inode numbers of its own, and flashsift holds one \
             file system: mount them apart",
            below.display(),
            backing.display()
        ));
    }
    Ok(root)
}

/// A mount of flashsift whose BACKING contains this one or is in it, also where another mount of
/// the file system shows it under another path, as a container's does.
fn overlapping(backing: &Path, on: &Mount) -> io::Result<Option<Mount>> {
    let inside =
        |mount: &Mount, path: &Path| Some(mount.root.join(path.strip_prefix(&mount.point).ok()?));
    let Some(ours) = inside(on, backing) else { return Ok(None) };
    let all = mounts::all()?;
    let overlaps = |other: &&Mount| {
        let source = Path::new(&other.source);
        // It is below its own mount if that is in place.
        let below = match source == other.point {
            true => all.iter().find(|mount| mount.id == other.parent).cloned(),
            false => mounts::mount_of(source).ok(),
        };
        let theirs = below.filter(|below| below.dev == on.dev);
        let theirs = theirs.and_then(|below| inside(&below, source));
        theirs.is_some_and(|theirs| {
            theirs != ours && (theirs.starts_with(&ours) || ours.starts_with(&theirs))
        })
    };
    Ok(all
        .iter()
        .filter(|mount| mount.kind == KIND && Path::new(&mount.source).is_absolute())
        .find(overlaps)
        .cloned())
}

/// A subvolume of btrfs in one of the first directories below this one. Of those that are deeper,
/// each access fails with `EXDEV`.
fn subvolume_below(backing: &Path) -> Option<PathBuf> {
    let device = |path: &Path| fs::symlink_metadata(path).map(|about| about.dev()).ok();
    let ours = device(backing);
    let mut waiting = VecDeque::from([backing.to_owned()]);
    let mut left = SUBVOLUMES_LOOKED_FOR;
    while let Some(folder) = waiting.pop_front() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if device(&entry.path()) != ours {
                return Some(entry.path());
            }
            left -= 1;
            if left == 0 {
                return None;
            }
            waiting.push_back(entry.path());
        }
    }
    None
}

/// Processes that use a directory in two consecutive looks: a process that was forked and is about
/// to run another program has its parent's descriptors for a moment.
fn used(place: &Path) -> io::Result<Found> {
    let mut found = users::users_of(place)?;
    if !found.users.is_empty() {
        let again = users::users_of(place)?;
        found.users.retain(|user| again.users.iter().any(|still| still.pid == user.pid));
    }
    Ok(found)
}

/// Whether the only users are daemons of ours that have already released the lock file and are
/// about to exit: they close the locked directory last.
fn are_ours(found: &Found) -> bool {
    let our_name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
    !found.users.is_empty() && found.users.iter().all(|user| user.program == our_name.trim_end())
}

fn unfit<T>(why: String) -> Result<T, Refused> {
    Err(Refused::Unfit(why))
}

fn directory(path: &Path) -> Result<PathBuf, Refused> {
    let resolved = mounts::resolved(path).map_err(|why| Refused::at(path, "looking at it", why))?;
    match std::fs::metadata(&resolved) {
        Ok(metadata) if metadata.is_dir() => Ok(resolved),
        Ok(_) => unfit(format!("{} is not a directory", path.display())),
        Err(why) if mounts::is_dead(&why) => unfit(format!(
            "what is mounted on {} is dead ({why}): unmount it first",
            path.display()
        )),
        Err(why) => Err(Refused::at(path, "looking at it", why)),
    }
}

fn mount_of(path: &Path) -> Result<Mount, Refused> {
    mounts::mount_of(path).map_err(|why| Refused::at(path, "which mount it is on", why))
}

fn related(backing: &Path, mountpoint: &Path) -> Result<(), Refused> {
    if [backing, mountpoint].contains(&Path::new("/")) {
        return unfit(
            "the root directory cannot be given to flashsift: give a directory in it".into(),
        );
    }
    if backing == mountpoint {
        return Ok(());
    }
    let inside = |inner: &Path, outer: &Path| {
        unfit(format!(
            "{} lies inside {}: give two directories apart, or twice the same (in place)",
            inner.display(),
            outer.display()
        ))
    };
    match () {
        () if backing.starts_with(mountpoint) => inside(backing, mountpoint),
        () if mountpoint.starts_with(backing) => inside(mountpoint, backing),
        () => Ok(()),
    }
}

/// Checks that a directory is not one without which the machine does not start. The path must be
/// absolute and free of links and dots.
///
/// # Errors
///
/// It is such a directory, lies in one, or contains one.
pub fn not_of_the_system(place: &Path) -> Result<(), Refused> {
    let Some(needed) = system_directories::related(place) else { return Ok(()) };
    let relation = match needed {
        _ if needed == place => "is".to_owned(),
        _ if place.starts_with(needed) => format!("lies in {},", needed.display()),
        _ => format!("contains {},", needed.display()),
    };
    unfit(format!(
        "{} {relation} a directory of the system. A crash loses new files that were not written \
         back, and then the machine may not start; --force if you want it all the same",
        place.display(),
    ))
}

/// Checks that BACKING lies on storage of this machine, and can be written.
fn ordinary(backing: &Path, mount: &Mount, even_on: &[String]) -> Result<(), Refused> {
    let kind = mount.kind.as_str();
    if major(mount.dev) == 0
        && !WITHOUT_DEVICE.contains(&kind)
        && !even_on.iter().any(|even| even == kind)
    {
        return unfit(format!(
            "{} lies on {kind}, which is not on storage of this machine, or may lose files that \
             are written back to it; --even-on {kind} accepts that",
            backing.display()
        ));
    }
    let options =
        rustix::fs::statvfs(backing).map_err(|why| Refused::at(backing, "its file system", why))?;
    if options.f_flag.contains(StatVfsMountFlags::RDONLY) {
        return unfit(format!(
            "{} cannot be written: its file system is mounted read-only",
            backing.display()
        ));
    }
    Ok(())
}

/// Keeps other daemons from mounting the same BACKING while this process lives.
#[derive(Clone, Debug)]
pub struct Lock(Arc<Locked>);

#[derive(Debug)]
struct Locked {
    backing: PathBuf,
    root: OwnedFd,
    /// The lock that needs no file, where the file system has it.
    directory: Option<DirectoryLock>,
    /// The hidden directory with the lock file, once they are needed.
    files: OnceLock<LockFiles>,
    /// A file in RAM with what the lock file would say, once that is needed without one.
    note: OnceLock<File>,
    /// The content of the sign.
    state: Mutex<String>,
}

#[derive(Debug)]
struct LockFiles {
    hidden: OwnedFd,
    /// The lock file, locked as long as it is open.
    file: File,
}

/// The state of the holder for daemons that want the same BACKING. The lock file has it as `PID`,
/// and in the next line the state. Its length is constant, so that the content fits on a full file
/// system too.
#[derive(Clone, Debug)]
pub struct Sign(Lock);

const SIGN_BYTES: usize = 4096;
const MOUNTED: &str = "mounted ";
const ENDING: &str = "ending ";

impl Sign {
    /// Records that it is mounted, as the file system with this minor device number.
    ///
    /// # Errors
    ///
    /// The lock file cannot be written.
    pub fn mounted(&self, number: u32) -> io::Result<()> {
        self.0.0.directory.as_ref().map_or(Ok(()), |lock| lock.mounted(number))?;
        self.0.write(format!("{MOUNTED}{number}"))
    }

    /// Records that it is unmounted and ends, and the reason if it cannot end.
    ///
    /// # Errors
    ///
    /// The lock file cannot be written.
    pub fn ending(&self, stuck: &str) -> io::Result<()> {
        self.0.0.directory.as_ref().map_or(Ok(()), DirectoryLock::ending)?;
        self.0.write(format!("{ENDING}{}", stuck.replace('\n', " ")))
    }
}

impl LockFiles {
    fn take(root: &OwnedFd, backing: &Path) -> Result<Self, Refused> {
        loop {
            let hidden = hidden(root, backing)?;
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let at = |why: Errno| Refused::at(&backing.join(HIDDEN).join(LOCK), "locking", why);
            let file = match rustix::fs::openat(&hidden, LOCK, flags, Mode::RUSR | Mode::WUSR) {
                // The previous holder removed the directory just now.
                Err(Errno::NOENT) => continue,
                Err(why) => {
                    // Such as no inode left. If it is not empty, it existed before and stays.
                    let _ = rustix::fs::unlinkat(root, HIDDEN, AtFlags::REMOVEDIR);
                    return Err(at(why));
                }
                Ok(file) => File::from(file),
            };
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => return Err(held(backing.to_owned(), &file)),
                Err(why) => return Err(at(why)),
            }
            // The previous holder may have removed it between our open and our lock.
            if rustix::fs::fstat(&file).map_err(at)?.st_nlink != 0 {
                return Ok(Self { hidden, file });
            }
        }
    }

    fn write(&self, state: &str) -> io::Result<()> {
        write_sign(&self.file, state)
    }
}

fn write_sign(file: &File, state: &str) -> io::Result<()> {
    let mut page = format!("{}\n{state}", std::process::id()).into_bytes();
    page.resize(SIGN_BYTES, b'\n');
    file.write_all_at(&page, 0)
}

impl Lock {
    /// Locks BACKING, without a file if that is possible and an earlier mount has left none.
    fn take(root: &OwnedFd, backing: &Path) -> Result<Self, Refused> {
        let directory = match DirectoryLock::take(root) {
            Ok(Some(lock)) => Some(lock),
            Ok(None) => {
                return Err(refused_by_holder(root, backing)
                    .unwrap_or_else(|| by_records(backing.to_owned(), Holder::default())));
            }
            Err(Errno::TIMEDOUT) => {
                return Err(Refused::at(backing, "locking", Errno::TIMEDOUT));
            }
            // The file system has no such locks.
            Err(_) => None,
        };
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let at = |why: Errno| Refused::at(backing, "opening", why);
        let opened = rustix::fs::openat(root, ".", flags, Mode::empty()).map_err(at)?;
        let lazy = directory.is_some()
            && rustix::fs::statat(root, HIDDEN, AtFlags::SYMLINK_NOFOLLOW).err()
                == Some(Errno::NOENT)
            && backing::may_be_lazy(root.as_fd());
        let lock = Self(Arc::new(Locked {
            backing: backing.to_owned(),
            root: opened,
            directory,
            files: OnceLock::new(),
            note: OnceLock::new(),
            state: Mutex::default(),
        }));
        if lazy {
            let wanted = Access::WRITE_OK | Access::EXEC_OK;
            rustix::fs::accessat(root, ".", wanted, AtFlags::EACCESS)
                .map_err(|why| Refused::at(&backing.join(HIDDEN), "making it", why))?;
        } else {
            lock.files()?;
        }
        Ok(lock)
    }

    /// The hidden directory and the lock file, which the first call makes.
    fn files(&self) -> Result<&LockFiles, Refused> {
        let Locked { backing, root, files, state, .. } = &*self.0;
        let state = state.lock();
        if let Some(made) = files.get() {
            return Ok(made);
        }
        let made = LockFiles::take(root, backing)?;
        made.write(&state)
            .map_err(|why| Refused::at(&backing.join(HIDDEN).join(LOCK), "writing", why))?;
        Ok(files.get_or_init(|| made))
    }

    /// Makes the hidden directory with the lock file if that has not been done.
    ///
    /// # Errors
    ///
    /// That of the file system; `EPERM` if the directory is not ours alone.
    pub fn make_hidden(&self) -> rustix::io::Result<()> {
        match self.files() {
            Ok(_) => Ok(()),
            Err(Refused::System { why, .. }) => Err(types::errno(&why)),
            Err(why) => {
                warn!("{why}");
                Err(Errno::PERM)
            }
        }
    }

    fn write(&self, state: String) -> io::Result<()> {
        self.0.state.lock().clone_from(&state);
        let has_reason = state.strip_prefix(ENDING).is_some_and(|stuck| !stuck.is_empty());
        // The records of the directory say the rest, but have no words.
        match self.0.files.get() {
            Some(files) => files.write(&state),
            None if has_reason && self.files().is_ok() => Ok(()),
            // A full file system has no space for a file.
            None if has_reason || self.0.note.get().is_some() => write_sign(self.note()?, &state),
            None => Ok(()),
        }
    }

    /// Others find it among our descriptors, locked as the lock file is.
    fn note(&self) -> io::Result<&File> {
        if let Some(note) = self.0.note.get() {
            return Ok(note);
        }
        let note = File::from(rustix::fs::memfd_create("flashsift-sign", MemfdFlags::CLOEXEC)?);
        flock(&note, FlockOperation::NonBlockingLockExclusive)?;
        Ok(self.0.note.get_or_init(|| note))
    }

    /// The sign in which the daemon writes its state for others.
    pub fn sign(&self) -> Sign {
        Sign(self.clone())
    }

    /// The log file for a system without a journal. It is removed after a clean end.
    ///
    /// # Errors
    ///
    /// The log file cannot be created.
    pub fn log(&self) -> io::Result<File> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let files = self.files().map_err(io::Error::other)?;
        Ok(rustix::fs::openat(&files.hidden, LOG, flags, Mode::RUSR | Mode::WUSR)?.into())
    }

    /// The same for later, when there is a message. The lock may be gone by then.
    pub fn log_later(&self) -> impl FnOnce() -> io::Result<File> + Send + use<> {
        let locked = Arc::downgrade(&self.0);
        move || Self(locked.upgrade().ok_or(io::ErrorKind::NotFound)?).log()
    }

    /// Ends cleanly: BACKING is an ordinary directory again. Files of other programs stay.
    ///
    /// # Errors
    ///
    /// Files of flashsift in BACKING cannot be removed.
    pub fn remove(self, root: OwnedFd) -> io::Result<()> {
        let removed = self.0.files.get().map_or(Ok(()), |files| files.remove(&root));
        if removed.is_ok() {
            let released = self.0.directory.as_ref().map_or(Ok(()), DirectoryLock::release);
            released?;
        }
        drop(self);
        // Our last descriptor in BACKING.
        drop(root);
        Ok(removed?)
    }
}

impl LockFiles {
    fn remove(&self, root: &OwnedFd) -> Result<(), Errno> {
        match rustix::fs::unlinkat(&self.hidden, LOG, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(why) => return Err(why),
        }
        remove_name(&self.hidden, LOCK, &self.file, AtFlags::empty())?;
        match remove_name(root, HIDDEN, &self.hidden, AtFlags::REMOVEDIR) {
            // Such as a damaged log that is kept.
            Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
            removed => removed,
        }
    }
}

/// Removes the name of a file or directory that is open here: the one that we gave it, or the one
/// to which another program has renamed it. If it has no name any more, nothing is to be done.
fn remove_name(folder: &OwnedFd, name: &str, open: impl AsFd, flags: AtFlags) -> Result<(), Errno> {
    let about = rustix::fs::fstat(&open)?;
    let remove = |folder: &OwnedFd, name: &OsStr| {
        let there = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
        let same = |there: Stat| (there.st_dev, there.st_ino) == (about.st_dev, about.st_ino);
        if !there.is_ok_and(same) {
            return Ok(false);
        }
        keeping_its_time(folder, || rustix::fs::unlinkat(folder, name, flags)).map(|()| true)
    };
    if remove(folder, OsStr::new(name))? {
        return Ok(());
    }
    let link = format!("/proc/self/fd/{}", open.as_fd().as_raw_fd());
    let path = rustix::fs::readlink(link, Vec::new())?;
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::open(folder, flags, Mode::empty()) {
        Ok(folder) => remove(&folder, name).map(drop),
        Err(_) => Ok(()),
    }
}

/// Makes an internal change in a directory and restores its `mtime`, since applications have
/// changed nothing.
fn keeping_its_time(
    dir: &OwnedFd,
    change: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let before = rustix::fs::fstat(dir)?;
    change()?;
    backing::keep_time(dir, Time { s: before.st_mtime, ns: before.st_mtime_nsec as u32 });
    Ok(())
}

/// Whether `.FLASHSIFT` is our directory too. Not every file system that ignores case has a flag.
fn folds_our_name(root: &OwnedFd, ours: &Stat) -> bool {
    rustix::fs::statat(root, HIDDEN.to_ascii_uppercase(), AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|other| (other.st_dev, other.st_ino) == (ours.st_dev, ours.st_ino))
}

fn folded(backing: &Path) -> String {
    format!(
        "{} folds case, and flashsift does not: two names here would be one file there. Give a \
         directory that does not (where lsattr shows \
         F, it does)",
        backing.display()
    )
}

/// Opens our directory in BACKING, and creates it if there is none. No other user may have been
/// able to write to it.
fn hidden(root: &OwnedFd, backing: &Path) -> Result<OwnedFd, Refused> {
    let path = backing.join(HIDDEN);
    match keeping_its_time(root, || rustix::fs::mkdirat(root, HIDDEN, Mode::RWXU)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(why) => return Err(Refused::at(&path, "making it", why)),
    }
    let hidden = match open_hidden(root.as_fd()) {
        Err(Errno::LOOP | Errno::NOTDIR) => {
            return unfit(format!(
                "{} is not a directory: flashsift needs this name for itself; move it away",
                path.display()
            ));
        }
        other => other.map_err(|why| Refused::at(&path, "opening", why))?,
    };
    let stat =
        rustix::fs::fstat(&hidden).map_err(|why| Refused::at(&path, "looking at it", why))?;
    if folds_our_name(root, &stat) {
        // If it is not empty, it existed before and stays.
        let _ = rustix::fs::unlinkat(root, HIDDEN, AtFlags::REMOVEDIR);
        return unfit(folded(backing));
    }
    let us = rustix::process::geteuid().as_raw();
    let mode = stat.st_mode & 0o777;
    if (stat.st_uid, mode) != (us, 0o700) {
        return unfit(format!(
            "{} belongs to user {} with mode {mode:o}, and must be user {us}'s with mode 700: \
             another user could change files that are not written back yet. If nothing in it is \
             yours, remove it",
            path.display(),
            stat.st_uid
        ));
    }
    Ok(hidden)
}

/// The refusal if another daemon has this BACKING.
fn refused_by_holder(root: &OwnedFd, backing: &Path) -> Option<Refused> {
    if let Some(file) = existing(root.as_fd()).filter(is_held) {
        return Some(held(backing.to_owned(), &file));
    }
    let holder = directory_lock::holder(root).ok()??;
    // Its lock file may have been moved away.
    Some(match holder.pid.and_then(lock_of) {
        Some(file) => held(backing.to_owned(), &file),
        None => by_records(backing.to_owned(), holder),
    })
}

/// The refusal for a BACKING whose holder has made no file.
fn by_records(backing: PathBuf, holder: Holder) -> Refused {
    // Unmounted in all namespaces: the daemon will notice in a moment.
    let unmounted = holder.mounted.is_some_and(|number| !undo::is_mounted(number));
    match holder.ending || unmounted {
        true => Refused::Ending(Ending { backing, pid: holder.pid, stuck: String::new() }),
        false => Refused::Locked(backing, holder.pid),
    }
}

/// The lock file, if there is one.
fn existing(root: BorrowedFd<'_>) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(open_hidden(root).ok()?, LOCK, flags, Mode::empty());
    file.ok().map(File::from)
}

fn is_held(lock: &File) -> bool {
    flock(lock, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK)
}

/// The refusal for a BACKING that another daemon has locked.
fn held(backing: PathBuf, lock: &File) -> Refused {
    let mut sign = vec![0; SIGN_BYTES];
    let len = lock.read_at(&mut sign, 0).unwrap_or(0);
    let sign = String::from_utf8_lossy(&sign[..len]);
    let mut lines = sign.lines();
    let pid = lines.next().and_then(|pid| pid.parse().ok());
    let how_far = lines.next().unwrap_or_default();
    let stuck = match how_far.strip_prefix(MOUNTED).map(str::parse) {
        // Unmounted in all namespaces: the daemon will notice in a moment.
        Some(Ok(number)) if !undo::is_mounted(number) => Some(""),
        _ => how_far.strip_prefix(ENDING),
    };
    match stuck {
        Some(stuck) => Refused::Ending(Ending { backing, pid, stuck: stuck.to_owned() }),
        None => Refused::Locked(backing, pid),
    }
}

/// The refusal for a BACKING that only daemons of ours use, and whose lock file is not in its
/// place.
fn running(backing: PathBuf, found: &Found) -> Refused {
    match found.users.iter().find_map(|user| lock_of(user.pid)) {
        Some(file) => held(backing, &file),
        // The daemon has closed the lock file already, and is about to end.
        None => {
            let pid = found.users.first().map(|user| user.pid);
            Refused::Ending(Ending { backing, pid, stuck: String::new() })
        }
    }
}

/// The lock file that this daemon holds, found among its descriptors: another program may have
/// renamed or removed it, or the directory that it is in.
fn lock_of(pid: u32) -> Option<File> {
    let ours = |descriptor: PathBuf| {
        let about = fs::metadata(&descriptor).ok()?;
        (about.is_file() && about.len() == SIGN_BYTES as u64).then_some(())?;
        let file = File::open(descriptor).ok()?;
        let mut begins = [0; 16];
        let len = file.read_at(&mut begins, 0).ok()?;
        let signed = begins[..len].starts_with(format!("{pid}\n").as_bytes());
        (signed && is_held(&file)).then_some(file)
    };
    let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
    descriptors.flatten().find_map(|entry| ours(entry.path()))
}

fn open_hidden(root: BorrowedFd<'_>) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(root, HIDDEN, flags, Mode::empty())
}

/// State in which the previous holder left this BACKING.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// It ended cleanly: everything is written back.
    Nothing,
    /// It was killed, or ended with files that could not be written back.
    Remains,
}

/// Waits until no daemon holds this BACKING.
///
/// # Errors
///
/// BACKING cannot be opened, locked or examined.
pub fn wait_until_free(backing: &Path) -> io::Result<Left> {
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let root = rustix::fs::open(backing, flags, Mode::empty())?;
    while let Err(why) = flock(&root, FlockOperation::LockExclusive) {
        if why != Errno::INTR {
            return Err(why.into());
        }
    }
    let lock = backing.join(HIDDEN).join(LOCK);
    match rustix::fs::statat(CWD, lock, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) if backing::is_marked(&root) => Ok(Left::Remains),
        Err(Errno::NOENT) => Ok(Left::Nothing),
        Ok(_) => Ok(Left::Remains),
        Err(why) => Err(why.into()),
    }
}

#[cfg(test)]
mod tests;
