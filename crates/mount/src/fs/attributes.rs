//! Changes of a file's owner, permissions, size and times.

use super::Fs;
use super::beneath::proc_path;
use super::namespace::Namespace;
use super::table::Node;
use super::types::{Attr, Changes, Ino, Time};
use rustix::fs::{AtFlags, FileType, Gid, Mode, Timestamps, Uid};
use rustix::io::{Errno, Result};
use rustix::process::geteuid;
use std::os::fd::AsFd;
use std::path::Path;

const SET_ID: Mode = Mode::SUID.union(Mode::SGID);

impl Fs {
    /// Performs `chmod`, `chown`, `truncate` and `utimensat`.
    ///
    /// # Errors
    ///
    /// `ESTALE` if the file is not known; `EROFS` if BACKING is read-only; for a new size the
    /// errors of a write; any error of BACKING or of the store.
    pub fn set_attr(&self, tid: u32, ino: Ino, changes: &Changes) -> Result<Attr> {
        self.backing.refuse_if_read_only()?;
        let file_state = {
            let mut table = self.table();
            if let Some(attr) = table.change_removed_directory(ino, changes) {
                return Ok(attr);
            }
            self.make_before(&mut table, ino, changes)?;
            self.delayed.file_state(&mut table, ino)?
        };
        if let Some(size) = changes.size {
            self.resize(self.decider.begin(tid), ino, size)?;
        }
        if changes.mode.is_some_and(|mode| mode & 0o6000 != 0) {
            // BACKING clears these bits when another user writes.
            file_state.set_may_wait([false; 2]);
        }
        if file_state.waiting().is_some() && with_stripped(changes, &self.attr(ino)?).has_any() {
            self.mover.write_waiting_first(ino, &file_state)?;
        }
        self.delayed.join_group(ino, &file_state)?;
        let epoch = file_state.is_in_group().then(|| self.delayed.gate.read());
        let gate = file_state.gate.read();
        let mut table = self.table();
        let place = file_state.place();
        let attr = table.attr_of(ino)?;
        let changes = with_stripped(changes, &attr);
        if table.is_in_ram(ino) || table.is_new_directory(ino) {
            let (uid, gid) = (changes.uid.map(Uid::from_raw), changes.gid.map(Gid::from_raw));
            if uid.is_some() || gid.is_some() {
                self.store.chown(ino, uid, gid)?;
            }
            if let Some(mode) = changes.mode {
                self.store.chmod(ino, Mode::from_raw_mode(mode))?;
            }
            let kept = |asked: Option<Option<Time>>| match asked {
                Some(Some(time)) => self.backing.time_kept(time).map(|time| Some(Some(time))),
                other => Ok(other),
            };
            let (atime, mtime) = (kept(changes.atime)?, kept(changes.mtime)?);
            if let Some(times) = times(&Changes { atime, mtime, ..changes }) {
                self.store.set_times(ino, &times)?;
            }
            if !changes.has_any() && changes.size.is_none() {
                self.store.touch(ino)?;
            }
            file_state.changed();
            if let Some(delayed) = place.residence().delayed() {
                delayed.touched();
                self.delayed.delayed_changed();
            }
        } else if let Some(file) = place.file() {
            apply(file, &changes)?;
        } else {
            let path = table.path_of(ino)?;
            apply(&path, &changes)?;
            table.close_dir(ino);
            if changes.mtime.is_some() {
                table.dir_times.remove(&ino);
            }
        }
        drop(place);
        drop(gate);
        drop(epoch);
        let attr = table.attr_of(ino);
        table.release(ino, file_state);
        attr
    }

    /// Checks that this user may clear setuid and setgid of a file without another change: its
    /// owner may, and any process while one has the file open for writing.
    ///
    /// # Errors
    ///
    /// `EPERM` if not; `ESTALE` if the file is not known.
    pub(crate) fn permits_strip(&self, uid: u32, ino: Ino) -> Result<()> {
        let mut table = self.table();
        let attr = table.attr_of(ino)?;
        let writes =
            || table.node(ino).and_then(Node::file_state).is_some_and(|it| it.has_writers());
        let may = uid == 0 || uid == attr.uid || !is_stripped(&attr) || writes();
        if may { Ok(()) } else { Err(Errno::PERM) }
    }

