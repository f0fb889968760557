//! Results as records for programs, and as columns of tables: the list of the figures of a cell,
//! and with `--verdict` those of one line more.
//!
//! A figure that is added here appears in `compare --json` and `--csv`, in the JSON Schema, in
//! Python's columns and in the documentation, and with the head of a column in tables and pages.

use super::figures::{
    COUNT, FLAG, FigureValue, HasFigures, NON_NEGATIVE, NUMBER, POSITIVE, ResultRecord, SHARE,
    Shown, TEXT, TEXTS, VERSION, object,
};
use crate::{
    Best, CaseLatency, DeviceResult, DeviceVerdict, Knee, LeastCpu, Request, ResultRow, Results,
    SizeVerdict, StudyVerdict, Writes, figures, schema_of,
};
use flashsift_caches::{lines::Traffic, trace::Unit};
use flashsift_events::page::PAGE_BYTES;
use flashsift_pages::{
    device::lifetime::{Lifetime, NoLifetime},
    nvm::profile::{Energy, MemoryCost},
    readahead,
    system::Outcome,
    writeback::Syncs,
};

/// A cell, or a cell on one device: one line of `compare --json`.
#[derive(Clone, Copy)]
pub struct CellOf<'a> {
    /// The names and settings of the comparison.
    pub shape: &'a RecordShape<'a>,
    /// The result of the cell.
    pub row: &'a ResultRow,
    /// Time and wear on a device.
    pub on: Option<&'a DeviceResult>,
    /// Time and energy of a modelled memory, for a table of that memory.
    pub memory: Option<&'a MemoryCost>,
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

/// The shape of tables, whose columns are chosen by the values.
static TABLES: RecordShape<'static> = RecordShape {
    trace: "",
    writeback: String::new(),
    syncs: true,
    unit: Unit::Page,
    writes: true,
    without_removals: false,
    drain: true,
    metadata: true,
    memory: true,
};

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
    pub fn records(&'a self, row: &'a ResultRow) -> Vec<ResultRecord<CellOf<'a>>> {
        let of = |on| ResultRecord(CellOf { shape: self, row, on, memory: None });
        match &row.devices[..] {
            [] => vec![of(None)],
            devices => devices.iter().map(|device| of(Some(device))).collect(),
        }
    }
}

impl<'a> CellOf<'a> {
    /// Returns a cell for a table.
    pub fn new(row: &'a ResultRow) -> Self {
        Self { shape: &TABLES, row, on: None, memory: None }
    }

    fn all(&self) -> &'a Outcome {
        &self.row.outcome
    }

    /// A count of traces that know writes.
    fn writes(&self, count: u64) -> Option<u64> {
        self.shape.writes.then_some(count)
    }

    fn synced(&self, count: u64) -> Option<u64> {
        self.writes(count).filter(|_| self.shape.syncs)
    }

    fn own(&self, count: u64) -> Option<u64> {
        self.shape.metadata.then_some(count)
    }

    /// Prefetches, where read-aheads are compared.
    fn ahead(&self) -> Option<&'a readahead::Counts> {
        self.row.readahead.as_ref().map(|_| &self.row.outcome.readahead)
    }

    /// Accesses to memory, where they are counted.
    fn traffic(&self) -> Option<&'a Traffic> {
        self.shape.memory.then_some(&self.row.outcome.traffic)
    }

    fn of_nvm(&self) -> Option<&'a Traffic> {
        self.traffic().filter(|traffic| traffic.nvm_lines > 0)
    }

    fn case(&self, case: usize) -> Option<CaseLatency> {
        Some(self.on?.read_cases?[case])
    }
}

/// The most programs, or reasons, of a cell.
const CHARGED_MAX: usize = 10;

/// Absent where there are none.
fn present(count: u64) -> Option<u64> {
    (count > 0).then_some(count)
}

/// Absent for objects, which have no common size.
pub fn memory_bytes(unit: Unit, frames: u32) -> Option<u64> {
    (unit == Unit::Page).then(|| u64::from(frames) * PAGE_BYTES)
}

/// CPU time with one digit: it varies from run to run.
pub fn rounded_ns(ns: f64) -> f64 {
    (ns * 10.0).round() / 10.0
}

/// The sentence on the frames of a cache.
pub const FRAMES: &str =
    "Frames of the cache; a frame holds a page or, with --object-cache, an object.";
