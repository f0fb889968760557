//! `compare --json`: one cell a line.

use flashsift_core::{page::PAGE_BYTES, system::Outcome};
use serde::Serialize;

/// One cell. A field is absent where it has no meaning.
#[derive(Serialize)]
pub(crate) struct Record<'a> {
    schema: u32,
    trace: &'a str,
    policy: &'a str,
    system: &'static str,
    frames: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
    writeback: &'static str,
    accesses: u64,
    read_accesses: u64,
    write_accesses: u64,
    hits: u64,
    read_hits: u64,
    write_hits: u64,
    device_reads: u64,
    device_writes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    drained: Option<u64>,
    dropped_dirty: u64,
    dirty_left: u64,
    nonsequential_writes: u64,
    cost_us: u64,
    cpu_ns_per_access: f64,
}

impl<'a> Record<'a> {
    pub(crate) fn new(
        trace: &'a str,
        policy: &'a str,
        frames: u32,
        object_cache: bool,
        drain: bool,
        outcome: &Outcome,
        cpu_ns_per_access: f64,
    ) -> Self {
        let device = outcome.device;
        Self {
            schema: 1,
            trace,
            policy,
            system: "storage",
            frames,
            memory_bytes: (!object_cache).then(|| u64::from(frames) * PAGE_BYTES),
            writeback: "evict",
            accesses: outcome.accesses(),
            read_accesses: outcome.read_accesses,
            write_accesses: outcome.write_accesses,
            hits: outcome.hits(),
            read_hits: outcome.read_hits,
            write_hits: outcome.write_hits,
            device_reads: device.reads,
            device_writes: device.writes,
            drained: drain.then_some(device.drained),
            dropped_dirty: device.dropped_dirty,
            dirty_left: outcome.dirty_left,
            nonsequential_writes: device.nonsequential_writes,
            cost_us: outcome.cost_us(),
            cpu_ns_per_access: (cpu_ns_per_access * 10.0).round() / 10.0,
        }
    }
}
