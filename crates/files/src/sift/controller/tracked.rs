//! The files that the controller knows: those in RAM, and a bounded number of those that have left
//! it.

use super::chances::{Chances, Fate, LEVELS, ROWS, Row, level_of};
use crate::sift::{rings::Rings, shelf::Slot};
use flashsift_events::{
    event::{FileId, Micros},
    page::PAGE_BYTES,
};
use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;

/// The number of a tracked file; the default is that of none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known(pub(super) u32);

impl Default for Known {
    fn default() -> Self {
        Self(u32::MAX)
    }
}

/// The name under which a file that has left RAM is found again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Key {
    /// A file on flash keeps its identity.
    Written(FileId),
    /// A dropped file comes back as a new one with the same path, of which this is a hash.
    Dropped(u64),
}

impl Key {
    pub(super) fn of_path(path: &str) -> Self {
        Self::Dropped(FixedState::with_seed(1).hash_one(path))
    }

    fn hash(self) -> u64 {
        FixedState::default().hash_one(self)
    }
}

/// The place of a tracked file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Residence {
    Free,
    Ram(Slot),
    Left(Key),
}

/// The kind of a [`Residence`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResidenceKind {
    Free,
    Ram,
    Written,
    Dropped,
}

/// A tracked file, in 32 bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct File {
    /// Its identity when it was in RAM.
    pub(super) id: FileId,
    /// The hash of its path, if it was dropped.
    path_hash: u64,
    pub(super) used_us: Micros,
    /// Its slot while it is in RAM, then its size when it left RAM, pages.
    slot_or_pages: u32,
    pub(super) row: Row,
    pub(super) level: u8,
    kind: ResidenceKind,
}

impl File {
    pub(super) fn place(&self) -> Residence {
        match self.kind {
            ResidenceKind::Free => Residence::Free,
            ResidenceKind::Ram => Residence::Ram(Slot(self.slot_or_pages)),
            ResidenceKind::Written => Residence::Left(Key::Written(self.id)),
            ResidenceKind::Dropped => Residence::Left(Key::Dropped(self.path_hash)),
        }
    }

    /// Moves the file to RAM.
    fn enter(&mut self, slot: Slot) {
        (self.kind, self.slot_or_pages) = (ResidenceKind::Ram, slot.0);
    }

    /// Moves the file out of RAM, in which it had this many pages.
    fn leave(&mut self, key: Key, pages: u64) {
        self.slot_or_pages = pages.try_into().unwrap_or(u32::MAX);
        self.kind = match key {
            Key::Written(id) => {
                debug_assert_eq!(id, self.id);
                ResidenceKind::Written
            }
            Key::Dropped(hash) => {
                self.path_hash = hash;
                ResidenceKind::Dropped
            }
        };
    }

    /// Returns its size when it left RAM, pages; 0 while it is there.
    fn left_pages(&self) -> u64 {
        match self.kind {
            ResidenceKind::Free | ResidenceKind::Ram => 0,
            ResidenceKind::Written | ResidenceKind::Dropped => self.slot_or_pages.into(),
        }
    }

    /// Returns its size when it left RAM, bytes; 0 while it is there.
    pub(super) fn bytes(&self) -> u64 {
        self.left_pages() * PAGE_BYTES
    }

    pub(super) fn is_dropped(&self) -> bool {
        self.kind == ResidenceKind::Dropped
    }
}

/// Places that stay free while there are few files.
const IDLE: usize = 64;

/// The list of files that have left RAM, beside those of the files in RAM by row.
const LEFT: usize = ROWS;

pub(super) struct Tracked {
    files: Vec<File>,
    free: Vec<u32>,
    /// Files that have left RAM, by key.
    index: HashTable<u32>,
    /// Files in RAM by row, in the order of their last use; those that have left it, in the order
    /// in which they did.
    rows: Rings,
    /// All files by level, in the order of their last use.
    levels: Rings,
    left_max: usize,
    dropped_bytes: u64,
    /// Bytes of dropped files that should have come back by now.
    due_bytes: f64,
}

impl Tracked {
    /// Returns an empty table that remembers this many files that have left RAM.
    pub(super) fn new(left_max: usize) -> Self {
        Self {
            files: Vec::new(),
            free: Vec::new(),
            index: HashTable::new(),
            rows: Rings::new(ROWS + 1),
            levels: Rings::new(LEVELS),
            left_max,
            dropped_bytes: 0,
            due_bytes: 0.0,
        }
    }

    pub(super) fn get(&self, file: Known) -> Option<&File> {
        self.files.get(file.0 as usize)
    }

