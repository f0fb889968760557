//! Sifters: which files stay in RAM, which reach flash, and when.
//!
//! A sifter is a machine without I/O. It gets every event in order and answers with decisions. The
//! performer of the decisions, a simulator or a live mount, reports their results; so one history
//! gives the same decisions in both. A sifter is one file and one line in [`ALL`], as policies are.
//!
//! The protocol, for one file:
//!
//! 1. [`Sift::birth`] says where a new file lives, before the file exists.
//! 2. [`Sift::handle`] gets every event, the file's [`Create`] first. Where RAM could not take a
//!    file for which the answer was [`Birth::Ram`], [`Sift::done`] with `Ok` follows its
//!    [`Create`].
//! 3. [`Sift::handle_deadline`] is called when [`Sift::next_deadline`] has come, and
//!    [`Sift::need_space`] when RAM is full: before the event of the write that needs the space.
//! 4. After each of these calls the performer calls [`Sift::poll`] until it is `None`, and performs
//!    the decisions in order. An operation that waits (a sync, a write that needs space) is
//!    complete when the decisions that followed from it are done. It fails where they fail.
//! 5. [`Sift::done`] follows each decision on a file, in any order, and may lead to further
//!    decisions. It also reports a file that reached flash without a decision.
//!
//! A file leaves the sifter by `done` with `Ok` (unless the decision was to keep it in RAM, too),
//! by [`Action::Gone`], or by the loss of its last name while it is not open. Decisions on it that
//! are still queued are void then and `poll` skips them. `done` on a file that has left is ignored.
//!
//! Two decisions on one file may be out at the same time: each sync leads to a decision of its own,
//! so that the application can wait for it. The performer may perform the two as one; each gets its
//! `done`.
//!
//! Times come from a clock that runs on through suspend: they may jump forward. Where one is before
//! the one of the call before, every file counts as born at that time at the latest.
//!
//! [`Action::Gone`]: crate::event::Action::Gone

use crate::{
    event::{Create, Event, FileId, Micros},
    params::{Listed, Param, Params},
};

mod keep;
mod none;

pub use keep::{Config as KeepConfig, Keep};
pub use none::NoSifter;

/// Decides what happens to files in RAM. The module's page has the protocol.
pub trait Sift {
    /// Where the new file lives. It changes nothing: [`Sift::handle`] gets the file's
    /// [`Action::Create`](crate::event::Action::Create) once the file exists.
    fn birth(&mut self, now: Micros, create: &Create<'_>) -> Birth;

    /// Something happened.
    fn handle(&mut self, now: Micros, event: &Event<'_>);

    /// A decision on this file was performed, or could not be. `Ok` for a file that no decision is
    /// out for: the file reached flash by itself.
    fn done(&mut self, now: Micros, file: FileId, result: Result<(), Blocked>);

    /// RAM has no room for these bytes: decisions that make room follow. None follows where nothing
    /// can make room.
    fn need_space(&mut self, now: Micros, bytes: u64);

    /// When [`Sift::handle_deadline`] is due, if nothing happens before. Any other call may change
    /// it.
    fn next_deadline(&self) -> Option<Micros>;

    /// The deadline has come. A call before the deadline does nothing.
    fn handle_deadline(&mut self, now: Micros);

    /// The next decision.
    fn poll(&mut self) -> Option<Decision>;

    /// Re-derives every invariant; panics where one is broken.
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

    fn next_deadline(&self) -> Option<Micros> {
        (**self).next_deadline()
    }

    fn handle_deadline(&mut self, now: Micros) {
        (**self).handle_deadline(now);
    }

    fn poll(&mut self) -> Option<Decision> {
        (**self).poll()
    }

    fn check(&self) {
        (**self).check();
    }
}

/// Every sifter.
pub const ALL: &[Spec] = &[none::SPEC, keep::SPEC];

/// What a sifter is built for.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// RAM for files, bytes.
    pub budget_bytes: u64,
    /// Patterns of names of files that belong on flash, beside those that the sifter knows itself.
    pub patterns: &'a [String],
    /// Parameters given.
    pub params: &'a Params,
}

/// A sifter as the command line and the tests know it.
pub struct Spec {
    /// As `--sift` takes it.
    pub name: &'static str,
    /// Where it is defined.
    pub paper: &'static str,
    /// What it does, in a line.
    pub what: &'static str,
    /// What `name:key=value` takes.
    pub params: &'static [Param],
    /// Makes one.
    pub build: fn(&Setup<'_>) -> Box<dyn Sift + Send>,
}

/// A sifter and its parameters, as a person asked for it.
pub type Selection = crate::params::Selection<Spec>;

impl Selection {
    /// Makes the sifter.
    pub fn build(&self, budget_bytes: u64, patterns: &[String]) -> Box<dyn Sift + Send> {
        (self.spec.build)(&Setup { budget_bytes, patterns, params: &self.params })
    }
}

impl Listed for Spec {
    const KIND: &'static str = "sifter";
    const ALL: &'static [Self] = ALL;

