//! A dense trace: every page is a rank and every event a step of eight bytes. All cells share it,
//! read-only.
//!
//! Pages are ranked in (file, page) order. Every page of a request is touched, if only by this
//! request, so its pages have consecutive ranks, and a step is a first rank and a count. A sweep
//! over a million cells reads the same steps.

use flashsift_events::{
    event::{About, FileId},
    ledger::FileLedger,
    names::Heat,
    page::{NEVER, PAGES_MAX, Page},
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::sync::Arc;

mod builder;
mod files;
mod operations;
mod places;
pub mod sample;
mod tables;
mod without_removals;

pub use builder::TraceBuilder;
pub use files::{File, Files};
pub use operations::{
    Collector, Directory, DirectoryId, Entry, KnownInode, KnownInodes, Operation, OperationKind,
    Operations, ROOT,
};
pub use places::RecordedPlaces;
use tables::StepTables;
pub use tables::{Bytes, Owner, Read, Tables};
pub use without_removals::WithoutRemovals;

/// The effect of a [`Step`] on its pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepKind {
    /// Pages are read.
    Read,
    /// Pages are written in cache.
    Write,
    /// Pages are written and the writer waits for storage.
    WriteSync,
    /// Dirty pages of the range are made durable. The range lies in one file and may hold no page:
    /// a process synced nevertheless.
    Sync,
    /// Pages are truncated, punched out or deleted: gone from every tier, dirty ones unwritten.
    Drop,
    /// Every dirty page is made durable. The step has no pages of its own.
    SyncAll,
    /// Pages are read past the cache (`O_DIRECT`).
    DirectRead,
    /// Pages are written past the cache (`O_DIRECT`), which then holds none of them.
    DirectWrite,
    /// Pages of a folio become dirty with the one that a store through a mapping wrote. It is no
    /// access: nothing is counted as asked for.
    Folio,
}

/// One event in eight bytes: its kind, first page and number of pages.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Step {
    first: u32,
    /// 4 bits of kind, 2 of partial pages ([`DATA_ONLY`] of a sync), 20 of count. The builder uses
    /// the upper 6; they are 0 afterwards.
    bits: u32,
}

const KIND: u32 = (1 << 4) - 1;
const HEAD_PARTIAL: u32 = 1 << 4;
const TAIL_PARTIAL: u32 = 1 << 5;
const COUNT: u32 = 6;
/// Of a [`StepKind::Sync`].
const DATA_ONLY: u32 = HEAD_PARTIAL;
const BUILDER: u32 = 26;

impl Step {
    fn new(kind: StepKind, first: u32, pages: u32) -> Self {
        debug_assert!(pages <= PAGES_MAX);
        Self { first, bits: pages << COUNT | kind as u32 }
    }

    /// Returns the kind of step.
    #[inline(always)]
    pub fn kind(self) -> StepKind {
        match self.bits & KIND {
            0 => StepKind::Read,
            1 => StepKind::Write,
            2 => StepKind::WriteSync,
            3 => StepKind::Sync,
            4 => StepKind::Drop,
            5 => StepKind::SyncAll,
            6 => StepKind::DirectRead,
            7 => StepKind::DirectWrite,
            _ => StepKind::Folio,
        }
    }

    /// Returns the first page (rank).
    #[inline(always)]
    pub fn first(self) -> Page {
        Page(self.first)
    }

    /// Returns the number of pages, which have consecutive ranks.
    #[inline(always)]
    pub fn pages(self) -> u32 {
        self.bits >> COUNT
    }

    /// Returns the step's pages, ascending.
    #[inline(always)]
    pub fn range(self) -> std::ops::Range<u32> {
        self.first..self.first + self.pages()
    }

    /// Returns whether a [`StepKind::Sync`] leaves out the file's times (`fdatasync`).
    #[inline(always)]
    pub fn is_data_only(self) -> bool {
        self.kind() == StepKind::Sync && self.bits & DATA_ONLY != 0
    }

