//! The sifter of a mount: from settings to the machine, and `flashsift sift`.

use super::{control, settings::SiftWanted};
use crate::{compare::sift::models, usage::Usage};
use anyhow::{Context, bail};
use flashsift_core::{
    names::escape,
    sift::{
        Droppable, Selection,
        live::LiveSifter,
        profile::{self, CacheProfile},
    },
};
use flashsift_mount::{Errno, SiftWish};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// Switch the sifter of a mount: drop files, or only show what would be dropped
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
  flashsift sift reset ~/.cache           end a suspension after wrong drops")]
pub(crate) struct Args {
    /// The sifter's task from now on
    #[arg(value_parser = ["on", "off", "dry-run", "reset"])]
    wish: String,

    /// Mounts; default: all that have a sifter
    mountpoint: Vec<PathBuf>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let all = args.mountpoint.is_empty();
    let mut done = 0;
    for mount in control::chosen(&args.mountpoint)? {
        if all && !control::may_order(&mount) {
            continue;
        }
        let wish = SiftWish::of(&args.wish);
        let result = match wish {
            Some(wish) => flashsift_mount::control::sift(&mount, wish),
            None => flashsift_mount::control::reset_sifter(&mount),
        };
        let at = || mount.point.display().to_string();
        match result {
            Ok(()) => {
                done += 1;
                tracing::info!("{}: {}", at(), says(&args.wish));
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
        _ => "the sifter is not suspended any more",
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
        sifter,
        droppable: droppable(wanted, mountpoint)?,
        models: models.into_iter().map(|(name, model)| (name, Arc::new(model))).collect(),
        budget_bytes: wanted.budget_bytes,
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
