//! The pages of a file in RAM of which BACKING has an older version.

use super::copying::{in_parts, read_all, set_times};
use super::recovery::set_modified;
use super::types::{Names, io};
use flashsift_events::event::Micros;
use flashsift_events::page::PAGE_BYTES;
use flashsift_events::structure::{Extents, extents::pages_touched};
use flashsift_files::delayed::changes::Changes;
use flashsift_files::delayed::record::{InodeId, Pieces};
use parking_lot::RwLock;
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags, Result};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages are compared with those in place if so many have changed at most: that takes 50 ms.
const COMPARED_PAGES: u64 = 16_384;

/// A file of a group in RAM.
#[derive(Debug)]
pub(crate) struct DelayedFile {
    delay_us: Micros,
    pub(super) pages: RwLock<Pages>,
    /// As it was when the pages were last looked at.
    blocks_in_base: AtomicU64,
}

/// The file in BACKING.
#[derive(Clone, Debug)]
pub(super) struct Base {
    pub(super) file: Arc<File>,
    pub(super) ino: u64,
    pub(super) born_ns: u64,
    /// Its content is durable, but for pages that the log has.
    pub(super) durable: bool,
    /// Its names there.
    pub(super) names: Names,
    /// As the mount left it: no other process may change it.
    pub(super) left: Left,
    /// One of the descriptors that [`Delayed`](super::delayed::Delayed) counts.
    #[expect(dead_code, reason = "counted by its clones")]
    pub(super) counted: Arc<()>,
}

impl Base {
    pub(super) fn id(&self) -> InodeId {
        InodeId { ino: self.ino, born_ns: self.born_ns }
    }
}

/// The signs by which a write to a file shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    size: i64,
    modified: (i64, u32),
}

impl Left {
    pub(super) fn new(stat: &rustix::fs::Stat) -> Left {
        Left { size: stat.st_size, modified: (stat.st_mtime, stat.st_mtime_nsec as u32) }
    }
}

#[derive(Debug, Default)]
pub(super) struct Pages {
    pub(super) base: Option<Base>,
    /// Pages that only the base has.
    pub(super) missing: Extents,
    pub(super) changes: Changes,
    /// Pages whose place in the base is not up to date: the log has them.
    pub(super) deferred: Extents,
    /// It was synced since it was last part of an epoch.
    pub(super) synced: bool,
    /// Someone changed the base past the mount: syncs are not delayed any more.
    pub(super) changed_outside: bool,
    /// An epoch that contains it is being written.
    pub(super) in_flight: bool,
    /// Number of changes, of attributes as well.
    pub(super) version: u64,
}

/// A change of a file's content.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Change {
    /// Bytes are written at this offset.
    Write {
        /// The offset.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
    /// The size is set.
    Resize(u64),
    /// A range is reserved, or zeroed.
    Allocate {
        /// The offset.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// The flags.
        flags: FallocateFlags,
    },
}

/// The result of a change: how many bytes of those asked for it covers.
pub(crate) trait Covered {
    /// Number of bytes.
    fn covered(&self, asked: u64) -> u64;
}

impl Covered for usize {
    fn covered(&self, _: u64) -> u64 {
        *self as u64
    }
}

impl Covered for () {
    fn covered(&self, asked: u64) -> u64 {
        asked
    }
}

impl Covered for [u64; 2] {
    fn covered(&self, asked: u64) -> u64 {
        asked
    }
}

pub(super) fn pages_of(size: u64) -> Range<u64> {
    0..size.div_ceil(PAGE_BYTES)
}

impl DelayedFile {
    /// A new file.
    pub(super) fn new(delay_us: Micros, size: u64) -> DelayedFile {
        let mut changes = Changes::default();
        changes.wrote(0, size);
        DelayedFile::of(delay_us, Pages { changes, ..Pages::default() })
    }

    /// A file that BACKING has, with nothing of it in RAM.
    pub(super) fn with_base(delay_us: Micros, base: Base, size: u64) -> DelayedFile {
        DelayedFile::of(delay_us, Pages::with_base(base, size))
    }

