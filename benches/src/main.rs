//! `make bench`: measures flashsift on this machine and prints each figure next to its requirement.
//!
//! CPU times are of whole processes (user and system) or, for policy loops, of the thread. If
//! libCacheSim's `cachesim` is on the PATH, it runs alternately with flashsift in the same round,
//! and the medians of the rounds are compared, so that other load affects both.

mod builds;
mod counted;
mod delayed;
mod devices;
mod memory;
mod mount;
mod nvm;
mod readahead;
mod readers;
mod record;
mod replay;
mod saving;
mod sift_models;
mod sizes;

use anyhow::{Context, ensure};
use clap::Parser;
use flashsift_caches::{
    policy,
    synth::{Pattern, Recipe},
    trace::{Tables, Trace, TraceBuilder, Unit},
};
use flashsift_events::event::Event;
use flashsift_pages::{
    layout,
    system::{self, Cell, Outcome},
    writeback::Modes,
};
use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeVal,
};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// Measure flashsift on this machine, and print each figure next to its requirement
#[derive(Parser)]
struct Args {
    /// Number of rounds; medians are reported
    #[arg(long, default_value_t = 5)]
    rounds: usize,

    /// Instead: policy loops at 10^3 to 10^7 frames, into SIZES.md
    #[arg(long, conflicts_with_all = ["memory", "record", "devices"])]
    sizes: bool,

    /// Instead: memory use, into MEMORY.md
    #[arg(long, conflicts_with_all = ["record", "devices"])]
    memory: bool,

    /// Instead: cost of recording (as root, with fio and strace), into RECORD.md
    #[arg(long, conflicts_with = "devices")]
    record: bool,

    /// Instead: requests per second of the modelled devices, into DEVICES.md
    #[arg(long)]
    devices: bool,
    /// Instead: speed of replay (with fio), into REPLAY.md
    #[arg(long, conflicts_with_all = ["sizes", "memory", "record", "devices"])]
    replay: bool,

    /// Instead: cost of a mount (as root), into MOUNT.md
    #[arg(long, conflicts_with_all = ["sizes", "memory", "record", "devices", "replay"])]
    mount: bool,

    /// Instead: caches in non-volatile memory and their power cuts, into NVM.md
    #[arg(long, conflicts_with_all = ["sizes", "memory", "record", "devices", "replay", "mount"])]
    nvm: bool,

    /// Instead: a million power cuts of delayed syncs in a model, into DELAYED.md
    #[arg(long, conflicts_with_all = ["sizes", "memory", "record", "devices", "replay", "mount"])]
    delayed: bool,

    /// Instead: time of a sifter's models for a file, into SIFT-MODELS.md
    #[arg(long, conflicts_with_all = ["sizes", "memory", "record", "devices", "replay", "mount"])]
    sift_models: bool,

    /// Instead: cost of read-ahead in the policy loop, into READAHEAD.md
    #[arg(long, conflicts_with_all = ["sizes", "memory", "record", "devices", "replay", "mount", "nvm"])]
    readahead: bool,

    /// Instead: cost of a line of each text format, into READERS.md
    #[arg(long, conflicts_with_all = ["sizes", "memory", "record", "devices", "replay", "mount", "nvm"])]
    readers: bool,

    /// Instead: bytes and flushes that a mount saves (as root), into SAVING.md
    #[arg(long, conflicts_with_all = ["sizes", "memory", "record", "devices", "replay", "mount"])]
    saving: bool,

    /// Instead: policy loops of two programs, into BUILDS.md
    #[arg(long, num_args = 2, value_names = ["PROGRAM", "PROGRAM"])]
    builds: Vec<PathBuf>,

    #[command(flatten)]
    saving_options: saving::Options,

    /// Requests of the synthetic trace of --sizes (80 million) or --memory (100 million)
    #[arg(long, value_parser = clap::value_parser!(u64).range(100_000..))]
    requests: Option<u64>,

    /// Path of the report; default: in benchmarks/DATE
    #[arg(short, long)]
    output: Option<PathBuf>,

    /// Run a command and print its peak memory (internal)
    #[arg(long, num_args = 1.., allow_hyphen_values = true, hide = true)]
    peak_of: Vec<String>,

    /// Read a trace of a format and keep nothing (internal)
    #[arg(long, num_args = 2, value_names = ["TRACE", "FORMAT"], hide = true)]
    read: Vec<String>,
}

