//! `flashsift synth`: seeded synthetic traces for tests and benchmarks.

use crate::{import, load, logging::SUMMARY, size, usage::Usage};
use anyhow::Context;
use clap::ValueEnum;
use flashsift_caches::{
    synth::{Pattern, Recipe},
    trace::{TraceBuilder, Unit},
};
use flashsift_events::{
    event::{Action, Event},
    page::NEVER,
};
use flashsift_traces::{
    events::{Sink, Skipped},
    format::oracle_general,
    replace::Replace,
    store,
};
use std::{
    io::{BufWriter, Write},
    path::PathBuf,
};
use tracing::info;

/// Write a synthetic trace; the same seed gives the same trace
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flashsift synth zipf --requests 20M --pages 1M \\
      --as oracle-general -o zipf.oracleGeneral
  flashsift synth mixed --requests 1M --pages 100k --writes 0.3 --seed 7 \\
      -o mixed.parquet
  flashsift synth loop --requests 1M --pages 50k --lap 10k -o loop.parquet")]
pub(crate) struct Args {
    /// Choice of pages
    #[arg(ignore_case = true)]
    kind: PatternArg,

    /// Path of the trace to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Number of requests, each of one page
    #[arg(long, value_name = "N", default_value = "1M", value_parser = size::parse_count)]
    requests: u64,

    /// Largest number of different pages (or objects)
    #[arg(long, value_name = "N", default_value = "100k", value_parser = size::parse_count)]
    pages: u64,

    /// zipf: skew; 0 is uniform
    #[arg(long, value_name = "A", default_value_t = 1.0)]
    alpha: f64,

    /// loop: pages in a lap; default: a tenth of all
    #[arg(long, value_name = "N", value_parser = size::parse_count)]
    lap: Option<u64>,

    /// Probability that a request is a write; default 0.3 for mixed, else 0
    #[arg(long, value_name = "P")]
    writes: Option<f64>,

    /// Requests per second
    #[arg(long, value_name = "N", default_value_t = 1000.0)]
    rate: f64,

    /// Seed of all random choices
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Format to write
    #[arg(long = "as", value_name = "FORMAT", default_value = "parquet", ignore_case = true)]
    format: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum PatternArg {
    /// Popular pages get more requests: the k-th with probability ∝ 1/k^alpha
    Zipf,
    /// One page after the other, repeatedly
    Sequential,
    /// Laps over a part that slowly moves on
    Loop,
    /// Like an application: Zipf(0.9) with sequential runs, reads and writes
    Mixed,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Format {
    /// Store of flashsift
    Parquet,
    /// Format of libCacheSim, with the next access of each object; reads only
    OracleGeneral,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let objects = args.format == Format::OracleGeneral;
    let mixed = matches!(args.kind, PatternArg::Mixed) && !objects;
    let recipe = Recipe {
        requests: args.requests,
        pages: args.pages,
        pattern: match args.kind {
            PatternArg::Zipf => Pattern::Zipf { alpha: args.alpha },
            PatternArg::Sequential => Pattern::Sequential,
            PatternArg::Loop => {
                Pattern::Loop { lap_pages: args.lap.unwrap_or_else(|| args.pages.div_ceil(10)) }
            }
            PatternArg::Mixed => Pattern::Mixed,
        },
        write_share: args.writes.unwrap_or(if mixed { 0.3 } else { 0.0 }),
        rate: args.rate,
        seed: args.seed,
        objects,
    };
    if args.format == Format::Parquet {
        import::check_parquet(&args.output)?;
    }
    let events = recipe.events().map_err(|error| Usage(error.to_string()))?;
    let bytes = match args.format {
        Format::Parquet => parquet(args, recipe, events)?,
        Format::OracleGeneral => oracle_general(args, recipe, events)?,
    };
    info!(
        target: SUMMARY,
        "{}: {}, {}, seed {}",
        args.output.display(),
        size::counted(args.requests, "request"),
        size::bytes(bytes),
        args.seed
    );
    Ok(())
}

const BATCH: usize = 4096;

/// Calls `each` with batches of events, and shows the progress.
fn batches(
    args: &Args,
    mut events: impl Iterator<Item = Event<'static>>,
    mut each: impl FnMut(&[Event<'static>]) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let bar = load::progress("requests", "{spinner} {msg} {bar:30} {human_pos}/{human_len}");
    bar.set_length(args.requests);
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        batch.clear();
        batch.extend(events.by_ref().take(BATCH));
        if batch.is_empty() {
            bar.finish_and_clear();
            return Ok(());
        }
        each(&batch)?;
        bar.inc(batch.len() as u64);
    }
}

fn parquet(
    args: &Args,
    recipe: Recipe,
    events: impl Iterator<Item = Event<'static>>,
) -> anyhow::Result<u64> {
    let mut writer = store::Writer::create(&args.output, "synth")?;
    writer.about(recipe.about())?;
    batches(args, events, |batch| Ok(writer.events(batch)?))?;
    Ok(writer.finish(&Skipped::default())?)
}

/// Passes over the events twice: once to find the next access of each object, once to write.
fn oracle_general(
    args: &Args,
    recipe: Recipe,
    events: impl Iterator<Item = Event<'static>>,
) -> anyhow::Result<u64> {
    let mut builder = TraceBuilder::new(recipe.about(), Unit::Request, u64::MAX);
    batches(args, events, |batch| Ok(builder.extend(batch)?))?;
    let future = builder.finish()?.future()?;

    let at = || args.output.display().to_string();
    let mut replace = Replace::new(&args.output).with_context(at)?;
    let mut out = BufWriter::with_capacity(1 << 20, &mut replace);
    let mut n = 0;
    batches(args, recipe.events()?, |batch| {
        for event in batch {
            let Action::Read { file, len, .. } = event.action else {
                unreachable!("an object trace has only reads")
            };
            let next = match future.next(n) {
                NEVER => -1,
                next => i64::from(next) + 1,
            };
            let time_s = u32::try_from(event.at_us / 1_000_000)
                .context("the trace lasts more than 2^32 seconds")?;
            out.write_all(&oracle_general::encode(time_s, file.0, len as u32, next))
                .with_context(at)?;
            n += 1;
        }
        Ok(())
    })?;
    out.flush().with_context(at)?;
    drop(out);
    let bytes = replace.commit().with_context(at)?;
    Ok(bytes)
}
