//! The namespace: names, links, lookups and whiteouts of the mount, over those of BACKING.
//!
//! It is the [`Table`] together with the directories, the store and the decider that it stands on:
//! it looks names up, finds the file of a number, and reports to the decider what names it met and
//! lost. It moves no file. One lock protects all of it.

use super::backing::{Backing, OpenDir, keep_time};
use super::beneath::{HIDDEN, proc_path};
use super::caller::{User, as_user, with_exact_mode};
use super::decider::{At, Decider};
use super::residence::{Checkpoint, FileState, Residence};
use super::store::Store;
use super::table::{InRam, LINKS, Table};
use super::temporary::is_temporary;
use super::types::{Attr, Changes, Ino, Name, ROOT, Time};
use flashsift_events::event::{Action, FileId};
use parking_lot::{Mutex, MutexGuard};
use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, Stat, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid,
};
use rustix::io::{Errno, Result};
use std::ffi::OsStr;
use std::fs::File;
use std::num::NonZero;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct Namespace {
    table: Table,
    /// Files that are not needed any more.
    closing: Vec<Arc<File>>,
    pub(crate) backing: Arc<Backing>,
    pub(crate) store: Arc<Store>,
    pub(crate) decider: Arc<Decider>,
}

impl Deref for Namespace {
    type Target = Table;

    fn deref(&self) -> &Table {
        &self.table
    }
}

impl DerefMut for Namespace {
    fn deref_mut(&mut self) -> &mut Table {
        &mut self.table
    }
}

/// The namespace, as long as it is locked.
pub(crate) struct Locked<'a> {
    // The order of the fields is that of their ends.
    names: MutexGuard<'a, Namespace>,
    closing: Vec<Arc<File>>,
}

impl<'a> Locked<'a> {
    pub(crate) fn new(names: &'a Mutex<Namespace>) -> Locked<'a> {
        Locked { names: names.lock(), closing: Vec::new() }
    }
}

impl Deref for Locked<'_> {
    type Target = Namespace;

    fn deref(&self) -> &Namespace {
        &self.names
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Namespace {
        &mut self.names
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.closing = std::mem::take(&mut self.names.closing);
    }
}

fn now() -> Time {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    Time { s: now.tv_sec, ns: now.tv_nsec as u32 }
}

impl Namespace {
    pub(crate) fn new(
        table: Table,
        backing: Arc<Backing>,
        store: Arc<Store>,
        decider: Arc<Decider>,
    ) -> Namespace {
        Namespace { table, closing: Vec::new(), backing, store, decider }
    }

    /// Closes a file as soon as the namespace is not locked any more. If the kernel writes pages of
    /// a file without a name, its last close waits for the device.
    pub(crate) fn close_later(&mut self, file: Option<Arc<File>>) {
        self.closing.extend(file);
    }

    /// The objects below it.
    pub(crate) fn stands_on(&self) -> (Arc<Backing>, Arc<Store>, Arc<Decider>) {
        (self.backing.clone(), self.store.clone(), self.decider.clone())
    }

    /// The inode number of a name; creates its node if there is none.
    pub(crate) fn find(&mut self, parent: Ino, name: &OsStr) -> Result<Ino> {
        if let Some(in_ram) = self.in_ram(parent, name) {
            return Ok(in_ram.ino);
        }
        if let Some(ino) = self.new_directory(parent, name) {
            return Ok(ino);
        }
        let stat = self.in_backing(parent, name)?.ok_or(Errno::NOENT)?;
        let ino = self.settled(stat.st_ino);
        if self.name(ino, parent, &Name::from(name))
            && let Some(file) = self.file(ino)
        {
            // The event stream may not know the name yet. The thread is not known here.
            let at = self.decider.begin(0);
            let path = self.writes((parent, name));
            self.decider.emit_name(at, path, |name| Action::Bind { file, name });
        }
        Ok(ino)
    }

