//! Changes of a file on flash that wait in RAM: appended and overwritten pages that no application
//! synced.
//!
//! The file lives in BACKING all the time, with its names, its owner and its mode. RAM holds the
//! pages that were written since, and the size; everything else is read from BACKING. When the
//! pages are written there, they go to their places in the page cache, as the kernel would have
//! written them: a crash during that leaves what a crash leaves of unsynced writes without the
//! mount. So neither a log nor a copy is needed.
//!
//! Any other change (a truncation, `fallocate`, `O_DIRECT`, `O_SYNC`; of the mode, the owner, the
//! times and the attributes) is performed in BACKING after the pages that wait.
//!
//! Locks are taken in this order: the file's order of events, `writing`, the pages, the state.
//! Under the state no page is read or written, so that attributes need not wait for slow flash.

use super::copying::in_parts;
use super::delayed_file::{Base, Change, Covered, Left, Pages};
use super::store::Scratch;
use super::types::{Attr, Ino, Names, Time, io};
use flashsift_events::event::Micros;
use flashsift_events::page::PAGE_BYTES;
use flashsift_files::delayed::changes::Changes;
use parking_lot::{Mutex, RwLock};
use rustix::fs::{FileType, OFlags, Stat, Timespec, Timestamps};
use rustix::io::{Errno, Result};
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The changes of one file.
#[derive(Debug)]
pub(crate) struct Waiting {
    pages: RwLock<Pages>,
    ram: Scratch,
    /// The file in BACKING.
    base: Arc<File>,
    /// Held while pages are written to BACKING, and while BACKING's file is changed otherwise.
    writing: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    size: u64,
    /// Bytes of the pages that changed since they were last taken to be written; `None`: nothing
    /// has changed.
    changed: Option<u64>,
    /// Bytes of the pages that are being written.
    in_flight: Option<u64>,
    /// Number of changed pages behind the end of BACKING's file.
    new_pages: u64,
    /// When the first change was that waits.
    since_us: Option<Micros>,
    /// The last attempt to write the pages failed.
    failed: bool,
    /// The time of the last write that came here, which applications see.
    modified: Option<Time>,
    ctime: Ctime,
}

/// The `ctime` that applications see is that of their last change, not that of the write-out.
#[derive(Clone, Copy, Debug, Default)]
struct Ctime {
    /// BACKING's after the pages were written there, and the one to be shown instead of it.
    replaced: Option<(Time, Time)>,
    /// The one to be shown while pages are being written.
    meanwhile: Option<Time>,
}

impl Ctime {
    fn shown(&self, below: Time) -> Time {
        match (self.meanwhile, self.replaced) {
            (Some(shown), _) => shown,
            (None, Some((settled, shown))) if settled == below => shown,
            _ => below,
        }
    }
}

impl State {
    /// The pages have changed.
    fn follow(&mut self, pages: &Pages) {
        let changes = &pages.changes;
        self.size = changes.size();
        self.changed = changes.any().then(|| changes.bytes());
        let behind = changes.below().div_ceil(PAGE_BYTES)..u64::MAX;
        self.new_pages = changes.pages().parts(behind).map(|run| run.end - run.start).sum();
    }

    fn unsaved(&self) -> Option<u64> {
        match (self.changed, self.in_flight) {
            (None, None) => None,
            (changed, in_flight) => Some(changed.unwrap_or(0) + in_flight.unwrap_or(0)),
        }
    }

    /// The `ctime` to be shown where BACKING has this one.
    fn shown_ctime(&self, below: Time) -> Time {
        let shown = self.ctime.shown(below);
        self.modified.map_or(shown, |modified| shown.max(modified))
    }
}

/// Whether changes of a file that is open in BACKING like this may wait.
pub(super) fn may_wait(file: &File) -> bool {
    let Ok(stat) = rustix::fs::fstat(file) else { return false };
    let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
    // A write by another user has to clear these in BACKING.
    let has_rights = stat.st_mode & 0o6000 != 0
        || rustix::fs::fgetxattr(file, "security.capability", &mut [0_u8; 0][..]).is_ok();
    let may = rustix::fs::fcntl_getfl(file);
    let is_written =
        may.is_ok_and(|may| may.contains(OFlags::RDWR) && !may.contains(OFlags::APPEND));
    // `chattr +S`: each write is a sync.
    let synchronous = rustix::fs::ioctl_getflags(file)
        .is_ok_and(|flags| flags.contains(rustix::fs::IFlags::SYNC));
    is_file && !has_rights && is_written && !synchronous && is_ours_alone(file)
}

