//! FAB: whole erase blocks leave, the fullest first.
//!
//! Jo et al., "FAB: flash-aware buffer management policy for portable media players", IEEE
//! Transactions on Consumer Electronics 2006; SpatialClock (see `spatialclock`) §2, §5.1.2 (64
//! pages per block). A block is 64 consecutive addresses. The victim is the block with the most
//! resident pages; among equals, the one accessed least recently. All its pages are evicted in
//! ascending order, so that the dirty ones are written as neighbours. SpatialClock's text can also
//! be read as counting dirty pages only: `count=dirty`, under which a block whose pages are all
//! clean counts 0. Points that the papers leave open, and our choices:
//!
//! - Pages without an address form blocks of 64 consecutive page numbers of their file, as they
//!   will if the file system places them one behind the other. `order=file` forms all blocks so.
//! - A page that gets another address moves to that block, which counts as accessed.
//! - The block of the incoming page is no exception: it can be the victim.
//! - A removal lowers the count of its block, and a write-back that keeps the page lowers the count
//!   of dirty pages. Neither is an access, so the block keeps its rank among equals.
//! - A drain evicts block after block by the same rule.
//! - Units without a place in a file (whole requests) form blocks of neighbours in rank.
//!
//! Every block has a key that orders by count first, then by recency; a tournament over the keys
//! finds the greatest. A changed key is compared along its path only while it wins or has won
//! before: two or three levels on average, and ⌈log2 frames⌉ at most.

use super::{
    Build, Kind, Policy, PolicySpec, Setup,
    spatialclock::{ORDER, is_by_file},
};
use crate::cache::{Frames, Victims};
use flashsift_events::{
    address::Address,
    page::{Access, Frame, Op, Page},
    params::{self, Param},
    structure::Lists,
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use prefetch_index::prefetch_index;

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "fab",
    paper: "Jo, Kang, Park, Kim & Lee, \"FAB: flash-aware buffer management policy for portable media \
        players\", IEEE Transactions on Consumer Electronics 52(2), 2006",
    what: "the block with most cached pages leaves, whole",
    goal: "sequential writes: whole erase blocks leave at once",
    time: "two or three steps of a tournament over blocks on average, O(log frames) at most; an eviction \
        takes a block's pages",
    memory: "4 bytes a page of the trace, 50 bytes a frame",
    memory_bytes: |size| 140 * size.frames + 4 * size.pages,
    when: "where large files are written in sequence on flash that maps whole blocks; in small caches it \
        costs many hits",
    params: PARAMS,
    kind: Kind::Online,
    slow: false,
    by_place: <Fab as Policy>::WANTS_ADDRESSES,
    policy: super::only::<Fab>,
    objects: None,
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| Box::new(model::Fab::new(setup)),
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<Fab>,
};

const PARAMS: &[Param] = &[
    Param {
        name: "block_pages",
        what: "pages a block",
        kind: params::ParamKind::Number { default: 64.0, min: 1.0, max: 65536.0 },
    },
    Param {
        name: "count",
        what: "which pages make a block full",
        kind: params::ParamKind::Word(&["resident", "dirty"]),
    },
    ORDER,
];

fn block_pages(setup: &Setup<'_>) -> u32 {
    setup.params.number(PARAMS, "block_pages") as u32
}

fn counts_dirty(setup: &Setup<'_>) -> bool {
    setup.params.word(PARAMS, "count") == "dirty"
}

/// A key is (count + 1, accesses left until the stamps run out), or 0 for a block without resident
/// pages.
const STAMP_BITS: u32 = 40;
const ONE: u64 = 1 << STAMP_BITS;
const STAMPS: u64 = ONE - 1;

/// Added to the number of a block of a file, to tell it from a block of addresses.
const OF_A_FILE: u64 = 1 << 63;

pub(super) struct Fab {
    /// The block of each page among the blocks of files.
    file_block: Vec<u32>,
    block_pages: u64,
    by_file: bool,
    /// The slot of each block that has resident pages.
    slots: HashMap<u64, u32, FixedState>,
    /// By slot: its block.
    block: Vec<u64>,
    unused_slots: Vec<u32>,
    /// Slot of each frame's block.
    slot_of: Vec<u32>,
    /// By slot: the frames of the block.
    members: Lists<Frame, 0>,
    keys: Tournament,
    /// A stamp that falls with each access.
    stamp: u64,
    counts_dirty: bool,
    /// The page that was inserted, but has no block yet, counts.
    incoming_counts: bool,
    /// The frames of a victim, empty between evictions.
    leaving: Vec<(Address, Page, Frame)>,
}

