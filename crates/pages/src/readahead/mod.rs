//! Read-ahead: pages that a cache reads before an application asks for them.
//!
//! A model decides on windows of pages, from the requests of each open file and from what the cache
//! holds ([`FilePages`]). It does no reading itself: the same object stands in the simulator, and
//! in the tests that hold it against real kernels.

use flashsift_caches::trace::Trace;
use flashsift_events::params::{self, Listed, Param, Params};
use std::{
    cell::RefCell,
    ops::{AddAssign, Sub},
};

mod ahead;
mod charges;
mod linux;
mod log;
mod nmsr;
mod paper;

pub(crate) use ahead::{Ahead, Before, ChargedAhead, NoReadAhead, ReadAhead};
pub use charges::{
    NamedReadAhead, ReadAheadCharge, ReadAheadCharges, ReadAheadRanking, ReadAheadSums, file_name,
    process_name,
};
pub use linux::{AccessAdvice, Descriptor, Kernel, Linux, Mapping};
pub use log::{ReadCase, ReadEnd, ReadLog, ReadMark};
pub use nmsr::native_maximum;
pub use paper::{Paper, Sequence};

/// Returns the memory that the read-ahead of a cell takes, in bytes. `arrivals`: whether it knows
/// which pages arrive before they are asked for.
pub fn memory_bytes(trace: &Trace, arrivals: bool) -> u64 {
    Ahead::bytes(trace, arrivals)
}

/// `prev_page` of an open file that was not read yet: no page follows it.
const DESCRIPTOR_UNREAD: u64 = u64::MAX >> 12;

/// A read-ahead in the list.
pub struct ReadAheadSpec {
    /// Name in `--readahead`.
    pub name: &'static str,
    /// Source of the definition.
    pub paper: &'static str,
    /// One-line description.
    pub what: &'static str,
    /// Parameters that `name:key=value` accepts.
    pub params: &'static [Param],
    /// The parameter that a value without a key is for.
    bare: &'static str,
}

/// Every read-ahead.
pub const ALL: &[ReadAheadSpec] = &[OFF_SPEC, linux::SPEC, paper::SPEC];

const OFF_SPEC: ReadAheadSpec = ReadAheadSpec {
    name: "off",
    paper: "baseline",
    what: "only the pages that are asked for",
    params: &[],
    bare: "",
};

/// A read-ahead selected from the list, with its parameters.
pub type Selection = params::Selection<ReadAheadSpec>;

/// No read-ahead.
pub static OFF: Selection = Selection { spec: &ALL[0], params: Params::NONE };

impl Listed for ReadAheadSpec {
    const KIND: &'static str = "read-ahead";
    const ALL: &'static [Self] = ALL;

    fn declared(&self) -> (&'static str, &'static [Param]) {
        (self.name, self.params)
    }
}

/// Reads a selection. Besides `name:key=value,…` it takes `linux:128k` and `paper:32`: the maximum
/// in KiB or in pages.
///
/// # Errors
/// The list has no such name, the entry has no such parameter, or the parameter no such value.
pub fn parse(text: &str) -> Result<Selection, params::Error> {
    let Some((name, rest)) = text.split_once(':') else { return Selection::parse(text) };
    let (value, others) = rest.split_once(',').map_or((rest, ""), |(value, more)| (value, more));
    let spec =
        ALL.iter().find(|spec| spec.name.eq_ignore_ascii_case(name) && !spec.bare.is_empty());
    match spec {
        Some(spec) if !value.contains('=') && !value.is_empty() => {
            let number = value.strip_suffix('k').filter(|_| spec.bare == "kib").unwrap_or(value);
            Selection::parse(&format!("{name}:{}={number},{others}", spec.bare))
        }
        _ => Selection::parse(text),
    }
}

/// A model with its settings.
#[derive(Clone, Copy, Debug)]
pub enum ReadAheadModel {
    /// Reads only what is asked for.
    Off,
    /// The kernel's.
    Linux(Linux),
    /// The tuning paper's.
    Paper(Paper),
}

