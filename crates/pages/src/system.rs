//! A system is a cache and its back; a cell is one system at one size over one trace.

use crate::{
    back::{Nowhere, NvmBuffer, Sink, Storage},
    layout, metadata, nvm,
    readahead::{
        self, Ahead, Before, CellReadAhead, ChargedAhead, NoReadAhead, ReadAhead, ReadCase,
        ReadEnd, ReadLog,
    },
    writeback::{self, DirtyPages, OnEviction, Syncs, WriteBack, rules::Urgent},
};
use flashsift_caches::{
    back::{Attribution, Back, DeviceCounts, Source, Why, Written},
    cache::{Cache, Details, FRAMES_MAX, PageCache},
    lines::{LineCounts, Lines, Traffic},
    policy::{self, Build, Compiled, Policy, Setup, erased::Erased},
    trace::{Bytes, Future, Operation, Owner, StepKind, Trace},
};
use flashsift_events::{
    address::Address,
    io::Io,
    page::{Access, NEVER, Op, PAGE_BYTES, Page},
};
use std::{cell::RefCell, ops::Range};

mod spec;

pub use spec::{ALL, PLAIN, Selection, SystemSpec};
pub(crate) use spec::{BUFFER_PARAMS, BuildOrder, SystemKind};

/// One cell of a comparison: one system, policy and size.
pub struct Cell<'a> {
    /// The system.
    pub system: &'a Selection,
    /// The policy. Systems that take none ([`SystemSpec::takes_policies`]) ignore it.
    pub policy: &'a policy::Selection,
    /// Cache size in frames, at least 1.
    pub frames: u32,
    /// The layout, which decides where pages lie.
    pub layout: &'a layout::Selection,
    /// The modes of write-back. The trace suits them ([`writeback::Modes::suit`]).
    pub writeback: writeback::Modes,
    /// Whether dirty pages are written at the end.
    pub drain: bool,
    /// Whether a write miss that covers a part of its page reads the page first.
    pub write_miss_reads: bool,
    /// The longest request to the device, in pages; 1 sends each page as a request.
    pub request_pages_max: u32,
    /// Whether places that become free are discarded.
    pub discards: bool,
    /// The file system whose own writes are added. It suits the trace and the layout
    /// ([`metadata::MetadataSpec::suits`]), and the trace has the table of operations.
    pub metadata: Option<&'a metadata::Selection>,
    /// The read-ahead; `None`: only what is asked for is read, and prefetches are not counted. The
    /// trace has the table of reads as far as the model reaches
    /// ([`readahead::ReadAheadModel::reach_pages`]).
    pub readahead: Option<CellReadAhead<'a>>,
    /// Gets the pages written by process and reason, if there is a place for them. The trace then
    /// has the table of owners.
    pub attribution: Option<&'a RefCell<Attribution>>,
    /// Gets the lines of memory accessed until now, before each step and at the end, if there is a
    /// place for them. A sink then knows which accesses came before a request.
    pub lines: Option<&'a std::cell::Cell<Lines>>,
    /// Gets the beginning and end of each read, if there is a place for them and a read-ahead.
    pub reads: Option<&'a ReadLog>,
}

/// The result of a cell. All counts are in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Page reads requested.
    pub read_accesses: u64,
    /// Page writes requested.
    pub write_accesses: u64,
    /// Page reads that were hits.
    pub read_hits: u64,
    /// Page writes that were hits.
    pub write_hits: u64,
    /// Pages that became dirty only because a store through a mapping wrote to another page of
    /// their folio.
    pub folio_writes: u64,
    /// Requests that reached the device.
    pub device: DeviceCounts,
    /// Pages that applications read past the cache; among [`DeviceCounts::reads`].
    pub direct_reads: u64,
    /// Pages that applications wrote past the cache; among [`DeviceCounts::writes`].
    pub direct_writes: u64,
    /// Accesses to memory, where the system counts them.
    pub traffic: Traffic,
    /// Prefetches; all 0 without read-ahead.
    pub readahead: readahead::Counts,
    /// Reads sent to the device; 0 without read-ahead.
    pub read_requests: u64,
    /// Dirty pages still in the cache at the end.
    pub dirty_left: u64,
}

impl Outcome {
    /// Returns the number of page accesses.
    pub fn accesses(&self) -> u64 {
        self.read_accesses + self.write_accesses
    }

    /// Returns the number of page hits.
    pub fn hits(&self) -> u64 {
        self.read_hits + self.write_hits
    }

    /// Returns page hits / page accesses; 0 without accesses.
    pub fn hit_ratio(&self) -> f64 {
        ratio(self.hits(), self.accesses())
    }

