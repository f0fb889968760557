//! Side tables of a trace: facts beside its steps that only some systems need.
//!
//! A [`TraceBuilder`](super::TraceBuilder) builds the tables that
//! [`TraceBuilder::with_tables`](super::TraceBuilder::with_tables) requests. A table that is not
//! requested takes no memory, and the steps and ranks of a trace are the same with and without
//! tables.

use super::{Run, Step, StepKind, TraceError};
use flashsift_events::{
    event::FileId,
    page::{PAGE_BYTES, Page},
};

/// A selection of side tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// The bytes that each read and write covers: 4 bytes a step.
    pub bytes: bool,
    /// The bytes of each request, for objects with sizes: 4 bytes a step.
    pub sizes: bool,
    /// The process and the file of each step: 12 bytes a step.
    pub owners: bool,
    /// The last name of each file: its bytes and 32 more.
    pub names: bool,
    /// Untouched pages inside their file's size, at most this many pages before or after a touched
    /// page of the file; 0: no table. 24 bytes a gap.
    pub untouched_within_pages: u32,
    /// The open file and the end of the file of each read: 12 bytes a step. Untouched pages inside
    /// their file's size, at most this many pages before or behind a touched page, have ranks
    /// between those of touched pages; 0: no table.
    pub reads_ahead_pages: u32,
    /// The places that the recording tells: 16 bytes for each time that a page is placed or
    /// removed, and 4 bytes a page.
    pub places: bool,
    /// Names, sizes, times and syncs, on which metadata depends: 56 bytes an operation.
    pub operations: bool,
}

/// A range of bytes in one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bytes {
    /// The first byte, 0 to 4095.
    pub from: u16,
    /// The byte after the last, 1 to 4096.
    pub to: u16,
}

impl Bytes {
    /// The whole page.
    pub const PAGE: Self = Self { from: 0, to: PAGE_BYTES as u16 };

    /// Returns the number of bytes.
    #[inline]
    pub fn count(self) -> u16 {
        self.to - self.from
    }
}

/// The process and the file that a step belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The process, 0 where the trace's format does not say.
    pub process: u32,
    /// The file, or the object; `None` for a sync of all files.
    pub file: Option<FileId>,
}

impl Owner {
    /// The value without the table of owners.
    pub const UNKNOWN: Self = Self { process: 0, file: None };
}

/// The facts of a read on which read-ahead depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Number of the open file description, or of the file where the trace names none.
    pub descriptor: u32,
    /// The read is a fault of a mapping.
    pub is_fault: bool,
    /// Index of the run that holds the pages of the read.
    pub run: u32,
    /// The rank behind the file's last page at that time, at most the run's end.
    pub end: u32,
}

/// A row of the table of reads.
#[derive(Clone, Copy, Default)]
pub(super) struct ReadRow {
    /// The number of the descriptor, and [`FAULT`].
    descriptor: u32,
    run: u32,
    /// Until ranks are known: pages of the file at that time, or [`UNKNOWN_SIZE`]. A file of
    /// 16 TiB or more counts as one of unknown size.
    end: u32,
}

const FAULT: u32 = 1 << 31;
const UNKNOWN_SIZE: u32 = u32::MAX;

impl ReadRow {
    pub(super) fn new(descriptor: u32, is_fault: bool, file_pages: Option<u64>) -> Self {
        let fault = if is_fault { FAULT } else { 0 };
        let end = file_pages.and_then(|pages| u32::try_from(pages).ok()).unwrap_or(UNKNOWN_SIZE);
        Self { descriptor: descriptor | fault, run: 0, end }
    }

    /// Finds the run of a step, which may be the one of the read before.
    fn placed(
        self,
        first: u32,
        runs: &[Run],
        last_run: u32,
        largest: impl Fn(FileId) -> u64,
    ) -> Self {
        let holds = |n: u32| {
            let run = &runs[n as usize];
            first >= run.first && first - run.first < run.pages
        };
        let n = match holds(last_run) {
            true => last_run,
            false => runs.partition_point(|run| run.first <= first) as u32 - 1,
        };
        let run = &runs[n as usize];
        let file_pages = match self.end {
            UNKNOWN_SIZE => largest(run.file).div_ceil(PAGE_BYTES),
            pages => u64::from(pages),
        };
        let inside = file_pages.saturating_sub(run.page).min(u64::from(run.pages)) as u32;
        Self { run: n, end: run.first + inside, ..self }
    }
}

