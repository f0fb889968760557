//! Changes a maximum, says what is left of changes, and undoes them.

use super::{Backing, Identity, kib, named};
use crate::journal::{
    Intent, Journal, JournalContent, JournalEntry, JournalError, OpenChange, now_us,
};
use rustix::io::Errno;
use serde::Serialize;
use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// The machine whose values are changed: this one, or a tree of a test.
#[derive(Clone, Debug)]
pub struct Machine {
    /// `/sys`.
    pub sys: PathBuf,
    /// The journal.
    pub journal: PathBuf,
    /// Identifies the time since the last start.
    pub boot_id: String,
}

/// A change that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// Number in the journal; `None`: the value was there already, and nothing was written.
    pub id: Option<u64>,
    /// Value before, KiB.
    pub old_kib: u64,
    /// Value that was written, KiB.
    pub new_kib: u64,
    /// Value that the kernel kept, KiB.
    pub kept_kib: u64,
}

/// Reasons for which a value is not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The user may not.
    #[error("changing {0} needs root: run it with sudo")]
    NotAllowed(String),
    /// sysfs is mounted read-only, as in many containers.
    #[error("{0} cannot be changed: sysfs is mounted read-only here (a container?)")]
    ReadOnly(String),
    /// A file could not be used.
    #[error("{path}: {error}")]
    At {
        /// Path of the file.
        path: String,
        /// The error of the system.
        error: io::Error,
    },
    /// The journal could not be used. Without a journal nothing is changed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// The present effect of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeState {
    /// The kernel has the value.
    InForce,
    /// A newer change of flashsift has replaced the value.
    Superseded,
    /// Another program has replaced the value.
    Replaced,
    /// flashsift or the machine stopped after the journal and before the mark; the value was
    /// written.
    UnfinishedWritten,
    /// The same; the value was not written.
    UnfinishedNotWritten,
    /// The same; the value is neither the old nor the new one.
    UnfinishedReplaced,
    /// The machine has restarted, so the kernel has forgotten the value.
    Restarted,
    /// The device is gone, or another one has its number.
    Gone,
}

/// A change with its present state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadAheadStatus {
    /// The change.
    pub change: OpenChange,
    /// Its state.
    pub state: ChangeState,
    /// The present value, KiB; `None` where there is no such bdi.
    pub present_kib: Option<u64>,
}

/// Outcome of an undo of the changes of one bdi.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "outcome")]
pub enum Undone {
    /// The old value is back.
    Restored {
        /// Value before the undo, KiB.
        from_kib: u64,
        /// Value that the kernel kept, KiB.
        to_kib: u64,
    },
    /// The kernel had the old value already.
    WasThere {
        /// The value, KiB.
        kib: u64,
    },
    /// The machine has restarted, so there was nothing to undo.
    Restarted,
    /// The device is gone, so there was nothing to undo.
    Gone,
    /// Another program has changed the value; nothing was written.
    Refused {
        /// The present value, KiB.
        present_kib: u64,
        /// The value that flashsift wrote, KiB.
        ours_kib: u64,
        /// The value to which an undo would return, KiB.
        old_kib: u64,
    },
}

/// A value file that is open for writing.
struct Value {
    path: PathBuf,
    file: File,
}

impl Value {
    fn open(path: &Path) -> Result<Self, ChangeError> {
        let text = || path.display().to_string();
        let file =
            OpenOptions::new().write(true).open(path).map_err(
                |error| match Errno::from_io_error(&error) {
                    Some(Errno::ACCESS | Errno::PERM) => ChangeError::NotAllowed(text()),
                    Some(Errno::ROFS) => ChangeError::ReadOnly(text()),
                    _ => ChangeError::At { path: text(), error },
                },
            )?;
        Ok(Self { path: path.to_owned(), file })
    }

    fn present_kib(&self) -> Result<u64, ChangeError> {
        kib(&self.path).map_err(|error| self.at(error))
    }