/// The sentence on the bytes of a cache.
pub const MEMORY_BYTES: &str = "Size of the cache in bytes; absent for objects.";
/// The sentence on accesses.
pub const ACCESSES: &str = "Page reads and writes of applications, without O_DIRECT.";
/// The sentence on CPU time.
pub const CPU: &str =
    "CPU time of the simulation by access; not a property of the policy in a kernel.";

figures! { "cell", "A policy at a size, on a device if devices are given": CellOf<'_> {
    always schema: VERSION, "Version of the record.", |_| 1_u32;
    always trace: TEXT, "Name of the trace.", |c| c.shape.trace;
    always policy: TEXT, "Policy with the parameters given; behind it, the system or read-ahead if \
        several are compared.", |c| &*c.row.policy;
    always system: TEXT, "System with the parameters given.", |c| &*c.row.system;
    maybe readahead: TEXT, "Read-ahead, if read-aheads are compared.",
        |c| c.row.readahead.as_deref();
    always frames: POSITIVE, FRAMES, |c| c.row.frames;
    maybe memory_bytes: COUNT, MEMORY_BYTES, |c| memory_bytes(c.shape.unit, c.row.frames);
    always writeback: TEXT, "Modes of write-back.", |c| &*c.shape.writeback;
    maybe removals: r#""const": "ignore""#,
        "If truncated and deleted pages stay (--removals ignore).",
        |c| c.shape.without_removals.then_some("ignore");
    always accesses: COUNT, ACCESSES, |c| c.all().accesses();
    always read_accesses: COUNT, "Page reads among them.", |c| c.all().read_accesses;
    always write_accesses: COUNT, "Page writes among them.", |c| c.all().write_accesses;
    always hits: COUNT, "Accesses that found their page in the cache.", |c| c.all().hits();
    table hit_ratio: SHARE, "Hits / accesses.", |c| c.all().hit_ratio(),
        ["\nhits %", Most, Shown::Percent(2)];
    always read_hits: COUNT, "Page reads among the hits.", |c| c.all().read_hits;
    always write_hits: COUNT, "Page writes among the hits.", |c| c.all().write_hits;
    always device_reads: COUNT, "Pages read from storage.", |c| c.all().device.reads,
        ["storage\nreads", Least, Shown::Count];
    maybe direct_reads: COUNT, "Pages among them that were read past the cache.",
        |c| present(c.all().direct_reads);
    maybe direct_writes: COUNT, "Pages among device_writes that were written past the cache.",
        |c| present(c.all().direct_writes);
    maybe device_writes: COUNT,
        "Pages written to storage; absent if the trace does not record writes.",
        |c| c.writes(c.all().device.writes), ["storage\nwrites", Least, Shown::Count];
    maybe device_write_requests: COUNT, "Requests that these writes form.",
        |c| c.writes(c.all().device.write_requests), ["write\nrequests", Least, Shown::Count];
    maybe sync_writes: COUNT, "Pages among device_writes that a sync wrote.",
        |c| c.synced(c.all().device.sync_writes), ["of them\nsynced", None, Shown::Count];
    maybe flushes: COUNT, "Flushes of the device's cache, which syncs end with.",
        |c| c.synced(c.all().device.flushes);
    maybe drained: COUNT, "Pages among device_writes that were written at the end, with --drain.",
        |c| c.shape.drain.then_some(c.all().device.drained),
        ["of them\ndrained", None, Shown::Count];
    maybe nvm_pages: COUNT, "Pages of the write buffer in non-volatile memory.",
        |c| c.row.nvm_pages;
    maybe dropped_dirty: COUNT, "Dirty pages that were deleted before they were written.",
        |c| c.writes(c.all().device.dropped_dirty), ["dropped\ndirty", None, Shown::Count];
    maybe dirty_left: COUNT, "Pages still dirty at the end.", |c| c.writes(c.all().dirty_left);
    // The verdict and the page compare these: a policy that has postponed its writes saved none.
    table writes_due: COUNT, "Pages written, and those that have yet to be written.",
        |c| c.all().writes_due(), ["written\n+ dirty", Least, Shown::Count];
    maybe nonsequential_writes: COUNT, "Pages written that do not follow the write before them.",
        |c| c.writes(c.all().device.nonsequential_writes),
        ["not\nsequential", Least, Shown::Count];
    maybe journal_writes: COUNT, "Pages of the file system's journal, with --metadata.",
        |c| c.own(c.all().device.journal_writes), ["journal\nwrites", Least, Shown::Count];
    maybe metadata_writes: COUNT, "Pages of metadata written in place, with --metadata.",
        |c| c.own(c.all().device.metadata_writes), ["metadata\nwrites", Least, Shown::Count];
    maybe device_flushes: COUNT, "Flushes of the file system's own, with --metadata.",
        |c| c.own(c.all().device.device_flushes);
    maybe by_program: schema_of!(["program"]), "Pages written by program, with --attribution.",
        |c| c.row.charged.as_ref().map(|charged| list(charged.by_program.iter().take(CHARGED_MAX)));
    maybe by_reason: schema_of!(["reason"]), "Pages written by reason, with --attribution.",
        |c| c.row.charged.as_ref().map(|charged| list(charged.by_reason.iter().take(CHARGED_MAX)));
    always cost_us: COUNT, "100 µs a page read and 800 µs a page written: SpatialClock's model.",
        |c| c.all().cost_us(), ["\ncost s", Least, Shown::Seconds];

    maybe device_read_requests: COUNT, "Requests that reads form, if read-aheads are compared.",
        |c| c.ahead().map(|_| c.all().read_requests), ["read\nrequests", Least, Shown::Count];
    maybe windows: COUNT, "Windows of read-ahead.",
        |c| c.ahead().map(|ahead| ahead.windows), ["\nwindows", None, Shown::Count];
    maybe windows_at_max: COUNT, "Windows of the largest size.",
        |c| c.ahead().map(|ahead| ahead.windows_at_max);
    maybe window_pages: COUNT, "Pages of all windows.",
        |c| c.ahead().map(|ahead| ahead.window_pages);
    table mean_pages: NUMBER, "Mean pages of a window.",
        |c| c.all().readahead.mean_pages(), ["mean\npages", None, Shown::Fixed(1)];
    table share_at_max: SHARE, "Share of the windows that have the largest size.",
        |c| c.all().readahead.share_at_max(), ["at the\nmaximum %", None, Shown::Percent(1)];
    maybe prefetched_asked: COUNT, "Pages that read-ahead asked for.",
        |c| c.ahead().map(|ahead| ahead.asked), ["pages\nahead", None, Shown::Count];
    maybe prefetched_read: COUNT, "Pages among them that were read from storage.",
        |c| c.ahead().map(|ahead| ahead.read), ["of them\nread", None, Shown::Count];
    maybe prefetched_used: COUNT, "Pages among these that were then read, or written in part.",
        |c| c.ahead().map(|ahead| ahead.used), ["of them\nused", None, Shown::Count];
    maybe sequence_hits: COUNT,
        "Page requests that hit by the paper's rule, with the first of each sequence.",
        |c| present(c.ahead().map_or(0, |ahead| ahead.sequence_hits));
    maybe wasted_bytes: COUNT, "Bytes read ahead and never used.",
        |c| c.ahead().map(|ahead| ahead.wasted() * PAGE_BYTES);
    table wasted_pages: COUNT, "Pages read ahead and never used.",
        |c| c.all().readahead.wasted(), ["wasted\nMiB", Least, Shown::Mebibytes];
    maybe readahead_efficiency_of_paper: SHARE,
        "sequence_hits / window_pages, as the paper counts.",
        |c| c.ahead().and_then(readahead::Counts::efficiency_of_paper);
    maybe readahead_efficiency: SHARE, "prefetched_used / prefetched_asked.",
        |c| c.ahead().and_then(readahead::Counts::efficiency);
    maybe readahead_efficiency_of_read: SHARE, "prefetched_used / prefetched_read.",
        |c| c.ahead().and_then(readahead::Counts::efficiency_of_read),
        ["efficiency\n%", Most, Shown::Percent(1)];
    maybe evicted: COUNT, "Pages that left the cache.",
        |c| c.ahead().map(|ahead| ahead.evicted);
    table evicted_share: NON_NEGATIVE,
        "The paper's eviction ratio: pages evicted / pages that applications asked for.",
        |c| c.all().readahead.evicted as f64 / c.all().accesses().max(1) as f64,
        ["evicted /\nasked", Least, Shown::Fixed(3)];
    maybe reads_cached: COUNT, "Reads of applications that found all pages.",
        |c| c.ahead().map(|ahead| ahead.reads_cached);
    maybe reads_free: COUNT, "Reads that found free frames.",
        |c| c.ahead().map(|ahead| ahead.reads_free);
    maybe reads_evict_clean: COUNT, "Reads that evicted clean pages.",
        |c| c.ahead().map(|ahead| ahead.reads_evict_clean);
    maybe reads_evict_dirty: COUNT, "Reads that had to write dirty pages first.",
        |c| c.ahead().map(|ahead| ahead.reads_evict_dirty);

    maybe dram_accesses: COUNT, "Lines of DRAM accessed, if memory is compared.",
        |c| c.traffic().map(|lines| lines.dram_read_lines + lines.dram_written_lines);
    maybe nvm_reads: COUNT, "Pages read from non-volatile memory in place of storage.",
        |c| c.traffic().map(|traffic| traffic.nvm_reads), ["NVM\nreads", None, Shown::Count];
    maybe nvm_writes: COUNT, "Pages written to non-volatile memory.",
        |c| c.traffic().map(|traffic| traffic.nvm_writes), ["NVM\nwrites", None, Shown::Count];
    maybe nvm_left: COUNT, "Pages in non-volatile memory at the end that storage lacks.",
        |c| c.traffic().map(|traffic| traffic.nvm_left), ["left\nin NVM", None, Shown::Count];
    maybe dram_read_lines: COUNT, "Lines of 64 bytes read from DRAM.",
        |c| c.traffic().map(|traffic| traffic.dram_read_lines);
    maybe dram_written_lines: COUNT, "Lines written to DRAM.",
        |c| c.traffic().map(|traffic| traffic.dram_written_lines);
    maybe nvm_read_lines: COUNT, "Lines read from non-volatile memory.",
        |c| c.traffic().map(|traffic| traffic.nvm_read_lines);
    maybe nvm_written_lines: COUNT, "Lines written to non-volatile memory.",
        |c| c.traffic().map(|traffic| traffic.nvm_written_lines);
    maybe nvm_mean_line_writes: NUMBER,
        "Mean number of writes of a line of non-volatile memory.",
        |c| c.of_nvm().map(|nvm| nvm.nvm_written_lines as f64 / nvm.nvm_lines as f64);
    maybe nvm_hottest_line_writes: COUNT, "Writes of the line that is written most often.",
        |c| c.of_nvm().map(|nvm| nvm.nvm_hottest_line_writes);
    table hottest_line: COUNT, "The same; 0 without such memory.",
        |c| c.all().traffic.nvm_hottest_line_writes,
        ["writes of\nhottest line", None, Shown::Count];
    maybe memory: schema_of!({"memory"}),
        "Time and energy of each modelled memory, by its name (--nvm).",
        |c| (!c.row.memory.is_empty()).then(|| {
            let mut costs = c.row.memory.clone();
            costs.sort_by_key(|(name, _)| *name);
            FigureValue::Object(costs.iter().map(|(name, cost)| (*name, object(cost))).collect())
        });
    table dram_s: NUMBER, "As in memory.", |c| c.memory.map(|cost| cost.dram_s),
        ["DRAM\nms", None, Shown::Milliseconds];
    table nvm_read_s: NUMBER, "As in memory.", |c| c.memory.map(|cost| cost.nvm_read_s),
        ["NVM reads\nms", None, Shown::Milliseconds];
    table nvm_write_s: NUMBER, "As in memory.", |c| c.memory.map(|cost| cost.nvm_write_s),
        ["NVM writes\nms", None, Shown::Milliseconds];
    table energy_by_time_j: NUMBER, "As in memory.",
        |c| c.memory.and_then(|cost| cost.energy).map(|energy| energy.energy_by_time_j),
        ["\nenergy J", Least, Shown::Significant];
    table erasures: NUMBER, "As in memory.", |c| c.memory.and_then(|cost| cost.erasures),
        ["NVM\nerasures", Least, Shown::Significant];

    maybe device: TEXT, "Modelled device; there is one record for each.",
        |c| c.on.map(|on| &*on.device);
    maybe elapsed_s: NON_NEGATIVE,
        "Time from the first request to the completion of the last, without pauses.",
        |c| c.on.map(|on| on.elapsed_s), ["\nelapsed s", Least, Shown::Fixed(3)];
    maybe storage_read_s: NUMBER, "The part of it that reads take, if memory is compared.",
        |c| c.on.filter(|_| c.shape.memory).map(|on| on.read_s);
    maybe storage_write_s: NUMBER, "The other part.",
        |c| c.on.filter(|_| c.shape.memory).map(|on| on.elapsed_s - on.read_s);
    maybe stall_s: NUMBER,
        "Time that applications wait, with requests at their recorded times.",
        |c| c.on.and_then(|on| on.stall_s), ["\nstall s", Least, Shown::Fixed(3)];
    maybe read_cases: schema_of!("read_cases"),
        "Reads of applications by the pages that they wait for.",
        |c| c.on.and_then(|on| on.read_cases).map(|cases| object(&cases));
    // The mean of a case has no best: a read-ahead that turns cheap reads into hits leaves the
    // others.
    table reads_of_cached: COUNT, "", |c| c.case(0).map(|case| case.reads),
        ["reads\ncached", None, Shown::Count];
    table reads_of_free: COUNT, "", |c| c.case(1).map(|case| case.reads),
        ["reads\nfree", None, Shown::Count];
    table reads_of_clean: COUNT, "", |c| c.case(2).map(|case| case.reads),
        ["reads\nclean", None, Shown::Count];
    table reads_of_dirty: COUNT, "", |c| c.case(3).map(|case| case.reads),
        ["reads\ndirty", None, Shown::Count];
    table us_of_cached: NUMBER, "", |c| c.case(0).and_then(|case| case.latency_us()),
        ["µs\ncached", None, Shown::Fixed(1)];
    table us_of_free: NUMBER, "", |c| c.case(1).and_then(|case| case.latency_us()),
        ["µs\nfree", None, Shown::Fixed(1)];
    table us_of_clean: NUMBER, "", |c| c.case(2).and_then(|case| case.latency_us()),
        ["µs\nclean", None, Shown::Fixed(1)];
    table us_of_dirty: NUMBER, "", |c| c.case(3).and_then(|case| case.latency_us()),
        ["µs\ndirty", None, Shown::Fixed(1)];
    table wait_of_cached: NUMBER, "", |c| c.case(0).and_then(|case| case.stall_us()),
        ["wait µs\ncached", None, Shown::Fixed(1)];
    table wait_of_free: NUMBER, "", |c| c.case(1).and_then(|case| case.stall_us()),
        ["wait µs\nfree", None, Shown::Fixed(1)];
    table wait_of_clean: NUMBER, "", |c| c.case(2).and_then(|case| case.stall_us()),
        ["wait µs\nclean", None, Shown::Fixed(1)];
    table wait_of_dirty: NUMBER, "", |c| c.case(3).and_then(|case| case.stall_us()),
        ["wait µs\ndirty", None, Shown::Fixed(1)];
    maybe fill: r#""enum": ["empty", "in-order", "random"]"#,
        "Content of the device before the first request.",
        |c| c.on.and_then(|on| on.fill).map(FigureValue::name);
    maybe write_amplification: r#""type": ["number", "null"]"#,
        "Pages programmed for each page written; null with a reason.",
        |c| c.on.map(|on| on.write_amplification.map_or(FigureValue::Null, FigureValue::from)),
        ["write\namplification", Least, Shown::Fixed(2)];
    maybe write_amplification_reason: TEXT, "The reason why the run shows none.",
        |c| c.on.and_then(|on| Some(on.write_amplification.err()?.to_string()));
    maybe lifetime_gain: NUMBER, "Gain in lifetime over LRU at this size, as a share.",
        |c| c.on.and_then(|on| on.lifetime_gain), ["lifetime\ngain %", Most, Shown::Gain];
    maybe gb_per_day: NUMBER, "Gigabytes (10⁹) written in a day like the trace.",
        |c| c.on.and_then(|on| on.daily).map(|daily| daily.gb_per_day()),
        ["\nGB/day", Least, Shown::Significant];
    maybe drive_writes_per_day: NUMBER, "Capacities written in such a day.",
        |c| c.on.and_then(|on| on.drive_writes_per_day),
        ["drive\nwrites/day", Least, Shown::Significant];
    maybe lifetime: schema_of!("lifetime"),
        "Years that the flash lasts if every day is like the trace.",
        |c| c.on.and_then(|on| on.lifetime.ok()).map(|life| object(&life));
    table years: NUMBER, "As in lifetime.",
        |c| c.on.and_then(|on| on.lifetime.ok()).map(|life| life.years),
        ["\nyears", Most, Shown::Significant];
    maybe lifetime_reason: TEXT, "The reason why there is no lifetime.",
        |c| c.on.and_then(|on| on.lifetime.err()).map(NoLifetime::as_text);
    // CPU time is not a result and varies between runs.
    always cpu_ns_per_access: NON_NEGATIVE, CPU, |c| rounded_ns(c.row.cpu_ns_per_access),
        ["ns per\naccess", None, Shown::Fixed(1)];
} }