    /// Returns whether a read or write ends before the end of its last page.
    #[inline(always)]
    pub fn ends_inside_page(self) -> bool {
        self.bits & TAIL_PARTIAL != 0
    }

    /// Returns a step of the same kind over other pages.
    fn over(self, first: u32, pages: u32) -> Self {
        debug_assert!(pages <= PAGES_MAX);
        Self { first, bits: pages << COUNT | self.bits & (KIND | HEAD_PARTIAL | TAIL_PARTIAL) }
    }

    /// Returns whether a write covers only a part of this page of its range.
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

/// Consecutive pages of one file that the trace touches: it relates ranks to places in files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Rank of the first page.
    pub first: u32,
    /// How many pages.
    pub pages: u32,
    /// The file.
    pub file: FileId,
    /// Number of the first page in the file.
    pub page: u64,
}

/// The unit that a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A 4 KiB page.
    Page,
    /// The whole object that a request names (`--object-cache`): by its identifier in a trace of
    /// objects, else by its file or device and its first byte.
    Request,
}

/// The totals of a trace. They count only events that became steps, unless noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Read and write requests that touch at least one page.
    pub requests: u64,
    /// Requests of zero bytes, which touch no page.
    pub empty_requests: u64,
    /// Requests of at least one byte that bypassed the page cache (`O_DIRECT`).
    pub direct_requests: u64,
    /// Pages that they read.
    pub direct_reads: u64,
    /// Pages that they wrote.
    pub direct_writes: u64,
    /// Page reads.
    pub read_accesses: u64,
    /// Page writes.
    pub write_accesses: u64,
    /// Stores through mappings whose folios are known.
    pub stores: u64,
    /// Pages of those folios.
    pub folio_pages: u64,
    /// Stores through mappings whose folios are unknown.
    pub stores_without_folio: u64,
    /// Sync calls.
    pub syncs: u64,
    /// Truncations, punches and deletions that remove a page of the trace.
    pub drops: u64,
    /// Time of the last event, microseconds.
    pub duration_us: u64,
}

/// The exact time of each step, in four bytes: the low half of each, and the steps at which the
/// high half changes (every 71 minutes).
#[derive(Default)]
struct Times {
    low: Vec<u32>,
    /// (First step, high half from that step on.)
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

    #[inline]
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
    /// Shared with the layouts of all cells.
    runs: Arc<Vec<Run>>,
    pages: u32,
    /// Pages without those that only read-ahead can reach.
    touched_pages: u32,
    /// Number of descriptors in the table of reads.
    descriptors: u32,
    /// By file: how many pages it had at the beginning, where the trace says.
    pages_before: Vec<(FileId, u64)>,
    /// By file: the number of the directory of its first name.
    directories: Vec<(FileId, u32)>,
    /// The heat of each file that has one on F2FS, by file.
    heats: Vec<(FileId, Heat)>,
    totals: Totals,
    tables: Tables,
    step_tables: StepTables,
    /// In (file, page) order, with ranks from `pages` on.
    untouched: Vec<Run>,
    untouched_pages: u32,
    /// Shared with the layouts of all cells.
    places: Option<Arc<RecordedPlaces>>,
    operations: Operations,
    /// The last program of each process, with the table of owners.
    programs: HashMap<u32, Box<str>, FixedState>,
    names: FileLedger,
}

impl Trace {
    /// Returns the origin of the trace, and the facts that it contains.
    pub fn about(&self) -> About {
        self.about
    }

    /// Returns every step, in order.
    #[inline]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Returns the time of step `n`, in microseconds from the beginning; 0 if the trace has no
    /// times.
    #[inline]
    pub fn at_us(&self, n: usize) -> u64 {
        self.times.get(n).unwrap_or(0)
    }

