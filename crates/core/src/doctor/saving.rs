//! The saving of a change, with its uncertainty.

use crate::study::recommend::Judgement;
use serde::{Deserialize, Serialize};

/// Bytes that a change saves each day, if days are like the time that was examined.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Saving {
    /// Expected value. Negative: the change costs writes.
    pub bytes_a_day: f64,
    /// Bounds of the 95 % interval, as [`Judgement`] finds it over parts of the time.
    pub low_bytes_a_day: f64,
    /// See [`Self::low_bytes_a_day`].
    pub high_bytes_a_day: f64,
    /// Share of everything that reaches flash.
    pub share: f64,
}

const DAY_US: f64 = 86_400e6;
/// Savings below this share of all writes are not worth a remedy.
const WORTH: f64 = 0.005;

impl Saving {
    /// Compares the bytes of each part of the time before and after the change.
    pub(super) fn new(before: &[u64], after: &[u64], duration_us: u64) -> Self {
        let [before, after] = [before, after]
            .map(|parts| parts.iter().map(|bytes| *bytes as f64).collect::<Vec<_>>());
        let found = Judgement::new(&before, &after);
        let a_day = DAY_US / duration_us.max(1) as f64;
        Self {
            bytes_a_day: found.saving * a_day,
            low_bytes_a_day: found.interval.0 * a_day,
            high_bytes_a_day: found.interval.1 * a_day,
            share: found.share(found.saving),
        }
    }

    /// A saving that a counter of the kernel tells, beside all other bytes written.
    pub(super) fn exactly(bytes: u64, others_bytes: u64, duration_us: u64) -> Self {
        let bytes_a_day = bytes as f64 * DAY_US / duration_us.max(1) as f64;
        let (low_bytes_a_day, high_bytes_a_day) = (bytes_a_day, bytes_a_day);
        let share = bytes as f64 / bytes.saturating_add(others_bytes).max(1) as f64;
        Self { bytes_a_day, low_bytes_a_day, high_bytes_a_day, share }
    }

    /// Whether it is worth to be named.
    pub(super) fn is_any(&self) -> bool {
        self.bytes_a_day > 0.0 && self.share >= WORTH
    }
}