/// Whether no other process has the file open or mapped, which only a lease tells: a mapping that a
/// process made while the kernel wrote to the file without us outlives its last descriptor, and its
/// stores would meet pages that wait.
#[allow(unsafe_code, reason = "rustix has no leases")]
fn is_ours_alone(file: &File) -> bool {
    /// From Linux's `asm-generic/fcntl.h`; libc lacks it.
    const F_SETSIG: libc::c_int = 10;
    // SAFETY: fcntl with a descriptor that is open, and numbers.
    let fcntl = |what: libc::c_int, kind: libc::c_int| unsafe {
        libc::fcntl(file.as_raw_fd(), what, kind) == 0
    };
    // A process that opens the file during the lease makes the kernel send a signal. SIGIO would
    // end this process; SIGURG is ignored by default.
    fcntl(F_SETSIG, libc::SIGURG)
        && fcntl(libc::F_SETLEASE, libc::F_WRLCK)
        && fcntl(libc::F_SETLEASE, libc::F_UNLCK)
}

fn base_of(file: &Arc<File>, stat: &Stat) -> Base {
    Base {
        file: file.clone(),
        ino: stat.st_ino,
        born_ns: 0,
        durable: false,
        names: Names::new(),
        left: Left::new(stat),
        counted: Arc::default(),
    }
}

fn ctime(stat: &Stat) -> Time {
    Time { s: stat.st_ctime, ns: stat.st_ctime_nsec as u32 }
}

impl Waiting {
    /// Nothing waits yet. The file's order is held: its size does not change.
    pub(super) fn begin(base: Arc<File>, ram: Scratch) -> Result<Waiting> {
        let stat = rustix::fs::fstat(&base)?;
        let size = stat.st_size as u64;
        io(ram.file().set_len(size))?;
        let pages = RwLock::new(Pages::with_base(base_of(&base, &stat), size));
        let state = Mutex::new(State { size, ..State::default() });
        Ok(Waiting { pages, ram, base, writing: Mutex::default(), state })
    }

    /// Bytes that a crash would lose; `None`: nothing waits.
    pub(crate) fn unsaved(&self) -> Option<u64> {
        self.state.lock().unsaved()
    }

    /// When the first change was that waits; `None`: nothing waits, or it could not be written.
    pub(crate) fn since_us(&self) -> Option<Micros> {
        let state = self.state.lock();
        state.since_us.filter(|_| !state.failed)
    }

