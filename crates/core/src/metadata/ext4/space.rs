//! Where ext4 keeps its own blocks: bitmaps, inode tables, group descriptors, the journal.
//!
//! Sixteen block groups form a flexible group, whose bitmaps and inode tables lie together at its
//! beginning (`flex_bg`). The journal, and the blocks of directories and extent trees, lie before
//! the first flexible group here, so that the layout's places stay what they are, apart from an
//! offset for each flexible group.

use crate::layout::Lba;
use std::collections::{BTreeMap, BTreeSet};

/// Groups of a flexible group.
const FLEX: u64 = 16;
/// Data blocks of a group.
const GROUP_PAGES: u64 = 32_768;
/// Inodes of a group: one for 16 KiB.
const GROUP_INODES: u32 = 8_192;
/// Inodes of 256 bytes in a block.
const BLOCK_INODES: u32 = 16;
/// Blocks of a group's inode table.
const TABLE_PAGES: u64 = (GROUP_INODES / BLOCK_INODES) as u64;
/// Group descriptors of 64 bytes in a block.
const BLOCK_DESCRIPTORS: u64 = 64;
/// The inodes 1 to 10 are the file system's, 11 is `lost+found`.
const FIRST_INODE: u32 = 11;
/// The root directory is inode 2.
const ROOT_INDEX: u32 = 1;
/// Sizes of a file system.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Block groups.
    groups: u64,
    pub(super) journal_pages: u64,
    /// Blocks for directories and extent trees.
    tree_pages: u64,
}

/// An inode's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InodePlace {
    group: u32,
    index: u32,
}

impl InodePlace {
    /// The root directory.
    pub(super) const ROOT: Self = Self { group: 0, index: ROOT_INDEX };

    /// Number of its flexible group.
    pub(super) fn flex(self) -> u32 {
        self.group / FLEX as u32
    }
}

impl Shape {
    pub(super) fn new(groups: u64, tree_pages: u64) -> Self {
        Self { groups, journal_pages: journal_pages(groups * GROUP_PAGES), tree_pages }
    }

    /// Number of flexible groups.
    fn flexes(&self) -> u32 {
        self.groups.div_ceil(FLEX) as u32
    }

    fn descriptor_pages(&self) -> u64 {
        self.groups.div_ceil(BLOCK_DESCRIPTORS)
    }

    /// Metadata blocks of a flexible group; as many in each.
    fn flex_pages(&self) -> u64 {
        1 + self.descriptor_pages() + FLEX * (2 + TABLE_PAGES)
    }

    /// The first block of a flexible group.
    fn flex_start(&self, flex: u64) -> Lba {
        let before = self.journal_pages + self.tree_pages;
        before + flex * (self.flex_pages() + FLEX * GROUP_PAGES)
    }

    /// Where the place of a file's page lies between the metadata.
    pub(super) fn data(&self, lba: Lba) -> Lba {
        let flex = lba / (FLEX * GROUP_PAGES);
        self.flex_start(flex) + self.flex_pages() + lba % (FLEX * GROUP_PAGES)
    }

    pub(super) fn superblock(&self) -> Lba {
        self.flex_start(0)
    }

    /// The block that describes a group.
    pub(super) fn descriptor(&self, group: u64) -> Lba {
        // A trace with more pages than the file system has makes it larger, not its descriptors.
        let block = (group / BLOCK_DESCRIPTORS).min(self.descriptor_pages() - 1);
        self.flex_start(0) + 1 + block
    }

    fn of_group(&self, group: u64) -> Lba {
        let bitmaps = self.flex_start(group / FLEX) + 1 + self.descriptor_pages();
        bitmaps + group % FLEX
    }

    pub(super) fn block_bitmap(&self, group: u64) -> Lba {
        self.of_group(group)
    }

    pub(super) fn inode_bitmap(&self, inode: InodePlace) -> Lba {
        self.of_group(inode.group.into()) + FLEX
    }

