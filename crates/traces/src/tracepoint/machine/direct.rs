//! Accesses past the page cache that have begun. One may end in another thread, and a program may
//! have many of one file at once (`io_submit`, io_uring).

use super::super::Inode;
use std::collections::{HashMap, VecDeque};

/// The most that are remembered of a file. Ends may be missing from a trace.
const MOST: usize = 4096;

#[derive(Debug)]
struct Begun {
    tid: u32,
    start: u64,
    end: u64,
    write: bool,
}

/// Accesses that have begun and not ended.
#[derive(Debug, Default)]
pub(super) struct DirectAccesses(HashMap<Inode, VecDeque<Begun>, foldhash::fast::FixedState>);

impl DirectAccesses {
    /// A step of an access, from `offset` to the end of the access: its first one, or the next one.
    /// The kernel tells the length of a step at the beginning of a file as 0.
    pub(super) fn step(&mut self, tid: u32, inode: Inode, (offset, len): (u64, u64), write: bool) {
        let end = offset.saturating_add(len);
        let begun = self.0.entry(inode).or_default();
        let goes_on =
            |one: &Begun| (one.tid, one.end, one.write) == (tid, end, write) && one.start < offset;
        if begun.iter().any(goes_on) {
            return;
        }
        if begun.len() == MOST {
            begun.pop_front();
        }
        begun.push_back(Begun { tid, start: offset, end, write });
    }

    /// The end of the access that began at this byte, the latest one if there are several. Returns
    /// the thread that began it, and whether it is a write.
    pub(super) fn end(&mut self, inode: Inode, start: u64) -> Option<(u32, bool)> {
        let begun = self.0.get_mut(&inode)?;
        let at = begun.iter().rposition(|one| one.start == start)?;
        let one = begun.remove(at)?;
        if begun.is_empty() {
            self.0.remove(&inode);
        }
        Some((one.tid, one.write))
    }
}
