//! XFS with its delayed logging, as `mkfs.xfs` makes it: checksums, and free inodes in a tree.
//!
//! Sources: the kernel's `Documentation/filesystems/xfs/` (delayed logging; the layout of inodes,
//! directories and free space), the rules of `fs/xfs` of Linux 6.18 and `xfs_log_format.h`:
//!
//! - A change marks parts of items in memory: 128-byte chunks of blocks, or an inode with its list
//!   of extents. A checkpoint writes all marked parts to the log, in one piece that fills whole
//!   sectors. An item that changes again is logged again.
//! - A checkpoint is made by an fsync of a file that waits for one; by an fdatasync if more than
//!   the times of the file wait; by a sync of a directory that waits; by `sync`; and every 30 s
//!   (`fs.xfs.xfssyncd_centisecs`).
//! - Then, every 30 s, items that an earlier checkpoint logged are written in place: a block of
//!   4 KiB, a sector of a group's headers, or the 16 KiB in which an inode lies.
//! - A group (one of four) has headers of free space (AGF) and inodes (AGI), two trees of free
//!   space and two of inodes. Files lie in the group of their directory; new directories take the
//!   groups in turn.
//! - A file that grows takes 64 KiB, or as much as it has, beyond its end.
//! - When nothing has changed for 30 s, the log is covered: twice the superblock is logged and
//!   written.
//!
//! Not modelled: a log that is full, more than 8 MiB of changes at once, reverse mappings, shared
//! extents, and what traces do not contain (see `ext4.rs`).

use super::{BlockRequest, Logged, Metadata, MetadataSpec};
use crate::writeback::{Modes, Syncs};
use flashsift_caches::trace::{DirectoryId, Entry, OperationKind, ROOT};
use flashsift_events::{
    address::Lba,
    event::{FileId, FileSystemKind},
    page::PAGE_BYTES,
    params::{Param, ParamKind, Params},
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[cfg(test)]
mod tests;

pub(super) const SPEC: MetadataSpec = MetadataSpec {
    name: "xfs",
    layout: "ext4",
    file_system: FileSystemKind::Xfs,
    what: "XFS's log, and its inodes, directories and headers of groups in place",
    params: PARAMS,
    build: |_, params, modes| Box::new(Xfs::new(params, modes)),
    streaming: |params, modes| Box::new(Xfs::new(params, modes)),
};

const PARAMS: &[Param] = &[
    Param {
        name: "commit",
        what: "interval at which the log is written, and then what is old in place",
        kind: ParamKind::Duration {
            default_us: 30_000_000,
            min_us: 1_000_000,
            max_us: 3_600_000_000,
        },
    },
    Param {
        name: "sector",
        what: "sector of the device, bytes",
        kind: ParamKind::Word(&["4096", "512"]),
    },
];

const GROUPS: u64 = 4;
const CHUNK_BYTES: u64 = 128;
/// Inodes of 512 bytes are allocated by 64 and written by 32.
const CHUNK_INODES: u64 = 64;
const CLUSTER_INODES: u64 = 32;
const CLUSTER_BYTES: u64 = 16 << 10;
/// Bytes for extents or names in an inode, behind its core.
const FORK_BYTES: u64 = 512 - 176;
const EXTENT_BYTES: u64 = 16;
/// Extents in a leaf of a file's tree, behind its header of 72 bytes.
const LEAF_EXTENTS: u64 = (PAGE_BYTES - 72) / EXTENT_BYTES;
/// Least number of pages that a growing file takes beyond its end.
const AHEAD_PAGES: u64 = 16;
/// The header of each write to the log; its size is that of a record of 32 KiB.
const RECORD_HEADER_BYTES: u64 = 512;
const RECORD_BYTES: u64 = 32 << 10;
/// A header before each region in the log, and the regions that a checkpoint has beside items: its
/// beginning, its transaction's header of 16 bytes, its end.
const REGION_BYTES: u64 = 12;
const CHECKPOINT_BYTES: u64 = 3 * REGION_BYTES + 16;
/// The description of a changed buffer and of an inode, and the inode's core.
const BUFFER_FORMAT_BYTES: u64 = 24;
const INODE_FORMAT_BYTES: u64 = 56;
const INODE_CORE_BYTES: u64 = 176;
/// The log of a small file system: 64 MiB.
const LOG_PAGES: u64 = 16 << 10;
/// Places for clusters of inodes, and for blocks of directories and of extents.
const AREA_PAGES: u64 = 1 << 20;
/// The clock of time stamps: CONFIG_HZ=250.
const CLOCK_US: u64 = 4_000;
const DAY_US: u64 = 86_400_000_000;

/// The unit that is changed, logged and written in place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Item {
    Superblock,
    Header(u64, Header),
    /// A cluster of inodes that was made.
    Cluster(u64),
    /// An inode, by number.
    Inode(u64),
    /// A block of a directory, or of a file's tree of extents.
    Block(u64),
}

