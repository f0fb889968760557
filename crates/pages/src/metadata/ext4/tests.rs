//! The journal against a slow model, and operations whose blocks are counted by hand.

use super::*;
use journal::{Journal, Times};
use proptest::prelude::*;
use std::collections::BTreeMap;

const SECOND: u64 = 1_000_000;
const TIMES: Times = Times { commit_us: 5 * SECOND, expire_us: 30 * SECOND, tick_us: 5 * SECOND };

/// Pages of the journal, in place, and flushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Written {
    journal: u64,
    in_place: u64,
    flushes: u64,
}

impl Written {
    fn take(&mut self, mut poll: impl FnMut() -> Option<BlockRequest>) {
        while let Some(request) = poll() {
            match request {
                BlockRequest::Write { pages, journal: true, .. } => self.journal += pages,
                BlockRequest::Write { pages, .. } => self.in_place += pages,
                BlockRequest::Flush { .. } => self.flushes += 1,
            }
        }
    }
}

/// A block's content by number: in memory, in the journal, in place.
#[derive(Clone, Copy, Default)]
struct Versions {
    memory: u64,
    logged: u64,
    in_place: u64,
}

/// Looks at every block at every step, and keeps no queue.
#[derive(Default)]
struct SlowJournal {
    blocks: BTreeMap<Lba, Versions>,
    begun_us: Option<u64>,
    dirty_us: Option<u64>,
    used: bool,
    written: Written,
}

impl SlowJournal {
    fn change(&mut self, at_us: u64, lba: Lba) {
        self.blocks.entry(lba).or_default().memory += 1;
        self.begun_us.get_or_insert(at_us);
    }

    /// The first operation after 5 s commits.
    fn stop(&mut self, at_us: u64) {
        if self.begun_us.is_some_and(|begun_us| begun_us + 5 * SECOND <= at_us) {
            self.commit(at_us);
        }
    }

    fn commit(&mut self, at_us: u64) {
        if self.begun_us.take().is_none() {
            return;
        }
        self.written.journal += u64::from(!std::mem::replace(&mut self.used, true));
        let mut logged: u64 = 0;
        for versions in self.blocks.values_mut().filter(|block| block.memory > block.logged) {
            versions.logged = versions.memory;
            logged += 1;
        }
        // One descriptor block names 254 blocks.
        self.written.journal += logged + logged.div_ceil(254) + 1;
        self.written.flushes += 2;
        if logged > 0 {
            self.dirty_us.get_or_insert(at_us);
        }
    }

    fn write_back(&mut self) {
        self.dirty_us = None;
        for versions in self.blocks.values_mut() {
            if versions.in_place < versions.logged && versions.memory == versions.logged {
                versions.in_place = versions.logged;
                self.written.in_place += 1;
            }
        }
    }

    /// Does what is due until this time, second by second.
    fn advance(&mut self, from_us: u64, to_us: u64) {
        for at_us in (from_us.next_multiple_of(SECOND)..to_us).step_by(SECOND as usize) {
            let is_old = |since_us: u64| since_us + 30 * SECOND <= at_us;
            if at_us % (5 * SECOND) == 0 && self.dirty_us.is_some_and(is_old) {
                self.write_back();
            }
            if self.begun_us.is_some_and(|begun_us| begun_us + 5 * SECOND <= at_us) {
                self.commit(at_us);
            }
        }
    }
}

