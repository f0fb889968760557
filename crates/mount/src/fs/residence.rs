//! Where a file lives, and how it moves: a state machine for each file.
//!
//! | transition | from | to | needs |
//! |---|---|---|---|
//! | `keep_copy` | `Ram` | `Ram` | a copy under the file's name in BACKING |
//! | `hand_over` | `Ram` | `HandedOver` | a copy without a name, and no change since |
//! | `join` | `Ram` without a copy | `Delayed` | names that all belong to a group |
//! | `adopt` | `Flash` | `Delayed` | RAM for the changes, and the file in BACKING open |
//! | `settle` | `Ram`, `HandedOver`, `Delayed` | `Flash` | each of its names in BACKING |
//! | `settle_directory` | `NewDirectory` | `Flash` | its name in BACKING |
//! | `vanish` | all but `Gone` | `Gone` | the attributes at the end of its last name |
//!
//! The table of names holds a [`Resident`] for each file and performs the transitions, so that its
//! own lists follow. A file that is open has a [`Place`] besides, which readers and writers lock
//! without the table; each transition changes both. Locks are taken in this order: a file's gate,
//! the table, its place. A place is locked exclusively only while the table is.

use super::delayed_file::{Change, DelayedFile};
use super::types::Attr;
use super::waiting::Waiting;
use flashsift_events::event::OpenId;
use parking_lot::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, Result};
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Where a file lives.
#[derive(Clone, Debug)]
pub(crate) enum Residence {
    /// In the store, under its number. BACKING may have a copy under its name.
    Ram(Option<Checkpoint>),
    /// In the store by all but its bytes: BACKING's page cache has them, in a file without a name.
    HandedOver,
    /// In the store, as a file of a group: the pages that its base in BACKING lacks.
    Delayed(Arc<DelayedFile>),
    /// A directory that BACKING lacks, in the store by its attributes alone.
    NewDirectory,
    /// In BACKING, with this number, where it stays, unless it is adopted by a group. Changes of
    /// its content may wait in RAM ([`FileState::waiting`]).
    Flash(u64),
    /// The last name is gone. Holds the attributes from then. As long as the file is open, BACKING
    /// has its bytes.
    Gone(Arc<Attr>),
}

impl Default for Residence {
    fn default() -> Residence {
        Residence::Ram(None)
    }
}

/// A copy in BACKING of a file that stays in RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checkpoint {
    pub(crate) backing_ino: u64,
    /// The file's change count when it was copied, or [`NAME_ALONE`].
    pub(crate) changes: u64,
}

/// Count of changes of a copy without any bytes: the file as it was when it was created.
pub(crate) const NAME_ALONE: u64 = u64::MAX;

impl Residence {
    /// Whether it is a file that the store has.
    pub(crate) fn is_in_ram(&self) -> bool {
        matches!(self, Residence::Ram(_) | Residence::HandedOver | Residence::Delayed(_))
    }

    /// BACKING's number of a file that lives there.
    pub(crate) fn backing_ino(&self) -> Option<u64> {
        if let Residence::Flash(backing_ino) = self { Some(*backing_ino) } else { None }
    }

    /// The pages of a file of a group.
    pub(crate) fn delayed(&self) -> Option<&Arc<DelayedFile>> {
        if let Residence::Delayed(file) = self { Some(file) } else { None }
    }

    /// The copy that BACKING has of a file in RAM.
    pub(crate) fn checkpoint(&self) -> Option<Checkpoint> {
        if let Residence::Ram(checkpoint) = self { *checkpoint } else { None }
    }

    /// Whether the machine has a transition from here to there.
    fn leads_to(&self, to: &Residence) -> bool {
        use Residence::{Delayed, Flash, Gone, HandedOver, NewDirectory, Ram};
        matches!(
            (self, to),
            (Ram(_), Ram(Some(_)) | HandedOver)
                | (Ram(None) | Flash(_), Delayed(_))
                | (Ram(_) | HandedOver | Delayed(_) | NewDirectory, Flash(_))
                | (Ram(_) | HandedOver | Delayed(_) | NewDirectory | Flash(_), Gone(_))
        )
    }
}

/// A file's residence, and the state that its readers, its writers and its moves share.
#[derive(Debug)]
pub(crate) struct Resident {
    residence: Residence,
    /// Present while the file is open or being moved, and as long as a checkpoint counts by it.
    shared: Option<Arc<FileState>>,
}

impl Resident {
    /// A file that is created in RAM.
    pub(super) fn born() -> Resident {
        Resident { residence: Residence::Ram(None), shared: None }
    }

    /// A directory that is created in RAM.
    pub(super) fn new_directory() -> Resident {
        Resident { residence: Residence::NewDirectory, shared: None }
    }

    /// A file that BACKING has.
    pub(super) fn found(backing_ino: u64) -> Resident {
        Resident { residence: Residence::Flash(backing_ino), shared: None }
    }

