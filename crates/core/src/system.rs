//! A system is Front → Cache → Back; a cell is one system at one size over one trace.

use crate::{
    back::{DeviceCounts, Io, Sink, Storage},
    cache::{Cache, PageCache},
    front::{Front, NoFront},
    layout,
    page::{Access, NEVER, Op, PAGE_BYTES, Page},
    policy::{self, Build, Setup},
    trace::{Future, StepKind, Trace},
};

/// One cell of a comparison.
pub struct Cell<'a> {
    /// Which policy.
    pub policy: &'a policy::Selection,
    /// Cache size in frames, at least 1.
    pub frames: u32,
    /// Where pages lie.
    pub layout: &'a layout::Selection,
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

/// The sizes that tell caches apart where nobody asks for others: the five powers of two below what a trace touches.
pub fn telling_frames(pages: u32) -> Vec<u32> {
    let largest = (1 << (pages.max(2) - 1).ilog2()).min(FRAMES_MAX);
    (0..5).rev().map(|halvings| largest >> halvings).filter(|frames| *frames > 0).collect()
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
    match sink {
        Some(sink) => System { front: NoFront, cache, back: Storage::new(Some(layout()), sink) }
            .replay(cell, trace, future),
        None => {
            let layout = (trace.totals().write_accesses > 0).then(layout);
            System { front: NoFront, cache, back: Storage::new(layout, ()) }.replay(cell, trace, future)
        }
    }
}

struct System<F, C, B> {
    front: F,
    cache: C,
    back: B,
}

impl<F: Front, C: Cache, S: Sink> System<F, C, Storage<S>> {
    fn replay(mut self, cell: &Cell<'_>, trace: &Trace, future: Option<&Future>) -> Outcome {
        assert!(!C::OFFLINE || future.is_some(), "an offline policy is given the future");
        let mut position = 0;
        let (mut read_hits, mut write_hits) = (0, 0);
        let steps = trace.steps();
        for (n, step) in steps.iter().enumerate() {
            if let Some(later) = steps.get(n + FAR_AHEAD) {
                self.cache.far_ahead(later.first());
                self.cache.near_ahead(steps[n + NEAR_AHEAD].first());
            }
            if S::WANTS_READS {
                self.back.at_us = trace.at_us(n);
            }
            if self.front.take(*step, self.back.at_us, &mut self.cache, &mut self.back) {
                continue;
            }
            let op = match step.kind() {
                StepKind::Read => Op::Read,
                StepKind::Write | StepKind::WriteSync => Op::Write,
                // Write-back is on eviction only: nothing is written because somebody asks for it.
                StepKind::Sync => continue,
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
            }
            match op {
                Op::Read => read_hits += hits,
                Op::Write => write_hits += hits,
            }
        }
        if cell.drain {
            self.cache.drain(&mut self.back);
        }
        let totals = trace.totals();
        Outcome {
            read_accesses: totals.read_accesses,
            write_accesses: totals.write_accesses,
            read_hits,
            write_hits,
            device: self.back.counts(),
            dirty_left: self.cache.dirty_pages(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_lie_below_what_is_touched() {
        assert_eq!(telling_frames(1000), [32, 64, 128, 256, 512]);
        assert_eq!(telling_frames(1024), [32, 64, 128, 256, 512]);
        assert_eq!(telling_frames(1025), [64, 128, 256, 512, 1024]);
        assert_eq!(
            [0, 1, 2, 3, 5].map(telling_frames),
            [vec![1], vec![1], vec![1], vec![1, 2], vec![1, 2, 4]]
        );
        assert_eq!(telling_frames(u32::MAX).last(), Some(&FRAMES_MAX));
    }
}
