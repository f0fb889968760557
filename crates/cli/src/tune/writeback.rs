//! `flashsift tune writeback`: the kernel's write-back, proposed for a recording and changed.
//!
//! [`propose`] finds times by the simulator, and proves them by a replay; [`apply`] sets them.

use super::{Form, recording::Recording};
use crate::{load, prove, size, usage::Usage, watch::Until};
use anyhow::Context;
use flashsift_host::{
    flusher,
    mounts::{self, Mount},
    readahead,
    settings::{Place, Roots, SettingChange, SettingSpec, SettingsMachine},
};
use flashsift_player::twin::estimate::Ratio;
use flashsift_study::recommend::WritebackTimes;
use std::{
    num::NonZeroUsize,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
    time::Duration,
};

pub(super) mod apply;
mod propose;

/// Path of the journal of changes to write-back.
pub(crate) const JOURNAL: &str = "/var/lib/flashsift/writeback-journal.jsonl";

/// Find times of the kernel's write-back that write less, set them, and undo that
///
/// The kernel keeps a changed file in memory for 30 s, and ext4 a changed name for 5 s. Longer
/// times write less, and a power cut takes more of what no program synced. A trace shows which
/// times save most within the age that may be lost (--lose-at-most; default: what is lost today).
/// Changes are a dry run without --apply, each value is read back, and --undo takes them back.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flashsift tune writeback t.parquet                     lose no more than today
  flashsift tune writeback t.parquet --lose-at-most 5m
  flashsift tune writeback t.parquet --lose-at-most 5m --on /home
  sudo flashsift tune writeback t.parquet --prove        and measure it
  sudo flashsift tune writeback --for 10m /              record first
  sudo flashsift tune writeback --for 10m / --lose-at-most 5m --apply

Show a change, make it, also at every start, and undo it:
  flashsift tune writeback --settings
  flashsift tune writeback --set commit=1m,dirty-expire=5m --on /
  sudo flashsift tune writeback --set commit=1m --on / --apply --persist
  flashsift tune writeback --status
  sudo flashsift tune writeback --undo all

dirty-expire and dirty-writeback concern all file systems of the machine, commit
the one at --on. Any program's fsync commits the journal of an ext4 for all.")]
#[command(group = clap::ArgGroup::new("form").required(true)
    .args(["trace", "set", "undo", "status", "settings"]))]
pub(crate) struct WritebackArgs {
    /// The recorded trace to study; with --for, the directory whose file system is recorded
    #[arg(value_name = "TRACE|DIR")]
    trace: Option<PathBuf>,

    /// Record the file system of DIR for this time: 90s, 10m, 1h; Ctrl-C ends it early
    #[arg(long = "for", value_name = "TIME", requires = "trace", value_parser = size::parse_time)]
    time: Option<Duration>,

    /// Greatest age of a change that a power cut may take: 40s, 5m, 1h; default: that of the
    /// present times
    #[arg(long, value_name = "TIME", requires = "trace", value_parser = size::parse_time)]
    lose_at_most: Option<Duration>,

    /// Also replay the trace on ext4 in memory, with the present times and the proposed ones, and
    /// count the bytes (root; takes as long as the trace, or several times)
    #[arg(long, requires = "trace", conflicts_with_all = ["json", "csv"])]
    prove: bool,

    /// Directory of the file system to change, or its device; default with --for: DIR
    #[arg(long, value_name = "DIR", conflicts_with_all = ["undo", "status", "settings"])]
    on: Option<PathBuf>,

    /// Settings and their values: commit=1m, dirty-expire=5m, auto-da-alloc=on, …
    #[arg(long, value_name = "NAME=VALUE,…", value_delimiter = ',')]
    set: Vec<String>,

    /// Make the change, or the proposed one; without it, show it
    #[arg(long, conflicts_with_all = ["undo", "status", "settings"])]
    apply: bool,

    /// Also at every start: in /etc/fstab, or in a file of /etc/sysctl.d
    #[arg(long, conflicts_with_all = ["undo", "status", "settings"])]
    persist: bool,

    /// Restore what was before the changes of this setting, or of this directory, or all: `all`
    #[arg(long, value_name = "NAME|DIR|all")]
    undo: Option<PathBuf>,

    /// With --undo: also if another program has changed the value since. With a trace: also if it
    /// is held apart for tests
    #[arg(long, conflicts_with_all = ["set", "status", "settings"])]
    force: bool,

    /// List the changes that are not undone, and the present values
    #[arg(long)]
    status: bool,

    /// List the settings, each with what a power cut takes
    #[arg(long)]
    settings: bool,

    /// Size of the page cache that is simulated
    #[arg(long, value_name = "SIZE", default_value = "1GiB", value_parser = size::parse_memory)]
    memory: u32,

    /// Format of the trace, if its content does not identify it
    #[arg(long, value_name = "NAME", value_parser = load::format_name, help = load::format_help())]
    format: Option<String>,

    /// Memory limit of the trace and its cells; default: three quarters of the machine's memory
    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes)]
    trace_memory: Option<u64>,

    /// Number of cells that run at once; default: one a core
    #[arg(long, value_name = "N", value_parser = size::parse_threads)]
    threads: Option<NonZeroUsize>,

    /// Print JSON, one object a line
    #[arg(long)]
    json: bool,

    /// Print the same as CSV: a row for each object
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    /// Path of the journal of changes
    #[arg(long, value_name = "FILE", default_value = JOURNAL)]
    journal: PathBuf,
}