proptest! {
    // Promises: Metadata 1, Metadata 2.
    #[test]
    fn the_journal_agrees_with_a_slow_one(
        steps in prop::collection::vec((0..9_u8, 0..3 * SECOND, 0..600_u64, 1..300_u64), 1..80),
    ) {
        let mut journal = Journal::new(TIMES, 0, 1 << 20);
        let mut slow = SlowJournal::default();
        let (mut now_us, mut written) = (0, Written::default());
        for (kind, pause_us, first, count) in steps {
            let next_us = now_us + pause_us;
            slow.advance(now_us, next_us);
            while let Some(due_us) = journal.next_deadline().filter(|due_us| *due_us < next_us) {
                journal.tick(due_us);
            }
            now_us = next_us;
            match kind {
                0 => {
                    journal.commit_running(now_us, true);
                    slow.commit(now_us);
                }
                1 => {
                    journal.write_back();
                    slow.write_back();
                }
                _ => for lba in first..first + if kind == 2 { count } else { count % 7 + 1 } {
                    journal.change(now_us, (1 << 21) + lba, None);
                    slow.change(now_us, (1 << 21) + lba);
                }
            }
            if kind > 1 {
                slow.stop(now_us);
            }
            journal.stop(now_us);
            journal.check();
            written.take(|| journal.poll());
            prop_assert_eq!(written, slow.written, "at {}", now_us);
        }
    }

    /// In a short journal, what is needed after a crash is never overwritten, and each block that
    /// changed is in place at the end.
    // Promises: Metadata 2.
    #[test]
    fn a_short_journal_makes_room(
        steps in prop::collection::vec((0..300_u64, 1..40_u64), 1..200),
    ) {
        let mut journal = Journal::new(TIMES, 0, 1024);
        let mut slow = SlowJournal::default();
        let mut written = Written::default();
        for (first, count) in steps {
            for lba in first..first + count {
                journal.change(0, 4096 + lba, None);
                slow.change(0, 4096 + lba);
            }
            journal.commit_running(0, true);
            slow.commit(0);
            journal.check();
            written.take(|| journal.poll());
            prop_assert!(journal.used_pages() < 1024);
        }
        journal.end(0);
        slow.write_back();
        written.take(|| journal.poll());
        prop_assert!(written.in_place >= slow.written.in_place);
    }

    /// Extents against a map of pages.
    // Promises: Metadata 3.
    #[test]
    fn extents_agree_with_a_map(
        steps in prop::collection::vec((any::<bool>(), 0..2_000_u64, 0..40_u64), 1..600),
    ) {
        let mut extents = Extents::default();
        let mut pages: BTreeMap<u64, Lba> = BTreeMap::new();
        let mut leaves: Vec<Lba> = Vec::new();
        let mut next = 1 << 40;
        for (insert, page, shift) in steps {
            let changed = if insert || shift < 10 {
                pages.insert(page, page + shift / 8);
                extents.insert(page, page + shift / 8, || {
                    next += 1;
                    leaves.push(next);
                    next
                })
            } else {
                pages.remove(&page);
                extents.remove(page)
            };
            leaves.retain(|leaf| !changed.freed.contains(leaf));
            extents.check();
            prop_assert!(changed.written.iter().all(|leaf| leaves.contains(leaf)));
            prop_assert_eq!(extents.end(), pages.keys().next_back().map_or(0, |page| page + 1));
            let list: Vec<_> = pages.iter().collect();
            let breaks = |pair: &[(&u64, &Lba)]| {
                let [(page, lba), (next_page, next_lba)] = pair else { return false };
                **page + 1 != **next_page || **lba + 1 != **next_lba
            };
            let count = usize::from(!list.is_empty())
                + list.windows(2).filter(|pair| breaks(pair)).count();
            prop_assert_eq!(extents.count(), count);
            prop_assert!(count <= 4 || !leaves.is_empty(), "an inode holds four");
        }
        let mut taken = extents.take_leaves();
        taken.sort_unstable();
        prop_assert_eq!(taken, leaves);
    }

    /// The blocks of a directory hold all its entries, and each new one changes a block.
    // Promises: Metadata 3.
    #[test]
    fn a_directory_grows_by_blocks(
        entries in prop::collection::vec((any::<u32>(), 1..=255_u8), 1..800),
    ) {
        let mut next = 0;
        let mut blocks = Blocks::new(next);
        let (mut bytes, mut all) = (24, 1);
        for (hash, len) in &entries {
            let entry = Entry { directory: ROOT, hash: *hash, bytes: *len };
            let changed = blocks.add(&entry, || { next += 1; next });
            prop_assert!(!changed.blocks.is_empty());
            all += u64::from(changed.new);
            bytes += u64::from((8 + u32::from(*len)).next_multiple_of(4));
            prop_assert_eq!(all, next + 1);
            blocks.check();
        }
        prop_assert!(all * 4084 >= bytes);
        for (hash, len) in &entries {
            blocks.remove(&Entry { directory: ROOT, hash: *hash, bytes: *len });
            blocks.check();
        }
    }
}

