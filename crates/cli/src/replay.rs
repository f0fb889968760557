//! `flashsift replay`: performs the requests that a cache sends to storage on a real device or
//! file.

use crate::{devices, load, load::Input, logging::DETAIL, size, usage::Usage};
use anyhow::Context;
use clap::ValueEnum;
use flashsift_pages::{
    device,
    nvm::{
        self,
        profile::{MemoryProfile, NvmCost},
    },
};
use flashsift_player::{
    Op, PIECE_BYTES, Request,
    log::{Requests, Rules, Source, Survey},
    memory::{DelayedMemory, TimeStamps, WithMemory},
    model::Modelled,
    open_target::{OpenTarget, Requirements, TargetKind},
    play::{self, Ended, Played, Watch},
    schedule::Timing,
    tally::Tally,
    target::{Calls, Null, Ring, Target},
};
use indicatif::ProgressBar;
use std::{
    fmt,
    io::IsTerminal,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
        mpsc::{Receiver, sync_channel},
    },
};
use tracing::info;

mod report;

/// Perform an after-cache trace on a real device, and report its time
///
/// Reads, writes, syncs and discards bypass the page cache (O_DIRECT), in the order of the trace.
/// The written data is incompressible, and each sector holds the number of the request that wrote
/// it.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flashsift compare trace.xz --policy lru --memory 16M --after-cache out/
  flashsift replay out/trace.lru.4096.parquet --target /mnt/card/file
  flashsift replay out/trace.lru.4096.parquet --target /mnt/card/file \\
      --device my-card.toml
  flashsift replay requests.blkparse --target /mnt/card/file \\
      --timing recorded --queue-depth 32
  sudo flashsift replay out/trace.lru.4096.parquet --target /dev/mmcblk1 \\
      --yes-destroy-data --json
  flashsift replay out/trace.fslru.4096.parquet --target /mnt/card/file \\
      --nvm pcm-board

A file that does not exist is created, filled, and removed at the end, even if
flashsift is killed; --keep keeps it. An existing file, or a block device, is
written to only with --yes-destroy-data. A device that is mounted, even in part,
or in use in any other way is refused. Ctrl-C ends a replay with a report of the
requests performed so far, and exit code 130 (128 + the number of the signal).

Requests start in the order of the trace, at most --queue-depth at a time. A
request that overlaps one in flight waits for it. A sync waits for all earlier
requests, and all later ones wait for it. Requests longer than 1 MiB are split
into pieces.")]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    #[command(flatten)]
    at: TargetArgs,

    /// Time at which requests start
    #[arg(long, value_enum, default_value_t = TimingArg::Asap, ignore_case = true)]
    timing: TimingArg,

    /// Largest number of requests in flight
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    queue_depth: u32,

    /// Interface to the kernel
    #[arg(long, value_enum, default_value_t = Engine::IoUring, ignore_case = true)]
    engine: Engine,

    /// Take addresses modulo the target's size
    #[arg(long, conflicts_with = "null")]
    fold: bool,

    /// Name of the device to replay, if the trace has several
    #[arg(long, value_name = "NAME")]
    source: Option<String>,

    /// Leave discards out
    #[arg(long)]
    without_discards: bool,

    /// Perform the accesses to memory in the trace, too, each as long as this memory takes
    ///
    /// The trace is from `compare --system SYSTEM,… --after-cache DIR`. A line is accessed in this
    /// machine's DRAM, and the processor waits until its latency has passed. A write of
    /// non-volatile memory also flushes the line from the processor's caches.
    #[arg(long, value_name = "MEMORY")]
    nvm: Option<String>,

    /// Modelled devices to report for comparison, named as in `compare`
    #[arg(long, value_delimiter = ',', value_name = "DEVICE,…")]
    device: Vec<String>,

    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,

    /// Print the same as CSV: a row for each value, with its key
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

/// The target of the requests.
#[derive(clap::Args)]
struct TargetArgs {
    /// File or block device to use; a file that does not exist is created
    #[arg(long, value_name = "FILE|DEV", required_unless_present = "null")]
    target: Option<PathBuf>,

    /// Perform no requests: measures the cost of flashsift itself
    #[arg(long, conflicts_with_all = ["target", "fill", "keep", "size", "yes_destroy_data", "engine"])]
    null: bool,

    /// Permit the content of the device, or of an existing file, to be destroyed
    #[arg(long)]
    yes_destroy_data: bool,

    /// Write all of the target first [default: yes for a file that is written to, no for a device]
    #[arg(long, value_name = "yes|no", ignore_case = true)]
    fill: Option<YesNo>,

