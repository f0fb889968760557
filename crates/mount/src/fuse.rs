//! The kernel's requests, passed on to [`Fs`].
//!
//! A file in RAM is opened for direct I/O, without passthrough, so that every access is seen, and so that the file may move below open descriptors and mappings: the kernel then
//! keeps a file open for as long as it is mapped. A settled file that nothing else has open is handed to the kernel, which reads and writes it
//! without us. Names and attributes may be remembered by the kernel for long: nothing changes but through it.

use crate::attach::Detached;
use crate::types::{Attr, Caller, Changes, Ino, Opened, ROOT, Time};
use crate::undo::{self, Unmounted};
use crate::{Entry, Fs};
use flashsift_core::event::Action;
use fuser::{
    BackingId, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo, InitFlags,
    KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, SessionACL, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use rustix::io::Result;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// [`Status`](crate::Status) as JSON, an extended attribute of the mounted directory.
pub const STATUS: &str = "user.flashsift.status";
/// Set on the mounted directory, everything settles; also when root, or whose mount it is, asks for its value.
pub const SETTLE: &str = "user.flashsift.settle";

/// How it is mounted.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where.
    pub mountpoint: PathBuf,
    /// What `mount` says that is mounted.
    pub name: String,
    /// Settled files are handed to the kernel. Takes root.
    pub passthrough: bool,
    /// Other users may use it too. Takes root.
    pub allow_other: bool,
    /// That answer requests.
    pub threads: usize,
    /// Options that the kernel knows: `ro`, `nodev`, `nosuid`, `noexec`, `noatime`.
    pub kernel: Vec<String>,
}

/// A file system that is mounted.
#[derive(Debug)]
pub struct Running {
    session: JoinHandle<io::Result<()>>,
    mountpoint: PathBuf,
}

impl Running {
    /// Takes it away from its place; `wait` returns when the last request is answered. Not while somebody uses it.
    pub fn unmount(&mut self) -> io::Result<()> {
        match undo::unmount(&self.mountpoint, false)? {
            Unmounted::Gone => Ok(()),
            Unmounted::Busy => Err(rustix::io::Errno::BUSY.into()),
        }
    }

    /// Until it is mounted no longer.
    pub fn wait(self) -> io::Result<()> {
        self.session.join().map_err(|_| io::Error::other("the thread that answers the kernel panicked"))?
    }
}

/// Mounts it. What is in RAM when it has been unmounted the caller has to settle.
pub fn start(fs: Arc<Fs>, options: &Options) -> io::Result<Running> {
    let mut config = fuser::Config::default();
    config.mount_options = vec![
        // As fusermount3 reads it.
        MountOption::FSName(options.name.replace('\\', "\\\\").replace(',', "\\,")),
        MountOption::Subtype("flashsift".to_owned()),
        MountOption::DefaultPermissions,
    ];
    for option in &options.kernel {
        config.mount_options.push(match option.as_str() {
            "nodev" => MountOption::NoDev,
            "nosuid" => MountOption::NoSuid,
            "noexec" => MountOption::NoExec,
            "noatime" => MountOption::NoAtime,
            "dev" => MountOption::Dev,
            "suid" => MountOption::Suid,
            other => MountOption::CUSTOM(other.to_owned()),
        });
    }
    if options.allow_other {
        config.acl = SessionACL::All;
    }
    config.n_threads = Some(options.threads.max(1));
    config.clone_fd = false;
    let notifier = Arc::new(OnceLock::new());
    let kernel = Kernel {
        fs,
        notifier: notifier.clone(),
        written_past_us: Mutex::default(),
        wants_passthrough: options.passthrough,
        passthrough: AtomicBool::new(false),
        lent: Mutex::default(),
        listings: Mutex::default(),
        next_listing: AtomicU64::new(0),
    };
    let session = match Detached::new(options)? {
        Some(detached) => {
            let (device, mount) = detached.split();
            let session = fuser::Session::from_fd(kernel, device, config.acl, config)?;
            Detached::attach(mount, &options.mountpoint)?;
            session
        }
        // A plain user asks fusermount3.
        None => fuser::Session::new(kernel, &options.mountpoint, &config)?,
    };
    // Nobody else sets it.
    let _ = notifier.set(session.notifier());
    let session = std::thread::Builder::new().name("fuse".to_owned()).spawn(move || session.run())?;
    Ok(Running { session, mountpoint: options.mountpoint.clone() })
}