fn machine(entries: Vec<Option<Entry>>) -> Ext4 {
    let shape = Shape::new(64, 1000);
    let mut machine = Ext4 {
        shape,
        journal: Journal::new(TIMES, 0, shape.journal_pages),
        inodes: Inodes::new(shape),
        files: HashMap::default(),
        directories: HashMap::default(),
        entries,
        next_tree: shape.journal_pages,
        free_trees: Vec::new(),
        syncs: true,
        with_bitmap: BTreeSet::from([0]),
        is_sampled: true,
        is_apart: true,
        known: KnownInodes::new(),
    };
    let block = machine.take_tree();
    machine.directories.insert(ROOT, Dir::new(InodePlace::ROOT, block));
    machine
}

fn named(hash: u32) -> Entry {
    Entry { directory: ROOT, hash, bytes: 8 }
}

const SYNC: OperationKind = OperationKind::Sync { file: FileId(0), data_only: false };
const DATA_SYNC: OperationKind = OperationKind::Sync { file: FileId(0), data_only: true };

/// Returns what operations write, each a second after the one before.
fn written(machine: &mut Ext4, from_s: u64, operations: &[OperationKind]) -> Written {
    let mut written = Written::default();
    for (n, operation) in operations.iter().enumerate() {
        machine.operation((from_s + n as u64) * SECOND, operation);
        machine.check();
        written.take(|| machine.poll());
    }
    written
}

/// Creation, append and fsync: the blocks by hand, as a loop device gets them from Linux 6.18.
// Promises: Metadata 1.
#[test]
fn an_fsynced_append_logs_inode_bitmap_and_descriptor() {
    let file = FileId(0);
    let mut machine = machine(vec![None]);
    let create = [OperationKind::Create(file, Some(named(1))), OperationKind::Write(file, 4096)];
    assert_eq!(written(&mut machine, 0, &create), Written::default());
    machine.placed(SECOND, file, 0, 40_000);
    // The journal's superblock; descriptor, directory, inode table, inode bitmap, group
    // descriptors, block bitmap; commit.
    let first = written(&mut machine, 2, &[SYNC]);
    assert_eq!(first, Written { journal: 8, in_place: 0, flushes: 2 });
    written(&mut machine, 3, &[OperationKind::Write(file, 8192)]);
    machine.placed(3 * SECOND, file, 1, 40_001);
    // Descriptor, inode, block bitmap, group descriptors, commit.
    let second = written(&mut machine, 4, &[DATA_SYNC]);
    assert_eq!(second, Written { journal: 5, in_place: 0, flushes: 2 });
    assert_eq!(machine.last_commit().len(), 3);
    assert!(machine.last_commit().iter().all(|logged| logged.file == Some(file)));
}

