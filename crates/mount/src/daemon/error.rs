//! Errors of the start and the end of a mount.

use crate::attach::{place::Refused, user_tmpfs};
use crate::{SiftError, WriteBackFailures};
use std::{error, io, path::Path};

/// The reason for a failure of the daemon.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The place is refused.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The system refused a step.
    #[error("{what}")]
    Step {
        /// The operation that failed, or its object.
        what: String,
        /// The error of the system.
        #[source]
        why: Box<Error>,
    },
    /// A system call failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Files that are still in RAM.
    #[error(transparent)]
    WriteBack(#[from] WriteBackFailures),
    /// A plain user's tmpfs.
    #[error(transparent)]
    Tmpfs(#[from] user_tmpfs::TmpfsError),
    /// The recording.
    #[error(transparent)]
    Recording(Box<dyn error::Error + Send + Sync>),
    /// The sifter.
    #[error(transparent)]
    Sift(#[from] SiftError),
    /// Anything that is said in one sentence.
    #[error("{0}")]
    Words(String),
}

impl From<rustix::io::Errno> for Error {
    fn from(why: rustix::io::Errno) -> Self {
        Self::Io(why.into())
    }
}

impl Error {
    /// The sentence and its causes on one line.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = error::Error::source(self);
        while let Some(why) = cause {
            text.push_str(&format!(": {why}"));
            cause = why.source();
        }
        text
    }
}

/// Adds to an error the step that failed.
pub(super) trait Context<T> {
    /// Names the step.
    fn context(self, what: impl Into<String>) -> Result<T, Error>;

    /// Names the path on which the step failed.
    fn at(self, path: &Path) -> Result<T, Error>
    where
        Self: Sized,
    {
        self.context(path.display().to_string())
    }
}

impl<T, E: Into<Error>> Context<T> for Result<T, E> {
    fn context(self, what: impl Into<String>) -> Result<T, Error> {
        self.map_err(|why| Error::Step { what: what.into(), why: Box::new(why.into()) })
    }
}