    /// Returns the pages written and those still dirty or in non-volatile memory at the end, whose
    /// writes are due: a drain would write as many.
    pub fn writes_due(&self) -> u64 {
        self.device.writes + self.dirty_left + self.traffic.nvm_left
    }

    /// Returns [`Self::writes_due`] together with the file system's own pages: all that the device
    /// gets.
    pub fn pages_due(&self) -> u64 {
        self.writes_due() + self.device.journal_writes + self.device.metadata_writes
    }

    /// Returns the page writes that found their page dirty. Each other page write makes its page
    /// dirty, and a dirty page is written, dropped or left at the end.
    pub fn overwritten(&self) -> u64 {
        let own = self.writes_due() - self.direct_writes;
        self.write_accesses + self.folio_writes - (own + self.device.dropped_dirty)
    }

    /// Returns the share of writes that do not follow the write before them; 0 without writes.
    pub fn nonsequential_share(&self) -> f64 {
        ratio(self.device.nonsequential_writes, self.device.writes)
    }

    /// Returns the cost by SpatialClock's model (§5.1.2): 100 µs a page read, 800 µs a page
    /// written.
    pub fn cost_us(&self) -> u64 {
        self.device.reads * READ_COST_US + self.device.writes * WRITE_COST_US
    }
}

/// Number of steps by which a page's table entry, then its frame, then the neighbours of the frame
/// are prefetched.
const FAR_AHEAD: usize = 32;
const NEAR_AHEAD: usize = 12;
const NEXT_AHEAD: usize = 5;

const READ_COST_US: u64 = 100;
const WRITE_COST_US: u64 = 800;

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Returns the number of frames in a number of bytes; `None` for less than one page or more than
/// [`FRAMES_MAX`].
pub fn frames_in(memory_bytes: u64) -> Option<u32> {
    u32::try_from(memory_bytes / PAGE_BYTES).ok().filter(|frames| (1..=FRAMES_MAX).contains(frames))
}

/// Returns an estimate of the memory that a cell takes beside its trace: by page, the page table
/// and the layout; by frame, its page and whether it is free; and the policy's.
pub fn cell_bytes(
    trace: &Trace,
    frames: u32,
    policy: &policy::PolicySpec,
    layout: &layout::LayoutSpec,
) -> u64 {
    let pages = u64::from(trace.pages());
    let frames = u64::from(frames).min(pages);
    let size = policy::CellSize { pages, frames, runs: trace.runs().len() as u64 };
    pages * (4 + u64::from(layout.page_bytes)) + frames * 8 + (policy.memory_bytes)(&size)
}

impl Cell<'_> {
    /// Returns the modes of write-back, with the rule of the file system whose metadata is added.
    fn modes(&self) -> writeback::Modes {
        let Self { writeback, metadata, .. } = self;
        let of_metadata = metadata.map(|metadata| metadata.spec.file_system);
        writeback::Modes { file_system: of_metadata.or(writeback.file_system), ..*writeback }
    }

    /// Runs the trace through the system. Offline policies ([`policy::Kind::is_offline`]) need
    /// `future`; `sink` gets every request to the device, in order.
    pub fn run(
        &self,
        trace: &Trace,
        future: Option<&Future>,
        sink: Option<&mut dyn FnMut(Io)>,
    ) -> Outcome {
        match self.system.spec.kind {
            SystemKind::Memory { run, .. } => run(self, trace, sink),
            _ => {
                let in_rank_order = self.layout.spec.in_rank_order;
                let replay = Replay { cell: self, trace, future, sink };
                self.policy.spec.compiled(&self.policy.params, in_rank_order, replay)
            }
        }
    }
}

/// Evaluates an expression on a policy. Unoptimised programs, as tests are, put the policy behind a
/// pointer, so that all policies share a loop: two of three loops are compiled once.
#[cfg(debug_assertions)]
macro_rules! shared {
    ($P:ty, $policy:ident => $run:expr) => {
        if <$P>::WANTS_ADDRESSES {
            let $policy = Erased::<true>::new($policy);
            $run
        } else {
            let $policy = Erased::<false>::new($policy);
            $run
        }
    };
}
#[cfg(not(debug_assertions))]
macro_rules! shared {
    ($P:ty, $policy:ident => $run:expr) => {
        $run
    };
}

/// The loop of a cell, which is compiled for each policy.
struct Replay<'a, 's> {
    cell: &'a Cell<'a>,
    trace: &'a Trace,
    future: Option<&'a Future>,
    sink: Option<&'s mut dyn FnMut(Io)>,
}

impl Compiled for Replay<'_, '_> {
    type Output = Outcome;

    fn run<P: Build + 'static>(self) -> Outcome {
        run::<P>(self.cell, self.trace, self.future, self.sink)
    }
}

