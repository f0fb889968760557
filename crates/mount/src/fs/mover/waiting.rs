//! Changes of files on flash that wait in RAM: when they are written.

use super::Mover;
use crate::fs::failures::{Failed, Step, WriteBackFailures};
use crate::fs::residence::FileState;
use crate::fs::types::Ino;
use crate::fs::waiting::Waiting;
use flashsift_events::event::Micros;
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Divisor of the budget: what waits of one file is written when it has more than this part.
const SHARE: u64 = 16;
/// The first pause after a failure, and the longest, µs: each is twice the one before.
const PAUSES_US: [Micros; 2] = [1_000_000, 60_000_000];

impl Mover {
    /// Writes what waits of one file to BACKING's page cache. `synced`: an application's sync
    /// follows.
    ///
    /// # Errors
    ///
    /// Those of BACKING. The changes still wait then.
    pub(crate) fn write_waiting(&self, waiting: &Waiting, synced: bool) -> Result<(), Errno> {
        let bytes = match waiting.write() {
            Ok(bytes) => bytes,
            Err(errno) => {
                self.writes_again();
                return Err(errno);
            }
        };
        if bytes > 0 {
            self.decider.copied(bytes, synced);
            self.counters.lock().settled_bytes += bytes;
        }
        Ok(())
    }

    /// Writes what waits of a file of which a crash must not show a later change without it: of its
    /// owner, its permissions, its attributes, or of the file that its name stands for.
    ///
    /// # Errors
    ///
    /// Those of BACKING. The changes still wait then.
    pub(crate) fn write_waiting_first(
        &self,
        ino: Ino,
        file_state: &FileState,
    ) -> Result<(), Errno> {
        let Some(waiting) = file_state.waiting() else { return Ok(()) };
        self.write_waiting(&waiting, false)?;
        self.table().end_waiting(ino);
        Ok(())
    }

    /// When changes may be to be written that wait, µs.
    pub(super) fn next_waiting_us(&self) -> Option<Micros> {
        Some(self.waiting_due_us.load(Ordering::Relaxed)).filter(|due_us| *due_us < Micros::MAX)
    }

    /// A change waits now that came at this time.
    pub(crate) fn waits_since(&self, since_us: Micros) {
        self.waits_until(since_us.saturating_add(self.waits_us));
    }

    /// An attempt failed: the next one follows after a pause.
    fn writes_again(&self) {
        let pause_us = self.waiting_pause_us.load(Ordering::Relaxed).max(PAUSES_US[0]);
        self.waits_until(self.decider.now().saturating_add(pause_us));
    }

    fn waits_until(&self, due_us: Micros) {
        if self.waiting_due_us.fetch_min(due_us, Ordering::Relaxed) > due_us {
            self.decider.wake();
        }
    }

    /// Whether the pages of one file take so much RAM that they are to be written.
    pub(crate) fn is_much_waiting(waiting: &Waiting, budget_bytes: u64) -> bool {
        waiting.unsaved().is_some_and(|bytes| bytes > budget_bytes / SHARE)
    }

    /// Writes all that waits if any of it is due: one commit of the kernel takes all of it.
    pub(super) fn write_due(&self, now_us: Micros) -> Result<(), WriteBackFailures> {
        match self.next_waiting_us().is_some_and(|due_us| due_us <= now_us) {
            true => self.write_all_waiting(),
            false => Ok(()),
        }
    }

    /// The number of files of which changes wait, and the bytes of these.
    pub(crate) fn waiting_bytes(&self) -> (u64, u64) {
        let table = self.table();
        let unsaved = table.waiting().values().filter_map(|state| state.waiting()?.unsaved());
        unsaved.fold((0, 0), |(files, bytes), more| (files + 1, bytes + more))
    }

    /// Writes all that waits to BACKING's page cache.
    ///
    /// # Errors
    ///
    /// The files of which it still waits.
    pub(crate) fn write_all_waiting(&self) -> Result<(), WriteBackFailures> {
        self.waiting_due_us.store(Micros::MAX, Ordering::Relaxed);
        let all: Vec<Ino> = self.table().waiting().keys().copied().collect();
        let mut failed = Vec::new();
        for ino in &all {
            let waiting = self.table().waiting().get(ino).and_then(|state| state.waiting());
            let done = waiting.map_or(Ok(()), |waiting| self.write_waiting(&waiting, false));
            if let Err(errno) = done {
                failed.push((*ino, Failed { step: Step::Copy, errno }));
            }
            let mut table = self.table();
            table.end_waiting(*ino);
            table.drop_unused(*ino);
        }
        // A failure has said when the next attempt follows.
        let pause_us = match failed.is_empty() {
            true => 0,
            false => {
                let pause_us = self.waiting_pause_us.load(Ordering::Relaxed);
                (pause_us * 2).clamp(PAUSES_US[0] * 2, PAUSES_US[1])
            }
        };
        self.waiting_pause_us.store(pause_us, Ordering::Relaxed);
        let table = self.table();
        let since = table.waiting().values().filter_map(|state| state.waiting()?.since_us());
        if let Some(since_us) = since.min() {
            self.waits_since(since_us);
        }
        self.failing.lock().tried(&table, &all, &failed)
    }
}
