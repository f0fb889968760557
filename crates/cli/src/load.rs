//! Loads a trace from a file name into memory, with progress and notes on what was left out.

use crate::{
    logging::{self, DETAIL, SUMMARY},
    size,
};
use anyhow::Context;
use clap::{Args, ValueEnum};
use flashsift_caches::trace::{Tables, Trace, TraceBuilder, Unit, WithoutRemovals};
use flashsift_events::{
    event::{About, Action, Event, Side, Space},
    page::PAGE_BYTES,
};
use flashsift_traces::{
    Error,
    annotations::{self, HeldApart, Purpose},
    events::{Sink, Skipped},
    format, open,
};
use indicatif::{ProgressBar, ProgressStyle};
use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tracing::{debug, info, warn};

/// How a trace is read.
#[derive(Args)]
pub(crate) struct Input {
    /// Trace in any known format, plain or compressed (gzip, zstd, xz, lzma); `-` is standard input
    pub(crate) trace: PathBuf,

    /// Format of the trace, if its content does not identify it
    #[arg(long, value_name = "NAME", value_parser = format_name, help = format_help())]
    pub(crate) format: Option<String>,

    /// Columns of a table: time=, file=, device=, object=, op=, offset=, len=, pid= and process=
    /// with the name or number of a column; unit=s, ms, us or ns is that of the time, block=BYTES
    /// that of offset and len, offset-unit=BYTES or len-unit=BYTES that of one of them; read=0,
    /// write=1 and so on are words of op; separator=, header=yes or no, comment= (docs/formats.md)
    #[arg(long, value_name = "time=NAME,…")]
    pub(crate) columns: Option<String>,

    /// Requests a second: gives times to a trace that has none
    #[arg(long, value_name = "N", value_parser = rate, allow_negative_numbers = true)]
    pub(crate) rate: Option<f64>,
}

/// Help of `--format`, with the formats.
pub(crate) fn format_help() -> String {
    format!("Format of the trace, if its content does not identify it: {}", format::names())
}

pub(crate) fn format_name(text: &str) -> Result<String, Error> {
    format::known_name(text).map(str::to_owned)
}

pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let rate: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if rate.is_finite() && rate > 0.0 { Ok(rate) } else { Err("not a positive number".to_owned()) }
}

/// [`open::read`] or [`open::read_ahead`].
type Reading =
    fn(&Path, Option<&str>, &mut dyn Sink, &open::Limits) -> Result<open::Outcome, Error>;

impl Input {
    /// The name of the trace in output.
    pub(crate) fn name(&self) -> String {
        match self.trace.file_name() {
            Some(name) if self.trace.as_os_str() != "-" => name.to_string_lossy().into_owned(),
            _ => "-".to_owned(),
        }
    }

    /// Reads the trace into `sink`, with a progress bar if standard error is a terminal.
    pub(crate) fn read(&self, sink: &mut dyn Sink) -> Result<open::Outcome, Error> {
        let limits = open::Limits::default();
        let bar = progress("reading", "{spinner} {msg} {bar:30} {bytes}/{total_bytes}");
        let mut watched = Watched { sink, bar: bar.clone(), progress: limits.progress.clone() };
        let outcome = self.read_by(open::read_ahead, &mut watched, &limits);
        bar.finish_and_clear();
        outcome
    }

    /// The same on this thread, without a bar: for a second reading.
    pub(crate) fn read_unwatched(
        &self,
        sink: &mut dyn Sink,
        limits: &open::Limits,
    ) -> Result<open::Outcome, Error> {
        self.read_by(open::read, sink, limits)
    }

    fn read_by(
        &self,
        read: Reading,
        sink: &mut dyn Sink,
        limits: &open::Limits,
    ) -> Result<open::Outcome, Error> {
        let mut timed;
        let sink = match self.rate {
            Some(rate) => {
                timed = Timed { sink, rate, requests: 0, events: Vec::new() };
                &mut timed
            }
            None => sink,
        };
        let format = match (&self.columns, &self.format) {
            (Some(columns), format) => {
                Some(format!("{}:{columns}", format.as_deref().unwrap_or("csv")))
            }
            (None, format) => format.clone(),
        };
        read(&self.trace, format.as_deref(), sink, limits)
    }
}