const REQUESTS: u64 = 20_000_000;
const OBJECTS: u64 = 1_000_000;
const FRAMES: u32 = 100_000;
const FLASHSIFT: &str = "target/release/flashsift";
/// Policies, and their names in `cachesim`.
const SHARED_POLICIES: [(&str, &str); 5] =
    [("fifo", "fifo"), ("lru", "lru"), ("clock", "clock"), ("sieve", "sieve"), ("arc", "arc")];
const SWEEP_FRAMES: [u32; 5] = [10_000, 30_000, 100_000, 300_000, 600_000];

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    if !args.peak_of.is_empty() {
        return memory::print_peak(&args.peak_of);
    }
    if let [trace, format] = &*args.read {
        return readers::read(Path::new(trace), format, &mut readers::Nothing).map(drop);
    }
    if args.saving_options.performed()? {
        return Ok(());
    }
    let program =
        if args.saving { args.saving_options.program.as_path() } else { Path::new(FLASHSIFT) };
    // Policy loops run in this process.
    let is_needed = !args.readahead && !args.delayed && !args.readers && args.builds.is_empty();
    ensure!(
        !is_needed || program.exists(),
        "{} is not built: run this by `make bench`",
        program.display()
    );
    if args.saving && saving::outside(&args.saving_options)? {
        return Ok(());
    }
    let (title, by, name) = match (args.sizes, args.memory) {
        _ if !args.builds.is_empty() => {
            ("Two builds", "make bench BENCH_ARGS=\"--builds …\"", "BUILDS.md")
        }
        _ if args.record => ("Recording", "make bench BENCH_ARGS=--record", "RECORD.md"),
        _ if args.devices => ("Modelled devices", "make bench BENCH_ARGS=--devices", "DEVICES.md"),
        _ if args.mount => ("Mounting", "make bench BENCH_ARGS=--mount", "MOUNT.md"),
        _ if args.nvm => ("Non-volatile memory", "make bench BENCH_ARGS=--nvm", "NVM.md"),
        _ if args.delayed => ("Delayed syncs", "make bench BENCH_ARGS=--delayed", "DELAYED.md"),
        _ if args.sift_models => {
            ("Models of sifters", "make bench BENCH_ARGS=--sift-models", "SIFT-MODELS.md")
        }
        _ if args.readahead => {
            ("Cost of read-ahead", "make bench BENCH_ARGS=--readahead", "READAHEAD.md")
        }
        _ if args.readers => ("Reading text", "make bench BENCH_ARGS=--readers", "READERS.md"),
        _ if args.saving => ("Writes saved", "make bench BENCH_ARGS=--saving", "SAVING.md"),
        _ if args.replay => ("Replaying", "make bench BENCH_ARGS=--replay", "REPLAY.md"),
        (true, _) => ("Policy loops by cache size", "make bench BENCH_ARGS=--sizes", "SIZES.md"),
        (_, true) => ("Memory", "make bench BENCH_ARGS=--memory", "MEMORY.md"),
        _ => ("Benchmarks", "make bench", "RESULTS.md"),
    };
    let mut report = Report::new(title, by)?;
    let mut failed = false;
    match (args.sizes, args.memory) {
        _ if !args.builds.is_empty() => builds::report(&mut report, args.rounds, &args.builds)?,
        _ if args.record => record::report(&mut report, args.rounds)?,
        _ if args.devices => devices::report(&mut report, args.rounds)?,
        _ if args.mount => mount::report(&mut report, args.rounds)?,
        _ if args.nvm => {
            systems(&mut report, &args)?;
            nvm::report(&mut report, args.rounds)?;
        }
        _ if args.delayed => delayed::report(&mut report, args.rounds)?,
        _ if args.sift_models => sift_models::report(&mut report, args.rounds)?,
        _ if args.readahead => readahead::report(&mut report, args.rounds)?,
        _ if args.readers => readers::report(&mut report, args.rounds)?,
        _ if args.saving => {
            failed = saving::report(&mut report, args.rounds, &args.saving_options)?;
        }
        _ if args.replay => replay::report(&mut report, args.rounds)?,
        (true, _) => sizes::report(&mut report, args.requests.unwrap_or(sizes::REQUESTS))?,
        (_, true) => memory::report(&mut report, args.requests.unwrap_or(memory::REQUESTS))?,
        _ => speed(&mut report, &args)?,
    }
    report.save(args.output, name)?;
    ensure!(!failed, "some rows failed");
    Ok(())
}

