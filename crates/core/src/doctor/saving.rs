//! The saving of a change, with its uncertainty.

use serde::Serialize;

/// Bytes that a change saves each day, if days are like the time that was examined.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Saving {
    /// Expected value. Negative: the change costs writes.
    pub bytes_a_day: f64,
    /// Bounds of the 95 % interval: the percentile bootstrap over parts of the time.
    pub low_bytes_a_day: f64,
    /// See [`Self::low_bytes_a_day`].
    pub high_bytes_a_day: f64,
    /// Share of everything that reaches flash.
    pub share: f64,
}

const DAY_US: f64 = 86_400e6;
const RESAMPLES: usize = 2_000;
/// Savings below this share of all writes are not worth a remedy.
const WORTH: f64 = 0.005;

impl Saving {
    /// Compares the bytes of each part of the time before and after the change.
    pub(super) fn of(before: &[u64], after: &[u64], duration_us: u64) -> Self {
        let parts = before.iter().zip(after).map(|(before, after)| *before as f64 - *after as f64);
        let differences: Vec<f64> = parts.collect();
        let a_day = DAY_US / duration_us.max(1) as f64;
        let all: u64 = before.iter().sum();
        let saved: f64 = differences.iter().sum();
        // A fixed seed: the same events give the same interval.
        let mut random: u64 = 0x9e37_79b9_7f4a_7c15;
        let mut sums: Vec<f64> = (0..RESAMPLES)
            .map(|_| {
                differences
                    .iter()
                    .map(|_| {
                        // xorshift64 (Marsaglia 2003).
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        differences[(random % differences.len() as u64) as usize]
                    })
                    .sum()
            })
            .collect();
        sums.sort_by(f64::total_cmp);
        let at = |share: f64| sums[((RESAMPLES - 1) as f64 * share) as usize] * a_day;
        Self {
            bytes_a_day: saved * a_day,
            low_bytes_a_day: at(0.025),
            high_bytes_a_day: at(0.975),
            share: if all == 0 { 0.0 } else { saved / all as f64 },
        }
    }

    /// A saving that a counter of the kernel tells, so that only days differ.
    pub(super) fn exactly(bytes: u64, duration_us: u64) -> Self {
        let bytes_a_day = bytes as f64 * DAY_US / duration_us.max(1) as f64;
        let (low_bytes_a_day, high_bytes_a_day) = (bytes_a_day, bytes_a_day);
        Self { bytes_a_day, low_bytes_a_day, high_bytes_a_day, share: 1.0 }
    }

    /// Whether it is worth to be named.
    pub(super) fn is_any(&self) -> bool {
        self.bytes_a_day > 0.0 && self.share >= WORTH
    }
}
