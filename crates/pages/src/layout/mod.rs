//! Layouts: the place of each page on the device.
//!
//! A layout that allocates late gives a page its place when the page is written back. A layout that
//! allocates early does so when the page first becomes dirty in the cache ([`Layout::dirtied`]).
//! The LBA of a request is fixed when the request is emitted. Policies that order frames by address
//! see an [`Address`](flashsift_events::address::Address).
//!
//! A layout is one file and one line in [`ALL`].

use flashsift_caches::{
    back::Why,
    trace::{Run, Trace},
};
use flashsift_events::{
    address::Lba,
    event::Space,
    page::Page,
    params::{self, Listed, Param, Params},
};
use std::sync::Arc;

mod ext4;
mod f2fs;
mod goals;
mod identity;
mod recorded;

pub(crate) use goals::Goals;

/// Assigns pages their places on the device.
pub trait Layout {
    /// Returns the place to which the page is written, and assigns it.
    fn write(&mut self, page: Page) -> Lba;
    /// Like [`Layout::write`], for a layout whose places depend on the reason of the write-back.
    fn write_for(&mut self, page: Page, _: Why) -> Lba {
        self.write(page)
    }
    /// Returns the place from which the page is read. A page without a place is a hole, or the
    /// trace lacks its write: it is read from about where it would be placed, and gets no place.
    fn read(&self, page: Page) -> Lba;
    /// Returns the page's present place; `None` before it has one.
    fn place(&self, page: Page) -> Option<Lba>;
    /// Whether [`Layout::dirtied`] is called: the layout allocates early, or its places depend on
    /// which pages are dirty.
    fn wants_dirtied(&self) -> bool {
        false
    }
    /// Reports that a cached page became dirty. Called only for layouts that want it.
    fn dirtied(&mut self, _: Page) {}
    /// Whether [`Layout::now`] is called: places depend on the time.
    fn wants_time(&self) -> bool {
        false
    }
    /// Sets the present time, in microseconds from the trace's beginning. Called only for layouts
    /// that want it.
    fn now(&mut self, _at_us: u64) {}
    /// Returns the pages whose place the last call of `write`, `write_for` or `dirtied` set or
    /// changed.
    fn moved(&self) -> std::ops::Range<u32>;
    /// Frees the places of these ranks, which were truncated or deleted.
    fn free(&mut self, pages: std::ops::Range<u32>);
    /// Returns the places that the last call of `write`, `write_for`, `dirtied` or `free` freed.
    fn freed(&self) -> &[std::ops::Range<Lba>] {
        &[]
    }
    /// Checks the invariants of the layout.
    ///
    /// # Panics
    ///
    /// Panics if two pages share a place.
    fn check(&self) {}
}

/// A layout in the list: its name, its description and its constructor.
pub struct LayoutSpec {
    /// Name in `--layout`.
    pub name: &'static str,
    /// One-line description.
    pub what: &'static str,
    /// Parameters that `name:key=value` accepts.
    pub params: &'static [Param],
    /// Whether the layout makes sense for traces of this kind.
    pub suits: fn(Space) -> bool,
    /// Whether pages never move and lie in order of rank.
    pub in_rank_order: bool,
    /// Whether the layout takes places from the trace, which has the table
    /// [`Tables::places`](flashsift_caches::trace::Tables::places).
    pub from_recording: bool,
    /// Estimate of the memory that the layout of a cell takes for each page of the trace.
    pub page_bytes: u32,
    /// Builds the layout for a trace.
    pub build: fn(&Trace, &Params) -> Box<dyn Layout>,
}

/// Every layout.
pub const ALL: &[LayoutSpec] = &[identity::SPEC, ext4::SPEC, f2fs::SPEC, recorded::SPEC];

/// A layout selected from the list, with its parameters.
pub type Selection = params::Selection<LayoutSpec>;

impl Listed for LayoutSpec {
    const KIND: &'static str = "layout";
    const ALL: &'static [Self] = ALL;

    fn declared(&self) -> (&'static str, &'static [Param]) {
        (self.name, self.params)
    }
}

/// Returns the layout of a trace if the user selects none: files lie as on ext4, blocks and objects
/// at the addresses in the trace.
pub fn default_for(space: Space) -> Selection {
    Selection::default_of(if space == Space::Files { &ext4::SPEC } else { &identity::SPEC })
}

/// Adds a place to those that are free now, joined to the last one if it follows it.
fn add_freed(freed: &mut Vec<std::ops::Range<Lba>>, place: Lba) {
    match freed.last_mut() {
        Some(last) if last.end == place => last.end += 1,
        _ => freed.push(place..place + 1),
    }
}

/// The runs of a trace, indexed by page in an eighth of the memory that a number for each page
/// takes: a write-back looks up a page that was not used for long, so memory decides its speed.
struct Runs {
    runs: Arc<Vec<Run>>,
    pages: u32,
    /// For each 64 pages.
    firsts: Vec<Firsts>,
}

/// The pages among 64 that are the first of a run.
#[derive(Clone, Copy, Default)]
struct Firsts {
    bits: u64,
    /// Runs that begin before these pages.
    before: u32,
}

impl Runs {
    fn from_trace(trace: &Trace) -> Self {
        Self::new(trace.shared_runs())
    }

    fn new(runs: Arc<Vec<Run>>) -> Self {
        let pages = runs.last().map_or(0, |run| run.first + run.pages);
        let mut firsts = vec![Firsts::default(); pages.div_ceil(u64::BITS) as usize];
        for run in runs.iter() {
            firsts[(run.first / u64::BITS) as usize].bits |= 1 << (run.first % u64::BITS);
        }
        let mut before = 0;
        for of in &mut firsts {
            of.before = before;
            before += of.bits.count_ones();
        }
        Self { runs, pages, firsts }
    }

    /// Returns the number of the page's run and the page's offset in it; `None` for units without a
    /// place.
    #[inline]
    fn find(&self, page: Page) -> Option<(usize, u32)> {
        if page.0 >= self.pages {
            return None;
        }
        let Firsts { bits, before } = self.firsts[(page.0 / u64::BITS) as usize];
        let until = bits << (u64::BITS - 1 - page.0 % u64::BITS);
        let run = (before + until.count_ones()) as usize - 1;
        Some((run, page.0 - self.runs[run].first))
    }
}

#[cfg(test)]
mod tests;
