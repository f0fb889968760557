//! F2FS: node blocks at fsync, everything else at checkpoints.
//!
//! Sources: Lee et al., "F2FS: A New File System for Flash Storage", FAST '15, §2; the kernel's
//! `Documentation/filesystems/f2fs.rst` and the rules of `fs/f2fs` of Linux 6.18:
//!
//! - Each file and each directory has an inode block, which addresses 923 pages; each direct node
//!   block addresses 1,018 more. A page that is written back gets another place, so its node block
//!   changes.
//! - An fsync writes the node blocks of the file that changed, and one flush. It makes a checkpoint
//!   if the file has several names, or got another name since the last checkpoint.
//! - A checkpoint is made 60 s after the last one if something changed, by `sync`, and at the end.
//!   It writes the dirty blocks of directories and all dirty node blocks; node addresses (NAT) and
//!   segments (SIT) that changed, in the journal of the summaries if they are few (38 and 6), else
//!   as blocks of 455 and 55 entries; a pack of a header, the orphans, the summaries of the open
//!   segments, and a footer, with two flushes.
//! - A summary block (SSA) is written for each segment of 512 blocks that data or nodes fill.
//! - A directory with up to 182 slots of 8 bytes of names lies in its inode; a larger one has
//!   blocks of 214 slots.
//!
//! Compared with Debian's kernels in `experiments/kernels`. Not modelled: data in inodes, updates
//! in place at fsync, compression, cleaning, and what traces do not contain (see `ext4.rs`).

use super::{BlockRequest, Logged, Metadata, MetadataSpec};
use crate::writeback::{Modes, Syncs};
use flashsift_caches::trace::{DirectoryId, Entry, OperationKind};
use flashsift_events::{
    address::Lba,
    event::{FileId, FileSystemKind},
    params::{Param, ParamKind, Params},
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[cfg(test)]
mod tests;

pub(super) const SPEC: MetadataSpec = MetadataSpec {
    name: "f2fs",
    layout: "f2fs",
    file_system: FileSystemKind::F2fs,
    what: "F2FS's node blocks, directories and checkpoints",
    params: PARAMS,
    build: |_, params, modes| Box::new(F2fs::new(params, modes)),
    streaming: |params, modes| Box::new(F2fs::new(params, modes)),
};

const PARAMS: &[Param] = &[Param {
    name: "checkpoint",
    what: "interval of checkpoints",
    kind: ParamKind::Duration { default_us: 60_000_000, min_us: 1_000_000, max_us: 3_600_000_000 },
}];

/// Addresses in an inode block and in a direct node block.
const INODE_ADDRESSES: u64 = 923;
const NODE_ADDRESSES: u64 = 1_018;
/// Slots of names in an inode and in a block of a directory.
const INODE_SLOTS: u32 = 182;
const BLOCK_SLOTS: u32 = 214;
/// Entries of the node address table and of the segment table, in a journal and in a block.
const NAT_JOURNAL: usize = 38;
const NAT_BLOCK: u64 = 455;
const SIT_JOURNAL: usize = 6;
const SIT_BLOCK: u64 = 55;
/// Entries of a block of orphans.
const ORPHAN_BLOCK: u64 = 1_020;
const SEGMENT_PAGES: u64 = 512;
/// The clock of time stamps: CONFIG_HZ=250.
const CLOCK_US: u64 = 4_000;
const DAY_US: u64 = 86_400_000_000;
/// Blocks for the checkpoint packs, tables and summaries; for nodes and directories. Each is a
/// ring here.
const AREA_PAGES: u64 = 16_384;

/// A file or a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Owner {
    Directory(DirectoryId),
    File(FileId),
}

/// Number 0 is the inode, the others are direct nodes.
type Node = (Owner, u64);

#[derive(Default)]
struct File {
    links: u32,
    was_renamed: bool,
    changed: Option<u64>,
    read: Option<u64>,
    /// Direct nodes that were written.
    nodes: BTreeSet<u64>,
}

