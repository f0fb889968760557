//! The files that [`Keep`](super::Keep) knows, in 32 bytes each.
//!
//! Nearly every file holds data from its first page on, without holes. Its pages are a number. The
//! pages of all others are kept apart, as [`Extents`].

pub(super) use crate::sift::slots::Slot;
use crate::sift::slots::{FileList, FileRecord, Slots};
use flashsift_events::{
    event::{FileId, Micros},
    ledger::Links,
    structure::Extents,
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::ops::{Deref, DerefMut, Range};

/// The list that a file is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    /// Files with a decision that is queued or in progress, in order of the first such decision.
    Out,
    /// Files of which flash has the current version, in the order in which it got that.
    Clean,
    /// Files that flash lacks or of which it has an earlier version, in order of the first change
    /// that it lacks.
    Dirty,
    /// Files that flash refused, in the order of refusal.
    Failed,
    /// Open files without a name, in the order in which they came to have none.
    Unnamed,
}

impl FileList for List {
    const ALL: &'static [List] =
        &[List::Out, List::Clean, List::Dirty, List::Failed, List::Unnamed];

    fn number(self) -> usize {
        self as usize
    }
}

/// `File::dense` of a file whose pages are kept apart.
const APART: u32 = u32::MAX;
/// Slots that stay allocated while there is no file.
const IDLE: usize = 1024;
/// A file in RAM.
#[derive(Clone, Copy, Debug)]
pub(super) struct File {
    pub(super) id: FileId,
    /// Time of the first change that flash lacks; [`CLEAN`] if it lacks none.
    pub(super) since_us: Micros,
    /// The file's data is in this many pages from the first on, or [`APART`].
    dense: u32,
    pub(super) links: Links,
}

impl Default for File {
    fn default() -> Self {
        let id = FileId(u64::MAX);
        Self { id, since_us: CLEAN, dense: 0, links: Links::default() }
    }
}

impl FileRecord for File {
    fn id(&self) -> FileId {
        self.id
    }
}

/// `File::since_us` of a file whose current version is on flash.
pub(super) const CLEAN: Micros = Micros::MAX;

/// The files, each in one list.
#[derive(Clone, Debug)]
pub(super) struct Files {
    slots: Slots<File, List>,
    /// Pages of the files whose data is not one range from the first page on.
    apart: HashMap<Slot, Extents, FixedState>,
}

impl Deref for Files {
    type Target = Slots<File, List>;

    fn deref(&self) -> &Self::Target {
        &self.slots
    }
}

impl DerefMut for Files {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.slots
    }
}

impl Files {
    pub(super) fn new() -> Self {
        Self { slots: Slots::new(), apart: HashMap::default() }
    }

    /// Adds a file that is not known, at the newest end of a list.
    pub(super) fn insert(&mut self, list: List, id: FileId, since_us: Micros, is_named: bool) {
        let links = Links::new(is_named);
        self.slots.insert(list, File { id, since_us, links, ..File::default() });
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        self.slots.remove(slot);
        self.apart.remove(&slot);
        if self.len() == 0 && self.places() > IDLE {
            // A burst of files takes no memory after the last one has left.
            *self = Self::new();
        }
    }

    /// Moves a file into the list of dirty files, behind all those whose first change is not later.
    pub(super) fn move_dirty(&mut self, slot: Slot) {
        let since_us = self[slot].since_us;
        self.slots.move_sorted(List::Dirty, slot, |other| other.since_us > since_us);
    }

    /// Returns the number of pages that hold data.
    pub(super) fn pages(&self, slot: Slot) -> u64 {
        match self[slot].dense {
            APART => self.apart[&slot].covered(),
            dense => u64::from(dense),
        }
    }

    /// Returns the pages that hold data.
    pub(super) fn extents(&self, slot: Slot) -> Extents {
        if let Some(extents) = self.apart.get(&slot) {
            return extents.clone();
        }
        let mut extents = Extents::default();
        extents.insert(0..u64::from(self[slot].dense));
        extents
    }

    /// Adds pages that hold data.
    pub(super) fn cover(&mut self, slot: Slot, pages: Range<u64>) {
        let dense = self[slot].dense;
        if dense != APART && pages.start <= u64::from(dense) && pages.end < u64::from(APART) {
            self[slot].dense = dense.max(pages.end as u32);
        } else if !pages.is_empty() {
            self.apart(slot, |extents| extents.insert(pages));
        }
    }

    /// Removes pages that hold data.
    pub(super) fn cut(&mut self, slot: Slot, pages: Range<u64>) {
        let dense = self[slot].dense;
        if pages.is_empty() || dense != APART && pages.start >= u64::from(dense) {
            return;
        }
        if dense != APART && pages.end >= u64::from(dense) {
            self[slot].dense = pages.start as u32;
        } else {
            self.apart(slot, |extents| extents.remove(pages));
        }
    }

    /// Changes the file's pages as extents, which are kept only if a number does not do.
    fn apart(&mut self, slot: Slot, change: impl FnOnce(&mut Extents)) {
        let mut extents = self.apart.remove(&slot).unwrap_or_default();
        if self[slot].dense != APART {
            extents.insert(0..u64::from(self[slot].dense));
        }
        change(&mut extents);
        let covered = extents.covered();
        let is_dense = extents.end() == covered && covered < u64::from(APART);
        self[slot].dense = if is_dense { covered as u32 } else { APART };
        if !is_dense {
            self.apart.insert(slot, extents);
        }
    }

    /// Re-derives every invariant. Returns each file with its list.
    ///
    /// # Panics
    /// If one of them is broken.
    pub(super) fn check(&self) -> Vec<(List, Slot)> {
        let all = self.slots.check();
        let mut apart = 0;
        for (_, slot) in &all {
            let Some(extents) = self.apart.get(slot) else {
                assert_ne!(self[*slot].dense, APART);
                continue;
            };
            apart += 1;
            extents.check();
            assert_eq!(self[*slot].dense, APART);
            let (end, covered) = (extents.end(), extents.covered());
            let is_dense = end == covered && covered < u64::from(APART);
            assert!(!is_dense, "a number would do for {extents:?}");
        }
        assert_eq!(apart, self.apart.len());
        all
    }
}
