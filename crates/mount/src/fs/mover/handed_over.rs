//! Files for which RAM has no space: BACKING's page cache gets their bytes, and their names follow
//! later.

use super::{Job, Mover, Outcome, Staged, TRIES, UNNAMED_US};
use crate::fs::descriptors::open_share;
use crate::fs::failures::{Failed, In, Step, WriteBackFailures};
use crate::fs::residence::Residence;
use crate::fs::table::file_id;
use crate::fs::temps::Temp;
use crate::fs::types::Ino;
use flashsift_files::sift::FILE_COST_BYTES;

impl Mover {
    /// How many more files may be handed over because RAM is full. Each stays open until it has its
    /// name, and its inode takes memory that the budget does not count: no more than the budget. On
    /// BACKING alone it would take that, too.
    pub(super) fn may_hand_over(&self) -> usize {
        let budget_bytes = self.store.usage().map_or(0, |(_, budget_bytes)| budget_bytes);
        let inodes = usize::try_from(budget_bytes / FILE_COST_BYTES).unwrap_or(usize::MAX);
        inodes.min(open_share() / 2).saturating_sub(self.store.files_handed_over())
    }

    pub(super) fn is_handed_over(&self, ino: Ino) -> bool {
        matches!(self.table().residence(ino), Some(Residence::HandedOver))
    }

    /// Moves a file's bytes to BACKING's page cache, without a name and without a flush.
    pub(super) fn hand_over(&self, job: Job) -> Result<Outcome, Failed> {
        if self.store.stat(job.ino).is_ok_and(|stat| stat.st_blocks == 0) {
            // It has no bytes that could wait.
            return Ok(Outcome::Nothing);
        }
        for attempt in 0..=TRIES {
            let Ok(file_state) = self.delayed.file_state(&mut self.table(), job.ino) else {
                return Ok(Outcome::Nothing);
            };
            // Its writers wait for the last attempt.
            let _closed = (attempt == TRIES).then(|| file_state.gate.write());
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

    pub(super) fn replace_by(&self, copy: &Staged) -> Result<Outcome, Failed> {
        let ino = copy.job.ino;
        let mut table = self.table();
        let mut place = copy.file_state.place_to_move();
        let is_in_ram = matches!(table.residence(ino), Some(Residence::Ram(_)));
        if matches!(copy.temp, Temp::Placed) || !is_in_ram {
            return Ok(Outcome::Nothing);
        }
        if copy.file_state.changes() != copy.changes {
            return Ok(Outcome::Changed);
        }
        self.copy_times(ino, &copy.file)?;
        self.store.hand_over(ino, copy.file.clone()).step(Step::Copy)?;
        table.hand_over(ino, &mut place, copy.file.clone());
        self.decider.hands_over(file_id(ino), copy.bytes);
        self.decider.leaves_ram(file_id(ino));
        let due_us = self.decider.now().saturating_add(self.unnamed_us);
        self.handed_over.lock().push_back((due_us, ino));
        Ok(Outcome::Kept)
    }

    /// When the next file that was handed over is to get its name, changes are to be written that
    /// wait, or a new directory is to be made, µs.
    pub(crate) fn next_name_us(&self) -> Option<u64> {
        let named = self.handed_over.lock().front().map(|(due_us, _)| *due_us);
        let made = self.next_directory_us();
        named.into_iter().chain(self.next_waiting_us()).chain(made).min()
    }

    /// Gives names to files that were handed over long enough ago.
    pub(super) fn settle_handed_over(&self, now_us: u64) -> Result<(), WriteBackFailures> {
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
            let again_us = now_us.saturating_add(UNNAMED_US);
            let left = self.named_of(&due).into_iter().map(|ino| (again_us, ino));
            self.handed_over.lock().extend(left);
        }
        done
    }
}
