//! The chance below which files are dropped, so that an allowance of bytes is expected back.
//!
//! Files that leave RAM differ in their chance of a later use. Of all sets of them whose expected
//! returns stay within the allowance, the files with the smallest chances have the most bytes. So
//! one threshold decides. It follows from the files that have left lately, dropped or written.

const BINS: usize = 64;
/// Bytes that have left RAM after which older ones count half, so that the threshold follows a
/// change of habits.
const RECENT_BYTES: f64 = 16_777_216.0;

/// Bytes that have left RAM, by their chance of a later use.
#[derive(Clone, Debug)]
pub(super) struct Threshold {
    again: f64,
    bins: [f64; BINS],
    bytes: f64,
    chance: f64,
}

impl Threshold {
    /// Returns one for which this share of the bytes that leave RAM may come back.
    pub(super) fn new(again: f64) -> Self {
        Self { again, bins: [0.0; BINS], bytes: 0.0, chance: 1.0 }
    }

    /// Returns the threshold: 1, above all chances, while nothing has left RAM.
    pub(super) fn chance(&self) -> f64 {
        self.chance
    }

    /// A file with this chance of a later use has left RAM.
    pub(super) fn left(&mut self, chance: f64, bytes: u64) {
        self.bins[bin_of(chance)] += bytes as f64;
        self.bytes += bytes as f64;
        if self.bytes > RECENT_BYTES {
            self.bytes /= 2.0;
            self.bins.iter_mut().for_each(|bin| *bin /= 2.0);
        }
        self.chance = self.computed();
    }

    fn computed(&self) -> f64 {
        let mut allowed = self.again * self.bytes;
        for (number, bytes) in self.bins.iter().enumerate() {
            let due = bytes * mean_of(number);
            if due > allowed {
                return (number as f64 + allowed / due) / BINS as f64;
            }
            allowed -= due;
        }
        1.0
    }

    pub(super) fn check(&self) {
        let sum: f64 = self.bins.iter().sum();
        assert!((sum - self.bytes).abs() <= 1e-6 * RECENT_BYTES, "{sum} of {}", self.bytes);
        assert!((0.0..=1.0).contains(&self.chance), "{}", self.chance);
        assert_eq!(self.chance, self.computed());
    }
}

fn bin_of(chance: f64) -> usize {
    ((chance * BINS as f64) as usize).min(BINS - 1)
}

fn mean_of(bin: usize) -> f64 {
    (bin as f64 + 0.5) / BINS as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_events::dice::Dice;

    /// The threshold is that of a list of all files, sorted by chance, of which the first may come
    /// back until the allowance is used up; but for the width of a bin.
    #[test]
    fn the_threshold_equals_that_of_a_sorted_list() {
        for seed in 0..50 {
            let mut dice = Dice::new(seed);
            let again = dice.below(40) as f64 / 100.0;
            let (mut ours, mut list) = (Threshold::new(again), Vec::<(f64, f64)>::new());
            for _ in 0..300 {
                let chance = dice.below(1001) as f64 / 1000.0;
                let bytes = 4096 * (1 + dice.below(64) as u64);
                ours.left(chance * chance, bytes);
                ours.check();
                list.push((chance * chance, bytes as f64));
                let sum = list.iter().map(|(_, bytes)| bytes).sum::<f64>();
                if sum > RECENT_BYTES {
                    list.iter_mut().for_each(|(_, bytes)| *bytes /= 2.0);
                }
                list.sort_by(|one, other| one.0.total_cmp(&other.0));
                let bytes = list.iter().map(|(_, bytes)| bytes).sum::<f64>();
                // A chance counts as that of the middle of its bin.
                let ends = |shift: f64| {
                    let mut due = 0.0;
                    let mut chances = list.iter().map(|(chance, bytes)| {
                        due += bytes * (chance + shift / BINS as f64).clamp(0.0, 1.0);
                        (due, *chance)
                    });
                    let first = chances.find(|(due, _)| *due > again * bytes);
                    first.map_or(1.0, |(_, chance)| chance)
                };
                let (least, most) = (ends(0.5), ends(-0.5));
                let width = 1.0 / BINS as f64;
                let found = ours.chance();
                assert!(
                    (least - width..=most + width).contains(&found),
                    "seed {seed}: {found} is not in {least} to {most}"
                );
            }
        }
    }
}
