//! A policy that orders frames by address, over layouts that allocate late, early, and again at
//! each write-back.

use super::*;
use crate::layout::{Layout, LayoutSpec, Selection};
use flashsift_events::{address::Lba, io::IoOp};
use std::collections::{BTreeMap, BTreeSet};

/// The policy: the page at the lowest address leaves.
struct Lowest {
    ordered: BTreeSet<(Address, Frame)>,
    /// The policy's own copy of the addresses, built from `moved` alone.
    known: BTreeMap<Frame, Address>,
}

impl Build for Lowest {
    fn build(_: &Setup<'_>) -> Self {
        Self { ordered: BTreeSet::new(), known: BTreeMap::new() }
    }
}

impl Policy for Lowest {
    const OFFLINE: bool = false;
    const WANTS_ADDRESSES: bool = true;

    fn insert(&mut self, frame: Frame, _: &Access) {
        assert!(!self.known.contains_key(&frame), "it was not in the cache");
    }

    fn moved(&mut self, frame: Frame, from: Option<Address>, frames: &Frames) {
        let to = frames.address(frame);
        assert_eq!(self.known.insert(frame, to), from);
        assert_ne!(Some(to), from);
        if let Some(from) = from {
            assert!(self.ordered.remove(&(from, frame)), "a page that moves is in the order");
        }
        self.ordered.insert((to, frame));
    }

    fn hit(&mut self, _: Frame, _: &Access) {}

    fn evict(&mut self, _: Option<&Access>, _: &Frames, victims: &mut Victims) {
        // Two victims at once: writing the first may give the second an address.
        for _ in 0..2 {
            if let Some((_, frame)) = self.ordered.pop_first() {
                self.known.remove(&frame);
                victims.push(frame);
            }
        }
    }

    fn remove(&mut self, frame: Frame, frames: &Frames) {
        assert!(
            self.ordered.remove(&(frames.address(frame), frame)),
            "the address is the one known"
        );
        self.known.remove(&frame);
    }

    fn check(&self, frames: &Frames) {
        assert_eq!(self.ordered.len(), self.known.len());
        for (address, frame) in &self.ordered {
            assert_eq!((frames.address(*frame), self.known[frame]), (*address, *address));
        }
    }
}

/// A layout that appends a page when it first becomes dirty and never moves it.
#[derive(Default)]
struct Early {
    place: BTreeMap<Page, Lba>,
    next: Lba,
    moved: Range<u32>,
}

impl Layout for Early {
    fn write(&mut self, page: Page) -> Lba {
        self.moved = 0..0;
        *self.place.get(&page).expect("a page that is written was dirty before")
    }

    fn read(&self, page: Page) -> Lba {
        self.place.get(&page).copied().unwrap_or(Lba::from(page.0) + 1000)
    }

    fn place(&self, page: Page) -> Option<Lba> {
        self.place.get(&page).copied()
    }

    fn wants_dirtied(&self) -> bool {
        true
    }

    fn dirtied(&mut self, page: Page) {
        self.moved = 0..0;
        if !self.place.contains_key(&page) {
            self.place.insert(page, self.next);
            self.next += 1;
            self.moved = page.0..page.0 + 1;
        }
    }

    fn moved(&self) -> Range<u32> {
        self.moved.clone()
    }

    fn free(&mut self, pages: Range<u32>) {
        self.place.retain(|page, _| !pages.contains(&page.0));
    }
}

static EARLY: LayoutSpec = LayoutSpec {
    name: "early",
    what: "at the first write into the cache",
    params: &[],
    suits: |_| true,
    in_rank_order: false,
    from_recording: false,
    page_bytes: 16,
    build: |_, _| Box::new(Early::default()),
};

fn run(
    layout: &Selection,
    modes: &str,
    frames: u32,
    actions: &[Action],
    sink: bool,
) -> (Outcome, Vec<Io>) {
    with_cell(frames, modes, true, |cell| {
        let cell = Cell { layout, ..*cell };
        let mut ios = Vec::new();
        let mut take = |io: Io| ios.push(io);
        let sink: Option<&mut dyn FnMut(Io)> = if sink { Some(&mut take) } else { None };
        let outcome = super::run::<Lowest>(&cell, &trace(actions), None, sink);
        (outcome, ios)
    })
}

fn written(ios: &[Io]) -> Vec<Lba> {
    ios.iter().filter(|io| io.op == IoOp::Write).map(|io| io.lba).collect()
}

/// A late layout: pages of a new file have no address when they enter, and are ordered behind the
/// file before them. When the first page is written, all get an address, and the drain follows it.
// Promises: Placement 8.
#[test]
fn a_late_layout_places_cached_pages_at_write_back() {
    let ext4 = Selection::parse("ext4").unwrap();
    // File 1 is new and gets the first LBAs of the second block group; file 0 lies at 0 to 2.
    let actions =
        [created(1), read(0, 0, 3), write(1, 2, 1), write(1, 1, 1), write(1, 0, 1), fsync(1)];
    let (outcome, ios) = run(&ext4, "sync", 8, &actions, true);
    assert_eq!(written(&ios), [32_768, 32_769, 32_770], "the sync writes in page order");
    assert_eq!(outcome.dirty_left, 0);
    // Without the sync the pages of file 1 wait behind file 0 in the order in which they came. Page
    // 2 leaves first; now the others have places and leave by these.
    let (_, ios) = run(&ext4, "evict", 8, &actions, true);
    assert_eq!(written(&ios), [32_770, 32_768, 32_769]);
}

