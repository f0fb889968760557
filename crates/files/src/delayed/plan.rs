//! The steps by which an epoch reaches flash, in an order that survives a power cut between any
//! two of them.
//!
//! 1. *Prepare*, while applications go on. When the log is full, the pages that it holds are
//!    written to their place, in their newest version (the *checkpoint*). Everything that was
//!    changed in place is made durable, and the log begins anew. Files that will grow in place get
//!    their present size into the log, so that a recovery can take the new part away again. So do
//!    pages that are zeros in place (holes, reserved blocks): a recovery zeroes them again.
//! 2. *Capture*, while changes wait: new files are copied to hidden names, new parts of known files
//!    and what replaces such zeros are written to their place, and overwritten pages are added to
//!    the log. Nothing of it can be seen after a recovery.
//! 3. *Commit*, while applications go on. If files are new or have grown, they are made durable.
//!    Then the entry's head is written and the log is flushed: from here on the epoch counts.
//!    A page that became a hole is in the record alone.
//! 4. *Apply*: what the record says of names, sizes and attributes is done in place. The pages of
//!    the entry wait for the checkpoint, since the next epochs may overwrite them. A recovery does
//!    the same for the entries of the log in order, with their pages, and may do it again.

use super::{
    changes::Changes,
    record::{
        Attributes, EntryHead, EntryNumbers, FileChange, FileRef, HOLE_PAGES, HeldPages, InPlace,
        InodeId, Offsets, Path, Pieces, Placement, Record, Removal, consecutive,
    },
};
use flashsift_events::{page::PAGE_BYTES, structure::Extents};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use std::{borrow::Cow, cmp::Reverse, collections::BTreeMap, ops::Range};

/// The number by which the performer knows a file.
pub type FileKey = u64;

/// The log begins anew at the first epoch after it has this size, bytes, or as many bytes of pages
/// wait for the checkpoint: these are in RAM.
pub const LOG_BYTES: u64 = 16 << 20;

/// Pages that a new file costs beside its content: its inode, its name, the blocks that say what is
/// free.
const NEW_FILE_PAGES: u64 = 16;

/// Changes in place that are made durable file by file.
const FEW: usize = 8;

/// A page of zeros in which at most so many pieces change goes to the log. That costs a sixteenth
/// of the page more than to write it to its place at once. It spares the page if it changes again
/// until the checkpoint, and an epoch its commit if all of them are such.
const SPARSE_PIECES: u32 = 4;

/// The log has at most so many runs of zeros a file: each costs two or three bytes in every entry.
const BLANK_RUNS: usize = 1024;

/// A file of BACKING of which an epoch may write pages to their place.
#[derive(Clone, Debug)]
pub struct KnownFile {
    /// The file.
    pub file: FileRef,
    /// Its size there, bytes.
    pub size: u64,
    /// Its attributes there.
    pub attributes: Attributes,
    /// It will be larger.
    pub grows: bool,
    /// Its pages within this size that have changed.
    pub changed: Extents,
    /// Its pages that are zeros there, and need not be read to know it.
    pub holes: Extents,
}

/// A file of the group at the end of an epoch.
#[derive(Clone, Debug)]
pub struct EpochFile {
    /// Its number.
    pub key: FileKey,
    /// The file that BACKING has of it; `None`: it is new, or written anew
    /// ([`Log::is_written_anew`]).
    pub base: Option<FileRef>,
    /// How it differs from that.
    pub changes: Changes,
    /// The pieces in which changed pages differ from what is in their place, where that is known.
    pub partial: BTreeMap<u64, Pieces>,
    /// Its attributes.
    pub attributes: Attributes,
    /// Its names that BACKING does not have; all, if it is written anew.
    pub names: Vec<Path>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EpochStep {
    /// Copy a new file to a hidden name.
    Create {
        /// The file.
        file: FileKey,
        /// Number of the hidden name.
        hidden: u64,
    },
    /// Give a file that BACKING has, or that was just copied, a further hidden name.
    Link {
        /// The file.
        file: FileKey,
        /// Number of the hidden name.
        hidden: u64,
    },
    /// Write these pages to their place, up to the file's size.
    Place {
        /// The file.
        file: FileKey,
        /// The pages.
        pages: Extents,
    },
    /// Write pages to the log.
    Append {
        /// The file.
        file: FileKey,
        /// The pages, and their place in the log.
        held: HeldPages,
    },
    /// Make everything durable that was done in BACKING so far, names as well.
    Commit,
    /// The same, where only names, sizes, attributes and the files of this capture are not durable
    /// yet.
    SyncFiles,
    /// Write the head of the entry.
    Head,
    /// Make the log durable.
    FlushLog,
}

/// The steps of one entry of the log.
#[derive(Clone, Debug)]
pub struct EpochPlan {
    /// The numbers of the entry.
    pub numbers: EntryNumbers,
    /// Offset of the entry in the log, bytes.
    pub at: u64,
    /// Offset of its first page, bytes.
    pub pages_at: u64,
    /// Offset of what does not stand in its head, bytes.
    pub rest_at: u64,
    /// Its record.
    pub record: Record,
    /// While changes wait.
    pub capture: Vec<EpochStep>,
    /// While applications go on. At its end the epoch is durable.
    pub commit: Vec<EpochStep>,
    /// The log afterwards.
    pub log: Log,
}

/// Pages of a file that only the log has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeferredPages {
    /// The file.
    pub id: InodeId,
    /// The pages.
    pub held: HeldPages,
}

