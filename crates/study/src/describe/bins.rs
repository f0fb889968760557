//! Bins of equal width over a range that grows. When the bins do not suffice, they are joined in
//! pairs.
//!
//! So everything is counted once, as it arrives. After the first join at least half of the bins are
//! always in use.

/// Numbers below this have a bin of their own in [`logarithmic`].
const EXACT: u64 = 128;

/// Returns the bin of a number from a long-tailed distribution: one for each number below 128, then
/// sixteen for each power of two. A figure shows no difference, and there are fewer than a thousand
/// bins.
pub(super) fn logarithmic(n: u64) -> u64 {
    if n < EXACT {
        return n;
    }
    let octave = n.ilog2();
    EXACT + u64::from(octave - EXACT.ilog2()) * 16 + (n >> (octave - 4)) % 16
}

/// Bins over the numbers from 0 on.
#[derive(Clone, Copy)]
pub(super) struct Bins {
    most: u64,
    width: u64,
}

impl Bins {
    /// Creates at most `most` bins, an even number of four or more; `width` is the initial width of
    /// a bin.
    pub(super) const fn new(most: usize, width: u64) -> Self {
        assert!(most >= 4 && most.is_multiple_of(2) && width > 0);
        Self { most: most as u64, width }
    }

    /// Returns the width of a bin.
    pub(super) fn width(&self) -> u64 {
        self.width
    }

    /// Returns the bin of `at`; `None` if the bins do not reach it and must be joined first,
    /// perhaps more than once.
    #[inline]
    pub(super) fn get(&self, at: u64) -> Option<usize> {
        let bin = at / self.width;
        (bin < self.most).then_some(bin as usize)
    }

    /// Joins bins 2n and 2n + 1 into bin n. The caller joins their counts.
    pub(super) fn join(&mut self) {
        self.width *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bins are in order, none is empty, and each is at most a sixteenth wide.
    #[test]
    fn logarithmic_bins() {
        let bins: Vec<_> = (0..100_000).map(logarithmic).collect();
        assert_eq!(bins[..=128], (0..=128).collect::<Vec<_>>());
        assert!(bins.windows(2).all(|pair| pair[1] == pair[0] || pair[1] == pair[0] + 1));
        for bins in bins.chunk_by(|a, b| a == b) {
            assert!(bins.len() * 16 <= logarithmic_first(bins[0]) as usize + 16, "{}", bins[0]);
        }
        assert!(logarithmic(u64::MAX) < 1100);
    }

    fn logarithmic_first(bin: u64) -> u64 {
        (0..).find(|n| logarithmic(*n) == bin).unwrap()
    }
}
