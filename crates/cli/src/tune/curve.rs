//! `flashsift tune readahead TRACE`: the time by size of read-ahead, and the size to set.

use super::{
    Form,
    files::{self, ByFile, ByFileRecord},
};
use crate::{
    compare::schedule,
    devices,
    load::{self, Input},
    records, size, text,
    usage::Usage,
};
use anyhow::Context;
use flashsift_caches::{
    policy,
    trace::{Tables, Trace, Unit},
};
use flashsift_events::page::PAGE_BYTES;
use flashsift_files::judge::SLICES;
use flashsift_pages::readahead::{self, Counts};
use flashsift_study::{
    PreparedDevice, StudyError, Wave,
    readahead_curve::{
        Curve, CurveConditions, CurvePoint, CurveSearch, FLAT_SHARE, PRESENT_KIB_MAX,
    },
};
use flashsift_traces::annotations::Purpose;
use serde::Serialize;
use std::{io::Write, num::NonZeroUsize};

/// The conditions under which sizes are compared.
#[derive(clap::Args)]
pub(super) struct CurveArgs {
    /// Format of the trace, if its content does not identify it
    #[arg(long, value_name = "NAME", value_parser = load::format_name, help = load::format_help())]
    pub(super) format: Option<String>,

    /// Columns of a CSV file: time=, file=, op=, offset=, len=, pid= and process= with the name or
    /// number of a column; unit=s, ms, us or ns is that of the time, block=BYTES that of offset and
    /// len, offset-unit=BYTES or len-unit=BYTES that of one of them
    #[arg(long, value_name = "time=NAME,…")]
    pub(super) columns: Option<String>,

    /// Requests a second: gives times to a trace that has none
    #[arg(long, value_name = "N", value_parser = load::rate, allow_negative_numbers = true)]
    pub(super) rate: Option<f64>,

    /// Size of the page cache. Default: 256MiB; for a trace without a device, at most about a
    /// quarter of its pages, because a cache that holds them all reads nothing again
    #[arg(long, value_name = "SIZE", value_parser = size::parse_memory)]
    memory: Option<u32>,

    /// Policy of the page cache, with parameters as name:key=value
    #[arg(long, value_name = "POLICY", default_value = "mglru")]
    policy: String,

    /// Modelled device whose time counts: a name of `flashsift list devices`, or FILE.toml
    #[arg(long, value_name = "DEVICE", default_value = "ufs-3.1")]
    device: String,

    /// Parameters of the kernel's read-ahead, without its maximum: kernel=6.1, folios=small, …
    /// (see compare --help)
    #[arg(long, value_name = "KEY=VALUE,…", default_value = "")]
    linux: String,

    /// The maximum that is set now, in KiB; default: that of the device to change, else 128
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u32).range(0..=16_384))]
    present: Option<u32>,

    /// The maximum at which the trace was recorded, in KiB; default: the one that is set now. With
    /// page faults, only sizes from it on are proposed
    #[arg(long, value_name = "KIB")]
    recorded: Option<u32>,

    /// Memory limit of the trace and its cells; default: three quarters of the machine's memory
    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes)]
    trace_memory: Option<u64>,

    /// Number of cells that run at once; default: one a core
    #[arg(long, value_name = "N", value_parser = size::parse_threads)]
    threads: Option<NonZeroUsize>,
}

/// `read_ahead_kb` of most devices.
const DEFAULT_KIB: u32 = 128;

/// The largest default of `--memory`: 256 MiB, in pages.
const FRAMES_MAX: u32 = 65_536;

/// Returns the power of two that is at most a quarter of this many pages, and at most
/// [`FRAMES_MAX`].
fn default_frames(pages: u32) -> u32 {
    let quarter = (pages / 4).max(1);
    (1 << quarter.ilog2()).min(FRAMES_MAX)
}

/// The circumstances of a run that [`CurveArgs`] does not name.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    /// The value of the device to change, in KiB.
    pub(super) present_kib: Option<u64>,
    /// Number of files and programs to list.
    pub(super) top: usize,
    /// Whether a trace that is held apart for tests may serve, too.
    pub(super) force: bool,
    /// How the result is printed.
    pub(super) form: Form,
}

