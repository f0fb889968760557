//! Performing the decisions of the sifter.
//!
//! The sifter receives every event of the stream in order. A thread that makes an application wait
//! for a decision (a sync, a lack of space) performs it; the daemon performs the others. Some files
//! must move for reasons that only the mount knows (a directory that takes no renamed file, an
//! attribute that RAM does not support). Such a file moves without a decision, and the mount
//! reports it to the sifter.

use super::Fs;
use super::failures::{Step, WriteBackError, WriteBackFailures};
use super::table;
use super::types::Ino;
use super::write_back::Job;
use flashsift_core::event::{FileId, Micros};
use flashsift_core::sift::{Blocked, Decision, Reason, Sift, live::Live};
use parking_lot::{Condvar, MutexGuard};
use rustix::io::Errno;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

/// Without a deadline the daemon looks again after this time, and at the latest after a suspend.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

type Sink = Box<dyn FnMut(SiftNotice) + Send>;

/// A message between the sifter and the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SiftNotice {
    /// The sifter decided.
    Decided(Decision),
    /// The mount reported that a file is on flash without a decision.
    OnFlash(FileId),
}

/// The sifter, and its decisions that are not performed yet.
pub(crate) struct Decisions {
    pub(crate) sift: Live,
    pending: VecDeque<Decision>,
    sink: Option<Sink>,
    /// Decisions that are being performed, by file.
    out: HashMap<FileId, u32>,
    ended: bool,
}

/// The condition that a thread waits for: a decision is performed, or a new decision arrives.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    performed: Condvar,
    decided: Condvar,
}

impl Decisions {
    pub(crate) fn new(sift: Live) -> Decisions {
        Decisions { sift, pending: VecDeque::new(), sink: None, out: HashMap::new(), ended: false }
    }

    /// Calls the sifter, and collects the decisions that follow.
    pub(crate) fn call<T>(&mut self, call: impl FnOnce(&mut Live) -> T) -> T {
        let answer = call(&mut self.sift);
        while let Some(decision) = self.sift.poll() {
            if let Some(sink) = &mut self.sink {
                sink(SiftNotice::Decided(decision));
            }
            self.pending.push_back(decision);
        }
        answer
    }

    /// Takes all pending decisions, which the caller then performs.
    fn take(&mut self) -> Vec<Decision> {
        let taken: Vec<Decision> = self.pending.drain(..).collect();
        for file in taken.iter().filter_map(Decision::file) {
            *self.out.entry(file).or_default() += 1;
        }
        taken
    }

    pub(crate) fn next_deadline(&self) -> Option<Micros> {
        self.sift.next_deadline()
    }

    /// Whether something is pending that no application performs because it waits for it.
    pub(crate) fn wait_for_no_application(&self) -> bool {
        self.pending.iter().any(|decision| match decision {
            // A lack of space may be foreseen: then no application waits yet.
            Decision::WriteBack { why, .. } => {
                !matches!(why, Reason::Sync | Reason::Ahead | Reason::All)
            }
            _ => true,
        })
    }

    /// Checks the invariants of the pending decisions; for tests.
    pub(crate) fn check(&self) {
        self.sift.check();
    }
}

impl Fs {
    /// Sends every message between the sifter and the mount to this sink from now on, in order.
    pub fn observe_decisions(&self, sink: impl FnMut(SiftNotice) + Send + 'static) {
        self.events.with_stream(|decisions, _| decisions.sink = Some(Box::new(sink)));
    }

    /// Performs the pending decisions.
    ///
    /// # Errors
    ///
    /// The files among them that could not be written back.
    pub(crate) fn perform(&self) -> Result<(), WriteBackFailures> {
        let mut failed = Vec::new();
        loop {
            let decisions = self.events.with_stream(|decisions, _| decisions.take());
            if decisions.is_empty() {
                return WriteBackFailures::from_all(failed);
            }
            if let Err(failures) = self.perform_these(&decisions) {
                failed.extend(failures.into_all());
            }
        }
    }

    fn perform_these(&self, decisions: &[Decision]) -> Result<(), WriteBackFailures> {
        let mut performing = Performing { fs: self, decisions, results: HashMap::new() };
        let mut jobs: Vec<Job> = Vec::new();
        let mut by_file: HashMap<Ino, usize> = HashMap::new();
        let mut closes = false;
        for decision in decisions {
            match *decision {
                Decision::WriteBack { file, keep_in_ram: keep, why } => {
                    let (durable, large) = (why == Reason::Sync, why == Reason::Large);
                    let ino = table::number(file);
                    // Two decisions on one file are performed as one.
                    match by_file.entry(ino) {
                        Entry::Occupied(known) => {
                            let job = &mut jobs[*known.get()];
                            job.durable |= durable;
                            job.keep &= keep;
                            job.large &= large;
                        }
                        Entry::Vacant(new) => {
                            new.insert(jobs.len());
                            jobs.push(Job { ino, durable, keep, large });
                        }
                    }
                }
                Decision::Drop { file, .. } => {
                    let result = self.drop_file(table::number(file));
                    performing.results.insert(file, result);
                }
                Decision::CloseEpoch => closes = true,
            }
        }
        let done = self.settle(&jobs);
        performing.results.extend(jobs.iter().map(|job| (table::file_id(job.ino), Ok(()))));
        for (ino, error) in done.as_ref().err().into_iter().flat_map(WriteBackFailures::by_file) {
            // The sifter knows no directories.
            if by_file.contains_key(&ino) {
                performing
                    .results
                    .insert(table::file_id(ino), Err(blocked(error.step, error.errno)));
            }
        }
        if closes {
            let failed =
                |errno| WriteBackError { path: "/".to_owned(), step: Step::SyncAll, errno };
            done.and(self.backing.sync_all(false).map_err(|errno| failed(errno).into()))
        } else {
            done
        }
    }

