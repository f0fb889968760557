//! `compare --sample`: estimates from samples of the pages, with their error.

use super::{Args, log_notes, modes, request, schedule, size};
use crate::{load, records, table, text, usage::Usage};
use flashsift_caches::{
    policy::Kind,
    trace::{
        Trace, TraceBuilder, Unit,
        sample::{RATE_MAX, SAMPLES, Sampled as SampledEvents, Sampler},
    },
};
use flashsift_events::event::{About, Event};
use flashsift_pages::writeback::Modes;
use flashsift_study::{
    Policies, Request, Study, default_frames, figures,
    figures::{COUNT, NON_NEGATIVE, POSITIVE, ResultRecord, SHARE, TEXT, VERSION},
    record::{ACCESSES, CPU, FRAMES, MEMORY_BYTES, memory_bytes, rounded_ns},
    sampled::{Estimate, FRAMES_MIN, SampledRow, sampled_frames, sampled_modes, suits_sample},
};
use flashsift_traces::{Error, events::Sink};
use std::io::Write;
use tracing::{info, warn};

use crate::logging::DETAIL;

/// Parses the share of the pages.
pub(super) fn rate(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').map(str::trim).and_then(|text| text.parse::<f64>().ok());
    match percent {
        Some(percent) if percent > 0.0 && percent / 100.0 <= RATE_MAX => Ok(percent / 100.0),
        _ => Err(format!(
            "a share of the pages above 0% and at most {}%, such as 1%, for {SAMPLES} samples",
            100.0 * RATE_MAX
        )),
    }
}

/// Makes each sample a trace of its own while the trace is read once.
struct Samples {
    unit: Unit,
    limit_bytes: u64,
    sampler: Sampler,
    builders: Vec<TraceBuilder>,
    events: SampledEvents,
}

impl Sink for Samples {
    fn about(&mut self, about: About) -> Result<(), Error> {
        self.sampler.about(&about);
        let limit_bytes = self.limit_bytes / SAMPLES as u64;
        let builder = |_| TraceBuilder::new(about, self.unit, limit_bytes);
        self.builders = (0..SAMPLES).map(builder).collect();
        Ok(())
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        self.events.iter_mut().for_each(Vec::clear);
        events.iter().for_each(|event| self.sampler.take(event, &mut self.events));
        for (builder, events) in self.builders.iter_mut().zip(&self.events) {
            builder.extend(events).map_err(|error| Error::Sink(error.to_string()))?;
        }
        Ok(())
    }
}

/// The samples of a trace, and the page accesses of all of it.
pub(super) struct Sampled {
    traces: Vec<Trace>,
    read_accesses: u64,
    write_accesses: u64,
}

impl Sampled {
    /// Reads the trace, and keeps four samples of it.
    pub(super) fn read(
        args: &Args,
        unit: Unit,
        rate: f64,
        limit_bytes: u64,
    ) -> anyhow::Result<Self> {
        let mut sink = Samples {
            unit,
            limit_bytes,
            sampler: Sampler::new(unit, rate),
            builders: Vec::new(),
            events: SampledEvents::default(),
        };
        let outcome = args.input.read(&mut sink)?;
        load::log_left_out(&outcome);
        let (read_accesses, write_accesses) = sink.sampler.accesses();
        let traces = sink.builders.into_iter().map(TraceBuilder::finish);
        let traces = traces.collect::<Result<Vec<_>, _>>()?;
        if traces.iter().any(|trace| trace.touched_pages() == 0) {
            anyhow::bail!("--sample: a sample of this trace has no page: take a larger share");
        }
        Ok(Self { traces, read_accesses, write_accesses })
    }

    /// Returns the bytes of the samples in memory.
    pub(super) fn held_bytes(&self) -> u64 {
        self.traces.iter().map(|trace| trace.held_bytes() as u64).sum()
    }

    /// Estimates the size of all pages of the trace.
    fn touched_pages(&self, rate: f64) -> u32 {
        let pages: u64 = self.traces.iter().map(|trace| u64::from(trace.touched_pages())).sum();
        u32::try_from((pages as f64 / (rate * SAMPLES as f64)) as u64).unwrap_or(u32::MAX)
    }
}

