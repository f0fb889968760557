//! Sifters: which files stay in RAM, which reach flash, and when.
//!
//! A sifter is a machine without I/O. It sees every event in order, and answers with decisions. Who
//! performs them, the simulator or the live mount, reports the result; so one history gives the same
//! decisions in both. A sifter is one file and one line in this folder's list, as policies are.
//!
//! The protocol, for one file:
//!
//! 1. [`Sift::birth`] says where a new file lives. [`Birth::Flash`] ends the sifter's interest in
//!    where the file is; it may still want its events.
//! 2. [`Sift::handle`] hears what happens, the file's [`Create`] first. [`Sift::handle_deadline`]
//!    is called no earlier than [`Sift::next_deadline`], [`Sift::need_space`] when RAM is full.
//! 3. After each of these the performer calls [`Sift::poll`] until it is `None`, and performs the
//!    decisions in order. What an application waits for (a sync, space) is done when the decisions
//!    that it led to are done.
//! 4. [`Sift::done`] follows each decision on a file, and may lead to further ones. It also reports a
//!    file that reached flash without a decision, because RAM could not take it.

use crate::event::{Create, Event, FileId, Micros};

/// Decides what happens to files in RAM.
pub trait Sift {
    /// Where the new file lives. It changes nothing: [`Sift::handle`] gets the file's
    /// [`Action::Create`](crate::event::Action::Create) once the file exists.
    fn birth(&mut self, now: Micros, create: &Create<'_>) -> Birth;

    /// Something happened.
    fn handle(&mut self, now: Micros, event: &Event<'_>);

    /// A decision on this file was performed, or could not be. `Ok` for a file that no decision is
    /// out for: the file reached flash by itself.
    fn done(&mut self, now: Micros, file: FileId, result: Result<(), Blocked>);

    /// RAM has no room for these bytes: decisions that make room must follow, where there are any.
    fn need_space(&mut self, now: Micros, bytes: u64);

    /// When [`Sift::handle_deadline`] is due, if nothing happens before.
    fn next_deadline(&self) -> Option<Micros>;

    /// The deadline has come.
    fn handle_deadline(&mut self, now: Micros);

    /// The next decision.
    fn poll(&mut self) -> Option<Decision>;

    /// Re-derives every invariant; panics where one is broken.
    fn check(&self);
}

/// Where a new file lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Birth {
    /// In RAM, until a decision moves or drops it.
    Ram,
    /// On flash from the start.
    Flash(Why),
}

/// What is to be done with a file in RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Its content goes to flash.
    WriteBack {
        /// Which.
        file: FileId,
        /// RAM keeps the file too, for further writes; else the file leaves RAM.
        keep_in_ram: bool,
        /// The reason.
        why: Why,
    },
    /// It is removed without having been written.
    Drop {
        /// Which.
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
    /// Everything has to reach flash: the end of a mount, suspend, `sync`. Each of these is an
    /// [`Action::SyncAll`](crate::event::Action::SyncAll).
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
