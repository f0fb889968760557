//! Results as records for programs: one cell a line of `compare --json`, and with `--verdict` one
//! line more.

use crate::{
    device::{
        Fill,
        lifetime::{Lifetime, NoLifetime},
    },
    nvm::{Traffic, profile::MemoryCost},
    page::PAGE_BYTES,
    study::{
        Best, CaseLatency, DeviceResult, DeviceVerdict, Knee, Request, ResultRow, Results,
        SizeVerdict, StudyVerdict, Writes,
    },
    system::Outcome,
    trace::Unit,
    writeback::Syncs,
};
use serde::Serialize;
use std::collections::BTreeMap;

/// One cell, or one cell on one device. A field is absent where it has no meaning.
#[derive(Serialize)]
pub struct CellRecord<'a> {
    schema: u32,
    trace: &'a str,
    policy: &'a str,
    system: &'a str,
    /// If read-aheads are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    readahead: Option<&'a str>,
    frames: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
    writeback: &'a str,
    /// If truncated and deleted pages stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    removals: Option<&'static str>,
    accesses: u64,
    read_accesses: u64,
    write_accesses: u64,
    hits: u64,
    read_hits: u64,
    write_hits: u64,
    device_reads: u64,
    /// Among the device's reads and writes: those past the cache.
    #[serde(skip_serializing_if = "Option::is_none")]
    direct_reads: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    direct_writes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_writes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_write_requests: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sync_writes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    flushes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    drained: Option<u64>,
    /// Pages of the write buffer in non-volatile memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    nvm_pages: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped_dirty: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dirty_left: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nonsequential_writes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    journal_writes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata_writes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_flushes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by_program: Option<Vec<ProgramRecord<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    by_reason: Option<Vec<ReasonRecord>>,
    cost_us: u64,
    #[serde(flatten)]
    ahead: Option<ReadAheadRecord>,
    #[serde(flatten)]
    traffic: Option<TrafficRecord>,
    /// By the name of the profile.
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<BTreeMap<&'static str, MemoryRecord>>,
    #[serde(flatten)]
    on: Option<DeviceRecord<'a>>,
    cpu_ns_per_access: f64,
}

/// Prefetches, where read-aheads are compared. A ratio is absent where it has no meaning.
#[derive(Serialize)]
struct ReadAheadRecord {
    device_read_requests: u64,
    windows: u64,
    windows_at_max: u64,
    window_pages: u64,
    prefetched_asked: u64,
    prefetched_read: u64,
    prefetched_used: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence_hits: Option<u64>,
    wasted_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    readahead_efficiency_of_paper: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    readahead_efficiency: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    readahead_efficiency_of_read: Option<f64>,
    evicted: u64,
    reads_cached: u64,
    reads_free: u64,
    reads_evict_clean: u64,
    reads_evict_dirty: u64,
}

impl ReadAheadRecord {
    fn new(outcome: &Outcome) -> Self {
        let ahead = &outcome.readahead;
        Self {
            device_read_requests: outcome.read_requests,
            windows: ahead.windows,
            windows_at_max: ahead.windows_at_max,
            window_pages: ahead.window_pages,
            prefetched_asked: ahead.asked,
            prefetched_read: ahead.read,
            prefetched_used: ahead.used,
            sequence_hits: (ahead.sequence_hits > 0).then_some(ahead.sequence_hits),
            wasted_bytes: ahead.wasted() * PAGE_BYTES,
            readahead_efficiency_of_paper: ahead.efficiency_of_paper(),
            readahead_efficiency: ahead.efficiency(),
            readahead_efficiency_of_read: ahead.efficiency_of_read(),
            evicted: ahead.evicted,
            reads_cached: ahead.reads_cached,
            reads_free: ahead.reads_free,
            reads_evict_clean: ahead.reads_evict_clean,
            reads_evict_dirty: ahead.reads_evict_dirty,
        }
    }
}

/// Accesses to memory, where they are counted.
#[derive(Serialize)]
struct TrafficRecord {
    dram_accesses: u64,
    nvm_reads: u64,
    nvm_writes: u64,
    nvm_left: u64,
    dram_read_lines: u64,
    dram_written_lines: u64,
    nvm_read_lines: u64,
    nvm_written_lines: u64,
    /// Writes of a line of non-volatile memory: the mean, and the line written most often.
    #[serde(skip_serializing_if = "Option::is_none")]
    nvm_mean_line_writes: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nvm_hottest_line_writes: Option<u64>,
}

