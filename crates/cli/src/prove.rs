//! `flashsift prove`: replays a trace on several file systems in memory at once, and reports what
//! each setting writes.

use crate::{
    load::{self, Input},
    logging::DETAIL,
    records,
    replay::Signals,
    size, table,
    usage::Usage,
};
use flashsift_events::{duration, show};
use flashsift_player::{
    Error,
    twin::{
        self, ArmResult, Counters, Plan, Setting, TwinWatch,
        script::{Script, ScriptBuilder},
    },
};
use indicatif::ProgressBar;
use serde::Serialize;
use std::{io::Write, time::Duration};
use tracing::{info, warn};

/// Replay a trace on file systems in memory, and count their bytes
///
/// Each setting gets a loop device in memory with a file system of its own. The operations of the
/// trace are performed on all of them at their recorded times. The kernel's counts of the devices
/// give the ratios of bytes, with 95 % confidence intervals. No file system of this machine is
/// changed.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  sudo flashsift record -o t.parquet --for 10m --path /home
  sudo flashsift prove t.parquet --setting ext4,ext4:commit=60,xfs
  sudo flashsift prove t.parquet --setting ext4,ext4:commit=60:expire=5m
  sudo flashsift prove t.parquet --setting ext4,ext4:commit=300 --for 5m --json

A setting is a file system (ext4, xfs, btrfs, f2fs) and words after colons:
options of its mount, as mount(8) takes them; fast_commit, no_journal or
blocks=1k for ext4, sectors=4k for xfs, single for btrfs, at the making; and
expire=, interval= or xfssyncd= with a time, for the whole machine. A setting of
the machine takes a pass of its own, and is restored at the end of the pass,
also if flashsift is killed.

The first setting is the base of all ratios. It runs twice: the second line is
the noise. A replay takes as long as the trace, for each pass. --speed shortens
it, but the kernel's timers do not follow, so that it proves nothing about
settings of time.")]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    /// File systems with their settings; the first is the base of the ratios
    #[arg(long, value_delimiter = ',', value_name = "FS[:WORD…],…", required = true, value_parser = setting)]
    setting: Vec<Setting>,

    /// Replay only the beginning of the trace
    #[arg(long = "for", value_name = "TIME", value_parser = duration::parse_us)]
    limit_us: Option<u64>,

    /// Length of the windows in which requests are counted
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration::parse_us)]
    window: u64,

    /// Replay N times as fast as recorded
    #[arg(long, value_name = "N", default_value_t = 1.0, value_parser = load::rate)]
    speed: f64,

    /// Percentage of the content that is zero, for file systems that compress
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=100))]
    compressible: u8,

    /// Size of each device [default: twice what the trace needs, at least 4 GiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse_bytes)]
    size: Option<u64>,

    /// Print one JSON object for each setting, one on a line
    #[arg(long)]
    json: bool,

    /// Print the same as CSV
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

fn setting(text: &str) -> Result<Setting, Error> {
    Setting::parse(text)
}

struct Progress<'a> {
    signals: &'a Signals,
    bar: ProgressBar,
}

impl TwinWatch for Progress<'_> {
    fn stop(&mut self, done_s: f64, all_s: f64) -> bool {
        self.bar.set_length(all_s as u64);
        self.bar.set_position(done_s as u64);
        self.signals.came().is_some()
    }
}

/// The fields that all settings of a proof share.
#[derive(Clone, Copy, Serialize)]
struct Common<'a> {
    schema: u32,
    trace: &'a str,
    kernel: &'a str,
    seconds: f64,
    operations: usize,
    speed: f64,
    window_s: f64,
}

#[derive(Serialize)]
struct SettingRecord<'a> {
    #[serde(flatten)]
    common: Common<'a>,
    setting: &'a str,
    again: bool,
    pass: usize,
    written_bytes: u64,
    writes: u64,
    flushes: u64,
    ratio: Option<f64>,
    half_width: Option<f64>,
    late_s: f64,
    early: bool,
    refused: u64,
    /// Bytes written, write requests and flushes of each window.
    windows: Vec<[u64; 3]>,
}

impl<'a> SettingRecord<'a> {
    fn new(common: Common<'a>, arm: &'a ArmResult) -> Self {
        let window = |c: &Counters| [c.written_bytes, c.writes, c.flushes];
        Self {
            common,
            setting: &arm.label,
            again: arm.again,
            pass: arm.pass,
            written_bytes: arm.total.written_bytes,
            writes: arm.total.writes,
            flushes: arm.total.flushes,
            ratio: arm.ratio.map(|ratio| ratio.value),
            half_width: arm.ratio.and_then(|ratio| ratio.half_width),
            late_s: arm.late_us as f64 / 1e6,
            early: arm.early,
            refused: arm.refused.values().sum(),
            windows: arm.windows.iter().map(window).collect(),
        }
    }
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let script = script(&args.input, args.limit_us)?;
    let plan = Plan {
        settings: args.setting.clone(),
        window: Duration::from_micros(args.window),
        speed: args.speed,
        zero_share: f64::from(args.compressible) / 100.0,
        device_bytes: args.size,
    };
    let arms = measured(&script, &plan)?;
    let name = args.input.name();
    let mut out = records::Output::rows(args.json, args.csv);
    if args.json || args.csv {
        let machine = rustix::system::uname();
        let kernel = machine.release().to_string_lossy();
        let common = Common {
            schema: 1,
            trace: &name,
            kernel: &kernel,
            seconds: script.end_us() as f64 / 1e6,
            operations: script.steps.len(),
            speed: args.speed,
            window_s: args.window as f64 / 1e6,
        };
        for arm in &arms {
            serde_json::to_writer(&mut out, &SettingRecord::new(common, arm))?;
            writeln!(out)?;
        }
    } else {
        write!(out, "{name}\n\n{}", as_table(&arms))?;
    }
    out.finish()
}

