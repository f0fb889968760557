//! Sifters decide which files stay in RAM, which reach flash, and when.
//!
//! A sifter is a machine without I/O. It gets every event in order and answers with decisions. The
//! performer of the decisions, a simulator or a live mount, reports their results, so one history
//! gives the same decisions in both. A sifter is one file and one line in [`ALL`], as policies are.
//!
//! The protocol, for one file:
//!
//! 1. [`Sift::birth`] decides where a new file lives, before the file exists.
//! 2. [`Sift::handle`] gets every event, the file's [`Create`] first. If RAM could not take a file
//!    for which the answer was [`Birth::Ram`], [`Sift::done`] with `Ok` follows its [`Create`].
//! 3. [`Sift::handle_deadline`] is called when [`Sift::next_deadline`] has come.
//!    [`Sift::need_space`] is called when RAM is full, before the event of the write that needs the
//!    space.
//! 4. After each of these calls the performer calls [`Sift::poll`] until it returns `None`, and
//!    performs the decisions in order. An operation that waits (a sync, a write that needs space)
//!    is complete when the decisions that followed from it are done. It fails if they fail.
//! 5. [`Sift::done`] follows each decision on a file, in any order, and may lead to further
//!    decisions. It also reports a file that reached flash without a decision.
//!
//! A file leaves the sifter by `done` with `Ok` (unless a decision to keep it in RAM is pending),
//! by [`Action::Gone`], or by the loss of its last name while it is not open. Queued decisions on
//! it are then void, and `poll` skips them. `done` on a file that has left is ignored.
//!
//! Two decisions on one file may be in progress at the same time: each sync leads to a decision of
//! its own, so that the application can wait for it. The performer may perform the two as one; each
//! gets its `done`.
//!
//! Times come from a clock that runs on through suspend, so they may jump forward. If a time is
//! earlier than that of the call before, no file counts as created later than it.
//!
//! [`Action::Gone`]: flashsift_events::event::Action::Gone

use crate::flusher::FlusherSettings;
use features::Phase;
use flashsift_events::{
    event::{Create, Event, FileId, Micros},
    page::PAGE_BYTES,
    params::{Listed, Param, ParamKind, Params},
};
use model::FileModel;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

pub mod account;
mod cachesifter;
mod controller;
mod drop_all;
mod droppable;
mod explanation;
pub mod features;
mod keep;
pub mod live;
mod lrb;
pub mod meaning;
pub mod model;
mod none;
mod on_pressure;
mod oracle;
pub mod profile;
mod random;
mod reject_first;
mod remembered;
mod returns;
mod rings;
mod s3_fifo;
mod shelf;
pub mod simulate;
mod slots;
#[cfg(test)]
pub(crate) mod testing;
mod tmpfs;
mod touch;
mod uses;

pub use droppable::{Droppable, KeptDirectories};
pub use explanation::{Criterion, Explanation, Feature, Intent};
pub use keep::{Config as KeepConfig, FILE_COST_BYTES, Keep};
pub use none::NoSifter;
pub use uses::LastUses;