pub(super) fn run(args: &Args, rate: f64) -> anyhow::Result<()> {
    let mut request = request(args)?;
    request.policies = suitable(args, &request)?;
    let name = args.input.name();
    let limit_bytes = args.trace_memory.unwrap_or_else(load::default_limit_bytes);
    let sampled = Sampled::read(args, request.unit, rate, limit_bytes)?;
    let accesses = sampled.read_accesses + sampled.write_accesses;
    request.frames.extend(super::memory_frames(args, sampled.touched_pages(rate)));
    if request.frames.is_empty() {
        request.frames = default_frames(sampled.touched_pages(rate));
    }
    request.frames.sort_unstable();
    request.frames.dedup();
    request.memory_limit_bytes = limit_bytes.saturating_sub(sampled.held_bytes());
    let mut lines = Vec::new();
    for modes in modes(args, &sampled.traces[0])? {
        let rows = rows(&request, modes, rate, &sampled)?;
        lines.push((modes, rows));
    }
    if let Some(small) = request.frames.iter().find(|n| sampled_frames(**n, rate) < FRAMES_MIN) {
        warn!(
            "--sample: in a sample, a cache of {} has less than {FRAMES_MIN} frames: single pages \
             decide, and the error may be larger than shown",
            size::of_cache(*small, request.unit)
        );
    }
    let mut out = records::Output::rows(args.json, false);
    for (modes, rows) in &lines {
        match args.json {
            true => print_json(&mut out, &name, &request, *modes, rate, &sampled, rows)?,
            false => print_tables(&mut out, &request, *modes, lines.len() > 1, rows)?,
        }
    }
    if !args.json {
        let legend = format!(
            "Estimates from {SAMPLES} disjoint samples, each of {}% of the pages. Behind ± is half \
             of the interval that holds the mean in 95 of 100 cases, from the spread of the \
             samples. The trace has {}.",
            100.0 * rate,
            size::counted(accesses, "page access"),
        );
        let columns = text::columns().unwrap_or(120);
        write!(out, "\n{}", text::labelled("", 0, &legend, columns))?;
    }
    out.finish()
}

/// Returns the policies that can be sampled. One that cannot is an error if it was named.
pub(super) fn suitable(args: &Args, request: &Request) -> anyhow::Result<Policies> {
    let named = text::joined(&args.policy);
    let mut policies = Policies::default();
    let mut left_out = Vec::new();
    for policy in request.policies.iter() {
        match suits_sample(policy) {
            Ok(()) => policies.add(policy.clone()),
            Err(_) if !named.contains(&policy.label()) => left_out.push(policy.label()),
            Err(error) => return Err(Usage(error.to_string()).into()),
        }
    }
    if !left_out.is_empty() {
        info!(
            target: DETAIL,
            "note: left out, because they order pages by place: {}",
            left_out.join(", ")
        );
    }
    Ok(policies)
}

/// Runs every cell on every sample.
pub(super) fn rows(
    request: &Request,
    modes: Modes,
    rate: f64,
    sampled: &Sampled,
) -> anyhow::Result<Vec<SampledRow>> {
    let frames: Vec<u32> = request.frames.iter().map(|n| sampled_frames(*n, rate)).collect();
    let modes = sampled_modes(modes, rate).map_err(|error| Usage(error.to_string()))?;
    // Small sizes may coincide in a sample: each is a study of its own.
    let mut all = Vec::new();
    for (frames, own) in request.frames.iter().zip(frames) {
        let studies = sampled.traces.iter().map(|trace| {
            let request = Request { frames: vec![own], writeback: modes, ..request.clone() };
            Study::new(trace, request).map_err(|error| Usage(error.to_string()))
        });
        let studies = studies.collect::<Result<Vec<_>, _>>()?;
        if all.is_empty() {
            log_notes(studies.iter().flat_map(Study::notes));
        }
        let mut results = Vec::new();
        for study in &studies {
            let plan = study.plan()?;
            let cells = schedule::Schedule { plan: &plan, after_cache: None, places: None };
            results.push(plan.results(cells.run()?));
        }
        let by_sample: Vec<Vec<_>> =
            results.iter().map(|results| results.rows().collect()).collect();
        let accesses = sampled.read_accesses + sampled.write_accesses;
        let policies = 0..by_sample.first().map_or(0, Vec::len);
        all.extend(policies.map(|policy| {
            let rows = std::array::from_fn(|sample| by_sample[sample][policy]);
            SampledRow::new(*frames, rate, accesses, rows)
        }));
    }
    Ok(all)
}

/// An estimate at a size, as one line of JSON.
pub(crate) struct SampledLine<'a> {
    trace: &'a str,
    writeback: &'a str,
    unit: Unit,
    rate: f64,
    of: &'a Sampled,
    row: &'a SampledRow,
}

