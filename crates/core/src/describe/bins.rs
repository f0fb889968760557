//! Bins of equal width over what grows without end: when they do not reach, they are joined two by two.
//!
//! So everything is counted as it comes, once, and at least half of the bins that there may be are in use, as soon as there
//! was enough to fill them.

/// Numbers below this have a bin each by [`logarithmic`].
const EXACT: u64 = 128;

/// Which bin of a long-tailed number: one each below 128, then sixteen from each power of two to the next. So no picture
/// shows the difference, and there are fewer than a thousand.
pub(super) fn logarithmic(n: u64) -> u64 {
    if n < EXACT {
        return n;
    }
    let octave = n.ilog2();
    EXACT + u64::from(octave - EXACT.ilog2()) * 16 + (n >> (octave - 4)) % 16
}

/// The bins of a number, from 0 on.
#[derive(Clone, Copy)]
pub(super) struct Bins {
    most: u64,
    width: u64,
}

impl Bins {
    /// At most `most` bins, four or more and an even number; `width` is that of one at first.
    pub(super) const fn new(most: usize, width: u64) -> Self {
        assert!(most >= 4 && most.is_multiple_of(2) && width > 0);
        Self { most: most as u64, width }
    }

    /// How much one bin takes.
    pub(super) fn width(&self) -> u64 {
        self.width
    }

    /// The bin of `at`. Nothing where the bins do not reach: then they have to be joined first, perhaps more than once.
    #[inline]
    pub(super) fn of(&self, at: u64) -> Option<usize> {
        let bin = at / self.width;
        (bin < self.most).then_some(bin as usize)
    }

    /// From now on bins 2n and 2n + 1 are bin n. What was counted in them is for the caller to join.
    pub(super) fn join(&mut self) {
        self.width *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In order, none empty, a sixteenth wide at most.
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