/// How long the kernel may remember what it was told.
const REMEMBER: Duration = Duration::from_secs(3600);
/// The largest write, bytes.
const WRITE_BYTES: u32 = 1 << 20;
/// What tells a file that the kernel reads and writes itself.
const LENT: FileHandle = FileHandle(1);
const OURS: FileHandle = FileHandle(0);

struct Kernel {
    fs: Arc<Fs>,
    wants_passthrough: bool,
    passthrough: AtomicBool,
    /// Files that the kernel reads and writes itself, and how often each is open.
    lent: Mutex<HashMap<Ino, (Arc<BackingId>, u32)>>,
    /// Those that somebody may write to without us, if only through a mapping that outlives the descriptor: the kernel may not remember
    /// their times.
    written_past_us: Mutex<HashSet<Ino>>,
    notifier: Arc<OnceLock<fuser::Notifier>>,
    listings: Mutex<HashMap<u64, Arc<Mutex<Listing>>>>,
    next_listing: AtomicU64,
}

/// What a directory held when it was opened, or read anew from its beginning.
#[derive(Default)]
struct Listing {
    parent: Ino,
    entries: Vec<Entry>,
    read: bool,
}

thread_local! {
    /// What is read goes through here.
    static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

fn number(error: rustix::io::Errno) -> Errno {
    Errno::from_i32(error.raw_os_error())
}

fn system_time(time: Time) -> SystemTime {
    let ns = Duration::from_nanos(u64::from(time.ns));
    match u64::try_from(time.s) {
        Ok(s) => UNIX_EPOCH + Duration::from_secs(s) + ns,
        Err(_) => UNIX_EPOCH - Duration::from_secs(time.s.unsigned_abs()) + ns,
    }
}

fn time(time: SystemTime) -> Time {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => Time { s: since.as_secs() as i64, ns: since.subsec_nanos() },
        // fuser, up to 0.18.0, takes the nanoseconds of times before 1970 away instead of adding them.
        Err(before) => {
            let before = before.duration();
            Time { s: 0i64.wrapping_sub_unsigned(before.as_secs()), ns: before.subsec_nanos() }
        }
    }
}

fn kind(kind: rustix::fs::FileType) -> FileType {
    use rustix::fs::FileType as Kind;
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharacterDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        Kind::RegularFile | Kind::Unknown => FileType::RegularFile,
    }
}

fn file_attr(attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(attr.ino),
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: UNIX_EPOCH,
        kind: kind(attr.kind()),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: attr.blksize,
        flags: 0,
    }
}

/// That there is nothing, which the kernel may remember too.
fn nothing() -> FileAttr {
    FileAttr {
        ino: INodeNo(0),
        size: 0,
        blocks: 0,
        atime: UNIX_EPOCH,
        mtime: UNIX_EPOCH,
        ctime: UNIX_EPOCH,
        crtime: UNIX_EPOCH,
        kind: FileType::RegularFile,
        perm: 0,
        nlink: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        blksize: 0,
        flags: 0,
    }
}

fn caller(request: &Request, umask: u32) -> Caller {
    Caller { uid: request.uid(), gid: request.gid(), pid: request.pid(), umask }
}

impl Kernel {
    /// Answers a request. A panic in it is our mistake: this request fails (its reply, dropped, says `EIO`), no other does.
    fn answer(&self, what: &str, answer: impl FnOnce()) {
        if std::panic::catch_unwind(AssertUnwindSafe(answer)).is_err() {
            self.fs.count_fault();
            crate::say!("{what} failed inside; it was answered with an input/output error");
        }
    }

    /// How long the attributes of a file may be remembered.
    fn remember(&self, ino: Ino) -> Duration {
        if self.written_past_us.lock().contains(&ino) { Duration::ZERO } else { REMEMBER }
    }

    /// From now on it is written to without us.
    fn writes_past_us(&self, ino: Ino) {
        if self.written_past_us.lock().insert(ino)
            && let Some(notifier) = self.notifier.get()
        {
            // Only the attributes. Where that fails, the kernel knows none.
            let _ = notifier.inval_inode(INodeNo(ino), -1, 0);
        }
    }