    fn at(&self, error: io::Error) -> ChangeError {
        ChangeError::At { path: self.path.display().to_string(), error }
    }

    /// Writes with a journal around it, and returns the value that the kernel kept.
    fn change(&mut self, journal: &mut Journal, intent: Intent) -> Result<u64, ChangeError> {
        let (id, new_kib) = (intent.id, intent.new_kib);
        journal.append(JournalEntry::Intent(intent))?;
        if let Err(error) = self.file.write_all(format!("{new_kib}\n").as_bytes()) {
            journal.append(JournalEntry::Failed { id, why: error.to_string() })?;
            return Err(self.at(error));
        }
        let kept_kib = self.present_kib()?;
        journal.append(JournalEntry::Done { id, kept_kib })?;
        Ok(kept_kib)
    }
}

impl Machine {
    /// This machine.
    ///
    /// # Errors
    ///
    /// The kernel does not tell the number of this start.
    pub fn this(journal: &Path) -> io::Result<Self> {
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
        Ok(Self { sys: "/sys".into(), journal: journal.to_owned(), boot_id })
    }

    /// Sets a maximum, after it was noted in the journal.
    ///
    /// # Errors
    ///
    /// The user may not, or the journal or the value cannot be written.
    pub fn apply(&self, backing: &Backing, new_kib: u64) -> Result<Applied, ChangeError> {
        let mut value = Value::open(&backing.path)?;
        let mut journal = Journal::open(&self.journal)?;
        let old_kib = value.present_kib()?;
        if old_kib == new_kib {
            return Ok(Applied { id: None, old_kib, new_kib, kept_kib: old_kib });
        }
        let id = journal.next_id();
        let intent = Intent {
            id,
            at_us: now_us(),
            boot_id: self.boot_id.clone(),
            bdi: backing.bdi.clone(),
            device: backing.device.clone(),
            old_kib,
            new_kib,
            undoes: Vec::new(),
        };
        let kept_kib = value.change(&mut journal, intent)?;
        Ok(Applied { id: Some(id), old_kib, new_kib, kept_kib })
    }

    /// Returns the changes that are not undone, oldest first, and whether the journal's last line
    /// is incomplete.
    ///
    /// # Errors
    ///
    /// The journal cannot be read.
    pub fn status(&self) -> Result<(Vec<ReadAheadStatus>, bool), JournalError> {
        let content = Journal::look(&self.journal)?;
        Ok((self.status_of(&content), content.torn))
    }

    fn status_of(&self, content: &JournalContent) -> Vec<ReadAheadStatus> {
        let newest = |change: &OpenChange| {
            let same = content.open.iter().filter(|other| other.intent.bdi == change.intent.bdi);
            same.map(|other| other.intent.id).max() == Some(change.intent.id)
        };
        let states = content.open.iter().map(|change| {
            let Intent { bdi, device, old_kib, new_kib, .. } = &change.intent;
            let present = self.present(bdi, device);
            let state = match (&present, change.kept_kib) {
                _ if change.intent.boot_id != self.boot_id => ChangeState::Restarted,
                (None, _) => ChangeState::Gone,
                (Some(present), None) if present == new_kib => ChangeState::UnfinishedWritten,
                (Some(present), None) if present == old_kib => ChangeState::UnfinishedNotWritten,
                (Some(_), None) => ChangeState::UnfinishedReplaced,
                (Some(_), Some(_)) if !newest(change) => ChangeState::Superseded,
                (Some(present), Some(kept)) if *present == kept => ChangeState::InForce,
                (Some(_), Some(_)) => ChangeState::Replaced,
            };
            ReadAheadStatus { change: change.clone(), state, present_kib: present }
        });
        states.collect()
    }

    /// The present value, if the bdi still is that of the device.
    fn present(&self, bdi: &str, device: &Identity) -> Option<u64> {
        let (path, now) = named(&self.sys, bdi)?;
        if !now.is_same(device) {
            return None;
        }
        kib(&path).ok()
    }

