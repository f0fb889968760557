//! The location of a file's bytes, and how it changes while the file is in use.

use super::delayed::DelayedFile;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use rustix::io::{Errno, Result};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// State of one file that readers, writers and write-back share. Locks are taken in this order:
/// `gate`, the table, `place`.
#[derive(Debug, Default)]
pub(crate) struct FileState {
    /// Every change of a file in RAM passes this lock. Write-back takes it exclusively after many
    /// failed attempts, so that the file's writers wait.
    pub(crate) gate: RwLock<()>,
    pub(crate) place: RwLock<Location>,
    /// Locked exclusively while bytes change, until the event is queued. Reads of a file in RAM
    /// lock it shared. It is the last lock to be taken.
    pub(crate) order: RwLock<()>,
    changes: AtomicU64,
    /// The error of a write of bytes that the kernel had accepted before; they are lost.
    lost: Mutex<Option<Errno>>,
    /// The result of the sync that followed the file's write-back, if one did.
    synced: Mutex<Option<Result<()>>>,
    /// The page behind the last write.
    next_page: AtomicU64,
    /// Its syncs may be delayed: it belongs to a group, and the kernel does not write to it without
    /// us.
    in_group: AtomicBool,
}

/// The location of an open file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Location {
    /// `None` while no process has the file open.
    pub(crate) file: Option<Arc<File>>,
    /// On flash, where the file stays.
    pub(crate) settled: bool,
    /// Still in RAM, by all but its bytes: BACKING's page cache has them.
    pub(crate) handed_over: bool,
    /// Its pages, while it is a file of a group in RAM.
    pub(crate) delayed: Option<Arc<DelayedFile>>,
}

impl FileState {
    pub(crate) fn new(place: Location) -> FileState {
        FileState { place: RwLock::new(place), ..FileState::default() }
    }

    /// The same for a file of a group.
    pub(crate) fn in_group(place: Location) -> FileState {
        FileState { in_group: AtomicBool::new(true), ..FileState::new(place) }
    }

    /// Whether it belongs to a group.
    pub(crate) fn is_in_group(&self) -> bool {
        self.in_group.load(Ordering::Relaxed)
    }

    /// Its syncs are honoured from now on, until it is closed.
    pub(crate) fn leaves_group(&self) {
        self.in_group.store(false, Ordering::Relaxed);
    }

    /// The open file; for a file in RAM, with the lock that keeps it there meanwhile. A file on
    /// flash does not move, so opening or closing it need not wait for a slow device.
    pub(crate) fn open(&self) -> Result<(Arc<File>, Option<RwLockReadGuard<'_, Location>>)> {
        let place = self.place.read();
        let file = place.file.clone().ok_or(Errno::BADF)?;
        Ok((file, (!place.settled).then_some(place)))
    }

    /// Counts a change after it has become visible, with `place` still held. A copy that reads the
    /// count before it begins therefore either contains the change or finds a different count
    /// afterwards.
    pub(crate) fn changed(&self) {
        self.changes.fetch_add(1, Ordering::Release);
    }

    /// Records that bytes are lost which a process stored through a mapping.
    pub(crate) fn loses(&self, errno: Errno) {
        self.lost.lock().get_or_insert(errno);
    }

    /// Forgets such a loss: the file is empty.
    pub(crate) fn emptied(&self) {
        *self.lost.lock() = None;
    }

    /// Whether bytes were lost while the file was open.
    ///
    /// # Errors
    ///
    /// The first error of a write that lost bytes.
    pub(crate) fn check_lost_writes(&self) -> Result<()> {
        (*self.lost.lock()).map_or(Ok(()), Err)
    }

    /// Records a write of these pages. Whether it goes on where the last one ended.
    pub(crate) fn goes_on(&self, pages: std::ops::Range<u64>) -> bool {
        let expected = self.next_page.swap(pages.end, Ordering::Relaxed);
        (expected.saturating_sub(1)..=expected).contains(&pages.start)
    }

    pub(crate) fn set_synced(&self, done: Result<()>) {
        *self.synced.lock() = Some(done);
    }

    /// The result of the sync that followed the file's write-back.
    pub(crate) fn synced(&self) -> Option<Result<()>> {
        *self.synced.lock()
    }

    /// Number of changes so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }
}
