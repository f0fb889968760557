//! `compare --object-cache` by bytes: objects with sizes, requests and bytes that miss.

use super::{Args, sample::digits, schedule};
use crate::{load, logging::DETAIL, records, size, size::CacheSize, table, text, usage::Usage};
use flashsift_caches::{
    objects::{self, ObjectCell, ObjectOutcome, admission},
    policy::{self, Kind},
    trace::Tables,
};
use flashsift_events::params;
use flashsift_study::{
    Wave, figures,
    figures::{COUNT, NON_NEGATIVE, POSITIVE, ResultRecord, SHARE, TEXT, VERSION},
    record::rounded_ns,
};
use std::io::Write;
use tracing::info;

/// A policy with its admission.
struct Chosen {
    policy: policy::Selection,
    admission: Option<admission::Selection>,
    label: String,
}

/// Cache sizes where none is given, as shares of the working set.
const SHARES: [f64; 5] = [0.01, 0.02, 0.05, 0.1, 0.2];

/// A parameter of any policy in a cache of objects.
const ADMIT: &str = "admit=";

/// Returns the part of a policy's text that names an admission.
fn admission_in(text: &str) -> Option<&str> {
    let params = text.split_once(':')?.1;
    params.split(',').find_map(|param| param.trim().strip_prefix(ADMIT))
}

/// Refuses an admission where pages are compared.
pub(super) fn suits_pages(policies: &[String]) -> Result<(), Usage> {
    match text::joined(policies).iter().find(|text| admission_in(text).is_some()) {
        None => Ok(()),
        Some(text) => Err(Usage(format!(
            "`{text}`: an admission turns objects away, and a page has to be in memory while it is \
             used: give --object-cache with --memory"
        ))),
    }
}

/// Reads a policy, and its admission: `lru:admit=prob:p=0.1`. An admission's only parameter may go
/// without its name: `admit=prob:0.1`.
fn parse(text: &str) -> Result<Chosen, params::Error> {
    let admission = admission_in(text)
        .map(|admission| {
            let named = admission::Selection::parse(admission.split(':').next().unwrap_or(""))?;
            match (admission.split_once(':'), named.spec.params) {
                (Some((name, value)), [param]) if !value.contains('=') => {
                    admission::Selection::parse(&format!("{name}:{}={value}", param.name))
                }
                _ => admission::Selection::parse(admission),
            }
        })
        .transpose()?;
    let without = match text.split_once(':') {
        None => text.to_owned(),
        Some((name, given)) => {
            let own: Vec<_> =
                given.split(',').filter(|param| !param.trim().starts_with(ADMIT)).collect();
            format!("{name}:{}", own.join(","))
        }
    };
    let policy = policy::Selection::parse(&without)?;
    let mut label = policy.label();
    if let Some(admission) = &admission {
        let separator = if label.contains(':') { ',' } else { ':' };
        label.push_str(&format!("{separator}{ADMIT}{}", admission.label()));
    }
    Ok(Chosen { policy, admission, label })
}

/// Returns the policies asked for, each once; every one that orders objects, without any.
fn chosen(texts: &[String]) -> anyhow::Result<Vec<Chosen>> {
    let all = || policy::ALL.iter().filter(|spec| spec.takes_objects());
    let mut found: Vec<Chosen> = Vec::new();
    let texts = match texts {
        [] => vec!["all".to_owned()],
        texts => text::joined(texts),
    };
    for text in texts {
        let (name, params) = text.split_once(':').unwrap_or((&text, ""));
        let texts = match name.eq_ignore_ascii_case("all") {
            true if params.is_empty() => all().map(|spec| spec.name.to_owned()).collect(),
            true => all().map(|spec| format!("{}:{params}", spec.name)).collect(),
            false => vec![text.clone()],
        };
        for text in texts {
            let one = parse(&text).map_err(|error| Usage(error.to_string()))?;
            if !one.policy.spec.takes_objects() {
                let known: Vec<_> = all().map(|spec| spec.name).collect();
                return Err(Usage(format!(
                    "`{}` counts pages, not bytes of objects; with --object-cache and --memory \
                     there are: {}",
                    one.policy.spec.name,
                    known.join(", ")
                ))
                .into());
            }
            if found.iter().all(|known| known.label != one.label) {
                found.push(one);
            }
        }
    }
    Ok(found)
}