/// An overwrite changes the file's times only: fdatasync flushes, fsync commits.
// Promises: Metadata 1.
#[test]
fn fdatasync_of_an_overwrite_is_a_flush() {
    let file = FileId(0);
    let mut machine = machine(vec![None]);
    let before = [
        OperationKind::Exists(file, Some(named(1))),
        OperationKind::Size(file, 8192),
        OperationKind::Write(file, 4096),
    ];
    assert_eq!(written(&mut machine, 0, &before), Written::default());
    let flushed = Written { flushes: 1, ..Written::default() };
    assert_eq!(written(&mut machine, 3, &[DATA_SYNC]), flushed);
    // The journal's superblock; descriptor, inode, commit.
    let committed = Written { journal: 4, in_place: 0, flushes: 2 };
    assert_eq!(written(&mut machine, 4, &[SYNC]), committed);
    assert_eq!(written(&mut machine, 5, &[SYNC]), flushed, "nothing has changed since");
    // Within one tick of the clock the times stay the same.
    machine.operation(6 * SECOND, &OperationKind::Write(file, 4096));
    machine.operation(6 * SECOND, &SYNC);
    machine.operation(6 * SECOND + 1, &OperationKind::Write(file, 4096));
    let mut until = Written::default();
    until.take(|| machine.poll());
    machine.operation(6 * SECOND + 2, &SYNC);
    let mut last = Written::default();
    last.take(|| machine.poll());
    assert_eq!((until.journal, last), (3, flushed));
}

/// An append inside the last block of a file changes the size in the inode at once. The model did
/// not know the blocks of files from before the trace, so fdatasyncs of such appends were mere
/// flushes: Redis appended to its log without a commit.
// Promises: Metadata 1, Metadata 3.
#[test]
fn an_append_inside_the_last_block_of_an_old_file_is_committed_by_fdatasync() {
    let file = FileId(0);
    let journal_of = |before: u64, cut: Option<u64>, end: u64| {
        let mut machine = machine(vec![None]);
        let mut operations =
            vec![OperationKind::Exists(file, Some(named(1))), OperationKind::Size(file, before)];
        operations.extend(cut.map(|size| OperationKind::Truncate(file, size)));
        operations.push(SYNC);
        written(&mut machine, 0, &operations);
        written(&mut machine, 9, &[OperationKind::Write(file, end), DATA_SYNC]).journal
    };
    // Descriptor, inode, commit, and the journal's superblock at its first use.
    assert_eq!(journal_of(5000, None, 8192), 4);
    assert_eq!(journal_of(5000, Some(4096), 4096), 0);
    // The second page has no block before it is written back.
    assert_eq!((journal_of(5000, None, 8193), journal_of(5000, Some(4096), 5000)), (0, 0));
}

/// Old files of one directory share a block of inodes, those of two do not. All lay side by side,
/// so that a commit of six services had one such block: on ext4 it had three or four.
// Promises: Metadata 3.
#[test]
fn old_files_of_two_directories_have_inodes_in_two_blocks() {
    let entries = vec![None, Some(named(1)), Some(named(2))];
    let mut machine = machine(entries);
    let old = |directory, file| {
        let entry = Entry { directory: DirectoryId(directory), hash: file as u32, bytes: 3 };
        OperationKind::Exists(FileId(file), Some(entry))
    };
    let files = [(1, 0), (2, 1), (1, 2), (2, 3), (0, 4)].map(|(dir, file)| old(dir, file));
    written(&mut machine, 0, &files);
    let more: Vec<_> = (10..26).map(|file| old(1, file)).collect();
    written(&mut machine, 0, &more);
    let block = |file| machine.shape.inode_block(machine.files[&FileId(file)].inode);
    assert!(block(0) == block(2) && block(1) == block(3), "one directory");
    let mut blocks = [block(0), block(1), block(4), block(25)];
    blocks.sort_unstable();
    assert!(blocks.windows(2).all(|two| two[0] < two[1]), "{blocks:?}");
}

/// A read changes the access time once for each change (`relatime`).
// Promises: Metadata 3.
#[test]
fn a_read_after_a_write_changes_the_inode_once() {
    let file = FileId(0);
    let mut machine = machine(vec![None]);
    let create = [OperationKind::Create(file, Some(named(1))), SYNC];
    written(&mut machine, 0, &create);
    let read = OperationKind::Read(file);
    let journal = |machine: &mut Ext4, from_s, operations: &[OperationKind]| {
        written(machine, from_s, operations).journal
    };
    assert_eq!(journal(&mut machine, 2, &[read, read, SYNC]), 3);
    assert_eq!(journal(&mut machine, 5, &[read, SYNC]), 0);
    assert_eq!(journal(&mut machine, 7, &[OperationKind::Write(file, 0), SYNC, read, SYNC]), 6);
    let day_s = 86_400;
    assert_eq!(journal(&mut machine, day_s + 20, &[read, SYNC]), 3);
}