/// Runs a page cache under a policy.
fn run<P: Build + 'static>(
    cell: &Cell<'_>,
    trace: &Trace,
    future: Option<&Future>,
    sink: Option<&mut dyn FnMut(Io)>,
) -> Outcome {
    assert!(!P::OFFLINE || future.is_some(), "an offline policy is given the future");
    let (frames, pages) = (cell.frames, trace.pages());
    let setup =
        Setup { frames, pages, runs: trace.runs(), params: &cell.policy.params, bytes: None };
    let policy = P::build(&setup);
    // A loop is compiled for each policy only where another cost does not hide that of calls.
    let has_buffer = matches!(cell.system.spec.kind, SystemKind::Buffer(_));
    let calls = match cell.readahead {
        _ if has_buffer => true,
        Some(ahead) => ahead.charges.is_some(),
        None => sink.is_some() || cell.metadata.is_some() || cell.attribution.is_some(),
    };
    if calls && P::WANTS_ADDRESSES {
        run_erased(Erased::<true>::new(policy), cell, trace, future, sink)
    } else if calls {
        run_erased(Erased::<false>::new(policy), cell, trace, future, sink)
    } else if cell.readahead.is_some() {
        shared!(P, policy => run_ahead(policy, cell, trace, future, sink.unwrap_or(&mut |_| {})))
    } else {
        run_alone(policy, cell, trace, future)
    }
}

/// Runs whatever costs more than the calls of a policy behind a pointer.
fn run_erased<P: Policy>(
    policy: P,
    cell: &Cell<'_>,
    trace: &Trace,
    future: Option<&Future>,
    sink: Option<&mut dyn FnMut(Io)>,
) -> Outcome {
    if let SystemKind::Buffer(order) = cell.system.spec.kind {
        return run_buffer(policy, cell, trace, future, order, sink);
    }
    run_watched(policy, cell, trace, future, sink.unwrap_or(&mut |_| {}))
}

/// Runs a page cache whose requests to the device are watched. The file system's own writes go by
/// time, as a sink does; processes are known there, too.
fn run_watched<P: Policy>(
    policy: P,
    cell: &Cell<'_>,
    trace: &Trace,
    future: Option<&Future>,
    sink: &mut dyn FnMut(Io),
) -> Outcome {
    let layout = (cell.layout.spec.build)(trace, &cell.layout.params);
    let back = storage::<P, _>(cell, trace, Storage::new(Some(layout), sink));
    let machine = DirtyPages::new(cell.modes(), trace, cell.frames);
    let system = system(policy, cell, trace, back, machine);
    match cell.readahead {
        Some(CellReadAhead { charges, .. }) => {
            let into = charges.expect("read-ahead alone has a loop for each policy");
            let ahead = ChargedAhead::new(new_ahead(cell, trace), trace, into);
            system.reading_ahead(ahead).replay(cell, trace, future)
        }
        None => system.replay(cell, trace, future),
    }
}

/// Runs a cache that stands in place of the page cache.
#[inline(never)]
pub(crate) fn run_memory<C: Cache>(
    cell: &Cell<'_>,
    trace: &Trace,
    cache: C,
    sink: Option<&mut dyn FnMut(Io)>,
) -> Outcome {
    let layout = (cell.layout.spec.build)(trace, &cell.layout.params);
    let storage = Storage::new(Some(layout), sink)
        .with_requests_up_to(cell.request_pages_max)
        .with_discards(cell.discards);
    let machine = DirtyPages::new(cell.modes(), trace, cell.frames);
    System::new(cache, storage, machine, NoReadAhead).replay(cell, trace, None)
}

/// Runs a page cache over a write buffer.
fn run_buffer<P: Policy>(
    policy: P,
    cell: &Cell<'_>,
    trace: &Trace,
    future: Option<&Future>,
    order: BuildOrder,
    sink: Option<&mut dyn FnMut(Io)>,
) -> Outcome {
    let layout = (cell.layout.spec.build)(trace, &cell.layout.params);
    let storage = storage::<P, _>(cell, trace, Storage::new(Some(layout), sink));
    let slots = spec::slots(cell.system, trace.pages());
    let flushes = cell.system.params.word(BUFFER_PARAMS, "flush") == "yes";
    let order = order(slots, &cell.system.params);
    let buffer = NvmBuffer::new(storage, order, trace.pages(), slots, flushes);
    let machine = DirtyPages::new(cell.modes(), trace, cell.frames);
    system(policy, cell, trace, buffer, machine).replay(cell, trace, future)
}

