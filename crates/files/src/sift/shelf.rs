//! The droppable files that a sifter holds in RAM: an array of files, an index by identity, and
//! lists that run through the array.

use crate::sift::{FILE_COST_BYTES, count::Count};
use flashsift_events::{
    event::{FileId, Micros},
    page::PAGE_BYTES,
};
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::{
    hash::BuildHasher,
    ops::{Index, IndexMut},
};

/// The list that a file is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shelved {
    /// Closed and with a name: it can be judged.
    Idle,
    /// Open, or without a name.
    Busy,
    /// A decision moves it out of RAM.
    Leaving,
}

impl Shelved {
    const ALL: [Shelved; 3] = [Shelved::Idle, Shelved::Busy, Shelved::Leaving];
}

/// The place of a file in the array.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Slot(pub(super) u32);

/// A file in RAM, and what a sifter keeps of it.
#[derive(Clone, Debug)]
pub(super) struct Held<S> {
    pub(super) id: FileId,
    pub(super) born_us: Micros,
    /// Time of the last read or change.
    pub(super) used_us: Micros,
    /// Pages up to the end of its data; of more than 16 TiB, those of the first 16 TiB.
    pages: u32,
    pub(super) opens: Count,
    pub(super) names: Count,
    /// Flash refused it.
    pub(super) refused: bool,
    /// The last name that it got.
    pub(super) name: Box<str>,
    pub(super) state: S,
    list: Shelved,
    older: Slot,
    newer: Slot,
}

impl<S> Held<S> {
    /// RAM that the file takes, bytes.
    pub(super) fn cost_bytes(&self) -> u64 {
        FILE_COST_BYTES + self.bytes()
    }

    /// Returns the pages up to the end of its data.
    pub(super) fn pages(&self) -> u64 {
        self.pages.into()
    }

    /// Returns the bytes of these pages.
    pub(super) fn bytes(&self) -> u64 {
        self.pages() * PAGE_BYTES
    }

    pub(super) fn list(&self) -> Shelved {
        self.list
    }

    fn list_of(&self) -> Shelved {
        if self.opens.is_zero() && !self.names.is_zero() { Shelved::Idle } else { Shelved::Busy }
    }
}

/// Slots that stay free while there are few files.
const IDLE: usize = 64;
const HEADS: usize = Shelved::ALL.len();

/// The files, each in one list.
#[derive(Clone, Debug)]
pub(super) struct Shelf<S> {
    /// The heads of the lists come first.
    slots: Vec<Held<S>>,
    free: Vec<Slot>,
    index: HashTable<Slot>,
    hasher: FixedState,
    /// Cost of the files that are not leaving, bytes.
    held_bytes: u64,
}

impl<S> Index<Slot> for Shelf<S> {
    type Output = Held<S>;

    fn index(&self, slot: Slot) -> &Held<S> {
        &self.slots[slot.0 as usize]
    }
}

impl<S> IndexMut<Slot> for Shelf<S> {
    fn index_mut(&mut self, slot: Slot) -> &mut Held<S> {
        &mut self.slots[slot.0 as usize]
    }
}

impl<S: Default> Shelf<S> {
    pub(super) fn new() -> Self {
        let head = |n: usize| Held {
            list: Shelved::ALL[n],
            older: Slot(n as u32),
            newer: Slot(n as u32),
            ..Self::blank()
        };
        let slots = (0..HEADS).map(head).collect();
        let (free, index, hasher) = (Vec::new(), HashTable::new(), FixedState::default());
        Self { slots, free, index, hasher, held_bytes: 0 }
    }

    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    pub(super) fn find(&self, file: FileId) -> Option<Slot> {
        let hash = self.hasher.hash_one(file);
        self.index.find(hash, |slot| self[*slot].id == file).copied()
    }

    pub(super) fn insert(&mut self, file: FileId, now: Micros, name: &str) -> Slot {
        let slot = self.free.pop().unwrap_or_else(|| {
            if self.slots.len() == self.slots.capacity() {
                // An eighth, instead of as much again: the memory is that of all files.
                self.slots.reserve_exact(self.slots.len() / 8 + IDLE);
            }
            self.slots.push(Self::blank());
            Slot((self.slots.len() - 1) as u32)
        });
        let names = Count::new(u16::from(!name.is_empty()));
        self[slot] = Held {
            id: file,
            born_us: now,
            used_us: now,
            names,
            name: name.into(),
            ..Self::blank()
        };
        self[slot].list = self[slot].list_of();
        let (slots, hasher) = (&self.slots, &self.hasher);
        let hash_of = |slot: &Slot| hasher.hash_one(slots[slot.0 as usize].id);
        self.index.insert_unique(hasher.hash_one(file), slot, hash_of);
        self.held_bytes += self[slot].cost_bytes();
        self.link(slot);
        slot
    }