/// The steps before an epoch ends, while applications go on.
#[derive(Clone, Debug)]
pub struct Preparation {
    /// Pages that are to be written to their place first, except what is behind the end of a file.
    pub checkpoint: Vec<DeferredPages>,
    /// Everything that was done in place has to be durable first.
    pub commits: bool,
    /// An entry of its own, with the sizes of files that may grow, and the zeros in files.
    pub sizes: Option<Box<EpochPlan>>,
    /// The log afterwards.
    pub log: Log,
}

/// The space of the log.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// The first epoch since the log began anew.
    first: u64,
    /// The next one.
    next: u64,
    /// Bytes in use.
    end: u64,
    /// Files of BACKING whose size the log has.
    listed: HashSet<InodeId, FixedState>,
    /// By such a file, its pages that are zeros in place, as the log says.
    blank: HashMap<InodeId, Extents, FixedState>,
    /// Parts of an epoch that failed may be in place.
    failed: bool,
    /// They may be where the log says that there are zeros.
    fouled: bool,
    /// A page of zeros in which at most so many pieces change goes to the log.
    sparse_pieces: u32,
    /// A checkpoint wrote pages that may not be durable in their place.
    unsynced: bool,
    /// By file, pages whose newest version only the log has.
    deferred: BTreeMap<InodeId, Offsets>,
    /// By file, the pieces of its pages that the log has: they may differ in place after a crash.
    held: HashMap<InodeId, BTreeMap<u64, Pieces>, FixedState>,
}

impl Log {
    /// Returns a log without an entry, whose first one has this number.
    pub fn starting_at(epoch: u64) -> Self {
        Self { first: epoch, next: epoch, sparse_pieces: SPARSE_PIECES, ..Self::default() }
    }

    /// The same with another number in place of [`SPARSE_PIECES`]: the model has larger pieces.
    pub(super) fn with_sparse_pieces(self, sparse_pieces: u32) -> Self {
        Self { sparse_pieces, ..self }
    }

    /// Returns the pages that only the log has.
    pub fn deferred(&self) -> Vec<DeferredPages> {
        let of_file = |(id, pages): (&InodeId, &Offsets)| {
            let id = *id;
            consecutive(pages).into_iter().map(move |held| DeferredPages { id, held })
        };
        self.deferred.iter().flat_map(of_file).collect()
    }

    /// Returns those of one file.
    pub fn deferred_of(&self, id: InodeId) -> Extents {
        let mut all = Extents::default();
        let pages = self.deferred.get(&id).into_iter().flat_map(BTreeMap::keys);
        pages.for_each(|page| all.insert(*page..page + 1));
        all
    }

    /// Returns whether RAM holds enough pages that only the log has.
    fn is_full(&self) -> bool {
        let pages = self.deferred.values().flat_map(BTreeMap::values);
        let deferred = pages.filter(|(pieces, _)| *pieces != Pieces::NONE).count();
        self.end.max(deferred as u64 * PAGE_BYTES) >= LOG_BYTES
    }

    /// All pages were written to their place.
    pub fn checkpointed(&mut self) {
        self.unsynced |= !self.deferred.is_empty();
        self.deferred.clear();
    }

    /// Returns the bytes in use.
    pub fn bytes(&self) -> u64 {
        self.end
    }

    /// Forgets which pieces the log has: a fault that the model has to find.
    pub(super) fn forget_held(&mut self) {
        self.held.clear();
    }

    /// Forgets that an epoch has failed: a fault that the model has to find.
    pub(super) fn forget_foul(&mut self) {
        self.fouled = false;
    }

    /// Forgets the pieces of pages that are holes by the log: a fault that the model has to find.
    pub(super) fn forget_holes(&mut self) {
        for (id, pages) in &self.deferred {
            let Some(held) = self.held.get_mut(id) else { continue };
            held.retain(|page, _| pages.get(page).is_none_or(|(held, _)| *held != Pieces::NONE));
        }
    }

