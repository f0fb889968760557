//! Node blocks and checkpoints, counted by hand, and invariants over random histories.

use super::*;
use flashsift_caches::trace::ROOT;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000;
const FILE: FileId = FileId(0);
const SYNC: OperationKind = OperationKind::Sync { file: FILE, data_only: false };

fn machine() -> F2fs {
    let modes = "linux".parse().unwrap();
    let chosen = super::super::Selection::parse("f2fs").unwrap();
    F2fs::new(&chosen.params, &modes)
}

fn named(hash: u32) -> Entry {
    Entry { directory: ROOT, hash, bytes: 8 }
}

/// Blocks of tables and checkpoints, of nodes and directories, and flushes.
fn written(machine: &mut F2fs) -> (u64, u64, u64) {
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

// Promises: Metadata 6.
#[test]
fn fsync_writes_a_files_nodes() {
    let mut machine = machine();
    machine.operation(0, &OperationKind::Create(FILE, Some(named(1))));
    for page in [0, 922, 923, 923 + 1017, 923 + 1018] {
        machine.placed(0, FILE, page, page);
    }
    machine.operation(SECOND, &SYNC);
    assert_eq!(written(&mut machine), (0, 3, 1), "the inode and two direct nodes");
    machine.operation(2 * SECOND, &SYNC);
    assert_eq!(written(&mut machine), (0, 0, 1), "nothing has changed");
    let to = named(2);
    let rename = OperationKind::Rename { file: FILE, from: named(1), to, replaces: false };
    machine.operation(3 * SECOND, &rename);
    machine.operation(4 * SECOND, &SYNC);
    // The inodes of file and directory; header, summary and footer of the checkpoint.
    assert_eq!(written(&mut machine), (3, 2, 2), "a checkpoint keeps the new name");
}

// Promises: Metadata 6.
#[test]
fn a_checkpoint_writes_what_changed_in_a_minute() {
    let mut machine = machine();
    for n in 0..100 {
        machine.operation(0, &OperationKind::Create(FileId(n), Some(named(n as u32))));
    }
    assert_eq!(machine.next_deadline(), Some(60 * SECOND));
    machine.tick(60 * SECOND);
    // A block of the node address table beside the pack; 100 files and their directory.
    assert_eq!(written(&mut machine), (4, 101, 2));
    assert_eq!(machine.next_deadline(), None);
    for n in 100..300 {
        machine.operation(61 * SECOND, &OperationKind::Create(FileId(n), Some(named(n as u32))));
    }
    machine.operation(62 * SECOND, &OperationKind::SyncAll);
    // The names no longer fit into the inode: two blocks have them.
    assert_eq!(written(&mut machine), (4, 203, 2));
}

// Promises: Metadata 6.
#[test]
fn a_file_that_ends_early_writes_no_node() {
    let mut machine = machine();
    machine.operation(0, &OperationKind::Create(FILE, Some(named(1))));
    machine.placed(0, FILE, 0, 7);
    machine.operation(1, &OperationKind::Unlink(FILE, named(1)));
    machine.operation(2, &OperationKind::Gone(FILE));
    machine.unmount(SECOND);
    // The directory; header, summaries of data and of three logs of nodes, footer.
    assert_eq!(written(&mut machine), (6, 1, 2));
}

proptest! {
    // Promises: Metadata 6.
    #[test]
    fn nothing_waits_behind_a_checkpoint(
        steps in prop::collection::vec((0..9_u8, 0..8_u64, 0..5_000_u64), 1..200),
    ) {
        let mut machine = machine();
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
