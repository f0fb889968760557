//! Where a page lies on the device.
//!
//! A layout that allocates late gives a page its place when the page is written back; one that
//! allocates early ([`Layout::is_early`]) when the page first becomes dirty in the cache. The LBA of a
//! request is fixed when the request is emitted. Policies that order frames by address see
//! an [`Address`].
//!
//! A layout is one file and one line in [`ALL`].

use crate::{
    event::Space,
    page::Page,
    params::{self, Listed, Param, Params},
    trace::{Run, Trace},
};
use std::sync::Arc;

mod address;
mod ext4;
mod f2fs;
mod identity;

pub use address::Address;
pub(crate) use address::Goals;

/// Place on the device, in 4 KiB units.
pub type Lba = u64;

/// Gives pages their places.
pub trait Layout {
    /// The page is written: where to.
    fn write(&mut self, page: Page) -> Lba;
    /// The page is read: where from. A page that never was written lies where it would be written.
    fn read(&mut self, page: Page) -> Lba;
    /// The page's present place; `None` before it gets one.
    fn place(&self, page: Page) -> Option<Lba>;
    /// A page gets its place when it first becomes dirty in the cache ([`Layout::dirtied`]), not at
    /// write-back.
    fn is_early(&self) -> bool {
        false
    }
    /// A cached page became dirty. Called only for layouts that allocate early.
    fn dirtied(&mut self, _: Page) {}
    /// The pages that the last call of `write`, `read` or `dirtied` gave a place, or another one.
    fn moved(&self) -> std::ops::Range<u32>;
    /// These ranks are truncated or deleted: their places are free.
    fn free(&mut self, pages: std::ops::Range<u32>);
    /// Panics unless no two pages share a place.
    fn check(&self) {}
}

/// A layout: its name, what it is, how to make one.
pub struct Spec {
    /// As `--layout` takes it.
    pub name: &'static str,
    /// One line for people.
    pub what: &'static str,
    /// What `name:key=value` takes.
    pub params: &'static [Param],
    /// Whether it makes sense for traces of this kind.
    pub suits: fn(Space) -> bool,
    /// Makes one for a trace.
    pub build: fn(&Trace, &Params) -> Box<dyn Layout>,
}

/// Every layout.
pub const ALL: &[Spec] = &[identity::SPEC, ext4::SPEC, f2fs::SPEC];

/// A layout with its parameters.
pub type Selection = params::Selection<Spec>;

impl Listed for Spec {
    const KIND: &'static str = "layout";
    const ALL: &'static [Self] = ALL;

    fn declared(&self) -> (&'static str, &'static [Param]) {
        (self.name, self.params)
    }
}

impl Selection {
    /// The layout of a trace for which none is asked: files lie as on ext4, blocks and objects where
    /// they say.
    pub fn default_for(space: Space) -> Self {
        let spec = if space == Space::Files { &ext4::SPEC } else { &identity::SPEC };
        Self::default_of(spec)
    }
}

/// The runs of a trace as layouts look them up: from a page to its run in one load.
struct Runs {
    runs: Arc<Vec<Run>>,
    run_of: Vec<u32>,
}

impl Runs {
    fn of(trace: &Trace) -> Self {
        let runs = trace.shared_runs();
        let mut run_of = Vec::with_capacity(trace.pages() as usize);
        for (n, run) in runs.iter().enumerate() {
            run_of.extend(std::iter::repeat_n(n as u32, run.pages as usize));
        }
        Self { runs, run_of }
    }

    /// The number of the page's run and the page's offset in it; `None` for units without a place.
    #[inline]
    fn find(&self, page: Page) -> Option<(usize, u32)> {
        let run = *self.run_of.get(page.0 as usize)? as usize;
        Some((run, page.0 - self.runs[run].first))
    }
}

#[cfg(test)]
mod tests;