/// Refuses what a cache of objects does not have.
fn suits(args: &Args) -> Result<(), Usage> {
    let given = [
        (args.after_cache.is_some(), "--after-cache"),
        (args.report.is_some(), "--report"),
        (args.verdict, "--verdict"),
        (args.sample.is_some(), "--sample"),
        (args.drain, "--drain"),
        (!args.writeback.is_empty(), "--writeback"),
        (args.layout.is_some(), "--layout"),
    ];
    match given.iter().find(|(given, _)| *given) {
        None => Ok(()),
        Some((_, option)) => Err(Usage(format!(
            "{option} is for caches of pages: a cache of objects with sizes reads and writes \
             nothing. Leave it out, or give --frames in place of --memory: each object then counts \
             as one page"
        ))),
    }
}

/// Returns the cache sizes in bytes, ascending, each once.
fn sizes(args: &Args, working_set_bytes: u64) -> Vec<u64> {
    let share = |share: f64| ((working_set_bytes as f64 * share) as u64).max(1);
    let mut sizes: Vec<u64> = match &args.memory[..] {
        [] => SHARES.map(share).to_vec(),
        given => given
            .iter()
            .map(|size| match size {
                CacheSize::Bytes(bytes) => *bytes,
                CacheSize::Share(part) => share(*part),
            })
            .collect(),
    };
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// The result of one policy at one size.
struct Row<'a> {
    chosen: &'a Chosen,
    bytes: u64,
    outcome: ObjectOutcome,
    cpu_ns_per_request: f64,
}

pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    suits(args)?;
    let policies = chosen(&args.policy)?;
    let name = args.input.name();
    let tables = Tables { sizes: true, ..Tables::default() };
    let loaded = load::load(&args.input, true, args.trace_memory, tables)?;
    loaded.log_summary(&name);
    let trace = &loaded.trace;
    let working_set_bytes = objects::working_set_bytes(trace);
    let objects = size::counted(trace.pages().into(), "different object");
    info!(target: DETAIL, "note: {objects}, together {}", size::bytes(working_set_bytes));
    let sizes = sizes(args, working_set_bytes);
    let is_offline = |chosen: &Chosen| chosen.policy.spec.kind.is_offline();
    let future = policies.iter().any(is_offline).then(|| trace.future()).transpose()?;
    let cells: Vec<(u64, &Chosen)> = sizes
        .iter()
        .flat_map(|bytes| policies.iter().map(move |policy| (*bytes, policy)))
        .collect();
    let waves = waves(args, &loaded, &cells)?;
    let bar = load::progress("cells", "{spinner} {msg} {bar:30} {pos}/{len}");
    bar.set_length(cells.len() as u64);
    let rows = schedule::in_waves(&waves, |n| {
        let (bytes, chosen) = cells[n];
        let cell =
            ObjectCell { policy: &chosen.policy, bytes, admission: chosen.admission.as_ref() };
        let before_ns = schedule::cpu_ns();
        let outcome = cell.run(trace, future.as_ref());
        let spent_ns = schedule::cpu_ns().saturating_sub(before_ns);
        bar.inc(1);
        let cpu_ns_per_request = spent_ns as f64 / outcome.requests.max(1) as f64;
        Ok(Row { chosen, bytes, outcome, cpu_ns_per_request })
    });
    bar.finish_and_clear();
    let rows = rows?;
    let mut out = records::Output::rows(args.json, args.csv);
    match args.json || args.csv {
        true => print_json(&mut out, &name, working_set_bytes, &rows)?,
        false => print_tables(&mut out, working_set_bytes, &rows)?,
    }
    out.finish()
}

/// Groups the cells so that those that run at once fit into memory.
fn waves(
    args: &Args,
    loaded: &load::Loaded,
    cells: &[(u64, &Chosen)],
) -> anyhow::Result<Vec<Wave>> {
    let cell_bytes =
        |(_, chosen): &(u64, &Chosen)| objects::cell_bytes(&loaded.trace, chosen.policy.spec);
    let largest = cells.iter().map(cell_bytes).max().unwrap_or(0);
    let held = loaded.trace.held_bytes() as u64;
    let free = loaded.limit_bytes.saturating_sub(held);
    anyhow::ensure!(
        largest <= free,
        "the trace takes {} and a cell {}, of at most {}: shorten the trace, or raise \
         --trace-memory",
        size::bytes(held),
        size::bytes(largest),
        size::bytes(loaded.limit_bytes)
    );
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = args.threads.map_or(cores, usize::from);
    let at_once = usize::try_from(free / largest.max(1)).unwrap_or(workers).clamp(1, workers);
    Ok(vec![Wave { cells: 0..cells.len(), at_once }])
}

/// A policy at a size, as one line of JSON.
pub(crate) struct ObjectsLine<'a> {
    trace: &'a str,
    objects_bytes: u64,
    row: &'a Row<'a>,
}

