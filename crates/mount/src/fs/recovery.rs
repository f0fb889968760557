//! Applying the entries of a log after a crash, before anything else is done in BACKING.

use super::beneath::{HIDDEN, LOG, hidden_name, open_beneath};
use super::copying::{hole_from, in_parts};
use super::types::io;
use flashsift_events::page::PAGE_BYTES;
use flashsift_events::structure::Extents;
use flashsift_files::delayed::record::{
    Attributes, FileChange, FileRef, HeldPages, InodeId, Loss, Record, VERSION_BYTES,
    is_of_other_version, recovery,
};
use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, StatxFlags, Timespec,
    Timestamps, Uid,
};
use rustix::io::{Errno, Result};
use std::ffi::OsStr;
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;

/// The directories of BACKING that a recovery uses.
#[derive(Clone, Copy)]
pub(crate) struct Directories<'a> {
    pub(crate) root: BorrowedFd<'a>,
    pub(crate) hidden: BorrowedFd<'a>,
    pub(crate) temps: BorrowedFd<'a>,
}

/// Does what the log says that a crash left. Returns the number of epochs that were applied.
///
/// # Errors
///
/// The log cannot be read, or a step of it fails. The log is still there then. `EBADMSG`: flash
/// lost bytes of it, without which files would be a mixture of epochs. Nothing was changed.
pub(crate) fn recover(dirs: Directories<'_>) -> Result<usize> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let log = match rustix::fs::openat(dirs.hidden, LOG, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(0),
        log => File::from(log?),
    };
    let mut beginning = [0; VERSION_BYTES];
    if log.read_exact_at(&mut beginning, 0).is_ok() && is_of_other_version(&beginning) {
        tracing::error!(
            "after a crash, {}/{LOG} can only be applied by the version of flashsift that wrote \
             it: mount the directory with that once",
            HIDDEN
        );
        return Err(Errno::PROTONOSUPPORT);
    }
    let found = recovery(|at, into: &mut [u8]| match log.read_exact_at(into, at) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => io(Err(error)),
    })?;
    if let Some(damage) = found.damage {
        let (at, later) = (damage.at, damage.later);
        let log = format!("{}/{LOG}", HIDDEN);
        let is = format!(
            "{log}: the log of delayed syncs is damaged at byte {at}, before {later} whole entries"
        );
        match damage.loss {
            Loss::Nothing => tracing::warn!("{is}, which have everything that it had"),
            Loss::Unknown => tracing::warn!(
                "{is}: power failed while it began anew, or flash lost it; in the second case \
                 files may be a mixture of epochs"
            ),
            Loss::Mixture => {
                tracing::error!(
                    "{is}: files that were changed lately would be a mixture of epochs. Nothing \
                     was changed. Take these files from a backup, or as they are, and move {log} \
                     away; then mount again"
                );
                return Err(Errno::BADMSG);
            }
        }
    }
    for logged in &found.pages {
        if let Some(file) = open(dirs, &logged.file, &found.hidden)? {
            write_pages(&file, &log, &logged.runs, &[])?;
            logged.attributes.map_or(Ok(()), |wanted| set_attributes(&file, wanted))?;
        }
    }
    for entry in &found.entries {
        apply(dirs, &log, &entry.record, entry.pages_at)?;
    }
    let all = rustix::fs::openat(
        dirs.root,
        ".",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    rustix::fs::syncfs(&all)?;
    match found.damage {
        None => rustix::fs::unlinkat(dirs.hidden, LOG, AtFlags::empty())?,
        Some(_) => keep_damaged(dirs)?,
    }
    Ok(found.entries.len())
}

/// Keeps a damaged log, beside those that were kept before.
fn keep_damaged(dirs: Directories<'_>) -> Result<()> {
    let mut number = 1;
    loop {
        let kept = format!("{LOG}.damaged-{number}");
        let flags = RenameFlags::NOREPLACE;
        match rustix::fs::renameat_with(dirs.hidden, LOG, dirs.hidden, &*kept, flags) {
            Err(Errno::EXIST) => number += 1,
            Err(error) => return Err(error),
            Ok(()) => {
                let hidden = HIDDEN;
                tracing::warn!(
                    "the damaged log is kept as {hidden}/{kept}: delete it when you like"
                );
                return Ok(());
            }
        }
    }
}

