//! When each file is used for the last time: what a sifter can only know afterwards.

use flashsift_events::event::{Action, Event, FileId, Micros};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::sync::Arc;

/// The time of each file's last read or change.
#[derive(Clone, Debug, Default)]
pub struct LastUses(Arc<HashMap<FileId, Micros, FixedState>>);

impl LastUses {
    /// Returns the last uses in a whole trace.
    pub fn of_all<'e, 'a: 'e>(events: impl IntoIterator<Item = &'e Event<'a>>) -> Self {
        let mut last = HashMap::default();
        for event in events {
            if let Some(file) = used(&event.action) {
                last.insert(file, event.at_us);
            }
        }
        Self(Arc::new(last))
    }

    /// Returns the time of the file's last use; 0 if it has none.
    pub fn get(&self, file: FileId) -> Micros {
        self.0.get(&file).copied().unwrap_or(0)
    }
}

/// The file whose content this action reads or changes.
fn used(action: &Action<'_>) -> Option<FileId> {
    match action {
        Action::Read { file, .. }
        | Action::Write { file, .. }
        | Action::Direct { file, .. }
        | Action::Truncate { file, .. }
        | Action::Punch { file, .. } => Some(*file),
        _ => None,
    }
}
