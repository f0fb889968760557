//! The saving of a change.

use flashsift_files::judge::Judgement;
use serde::{Deserialize, Serialize};

/// Bytes that a change saves each day, if days are like the time that was examined.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saving {
    /// Expected value. Negative: the change costs writes.
    pub bytes_a_day: f64,
    /// Share of everything that reaches flash.
    pub share: f64,
    /// The same in the first half of the time.
    pub first_half_share: f64,
    /// The same in the second half.
    pub second_half_share: f64,
}

const DAY_US: f64 = 86_400e6;
/// Savings below this share of all writes are not worth a remedy.
const WORTH: f64 = 0.005;

/// Compares the bytes of each part of the time before and after a change.
pub(super) fn judged(before: &[u64], after: &[u64]) -> Judgement {
    let [before, after] =
        [before, after].map(|parts| parts.iter().map(|bytes| *bytes as f64).collect::<Vec<_>>());
    Judgement::new(&before, &after)
}

impl Saving {
    /// Scales what was found in this time.
    pub(super) fn new(found: &Judgement, duration_us: u64) -> Self {
        let [first_half_share, second_half_share] = found.halves;
        Self {
            bytes_a_day: found.saving * (DAY_US / duration_us.max(1) as f64),
            share: found.share(found.saving),
            first_half_share,
            second_half_share,
        }
    }

    /// A saving that a counter of the kernel tells, beside all other bytes written.
    pub(super) fn exactly(bytes: u64, others_bytes: u64, duration_us: u64) -> Self {
        let bytes_a_day = bytes as f64 * DAY_US / duration_us.max(1) as f64;
        let share = bytes as f64 / bytes.saturating_add(others_bytes).max(1) as f64;
        Self { bytes_a_day, share, first_half_share: share, second_half_share: share }
    }

    /// Whether it is worth to be named.
    pub(super) fn is_any(&self) -> bool {
        self.bytes_a_day > 0.0 && self.share >= WORTH
    }
}
