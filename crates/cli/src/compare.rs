//! `flashsift compare`: every policy at every size over one trace.

use crate::{
    Usage, after_cache, card,
    devices::{self, Chosen, OnDevice},
    json::{Record, Shape, VerdictLine},
    load::{self, Input, Loaded},
    size,
    table::{self, Row},
    text,
    verdict::{self, Judged, Size},
};
use anyhow::Context;
use clap::ValueEnum;
use flashsift_core::{
    back::Io,
    device::{Clocks, DeviceTimes},
    event::{Side, Space},
    layout,
    page::PAGE_BYTES,
    policy,
    system::{self, Cell, Outcome},
    trace::{Future, Trace},
    verdict::{Contender, REFERENCE, Verdict, least_cpu},
    writeback::{self, Modes, Syncs},
};
use rayon::prelude::*;
use std::{io::Write, num::NonZeroUsize, path::PathBuf, str::FromStr};

mod page;

/// How would each page cache treat my storage? Every policy at every size: hits, and what reaches
/// storage and how
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flashsift compare trace.xz                                  every policy, five sizes that suit the trace
  flashsift compare trace.xz --policy lru,clock:insert_ref=1 --memory 4MiB,64MiB --drain
  flashsift compare trace.xz --report report.html             the same as a page with figures
  flashsift compare trace.xz --policy lru,mglru --writeback linux      as a Linux kernel writes back
  flashsift compare trace.xz --writeback periodic:5s,sync --drain
  flashsift compare trace.xz --policy spatialclock --memory 16M --after-cache out/
  flashsift compare trace.xz --device microsd-2012,ufs-3.1    with time and wear on these devices
  flashsift compare cdn.oracleGeneral.zst --object-cache --frames 1000,10000 --json")]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    /// Replacement policies, with parameters as name:key=value
    #[arg(long, value_delimiter = ',', default_value = "all", value_name = "POLICY,…", help = policies_help())]
    policy: Vec<String>,

    /// Cache sizes as memory: 4MiB,64M. Default: the five powers of two below what the trace
    /// touches
    #[arg(long, value_delimiter = ',', value_name = "SIZE,…", value_parser = size::parse_memory)]
    memory: Vec<u32>,

    /// Cache sizes as frames of one page (with --object-cache: of one object)
    #[arg(long, value_delimiter = ',', value_name = "N,…", value_parser = size::parse_frames, conflicts_with = "memory")]
    frames: Vec<u32>,

    /// When dirty pages are written, beside eviction
    #[arg(long, value_name = "MODE,…", default_value = "evict", value_parser = Modes::from_str, help = writeback_help())]
    writeback: Modes,

    /// At the end, write what is dirty, in the policy's own order of victims
    #[arg(long)]
    drain: bool,

    /// What a write to an uncached page does first: read fetches it if only a part of it is written
    #[arg(long, value_name = "WHAT", default_value = "none")]
    write_miss: WriteMiss,

    /// Where pages lie on the device
    #[arg(long, value_name = "LAYOUT", help = layouts_help())]
    layout: Option<String>,

    /// Modelled devices that take what reaches storage: time and wear for each policy
    #[arg(long, value_delimiter = ',', value_name = "DEVICE,…", conflicts_with = "object_cache", help = devices::help())]
    device: Vec<String>,

    /// Object traces: each request is one unit, whatever its size
    #[arg(long)]
    object_cache: bool,

    /// Write a page with figures, for a browser: it holds all that it shows, and fetches nothing
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    /// Write what each cell sends to storage into this folder, one trace a cell
    #[arg(long, value_name = "DIR")]
    after_cache: Option<PathBuf>,

    /// Format of the after-cache traces
    #[arg(long, value_name = "FORMAT", default_value = "parquet", requires = "after_cache")]
    after_cache_format: after_cache::Format,

    /// One JSON object a cell and line, on standard output
    #[arg(long)]
    json: bool,

    /// End with a verdict: who is best at what, whom nobody beats, what is left to gain. Tables of
    /// more than two policies always do; with --json it is one line more,
    /// {"schema":1,"verdict":{…}}, after those of the cells
    #[arg(long)]
    verdict: bool,

    /// Memory that the trace and its cells may take; default: three quarters of the machine's
    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes)]
    trace_memory: Option<u64>,

    /// Cells run at once; default: one a core
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum WriteMiss {
    None,
    Read,
}

