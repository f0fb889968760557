//! `compare --sift`: sifters over one trace, with the bytes that each keeps from flash and those
//! that applications fetch again for it.

use super::{Args, log_notes, modes, page, request, schedule};
use crate::{
    html_page,
    load::{self, default_limit_bytes},
    records,
    size::{self, CacheSize},
    table, text,
    usage::Usage,
};
use anyhow::Context;
use flashsift_caches::{
    back::DeviceCounts,
    trace::{Tables, Trace},
};
use flashsift_events::{
    event::{About, Action},
    page::PAGE_BYTES,
    params::{Listed, Params},
};
use flashsift_files::{
    flusher::FlusherSettings,
    sift::{Droppable, SelectedSifter, Selection, Spec, live::AGAIN, model::FileModel},
    sifting::{Halves, KeptBound, SiftOutcome, Sifting, equal_parts},
};
use flashsift_pages::{system::Outcome, writeback::Modes};
use flashsift_study::{
    DeviceResult, Request, Study, Wave, figures,
    figures::{COUNT, FLAG, NON_NEGATIVE, NUMBER, ResultRecord, TEXT, VERSION},
    sift_trace::{SiftTraceError, sift_trace},
};
use flashsift_traces::{events::Kept, open};
use std::{collections::BTreeSet, fmt, io::Write, str::FromStr, sync::OnceLock};

pub(crate) mod explained;

/// Memory without `--memory`: 32 MiB, in pages.
pub(crate) const MEMORY_PAGES: u32 = 8192;

/// The sifter beside which the upper bound stands.
const ORACLE: &str = "oracle";

/// The name of its row.
pub(super) const UPPER_BOUND: &str = "upper bound (offline)";

/// RAM that a sifter takes of the memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SifterMemory {
    Bytes(u64),
    Share(f64),
}

impl FromStr for SifterMemory {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(percent) = text.strip_suffix('%').map(str::trim_end) else {
            return size::parse_bytes(text).map(Self::Bytes);
        };
        match percent.trim().parse::<f64>() {
            Ok(percent) if (0.0..100.0).contains(&percent) => Ok(Self::Share(percent / 100.0)),
            _ => Err("not a share of the memory: it takes 0% to less than 100%".to_owned()),
        }
    }
}

impl fmt::Display for SifterMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{bytes}"),
            Self::Share(share) => write!(f, "{}%", share * 100.0),
        }
    }
}

impl SifterMemory {
    /// Returns the sifter's part of this many pages, in pages. The page cache keeps at least one.
    pub(crate) fn pages_of(self, memory_pages: u32) -> u32 {
        let pages = match self {
            Self::Bytes(bytes) => u32::try_from(bytes / PAGE_BYTES).unwrap_or(u32::MAX),
            Self::Share(share) => (f64::from(memory_pages) * share) as u32,
        };
        pages.min(memory_pages - 1)
    }
}

pub(super) fn help() -> String {
    let each = Spec::ALL.iter().map(|spec| {
        let params = spec.params.iter().map(|param| format!(" [{param}]")).collect::<String>();
        let offline = if (spec.offline)(&Params::default()) { " (offline)" } else { "" };
        format!("\n  {:<13} {}{offline}{params}", spec.name, spec.what)
    });
    format!(
        "Sifters to compare, or all; parameters as name:key=value. A sifter holds droppable files \
         in RAM, and drops them or writes them to flash when it is full. With this option --memory \
         is 32MiB and --policy is lru by default{}\n",
        each.collect::<String>()
    )
}

/// The result of a sifter with some memory.
pub(super) struct Cell {
    pub(super) sifter: String,
    pub(super) offline: bool,
    pub(super) memory_pages: u32,
    pub(super) ram_pages: u32,
    pub(super) sifted: SiftOutcome,
    /// The most bytes that any sifter can keep, beside the oracle.
    most_kept: Option<Halves>,
    pub(super) outcome: Outcome,
    policy: String,
    pub(super) devices: Vec<DeviceResult>,
}

/// The parts of the time that the page shows.
const PARTS: usize = 60;

/// A finished comparison, for its page.
pub(super) struct SiftRun<'a> {
    /// By memory, the one without a sifter first.
    pub(super) cells: &'a [Cell],
    pub(super) about: About,
    /// Reads and writes of the trace.
    pub(super) requests: u64,
    pub(super) end_us: u64,
    /// Beginnings of the second and later parts of the time.
    pub(super) begins_us: Vec<u64>,
    pub(super) outcome: &'a open::Outcome,
    droppable_files: usize,
}

