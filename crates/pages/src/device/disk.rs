//! A hard disk: a request that begins near the end of the one before it costs little, any other one
//! a seek.
//!
//! The time of a seek is one constant, whatever its distance, and no request is reordered. The
//! model shows which orders of requests suit a disk, and no more.

use super::{Device, Wear, ns};
use flashsift_events::{
    address::Lba,
    io::{Io, IoOp},
    page::PAGE_BYTES,
};
use serde::{Deserialize, Serialize};

/// Constants of the model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HardDiskParams {
    /// Time for each page read near the end of the last request, µs.
    pub read_us: f64,
    /// Time for each page written there, µs.
    pub write_us: f64,
    /// Time that a read elsewhere takes in addition, once a request, µs.
    pub read_seek_us: f64,
    /// Time that a write elsewhere takes in addition, once a request, µs.
    pub write_seek_us: f64,
    /// The farthest distance, ahead of the end of the last request, that costs no seek.
    pub near_bytes: u64,
}

/// A hard disk.
#[derive(Clone)]
pub struct HardDisk {
    params: HardDiskParams,
    /// Time at which it becomes idle.
    free_ns: u64,
    /// The page behind the last request.
    next: Lba,
    written: u64,
}

impl HardDisk {
    /// Creates an idle disk whose head is at the first page.
    pub fn new(params: &HardDiskParams) -> Self {
        Self { params: params.clone(), free_ns: 0, next: 0, written: 0 }
    }
}

impl Device for HardDisk {
    fn serve(&mut self, io: &Io, at_ns: u64) -> u64 {
        self.free_ns = self.free_ns.max(at_ns);
        let params = &self.params;
        let (page_us, seek_us) = match io.op {
            IoOp::Flush | IoOp::Discard => return self.free_ns,
            IoOp::Read => (params.read_us, params.read_seek_us),
            IoOp::Write => (params.write_us, params.write_seek_us),
        };
        let ahead = io.lba.checked_sub(self.next);
        let is_near = ahead.is_some_and(|pages| pages <= params.near_bytes / PAGE_BYTES);
        self.free_ns += u64::from(io.pages) * ns(page_us) + if is_near { 0 } else { ns(seek_us) };
        self.next = io.lba.saturating_add(io.pages.into());
        self.written += if io.op == IoOp::Write { u64::from(io.pages) } else { 0 };
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

    /// Two pages ahead is near, three ahead is a seek, and so is one page back.
    #[test]
    fn a_request_elsewhere_seeks() {
        let (read_us, write_us, read_seek_us, write_seek_us) = (1.0, 2.0, 100.0, 200.0);
        let near_bytes = 2 * PAGE_BYTES;
        let params = HardDiskParams { read_us, write_us, read_seek_us, write_seek_us, near_bytes };
        let mut disk = HardDisk::new(&params);
        let mut at_ns = 0;
        let mut us = |io: Io| {
            let from_ns = at_ns;
            at_ns = disk.serve(&io, from_ns);
            (at_ns - from_ns) / 1000
        };
        assert_eq!([us(read(0, 2)), us(read(4, 1)), us(write(8, 1))], [2, 1, 202]);
        assert_eq!([us(write(9, 1)), us(read(9, 1)), us(read(10, 3))], [2, 101, 3]);
    }
}
