//! A set of pages that supports the removal of ranges of a file.

use flashsift_events::{
    event::{Action, FileId},
    page::PAGE_BYTES,
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::{collections::BTreeMap, ops::Range};

/// Pages by file and number: an ordered map of bitmaps of 64 consecutive pages, so that removing a
/// range costs as much as the range holds, not the file.
#[derive(Default)]
pub(super) struct PageSet {
    files: HashMap<FileId, Blocks, FixedState>,
    /// Bitmaps in [`Blocks::Many`].
    many: usize,
}

/// A file's bitmaps by number of their first page / 64. Most files have one.
enum Blocks {
    One(u64, u64),
    Many(BTreeMap<u64, u64>),
}

impl PageSet {
    /// Adds a page; returns whether it is new.
    #[inline]
    pub(super) fn insert(&mut self, file: FileId, page: u64) -> bool {
        let (block, bit) = (page / 64, 1 << (page % 64));
        let blocks = self.files.entry(file).or_insert(Blocks::One(block, 0));
        if let Blocks::One(other, bits) = *blocks
            && other != block
        {
            *blocks = Blocks::Many(BTreeMap::from([(other, bits)]));
            self.many += 1;
        }
        let bits = match blocks {
            Blocks::One(_, bits) => bits,
            Blocks::Many(blocks) => blocks.entry(block).or_insert_with(|| {
                self.many += 1;
                0
            }),
        };
        let is_new = *bits & bit == 0;
        *bits |= bit;
        is_new
    }

    /// Removes the file's pages in this range and passes each to `out`.
    pub(super) fn drain(&mut self, file: FileId, range: Range<u64>, mut out: impl FnMut(u64)) {
        let Some(blocks) = self.files.get_mut(&file).filter(|_| !range.is_empty()) else { return };
        let reached = range.start / 64..=(range.end - 1) / 64;
        let is_empty = match blocks {
            Blocks::One(block, bits) => {
                if reached.contains(block) {
                    take(*block, bits, &range, &mut out);
                }
                *bits == 0
            }
            Blocks::Many(blocks) => {
                let mut emptied = Vec::new();
                for (block, bits) in blocks.range_mut(reached) {
                    take(*block, bits, &range, &mut out);
                    if *bits == 0 {
                        emptied.push(*block);
                    }
                }
                self.many -= emptied.len();
                for block in emptied {
                    blocks.remove(&block);
                }
                blocks.is_empty()
            }
        };
        if is_empty {
            self.files.remove(&file);
        }
    }

    /// Removes all pages and returns their number.
    pub(super) fn clear(&mut self) -> u64 {
        let pages = |blocks: &Blocks| match blocks {
            Blocks::One(_, bits) => u64::from(bits.count_ones()),
            Blocks::Many(blocks) => blocks.values().map(|bits| u64::from(bits.count_ones())).sum(),
        };
        let all = self.files.values().map(pages).sum();
        self.files.clear();
        self.many = 0;
        all
    }

    pub(super) fn held_bytes(&self) -> usize {
        // Nodes of a tree are at least half full.
        self.files.allocation_size() + self.many * 2 * size_of::<(u64, u64)>()
    }
}

/// Removes the pages of `range` from a bitmap that overlaps the range.
fn take(block: u64, bits: &mut u64, range: &Range<u64>, out: &mut impl FnMut(u64)) {
    let first = block * 64;
    let from = range.start.saturating_sub(first);
    let to = (range.end - first).min(64);
    let mask = (!0 << from) & (!0 >> (64 - to));
    let mut taken = *bits & mask;
    *bits &= !mask;
    while taken != 0 {
        out(first + u64::from(taken.trailing_zeros()));
        taken &= taken - 1;
    }
}

/// Returns the pages that an event removes from its file completely: truncated, punched out or
/// deleted.
pub(super) fn removed(action: &Action) -> Option<(FileId, Range<u64>)> {
    match *action {
        Action::Truncate { file, size } => Some((file, size.div_ceil(PAGE_BYTES)..u64::MAX)),
        Action::Punch { file, offset, len } => {
            Some((file, offset.div_ceil(PAGE_BYTES)..offset.saturating_add(len) / PAGE_BYTES))
        }
        Action::Gone { file } => Some((file, 0..u64::MAX)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn agrees_with_a_set_of_pairs(
            steps in prop::collection::vec((0..3u8, 0..3u64, 0..200u64, 0..200u64), 0..60)
        ) {
            let (mut set, mut model) = (PageSet::default(), BTreeSet::new());
            for (kind, file, a, b) in steps {
                // Pages at large offsets, and ranges without an end.
                let (a, b) = if b == 7 { (a << 40, u64::MAX) } else { (a, b) };
                match kind {
                    0 | 1 => prop_assert_eq!(set.insert(FileId(file), a), model.insert((file, a))),
                    _ => {
                        let mut taken = Vec::new();
                        set.drain(FileId(file), a..b, |page| taken.push(page));
                        let wanted: Vec<_> =
                            model.iter().filter(|(f, p)| *f == file && (a..b).contains(p)).copied().collect();
                        wanted.iter().for_each(|pair| assert!(model.remove(pair)));
                        prop_assert_eq!(taken, wanted.iter().map(|(_, page)| *page).collect::<Vec<_>>());
                    }
                }
                let many = set.files.values().map(|blocks| match blocks {
                    Blocks::One(_, bits) => { assert!(*bits != 0); 0 }
                    Blocks::Many(blocks) => { assert!(!blocks.is_empty() && blocks.values().all(|bits| *bits != 0)); blocks.len() }
                });
                prop_assert_eq!(set.many, many.sum::<usize>());
            }
            prop_assert_eq!(set.clear(), model.len() as u64);
        }
    }
}