    fn of(delay_us: Micros, pages: Pages) -> DelayedFile {
        let blocks_in_base = pages.blocks_in_base().into();
        DelayedFile { delay_us, pages: RwLock::new(pages), blocks_in_base }
    }

    /// Blocks of 512 bytes of the pages that only the base has, for `stat`, which does not wait for
    /// flash: while a change of the pages goes on, as they were before it.
    pub(super) fn blocks_in_base(&self) -> u64 {
        if let Some(pages) = self.pages.try_read() {
            self.blocks_in_base.store(pages.blocks_in_base(), Ordering::Relaxed);
        }
        self.blocks_in_base.load(Ordering::Relaxed)
    }

    /// Records a sync. Returns for how long it may be delayed; `None`: there is nothing to sync.
    pub(super) fn synced(&self) -> Option<Micros> {
        let mut pages = self.pages.write();
        let news = pages.base.is_none() || pages.changes.any();
        pages.synced |= news;
        news.then_some(self.delay_us)
    }

    /// Copies what only the base has. Returns the number of bytes.
    pub(super) fn copy_missing(&self, target: &File) -> Result<u64> {
        let pages = self.pages.read();
        let size = pages.changes.size();
        let mut copied = 0;
        for run in pages.missing.iter() {
            in_parts(run.start * PAGE_BYTES..(run.end * PAGE_BYTES).min(size), |at, bytes| {
                pages.read_base(at, bytes)?;
                copied += bytes.len() as u64;
                io(target.write_all_at(bytes, at))
            })?;
        }
        Ok(copied)
    }

    /// Whether its base was changed past the mount.
    pub(super) fn was_changed_outside(&self) -> bool {
        self.pages.read().changed_outside
    }

    /// An epoch with its changes failed, and may have written some of them to the base: the next
    /// one has to contain it.
    pub(super) fn taken_back(&self) {
        self.pages.write().synced = true;
        self.changed_base();
    }

    /// The mount itself has changed the base.
    pub(super) fn changed_base(&self) {
        let mut pages = self.pages.write();
        if let Some(base) = &mut pages.base
            && let Ok(stat) = rustix::fs::fstat(&base.file)
        {
            base.left = Left::new(&stat);
        }
    }

    /// Looks whether someone changed the base past the mount. Returns its number there if this is
    /// news.
    pub(super) fn notices_changes_outside(&self) -> Option<u64> {
        let mut pages = self.pages.write();
        let base = pages.base.as_ref()?;
        let stat = rustix::fs::fstat(&base.file).ok()?;
        let ino = base.ino;
        if base.left == Left::new(&stat) || pages.changed_outside {
            return None;
        }
        pages.changed_outside = true;
        Some(ino)
    }

    /// Records that attributes or names have changed.
    pub(crate) fn touched(&self) {
        let mut pages = self.pages.write();
        pages.changes.touched();
        pages.version += 1;
    }

    /// Records that extended attributes have changed, which are no part of epochs.
    pub(crate) fn extended(&self) {
        self.pages.write().version += 1;
    }

    /// The file in BACKING.
    pub(crate) fn base_file(&self) -> Option<Arc<File>> {
        self.pages.read().base.as_ref().map(|base| base.file.clone())
    }

    /// Bytes that a crash would lose, if the file has changed.
    pub(super) fn unsaved(&self) -> Option<u64> {
        let pages = self.pages.read();
        (pages.base.is_none() || pages.changes.any()).then(|| pages.changes.bytes())
    }

    /// Reads as many bytes as there are. `ram` is the file in RAM.
    pub(crate) fn read(&self, ram: &File, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        self.pages.read().read(ram, offset, bytes)
    }

    /// Performs a change of the file in RAM, which it may need parts of the base for.
    pub(crate) fn change<T: Covered>(
        &self,
        ram: &File,
        change: Change,
        act: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.pages.write().change(ram, change, act)
    }
}

impl Pages {
    /// A file that the base has, with nothing of it in RAM.
    pub(super) fn with_base(base: Base, size: u64) -> Pages {
        let mut missing = Extents::default();
        missing.insert(pages_of(size));
        let changes = Changes::of_size(size);
        Pages { base: Some(base), missing, changes, ..Pages::default() }
    }

