//! The ratio of two series that were counted in the same windows, with its confidence interval.
//!
//! Both arms get the same requests at the same times, so the ratio estimator for paired
//! observations applies (Cochran, Sampling Techniques, 3rd ed., section 6.4): r = Σy / Σx, and the
//! residuals y − r·x of the windows give its error. A write that one arm does a window later than
//! the other adds to one residual and is missing from the next. Windows are therefore joined into
//! at most `GROUPS` groups.

/// Groups of windows, of which each has about the same number.
const GROUPS: usize = 15;
/// The fewest groups that tell an error.
const FEWEST: usize = 5;

/// A ratio with the half-width of its 95 % confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The second series divided by the first.
    pub value: f64,
    /// Half-width; `None` for too few windows.
    pub half_width: Option<f64>,
}

impl Ratio {
    /// Whether the two series differ, as far as these windows can tell.
    pub fn differs(self) -> Option<bool> {
        self.half_width.map(|half| (self.value - 1.0).abs() > half)
    }
}

/// Returns the ratio of `other` to `base`; `None` if `base` is zero.
pub fn ratio(base: &[u64], other: &[u64]) -> Option<Ratio> {
    let pairs: Vec<(f64, f64)> =
        base.iter().zip(other).map(|(x, y)| (*x as f64, *y as f64)).collect();
    let sum =
        |part: &[(f64, f64)]| part.iter().fold((0.0, 0.0), |(x, y), pair| (x + pair.0, y + pair.1));
    let (x, y) = sum(&pairs);
    if x == 0.0 {
        return None;
    }
    let value = y / x;
    let groups: Vec<_> = pairs.chunks(pairs.len().div_ceil(GROUPS)).map(sum).collect();
    let n = groups.len() as f64;
    let half_width = (groups.len() >= FEWEST).then(|| {
        let squares: f64 = groups.iter().map(|(x, y)| (y - value * x).powi(2)).sum();
        student(groups.len() - 1) * (n / (n - 1.0) * squares).sqrt() / x
    });
    Some(Ratio { value, half_width })
}

/// The 97.5 % quantile of Student's t distribution for 4 to 14 degrees of freedom.
fn student(freedom: usize) -> f64 {
    const TABLE: [f64; GROUPS - FEWEST + 1] =
        [2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145];
    TABLE[freedom + 1 - FEWEST]
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    /// Bytes of 30 windows, and of another arm that writes `factor` times as much. A part of each
    /// window's writes comes a window later in one of the arms, as with flushers out of step.
    fn series(seed: u64, factor: f64) -> (Vec<u64>, Vec<u64>) {
        let mut random = Pcg64::seed_from_u64(seed);
        let mut arms = ([0.0; 31], [0.0; 31]);
        for n in 0..30 {
            let bytes = 1e6 * (1.0 + 4.0 * random.random::<f64>().powi(3));
            for (arm, factor) in [(&mut arms.0, 1.0), (&mut arms.1, factor)] {
                let bytes = bytes * factor * (1.0 + 0.01 * (random.random::<f64>() - 0.5));
                let later = bytes * 0.04 * random.random::<f64>();
                arm[n] += bytes - later;
                arm[n + 1] += later;
            }
        }
        let whole = |arm: [f64; 31]| arm.iter().map(|bytes| *bytes as u64).collect();
        (whole(arms.0), whole(arms.1))
    }

    fn found(factor: f64) -> usize {
        (0..1000)
            .filter(|seed| {
                let (base, other) = series(*seed, factor);
                ratio(&base, &other).unwrap().differs().unwrap()
            })
            .count()
    }

    /// Of 1,000 pairs.
    #[test]
    fn equal_arms_seldom_differ_and_planted_effects_are_found() {
        assert!(found(1.0) <= 50, "{}", found(1.0));
        assert!(found(0.97) >= 950, "{}", found(0.97));
        assert!(found(1.03) >= 950, "{}", found(1.03));
    }

    #[test]
    fn few_windows_give_a_ratio_without_an_interval() {
        let few = ratio(&[10, 10, 10, 10], &[5, 5, 5, 5]).unwrap();
        assert_eq!((few.value, few.half_width, few.differs()), (0.5, None, None));
        assert_eq!(ratio(&[0, 0], &[1, 1]), None);
        let equal = ratio(&[7; 9], &[7; 9]).unwrap();
        assert_eq!((equal.value, equal.half_width), (1.0, Some(0.0)));
    }
}