/// Runs a page cache that reads ahead.
#[inline(never)]
fn run_ahead<P: Policy>(
    policy: P,
    cell: &Cell<'_>,
    trace: &Trace,
    future: Option<&Future>,
    sink: &mut dyn FnMut(Io),
) -> Outcome {
    let layout = (cell.layout.spec.build)(trace, &cell.layout.params);
    let storage = storage::<P, _>(cell, trace, Storage::new(Some(layout), sink));
    let machine = DirtyPages::new(cell.modes(), trace, cell.frames);
    let system = system(policy, cell, trace, storage, machine);
    system.reading_ahead(new_ahead(cell, trace)).replay(cell, trace, future)
}

/// The read-ahead of a cell that has one.
fn new_ahead(cell: &Cell<'_>, trace: &Trace) -> Ahead {
    let CellReadAhead { model, advice, .. } = cell.readahead.expect("it reads ahead");
    let ahead = Ahead::new(model, trace).advised(advice);
    if cell.reads.is_some() { ahead.with_arrivals() } else { ahead }
}

/// Runs a page cache of which only the counts are wanted.
#[inline(never)]
fn run_alone<P: Policy + 'static>(
    policy: P,
    cell: &Cell<'_>,
    trace: &Trace,
    future: Option<&Future>,
) -> Outcome {
    let build = || (cell.layout.spec.build)(trace, &cell.layout.params);
    let totals = trace.totals();
    let writes = totals.write_accesses + totals.direct_writes + totals.folio_pages > 0;
    let wanted = P::WANTS_ADDRESSES || writes;
    let layout = wanted.then(build);
    let follows =
        layout.as_ref().is_some_and(|layout| layout.wants_dirtied() || layout.wants_time());
    // A loop is compiled for each case. Layouts that follow dirty pages or the time share that of
    // the write-back machine, which then has nothing to do.
    if follows || !cell.writeback.on_eviction_only() {
        shared!(P, policy => run_written_back(policy, cell, trace, future, layout))
    } else {
        let back = storage::<P, _>(cell, trace, Storage::new(layout, ()));
        system(policy, cell, trace, back, OnEviction).replay(cell, trace, future)
    }
}

/// Runs a page cache with write-back of which only the counts are wanted.
#[inline(never)]
fn run_written_back<P: Policy>(
    policy: P,
    cell: &Cell<'_>,
    trace: &Trace,
    future: Option<&Future>,
    layout: Option<Box<dyn layout::Layout>>,
) -> Outcome {
    let machine = DirtyPages::new(cell.modes(), trace, cell.frames);
    let back = storage::<P, _>(cell, trace, Storage::new(layout, Nowhere));
    system(policy, cell, trace, back, machine).replay(cell, trace, future)
}

/// Returns storage as the cell wants it. It gives addresses if the policy wants them.
fn storage<P: Policy, S: Sink>(cell: &Cell<'_>, trace: &Trace, storage: Storage<S>) -> Storage<S> {
    let storage = storage
        .with_requests_up_to(cell.request_pages_max)
        .with_discards(cell.discards)
        .with_clusters(cell.writeback.cluster);
    let storage = match cell.metadata {
        Some(metadata) => {
            let machine = (metadata.spec.build)(trace, &metadata.params, &cell.writeback);
            storage.with_metadata(trace, machine)
        }
        None => storage,
    };
    let storage = if cell.attribution.is_some() { storage.with_attribution() } else { storage };
    if P::WANTS_ADDRESSES { storage.with_addresses(trace) } else { storage }
}

/// Builds a page cache under a policy, in front of any back.
fn system<P: Policy, B: Back, W: WriteBack>(
    policy: P,
    cell: &Cell<'_>,
    trace: &Trace,
    back: B,
    writeback: W,
) -> System<PageCache<P>, B, W, NoReadAhead> {
    let Cell { frames, write_miss_reads, .. } = *cell;
    let cache = PageCache::new::<B>(policy, trace.pages(), frames, write_miss_reads);
    System::new(cache, back, writeback, NoReadAhead)
}

/// Counts before a read, all in pages.
struct BeforeRead {
    evicted: u64,
    writes: u64,
}

struct System<C, B, W, R> {
    cache: C,
    back: Watched<B, W>,
    ahead: R,
    /// Empty, except while a range of addresses is written ahead.
    cluster: Vec<Page>,
    /// Lines of a page cache that applications accessed, if they are published.
    dram: LineCounts,
}

/// A back whose cache is watched: the write-back machine is notified of requests to the device and
/// of pages that leave the cache on their own, and reads are counted by their source.
struct Watched<B, W> {
    back: B,
    writeback: W,
}

