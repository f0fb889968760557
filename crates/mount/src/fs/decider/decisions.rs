//! Decisions of the sifter, from the call that brings them to the report of their results.
//!
//! The sifter receives every event of the stream in order. A thread that makes an application wait
//! for a decision (a sync, a lack of space) performs it; the daemon performs the others. Some files
//! must move for reasons that only the mount knows (a directory that takes no renamed file, an
//! attribute that RAM does not support). Such a file moves without a decision, and the mount
//! reports it to the sifter.

use super::Decider;
use flashsift_events::event::{FileId, Micros};
use flashsift_files::sift::{Blocked, Decision, Reason, Sift, live::Live};
use parking_lot::Condvar;
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
pub(super) struct Decisions {
    pub(super) sift: Live,
    pending: VecDeque<Decision>,
    sink: Option<Sink>,
    /// Decisions that are being performed, by file.
    out: HashMap<FileId, u32>,
    ended: bool,
}

/// The condition that a thread waits for: a decision is performed, or a new decision arrives.
#[derive(Debug, Default)]
pub(super) struct Waits {
    performed: Condvar,
    decided: Condvar,
}

impl Decisions {
    pub(super) fn new(sift: Live) -> Decisions {
        Decisions { sift, pending: VecDeque::new(), sink: None, out: HashMap::new(), ended: false }
    }

    /// Calls the sifter, and collects the decisions that follow.
    pub(super) fn call<T>(&mut self, call: impl FnOnce(&mut Live) -> T) -> T {
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

    pub(super) fn next_deadline(&self) -> Option<Micros> {
        self.sift.next_deadline()
    }

    /// Whether something is pending that no application performs because it waits for it.
    pub(super) fn wait_for_no_application(&self) -> bool {
        self.pending.iter().any(|decision| match decision {
            // A lack of space may be foreseen: then no application waits yet.
            Decision::WriteBack { why, .. } => {
                !matches!(why, Reason::Sync | Reason::Ahead | Reason::All)
            }
            _ => true,
        })
    }
}

impl Decider {
    /// Sends every message between the sifter and the mount to this sink from now on, in order.
    pub(crate) fn observe_decisions(&self, sink: impl FnMut(SiftNotice) + Send + 'static) {
        self.with_stream(|decisions, _| decisions.sink = Some(Box::new(sink)));
    }

    /// Takes the pending decisions, which the caller performs. `None`: there is none. `is_in_ram`
    /// says whether a file still lives in RAM; no lock of the stream is held then.
    pub(crate) fn take<'a>(
        &'a self,
        is_in_ram: &'a dyn Fn(FileId) -> bool,
    ) -> Option<Performing<'a>> {
        let decisions = self.with_stream(|decisions, _| decisions.take());
        let results = HashMap::new();
        (!decisions.is_empty()).then_some(Performing {
            decider: self,
            is_in_ram,
            decisions,
            results,
        })
    }

    /// Reports that this file is on flash, regardless of any decision.
    pub(crate) fn is_on_flash(&self, file: FileId) {
        self.with_stream(|decisions, now| {
            if !decisions.out.contains_key(&file) {
                if let Some(sink) = &mut decisions.sink {
                    sink(SiftNotice::OnFlash(file));
                }
                decisions.call(|sift| sift.done(now, file, Ok(())));
            }
        });
    }

    /// Waits until none of these is being written back by another thread.
    pub(crate) fn wait_until_performed(&self, files: &[FileId]) {
        let mut stream = self.stream.lock();
        while files.iter().any(|file| stream.decisions.out.contains_key(file)) {
            self.waits.performed.wait(&mut stream);
        }
    }

    /// Asks the sifter for space in RAM.
    pub(crate) fn need_space(&self, bytes: u64) {
        self.with_stream(|decisions, now| decisions.call(|sift| sift.need_space(now, bytes)));
    }

    /// Asks the sifter for decisions that are due.
    pub(crate) fn handle_deadline(&self, now_us: Micros) {
        self.with_stream(|decisions, now| {
            decisions.call(|sift| sift.handle_deadline(now.max(now_us)));
        });
    }

    /// When a decision by time is due, µs.
    pub(crate) fn next_deadline(&self) -> Option<Micros> {
        self.with_stream(|decisions, _| decisions.next_deadline())
    }

    /// Waits until there is something to perform, or until this time comes, which is asked for
    /// again after each event. `false` after [`Decider::end`].
    pub(crate) fn wait(&self, other_deadline: impl Fn() -> Option<Micros>) -> bool {
        let begun = Instant::now();
        let mut stream = self.stream.lock();
        loop {
            self.deliver_queued(&mut stream);
            let now = stream.now(self.now());
            let due = stream.decisions.next_deadline().into_iter().chain(other_deadline()).min();
            if stream.decisions.ended {
                return false;
            }
            if !stream.decisions.pending.is_empty() || due.is_some_and(|due| due <= now) {
                return true;
            }
            let wait =
                due.map_or(LOOK_AGAIN, |due| Duration::from_micros(due - now)).min(LOOK_AGAIN);
            stream.looks_us = due;
            self.waits.decided.wait_for(&mut stream, wait);
            if begun.elapsed() >= LOOK_AGAIN {
                return true;
            }
        }
    }

    /// [`Decider::wait`] returns from now on.
    pub(crate) fn end(&self) {
        self.with_stream(|decisions, _| decisions.ended = true);
        self.waits.decided.notify_all();
    }

    /// Checks the invariants of the sifter; for tests.
    pub(crate) fn check(&self) {
        self.with_stream(|decisions, _| decisions.sift.check());
    }
}

/// Decisions that are being performed. Each gets its result on drop, also after a panic, or the
/// threads that wait would wait for ever.
pub(crate) struct Performing<'a> {
    decider: &'a Decider,
    is_in_ram: &'a dyn Fn(FileId) -> bool,
    pub(crate) decisions: Vec<Decision>,
    /// Results by file; a file without one has failed.
    pub(crate) results: HashMap<FileId, Result<(), Blocked>>,
}

impl Drop for Performing<'_> {
    fn drop(&mut self) {
        let mut kept = Vec::new();
        self.decider.with_stream(|known, now| {
            for decision in &self.decisions {
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
        kept.retain(|file| !(self.is_in_ram)(*file));
        if !kept.is_empty() {
            self.decider.with_stream(|known, now| {
                kept.into_iter().for_each(|file| known.call(|sift| sift.done(now, file, Ok(()))));
            });
        }
        self.decider.waits.performed.notify_all();
    }
}

impl Waits {
    /// Wakes the waiting threads: there may be an earlier deadline, or a decision.
    pub(super) fn decided(&self) {
        self.decided.notify_all();
    }
}