/// The tables that have a row for each step.
#[derive(Default)]
pub(super) struct StepTables {
    /// Bytes covered in the first and in the last page of each step.
    pub(super) bytes: Vec<Bytes>,
    /// Bytes of each request, at most 4 GiB.
    pub(super) sizes: Vec<u32>,
    /// How long the object of each request lives, in milliseconds, rounded up; 0: for ever. Shorter
    /// than `sizes` if no later object expires.
    pub(super) ttls_ms: Vec<u32>,
    pub(super) processes: Vec<u32>,
    /// The file of each step; any file for a sync of all files.
    pub(super) files: Vec<FileId>,
    /// A row that means nothing for steps that are no reads.
    pub(super) reads: Vec<ReadRow>,
}

impl StepTables {
    #[inline(always)]
    pub(super) fn push(
        &mut self,
        tables: Tables,
        (bytes, len): (Bytes, u64),
        process: u32,
        file: FileId,
        read: ReadRow,
    ) {
        if tables.reads_ahead_pages > 0 {
            self.reads.push(read);
        }
        if tables.bytes {
            self.bytes.push(bytes);
        }
        if tables.sizes {
            self.sizes.push(u32::try_from(len).unwrap_or(u32::MAX));
        }
        if tables.owners {
            self.processes.push(process);
            self.files.push(file);
        }
    }

    /// Notes that the object of the row pushed last expires.
    #[inline(always)]
    pub(super) fn expires(&mut self, ttl_us: u64) {
        if ttl_us > 0 {
            self.ttls_ms.resize(self.sizes.len() - 1, 0);
            self.ttls_ms.push(u32::try_from(ttl_us.div_ceil(1000)).unwrap_or(u32::MAX));
        }
    }

    /// Adds row `n` of `other`.
    pub(super) fn push_from(&mut self, other: &Self, n: usize) {
        self.bytes.extend(other.bytes.get(n));
        self.sizes.extend(other.sizes.get(n));
        if let Some(ttl_ms) = other.ttls_ms.get(n) {
            self.ttls_ms.resize(self.sizes.len() - 1, 0);
            self.ttls_ms.push(*ttl_ms);
        }
        self.processes.extend(other.processes.get(n));
        self.files.extend(other.files.get(n));
        self.reads.extend(other.reads.get(n));
    }

    /// Finds the run of each read, once ranks are known. `largest` returns the largest size that a
    /// file is known to have had, in bytes.
    pub(super) fn place_reads(
        &mut self,
        steps: &[Step],
        runs: &[Run],
        largest: impl Fn(FileId) -> u64,
    ) {
        let mut last_run = 0;
        for (row, step) in self.reads.iter_mut().zip(steps) {
            if step.kind() == StepKind::Read && step.pages() > 0 {
                *row = row.placed(step.range().start, runs, last_run, &largest);
                // An end before the end of the read would be an error of the recording.
                row.end = row.end.max(step.range().end);
                last_run = row.run;
            }
        }
    }

    #[inline(always)]
    pub(super) fn read(&self, n: usize) -> Read {
        let ReadRow { descriptor, run, end } = self.reads[n];
        let is_fault = descriptor & FAULT != 0;
        Read { descriptor: descriptor & !FAULT, is_fault, run, end }
    }

