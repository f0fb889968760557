//! Summary of a replay: number of requests, bytes, and latencies.

use crate::{Op, Request};
use hdrhistogram::Histogram;

/// Histogram of latencies up to an hour, with three significant digits.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

const HOUR_NS: u64 = 3_600_000_000_000;

impl Default for Latencies {
    fn default() -> Self {
        Self(Histogram::new_with_max(HOUR_NS, 3).expect("three digits up to an hour are supported"))
    }
}

impl Latencies {
    /// Adds one latency in nanoseconds.
    #[inline]
    pub fn add(&mut self, ns: u64) {
        self.0.saturating_record(ns);
    }

    /// Returns the number of latencies.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the quantile at `share`, nanoseconds.
    pub fn at(&self, share: f64) -> u64 {
        self.0.value_at_quantile(share)
    }

    /// Returns the shortest latency, nanoseconds.
    pub fn min(&self) -> u64 {
        self.0.min()
    }

    /// Returns the longest latency, nanoseconds.
    pub fn max(&self) -> u64 {
        self.0.max()
    }

    /// Returns the mean latency, nanoseconds; 0 if there is none.
    pub fn mean(&self) -> f64 {
        self.0.mean()
    }
}

/// Summary of one operation.
#[derive(Clone, Debug, Default)]
pub struct OpTally {
    /// Number of pieces.
    pub count: u64,
    /// Bytes of all pieces.
    pub bytes: u64,
    /// Latency of each piece, from start to completion.
    pub times: Latencies,
    /// Sum of the latencies, nanoseconds.
    pub total_ns: u64,
}

/// Summary of a replay.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    by_op: [OpTally; Op::ALL.len()],
    /// Delay between the due time and the start of each request.
    pub late: Latencies,
    /// From the first start to the last completion, nanoseconds.
    pub elapsed_ns: u64,
}

impl Tally {
    /// Adds a completed piece.
    #[inline]
    pub(crate) fn add(&mut self, request: &Request, took_ns: u64) {
        let done = &mut self.by_op[request.op as usize];
        done.count += 1;
        // A sync moves no bytes.
        done.bytes += request.len;
        done.times.add(took_ns);
        done.total_ns += took_ns;
    }

    /// Returns the operations that were performed at least once.
    pub fn ops(&self) -> impl Iterator<Item = (Op, &OpTally)> {
        Op::ALL
            .into_iter()
            .map(|op| (op, &self.by_op[op as usize]))
            .filter(|(_, done)| done.count > 0)
    }

    /// Returns the number of pieces, of accesses to memory too.
    pub fn count(&self) -> u64 {
        self.by_op.iter().map(|done| done.count).sum()
    }

    /// Returns the number of pieces that the device got.
    pub fn requests(&self) -> u64 {
        self.ops().filter(|(op, _)| !op.is_memory()).map(|(_, done)| done.count).sum()
    }

    /// Returns the bytes read from the device and written to it.
    pub fn moved_bytes(&self) -> u64 {
        let moved = |(op, done): (Op, &OpTally)| match op {
            Op::Discard => 0,
            op if op.is_memory() => 0,
            _ => done.bytes,
        };
        self.ops().map(moved).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Quantiles match those of the sorted list within the three digits of the histogram.
        // Promises: Replay 11.
        #[test]
        fn percentiles_are_those_of_the_sorted_list(mut all in prop::collection::vec(0u64..10_000_000_000, 1..300)) {
            let mut times = Latencies::default();
            all.iter().for_each(|ns| times.add(*ns));
            all.sort_unstable();
            for share in [0.5, 0.9, 0.99, 0.999, 1.0] {
                let nth = ((share * all.len() as f64).ceil() as usize).max(1) - 1;
                let (exact, found) = (all[nth] as f64, times.at(share) as f64);
                prop_assert!((found - exact).abs() <= exact * 0.001 + 1.0, "{share}: {found}, not {exact}");
            }
            prop_assert_eq!(times.count(), all.len() as u64);
        }
    }
}
