//! The files that [`Keep`](super::Keep) knows: an array of 32 bytes a file, an index by identity,
//! and lists that run through the array.
//!
//! Nearly every file holds data from its first page on, without holes. Its pages are a number. The
//! pages of all others are kept apart, as [`Extents`].

use crate::sift::count::Count;
use flashsift_events::{
    event::{FileId, Micros},
    structure::Extents,
};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable, hash_table::Entry};
use std::{
    hash::BuildHasher,
    ops::{Index, IndexMut, Range},
};

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

impl List {
    pub(super) const ALL: [List; 5] =
        [List::Out, List::Clean, List::Dirty, List::Failed, List::Unnamed];
}

/// The place of a file in the array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Slot(u32);

/// `File::dense` of a file whose pages are kept apart.
const APART: u32 = u32::MAX;
/// Slots that stay allocated while there is no file.
const IDLE: usize = 1024;
/// Slots before the first file: the ends of the lists, and of the chain of free slots.
const HEADS: usize = List::ALL.len() + 1;
const FREE: Slot = Slot(List::ALL.len() as u32);

/// A file in RAM.
#[derive(Clone, Copy, Debug)]
pub(super) struct File {
    pub(super) id: FileId,
    /// Time of the first change that flash lacks; [`CLEAN`] if it lacks none.
    pub(super) since_us: Micros,
    older: Slot,
    newer: Slot,
    /// The file's data is in this many pages from the first on, or [`APART`].
    dense: u32,
    /// Number of opens; it stays at its maximum once it has reached it.
    pub(super) opens: Count,
    /// Number of names, in the same way.
    pub(super) names: Count,
}

/// `File::since_us` of a file whose current version is on flash.
pub(super) const CLEAN: Micros = Micros::MAX;

/// The files, each in one list.
#[derive(Clone, Debug)]
pub(super) struct Files {
    slots: Vec<File>,
    index: HashTable<Slot>,
    /// Pages of the files whose data is not one range from the first page on.
    apart: HashMap<Slot, Extents, FixedState>,
    hasher: FixedState,
}

impl Index<Slot> for Files {
    type Output = File;

    fn index(&self, slot: Slot) -> &File {
        &self.slots[slot.0 as usize]
    }
}

impl IndexMut<Slot> for Files {
    fn index_mut(&mut self, slot: Slot) -> &mut File {
        &mut self.slots[slot.0 as usize]
    }
}

