//! Random histories for caches in non-volatile memory, and the comparison with a model.

use super::{OldVersions, Settings};
use crate::nvm::{LINE_BYTES, PAGE_LINES};
use flashsift_caches::{
    back::{Back, DeviceCounts, Source, Why, Written},
    cache::{Cache, Details},
    lines::Traffic,
    trace::{Bytes, Owner},
};
use flashsift_events::{
    address::Address,
    dice::Dice,
    page::{Access, Op, PAGE_BYTES, Page},
};
use std::{collections::BTreeSet, ops::Range};

/// A call of the back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Read(u32),
    Write(u32, Why),
    Older(u32, Why),
    Durable(u32),
    Flush,
    Dropped(bool),
}

/// A back that records its calls.
#[derive(Default)]
pub(super) struct Calls(pub(super) Vec<Call>);

impl Back for Calls {
    fn read(&mut self, page: Page, _: Owner) -> Source {
        self.0.push(Call::Read(page.0));
        Source::Storage
    }
    fn write(&mut self, written: Written) {
        self.0.push(Call::Write(written.page.0, written.why));
    }
    fn write_older(&mut self, written: Written) {
        self.0.push(Call::Older(written.page.0, written.why));
    }
    fn durable(&mut self, pages: Range<u32>) {
        self.0.extend(pages.map(Call::Durable));
    }
    fn flush(&mut self) {
        self.0.push(Call::Flush);
    }
    fn dropped(&mut self, dirty: bool) {
        self.0.push(Call::Dropped(dirty));
    }
    fn free(&mut self, _: Range<u32>) {}
    fn address(&mut self, _: Page) -> Address {
        Address::LAST
    }
    fn counts(&self) -> DeviceCounts {
        DeviceCounts::default()
    }
}

/// One step of a history.
#[derive(Clone, Debug)]
pub(super) enum Act {
    Access(u32, Op, Bytes),
    Drop(Range<u32>),
    Sync(Range<u32>, Why),
    Direct(Range<u32>, Op),
    Drain,
}

/// A model in vectors, of the definition of a cache. It calls the back as the cache does.
pub(super) trait Model {
    fn access(&mut self, page: u32, op: Op, bytes: Bytes, calls: &mut Vec<Call>) -> bool;
    fn drop_page(&mut self, page: u32, calls: &mut Vec<Call>);
    fn sync(&mut self, pages: Range<u32>, why: Why, calls: &mut Vec<Call>);
    fn direct(&mut self, pages: Range<u32>, op: Op, calls: &mut Vec<Call>);
    fn drain(&mut self, calls: &mut Vec<Call>);
    fn held(&self) -> BTreeSet<u32>;
    fn dirty(&self) -> BTreeSet<u32>;
    fn traffic(&self) -> Traffic;
}

/// Memory of a model: writes of each line of each frame, its header last.
pub(super) struct Lines {
    pub(super) traffic: Traffic,
    wear: Vec<[u64; PAGE_LINES as usize + 1]>,
}

impl Lines {
    pub(super) fn new(frames: u32) -> Self {
        let traffic = Traffic { nvm_lines: u64::from(frames) * PAGE_LINES, ..Traffic::default() };
        Self { traffic, wear: vec![[0; PAGE_LINES as usize + 1]; frames as usize] }
    }

    fn covering(bytes: Bytes) -> BTreeSet<usize> {
        (bytes.from..bytes.to).map(|byte| (u64::from(byte) / LINE_BYTES) as usize).collect()
    }

    pub(super) fn read_dram(&mut self, bytes: Bytes) {
        self.traffic.dram_read_lines += Self::covering(bytes).len() as u64;
    }

    pub(super) fn write_dram(&mut self, bytes: Bytes) {
        self.traffic.dram_written_lines += Self::covering(bytes).len() as u64;
    }

    pub(super) fn read_nvm(&mut self, bytes: Bytes) {
        self.traffic.nvm_reads += 1;
        self.traffic.nvm_read_lines += Self::covering(bytes).len() as u64;
    }

    pub(super) fn write_nvm(&mut self, frame: u32, bytes: Bytes) {
        self.traffic.nvm_writes += 1;
        for line in Self::covering(bytes) {
            self.traffic.nvm_written_lines += 1;
            self.wear[frame as usize][line] += 1;
        }
    }

    pub(super) fn header(&mut self, frame: u32) {
        self.traffic.nvm_written_lines += 1;
        self.wear[frame as usize][PAGE_LINES as usize] += 1;
    }