    /// At most as many as the base has: its holes are among the pages that only it has.
    fn blocks_in_base(&self) -> u64 {
        let of_pages = self.missing.covered() * (PAGE_BYTES / 512);
        let stat = self.base.as_ref().and_then(|base| rustix::fs::fstat(&base.file).ok());
        stat.map_or(0, |stat| of_pages.min(stat.st_blocks as u64))
    }

    /// Reads as many bytes as there are. `ram` is the file in RAM.
    pub(super) fn read(&self, ram: &File, offset: u64, bytes: &mut [u8]) -> Result<usize> {
        let size = io(ram.metadata())?.len();
        let end = size.min(offset.saturating_add(bytes.len() as u64));
        if offset >= end {
            return Ok(0);
        }
        let bytes = &mut bytes[..(end - offset) as usize];
        if self.missing.is_empty() {
            return read_all(ram, offset, bytes);
        }
        let touched = offset / PAGE_BYTES..end.div_ceil(PAGE_BYTES);
        let within = |run: Range<u64>| {
            let from = (run.start * PAGE_BYTES).max(offset);
            let to = (run.end * PAGE_BYTES).min(end);
            ((from - offset) as usize..(to - offset) as usize, from)
        };
        for run in self.missing.gaps(touched.clone()) {
            let (part, from) = within(run);
            read_all(ram, from, &mut bytes[part])?;
        }
        for run in self.missing.parts(touched) {
            let (part, from) = within(run);
            self.read_base(from, &mut bytes[part])?;
        }
        Ok(bytes.len())
    }

    /// Performs a change of the file in RAM, which it may need parts of the base for.
    pub(super) fn change<T: Covered>(
        &mut self,
        ram: &File,
        change: Change,
        act: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let before = io(ram.metadata())?.len();
        match change {
            Change::Write { offset, len } | Change::Allocate { offset, len, .. } => {
                if let Change::Allocate { flags, .. } = change
                    && !flags.contains(FallocateFlags::PUNCH_HOLE)
                {
                    self.reserve_in_base(offset, len)?;
                }
                let torn: Vec<u64> = self.changes.torn_by(offset, len).collect();
                torn.into_iter().try_for_each(|page| self.fill(ram, page, before))?;
            }
            Change::Resize(size) if size < before && !size.is_multiple_of(PAGE_BYTES) => {
                self.fill(ram, size / PAGE_BYTES, before)?;
            }
            Change::Resize(_) => {}
        }
        let done = act();
        self.version += 1;
        let after = io(ram.metadata())?.len();
        match change {
            Change::Write { offset, len } => {
                if let Ok(done) = &done {
                    self.wrote(ram, offset, done.covered(len).min(len), len, after)?;
                }
            }
            Change::Resize(_) => self.resized(after),
            Change::Allocate { offset, len, flags } => {
                let punches = flags.contains(FallocateFlags::PUNCH_HOLE);
                if after != before {
                    self.resized(after);
                }
                if done.is_ok() && punches {
                    self.changes.punched(offset, len);
                    let len = len.min(after.saturating_sub(offset));
                    self.missing.remove(pages_touched(offset, len));
                }
                self.changes.touched();
            }
        }
        done
    }

    /// Reserves space in the base, whose content and time stay as they are.
    fn reserve_in_base(&mut self, offset: u64, len: u64) -> Result<()> {
        let Some(base) = &mut self.base else { return Ok(()) };
        let was = rustix::fs::fstat(&base.file)?;
        match rustix::fs::fallocate(&base.file, FallocateFlags::KEEP_SIZE, offset, len) {
            Ok(()) => {}
            Err(Errno::OPNOTSUPP) => return Ok(()),
            Err(error) => return Err(error),
        }
        let is_ours = base.left == Left::new(&was);
        set_modified(&base.file, (was.st_mtime, was.st_mtime_nsec as u32))?;
        if is_ours {
            base.left = Left::new(&rustix::fs::fstat(&base.file)?);
        }
        Ok(())
    }