impl Build for Fab {
    fn build(setup: &Setup<'_>) -> Self {
        let mut file_block = Vec::with_capacity(setup.pages as usize);
        let (mut blocks, mut last) = (0, None);
        let block_pages = u64::from(block_pages(setup));
        let mut place = |file, page: u64| {
            if last != Some((file, page / block_pages)) {
                last = Some((file, page / block_pages));
                blocks += 1;
            }
            file_block.push(blocks - 1);
        };
        match setup.runs {
            [] => (0..u64::from(setup.pages)).for_each(|page| place(None, page)),
            runs => runs.iter().for_each(|run| {
                (run.page..run.page + u64::from(run.pages))
                    .for_each(|page| place(Some(run.file), page));
            }),
        }
        assert_eq!(file_block.len(), setup.pages as usize, "runs cover every page");
        let frames = setup.slots();
        Self {
            file_block,
            block_pages,
            by_file: is_by_file(setup.params),
            slots: HashMap::default(),
            block: vec![0; frames as usize],
            unused_slots: (0..frames).rev().collect(),
            slot_of: vec![0; frames as usize],
            members: Lists::with_lists(frames, frames),
            keys: Tournament::new(frames as usize),
            stamp: STAMPS,
            counts_dirty: counts_dirty(setup),
            incoming_counts: false,
            leaving: Vec::new(),
        }
    }
}

impl Fab {
    #[inline(always)]
    fn access(&mut self, slot: u32, counts_more: bool) {
        self.stamp -= 1;
        let key = self.keys.keys[slot as usize];
        let count = (key & !STAMPS).max(ONE) + if counts_more { ONE } else { 0 };
        self.keys.set(slot, count | self.stamp);
    }

    fn count_less(&mut self, slot: u32) {
        self.keys.set(slot, self.keys.keys[slot as usize] - ONE);
    }

    fn block_of(&self, address: Address, page: Page) -> u64 {
        match address.lba().filter(|_| !self.by_file) {
            Some(lba) => lba / self.block_pages,
            None => OF_A_FILE | u64::from(self.file_block[page.0 as usize]),
        }
    }

    /// Adds a frame to its block.
    #[inline]
    fn join(&mut self, frame: Frame, block: u64, counts: bool) {
        let slot = *self.slots.entry(block).or_insert_with(|| {
            let slot = self.unused_slots.pop().expect("no more blocks than frames are in use");
            self.block[slot as usize] = block;
            slot
        });
        self.slot_of[frame.0 as usize] = slot;
        self.members.push_newest(slot as usize, frame);
        self.access(slot, counts);
    }

    /// Takes a frame out of its block. `counted`: the block counts it.
    fn part(&mut self, frame: Frame, counted: bool) {
        let slot = self.slot_of[frame.0 as usize];
        self.members.remove(frame);
        if self.members.oldest(slot as usize).is_none() {
            self.release(slot);
        } else if counted {
            self.count_less(slot);
        }
    }

    fn release(&mut self, slot: u32) {
        self.keys.set(slot, 0);
        self.slots.remove(&self.block[slot as usize]);
        self.unused_slots.push(slot);
    }
}

impl Policy for Fab {
    const OFFLINE: bool = false;
    const WANTS_ADDRESSES: bool = true;

    #[inline(always)]
    fn insert(&mut self, _: Frame, access: &Access) {
        self.incoming_counts = !self.counts_dirty || access.op == Op::Write;
    }

    #[inline]
    fn moved(&mut self, frame: Frame, from: Option<Address>, frames: &Frames) {
        let block = self.block_of(frames.address(frame), frames.page(frame));
        let Some(from) = from else {
            return self.join(frame, block, self.incoming_counts);
        };
        if block != self.block_of(from, frames.page(frame)) {
            let counts = !self.counts_dirty || frames.dirty(frame);
            self.part(frame, counts);
            self.join(frame, block, counts);
        }
    }

    #[inline(always)]
    fn hit(&mut self, frame: Frame, access: &Access) {
        let dirtied = access.op == Op::Write && !access.was_dirty;
        self.access(self.slot_of[frame.0 as usize], self.counts_dirty && dirtied);
    }

