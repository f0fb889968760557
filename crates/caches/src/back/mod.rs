//! The end of a system: everything below the cache.
//!
//! A [`Back`] is plain storage, or storage behind a write buffer of its own. It states in
//! associated constants which facts it needs; a cache and a replay loop compiled for a back that
//! needs none of them hold and compute none.

use crate::{
    lines::{Lines, Traffic},
    trace::{Operation, Owner},
};
use flashsift_events::{address::Address, page::Page};
use std::ops::Range;

mod attribution;

pub use attribution::{Attribution, WriteCause};

/// The reason for a write-back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// It was dirty and had to leave the cache.
    Evict,
    /// The period of the periodic write-back has passed.
    Periodic,
    /// The file has been dirty for longer than the mode allows.
    Expire,
    /// More pages were dirty than the mode allows, and this file or range of addresses was first in
    /// the order of the mode.
    Background,
    /// The device was idle.
    Idle,
    /// An application synced the file and waits.
    Sync,
    /// As [`Self::Sync`], but the file's times need not be durable (`fdatasync`).
    DataSync,
    /// An application synced all files and waits.
    SyncAll,
    /// The file replaces another one, and its file system writes it at once (`--metadata`).
    Replaced,
    /// It was dirty at the end of the trace.
    Drain,
    /// An application writes it past the cache and waits (`O_DIRECT`), or it was dirty and an
    /// application is about to read or write it past the cache.
    Direct,
}

impl Why {
    /// Whether an application waits for the write-back of what it synced.
    #[inline(always)]
    pub fn is_sync(self) -> bool {
        matches!(self, Self::Sync | Self::DataSync | Self::SyncAll)
    }
}

/// The medium that a page was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The device.
    Storage,
    /// Non-volatile memory that the back holds.
    Nvm,
}

/// A dirty page that is written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// The page.
    pub page: Page,
    /// The reason.
    pub why: Why,
    /// Its write count: page writes since it entered the cache, and those that it inherited then
    /// ([`Back::inherited_writes`]). A write-back does not reset it. 0 unless
    /// [`Back::WANTS_COUNTS`].
    pub writes: u32,
    /// The process that wrote the page last, and the file. Unknown unless [`Back::WANTS_OWNERS`].
    pub owner: Owner,
}

/// Requests that reached the device, counted in pages unless noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounts {
    /// Pages read.
    pub reads: u64,
    /// Pages written, including those of the drain.
    pub writes: u64,
    /// Requests that wrote them.
    pub write_requests: u64,
    /// Flushes: syncs for which a process waited, whether or not a page was dirty.
    pub flushes: u64,
    /// Pages written because a process synced and waited for it.
    pub sync_writes: u64,
    /// Pages written by the drain.
    pub drained: u64,
    /// Writes that do not follow the write before them: `lba != previous + 1`. The first write
    /// counts.
    pub nonsequential_writes: u64,
    /// Pages that were dirty when they were truncated or deleted: writes that never happened.
    pub dropped_dirty: u64,
    /// Pages of the file system's journal, with `--metadata`. Not part of `writes`.
    pub journal_writes: u64,
    /// Pages of metadata in place, with `--metadata`. Not part of `writes`.
    pub metadata_writes: u64,
    /// Flushes that the device gets, with `--metadata`: a commit has two.
    pub device_flushes: u64,
}

/// Everything below a cache: it serves misses and takes dirty pages.
pub trait Back {
    /// Whether [`Back::now`] is called before each step.
    const WANTS_TIME: bool = false;
    /// Whether the cache keeps a write count for each page that it holds.
    const WANTS_COUNTS: bool = false;
    /// Whether reads and write-backs carry their process and file. The trace has the table of
    /// owners.
    const WANTS_OWNERS: bool = false;
    /// Whether [`Back::accessed`] is called after each access.
    const WANTS_ACCESSES: bool = false;
    /// Whether [`Back::dirtied`] is called when a cached page becomes dirty.
    const WANTS_DIRTIED: bool = false;

