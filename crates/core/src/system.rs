//! A system is Front → Cache → Back; a cell is one system at one size over one trace.

use crate::{
    back::{Back, DeviceCounts, Io, Sink, Storage, Why},
    cache::{Cache, PageCache},
    front::{Front, NoFront},
    layout,
    page::{Access, NEVER, Op, PAGE_BYTES, Page},
    policy::{self, Build, Setup},
    trace::{Future, StepKind, Trace},
    writeback::{self, Machine, OnEviction, WriteBack},
};
use std::ops::Range;

/// One cell of a comparison.
pub struct Cell<'a> {
    /// Which policy.
    pub policy: &'a policy::Selection,
    /// Cache size in frames, at least 1.
    pub frames: u32,
    /// Where pages lie.
    pub layout: &'a layout::Selection,
    /// When dirty pages are written; the trace suits it ([`writeback::Modes::suit`]).
    pub writeback: writeback::Modes,
    /// At the end, write what is dirty.
    pub drain: bool,
    /// A write miss that covers a part of its page reads the page first.
    pub write_miss_reads: bool,
}

/// What came of a cell. All in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Page reads asked for.
    pub read_accesses: u64,
    /// Page writes asked for.
    pub write_accesses: u64,
    /// Page reads that found their page.
    pub read_hits: u64,
    /// Page writes that found their page.
    pub write_hits: u64,
    /// What reached the device.
    pub device: DeviceCounts,
    /// Dirty pages still in the cache at the end.
    pub dirty_left: u64,
}

impl Outcome {
    /// Page accesses.
    pub fn accesses(&self) -> u64 {
        self.read_accesses + self.write_accesses
    }

    /// Page hits.
    pub fn hits(&self) -> u64 {
        self.read_hits + self.write_hits
    }

    /// Page hits / page accesses; 0 of none.
    pub fn hit_ratio(&self) -> f64 {
        ratio(self.hits(), self.accesses())
    }

    /// Pages written, and those still dirty at the end, whose writes are due: what a drain would count.
    pub fn writes_due(&self) -> u64 {
        self.device.writes + self.dirty_left
    }

    /// Page writes that found their page dirty. Each other one makes its page dirty, and a dirty page is written, dropped or left.
    pub fn overwritten(&self) -> u64 {
        self.write_accesses - (self.writes_due() + self.device.dropped_dirty)
    }

    /// The share of writes that do not follow the write before them; 0 of none.
    pub fn nonsequential_share(&self) -> f64 {
        ratio(self.device.nonsequential_writes, self.device.writes)
    }

    /// SpatialClock's cost model (§5.1.2): 100 µs a page read, 800 µs a page written.
    pub fn cost_us(&self) -> u64 {
        self.device.reads * READ_COST_US + self.device.writes * WRITE_COST_US
    }
}

/// How many steps before its turn a page's table entry, then its frame, are fetched into the near caches.
const FAR_AHEAD: usize = 32;
const NEAR_AHEAD: usize = 12;

const READ_COST_US: u64 = 100;
const WRITE_COST_US: u64 = 800;

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// The largest cache, in frames: 1 TiB of pages. Ghosts of twice as many still have numbers.
pub const FRAMES_MAX: u32 = 1 << 28;

/// Frames in so many bytes of memory; `None` for less than one page or more than [`FRAMES_MAX`].
pub fn frames_in(memory_bytes: u64) -> Option<u32> {
    u32::try_from(memory_bytes / PAGE_BYTES).ok().filter(|frames| (1..=FRAMES_MAX).contains(frames))
}

/// Memory that a cell takes beside its trace, by estimate: the page table, a layout's places and a policy's ghosts by page;
/// lists and bits by frame.
pub fn cell_bytes(pages: u32, frames: u32) -> u64 {
    u64::from(pages) * 24 + u64::from(frames.min(pages)) * 40
}

/// Runs a cell: how [`policy::Spec`] holds a monomorphised system.
pub(crate) type Run = fn(&Cell<'_>, &Trace, Option<&Future>, Option<&mut dyn FnMut(Io)>) -> Outcome;

impl Cell<'_> {
    /// Runs the trace through the system. `future` is needed by offline policies ([`policy::Kind::is_offline`]); `sink` is
    /// handed every request to the device, in order.
    pub fn run(&self, trace: &Trace, future: Option<&Future>, sink: Option<&mut dyn FnMut(Io)>) -> Outcome {
        (self.policy.spec.run)(self, trace, future, sink)
    }
}

pub(crate) fn run<P: Build>(
    cell: &Cell<'_>,
    trace: &Trace,
    future: Option<&Future>,
    sink: Option<&mut dyn FnMut(Io)>,
) -> Outcome {
    let setup =
        Setup { frames: cell.frames, pages: trace.pages(), runs: trace.runs(), params: &cell.policy.params };
    let cache = PageCache::new(P::build(&setup), setup.pages, setup.frames, cell.write_miss_reads);
    let layout = || (cell.layout.spec.build)(trace, &cell.layout.params);
    let machine = || Machine::new(cell.writeback, trace, cell.frames);
    match sink {
        // Who listens pays for more than a machine that has nothing to do: no loop is compiled without.
        Some(sink) => {
            System::new(cache, Storage::new(Some(layout()), sink), machine()).replay(cell, trace, future)
        }
        None => {
            let storage = Storage::new((trace.totals().write_accesses > 0).then(layout), ());
            match cell.writeback.on_eviction_only() {
                true => System::new(cache, storage, OnEviction).replay(cell, trace, future),
                false => System::new(cache, storage, machine()).replay(cell, trace, future),
            }
        }
    }
}

