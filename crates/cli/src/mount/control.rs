//! `status`, `settle` and `unmount`: requests to a mount through extended attributes of its
//! directory.

use crate::size;
use anyhow::{Context, bail};
use flashsift_host::mounts::{self, Mount};
use flashsift_mount::{
    Failure, Status,
    attach::{
        place::{self, KIND, Left},
        undo::{self, Allows},
    },
    daemon,
    fuse::control,
};
use rustix::io::Errno;
use serde::Serialize;
use std::{
    io::{self, Write},
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

/// A wait up to this long needs no message.
const MOMENT: Duration = Duration::from_secs(2);

/// Show the state of flashsift's mounts
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flashsift status                        every mount of flashsift
  flashsift status ~/.cache --json        one, for programs: one object a line")]
pub(crate) struct StatusArgs {
    /// Mounts to show; default: all
    mountpoint: Vec<PathBuf>,

    /// Print one JSON object for each mount, one on a line
    #[arg(long)]
    json: bool,
}

/// Write all files in RAM back now
///
/// Returns when they are durable. Use it before the machine sleeps, or before you copy BACKING.
#[derive(clap::Args)]
pub(crate) struct SettleArgs {
    /// Mounts to write back; default: all
    mountpoint: Vec<PathBuf>,
}

/// Unmount a mount of flashsift; all files are then in BACKING
///
/// Writes all files back, unmounts, and returns when the daemon has ended. A mount in use stays,
/// and the processes that use it are named.
#[derive(clap::Args)]
pub(crate) struct UnmountArgs {
    /// Mounts to end
    #[arg(required = true)]
    mountpoint: Vec<PathBuf>,

    /// Unmount also if it is in use: it leaves its place at once, and ends when no process uses it
    /// any more; this command does not wait for that
    #[arg(long)]
    lazy: bool,
}

/// Performs `-o remount` for mount(8).
pub(crate) fn remount(point: &Path, allows: &Allows, stays: &[String]) -> anyhow::Result<()> {
    let mount = ours(point)?;
    if let Err(why) = undo::remount(&mount.point, allows) {
        let open = match why.kind() {
            io::ErrorKind::ResourceBusy => "; files are open for writing",
            _ => "",
        };
        return Err(why).with_context(|| format!("remounting {}{open}", point.display()));
    }
    // mount(8) repeats the options of fstab, which may be in effect already.
    if !stays.is_empty() {
        let stays = stays.join(", ");
        eprintln!("flashsift: not changed by a remount, only by mounting anew: {stays}");
    }
    Ok(())
}

/// The mounts on these directories, or all mounts of flashsift.
fn chosen(points: &[PathBuf]) -> anyhow::Result<Vec<Mount>> {
    if points.is_empty() {
        return Ok(mounts::all()?.into_iter().filter(|mount| mount.kind == KIND).collect());
    }
    points.iter().map(|point| ours(point)).collect()
}

fn ours(point: &Path) -> anyhow::Result<Mount> {
    let resolved = mounts::resolved(point).with_context(|| point.display().to_string())?;
    match mounts::at(&resolved)? {
        Some(mount) if mount.kind == KIND => Ok(mount),
        _ => bail!("{} is no mount of flashsift", point.display()),
    }
}

fn backing(mount: &Mount) -> &Path {
    Path::new(&mount.source)
}

#[derive(Serialize)]
struct Row<'a> {
    mountpoint: &'a Path,
    backing: &'a Path,
    #[serde(flatten)]
    status: &'a Status,
}

pub(crate) fn status(args: &StatusArgs) -> anyhow::Result<()> {
    let mounts = chosen(&args.mountpoint)?;
    if mounts.is_empty() && !args.json {
        eprintln!("flashsift: nothing is mounted by flashsift");
    }
    let mut failed = Ok(());
    for mount in &mounts {
        let at = || mount.point.display().to_string();
        match control::status(&mount.point) {
            Ok(status) => show(mount, &status, args.json)?,
            Err(why) if mounts::is_dead(&why) => {
                let undo =
                    format!("its process was killed; `flashsift unmount {}` removes it", at());
                failed = failed.and_then(|()| bail!("{}: dead: {undo}", at()));
            }
            Err(why) => failed = failed.and(Err(why).with_context(at)),
        }
    }
    failed
}

fn show(mount: &Mount, status: &Status, json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer(
            &mut out,
            &Row { mountpoint: &mount.point, backing: backing(mount), status },
        )?;
        writeln!(out)?;
    } else {
        write!(out, "{}", in_words(mount, status))?;
    }
    Ok(out.flush()?)
}

