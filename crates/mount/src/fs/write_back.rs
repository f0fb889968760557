//! Moving files from RAM to flash while they are used.
//!
//! A file is copied to a name that applications do not see, made durable there, and then renamed to
//! its own name: BACKING has the whole file or its predecessor, never a part. A batch shares one
//! `syncfs`. Writers are not blocked during the copy; if the file changes meanwhile, the copy is
//! repeated. After [`TRIES`] failed attempts the file's writers wait for the last one.

use super::Fs;
use super::backing::{OpenDir, keep_time, proc_path};
use super::content::Content;
use super::failures::{Failed, In, Step, WriteBackError, WriteBackFailures};
use super::open_files::errno;
use super::table::{InRam, Is, Name, Table};
use super::types::{Attr, Ino, Time};
use flashsift_core::event::Action;
use rustix::fs::{Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Copies of a changing file that are tried before its writers have to wait.
const TRIES: u32 = 3;
/// Files of a batch, all of which are open meanwhile.
const BATCH: usize = 256;
/// Size of one copy step, bytes.
const CHUNK: usize = 256 << 10;

/// A copy that has no name yet.
struct Staged {
    ino: Ino,
    content: Arc<Content>,
    temp: String,
    file: Arc<File>,
    /// The file's change count when it was copied.
    changes: u64,
    bytes: u64,
}

/// Directories in which files were placed.
type Dirs = HashMap<Ino, Arc<OpenDir>>;

/// Exists while files have names that a power cut may remove.
struct Unsynced<'a>(&'a Fs);

impl Unsynced<'_> {
    fn begin(fs: &Fs) -> Unsynced<'_> {
        fs.unsynced.fetch_add(1, Ordering::SeqCst);
        Unsynced(fs)
    }

    /// Not called after a failed sync: the names stay counted as not durable.
    fn end(self) {
        self.0.unsynced.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(PartialEq, Eq)]
enum Outcome {
    Settled,
    /// The file was written to since.
    Changed,
    /// The file is gone, or another thread has moved it.
    Nothing,
}

impl Fs {
    /// Performs the decisions that are due. Returns how many files reached flash, and the failures.
    ///
    /// # Errors
    ///
    /// The files that could not be written back, which stay in RAM.
    pub fn settle_due(&self, now_us: u64) -> (u64, Result<(), WriteBackFailures>) {
        let before = self.counters.lock().settled;
        let done = self.decide_by_time(now_us);
        // The times of directories that the kernel still knows can wait: files come and go there,
        // and each time would be a write.
        self.keep_times(|table, dir| table.node(dir).is_none_or(|node| node.lookups == 0));
        (self.counters.lock().settled - before, done)
    }

    /// Writes back every file in RAM that has a name, durably, without those that are created
    /// meanwhile.
    ///
    /// # Errors
    ///
    /// The files that could not be written back, which stay in RAM.
    pub fn settle_all(&self) -> Result<(), WriteBackFailures> {
        let all: Vec<Ino> = self.table().named_in_ram.iter().copied().collect();
        self.saw(self.arrived(0), Action::SyncAll);
        let done = self.perform();
        self.wait_until_performed(&all);
        done?;
        let left = self.named_of(&all);
        if !left.is_empty() {
            // Another thread has failed, or the sifter has not decided; the files must be written
            // back in either case.
            self.settle(&left)?;
        }
        self.keep_times(|_, _| true);
        let failed = |errno| WriteBackError { path: "/".to_owned(), step: Step::SyncAll, errno };
        self.backing.sync_all().map_err(|errno| failed(errno).into())
    }

    /// The files among these that are in RAM and have a name.
    fn named_of(&self, files: &[Ino]) -> Vec<Ino> {
        let table = self.table();
        files.iter().copied().filter(|ino| table.named_in_ram.contains(ino)).collect()
    }

    /// Sets the times of wanted directories to the last change by a file in RAM.
    pub(crate) fn keep_times(&self, wanted: impl Fn(&Table, Ino) -> bool) {
        let table = self.table();
        let dirs: Vec<Ino> =
            table.dir_times.keys().copied().filter(|dir| wanted(&table, *dir)).collect();
        drop(table);
        for ino in dirs {
            let mut table = self.table();
            if let (Ok(attr), Ok(dir)) = (self.attr_of(&mut table, ino), self.dir(&mut table, ino))
            {
                keep_time(&dir, attr.mtime);
            }
            table.dir_times.remove(&ino);
            table.drop_unused(ino);
        }
    }

    /// Writes these files back, with durable names, before it returns: by a decision if the request
    /// leads to one, otherwise because the application could not continue.
    pub(crate) fn settle_now(&self, files: &[Ino]) -> Result<(), Errno> {
        let dirs = self.dirs_of(files)?;
        if dirs.is_empty() {
            return Ok(());
        }
        self.settle(files)?;
        // Another thread may have written the file back without having synced the directory yet.
        dirs.values().try_for_each(sync_dir)
    }