    /// Counts the size of this file, or these zeros of it, as part of the log: a fault that the
    /// model has to find.
    pub(super) fn list(&mut self, file: InodeId, zeros: Option<Extents>) {
        match zeros {
            Some(zeros) => drop(self.blank.insert(file, zeros)),
            None => drop(self.listed.insert(file)),
        }
    }

    /// Returns whether flash is to get a new file in place of one that it has, rather than its
    /// changes.
    ///
    /// An overwritten page costs a page of the log, and one at the checkpoint. The second one is
    /// spared if the page is overwritten again until then. That is expected of pages that the epoch
    /// before had as well, and of half the pages if there was none. Pages that go to their place
    /// at once cost one.
    pub fn is_written_anew(&self, id: InodeId, changes: &Changes) -> bool {
        // After a cut all pages are logged.
        let in_place = changes.cut().map_or(changes.below().div_ceil(PAGE_BYTES), |_| u64::MAX);
        let count = |runs: &mut dyn Iterator<Item = Range<u64>>| -> u64 {
            runs.map(|run| run.end - run.start).sum()
        };
        let mut overwritten = Extents::default();
        changes.pages().parts(0..in_place).for_each(|run| overwritten.insert(run));
        if changes.cut().is_none() {
            let blank = self.blank.get(&id).into_iter().flat_map(Extents::iter);
            blank.for_each(|run| overwritten.remove(run));
        }
        holes_of(changes).iter().for_each(|run| overwritten.remove(run));
        let logged = overwritten.covered();
        let again = changes.before().map_or(logged / 2, |before| {
            overwritten.iter().map(|run| count(&mut before.parts(run))).sum()
        });
        let placed = changes.pages().covered() - holes_of(changes).covered() - logged;
        changes.size().div_ceil(PAGE_BYTES) + NEW_FILE_PAGES < 2 * logged - again + placed
    }

    /// Returns whether the log has the file's size, and its zeros.
    pub fn is_listed(&self, id: InodeId) -> bool {
        self.listed.contains(&id)
    }

    /// Parts of an epoch that failed may be in place (`true`), or none are. The log does not begin
    /// anew meanwhile: what it says of them would be lost.
    pub fn set_failed(&mut self, failed: bool) {
        self.failed = failed;
    }

    /// Returns whether parts of an epoch that failed may be in place.
    pub fn has_failed(&self) -> bool {
        self.failed
    }

    /// Plans the preparation of an epoch. `known`: files of BACKING that have changed. `anew`: the
    /// log is to begin anew in any case.
    pub fn prepare(&self, known: Vec<KnownFile>, anew: bool) -> Preparation {
        let commits = self.end > 0 && !self.failed && (anew || self.is_full());
        let checkpoint = if commits { self.deferred() } else { Vec::new() };
        let (first, next) = (self.next, self.next);
        let mut log = match commits {
            true => Self { first, next, sparse_pieces: self.sparse_pieces, ..Self::default() },
            false => self.clone(),
        };
        log.fouled = self.fouled || self.failed;
        let to_list = |known: KnownFile| {
            let KnownFile { file, size, attributes, grows, changed, holes } = known;
            let listed = log.blank.get(&file.id);
            let mut blank = largest(holes);
            // A page that an epoch wrote, and then failed, is no hole any more.
            let before = self.blank.get(&file.id).into_iter().flat_map(Extents::iter);
            before.for_each(|run| blank.insert(run));
            // By the checkpoint, pages that only the log has come to such places.
            self.deferred_of(file.id).iter().for_each(|run| blank.remove(run));
            // A recovery makes a hole again, also where a checkpoint did.
            let held = log.held.get(&file.id).into_iter().flat_map(BTreeMap::keys);
            held.for_each(|page| blank.remove(*page..page + 1));
            let is_news = |run: Range<u64>| listed.is_none_or(|listed| listed.missing(run) > 0);
            let fills = changed.iter().flat_map(|run| blank.parts(run)).any(is_news);
            let is_needed = fills || (grows && !log.listed.contains(&file.id));
            is_needed.then_some(FileChange {
                file,
                cut: None,
                size,
                attributes: Some(attributes),
                pages: Extents::default(),
                holes: Extents::default(),
                partial: BTreeMap::new(),
                blank,
            })
        };
        let changes: Vec<FileChange> = known.into_iter().filter_map(to_list).collect();
        // A log that begins anew does so with an entry that is durable before others follow: what
        // they leave of the older ones could be taken for the whole log.
        if changes.is_empty() && !commits {
            return Preparation { checkpoint, commits, sizes: None, log };
        }
        let in_place = if log.end == 0 { InPlace::Everything } else { InPlace::Nothing };
        let plan = log.entry(Record { changes, in_place, ..Record::default() });
        Preparation { checkpoint, commits, log: plan.log.clone(), sizes: Some(Box::new(plan)) }
    }

