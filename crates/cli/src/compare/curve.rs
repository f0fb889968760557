//! `compare --curve`: misses and writes against the size of the cache.

use super::{
    Args, memory_frames, objects, request,
    sample::{self, digits},
    schedule,
};
use crate::{html_page, load, logging::DETAIL, records, size, table, text, usage::Usage};
use flashsift_caches::{
    policy::{Kind, Selection},
    trace::{Tables, Trace, Unit, sample::SAMPLES},
};
use flashsift_events::page::PAGE_BYTES;
use flashsift_pages::writeback::Modes;
use flashsift_report::{
    Axis, Block, Chart, Figure, Ink, Line, Marks, Page, Scale, Section, Unit as AxisUnit,
};
use flashsift_study::{
    Policies, Request, ResultRow, Study,
    curve::{curve_frames, lru},
    figures,
    figures::{COUNT, FigureValue, NON_NEGATIVE, POSITIVE, ResultRecord, SHARE, TEXT, VERSION},
    record::{ACCESSES, FRAMES, MEMORY_BYTES, memory_bytes},
    sampled::{Estimate, SampledRow},
};
use serde::Serialize;
use std::io::Write;
use tracing::info;

/// Parses the number of points.
pub(super) fn points(text: &str) -> Result<usize, String> {
    let points = text.parse().ok().filter(|points| (2..=10_000).contains(points));
    points.ok_or_else(|| "a curve has 2 to 10000 points".to_owned())
}

/// A trace of more accesses is sampled for policies that have no exact curve.
const ACCESSES_MAX: u64 = 5_000_000;
/// The samples of all sizes together cost as much as this many cells of the whole trace.
const CELLS: f64 = 3.0;
/// The lines of a table. The points between are in the other outputs.
const LINES: usize = 20;

/// How a curve was found.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Method {
    /// One pass gives all sizes.
    Exact,
    /// Each size was simulated.
    Simulated,
    /// Each size was simulated on samples.
    Sampled,
}

/// One policy's curve.
struct Curve {
    policy: String,
    kind: Kind,
    method: Method,
    points: Vec<Point>,
}

struct Point {
    frames: u32,
    miss_ratio: Estimate,
    reads: Estimate,
    writes: Estimate,
    dirty_left: u64,
}

impl Point {
    /// Pages written, and those still dirty at the end, whose writes are due.
    fn due(&self) -> f64 {
        self.writes.value + self.dirty_left as f64
    }
}

fn exactly(value: f64) -> Estimate {
    Estimate { value, error: 0.0 }
}

pub(super) fn run(args: &Args, points: usize) -> anyhow::Result<()> {
    objects::suits_pages(&args.policy)?;
    if args.object_cache && !args.memory.is_empty() {
        let message = "--curve counts objects, not their bytes: give --frames, or no size";
        return Err(Usage(message.to_owned()).into());
    }
    let mut request = Request { writeback: Modes::default(), ..request(args)? };
    if args.policy.is_empty() {
        request.policies = Policies::parse(["lru"]).map_err(|error| Usage(error.to_string()))?;
    }
    let report = args.report.as_deref().map(html_page::Report::new).transpose()?;
    let name = args.input.name();
    let loaded = load::load(&args.input, args.object_cache, args.trace_memory, Tables::default())?;
    loaded.log_summary(&name);
    let trace = &loaded.trace;
    request.memory_limit_bytes = loaded.limit_bytes;
    request.frames.extend(memory_frames(args, trace.touched_pages()));
    if request.frames.is_empty() {
        request.frames = curve_frames(trace.touched_pages(), points);
    }
    request.frames.sort_unstable();
    request.frames.dedup();
    let curves = curves(args, &request, trace)?;
    if let Some(report) = report {
        report.write(&page(&name, args, &loaded, request.unit, &curves))?;
    }
    let mut out = records::Output::rows(args.json, args.csv);
    match args.json || args.csv {
        true => print_json(&mut out, &name, request.unit, trace, &curves)?,
        false => print_tables(&mut out, request.unit, &curves)?,
    }
    out.finish()
}