fn in_words(mount: &Mount, status: &Status) -> String {
    let files = |count| size::counted(count, "file");
    let on = match backing(mount) == mount.point {
        true => "in place".to_owned(),
        false => format!("written back to {}", backing(mount).display()),
    };
    let mut text = format!("{}, {on}\n", mount.point.display());
    let mut line = |label: &str, value: String| text.push_str(&format!("  {label:<15}{value}\n"));
    let (used, budget) = (size::bytes(status.ram_bytes), size::bytes(status.budget_bytes));
    line("in RAM", format!("{}, {used} of {budget}", files(status.files_in_ram)));
    line("never written", format!("{}, created and deleted in RAM", files(status.never_written)));
    line(
        "written back",
        format!("{}, {}", files(status.settled), size::bytes(status.settled_bytes)),
    );
    line("write-through", files(status.born_settled));
    line("passthrough", if status.passthrough { "yes" } else { "no" }.to_owned());
    if status.faults > 0 {
        line(
            "FAULTS",
            format!(
                "{} inside flashsift: please report them, the log has more",
                size::count(status.faults)
            ),
        );
    }
    if !status.failing.is_empty() {
        line("FAILING", format!("{} cannot be written back", files(status.failing_files)));
        for Failure { path, step, error, .. } in &status.failures {
            line("", format!("{path}: {step}: {error}"));
        }
        let more = status.failing_files.saturating_sub(status.failures.len() as u64);
        if more > 0 {
            line("", format!("and {}", size::counted(more, "more file")));
        }
    }
    text
}

pub(crate) fn settle(args: &SettleArgs) -> anyhow::Result<()> {
    let mut failed = Ok(());
    // A mount that fails does not keep the others from writing back; a dead one has nothing to
    // write back.
    let all = args.mountpoint.is_empty();
    for mount in chosen(&args.mountpoint)?.iter().filter(|mount| !(all && undo::is_dead(mount))) {
        let done = control::settle(&mount.point)
            .with_context(|| format!("{}: writing back", mount.point.display()));
        failed = failed.and(done);
    }
    failed
}

pub(crate) fn unmount(args: &UnmountArgs) -> anyhow::Result<()> {
    args.mountpoint.iter().try_for_each(|point| unmount_one(point, args.lazy))
}

fn unmount_one(point: &Path, lazy: bool) -> anyhow::Result<()> {
    let mount = ours(point)?;
    let point = &mount.point;
    if undo::is_dead(&mount) {
        if daemon::free_dead(point)? {
            super::log_freed(point);
        }
        return Ok(());
    }
    match control::settle(point) {
        // Not even root may send requests to another user's mount. After the unmount its daemon
        // writes back on its own.
        Err(Errno::ACCESS) if rustix::process::geteuid().is_root() => {}
        settled => settled.with_context(|| {
            let backing = backing(&mount).display();
            format!(
                "{} stays mounted: its files cannot be written back to {backing}",
                point.display()
            )
        })?,
    }
    let at = || format!("unmounting {}", point.display());
    if lazy {
        undo::unmount(point, true).with_context(at)?;
        return Ok(());
    }
    if let Some(found) = undo::unmount_unused(point).with_context(at)? {
        bail!(
            "{} is in use and stays mounted. --lazy unmounts it nevertheless.\n{}",
            point.display(),
            match found.users.is_empty() {
                true => "Only root can see which processes use it".to_owned(),
                false => place::listed(&found).trim_end().to_owned(),
            }
        );
    }
    match until_free(backing(&mount)) {
        Ok(Left::Nothing) => Ok(()),
        Ok(Left::Remains) => bail!(
            "{} is unmounted, but flashsift ended with an error; see the journal or {}",
            point.display(),
            backing(&mount).join(place::HIDDEN).join("log").display()
        ),
        Err(why) => Err(why).with_context(|| backing(&mount).display().to_string()),
    }
}

/// Waits until no daemon has this BACKING; prints a message if that takes long.
fn until_free(backing: &Path) -> io::Result<Left> {
    let (sender, ended) = mpsc::channel();
    let waited = backing.to_owned();
    thread::spawn(move || sender.send(place::wait_until_free(&waited)));
    match ended.recv_timeout(MOMENT) {
        Err(_) => {
            eprintln!("flashsift: unmounted; waiting until the last files are written back");
            ended.recv().map_err(io::Error::other)?
        }
        Ok(left) => left,
    }
}