    /// Size of a file that is created [default: as large as the trace needs]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes)]
    size: Option<u64>,

    /// Keep a file that was created
    #[arg(long)]
    keep: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum YesNo {
    Yes,
    No,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TimingArg {
    /// As soon as the queue has a free slot
    Asap,
    /// At their times in the trace
    Recorded,
}

impl From<TimingArg> for Timing {
    fn from(when: TimingArg) -> Self {
        match when {
            TimingArg::Asap => Self::Asap,
            TimingArg::Recorded => Self::Recorded,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Engine {
    /// Linux's io_uring
    #[value(name = "io_uring")]
    IoUring,
    /// Blocking system calls, one after the other
    Sync,
}

/// A signal ended the replay or measurement early.
#[derive(Debug)]
pub(crate) struct Interrupted {
    signal: usize,
}

impl Interrupted {
    /// Returns the exit code that shells use for this signal.
    pub(crate) fn exit_code(&self) -> u8 {
        128 + self.signal as u8
    }
}

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = signal_hook::low_level::signal_name(self.signal as i32).unwrap_or("a signal");
        write!(f, "ended early, by {name}")
    }
}

impl std::error::Error for Interrupted {}

/// Records the first signal, at which the work stops; a second one ends the process at once.
pub(crate) struct Signals(Arc<AtomicUsize>);

impl Signals {
    pub(crate) fn new() -> anyhow::Result<Self> {
        use signal_hook::{consts, flag};
        let (which, again) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        for signal in [consts::SIGINT, consts::SIGTERM, consts::SIGHUP] {
            flag::register_conditional_default(signal, again.clone()).context("signals")?;
            flag::register(signal, again.clone()).context("signals")?;
            flag::register_usize(signal, which.clone(), signal as usize).context("signals")?;
        }
        Ok(Self(which))
    }

    pub(crate) fn came(&self) -> Option<Interrupted> {
        Some(self.0.load(Relaxed))
            .filter(|signal| *signal != 0)
            .map(|signal| Interrupted { signal })
    }
}

/// Shows the progress, and stops the replay at a signal.
struct Progress<'a> {
    signals: &'a Signals,
    bar: ProgressBar,
    /// Number of requests at which the bar moves again.
    next: u64,
    step: u64,
}

impl<'a> Progress<'a> {
    /// Creates an observer of `requests` requests.
    fn new(signals: &'a Signals, bar: &ProgressBar, requests: u64) -> Self {
        bar.set_length(requests);
        Self { signals, bar: bar.clone(), next: 0, step: requests / 1000 + 1 }
    }
}

impl Watch for Progress<'_> {
    fn stop(&mut self, done: u64) -> bool {
        if done >= self.next {
            self.bar.set_position(done);
            self.next = done + self.step;
        }
        self.signals.0.load(Relaxed) != 0
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    if args.input.trace.as_os_str() == "-" {
        return Err(Usage(
            "replay reads the trace twice, and standard input can be read once: give a file".into(),
        )
        .into());
    }
    if args.engine == Engine::Sync && args.queue_depth > 1 {
        return Err(Usage(
            "--engine sync performs one request at a time: leave --queue-depth at 1".into(),
        )
        .into());
    }
    let devices = devices::chosen(&args.device)?;
    let memory = args.nvm.as_deref().map(nvm::profile::Selection::parse).transpose();
    let memory = memory.map_err(|error| Usage(error.to_string()))?.map(|chosen| chosen.spec);
    if let Some(profile) = memory.filter(|profile| matches!(profile.nvm, NvmCost::Pages(_))) {
        return Err(Usage(format!(
            "--nvm {}: it is flash, which is written by pages and cannot be replayed in memory",
            profile.name
        ))
        .into());
    }
    if memory.is_some() && args.queue_depth > 1 {
        return Err(Usage(
            "--nvm performs accesses to memory one at a time, with the requests between them: \
             leave --queue-depth at 1"
                .into(),
        )
        .into());
    }
    let mut survey = Survey::default();
    let outcome = args.input.read(&mut survey)?;
    load::log_left_out(&outcome);
    if args.timing == TimingArg::Recorded && !survey.times {
        return Err(Usage(
            "the trace has no times: generate them with --rate N, or leave --timing at asap".into(),
        )
        .into());
    }
    if memory.is_some() && survey.memory_accesses == 0 {
        return Err(Usage(
            "the trace has no accesses to memory: `flashsift compare TRACE --system storage,fslru \
             --after-cache DIR` writes traces that have them"
                .into(),
        )
        .into());
    }
    let (id, source) = survey.source(args.source.as_deref())?;
    let signals = Signals::new()?;
    let place = args.at.target.as_deref().map(|path| prepared(args, path, source)).transpose()?;
    let mut target = target(args, place.as_ref(), source)?;
    let delayed = |profile| {
        Ok::<_, flashsift_player::Error>(DelayedMemory::new(profile, TimeStamps::calibrated()?))
    };
    let delayed = memory.map(delayed).transpose()?;
    let filled = match place.as_ref().filter(|place| fills(&args.at, place, source)) {
        Some(place) => {
            fill(place.bytes, &mut *target, &signals)?;
            true
        }
        None => false,
    };
    if place.as_ref().is_some_and(|place| place.holes) && !filled {
        info!(
            target: DETAIL,
            "note: parts of the file were never written; reads of them reach no device (--fill yes \
             writes them)"
        );
    }
    log_summary(&args.at, source);
    let rules = Rules {
        source: id,
        target_bytes: place.as_ref().map_or(u64::MAX, |place| place.bytes),
        fold: args.fold && place.is_some(),
        without_discards: args.without_discards,
        memory: memory.is_some(),
    };
    let bar = load::progress(
        "replaying",
        "{spinner} {msg} {bar:30} {human_pos}/{human_len} requests, {eta} left",
    );
    let accesses = if rules.memory { survey.memory_accesses } else { 0 };
    let mut progress = Progress::new(&signals, &bar, source.count() + accesses);
    let (played, accesses) = match delayed {
        None => (replay(args, rules, &survey, &mut *target, &mut progress), None),
        Some(delayed) => {
            let mut both = WithMemory::new(&mut *target, delayed)?;
            let played = replay(args, rules, &survey, &mut both, &mut progress);
            let (memory, accesses) = (both.memory(), both.memory().accesses().collect());
            (played, Some(report::Memory { elapsed_ns: memory.elapsed_ns(), accesses }))
        }
    };
    bar.finish_and_clear();
    let mut played = played?;
    let failed = match std::mem::replace(&mut played.ended, Ended::Whole) {
        Ended::Whole => None,
        Ended::Stopped => Some(anyhow::Error::new(signals.came().expect("a signal stopped it"))),
        Ended::Failed(error) => Some(error.into()),
    };
    let modelled = modelled(args, rules, &survey, &devices, memory, played.tally.count())?;
    let shown = report::ReplayReport {
        trace: args.input.name(),
        target: args.at.target.as_deref(),
        place: place.as_ref(),
        filled,
        recorded: args.timing == TimingArg::Recorded,
        queue_depth: args.queue_depth,
        engine: if args.engine == Engine::Sync { "sync" } else { "io_uring" },
        whole: failed.is_none(),
        memory: memory.zip(accesses),
        tally: &played.tally,
        modelled,
    };
    shown.print(args.json, args.csv)?;
    drop(target);
    if let (Some(mut place), true) = (place, args.at.keep) {
        place.keep();
    }
    failed.map_or(Ok(()), Err)
}

fn log_summary(at: &TargetArgs, source: &Source) {
    if source.long > 0 {
        info!(
            target: DETAIL,
            "note: {} requests are longer than 1 MiB and are split into pieces of 1 MiB",
            size::count(source.long)
        );
    }
    if !std::io::stderr().is_terminal() {
        let target = at
            .target
            .as_ref()
            .map_or_else(|| "nowhere".to_owned(), |path| path.display().to_string());
        info!(
            "replaying {} requests to {target}; Ctrl-C or SIGTERM ends it with a report",
            size::count(source.count())
        );
    }
}

/// Opens the target and checks that it can perform the trace.
fn prepared(args: &Args, path: &Path, source: &Source) -> anyhow::Result<OpenTarget> {
    let wanted = Requirements {
        end_bytes: source.end_bytes,
        changes: source.changes() || args.at.fill == Some(YesNo::Yes),
        consent: args.at.yes_destroy_data,
        fold: args.fold,
        size_bytes: args.at.size,
        keep: args.at.keep,
    };
    let same = |path: &Path| path.canonicalize().ok();
    if same(path).is_some_and(|target| Some(target) == same(&args.input.trace)) {
        return Err(Usage("the target is the trace itself: give another --target".into()).into());
    }
    let place = OpenTarget::open(path, &wanted)?;
    if args.at.size.is_some() && !place.made {
        return Err(
            Usage(format!("--size applies to a new file, but {} exists", path.display())).into()
        );
    }
    if let Some(request) = source.unaligned(place.block_bytes) {
        anyhow::bail!(
            "{} has blocks of {} bytes, and request {} of the log ({}) is not aligned to them",
            path.display(),
            place.block_bytes,
            request.number,
            request.in_words()
        );
    }
    if !args.without_discards && source.requests[Op::Discard as usize] > 0 {
        place.check_discards()?;
    }
    Ok(place)
}

fn target<'a>(
    args: &Args,
    place: Option<&'a OpenTarget>,
    source: &Source,
) -> anyhow::Result<Box<dyn Target + 'a>> {
    let Some(place) = place else { return Ok(Box::new(Null::new(args.queue_depth))) };
    let piece_bytes = match fills(&args.at, place, source) {
        true => PIECE_BYTES,
        false => PIECE_BYTES.min(source.longest_bytes),
    };
    Ok(match args.engine {
        Engine::IoUring => Box::new(Ring::new(place, args.queue_depth, piece_bytes)?),
        Engine::Sync => Box::new(Calls::new(place, piece_bytes)?),
    })
}

