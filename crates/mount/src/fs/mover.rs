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
//! A file for which RAM has no space is handed over first: it becomes a file without a name in
//! BACKING's file system, and nothing is flushed. Its write-back then needs no second copy, and if
//! it is deleted before the kernel has written it, it costs nothing.
//!
//! A copy that cannot get its names is kept, so that the next attempt writes nothing again.
//!
//! Writers are not blocked during the copy; if the file changes meanwhile, the copy is repeated.
//! After [`TRIES`] failed attempts the file's writers wait for the last one.

mod copies;
mod directories;
mod handed_over;
mod in_place;
mod name_alone;
mod performing;
mod placing;
mod removal;
mod waiting;

use super::backing::{Backing, OpenDir};
use super::decider::Decider;
use super::delayed::Delayed;
use super::descriptors::for_a_move;
use super::drops::Drops;
use super::failures::{Failed, Failing, In, Step, WriteBackError, WriteBackFailures};
use super::namespace::{Locked, Namespace};
use super::residence::{FileState, Residence};
use super::store::Store;
use super::table::{Table, file_id};
use super::temps::Temp;
use super::types::{Failure, Ino, Status};
use super::volume::begin_flush;
use flashsift_events::event::{Action, FileId, Micros};
use flashsift_files::delayed::schedule::Ending;
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// Copies of a changing file that are tried before its writers have to wait.
const TRIES: u32 = 3;
/// Files of a batch, all of which are open meanwhile.
const BATCH: usize = 256;
/// Copies without their names that are kept for the next attempt, all of which stay open.
const KEPT: usize = 64;

/// A file to be written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Job {
    pub(crate) ino: Ino,
    /// FileState and names are durable when it is done.
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
#[derive(Debug)]
pub(crate) struct Staged {
    job: Job,
    file_state: Arc<FileState>,
    temp: Temp,
    file: Arc<File>,
    /// The file's change count when it was copied.
    changes: u64,
    bytes: u64,
    /// It is the file itself, which was handed over, and no copy.
    itself: bool,
    /// An attempt before this one has flushed it.
    flushed: bool,
    /// The file has no name, and will have none.
    nameless: bool,
}

/// A file that has its names in BACKING.
struct Placed {
    job: Job,
    backing_ino: u64,
    file_state: Arc<FileState>,
    file: Arc<File>,
}

/// No copy was complete, because the file was written to.
const CHANGED: Failed = Failed { step: Step::CopyUnchanged, errno: Errno::AGAIN };

/// Directories in which files were placed.
type Dirs = HashMap<Ino, Arc<OpenDir>>;

/// The results of a batch so far.
#[derive(Default)]
struct Batch {
    dirs: Dirs,
    placed: Vec<Placed>,
    tried: Vec<Ino>,
    failed: Vec<(Ino, Failed)>,
}

impl Batch {
    /// Notes a failure. Returns the outcome of a success.
    fn note(&mut self, job: Job, done: Result<Outcome, Failed>) -> Option<Outcome> {
        done.map_err(|error| self.failed.push((job.ino, error))).ok()
    }
}

#[derive(PartialEq, Eq)]
enum Outcome {
    Settled,
    /// Its copy is in BACKING, and the file stays in RAM.
    Kept,
    /// The file was written to since.
    Changed,
    /// The file is gone, or another thread has moved it.
    Nothing,
}

/// Longest time after which a file that was handed over gets its name, µs: when the kernel writes
/// dirty pages by default (`vm.dirty_expire_centisecs`). Until then its deletion costs nothing.
const UNNAMED_US: Micros = 30_000_000;
/// Divisor of the window of loss: a file that was handed over waits for its name no longer than
/// this part, which the sifter leaves of the window.
const WINDOW: u64 = 16;

