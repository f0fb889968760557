//! `flashsift compare`: every policy at every size over one trace.

use crate::{
    devices, html_page,
    load::{self, Input, Removals},
    logging::DETAIL,
    records,
    size::{self, CacheSize},
    text,
    usage::Usage,
};
use anyhow::Context;
use clap::ValueEnum;
use flashsift_caches::{
    policy,
    trace::{Tables, Trace, Unit},
};
use flashsift_events::{page::PAGE_BYTES, params};
use flashsift_pages::{
    device::LabelledProfile,
    layout, metadata, nvm,
    readahead::{self, ReadAheadModel},
    system,
    writeback::{self, Modes},
};
use flashsift_study::{
    Note, Plan, Policies, PreparedDevice, Request, Results, Study, StudyVerdict,
    figures::ResultRecord,
    record::{RecordShape, VerdictLine},
};
use places::Places;
use schedule::Schedule;
use std::{io::Write, num::NonZeroUsize, path::PathBuf, str::FromStr};
use tracing::info;

mod after_cache;
mod curve;
pub(crate) mod fields;
mod objects;
mod page;
mod places;
mod sample;
pub(crate) mod schedule;
pub(crate) mod sift;
mod table;
mod verdict;

/// Run a trace through page caches: hits, reads and writes at storage
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flashsift compare trace.xz                       every policy at five sizes
  flashsift compare trace.xz --report report.html  as a page with figures
  flashsift compare trace.xz --policy lru,clock:insert_ref=1 \\
      --memory 4MiB,64MiB --drain
  flashsift compare huge.oracleGeneral.zst --sample 1%     estimates
  flashsift compare trace.xz --curve --policy lru,s3fifo --report curve.html
  flashsift compare cdn.oracleGeneral.zst --object-cache --memory 1%,10%
  flashsift compare cdn.oracleGeneral.zst --object-cache \\
      --policy lru,lru:admit=bloom,gdsf --memory 1GiB

Writing, and the device:
  flashsift compare trace.xz --writeback evict     only evictions write
  flashsift compare trace.xz --writeback linux \\
      --writeback linux,cluster:128KiB --drain
  flashsift compare trace.xz --metadata ext4       with journal and metadata
  flashsift compare trace.xz --device ufs-3.1      with time and wear
  flashsift compare trace.xz --policy spatialclock --memory 16M \\
      --after-cache out/
  flashsift compare trace.xz --policy lru --readahead off,linux:32k,linux:128k
  flashsift compare trace.xz --system all --writeback hf --memory 16MiB

