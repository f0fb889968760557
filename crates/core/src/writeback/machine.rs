//! The machine: knows what is dirty, whose it is and since when; says what is to be written next.
//!
//! It is told of each first dirtying ([`Machine::dirtied`]) and of what leaves the cache on its own ([`Machine::gone`],
//! [`Machine::removed`]); then of a time that has come ([`Machine::tick`]), a sync ([`Machine::sync`]) or a write that is done
//! ([`Machine::relieve`]). These three say whether anything may have to be written; if so, [`Machine::poll`] gives the pages,
//! one by one, to the end. A first dirtying takes constant time, a write-back that of the pages and files it writes.
//!
//! Invariants: `dirty` is what is dirty in the cache; every dirty page's file is in `order`, which holds files by the time
//! at which they came there. A file stays in it when its pages are synced, evicted or cut, as inodes do in the kernel.

use super::{Expire, Modes, Syncs};
use crate::{
    back::Why,
    page::Page,
    structure::{BitTree, Lists},
    trace::{File, Files, Trace},
};
use std::ops::Range;

/// What the replay loop asks; compiled without all of it where only eviction writes.
pub(crate) trait WriteBack {
    /// Whether there is anything to ask.
    const ON: bool;
    /// See [`Machine`].
    fn machine(&mut self) -> Option<&mut Machine>;
}

/// Eviction alone writes.
pub(crate) struct OnEviction;

impl WriteBack for OnEviction {
    const ON: bool = false;
    #[inline(always)]
    fn machine(&mut self) -> Option<&mut Machine> {
        None
    }
}

impl WriteBack for Machine {
    const ON: bool = true;
    #[inline(always)]
    fn machine(&mut self) -> Option<&mut Machine> {
        Some(self)
    }
}

/// Decides when dirty pages are written.
pub struct Machine {
    modes: Modes,
    /// Dirty pages that the flusher lets be.
    dirty_pages_max: u32,
    files: Files,
    dirty: BitTree,
    dirty_pages: u32,
    /// Files that have been dirty since the flusher last saw them, the oldest first.
    order: Lists<File, 1>,
    /// By file in `order`: when it came there.
    since_us: Vec<u64>,
    due_us: Option<u64>,
    job: Job,
}

/// What is being written.
struct Job {
    /// First these pages, as far as they are dirty.
    pages: Range<u32>,
    /// Then these files, oldest first.
    files: Which,
    why: Why,
}

enum Which {
    None,
    All,
    /// Those that came into the order then or before.
    Since(u64),
    /// As many as it takes until no more pages are dirty than may be.
    UntilFew,
}

impl Machine {
    /// Nothing is dirty yet. `frames`: of the cache.
    pub fn new(modes: Modes, trace: &Trace, frames: u32) -> Self {
        let files = Files::of(trace.runs(), trace.pages());
        let ratio = modes.expire.map_or(100, |expire| expire.ratio);
        Self {
            modes,
            dirty_pages_max: (u64::from(frames) * u64::from(ratio) / 100) as u32,
            dirty: BitTree::new(trace.pages()),
            dirty_pages: 0,
            order: Lists::new(files.count()),
            since_us: vec![0; files.count() as usize],
            files,
            due_us: None,
            job: Job { pages: 0..0, files: Which::None, why: Why::Evict },
        }
    }

    /// A cached page was written to, and is dirty now.
    #[inline]
    pub fn dirtied(&mut self, page: Page, at_us: u64) {
        if self.dirty.contains(page.0) {
            return;
        }
        self.dirty.insert(page.0);
        self.dirty_pages += 1;
        let file = self.files.of_page(page);
        if !self.order.contains(file) {
            self.since_us[file.0 as usize] = at_us;
            self.order.push_newest(0, file);
            if self.order.oldest(0) == Some(file) {
                self.due_us = self.next_due_us();
            }
        }
    }

    /// A dirty page was written because it left the cache.
    #[inline]
    pub fn gone(&mut self, page: Page) {
        if self.dirty.contains(page.0) {
            self.dirty.remove(page.0);
            self.dirty_pages -= 1;
        }
    }

    /// These pages are no longer dirty: they were removed, or the cache made them durable itself.
    pub fn cleaned(&mut self, pages: Range<u32>) {
        while let Some(page) = self.dirty.next(pages.start).filter(|page| *page < pages.end) {
            self.gone(Page(page));
        }
    }

