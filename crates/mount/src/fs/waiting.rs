//! Changes of a file on flash that wait in RAM: appended and overwritten pages that no application
//! synced.
//!
//! The file lives in BACKING all the time, with its names, its owner and its mode. RAM holds the
//! pages that were written since, and the size; everything else is read from BACKING. When the
//! pages are written there, they go to their places in the page cache, as the kernel would have
//! written them: a crash during that leaves what a crash leaves of unsynced writes without the
//! mount. So neither a log nor a copy is needed.
//!
//! Any other change of the content (a truncation, `fallocate`, `O_DIRECT`, `O_SYNC`) is performed
//! in BACKING after the pages that wait.
//!
//! Locks are taken in this order: the file's order of events, `writing`, the pages, the state.

use super::copying::in_parts;
use super::delayed_file::{Base, Change, Covered, DelayedFile, Left};
use super::store::Scratch;
use super::types::{Attr, Names, Time, io};
use flashsift_core::delayed::changes::Changes;
use flashsift_core::event::Micros;
use flashsift_core::page::PAGE_BYTES;
use parking_lot::Mutex;
use rustix::fs::{FileType, OFlags, Stat, Timespec, Timestamps};
use rustix::io::{Errno, Result};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// The changes of one file.
#[derive(Debug)]
pub(crate) struct Waiting {
    pages: DelayedFile,
    ram: Scratch,
    /// The file in BACKING.
    base: Arc<File>,
    /// Held while pages are written to BACKING, and while BACKING's file is changed otherwise.
    writing: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When the first change was that waits.
    since_us: Option<Micros>,
    /// The time of the last write that came here, which applications see.
    modified: Option<Time>,
    /// BACKING's `ctime` after the pages were written there: applications see `modified` for it.
    settled_ctime: Option<Time>,
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
    // SAFETY: fcntl with a descriptor that is open, and a number.
    let lease =
        |kind: libc::c_int| unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLEASE, kind) == 0 };
    lease(libc::F_WRLCK) && lease(libc::F_UNLCK)
}

fn now() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    Time { s: now.tv_sec, ns: now.tv_nsec as u32 }
}

fn base_of(file: &Arc<File>, stat: &Stat) -> Base {
    Base {
        file: file.clone(),
        ino: stat.st_ino,
        born_ns: 0,
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
        let pages = DelayedFile::with_base(0, base_of(&base, &stat), size);
        Ok(Waiting { pages, ram, base, writing: Mutex::default(), state: Mutex::default() })
    }

    /// Bytes that a crash would lose; `None`: nothing waits.
    pub(crate) fn unsaved(&self) -> Option<u64> {
        self.pages.unsaved()
    }

    /// When the first change was that waits.
    pub(crate) fn since_us(&self) -> Option<Micros> {
        self.state.lock().since_us
    }

    pub(crate) fn size(&self) -> Result<u64> {
        Ok(io(self.ram.file().metadata())?.len())
    }

    pub(crate) fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        self.pages.read(self.ram.file(), offset, bytes)
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
                Change::Resize(size) => self.size().is_ok_and(|is| is <= size),
                Change::Allocate { .. } => false,
            };
        if waits {
            let ram = self.ram.file();
            let done = self.pages.change(ram, change, || act(ram));
            if let Err(Errno::NOSPC) = done {
                return None;
            }
            if done.is_ok() {
                let mut state = self.state.lock();
                state.since_us.get_or_insert(now_us);
                state.modified = Some(now());
            }
            return Some(done);
        }
        let _writing = self.writing.lock();
        Some(self.write_pages(now_us).and_then(|_| {
            let done = act(&self.base);
            self.begin_anew()?;
            done
        }))
    }

    /// BACKING's file has changed otherwise; nothing waits.
    fn begin_anew(&self) -> Result<()> {
        let stat = rustix::fs::fstat(&self.base)?;
        let size = stat.st_size as u64;
        self.pages.begin_anew(self.ram.file(), base_of(&self.base, &stat), size)?;
        *self.state.lock() = State::default();
        Ok(())
    }

    /// Writes what waits to its place in BACKING's page cache. Readers and writers do not wait
    /// meanwhile. Returns the number of bytes.
    ///
    /// # Errors
    ///
    /// Those of BACKING. Everything waits then as before, from this time on.
    pub(crate) fn write(&self, now_us: Micros) -> Result<u64> {
        let _writing = self.writing.lock();
        self.write_pages(now_us)
    }

    fn write_pages(&self, now_us: Micros) -> Result<u64> {
        let Some(taken) = self.pages.take() else {
            self.state.lock().since_us = None;
            return Ok(0);
        };
        self.state.lock().since_us = None;
        match self.copy(&taken) {
            Ok(bytes) => {
                // If this fails, they stay.
                let _ = self.pages.leave_ram(self.ram.file());
                Ok(bytes)
            }
            Err(error) => {
                self.pages.put_back(&taken);
                self.state.lock().since_us = Some(now_us);
                Err(error)
            }
        }
    }

    /// Pages that are written meanwhile may be copied in either version: they are written again.
    fn copy(&self, taken: &Changes) -> Result<u64> {
        let mut copied = 0;
        for run in taken.pages().iter() {
            let range = run.start * PAGE_BYTES..(run.end * PAGE_BYTES).min(taken.size());
            in_parts(range, |at, bytes| {
                io(self.ram.file().read_exact_at(bytes, at))?;
                copied += bytes.len() as u64;
                io(self.base.write_all_at(bytes, at))
            })?;
        }
        if io(self.base.metadata())?.len() < taken.size() {
            rustix::fs::ftruncate(&self.base, taken.size())?;
        }
        if let Some(time) = self.state.lock().modified {
            let last_access = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
            let last_modification = Timespec { tv_sec: time.s, tv_nsec: time.ns.into() };
            // Refused where the file belongs to another user, and this process may only write it.
            let _ =
                rustix::fs::futimens(&self.base, &Timestamps { last_access, last_modification });
        }
        self.state.lock().settled_ctime = Some(ctime(&rustix::fs::fstat(&self.base)?));
        Ok(copied)
    }

    /// An application has set the times of the file in BACKING, where everything was written.
    pub(crate) fn times_were_set(&self) {
        if self.pages.unsaved().is_none() {
            let mut state = self.state.lock();
            (state.modified, state.settled_ctime) = (None, None);
        }
    }

    /// The `ctime` that applications see, and the one that BACKING has instead of it.
    pub(super) fn shown_ctime(&self) -> Option<(Time, Time)> {
        let state = self.state.lock();
        state.modified.zip(state.settled_ctime)
    }

    /// Changes the attributes of the file in BACKING to those that applications see.
    pub(super) fn show(&self, attr: &mut Attr) {
        let waits = self.pages.unsaved().is_some();
        if let Ok(size) = self.size() {
            attr.size = size;
        }
        attr.blocks += self.pages.new_pages() * (PAGE_BYTES / 512);
        let state = self.state.lock();
        if let Some(modified) = state.modified {
            let is_ours = state.settled_ctime == Some(attr.ctime);
            if waits || is_ours {
                attr.mtime = modified;
            }
            attr.ctime = if is_ours { modified } else { attr.ctime.max(modified) };
        }
    }
}