/// Decides what happens to files in RAM. The module's page has the protocol.
pub trait Sift {
    /// Decides where a new file lives. Changes no state: [`Sift::handle`] gets the file's
    /// [`Action::Create`](flashsift_events::event::Action::Create) once the file exists.
    fn birth(&mut self, now: Micros, create: &Create<'_>) -> Birth;

    /// Takes the next event.
    fn handle(&mut self, now: Micros, event: &Event<'_>);

    /// Takes the result of a decision on this file. `Ok` without a pending decision on the file:
    /// the file reached flash without one.
    fn done(&mut self, now: Micros, file: FileId, result: Result<(), Blocked>);

    /// Asks for this much free space in RAM. Decisions that free space follow; none follows if no
    /// file can be removed. A file that was read or changed at this very time is not dropped.
    fn need_space(&mut self, now: Micros, bytes: u64);

    /// Changes the RAM for files, bytes. If it is less than before, decisions that free it follow.
    fn resize(&mut self, now: Micros, budget_bytes: u64);

    /// Returns the time at which [`Sift::handle_deadline`] is due, if no other call comes before.
    /// Any other call may change it.
    fn next_deadline(&self) -> Option<Micros>;

    /// Handles the deadline that has come. A call before the deadline does nothing.
    fn handle_deadline(&mut self, now: Micros);

    /// Returns the RAM of the files that no decision moves out, bytes: their pages, and
    /// [`FILE_COST_BYTES`] a file.
    fn held_bytes(&self) -> u64;

    /// Returns since when the file has waited that leaves RAM next if space is needed. `None`: no
    /// file can leave, or only one that should be the last to do so.
    fn oldest_us(&self, now: Micros) -> Option<Micros>;

    /// Returns the next decision.
    fn poll(&mut self) -> Option<Decision>;

    /// Explains what the sifter does with a file in RAM. If [`Sift::poll`] returned a decision on
    /// the file that is not done yet, and explanations are recorded, this is the explanation of the
    /// decision. Changes no state. `None`: the file is not in RAM.
    fn explain(&self, _now: Micros, _file: FileId) -> Option<Explanation> {
        None
    }

    /// Makes the sifter record the explanation of each decision from now on, with the numbers that
    /// it decided by, until the decision is done.
    fn record_explanations(&mut self) {}

    /// Re-derives every invariant.
    ///
    /// # Panics
    /// If one of them is broken.
    fn check(&self);
}

impl<S: Sift + ?Sized> Sift for Box<S> {
    fn birth(&mut self, now: Micros, create: &Create<'_>) -> Birth {
        (**self).birth(now, create)
    }

    fn handle(&mut self, now: Micros, event: &Event<'_>) {
        (**self).handle(now, event);
    }

    fn done(&mut self, now: Micros, file: FileId, result: Result<(), Blocked>) {
        (**self).done(now, file, result);
    }

    fn need_space(&mut self, now: Micros, bytes: u64) {
        (**self).need_space(now, bytes);
    }

    fn resize(&mut self, now: Micros, budget_bytes: u64) {
        (**self).resize(now, budget_bytes);
    }

    fn next_deadline(&self) -> Option<Micros> {
        (**self).next_deadline()
    }

    fn held_bytes(&self) -> u64 {
        (**self).held_bytes()
    }

    fn oldest_us(&self, now: Micros) -> Option<Micros> {
        (**self).oldest_us(now)
    }

    fn handle_deadline(&mut self, now: Micros) {
        (**self).handle_deadline(now);
    }

    fn poll(&mut self) -> Option<Decision> {
        (**self).poll()
    }

    fn explain(&self, now: Micros, file: FileId) -> Option<Explanation> {
        (**self).explain(now, file)
    }

    fn record_explanations(&mut self) {
        (**self).record_explanations();
    }

    fn check(&self) {
        (**self).check();
    }
}

/// Every sifter.
pub const ALL: &[Spec] = &[
    none::SPEC,
    keep::SPEC,
    drop_all::SPEC,
    touch::SPEC,
    random::SPEC,
    s3_fifo::SPEC,
    reject_first::SPEC,
    lrb::SPEC,
    tmpfs::SPEC,
    cachesifter::SPEC,
    controller::SPEC,
    oracle::SPEC,
];

/// The parts that a sifter is built from.
#[derive(Clone, Copy)]
pub struct SifterSetup<'a> {
    /// RAM for files, in bytes.
    pub budget_bytes: u64,
    /// Patterns of names of files that belong on flash, beside those that the sifter knows itself.
    pub patterns: &'a [String],
    /// The files that may be dropped.
    pub droppable: &'a Droppable,
    /// The events tell when a file is open.
    pub knows_opens: bool,
    /// When each file is used for the last time, for a sifter that is [`Spec::offline`].
    pub last_uses: Option<&'a LastUses>,
    /// The models that parameters name, by the text that names them.
    pub models: &'a [(String, Arc<FileModel>)],
}

impl SifterSetup<'_> {
    /// Returns the model of this phase that the parameter `name` names by `path`.
    fn model(&self, name: &str, path: &str, phase: Phase) -> Result<Arc<FileModel>, SetupError> {
        match self.models.iter().find(|(known, _)| known == path) {
            None => Err(SetupError(format!("{name}={path} was not read"))),
            Some((_, model)) if model.phase() == phase => Ok(Arc::clone(model)),
            Some(_) => Err(SetupError(format!(
                "{path} is a model for the other phase: {name}= takes one of phase {}",
                phase as u8 + 1
            ))),
        }
    }
}