impl ReadAheadModel {
    /// Returns the model of a selection.
    pub fn new(selection: &Selection) -> Self {
        match selection.spec.name {
            "linux" => Self::Linux(Linux::new(&selection.params)),
            "paper" => Self::Paper(Paper::new(&selection.params)),
            _ => Self::Off,
        }
    }

    /// Returns whether it can read more than is asked for.
    pub fn reads_ahead(&self) -> bool {
        !matches!(self, Self::Off)
    }

    /// Returns the maximum of a window, in pages.
    pub fn pages_max(&self) -> u64 {
        match self {
            Self::Off => 0,
            Self::Linux(linux) => linux.pages_max,
            Self::Paper(paper) => paper.pages_max,
        }
    }

    /// Returns the pages behind (or, of a mapping, before) a requested one that a window can
    /// reach: a marker lies at most a window behind the request, and the next window behind it.
    pub fn reach_pages(&self) -> u32 {
        let pages = match self {
            Self::Off => 0,
            Self::Linux(linux) => 2 * linux.pages_max.max(linux.io_pages),
            Self::Paper(paper) => paper.pages_max,
        };
        u32::try_from(pages).unwrap_or(u32::MAX)
    }
}

/// The read-ahead of a cell.
#[derive(Clone, Copy)]
pub struct CellReadAhead<'a> {
    /// The model.
    pub model: ReadAheadModel,
    /// Advice of applications by number of the descriptor, from its first read on; none for
    /// descriptors behind the last one. Only [`ReadAheadModel::Linux`] takes it.
    pub advice: &'a [AccessAdvice],
    /// Gets the counts by file and process, if there is a place for them. The trace then has the
    /// table of owners.
    pub charges: Option<&'a RefCell<ReadAheadCharges>>,
}

impl From<ReadAheadModel> for CellReadAhead<'_> {
    fn from(model: ReadAheadModel) -> Self {
        Self { model, advice: &[], charges: None }
    }
}

fn param(params: &Params, declared: &[Param], name: &str) -> f64 {
    params.number(declared, name)
}

/// A read of some pages of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest {
    /// The first page.
    pub first: u64,
    /// The page behind the last one, which is larger.
    pub end: u64,
    /// Pages of the file now.
    pub file_pages: u64,
    /// The page in which the read ends, or the next one if it ends at a boundary.
    pub prev_page: u64,
}

/// The cached pages of one file, as a model sees them.
pub trait FilePages {
    /// Returns whether the page is in the cache, or was added since.
    fn has(&self, page: u64) -> bool;
    /// Returns the order of the folio that a cached page lies in. The folio has 2^order pages, and
    /// its first page is a multiple of that.
    fn order(&self, page: u64) -> u32;
    /// Returns whether the page is in the cache and its folio carries a marker.
    fn is_marked(&self, page: u64) -> bool;
    /// Takes the marker off the folio that the page lies in.
    fn unmark(&mut self, page: u64);
    /// Reads a folio of 2^order absent pages into the cache.
    fn add(&mut self, first: u64, order: u32, marked: bool);
    /// Announces that the pages added from now on belong to this window.
    fn window(&mut self, window: Window);
    /// Returns whether the page is in the cache because it was prefetched.
    fn is_prefetched(&self, page: u64) -> bool;
    /// Reads an absent page into the cache that the request did not reach yet.
    fn add_ahead(&mut self, page: u64);
    /// Announces that a request of a sequence hit, by the paper's rule.
    fn sequence_hit(&mut self) {}
}

/// The pages that one decision of a model reads. It may extend beyond the end of the file, and
/// pages in it may be cached already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The first page.
    pub start: u64,
    /// Its size.
    pub pages: u64,
    /// Pages behind its marker, with the marked one.
    pub async_pages: u64,
    /// Order of its folios, before it is bounded by the size of the window.
    pub order: u32,
}