    /// The same after a sync, which is in the event stream, so that decisions follow from it.
    pub(crate) fn settle_synced(&self, files: &[Ino]) -> Result<(), Errno> {
        let dirs = self.dirs_of(files)?;
        // A failure of another file does not concern this application.
        let _ = self.perform();
        if dirs.is_empty() {
            return Ok(());
        }
        self.wait_until_performed(files);
        for ino in self.named_of(files) {
            match self.failure_of(ino) {
                Some(errno) => return Err(errno),
                None => self.settle(&[ino])?,
            }
        }
        dirs.values().try_for_each(sync_dir)
    }

    /// Writes files back because RAM is full.
    pub(crate) fn make_room(&self, bytes: u64) -> Result<(), Errno> {
        let (used_before, budget) = self.store.usage()?;
        let _alone = self.making_room.lock();
        let used = self.store.usage()?.0;
        if used < used_before && used + bytes < budget {
            return Ok(());
        }
        // Decisions that foresaw this may be pending; a failure of theirs is reported elsewhere.
        let _ = self.perform();
        if self.store.usage()?.0 < used {
            return Ok(());
        }
        let before = self.counters.lock().settled;
        let done = self.decide_for_space(bytes);
        // A file that cannot be written back does not keep the others from freeing space.
        match self.counters.lock().settled > before {
            true => Ok(()),
            false => Err(done.err().map_or(Errno::NOSPC, Into::into)),
        }
    }

    /// Writes these files back, also those without a name.
    pub(crate) fn settle(&self, files: &[Ino]) -> Result<(), WriteBackFailures> {
        let (mut tried, mut failed) = (files.to_vec(), Vec::new());
        for batch in files.chunks(BATCH) {
            let mut dirs = Dirs::new();
            let unsynced = Unsynced::begin(self);
            let mut again = batch.to_vec();
            for _ in 0..TRIES {
                let mut staged = Vec::new();
                for ino in again {
                    match self.stage(ino) {
                        Ok(copy) => staged.extend(copy),
                        Err(error) => failed.push((ino, error)),
                    }
                }
                match self.make_durable(&staged) {
                    Ok(()) => (),
                    Err(error) => {
                        failed.extend(staged.iter().map(|copy| (copy.ino, error)));
                        self.discard(staged);
                        again = Vec::new();
                        break;
                    }
                }
                again = Vec::new();
                for copy in staged {
                    let ino = copy.ino;
                    match self.place(copy, &mut dirs) {
                        Ok(Outcome::Changed) => again.push(ino),
                        Ok(_) => (),
                        Err(error) => failed.push((ino, error)),
                    }
                }
                if again.is_empty() {
                    break;
                }
            }
            for ino in again {
                match self.settle_alone(ino, &mut dirs) {
                    // Its writers wait: no one could have changed it.
                    Ok(Outcome::Changed) => {
                        failed
                            .push((ino, Failed { step: Step::CopyUnchanged, errno: Errno::AGAIN }));
                    }
                    Ok(_) => (),
                    Err(error) => failed.push((ino, error)),
                }
            }
            // Bytes that are written to these files from now on and synced with `fdatasync` must
            // not be lost with their names.
            let mut durable = true;
            for (ino, dir) in &dirs {
                tried.push(*ino);
                if let Err(error) = sync_dir(dir).step(Step::SyncDirectory) {
                    failed.push((*ino, error));
                    durable = false;
                }
            }
            if durable {
                unsynced.end();
            }
        }
        self.tried(&tried, &failed)
    }

    /// Writes back one file while its writers wait.
    fn settle_alone(&self, ino: Ino, dirs: &mut Dirs) -> Result<Outcome, Failed> {
        let Ok(content) = self.content(&mut self.table(), ino) else { return Ok(Outcome::Nothing) };
        let _closed = content.gate.write();
        let Some(copy) = self.stage(ino)? else { return Ok(Outcome::Nothing) };
        if let Err(error) = self.make_durable(std::slice::from_ref(&copy)) {
            self.discard(vec![copy]);
            return Err(error);
        }
        self.place(copy, dirs)
    }

    /// The directories that have their names.
    fn dirs_of(&self, files: &[Ino]) -> Result<Dirs, Errno> {
        let mut dirs = Dirs::new();
        let mut table = self.table();
        for ino in files {
            let Some(node) = table.node(*ino) else { continue };
            if !matches!(node.is, Is::Ram) {
                continue;
            }
            for (dir, _) in node.names.clone() {
                dirs.insert(dir, self.dir(&mut table, dir)?);
            }
        }
        Ok(dirs)
    }