    /// Sets the present time, in microseconds from the trace's beginning.
    fn now(&mut self, _at_us: u64) {}
    /// Sets the process of the present step. Called only if [`Back::WANTS_TIME`] and the trace has
    /// the table of owners.
    fn running(&mut self, _process: u32) {}
    /// Fetches a page for `owner`. Returns the medium that it came from.
    fn read(&mut self, page: Page, owner: Owner) -> Source;
    /// Fetches a page for `owner` that no process waits for.
    #[inline(always)]
    fn read_ahead(&mut self, page: Page, owner: Owner) -> Source {
        self.read(page, owner)
    }
    /// Takes a dirty page that is written back.
    fn write(&mut self, written: Written);
    /// Takes a durable version of a page of which the cache holds a newer, dirty one. The page
    /// stays dirty.
    #[inline(always)]
    fn write_older(&mut self, written: Written) {
        self.write(written);
    }
    /// The cache made the dirty pages among these durable without a write to storage.
    #[inline(always)]
    fn durable(&mut self, _: Range<u32>) {}
    /// The reads and writes since the last call belong together: they come from one access of an
    /// application or from one write-back. A back that merges pages into longer requests sends them
    /// now.
    #[inline(always)]
    fn submit(&mut self) {}
    /// Whether [`Back::cluster`] is asked for each dirty page that is evicted.
    #[inline(always)]
    fn clusters(&self) -> bool {
        false
    }
    /// Adds the dirty cached pages that are written together with this one, which is evicted. They
    /// are in the order in which they are written, the page itself among them.
    fn cluster(&mut self, page: Page, into: &mut Vec<Page>) {
        into.push(page);
    }
    /// Adds the dirty cached pages of the range that is written ahead next, in the order in which
    /// they are written. Called only if the modes of write-back write ahead and a page is dirty.
    fn next_cluster(&mut self, _: &mut Vec<Page>) {}
    /// An application waits until everything written before is durable: the end of an fsync.
    #[inline(always)]
    fn flush(&mut self) {}
    /// A cached page was truncated or deleted. `dirty`: its content had not been written.
    fn dropped(&mut self, dirty: bool);
    /// These pages no longer exist, cached or not.
    fn free(&mut self, pages: Range<u32>);
    /// The cache served an access to this page, which is its most recently used page now.
    fn accessed(&mut self, _: Page) {}
    /// A cached page became dirty. A layout that allocates early gives it a place.
    fn dirtied(&mut self, _: Page) {}
    /// The write count with which a page enters the cache: that of the back's own copy, or 0.
    fn inherited_writes(&self, _: Page) -> u32 {
        0
    }
    /// The address of a page that is in the cache. Called only for policies that want addresses.
    fn address(&mut self, page: Page) -> Address;
    /// Pages whose address may have changed since the last call; `None` once all were returned.
    /// Called only for policies that want addresses.
    fn poll_moved(&mut self) -> Option<Range<u32>> {
        None
    }
    /// Takes an operation that concerns metadata.
    fn operation(&mut self, _: &Operation) {}
    /// Whether one of these pages has no place on the device.
    fn lacks_place(&self, _: Range<u32>) -> bool {
        false
    }
    /// The file system is unmounted: its own blocks are written.
    fn unmount(&mut self) {}
    /// Returns the pages written by process and reason, if they were to be counted.
    fn take_attribution(&mut self) -> Option<Attribution> {
        None
    }
    /// The reads sent to the device until now, where a sink takes them.
    fn read_requests(&self) -> u64 {
        0
    }
    /// The requests to the device until now.
    fn counts(&self) -> DeviceCounts;
    /// The lines of memory below the cache accessed until now.
    fn lines(&self) -> Lines {
        Lines::NONE
    }
    /// The accesses to memory below the cache until now. `is_dirty`: whether the cache holds a
    /// newer version of a page.
    fn traffic(&self, _is_dirty: &dyn Fn(Page) -> bool) -> Traffic {
        Traffic::default()
    }
    /// Checks what the back knows of the cache, which reports how many pages are dirty and whether
    /// a given one is.
    ///
    /// # Panics
    ///
    /// Panics if they disagree.
    fn check(&self, _dirty_pages: u64, _is_dirty: impl Fn(Page) -> bool) {}
}
