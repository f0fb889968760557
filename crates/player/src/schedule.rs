//! Decides which request starts when. It has no clock and no device: times come in, decisions come
//! out.
//!
//! Requests start in the order of the log, at most `depth` at a time. No request overtakes another.
//! A request that overlaps one in flight waits for it, unless both read. Page caches behave the
//! same way, so the final content of the device does not depend on the depth. A sync waits for all
//! earlier requests, and all later ones wait for it; so does an access to memory, which keeps its
//! place among the requests.

use crate::{Op, Request};
use slab::Slab;

/// When a request is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timing {
    /// As soon as the queue has a free slot.
    Asap,
    /// At its time in the log.
    Recorded,
}

/// The decision about the next request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Start it now.
    Start {
        /// Its slot in the queue until it completes.
        slot: u32,
        /// Time since it was due.
        late_ns: u64,
    },
    /// Wait: it is due at this time.
    At(u64),
    /// Wait until a request in flight completes.
    AfterAnother,
}

/// A request that was started and has not completed.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    begun_ns: u64,
    request: Request,
}

/// State of the queue. Latencies are nanoseconds since the replay began.
#[derive(Debug)]
pub struct Schedule {
    timing: Timing,
    /// Discards run alone, as syncs do.
    discards_alone: bool,
    depth: usize,
    /// By slot.
    in_flight: Slab<InFlight>,
}

impl Schedule {
    /// Creates a schedule with nothing in flight.
    pub fn new(timing: Timing, depth: u32, discards_alone: bool) -> Self {
        let depth = depth as usize;
        Self { timing, discards_alone, depth, in_flight: Slab::with_capacity(depth) }
    }

    /// Returns the number of requests in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Decides what to do with the next request of the log. On [`Decision::Start`] it is in flight.
    pub fn ask(&mut self, request: &Request, now_ns: u64) -> Decision {
        let due_ns = match self.timing {
            Timing::Asap => now_ns,
            Timing::Recorded => request.at_us.saturating_mul(1000),
        };
        if due_ns > now_ns {
            return Decision::At(due_ns);
        }
        if self.in_flight.iter().any(|(_, other)| self.conflict(&other.request, request)) {
            return Decision::AfterAnother;
        }
        if self.in_flight.len() == self.depth {
            return Decision::AfterAnother;
        }
        // Keys are below the greatest number of entries there ever were.
        let slot = self.in_flight.insert(InFlight { begun_ns: now_ns, request: *request }) as u32;
        Decision::Start { slot, late_ns: now_ns - due_ns }
    }

    /// Records that the request in this slot completed. Returns it and its latency in nanoseconds.
    ///
    /// # Panics
    ///
    /// If no request is in flight in this slot.
    pub fn done(&mut self, slot: u32, now_ns: u64) -> (Request, u64) {
        let done = self.in_flight.try_remove(slot as usize);
        let InFlight { begun_ns, request } = done.expect("a completed request was started");
        (request, now_ns.saturating_sub(begun_ns))
    }

