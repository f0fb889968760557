//! ext4 with its journal, in ordered mode with delayed allocation, as `mke2fs` makes it.
//!
//! Sources: the kernel's `Documentation/filesystems/ext4/` (layout of blocks, inodes, directories
//! and the journal) and the rules of `fs/ext4` and `fs/jbd2` of Linux 6.18:
//!
//! - An operation changes blocks in a transaction: of an inode (16 in a block), of a directory, of
//!   bitmaps and group descriptors where something is allocated or freed, and of extent trees.
//! - A write changes the inode's times if the clock has ticked since the last write
//!   (`file_update_time`; 250 ticks a second). A read changes the access time if that is not newer
//!   than the last change, or a day old (`relatime`).
//! - Blocks are allocated when pages are written back; the inode changes then.
//! - A file that is truncated, or deleted while it is open, is listed in the superblock.
//! - A transaction is committed by the first operation that changes something after 5 s, at the
//!   latest at the next full second, by `sync`, and by an fsync of a file that it changes. An
//!   fdatasync commits only if the transaction changes the file's size or blocks; otherwise it is
//!   a flush.
//! - Blocks are written in place 30 s after the page cache of the device became dirty, with all
//!   other such blocks, but not while they belong to a transaction that is not committed.
//!
//! With `inodes=apart`, inodes of files from before the trace lie in blocks of their directory
//! alone, as on a machine whose files were made at different times, unless they are known
//! ([`Metadata::know_inodes`]). Where a trace is replayed, they are made one after another, and lie
//! together.
//!
//! Not modelled: quotas, extended attributes, symbolic links, removed directories, `fallocate`, and
//! syncs of directories, which traces do not contain.

