//! Makes changes of values of this machine with a journal around them, says what is left of them,
//! and undoes them.

use crate::journal::{
    Intent, Journal, JournalContent, JournalEntry, JournalError, OpenChange, Plan, now_us,
};
use serde::Serialize;
use std::{io, path::Path};

/// Reasons for which a value is not changed.
#[derive(Debug, thiserror::Error)]
pub enum ChangeError {
    /// The user may not.
    #[error("changing {0} needs root: run it with sudo")]
    NotAllowed(String),
    /// sysfs or /proc is mounted read-only, as in many containers.
    #[error("{0} cannot be changed: its file system is mounted read-only here (a container?)")]
    ReadOnly(String),
    /// A file could not be used.
    #[error("{path}: {error}")]
    At {
        /// Path of the file.
        path: String,
        /// The error of the system.
        error: io::Error,
    },
    /// The machine accepted the change and does something else. The old value is there again.
    #[error("{0}")]
    NotTaken(String),
    /// Nothing was changed, for a reason that the sentence gives.
    #[error("{0}")]
    Refused(String),
    /// The journal could not be used. Without a journal nothing is changed.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// The present effect of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChangeState {
    /// The machine has the value.
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
    /// The machine has restarted, so the value is forgotten.
    Restarted,
    /// The place of the value is gone, or is another one's now.
    Gone,
}

/// A change with its present state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeStatus<P: Plan> {
    /// The change.
    pub change: OpenChange<P>,
    /// Its state.
    pub state: ChangeState,
    /// The present value; `None` where there is none.
    pub present: Option<P::Value>,
}

/// Outcome of an undo of the changes of one value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome<V> {
    /// The old value is back.
    Restored {
        /// Value before the undo.
        from: V,
        /// Value that the machine kept.
        to: V,
    },
    /// The old value was there already.
    WasThere(V),
    /// The machine has restarted, so there was nothing to undo.
    Restarted,
    /// The place of the value is gone, so there was nothing to undo.
    Gone,
    /// Another program has changed the value; nothing was written.
    Refused {
        /// The present value.
        present: V,
        /// The value that flashsift wrote.
        ours: V,
        /// The value to which an undo would return.
        old: V,
    },
}

/// Access to the values of plans.
pub trait PlanValues<P: Plan> {
    /// Whether a value that is not exactly the wanted one is taken back.
    const EXACT: bool;

    /// Returns the present value; `None` if the plan's place is gone, or another one's.
    fn present(&self, plan: &P) -> Option<P::Value>;
    /// Fails if the user may not write the value.
    ///
    /// # Errors
    ///
    /// See [`ChangeError`].
    fn may_write(&self, plan: &P) -> Result<(), ChangeError>;
    /// Writes the plan's new value.
    ///
    /// # Errors
    ///
    /// See [`ChangeError`]. The old value is there then.
    fn write(&self, plan: &P) -> Result<(), ChangeError>;
}

/// Makes a change: first in the journal, then the value, then its mark. Returns the number and the
/// value that the machine kept.
///
/// # Errors
///
/// The value or the journal cannot be written, or the value is not the wanted one afterwards.
pub(crate) fn make<P: Plan, V: PlanValues<P>>(
    values: &V,
    journal: &mut Journal<P>,
    boot_id: &str,
    plan: P,
    undoes: Vec<u64>,
) -> Result<(u64, P::Value), ChangeError> {
    let id = journal.next_id();
    let (at_us, boot_id) = (now_us(), boot_id.to_owned());
    journal.append(JournalEntry::Intent(Intent {
        id,
        at_us,
        boot_id,
        plan: plan.clone(),
        undoes,
    }))?;
    let kept = values.write(&plan).and_then(|()| {
        let kept = values.present(&plan);
        match kept {
            Some(kept) if !V::EXACT || kept == plan.wanted() => Ok(kept),
            other => {
                // If that fails, too, the journal still leads back.
                let _ = values.write(&plan.back(plan.wanted(), plan.old()));
                Err(ChangeError::NotTaken(format!(
                    "{}: it was set to {:?} and is {} now: taken back",
                    plan.place(),
                    plan.wanted(),
                    other.map_or("none".to_owned(), |value| format!("{value:?}"))
                )))
            }
        }
    });
    match kept {
        Ok(kept) => {
            journal.append(JournalEntry::Done { id, kept: kept.clone().into() })?;
            Ok((id, kept))
        }
        Err(error) => {
            let is_back = values.present(&plan).is_none_or(|present| present == plan.old());
            if is_back || !V::EXACT {
                journal.append(JournalEntry::Failed { id, why: error.to_string() })?;
            }
            Err(error)
        }
    }
}

