//! The ledger of the files that a sifter holds in RAM: an array of records, an index by identity,
//! and lists that run through the array.

use super::rings::Rings;
use flashsift_events::event::FileId;
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::{
    hash::BuildHasher,
    marker::PhantomData,
    ops::{Index, IndexMut},
};

/// The place of a file in the array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Slot(pub(super) u32);

/// The record that a sifter keeps of a file. The default is that of no file.
pub(super) trait FileRecord: Default {
    fn id(&self) -> FileId;
}

/// The lists of a sifter.
pub(super) trait FileList: Copy + 'static {
    const ALL: &'static [Self];

    /// Returns its index in [`FileList::ALL`].
    fn number(self) -> usize;
}

/// The files, each in one list.
#[derive(Clone, Debug)]
pub(super) struct Slots<T, L> {
    records: Vec<T>,
    /// The lists, and one of free records.
    rings: Rings,
    index: HashTable<Slot>,
    hasher: FixedState,
    lists: PhantomData<L>,
}

/// Records for which there is space while there are few files.
const SPARE: usize = 64;

impl<T, L: FileList> Slots<T, L> {
    const FREE: usize = L::ALL.len();

    pub(super) fn new() -> Self {
        let (rings, index) = (Rings::new(Self::FREE + 1), HashTable::new());
        Self {
            records: Vec::new(),
            rings,
            index,
            hasher: FixedState::default(),
            lists: PhantomData,
        }
    }

    /// Returns the number of files.
    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    /// Returns the number of places for files. Some may be empty.
    pub(super) fn places(&self) -> usize {
        self.records.len()
    }

    /// Moves a file to the newest end of a list.
    pub(super) fn move_newest(&mut self, list: L, slot: Slot) {
        self.rings.remove(slot.0);
        self.rings.push_newest(list.number(), slot.0);
    }

    /// Moves a file into a list, before all those at its newest end that are later.
    pub(super) fn move_sorted(&mut self, list: L, slot: Slot, is_later: impl Fn(&T) -> bool) {
        self.move_newest(list, slot);
        let later = |other: &Slot| self.older(*other).filter(|older| is_later(&self[*older]));
        if let Some(first) = std::iter::successors(later(&slot), later).last() {
            self.rings.remove(slot.0);
            self.rings.push_older(first.0, slot.0);
        }
    }

    pub(super) fn oldest(&self, list: L) -> Option<Slot> {
        self.rings.oldest(list.number()).map(Slot)
    }

    pub(super) fn newest(&self, list: L) -> Option<Slot> {
        self.rings.newest(list.number()).map(Slot)
    }

    pub(super) fn newer(&self, slot: Slot) -> Option<Slot> {
        self.rings.newer(slot.0).map(Slot)
    }

    pub(super) fn older(&self, slot: Slot) -> Option<Slot> {
        self.rings.older(slot.0).map(Slot)
    }

    /// Returns the files of a list, oldest first.
    pub(super) fn oldest_first(&self, list: L) -> impl Iterator<Item = Slot> + '_ {
        std::iter::successors(self.oldest(list), |slot| self.newer(*slot))
    }

    /// Returns all files.
    pub(super) fn all(&self) -> impl Iterator<Item = Slot> + '_ {
        L::ALL.iter().flat_map(|list| self.oldest_first(*list))
    }

    /// Returns the memory that it has allocated, bytes.
    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        let records = self.records.capacity() * size_of::<T>();
        records + self.rings.heap_bytes() + self.index.allocation_size()
    }
}

impl<T: FileRecord, L: FileList> Slots<T, L> {
    pub(super) fn find(&self, id: FileId) -> Option<Slot> {
        let hash = self.hasher.hash_one(id);
        self.index.find(hash, |slot| self[*slot].id() == id).copied()
    }

    /// Adds a file that is not known, at the newest end of a list.
    ///
    /// # Panics
    /// With more than 4 billion files.
    pub(super) fn insert(&mut self, list: L, record: T) -> Slot {
        let hash = self.hasher.hash_one(record.id());
        let slot = self.rings.newest(Self::FREE).map(Slot).unwrap_or_else(|| {
            let next = u32::try_from(self.records.len()).expect("less than 4 billion files");
            if self.records.len() == self.records.capacity() {
                // An eighth, instead of as much again: the memory is that of all files.
                self.records.reserve_exact(self.records.len() / 8 + SPARE);
            }
            self.records.push(T::default());
            self.rings.grow();
            Slot(next)
        });
        self[slot] = record;
        let (records, hasher) = (&self.records, &self.hasher);
        let hash_of = |slot: &Slot| hasher.hash_one(records[slot.0 as usize].id());
        self.index.insert_unique(hash, slot, hash_of);
        self.move_newest(list, slot);
        slot
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        let hash = self.hasher.hash_one(self[slot].id());
        if let Ok(known) = self.index.find_entry(hash, |other| *other == slot) {
            known.remove();
        }
        self[slot] = T::default();
        self.rings.remove(slot.0);
        self.rings.push_newest(Self::FREE, slot.0);
    }

    /// Returns the file at a place, counted from 0.
    pub(super) fn at_place(&self, place: usize) -> Option<Slot> {
        let slot = Slot(place as u32);
        self.find(self.records.get(place)?.id()).filter(|found| *found == slot)
    }

    /// Re-derives every invariant. Returns each file with its list.
    ///
    /// # Panics
    /// If one of them is broken.
    pub(super) fn check(&self) -> Vec<(L, Slot)> {
        let of = |list: &'static L| self.oldest_first(*list).map(|slot| (*list, slot));
        let all: Vec<(L, Slot)> = L::ALL.iter().flat_map(of).collect();
        for (list, slot) in &all {
            assert_eq!(self.find(self[*slot].id()), Some(*slot), "the index knows {slot:?}");
            let back = self.newer(*slot).map_or(self.newest(*list), |newer| self.older(newer));
            assert_eq!(back, Some(*slot), "links lead back");
        }
        assert_eq!(all.len(), self.len(), "each file is in one list");
        let free = self.rings.newest_first(Self::FREE).count();
        assert_eq!(free + all.len(), self.records.len(), "each record is free or a file's");
        all
    }
}

impl<T, L> Index<Slot> for Slots<T, L> {
    type Output = T;

    fn index(&self, slot: Slot) -> &T {
        &self.records[slot.0 as usize]
    }
}

impl<T, L> IndexMut<Slot> for Slots<T, L> {
    fn index_mut(&mut self, slot: Slot) -> &mut T {
        &mut self.records[slot.0 as usize]
    }
}
