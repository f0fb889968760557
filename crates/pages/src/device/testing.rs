//! Helpers of the tests of all models.

use super::{Device, Io};
use flashsift_events::io::{Cause, IoOp};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

pub(super) fn read(lba: u64, pages: u32) -> Io {
    Io { at_us: 0, op: IoOp::Read, lba, pages, sync: false, awaited: true, cause: Cause::default() }
}

pub(super) fn write(lba: u64, pages: u32) -> Io {
    Io { op: IoOp::Write, awaited: false, ..read(lba, pages) }
}

/// Run time of the requests in seconds, each sent when its predecessor completes.
pub(super) fn elapsed_s(device: &mut dyn Device, requests: impl IntoIterator<Item = Io>) -> f64 {
    let mut now = 0;
    for io in requests {
        now = device.serve(&io, now);
    }
    now as f64 / 1e9
}

/// Returns `n` different page addresses in the first `span` pages, in random order.
pub(super) fn random_order(n: usize, span: u64, seed: u64) -> Vec<u64> {
    let mut random = Pcg64::seed_from_u64(seed);
    let mut found = std::collections::BTreeSet::new();
    let mut order = Vec::with_capacity(n);
    while order.len() < n {
        let lba = random.random_range(0..span);
        if found.insert(lba) {
            order.push(lba);
        }
    }
    order
}
