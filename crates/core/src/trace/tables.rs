//! Side tables of a trace: facts beside its steps that only some systems need.
//!
//! A [`TraceBuilder`](super::TraceBuilder) builds the tables that
//! [`TraceBuilder::with_tables`](super::TraceBuilder::with_tables) requests. A table that is not
//! requested takes no memory, and the steps and ranks of a trace are the same with and without
//! tables.

use super::{Run, Step, TraceError};
use crate::{
    event::FileId,
    page::{PAGE_BYTES, Page},
};

/// A selection of side tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// The bytes that each read and write covers: 4 bytes a step.
    pub bytes: bool,
    /// The process and the file of each step: 12 bytes a step.
    pub owners: bool,
    /// Untouched pages inside their file's size, at most this many pages before or after a touched
    /// page of the file; 0: no table. 24 bytes a gap.
    pub untouched_within_pages: u32,
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

/// The tables that have a row for each step.
#[derive(Default)]
pub(super) struct StepTables {
    /// Bytes covered in the first and in the last page of each step.
    pub(super) bytes: Vec<Bytes>,
    pub(super) processes: Vec<u32>,
    /// The file of each step; any file for a sync of all files.
    pub(super) files: Vec<FileId>,
}

impl StepTables {
    #[inline(always)]
    pub(super) fn push(&mut self, tables: Tables, bytes: Bytes, process: u32, file: FileId) {
        if tables.bytes {
            self.bytes.push(bytes);
        }
        if tables.owners {
            self.processes.push(process);
            self.files.push(file);
        }
    }

    /// Adds row `n` of `other`.
    pub(super) fn push_from(&mut self, other: &Self, n: usize) {
        self.bytes.extend(other.bytes.get(n));
        self.processes.extend(other.processes.get(n));
        self.files.extend(other.files.get(n));
    }

    pub(super) fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
        self.processes.shrink_to_fit();
        self.files.shrink_to_fit();
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity() * size_of::<Bytes>()
            + self.processes.capacity() * size_of::<u32>()
            + self.files.capacity() * size_of::<FileId>()
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