    pub(super) fn find(&self, key: Key) -> Option<Known> {
        self.index.find(key.hash(), |item| self.has_key(*item, key)).copied().map(Known)
    }

    fn has_key(&self, item: u32, key: Key) -> bool {
        self.files[item as usize].place() == Residence::Left(key)
    }

    /// Returns the bytes of dropped files that should have come back by now.
    pub(super) fn due_bytes(&self) -> f64 {
        self.due_bytes
    }

    /// Returns the bytes of the dropped files that are remembered.
    pub(super) fn dropped_bytes(&self) -> u64 {
        self.dropped_bytes
    }

    /// Begins to track a file in RAM.
    pub(super) fn hold(&mut self, now: Micros, id: FileId, slot: Slot, row: Row) -> Known {
        let file = File {
            id,
            path_hash: 0,
            used_us: now,
            slot_or_pages: slot.0,
            row,
            level: 0,
            kind: ResidenceKind::Ram,
        };
        let item = self.free.pop().unwrap_or_else(|| {
            self.rows.grow();
            self.levels.grow();
            if self.files.len() == self.files.capacity() {
                // An eighth, instead of as much again: the memory is that of all files.
                self.files.reserve_exact(self.files.len() / 8 + IDLE);
            }
            self.files.push(file);
            (self.files.len() - 1) as u32
        });
        self.files[item as usize] = file;
        self.rows.push_newest(row.index(), item);
        self.levels.push_newest(0, item);
        Known(item)
    }

    /// Takes the file out of all lists and sums.
    fn lift(&mut self, item: u32) -> File {
        let file = self.files[item as usize];
        self.rows.remove(item);
        self.levels.remove(item);
        if let Residence::Left(key) = file.place() {
            let found = self.index.find_entry(key.hash(), |other| *other == item);
            if let Ok(found) = found {
                found.remove();
            }
        }
        if file.is_dropped() {
            self.dropped_bytes -= file.bytes();
        }
        file
    }

    fn put(&mut self, item: u32, file: File) {
        self.files[item as usize] = file;
        let list = match file.place() {
            Residence::Left(key) => {
                let files = &self.files;
                let hash_of = |item: &u32| match files[*item as usize].place() {
                    Residence::Left(key) => key.hash(),
                    place => unreachable!("{place:?} is not in the index"),
                };
                self.index.insert_unique(key.hash(), item, hash_of);
                LEFT
            }
            _ => file.row.index(),
        };
        self.rows.push_newest(list, item);
        self.levels.push_newest(file.level.into(), item);
        if file.is_dropped() {
            self.dropped_bytes += file.bytes();
        }
    }

    /// Forgets a file.
    pub(super) fn forget(&mut self, file: Known) -> Option<File> {
        self.get(file).filter(|file| file.place() != Residence::Free)?;
        let gone = self.lift(file.0);
        self.files[file.0 as usize].kind = ResidenceKind::Free;
        self.free.push(file.0);
        Some(gone)
    }

    /// The file has left RAM, and is now found by this key. Forgets another file with the same key,
    /// and the file that left first if there are too many.
    pub(super) fn leave(&mut self, file: Known, key: Key, pages: u64) {
        if let Some(other) = self.find(key).filter(|other| *other != file) {
            self.forget(other);
        }
        let mut left = self.lift(file.0);
        left.leave(key, pages);
        self.put(file.0, left);
        while self.index.len() > self.left_max {
            let Some(first) = self.rows.oldest(LEFT) else { return };
            self.forget(Known(first));
        }
    }

    /// The file is in RAM again, at the same level as before.
    pub(super) fn stay(&mut self, file: Known, slot: Slot) {
        let mut stays = self.lift(file.0);
        stays.enter(slot);
        self.put(file.0, stays);
    }

    /// The file was used or changed. Returns whether that was a use of its own, not part of the one
    /// before.
    pub(super) fn used(&mut self, now: Micros, file: Known, chances: &mut Chances) -> bool {
        let Some(before) = self.get(file) else { return false };
        let idle_us = now.saturating_sub(before.used_us);
        let is_own = level_of(idle_us) > 0;
        if is_own {
            self.raise(file.0, level_of(idle_us), chances);
        }
        let mut used = self.lift(file.0);
        used.used_us = now;
        if is_own {
            chances.ends(used.row, used.level, Fate::Used);
            (used.row, used.level) = (used.row.used(), 0);
            chances.begins(used.row);
        }
        self.put(file.0, used);
        is_own
    }

