//! What came of a replay: how many, how much, how long.

use crate::{Op, Request};
use hdrhistogram::Histogram;

/// Times, to three digits, up to an hour.
#[derive(Clone, Debug)]
pub struct Times(Histogram<u64>);

const HOUR_NS: u64 = 3_600_000_000_000;

impl Default for Times {
    fn default() -> Self {
        Self(Histogram::new_with_max(HOUR_NS, 3).expect("three digits up to an hour can be had"))
    }
}

impl Times {
    /// One more.
    #[inline]
    pub fn add(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// How many.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// At least this share of them took no longer, nanoseconds.
    pub fn at(&self, share: f64) -> u64 {
        self.0.value_at_quantile(share)
    }

    /// The shortest, nanoseconds.
    pub fn min(&self) -> u64 {
        self.0.min()
    }

    /// The longest, nanoseconds.
    pub fn max(&self) -> u64 {
        self.0.max()
    }

    /// Nanoseconds; 0 of none.
    pub fn mean(&self) -> f64 {
        self.0.mean()
    }
}

/// What was done of one operation.
#[derive(Clone, Debug, Default)]
pub struct Done {
    /// Pieces.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// From start to completion, a piece.
    pub times: Times,
}

/// What was done.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    by_op: [Done; Op::ALL.len()],
    /// How long after they were due requests were started.
    pub late: Times,
    /// From the beginning to the last completion, nanoseconds.
    pub elapsed_ns: u64,
}

impl Tally {
    /// A piece was done.
    #[inline]
    pub(crate) fn add(&mut self, request: &Request, took_ns: u64) {
        let done = &mut self.by_op[request.op as usize];
        done.count += 1;
        // A sync has no bytes of its own.
        done.bytes += request.len;
        done.times.add(took_ns);
    }

    /// Each operation that was done at all.
    pub fn ops(&self) -> impl Iterator<Item = (Op, &Done)> {
        Op::ALL.into_iter().map(|op| (op, &self.by_op[op as usize])).filter(|(_, done)| done.count > 0)
    }

    /// Pieces done.
    pub fn count(&self) -> u64 {
        self.by_op.iter().map(|done| done.count).sum()
    }

    /// Bytes read and written.
    pub fn moved_bytes(&self) -> u64 {
        let moved = |(op, done): (Op, &Done)| if op == Op::Discard { 0 } else { done.bytes };
        self.ops().map(moved).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Beside the sorted list: within the histogram's three digits.
        #[test]
        fn percentiles_are_those_of_the_sorted_list(mut all in prop::collection::vec(0u64..10_000_000_000, 1..300)) {
            let mut times = Times::default();
            all.iter().for_each(|ns| times.add(*ns));
            all.sort_unstable();
            for share in [0.5, 0.9, 0.99, 0.999, 1.0] {
                let nth = ((share * all.len() as f64).ceil() as usize).max(1) - 1;
                let (exact, told) = (all[nth] as f64, times.at(share) as f64);
                prop_assert!((told - exact).abs() <= exact * 0.001 + 1.0, "{share}: {told}, not {exact}");
            }
            prop_assert_eq!(times.count(), all.len() as u64);
        }
    }
}
