//! Prefetches by file and by process: the rows that a run charges them to, and their sums by name.

use super::Counts;
use flashsift_caches::trace::Trace;
use flashsift_events::{event::FileId, names::program_name};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::{cmp::Reverse, ops::AddAssign};

/// The prefetches that the reads of one file by one process caused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAheadCharge {
    /// The file.
    pub file: FileId,
    /// The process; 0 where the format does not say.
    pub process: u32,
    /// Windows, prefetches, and the reads of the file by the process. A page's first use is charged
    /// to the read that prefetched it, whichever process used it.
    pub counts: Counts,
    /// Prefetched pages that the cache holds at the end, and no application accessed.
    pub unused_pages: u64,
    /// Reads sent to the device, with those past the cache.
    pub read_requests: u64,
}

impl ReadAheadCharge {
    /// Returns the charge of a file and process without prefetches.
    pub fn new(file: FileId, process: u32) -> Self {
        Self { file, process, counts: Counts::default(), unused_pages: 0, read_requests: 0 }
    }
}

/// The prefetches of a cell by file and process. They add up to its [`Counts`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadAheadCharges {
    /// Each file with each process that read it, in the order of first reads.
    pub rows: Vec<ReadAheadCharge>,
    /// The pages that writes evicted, which no read caused.
    pub by_writes: Counts,
}

/// A sum over charges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReadAheadSums {
    /// The counts.
    pub counts: Counts,
    /// As in [`ReadAheadCharge::unused_pages`].
    pub unused_pages: u64,
    /// As in [`ReadAheadCharge::read_requests`].
    pub read_requests: u64,
}

impl ReadAheadSums {
    /// Returns the prefetched pages that left the cache before any use.
    pub fn dropped_pages(&self) -> u64 {
        self.counts.wasted() - self.unused_pages
    }

    /// Returns the pages that these reads evicted / their page reads; `None` without reads.
    pub fn eviction_ratio(&self) -> Option<f64> {
        let reads = self.counts.reads_cached + self.counts.demanded();
        (reads > 0).then(|| self.counts.evicted as f64 / reads as f64)
    }
}

impl AddAssign for ReadAheadSums {
    fn add_assign(&mut self, other: Self) {
        self.counts += other.counts;
        self.unused_pages += other.unused_pages;
        self.read_requests += other.read_requests;
    }
}

impl From<&ReadAheadCharge> for ReadAheadSums {
    fn from(charge: &ReadAheadCharge) -> Self {
        let ReadAheadCharge { counts, unused_pages, read_requests, .. } = *charge;
        Self { counts, unused_pages, read_requests }
    }
}

/// The sum of the files, or of the processes, of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedReadAhead {
    /// Name of the file or of the program.
    pub name: Box<str>,
    /// Number of files or processes.
    pub count: u64,
    /// Their sum.
    pub sums: ReadAheadSums,
}

/// The names with most pages read in vain, and the sum of the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadAheadRanking {
    /// Those that waste most first; of equals, those that read more ahead, then by name.
    pub top: Vec<NamedReadAhead>,
    /// Number of the other names.
    pub other_names: u64,
    /// The sum of these.
    pub others: ReadAheadSums,
}

impl ReadAheadCharges {
    /// Returns the sum of all rows.
    pub fn total(&self) -> ReadAheadSums {
        let mut total = ReadAheadSums::default();
        self.rows.iter().for_each(|row| total += row.into());
        total
    }

    /// Returns the sums by last name of the file. Requires
    /// [`flashsift_caches::trace::Tables::names`].
    pub fn by_file(&self, trace: &Trace, top: usize) -> ReadAheadRanking {
        self.ranked(top, |row| (row.file.0, file_name(trace, row.file)))
    }

    /// Returns the sums by program. A process counts for the last program that it runs.
    pub fn by_program(&self, trace: &Trace, top: usize) -> ReadAheadRanking {
        self.ranked(top, |row| (u64::from(row.process), process_name(trace, row.process)))
    }

    /// Adds up rows by name. `key` returns the number of a row's file or process, and its name.
    fn ranked(
        &self,
        top: usize,
        key: impl Fn(&ReadAheadCharge) -> (u64, Box<str>),
    ) -> ReadAheadRanking {
        let mut by_number: HashMap<u64, (Box<str>, ReadAheadSums), FixedState> = HashMap::default();
        for row in &self.rows {
            let (number, name) = key(row);
            by_number.entry(number).or_insert_with(|| (name, ReadAheadSums::default())).1 +=
                row.into();
        }
        let mut by_name: HashMap<Box<str>, (u64, ReadAheadSums), FixedState> = HashMap::default();
        for (name, sums) in by_number.into_values() {
            let (count, sum) = by_name.entry(name).or_default();
            *count += 1;
            *sum += sums;
        }
        let named = |(name, (count, sums))| NamedReadAhead { name, count, sums };
        let mut names: Vec<_> = by_name.into_iter().map(named).collect();
        names.sort_unstable_by(|one, other| one.order().cmp(&other.order()));
        let mut others = ReadAheadSums::default();
        names.iter().skip(top).for_each(|named| others += named.sums);
        let other_names = names.len().saturating_sub(top) as u64;
        names.truncate(top);
        ReadAheadRanking { top: names, other_names, others }
    }
}

impl NamedReadAhead {
    fn order(&self) -> impl Ord {
        let Counts { read, .. } = self.sums.counts;
        let demanded = self.sums.counts.demanded();
        (Reverse((self.sums.counts.wasted(), read, demanded)), self.name.clone())
    }
}

/// Returns the last name of a file, or its number.
pub fn file_name(trace: &Trace, file: FileId) -> Box<str> {
    trace.name(file).map_or_else(|| format!("(no name, file {})", file.0).into(), Into::into)
}

/// Returns the last program of a process, or its number.
pub fn process_name(trace: &Trace, process: u32) -> Box<str> {
    program_name(trace.program(process).ok_or(process))
}
