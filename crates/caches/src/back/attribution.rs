//! Pages that reach the device, by the process that made them dirty and by reason.

use super::Why;
use flashsift_events::page::Page;
use std::{collections::BTreeMap, ops::Range};

/// The reason for which a page reaches the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteCause {
    /// It is written back.
    Data(Why),
    /// The file system writes its journal (`--metadata`).
    Journal,
    /// The file system writes metadata in place (`--metadata`).
    Metadata,
}

impl WriteCause {
    /// Returns its name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Data(Why::Evict) => "evict",
            Self::Data(Why::Periodic) => "periodic",
            Self::Data(Why::Expire) => "expire",
            Self::Data(Why::Background) => "background",
            Self::Data(Why::Idle) => "idle",
            Self::Data(Why::Sync | Why::DataSync) => "sync",
            Self::Data(Why::SyncAll) => "sync_all",
            Self::Data(Why::Replaced) => "replaced",
            Self::Data(Why::Drain) => "drain",
            Self::Data(Why::Direct) => "direct",
            Self::Journal => "journal",
            Self::Metadata => "metadata",
        }
    }
}

/// Counts the pages of one cell.
///
/// A page is charged to the process whose write made it dirty, as the kernel charges it. Later
/// writes to the dirty page change nothing. Journal and metadata have no process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Attribution {
    /// By page, if it is dirty: the process, plus one. Empty until the first page is dirty.
    dirtiers: Vec<u64>,
    pages: BTreeMap<(Option<u32>, WriteCause), u64>,
}

impl Attribution {
    /// Returns an estimate of the memory held over a trace of so many pages, in bytes.
    pub fn bytes(pages: u32) -> u64 {
        u64::from(pages) * size_of::<u64>() as u64
    }

    /// Returns the pages by process and reason. `None`: the file system's own.
    pub fn pages(&self) -> &BTreeMap<(Option<u32>, WriteCause), u64> {
        &self.pages
    }

    fn dirtier(&mut self, page: Page) -> &mut u64 {
        let page = page.0 as usize;
        if self.dirtiers.len() <= page {
            self.dirtiers.resize(page + 1, 0);
        }
        &mut self.dirtiers[page]
    }

    /// A page becomes dirty by a write of this process.
    pub fn dirtied(&mut self, page: Page, process: u32) {
        *self.dirtier(page) = u64::from(process) + 1;
    }

    /// A page is written while this process runs, which is charged if the page was not dirty.
    pub fn written(&mut self, page: Page, why: Why, process: u32) {
        let dirtier = std::mem::take(self.dirtier(page));
        let process = dirtier.checked_sub(1).map_or(process, |dirtier| dirtier as u32);
        *self.pages.entry((Some(process), WriteCause::Data(why))).or_default() += 1;
    }

    /// These pages no longer exist.
    pub fn freed(&mut self, pages: Range<u32>) {
        let len = self.dirtiers.len();
        self.dirtiers[(pages.start as usize).min(len)..(pages.end as usize).min(len)].fill(0);
    }

    /// The file system writes pages of its own.
    pub fn file_system(&mut self, cause: WriteCause, pages: u64) {
        *self.pages.entry((None, cause)).or_default() += pages;
    }
}
