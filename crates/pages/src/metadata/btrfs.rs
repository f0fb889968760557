//! btrfs as `mkfs.btrfs` makes it on one device: two copies of metadata, one of data.
//!
//! Sources: the kernel's `Documentation/filesystems/btrfs.rst` and the pages it names on trees and
//! item sizes (`btrfs-progs`, "On-disk format"), the rules of `fs/btrfs` of Linux 6.18:
//!
//! - Everything that is not file data is items in trees, whose nodes have 16 KiB. A changed node is
//!   written to another place, so that all nodes above it change, too. Each is written twice.
//! - An fsync writes the changed nodes of a log tree, which has the items of the files that were
//!   synced since the last commit; the node of the tree of log trees; and, between two flushes, a
//!   superblock. It writes nothing if the file has not changed.
//! - A transaction is committed 30 s after its first change, and by `sync`: it writes the changed
//!   nodes of the trees of files, extents, checksums, free space and roots, a flush, and two
//!   superblocks. The log tree is forgotten.
//! - Data that is written gets another place: an item of its extent, one of its checksums, and an
//!   item in the tree of extents.
//!
//! Leaves split in halves, or at the end of the tree, but are never joined. Not modelled: data in
//! inodes, compression, snapshots, and what traces do not contain (see `ext4.rs`).

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
use tree::{Key, Tree};

#[cfg(test)]
mod tests;
mod tree;

pub(super) const SPEC: MetadataSpec = MetadataSpec {
    name: "btrfs",
    layout: "ext4",
    file_system: FileSystemKind::Btrfs,
    what: "btrfs's log trees, and the changed nodes of its trees",
    params: PARAMS,
    build: |_, params, modes| Box::new(Btrfs::new(params, modes)),
    streaming: |params, modes| Box::new(Btrfs::new(params, modes)),
};

const PARAMS: &[Param] = &[
    Param {
        name: "commit",
        what: "age at which a transaction is committed",
        kind: ParamKind::Duration {
            default_us: 30_000_000,
            min_us: 1_000_000,
            max_us: 3_600_000_000,
        },
    },
    Param {
        name: "metadata",
        what: "copies of metadata",
        kind: ParamKind::Word(&["dup", "single"]),
    },
];

const NODE_PAGES: u64 = 4;
/// An item's head in a leaf, and the items behind it.
const ITEM_BYTES: u64 = 25;
const INODE_BYTES: u64 = ITEM_BYTES + 160;
/// A file's reference to its directory has the name behind this.
const REFERENCE_BYTES: u64 = ITEM_BYTES + 10;
/// A name in a directory has two items; the log has the second one only.
const NAME_BYTES: u64 = ITEM_BYTES + 30;
const FILE_EXTENT_BYTES: u64 = ITEM_BYTES + 53;
const EXTENT_BYTES: u64 = ITEM_BYTES + 53;
const NODE_EXTENT_BYTES: u64 = ITEM_BYTES + 33;
const CHECKSUM_BYTES: u64 = 4;
/// Free space around each extent, at most.
const FREE_BYTES: u64 = ITEM_BYTES;
/// In the log tree, checksums come behind all inodes.
const CHECKSUMS: u64 = u64::MAX;
/// Nodes lie behind data in the trees that are ordered by place.
const NODES: u64 = 1 << 60;
/// Places of nodes; each copy is a ring of its own.
const AREA_PAGES: u64 = 1 << 18;
/// The clock of time stamps: CONFIG_HZ=250.
const CLOCK_US: u64 = 4_000;
const DAY_US: u64 = 86_400_000_000;

struct File {
    inode: u64,
    links: u32,
    /// Whether it was made since the last commit, and where: its directory is logged with it.
    made_in: Option<Entry>,
    /// Changed since the last commit or log.
    is_changed: bool,
    /// Pages that were written and have no new place yet.
    dirty: BTreeSet<u64>,
    /// The place of each page that got one here.
    places: BTreeMap<u64, u64>,
    changed: Option<u64>,
    read: Option<u64>,
}