/// A file that was made and deleted between two commits leaves its traces in directory and bitmaps.
/// A file that loses its last name is listed in the superblock.
// Promises: Metadata 3.
#[test]
fn a_deletion_logs_the_superblock() {
    let file = FileId(0);
    let mut machine = machine(vec![None]);
    let lives = [
        OperationKind::Create(file, Some(named(1))),
        OperationKind::Unlink(file, named(1)),
        OperationKind::Gone(file),
        OperationKind::SyncAll,
    ];
    // Journal superblock, descriptor, commit, and: directory, inode table, inode bitmap, group
    // descriptors, superblock.
    let wanted = Written { journal: 8, in_place: 5, flushes: 3 };
    assert_eq!(written(&mut machine, 0, &lives), wanted);
    let inode = machine.inodes.take(0);
    assert_eq!(machine.shape.inode_block(inode), machine.shape.inode_block(InodePlace::ROOT));
}

/// Directories below the root are spread over the flexible groups with as many free inodes and
/// blocks as the average: not the first, which has the root, and not the one with the journal. When
/// none is left, the first group with enough free inodes takes them. Files lie in the flexible
/// group of their directory. All as on Linux 6.18.
// Promises: Metadata 3.
#[test]
fn directories_at_the_top_are_spread() {
    let entries: Vec<_> = [None].into_iter().chain((0..4).map(|n| Some(named(n)))).collect();
    let mut machine = machine(entries);
    for n in 1..5 {
        machine.operation(0, &OperationKind::MakeDirectory(DirectoryId(n)));
        let directory = DirectoryId(n);
        for file in 0..20 {
            let entry = Entry { directory, hash: file, bytes: 3 };
            let id = FileId(u64::from(100 * n + file));
            machine.operation(0, &OperationKind::Create(id, Some(entry)));
        }
    }
    let flexes: Vec<_> =
        (1..5).map(|n| machine.directories[&DirectoryId(n)].inode.flex()).collect();
    let mut each = flexes[..2].to_vec();
    each.sort_unstable();
    assert_eq!((each, &flexes[2..]), (vec![1, 3], &[0, 0][..]));
    let entry = Entry { directory: DirectoryId(4), hash: 9, bytes: 3 };
    machine.operation(0, &OperationKind::Create(FileId(7), Some(entry)));
    assert_eq!(machine.files[&FileId(7)].inode.flex(), flexes[3]);
    machine.check();
}

/// Nothing of the file system lies where a file's page lies.
// Promises: Metadata 5.
#[test]
fn metadata_and_data_have_places_of_their_own() {
    let machine = machine(vec![None]);
    let shape = machine.shape;
    let data: Vec<Lba> = [0, 32_767, 524_287, 524_288, 2_000_000].map(|lba| shape.data(lba)).into();
    assert!(data.is_sorted_by(|one, next| one < next));
    let mut own = vec![shape.superblock(), shape.descriptor(0), shape.descriptor(63)];
    own.extend((0..64).map(|group| shape.block_bitmap(group)));
    let inodes = (0..4).map(|flex| Inodes::new(shape).take(flex));
    own.extend(inodes.flat_map(|inode| [shape.inode_bitmap(inode), shape.inode_block(inode)]));
    let flexes = [0, 524_288, 2 * 524_288, 3 * 524_288].map(|lba| shape.data(lba));
    for place in own {
        let inside = flexes.iter().any(|start| (*start..start + 524_288).contains(&place));
        assert!(!inside, "{place}");
    }
}