    pub(crate) fn residence(&self) -> &Residence {
        &self.residence
    }

    /// A process changed the attributes of what it has open after its removal.
    pub(super) fn set_last_attributes(&mut self, attr: Attr) {
        if let Residence::Gone(last) = &mut self.residence {
            *last = Arc::new(attr);
        }
    }

    /// The state that its users share, if there is any.
    pub(crate) fn shared(&self) -> Option<&Arc<FileState>> {
        self.shared.as_ref()
    }

    /// The same; it is created if there is none. `in_group`: the file may join a group while it is
    /// open.
    pub(super) fn share(&mut self, in_group: bool) -> &Arc<FileState> {
        self.shared.get_or_insert_with(|| {
            let place = Place { file: None, residence: self.residence.clone() };
            let in_group = in_group || place.residence.delayed().is_some();
            Arc::new(FileState {
                place: RwLock::new(place),
                in_group: AtomicBool::new(in_group),
                ..FileState::default()
            })
        })
    }

    /// Drops the shared state if nothing uses it any more.
    pub(super) fn release(&mut self) {
        let is_kept = self.residence.checkpoint().is_some()
            || (self.residence.is_in_ram()
                && self.shared.as_ref().is_some_and(|shared| !shared.reserved.lock().is_empty()));
        if !is_kept && self.shared.as_ref().is_some_and(|shared| Arc::strong_count(shared) == 1) {
            self.shared = None;
        }
    }

    /// Performs a transition. `place` is the file's place if the caller has locked it; `bytes` is
    /// the file that those get who have it open.
    ///
    /// # Panics
    ///
    /// The machine has no such transition.
    pub(super) fn moves(
        &mut self,
        place: Option<&mut Place>,
        to: Residence,
        bytes: Option<Arc<File>>,
    ) {
        assert!(self.residence.leads_to(&to), "{:?} to {to:?}", self.residence);
        let change = |place: &mut Place| {
            if place.file.is_some() && bytes.is_some() {
                place.file = bytes;
            }
            place.residence = to.clone();
        };
        match (place, &self.shared) {
            (Some(place), _) => change(place),
            (None, Some(shared)) => change(&mut shared.place.write()),
            (None, None) => {}
        }
        if let (Residence::Delayed(_), Some(shared)) = (&to, &self.shared) {
            shared.in_group.store(true, Ordering::Relaxed);
        }
        self.residence = to;
    }

    /// Compares the file's residence with that of its place; for tests.
    pub(super) fn check(&self) {
        let Some(place) = self.shared.as_ref().and_then(|shared| shared.place.try_read()) else {
            return;
        };
        let (ours, theirs) = (format!("{:?}", self.residence), format!("{:?}", place.residence));
        assert_eq!(ours, theirs, "a file has one residence");
    }
}

/// Where an open file lives, and the file that has its bytes.
#[derive(Debug, Default)]
pub(crate) struct Place {
    /// `None` while no process has the file open.
    file: Option<Arc<File>>,
    residence: Residence,
}

impl Place {
    pub(crate) fn residence(&self) -> &Residence {
        &self.residence
    }

    /// The open file.
    pub(crate) fn file(&self) -> Option<&Arc<File>> {
        self.file.as_ref()
    }

    /// A process has opened the file, or all have closed it. Returns the one from before.
    pub(crate) fn set_file(&mut self, file: Option<Arc<File>>) -> Option<Arc<File>> {
        std::mem::replace(&mut self.file, file)
    }
}

/// State of one file that readers, writers and write-back share.
#[derive(Debug, Default)]
pub(crate) struct FileState {
    /// Every change of a file in RAM passes this lock. Write-back takes it exclusively after many
    /// failed attempts, so that the file's writers wait.
    pub(crate) gate: RwLock<()>,
    place: RwLock<Place>,
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
    /// Bytes of a file in RAM that a program has reserved, in order. RAM knows no difference
    /// between these and holes.
    reserved: Mutex<Vec<Range<u64>>>,
    /// Its syncs may be delayed: it belongs to a group, or joins one at its next change. The kernel
    /// does not write to it without us.
    in_group: AtomicBool,
    /// The open that created the file, while that open lasts and the file has the name with which
    /// it was created; 0: none.
    creating: AtomicU32,
    /// Opens that may write.
    writers: AtomicU32,
    /// Changes that BACKING's file lacks. It is locked after the order.
    waiting: RwLock<Option<Arc<Waiting>>>,
    /// Whether appends to the file on flash may wait, and other writes: the kernel does not write
    /// to it without us.
    may_wait: [AtomicBool; 2],
}

impl FileState {
    /// The changes of a file on flash that wait in RAM.
    pub(crate) fn waiting(&self) -> Option<Arc<Waiting>> {
        self.waiting.read().clone()
    }

