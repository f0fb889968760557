//! `flashsift tune`: settings of the kernel, measured and changed.

mod apply;
mod clock;
mod curve;
mod files;
mod live;
mod recording;
mod trace;
mod writeback;

pub(crate) use apply::print;
pub(crate) use writeback::{
    JOURNAL, apply::status_of as status_of_changes, apply::undo_chosen as undo_changes,
    apply::warn_of_crashes, machine, plan as plan_writeback, proof as prove_writeback,
};

use crate::{size, usage::Usage};
use anyhow::Context;
use flashsift_host::{
    journal::JOURNAL_PATH,
    mounts,
    readahead::{self, Backing, Machine},
};
use std::{
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    time::Duration,
};

/// Measure and set the kernel's read-ahead and write-back
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    setting: Setting,
}

#[derive(clap::Subcommand)]
enum Setting {
    Readahead(ReadaheadArgs),
    Writeback(writeback::WritebackArgs),
}

/// Find a better maximum of the kernel's read-ahead, see what is wasted now, set it, and undo that
///
/// A trace shows the effect of every size, the programs and files for which most is read in vain,
/// and the files for which advice of a program (posix_fadvise) saves more than one size. --live
/// counts on this machine which pages the kernel reads ahead and how many of them programs use, at
/// the present size. --set changes the size. It is a dry run without --apply, and --undo takes it
/// back. Changes are in a journal.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flashsift tune readahead t.parquet               the effect of each size
  flashsift tune readahead t.parquet --top 30      more programs and files
  flashsift tune readahead t.parquet --memory 64MiB --device emmc-5.1 \\
      --linux kernel=6.1
  sudo flashsift tune readahead t.parquet --on /home --apply    set the proposal
  flashsift tune readahead --status                changes, and what is left
  sudo flashsift tune readahead --undo /home       restore the value from before
  sudo flashsift tune readahead --undo all

Count the pages read ahead in vain, by program; also propose or set a size:
  sudo flashsift tune readahead --live / --for 10m
  sudo flashsift tune readahead --live / --for 10m --propose
  sudo flashsift tune readahead --live / --for 10m --apply

Start a program 12 times under each of four sizes, and compare the times:
  sudo flashsift tune readahead --clock --on / -- PROGRAM

Show the change, and make it:
  flashsift tune readahead --set 64k --on mmcblk0
  sudo flashsift tune readahead --set 64k --on /home --apply

A device is a name (sda2, dm-0), a path in /dev, or a directory of the mounted
file system. The value belongs to the mounted file system's backing device,
which the output names. Files that are open keep the old value. The kernel
forgets the value at a restart; the output has a udev rule that sets it.")]
#[command(group = clap::ArgGroup::new("form").required(true)
    .args(["trace", "live", "clock", "set", "undo", "status"]))]
#[command(group = clap::ArgGroup::new("changed").args(["on", "live"]))]
pub(crate) struct ReadaheadArgs {
    /// The recorded trace to study
    #[arg(value_name = "TRACE")]
    trace: Option<PathBuf>,

    /// Count on this mounted device which pages are read ahead, and which of them are used
    #[arg(long, value_name = "DEV")]
    live: Option<OsString>,

