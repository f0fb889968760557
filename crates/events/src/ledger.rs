//! The ledger of files: the rules by which events give files names, opens and an end.
//!
//! - [`Links`] counts the names and opens of one file, in four bytes. Sifters have it in their own
//!   record of each file in RAM: an event of a live mount allocates nothing here.
//! - [`FileLedger`] numbers the files of a trace, and knows the last name of each, across renames
//!   of directories. It forgets no file.

use crate::{
    event::{Action, Event, FileId, Micros},
    names::in_cache,
};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashTable};
use std::hash::BuildHasher;

mod links;
#[cfg(test)]
mod tests;

pub use links::{LinkChange, Links};

const HASHER: FixedState = FixedState::with_seed(0);

/// A file, or a block device, with what a user of the ledger keeps of it.
#[derive(Clone, Debug)]
pub struct LedgerFile<S> {
    /// The file.
    pub id: FileId,
    /// Number of the last name that it got, in [`FileLedger::names`].
    pub name: Option<u32>,
    /// Time of its creation, if the trace creates it, µs.
    pub created_us: Option<Micros>,
    /// Time of its end, if it ends in the trace, µs.
    pub gone_us: Option<Micros>,
    /// The user's own data.
    pub state: S,
}

/// Files, numbered in order of appearance, and all names.
#[derive(Debug, Default)]
pub struct FileLedger<S = ()> {
    files: Vec<LedgerFile<S>>,
    index: HashMap<FileId, u32, FixedState>,
    names: LedgerNames,
}

impl<S: Default> FileLedger<S> {
    /// Takes an event. Returns the number of its file; `None` if it concerns no single file.
    #[inline]
    pub fn take(&mut self, event: &Event<'_>) -> Option<u32> {
        let number = event.action.file().map(|file| self.number(file));
        if let Some(number) = number {
            let file = &mut self.files[number as usize];
            match &event.action {
                Action::Create(_) | Action::Open { created: true, .. } => {
                    file.created_us = file.created_us.or(Some(event.at_us));
                }
                Action::Gone { .. } => file.gone_us = Some(event.at_us),
                _ => {}
            }
        }
        self.take_names(&event.action);
        number
    }

    /// Takes the names that an event gives, and no more: a file gets its number with its first
    /// name.
    #[inline]
    pub fn take_names(&mut self, action: &Action<'_>) {
        if let Some((file, name)) = action.new_name() {
            let number = self.number(file);
            self.files[number as usize].name = Some(self.names.number(name));
        } else if let Action::RenameDirectory { names } = action {
            // Directories are renamed seldom, so all files are looked at.
            for file in &mut self.files {
                let moved = file.name.and_then(|name| names.moved(self.names.text(name)));
                if let Some(moved) = moved {
                    file.name = Some(self.names.number(&moved));
                }
            }
        }
    }

    fn number(&mut self, id: FileId) -> u32 {
        *self.index.entry(id).or_insert_with(|| {
            let (name, created_us, gone_us, state) = (None, None, None, S::default());
            self.files.push(LedgerFile { id, name, created_us, gone_us, state });
            (self.files.len() - 1) as u32
        })
    }

    /// Returns the user's own data of the file with this number.
    ///
    /// # Panics
    /// If there is none.
    pub fn state(&mut self, file: u32) -> &mut S {
        &mut self.files[file as usize].state
    }
}

impl<S> FileLedger<S> {
    /// Returns the files by number.
    pub fn all(&self) -> &[LedgerFile<S>] {
        &self.files
    }

    /// Returns the file with this number.
    ///
    /// # Panics
    /// If there is none.
    pub fn get(&self, file: u32) -> &LedgerFile<S> {
        &self.files[file as usize]
    }

    /// Returns the number of a file.
    pub fn find(&self, file: FileId) -> Option<u32> {
        self.index.get(&file).copied()
    }

    /// Returns all names.
    pub fn names(&self) -> &LedgerNames {
        &self.names
    }

    /// Returns the last name that the file got.
    pub fn name(&self, file: &LedgerFile<S>) -> Option<&str> {
        file.name.map(|name| self.names.text(name))
    }

    /// Returns the last name that the file got.
    pub fn name_of(&self, file: FileId) -> Option<&str> {
        self.name(self.get(self.find(file)?))
    }

    /// Returns the files that have a name, with the last one.
    pub fn named(&self) -> impl Iterator<Item = (FileId, &str)> {
        self.files.iter().filter_map(|file| Some((file.id, self.name(file)?)))
    }

    /// Returns whether the file's last name leads through a directory for cache files.
    pub fn is_cache(&self, file: &LedgerFile<S>) -> bool {
        file.name.is_some_and(|name| self.names.names[name as usize].is_cache)
    }

    /// Returns an estimate of the memory held, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.files.len() * size_of::<LedgerFile<S>>()
            + self.index.allocation_size()
            + self.names.held_bytes
    }

    /// Re-derives every invariant.
    ///
    /// # Panics
    /// If one of them is broken.
    pub fn check(&self) {
        assert_eq!(self.files.len(), self.index.len(), "each file has one number");
        for (number, file) in (0..).zip(&self.files) {
            assert_eq!(self.find(file.id), Some(number), "{:?}", file.id);
            assert!(file.name.is_none_or(|name| self.names.find(self.names.text(name)).is_some()));
        }
        assert_eq!(self.names.names.len(), self.names.index.len(), "each name has one number");
        for (number, name) in (0..).zip(&self.names.names) {
            assert_eq!(self.names.find(&name.text), Some(number), "{}", name.text);
        }
    }
}

/// All names that the events of a [`FileLedger`] mention, each once, numbered in order.
#[derive(Debug, Default)]
pub struct LedgerNames {
    names: Vec<Name>,
    index: HashTable<u32>,
    held_bytes: usize,
}

#[derive(Debug)]
struct Name {
    text: Box<str>,
    is_cache: bool,
}

impl LedgerNames {
    /// Returns the name with this number.
    ///
    /// # Panics
    /// If there is none.
    pub fn text(&self, name: u32) -> &str {
        &self.names[name as usize].text
    }

    /// Returns the names by number.
    pub fn all(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(|name| &*name.text)
    }

    /// Returns the number of a name.
    pub fn find(&self, text: &str) -> Option<u32> {
        self.index.find(HASHER.hash_one(text), |n| *self.names[*n as usize].text == *text).copied()
    }

    fn number(&mut self, text: &str) -> u32 {
        if let Some(known) = self.find(text) {
            return known;
        }
        let fresh = self.names.len() as u32;
        self.names.push(Name { text: text.into(), is_cache: in_cache(text) });
        let names = &self.names;
        self.index.insert_unique(HASHER.hash_one(text), fresh, |n| {
            HASHER.hash_one(&*names[*n as usize].text)
        });
        // Two entries of the table, as it doubles.
        self.held_bytes += text.len() + size_of::<Name>() + 2 * size_of::<u32>();
        fresh
    }
}
