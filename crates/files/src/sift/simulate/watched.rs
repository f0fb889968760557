//! The decisions on chosen files, with their explanations and the event that followed.

use crate::sift::{Decision, Explanation};
use flashsift_events::event::{Action, FileId, Micros};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use wildmatch::WildMatch;

/// A decision, its explanation, and the next event of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplainedDecision {
    /// Time of the decision, µs.
    pub at_us: Micros,
    /// The name by which it was chosen.
    pub name: String,
    /// Bytes that the file held.
    pub bytes: u64,
    /// The decision.
    pub decision: Decision,
    /// Its explanation.
    pub explanation: Explanation,
    /// The event that showed whether it was right.
    pub followed: Followed,
}

/// The next event of a file after a decision, and the time between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Followed {
    /// The file was not used until the end of the trace.
    Nothing,
    /// It was used again after this time, µs. A dropped file was fetched again.
    Use(Micros),
    /// A name of it was deleted after this time, µs.
    Deletion(Micros),
}

/// Collects the decisions on files whose name matches one of the patterns.
pub(super) struct Watched {
    patterns: Vec<WildMatch>,
    decisions: Vec<ExplainedDecision>,
    /// The decisions on each file after which nothing has happened yet.
    open: HashMap<FileId, Vec<usize>, FixedState>,
}

impl Watched {
    pub(super) fn new(patterns: &[String]) -> Self {
        let patterns = patterns.iter().map(|pattern| WildMatch::new(pattern)).collect();
        Self { patterns, decisions: Vec::new(), open: HashMap::default() }
    }

    /// Returns the first of these names that matches.
    pub(super) fn chosen<'n>(&self, names: &'n [Box<str>]) -> Option<&'n str> {
        let matches = |name: &&str| self.patterns.iter().any(|pattern| pattern.matches(name));
        names.iter().map(|name| &**name).find(matches)
    }

    pub(super) fn decided(&mut self, decision: ExplainedDecision) {
        if let Some(file) = decision.decision.file() {
            self.open.entry(file).or_default().push(self.decisions.len());
        }
        self.decisions.push(decision);
    }

    /// A dropped file is fetched again.
    pub(super) fn fetched(&mut self, now: Micros, file: FileId) {
        self.followed(now, file, Followed::Use);
    }

    /// Takes an event of the trace, before it leads to decisions.
    pub(super) fn event(&mut self, now: Micros, action: &Action<'_>) {
        let Some(file) = action.file() else { return };
        match action {
            Action::Read { .. }
            | Action::Write { .. }
            | Action::Direct { .. }
            | Action::Truncate { .. }
            | Action::Punch { .. } => self.followed(now, file, Followed::Use),
            Action::Unbind { .. } | Action::Gone { .. } => {
                self.followed(now, file, Followed::Deletion);
            }
            _ => {}
        }
    }

    fn followed(&mut self, now: Micros, file: FileId, with: fn(Micros) -> Followed) {
        for at in self.open.remove(&file).into_iter().flatten() {
            let decision = &mut self.decisions[at];
            decision.followed = with(now.saturating_sub(decision.at_us));
        }
    }

    pub(super) fn decisions(&self) -> &[ExplainedDecision] {
        &self.decisions
    }
}