/// A block at the beginning of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Header {
    FreeSpace,
    Inodes,
    ByPlace,
    BySize,
    InodeTree,
    FreeInodeTree,
}

/// The change of an item that waits for a checkpoint.
#[derive(Clone, Copy, Debug, Default)]
struct Change {
    /// Of a block: the chunks that changed. Of an inode: not 0 if its fork changed, too.
    chunks: u32,
    /// The file that changed it first.
    file: Option<FileId>,
}

struct File {
    inode: u64,
    links: u32,
    size: Option<u64>,
    /// A size that will be in the inode when the data is written.
    grows: bool,
    extents: Extents,
    /// The end of the pages that the file has taken.
    room: u64,
    changed: Option<u64>,
    read: Option<u64>,
    /// Checkpoints that a sync of the file, or of its data, needs.
    needs: u64,
    data_needs: u64,
}

/// The runs of pages whose places follow one another: first page to length and place.
#[derive(Default)]
struct Extents {
    runs: BTreeMap<u64, (u64, Lba)>,
    leaves: Vec<u64>,
}

struct Dir {
    inode: u64,
    names: u64,
    /// Bytes of the names in an inode, and as entries of a block.
    short_bytes: u64,
    entry_bytes: u64,
    blocks: Vec<u64>,
    leaves: Vec<u64>,
    needs: u64,
}

struct Xfs {
    sector_bytes: u64,
    interval_us: u64,
    syncs: bool,
    /// The last tick.
    last_us: u64,
    files: HashMap<FileId, File, FixedState>,
    directories: HashMap<DirectoryId, Dir, FixedState>,
    entries: HashMap<DirectoryId, Entry, FixedState>,
    /// By group: free inodes in chunks that were made, and the number of chunks.
    free_inodes: [BTreeSet<u64>; GROUPS as usize],
    inode_chunks: [u64; GROUPS as usize],
    next_group: u64,
    next_block: u64,
    free_blocks: Vec<u64>,
    /// Changed and not logged; logged and not in place. An item can be both.
    waiting: BTreeMap<Item, Change>,
    logged: BTreeSet<Item>,
    /// Inodes whose fork changed since they were written in place: it is logged with them.
    forks: BTreeMap<u64, u64>,
    /// The number of the running checkpoint.
    checkpoint: u64,
    /// How often the log is still to be covered.
    uncovered: u8,
    log_pages: u64,
    /// Bytes of the log and in place that do not fill a page yet.
    rest: [u64; 2],
    commits: u64,
    last: Vec<Logged>,
    requests: VecDeque<BlockRequest>,
}

impl Extents {
    /// Adds a page, and returns whether the number of runs or a run has changed.
    fn insert(&mut self, page: u64, lba: Lba) {
        self.remove(page);
        let before = self.runs.range(..page).next_back().map(|(first, run)| (*first, *run));
        let joins_before =
            before.filter(|(first, (len, at))| first + len == page && at + len == lba);
        let after = self.runs.get(&(page + 1)).copied().filter(|(_, at)| *at == lba + 1);
        if after.is_some() {
            self.runs.remove(&(page + 1));
        }
        let more = after.map_or(0, |(len, _)| len);
        match joins_before {
            Some((first, (len, at))) => self.runs.insert(first, (len + 1 + more, at)),
            None => self.runs.insert(page, (1 + more, lba)),
        };
    }

    fn remove(&mut self, page: u64) {
        let Some((first, (len, at))) =
            self.runs.range(..=page).next_back().map(|(first, run)| (*first, *run))
        else {
            return;
        };
        if page >= first + len {
            return;
        }
        self.runs.remove(&first);
        if page > first {
            self.runs.insert(first, (page - first, at));
        }
        let left = first + len - page - 1;
        if left > 0 {
            self.runs.insert(page + 1, (left, at + page + 1 - first));
        }
    }