    fn conflict(&self, one: &Request, other: &Request) -> bool {
        let alone =
            |op: Op| op == Op::Sync || op.is_memory() || (op == Op::Discard && self.discards_alone);
        let overlap = one.offset < other.end() && other.offset < one.end();
        alone(one.op) || alone(other.op) || (overlap && (one.op.changes() || other.op.changes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    struct Case {
        requests: Vec<(Request, u64)>,
        depth: u32,
        timing: Timing,
        discards_alone: bool,
    }

    fn case() -> impl Strategy<Value = Case> {
        let op = prop::sample::select(Op::ALL.to_vec());
        let request = (0u64..200, op, 0u64..12, 1u64..4, 1u64..60_000);
        (prop::collection::vec(request, 1..60), 1u32..6, any::<bool>(), any::<bool>()).prop_map(
            |(mut requests, depth, recorded, discards_alone)| {
                requests.sort_by_key(|(at_us, ..)| *at_us);
                let requests = requests.into_iter().enumerate().map(
                    |(n, (at_us, op, offset, len, takes_ns))| {
                        (Request { number: n as u64 + 1, at_us, op, offset, len }, takes_ns)
                    },
                );
                let timing = if recorded { Timing::Recorded } else { Timing::Asap };
                Case { requests: requests.collect(), depth, timing, discards_alone }
            },
        )
    }

    /// Start times from the definition, looking at all earlier requests, on a device with the
    /// latencies of `Case`.
    fn model(case: &Case) -> Vec<u64> {
        let mut spans: Vec<(u64, u64)> = Vec::new();
        for (n, (request, takes_ns)) in case.requests.iter().enumerate() {
            let due = if case.timing == Timing::Recorded { request.at_us * 1000 } else { 0 };
            let earliest = spans.last().map_or(0, |(start, _)| *start).max(due);
            // It starts when it is due, or when an earlier one ends.
            let mut candidates: Vec<u64> = spans.iter().map(|(_, end)| *end).collect();
            candidates.push(earliest);
            candidates.sort_unstable();
            let may = |time: &u64| {
                let running = || (0..n).filter(|other| spans[*other].1 > *time);
                let touches = |other: usize| {
                    let (a, b) = (&case.requests[other].0, request);
                    let bytes = |r: &Request| r.offset..r.offset + r.len;
                    let both_read = a.op == Op::Read && b.op == Op::Read;
                    let barrier = |r: &Request| {
                        r.op == Op::Sync
                            || r.op.is_memory()
                            || (case.discards_alone && r.op == Op::Discard)
                    };
                    let shared = bytes(a).any(|byte| bytes(b).contains(&byte));
                    barrier(a) || barrier(b) || (shared && !both_read)
                };
                *time >= earliest
                    && running().count() < case.depth as usize
                    && !running().any(touches)
            };
            let start = candidates.into_iter().find(may).unwrap();
            spans.push((start, start + takes_ns));
        }
        spans.into_iter().map(|(start, _)| start).collect()
    }

    /// Start times from the schedule on the same device. The schedule is queried at each start
    /// and each completion.
    fn machine(case: &Case) -> Vec<u64> {
        let mut schedule = Schedule::new(case.timing, case.depth, case.discards_alone);
        let mut ends: BTreeMap<(u64, u32), u64> = BTreeMap::new();
        let (mut now, mut starts) = (0, Vec::new());
        let mut left = case.requests.iter();
        let mut head = left.next();
        while let Some((request, takes_ns)) = head {
            let next_end = ends.first_key_value().map(|((end, _), _)| *end);
            match schedule.ask(request, now) {
                Decision::Start { slot, late_ns } => {
                    let due =
                        if case.timing == Timing::Recorded { request.at_us * 1000 } else { now };
                    assert_eq!(late_ns, now - due);
                    starts.push(now);
                    assert!(ends.insert((now + takes_ns, slot), request.number).is_none());
                    head = left.next();
                    continue;
                }
                Decision::At(time) => now = next_end.map_or(time, |end| end.min(time)),
                Decision::AfterAnother => now = next_end.expect("something is in flight"),
            }
            while let Some(((end, slot), number)) = ends.first_key_value().map(|(k, v)| (*k, *v)) {
                if end > now {
                    break;
                }
                ends.remove(&(end, slot));
                let (request, took_ns) = schedule.done(slot, end);
                assert_eq!(
                    (request.number, took_ns),
                    (number, case.requests[number as usize - 1].1)
                );
            }
            assert_eq!(schedule.in_flight(), ends.len());
        }
        starts
    }

    proptest! {
        // Promises: Replay 7, Replay 15.
        #[test]
        fn starts_match_the_definition(case in case()) {
            prop_assert_eq!(machine(&case), model(&case));
        }
    }
}