/// Finds the curve of a trace, and prints it. Returns the size that it proposes, in KiB, if the
/// trace is long enough to propose one.
pub(super) fn run(input: &Input, args: &CurveArgs, asked: Asked) -> anyhow::Result<Option<u32>> {
    let Asked { present_kib, top, force, form } = asked;
    let of_device = present_kib.is_some();
    let set_kib = present_kib.map_or(DEFAULT_KIB, |kib| u32::try_from(kib).unwrap_or(u32::MAX));
    let present_kib = args.present.unwrap_or(set_kib);
    if present_kib > PRESENT_KIB_MAX {
        let message = format!(
            "the maximum is {present_kib} KiB now, and at most {PRESENT_KIB_MAX} KiB is simulated: \
             give --present a smaller one to compare with"
        );
        return Err(Usage(message).into());
    }
    let usage = |error: flashsift_events::params::Error| Usage(error.to_string());
    let policy = policy::Selection::parse(&args.policy).map_err(usage)?;
    if policy.spec.kind.is_offline() {
        let message = format!("--policy {}: no kernel knows the future", args.policy);
        return Err(Usage(message).into());
    }
    readahead::parse(&format!("linux:kib=128,{}", args.linux)).map_err(usage)?;
    let mut chosen = devices::chosen(std::slice::from_ref(&args.device))?;
    if chosen.len() != 1 {
        return Err(Usage("--device: the time is that of one device".to_owned()).into());
    }
    let device = chosen.pop().context("there is one device")?;
    let device =
        PreparedDevice::new(device).with_context(|| format!("--device {}", args.device))?;
    let name = input.name();
    let tables = Tables {
        reads_ahead_pages: CurveSearch::reach_pages(&args.linux, present_kib),
        owners: true,
        names: true,
        ..Tables::default()
    };
    let loaded = load::load(input, false, args.trace_memory, tables)?;
    loaded.require_split(&name, Purpose::Tune, force)?;
    loaded.log_summary(&name);
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let frames = args.memory.unwrap_or_else(|| match of_device {
        true => FRAMES_MAX,
        false => default_frames(loaded.trace.touched_pages()),
    });
    let conditions = CurveConditions {
        policy,
        frames,
        device,
        params: args.linux.clone(),
        present_kib,
        recorded_kib: args.recorded.unwrap_or(present_kib),
        memory_limit_bytes: loaded.limit_bytes,
        workers: args.threads.map_or_else(cores, usize::from),
    };
    let search = CurveSearch::new(&loaded.trace, conditions).map_err(refusal)?;
    let waves = [Wave { cells: 0..search.cells(), at_once: search.at_once() }];
    let bar = load::progress("sizes", "{spinner} {msg} {bar:30} {pos}/{len}");
    bar.set_length(search.cells() as u64);
    let points = schedule::in_waves(&waves, |cell| {
        let point = search.run(cell)?;
        bar.inc(1);
        Ok(point)
    });
    bar.finish_and_clear();
    let curve = search.curve(points?);
    let by_file = files::study(&search, &curve, top)?;
    let mut out = records::Output::keys(form.json, form.csv);
    match form.is_records() {
        true => {
            serde_json::to_writer(&mut out, &CurveRecord::new(&name, &search, &curve, &by_file))?;
            writeln!(out)?;
        }
        false => {
            let columns = text::columns().unwrap_or(80);
            out.write_all(render(&loaded.trace, &search, &curve, columns).as_bytes())?;
            out.write_all(by_file.render(&search, &curve, columns).as_bytes())?;
        }
    }
    out.finish()?;
    Ok(curve.lack.is_none().then(|| curve.points[curve.proposed].kib))
}

/// Settings that do not suit the trace are an error of the command line; its memory is not.
fn refusal(error: StudyError) -> anyhow::Error {
    match error {
        StudyError::Memory { .. } => error.into(),
        unsuited => Usage(unsuited.to_string()).into(),
    }
}

