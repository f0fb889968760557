//! Runs the same requests under two clocks: as fast as the device permits, and at their recorded
//! times.

use super::{AnyDevice, Device, Io, Prepared, Wear};
use crate::readahead::{ReadEnd, ReadMark};
use flashsift_events::io::IoOp;
use std::collections::VecDeque;

/// Latest time of a request, 146 years. Later times count as this one, so that no sum overflows.
const END_OF_TIME_NS: u64 = 1 << 62;

/// Times and wear of a trace on a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DeviceTimes {
    /// From the first request to the last completion, each request sent when its predecessor
    /// completes: the measure of SpatialClock's Workload Player.
    pub elapsed_ns: u64,
    /// The part of `elapsed_ns` that reads take. Writes, flushes and discards take the rest.
    pub read_ns: u64,
    /// Total time that applications wait, with requests at their recorded times; `None` if the
    /// trace has no times.
    ///
    /// An application waits for each read, each durable write and each dirty page that is written
    /// to free a page of the cache ([`Io::awaited`]), from sending to completion. It does not wait
    /// for other writes, but later requests queue behind them. A read that accesses a page that was
    /// read ahead waits until that page has arrived. All later requests are delayed by the time
    /// waited so far, as in an application that blocks. So this is the additional run time compared
    /// with a device that takes no time, and no wait counts twice.
    pub stall_ns: Option<u64>,
    /// The part of `elapsed_ns` that reads wait for, by case in the order of
    /// [`crate::readahead::ReadCase::ALL`]: their requests, and the writes of dirty pages whose
    /// frames they need. All 0 unless reads are marked ([`Clocks::mark`]).
    pub elapsed_by_case_ns: [u64; 4],
    /// The part of `stall_ns` that reads wait for, likewise.
    pub stall_by_case_ns: Option<[u64; 4]>,
    /// Wear at recorded times if there are any, because the device works while it idles, too.
    pub wear: Wear,
}

/// A device under both clocks.
pub struct Clocks {
    fast: AnyDevice,
    elapsed_ns: u64,
    read_ns: u64,
    /// Time that the present read waits for; `None` outside of reads.
    in_read_ns: Option<u64>,
    by_case_ns: [u64; 4],
    recorded: Option<Recorded>,
}

struct Recorded {
    machine: AnyDevice,
    /// Lower limit of the next sending time: when the last request was sent, or completed if the
    /// application waited for it.
    sent_ns: u64,
    stall_ns: u64,
    /// [`Self::stall_ns`] when the present read began; `None` outside of reads.
    before_read_ns: Option<u64>,
    by_case_ns: [u64; 4],
    /// When the last request that the present read does not wait for is done.
    ahead_done_ns: Option<u64>,
    /// The same of earlier reads, by their numbers, without those that were done before the end of
    /// the last read. Numbers ascend.
    under_way: VecDeque<(u32, u64)>,
}

impl Recorded {
    fn new(machine: AnyDevice) -> Self {
        Self {
            machine,
            sent_ns: 0,
            stall_ns: 0,
            before_read_ns: None,
            by_case_ns: [0; 4],
            ahead_done_ns: None,
            under_way: VecDeque::new(),
        }
    }

    /// Sets the time to that of a request or read, delayed by the waits before it.
    fn advance(&mut self, at_us: u64) {
        let at_ns = at_us.saturating_mul(1000).min(END_OF_TIME_NS) + self.stall_ns;
        self.sent_ns = self.sent_ns.max(at_ns);
    }

    /// The application waits until then.
    fn wait(&mut self, done_ns: u64) {
        self.stall_ns += done_ns.saturating_sub(self.sent_ns);
        self.sent_ns = self.sent_ns.max(done_ns);
    }

    fn end_read(&mut self, end: &ReadEnd) {
        let before_ns = self.before_read_ns.take().unwrap_or(self.stall_ns);
        if let Some(done_ns) = self.ahead_done_ns.take() {
            self.under_way.push_back((end.number, done_ns));
        }
        self.advance(end.at_us);
        if let Some(needs) = end.needs
            && let Ok(at) = self.under_way.binary_search_by_key(&needs, |(read, _)| *read)
        {
            self.wait(self.under_way[at].1);
        }
        while self.under_way.pop_front_if(|(_, done_ns)| *done_ns <= self.sent_ns).is_some() {}
        self.by_case_ns[end.case as usize] += self.stall_ns - before_ns;
    }
}

impl Clocks {
    /// Starts both clocks on copies of a prepared device. `times`: the requests have times.
    pub fn new(prepared: &Prepared, times: bool) -> Self {
        Self {
            fast: prepared.new_device(),
            elapsed_ns: 0,
            read_ns: 0,
            in_read_ns: None,
            by_case_ns: [0; 4],
            recorded: times.then(|| Recorded::new(prepared.new_device())),
        }
    }

