//! `compare --json`: one cell a line, and with `--verdict` one line more.

use crate::verdict::{Judged, Size};
use flashsift_core::{
    page::PAGE_BYTES,
    system::Outcome,
    verdict::{Best, Writes},
};
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
    writeback: &'a str,
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
    sync_writes: Option<u64>,
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
pub(crate) struct Shape<'a> {
    /// When dirty pages are written.
    pub(crate) writeback: &'a str,
    /// Syncs write.
    pub(crate) syncs: bool,
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
        Shape { writeback, syncs, object_cache, writes, drain }: Shape<'a>,
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
            writeback,
            accesses: outcome.accesses(),
            read_accesses: outcome.read_accesses,
            write_accesses: outcome.write_accesses,
            hits: outcome.hits(),
            read_hits: outcome.read_hits,
            write_hits: outcome.write_hits,
            device_reads: device.reads,
            device_writes: writes.then_some(device.writes),
            sync_writes: (writes && syncs).then_some(device.sync_writes),
            drained: drain.then_some(device.drained),
            dropped_dirty: writes.then_some(device.dropped_dirty),
            dirty_left: writes.then_some(outcome.dirty_left),
            nonsequential_writes: writes.then_some(device.nonsequential_writes),
            cost_us: outcome.cost_us(),
            cpu_ns_per_access: (cpu_ns_per_access * 10.0).round() / 10.0,
        }
    }
}

/// The last line with `--verdict`.
#[derive(Serialize)]
pub(crate) struct VerdictLine<'a> {
    schema: u32,
    verdict: VerdictRecord<'a>,
}

#[derive(Serialize)]
struct VerdictRecord<'a> {
    trace: &'a str,
    accesses: u64,
    /// First accesses, which no cache hits.
    cold_accesses: u64,
    sizes: Vec<SizeRecord<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    least_cpu: Option<LeastCpu<'a>>,
}

#[derive(Serialize)]
struct SizeRecord<'a> {
    frames: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
    most_hits: BestRecord<'a>,
    #[serde(flatten)]
    writes: Option<WritesRecord<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bound: Option<BoundRecord<'a>>,
    /// Of the hits that the bound has and lru does not, the share that the best has.
    #[serde(skip_serializing_if = "Option::is_none")]
    gap_closed: Option<f64>,
}

/// Writes count what is still dirty at the end.
#[derive(Serialize)]
struct WritesRecord<'a> {
    fewest_writes: BestRecord<'a>,
    /// Absent where more is still dirty than was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    fewest_nonsequential_writes: Option<BestRecord<'a>>,
    unbeaten: &'a [&'a str],
}

#[derive(Serialize)]
struct BestRecord<'a> {
    policies: &'a [&'a str],
    count: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lru: Option<u64>,
}

#[derive(Serialize)]
struct BoundRecord<'a> {
    policy: &'a str,
    hits: u64,
}

#[derive(Serialize)]
struct LeastCpu<'a> {
    policies: &'a [&'a str],
    cpu_ns_per_access: f64,
}

impl<'a> From<&'a Best<'a>> for BestRecord<'a> {
    fn from(best: &'a Best<'a>) -> Self {
        Self { policies: &best.policies, count: best.count, lru: best.reference }
    }
}

impl<'a> From<&'a Writes<'a>> for WritesRecord<'a> {
    fn from(writes: &'a Writes<'a>) -> Self {
        Self {
            fewest_writes: (&writes.fewest).into(),
            fewest_nonsequential_writes: writes.scattered.as_ref().map(Into::into),
            unbeaten: &writes.unbeaten,
        }
    }
}

impl<'a> VerdictLine<'a> {
    pub(crate) fn new(trace: &'a str, object_cache: bool, judged: &'a Judged<'a>) -> Self {
        let size = |Size { frames, verdict, .. }: &'a Size<'a>| SizeRecord {
            frames: *frames,
            memory_bytes: (!object_cache).then(|| u64::from(*frames) * PAGE_BYTES),
            most_hits: (&verdict.hits).into(),
            writes: verdict.writes.as_ref().map(Into::into),
            bound: verdict.bound.map(|(policy, hits)| BoundRecord { policy, hits }),
            gap_closed: verdict.gap_closed(),
        };
        let least_cpu = judged.least_cpu.as_ref();
        let verdict = VerdictRecord {
            trace,
            accesses: judged.sizes.first().map_or(0, |size| size.verdict.accesses),
            cold_accesses: judged.cold_accesses,
            sizes: judged.sizes.iter().map(size).collect(),
            least_cpu: least_cpu
                .map(|(policies, ns)| LeastCpu { policies, cpu_ns_per_access: (ns * 10.0).round() / 10.0 }),
        };
        Self { schema: 1, verdict }
    }
}
