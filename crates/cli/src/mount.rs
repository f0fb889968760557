//! `flashsift mount`: new files live in RAM before they settle to flash.

use std::{ffi::OsString, path::PathBuf};

pub(crate) mod background;
pub(crate) mod control;
mod events;
pub(crate) mod helper;
pub(crate) mod namespace;
mod notify;
mod serve;
mod settings;

/// Hold new files in RAM before they settle in a directory
///
/// What programs write to MOUNTPOINT lives in RAM for a while, and then settles in BACKING, an ordinary directory that is readable
/// without flashsift. A file that is deleted before reaches flash never. What a program syncs settles at once and is as
/// durable as without.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flashsift mount ~/.cache/chromium ~/.cache/chromium      in place, until it is unmounted
  flashsift unmount ~/.cache/chromium                      everything is in the directory, and flashsift is gone
  sudo flashsift mount /data/app /mnt/app --settle-after 10m --budget 64MiB --settled '*.log'
  sudo mount -t fuse.flashsift /data/app /mnt/app -o settle_after=10m,budget=64M
  sudo systemctl enable --now flashsift@data-app           in place on /data/app, from every start

A file of the same words: settle-after = \"10m\", budget = \"64MiB\", settled = [\"*.log\"], no-passthrough = true, options =
[\"noatime\"]; the command line goes before it. What is promised, and what a crash can take: SEMANTICS.md.")]
pub(crate) struct Args {
    /// The directory in which files settle; nobody else changes it meanwhile
    backing: PathBuf,

    /// Where its files are seen; BACKING again for in place
    mountpoint: PathBuf,

    #[command(flatten)]
    settings: settings::Settings,

    /// More of these settings, in TOML
    #[arg(long, value_name = "F.toml")]
    config: Option<PathBuf>,

    /// Record what is asked of the mount as a trace; without passthrough then, so that all is seen
    #[arg(long, value_name = "T.parquet")]
    record: Option<PathBuf>,

    /// Stay in the foreground, for service managers and for looking on
    #[arg(long)]
    foreground: bool,

    /// Also where somebody uses a directory: who has files open there keeps them, past flashsift
    #[arg(long)]
    even_if_used: bool,

    /// BACKING may lie on a file system of this type, which is refused otherwise: tmpfs, overlay
    #[arg(long, value_name = "TYPE")]
    even_on: Vec<String>,

    #[arg(long, hide = true, conflicts_with = "foreground")]
    in_background: bool,
}

/// `words` are those of the command line, of which the first is `mount`.
pub(crate) fn run(args: &Args, words: &[OsString]) -> anyhow::Result<()> {
    let in_file = args.config.as_deref().map(settings::Settings::from_file).transpose()?.unwrap_or_default();
    let mut wanted = args.settings.clone().or(in_file).wanted(rustix::process::geteuid().is_root())?;
    // What the kernel reads and writes itself nobody sees.
    wanted.passthrough &= args.record.is_none();
    if !args.foreground && !args.in_background {
        eprint!("{}", background::start(words)?);
        return Ok(());
    }
    if args.in_background {
        background::detach()?;
    }
    serve::run(args, wanted)
}