    /// Returns the number of ranked pages: ranks are `0..pages`. They are the different pages that
    /// the trace touches and, with [`Tables::reads_ahead_pages`], pages near them.
    #[inline]
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Returns the number of different pages that the trace touches: its footprint.
    pub fn touched_pages(&self) -> u32 {
        self.touched_pages
    }

    /// Returns the number of descriptors: those of [`Read::descriptor`] are smaller.
    pub fn descriptors(&self) -> u32 {
        self.descriptors
    }

    /// Returns the facts of step `n`, a read, on which read-ahead depends. Requires
    /// [`Tables::reads_ahead_pages`].
    #[inline(always)]
    pub fn read(&self, n: usize) -> Read {
        self.step_tables.read(n)
    }

    /// Returns the pages by rank. Empty for units that are whole requests, which have no place.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Returns the same runs, to share.
    pub fn shared_runs(&self) -> Arc<Vec<Run>> {
        Arc::clone(&self.runs)
    }

    /// Returns how many pages a file had at the beginning: none if the trace creates it, as many as
    /// its size says, or `u64::MAX` if the trace does not say.
    pub fn pages_before(&self, file: FileId) -> u64 {
        builder::pages_before(&self.pages_before, file)
    }

    /// Returns the ranks of those pages of a run that its file had at the beginning. The others
    /// have no place on the device then.
    pub fn old_ranks(&self, run: &Run) -> std::ops::Range<u32> {
        builder::old_ranks(&self.pages_before, run)
    }

    /// Returns the number of the directory in which a file got its first name, if the trace says.
    pub fn directory(&self, file: FileId) -> Option<u32> {
        let at = self.directories.binary_search_by_key(&file, |(file, _)| *file).ok()?;
        Some(self.directories[at].1)
    }

    /// Returns the heat that F2FS gives a file by its first name, if it has one and the trace says.
    pub fn f2fs_heat(&self, file: FileId) -> Option<Heat> {
        let at = self.heats.binary_search_by_key(&file, |(file, _)| *file).ok()?;
        Some(self.heats[at].1)
    }

    /// Returns the totals.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Returns which side tables the trace has.
    #[inline]
    pub fn tables(&self) -> Tables {
        self.tables
    }

    /// Returns the bytes of `page` that step `n`, which accesses it, covers. Requires
    /// [`Tables::bytes`].
    #[inline(always)]
    pub fn bytes(&self, n: usize, page: Page) -> Bytes {
        self.step_tables.bytes(n, self.steps[n], page)
    }

    /// Returns the bytes of step `n`, a request; more than 4 GiB count as 4 GiB. Requires
    /// [`Tables::sizes`].
    #[inline(always)]
    pub fn request_bytes(&self, n: usize) -> u32 {
        self.step_tables.sizes[n]
    }

    /// Returns whether objects of the trace expire. Requires [`Tables::sizes`].
    pub fn has_ttls(&self) -> bool {
        !self.step_tables.ttls_ms.is_empty()
    }

    /// Returns for how many microseconds the object of step `n` lives after it enters a cache;
    /// `None`: for ever. Requires [`Tables::sizes`].
    #[inline(always)]
    pub fn ttl_us(&self, n: usize) -> Option<u64> {
        let ttl_ms = self.step_tables.ttls_ms.get(n).copied().filter(|ttl_ms| *ttl_ms > 0)?;
        Some(u64::from(ttl_ms) * 1000)
    }

    /// Returns the name of the last program that a process runs, where the trace tells it. Requires
    /// [`Tables::owners`].
    pub fn program(&self, process: u32) -> Option<&str> {
        self.programs.get(&process).map(AsRef::as_ref)
    }

    /// Returns the last name of a file, where the trace tells it. Requires [`Tables::names`].
    pub fn name(&self, file: FileId) -> Option<&str> {
        self.names.name_of(file)
    }