/// Returns the curves in the order of the policies.
fn curves(args: &Args, request: &Request, trace: &Trace) -> anyhow::Result<Vec<Curve>> {
    let others: Vec<_> =
        request.policies.iter().filter(|policy| policy.label() != "lru").cloned().collect();
    let totals = trace.totals();
    let accesses = totals.read_accesses + totals.write_accesses;
    let default_rate = CELLS / (SAMPLES * request.frames.len()) as f64;
    let rate = match args.sample {
        Some(rate) => Some(rate),
        None => (accesses > ACCESSES_MAX).then_some(default_rate.min(0.25)),
    };
    let mut others = match (rate, others.is_empty()) {
        (_, true) => Vec::new(),
        (None, false) => simulated(request, others, trace)?,
        (Some(rate), false) => {
            info!(
                target: DETAIL,
                "note: policies but lru are estimated from {SAMPLES} samples, each of {}% of the \
                 pages",
                size::significant(100.0 * rate)
            );
            let mut policies = Policies::default();
            others.into_iter().for_each(|policy| policies.add(policy));
            let request = Request { policies, ..request.clone() };
            sampled(args, &request, rate, trace)?
        }
    };
    if let Some(place) = request.policies.iter().position(|policy| policy.label() == "lru") {
        // Offline policies before it may have been left out.
        others.insert(place.min(others.len()), exact(request, trace, accesses));
    }
    Ok(others)
}

fn exact(request: &Request, trace: &Trace, accesses: u64) -> Curve {
    let points = lru(trace, &request.frames).into_iter().map(|point| Point {
        frames: point.frames,
        miss_ratio: exactly(missing(point.hits, accesses)),
        reads: exactly(point.reads as f64),
        writes: exactly(point.writes as f64),
        dirty_left: point.dirty_left,
    });
    let (policy, kind) = ("lru".to_owned(), Kind::Online);
    Curve { policy, kind, method: Method::Exact, points: points.collect() }
}

fn missing(hits: u64, accesses: u64) -> f64 {
    if accesses == 0 { 0.0 } else { (accesses - hits) as f64 / accesses as f64 }
}

/// Runs every size.
fn simulated(
    request: &Request,
    policies: Vec<Selection>,
    trace: &Trace,
) -> anyhow::Result<Vec<Curve>> {
    let mut chosen = Policies::default();
    policies.into_iter().for_each(|policy| chosen.add(policy));
    let request = Request { policies: chosen, ..request.clone() };
    let study = Study::new(trace, request).map_err(|error| Usage(error.to_string()))?;
    super::log_notes(study.notes().into_iter());
    let plan = study.plan()?;
    super::log_notes(plan.notes().into_iter());
    let cells = schedule::Schedule { plan: &plan, after_cache: None, places: None };
    let results = plan.results(cells.run()?);
    let curve = |rows: Vec<&ResultRow>| {
        let points = rows.iter().map(|row| Point {
            frames: row.frames,
            miss_ratio: exactly(missing(row.outcome.hits(), row.outcome.accesses())),
            reads: exactly(row.outcome.device.reads as f64),
            writes: exactly(row.outcome.device.writes as f64),
            dirty_left: row.outcome.dirty_left,
        });
        let (policy, kind) = (rows[0].policy.clone(), rows[0].kind);
        Curve { policy, kind, method: Method::Simulated, points: points.collect() }
    };
    Ok(results.by_policy().map(curve).collect())
}