    /// Plans an epoch. `uncommitted`: a name that the epoch depends on may not be durable.
    /// `next_hidden` gives numbers to hidden names.
    pub fn plan(
        &self,
        files: &[EpochFile],
        removals: Vec<Removal>,
        uncommitted: bool,
        mut next_hidden: impl FnMut() -> u64,
    ) -> EpochPlan {
        let mut record = Record { removals, ..Record::default() };
        let mut capture = Vec::new();
        let mut places = |capture: &mut Vec<EpochStep>, file: &EpochFile, mut is_there: bool| {
            for path in &file.names {
                let (key, hidden) = (file.key, next_hidden());
                capture.push(match is_there {
                    true => EpochStep::Link { file: key, hidden },
                    false => EpochStep::Create { file: key, hidden },
                });
                is_there = true;
                record.places.push(Placement { hidden, path: path.clone() });
            }
        };
        let mut logged = Vec::new();
        for file in files {
            places(&mut capture, file, file.base.is_some());
            let Some(base) = &file.base else { continue };
            let changes = &file.changes;
            // A recovery has to find the file under its new names.
            if !changes.any() && file.names.is_empty() {
                continue;
            }
            let placed = self.placed(base.id, file);
            let mut pages = changes.pages().clone();
            placed.iter().for_each(|run| pages.remove(run));
            if !placed.is_empty() {
                capture.push(EpochStep::Place { file: file.key, pages: placed });
            }
            let mut of_base = base.clone();
            of_base.paths.extend(file.names.iter().cloned());
            record.changes.push(FileChange {
                file: of_base,
                cut: changes.cut(),
                size: changes.size(),
                attributes: changes.attributes().then_some(file.attributes),
                pages,
                holes: holes_of(changes).into_owned(),
                partial: BTreeMap::new(),
                blank: self.blank_after(base.id, changes),
            });
            logged.push(file);
        }
        let commits = uncommitted || !capture.is_empty();
        let all = uncommitted || self.unsynced || capture.len() > FEW;
        record.in_place = match (self.end, commits) {
            (0, _) => InPlace::Everything,
            (_, true) if self.deferred.is_empty() => InPlace::Everything,
            (_, true) => InPlace::AllButPages,
            (_, false) => InPlace::Nothing,
        };
        for (change, file) in record.changes.iter_mut().zip(&logged) {
            self.hold_pieces(change, file, record.in_place);
        }
        let mut plan = self.entry(record);
        plan.log.failed = false;
        let keys: HashMap<InodeId, FileKey, FixedState> = (plan.record.changes.iter().zip(&logged))
            .map(|(change, file)| (change.file.id, file.key))
            .collect();
        for (change, held) in plan.record.runs(plan.pages_at) {
            capture.push(EpochStep::Append { file: keys[&change.file.id], held });
        }
        plan.capture = capture;
        if commits {
            plan.commit.insert(0, if all { EpochStep::Commit } else { EpochStep::SyncFiles });
            plan.log.unsynced &= !all;
        }
        plan
    }

    /// Restricts the pages of a change to the pieces that its entry needs: those that differ from
    /// what is in place, and those that older entries hold, of which a checkpoint may leave any
    /// part in place.
    fn hold_pieces(&self, change: &mut FileChange, file: &EpochFile, in_place: InPlace) {
        let id = change.file.id;
        let older = self.held.get(&id).filter(|_| in_place != InPlace::Everything);
        let blank = self.blank.get(&id);
        for (&page, &differ) in &file.partial {
            // Before a recovery writes these pages, it zeroes them, or cuts them off.
            let is_blank = || blank.is_some_and(|blank| blank.missing(page..page + 1) == 0);
            let is_other = (self.fouled && is_blank())
                || change.cut.is_some_and(|cut| page >= cut / PAGE_BYTES);
            if is_other || change.pages.missing(page..page + 1) > 0 {
                continue;
            }
            let older = older.and_then(|older| older.get(&page)).map_or(0, |older| older.0);
            match Pieces(differ.0 | older) {
                Pieces::ALL => {}
                // Zeros in place may take space.
                _ if change.holes.missing(page..page + 1) == 0 => {}
                Pieces(0) => change.pages.remove(page..page + 1),
                pieces => drop(change.partial.insert(page, pieces)),
            }
        }
    }