    fn end(&self) -> u64 {
        self.runs.last_key_value().map_or(0, |(first, (len, _))| first + len)
    }

    fn is_inline(&self) -> bool {
        self.runs.len() as u64 * EXTENT_BYTES <= FORK_BYTES
    }

    /// The leaves that the number of runs needs, about three quarters full.
    fn leaves_needed(&self) -> usize {
        match self.is_inline() {
            true => 0,
            false => (self.runs.len() as u64).div_ceil(LEAF_EXTENTS * 3 / 4) as usize,
        }
    }
}

impl Dir {
    fn new(inode: u64) -> Self {
        Self {
            inode,
            names: 0,
            short_bytes: 6,
            entry_bytes: 0,
            blocks: Vec::new(),
            leaves: Vec::new(),
            needs: 0,
        }
    }

    /// The blocks of entries and of hashes that the names need: none in the inode, one with both,
    /// or blocks of each.
    fn blocks_needed(&self) -> (usize, usize) {
        // `.` and `..` take 32 bytes, the header of a block 64, its end 8, a hash 8.
        let entries = self.entry_bytes + 32;
        let hashes = 8 * (self.names + 2);
        if self.short_bytes <= FORK_BYTES {
            (0, 0)
        } else if entries + hashes + 64 + 8 <= PAGE_BYTES {
            (1, 0)
        } else {
            let leaves = match hashes + 64 <= PAGE_BYTES - 128 {
                true => 1,
                // Leaves below a node, beside the block of free space.
                false => hashes.div_ceil((PAGE_BYTES - 64) * 3 / 4) as usize + 2,
            };
            (entries.div_ceil(PAGE_BYTES - 64) as usize, leaves)
        }
    }

    fn fork_bytes(&self) -> u64 {
        match self.blocks.len() + self.leaves.len() {
            0 => self.short_bytes.next_multiple_of(4),
            blocks => EXTENT_BYTES * (blocks as u64).min(4),
        }
    }
}

impl Xfs {
    fn new(params: &Params, modes: &Modes) -> Self {
        let mut this = Self {
            sector_bytes: params.word(PARAMS, "sector").parse().unwrap_or(PAGE_BYTES),
            interval_us: params.duration_us(PARAMS, "commit"),
            syncs: modes.syncs != Syncs::Nothing,
            last_us: 0,
            files: HashMap::default(),
            directories: HashMap::default(),
            entries: HashMap::default(),
            free_inodes: Default::default(),
            inode_chunks: [0; GROUPS as usize],
            next_group: 1,
            next_block: 0,
            free_blocks: Vec::new(),
            waiting: BTreeMap::new(),
            logged: BTreeSet::new(),
            forks: BTreeMap::new(),
            checkpoint: 1,
            uncovered: 0,
            log_pages: 0,
            rest: [0; 2],
            commits: 0,
            last: Vec::new(),
            requests: VecDeque::new(),
        };
        let (inode, _) = this.take_inode(0);
        this.directories.insert(ROOT, Dir::new(inode));
        this
    }

    /// Marks chunks of an item, and returns the checkpoint that will log them.
    fn change(&mut self, item: Item, chunks: u32, file: Option<FileId>) -> u64 {
        let change = self.waiting.entry(item).or_insert(Change { chunks: 0, file });
        change.chunks |= chunks;
        self.uncovered = 2;
        self.checkpoint
    }

    fn change_header(&mut self, group: u64, header: Header, file: Option<FileId>) {
        // The counts are in the first chunk of each; the first records of a tree, too.
        self.change(Item::Header(group, header), 1, file);
    }

    /// Blocks of a group are allocated or freed.
    fn count_blocks(&mut self, group: u64, file: Option<FileId>) {
        for header in [Header::FreeSpace, Header::ByPlace, Header::BySize] {
            self.change_header(group, header, file);
        }
    }

    /// An inode is allocated or freed.
    fn count_inodes(&mut self, group: u64, file: Option<FileId>) {
        for header in [Header::Inodes, Header::InodeTree, Header::FreeInodeTree] {
            self.change_header(group, header, file);
        }
    }