Sifters:
  flashsift compare t.parquet --sift all           which files deserve flash
  flashsift compare t.parquet --sift drop-all,touch --droppable '*/thumbnails/*'
  flashsift compare t.parquet --sift all --memory 16MiB,64MiB --report s.html
  flashsift compare t.parquet --sift controller \\
      --explain '*/thumbnails/a*'                  why each was dropped")]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    /// Replacement policies, with parameters as name:key=value
    #[arg(long, value_delimiter = ',', value_name = "POLICY,…", help = policies_help())]
    policy: Vec<String>,

    /// Systems with and without non-volatile memory, with parameters as name:key=value
    #[arg(long, value_delimiter = ',', value_name = "SYSTEM,…", conflicts_with_all = ["object_cache", "metadata", "attribution"], help = systems_help())]
    system: Vec<String>,

    /// Read-aheads to compare, with parameters as name:key=value
    #[arg(long, value_delimiter = ',', value_name = "READAHEAD,…", conflicts_with_all = ["object_cache", "system"], help = readaheads_help())]
    readahead: Vec<String>,

    /// Sifters to compare, with parameters as name:key=value
    #[arg(long, value_delimiter = ',', value_name = "SIFTER,…", conflicts_with_all = ["object_cache", "system", "readahead", "nvm", "attribution", "after_cache", "verdict"], help = sift::help())]
    sift: Vec<String>,

    /// Memory that the sifter takes of --memory: a size, or a share in percent. The page cache has
    /// the rest; without a sifter it has all
    #[arg(long, value_name = "SIZE|N%", default_value = "50%", requires = "sift")]
    sift_memory: sift::SifterMemory,

    /// Files that the sifter may drop: shell patterns of their whole path, in which * also stands
    /// for /. Default: files in directories whose name contains `cache`
    #[arg(long, value_name = "PATTERN", requires = "sift")]
    droppable: Vec<String>,

    /// Run each sifter as `flashsift mount --sift` does: in the sifter's memory, beside `keep` for
    /// all other files, and with a limit on the bytes that are fetched again
    #[arg(long, requires = "sift")]
    as_mounted: bool,

    /// That limit, as a share of the bytes of droppable files that plain ext4 would write
    #[arg(long, value_name = "N%", value_parser = size::parse_share, requires = "as_mounted")]
    fetch_again: Option<f64>,

    /// Explain the decisions on files with such names: shell patterns of their whole path, in which
    /// * also stands for /. The tables show the first 50 of each sifter, --json all
    #[arg(long, value_name = "PATTERN", requires = "sift", conflicts_with = "csv")]
    explain: Vec<String>,

    /// Modelled memory, whose time and energy are given; default with systems that have
    /// non-volatile memory: pcm-2016
    #[arg(long, value_delimiter = ',', value_name = "MEMORY,…", conflicts_with = "object_cache", help = memory_help())]
    nvm: Vec<String>,

    /// Cache sizes: 4MiB,64M, or 10% of all pages in the trace (with --object-cache: of the bytes
    /// of all its objects). Default: the five powers of two below the size of all pages, or 1%, 2%,
    /// 5%, 10% and 20% of all objects
    #[arg(long, value_delimiter = ',', value_name = "SIZE,…", value_parser = size::parse_cache_size)]
    memory: Vec<CacheSize>,

    /// Cache sizes in frames of one page (with --object-cache: in objects, whatever their size)
    #[arg(long, value_delimiter = ',', value_name = "N,…", value_parser = size::parse_frames, conflicts_with = "memory")]
    frames: Vec<u32>,

    /// When dirty pages are written, beside eviction; may be given several times
    #[arg(long, value_name = "MODE,…", value_parser = Modes::from_str, help = writeback_help())]
    writeback: Vec<Modes>,

    /// Memory of the machine, of which Linux's flusher takes its ratio (--writeback linux or
    /// expire); default: 2GiB
    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes)]
    ram: Option<u64>,

    /// At the end, write all dirty pages, in the order in which the policy would evict them
    #[arg(long)]
    drain: bool,

    /// The fate of pages that are truncated or deleted
    #[arg(long, value_name = "HOW", default_value = "follow", ignore_case = true, conflicts_with_all = ["object_cache", "sift", "metadata", "sample", "curve"])]
    removals: Removals,

    /// First step of a write to an uncached page: `read` fetches the page if the write covers only
    /// a part of it
    #[arg(long, value_name = "STEP", default_value = "none", ignore_case = true)]
    write_miss: WriteMiss,

    /// The longest request: neighbouring pages that are written, or read, together are joined up to
    /// this size; off: each page is a request
    #[arg(long, value_name = "SIZE|off", default_value = "512KiB", value_parser = size::parse_request)]
    merge: u32,

    /// When the places of truncated and deleted pages are discarded
    #[arg(long, value_name = "WHEN", default_value = "online", ignore_case = true)]
    discard: Discard,

    /// Where pages lie on the device
    #[arg(long, value_name = "LAYOUT", help = layouts_help())]
    layout: Option<String>,

    /// Adds the writes of a file system's journal and of its metadata in place, counted apart; off:
    /// only file data is written
    #[arg(long, value_name = "FILE SYSTEM|off", default_value = "off", conflicts_with = "object_cache", help = metadata_help())]
    metadata: String,

    /// With --json or --report: also count the pages written by program and by reason. A page is
    /// charged to the program that made it dirty
    #[arg(long, conflicts_with = "object_cache")]
    attribution: bool,

    /// Modelled devices on which the requests to storage are performed
    #[arg(long, value_delimiter = ',', value_name = "DEVICE,…", conflicts_with = "object_cache", help = devices::help())]
    device: Vec<String>,

    /// Each request is for one object, which hits or misses whole: what an object trace names, or
    /// what begins at one byte of a file or device. The capacity is in bytes (--memory) or objects
    /// (--frames). A policy may have an admission: lru:admit=bloom, prob:0.1, size:1000000 or
    /// size-prob:50000 (bytes)
    #[arg(long)]
    object_cache: bool,

    /// Write a page with figures for a browser; it contains everything and fetches nothing
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    /// Write the requests that each cell (a policy at a size) sends to storage into this folder,
    /// one trace a cell
    #[arg(long, value_name = "DIR")]
    after_cache: Option<PathBuf>,

    /// Format of the after-cache traces
    #[arg(
        long,
        value_name = "FORMAT",
        default_value = "parquet",
        ignore_case = true,
        requires = "after_cache"
    )]
    after_cache_format: after_cache::Format,

    /// Print one JSON object for each cell, one on a line
    #[arg(long)]
    json: bool,

    /// Print the same as CSV: a row for each object
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Print a verdict at the end: the best policies for hits and for writes, and the distance to
    /// the bound. Tables of more than two online rows always have one; with --json it is one more
    /// line, {"schema":1,"verdict":{…}}
    #[arg(long, conflicts_with = "csv")]
    verdict: bool,

    /// Estimate hits, reads and writes from four disjoint samples, each with this share of the
    /// pages, and their error: for traces that are longer than the memory. Not for policies that
    /// order pages by their place
    #[arg(long, value_name = "N%", value_parser = sample::rate, conflicts_with_all = ["system", "readahead", "sift", "nvm", "metadata", "attribution", "device", "after_cache", "report", "verdict", "layout"])]
    sample: Option<f64>,

    /// Misses and writes against the size of the cache, at N sizes (100) up to all pages, or at
    /// those of --memory. LRU is exact, from one pass; other policies run at each size, and on
    /// samples of the pages where a trace has more than 5M accesses or with --sample. Only
    /// evictions write
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "100", value_parser = curve::points, conflicts_with_all = ["system", "readahead", "sift", "nvm", "metadata", "attribution", "device", "after_cache", "verdict", "writeback", "drain"])]
    curve: Option<usize>,

    /// Memory limit of the trace and its cells; default: three quarters of the machine's memory
    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes)]
    trace_memory: Option<u64>,

    /// Number of cells that run at once; default: one a core
    #[arg(long, value_name = "N", value_parser = size::parse_threads)]
    threads: Option<NonZeroUsize>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum WriteMiss {
    None,
    Read,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Discard {
    /// At once
    Online,
    /// Never
    Off,
}

fn policies_help() -> String {
    let each = policy::ALL.iter().map(|spec| {
        let params =
            spec.params.iter().map(|param| format!(" [{}]", param.default())).collect::<String>();
        let slow = if spec.slow { " (slow)" } else { "" };
        format!("\n  {:<13} {}{slow}{params}", spec.name, spec.what)
    });
    format!(
        "Replacement policies, or all (without those marked slow); parameters as name:key=value. \
         `flashsift list policies` explains them{}\n",
        each.collect::<String>()
    )
}

fn systems_help() -> String {
    let each = system::ALL.iter().map(|spec| {
        let params = spec.params.iter().map(|param| format!(" [{param}]")).collect::<String>();
        format!("\n  {:<13} {}{params}", spec.name, spec.what)
    });
    format!(
        "Systems to compare, or all; parameters as name:key=value. With this option --policy is \
         lru by default. The size of a cache is that of its DRAM; of nvlru and fslru, that of DRAM \
         and non-volatile memory together{}\n",
        each.collect::<String>()
    )
}

fn readaheads_help() -> String {
    let each = readahead::ALL.iter().map(|spec| {
        let params = spec.params.iter().map(|param| format!(" [{param}]")).collect::<String>();
        format!("\n  {:<13} {}{params}", spec.name, spec.what)
    });
    format!(
        "Read-aheads to compare; parameters as name:key=value, or the maximum alone: linux:128k, \
         paper:32. With this option --policy is lru by default{}\n",
        each.collect::<String>()
    )
}

fn memory_help() -> String {
    let each = nvm::profile::ALL.iter().map(|spec| format!("\n  {:<13} {}", spec.name, spec.what));
    format!(
        "Modelled memory, whose time and energy --json and --report give; default with systems \
         that have non-volatile memory: pcm-2016{}\n",
        each.collect::<String>()
    )
}

fn writeback_help() -> String {
    let each = writeback::ALL.iter().map(|(name, what)| format!("\n  {name:<28} {what}"));
    format!(
        "When dirty pages are written, beside evictions; modes can be combined. Given several \
         times, the combinations are compared. Default: linux for file traces with times and \
         syncs, evict for others{}\n",
        each.collect::<String>()
    )
}

fn layouts_help() -> String {
    let each = layout::ALL.iter().map(|spec| {
        let params = spec.params.iter().map(|param| format!(" [{param}]")).collect::<String>();
        format!("\n  {:<13} {}{params}", spec.name, spec.what)
    });
    format!(
        "Where pages lie on the device; default: ext4 for file traces, identity otherwise{}\n",
        each.collect::<String>()
    )
}

fn metadata_help() -> String {
    let each = metadata::ALL.iter().map(|spec| {
        let params = spec.params.iter().map(|param| format!(" [{param}]")).collect::<String>();
        format!("\n  {:<13} {}{params}", spec.name, spec.what)
    });
    format!(
        "Adds the journal and the metadata of a file system, counted apart; off: only file data is \
         written{}\n",
        each.collect::<String>()
    )
}

/// Returns the frames of `--memory`, for a trace that touches this many pages.
fn memory_frames(args: &Args, touched_pages: u32) -> impl Iterator<Item = u32> {
    args.memory.iter().map(move |size| size.frames(touched_pages))
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if !args.sift.is_empty() {
        return sift::run(args);
    }
    if let Some(points) = args.curve {
        return curve::run(args, points);
    }
    if args.object_cache && args.frames.is_empty() {
        return objects::run(args);
    }
    objects::suits_pages(&args.policy)?;
    if let Some(rate) = args.sample {
        return sample::run(args, rate);
    }
    let mut request = request(args)?;
    // The outputs are checked before the simulation, so that an unwritable path is reported at
    // once.
    let report = args.report.as_deref().map(html_page::Report::new).transpose()?;
    let name = args.input.name();
    let places = request.layout.as_ref().is_some_and(|layout| layout.spec.from_recording);
    let has_rule = args.writeback.iter().any(|modes| modes.file_system.is_some());
    let operations = request.metadata.is_some() || has_rule;
    let owners = args.after_cache.is_some() || args.attribution;
    let bytes = !request.memory.is_empty();
    let reaches =
        request.readaheads.iter().map(|selection| ReadAheadModel::new(selection).reach_pages());
    let reads_ahead_pages = reaches.max().unwrap_or(0);
    let tables =
        Tables { places, operations, owners, bytes, reads_ahead_pages, ..Tables::default() };
    let (input, memory) = (&args.input, args.trace_memory);
    let loaded = load::load_with(input, args.object_cache, memory, tables, args.removals)?;
    loaded.log_summary(&name);
    if args.removals == Removals::Ignore {
        info!(target: DETAIL, "note: truncated and deleted pages stay (--removals ignore)");
    }
    request.frames.extend(memory_frames(args, loaded.trace.touched_pages()));
    let wants_places = report.is_some() && page::shows_places(&loaded.trace);
    request.observer_bytes = match wants_places {
        true => Some(Places::GRID_BYTES),
        false => args.after_cache.is_some().then_some(0),
    };
    request.memory_limit_bytes = loaded.limit_bytes;
    let modes = modes(args, &loaded.trace)?;
    let study = |modes: &Modes| {
        let request = Request { writeback: *modes, ..request.clone() };
        Study::new(&loaded.trace, request).map_err(|error| Usage(error.to_string()))
    };
    let studies = modes.iter().map(study).collect::<Result<Vec<_>, _>>()?;
    log_notes(studies.iter().flat_map(Study::notes));
    let plans = studies.iter().map(Study::plan).collect::<Result<Vec<_>, _>>()?;
    log_notes(plans.iter().flat_map(Plan::notes));
    let several = plans.len() > 1;
    let after_cache = match &args.after_cache {
        Some(dir) => {
            let writers = |modes: &Modes| {
                let mode = several.then(|| modes.name());
                after_cache::Writers::new(dir, args.after_cache_format, &name, mode, &loaded)
            };
            modes.iter().map(|modes| writers(modes).map(Some)).collect::<Result<Vec<_>, _>>()?
        }
        None => modes.iter().map(|_| None).collect(),
    };
    for (plan, after_cache) in plans.iter().zip(&after_cache) {
        let Some(after_cache) = after_cache else { continue };
        let mut cells = plan.cells().iter();
        cells.try_for_each(|cell| after_cache.check_free(&cell.label(), cell.frames))?;
    }
    let duration_us = match loaded.trace.about().knows.times {
        true => loaded.trace.totals().duration_us,
        false => 0,
    };
    let online = plans.first().map_or(0, online_rows);
    let prints_verdict = args.verdict || (!args.json && !args.csv && online > 2);
    let mut runs = Vec::new();
    for (plan, after_cache) in plans.iter().zip(&after_cache) {
        let places = wants_places.then(|| Places::new(plan, duration_us));
        let cells = Schedule { plan, after_cache: after_cache.as_ref(), places: places.as_ref() };
        runs.push((plan.results(cells.run()?), places));
    }
    let judge = prints_verdict || report.is_some();
    let runs: Vec<Run<'_>> = runs
        .iter()
        .map(|(results, places)| Run {
            mode: several.then(|| results.study().request().writeback.name()),
            results,
            verdict: judge.then(|| results.verdict()).flatten(),
            places: places.as_ref(),
        })
        .collect();
    if let Some(report) = report {
        report.write(&page::build(&name, &args.input, &loaded, &runs))?;
    }
    let mut out = records::Output::rows(args.json, args.csv);
    match args.json || args.csv {
        true => print_json(&mut out, &name, &runs, prints_verdict)?,
        false => print_tables(&mut out, &runs, prints_verdict)?,
    }
    out.finish()
}

/// Returns how many rows of each size are of online policies.
fn online_rows(plan: &Plan<'_>) -> usize {
    let cells = plan.cells();
    let of_size = cells.iter().take_while(|cell| cell.frames == cells[0].frames);
    of_size.filter(|cell| !cell.policy.spec.kind.is_offline()).count()
}

/// The finished comparison under one choice of write-back modes.
struct Run<'a> {
    /// The modes, if several choices are compared.
    mode: Option<String>,
    results: &'a Results<'a>,
    verdict: Option<StudyVerdict<'a>>,
    places: Option<&'a Places>,
}