/// A sifter of any kind.
pub type BoxedSift = Box<dyn Sift + Send>;

/// The reason for which a sifter cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SetupError(String);

/// The declaration of a sifter, for the command line and the tests.
pub struct Spec {
    /// Name, as `--sift` takes it.
    pub name: &'static str,
    /// The paper or page that defines it.
    pub paper: &'static str,
    /// Effect of the sifter, in a line.
    pub what: &'static str,
    /// Parameters that `name:key=value` takes.
    pub params: &'static [Param],
    /// Whether it knows the rest of the history, and so exists in simulation only.
    pub offline: fn(&Params) -> bool,
    /// Builds a sifter.
    pub build: fn(&SifterSetup<'_>, &Params) -> Result<BoxedSift, SetupError>,
}

/// A sifter and its parameters, as a user selects them.
pub type Selection = flashsift_events::params::Selection<Spec>;

/// Answers of a selected sifter.
pub trait SelectedSifter {
    /// Builds the sifter.
    ///
    /// # Errors
    /// The parameters name a model that does not suit.
    fn build(&self, setup: &SifterSetup<'_>) -> Result<BoxedSift, SetupError>;

    /// Returns whether the sifter knows the rest of the history.
    fn is_offline(&self) -> bool;

    /// Returns how the kernel writes back what the sifter leaves to it, if the sifter has this much
    /// RAM, in bytes. Where an age other than the kernel's is given, no more data than fits into
    /// that RAM waits to be written.
    fn write_back(&self, ram_bytes: u64) -> FlusherSettings;

    /// Returns the files of models that the parameters name.
    fn model_files(&self) -> Vec<&str>;
}

impl SelectedSifter for Selection {
    fn build(&self, setup: &SifterSetup<'_>) -> Result<BoxedSift, SetupError> {
        (self.spec.build)(setup, &self.params)
    }

    fn is_offline(&self) -> bool {
        (self.spec.offline)(&self.params)
    }

    fn write_back(&self, ram_bytes: u64) -> FlusherSettings {
        let kernel = FlusherSettings::default();
        let declared = self.spec.params.iter().find(|param| param.name == none::EXPIRE);
        match declared.map(|param| self.params.duration_us(self.spec.params, param.name)) {
            Some(expire_us) if expire_us != kernel.expire_us => {
                FlusherSettings { expire_us, background_pages: ram_bytes / PAGE_BYTES, ..kernel }
            }
            _ => kernel,
        }
    }

    fn model_files(&self) -> Vec<&str> {
        let texts = self.spec.params.iter().filter(|param| matches!(param.kind, ParamKind::Text));
        let named = texts.map(|param| self.params.text(self.spec.params, param.name));
        named.filter(|text| !text.is_empty()).collect()
    }
}

impl Listed for Spec {
    const KIND: &'static str = "sifter";
    const ALL: &'static [Self] = ALL;

