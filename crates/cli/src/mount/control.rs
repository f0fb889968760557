//! `status`, `settle` and `unmount`: requests to a mount through extended attributes of its
//! directory.

use super::status;
use crate::records;
use anyhow::{Context, anyhow, bail};
use flashsift_host::mounts::{self, Mount};
use flashsift_mount::{
    Status,
    attach::{
        KIND, copies,
        place::{self, Left},
        undo::{self, Allows, Connection},
    },
    control,
};
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
///
/// It contains file data in bytes since the mount began: as applications requested it, as plain
/// ext4 would have written it (an estimate by the kernel's delayed write-back), as it reached flash
/// through flashsift, and the difference. Names, attributes and the journal are only in the figure
/// of the whole device. Figures a day follow after an hour.
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

    /// Print the same as CSV: a row for each object
    #[arg(long, conflicts_with = "json")]
    csv: bool,
}

/// Write all files in RAM back now
///
/// Returns when they are durable. Use it before the machine sleeps, or before you copy BACKING.
#[derive(clap::Args)]
pub(crate) struct FlushArgs {
    /// Mounts to write back; default: all
    mountpoint: Vec<PathBuf>,
}

/// Unmount a mount of flashsift; all files are then in BACKING
///
/// Writes all files back, unmounts, and returns when the daemon has ended. A mount in use stays,
/// and the processes that use it are named. If other mount namespaces, such as those of containers,
/// have copies of it, the processes there are named; the copies end with the daemon.
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
        tracing::warn!("not changed by a remount, only by mounting anew: {stays}");
    }
    Ok(())
}

/// The mounts on these directories, or all mounts of flashsift.
pub(super) fn chosen(points: &[PathBuf]) -> anyhow::Result<Vec<Mount>> {
    if points.is_empty() {
        return Ok(mounts::all()?.into_iter().filter(|mount| mount.kind == KIND).collect());
    }
    points.iter().map(|point| ours(point)).collect()
}

/// Whether the caller may give orders to this mount: root, or the user of the mount.
pub(super) fn may_order(mount: &Mount) -> bool {
    let us = rustix::process::geteuid();
    us.is_root() || mount.user.is_none_or(|(user, _)| user == us.as_raw())
}

/// Returns whether a mount of flashsift lies on this directory.
pub(super) fn chosen_at(point: &Path) -> anyhow::Result<bool> {
    Ok(mounts::at(point)?.is_some_and(|mount| mount.kind == KIND))
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
    let json = args.json || args.csv;
    if mounts.is_empty() && !json {
        tracing::info!("nothing is mounted by flashsift");
    }
    let mut failed = Ok(());
    let mut out = records::Output::rows(args.json, args.csv);
    for mount in &mounts {
        let at = || mount.point.display().to_string();
        match control::patiently(mount, control::status) {
            Ok(found) => show(&mut out, mount, &found, json)?,
            // Another user's, which was not asked for.
            Err(why)
                if args.mountpoint.is_empty() && why.kind() == io::ErrorKind::PermissionDenied => {}
            Err(why) if mounts::is_dead(&why) => {
                let undo =
                    format!("its process was killed; `flashsift unmount {}` removes it", at());
                failed = after(failed, Err(anyhow!("{}: dead: {undo}", at())));
            }
            Err(why) => failed = after(failed, Err(why).with_context(at)),
        }
    }
    out.finish()?;
    failed
}

/// The first error of several mounts, with which the command ends. Later ones are printed.
fn after(failed: anyhow::Result<()>, done: anyhow::Result<()>) -> anyhow::Result<()> {
    match (failed, done) {
        (Ok(()), done) => done,
        (failed, Ok(())) => failed,
        (failed, Err(more)) => {
            tracing::error!("{more:#}");
            failed
        }
    }
}

fn show(out: &mut impl Write, mount: &Mount, status: &Status, json: bool) -> anyhow::Result<()> {
    if json {
        serde_json::to_writer(
            &mut *out,
            &Row { mountpoint: &mount.point, backing: backing(mount), status },
        )?;
        writeln!(out)?;
    } else {
        write!(out, "{}", status::in_words(&mount.point, backing(mount), status))?;
    }
    Ok(out.flush()?)
}

/// Writes back what several mounts have in RAM, all at once: a mount that fails or does not answer
/// does not keep the others from writing back.
pub(crate) fn flush(args: &FlushArgs) -> anyhow::Result<()> {
    let mut mounts = chosen(&args.mountpoint)?;
    if mounts.is_empty() {
        tracing::info!("nothing is mounted by flashsift");
    }
    if args.mountpoint.is_empty() {
        mounts.retain(may_order);
    }
    // A dead mount has nothing to write back.
    let all = args.mountpoint.is_empty();
    let settle = |mount: &Mount| match control::settle(mount) {
        Err(why) if all && mounts::is_dead(&why) => Ok(()),
        done => done.with_context(|| format!("{}: writing back", mount.point.display())),
    };
    thread::scope(|scope| {
        let settling: Vec<_> = mounts
            .iter()
            .map(|mount| scope.spawn(move || noticing(mount, || settle(mount))))
            .collect();
        let done = settling
            .into_iter()
            .map(|one| one.join().unwrap_or_else(|_| bail!("a thread that writes back panicked")));
        done.fold(Ok(()), after)
    })
}

/// Waits for a mount; prints a message if that takes long, with the reason where it is known.
fn noticing<T>(mount: &Mount, wait: impl FnOnce() -> T) -> T {
    let (ended, has_ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            if has_ended.recv_timeout(MOMENT) == Err(mpsc::RecvTimeoutError::Timeout) {
                let point = mount.point.display();
                match control::patiently(mount, control::status) {
                    Ok(_) => tracing::info!("{point}: writing back"),
                    Err(why) => tracing::warn!("{point}: waiting until it is written back: {why}"),
                }
            }
        });
        let done = wait();
        drop(ended);
        done
    })
}

