//! New directories that wait in RAM: when they are made in BACKING.
//!
//! A directory is made when the first file in it gets its name, so that one commit of the kernel
//! has its block with the names in it. One without files is made after the time that files wait, or
//! what an application does with it makes it at once.
//!
//! Where many wait, the oldest are made together with their files. A directory that is made without
//! them costs a block more: the commit with their names has it once again.

use super::{Job, Mover};
use crate::fs::failures::{Failed, Step, WriteBackFailures};
use crate::fs::types::Ino;
use flashsift_events::event::Micros;
use flashsift_files::sift::FILE_COST_BYTES;
use std::sync::atomic::Ordering;

/// Divisor of the window of loss: directories wait this part of it longer than files do, so that
/// those come first that were created with it.
pub(super) const WINDOW: u64 = 32;
/// Divisor of the budget: the inodes of directories take no more than this part.
const INODES: u64 = 8;
/// More than three quarters of these are many, and the oldest are made until half are left.
const MANY: [u64; 2] = [3, 4];
/// Time from a failure to the next attempt, µs.
const PAUSE_US: Micros = 30_000_000;

impl Mover {
    /// How many directories may wait in RAM.
    pub(crate) fn directories_in_ram(&self) -> u64 {
        self.store.usage().map_or(0, |(_, budget_bytes)| budget_bytes / INODES / FILE_COST_BYTES)
    }

    /// A new directory waits from now on, the last of so many.
    pub(crate) fn directory_waits(&self, ino: Ino, all: u64) {
        let now_us = self.decider.now();
        let mut waiting = self.directories.lock();
        let is_first = waiting.is_empty();
        waiting.push_back((now_us.saturating_add(self.directory_us), ino));
        drop(waiting);
        let begins = self.are_many(all)
            && self
                .many_due_us
                .compare_exchange(Micros::MAX, now_us, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if is_first || begins {
            self.decider.wake();
        }
    }

    fn are_many(&self, directories: u64) -> bool {
        directories * MANY[1] > self.directories_in_ram() * MANY[0]
    }

    /// When the next one is to be made, µs.
    pub(super) fn next_directory_us(&self) -> Option<Micros> {
        let first = self.directories.lock().front().map(|(due_us, _)| *due_us);
        let many_us = Some(self.many_due_us.load(Ordering::Relaxed));
        first.into_iter().chain(many_us.filter(|us| *us != Micros::MAX)).min()
    }

    /// Makes the oldest ones with their files if many wait.
    pub(super) fn make_some_of_many(&self, now_us: Micros) -> Result<(), WriteBackFailures> {
        if self.many_due_us.load(Ordering::Relaxed) > now_us {
            return Ok(());
        }
        self.many_due_us.store(Micros::MAX, Ordering::Relaxed);
        let (oldest, files) = self.oldest_of_many();
        let jobs: Vec<Job> = files.into_iter().map(Job::later).collect();
        let done = self.settle(&jobs).and(self.make_some(&oldest, now_us));
        if done.is_err() {
            self.many_due_us.store(now_us.saturating_add(PAUSE_US), Ordering::Relaxed);
        }
        done
    }

    /// Takes the oldest directories, and returns the files in them.
    fn oldest_of_many(&self) -> (Vec<Ino>, Vec<Ino>) {
        let table = self.table();
        let all = table.new_directories().len() as u64;
        if !self.are_many(all) {
            return Default::default();
        }
        let too_many = all.saturating_sub(self.directories_in_ram() / 2) as usize;
        let (mut oldest, mut files) = (Vec::new(), Vec::new());
        let mut waiting = self.directories.lock();
        while oldest.len() < too_many
            && let Some((_, ino)) = waiting.pop_front()
        {
            if table.is_new_directory(ino) {
                oldest.push(ino);
                files.extend(table.all_in_ram(ino).map(|(_, file)| file.ino));
            }
        }
        (oldest, files)
    }

    /// Makes those that have waited long enough.
    pub(super) fn make_due(&self, now_us: Micros) -> Result<(), WriteBackFailures> {
        let due: Vec<Ino> = {
            let mut waiting = self.directories.lock();
            let due = waiting.iter().take_while(|(due_us, _)| *due_us <= now_us).count();
            waiting.drain(..due).map(|(_, ino)| ino).collect()
        };
        self.make_some(&due, now_us)
    }

    /// Makes these. Those that cannot be made are tried again later.
    fn make_some(&self, these: &[Ino], now_us: Micros) -> Result<(), WriteBackFailures> {
        let done = self.make_directories(these);
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
