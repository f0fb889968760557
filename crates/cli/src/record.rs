//! `flashsift record`: records the accesses of applications to the page cache, from this machine's
//! kernel.

use crate::{
    import, load,
    logging::{self, DETAIL, SUMMARY},
    size,
    usage::Usage,
};
use anyhow::Context;
use flashsift_events::event::{About, Event};
use flashsift_record::{self as recorder, Error, Options, Recorded, Stop, Subject};
use flashsift_traces::{
    annotations::{Annotations, Split},
    anonymize::Anonymize,
    events::Sink,
    store,
};
use indicatif::{ProgressBar, ProgressStyle};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use std::{
    ffi::OsString,
    fs,
    io::IsTerminal,
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};
use tracing::{info, warn};

/// Record the reads and writes of applications, before the page cache
///
/// Uses the kernel's tracepoints in a tracing instance of its own, and changes nothing else on the
/// system. The instance is removed at the end, also after Ctrl-C; the next recording removes that
/// of a killed one. Needs root. Without root a program can be recorded with strace, which slows it
/// several times and does not see accesses through mappings.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo flashsift record -o t.parquet -- sqlite3 test.db < statements.sql
  sudo flashsift record -o t.parquet --path /home --for 10m
  sudo flashsift record -o t.parquet --pid 1234 --exact
  flashsift describe t.parquet

By default a read is exact to the page (the kernel reports whole pages), a write
to the byte. --exact adds system calls: then reads are exact to the byte too, at
about twice the cost. Accesses that bypass the page cache (O_DIRECT) are
recorded as such. Not recorded: reads of pages that are mapped already,
sync_file_range; file systems other than ext4, F2FS, XFS and a single btrfs: the
number of accesses there is shown. SEMANTICS.md has the details.")]
pub(crate) struct Args {
    /// Path of the trace to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Record this running process and its future children, until they end
    #[arg(long, value_name = "PID", conflicts_with_all = ["device", "command"])]
    pid: Vec<u32>,

    /// Record all accesses below this directory; with a program or a process, only its accesses
    /// there
    #[arg(long, value_name = "DIR", conflicts_with = "device")]
    path: Option<PathBuf>,

    /// Record all accesses on this mounted device
    #[arg(long, value_name = "DEV", conflicts_with = "command")]
    device: Option<PathBuf>,

    /// End after this time: 90s, 10m, 1h; the recorded program is ended too
    #[arg(long = "for", value_name = "TIME", value_parser = size::parse_time)]
    time: Option<Duration>,

    /// End when the trace is about this large
    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes)]
    max_size: Option<u64>,

    /// Record system calls too, which makes reads exact to the byte
    #[arg(long)]
    exact: bool,

    /// Replace the components of names by keyed hashes; extensions and SQLite's suffixes stay
    #[arg(long)]
    anonymize: bool,

    /// Size of the kernel's buffer for each processor
    #[arg(long, value_name = "SIZE", default_value = "4MiB", value_parser = size::parse_bytes)]
    buffer: u64,

    /// Note the part of the traces that this one belongs to: train, tune, or test (held apart)
    #[arg(long, value_name = "PART")]
    split: Option<Split>,

    /// Record the program with strace instead of the kernel's tracepoints: always, never, or (auto)
    /// where tracepoints are not allowed or do not show reads, and strace is installed
    #[arg(
        long,
        value_name = "WHEN",
        default_value = "auto",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "always",
        ignore_case = true
    )]
    strace: Strace,

    /// End when this process, the parent, ends, without a trace, and remove its folder if empty
    #[arg(long, value_name = "PID", hide = true)]
    with_parent: Option<u32>,

    /// The program to run and record, with its arguments
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Strace {
    Auto,
    Always,
    Never,
}

/// How a program is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    Tracepoints,
    /// The tracepoints do not show reads, and strace is not installed.
    TracepointsOnly,
    Strace,
    /// The tracepoints do not show reads.
    StraceForReads,
}

impl Means {
    /// `lacks_reads`: no tracepoint of this kernel reports the reads of a file system. `narrowed`:
    /// only a directory is recorded, which strace cannot do.
    fn choose(
        when: Strace,
        narrowed: bool,
        lacks_reads: impl FnOnce() -> bool,
        has_strace: impl FnOnce() -> bool,
    ) -> Self {
        match when {
            Strace::Always => Self::Strace,
            Strace::Auto if !narrowed && lacks_reads() => match has_strace() {
                true => Self::StraceForReads,
                false => Self::TracepointsOnly,
            },
            Strace::Auto | Strace::Never => Self::Tracepoints,
        }
    }
}

/// Counts the events that enter the store, for the limits and the progress report.
struct Counted {
    writer: store::Writer,
    bytes: Arc<AtomicU64>,
}

/// Largest cost in bytes of a row of the store, before compression.
const ROW_BYTES: u64 = 12;

