//! The ratio of two series that were counted in the same windows, with its confidence interval.
//!
//! Both arms get the same requests at the same times, so the ratio estimator for paired
//! observations applies (Cochran, Sampling Techniques, 3rd ed., section 6.4): r = Σy / Σx, and the
//! residuals y − r·x of the windows give its error. A write that one arm does a window later than
//! the other adds to one residual and is missing from the next. Windows are therefore joined into
//! at most [`GROUPS`] groups.

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