    /// Makes a directory that waits in RAM, and those in it, before a change that BACKING has to
    /// see: files would get its group; or we, without root's rights, could make nothing in it
    /// later.
    fn make_before(&self, table: &mut Namespace, ino: Ino, changes: &Changes) -> Result<()> {
        let Some(mode) = changes.mode.map(Mode::from_raw_mode) else { return Ok(()) };
        let closed = !mode.contains(Mode::WUSR | Mode::XUSR) && !geteuid().is_root();
        if closed || mode.contains(Mode::SGID) { table.make_directories_in(ino) } else { Ok(()) }
    }
}

impl Changes {
    /// Whether it is more than a new size.
    fn has_any(&self) -> bool {
        self.mode.or(self.uid).or(self.gid).is_some() || self.atime.or(self.mtime).is_some()
    }

    /// These attributes after all changes but that of the size.
    pub(crate) fn made_to(&self, attr: Attr, now: Time) -> Attr {
        let time = |asked: Option<Option<Time>>, was| asked.map_or(was, |time| time.unwrap_or(now));
        Attr {
            mode: self.mode.map_or(attr.mode, |mode| attr.mode & !0o7777 | mode & 0o7777),
            uid: self.uid.unwrap_or(attr.uid),
            gid: self.gid.unwrap_or(attr.gid),
            atime: time(self.atime, attr.atime),
            mtime: time(self.mtime, attr.mtime),
            ctime: now,
            ..attr
        }
    }
}

/// Clears setuid and setgid if the change requires it.
fn with_stripped(changes: &Changes, attr: &Attr) -> Changes {
    // Setgid without group execution is cleared too. The kernel would keep it for members of the
    // group, but we do not know the caller's groups.
    match changes.strip && changes.mode.is_none() && is_stripped(attr) {
        true => Changes { mode: Some((attr.permissions() - SET_ID).as_raw_mode()), ..*changes },
        false => *changes,
    }
}

/// Whether a write by another user changes the mode of the file. Directories keep setgid.
fn is_stripped(attr: &Attr) -> bool {
    attr.kind() == FileType::RegularFile && attr.permissions().intersects(SET_ID)
}

/// Sets owner, permissions and times, in an order in which no call undoes another.
fn apply(file: &impl AsFd, changes: &Changes) -> Result<()> {
    let here = Path::new("");
    // A change of nothing is one: of `ctime`.
    let is_empty = !changes.has_any() && changes.size.is_none();
    if is_empty || changes.uid.is_some() || changes.gid.is_some() {
        let (uid, gid) = (changes.uid.map(Uid::from_raw), changes.gid.map(Gid::from_raw));
        rustix::fs::chownat(file, here, uid, gid, AtFlags::EMPTY_PATH)?;
    }
    if let Some(mode) = changes.mode {
        rustix::fs::chmodat(
            rustix::fs::CWD,
            proc_path(file),
            Mode::from_raw_mode(mode),
            AtFlags::empty(),
        )?;
    }
    if let Some(times) = times(changes) {
        rustix::fs::utimensat(file, here, &times, AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}

fn times(changes: &Changes) -> Option<Timestamps> {
    let time = |asked: Option<Option<Time>>| {
        let (tv_sec, tv_nsec) = match asked {
            None => (0, rustix::fs::UTIME_OMIT),
            Some(None) => (0, rustix::fs::UTIME_NOW),
            Some(Some(time)) => (time.s, i64::from(time.ns)),
        };
        rustix::fs::Timespec { tv_sec, tv_nsec }
    };
    (changes.atime.is_some() || changes.mtime.is_some()).then(|| Timestamps {
        last_access: time(changes.atime),
        last_modification: time(changes.mtime),
    })
}
