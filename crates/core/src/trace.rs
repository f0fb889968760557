//! A trace made dense: every page a rank, every event a step of eight bytes, shared read-only by all cells.
//!
//! Pages are numbered by (file, page) order, so the pages of one request have consecutive ranks (each was touched, by
//! that request) and a step is a first rank and a count. A sweep over a million cells reads the same steps.

use crate::{
    event::{About, Action, Event, FileId},
    page::{NEVER, PAGE_BYTES, Page},
    structure::BitTree,
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// What a [`Step`] does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Pages are read.
    Read,
    /// Pages are written in cache.
    Write,
    /// Pages are written and the writer waits for storage.
    WriteSync,
    /// Dirty pages of the range are to be made durable.
    Sync,
    /// Pages are truncated, punched out or deleted: gone from every tier, dirty ones unwritten.
    Drop,
}

/// One event in eight bytes: a first page, how many pages, what is done to them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Step {
    first: u32,
    /// 3 bits of kind, 2 of partial pages, 21 of count; the upper 6 belong to the builder and are 0 afterwards.
    bits: u32,
}

const PAGES_MAX: u32 = (1 << 21) - 1;
const HEAD_PARTIAL: u32 = 1 << 3;
const TAIL_PARTIAL: u32 = 1 << 4;
const BUILDER: u32 = 26;

impl Step {
    fn new(kind: StepKind, first: u32, pages: u32) -> Self {
        debug_assert!(pages <= PAGES_MAX);
        Self { first, bits: pages << 5 | kind as u32 }
    }

    /// What it does.
    #[inline(always)]
    pub fn kind(self) -> StepKind {
        match self.bits & 7 {
            0 => StepKind::Read,
            1 => StepKind::Write,
            2 => StepKind::WriteSync,
            3 => StepKind::Sync,
            _ => StepKind::Drop,
        }
    }

    /// First page (rank).
    #[inline(always)]
    pub fn first(self) -> Page {
        Page(self.first)
    }

    /// How many pages, of consecutive rank.
    #[inline(always)]
    pub fn pages(self) -> u32 {
        self.bits >> 5
    }

    /// Its pages, ascending.
    #[inline(always)]
    pub fn range(self) -> std::ops::Range<u32> {
        self.first..self.first + self.pages()
    }

    /// A write covers only a part of this page of its range.
    #[inline(always)]
    pub fn is_partial(self, page: u32) -> bool {
        (page == self.first && self.bits & HEAD_PARTIAL != 0)
            || (page + 1 == self.first + self.pages() && self.bits & TAIL_PARTIAL != 0)
    }
}

impl std::fmt::Debug for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?}", self.kind(), self.range())
    }
}

/// Consecutive pages of one file that the trace touches: where ranks and places meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Rank of the first page.
    pub first: u32,
    /// How many pages.
    pub pages: u32,
    /// Whose they are.
    pub file: FileId,
    /// Number of the first page in the file.
    pub page: u64,
}

/// What one unit of the cache is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A 4 KiB page.
    Page,
    /// Whatever a request names, whole: one unit an object, for object traces (`--object-cache`).
    Request,
}

/// What a trace amounts to. All counts are of what became steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Read and write requests that touch at least one page.
    pub requests: u64,
    /// Requests of no bytes: they touch no page.
    pub empty_requests: u64,
    /// Page reads.
    pub read_accesses: u64,
    /// Page writes.
    pub write_accesses: u64,
    /// Sync calls.
    pub syncs: u64,
    /// Truncations, punches and deletions that reach a page of the trace.
    pub drops: u64,
    /// Time of the last event, microseconds.
    pub duration_us: u64,
}

/// One time a step, exact, in four bytes: the low half of each, and where the high half changes (every 71 minutes).
#[derive(Default)]
struct Times {
    low: Vec<u32>,
    /// (First step, high half from there on.)
    high: Vec<(usize, u32)>,
}

impl Times {
    #[inline(always)]
    fn push(&mut self, at_us: u64) {
        let high = (at_us >> 32) as u32;
        if self.high.last().is_none_or(|(_, last)| *last != high) {
            self.high.push((self.low.len(), high));
        }
        self.low.push(at_us as u32);
    }