    /// Returns the process and the file of step `n`. Requires [`Tables::owners`].
    #[inline(always)]
    pub fn owner(&self, n: usize) -> Owner {
        let all_files = self.steps[n].kind() == StepKind::SyncAll;
        let StepTables { processes, files, .. } = &self.step_tables;
        Owner { process: processes[n], file: (!all_files).then_some(files[n]) }
    }

    /// Returns the operations that metadata depends on. Empty without [`Tables::operations`].
    pub fn operations(&self) -> &Operations {
        &self.operations
    }

    /// The inodes of these files are known, if they were there before.
    pub fn with_inodes(mut self, inodes: KnownInodes) -> Self {
        self.operations.know_inodes(inodes);
        self
    }

    /// Returns the pages inside a file's size, near touched pages, that the trace never touches
    /// ([`Tables::untouched_within_pages`]). Their ranks begin at [`Trace::pages`].
    pub fn untouched(&self) -> &[Run] {
        &self.untouched
    }

    /// Returns the number of pages of [`Trace::untouched`].
    pub fn untouched_pages(&self) -> u32 {
        self.untouched_pages
    }

    /// Returns the recorded places of the pages ([`Tables::places`]).
    pub fn places(&self) -> Option<&RecordedPlaces> {
        self.places.as_deref()
    }

    /// Returns the same places, to share.
    pub fn shared_places(&self) -> Option<Arc<RecordedPlaces>> {
        self.places.clone()
    }

    /// Returns the rank of page `number` of a file, if the trace has it, touched or untouched.
    pub fn page_of(&self, file: FileId, number: u64) -> Option<Page> {
        let in_runs = |runs: &[Run]| {
            let n = runs.partition_point(|run| (run.file, run.page) <= (file, number));
            let run = runs[n.checked_sub(1)?];
            let here = run.file == file && number - run.page < u64::from(run.pages);
            here.then(|| Page(run.first + (number - run.page) as u32))
        };
        in_runs(&self.runs).or_else(|| in_runs(&self.untouched))
    }

    /// Returns the ranks of those of a file's pages that the trace touches.
    pub fn ranks_of(&self, file: FileId, pages: &std::ops::Range<u64>) -> std::ops::Range<u32> {
        builder::ranks_of(&self.runs, self.pages, (file, pages.start, pages.end))
    }

    /// Returns the file of a page, touched or not, and the page's number in it; `None` for units
    /// without a place.
    pub fn place_of(&self, page: Page) -> Option<(FileId, u64)> {
        place_in(if page.0 < self.pages { self.runs() } else { self.untouched() }, page)
    }

    /// Returns the bytes that this trace holds in memory.
    pub fn held_bytes(&self) -> usize {
        self.steps.capacity() * size_of::<Step>()
            + self.times.low.capacity() * size_of::<u32>()
            + (self.runs.capacity() + self.untouched.capacity()) * size_of::<Run>()
            + self.pages_before.capacity() * size_of::<(FileId, u64)>()
            + self.directories.capacity() * size_of::<(FileId, u32)>()
            + self.heats.capacity() * size_of::<(FileId, Heat)>()
            + self.step_tables.held_bytes()
            + self.places.as_ref().map_or(0, |places| places.held_bytes())
            + self.operations.held_bytes()
            + self.programs.allocation_size()
            + self.names.held_bytes()
    }

    /// Returns the number of steps that make data durable: syncs, and writes that wait for storage.
    pub fn syncing_steps(&self) -> usize {
        let syncing =
            |kind| matches!(kind, StepKind::Sync | StepKind::SyncAll | StepKind::WriteSync);
        self.steps.iter().filter(|step| syncing(step.kind())).count()
    }