/// Gives events the times that `--rate` implies.
struct Timed<'a> {
    sink: &'a mut dyn Sink,
    rate: f64,
    requests: u64,
    events: Vec<Event<'static>>,
}

impl Sink for Timed<'_> {
    fn about(&mut self, mut about: About) -> Result<(), Error> {
        if about.knows.times {
            return Err(Error::Sink("the trace has times of its own: leave --rate out".to_owned()));
        }
        about.knows.times = true;
        self.sink.about(about)
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        self.events.clear();
        for event in events {
            let at_us = (self.requests as f64 * 1e6 / self.rate) as u64;
            self.requests +=
                u64::from(matches!(event.action, Action::Read { .. } | Action::Write { .. }));
            self.events.push(Event { at_us, ..event.clone() });
        }
        self.sink.events(&self.events)
    }
}

/// A progress bar on stderr, if stderr is a terminal.
pub(crate) fn progress(message: &'static str, template: &str) -> ProgressBar {
    if logging::is_quiet() || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template(template).expect("templates are constants");
    // Of no length yet: a bar of length 0 is drawn full.
    let bar = ProgressBar::no_length().with_style(style).with_message(message);
    bar.enable_steady_tick(Duration::from_millis(100));
    logging::keep_below(&bar);
    bar
}

struct Watched<'a> {
    sink: &'a mut dyn Sink,
    bar: ProgressBar,
    progress: Arc<open::Progress>,
}

impl Sink for Watched<'_> {
    fn about(&mut self, about: About) -> Result<(), Error> {
        self.bar.set_length(self.progress.total_bytes());
        self.sink.about(about)
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        self.bar.set_position(self.progress.done_bytes());
        self.sink.events(events)
    }
}

/// A trace in memory, and the notes of its reader.
pub(crate) struct Loaded {
    pub(crate) trace: Trace,
    pub(crate) outcome: open::Outcome,
    /// Memory in bytes that the trace and its derived data may take.
    pub(crate) limit_bytes: u64,
}

struct Densify {
    object_cache: bool,
    limit_bytes: u64,
    tables: Tables,
    builder: Option<TraceBuilder>,
    without_removals: Option<WithoutRemovals>,
}

impl Sink for Densify {
    fn about(&mut self, about: About) -> Result<(), Error> {
        let unit = if self.object_cache { Unit::Request } else { Unit::Page };
        let builder = TraceBuilder::new(about, unit, self.limit_bytes);
        self.builder = Some(builder.with_tables(self.tables));
        Ok(())
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        let builder = self.builder.as_mut().expect("a reader says what its trace is about first");
        let left: Vec<_>;
        let events = match &mut self.without_removals {
            Some(without) => {
                left = events.iter().filter_map(|event| without.event(event)).collect();
                &left
            }
            None => events,
        };
        builder.extend(events).map_err(|error| Error::Sink(error.to_string()))
    }
}

/// The fate of truncated and deleted pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, ValueEnum)]
pub(crate) enum Removals {
    /// They leave every tier, dirty ones unwritten
    #[default]
    Follow,
    /// They stay, and a file that is created again has the blocks of the one before: the trace is
    /// read as reads, writes and syncs alone, as papers recorded it
    Ignore,
}

/// Default memory limit of a trace: three quarters of the machine's memory; 1.5 GiB at most where
/// addresses have 32 bits.
pub(crate) fn default_limit_bytes() -> u64 {
    let machine = rustix::system::sysinfo();
    let addressed = if usize::BITS <= 32 { 3 << 29 } else { u64::MAX };
    (machine.totalram as u64 * u64::from(machine.mem_unit) / 4 * 3).min(addressed)
}

/// Reads and densifies a trace, with these side tables. `limit_bytes`: memory that it may take.
pub(crate) fn load(
    input: &Input,
    object_cache: bool,
    limit_bytes: Option<u64>,
    tables: Tables,
) -> anyhow::Result<Loaded> {
    load_with(input, object_cache, limit_bytes, tables, Removals::Follow)
}

