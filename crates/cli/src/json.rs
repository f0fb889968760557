//! `compare --json`: one cell a line, and with `--verdict` one line more.

use crate::{
    devices::{self, Chosen, Lifetime, OnDevice},
    verdict::{Judged, Size},
};
use flashsift_core::{
    page::PAGE_BYTES,
    system::Outcome,
    verdict::{Best, Writes},
};
use serde::Serialize;

/// One cell, or one cell on one device. A field is absent where it has no meaning.
#[derive(Clone, Serialize)]
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
    #[serde(flatten)]
    on: Option<DeviceRecord<'a>>,
    cpu_ns_per_access: f64,
}

#[derive(Clone, Serialize)]
struct DeviceRecord<'a> {
    device: &'a str,
    elapsed_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    stall_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    write_amplification: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lifetime_gain: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lifetime: Option<Lifetime>,
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
            on: None,
            cpu_ns_per_access: (cpu_ns_per_access * 10.0).round() / 10.0,
        }
    }

    /// One for each device; itself, where there is none.
    pub(crate) fn on_each(self, devices: &'a [Chosen], on: &[OnDevice]) -> Vec<Self> {
        if devices.is_empty() {
            return vec![self];
        }
        let record = |(device, on): (&'a Chosen, &OnDevice)| {
            let record = DeviceRecord {
                device: &device.label,
                elapsed_s: on.elapsed_s,
                stall_s: on.stall_s,
                write_amplification: on.write_amplification,
                lifetime_gain: on.lifetime_gain,
                lifetime: on.lifetime,
            };
            Self { on: Some(record), ..self.clone() }
        };
        devices.iter().zip(on).map(record).collect()
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
    #[serde(skip_serializing_if = "Vec::is_empty")]
    devices: Vec<JudgedDevice<'a>>,
}

#[derive(Serialize)]
struct JudgedDevice<'a> {
    device: &'a str,
    least_elapsed_us: BestRecord<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fewest_programs: Option<BestRecord<'a>>,
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
        let judged_device = |device: &'a devices::Judged<'a>| JudgedDevice {
            device: device.device,
            least_elapsed_us: (&device.fastest).into(),
            fewest_programs: device.lives_longest.as_ref().map(Into::into),
        };
        let size = |Size { frames, verdict, devices, .. }: &'a Size<'a>| SizeRecord {
            frames: *frames,
            memory_bytes: (!object_cache).then(|| u64::from(*frames) * PAGE_BYTES),
            most_hits: (&verdict.hits).into(),
            writes: verdict.writes.as_ref().map(Into::into),
            bound: verdict.bound.map(|(policy, hits)| BoundRecord { policy, hits }),
            gap_closed: verdict.gap_closed(),
            devices: devices.iter().map(judged_device).collect(),
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