    /// Changes an inode; `fork_bytes`: its list of extents or names changes, too.
    fn change_inode(&mut self, inode: u64, fork_bytes: Option<u64>, file: Option<FileId>) -> u64 {
        self.forks.extend(fork_bytes.map(|bytes| (inode, bytes)));
        self.change(Item::Inode(inode), 0, file)
    }

    fn take_block(&mut self) -> u64 {
        self.free_blocks.pop().unwrap_or_else(|| {
            self.next_block += 1;
            self.next_block - 1
        })
    }

    fn free_block(&mut self, block: u64) {
        self.free_blocks.push(block);
        // A stale buffer is logged, and never written in place.
        self.waiting.remove(&Item::Block(block));
        self.logged.remove(&Item::Block(block));
    }

    /// Returns a free inode of a group, and whether a chunk of inodes was made for it.
    fn take_inode(&mut self, group: u64) -> (u64, bool) {
        let free = &mut self.free_inodes[group as usize];
        let is_new = free.is_empty();
        if is_new {
            let chunks = &mut self.inode_chunks[group as usize];
            let first = (*chunks * GROUPS + group) * CHUNK_INODES;
            *chunks += 1;
            free.extend(first..first + CHUNK_INODES);
        }
        (free.pop_first().expect("a chunk was just made"), is_new)
    }

    /// Allocates an inode.
    fn allocate_inode(&mut self, group: u64, file: Option<FileId>) -> u64 {
        let (inode, is_new) = self.take_inode(group);
        if is_new {
            self.count_blocks(group, file);
            let first = inode / CHUNK_INODES * (CHUNK_INODES / CLUSTER_INODES);
            for cluster in first..first + CHUNK_INODES / CLUSTER_INODES {
                self.change(Item::Cluster(cluster), 1, file);
            }
        }
        self.count_inodes(group, file);
        inode
    }

    fn directory(&mut self, number: DirectoryId) -> u64 {
        if let Some(directory) = self.directories.get(&number) {
            return directory.inode;
        }
        let group = self.group_for_directory();
        let (inode, _) = self.take_inode(group);
        self.directories.insert(number, Dir::new(inode));
        inode
    }

    fn group_for_directory(&mut self) -> u64 {
        self.next_group += 1;
        (self.next_group - 1) % GROUPS
    }

    fn make_directory(&mut self, number: DirectoryId) {
        if self.directories.contains_key(&number) {
            return;
        }
        let group = self.group_for_directory();
        let inode = self.allocate_inode(group, None);
        let needs = self.change_inode(inode, Some(6), None);
        self.directories.insert(number, Dir { needs, ..Dir::new(inode) });
        if let Some(entry) = self.entries.get(&number).copied() {
            self.change_names(&entry, true, None);
        }
    }

    /// Adds an entry to a directory, or removes it.
    fn change_names(&mut self, entry: &Entry, is_added: bool, file: Option<FileId>) {
        let inode = self.directory(entry.directory);
        let group = group_of(inode);
        let mut dir = self.directories.remove(&entry.directory).expect("it was just met");
        let name = u64::from(entry.bytes);
        let (short, long) = (name + 8, (name + 12).next_multiple_of(8));
        if is_added {
            dir.names += 1;
            dir.short_bytes += short;
            dir.entry_bytes += long;
        } else {
            dir.names = dir.names.saturating_sub(1);
            dir.short_bytes = dir.short_bytes.saturating_sub(short).max(6);
            dir.entry_bytes = dir.entry_bytes.saturating_sub(long);
        }
        let (blocks, leaves) = dir.blocks_needed();
        // Blocks that became empty in the middle stay.
        let blocks =
            if dir.short_bytes > FORK_BYTES { blocks.max(dir.blocks.len()) } else { blocks };
        let before = dir.blocks.len() + dir.leaves.len();
        for (list, needed) in [(&mut dir.blocks, blocks), (&mut dir.leaves, leaves)] {
            while list.len() < needed {
                let block = self.take_block();
                self.change(Item::Block(block), u32::MAX, file);
                list.push(block);
            }
            while list.len() > needed {
                let block = list.pop().expect("it is not empty");
                self.free_block(block);
            }
        }
        if dir.blocks.len() + dir.leaves.len() != before {
            self.count_blocks(group, file);
        }
        let hash = entry.hash as usize;
        let at = match is_added {
            true => dir.blocks.last(),
            false => dir.blocks.get(hash % dir.blocks.len().max(1)),
        };
        if let Some(block) = at {
            // The header, the entry, and in the only block the hashes and the end.
            let ends = if dir.leaves.is_empty() { 0xc000_0000 } else { 0 };
            self.change(Item::Block(*block), 1 | 1 << (hash / 7 % 32) | ends, file);
        }
        if let Some(leaf) = dir.leaves.get(hash % dir.leaves.len().max(1)) {
            // The hashes behind it move.
            let used = (8 * dir.names / dir.leaves.len() as u64).div_ceil(CHUNK_BYTES).min(32);
            let moved = (1_u64 << used.div_ceil(2)) - 1;
            self.change(Item::Block(*leaf), (moved << (used / 2)) as u32 | 1, file);
        }
        dir.needs = self.change_inode(inode, Some(dir.fork_bytes()), file);
        self.directories.insert(entry.directory, dir);
    }

