//! `flashsift sift foreground`: the program that the user looks at, for sifters that ask for it.

use super::control;
use crate::usage::Usage;
use anyhow::{Context, bail};
use std::path::PathBuf;

/// Report which program is in the foreground
///
/// A sifter may keep the files of this program in RAM longer than those of others (cachesifter does
/// so). A window manager or a launcher calls this when the user changes the program. `flashsift
/// mount --foreground-from` finds it by itself where a control group or logind knows it.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flashsift sift foreground chromium         the name, as in /proc/PID/comm
  flashsift sift foreground --none           no program is in the foreground")]
pub(crate) struct Args {
    /// Name of the program, of which the first 15 bytes are compared
    #[arg(required_unless_present = "none", conflicts_with = "none")]
    program: Option<String>,

    /// No program is in the foreground
    #[arg(long)]
    none: bool,

    /// Mounts; default: all of yours
    #[arg(long = "mount", value_name = "MOUNTPOINT")]
    mountpoint: Vec<PathBuf>,
}

/// Length of a name in `/proc/PID/comm`, bytes.
const COMM_BYTES: usize = 15;

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let program = args.program.as_deref().unwrap_or_default();
    if program.contains('/') || (program.is_empty() && !args.none) {
        let why = format!("{program:?} is no program's name; write it as /proc/PID/comm has it");
        return Err(Usage(why).into());
    }
    let end = (0..=program.len().min(COMM_BYTES)).rev().find(|at| program.is_char_boundary(*at));
    let program = &program[..end.unwrap_or(0)];
    let all = args.mountpoint.is_empty();
    let mut done = 0;
    for mount in control::chosen(&args.mountpoint)? {
        if all && !control::may_order(&mount) {
            continue;
        }
        flashsift_mount::control::set_foreground(&mount, program)
            .with_context(|| mount.point.display().to_string())?;
        done += 1;
    }
    match done {
        0 => bail!("there is no mount; `flashsift mount` makes one"),
        _ => Ok(()),
    }
}