    /// The changed pages that are written to their place: those behind the file's end on flash, if
    /// the log has its size, and those that are zeros there by the log, unless little of them
    /// changes.
    fn placed(&self, id: InodeId, file: &EpochFile) -> Extents {
        let (changes, mut placed) = (&file.changes, Extents::default());
        // The old part behind a cut goes away only when the epoch is applied.
        if changes.cut().is_some() {
            return placed;
        }
        if self.listed.contains(&id) {
            let below = changes.below().div_ceil(PAGE_BYTES);
            changes.pages().parts(below..u64::MAX).for_each(|run| placed.insert(run));
        }
        for run in self.blank.get(&id).into_iter().flat_map(Extents::iter) {
            changes.pages().parts(run).for_each(|run| placed.insert(run));
        }
        let is_sparse = |differ: &Pieces| differ.0.count_ones() <= self.sparse_pieces;
        for (page, _) in file.partial.iter().filter(|(_, differ)| !self.fouled && is_sparse(differ))
        {
            placed.remove(*page..page + 1);
        }
        // A write would take space for it.
        holes_of(changes).iter().for_each(|run| placed.remove(run));
        placed
    }

    /// The pages that are zeros in place after these changes, as far as the log knows.
    fn blank_after(&self, id: InodeId, changes: &Changes) -> Extents {
        let mut blank = self.blank.get(&id).cloned().unwrap_or_default();
        match changes.cut() {
            Some(cut) => blank.remove(cut / PAGE_BYTES..u64::MAX),
            None => blank
                .insert(changes.below().div_ceil(PAGE_BYTES)..changes.size().div_ceil(PAGE_BYTES)),
        }
        changes.pages().iter().for_each(|run| blank.remove(run));
        largest(blank)
    }

    fn entry(&self, record: Record) -> EpochPlan {
        let numbers = EntryNumbers { first: self.first, epoch: self.next };
        let head = EntryHead::new(numbers, &record);
        let at = self.end;
        let [pages_at, rest_at] = [head.bytes_before(), head.head_bytes()].map(|bytes| at + bytes);
        let mut log = self.clone();
        log.next += 1;
        log.end += head.bytes();
        if record.in_place != InPlace::Nothing {
            log.listed.clear();
            log.blank.clear();
        }
        if record.in_place == InPlace::Everything {
            log.held.clear();
        }
        for change in &record.changes {
            log.listed.insert(change.file.id);
            log.blank.insert(change.file.id, change.blank.clone());
            if let (Some(cut), Some(pages)) = (change.cut, log.deferred.get_mut(&change.file.id)) {
                pages.retain(|page, _| page * PAGE_BYTES < cut);
            }
        }
        log.deferred.retain(|_, pages| !pages.is_empty());
        for (change, held) in record.runs(pages_at) {
            // A checkpoint may leave any part of it in place.
            let pieces = if held.is_hole() { Pieces::ALL } else { held.pieces };
            let pieces = held.pages.clone().map(|page| (page, pieces));
            log.held.entry(change.file.id).or_default().extend(pieces);
            log.deferred.entry(change.file.id).or_default().extend(held.each());
        }
        let (capture, commit) = (Vec::new(), vec![EpochStep::Head, EpochStep::FlushLog]);
        EpochPlan { numbers, at, pages_at, rest_at, record, capture, commit, log }
    }
}

/// The changed pages that an epoch makes holes.
fn holes_of(changes: &Changes) -> Cow<'_, Extents> {
    match changes.holes().covered() {
        ..=HOLE_PAGES => Cow::Borrowed(changes.holes()),
        _ => Cow::default(),
    }
}

/// The largest runs, if there are very many.
fn largest(runs: Extents) -> Extents {
    let mut all: Vec<Range<u64>> = runs.iter().collect();
    if all.len() <= BLANK_RUNS {
        return runs;
    }
    all.sort_by_key(|run| Reverse(run.end - run.start));
    let mut some = Extents::default();
    all.into_iter().take(BLANK_RUNS).for_each(|run| some.insert(run));
    some
}

/// The part of a file's state that decides whether an epoch contains it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// It was synced since it was last part of an epoch.
    pub synced: bool,
    /// It has other names than there, or one that another file has there.
    pub moved: bool,
}

