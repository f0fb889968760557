//! The state of a die that was overwritten at random for a long time, computed where it is asked
//! for: a die of 64 GiB needs a table of its blocks, and no table of its pages.
//!
//! How many valid pages each block holds follows from the closed form for greedy garbage collection
//! under uniform random writes (Bux & Iliadis, "Performance of greedy garbage collection in
//! flash-based solid-state drives", Perform. Eval. 2010; Desnoyers, "Analytic modeling of SSD write
//! performance", SYSTOR '12). Which places of a block are stale, and which page is at which valid
//! place, are pseudo-random permutations.
//!
//! The random writes were of a NAND page each, not of a page of 4 KiB: file systems write and free
//! extents, and large reads of an aged device are not as slow as reads of single pages.
//!
//! Every block is full but two: the active one, and an erased one. The active block holds the pages
//! that garbage collection copied into it last, and a part of the writes since.

/// Number of pages that a block holds when it is collected, as a level and a share.
///
/// Let blocks be filled at rate ρ a write. A block with k valid pages loses one at rate k / L a
/// write, with L pages of capacity. Greedy collects blocks that have come down to some j or j − 1,
/// so at each level above j as many blocks arrive as leave: N_k · k / L = ρ, and there are N_k =
/// ρL/k of them. Of the blocks that reach j, a share f loses one more page, and the others are
/// collected at j. So N_j = fρL/j, and a collected block has j − f valid pages on average. All
/// blocks: ρL (Σ_{k=j+1}^{n} 1/k + f/j) = flash/n. Each collection frees n − j + f pages: ρ = 1/(n
/// − j + f), and the write amplification is n ρ.
///
/// `ratio` is flash / capacity, at least 1. With so much flash that collected blocks are empty, j
/// is 0.
pub(super) fn greedy(ratio: f64, block_pages: u32) -> (u32, f64) {
    let n = f64::from(block_pages);
    let mut above = 0.0;
    // Σ_{k>j} 1/k + f/j = ratio (n − j + f)/n is linear in f; the solution is the level where its
    // root lies between 0 and 1.
    for j in (1..=block_pages).rev() {
        let level = f64::from(j);
        let slope = 1.0 / level - ratio / n;
        let share = (ratio * (n - level) / n - above) / slope;
        // A ratio of 1 gives 0, apart from rounding.
        if j < block_pages && (-1e-9..=1.0 + 1e-9).contains(&share) && slope > 0.0 {
            return (j, share.clamp(0.0, 1.0));
        }
        above += 1.0 / level;
    }
    (0, 0.0)
}

/// A die in the steady state of random writes.
#[derive(Clone)]
pub(super) struct Aged {
    /// Pages written together.
    unit: u32,
    /// Units in a block.
    block_units: u32,
    /// By block, the full ones first and then the active one: number of valid units in the blocks
    /// before it. The last entry is the number of units.
    before: Vec<u32>,
    units: Shuffle,
    slots: Shuffle,
}

impl Aged {
    /// `pages` pages in `blocks` blocks, of which the last is erased and the one before it active.
    /// Both sizes are multiples of `unit`. `phase` from 0 to 1: how much of the active block's free
    /// part was written since the last collection.
    pub(super) fn new(
        pages: u32,
        blocks: u32,
        block_pages: u32,
        unit: u32,
        phase: f64,
        seed: u64,
    ) -> Self {
        let (units, block_units, full) = (pages / unit, block_pages / unit, blocks - 2);
        let n = f64::from(block_units);
        let ratio = f64::from(full) * n / f64::from(units);
        let (level, share) = greedy(ratio.max(1.0), block_units);
        let copied = (f64::from(level) - share).max(0.0);
        // The full blocks have to hold the rest.
        let least = u64::from(units).saturating_sub(u64::from(full) * u64::from(block_units));
        let active = (copied + phase * (n - copied)) as u64;
        let active = active.max(least).min(u64::from(units.min(block_units))) as u32;
        let mut before = Vec::with_capacity(full as usize + 2);
        let mut sum = 0;
        before.push(sum);
        for count in counts(units - active, full, block_units) {
            sum += count;
            before.push(sum);
        }
        before.push(units);
        Self {
            unit,
            block_units,
            before,
            units: Shuffle::new(units, seed),
            slots: Shuffle::new(block_units, mix(seed)),
        }
    }

    /// Number of full blocks.
    pub(super) fn full(&self) -> u32 {
        self.before.len() as u32 - 2
    }

    /// Number of valid pages of a block; those of the active block are its first ones.
    pub(super) fn valid(&self, block: u32) -> u32 {
        self.valid_units(block) * self.unit
    }

    fn valid_units(&self, block: u32) -> u32 {
        match self.before.get(block as usize..block as usize + 2) {
            Some(&[before, after]) => after - before,
            _ => 0,
        }
    }

    pub(super) fn place_of(&self, page: u32) -> u32 {
        let number = self.units.permute(page / self.unit, 0);
        let block = self.before.partition_point(|before| *before <= number) as u32 - 1;
        let rank = number - self.before[block as usize];
        let slot =
            if block < self.full() { self.slots.permute(rank, u64::from(block)) } else { rank };
        (block * self.block_units + slot) * self.unit + page % self.unit
    }

    /// Page at a place, which must be a valid one.
    pub(super) fn page_at(&self, place: u32) -> u32 {
        let slot = place / self.unit;
        let (block, slot) = (slot / self.block_units, slot % self.block_units);
        let number = self.before[block as usize] + self.rank(block, slot);
        self.units.inverse(number, 0) * self.unit + place % self.unit
    }

    /// Whether the page written to a place of a full block is no longer valid.
    pub(super) fn is_stale(&self, block: u32, slot: u32) -> bool {
        self.rank(block, slot / self.unit) >= self.valid_units(block)
    }

