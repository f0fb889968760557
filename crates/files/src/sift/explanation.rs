//! The reason of a decision in numbers: the comparisons that it followed from, the price of both
//! mistakes, and the facts that the sifter knows of the file.
//!
//! A sifter computes an explanation with the functions that decide, in the state in which it
//! decides. It does so only when it is asked: [`Sift::explain`](super::Sift::explain) for a file in
//! RAM at any time, and for each decision after
//! [`Sift::record_explanations`](super::Sift::record_explanations).

use super::{
    Decision, Reason,
    meaning::Meaning,
    shelf::{Held, Shelved},
};
use flashsift_events::{
    event::{FileId, Micros},
    page::PAGE_BYTES,
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// The reason for which a sifter drops a file, writes it or keeps it in RAM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Explanation {
    /// The end of the file's time in RAM, as far as the sifter can tell now.
    pub intent: Intent,
    /// The rule that decides, a sentence.
    pub rule: Cow<'static, str>,
    /// A file is dropped only if all of these hold. Of a file that is written at least one does
    /// not, if there are any.
    pub criteria: Vec<Criterion>,
    /// Probability that the file is used again; `None`: the sifter does not estimate it.
    pub chance: Option<f64>,
    /// Bytes fetched again that a drop probably costs, in bytes of flash writes: chance times size
    /// times the price of a fetched byte.
    pub drop_costs_bytes: Option<f64>,
    /// Bytes that a write-back writes to flash, in whole pages. So many are fetched again, or a
    /// little less, if the file is dropped and used again.
    pub write_costs_bytes: u64,
    /// The kind of cache and the type of the content, where a mount has read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meaning: Option<String>,
    /// The facts that the sifter knows of the file and of its own state, by names that end with
    /// their unit.
    pub features: Vec<Feature>,
}

/// The end of a file's time in RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Intent {
    /// It is dropped when it is its turn.
    Drop,
    /// It is written to flash when it is its turn.
    Write,
    /// It stays in RAM for now.
    Stay,
}

/// A comparison of a score with a threshold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Criterion {
    /// The quantity, with its unit at the end.
    pub score: Cow<'static, str>,
    /// The score of this decision.
    pub value: f64,
    /// The score must be below it, or equal to it if `or_equal`.
    pub threshold: f64,
    /// A score equal to the threshold is enough.
    pub or_equal: bool,
}

impl Criterion {
    /// Returns whether the score allows a drop.
    pub fn holds(&self) -> bool {
        self.value < self.threshold || self.or_equal && self.value == self.threshold
    }
}

/// A fact, with its unit at the end of its name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Feature {
    /// Name, such as `idle_s`.
    pub name: Cow<'static, str>,
    /// Value.
    pub value: f64,
}

impl Explanation {
    /// Explains a decision on a file of this size of which nothing else is known yet.
    pub(super) fn new(intent: Intent, rule: impl Into<Cow<'static, str>>, bytes: u64) -> Self {
        Self {
            intent,
            rule: rule.into(),
            criteria: Vec::new(),
            chance: None,
            drop_costs_bytes: None,
            write_costs_bytes: bytes.next_multiple_of(PAGE_BYTES),
            meaning: None,
            features: Vec::new(),
        }
    }

    /// Explains a decision on a file that a shelf holds.
    pub(super) fn of_held<S>(
        now: Micros,
        file: &Held<S>,
        intent: Intent,
        rule: &'static str,
    ) -> Self {
        Self::new(intent, rule, file.bytes())
            .with("age_s", seconds(now.saturating_sub(file.born_us)))
            .with("idle_s", seconds(now.saturating_sub(file.used_us)))
            .with("opens", file.links().opens().into())
            .with("names", file.links().names().into())
    }

    /// Adds the meaning of the file.
    pub(super) fn of_meaning(mut self, meaning: Option<Meaning>) -> Self {
        self.meaning = meaning.map(|meaning| meaning.to_string());
        self
    }