    fn get(&self, n: usize) -> Option<u64> {
        let low = *self.low.get(n)?;
        let at = self.high.partition_point(|(first, _)| *first <= n);
        Some(u64::from(self.high[at - 1].1) << 32 | u64::from(low))
    }
}

/// A densified trace.
pub struct Trace {
    about: About,
    steps: Vec<Step>,
    times: Times,
    runs: Vec<Run>,
    pages: u32,
    created: Vec<FileId>,
    totals: Totals,
}

impl Trace {
    /// Where it comes from and what it can say.
    pub fn about(&self) -> About {
        self.about
    }

    /// Every step, in order.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// When step `n` happens, microseconds from the beginning; 0 where the trace has no times.
    pub fn at_us(&self, n: usize) -> u64 {
        self.times.get(n).unwrap_or(0)
    }

    /// How many different pages it touches: ranks are `0..pages`.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Its pages by rank. Empty for units that are whole requests: these have no place.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Files that were made during the trace, ascending: no place on the device is theirs at its beginning.
    pub fn created(&self) -> &[FileId] {
        &self.created
    }

    /// What it amounts to.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Bytes that this trace holds in memory.
    pub fn held_bytes(&self) -> usize {
        self.steps.capacity() * size_of::<Step>()
            + self.times.low.capacity() * size_of::<u32>()
            + self.runs.capacity() * size_of::<Run>()
    }

    /// For offline policies: each access's next.
    pub fn future(&self) -> Result<Future, TraceError> {
        Future::of(self)
    }
}

/// For every page access, in order, the position of the same page's next access before its removal, or [`NEVER`].
pub struct Future {
    next: Vec<u32>,
}

impl Future {
    fn of(trace: &Trace) -> Result<Self, TraceError> {
        let accesses = trace.totals.read_accesses + trace.totals.write_accesses;
        if accesses >= u64::from(NEVER) {
            return Err(TraceError::TooManyAccesses { accesses });
        }
        let mut next = Vec::new();
        next.try_reserve_exact(accesses as usize).map_err(|_| TraceError::TooManyAccesses { accesses })?;
        next.resize(accesses as usize, NEVER);
        let mut seen = vec![NEVER; trace.pages as usize];
        let mut position = accesses as u32;
        for step in trace.steps.iter().rev() {
            match step.kind() {
                StepKind::Read | StepKind::Write | StepKind::WriteSync => {
                    for page in step.range().rev() {
                        position -= 1;
                        next[position as usize] = std::mem::replace(&mut seen[page as usize], position);
                    }
                }
                StepKind::Drop => seen[step.first as usize..][..step.pages() as usize].fill(NEVER),
                StepKind::Sync => {}
            }
        }
        Ok(Self { next })
    }

    /// The next use of what is accessed at `position`.
    #[inline(always)]
    pub fn next(&self, position: usize) -> u32 {
        self.next[position]
    }
}

/// A trace that cannot be held.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// More distinct pages than ranks.
    #[error("the trace touches more than 2^32 - 2 different pages (16 TiB): take a part of it")]
    TooManyPages,
    /// The dense trace would not fit.
    #[error(
        "the trace needs more than {limit_bytes} bytes of memory after {requests} requests: \
         shorten it, or raise --trace-memory"
    )]
    TooMuchMemory {
        /// The limit that was given.
        limit_bytes: u64,
        /// Requests taken until then.
        requests: u64,
    },
    /// An offline policy numbers every access in 32 bits.
    #[error(
        "offline policies (belady) take at most 4294967294 page accesses, the trace has {accesses}: take a part of it"
    )]
    TooManyAccesses {
        /// Page accesses in the trace.
        accesses: u64,
    },
}

/// Blocks of 64 pages that [`TraceBuilder::near`] reaches: 256 GiB of a device, in at most 4 MiB.
const NEAR_BLOCKS: u64 = 1 << 20;

/// Sixty-four neighbouring pages of a file and which of them are touched.
struct Leaf {
    file: u64,
    /// Number of the first page / 64.
    block: u64,
    touched: u64,
    /// Rank of the first page touched, once ranks are known.
    rank: u32,
}

