//! Nodes counted by hand, trees against a list of their items, and invariants over histories.

use super::*;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000;
const FILE: FileId = FileId(0);
const SYNC: OperationKind = OperationKind::Sync { file: FILE, data_only: false };

fn machine(text: &str) -> Btrfs {
    let modes = "linux".parse().unwrap();
    let chosen = super::super::Selection::parse(text).unwrap();
    Btrfs::new(&chosen.params, &modes)
}

fn named(hash: u32) -> Entry {
    Entry { directory: ROOT, hash, bytes: 8 }
}

/// Superblocks, pages of nodes, and flushes.
fn written(machine: &mut Btrfs) -> (u64, u64, u64) {
    let mut written = (0, 0, 0);
    while let Some(request) = machine.poll() {
        match request {
            BlockRequest::Write { pages, journal: true, .. } => written.0 += pages,
            BlockRequest::Write { pages, .. } => written.1 += pages,
            BlockRequest::Flush { .. } => written.2 += 1,
        }
    }
    machine.check();
    written
}

// Promises: Metadata 8.
#[test]
fn an_fsync_writes_two_nodes_and_a_superblock() {
    for (text, copies) in [("btrfs", 2), ("btrfs:metadata=single", 1)] {
        let mut machine = machine(text);
        machine.operation(0, &OperationKind::Create(FILE, Some(named(1))));
        machine.operation(0, &OperationKind::Write(FILE, 4096));
        machine.operation(SECOND, &SYNC);
        // The log tree's leaf, and the tree of log trees.
        assert_eq!(written(&mut machine), (1, 2 * 4 * copies, 2));
        machine.operation(2 * SECOND, &SYNC);
        assert_eq!(written(&mut machine), (0, 0, 0), "nothing has changed");
        assert_eq!(machine.next_deadline(), Some(30 * SECOND));
        machine.tick(30 * SECOND);
        // The trees of files, extents, checksums, free space and roots.
        assert_eq!(written(&mut machine), (2, 5 * 4 * copies, 2));
        assert_eq!(machine.next_deadline(), None);
    }
}

/// A log tree that has outgrown its leaf has a node above, and checksums in a leaf of their own.
// Promises: Metadata 8.
#[test]
fn a_larger_log_tree_has_more_nodes() {
    let mut machine = machine("btrfs:commit=1h,metadata=single");
    let nodes = |machine: &mut Btrfs, n: u64| {
        machine.operation(n, &OperationKind::Write(FILE, n * 2 * 4096));
        machine.operation(n, &SYNC);
        written(machine).1 / NODE_PAGES
    };
    machine.operation(0, &OperationKind::Create(FILE, Some(named(1))));
    let all: Vec<u64> = (1..400).map(|n| nodes(&mut machine, n)).collect();
    // An extent's item and its checksum take 107 bytes.
    assert!(all[..140].iter().all(|nodes| *nodes == 2), "{all:?}");
    // Extents and checksums have two leaves each in the end, and a leaf splits now and then.
    assert!(all[200..].iter().all(|nodes| (4..=6).contains(nodes)), "{all:?}");
    machine.operation(500, &OperationKind::SyncAll);
    written(&mut machine);
    assert_eq!(nodes(&mut machine, 501), 2, "a commit forgets the log tree");
}

proptest! {
    /// A tree that grows and shrinks has no fewer leaves than its items fill, at least a third of
    /// each is used where leaves can be joined, and the leaves that changed have the keys.
    // Promises: Metadata 8.
    #[test]
    fn trees_have_the_leaves_that_their_items_need(
        keys in prop::collection::vec((any::<bool>(), 0..40_u64, 0..40_u64), 1..1500),
    ) {
        let mut tree = Tree::default();
        let mut slow = BTreeSet::new();
        let mut list = Vec::new();
        for (n, (adds, major, minor)) in keys.into_iter().enumerate() {
            let key = (major, minor);
            let is_there = slow.contains(&key);
            match adds || !is_there {
                true => {
                    slow.insert(key);
                    tree.change(key, if is_there { 0 } else { 400 }, None);
                }
                false => {
                    slow.remove(&key);
                    tree.change(key, -400, None);
                }
            }
            tree.check();
            if n % 8 == 0 {
                let changed = tree.take_changed(&mut list);
                prop_assert!((1..=tree.nodes()).contains(&changed));
                prop_assert_eq!(tree.take_changed(&mut list), 0);
            }
        }
        prop_assert!(tree.nodes() >= (slow.len() as u64 * 400).div_ceil(16_384));
    }

    /// Items in the order of their keys fill leaves.
    // Promises: Metadata 8.
    #[test]
    fn items_at_the_end_fill_leaves(count in 1..3000_u64) {
        let mut tree = Tree::default();
        let mut list = Vec::new();
        for n in 0..count {
            tree.change((n, 0), 100, None);
            let changed = tree.take_changed(&mut list);
            prop_assert!(changed <= 3, "the old and the new last leaf, and the node above");
        }
        let leaves = count.div_ceil((16_384 - 101) / 100);
        prop_assert_eq!(tree.nodes(), leaves + u64::from(leaves > 1));
    }

    // Promises: Metadata 8.
    #[test]
    fn nothing_waits_behind_an_unmounting(
        steps in prop::collection::vec((0..9_u8, 0..8_u64, 0..5_000_u64), 1..200),
    ) {
        let mut machine = machine("btrfs");
        let mut epochs = [0; 8];
        for (n, (kind, file, page)) in steps.into_iter().enumerate() {
            let at_us = n as u64 * SECOND / 3;
            let id = FileId(epochs[file as usize] * 8 + file);
            let entry = named(file as u32);
            match kind {
                0 => machine.operation(at_us, &OperationKind::Create(id, Some(entry))),
                1 => {
                    machine.operation(at_us, &OperationKind::Unlink(id, entry));
                    machine.operation(at_us, &OperationKind::Gone(id));
                    epochs[file as usize] += 1;
                }
                2 => machine.tick(at_us),
                3 => machine.operation(at_us, &OperationKind::Sync { file: id, data_only: true }),
                4 => machine.operation(at_us, &OperationKind::Read(id)),
                5 => machine.operation(at_us, &OperationKind::Truncate(id, 0)),
                6 => machine.freed(at_us, id, page, page),
                _ => {
                    machine.operation(at_us, &OperationKind::Write(id, page * 4096));
                    machine.placed(at_us, id, page, page);
                }
            }
            machine.check();
        }
        machine.unmount(u64::MAX);
        written(&mut machine);
        machine.unmount(u64::MAX);
        prop_assert_eq!(written(&mut machine), (0, 0, 0));
    }
}
