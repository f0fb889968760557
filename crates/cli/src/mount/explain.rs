//! `flashsift sift explain`: the reason for which a mount's sifter dropped, wrote or keeps a file.

use super::control::chosen;
use crate::{compare::sift::explained::print_numbers, records, size, text};
use anyhow::{Context, bail};
use flashsift_events::{names::escape, show};
use flashsift_files::sift::{
    Explanation, Intent,
    live::{LiveDecision, LiveFate},
};
use flashsift_host::mounts::Mount;
use flashsift_mount::control;
use serde::Serialize;
use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};
use wildmatch::WildMatch;

/// Decisions that the text shows.
const SHOWN: usize = 20;

/// Explain why a mount's sifter dropped, wrote or keeps a file
///
/// A file that is in the sifter's RAM is judged by what the sifter knows now. Of files that have
/// left it, also dropped ones, each mount remembers its last 2048 decisions.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flashsift sift explain ~/.cache/pip/http-v2/0/1/a    also a dropped file
  flashsift sift explain '*/Cache_Data/*_0'         all files with such a path
  flashsift sift explain '*' --json                     one decision a line")]
pub(crate) struct Args {
    /// A file, or a pattern of paths; `*` stands for any characters
    file: PathBuf,

    /// Print one JSON object for each decision, one on a line
    #[arg(long)]
    json: bool,

    /// Print the same as CSV: a row for each object
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

/// A decision, or the state of a file in RAM, as one line of JSON.
#[derive(Serialize)]
struct Line<'a> {
    schema: u32,
    mountpoint: &'a Path,
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<&'a LiveDecision>,
    /// The file is in RAM, and this is what the sifter would do.
    #[serde(skip_serializing_if = "Option::is_none")]
    in_ram: Option<&'a Explanation>,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let mounts = chosen(&[])?;
    if mounts.is_empty() {
        bail!("nothing is mounted by flashsift");
    }
    let path = match args.file.to_string_lossy().starts_with('*') {
        true => args.file.clone(),
        false => whole(&args.file)?,
    };
    let pattern = WildMatch::new(&escape(path.as_os_str().as_encoded_bytes()));
    let json = args.json || args.csv;
    let mut out = records::Output::rows(args.json, args.csv);
    let mut found = 0;
    let inside = |mount: &&Mount| path.starts_with(&mount.point);
    let asked: Vec<&Mount> = match mounts.iter().filter(inside).collect::<Vec<_>>() {
        none if none.is_empty() => mounts.iter().collect(),
        some => some,
    };
    for mount in asked {
        let at = || mount.point.display().to_string();
        // The first question, as it has an end.
        let decisions = match control::patiently(mount, control::decisions) {
            Ok(decisions) => decisions,
            // Another user's, or one that does not answer, which was not asked for.
            Err(why) if !inside(&mount) => {
                if why.kind() != io::ErrorKind::PermissionDenied {
                    tracing::warn!("{}: {why}", at());
                }
                continue;
            }
            Err(why) => return Err(why).with_context(at),
        };
        if inside(&mount) && path.is_file() {
            let held =
                control::explain(mount, &path).with_context(|| path.display().to_string())?;
            if let Some(explanation) = held {
                found += 1;
                show_held(&mut out, mount, &path, &explanation, json)?;
            }
        }
        let root = escape(mount.point.as_os_str().as_encoded_bytes());
        let root = root.trim_end_matches('/');
        let full = |one: &LiveDecision| format!("{root}{}", one.name);
        let matching: Vec<&LiveDecision> =
            decisions.iter().filter(|one| pattern.matches(&full(one))).collect();
        found += matching.len();
        if json {
            for one in matching {
                let line = Line {
                    schema: 1,
                    mountpoint: &mount.point,
                    path: full(one),
                    decision: Some(one),
                    in_ram: None,
                };
                serde_json::to_writer(&mut out, &line)?;
                writeln!(out)?;
            }
            continue;
        }
        let now_us = control::patiently(mount, control::status)
            .ok()
            .and_then(|status| status.writes)
            .map_or(0, |writes| writes.mounted_s * 1_000_000);
        for one in matching.iter().take(SHOWN) {
            show(&mut out, &full(one), one, now_us)?;
        }
        if matching.len() > SHOWN {
            let more = size::count((matching.len() - SHOWN) as u64);
            writeln!(out, "… and {more} older decisions; --json has all of them")?;
        }
    }
    out.finish()?;
    if found == 0 && !json {
        bail!(
            "no sifter of a mount has decided on {} since its mount began, as far as it \
             remembers; it decides on files of its profiles and patterns alone (docs/profiles.md)",
            args.file.display()
        );
    }
    Ok(())
}

/// Returns the path from the root on; the file itself may be gone.
fn whole(file: &Path) -> anyhow::Result<PathBuf> {
    let path = std::path::absolute(file).with_context(|| file.display().to_string())?;
    let Some((directory, name)) = path.parent().zip(path.file_name()) else { return Ok(path) };
    Ok(directory.canonicalize().map(|directory| directory.join(name)).unwrap_or(path))
}

fn show_held(
    out: &mut impl Write,
    mount: &Mount,
    path: &Path,
    explanation: &Explanation,
    json: bool,
) -> anyhow::Result<()> {
    if json {
        let path = path.display().to_string();
        let in_ram = Some(explanation);
        let line = Line { schema: 1, mountpoint: &mount.point, path, decision: None, in_ram };
        serde_json::to_writer(&mut *out, &line)?;
        return Ok(writeln!(out)?);
    }
    let intent = match explanation.intent {
        Intent::Drop => "in RAM; dropped when it is its turn",
        Intent::Write => "in RAM; written to flash when it is its turn",
        Intent::Stay => "in RAM, and stays there for now",
    };
    writeln!(out, "{}: {intent}", show::name(&path.display().to_string()))?;
    let bytes = path.metadata().map_or(0, |facts| facts.len());
    print_numbers(out, explanation, bytes, text::columns().unwrap_or(100))
}

fn show(
    out: &mut impl Write,
    path: &str,
    decided: &LiveDecision,
    now_us: u64,
) -> anyhow::Result<()> {
    let ago = size::duration(now_us.saturating_sub(decided.at_us));
    let fate = match decided.fate {
        LiveFate::Dropped => "dropped",
        LiveFate::Written => "written to flash",
        LiveFate::Pending => "on its way to flash, or not removable yet",
    };
    let again = decided.created_again_after_us.map_or_else(String::new, |after_us| {
        format!("; created again after {}", size::duration(after_us))
    });
    let path = show::name(path);
    writeln!(out, "{path} ({}): {fate} {ago} ago{again}", size::bytes(decided.bytes))?;
    match &decided.explanation {
        Some(explanation) => {
            print_numbers(out, explanation, decided.bytes, text::columns().unwrap_or(100))
        }
        None => Ok(()),
    }
}