impl<B: Back, W: WriteBack> Back for Watched<B, W> {
    const WANTS_TIME: bool = B::WANTS_TIME;
    const WANTS_COUNTS: bool = B::WANTS_COUNTS;
    const WANTS_OWNERS: bool = B::WANTS_OWNERS;
    const WANTS_ACCESSES: bool = B::WANTS_ACCESSES;
    const WANTS_DIRTIED: bool = B::WANTS_DIRTIED;

    #[inline(always)]
    fn now(&mut self, at_us: u64) {
        if let Some(machine) = self.writeback.dirty_pages() {
            machine.now(at_us);
        }
        self.back.now(at_us);
    }

    #[inline(always)]
    fn running(&mut self, process: u32) {
        self.back.running(process);
    }

    #[inline(always)]
    fn read(&mut self, page: Page, owner: Owner) -> Source {
        let source = self.back.read(page, owner);
        if let (Some(machine), Source::Storage) = (self.writeback.dirty_pages(), source) {
            machine.busy();
        }
        source
    }

    #[inline(always)]
    fn read_ahead(&mut self, page: Page, owner: Owner) -> Source {
        let source = self.back.read_ahead(page, owner);
        if let (Some(machine), Source::Storage) = (self.writeback.dirty_pages(), source) {
            machine.busy();
        }
        source
    }

    fn read_requests(&self) -> u64 {
        self.back.read_requests()
    }

    #[inline(always)]
    fn write(&mut self, written: Written) {
        if let Some(machine) = self.writeback.dirty_pages() {
            machine.written(written.page);
            machine.busy();
        }
        self.back.write(written);
    }

    #[inline(always)]
    fn write_older(&mut self, written: Written) {
        if let Some(machine) = self.writeback.dirty_pages() {
            machine.busy();
        }
        self.back.write_older(written);
    }

    #[inline(always)]
    fn durable(&mut self, pages: Range<u32>) {
        if let Some(machine) = self.writeback.dirty_pages() {
            machine.cleaned(pages.clone());
        }
        self.back.durable(pages);
    }

    #[inline(always)]
    fn submit(&mut self) {
        self.back.submit();
    }

    #[inline(always)]
    fn clusters(&self) -> bool {
        self.back.clusters()
    }

    fn cluster(&mut self, page: Page, into: &mut Vec<Page>) {
        self.back.cluster(page, into);
    }

    fn next_cluster(&mut self, into: &mut Vec<Page>) {
        self.back.next_cluster(into);
    }

    #[inline(always)]
    fn flush(&mut self) {
        if let Some(machine) = self.writeback.dirty_pages() {
            machine.busy();
        }
        self.back.flush();
    }

    #[inline(always)]
    fn dropped(&mut self, dirty: bool) {
        self.back.dropped(dirty);
    }

    #[inline(always)]
    fn free(&mut self, pages: Range<u32>) {
        if let Some(machine) = self.writeback.dirty_pages() {
            machine.cleaned(pages.clone());
        }
        self.back.free(pages);
    }

    #[inline(always)]
    fn accessed(&mut self, page: Page) {
        self.back.accessed(page);
    }

    #[inline(always)]
    fn dirtied(&mut self, page: Page) {
        self.back.dirtied(page);
    }

    #[inline(always)]
    fn inherited_writes(&self, page: Page) -> u32 {
        self.back.inherited_writes(page)
    }

    #[inline(always)]
    fn address(&mut self, page: Page) -> Address {
        self.back.address(page)
    }

    #[inline(always)]
    fn poll_moved(&mut self) -> Option<Range<u32>> {
        self.back.poll_moved()
    }

    #[inline(always)]
    fn operation(&mut self, operation: &Operation) {
        self.back.operation(operation);
    }

    fn lacks_place(&self, pages: Range<u32>) -> bool {
        self.back.lacks_place(pages)
    }

    fn unmount(&mut self) {
        self.back.unmount();
    }

    fn take_attribution(&mut self) -> Option<Attribution> {
        self.back.take_attribution()
    }

    fn counts(&self) -> DeviceCounts {
        self.back.counts()
    }

    fn lines(&self) -> Lines {
        self.back.lines()
    }

    fn traffic(&self, is_dirty: &dyn Fn(Page) -> bool) -> Traffic {
        self.back.traffic(is_dirty)
    }

    fn check(&self, dirty_pages: u64, is_dirty: impl Fn(Page) -> bool) {
        self.back.check(dirty_pages, is_dirty);
    }
}

impl<C: Cache, B: Back, W: WriteBack> System<C, B, W, NoReadAhead> {
    fn reading_ahead<R: ReadAhead<C>>(self, ahead: R) -> System<C, B, W, R> {
        let System { cache, back: Watched { back, writeback }, .. } = self;
        System::new(cache, back, writeback, ahead)
    }
}

