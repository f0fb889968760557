//! An ordered set of the integers `0..n`: a bitmap with summaries of 64 to one, so that finding the
//! next member reads a few words even where members are rare. With dense page ranks it replaces
//! SpatialClock's balanced tree.

use prefetch_index::prefetch_index;

/// An ordered set of small integers. Memory: n/8 bytes and a sixty-fourth more.
pub struct BitTree {
    /// `levels[0]` has one bit for each integer. A bit of `levels[k + 1]` says whether that word of
    /// `levels[k]` has any bit set.
    levels: Vec<Vec<u64>>,
}

#[inline(always)]
fn bit(at: u32) -> u64 {
    1 << (at % 64)
}

impl BitTree {
    /// Creates an empty set over `0..n`.
    pub fn new(n: u32) -> Self {
        let mut levels = Vec::new();
        let mut bits = (n as usize).max(1);
        loop {
            bits = bits.div_ceil(64);
            levels.push(vec![0; bits]);
            if bits == 1 {
                return Self { levels };
            }
        }
    }

    /// Whether `at` is a member.
    #[inline(always)]
    pub fn contains(&self, at: u32) -> bool {
        self.levels[0][at as usize / 64] & bit(at) != 0
    }

    /// Adds `at` to the set.
    #[inline]
    pub fn insert(&mut self, mut at: u32) {
        for level in &mut self.levels {
            let word = &mut level[at as usize / 64];
            let was = *word;
            *word |= bit(at);
            if was != 0 {
                return;
            }
            at /= 64;
        }
    }

    /// Removes `at` from the set.
    #[inline]
    pub fn remove(&mut self, mut at: u32) {
        for level in &mut self.levels {
            let word = &mut level[at as usize / 64];
            *word &= !bit(at);
            if *word != 0 {
                return;
            }
            at /= 64;
        }
    }

    /// Returns the members in `64 * word..64 * (word + 1)` as bits.
    #[inline(always)]
    pub fn word(&self, word: u32) -> u64 {
        self.levels[0][word as usize]
    }

    /// Returns the first word after `word` that holds a member.
    #[inline]
    pub fn word_after(&self, word: u32) -> Option<u32> {
        match self.levels.get(1) {
            Some(_) => self.next_from(1, word.checked_add(1)?),
            None => None,
        }
    }

    /// Returns the smallest member `>= at`.
    #[inline]
    pub fn next(&self, at: u32) -> Option<u32> {
        self.next_from(0, at)
    }

    /// Climbs from `bottom` until a word has a bit at or after the wanted place, then descends to
    /// it.
    fn next_from(&self, bottom: usize, mut at: u32) -> Option<u32> {
        let mut level = bottom;
        loop {
            let words = self.levels.get(level)?;
            let word = at as usize / 64;
            if let Some(rest) = words.get(word).map(|bits| bits & (!0 << (at % 64)))
                && rest != 0
            {
                let mut found = (word as u32) * 64 + rest.trailing_zeros();
                while level > bottom {
                    level -= 1;
                    found = found * 64 + self.levels[level][found as usize].trailing_zeros();
                }
                return Some(found);
            }
            at = word as u32 + 1;
            level += 1;
        }
    }

    /// Returns the largest member `<= at`.
    pub fn previous(&self, mut at: u32) -> Option<u32> {
        let mut level = 0;
        loop {
            let word = at as usize / 64;
            let bits = self.levels.get(level)?[word] & (!0 >> (63 - at % 64));
            if bits != 0 {
                let mut found = word as u32 * 64 + bits.ilog2();
                while level > 0 {
                    level -= 1;
                    found = found * 64 + self.levels[level][found as usize].ilog2();
                }
                return Some(found);
            }
            at = (word as u32).checked_sub(1)?;
            level += 1;
        }
    }

    /// Prefetches the word that holds `at` into the near caches. Changes nothing.
    #[inline(always)]
    pub fn prefetch(&self, at: u32) {
        prefetch_index(&self.levels[0], at as usize / 64);
    }

    /// Checks every summary bit against its word.
    ///
    /// # Panics
    ///
    /// A summary bit is wrong.
    pub fn check(&self) {
        for pair in self.levels.windows(2) {
            for (n, word) in pair[0].iter().enumerate() {
                assert_eq!(
                    *word != 0,
                    pair[1][n / 64] & bit(n as u32) != 0,
                    "summary of word {n} is wrong"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Against the standard library's ordered set, at sizes around one, two and three levels.
        #[test]
        fn agrees_with_btreeset(
            n in prop::sample::select(vec![1u32, 63, 64, 65, 4095, 4096, 4097, 300_000]),
            ops in prop::collection::vec((any::<bool>(), any::<u32>()), 0..200),
        ) {
            let mut tree = BitTree::new(n);
            let mut model = BTreeSet::new();
            for (add, at) in ops {
                // Half of the members lie close together, so that words become full and empty.
                let at = if at % 2 == 0 { at % n } else { at % n.min(70) };
                if add { tree.insert(at); model.insert(at); } else { tree.remove(at); model.remove(&at); }
                tree.check();
                for probe in [0, at, at + 1, n - 1] {
                    prop_assert_eq!(tree.next(probe), model.range(probe..).next().copied());
                    if probe < n {
                        let previous = model.range(..=probe).next_back().copied();
                        prop_assert_eq!(tree.previous(probe), previous);
                    }
                    let word = probe / 64;
                    prop_assert_eq!(
                        tree.word_after(word),
                        model.range((word + 1) * 64..).next().map(|member| member / 64)
                    );
                }
                prop_assert_eq!(tree.contains(at), model.contains(&at));
            }
        }
    }
}
