//! Records the requests of applications to the page cache as they happen.
//!
//! It needs only the kernel: tracepoints through a tracing instance of its own (`tracefs`), names
//! through fanotify, mappings through perf's side band. One state machine
//! ([`flashsift_traces::tracepoint`]) turns all three into events. The instance is removed when the
//! recording ends. The next recorder removes the instance of one that was killed.

mod fanotify;
mod fiemap;
mod folios;
pub mod format;
mod open_files;
mod perf;
pub mod readahead;
mod recorder;
pub mod ring;
mod strace;
mod syscalls;
mod system;
mod tracefs;

pub use recorder::{Lost, Options, Recorded, Stop, Subject, file_systems, lacks_reads, record};
use rustix::fd::AsFd;
use std::{fs::File, io, path::Path};
pub use strace::{has_strace, strace};
pub use system::can_record;

/// Returns the number of extents of a file's data (FIEMAP). Data that the kernel has not written
/// back has none yet.
///
/// # Errors
///
/// The file system does not tell.
pub fn extents(file: &File) -> io::Result<usize> {
    fiemap::extents(file.as_fd()).map(|extents| extents.len())
}

/// Reasons for which a recording does not start or ends early.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system does not permit it.
    #[error("{what} is not allowed ({why})")]
    NotAllowed {
        /// The operation.
        what: &'static str,
        /// The error of the system.
        why: String,
    },
    /// A file of the system could not be used.
    #[error("{path}: {what}")]
    At {
        /// Path of the file.
        path: String,
        /// The error of the system.
        what: io::Error,
    },
    /// The place is on no file system whose accesses tracepoints show.
    #[error("{0}")]
    NoFileSystem(String),
    /// Nothing can be recorded.
    #[error("{0}")]
    Nothing(String),
    /// The receiver of the events failed.
    #[error(transparent)]
    Sink(#[from] flashsift_traces::Error),
}

impl Error {
    fn not_allowed(what: &'static str, why: &io::Error) -> Self {
        Self::NotAllowed { what, why: why.to_string() }
    }

    fn tracefs(path: &Path, error: &io::Error) -> Self {
        Self::At {
            path: path.display().to_string(),
            what: io::Error::new(error.kind(), error.to_string()),
        }
    }
}