    fn blank() -> Held<S> {
        Held {
            id: FileId(u64::MAX),
            born_us: 0,
            used_us: 0,
            pages: 0,
            opens: Count::new(0),
            names: Count::new(0),
            refused: false,
            name: Box::default(),
            state: S::default(),
            list: Shelved::Idle,
            older: Slot(0),
            newer: Slot(0),
        }
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        self.unlink(slot);
        if self[slot].list != Shelved::Leaving {
            self.held_bytes -= self[slot].cost_bytes();
        }
        let id = self[slot].id;
        let (slots, hash) = (&self.slots, self.hasher.hash_one(id));
        let known = self.index.find_entry(hash, |other| slots[other.0 as usize].id == id);
        if let Ok(known) = known {
            known.remove();
        }
        self[slot] = Self::blank();
        self.free.push(slot);
    }

    /// Changes the number of pages.
    pub(super) fn resize(&mut self, slot: Slot, pages: u64) {
        let before = self[slot].cost_bytes();
        self[slot].pages = pages.try_into().unwrap_or(u32::MAX);
        if self[slot].list != Shelved::Leaving {
            self.held_bytes = self.held_bytes - before + self[slot].cost_bytes();
        }
    }

    /// Makes the file the newest of its list.
    pub(super) fn renew(&mut self, slot: Slot) {
        self.unlink(slot);
        self.link(slot);
    }

    /// Moves the file to the list that its names and opens call for, unless it is leaving.
    pub(super) fn sort_in(&mut self, slot: Slot) {
        let list = self[slot].list_of();
        if self[slot].list != Shelved::Leaving && list != self[slot].list {
            self.unlink(slot);
            self[slot].list = list;
            self.link(slot);
        }
    }

    pub(super) fn leave(&mut self, slot: Slot) {
        if self[slot].list != Shelved::Leaving {
            self.held_bytes -= self[slot].cost_bytes();
            self.unlink(slot);
            self[slot].list = Shelved::Leaving;
            self.link(slot);
        }
    }

    /// Takes a file back that could not leave.
    pub(super) fn stay(&mut self, slot: Slot) {
        if self[slot].list == Shelved::Leaving {
            self.unlink(slot);
            self[slot].list = self[slot].list_of();
            self.held_bytes += self[slot].cost_bytes();
            self.link(slot);
        }
    }

    fn link(&mut self, slot: Slot) {
        let head = Slot(self[slot].list as u32);
        let newest = self[head].older;
        (self[slot].older, self[slot].newer) = (newest, head);
        self[newest].newer = slot;
        self[head].older = slot;
    }

    fn unlink(&mut self, slot: Slot) {
        let (older, newer) = (self[slot].older, self[slot].newer);
        self[older].newer = newer;
        self[newer].older = older;
    }

    /// Returns the files of a list, oldest first.
    pub(super) fn oldest_first(&self, list: Shelved) -> impl Iterator<Item = Slot> + '_ {
        let head = Slot(list as u32);
        let next = move |slot: &Slot| Some(self[*slot].newer).filter(|next| *next != head);
        std::iter::successors(next(&head), next)
    }

    /// Returns the idle files, oldest first, without those in use at this very time: a write does
    /// not make space for itself.
    pub(super) fn idle(&self, now: Micros) -> impl Iterator<Item = Slot> + '_ {
        self.oldest_first(Shelved::Idle).filter(move |slot| self.is_idle(*slot, now))
    }

    /// Returns whether the file is among those.
    pub(super) fn is_idle(&self, slot: Slot, now: Micros) -> bool {
        self[slot].list == Shelved::Idle && self[slot].used_us != now
    }

    /// Returns the number of places for files. Some may be empty.
    pub(super) fn places(&self) -> usize {
        self.slots.len() - HEADS
    }

    /// Returns the file at a place, counted from 0.
    pub(super) fn at_place(&self, place: usize) -> Option<Slot> {
        let slot = Slot((place + HEADS) as u32);
        self.find(self.slots.get(place + HEADS)?.id).filter(|found| *found == slot)
    }

    /// Returns all files.
    pub(super) fn all(&self) -> impl Iterator<Item = Slot> + '_ {
        Shelved::ALL.into_iter().flat_map(|list| self.oldest_first(list))
    }

    /// Returns the memory that it has allocated, bytes, without the names of files.
    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Held<S>>()
            + self.free.capacity() * size_of::<Slot>()
            + self.index.allocation_size()
    }

    pub(super) fn check(&self) {
        let (mut held_bytes, mut files) = (0, 0);
        for list in Shelved::ALL {
            for slot in self.oldest_first(list) {
                let file = &self[slot];
                assert_eq!(file.list, list);
                assert_eq!(self[file.newer].older, slot, "links lead back");
                assert_eq!(self.find(file.id), Some(slot), "the index knows {:?}", file.id);
                if list != Shelved::Leaving {
                    assert_eq!(file.list_of(), list, "{:?}", file.id);
                    held_bytes += file.cost_bytes();
                }
                files += 1;
            }
        }
        assert_eq!(self.held_bytes, held_bytes);
        assert_eq!((self.index.len(), self.slots.len()), (files, files + self.free.len() + HEADS));
    }
}
