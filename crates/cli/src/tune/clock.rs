//! `flashsift tune readahead --clock`: a command is started again and again under several sizes,
//! and its time by the clock decides.
//!
//! The simulation of a trace needs many windows, and one start of a program has few. Here nothing
//! is simulated: the user's command runs on the user's device with nothing in the page cache.

use super::{
    ReadaheadArgs,
    apply::{self, print_records},
    backing, found, kib, present_kib,
};
use crate::{load, records, size, table, text};
use anyhow::Context;
use flashsift_files::judge::Judgement;
use flashsift_host::readahead::{Backing, Machine};
use rustix::fs::sync;
use serde::Serialize;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::{
    ffi::OsStr,
    fs,
    io::Write,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Instant,
};

const SCHEMA: u32 = 1;
/// The least number of rounds that can lead to a proposal: as many as slices in Recommend 3.
pub(super) const ROUNDS_MIN: u64 = 10;
/// `read_ahead_kb` beyond this is no gain for a start.
const KIB_MAX: u64 = 4096;
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// Half of the present size, the present one, twice and four times as much.
fn sizes(present_kib: u64) -> Vec<u64> {
    let page_kib = rustix::param::page_size() as u64 / 1024;
    let all = [present_kib, present_kib / 2, 2 * present_kib.max(16), 4 * present_kib.max(16)];
    let mut sizes = Vec::new();
    for kib in all {
        let whole = kib / page_kib * page_kib;
        if !sizes.contains(&whole)
            && (whole == present_kib || (page_kib..=KIB_MAX).contains(&whole))
        {
            sizes.push(whole);
        }
    }
    sizes
}

/// Starts the command under each size in each round, and returns the seconds by size and round. The
/// present size comes first.
fn measure(
    machine: &Machine,
    backing: &Backing,
    sizes: &[u64],
    args: &ReadaheadArgs,
) -> anyhow::Result<Vec<Vec<f64>>> {
    // A signal ends the command, too, and the size is restored.
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).context("signals")?;
    }
    let bar = load::progress("starts", "{spinner} {msg} {bar:30} {pos}/{len}");
    bar.set_length(args.rounds * sizes.len() as u64);
    let mut seconds = vec![Vec::new(); sizes.len()];
    for round in 0..args.rounds {
        for n in 0..sizes.len() {
            // Each size is the first one in turn, so that a trend favours none.
            let n = (n + round as usize) % sizes.len();
            machine.apply(backing, sizes[n])?;
            seconds[n].push(start(&args.command)?);
            bar.inc(1);
            anyhow::ensure!(!interrupted.load(Relaxed), "ended before all rounds were done");
        }
    }
    bar.finish_and_clear();
    Ok(seconds)
}

/// Runs the command with an empty page cache, and returns its seconds.
fn start(command: &[std::ffi::OsString]) -> anyhow::Result<f64> {
    // Dirty pages are not dropped.
    sync();
    fs::write(DROP_CACHES, "3\n").with_context(|| format!("emptying the cache ({DROP_CACHES})"))?;
    let (program, arguments) = command.split_first().context("--clock needs a command")?;
    let begin = Instant::now();
    let status = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .with_context(|| program.to_string_lossy().into_owned())?;
    let seconds = begin.elapsed().as_secs_f64();
    anyhow::ensure!(status.success(), "{} failed: {status}", program.to_string_lossy());
    Ok(seconds)
}

#[derive(Serialize)]
struct ClockRecord<'a> {
    schema: u32,
    action: &'static str,
    #[serde(flatten)]
    backing: &'a Backing,
    present_kib: u64,
    proposed_kib: Option<u64>,
    sizes: Vec<SizeRecord<'a>>,
}

#[derive(Serialize)]
struct SizeRecord<'a> {
    kib: u64,
    seconds: &'a [f64],
    saving_s: f64,
    first_half_share: f64,
    second_half_share: f64,
    rounds_won: usize,
}

