//! `flashsift mount`: new files live in RAM before they are written back to flash.

use std::{ffi::OsString, path::PathBuf};

pub(crate) mod background;
mod boot;
pub(crate) mod control;
pub(crate) mod explain;
pub(crate) mod foreground;
pub(crate) mod helper;
mod recording;
mod settings;
pub(crate) mod sift;
mod status;
pub(crate) mod top;
pub(crate) mod trial;

use crate::usage::Usage;
use anyhow::Context;
use flashsift_events::show;
use flashsift_files::sift::live::LiveSifter;
use flashsift_mount::{
    SiftWish,
    attach::user_tmpfs,
    daemon::{self, StartRecording, session::Serving, trial::StoredTrial},
};

/// Keep new files in RAM for a while before they reach flash
///
/// A new file in MOUNTPOINT lives in RAM first and is later written back to BACKING, an ordinary
/// directory that is readable without flashsift. A file that is deleted before then never reaches
/// flash. A file that a program syncs is written back at once and is as durable as without
/// flashsift.
#[derive(clap::Args, Clone)]
#[command(after_help = "Examples:
  flashsift mount ~/.cache/chromium                       in place
  flashsift unmount ~/.cache/chromium                     the end of it
  sudo flashsift mount /data/app /mnt/app --write-through '*.log'
  sudo mount -t fuse.flashsift /data/app /mnt/app -o lose_at_most=10m,budget=64M
  flashsift mount --enable ~/.cache/chromium              at every start
  flashsift mount --disable ~/.cache/chromium             and undone
  sudo flashsift mount --enable --system /var/log         before syslog uses it
  flashsift mount ~/.cache --sift controller --dry-run
  flashsift status ~/.cache                               what would be dropped
  flashsift sift on ~/.cache                              drop files from now on
  flashsift mount ~/.cache --metrics 127.0.0.1:9101       for Prometheus