figures! {
"objects", "A policy at a size, over objects with sizes (--object-cache)": ObjectsLine<'_> {
    always schema: VERSION, "Version of the record.", |_| 1_u32;
    always trace: TEXT, "Name of the trace.", |o| o.trace;
    always policy: TEXT, "Policy with the parameters given, and its admission.",
        |o| &*o.row.chosen.label;
    always memory_bytes: POSITIVE, "Capacity of the cache in bytes.", |o| o.row.bytes;
    always objects_bytes: COUNT,
        "Bytes of all different objects, each as large as at its first request.",
        |o| o.objects_bytes;
    always requests: COUNT, "Requests for objects.", |o| o.row.outcome.requests;
    always hits: COUNT, "Requests that hit.", |o| o.row.outcome.hits;
    always miss_ratio: SHARE, "Misses / requests.", |o| digits(o.row.outcome.miss_ratio());
    always requested_bytes: COUNT, "Bytes of all requests.", |o| o.row.outcome.bytes;
    always hit_bytes: COUNT, "Bytes of the requests that hit.", |o| o.row.outcome.hit_bytes;
    always byte_miss_ratio: SHARE, "Bytes that missed / bytes requested.",
        |o| digits(o.row.outcome.byte_miss_ratio());
    always too_large: COUNT, "Requests for objects that do not fit into the cache, or into the \
        part of it that they would pass.", |o| o.row.outcome.too_large;
    always turned_away: COUNT, "Misses that the admission turned away.",
        |o| o.row.outcome.turned_away;
    always entered_bytes: COUNT, "Bytes of objects that entered: what a cache on flash writes.",
        |o| o.row.outcome.entered_bytes;
    always evictions: COUNT, "Objects that left for others.", |o| o.row.outcome.evictions;
    always expired: COUNT, "Requests that found their object expired; they missed.",
        |o| o.row.outcome.expired;
    always cpu_ns_per_request: NON_NEGATIVE,
        "CPU time of the simulation by request; not a property of the policy elsewhere.",
        |o| rounded_ns(o.row.cpu_ns_per_request);
} }

fn print_json(
    out: &mut impl Write,
    trace: &str,
    objects_bytes: u64,
    rows: &[Row<'_>],
) -> anyhow::Result<()> {
    for row in rows {
        serde_json::to_writer(&mut *out, &ResultRecord(ObjectsLine { trace, objects_bytes, row }))?;
        writeln!(out)?;
    }
    Ok(())
}

fn print_tables(out: &mut impl Write, objects_bytes: u64, rows: &[Row<'_>]) -> anyhow::Result<()> {
    let columns = text::columns().unwrap_or(120);
    let any_too_large = rows.iter().any(|row| row.outcome.too_large > 0);
    let any_expired = rows.iter().any(|row| row.outcome.expired > 0);
    let any_turned_away = rows.iter().any(|row| row.chosen.admission.is_some());
    for of_size in rows.chunk_by(|one, other| one.bytes == other.bytes) {
        let mut header = vec!["policy", "requests\nmissed %", "bytes\nmissed %", "entered"];
        header.extend(any_too_large.then_some("too\nlarge"));
        header.extend(any_turned_away.then_some("turned\naway"));
        header.extend(any_expired.then_some("expired"));
        let row = |Row { chosen, outcome, .. }: &Row<'_>| {
            let offline = if chosen.policy.spec.kind == Kind::Online { "" } else { " (offline)" };
            let mut cells = vec![
                format!("{}{offline}", chosen.label),
                format!("{:.2}", 100.0 * outcome.miss_ratio()),
                format!("{:.2}", 100.0 * outcome.byte_miss_ratio()),
                size::bytes(outcome.entered_bytes),
            ];
            cells.extend(any_too_large.then(|| size::count(outcome.too_large)));
            cells.extend(any_turned_away.then(|| size::count(outcome.turned_away)));
            cells.extend(any_expired.then(|| size::count(outcome.expired)));
            cells
        };
        let header = header.into_iter().map(str::to_owned).collect();
        let rows: Vec<Vec<String>> =
            std::iter::once(header).chain(of_size.iter().map(row)).collect();
        let bytes = of_size[0].bytes;
        let share = 100.0 * bytes as f64 / objects_bytes.max(1) as f64;
        let share = size::significant(share);
        writeln!(
            out,
            "\ncache of {} ({share}% of all objects)\n{}",
            size::bytes(bytes),
            table::plain(&rows, &[0]).trim_end()
        )?;
    }
    let legend = "Entered: the bytes of objects that came in, which a cache on flash writes.";
    write!(out, "\n{}", text::labelled("", 0, legend, columns))?;
    if any_too_large {
        let legend = "Too large: requests for objects that do not fit into the cache, or into the \
                      part of it that they have to pass first.";
        write!(out, "{}", text::labelled("", 0, legend, columns))?;
    }
    Ok(())
}