impl Run<'_> {
    /// Returns words for headings that name the modes if several choices are compared.
    fn suffix(&self) -> String {
        self.mode.as_ref().map_or_else(String::new, |mode| format!(", --writeback {mode}"))
    }
}

/// Returns the choices of write-back modes to compare, each once. Without `--writeback`, the trace
/// decides.
fn modes(args: &Args, trace: &Trace) -> anyhow::Result<Vec<Modes>> {
    let mut chosen: Vec<Modes> = Vec::new();
    for modes in &args.writeback {
        let modes = modes.on(trace.about().knows.file_system);
        if !chosen.contains(&modes) {
            chosen.push(modes);
        }
    }
    if chosen.is_empty() {
        let default = Modes::default_for(trace);
        if trace.totals().write_accesses > 0 {
            info!(target: DETAIL, "note: {default}");
        }
        chosen.push(default.modes);
    }
    if let Some(ram) = args.ram {
        let mut expires: Vec<_> =
            chosen.iter_mut().filter_map(|modes| modes.expire.as_mut()).collect();
        if expires.is_empty() {
            let message = "--ram is for Linux's flusher: add --writeback linux or expire";
            return Err(Usage(message.to_owned()).into());
        }
        expires.iter_mut().for_each(|expire| expire.ram_pages = ram / PAGE_BYTES);
    }
    Ok(chosen)
}

