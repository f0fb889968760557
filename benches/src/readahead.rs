//! `--readahead`: cost of read-ahead in the policy loop.

use crate::{Report, median, run_cell};
use anyhow::Context;
use flashsift_caches::{
    policy,
    trace::{Tables, Trace, TraceBuilder, Unit},
};
use flashsift_events::event::{About, Event};
use flashsift_pages::{
    readahead::{self, ReadAheadModel},
    system::{Cell, Outcome},
    writeback::Modes,
};
use flashsift_traces::{
    events::Sink,
    open::{self, Limits},
};
use std::path::Path;

/// A trace of a browser, one of programs that are launched, and one of programs that read whole
/// files.
const TRACES: [&str; 3] = ["browser", "days/launch-2", "days/photos-2"];
const POLICIES: [&str; 5] = ["lru", "linux2q", "mglru", "clock", "arc"];
const READAHEADS: [&str; 4] = ["off", "linux:128k", "linux:32k,folios=small", "paper:32"];
/// Sizes of the cache: the pages that the trace touches, divided by these.
const DIVISORS: [u32; 2] = [4, 64];
/// Page accesses of a sample at least: shorter traces run several times.
const SAMPLE_ACCESSES: u64 = 1_000_000;

pub(crate) fn report(report: &mut Report, rounds: usize) -> anyhow::Result<()> {
    report.line(
        "Required: with read-ahead, a cell takes at most 1.3 times the CPU time that it takes \
         without, for each page access.\n\nTimes are of whole cells: set-up, loop and layout, with \
         the trace's default write-back. Each round runs a policy without read-ahead and with each \
         one in turn; the table has medians over the rounds, and the least and greatest values. \
         The ratio is the median of the rounds' ratios.\n\nA cache that reads ahead does more work \
         for the same accesses: further pages enter it, and others leave. *Entered* counts the \
         pages that entered for 100 accesses; *ns an entry* is the whole time divided by them. \
         `off` runs the loop of read-ahead with a model that reads nothing ahead, so its cache \
         holds the same pages as without, and its ratio is the cost of that loop and of the \
         addresses that requests need. Another model's ratio contains in addition its decisions, \
         the work of policy and cache on further pages that enter, and their \
         requests to the device.\n",
    );
    for name in TRACES {
        of_trace(report, rounds, name)?;
    }
    Ok(())
}

fn of_trace(report: &mut Report, rounds: usize, name: &str) -> anyhow::Result<()> {
    let models = READAHEADS.map(readahead::parse);
    let models = models.into_iter().collect::<Result<Vec<_>, _>>()?;
    let models: Vec<_> = models.iter().map(ReadAheadModel::new).collect();
    let plain = load(name, 0)?;
    let mut traces = Vec::new();
    for model in &models {
        traces.push(load(name, model.reach_pages())?);
    }
    for divisor in DIVISORS {
        let frames = (plain.touched_pages() / divisor).max(1);
        of_size(report, rounds, (name, &plain), &models, &traces, frames)?;
    }
    Ok(())
}

fn of_size(
    report: &mut Report,
    rounds: usize,
    (name, plain): (&str, &Trace),
    models: &[ReadAheadModel],
    traces: &[Trace],
    frames: u32,
) -> anyhow::Result<()> {
    report.line(&format!(
        "## {name}, {frames} frames\n\n{} page accesses, {} pages, write-back {}.\n\n| policy | \
         read-ahead | ns an access | least–greatest | ratio | least–greatest | entered | ns an \
         entry |\n|---|---|---:|---:|---:|---:|---:|---:|",
        plain.totals().read_accesses + plain.totals().write_accesses,
        plain.touched_pages(),
        Modes::default_for(plain).modes.name(),
    ));
    for policy in POLICIES {
        let policy = policy::Selection::parse(policy)?;
        let mut samples = vec![Samples::default(); 1 + models.len()];
        for _ in 0..rounds {
            samples[0].measure(plain, &policy, frames, None);
            let without_ns = samples[0].ns.last().copied().context("a sample")?;
            for ((of, model), trace) in samples[1..].iter_mut().zip(models).zip(traces) {
                of.measure(trace, &policy, frames, Some(*model));
                of.ratios.extend(of.ns.last().map(|ns| ns / without_ns));
            }
        }
        let names = std::iter::once("–").chain(READAHEADS);
        for (samples, readahead) in samples.iter_mut().zip(names) {
            report.line(&samples.row(policy.spec.name, readahead));
        }
    }
    report.line("");
    Ok(())
}

