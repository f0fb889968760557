//! Estimates from samples of a trace's pages ([`flashsift_caches::trace::sample`]), with their
//! error.

use super::{ResultRow, error::StudyError};
use flashsift_caches::{
    policy::{self, Kind},
    trace::sample::SAMPLES,
};
use flashsift_files::trial::estimate::t975;
use flashsift_pages::{system::Outcome, writeback::Modes};

/// The smallest cache of a sample, in frames, whose estimate can be trusted: below, single pages
/// decide.
pub const FRAMES_MIN: u32 = 16;

/// A figure of the whole trace, estimated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// Mean of the samples.
    pub value: f64,
    /// Half of the 95 % interval, from the spread of the samples.
    pub error: f64,
}

impl Estimate {
    fn new(values: [f64; SAMPLES]) -> Self {
        let n = SAMPLES as f64;
        let value = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|one| (one - value).powi(2)).sum::<f64>() / (n - 1.0);
        Self { value, error: t975(SAMPLES - 1) * (variance / n).sqrt() }
    }
}

/// A policy at one size, estimated.
#[derive(Clone, Debug, PartialEq)]
pub struct SampledRow {
    /// The policy's name with the parameters that were given.
    pub policy: String,
    /// Whether the policy knows the future.
    pub kind: Kind,
    /// The cache size in frames, of the whole trace.
    pub frames: u32,
    /// Page hits / page accesses.
    pub hit_ratio: Estimate,
    /// Pages read from storage.
    pub device_reads: Estimate,
    /// Pages written to storage.
    pub device_writes: Estimate,
    /// Dirty pages in the cache at the end.
    pub dirty_left: Estimate,
    /// CPU time of the simulation, by access of the samples.
    pub cpu_ns_per_access: f64,
}

impl SampledRow {
    /// Combines the rows of the samples. `accesses`: page accesses of the whole trace.
    ///
    /// The hits are corrected as the paper does (§3.2, SHARDS-adj): a sample with more accesses
    /// than its rate has some very hot page too many, and their accesses would have hit.
    pub fn new(frames: u32, rate: f64, accesses: u64, rows: [&ResultRow; SAMPLES]) -> Self {
        let expected = rate * accesses as f64;
        let of =
            |figure: &dyn Fn(&Outcome) -> f64| Estimate::new(rows.map(|row| figure(&row.outcome)));
        let hits = |outcome: &Outcome| {
            let missing = expected - outcome.accesses() as f64;
            ((outcome.hits() as f64 + missing) / expected.max(1.0)).clamp(0.0, 1.0)
        };
        Self {
            policy: rows[0].policy.clone(),
            kind: rows[0].kind,
            frames,
            hit_ratio: of(&hits),
            device_reads: of(&|outcome| outcome.device.reads as f64 / rate),
            device_writes: of(&|outcome| outcome.device.writes as f64 / rate),
            dirty_left: of(&|outcome| outcome.dirty_left as f64 / rate),
            cpu_ns_per_access: rows.iter().map(|row| row.cpu_ns_per_access).sum::<f64>()
                / SAMPLES as f64,
        }
    }
}

/// Returns the frames of a sample's cache.
pub fn sampled_frames(frames: u32, rate: f64) -> u32 {
    ((f64::from(frames) * rate).round() as u32).max(1)
}

/// Returns the modes of write-back for a sample: limits in pages shrink with it.
///
/// # Errors
/// A mode orders pages by their place, which a sample does not keep.
pub fn sampled_modes(mut modes: Modes, rate: f64) -> Result<Modes, StudyError> {
    if modes.cluster.is_some() {
        return Err(StudyError::Sampled("--writeback cluster".to_owned()));
    }
    if let Some(expire) = &mut modes.expire {
        expire.ram_pages = ((expire.ram_pages as f64 * rate) as u64).max(1);
    }
    Ok(modes)
}

/// Checks that a policy does not order pages by their place.
///
/// # Errors
/// It does.
pub fn suits_sample(policy: &policy::Selection) -> Result<(), StudyError> {
    match policy.spec.by_place {
        true => Err(StudyError::Sampled(policy.spec.name.to_owned())),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::Estimate;

    // Promises: Sampling and sweeps 1.
    #[test]
    fn an_interval_is_students() {
        let same = Estimate::new([2.0; 4]);
        assert_eq!((same.value, same.error), (2.0, 0.0));
        let spread = Estimate::new([1.0, 2.0, 3.0, 4.0]);
        // Standard deviation 1.29099, standard error 0.645497.
        assert!((spread.value - 2.5).abs() < 1e-12 && (spread.error - 2.05426).abs() < 1e-4);
    }
}