/// Runs every size on samples.
fn sampled(args: &Args, request: &Request, rate: f64, trace: &Trace) -> anyhow::Result<Vec<Curve>> {
    let mut request = request.clone();
    request.policies = sample::suitable(args, &request)?;
    let limit_bytes = request.memory_limit_bytes.saturating_sub(trace.held_bytes() as u64);
    let sampled = sample::Sampled::read(args, request.unit, rate, limit_bytes)?;
    request.memory_limit_bytes = limit_bytes.saturating_sub(sampled.held_bytes());
    let rows = sample::rows(&request, request.writeback, rate, &sampled)?;
    let curve = |policy: usize| {
        let of_policy = rows.iter().skip(policy).step_by(request.policies.iter().count());
        let point = |row: &SampledRow| Point {
            frames: row.frames,
            miss_ratio: Estimate { value: 1.0 - row.hit_ratio.value, ..row.hit_ratio },
            reads: row.device_reads,
            writes: row.device_writes,
            dirty_left: row.dirty_left.value.round() as u64,
        };
        let (policy, kind) = (rows[policy].policy.clone(), rows[policy].kind);
        Curve { policy, kind, method: Method::Sampled, points: of_policy.map(point).collect() }
    };
    Ok((0..request.policies.iter().count()).map(curve).collect())
}

/// A point, as one line of JSON.
pub(crate) struct CurveLine<'a> {
    trace: &'a str,
    unit: Unit,
    accesses: u64,
    curve: &'a Curve,
    point: &'a Point,
}

figures! { "curve", "A point of a curve (--curve)": CurveLine<'_> {
    always schema: VERSION, "Version of the record.", |_| 1_u32;
    always trace: TEXT, "Name of the trace.", |c| c.trace;
    always policy: TEXT, "Policy with the parameters given.", |c| &*c.curve.policy;
    always method: r#""enum": ["exact", "simulated", "sampled"]"#, "exact: one pass gives all \
        sizes; simulated: this size was run; sampled: run on four samples of the pages.",
        |c| FigureValue::name(c.curve.method);
    always frames: POSITIVE, FRAMES, |c| c.point.frames;
    maybe memory_bytes: COUNT, MEMORY_BYTES, |c| memory_bytes(c.unit, c.point.frames);
    always accesses: COUNT, ACCESSES, |c| c.accesses;
    always miss_ratio: SHARE, "Misses / accesses.", |c| digits(c.point.miss_ratio.value);
    always miss_ratio_error: NON_NEGATIVE, "Half of its 95 % interval, from the spread of the \
        samples; 0 if the curve is no estimate.", |c| digits(c.point.miss_ratio.error);
    always device_reads: COUNT, "Pages read from storage.",
        |c| c.point.reads.value.round() as u64;
    always device_reads_error: NON_NEGATIVE, "Half of its 95 % interval.",
        |c| c.point.reads.error.round();
    always device_writes: COUNT, "Pages written to storage; only evictions write.",
        |c| c.point.writes.value.round() as u64;
    always device_writes_error: NON_NEGATIVE, "Half of its 95 % interval.",
        |c| c.point.writes.error.round();
    always dirty_left: COUNT, "Dirty pages in the cache at the end.", |c| c.point.dirty_left;
} }

fn print_json(
    out: &mut impl Write,
    trace: &str,
    unit: Unit,
    of: &Trace,
    curves: &[Curve],
) -> anyhow::Result<()> {
    let accesses = of.totals().read_accesses + of.totals().write_accesses;
    for (curve, point) in
        curves.iter().flat_map(|curve| curve.points.iter().map(move |point| (curve, point)))
    {
        let line = CurveLine { trace, unit, accesses, curve, point };
        serde_json::to_writer(&mut *out, &ResultRecord(line))?;
        writeln!(out)?;
    }
    Ok(())
}

/// Characters of a bar that stands for all accesses.
const BAR: f64 = 24.0;

