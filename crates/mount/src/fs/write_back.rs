//! Moving files from RAM to flash while they are used.
//!
//! A copy gets its data, owner, mode and times, its data is flushed, and then it gets the names of
//! its file: BACKING has the whole file or its predecessor, never a part, although no commit is
//! forced ([`Volume`](super::volume::Volume) says why). The names become durable with the next
//! commit of the kernel. If an application waits for a sync, one fsync of the file follows.
//!
//! On a file system of which nothing is known, copies are made durable before they get their names,
//! and directories after it.
//!
//! A file that is too large for RAM is handed over first: it becomes a file without a name in
//! BACKING's file system, and nothing is flushed. Its write-back then needs no second copy, and if
//! it is deleted before the kernel has written it, it costs nothing.
//!
//! Writers are not blocked during the copy; if the file changes meanwhile, the copy is repeated.
//! After [`TRIES`] failed attempts the file's writers wait for the last one.

use super::Fs;
use super::backing::{OpenDir, keep_time, proc_path};
use super::content::Content;
use super::failures::{Failed, In, Step, WriteBackError, WriteBackFailures};
use super::open_files::errno;
use super::table::{Checkpoint, InRam, Is, Name, Table};
use super::temps::Temp;
use super::types::{Attr, Ino, Time};
use super::volume::begin_flush;
use flashsift_core::event::Action;
use rustix::fs::{Gid, Mode, OFlags, SeekFrom, Timespec, Timestamps, Uid};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CString;
use std::fs::File;
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Copies of a changing file that are tried before its writers have to wait.
const TRIES: u32 = 3;
/// Files of a batch, all of which are open meanwhile.
const BATCH: usize = 256;
/// Size of one copy step, bytes.
const CHUNK: usize = 256 << 10;

/// A file to be written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) ino: Ino,
    /// Content and names are durable when it is done.
    pub(crate) durable: bool,
    /// A file with one name stays in RAM; its copy is in BACKING.
    pub(crate) keep: bool,
    /// The file stays without a name in BACKING, whose page cache gets its bytes.
    pub(crate) large: bool,
}

impl Job {
    /// The file leaves RAM, and the kernel commits its names some time later.
    pub(crate) fn later(ino: Ino) -> Job {
        Job { ino, durable: false, keep: false, large: false }
    }

    /// The file leaves RAM, and is durable then.
    pub(crate) fn durable(ino: Ino) -> Job {
        Job { ino, durable: true, keep: false, large: false }
    }
}

/// A copy that has no final name yet.
struct Staged {
    job: Job,
    content: Arc<Content>,
    temp: Temp,
    file: Arc<File>,
    /// The file's change count when it was copied.
    changes: u64,
    bytes: u64,
    /// It is the file itself, which was handed over, and no copy.
    itself: bool,
    /// The file has no name, and will have none.
    nameless: bool,
}

/// A file that has its names in BACKING.
struct Placed {
    job: Job,
    backing_ino: u64,
    content: Arc<Content>,
    file: Arc<File>,
}

/// No copy was complete, because the file was written to.
const CHANGED: Failed = Failed { step: Step::CopyUnchanged, errno: Errno::AGAIN };

/// Directories in which files were placed.
type Dirs = HashMap<Ino, Arc<OpenDir>>;

/// The results of a batch so far.
#[derive(Default)]
pub(super) struct Batch {
    dirs: Dirs,
    placed: Vec<Placed>,
    tried: Vec<Ino>,
    failed: Vec<(Ino, Failed)>,
}