/// Takes events, gives a [`Trace`].
///
/// Pages are collected as bitmaps of 64, so that dense traces need little more than a bit a page while they are read;
/// ranks are then prefix sums over the bitmaps in (file, page) order.
pub struct TraceBuilder {
    about: About,
    unit: Unit,
    limit_bytes: u64,
    /// Until ranks are known, `first` is an index into `leaves` and the builder's bits the page in it; for syncs and
    /// drops an index into `ranges`.
    steps: Vec<Step>,
    times: Times,
    leaves: Vec<Leaf>,
    leaf_at: HashMap<(u64, u64), u32, FixedState>,
    /// The same for the beginning of file 0, one plus the leaf or 0: a block trace's device, or a dense object trace, is
    /// found there without hashing.
    near: Vec<u32>,
    /// Where the last request ended: the next one often is there too.
    last_leaf: u32,
    /// (file or all, first page, first page after).
    ranges: Vec<(Option<FileId>, u64, u64)>,
    created: Vec<FileId>,
    totals: Totals,
}

impl TraceBuilder {
    /// `limit_bytes` bounds the memory of the densified trace and of what it takes to make it.
    pub fn new(about: About, unit: Unit, limit_bytes: u64) -> Self {
        Self {
            about,
            unit,
            limit_bytes,
            steps: Vec::new(),
            times: Times::default(),
            leaves: Vec::new(),
            leaf_at: HashMap::default(),
            near: Vec::new(),
            last_leaf: 0,
            ranges: Vec::new(),
            created: Vec::new(),
            totals: Totals::default(),
        }
    }

    /// Takes some events, in order.
    pub fn extend(&mut self, events: &[Event]) -> Result<(), TraceError> {
        // Counting capacities once a batch is near enough; a vector that grows holds its old content for a moment.
        let held = self.steps.capacity() * size_of::<Step>()
            + self.times.low.capacity() * size_of::<u32>()
            + self.leaves.capacity() * size_of::<Leaf>()
            + self.leaf_at.capacity() * (size_of::<((u64, u64), u32)>() + 1)
            + self.ranges.capacity() * size_of::<(Option<FileId>, u64, u64)>();
        if held as u64 > self.limit_bytes {
            return Err(TraceError::TooMuchMemory {
                limit_bytes: self.limit_bytes,
                requests: self.totals.requests,
            });
        }
        events.iter().try_for_each(|event| self.push(event))
    }

    #[inline]
    fn push(&mut self, event: &Event) -> Result<(), TraceError> {
        match event.action {
            Action::Read { file, offset, len } => {
                self.access(event.at_us, StepKind::Read, file, offset, len)?;
            }
            Action::Write { file, offset, len, sync } => {
                let kind = if sync { StepKind::WriteSync } else { StepKind::Write };
                self.access(event.at_us, kind, file, offset, len)?;
            }
            Action::Sync { file, offset, len } => {
                self.totals.syncs += 1;
                if len > 0 {
                    let end = offset.saturating_add(len).div_ceil(PAGE_BYTES);
                    self.range(event.at_us, StepKind::Sync, Some(file), offset / PAGE_BYTES, end);
                }
            }
            Action::SyncAll => {
                self.totals.syncs += 1;
                self.range(event.at_us, StepKind::Sync, None, 0, u64::MAX);
            }
            Action::Truncate { file, size } => {
                self.range(event.at_us, StepKind::Drop, Some(file), size.div_ceil(PAGE_BYTES), u64::MAX);
            }
            Action::Punch { file, offset, len } => {
                let (from, to) = (offset.div_ceil(PAGE_BYTES), offset.saturating_add(len) / PAGE_BYTES);
                if from < to {
                    self.range(event.at_us, StepKind::Drop, Some(file), from, to);
                }
            }
            Action::Gone { file } => self.range(event.at_us, StepKind::Drop, Some(file), 0, u64::MAX),
            Action::Open { file, created } => {
                if created {
                    self.created.push(file);
                }
            }
            Action::Close { .. }
            | Action::Bind { .. }
            | Action::Rename { .. }
            | Action::Unbind { .. }
            | Action::Process { .. } => {}
        }
        self.totals.duration_us = self.totals.duration_us.max(event.at_us);
        Ok(())
    }