struct Btrfs {
    copies: u64,
    commit_us: u64,
    syncs: bool,
    /// The time of the running transaction's first change.
    begun_us: Option<u64>,
    files: HashMap<FileId, File, FixedState>,
    directories: HashMap<DirectoryId, u64, FixedState>,
    entries: HashMap<DirectoryId, Entry, FixedState>,
    next_inode: u64,
    next_place: u64,
    next_node: u64,
    /// The nodes that have an item in the tree of extents.
    known_nodes: u64,
    of_files: Tree,
    extents: Tree,
    checksums: Tree,
    free_space: Tree,
    /// Of the files synced since the last commit, and what it has of them.
    log: Tree,
    is_logged: BTreeSet<Key>,
    commits: u64,
    last: Vec<Logged>,
    requests: VecDeque<BlockRequest>,
}

impl Btrfs {
    fn new(params: &Params, modes: &Modes) -> Self {
        let mut this = Self {
            copies: if params.word(PARAMS, "metadata") == "dup" { 2 } else { 1 },
            commit_us: params.duration_us(PARAMS, "commit"),
            syncs: modes.syncs != Syncs::Nothing,
            begun_us: None,
            files: HashMap::default(),
            directories: HashMap::default(),
            entries: HashMap::default(),
            next_inode: 256,
            next_place: 0,
            next_node: 0,
            known_nodes: 0,
            of_files: Tree::default(),
            extents: Tree::default(),
            checksums: Tree::default(),
            free_space: Tree::default(),
            log: Tree::default(),
            is_logged: BTreeSet::new(),
            commits: 0,
            last: Vec::new(),
            requests: VecDeque::new(),
        };
        let root = this.take_inode();
        this.of_files.fill((root, 0), INODE_BYTES);
        this.directories.insert(ROOT, root);
        this
    }

    fn take_inode(&mut self) -> u64 {
        self.next_inode += 1;
        self.next_inode - 1
    }

    fn begin(&mut self, at_us: u64) {
        self.begun_us.get_or_insert(at_us);
    }

    fn change(&mut self, at_us: u64, key: Key, bytes: i64, file: Option<FileId>) {
        self.begin(at_us);
        self.of_files.change(key, bytes, file);
    }

    fn directory(&mut self, number: DirectoryId) -> u64 {
        if let Some(inode) = self.directories.get(&number) {
            return *inode;
        }
        let inode = self.take_inode();
        self.of_files.fill((inode, 0), INODE_BYTES);
        self.directories.insert(number, inode);
        inode
    }

    fn make_directory(&mut self, at_us: u64, number: DirectoryId) {
        if self.directories.contains_key(&number) {
            return;
        }
        let inode = self.directory(number);
        self.change(at_us, (inode, 0), 0, None);
        if let Some(entry) = self.entries.get(&number).copied() {
            self.change_name(at_us, &entry, 1, None);
        }
    }

    /// Adds a name (`sign` 1) or removes it (-1).
    fn change_name(&mut self, at_us: u64, entry: &Entry, sign: i64, file: Option<FileId>) {
        let directory = self.directory(entry.directory);
        let bytes = (NAME_BYTES + u64::from(entry.bytes)) as i64 * sign;
        self.change(at_us, (directory, 0), 0, file);
        // By hash, and by the order of creation.
        let hash = u64::from(entry.hash);
        self.change(at_us, (directory, 1 + hash), bytes, file);
        self.change(at_us, (directory, (1 << 40) + hash % 1024), bytes, file);
    }

    fn file(&mut self, id: FileId) -> &mut File {
        if !self.files.contains_key(&id) {
            let inode = self.take_inode();
            self.of_files.fill((inode, 0), INODE_BYTES + REFERENCE_BYTES + 12);
            self.new_file(id, inode, None);
        }
        self.files.get_mut(&id).expect("it is there")
    }

    fn new_file(&mut self, id: FileId, inode: u64, made_in: Option<Entry>) {
        let file = File {
            inode,
            links: u32::from(made_in.is_some()),
            made_in,
            is_changed: false,
            dirty: BTreeSet::new(),
            places: BTreeMap::new(),
            changed: None,
            read: None,
        };
        self.files.insert(id, file);
    }

    /// Changes a file's inode.
    fn touch(&mut self, at_us: u64, id: FileId) {
        let file = self.file(id);
        file.is_changed = true;
        let inode = file.inode;
        self.change(at_us, (inode, 0), 0, Some(id));
    }

