//! The estimators of a trial: a ratio of costs and a difference of means, over matched pairs of
//! sessions, with 95 % intervals.
//!
//! **The cost of a byte.** Sessions differ in how much programs write, by orders of magnitude, and
//! neither arm chooses that. Each block gives one pair: a session of either arm, its cost and its
//! programs' own bytes. Both sessions are scaled to the bytes of the smaller, or to those of the
//! median pair if these are fewer. The estimate is the ratio of the scaled costs' sums. A session
//! of a few KiB weighs little, and one huge download does not decide a trial: without the limit,
//! a few pairs carry most of the weight, and an effect of 60 % is found in fewer trials of six
//! days. The weights depend on programs' own bytes alone, so they bias no arm. If large sessions
//! save another share than small ones, the estimate is nearer to that of the median session.
//!
//! **The interval** is Fieller's ("Some Problems in Interval Estimation", 1954): all ratios ρ for
//! which the mean over pairs of `cost with sifting − ρ · cost without` differs from zero by less
//! than Student's t allows. It needs no logarithm: a session that writes nothing, as a sifter that
//! drops everything has, is an ordinary value. Drift cancels in the difference. If ρ is the truth,
//! chance has assigned the two sessions of a pair, so the difference is symmetric around zero, and
//! a t interval of symmetric values with heavy tails is too wide rather than too narrow (Efron,
//! "Student's t-Test Under Symmetry Conditions", 1969).
//!
//! A percentile bootstrap over blocks (Efron and Tibshirani, "An Introduction to the Bootstrap",
//! 1993, §13.3), as for the slices of a trace, needs more blocks than a week has: with 6 to 10 it
//! is too narrow: a test counts how often it holds a planted effect. A t interval of the logarithms
//! of the ratios needs costs above zero.

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Fewest pairs that allow a claim: if sifting has no effect, five pairs all favour the same arm in
/// 6 % of trials, six in 3 %.
pub const BLOCKS_MIN: usize = 6;

/// An estimate with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Interval95 {
    /// The estimate.
    pub estimate: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end; infinite if the pairs set no bound.
    pub high: f64,
}

/// A session as one half of a pair.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct PairedCost {
    /// Bytes that it cost.
    pub cost_bytes: f64,
    /// Bytes that programs wrote by themselves, above zero.
    pub own_bytes: f64,
}

/// Returns the cost of a byte in the first sessions of the pairs as a ratio of that in the second.
/// `None` if there are fewer than two pairs, or no cost in the second sessions.
pub fn ratio(pairs: &[(PairedCost, PairedCost)]) -> Option<Interval95> {
    let smaller = |(one, other): &(PairedCost, PairedCost)| one.own_bytes.min(other.own_bytes);
    let mut weights: Vec<f64> = pairs.iter().map(smaller).collect();
    weights.sort_unstable_by(f64::total_cmp);
    let median = *weights.get(weights.len() / 2)?;
    let scaled = pairs.iter().map(|pair| {
        let scale = |of: &PairedCost| of.cost_bytes / of.own_bytes * smaller(pair).min(median);
        (scale(&pair.0), scale(&pair.1))
    });
    fieller(&scaled.collect::<Vec<_>>())
}

fn fieller(pairs: &[(f64, f64)]) -> Option<Interval95> {
    let n = pairs.len() as f64;
    let (first, second) =
        pairs.iter().fold((0.0, 0.0), |sums, pair| (sums.0 + pair.0 / n, sums.1 + pair.1 / n));
    if pairs.len() < 2 || second <= 0.0 {
        return None;
    }
    let t2 = t975(pairs.len() - 1).powi(2) / (n * (n - 1.0));
    let of_squares = |product: fn(f64, f64) -> f64| {
        t2 * pairs.iter().map(|pair| product(pair.0 - first, pair.1 - second)).sum::<f64>()
    };
    // (first − ρ · second)² ≤ t² · variance of the mean difference, as a quadratic in ρ.
    let square = second * second - of_squares(|_, b| b * b);
    let linear = first * second - of_squares(|a, b| a * b);
    let constant = first * first - of_squares(|a, _| a * a);
    let estimate = (first / second).max(0.0);
    if square <= 0.0 {
        return Some(Interval95 { estimate, low: 0.0, high: f64::INFINITY });
    }
    let root = (linear * linear - square * constant).max(0.0).sqrt();
    // No cost is below zero in the long run.
    let [low, high] = [linear - root, linear + root].map(|end| (end / square).max(0.0));
    Some(Interval95 { estimate, low: low.min(estimate), high: high.max(estimate) })
}

/// Returns the mean of these values with its t interval; `None` of fewer than two.
pub fn mean(values: &[f64]) -> Option<Interval95> {
    if values.len() < 2 {
        return None;
    }
    let n = values.len() as f64;
    let estimate = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|value| (value - estimate).powi(2)).sum::<f64>() / (n - 1.0);
    let half = t975(values.len() - 1) * (variance / n).sqrt();
    Some(Interval95 { estimate, low: estimate - half, high: estimate + half })
}

