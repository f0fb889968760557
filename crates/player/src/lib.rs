//! The Workload Player (SpatialClock §3.1, §5.1.4): what a cache sends to storage, performed on a real device or file.
//!
//! A log is read twice. First [`log::Survey`] looks at all of it, so that what cannot be replayed is refused before anything
//! is written; then [`log::Requests`] hands it over in batches, however long it is, and [`play::play`] performs them.
//! Which request is started when is decided by [`schedule::Schedule`], which knows neither clock nor device; a
//! [`target::Target`] does as it is told. [`place`] decides what may be written to at all.

pub mod log;
pub mod model;
pub mod place;
pub mod play;
pub mod profile;
pub mod schedule;
pub mod system;
pub mod tally;
pub mod target;

use std::{io, path::Path};

/// Why nothing, or nothing more, is replayed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It would destroy something, or could not do what was asked.
    #[error("{0}")]
    Refused(String),
    /// The system said no.
    #[error("{what}: {why}")]
    System {
        /// What was tried, on what.
        what: String,
        /// What it said.
        why: io::Error,
    },
    /// There is no io_uring here.
    #[error("{what} ({why}); --engine sync does without, at queue depth 1")]
    NoRing {
        /// What is missing.
        what: &'static str,
        /// What the system said.
        why: io::Error,
    },
    /// Whoever looked on wanted no more.
    #[error("stopped before it was done")]
    Stopped,
    /// A request failed.
    #[error("request {number} of the log ({what}) failed: {why}")]
    Request {
        /// Its number in the log, from 1.
        number: u64,
        /// What it asked for.
        what: String,
        /// What the system said.
        why: io::Error,
    },
}

impl Error {
    fn system(what: impl Into<String>, why: impl Into<io::Error>) -> Self {
        Self::System { what: what.into(), why: why.into() }
    }

    fn at(path: &Path, what: &str, why: impl Into<io::Error>) -> Self {
        Self::system(format!("{}: {what}", path.display()), why)
    }
}

/// What a device is asked for; at most [`PIECE_BYTES`], unless it is a discard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its number in the log, from 1; pieces of one request share it.
    pub number: u64,
    /// When it is due, microseconds after the first.
    pub at_us: u64,
    /// What is to be done.
    pub op: Op,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl Request {
    /// First byte behind it.
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// For messages.
    pub fn in_words(&self) -> String {
        match self.op {
            Op::Sync => "sync".to_owned(),
            op => format!("{} of {} bytes at {}", op.name(), self.len, self.offset),
        }
    }
}

/// The longest piece of a read or write: about what Linux lets a device have at once. Longer requests are done as several.
pub const PIECE_BYTES: u64 = 1 << 20;

/// What requests do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Write, complete when it is durable (`RWF_DSYNC`).
    WriteSync,
    /// What is written is made durable (`fdatasync`).
    Sync,
    /// What is there is not needed any more (`BLKDISCARD`, or a hole in a file).
    Discard,
}

impl Op {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::WriteSync, Self::Sync, Self::Discard];

    /// For people and programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::WriteSync => "sync-write",
            Self::Sync => "sync",
            Self::Discard => "discard",
        }
    }

    /// What the device holds changes by it.
    pub fn changes(self) -> bool {
        matches!(self, Self::Write | Self::WriteSync | Self::Discard)
    }
}