fn apply(dirs: Directories<'_>, log: &File, record: &Record, pages_at: u64) -> Result<()> {
    for change in &record.changes {
        let hidden: Vec<u64> = record.places.iter().map(|place| place.hidden).collect();
        if let Some(file) = open(dirs, &change.file, &hidden)? {
            apply_change(&file, change, || {
                let runs = record.runs(pages_at);
                let of_file = runs.filter(|(of, ..)| of.file.id == change.file.id);
                let runs: Vec<HeldPages> = of_file.map(|(_, held)| held).collect();
                // The new pages may lie behind the end of the file as it is now.
                if io(file.metadata())?.len() < change.size {
                    rustix::fs::ftruncate(&file, change.size)?;
                }
                write_pages(&file, log, &runs, &[])?;
                zero(&file, &change.blank)
            })?;
        }
    }
    for place in &record.places {
        let hidden = hidden_name(place.hidden);
        let Some((dir, name)) = parent(dirs, &place.path)? else { continue };
        match rustix::fs::renameat(dirs.temps, &*hidden, &dir, name) {
            // It has its name already.
            Err(Errno::NOENT) => {}
            done => done?,
        }
        remove_hidden(dirs.temps, &hidden)?;
    }
    for removal in &record.removals {
        let Some((dir, name)) = parent(dirs, &removal.path)? else { continue };
        remove(&dir, name, removal.ino)?;
    }
    Ok(())
}

/// A rename between two names of one file does nothing.
pub(super) fn remove_hidden(temps: BorrowedFd<'_>, hidden: &str) -> Result<()> {
    match rustix::fs::unlinkat(temps, hidden, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        done => done,
    }
}

/// Removes a name that this file has. Returns a descriptor of the file.
pub(super) fn remove(dir: impl AsFd, name: &OsStr, ino: u64) -> Result<Option<OwnedFd>> {
    let file = match open_beneath(&dir, name, OFlags::PATH) {
        Ok(file) => file,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error),
    };
    let stat = rustix::fs::fstat(&file)?;
    if stat.st_ino != ino || FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    rustix::fs::unlinkat(&dir, name, AtFlags::empty())?;
    Ok(Some(file))
}

/// Changes a file as the entry says. `write` writes its pages.
pub(super) fn apply_change(
    file: &File,
    change: &FileChange,
    write: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let size = io(file.metadata())?.len();
    if let Some(cut) = change.cut.filter(|cut| *cut < size) {
        rustix::fs::ftruncate(file, cut)?;
    }
    write()?;
    if io(file.metadata())?.len() != change.size {
        rustix::fs::ftruncate(file, change.size)?;
    }
    change.attributes.map_or(Ok(()), |wanted| set_attributes(file, wanted))
}

/// Writes pages that the log holds, except what is behind the end of the file. Holes keep the space
/// of these ranges, bytes.
pub(super) fn write_pages<'a>(
    file: &File,
    log: &File,
    runs: impl IntoIterator<Item = &'a HeldPages>,
    reserved: &[Range<u64>],
) -> Result<()> {
    let size = io(file.metadata())?.len();
    let runs: Vec<_> = runs.into_iter().collect();
    for run in runs.iter().filter(|run| run.is_hole()) {
        let [start, end] = [run.pages.start, run.pages.end].map(|at| at.saturating_mul(PAGE_BYTES));
        if start < size {
            clear(file, start..end, size, reserved)?;
        }
    }
    for (range, at) in runs.into_iter().flat_map(HeldPages::parts) {
        let from = range.start;
        in_parts(from..range.end.min(size), |to, bytes| {
            io(log.read_exact_at(bytes, at + (to - from)))?;
            io(file.write_all_at(bytes, to))
        })?;
    }
    Ok(())
}

/// Makes a range a hole, but for the reserved ranges in it, which are zeroed.
fn clear(file: &File, range: Range<u64>, size: u64, reserved: &[Range<u64>]) -> Result<()> {
    let mut at = range.start;
    for kept in reserved {
        let kept = kept.start.max(at)..kept.end.min(range.end);
        if kept.is_empty() {
            continue;
        }
        if at < kept.start {
            punch(file, at..kept.start, size)?;
        }
        let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(file, flags, kept.start, kept.end - kept.start) {
            Err(Errno::OPNOTSUPP) => punch(file, kept.clone(), size)?,
            done => done?,
        }
        at = kept.end;
    }
    if at < range.end { punch(file, at..range.end, size) } else { Ok(()) }
}

/// Makes a range a hole, also where it is behind the end of the file, which has this size. A file
/// system that knows no holes gets zeros.
fn punch(file: &File, range: Range<u64>, size: u64) -> Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match rustix::fs::fallocate(file, flags, range.start, range.end - range.start) {
        Err(Errno::OPNOTSUPP) => {
            in_parts(range.start..range.end.min(size), |at, zeros| io(file.write_all_at(zeros, at)))
        }
        done => done,
    }
}

