//! The kernel's requests, passed on to [`Fs`].
//!
//! A file in RAM is opened for direct I/O, without passthrough, so that every access is seen, and
//! so that the file may move while descriptors and mappings are open: the kernel then keeps a file
//! open for as long as it is mapped. The kernel reads and writes a file on flash itself
//! (passthrough) unless the file has another kind of open. The kernel may cache names and
//! attributes for long, since all changes pass through it.

mod convert;
mod listings;
mod passthrough;

use self::convert::{caller, file_attr, kind, nothing, number, time};
use self::listings::Listings;
use self::passthrough::Passthrough;
use crate::control::{
    ANNOUNCE, ASK, BACKING, DECISIONS, EXPLAIN, FOREGROUND, IN_USE, SETTLE, SIFT, STATUS,
    WRITE_BACK,
};
use crate::daemon::session::Serving;
use crate::fs::Fs;
use crate::fs::readers::Reader;
use crate::fs::sifting::{SiftError, SiftWish};
use crate::fs::types::{Access, Attr, Changes, ROOT};
use flashsift_events::event::OpenId;
use fuser::{
    Errno, FileHandle, Filesystem, FopenFlags, Generation, INodeNo, InitFlags, KernelConfig,
    LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory,
    ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite,
    ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use parking_lot::Mutex;
use rustix::io::Result;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStrExt;
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// How long the kernel may cache names and attributes.
const REMEMBER: Duration = Duration::from_secs(3600);
/// The largest write, bytes.
const WRITE_BYTES: u32 = 1 << 20;

/// Answers the requests of the kernel.
pub(crate) struct Adapter {
    fs: Arc<Fs>,
    serving: Serving,
    pub(crate) passthrough: Passthrough,
    listings: Listings,
    /// The attribute that a thread asks for, by its number and user, where there are none.
    asked: Mutex<HashMap<(u32, u32), String>>,
}

thread_local! {
    /// Buffer for the bytes of a read.
    static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Adapter {
    pub(crate) fn new(fs: Arc<Fs>, serving: Serving) -> Adapter {
        Adapter {
            fs,
            serving,
            passthrough: Passthrough::default(),
            listings: Listings::default(),
            asked: Mutex::default(),
        }
    }

    /// Answers a request. A panic is a bug of ours and fails this request only: its reply, when
    /// dropped, returns `EIO`.
    fn answer(&self, what: &str, answer: impl FnOnce()) {
        if std::panic::catch_unwind(AssertUnwindSafe(answer)).is_err() {
            self.fs.count_fault();
            tracing::error!("{what} failed inside; it was answered with an input/output error");
        }
    }

    fn entry(&self, reply: ReplyEntry, found: Result<Attr>) {
        match found {
            Ok(attr) => {
                let attr_for = self.passthrough.remember(attr.ino);
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

    /// Makes a wish for the sifter come true.
    fn sift(&self, wish: &str) -> Result<Vec<u8>> {
        if wish == "reset" {
            self.fs.decider.reset();
            return Ok(Vec::new());
        }
        let wish = SiftWish::new(wish).ok_or(rustix::io::Errno::NODATA)?;
        self.fs.switch_sifter(wish).map(|()| Vec::new()).map_err(|why| {
            tracing::warn!("switching the sifter: {why}");
            match why {
                SiftError::NoSifter => rustix::io::Errno::NODATA,
                SiftError::Setup(_) | SiftError::NotAnnounced => rustix::io::Errno::OPNOTSUPP,
                SiftError::Failed(failures) => failures.into(),
            }
        })
    }

    /// The value of an attribute of flashsift's own; `None`: it is none.
    fn own_attribute(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
    ) -> Option<Result<Vec<u8>>> {
        Some(match (ino.0, name.to_str()) {
            (ROOT, Some(STATUS)) => {
                let status = self.fs.status_for(reader(request).as_ref());
                serde_json::to_vec(&status).map_err(|_| rustix::io::Errno::IO)
            }
            (ROOT, Some(SETTLE)) if is_ours(request) => {
                self.fs.settle_all().map(|()| Vec::new()).map_err(Into::into)
            }
            (ROOT, Some(WRITE_BACK)) if is_ours(request) => {
                self.fs.mover.write_back_all().map(|()| Vec::new()).map_err(Into::into)
            }
            (ROOT, Some(BACKING)) if is_ours(request) => self.fs.backing_path(),
            (ROOT, Some(IN_USE)) if is_ours(request) => {
                Ok(if self.fs.has_open_files() { b"1" } else { b"0" }.to_vec())
            }
            (ROOT, Some(ANNOUNCE)) => match self.fs.drops().accept(request.pid()) {
                true => Ok(Vec::new()),
                false => Err(rustix::io::Errno::PERM),
            },
            (ROOT, Some(name)) if name.starts_with(SIFT) && is_ours(request) => {
                self.sift(&name[SIFT.len()..])
            }
            (ROOT, Some(name)) if name.starts_with(FOREGROUND) && is_ours(request) => {
                self.fs.decider.set_foreground(&name[FOREGROUND.len()..]);
                Ok(Vec::new())
            }
            (ROOT, Some(name)) if name.starts_with(DECISIONS) => {
                let skip = name[DECISIONS.len()..].parse();
                skip.map_err(|_| rustix::io::Errno::NODATA)
                    .map(|skip| self.fs.sift_decisions(reader(request).as_ref(), skip))
            }
            (ROOT, Some(SETTLE | WRITE_BACK | BACKING | IN_USE)) => Err(rustix::io::Errno::PERM),
            (_, Some(EXPLAIN)) => self.fs.explain(ino.0).ok_or(rustix::io::Errno::NODATA),
            _ => return None,
        })
    }

    /// The attribute that a process asks for by looking up a name, in a mount without any. A thread
    /// of another PID namespace has no number here by which its next request is known.
    fn asks_for(&self, request: &Request, parent: INodeNo, name: &OsStr) -> Option<String> {
        let here = !self.serving.xattrs && parent.0 == ROOT && request.pid() != 0;
        here.then(|| name.to_str()?.strip_prefix(ASK).map(str::to_owned))?
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

impl Filesystem for Adapter {
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
        // Without these, permissions would leak or mappings get lost, so the mount is refused.
        let needed = InitFlags::FUSE_POSIX_ACL
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP;
        config.add_capabilities(needed).map_err(|lacking| {
            io::Error::other(format!(
                "this kernel's FUSE lacks {lacking:?}; Linux 6.6 or later is needed"
            ))
        })?;
        if self.serving.passthrough
            && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(1).is_ok()
        {
            self.passthrough.allow(&self.fs);
        }
        let _ = config.set_max_write(WRITE_BYTES);
        // The kernel shows times as BACKING keeps them. Without a power of ten it shows ours.
        let granularity = Duration::from_nanos(u64::from(self.fs.backing.granularity_ns()));
        let _ = config.set_time_granularity(granularity);
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        if let Some(attribute) = self.asks_for(request, parent, name) {
            self.asked.lock().insert((request.pid(), request.uid()), attribute);
            return reply.error(Errno::ENOENT);
        }
        self.answer("lookup", || match self.fs.lookup(parent.0, name) {
            Err(rustix::io::Errno::NOENT) => {
                match self.fs.drops().dropped(request.pid(), parent.0, name) {
                    Some(attr) => reply.entry(&Duration::ZERO, &file_attr(&attr), Generation(0)),
                    None => reply.entry(&REMEMBER, &nothing(), Generation(0)),
                }
            }
            found => self.entry(reply, found),
        });
    }

    fn forget(&self, _: &Request, ino: INodeNo, lookups: u64) {
        self.answer("forget", || {
            self.fs.forget(ino.0, lookups);
            if !self.fs.knows(ino.0) {
                self.passthrough.forget(ino.0);
            }
        });
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.answer("getattr", || match self.fs.attr(ino.0) {
            Ok(attr) => reply.attr(&self.passthrough.remember(attr.ino), &file_attr(&attr)),
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
            // A request without changes means that the kernel wants setuid and setgid cleared: a
            // process writes through passthrough or reserves space, or gives the file to no one.
            let asks = mode.or(uid).or(gid).is_some() || atime.or(mtime).is_some();
            let strip = match size {
                Some(_) => request.uid() != 0,
                None => !asks,
            };
            let changes =
                Changes { mode, uid, gid, size, atime: asked(atime), mtime: asked(mtime), strip };
            let permitted = match strip && size.is_none() {
                true => self.fs.permits_strip(request.uid(), ino.0),
                false => Ok(()),
            };
            let set = || self.fs.set_attr(request.pid(), ino.0, &changes);
            match permitted.and_then(|()| self.fs.with_space(set)) {
                Ok(attr) => reply.attr(&self.passthrough.remember(attr.ino), &file_attr(&attr)),
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
            let caller = caller(request, umask);
            let make = || self.fs.mknod(&caller, parent.0, name, mode, rdev);
            self.entry(reply, self.fs.with_space(make));
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
            let make = || self.fs.mkdir(&caller(request, umask), parent.0, name, mode);
            self.entry(reply, self.fs.with_space(make));
        });
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.answer("unlink", || {
            Adapter::empty(reply, self.fs.unlink(request.pid(), parent.0, name))
        });
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        self.answer("rmdir", || Adapter::empty(reply, self.fs.rmdir(parent.0, name)));
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        self.answer("symlink", || {
            let make = || self.fs.symlink(&caller(request, 0), parent.0, name, target.as_os_str());
            self.entry(reply, self.fs.with_space(make));
        });
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        self.answer("rename", || {
            let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
            let (from, to) = ((parent.0, name), (new_parent.0, new_name));
            let rename = || self.fs.rename(request.pid(), from, to, flags);
            Adapter::empty(reply, self.fs.with_space(rename));
        });
    }

    fn link(
        &self,
        request: &Request,
        ino: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        self.answer("link", || {
            let link = || self.fs.link(request.pid(), ino.0, parent.0, name);
            self.entry(reply, self.fs.with_space(link))
        });
    }

    fn open(&self, request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let begun = Instant::now();
        self.answer("open", || {
            let (open, opened) = match self.fs.open_as(request.pid(), ino.0, flags.0) {
                Ok(opened) => opened,
                Err(error) => return reply.error(number(error)),
            };
            if let Err(error) = self.fs.permits(open, flags.0) {
                self.fs.release(request.pid(), open);
                return reply.error(number(error));
            }
            let user = (request.uid(), request.gid());
            let hand_over = |file: &std::fs::File| {
                self.fs.in_space_of(ino.0, user, || reply.open_backing(file))
            };
            match self.passthrough.pass_through(&self.fs, ino.0, open, opened, hand_over) {
                Some(backing) => {
                    let writes = flags.acc_mode() != fuser::OpenAccMode::O_RDONLY;
                    if writes {
                        self.passthrough.writes_past_us(ino.0);
                    }
                    self.fs.set_passed_through(open, writes);
                    reply.opened_passthrough(handle(open), FopenFlags::empty(), &backing);
                }
                None => reply.opened(handle(open), direct()),
            }
        });
        self.fs.count_open(u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX));
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
            let caller = caller(request, umask);
            let create = || self.fs.create(&caller, parent.0, name, mode, flags);
            let (attr, open, opened) = match self.fs.with_space(create) {
                Ok(created) => created,
                Err(error) => return reply.error(number(error)),
            };
            let shown = file_attr(&attr);
            let user = (request.uid(), request.gid());
            let hand_over = |file: &std::fs::File| {
                self.fs.in_space_of(attr.ino, user, || reply.open_backing(file))
            };
            match self.passthrough.pass_through(&self.fs, attr.ino, open, opened, hand_over) {
                Some(backing) => {
                    self.passthrough.writes_past_us(attr.ino);
                    self.fs.set_passed_through(open, true);
                    reply.created_passthrough(
                        &Duration::ZERO,
                        &shown,
                        Generation(0),
                        handle(open),
                        FopenFlags::empty(),
                        &backing,
                    );
                }
                None => reply.created(&REMEMBER, &shown, Generation(0), handle(open), direct()),
            }
        });
    }

    fn read(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
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
                let read = opened(handle).and_then(|open| {
                    self.fs.read(access(request, flags), open, offset, &mut bytes[..size as usize])
                });
                match read {
                    Ok(read) => reply.data(&bytes[..read]),
                    Err(error) => reply.error(number(error)),
                }
            });
        });
    }

    fn write(
        &self,
        request: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        self.answer("write", || {
            let written = opened(handle).and_then(|open| {
                let cached = write_flags.contains(WriteFlags::FUSE_WRITE_CACHE);
                let access = Access { cached, ..access(request, flags) };
                let written = self.fs.with_space(|| self.fs.write(access, open, offset, data))?;
                if write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
                    let strip = Changes { strip: true, ..Changes::default() };
                    self.fs.set_attr(request.pid(), ino.0, &strip)?;
                }
                Ok(written)
            });
            match written {
                Ok(written) => reply.written(written as u32),
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
            let passed_through =
                opened(handle).is_ok_and(|open| self.fs.release(request.pid(), open));
            // Released last: an open of the file in between then gets passthrough too, instead of
            // being refused it because it is not the first.
            if passed_through {
                self.passthrough.give_back(ino.0);
            }
            reply.ok();
        });
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // No writes are buffered here; after this answer the kernel does not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn access(&self, _: &Request, _: INodeNo, _: fuser::AccessFlags, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        self.answer("fsync", || {
            let done =
                opened(handle).and_then(|open| self.fs.fsync(request.pid(), open, data_only));
            Adapter::empty(reply, done);
        });
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.answer("opendir", || {
            reply.opened(self.listings.open(), FopenFlags::empty());
        });
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.answer("readdir", || {
            let done = self.listings.each_entry(&self.fs, ino.0, handle, offset, |entry, next| {
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
            let done = self.listings.each_entry(&self.fs, ino.0, handle, offset, |entry, next| {
                let dot = entry.name == "." || entry.name == "..";
                let attr =
                    if dot { self.fs.attr(entry.ino) } else { self.fs.lookup(ino.0, &entry.name) };
                // The file has been deleted since.
                let Ok(attr) = attr else { return false };
                let full = reply.add(
                    INodeNo(attr.ino),
                    next,
                    &entry.name,
                    &self.passthrough.remember(attr.ino),
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

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.listings.close(handle);
        reply.ok();
    }

    fn fsyncdir(&self, request: &Request, ino: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.answer("fsyncdir", || Adapter::empty(reply, self.fs.fsync_dir(request.pid(), ino.0)));
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
            Adapter::empty(
                reply,
                match name.to_str() {
                    Some(STATUS | SETTLE | WRITE_BACK) => Err(rustix::io::Errno::PERM),
                    _ if !self.serving.xattrs => Err(rustix::io::Errno::OPNOTSUPP),
                    _ => self.fs.set_xattr(&caller(request, 0), ino.0, name, value, flags),
                },
            );
        });
    }

    fn getxattr(
        &self,
        request: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        self.answer("getxattr", || {
            let value = match self.own_attribute(request, ino, name) {
                Some(value) => value,
                // From now on the kernel knows that there are none.
                None if !self.serving.xattrs => return reply.error(Errno::ENOSYS),
                None => self.fs.get_xattr(ino.0, name),
            };
            Adapter::xattr(reply, size, value);
        });
    }

    fn listxattr(&self, request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.answer("listxattr", || {
            if !self.serving.xattrs {
                let asked = self.asked.lock().remove(&(request.pid(), request.uid()));
                let value = asked.and_then(|name| self.own_attribute(request, ino, name.as_ref()));
                // As a list of one name, which is not empty.
                let listed = |value: Vec<u8>| [b"=", &value[..], &[0]].concat();
                let list = value.map_or_else(|| Ok(Vec::new()), |value| value.map(listed));
                return Adapter::xattr(reply, size, list);
            }
            let mut list = self.fs.list_xattr(ino.0);
            if request.uid() != 0
                && let Ok(list) = &mut list
            {
                // As in other file systems, only root sees these names.
                let shown = list
                    .split_inclusive(|byte| *byte == 0)
                    .filter(|name| !name.starts_with(b"trusted."));
                *list = shown.flatten().copied().collect();
            }
            Adapter::xattr(reply, size, list);
        });
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        if !self.serving.xattrs {
            return reply.error(Errno::EOPNOTSUPP);
        }
        self.answer("removexattr", || Adapter::empty(reply, self.fs.remove_xattr(ino.0, name)));
    }

    fn fallocate(
        &self,
        request: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.answer("fallocate", || {
            let done = opened(handle).and_then(|open| {
                let access = access(request, OpenFlags(0));
                let allocate = || self.fs.fallocate(access, open, offset, length, mode as u32);
                self.fs.with_space(allocate)
            });
            Adapter::empty(reply, done);
        });
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        /// The `whence` with which `lseek` searches for a hole.
        const SEEK_HOLE: i32 = 4;
        self.answer("lseek", || {
            let found = opened(handle)
                .and_then(|open| self.fs.seek(open, offset as u64, whence == SEEK_HOLE));
            match found {
                Ok(at) => reply.offset(at as i64),
                Err(error) => reply.error(number(error)),
            }
        });
    }
}

fn access(request: &Request, flags: OpenFlags) -> Access {
    let (uid, gid) = (request.uid(), request.gid());
    Access { tid: request.pid(), flags: flags.0, uid, gid, cached: false }
}

fn handle(open: OpenId) -> FileHandle {
    FileHandle(u64::from(open.0.get()))
}

fn opened(handle: FileHandle) -> Result<OpenId> {
    let number = u32::try_from(handle.0).ok().and_then(NonZeroU32::new);
    number.map(OpenId).ok_or(rustix::io::Errno::BADF)
}

/// Whether the request comes from root or from the user of the mount.
fn is_ours(request: &Request) -> bool {
    [0, rustix::process::geteuid().as_raw()].contains(&request.uid())
}

/// The user that may not know every name; `None`: it may.
fn reader(request: &Request) -> Option<Reader> {
    (!is_ours(request)).then(|| Reader::new(request.uid(), request.gid(), request.pid()))
}

/// Flags by which every access reaches us, and writers of one file do not wait for one another.
fn direct() -> FopenFlags {
    FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
}