/// Figures with a rival or a requirement.
fn speed(report: &mut Report, args: &Args) -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let zipf = dir.path().join("zipf.oracleGeneral");
    let recipe = format!(
        "zipf --requests {REQUESTS} --pages {OBJECTS} --alpha 1.0 --seed 1 --as oracle-general"
    );
    cpu_s(Command::new(FLASHSIFT).arg("synth").args(recipe.split(' ')).arg("-o").arg(&zipf))?;
    let rival = Command::new("cachesim")
        .arg("--help")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok();
    if !rival {
        report.line("libCacheSim's `cachesim` is not on the PATH: no ratios to it.\n");
    }
    let trace = zipf_trace(REQUESTS, OBJECTS)?;
    report.line(&format!(
        "Held in memory: {:.1} bytes a request ({REQUESTS} requests, {} objects).\n",
        trace.held_bytes() as f64 / REQUESTS as f64,
        trace.pages()
    ));
    one_cell(report, args, &trace, &zipf, rival)?;
    sweep(report, args, &zipf, rival)?;
    loops(report, args, &trace)?;
    drop(trace);
    spatial_flatness(report)?;
    small_traces(report, args)
}

/// Policy loops and whole processes for one policy and size, alternately with the rival.
fn one_cell(
    report: &mut Report,
    args: &Args,
    trace: &Trace,
    zipf: &Path,
    rival: bool,
) -> anyhow::Result<()> {
    report.line(&format!(
        "## One cell: Zipf(1.0), {REQUESTS} requests, {OBJECTS} objects, {FRAMES} frames, one \
         core\n\nRequired: policy loop ≥ 12 × the rival's whole process, whole process ≥ 4 ×; \
         miss ratios equal to four digits. \"In cache\" is the loop over as many requests for a \
         hundredth of the objects, in a hundredth of the frames: its tables fit into the \
         processor's caches.\n\n| policy | loop M/s | in cache M/s | process s | rival process s | \
         loop / rival | process / rival | miss ratio | rival's |\n|---|---|---|---|---|---|---|---|\
         ---|"
    ));
    let in_cache = zipf_trace(REQUESTS, OBJECTS / 100)?;
    for (policy, theirs) in SHARED_POLICIES {
        let (mut loop_s, mut in_cache_s) = (Vec::new(), Vec::new());
        let (mut ours_s, mut rival_s) = (Vec::new(), Vec::new());
        let (mut miss, mut rival_miss) = (String::new(), "–".to_owned());
        for _ in 0..args.rounds {
            loop_s.push(run_loop(trace, policy, FRAMES)?.0);
            in_cache_s.push(run_loop(&in_cache, policy, FRAMES / 100)?.0);
            let mut command = Command::new(FLASHSIFT);
            command.args([
                "compare",
                "--writeback",
                "evict",
                "--object-cache",
                "--json",
                "--threads",
                "1",
                "--policy",
                policy,
            ]);
            let (s, out) = cpu_s(command.args(["--frames", &FRAMES.to_string()]).arg(zipf))?;
            ours_s.push(s);
            miss = miss_ratio(&out)?;
            if rival {
                let (s, out) = cpu_s(&mut cachesim(zipf, theirs, &FRAMES.to_string()))?;
                rival_s.push(s);
                rival_miss = after(&out, "miss ratio ").context("cachesim prints a miss ratio")?;
            }
        }
        let (looped, ours) = (median(&mut loop_s), median(&mut ours_s));
        let millions = REQUESTS as f64 / 1e6;
        let ratios = match median_of(&mut rival_s) {
            Some(theirs) => format!("{theirs:.2} | {:.1} | {:.1}", theirs / looped, theirs / ours),
            None => "– | – | –".to_owned(),
        };
        report.line(&format!(
            "| {policy} | {:.0} | {:.0} | {ours:.2} | {ratios} | {miss} | {rival_miss} |",
            millions / looped,
            millions / median(&mut in_cache_s)
        ));
    }
    let [small, large] = [1 << 15, 1 << 23].map(load_ns);
    report.line(&format!(
        "\nOn this machine, in this run, a load whose address depends on the load before takes \
         {small:.1} ns within 32 KiB and {large:.0} ns within 8 MiB, about the size of the loop's \
         tables.\n"
    ));
    Ok(())
}