    fn entry(&self, reply: ReplyEntry, found: Result<Attr>) {
        match found {
            Ok(attr) => {
                let attr_for = self.remember(attr.ino);
                reply.entry_with_ttls(&attr_for, &REMEMBER, &file_attr(&attr), Generation(0));
            }
            Err(error) => reply.error(number(error)),
        }
    }

    fn empty(reply: ReplyEmpty, done: Result<()>) {
        match done {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(number(error)),
        }
    }

    /// A file that was just opened: may the kernel have it?
    fn lend(
        &self,
        lent: &mut HashMap<Ino, (Arc<BackingId>, u32)>,
        attr: Option<&Attr>,
        ino: Ino,
        opened: Opened,
        open_backing: impl FnOnce(&std::fs::File) -> io::Result<BackingId>,
    ) -> Option<Arc<BackingId>> {
        if let Some((backing, count)) = lent.get_mut(&ino) {
            *count += 1;
            return Some(backing.clone());
        }
        if opened != (Opened::Settled { first: true }) || !self.passthrough.load(Ordering::Relaxed) {
            return None;
        }
        // Who writes without the right to keep setuid has to take it away: that is for us to see to.
        if attr.is_none_or(|attr| attr.mode & 0o6000 != 0) {
            return None;
        }
        let file = self.fs.settled_file(ino)?;
        // The kernel opens it once more, as the user asked for, and does not look whether that is forbidden.
        let may = rustix::fs::fcntl_getfl(&file).ok()?;
        if !may.contains(rustix::fs::OFlags::RDWR) || may.contains(rustix::fs::OFlags::APPEND) {
            return None;
        }
        match open_backing(&file) {
            Ok(backing) => {
                let backing = Arc::new(backing);
                lent.insert(ino, (backing.clone(), 1));
                Some(backing)
            }
            Err(error) => {
                // Not for us, or not for this file system: then nothing is handed over.
                crate::say!(
                    "no passthrough: {error}; settled files are read and written through this process"
                );
                self.passthrough.store(false, Ordering::Relaxed);
                self.fs.set_passthrough(false);
                None
            }
        }
    }

    /// Bytes went in or out.
    fn accessed(&self, request: &Request, ino: Ino, offset: u64, len: usize, flags: OpenFlags, write: bool) {
        let (len, sync) = (len as u64, crate::files::asks_for_sync(flags.0));
        let direct =
            rustix::fs::OFlags::from_bits_retain(flags.0 as u32).contains(rustix::fs::OFlags::DIRECT);
        self.fs.saw(request.pid(), ino, |file| match (direct, write) {
            (true, _) => Action::Direct { file, offset, len, write },
            (false, true) => Action::Write { file, offset, len, sync },
            (false, false) => Action::Read { file, offset, len },
        });
    }

    fn listing(&self, handle: FileHandle) -> Option<Arc<Mutex<Listing>>> {
        self.listings.lock().get(&handle.0).cloned()
    }

    /// The entries from `offset` on, each with the offset behind it.
    fn each_entry(
        &self,
        ino: Ino,
        handle: FileHandle,
        offset: u64,
        mut each: impl FnMut(&Entry, u64) -> bool,
    ) -> Result<()> {
        let listing = self.listing(handle).ok_or(rustix::io::Errno::BADF)?;
        let mut listing = listing.lock();
        if offset == 0 || !listing.read {
            let (parent, entries) = self.fs.list(ino)?;
            *listing = Listing { parent, entries, read: true };
        }
        let directory =
            |ino, name: &str| Entry { ino, kind: rustix::fs::FileType::Directory, name: name.into() };
        let dots = [directory(ino, "."), directory(listing.parent, "..")];
        let all = dots.iter().chain(&listing.entries).enumerate().skip(offset as usize);
        for (at, entry) in all {
            if each(entry, at as u64 + 1) {
                break;
            }
        }
        Ok(())
    }

    fn xattr(reply: ReplyXattr, size: u32, value: Result<Vec<u8>>) {
        match value {
            Ok(value) if size == 0 => reply.size(value.len() as u32),
            Ok(value) if value.len() > size as usize => reply.error(Errno::ERANGE),
            Ok(value) => reply.data(&value),
            Err(error) => reply.error(number(error)),
        }
    }
}