impl<C: Cache, B: Back, W: WriteBack, R: ReadAhead<C>> System<C, B, W, R> {
    fn new(cache: C, back: B, writeback: W, ahead: R) -> Self {
        Self {
            cache,
            back: Watched { back, writeback },
            ahead,
            cluster: Vec::new(),
            dram: LineCounts::default(),
        }
    }

    // A function of its own: beside others in one, the loop's variables lose their registers.
    #[inline(never)]
    fn replay(mut self, cell: &Cell<'_>, trace: &Trace, future: Option<&Future>) -> Outcome {
        assert!(!C::WANTS_BYTES || trace.tables().bytes, "the trace has byte extents");
        assert!(!B::WANTS_OWNERS || trace.tables().owners, "the trace has owners");
        let mut position = 0;
        let (mut all_hits, mut write_hits, mut folio_writes) = (0, 0, 0);
        let steps = trace.steps();
        let mut operations = trace.operations().list();
        let has_owners = trace.tables().owners;
        for (n, step) in steps.iter().enumerate() {
            if cfg!(test) {
                self.check();
            }
            if let Some(ahead) = steps[n..].first_chunk::<{ FAR_AHEAD + 1 }>() {
                self.cache.far_ahead(ahead[FAR_AHEAD].first());
                self.cache.near_ahead(ahead[NEAR_AHEAD].first());
                self.cache.next_ahead(ahead[NEXT_AHEAD].first());
            }
            if B::WANTS_TIME {
                self.publish_lines_before(cell, trace, n);
            }
            if B::WANTS_TIME || W::ON {
                self.operate(&mut operations, n, trace);
            }
            let at_us = if B::WANTS_TIME || W::ON { trace.at_us(n) } else { 0 };
            self.write_due(at_us);
            if B::WANTS_TIME && has_owners {
                self.back.running(trace.owner(n).process);
            }
            let kind = step.kind();
            let op = match kind {
                StepKind::Read => Op::Read,
                StepKind::Write | StepKind::WriteSync => Op::Write,
                StepKind::Sync => {
                    let why = if step.is_data_only() { Why::DataSync } else { Why::Sync };
                    self.sync(cell, trace, Some(step.range()), why);
                    continue;
                }
                StepKind::SyncAll => {
                    self.sync(cell, trace, None, Why::SyncAll);
                    continue;
                }
                StepKind::Drop => {
                    self.cache.drop_pages(step.range(), &mut self.back);
                    continue;
                }
                StepKind::Folio => {
                    let future = future.filter(|_| C::OFFLINE).map(|future| (future, position));
                    folio_writes += self.dirty_folio(trace, n, future, at_us);
                    position += if C::OFFLINE { step.pages() as usize } else { 0 };
                    continue;
                }
                StepKind::DirectRead | StepKind::DirectWrite => {
                    let owner = if B::WANTS_OWNERS { trace.owner(n) } else { Owner::UNKNOWN };
                    let op = if kind == StepKind::DirectRead { Op::Read } else { Op::Write };
                    self.direct(step.range(), op, owner);
                    continue;
                }
            };
            let owner = if B::WANTS_OWNERS { trace.owner(n) } else { Owner::UNKNOWN };
            let mut hits = 0;
            let read = cell.reads.filter(|_| R::ON && op == Op::Read);
            let before_read = read.map(|log| self.begin_read(log));
            if R::ON && op == Op::Read {
                self.ahead.plan(trace, n, &self.cache);
            }
            for page in step.range() {
                let next_use = match future {
                    Some(future) if C::OFFLINE => future.next(position),
                    _ => NEVER,
                };
                position += usize::from(C::OFFLINE);
                let access = Access { next_use, ..Access::new(Page(page), op) };
                let bytes = if C::WANTS_BYTES { trace.bytes(n, Page(page)) } else { Bytes::PAGE };
                let partial = op == Op::Write && step.is_partial(page);
                let details = Details { partial, bytes, owner };
                let covers = op == Op::Write && !partial;
                let before =
                    if R::ON { self.before_access(&access, covers) } else { Before::default() };
                let hit = self.cache.access(access, details, &mut self.back);
                hits += u64::from(hit);
                if R::ON {
                    let read = op == Op::Read;
                    self.ahead.accessed(before, hit, read, &self.cache, &self.back);
                }
                if B::WANTS_ACCESSES {
                    self.back.accessed(Page(page));
                }
                if let (Some(machine), Op::Write) = (self.back.writeback.dirty_pages(), op) {
                    machine.dirtied(Page(page), at_us);
                }
            }
            all_hits += hits;
            if op == Op::Write {
                write_hits += hits;
            }
            if R::ON && op == Op::Read {
                self.ahead.fetch(owner, &mut self.cache, &mut self.back);
            }
            self.back.submit();
            if let (Some(log), Some(before)) = (read, before_read) {
                let hit = hits == u64::from(step.pages());
                self.end_read(log, before, hit, n, at_us);
            }
            if kind == StepKind::WriteSync {
                self.sync(cell, trace, Some(step.range()), Why::Sync);
            }
            if op == Op::Write {
                self.write_asked(DirtyPages::relieve);
            }
        }
        let totals = trace.totals();
        if B::WANTS_TIME {
            self.publish_lines_before(cell, trace, steps.len());
        }
        if B::WANTS_TIME || W::ON {
            self.operate(&mut operations, steps.len(), trace);
        }
        self.write_due(totals.duration_us);
        if cell.drain {
            self.cache.drain(&mut self.back);
            self.back.submit();
            self.back.unmount();
            self.publish_lines_before(cell, trace, 0);
        }
        self.ahead.finish(&self.cache);
        if let (Some(into), Some(found)) = (cell.attribution, self.back.take_attribution()) {
            into.replace(found);
        }
        Outcome {
            read_accesses: totals.read_accesses,
            write_accesses: totals.write_accesses,
            read_hits: all_hits - write_hits,
            write_hits,
            folio_writes,
            device: self.back.counts(),
            direct_reads: totals.direct_reads,
            direct_writes: totals.direct_writes,
            traffic: self.back.traffic(&|page| self.cache.is_dirty(page)) + self.cache.traffic(),
            dirty_left: self.cache.dirty_pages(),
            readahead: self.ahead.counts(),
            read_requests: if R::ON { self.back.read_requests() } else { 0 },
        }
    }