impl TrafficRecord {
    fn new(traffic: &Traffic) -> Self {
        let has_nvm = traffic.nvm_lines > 0;
        Self {
            dram_accesses: traffic.dram_read_lines + traffic.dram_written_lines,
            nvm_reads: traffic.nvm_reads,
            nvm_writes: traffic.nvm_writes,
            nvm_left: traffic.nvm_left,
            dram_read_lines: traffic.dram_read_lines,
            dram_written_lines: traffic.dram_written_lines,
            nvm_read_lines: traffic.nvm_read_lines,
            nvm_written_lines: traffic.nvm_written_lines,
            nvm_mean_line_writes: has_nvm
                .then(|| traffic.nvm_written_lines as f64 / traffic.nvm_lines as f64),
            nvm_hottest_line_writes: has_nvm.then_some(traffic.nvm_hottest_line_writes),
        }
    }
}

/// Time and energy on one memory.
#[derive(Serialize)]
struct MemoryRecord {
    dram_s: f64,
    nvm_read_s: f64,
    nvm_write_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    energy_j: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    energy_mj_page_j: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    energy_by_time_j: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    energy_quotient_w: Option<f64>,
    /// Erasures of each block, and their share of those that it bears: of flash used as memory.
    #[serde(skip_serializing_if = "Option::is_none")]
    erasures: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wear_share: Option<f64>,
}

impl From<&MemoryCost> for MemoryRecord {
    fn from(cost: &MemoryCost) -> Self {
        Self {
            dram_s: cost.dram_s,
            nvm_read_s: cost.nvm_read_s,
            nvm_write_s: cost.nvm_write_s,
            energy_j: cost.energy.map(|energy| energy.energy_j),
            energy_mj_page_j: cost.energy.map(|energy| energy.energy_mj_page_j),
            energy_by_time_j: cost.energy.map(|energy| energy.energy_by_time_j),
            energy_quotient_w: cost.energy.map(|energy| energy.energy_quotient_w),
            erasures: cost.erasures,
            wear_share: cost.wear_share,
        }
    }
}

#[derive(Serialize)]
struct DeviceRecord<'a> {
    device: &'a str,
    elapsed_s: f64,
    /// The part of it that reads take; given where memory is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    storage_read_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    storage_write_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stall_s: Option<f64>,
    /// If read-aheads are compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    read_cases: Option<ReadCasesRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fill: Option<Fill>,
    /// Null with a reason if the run does not show it.
    write_amplification: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    write_amplification_reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lifetime_gain: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gb_per_day: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    drive_writes_per_day: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lifetime: Option<Lifetime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lifetime_reason: Option<&'static str>,
}

/// Reads of applications by what they wait for.
#[derive(Serialize)]
struct ReadCasesRecord {
    cached: CaseRecord,
    free: CaseRecord,
    evict_clean: CaseRecord,
    evict_dirty: CaseRecord,
}

impl From<[CaseRecord; 4]> for ReadCasesRecord {
    fn from([cached, free, evict_clean, evict_dirty]: [CaseRecord; 4]) -> Self {
        Self { cached, free, evict_clean, evict_dirty }
    }
}

#[derive(Serialize)]
struct CaseRecord {
    reads: u64,
    /// Mean time on the device; absent without reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    latency_us: Option<f64>,
    /// Mean wait at recorded times; absent without reads or times.
    #[serde(skip_serializing_if = "Option::is_none")]
    stall_us: Option<f64>,
}

impl From<CaseLatency> for CaseRecord {
    fn from(case: CaseLatency) -> Self {
        Self { reads: case.reads, latency_us: case.latency_us(), stall_us: case.stall_us() }
    }
}

/// The names and settings that every record of a comparison repeats, and the set of meaningful
/// fields.
pub struct RecordShape<'a> {
    trace: &'a str,
    writeback: String,
    syncs: bool,
    unit: Unit,
    writes: bool,
    without_removals: bool,
    drain: bool,
    metadata: bool,
    memory: bool,
}

/// The most programs, or reasons, of a cell.
const CHARGED_MAX: usize = 10;

/// Pages written that a program made dirty.
#[derive(Serialize)]
struct ProgramRecord<'a> {
    program: &'a str,
    writes: u64,
}