    pub(super) fn inode_block(&self, inode: InodePlace) -> Lba {
        let group = u64::from(inode.group);
        let tables = self.flex_start(group / FLEX) + 1 + self.descriptor_pages() + 2 * FLEX;
        tables + group % FLEX * TABLE_PAGES + u64::from(inode.index / BLOCK_INODES)
    }

    /// The group whose descriptor counts this inode.
    pub(super) fn group_of(inode: InodePlace) -> u64 {
        inode.group.into()
    }

    /// The group of a place of the layout.
    pub(super) fn group_of_place(lba: Lba) -> u64 {
        lba / GROUP_PAGES
    }

    /// The group in which an inode's directory and extent blocks are looked for: the first one of
    /// its flexible group, which regular files leave to directories.
    pub(super) fn tree_group(inode: InodePlace) -> u64 {
        u64::from(inode.flex()) * FLEX
    }
}

/// The size that `mke2fs` gives a journal (`ext2fs_default_journal_size`).
fn journal_pages(pages: u64) -> u64 {
    const K: u64 = 1024;
    let sizes = [
        (32 * K, K),
        (256 * K, 4 * K),
        (512 * K, 8 * K),
        (4096 * K, 16 * K),
        (8192 * K, 32 * K),
        (16384 * K, 64 * K),
        (32768 * K, 128 * K),
    ];
    sizes.into_iter().find(|(below, _)| pages < *below).map_or(256 * K, |(_, journal)| journal)
}

/// Free and used inodes.
pub(super) struct Inodes {
    shape: Shape,
    groups: BTreeMap<u32, Group>,
    /// By flexible group: its directories.
    directories: Vec<u32>,
}

struct Group {
    /// Inodes from this one on were never used.
    unused: u32,
    /// Those before it that are free.
    free: BTreeSet<u32>,
}

impl Inodes {
    pub(super) fn new(shape: Shape) -> Self {
        let mut directories = vec![0; shape.flexes() as usize];
        // The root and `lost+found`.
        directories[0] = 2;
        Self { shape, groups: BTreeMap::new(), directories }
    }

    /// Takes an inode for a file: the first free one in its directory's flexible group. The kernel
    /// avoids those that were deleted a short time ago, but not on a file system with a journal.
    pub(super) fn take(&mut self, flex: u32) -> InodePlace {
        let first_group = flex * FLEX as u32;
        let mut group = first_group;
        let used = loop {
            let unused = if group == 0 { FIRST_INODE } else { 0 };
            let used = self.groups.entry(group);
            let used = used.or_insert_with(|| Group { unused, free: BTreeSet::new() });
            let is_last = group + 1 == first_group + FLEX as u32;
            if used.unused < GROUP_INODES || !used.free.is_empty() || is_last {
                break used;
            }
            group += 1;
        };
        let index = used.free.pop_first().unwrap_or_else(|| {
            used.unused += 1;
            used.unused - 1
        });
        InodePlace { group, index }
    }

    /// Takes an inode for a directory. One below the root goes to a flexible group with the fewest
    /// directories, beginning at one that its name determines (Orlov's allocator, for directories
    /// at the top); any other goes to its parent's.
    pub(super) fn take_directory(&mut self, parent: InodePlace, hash: u32) -> InodePlace {
        let flexes = self.shape.flexes();
        let flex = match parent == InodePlace::ROOT {
            false => parent.flex(),
            true => {
                let start = hash % flexes;
                // The first one has fewer free blocks than the average, which Orlov's rule demands.
                let others = (0..flexes).map(|n| (start + n) % flexes).filter(|flex| *flex > 0);
                others.min_by_key(|flex| self.directories[*flex as usize]).unwrap_or(0)
            }
        };
        if let Some(count) = self.directories.get_mut(flex as usize) {
            *count += 1;
        }
        self.take(flex)
    }

    pub(super) fn give_back(&mut self, inode: InodePlace) {
        if let Some(group) = self.groups.get_mut(&inode.group) {
            group.free.insert(inode.index);
        }
    }

    pub(super) fn check(&self) {
        for group in self.groups.values() {
            assert!(group.free.iter().all(|index| *index < group.unused));
        }
    }
}