fn policies_help() -> String {
    let each = policy::ALL.iter().map(|spec| {
        let params = spec.params.iter().map(|param| format!(" [{}]", param.default())).collect::<String>();
        let slow = if spec.slow { " (slow)" } else { "" };
        format!("\n  {:<13} {}{slow}{params}", spec.name, spec.what)
    });
    format!(
        "Replacement policies, or all (without those marked slow); parameters as name:key=value; \
         what they are: flashsift policies{}\n",
        each.collect::<String>()
    )
}

fn writeback_help() -> String {
    let each = writeback::ALL.iter().map(|(name, what)| format!("\n  {name:<28} {what}"));
    format!("When dirty pages are written, modes combined{}\n", each.collect::<String>())
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

/// A cell that has run.
struct Done {
    outcome: Outcome,
    cpu_ns_per_access: f64,
    /// What it took, by device asked for.
    times: Vec<DeviceTimes>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mut policies = chosen_policies(&args.policy)?;
    let layout =
        args.layout.as_deref().map(layout::Selection::parse).transpose().map_err(|e| Usage(e.to_string()))?;
    if args.object_cache && !args.memory.is_empty() {
        return Err(Usage(
            "objects have no page size: with --object-cache give --frames, not --memory".to_owned(),
        )
        .into());
    }
    let devices = devices::chosen(&args.device)?;
    // What cannot be written is known before anybody waits.
    let report = args.report.as_deref().map(card::Report::new).transpose()?;
    let name = args.input.name();
    let loaded = load::load(&args.input, args.object_cache, args.trace_memory)?;
    loaded.say(&name);
    let layout = checked_layout(layout, &loaded.trace)?;
    args.writeback
        .suit(&loaded.trace)
        .map_err(|unsuited| Usage(format!("--writeback {}: {unsuited}", args.writeback)))?;
    args.writeback.caveats(&loaded.trace).iter().for_each(|caveat| eprintln!("  note: {caveat}"));
    let sizes = sizes(args, &loaded.trace);
    let future = future(args, &loaded, &mut policies)?;
    let after = match &args.after_cache {
        Some(dir) => Some(after_cache::Writers::new(dir, args.after_cache_format, &name, &loaded.trace)?),
        None => None,
    };

    let cells: Vec<(u32, &policy::Selection)> =
        sizes.iter().flat_map(|frames| policies.iter().map(move |policy| (*frames, policy))).collect();
    if let Some(after) = &after {
        cells.iter().try_for_each(|(frames, policy)| after.check_free(&policy.label(), *frames))?;
    }
    let done = run_cells(
        args,
        &loaded,
        &layout,
        &cells,
        future.as_ref(),
        &Sinks { after: after.as_ref(), devices: &devices },
    )?;
    let on = on_devices(&loaded.trace, &devices, &cells, &done);

    let labels: Vec<String> = policies.iter().map(policy::Selection::label).collect();
    let online = policies.iter().filter(|policy| policy.spec.kind == policy::Kind::Online).count();
    let judged = (args.verdict || args.report.is_some() || (!args.json && online > 2))
        .then(|| judge(args, &loaded.trace, &labels, &cells, &done, &devices, &on))
        .filter(|judged| !judged.sizes.is_empty());
    if let Some(report) = report {
        let run = page::Run {
            args,
            name: &name,
            loaded: &loaded,
            layout: &layout,
            labels: &labels,
            cells: &cells,
            done: &done,
            devices: &devices,
            on: &on,
        };
        report.write(&page::build(&run, judged.as_ref(), future.as_ref()))?;
    }
    let judged = judged.filter(|_| args.verdict || (!args.json && online > 2));
    let mut out = std::io::stdout().lock();
    if args.json {
        let writes = loaded.trace.about().knows.writes;
        let shape = Shape {
            writeback: &args.writeback.to_string(),
            syncs: args.writeback.syncs != Syncs::Nothing,
            object_cache: args.object_cache,
            writes,
            drain: args.drain,
        };
        for (n, ((frames, _), done)) in cells.iter().zip(&done).enumerate() {
            let label = &labels[n % labels.len()];
            let record = Record::new(&name, label, *frames, shape, &done.outcome, done.cpu_ns_per_access);
            for record in record.on_each(&devices, &on[n]) {
                serde_json::to_writer(&mut out, &record)?;
                writeln!(out)?;
            }
        }
        if let Some(judged) = &judged {
            serde_json::to_writer(&mut out, &VerdictLine::new(&name, args.object_cache, judged))?;
            writeln!(out)?;
        }
    } else {
        let columns = text::columns().unwrap_or(120);
        let shown = Shown {
            args,
            loaded: &loaded,
            layout: &layout,
            cells: &cells,
            done: &done,
            devices: &devices,
            on: &on,
        };
        shown.print(&mut out, columns)?;
        if let Some(judged) = &judged {
            write!(out, "\n{}", verdict::words(judged, columns))?;
        }
    }
    out.flush().context("writing to standard output")
}

/// What it all comes to.
fn judge<'a>(
    args: &Args,
    trace: &Trace,
    labels: &'a [String],
    cells: &[(u32, &policy::Selection)],
    done: &[Done],
    devices: &'a [Chosen],
    on: &[Vec<OnDevice>],
) -> Judged<'a> {
    let policies = labels.len();
    let kind = |n: usize| cells[n].1.spec.kind;
    let costs: Vec<_> = done
        .iter()
        .enumerate()
        .map(|(n, done)| (&*labels[n % policies], kind(n), done.cpu_ns_per_access))
        .collect();
    let sizes = (0..cells.len()).step_by(policies).filter_map(|first| {
        let contenders: Vec<_> = labels
            .iter()
            .enumerate()
            .map(|(n, policy)| Contender { policy, kind: kind(n), outcome: done[first + n].outcome })
            .collect();
        let frames = cells[first].0;
        let devices = devices.iter().enumerate().map(|(device, chosen)| {
            let on =
                labels.iter().enumerate().map(|(n, policy)| (&**policy, kind(n), &on[first + n][device]));
            devices::judge(chosen, &on.collect::<Vec<_>>())
        });
        Some(Size {
            frames,
            label: size_label(args, frames),
            verdict: Verdict::of(&contenders)?,
            devices: devices.collect::<Option<_>>()?,
        })
    });
    Judged {
        sizes: sizes.collect(),
        least_cpu: least_cpu(&costs),
        cold_accesses: trace.cold_accesses(),
        drain: args.drain,
    }
}