figures! { "program", "Pages written that a program made dirty": (String, u64) {
    always program: TEXT, "Name of the program that made the pages dirty.", |of| &*of.0;
    always writes: COUNT, "Pages written.", |of| of.1;
} }

figures! { "reason", "Pages written for a reason": (&'static str, u64) {
    always reason: TEXT, "Reason of the writes.", |of| of.0;
    always writes: COUNT, "Pages written.", |of| of.1;
} }

figures! { "read_cases", "Reads by what they wait for": [CaseLatency; 4] {
    always cached: schema_of!("case"), "", |cases| object(&cases[0]);
    always free: schema_of!("case"), "", |cases| object(&cases[1]);
    always evict_clean: schema_of!("case"), "", |cases| object(&cases[2]);
    always evict_dirty: schema_of!("case"), "", |cases| object(&cases[3]);
} }

figures! { "case", "The reads of one case": CaseLatency {
    always reads: COUNT, "Reads of applications.", |case| case.reads;
    maybe latency_us: NUMBER, "Mean time on the device.", |case| case.latency_us();
    maybe stall_us: NUMBER, "Mean wait at recorded times.", |case| case.stall_us();
} }

figures! { "memory", "Time and energy on one memory": MemoryCost {
    always dram_s: NUMBER, "Time of accesses to DRAM.", |cost| cost.dram_s;
    always nvm_read_s: NUMBER, "Time of reads of non-volatile memory.", |cost| cost.nvm_read_s;
    always nvm_write_s: NUMBER, "Time of writes.", |cost| cost.nvm_write_s;
    maybe energy_j: NUMBER, "Energy.", |cost| of_energy(cost, |energy| energy.energy_j);
    maybe energy_mj_page_j: NUMBER, "Energy by the paper's figures for a page.",
        |cost| of_energy(cost, |energy| energy.energy_mj_page_j);
    maybe energy_by_time_j: NUMBER, "Energy, that of storage in proportion to its time.",
        |cost| of_energy(cost, |energy| energy.energy_by_time_j);
    maybe energy_quotient_w: NUMBER, "Energy by time.",
        |cost| of_energy(cost, |energy| energy.energy_quotient_w);
    maybe erasures: NUMBER, "Erasures of each block, of flash used as memory.",
        |cost| cost.erasures;
    maybe wear_share: NUMBER, "Their share of those that it bears.", |cost| cost.wear_share;
} }