/// Moves files from one residence to another: in batches, with one commit or none.
#[derive(Debug)]
pub(crate) struct Mover {
    names: Arc<Mutex<Namespace>>,
    backing: Arc<Backing>,
    store: Arc<Store>,
    decider: Arc<Decider>,
    delayed: Arc<Delayed>,
    counters: Arc<Mutex<Status>>,
    pub(crate) drops: Drops,
    /// Files that were deleted in RAM so far.
    removals: Mutex<u64>,
    removed: Condvar,
    /// Held by an operation that is tried again until a deleted file is closed. A thread has to be
    /// left that learns of the close.
    retries: [Mutex<()>; 2],
    /// Held by the thread that frees space in RAM.
    pub(super) making_room: Mutex<()>,
    /// Locked after the table.
    failing: Mutex<Failing>,
    /// Copies that could not get their names, by file. Locked after the table.
    kept: Mutex<HashMap<Ino, Staged>>,
    /// Files that were handed over, and when each has to get its name, in order.
    handed_over: Mutex<VecDeque<(Micros, Ino)>>,
    /// New directories, and when each is to be made, in order.
    directories: Mutex<VecDeque<(Micros, Ino)>>,
    /// When the oldest of them are to be made because many wait, µs; the largest number: few do.
    many_due_us: AtomicU64,
    /// Time for which a new directory waits at most, µs.
    directory_us: Micros,
    /// Time from a file's being handed over to its name, µs.
    unnamed_us: Micros,
    /// Time for which changes of a file on flash wait, µs.
    waits_us: Micros,
    /// When changes may be to be written that wait, µs; the largest number: none waits.
    waiting_due_us: AtomicU64,
    /// The pause after the next failure to write them, µs; 0: the first one's.
    waiting_pause_us: AtomicU64,
}

impl Mover {
    pub(crate) fn new(
        names: Arc<Mutex<Namespace>>,
        delayed: Arc<Delayed>,
        counters: Arc<Mutex<Status>>,
        lose_at_most_us: Micros,
    ) -> Mover {
        let (backing, store, decider) = names.lock().stands_on();
        Mover {
            names,
            backing,
            store,
            decider,
            delayed,
            counters,
            drops: Drops::default(),
            removals: Mutex::default(),
            removed: Condvar::new(),
            retries: Default::default(),
            making_room: Mutex::new(()),
            failing: Mutex::default(),
            kept: Mutex::default(),
            handed_over: Mutex::default(),
            directories: Mutex::default(),
            many_due_us: AtomicU64::new(Micros::MAX),
            directory_us: lose_at_most_us - lose_at_most_us / directories::WINDOW,
            unnamed_us: (lose_at_most_us / WINDOW).min(UNNAMED_US),
            waits_us: lose_at_most_us - lose_at_most_us / WINDOW,
            waiting_due_us: AtomicU64::new(Micros::MAX),
            waiting_pause_us: AtomicU64::new(0),
        }
    }