fn size_label(args: &Args, frames: u32) -> String {
    match args.object_cache {
        true => size::counted(frames.into(), "object"),
        false => size::bytes(u64::from(frames) * PAGE_BYTES),
    }
}

/// What offline policies need. Where that does not fit, those that only `all` asked for are left
/// out, and said.
fn future(
    args: &Args,
    loaded: &Loaded,
    policies: &mut Vec<policy::Selection>,
) -> anyhow::Result<Option<Future>> {
    let asks_for_all = args.policy.iter().any(|text| text == "all");
    let named = |policy: &policy::Selection| args.policy.iter().any(|text| *text == policy.label());
    let leave_out = |policies: &mut Vec<policy::Selection>, why: &str, which: fn(&policy::Spec) -> bool| {
        let specs = policy::ALL.iter().filter(|spec| which(spec));
        let names: Vec<_> = specs.map(|spec| spec.name).collect();
        policies.retain(|policy| !which(policy.spec) || named(policy));
        eprintln!("  note: left out of all: {} ({why}); ask for it by name", names.join(", "));
    };
    if asks_for_all && !policies.iter().any(|policy| policy.spec.slow) {
        leave_out(policies, "its cost grows with the cache", |spec| spec.slow);
    }
    if !policies.iter().any(|policy| policy.spec.kind.is_offline()) {
        return Ok(None);
    }
    let totals = loaded.trace.totals();
    let needed = loaded.trace.held_bytes() as u64 + 4 * (totals.read_accesses + totals.write_accesses);
    let problem = match loaded.trace.future() {
        _ if needed > loaded.limit_bytes => {
            let (needed, limit) = (size::bytes(needed), size::bytes(loaded.limit_bytes));
            format!(
                "knowing the future of this trace takes {needed} of memory, the limit is {limit}: \
                 see --trace-memory"
            )
        }
        Ok(future) => return Ok(Some(future)),
        Err(error) => error.to_string(),
    };
    let asked_by_name = policies.iter().any(|policy| policy.spec.kind.is_offline() && named(policy));
    if asked_by_name || !asks_for_all {
        anyhow::bail!(problem);
    }
    leave_out(policies, &problem, |spec| spec.kind.is_offline());
    Ok(None)
}