impl WritebackArgs {
    fn form(&self) -> Form {
        Form { json: self.json, csv: self.csv }
    }
}

pub(crate) fn run(args: &WritebackArgs) -> anyhow::Result<()> {
    let machine = machine(&args.journal)?;
    if args.persist && !args.apply {
        return Err(usage("--persist needs --apply: --set alone shows the change"));
    }
    if args.settings {
        return apply::settings(args.form());
    }
    if args.status {
        return apply::status(&machine, args.form());
    }
    apply::warn_of_crashes(&machine);
    if let Some(target) = &args.undo {
        return apply::undo(&machine, target, args.force, args.form());
    }
    let on = args.on.as_deref().map(mount_of).transpose()?;
    if !args.set.is_empty() {
        let wanted = apply::parse(&args.set, on.as_ref())?;
        return apply::set(&machine, &wanted, on.as_ref(), args);
    }
    let Some(trace) = &args.trace else { return Err(usage("name a trace")) };
    let Some(time) = args.time else {
        anyhow::ensure!(
            !trace.is_dir(),
            Usage(format!("{} is a directory: --for TIME records it", trace.display()))
        );
        return propose::run(&machine, trace, on.as_ref(), args);
    };
    let recorded = mount_of(trace)?;
    anyhow::ensure!(
        flashsift_record::can_record(&recorded.kind),
        "{} ({}) cannot be recorded with all that the models need, only ext4 and F2FS: give the \
         trace of a like load, with --on {0}",
        recorded.point.display(),
        recorded.kind
    );
    let mut stop = Until::new(time, "event")?;
    let mut recording = Recording::begin(&recorded.point, time, &[])?;
    let live = recording.wait(&mut stop)?;
    stop.finish();
    propose::run(&machine, &live, Some(on.as_ref().unwrap_or(&recorded)), args)
}

/// Returns the journal of changes to settings, and the machine.
pub(crate) fn machine(journal: &Path) -> anyhow::Result<SettingsMachine> {
    let boot_id = readahead::boot_id().context("the number of this start")?;
    Ok(SettingsMachine { roots: Roots::default(), journal: journal.to_owned(), boot_id })
}

/// Returns the changes that settings of a file system need, as `--set` takes them.
pub(crate) fn plan(
    machine: &SettingsMachine,
    set: &[String],
    on: &Path,
    permanent: bool,
) -> anyhow::Result<Vec<SettingChange>> {
    let mount = mount_of(on)?;
    Ok(machine.plan(&apply::parse(set, Some(&mount))?, permanent)?)
}

/// A proof of settings by a replay.
pub(crate) struct Proof {
    /// The results of all settings.
    pub(crate) table: String,
    /// Bytes with the settings, of those without.
    pub(crate) ratio: Option<Ratio>,
}

/// Records a file system for `time`, and replays that with its present times and with these
/// settings.
pub(crate) fn proof(
    machine: &SettingsMachine,
    set: &[String],
    on: &Path,
    time: Duration,
) -> anyhow::Result<Proof> {
    let mount = mount_of(on)?;
    let present = present_times(machine, &mount)?;
    let proposed = apply::times_with(present, &apply::parse(set, Some(&mount))?);
    anyhow::ensure!(
        present != proposed,
        "{} has these times already: undo them first, and then prove them",
        mount.point.display()
    );
    let mut stop = Until::new(time, "event")?;
    let mut recording = Recording::begin(&mount.point, time, &[])?;
    let trace = recording.wait(&mut stop)?;
    stop.finish();
    let input = load::Input { trace, format: None, columns: None, rate: None };
    let arms = prove::compared(&input, propose::settings_of_twin(&mount.kind, present, proposed))?;
    let ratio = arms.iter().rev().find(|arm| !arm.again).and_then(|arm| arm.ratio);
    Ok(Proof { table: prove::as_table(&arms), ratio })
}

/// Returns the mounted file system of a directory or a device.
fn mount_of(path: &Path) -> anyhow::Result<Mount> {
    let shown = path.display();
    let meta = path.metadata().with_context(|| format!("{shown}"))?;
    if meta.is_dir() {
        return mounts::mount_of(path).with_context(|| format!("{shown}"));
    }
    anyhow::ensure!(
        meta.file_type().is_block_device(),
        "{shown} is neither a directory nor a block device"
    );
    let all = mounts::all().context("reading mounts")?;
    let found = all.into_iter().find(|mount| mount.dev == meta.rdev());
    found.with_context(|| format!("{shown} is not mounted"))
}

/// Returns the times that this machine has for a file system.
fn present_times(machine: &SettingsMachine, mount: &Mount) -> anyhow::Result<WritebackTimes> {
    let flusher = flusher::settings().context("reading the kernel's write-back settings")?;
    let named = ["commit", "xfssyncd"].iter().filter_map(|name| SettingSpec::named(name));
    let read = |spec: &SettingSpec| {
        let value = Place::new(spec, Some(mount), &machine.roots).ok()?.read().ok()?;
        apply::time_us(spec, Some(mount), &value)
    };
    let commit_us = named.filter_map(read).next().unwrap_or(WritebackTimes::LINUX.commit_us);
    Ok(WritebackTimes { expire_us: flusher.expire_us, tick_us: flusher.tick_us, commit_us })
}

fn usage(text: &str) -> anyhow::Error {
    Usage(text.to_owned()).into()
}
