//! The simplest device: a constant time for each page read and another for each page written, one
//! request after the other.
//!
//! With 100 and 800 µs it is the cost model of SpatialClock's §5.1.2 as a device. It programs only
//! the written pages and never copies or erases. The order of writes makes no difference to it, so
//! it is the baseline for other models.

use super::{Device, Wear, ns};
use flashsift_events::{
    address::Lba,
    io::{Io, IoOp},
};
use serde::{Deserialize, Serialize};

/// Constants of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyParams {
    /// Time for each page read, µs.
    pub read_us: f64,
    /// Time for each page written, µs.
    pub write_us: f64,
}

/// A device with constant latencies.
#[derive(Clone)]
pub struct Latency {
    read_ns: u64,
    write_ns: u64,
    /// Time at which it becomes idle.
    free_ns: u64,
    written: u64,
}

impl Latency {
    /// Creates an idle device.
    pub fn new(params: &LatencyParams) -> Self {
        Self { read_ns: ns(params.read_us), write_ns: ns(params.write_us), free_ns: 0, written: 0 }
    }
}

impl Device for Latency {
    fn serve(&mut self, io: &Io, at_ns: u64) -> u64 {
        let each_ns = match io.op {
            IoOp::Flush | IoOp::Discard => 0,
            IoOp::Read => self.read_ns,
            IoOp::Write => {
                self.written += u64::from(io.pages);
                self.write_ns
            }
        };
        self.free_ns = self.free_ns.max(at_ns) + u64::from(io.pages) * each_ns;
        self.free_ns
    }

    fn discard(&mut self, _: Lba, _: u32) {}

    fn wear(&self) -> Wear {
        Wear { host_pages: self.written, programs: self.written, ..Wear::default() }
    }

    fn check(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::testing::{read, write};

    /// Requests are served one after the other: one that arrives while the device is busy waits.
    #[test]
    fn requests_are_served_one_at_a_time() {
        let mut device = Latency::new(&LatencyParams { read_us: 100.0, write_us: 800.0 });
        assert_eq!(device.serve(&write(0, 2), 1_000), 1_601_000);
        assert_eq!(device.serve(&read(9, 1), 2_000), 1_701_000);
        assert_eq!(device.serve(&read(9, 1), 5_000_000), 5_100_000);
        assert_eq!(device.wear().write_amplification(), Ok(1.0));
    }
}