fn of_energy(cost: &MemoryCost, of: fn(Energy) -> f64) -> Option<f64> {
    cost.energy.map(of)
}

figures! { "lifetime", "Years that the flash lasts if every day is like the trace": Lifetime {
    always years: NUMBER, "Years.", |life| life.years;
    always gb_per_day: NUMBER, "Gigabytes (10⁹) written in a day like the trace.",
        |life| life.gb_per_day;
    always capacity_bytes: COUNT, "Capacity of the device.", |life| life.capacity_bytes;
    always observed_s: NUMBER, "Time that was scaled to a day.", |life| life.observed_s;
    always guess: FLAG, "Whether that was less than an hour.", |life| life.guess;
    always write_amplification_from: r#""enum": ["run", "random-writes", "assumed"]"#,
        "Origin of the write amplification.", |life| FigureValue::name(life.write_amplification_from);
    always cycles: NUMBER, "Program/erase cycles that a block endures.",
        |life| life.endurance.cycles;
    always over_provisioning: NUMBER, "Flash beyond the capacity, as a share of it.",
        |life| life.endurance.over_provisioning;
    always drive_writes_per_day: NUMBER, "Writes of the whole device in a day.",
        |life| life.endurance.drive_writes_per_day;
    always write_amplification: NUMBER, "Write amplification.",
        |life| life.endurance.write_amplification;
    always compression: NUMBER, "Bytes stored for each byte written by a device that compresses.",
        |life| life.endurance.compression;
} }