    #[inline]
    fn evict(&mut self, _: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        let slot = self.keys.winner();
        while let Some(frame) = self.members.oldest(slot as usize) {
            self.members.remove(frame);
            let address = if self.by_file { Address::LAST } else { frames.address(frame) };
            self.leaving.push((address, frames.page(frame), frame));
        }
        self.release(slot);
        self.leaving.sort_unstable();
        self.leaving.drain(..).for_each(|(_, _, frame)| victims.push(frame));
    }

    fn remove(&mut self, frame: Frame, frames: &Frames) {
        self.part(frame, !self.counts_dirty || frames.dirty(frame));
    }

    fn cleaned(&mut self, frame: Frame) {
        if self.counts_dirty {
            self.count_less(self.slot_of[frame.0 as usize]);
        }
    }

    #[inline(always)]
    fn expect_hit(&self, frame: Frame) {
        prefetch_index(&self.slot_of, frame.0 as usize);
    }

    #[inline(always)]
    fn expect_miss(&self, page: Page) {
        prefetch_index(&self.file_block, page.0 as usize);
    }

    fn check(&self, frames: &Frames) {
        self.keys.check();
        self.members.check();
        for (slot, key) in self.keys.keys.iter().enumerate() {
            let here: Vec<Frame> = self.members.iter(slot).collect();
            let block = self.block[slot];
            assert_eq!(self.slots.get(&block) == Some(&(slot as u32)), !here.is_empty());
            for frame in &here {
                assert_eq!(self.slot_of[frame.0 as usize] as usize, slot);
                assert_eq!(self.block_of(frames.address(*frame), frames.page(*frame)), block);
                assert_eq!(frames.frame(frames.page(*frame)), Some(*frame));
            }
            let counted =
                here.iter().filter(|frame| !self.counts_dirty || frames.dirty(**frame)).count();
            let count = if here.is_empty() { 0 } else { counted as u64 + 1 };
            assert_eq!(
                key >> STAMP_BITS,
                count,
                "the key of block {block} contains the count of its pages"
            );
        }
        let used = self.keys.keys.len() - self.unused_slots.len();
        assert_eq!(used, self.slots.len(), "a slot has a block or is unused");
    }
}

/// Keys and the greatest of them. All keys other than 0 are different.
struct Tournament {
    keys: Vec<u64>,
    /// The winner below each node. The children of node n are 2n and 2n+1; nodes from `keys.len()`
    /// on are the keys themselves.
    best: Vec<u32>,
}

impl Tournament {
    fn new(keys: usize) -> Self {
        let mut new = Self { keys: vec![0; keys], best: vec![0; keys] };
        for node in (1..keys).rev() {
            new.best[node] = new.better(node);
        }
        new
    }

    #[inline(always)]
    fn at(&self, node: usize) -> u32 {
        if node < self.keys.len() { self.best[node] } else { (node - self.keys.len()) as u32 }
    }

    #[inline(always)]
    fn better(&self, node: usize) -> u32 {
        let (left, right) = (self.at(2 * node), self.at(2 * node + 1));
        if self.keys[left as usize] >= self.keys[right as usize] { left } else { right }
    }

    #[inline(always)]
    fn set(&mut self, at: u32, key: u64) {
        self.keys[at as usize] = key;
        let mut node = (self.keys.len() + at as usize) / 2;
        while node > 0 {
            let better = self.better(node);
            // Another key won before and still wins: nothing changes above this node.
            if std::mem::replace(&mut self.best[node], better) == better && better != at {
                return;
            }
            node /= 2;
        }
    }

    #[inline(always)]
    fn winner(&self) -> u32 {
        self.at(1)
    }

