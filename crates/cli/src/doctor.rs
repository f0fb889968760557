//! `flashsift doctor`: which programs and files wear this machine's flash, and what would help.

use crate::{html_page, load, logging::DETAIL, records, size, tune, usage::Usage, watch::Until};
use anyhow::Context;
use endurance::DiskLife;
use facts::Watched;
use flashsift_events::event::{About, Event};
use flashsift_files::flusher::FlusherSettings;
use flashsift_record::{self as recorder, Options, Subject};
use flashsift_study::doctor::{Doctor, Examination, Facts};
use flashsift_traces::{Error, events::Sink};
use std::{io::Write, path::PathBuf, time::Duration};
use tracing::warn;

mod apply;
mod endurance;
mod facts;
mod inspect;
mod json;
mod kept;
mod metrics;
mod page;
mod prove;
mod text;

/// Find out which programs wear this machine's flash, and what helps
///
/// Watches all ext4 and F2FS file systems, or those of the given paths, for a while. Then it shows
/// who wrote how much to which file, and a ranked list of remedies: each with evidence, what it
/// saves in a day, its price, the commands that do it and those that undo it. Without --apply it
/// changes nothing: it uses the kernel's tracepoints in a tracing instance of its own and removes
/// it at the end. Needs root.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo flashsift doctor
  sudo flashsift doctor --for 1h --report doctor.html
  sudo flashsift doctor /home --for 10m
  sudo flashsift doctor --for 1h --device emmc-5.1 --years 7
  sudo flashsift doctor --json | jq '.remedies[0]'

Apply a remedy of the last report, measure it, and undo it:
  sudo flashsift doctor --apply 2                      show the steps
  sudo flashsift doctor --apply 2 --yes
  sudo flashsift doctor --prove 2 --for 10m
  sudo flashsift doctor --undo 2

The saving of a remedy is estimated: the recorded accesses run again with the
change, in models of the kernel's write-back and of ext4's journal. Beside it
stands that of each half of the time: the closer they are, the more it says of
a day. The models may err by a tenth. Ctrl-C ends the watch and shows the
result so far.")]
pub(crate) struct Args {
    /// Files or directories whose file systems are watched; default: all that can be
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Time to watch: 90s, 10m, 1h
    #[arg(long = "for", value_name = "TIME", default_value = "1m", value_parser = size::parse_time)]
    time: Duration,

    /// Number of programs, and of files of each, to list
    #[arg(long, value_name = "N", default_value = "5", value_parser = size::parse_count)]
    top: u64,

    /// A modelled device that has flash like this machine's, for the years that it lasts: a name of
    /// `flashsift list devices`, or FILE.toml
    #[arg(long, value_name = "DEVICE")]
    device: Option<String>,

    /// Also the bytes a day that the flash may take to last for so many years, and the day on which
    /// it ends
    #[arg(long, value_name = "N", requires = "device", value_parser = endurance::parse_years)]
    years: Option<f64>,

    /// Show the steps of a remedy of the last report, by its number or name; with --yes, perform
    /// them
    #[arg(long, value_name = "N|NAME", conflicts_with_all = ["undo", "status", "prove", "paths"])]
    apply: Option<String>,

    /// Perform the steps of --apply
    #[arg(long, requires = "apply")]
    yes: bool,

    /// Undo a remedy that was applied, or all: `all`
    #[arg(long, value_name = "N|NAME|all", conflicts_with_all = ["status", "prove", "paths"])]
    undo: Option<String>,

    /// With --undo: also if another program has changed the value since
    #[arg(long, requires = "undo")]
    force: bool,

    /// List the steps that were performed and are not undone
    #[arg(long, conflicts_with_all = ["prove", "paths"])]
    status: bool,

    /// Measure what a remedy of the last report saves: one of the kernel by a replay, another one
    /// by a watch after it was applied
    #[arg(long, value_name = "N|NAME")]
    prove: Option<String>,

    /// Path of the last report
    #[arg(long, value_name = "FILE", default_value = kept::PATH)]
    last_report: PathBuf,

    /// Path of the journal of changes, which is that of `tune writeback`
    #[arg(long, value_name = "FILE", default_value = tune::JOURNAL)]
    journal: PathBuf,

    /// Also write the figures as metrics for node_exporter's textfile collector
    #[arg(long, value_name = "FILE.prom")]
    metrics: Option<PathBuf>,

    /// Print one JSON object, on one line
    #[arg(long)]
    json: bool,

    /// Print the same as CSV: a row for each value, with its key
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Write a page with figures for a browser; it contains everything and fetches nothing
    #[arg(long, value_name = "FILE.html")]
    report: Option<PathBuf>,

    /// Memory limit; default: a quarter of the machine's memory, at most 1 GiB
    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes)]
    trace_memory: Option<u64>,

    /// Size of the kernel's buffer for each processor
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = size::parse_bytes)]
    buffer: u64,
}

const LIMIT_MAX: u64 = 1 << 30;

