//! The extents of a file and the blocks of its extent tree.

use flashsift_events::address::Lba;
use std::collections::BTreeMap;

/// Extents in the inode itself.
const IN_INODE: usize = 4;
/// Extents in a block: 12 bytes each, behind a header of 12 and before a checksum of 4.
const IN_BLOCK: usize = (4096 - 12 - 4) / 12;
/// The longest extent of written blocks, in pages.
const EXTENT_PAGES: u64 = 32_768;

/// By first page: place and length.
#[derive(Default)]
pub(super) struct Extents {
    extents: BTreeMap<u64, (Lba, u64)>,
    /// By first page: the blocks of the tree. None where the inode holds all.
    leaves: BTreeMap<u64, Lba>,
}

/// Blocks of the tree that change.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) written: Vec<Lba>,
    /// How many of those are new.
    pub(super) new: u32,
    pub(super) freed: Vec<Lba>,
}

impl Extents {
    /// The tree of a file from before the trace, whose extents are not known one by one: it has one
    /// block if the inode does not hold so many.
    pub(super) fn of_old_file(extents: usize, allocate: impl FnOnce() -> Lba) -> Self {
        let leaf = (extents > IN_INODE).then(|| (0, allocate()));
        Self { extents: BTreeMap::new(), leaves: leaf.into_iter().collect() }
    }

    /// Returns the block of the tree that says where this page lies; `None`: the inode does.
    pub(super) fn leaf_of(&self, page: u64) -> Option<Lba> {
        (!self.leaves.is_empty()).then(|| self.leaf(page).1)
    }

    /// Returns the page behind the last one that has a place.
    pub(super) fn end(&self) -> u64 {
        self.extents.last_key_value().map_or(0, |(page, (_, pages))| page + pages)
    }

    /// Returns the number of pages that have a place.
    pub(super) fn pages(&self) -> i64 {
        self.extents.values().map(|(_, pages)| *pages as i64).sum()
    }

    pub(super) fn insert(
        &mut self,
        page: u64,
        lba: Lba,
        mut allocate: impl FnMut() -> Lba,
    ) -> Changed {
        self.cut(page);
        let before =
            self.extents.range(..page).next_back().map(|(first, extent)| (*first, *extent));
        let joined = before.filter(|(first, (place, pages))| {
            first + pages == page && place + pages == lba && *pages < EXTENT_PAGES
        });
        let (first, place, pages) = match joined {
            Some((first, (place, pages))) => (first, place, pages + 1),
            None => (page, lba, 1),
        };
        let behind = self.extents.get(&(page + 1)).copied();
        let behind = behind.filter(|(next, more)| *next == lba + 1 && pages + more <= EXTENT_PAGES);
        let more = behind.map_or(0, |(_, more)| more);
        if behind.is_some() {
            self.extents.remove(&(page + 1));
        }
        self.extents.insert(first, (place, pages + more));
        let mut changed = Changed::default();
        if self.leaves.is_empty() {
            if self.extents.len() > IN_INODE {
                let leaf = allocate();
                self.leaves.insert(0, leaf);
                changed.written.push(leaf);
                changed.new += 1;
            }
            return changed;
        }
        let (start, leaf) = self.leaf(page);
        changed.written.push(leaf);
        let end = self.leaves.range(start + 1..).next().map_or(u64::MAX, |(next, _)| *next);
        if self.extents.range(start..end).count() > IN_BLOCK {
            let middle = self.extents.range(start..end).nth(IN_BLOCK / 2);
            let middle = *middle.expect("there are more").0;
            let new = allocate();
            self.leaves.insert(middle, new);
            changed.written.push(new);
            changed.new += 1;
        }
        changed
    }

    fn leaf(&self, page: u64) -> (u64, Lba) {
        let (start, leaf) = self.leaves.range(..=page).next_back().expect("a leaf begins at 0");
        (*start, *leaf)
    }

    pub(super) fn remove(&mut self, page: u64) -> Changed {
        self.cut(page);
        let mut changed = Changed::default();
        if self.leaves.is_empty() {
            return changed;
        }
        if self.extents.is_empty() {
            changed.freed = self.take_leaves();
            return changed;
        }
        let (start, leaf) = self.leaf(page);
        let end = self.leaves.range(start + 1..).next().map_or(u64::MAX, |(next, _)| *next);
        match start > 0 && self.extents.range(start..end).next().is_none() {
            true => {
                self.leaves.remove(&start);
                changed.freed.push(leaf);
            }
            false => changed.written.push(leaf),
        }
        changed
    }

    /// Removes a page from its extent, which may leave two.
    fn cut(&mut self, page: u64) {
        let found =
            self.extents.range(..=page).next_back().map(|(first, extent)| (*first, *extent));
        let Some((first, (lba, pages))) = found.filter(|(first, (_, pages))| page - first < *pages)
        else {
            return;
        };
        self.extents.remove(&first);
        if page > first {
            self.extents.insert(first, (lba, page - first));
        }
        let end = first + pages;
        if page + 1 < end {
            self.extents.insert(page + 1, (lba + (page + 1 - first), end - page - 1));
        }
    }

    /// Takes every block of the tree, for a file that ends.
    pub(super) fn take_leaves(&mut self) -> Vec<Lba> {
        std::mem::take(&mut self.leaves).into_values().collect()
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.extents.len()
    }

    pub(super) fn check(&self) {
        let ends = self.extents.iter().map(|(page, (_, pages))| (*page, page + pages));
        let ends: Vec<_> = ends.collect();
        assert!(ends.is_sorted_by(|one, next| one.1 <= next.0), "extents do not overlap");
        assert!(self.leaves.is_empty() || self.leaves.contains_key(&0));
    }
}