    fn create(&mut self, at_us: u64, id: FileId, entry: Option<Entry>) {
        if self.files.contains_key(&id) {
            return;
        }
        let inode = self.take_inode();
        let name = entry.map_or(0, |entry| u64::from(entry.bytes));
        let bytes = (INODE_BYTES + REFERENCE_BYTES + name) as i64;
        self.change(at_us, (inode, 0), bytes, Some(id));
        self.new_file(id, inode, entry);
        if let Some(entry) = &entry {
            self.change_name(at_us, entry, 1, Some(id));
        }
        let file = self.file(id);
        (file.is_changed, file.changed) = (true, Some(at_us / CLOCK_US));
    }

    fn gone(&mut self, at_us: u64, id: FileId) {
        let Some(file) = self.files.remove(&id) else { return };
        let bytes = (INODE_BYTES + REFERENCE_BYTES + 12) as i64;
        self.change(at_us, (file.inode, 0), -bytes, Some(id));
        for run in runs(&file.places) {
            self.free_extent(at_us, file.inode, run, Some(id));
        }
    }

    fn free_extent(&mut self, at_us: u64, inode: u64, run: Run, file: Option<FileId>) {
        let place = run.place;
        self.change(at_us, (inode, 1 + run.page), -(FILE_EXTENT_BYTES as i64), file);
        self.extents.change((place, 0), -(EXTENT_BYTES as i64), file);
        self.checksums.change((place, 0), -((CHECKSUM_BYTES * run.pages) as i64), file);
        self.free_space.change((place, 0), FREE_BYTES as i64, file);
    }

    /// The dirty pages of a file get new places. Returns the new extents.
    fn write_out(&mut self, at_us: u64, id: FileId) -> Vec<Run> {
        let first_place = self.next_place;
        let file = self.file(id);
        let (inode, dirty) = (file.inode, std::mem::take(&mut file.dirty));
        let fresh: BTreeMap<u64, u64> = dirty.into_iter().zip(first_place..).collect();
        let old: BTreeMap<u64, u64> =
            fresh.keys().filter_map(|page| file.places.remove_entry(page)).collect();
        file.places.extend(&fresh);
        self.next_place += fresh.len() as u64;
        for run in runs(&old) {
            self.free_extent(at_us, inode, run, Some(id));
        }
        let fresh = runs(&fresh);
        for run in &fresh {
            self.change(at_us, (inode, 1 + run.page), FILE_EXTENT_BYTES as i64, Some(id));
            self.extents.change((run.place, 0), EXTENT_BYTES as i64, Some(id));
            self.checksums.change((run.place, 0), (CHECKSUM_BYTES * run.pages) as i64, Some(id));
            self.free_space.change((run.place, 0), 0, Some(id));
        }
        fresh
    }

    fn write_nodes(&mut self, nodes: u64, awaited: bool) {
        for _ in 0..nodes {
            for copy in 0..self.copies {
                let at = self.next_node * NODE_PAGES % AREA_PAGES;
                let (lba, pages) = (2 + copy * AREA_PAGES + at, NODE_PAGES);
                self.requests.push_back(BlockRequest::Write {
                    lba,
                    pages,
                    journal: false,
                    awaited,
                });
            }
            self.next_node += 1;
        }
    }

    fn write_superblocks(&mut self, count: u64, awaited: bool) {
        self.requests.push_back(BlockRequest::Flush { awaited });
        for lba in 0..count {
            self.requests.push_back(BlockRequest::Write { lba, pages: 1, journal: true, awaited });
        }
        self.requests.push_back(BlockRequest::Flush { awaited });
        self.commits += 1;
    }

    /// Puts an item into the log tree; one that it has is replaced.
    fn log_item(&mut self, key: Key, bytes: u64, file: FileId) {
        let bytes = if self.is_logged.insert(key) { bytes as i64 } else { 0 };
        self.log.change(key, bytes, Some(file));
    }

