//! The droppable files that a sifter holds in RAM, with their pages and names.

pub(super) use crate::sift::slots::Slot;
use crate::sift::{
    FILE_COST_BYTES,
    slots::{FileList, FileRecord, Slots},
};
use flashsift_events::{
    event::{Action, FileId, Micros, Renamed},
    ledger::{LinkChange, Links},
    page::PAGE_BYTES,
};
use std::ops::{Deref, DerefMut};

/// The list that a file is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shelved {
    /// Closed and with a name: it can be judged.
    Idle,
    /// Open, or without a name.
    Busy,
    /// A decision moves it out of RAM.
    Leaving,
}

impl FileList for Shelved {
    const ALL: &'static [Shelved] = &[Shelved::Idle, Shelved::Busy, Shelved::Leaving];

    fn number(self) -> usize {
        self as usize
    }
}

/// A file in RAM, and what a sifter keeps of it.
#[derive(Clone, Debug)]
pub(super) struct Held<S> {
    pub(super) id: FileId,
    pub(super) born_us: Micros,
    /// Time of the last read or change.
    pub(super) used_us: Micros,
    /// Pages up to the end of its data; of more than 16 TiB, those of the first 16 TiB.
    pages: u32,
    links: Links,
    /// Flash refused it.
    pub(super) refused: bool,
    /// The last name that it got.
    pub(super) name: Box<str>,
    pub(super) state: S,
    list: Shelved,
}

impl<S> Held<S> {
    /// RAM that the file takes, bytes.
    pub(super) fn cost_bytes(&self) -> u64 {
        FILE_COST_BYTES + self.bytes()
    }

    /// Returns the pages up to the end of its data.
    pub(super) fn pages(&self) -> u64 {
        self.pages.into()
    }

    /// Returns the bytes of these pages.
    pub(super) fn bytes(&self) -> u64 {
        self.pages() * PAGE_BYTES
    }

    pub(super) fn list(&self) -> Shelved {
        self.list
    }

    fn list_of(&self) -> Shelved {
        match self.links.is_named() && !self.links.is_open() {
            true => Shelved::Idle,
            false => Shelved::Busy,
        }
    }

    /// Returns the number of names and opens.
    pub(super) fn links(&self) -> Links {
        self.links
    }
}

impl<S: Default> Default for Held<S> {
    fn default() -> Self {
        Self {
            id: FileId(u64::MAX),
            born_us: 0,
            used_us: 0,
            pages: 0,
            links: Links::default(),
            refused: false,
            name: Box::default(),
            state: S::default(),
            list: Shelved::Idle,
        }
    }
}

impl<S: Default> FileRecord for Held<S> {
    fn id(&self) -> FileId {
        self.id
    }
}

/// The effect of an event on a file in RAM, beside its use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeldChange {
    /// Nothing that a sifter acts on.
    Small,
    /// Its data ends behind more pages than before.
    Grew,
    /// It got a name.
    Named,
    /// It has neither a name nor an open any more.
    Ended,
}

/// Returns the pages up to the end of a file's data after an event, from those before it.
pub(super) fn pages_after(action: &Action<'_>, pages: u64) -> u64 {
    match *action {
        Action::Write { offset, len, .. } | Action::Direct { offset, len, write: true, .. }
            if len > 0 =>
        {
            pages.max(offset.saturating_add(len).div_ceil(PAGE_BYTES))
        }
        Action::Truncate { size, .. } => pages.min(size.div_ceil(PAGE_BYTES)),
        _ => pages,
    }
}

/// The files, each in one list.
#[derive(Clone, Debug)]
pub(super) struct Shelf<S> {
    slots: Slots<Held<S>, Shelved>,
    /// The events tell when a file is open. Otherwise no file counts as open.
    knows_opens: bool,
    /// Cost of the files that are not leaving, bytes.
    held_bytes: u64,
}

impl<S> Deref for Shelf<S> {
    type Target = Slots<Held<S>, Shelved>;

    fn deref(&self) -> &Self::Target {
        &self.slots
    }
}

impl<S> DerefMut for Shelf<S> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.slots
    }
}

impl<S: Default> Shelf<S> {
    pub(super) fn new(knows_opens: bool) -> Self {
        Self { slots: Slots::new(), knows_opens, held_bytes: 0 }
    }

    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    pub(super) fn insert(&mut self, id: FileId, now: Micros, name: &str) -> Slot {
        let (links, name) = (Links::new(!name.is_empty()), name.into());
        let file = Held { id, born_us: now, used_us: now, links, name, ..Held::default() };
        self.held_bytes += file.cost_bytes();
        let list = file.list_of();
        self.slots.insert(list, Held { list, ..file })
    }

