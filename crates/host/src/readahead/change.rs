//! Changes a maximum, says what is left of changes, and undoes them.

use super::{Backing, Identity, kib, named};
use crate::{
    change::{self, ChangeError, ChangeStatus, Outcome, PlanValues},
    journal::{Journal, JournalError, OpenChange, Plan},
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
};

/// A change of a maximum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MaximumChange {
    /// Name of the bdi in `/sys/class/bdi`.
    pub bdi: String,
    /// The device behind it.
    pub device: Identity,
    /// Value before, KiB.
    pub old_kib: u64,
    /// Value to write, KiB.
    pub new_kib: u64,
}

/// The value that the kernel kept, KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptKib {
    /// The value.
    pub kept_kib: u64,
}

impl From<u64> for KeptKib {
    fn from(kept_kib: u64) -> Self {
        Self { kept_kib }
    }
}

impl Plan for MaximumChange {
    type Value = u64;
    type Kept = KeptKib;

    fn place(&self) -> String {
        self.bdi.clone()
    }
    fn old(&self) -> u64 {
        self.old_kib
    }
    fn wanted(&self) -> u64 {
        self.new_kib
    }
    fn kept(kept: &KeptKib) -> u64 {
        kept.kept_kib
    }
    fn back(&self, present: u64, to: u64) -> Self {
        Self { old_kib: present, new_kib: to, ..self.clone() }
    }
}

/// A change with its present state.
pub type ReadAheadStatus = ChangeStatus<MaximumChange>;

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

impl From<Outcome<u64>> for Undone {
    fn from(outcome: Outcome<u64>) -> Self {
        match outcome {
            Outcome::Restored { from: from_kib, to: to_kib } => Self::Restored { from_kib, to_kib },
            Outcome::WasThere(kib) => Self::WasThere { kib },
            Outcome::Restarted => Self::Restarted,
            Outcome::Gone => Self::Gone,
            Outcome::Refused { present: present_kib, ours: ours_kib, old: old_kib } => {
                Self::Refused { present_kib, ours_kib, old_kib }
            }
        }
    }
}

/// Opens a file of a value for writing. It is not cut, as a kill must not leave an empty one should
/// it be no file of the kernel.
fn open_value(path: &Path) -> Result<File, ChangeError> {
    let text = || path.display().to_string();
    OpenOptions::new().write(true).open(path).map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::ACCESS | Errno::PERM) => ChangeError::NotAllowed(text()),
        Some(Errno::ROFS) => ChangeError::ReadOnly(text()),
        _ => ChangeError::At { path: text(), error },
    })
}

/// Whether a file of a value can be opened for writing.
pub(crate) fn may_write(path: &Path) -> Result<(), ChangeError> {
    open_value(path).map(drop)
}

impl PlanValues<MaximumChange> for Machine {
    /// The kernel keeps whole pages.
    const EXACT: bool = false;

    fn present(&self, plan: &MaximumChange) -> Option<u64> {
        let (path, now) = named(&self.sys, &plan.bdi)?;
        if !now.is_same(&plan.device) {
            return None;
        }
        kib(&path).ok()
    }

    fn may_write(&self, plan: &MaximumChange) -> Result<(), ChangeError> {
        named(&self.sys, &plan.bdi).map_or(Ok(()), |(path, _)| may_write(&path))
    }

    fn write(&self, plan: &MaximumChange) -> Result<(), ChangeError> {
        let gone = || ChangeError::Refused(format!("{} is gone", plan.bdi));
        let (path, _) = named(&self.sys, &plan.bdi).ok_or_else(gone)?;
        write_value(&path, &plan.new_kib.to_string())
    }
}

/// Writes a value with one call.
pub(crate) fn write_value(path: &Path, value: &str) -> Result<(), ChangeError> {
    let written = open_value(path)?.write_all(format!("{value}\n").as_bytes());
    written.map_err(|error| ChangeError::At { path: path.display().to_string(), error })
}

impl Machine {
    /// This machine.
    ///
    /// # Errors
    ///
    /// The kernel does not tell the number of this start.
    pub fn this(journal: &Path) -> io::Result<Self> {
        Ok(Self { sys: "/sys".into(), journal: journal.to_owned(), boot_id: boot_id()? })
    }

    /// Sets a maximum, after it was noted in the journal.
    ///
    /// # Errors
    ///
    /// The user may not, or the journal or the value cannot be written.
    pub fn apply(&self, backing: &Backing, new_kib: u64) -> Result<Applied, ChangeError> {
        may_write(&backing.path)?;
        let mut journal = Journal::open(&self.journal)?;
        let at = |error| ChangeError::At { path: backing.path.display().to_string(), error };
        let old_kib = kib(&backing.path).map_err(at)?;
        if old_kib == new_kib {
            return Ok(Applied { id: None, old_kib, new_kib, kept_kib: old_kib });
        }
        let (bdi, device) = (backing.bdi.clone(), backing.device.clone());
        let plan = MaximumChange { bdi, device, old_kib, new_kib };
        let (id, kept_kib) = change::make(self, &mut journal, &self.boot_id, plan, Vec::new())?;
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
        Ok((change::status_of(self, &self.boot_id, &content), content.torn))
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
    ) -> Result<Vec<(OpenChange<MaximumChange>, Undone)>, ChangeError> {
        let chosen = |plan: &MaximumChange| only_bdi.is_none_or(|only| only == plan.bdi);
        let outcomes = change::undo(self, &self.journal, &self.boot_id, chosen, force)?;
        Ok(outcomes.into_iter().map(|(change, outcome)| (change, outcome.into())).collect())
    }
}

/// The number of this start of the machine.
///
/// # Errors
///
/// The kernel does not tell it.
pub fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}