struct F2fs {
    checkpoint_us: u64,
    syncs: bool,
    files: HashMap<FileId, File, FixedState>,
    /// By directory: the used slots of its names.
    slots: HashMap<DirectoryId, u32, FixedState>,
    /// Numbers of the node address table.
    numbers: BTreeMap<Node, u64>,
    next_number: u64,
    dirty_nodes: BTreeSet<Node>,
    /// Blocks of directories, by number.
    dirty_names: BTreeSet<(DirectoryId, u32)>,
    /// Since the last checkpoint: numbers of nodes that moved, and segments that changed.
    moved: BTreeSet<u64>,
    segments: BTreeSet<u64>,
    orphans: BTreeSet<FileId>,
    last_us: u64,
    /// Blocks written to the logs of data and of nodes.
    data: u64,
    nodes: u64,
    tables: u64,
    commits: u64,
    last: Vec<Logged>,
    requests: VecDeque<BlockRequest>,
}

impl F2fs {
    fn new(params: &Params, modes: &Modes) -> Self {
        Self {
            checkpoint_us: params.duration_us(PARAMS, "checkpoint"),
            syncs: modes.syncs != Syncs::Nothing,
            files: HashMap::default(),
            slots: HashMap::default(),
            numbers: BTreeMap::new(),
            next_number: 4,
            dirty_nodes: BTreeSet::new(),
            dirty_names: BTreeSet::new(),
            moved: BTreeSet::new(),
            segments: BTreeSet::new(),
            orphans: BTreeSet::new(),
            last_us: 0,
            data: 0,
            nodes: 0,
            tables: 0,
            commits: 0,
            last: Vec::new(),
            requests: VecDeque::new(),
        }
    }

    fn change(&mut self, owner: Owner) {
        self.dirty_nodes.insert((owner, 0));
    }

    /// Writes a checkpoint's or a table's block.
    fn write_table(&mut self, pages: u64, awaited: bool) {
        for _ in 0..pages {
            let lba = self.tables % AREA_PAGES;
            self.requests.push_back(BlockRequest::Write { lba, pages: 1, journal: true, awaited });
            self.tables += 1;
        }
    }

    /// Appends a block to the log of nodes and directories.
    fn write_node(&mut self, awaited: bool) {
        let lba = AREA_PAGES + self.nodes % AREA_PAGES;
        self.requests.push_back(BlockRequest::Write { lba, pages: 1, journal: false, awaited });
        self.nodes += 1;
        // The lowest bit distinguishes segments of data and of nodes.
        self.segments.insert(lba / SEGMENT_PAGES * 2 + 1);
        if self.nodes.is_multiple_of(SEGMENT_PAGES) {
            self.write_table(1, false);
        }
    }

    fn write_nodes(&mut self, nodes: Vec<Node>, awaited: bool) {
        for node in nodes {
            self.dirty_nodes.remove(&node);
            let number = *self.numbers.entry(node).or_insert_with(|| {
                self.next_number += 1;
                self.next_number - 1
            });
            self.moved.insert(number);
            let file = match node.0 {
                Owner::File(file) => Some(file),
                Owner::Directory(_) => None,
            };
            self.last.push(Logged { lba: AREA_PAGES + self.nodes % AREA_PAGES, file });
            self.write_node(awaited);
        }
    }

    fn checkpoint(&mut self, at_us: u64, unmounts: bool, awaited: bool) {
        self.last_us = at_us;
        if !self.has_changes() {
            return;
        }
        self.last.clear();
        self.commits += 1;
        for (directory, _) in std::mem::take(&mut self.dirty_names) {
            self.change(Owner::Directory(directory));
            self.write_node(awaited);
        }
        let nodes = self.dirty_nodes.iter().copied().collect();
        self.write_nodes(nodes, awaited);
        let moved = std::mem::take(&mut self.moved);
        if moved.len() > NAT_JOURNAL {
            self.write_table(blocks(&moved, NAT_BLOCK), awaited);
        }
        let segments = std::mem::take(&mut self.segments);
        if segments.len() > SIT_JOURNAL {
            self.write_table(blocks(&segments, SIT_BLOCK), awaited);
        }
        let orphans = (self.orphans.len() as u64).div_ceil(ORPHAN_BLOCK);
        // The used part of the open segment's summary: 7 bytes an entry, behind the journals.
        let entries = self.data % SEGMENT_PAGES;
        let summaries = if entries <= 439 { 1 } else { 2 } + if unmounts { 3 } else { 0 };
        self.write_table(1 + orphans + summaries, awaited);
        self.requests.push_back(BlockRequest::Flush { awaited });
        self.write_table(1, awaited);
        self.requests.push_back(BlockRequest::Flush { awaited });
        self.files.values_mut().for_each(|file| file.was_renamed = false);
    }