    /// A file that has left RAM is created again: it is forgotten, and counts as used. Returns it
    /// with the row that it has then.
    pub(super) fn returned(
        &mut self,
        now: Micros,
        file: Known,
        chances: &mut Chances,
    ) -> Option<File> {
        let idle_us = now.saturating_sub(self.get(file)?.used_us);
        self.raise(file.0, level_of(idle_us), chances);
        let mut gone = self.forget(file)?;
        chances.ends(gone.row, gone.level, Fate::Used);
        self.due_bytes += f64::from(chances.get(gone.row, gone.level).now) * gone.bytes() as f64;
        gone.row = gone.row.used();
        Some(gone)
    }

    /// The file no longer exists.
    pub(super) fn died(&mut self, now: Micros, file: Known, chances: &mut Chances) {
        let Some(dead) = self.get(file).copied() else { return };
        self.raise(file.0, level_of(now.saturating_sub(dead.used_us)), chances);
        if let Some(dead) = self.forget(file) {
            chances.ends(dead.row, dead.level, Fate::Died);
        }
    }

    /// A file that has not been idle yet belongs to another row.
    pub(super) fn moved(&mut self, file: Known, row: Row, chances: &mut Chances) {
        let Some(known) = self.get(file).copied() else { return };
        if row != known.row && known.level == 0 {
            chances.withdraw(known.row);
            let mut moved = self.lift(file.0);
            moved.row = row;
            self.put(file.0, moved);
            chances.begins(row);
        }
    }

    /// Lets a file pass the levels below this one.
    fn raise(&mut self, item: u32, level: u8, chances: &mut Chances) {
        let mut file = self.files[item as usize];
        if file.level >= level {
            return;
        }
        for passed in file.level..level {
            chances.ends(file.row, passed, Fate::Passed);
            if file.is_dropped() {
                let now = chances.get(file.row, passed).now;
                self.due_bytes += f64::from(now) * file.bytes() as f64;
            }
        }
        file.level = level;
        self.files[item as usize] = file;
        self.levels.remove(item);
        self.levels.push_newest(level.into(), item);
    }

    /// Lets every file pass the levels that its idle time has passed, and forgets dropped files
    /// that have been idle for longer than `settle_us`.
    pub(super) fn advance(&mut self, now: Micros, settle_us: Micros, chances: &mut Chances) {
        for level in (0..LEVELS as u8).rev() {
            while let Some(item) = self.levels.oldest(level.into()) {
                let file = self.files[item as usize];
                let idle_us = now.saturating_sub(file.used_us);
                if file.is_dropped() && idle_us > settle_us {
                    self.raise(item, level_of(idle_us), chances);
                    self.forget(Known(item));
                } else if level_of(idle_us) > level {
                    self.raise(item, level_of(idle_us), chances);
                } else {
                    break;
                }
            }
        }
    }

    /// Returns the files of a row that are in RAM, the last used one first.
    pub(super) fn newest_first(&self, row: Row) -> impl Iterator<Item = (Slot, &File)> + '_ {
        self.rows.newest_first(row.index()).filter_map(|item| {
            let file = &self.files[item as usize];
            match file.place() {
                Residence::Ram(slot) => Some((slot, file)),
                _ => None,
            }
        })
    }

    /// Returns the memory that is allocated for files, bytes.
    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        self.files.capacity() * size_of::<File>()
            + self.free.capacity() * size_of::<u32>()
            + self.index.allocation_size()
            + self.rows.heap_bytes()
            + self.levels.heap_bytes()
    }

    pub(super) fn check(&self) {
        let (mut listed, mut dropped) = (0, 0);
        for list in Row::all().map(Row::index).chain([LEFT]) {
            for item in self.rows.newest_first(list) {
                let file = &self.files[item as usize];
                let expected = match file.place() {
                    Residence::Ram(_) => file.row.index(),
                    Residence::Left(key) => {
                        assert_eq!(self.find(key), Some(Known(item)), "{key:?}");
                        LEFT
                    }
                    Residence::Free => panic!("file {item} is in a list"),
                };
                assert_eq!(list, expected, "{file:?}");
                dropped += if file.is_dropped() { file.bytes() } else { 0 };
                listed += 1;
            }
        }
        let by_level: usize = (0..LEVELS)
            .map(|level| {
                let files = self.levels.newest_first(level);
                files
                    .inspect(|item| {
                        assert_eq!(usize::from(self.files[*item as usize].level), level);
                    })
                    .count()
            })
            .sum();
        assert_eq!((listed, by_level), (self.files.len() - self.free.len(), listed));
        assert_eq!(self.dropped_bytes, dropped);
        assert!(self.index.len() <= self.left_max);
    }
}
