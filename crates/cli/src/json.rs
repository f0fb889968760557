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
    #[serde(skip_serializing_if = "Option::is_none")]
    device_writes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    drained: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped_dirty: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dirty_left: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nonsequential_writes: Option<u64>,
    cost_us: u64,
    cpu_ns_per_access: f64,
}

/// Which fields have a meaning.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    /// Frames are objects and have no size.
    pub(crate) object_cache: bool,
    /// The trace tells writes from reads.
    pub(crate) writes: bool,
    /// What was dirty at the end was written.
    pub(crate) drain: bool,
}

impl<'a> Record<'a> {
    pub(crate) fn new(
        trace: &'a str,
        policy: &'a str,
        frames: u32,
        Shape { object_cache, writes, drain }: Shape,
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
            device_writes: writes.then_some(device.writes),
            drained: drain.then_some(device.drained),
            dropped_dirty: writes.then_some(device.dropped_dirty),
            dirty_left: writes.then_some(outcome.dirty_left),
            nonsequential_writes: writes.then_some(device.nonsequential_writes),
            cost_us: outcome.cost_us(),
            cpu_ns_per_access: (cpu_ns_per_access * 10.0).round() / 10.0,
        }
    }
}
