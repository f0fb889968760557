//! A back with a write buffer in non-volatile memory, in the manner of hybrid flush: pages written
//! back with a write count of 1 go to storage, others to the buffer.

use super::*;
use std::collections::BTreeMap;

/// A buffer of at most `slots` pages. The page with the lowest count leaves; of equals, the one
/// flushed longest ago. The cache's two most recently used pages leave only if there are no others.
struct Buffer {
    storage: Storage<Nowhere>,
    slots: usize,
    /// Write count and turn of the last flush of each page held.
    held: BTreeMap<Page, (u32, u64)>,
    turn: u64,
    /// The page used last, and the one before it.
    recent: [Option<Page>; 2],
    log: Vec<String>,
    reads: u64,
}

impl Buffer {
    fn evict(&mut self) {
        let recent = |page: &Page| self.recent.contains(&Some(*page));
        let least = self.held.iter().min_by_key(|(page, key)| (recent(page), **key));
        let page = *least.expect("it is full").0;
        self.held.remove(&page);
        self.log.push(format!("out {}", page.0));
        self.storage.write(Written { page, why: Why::Evict, writes: 0, owner: Owner::UNKNOWN });
    }
}

impl Back for &mut Buffer {
    const WANTS_COUNTS: bool = true;
    const WANTS_OWNERS: bool = true;
    const WANTS_ACCESSES: bool = true;

    fn read(&mut self, page: Page, owner: Owner) -> Source {
        if self.held.contains_key(&page) {
            self.reads += 1;
            return Source::Nvm;
        }
        self.storage.read(page, owner)
    }

    fn write(&mut self, written: Written) {
        let Written { page, why, writes, owner } = written;
        let to = if writes > 1 { "buffer" } else { "storage" };
        self.log.push(format!("{} ×{writes} {why:?} process {} {to}", page.0, owner.process));
        assert!(owner.file.is_some() && writes > 0, "{written:?}");
        if writes == 1 {
            assert!(
                !self.held.contains_key(&page),
                "a page that the buffer holds enters with its count"
            );
            return self.storage.write(written);
        }
        if !self.held.contains_key(&page) && self.held.len() == self.slots {
            self.evict();
        }
        self.turn += 1;
        self.held.insert(page, (writes, self.turn));
    }

    fn dropped(&mut self, dirty: bool) {
        self.storage.dropped(dirty);
    }

    fn free(&mut self, pages: Range<u32>) {
        self.held.retain(|page, _| !pages.contains(&page.0));
        self.storage.free(pages);
    }

    fn accessed(&mut self, page: Page) {
        if self.recent[0] != Some(page) {
            self.recent = [Some(page), self.recent[0]];
        }
    }

    fn inherited_writes(&self, page: Page) -> u32 {
        self.held.get(&page).map_or(0, |(writes, _)| *writes)
    }

    fn address(&mut self, page: Page) -> Address {
        self.storage.address(page)
    }

    fn counts(&self) -> DeviceCounts {
        self.storage.counts()
    }

    fn traffic(&self, _: &dyn Fn(Page) -> bool) -> Traffic {
        Traffic { nvm_reads: self.reads, ..Traffic::default() }
    }
}

fn run(frames: u32, slots: usize, modes: &str, actions: &[Action]) -> (Outcome, Buffer) {
    with_cell(frames, modes, true, |cell| {
        let trace = trace(actions);
        let mut buffer = Buffer {
            storage: Storage::new(layout_of(cell, &trace), Nowhere),
            slots,
            held: BTreeMap::new(),
            turn: 0,
            recent: [None; 2],
            log: Vec::new(),
            reads: 0,
        };
        let machine = DirtyPages::new(cell.writeback, &trace, frames);
        let outcome =
            system(Lru(Vec::new()), cell, &trace, &mut buffer, machine).replay(cell, &trace, None);
        (outcome, buffer)
    })
}

/// Counts rise with page writes, survive a flush, and are inherited by a page that returns. A miss
/// that the buffer serves is not a read of the device. Each page carries its last writer.
// Promises: Systems 3.
#[test]
fn pages_bring_their_write_counts() {
    let actions = [
        write(0, 0, 1),
        fsync(0),
        write(0, 0, 1),
        fsync(0),
        // Out of the cache of one frame, and back.
        read(0, 1, 1),
        read(0, 0, 1),
        write(0, 0, 1),
        read(0, 1, 1),
        // The buffer does not hold this page: its count begins at 0.
        write(0, 1, 1),
    ];
    let (outcome, buffer) = run(1, 4, "sync", &actions);
    let wanted = [
        "0 ×1 Sync process 0 storage",
        "0 ×2 Sync process 2 buffer",
        "0 ×3 Evict process 6 buffer",
        "1 ×1 Drain process 8 storage",
    ];
    assert_eq!(buffer.log, wanted);
    assert_eq!((outcome.device.reads, outcome.traffic.nvm_reads, outcome.device.writes), (2, 1, 2));
}

/// The page with the lowest count leaves the buffer, unless it is one of the two that the cache
/// used last.
#[test]
fn the_buffer_knows_the_pages_used_last() {
    let writes = |page, times| [vec![write(0, page, 1); times], vec![fsync(0)]].concat();
    let out = |parts: &[(u64, usize)]| {
        let actions: Vec<Action> =
            parts.iter().flat_map(|(page, times)| writes(*page, *times)).collect();
        let (_, buffer) = run(8, 2, "sync", &actions);
        let out: Vec<String> =
            buffer.log.into_iter().filter(|line| line.starts_with("out")).collect();
        out
    };
    // Page 1 has the lower count, but only the incoming page 2 was used after it.
    assert_eq!(out(&[(0, 3), (1, 2), (2, 2)]), ["out 0"]);
    // After one access to another page, page 1 no longer counts as recently used.
    assert_eq!(out(&[(0, 3), (1, 2), (3, 1), (2, 2)]), ["out 1"]);
}

/// Over random histories the tiers together behave like plain storage: hits, pages written back and
/// pages dropped are the same, and each read is served by one medium.
// Promises: Systems 1.
#[test]
fn nothing_is_lost_between_the_tiers() {
    let mut nvm_reads = 0;
    for seed in 0..200 {
        let mut rng = Pcg64::seed_from_u64(seed);
        let actions = history(&mut rng, 120);
        let (frames, slots) = (rng.random_range(1..12), rng.random_range(1..7));
        let modes = ["evict", "sync", "hf", "linux"][rng.random_range(0..4)];
        let case = format!("seed {seed}, {frames} frames, {slots} slots, {modes}");
        let (with, buffer) = run(frames, slots, modes, &actions);
        let plain = with_cell(frames, modes, true, |cell| cell.run(&trace(&actions), None, None));
        assert_eq!((with.hits(), with.dirty_left), (plain.hits(), 0), "{case}");
        assert_eq!(with.device.reads + with.traffic.nvm_reads, plain.device.reads, "{case}");
        assert_eq!(with.device.dropped_dirty, plain.device.dropped_dirty, "{case}");
        let lines = |end: &str| buffer.log.iter().filter(|line| line.ends_with(end)).count() as u64;
        let (straight, buffered) = (lines("storage"), lines("buffer"));
        assert_eq!(straight + buffered, plain.device.writes, "{case}");
        let out = buffer.log.len() as u64 - straight - buffered;
        assert_eq!(with.device.writes, straight + out, "{case}");
        nvm_reads += with.traffic.nvm_reads;
    }
    assert!(nvm_reads > 100, "buffers served {nvm_reads} reads");
}