    fn declared(&self) -> (&'static str, &'static [Param]) {
        (self.name, self.params)
    }
}

/// The place where a new file lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Birth {
    /// In RAM, until a decision moves or drops it.
    Ram,
    /// On flash from the start, for this reason.
    Flash(Reason),
}

/// An action on a file in RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The file's content goes to flash, under the file's names. After a crash flash has this
    /// version or the one before it. It is durable if the reason is [`Reason::Sync`].
    WriteBack {
        /// The file.
        file: FileId,
        /// The file stays in RAM for further writes, and flash has a checkpoint of it: a later
        /// write-back writes the whole file again. Otherwise the file leaves RAM.
        keep_in_ram: bool,
        /// The reason.
        why: Reason,
    },
    /// The file is removed without having been written.
    Drop {
        /// The file.
        file: FileId,
        /// The reason.
        why: Reason,
    },
    /// All write-backs since the last epoch become durable together.
    CloseEpoch,
}

impl Decision {
    /// Returns the reason of the decision, if it concerns one file.
    pub fn why(&self) -> Option<Reason> {
        match *self {
            Decision::WriteBack { why, .. } | Decision::Drop { why, .. } => Some(why),
            Decision::CloseEpoch => None,
        }
    }

    /// Returns the file of the decision, if it concerns one.
    pub fn file(&self) -> Option<FileId> {
        match *self {
            Decision::WriteBack { file, .. } | Decision::Drop { file, .. } => Some(file),
            Decision::CloseEpoch => None,
        }
    }
}

/// The reason of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The window ends in which a crash may take the file's changes, or flash refused the file
    /// before.
    Age,
    /// RAM is full.
    Space,
    /// The file is too large for RAM, and is handed to the page cache of flash.
    Large,
    /// An application asked for the file to be durable.
    Sync,
    /// A model or a label says that the file is worth its place on flash, or that it is not.
    Judged,
    /// An application will probably ask for the file to be durable: it has synced the files before.
    Ahead,
    /// The name shows that the file belongs on flash (a database, a configured pattern).
    Name,
    /// Every file has to reach flash: the mount ends, the machine suspends, an application calls
    /// `sync` (each of these is an [`Action::SyncAll`](flashsift_events::event::Action::SyncAll)),
    /// or the sifter keeps no file in RAM.
    All,
}

/// The reason for which a decision could not be performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// The file is written to so often that no copy of it was complete.
    Changing,
    /// The file is open, and so is not dropped.
    InUse,
    /// Flash has no free space.
    NoSpace,
    /// Any other error of the device or its file system. The performer reports the details.
    Failed,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Names are unique, and each description of a sifter is a phrase: not empty, on one line,
    /// without a full stop.
    #[test]
    fn every_sifter_has_a_unique_name_and_a_description() {
        let names: BTreeSet<&str> = ALL.iter().map(|spec| spec.name).collect();
        assert_eq!(names.len(), ALL.len());
        for Spec { name, paper, what, params, .. } in ALL {
            let params = params.iter().map(|param| param.what);
            for text in [*paper, what].into_iter().chain(params) {
                assert!(
                    !text.is_empty() && !text.ends_with('.') && text.trim() == text,
                    "{name}: {text:?}"
                );
                assert!(!text.contains('\n') && !text.contains("  "), "{name}: {text:?}");
            }
            let setup = SifterSetup {
                budget_bytes: 1 << 20,
                patterns: &[],
                droppable: &Droppable::caches(),
                knows_opens: true,
                last_uses: None,
                models: &[],
            };
            Selection::parse(name).unwrap().build(&setup).unwrap().check();
        }
    }

    #[test]
    fn sifters_are_selected_like_policies() {
        assert_eq!(
            Selection::parse("keep:lose-at-most=90s").unwrap().label(),
            "keep:lose-at-most=90s"
        );
        let refused = Selection::parse("keep:lose-at-most=0s").err().unwrap().to_string();
        assert!(refused.contains("`0s` is no value for keep's lose-at-most=1800s"), "{refused}");
        let unknown = Selection::parse("drop").err().unwrap().to_string();
        assert_eq!(
            unknown,
            "no sifter is called `drop` (did you mean `drop-all`?); there are: none, keep, \
             drop-all, touch, random, s3-fifo, reject-first, lrb, tmpfs, cachesifter, controller, \
             oracle"
        );
    }
}