/// Zeroes these pages, where the file has data.
fn zero(file: &File, pages: &Extents) -> Result<()> {
    let size = io(file.metadata())?.len();
    for run in pages.iter() {
        let range = run.start.saturating_mul(PAGE_BYTES)..run.end.saturating_mul(PAGE_BYTES);
        let (mut at, end) = (range.start, range.end.min(size));
        while at < end {
            let hole = hole_from(file, at, end)?.unwrap_or(end..end);
            if hole.start > at {
                punch(file, at..hole.start, size)?;
            }
            at = hole.end;
        }
    }
    Ok(())
}

/// Gives a file its owner, mode and time of write.
pub(super) fn set_attributes(file: &File, wanted: Attributes) -> Result<()> {
    let has = rustix::fs::fstat(file)?;
    if (has.st_uid, has.st_gid) != (wanted.uid, wanted.gid) {
        let (uid, gid) = (Uid::from_raw(wanted.uid), Gid::from_raw(wanted.gid));
        rustix::fs::fchown(file, Some(uid), Some(gid))?;
    }
    // After the owner, whose change clears setuid.
    if rustix::fs::fstat(file)?.st_mode != wanted.mode {
        rustix::fs::fchmod(file, Mode::from_raw_mode(wanted.mode))?;
    }
    set_modified(file, wanted.modified)
}

/// Gives a file its time of write, unless it has it.
pub(super) fn set_modified(file: &File, modified: (i64, u32)) -> Result<()> {
    let has = rustix::fs::fstat(file)?;
    let (tv_sec, ns) = modified;
    if (has.st_mtime, has.st_mtime_nsec as u32) == modified {
        return Ok(());
    }
    let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let modified = Timespec { tv_sec, tv_nsec: i64::from(ns) };
    rustix::fs::futimens(file, &Timestamps { last_access: omit, last_modification: modified })
}

/// When a file was created, ns since 1970; 0: the file system does not say.
pub(super) fn born_ns(file: impl AsFd) -> u64 {
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::BTIME);
    stat.ok()
        .filter(|stat| StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME))
        .map_or(0, |stat| {
            let s = u64::try_from(stat.stx_btime.tv_sec).unwrap_or_default();
            s.wrapping_mul(1_000_000_000).wrapping_add(stat.stx_btime.tv_nsec.into())
        })
}

/// The directory that a path leads to, and the name in it; `None`: it is gone.
fn parent<'a>(dirs: Directories<'_>, path: &'a [u8]) -> Result<Option<(OwnedFd, &'a OsStr)>> {
    let at = path.iter().rposition(|byte| *byte == b'/');
    let (dir, name) = match at {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&b"."[..], path),
    };
    // Without `O_PATH`: a link on the way ends the search.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    match open_beneath(dirs.root, OsStr::from_bytes(dir), flags) {
        Ok(dir) => Ok(Some((dir, OsStr::from_bytes(name)))),
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
            tracing::warn!("{}: its directory is gone", path.escape_ascii());
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Opens a file under one of its paths, or under the hidden name that it waits with.
fn open(dirs: Directories<'_>, file: &FileRef, hidden: &[u64]) -> Result<Option<File>> {
    for path in &file.paths {
        if let Some((dir, name)) = parent(dirs, path)?
            && let Some(found) = open_as(&dir, name, file.id)?
        {
            return Ok(Some(found));
        }
    }
    for number in hidden {
        let hidden = hidden_name(*number);
        if let Some(found) = open_as(dirs.temps, OsStr::new(&hidden), file.id)? {
            return Ok(Some(found));
        }
    }
    // A later epoch has removed it.
    Ok(None)
}

/// Opens a name if this file has it.
fn open_as(dir: impl AsFd, name: &OsStr, id: InodeId) -> Result<Option<File>> {
    match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat)
            if stat.st_ino == id.ino
                && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {}
        Ok(_) | Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error),
    }
    let file = open_in_any_case(&dir, name)?;
    let is_it = rustix::fs::fstat(&file)?.st_ino == id.ino && born_ns(&file) == id.born_ns;
    Ok(is_it.then_some(file))
}

/// Opens a regular file for reading and writing, whatever its mode.
pub(super) fn open_in_any_case(dir: impl AsFd, name: &OsStr) -> Result<File> {
    let opened = || open_beneath(&dir, name, OFlags::RDWR | OFlags::NONBLOCK);
    match opened() {
        // Only root may open what permissions forbid.
        Err(Errno::ACCESS) => {
            let mode = rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode;
            let mode = Mode::from_raw_mode(mode);
            rustix::fs::chmodat(&dir, name, mode | Mode::RUSR | Mode::WUSR, AtFlags::empty())?;
            let file = opened();
            rustix::fs::chmodat(&dir, name, mode, AtFlags::empty())?;
            file
        }
        other => other,
    }
    .map(File::from)
}