/// Returns the open changes of a journal with their states, oldest first.
pub(crate) fn status_of<P: Plan>(
    values: &impl PlanValues<P>,
    boot_id: &str,
    content: &JournalContent<P>,
) -> Vec<ChangeStatus<P>> {
    let newest = |change: &OpenChange<P>| {
        let place = change.intent.plan.place();
        let same = content.open.iter().filter(|other| other.intent.plan.place() == place);
        same.map(|other| other.intent.id).max() == Some(change.intent.id)
    };
    let states = content.open.iter().map(|change| {
        let plan = &change.intent.plan;
        let present = values.present(plan);
        let state = match (&present, &change.kept) {
            _ if is_past(change, boot_id) => ChangeState::Restarted,
            (None, _) => ChangeState::Gone,
            (Some(now), None) if *now == plan.wanted() => ChangeState::UnfinishedWritten,
            (Some(now), None) if *now == plan.old() => ChangeState::UnfinishedNotWritten,
            (Some(_), None) => ChangeState::UnfinishedReplaced,
            (Some(_), Some(_)) if !newest(change) => ChangeState::Superseded,
            (Some(now), Some(kept)) if now == kept => ChangeState::InForce,
            (Some(_), Some(_)) => ChangeState::Replaced,
        };
        ChangeStatus { change: change.clone(), state, present }
    });
    states.collect()
}

/// Whether the machine has forgotten a change, as it has restarted since.
pub(crate) fn is_past<P: Plan>(change: &OpenChange<P>, boot_id: &str) -> bool {
    change.intent.boot_id != boot_id && !change.intent.plan.outlives_restart()
}

/// An undo of the changes of one value: the last of them, and the outcome.
pub type UndoneChange<P> = (OpenChange<P>, Outcome<<P as Plan>::Value>);

/// Restores the values from before all changes that are not undone, of the chosen places. A value
/// that another program has changed since stays, unless `force` is given. Returns the outcome for
/// each place that has changes.
///
/// # Errors
///
/// The user may not, or the journal or a value cannot be written.
pub(crate) fn undo<P: Plan>(
    values: &impl PlanValues<P>,
    path: &Path,
    boot_id: &str,
    chosen: impl Fn(&P) -> bool,
    force: bool,
) -> Result<Vec<UndoneChange<P>>, ChangeError> {
    // A journal that does not exist is not created.
    if Journal::<P>::look(path)?.open.is_empty() {
        return Ok(Vec::new());
    }
    let mut journal = open(path)?;
    let content = journal.content().clone();
    let mut outcomes = Vec::new();
    let mut groups: Vec<Vec<&OpenChange<P>>> = content.by_place().into_values().collect();
    groups.sort_by_key(|changes| {
        let last = changes.last().map(|change| &change.intent);
        last.map(|intent| match intent.plan.undone_last() {
            false => (false, u64::MAX - intent.id),
            // In the order in which they were made: a unit is read before it is started again.
            true => (true, intent.id),
        })
    });
    for changes in groups {
        let last = changes.last().copied().cloned().expect("each group has a change");
        if chosen(&last.intent.plan) {
            let outcome = undo_place(values, &mut journal, boot_id, &changes, force)?;
            outcomes.push((last, outcome));
        }
    }
    Ok(outcomes)
}

/// Opens the journal for changes, and names the user's rights where they lack.
pub(crate) fn open<P: Plan>(path: &Path) -> Result<Journal<P>, ChangeError> {
    Journal::open(path).map_err(|error| match error {
        JournalError::At { path, error } if error.kind() == io::ErrorKind::PermissionDenied => {
            ChangeError::NotAllowed(path)
        }
        error => error.into(),
    })
}

fn undo_place<P: Plan>(
    values: &impl PlanValues<P>,
    journal: &mut Journal<P>,
    boot_id: &str,
    changes: &[&OpenChange<P>],
    force: bool,
) -> Result<Outcome<P::Value>, ChangeError> {
    let mut close = |change: &OpenChange<P>, why: &str| {
        journal.append(JournalEntry::Closed { id: change.intent.id, why: why.to_owned() })
    };
    // Changes from before a restart or to a device that is gone left nothing to undo.
    let mut left = Vec::new();
    let mut outcome = Outcome::Gone;
    for change in changes {
        if is_past(change, boot_id) {
            close(change, "the machine has restarted")?;
            outcome = Outcome::Restarted;
        } else if values.present(&change.intent.plan).is_none() {
            close(change, "its place is gone")?;
            outcome = Outcome::Gone;
        } else {
            left.push(*change);
        }
    }
    let (Some(first), Some(last)) = (left.first(), left.last()) else { return Ok(outcome) };
    let plan = &last.intent.plan;
    let old = first.intent.plan.old();
    let Some(present) = values.present(plan) else { return Ok(Outcome::Gone) };
    if present == old {
        for change in &left {
            close(change, "the value from before was there already")?;
        }
        return Ok(Outcome::WasThere(old));
    }
    // Of an unfinished change it is not known whether the old or the new value is there.
    let ours = |change: &OpenChange<P>| match &change.kept {
        Some(kept) => present == *kept,
        None => [change.intent.plan.old(), change.intent.plan.wanted()].contains(&present),
    };
    if !ours(last) && !force {
        let ours = last.kept.clone().unwrap_or(plan.wanted());
        return Ok(Outcome::Refused { present, ours, old });
    }
    let back = plan.back(present.clone(), old);
    values.may_write(&back)?;
    let undoes = left.iter().map(|change| change.intent.id).collect();
    match make(values, journal, boot_id, back.clone(), undoes) {
        Ok((_, to)) => Ok(Outcome::Restored { from: present, to }),
        // It is there, and something else needs it.
        Err(ChangeError::Refused(_)) if values.present(&back).as_ref() == Some(&present) => {
            Ok(Outcome::Refused { ours: present.clone(), present, old: back.wanted() })
        }
        Err(error) => Err(error),
    }
}