pub(crate) fn unmount(args: &UnmountArgs) -> anyhow::Result<()> {
    let each = args.mountpoint.iter().map(|point| unmount_all(point, args.lazy));
    each.fold(Ok(()), after)
}

/// Unmounts every mount of ours on this directory, down to the first that is not ours: each may
/// hide another.
fn unmount_all(point: &Path, lazy: bool) -> anyhow::Result<()> {
    let point = ours(point)?.point;
    let mut unmounted = Vec::new();
    while let Some(mount) = mounts::at(&point)?.filter(|mount| mount.kind == KIND) {
        if control::is_dead(&mount) {
            undo::unmount(&point, true)
                .with_context(|| format!("unmounting {}", point.display()))?;
            log_freed(&point);
        } else {
            let id = mount.id;
            match unmount_one(mount, lazy) {
                Ok(taken) => unmounted.push(taken),
                // Another process has unmounted it meanwhile.
                Err(_) if mounts::at(&point)?.is_none_or(|mount| mount.id != id) => {
                    tracing::info!("{}: unmounted by another process", point.display());
                }
                Err(why) => return Err(why),
            }
        }
    }
    // A daemon ends when none of its mounts is left, so all are unmounted before the first wait.
    for mount in &unmounted {
        match lazy {
            true => tracing::info!(
                "{}: unmounted; flashsift ends when no process uses it any more",
                point.display()
            ),
            false => await_end(mount)?,
        }
    }
    Ok(())
}

/// Logs that the dead mount of a killed process was removed.
fn log_freed(mountpoint: &Path) {
    tracing::info!("{}: unmounted the dead mount of a killed process", mountpoint.display());
}

/// A mount that has been taken away.
struct Taken {
    mount: Mount,
    /// The directory that its daemon writes to, by its present name.
    backing: PathBuf,
    /// `None` for a plain user without fusectl.
    connection: Option<Connection>,
}

fn unmount_one(mount: Mount, lazy: bool) -> anyhow::Result<Taken> {
    let backing = control::backing(&mount);
    let connection = Connection::new(&mount).ok();
    let point = &mount.point;
    noticing(&mount, || control::write_back(&mount)).with_context(|| {
        let backing = backing.display();
        format!("{} stays mounted: its files cannot be written back to {backing}", point.display())
    })?;
    let at = || format!("unmounting {}", point.display());
    if lazy {
        undo::unmount(point, true).with_context(at)?;
        return Ok(Taken { mount, backing, connection });
    }
    let is_idle = || control::is_in_use(&mount).is_ok_and(|used| !used);
    if let Some(found) = undo::unmount_unused(point, is_idle).with_context(at)? {
        bail!(
            "{} is in use and stays mounted. --lazy unmounts it nevertheless.\n{}",
            point.display(),
            match found.users.is_empty() {
                true if rustix::process::geteuid().is_root() =>
                    "No process has a file open there: a mount or a loop device may use it"
                        .to_owned(),
                true => "Only root can see which processes use it".to_owned(),
                false => place::listed(&found).trim_end().to_owned(),
            }
        );
    }
    Ok(Taken { mount, backing, connection })
}

/// Waits until the daemon of a mount that is unmounted has ended.
fn await_end(Taken { mount, backing, connection }: &Taken) -> anyhow::Result<()> {
    let point = mount.point.display();
    if let Some(other) = mounts::all()?.into_iter().find(|other| other.is_copy_of(mount)) {
        let other = other.point.display();
        tracing::info!("{point}: unmounted; the same file system is still mounted on {other}");
        return Ok(());
    }
    if let Some(connection) = connection.as_ref().filter(|connection| connection.is_there()) {
        let holders = copies::holders_of(mount)?;
        if holders.is_empty() {
            tracing::info!(
                "{point}: unmounted; what still uses it gets errors (ENOTCONN) from now on"
            );
        } else {
            tracing::info!(
                "{point}: unmounted here. Other mount namespaces have copies, in which programs \
                 get errors (ENOTCONN) from now on:\n{}",
                copies::listed(&holders).trim_end()
            );
        }
        // Its daemon writes back what came through them, and ends.
        connection.cut_off().with_context(|| format!("ending the copies of {point}"))?;
    }
    match until_free(backing) {
        Ok(Left::Nothing) => {
            tracing::info!("{point}: unmounted; every file is in {}", backing.display());
            Ok(())
        }
        Ok(Left::Remains) => bail!(
            "{point} is unmounted, but flashsift ended with an error; see the journal or {}",
            backing.join(place::HIDDEN).join("log").display()
        ),
        // Its file system was unmounted here (`umount --lazy`), and everything was written back.
        Err(why) if why.kind() == io::ErrorKind::NotFound => {
            tracing::info!(
                "{point}: unmounted; {} is no directory here any more",
                backing.display()
            );
            Ok(())
        }
        Err(why) => Err(why).with_context(|| backing.display().to_string()),
    }
}

/// Waits until no daemon has this BACKING; prints a message if that takes long.
fn until_free(backing: &Path) -> io::Result<Left> {
    let (sender, ended) = mpsc::channel();
    let waited = backing.to_owned();
    thread::spawn(move || sender.send(place::wait_until_free(&waited)));
    match ended.recv_timeout(MOMENT) {
        Err(_) => {
            tracing::info!("unmounted; waiting until the last files are written back");
            ended.recv().map_err(io::Error::other)?
        }
        Ok(left) => left,
    }
}
