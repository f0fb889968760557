//! Performing the decisions of the sifter.

use super::{Job, Mover};
use crate::fs::decider::decisions::Performing;
use crate::fs::failures::{Step, WriteBackError, WriteBackFailures};
use crate::fs::table;
use crate::fs::types::Ino;
use flashsift_files::sift::{Blocked, Decision, Reason};
use rustix::io::Errno;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

impl Mover {
    /// Performs the pending decisions.
    ///
    /// # Errors
    ///
    /// The files among them that could not be written back.
    pub(crate) fn perform(&self) -> Result<(), WriteBackFailures> {
        let mut failed = Vec::new();
        let is_in_ram = |file| self.table().is_in_ram(table::number(file));
        while let Some(mut performing) = self.decider.take(&is_in_ram) {
            if let Err(failures) = self.perform_these(&mut performing) {
                failed.extend(failures.into_all());
            }
        }
        WriteBackFailures::from_all(failed)
    }

    fn perform_these(&self, performing: &mut Performing<'_>) -> Result<(), WriteBackFailures> {
        let mut jobs: Vec<Job> = Vec::new();
        let mut by_file: HashMap<Ino, usize> = HashMap::new();
        let mut closes = false;
        // The page cache below keeps young files as long as without the mount, whatever the budget.
        let mut may_wait = self.may_hand_over();
        for decision in &performing.decisions {
            match *decision {
                Decision::WriteBack { file, keep_in_ram: keep, why } => {
                    let durable = why == Reason::Sync;
                    let for_space = why == Reason::Space && may_wait > 0;
                    let large = why == Reason::Large || for_space;
                    may_wait -= usize::from(for_space);
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
            let synced = self.backing.sync_all(false);
            done.and(synced.map_err(|errno| WriteBackError::of_all(Step::SyncAll)(errno).into()))
        } else {
            done
        }
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
