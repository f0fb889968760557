//! The builder, which turns events into a dense trace.

use super::{
    BUILDER, Bytes, DATA_ONLY, HEAD_PARTIAL, Run, Step, StepKind, StepTables, TAIL_PARTIAL, Tables,
    Times, Totals, Trace, TraceError, Unit,
    operations::{Collector, Operations},
    places::PlacesBuilder,
    tables::{ReadRow, untouched, widened},
};
use flashsift_events::{
    event::{About, Action, Event, FileId, Micros, OpenId, Space},
    ledger::FileLedger,
    names::{self, Heat},
    page::{PAGE_BYTES, PAGES_MAX},
    structure::BitTree,
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::sync::Arc;

/// Blocks of 64 pages that [`TraceBuilder::near`] covers: 256 GiB of a device, in at most 4 MiB.
const NEAR_BLOCKS: u64 = 1 << 20;

/// Sixty-four neighbouring pages of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Leaf {
    file: u64,
    /// Number of the first page / 64.
    block: u64,
}

/// A leaf's touched pages, and the rank of the first of them.
#[derive(Clone, Copy, Default)]
struct Ranked {
    touched: u64,
    rank: u32,
}

/// The pages of an access, as the builder's steps hold them.
#[derive(Clone, Copy, Default)]
struct Piece {
    /// The leaf of the first page.
    leaf: u32,
    /// The bits of the step beside kind and count.
    bits: u32,
    /// How many pages; 0: the access is empty, and has no leaf.
    pages: u32,
}

impl Piece {
    /// Returns the place of the first page in its leaf.
    #[inline(always)]
    fn first(&self) -> u32 {
        self.bits >> BUILDER
    }
}

/// Stands for the file of a directory's sync.
const NO_FILE: FileId = FileId(u64::MAX);

/// Events whose leaves are looked up together.
const TOGETHER: usize = 32;

/// Takes events and builds a [`Trace`].
///
/// While events come in, bitmaps of 64 pages collect the touched pages, so that a dense trace needs
/// little more than a bit per page. Ranks are then prefix sums over the bitmaps in (file, page)
/// order.
pub struct TraceBuilder {
    about: About,
    unit: Unit,
    /// Objects are what begins at one place of a file or device.
    keyed_by_place: bool,
    limit_bytes: u64,
    /// Until ranks are known, `first` is an index into `leaves`, and the builder's bits hold the
    /// page in that leaf. For syncs and drops `first` is an index into `ranges`.
    steps: Vec<Step>,
    times: Times,
    leaves: Vec<Leaf>,
    /// The touched pages of each leaf. They lie apart, because most accesses need nothing else.
    touched: Vec<u64>,
    leaf_at: HashMap<(u64, u64), u32, FixedState>,
    /// The leaf of each block at the beginning of file 0, plus one; 0: none. A block trace's
    /// device, or a dense object trace, is found there without hashing.
    near: Vec<u32>,
    /// The leaf that `leaf_at` gave last; the next request often begins there.
    last_leaf: u32,
    /// (File, first page, first page after the range.)
    ranges: Vec<(FileId, u64, u64)>,
    /// How many pages each file had at the beginning, where the trace says: a new one has none.
    pages_before: Vec<(FileId, u64)>,
    totals: Totals,
    tables: Tables,
    step_tables: StepTables,
    /// The process of the current event.
    process: u32,
    /// Of the next request; 0: its object does not expire.
    ttl_us: Micros,
    programs: HashMap<u32, Box<str>, FixedState>,
    names: FileLedger,
    /// The largest size of each file, in bytes, where untouched pages are wanted.
    sizes: HashMap<FileId, u64, FixedState>,
    reads: Readers,
    first_names: FirstNames,
    places: PlacesBuilder,
    operations: Collector,
    /// The rule of the trace's file system wants operations, but for reads.
    has_rule: bool,
}

/// The facts that file systems take from a file's first name: its directory, and on F2FS its heat.
#[derive(Default)]
struct FirstNames {
    directory: HashMap<FileId, u32, FixedState>,
    /// Only of files that have one.
    heat: HashMap<FileId, Heat, FixedState>,
    numbers: HashMap<Box<str>, u32, FixedState>,
    name_bytes: usize,
}