pub(super) fn kib(kib: u32) -> String {
    if kib == 0 { "off".to_owned() } else { format!("{kib} KiB") }
}

fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_owned(), |share| format!("{:.1}", share * 100.0))
}

pub(super) fn mib(pages: u64) -> String {
    size::significant((pages * PAGE_BYTES) as f64 / f64::from(1 << 20))
}

const INDENT: usize = 12;

/// Renders the curve, the facts that bound it, and the proposal.
fn render(trace: &Trace, search: &CurveSearch<'_>, curve: &Curve, columns: usize) -> String {
    let line = |label: &str, text: &str| text::labelled(label, INDENT, text, columns);
    let conditions = search.conditions();
    let cache = size::of_cache(conditions.frames, Unit::Page);
    let (policy, device) = (conditions.policy.label(), conditions.device.label());
    let mut out = line("cache", &format!("{cache}, {policy}, over {device}"));
    let mut rows = vec![
        ["maximum", "time s", "stall s", "hits %", "requests", "used %", "wasted MiB"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for (n, point) in curve.points.iter().enumerate() {
        let mark = match (n == curve.present, n == curve.proposed && curve.lack.is_none()) {
            (true, true) => " (now, kept)",
            (true, false) => " (now)",
            (false, true) => " (proposed)",
            (false, false) => "",
        };
        let CurvePoint { outcome, elapsed_s, stall_s, .. } = point;
        rows.push(vec![
            format!("{}{mark}", kib(point.kib)),
            format!("{elapsed_s:.3}"),
            stall_s.map_or_else(|| "–".to_owned(), |stall_s| format!("{stall_s:.3}")),
            format!("{:.2}", outcome.hit_ratio() * 100.0),
            size::count(outcome.read_requests),
            percent(outcome.readahead.efficiency_of_read()),
            mib(outcome.readahead.wasted()),
        ]);
    }
    out += "\n";
    out += &crate::table::plain(&rows, &[0]);
    out += "\n";
    let at = |n: usize| kib(curve.points[n].kib);
    let (first, last) = (at(*curve.flat.start()), at(*curve.flat.end()));
    let flat = match first == last {
        true => format!("{first} takes the least time; no other size comes within 1 %"),
        false => format!("{first} to {last} take the same time, within 1 %"),
    };
    out += &line("curve", &flat);
    let native = format!(
        "{} KiB by the tuning paper's equations: 99 % of the reads are of at most {}",
        curve.native_kib,
        size::counted(curve.request_pages, "page")
    );
    out += &line("native", &native);
    out += &line("proposal", &proposal(curve));
    for bound in bounds(trace, curve) {
        out += &line("bound", bound);
    }
    out
}

/// The sentence that a person acts on.
fn proposal(curve: &Curve) -> String {
    let (smallest, present) = (&curve.points[*curve.flat.start()], &curve.points[curve.present]);
    if let Some(lack) = curve.lack {
        return format!("none: {lack}. Record longer.");
    }
    if smallest.kib == present.kib {
        return format!("keep {}", kib(present.kib));
    }
    let judgement = &curve.saving;
    let share = judgement.share(judgement.saving);
    let (choice, time) = match judgement.recommends() {
        true => (format!("{} instead of {}", kib(smallest.kib), kib(present.kib)), "it saves"),
        false => (
            format!("keep {}, as the time does not fall for certain", kib(present.kib)),
            "it would save",
        ),
    };
    let subject = match judgement.recommends() {
        true => String::new(),
        false => format!("with {} ", kib(smallest.kib)),
    };
    let time = format!("{subject}{time} {} % of the time", size::percent(share));
    let pages = |counts: &Counts| counts.wasted();
    let (less, more) = (pages(&present.outcome.readahead), pages(&smallest.outcome.readahead));
    let waste = match less >= more {
        true => format!("{} MiB less are read in vain", mib(less - more)),
        false => format!("{} MiB more are read in vain", mib(more - less)),
    };
    format!(
        "{choice}: {time} ({}, of {SLICES} slices of as many reads); {waste}",
        size::halves(judgement.halves)
    )
}

/// The facts that the trace lacks, and what the figures then are.
fn bounds(trace: &Trace, curve: &Curve) -> impl Iterator<Item = &'static str> {
    let knows = trace.about().knows;
    let opens = "the trace tells neither which open file was read nor which reads are page faults: \
                 all reads of a file count as those of one reader, so the figures can be far off; \
                 record --exact tells both";
    let sizes = "the trace does not tell the sizes of files: read-ahead ends with the last byte \
                 that it reads, so the figures are bounds";
    let faults = "the trace has page faults, which also map cached pages around them, and no trace \
                  tells the uses of these: sizes below that of the recording (--recorded) take \
                  more time than listed, and none of them is proposed";
    [(knows.opens, opens), (knows.sizes, sizes), (curve.judged_from == 0, faults)]
        .into_iter()
        .filter_map(|(known, text)| (!known).then_some(text))
}

/// `tune readahead TRACE --json`.
#[derive(Serialize)]
struct CurveRecord<'a> {
    schema: u32,
    trace: &'a str,
    readahead: Found<'a>,
}

