//! Log and places, counted by hand and against a slow model; invariants over random histories.

use super::*;
use proptest::prelude::*;

const SECOND: u64 = 1_000_000;
const FILE: FileId = FileId(0);
const SYNC: OperationKind = OperationKind::Sync { file: FILE, data_only: false };
const DATA_SYNC: OperationKind = OperationKind::Sync { file: FILE, data_only: true };

fn machine(text: &str) -> Xfs {
    let modes = "linux".parse().unwrap();
    let chosen = super::super::Selection::parse(text).unwrap();
    Xfs::new(&chosen.params, &modes)
}

fn named(hash: u32) -> Entry {
    Entry { directory: ROOT, hash, bytes: 8 }
}

/// Pages of the log, in place, and flushes.
fn written(machine: &mut Xfs) -> (u64, u64, u64) {
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

// Promises: Metadata 7.
#[test]
fn an_fsync_writes_the_log_once() {
    let mut machine = machine("xfs");
    machine.operation(0, &OperationKind::Create(FILE, Some(named(1))));
    machine.operation(0, &OperationKind::Write(FILE, 4096));
    machine.placed(0, FILE, 0, 7);
    machine.operation(SECOND, &SYNC);
    assert_eq!(written(&mut machine), (1, 0, 2), "all that was changed fits into 4 KiB");
    machine.operation(2 * SECOND, &SYNC);
    assert_eq!(written(&mut machine), (0, 0, 1), "nothing waits");
    machine.operation(3 * SECOND, &OperationKind::Write(FILE, 4096));
    machine.operation(3 * SECOND, &DATA_SYNC);
    assert_eq!(written(&mut machine), (0, 0, 1), "only the times wait");
    machine.operation(3 * SECOND, &SYNC);
    assert_eq!(written(&mut machine), (1, 0, 2));
    machine.operation(4 * SECOND, &OperationKind::Write(FILE, 4100));
    machine.operation(4 * SECOND, &DATA_SYNC);
    assert_eq!(written(&mut machine), (1, 0, 2), "the size waits");
    machine.operation(5 * SECOND, &OperationKind::SyncDirectory(ROOT));
    assert_eq!(written(&mut machine), (0, 0, 0), "the directory waits for nothing");
    machine.operation(6 * SECOND, &OperationKind::Unlink(FILE, named(1)));
    machine.operation(6 * SECOND, &OperationKind::SyncDirectory(ROOT));
    assert_eq!(written(&mut machine), (1, 0, 2));
}

/// Sectors of 512 bytes: the same changes fill a part of a page, and two of them a page at most.
// Promises: Metadata 7.
#[test]
fn small_sectors_waste_less_of_the_log() {
    let pages = |text| {
        let mut machine = machine(text);
        machine.operation(0, &OperationKind::Create(FILE, Some(named(1))));
        for n in 1..=8 {
            machine.operation(n * SECOND, &OperationKind::Write(FILE, 4096));
            machine.operation(n * SECOND, &SYNC);
        }
        written(&mut machine).0
    };
    assert_eq!(pages("xfs"), 8);
    // A record's header of 512 bytes, and less than 512 bytes of an inode.
    assert_eq!(pages("xfs:sector=512"), (2560 + 7 * 1024) / 4096);
}

/// An item that changes again before each tick is logged again, and does not reach its place. In
/// replays on a real XFS the headers of groups were absent from most pushes, which a first model
/// wrote.
// Promises: Metadata 7.
#[test]
fn what_waits_for_the_log_is_not_written_in_place() {
    let mut machine = machine("xfs");
    machine.operation(0, &OperationKind::Create(FILE, Some(named(1))));
    assert_eq!(machine.next_deadline(), Some(30 * SECOND));
    machine.tick(30 * SECOND);
    assert_eq!(written(&mut machine), (1, 0, 2), "what the tick logs is new");
    for second in [59, 89] {
        machine.operation(second * SECOND, &OperationKind::Write(FILE, 4096));
        machine.tick((second + 1) * SECOND);
        // Three blocks of inodes; but the root and the file, in one cluster, are the same 16 KiB.
        let in_place = if second == 59 { 3 + 4 } else { 0 };
        assert_eq!(written(&mut machine), (1, in_place, 2));
    }
    machine.tick(120 * SECOND);
    assert_eq!(written(&mut machine), (0, 4, 0));
    for _ in 0..2 {
        machine.tick(machine.next_deadline().unwrap());
        assert_eq!(written(&mut machine), (1, 1, 2), "the log is covered");
    }
    assert_eq!(machine.next_deadline(), None);
}

// Promises: Metadata 7.
#[test]
fn names_that_outgrow_the_inode_have_blocks() {
    let mut machine = machine("xfs");
    let needed = |machine: &Xfs| {
        let dir = &machine.directories[&ROOT];
        (dir.blocks.len(), dir.leaves.len())
    };
    let mut forms = vec![needed(&machine)];
    for n in 0..2000 {
        machine.operation(0, &OperationKind::Create(FileId(n), Some(named(n as u32))));
        if forms.last() != Some(&needed(&machine)) {
            forms.push(needed(&machine));
        }
    }
    // 20 names of 8 letters fit into the inode, and 124 into one block with their hashes; then a
    // block has the hashes, and after 492 names several.
    assert_eq!(forms[..4], [(0, 0), (1, 0), (1, 1), (2, 1)]);
    assert_eq!(machine.directories[&ROOT].names, 2000);
    let (blocks, leaves) = needed(&machine);
    assert_eq!((blocks, leaves), (12, 8));
    for n in 0..2000 {
        machine.operation(0, &OperationKind::Unlink(FileId(n), named(n as u32)));
        machine.operation(0, &OperationKind::Gone(FileId(n)));
    }
    assert_eq!(needed(&machine), (0, 0));
    machine.check();
}

/// An item by versions: in memory, in the log, in place.
#[derive(Clone, Copy, Default)]
struct Versions {
    memory: u64,
    logged: u64,
    in_place: u64,
}

proptest! {
    /// A slow model looks at the versions of every item at every step.
    // Promises: Metadata 7.
    #[test]
    fn the_log_agrees_with_a_slow_one(
        steps in prop::collection::vec((0..6_u8, 0..12_u64), 1..120),
    ) {
        let mut machine = machine("xfs");
        let mut slow = [Versions::default(); 12];
        let mut counts = (0, 0);
        let log = |slow: &mut [Versions; 12]| -> u64 {
            let waits = slow.iter().filter(|item| item.memory > item.logged).count();
            slow.iter_mut().for_each(|item| item.logged = item.memory);
            // All of them fit into one page.
            u64::from(waits > 0)
        };
        let place = |slow: &mut [Versions; 12]| -> u64 {
            let due = |item: &&mut Versions| item.logged > item.in_place && item.memory == item.logged;
            let due = slow.iter_mut().filter(due);
            due.map(|item| item.in_place = item.logged).count() as u64
        };
        for (n, (kind, item)) in steps.into_iter().enumerate() {
            match kind {
                0 => {
                    machine.force(true);
                    counts.0 += log(&mut slow);
                }
                1 => {
                    let idle = slow.iter().all(|item| item.memory == item.in_place);
                    let covers = idle && machine.next_deadline().is_some();
                    machine.tick(n as u64);
                    counts.1 += place(&mut slow);
                    counts.0 += log(&mut slow);
                    counts.0 += u64::from(covers);
                    counts.1 += u64::from(covers);
                }
                _ => {
                    machine.change(Item::Block(item), 1, None);
                    slow[item as usize].memory += 1;
                }
            }
        }
        let (journal, in_place, _) = written(&mut machine);
        prop_assert_eq!((journal, in_place), counts);
    }

    // Promises: Metadata 7.
    #[test]
    fn nothing_waits_behind_an_unmounting(
        steps in prop::collection::vec((0..10_u8, 0..8_u64, 0..5_000_u64), 1..200),
    ) {
        let mut machine = machine("xfs");
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
                3 => {
                    machine.operation(at_us, &OperationKind::Sync { file: id, data_only: false });
                    prop_assert!(machine.files[&id].needs < machine.checkpoint, "nothing waits");
                }
                4 => machine.operation(at_us, &OperationKind::Read(id)),
                5 => machine.operation(at_us, &OperationKind::Truncate(id, 0)),
                6 => machine.operation(at_us, &OperationKind::Close(id)),
                7 => machine.freed(at_us, id, page, page),
                _ => {
                    machine.operation(at_us, &OperationKind::Write(id, page * 4096));
                    machine.placed(at_us, id, page, page * (file + 1) % 4999);
                }
            }
            machine.check();
        }
        machine.unmount(u64::MAX);
        written(&mut machine);
        machine.unmount(u64::MAX);
        prop_assert_eq!(written(&mut machine), (0, 0, 0));
    }

    /// Runs of pages against the place of each page.
    #[test]
    fn extents_agree_with_a_map(
        steps in prop::collection::vec((any::<bool>(), 0..40_u64, 0..40_u64), 1..200),
    ) {
        let mut extents = Extents::default();
        let mut slow = BTreeMap::new();
        for (adds, page, lba) in steps {
            match adds {
                true => {
                    extents.insert(page, lba);
                    slow.insert(page, lba);
                }
                false => {
                    extents.remove(page);
                    slow.remove(&page);
                }
            }
            let each = extents.runs.iter();
            let pages: BTreeMap<u64, u64> =
                each.flat_map(|(first, (len, at))| (0..*len).map(move |n| (first + n, at + n))).collect();
            prop_assert_eq!(&pages, &slow);
            let joined = slow.iter().filter(|(page, lba)| {
                page.checked_sub(1).and_then(|before| slow.get(&before)).map(|at| at + 1) == Some(**lba)
            });
            prop_assert_eq!(extents.runs.len(), slow.len() - joined.count());
        }
    }
}