/// The last line with `--verdict`.
pub struct VerdictLine<'a> {
    /// The names and settings of the comparison.
    pub shape: &'a RecordShape<'a>,
    /// The best policies.
    pub found: &'a StudyVerdict<'a>,
}

/// The content of that line.
pub struct Summary<'a>(&'a VerdictLine<'a>);

/// The best policies at one size.
pub struct AtSize<'a>(&'a SizeVerdict<'a>, Unit);

impl<'a> AtSize<'a> {
    fn writes(&self) -> Option<&'a Writes<'a>> {
        self.0.verdict.writes.as_ref()
    }
}

/// A bound and its hits.
pub struct HitBound<'a>(&'a str, u64);

fn list<'r, R: HasFigures + 'r>(of: impl IntoIterator<Item = &'r R>) -> Vec<FigureValue> {
    of.into_iter().map(object).collect()
}

figures! { "verdict", "The last line with --verdict": VerdictLine<'_> {
    always schema: VERSION, "Version of the record.", |_| 1_u32;
    always verdict: schema_of!("summary"), "The best policies at each size.",
        |line| object(&Summary(line));
} }

figures! { "summary", "The best policies at each size": Summary<'_> {
    always trace: TEXT, "Name of the trace.", |line| line.0.shape.trace;
    always writeback: TEXT, "Modes of write-back.", |line| &*line.0.shape.writeback;
    always accesses: COUNT, ACCESSES,
        |line| line.0.found.sizes.first().map_or(0, |size| size.verdict.accesses);
    always cold_accesses: COUNT, "First accesses, which miss in every cache.",
        |line| line.0.found.cold_accesses;
    always sizes: schema_of!(["size"]), "", |line| {
        let found = line.0.found;
        found.sizes.iter().map(|size| object(&AtSize(size, found.unit))).collect::<Vec<_>>()
    };
    maybe least_cpu: schema_of!("least_cpu"), "",
        |line| line.0.found.least_cpu.as_ref().map(object);
} }