impl SiftRun<'_> {
    /// Explains the figures.
    pub(super) fn legend(&self) -> String {
        self.cells.first().map_or_else(String::new, |stock| legend(self.droppable_files, stock))
    }
}

impl Cell {
    pub(super) fn kept_share_all(&self, stock: &Cell) -> f64 {
        self.kept_share(stock, whole)
    }

    pub(super) fn kept_share_later(&self, stock: &Cell) -> f64 {
        self.kept_share(stock, later)
    }

    /// Returns the bytes that reach flash at least, and the share that is kept at most, if no byte
    /// is fetched again: of the whole trace, and of its second half. The oracle's cell has them.
    pub(super) fn bound(&self, stock: &Cell) -> Option<[(u64, f64); 2]> {
        self.most_kept.map(|most_kept| bounded(stock, most_kept))
    }

    fn kept_share(&self, stock: &Cell, of: fn(&SiftOutcome) -> u64) -> f64 {
        let stock = of(&stock.sifted) as f64;
        share(stock - of(&self.sifted) as f64, stock)
    }

    pub(super) fn again_share(&self, stock: &Cell) -> f64 {
        share(self.sifted.fetched_again.all as f64, stock.sifted.droppable.all as f64)
    }

    pub(super) fn again_share_later(&self, stock: &Cell) -> f64 {
        share(self.sifted.fetched_again.second as f64, stock.sifted.droppable.second as f64)
    }
}

/// Bytes that reach flash at least, and the share that is kept at most, of the whole trace and of
/// its second half.
fn bounded(stock: &Cell, most_kept: Halves) -> [(u64, f64); 2] {
    let Halves { all, second } = stock.sifted.droppable;
    let of = |stock: u64, kept: u64| (stock.saturating_sub(kept), share(kept as f64, stock as f64));
    [of(all, most_kept.all), of(second, most_kept.second)]
}

fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

fn whole(sifted: &SiftOutcome) -> u64 {
    sifted.droppable.all
}

