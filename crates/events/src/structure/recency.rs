//! The order of last use of small integers, with the rank of each: an LRU stack that reports stack
//! distances.
//!
//! Every use takes the next position of a long row and empties the previous one. A bitmap marks the
//! full positions. A rank is the number of full positions behind one, from sums over blocks of 512
//! in a Fenwick tree that fits the near caches. At the end of the row all integers move together to
//! its beginning.

use prefetch_index::prefetch_index;

/// Positions summed in one node of the tree.
const BLOCK: u32 = 512;
const BLOCK_WORDS: usize = BLOCK as usize / 64;
const NOWHERE: u32 = u32::MAX;

/// Order of last use. Memory: 4 bytes for every integer up to the largest, and at most 3 bits of
/// the row for each one in use.
#[derive(Default)]
pub struct Recency {
    /// Position of each integer; [`NOWHERE`] before its first use.
    place: Vec<u32>,
    full: Vec<u64>,
    /// Fenwick tree over the blocks of `full`.
    sums: Vec<u32>,
    next: u32,
    used: u32,
}

impl Recency {
    /// Uses `id` and returns the number of others used since its last use; `None` on its first use.
    #[inline]
    pub fn touch(&mut self, id: u32) -> Option<u32> {
        let id = id as usize;
        if id >= self.place.len() {
            self.place.resize(id + 1, NOWHERE);
        }
        if self.next as usize == self.full.len() * 64 {
            self.close_up();
        }
        let rank = match self.place[id] {
            NOWHERE => {
                self.used += 1;
                None
            }
            place => {
                let rank = self.used - self.up_to(place);
                self.full[place as usize / 64] &= !(1 << (place % 64));
                self.add(place, u32::MAX);
                Some(rank)
            }
        };
        self.place[id] = self.next;
        self.full[self.next as usize / 64] |= 1 << (self.next % 64);
        self.add(self.next, 1);
        self.next += 1;
        rank
    }

    /// Prefetches the position of `id` into the near caches. Changes nothing.
    #[inline(always)]
    pub fn prefetch(&self, id: u32) {
        prefetch_index(&self.place, id as usize);
    }

    /// Returns the bytes of memory held.
    pub fn held_bytes(&self) -> usize {
        self.place.len() * 4 + self.full.len() * 8 + self.sums.len() * 4
    }

    /// Number of full positions up to and including this one.
    #[inline]
    fn up_to(&self, place: u32) -> u32 {
        let word = place as usize / 64;
        let block = word / BLOCK_WORDS;
        let mut sum = (self.full[word] & (!0 >> (63 - place % 64))).count_ones();
        sum +=
            self.full[block * BLOCK_WORDS..word].iter().map(|bits| bits.count_ones()).sum::<u32>();
        let mut at = block;
        while at > 0 {
            sum = sum.wrapping_add(self.sums[at - 1]);
            at &= at - 1;
        }
        sum
    }

    /// Adds `by`, which is 1, or `u32::MAX` to subtract one.
    #[inline]
    fn add(&mut self, place: u32, by: u32) {
        let mut at = (place / BLOCK) as usize + 1;
        while at <= self.sums.len() {
            self.sums[at - 1] = self.sums[at - 1].wrapping_add(by);
            at += at & at.wrapping_neg();
        }
    }

    /// Moves all integers together to the beginning of a row of which more than half is free.
    #[cold]
    fn close_up(&mut self) {
        let mut before = 0;
        let before: Vec<u32> = self
            .full
            .iter()
            .map(|bits| {
                let first = before;
                before += bits.count_ones();
                first
            })
            .collect();
        for place in self.place.iter_mut().filter(|place| **place != NOWHERE) {
            let word = *place as usize / 64;
            let behind = self.full[word] & ((1 << (*place % 64)) - 1);
            *place = before[word] + behind.count_ones();
        }
        // With 2^31 integers the row could not double; their positions alone would take 8 GiB.
        let blocks = (self.used / BLOCK * 2 + 8).min(u32::MAX / BLOCK);
        self.full = vec![0; blocks as usize * BLOCK_WORDS];
        for (n, bits) in self.full.iter_mut().enumerate() {
            let here = (self.used as usize).saturating_sub(n * 64).min(64) as u32;
            *bits = if here == 0 { 0 } else { !0 >> (64 - here) };
        }
        self.sums = self
            .full
            .chunks(BLOCK_WORDS)
            .map(|block| block.iter().map(|bits| bits.count_ones()).sum())
            .collect();
        for n in 1..=self.sums.len() {
            let above = n + (n & n.wrapping_neg());
            if above <= self.sums.len() {
                self.sums[above - 1] += self.sums[n - 1];
            }
        }
        self.next = self.used;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The order as a list, last used first.
    fn naive(list: &mut Vec<u32>, id: u32) -> Option<u32> {
        let rank = list.iter().position(|other| *other == id);
        rank.map(|rank| list.remove(rank));
        list.insert(0, id);
        rank.map(|rank| rank as u32)
    }

    #[test]
    fn ranks_by_hand() {
        let mut order = Recency::default();
        let ranks: Vec<_> = [7, 7, 3, 7, 0, 3].into_iter().map(|id| order.touch(id)).collect();
        assert_eq!(ranks, [None, Some(0), None, Some(1), None, Some(2)]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]
        /// Histories that are long enough for several moves to the beginning, with few and with
        /// many integers.
        #[test]
        fn agrees_with_a_list(ids in 1..3000u32, seed in any::<u64>()) {
            let (mut order, mut list, mut state) = (Recency::default(), Vec::new(), seed | 1);
            for step in 0..12_000 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                // Half of the uses go to few integers.
                let range = if state >> 63 == 0 { ids } else { ids.min(9) };
                let id = (state >> 33) as u32 % range;
                prop_assert_eq!(order.touch(id), naive(&mut list, id), "step {}", step);
            }
        }
    }
}