    fn new_file(&mut self, id: FileId, entry: Option<Entry>, inode: u64) -> &mut File {
        self.files.entry(id).or_insert(File {
            inode,
            links: u32::from(entry.is_some()),
            size: None,
            grows: false,
            extents: Extents::default(),
            room: 0,
            changed: None,
            read: None,
            needs: 0,
            data_needs: 0,
        })
    }

    /// Returns a file; one that was there before, or has no name, gets an inode.
    fn file(&mut self, id: FileId, entry: Option<Entry>) -> &mut File {
        if !self.files.contains_key(&id) {
            let directory = self.directory(entry.map_or(ROOT, |entry| entry.directory));
            let (inode, _) = self.take_inode(group_of(directory));
            self.new_file(id, entry, inode);
        }
        self.files.get_mut(&id).expect("it is there")
    }

    /// Changes a file's inode: its times, or also its size and extents.
    fn change_file(&mut self, id: FileId, data: bool) {
        let file = self.file(id, None);
        let (inode, extents) = (file.inode, file.extents.runs.len() as u64 * EXTENT_BYTES);
        let fork = if file.extents.is_inline() { extents } else { EXTENT_BYTES };
        let needs = self.change_inode(inode, data.then_some(fork), Some(id));
        let file = self.file(id, None);
        file.needs = needs;
        if data {
            (file.data_needs, file.grows) = (needs, false);
        }
    }

    fn create(&mut self, at_us: u64, id: FileId, entry: Option<Entry>) {
        if self.files.contains_key(&id) {
            return;
        }
        let directory = self.directory(entry.map_or(ROOT, |entry| entry.directory));
        let inode = self.allocate_inode(group_of(directory), Some(id));
        match &entry {
            Some(entry) => self.change_names(entry, true, Some(id)),
            None => self.change_unlinked(inode, id),
        }
        let file = self.new_file(id, entry, inode);
        (file.size, file.changed) = (Some(0), Some(at_us / CLOCK_US));
        self.change_file(id, true);
    }

    /// The list of files without a name changes: 64 of them in the header of the group's inodes.
    fn change_unlinked(&mut self, inode: u64, file: FileId) {
        let chunk = (40 + 4 * (inode % 64)) / CHUNK_BYTES;
        self.change(Item::Header(group_of(inode), Header::Inodes), 1 << chunk, Some(file));
    }

    fn gone(&mut self, id: FileId) {
        let Some(file) = self.files.remove(&id) else { return };
        for leaf in file.extents.leaves {
            self.free_block(leaf);
        }
        if !file.extents.runs.is_empty() {
            self.count_blocks(group_of(file.inode), Some(id));
        }
        self.count_inodes(group_of(file.inode), Some(id));
        self.change_unlinked(file.inode, id);
        self.change_inode(file.inode, Some(0), Some(id));
        self.free_inodes[group_of(file.inode) as usize].insert(file.inode);
    }