fn later(sifted: &SiftOutcome) -> u64 {
    sifted.droppable.second
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let sifters = sifters(&args.sift)?;
    let models = models(&sifters)?;
    let mut request = request(args)?;
    let policies = text::joined(&args.policy);
    let all = policies.iter().any(|policy| policy.eq_ignore_ascii_case("all"));
    let several =
        [("--policy", policies.len() > 1 || all), ("--writeback", args.writeback.len() > 1)];
    if let Some((option, _)) = several.into_iter().find(|(_, several)| *several) {
        let message = format!("--sift compares sifters behind one cache: {option} takes one value");
        return Err(Usage(message).into());
    }
    if args.memory.iter().any(|size| matches!(size, CacheSize::Share(_))) {
        let message = "with --sift, --memory takes sizes, not shares of the trace's pages";
        return Err(Usage(message.to_owned()).into());
    }
    request.frames.extend(super::memory_frames(args, 0));
    // An unwritable path is reported before the trace is read.
    let report = args.report.as_deref().map(html_page::Report::new).transpose()?;
    let limit_bytes = args.trace_memory.unwrap_or_else(default_limit_bytes);
    let name = args.input.name();
    let mut kept = Kept::default();
    let outcome = args.input.read(&mut kept)?;
    load::log_left_out(&outcome);
    let about = kept.about.context("the reader gave no trace")?;
    let mut sifting = Sifting::new(&kept.events, about, Droppable::matching(&args.droppable))?;
    for (path, model) in models {
        sifting.add_model(path, model);
    }
    sifting.explain(args.explain.clone());
    if args.as_mounted {
        sifting.run_as_mounted(args.fetch_again.unwrap_or(AGAIN));
    }
    let end_us = kept.events.last().map_or(0, |event| event.at_us);
    let begins_us = equal_parts(end_us, PARTS);
    if report.is_some() {
        sifting.cut(begins_us.clone());
    }
    let sifting = sifting;
    let memories = match &request.frames[..] {
        [] => vec![MEMORY_PAGES],
        given => given.to_vec(),
    };
    let none = Selection::parse("none").map_err(|error| Usage(error.to_string()))?;
    let mut wanted: Vec<(u32, &Selection)> = Vec::new();
    for memory in &memories {
        let others = sifters.iter().filter(|sifter| sifter.label() != none.label());
        wanted.push((*memory, &none));
        wanted.extend(others.map(|sifter| (*memory, sifter)));
    }
    let has_rule = args.writeback.iter().any(|modes| modes.file_system.is_some());
    let tables = Tables { operations: request.metadata.is_some() || has_rule, ..Tables::default() };
    let at_once = request.workers.min(wanted.len());
    let limit_bytes = limit_bytes / at_once as u64;
    let bar = load::progress("sifters", "{spinner} {msg} {bar:30} {pos}/{len}");
    bar.set_length(wanted.len() as u64);
    let waves = [Wave { cells: 0..wanted.len(), at_once }];
    let bound: OnceLock<KeptBound> = OnceLock::new();
    let cells = schedule::in_waves(&waves, |n| {
        let (memory_pages, sifter) = wanted[n];
        let share_pages = args.sift_memory.pages_of(memory_pages);
        let ram_pages = if sifter.spec.name == none.spec.name { 0 } else { share_pages };
        let ram_bytes = u64::from(share_pages) * PAGE_BYTES;
        let sifted = sift_trace(&sifting, sifter, ram_bytes, tables, limit_bytes);
        let (sifted, trace) = sifted.map_err(|error| match error {
            SiftTraceError::Setup(_) => Usage(error.to_string()).into(),
            error => anyhow::Error::from(error),
        })?;
        let mut cell = Cell {
            sifter: sifter.label(),
            offline: sifter.is_offline(),
            memory_pages,
            ram_pages,
            sifted,
            most_kept: (sifter.spec.name == ORACLE)
                .then(|| bound.get_or_init(|| sifting.kept_bound()).kept(ram_bytes)),
            outcome: Outcome::default(),
            policy: String::new(),
            devices: Vec::new(),
        };
        let write_back = sifter.write_back(ram_bytes);
        behind(args, &request, &trace, memory_pages - ram_pages, write_back, &mut cell)?;
        bar.inc(1);
        Ok(cell)
    })?;
    bar.finish_and_clear();
    if let Some(report) = report {
        let is_request = |action: &Action<'_>| {
            matches!(action, Action::Read { .. } | Action::Write { .. } | Action::Direct { .. })
        };
        let run = SiftRun {
            cells: &cells,
            about,
            requests: kept.events.iter().filter(|event| is_request(&event.action)).count() as u64,
            end_us,
            begins_us,
            outcome: &outcome,
            droppable_files: sifting.droppable_files(),
        };
        report.write(&page::sifters::build(&run, &name, &args.input))?;
    }
    let mut out = records::Output::rows(args.json, args.csv);
    let by_memory = || cells.chunk_by(|a, b| a.memory_pages == b.memory_pages);
    match args.json || args.csv {
        true => {
            by_memory().try_for_each(|cells| print_json(&mut out, &name, &sifting, cells))?;
            cells.iter().try_for_each(|cell| explained::print_json(&mut out, &name, cell))?;
        }
        false => {
            by_memory().try_for_each(|cells| print_table(&mut out, cells))?;
            print_legend(&mut out, &sifting, &cells)?;
            if !args.explain.is_empty() {
                explained::print(&mut out, &args.explain, &cells)?;
            }
        }
    }
    out.finish()
}

/// Lets the page cache behind the sifter have the trace that is left.
fn behind(
    args: &Args,
    request: &Request,
    trace: &Trace,
    frames: u32,
    write_back: FlusherSettings,
    cell: &mut Cell,
) -> anyhow::Result<()> {
    let mut modes = match args.writeback.is_empty() && args.ram.is_none() {
        true => Modes::default_for(trace).modes,
        false => modes(args, trace)?[0],
    };
    if let Some(expire) = &mut modes.expire
        && write_back != FlusherSettings::default()
    {
        let ratio = u64::from(expire.ratio.max(1));
        expire.after_us = write_back.expire_us;
        expire.ram_pages = write_back.background_pages.saturating_mul(100) / ratio;
    }
    let request = Request {
        frames: vec![frames],
        writeback: modes,
        drain: true,
        workers: 1,
        ..request.clone()
    };
    let study = Study::new(trace, request).map_err(|error| Usage(error.to_string()))?;
    let plan = study.plan()?;
    if write_back == FlusherSettings::default() && cell.ram_pages == 0 {
        log_notes(study.notes().into_iter().chain(plan.notes()));
    }
    let results = plan.results((0..plan.cells().len()).map(|n| plan.run(n, &|| 0, None)));
    if let Some(row) = results.rows().next() {
        cell.outcome = row.outcome;
        cell.policy.clone_from(&row.policy);
        cell.devices.clone_from(&row.devices);
    }
    Ok(())
}