fn print_tables(out: &mut impl Write, unit: Unit, curves: &[Curve]) -> anyhow::Result<()> {
    for curve in curves {
        let count = curve.points.len();
        let lines = count.min(LINES);
        let shown = (0..lines).map(|n| &curve.points[n * (count - 1) / (lines - 1).max(1)]);
        let sampled = curve.method == Method::Sampled;
        let counted = |estimate: Estimate| size::count(estimate.value.round() as u64);
        let row = |point: &Point| {
            let Point { frames, miss_ratio, reads, writes, .. } = point;
            let due = size::count(point.due().round() as u64);
            let bar = "█".repeat((miss_ratio.value * BAR).round() as usize);
            let mut row = vec![size::of_cache(*frames, unit), bar];
            row.push(format!("{:.2}", 100.0 * miss_ratio.value));
            row.extend(sampled.then(|| format!("{:.2}", 100.0 * miss_ratio.error)));
            row.extend([counted(*reads), due]);
            row.extend(sampled.then(|| size::count(writes.error.round() as u64)));
            row
        };
        let mut header = vec!["cache", "", "missed %"];
        header.extend(sampled.then_some("±"));
        header.extend(["storage\nreads", "written\n+ dirty"]);
        header.extend(sampled.then_some("±"));
        let header = header.into_iter().map(str::to_owned).collect();
        let rows: Vec<Vec<String>> = std::iter::once(header).chain(shown.map(row)).collect();
        let how = match curve.method {
            Method::Exact => "every size from one pass",
            Method::Simulated => "each size simulated",
            Method::Sampled => "estimated from samples",
        };
        let offline = if curve.kind == Kind::Online { "" } else { ", offline" };
        writeln!(
            out,
            "\n{}{offline}: {how}, {lines} of {}\n{}",
            curve.policy,
            size::counted(count as u64, "point"),
            table::plain(&rows, &[0, 1]).trim_end()
        )?;
    }
    let legend = "Reads and writes in pages; only evictions write, and what is dirty at the end \
                  is due. All points: --json, --csv or --report FILE.html.";
    let columns = text::columns().unwrap_or(120);
    write!(out, "\n{}", text::labelled("", 0, legend, columns))?;
    Ok(())
}

/// A page with two figures.
fn page(name: &str, args: &Args, loaded: &load::Loaded, unit: Unit, curves: &[Curve]) -> Page {
    let (title, axis, of_frame) = match unit {
        Unit::Page => ("memory for the cache", AxisUnit::Bytes, PAGE_BYTES as f64),
        Unit::Request => ("objects in memory", AxisUnit::Count, 1.0),
    };
    let chart = |y: Axis, value: &dyn Fn(&Point) -> Estimate| {
        let lines = curves.iter().enumerate().map(|(n, curve)| {
            let x = |point: &Point| f64::from(point.frames) * of_frame;
            let points = curve.points.iter().map(|point| (x(point), value(point).value));
            let mut line = Line::new(curve.policy.clone(), Ink::Series(n as u8), points.collect());
            if curve.method == Method::Sampled {
                let within = curve.points.iter().map(|point| {
                    let Estimate { value, error } = value(point);
                    ((value - error).max(0.0), value + error)
                });
                line.within = within.collect();
            }
            line
        });
        let x = Axis::new(title, axis).scale(Scale::Log2);
        Chart { title: String::new(), x, y, marks: Marks::Lines(lines.collect()) }
    };
    let misses = chart(Axis::new("accesses missed", AxisUnit::Share), &|point| point.miss_ratio);
    let written = |point: &Point| Estimate {
        value: point.due() * PAGE_BYTES as f64,
        error: point.writes.error * PAGE_BYTES as f64,
    };
    let writes = chart(Axis::new("written, or dirty at the end", AxisUnit::Bytes), &written);
    let mut figures = vec![Block::Figure(Figure::new("misses", "Misses by size", misses))];
    if loaded.trace.totals().write_accesses > 0 {
        figures.push(Block::Figure(Figure::new("writes", "Writes by size", writes)));
    }
    let words = "LRU's curve is exact, from one pass. Others are simulated at each size, or \
                 estimated from samples; bars then show the interval that holds the mean in 95 of \
                 100 cases. Only evictions write.";
    figures.push(Block::Words(words.to_owned()));
    let section = Section { id: "curve".to_owned(), title: "Curves".to_owned(), blocks: figures };
    Page {
        title: format!("{name}: misses and writes by size of the cache"),
        subtitle: html_page::line(loaded),
        lead: Vec::new(),
        sections: vec![section],
        folded: None,
        reproduce: html_page::reproduce(&args.input, &loaded.outcome),
    }
}