/// As [`load`], with a choice of what becomes of removals.
pub(crate) fn load_with(
    input: &Input,
    object_cache: bool,
    limit_bytes: Option<u64>,
    tables: Tables,
    removals: Removals,
) -> anyhow::Result<Loaded> {
    let limit_bytes = limit_bytes.unwrap_or_else(default_limit_bytes);
    let without_removals = (removals == Removals::Ignore).then(WithoutRemovals::default);
    let mut sink = Densify { object_cache, limit_bytes, tables, builder: None, without_removals };
    let outcome = input.read(&mut sink)?;
    let builder = sink.builder.context("the reader gave no trace")?;
    let trace = builder.finish()?;
    let (held, limit) = (size::bytes(trace.held_bytes() as u64), size::bytes(limit_bytes));
    debug!("the trace takes {held} of memory, of at most {limit}");
    Ok(Loaded { trace, outcome, limit_bytes })
}

impl Loaded {
    /// Refuses a trace that is held apart for tests, unless `force`d. `name` is for the error.
    pub(crate) fn require_split(
        &self,
        name: &str,
        purpose: Purpose,
        force: bool,
    ) -> Result<(), HeldApart> {
        annotations::require_split(name, self.outcome.split(), purpose, force)
    }

    /// Logs the size of the trace, omissions, and warnings.
    pub(crate) fn log_summary(&self, name: &str) {
        let (totals, about) = (self.trace.totals(), self.trace.about());
        let side = match about.side {
            Side::Before => "before-cache",
            Side::After => "after-cache",
        };
        let space = match about.space {
            Space::Files => "files",
            Space::Blocks => "block device",
            Space::Objects => "objects",
        };
        let pages = u64::from(self.trace.touched_pages());
        let footprint = if self.trace.runs().is_empty() {
            format!("{} different", size::count(pages))
        } else {
            format!(
                "{} ({})",
                size::counted(pages, "different page"),
                size::bytes(pages * PAGE_BYTES)
            )
        };
        let time = match about.knows.times {
            true => format!(", {}", size::duration(totals.duration_us)),
            false => ", no times".to_owned(),
        };
        info!(
            target: SUMMARY,
            "{name}: {}, {side}, {space}: {}, {}, {}, {footprint}{time}",
            self.outcome.format,
            size::counted(totals.requests, "request"),
            size::counted(totals.read_accesses, "page read"),
            size::counted(totals.write_accesses, "page write"),
        );
        log_left_out(&self.outcome);
        if totals.empty_requests > 0 {
            info!(target: DETAIL, "note: left out: {} of no bytes", size::counted(totals.empty_requests, "request"));
        }
        if totals.direct_requests > 0 {
            info!(
                target: DETAIL,
                "note: {} past the page cache (O_DIRECT): {} read and {} written at the device",
                size::counted(totals.direct_requests, "request"),
                size::counted(totals.direct_reads, "page"),
                size::counted(totals.direct_writes, "page"),
            );
        }
        if about.side == Side::After {
            warn!(
                "this is an after-cache trace: a cache has already taken the hits out of it, so \
                 hit ratios here say little about applications"
            );
        }
    }
}

/// Omissions and assumptions of the reader, now and at the time of the import.
pub(crate) fn log_left_out(outcome: &open::Outcome) {
    log_skipped(&outcome.skipped);
    if let Some(origin) = &outcome.origin {
        info!(target: DETAIL, "origin: {}", origin.trace);
        log_skipped(&origin.skipped);
    }
    if outcome.late > 0 {
        info!(
            target: DETAIL,
            "note: taken as simultaneous: {} earlier than the one before",
            size::counted(outcome.late, "event")
        );
    }
}

/// Omissions, one reason a line.
pub(crate) fn log_skipped(skipped: &Skipped) {
    for (reason, counts) in skipped.iter() {
        let what = if counts.note { "note" } else { "skipped" };
        let damage = if counts.damage { " (not understood)" } else { "" };
        let (count, first) = (size::count(counts.count), counts.first);
        let words =
            format_args!("{what} {count}: {reason}{damage}, first at line or record {first}");
        match counts.damage {
            true => warn!(target: DETAIL, "{words}"),
            false => info!(target: DETAIL, "{words}"),
        }
    }
}