    /// Estimates the memory for a trace of `pages` pages on a device with tables of `table_bytes`,
    /// in bytes. Where addresses have 32 bits, tables count as a whole.
    pub fn held_bytes(pages: u32, table_bytes: u64) -> u64 {
        let addressed = if usize::BITS <= 32 { 2 * table_bytes } else { 0 };
        u64::from(pages) * 16 + addressed
    }

    /// Performs the next request under both clocks.
    pub fn io(&mut self, io: &Io) {
        let done_ns = self.fast.serve(io, self.elapsed_ns);
        if io.op == IoOp::Read {
            self.read_ns += done_ns - self.elapsed_ns;
        }
        if let Some(in_read_ns) = self.in_read_ns.as_mut().filter(|_| io.awaited) {
            *in_read_ns += done_ns - self.elapsed_ns;
        }
        self.elapsed_ns = done_ns;
        if let Some(recorded) = &mut self.recorded {
            recorded.advance(io.at_us);
            let done_ns = recorded.machine.serve(io, recorded.sent_ns);
            if io.awaited {
                recorded.wait(done_ns);
            } else if recorded.before_read_ns.is_some() && io.op == IoOp::Read {
                recorded.ahead_done_ns = Some(done_ns);
            }
        }
    }

    /// The requests until the end of a read belong to it. At its end, it waits for the pages that
    /// it accesses and that earlier reads read ahead.
    pub fn mark(&mut self, mark: &ReadMark) {
        match mark {
            ReadMark::Begin => {
                self.in_read_ns = Some(0);
                if let Some(recorded) = &mut self.recorded {
                    recorded.before_read_ns = Some(recorded.stall_ns);
                }
            }
            ReadMark::End(end) => {
                self.by_case_ns[end.case as usize] += self.in_read_ns.take().unwrap_or(0);
                if let Some(recorded) = &mut self.recorded {
                    recorded.end_read(end);
                }
            }
        }
    }

    /// Returns times and wear so far.
    pub fn times(&self) -> DeviceTimes {
        let machine = self.recorded.as_ref().map_or(&self.fast, |recorded| &recorded.machine);
        DeviceTimes {
            elapsed_ns: self.elapsed_ns,
            read_ns: self.read_ns,
            stall_ns: self.recorded.as_ref().map(|recorded| recorded.stall_ns),
            elapsed_by_case_ns: self.by_case_ns,
            stall_by_case_ns: self.recorded.as_ref().map(|recorded| recorded.by_case_ns),
            wear: machine.wear(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Model, Profile, latency, testing};

    fn clocks(times: bool) -> Clocks {
        let model = Model::Latency(latency::LatencyParams { read_us: 100.0, write_us: 800.0 });
        Clocks::new(&Prepared::new(&Profile::new(model)).unwrap(), times)
    }

    fn at(at_us: u64, io: Io) -> Io {
        Io { at_us, ..io }
    }

    /// An application waits for its read and for everything sent before it. It does not wait for a
    /// write, unless that is durable or frees a page of the cache. Each wait delays everything that
    /// follows.
    // Promises: Devices 2, Devices 3, Devices 4.
    #[test]
    fn waits_delay_later_requests() {
        let mut clocks = clocks(true);
        let (read, write) = (testing::read(0, 1), testing::write(0, 1));
        let mut stalls = Vec::new();
        for io in [
            at(1000, read),                            // 100, for itself
            at(1000, write),                           // sent at 1100, done at 1900: no wait
            at(1050, read),                            // sent at 1150, done at 2000: 850
            at(10_000, write),                         // sent at 10 950, done at 11 750
            at(10_800, read),                          // sent at 11 750, device idle: 100
            at(20_000, Io { awaited: true, ..write }), // 800
        ] {
            clocks.io(&io);
            stalls.push(clocks.times().stall_ns.unwrap() / 1000);
        }
        assert_eq!(stalls, [100, 100, 950, 950, 1050, 1850]);
        assert_eq!(clocks.times().elapsed_ns, (3 * 100 + 3 * 800) * 1000);
    }

    /// Extreme times, and times that run backwards, cause no panic.
    #[test]
    fn extreme_times_do_not_panic() {
        let mut clocks = clocks(true);
        for at_us in [u64::MAX, 0, u64::MAX / 1000, 5] {
            clocks.io(&at(at_us, testing::read(0, 1)));
        }
        assert_eq!(clocks.times().stall_ns, Some(400_000));
        let mut without = super::tests::clocks(false);
        without.io(&testing::read(0, 1));
        assert_eq!((without.times().stall_ns, without.times().elapsed_ns), (None, 100_000));
    }
}