/// Whether the target is filled first. A file that is written to is filled, so that reads reach the
/// device and writes replace data.
fn fills(at: &TargetArgs, place: &OpenTarget, source: &Source) -> bool {
    match at.fill {
        Some(fill) => fill == YesNo::Yes,
        None => place.kind == TargetKind::File && (place.made || source.changes()),
    }
}

/// Writes the first `bytes` of a target before anything else.
pub(crate) fn fill(bytes: u64, target: &mut dyn Target, signals: &Signals) -> anyhow::Result<()> {
    let bar = load::progress(
        "filling the target",
        "{spinner} {msg} {bar:30} {human_pos}/{human_len} MiB, {eta} left",
    );
    let played = play::fill(bytes, target, &mut Progress::new(signals, &bar, bytes >> 20));
    bar.finish_and_clear();
    match played.ended {
        Ended::Whole => Ok(()),
        Ended::Stopped => {
            let interrupted = signals.came().expect("a signal stopped it");
            Err(anyhow::Error::new(interrupted)
                .context("nothing was replayed: the filling of the target did not finish"))
        }
        Ended::Failed(error) => Err(anyhow::Error::new(error).context("filling the target")),
    }
}

/// Performs the requests of the trace.
fn replay(
    args: &Args,
    rules: Rules,
    survey: &Survey,
    target: &mut dyn Target,
    progress: &mut Progress<'_>,
) -> anyhow::Result<Played> {
    let (played, read) =
        reading(args, rules, survey, |log| play::play(log, target, args.timing.into(), progress));
    if matches!(played.ended, Ended::Whole) {
        read?;
    }
    Ok(played)
}