impl FirstNames {
    fn named(&mut self, file: FileId, name: &str) {
        let Some((directory, _)) = name.rsplit_once('/') else { return };
        if self.directory.contains_key(&file) {
            return;
        }
        if let Some(heat) = names::f2fs_heat(name) {
            self.heat.insert(file, heat);
        }
        let number = match self.numbers.get(directory) {
            Some(number) => *number,
            None => {
                let number = self.numbers.len() as u32;
                self.numbers.insert(directory.into(), number);
                self.name_bytes += directory.len();
                number
            }
        };
        self.directory.insert(file, number);
    }

    fn held_bytes(&self) -> usize {
        self.directory.capacity() * (size_of::<(FileId, u32)>() + 1)
            + self.heat.capacity() * (size_of::<(FileId, Heat)>() + 1)
            + self.numbers.capacity() * (size_of::<(Box<str>, u32)>() + 1)
            + self.name_bytes
    }
}

impl TraceBuilder {
    /// Returns an empty builder. `limit_bytes` bounds the memory of the dense trace, including that
    /// needed to build it.
    pub fn new(about: About, unit: Unit, limit_bytes: u64) -> Self {
        let keyed_by_place = unit == Unit::Request && about.space != Space::Objects;
        let space = if keyed_by_place { Space::Objects } else { about.space };
        Self {
            about: About { space, ..about },
            unit,
            keyed_by_place,
            limit_bytes,
            steps: Vec::new(),
            times: Times::default(),
            leaves: Vec::new(),
            touched: Vec::new(),
            leaf_at: HashMap::default(),
            near: Vec::new(),
            last_leaf: 0,
            ranges: Vec::new(),
            pages_before: Vec::new(),
            totals: Totals::default(),
            tables: Tables::default(),
            step_tables: StepTables::default(),
            process: 0,
            ttl_us: 0,
            programs: HashMap::default(),
            names: FileLedger::default(),
            sizes: HashMap::default(),
            reads: Readers::default(),
            first_names: FirstNames::default(),
            places: PlacesBuilder::default(),
            operations: Collector::default(),
            has_rule: unit == Unit::Page && about.knows.file_system.is_some(),
        }
    }

    /// Adds these side tables to the trace. To be called before the first event.
    pub fn with_tables(mut self, tables: Tables) -> Self {
        self.tables = tables;
        self
    }