    pub(super) fn total(&self, nvm_left: usize) -> Traffic {
        let hottest = self.wear.iter().flatten().max().copied().unwrap_or(0);
        Traffic { nvm_hottest_line_writes: hottest, nvm_left: nvm_left as u64, ..self.traffic }
    }
}

pub(super) fn act(dice: &mut Dice, pages: u32) -> Act {
    let hot = 1 + dice.below(pages);
    let page = dice.below(hot);
    let range = |dice: &mut Dice| page..(page + 1 + dice.below(6).pow(2)).min(pages);
    let op = if dice.below(2) == 0 { Op::Read } else { Op::Write };
    match dice.below(100) {
        0..3 => Act::Drop(range(dice)),
        3..15 => {
            let why = [Why::Sync, Why::DataSync, Why::Periodic, Why::Expire];
            Act::Sync(range(dice), why[dice.below(4) as usize])
        }
        15..17 => Act::Sync(0..pages, Why::SyncAll),
        17..20 => Act::Direct(range(dice), op),
        _ => Act::Access(page, op, bytes(dice)),
    }
}

/// The whole page, some of its lines, or some bytes.
fn bytes(dice: &mut Dice) -> Bytes {
    let page_bytes = PAGE_BYTES as u32;
    let (from, to) = match dice.below(3) {
        0 => (0, page_bytes),
        1 => {
            let from = dice.below(page_bytes);
            (from, from + 1 + dice.below(page_bytes - from))
        }
        _ => {
            let from = dice.below(page_bytes - 100);
            (from, from + 1 + dice.below(100))
        }
    };
    Bytes { from: from as u16, to: to as u16 }
}

/// Settings, pages and frames of history `seed`.
pub(super) fn setting(dice: &mut Dice, frames_min: u32) -> (Settings, u32, u32) {
    let pages = 1 + dice.below(60);
    let frames = frames_min + dice.below(pages + 4);
    let settings = Settings {
        dram_share: [0.1, 0.5, 0.9][dice.below(3) as usize],
        byte_atomic_bytes: [2048, 0, 4096, 300][dice.below(4) as usize],
        write_miss_reads: dice.below(2) == 0,
        evict_batch: [1, 1, 2, 7][dice.below(4) as usize],
        old_versions: [OldVersions::Freed, OldVersions::Age, OldVersions::Written]
            [dice.below(3) as usize],
    };
    (settings, pages, frames)
}

/// Compares a cache with its model over a random history, step by step and through a drain.
pub(super) fn compare(
    dice: &mut Dice,
    pages: u32,
    cache: &mut impl Cache,
    model: &mut impl Model,
    case: &str,
) {
    let steps = 20 + dice.below(300);
    let mut calls = Calls::default();
    let mut expected = Vec::new();
    for step in 0..=steps {
        let act = if step == steps { Act::Drain } else { act(dice, pages) };
        let (mut hit, mut model_hit) = (false, false);
        match act.clone() {
            Act::Access(page, op, bytes) => {
                let access = Access::new(Page(page), op);
                let partial = op == Op::Write && bytes != Bytes::PAGE;
                let details = Details { partial, bytes, owner: Owner::UNKNOWN };
                hit = cache.access(access, details, &mut calls);
                model_hit = model.access(page, op, bytes, &mut expected);
            }
            Act::Drop(range) => {
                cache.drop_pages(range.clone(), &mut calls);
                range.for_each(|page| model.drop_page(page, &mut expected));
            }
            Act::Sync(range, why) => {
                cache.sync(range.clone(), why, &mut calls);
                model.sync(range, why, &mut expected);
            }
            Act::Direct(range, op) => {
                cache.direct(range.clone(), op, Owner::UNKNOWN, &mut calls);
                model.direct(range, op, &mut expected);
            }
            Act::Drain => {
                cache.drain(&mut calls);
                model.drain(&mut expected);
            }
        }
        let at = format!("{case}, step {step}: {act:?}");
        assert_eq!(hit, model_hit, "{at}");
        assert_eq!(calls.0, expected, "{at}");
        assert_eq!(cache.traffic(), model.traffic(), "{at}");
        let pages_where = |is: &dyn Fn(Page) -> bool| -> BTreeSet<u32> {
            (0..pages).filter(|page| is(Page(*page))).collect()
        };
        assert_eq!(pages_where(&|page| cache.holds(page)), model.held(), "{at}");
        assert_eq!(pages_where(&|page| cache.is_dirty(page)), model.dirty(), "{at}");
        assert_eq!(cache.dirty_pages(), model.dirty().len() as u64, "{at}");
        assert_eq!(cache.pages(), model.held().len() as u64, "{at}");
        cache.check();
        (calls.0, expected) = (Vec::new(), Vec::new());
    }
}