/// How many cells fit into memory at once, beside the trace.
fn threads(
    args: &Args,
    loaded: &Loaded,
    cells: &[(u32, &policy::Selection)],
    devices: usize,
) -> anyhow::Result<usize> {
    let cores = || std::thread::available_parallelism().map_or(1, usize::from);
    let wanted = args.threads.map_or_else(cores, usize::from).min(cells.len());
    let pages = loaded.trace.pages();
    let frames = cells.iter().map(|(frames, _)| *frames).max().unwrap_or(0);
    // Whoever is handed requests is handed them by the machine that also writes back.
    let heard = args.after_cache.is_some() || devices > 0;
    let writeback = match args.writeback.on_eviction_only() && !heard {
        true => 0,
        false => writeback::machine_bytes(&loaded.trace),
    };
    let devices = devices as u64 * Clocks::held_bytes(pages);
    let cell_bytes = system::cell_bytes(pages, frames) + writeback + devices;
    let room_bytes = loaded.limit_bytes.saturating_sub(loaded.trace.held_bytes() as u64);
    match usize::try_from(room_bytes / cell_bytes.max(1)).unwrap_or(wanted) {
        0 => anyhow::bail!(
            "one cell over {} takes about {} of memory beside the trace, and {} are left of the \
             limit: raise --trace-memory or shorten the trace",
            size::counted(pages.into(), "page"),
            size::bytes(cell_bytes),
            size::bytes(room_bytes)
        ),
        fitting => Ok(fitting.min(wanted)),
    }
}

fn chosen_policies(texts: &[String]) -> anyhow::Result<Vec<policy::Selection>> {
    let mut chosen: Vec<policy::Selection> = Vec::new();
    for text in text::joined(texts) {
        let found = match text.as_str() {
            "all" => policy::Selection::all(),
            text => vec![policy::Selection::parse(text).map_err(|e| Usage(e.to_string()))?],
        };
        for policy in found {
            if chosen.iter().all(|other| other.label() != policy.label()) {
                chosen.push(policy);
            }
        }
    }
    Ok(chosen)
}