    /// Number of a slot of a block in the order in which its valid slots come first.
    fn rank(&self, block: u32, slot: u32) -> u32 {
        if block < self.full() { self.slots.inverse(slot, u64::from(block)) } else { slot }
    }
}

/// Valid pages (here units) of each of `blocks` full blocks, ascending, with the sum `pages`.
///
/// Over the blocks from the fullest to the emptiest, the number of pages up to a block is a curve:
/// N_k blocks at slope k for each level. A block holds the difference of the rounded curve, so that
/// the sum is exact, and no block holds more than it can.
fn counts(pages: u32, blocks: u32, block_pages: u32) -> Vec<u32> {
    let all = f64::from(pages);
    let ratio = (f64::from(blocks) * f64::from(block_pages) / all.max(1.0)).max(1.0);
    let (lowest, share) = greedy(ratio, block_pages);
    let rate = 1.0 / (f64::from(block_pages - lowest) + share);
    let mut level = block_pages;
    let (mut from, mut below) = (0.0, 0.0);
    let mut to = rate * all / f64::from(level.max(1));
    let mut before = 0;
    let mut counts: Vec<u32> = (1..=blocks)
        .map(|n| {
            while f64::from(n) > to && level > lowest {
                below += (to - from) * f64::from(level);
                from = to;
                level -= 1;
                to += rate * all / f64::from(level.max(1));
            }
            let sum = (below + (f64::from(n) - from) * f64::from(level)).round().min(all) as u32;
            let sum = if n == blocks { pages } else { sum };
            let count = sum - before;
            before = sum;
            count
        })
        .collect();
    counts.reverse();
    counts
}

/// Pseudo-random permutations of the numbers below `n`: a Feistel network over the next power of
/// four, applied until the result is below `n`.
#[derive(Clone)]
struct Shuffle {
    n: u64,
    half_bits: u32,
    keys: [u64; 4],
}

impl Shuffle {
    fn new(n: u32, seed: u64) -> Self {
        let bits = u64::from(n.max(2) - 1).ilog2() + 1;
        let key = |round: u64| mix(seed.wrapping_add(round));
        Self { n: n.into(), half_bits: bits.div_ceil(2), keys: [key(1), key(2), key(3), key(4)] }
    }

    fn round(&self, half: u64, key: u64, which: u64) -> u64 {
        mix(half ^ key ^ which << 32) & ((1 << self.half_bits) - 1)
    }

    /// Result of the permutation number `which`.
    fn permute(&self, number: u32, which: u64) -> u32 {
        let mut number = u64::from(number);
        loop {
            let (mut high, mut low) =
                (number >> self.half_bits, number & ((1 << self.half_bits) - 1));
            for key in self.keys {
                (high, low) = (low, high ^ self.round(low, key, which));
            }
            number = high << self.half_bits | low;
            if number < self.n {
                return number as u32;
            }
        }
    }

    /// Inverse of [`Shuffle::permute`].
    fn inverse(&self, number: u32, which: u64) -> u32 {
        let mut number = u64::from(number);
        loop {
            let (mut high, mut low) =
                (number >> self.half_bits, number & ((1 << self.half_bits) - 1));
            for key in self.keys.into_iter().rev() {
                (high, low) = (low ^ self.round(high, key, which), high);
            }
            number = high << self.half_bits | low;
            if number < self.n {
                return number as u32;
            }
        }
    }
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood, OOPSLA '14).
fn mix(mut word: u64) -> u64 {
    word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every page has a place of its own, no stale place has a page, and no block holds more
        /// than it can.
        #[test]
        fn pages_and_places_agree(
            pages in 1u32..3000,
            spare in 2u32..200,
            (unit, block_pages) in
                prop::sample::select(vec![(1u32, 1u32), (1, 2), (2, 8), (1, 16), (7, 70), (8, 256)]),
            phase in 0.0..1.0,
            seed in any::<u64>(),
        ) {
            let pages = pages.next_multiple_of(unit);
            let blocks = pages.div_ceil(block_pages) + spare;
            let aged = Aged::new(pages, blocks, block_pages, unit, phase, seed);
            let full = aged.full();
            prop_assert_eq!(full, blocks - 2);
            let mut taken = vec![false; (blocks * block_pages) as usize];
            for page in 0..pages {
                let place = aged.place_of(page);
                prop_assert_eq!(aged.page_at(place), page);
                prop_assert!(!std::mem::replace(&mut taken[place as usize], true));
            }
            for block in 0..blocks {
                let slots = &taken[(block * block_pages) as usize..][..block_pages as usize];
                let valid = slots.iter().filter(|slot| **slot).count() as u32;
                prop_assert_eq!(valid, aged.valid(block));
                for (slot, taken) in slots.iter().enumerate() {
                    let expected = match block {
                        _ if block < full => !aged.is_stale(block, slot as u32),
                        _ if block == full => (slot as u32) < valid,
                        _ => false,
                    };
                    prop_assert_eq!(*taken, expected, "block {} slot {}", block, slot);
                }
            }
        }
    }

    #[test]
    fn a_shuffle_has_no_order() {
        let shuffle = Shuffle::new(100_000, 7);
        let rises = (1..100_000)
            .filter(|n| shuffle.permute(*n, 3) > shuffle.permute(n - 1, 3))
            .count() as f64;
        assert!((rises / 99_999.0 - 0.5).abs() < 0.01, "{rises}");
        let near = (1..100_000)
            .filter(|n| shuffle.permute(*n, 3).abs_diff(shuffle.permute(n - 1, 3)) < 1000)
            .count();
        assert!(near < 2500, "{near}");
    }
}
