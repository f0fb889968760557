//! The rule of all advice: a change saves in both halves of the time, and in nine of ten slices.

/// Number of time slices.
pub const SLICES: usize = 20;

/// Fewest slices that allow a recommendation.
pub const SLICES_MIN: usize = 10;

/// Share of the slices that a recommended change wins.
pub const WINS_MIN: f64 = 0.9;

/// Share of the cost that a recommended change saves at least in each half.
pub const SHARE_MIN: f64 = 0.01;

/// A change against the baseline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// Cost of the baseline in all slices.
    pub baseline: f64,
    /// Cost that the change saves in all slices; negative if it costs more.
    pub saving: f64,
    /// Share of the cost that it saves in the first half of the slices, and in the second: what one
    /// promises, the other confirms or not.
    pub halves: [f64; 2],
    /// Slices in which the change costs less.
    pub wins: usize,
    /// Slices in which the costs differ.
    pub slices: usize,
}

/// The reason for which a change is not recommended.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Unconfirmed {
    /// The costs differ in too few slices.
    #[error("it changes something in {0} of the slices, fewer than {SLICES_MIN}")]
    Slices(usize),
    /// A half does not confirm it.
    #[error("it saves less than 1 % in the {0} half")]
    Half(&'static str),
    /// It costs more in too many slices.
    #[error("it saves in {wins} of {slices} slices, fewer than nine of ten")]
    Wins {
        /// See [`Judgement::wins`].
        wins: usize,
        /// See [`Judgement::slices`].
        slices: usize,
    },
}

impl Judgement {
    /// Compares costs by slice.
    ///
    /// # Panics
    /// If the numbers of slices differ.
    pub fn new(baseline: &[f64], change: &[f64]) -> Self {
        assert_eq!(baseline.len(), change.len(), "both were cut into the same slices");
        let savings = baseline.iter().zip(change).map(|(base, change)| base - change);
        let savings: Vec<f64> = savings.collect();
        let middle = savings.len() / 2;
        let half = |range: std::ops::Range<usize>| {
            share(savings[range.clone()].iter().sum(), baseline[range].iter().sum())
        };
        Self {
            baseline: baseline.iter().sum(),
            saving: savings.iter().sum(),
            halves: [half(0..middle), half(middle..savings.len())],
            wins: savings.iter().filter(|saving| **saving > 0.0).count(),
            slices: savings.iter().filter(|saving| **saving != 0.0).count(),
        }
    }

    /// Returns the reason for which the change is not recommended: too few slices differ, a half
    /// does not save [`SHARE_MIN`], or fewer than nine of ten slices that differ are won.
    ///
    /// # Errors
    /// The first reason.
    pub fn confirmed(&self) -> Result<(), Unconfirmed> {
        let Self { wins, slices, .. } = *self;
        if slices < SLICES_MIN {
            return Err(Unconfirmed::Slices(slices));
        }
        for (share, half) in self.halves.iter().zip(["first", "second"]) {
            if *share < SHARE_MIN {
                return Err(Unconfirmed::Half(half));
            }
        }
        match wins as f64 >= WINS_MIN * slices as f64 {
            true => Ok(()),
            false => Err(Unconfirmed::Wins { wins, slices }),
        }
    }

    /// Whether the change is recommended.
    pub fn recommends(&self) -> bool {
        self.confirmed().is_ok()
    }

    /// Returns the share that is saved in the half that saves less.
    pub fn lesser_half(&self) -> f64 {
        self.halves[0].min(self.halves[1])
    }

    /// Returns a part of the baseline's cost as a share; 0 if that is nothing.
    pub fn share(&self, part: f64) -> f64 {
        share(part, self.baseline)
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if whole == 0.0 { 0.0 } else { part / whole }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Promises: Recommend 3.
    #[test]
    fn a_change_that_wins_everywhere_is_recommended() {
        let baseline = vec![10.0; 20];
        let change: Vec<f64> = (0..20).map(|n| if n < 10 { 8.0 } else { 9.0 }).collect();
        let found = Judgement::new(&baseline, &change);
        assert_eq!((found.saving, found.wins, found.slices), (30.0, 20, 20));
        assert_eq!((found.halves, found.confirmed()), ([0.2, 0.1], Ok(())));
        assert_eq!((found.share(found.saving), found.lesser_half()), (0.15, 0.1));
        let worse = Judgement::new(&change, &baseline);
        assert!(!worse.recommends() && worse.saving == -30.0 && worse.halves[1] < 0.0);
    }

    /// A large saving in one slice is a saving on average, but no reason for a change. A saving in
    /// one half alone once lay far above zero with its interval, and the next day it was not there.
    // Promises: Recommend 3.
    #[test]
    fn both_halves_confirm_a_change() {
        let baseline: Vec<f64> = (0..20).map(|n| if n == 7 { 1000.0 } else { 10.0 }).collect();
        let found = Judgement::new(&baseline, &[10.0; 20]);
        assert_eq!((found.saving, found.wins), (990.0, 1));
        assert_eq!(found.confirmed(), Err(Unconfirmed::Slices(1)));
        let saves = |first: f64, second: f64| -> Judgement {
            let change = (0..20).map(|n| 100.0 - if n < 10 { first } else { second });
            Judgement::new(&[100.0; 20], &change.collect::<Vec<_>>())
        };
        assert_eq!(saves(20.0, 0.5).confirmed(), Err(Unconfirmed::Half("second")));
        assert_eq!(saves(0.5, 20.0).confirmed(), Err(Unconfirmed::Half("first")));
        assert!(saves(20.0, 0.0).confirmed() == Err(Unconfirmed::Half("second")));
        assert!(saves(1.0, 1.0).recommends());
    }

    // Promises: Recommend 3.
    #[test]
    fn no_difference_recommends_nothing() {
        let found = Judgement::new(&[5.0; 20], &[5.0; 20]);
        assert_eq!((found.saving, found.halves, found.wins), (0.0, [0.0; 2], 0));
        assert!(!found.recommends());
        let idle = Judgement::new(&[0.0; 20], &[0.0; 20]);
        assert!(idle.slices == 0 && !idle.recommends() && idle.share(1.0) == 0.0);
    }

    /// Slices in which nothing differs say nothing, and few that differ are not enough.
    // Promises: Recommend 3.
    #[test]
    fn slices_that_are_equal_are_left_out() {
        let differs = |slices: usize| {
            let change = (0..20).map(|n| if n % 10 < slices / 2 { 3.0 } else { 4.0 });
            Judgement::new(&[4.0; 20], &change.collect::<Vec<_>>())
        };
        let ten = differs(10);
        assert!((ten.wins, ten.slices) == (10, 10) && ten.recommends());
        assert_eq!(differs(8).confirmed(), Err(Unconfirmed::Slices(8)));
        // 17 of 20 slices are too few wins, although both halves save much.
        let lost: Vec<f64> = (0..20).map(|n| if n % 7 == 0 { 4.1 } else { 1.0 }).collect();
        let lost = Judgement::new(&[4.0; 20], &lost);
        assert_eq!(lost.confirmed(), Err(Unconfirmed::Wins { wins: 17, slices: 20 }));
        assert!(lost.lesser_half() > 0.5, "{lost:?}");
    }
}
