//! BACKING: an ordinary directory, accessed only through descriptors of its directories and single
//! names in them.

use super::beneath::{HIDDEN, LOCK, MARK, open_beneath, proc_path};
use super::copying::xattr_names;
use super::flash_state::FlashState;
use super::recovery;
use super::temporary::{ALL_INSIDE, is_temporary, temporary};
use super::types::Time;
use super::volume::{BTRFS, EXT4, F2FS, Volume};
use super::writes::Flushes;
use flashsift_events::show::counted;
use parking_lot::Mutex;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, IFlags, Mode, OFlags, Stat, StatxAttributes, StatxFlags, Timespec,
    Timestamps, UTIME_OMIT, XattrFlags,
};
use rustix::io::{Errno, Result};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tracing::{info, warn};

/// The directory in the hidden one for records of directories that copies were made in, of an
/// earlier version.
const PLACES: &str = "places";
/// The directory in the hidden one for copies that have no final name yet.
const TEMPS: &str = "tmp";

/// Inodes that the mount takes for itself: for the hidden directory, its lock and its log, for the
/// directory of copies, and the log of epochs. One more is for a copy that replaces another.
const OWN_FILES: u64 = 6;

/// Makes the hidden directory, and locks it.
pub(crate) struct MakeHidden(pub(crate) Box<dyn Fn() -> Result<()> + Send + Sync>);

impl std::fmt::Debug for MakeHidden {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MakeHidden")
    }
}

/// The hidden directory, made once something has to be in it: each directory and file that is made
/// and removed costs blocks of the journal and of several tables. Its inodes cost more: if they
/// push those of applications into a further block of ext4's table, each commit has that block,
/// too.
#[derive(Debug)]
pub(crate) struct Hidden {
    pub(crate) dir: OwnedFd,
    /// The directory for copies that have no final name yet, once there is one.
    temps: OnceLock<OwnedFd>,
    /// The flags of `dir`, which files in it inherit, and `temps` and its files.
    flags: IFlags,
}

/// Limits of the file system, which no system call returns.
#[derive(Debug)]
struct Limits {
    /// Largest size of a file on flash, bytes; tmpfs allows more.
    largest_file: u64,
    /// Times on flash are multiples of this, ns.
    granularity_ns: u32,
    /// The first and the last time, s.
    times: [i64; 2],
}

#[derive(Debug)]
pub(crate) struct Backing {
    pub(crate) root: OwnedFd,
    pub(crate) root_ino: u64,
    /// The flags of `root`, which directories in it inherit.
    root_flags: IFlags,
    device: u64,
    hidden: OnceLock<Hidden>,
    make_hidden: MakeHidden,
    making: Mutex<()>,
    /// Whether BACKING has the attribute by which the next start knows that this one has not ended.
    marked: AtomicBool,
    /// Whether copies, or records of directories that have some, may be in BACKING itself.
    recorded: AtomicBool,
    limits: OnceLock<Limits>,
    pub(crate) state: FlashState,
    /// A descriptor of the file system for `syncfs`.
    to_sync: File,
    next_temp: AtomicU64,
    noatime: bool,
    pub(crate) volume: Volume,
    pub(crate) flushes: Flushes,
}

/// An open directory, and its properties that new files inherit.
#[derive(Debug)]
pub(crate) struct OpenDir {
    pub(crate) fd: OwnedFd,
    /// Files in it get this group.
    pub(crate) gid: Option<u32>,
    /// Files in it get an access control list.
    pub(crate) default_acl: bool,
    /// Whether a rename from another directory into this one fails: this directory is encrypted, or
    /// belongs to a project whose quota counts its files.
    pub(crate) apart: bool,
    /// Whether copies may have a temporary name here: it takes names away again, and its files
    /// inherit no access control list.
    pub(crate) takes_temps: bool,
    /// Changes in it are durable when they return (`chattr +S` and `+D`, a mount with `dirsync`).
    pub(crate) synchronous: bool,
    /// Files in it inherit flags that a copy would not have, such as `chattr +A` or `+C`.
    pub(crate) inherits: bool,
    /// An overlay has it as its upper or work directory, or a directory in one.
    pub(crate) of_overlay: bool,
}