    fn lives_in_ram(&self, file: FileId) -> bool {
        self.table().is_in_ram(table::number(file))
    }

    /// Reports that this file reached flash without a decision.
    pub(crate) fn left_ram(&self, ino: Ino) {
        self.account_leaving(ino);
        self.is_on_flash(table::file_id(ino));
    }

    /// Reports that this file is on flash, regardless of any decision.
    pub(crate) fn is_on_flash(&self, file: FileId) {
        self.events.with_stream(|decisions, now| {
            if !decisions.out.contains_key(&file) {
                if let Some(sink) = &mut decisions.sink {
                    sink(SiftNotice::OnFlash(file));
                }
                decisions.call(|sift| sift.done(now, file, Ok(())));
            }
        });
    }

    /// Waits until none of these is being written back by another thread.
    pub(crate) fn wait_until_performed(&self, files: &[Ino]) {
        let mut stream = self.events.stream.lock();
        while files.iter().any(|ino| stream.decisions.out.contains_key(&table::file_id(*ino))) {
            self.events.waits.performed.wait(&mut stream);
        }
    }

    /// Asks the sifter for space in RAM, and performs its decisions.
    ///
    /// # Errors
    ///
    /// The files that could not be written back.
    pub(crate) fn decide_for_space(&self, bytes: u64) -> Result<(), WriteBackFailures> {
        self.events
            .with_stream(|decisions, now| decisions.call(|sift| sift.need_space(now, bytes)));
        self.perform()
    }

    /// Asks the sifter for decisions that are due.
    pub(crate) fn decide_by_time(&self, now_us: Micros) -> Result<(), WriteBackFailures> {
        self.events.with_stream(|decisions, now| {
            decisions.call(|sift| sift.handle_deadline(now.max(now_us)));
        });
        self.perform()
    }

    /// When a decision by time is due, µs.
    pub fn next_due_us(&self) -> Option<u64> {
        let due = self.events.with_stream(|decisions, _| decisions.sift.next_deadline());
        due.into_iter().chain(self.delayed.deadline()).min()
    }

    /// Waits until there is something to perform. `false` after [`Fs::end_decisions`].
    pub fn wait_for_decisions(&self) -> bool {
        let begun = Instant::now();
        let mut stream = self.events.stream.lock();
        loop {
            self.events.deliver_queued(&mut stream);
            let now = stream.now(self.events.now());
            let due = stream.decisions.sift.next_deadline();
            let due =
                due.into_iter().chain(self.next_name_us()).chain(self.delayed.deadline()).min();
            if stream.decisions.ended {
                return false;
            }
            if !stream.decisions.pending.is_empty() || due.is_some_and(|due| due <= now) {
                return true;
            }
            let wait =
                due.map_or(LOOK_AGAIN, |due| Duration::from_micros(due - now)).min(LOOK_AGAIN);
            stream.looks_us = due;
            self.wait_for_decision(&mut stream, wait);
            if begun.elapsed() >= LOOK_AGAIN {
                return true;
            }
        }
    }

    fn wait_for_decision(
        &self,
        stream: &mut MutexGuard<'_, super::events::Stream>,
        wait: Duration,
    ) {
        self.events.waits.decided.wait_for(stream, wait);
    }

    /// [`Fs::wait_for_decisions`] returns from now on.
    pub fn end_decisions(&self) {
        self.events.with_stream(|decisions, _| decisions.ended = true);
        self.events.waits.decided.notify_all();
    }
}

/// Decisions that are being performed. Each gets its result on drop, also after a panic, or the
/// threads that wait would wait for ever.
struct Performing<'a> {
    fs: &'a Fs,
    decisions: &'a [Decision],
    results: HashMap<FileId, Result<(), Blocked>>,
}

impl Drop for Performing<'_> {
    fn drop(&mut self) {
        let mut kept = Vec::new();
        self.fs.events.with_stream(|known, now| {
            for decision in self.decisions {
                let Some(file) = decision.file() else { continue };
                let result = self.results.get(&file).copied().unwrap_or(Err(Blocked::Failed));
                known.call(|sift| sift.done(now, file, result));
                if let Some(out) = known.out.get_mut(&file) {
                    *out -= 1;
                    if *out == 0 {
                        known.out.remove(&file);
                    }
                }
                if matches!(decision, Decision::WriteBack { keep_in_ram: true, .. }) {
                    kept.push(file);
                }
            }
        });
        // A file with several names has left RAM nevertheless, and no thread has reported that.
        kept.retain(|file| !self.fs.lives_in_ram(*file));
        if !kept.is_empty() {
            self.fs.events.with_stream(|known, now| {
                kept.into_iter().for_each(|file| known.call(|sift| sift.done(now, file, Ok(()))));
            });
        }
        self.fs.events.waits.performed.notify_all();
    }
}

impl Waits {
    /// Wakes the waiting threads: there may be an earlier deadline, or a decision.
    pub(crate) fn decided(&self) {
        self.decided.notify_all();
    }
}

/// The reason that the sifter is given for an error.
fn blocked(step: Step, errno: Errno) -> Blocked {
    match (step, errno) {
        (Step::CopyUnchanged, _) => Blocked::Changing,
        (_, Errno::NOSPC | Errno::DQUOT) => Blocked::NoSpace,
        _ => Blocked::Failed,
    }
}
