//! The sifter of a mount: from settings to the machine, and `flashsift sift`.

use super::{control, explain, foreground, settings::SiftWanted, trial};
use crate::{compare::sift::models, usage::Usage};
use anyhow::{Context, bail};
use flashsift_events::names::escape;
use flashsift_files::sift::{
    Droppable, SelectedSifter, Selection,
    live::LiveSifter,
    profile::{self, CacheProfile},
};
use flashsift_mount::{Errno, SiftWish};
use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    sync::Arc,
};

/// Switch a mount's sifter, explain it, measure what it saves
///
/// The mount needs a sifter (`flashsift mount --sift`). Files that wait in the sifter's RAM are
/// written to flash first. A file on flash is never dropped. After the next mount the mode is
/// that of its options again.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flashsift sift dry-run ~/.cache         drop nothing, count what would be
  flashsift status ~/.cache               see it
  flashsift sift on ~/.cache              drop files from now on
  flashsift sift off ~/.cache             files wait in RAM as without a sifter
  flashsift sift reset ~/.cache           forget which dropped files came back
  flashsift sift explain '*/thumbnails/*' why each was dropped or kept
  flashsift sift trial ~/.cache --for 6d  what it saves")]
pub(crate) struct Args {
    #[command(subcommand)]
    order: Order,
}

#[derive(clap::Subcommand)]
enum Order {
    /// Drop files of caches from now on
    On(Mounts),
    /// Drop nothing from now on; new files wait in RAM
    Off(Mounts),
    /// Drop nothing, and show in `flashsift status` what would be dropped
    DryRun(Mounts),
    /// Forget which dropped files came back: the limit on them (--fetch-again) counts anew
    Reset(Mounts),
    Explain(explain::Args),
    Trial(Box<trial::Args>),
    Foreground(foreground::Args),
}

#[derive(clap::Args)]
struct Mounts {
    /// Mounts; default: all that have a sifter
    mountpoint: Vec<PathBuf>,
}

/// `words` are those of the command line, without the program.
pub(crate) fn run(args: &Args, words: &[OsString]) -> anyhow::Result<()> {
    match &args.order {
        Order::On(mounts) => switch("on", &mounts.mountpoint),
        Order::Off(mounts) => switch("off", &mounts.mountpoint),
        Order::DryRun(mounts) => switch("dry-run", &mounts.mountpoint),
        Order::Reset(mounts) => switch("reset", &mounts.mountpoint),
        Order::Explain(args) => explain::run(args),
        Order::Trial(args) => trial::run(args, words),
        Order::Foreground(args) => foreground::run(args),
    }
}

fn switch(order: &str, mountpoints: &[PathBuf]) -> anyhow::Result<()> {
    let all = mountpoints.is_empty();
    let mut done = 0;
    for mount in control::chosen(mountpoints)? {
        if all && !control::may_order(&mount) {
            continue;
        }
        let result = match SiftWish::new(order) {
            Some(wish) => flashsift_mount::control::sift(&mount, wish),
            None => flashsift_mount::control::reset_sifter(&mount),
        };
        let at = || mount.point.display().to_string();
        match result {
            Ok(()) => {
                done += 1;
                tracing::info!("{}: {}", at(), says(order));
            }
            Err(why) if why.raw_os_error() == Some(Errno::NODATA.raw_os_error()) => {
                if !all {
                    bail!("{} has no sifter; mount it with --sift controller", at());
                }
            }
            Err(why) => return Err(why).with_context(at),
        }
    }
    match done {
        0 => bail!("no mount has a sifter; mount with --sift controller"),
        _ => Ok(()),
    }
}

fn says(wish: &str) -> &'static str {
    match wish {
        "on" => "files of caches are dropped from now on, where the sifter says so",
        "off" => "nothing is dropped from now on; new files wait in RAM",
        "dry-run" => "nothing is dropped; `flashsift status` shows what would be",
        _ => "it is forgotten which dropped files came back",
    }
}

/// Reads a sifter with its parameters.
pub(super) fn selected(text: &str) -> Result<Selection, Usage> {
    let sifter = Selection::parse(text).map_err(|why| Usage(format!("sift: {why}")))?;
    match sifter.is_offline() {
        true => Err(Usage(format!(
            "sift: {} knows the rest of a trace, and so exists in simulation only; choose another \
             one, such as controller",
            sifter.label()
        ))),
        false => Ok(sifter),
    }
}

/// Builds what a mount on this directory needs.
pub(super) fn sifter_of(
    wanted: &SiftWanted,
    mountpoint: &Path,
) -> anyhow::Result<(LiveSifter, SiftWish)> {
    let sifter = selected(&wanted.sifter)?;
    let models = models(std::slice::from_ref(&sifter))?;
    let chosen = LiveSifter {
        models: models.into_iter().map(|(name, model)| (name, Arc::new(model))).collect(),
        again: wanted.again,
        ..LiveSifter::new(sifter, droppable(wanted, mountpoint)?, wanted.budget_bytes)
    };
    chosen.build(chosen.budget_bytes).map_err(|why| Usage(format!("sift: {why}")))?;
    Ok((chosen, wanted.wish))
}

fn droppable(wanted: &SiftWanted, mountpoint: &Path) -> anyhow::Result<Droppable> {
    let profiles: Vec<CacheProfile> = match &wanted.profiles[..] {
        [] => profile::checked(),
        [none] if none == "none" => Vec::new(),
        names => profile::named(names).map_err(|why| Usage(format!("profiles: {why}")))?,
    };
    let point = std::path::absolute(mountpoint)
        .and_then(|point| point.canonicalize().or(Ok(point)))
        .with_context(|| mountpoint.display().to_string())?;
    let point = escape(point.as_os_str().as_encoded_bytes());
    Ok(Droppable::by_profiles(&profiles, &wanted.drop, &wanted.pin).below(&point))
}
