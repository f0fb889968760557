use super::*;

/// After a power cut at any step of a history, each page has the version of its last fsync or one
/// later whole version, and nothing of a file whose removal was committed. A second cut at any step
/// of the recovery changes nothing. The caches keep their invariants and go on, until a third cut.
// Promises: Non-volatile memory 4.
#[test]
fn a_power_cut_loses_and_tears_no_synced_page() {
    cut_often::<Fslru<Durable>>(3..=12, 8_000, 7).unwrap();
    cut_often::<Nvlru<Durable>>(2..=12, 4_000, 7).unwrap();
    cut_often::<Fslru<Durable>>(13..=64, 1_000, 61).unwrap();
}

/// Asserts that power cuts find the fault in a history in which they find nothing without it.
fn assert_found<C: Rebuilt>(fault: Fault) {
    let tried = |seed, fault| try_cuts::<C>(&History::random(seed, 3, 8, 40), fault, 3);
    let seed = (0..1000).find(|seed| tried(*seed, Some(fault)).is_err());
    let seed = seed.unwrap_or_else(|| panic!("no power cut finds {fault:?}"));
    tried(seed, None).unwrap_or_else(|why| panic!("{fault:?} is not needed: {why}"));
}

const OUTSIDE_MEMORY: [Fault; 6] = [
    Fault::NoFlushBeforeFree,
    Fault::NoFlushAtFsync,
    Fault::KeptAtRemoval,
    Fault::RemovedBeforeCommit,
    Fault::NoGeneration,
    Fault::NoMetadata,
];

/// Each step of the protocol is needed: power cuts find each that is left out, by itself, in a
/// history in which they find nothing if none is.
// Promises: Non-volatile memory 5.
#[test]
fn each_planted_fault_is_found() {
    let steps = PersistStep::ALL.map(Fault::Without);
    steps.into_iter().chain(OUTSIDE_MEMORY).for_each(assert_found::<Fslru<Durable>>);
}

/// The same for NVLRU, which has no byte-atomic updates.
// Promises: Non-volatile memory 5.
#[test]
fn each_planted_fault_is_found_under_nvlru() {
    let steps = [
        PersistStep::PageFlush,
        PersistStep::PageFence,
        PersistStep::HeaderFlush,
        PersistStep::HeaderFence,
        PersistStep::EraseFlush,
        PersistStep::EraseFence,
        PersistStep::DiscardFlush,
        PersistStep::DiscardFence,
    ];
    let steps = steps.map(Fault::Without);
    steps.into_iter().chain(OUTSIDE_MEMORY).for_each(assert_found::<Nvlru<Durable>>);
}

/// Cuts the power at each step of a history, each time with several outcomes of the pending
/// stores. Returns the first page that a recovery may not return.
fn cut_everywhere(ops: &[FileOp], frames: u32, fault: Option<Fault>) -> Result<(), String> {
    let settings = Settings { write_miss_reads: true, ..Settings::default() };
    let ops = ops.to_vec();
    let history = History { seed: 0, files: 3, file_pages: 2, frames, settings, ops };
    for at in 0..=steps_of::<Fslru<Durable>>(&history, fault) {
        for seed in 0..32 {
            let mut machine = RunningSystem::<Fslru<Durable>>::new(&history, fault, at);
            machine.run(&history.ops);
            machine.cut(seed).map_err(|why| format!("after step {at}: {why}"))?;
        }
    }
    Ok(())
}

/// Asserts that a history survives every cut, and does not with the fault.
fn assert_needed(fault: Fault, frames: u32, ops: &[FileOp]) {
    cut_everywhere(ops, frames, None).unwrap();
    assert!(cut_everywhere(ops, frames, Some(fault)).is_err(), "{fault:?} changes nothing");
}

fn write(file: u32, page: u32) -> FileOp {
    FileOp::Write(file, page, 0..PAGE_WORDS)
}

/// In Fig. 4 of FSLRU's paper, a byte-atomic update copies the old bytes to a free page, then the
/// new bytes into the durable page, then deletes the free page. It names no order in which these
/// reach the memory, and nothing that says whether the free page holds an undo copy. A page was
/// synced, two words of it change, and another write evicts it from DRAM: a power cut in the update
/// tears it if one fence is left out.
// Promises: Non-volatile memory 6.
#[test]
fn fig_4_tears_a_page_without_fences() {
    let ops = [write(2, 0), FileOp::SyncAll, FileOp::Write(2, 0, 30..32), write(2, 1)];
    assert_needed(Fault::Without(PersistStep::UndoFence), 4, &ops);
    assert_needed(Fault::Without(PersistStep::MarkFence), 3, &ops);
    assert_needed(Fault::Without(PersistStep::UpdateFence), 3, &ops);
}

/// An update whose mark is not gone when the fsync returns is undone by a recovery: the page is
/// older than its last fsync.
// Promises: Non-volatile memory 6.
#[test]
fn a_mark_that_stays_undoes_a_finished_fsync() {
    let ops = [write(0, 1), FileOp::Fsync(0), FileOp::Write(0, 1, 16..19), FileOp::Fsync(0)];
    assert_needed(Fault::Without(PersistStep::ClearFence), 4, &ops);
}

