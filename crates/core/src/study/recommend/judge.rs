//! Whether a change saves something: its savings by time slice, a bootstrap interval of their mean,
//! and the number of slices that it wins.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// Number of bootstrap resamples.
pub const RESAMPLES: usize = 10_000;

/// Fewest slices with work that allow a recommendation.
pub const SLICES_MIN: usize = 10;

/// Share of the slices that a recommended change wins.
pub const WINS_MIN: f64 = 0.9;

const SEED: u64 = 0x5eed_f1a5_4000_0001;

/// A change against the baseline, over the slices in which one of them works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// Cost of the baseline in all slices.
    pub baseline: f64,
    /// Cost that the change saves in all slices; negative if it costs more.
    pub saving: f64,
    /// 95 % interval of `saving`: percentiles 2.5 and 97.5 of the bootstrap, at most `baseline`.
    pub interval: (f64, f64),
    /// Slices in which the change costs less.
    pub wins: usize,
    /// Slices in which one of the two costs something.
    pub slices: usize,
}

impl Judgement {
    /// Compares costs by slice.
    ///
    /// # Panics
    /// If the numbers of slices differ.
    pub fn new(baseline: &[f64], change: &[f64]) -> Self {
        assert_eq!(baseline.len(), change.len(), "both were cut into the same slices");
        let works = |(base, change): &(&f64, &f64)| **base != 0.0 || **change != 0.0;
        let pairs = || baseline.iter().zip(change).filter(works);
        let savings: Vec<f64> = pairs().map(|(base, change)| base - change).collect();
        let (baseline, (low, high)) = (baseline.iter().sum::<f64>(), interval(&savings));
        Self {
            baseline,
            saving: savings.iter().sum(),
            // A draw that repeats the dearest slices adds up to more than the whole baseline, but
            // no change can save more than that.
            interval: (low.min(baseline), high.min(baseline)),
            wins: savings.iter().filter(|saving| **saving > 0.0).count(),
            slices: savings.len(),
        }
    }

    /// Whether the change is recommended: there are enough slices, the interval is above zero, and
    /// the change wins nine of ten slices.
    pub fn recommends(&self) -> bool {
        self.slices >= SLICES_MIN
            && self.interval.0 > 0.0
            && self.wins as f64 >= WINS_MIN * self.slices as f64
    }

    /// Returns a part of the baseline's cost as a share; 0 if that is nothing.
    pub fn share(&self, part: f64) -> f64 {
        if self.baseline == 0.0 { 0.0 } else { part / self.baseline }
    }
}

/// Returns the interval of a sum over the slices.
fn interval(savings: &[f64]) -> (f64, f64) {
    bootstrap(savings.len(), |drawn| drawn.iter().map(|slice| savings[*slice]).sum())
}

