//! Applying the entries of a log after a crash, before anything else is done in BACKING.

use super::super::backing::open_beneath;
use super::{LOG, hidden_name, io};
use flashsift_core::delayed::record::{FileChange, FileRef, Record, entries};
use flashsift_core::page::PAGE_BYTES;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid};
use rustix::io::{Errno, Result};
use std::ffi::OsStr;
use std::fs::File;
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
/// The log cannot be read, or a step of it fails. The log is still there then.
pub(crate) fn recover(dirs: Directories<'_>) -> Result<usize> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let log = match rustix::fs::openat(dirs.hidden, LOG, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(0),
        log => File::from(log?),
    };
    let found = entries(|at, into: &mut [u8]| match log.read_exact_at(into, at) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => io(Err(error)),
    })?;
    for entry in &found {
        apply(dirs, &log, &entry.record, entry.pages_at)?;
    }
    let all = rustix::fs::openat(
        dirs.root,
        ".",
        OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    rustix::fs::syncfs(&all)?;
    rustix::fs::unlinkat(dirs.hidden, LOG, AtFlags::empty())?;
    Ok(found.len())
}

fn apply(dirs: Directories<'_>, log: &File, record: &Record, pages_at: u64) -> Result<()> {
    for change in &record.changes {
        if let Some(file) = open(dirs, &change.file, record)? {
            apply_change(&file, log, record, change, pages_at)?;
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

/// Changes a file as the entry says whose pages are in the log from this offset on.
pub(super) fn apply_change(
    file: &File,
    log: &File,
    record: &Record,
    change: &FileChange,
    pages_at: u64,
) -> Result<()> {
    let size = io(file.metadata())?.len();
    if let Some(cut) = change.cut.filter(|cut| *cut < size) {
        rustix::fs::ftruncate(file, cut)?;
    }
    for (of, run, at) in record.runs(pages_at) {
        if of.file.ino != change.file.ino {
            continue;
        }
        let mut bytes = vec![0; PAGE_BYTES as usize];
        for page in run.clone() {
            io(log.read_exact_at(&mut bytes, at + (page - run.start) * PAGE_BYTES))?;
            let from = page * PAGE_BYTES;
            let len = change.size.saturating_sub(from).min(PAGE_BYTES);
            io(file.write_all_at(&bytes[..len as usize], from))?;
        }
    }
    if io(file.metadata())?.len() != change.size {
        rustix::fs::ftruncate(file, change.size)?;
    }
    let Some(wanted) = change.attributes else { return Ok(()) };
    let has = rustix::fs::fstat(file)?;
    if (has.st_uid, has.st_gid) != (wanted.uid, wanted.gid) {
        let (uid, gid) = (Uid::from_raw(wanted.uid), Gid::from_raw(wanted.gid));
        rustix::fs::fchown(file, Some(uid), Some(gid))?;
    }
    // After the owner, whose change clears setuid.
    if rustix::fs::fstat(file)?.st_mode != wanted.mode {
        rustix::fs::fchmod(file, Mode::from_raw_mode(wanted.mode))?;
    }
    let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
    let (tv_sec, ns) = wanted.modified;
    let modified = Timespec { tv_sec, tv_nsec: i64::from(ns) };
    rustix::fs::futimens(file, &Timestamps { last_access: omit, last_modification: modified })
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
fn open(dirs: Directories<'_>, file: &FileRef, record: &Record) -> Result<Option<File>> {
    for path in &file.paths {
        if let Some((dir, name)) = parent(dirs, path)?
            && let Some(found) = open_as(&dir, name, file.ino)?
        {
            return Ok(Some(found));
        }
    }
    for place in &record.places {
        let hidden = hidden_name(place.hidden);
        if let Some(found) = open_as(dirs.temps, OsStr::new(&hidden), file.ino)? {
            return Ok(Some(found));
        }
    }
    // A later epoch has removed it.
    Ok(None)
}

/// Opens a name if this file has it.
fn open_as(dir: impl AsFd, name: &OsStr, ino: u64) -> Result<Option<File>> {
    match rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat)
            if stat.st_ino == ino
                && FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {}
        Ok(_) | Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error),
    }
    let opened = || open_beneath(&dir, name, OFlags::RDWR | OFlags::NONBLOCK);
    let file = match opened() {
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
    }?;
    let is_it = rustix::fs::fstat(&file)?.st_ino == ino;
    Ok(is_it.then(|| File::from(file)))
}