impl OpenDir {
    /// Whether only BACKING can give a file a name here: it may refuse, or the name has to be
    /// durable at once.
    pub(crate) fn decides(&self) -> bool {
        self.apart || self.synchronous
    }

    /// Whether names may be added to this directory; or removed, if `removes`.
    ///
    /// # Errors
    ///
    /// `EPERM` if the directory is immutable (`chattr +i`), or if a name is to go and the directory
    /// is append-only (`chattr +a`).
    pub(crate) fn permits(&self, removes: bool) -> Result<()> {
        let flags = attributes(&self.fd, OsStr::new(""), AtFlags::EMPTY_PATH)?;
        let forbids = match removes {
            true => StatxAttributes::IMMUTABLE | StatxAttributes::APPEND,
            false => StatxAttributes::IMMUTABLE,
        };
        if flags.intersects(forbids) { Err(Errno::PERM) } else { Ok(()) }
    }

    /// Whether the file with this name in BACKING may be removed or replaced.
    ///
    /// # Errors
    ///
    /// `EPERM` if the file is immutable or append-only; `ENOENT` if there is none.
    pub(crate) fn permits_removal_of(&self, name: &OsStr) -> Result<()> {
        let flags = attributes(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match flags.intersects(StatxAttributes::IMMUTABLE | StatxAttributes::APPEND) {
            true => Err(Errno::PERM),
            false => Ok(()),
        }
    }
}

/// Whether a directory with this attribute is one that an overlay writes to: the kernel marks it at
/// the first mount of the overlay, or at the first change.
pub(crate) fn is_of_overlay(attribute: &[u8]) -> bool {
    [&b"trusted.overlay."[..], b"user.overlay."].iter().any(|begin| attribute.starts_with(begin))
}

/// The flags of a file that `statx` shows.
fn attributes(dir: impl AsFd, name: &OsStr, how: AtFlags) -> Result<StatxAttributes> {
    let flags = how | AtFlags::STATX_DONT_SYNC;
    Ok(rustix::fs::statx(dir, name, flags, StatxFlags::empty())?.stx_attributes)
}

impl AsFd for OpenDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

const DIRECTORY: OFlags =
    OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Backing {
    /// BACKING with the hidden directory that is there, or that this makes.
    pub(crate) fn new(root: OwnedFd, noatime: bool) -> Result<Backing> {
        match rustix::fs::mkdirat(&root, HIDDEN, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => (),
            Err(error) => return Err(error),
        }
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let lock = format!("{HIDDEN}/{LOCK}");
        rustix::fs::openat(&root, lock, flags, Mode::RUSR | Mode::WUSR)?;
        Backing::lazy(root, noatime, MakeHidden(Box::new(|| Ok(()))))
    }

    /// BACKING whose hidden directory is made when it is needed, if there is none. That is possible
    /// where [`may_be_lazy`] says so.
    pub(crate) fn lazy(root: OwnedFd, noatime: bool, make_hidden: MakeHidden) -> Result<Backing> {
        let stat = rustix::fs::fstat(&root)?;
        let root_flags = flags(&root);
        if folds_case(root_flags) {
            return Err(Errno::OPNOTSUPP);
        }
        let to_sync = rustix::fs::openat(
            &root,
            ".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let volume = Volume::new(root.as_fd())?;
        let backing = Backing {
            root,
            root_ino: stat.st_ino,
            root_flags,
            device: stat.st_dev,
            hidden: OnceLock::new(),
            make_hidden,
            making: Mutex::new(()),
            marked: AtomicBool::new(false),
            recorded: AtomicBool::new(false),
            limits: OnceLock::new(),
            state: FlashState::default(),
            to_sync: File::from(to_sync),
            next_temp: AtomicU64::new(0),
            noatime,
            volume,
            flushes: Flushes::default(),
        };
        let marked = is_marked(&backing.to_sync);
        backing.marked.store(marked, Ordering::Relaxed);
        match rustix::fs::statat(&backing.root, HIDDEN, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => backing.recover()?,
            Err(Errno::NOENT) if marked => backing.clear_root()?,
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
        Ok(backing)
    }

    /// Does what a crash left to be done.
    fn recover(&self) -> Result<()> {
        let hidden = self.hidden()?;
        let temps = self.temps_found(hidden)?;
        let dirs = recovery::Directories {
            root: self.root.as_fd(),
            hidden: hidden.dir.as_fd(),
            // Without it there is no copy: the hidden directory has no name of one.
            temps: temps.unwrap_or(hidden.dir.as_fd()),
        };
        let epochs = recovery::recover(dirs)?;
        if epochs > 0 {
            let epochs = counted(epochs as u64, "epoch");
            info!("after a crash: applied {epochs} of delayed syncs from the log");
        }
        self.clear_root()?;
        self.clear(hidden)?;
        self.limits().map(drop)
    }

    /// Notes in BACKING that a mount has changed it, before the first change. An attribute of the
    /// directory takes no inode. It does where the file system shows whether it is read-only, which
    /// elsewhere only opening the lock file does.
    ///
    /// # Errors
    ///
    /// BACKING's file system takes neither the attribute nor the hidden directory.
    pub(crate) fn mark(&self) -> Result<()> {
        if self.hidden.get().is_some() || self.marked.load(Ordering::Relaxed) {
            return Ok(());
        }
        if self.volume.shows_errors() {
            match rustix::fs::fsetxattr(&self.to_sync, MARK, b"1", XattrFlags::empty()) {
                Ok(()) => {
                    self.marked.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                Err(Errno::ROFS) => return Err(Errno::ROFS),
                // It has no such attributes, or no space for one.
                Err(_) => (),
            }
        }
        self.hidden().map(drop)
    }

    /// The hidden directory, which this makes if there is none yet.
    ///
    /// # Errors
    ///
    /// BACKING's file system does not make it.
    pub(crate) fn hidden(&self) -> Result<&Hidden> {
        if let Some(hidden) = self.hidden.get() {
            return Ok(hidden);
        }
        let _making = self.making.lock();
        if let Some(hidden) = self.hidden.get() {
            return Ok(hidden);
        }
        (self.make_hidden.0)()?;
        let dir = open_beneath(&self.root, OsStr::new(HIDDEN), DIRECTORY)?;
        let flags = flags(&dir);
        Ok(self.hidden.get_or_init(|| Hidden { dir, temps: OnceLock::new(), flags }))
    }

    /// Whether it is there.
    pub(crate) fn has_hidden(&self) -> bool {
        self.hidden.get().is_some()
    }

    /// The directory for copies, if there is one.
    fn temps_found<'a>(&self, hidden: &'a Hidden) -> Result<Option<BorrowedFd<'a>>> {
        if let Some(temps) = hidden.temps.get() {
            return Ok(Some(temps.as_fd()));
        }
        match open_beneath(&hidden.dir, OsStr::new(TEMPS), DIRECTORY) {
            Ok(temps) => Ok(Some(hidden.temps.get_or_init(|| temps).as_fd())),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The flags of the directory for copies; directories inherit those that matter.
    fn flags_of_temps(&self) -> IFlags {
        self.hidden.get().map_or(self.root_flags, |hidden| hidden.flags)
    }

    /// A partial copy left by a crash has no name that an application could use, so it can be
    /// deleted.
    fn clear(&self, hidden: &Hidden) -> Result<()> {
        match open_beneath(&hidden.dir, OsStr::new(PLACES), DIRECTORY) {
            Ok(places) => {
                for (_, _, record) in list(&places)? {
                    self.clear_recorded(&places, &record)?;
                }
                rustix::fs::unlinkat(&hidden.dir, PLACES, AtFlags::REMOVEDIR)?;
            }
            Err(Errno::NOENT) => (),
            Err(error) => return Err(error),
        }
        let Some(temps) = self.temps_found(hidden)? else { return Ok(()) };
        for (_, _, name) in list(temps)? {
            rustix::fs::unlinkat(temps, &*name, AtFlags::empty())?;
        }
        Ok(())
    }

    /// Removes the copies in BACKING itself, the records there, and the copies in the directories
    /// that these name.
    fn clear_root(&self) -> Result<()> {
        let stat = rustix::fs::fstat(&self.root)?;
        let mut names = list(&self.root)?;
        names.retain(|(.., name)| is_temporary(name));
        if names.is_empty() {
            return Ok(());
        }
        let mut copies = Vec::new();
        for found in names {
            let about = rustix::fs::statat(&self.root, &*found.2, AtFlags::SYMLINK_NOFOLLOW)?;
            let is_link = FileType::from_raw_mode(about.st_mode) == FileType::Symlink;
            match is_link {
                // Users who may write to BACKING can make such links.
                true if about.st_uid == rustix::process::geteuid().as_raw() => {
                    self.clear_recorded(&self.root, &found.2)?;
                }
                true => (),
                false => copies.push(found),
            }
        }
        if let Err(errno) = remove_copies(&self.root, &copies) {
            warn!(errno = errno.raw_os_error(), "removing copies in BACKING: {errno}");
        }
        keep_time(&self.root, Time { s: stat.st_mtime, ns: stat.st_mtime_nsec as u32 });
        Ok(())
    }

    /// Removes the copies in the directory that a record names, and the record.
    fn clear_recorded(&self, records: impl AsFd, record: &OsStr) -> Result<()> {
        let path = rustix::fs::readlinkat(&records, record, Vec::new())?.into_bytes();
        match path.strip_suffix(ALL_INSIDE) {
            Some(path) => {
                for name in self.directories_in(path)? {
                    self.remove_recorded(&[path, name.as_bytes()].join(&b'/'))?;
                }
            }
            None => self.remove_recorded(&path)?,
        }
        rustix::fs::unlinkat(&records, record, AtFlags::empty())
    }

    /// The directories in one with this path, as far as that is one.
    fn directories_in(&self, path: &[u8]) -> Result<Vec<Box<OsStr>>> {
        let Some(dir) = self.open_recorded(path)? else { return Ok(Vec::new()) };
        let mut names = list(&dir)?;
        names.retain(|(_, kind, _)| matches!(kind, FileType::Directory | FileType::Unknown));
        Ok(names.into_iter().map(|(.., name)| name).collect())
    }

    /// Opens a directory without `O_PATH`: a link on the way ends the search. `None`: it was
    /// renamed or removed, or is a link now.
    fn open_recorded(&self, path: &[u8]) -> Result<Option<OwnedFd>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        match open_beneath(&self.root, OsStr::from_bytes(path), flags) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Ok(None),
            done => done.map(Some),
        }
    }

    /// Removes the copies in a directory.
    fn remove_recorded(&self, path: &[u8]) -> Result<()> {
        let Some(dir) = self.open_recorded(path)? else { return Ok(()) };
        let stat = rustix::fs::fstat(&dir)?;
        match list(&dir).and_then(|names| remove_copies(&dir, &names)) {
            Ok(0) => (),
            Ok(_) => keep_time(&dir, Time { s: stat.st_mtime, ns: stat.st_mtime_nsec as u32 }),
            // Such as a directory that takes no changes any more.
            Err(errno) => {
                let path = String::from_utf8_lossy(path);
                warn!(errno = errno.raw_os_error(), "{path}: removing copies: {errno}");
            }
        }
        Ok(())
    }

    /// Records that copies may be in the directory with this path from BACKING on: a link in
    /// BACKING itself, with a temporary name, leads to it. `None`: in BACKING itself, where the
    /// next start looks without a record.
    ///
    /// # Errors
    ///
    /// Those of `symlink`, such as `ENAMETOOLONG`.
    pub(crate) fn record(&self, path: Option<&[u8]>) -> Result<()> {
        self.mark()?;
        self.recorded.store(true, Ordering::Relaxed);
        let Some(path) = path else { return Ok(()) };
        loop {
            match rustix::fs::symlinkat(path, &self.root, self.next_temporary()) {
                Err(Errno::EXIST) => (),
                done => return done,
            }
        }
    }

    /// Whether a file on flash may have this size, bytes.
    ///
    /// # Errors
    ///
    /// The file with which this is found out cannot be made.
    pub(crate) fn holds_file_of(&self, bytes: u64) -> Result<bool> {
        match self.limits.get() {
            None if bytes <= HELD_BY_ALL => Ok(true),
            _ => Ok(bytes <= self.limits()?.largest_file),
        }
    }

    /// Times on flash are multiples of this, ns.
    pub(crate) fn granularity_ns(&self) -> u32 {
        self.limits.get().map_or(NS_KEPT, |limits| limits.granularity_ns)
    }

    /// The time on flash that a program gets if it asks for this one.
    pub(crate) fn time_kept(&self, time: Time) -> Result<Time> {
        // Of the first second of ext4, the kernel keeps no part.
        if i32::try_from(time.s).is_ok_and(|s| s > i32::MIN) {
            return Ok(time);
        }
        let [first, last] = self.limits()?.times;
        let s = time.s.clamp(first, last);
        // As the kernel does.
        Ok(if s == first || s == last { Time { s, ns: 0 } } else { time })
    }

    /// Tries sizes of a file that is all hole, and sets times.
    fn limits(&self) -> Result<&Limits> {
        if let Some(limits) = self.limits.get() {
            return Ok(limits);
        }
        let (temp, file) = self.create_temp()?;
        let (mut fits, mut too_large) = (0, 1 << 63);
        while too_large - fits > 1 {
            let size = fits + (too_large - fits) / 2;
            match rustix::fs::ftruncate(&file, size) {
                Ok(()) => fits = size,
                Err(_) => too_large = size,
            }
        }
        let last = Timespec { tv_sec: 1, tv_nsec: 999_999_999 };
        rustix::fs::futimens(&file, &Timestamps { last_access: last, last_modification: last })?;
        let kept = rustix::fs::fstat(&file)?.st_mtime_nsec;
        let granularity_ns = u32::try_from(1_000_000_000 - kept as i64).unwrap_or(1);
        let mut times = [i64::MIN / 2, i64::MAX / 2];
        for time in &mut times {
            let asked = Timespec { tv_sec: *time, tv_nsec: 0 };
            let both = Timestamps { last_access: asked, last_modification: asked };
            // A file system that refuses such a time answers for itself later.
            if rustix::fs::futimens(&file, &both).is_ok() {
                *time = rustix::fs::fstat(&file)?.st_mtime;
            }
        }
        self.remove_temp(&temp)?;
        debug_assert!(granularity_ns == NS_KEPT || !may_be_lazy(self.root.as_fd()));
        Ok(self.limits.get_or_init(|| Limits { largest_file: fits, granularity_ns, times }))
    }

    /// Removes all internal files except the lock, which belongs to its holder.
    pub(crate) fn tidy(&self) -> Result<()> {
        if self.recorded.load(Ordering::Relaxed) {
            self.clear_root()?;
        }
        if let Some(hidden) = self.hidden.get() {
            self.clear(hidden)?;
            // Of an earlier version.
            let _ = rustix::fs::unlinkat(&hidden.dir, "writable", AtFlags::empty());
            if self.temps_found(hidden)?.is_some() {
                rustix::fs::unlinkat(&hidden.dir, TEMPS, AtFlags::REMOVEDIR)?;
            }
        }
        if self.marked.load(Ordering::Relaxed) {
            match rustix::fs::fremovexattr(&self.to_sync, MARK) {
                Ok(()) | Err(Errno::NODATA) => (),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Opens a directory by name.
    pub(crate) fn open_dir(&self, parent: impl AsFd, name: &OsStr) -> Result<(OpenDir, Stat)> {
        self.opened(open_beneath(parent, name, DIRECTORY)?)
    }

    pub(crate) fn open_root(&self) -> Result<(OpenDir, Stat)> {
        self.opened(rustix::fs::openat(
            &self.root,
            ".",
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?)
    }

    fn opened(&self, fd: OwnedFd) -> Result<(OpenDir, Stat)> {
        let stat = rustix::fs::fstat(&fd)?;
        let gid = Mode::from_raw_mode(stat.st_mode).contains(Mode::SGID).then_some(stat.st_gid);
        let default_acl =
            rustix::fs::getxattr_query(proc_path(&fd), c"system.posix_acl_default").is_ok();
        let flags = flags(&fd);
        if folds_case(flags) {
            return Err(Errno::OPNOTSUPP);
        }
        // Where the directory for copies is apart, renames out of it fail everywhere.
        let of_temps = self.flags_of_temps();
        let apart = !is_apart(of_temps) && is_apart(flags);
        let synchronous =
            flags.intersects(IFlags::SYNC | IFlags::DIRSYNC) || self.volume.has_synchronous_names;
        let inherits = flags & INHERITED != of_temps & INHERITED;
        let takes_temps = !default_acl && !flags.intersects(IFlags::APPEND | IFlags::IMMUTABLE);
        let names = xattr_names(&proc_path(&fd)).unwrap_or_default();
        let of_overlay = names.iter().any(|name| is_of_overlay(name.as_bytes()));
        let dir =
            OpenDir { fd, gid, default_acl, apart, takes_temps, synchronous, inherits, of_overlay };
        Ok((dir, stat))
    }

    /// Opens a name with `O_PATH`, through which the attributes of its file can be read and
    /// changed.
    pub(crate) fn open_path(&self, dir: impl AsFd, name: &OsStr) -> Result<OwnedFd> {
        open_beneath(dir, name, OFlags::PATH)
    }

    /// Opens a regular file for reading and writing if its permissions allow it, or for appending
    /// if it is append-only.
    pub(crate) fn open_file(&self, dir: impl AsFd, name: &OsStr) -> Result<File> {
        let quiet = self.without_atime();
        let open = |access| match open_beneath(&dir, name, access | OFlags::NONBLOCK | quiet) {
            // `O_NOATIME` is refused because the file belongs to another user.
            Err(Errno::PERM) if self.noatime => open_beneath(&dir, name, access | OFlags::NONBLOCK),
            opened => opened,
        };
        let refused =
            |error| matches!(error, Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::TXTBSY);
        let mut opened = open(OFlags::RDWR);
        for less in [OFlags::RDWR | OFlags::APPEND, OFlags::RDONLY] {
            match opened {
                Err(error) if refused(error) => opened = open(less),
                done => return done.map(File::from),
            }
        }
        opened.map(File::from)
    }

    /// The `stat` of a name; does not follow a link.
    pub(crate) fn stat(&self, dir: impl AsFd, name: &OsStr) -> Result<Stat> {
        let stat = rustix::fs::statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        // Another file system is mounted there, with inode numbers of its own.
        if stat.st_dev != self.device { Err(Errno::XDEV) } else { Ok(stat) }
    }

    /// Additional flags for opening our own files: `O_NOATIME`, unless the mount keeps access
    /// times.
    pub(crate) fn without_atime(&self) -> OFlags {
        if self.noatime { OFlags::NOATIME } else { OFlags::empty() }
    }

    /// The next number of a temporary name.
    fn next_number(&self) -> u64 {
        self.next_temp.fetch_add(1, Ordering::Relaxed)
    }

    /// A name for a copy in a directory of applications.
    pub(crate) fn next_temporary(&self) -> String {
        temporary(self.next_number())
    }

    /// Creates a file in the hidden directory.
    pub(crate) fn create_temp(&self) -> Result<(String, File)> {
        let name = format!("{:x}", self.next_number());
        let file = self.create_hidden(&name)?;
        Ok((name, file))
    }

    /// Creates a file without a name, which will get one in this directory.
    pub(crate) fn create_unnamed(&self, dir: impl AsFd) -> Result<Option<File>> {
        self.volume.create_unnamed(dir, self.without_atime())
    }

    /// Creates a file that will get no name.
    pub(crate) fn create_unnamed_in_hidden(&self) -> Result<Option<File>> {
        self.create_unnamed(&self.hidden()?.dir)
    }

    /// The next number of a file in the hidden directory.
    pub(crate) fn next_hidden_number(&self) -> u64 {
        self.next_number()
    }

    /// The directory for copies, which the first of them makes.
    pub(crate) fn temps(&self) -> Result<BorrowedFd<'_>> {
        let hidden = self.hidden()?;
        if let Some(temps) = hidden.temps.get() {
            return Ok(temps.as_fd());
        }
        match rustix::fs::mkdirat(&hidden.dir, TEMPS, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => (),
            Err(error) => return Err(error),
        }
        self.temps_found(hidden)?.ok_or(Errno::NOENT)
    }

    /// Creates a file with this name in the hidden directory.
    pub(crate) fn create_hidden(&self, name: &str) -> Result<File> {
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | self.without_atime();
        let file = rustix::fs::openat(self.temps()?, name, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(File::from(file))
    }

    /// Opens a file of the hidden directory for a sync.
    pub(crate) fn open_hidden(&self, name: &str) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        rustix::fs::openat(self.temps()?, name, flags, Mode::empty())
    }

    /// Gives an open file this name in the hidden directory as well.
    pub(crate) fn link_hidden(&self, file: &File, name: &str) -> Result<()> {
        self.link_file(file, self.temps()?, OsStr::new(name))
    }

    /// Gives a file of the hidden directory a further name there.
    pub(crate) fn link_in_hidden(&self, known: &str, name: &str) -> Result<()> {
        rustix::fs::linkat(self.temps()?, known, self.temps()?, name, AtFlags::empty())
    }

    /// Removes a file of the hidden directory.
    pub(crate) fn remove_temp(&self, temp: &str) -> Result<()> {
        rustix::fs::unlinkat(self.temps()?, temp, AtFlags::empty())
    }

    /// Renames a file of the hidden directory, and replaces the file that has the name.
    pub(crate) fn place_temp(&self, temp: &str, dir: impl AsFd, name: &OsStr) -> Result<()> {
        rustix::fs::renameat(self.temps()?, temp, dir, name)
    }

    /// Gives an open file this name; `EEXIST` if it is in use.
    pub(crate) fn link_file(&self, file: &File, dir: impl AsFd, name: &OsStr) -> Result<()> {
        rustix::fs::linkat(CWD, proc_path(file), dir, name, AtFlags::SYMLINK_FOLLOW)
    }

    /// Gives an open file a further name in the hidden directory, and returns the name.
    pub(crate) fn link_to_temp(&self, file: &File) -> Result<String> {
        let name = format!("{:x}", self.next_number());
        self.link_file(file, self.temps()?, OsStr::new(&name))?;
        Ok(name)
    }

    /// Inodes that are free for files created on flash directly, without those that files in RAM
    /// will need.
    pub(crate) fn spare_files(&self, in_ram: u64) -> Result<u64> {
        let flash = rustix::fs::fstatvfs(&self.root)?;
        let spare = match flash.f_files {
            // Some file systems make inodes as they need them.
            0 => u64::MAX,
            _ => flash.f_ffree.saturating_sub(in_ram + OWN_FILES),
        };
        if spare == 0 { Err(Errno::NOSPC) } else { Ok(spare) }
    }

    /// Whether BACKING is read-only.
    pub(crate) fn is_read_only(&self) -> bool {
        let hidden = self.hidden.get().map(|hidden| &hidden.dir);
        self.state.is_read_only(&self.root, hidden, &self.volume)
    }

    /// Refuses a change of a file in RAM that could not be written back.
    ///
    /// # Errors
    ///
    /// `EROFS` if BACKING is read-only.
    pub(crate) fn refuse_if_read_only(&self) -> Result<()> {
        match self.mark() {
            Err(Errno::ROFS) => Err(Errno::ROFS),
            // A change that needs more space fails itself; the removal of a file does not.
            _ if self.is_read_only() => Err(Errno::ROFS),
            _ => Ok(()),
        }
    }

    /// Whether BACKING is mounted with `sync`: every write is durable when it returns.
    pub(crate) fn is_synchronous(&self) -> bool {
        let hidden = self.hidden.get().map(|hidden| &hidden.dir);
        self.state.is_synchronous(&self.root, hidden, &self.volume)
    }

    /// Time after which the kernel has committed a name on its own.
    pub(crate) fn committed_after(&self) -> Option<Duration> {
        self.volume.is_ordered().then(|| self.volume.committed_after())
    }

    /// Makes a file durable, and counts that. `synced`: an application waits for it.
    pub(crate) fn fsync(&self, file: impl AsFd, synced: bool) -> Result<()> {
        self.flushes.issued(synced);
        rustix::fs::fsync(file)
    }

    /// Makes the content of a file durable for an application.
    pub(crate) fn fdatasync(&self, file: &File) -> Result<()> {
        self.volume.begin_sync(file);
        self.flushes.issued(true);
        rustix::fs::fdatasync(file)
    }

    /// Makes the names in a directory durable.
    pub(crate) fn fsync_dir(&self, dir: impl AsFd, synced: bool) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.fsync(rustix::fs::openat(dir, ".", flags, Mode::empty())?, synced)
    }

    /// Makes all writes to this file system durable. `synced`: an application waits for it.
    pub(crate) fn sync_all(&self, synced: bool) -> Result<()> {
        self.flushes.issued(synced);
        rustix::fs::syncfs(&self.to_sync)
    }
}

/// Whether a mount has changed this directory, and has not ended cleanly.
pub(crate) fn is_marked(dir: impl AsFd) -> bool {
    rustix::fs::fgetxattr(dir, MARK, &mut [0; 8]).is_ok()
}

/// Removes our copies among these names of a directory, and returns how many there were.
pub(crate) fn remove_copies(
    dir: impl AsFd,
    names: &[(u64, FileType, Box<OsStr>)],
) -> Result<usize> {
    let mut removed = 0;
    for (_, kind, name) in names {
        if is_temporary(name) && matches!(kind, FileType::RegularFile | FileType::Unknown) {
            rustix::fs::unlinkat(&dir, &**name, AtFlags::empty())?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// The flags that `chattr` calls E and F; rustix has no names for them.
const ENCRYPTED: u32 = 0x800;
const CASE_FOLDED: u32 = 0x4000_0000;
/// The flag that `chattr` calls m: do not compress.
const NOT_COMPRESSED: u32 = 0x400;
/// The flag that `chattr` calls x: access memory of the device directly.
const DAX: u32 = 0x0200_0000;

/// Flags that a directory passes on to files that are created in it (ext4, F2FS, btrfs and XFS).
pub(crate) const INHERITED: IFlags = IFlags::SYNC
    .union(IFlags::NOATIME)
    .union(IFlags::NODUMP)
    .union(IFlags::NOCOW)
    .union(IFlags::COMPRESSED)
    .union(IFlags::JOURNALING)
    .union(IFlags::NOTAIL)
    .union(IFlags::SECURE_REMOVAL)
    .union(IFlags::UNRM)
    .union(IFlags::from_bits_retain(NOT_COMPRESSED | DAX));

/// Flags of a directory as `lsattr` shows them; empty on file systems without flags.
pub(crate) fn flags(dir: impl AsFd) -> IFlags {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::openat(dir, ".", flags, Mode::empty())
        .and_then(rustix::fs::ioctl_getflags)
        .unwrap_or(IFlags::empty())
}

/// Restores the `mtime` of a directory in which only internal files have changed. In a directory of
/// another user this fails, and the change stays visible.
pub(crate) fn keep_time(dir: impl AsFd, modified: Time) {
    let times = Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec { tv_sec: modified.s, tv_nsec: i64::from(modified.ns) },
    };
    let _ = rustix::fs::utimensat(dir, c"", &times, AtFlags::EMPTY_PATH);
}

/// Whether the directory ignores case. Two files in RAM whose names differ only in case would be
/// written back over each other there.
pub(crate) fn folds_case(flags: IFlags) -> bool {
    flags.contains(IFlags::from_bits_retain(CASE_FOLDED))
}

/// Whether the inode of this directory has the time when it was made.
fn has_birth(root: BorrowedFd<'_>) -> bool {
    rustix::fs::statx(root, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME)
        .is_ok_and(|stat| StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME))
}

/// Files of this size can be everywhere, bytes.
const HELD_BY_ALL: u64 = i32::MAX as u64;

/// Granularity of times where a file shows when it was made, ns.
const NS_KEPT: u32 = 1;

/// Whether it is known without a trial what the file system does with names, flags and times. ext4,
/// btrfs and F2FS have a flag at directories that ignore case, directories inherit flags, and an
/// inode that holds the time when it was made holds nanoseconds.
pub(crate) fn may_be_lazy(root: BorrowedFd<'_>) -> bool {
    let kind = rustix::fs::fstatfs(root).map(|flash| flash.f_type as u32);
    kind.is_ok_and(|kind| [EXT4, BTRFS, F2FS].contains(&kind)) && has_birth(root)
}

/// Whether renames between this directory and others may fail (ext4 and F2FS: encryption,
/// projects).
fn is_apart(flags: IFlags) -> bool {
    flags.intersects(IFlags::PROJECT_INHERIT | IFlags::from_bits_retain(ENCRYPTED))
}

/// Names in a directory, with BACKING's inode numbers and types.
pub(crate) fn list(dir: impl AsFd) -> Result<Vec<(u64, FileType, Box<OsStr>)>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let listing = rustix::fs::openat(dir, ".", flags, Mode::empty())?;
    let mut all = Vec::new();
    for entry in Dir::new(listing)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            all.push((entry.ino(), entry.file_type(), name.into()));
        }
    }
    Ok(all)
}