fn checked_layout(layout: Option<layout::Selection>, trace: &Trace) -> anyhow::Result<layout::Selection> {
    let space = trace.about().space;
    let layout = layout.unwrap_or_else(|| layout::Selection::default_for(space));
    if !(layout.spec.suits)(space) {
        let suits: Vec<_> =
            layout::ALL.iter().filter(|spec| (spec.suits)(space)).map(|spec| spec.name).collect();
        let kind = if space == Space::Files { "files" } else { "addresses" };
        let says = format!(
            "--layout {}: this trace is of {kind}; it takes {}",
            layout.spec.name,
            suits.join(" or ")
        );
        return Err(Usage(says).into());
    }
    Ok(layout)
}

/// The sizes asked for, or those that tell caches apart.
fn sizes(args: &Args, trace: &Trace) -> Vec<u32> {
    let mut sizes: Vec<u32> = args.memory.iter().chain(&args.frames).copied().collect();
    if sizes.is_empty() {
        sizes = system::telling_frames(trace.pages());
    }
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn run_cells(
    args: &Args,
    loaded: &Loaded,
    layout: &layout::Selection,
    cells: &[(u32, &policy::Selection)],
    future: Option<&Future>,
    sinks: &Sinks<'_>,
) -> anyhow::Result<Vec<Done>> {
    let threads = threads(args, loaded, cells, sinks.devices.len())?;
    let bar = load::progress("cells", "{spinner} {msg} {bar:30} {pos}/{len}");
    bar.set_length(cells.len() as u64);
    let run = |(frames, policy): &(u32, &policy::Selection)| -> anyhow::Result<Done> {
        let cell = cell(args, layout, policy, *frames);
        let done = run_cell(&cell, &loaded.trace, future, sinks)?;
        bar.inc(1);
        Ok(done)
    };
    let done = match threads {
        // Not even a pool: for small traces starting one costs more than the work.
        1 => cells.iter().map(run).collect(),
        threads => {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
            pool.install(|| cells.par_iter().map(run).collect())
        }
    };
    bar.finish_and_clear();
    done
}

fn cell<'a>(
    args: &Args,
    layout: &'a layout::Selection,
    policy: &'a policy::Selection,
    frames: u32,
) -> Cell<'a> {
    let write_miss_reads = args.write_miss == WriteMiss::Read;
    Cell { policy, frames, layout, writeback: args.writeback, drain: args.drain, write_miss_reads }
}

/// Who takes what a cell sends to storage.
struct Sinks<'a> {
    after: Option<&'a after_cache::Writers<'a>>,
    devices: &'a [Chosen],
}

fn run_cell(
    cell: &Cell<'_>,
    trace: &Trace,
    future: Option<&Future>,
    sinks: &Sinks<'_>,
) -> anyhow::Result<Done> {
    let mut feed = devices::Feed::new(sinks.devices, trace.about().knows.times);
    let mut writer = match sinks.after {
        Some(after) => Some(after.open(&cell.policy.label(), cell.frames)?),
        None => None,
    };
    let before = cpu_ns();
    let outcome = if writer.is_none() && sinks.devices.is_empty() {
        cell.run(trace, future, None)
    } else {
        cell.run(
            trace,
            future,
            Some(&mut |io: Io| {
                if let Some(writer) = &mut writer {
                    writer.take(io);
                }
                feed.io(io);
            }),
        )
    };
    let (times, devices_ns) = feed.finish();
    let cpu_ns_per_access = (cpu_ns() - before - devices_ns) as f64 / outcome.accesses().max(1) as f64;
    if let Some(writer) = writer {
        writer.finish()?;
    }
    Ok(Done { outcome, cpu_ns_per_access, times })
}

