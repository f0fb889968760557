//! Files that could not be written back, each with the step that failed and the answer to it.

use super::table::Table;
use super::types::{Failure, Ino};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::fmt;
use tracing::{debug, info, warn};

/// The last operation that was tried for a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Opening the file in RAM, and making its copy.
    Open,
    /// Copying its content and attributes.
    Copy,
    /// Making the copy durable.
    Sync,
    /// Renaming the copy to the file's first name.
    Rename,
    /// Giving it a further name.
    Link,
    /// Copying while the file is written to.
    CopyUnchanged,
    /// Making a new directory.
    MakeDirectory,
    /// Making the names in a directory durable.
    SyncDirectory,
    /// Making everything durable.
    SyncAll,
    /// Writing an epoch of delayed syncs.
    Epoch,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Step::Open => "opening",
            Step::Copy => "copying to flash",
            Step::Sync => "syncing the copy",
            Step::Rename => "renaming the copy",
            Step::Link => "linking a further name",
            Step::CopyUnchanged => "copying while it is written to",
            Step::MakeDirectory => "making the directory",
            Step::SyncDirectory => "syncing the directory",
            Step::SyncAll => "syncing the file system",
            Step::Epoch => "writing an epoch of delayed syncs",
        })
    }
}

/// A file that could not be written back, or a directory whose names could not be made durable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {step}: {errno}")]
pub struct WriteBackError {
    /// From the mounted directory on; bytes that are not UTF-8 as `\xNN`.
    pub path: String,
    /// The step that failed.
    pub step: Step,
    /// The error number.
    pub errno: Errno,
}

impl WriteBackError {
    /// A step for all files together failed.
    pub(crate) fn of_all(step: Step) -> impl Fn(Errno) -> WriteBackError {
        move |errno| WriteBackError { path: "/".to_owned(), step, errno }
    }
}

/// All that failed together, never none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteBackFailures(Vec<(Ino, WriteBackError)>);

/// Number of failures that a message names.
const NAMED: usize = 3;

impl WriteBackFailures {
    /// Each of them.
    pub fn all(&self) -> impl ExactSizeIterator<Item = &WriteBackError> {
        self.0.iter().map(|(_, error)| error)
    }

    pub(crate) fn from_all(all: Vec<(Ino, WriteBackError)>) -> Result<(), Self> {
        if all.is_empty() { Ok(()) } else { Err(Self(all)) }
    }

    pub(crate) fn into_all(self) -> Vec<(Ino, WriteBackError)> {
        self.0
    }

    /// Each with the number of its file or directory.
    pub(crate) fn by_file(&self) -> impl Iterator<Item = (Ino, &WriteBackError)> {
        self.0.iter().map(|(ino, error)| (*ino, error))
    }

    /// The single error number that an application gets for all these failures.
    pub fn errno(&self) -> Errno {
        self.0[0].1.errno
    }
}

impl From<WriteBackError> for WriteBackFailures {
    fn from(error: WriteBackError) -> Self {
        Self(vec![(super::types::ROOT, error)])
    }
}

impl fmt::Display for WriteBackFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (_, error)) in self.0.iter().take(NAMED).enumerate() {
            write!(f, "{}{error}", if at > 0 { "; " } else { "" })?;
        }
        match self.0.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, "; and {more} more"),
        }
    }
}

impl std::error::Error for WriteBackFailures {}

impl From<WriteBackFailures> for Errno {
    fn from(failures: WriteBackFailures) -> Errno {
        failures.errno()
    }
}

/// A step that failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failed {
    pub(crate) step: Step,
    pub(crate) errno: Errno,
}

/// Names the step of an error.
pub(crate) trait In<T> {
    fn step(self, step: Step) -> Result<T, Failed>;
}

impl<T> In<T> for rustix::io::Result<T> {
    fn step(self, step: Step) -> Result<T, Failed> {
        self.map_err(|errno| Failed { step, errno })
    }
}