/// Pages written for a reason.
#[derive(Serialize)]
struct ReasonRecord {
    reason: &'static str,
    writes: u64,
}

impl<'a> RecordShape<'a> {
    /// Returns the shape of the records of these results, under the name of the trace.
    pub fn new(trace: &'a str, results: &Results<'_>) -> Self {
        let study = results.study();
        let Request { writeback, unit, without_removals, drain, metadata, .. } = study.request();
        Self {
            trace,
            writeback: writeback.to_string(),
            syncs: writeback.syncs != Syncs::Nothing,
            unit: *unit,
            writes: study.trace().about().knows.writes,
            without_removals: *without_removals,
            drain: *drain,
            metadata: metadata.is_some(),
            memory: study.compares_memory(),
        }
    }

    /// Returns one record for each device, or a single record without a device.
    pub fn records(&'a self, row: &'a ResultRow) -> Vec<CellRecord<'a>> {
        if row.devices.is_empty() {
            return vec![self.record(row, None)];
        }
        row.devices.iter().map(|device| self.record(row, Some(device))).collect()
    }

    fn record(&'a self, row: &'a ResultRow, on: Option<&'a DeviceResult>) -> CellRecord<'a> {
        let (outcome, device) = (&row.outcome, row.outcome.device);
        let Self { writes, syncs, drain, metadata, .. } = *self;
        CellRecord {
            schema: 1,
            trace: self.trace,
            policy: &row.policy,
            system: &row.system,
            readahead: row.readahead.as_deref(),
            frames: row.frames,
            memory_bytes: memory_bytes(self.unit, row.frames),
            writeback: &self.writeback,
            removals: self.without_removals.then_some("ignore"),
            accesses: outcome.accesses(),
            read_accesses: outcome.read_accesses,
            write_accesses: outcome.write_accesses,
            hits: outcome.hits(),
            read_hits: outcome.read_hits,
            write_hits: outcome.write_hits,
            device_reads: device.reads,
            direct_reads: present(outcome.direct_reads),
            direct_writes: present(outcome.direct_writes),
            device_writes: writes.then_some(device.writes),
            device_write_requests: writes.then_some(device.write_requests),
            flushes: (writes && syncs).then_some(device.flushes),
            sync_writes: (writes && syncs).then_some(device.sync_writes),
            drained: drain.then_some(device.drained),
            nvm_pages: row.nvm_pages,
            dropped_dirty: writes.then_some(device.dropped_dirty),
            dirty_left: writes.then_some(outcome.dirty_left),
            nonsequential_writes: writes.then_some(device.nonsequential_writes),
            journal_writes: metadata.then_some(device.journal_writes),
            metadata_writes: metadata.then_some(device.metadata_writes),
            device_flushes: metadata.then_some(device.device_flushes),
            by_program: row.charged.as_ref().map(|charged| {
                let first = charged.by_program.iter().take(CHARGED_MAX);
                first.map(|(program, writes)| ProgramRecord { program, writes: *writes }).collect()
            }),
            by_reason: row.charged.as_ref().map(|charged| {
                let first = charged.by_reason.iter().take(CHARGED_MAX);
                first.map(|(reason, writes)| ReasonRecord { reason, writes: *writes }).collect()
            }),
            cost_us: outcome.cost_us(),
            ahead: row.readahead.as_ref().map(|_| ReadAheadRecord::new(outcome)),
            traffic: self.memory.then(|| TrafficRecord::new(&outcome.traffic)),
            memory: (!row.memory.is_empty()).then(|| {
                row.memory.iter().map(|(name, cost)| (*name, MemoryRecord::from(cost))).collect()
            }),
            on: on.map(|on| DeviceRecord {
                storage_read_s: self.memory.then_some(on.read_s),
                storage_write_s: self.memory.then_some(on.elapsed_s - on.read_s),
                ..DeviceRecord::from(on)
            }),
            cpu_ns_per_access: (row.cpu_ns_per_access * 10.0).round() / 10.0,
        }
    }
}

/// Absent where there are none.
fn present(count: u64) -> Option<u64> {
    (count > 0).then_some(count)
}

/// Absent for objects, which have no common size.
fn memory_bytes(unit: Unit, frames: u32) -> Option<u64> {
    (unit == Unit::Page).then(|| u64::from(frames) * PAGE_BYTES)
}

