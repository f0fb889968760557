//! The last decisions of a mount's sifter with their explanations, and its drops by directory. Both
//! take fixed memory.

use super::{FileBytes, HeldFile};
use crate::{
    event::{FileId, Micros},
    sift::{Decision, Explanation, Reason},
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Decisions that are kept.
pub(super) const DECISIONS_MAX: usize = 2048;
/// Directories of which drops are counted. When there are more, the smallest half is forgotten.
const DIRECTORIES_MAX: usize = 512;
/// Directories that are shown.
const DIRECTORIES_SHOWN: usize = 20;

/// A decision of a mount's sifter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LiveDecision {
    /// Time since the mount began, µs.
    pub at_us: Micros,
    /// The file's name then, from the mounted directory on.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
    /// The reason that the sifter gave.
    pub why: Reason,
    /// The end of its time in RAM.
    pub fate: LiveFate,
    /// Time after which a file of this name was created again, µs.
    pub created_again_after_us: Option<Micros>,
    /// The reason in numbers, where the sifter gives one.
    pub explanation: Option<Explanation>,
}

/// The end of a file's time in RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LiveFate {
    /// The decision is not performed yet, or could not be.
    Pending,
    /// It is gone.
    Dropped,
    /// It is on flash.
    Written,
}

/// Drops in a directory since the mount began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryDrops {
    /// From the mounted directory on.
    pub directory: String,
    /// Files that were dropped.
    pub dropped: FileBytes,
    /// Those of them whose names were created again.
    pub created_again: FileBytes,
}

#[derive(Default)]
pub(super) struct Journal {
    decisions: VecDeque<LiveDecision>,
    /// The number of the oldest decision.
    first: u64,
    /// Decisions that are not performed yet.
    pending: HashMap<FileId, u64, FixedState>,
    directories: HashMap<String, [FileBytes; 2], FixedState>,
}

fn directory(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(directory, _)| directory)
}

impl Journal {
    pub(super) fn decisions(&self) -> impl ExactSizeIterator<Item = &LiveDecision> {
        self.decisions.iter()
    }

    pub(super) fn decided(
        &mut self,
        now: Micros,
        file: FileId,
        held: &HeldFile,
        decision: Decision,
        explanation: Option<Explanation>,
    ) {
        let (Decision::WriteBack { why, .. } | Decision::Drop { why, .. }) = decision else {
            return;
        };
        self.pending.insert(file, self.first + self.decisions.len() as u64);
        self.decisions.push_back(LiveDecision {
            at_us: now,
            name: held.name.to_string(),
            bytes: held.bytes,
            why,
            fate: LiveFate::Pending,
            created_again_after_us: None,
            explanation,
        });
        if self.decisions.len() > DECISIONS_MAX {
            self.decisions.pop_front();
            self.first += 1;
        }
    }

    pub(super) fn done(&mut self, file: FileId, is_drop: bool, held: &HeldFile) {
        let number = self.pending.remove(&file);
        let at = number.and_then(|number| number.checked_sub(self.first));
        if let Some(decision) = at.and_then(|at| self.decisions.get_mut(at as usize)) {
            decision.fate = if is_drop { LiveFate::Dropped } else { LiveFate::Written };
        }
        if is_drop {
            self.count(&held.name, 0, held.bytes);
        }
    }

    pub(super) fn created_again(&mut self, now: Micros, name: &str, bytes: u64) {
        self.count(name, 1, bytes);
        let same = |one: &&mut LiveDecision| one.fate == LiveFate::Dropped && one.name == name;
        if let Some(decision) = self.decisions.iter_mut().rev().find(same) {
            decision.created_again_after_us = Some(now.saturating_sub(decision.at_us));
        }
    }

    fn count(&mut self, name: &str, column: usize, bytes: u64) {
        let directory = directory(name);
        if let Some(counts) = self.directories.get_mut(directory) {
            return counts[column].add(bytes);
        }
        if self.directories.len() >= DIRECTORIES_MAX {
            let mut sizes: Vec<u64> =
                self.directories.values().map(|[dropped, _]| dropped.bytes).collect();
            let middle = sizes.len() / 2;
            let (_, median, _) = sizes.select_nth_unstable(middle);
            let median = *median;
            let mut left = middle;
            self.directories.retain(|_, [dropped, _]| {
                let stays = dropped.bytes > median || (dropped.bytes == median && left > 0);
                left -= usize::from(stays && dropped.bytes == median);
                stays
            });
        }
        let mut counts = [FileBytes::default(); 2];
        counts[column].add(bytes);
        self.directories.insert(directory.to_owned(), counts);
    }

    pub(super) fn directories(&self) -> Vec<DirectoryDrops> {
        let mut all: Vec<DirectoryDrops> = self
            .directories
            .iter()
            .map(|(directory, [dropped, created_again])| DirectoryDrops {
                directory: directory.clone(),
                dropped: *dropped,
                created_again: *created_again,
            })
            .collect();
        all.sort_by(|one, other| {
            let key = |of: &DirectoryDrops| std::cmp::Reverse(of.dropped.bytes);
            key(one).cmp(&key(other)).then_with(|| one.directory.cmp(&other.directory))
        });
        all.truncate(DIRECTORIES_SHOWN);
        all
    }

    pub(super) fn forget_pending(&mut self, file: FileId) {
        self.pending.remove(&file);
    }

    pub(super) fn check(&self) {
        assert!(self.decisions.len() <= DECISIONS_MAX);
        assert!(self.directories.len() <= DIRECTORIES_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Thousands of directories and decisions: the memory stays fixed, and the directory with most
    /// drops is the first of those shown.
    #[test]
    fn the_journal_is_bounded_and_keeps_the_largest_directories() {
        let mut journal = Journal::default();
        for n in 0..5000_u64 {
            let file = FileId(n);
            let name = if n % 3 == 0 { "/big/x".into() } else { format!("/d{n}/x") };
            let held = HeldFile { name: name.into(), bytes: 10, content: None };
            let decision = Decision::Drop { file, why: Reason::Space };
            journal.decided(n, file, &held, decision, None);
            journal.done(file, true, &held);
            journal.check();
        }
        assert_eq!(journal.decisions.len(), DECISIONS_MAX);
        assert!(journal.pending.is_empty());
        let shown = journal.directories();
        assert_eq!(shown.len(), DIRECTORIES_SHOWN);
        assert_eq!(shown[0].directory, "/big");
        assert_eq!(shown[0].dropped, FileBytes { files: 1667, bytes: 16_670 });
        journal.created_again(6000, "/big/x", 10);
        assert_eq!(journal.directories()[0].created_again.files, 1);
        let last = journal.decisions.iter().rev().find(|one| one.name == "/big/x").unwrap();
        assert_eq!(last.created_again_after_us, Some(6000 - last.at_us));
    }
}