    fn has_changes(&self) -> bool {
        !(self.dirty_nodes.is_empty()
            && self.dirty_names.is_empty()
            && self.moved.is_empty()
            && self.segments.is_empty())
    }

    fn add_name(&mut self, entry: &Entry) {
        let slots = self.slots.entry(entry.directory).or_default();
        let before = *slots;
        *slots += u32::from(entry.bytes).div_ceil(8);
        let after = *slots;
        self.change_name(entry, after.max(before));
    }

    fn remove_name(&mut self, entry: &Entry) {
        let slots = self.slots.entry(entry.directory).or_default();
        let before = *slots;
        *slots = slots.saturating_sub(u32::from(entry.bytes).div_ceil(8));
        self.change_name(entry, before);
    }

    fn change_name(&mut self, entry: &Entry, slots: u32) {
        if slots > INODE_SLOTS {
            let block = entry.hash % slots.div_ceil(BLOCK_SLOTS);
            self.dirty_names.insert((entry.directory, block));
        }
        self.change(Owner::Directory(entry.directory));
    }

    fn touch(&mut self, id: FileId) -> &mut File {
        self.change(Owner::File(id));
        self.files.entry(id).or_default()
    }

    fn gone(&mut self, id: FileId) {
        let Some(file) = self.files.remove(&id) else { return };
        self.orphans.remove(&id);
        for index in file.nodes.into_iter().chain([0]) {
            let node = (Owner::File(id), index);
            self.dirty_nodes.remove(&node);
            self.moved.extend(self.numbers.remove(&node));
        }
    }

    fn sync(&mut self, at_us: u64, id: FileId) {
        if !self.syncs {
            return;
        }
        let file = self.files.entry(id).or_default();
        if file.was_renamed || file.links > 1 {
            return self.checkpoint(at_us, false, true);
        }
        let owner = Owner::File(id);
        let nodes: Vec<Node> =
            self.dirty_nodes.range((owner, 0)..=(owner, u64::MAX)).copied().collect();
        self.last.clear();
        self.commits += 1;
        self.write_nodes(nodes, true);
        self.requests.push_back(BlockRequest::Flush { awaited: true });
    }
}

/// Returns in how many blocks of that many entries the numbers lie.
fn blocks(numbers: &BTreeSet<u64>, entries: u64) -> u64 {
    numbers.iter().map(|number| number / entries).collect::<BTreeSet<_>>().len() as u64
}

/// Returns the node that addresses a page.
fn node_of(page: u64) -> u64 {
    page.checked_sub(INODE_ADDRESSES).map_or(0, |page| page / NODE_ADDRESSES + 1)
}