impl SampledLine<'_> {
    fn accesses(&self) -> u64 {
        self.of.read_accesses + self.of.write_accesses
    }
}

/// A share or ratio with six digits.
pub(super) fn digits(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

figures! { "sampled", "A policy at a size, estimated (--sample)": SampledLine<'_> {
    always schema: VERSION, "Version of the record.", |_| 1_u32;
    always trace: TEXT, "Name of the trace.", |s| s.trace;
    always policy: TEXT, "Policy with the parameters given; behind it, the system or read-ahead if \
        several are compared.", |s| &*s.row.policy;
    always system: TEXT, "System with the parameters given.", |_| "storage";
    always frames: POSITIVE, FRAMES, |s| s.row.frames;
    maybe memory_bytes: COUNT, MEMORY_BYTES, |s| memory_bytes(s.unit, s.row.frames);
    always writeback: TEXT, "Modes of write-back.", |s| s.writeback;
    always sample: r#""type": "number", "exclusiveMinimum": 0, "maximum": 0.25"#,
        "Share of the pages in each of four disjoint samples.", |s| s.rate;
    always accesses: COUNT, ACCESSES, |s| s.accesses();
    always read_accesses: COUNT, "Page reads among them.", |s| s.of.read_accesses;
    always write_accesses: COUNT, "Page writes among them.", |s| s.of.write_accesses;
    always hits: COUNT, "Estimate of the hits.",
        |s| (s.row.hit_ratio.value * s.accesses() as f64).round() as u64;
    always hit_ratio: SHARE, "Estimate of hits / accesses.", |s| digits(s.row.hit_ratio.value);
    always hit_ratio_error: NON_NEGATIVE,
        "Half of its 95 % interval, from the spread of the samples.",
        |s| digits(s.row.hit_ratio.error);
    always device_reads: COUNT, "Estimate of the pages read from storage.",
        |s| s.row.device_reads.value.round() as u64;
    always device_reads_error: NON_NEGATIVE, "Half of its 95 % interval.",
        |s| s.row.device_reads.error.round();
    always device_writes: COUNT, "Estimate of the pages written to storage.",
        |s| s.row.device_writes.value.round() as u64;
    always device_writes_error: NON_NEGATIVE, "Half of its 95 % interval.",
        |s| s.row.device_writes.error.round();
    always dirty_left: COUNT, "Estimate of the pages still dirty at the end.",
        |s| s.row.dirty_left.value.round() as u64;
    always cpu_ns_per_access: NON_NEGATIVE, CPU, |s| rounded_ns(s.row.cpu_ns_per_access);
} }

fn print_json(
    out: &mut impl Write,
    trace: &str,
    request: &Request,
    modes: Modes,
    rate: f64,
    of: &Sampled,
    rows: &[SampledRow],
) -> anyhow::Result<()> {
    let (writeback, unit) = (&*modes.to_string(), request.unit);
    for row in rows {
        let line = SampledLine { trace, writeback, unit, rate, of, row };
        serde_json::to_writer(&mut *out, &ResultRecord(line))?;
        writeln!(out)?;
    }
    Ok(())
}

fn print_tables(
    out: &mut impl Write,
    request: &Request,
    modes: Modes,
    several: bool,
    rows: &[SampledRow],
) -> anyhow::Result<()> {
    let mode = if several { format!(", --writeback {modes}") } else { String::new() };
    for of_size in rows.chunk_by(|one, other| one.frames == other.frames) {
        let header = ["policy", "hits %", "±", "storage\nreads", "±", "storage\nwrites", "±"];
        let counts = |estimate: Estimate| {
            [estimate.value, estimate.error].map(|number| size::count(number.round() as u64))
        };
        let row = |row: &SampledRow| {
            let offline = if row.kind == Kind::Online { "" } else { " (offline)" };
            let hits = [row.hit_ratio.value, row.hit_ratio.error];
            [format!("{}{offline}", row.policy)]
                .into_iter()
                .chain(hits.map(|share| format!("{:.2}", 100.0 * share)))
                .chain(counts(row.device_reads))
                .chain(counts(row.device_writes))
                .collect::<Vec<_>>()
        };
        let header = header.map(str::to_owned).to_vec();
        let table: Vec<Vec<String>> =
            std::iter::once(header).chain(of_size.iter().map(row)).collect();
        let label = size::of_cache(of_size[0].frames, request.unit);
        writeln!(out, "\ncache of {label}{mode}\n{}", table::plain(&table, &[0]).trim_end())?;
    }
    Ok(())
}