/// Two pages are updated in place, one after the other, with the same frame for the undo copy. When
/// a header began with its kind, the first store of the second mark made the rest of the first mark
/// valid again, and a recovery copied bytes of the second page into the first.
// Promises: Non-volatile memory 5.
#[test]
fn a_torn_mark_does_not_revive_an_earlier_one() {
    let update = |file| FileOp::Write(file, 0, 11..14);
    let ops = [
        write(0, 0),
        write(1, 0),
        FileOp::SyncAll,
        update(0),
        FileOp::Fsync(0),
        update(1),
        FileOp::Fsync(1),
    ];
    cut_everywhere(&ops, 6, None).unwrap();
}

/// A power cut tears the header of a page that is published: the checksum arrives, other words do
/// not. Recovery once left such a header as it was. The next header of the frame was torn, too, and
/// its first stores completed the earlier one, which named a page for another page's content.
// Promises: Non-volatile memory 5.
#[test]
fn a_torn_header_is_not_completed_by_a_later_one() {
    let settings = Settings { write_miss_reads: true, ..Settings::default() };
    let before = vec![write(0, 0), write(1, 0), FileOp::Commit, FileOp::Fsync(0)];
    let after = [write(1, 0), FileOp::Fsync(1)];
    let history = History { seed: 0, files: 2, file_pages: 1, frames: 4, settings, ops: before };
    let steps = steps_of::<Nvlru<Durable>>(&history, None);
    // The last steps are the stores of the header, its flush and the fence.
    for (at, cut) in (steps - 8..steps).flat_map(|at| (0..16).map(move |n| (at, 3 + 4 * n))) {
        for (more, last) in (69..77).flat_map(|more| (0..16).map(move |n| (more, 3 + 4 * n))) {
            let mut machine = RunningSystem::<Nvlru<Durable>>::new(&history, None, at);
            machine.run(&history.ops);
            machine.cut(cut).unwrap();
            machine.power.renew(more);
            machine.run(&after);
            let case = format!("cut after {at} (seed {cut}), then after {more} (seed {last})");
            machine.cut(last).unwrap_or_else(|why| panic!("{case}: {why}"));
        }
    }
}

/// A durable page leaves for storage, and its frame gets another page, as after `delete dp` in
/// Fig. 4. The header is deleted in the processor's cache only: a power cut brings it back, and the
/// page has the other one's content.
// Promises: Non-volatile memory 6.
#[test]
fn a_deletion_that_is_not_durable_returns_a_wrong_page() {
    let ops = [write(2, 1), FileOp::Fsync(2), write(2, 0), FileOp::Fsync(2)];
    assert_needed(Fault::Without(PersistStep::EraseFlush), 3, &ops);
    assert_needed(Fault::Without(PersistStep::EraseFence), 3, &ops);
}

/// The frame of a durable page is freed when storage has the page in its volatile cache.
// Promises: Non-volatile memory 6.
#[test]
fn a_victim_is_lost_without_a_flush_of_the_device() {
    let ops = [write(0, 0), FileOp::Fsync(0), write(1, 0), write(1, 1)];
    assert_needed(Fault::NoFlushBeforeFree, 3, &ops);
}

/// Dirty pages that were never durable leave DRAM and non-volatile memory for storage, without a
/// FLUSH. Then their file is synced: no copy in memory is dirty, and the paper's in-memory fsync
/// has nothing to do.
// Promises: Non-volatile memory 6.
#[test]
fn an_fsync_flushes_pages_that_left_before() {
    let ops = [
        write(0, 1),
        write(1, 1),
        FileOp::SyncAll,
        write(0, 0),
        write(1, 0),
        write(1, 1),
        FileOp::Fsync(0),
    ];
    assert_needed(Fault::NoFlushAtFsync, 3, &ops);
}

/// The metadata that names a new file is committed by its fsync, though the pages are durable in
/// memory before.
// Promises: Non-volatile memory 6.
#[test]
fn an_fsync_commits_the_metadata_that_names_the_file() {
    assert_needed(Fault::NoMetadata, 3, &[write(0, 0), FileOp::Fsync(0)]);
}

/// A file is truncated and made longer again: a durable copy that was kept would fill the hole.
// Promises: Non-volatile memory 6.
#[test]
fn a_truncated_page_stays_removed() {
    let ops = [
        write(0, 1),
        FileOp::Fsync(0),
        FileOp::Truncate(0, 0),
        FileOp::Truncate(0, 2),
        FileOp::Commit,
    ];
    assert_needed(Fault::KeptAtRemoval, 4, &ops);
}

/// A removed page keeps its durable copy until the removal is committed: before that, a power cut
/// brings the file back.
// Promises: Non-volatile memory 6.
#[test]
fn a_removal_is_committed_before_the_copies_go() {
    let ops = [write(0, 0), FileOp::Fsync(0), FileOp::Unlink(0)];
    assert_needed(Fault::RemovedBeforeCommit, 4, &ops);
}

/// A file is removed, and one with the same number created, in one transaction. After the commit
/// and before the copies of the old file are erased, only the generation tells them apart.
// Promises: Non-volatile memory 6.
#[test]
fn a_new_file_does_not_get_the_pages_of_an_old_one() {
    let ops = [write(0, 0), FileOp::Fsync(0), FileOp::Recreate(0, 2)];
    assert_needed(Fault::NoGeneration, 4, &ops);
}