impl Standing {
    /// Returns whether the epoch contains the file. An epoch that ends because of a sync leaves out
    /// files without one, as long as their names say nothing about other files. `whole`: it ends
    /// for another reason, and contains everything.
    pub fn is_included(self, whole: bool) -> bool {
        whole || self.synced || self.moved
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::PIECE_BYTES;
    use super::*;

    /// Changes of a file of 100 pages.
    fn changed(change: impl FnOnce(&mut Changes)) -> Changes {
        let mut changes = Changes::of_size(100 * PAGE_BYTES);
        change(&mut changes);
        changes
    }

    fn anew(changes: &Changes) -> bool {
        Log::default().is_written_anew(InodeId::default(), changes)
    }

    /// Every page of a file that was saved anew as a whole went to the log, and then to its place.
    /// But a database of which each epoch overwrites most pages costs less in the log: a new file
    /// an epoch added a seventh to what a map application writes.
    #[test]
    fn a_file_that_changed_as_a_whole_is_written_anew() {
        let whole = changed(|changes| changes.wrote(0, 100 * PAGE_BYTES));
        assert!(anew(&whole));
        let most = |changes: &mut Changes| changes.wrote(0, 70 * PAGE_BYTES);
        assert!(!anew(&changed(most)));
        let once = changed(|changes| {
            changes.wrote(80 * PAGE_BYTES, PAGE_BYTES);
            changes.take();
            most(changes);
        });
        assert!(anew(&once), "its pages are not overwritten in every epoch");
        let in_every_epoch = changed(|changes| {
            most(changes);
            changes.take();
            most(changes);
        });
        assert!(!anew(&in_every_epoch));
        let saved_anew = changed(|changes| {
            changes.resized(0);
            changes.wrote(0, 60 * PAGE_BYTES);
        });
        assert!(anew(&saved_anew));
        let grown = changed(|changes| changes.wrote(100 * PAGE_BYTES, 1000 * PAGE_BYTES));
        assert!(!anew(&grown), "what is new goes to its place at once");
        let small = changed(|changes| {
            changes.resized(0);
            changes.wrote(0, 10 * PAGE_BYTES);
        });
        assert!(!anew(&small), "a new file costs more than its content");
    }

    /// A download into reserved blocks, or a mapped file with holes, cost a page of the log and one
    /// in place for each page: 1.7 times what ext4 writes.
    // Promises: Mount 76.
    #[test]
    fn pages_that_are_zeros_in_place_are_written_there() {
        let (id, paths) = (InodeId { ino: 1, born_ns: 1 }, vec![Path::from(*b"a")]);
        let base = FileRef { id, paths };
        let runs = |all: &[(u64, u64)]| {
            let mut runs = Extents::default();
            all.iter().for_each(|(start, end)| runs.insert(*start..*end));
            runs
        };
        let mut log = Log::starting_at(1);
        let mut epoch = |changes: Changes, holes: &[(u64, u64)]| {
            let known = KnownFile {
                file: base.clone(),
                size: changes.below(),
                attributes: Attributes::default(),
                grows: false,
                changed: changes.pages().clone(),
                holes: runs(holes),
            };
            let prepared = log.prepare(vec![known], false);
            let is_listed = prepared.sizes.is_some();
            let file = EpochFile {
                key: 1,
                base: Some(base.clone()),
                changes,
                partial: BTreeMap::new(),
                attributes: Attributes::default(),
                names: Vec::new(),
            };
            let plan = prepared.log.plan(&[file], Vec::new(), false, || 0);
            log = plan.log.clone();
            let placed = plan.capture.iter().find_map(|step| match step {
                EpochStep::Place { pages, .. } => Some(pages.clone()),
                _ => None,
            });
            let change = &plan.record.changes[0];
            (is_listed, placed, change.pages.clone(), change.blank.clone())
        };
        let wrote = |from: u64, pages| {
            changed(|changes| changes.wrote(from * PAGE_BYTES, pages * PAGE_BYTES))
        };
        let first = epoch(wrote(10, 20), &[(20, 50), (60, 70)]);
        let blank = runs(&[(30, 50), (60, 70)]);
        assert_eq!(first, (true, Some(runs(&[(20, 30)])), runs(&[(10, 20)]), blank));
        // The log has its zeros.
        let second = epoch(wrote(40, 5), &[]);
        let blank = runs(&[(30, 40), (45, 50), (60, 70)]);
        assert_eq!(second, (false, Some(runs(&[(40, 45)])), runs(&[]), blank));
        let again = epoch(wrote(40, 5), &[]);
        assert_eq!((again.1, again.2), (None, runs(&[(40, 45)])), "they are no zeros any more");
        // The log alone has the pages that were written behind a cut.
        let cut = changed(|changes| {
            changes.resized(32 * PAGE_BYTES);
            changes.wrote(60 * PAGE_BYTES, PAGE_BYTES);
            changes.resized(100 * PAGE_BYTES);
        });
        assert_eq!(epoch(cut, &[]), (false, None, runs(&[(60, 61)]), runs(&[(30, 32)])));
        let behind = epoch(wrote(60, 2), &[(32, 100)]);
        assert_eq!(behind.1, Some(runs(&[(61, 62)])));
        let many: Vec<_> = (0..2000).map(|run| (run * 3, run * 3 + 1 + run % 2)).collect();
        let some = largest(runs(&many));
        assert_eq!((some.iter().count(), some.covered()), (BLANK_RUNS, 1000 * 2 + 24));
    }

    /// A hole in an older file cost as much as a write: two pages for each of its own.
    // Promises: Mount 76.
    #[test]
    fn a_hole_is_in_the_record_alone() {
        let base = FileRef { id: InodeId { ino: 1, born_ns: 1 }, paths: vec![Path::from(*b"a")] };
        let epoch = |log: &mut Log, changes: Changes, differ: &[(u64, u64)]| {
            let file = EpochFile {
                key: 1,
                base: Some(base.clone()),
                changes,
                partial: differ.iter().map(|(page, differ)| (*page, Pieces(*differ))).collect(),
                attributes: Attributes::default(),
                names: Vec::new(),
            };
            let plan = log.plan(&[file], Vec::new(), false, || 0);
            *log = plan.log.clone();
            let held = plan.record.runs(0).map(|(_, held)| (held.pages, held.pieces));
            held.collect::<Vec<_>>()
        };
        let mut log = Log::starting_at(1);
        let most = |changes: &mut Changes| changes.punched(PAGE_BYTES, 90 * PAGE_BYTES);
        assert!(!anew(&changed(most)), "a new file costs the rest");
        // A page is zeros in place already: it may take space there.
        let first = epoch(&mut log, changed(most), &[(1, 0), (7, 0b11)]);
        assert_eq!(first, [(1..91, Pieces::NONE)]);
        let wrote = changed(|changes| changes.wrote(9 * PAGE_BYTES, 5));
        // A checkpoint may have begun, and a power cut undone its hole.
        assert_eq!(epoch(&mut log, wrote, &[(9, 1)]), [(9..10, Pieces::ALL)]);
        // A recovery would make the hole again, over what a later epoch wrote to its place.
        log.checkpointed();
        log.listed.clear();
        let mut holes = Extents::default();
        holes.insert(1..95);
        let known = KnownFile {
            file: base.clone(),
            size: 100 * PAGE_BYTES,
            attributes: Attributes::default(),
            grows: true,
            changed: holes.clone(),
            holes,
        };
        let listed = log.prepare(vec![known], false).sizes.unwrap().record;
        assert!(listed.changes[0].blank.iter().eq(std::iter::once(91..95)));
        let mut large = Changes::of_size(HOLE_PAGES * PAGE_BYTES + 2 * PAGE_BYTES);
        large.punched(0, (HOLE_PAGES + 1) * PAGE_BYTES);
        assert_eq!(epoch(&mut log, large, &[]), [(0..HOLE_PAGES + 1, Pieces::ALL)]);
    }

    /// A mapped file with holes, in which a program fills 100 bytes of a page now and then, had
    /// each page in place at once, with a commit in each epoch: 1.03 of what ext4 writes if it is
    /// synced as often as epochs end.
    // Promises: Mount 76.
    #[test]
    fn little_in_a_page_of_zeros_goes_to_the_log() {
        let base = FileRef { id: InodeId { ino: 1, born_ns: 1 }, paths: vec![Path::from(*b"a")] };
        let mut holes = Extents::default();
        holes.insert(0..100);
        let epoch = |log: &mut Log, differ: &[(u64, u64)]| {
            let changes = changed(|changes| {
                differ.iter().for_each(|(page, _)| changes.wrote(page * PAGE_BYTES, 9));
            });
            let known = KnownFile {
                file: base.clone(),
                size: changes.below(),
                attributes: Attributes::default(),
                grows: false,
                changed: changes.pages().clone(),
                holes: holes.clone(),
            };
            let prepared = log.prepare(vec![known], false);
            let file = EpochFile {
                key: 1,
                base: Some(base.clone()),
                changes,
                partial: differ.iter().map(|(page, differ)| (*page, Pieces(*differ))).collect(),
                attributes: Attributes::default(),
                names: Vec::new(),
            };
            let plan = prepared.log.plan(&[file], Vec::new(), false, || 0);
            *log = plan.log.clone();
            let placed: Vec<u64> = (plan.capture.iter())
                .filter_map(|step| match step {
                    EpochStep::Place { pages, .. } => Some(pages.iter().flatten()),
                    _ => None,
                })
                .flatten()
                .collect();
            let held = plan.record.runs(0).map(|(_, held)| (held.pages.start, held.pieces.0));
            (placed, held.collect::<Vec<_>>(), plan.commit.len())
        };
        let mut log = Log::starting_at(1);
        let (little, much) = ((3, 0b1111), (7, 0b11111));
        let [log_alone, with_commit] = [2, 3];
        assert_eq!(epoch(&mut log, &[little]), (vec![], vec![little], log_alone));
        assert_eq!(epoch(&mut log, &[(3, 1 << 9)]).1, [(3, 0b1111 | 1 << 9)], "with older pieces");
        assert_eq!(epoch(&mut log, &[(5, 1), much]), (vec![7], vec![(5, 1)], with_commit));
        // A recovery alone knows what an epoch that failed has left there.
        log.set_failed(true);
        assert_eq!(epoch(&mut log, &[(9, 1)]), (vec![9], vec![], with_commit));
        log.checkpointed();
        *log.blank.entry(base.id).or_default() = holes.clone();
        assert_eq!(epoch(&mut log, &[(9, 1)]).0, [9], "nor does the log know it later");
    }

    /// A database that changes 100 bytes of a page cost a page of the log each time: 1.2 times what
    /// ext4 writes, if it is synced as often as epochs end.
    // Promises: Mount 72.
    #[test]
    fn an_entry_holds_the_pieces_that_differ_and_those_of_older_entries() {
        let (id, paths) = (InodeId { ino: 1, born_ns: 1 }, vec![Path::from(*b"a")]);
        let (mut log, whole) = (Log::starting_at(1), u64::MAX);
        let mut epoch =
            |changes, differ: &[(u64, u64)], [uncommitted, is_checkpointed]: [bool; 2]| {
                let file = EpochFile {
                    key: 1,
                    base: Some(FileRef { id, paths: paths.clone() }),
                    changes,
                    partial: differ.iter().map(|(page, differ)| (*page, Pieces(*differ))).collect(),
                    attributes: Attributes::default(),
                    names: Vec::new(),
                };
                let plan = log.plan(&[file], Vec::new(), uncommitted, || 0);
                log = plan.log.clone();
                if is_checkpointed {
                    log.checkpointed();
                }
                let end = plan.pages_at + plan.record.held_bytes();
                assert_eq!(plan.log.bytes(), end.next_multiple_of(PAGE_BYTES));
                let change = &plan.record.changes[0];
                let held = plan.record.runs(0).map(|(_, held)| (held.pages.start, held.pieces.0));
                let held: Vec<_> = held.collect();
                assert_eq!(change.partial.len(), held.iter().filter(|it| it.1 != whole).count());
                held
            };
        let wrote = |pages: &[u64]| {
            changed(|changes| pages.iter().for_each(|page| changes.wrote(page * PAGE_BYTES, 9)))
        };
        // The page cache does not have the third page; the fourth has not changed.
        let first = epoch(wrote(&[1, 3, 5, 7]), &[(1, 0b11), (3, 4), (7, 0)], [false; 2]);
        assert_eq!(first, [(1, 0b11), (3, 4), (5, whole)]);
        // Of the first page a piece is again as in place. A checkpoint may have begun.
        let second = epoch(wrote(&[1, 5]), &[(1, 0b10), (5, 1)], [false; 2]);
        assert_eq!(second, [(1, 0b11), (5, whole)]);
        let cut = changed(|changes| {
            changes.resized(3 * PAGE_BYTES);
            changes.wrote(2 * PAGE_BYTES, 2 * PAGE_BYTES);
        });
        let behind_a_cut = epoch(cut, &[(2, 0b1), (3, 0b1)], [false, true]);
        assert_eq!(behind_a_cut, [(2, 1), (3, whole)]);
        let not_durable = epoch(wrote(&[1]), &[(1, 0b100)], [false, true]);
        assert_eq!(not_durable, [(1, 0b111)]);
        assert_eq!(epoch(wrote(&[1]), &[(1, 0b100)], [true, false]), [(1, 0b100)]);
    }

    /// The pages that wait for the checkpoint are in RAM, however few bytes the log has of them.
    #[test]
    fn a_log_of_small_pieces_begins_anew_before_they_fill_ram() {
        let full = |pages: u64, held: u64| {
            let offsets = (0..pages).map(|page| (page, (Pieces(1), page * PIECE_BYTES))).collect();
            let deferred = BTreeMap::from([(InodeId::default(), offsets)]);
            Log { end: held, deferred, ..Log::starting_at(1) }.prepare(Vec::new(), false).commits
        };
        assert!(!full(4095, 1 << 18) && full(4096, 1 << 18) && full(1, LOG_BYTES));
    }
}
