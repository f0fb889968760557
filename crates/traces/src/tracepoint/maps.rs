//! Memory mappings of processes: translate the address of a page fault to a page of a file.

use super::Inode;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

/// An address range of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: u64,
    /// First address after the range.
    pub end: u64,
    /// The mapped file, if the range maps one.
    pub inode: Option<Inode>,
    /// File offset in bytes of the first address.
    pub offset: u64,
    /// The mapping is shared: stores reach the file.
    pub shared: bool,
}

/// All mapped ranges, by process.
#[derive(Debug, Default)]
pub(super) struct Maps {
    of: HashMap<u32, Arc<BTreeMap<u64, Mapping>>>,
}

/// Location of a page fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FaultTarget {
    /// In a page of a file, and whether a store would change the file.
    File(Inode, u64, bool),
    /// In anonymous memory.
    Anonymous,
    /// In no known range.
    Unknown,
}

impl Maps {
    pub(super) fn map(&mut self, pid: u32, mapping: Mapping) {
        if mapping.start >= mapping.end {
            return;
        }
        let map = Arc::make_mut(self.of.entry(pid).or_default());
        // The new range replaces what it overlaps; parts of old ranges outside it stay.
        let before = map.range(..mapping.start).next_back().map(|(_, m)| m.clone());
        for old in before.into_iter().chain(
            map.range(mapping.start..mapping.end).map(|(_, m)| m.clone()).collect::<Vec<_>>(),
        ) {
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

    pub(super) fn at(&self, pid: u32, address: u64) -> FaultTarget {
        let Some(map) = self.of.get(&pid) else { return FaultTarget::Unknown };
        match map.range(..=address).next_back() {
            Some((_, m)) if address < m.end => match m.inode {
                Some(inode) => {
                    FaultTarget::File(inode, (m.offset + (address - m.start)) >> 12, m.shared)
                }
                None => FaultTarget::Anonymous,
            },
            _ => FaultTarget::Unknown,
        }
    }

    pub(super) fn forked(&mut self, parent: u32, child: u32) {
        match self.of.get(&parent).cloned() {
            Some(map) => drop(self.of.insert(child, map)),
            None => drop(self.of.remove(&child)),
        }
    }

    /// Removes all mappings of a process, because it runs another program or ended.
    pub(super) fn cleared(&mut self, pid: u32) {
        self.of.remove(&pid);
    }
}