    #[inline]
    fn access(
        &mut self,
        at_us: u64,
        kind: StepKind,
        file: FileId,
        offset: u64,
        len: u64,
    ) -> Result<(), TraceError> {
        let (file, page, pages, partial) = match self.unit {
            // Identifiers take the place of pages, so that neighbours share a leaf.
            Unit::Request => (0, file.0, 1, 0),
            Unit::Page if len == 0 => {
                self.totals.empty_requests += 1;
                return Ok(());
            }
            Unit::Page => {
                let end = offset.saturating_add(len);
                let (page, last) = (offset / PAGE_BYTES, (end - 1) / PAGE_BYTES);
                let head = if offset.is_multiple_of(PAGE_BYTES) { 0 } else { HEAD_PARTIAL };
                let tail = if end.is_multiple_of(PAGE_BYTES) { 0 } else { TAIL_PARTIAL };
                // Readers refuse requests over 2 GiB (Linux's own limit), which is a quarter of what a step can hold.
                let pages = u32::try_from(last - page + 1).unwrap_or(PAGES_MAX).min(PAGES_MAX);
                (file.0, page, pages, head | tail)
            }
        };
        let count = match kind {
            StepKind::Read => &mut self.totals.read_accesses,
            _ => &mut self.totals.write_accesses,
        };
        *count += u64::from(pages);
        self.totals.requests += 1;
        let leaf = self.touch(file, page / 64, page % 64, u64::from(pages))?;
        let mut step = Step::new(kind, leaf, pages);
        step.bits |= partial | ((page % 64) as u32) << BUILDER;
        self.step(at_us, step);
        Ok(())
    }

    /// Marks `pages` pages from `first` of a block on, and gives the first one's leaf.
    #[inline]
    fn touch(&mut self, file: u64, block: u64, first: u64, pages: u64) -> Result<u32, TraceError> {
        let leaf = self.leaf(file, block)?;
        let here = pages.min(64 - first);
        self.leaves[leaf as usize].touched |= (!0 >> (64 - here)) << first;
        let mut left = pages - here;
        let mut block = block;
        while left > 0 {
            block += 1;
            let here = left.min(64);
            let leaf = self.leaf(file, block)?;
            self.leaves[leaf as usize].touched |= !0 >> (64 - here);
            left -= here;
        }
        Ok(leaf)
    }

    #[inline]
    fn leaf(&mut self, file: u64, block: u64) -> Result<u32, TraceError> {
        if let Some(last) = self.leaves.get(self.last_leaf as usize)
            && (last.file, last.block) == (file, block)
        {
            return Ok(self.last_leaf);
        }
        let fresh = u32::try_from(self.leaves.len()).map_err(|_| TraceError::TooManyPages)?;
        self.last_leaf = if file == 0 && block < NEAR_BLOCKS {
            let block = block as usize;
            if block >= self.near.len() {
                self.near.resize(block + 1, 0);
            }
            if self.near[block] == 0 {
                self.near[block] = fresh + 1;
            }
            self.near[block] - 1
        } else {
            *self.leaf_at.entry((file, block)).or_insert(fresh)
        };
        if self.last_leaf == fresh {
            self.leaves.push(Leaf { file, block, touched: 0, rank: 0 });
        }
        Ok(self.last_leaf)
    }

    fn range(&mut self, at_us: u64, kind: StepKind, file: Option<FileId>, from: u64, to: u64) {
        self.step(at_us, Step::new(kind, self.ranges.len() as u32, 0));
        self.ranges.push((file, from, to));
    }

    #[inline(always)]
    fn step(&mut self, at_us: u64, step: Step) {
        self.steps.push(step);
        if self.about.knows.times {
            self.times.push(at_us);
        }
    }