    fn table(&self) -> Locked<'_> {
        Locked::new(&self.names)
    }

    /// Whether files stay in RAM for want of space in BACKING. New ones are created there then, so
    /// that the programs which create them get the error: `statfs` shows no quota.
    pub(crate) fn lacks_space(&self, table: &Table) -> bool {
        self.failing.lock().for_want_of_space(table)
    }

    /// Current failures, with the paths of their files, and how many are those of directories.
    pub(crate) fn failures(&self, table: &Table) -> (Vec<Failure>, u64) {
        self.failing.lock().now(table)
    }

    /// Performs the decisions that are due. Returns how many files reached flash, and the failures.
    ///
    /// # Errors
    ///
    /// The files that could not be written back, which stay in RAM.
    pub(crate) fn settle_due(&self, now_us: u64) -> (u64, Result<(), WriteBackFailures>) {
        let before = self.counters.lock().settled;
        self.decider.handle_deadline(now_us);
        let done = self.perform();
        let done = done.and(self.settle_handed_over(self.decider.now().max(now_us)));
        let done = done.and(self.make_due(self.decider.now().max(now_us)));
        let done = done.and(self.make_some_of_many(self.decider.now().max(now_us)));
        let done = done.and(self.write_due(self.decider.now().max(now_us)));
        // A failure is logged there, and the epoch is tried again.
        let _ = self.delayed.end_due_epoch(self.decider.now().max(now_us));
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
    pub(crate) fn settle_all(&self) -> Result<(), WriteBackFailures> {
        self.write_back_all()?;
        let begun = Instant::now();
        self.backing.sync_all(false).map_err(WriteBackError::of_all(Step::SyncAll))?;
        self.table().all_names_last(begun);
        Ok(())
    }

    /// Writes back every file in RAM that has a name, without those that are created meanwhile.
    /// Their names become durable with the next commit of the kernel.
    ///
    /// # Errors
    ///
    /// The files that could not be written back, which stay in RAM.
    pub(crate) fn write_back_all(&self) -> Result<(), WriteBackFailures> {
        // Files that cannot be written back do not keep these from it.
        self.write_back_files().and(self.make_all_directories()).and(self.write_all_waiting())
    }

    fn write_back_files(&self) -> Result<(), WriteBackFailures> {
        self.delayed.end_epoch(Ending::Asked).map_err(WriteBackError::of_all(Step::Epoch))?;
        let all: Vec<Ino> = {
            let table = self.table();
            let others =
                table.named_in_ram().iter().filter(|ino| !table.delayed().contains_key(ino));
            others.copied().collect()
        };
        self.decider.emit(self.decider.begin(0), Action::SyncAll);
        let done = self.perform();
        self.decider.wait_until_performed(&ids(&all));
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
        files.iter().copied().filter(|ino| table.named_in_ram().contains(ino)).collect()
    }

    /// Sets the times of wanted directories to the last change by a file in RAM.
    pub(crate) fn keep_times(&self, wanted: impl Fn(&Table, Ino) -> bool) {
        let table = self.table();
        let dirs: Vec<Ino> =
            table.dir_times.keys().copied().filter(|dir| wanted(&table, *dir)).collect();
        drop(table);
        for ino in dirs {
            let mut table = self.table();
            if let (Ok(attr), Ok(dir)) = (table.attr_of(ino), table.dir(ino)) {
                table.keep_times_of(ino, &dir, &attr);
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
        self.decider.wait_until_performed(&ids(files));
        for ino in self.named_of(files) {
            let failure = self.failing.lock().of(ino);
            match failure {
                Some(errno) => return Err(errno),
                None => self.settle(&[Job::durable(ino)])?,
            }
        }
        Ok(())
    }

    /// Makes content and names of a file on flash durable.
    pub(crate) fn fsync_settled(&self, ino: Ino, file: &File) -> Result<(), Errno> {
        self.backing.volume.begin_sync(file);
        self.backing.fsync(file, true)?;
        let mut table = self.table();
        if let Some(backing_ino) = table.residence(ino).and_then(Residence::backing_ino) {
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
        if self.remove_nameless(self.removals()) && self.store.usage()?.0 + bytes < budget {
            return Ok(());
        }
        let used = self.store.usage()?.0;
        // The end of their epoch frees the RAM of files of groups.
        let _ = self.delayed.end_epoch(Ending::Asked);
        if self.store.usage()?.0 < used {
            return Ok(());
        }
        // Decisions that foresaw this may be pending; a failure of theirs is reported elsewhere.
        let _ = self.perform();
        if self.store.usage()?.0 < used {
            return Ok(());
        }
        let before = self.counters.lock().settled;
        self.decider.need_space(bytes);
        let done = self.perform();
        // A file that cannot be written back does not keep the others from freeing space.
        let has_freed = || -> Result<bool, Errno> {
            Ok(self.counters.lock().settled > before || self.store.usage()?.0 < used)
        };
        // Pages of files on flash are few, and cost more than others: they are overwritten.
        match has_freed()?
            || (self.write_all_waiting().is_ok() && has_freed()?)
            || (self.make_all_directories().is_ok() && has_freed()?)
        {
            true => Ok(()),
            false => Err(done.err().map_or(Errno::NOSPC, Into::into)),
        }
    }

    /// Writes these files back, also those without a name that a process has open.
    pub(crate) fn settle(&self, jobs: &[Job]) -> Result<(), WriteBackFailures> {
        let jobs = &self.without_nameless(jobs)[..];
        let mut tried: Vec<Ino> = jobs.iter().map(|job| job.ino).collect();
        let mut failed = Vec::new();
        let (delayed, jobs) = self.delayed.partition_delayed(jobs.to_vec(), |job| job.ino);
        if !delayed.is_empty()
            && let Err(errno) = self.delayed.end_epoch(Ending::Asked)
        {
            failed.extend(delayed.iter().map(|job| (job.ino, Failed { step: Step::Epoch, errno })));
        }
        // Where one sync makes all earlier names durable, it follows the last batch: each commit
        // writes blocks of directories and inodes that the next one changes again.
        let mut waiting_for_sync = Vec::new();
        for jobs in jobs.chunks(for_a_move(BATCH)) {
            let mut batch = Batch::default();
            let mut again = jobs.to_vec();
            again.retain(|job| {
                let done = self.settle_in_place(*job, &mut batch);
                batch.note(*job, done) == Some(Outcome::Nothing)
            });
            again.retain(|job| {
                if !job.large || job.durable {
                    return true;
                }
                let done = self.hand_over(*job);
                match batch.note(*job, done) {
                    // Where BACKING takes no file without a name, it is written back.
                    Some(Outcome::Nothing) => return !self.is_handed_over(job.ino),
                    Some(Outcome::Changed) => batch.failed.push((job.ino, CHANGED)),
                    _ => (),
                }
                false
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
                    let done = self.place(copy, &mut batch);
                    if batch.note(job, done) == Some(Outcome::Changed) {
                        again.push(job);
                    }
                }
                if again.is_empty() {
                    break;
                }
            }
            for job in again {
                let done = self.settle_alone(job, &mut batch);
                if batch.note(job, done) == Some(Outcome::Changed) {
                    // Its writers wait: no one could have changed it.
                    batch.failed.push((job.ino, CHANGED));
                }
            }
            if self.backing.volume.one_sync_covers_earlier() {
                let last = batch.placed.last().map(|placed| placed.file.clone());
                for placed in std::mem::take(&mut batch.placed) {
                    // The others are closed: only the last one is synced.
                    let file = last.clone().unwrap_or(placed.file);
                    waiting_for_sync.push(Placed { file, ..placed });
                }
            } else if self.backing.volume.is_ordered() {
                self.sync_placed(&batch.placed, &mut batch.failed);
            } else {
                self.sync_directories(&mut batch);
            }
            self.release_placed(batch.placed);
            let table = &mut self.table();
            let committed =
                self.backing.committed_after().and_then(|after| Instant::now().checked_sub(after));
            if let Some(committed) = committed {
                table.all_names_last(committed);
            }
            tried.extend(batch.tried);
            failed.extend(batch.failed);
        }
        self.sync_placed(&waiting_for_sync, &mut failed);
        self.release_placed(waiting_for_sync);
        let table = self.table();
        self.failing.lock().tried(&table, &tried, &failed)
    }

    fn release_placed(&self, all: Vec<Placed>) {
        let mut table = self.table();
        for placed in all {
            table.release(placed.job.ino, placed.file_state);
            table.drop_unused(placed.job.ino);
        }
    }

    /// Writes back one file while its writers wait.
    fn settle_alone(&self, job: Job, batch: &mut Batch) -> Result<Outcome, Failed> {
        let Ok(file_state) = self.delayed.file_state(&mut self.table(), job.ino) else {
            return Ok(Outcome::Nothing);
        };
        let _closed = file_state.gate.write();
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
            staged.into_iter().partition(|copy| copy.nameless || copy.flushed);
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
                [one] => self.backing.fsync(&one.file, synced),
                _ => self.backing.sync_all(synced),
            };
            match done.step(Step::Sync) {
                Ok(()) => flushed.extend(staged),
                Err(error) => lost.extend(staged.into_iter().map(|copy| (copy, error))),
            }
        }
        for copy in flushed.iter().filter(|copy| !copy.flushed) {
            let id = file_id(copy.job.ino);
            match (copy.nameless, copy.itself) {
                (true, true) => (),
                (true, false) => self.decider.hands_over(id, copy.bytes),
                (false, true) => self.decider.flushes(id, copy.job.durable),
                (false, false) => self.decider.copied(copy.bytes, copy.job.durable),
            }
        }
        for (copy, error) in lost {
            failed.push((copy.job.ino, error));
            self.discard(copy);
        }
        flushed
    }

    /// Makes the files durable for which an application waits.
    fn sync_placed(&self, all: &[Placed], failed: &mut Vec<(Ino, Failed)>) {
        let waited: Vec<&Placed> = all.iter().filter(|placed| placed.job.durable).collect();
        let Some(last) = waited.last() else { return };
        let last = self
            .backing
            .volume
            .one_sync_covers_earlier()
            .then(|| self.backing.fsync(&last.file, true));
        for placed in &waited {
            let done = last.unwrap_or_else(|| self.backing.fsync(&placed.file, true));
            placed.file_state.set_synced(done);
            match done.step(Step::Sync) {
                Ok(()) => self.table().names_last(placed.backing_ino),
                Err(error) => failed.push((placed.job.ino, error)),
            }
        }
    }

    /// Makes the names of a batch durable, whose content is durable already.
    fn sync_directories(&self, batch: &mut Batch) {
        let mut durable = Ok(());
        let synced = batch.placed.iter().any(|placed| placed.job.durable);
        for (ino, dir) in &batch.dirs {
            batch.tried.push(*ino);
            let done = self.backing.fsync_dir(dir, synced);
            durable = durable.and(done);
            if let Err(error) = done.step(Step::SyncDirectory) {
                batch.failed.push((*ino, error));
            }
        }
        for placed in &batch.placed {
            placed.file_state.set_synced(durable);
            if durable.is_ok() {
                self.table().names_last(placed.backing_ino);
            }
        }
    }
}

fn ids(files: &[Ino]) -> Vec<FileId> {
    files.iter().map(|ino| file_id(*ino)).collect()
}

#[cfg(test)]
mod tests;