struct Examine {
    flusher: FlusherSettings,
    limit_bytes: u64,
    doctor: Option<Doctor>,
    programs: inspect::Programs,
}

impl Sink for Examine {
    fn about(&mut self, about: About) -> Result<(), Error> {
        self.doctor = Some(Doctor::new(about, self.flusher, self.limit_bytes));
        Ok(())
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        let doctor = self.doctor.as_mut().expect("a recording describes its trace first");
        doctor.extend(events).map_err(|error| Error::Sink(error.to_string()))?;
        self.programs.take(events, doctor);
        Ok(())
    }
}

impl Args {
    fn form(&self) -> tune::Form {
        tune::Form { json: self.json, csv: self.csv }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let machine = tune::machine(&args.journal)?;
    if args.status {
        return tune::status_of_changes(&machine, |plan| plan.remedy.is_some(), args.form());
    }
    tune::warn_of_crashes(&machine);
    if let Some(wanted) = &args.apply {
        return apply::apply(&machine, wanted, args);
    }
    if let Some(wanted) = &args.undo {
        return apply::undo(&machine, wanted, args);
    }
    let prove = args.prove.as_ref().map(|name| prove::Wanted::new(&machine, name, args));
    let prove = prove.transpose()?;
    match prove {
        Some(prove) if prove.replay(&machine, args)? => Ok(()),
        prove => watch(args, prove.as_ref()),
    }
}

/// Watches the machine, and shows what was found; with a remedy, what that saves.
fn watch(args: &Args, prove: Option<&prove::Wanted>) -> anyhow::Result<()> {
    if args.time.is_zero() {
        return Err(Usage("--for 0 sees nothing: give a time such as 1m".to_owned()).into());
    }
    let report = args.report.as_deref().map(html_page::Report::new).transpose()?;
    let flash = args.device.as_deref().map(endurance::of_device).transpose()?;
    let watched = Watched::begin(&args.paths)?;
    let limit_bytes =
        args.trace_memory.unwrap_or_else(|| (load::default_limit_bytes() / 3).min(LIMIT_MAX));
    let flusher = watched.flusher();
    let programs = inspect::Programs::default();
    let mut sink = Examine { flusher, limit_bytes, doctor: None, programs };
    let mut stop = Until::new(args.time, "event")?;
    let options = Options { under: None, exact: false, buffer_kib: args.buffer.div_ceil(1024) };
    let subject = Subject::FileSystems(args.paths.clone());
    let recorded = recorder::record(subject, &options, &mut sink, &mut stop);
    let duration_us = stop.finish().as_micros() as u64;
    let recorded = recorded.map_err(|error| match error {
        recorder::Error::NotAllowed { .. } => {
            anyhow::Error::new(error).context("watching a machine needs root: run it with sudo")
        }
        error => error.into(),
    })?;
    let (facts, inspector) = watched.end(sink.programs)?;
    load::log_skipped(&recorded.summary.skipped);
    let lost: u64 = recorded.lost.by_cpu.iter().map(|(_, lost)| lost).sum();
    if lost > 0 {
        warn!(
            target: DETAIL,
            "LOST: {} of accesses, so the numbers are too small; a larger --buffer helps",
            size::counted(lost, "record")
        );
    }
    let doctor = sink.doctor.context("nothing was read or written on the watched file systems")?;
    let top = match prove {
        Some(_) => usize::MAX,
        None => usize::try_from(args.top).unwrap_or(usize::MAX),
    };
    let examination = doctor.finish(&facts, &inspector, duration_us, top)?;
    let now_s = jiff::Timestamp::now().as_second();
    let span = args.years.map(|years| endurance::Span { years, now_s });
    let life = |disk| DiskLife::new(disk, duration_us, flash, span);
    let lives = facts.disks.iter().map(life).collect();
    let mut result = Outcome { facts, examination, lives, proofs: Vec::new(), is_kept: false };
    if let Some(prove) = prove {
        return prove.watched(&result, args);
    }
    let json = serde_json::to_vec(&json::Record::new(&result))?;
    result.is_kept = kept::keep(&args.last_report, &json);
    result.proofs = kept::last_proofs(&args.last_report);
    if let Some(path) = &args.metrics {
        metrics::write(path, &result)?;
    }
    if let Some(report) = report {
        report.write(&page::build(&result))?;
    }
    let mut out = records::Output::keys(args.json, args.csv);
    if args.json || args.csv {
        out.write_all(&json)?;
        writeln!(out)?;
    } else {
        out.write_all(text::render(&result, crate::text::in_color()).as_bytes())?;
    }
    out.finish()
}

/// Everything that is shown.
struct Outcome {
    facts: Facts,
    examination: Examination,
    /// By disk.
    lives: Vec<DiskLife>,
    /// Of remedies that were measured before.
    proofs: Vec<kept::Proof>,
    /// The report is kept for `--apply`.
    is_kept: bool,
}