#[derive(PartialEq, Eq)]
pub(super) enum Outcome {
    Settled,
    /// Its copy is in BACKING, and the file stays in RAM.
    Kept,
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
        let done = done.and(self.settle_handed_over(self.now_us().max(now_us)));
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
        self.write_back_all()?;
        let failed = |errno| WriteBackError { path: "/".to_owned(), step: Step::SyncAll, errno };
        let begun = Instant::now();
        self.backing.sync_all(false).map_err(failed)?;
        self.table().all_names_last(begun);
        Ok(())
    }

    /// Writes back every file in RAM that has a name, without those that are created meanwhile.
    /// Their names become durable with the next commit of the kernel.
    ///
    /// # Errors
    ///
    /// The files that could not be written back, which stay in RAM.
    pub fn write_back_all(&self) -> Result<(), WriteBackFailures> {
        let all: Vec<Ino> = self.table().named_in_ram.iter().copied().collect();
        self.saw(self.arrived(0), Action::SyncAll);
        let done = self.perform();
        self.wait_until_performed(&all);
        done?;
        let left = self.named_of(&all);
        if !left.is_empty() {
            // Another thread has failed, or the sifter has not decided; the files must be written
            // back in either case.
            let jobs: Vec<Job> = left.into_iter().map(Job::later).collect();
            self.settle(&jobs)?;
        }
        self.keep_times(|_, _| true);
        Ok(())
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

    /// Writes these files back because the application could not continue otherwise.
    pub(crate) fn settle_now(&self, files: &[Ino]) -> Result<(), Errno> {
        let jobs: Vec<Job> = self.named_of(files).into_iter().map(Job::later).collect();
        Ok(self.settle(&jobs)?)
    }

    /// Writes these files back after a sync, which is in the event stream, so that decisions follow
    /// from it. Where another thread has written a file back meanwhile, it may not be durable yet.
    pub(crate) fn settle_synced(&self, files: &[Ino]) -> Result<(), Errno> {
        let in_ram = !self.named_of(files).is_empty();
        // A failure of another file does not concern this application.
        let _ = self.perform();
        if !in_ram {
            return Ok(());
        }
        self.wait_until_performed(files);
        for ino in self.named_of(files) {
            match self.failure_of(ino) {
                Some(errno) => return Err(errno),
                None => self.settle(&[Job::durable(ino)])?,
            }
        }
        Ok(())
    }

    fn is_handed_over(&self, ino: Ino) -> bool {
        self.store.handed_over(ino).is_some()
    }

    /// Whether every name that this file got by its write-back outlives a power cut.
    pub(crate) fn names_are_durable(&self, table: &Table, ino: Ino) -> bool {
        match table.node(ino).map(|node| &node.is) {
            Some(Is::Settled(backing_ino)) => {
                table.do_names_last(*backing_ino, self.committed_after())
            }
            _ => true,
        }
    }

    /// Time after which the kernel has committed a name on its own.
    fn committed_after(&self) -> Option<Duration> {
        let volume = &self.backing.volume;
        volume.is_ordered().then(|| volume.committed_after())
    }

    /// Makes content and names of a file on flash durable.
    pub(crate) fn fsync_settled(&self, ino: Ino, file: &File) -> Result<(), Errno> {
        self.fsync_in_backing(file, true)?;
        let mut table = self.table();
        if let Some(Is::Settled(backing_ino)) = table.node(ino).map(|node| node.is.clone()) {
            table.names_last(backing_ino);
        }
        Ok(())
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
    pub(crate) fn settle(&self, jobs: &[Job]) -> Result<(), WriteBackFailures> {
        let mut tried: Vec<Ino> = jobs.iter().map(|job| job.ino).collect();
        let mut failed = Vec::new();
        for jobs in jobs.chunks(BATCH) {
            let mut batch = Batch::default();
            let mut again = jobs.to_vec();
            again.retain(|job| match self.settle_in_place(*job, &mut batch) {
                Ok(done) => done == Outcome::Nothing,
                Err(error) => {
                    batch.failed.push((job.ino, error));
                    false
                }
            });
            again.retain(|job| {
                let large = job.large && !job.durable;
                if large {
                    match self.hand_over(*job) {
                        // Where BACKING takes no file without a name, it is written back.
                        Ok(Outcome::Nothing) => return !self.is_handed_over(job.ino),
                        Ok(Outcome::Changed) => batch.failed.push((job.ino, CHANGED)),
                        Ok(_) => (),
                        Err(error) => batch.failed.push((job.ino, error)),
                    }
                }
                !large
            });
            for job in &mut again {
                job.large = false;
            }
            for _ in 0..TRIES {
                let mut staged = Vec::new();
                for job in again {
                    match self.stage(job) {
                        Ok(copy) => staged.extend(copy),
                        Err(error) => batch.failed.push((job.ino, error)),
                    }
                }
                again = Vec::new();
                for copy in self.flush(staged, &mut batch.failed) {
                    let job = copy.job;
                    match self.place(copy, &mut batch) {
                        Ok(Outcome::Changed) => again.push(job),
                        Ok(_) => (),
                        Err(error) => batch.failed.push((job.ino, error)),
                    }
                }
                if again.is_empty() {
                    break;
                }
            }
            for job in again {
                match self.settle_alone(job, &mut batch) {
                    // Its writers wait: no one could have changed it.
                    Ok(Outcome::Changed) => {
                        batch.failed.push((job.ino, CHANGED));
                    }
                    Ok(_) => (),
                    Err(error) => batch.failed.push((job.ino, error)),
                }
            }
            match self.backing.volume.is_ordered() {
                true => self.sync_placed(&mut batch),
                false => self.sync_directories(&mut batch),
            }
            let mut table = self.table();
            for placed in batch.placed {
                self.let_go(&mut table, placed.job.ino, placed.content);
                table.drop_unused(placed.job.ino);
            }
            let committed =
                self.committed_after().and_then(|after| Instant::now().checked_sub(after));
            if let Some(committed) = committed {
                table.all_names_last(committed);
            }
            tried.extend(batch.tried);
            failed.extend(batch.failed);
        }
        self.tried(&tried, &failed)
    }

    /// Writes back one file while its writers wait.
    fn settle_alone(&self, job: Job, batch: &mut Batch) -> Result<Outcome, Failed> {
        let Ok(content) = self.content(&mut self.table(), job.ino) else {
            return Ok(Outcome::Nothing);
        };
        let _closed = content.gate.write();
        let Some(copy) = self.stage(job)? else { return Ok(Outcome::Nothing) };
        match self.flush(vec![copy], &mut batch.failed).pop() {
            Some(copy) => self.place(copy, batch),
            None => Ok(Outcome::Nothing),
        }
    }

    /// Brings the data of copies to the device, before they get names. Returns those whose data is
    /// there.
    fn flush(&self, staged: Vec<Staged>, failed: &mut Vec<(Ino, Failed)>) -> Vec<Staged> {
        let volume = &self.backing.volume;
        // After a crash no process can reach a file without a name.
        let (mut flushed, staged): (Vec<_>, Vec<_>) =
            staged.into_iter().partition(|copy| copy.nameless);
        let mut lost = Vec::new();
        if volume.is_ordered() {
            // All are on their way before the first is waited for.
            let begun: Vec<_> = staged.iter().map(|copy| begin_flush(&copy.file)).collect();
            for (copy, begun) in staged.into_iter().zip(begun) {
                match begun.and_then(|()| volume.flush(&copy.file)).step(Step::Sync) {
                    Ok(()) => flushed.push(copy),
                    Err(error) => lost.push((copy, error)),
                }
            }
        } else {
            let synced = staged.iter().any(|copy| copy.job.durable);
            let done = match &staged[..] {
                [] => Ok(()),
                [one] => self.fsync_in_backing(&one.file, synced),
                _ => self.backing.sync_all(synced),
            };
            match done.step(Step::Sync) {
                Ok(()) => flushed.extend(staged),
                Err(error) => lost.extend(staged.into_iter().map(|copy| (copy, error))),
            }
        }
        for copy in &flushed {
            match (copy.nameless, copy.itself) {
                (true, true) => (),
                (true, false) => self.account_unflushed(copy.job.ino, copy.bytes),
                (false, true) => self.account_flushed(copy.job, None),
                (false, false) => self.account_flushed(copy.job, Some(copy.bytes)),
            }
        }
        for (copy, error) in lost {
            failed.push((copy.job.ino, error));
            self.discard(copy);
        }
        flushed
    }

    /// Makes the files of a batch durable for which an application waits.
    fn sync_placed(&self, batch: &mut Batch) {
        let waited: Vec<&Placed> =
            batch.placed.iter().filter(|placed| placed.job.durable).collect();
        let Some(last) = waited.last() else { return };
        let last = self
            .backing
            .volume
            .one_sync_covers_earlier()
            .then(|| self.fsync_in_backing(&last.file, true));
        for placed in &waited {
            let done = last.unwrap_or_else(|| self.fsync_in_backing(&placed.file, true));
            placed.content.set_synced(done);
            match done.step(Step::Sync) {
                Ok(()) => self.table().names_last(placed.backing_ino),
                Err(error) => batch.failed.push((placed.job.ino, error)),
            }
        }
    }

    /// Makes the names of a batch durable, whose content is durable already.
    fn sync_directories(&self, batch: &mut Batch) {
        let mut durable = Ok(());
        let synced = batch.placed.iter().any(|placed| placed.job.durable);
        for (ino, dir) in &batch.dirs {
            batch.tried.push(*ino);
            let done = self.sync_dir(dir, synced);
            durable = durable.and(done);
            if let Err(error) = done.step(Step::SyncDirectory) {
                batch.failed.push((*ino, error));
            }
        }
        for placed in &batch.placed {
            placed.content.set_synced(durable);
            if durable.is_ok() {
                self.table().names_last(placed.backing_ino);
            }
        }
    }

    /// Makes the names in a directory durable.
    fn sync_dir(&self, dir: &Arc<OpenDir>, synced: bool) -> Result<(), Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.fsync_in_backing(rustix::fs::openat(dir, ".", flags, Mode::empty())?, synced)
    }

    fn discard(&self, copy: Staged) {
        let mut table = self.table();
        self.remove_temp(&mut table, &copy.temp);
        self.let_go(&mut table, copy.job.ino, copy.content);
    }

    /// Copies the file's content and attributes, but not its names and times; `None` if it is not
    /// in RAM.
    fn stage(&self, job: Job) -> Result<Option<Staged>, Failed> {
        let ino = job.ino;
        let (content, named_in, checkpoint) = {
            let mut table = self.table();
            let named_in = match table.node(ino) {
                Some(node) if matches!(node.is, Is::Ram) => node.names.first().map(|name| name.0),
                _ => return Ok(None),
            };
            let Ok(content) = self.content(&mut table, ino) else { return Ok(None) };
            let checkpoint = self.current_checkpoint(&mut table, ino, &content);
            (content, named_in, checkpoint)
        };
        let changes = content.changes();
        if let Some((checkpoint, file)) = checkpoint
            && checkpoint.changes == changes
        {
            let (temp, file) = (Temp::Placed, Arc::new(file));
            let (bytes, itself, nameless) = (0, false, false);
            let staged = Staged { job, content, temp, file, changes, bytes, itself, nameless };
            return Ok(Some(staged));
        }
        let nameless = named_in.is_none();
        if let Some(file) = self.store.handed_over(ino) {
            let bytes = rustix::fs::fstat(&file).step(Step::Open)?.st_size as u64;
            let (temp, itself) = (Temp::Unnamed, true);
            let staged = Staged { job, content, temp, file, changes, bytes, itself, nameless };
            return Ok(Some(staged));
        }
        let source = match self.store.open_to_copy(ino) {
            Err(Errno::NOENT) => return Ok(None),
            source => source.step(Step::Open)?,
        };
        let unnamed = match job.large || nameless {
            true => self.create_without_name(named_in).step(Step::Open)?,
            false => None,
        };
        let (temp, file) = match unnamed {
            Some(file) => (Temp::Unnamed, file),
            None if job.large => return Ok(None),
            None => self.create_copy(named_in, job.durable).step(Step::Open)?,
        };
        let (file, itself) = (Arc::new(file), false);
        match copy(&source, &file).step(Step::Copy) {
            Ok(bytes) => {
                Ok(Some(Staged { job, content, temp, file, changes, bytes, itself, nameless }))
            }
            Err(error) => {
                let bytes = 0;
                self.discard(Staged { job, content, temp, file, changes, bytes, itself, nameless });
                Err(error)
            }
        }
    }

    /// The copy of a file in RAM under its name in BACKING, opened.
    fn current_checkpoint(
        &self,
        table: &mut Table,
        ino: Ino,
        content: &Content,
    ) -> Option<(Checkpoint, File)> {
        let node = table.node(ino)?;
        let checkpoint = node.checkpoint.filter(|known| known.changes == content.changes())?;
        let [(dir, name)] = &node.names[..] else { return None };
        let (dir, name) = (*dir, name.clone());
        let in_ram = table.in_ram(dir, &name)?;
        if in_ram.hides.map(NonZero::get) != Some(checkpoint.backing_ino) {
            return None;
        }
        let file = self.backing.open_file(&self.dir(table, dir).ok()?, &name).ok()?;
        let same = rustix::fs::fstat(&file).ok()?.st_ino == checkpoint.backing_ino;
        same.then_some((checkpoint, file))
    }

    /// Moves a file's bytes to BACKING's page cache, without a name and without a flush.
    fn hand_over(&self, job: Job) -> Result<Outcome, Failed> {
        for attempt in 0..=TRIES {
            let Ok(content) = self.content(&mut self.table(), job.ino) else {
                return Ok(Outcome::Nothing);
            };
            // Its writers wait for the last attempt.
            let _closed = (attempt == TRIES).then(|| content.gate.write());
            let Some(copy) = self.stage(job)? else { return Ok(Outcome::Nothing) };
            let done = self.replace_by(&copy);
            let unchanged = !matches!(done, Ok(Outcome::Changed));
            self.discard(copy);
            if unchanged {
                return done;
            }
        }
        Ok(Outcome::Changed)
    }

    fn replace_by(&self, copy: &Staged) -> Result<Outcome, Failed> {
        let ino = copy.job.ino;
        let mut table = self.table();
        let mut place = copy.content.place.write();
        let is_in_ram = matches!(table.node(ino).map(|node| &node.is), Some(Is::Ram));
        if copy.itself || matches!(copy.temp, Temp::Placed) || !is_in_ram {
            return Ok(Outcome::Nothing);
        }
        if copy.content.changes() != copy.changes {
            return Ok(Outcome::Changed);
        }
        self.copy_times(ino, &copy.file)?;
        self.store.hand_over(ino, copy.file.clone()).step(Step::Copy)?;
        if place.file.is_some() {
            place.file = Some(copy.file.clone());
        }
        place.handed_over = true;
        self.account_unflushed(ino, copy.bytes);
        self.account_leaving(ino);
        if let Some(node) = table.node_mut(ino) {
            node.checkpoint = None;
        }
        let due_us = self.now_us().saturating_add(self.unnamed_us);
        self.handed_over.lock().push_back((due_us, ino));
        Ok(Outcome::Kept)
    }

    /// Gives a copy the times of its file.
    pub(super) fn copy_times(&self, ino: Ino, to: &File) -> Result<rustix::fs::Stat, Failed> {
        let was = self.store.stat(ino).step(Step::Open)?;
        let time = |tv_sec, tv_nsec: i64| Timespec { tv_sec, tv_nsec };
        let times = Timestamps {
            last_access: time(was.st_atime, was.st_atime_nsec as i64),
            last_modification: time(was.st_mtime, was.st_mtime_nsec as i64),
        };
        let has = rustix::fs::fstat(to).step(Step::Copy)?;
        let of = |stat: &rustix::fs::Stat| {
            (stat.st_atime, stat.st_atime_nsec, stat.st_mtime, stat.st_mtime_nsec)
        };
        // A checkpoint that is current costs no write.
        if of(&has) != of(&was) {
            rustix::fs::futimens(to, &times).step(Step::Copy)?;
        }
        Ok(was)
    }

    /// When the next file that was handed over is to get its name, µs.
    pub(crate) fn next_name_us(&self) -> Option<u64> {
        self.handed_over.lock().front().map(|(due_us, _)| *due_us)
    }

    /// Gives names to files that were handed over long enough ago.
    fn settle_handed_over(&self, now_us: u64) -> Result<(), WriteBackFailures> {
        let due: Vec<Ino> = {
            let mut waiting = self.handed_over.lock();
            let due = waiting.iter().take_while(|(due_us, _)| *due_us <= now_us).count();
            waiting.drain(..due).map(|(_, ino)| ino).collect()
        };
        let jobs: Vec<Job> = self.named_of(&due).into_iter().map(Job::later).collect();
        if jobs.is_empty() {
            return Ok(());
        }
        let done = self.settle(&jobs);
        if done.is_err() {
            let again_us = now_us.saturating_add(super::UNNAMED_US);
            let left = self.named_of(&due).into_iter().map(|ino| (again_us, ino));
            self.handed_over.lock().extend(left);
        }
        done
    }

    /// Gives the copy the file's names, if the file has not changed since.
    fn place(&self, copy: Staged, batch: &mut Batch) -> Result<Outcome, Failed> {
        let mut table = self.table();
        let outcome = self.place_in(&mut table, &copy, batch);
        let renamed = match &outcome {
            Ok(outcome) => matches!(outcome, Outcome::Settled | Outcome::Kept),
            Err(failed) => failed.step == Step::Link,
        };
        if !renamed {
            self.remove_temp(&mut table, &copy.temp);
        }
        let mut counters = self.counters.lock();
        match outcome {
            Ok(Outcome::Settled) => {
                counters.settled += 1;
                counters.settled_bytes += copy.bytes;
            }
            Ok(Outcome::Kept) => counters.settled_bytes += copy.bytes,
            Ok(Outcome::Changed) => counters.restarts += 1,
            _ => (),
        }
        drop(counters);
        self.let_go(&mut table, copy.job.ino, copy.content);
        // The kernel may have forgotten it while it lived in RAM.
        table.drop_unused(copy.job.ino);
        outcome
    }

    fn place_in(
        &self,
        table: &mut Table,
        copy: &Staged,
        batch: &mut Batch,
    ) -> Result<Outcome, Failed> {
        let ino = copy.job.ino;
        let mut place = copy.content.place.write();
        let Some(node) = table.node(ino) else { return Ok(Outcome::Nothing) };
        if !matches!(node.is, Is::Ram) {
            return Ok(Outcome::Nothing);
        }
        if copy.content.changes() != copy.changes {
            return Ok(Outcome::Changed);
        }
        let (names, open) = (node.names.clone(), node.opens > 0);
        let was = match copy.itself {
            true => self.store.stat(ino).step(Step::Open)?,
            false => self.copy_times(ino, &copy.file)?,
        };
        let about = rustix::fs::fstat(&copy.file).step(Step::Rename)?;
        if names.is_empty() {
            // Only processes that have the file open know of it.
            self.remove_temp(table, &copy.temp);
            let about = rustix::fs::fstat(&copy.file).step(Step::Rename)?;
            table.is_gone(ino, Attr::new(ino, &about));
        } else {
            if about.st_nlink == 0 && !matches!(copy.temp, Temp::Unnamed) {
                // An application has removed the directory that the copy was in.
                return Ok(Outcome::Changed);
            }
            if !matches!(copy.temp, Temp::Placed) {
                self.take_names(table, copy, about.st_ino, &names, &mut batch.dirs)?;
            } else if self.current_checkpoint(table, ino, &copy.content).is_none() {
                // The file has got another name since, or none.
                return Ok(Outcome::Changed);
            }
            if copy.job.keep && names.len() == 1 && !copy.itself {
                self.hides(table, ino, &names, about.st_ino);
                if let Some(node) = table.node_mut(ino) {
                    let changes = copy.changes;
                    node.checkpoint = Some(Checkpoint { backing_ino: about.st_ino, changes });
                }
                return Ok(Outcome::Kept);
            }
            self.records_place(table, copy.job, &copy.content, &copy.file, &was, batch)?;
        }
        place.file = open.then(|| copy.file.clone());
        place.settled = true;
        self.left_ram(ino);
        // If this fails, the file is unreachable, and deleted with the mount.
        let _ = self.store.remove(ino);
        Ok(Outcome::Settled)
    }

    /// Records that a file has its names in BACKING, where it has this state in RAM.
    pub(super) fn records_place(
        &self,
        table: &mut Table,
        job: Job,
        content: &Arc<Content>,
        file: &Arc<File>,
        was: &rustix::fs::Stat,
        batch: &mut Batch,
    ) -> Result<(), Failed> {
        let settled = rustix::fs::fstat(file).step(Step::Rename)?;
        let ctime =
            |stat: &rustix::fs::Stat| Time { s: stat.st_ctime, ns: stat.st_ctime_nsec as u32 };
        let backing_ino = settled.st_ino;
        table.has_settled(job.ino, backing_ino, ctime(was), ctime(&settled));
        table.got_names(backing_ino);
        if job.durable || !self.backing.volume.is_ordered() {
            let (content, file) = (content.clone(), file.clone());
            batch.placed.push(Placed { job, backing_ino, content, file });
        }
        Ok(())
    }

    /// Places the first name, then the further ones, in order of creation.
    fn take_names(
        &self,
        table: &mut Table,
        copy: &Staged,
        backing_ino: u64,
        names: &[(Ino, Name)],
        placed_in: &mut Dirs,
    ) -> Result<(), Failed> {
        let mut dirs = HashMap::new();
        let from = match &copy.temp {
            Temp::In(dir, ..) => Some(dir),
            _ => None,
        };
        for dir in names.iter().map(|(dir, _)| dir) {
            if !dirs.contains_key(dir) {
                let time = self.attr_of(table, *dir).step(Step::Rename)?.mtime;
                dirs.insert(*dir, (self.dir(table, *dir).step(Step::Rename)?, time));
            }
        }
        // The file may have moved since to another directory than its copy.
        let from = from.filter(|from| !dirs.contains_key(from)).and_then(|from| {
            Some((self.dir(table, *from).ok()?, self.attr_of(table, *from).ok()?.mtime))
        });
        for (placed, (dir, name)) in names.iter().enumerate() {
            let into = &dirs[dir].0;
            let done = match (placed, &copy.temp) {
                (0, temp @ (Temp::Hidden(_) | Temp::In(..))) => {
                    self.rename_temp(table, temp, into, name).step(Step::Rename)
                }
                (0, Temp::Unnamed) => {
                    self.link_over(table, &copy.file, (*dir, into), name).step(Step::Rename)
                }
                _ => self.link_over(table, &copy.file, (*dir, into), name).step(Step::Link),
            };
            if let Err(error) = done {
                // The file stays in RAM. The files in BACKING under its names are no newer than
                // those that these names hide.
                self.hides(table, copy.job.ino, &names[..placed], backing_ino);
                return Err(error);
            }
        }
        if let Some((dir, time)) = from {
            keep_time(&dir, time);
        }
        for (ino, (dir, time)) in dirs {
            keep_time(&dir, time);
            table.dir_times.remove(&ino);
            placed_in.insert(ino, dir);
        }
        Ok(())
    }

    /// Records that these names of a file in RAM hide a copy of it in BACKING.
    fn hides(&self, table: &mut Table, ino: Ino, names: &[(Ino, Name)], backing_ino: u64) {
        for (dir, name) in names {
            table.remove_in_ram(*dir, name);
            let in_ram = InRam { ino, hides: NonZero::new(backing_ino) };
            table.insert_in_ram(*dir, name, in_ram);
        }
    }
}

