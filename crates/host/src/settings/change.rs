//! Changes settings with a journal, says what is left of changes, and undoes them.

use super::{Place, Roots, SettingSpec, place};
use crate::{
    change::{self, ChangeError, ChangeState, ChangeStatus, PlanValues, UndoneChange},
    journal::{Journal, JournalEntry, JournalError, Plan},
    mounts::Mount,
};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A change of a setting, or of the line that makes it permanent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SettingChange {
    /// Name in the list.
    pub setting: String,
    /// Where the value is.
    pub place: Place,
    /// Value before.
    pub old: String,
    /// Value to write.
    pub new: String,
    /// A configuration file gives the value at every start.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub permanent: bool,
    /// The remedy of the doctor that it is a step of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

/// The value that the machine kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptText {
    /// The value.
    pub kept: String,
}

impl From<String> for KeptText {
    fn from(kept: String) -> Self {
        Self { kept }
    }
}

impl Plan for SettingChange {
    type Value = String;
    type Kept = KeptText;

    fn place(&self) -> String {
        format!("{} of {}", self.setting, self.place)
    }
    fn old(&self) -> String {
        self.old.clone()
    }
    fn wanted(&self) -> String {
        self.new.clone()
    }
    fn kept(kept: &KeptText) -> String {
        kept.kept.clone()
    }
    fn back(&self, present: String, to: String) -> Self {
        Self { old: present, new: to, ..self.clone() }
    }
    fn outlives_restart(&self) -> bool {
        self.permanent
    }
    fn undone_last(&self) -> bool {
        matches!(self.place, Place::After { .. })
    }
}

/// A setting and the value that it is to have, as the machine writes it.
#[derive(Clone, Debug)]
pub struct Wanted<'a> {
    /// The setting.
    pub spec: &'static SettingSpec,
    /// The file system that it belongs to.
    pub mount: Option<&'a Mount>,
    /// The value.
    pub value: String,
}

/// A change that was made, or that would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AppliedSetting {
    /// Number in the journal; `None`: nothing was written.
    pub id: Option<u64>,
    /// The change.
    #[serde(flatten)]
    pub change: SettingChange,
}

/// The machine whose settings are changed: this one, or trees of a test.
#[derive(Clone, Debug)]
pub struct SettingsMachine {
    /// The trees.
    pub roots: Roots,
    /// The journal.
    pub journal: PathBuf,
    /// Identifies the time since the last start.
    pub boot_id: String,
}

impl PlanValues<SettingChange> for SettingsMachine {
    const EXACT: bool = true;

    fn present(&self, plan: &SettingChange) -> Option<String> {
        match plan.place {
            // It can only be run again.
            Place::After { .. } => Some(plan.new.clone()),
            _ => plan.place.read().ok(),
        }
    }
    fn may_write(&self, plan: &SettingChange) -> Result<(), ChangeError> {
        plan.place.may_write()
    }
    fn write(&self, plan: &SettingChange) -> Result<(), ChangeError> {
        plan.place.write(&plan.new)
    }
}

impl SettingsMachine {
    /// Returns the changes that settings need to have these values; those that have them already
    /// need none. `permanent`: also those of configuration files.
    ///
    /// # Errors
    ///
    /// A setting does not exist here, cannot be read, or is not to be changed: its file system is
    /// read-only or removable.
    pub fn plan(
        &self,
        wanted: &[Wanted<'_>],
        permanent: bool,
    ) -> Result<Vec<SettingChange>, ChangeError> {
        let mut live = Vec::new();
        let mut files: Vec<SettingChange> = Vec::new();
        for Wanted { spec, mount, value } in wanted {
            if let Some(why) = mount.and_then(|mount| place::refusal(spec, mount, &self.roots)) {
                return Err(ChangeError::Refused(why));
            }
            let (setting, place) = (spec.name.to_owned(), Place::new(spec, *mount, &self.roots)?);
            let old = place.read()?;
            let new = value.clone();
            if permanent {
                let file = place.permanent(&self.roots)?;
                // Another option of the same line comes on top.
                let before = files.iter().rev().find(|change| change.place == file);
                let present =
                    before.map_or_else(|| file.read(), |change| Ok(change.new.clone()))?;
                let wanted = file.with(&place, &present, value);
                match files.iter_mut().find(|change| change.place == file) {
                    Some(change) => change.new = wanted,
                    None => files.push(SettingChange {
                        setting: setting.clone(),
                        place: file,
                        old: present,
                        new: wanted,
                        permanent,
                        remedy: None,
                    }),
                }
            }
            live.push(SettingChange { setting, place, old, new, permanent, remedy: None });
        }
        let all = live.into_iter().chain(files);
        Ok(all.filter(|change| change.old != change.new).collect())
    }

    /// Makes changes. If one of them fails, those before it are undone.
    ///
    /// # Errors
    ///
    /// The user may not, flashsift has changed one of the values already, the journal or a value
    /// cannot be written, or the kernel did not take it.
    pub fn apply(&self, changes: &[SettingChange]) -> Result<Vec<AppliedSetting>, ChangeError> {
        changes.iter().try_for_each(|change| change.place.may_write())?;
        if changes.is_empty() {
            return Ok(Vec::new());
        }
        let mut journal = change::open::<SettingChange>(&self.journal)?;
        let content = journal.content().clone();
        for status in change::status_of(self, &self.boot_id, &content) {
            let intent = &status.change.intent;
            let (id, place) = (intent.id, intent.plan.place());
            if status.state == ChangeState::Restarted {
                let why = "the machine has restarted".to_owned();
                journal.append(JournalEntry::Closed { id, why })?;
            } else if changes
                .iter()
                .any(|change| change.place == intent.plan.place && !change.undone_last())
            {
                return Err(ChangeError::Refused(format!(
                    "{place} is changed already (change {id}): undo that first, as two tunings of \
                     one setting cannot both be undone"
                )));
            }
        }
        let mut done = Vec::new();
        for change in changes {
            match change::make(self, &mut journal, &self.boot_id, change.clone(), Vec::new()) {
                Ok((id, _)) => done.push(AppliedSetting { id: Some(id), change: change.clone() }),
                Err(error) => {
                    for AppliedSetting { id, change } in done.iter().rev() {
                        let back = change.back(change.new.clone(), change.old.clone());
                        let undoes = id.iter().copied().collect();
                        change::make(self, &mut journal, &self.boot_id, back, undoes)?;
                    }
                    // Programs read again what is there again. The first error counts.
                    for last in changes.iter().filter(|change| change.undone_last()) {
                        let _ = last.place.write(&last.old);
                    }
                    return Err(error);
                }
            }
        }
        Ok(done)
    }

    /// Returns the changes that are not undone, oldest first, and whether the journal's last line
    /// is incomplete.
    ///
    /// # Errors
    ///
    /// The journal cannot be read.
    pub fn status(&self) -> Result<(Vec<ChangeStatus<SettingChange>>, bool), JournalError> {
        let content = Journal::look(&self.journal)?;
        Ok((change::status_of(self, &self.boot_id, &content), content.torn))
    }

    /// Restores the values from before all changes that are not undone and that `chosen` wants.
    ///
    /// # Errors
    ///
    /// The user may not, or the journal or a value cannot be written.
    pub fn undo(
        &self,
        chosen: impl Fn(&SettingChange) -> bool,
        force: bool,
    ) -> Result<Vec<UndoneChange<SettingChange>>, ChangeError> {
        let outcomes = change::undo(self, &self.journal, &self.boot_id, chosen, force)?;
        outcomes.iter().for_each(|(change, _)| change.intent.plan.place.clean_up());
        Ok(outcomes)
    }
}