struct System<F, C, B, W> {
    front: F,
    cache: C,
    back: Told<B, W>,
}

/// A back that tells of what leaves the cache on its own.
struct Told<B, W> {
    back: B,
    writeback: W,
}

impl<B: Back, W: WriteBack> Back for Told<B, W> {
    #[inline(always)]
    fn read(&mut self, page: Page) {
        self.back.read(page);
    }

    #[inline(always)]
    fn write(&mut self, page: Page, why: Why) {
        if let Some(machine) = self.writeback.machine() {
            machine.gone(page);
        }
        self.back.write(page, why);
    }

    #[inline(always)]
    fn dropped(&mut self, dirty: bool) {
        self.back.dropped(dirty);
    }

    #[inline(always)]
    fn free(&mut self, pages: Range<u32>) {
        if let Some(machine) = self.writeback.machine() {
            machine.removed(pages.clone());
        }
        self.back.free(pages);
    }
}

impl<C, B, W> System<NoFront, C, B, W> {
    fn new(cache: C, back: B, writeback: W) -> Self {
        Self { front: NoFront, cache, back: Told { back, writeback } }
    }
}

impl<F: Front, C: Cache, S: Sink, W: WriteBack> System<F, C, Storage<S>, W> {
    fn replay(mut self, cell: &Cell<'_>, trace: &Trace, future: Option<&Future>) -> Outcome {
        assert!(!C::OFFLINE || future.is_some(), "an offline policy is given the future");
        let mut position = 0;
        let (mut read_hits, mut write_hits) = (0, 0);
        let steps = trace.steps();
        for (n, step) in steps.iter().enumerate() {
            if cfg!(test) {
                self.check();
            }
            if let Some(later) = steps.get(n + FAR_AHEAD) {
                self.cache.far_ahead(later.first());
                self.cache.near_ahead(steps[n + NEAR_AHEAD].first());
            }
            let at_us = if S::WANTS_READS || W::ON { trace.at_us(n) } else { 0 };
            self.write_due(at_us);
            if self.front.take(*step, at_us, &mut self.cache, &mut self.back) {
                continue;
            }
            let kind = step.kind();
            let op = match kind {
                StepKind::Read => Op::Read,
                StepKind::Write | StepKind::WriteSync => Op::Write,
                StepKind::Sync => {
                    self.write_asked(|machine| machine.sync(Some(step.range())));
                    continue;
                }
                StepKind::SyncAll => {
                    self.write_asked(|machine| machine.sync(None));
                    continue;
                }
                StepKind::Drop => {
                    self.cache.drop_pages(step.range(), &mut self.back);
                    continue;
                }
            };
            let mut hits = 0;
            for page in step.range() {
                let next_use = match future {
                    Some(future) if C::OFFLINE => future.next(position),
                    _ => NEVER,
                };
                position += usize::from(C::OFFLINE);
                let access = Access { page: Page(page), op, was_dirty: false, next_use };
                let partial = op == Op::Write && step.is_partial(page);
                hits += u64::from(self.cache.access(access, partial, &mut self.back));
                if let (Some(machine), Op::Write) = (self.back.writeback.machine(), op) {
                    machine.dirtied(Page(page), at_us);
                }
            }
            match op {
                Op::Read => read_hits += hits,
                Op::Write => write_hits += hits,
            }
            if kind == StepKind::WriteSync {
                self.write_asked(|machine| machine.sync(Some(step.range())));
            }
            if op == Op::Write {
                self.write_asked(Machine::relieve);
            }
        }
        let totals = trace.totals();
        self.write_due(totals.duration_us);
        if cell.drain {
            self.cache.drain(&mut self.back);
        }
        Outcome {
            read_accesses: totals.read_accesses,
            write_accesses: totals.write_accesses,
            read_hits,
            write_hits,
            device: self.back.back.counts(),
            dirty_left: self.cache.dirty_pages(),
        }
    }

    /// Writes what was due until now, each at its time; and it is now.
    #[inline(always)]
    fn write_due(&mut self, now_us: u64) {
        while let Some(machine) = self.back.writeback.machine()
            && let Some(due_us) = machine.next_deadline().filter(|due_us| *due_us <= now_us)
        {
            let writes = machine.tick(due_us);
            assert!(writes, "what is due is to be written");
            self.back.back.at_us = due_us;
            self.write_out();
        }
        if S::WANTS_READS || W::ON {
            self.back.back.at_us = now_us;
        }
    }

    /// Writes what the machine is asked for.
    #[inline(always)]
    fn write_asked(&mut self, ask: impl FnOnce(&mut Machine) -> bool) {
        if self.back.writeback.machine().is_some_and(ask) {
            self.write_out();
        }
    }

    /// Writes what the machine has decided on.
    fn write_out(&mut self) {
        while let Some((page, why)) = self.back.writeback.machine().and_then(Machine::poll) {
            self.cache.clean(page);
            self.back.back.write(page, why);
        }
    }

    fn check(&mut self) {
        self.cache.check();
        let dirty_pages = self.cache.dirty_pages();
        if let Some(machine) = self.back.writeback.machine() {
            machine.check(dirty_pages, |page| self.cache.is_dirty(page));
        }
    }
}