    /// Ranks the pages and gives every step its ranks.
    pub fn finish(mut self) -> Result<Trace, TraceError> {
        drop(std::mem::take(&mut self.leaf_at));
        self.created.sort_unstable();
        self.created.dedup();
        let (runs, pages) = rank(&mut self.leaves, self.unit)?;
        let ranges = std::mem::take(&mut self.ranges);
        let leaves = std::mem::take(&mut self.leaves);
        if ranges.is_empty() {
            self.steps.iter_mut().for_each(|step| *step = step.ranked(&leaves));
        } else {
            // A range may reach no page of the trace, or need several steps.
            let (steps, times) = (std::mem::take(&mut self.steps), std::mem::take(&mut self.times));
            // A file may be cut again and again: only a cut that reaches a page that exists is a step. Those of files from
            // before the trace exist from its beginning, others from their first access, until they are cut.
            let mut live = BitTree::new(pages);
            for run in runs.iter().filter(|run| self.created.binary_search(&run.file).is_err()) {
                (run.first..run.first + run.pages).for_each(|page| live.insert(page));
            }
            for (n, step) in steps.iter().enumerate() {
                let at = times.get(n).unwrap_or(0);
                let kind = step.kind();
                if !matches!(kind, StepKind::Sync | StepKind::Drop) {
                    let step = step.ranked(&leaves);
                    self.step(at, step);
                    step.range().for_each(|page| live.insert(page));
                    continue;
                }
                let mut ranks = ranks_of(&runs, pages, ranges[step.first as usize]);
                if kind == StepKind::Drop {
                    let mut reached = live.next(ranks.start).filter(|page| *page < ranks.end);
                    if reached.is_none() {
                        continue;
                    }
                    self.totals.drops += 1;
                    while let Some(page) = reached {
                        live.remove(page);
                        reached = live.next(page).filter(|page| *page < ranks.end);
                    }
                }
                while !ranks.is_empty() {
                    let part = (ranks.end - ranks.start).min(PAGES_MAX);
                    self.step(at, Step::new(kind, ranks.start, part));
                    ranks.start += part;
                }
            }
        }
        self.steps.shrink_to_fit();
        self.times.low.shrink_to_fit();
        let Self { about, steps, times, created, totals, .. } = self;
        Ok(Trace { about, steps, times, runs, pages, created, totals })
    }
}

impl Step {
    #[inline(always)]
    fn ranked(self, leaves: &[Leaf]) -> Self {
        let leaf = &leaves[self.first as usize];
        let below = (1 << (self.bits >> BUILDER)) - 1;
        Self {
            first: leaf.rank + (leaf.touched & below).count_ones(),
            bits: self.bits & ((1 << BUILDER) - 1),
        }
    }
}

/// Gives every leaf the rank of its first page, in (file, page) order; the runs of touched pages, for units that have a
/// place; and how many pages there are.
fn rank(leaves: &mut [Leaf], unit: Unit) -> Result<(Vec<Run>, u32), TraceError> {
    let mut order: Vec<u32> = (0..leaves.len() as u32).collect();
    order.sort_unstable_by_key(|n| (leaves[*n as usize].file, leaves[*n as usize].block));
    let mut runs: Vec<Run> = Vec::new();
    let mut pages: u32 = 0;
    for n in order {
        let leaf = &mut leaves[n as usize];
        leaf.rank = pages;
        let mut rest = if unit == Unit::Page { leaf.touched } else { 0 };
        while rest != 0 {
            let first = rest.trailing_zeros();
            let len = (rest >> first).trailing_ones();
            let page = leaf.block * 64 + u64::from(first);
            match runs.last_mut() {
                Some(run) if run.file.0 == leaf.file && run.page + u64::from(run.pages) == page => {
                    run.pages += len
                }
                _ => {
                    let rank = leaf.rank + (leaf.touched & ((1 << first) - 1)).count_ones();
                    runs.push(Run { first: rank, pages: len, file: FileId(leaf.file), page });
                }
            }
            rest &= !((!0 >> (64 - len)) << first);
        }
        pages = pages
            .checked_add(leaf.touched.count_ones())
            .filter(|pages| *pages < u32::MAX)
            .ok_or(TraceError::TooManyPages)?;
    }
    Ok((runs, pages))
}

/// The ranks of a file's pages `from..to` that the trace touches: one interval, since ranks follow (file, page).
fn ranks_of(runs: &[Run], pages: u32, (file, from, to): (Option<FileId>, u64, u64)) -> std::ops::Range<u32> {
    let Some(FileId(file)) = file else { return 0..pages };
    let rank_at = |page: u64| {
        let n = runs.partition_point(|run| (run.file.0, run.page) <= (file, page));
        match n.checked_sub(1).map(|n| runs[n]) {
            Some(run) if run.file.0 == file && page - run.page < u64::from(run.pages) => {
                run.first + (page - run.page) as u32
            }
            // Between runs: the next one's first.
            _ => runs.get(n).map_or(pages, |run| run.first),
        }
    };
    rank_at(from)..rank_at(to).max(rank_at(from))
}

#[cfg(test)]
mod tests;
