//! The orders beside a model that searches a list of pages.

use super::*;
use crate::{
    back::{Nowhere, flush_nvm::FlushNvm, hybrid_flush::HybridFlush},
    layout,
    system::{self, SystemKind},
};
use flashsift_caches::trace::{Trace, TraceBuilder, Unit};
use flashsift_events::{
    event::{About, Action, Event, FileId, Knows, Side, Space},
    io::{Io, IoOp},
    page::PAGE_BYTES,
    params::Params,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use std::cell::RefCell;

/// The buffer as the paper describes it: pages in the order of their flushes, oldest first.
struct Model {
    is_hybrid: bool,
    /// Of Flush-NVM: a page that is flushed again keeps its turn.
    is_fifo: bool,
    flushes_victims: bool,
    slots: usize,
    held: Vec<(u32, u32)>,
    /// Pages that the cache used and that exist, the last one first, each once.
    used: Vec<u32>,
    reads: [u64; 2],
    writes: [u64; 2],
    flushes: u64,
    unflushed: bool,
}

impl Model {
    fn at(&self, page: u32) -> Option<usize> {
        self.held.iter().position(|(held, _)| *held == page)
    }

    fn read(&mut self, page: u32) {
        self.reads[usize::from(self.at(page).is_some())] += 1;
    }

    fn store(&mut self) {
        self.writes[0] += 1;
        self.unflushed = true;
    }

    fn flush(&mut self) {
        self.flushes += u64::from(self.unflushed);
        self.unflushed = false;
    }

    fn victim(&self) -> usize {
        let spared = |n: &usize| self.used.iter().take(2).any(|page| *page == self.held[*n].0);
        let key = |n: &usize| if self.is_hybrid { self.held[*n].1 } else { 0 };
        // The first of equals is the one flushed least recently.
        let all = || 0..self.held.len();
        let hot = |n: &usize| self.is_hybrid && spared(n);
        all().filter(|n| !hot(n)).min_by_key(key).or_else(|| all().min_by_key(key)).unwrap()
    }

    fn write(&mut self, page: u32, writes: u32) {
        if self.is_hybrid && writes == 1 {
            return self.store();
        }
        match self.at(page) {
            Some(n) if self.is_fifo => {
                self.held[n].1 = writes;
                self.writes[1] += 1;
                return;
            }
            Some(n) => drop(self.held.remove(n)),
            None if self.held.len() == self.slots => {
                let victim = self.victim();
                self.held.remove(victim);
                self.store();
                if self.flushes_victims {
                    self.flush();
                }
            }
            None => {}
        }
        self.held.push((page, writes));
        self.writes[1] += 1;
    }
}

/// A trace of a device with so many pages.
fn trace_of(pages: u32) -> Trace {
    let about = About {
        epoch_us: None,
        boot_us: None,
        side: Side::Before,
        space: Space::Blocks,
        knows: Knows::NOTHING,
    };
    let mut builder = TraceBuilder::new(about, Unit::Page, u64::MAX);
    let (offset, len) = (0, u64::from(pages) * PAGE_BYTES);
    let action = Action::Write { file: FileId(0), open: None, offset, len, sync: false };
    builder.extend(&[Event { at_us: 0, pid: 0, tid: 0, action }]).unwrap();
    builder.finish().unwrap()
}

fn orders(is_hybrid: bool, is_fifo: bool, slots: u32) -> Box<dyn Order> {
    match is_hybrid {
        true => Box::new(HybridFlush::new(slots)),
        false => Box::new(FlushNvm::new(slots, is_fifo)),
    }
}

/// A history of reads, flushes, deletions and syncs, with the counts that a cache would pass on.
fn compare(seed: u64) -> u64 {
    const PAGES: u32 = 12;
    let mut rng = Pcg64::seed_from_u64(seed);
    let (is_hybrid, flushes_victims): (bool, bool) = (rng.random(), rng.random());
    let is_fifo = !is_hybrid && rng.random();
    let slots = rng.random_range(1..6);
    let layout = layout::default_for(Space::Blocks);
    let trace = trace_of(PAGES);
    let storage = Storage::new(Some((layout.spec.build)(&trace, &layout.params)), Nowhere);
    let order = orders(is_hybrid, is_fifo, slots);
    let mut buffer = NvmBuffer::new(storage, order, PAGES, slots, flushes_victims);
    let mut model = Model {
        is_hybrid,
        is_fifo,
        flushes_victims,
        slots: slots as usize,
        held: Vec::new(),
        used: Vec::new(),
        reads: [0; 2],
        writes: [0; 2],
        flushes: 0,
        unflushed: false,
    };
    for step in 0..120 {
        let page = rng.random_range(0..PAGES);
        match rng.random_range(0..12) {
            0..4 => {
                buffer.read(Page(page), Owner::UNKNOWN);
                model.read(page);
            }
            4..9 => {
                let inherited = buffer.inherited_writes(Page(page));
                let held = model.at(page).map_or(0, |n| model.held[n].1);
                assert_eq!(inherited, held, "seed {seed}, step {step}");
                // Counts around the limit of the lists, too.
                let more = match rng.random_range(0..6) {
                    0 => rng.random_range(4090..4100),
                    _ => rng.random_range(1..4),
                };
                let why = [Why::Sync, Why::Evict, Why::Periodic][rng.random_range(0..3)];
                let (writes, owner) = (inherited + more, Owner::UNKNOWN);
                buffer.write(Written { page: Page(page), why, writes, owner });
                model.write(page, writes);
            }
            9 => {
                let end = rng.random_range(page..PAGES) + 1;
                buffer.free(page..end);
                model.held.retain(|(held, _)| !(page..end).contains(held));
                model.used.retain(|used| !(page..end).contains(used));
            }
            10 => {
                buffer.flush();
                model.flush();
            }
            _ => {
                buffer.write(Written {
                    page: Page(page),
                    why: Why::Direct,
                    writes: 0,
                    owner: Owner::UNKNOWN,
                });
                model.held.retain(|(held, _)| *held != page);
                model.used.retain(|used| *used != page);
                model.store();
            }
        }
        if rng.random() {
            buffer.accessed(Page(page));
            model.used.retain(|used| *used != page);
            model.used.insert(0, page);
        }
        buffer.check(0, |_| false);
        let (counts, traffic) = (buffer.counts(), buffer.traffic(&|page| page.0 == 0));
        let found = (
            [counts.reads, traffic.nvm_reads],
            [counts.writes, traffic.nvm_writes],
            counts.flushes,
            traffic.nvm_left,
        );
        let left = model.held.iter().filter(|(page, _)| *page != 0).count() as u64;
        let wanted = (model.reads, model.writes, model.flushes, left);
        assert_eq!(found, wanted, "seed {seed}, step {step}");
    }
    buffer.unmount();
    assert_eq!(buffer.counts().writes, model.writes[0] + model.held.len() as u64, "seed {seed}");
    model.writes[0]
}

// Promises: Systems 2, Systems 4.
#[test]
fn the_orders_do_what_the_paper_says() {
    let written: u64 = (0..3000).map(compare).sum();
    assert!(written > 10_000, "{written} pages went to storage");
}

/// Under every order, a page is in the buffer exactly while storage has an older version of it, and
/// at the end storage has them all.
#[test]
fn a_page_is_in_the_buffer_while_storage_lacks_it() {
    const PAGES: u32 = 40;
    let trace = trace_of(PAGES);
    let layout = layout::default_for(Space::Blocks);
    let mut evictions = 0;
    for spec in system::ALL {
        let SystemKind::Buffer(build) = spec.kind else { continue };
        for seed in 0..300 {
            let mut rng = Pcg64::seed_from_u64(seed);
            let case = format!("{}, seed {seed}", spec.name);
            let slots = rng.random_range(1..12);
            let stored = RefCell::new(Vec::new());
            let mut sink = |io: Io| {
                if io.op == IoOp::Write {
                    stored.borrow_mut().extend((0..u64::from(io.pages)).map(|n| io.lba + n));
                }
            };
            let sink: &mut dyn FnMut(Io) = &mut sink;
            let storage = Storage::new(Some((layout.spec.build)(&trace, &layout.params)), sink);
            let order = build(slots, &Params::NONE);
            let mut buffer = NvmBuffer::new(storage, order, PAGES, slots, rng.random());
            let mut lacking = [false; PAGES as usize];
            for step in 0..400 {
                // Some pages are written more often than others.
                let page = rng.random_range(0..PAGES).min(rng.random_range(0..PAGES));
                if rng.random_range(0..20) == 0 {
                    buffer.free(page..page + 1);
                    lacking[page as usize] = false;
                } else {
                    let writes = buffer.inherited_writes(Page(page)) + rng.random_range(1..3);
                    let (why, owner) = (Why::Sync, Owner::UNKNOWN);
                    lacking[page as usize] = true;
                    buffer.write(Written { page: Page(page), why, writes, owner });
                }
                buffer.submit();
                for lba in stored.borrow_mut().drain(..) {
                    assert!(std::mem::take(&mut lacking[lba as usize]), "{case}, step {step}");
                    evictions += 1;
                }
                for (page, lacks) in (0..).zip(lacking) {
                    let held = buffer.slot(Page(page)).is_some();
                    assert_eq!(held, lacks, "{case}, step {step}, page {page}");
                }
                buffer.check(0, |_| false);
            }
            buffer.unmount();
            let left = lacking.iter().filter(|lacks| **lacks).count();
            assert_eq!(stored.borrow().len(), left, "{case}");
        }
    }
    assert!(evictions > 100_000, "{evictions} pages went to storage");
}
