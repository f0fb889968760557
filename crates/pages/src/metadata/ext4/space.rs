//! Where ext4 keeps its own blocks: bitmaps, inode tables, group descriptors, the journal.
//!
//! Sixteen block groups form a flexible group, whose bitmaps and inode tables lie together at its
//! beginning (`flex_bg`). The journal, and the blocks of directories and extent trees, lie before
//! the first flexible group here, so that the layout's places stay what they are, apart from an
//! offset for each flexible group.

use flashsift_events::address::Lba;
use std::collections::{BTreeMap, BTreeSet};

/// Groups of a flexible group.
const FLEX: u64 = 16;
/// Data blocks of a group.
const GROUP_PAGES: u64 = 32_768;
/// Inodes of a group: one for 16 KiB.
const GROUP_INODES: u32 = 8_192;
/// No file system has more groups with inodes, whose numbers have 32 bits.
const GROUPS_MAX: u64 = (1 << 32) / GROUP_INODES as u64;
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
/// Blocks of a copy of the superblock, of the group descriptors and of those reserved for growth.
const SUPERBLOCK_PAGES: u64 = 1_025;

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

    /// The inode of a file that was there before, which has this number. Files that are made later
    /// get others: their blocks lie apart.
    pub(super) fn numbered(number: u64) -> Self {
        let index = number.saturating_sub(1);
        let group = GROUPS_MAX + index / u64::from(GROUP_INODES);
        Self { group: group as u32, index: (index % u64::from(GROUP_INODES)) as u32 }
    }

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

    /// Groups of a flexible group: the last one may have fewer.
    fn groups_of(&self, flex: u64) -> u64 {
        FLEX.min(self.groups - flex * FLEX)
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

/// Groups 0, 1 and the powers of 3, 5 and 7 have copies of the superblock (`sparse_super`).
fn has_superblock(group: u64) -> bool {
    let is_power = |base: u64| {
        let mut power = base;
        while power < group {
            power *= base;
        }
        power == group
    };
    group <= 1 || [3, 5, 7].into_iter().any(is_power)
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

/// Free and used inodes, and the blocks used, by which directories are placed.
pub(super) struct Inodes {
    shape: Shape,
    groups: BTreeMap<u32, Group>,
    flexes: Vec<Flex>,
}

struct Group {
    /// Inodes from this one on were never used.
    unused: u32,
    /// Those before it that are free.
    free: BTreeSet<u32>,
}

/// Sums over a flexible group.
#[derive(Clone, Copy, Default)]
struct Flex {
    inodes: u64,
    directories: u64,
    pages: u64,
}

impl Inodes {
    pub(super) fn new(shape: Shape) -> Self {
        let mut flexes = vec![Flex::default(); shape.flexes() as usize];
        for group in (0..shape.groups).filter(|group| has_superblock(*group)) {
            flexes[(group / FLEX) as usize].pages += SUPERBLOCK_PAGES;
        }
        // `mke2fs` puts the journal in the middle.
        flexes[(shape.groups / 2 / FLEX) as usize].pages += shape.journal_pages;
        // The root and `lost+found`.
        flexes[0].directories = 2;
        flexes[0].inodes = FIRST_INODE.into();
        Self { shape, groups: BTreeMap::new(), flexes }
    }

    /// Pages of files in this flexible group get places, or lose them.
    pub(super) fn count_pages(&mut self, inode: InodePlace, pages: i64) {
        if let Some(flex) = self.flexes.get_mut(inode.flex() as usize) {
            flex.pages = flex.pages.saturating_add_signed(pages);
        }
    }

    fn group(&mut self, group: u32) -> &mut Group {
        let unused = if group == 0 { FIRST_INODE } else { 0 };
        self.groups.entry(group).or_insert_with(|| Group { unused, free: BTreeSet::new() })
    }

    fn free_in_group(&self, group: u32) -> u64 {
        let used = match self.groups.get(&group) {
            Some(group) => group.unused - group.free.len() as u32,
            None if group == 0 => FIRST_INODE,
            None => 0,
        };
        u64::from(GROUP_INODES.saturating_sub(used))
    }

    fn take_in(&mut self, group: u32) -> InodePlace {
        let used = self.group(group);
        let index = used.free.pop_first().unwrap_or_else(|| {
            used.unused += 1;
            used.unused - 1
        });
        let inode = InodePlace { group, index };
        if let Some(flex) = self.flexes.get_mut(inode.flex() as usize) {
            flex.inodes += 1;
        }
        inode
    }

    /// Takes an inode for a file: the first free one in its directory's flexible group. The kernel
    /// avoids those that were deleted a short time ago, but not on a file system with a journal.
    pub(super) fn take(&mut self, flex: u32) -> InodePlace {
        let groups = flex * FLEX as u32..(flex + 1) * FLEX as u32;
        let mut groups = groups.take_while(|group| u64::from(*group) < self.shape.groups);
        let group = groups.find(|group| self.free_in_group(*group) > 0);
        // A trace with more files than the file system has inodes makes the last group larger.
        self.take_in(group.unwrap_or(flex * FLEX as u32))
    }

    /// Takes an inode for a file that was there before, behind the last one of its directory. A
    /// directory's first one begins a block: what was made before the trace lies apart.
    pub(super) fn take_old(&mut self, flex: u32, last: Option<InodePlace>) -> InodePlace {
        let next = last.map(|last| InodePlace { index: last.index + 1, ..last });
        if let Some(next) = next.filter(|next| next.index % BLOCK_INODES != 0) {
            return next;
        }
        let all = self.shape.groups as u32;
        for group in (flex * FLEX as u32..(flex + 1) * FLEX as u32).filter(|group| *group < all) {
            let used = self.group(group);
            let first = used.unused.next_multiple_of(BLOCK_INODES);
            let end = first + BLOCK_INODES;
            if end <= GROUP_INODES {
                // Other files have the rest.
                let inodes = u64::from(end - std::mem::replace(&mut used.unused, end));
                if let Some(flex) = self.flexes.get_mut(flex as usize) {
                    flex.inodes += inodes;
                }
                return InodePlace { group, index: first };
            }
        }
        self.take(flex)
    }

    /// Takes an inode for a directory, by Orlov's rule (`find_group_orlov`).
    ///
    /// A directory below the root goes to the flexible group with the fewest directories among
    /// those that have at least an average number of free inodes and blocks, beginning at one that
    /// the name determines. If there is none, it goes to the first group with an average number of
    /// free inodes. Any other directory goes to its parent's flexible group.
    pub(super) fn take_directory(&mut self, parent: InodePlace, hash: u32) -> InodePlace {
        let inode = match (parent == InodePlace::ROOT, self.best_flex(hash)) {
            (false, _) => self.take(parent.flex()),
            (true, Some(flex)) => self.take(flex),
            (true, None) => {
                let free: u64 = self.free_inodes().sum();
                let average = free / self.shape.groups;
                let mut groups = 0..self.shape.groups as u32;
                let group = groups.find(|group| {
                    let free = self.free_in_group(*group);
                    free > 0 && free >= average
                });
                self.take_in(group.unwrap_or(0))
            }
        };
        if let Some(flex) = self.flexes.get_mut(inode.flex() as usize) {
            flex.directories += 1;
        }
        inode
    }

    fn free_inodes(&self) -> impl Iterator<Item = u64> {
        let all = |flex: usize| self.shape.groups_of(flex as u64) * u64::from(GROUP_INODES);
        let of = move |(n, flex): (usize, &Flex)| all(n).saturating_sub(flex.inodes);
        self.flexes.iter().enumerate().map(of)
    }

    fn free_pages(&self) -> impl Iterator<Item = u64> {
        let all = |flex: usize| self.shape.groups_of(flex as u64) * (GROUP_PAGES - 2 - TABLE_PAGES);
        let of = move |(n, flex): (usize, &Flex)| all(n).saturating_sub(flex.pages);
        self.flexes.iter().enumerate().map(of)
    }

    fn best_flex(&self, hash: u32) -> Option<u32> {
        let count = self.flexes.len();
        let (inodes, pages): (Vec<_>, Vec<_>) =
            (self.free_inodes().collect(), self.free_pages().collect());
        let average = |all: &[u64]| all.iter().sum::<u64>() / count as u64;
        let (inodes_min, pages_min) = (average(&inodes), average(&pages));
        let start = hash as usize % count;
        (0..count)
            .map(|n| (start + n) % count)
            .filter(|flex| inodes[*flex] >= inodes_min.max(1) && pages[*flex] >= pages_min)
            .min_by_key(|flex| self.flexes[*flex].directories)
            .map(|flex| flex as u32)
    }

    pub(super) fn give_back(&mut self, inode: InodePlace) {
        if let Some(group) = self.groups.get_mut(&inode.group) {
            group.free.insert(inode.index);
        }
        if let Some(flex) = self.flexes.get_mut(inode.flex() as usize) {
            flex.inodes -= 1;
        }
    }

    pub(super) fn check(&self) {
        for group in self.groups.values() {
            assert!(group.free.iter().all(|index| *index < group.unused));
        }
        let free: u64 = (0..self.shape.groups as u32).map(|group| self.free_in_group(group)).sum();
        assert_eq!(free, self.free_inodes().sum::<u64>());
    }
}
