//! A cache that replaces the page cache and makes pages durable itself, in the manner of FSLRU: an
//! fsync copies the changed bytes to non-volatile memory, and no write reaches storage.

use super::*;
use std::collections::BTreeMap;

/// A page of the cache.
#[derive(Default)]
struct Held {
    dirty: bool,
    /// Storage lacks the page's present content, durable or not.
    unwritten: bool,
    /// The bytes changed since it was last durable.
    changed: Option<Bytes>,
}

/// FIFO over pages.
struct Durable {
    slots: usize,
    held: BTreeMap<Page, Held>,
    order: Vec<Page>,
    /// Bytes published by each copy to non-volatile memory: (page, from, to).
    published: Vec<(u32, u16, u16)>,
    /// Ranges of the calls of `sync`.
    syncs: Vec<Range<u32>>,
}

impl Durable {
    fn leave<B: Back>(&mut self, page: Page, why: Why, back: &mut B) {
        self.order.retain(|other| *other != page);
        if self.held.remove(&page).expect("it is held").unwritten {
            back.write(Written { page, why, writes: 0, owner: Owner::UNKNOWN });
        }
    }
}

impl Cache for &mut Durable {
    const OFFLINE: bool = false;
    const WANTS_BYTES: bool = true;
    const DURABLE: bool = true;

    fn access<B: Back>(&mut self, access: Access, details: Details, back: &mut B) -> bool {
        let Details { partial, bytes, owner } = details;
        let hit = self.held.contains_key(&access.page);
        if !hit {
            if self.order.len() == self.slots {
                self.leave(self.order[0], Why::Evict, back);
            }
            self.order.push(access.page);
            if access.op == Op::Read || partial {
                back.read(access.page, owner);
            }
        }
        let held = self.held.entry(access.page).or_default();
        if access.op == Op::Write {
            let was = held.changed.unwrap_or(bytes);
            held.changed = Some(Bytes { from: was.from.min(bytes.from), to: was.to.max(bytes.to) });
            (held.dirty, held.unwritten) = (true, true);
            assert_eq!(partial, bytes != Bytes::PAGE);
        }
        hit
    }

    fn drop_pages<B: Back>(&mut self, pages: Range<u32>, back: &mut B) {
        for page in pages.clone().map(Page) {
            if let Some(held) = self.held.remove(&page) {
                self.order.retain(|other| *other != page);
                back.dropped(held.unwritten);
            }
        }
        back.free(pages);
    }

    fn direct<B: Back>(&mut self, _: Range<u32>, _: Op, _: Owner, _: &mut B) {
        unreachable!("no test has such requests");
    }

    fn sync<B: Back>(&mut self, pages: Range<u32>, _: Why, _: &mut B) {
        self.syncs.push(pages.clone());
        for (page, held) in self.held.range_mut(Page(pages.start)..Page(pages.end)) {
            held.dirty = false;
            if let Some(Bytes { from, to }) = held.changed.take() {
                self.published.push((page.0, from, to));
            }
        }
    }

    fn drain<B: Back>(&mut self, back: &mut B) {
        while let Some(page) = self.order.first() {
            self.leave(*page, Why::Drain, back);
        }
    }

    fn holds(&self, page: Page) -> bool {
        self.held.contains_key(&page)
    }

    fn is_dirty(&self, page: Page) -> bool {
        self.held.get(&page).is_some_and(|held| held.dirty)
    }

    fn dirty_pages(&self) -> u64 {
        self.held.values().filter(|held| held.dirty).count() as u64
    }

    fn pages(&self) -> u64 {
        self.held.len() as u64
    }

    fn check(&self) {
        assert!(self.held.len() <= self.slots && self.order.len() == self.held.len());
        assert!(self.held.values().all(|held| held.dirty == held.changed.is_some()));
    }
}

fn run(frames: u32, modes: &str, drain: bool, actions: &[Action]) -> (Outcome, Durable) {
    with_cell(frames, modes, drain, |cell| {
        let trace = trace(actions);
        let (held, order) = (BTreeMap::new(), Vec::new());
        let (published, syncs) = (Vec::new(), Vec::new());
        let mut cache = Durable { slots: frames as usize, held, order, published, syncs };
        let back = Storage::new(layout_of(cell, &trace), Nowhere);
        let machine = DirtyPages::new(cell.writeback, &trace, frames);
        let outcome =
            System::new(&mut cache, back, machine, NoReadAhead).replay(cell, &trace, None);
        (outcome, cache)
    })
}

/// An fsync reaches the cache as one range, in every mode of write-back, and causes no write to
/// storage. The bytes that changed since the last fsync are known, within a page and across pages.
#[test]
fn an_fsync_ends_in_the_cache() {
    let at = |offset, len| Action::Write { open: None, file: FileId(0), offset, len, sync: false };
    let actions =
        [at(100, 50), at(300, 8), fsync(0), at(4000, 200), fsync(0), read(0, 1, 1), fsync(0)];
    for modes in ["evict", "sync", "expire:100s,ratio=100", "periodic:100s"] {
        let (outcome, cache) = run(8, modes, false, &actions);
        assert_eq!(cache.published, [(0, 100, 308), (0, 4000, 4096), (1, 0, 104)], "{modes}");
        assert_eq!(cache.syncs.first(), Some(&(0..2)), "{modes}");
        assert_eq!((outcome.device.writes, outcome.dirty_left), (0, 0), "{modes}");
        // Storage gets the two pages at the end, once each.
        let (outcome, _) = run(8, modes, true, &actions);
        assert_eq!((outcome.device.writes, outcome.device.drained), (2, 2), "{modes}");
    }
}

/// Under `sync-all`, an fsync of one file makes all files durable. Under `periodic`, the cache
/// handles the fsync too.
#[test]
fn every_mode_ends_in_the_cache() {
    let actions = [write(0, 0, 1), write(1, 0, 2), fsync(0)];
    let (outcome, cache) = run(8, "sync-all", false, &actions);
    assert_eq!((cache.syncs.as_slice(), outcome.device.writes), (std::slice::from_ref(&(0..3)), 0));
    let actions = [write(0, 0, 1), write(1, 0, 2), read(0, 0, 1), read(0, 0, 1)];
    let (outcome, cache) = run(8, "periodic:2s", false, &actions);
    assert_eq!((cache.published.len(), outcome.device.writes, outcome.dirty_left), (3, 0, 0));
    let (outcome, cache) = run(8, "evict", false, &actions);
    assert_eq!((cache.published.len(), outcome.device.writes, outcome.dirty_left), (0, 0, 3));
}

/// The write-back machine and the cache agree at each step on the dirty pages (`System::check`),
/// even if pages leave for storage on their own. Only those pages and the drain write to storage.
#[test]
fn the_machine_follows_a_durable_cache() {
    let mut published = 0;
    for seed in 0..200 {
        let mut rng = Pcg64::seed_from_u64(seed);
        let actions = history(&mut rng, 120);
        let frames = rng.random_range(1..12);
        let modes = ["evict", "sync", "hf", "linux", "periodic:3s"][rng.random_range(0..5)];
        let (outcome, cache) = run(frames, modes, true, &actions);
        let device = outcome.device;
        let case = format!("seed {seed}, {frames} frames, {modes}");
        assert_eq!((device.sync_writes, outcome.dirty_left), (0, 0), "{case}");
        let (all, _) = run(frames, "evict", true, &actions);
        assert_eq!(device, all.device, "{case}: syncs change nothing that storage sees");
        published += cache.published.len();
    }
    assert!(published > 1000, "syncs published {published} pages");
}