    /// The blocks of a file's tree of extents change.
    fn change_extents(&mut self, id: FileId, page: u64) {
        let file = self.file(id, None);
        let (needed, group) = (file.extents.leaves_needed(), group_of(file.inode));
        if needed + file.extents.leaves.len() == 0 {
            return;
        }
        let mut leaves = std::mem::take(&mut file.extents.leaves);
        if leaves.len() != needed {
            self.count_blocks(group, Some(id));
        }
        while leaves.len() < needed {
            leaves.push(self.take_block());
        }
        for leaf in leaves.split_off(needed) {
            self.free_block(leaf);
        }
        let end = self.file(id, None).extents.end().max(page + 1);
        if let Some(leaf) = leaves.get((page * leaves.len() as u64 / end) as usize) {
            self.change(Item::Block(*leaf), 1 | 1 << (page % 32), Some(id));
        }
        self.file(id, None).extents.leaves = leaves;
    }

    /// Writes bytes to the log or in place; what does not fill a page comes with a later write.
    fn write(&mut self, lba: Lba, bytes: u64, journal: bool, awaited: bool) {
        let rest = &mut self.rest[usize::from(journal)];
        *rest += bytes;
        let pages = *rest / PAGE_BYTES;
        *rest %= PAGE_BYTES;
        if pages > 0 {
            self.requests.push_back(BlockRequest::Write { lba, pages, journal, awaited });
        }
    }

    fn write_log(&mut self, bytes: u64, awaited: bool) {
        // Each record has its header.
        let records = bytes.div_ceil(RECORD_BYTES - RECORD_HEADER_BYTES).max(1);
        let bytes = (bytes + records * RECORD_HEADER_BYTES).next_multiple_of(self.sector_bytes);
        self.requests.push_back(BlockRequest::Flush { awaited });
        let lba = self.log_pages % LOG_PAGES;
        self.log_pages += bytes.div_ceil(PAGE_BYTES);
        self.write(lba, bytes, true, awaited);
        self.requests.push_back(BlockRequest::Flush { awaited });
        self.commits += 1;
    }

    /// Logs everything that waits, and returns whether anything did.
    fn force(&mut self, awaited: bool) -> bool {
        if self.waiting.is_empty() {
            return false;
        }
        self.last.clear();
        self.checkpoint += 1;
        let mut bytes = CHECKPOINT_BYTES;
        for (item, change) in std::mem::take(&mut self.waiting) {
            bytes += self.logged_bytes(item, change.chunks);
            self.last.push(Logged { lba: self.lba(item), file: change.file });
            self.logged.insert(item);
        }
        self.last.sort_unstable_by_key(|logged| logged.lba);
        self.write_log(bytes, awaited);
        true
    }

    fn logged_bytes(&self, item: Item, chunks: u32) -> u64 {
        match item {
            Item::Inode(inode) => {
                let fork = self.forks.get(&inode).filter(|bytes| **bytes > 0);
                2 * REGION_BYTES
                    + INODE_FORMAT_BYTES
                    + INODE_CORE_BYTES
                    + fork.map_or(0, |bytes| REGION_BYTES + bytes)
            }
            // That it was made is logged, not its content.
            Item::Cluster(_) => REGION_BYTES + BUFFER_FORMAT_BYTES,
            _ => {
                let ranges = (chunks & !(chunks << 1)).count_ones();
                REGION_BYTES * u64::from(1 + ranges)
                    + BUFFER_FORMAT_BYTES
                    + CHUNK_BYTES * u64::from(chunks.count_ones())
            }
        }
    }

    /// Writes items in place that earlier checkpoints logged.
    fn write_in_place(&mut self) {
        let items = std::mem::take(&mut self.logged);
        let mut places = BTreeMap::new();
        for item in items {
            if let Item::Inode(inode) = item {
                self.forks.remove(&inode);
            }
            places.insert(self.lba(item), self.in_place_bytes(item));
        }
        for (lba, bytes) in places {
            self.write(lba, bytes, false, false);
        }
    }

    fn in_place_bytes(&self, item: Item) -> u64 {
        match item {
            Item::Superblock | Item::Header(_, Header::FreeSpace | Header::Inodes) => {
                self.sector_bytes
            }
            Item::Cluster(_) | Item::Inode(_) => CLUSTER_BYTES,
            Item::Header(..) | Item::Block(_) => PAGE_BYTES,
        }
    }

    fn lba(&self, item: Item) -> Lba {
        let cluster = |n: u64| {
            let pages = CLUSTER_BYTES / PAGE_BYTES;
            LOG_PAGES + 64 + n % (AREA_PAGES / pages) * pages
        };
        match item {
            Item::Superblock => LOG_PAGES,
            Item::Header(group, header) => LOG_PAGES + 1 + group * 8 + header as u64,
            Item::Cluster(n) => cluster(n),
            Item::Inode(n) => cluster(n / CLUSTER_INODES),
            Item::Block(n) => LOG_PAGES + 64 + AREA_PAGES + n % AREA_PAGES,
        }
    }

