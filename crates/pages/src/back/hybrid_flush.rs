//! Hybrid flush with hotness-aware eviction (Lim & Bahn, IEEE Access 2021, §III).
//!
//! A page that is written back after one write goes to storage, one after several writes to the
//! buffer. Write counts rise with each page-write, are not reset by a flush, are copied to the
//! buffer with each flush, and go back to the cache when it reads the page from there. The page of
//! the least count leaves the buffer, among several the one flushed least recently; the two pages
//! that were used last of those in the cache are passed over, unless no other is left. A deleted
//! page is in no cache, so it is not one of the two.

use super::nvm_order::Order;
use crate::system::{BUFFER_PARAMS, SystemKind, SystemSpec};
use flashsift_events::{
    page::Frame,
    structure::{BitTree, Lists},
};
use std::collections::BTreeSet;

pub(crate) const SPEC: SystemSpec = SystemSpec {
    name: "hybrid-flush",
    paper: "Lim & Bahn, IEEE Access 2021",
    what: "pages written more than once go to a non-volatile buffer, which the coldest leaves",
    params: BUFFER_PARAMS,
    kind: SystemKind::Buffer(|slots, _| Box::new(HybridFlush::new(slots))),
};

/// Counts below this have lists of their own. Few pages are written more often.
const LISTS: u32 = 4096;

/// Slots by write count, and among equals from the least to the most recently flushed.
pub(crate) struct HybridFlush {
    /// One list for each count below [`LISTS`].
    lists: Lists<Frame, 0>,
    /// The counts whose list is not empty.
    counts: BitTree,
    /// Slots of higher counts: count, time of the flush, slot.
    rare: BTreeSet<(u32, u64, u32)>,
    /// By slot: its count, and the time of its flush; count 0 while it is empty.
    slots: Vec<(u32, u64)>,
    /// Number of flushes.
    flushes: u64,
}

impl HybridFlush {
    pub(crate) fn new(slots: u32) -> Self {
        Self {
            lists: Lists::with_lists(slots, LISTS),
            counts: BitTree::new(LISTS),
            rare: BTreeSet::new(),
            slots: vec![(0, 0); slots as usize],
            flushes: 0,
        }
    }

    /// Returns the slots in use in the order in which they leave.
    fn in_order(&self) -> impl Iterator<Item = Frame> + '_ {
        let mut next = self.counts.next(0);
        let counts = std::iter::from_fn(move || {
            let count = next?;
            next = self.counts.next(count + 1);
            Some(count)
        });
        let rare = self.rare.iter().map(|(_, _, slot)| Frame(*slot));
        counts.flat_map(|count| self.lists.iter(count as usize)).chain(rare)
    }
}

impl Order for HybridFlush {
    fn admits(&self, writes: u32) -> bool {
        writes > 1
    }

    fn flushed(&mut self, slot: Frame, writes: u32) {
        self.remove(slot);
        self.flushes += 1;
        self.slots[slot.0 as usize] = (writes, self.flushes);
        if writes < LISTS {
            self.lists.push_newest(writes as usize, slot);
            self.counts.insert(writes);
        } else {
            self.rare.insert((writes, self.flushes, slot.0));
        }
    }

    fn remove(&mut self, slot: Frame) {
        let (writes, flushed) = std::mem::take(&mut self.slots[slot.0 as usize]);
        if writes == 0 {
            return;
        }
        if writes >= LISTS {
            self.rare.remove(&(writes, flushed, slot.0));
            return;
        }
        self.lists.remove(slot);
        if self.lists.oldest(writes as usize).is_none() {
            self.counts.remove(writes);
        }
    }

    fn victim(&self, recent: [Option<Frame>; 2]) -> Frame {
        let mut slots = self.in_order();
        let first = slots.next().expect("a slot is in use");
        let is_spared = |slot: &Frame| recent.contains(&Some(*slot));
        std::iter::once(first).chain(slots).find(|slot| !is_spared(slot)).unwrap_or(first)
    }

    fn check(&self, used: usize) {
        self.lists.check();
        self.counts.check();
        let slots: Vec<_> = self.in_order().map(|slot| self.slots[slot.0 as usize]).collect();
        assert_eq!(slots.len(), used, "the order holds the slots in use");
        assert!(slots.is_sorted(), "slots leave by count, then by time");
        assert!(slots.first().is_none_or(|(writes, _)| *writes > 0), "a slot in use has a count");
    }
}