    /// The object with this name in BACKING, whether it is hidden or not. Makes a directory there
    /// that waits in RAM.
    pub(crate) fn in_backing(&mut self, parent: Ino, name: &OsStr) -> Result<Option<Stat>> {
        let ours = (parent == ROOT && name == HIDDEN) || is_temporary(name);
        if ours || self.is_whiteout(parent, name) {
            return Ok(None);
        }
        if let Some(ino) = self.new_directory(parent, name) {
            self.make_directory(ino)?;
        }
        if self.is_new_directory(parent) {
            return Ok(None);
        }
        let dir = self.dir(parent)?;
        match self.backing.stat(&dir, name) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Counts a lookup by the kernel, and returns the attributes.
    pub(crate) fn looked_up(&mut self, ino: Ino) -> Result<Attr> {
        let attr = self.attr_of(ino);
        if attr.is_err() || !self.count_lookup(ino) {
            self.drop_unused(ino);
        }
        attr
    }

    /// Attributes of a file, with the times that BACKING can keep: they stay the same when the file
    /// is written back.
    pub(crate) fn attr_of(&mut self, ino: Ino) -> Result<Attr> {
        let attr = self.full_attr_of(ino)?;
        Ok(attr.with_times_of(self.backing.granularity_ns()))
    }

    /// The attributes of a directory that was removed while a process has it open.
    pub(crate) fn removed_directory(&self, ino: Ino) -> Option<Attr> {
        let Residence::Gone(last) = self.node(ino)?.residence() else { return None };
        (last.kind() == FileType::Directory).then(|| **last)
    }

    /// Changes them; `None`: there is no such directory.
    pub(crate) fn change_removed_directory(&mut self, ino: Ino, changes: &Changes) -> Option<Attr> {
        let attr = changes.made_to(self.removed_directory(ino)?, now());
        self.set_last_attributes(ino, attr);
        Some(attr)
    }

    fn full_attr_of(&mut self, ino: Ino) -> Result<Attr> {
        let node = self.node(ino).ok_or(Errno::STALE)?;
        let open = node.file_state().and_then(|file_state| file_state.place().file().cloned());
        let waiting = node.file_state().and_then(|file_state| file_state.waiting());
        let links = node.names.len() as u32;
        match node.residence().clone() {
            Residence::Ram(_) | Residence::HandedOver => {
                Ok(Attr { nlink: links, ..Attr::new(ino, &self.store.stat(ino)?) })
            }
            Residence::Delayed(file) => {
                let attr = Attr::new(ino, &self.store.stat(ino)?);
                let blocks = attr.blocks + file.blocks_in_base();
                Ok(Attr { nlink: links, blocks, ..attr })
            }
            Residence::NewDirectory => {
                let block_bytes = rustix::fs::fstatvfs(&self.backing.root)?.f_frsize;
                let nlink = 2 + self.new_directories_in(ino).len() as u32;
                let attr = Attr::new(ino, &self.store.stat(ino)?);
                Ok(Attr { nlink, size: block_bytes, blocks: block_bytes / 512, ..attr })
            }
            Residence::Gone(attr) => Ok(match (waiting, open) {
                (Some(waiting), _) => Attr { nlink: 0, ..waiting.attr(ino)? },
                (None, Some(file)) => {
                    Attr { nlink: 0, ..Attr::new(ino, &rustix::fs::fstat(&file)?) }
                }
                (None, None) => *attr,
            }),
            Residence::Flash(backing_ino) => {
                let mut attr = match (waiting, open) {
                    (Some(waiting), _) => waiting.attr(ino)?,
                    (None, Some(file)) => Attr::new(ino, &rustix::fs::fstat(&file)?),
                    (None, None) => Attr::new(ino, &self.stat_by_name(ino, backing_ino)?),
                };
                attr.nlink -= self.hidden_names(backing_ino).min(attr.nlink);
                if self.is_removed_dir(ino) {
                    attr.nlink = 0;
                }
                if ino == ROOT && attr.nlink > 2 && self.backing.has_hidden() {
                    // The name in our own directory is not shown.
                    attr.nlink -= 1;
                }
                if attr.nlink > 1 {
                    attr.nlink += self.new_directories_in(ino).len() as u32;
                    attr.nlink -= self.removed_dirs_in(ino).min(attr.nlink - 1);
                }
                attr.ctime = self.ctime(backing_ino, attr.ctime);
                if let Some(time) = self.dir_times.get(&ino) {
                    // A later change in BACKING counts, but no time from before the clock was set
                    // back.
                    if attr.mtime < *time || attr.mtime > now() {
                        attr.mtime = *time;
                    }
                    attr.ctime = attr.ctime.max(*time);
                }
                Ok(attr)
            }
        }
    }

    /// The `stat` of a file by the first of its names that still leads to it.
    fn stat_by_name(&mut self, ino: Ino, backing_ino: u64) -> Result<Stat> {
        if ino == ROOT {
            return rustix::fs::fstat(&self.backing.root);
        }
        self.by_name(ino, |backing, dir, name| {
            let stat = backing.stat(dir, name)?;
            Ok((stat, stat.st_ino == backing_ino))
        })
    }

    /// The result of `look` for the first of the file's names that it accepts.
    fn by_name<T>(
        &mut self,
        ino: Ino,
        look: impl Fn(&Backing, &OpenDir, &OsStr) -> Result<(T, bool)>,
    ) -> Result<T> {
        let names = self.node(ino).ok_or(Errno::STALE)?.names.clone();
        for (parent, name) in names {
            let dir = self.dir(parent)?;
            match look(&self.backing, &dir, &name) {
                Ok((found, true)) => return Ok(found),
                Ok((_, false)) | Err(Errno::NOENT | Errno::NOTDIR) => (),
                Err(error) => return Err(error),
            }
        }
        Err(Errno::STALE)
    }

    /// Makes a directory in BACKING that waits in RAM, and those that it is in. Does nothing for
    /// other files.
    ///
    /// # Errors
    ///
    /// Those of BACKING. The directory still waits then.
    pub(crate) fn make_directory(&mut self, ino: Ino) -> Result<()> {
        if !self.is_new_directory(ino) {
            return Ok(());
        }
        let names = self.node(ino).map(|node| node.names.clone()).unwrap_or_default();
        let (parent, name) = names.first().ok_or(Errno::STALE)?;
        let into = self.dir(*parent)?;
        let of_parent = self.attr_of(*parent)?;
        let was = self.store.stat(ino)?;
        // It belongs to its owner from the start, as quotas require.
        let user = User { uid: was.st_uid, gid: was.st_gid };
        let mode = Mode::from_raw_mode(was.st_mode);
        as_user(user, || with_exact_mode(|| rustix::fs::mkdirat(&into, &**name, mode)))?;
        let made = self.backing.open_dir(&into, name).and_then(|(dir, is)| {
            if (is.st_uid, is.st_gid) != (was.st_uid, was.st_gid) {
                let (uid, gid) = (Uid::from_raw(was.st_uid), Gid::from_raw(was.st_gid));
                rustix::fs::chownat(&dir, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH)?;
            }
            if is.st_mode != was.st_mode {
                rustix::fs::chmodat(CWD, proc_path(&dir.fd), mode, AtFlags::empty())?;
            }
            let time = |tv_sec, tv_nsec: u64| Timespec { tv_sec, tv_nsec: tv_nsec as i64 };
            let times = Timestamps {
                last_access: time(was.st_atime, was.st_atime_nsec),
                last_modification: time(was.st_mtime, was.st_mtime_nsec),
            };
            rustix::fs::utimensat(&dir, c"", &times, AtFlags::EMPTY_PATH)?;
            let is = rustix::fs::fstat(&dir)?;
            Ok((dir, is))
        });
        if made.is_err() {
            let _ = rustix::fs::unlinkat(&into, &**name, AtFlags::REMOVEDIR);
        }
        self.keep_times_of(*parent, &into, &of_parent);
        let (dir, is) = made?;
        self.settle_directory(ino, &was, &is);
        self.keep_open(ino, &Arc::new(dir));
        // If this fails, it takes space until the mount ends.
        let _ = self.store.remove_directory(ino);
        Ok(())
    }

    /// Restores the times of a directory of BACKING in which names have changed for us alone.
    pub(crate) fn keep_times_of(&mut self, ino: Ino, dir: impl AsFd, was: &Attr) {
        keep_time(&dir, was.mtime);
        if let Ok(is) = rustix::fs::fstat(&dir) {
            self.show_ctime(ino, was.ctime, &is);
        }
        if self.dir_times.remove(&ino).is_some() {
            self.drop_unused(ino);
        }
    }

    /// Makes this directory and those in it.
    pub(crate) fn make_directories_in(&mut self, ino: Ino) -> Result<()> {
        self.make_directory(ino)?;
        let inside: Vec<Ino> = self.new_directories_in(ino).map(|(_, ino)| *ino).collect();
        inside.into_iter().try_for_each(|ino| self.make_directory(ino))
    }

    /// Opens a directory of BACKING; `None`: it waits in RAM, and has nothing that files inherit.
    pub(crate) fn made_dir(&mut self, ino: Ino) -> Result<Option<Arc<OpenDir>>> {
        if self.is_new_directory(ino) { Ok(None) } else { self.dir(ino).map(Some) }
    }

    /// Opens a directory of BACKING, or the nearest above it that does not wait in RAM: for a copy
    /// that has no name yet. A directory is made when its first file gets its name, so that one
    /// commit has both.
    pub(crate) fn dir_for_copy(&mut self, mut ino: Ino) -> Result<Arc<OpenDir>> {
        while self.is_new_directory(ino) {
            let name = self.node(ino).and_then(|node| node.names.first());
            ino = name.ok_or(Errno::STALE)?.0;
        }
        self.dir(ino)
    }

    /// Whether names may be added to this directory; or removed, if `removes`.
    ///
    /// # Errors
    ///
    /// Those of [`OpenDir::permits`], and of opening the directory.
    pub(crate) fn permits(&mut self, ino: Ino, removes: bool) -> Result<()> {
        self.made_dir(ino)?.map_or(Ok(()), |dir| dir.permits(removes))
    }

    /// Opens a directory of BACKING. Makes it there if it waits in RAM.
    pub(crate) fn dir(&mut self, ino: Ino) -> Result<Arc<OpenDir>> {
        self.make_directory(ino)?;
        if let Some(dir) = self.open_dir(ino) {
            return Ok(dir);
        }
        let node = self.node(ino).ok_or(Errno::STALE)?;
        let backing_ino = match node.residence() {
            Residence::Flash(backing_ino) => *backing_ino,
            Residence::Gone(_) => return Err(Errno::NOENT),
            _ => return Err(Errno::NOTDIR),
        };
        let (dir, stat) = match node.names.first().cloned() {
            None if ino == ROOT => self.backing.open_root()?,
            None => return Err(Errno::STALE),
            Some((parent, name)) => {
                let parent = self.dir(parent)?;
                self.backing.open_dir(&parent, &name)?
            }
        };
        if stat.st_ino != backing_ino {
            return Err(Errno::STALE);
        }
        let dir = Arc::new(dir);
        self.keep_open(ino, &dir);
        if dir.of_overlay {
            self.keep_below(ino);
        }
        Ok(dir)
    }

    /// Lets no file in this directory be dropped, which an overlay uses: its kernel remembers the
    /// names that it saw, and answers `ESTALE` for those that another program removed.
    pub(crate) fn keep_below(&mut self, ino: Ino) {
        let name = self.node(ino).and_then(|node| node.names.first());
        let path = name.map(|(dir, name)| self.path(*dir, name)).unwrap_or_default();
        if self.decider.keep_below(&path) {
            tracing::info!("{path}/: an overlay writes there: no file in it is dropped");
        }
    }

    /// Files in RAM with a name in or below this directory.
    pub(crate) fn in_ram_below(&self, above: Ino) -> Vec<Ino> {
        let is_below = |ino: &Ino| {
            let names = self.node(*ino).map(|node| &node.names[..]).unwrap_or_default();
            names.iter().any(|(dir, _)| self.names_between(above, *dir).is_some())
        };
        self.named_in_ram().iter().copied().filter(is_below).collect()
    }

    /// Opens an object of BACKING (file, directory, link …) with `O_PATH`, to change its
    /// attributes.
    pub(crate) fn path_of(&mut self, ino: Ino) -> Result<OwnedFd> {
        self.make_directory(ino)?;
        let residence = self.residence(ino);
        let backing_ino = residence.and_then(Residence::backing_ino).ok_or(Errno::STALE)?;
        if ino == ROOT {
            return self.backing.open_path(&self.backing.root, OsStr::new("."));
        }
        self.by_name(ino, |backing, dir, name| {
            let path = backing.open_path(dir, name)?;
            let found = rustix::fs::fstat(&path)?.st_ino == backing_ino;
            Ok((path, found))
        })
    }

    /// Opens a file on flash for reading and writing.
    pub(crate) fn open_settled(&mut self, ino: Ino, backing_ino: u64) -> Result<File> {
        self.by_name(ino, |backing, dir, name| {
            let file = backing.open_file(dir, name)?;
            let found = rustix::fs::fstat(&file)?.st_ino == backing_ino;
            Ok((file, found))
        })
    }

    /// Lets go of a file on flash of which nothing waits in RAM any more, if it is not open.
    pub(crate) fn end_waiting(&mut self, ino: Ino) {
        if self.let_go_of_waiting(ino)
            && let Some(file) = self.file(ino)
        {
            self.decider.leaves_ram(file);
        }
    }

    /// Records that files in RAM came to this directory or left it.
    pub(crate) fn dir_changed(&mut self, dir: Ino) {
        if self.is_new_directory(dir) {
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            let times = Timestamps { last_access: omit, last_modification: now };
            // If this fails, it keeps the time before.
            let _ = self.store.set_times(dir, &times);
            return;
        }
        self.dir_times.insert(dir, now());
    }

    /// Gives a file in RAM a name under which BACKING may still have another file.
    pub(crate) fn name_delayed(&mut self, ino: Ino, (dir, name): (Ino, &OsStr)) -> Result<()> {
        let hides = match self.end_whiteout(dir, name) {
            true => {
                let open = self.dir(dir)?;
                match self.backing.stat(&open, name) {
                    Ok(stat) => std::num::NonZero::new(stat.st_ino),
                    // The epoch that gives it this name is being written.
                    Err(Errno::NOENT) => std::num::NonZero::new(u64::MAX),
                    Err(error) => return Err(error),
                }
            }
            false => None,
        };
        self.insert_in_ram(dir, &Name::from(name), InRam { ino, hides });
        Ok(())
    }

    /// Records that these names of a file in RAM hide a copy of it in BACKING.
    pub(crate) fn hides(&mut self, ino: Ino, names: &[(Ino, Name)], backing_ino: u64) {
        for (dir, name) in names {
            self.remove_in_ram(*dir, name);
            let in_ram = InRam { ino, hides: NonZero::new(backing_ino) };
            self.insert_in_ram(*dir, name, in_ram);
        }
    }

    /// The copy of a file in RAM under its name in BACKING, opened.
    pub(crate) fn current_checkpoint(
        &mut self,
        ino: Ino,
        file_state: &FileState,
    ) -> Option<(Checkpoint, File)> {
        let node = self.node(ino)?;
        let checkpoint =
            node.residence().checkpoint().filter(|known| known.changes == file_state.changes())?;
        let [(dir, name)] = &node.names[..] else { return None };
        let (dir, name) = (*dir, name.clone());
        let in_ram = self.in_ram(dir, &name)?;
        if in_ram.hides.map(NonZero::get) != Some(checkpoint.backing_ino) {
            return None;
        }
        let dir = self.dir(dir).ok()?;
        let file = self.backing.open_file(&dir, &name).ok()?;
        let same = rustix::fs::fstat(&file).ok()?.st_ino == checkpoint.backing_ino;
        same.then_some((checkpoint, file))
    }

    /// Whether a file in RAM has as many names, here or in BACKING, as RAM counts.
    pub(crate) fn has_many_names(&self, ino: Ino) -> bool {
        let here = self.node(ino).map_or(0, |node| node.names.len());
        let below = self.delayed_file(ino).and_then(|file| file.base_file());
        let below = below.and_then(|file| rustix::fs::fstat(&file).ok());
        here >= LINKS || below.is_some_and(|stat| stat.st_nlink as usize >= LINKS)
    }

    /// Whether every name that this file got by its write-back outlives a power cut.
    pub(crate) fn names_are_durable(&self, ino: Ino) -> bool {
        let backing_ino = self.residence(ino).and_then(Residence::backing_ino);
        backing_ino.is_none_or(|known| self.do_names_last(known, self.backing.committed_after()))
    }

    /// Removes the file in BACKING that a name in RAM hides.
    pub(crate) fn remove_hidden(&mut self, parent: Ino, name: &OsStr) -> Result<()> {
        let dir = self.dir(parent)?;
        match rustix::fs::unlinkat(&dir, name, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            other => other,
        }
    }

    /// Records that BACKING has lost a name of this file.
    pub(crate) fn lost_name(&mut self, at: At, parent: Ino, name: &OsStr, was: &Stat) {
        let ino = self.known_as(was.st_ino);
        let directory = FileType::from_raw_mode(was.st_mode) == FileType::Directory;
        if directory {
            self.temps.forget(ino);
        }
        let last = directory || was.st_nlink as u32 <= self.hidden_names(was.st_ino) + 1;
        if self.residence(ino).and_then(Residence::backing_ino) == Some(was.st_ino) {
            self.emit_lost(at, ino, (parent, name));
            self.unname(ino, parent, name);
            if last {
                if self.node(ino).is_some_and(|node| node.opens == 0) {
                    self.emit_end(at, ino);
                }
                self.vanish(ino, None, Attr::new(ino, was), None);
            }
        } else {
            let forgotten = self.node(ino).is_none();
            // The kernel has forgotten it; the event stream has not.
            if forgotten {
                self.emit_lost(at, ino, (parent, name));
            }
            if last {
                if forgotten {
                    self.emit_end(at, ino);
                }
                self.forget_number(was.st_ino);
            }
        }
    }

    /// The file's identity in the stream; a file that existed before is introduced by its names and
    /// its size.
    pub(crate) fn introduce(&mut self, at: At, ino: Ino, size: u64) -> FileId {
        if let Some(file) = self.file(ino) {
            return file;
        }
        let file = self.identify(ino);
        for (dir, name) in self.node(ino).map(|node| &node.names[..]).unwrap_or_default() {
            let path = self.writes((*dir, name));
            self.decider.emit_name(at, path, |name| Action::Bind { file, name });
        }
        self.decider.emit(at, Action::Size { file, size });
        file
    }

    /// The file has no name and no open any more.
    pub(crate) fn emit_end(&mut self, at: At, ino: Ino) {
        if let Some(file) = self.end_file(ino) {
            self.decider.emit(at, Action::Gone { file });
        }
    }

    /// The file has got a further name.
    pub(crate) fn emit_link(&self, at: At, ino: Ino, name: (Ino, &OsStr)) {
        if let Some(file) = self.file(ino) {
            self.decider.emit_name(at, self.writes(name), |name| Action::Link { file, name });
        }
    }

    /// The file has lost this name.
    pub(crate) fn emit_lost(&self, at: At, ino: Ino, name: (Ino, &OsStr)) {
        if let Some(file) = self.file(ino) {
            self.decider.emit_name(at, self.writes(name), |name| Action::Unbind { file, name });
        }
    }

    /// Reports a rename that BACKING has performed, of a directory or of a file that the event
    /// stream knows.
    pub(crate) fn emit_moved(&self, at: At, was: &Stat, from: (Ino, &OsStr), to: (Ino, &OsStr)) {
        let file = self.file(self.known_as(was.st_ino));
        if file.is_some() || FileType::from_raw_mode(was.st_mode) == FileType::Directory {
            self.decider.emit_rename(at, file, self.writes(from), self.writes(to));
        }
    }

    /// Three moves, through a name that no application can use: each event is about one.
    pub(crate) fn emit_exchange(
        &self,
        at: At,
        (one, name): (&Stat, (Ino, &OsStr)),
        (other, other_name): (&Stat, (Ino, &OsStr)),
    ) {
        let between = (ROOT, OsStr::new(HIDDEN));
        self.emit_moved(at, one, name, between);
        self.emit_moved(at, other, other_name, name);
        self.emit_moved(at, one, between, other_name);
    }
}
