//! Hybrid flush with a frequency sketch in place of write counts: memory that does not grow with
//! the pages, and that remembers pages which left cache and buffer. An extension beyond the papers.
//!
//! Each write-back adds one to its page in a count-min sketch (Cormode & Muthukrishnan, J.
//! Algorithms 2005) of four rows of one byte for each slot of the buffer, eight times. All counts
//! are halved after so many write-backs as there are counters in a row, as in `TinyLFU` (Einziger,
//! Friedman & Manes, ACM TOS 2017). A page is hot if it was written back before or was written more
//! than once; the page of the least count leaves.

use super::{hybrid_flush::HybridFlush, nvm_order::Order};
use crate::{
    page::{Frame, Page},
    system::{BUFFER, SystemKind, SystemSpec},
};

pub(crate) const SPEC: SystemSpec = SystemSpec {
    name: "hybrid-sketch",
    paper: "none: beyond the papers",
    what: "hybrid flush with a frequency sketch in place of write counts",
    params: BUFFER,
    kind: SystemKind::Buffer(|_, _, slots| Box::new(HybridSketch::new(slots))),
};

const ROWS: usize = 4;
/// Counters of a row for each slot of the buffer.
const COUNTERS: u32 = 8;

pub(crate) struct HybridSketch {
    order: HybridFlush,
    rows: [Vec<u8>; ROWS],
    added: u32,
    /// The count of the page that is written back.
    count: u32,
}

impl HybridSketch {
    fn new(slots: u32) -> Self {
        let counters = slots.saturating_mul(COUNTERS).next_power_of_two().max(64) as usize;
        Self {
            order: HybridFlush::new(slots),
            rows: std::array::from_fn(|_| vec![0; counters]),
            added: 0,
            count: 0,
        }
    }

    /// Adds a write-back, and returns how many the page has had, at least 1.
    fn add(&mut self, page: Page) -> u32 {
        let mask = self.rows[0].len() - 1;
        let mut least = u8::MAX;
        let mut hash = u64::from(page.0).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for row in &mut self.rows {
            // The finisher of splitmix64 (Steele, Lea & Flood 2014), once for each row.
            hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let counter = &mut row[(hash >> 20) as usize & mask];
            *counter = counter.saturating_add(1);
            least = least.min(*counter);
        }
        self.added += 1;
        if self.added as usize > mask {
            self.rows.iter_mut().flatten().for_each(|counter| *counter /= 2);
            self.added = 0;
        }
        least.into()
    }
}

impl Order for HybridSketch {
    fn admits(&mut self, page: Page, writes: u32) -> bool {
        self.count = self.add(page).max(1) + u32::from(writes > 1);
        self.count > 1
    }

    fn flushed(&mut self, slot: Frame, _: u32) {
        self.order.flushed(slot, self.count);
    }

    fn remove(&mut self, slot: Frame) {
        self.order.remove(slot);
    }

    fn victim(&mut self, recent: [Option<Frame>; 2]) -> Frame {
        self.order.victim(recent)
    }

    fn check(&self, used: usize) {
        self.order.check(used);
        let total = |row: &Vec<u8>| row.iter().map(|counter| u64::from(*counter)).sum::<u64>();
        assert!(
            self.rows.iter().all(|row| total(row) <= 2 * row.len() as u64),
            "counts are halved"
        );
    }
}