A file for --config has the same settings; the command line overrides them:
  lose-at-most = \"10m\"
  budget = \"64MiB\"
  write-through = [\"*.log\"]
  sift = \"controller:again=0.02\"
  profiles = [\"chromium\", \"pip\"]
  drop = [\"*/my-app/cache/*\"]
  no-passthrough = true
  options = [\"noatime\"]
  metrics = [\"unix:/run/flashsift.sock\"]
  [[group]]
  patterns = [\"*.db*\"]
  sync = \"delayed:5m\"

SEMANTICS.md lists the promises, and the files that a crash can lose.")]
pub(crate) struct Args {
    /// The directory to which files are written back; no other program may change it meanwhile
    backing: PathBuf,

    /// The directory in which the files appear; default: BACKING itself, in place
    mountpoint: Option<PathBuf>,

    #[command(flatten)]
    settings: settings::Settings,

    /// Read further settings from this TOML file
    #[arg(long, value_name = "F.toml")]
    config: Option<PathBuf>,

    /// Record the requests to the mount as a trace; disables passthrough, so that none is missed
    #[arg(long, value_name = "T.parquet")]
    record: Option<PathBuf>,

    /// With --record: also record what cache files are copies of, by hashes of site and URL, kind
    /// and type; readers of the recording can find out which known sites were visited
    #[arg(long, requires = "record")]
    record_meaning: bool,

    /// Stay in the foreground, for service managers and to see the messages
    #[arg(long)]
    foreground: bool,

    /// Mount also while a process uses one of the directories; files that it has open there stay
    /// open and bypass flashsift
    #[arg(long)]
    even_if_used: bool,

    /// Accept a BACKING on a file system of this type, which is refused otherwise: tmpfs, overlay
    #[arg(long, value_name = "TYPE")]
    even_on: Vec<String>,

    /// Also over directories of the system (/etc, /usr …), whose files the machine needs to start
    #[arg(long)]
    force: bool,

    /// Mount at every start with these options: write a systemd unit, yours or, as root, the
    /// machine's; mounts nothing now
    #[arg(long, group = "start", conflicts_with_all = ["foreground", "record"])]
    enable: bool,

    /// With --enable, as root: a directory that the journal, syslog and other services of the
    /// system use, as /var/log; mounted at boot before they start
    #[arg(long, requires = "enable", conflicts_with = "even_if_used")]
    system: bool,

    /// Undo --enable; what is mounted stays mounted
    #[arg(long, group = "start", conflicts_with_all = ["foreground", "record"])]
    disable: bool,

    /// With --sift: drop nothing, and show what would have been dropped (`flashsift status`). With
    /// --enable and --disable: print what they would write and remove, and change nothing
    #[arg(long)]
    dry_run: bool,

    #[arg(long, hide = true, conflicts_with_all = ["foreground", "start"])]
    in_background: bool,
}

/// `words` are those of the command line, without the program.
pub(crate) fn run(args: &Args, words: &[OsString]) -> anyhow::Result<()> {
    let mut wanted = wanted(args)?;
    if args.dry_run && !args.enable && !args.disable && wanted.sift.is_none() {
        let why =
            "--dry-run needs --sift, --enable or --disable: a mount without them drops nothing";
        return Err(Usage(why.to_owned()).into());
    }
    if args.even_if_used && !wanted.delayed.is_empty() {
        let why = "--even-if-used lets other processes change BACKING, and files whose syncs are \
                   delayed may be changed through the mount alone; leave out one of the two";
        return Err(Usage(why.to_owned()).into());
    }
    let mountpoint = args.mountpoint.as_ref().unwrap_or(&args.backing);
    if args.disable {
        return boot::disable(mountpoint, args.dry_run);
    }
    if args.enable {
        let words = words_of(args)?;
        return boot::enable(&args.backing, mountpoint, &words, args.system, args.dry_run);
    }
    let sift = wanted.sift.as_ref().map(|sift| sift::sifter_of(sift, mountpoint)).transpose()?;
    // Reads and writes by passthrough do not reach us, so a recording needs a mount without it.
    wanted.passthrough &= args.record.is_none();
    if !args.foreground && !args.in_background {
        let says = background::start(words)?;
        // With -q, the mount is enough.
        if tracing::enabled!(tracing::Level::INFO) {
            eprint!("{}", show::lines(&says, false));
        }
        return Ok(());
    }
    let record = args.record.as_deref().map(std::path::absolute).transpose()?.map(recorded_in);
    Ok(daemon::run(daemon::Options {
        even_if_used: args.even_if_used,
        even_on: args.even_on.clone(),
        force: args.force,
        sift,
        reload: args.config.is_some().then(|| reload(args.clone(), mountpoint.clone())),
        record,
        record_meaning: args.record_meaning,
        in_background: args.in_background,
        ..options(args.backing.clone(), mountpoint.clone(), wanted)
    })?)
}

/// The options of a mount in the background that only its settings describe.
fn options(backing: PathBuf, mountpoint: PathBuf, wanted: settings::Wanted) -> daemon::Options {
    daemon::Options {
        backing,
        mountpoint,
        even_if_used: false,
        even_on: Vec::new(),
        lose_at_most: wanted.lose_at_most,
        force: false,
        budget_bytes: wanted.budget_bytes,
        settled: wanted.write_through,
        delayed: wanted.delayed,
        allow_other: wanted.allow_other,
        kernel: wanted.options,
        serving: Serving {
            passthrough: wanted.passthrough,
            xattrs: wanted.xattrs,
            threads: wanted.threads,
        },
        sift: None,
        trial: None,
        reload: None,
        record: None,
        record_meaning: false,
        metrics: wanted.metrics,
        foreground: wanted.foreground,
        to_journal: crate::logging::to_journal,
        before_message: crate::logging::before_next,
        in_background: true,
    }
}

/// A mount in place that only its settings describe.
struct Mounting {
    backing: PathBuf,
    mountpoint: PathBuf,
    wanted: settings::Wanted,
    sift: Option<(LiveSifter, SiftWish)>,
    trial: Option<StoredTrial>,
}

/// Mounts in the background process, and returns after the unmount.
fn mount_with(mounting: Mounting) -> anyhow::Result<()> {
    let Mounting { backing, mountpoint, wanted, sift, trial } = mounting;
    Ok(daemon::run(daemon::Options { sift, trial, ..options(backing, mountpoint, wanted) })?)
}

/// Reads the settings: of the command line, and of the file.
fn wanted(args: &Args) -> anyhow::Result<settings::Wanted> {
    let in_file =
        args.config.as_deref().map(settings::Settings::from_file).transpose()?.unwrap_or_default();
    let mut settings = args.settings.clone().or(in_file);
    if args.dry_run && !args.enable && !args.disable {
        settings = settings.rehearsing();
    }
    Ok(settings.wanted(rustix::process::geteuid().is_root())?)
}

/// Reads the sifter again from the file of --config.
fn reload(args: Args, mountpoint: PathBuf) -> daemon::Reload {
    Box::new(move || {
        let read = || -> anyhow::Result<_> {
            wanted(&args)?.sift.map(|sift| sift::sifter_of(&sift, &mountpoint)).transpose()
        };
        read().map_err(|why| format!("{why:#}"))
    })
}

/// The options of this mount as words of a command line that works in every directory.
fn words_of(args: &Args) -> anyhow::Result<Vec<OsString>> {
    let mut words: Vec<OsString> =
        args.settings.arguments().into_iter().map(OsString::from).collect();
    if let Some(config) = &args.config {
        words.extend(["--config".into(), std::path::absolute(config)?.into()]);
    }
    words.extend(args.even_on.iter().map(|kind| format!("--even-on={kind}").into()));
    let flags = [(args.even_if_used, "--even-if-used"), (args.force, "--force")];
    words.extend(flags.into_iter().filter(|(given, _)| *given).map(|(_, word)| word.into()));
    Ok(words)
}

fn recorded_in(path: PathBuf) -> StartRecording {
    Box::new(move |mountpoint, began| {
        Ok(Box::new(recording::Recording::begin(&path, mountpoint, began)?))
    })
}

/// Internal: send a tmpfs to the process that started this one
#[derive(clap::Args)]
pub(crate) struct TmpfsArgs {
    /// Size in bytes
    bytes: u64,

    /// Reading changes no access times
    #[arg(long)]
    noatime: bool,
}

/// Creates a tmpfs and sends it to the caller over a socket, as [`user_tmpfs`] describes.
pub(crate) fn send_tmpfs(args: &TmpfsArgs) -> anyhow::Result<()> {
    user_tmpfs::send(args.bytes, args.noatime).context("a tmpfs")
}

/// Internal: unlink the names of dropped files through the kernel
#[derive(clap::Args)]
pub(crate) struct AnnounceArgs {
    /// The mounted directory
    point: PathBuf,

    /// Device number of the mount
    dev: u64,
}

/// Reports dropped names to the kernel until standard input ends.
pub(crate) fn announce(args: &AnnounceArgs) -> anyhow::Result<()> {
    daemon::announce::serve(&args.point, args.dev).with_context(|| args.point.display().to_string())
}