    /// Time to count: 90s, 10m, 1h; Ctrl-C ends it early
    #[arg(
        long = "for",
        value_name = "TIME",
        default_value = "1m",
        value_parser = size::parse_time,
        conflicts_with_all = ["trace", "set", "undo", "status"]
    )]
    time: Duration,

    /// Number of files, and of programs, to list
    #[arg(long, value_name = "N", default_value = "10", value_parser = size::parse_count)]
    top: u64,

    /// Size of the kernel's buffer for each processor
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = size::parse_bytes)]
    buffer: u64,

    /// Start COMMAND again and again under several sizes, with an empty page cache, and propose the
    /// size that saves time by the clock
    #[arg(long, requires_all = ["on", "command"])]
    clock: bool,

    /// With --clock: number of starts under each size, at least 10
    #[arg(long, value_name = "N", default_value = "12",
        value_parser = clap::value_parser!(u64).range(clock::ROUNDS_MIN..=1000))]
    rounds: u64,

    /// The maximum to set: 64k, 1MiB; 0: no read-ahead
    #[arg(long, value_name = "SIZE", requires = "on", value_parser = apply::parse_value)]
    set: Option<u64>,

    /// With --live: also record the requests, and propose a size as for a trace
    #[arg(long, requires = "live")]
    propose: bool,

    /// The device to change
    #[arg(long, value_name = "DEV", conflicts_with_all = ["undo", "status"])]
    on: Option<OsString>,

    /// Write the value, or the proposed one; without it, show what would be written
    #[arg(long, requires = "changed")]
    apply: bool,

    /// Restore the value from before the changes to this device, or to all devices: `all`
    #[arg(long, value_name = "DEV|all")]
    undo: Option<OsString>,

    /// With --undo: also if another program has changed the value since. With a trace: also if it
    /// is held apart for tests
    #[arg(long, conflicts_with_all = ["live", "set", "status"])]
    force: bool,

    /// List the changes that are not undone, and the present values
    #[arg(long)]
    status: bool,

    #[command(flatten)]
    curve: curve::CurveArgs,

    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,

    /// Print the same as CSV: a row for each object
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Path of the journal of changes
    #[arg(long, value_name = "FILE", default_value = JOURNAL_PATH)]
    journal: PathBuf,

    /// The program that --clock starts, with its arguments
    #[arg(last = true, value_name = "COMMAND", requires = "clock")]
    command: Vec<OsString>,
}

/// How results are printed.
#[derive(Clone, Copy)]
pub(crate) struct Form {
    pub(crate) json: bool,
    pub(crate) csv: bool,
}

impl Form {
    /// Whether they are for programs.
    fn is_records(self) -> bool {
        self.json || self.csv
    }
}

impl ReadaheadArgs {
    fn form(&self) -> Form {
        Form { json: self.json, csv: self.csv }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let args = match &args.setting {
        Setting::Readahead(args) => args,
        Setting::Writeback(args) => return writeback::run(args),
    };
    let machine = Machine::this(&args.journal).context("the number of this start")?;
    if !args.status {
        apply::warn_of_crashes(&machine);
    }
    if args.status {
        return apply::status(&machine, args.form());
    }
    if let Some(target) = &args.undo {
        return apply::undo(&machine, target, args.force, args.form());
    }
    if let (Some(bytes), Some(device)) = (args.set, &args.on) {
        return apply::set(&machine, device, bytes, args.apply, args.form());
    }
    if let (true, Some(device)) = (args.clock, &args.on) {
        return clock::run(args, &machine, device);
    }
    if let Some(device) = &args.live {
        return live::run(args, &machine, device, &backing(&machine, device)?);
    }
    trace::from_trace(args, &machine)
}

/// Finds the backing device of a device or directory of this machine.
fn backing(machine: &Machine, target: &OsStr) -> anyhow::Result<Backing> {
    let mounts = mounts::all().context("reading mounts")?;
    Ok(readahead::find(&machine.sys, &mounts, target)?)
}

/// A sentence for the terminal about where the value is.
fn found(backing: &Backing, present_kib: u64) -> String {
    format!(
        "{}\nThe maximum is in {}: {} now.\n",
        backing.why,
        backing.path.display(),
        kib(present_kib)
    )
}

fn present_kib(path: &Path) -> anyhow::Result<u64> {
    readahead::kib(path).with_context(|| path.display().to_string())
}

fn kib(kib: u64) -> String {
    if kib == 0 { "0 (no read-ahead)".to_owned() } else { size::bytes(kib.saturating_mul(1024)) }
}

fn usage(text: &str) -> anyhow::Error {
    Usage(text.to_owned()).into()
}
