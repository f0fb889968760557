//! New directories that wait in RAM: when they are made in BACKING.
//!
//! A directory is made when the first file in it gets its name, so that one commit of the kernel
//! has its block with the names in it. One without files is made after the time that files wait, or
//! what an application does with it makes it at once.

use super::Mover;
use crate::fs::failures::{Failed, Step, WriteBackFailures};
use crate::fs::types::Ino;
use flashsift_events::event::Micros;
use flashsift_files::sift::FILE_COST_BYTES;

/// Divisor of the window of loss: directories wait this part of it longer than files do, so that
/// those come first that were created with it.
pub(super) const WINDOW: u64 = 32;
/// Divisor of the budget: the inodes of directories take no more than this part.
const INODES: u64 = 8;
/// Time from a failure to the next attempt, µs.
const PAUSE_US: Micros = 30_000_000;

impl Mover {
    /// How many directories may wait in RAM.
    pub(crate) fn directories_in_ram(&self) -> u64 {
        self.store.usage().map_or(0, |(_, budget_bytes)| budget_bytes / INODES / FILE_COST_BYTES)
    }

    /// A new directory waits from now on.
    pub(crate) fn directory_waits(&self, ino: Ino) {
        let due_us = self.decider.now().saturating_add(self.directory_us);
        let mut waiting = self.directories.lock();
        let is_first = waiting.is_empty();
        waiting.push_back((due_us, ino));
        drop(waiting);
        if is_first {
            self.decider.wake();
        }
    }

    /// When the next one is to be made, µs.
    pub(super) fn next_directory_us(&self) -> Option<Micros> {
        self.directories.lock().front().map(|(due_us, _)| *due_us)
    }

    /// Makes those that have waited long enough.
    pub(super) fn make_due(&self, now_us: Micros) -> Result<(), WriteBackFailures> {
        let due: Vec<Ino> = {
            let mut waiting = self.directories.lock();
            let due = waiting.iter().take_while(|(due_us, _)| *due_us <= now_us).count();
            waiting.drain(..due).map(|(_, ino)| ino).collect()
        };
        let done = self.make_directories(&due);
        if let Err(failed) = &done {
            let again_us = now_us.saturating_add(PAUSE_US);
            let mut waiting = self.directories.lock();
            waiting.extend(failed.by_file().map(|(ino, _)| (again_us, ino)));
            waiting.make_contiguous().sort_unstable();
        }
        done
    }

    /// Makes every directory that waits.
    ///
    /// # Errors
    ///
    /// The directories that could not be made, which stay in RAM.
    pub(super) fn make_all_directories(&self) -> Result<(), WriteBackFailures> {
        let all: Vec<Ino> = self.table().new_directories().iter().copied().collect();
        self.make_directories(&all)
    }

    fn make_directories(&self, all: &[Ino]) -> Result<(), WriteBackFailures> {
        let mut failed = Vec::new();
        for ino in all {
            let mut table = self.table();
            if let Err(errno) = table.make_directory(*ino) {
                failed.push((*ino, Failed { step: Step::MakeDirectory, errno }));
            }
            // The kernel may have forgotten it while it lived in RAM.
            table.drop_unused(*ino);
        }
        let table = self.table();
        self.failing.lock().tried(&table, all, &failed)
    }
}