/// Returns the nanoseconds of a load whose address is the result of the load before. The addresses
/// lie within so many bytes, in random order.
fn load_ns(bytes: usize) -> f64 {
    const LOADS: usize = 10_000_000;
    let mut next: Vec<u32> = (0..(bytes / size_of::<u32>()) as u32).collect();
    // Sattolo's shuffle gives one cycle through all places.
    let mut random = Pcg64::seed_from_u64(1);
    for n in (1..next.len()).rev() {
        next.swap(n, random.random_range(0..n));
    }
    let before = thread_cpu_s();
    let last = (0..LOADS).fold(0, |at, _| next[at as usize]);
    std::hint::black_box(last);
    (thread_cpu_s() - before) * 1e9 / LOADS as f64
}

/// Five policies at five sizes: one process of flashsift for all, and one of the rival for each
/// policy, as its users run it.
fn sweep(report: &mut Report, args: &Args, zipf: &Path, rival: bool) -> anyhow::Result<()> {
    let sizes = |separator| SWEEP_FRAMES.map(|frames| frames.to_string()).join(separator);
    let policies = SHARED_POLICIES.map(|(ours, _)| ours).join(",");
    let (mut ours_s, mut rival_s) = (Vec::new(), Vec::new());
    // A round takes minutes, so there are fewer of them.
    for _ in 0..args.rounds.div_ceil(2) {
        let mut command = Command::new(FLASHSIFT);
        command.args([
            "compare",
            "--writeback",
            "evict",
            "--object-cache",
            "--json",
            "--threads",
            "1",
            "--policy",
            &policies,
        ]);
        command.args(["--frames", &sizes(",")]);
        ours_s.push(cpu_s(command.arg(zipf))?.0);
        if rival {
            let mut sum = 0.0;
            for (_, theirs) in SHARED_POLICIES {
                sum += cpu_s(&mut cachesim(zipf, theirs, &sizes(",")))?.0;
            }
            rival_s.push(sum);
        }
    }
    let ours = median(&mut ours_s);
    let ratio = median_of(&mut rival_s)
        .map_or("no rival".to_owned(), |s| format!("rival {s:.1} s: {:.1} ×", s / ours));
    report.line(&format!(
        "## Sweep: these five policies × 5 sizes ({}), one core\n\nRequired: ≥ 15 ×. CPU {ours:.2} \
         s; {ratio}.\n",
        sizes(", ")
    ));
    Ok(())
}

/// Loops of all policies.
fn loops(report: &mut Report, args: &Args, trace: &Trace) -> anyhow::Result<()> {
    report.line(&format!(
        "## Policy loops at {FRAMES} frames\n\n| policy | M accesses/s |\n|---|---|"
    ));
    for spec in policy::ALL.iter().filter(|spec| !spec.slow) {
        let mut times = Vec::new();
        for _ in 0..args.rounds.div_ceil(2) {
            times.push(run_loop(trace, spec.name, FRAMES)?.0);
        }
        report.line(&format!(
            "| {} | {:.1} |",
            spec.name,
            REQUESTS as f64 / 1e6 / median(&mut times)
        ));
    }
    report.line("");
    Ok(())
}

/// The cost of SpatialClock must not grow with the cache; the tree of its paper is O(log n).
fn spatial_flatness(report: &mut Report) -> anyhow::Result<()> {
    report.line(
        "## SpatialClock by size\n\nRequired: ≥ 20 M accesses/s at 100,000 frames, flat to 10 \
         million. Reads and writes, twice as many pages as frames, Zipf(0.8).\n\n| frames | M \
         accesses/s |\n|---|---|",
    );
    for frames in [100_000u32, 1_000_000, 10_000_000] {
        let pages = 2 * u64::from(frames);
        let recipe = Recipe {
            requests: REQUESTS.max(4 * pages),
            pages,
            pattern: Pattern::Zipf { alpha: 0.8 },
            write_share: 0.3,
            rate: 1000.0,
            seed: 1,
            objects: false,
        };
        let requests = recipe.requests;
        let trace = densified(recipe)?;
        let seconds = run_loop(&trace, "spatialclock", frames)?.0;
        report.line(&format!("| {frames} | {:.1} |", requests as f64 / 1e6 / seconds));
    }
    report.line("");
    Ok(())
}