figures! { "least_cpu", "The policies of the least CPU time": LeastCpu<'_> {
    always policies: TEXTS, "", |least| &least.policies[..];
    always cpu_ns_per_access: NON_NEGATIVE, CPU, |least| rounded_ns(least.ns_per_access);
} }

figures! { "size", "The best policies at one size": AtSize<'_> {
    always frames: POSITIVE, FRAMES, |at| at.0.frames;
    maybe memory_bytes: COUNT, MEMORY_BYTES, |at| memory_bytes(at.1, at.0.frames);
    maybe knees: schema_of!(["knee"]), "",
        |at| Some(&at.0.knees).filter(|knees| !knees.is_empty()).map(list);
    always most_hits: schema_of!("best"), "", |at| object(&at.0.verdict.hits);
    maybe fewest_writes: schema_of!("best"), "Pages still dirty at the end are counted.",
        |at| at.writes().map(|writes| object(&writes.fewest));
    maybe fewest_nonsequential_writes: schema_of!("best"),
        "Absent if more pages are still dirty than were written.",
        |at| at.writes().and_then(|writes| writes.fewest_nonsequential.as_ref()).map(object);
    maybe pareto_front: TEXTS, "", |at| at.writes().map(|writes| &writes.pareto_front[..]);
    maybe bound: schema_of!("bound"), "",
        |at| at.0.verdict.bound.map(|(policy, hits)| object(&HitBound(policy, hits)));
    maybe gap_closed: NUMBER,
        "The best policy's share of the hits that the bound has beyond LRU.",
        |at| at.0.verdict.gap_closed();
    maybe devices: schema_of!(["on_device"]), "",
        |at| Some(&at.0.devices).filter(|devices| !devices.is_empty()).map(list);
} }