impl Sink for Counted {
    fn about(&mut self, about: About) -> Result<(), flashsift_traces::Error> {
        self.writer.about(about)
    }
    fn events(&mut self, events: &[Event<'static>]) -> Result<(), flashsift_traces::Error> {
        self.writer.events(events)?;
        self.bytes.store(self.writer.bytes_so_far(ROW_BYTES), Relaxed);
        Ok(())
    }
}

struct Limits {
    interrupted: Arc<AtomicBool>,
    until: Option<Instant>,
    max_bytes: Option<u64>,
    bytes: Arc<AtomicU64>,
    bar: ProgressBar,
    /// The recording runs until it is interrupted.
    endless: bool,
}

impl Stop for Limits {
    fn begun(&mut self) {
        if self.endless && self.bar.is_hidden() {
            info!("recording; Ctrl-C or SIGTERM ends it");
        }
    }

    fn now(&mut self, events: u64) -> bool {
        let bytes = self.bytes.load(Relaxed);
        self.bar.set_message(format!("{}, {}", size::counted(events, "event"), size::bytes(bytes)));
        self.interrupted.load(Relaxed)
            || self.until.is_some_and(|until| Instant::now() >= until)
            || self.max_bytes.is_some_and(|max| bytes >= max)
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let name = match (&args.path, &args.device, args.command.first()) {
        (.., Some(program)) => {
            let program = std::path::Path::new(program);
            program.file_name().unwrap_or(program.as_os_str()).to_string_lossy().into_owned()
        }
        (Some(path), ..) | (_, Some(path), _) => path.display().to_string(),
        _ if !args.pid.is_empty() => {
            format!("pid {}", args.pid.iter().map(u32::to_string).collect::<Vec<_>>().join(", "))
        }
        _ => {
            return Err(Usage(
                "nothing to record: give a program after --, or --pid, --path or \
                 --device"
                    .to_owned(),
            )
            .into());
        }
    };
    if args.strace == Strace::Always && args.command.is_empty() {
        return Err(Usage("--strace records a program: give one after --".to_owned()).into());
    }
    if args.strace == Strace::Always && args.path.is_some() {
        let message = "--strace records all accesses of the program: leave --path out";
        return Err(Usage(message.to_owned()).into());
    }
    if args.output.as_os_str() == "-" {
        return Err(
            Usage("a store cannot go to standard output: give -o a file name".to_owned()).into()
        );
    }
    import::check_parquet(&args.output)?;
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in
        [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP]
    {
        signal_hook::flag::register(signal, interrupted.clone()).context("signals")?;
    }
    if let Some(parent) = args.with_parent {
        set_parent_process_death_signal(Some(Signal::INT))
            .context("a signal of the parent's end")?;
        // It may have ended before that.
        interrupted.fetch_or(has_ended(parent), Relaxed);
    }
    let bytes = Arc::new(AtomicU64::new(0));
    let mut writer = store::Writer::create(&args.output, &format!("a recording of {name}"))?;
    writer.annotate(Annotations { split: args.split, ..Annotations::default() });
    let mut counted = Counted { writer, bytes: bytes.clone() };
    let begun = Instant::now();
    let bar = spinner();
    let mut stop = Limits {
        interrupted,
        until: args.time.map(|time| begun + time),
        max_bytes: args.max_size,
        bytes,
        bar,
        endless: args.command.is_empty(),
    };
    let recorded = {
        let mut hidden;
        let sink: &mut dyn Sink = if args.anonymize {
            hidden = Anonymize::new(&mut counted);
            &mut hidden
        } else {
            &mut counted
        };
        capture(args, sink, &mut stop)
    };
    stop.bar.finish_and_clear();
    let recorded = recorded?;
    if args.with_parent.is_some_and(has_ended) {
        // No program waits for the trace. It has no name before it is finished.
        drop(counted);
        let _ = args.output.parent().map(fs::remove_dir);
        return Ok(());
    }
    log_summary(args, &recorded, counted.writer, begun.elapsed())
}

/// Whether this process has another parent now.
fn has_ended(parent: u32) -> bool {
    getppid().and_then(|pid| u32::try_from(pid.as_raw_pid()).ok()) != Some(parent)
}

fn capture(args: &Args, sink: &mut dyn Sink, stop: &mut Limits) -> anyhow::Result<Recorded> {
    let command = || {
        let mut command = Command::new(&args.command[0]);
        command.args(&args.command[1..]);
        command
    };
    if !args.command.is_empty() {
        let lacks_reads = || recorder::lacks_reads().unwrap_or(false);
        let narrowed = args.path.is_some();
        match Means::choose(args.strace, narrowed, lacks_reads, recorder::has_strace) {
            Means::Tracepoints => {}
            Means::TracepointsOnly => warn!(
                "strace would show the reads that this kernel's tracepoints do not, and is not \
                 installed (Debian: apt install strace)"
            ),
            Means::Strace => return Ok(recorder::strace(&command(), sink)?),
            Means::StraceForReads => {
                warn!(
                    "this kernel has no tracepoint for buffered reads on ext4 (Linux 6.12): \
                     recording with strace instead, which slows the program several times and \
                     does not see accesses through mappings; --strace=never records with the \
                     tracepoints, without reads"
                );
                return Ok(recorder::strace(&command(), sink)?);
            }
        }
    }
    let mut under = None;
    let what = match (&args.path, &args.device) {
        _ if !args.command.is_empty() || !args.pid.is_empty() => {
            under.clone_from(&args.path);
            match args.command.is_empty() {
                true => Subject::Processes(args.pid.clone()),
                false => Subject::Command(command()),
            }
        }
        (_, Some(device)) => Subject::Device(device.clone()),
        (Some(path), _) => Subject::Path(path.clone()),
        _ => unreachable!("something to record was asked for"),
    };
    let options = Options { under, exact: args.exact, buffer_kib: args.buffer.div_ceil(1024) };
    match recorder::record(what, &options, sink, stop) {
        Err(Error::NotAllowed { what, why })
            if !args.command.is_empty() && args.strace != Strace::Never =>
        {
            warn!(
                "recording with strace, which slows the program several times and does not see \
                 accesses through mappings; run as root (sudo) to record with the kernel's \
                 tracepoints ({what} is not allowed: {why})"
            );
            Ok(recorder::strace(&command(), sink)?)
        }
        Err(Error::NoFileSystem(why))
            if !args.command.is_empty()
                && args.strace != Strace::Never
                && recorder::has_strace() =>
        {
            warn!(
                "recording all accesses of the program with strace, which slows it several times \
                 and does not see accesses through mappings: {why}"
            );
            Ok(recorder::strace(&command(), sink)?)
        }
        Err(error @ Error::NotAllowed { .. }) => {
            Err(anyhow::Error::new(error).context("recording this needs root: run it with sudo"))
        }
        other => Ok(other?),
    }
}

fn spinner() -> ProgressBar {
    if logging::is_quiet() || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style =
        ProgressStyle::with_template("{spinner} recording {elapsed}: {msg} (Ctrl-C ends it)")
            .expect("templates are constants");
    let bar = ProgressBar::new_spinner().with_style(style);
    bar.enable_steady_tick(Duration::from_millis(200));
    logging::keep_below(&bar);
    bar
}

fn log_summary(
    args: &Args,
    recorded: &Recorded,
    writer: store::Writer,
    elapsed: Duration,
) -> anyhow::Result<()> {
    let summary = &recorded.summary;
    let bytes = writer.finish(&summary.skipped)?;
    let elapsed = size::duration(elapsed.as_micros() as u64);
    info!(
        target: SUMMARY,
        "{}: {}, {} of them reads and writes, in {elapsed}; {}, {:.1} bytes an event",
        args.output.display(),
        size::counted(summary.events, "event"),
        size::count(summary.accesses),
        size::bytes(bytes),
        bytes as f64 / summary.events.max(1) as f64
    );
    load::log_skipped(&summary.skipped);
    for (cpu, lost) in &recorded.lost.by_cpu {
        warn!(
            target: DETAIL,
            "LOST on processor {cpu}: {} of accesses; a larger --buffer helps",
            size::counted(*lost, "record")
        );
    }
    for (cpu, lost) in &recorded.lost.faults_by_cpu {
        warn!(
            target: DETAIL,
            "LOST on processor {cpu}: {} (stores through mappings)",
            size::counted(*lost, "page fault")
        );
    }
    if summary.accesses == 0 {
        warn!(
            target: DETAIL,
            "nothing was read or written on a file system that is recorded; was it elsewhere \
             (tmpfs, overlay, network)?"
        );
    }
    if let Some(status) = recorded.status.filter(|status| !status.success()) {
        info!(target: DETAIL, "note: the program ended with {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a kernel before 6.12, `record` once recorded the writes of a program on ext4 without its
    /// reads, and left `--strace` to the reader of a warning.
    #[test]
    fn a_program_whose_reads_no_tracepoint_shows_is_recorded_with_strace() {
        for (when, narrowed, lacks_reads, has_strace, means) in [
            (Strace::Auto, false, false, true, Means::Tracepoints),
            (Strace::Auto, false, true, true, Means::StraceForReads),
            (Strace::Auto, false, true, false, Means::TracepointsOnly),
            (Strace::Auto, true, true, true, Means::Tracepoints),
            (Strace::Never, false, true, true, Means::Tracepoints),
            (Strace::Always, false, false, true, Means::Strace),
        ] {
            let chosen = Means::choose(when, narrowed, || lacks_reads, || has_strace);
            assert_eq!(chosen, means, "{when:?} {narrowed} {lacks_reads} {has_strace}");
        }
    }
}