    /// Prepares an access where pages are read ahead.
    #[inline(always)]
    fn before_access(&mut self, access: &Access, covers: bool) -> Before {
        if self.ahead.begins(access.page.0) {
            self.back.submit();
        }
        self.ahead.before_access(access, covers, &mut self.cache, &mut self.back)
    }

    /// A read begins. Returns the facts that [`Self::end_read`] needs.
    #[inline(never)]
    fn begin_read(&mut self, log: &ReadLog) -> BeforeRead {
        log.begin();
        self.ahead.take_needs();
        BeforeRead { evicted: self.ahead.counts().evicted, writes: self.back.counts().writes }
    }

    /// The read that is step `n` has ended. `hit`: every page that it asked for was in the cache.
    #[inline(never)]
    fn end_read(&mut self, log: &ReadLog, before: BeforeRead, hit: bool, n: usize, at_us: u64) {
        let evicted = self.ahead.counts().evicted - before.evicted;
        let written = self.back.counts().writes - before.writes;
        let case = ReadCase::new(hit, evicted, written);
        log.end(ReadEnd { at_us, case, number: n as u32, needs: self.ahead.take_needs() });
    }

    /// Publishes the lines of memory accessed before step `n`; at the end, `n` is 0.
    #[inline(always)]
    fn publish_lines_before(&mut self, cell: &Cell<'_>, trace: &Trace, n: usize) {
        if let Some(into) = cell.lines {
            self.publish_lines(cell, trace, n, into);
        }
    }

    #[cold]
    fn publish_lines(
        &mut self,
        cell: &Cell<'_>,
        trace: &Trace,
        n: usize,
        into: &std::cell::Cell<Lines>,
    ) {
        // A page cache does not count the accesses of applications to it.
        if cell.system.spec.takes_policies() && n > 0 {
            self.dram = self.dram + nvm::of_step(trace, n - 1);
        }
        let of_cache = Lines { dram: self.dram, ..Lines::NONE };
        into.set(of_cache + self.cache.lines() + self.back.lines());
    }

    /// Passes the operations on that come before step `n`.
    #[inline(always)]
    fn operate(&mut self, operations: &mut &[Operation], n: usize, trace: &Trace) {
        while let Some((operation, rest)) = operations.split_first()
            && operation.after_steps as usize <= n
        {
            *operations = rest;
            self.perform(operation, trace);
        }
    }

    #[cold]
    fn perform(&mut self, operation: &Operation, trace: &Trace) {
        self.write_due(operation.at_us);
        self.back.operation(operation);
        let Some(machine) = self.back.writeback.dirty_pages() else { return };
        if let Some(Urgent { file, pages, if_unplaced }) = machine.operation(&operation.kind) {
            let pages = trace.ranks_of(file, &pages);
            let mut waiting = pages.clone().filter(|page| self.cache.is_dirty(Page(*page)));
            if !if_unplaced || waiting.any(|page| self.back.lacks_place(page..page + 1)) {
                self.write_asked(|machine| machine.write_now(pages));
            }
        }
        if let Some(machine) = self.back.writeback.dirty_pages() {
            machine.done(&operation.kind);
        }
    }