    /// Returns the page accesses that miss in every cache: each page's first, and its first after a
    /// removal or a direct write.
    pub fn cold_accesses(&self) -> u64 {
        let mut seen = vec![false; self.pages as usize];
        let mut cold = 0;
        for step in &self.steps {
            let range = step.range().start as usize..step.range().end as usize;
            match step.kind() {
                StepKind::Read | StepKind::Write | StepKind::WriteSync => {
                    let seen = &mut seen[range];
                    cold += seen.iter().filter(|seen| !**seen).count() as u64;
                    seen.fill(true);
                }
                StepKind::Folio => seen[range].fill(true),
                StepKind::Drop | StepKind::DirectWrite => seen[range].fill(false),
                StepKind::Sync | StepKind::SyncAll | StepKind::DirectRead => {}
            }
        }
        cold
    }

    /// Returns the next access of each access, for offline policies.
    ///
    /// # Errors
    ///
    /// [`TraceError::TooManyAccesses`] if the trace has more than 32 bits can number.
    pub fn future(&self) -> Result<Future, TraceError> {
        Future::new(self)
    }
}

/// Returns the file of a page of these runs, and the page's number in it.
pub fn place_in(runs: &[Run], page: Page) -> Option<(FileId, u64)> {
    let n = runs.partition_point(|run| run.first <= page.0);
    let run = runs[n.checked_sub(1)?];
    Some((run.file, run.page + u64::from(page.0 - run.first)))
}

/// For every page access and every page of a folio, in order, the position of the same page's next
/// one before its removal or a direct write, or [`NEVER`].
pub struct Future {
    next: Vec<u32>,
}

impl Future {
    fn new(trace: &Trace) -> Result<Self, TraceError> {
        let Totals { read_accesses, write_accesses, folio_pages, .. } = trace.totals;
        let accesses = read_accesses + write_accesses + folio_pages;
        if accesses >= u64::from(NEVER) {
            return Err(TraceError::TooManyAccesses { accesses });
        }
        let mut next = Vec::new();
        next.try_reserve_exact(accesses as usize)
            .map_err(|_| TraceError::TooManyAccesses { accesses })?;
        next.resize(accesses as usize, NEVER);
        let mut seen = vec![NEVER; trace.pages as usize];
        let mut position = accesses as u32;
        for step in trace.steps.iter().rev() {
            match step.kind() {
                StepKind::Read | StepKind::Write | StepKind::WriteSync | StepKind::Folio => {
                    for page in step.range().rev() {
                        position -= 1;
                        next[position as usize] =
                            std::mem::replace(&mut seen[page as usize], position);
                    }
                }
                StepKind::Drop | StepKind::DirectWrite => {
                    seen[step.first as usize..][..step.pages() as usize].fill(NEVER);
                }
                StepKind::Sync | StepKind::SyncAll | StepKind::DirectRead => {}
            }
        }
        Ok(Self { next })
    }

    /// Returns the next use of the page that is accessed at `position`.
    #[inline(always)]
    pub fn next(&self, position: usize) -> u32 {
        self.next[position]
    }
}

/// A trace that does not fit the dense form or the memory.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// The trace has more distinct pages than there are ranks.
    #[error("the trace touches more than 2^32 - 2 different pages (16 TiB): take a part of it")]
    TooManyPages,
    /// A page has more reads or writes than 32 bits count.
    #[error("a page is read or written more than 4294967295 times: take a part of the trace")]
    TooManyUses,
    /// The dense trace would exceed the memory limit.
    #[error(
        "the trace needs more than {limit_bytes} bytes of memory after {requests} requests: \
         shorten it, raise --trace-memory, or compare a sample of its pages (`flashsift compare \
         --sample 1%`)"
    )]
    TooMuchMemory {
        /// The limit that was given.
        limit_bytes: u64,
        /// Requests taken before the limit was reached.
        requests: u64,
    },
    /// The trace has more accesses than an offline policy can number in 32 bits.
    #[error(
        "offline policies (belady) take at most 4294967294 page accesses, \
        the trace has {accesses}: take a part of it"
    )]
    TooManyAccesses {
        /// Page accesses in the trace.
        accesses: u64,
    },
}

#[cfg(test)]
mod tests;