    fn declared(&self) -> (&'static str, &'static [Param]) {
        (self.name, self.params)
    }
}

/// Where a new file lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Birth {
    /// In RAM, until a decision moves or drops it.
    Ram,
    /// On flash from the start, for this reason.
    Flash(Why),
}

/// What is to be done with a file in RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Its content goes to flash, and is durable there under the file's names.
    WriteBack {
        /// The file.
        file: FileId,
        /// RAM keeps the file too, for further writes; else the file leaves RAM.
        keep_in_ram: bool,
        /// The reason.
        why: Why,
    },
    /// It is removed without having been written.
    Drop {
        /// The file.
        file: FileId,
        /// The reason.
        why: Why,
    },
    /// What was written back since the last one becomes durable together.
    CloseEpoch,
}

impl Decision {
    /// The file that it is about, where it is about one.
    pub fn file(&self) -> Option<FileId> {
        match *self {
            Decision::WriteBack { file, .. } | Decision::Drop { file, .. } => Some(file),
            Decision::CloseEpoch => None,
        }
    }
}

/// The reason of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Why {
    /// The file has been in RAM for as long as files may be.
    Age,
    /// RAM is full.
    Space,
    /// An application asked for it to be durable.
    Sync,
    /// Its name says that it belongs on flash (a database, a configured pattern).
    Name,
    /// Everything has to reach flash: the end of a mount, suspend, `sync` (each of these is an
    /// [`Action::SyncAll`](crate::event::Action::SyncAll)), or a sifter that keeps nothing in RAM.
    All,
}

/// Why a decision could not be performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// The file is written to so often that no copy of it was whole.
    Changing,
    /// Flash has no room.
    NoSpace,
    /// Any other error of the device or its file system. The performer reports the details.
    Failed,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Names are unique, and what is said of a sifter is a phrase: not empty, on one line, without
    /// an end.
    #[test]
    fn every_sifter_says_what_it_is() {
        let names: BTreeSet<&str> = ALL.iter().map(|spec| spec.name).collect();
        assert_eq!(names.len(), ALL.len());
        for Spec { name, paper, what, params, .. } in ALL {
            let params = params.iter().map(|param| param.what);
            for said in [*paper, what].into_iter().chain(params) {
                assert!(!said.is_empty() && !said.ends_with('.') && said.trim() == said, "{name}: {said:?}");
                assert!(!said.contains('\n') && !said.contains("  "), "{name}: {said:?}");
            }
            Selection::parse(name).unwrap().build(1 << 20, &[]).check();
        }
    }

    #[test]
    fn a_sifter_is_asked_for_as_policies_are() {
        assert_eq!(Selection::parse("keep:after=90s").unwrap().label(), "keep:after=90s");
        let refused = Selection::parse("keep:after=0s").err().unwrap().to_string();
        assert!(refused.contains("`0s` is no value for keep's after=60s"), "{refused}");
        let unknown = Selection::parse("drop").err().unwrap().to_string();
        assert_eq!(unknown, "no sifter is called `drop`; there are: none, keep");
    }
}
