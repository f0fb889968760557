//! `flashsift sift trial`: measures on a live directory what sifting saves.

use super::{background, control::chosen_at, settings::Settings, sift};
use crate::{records, size, usage::Usage};
use anyhow::{Context, bail};
use flashsift_events::{names::escape, show};
use flashsift_files::trial::{Arm, Trial, TrialPlan};
use flashsift_host::own_files;
use flashsift_mount::daemon::trial::StoredTrial;
use rustix::time::{ClockId, clock_gettime};
use std::{
    ffi::OsString,
    fs::{self, DirBuilder},
    io::{self, Write as _},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    time::Duration,
};

/// Measure what sifting saves on a directory, by changing at random between sifting and not
///
/// The mount on DIR runs in sessions of an hour of use. Each session has one of three arms, in
/// random order: the sifter drops files; files wait in RAM and none is dropped; new files are
/// created on flash at once. The first quarter of a session is not counted. At the end one sentence
/// says how much less flash the data of programs cost with sifting, with its 95 % interval, or how
/// many more days are needed. The sifter is `controller` unless --sift names another. The trial
/// survives restarts: start it again with --resume. Without --for and --resume the command shows
/// the result so far. The kernel does not read and write past the mount during a trial
/// (passthrough), so that all arms count alike.
#[derive(clap::Args, Clone)]
#[command(after_help = "Examples:
  flashsift sift trial ~/.cache --for 6d      start it, in place
  flashsift sift trial ~/.cache               the result so far
  flashsift sift trial ~/.cache --resume      go on after a restart
  flashsift unmount ~/.cache                  pause it
  flashsift sift trial ~/.cache --discard     forget it")]
pub(crate) struct Args {
    /// The directory
    directory: PathBuf,

    /// Start a trial of this length: 6d, 12h
    #[arg(long = "for", value_name = "TIME", value_parser = size::parse_time, group = "act")]
    length: Option<Duration>,

    /// Go on with a trial that was started before
    #[arg(long, group = "act")]
    resume: bool,

    /// Forget the trial and its result
    #[arg(long, group = "act")]
    discard: bool,

    /// Seed of the order of sessions [default: the time]
    #[arg(long, requires = "length")]
    seed: Option<u64>,

    /// Length of a session in use, with the quarter that is not counted [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = size::parse_time, requires = "length")]
    session: Option<Duration>,

    /// Print the result as JSON
    #[arg(long)]
    json: bool,

    /// Print the same as CSV: a row for each value, with its key
    #[arg(long, conflicts_with = "json")]
    csv: bool,

    #[command(flatten)]
    settings: Settings,

    #[arg(long, hide = true)]
    in_background: bool,
}

pub(crate) fn run(args: &Args, words: &[OsString]) -> anyhow::Result<()> {
    let directory =
        args.directory.canonicalize().with_context(|| args.directory.display().to_string())?;
    let path = file_of(&directory)?;
    let at = || path.display().to_string();
    if args.discard {
        if chosen_at(&directory)? {
            bail!("{} is mounted; unmount it first", directory.display());
        }
        fs::remove_file(&path).with_context(at)?;
        tracing::info!("removed {}", at());
        return Ok(());
    }
    if args.length.is_none() && !args.resume {
        return show(&read(&path, &directory)?, args.json, args.csv);
    }
    let mut settings = args.settings.clone();
    if !settings.has_sifter() {
        settings = settings.sifting_with("controller");
    }
    let mut wanted = settings.wanted(rustix::process::geteuid().is_root())?;
    wanted.passthrough = false;
    let sift = wanted.sift.as_ref().map(|sift| sift::sifter_of(sift, &directory)).transpose()?;
    if !args.in_background {
        if let Some(length) = args.length {
            begin(args, length, &path)?;
        } else {
            read(&path, &directory)?;
        }
        eprint!("{}", show::lines(&background::start(words)?, false));
        return Ok(());
    }
    let trial = StoredTrial { trial: read(&path, &directory)?, path };
    super::mount_with(super::Mounting {
        backing: directory.clone(),
        mountpoint: directory,
        wanted,
        sift,
        trial: Some(trial),
    })
}