/// The rounds of one cell.
#[derive(Clone, Default)]
struct Samples {
    /// CPU time of each page access.
    ns: Vec<f64>,
    ratios: Vec<f64>,
    outcome: Outcome,
}

impl Samples {
    fn measure(
        &mut self,
        trace: &Trace,
        policy: &policy::Selection,
        frames: u32,
        readahead: Option<ReadAheadModel>,
    ) {
        let accesses = trace.totals().read_accesses + trace.totals().write_accesses;
        let times = SAMPLE_ACCESSES.div_ceil(accesses.max(1));
        let writeback = Modes::default_for(trace).modes;
        let mut spent_s = 0.0;
        for _ in 0..times {
            let (s, outcome) = run_cell(trace, policy, |cell| {
                let cell = Cell { frames, writeback, readahead: readahead.map(Into::into), ..cell };
                cell.run(trace, None, None)
            });
            spent_s += s;
            self.outcome = outcome;
        }
        self.ns.push(spent_s * 1e9 / (times * accesses) as f64);
    }

    fn row(&mut self, policy: &str, readahead: &str) -> String {
        let accesses = self.outcome.accesses() as f64;
        let misses = self.outcome.accesses() - self.outcome.hits();
        let entered = (misses + self.outcome.readahead.read) as f64;
        let ns = median(&mut self.ns);
        let (ratio, ratio_spread) = match self.ratios.is_empty() {
            true => ("1".to_owned(), "–".to_owned()),
            false => (format!("{:.2}", median(&mut self.ratios)), spread(&self.ratios, 2)),
        };
        format!(
            "| {policy} | {readahead} | {ns:.1} | {} | {ratio} | {ratio_spread} | {:.1} | {:.0} |",
            spread(&self.ns, 1),
            100.0 * entered / accesses,
            ns * accesses / entered,
        )
    }
}

/// The least and the greatest of sorted values.
fn spread(sorted: &[f64], digits: usize) -> String {
    match sorted {
        [first, .., last] => format!("{first:.digits$}–{last:.digits$}"),
        _ => "–".to_owned(),
    }
}

/// Reads a trace of testdata, with ranks for pages that read-ahead can reach.
fn load(name: &str, reads_ahead_pages: u32) -> anyhow::Result<Trace> {
    let path = format!("testdata/{name}.parquet");
    let mut dense = Dense { builder: None, reads_ahead_pages };
    open::read(Path::new(&path), None, &mut dense, &Limits::default())?;
    Ok(dense.builder.context("a trace begins with what it is about")?.finish()?)
}

struct Dense {
    builder: Option<TraceBuilder>,
    reads_ahead_pages: u32,
}

impl Sink for Dense {
    fn about(&mut self, about: About) -> Result<(), flashsift_traces::Error> {
        let tables = Tables { reads_ahead_pages: self.reads_ahead_pages, ..Tables::default() };
        self.builder = Some(TraceBuilder::new(about, Unit::Page, u64::MAX).with_tables(tables));
        Ok(())
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), flashsift_traces::Error> {
        let builder = self.builder.as_mut().expect("a reader says what its trace is about first");
        builder.extend(events).map_err(|error| flashsift_traces::Error::Sink(error.to_string()))
    }
}