    /// Makes the pages of step `n`, a folio, dirty. The cache gets those that it lacks, as the
    /// kernel holds a folio as a whole. All count as used, because a folio has one place in the
    /// kernel's order. Returns how many were clean or absent. `future`: for offline policies, with
    /// the position of the step.
    #[inline(never)]
    fn dirty_folio(
        &mut self,
        trace: &Trace,
        n: usize,
        future: Option<(&Future, usize)>,
        at_us: u64,
    ) -> u64 {
        if !C::FOLIOS {
            return 0;
        }
        let owner = if B::WANTS_OWNERS { trace.owner(n) } else { Owner::UNKNOWN };
        // No page of a folio is dirty before it was read.
        let details = Details { partial: true, bytes: Bytes::PAGE, owner };
        let mut dirtied = 0;
        for (position, page) in trace.steps()[n].range().enumerate() {
            dirtied += u64::from(!self.cache.is_dirty(Page(page)));
            let next_use = future.map_or(NEVER, |(future, first)| future.next(first + position));
            let access = Access { next_use, ..Access::new(Page(page), Op::Write) };
            let absent = R::ON && !self.cache.holds(Page(page));
            let before = absent.then(|| self.before_access(&access, false));
            self.cache.access(access, details, &mut self.back);
            if let Some(before) = before {
                self.ahead.accessed(before, false, false, &self.cache, &self.back);
            }
            if let Some(machine) = self.back.writeback.dirty_pages() {
                machine.dirtied(Page(page), at_us);
            }
        }
        self.back.submit();
        self.write_asked(DirtyPages::relieve);
        dirtied
    }

    /// Handles a request that passes the cache. Such requests are rare.
    #[inline(never)]
    fn direct(&mut self, pages: Range<u32>, op: Op, owner: Owner) {
        self.cache.direct(pages, op, owner, &mut self.back);
        self.back.submit();
    }

    /// Handles an application's sync of the pages of a file; `None`: of all files.
    #[inline(always)]
    fn sync(&mut self, cell: &Cell<'_>, trace: &Trace, pages: Option<Range<u32>>, why: Why) {
        if C::DURABLE {
            let of_file = pages.clone().filter(|_| cell.writeback.syncs != Syncs::Everything);
            let reached = of_file.unwrap_or(0..trace.pages());
            self.cache.sync(reached.clone(), why, &mut self.back);
            self.back.submit();
            if let Some(machine) = self.back.writeback.dirty_pages() {
                machine.cleaned(reached);
            }
        }
        self.write_asked(|machine| machine.sync(pages, why));
        if !C::DURABLE && cell.writeback.syncs != Syncs::Nothing {
            self.back.flush();
        }
    }

    /// Writes all pages that were due until now, each at its time, and sets the present time to
    /// `now_us`.
    #[inline(always)]
    fn write_due(&mut self, now_us: u64) {
        while let Some(machine) = self.back.writeback.dirty_pages()
            && let Some(due_us) = machine.next_deadline().filter(|due_us| *due_us <= now_us)
        {
            let writes = machine.tick(due_us);
            assert!(writes, "what is due is to be written");
            self.back.now(due_us);
            self.write_out();
        }
        if B::WANTS_TIME || W::ON {
            self.back.now(now_us);
        }
    }

    /// Calls the machine, and writes the pages that it decides on.
    #[inline(always)]
    fn write_asked(&mut self, ask: impl FnOnce(&mut DirtyPages) -> bool) {
        if self.back.writeback.dirty_pages().is_some_and(ask) {
            self.write_out();
        }
    }

    /// Writes the pages that the machine has decided on.
    fn write_out(&mut self) {
        while let Some((page, why)) = self.back.writeback.dirty_pages().and_then(DirtyPages::poll) {
            self.cache.sync(page.0..page.0 + 1, why, &mut self.back);
        }
        self.back.submit();
        while let Some(why) = self.back.writeback.dirty_pages().and_then(DirtyPages::poll_cluster) {
            self.back.next_cluster(&mut self.cluster);
            assert!(!self.cluster.is_empty(), "a dirty page is in a range");
            for page in self.cluster.drain(..) {
                self.cache.sync(page.0..page.0 + 1, why, &mut self.back);
            }
            self.back.submit();
        }
    }

    fn check(&mut self) {
        self.cache.check();
        let dirty_pages = self.cache.dirty_pages();
        if let Some(machine) = self.back.writeback.dirty_pages() {
            machine.check(dirty_pages, |page| self.cache.is_dirty(page));
        }
        self.back.check(dirty_pages, |page| self.cache.is_dirty(page));
    }
}

#[cfg(test)]
mod tests;
