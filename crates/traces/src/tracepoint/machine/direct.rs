//! Accesses past the page cache that have begun. One may end in another thread, and a program may
//! have many of one file at once (`io_submit`, io_uring).

use super::super::Inode;
use std::{
    collections::{HashMap, VecDeque},
    ops::Range,
};

/// The most that are remembered of a file. Ends may be missing from a trace.
const MOST: usize = 4096;

#[derive(Debug)]
pub(super) struct Begun {
    pub(super) tid: u32,
    start: u64,
    end: u64,
    pub(super) write: bool,
    /// Bytes of blocks that hold nothing so far, by step.
    blank: Vec<Range<u64>>,
}

impl Begun {
    /// The bytes of zeros with which the kernel fills the blocks at both ends of this write, where
    /// they held nothing so far; the last one also where the write `reaches_end` of the file.
    pub(super) fn filled(&self, end: u64, reaches_end: bool, block_bytes: u64) -> [Range<u64>; 2] {
        let blank = |at: u64| self.blank.iter().find(|blank| blank.contains(&at));
        let start = self.start - self.start % block_bytes;
        let start = blank(self.start).map_or(self.start, |blank| start.max(blank.start));
        let last = end.saturating_sub(1);
        let mut filled_end = end.next_multiple_of(block_bytes);
        if !reaches_end {
            filled_end = blank(last).map_or(end, |blank| filled_end.min(blank.end.max(end)));
        }
        [start..self.start, end..filled_end]
    }
}

/// Accesses that have begun and not ended.
#[derive(Debug, Default)]
pub(super) struct DirectAccesses(HashMap<Inode, VecDeque<Begun>, foldhash::fast::FixedState>);

impl DirectAccesses {
    /// A step of an access, from `offset` to the end of the access: its first one, or the next one.
    /// Linux 6.18 tells the length as 0 at the beginning of a file, and for each step but the first
    /// one; the last one begins at the end of the access.
    pub(super) fn step(&mut self, tid: u32, inode: Inode, (offset, len): (u64, u64), write: bool) {
        if len == 0 && offset > 0 {
            return;
        }
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
        begun.push_back(Begun { tid, start: offset, end, write, blank: Vec::new() });
    }

    /// These blocks of the last step hold nothing so far.
    pub(super) fn blank(&mut self, tid: u32, inode: Inode, (offset, len): (u64, u64)) {
        let of_thread = |one: &&mut Begun| one.tid == tid && one.write;
        if let Some(begun) = self.0.get_mut(&inode)
            && let Some(last) = begun.iter_mut().rev().find(of_thread)
            && last.blank.len() < MOST
        {
            last.blank.push(offset..offset.saturating_add(len));
        }
    }

    /// The end of the access that began at this byte, the latest one if there are several.
    pub(super) fn end(&mut self, inode: Inode, start: u64) -> Option<Begun> {
        let begun = self.0.get_mut(&inode)?;
        let at = begun.iter().rposition(|one| one.start == start)?;
        let one = begun.remove(at)?;
        if begun.is_empty() {
            self.0.remove(&inode);
        }
        Some(one)
    }
}