    pub(super) fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
        self.sizes.shrink_to_fit();
        self.ttls_ms.shrink_to_fit();
        self.processes.shrink_to_fit();
        self.files.shrink_to_fit();
        self.reads.shrink_to_fit();
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity() * size_of::<Bytes>()
            + (self.sizes.capacity() + self.ttls_ms.capacity()) * size_of::<u32>()
            + self.processes.capacity() * size_of::<u32>()
            + self.files.capacity() * size_of::<FileId>()
            + self.reads.capacity() * size_of::<ReadRow>()
    }

    /// Returns the bytes of `page` that step `n` covers.
    #[inline(always)]
    pub(super) fn bytes(&self, n: usize, step: Step, page: Page) -> Bytes {
        let Bytes { from, to } = self.bytes[n];
        Bytes {
            from: if page == step.first() { from } else { 0 },
            to: if page.0 + 1 == step.range().end { to } else { Bytes::PAGE.to },
        }
    }
}

/// Returns the runs of touched pages together with the untouched ones near them, in (file, page)
/// order with ranks from 0 on, and the number of pages.
///
/// # Errors
/// There are more pages than ranks.
pub(super) fn widened(
    runs: &[Run],
    within_pages: u32,
    size_of: impl Fn(FileId) -> u64,
) -> Result<(Vec<Run>, u32), TraceError> {
    let within = u64::from(within_pages);
    let mut wide: Vec<Run> = Vec::new();
    let mut ranks = 0_u64;
    for run in runs {
        let touched_end = run.page + u64::from(run.pages);
        let from = run.page.saturating_sub(within);
        let file_end = size_of(run.file).div_ceil(PAGE_BYTES).max(touched_end);
        let to = touched_end.saturating_add(within).min(file_end);
        let (from, joined) = match wide.last() {
            Some(last) if last.file == run.file => {
                let end = last.page + u64::from(last.pages);
                (from.max(end), from <= end)
            }
            _ => (from, false),
        };
        let added = to.saturating_sub(from);
        ranks += added;
        let pages = u32::try_from(added).map_err(|_| TraceError::TooManyPages)?;
        if ranks >= u64::from(u32::MAX) {
            return Err(TraceError::TooManyPages);
        }
        match wide.last_mut().filter(|_| joined) {
            Some(last) => last.pages += pages,
            None => {
                let first = (ranks - added) as u32;
                wide.push(Run { first, pages, file: run.file, page: from });
            }
        }
    }
    Ok((wide, ranks as u32))
}

/// Returns the untouched pages near touched ones, as runs in (file, page) order with ranks from
/// `pages` on. The ranks of touched pages stay as they are.
///
/// `runs` holds the touched pages; `size_of` returns the largest size, in bytes, that a file is
/// known to have had.
pub(super) fn untouched(
    runs: &[Run],
    pages: u32,
    within_pages: u32,
    size_of: impl Fn(FileId) -> u64,
) -> Result<(Vec<Run>, u32), TraceError> {
    let within = u64::from(within_pages);
    let mut found: Vec<Run> = Vec::new();
    let mut next_rank = pages;
    for of_file in runs.chunk_by(|one, next| one.file == next.file) {
        let file = of_file[0].file;
        let mut add = |from: u64, to: u64| {
            if from >= to {
                return Ok(());
            }
            let count = u32::try_from(to - from).map_err(|_| TraceError::TooManyPages)?;
            let after = next_rank.checked_add(count).filter(|after| *after < u32::MAX);
            let after = after.ok_or(TraceError::TooManyPages)?;
            found.push(Run { first: next_rank, pages: count, file, page: from });
            next_rank = after;
            Ok(())
        };
        // The end of the touched pages before a gap, if there are any.
        let mut behind: Option<u64> = None;
        for run in of_file {
            let near_next = run.page.saturating_sub(within);
            match behind {
                None => add(near_next, run.page)?,
                Some(end) if end.saturating_add(within) >= near_next => add(end, run.page)?,
                Some(end) => {
                    add(end, end + within)?;
                    add(near_next, run.page)?;
                }
            }
            behind = Some(run.page + u64::from(run.pages));
        }
        let end = behind.expect("a file has a run");
        add(end, end.saturating_add(within).min(size_of(file).div_ceil(PAGE_BYTES)))?;
    }
    found.shrink_to_fit();
    Ok((found, next_rank - pages))
}
