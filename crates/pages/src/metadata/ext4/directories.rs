//! Blocks of directories: one block, or a hash tree whose leaves split (`dir_index`).

use flashsift_caches::trace::Entry;
use flashsift_events::address::Lba;
use std::collections::BTreeMap;

/// Bytes for entries in a block, before the checksum.
const BLOCK_BYTES: u32 = 4096 - 12;
/// The entries `.` and `..`.
const DOTS_BYTES: u32 = 24;

/// The blocks of a directory.
///
/// Leaves divide the values of the hash. The kernel's hash has a secret of each file system, so
/// that any even hash fills leaves alike. A leaf that splits gives half of its bytes to the new
/// one.
pub(super) struct Blocks {
    /// The only block, or the index.
    root: Lba,
    /// By the first hash: each leaf and its used bytes.
    leaves: BTreeMap<u32, Leaf>,
}

#[derive(Clone, Copy)]
struct Leaf {
    lba: Lba,
    bytes: u32,
}

/// Blocks that an entry's arrival changes.
#[derive(Default, Debug, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) blocks: Vec<Lba>,
    /// How many of them are new.
    pub(super) new: u32,
}

fn bytes(entry: &Entry) -> u32 {
    (8 + u32::from(entry.bytes)).next_multiple_of(4)
}

impl Blocks {
    pub(super) fn new(root: Lba) -> Self {
        let only = Leaf { lba: root, bytes: DOTS_BYTES };
        Self { root, leaves: BTreeMap::from([(0, only)]) }
    }

    pub(super) fn root(&self) -> Lba {
        self.root
    }

    fn leaf(&mut self, hash: u32) -> (u32, &mut Leaf) {
        let (first, leaf) = self.leaves.range_mut(..=hash).next_back().expect("a leaf begins at 0");
        (*first, leaf)
    }

    pub(super) fn add(&mut self, entry: &Entry, mut allocate: impl FnMut() -> Lba) -> Changed {
        let root = self.root;
        let mut changed = Changed::default();
        let needed = bytes(entry);
        let (_, leaf) = self.leaf(entry.hash);
        if leaf.bytes + needed > BLOCK_BYTES && leaf.lba == root {
            // The entries move to a block of their own, and the first one becomes the index.
            *leaf = Leaf { lba: allocate(), bytes: leaf.bytes - DOTS_BYTES };
            changed.new += 1;
            changed.blocks.push(root);
        }
        let (first, leaf) = self.leaf(entry.hash);
        if leaf.bytes + needed > BLOCK_BYTES {
            let half = leaf.bytes / 2;
            leaf.bytes -= half;
            let old = *leaf;
            let next =
                self.leaves.range(first..).nth(1).map_or(1 << 32, |(next, _)| u64::from(*next));
            let middle = (u64::from(first) + next) / 2;
            let new = Leaf { lba: allocate(), bytes: half };
            changed.new += 1;
            changed.blocks.extend([old.lba, new.lba]);
            if !changed.blocks.contains(&root) {
                changed.blocks.push(root);
            }
            if middle > u64::from(first) {
                self.leaves.insert(middle as u32, new);
            }
        }
        let (_, leaf) = self.leaf(entry.hash);
        leaf.bytes = (leaf.bytes + needed).min(BLOCK_BYTES);
        let lba = leaf.lba;
        if !changed.blocks.contains(&lba) {
            changed.blocks.push(lba);
        }
        changed
    }

    /// Returns the block that an entry's loss changes.
    pub(super) fn remove(&mut self, entry: &Entry) -> Lba {
        let root = self.root;
        let (_, leaf) = self.leaf(entry.hash);
        let dots = if leaf.lba == root { DOTS_BYTES } else { 0 };
        leaf.bytes = leaf.bytes.saturating_sub(bytes(entry)).max(dots);
        leaf.lba
    }

    pub(super) fn check(&self) {
        assert!(self.leaves.contains_key(&0));
        assert!(self.leaves.values().all(|leaf| leaf.bytes <= BLOCK_BYTES));
        let alone = self.leaves.len() == 1;
        assert!(alone || self.leaves.values().all(|leaf| leaf.lba != self.root));
    }
}
