//! Files that get a droppable name after they were created: many programs write a file under a
//! temporary name, and rename it when it is complete.
//!
//! Such a file waits in the RAM of [`Keep`]. When it has a droppable name, and no process has it
//! open, it goes to the sifter as if it had been created and written at that moment. A file that
//! has a second name, or on which `keep` has decided, stays with `keep`.

use super::Keep;
use crate::sift::Droppable;
use flashsift_events::{
    event::{Action, Create, Event, FileId, MaybeOwned},
    page::PAGE_BYTES,
    structure::Extents,
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// The files that have a droppable name, and that a process has open.
#[derive(Debug, Default)]
pub(crate) struct Latecomers {
    open: HashMap<FileId, Box<str>, FixedState>,
}

/// A file that goes to the sifter now.
pub(crate) struct Latecomer {
    pub(crate) file: FileId,
    pub(crate) name: Box<str>,
    pages: Extents,
}

impl Latecomer {
    /// Returns the creation of the file: owner and mode are not known.
    pub(crate) fn create(&self) -> Create<'_> {
        let name = (&*self.name).into();
        Create { file: self.file, name, owner: None, mode: None, sync: false }
    }

    /// Returns the end of the last page, bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.pages.end() * PAGE_BYTES
    }

    /// Returns the events by which a sifter learns of the file, at the time and with the process of
    /// this one. Writes are whole pages.
    pub(crate) fn events<'a>(
        &'a self,
        event: &Event<'_>,
        create: &'a Create<'a>,
    ) -> impl Iterator<Item = Event<'a>> {
        let Event { at_us, pid, tid, .. } = *event;
        let file = self.file;
        let writes = self.pages.iter().map(move |pages| Action::Write {
            file,
            open: None,
            offset: pages.start * PAGE_BYTES,
            len: (pages.end - pages.start) * PAGE_BYTES,
            sync: false,
        });
        std::iter::once(Action::Create(MaybeOwned::Borrowed(create)))
            .chain(writes)
            .map(move |action| Event { at_us, pid, tid, action })
    }
}

impl Latecomers {
    /// Returns the file that goes to the sifter after this event, which `keep` has handled.
    pub(crate) fn after(
        &mut self,
        event: &Event<'_>,
        keep: &Keep,
        droppable: &Droppable,
    ) -> Option<Latecomer> {
        match &event.action {
            Action::Rename { file, names } => {
                self.open.remove(file);
                if !keep.has(*file) || !droppable.has(&names.to) {
                    return None;
                }
                let name = (*names.to).into();
                match keep.idle_pages(*file) {
                    Some(pages) => Some(Latecomer { file: *file, name, pages }),
                    None => {
                        self.open.insert(*file, name);
                        None
                    }
                }
            }
            Action::Close { file, .. } if self.open.contains_key(file) => {
                let pages = keep.idle_pages(*file);
                if pages.is_none() && keep.has(*file) {
                    return None;
                }
                let name = self.open.remove(file)?;
                Some(Latecomer { file: *file, name, pages: pages? })
            }
            Action::Unbind { file, .. } | Action::Gone { file } => {
                self.open.remove(file);
                None
            }
            Action::RenameDirectory { names } => {
                for name in self.open.values_mut() {
                    if let Some(moved) = names.moved(name) {
                        *name = moved.into();
                    }
                }
                self.open.retain(|_, name| droppable.has(name));
                None
            }
            _ => None,
        }
    }

    /// Forgets a file that has left the RAM of `keep`.
    pub(crate) fn left(&mut self, file: FileId) {
        self.open.remove(&file);
    }

    /// Forgets all files.
    pub(crate) fn clear(&mut self) {
        self.open.clear();
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Asserts that each file is in the RAM of `keep`.
    pub(crate) fn check(&self, keep: &Keep) {
        assert!(self.open.keys().all(|file| keep.has(*file)), "it waits in RAM");
    }
}
