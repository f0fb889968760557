//! The last decisions of a mount's sifter with their explanations, in fixed memory.

use super::HeldFile;
use crate::sift::{Decision, Explanation, Reason};
use flashsift_events::event::{FileId, Micros};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Decisions that are kept.
pub(super) const DECISIONS_MAX: usize = 2048;
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

#[derive(Default)]
pub(super) struct Journal {
    decisions: VecDeque<LiveDecision>,
    /// The number of the oldest decision.
    first: u64,
    /// Decisions that are not performed yet.
    pending: HashMap<FileId, u64, FixedState>,
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

    pub(super) fn done(&mut self, file: FileId, is_drop: bool) {
        let number = self.pending.remove(&file);
        let at = number.and_then(|number| number.checked_sub(self.first));
        if let Some(decision) = at.and_then(|at| self.decisions.get_mut(at as usize)) {
            decision.fate = if is_drop { LiveFate::Dropped } else { LiveFate::Written };
        }
    }

    pub(super) fn created_again(&mut self, now: Micros, name: &str) {
        let same = |one: &&mut LiveDecision| one.fate == LiveFate::Dropped && one.name == name;
        if let Some(decision) = self.decisions.iter_mut().rev().find(same) {
            decision.created_again_after_us = Some(now.saturating_sub(decision.at_us));
        }
    }

    pub(super) fn forget_pending(&mut self, file: FileId) {
        self.pending.remove(&file);
    }

    pub(super) fn check(&self) {
        assert!(self.decisions.len() <= DECISIONS_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Promises: Mount 67.
    #[test]
    fn the_journal_keeps_the_last_decisions() {
        let mut journal = Journal::default();
        for n in 0..5000_u64 {
            let file = FileId(n);
            let name = if n % 3 == 0 { "/big/x".into() } else { format!("/d{n}/x") };
            let held = HeldFile { bytes: 10, ..HeldFile::new(&name, "".into()) };
            let decision = Decision::Drop { file, why: Reason::Space };
            journal.decided(n, file, &held, decision, None);
            journal.done(file, true);
            journal.check();
        }
        assert_eq!(journal.decisions.len(), DECISIONS_MAX);
        assert!(journal.pending.is_empty());
        journal.created_again(6000, "/big/x");
        let last = journal.decisions.iter().rev().find(|one| one.name == "/big/x").unwrap();
        assert_eq!(last.created_again_after_us, Some(6000 - last.at_us));
    }
}