/// Reads the files of models that the sifters name.
pub(crate) fn models(sifters: &[Selection]) -> anyhow::Result<Vec<(String, FileModel)>> {
    let files: BTreeSet<&str> = sifters.iter().flat_map(SelectedSifter::model_files).collect();
    let read = |path: &str| -> anyhow::Result<_> {
        let bytes = std::fs::read(path).with_context(|| path.to_owned())?;
        let model = FileModel::from_bytes(&bytes).with_context(|| path.to_owned())?;
        Ok((path.to_owned(), model))
    };
    files.into_iter().map(read).collect()
}

/// Reads the sifters, each once. `all` stands for every one with its default parameters.
pub(crate) fn sifters(texts: &[String]) -> anyhow::Result<Vec<Selection>> {
    let mut chosen: Vec<Selection> = Vec::new();
    for text in text::joined(texts) {
        let named = match &*text {
            all if all.eq_ignore_ascii_case("all") => {
                Spec::ALL.iter().map(Selection::default_of).collect()
            }
            text => {
                vec![Selection::parse(text).map_err(|error| Usage(error.to_string()))?]
            }
        };
        for sifter in named {
            if chosen.iter().all(|known| known.label() != sifter.label()) {
                chosen.push(sifter);
            }
        }
    }
    Ok(chosen)
}

/// A share in percent, with the minus sign of typography.
fn percent(share: f64) -> String {
    format!("{:.1}", 100.0 * share).replace('-', "−")
}

fn print_table(out: &mut impl Write, cells: &[Cell]) -> anyhow::Result<()> {
    let Some(stock) = cells.first() else { return Ok(()) };
    let with_fs = cells.iter().any(|cell| cell.outcome.device.journal_writes > 0);
    let devices = stock.devices.iter().map(|device| format!("s on\n{}", device.device));
    let titles = [
        "",
        "saved\n%",
        "again\n%",
        "later:\nsaved %",
        "later:\nagain %",
        "to flash",
        "fetched\nagain",
        "files\ndropped",
        "other files\nto flash",
    ];
    let file_system = with_fs.then(|| "journal,\nmetadata".to_owned());
    let header: Vec<String> = titles
        .into_iter()
        .map(str::to_owned)
        .chain(file_system)
        .chain(["hits %".to_owned(), "read from\nflash".to_owned()])
        .chain(devices)
        .collect();
    let row = |cell: &Cell| {
        let sifted = &cell.sifted;
        let pages = |pages: u64| size::bytes(pages * PAGE_BYTES);
        let own = cell.outcome.device;
        let name =
            if cell.offline { format!("{} (offline)", cell.sifter) } else { cell.sifter.clone() };
        [
            name,
            percent(cell.kept_share(stock, whole)),
            percent(cell.again_share(stock)),
            percent(cell.kept_share(stock, later)),
            percent(cell.again_share_later(stock)),
            size::bytes(sifted.droppable.all),
            size::bytes(sifted.fetched_again.all),
            size::count(sifted.counters.dropped.files),
            size::bytes(sifted.others.all),
        ]
        .into_iter()
        .chain(with_fs.then(|| pages(own.journal_writes + own.metadata_writes)))
        .chain([percent(cell.outcome.hit_ratio()), pages(own.reads)])
        .chain(cell.devices.iter().map(|device| size::significant(device.elapsed_s)))
        .collect::<Vec<_>>()
    };
    let bound = |cell: &Cell| {
        let [all, later] = cell.bound(stock)?;
        let mut row = vec![String::new(); header.len()];
        row[0] = UPPER_BOUND.to_owned();
        (row[1], row[2]) = (percent(all.1), percent(0.0));
        (row[3], row[4]) = (percent(later.1), percent(0.0));
        row[5] = size::bytes(all.0);
        Some(row)
    };
    let bound = cells.iter().find_map(bound);
    let rows: Vec<Vec<String>> =
        std::iter::once(header).chain(cells.iter().map(row)).chain(bound).collect();
    let ram = cells.iter().map(|cell| cell.ram_pages).max().unwrap_or(0);
    let bytes = |pages: u32| size::memory(pages.into());
    writeln!(
        out,
        "\nmemory of {}, {} of it for the sifter, the rest a page cache under {}\n{}",
        bytes(stock.memory_pages),
        bytes(ram),
        stock.policy,
        table::in_parts(&rows, text::columns().unwrap_or(usize::MAX)).trim_end()
    )?;
    Ok(())
}