    fn make_durable(&self, staged: &[Staged]) -> Result<(), Failed> {
        match staged {
            [] => Ok(()),
            [one] => rustix::fs::fsync(&one.file),
            _ => self.backing.sync_all(),
        }
        .step(Step::Sync)
    }

    fn discard(&self, staged: Vec<Staged>) {
        for copy in staged {
            // If this fails, the next start removes it.
            let _ = self.backing.remove_temp(&copy.temp);
            self.let_go(&mut self.table(), copy.ino, copy.content);
        }
    }

    /// Copies the file's content and attributes, but not its names and times; `None` if it is not
    /// in RAM.
    fn stage(&self, ino: Ino) -> Result<Option<Staged>, Failed> {
        if !matches!(self.table().node(ino).map(|node| &node.is), Some(Is::Ram)) {
            return Ok(None);
        }
        let Ok(content) = self.content(&mut self.table(), ino) else { return Ok(None) };
        let changes = content.changes();
        let source = match self.store.open_to_copy(ino) {
            Err(Errno::NOENT) => return Ok(None),
            source => source.step(Step::Open)?,
        };
        let (temp, file) = self.backing.create_temp().step(Step::Open)?;
        match copy(&source, &file).step(Step::Copy) {
            Ok(bytes) => {
                Ok(Some(Staged { ino, content, temp, file: Arc::new(file), changes, bytes }))
            }
            Err(error) => {
                let _ = self.backing.remove_temp(&temp);
                self.let_go(&mut self.table(), ino, content);
                Err(error)
            }
        }
    }

    /// Renames the copy to the file's names, if the file has not changed since.
    fn place(&self, copy: Staged, dirs: &mut Dirs) -> Result<Outcome, Failed> {
        let mut table = self.table();
        let outcome = self.place_in(&mut table, &copy, dirs);
        if !matches!(outcome, Ok(Outcome::Settled)) {
            let _ = self.backing.remove_temp(&copy.temp);
        }
        let mut counters = self.counters.lock();
        match outcome {
            Ok(Outcome::Settled) => {
                counters.settled += 1;
                counters.settled_bytes += copy.bytes;
            }
            Ok(Outcome::Changed) => counters.restarts += 1,
            _ => (),
        }
        drop(counters);
        self.let_go(&mut table, copy.ino, copy.content);
        // The kernel may have forgotten it while it lived in RAM.
        table.drop_unused(copy.ino);
        outcome
    }

    fn place_in(
        &self,
        table: &mut Table,
        copy: &Staged,
        dirs: &mut Dirs,
    ) -> Result<Outcome, Failed> {
        let ino = copy.ino;
        let mut place = copy.content.place.write();
        let Some(node) = table.node(ino) else { return Ok(Outcome::Nothing) };
        if !matches!(node.is, Is::Ram) {
            return Ok(Outcome::Nothing);
        }
        if copy.content.changes() != copy.changes {
            return Ok(Outcome::Changed);
        }
        let (names, open) = (node.names.clone(), node.opens > 0);
        let was = self.store.stat(ino).step(Step::Open)?;
        let time = |tv_sec, tv_nsec: i64| Timespec { tv_sec, tv_nsec };
        let times = Timestamps {
            last_access: time(was.st_atime, was.st_atime_nsec as i64),
            last_modification: time(was.st_mtime, was.st_mtime_nsec as i64),
        };
        rustix::fs::futimens(&copy.file, &times).step(Step::Copy)?;
        if names.is_empty() {
            // Only processes that have the file open know of it.
            self.backing.remove_temp(&copy.temp).step(Step::Rename)?;
            let attr = Attr::new(ino, &rustix::fs::fstat(&copy.file).step(Step::Rename)?);
            table.is_gone(ino, attr);
        } else {
            let backing_ino = rustix::fs::fstat(&copy.file).step(Step::Rename)?.st_ino;
            self.take_names(table, &copy.temp, backing_ino, ino, &names, dirs)?;
            let settled = rustix::fs::fstat(&copy.file).step(Step::Rename)?;
            let ctime =
                |stat: &rustix::fs::Stat| Time { s: stat.st_ctime, ns: stat.st_ctime_nsec as u32 };
            table.has_settled(ino, backing_ino, ctime(&was), ctime(&settled));
        }
        place.file = open.then(|| copy.file.clone());
        place.settled = true;
        self.left_ram(ino);
        // If this fails, the file is unreachable, and deleted with the mount.
        let _ = self.store.remove(ino);
        Ok(Outcome::Settled)
    }