/// Current failures, by number of file or directory.
#[derive(Debug, Default)]
pub(crate) struct Failing(BTreeMap<Ino, WriteBackError>);

impl Failing {
    /// Takes the results of an attempt on these files and directories; returns what failed. Each
    /// change is logged once.
    pub(crate) fn tried(
        &mut self,
        table: &Table,
        tried: &[Ino],
        failed: &[(Ino, Failed)],
    ) -> Result<(), WriteBackFailures> {
        let errors: Vec<(Ino, WriteBackError)> =
            failed.iter().map(|(ino, failed)| (*ino, named(table, *ino, *failed))).collect();
        let failed_before = !self.0.is_empty();
        for ino in tried {
            if errors.iter().all(|(failed, _)| failed != ino) {
                self.0.remove(ino);
            }
        }
        for (ino, error) in &errors {
            if self.0.get(ino) == Some(error) {
                continue;
            }
            let WriteBackError { path, step, errno } = error;
            let (step, errno) = (step.to_string(), errno.raw_os_error());
            // The first of its kind is for people, the others are for those who want all.
            let first =
                self.0.values().all(|known| (known.step, known.errno) != (error.step, error.errno));
            if first {
                warn!(path, step, errno, "{error}: it stays in RAM, and is tried again and again");
            } else {
                debug!(path, step, errno, "{error}: it stays in RAM, and is tried again and again");
            }
            self.0.insert(*ino, error.clone());
        }
        self.prune(table);
        if failed_before && self.0.is_empty() {
            info!("files are written back again");
        }
        WriteBackFailures::from_all(errors)
    }

    /// Why this file was not written back when it was last tried.
    pub(crate) fn of(&self, ino: Ino) -> Option<Errno> {
        self.0.get(&ino).map(|error| error.errno)
    }

    /// Whether BACKING refuses a file, or a directory, because it has no space for it: a quota may
    /// be used up, or a directory may be as large as it can be.
    pub(crate) fn for_want_of_space(&mut self, table: &Table) -> bool {
        if self.0.is_empty() {
            return false;
        }
        self.prune(table);
        let refuses = |errno| matches!(errno, Errno::NOSPC | Errno::DQUOT | Errno::MLINK);
        self.0.values().any(|error| refuses(error.errno) && error.step != Step::Epoch)
    }

    /// Current failures, with the paths of their files, and how many are those of directories.
    pub(crate) fn now(&mut self, table: &Table) -> (Vec<Failure>, u64) {
        self.prune(table);
        let of_directory = |error: &&WriteBackError| {
            matches!(error.step, Step::MakeDirectory | Step::SyncDirectory)
        };
        let directories = self.0.values().filter(of_directory).count() as u64;
        let failure = |error: &WriteBackError| Failure {
            path: error.path.clone(),
            step: error.step.to_string(),
            errno: error.errno.raw_os_error(),
            error: error.errno.to_string(),
        };
        (self.0.values().map(failure).collect(), directories)
    }

    /// A file that has gone since, or reached flash, fails no longer.
    fn prune(&mut self, table: &Table) {
        self.0.retain(|ino, error| {
            let directory = error.step == Step::SyncDirectory;
            let waits = table.waiting().get(ino).and_then(|state| state.waiting());
            let waits = waits.is_some_and(|waiting| waiting.unsaved().is_some());
            let waits = waits || table.is_new_directory(*ino);
            table.node(*ino).is_some_and(|node| directory || waits || node.residence().is_in_ram())
        });
    }
}

fn named(table: &Table, ino: Ino, Failed { step, errno }: Failed) -> WriteBackError {
    let path = match table.node(ino).and_then(|node| node.names.first()) {
        Some((dir, name)) => table.path(*dir, name),
        None if ino == super::types::ROOT => "/".to_owned(),
        None => "a file without a name".to_owned(),
    };
    WriteBackError { path, step, errno }
}
