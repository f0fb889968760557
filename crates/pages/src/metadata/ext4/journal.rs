//! ext4's journal (jbd2), and the write-back of metadata blocks in place.
//!
//! A transaction collects blocks. When it is committed, a copy of each goes to the journal, with
//! descriptor blocks before and a commit block behind them. From then on the blocks are dirty in
//! the page cache of the block device, which the flusher writes like any file that is old enough.
//! A dirty block that joins the next transaction is not written before that one is committed.

use super::super::{BlockRequest, Logged};
use flashsift_events::{address::Lba, event::FileId};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Blocks that a descriptor block names: 16 bytes each (`journal_block_tag3_t`), behind a header of
/// 12 bytes and one UUID of 16, before a checksum of 4.
const TAGS: u64 = (4096 - 12 - 16 - 4) / 16;
/// Blocks that a revocation block names: 8 bytes each, behind a header of 16, before a checksum.
const REVOKED: u64 = (4096 - 16 - 4) / 8;
/// A timer commits a transaction at a whole second, so that timers coincide, unless a change has
/// done so before (`jbd2_journal_stop`).
const ROUND_US: u64 = 1_000_000;

/// Times of the journal and the flusher, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    /// Age at which a transaction is committed.
    pub(super) commit_us: u64,
    /// Age at which the flusher writes the block device's pages.
    pub(super) expire_us: u64,
    /// Interval at which the flusher runs.
    pub(super) tick_us: u64,
}

/// The number of a transaction.
pub(super) type Tid = u64;

pub(super) struct Journal {
    times: Times,
    /// Its blocks; the first one is its superblock.
    start: Lba,
    pages: u64,
    /// Position behind the last block written, counted on without end.
    head: u64,
    tid: Tid,
    running: Option<Running>,
    /// Something was changed since [`Journal::stop`].
    is_changing: bool,
    /// Committed, not yet written in place, and not in the running transaction.
    dirty: BTreeSet<Lba>,
    /// By block that is not yet written in place: its last transaction.
    checkpoint: HashMap<Lba, Tid, FixedState>,
    /// Committed transactions that are still needed, the oldest first.
    log: VecDeque<Committed>,
    /// Position up to which the superblock says that the journal is free.
    tail: u64,
    /// When the pages of the block device became dirty.
    since_us: Option<u64>,
    /// The superblock says that the journal is empty.
    is_empty: bool,
    last: Vec<Logged>,
    requests: VecDeque<BlockRequest>,
}

struct Running {
    /// When it is old enough, and when a timer commits it.
    old_us: u64,
    due_us: u64,
    blocks: BTreeMap<Lba, Option<FileId>>,
    revoked: u64,
}

struct Committed {
    tid: Tid,
    first: u64,
    /// Blocks for whose content it is needed.
    live: u64,
}

impl Journal {
    pub(super) fn new(times: Times, start: Lba, pages: u64) -> Self {
        Self {
            times,
            start,
            pages,
            head: 0,
            tid: 1,
            running: None,
            is_changing: false,
            dirty: BTreeSet::new(),
            checkpoint: HashMap::default(),
            log: VecDeque::new(),
            tail: 0,
            since_us: None,
            is_empty: true,
            last: Vec::new(),
            requests: VecDeque::new(),
        }
    }

    /// A block changes. Returns the transaction.
    pub(super) fn change(&mut self, at_us: u64, lba: Lba, file: Option<FileId>) -> Tid {
        self.dirty.remove(&lba);
        self.running(at_us).blocks.entry(lba).or_insert(file);
        self.tid
    }

    /// A block is freed: its copies in the journal must not be replayed.
    pub(super) fn revoke(&mut self, at_us: u64, lba: Lba) {
        self.dirty.remove(&lba);
        if let Some(tid) = self.checkpoint.remove(&lba) {
            self.release(tid);
        }
        let running = self.running(at_us);
        running.blocks.remove(&lba);
        running.revoked += 1;
    }

    fn running(&mut self, at_us: u64) -> &mut Running {
        self.is_changing = true;
        let old_us = at_us.saturating_add(self.times.commit_us);
        self.running.get_or_insert_with(|| Running {
            old_us,
            due_us: old_us.checked_next_multiple_of(ROUND_US).unwrap_or(u64::MAX),
            blocks: BTreeMap::new(),
            revoked: 0,
        })
    }