/// Performs the first `pieces` pieces on each modelled device.
fn modelled<'a>(
    args: &Args,
    rules: Rules,
    survey: &Survey,
    devices: &'a [device::LabelledProfile],
    memory: Option<&MemoryProfile>,
    pieces: u64,
) -> anyhow::Result<Vec<(&'a str, Tally)>> {
    if devices.is_empty() {
        return Ok(Vec::new());
    }
    let modelled = |device: &device::LabelledProfile| {
        let machine = device::AnyDevice::new(&device.profile)?;
        let modelled = Modelled::new(machine, args.timing.into(), args.queue_depth);
        Ok(match memory {
            Some(profile) => modelled.with_memory(profile),
            None => modelled,
        })
    };
    let mut all: Vec<_> =
        devices.iter().map(modelled).collect::<Result<_, device::ProfileError>>()?;
    let bar = load::progress("modelling", "{spinner} {msg} {elapsed}");
    let ((), read) = reading(args, rules, survey, |log| {
        for request in log.iter().flatten().take(usize::try_from(pieces).unwrap_or(usize::MAX)) {
            all.iter_mut().for_each(|device| device.request(&request));
        }
        // The models skip the requests that a replay that ended early did not perform.
        log.iter().for_each(drop);
    });
    bar.finish_and_clear();
    read?;
    Ok(devices
        .iter()
        .map(|device| &*device.label)
        .zip(all.into_iter().map(Modelled::finish))
        .collect())
}

/// Runs `work` on this thread with the requests that another thread reads.
fn reading<T>(
    args: &Args,
    rules: Rules,
    survey: &Survey,
    work: impl FnOnce(&Receiver<Vec<Request>>) -> T,
) -> (T, Result<(), flashsift_traces::Error>) {
    const BATCHES_AHEAD: usize = 16;
    let (to, from) = sync_channel(BATCHES_AHEAD);
    let mut requests = Requests::new(rules, survey, to);
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let read = args.input.read_unwatched(&mut requests, &Default::default());
            read.and_then(|_| requests.finish())
        });
        let done = work(&from);
        // The reader ends as well if `work` ended early.
        drop(from);
        (done, reader.join().expect("the reader does not panic"))
    })
}