    fn check(&self) {
        for node in 1..self.keys.len() {
            assert_eq!(self.keys[self.best[node] as usize], self.keys[self.better(node) as usize]);
        }
        assert_eq!(
            self.keys.get(self.winner() as usize),
            self.keys.iter().max(),
            "the greatest key wins"
        );
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use crate::{
        policy::{Setup, naive::Naive},
        trace::Run,
    };
    use flashsift_events::{
        address::Address,
        event::FileId,
        page::{Access, Page},
    };
    use std::collections::{BTreeMap, BTreeSet};

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Block {
        OfAddresses(u64),
        OfFile(Option<FileId>, u64),
    }

    pub(super) struct Fab {
        runs: Vec<Run>,
        block_pages: u64,
        counts_dirty: bool,
        by_file: bool,
        /// Addresses of resident pages.
        address: BTreeMap<Page, Address>,
        /// Blocks and their pages; the least recently accessed block first.
        blocks: Vec<(Block, Vec<Page>)>,
    }

    impl Fab {
        pub(super) fn new(setup: &Setup<'_>) -> Self {
            Self {
                runs: setup.runs.to_vec(),
                block_pages: u64::from(super::block_pages(setup)),
                counts_dirty: super::counts_dirty(setup),
                by_file: super::is_by_file(setup.params),
                address: BTreeMap::new(),
                blocks: Vec::new(),
            }
        }

        fn block(&self, page: Page) -> Block {
            if let (false, Some(lba)) = (self.by_file, self.address[&page].lba()) {
                return Block::OfAddresses(lba / self.block_pages);
            }
            let Page(rank) = page;
            let run =
                self.runs.iter().find(|run| (run.first..run.first + run.pages).contains(&rank));
            match run {
                Some(run) => {
                    let number = run.page + u64::from(rank - run.first);
                    Block::OfFile(Some(run.file), number / self.block_pages)
                }
                None => Block::OfFile(None, u64::from(rank) / self.block_pages),
            }
        }

        fn access(&mut self, page: Page) {
            let block = self.block(page);
            let at = self.blocks.iter().position(|(b, _)| *b == block);
            let mut pages = at.map_or_else(Vec::new, |at| self.blocks.remove(at).1);
            if !pages.contains(&page) {
                pages.push(page);
            }
            self.blocks.push((block, pages));
        }
    }

    impl Naive for Fab {
        fn insert(&mut self, _: &Access) {}
        fn moved(&mut self, page: Page, to: Address) {
            let from = self.address.get(&page).map(|_| self.block(page));
            self.address.insert(page, to);
            if from != Some(self.block(page)) {
                self.blocks.iter_mut().for_each(|(_, pages)| pages.retain(|p| *p != page));
                self.blocks.retain(|(_, pages)| !pages.is_empty());
                self.access(page);
            }
        }
        fn hit(&mut self, access: &Access) {
            self.access(access.page);
        }
        fn evict(&mut self, _: Option<&Access>, dirty: &BTreeSet<Page>) -> Vec<Page> {
            let count = |pages: &[Page]| {
                pages.iter().filter(|page| !self.counts_dirty || dirty.contains(page)).count()
            };
            let most = self.blocks.iter().map(|(_, pages)| count(pages)).max().unwrap();
            let at = self.blocks.iter().position(|(_, pages)| count(pages) == most).unwrap();
            let (_, mut pages) = self.blocks.remove(at);
            pages.sort_by_key(|page| ((!self.by_file).then(|| self.address[page]), *page));
            self.address.retain(|page, _| !pages.contains(page));
            pages
        }
        fn remove(&mut self, page: Page) {
            self.address.remove(&page);
            self.blocks.iter_mut().for_each(|(_, pages)| pages.retain(|p| *p != page));
            self.blocks.retain(|(_, pages)| !pages.is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        policy::{
            Selection,
            conformance::{assert_coincide, history, pushed_out, writes_only},
            naive::{self, Act, Placing},
        },
        trace::Run,
    };
    use flashsift_events::{dice::Dice, event::FileId};

    /// Blocks of one page are pages, all equally full, so the least recent one is evicted.
    #[test]
    fn is_lru_with_blocks_of_one_page() {
        assert_coincide("fab:block_pages=1", "lru", |act| act);
        assert_coincide("fab:block_pages=1,count=dirty", "lru", writes_only);
    }

    /// With blocks of one page and `count=dirty`, dirty pages are evicted before all others, the
    /// least recent of them first. This is the worst order for writes, and no other policy has it.
    #[test]
    fn dirty_pages_are_evicted_first_with_blocks_of_one_page_and_count_dirty() {
        let chosen = Selection::parse("fab:block_pages=1,count=dirty").unwrap();
        for seed in 0..300 {
            let mut dice = Dice::new(seed);
            let frames = 1 + dice.below(30);
            let setup = Setup { frames, pages: 40, runs: &[], params: &chosen.params, bytes: None };
            let mut cache = (chosen.spec.cache)(&setup, Placing::Fixed);
            // Pages and whether they are dirty, the least recent first.
            let mut lru: Vec<(u32, bool)> = Vec::new();
            for act in history(&mut dice, 40, 300) {
                match act {
                    Act::Drop(first, pages) => {
                        lru.retain(|(page, _)| !(first..first + pages).contains(page))
                    }
                    Act::Clean(page) => lru.iter_mut().for_each(|entry| entry.1 &= entry.0 != page),
                    Act::Read(page) | Act::Write(page) => {
                        let at = lru.iter().position(|(p, _)| *p == page);
                        let was_dirty = at.is_some_and(|at| lru.remove(at).1);
                        if at.is_none() && lru.len() == frames as usize {
                            lru.remove(lru.iter().position(|(_, dirty)| *dirty).unwrap_or(0));
                        }
                        lru.push((page, was_dirty || act == Act::Write(page)));
                    }
                }
                let mut expected: Vec<Page> = lru.iter().map(|(page, _)| Page(*page)).collect();
                expected.sort_unstable();
                assert_eq!(
                    cache.step(act, 0).resident,
                    expected,
                    "seed {seed}, {frames} frames, {act:?}"
                );
            }
        }
    }

    /// If all pages are dirty, both counts are equal.
    #[test]
    fn both_counts_agree_on_writes() {
        for pages in [2, 5, 64] {
            let [resident, dirty] =
                ["resident", "dirty"].map(|count| format!("fab:block_pages={pages},count={count}"));
            assert_coincide(&resident, &dirty, writes_only);
        }
    }

    /// FAB agrees with its model under several parameters at once, with blocks that end at the ends
    /// of files and have holes.
    // Promises: Placement 7.
    #[test]
    fn agrees_with_its_model_on_files() {
        for seed in 0..1000 {
            let mut dice = Dice::new(seed);
            let (mut runs, mut pages) = (Vec::new(), 0);
            let (mut file, mut page) = (0, 0);
            while pages < 60 {
                (file, page) = match dice.below(3) {
                    0 => (file + 1, u64::from(dice.below(20))),
                    _ => (file, page + 1 + u64::from(dice.below(9))),
                };
                let run = Run { first: pages, pages: 1 + dice.below(9), file: FileId(file), page };
                runs.push(run);
                page += u64::from(run.pages);
                pages += run.pages;
            }
            let count = ["resident", "dirty"][dice.below(2) as usize];
            let order = ["address", "file"][dice.below(2) as usize];
            let text = format!(
                "fab:block_pages={},count={count},order={order}",
                [1, 2, 3, 4, 8, 64][dice.below(6) as usize]
            );
            let placing = Placing::ALL[dice.below(3) as usize];
            let chosen = Selection::parse(&text).unwrap();
            let frames = 1 + dice.below(pages);
            let acts = history(&mut dice, pages, 200);
            let setup = Setup { frames, pages, runs: &runs, params: &chosen.params, bytes: None };
            if let Err(difference) = naive::compare(chosen.spec, &setup, placing, &acts) {
                panic!(
                    "{text}, seed {seed}, {frames} frames, {placing:?}: differs from its model at \
                     {difference}"
                );
            }
        }
    }

    #[test]
    fn the_fullest_block_is_evicted_whole() {
        let out = |text, acts: &[Act]| {
            pushed_out(text, 6, acts).iter().map(|page| page.0).collect::<Vec<_>>()
        };
        // Blocks of four pages: 0 to 3 has two resident pages, 4 to 7 three, 8 to 11 one.
        let acts = [1, 5, 4, 7, 2, 9].map(Act::Read);
        assert_eq!(out("fab:block_pages=4", &[&acts[..], &[Act::Read(50)]].concat()), [4, 5, 7]);
        // With a third page, the first block is the more recent of two equals.
        let full = [&acts[..5], &[Act::Write(3)]].concat();
        assert_eq!(out("fab:block_pages=4", &[&full[..], &[Act::Read(50)]].concat()), [4, 5, 7]);
        // Under `count=dirty` the first block counts one page and the second none.
        assert_eq!(
            out("fab:block_pages=4,count=dirty", &[&full[..], &[Act::Read(50)]].concat()),
            [1, 2, 3]
        );
    }

    #[test]
    fn a_tournament_finds_the_greatest_key() {
        for keys in 1..40 {
            let mut dice = Dice::new(keys);
            let mut tournament = Tournament::new(keys as usize);
            for step in 1..200 {
                let key =
                    if dice.below(4) == 0 { 0 } else { u64::from(dice.below(1000)) << 32 | step };
                tournament.set(dice.below(keys as u32), key);
                tournament.check();
            }
        }
    }
}