    /// Restores the values from before all changes that are not undone; those of one bdi, or of
    /// all. A value that another program has changed since stays, unless `force` is given. Returns
    /// the outcome for each bdi that has changes.
    ///
    /// # Errors
    ///
    /// The user may not, or the journal or a value cannot be written.
    pub fn undo(
        &self,
        only_bdi: Option<&str>,
        force: bool,
    ) -> Result<Vec<(OpenChange, Undone)>, ChangeError> {
        // A journal that does not exist is not created.
        if Journal::look(&self.journal)?.open.is_empty() {
            return Ok(Vec::new());
        }
        let mut journal = Journal::open(&self.journal).map_err(|error| match error {
            JournalError::At { path, error } if error.kind() == io::ErrorKind::PermissionDenied => {
                ChangeError::NotAllowed(path)
            }
            error => error.into(),
        })?;
        let content = journal.content().clone();
        let chosen = content.by_bdi().into_iter();
        let chosen = chosen.filter(|(bdi, _)| only_bdi.is_none_or(|only| only == *bdi));
        let mut outcomes = Vec::new();
        for (bdi, changes) in chosen {
            let last = changes.last().copied().cloned().expect("each group has a change");
            let outcome = self.undo_bdi(&mut journal, bdi, &changes, force)?;
            outcomes.push((last, outcome));
        }
        Ok(outcomes)
    }

    fn undo_bdi(
        &self,
        journal: &mut Journal,
        bdi: &str,
        changes: &[&OpenChange],
        force: bool,
    ) -> Result<Undone, ChangeError> {
        // Changes from before a restart or to a device that is gone left nothing to undo.
        let is_past = |change: &OpenChange| change.intent.boot_id != self.boot_id;
        let is_gone = |change: &OpenChange| self.present(bdi, &change.intent.device).is_none();
        let mut close = |change: &OpenChange, why: &str| {
            journal.append(JournalEntry::Closed { id: change.intent.id, why: why.to_owned() })
        };
        let mut left = Vec::new();
        let mut outcome = Undone::Gone;
        for change in changes {
            if is_past(change) {
                close(change, "the machine has restarted")?;
                outcome = Undone::Restarted;
            } else if is_gone(change) {
                close(change, "the device is gone")?;
                outcome = Undone::Gone;
            } else {
                left.push(*change);
            }
        }
        let (Some(first), Some(last)) = (left.first(), left.last()) else { return Ok(outcome) };
        let old_kib = first.intent.old_kib;
        let (path, device) = named(&self.sys, bdi).expect("it is not gone");
        let mut value = Value::open(&path)?;
        let present_kib = value.present_kib()?;
        if present_kib == old_kib {
            for change in &left {
                close(change, "the value from before was there already")?;
            }
            return Ok(Undone::WasThere { kib: old_kib });
        }
        // Of an unfinished change it is not known whether the old or the new value is there.
        let ours = |change: &OpenChange| match change.kept_kib {
            Some(kept_kib) => present_kib == kept_kib,
            None => [change.intent.old_kib, change.intent.new_kib].contains(&present_kib),
        };
        if !ours(last) && !force {
            let ours_kib = last.kept_kib.unwrap_or(last.intent.new_kib);
            return Ok(Undone::Refused { present_kib, ours_kib, old_kib });
        }
        let intent = Intent {
            id: journal.next_id(),
            at_us: now_us(),
            boot_id: self.boot_id.clone(),
            bdi: bdi.to_owned(),
            device,
            old_kib: present_kib,
            new_kib: old_kib,
            undoes: left.iter().map(|change| change.intent.id).collect(),
        };
        let to_kib = value.change(journal, intent)?;
        Ok(Undone::Restored { from_kib: present_kib, to_kib })
    }
}