/// Copies content, owner, mode and attributes. Returns the number of bytes.
pub(super) fn copy(source: &File, target: &File) -> Result<u64, Errno> {
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
    // Without a hole at the end it is long enough: ext4 would journal a block more.
    if at < size {
        rustix::fs::ftruncate(target, size)?;
    }
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

/// Names of extended attributes as the kernel gives them.
pub(crate) fn split_names(list: &[u8]) -> Vec<CString> {
    list.split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .filter_map(|name| CString::new(name).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::Job;
    use crate::fs::table::Is;
    use crate::{Access, Caller, Changes, Config, Fs, Ino, ROOT, Store};
    use flashsift_core::event::OpenId;
    use rustix::fs::RenameFlags;
    use std::ffi::OsStr;
    use std::os::unix::fs::MetadataExt;
    use std::path::PathBuf;

    struct Bed {
        fs: Fs,
        folder: tempfile::TempDir,
    }

    impl Bed {
        fn new() -> Bed {
            let folder = tempfile::tempdir().unwrap();
            for name in ["backing", "store"] {
                std::fs::create_dir(folder.path().join(name)).unwrap();
            }
            let backing = std::fs::File::open(folder.path().join("backing")).unwrap();
            let store = Store::in_dir(&folder.path().join("store")).unwrap();
            Bed { fs: Fs::new(backing.into(), store, Config::default()).unwrap(), folder }
        }

        fn create(&self, name: &str, bytes: &[u8]) -> (Ino, OpenId) {
            let us = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
            let caller = Caller { uid: us.0, gid: us.1, tid: 1, umask: 0 };
            let name = OsStr::new(name);
            let (attr, open, _) = self.fs.create(&caller, ROOT, name, 0o644, 0).unwrap();
            self.write(open, 0, bytes);
            (attr.ino, open)
        }

        fn write(&self, open: OpenId, at: u64, bytes: &[u8]) {
            assert_eq!(self.fs.write(Access::default(), open, at, bytes).unwrap(), bytes.len());
        }

        fn read(&self, open: OpenId) -> Vec<u8> {
            let mut bytes = vec![0; 1 << 20];
            let read = self.fs.read(Access::default(), open, 0, &mut bytes).unwrap();
            bytes.truncate(read);
            bytes
        }

        fn below(&self, name: &str) -> PathBuf {
            self.folder.path().join("backing").join(name)
        }

        fn is_in_ram(&self, ino: Ino) -> bool {
            matches!(self.fs.table().node(ino).map(|node| &node.is), Some(Is::Ram))
        }

        /// `false`, with the reason printed, where files without a name are impossible.
        fn hand_over(&self, ino: Ino) -> bool {
            self.fs.settle(&[Job { large: true, ..Job::later(ino) }]).unwrap();
            let done = self.fs.store.handed_over(ino).is_some();
            if !done {
                println!("SKIPPED: the file system takes no files without a name");
            }
            done
        }
    }

    /// A file that the kernel forgot while it lived in RAM is unknown to every process after its
    /// write-back, so its node must go. It stayed, and a mount in which files were created all day
    /// grew without end.
    #[test]
    fn a_forgotten_file_leaves_the_table_after_its_write_back() {
        let bed = Bed::new();
        let (ino, open) = bed.create("a", b"");
        bed.fs.release(0, open);
        bed.fs.forget(ino, 1);
        assert!(bed.fs.table().node(ino).is_some(), "it lives in RAM");
        bed.fs.settle_all().unwrap();
        assert!(bed.fs.table().node(ino).is_none());
        let found = bed.fs.lookup(ROOT, OsStr::new("a")).unwrap();
        assert_eq!(found.ino, ino, "it keeps its number");
        bed.fs.check();
    }

    /// A file that is too large for RAM takes none there, and is used as before: it has no name in
    /// BACKING, so its deletion leaves nothing. Its write-back is no second copy.
    #[test]
    fn a_file_that_was_handed_over_is_used_as_before() {
        let bed = Bed::new();
        let (ino, open) = bed.create("a", b"content");
        let before = bed.fs.attr(ino).unwrap();
        if !bed.hand_over(ino) {
            return;
        }
        let after = bed.fs.attr(ino).unwrap();
        assert_eq!(
            (before.mtime, before.ctime, before.mode),
            (after.mtime, after.ctime, after.mode)
        );
        assert!(bed.is_in_ram(ino) && !bed.below("a").exists());
        assert_eq!(bed.fs.store.files(), 0);
        bed.write(open, 7, b" and more");
        bed.fs
            .set_xattr(
                &Caller { uid: 0, gid: 0, tid: 1, umask: 0 },
                ino,
                OsStr::new("user.x"),
                b"value",
                0,
            )
            .unwrap();
        let mode = Changes { mode: Some(0o600), ..Changes::default() };
        assert_eq!(bed.fs.set_attr(1, ino, &mode).unwrap().mode & 0o777, 0o600);
        bed.fs.release(1, open);
        let (open, _) = bed.fs.open(1, ino).unwrap();
        let (from, to) = ((ROOT, OsStr::new("a")), (ROOT, OsStr::new("b")));
        bed.fs.rename(1, from, to, RenameFlags::empty()).unwrap();
        let inside = std::os::fd::AsRawFd::as_raw_fd(&*bed.fs.store.handed_over(ino).unwrap());
        let inode = std::fs::metadata(format!("/proc/self/fd/{inside}")).unwrap().ino();
        bed.fs.settle_all().unwrap();
        assert!(!bed.is_in_ram(ino));
        let found = std::fs::metadata(bed.below("b")).unwrap();
        assert_eq!((found.ino(), found.mode() & 0o777), (inode, 0o600), "it is the same file");
        assert_eq!(std::fs::read(bed.below("b")).unwrap(), b"content and more");
        assert_eq!(bed.read(open), b"content and more");
        assert_eq!(bed.fs.get_xattr(ino, OsStr::new("user.x")).unwrap(), b"value");
        bed.fs.check();
        let (ino, open) = bed.create("deleted", b"content");
        assert!(bed.hand_over(ino));
        bed.fs.unlink(1, ROOT, OsStr::new("deleted")).unwrap();
        assert_eq!(bed.read(open), b"content");
        bed.fs.release(1, open);
        bed.fs.check();
        let names = std::fs::read_dir(bed.below(".")).unwrap().count();
        assert_eq!(names, 2, "the first file and our directory");
    }

    /// A file that was handed over gets its name some time later without a decision of the sifter,
    /// for which it is on flash.
    #[test]
    fn a_file_that_was_handed_over_gets_its_name_in_time() {
        let bed = Bed::new();
        let (ino, _) = bed.create("a", b"content");
        if !bed.hand_over(ino) {
            return;
        }
        let due_us = bed.fs.next_name_us().unwrap();
        bed.fs.settle_due(due_us - 1).1.unwrap();
        assert!(bed.is_in_ram(ino));
        bed.fs.settle_due(due_us).1.unwrap();
        assert!(!bed.is_in_ram(ino));
        assert_eq!(std::fs::read(bed.below("a")).unwrap(), b"content");
    }

    /// A checkpoint is a copy under the file's name; the file stays in RAM. The next write-back of
    /// an unchanged file copies nothing.
    #[test]
    fn a_checkpoint_is_in_backing_while_the_file_stays_in_ram() {
        let bed = Bed::new();
        let (ino, open) = bed.create("a", b"first");
        let keep = Job { keep: true, ..Job::later(ino) };
        let inode = || std::fs::metadata(bed.below("a")).unwrap().ino();
        bed.fs.settle(&[keep]).unwrap();
        assert_eq!(std::fs::read(bed.below("a")).unwrap(), b"first");
        bed.write(open, 0, b"later");
        assert_eq!(std::fs::read(bed.below("a")).unwrap(), b"first");
        assert!(bed.is_in_ram(ino));
        bed.fs.check();
        let before = inode();
        bed.fs.settle(&[keep]).unwrap();
        assert_eq!(std::fs::read(bed.below("a")).unwrap(), b"later");
        assert_ne!(inode(), before);
        // Closed, it is the same as before.
        bed.fs.release(1, open);
        let (before, bytes) = (inode(), bed.fs.status().settled_bytes);
        bed.fs.settle(&[keep, Job::later(ino)]).unwrap();
        assert!(!bed.is_in_ram(ino));
        assert_eq!((inode(), bed.fs.status().settled_bytes), (before, bytes), "no further copy");
        assert_eq!(bed.fs.attr(ino).unwrap().size, 5);
        bed.fs.check();
    }

    /// A file with a checkpoint is deleted with it, and takes it along when it is renamed.
    #[test]
    fn a_checkpoint_goes_with_its_file() {
        let bed = Bed::new();
        for name in ["a", "b", "c"] {
            let (ino, open) = bed.create(name, name.as_bytes());
            bed.fs.settle(&[Job { keep: true, ..Job::later(ino) }]).unwrap();
            if name == "a" {
                bed.write(open, 0, b"A");
            }
        }
        bed.fs.unlink(1, ROOT, OsStr::new("c")).unwrap();
        assert!(!bed.below("c").exists());
        for (from, to) in [("a", "b"), ("b", "d")] {
            let (from, to) = ((ROOT, OsStr::new(from)), (ROOT, OsStr::new(to)));
            bed.fs.rename(1, from, to, RenameFlags::empty()).unwrap();
            bed.fs.check();
        }
        bed.fs.settle_all().unwrap();
        assert_eq!(std::fs::read(bed.below("d")).unwrap(), b"A");
        assert!(!bed.below("a").exists() && !bed.below("b").exists());
        bed.fs.check();
    }
}