    /// Places the first name, then the further ones, in order of creation.
    fn take_names(
        &self,
        table: &mut Table,
        temp: &str,
        backing_ino: u64,
        ino: Ino,
        names: &[(Ino, Name)],
        placed_in: &mut Dirs,
    ) -> Result<(), Failed> {
        let mut dirs = HashMap::new();
        for (dir, _) in names {
            if !dirs.contains_key(dir) {
                let time = self.attr_of(table, *dir).step(Step::Rename)?.mtime;
                dirs.insert(*dir, (self.dir(table, *dir).step(Step::Rename)?, time));
            }
        }
        let (first_dir, first_name) = &names[0];
        self.backing.place_temp(temp, &dirs[first_dir].0, first_name).step(Step::Rename)?;
        for (placed, (dir, name)) in names.iter().enumerate().skip(1) {
            let spare = format!("{temp}-link");
            let done = self
                .backing
                .link_to_temp(&dirs[first_dir].0, first_name, &spare)
                .and_then(|()| self.backing.place_temp(&spare, &dirs[dir].0, name))
                .step(Step::Link);
            if let Err(error) = done {
                // Where there is none, the link was not made.
                let _ = self.backing.remove_temp(&spare);
                // The file stays in RAM. The files in BACKING under its names are no newer than
                // those that these names hide.
                for (dir, name) in &names[..placed] {
                    table.remove_in_ram(*dir, name);
                    table.insert_in_ram(
                        *dir,
                        name,
                        InRam { ino, hides: NonZero::new(backing_ino) },
                    );
                }
                return Err(error);
            }
        }
        for (ino, (dir, time)) in dirs {
            keep_time(&dir, time);
            table.dir_times.remove(&ino);
            placed_in.insert(ino, dir);
        }
        Ok(())
    }
}

/// Copies content, owner, mode and attributes. Returns the number of bytes.
fn copy(source: &File, target: &File) -> Result<u64, Errno> {
    let stat = rustix::fs::fstat(source)?;
    let size = stat.st_size as u64;
    let mut bytes = vec![0; CHUNK.min(size as usize)];
    let (mut at, mut copied) = (0, 0);
    while at < size {
        // Holes stay holes.
        let data = match rustix::fs::seek(source, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => break,
            Err(error) => return Err(error),
        };
        let end = rustix::fs::seek(source, SeekFrom::Hole(data))?.min(size);
        at = data;
        while at < end {
            let len = bytes.len().min((end - at) as usize);
            let read = source.read_at(&mut bytes[..len], at).map_err(|error| errno(&error))?;
            if read == 0 {
                // The file was truncated meanwhile: this copy is invalid.
                return Ok(copied);
            }
            target.write_all_at(&bytes[..read], at).map_err(|error| errno(&error))?;
            at += read as u64;
            copied += read as u64;
        }
    }
    rustix::fs::ftruncate(target, size)?;
    rustix::fs::fchown(target, Some(Uid::from_raw(stat.st_uid)), Some(Gid::from_raw(stat.st_gid)))?;
    rustix::fs::fchmod(target, Mode::from_raw_mode(stat.st_mode))?;
    // Accessed by descriptor, since the name may disappear meanwhile.
    let path = proc_path(source);
    for name in super::xattrs::names(&path)? {
        let value = super::xattrs::value(&path, &name)?;
        rustix::fs::fsetxattr(target, &name, &value, rustix::fs::XattrFlags::empty())?;
    }
    Ok(copied)
}

/// Makes the names in a directory durable.
fn sync_dir(dir: &Arc<OpenDir>) -> Result<(), Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::fsync(rustix::fs::openat(dir, ".", flags, Mode::empty())?)
}

/// Names of extended attributes as the kernel gives them.
pub(crate) fn split_names(list: &[u8]) -> Vec<CString> {
    list.split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .filter_map(|name| CString::new(name).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use crate::{Caller, Config, Fs, ROOT, Store};
    use std::ffi::OsStr;

    /// A file that the kernel forgot while it lived in RAM is unknown to every process after its
    /// write-back, so its node must go. It stayed, and a mount in which files were created all day
    /// grew without end.
    #[test]
    fn a_forgotten_file_leaves_the_table_after_its_write_back() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["backing", "store"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let backing = std::fs::File::open(folder.path().join("backing")).unwrap();
        let store = Store::in_dir(&folder.path().join("store")).unwrap();
        let fs = Fs::new(backing.into(), store, Config::default()).unwrap();
        let us = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let caller = Caller { uid: us.0, gid: us.1, tid: 1, umask: 0 };
        let (attr, open, _) = fs.create(&caller, ROOT, OsStr::new("a"), 0o644, 0).unwrap();
        let ino = attr.ino;
        fs.release(0, open);
        fs.forget(ino, 1);
        assert!(fs.table().node(ino).is_some(), "it lives in RAM");
        fs.settle_all().unwrap();
        assert!(fs.table().node(ino).is_none());
        assert_eq!(fs.lookup(ROOT, OsStr::new("a")).unwrap().ino, ino, "it keeps its number");
        fs.check();
    }
}