    /// Reads from the base; behind its end are zeros.
    fn read_base(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let base = self.base.as_ref();
        let read = base.map_or(Ok(0), |base| read_all(&base.file, offset, bytes))?;
        bytes[read..].fill(0);
        Ok(())
    }

    /// The pieces in which changed pages differ from those of the base, as far as it is durable and
    /// in the page cache: applications wait meanwhile.
    pub(super) fn differences(&self, base: &Base, ram: &File) -> Result<BTreeMap<u64, Pieces>> {
        let mut differences = BTreeMap::new();
        if !base.durable || self.changes.pages().covered() > COMPARED_PAGES {
            return Ok(differences);
        }
        let size =
            io(base.file.metadata())?.len().min(self.changes.below()).min(self.changes.size());
        let [mut new, mut old] = [[0; PAGE_BYTES as usize]; 2];
        for page in self.changes.pages().parts(0..size / PAGE_BYTES).flatten() {
            let at = page * PAGE_BYTES;
            let into = &mut [IoSliceMut::new(&mut old)];
            let read = rustix::io::preadv2(&base.file, into, at, ReadWriteFlags::NOWAIT);
            if read == Ok(old.len()) {
                io(ram.read_exact_at(&mut new, at))?;
                differences.insert(page, Pieces::that_differ(&new, &old));
            }
        }
        Ok(differences)
    }

    /// Brings a page into RAM. The file has this size.
    fn fill(&mut self, ram: &File, page: u64, size: u64) -> Result<()> {
        if self.missing.missing(page..page + 1) > 0 {
            return Ok(());
        }
        let at = page * PAGE_BYTES;
        let mut bytes = vec![0; size.saturating_sub(at).min(PAGE_BYTES) as usize];
        self.read_base(at, &mut bytes)?;
        io(ram.write_all_at(&bytes, at))?;
        self.missing.remove(page..page + 1);
        Ok(())
    }

    /// Bytes were written, of those that were asked for; torn pages of these are in RAM.
    fn wrote(&mut self, ram: &File, offset: u64, len: u64, asked: u64, size: u64) -> Result<()> {
        let end = offset + len;
        let last = end / PAGE_BYTES;
        // The write ended early within a page that it was to replace as a whole.
        if len > 0
            && len < asked
            && !end.is_multiple_of(PAGE_BYTES)
            && self.missing.missing(last..last + 1) == 0
        {
            let rest = size.min((last + 1) * PAGE_BYTES).saturating_sub(end);
            let mut bytes = vec![0; rest as usize];
            self.read_base(end, &mut bytes)?;
            io(ram.write_all_at(&bytes, end))?;
        }
        self.changes.wrote(offset, len);
        if len > 0 {
            self.missing.remove(pages_touched(offset, len));
        }
        Ok(())
    }

    fn resized(&mut self, size: u64) {
        if let Some(page) = self.changes.resized(size) {
            self.changes.wrote(page * PAGE_BYTES, size - page * PAGE_BYTES);
        }
        self.missing.remove(size.div_ceil(PAGE_BYTES)..u64::MAX);
    }

    /// The base has all of the file: its pages need not stay in RAM.
    pub(super) fn leave_ram(&mut self, ram: &File) -> Result<()> {
        let size = self.changes.size();
        let mut missing = Extents::default();
        missing.insert(pages_of(size));
        for run in self.changes.pages().iter().chain(self.deferred.iter()) {
            missing.remove(run);
        }
        // Flash still has the old pages behind a cut.
        if let Some(cut) = self.changes.cut() {
            missing.remove(cut / PAGE_BYTES..u64::MAX);
        }
        // Behind the end on flash there is nothing to read.
        missing.remove(self.changes.below().div_ceil(PAGE_BYTES)..u64::MAX);
        // Set first: if RAM keeps some of them, they are read from the base nevertheless.
        self.missing = missing;
        // It is no write.
        let was = rustix::fs::fstat(ram)?;
        for run in self.missing.iter() {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let (at, end) = (run.start * PAGE_BYTES, run.end * PAGE_BYTES);
            rustix::fs::fallocate(ram, flags, at, end - at)?;
        }
        set_times(ram, &was)
    }
}
