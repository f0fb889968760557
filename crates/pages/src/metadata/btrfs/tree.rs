//! A tree of items in leaves of 16 KiB, of which only the leaves' sizes are known.

use super::Logged;
use flashsift_events::event::FileId;
use std::collections::BTreeMap;

/// The order of items: an inode or a place, and what it is of it.
pub(super) type Key = (u64, u64);

/// Bytes for items in a leaf, behind its header.
const LEAF_BYTES: u64 = (16 << 10) - 101;
/// A node above leaves has pointers of 33 bytes, and is about three quarters full.
const POINTERS: u64 = LEAF_BYTES / 33 * 3 / 4;

/// A tree. Its first leaf begins at the least key.
#[derive(Debug)]
pub(super) struct Tree {
    /// By the first key that they may have.
    leaves: BTreeMap<Key, Leaf>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Leaf {
    bytes: u64,
    /// The greatest key that it had.
    last: Key,
    /// Changed since the tree was written, by which file first.
    changed: Option<Option<FileId>>,
}

impl Default for Tree {
    fn default() -> Self {
        Self { leaves: BTreeMap::from([((0, 0), Leaf::default())]) }
    }
}

impl Tree {
    /// An item arrives, goes or changes; `bytes` more are used.
    pub(super) fn change(&mut self, key: Key, bytes: i64, file: Option<FileId>) {
        let (first, leaf) = self.leaf(key);
        leaf.changed.get_or_insert(file);
        if bytes >= 0 {
            self.add(key, bytes.unsigned_abs());
        } else {
            leaf.bytes = leaf.bytes.saturating_sub(bytes.unsigned_abs());
            self.join(first, file);
        }
    }

    /// Adds an item that is on the device already.
    pub(super) fn fill(&mut self, key: Key, bytes: u64) {
        self.add(key, bytes);
    }

    fn leaf(&mut self, key: Key) -> (Key, &mut Leaf) {
        let found = self.leaves.range_mut(..=key).next_back();
        let (first, leaf) = found.expect("a leaf begins at the least key");
        (*first, leaf)
    }

    fn add(&mut self, key: Key, bytes: u64) {
        let end = self.leaves.last_key_value().map(|(first, _)| *first);
        let (first, leaf) = self.leaf(key);
        let all = leaf.bytes + bytes;
        let appends = end == Some(first) && key > leaf.last;
        let last = key.max(leaf.last);
        if all <= LEAF_BYTES {
            (leaf.bytes, leaf.last) = (all, last);
            return;
        }
        // At the end of the tree the new leaf has the new item only.
        let mut moves = if appends && leaf.bytes > 0 { bytes } else { all / 2 };
        (leaf.bytes, leaf.last) = (all - moves, key.min(leaf.last));
        let changed = leaf.changed;
        let mut at = key.max((first.0, first.1 + 1));
        while moves > 0 {
            let here = moves.min(LEAF_BYTES);
            let leaf = self.leaves.entry(at).or_default();
            (leaf.bytes, leaf.last, leaf.changed) = (leaf.bytes + here, last, changed);
            (moves, at) = (moves - here, (at.0, at.1 + 1));
        }
    }

    /// A leaf of which less than a third is used is joined to the one before, if both fit.
    fn join(&mut self, first: Key, file: Option<FileId>) {
        let Leaf { bytes, last, .. } = self.leaves[&first];
        if bytes >= LEAF_BYTES / 3 {
            return;
        }
        if let Some((_, before)) = self.leaves.range_mut(..first).next_back()
            && before.bytes + bytes <= LEAF_BYTES
        {
            before.bytes += bytes;
            before.last = last.max(before.last);
            before.changed.get_or_insert(file);
            self.leaves.remove(&first);
        }
    }

    /// Returns how many nodes changed since the last call, with those above them, and adds the
    /// leaves to a list.
    pub(super) fn take_changed(&mut self, list: &mut Vec<Logged>) -> u64 {
        let mut changed = 0;
        for (n, leaf) in self.leaves.values_mut().enumerate() {
            if let Some(file) = leaf.changed.take() {
                changed += 1;
                list.push(Logged { lba: n as u64, file });
            }
        }
        changed + self.nodes_above().map(|nodes| nodes.min(changed)).sum::<u64>()
    }

    /// Returns how many nodes the tree has.
    pub(super) fn nodes(&self) -> u64 {
        self.leaves.len() as u64 + self.nodes_above().sum::<u64>()
    }

    /// The nodes of each level above the leaves.
    fn nodes_above(&self) -> impl Iterator<Item = u64> + use<> {
        let above = |nodes: &u64| (*nodes > 1).then(|| nodes.div_ceil(POINTERS));
        std::iter::successors(Some(self.leaves.len() as u64), above).skip(1)
    }

    pub(super) fn held_bytes(&self) -> usize {
        // Nodes of a tree are at least half full.
        2 * self.leaves.len() * size_of::<(Key, Leaf)>()
    }

    pub(super) fn check(&self) {
        assert!(self.leaves.contains_key(&(0, 0)), "a leaf begins at the least key");
    }
}
