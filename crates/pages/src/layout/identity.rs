//! The page's own number is its address: for block traces, with one pseudo-file per device.
//!
//! Several devices are laid out one after another, each starting where the one before it ends.
//! Units without a place (whole requests of object traces) are laid out in the order of their
//! ranks.

use super::{Layout, LayoutSpec, Runs, add_freed};
use flashsift_caches::trace::Trace;
use flashsift_events::{
    address::Lba,
    event::{FileId, Space},
    page::Page,
};

pub(super) const SPEC: LayoutSpec = LayoutSpec {
    name: "identity",
    what: "the page's own number: for block traces",
    params: &[],
    suits: |space| space != Space::Files,
    in_rank_order: true,
    from_recording: false,
    page_bytes: 16,
    build: |trace, _| Box::new(Identity::new(trace)),
};

struct Identity {
    runs: Runs,
    /// First LBA of each run.
    base: Vec<Lba>,
    /// See [`Layout::freed`].
    freed: Vec<std::ops::Range<Lba>>,
}

impl Identity {
    fn new(trace: &Trace) -> Self {
        let runs = Runs::from_trace(trace);
        let mut base = Vec::with_capacity(runs.runs.len());
        let mut device: Option<FileId> = None;
        let (mut device_base, mut end) = (0, 0);
        for run in runs.runs.iter() {
            if device != Some(run.file) {
                device = Some(run.file);
                device_base = end;
            }
            let lba = device_base + run.page;
            base.push(lba);
            end = lba + u64::from(run.pages);
        }
        Self { runs, base, freed: Vec::new() }
    }

    #[inline]
    fn address(&self, page: Page) -> Lba {
        let offset_in = |(run, offset): (usize, u32)| self.base[run] + u64::from(offset);
        self.runs.find(page).map_or(u64::from(page.0), offset_in)
    }
}

impl Layout for Identity {
    #[inline]
    fn write(&mut self, page: Page) -> Lba {
        self.freed.clear();
        self.address(page)
    }

    #[inline]
    fn read(&self, page: Page) -> Lba {
        self.address(page)
    }

    fn place(&self, page: Page) -> Option<Lba> {
        Some(self.address(page))
    }

    fn moved(&self) -> std::ops::Range<u32> {
        0..0
    }

    fn freed(&self) -> &[std::ops::Range<Lba>] {
        &self.freed
    }

    fn free(&mut self, pages: std::ops::Range<u32>) {
        self.freed.clear();
        for page in pages {
            let place = self.address(Page(page));
            add_freed(&mut self.freed, place);
        }
    }
}