figures! { "knee", "The smallest write buffer of most of the saving": Knee {
    always system: TEXT, "Name of the system, without parameters.", |knee| &*knee.system;
    always frames: POSITIVE, FRAMES, |knee| knee.frames;
    always knee_pages: COUNT, "Pages of the smallest buffer of most of the largest saving.",
        |knee| knee.knee_pages;
    always knee_saving: NUMBER, "Share of the writes that it saves.", |knee| knee.knee_saving;
    always most_pages: COUNT, "Pages of the buffer that saves most.", |knee| knee.most_pages;
    always most_saving: NUMBER, "The share that this one saves.", |knee| knee.most_saving;
} }

figures! { "on_device", "The best policies on a device": DeviceVerdict<'_> {
    always device: TEXT, "", |on| on.device;
    always least_elapsed_us: schema_of!("best"), "", |on| object(&on.fastest);
    maybe fewest_programs: schema_of!("best"), "", |on| on.lives_longest.as_ref().map(object);
} }

figures! { "bound", "A policy that knows the future": HitBound<'_> {
    always policy: TEXT, "", |bound| bound.0;
    always hits: COUNT, "Hits of the bound.", |bound| bound.1;
} }

figures! { "best", "The best in one respect": Best<'_> {
    always policies: r#""type": "array", "items": {"type": "string"}, "minItems": 1"#,
        "The best; several if they are equal.", |best| &best.policies[..];
    always count: COUNT, "Their figure.", |best| best.count;
    maybe lru: COUNT, "That of LRU.", |best| best.reference;
} }

