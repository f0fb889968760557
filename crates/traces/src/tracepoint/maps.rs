//! What processes have mapped: from the address of a page fault to a page of a file.

use super::Inode;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// A range of addresses of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// The address behind it.
    pub end: u64,
    /// The file, if it is one's.
    pub inode: Option<Inode>,
    /// The file's byte at the first address.
    pub offset: u64,
    /// Stores reach the file.
    pub shared: bool,
}

/// All that is mapped, by process.
#[derive(Debug, Default)]
pub(super) struct Maps {
    of: HashMap<u32, Arc<BTreeMap<u64, Mapping>>>,
}

/// Where a page fault happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In a page of a file; whether a store would be the file's.
    File(Inode, u64, bool),
    /// In memory without a file.
    Anonymous,
    /// Nobody knows.
    Unknown,
}

impl Maps {
    pub(super) fn map(&mut self, pid: u32, mapping: Mapping) {
        if mapping.start >= mapping.end {
            return;
        }
        let map = Arc::make_mut(self.of.entry(pid).or_default());
        // Whatever lay there is gone, or what sticks out of it stays.
        let before = map.range(..mapping.start).next_back().map(|(_, m)| m.clone());
        for old in before
            .into_iter()
            .chain(map.range(mapping.start..mapping.end).map(|(_, m)| m.clone()).collect::<Vec<_>>())
        {
            if old.end <= mapping.start {
                continue;
            }
            map.remove(&old.start);
            if old.start < mapping.start {
                map.insert(old.start, Mapping { end: mapping.start, ..old.clone() });
            }
            if old.end > mapping.end {
                let offset = old.offset + (mapping.end - old.start);
                map.insert(mapping.end, Mapping { start: mapping.end, offset, ..old });
            }
        }
        map.insert(mapping.start, mapping);
    }

    pub(super) fn at(&self, pid: u32, address: u64) -> Place {
        let Some(map) = self.of.get(&pid) else { return Place::Unknown };
        match map.range(..=address).next_back() {
            Some((_, m)) if address < m.end => match m.inode {
                Some(inode) => Place::File(inode, (m.offset + (address - m.start)) >> 12, m.shared),
                None => Place::Anonymous,
            },
            _ => Place::Unknown,
        }
    }

    pub(super) fn forked(&mut self, parent: u32, child: u32) {
        match self.of.get(&parent).cloned() {
            Some(map) => drop(self.of.insert(child, map)),
            None => drop(self.of.remove(&child)),
        }
    }

    /// Another program runs, or none.
    pub(super) fn cleared(&mut self, pid: u32) {
        self.of.remove(&pid);
    }
}