impl Filesystem for Kernel {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let has = config.capabilities();
        for wanted in [
            InitFlags::FUSE_DONT_MASK,
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_ASYNC_DIO,
        ] {
            let _ = config.add_capabilities(wanted & has);
        }
        // Without these there would be leaks of rights, or lost mappings: better no mount.
        let needed = InitFlags::FUSE_POSIX_ACL
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        config.add_capabilities(needed).map_err(|lacking| {
            io::Error::other(format!("this kernel's FUSE lacks {lacking:?}; Linux 6.6 or later is needed"))
        })?;
        if self.wants_passthrough
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(1).is_ok()
        {
            self.passthrough.store(true, Ordering::Relaxed);
            self.fs.set_passthrough(true);
        }
        let _ = config.set_max_write(WRITE_BYTES);
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.answer("lookup", || match self.fs.lookup(parent.0, name) {
            Err(rustix::io::Errno::NOENT) => reply.entry(&REMEMBER, &nothing(), Generation(0)),
            found => self.entry(reply, found),
        });
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        self.answer("forget", || {
            self.fs.forget(ino.0, lookups);
            if !self.fs.knows(ino.0) {
                self.written_past_us.lock().remove(&ino.0);
            }
        });
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.answer("getattr", || match self.fs.attr(ino.0) {
            Ok(attr) => reply.attr(&self.remember(attr.ino), &file_attr(&attr)),
            Err(error) => reply.error(number(error)),
        });
    }

    fn setattr(
        &self,
        request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<fuser::BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let asked = |asked: Option<TimeOrNow>| {
            asked.map(|asked| match asked {
                TimeOrNow::Now => None,
                TimeOrNow::SpecificTime(at) => Some(time(at)),
            })
        };
        self.answer("setattr", || {
            // Where nothing is asked for, the kernel means that setuid and setgid have to go: somebody writes without us.
            let asks = mode.or(uid).or(gid).is_some() || atime.or(mtime).is_some();
            let strip = match size {
                Some(_) => request.uid() != 0,
                None => !asks,
            };
            let changes = Changes { mode, uid, gid, size, atime: asked(atime), mtime: asked(mtime), strip };
            let done = self.fs.set_attr(ino.0, &changes);
            if let (Some(size), Ok(_)) = (size, &done) {
                self.fs.saw(request.pid(), ino.0, |file| Action::Truncate { file, size });
            }
            match done {
                Ok(attr) => reply.attr(&self.remember(attr.ino), &file_attr(&attr)),
                Err(error) => reply.error(number(error)),
            }
        });
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        self.answer("readlink", || match self.fs.readlink(ino.0) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(error) => reply.error(number(error)),
        });
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        self.answer("mknod", || {
            self.entry(reply, self.fs.mknod(&caller(request, umask), parent.0, name, mode, rdev));
        });
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        self.answer("mkdir", || {
            self.entry(reply, self.fs.mkdir(&caller(request, umask), parent.0, name, mode));
        });
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.answer("unlink", || Kernel::empty(reply, self.fs.unlink(parent.0, name)));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.answer("rmdir", || Kernel::empty(reply, self.fs.rmdir(parent.0, name)));
    }

    fn symlink(&self, request: &Request, parent: INodeNo, name: &OsStr, target: &Path, reply: ReplyEntry) {
        self.answer("symlink", || {
            self.entry(reply, self.fs.symlink(&caller(request, 0), parent.0, name, target.as_os_str()));
        });
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.answer("rename", || {
            let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
            Kernel::empty(reply, self.fs.rename((parent.0, name), (new_parent.0, new_name), flags));
        });
    }

    fn link(&self, _: &Request, ino: INodeNo, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        self.answer("link", || self.entry(reply, self.fs.link(ino.0, parent.0, name)));
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.answer("open", || {
            let mut lent = self.lent.lock();
            let opened = match self.fs.open(ino.0) {
                Ok(opened) => opened,
                Err(error) => return reply.error(number(error)),
            };
            self.fs.saw(request.pid(), ino.0, |file| Action::Open { file, created: false });
            let attr = match opened {
                Opened::Settled { first: true } => self.fs.attr(ino.0).ok(),
                _ => None,
            };
            match self.lend(&mut lent, attr.as_ref(), ino.0, opened, |file| reply.open_backing(file)) {
                Some(backing) => {
                    if flags.acc_mode() != fuser::OpenAccMode::O_RDONLY {
                        self.writes_past_us(ino.0);
                    }
                    reply.opened_passthrough(LENT, FopenFlags::empty(), &backing);
                }
                None => reply.opened(OURS, direct()),
            }
        });
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        self.answer("create", || {
            let mut lent = self.lent.lock();
            let (attr, opened) = match self.fs.create(&caller(request, umask), parent.0, name, mode, flags) {
                Ok(created) => created,
                Err(error) => return reply.error(number(error)),
            };
            let shown = file_attr(&attr);
            match self.lend(&mut lent, Some(&attr), attr.ino, opened, |file| reply.open_backing(file)) {
                Some(backing) => {
                    self.writes_past_us(attr.ino);
                    reply.created_passthrough(
                        &Duration::ZERO,
                        &shown,
                        Generation(0),
                        LENT,
                        FopenFlags::empty(),
                        &backing,
                    );
                }
                None => reply.created(&REMEMBER, &shown, Generation(0), OURS, direct()),
            }
        });
    }

    fn read(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.answer("read", || {
            BYTES.with_borrow_mut(|bytes| {
                if bytes.len() < size as usize {
                    bytes.resize(size as usize, 0);
                }
                match self.fs.read(ino.0, offset, &mut bytes[..size as usize]) {
                    Ok(read) => {
                        self.accessed(request, ino.0, offset, read, flags, false);
                        reply.data(&bytes[..read]);
                    }
                    Err(error) => reply.error(number(error)),
                }
            });
        });
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.answer("write", || {
            let written = self.fs.write(ino.0, offset, data, crate::files::asks_for_sync(flags.0)).and_then(
                |written| {
                    if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
                        self.fs.set_attr(ino.0, &Changes { strip: true, ..Changes::default() })?;
                    }
                    Ok(written)
                },
            );
            match written {
                Ok(written) => {
                    self.accessed(request, ino.0, offset, written, flags, true);
                    reply.written(written as u32);
                }
                Err(error) => reply.error(number(error)),
            }
        });
    }

    fn release(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.answer("release", || {
            let mut lent = self.lent.lock();
            if handle == LENT
                && let Some((_, count)) = lent.get_mut(&ino.0)
            {
                *count -= 1;
                if *count == 0 {
                    lent.remove(&ino.0);
                }
            }
            self.fs.saw(request.pid(), ino.0, |file| Action::Close { file });
            self.fs.release(ino.0);
            reply.ok();
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Nothing is held back here; said once, the kernel does not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn access(&self, _: &Request, _: INodeNo, _: fuser::AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, request: &Request, ino: INodeNo, _: FileHandle, data_only: bool, reply: ReplyEmpty) {
        self.answer("fsync", || {
            self.fs.saw(request.pid(), ino.0, |file| Action::Sync { file, offset: 0, len: u64::MAX });
            Kernel::empty(reply, self.fs.fsync(ino.0, data_only));
        });
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.answer("opendir", || {
            let handle = self.next_listing.fetch_add(1, Ordering::Relaxed);
            self.listings.lock().insert(handle, Arc::default());
            reply.opened(FileHandle(handle), FopenFlags::empty());
        });
    }

    fn readdir(&self, _: &Request, ino: INodeNo, handle: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        self.answer("readdir", || {
            let done = self.each_entry(ino.0, handle, offset, |entry, next| {
                reply.add(INodeNo(entry.ino), next, kind(entry.kind), &entry.name)
            });
            match done {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(number(error)),
            }
        });
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.answer("readdirplus", || {
            let done = self.each_entry(ino.0, handle, offset, |entry, next| {
                let dot = entry.name == "." || entry.name == "..";
                let attr = if dot { self.fs.attr(entry.ino) } else { self.fs.lookup(ino.0, &entry.name) };
                // It is gone since.
                let Ok(attr) = attr else { return false };
                let full = reply.add(
                    INodeNo(attr.ino),
                    next,
                    &entry.name,
                    &self.remember(attr.ino),
                    &file_attr(&attr),
                    Generation(0),
                );
                if full && !dot {
                    self.fs.forget(attr.ino, 1);
                }
                full
            });
            match done {
                Ok(()) => reply.ok(),
                Err(error) => reply.error(number(error)),
            }
        });
    }

    fn releasedir(&self, _: &Request, _: INodeNo, handle: FileHandle, _: OpenFlags, reply: ReplyEmpty) {
        self.listings.lock().remove(&handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.answer("fsyncdir", || Kernel::empty(reply, self.fs.fsync_dir(ino.0)));
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.answer("statfs", || match self.fs.statfs() {
            Ok(all) => reply.statfs(
                all.f_blocks,
                all.f_bfree,
                all.f_bavail,
                all.f_files,
                all.f_ffree,
                all.f_bsize as u32,
                all.f_namemax as u32,
                all.f_frsize as u32,
            ),
            Err(error) => reply.error(number(error)),
        });
    }

    fn setxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        self.answer("setxattr", || {
            Kernel::empty(
                reply,
                match (ino.0, name.to_str()) {
                    (ROOT, Some(SETTLE)) => self.fs.settle_all(),
                    (_, Some(STATUS | SETTLE)) => Err(rustix::io::Errno::PERM),
                    _ => self.fs.set_xattr(&caller(request, 0), ino.0, name, value, flags),
                },
            );
        });
    }

    fn getxattr(&self, request: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        self.answer("getxattr", || {
            let value = match (ino.0, name.to_str()) {
                (ROOT, Some(STATUS)) => {
                    serde_json::to_vec(&self.fs.status()).map_err(|_| rustix::io::Errno::IO)
                }
                // Where it is mounted read-only, nothing can be set.
                (ROOT, Some(SETTLE)) if is_ours(request) => self.fs.settle_all().map(|()| Vec::new()),
                _ => self.fs.get_xattr(ino.0, name),
            };
            Kernel::xattr(reply, size, value);
        });
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.answer("listxattr", || {
            let mut list = self.fs.list_xattr(ino.0);
            if request.uid() != 0
                && let Ok(list) = &mut list
            {
                // As file systems do: these names are root's.
                let shown =
                    list.split_inclusive(|byte| *byte == 0).filter(|name| !name.starts_with(b"trusted."));
                *list = shown.flatten().copied().collect();
            }
            Kernel::xattr(reply, size, list);
        });
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.answer("removexattr", || Kernel::empty(reply, self.fs.remove_xattr(ino.0, name)));
    }

    fn fallocate(
        &self,
        request: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        /// What `fallocate` calls a hole to be punched.
        const PUNCH_HOLE: i32 = 2;
        self.answer("fallocate", || {
            let done = self.fs.fallocate(ino.0, offset, length, mode as u32);
            if done.is_ok() && mode & PUNCH_HOLE != 0 {
                self.fs.saw(request.pid(), ino.0, |file| Action::Punch { file, offset, len: length });
            }
            Kernel::empty(reply, done);
        });
    }

    fn lseek(&self, _: &Request, ino: INodeNo, _: FileHandle, offset: i64, whence: i32, reply: ReplyLseek) {
        /// What `lseek` calls the search for a hole.
        const SEEK_HOLE: i32 = 4;
        self.answer("lseek", || match self.fs.seek(ino.0, offset as u64, whence == SEEK_HOLE) {
            Ok(at) => reply.offset(at as i64),
            Err(error) => reply.error(number(error)),
        });
    }
}

/// Root, or whose mount it is.
fn is_ours(request: &Request) -> bool {
    [0, rustix::process::geteuid().as_raw()].contains(&request.uid())
}

/// Every access comes to us, and writers of one file need not wait for one another.
fn direct() -> FopenFlags {
    FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
}

#[cfg(test)]
mod tests {
    use super::*;

    /// -1.5 s is half a second after -2 s. fuser makes 2.5 s before 1970 of it, which was then shown.
    #[test]
    fn times_before_1970_are_what_was_meant() {
        let as_fuser_has_it = |s: i64, ns| match u64::try_from(s) {
            Ok(s) => UNIX_EPOCH + Duration::new(s, ns),
            Err(_) => UNIX_EPOCH - Duration::new(s.unsigned_abs(), ns),
        };
        for (s, ns) in [(-2, 500_000_000), (-1, 0), (-1, 999_999_999), (0, 1), (7, 3), (i64::MIN, 0)] {
            assert_eq!(time(as_fuser_has_it(s, ns)), Time { s, ns });
        }
        assert_eq!(system_time(Time { s: -2, ns: 500_000_000 }), UNIX_EPOCH - Duration::from_millis(1500));
    }
}