/// Turns the arguments into a request, except for the parts that depend on the trace. Devices are
/// prepared.
fn request(args: &Args) -> anyhow::Result<Request> {
    let usage = |error: params::Error| Usage(error.to_string());
    let systems = systems(&args.system).map_err(usage)?;
    let readaheads = readaheads(&args.readahead).map_err(usage)?;
    let policies = match (&args.policy[..], &systems[..]) {
        ([], []) if readaheads.is_empty() && args.sift.is_empty() => Policies::all(),
        ([], _) => Policies::parse(["lru"]).map_err(usage)?,
        (named, _) => Policies::parse(text::joined(named)).map_err(usage)?,
    };
    let has_nvm = systems.iter().any(|system| !system.spec.is_plain());
    let memory = match &args.nvm[..] {
        [] if has_nvm => vec!["pcm-2016".to_owned()],
        named => named.to_vec(),
    };
    let memory = memory.iter().map(|name| nvm::profile::Selection::parse(name));
    let memory = memory.collect::<Result<Vec<_>, _>>().map_err(usage)?;
    let layout = args.layout.as_deref().map(layout::Selection::parse).transpose().map_err(usage)?;
    let metadata = crate::usage::metadata(&args.metadata)?;
    if args.attribution && !args.json && !args.csv && args.report.is_none() {
        let message = "--attribution is shown by --json and --report only: add one of them";
        return Err(Usage(message.to_owned()).into());
    }
    let prepare = |device: LabelledProfile| {
        let label = device.label.clone();
        PreparedDevice::new(device).with_context(|| format!("--device {label}"))
    };
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    Ok(Request {
        systems,
        readaheads,
        memory,
        policies,
        frames: args.frames.clone(),
        unit: if args.object_cache { Unit::Request } else { Unit::Page },
        without_removals: args.removals == Removals::Ignore,
        layout,
        drain: args.drain,
        write_miss_reads: args.write_miss == WriteMiss::Read,
        request_pages_max: args.merge,
        discards: args.discard == Discard::Online,
        metadata,
        attribution: args.attribution,
        devices: devices::chosen(&args.device)?
            .into_iter()
            .map(prepare)
            .collect::<Result<_, _>>()?,
        workers: args.threads.map_or_else(cores, usize::from),
        ..Request::default()
    })
}