    fn sync(&mut self, at_us: u64, id: FileId) {
        if !self.syncs {
            return;
        }
        let fresh = self.write_out(at_us, id);
        let file = self.file(id);
        if !file.is_changed && fresh.is_empty() {
            return;
        }
        file.is_changed = false;
        let (inode, made_in) = (file.inode, file.made_in.take());
        self.log_item((inode, 0), INODE_BYTES + REFERENCE_BYTES + 12, id);
        for run in fresh {
            self.log_item((inode, 1 + run.page), FILE_EXTENT_BYTES, id);
            let bytes = ITEM_BYTES + CHECKSUM_BYTES * run.pages;
            self.log_item((CHECKSUMS, run.place), bytes, id);
        }
        if let Some(entry) = made_in {
            let directory = self.directory(entry.directory);
            self.log_item((directory, 0), INODE_BYTES, id);
            let bytes = NAME_BYTES + u64::from(entry.bytes);
            self.log_item((directory, 1 + u64::from(entry.hash)), bytes, id);
        }
        self.write_log();
    }

    /// Writes the log tree and the tree of log trees.
    fn write_log(&mut self) {
        self.last.clear();
        let nodes = self.log.take_changed(&mut self.last) + 1;
        self.write_nodes(nodes, true);
        self.write_superblocks(1, true);
    }

    fn commit(&mut self, at_us: u64, awaited: bool) {
        let dirty: BTreeSet<FileId> = self
            .files
            .iter()
            .filter(|(_, file)| !file.dirty.is_empty())
            .map(|(id, _)| *id)
            .collect();
        for id in dirty {
            self.write_out(at_us, id);
        }
        if self.begun_us.take().is_none() {
            return;
        }
        for file in self.files.values_mut() {
            (file.is_changed, file.made_in) = (false, None);
        }
        self.last.clear();
        let mut nodes = self.of_files.take_changed(&mut self.last);
        let mut last = Vec::new();
        nodes += self.checksums.take_changed(&mut last);
        nodes += self.free_space.take_changed(&mut last).max(1);
        // Each node moves, and is an item of the tree of extents itself. Both kinds of places have
        // a count of used bytes there. The tree of roots names the tops of all trees.
        self.extents.change((0, 0), 0, None);
        let changed = nodes + 2;
        for n in 0..changed {
            let place = (self.next_node + n) % (AREA_PAGES / NODE_PAGES);
            self.extents.change((NODES, place), 0, None);
        }
        let more = self.all_nodes() as i64 - self.known_nodes as i64;
        self.known_nodes = self.all_nodes();
        self.extents.change((NODES, self.next_node), NODE_EXTENT_BYTES as i64 * more, None);
        nodes += self.extents.take_changed(&mut last) + 1;
        self.write_nodes(nodes, awaited);
        self.write_superblocks(2, awaited);
        (self.log, self.is_logged) = (Tree::default(), BTreeSet::new());
    }

    fn all_nodes(&self) -> u64 {
        let trees = [&self.of_files, &self.extents, &self.checksums, &self.free_space];
        trees.iter().map(|tree| tree.nodes()).sum::<u64>() + 5
    }
}

/// Pages of a file that follow one another in places that do so, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    page: u64,
    place: u64,
    pages: u64,
}

fn runs(places: &BTreeMap<u64, u64>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (&page, &place) in places {
        match runs.last_mut() {
            Some(run) if run.page + run.pages == page && run.place + run.pages == place => {
                run.pages += 1;
            }
            _ => runs.push(Run { page, place, pages: 1 }),
        }
    }
    runs
}

