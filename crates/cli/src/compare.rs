//! `flashsift compare`: every policy at every size over one trace.

use crate::{
    Usage, after_cache,
    json::Record,
    load::{self, Input, Loaded},
    size,
    table::{self, Row},
};
use anyhow::Context;
use clap::ValueEnum;
use flashsift_core::{
    event::{Side, Space},
    layout,
    page::PAGE_BYTES,
    policy,
    system::{self, Cell, FRAMES_MAX, Outcome},
    trace::{Future, Trace},
};
use rayon::prelude::*;
use std::{
    io::{IsTerminal, Write},
    path::PathBuf,
};

/// How would each page cache treat my storage? Every policy at every size: hits, and what reaches storage and how
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flashsift compare trace.xz                                  every policy, five sizes that suit the trace
  flashsift compare trace.xz --policy lru,clock:insert_ref=1 --memory 4MiB,64MiB --drain
  flashsift compare trace.xz --policy spatialclock --memory 16M --after-cache out/
  flashsift compare cdn.oracleGeneral.zst --object-cache --frames 1000,10000 --json")]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    /// Replacement policies, with parameters as name:key=value
    #[arg(long, value_delimiter = ',', default_value = "all", value_name = "POLICY,…", help = policies_help())]
    policy: Vec<String>,

    /// Cache sizes as memory: 4MiB,64M. Default: the five powers of two below what the trace touches
    #[arg(long, value_delimiter = ',', value_name = "SIZE,…", value_parser = size::parse_bytes)]
    memory: Vec<u64>,

    /// Cache sizes as frames of one page (with --object-cache: of one object)
    #[arg(long, value_delimiter = ',', value_name = "N,…", value_parser = size::parse_count, conflicts_with = "memory")]
    frames: Vec<u64>,

    /// When dirty pages are written: evict (they leave when they are evicted)
    #[arg(long, value_name = "MODE", default_value = "evict")]
    writeback: Writeback,

    /// At the end, write what is dirty, in the policy's own order of victims
    #[arg(long)]
    drain: bool,

    /// What a write to an uncached page does first: read fetches it if only a part of it is written
    #[arg(long, value_name = "WHAT", default_value = "none")]
    write_miss: WriteMiss,

    /// Where pages lie on the device
    #[arg(long, value_name = "LAYOUT", help = layouts_help())]
    layout: Option<String>,

    /// Object traces: each request is one unit, whatever its size
    #[arg(long)]
    object_cache: bool,

    /// Write what each cell sends to storage into this folder, one trace a cell
    #[arg(long, value_name = "DIR")]
    after_cache: Option<PathBuf>,

    /// Format of the after-cache traces
    #[arg(long, value_name = "FORMAT", default_value = "parquet", requires = "after_cache")]
    after_cache_format: after_cache::Format,

    /// One JSON object a cell and line, on standard output
    #[arg(long)]
    json: bool,

    /// Memory that the trace may take; default: three quarters of the machine's
    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes)]
    trace_memory: Option<u64>,

    /// Cells run at once; default: one a core
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Writeback {
    Evict,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum WriteMiss {
    None,
    Read,
}

fn policies_help() -> String {
    let each = policy::ALL.iter().map(|spec| {
        let params = spec.params.iter().map(|param| format!(" [{param}]")).collect::<String>();
        let slow = if spec.slow { " (slow: its cost grows with the cache)" } else { "" };
        format!("\n  {:<13} {}{slow}{params}", spec.name, spec.what)
    });
    format!(
        "Replacement policies, or all (without those marked slow); parameters as name:key=value{}\n",
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

/// A cell that has run.
struct Done {
    outcome: Outcome,
    cpu_ns_per_access: f64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let policies = chosen_policies(&args.policy)?;
    let layout =
        args.layout.as_deref().map(layout::Selection::parse).transpose().map_err(|e| Usage(e.to_string()))?;
    if args.object_cache && !args.memory.is_empty() {
        return Err(Usage(
            "objects have no page size: with --object-cache give --frames, not --memory".to_owned(),
        )
        .into());
    }
    let name = args.input.name();
    let loaded = load::load(&args.input, args.object_cache, args.trace_memory)?;
    loaded.say(&name);
    let layout = checked_layout(layout, &loaded.trace)?;
    let sizes = sizes(args, &loaded.trace)?;
    let after = match &args.after_cache {
        Some(dir) => Some(after_cache::Writers::new(dir, args.after_cache_format, &name, &loaded.trace)?),
        None => None,
    };

    let cells: Vec<(u32, &policy::Selection)> =
        sizes.iter().flat_map(|frames| policies.iter().map(move |policy| (*frames, policy))).collect();
    let done = run_cells(args, &loaded.trace, &layout, &cells, after.as_ref())?;

    let mut out = std::io::stdout().lock();
    let left_out: Vec<_> = policy::ALL.iter().filter(|spec| spec.slow).map(|spec| spec.name).collect();
    if args.policy.iter().any(|text| text == "all") && !policies.iter().any(|policy| policy.spec.slow) {
        eprintln!(
            "  note: left out of all, since its cost grows with the cache: {} (ask for it by name)",
            left_out.join(", ")
        );
    }
    if args.json {
        for ((frames, policy), done) in cells.iter().zip(&done) {
            let label = policy.label();
            let (drain, ns) = (args.drain, done.cpu_ns_per_access);
            let record = Record::new(&name, &label, *frames, args.object_cache, drain, &done.outcome, ns);
            serde_json::to_writer(&mut out, &record)?;
            writeln!(out)?;
        }
    } else {
        print(&mut out, args, &loaded, &layout, &cells, done)?;
    }
    Ok(())
}

fn chosen_policies(texts: &[String]) -> anyhow::Result<Vec<policy::Selection>> {
    let mut chosen: Vec<policy::Selection> = Vec::new();
    // A comma separates policies and also their parameters: `clock:a=1,b=2,lru`.
    let mut joined: Vec<String> = Vec::new();
    for text in texts {
        match joined.last_mut() {
            Some(last) if text.contains('=') && !text.contains(':') && last.contains(':') => {
                last.push(',');
                last.push_str(text);
            }
            _ => joined.push(text.clone()),
        }
    }
    for text in &joined {
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

/// The sizes asked for, or the five powers of two below what the trace touches: where caches differ.
fn sizes(args: &Args, trace: &Trace) -> anyhow::Result<Vec<u32>> {
    let mut sizes = Vec::new();
    for memory in &args.memory {
        let largest = size::bytes(u64::from(FRAMES_MAX) * PAGE_BYTES);
        let frames = system::frames_in(*memory)
            .ok_or_else(|| Usage(format!("--memory {memory}: a cache is one page to {largest}")))?;
        sizes.push(frames);
    }
    for frames in &args.frames {
        let frames = u32::try_from(*frames).ok().filter(|frames| *frames <= FRAMES_MAX);
        sizes.push(frames.ok_or_else(|| Usage(format!("--frames: a cache has 1 to {FRAMES_MAX} frames")))?);
    }
    if sizes.is_empty() {
        let mut frames = (trace.pages().max(2) - 1).checked_ilog2().map_or(1, |log| 1 << log).min(FRAMES_MAX);
        while sizes.len() < 5 && frames > 0 {
            sizes.insert(0, frames);
            frames /= 2;
        }
    }
    sizes.dedup();
    Ok(sizes)
}

fn run_cells(
    args: &Args,
    trace: &Trace,
    layout: &layout::Selection,
    cells: &[(u32, &policy::Selection)],
    after: Option<&after_cache::Writers<'_>>,
) -> anyhow::Result<Vec<Done>> {
    let offline = cells.iter().any(|(_, policy)| policy.spec.kind.is_offline());
    let future = offline.then(|| trace.future()).transpose()?;
    let bar = load::progress("cells", "{spinner} {msg} {bar:30} {pos}/{len}");
    bar.set_length(cells.len() as u64);
    let run = |(frames, policy): &(u32, &policy::Selection)| -> anyhow::Result<Done> {
        let cell = Cell {
            policy,
            frames: *frames,
            layout,
            drain: args.drain,
            write_miss_reads: args.write_miss == WriteMiss::Read,
        };
        let done = run_cell(&cell, trace, future.as_ref(), after)?;
        bar.inc(1);
        Ok(done)
    };
    let done = match args.threads {
        // Not even a pool: for small traces starting one costs more than the work.
        Some(1) => cells.iter().map(run).collect(),
        _ if cells.len() == 1 => cells.iter().map(run).collect(),
        threads => {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads.unwrap_or(0)).build()?;
            pool.install(|| cells.par_iter().map(run).collect())
        }
    };
    bar.finish_and_clear();
    done
}

fn run_cell(
    cell: &Cell<'_>,
    trace: &Trace,
    future: Option<&Future>,
    after: Option<&after_cache::Writers<'_>>,
) -> anyhow::Result<Done> {
    let before = cpu_ns();
    let outcome = match after {
        None => cell.run(trace, future, None),
        Some(after) => {
            let mut writer = after.open(&cell.policy.label(), cell.frames)?;
            let outcome = cell.run(trace, future, Some(&mut |io| writer.take(io)));
            writer.finish()?;
            outcome
        }
    };
    let cpu_ns_per_access = (cpu_ns() - before) as f64 / outcome.accesses().max(1) as f64;
    Ok(Done { outcome, cpu_ns_per_access })
}

/// CPU time of this thread.
fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn print(
    out: &mut impl Write,
    args: &Args,
    loaded: &Loaded,
    layout: &layout::Selection,
    cells: &[(u32, &policy::Selection)],
    done: Vec<Done>,
) -> anyhow::Result<()> {
    let color =
        std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let pages = loaded.trace.pages();
    let mut rows = cells.iter().zip(done).peekable();
    while let Some(((frames, _), _)) = rows.peek() {
        let frames = *frames;
        let title = match args.object_cache {
            true => format!("cache of {} objects", size::count(frames.into())),
            false => format!(
                "cache of {} ({} pages)",
                size::bytes(u64::from(frames) * PAGE_BYTES),
                size::count(frames.into())
            ),
        };
        let all = if frames >= pages { ": holds all that the trace touches" } else { "" };
        let mut table = Vec::new();
        while let Some(((_, policy), done)) = rows.next_if(|((other, _), _)| *other == frames) {
            table.push(Row {
                policy: policy.label(),
                kind: policy.spec.kind,
                outcome: done.outcome,
                cpu_ns_per_access: done.cpu_ns_per_access,
            });
        }
        writeln!(out, "\n{title}{all}\n{}", table::render(&table, args.drain, color))?;
    }
    let writes = loaded.trace.totals().write_accesses > 0;
    writeln!(out, "\n* best of its column. Reads and writes in pages.")?;
    if writes {
        writeln!(
            out,
            "Cost: 100 µs a page read, 800 µs a page written. Not sequential: not right behind the write before it.\n\
             Places on the device: {}. Writes happen on eviction only; journal and metadata writes are not modelled.",
            layout.spec.what
        )?;
    }
    if loaded.trace.about().side == Side::After {
        writeln!(out, "After-cache trace: the hits that matter to applications are no longer in it.")?;
    }
    out.flush().context("writing the table")
}