/// Reads the systems, each once. `all` stands for every one with its default parameters.
fn systems(texts: &[String]) -> Result<Vec<system::Selection>, params::Error> {
    let mut systems: Vec<system::Selection> = Vec::new();
    for text in text::joined(texts) {
        let named = match &*text {
            all if all.eq_ignore_ascii_case("all") => {
                system::ALL.iter().map(system::Selection::default_of).collect()
            }
            text => vec![system::Selection::parse(text)?],
        };
        for system in named {
            if systems.iter().all(|known| known.label() != system.label()) {
                systems.push(system);
            }
        }
    }
    Ok(systems)
}

/// Reads the read-aheads, each once.
fn readaheads(texts: &[String]) -> Result<Vec<readahead::Selection>, params::Error> {
    let mut chosen: Vec<readahead::Selection> = Vec::new();
    for text in text::joined(texts) {
        let readahead = readahead::parse(&text)?;
        if chosen.iter().all(|known| known.label() != readahead.label()) {
            chosen.push(readahead);
        }
    }
    Ok(chosen)
}

/// Logs notes, each once.
fn log_notes(notes: impl Iterator<Item = Note>) {
    let mut logged: Vec<Note> = Vec::new();
    for note in notes {
        if !logged.contains(&note) {
            info!(target: DETAIL, "note: {note}");
            logged.push(note);
        }
    }
}