impl Metadata for Btrfs {
    fn operation(&mut self, at_us: u64, operation: &OperationKind) {
        let now = at_us / CLOCK_US;
        match *operation {
            OperationKind::MakeDirectory(number) => self.make_directory(at_us, number),
            OperationKind::MoveDirectory { directory, from, to } => {
                self.change_name(at_us, &from, -1, None);
                self.change_name(at_us, &to, 1, None);
                let inode = self.directory(directory);
                self.change(at_us, (inode, 0), 0, None);
            }
            OperationKind::Exists(file, entry) => {
                let links = u32::from(entry.is_some());
                self.file(file).links += links;
            }
            OperationKind::Create(file, entry) => self.create(at_us, file, entry),
            OperationKind::Link(file, entry) => {
                self.change_name(at_us, &entry, 1, Some(file));
                self.file(file).links += 1;
                self.touch(at_us, file);
            }
            OperationKind::Unlink(id, entry) => {
                self.change_name(at_us, &entry, -1, Some(id));
                let file = self.file(id);
                file.links = file.links.saturating_sub(1);
                self.touch(at_us, id);
            }
            OperationKind::Rename { file, from, to, .. } => {
                self.change_name(at_us, &to, 1, Some(file));
                self.change_name(at_us, &from, -1, Some(file));
                self.touch(at_us, file);
            }
            OperationKind::Gone(file) => self.gone(at_us, file),
            OperationKind::Read(id) => {
                let file = self.file(id);
                let is_old = match (file.read, file.changed) {
                    (Some(read), changed) => {
                        changed >= Some(read) || now - read >= DAY_US / CLOCK_US
                    }
                    (None, _) => true,
                };
                if is_old && file.read.replace(now) != Some(now) {
                    self.touch(at_us, id);
                }
            }
            OperationKind::Write(id, end) => {
                let file = self.file(id);
                file.dirty.insert(end.saturating_sub(1) / PAGE_BYTES);
                if file.changed.replace(now) != Some(now) {
                    self.touch(at_us, id);
                }
            }
            OperationKind::Truncate(id, size) => {
                let end = size.div_ceil(PAGE_BYTES);
                let file = self.file(id);
                file.dirty.split_off(&end);
                let (inode, cut) = (file.inode, file.places.split_off(&end));
                file.changed = Some(now);
                for run in runs(&cut) {
                    self.free_extent(at_us, inode, run, Some(id));
                }
                self.touch(at_us, id);
            }
            OperationKind::Punch(file) => self.touch(at_us, file),
            OperationKind::Sync { file, .. } => self.sync(at_us, file),
            OperationKind::SyncDirectory(number) if self.syncs => {
                let inode = self.directory(number);
                self.log_item((inode, 0), INODE_BYTES, FileId(0));
                self.write_log();
            }
            OperationKind::SyncAll if self.syncs => self.commit(at_us, true),
            _ => {}
        }
    }

    fn placed(&mut self, at_us: u64, id: FileId, page: u64, _: Lba) {
        self.begin(at_us);
        self.file(id).dirty.insert(page);
    }

    fn freed(&mut self, at_us: u64, id: FileId, page: u64, _: Lba) {
        let Some(file) = self.files.get_mut(&id) else { return };
        file.dirty.remove(&page);
        let Some(place) = file.places.remove(&page) else { return };
        let inode = file.inode;
        self.free_extent(at_us, inode, Run { page, place, pages: 1 }, Some(id));
    }

    fn met_directory(&mut self, directory: DirectoryId, entry: Option<Entry>) {
        self.entries.extend(entry.map(|entry| (directory, entry)));
    }

    fn next_deadline(&self) -> Option<u64> {
        self.begun_us.map(|begun_us| begun_us.saturating_add(self.commit_us))
    }

    fn tick(&mut self, at_us: u64) {
        self.commit(at_us, false);
    }

    fn unmount(&mut self, at_us: u64) {
        self.commit(at_us, true);
    }

    fn poll(&mut self) -> Option<BlockRequest> {
        self.requests.pop_front()
    }

    fn address(&self, lba: Lba) -> Lba {
        2 + 2 * AREA_PAGES + lba
    }

    fn commits(&self) -> u64 {
        self.commits
    }

    fn last_commit(&self) -> &[Logged] {
        &self.last
    }

    fn held_bytes(&self) -> usize {
        let trees = [&self.of_files, &self.extents, &self.checksums, &self.free_space, &self.log];
        let places: usize = self.files.values().map(|file| file.places.len()).sum();
        self.files.allocation_size()
            + self.directories.allocation_size()
            + self.entries.allocation_size()
            // Nodes of a tree are at least half full.
            + 2 * places * size_of::<(u64, u64)>()
            + 2 * self.is_logged.len() * size_of::<Key>()
            + trees.iter().map(|tree| tree.held_bytes()).sum::<usize>()
    }

    fn check(&self) {
        let trees = [&self.of_files, &self.extents, &self.checksums, &self.free_space, &self.log];
        trees.iter().for_each(|tree| tree.check());
    }
}
