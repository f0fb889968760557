//! Changes of files on flash that wait in RAM: when they are written.

use super::{Mover, UNNAMED_US};
use crate::fs::failures::{Failed, Step, WriteBackFailures};
use crate::fs::types::Ino;
use crate::fs::waiting::Waiting;
use flashsift_core::event::Micros;
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Divisor of the budget: what waits of one file is written when it has more than this part.
const SHARE: u64 = 16;

impl Mover {
    /// Writes what waits of one file to BACKING's page cache. `synced`: an application's sync
    /// follows.
    ///
    /// # Errors
    ///
    /// Those of BACKING. The changes still wait then.
    pub(crate) fn write_waiting(&self, waiting: &Waiting, synced: bool) -> Result<(), Errno> {
        // After a failure the next attempt follows as after that of a file in RAM.
        let pause_us = UNNAMED_US.min(self.waits_us);
        let again_us = (self.decider.now() + pause_us).saturating_sub(self.waits_us);
        let bytes = waiting.write(again_us)?;
        if bytes > 0 {
            self.decider.copied(bytes, synced);
            self.counters.lock().settled_bytes += bytes;
        }
        Ok(())
    }

    /// When changes may be to be written that wait, µs.
    pub(super) fn next_waiting_us(&self) -> Option<Micros> {
        Some(self.waiting_due_us.load(Ordering::Relaxed)).filter(|due_us| *due_us < Micros::MAX)
    }

    /// A change waits now that came at this time.
    pub(crate) fn waits_since(&self, since_us: Micros) {
        let due_us = since_us.saturating_add(self.waits_us);
        if self.waiting_due_us.fetch_min(due_us, Ordering::Relaxed) > due_us {
            self.decider.wake();
        }
    }

    /// Whether the pages of one file take so much RAM that they are to be written.
    pub(crate) fn is_much_waiting(&self, waiting: &Waiting, budget_bytes: u64) -> bool {
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
        let table = self.table();
        let since = table.waiting().values().filter_map(|state| state.waiting()?.since_us());
        if let Some(since_us) = since.min() {
            self.waits_since(since_us);
        }
        self.failing.lock().tried(&table, &all, &failed)
    }
}