/// By cell and device: what it took, and what its writes mean for the flash.
fn on_devices(
    trace: &Trace,
    devices: &[Chosen],
    cells: &[(u32, &policy::Selection)],
    done: &[Done],
) -> Vec<Vec<OnDevice>> {
    let labels: Vec<String> = cells.iter().map(|(_, policy)| policy.label()).collect();
    let on = |n: usize| -> Vec<OnDevice> {
        // Against the policy that verdicts are measured by, or else the first, at the same size.
        let same_size = || (0..cells.len()).filter(|other| cells[*other].0 == cells[n].0);
        let reference = same_size().find(|other| labels[*other] == REFERENCE).or_else(|| same_size().next());
        let reference = &done[reference.unwrap_or(n)];
        let each = devices.iter().enumerate().map(|(device, chosen)| {
            let (own, other) = (&done[n], (&reference.outcome, &reference.times[device]));
            OnDevice::new(chosen, trace, (&own.outcome, &own.times[device]), other)
        });
        each.collect()
    };
    (0..cells.len()).map(on).collect()
}

/// CPU time of this thread.
pub(crate) fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// All that tables are made of.
struct Shown<'a> {
    args: &'a Args,
    loaded: &'a Loaded,
    layout: &'a layout::Selection,
    cells: &'a [(u32, &'a policy::Selection)],
    done: &'a [Done],
    devices: &'a [Chosen],
    on: &'a [Vec<OnDevice>],
}

impl Shown<'_> {
    fn print(&self, out: &mut impl Write, columns: usize) -> anyhow::Result<()> {
        let Self { args, loaded, layout, cells, done, devices, on } = self;
        let color = table::in_color();
        let pages = loaded.trace.pages();
        let mut first = 0;
        while let Some((frames, _)) = cells.get(first) {
            let frames = *frames;
            let in_pages = if args.object_cache {
                String::new()
            } else {
                format!(" ({})", size::counted(frames.into(), "page"))
            };
            let title = format!("cache of {}{in_pages}", size_label(args, frames));
            let all = if frames >= pages { ": holds all that the trace touches" } else { "" };
            let last = first + cells[first..].iter().take_while(|(other, _)| *other == frames).count();
            let rows = |device: Option<usize>| -> Vec<Row> {
                let row = |n: usize| Row {
                    policy: cells[n].1.label(),
                    kind: cells[n].1.spec.kind,
                    outcome: done[n].outcome,
                    cpu_ns_per_access: done[n].cpu_ns_per_access,
                    on: device.map(|device| on[n][device].clone()),
                };
                (first..last).map(row).collect()
            };
            writeln!(out, "\n{title}{all}\n{}", table::render(&rows(None), args.drain, color, columns))?;
            for (n, device) in devices.iter().enumerate() {
                let table = table::render(&rows(Some(n)), args.drain, color, columns);
                writeln!(out, "\n  on {}\n{table}", device.label)?;
            }
            first = last;
        }
        let mut notes = notes(args, loaded, layout, done);
        let policies = cells.iter().map(|(_, policy)| policy.label());
        notes.extend(devices::notes(devices, &loaded.trace, policies));
        writeln!(out)?;
        for note in notes {
            write!(out, "{}", text::labelled("", 0, &note, columns))?;
        }
        Ok(())
    }
}

/// What to keep in mind.
fn notes(args: &Args, loaded: &Loaded, layout: &layout::Selection, done: &[Done]) -> Vec<String> {
    let mut notes = vec!["* best of its column. Reads and writes in pages.".to_owned()];
    if loaded.trace.totals().write_accesses > 0 {
        notes.push(
            "Cost: 100 µs a page read, 800 µs a page written. Not sequential: not right behind the \
             write before it."
                .to_owned(),
        );
        notes.push(format!("Places on the device: {}.", layout.spec.what));
        if done.iter().any(|done| done.outcome.device.dropped_dirty > 0) {
            notes.push(
                "Dropped dirty: pages whose file was cut or deleted before they were written: \
                 writes saved."
                    .to_owned(),
            );
        }
        let when = args.writeback.when();
        notes.push(format!("Dirty pages are written {when}. Journal and metadata writes are not modelled."));
    }
    if loaded.trace.about().side == Side::After {
        notes.push("After-cache trace: the hits that matter to applications are no longer in it.".to_owned());
    }
    notes
}