use super::{BlockRequest, Logged, Metadata, MetadataSpec};
use crate::writeback::{Expire, Modes};
use directories::Blocks;
use extents::{Changed, Extents};
use flashsift_caches::trace::{
    DirectoryId, Entry, KnownInode, KnownInodes, OperationKind, ROOT, Trace,
};
use flashsift_events::{
    address::Lba,
    event::{FileId, FileSystemKind},
    page::PAGE_BYTES,
    params::{Param, ParamKind, Params},
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use journal::{Journal, Tid, Times};
use space::{InodePlace, Inodes, Shape};
use std::collections::BTreeSet;

mod directories;
mod extents;
mod journal;
mod space;
#[cfg(test)]
mod tests;

pub(super) const SPEC: MetadataSpec = MetadataSpec {
    name: "ext4",
    layout: "ext4",
    file_system: FileSystemKind::Ext4,
    what: "ext4's journal in ordered mode, and bitmaps, inodes and directories in place",
    params: PARAMS,
    build: |trace, params, modes| Box::new(Ext4::new(trace, params, modes)),
    streaming: |params, modes| Box::new(Ext4::with(Vec::new(), STREAM_TREE_PAGES, params, modes)),
};

const PARAMS: &[Param] = &[
    Param {
        name: "commit",
        what: "age at which a transaction is committed",
        kind: ParamKind::Duration {
            default_us: 5_000_000,
            min_us: 1_000_000,
            max_us: 3_600_000_000,
        },
    },
    Param {
        name: "groups",
        what: "size of the file system in block groups of 128 MiB, which decides that of its journal",
        kind: ParamKind::Number { default: 64.0, min: 1.0, max: 1_000_000.0 },
    },
    Param {
        name: "inodes",
        what: "whether inodes of old files lie side by side, or each directory's in blocks of its own",
        kind: ParamKind::Word(&["together", "apart"]),
    },
];

/// Blocks for directories and extent trees where their number is not known before.
const STREAM_TREE_PAGES: u64 = 1 << 32;
/// The clock of time stamps: CONFIG_HZ=250.
const CLOCK_US: u64 = 4_000;
const DAY_US: u64 = 86_400_000_000;

struct Ext4 {
    shape: Shape,
    journal: Journal,
    inodes: Inodes,
    files: HashMap<FileId, File, FixedState>,
    directories: HashMap<DirectoryId, Dir, FixedState>,
    /// The entry of each directory, by number.
    entries: Vec<Option<Entry>>,
    /// The next unused block for trees.
    next_tree: Lba,
    free_trees: Vec<Lba>,
    syncs: bool,
    /// Groups whose bitmap of blocks exists.
    with_bitmap: BTreeSet<u64>,
    /// The superblock notes the mount point when a file is first opened.
    is_sampled: bool,
    /// Old files of different directories have their inodes in different blocks.
    is_apart: bool,
    known: KnownInodes,
}

struct Dir {
    inode: InodePlace,
    blocks: Blocks,
    /// The inode of its last file that was there before.
    old_file: Option<InodePlace>,
}

impl Dir {
    fn new(inode: InodePlace, block: Lba) -> Self {
        Self { inode, blocks: Blocks::new(block), old_file: None }
    }
}

struct File {
    inode: InodePlace,
    links: u32,
    /// `None`: it existed before, and the trace does not say.
    size: Option<u64>,
    /// The part of the size that the inode on the device may say: pages behind it wait.
    disk_size: u64,
    /// Pages before this one had blocks when the trace began.
    old_end: u64,
    extents: Extents,
    /// Ticks of the clock.
    changed: Option<u64>,
    read: Option<u64>,
    /// Transactions that a sync of the file, or of its data, has to commit.
    tid: Tid,
    data_tid: Tid,
}

/// The part of an inode that changes.
#[derive(Clone, Copy, PartialEq)]
enum Change {
    Times,
    /// Its size or its blocks.
    Data,
}

impl Ext4 {
    fn new(trace: &Trace, params: &Params, modes: &Modes) -> Self {
        let operations = trace.operations();
        let entries: Vec<_> = operations.directories().iter().map(|dir| dir.entry).collect();
        // A leaf of an extent tree needs more than four extents, and blocks of directories are half
        // full.
        let names = operations.list().len() as u64 / 4;
        let tree_pages = u64::from(trace.pages()) / 4 + entries.len() as u64 + names + 16;
        let mut this = Self::with(entries, tree_pages, params, modes);
        this.know_inodes(operations.inodes());
        this
    }

    fn with(entries: Vec<Option<Entry>>, tree_pages: u64, params: &Params, modes: &Modes) -> Self {
        let groups = params.number(PARAMS, "groups") as u64;
        let shape = Shape::new(groups, tree_pages);
        let Expire { after_us, tick_us, .. } = modes.expire.unwrap_or_default();
        let commit_us = params.duration_us(PARAMS, "commit");
        let times = Times { commit_us, expire_us: after_us, tick_us };
        let next_tree = shape.journal_pages;
        let mut this = Self {
            shape,
            journal: Journal::new(times, 0, shape.journal_pages),
            inodes: Inodes::new(shape),
            files: HashMap::default(),
            directories: HashMap::default(),
            entries,
            next_tree,
            free_trees: Vec::new(),
            syncs: modes.syncs != crate::writeback::Syncs::Nothing,
            with_bitmap: BTreeSet::from([0]),
            is_sampled: false,
            is_apart: params.word(PARAMS, "inodes") == "apart",
            known: KnownInodes::new(),
        };
        let block = this.take_tree();
        this.directories.insert(ROOT, Dir::new(InodePlace::ROOT, block));
        this
    }

    fn take_tree(&mut self) -> Lba {
        take_tree(&mut self.free_trees, &mut self.next_tree)
    }

    fn change(&mut self, at_us: u64, lba: Lba, file: Option<FileId>) -> Tid {
        self.journal.change(at_us, lba, file)
    }

    /// Blocks of a group are allocated or freed.
    fn count_blocks(&mut self, at_us: u64, group: u64, file: Option<FileId>) {
        self.with_bitmap.insert(group);
        self.change(at_us, self.shape.block_bitmap(group), file);
        self.change(at_us, self.shape.descriptor(group), file);
    }

    fn change_inode(&mut self, at_us: u64, inode: InodePlace, file: Option<FileId>) -> Tid {
        self.change(at_us, self.shape.inode_block(inode), file)
    }

    /// An inode is allocated. The first one of a group that has no block yet makes the group's
    /// bitmap of blocks (`BLOCK_UNINIT`).
    fn allocate_inode(&mut self, at_us: u64, inode: InodePlace, file: Option<FileId>) {
        self.count_inodes(at_us, inode, file);
        let group = Shape::group_of(inode);
        if self.with_bitmap.insert(group) {
            self.change(at_us, self.shape.block_bitmap(group), file);
        }
    }

    /// An inode is allocated or freed.
    fn count_inodes(&mut self, at_us: u64, inode: InodePlace, file: Option<FileId>) {
        self.change(at_us, self.shape.inode_bitmap(inode), file);
        self.change(at_us, self.shape.descriptor(Shape::group_of(inode)), file);
        self.change_inode(at_us, inode, file);
    }

    fn change_superblock(&mut self, at_us: u64) {
        self.change(at_us, self.shape.superblock(), None);
    }

    /// The list of files to be deleted or cut after a crash changes.
    fn change_orphans(&mut self, at_us: u64) {
        self.change_superblock(at_us);
    }

    /// Returns a directory; one that was there before gets its inode when it is first met.
    fn directory(&mut self, number: DirectoryId) -> InodePlace {
        if let Some(directory) = self.directories.get(&number) {
            return directory.inode;
        }
        self.new_directory(number)
    }

    fn new_directory(&mut self, number: DirectoryId) -> InodePlace {
        let entry = self.entries.get(number.0 as usize).copied().flatten();
        let (above, hash) = entry.map_or((ROOT, 0), |entry| (entry.directory, entry.hash));
        let above = if above == number { InodePlace::ROOT } else { self.directory(above) };
        let inode = self.inodes.take_directory(above, hash);
        let block = self.take_tree();
        self.directories.insert(number, Dir::new(inode, block));
        inode
    }

    fn make_directory(&mut self, at_us: u64, number: DirectoryId) {
        if self.directories.contains_key(&number) {
            return;
        }
        let inode = self.new_directory(number);
        self.allocate_inode(at_us, inode, None);
        let own = self.directories[&number].blocks.root();
        self.change(at_us, own, None);
        self.count_blocks(at_us, Shape::tree_group(inode), None);
        if let Some(Some(entry)) = self.entries.get(number.0 as usize).copied() {
            self.add_entry(at_us, &entry, None);
        }
    }

    fn add_entry(&mut self, at_us: u64, entry: &Entry, file: Option<FileId>) {
        let inode = self.directory(entry.directory);
        let (free, next) = (&mut self.free_trees, &mut self.next_tree);
        let directory = self.directories.get_mut(&entry.directory).expect("it was just met");
        let changed = directory.blocks.add(entry, || take_tree(free, next));
        for lba in changed.blocks {
            self.change(at_us, lba, file);
        }
        if changed.new > 0 {
            self.count_blocks(at_us, Shape::tree_group(inode), file);
        }
        self.change_inode(at_us, inode, file);
    }

    fn remove_entry(&mut self, at_us: u64, entry: &Entry, file: Option<FileId>) {
        let inode = self.directory(entry.directory);
        let directory = self.directories.get_mut(&entry.directory).expect("it was just met");
        let lba = directory.blocks.remove(entry);
        self.change(at_us, lba, file);
        self.change_inode(at_us, inode, file);
    }

    /// Takes an inode in the flexible group of a file's directory.
    fn new_file(&mut self, file: FileId, entry: Option<Entry>) -> &mut File {
        let directory = self.directory(entry.map_or(ROOT, |entry| entry.directory));
        let inode = self.inodes.take(directory.flex());
        self.add_file(file, entry, inode)
    }

    /// As [`Self::new_file`], for a file that was there before.
    fn old_file(&mut self, file: FileId, entry: Option<Entry>) -> &mut File {
        if !self.is_apart {
            return self.new_file(file, entry);
        }
        if let Some(KnownInode { number, extents }) = self.known.get(&file).copied() {
            let (free, next) = (&mut self.free_trees, &mut self.next_tree);
            let old = Extents::of_old_file(extents, || take_tree(free, next));
            let file = self.add_file(file, entry, InodePlace::numbered(number));
            file.extents = old;
            return file;
        }
        let number = entry.map_or(ROOT, |entry| entry.directory);
        let flex = self.directory(number).flex();
        let directory = self.directories.get_mut(&number).expect("it was just met");
        let inode = self.inodes.take_old(flex, directory.old_file);
        directory.old_file = Some(inode);
        self.add_file(file, entry, inode)
    }

    fn add_file(&mut self, file: FileId, entry: Option<Entry>, inode: InodePlace) -> &mut File {
        self.files.entry(file).or_insert(File {
            inode,
            links: u32::from(entry.is_some()),
            size: None,
            disk_size: 0,
            old_end: 0,
            extents: Extents::default(),
            changed: None,
            read: None,
            tid: 0,
            data_tid: 0,
        })
    }

    /// Returns a file; one that the trace has not named gets an inode.
    fn file(&mut self, file: FileId) -> &mut File {
        if self.files.contains_key(&file) {
            return self.files.get_mut(&file).expect("it is there");
        }
        self.old_file(file, None)
    }

    /// Changes a file's inode.
    fn change_file(&mut self, at_us: u64, id: FileId, change: Change) {
        let inode = self.file(id).inode;
        let tid = self.change_inode(at_us, inode, Some(id));
        let file = self.file(id);
        file.tid = tid;
        if change == Change::Data {
            file.data_tid = tid;
        }
    }

    fn create(&mut self, at_us: u64, id: FileId, entry: Option<Entry>) {
        if self.files.contains_key(&id) {
            return;
        }
        if let Some(entry) = &entry {
            self.add_entry(at_us, entry, Some(id));
        }
        let file = self.new_file(id, entry);
        file.size = Some(0);
        file.changed = Some(at_us / CLOCK_US);
        let inode = file.inode;
        self.allocate_inode(at_us, inode, Some(id));
        if entry.is_none() {
            self.change_orphans(at_us);
        }
        self.change_file(at_us, id, Change::Data);
    }

    fn unlink(&mut self, at_us: u64, id: FileId, entry: &Entry) {
        self.remove_entry(at_us, entry, Some(id));
        let file = self.file(id);
        file.links = file.links.saturating_sub(1);
        if file.links == 0 {
            self.change_orphans(at_us);
        }
        self.change_file(at_us, id, Change::Times);
    }

    fn gone(&mut self, at_us: u64, id: FileId) {
        let Some(mut file) = self.files.remove(&id) else { return };
        self.inodes.count_pages(file.inode, -file.extents.pages());
        for leaf in file.extents.take_leaves() {
            self.free_tree(at_us, leaf, file.inode, Some(id));
        }
        self.count_inodes(at_us, file.inode, Some(id));
        self.change_orphans(at_us);
        self.inodes.give_back(file.inode);
    }

    fn free_tree(&mut self, at_us: u64, leaf: Lba, inode: InodePlace, file: Option<FileId>) {
        self.journal.revoke(at_us, leaf);
        self.count_blocks(at_us, Shape::tree_group(inode), file);
        self.free_trees.push(leaf);
    }

    fn write(&mut self, at_us: u64, id: FileId, end: u64) {
        let file = self.file(id);
        let now = at_us / CLOCK_US;
        let is_later = file.changed.replace(now) != Some(now);
        let grows = file.size.is_some_and(|size| end > size);
        if grows {
            file.size = Some(end);
        }
        // The inode may say the new size at once if the last page has a block.
        let is_allocated = end.div_ceil(PAGE_BYTES) <= file.extents.end().max(file.old_end);
        if grows && is_allocated {
            file.disk_size = end;
            self.change_file(at_us, id, Change::Data);
        } else if is_later || grows {
            self.change_file(at_us, id, Change::Times);
        }
    }

    fn read(&mut self, at_us: u64, id: FileId) {
        let file = self.file(id);
        let now = at_us / CLOCK_US;
        let is_old = match (file.read, file.changed) {
            (Some(read), Some(changed)) => changed >= read,
            (None, _) => true,
            (Some(_), None) => false,
        };
        let is_old = is_old || file.read.is_some_and(|read| now - read >= DAY_US / CLOCK_US);
        if is_old && file.read.replace(now) != Some(now) {
            self.change_file(at_us, id, Change::Times);
        }
    }

    fn truncate(&mut self, at_us: u64, id: FileId, size: u64) {
        let file = self.file(id);
        let cuts = file.size.is_none_or(|old| size <= old);
        let is_same = file.size == Some(size);
        file.size = Some(size);
        file.disk_size = size;
        file.old_end = file.old_end.min(size.div_ceil(PAGE_BYTES));
        file.changed = Some(at_us / CLOCK_US);
        if cuts {
            self.change_orphans(at_us);
        }
        // The inode says the same as before, except for its times.
        self.change_file(at_us, id, if is_same { Change::Times } else { Change::Data });
    }

    /// A page that was allocated and held nothing gets content: its extent counts as written from
    /// then on (`ext4_convert_unwritten_extents`).
    fn fill(&mut self, at_us: u64, id: FileId, page: u64) {
        if let Some(leaf) = self.file(id).extents.leaf_of(page) {
            self.change(at_us, leaf, Some(id));
        }
        self.change_file(at_us, id, Change::Data);
    }

    fn sync(&mut self, at_us: u64, id: FileId, data_only: bool) {
        if !self.syncs {
            return;
        }
        let file = self.file(id);
        let tid = if data_only { file.data_tid } else { file.tid };
        if !self.journal.commit(at_us, tid, true) {
            self.journal.push(BlockRequest::Flush { awaited: true });
        }
    }

    /// A sync of a directory commits all that is running (`ext4_force_commit`), and does nothing
    /// else.
    fn sync_directory(&mut self, at_us: u64) {
        if self.syncs {
            self.journal.commit_running(at_us, true);
        }
    }

    fn sync_all(&mut self, at_us: u64) {
        if self.syncs {
            self.journal.commit_running(at_us, true);
            self.journal.write_back();
            self.journal.push(BlockRequest::Flush { awaited: true });
        }
    }
}

fn take_tree(free: &mut Vec<Lba>, next: &mut Lba) -> Lba {
    free.pop().unwrap_or_else(|| {
        *next += 1;
        *next - 1
    })
}

impl Metadata for Ext4 {
    fn operation(&mut self, at_us: u64, operation: &OperationKind) {
        let is_use = !matches!(
            operation,
            OperationKind::Exists(..)
                | OperationKind::Size(..)
                | OperationKind::Sync { .. }
                | OperationKind::SyncDirectory(_)
                | OperationKind::SyncAll
        );
        if is_use && !std::mem::replace(&mut self.is_sampled, true) {
            self.change_superblock(at_us);
        }
        match *operation {
            OperationKind::MakeDirectory(number) => self.make_directory(at_us, number),
            OperationKind::MoveDirectory { directory, from, to } => {
                self.remove_entry(at_us, &from, None);
                self.add_entry(at_us, &to, None);
                let inode = self.directory(directory);
                self.change_inode(at_us, inode, None);
            }
            OperationKind::Exists(file, entry) => match self.files.get_mut(&file) {
                Some(file) => file.links += 1,
                None => drop(self.old_file(file, entry)),
            },
            OperationKind::Create(file, entry) => self.create(at_us, file, entry),
            OperationKind::Link(file, entry) => {
                self.add_entry(at_us, &entry, Some(file));
                let links = &mut self.file(file).links;
                *links += 1;
                if *links == 1 {
                    self.change_orphans(at_us);
                }
                self.change_file(at_us, file, Change::Times);
            }
            OperationKind::Unlink(file, entry) => self.unlink(at_us, file, &entry),
            OperationKind::Rename { file, from, to, .. } => {
                self.add_entry(at_us, &to, Some(file));
                self.remove_entry(at_us, &from, Some(file));
                self.change_file(at_us, file, Change::Times);
            }
            OperationKind::Close(_) => {}
            OperationKind::Gone(file) => self.gone(at_us, file),
            OperationKind::Read(file) => self.read(at_us, file),
            OperationKind::Write(file, end) => self.write(at_us, file, end),
            OperationKind::Truncate(file, size) => self.truncate(at_us, file, size),
            OperationKind::Punch(file) => {
                self.change_orphans(at_us);
                self.change_file(at_us, file, Change::Data);
            }
            OperationKind::Fill(file, page) => self.fill(at_us, file, page),
            OperationKind::Size(file, size) => {
                let file = self.file(file);
                (file.size, file.disk_size) = (Some(size), size);
                file.old_end = size.div_ceil(PAGE_BYTES);
            }
            OperationKind::Sync { file, data_only } => self.sync(at_us, file, data_only),
            OperationKind::SyncDirectory(_) => self.sync_directory(at_us),
            OperationKind::SyncAll => self.sync_all(at_us),
        }
        self.journal.stop(at_us);
    }

    fn placed(&mut self, at_us: u64, id: FileId, page: u64, lba: Lba) {
        self.placed_run(at_us, id, page, lba, 1);
    }

    fn placed_run(&mut self, at_us: u64, id: FileId, page: u64, lba: Lba, pages: u64) {
        let Some(last) = pages.checked_sub(1) else { return };
        for group in Shape::group_of_place(lba)..=Shape::group_of_place(lba + last) {
            self.count_blocks(at_us, group, Some(id));
        }
        self.file(id);
        let (free, next) = (&mut self.free_trees, &mut self.next_tree);
        let file = self.files.get_mut(&id).expect("it was just met");
        self.inodes.count_pages(file.inode, pages as i64);
        let mut changed = Changed::default();
        for n in 0..pages {
            let of_page = file.extents.insert(page + n, lba + n, || take_tree(free, next));
            changed.new += of_page.new;
            let fresh = of_page.written.into_iter().filter(|lba| !changed.written.contains(lba));
            let fresh: Vec<_> = fresh.collect();
            changed.written.extend(fresh);
        }
        let end = (page + pages) * PAGE_BYTES;
        file.disk_size = file.disk_size.max(file.size.map_or(end, |size| size.min(end)));
        let inode = file.inode;
        for lba in changed.written {
            self.change(at_us, lba, Some(id));
        }
        if changed.new > 0 {
            self.count_blocks(at_us, Shape::tree_group(inode), Some(id));
        }
        self.change_file(at_us, id, Change::Data);
    }

    fn met_directory(&mut self, directory: DirectoryId, entry: Option<Entry>) {
        let number = directory.0 as usize;
        if self.entries.len() <= number {
            self.entries.resize(number + 1, None);
        }
        self.entries[number] = entry;
    }

    fn know_inodes(&mut self, inodes: &KnownInodes) {
        self.known.clone_from(inodes);
    }

    fn held_bytes(&self) -> usize {
        self.journal.held_bytes()
            + self.files.allocation_size()
            + self.directories.allocation_size()
            + self.entries.capacity() * size_of::<Option<Entry>>()
            + self.free_trees.capacity() * size_of::<Lba>()
            // Nodes of a tree are at least half full.
            + 2 * self.with_bitmap.len() * size_of::<u64>()
            + 2 * self.known.len() * size_of::<(FileId, KnownInode)>()
    }

    fn freed(&mut self, at_us: u64, id: FileId, page: u64, lba: Lba) {
        self.count_blocks(at_us, Shape::group_of_place(lba), Some(id));
        // Of a file that is gone, nothing else changes.
        let Some(file) = self.files.get_mut(&id) else { return };
        let (changed, inode) = (file.extents.remove(page), file.inode);
        self.inodes.count_pages(inode, -1);
        for lba in changed.written {
            self.change(at_us, lba, Some(id));
        }
        for leaf in changed.freed {
            self.free_tree(at_us, leaf, inode, Some(id));
        }
        self.change_file(at_us, id, Change::Data);
    }

    fn next_deadline(&self) -> Option<u64> {
        self.journal.next_deadline()
    }

    fn tick(&mut self, at_us: u64) {
        self.journal.tick(at_us);
    }

    fn unmount(&mut self, at_us: u64) {
        if self.journal.end(at_us) {
            let (lba, pages) = (self.shape.superblock(), 1);
            self.journal.push(BlockRequest::Write { lba, pages, journal: false, awaited: false });
        }
    }

    fn poll(&mut self) -> Option<BlockRequest> {
        self.journal.poll()
    }

    fn address(&self, lba: Lba) -> Lba {
        self.shape.data(lba)
    }

    fn commits(&self) -> u64 {
        self.journal.commits()
    }

    fn last_commit(&self) -> &[Logged] {
        self.journal.last()
    }

    fn check(&self) {
        self.journal.check();
        self.inodes.check();
        self.directories.values().for_each(|directory| directory.blocks.check());
        self.files.values().for_each(|file| file.extents.check());
    }
}