    /// Ends an operation. If it changed something, and the transaction is old enough, commits it.
    pub(super) fn stop(&mut self, at_us: u64) {
        let is_old = self.running.as_ref().is_some_and(|running| running.old_us <= at_us);
        if std::mem::take(&mut self.is_changing) && is_old {
            self.commit_running(at_us, false);
        }
    }

    /// Commits a transaction, if it is the running one. Returns whether it was.
    pub(super) fn commit(&mut self, at_us: u64, tid: Tid, awaited: bool) -> bool {
        let is_running = tid == self.tid && self.running.is_some();
        if is_running {
            self.commit_running(at_us, awaited);
        }
        is_running
    }

    /// Commits what is running.
    pub(super) fn commit_running(&mut self, at_us: u64, awaited: bool) {
        let Some(Running { blocks, revoked, .. }) = self.running.take() else { return };
        let logged = blocks.len() as u64;
        let pages = logged + logged.div_ceil(TAGS) + revoked.div_ceil(REVOKED);
        self.make_room(pages + 1, awaited);
        if std::mem::take(&mut self.is_empty) {
            self.write_superblock(awaited);
        }
        let first = self.head;
        self.log_pages(pages, awaited);
        self.requests.push_back(BlockRequest::Flush { awaited });
        self.log_pages(1, awaited);
        // The commit block is durable (FUA) when the commit is done.
        self.requests.push_back(BlockRequest::Flush { awaited });
        self.last = blocks.iter().map(|(lba, file)| Logged { lba: *lba, file: *file }).collect();
        for lba in blocks.into_keys() {
            if let Some(old) = self.checkpoint.insert(lba, self.tid) {
                self.release(old);
            }
            self.dirty.insert(lba);
        }
        self.log.push_back(Committed { tid: self.tid, first, live: logged });
        self.tid += 1;
        if !self.dirty.is_empty() {
            self.since_us.get_or_insert(at_us);
        }
        // The kernel moves the tail in the superblock when that frees much space.
        if self.oldest() - self.tail >= self.pages / 4 {
            self.tail = self.oldest();
            self.write_superblock(awaited);
        }
    }

    /// Position of the oldest block that is still needed.
    fn oldest(&mut self) -> u64 {
        while self.log.front().is_some_and(|oldest| oldest.live == 0) {
            self.log.pop_front();
        }
        self.log.front().map_or(self.head, |oldest| oldest.first)
    }

    /// Writes blocks in place until a transaction of this length, and the largest one that may
    /// follow, fit.
    fn make_room(&mut self, pages: u64, awaited: bool) {
        let wanted = pages + self.pages / 4;
        while self.head - self.tail + wanted > self.pages - 1 {
            let oldest = self.oldest();
            if oldest > self.tail {
                self.tail = oldest;
                self.write_superblock(awaited);
                continue;
            }
            let Some(tid) = self.log.front().map(|oldest| oldest.tid) else { return };
            let of_oldest = |lba: &&Lba| self.checkpoint.get(*lba) == Some(&tid);
            let blocks: Vec<Lba> = self.dirty.iter().filter(of_oldest).copied().collect();
            // The rest is in the transaction that is being committed, which frees it.
            if blocks.is_empty() {
                return;
            }
            self.write_in_place(blocks);
        }
    }

    fn log_pages(&mut self, mut pages: u64, awaited: bool) {
        // The superblock is not part of the ring.
        let ring = self.pages - 1;
        while pages > 0 {
            let at = self.head % ring;
            let here = pages.min(ring - at);
            let lba = self.start + 1 + at;
            self.requests.push_back(BlockRequest::Write {
                lba,
                pages: here,
                journal: true,
                awaited,
            });
            self.head += here;
            pages -= here;
        }
    }

    fn write_superblock(&mut self, awaited: bool) {
        let (lba, pages) = (self.start, 1);
        self.requests.push_back(BlockRequest::Write { lba, pages, journal: true, awaited });
    }

    fn release(&mut self, tid: Tid) {
        let at = self.log.partition_point(|committed| committed.tid < tid);
        if let Some(committed) = self.log.get_mut(at).filter(|committed| committed.tid == tid) {
            committed.live -= 1;
        }
    }