#[derive(Serialize)]
struct Found<'a> {
    policy: String,
    memory_bytes: u64,
    device: &'a str,
    present_kib: u32,
    /// Absent if the trace is too short to propose a size.
    #[serde(skip_serializing_if = "Option::is_none")]
    proposed_kib: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lack: Option<String>,
    best_kib: u32,
    flat_kib: [u32; 2],
    judged_from_kib: u32,
    flat_share: f64,
    native_kib: u64,
    request_pages_99: u64,
    saving_s: f64,
    saving_share: f64,
    first_half_share: f64,
    second_half_share: f64,
    recommended: bool,
    bounds: Vec<&'static str>,
    sizes: Vec<SizeRecord>,
    by_file: ByFileRecord<'a>,
}

#[derive(Serialize)]
struct SizeRecord {
    kib: u32,
    elapsed_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    stall_s: Option<f64>,
    hit_ratio: f64,
    read_requests: u64,
    windows: u64,
    prefetched_asked: u64,
    prefetched_read: u64,
    prefetched_used: u64,
    wasted_bytes: u64,
}

impl<'a> CurveRecord<'a> {
    fn new(
        trace: &'a str,
        search: &'a CurveSearch<'_>,
        curve: &Curve,
        by_file: &'a ByFile,
    ) -> Self {
        let conditions = search.conditions();
        let at = |n: usize| curve.points[n].kib;
        let size = |point: &CurvePoint| {
            let ahead = &point.outcome.readahead;
            SizeRecord {
                kib: point.kib,
                elapsed_s: point.elapsed_s,
                stall_s: point.stall_s,
                hit_ratio: point.outcome.hit_ratio(),
                read_requests: point.outcome.read_requests,
                windows: ahead.windows,
                prefetched_asked: ahead.asked,
                prefetched_read: ahead.read,
                prefetched_used: ahead.used,
                wasted_bytes: ahead.wasted() * PAGE_BYTES,
            }
        };
        let saving = &curve.saving;
        let readahead = Found {
            policy: conditions.policy.label(),
            memory_bytes: u64::from(conditions.frames) * PAGE_BYTES,
            device: conditions.device.label(),
            present_kib: conditions.present_kib,
            proposed_kib: curve.lack.is_none().then(|| at(curve.proposed)),
            lack: curve.lack.map(|lack| lack.to_string()),
            best_kib: at(curve.best),
            flat_kib: [at(*curve.flat.start()), at(*curve.flat.end())],
            judged_from_kib: at(curve.judged_from),
            flat_share: FLAT_SHARE,
            native_kib: curve.native_kib,
            request_pages_99: curve.request_pages,
            saving_s: saving.saving,
            saving_share: saving.share(saving.saving),
            first_half_share: saving.halves[0],
            second_half_share: saving.halves[1],
            recommended: saving.recommends(),
            bounds: bounds(search.trace(), curve).collect(),
            sizes: curve.points.iter().map(size).collect(),
            by_file: by_file.record(curve),
        };
        Self { schema: 1, trace, readahead }
    }
}