/// Returns how many pairs narrow an interval to this half-width, if as many as `pairs` give `half`
/// and the values go on to vary as they did. The answer is at most `max`.
pub fn pairs_for(half_wanted: f64, half: f64, pairs: usize, max: usize) -> usize {
    let width = |pairs: usize| t975(pairs - 1) / (pairs as f64).sqrt();
    let share = half_wanted / half;
    let enough = |more: &usize| width(*more) <= share * width(pairs);
    // The width falls with each pair, so the candidates are sorted.
    let (mut low, mut high) = (2, max.max(2));
    while low < high {
        let middle = low.midpoint(high);
        if enough(&middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

/// Returns the 97.5 % quantile of Student's t with these degrees of freedom, at least 1.
pub fn t975(freedom: usize) -> f64 {
    let t = StudentsT::new(0.0, 1.0, freedom as f64).expect("there is at least one degree");
    t.inverse_cdf(0.975)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() < 1e-4 * other.abs().max(1.0)
    }

    /// Quantiles of published tables.
    #[test]
    fn quantiles_are_those_of_tables() {
        let table = [(1, 12.7062), (5, 2.5706), (11, 2.2010), (12, 2.1788), (15, 2.1314)];
        for (freedom, t) in table.into_iter().chain([(30, 2.0423), (60, 2.0003), (120, 1.9799)]) {
            assert!(near(t975(freedom), t), "{freedom}: {}", t975(freedom));
        }
        assert!((1..500).all(|freedom| t975(freedom) > t975(freedom + 1)));
    }

    /// With constant costs in the second sessions, Fieller's interval is that of the mean.
    #[test]
    fn a_constant_denominator_gives_the_t_interval() {
        let firsts = [3.0, 5.0, 4.0, 6.5, 2.0, 4.4];
        let found = fieller(&firsts.map(|first| (first, 8.0))).unwrap();
        let expected = mean(&firsts).unwrap();
        let pairs = [
            (found.estimate, expected.estimate),
            (found.low, expected.low),
            (found.high, expected.high),
        ];
        assert!(pairs.iter().all(|(one, other)| near(*one, other / 8.0)), "{pairs:?}");
    }

    /// Both ends are where the t statistic of the differences reaches its quantile.
    #[test]
    fn the_ends_solve_their_equation() {
        let pairs = [(3.0, 9.0), (5.0, 7.5), (4.0, 12.0), (6.5, 10.0), (2.0, 8.0), (0.0, 6.0)];
        let found = fieller(&pairs).unwrap();
        for (end, sign) in [(found.low, 1.0), (found.high, -1.0)] {
            let of = mean(&pairs.map(|(first, second)| first - end * second)).unwrap();
            let bound = if sign > 0.0 { of.low } else { of.high };
            assert!(bound.abs() < 1e-9, "{end}: {of:?}");
        }
    }

    #[test]
    fn the_larger_session_is_scaled_to_the_smaller() {
        let cost = |cost_bytes, own_bytes| PairedCost { cost_bytes, own_bytes };
        let pairs = [
            (cost(5.0, 10.0), cost(1000.0, 1000.0)),
            (cost(500.0, 1000.0), cost(4.0, 4.0)),
            (cost(6.0, 12.0), cost(12.0, 12.0)),
            (cost(1e6, 2e6), cost(1e6, 1e6)),
        ];
        let found = ratio(&pairs).unwrap();
        assert!(near(found.estimate, 0.5) && near(found.low, 0.5) && near(found.high, 0.5));
        // The last pair weighs 12 bytes, as the median: 4, 10, 12 and 12.
        let mut other = pairs;
        other[3].0.cost_bytes = 0.0;
        assert!(near(ratio(&other).unwrap().estimate, 0.5 * 26.0 / 38.0));
    }

    #[test]
    fn nothing_to_compare_gives_no_ratio() {
        assert_eq!(fieller(&[]), None);
        assert_eq!(fieller(&[(1.0, 2.0)]), None);
        assert_eq!(fieller(&[(1.0, 0.0), (2.0, 0.0)]), None);
        // A second cost that could as well be nothing sets no bound.
        let found = fieller(&[(1.0, 0.0), (1.0, 100.0), (1.0, 0.0)]).unwrap();
        assert_eq!((found.low, found.high), (0.0, f64::INFINITY));
        // A sifter that drops everything.
        let nothing = fieller(&[(0.0, 5.0), (0.0, 6.0), (0.0, 5.5)]).unwrap();
        assert_eq!((nothing.estimate, nothing.low, nothing.high), (0.0, 0.0, 0.0));
    }

    #[test]
    fn more_pairs_are_foreseen_for_a_narrower_interval() {
        assert_eq!(pairs_for(0.2, 0.2, 8, 1000), 8);
        let more = pairs_for(0.1, 0.2, 8, 1000);
        assert!((22..32).contains(&more), "{more}: a quarter more than four times fewer quantiles");
        assert_eq!(pairs_for(1e-9, 0.2, 8, 1000), 1000);
        assert!(pairs_for(0.4, 0.2, 8, 1000) < 8);
    }
}
