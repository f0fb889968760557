//! Two clocks over the same requests: as fast as the device can, and at the times that were recorded.

use super::{Device, Io, Machine, Prepared, Wear};

/// Times lie before that: 146 years, so that sums do not overflow whatever a trace claims.
const END_OF_TIME_NS: u64 = 1 << 62;

/// What the requests of a trace took on a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Times {
    /// From the first request to the last one done, each sent when the one before it is done: what SpatialClock's Workload Player
    /// measures.
    pub elapsed_ns: u64,
    /// For how long applications waited, with requests at their recorded times; `None` if the trace has none.
    ///
    /// An application waits for each read, each write that is to be durable and each dirty page that makes room
    /// ([`Io::awaited`]), from when it is sent until it is done; for other writes nobody waits, but who comes after them does. All that comes later in the trace is sent later by what has
    /// been waited so far, as an application that waits goes on later. So this is how much longer all takes than with a device that
    /// takes no time, and no wait counts twice.
    pub stall_ns: Option<u64>,
    /// At recorded times where there are any, because what a device does while it idles wears it, too.
    pub wear: Wear,
}

/// A device under both clocks.
pub struct Clocks {
    fast: Machine,
    elapsed_ns: u64,
    recorded: Option<Recorded>,
}

struct Recorded {
    machine: Machine,
    /// Nothing is sent before: when the last request was sent, or done, if somebody waited for it.
    sent_ns: u64,
    stall_ns: u64,
}

impl Clocks {
    /// From a prepared device. `times`: requests have times.
    pub fn new(prepared: &Prepared, times: bool) -> Self {
        let recorded = || Recorded { machine: prepared.machine(), sent_ns: 0, stall_ns: 0 };
        Self { fast: prepared.machine(), elapsed_ns: 0, recorded: times.then(recorded) }
    }

    /// Memory that it takes for a trace of so many pages, by estimate: what a device under either clock keeps of a page.
    pub fn held_bytes(pages: u32) -> u64 {
        u64::from(pages) * 16
    }

    /// The next request.
    pub fn io(&mut self, io: &Io) {
        self.elapsed_ns = self.fast.serve(io, self.elapsed_ns);
        if let Some(recorded) = &mut self.recorded {
            let at_ns = io.at_us.saturating_mul(1000).min(END_OF_TIME_NS) + recorded.stall_ns;
            recorded.sent_ns = recorded.sent_ns.max(at_ns);
            let done_ns = recorded.machine.serve(io, recorded.sent_ns);
            if io.awaited {
                recorded.stall_ns += done_ns - recorded.sent_ns;
                recorded.sent_ns = done_ns;
            }
        }
    }

    /// What it came to.
    pub fn times(&self) -> Times {
        let machine = self.recorded.as_ref().map_or(&self.fast, |recorded| &recorded.machine);
        Times {
            elapsed_ns: self.elapsed_ns,
            stall_ns: self.recorded.as_ref().map(|recorded| recorded.stall_ns),
            wear: machine.wear(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Model, Profile, latency, testing};

    fn clocks(times: bool) -> Clocks {
        let model = Model::Latency(latency::Params { read_us: 100.0, write_us: 800.0 });
        Clocks::new(&Prepared::new(&Profile::of(model)).unwrap(), times)
    }

    fn at(at_us: u64, io: Io) -> Io {
        Io { at_us, ..io }
    }

    /// A read waits for itself and for what was sent before it; a write nobody waits for, unless it is to be durable or makes
    /// room; what is waited moves all that follows.
    #[test]
    fn who_waits() {
        let mut clocks = clocks(true);
        let (read, write) = (testing::read(0, 1), testing::write(0, 1));
        let mut stalls = Vec::new();
        for io in [
            at(1000, read),                            // 100: its own
            at(1000, write),                           // sent at 1100, done at 1900: nobody waits
            at(1050, read),                            // sent at 1150, after the write: until 2000, 850
            at(10_000, write),                         // sent at 10 950, done at 11 750
            at(10_800, read),                          // sent at 11 750, when the write is just done: 100
            at(20_000, Io { awaited: true, ..write }), // 800
        ] {
            clocks.io(&io);
            stalls.push(clocks.times().stall_ns.unwrap() / 1000);
        }
        assert_eq!(stalls, [100, 100, 950, 950, 1050, 1850]);
        assert_eq!(clocks.times().elapsed_ns, (3 * 100 + 3 * 800) * 1000);
    }

    /// Times that no clock reaches, and times that run backwards, are no reason to panic.
    #[test]
    fn strange_times() {
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
