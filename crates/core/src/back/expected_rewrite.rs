//! A buffer that admits the pages which will probably be written back again, or be deleted, before
//! they leave it. An extension beyond the papers.
//!
//! Flush-NVM admits everything, so that pages written once push out others; hybrid flush admits no
//! page at its first write-back, which storage then gets for certain. Here a page belongs to a class
//! by the number of its write-backs so far: none, one, two, more. For each class the order learns
//! how often a write-back is followed by another one, or by the page's removal, within the time that
//! a page stays in the buffer. While the buffer is full, a page is admitted if its class does so at
//! least `eager` times as often as all pages together. The page flushed least recently leaves.

use super::nvm_order::Order;
use crate::{
    page::{Frame, Page},
    params::{Param, ParamKind},
    structure::Lists,
    system::{BUFFER, SystemKind, SystemSpec},
};

pub(crate) const SPEC: SystemSpec = SystemSpec {
    name: "expected-rewrite",
    paper: "none: beyond the papers",
    what: "pages that will probably be rewritten or deleted soon go to a non-volatile buffer",
    params: PARAMS,
    kind: SystemKind::Buffer(|params, pages, slots| {
        Box::new(ExpectedRewrite::new(pages, slots, params.number(PARAMS, "eager")))
    }),
};

const PARAMS: &[Param] = &[
    BUFFER[0],
    BUFFER[1],
    BUFFER[2],
    BUFFER[3],
    Param {
        name: "eager",
        what: "a class is admitted if it is rewritten this many times as often as all pages",
        kind: ParamKind::Number { default: 0.5, min: 0.0, max: 10.0 },
    },
];

/// Classes of pages by their write-backs so far.
const CLASSES: usize = 4;
/// Number of write-backs after which what was learned counts half.
const HALF_LIFE: u32 = 1 << 14;
/// Weight of a new stay in the mean.
const WEIGHT: f64 = 1.0 / 64.0;

/// The last write-back of a page.
#[derive(Clone, Copy)]
struct Seen {
    /// Its number among all write-backs, from 1; 0: there was none.
    at: u32,
    class: u8,
}

pub(crate) struct ExpectedRewrite {
    /// Slots from the least to the most recently flushed.
    order: Lists<Frame, 1>,
    /// By slot: the write-back that filled it.
    flushed: Vec<u32>,
    used: usize,
    pages: Vec<Seen>,
    /// The write-back under way.
    now: u32,
    /// Mean number of write-backs for which a page stays.
    stay: f64,
    /// By class: write-backs, and those that proved useful.
    counts: [[f64; 2]; CLASSES],
    eager: f64,
}

impl ExpectedRewrite {
    fn new(pages: u32, slots: u32, eager: f64) -> Self {
        Self {
            order: Lists::new(slots),
            flushed: vec![0; slots as usize],
            used: 0,
            pages: vec![Seen { at: 0, class: 0 }; pages as usize],
            now: 0,
            stay: f64::from(slots),
            counts: [[0.0; 2]; CLASSES],
            eager,
        }
    }

    /// Learns that a page is written again or removed, if the page would still be in the buffer.
    fn learn(&mut self, page: Page) {
        let seen = self.pages[page.0 as usize];
        if seen.at > 0 && f64::from(self.now.wrapping_sub(seen.at)) <= self.stay {
            self.counts[usize::from(seen.class)][1] += 1.0;
        }
    }

    /// The share of write-backs that proved useful; 1/2 before anything is known.
    fn useful([all, useful]: [f64; 2]) -> f64 {
        (useful + 1.0) / (all + 2.0)
    }
}

impl Order for ExpectedRewrite {
    fn admits(&mut self, page: Page, _: u32) -> bool {
        self.now += 1;
        self.learn(page);
        let seen = &mut self.pages[page.0 as usize];
        let class = match *seen {
            Seen { at: 0, .. } => 0,
            Seen { class, .. } => (usize::from(class) + 1).min(CLASSES - 1),
        };
        *seen = Seen { at: self.now, class: class as u8 };
        self.counts[class][0] += 1.0;
        if self.now.is_multiple_of(HALF_LIFE) {
            self.counts.iter_mut().flatten().for_each(|count| *count /= 2.0);
        }
        if self.used < self.flushed.len() {
            return true;
        }
        let sums = self
            .counts
            .iter()
            .fold([0.0; 2], |sums, counts| [sums[0] + counts[0], sums[1] + counts[1]]);
        Self::useful(self.counts[class]) >= self.eager * Self::useful(sums)
    }

    fn flushed(&mut self, slot: Frame, _: u32) {
        self.used += usize::from(!self.order.contains(slot));
        self.order.remove(slot);
        self.order.push_newest(0, slot);
        self.flushed[slot.0 as usize] = self.now;
    }

    fn remove(&mut self, slot: Frame) {
        self.used -= usize::from(self.order.contains(slot));
        self.order.remove(slot);
    }

    fn removed(&mut self, page: Page) {
        self.learn(page);
        self.pages[page.0 as usize].at = 0;
    }

    fn victim(&mut self, _: [Option<Frame>; 2]) -> Frame {
        let slot = self.order.oldest(0).expect("a slot is in use");
        let stayed = f64::from(self.now.wrapping_sub(self.flushed[slot.0 as usize]));
        self.stay += (stayed - self.stay) * WEIGHT;
        slot
    }

    fn check(&self, used: usize) {
        self.order.check();
        assert_eq!(self.order.iter(0).count(), used, "the order holds the slots in use");
        assert_eq!(self.used, used, "and counts them");
        for [all, useful] in self.counts {
            assert!(all >= 0.0 && useful >= 0.0, "counts are of something");
        }
    }
}
