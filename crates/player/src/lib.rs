//! The Workload Player (SpatialClock §3.1, §5.1.4): performs the requests that a cache sends to
//! storage on a real device or file.
//!
//! A log is read twice. First [`log::Survey`] examines all of it, so that a log that cannot be
//! replayed is refused before anything is written. Then [`log::Requests`] delivers it in batches of
//! bounded size, and [`play::play`] performs them. [`schedule::Schedule`] decides which request
//! starts when; it knows neither clock nor device. A [`target::Target`] performs single requests.
//! [`open_target`] decides which files and devices may be written to.

pub mod log;
pub mod memory;
pub mod model;
pub mod open_target;
pub mod play;
pub mod profile;
pub mod schedule;
pub mod system;
pub mod tally;
pub mod target;
pub mod twin;

use std::{io, path::Path};

/// Reasons for which a replay does not start or ends early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It would destroy data without consent, or it cannot perform the log.
    #[error("{0}")]
    Refused(String),
    /// A system call failed.
    #[error("{what}: {why}")]
    System {
        /// The operation and its object.
        what: String,
        /// The error of the system.
        why: io::Error,
    },
    /// io_uring is not available.
    #[error("{what} ({why}); --engine sync does without, at queue depth 1")]
    NoRing {
        /// The missing feature.
        what: &'static str,
        /// The error of the system.
        why: io::Error,
    },
    /// The observer asked to stop.
    #[error("stopped before it was done")]
    Stopped,
    /// A request failed.
    #[error("request {number} of the log ({what}) failed: {why}")]
    Request {
        /// Its number in the log, from 1.
        number: u64,
        /// Operation and range of the request.
        what: String,
        /// The error of the system.
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

/// One request to a device; at most [`PIECE_BYTES`] long, unless it is a discard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Its number in the log, from 1; pieces of one request share it.
    pub number: u64,
    /// Due time, microseconds after the first request.
    pub at_us: u64,
    /// The operation.
    pub op: Op,
    /// Offset of the first byte.
    pub offset: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Request {
    /// Returns the offset of the byte after the last one.
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// Describes the request for messages.
    pub fn in_words(&self) -> String {
        match self.op {
            Op::Sync => "sync".to_owned(),
            op if op.is_memory() => format!("{} of {} bytes", op.name(), self.len),
            op => format!("{} of {} bytes at {}", op.name(), self.len, self.offset),
        }
    }
}

/// The longest read or write that is issued as one request, about the limit that Linux sets for a
/// device. Longer requests are split.
pub const PIECE_BYTES: u64 = 1 << 20;

/// Operations on a device, and accesses to lines of memory between them. An access has no address;
/// its length is a multiple of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Write, complete when it is durable (`RWF_DSYNC`).
    WriteSync,
    /// Makes earlier writes durable (`fdatasync`).
    Sync,
    /// Releases blocks that are not needed any more (`BLKDISCARD`, or a hole in a file).
    Discard,
    /// Reads lines of DRAM.
    DramRead,
    /// Writes lines of DRAM.
    DramWrite,
    /// Reads lines of non-volatile memory.
    NvmRead,
    /// Writes lines of non-volatile memory, each durable before the next.
    NvmWrite,
}

impl Op {
    /// All operations, in the order of their numbers.
    pub const ALL: [Self; 9] = [
        Self::Read,
        Self::Write,
        Self::WriteSync,
        Self::Sync,
        Self::Discard,
        Self::DramRead,
        Self::DramWrite,
        Self::NvmRead,
        Self::NvmWrite,
    ];

    /// Accesses to memory.
    pub const OF_MEMORY: [Self; 4] =
        [Self::DramRead, Self::DramWrite, Self::NvmRead, Self::NvmWrite];

    /// Returns the name in tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::WriteSync => "sync-write",
            Self::Sync => "sync",
            Self::Discard => "discard",
            Self::DramRead => "dram-read",
            Self::DramWrite => "dram-write",
            Self::NvmRead => "nvm-read",
            Self::NvmWrite => "nvm-write",
        }
    }

    /// Whether it accesses memory, not the device.
    pub fn is_memory(self) -> bool {
        Self::OF_MEMORY.contains(&self)
    }

    /// Whether it changes the content of the device.
    pub fn changes(self) -> bool {
        matches!(self, Self::Write | Self::WriteSync | Self::Discard)
    }
}