    /// Changes wait from now on, or no more. The order is held, or nothing is open.
    pub(crate) fn set_waiting(&self, waiting: Option<Arc<Waiting>>) {
        *self.waiting.write() = waiting;
    }

    /// Whether a write may wait once the file is on flash.
    pub(crate) fn may_wait(&self, appends: bool) -> bool {
        let [append, overwrite] = &self.may_wait;
        let of = if appends { append } else { overwrite };
        of.load(Ordering::Relaxed)
    }

    /// Only appends may wait until the file is closed by all.
    pub(crate) fn overwrites_go_on(&self) {
        self.may_wait[1].store(false, Ordering::Relaxed);
    }

    /// Sets which writes may wait: appends, and all others.
    pub(crate) fn set_may_wait(&self, may: [bool; 2]) {
        for (one, may) in self.may_wait.iter().zip(may) {
            one.store(may, Ordering::Relaxed);
        }
    }

    /// This open has created the file.
    pub(crate) fn is_created_by(&self, open: OpenId) {
        self.creating.store(open.0.get(), Ordering::Relaxed);
    }

    /// This open has ended.
    pub(crate) fn is_closed_by(&self, open: OpenId) {
        let _ =
            self.creating.compare_exchange(open.0.get(), 0, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// The file gets another name than the first.
    pub(crate) fn is_renamed(&self) {
        self.creating.store(0, Ordering::Relaxed);
    }

    /// An open that may write has begun, or has ended.
    pub(crate) fn count_writer(&self, begins: bool) {
        let _ = match begins {
            true => self.writers.fetch_add(1, Ordering::Relaxed),
            false => self.writers.fetch_sub(1, Ordering::Relaxed),
        };
    }

    /// Whether a process has it open that may write.
    pub(crate) fn has_writers(&self) -> bool {
        self.writers.load(Ordering::Relaxed) > 0
    }

    /// Whether the open that created it lasts, and no name but the first was ever its name.
    pub(crate) fn is_being_created(&self) -> bool {
        self.creating.load(Ordering::Relaxed) != 0
    }

    /// Whether it belongs to a group.
    pub(crate) fn is_in_group(&self) -> bool {
        self.in_group.load(Ordering::Relaxed)
    }

    /// Its syncs are honoured from now on, until it is closed.
    pub(crate) fn leaves_group(&self) {
        self.in_group.store(false, Ordering::Relaxed);
    }

    /// Where the file lives; it stays there until the guard is dropped.
    pub(crate) fn place(&self) -> RwLockReadGuard<'_, Place> {
        self.place.read()
    }

    /// The same, for a move, which keeps readers and writers out. The table is locked.
    pub(crate) fn place_to_move(&self) -> RwLockWriteGuard<'_, Place> {
        self.place.write()
    }

    /// The open file; for a file in RAM, with the lock that keeps it there meanwhile. A file on
    /// flash does not move, so opening or closing it need not wait for a slow device.
    pub(crate) fn open(&self) -> Result<(Arc<File>, Option<RwLockReadGuard<'_, Place>>)> {
        let place = self.place.read();
        let file = place.file.clone().ok_or(Errno::BADF)?;
        Ok((file, place.residence.is_in_ram().then_some(place)))
    }

    /// Whether the file is in RAM now.
    pub(crate) fn is_in_ram(&self) -> bool {
        self.place.read().residence.is_in_ram()
    }

    /// Counts a change after it has become visible, with its place still held. A copy that reads
    /// the count before it begins therefore either contains the change or finds a different count
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
    pub(crate) fn goes_on(&self, pages: Range<u64>) -> bool {
        let expected = self.next_page.swap(pages.end, Ordering::Relaxed);
        (expected.saturating_sub(1)..=expected).contains(&pages.start)
    }

    /// Follows a change that has been made in RAM; the order is held.
    pub(crate) fn reserves(&self, change: Change) {
        let (freed, reserved) = match change {
            Change::Write { .. } => return,
            Change::Resize(size) => (size..u64::MAX, 0..0),
            Change::Allocate { offset, len, flags } => {
                let range = offset..offset.saturating_add(len);
                match flags.contains(FallocateFlags::PUNCH_HOLE) {
                    true => (range, 0..0),
                    false => (range.clone(), range),
                }
            }
        };
        let mut all = self.reserved.lock();
        let left = all.iter().flat_map(|old| {
            [old.start..old.end.min(freed.start), old.start.max(freed.end)..old.end]
        });
        *all = left.chain([reserved]).filter(|range| !range.is_empty()).collect();
        all.sort_unstable_by_key(|range| range.start);
        all.dedup_by(|next, before| {
            let joins = before.end == next.start;
            if joins {
                before.end = next.end;
            }
            joins
        });
    }

    /// The bytes of a file in RAM that a program has reserved.
    pub(crate) fn reserved(&self) -> Vec<Range<u64>> {
        self.reserved.lock().clone()
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

#[cfg(test)]
mod tests;