/// Whole processes on traces recorded by others.
fn small_traces(report: &mut Report, args: &Args) -> anyhow::Result<()> {
    let shared = Path::new("../shared/data");
    let facebook = shared.join("facebook.mobigen.xz");
    let cloudphysics = shared.join("cloudphysics.oracleGeneral.bin.zst");
    report.line("## Small traces, from start to exit\n");
    if !facebook.exists() || !cloudphysics.exists() {
        report.line("SKIPPED: the traces of ../shared/data are missing.\n");
        return Ok(());
    }
    let (mut cell_s, mut wall_s, mut all_s) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..args.rounds * 4 {
        let mut command = Command::new(FLASHSIFT);
        command.args([
            "compare",
            "--writeback",
            "evict",
            "--object-cache",
            "--policy",
            "lru",
            "--frames",
            "1000",
            "--json",
        ]);
        cell_s.push(cpu_s(command.arg(&cloudphysics))?.0);
        let started = std::time::Instant::now();
        let mut command = Command::new(FLASHSIFT);
        command.args(["compare", "--writeback", "evict", "--json"]).arg(&facebook);
        all_s.push(cpu_s(&mut command)?.0);
        wall_s.push(started.elapsed().as_secs_f64());
    }
    report.line(&format!(
        "- cloudphysics, one LRU cell: {:.1} ms CPU (required: 20).\n- Facebook, all {} policies × \
         5 sizes: {:.0} ms wall clock, {:.0} ms CPU (held against 500 of wall clock on two \
         cores).\n",
        median(&mut cell_s) * 1e3,
        policy::all().len(),
        median(&mut wall_s) * 1e3,
        median(&mut all_s) * 1e3
    ));
    Ok(())
}

fn zipf_trace(requests: u64, pages: u64) -> anyhow::Result<Trace> {
    let pattern = Pattern::Zipf { alpha: 1.0 };
    let recipe =
        Recipe { requests, pages, pattern, write_share: 0.0, rate: 1000.0, seed: 1, objects: true };
    densified(recipe)
}

fn densified(recipe: Recipe) -> anyhow::Result<Trace> {
    dense(recipe, recipe.events()?)
}

fn dense(recipe: Recipe, events: impl Iterator<Item = Event<'static>>) -> anyhow::Result<Trace> {
    with_tables(recipe, events, Tables::default())
}

fn with_tables(
    recipe: Recipe,
    mut events: impl Iterator<Item = Event<'static>>,
    tables: Tables,
) -> anyhow::Result<Trace> {
    let unit = if recipe.objects { Unit::Request } else { Unit::Page };
    let mut builder = TraceBuilder::new(recipe.about(), unit, u64::MAX).with_tables(tables);
    let mut batch: Vec<Event<'static>> = Vec::new();
    loop {
        batch.clear();
        batch.extend(events.by_ref().take(4096));
        if batch.is_empty() {
            return Ok(builder.finish()?);
        }
        builder.extend(&batch)?;
    }
}

/// Loops of all systems under LRU, with writes and syncs.
fn systems(report: &mut Report, args: &Args) -> anyhow::Result<()> {
    report.line(&format!(
        "## System loops at {FRAMES} frames\n\nRequired: ≥ 20 M page accesses/s. Reads and writes, \
         twice as many pages as frames, Zipf(0.8), written back as Linux does.\n\n| system | M \
         accesses/s |\n|---|---|"
    ));
    let pages = 2 * u64::from(FRAMES);
    let recipe = Recipe {
        requests: REQUESTS,
        pages,
        pattern: Pattern::Zipf { alpha: 0.8 },
        write_share: 0.3,
        rate: 10_000.0,
        seed: 1,
        objects: false,
    };
    let trace = with_tables(recipe, recipe.events()?, Tables { bytes: true, ..Tables::default() })?;
    for spec in system::ALL {
        let system = system::Selection::default_of(spec);
        let mut times = Vec::new();
        for _ in 0..args.rounds.div_ceil(2) {
            let modes = "linux".parse().map_err(anyhow::Error::msg)?;
            times.push(run_system(&trace, &system, "lru", FRAMES, modes)?.0);
        }
        let accesses = trace.totals().read_accesses + trace.totals().write_accesses;
        let rate = accesses as f64 / 1e6 / median(&mut times);
        report.line(&format!("| {} | {rate:.1} |", spec.name));
    }
    report.line("");
    Ok(())
}

/// Runs the trace through a policy, and returns the CPU seconds of this thread and the outcome.
fn run_loop(trace: &Trace, name: &str, frames: u32) -> anyhow::Result<(f64, Outcome)> {
    run_system(trace, &system::PLAIN, name, frames, Modes::default())
}