/// Returns the definitions of the lines of a comparison in a JSON Schema.
pub fn definitions() -> Vec<String> {
    use super::figures::definition as of;
    vec![
        of::<CellOf<'_>>(),
        of::<(String, u64)>(),
        of::<(&'static str, u64)>(),
        of::<[CaseLatency; 4]>(),
        of::<CaseLatency>(),
        of::<MemoryCost>(),
        of::<Lifetime>(),
        of::<VerdictLine<'_>>(),
        of::<Summary<'_>>(),
        of::<LeastCpu<'_>>(),
        of::<AtSize<'_>>(),
        of::<Knee>(),
        of::<DeviceVerdict<'_>>(),
        of::<HitBound<'_>>(),
        of::<Best<'_>>(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Policies, Study, figures::Place};
    use flashsift_caches::{
        synth::{Pattern, Recipe},
        trace::TraceBuilder,
    };
    use flashsift_pages::writeback::Modes;
    use std::collections::BTreeSet;

    /// Returns the records of two policies over a synthetic trace of 400 pages.
    fn records(frames: u32) -> Vec<serde_json::Value> {
        let recipe = Recipe {
            requests: 6000,
            pages: 400,
            pattern: Pattern::Mixed,
            write_share: 0.4,
            rate: 1000.0,
            seed: 7,
            objects: false,
        };
        let mut builder = TraceBuilder::new(recipe.about(), Unit::Page, u64::MAX);
        builder.extend(&recipe.events().unwrap().collect::<Vec<_>>()).unwrap();
        let trace = builder.finish().unwrap();
        let policies = Policies::parse(["lru", "arc"]).unwrap();
        let writeback = Modes::default();
        let request = Request { policies, frames: vec![frames], writeback, ..Request::default() };
        let study = Study::new(&trace, request).unwrap();
        let plan = study.plan().unwrap();
        let results = plan.results((0..plan.cells().len()).map(|cell| plan.run(cell, &|| 0, None)));
        let shape = RecordShape::new("trace", &results);
        let records = results.rows().flat_map(|row| shape.records(row));
        records.map(|record| serde_json::to_value(&record).unwrap()).collect()
    }

    #[test]
    fn a_record_has_the_figures_that_each_has_and_others_of_the_list_alone() {
        let figures = CellOf::figures();
        let names: BTreeSet<&str> = figures.iter().map(|figure| figure.name).collect();
        assert_eq!(names.len(), figures.len(), "two figures have one name");
        for record in records(64) {
            for figure in &figures {
                let found = record.get(figure.name);
                assert!(figure.place != Place::Always || found.is_some(), "{}", figure.name);
                assert!(figure.place != Place::Table || found.is_none(), "{}", figure.name);
            }
            assert!(record.as_object().unwrap().keys().all(|key| names.contains(&**key)));
            let of = |name: &str| record[name].as_u64().unwrap();
            assert_eq!(of("hits"), of("read_hits") + of("write_hits"));
            assert_eq!(of("accesses"), of("read_accesses") + of("write_accesses"));
        }
    }
}