    /// When [`Machine::tick`] wants to be called next.
    #[inline(always)]
    pub fn next_deadline(&self) -> Option<u64> {
        self.due_us
    }

    /// The time of [`Machine::next_deadline`] has come.
    pub fn tick(&mut self, at_us: u64) -> bool {
        let periodic = self.modes.periodic_us.is_some_and(|every| at_us.is_multiple_of(every));
        self.job = match self.modes.expire {
            _ if periodic => Job { pages: 0..0, files: Which::All, why: Why::Periodic },
            Some(Expire { after_us, .. }) if after_us <= at_us => {
                Job { pages: 0..0, files: Which::Since(at_us - after_us), why: Why::Expire }
            }
            _ => return false,
        };
        true
    }

    /// Somebody synced these pages of a file; `None`: everything.
    pub fn sync(&mut self, pages: Option<Range<u32>>) -> bool {
        let why = Why::Sync;
        self.job = match (self.modes.syncs, pages) {
            (Syncs::Nothing, _) => return false,
            (Syncs::TheirFile, Some(pages)) => Job { pages, files: Which::None, why },
            (Syncs::TheirFile, None) => Job { pages: 0..0, files: Which::All, why },
            (Syncs::Everything, _) => Job { pages: 0..u32::MAX, files: Which::All, why },
        };
        true
    }

    /// A write is done: is too much dirty now?
    #[inline(always)]
    pub fn relieve(&mut self) -> bool {
        let crowded = self.dirty_pages > self.dirty_pages_max;
        if crowded {
            self.job = Job { pages: 0..0, files: Which::UntilFew, why: Why::Background };
        }
        crowded
    }

    /// The next page to write, and why; it is clean from then on.
    pub fn poll(&mut self) -> Option<(Page, Why)> {
        loop {
            let Range { start, end } = self.job.pages;
            if let Some(page) = self.dirty.next(start).filter(|page| *page < end) {
                self.job.pages.start = page + 1;
                self.gone(Page(page));
                return Some((Page(page), self.job.why));
            }
            let wanted = |file: &File| match self.job.files {
                Which::None => false,
                Which::All => true,
                Which::Since(us) => self.since_us[file.0 as usize] <= us,
                Which::UntilFew => self.dirty_pages > self.dirty_pages_max,
            };
            let Some(file) = self.order.oldest(0).filter(wanted) else {
                self.job.files = Which::None;
                self.due_us = self.next_due_us();
                return None;
            };
            self.order.remove(file);
            self.job.pages = self.files.pages(file);
        }
    }

    /// Of the times at which the oldest file will be written, the first.
    fn next_due_us(&self) -> Option<u64> {
        let since_us = self.since_us[self.order.oldest(0)?.0 as usize];
        // What is dirtied at a tick's very time comes after it.
        let periodic =
            self.modes.periodic_us.and_then(|every| since_us.checked_add(1)?.checked_next_multiple_of(every));
        let expire = self.modes.expire.and_then(|Expire { after_us, tick_us, .. }| {
            since_us.checked_add(after_us)?.checked_next_multiple_of(tick_us)
        });
        periodic.into_iter().chain(expire).min()
    }

    /// Panics where an invariant is broken. The cache says how many pages are dirty, and which.
    pub fn check(&self, dirty_pages: u64, is_dirty: impl Fn(Page) -> bool) {
        self.dirty.check();
        self.order.check();
        let mut count = 0;
        for page in std::iter::successors(self.dirty.next(0), |page| self.dirty.next(page + 1)).map(Page) {
            assert!(is_dirty(page), "{page:?} is dirty in the cache too");
            assert!(self.order.contains(self.files.of_page(page)), "{page:?}'s file has an age");
            count += 1;
        }
        assert_eq!(
            (count, dirty_pages),
            (self.dirty_pages, count.into()),
            "dirty pages are counted, and are all"
        );
        let times: Vec<u64> = self.order.iter(0).map(|file| self.since_us[file.0 as usize]).collect();
        assert!(times.is_sorted(), "files are in order of age");
        assert_eq!(self.due_us, self.next_due_us(), "the deadline is the oldest file's");
    }
}