fn print_json(
    out: &mut impl Write,
    name: &str,
    runs: &[Run<'_>],
    prints_verdict: bool,
) -> anyhow::Result<()> {
    let shapes: Vec<_> = runs.iter().map(|run| RecordShape::new(name, run.results)).collect();
    for (run, shape) in runs.iter().zip(&shapes) {
        for record in run.results.rows().flat_map(|row| shape.records(row)) {
            serde_json::to_writer(&mut *out, &record)?;
            writeln!(out)?;
        }
    }
    for (run, shape) in runs.iter().zip(&shapes) {
        if let Some(verdict) = run.verdict.as_ref().filter(|_| prints_verdict) {
            serde_json::to_writer(&mut *out, &ResultRecord(VerdictLine { shape, found: verdict }))?;
            writeln!(out)?;
        }
    }
    Ok(())
}

fn print_tables(
    out: &mut impl Write,
    runs: &[Run<'_>],
    prints_verdict: bool,
) -> anyhow::Result<()> {
    let columns = text::columns().unwrap_or(120);
    let mut notes: Vec<Note> = Vec::new();
    let mut tables: Vec<Vec<u8>> = Vec::new();
    for run in runs {
        let mut of_run = Vec::new();
        print_sizes(&mut of_run, run, columns)?;
        tables.push(of_run);
    }
    // One policy has no best.
    let any_best = tables.iter().any(|table| table.contains(&b'*'));
    for (run, tables) in runs.iter().zip(&tables) {
        out.write_all(tables)?;
        writeln!(out)?;
        for note in run.results.notes() {
            if !notes.contains(&note) {
                let legend = match any_best && note == Note::Units {
                    true => "* best of its column. ",
                    false => "",
                };
                write!(out, "{}", text::labelled("", 0, &format!("{legend}{note}"), columns))?;
                notes.push(note);
            }
        }
        if let Some(verdict) = run.verdict.as_ref().filter(|_| prints_verdict) {
            write!(out, "\n{}", verdict::render(verdict, &run.suffix(), columns))?;
        }
    }
    Ok(())
}

/// Prints the tables of each size.
fn print_sizes(out: &mut impl Write, run: &Run<'_>, columns: usize) -> anyhow::Result<()> {
    let (results, mode, color) = (run.results, run.suffix(), text::in_color());
    let study = results.study();
    let Request { unit, drain, .. } = *study.request();
    for size in results.sizes() {
        let in_pages = match unit {
            Unit::Page => format!(" ({})", size::counted(size.frames.into(), "page")),
            Unit::Request => String::new(),
        };
        let label = size::of_cache(size.frames, unit);
        let holds_all = size.frames >= study.trace().touched_pages();
        let all = if holds_all { ": holds every page of the trace" } else { "" };
        let rows = table::rows(size);
        let table = table::render(&rows, drain, color, columns);
        writeln!(out, "\ncache of {label}{in_pages}{mode}{all}\n{table}")?;
        for (memory, rows) in table::rows_with_memory(size) {
            let table = table::render(&rows, drain, color, columns);
            writeln!(out, "\n  memory {memory}{mode}\n{table}")?;
        }
        if let Some(rows) = table::rows_reading_ahead(size) {
            let table = table::render(&rows, drain, color, columns);
            writeln!(out, "\n  read-ahead{mode}\n{table}")?;
        }
        for (device, rows) in table::rows_on_devices(size) {
            let table = table::render(&rows, drain, color, columns);
            writeln!(out, "\n  on {device}{mode}\n{table}")?;
        }
        for (device, rows) in table::rows_by_case(size) {
            let table = table::render(&rows, drain, color, columns);
            writeln!(out, "\n  cases of reads on {device}{mode}\n{table}")?;
        }
    }
    Ok(())
}