    /// Writes every dirty block in place.
    pub(super) fn write_back(&mut self) {
        self.since_us = None;
        let blocks: Vec<Lba> = self.dirty.iter().copied().collect();
        self.write_in_place(blocks);
    }

    fn write_in_place(&mut self, blocks: Vec<Lba>) {
        for run in blocks.chunk_by(|one, next| one + 1 == *next) {
            let (lba, pages) = (run[0], run.len() as u64);
            let request = BlockRequest::Write { lba, pages, journal: false, awaited: false };
            self.requests.push_back(request);
        }
        for lba in blocks {
            self.dirty.remove(&lba);
            if let Some(tid) = self.checkpoint.remove(&lba) {
                self.release(tid);
            }
        }
    }

    pub(super) fn next_deadline(&self) -> Option<u64> {
        let commit = self.running.as_ref().map(|running| running.due_us);
        commit.into_iter().chain(self.write_back_due_us()).min()
    }

    fn write_back_due_us(&self) -> Option<u64> {
        let old_us = self.since_us?.checked_add(self.times.expire_us)?;
        old_us.checked_next_multiple_of(self.times.tick_us)
    }

    pub(super) fn tick(&mut self, at_us: u64) {
        if self.write_back_due_us().is_some_and(|due_us| due_us <= at_us) {
            self.write_back();
        }
        if self.running.as_ref().is_some_and(|running| running.due_us <= at_us) {
            self.commit_running(at_us, false);
        }
    }

    /// Commits, writes all in place and marks the journal as empty. Returns whether it was used.
    pub(super) fn end(&mut self, at_us: u64) -> bool {
        self.commit_running(at_us, false);
        self.write_back();
        if self.is_empty {
            return false;
        }
        // Once for the tail, once for the mark.
        self.write_superblock(false);
        self.write_superblock(false);
        self.is_empty = true;
        self.log.clear();
        self.tail = self.head;
        true
    }

    pub(super) fn poll(&mut self) -> Option<BlockRequest> {
        self.requests.pop_front()
    }

    pub(super) fn push(&mut self, request: BlockRequest) {
        self.requests.push_back(request);
    }

    /// Returns an estimate of the memory held, in bytes.
    pub(super) fn held_bytes(&self) -> usize {
        let running = self.running.as_ref().map_or(0, |running| running.blocks.len());
        // Nodes of a tree are at least half full.
        2 * running * size_of::<(Lba, Option<FileId>)>()
            + 2 * self.dirty.len() * size_of::<Lba>()
            + self.checkpoint.allocation_size()
            + self.log.capacity() * size_of::<Committed>()
            + self.last.capacity() * size_of::<Logged>()
    }

    pub(super) fn commits(&self) -> u64 {
        self.tid - 1
    }

    pub(super) fn last(&self) -> &[Logged] {
        &self.last
    }

    /// Pages of the ring that must not be overwritten.
    #[cfg(test)]
    pub(super) fn used_pages(&self) -> u64 {
        self.head - self.tail
    }

    pub(super) fn check(&self) {
        if let Some(running) = &self.running {
            assert!(running.blocks.keys().all(|lba| !self.dirty.contains(lba)));
        }
        let mut live: BTreeMap<Tid, u64> = BTreeMap::new();
        for (lba, tid) in &self.checkpoint {
            *live.entry(*tid).or_default() += 1;
            let is_running =
                self.running.as_ref().is_some_and(|running| running.blocks.contains_key(lba));
            assert!(self.dirty.contains(lba) != is_running, "{lba} waits for one reason");
        }
        assert!(self.dirty.iter().all(|lba| self.checkpoint.contains_key(lba)));
        assert!(self.dirty.is_empty() || self.since_us.is_some(), "dirty pages have an age");
        for committed in &self.log {
            let counted = live.remove(&committed.tid).unwrap_or(0);
            assert_eq!(committed.live, counted, "blocks of transaction {}", committed.tid);
        }
        assert!(live.is_empty(), "a transaction that is needed is in the log");
        assert!(self.log.iter().is_sorted_by_key(|committed| committed.tid));
        assert!(self.tail <= self.head);
    }
}