pub(super) fn run(args: &ReadaheadArgs, machine: &Machine, device: &OsStr) -> anyhow::Result<()> {
    let backing = backing(machine, device)?;
    let present_kib = present_kib(&backing.path)?;
    let (statuses, _) = machine.status()?;
    anyhow::ensure!(
        statuses.iter().all(|status| status.change.intent.plan.bdi != backing.bdi),
        "flashsift has changed the size of {}: undo that first, so that the present one is kept",
        backing.bdi
    );
    let sizes = sizes(present_kib);
    let measured = measure(machine, &backing, &sizes, args);
    machine.undo(Some(&backing.bdi), false).context("restoring the size")?;
    let seconds = measured?;
    let judged: Vec<Judgement> =
        seconds.iter().map(|times| Judgement::new(&seconds[0], times)).collect();
    let certain = (1..sizes.len()).filter(|n| judged[*n].recommends());
    let best = certain.max_by(|one, other| judged[*one].saving.total_cmp(&judged[*other].saving));
    let proposed_kib = best.map(|n| sizes[n]);
    let form = args.form();
    if form.is_records() {
        let record = |n: usize| SizeRecord {
            kib: sizes[n],
            seconds: &seconds[n],
            saving_s: judged[n].saving / args.rounds as f64,
            first_half_share: judged[n].halves[0],
            second_half_share: judged[n].halves[1],
            rounds_won: judged[n].wins,
        };
        let sizes = (0..sizes.len()).map(record).collect();
        let (schema, action, backing) = (SCHEMA, "clock", &backing);
        print_records(
            form,
            &[ClockRecord { schema, action, backing, present_kib, proposed_kib, sizes }],
        )?;
    } else {
        let mut out = records::Output::text();
        let shown = render(&backing, &sizes, &seconds, &judged, best);
        out.write_all(shown.as_bytes())?;
        out.finish()?;
    }
    match proposed_kib {
        Some(kib) => apply::set(machine, device, kib * 1024, args.apply, form),
        None if args.apply => anyhow::bail!("nothing was set: there is no proposal"),
        None => Ok(()),
    }
}

fn render(
    backing: &Backing,
    sizes: &[u64],
    seconds: &[Vec<f64>],
    judged: &[Judgement],
    best: Option<usize>,
) -> String {
    let rounds = seconds[0].len();
    let head = ["maximum", "median s", "saves s", "1st half %", "2nd half %", "rounds won"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for (n, kib_now) in sizes.iter().enumerate() {
        let mut sorted = seconds[n].clone();
        sorted.sort_by(f64::total_cmp);
        let mark = match (n, best) {
            (0, _) => " (now)",
            (n, Some(best)) if n == best => " (proposed)",
            _ => "",
        };
        let each = |all: f64| format!("{:.3}", all / rounds as f64).replace('-', "−");
        let Judgement { saving, halves, wins, .. } = judged[n];
        let [first, second] = halves.map(size::percent);
        let compared = match n {
            0 => [""; 4].map(str::to_owned),
            _ => [each(saving), first, second, format!("{wins} of {rounds}")],
        };
        let median = format!("{:.3}", sorted[rounds / 2]);
        let row = [format!("{}{mark}", kib(*kib_now)), median];
        rows.push(row.into_iter().chain(compared).collect());
    }
    let words = match best {
        Some(n) => format!(
            "{} instead of {}: a start takes {:.3} s less, in {} of {}.",
            kib(sizes[n]),
            kib(sizes[0]),
            judged[n].saving / rounds as f64,
            judged[n].wins,
            size::counted(rounds as u64, "round")
        ),
        None => "Keep the present size: no other one saves 1 % of the time in each half of the \
                 rounds, and in nine of ten of them."
            .to_owned(),
    };
    let columns = text::columns().unwrap_or(80);
    format!(
        "{}\n{}\n{}",
        found(backing, sizes[0]),
        table::for_terminal(rows, &[0]),
        text::labelled("", 0, &words, columns)
    )
}