    /// Logs the superblock and writes it.
    fn cover(&mut self, awaited: bool) {
        self.change(Item::Superblock, 0b11, None);
        self.force(awaited);
        self.write_in_place();
    }

    fn sync(&mut self, id: FileId, data_only: bool) {
        if !self.syncs {
            return;
        }
        if self.file(id, None).grows {
            self.change_file(id, true);
        }
        let file = self.file(id, None);
        let needs = if data_only { file.data_needs } else { file.needs };
        if needs < self.checkpoint || !self.force(true) {
            self.requests.push_back(BlockRequest::Flush { awaited: true });
        }
    }
}

fn group_of(inode: u64) -> u64 {
    inode / CHUNK_INODES % GROUPS
}

impl Metadata for Xfs {
    fn operation(&mut self, at_us: u64, operation: &OperationKind) {
        let now = at_us / CLOCK_US;
        match *operation {
            OperationKind::MakeDirectory(number) => self.make_directory(number),
            OperationKind::MoveDirectory { directory, from, to } => {
                self.change_names(&from, false, None);
                self.change_names(&to, true, None);
                let inode = self.directory(directory);
                self.change_inode(inode, None, None);
            }
            OperationKind::Exists(file, entry) => {
                let is_known = self.files.contains_key(&file);
                let links = &mut self.file(file, entry).links;
                *links += u32::from(is_known);
            }
            OperationKind::Create(file, entry) => self.create(at_us, file, entry),
            OperationKind::Link(file, entry) => {
                self.change_names(&entry, true, Some(file));
                self.file(file, None).links += 1;
                self.change_file(file, false);
            }
            OperationKind::Unlink(id, entry) => {
                self.change_names(&entry, false, Some(id));
                let file = self.file(id, None);
                file.links = file.links.saturating_sub(1);
                let (is_last, inode) = (file.links == 0, file.inode);
                if is_last {
                    self.change_unlinked(inode, id);
                }
                self.change_file(id, false);
            }
            OperationKind::Rename { file, from, to, .. } => {
                self.change_names(&to, true, Some(file));
                self.change_names(&from, false, Some(file));
                self.change_file(file, false);
            }
            OperationKind::Close(id) => {
                let file = self.file(id, None);
                let end = file.size.map_or(file.room, |size| size.div_ceil(PAGE_BYTES));
                if file.room > end {
                    file.room = end;
                    let group = group_of(file.inode);
                    self.count_blocks(group, Some(id));
                    self.change_file(id, true);
                }
            }
            OperationKind::Gone(file) => self.gone(file),
            OperationKind::Read(id) => {
                let file = self.file(id, None);
                let is_old = match (file.read, file.changed) {
                    (Some(read), changed) => {
                        changed >= Some(read) || now - read >= DAY_US / CLOCK_US
                    }
                    (None, _) => true,
                };
                if is_old && file.read.replace(now) != Some(now) {
                    self.change_file(id, false);
                }
            }
            OperationKind::Write(id, end) => {
                let file = self.file(id, None);
                let is_later = file.changed.replace(now) != Some(now);
                if file.size.is_some_and(|size| end > size) {
                    (file.size, file.grows) = (Some(end), true);
                }
                if is_later {
                    self.change_file(id, false);
                }
            }
            OperationKind::Truncate(id, size) => {
                let file = self.file(id, None);
                (file.size, file.changed) = (Some(size), Some(now));
                file.room = file.room.min(size.div_ceil(PAGE_BYTES));
                self.change_file(id, true);
            }
            OperationKind::Punch(file) | OperationKind::Fill(file, _) => {
                self.change_file(file, true);
            }
            OperationKind::Size(file, size) => {
                let file = self.file(file, None);
                (file.size, file.room) = (Some(size), size.div_ceil(PAGE_BYTES));
            }
            OperationKind::Sync { file, data_only } => self.sync(file, data_only),
            OperationKind::SyncDirectory(number) => {
                let waits = |dir: &Dir| dir.needs >= self.checkpoint;
                if self.syncs && self.directories.get(&number).is_some_and(waits) {
                    self.force(true);
                }
            }
            OperationKind::SyncAll => {
                if self.syncs {
                    self.force(true);
                }
            }
        }
    }