/// Stores a new trial.
fn begin(args: &Args, length: Duration, path: &Path) -> anyhow::Result<()> {
    let at = || path.display().to_string();
    if path.exists() {
        return Err(Usage(format!(
            "there is a trial of this directory already ({}): go on with --resume, or remove it \
             with --discard",
            at()
        ))
        .into());
    }
    let now = clock_gettime(ClockId::Realtime);
    let now_us = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000;
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let mut plan = TrialPlan::new(micros(length), args.seed.unwrap_or(now_us));
    if let Some(session) = args.session {
        plan.session_us = micros(session);
        plan.washout_us = plan.session_us / 4;
    }
    let trial = Trial::new(plan, now_us).map_err(|why| Usage(format!("--for: {why}")))?;
    let directory = path.parent().context("a trial lies in a directory")?;
    if let Some(above) = directory.parent() {
        // Other files in it are for all users.
        DirBuilder::new().recursive(true).mode(0o755).create(above)?;
        own_files::refuse_shared(above)?;
    }
    own_files::create_directory(directory)?;
    StoredTrial { trial, path: path.to_owned() }.store().with_context(at)
}

fn read(path: &Path, directory: &Path) -> anyhow::Result<Trial> {
    if !path.exists() {
        let directory = directory.display();
        bail!(
            "no trial of {directory} was started; `flashsift sift trial {directory} --for 6d` does"
        );
    }
    for above in path.ancestors().skip(1).take(2) {
        own_files::refuse_shared(above)?;
    }
    let at = || path.display().to_string();
    let text = io::read_to_string(own_files::open(path).with_context(at)?).with_context(at)?;
    Trial::from_json(&text).with_context(at)
}

fn show(trial: &Trial, json: bool, csv: bool) -> anyhow::Result<()> {
    let result = trial.result();
    let mut out = records::Output::keys(json, csv);
    if json || csv {
        serde_json::to_writer(&mut out, &result)?;
        writeln!(out)?;
        return out.finish();
    }
    writeln!(out, "{}", result.sentence())?;
    let elapsed = size::duration(result.elapsed_us);
    let whole = size::duration(trial.plan().length_us);
    writeln!(out, "{elapsed} of {whole}")?;
    writeln!(
        out,
        "  {:<7}{:>9}{:>14}{:>14}{:>14}{:>12}",
        "arm", "sessions", "by programs", "to flash", "again", "an open"
    )?;
    for arm in &result.totals {
        let name = match arm.arm {
            Arm::Sift => "sift",
            Arm::Keep => "keep",
            Arm::Plain => "plain",
        };
        let open = arm.mean_open_us().map_or_else(|| "–".to_owned(), |us| format!("{us:.1} µs"));
        writeln!(
            out,
            "  {name:<7}{:>9}{:>14}{:>14}{:>14}{open:>12}",
            arm.sessions,
            size::bytes(arm.counts.own_bytes()),
            size::bytes(arm.counts.cost_bytes().max(0.0) as u64),
            size::bytes(arm.counts.fetched_again_bytes),
        )?;
    }
    out.finish()
}

/// Returns the file in which the trial of a directory is stored.
fn file_of(directory: &Path) -> anyhow::Result<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let state = match std::env::var_os("XDG_STATE_HOME") {
        Some(state) => PathBuf::from(state),
        None if rustix::process::geteuid().is_root() => PathBuf::from("/var/lib"),
        None => home.context("neither XDG_STATE_HOME nor HOME is set")?.join(".local/state"),
    };
    let name = escape(directory.as_os_str().as_encoded_bytes());
    let name = name.trim_matches('/').replace('%', "%25").replace('/', "%2f");
    Ok(state.join("flashsift/trials").join(format!("{name}.json")))
}