    /// Adds a fact.
    pub(super) fn with(mut self, name: impl Into<Cow<'static, str>>, value: f64) -> Self {
        self.features.push(Feature { name: name.into(), value });
        self
    }

    /// Adds the condition of a drop that the score is below the threshold.
    pub(super) fn below(
        self,
        score: impl Into<Cow<'static, str>>,
        value: f64,
        threshold: f64,
    ) -> Self {
        self.criterion(score.into(), value, threshold, false)
    }

    /// Adds the condition of a drop that the score is at most the threshold.
    pub(super) fn at_most(
        self,
        score: impl Into<Cow<'static, str>>,
        value: f64,
        threshold: f64,
    ) -> Self {
        self.criterion(score.into(), value, threshold, true)
    }

    fn criterion(
        mut self,
        score: Cow<'static, str>,
        value: f64,
        threshold: f64,
        or_equal: bool,
    ) -> Self {
        self.criteria.push(Criterion { score, value, threshold, or_equal });
        self
    }

    /// Adds the chance of a later use, and the bytes that a drop costs then.
    pub(super) fn chance(mut self, chance: f64, costs_bytes: f64) -> Self {
        (self.chance, self.drop_costs_bytes) = (Some(chance), Some(costs_bytes));
        self
    }
}

/// Returns a time in seconds.
pub(super) fn seconds(us: Micros) -> f64 {
    us as f64 / 1e6
}

impl Reason {
    /// Returns the reason as a sentence about the file.
    pub fn sentence(self) -> &'static str {
        match self {
            Reason::Age => "Its changes have waited for as long as a crash may take them.",
            Reason::Space => "RAM is full.",
            Reason::Large => "It is too large for RAM.",
            Reason::Sync => "An application asks for it to be durable.",
            Reason::Judged => "A model or a label decides.",
            Reason::Ahead => "It will probably be synced: the files before it were, in order.",
            Reason::Name => "Its name shows that it belongs on flash.",
            Reason::All => "Every file has to reach flash.",
        }
    }
}

impl Decision {
    /// Returns the end of the file's time in RAM that the decision means.
    pub fn intent(&self) -> Intent {
        match self {
            Decision::Drop { .. } => Intent::Drop,
            _ => Intent::Write,
        }
    }
}

impl<S> Held<S> {
    /// Explains why a file is not judged.
    pub(super) fn is_kept(&self, now: Micros) -> Option<Explanation> {
        let rule = match self.list() {
            Shelved::Idle => return None,
            Shelved::Leaving => "A decision moves it out of RAM.",
            Shelved::Busy if self.links().is_open() => {
                "A process has it open: it is not dropped, and written only if no other file can \
                 leave RAM."
            }
            Shelved::Busy => "It has no name: it is written only if no other file can leave RAM.",
        };
        Some(Explanation::of_held(now, self, Intent::Stay, rule))
    }
}

/// The explanations of decisions that are not done yet, if they are wanted.
#[derive(Clone, Debug, Default)]
pub(super) struct Explained(Option<HashMap<FileId, Explanation, FixedState>>);

impl Explained {
    /// Keeps explanations from now on.
    pub(super) fn record(&mut self) {
        self.0.get_or_insert_default();
    }

    /// Keeps the explanation of a decision, which is computed only if it is wanted.
    pub(super) fn set(&mut self, file: FileId, explanation: impl FnOnce() -> Explanation) {
        if let Some(explained) = &mut self.0 {
            explained.insert(file, explanation());
        }
    }

    pub(super) fn get(&self, file: FileId) -> Option<&Explanation> {
        self.0.as_ref()?.get(&file)
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Forgets a file that is no longer in RAM, or stays there.
    pub(super) fn forget(&mut self, file: FileId) {
        if let Some(explained) = &mut self.0 {
            explained.remove(&file);
        }
    }
}