/// Reads a trace as a script, or its beginning.
fn script(input: &Input, limit_us: Option<u64>) -> anyhow::Result<Script> {
    let mut builder = ScriptBuilder::default();
    let outcome = input.read(&mut builder)?;
    load::log_left_out(&outcome);
    let mut script = builder.finish();
    if let Some(limit_us) = limit_us {
        script.cut(limit_us);
    }
    if script.steps.is_empty() {
        return Err(Usage("the trace has no operations to replay".into()).into());
    }
    Ok(script)
}

/// Replays a script, with a progress bar and warnings.
fn measured(script: &Script, plan: &Plan) -> anyhow::Result<Vec<ArmResult>> {
    if !script.has_syncs {
        warn!("the trace does not tell syncs: settings of commits are not proved by it");
    }
    if plan.speed != 1.0 {
        warn!(
            "--speed {}: the kernel's timers do not follow, so this says nothing about settings of \
             time",
            plan.speed
        );
    }
    info!(
        target: DETAIL,
        "{} operations, {}; each file system takes up to {} of memory",
        size::count(script.steps.len() as u64),
        show::duration(script.end_us()),
        show::bytes(twin::memory_bytes(script))
    );
    let signals = Signals::new()?;
    let bar = load::progress("replaying", "{spinner} {msg} {bar:30} {pos}/{len} s, {eta} left");
    let done = twin::run(script, plan, &mut Progress { signals: &signals, bar: bar.clone() });
    bar.finish_and_clear();
    let arms = match done {
        Err(Error::Stopped) => {
            return Err(anyhow::Error::new(signals.came().expect("a signal stopped it")));
        }
        other => other?,
    };
    note_refused(&arms);
    Ok(arms)
}

fn note_refused(arms: &[ArmResult]) {
    if arms.iter().any(|arm| arm.early) {
        warn!(
            "more pages were dirty than vm.dirty_background_ratio allows: the kernel wrote some \
             early, and the bytes may be too many"
        );
    }
    for arm in arms {
        if !arm.refused.is_empty() {
            let reasons: Vec<_> =
                arm.refused.iter().map(|(why, n)| format!("{n} × {why}")).collect();
            warn!("{}: operations that were not possible: {}", arm.label, reasons.join("; "));
        }
        if arm.late_us > 1_000_000 {
            warn!(
                "{}: an operation was {} late: this machine is too busy for the trace",
                arm.label,
                show::duration(arm.late_us)
            );
        }
    }
}

/// Replays a trace under settings in words, the first of which is the base.
pub(crate) fn compared(
    input: &Input,
    settings: impl IntoIterator<Item = String>,
) -> anyhow::Result<Vec<ArmResult>> {
    let settings: Result<Vec<_>, _> =
        settings.into_iter().map(|setting| Setting::parse(&setting)).collect();
    measured(&script(input, None)?, &Plan::new(settings?))
}

/// The same, with the results printed.
pub(crate) fn show(
    input: &Input,
    settings: impl IntoIterator<Item = String>,
) -> anyhow::Result<()> {
    let arms = compared(input, settings)?;
    let mut out = records::Output::text();
    write!(out, "\nReplayed on file systems in memory:\n\n{}", as_table(&arms))?;
    out.finish()
}

/// Returns the results as text.
pub(crate) fn as_table(arms: &[ArmResult]) -> String {
    let header = ["setting", "MiB written", "writes", "flushes", "ratio", "±", "verdict"];
    let mut rows = vec![header.map(str::to_owned).to_vec()];
    for arm in arms {
        let ratio = arm.ratio;
        let half = ratio.and_then(|ratio| ratio.half_width);
        let verdict = match ratio.map(|ratio| (ratio.value < 1.0, ratio.differs())) {
            None => "base",
            Some((_, None)) => "too few windows",
            Some((_, Some(false))) => "no difference seen",
            Some((true, Some(true))) => "writes less",
            Some((false, Some(true))) => "writes more",
        };
        rows.push(vec![
            if arm.again { format!("{}, again", arm.label) } else { arm.label.clone() },
            format!("{:.1}", arm.total.written_bytes as f64 / f64::from(1 << 20)),
            size::count(arm.total.writes),
            size::count(arm.total.flushes),
            ratio.map_or("1".to_owned(), |ratio| format!("{:.3}", ratio.value)),
            half.map_or("-".to_owned(), |half| format!("{half:.3}")),
            verdict.to_owned(),
        ]);
    }
    table::for_terminal(rows, &[0, 6])
}