impl Files {
    pub(super) fn new() -> Self {
        let head = |n| File {
            id: FileId(u64::MAX),
            since_us: CLEAN,
            older: Slot(n),
            newer: Slot(n),
            dense: 0,
            opens: Count::new(0),
            names: Count::new(0),
        };
        Self {
            slots: (0..HEADS as u32).map(head).collect(),
            index: HashTable::new(),
            apart: HashMap::default(),
            hasher: FixedState::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn find(&self, id: FileId) -> Option<Slot> {
        let hash = self.hasher.hash_one(id);
        self.index.find(hash, |slot| self[*slot].id == id).copied()
    }

    /// Adds a file that is not known, at the newest end of a list.
    ///
    /// # Panics
    /// With more than 4 billion files.
    pub(super) fn insert(&mut self, list: List, id: FileId, since_us: Micros, names: u16) -> Slot {
        let file = File {
            id,
            since_us,
            older: FREE,
            newer: FREE,
            dense: 0,
            opens: Count::new(0),
            names: Count::new(names),
        };
        let free = self[FREE].newer;
        let slot = if free == FREE {
            let next = u32::try_from(self.slots.len()).expect("less than 4 billion files");
            if self.slots.len() == self.slots.capacity() {
                // An eighth, instead of as much again: memory is what this array saves.
                self.slots.reserve_exact(self.slots.len() / 8 + IDLE);
            }
            self.slots.push(file);
            Slot(next)
        } else {
            self[FREE].newer = self[free].newer;
            self[free] = file;
            free
        };
        let (slots, hasher) = (&self.slots, &self.hasher);
        let hash_of = |slot: &Slot| hasher.hash_one(slots[slot.0 as usize].id);
        let same = |other: &Slot| slots[other.0 as usize].id == id;
        match self.index.entry(hasher.hash_one(id), same, hash_of) {
            Entry::Vacant(vacant) => drop(vacant.insert(slot)),
            Entry::Occupied(_) => unreachable!("the file is not known"),
        }
        self.link(slot, self.head(list));
        slot
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        self.unlink(slot);
        let id = self[slot].id;
        let hash = self.hasher.hash_one(id);
        let slots = &self.slots;
        if let Ok(known) = self.index.find_entry(hash, |other| slots[other.0 as usize].id == id) {
            known.remove();
        }
        self.apart.remove(&slot);
        if self.len() == 0 && self.slots.len() > IDLE {
            // A burst of files takes no memory after the last one has left.
            *self = Self::new();
            return;
        }
        self[slot].dense = 0;
        self[slot].newer = self[FREE].newer;
        self[FREE].newer = slot;
    }

    /// Moves a file to the newest end of a list.
    pub(super) fn move_newest(&mut self, list: List, slot: Slot) {
        self.unlink(slot);
        self.link(slot, self.head(list));
    }

    /// Moves a file into the list of dirty files, behind all those whose first change is not later.
    pub(super) fn move_dirty(&mut self, slot: Slot) {
        self.unlink(slot);
        let head = self.head(List::Dirty);
        let mut before = head;
        while self[before].older != head && self[self[before].older].since_us > self[slot].since_us
        {
            before = self[before].older;
        }
        self.link(slot, before);
    }

    pub(super) fn oldest(&self, list: List) -> Option<Slot> {
        self.newer(list, self.head(list))
    }

    pub(super) fn newest(&self, list: List) -> Option<Slot> {
        self.older(list, self.head(list))
    }

    pub(super) fn newer(&self, list: List, slot: Slot) -> Option<Slot> {
        Some(self[slot].newer).filter(|newer| *newer != self.head(list))
    }

    pub(super) fn older(&self, list: List, slot: Slot) -> Option<Slot> {
        Some(self[slot].older).filter(|older| *older != self.head(list))
    }

    /// Iterates over a list from the oldest to the newest.
    pub(super) fn iter(&self, list: List) -> impl Iterator<Item = Slot> + '_ {
        std::iter::successors(self.oldest(list), move |slot| self.newer(list, *slot))
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

    fn head(&self, list: List) -> Slot {
        Slot(list as u32)
    }

    /// Inserts a file that is in no list before this one, which may be a list's end.
    fn link(&mut self, slot: Slot, before: Slot) {
        let older = self[before].older;
        self[slot].older = older;
        self[slot].newer = before;
        self[older].newer = slot;
        self[before].older = slot;
    }

    fn unlink(&mut self, slot: Slot) {
        let File { older, newer, .. } = self[slot];
        self[older].newer = newer;
        self[newer].older = older;
    }

    /// Re-derives every invariant. Returns each file with its list.
    ///
    /// # Panics
    /// If one of them is broken.
    pub(super) fn check(&self) -> Vec<(List, Slot)> {
        let mut all = Vec::new();
        for list in List::ALL {
            let mut last = self.head(list);
            for slot in self.iter(list) {
                assert_eq!(self[slot].older, last, "links agree in both directions");
                assert_eq!(self.find(self[slot].id), Some(slot), "the index knows {slot:?}");
                all.push((list, slot));
                last = slot;
            }
            assert_eq!(self[self.head(list)].older, last);
        }
        assert_eq!(all.len(), self.index.len(), "each file is in one list");
        let free = std::iter::successors(Some(self[FREE].newer), |slot| Some(self[*slot].newer));
        let free = free.take_while(|slot| *slot != FREE).count();
        assert_eq!(HEADS + free + all.len(), self.slots.len(), "each slot is free or a file's");
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