/// The prefetches of a cell. All counts are in pages unless noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Windows; a count.
    pub windows: u64,
    /// Windows of the maximum size or larger; a count.
    pub windows_at_max: u64,
    /// Pages of all windows: inside their files or, by the paper's rule, as it asks for them.
    pub window_pages: u64,
    /// Of these, pages beside those that the request itself asked for.
    pub asked: u64,
    /// Of those, pages that the cache did not hold, and read.
    pub read: u64,
    /// Of those, pages that an application read, or wrote in part, before they left the cache and
    /// before a write covered them.
    pub used: u64,
    /// Page requests that hit, by the paper's rule, with the first of each sequence; a count.
    pub sequence_hits: u64,
    /// Page reads that found their page.
    pub reads_cached: u64,
    /// Page reads that missed while a frame was free.
    pub reads_free: u64,
    /// Page reads that missed and evicted clean pages only.
    pub reads_evict_clean: u64,
    /// Page reads that missed and evicted a dirty page.
    pub reads_evict_dirty: u64,
    /// Pages that left a full cache for others.
    pub evicted: u64,
}

impl Counts {
    /// Every count, in one order.
    fn all_mut(&mut self) -> [&mut u64; 12] {
        let Self {
            windows,
            windows_at_max,
            window_pages,
            asked,
            read,
            used,
            sequence_hits,
            reads_cached,
            reads_free,
            reads_evict_clean,
            reads_evict_dirty,
            evicted,
        } = self;
        [
            windows,
            windows_at_max,
            window_pages,
            asked,
            read,
            used,
            sequence_hits,
            reads_cached,
            reads_free,
            reads_evict_clean,
            reads_evict_dirty,
            evicted,
        ]
    }

    /// Returns page reads that found their page / page reads; `None` without reads.
    pub fn read_hit_ratio(&self) -> Option<f64> {
        let reads = self.reads_cached + self.demanded();
        (reads > 0).then(|| self.reads_cached as f64 / reads as f64)
    }

    /// Returns the pages that were read because an application asked for them.
    pub fn demanded(&self) -> u64 {
        self.reads_free + self.reads_evict_clean + self.reads_evict_dirty
    }

    /// Returns the efficiency as the paper counts it: hits / pages of all windows, under its rule;
    /// `None` without prefetches and under other rules.
    pub fn efficiency_of_paper(&self) -> Option<f64> {
        (self.sequence_hits > 0).then(|| self.sequence_hits as f64 / self.window_pages as f64)
    }

    /// Returns pages used / pages asked for; `None` without prefetches.
    pub fn efficiency(&self) -> Option<f64> {
        (self.asked > 0).then(|| self.used as f64 / self.asked as f64)
    }

    /// Returns pages used / pages newly read; `None` without any.
    pub fn efficiency_of_read(&self) -> Option<f64> {
        (self.read > 0).then(|| self.used as f64 / self.read as f64)
    }

    /// Returns the mean size of a window in pages; `None` without windows.
    pub fn mean_pages(&self) -> Option<f64> {
        (self.windows > 0).then(|| self.window_pages as f64 / self.windows as f64)
    }

    /// Returns the share of windows of the maximum size; `None` without windows.
    pub fn share_at_max(&self) -> Option<f64> {
        (self.windows > 0).then(|| self.windows_at_max as f64 / self.windows as f64)
    }

    /// Returns the pages that were prefetched, and left the cache, were overwritten, or lie in it
    /// unused.
    pub fn wasted(&self) -> u64 {
        self.read - self.used
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, mut other: Self) {
        self.all_mut().into_iter().zip(other.all_mut()).for_each(|(sum, n)| *sum += *n);
    }
}

impl Sub for Counts {
    type Output = Self;

    fn sub(mut self, mut other: Self) -> Self {
        self.all_mut().into_iter().zip(other.all_mut()).for_each(|(left, n)| *left -= *n);
        self
    }
}

#[cfg(test)]
mod tests;