fn print_legend(out: &mut impl Write, sifting: &Sifting<'_>, cells: &[Cell]) -> anyhow::Result<()> {
    let Some(stock) = cells.first() else { return Ok(()) };
    let columns = text::columns().unwrap_or(120);
    let legend = legend(sifting.droppable_files(), stock);
    write!(out, "\n{}", text::labelled("", 0, &legend, columns))?;
    Ok(())
}

/// Explains the columns, with the figures of the cell without a sifter.
fn legend(droppable_files: usize, stock: &Cell) -> String {
    let (own, others) = (stock.sifted.droppable.all, stock.sifted.others.all);
    format!(
        "{} can be dropped. Without a sifter, {} of the {} of file data that reach flash are \
         theirs. saved: the share of these that does not reach flash. again: bytes of dropped \
         files that applications fetch again, as a share of the same bytes. A file that is fetched \
         again is a new file, which may be dropped or written. later: both in the second half of \
         the trace. At the end all files in RAM are written, which makes the figures of short \
         traces worse.",
        size::counted(droppable_files as u64, "file"),
        size::bytes(own),
        size::bytes(own + others),
    )
}

/// One sifter with some memory, or one on one device, as one line of JSON.
pub(crate) struct SifterLine<'a> {
    trace: &'a str,
    droppable_files: usize,
    /// Without a sifter.
    stock: &'a Cell,
    cell: &'a Cell,
    device: Option<&'a DeviceResult>,
}

impl<'a> SifterLine<'a> {
    fn own(&self) -> &'a DeviceCounts {
        &self.cell.outcome.device
    }

    fn bound(&self, half: usize) -> Option<(u64, f64)> {
        self.cell.bound(self.stock).map(|halves| halves[half])
    }
}