fn run_system(
    trace: &Trace,
    system: &system::Selection,
    name: &str,
    frames: u32,
    writeback: Modes,
) -> anyhow::Result<(f64, Outcome)> {
    let policy = policy::Selection::parse(name)?;
    let future = policy.spec.kind.is_offline().then(|| trace.future()).transpose()?;
    Ok(run_cell(trace, &policy, |cell| {
        Cell { system, frames, writeback, ..cell }.run(trace, future.as_ref(), None)
    }))
}

/// Calls `run` with a cell of one frame, and returns the CPU seconds of this thread and the
/// outcome.
fn run_cell(
    trace: &Trace,
    policy: &policy::Selection,
    run: impl FnOnce(Cell<'_>) -> Outcome,
) -> (f64, Outcome) {
    let layout = layout::default_for(trace.about().space);
    let cell = Cell {
        system: &system::PLAIN,
        policy,
        frames: 1,
        layout: &layout,
        writeback: Modes::default(),
        drain: false,
        write_miss_reads: false,
        request_pages_max: 128,
        discards: true,
        metadata: None,
        readahead: None,
        lines: None,
        reads: None,
        attribution: None,
    };
    let before = thread_cpu_s();
    let outcome = run(cell);
    (thread_cpu_s() - before, outcome)
}

fn thread_cpu_s() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn cachesim(trace: &Path, policy: &str, sizes: &str) -> Command {
    let mut command = Command::new("cachesim");
    // Without this option it writes its results next to the trace.
    let output = trace.with_extension("cachesim");
    // It also writes a folder `result` into its working directory.
    command.current_dir(trace.parent().expect("a trace lies in a folder"));
    command.arg(trace).args([
        "oracleGeneral",
        policy,
        sizes,
        "--ignore-obj-size",
        "1",
        "--num-thread",
        "1",
    ]);
    command.arg("-o").arg(output);
    command
}

/// CPU time of all ended child processes.
fn children_cpu_s() -> anyhow::Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let seconds = |time: TimeVal| time.tv_sec() as f64 + time.tv_usec() as f64 / 1e6;
    Ok(seconds(usage.user_time()) + seconds(usage.system_time()))
}

/// Runs a process that must succeed, alone, and returns its CPU seconds (user and system) and its
/// output.
fn cpu_s(command: &mut Command) -> anyhow::Result<(f64, String)> {
    let before = children_cpu_s()?;
    let output = command.stderr(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?} failed");
    Ok((children_cpu_s()? - before, String::from_utf8_lossy(&output.stdout).into_owned()))
}

fn miss_ratio(json: &str) -> anyhow::Result<String> {
    let cell: serde_json::Value = serde_json::from_str(json.lines().next().context("a cell")?)?;
    let field = |name: &str| cell[name].as_f64().context("a count");
    Ok(format!("{:.4}", 1.0 - field("hits")? / field("accesses")?))
}

fn after(text: &str, word: &str) -> Option<String> {
    let rest = &text[text.rfind(word)? + word.len()..];
    Some(rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect())
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    f64::midpoint(times[(times.len() - 1) / 2], times[times.len() / 2])
}

fn median_of(times: &mut [f64]) -> Option<f64> {
    (!times.is_empty()).then(|| median(times))
}

/// A report that is printed line by line and saved at the end.
struct Report {
    date: String,
    text: String,
}

impl Report {
    fn new(title: &str, by: &str) -> anyhow::Result<Self> {
        let date = Command::new("date").arg("+%F").output().context("date")?;
        let date = String::from_utf8(date.stdout)?.trim().to_owned();
        let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let cpu = cpu
            .lines()
            .find_map(|line| line.strip_prefix("model name"))
            .unwrap_or(": unknown processor");
        let cores = std::thread::available_parallelism()?;
        let kernel = rustix::system::uname();
        let release = kernel.release().to_string_lossy();
        let kernel = release.split('-').next().unwrap_or_default();
        let mut report = Self { date, text: String::new() };
        report.line(&format!(
            "# {title}, {}\n\n{cores} cores,{}, Linux {kernel}, flashsift {}. By `{by}`.\n",
            report.date,
            cpu.trim_start_matches([' ', '\t', ':']).trim_end().replacen("", " ", 1),
            env!("CARGO_PKG_VERSION")
        ));
        Ok(report)
    }

    fn line(&mut self, line: &str) {
        println!("{line}");
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn save(self, output: Option<PathBuf>, name: &str) -> anyhow::Result<()> {
        let path = output.unwrap_or_else(|| Path::new("benchmarks").join(&self.date).join(name));
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        fs::write(&path, self.text)?;
        println!("saved in {}", path.display());
        Ok(())
    }
}