    /// Takes some events, in order.
    ///
    /// # Errors
    ///
    /// The trace exceeds the memory limit, or has more pages than there are ranks.
    pub fn extend(&mut self, events: &[Event<'_>]) -> Result<(), TraceError> {
        // Counting capacities once per batch is exact enough. A vector that grows holds its old
        // content for a moment.
        let held = self.steps.capacity() * size_of::<Step>()
            + self.times.low.capacity() * size_of::<u32>()
            + self.leaves.capacity() * (size_of::<Leaf>() + size_of::<Ranked>())
            + self.touched.capacity() * size_of::<u64>()
            + self.leaf_at.capacity() * (size_of::<((u64, u64), u32)>() + 1)
            + self.ranges.capacity() * size_of::<(FileId, u64, u64)>()
            + self.step_tables.held_bytes()
            + self.sizes.capacity() * (size_of::<(FileId, u64)>() + 1)
            + self.reads.held_bytes()
            + self.first_names.held_bytes()
            + self.names.held_bytes()
            + self.places.held_bytes()
            + self.operations.held_bytes();
        if held as u64 > self.limit_bytes {
            return Err(TraceError::TooMuchMemory {
                limit_bytes: self.limit_bytes,
                requests: self.totals.requests,
            });
        }
        match self.tables == Tables::default() {
            true => self.extend_with::<false>(events),
            false => self.extend_with::<true>(events),
        }
    }

    /// Takes events, for side tables as well, or for none.
    fn extend_with<const TABLES: bool>(&mut self, events: &[Event<'_>]) -> Result<(), TraceError> {
        for events in events.chunks(TOGETHER) {
            // Several loops, each as short as can be: the processor then waits for many leaves at
            // once.
            let mut pieces = [Piece::default(); TOGETHER];
            for (event, piece) in events.iter().zip(&mut pieces) {
                let (Action::Read { file, offset, len, .. }
                | Action::Write { file, offset, len, .. }
                | Action::Direct { file, offset, len, .. }
                | Action::Folio { file, offset, len }) = event.action
                else {
                    continue;
                };
                // A folio is a thing of page caches.
                if self.unit == Unit::Page || !matches!(event.action, Action::Folio { .. }) {
                    *piece = self.piece(file, offset, len)?;
                }
            }
            for piece in pieces.iter().filter(|piece| piece.pages > 0) {
                let first = piece.first();
                let here = piece.pages.min(64 - first);
                self.touched[piece.leaf as usize] |= (!0 >> (64 - here)) << first;
            }
            for (event, piece) in events.iter().zip(&pieces) {
                let steps = self.steps.len();
                self.push::<TABLES>(event, piece)?;
                if self.tables.operations || self.has_rule && !is_read(&event.action) {
                    self.operations.push(event, steps, self.steps.len());
                }
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn push<const TABLES: bool>(
        &mut self,
        event: &Event<'_>,
        piece: &Piece,
    ) -> Result<(), TraceError> {
        if TABLES {
            self.push_to_tables(event);
        }
        match event.action {
            Action::Read { file, offset, len, .. } => {
                self.access::<TABLES>(event.at_us, StepKind::Read, piece, (file, offset, len))?;
            }
            Action::Write { file, offset, len, sync, .. } => {
                let kind = if sync { StepKind::WriteSync } else { StepKind::Write };
                self.access::<TABLES>(event.at_us, kind, piece, (file, offset, len))?;
            }
            Action::Direct { file, offset, len, write, .. } => {
                let kind = if write { StepKind::DirectWrite } else { StepKind::DirectRead };
                self.access::<TABLES>(event.at_us, kind, piece, (file, offset, len))?;
            }
            Action::Folio { file, offset, len } => {
                if len == 0 {
                    self.totals.stores_without_folio += 1;
                } else if self.unit == Unit::Page {
                    let place = (file, offset, len);
                    self.access::<TABLES>(event.at_us, StepKind::Folio, piece, place)?;
                }
            }
            // The kernel's own work, perhaps long after the last access: results are the same
            // without it.
            Action::Place { file, offset, len, at } => {
                if TABLES && self.tables.places {
                    self.places.placed(event.at_us, file, offset, len, at);
                }
                return Ok(());
            }
            _ => self.other(event),
        }
        self.totals.duration_us = self.totals.duration_us.max(event.at_us);
        Ok(())
    }

    /// Takes what the side tables, but those of steps, take from an event.
    fn push_to_tables(&mut self, event: &Event<'_>) {
        self.process = event.pid;
        if let Action::TimeToLive { ttl_us } = event.action {
            self.ttl_us = ttl_us;
        }
        if self.tables.names {
            self.names.take_names(&event.action);
        }
        let reads_ahead = self.tables.reads_ahead_pages > 0;
        if (self.tables.untouched_within_pages > 0 || reads_ahead)
            && let Some((file, size)) = size_after(&event.action)
        {
            let largest = self.sizes.entry(file).or_default();
            *largest = size.max(*largest);
        }
        if reads_ahead {
            if let Action::Size { file, size } = event.action {
                let largest = self.sizes.entry(file).or_default();
                *largest = size.max(*largest);
            }
            self.reads.push(&event.action, self.about.knows.opens);
        }
    }

    /// Takes an event that is no access.
    #[inline(never)]
    fn other(&mut self, event: &Event<'_>) {
        match event.action {
            Action::Sync { file, offset, len, data_only } => {
                self.totals.syncs += 1;
                let end =
                    if len == 0 { 0 } else { offset.saturating_add(len).div_ceil(PAGE_BYTES) };
                self.range(event.at_us, StepKind::Sync, file, offset / PAGE_BYTES, end);
                if let Some(step) = self.steps.last_mut().filter(|_| data_only) {
                    step.bits |= DATA_ONLY;
                }
            }
            // It writes no page of a file, and waits for a flush nevertheless.
            Action::SyncDirectory { .. } => {
                self.totals.syncs += 1;
                self.range(event.at_us, StepKind::Sync, NO_FILE, 0, 0);
            }
            Action::SyncAll => {
                self.totals.syncs += 1;
                self.range(event.at_us, StepKind::SyncAll, FileId(0), 0, 0);
            }
            Action::Truncate { file, size } => {
                self.range(event.at_us, StepKind::Drop, file, size.div_ceil(PAGE_BYTES), u64::MAX);
            }
            Action::Punch { file, offset, len } => {
                let (from, to) =
                    (offset.div_ceil(PAGE_BYTES), offset.saturating_add(len) / PAGE_BYTES);
                if from < to {
                    self.range(event.at_us, StepKind::Drop, file, from, to);
                }
            }
            Action::Gone { file } => self.range(event.at_us, StepKind::Drop, file, 0, u64::MAX),
            Action::Open { file, created, .. } => {
                if created {
                    self.pages_before.push((file, 0));
                }
            }
            Action::Create(ref create) => {
                self.pages_before.push((create.file, 0));
                self.first_names.named(create.file, &create.name);
            }
            Action::Process { ref name } if self.tables.owners => {
                self.programs.insert(event.pid, (&**name).into());
            }
            Action::Process { .. } => {}
            Action::Bind { file, ref name } => self.first_names.named(file, name),
            Action::Size { file, size } => {
                self.pages_before.push((file, size.div_ceil(PAGE_BYTES)));
            }
            Action::Read { .. }
            | Action::Write { .. }
            | Action::Direct { .. }
            | Action::Folio { .. }
            | Action::Filled { .. }
            | Action::Place { .. }
            | Action::Close { .. }
            | Action::Link { .. }
            | Action::Rename { .. }
            | Action::RenameDirectory { .. }
            | Action::Unbind { .. }
            | Action::Cause { .. }
            | Action::MemoryLines { .. }
            | Action::ControlGroup { .. }
            | Action::TimeToLive { .. }
            | Action::MemoryPressure { .. }
            | Action::Meaning { .. }
            | Action::Foreground { .. } => {}
        }
    }

    /// Returns the pages of an access, with the leaf of the first.
    #[inline(always)]
    fn piece(&mut self, file: FileId, offset: u64, len: u64) -> Result<Piece, TraceError> {
        let (file, page, pages, partial) = match self.unit {
            // Identifiers stand in for pages, so that neighbours share a leaf.
            Unit::Request if !self.keyed_by_place => (0, file.0, 1, 0),
            Unit::Request => (file.0, offset, 1, 0),
            Unit::Page if len == 0 => return Ok(Piece::default()),
            Unit::Page => {
                let end = offset.saturating_add(len);
                let (page, last) = (offset / PAGE_BYTES, (end - 1) / PAGE_BYTES);
                let head = if offset.is_multiple_of(PAGE_BYTES) { 0 } else { HEAD_PARTIAL };
                let tail = if end.is_multiple_of(PAGE_BYTES) { 0 } else { TAIL_PARTIAL };
                // Readers refuse requests over 2 GiB (Linux's own limit), which is a quarter of
                // what a step can hold.
                let pages = u32::try_from(last - page + 1).unwrap_or(PAGES_MAX).min(PAGES_MAX);
                (file.0, page, pages, head | tail)
            }
        };
        let (block, first) = (page / 64, (page % 64) as u32);
        Ok(Piece { leaf: self.leaf(file, block)?, bits: partial | first << BUILDER, pages })
    }

    #[inline(always)]
    fn access<const TABLES: bool>(
        &mut self,
        at_us: u64,
        kind: StepKind,
        piece: &Piece,
        (file, offset, len): (FileId, u64, u64),
    ) -> Result<(), TraceError> {
        let totals = &mut self.totals;
        let Piece { leaf, bits, pages } = *piece;
        if pages == 0 {
            totals.empty_requests += 1;
            return Ok(());
        }
        let (requests, count) = match kind {
            StepKind::Read => (&mut totals.requests, &mut totals.read_accesses),
            StepKind::DirectRead => (&mut totals.direct_requests, &mut totals.direct_reads),
            StepKind::DirectWrite => (&mut totals.direct_requests, &mut totals.direct_writes),
            StepKind::Folio => (&mut totals.stores, &mut totals.folio_pages),
            _ => (&mut totals.requests, &mut totals.write_accesses),
        };
        *count += u64::from(pages);
        *requests += 1;
        let mut step = Step::new(kind, leaf, pages);
        step.bits |= bits;
        let here = 64 - piece.first();
        if here < pages {
            self.touch_behind(self.leaves[leaf as usize], pages - here)?;
        }
        if TABLES {
            let bytes = match self.unit {
                Unit::Request => Bytes::PAGE,
                Unit::Page => Bytes {
                    from: (offset % PAGE_BYTES) as u16,
                    to: ((offset.saturating_add(len) - 1) % PAGE_BYTES) as u16 + 1,
                },
            };
            self.step_tables.push(self.tables, (bytes, len), self.process, file, self.reads.row);
            let ttl_us = std::mem::take(&mut self.ttl_us);
            if self.tables.sizes {
                self.step_tables.expires(ttl_us);
            }
        }
        self.step(at_us, step);
        Ok(())
    }

    /// Marks the next pages behind a leaf as touched.
    fn touch_behind(
        &mut self,
        Leaf { file, mut block }: Leaf,
        pages: u32,
    ) -> Result<(), TraceError> {
        let mut left = pages;
        while left > 0 {
            block += 1;
            let here = left.min(64);
            let leaf = self.leaf(file, block)?;
            self.touched[leaf as usize] |= !0 >> (64 - here);
            left -= here;
        }
        Ok(())
    }

    #[inline(always)]
    fn leaf(&mut self, file: u64, block: u64) -> Result<u32, TraceError> {
        if file == 0 && block < NEAR_BLOCKS {
            return match self.near.get(block as usize) {
                Some(&leaf) if leaf != 0 => Ok(leaf - 1),
                _ => self.new_near_leaf(block),
            };
        }
        match self.leaves.get(self.last_leaf as usize) {
            Some(last) if *last == (Leaf { file, block }) => Ok(self.last_leaf),
            _ => self.far_leaf(file, block),
        }
    }

    #[cold]
    fn new_near_leaf(&mut self, block: u64) -> Result<u32, TraceError> {
        let leaf = self.new_leaf(0, block)?;
        let block = block as usize;
        if block >= self.near.len() {
            self.near.resize(block + 1, 0);
        }
        self.near[block] = leaf + 1;
        Ok(leaf)
    }

    #[inline(never)]
    fn far_leaf(&mut self, file: u64, block: u64) -> Result<u32, TraceError> {
        let fresh = self.leaves.len();
        let number = u32::try_from(fresh).map_err(|_| TraceError::TooManyPages)?;
        self.last_leaf = *self.leaf_at.entry((file, block)).or_insert(number);
        if self.last_leaf == number {
            self.new_leaf(file, block)?;
        }
        Ok(self.last_leaf)
    }

    fn new_leaf(&mut self, file: u64, block: u64) -> Result<u32, TraceError> {
        let fresh = u32::try_from(self.leaves.len()).map_err(|_| TraceError::TooManyPages)?;
        self.leaves.push(Leaf { file, block });
        self.touched.push(0);
        Ok(fresh)
    }

    fn range(&mut self, at_us: u64, kind: StepKind, file: FileId, from: u64, to: u64) {
        self.step_tables.push(self.tables, (Bytes::PAGE, 0), self.process, file, self.reads.row);
        self.step(at_us, Step::new(kind, self.ranges.len() as u32, 0));
        self.ranges.push((file, from, to));
        if self.tables.places && kind == StepKind::Drop {
            self.places.removed(at_us, file, from, to);
        }
    }

    #[inline(always)]
    fn step(&mut self, at_us: u64, step: Step) {
        self.steps.push(step);
        if self.about.knows.times {
            self.times.push(at_us);
        }
    }

    /// Ranks the pages and gives every step its ranks.
    ///
    /// # Errors
    ///
    /// The trace exceeds the memory limit, or has more pages than there are ranks.
    pub fn finish(mut self) -> Result<Trace, TraceError> {
        drop(std::mem::take(&mut self.leaf_at));
        self.pages_before.sort_unstable();
        self.pages_before.dedup_by_key(|(file, _)| *file);
        let (mut ranked, mut runs, mut pages) = rank(&self.leaves, &self.touched, self.unit)?;
        let touched_pages = pages;
        if self.tables.reads_ahead_pages > 0 && self.unit == Unit::Page {
            // Then all touched pages of a leaf lie in one run.
            let within = self.tables.reads_ahead_pages.max(64);
            let sizes = &self.sizes;
            (runs, pages) = widened(&runs, within, |file| sizes.get(&file).copied().unwrap_or(0))?;
            rank_within(&self.leaves, &mut ranked, &runs);
        }
        runs.shrink_to_fit();
        let has_operations = self.tables.operations || self.has_rule;
        let collector = std::mem::take(&mut self.operations);
        let mut operations =
            if has_operations { collector.finish() } else { Operations::default() };
        let ranges = std::mem::take(&mut self.ranges);
        drop(std::mem::take(&mut self.leaves));
        drop(std::mem::take(&mut self.touched));
        if ranges.is_empty() {
            self.steps.iter_mut().for_each(|step| *step = step.ranked(&ranked));
        } else {
            // A range may contain no page of the trace, or need several steps.
            let (steps, times) = (std::mem::take(&mut self.steps), std::mem::take(&mut self.times));
            let step_tables = std::mem::take(&mut self.step_tables);
            // A file may be truncated again and again: a truncation becomes a step only if it
            // removes a page that exists. Pages that files had before the trace exist from its
            // beginning; others exist from their first access until they are removed.
            let mut live = BitTree::new(pages);
            let old = runs.iter().flat_map(|run| old_ranks(&self.pages_before, run));
            old.for_each(|page| live.insert(page));
            // By old number of a step: how many new ones come before it.
            let mut before = Vec::new();
            for (n, step) in steps.iter().enumerate() {
                if has_operations {
                    before.push(self.steps.len() as u32);
                }
                let at = times.get(n).unwrap_or(0);
                let kind = step.kind();
                if !matches!(kind, StepKind::Sync | StepKind::SyncAll | StepKind::Drop) {
                    let step = step.ranked(&ranked);
                    self.step_tables.push_from(&step_tables, n);
                    self.step(at, step);
                    step.range().for_each(|page| live.insert(page));
                    continue;
                }
                let mut ranks = ranks_of(&runs, pages, ranges[step.first as usize]);
                if kind == StepKind::Drop {
                    let mut reached = live.next(ranks.start).filter(|page| *page < ranks.end);
                    // Pages that no access brought back may have been read ahead since.
                    let may_hold = self.tables.reads_ahead_pages > 0 && !ranks.is_empty();
                    if reached.is_none() && !may_hold {
                        continue;
                    }
                    self.totals.drops += u64::from(reached.is_some());
                    while let Some(page) = reached {
                        live.remove(page);
                        reached = live.next(page).filter(|page| *page < ranks.end);
                    }
                }
                if ranks.is_empty() && pages > 0 {
                    self.step_tables.push_from(&step_tables, n);
                    self.step(at, step.over(0, 0));
                }
                while !ranks.is_empty() {
                    let part = (ranks.end - ranks.start).min(PAGES_MAX);
                    self.step_tables.push_from(&step_tables, n);
                    self.step(at, step.over(ranks.start, part));
                    ranks.start += part;
                }
            }
            let all = self.steps.len() as u32;
            operations.renumber(|n| before.get(n as usize).copied().unwrap_or(all));
        }
        self.steps.shrink_to_fit();
        self.times.low.shrink_to_fit();
        self.step_tables.shrink_to_fit();
        if self.tables.reads_ahead_pages > 0 {
            let sizes = &self.sizes;
            let largest = |file| sizes.get(&file).copied().unwrap_or(0);
            self.step_tables.place_reads(&self.steps, &runs, largest);
        }
        let descriptors = self.reads.descriptors;
        let Self { about, steps, times, pages_before, totals, tables, step_tables, sizes, .. } =
            self;
        let mut directories: Vec<_> = self.first_names.directory.into_iter().collect();
        directories.sort_unstable();
        let mut heats: Vec<_> = self.first_names.heat.into_iter().collect();
        heats.sort_unstable_by_key(|(file, _)| *file);
        let (untouched, untouched_pages) = match tables.untouched_within_pages {
            0 => (Vec::new(), 0),
            within => {
                untouched(&runs, pages, within, |file| sizes.get(&file).copied().unwrap_or(0))?
            }
        };
        let (duration_us, limit_bytes) = (totals.duration_us, self.limit_bytes);
        let places = match tables.places {
            false => None,
            true => {
                let places = self.places.finish(&runs, pages, duration_us, limit_bytes);
                let requests = totals.requests;
                Some(Arc::new(places.ok_or(TraceError::TooMuchMemory { limit_bytes, requests })?))
            }
        };
        Ok(Trace {
            about,
            steps,
            times,
            runs: Arc::new(runs),
            pages,
            touched_pages,
            descriptors,
            pages_before,
            directories,
            heats,
            totals,
            tables,
            step_tables,
            untouched,
            untouched_pages,
            places,
            operations,
            programs: self.programs,
            names: self.names,
        })
    }
}

/// The open files of a trace, and the sizes of its files so far.
#[derive(Default)]
struct Readers {
    /// By open, the number of its descriptor.
    opens: HashMap<OpenId, u32, FixedState>,
    /// By file, the number that stands for its reads without an open.
    files: HashMap<FileId, u32, FixedState>,
    descriptors: u32,
    /// Sizes of the files whose size is known, bytes.
    sizes: HashMap<FileId, u64, FixedState>,
    /// The row of the present read.
    row: ReadRow,
}

impl Readers {
    fn push(&mut self, action: &Action, knows_opens: bool) {
        match *action {
            Action::Open { open: Some(open), .. } => {
                self.opens.remove(&open);
            }
            Action::Create(ref create) => {
                self.sizes.insert(create.file, 0);
            }
            Action::Size { file, size } | Action::Truncate { file, size } => {
                self.sizes.insert(file, size);
            }
            Action::Write { file, offset, len, .. }
            | Action::Direct { file, offset, len, write: true, .. } => {
                if let Some(size) = self.sizes.get_mut(&file) {
                    *size = (*size).max(offset.saturating_add(len));
                }
            }
            Action::Gone { file } => {
                self.files.remove(&file);
                self.sizes.remove(&file);
            }
            Action::Read { file, open, .. } => {
                let fresh = self.descriptors;
                let descriptor = match open {
                    Some(open) => *self.opens.entry(open).or_insert(fresh),
                    None => *self.files.entry(file).or_insert(fresh),
                };
                self.descriptors += u32::from(descriptor == fresh);
                let pages = self.sizes.get(&file).map(|size| size.div_ceil(PAGE_BYTES));
                // Where opens are known, only accesses through mappings name none.
                self.row = ReadRow::new(descriptor, knows_opens && open.is_none(), pages);
            }
            _ => {}
        }
    }

    fn held_bytes(&self) -> usize {
        self.opens.capacity() * (size_of::<(OpenId, u32)>() + 1)
            + self.files.capacity() * (size_of::<(FileId, u32)>() + 1)
            + self.sizes.capacity() * (size_of::<(FileId, u64)>() + 1)
    }
}

fn is_read(action: &Action) -> bool {
    matches!(action, Action::Read { .. } | Action::Direct { write: false, .. })
}

/// Returns the least size that a file has after an action, in bytes: reads and writes end inside
/// it.
fn size_after(action: &Action) -> Option<(FileId, u64)> {
    match *action {
        Action::Read { file, offset, len, .. }
        | Action::Write { file, offset, len, .. }
        | Action::Direct { file, offset, len, .. } => {
            (len > 0).then(|| (file, offset.saturating_add(len)))
        }
        Action::Truncate { file, size } => Some((file, size)),
        _ => None,
    }
}

impl Step {
    #[inline(always)]
    fn ranked(self, leaves: &[Ranked]) -> Self {
        let leaf = &leaves[self.first as usize];
        let below = (1 << (self.bits >> BUILDER)) - 1;
        Self {
            first: leaf.rank.wrapping_add((leaf.touched & below).count_ones()),
            bits: self.bits & ((1 << BUILDER) - 1),
        }
    }
}

/// Ranks the first touched page of every leaf, in (file, page) order. Returns also the runs of
/// touched pages, for units that have a place, and the number of pages.
fn rank(
    leaves: &[Leaf],
    touched: &[u64],
    unit: Unit,
) -> Result<(Vec<Ranked>, Vec<Run>, u32), TraceError> {
    let mut order: Vec<u32> = (0..leaves.len() as u32).collect();
    order.sort_unstable_by_key(|n| (leaves[*n as usize].file, leaves[*n as usize].block));
    let mut ranked = vec![Ranked::default(); leaves.len()];
    let mut runs: Vec<Run> = Vec::new();
    let mut pages: u32 = 0;
    for n in order {
        let (leaf, touched) = (leaves[n as usize], touched[n as usize]);
        ranked[n as usize] = Ranked { touched, rank: pages };
        let mut rest = if unit == Unit::Page { touched } else { 0 };
        while rest != 0 {
            let first = rest.trailing_zeros();
            let len = (rest >> first).trailing_ones();
            let page = leaf.block * 64 + u64::from(first);
            match runs.last_mut() {
                Some(run) if run.file.0 == leaf.file && run.page + u64::from(run.pages) == page => {
                    run.pages += len
                }
                _ => {
                    let rank = pages + (touched & ((1 << first) - 1)).count_ones();
                    runs.push(Run { first: rank, pages: len, file: FileId(leaf.file), page });
                }
            }
            rest &= !((!0 >> (64 - len)) << first);
        }
        pages = pages
            .checked_add(touched.count_ones())
            .filter(|pages| *pages < u32::MAX)
            .ok_or(TraceError::TooManyPages)?;
    }
    Ok((ranked, runs, pages))
}

/// Gives every leaf the rank that its first page has in runs that hold all pages between its
/// touched ones.
fn rank_within(leaves: &[Leaf], ranked: &mut [Ranked], runs: &[Run]) {
    let touched = leaves.iter().zip(ranked).filter(|(_, ranked)| ranked.touched != 0);
    for (leaf, ranked) in touched {
        let (file, block) = (FileId(leaf.file), leaf.block * 64);
        let first = block + u64::from(ranked.touched.trailing_zeros());
        let n = runs.partition_point(|run| (run.file, run.page) <= (file, first)) - 1;
        let behind = block.wrapping_sub(runs[n].page) as u32;
        // The run may begin inside the leaf: the pages before have no ranks, and are not asked for.
        *ranked = Ranked { touched: !0, rank: runs[n].first.wrapping_add(behind) };
    }
}

/// Returns how many pages a file had at the beginning; `u64::MAX` if the trace does not say.
pub(super) fn pages_before(known: &[(FileId, u64)], file: FileId) -> u64 {
    known.binary_search_by_key(&file, |(file, _)| *file).map_or(u64::MAX, |n| known[n].1)
}

/// Returns the ranks of those pages of a run that its file had at the beginning.
pub(super) fn old_ranks(known: &[(FileId, u64)], run: &Run) -> std::ops::Range<u32> {
    let old = pages_before(known, run.file).saturating_sub(run.page).min(run.pages.into());
    run.first..run.first + old as u32
}

/// Returns the ranks of the touched pages among a file's pages `from..to`. They are one interval,
/// because ranks follow (file, page) order.
pub(super) fn ranks_of(
    runs: &[Run],
    pages: u32,
    (FileId(file), from, to): (FileId, u64, u64),
) -> std::ops::Range<u32> {
    let rank_at = |page: u64| {
        let n = runs.partition_point(|run| (run.file.0, run.page) <= (file, page));
        match n.checked_sub(1).map(|n| runs[n]) {
            Some(run) if run.file.0 == file && page - run.page < u64::from(run.pages) => {
                run.first + (page - run.page) as u32
            }
            // Between two runs: the first rank of the next one.
            _ => runs.get(n).map_or(pages, |run| run.first),
        }
    };
    rank_at(from)..rank_at(to).max(rank_at(from))
}
