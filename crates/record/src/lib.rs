//! What applications ask of the page cache, recorded as they ask.
//!
//! Nothing but the kernel is needed: tracepoints through a tracing instance of our own (`tracefs`), names through fanotify,
//! maps through perf's side band. All three are told to one machine ([`flashsift_traces::tracepoint`]), which turns them
//! into events. The instance is removed when the recording ends, however it ends; one of a recorder that was killed is
//! removed by the next.

mod fanotify;
pub mod format;
mod perf;
mod recorder;
pub mod ring;
mod strace;
mod syscalls;
mod system;
mod tracefs;

pub use recorder::{Lost, Options, Recorded, Stop, What, record};
use std::{io, path::Path};
pub use strace::strace;

/// Why nothing, or nothing more, could be recorded.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system does not let us.
    #[error("{what} is not allowed ({why})")]
    NotAllowed {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        why: String,
    },
    /// Something about one file of the system.
    #[error("{path}: {what}")]
    At {
        /// Which.
        path: String,
        /// What the system said.
        what: io::Error,
    },
    /// There is nothing that could be recorded.
    #[error("{0}")]
    Nothing(String),
    /// Whoever takes the events could not.
    #[error(transparent)]
    Sink(#[from] flashsift_traces::Error),
}

impl Error {
    fn not_allowed(what: &'static str, why: &io::Error) -> Self {
        Self::NotAllowed { what, why: why.to_string() }
    }

    fn tracefs(path: &Path, error: &io::Error) -> Self {
        Self::At { path: path.display().to_string(), what: io::Error::new(error.kind(), error.to_string()) }
    }
}