    pub(crate) fn size(&self) -> u64 {
        self.state.lock().size
    }

    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        self.pages.read().read(self.ram.file(), offset, bytes)
    }

    /// Performs a change: in RAM if it `waits`, as far as it can, and otherwise in BACKING, after
    /// what waits. The file's order is held exclusively. `None`: RAM has no space.
    pub(super) fn change<T: Covered>(
        &self,
        change: Change,
        waits: bool,
        now_us: Micros,
        act: impl Fn(&File) -> Result<T>,
    ) -> Option<Result<T>> {
        let waits = waits
            && match change {
                Change::Write { .. } => true,
                Change::Resize(size) => self.size() <= size,
                Change::Allocate { .. } => false,
            };
        if waits {
            let ram = self.ram.file();
            let mut pages = self.pages.write();
            let mut modified = None;
            let done = pages.change(ram, change, || {
                let done = act(ram)?;
                // The kernel's time, which BACKING's file would have got: no clock of ours is as
                // coarse.
                let stat = rustix::fs::fstat(ram)?;
                modified = Some(Time { s: stat.st_mtime, ns: stat.st_mtime_nsec as u32 });
                Ok(done)
            });
            let mut state = self.state.lock();
            state.follow(&pages);
            if modified.is_some() {
                state.since_us.get_or_insert(now_us);
                state.modified = modified;
            }
            return if done.as_ref().err() == Some(&Errno::NOSPC) { None } else { Some(done) };
        }
        let _writing = self.writing.lock();
        Some(self.write_pages().and_then(|_| {
            let done = act(&self.base);
            self.begin_anew()?;
            done
        }))
    }

    /// BACKING's file has changed otherwise; nothing waits.
    fn begin_anew(&self) -> Result<()> {
        let stat = rustix::fs::fstat(&self.base)?;
        let size = stat.st_size as u64;
        let mut pages = self.pages.write();
        io(self.ram.file().set_len(0))?;
        io(self.ram.file().set_len(size))?;
        *pages = Pages::with_base(base_of(&self.base, &stat), size);
        *self.state.lock() = State { size, ..State::default() };
        Ok(())
    }

    /// Writes what waits to its place in BACKING's page cache. Readers and writers do not wait
    /// meanwhile. Returns the number of bytes.
    ///
    /// # Errors
    ///
    /// Those of BACKING. Everything waits then as before.
    pub(crate) fn write(&self) -> Result<u64> {
        let _writing = self.writing.lock();
        self.write_pages()
    }

    fn write_pages(&self) -> Result<u64> {
        let below = ctime(&rustix::fs::fstat(&self.base)?);
        let (taken, since_us, modified) = {
            let mut pages = self.pages.write();
            if !pages.changes.any() {
                return Ok(0);
            }
            let mut state = self.state.lock();
            let shown = state.shown_ctime(below);
            state.ctime.meanwhile = Some(shown);
            state.in_flight = state.changed.take();
            (pages.changes.take(), state.since_us.take(), state.modified)
        };
        let done = self.copy(&taken, modified);
        let mut pages = self.pages.write();
        match done {
            // If this fails, they stay.
            Ok(_) => pages.leave_ram(self.ram.file()).unwrap_or_default(),
            Err(_) => pages.changes.put_back(&taken),
        }
        let mut state = self.state.lock();
        let shown = state.ctime.meanwhile.take();
        state.in_flight = None;
        state.failed = done.is_err();
        if done.is_err() {
            state.since_us = since_us.or(state.since_us);
        }
        // A failed attempt may have written a part.
        if let Some(shown) = shown
            && let Ok(stat) = rustix::fs::fstat(&self.base)
        {
            state.ctime.replaced = Some((ctime(&stat), shown));
        }
        state.follow(&pages);
        done
    }

    /// Pages that are written meanwhile may be copied in either version: they are written again.
    fn copy(&self, taken: &Changes, modified: Option<Time>) -> Result<u64> {
        let mut copied = 0;
        let below = io(self.base.metadata())?.len();
        for run in taken.pages().iter() {
            let mut start = run.start * PAGE_BYTES;
            // An append leaves what the page had before it, and may not dirty its blocks.
            if (start + 1..start + PAGE_BYTES).contains(&below) && self.are_equal(start..below)? {
                start = below;
            }
            let range = start..(run.end * PAGE_BYTES).min(taken.size());
            in_parts(range, |at, bytes| {
                io(self.ram.file().read_exact_at(bytes, at))?;
                copied += bytes.len() as u64;
                io(self.base.write_all_at(bytes, at))
            })?;
        }
        if below < taken.size() && io(self.base.metadata())?.len() < taken.size() {
            rustix::fs::ftruncate(&self.base, taken.size())?;
        }
        if let Some(time) = modified {
            let last_access = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
            let last_modification = Timespec { tv_sec: time.s, tv_nsec: time.ns.into() };
            // A lease is granted to those alone that may set it.
            rustix::fs::futimens(&self.base, &Timestamps { last_access, last_modification })?;
        }
        Ok(copied)
    }

    /// Whether BACKING has the same bytes here as RAM, of one page.
    fn are_equal(&self, range: Range<u64>) -> Result<bool> {
        let [mut new, mut old] = [[0; PAGE_BYTES as usize]; 2];
        let len = (range.end - range.start) as usize;
        io(self.ram.file().read_exact_at(&mut new[..len], range.start))?;
        io(self.base.read_exact_at(&mut old[..len], range.start))?;
        Ok(new == old)
    }

    /// The `ctime` that applications see, and the one that BACKING has instead of it.
    pub(super) fn shown_ctime(&self) -> Option<(Time, Time)> {
        let state = self.state.lock();
        let (settled, _) = state.ctime.replaced?;
        Some((state.shown_ctime(settled), settled))
    }

    /// The attributes that applications see. BACKING is asked under the state, so that they are
    /// those before a write-out or those after it.
    pub(super) fn attr(&self, ino: Ino) -> Result<Attr> {
        let state = self.state.lock();
        let mut attr = Attr::new(ino, &rustix::fs::fstat(&self.base)?);
        attr.size = state.size;
        attr.blocks += state.new_pages * (PAGE_BYTES / 512);
        if let Some(modified) = state.modified.filter(|_| state.unsaved().is_some()) {
            attr.mtime = modified;
        }
        attr.ctime = state.shown_ctime(attr.ctime);
        Ok(attr)
    }
}