impl Metadata for F2fs {
    fn operation(&mut self, at_us: u64, operation: &OperationKind) {
        let now = at_us / CLOCK_US;
        match *operation {
            OperationKind::MakeDirectory(number) => {
                self.change(Owner::Directory(number));
            }
            OperationKind::MoveDirectory { directory, from, to } => {
                self.remove_name(&from);
                self.add_name(&to);
                self.change(Owner::Directory(directory));
            }
            OperationKind::Exists(file, entry) => {
                self.files.entry(file).or_default().links += u32::from(entry.is_some());
            }
            OperationKind::Create(file, entry) if !self.files.contains_key(&file) => {
                if let Some(entry) = &entry {
                    self.add_name(entry);
                }
                let file = self.touch(file);
                (file.links, file.changed) = (u32::from(entry.is_some()), Some(now));
            }
            OperationKind::Link(file, entry) => {
                self.add_name(&entry);
                self.touch(file).links += 1;
                self.orphans.remove(&file);
            }
            OperationKind::Unlink(id, entry) => {
                self.remove_name(&entry);
                let file = self.touch(id);
                file.links = file.links.saturating_sub(1);
                if file.links == 0 {
                    self.orphans.insert(id);
                }
            }
            OperationKind::Rename { file, from, to, .. } => {
                self.remove_name(&from);
                self.add_name(&to);
                self.touch(file).was_renamed = true;
            }
            OperationKind::Gone(file) => self.gone(file),
            OperationKind::Read(id) => {
                let file = self.files.entry(id).or_default();
                let is_old = match (file.read, file.changed) {
                    (Some(read), changed) => {
                        changed >= Some(read) || now - read >= DAY_US / CLOCK_US
                    }
                    (None, _) => true,
                };
                if is_old && file.read.replace(now) != Some(now) {
                    self.change(Owner::File(id));
                }
            }
            OperationKind::Write(id, _) => {
                let file = self.files.entry(id).or_default();
                if file.changed.replace(now) != Some(now) {
                    self.change(Owner::File(id));
                }
            }
            OperationKind::Truncate(file, _) | OperationKind::Punch(file) => {
                self.touch(file).changed = Some(now);
            }
            OperationKind::Sync { file, .. } => self.sync(at_us, file),
            // A sync of a directory is a checkpoint.
            OperationKind::SyncAll | OperationKind::SyncDirectory(_) if self.syncs => {
                self.checkpoint(at_us, false, true);
            }
            _ => {}
        }
    }

    fn placed(&mut self, _: u64, file: FileId, page: u64, lba: Lba) {
        let node = node_of(page);
        if node > 0 {
            self.files.entry(file).or_default().nodes.insert(node);
        }
        self.files.entry(file).or_default();
        self.dirty_nodes.insert((Owner::File(file), node));
        self.segments.insert(lba / SEGMENT_PAGES * 2);
        self.data += 1;
        if self.data.is_multiple_of(SEGMENT_PAGES) {
            self.write_table(1, false);
        }
    }

    fn freed(&mut self, _: u64, file: FileId, page: u64, lba: Lba) {
        self.segments.insert(lba / SEGMENT_PAGES * 2);
        if self.files.contains_key(&file) {
            self.dirty_nodes.insert((Owner::File(file), node_of(page)));
        }
    }

    fn met_directory(&mut self, _: DirectoryId, _: Option<Entry>) {}

    fn held_bytes(&self) -> usize {
        self.files.allocation_size()
            + self.slots.allocation_size()
            // Nodes of a tree are at least half full.
            + 2 * self.numbers.len() * size_of::<(Node, u64)>()
            + 2 * self.dirty_nodes.len() * size_of::<Node>()
    }

    fn next_deadline(&self) -> Option<u64> {
        self.has_changes().then(|| self.last_us.saturating_add(self.checkpoint_us))
    }

    fn tick(&mut self, at_us: u64) {
        self.checkpoint(at_us, false, false);
    }

    fn unmount(&mut self, at_us: u64) {
        self.checkpoint(at_us, true, false);
    }

    fn poll(&mut self) -> Option<BlockRequest> {
        self.requests.pop_front()
    }

    fn address(&self, lba: Lba) -> Lba {
        2 * AREA_PAGES + lba
    }

    fn commits(&self) -> u64 {
        self.commits
    }

    fn last_commit(&self) -> &[Logged] {
        &self.last
    }

    fn check(&self) {
        let gone = |node: &Node| match node.0 {
            Owner::File(file) => !self.files.contains_key(&file),
            Owner::Directory(_) => false,
        };
        assert!(!self.dirty_nodes.iter().any(gone), "a node that waits has a file");
        assert!(!self.numbers.keys().any(gone), "a node with a number has a file");
        assert!(self.numbers.values().all(|number| *number < self.next_number));
        assert!(self.orphans.iter().all(|file| self.files.contains_key(file)));
    }
}
