//! The part of the mapping table that the controller holds in memory, loaded on demand as in DFTL
//! (Gupta, Kim, Urgaonkar, ASPLOS '09).
//!
//! The table is cut into mapping pages of 1 024 entries of 4 bytes: one of them maps 4 MiB. The
//! least recently used one leaves. If it was changed, it is written back. Unlike DFTL, whole
//! mapping pages are cached, not single entries.

use flashsift_events::{page::Id, structure::Lists};

/// Pages that one mapping page maps.
pub(super) const MAPPED_PAGES: u32 = 1024;
/// Size of a mapping page in flash and in memory.
const MAPPING_PAGE_BYTES: u64 = 4096;

/// A cache of mapping pages.
#[derive(Clone)]
pub(super) struct MapCache {
    /// By mapping page: its slot + 1, or 0.
    slot_of: Vec<u32>,
    /// By mapping page: flash holds it.
    stored: Vec<bool>,
    /// By slot: the mapping page, and whether it was changed.
    slots: Vec<(u32, bool)>,
    /// Used slots, the least recently used first.
    used: Lists<Slot, 1>,
    slots_max: u32,
    dirty: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Slot(u32);

impl Id for Slot {
    fn index(self) -> u32 {
        self.0
    }
    fn from_index(index: u32) -> Self {
        Self(index)
    }
}

/// Work that an access to a mapping page causes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct MapWork {
    /// The mapping page has to be read from flash.
    pub(super) read: bool,
    /// This other mapping page has to be written back.
    pub(super) write_back: Option<u32>,
}

impl MapCache {
    /// A cache of `bytes` for a device of `pages` pages; `None` if it holds the whole table.
    /// `stored`: flash holds all mapping pages at the beginning.
    pub(super) fn new(pages: u32, bytes: u64, stored: bool) -> Option<Self> {
        let all = pages.div_ceil(MAPPED_PAGES);
        let slots_max = u32::try_from(bytes / MAPPING_PAGE_BYTES).unwrap_or(u32::MAX);
        (slots_max > 0 && slots_max < all).then(|| Self {
            slot_of: vec![0; all as usize],
            stored: vec![stored; all as usize],
            slots: Vec::new(),
            used: Lists::new(slots_max),
            slots_max,
            dirty: 0,
        })
    }

    /// Number of changed mapping pages in the cache.
    pub(super) fn dirty(&self) -> u32 {
        self.dirty
    }

    /// Accesses a mapping page, and changes it if `write`.
    pub(super) fn access(&mut self, mapping_page: u32, write: bool) -> MapWork {
        let mut work = MapWork::default();
        let slot = match self.slot_of[mapping_page as usize] {
            0 => {
                work.read = self.stored[mapping_page as usize];
                let slot = if (self.slots.len() as u32) < self.slots_max {
                    self.slots.push((mapping_page, false));
                    let slot = Slot(self.slots.len() as u32 - 1);
                    self.used.push_newest(0, slot);
                    slot
                } else {
                    let slot = self.used.oldest(0).expect("all slots are used");
                    let (old, dirty) =
                        std::mem::replace(&mut self.slots[slot.0 as usize], (mapping_page, false));
                    self.slot_of[old as usize] = 0;
                    if dirty {
                        self.dirty -= 1;
                        self.stored[old as usize] = true;
                        work.write_back = Some(old);
                    }
                    slot
                };
                self.slot_of[mapping_page as usize] = slot.0 + 1;
                slot
            }
            n => Slot(n - 1),
        };
        self.used.move_newest(0, slot);
        let dirty = &mut self.slots[slot.0 as usize].1;
        self.dirty += u32::from(write && !*dirty);
        *dirty |= write;
        work
    }

    pub(super) fn check(&self) {
        self.used.check();
        assert_eq!(self.used.iter(0).count(), self.slots.len(), "each slot has its turn");
        for (slot, (mapping_page, _)) in self.slots.iter().enumerate() {
            let held = self.slot_of[*mapping_page as usize] as usize;
            assert_eq!(held, slot + 1, "a mapping page and its slot agree");
        }
        let dirty = self.slots.iter().filter(|(_, dirty)| *dirty).count();
        assert_eq!(dirty, self.dirty as usize, "changed mapping pages are counted");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Reads and write-backs are those of a list in the order of use.
        // Promises: Devices 16.
        #[test]
        fn agrees_with_its_model(
            accesses in prop::collection::vec((0u32..20, any::<bool>()), 0..300),
            slots in 1u32..19,
            stored in any::<bool>(),
        ) {
            let bytes = u64::from(slots) * MAPPING_PAGE_BYTES;
            let mut cache = MapCache::new(20 * MAPPED_PAGES, bytes, stored).unwrap();
            let mut in_flash = [stored; 20];
            let mut naive: Vec<(u32, bool)> = Vec::new();
            for (mapping_page, write) in accesses {
                let mut work = MapWork::default();
                let changed = match naive.iter().position(|(held, _)| *held == mapping_page) {
                    Some(at) => naive.remove(at).1,
                    None => {
                        work.read = in_flash[mapping_page as usize];
                        if naive.len() == slots as usize {
                            let (old, changed) = naive.remove(0);
                            work.write_back = changed.then_some(old);
                            in_flash[old as usize] |= changed;
                        }
                        false
                    }
                };
                naive.push((mapping_page, changed || write));
                prop_assert_eq!(cache.access(mapping_page, write), work);
                cache.check();
                let dirty = naive.iter().filter(|(_, changed)| *changed).count();
                prop_assert_eq!(cache.dirty() as usize, dirty);
            }
        }
    }

    #[test]
    fn a_cache_of_the_whole_table_is_none() {
        assert!(MapCache::new(4 * MAPPED_PAGES, 4 * MAPPING_PAGE_BYTES, true).is_none());
        assert!(MapCache::new(4 * MAPPED_PAGES, 3 * MAPPING_PAGE_BYTES, true).is_some());
        assert!(MapCache::new(4 * MAPPED_PAGES, 0, true).is_none());
    }
}