/// Returns the 95 % interval of a statistic of this many slices, a percentile bootstrap (Efron &
/// Tibshirani, "An Introduction to the Bootstrap", 1993, §13.3): slices are drawn with replacement,
/// and `statistic` gets the numbers of those drawn. The seed is fixed. Without slices it is 0.
pub fn bootstrap(slices: usize, statistic: impl Fn(&[usize]) -> f64) -> (f64, f64) {
    if slices == 0 {
        return (0.0, 0.0);
    }
    let mut random = Pcg64::seed_from_u64(SEED);
    let mut drawn = vec![0; slices];
    let mut resample = || {
        drawn.fill_with(|| random.random_range(0..slices));
        statistic(&drawn)
    };
    let mut found: Vec<f64> = (0..RESAMPLES).map(|_| resample()).collect();
    found.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| found[(share * (RESAMPLES - 1) as f64).round() as usize];
    (at(0.025), at(0.975))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Promises: Recommend 3.
    #[test]
    fn a_change_that_wins_everywhere_is_recommended() {
        let baseline = vec![10.0; 20];
        let change: Vec<f64> = (0..20).map(|n| 8.0 + f64::from(n % 2)).collect();
        let found = Judgement::new(&baseline, &change);
        assert_eq!((found.saving, found.wins, found.slices), (30.0, 20, 20));
        assert!(found.recommends());
        assert!(found.interval.0 >= 20.0 && found.interval.1 <= 40.0, "{found:?}");
        assert!(found.interval.0 < 30.0 && found.interval.1 > 30.0, "{found:?}");
        assert_eq!(found.share(found.saving), 0.15);
        let worse = Judgement::new(&change, &baseline);
        assert!(!worse.recommends() && worse.saving == -30.0 && worse.interval.1 < 0.0);
    }

    /// A large saving in one slice is a saving on average, but no reason for a change.
    // Promises: Recommend 3.
    #[test]
    fn one_slice_does_not_recommend_a_change() {
        let baseline: Vec<f64> = (0..20).map(|n| if n == 7 { 1000.0 } else { 10.0 }).collect();
        let found = Judgement::new(&baseline, &[10.0; 20]);
        assert!(found.saving == 990.0 && found.wins == 1 && !found.recommends(), "{found:?}");
        assert_eq!(found.interval.0, 0.0);
    }

    /// The interval once ended at 184 % of the baseline, where nine tenths of its cost fell in a
    /// few slices. No change saves more than everything.
    // Promises: Recommend 3.
    #[test]
    fn no_interval_ends_above_the_whole_baseline() {
        let baseline: Vec<f64> = (0..20).map(|n| if n < 2 { 90.0 } else { 1.0 }).collect();
        let found = Judgement::new(&baseline, &[0.1; 20]);
        let savings: Vec<f64> = baseline.iter().map(|base| base - 0.1).collect();
        assert!(interval(&savings).1 > found.baseline, "{found:?}");
        assert_eq!((found.interval.1, found.share(found.interval.1)), (198.0, 1.0));
    }

    // Promises: Recommend 3.
    #[test]
    fn no_difference_recommends_nothing() {
        let found = Judgement::new(&[5.0; 20], &[5.0; 20]);
        assert_eq!((found.saving, found.interval, found.wins), (0.0, (0.0, 0.0), 0));
        assert!(!found.recommends());
        let idle = Judgement::new(&[0.0; 20], &[0.0; 20]);
        assert!(idle.slices == 0 && !idle.recommends() && idle.share(1.0) == 0.0);
    }

    /// Slices without work say nothing, and few slices with work are not enough.
    // Promises: Recommend 3.
    #[test]
    fn idle_slices_are_left_out() {
        let work = |slices: usize, cost: f64| -> Vec<f64> {
            (0..20).map(|n| if n < slices { cost } else { 0.0 }).collect()
        };
        let ten = Judgement::new(&work(10, 4.0), &work(10, 3.0));
        assert!(ten.slices == 10 && ten.recommends());
        let nine = Judgement::new(&work(9, 4.0), &work(9, 3.0));
        assert!(nine.interval.0 > 0.0 && nine.wins == 9 && !nine.recommends());
        // 17 of 20 slices are too few wins, although the interval is far above zero.
        let lost: Vec<f64> = (0..20).map(|n| if n < 17 { 1.0 } else { 4.1 }).collect();
        let lost = Judgement::new(&[4.0; 20], &lost);
        assert!(lost.interval.0 > 0.0 && !lost.recommends(), "{lost:?}");
    }

    /// Against the exact distribution: two slices, of which each is drawn with one half.
    // Promises: Recommend 3.
    #[test]
    fn the_interval_is_that_of_the_bootstrap() {
        let savings = [0.0, 1.0];
        // The sum of two draws is 0, 1 or 2 with 1/4, 1/2 and 1/4.
        assert_eq!(interval(&savings), (0.0, 2.0));
        // With twenty equal halves the sum is binomial (n = 20, p = 1/2): percentiles 6 and 14.
        let halves: Vec<f64> = (0..20).map(|n| f64::from(n % 2)).collect();
        assert_eq!(interval(&halves), (6.0, 14.0));
    }
}