impl<'a> From<&'a DeviceResult> for DeviceRecord<'a> {
    fn from(on: &'a DeviceResult) -> Self {
        Self {
            device: &on.device,
            elapsed_s: on.elapsed_s,
            storage_read_s: None,
            storage_write_s: None,
            stall_s: on.stall_s,
            read_cases: on.read_cases.map(|cases| cases.map(CaseRecord::from).into()),
            fill: on.fill,
            write_amplification: on.write_amplification.ok(),
            write_amplification_reason: on.write_amplification.err().map(|why| why.to_string()),
            lifetime_gain: on.lifetime_gain,
            gb_per_day: on.daily.map(|daily| daily.gb_per_day()),
            drive_writes_per_day: on.drive_writes_per_day,
            lifetime: on.lifetime.ok(),
            lifetime_reason: on.lifetime.err().map(NoLifetime::as_text),
        }
    }
}

/// The last line with `--verdict`.
#[derive(Serialize)]
pub struct VerdictLine<'a> {
    schema: u32,
    verdict: VerdictRecord<'a>,
}

#[derive(Serialize)]
struct VerdictRecord<'a> {
    trace: &'a str,
    writeback: &'a str,
    accesses: u64,
    /// First accesses, which miss in every cache.
    cold_accesses: u64,
    sizes: Vec<SizeRecord<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    least_cpu: Option<LeastCpuRecord<'a>>,
}

#[derive(Serialize)]
struct SizeRecord<'a> {
    frames: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory_bytes: Option<u64>,
    #[serde(skip_serializing_if = "<[Knee]>::is_empty")]
    knees: &'a [Knee],
    most_hits: BestRecord<'a>,
    #[serde(flatten)]
    writes: Option<WritesRecord<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bound: Option<BoundRecord<'a>>,
    /// The best's share of the hits that the bound has beyond those of lru.
    #[serde(skip_serializing_if = "Option::is_none")]
    gap_closed: Option<f64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    devices: Vec<DeviceVerdictRecord<'a>>,
}

#[derive(Serialize)]
struct DeviceVerdictRecord<'a> {
    device: &'a str,
    least_elapsed_us: BestRecord<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fewest_programs: Option<BestRecord<'a>>,
}

/// Writes include pages still dirty at the end.
#[derive(Serialize)]
struct WritesRecord<'a> {
    fewest_writes: BestRecord<'a>,
    /// Absent if more pages are still dirty than were written.
    #[serde(skip_serializing_if = "Option::is_none")]
    fewest_nonsequential_writes: Option<BestRecord<'a>>,
    pareto_front: &'a [&'a str],
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
struct LeastCpuRecord<'a> {
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
            fewest_nonsequential_writes: writes.fewest_nonsequential.as_ref().map(Into::into),
            pareto_front: &writes.pareto_front,
        }
    }
}

impl<'a> VerdictLine<'a> {
    /// Returns the line of a verdict.
    pub fn new(shape: &'a RecordShape<'a>, found: &'a StudyVerdict<'a>) -> Self {
        let on_device = |device: &'a DeviceVerdict<'a>| DeviceVerdictRecord {
            device: device.device,
            least_elapsed_us: (&device.fastest).into(),
            fewest_programs: device.lives_longest.as_ref().map(Into::into),
        };
        let size =
            |SizeVerdict { frames, verdict, devices, knees }: &'a SizeVerdict<'a>| SizeRecord {
                knees,
                frames: *frames,
                memory_bytes: memory_bytes(found.unit, *frames),
                most_hits: (&verdict.hits).into(),
                writes: verdict.writes.as_ref().map(Into::into),
                bound: verdict.bound.map(|(policy, hits)| BoundRecord { policy, hits }),
                gap_closed: verdict.gap_closed(),
                devices: devices.iter().map(on_device).collect(),
            };
        let verdict = VerdictRecord {
            trace: shape.trace,
            writeback: &shape.writeback,
            accesses: found.sizes.first().map_or(0, |size| size.verdict.accesses),
            cold_accesses: found.cold_accesses,
            sizes: found.sizes.iter().map(size).collect(),
            least_cpu: found.least_cpu.as_ref().map(|least| LeastCpuRecord {
                policies: &least.policies,
                cpu_ns_per_access: (least.ns_per_access * 10.0).round() / 10.0,
            }),
        };
        Self { schema: 1, verdict }
    }
}
