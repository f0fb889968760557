//! Runs the same schedule over a modelled device, in the model's time, for comparison with a real
//! replay.

use crate::{
    Op, Request,
    memory::{kind_of, latencies_ns},
    schedule::{Decision, Schedule, Timing},
    tally::Tally,
};
use flashsift_events::{
    io::{Cause, Io, IoOp},
    page::PAGE_BYTES,
};
use flashsift_pages::{
    device::{AnyDevice, Device},
    nvm::{LINE_BYTES, profile::MemoryProfile},
};
use std::{cmp::Reverse, collections::BinaryHeap};

/// A modelled device as the target of a replay. A sync lasts until everything written before it is
/// programmed.
pub struct Modelled {
    machine: AnyDevice,
    timing: Timing,
    schedule: Schedule,
    now_ns: u64,
    /// Completion time and slot of each request in flight.
    ends: BinaryHeap<Reverse<(u64, u32)>>,
    /// Latency of a line of memory, nanoseconds, in the order of [`Op::OF_MEMORY`].
    memory_ns: [f64; 4],
    tally: Tally,
}

impl Modelled {
    /// Creates a replay with nothing in flight, scheduled as by [`crate::play::play`].
    pub fn new(machine: AnyDevice, timing: Timing, depth: u32) -> Self {
        let schedule = Schedule::new(timing, depth, false);
        Self {
            machine,
            timing,
            schedule,
            now_ns: 0,
            ends: BinaryHeap::new(),
            memory_ns: [0.0; 4],
            tally: Tally::default(),
        }
    }

    /// Sets the latency of a line of memory.
    pub fn with_memory(self, profile: &MemoryProfile) -> Self {
        Self { memory_ns: latencies_ns(profile), ..self }
    }

    /// Performs the next request of the log.
    pub fn request(&mut self, request: &Request) {
        loop {
            match self.schedule.ask(request, self.now_ns) {
                Decision::Start { slot, late_ns } => {
                    if self.timing == Timing::Recorded {
                        self.tally.late.add(late_ns);
                    }
                    let end_ns = self.serve(request);
                    self.ends.push(Reverse((end_ns, slot)));
                    return;
                }
                Decision::At(due_ns) => self.pass(Some(due_ns)),
                Decision::AfterAnother => self.pass(None),
            }
        }
    }

    /// Waits for all requests and returns the summary.
    pub fn finish(mut self) -> Tally {
        while !self.ends.is_empty() {
            self.pass(None);
        }
        self.tally
    }

    /// Advances until a request completes or this time has come.
    fn pass(&mut self, until_ns: Option<u64>) {
        let next = self.ends.peek().map(|Reverse((end_ns, _))| *end_ns);
        match (next, until_ns) {
            (Some(end_ns), until) if until.is_none_or(|until| end_ns <= until) => {
                let Some(Reverse((_, slot))) = self.ends.pop() else { return };
                self.now_ns = self.now_ns.max(end_ns);
                let (request, took_ns) = self.schedule.done(slot, self.now_ns);
                self.tally.add(&request, took_ns);
                self.tally.elapsed_ns = self.now_ns;
            }
            (_, Some(until)) => self.now_ns = until,
            (_, None) => {}
        }
    }

    /// Passes the request to the device and returns its completion time.
    fn serve(&mut self, request: &Request) -> u64 {
        let first = request.offset / PAGE_BYTES;
        let op = match request.op {
            Op::Read => IoOp::Read,
            Op::Write | Op::WriteSync => IoOp::Write,
            Op::Sync => return self.flush(self.now_ns),
            Op::Discard => {
                // A discard releases whole pages only.
                let (first, end) =
                    (request.offset.div_ceil(PAGE_BYTES), request.end() / PAGE_BYTES);
                self.machine
                    .discard(first, u32::try_from(end.saturating_sub(first)).unwrap_or(u32::MAX));
                return self.now_ns;
            }
            of_memory => {
                let latency_ns = kind_of(of_memory).map_or(0.0, |kind| self.memory_ns[kind]);
                let lines = (request.len / LINE_BYTES) as f64;
                return self.now_ns + (lines * latency_ns).round() as u64;
            }
        };
        let pages = (request.end().div_ceil(PAGE_BYTES) - first) as u32;
        let sync = request.op == Op::WriteSync;
        let io = Io {
            at_us: request.at_us,
            op,
            lba: first,
            pages,
            sync,
            awaited: sync || op == IoOp::Read,
            cause: Cause::default(),
        };
        let done_ns = self.machine.serve(&io, self.now_ns);
        if sync { self.flush(done_ns) } else { done_ns }
    }

    /// Makes everything written before durable, and returns the completion time.
    fn flush(&mut self, at_ns: u64) -> u64 {
        let (op, cause) = (IoOp::Flush, Cause::default());
        let io = Io { at_us: 0, op, lba: 0, pages: 0, sync: true, awaited: true, cause };
        self.machine.serve(&io, at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_pages::device::{Model, Profile, latency};

    fn modelled(timing: Timing, depth: u32) -> Modelled {
        let model = Model::Latency(latency::LatencyParams { read_us: 100.0, write_us: 800.0 });
        Modelled::new(AnyDevice::new(&Profile::new(model)).unwrap(), timing, depth)
    }

    fn request(at_us: u64, op: Op, page: u64, pages: u64) -> Request {
        Request { number: 1, at_us, op, offset: page * PAGE_BYTES, len: pages * PAGE_BYTES }
    }

    fn tally(timing: Timing, depth: u32, requests: &[Request]) -> Tally {
        let mut modelled = modelled(timing, depth);
        requests.iter().for_each(|request| modelled.request(request));
        modelled.finish()
    }

    // Promises: Devices 2, Replay 16.
    #[test]
    fn one_at_a_time_takes_the_sum() {
        let requests = [
            request(0, Op::Write, 0, 2),
            request(0, Op::Read, 5, 1),
            request(0, Op::Sync, 0, 0),
            request(0, Op::Discard, 0, 1),
            request(0, Op::Read, 9, 3),
        ];
        let tally = tally(Timing::Asap, 1, &requests);
        assert_eq!((tally.elapsed_ns, tally.count()), (2_000_000, 5));
    }

    /// The second request waits for the first inside the device. The third waits for a slot in the
    /// queue, which `late` counts.
    // Promises: Replay 12.
    #[test]
    fn a_queue_waits_in_the_device() {
        let requests = [0, 1, 2].map(|n| request(10 * n, Op::Write, 5 * n, 1));
        let tally = tally(Timing::Recorded, 2, &requests);
        let (_, writes) = tally.ops().next().unwrap();
        assert_eq!(tally.elapsed_ns, 2_400_000);
        let near = |ns: u64, us: f64| (ns as f64 / 1e3 - us).abs() <= us * 0.001;
        // 800, 1590 and, from 800 on, 1600.
        assert!(near(writes.times.min(), 800.0) && near(writes.times.max(), 1600.0), "{writes:?}");
        assert!(near(tally.late.max(), 780.0) && tally.late.min() == 0, "{:?}", tally.late);
    }
}