    fn placed(&mut self, _: u64, id: FileId, page: u64, lba: Lba) {
        let file = self.file(id, None);
        let group = group_of(file.inode);
        let ends = file.size.is_none_or(|size| (page + 1) * PAGE_BYTES >= size);
        file.extents.insert(page, lba);
        let has_room = page < file.room;
        if !has_room {
            // Half as much again as the file has, as the last extent is doubled.
            let ahead = if ends { AHEAD_PAGES.max(page / 2) } else { 0 };
            file.room = page + 1 + ahead;
            self.count_blocks(group, Some(id));
        }
        self.change_extents(id, page);
        self.change_file(id, true);
    }

    fn freed(&mut self, _: u64, id: FileId, page: u64, _: Lba) {
        // Of a file that is gone, nothing else changes.
        let Some(file) = self.files.get_mut(&id) else { return };
        file.extents.remove(page);
        let group = group_of(file.inode);
        self.count_blocks(group, Some(id));
        self.change_extents(id, page);
        self.change_file(id, true);
    }

    fn met_directory(&mut self, directory: DirectoryId, entry: Option<Entry>) {
        self.entries.extend(entry.map(|entry| (directory, entry)));
    }

    fn next_deadline(&self) -> Option<u64> {
        let waits = !self.waiting.is_empty() || !self.logged.is_empty() || self.uncovered > 0;
        waits.then(|| self.last_us.saturating_add(self.interval_us))
    }

    fn tick(&mut self, at_us: u64) {
        self.last_us = at_us;
        if self.waiting.is_empty() && self.logged.is_empty() {
            if self.uncovered > 0 {
                let left = self.uncovered - 1;
                self.cover(false);
                self.uncovered = left;
            }
            return;
        }
        let is_pinned = |item: &Item| self.waiting.contains_key(item);
        let old = std::mem::take(&mut self.logged).into_iter().filter(|item| !is_pinned(item));
        let old = old.collect();
        self.force(false);
        let new = std::mem::replace(&mut self.logged, old);
        self.write_in_place();
        self.logged = new;
    }

    fn unmount(&mut self, _: u64) {
        if self.next_deadline().is_none() {
            return;
        }
        self.force(true);
        self.write_in_place();
        self.cover(true);
        // The record that the log is clean.
        self.write_log(CHECKPOINT_BYTES, true);
        self.uncovered = 0;
    }

    fn poll(&mut self) -> Option<BlockRequest> {
        self.requests.pop_front()
    }

    fn address(&self, lba: Lba) -> Lba {
        LOG_PAGES + 64 + 2 * AREA_PAGES + lba
    }

    fn commits(&self) -> u64 {
        self.commits
    }

    fn last_commit(&self) -> &[Logged] {
        &self.last
    }

    fn held_bytes(&self) -> usize {
        self.files.allocation_size()
            + self.directories.allocation_size()
            + self.entries.allocation_size()
            // Nodes of a tree are at least half full.
            + 2 * self.waiting.len() * size_of::<(Item, Change)>()
            + 2 * self.logged.len() * size_of::<Item>()
            + 2 * self.forks.len() * size_of::<(u64, u64)>()
    }

    fn check(&self) {
        let free = |inode: &u64| self.free_inodes[group_of(*inode) as usize].contains(inode);
        assert!(!self.files.values().any(|file| free(&file.inode)), "a file's inode is taken");
        assert!(!self.directories.values().any(|dir| free(&dir.inode)));
        assert!(self.waiting.is_empty() || self.uncovered == 2);
        assert!(self.rest.iter().all(|bytes| *bytes < PAGE_BYTES));
        let blocks = self.directories.values().flat_map(|dir| dir.blocks.iter().chain(&dir.leaves));
        let leaves = self.files.values().flat_map(|file| &file.extents.leaves);
        let mut taken: Vec<_> = blocks.chain(leaves).chain(&self.free_blocks).collect();
        let all = taken.len();
        taken.sort_unstable();
        taken.dedup();
        assert_eq!((taken.len(), all as u64), (all, self.next_block), "each block has one user");
    }
}