    pub(super) fn remove(&mut self, slot: Slot) {
        if self[slot].list != Shelved::Leaving {
            self.held_bytes -= self[slot].cost_bytes();
        }
        self.slots.remove(slot);
    }

    /// Takes an event of the file: its pages, names and opens.
    pub(super) fn take(&mut self, slot: Slot, action: &Action<'_>) -> HeldChange {
        let before = self[slot].pages();
        let pages = pages_after(action, before);
        if pages != before {
            self.resize(slot, pages);
        }
        let effect = match action {
            Action::Open { .. } | Action::Close { .. } if !self.knows_opens => {
                return HeldChange::Small;
            }
            _ => match self[slot].links.take(action) {
                LinkChange::None if pages > before => return HeldChange::Grew,
                LinkChange::None => return HeldChange::Small,
                LinkChange::Lost if self[slot].links.is_dead() => return HeldChange::Ended,
                LinkChange::Opened | LinkChange::Lost => HeldChange::Small,
                LinkChange::Named(name) => {
                    self[slot].name = name.into();
                    HeldChange::Named
                }
            },
        };
        self.sort_in(slot);
        effect
    }

    /// Handles the rename of a directory. Returns the files that have another name now.
    pub(super) fn moved(&mut self, names: &Renamed<'_>) -> Vec<Slot> {
        let mut files: Vec<Slot> = self.all().collect();
        files.retain(|slot| {
            let moved = names.moved(&self[*slot].name);
            moved.map(|name| self[*slot].name = name.into()).is_some()
        });
        files
    }

    /// Returns all files that have a name.
    pub(super) fn all_named(&self) -> Vec<Slot> {
        self.all().filter(|slot| self[*slot].links.is_named()).collect()
    }

    /// Changes the number of pages.
    fn resize(&mut self, slot: Slot, pages: u64) {
        let before = self[slot].cost_bytes();
        self[slot].pages = pages.try_into().unwrap_or(u32::MAX);
        if self[slot].list != Shelved::Leaving {
            self.held_bytes = self.held_bytes - before + self[slot].cost_bytes();
        }
    }

    /// Makes the file the newest of its list.
    pub(super) fn renew(&mut self, slot: Slot) {
        self.enter(slot, self[slot].list);
    }

    fn enter(&mut self, slot: Slot, list: Shelved) {
        self[slot].list = list;
        self.slots.move_newest(list, slot);
    }

    /// Moves the file to the list that its names and opens call for, unless it is leaving.
    fn sort_in(&mut self, slot: Slot) {
        let list = self[slot].list_of();
        if self[slot].list != Shelved::Leaving && list != self[slot].list {
            self.enter(slot, list);
        }
    }

    pub(super) fn leave(&mut self, slot: Slot) {
        if self[slot].list != Shelved::Leaving {
            self.held_bytes -= self[slot].cost_bytes();
            self.enter(slot, Shelved::Leaving);
        }
    }

    /// Takes a file back that could not leave.
    pub(super) fn stay(&mut self, slot: Slot) {
        if self[slot].list == Shelved::Leaving {
            self.held_bytes += self[slot].cost_bytes();
            self.enter(slot, self[slot].list_of());
        }
    }

    /// Returns the idle files, oldest first, without those in use at this very time: a write does
    /// not make space for itself.
    pub(super) fn idle(&self, now: Micros) -> impl Iterator<Item = Slot> + '_ {
        self.oldest_first(Shelved::Idle).filter(move |slot| self.is_idle(*slot, now))
    }

    /// Returns whether the file is among those.
    pub(super) fn is_idle(&self, slot: Slot, now: Micros) -> bool {
        self[slot].list == Shelved::Idle && self[slot].used_us != now
    }

    pub(super) fn check(&self) {
        let mut held_bytes = 0;
        for (list, slot) in self.slots.check() {
            let file = &self[slot];
            assert_eq!(file.list, list);
            if list != Shelved::Leaving {
                assert_eq!(file.list_of(), list, "{:?}", file.id);
                held_bytes += file.cost_bytes();
            }
        }
        assert_eq!(self.held_bytes, held_bytes);
    }
}