/// An early layout: a page gets its address when it first becomes dirty, even by a hit on a clean
/// page.
#[test]
fn an_early_layout_places_pages_when_they_become_dirty() {
    let early = Selection { spec: &EARLY, params: Default::default() };
    let actions = [read(0, 0, 3), write(0, 2, 1), write(0, 0, 1), write(0, 1, 1), write(0, 3, 1)];
    let (_, ios) = run(&early, "evict", 8, &actions, true);
    assert_eq!(written(&ios), [0, 1, 2, 3], "the drain is in the order of the first writes");
}

/// F2FS: a write-back that does not overwrite in place moves the page to the end of a log, and so
/// to the end of the policy's order.
#[test]
fn a_log_moves_pages_at_each_write_back() {
    let f2fs = Selection::parse("f2fs:spare=9").unwrap();
    // The sync of all files moves page 0 from place 0 behind page 3, so pages 1 and 2 are the
    // lowest when two are evicted: reads of pages 0 and 3 hit afterwards, one of page 1 misses.
    let fill = [read(0, 0, 4), write(0, 0, 1), Action::SyncAll, read(0, 4, 1)];
    let hits = |more: &[Action]| run(&f2fs, "sync", 4, &[&fill, more].concat(), true).0.read_hits;
    assert_eq!(hits(&[read(0, 0, 1), read(0, 3, 1)]), 2);
    assert_eq!(hits(&[read(0, 1, 1)]), 0);
    // Without a write-back it does not move.
    let stays = [read(0, 0, 5), read(0, 0, 1)];
    assert_eq!(run(&f2fs, "sync", 4, &stays, true).0.read_hits, 0);
}

/// At each step of random histories a policy knows the present address of each page (`check` of
/// policy and cache), and a run without a sink counts as one with a sink.
#[test]
fn addresses_are_known_at_every_step() {
    let early = Selection { spec: &EARLY, params: Default::default() };
    let layouts = [Selection::parse("ext4").unwrap(), Selection::parse("f2fs").unwrap(), early];
    for seed in 0..150 {
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut actions = vec![created(1), created(2)];
        actions.extend(history(&mut rng, 100));
        let frames = rng.random_range(1..12);
        let modes = ["evict", "sync", "hf", "linux"][rng.random_range(0..4)];
        for layout in &layouts {
            let with = run(layout, modes, frames, &actions, true);
            let without = run(layout, modes, frames, &actions, false).0;
            let case = format!("seed {seed}, {frames} frames, {modes}, {}", layout.spec.name);
            assert_eq!(with.0.device.writes, written(&with.1).len() as u64, "{case}");
            assert_eq!(with.0, without, "{case}");
        }
    }
}

/// After each operation the address that a cache shows is the page's present place in the layout,
/// and a page that it shows without a place has none there.
// Promises: Placement 8.
#[test]
fn a_cache_shows_present_addresses() {
    let early = Selection { spec: &EARLY, params: Default::default() };
    let layouts = [Selection::parse("ext4").unwrap(), Selection::parse("f2fs").unwrap(), early];
    let mut actions = vec![created(1), created(2)];
    actions.extend((0..3).map(|file| read(file, 0, 8)));
    let trace = trace(&actions);
    let (mut placed, mut unplaced) = (0, 0);
    for (seed, layout) in (0..100).flat_map(|seed| layouts.iter().map(move |layout| (seed, layout)))
    {
        let mut rng = Pcg64::seed_from_u64(seed);
        let mut take = |_: Io| ();
        let places = (layout.spec.build)(&trace, &layout.params);
        let mut back =
            Storage::new(Some(places), &mut take as &mut dyn FnMut(Io)).with_addresses(&trace);
        let frames = rng.random_range(1..20);
        let setup = Setup {
            frames,
            pages: trace.pages(),
            runs: trace.runs(),
            params: &layout.params,
            bytes: None,
        };
        let lowest = Lowest::build(&setup);
        let mut cache =
            PageCache::new::<Storage<&mut dyn FnMut(Io)>>(lowest, trace.pages(), frames, false);
        for step in 0..100 {
            let page = rng.random_range(0..trace.pages());
            let some = page..(page + rng.random_range(1..9)).min(trace.pages());
            match rng.random_range(0..10) {
                0 => cache.drop_pages(some, &mut back),
                1..3 => cache.sync(some, Why::Sync, &mut back),
                kind => {
                    let op = if kind < 6 { Op::Read } else { Op::Write };
                    let access = Access::new(Page(page), op);
                    cache.access(access, Details::WHOLE, &mut back);
                }
            }
            cache.check();
            for page in (0..trace.pages()).map(Page) {
                if let Some(frame) = cache.frames().frame(page) {
                    let (shown, now) =
                        (cache.frames().address(frame).lba(), back.address(page).lba());
                    assert_eq!(
                        shown, now,
                        "seed {seed}, step {step}, {}, {page:?}",
                        layout.spec.name
                    );
                    *if now.is_some() { &mut placed } else { &mut unplaced } += 1;
                }
            }
        }
    }
    assert!(placed > 10_000 && unplaced > 1000, "{placed} pages had a place, {unplaced} had none");
}
