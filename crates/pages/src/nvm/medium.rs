//! A model of non-volatile memory behind a processor's caches.
//!
//! A store changes 8 bytes. It is sure to survive a power cut once its line was flushed after it
//! and a fence followed the flush. Before that, a power cut may lose it or not, each store by
//! itself: caches write lines back when they like, and in any order.

use super::LINE_BYTES;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use std::{cell::Cell, rc::Rc};

/// Words of 8 bytes in a line.
pub const LINE_WORDS: usize = LINE_BYTES as usize / 8;

/// Stores of one line that may be pending. The oldest arrives when there are more.
const PENDING_MAX: usize = 64;

/// The supply of power, shared by a medium and a store: it fails after a number of steps. A step is
/// a store of 8 bytes, a flush of a line, a fence, or a request to the device.
#[derive(Clone, Debug)]
pub struct Power(Rc<Cell<(u64, bool)>>);

impl Power {
    /// Power for this many steps.
    pub fn for_steps(steps: u64) -> Self {
        Self(Rc::new(Cell::new((steps, true))))
    }

    /// Takes a step. Returns false if the power has failed, and nothing happens.
    #[inline]
    pub fn step(&self) -> bool {
        let (left, _) = self.0.get();
        match left.checked_sub(1) {
            Some(left) => self.0.set((left, true)),
            None => self.0.set((0, false)),
        }
        left != 0
    }

    /// The power is back, for this many steps.
    pub fn renew(&self, steps: u64) {
        self.0.set((steps, true));
    }

    /// Returns whether each step until now was taken.
    pub fn is_on(&self) -> bool {
        self.0.get().1
    }

    /// Returns the steps that are left.
    pub fn left(&self) -> u64 {
        self.0.get().0
    }
}

/// Stores of a line that a fence has not made durable, the oldest first.
#[derive(Clone, Default)]
struct Pending {
    stores: Vec<(u8, u64)>,
    /// As many of them are flushed.
    flushed: usize,
}

/// The medium, addressed in words of 8 bytes.
pub struct Medium {
    power: Power,
    /// Content as the processor sees it.
    seen: Vec<u64>,
    /// Content that is sure to survive.
    durable: Vec<u64>,
    pending: Vec<Pending>,
    /// Lines with a flush that no fence has followed.
    flushed: Vec<u32>,
}

impl Medium {
    /// Returns a medium of this many lines, all zero.
    pub fn new(lines: usize, power: Power) -> Self {
        Self::with_content(vec![0; lines * LINE_WORDS], power)
    }

    fn with_content(content: Vec<u64>, power: Power) -> Self {
        let pending = vec![Pending::default(); content.len() / LINE_WORDS];
        Self { power, seen: content.clone(), durable: content, pending, flushed: Vec::new() }
    }

    /// Returns the words from `word` on, as the processor sees them.
    pub fn load(&self, word: usize, count: usize) -> &[u64] {
        &self.seen[word..word + count]
    }

    /// Stores words, one step each.
    pub fn store(&mut self, word: usize, value: u64) {
        if !self.power.step() {
            return;
        }
        self.seen[word] = value;
        let pending = &mut self.pending[word / LINE_WORDS];
        if pending.stores.len() == PENDING_MAX {
            let (oldest, value) = pending.stores.remove(0);
            pending.flushed = pending.flushed.saturating_sub(1);
            self.durable[word / LINE_WORDS * LINE_WORDS + usize::from(oldest)] = value;
        }
        pending.stores.push(((word % LINE_WORDS) as u8, value));
    }

    /// Flushes the line: a fence after it makes the stores until now durable.
    pub fn flush_line(&mut self, line: usize) {
        if !self.power.step() {
            return;
        }
        let pending = &mut self.pending[line];
        if pending.flushed == 0 && !pending.stores.is_empty() {
            self.flushed.push(line as u32);
        }
        pending.flushed = pending.stores.len();
    }

    /// Waits until every flushed store is durable.
    pub fn fence(&mut self) {
        if !self.power.step() {
            return;
        }
        for line in self.flushed.drain(..) {
            let first = line as usize * LINE_WORDS;
            let pending = &mut self.pending[line as usize];
            let flushed = std::mem::take(&mut pending.flushed);
            for (word, value) in pending.stores.drain(..flushed) {
                self.durable[first + usize::from(word)] = value;
            }
        }
    }

    /// Returns the medium after a power cut: any of the pending stores may have arrived. By the
    /// remainder of `seed` divided by four: none, all, each line's as a whole, each by itself.
    pub fn cut(&self, seed: u64, power: Power) -> Self {
        let mut content = self.durable.clone();
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        for (line, pending) in self.pending.iter().enumerate() {
            let line_arrives: bool = rng.random();
            for (word, value) in &pending.stores {
                let arrives = match seed % 4 {
                    0 => false,
                    1 => true,
                    2 => line_arrives,
                    _ => rng.random(),
                };
                if arrives {
                    content[line * LINE_WORDS + usize::from(*word)] = *value;
                }
            }
        }
        Self::with_content(content, power)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn medium() -> Medium {
        Medium::new(2, Power::for_steps(u64::MAX))
    }

    fn after_cut(medium: &Medium, word: usize) -> Vec<u64> {
        let power = Power::for_steps(0);
        let mut found: Vec<u64> =
            (0..64).map(|seed| medium.cut(seed, power.clone()).seen[word]).collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// A store survives for sure after a flush of its line and a fence, in this order.
    #[test]
    fn a_store_survives_after_flush_and_fence() {
        let mut medium = medium();
        medium.store(3, 7);
        assert_eq!((medium.load(3, 1), after_cut(&medium, 3)), (&[7][..], vec![0, 7]));
        medium.fence();
        assert_eq!(after_cut(&medium, 3), [0, 7], "the line was not flushed");
        medium.flush_line(1);
        medium.fence();
        assert_eq!(after_cut(&medium, 3), [0, 7], "another line was flushed");
        medium.flush_line(0);
        assert_eq!(after_cut(&medium, 3), [0, 7], "no fence followed");
        medium.store(3, 8);
        medium.fence();
        assert_eq!(after_cut(&medium, 3), [7, 8], "the second store was not flushed");
    }

    /// Stores arrive each by itself.
    #[test]
    fn stores_of_a_line_arrive_in_any_order() {
        let mut medium = medium();
        medium.store(0, 1);
        medium.store(1, 1);
        let mut found: Vec<_> =
            (0..64).map(|seed| medium.cut(seed, Power::for_steps(0)).load(0, 2).to_vec()).collect();
        found.sort();
        found.dedup();
        assert_eq!(found, [[0, 0], [0, 1], [1, 0], [1, 1]]);
    }

    /// Nothing happens after the power has failed.
    #[test]
    fn steps_end_with_the_power() {
        let power = Power::for_steps(2);
        let mut medium = Medium::new(1, power.clone());
        medium.store(0, 1);
        medium.flush_line(0);
        assert!(power.is_on());
        medium.fence();
        medium.store(1, 1);
        assert!(!power.is_on());
        assert_eq!((after_cut(&medium, 0), after_cut(&medium, 1)), (vec![0, 1], vec![0]));
    }
}