figures! { "sifter", "A sifter with some memory (--sift)": SifterLine<'_> {
    always schema: VERSION, "Version of the record.", |_| 1_u32;
    always trace: TEXT, "Name of the trace.", |s| s.trace;
    always sifter: TEXT, "Sifter with the parameters given; `none` is the page cache alone.",
        |s| &*s.cell.sifter;
    always offline: FLAG, "Whether the sifter knows the future.", |s| s.cell.offline;
    always policy: TEXT, "Policy of the page cache behind the sifter.", |s| &*s.cell.policy;
    always memory_bytes: COUNT, "Memory of sifter and page cache together.",
        |s| u64::from(s.cell.memory_pages) * PAGE_BYTES;
    always sifter_bytes: COUNT, "The sifter's part.",
        |s| u64::from(s.cell.ram_pages) * PAGE_BYTES;
    always droppable_files: COUNT, "Files that may be dropped.", |s| s.droppable_files;
    always stock_bytes: COUNT, "Bytes of these files that reach flash without a sifter.",
        |s| whole(&s.stock.sifted);
    always flash_bytes: COUNT, "Bytes of these files that reach flash with it.",
        |s| whole(&s.cell.sifted);
    always kept_share: NUMBER, "Share of stock_bytes that does not reach flash.",
        |s| s.cell.kept_share_all(s.stock);
    always fetched_again_bytes: COUNT, "Bytes of dropped files that applications fetch again.",
        |s| s.cell.sifted.fetched_again.all;
    always fetched_again_files: COUNT, "Such files.",
        |s| s.cell.sifted.counters.fetched_again.files;
    always fetched_again_share: NUMBER, "Bytes fetched again, as a share of stock_bytes.",
        |s| s.cell.again_share(s.stock);
    always later_stock_bytes: COUNT, "stock_bytes in the second half of the trace.",
        |s| later(&s.stock.sifted);
    always later_flash_bytes: COUNT, "flash_bytes in the second half.",
        |s| later(&s.cell.sifted);
    always later_kept_share: NUMBER, "kept_share in the second half.",
        |s| s.cell.kept_share_later(s.stock);
    always later_fetched_again_bytes: COUNT, "fetched_again_bytes in the second half.",
        |s| s.cell.sifted.fetched_again.second;
    always later_fetched_again_share: NUMBER, "fetched_again_share in the second half.",
        |s| s.cell.again_share_later(s.stock);
    always dropped_files: COUNT, "Files that were dropped.",
        |s| s.cell.sifted.counters.dropped.files;
    always dropped_bytes: COUNT, "Their bytes.", |s| s.cell.sifted.counters.dropped.bytes;
    always written_back_bytes: COUNT, "Bytes that the sifter wrote to flash.",
        |s| s.cell.sifted.counters.written_back.values().map(|all| all.bytes).sum::<u64>();
    always spilled_bytes: COUNT, "Bytes that went to flash because a file did not fit into RAM.",
        |s| s.cell.sifted.counters.spilled.bytes;
    always died_in_ram_files: COUNT, "Files that applications deleted while they were in RAM.",
        |s| s.cell.sifted.counters.died_in_ram;
    always ram_bytes_peak: COUNT, "The most bytes in the sifter's RAM.",
        |s| s.cell.sifted.counters.ram_bytes_peak;
    always other_flash_bytes: COUNT, "Bytes of all other files that reach flash.",
        |s| s.cell.sifted.others.all;
    always journal_writes: COUNT, "Pages of the file system's journal, with --metadata.",
        |s| s.own().journal_writes;
    always metadata_writes: COUNT, "Pages of metadata written in place, with --metadata.",
        |s| s.own().metadata_writes;
    always hits: COUNT, "Hits in the page cache behind the sifter.", |s| s.cell.outcome.hits();
    always accesses: COUNT, "Page accesses that reach it.", |s| s.cell.outcome.accesses();
    always device_reads: COUNT, "Pages read from storage.", |s| s.own().reads;
    always device_writes: COUNT, "Pages written to storage, with a drain at the end.",
        |s| s.own().writes;
    maybe flash_bytes_min: COUNT,
        "Beside the oracle: bytes that reach flash at least, if none are fetched again.",
        |s| s.bound(0).map(|bound| bound.0);
    maybe kept_share_max: NUMBER, "Beside the oracle: the share that is kept at most.",
        |s| s.bound(0).map(|bound| bound.1);
    maybe later_flash_bytes_min: COUNT, "flash_bytes_min in the second half.",
        |s| s.bound(1).map(|bound| bound.0);
    maybe later_kept_share_max: NUMBER, "kept_share_max in the second half.",
        |s| s.bound(1).map(|bound| bound.1);
    maybe device: TEXT, "Modelled device; there is one record for each.",
        |s| s.device.map(|device| &*device.device);
    maybe elapsed_s: NON_NEGATIVE,
        "Time from the first request to the completion of the last, without pauses.",
        |s| s.device.map(|device| device.elapsed_s);
    maybe stall_s: NUMBER,
        "Time that applications wait, with requests at their recorded times.",
        |s| s.device.and_then(|device| device.stall_s);
} }

fn print_json(
    out: &mut impl Write,
    trace: &str,
    sifting: &Sifting<'_>,
    cells: &[Cell],
) -> anyhow::Result<()> {
    let Some(stock) = cells.first() else { return Ok(()) };
    let droppable_files = sifting.droppable_files();
    for cell in cells {
        let devices = cell.devices.iter().map(Some);
        for device in devices.chain(cell.devices.is_empty().then_some(None)) {
            let line = SifterLine { trace, droppable_files, stock, cell, device };
            serde_json::to_writer(&mut *out, &ResultRecord(line))?;
            writeln!(out)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sifter_takes_a_size_or_a_share_and_leaves_a_page() {
        let parse = |text: &str| text.parse::<SifterMemory>();
        assert_eq!(parse("50%").unwrap().pages_of(8192), 4096);
        assert_eq!(parse("16MiB").unwrap().pages_of(8192), 4096);
        assert_eq!(parse("1GiB").unwrap().pages_of(8192), 8191);
        assert_eq!(parse("0%").unwrap().pages_of(8192), 0);
        for refused in ["100%", "-1%", "x%", "x", ""] {
            assert!(parse(refused).is_err(), "{refused}");
        }
    }
}
