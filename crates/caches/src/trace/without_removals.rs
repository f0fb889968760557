//! A file trace as `strace` shows it to a reader who looks at reads, writes and syncs alone: no
//! block is ever removed, and a file that is created under a name that was there before has the
//! blocks of that name.
//!
//! Papers that recorded reads and writes (Lim & Bahn, IEEE Access 2021, section II) had such
//! traces. A page keeps its identity, and its counts, when its file is deleted and created again.

use flashsift_events::event::{Action, Event, FileId};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Takes the removals out of a stream of events.
#[derive(Default)]
pub struct WithoutRemovals {
    /// The file whose blocks a name has: the first that had the name.
    by_name: HashMap<Box<str>, FileId, FixedState>,
    /// The files that have the blocks of an earlier one.
    same_as: HashMap<FileId, FileId, FixedState>,
}

impl WithoutRemovals {
    /// Returns the event as it concerns the blocks, or `None` if it removes some or creates again
    /// what is there.
    pub fn event<'a>(&mut self, event: &Event<'a>) -> Option<Event<'a>> {
        match &event.action {
            Action::Create(create) if self.named(create.file, &create.name) => return None,
            Action::Bind { file, name } => {
                self.named(*file, name);
            }
            Action::Truncate { .. }
            | Action::Punch { .. }
            | Action::Unbind { .. }
            | Action::Gone { .. } => return None,
            _ => {}
        }
        let mut event = event.clone();
        match &mut event.action {
            Action::Open { file, created, .. } => *created &= !self.move_to_first(file),
            Action::Read { file, .. }
            | Action::Write { file, .. }
            | Action::Direct { file, .. }
            | Action::Sync { file, .. }
            | Action::Folio { file, .. }
            | Action::Filled { file, .. }
            | Action::Size { file, .. }
            | Action::Close { file, .. }
            | Action::Bind { file, .. }
            | Action::Place { file, .. } => {
                self.move_to_first(file);
            }
            _ => {}
        }
        Some(event)
    }

    /// Puts the file whose blocks this one has in its place. Returns whether it is another.
    fn move_to_first(&self, file: &mut FileId) -> bool {
        let first = self.same_as.get(file);
        *file = *first.unwrap_or(file);
        first.is_some()
    }

    /// Records a name of a file. Returns whether an earlier file had it.
    fn named(&mut self, file: FileId, name: &str) -> bool {
        if name.is_empty() {
            return false;
        }
        let first = *self.by_name.entry(name.into()).or_insert(file);
        if first != file {
            self.same_as.insert(file, first);
        }
        first != file
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_events::event::{Create, MaybeOwned};

    fn at(action: Action<'static>) -> Event<'static> {
        Event { at_us: 0, pid: 0, tid: 0, action }
    }

    fn create(file: u64, name: &str) -> Event<'static> {
        let name = MaybeOwned::owned_str(name);
        let create = Create { file: FileId(file), name, owner: None, mode: None, sync: false };
        at(Action::Create(MaybeOwned::owned(create)))
    }

    fn write(file: u64) -> Event<'static> {
        let (open, offset, len) = (None, 0, 4096);
        at(Action::Write { file: FileId(file), open, offset, len, sync: false })
    }

    /// A journal that is created, deleted and created again is one file; a truncation and a file
    /// without a name change nothing.
    #[test]
    fn a_name_that_is_created_again_has_its_blocks() {
        let mut without = WithoutRemovals::default();
        let history = [
            create(0, "/db-journal"),
            write(0),
            at(Action::Truncate { file: FileId(0), size: 0 }),
            at(Action::Gone { file: FileId(0) }),
            create(1, "/db-journal"),
            at(Action::Open { file: FileId(1), open: None, created: true }),
            write(1),
            create(2, ""),
            create(3, ""),
            write(3),
        ];
        let left: Vec<_> = history.iter().filter_map(|event| without.event(event)).collect();
        let reopened = at(Action::Open { file: FileId(0), open: None, created: false });
        let expected = [
            create(0, "/db-journal"),
            write(0),
            reopened,
            write(0),
            create(2, ""),
            create(3, ""),
            write(3),
        ];
        assert_eq!(left, expected);
    }
}
