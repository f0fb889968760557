//! Dirty pages, their files and their ages, and the selection of the pages to write next, without
//! I/O.
//!
//! The cache reports each page that becomes dirty ([`DirtyPages::dirtied`]) and each dirty page
//! that it evicts or removes ([`DirtyPages::gone`], [`DirtyPages::cleaned`]). The replay loop
//! reports a deadline that has passed ([`DirtyPages::tick`]), a sync ([`DirtyPages::sync`]) and the
//! end of a write ([`DirtyPages::relieve`]). These three return whether there may be pages to
//! write. If so, the replay loop calls [`DirtyPages::poll`] for one page at a time until it returns
//! `None`, and then [`DirtyPages::poll_cluster`] for one range of addresses at a time. `DirtyPages`
//! decides when ranges are written ahead; the back, which knows places, decides which ones.
//! Recording a page that becomes dirty takes constant time; a write-back takes time linear in the
//! pages and files that it writes.
//!
//! Invariants: `dirty` holds exactly the pages that are dirty in the cache, and `order` contains
//! the file of every dirty page. `order` is sorted by the time at which each file entered it. A
//! file stays in `order` when its pages are synced, evicted or truncated, as inodes do in the
//! kernel.

use super::{
    Expire, Modes, Syncs,
    rules::{self, Rule, Urgent},
};
use flashsift_caches::{
    back::Why,
    trace::{File, Files, OperationKind, Run, Trace, place_in},
};
use flashsift_events::{
    page::Page,
    structure::{BitTree, Lists},
};
use std::{ops::Range, sync::Arc};

/// Access of the replay loop to the dirty pages. Where only eviction writes, the calls compile to
/// nothing.
pub(crate) trait WriteBack {
    /// Whether dirty pages are tracked.
    const ON: bool;
    /// The dirty pages, if they are tracked.
    fn dirty_pages(&mut self) -> Option<&mut DirtyPages>;
}

/// Write-back on eviction only; dirty pages are not tracked.
pub(crate) struct OnEviction;

impl WriteBack for OnEviction {
    const ON: bool = false;
    #[inline(always)]
    fn dirty_pages(&mut self) -> Option<&mut DirtyPages> {
        None
    }
}

impl WriteBack for DirtyPages {
    const ON: bool = true;
    #[inline(always)]
    fn dirty_pages(&mut self) -> Option<&mut DirtyPages> {
        Some(self)
    }
}

/// Decides when dirty pages are written.
pub struct DirtyPages {
    modes: Modes,
    /// Number of dirty pages above which the flusher writes.
    dirty_pages_max: u32,
    files: Files,
    dirty: BitTree,
    dirty_pages: u32,
    /// Files that have been dirty since the flusher last saw them, the oldest first.
    order: Lists<File, 1>,
    /// By file in `order`: the time at which it entered.
    since_us: Vec<u64>,
    /// The time at which the oldest file is due.
    due_us: Option<u64>,
    job: Job,
    /// Number of dirty pages above which ranges of addresses are written ahead.
    ahead_pages_max: u32,
    idle_us: Option<u64>,
    now_us: u64,
    /// The last request to the device, or the time at which a page became dirty while none was.
    idle_since_us: u64,
    ahead: Ahead,
    rule: Option<Box<dyn Rule>>,
    /// The trace's, for the rule.
    runs: Arc<Vec<Run>>,
}

/// The ranges of addresses to write.
enum Ahead {
    None,
    One,
    /// Until no more than `ahead_pages_max` pages are dirty.
    UntilFew,
}

/// The pages and files that are being written.
struct Job {
    /// Pages to write first, if they are dirty.
    pages: Range<u32>,
    /// Files to write next, the oldest first.
    files: Which,
    why: Why,
}

const NO_JOB: Job = Job { pages: 0..0, files: Which::None, why: Why::Evict };

enum Which {
    None,
    All,
    /// Files that entered the order at this time or before.
    Since(u64),
    /// Oldest files, until no more than `dirty_pages_max` pages are dirty.
    UntilFew,
}

impl DirtyPages {
    /// Begins without dirty pages, for a cache of `frames` frames.
    pub fn new(modes: Modes, trace: &Trace, frames: u32) -> Self {
        let files = Files::new(trace.runs(), trace.pages());
        let dirty_pages_max = |expire: Expire| expire.ram_pages * u64::from(expire.ratio) / 100;
        // A trace has at most `u32::MAX` pages.
        let dirty_pages_max = modes.expire.map_or(u64::MAX, dirty_pages_max);
        let ahead_pages_max = modes.cluster.and_then(|cluster| cluster.ratio).map_or(
            u32::MAX,
            // At most `frames`, because a ratio is a percentage.
            |ratio| (u64::from(frames) * u64::from(ratio) / 100) as u32,
        );
        Self {
            modes,
            dirty_pages_max: dirty_pages_max.try_into().unwrap_or(u32::MAX),
            dirty: BitTree::new(trace.pages()),
            dirty_pages: 0,
            order: Lists::new(files.count()),
            since_us: vec![0; files.count() as usize],
            files,
            due_us: None,
            job: NO_JOB,
            ahead_pages_max,
            idle_us: modes.cluster.and_then(|cluster| cluster.idle_us),
            now_us: 0,
            idle_since_us: 0,
            ahead: Ahead::None,
            rule: modes.file_system.map(rules::of),
            runs: trace.shared_runs(),
        }
    }

    /// Records that a process wrote to a cached page, which is dirty now.
    #[inline]
    pub fn dirtied(&mut self, page: Page, at_us: u64) {
        if self.dirty.contains(page.0) {
            return;
        }
        if self.dirty_pages == 0 {
            self.idle_since_us = at_us;
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

    /// Records that a dirty page left the cache, which wrote it.
    #[inline]
    pub fn gone(&mut self, page: Page) {
        if self.dirty.contains(page.0) {
            self.dirty.remove(page.0);
            self.dirty_pages -= 1;
        }
    }

    /// Records that a page was written.
    #[inline(always)]
    pub fn written(&mut self, page: Page) {
        if let Some(rule) = &mut self.rule
            && let Some((file, number)) = place_in(&self.runs, page)
        {
            rule.written(file, number);
        }
        self.gone(page);
    }

    /// Handles an operation of the trace. Returns the pages that the file system begins to write
    /// now. [`DirtyPages::done`] is called when they are written.
    pub fn operation(&mut self, operation: &OperationKind) -> Option<Urgent> {
        self.rule.as_mut()?.operation(operation)
    }

    /// Records that the operation is done.
    pub fn done(&mut self, operation: &OperationKind) {
        if let Some(rule) = &mut self.rule {
            rule.done(operation);
        }
    }

    /// Records that these pages are no longer dirty: they were removed, or the cache made them
    /// durable itself.
    pub fn cleaned(&mut self, pages: Range<u32>) {
        // Ranges of one page are the most frequent ones; a search would look behind them.
        if pages.len() == 1 {
            return self.gone(Page(pages.start));
        }
        while let Some(page) = self.dirty.next(pages.start).filter(|page| *page < pages.end) {
            self.gone(Page(page));
        }
    }

    /// Sets the present time.
    #[inline(always)]
    pub fn now(&mut self, at_us: u64) {
        self.now_us = at_us;
    }

    /// Records that a request is sent to the device at the present time.
    #[inline(always)]
    pub fn busy(&mut self) {
        self.idle_since_us = self.now_us;
    }

    /// Returns the time at which [`DirtyPages::tick`] must be called next.
    #[inline(always)]
    pub fn next_deadline(&self) -> Option<u64> {
        match self.idle_us {
            Some(idle_us) if self.dirty_pages > 0 => {
                let idle = self.idle_since_us.checked_add(idle_us);
                idle.into_iter().chain(self.due_us).min()
            }
            _ => self.due_us,
        }
    }

    /// Handles the time of [`DirtyPages::next_deadline`]. Returns whether [`DirtyPages::poll`] must
    /// be called.
    pub fn tick(&mut self, at_us: u64) -> bool {
        if self.due_us != Some(at_us) {
            (self.job, self.ahead) = (NO_JOB, Ahead::One);
            return true;
        }
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

    /// Handles a sync of these pages of a file, or of everything if `pages` is `None`. Returns
    /// whether [`DirtyPages::poll`] must be called.
    pub fn sync(&mut self, pages: Option<Range<u32>>, why: Why) -> bool {
        self.job = match (self.modes.syncs, pages) {
            (Syncs::Nothing, _) => return false,
            (Syncs::TheirFile, Some(pages)) => Job { pages, files: Which::None, why },
            (Syncs::TheirFile, None) => Job { pages: 0..0, files: Which::All, why },
            (Syncs::Everything, _) => Job { pages: 0..u32::MAX, files: Which::All, why },
        };
        true
    }

    /// The file system begins to write these pages. Returns whether [`DirtyPages::poll`] must be
    /// called.
    pub fn write_now(&mut self, pages: Range<u32>) -> bool {
        self.job = Job { pages, files: Which::None, why: Why::Replaced };
        true
    }

    /// Handles the end of a write. Returns whether more pages are dirty than the modes allow, so
    /// that [`DirtyPages::poll`] must be called.
    #[inline(always)]
    pub fn relieve(&mut self) -> bool {
        let (pages, files, why) = (0..0, Which::UntilFew, Why::Background);
        let crowded = self.dirty_pages > self.dirty_pages_max;
        let ahead = self.dirty_pages > self.ahead_pages_max;
        if crowded || ahead {
            self.job = if crowded { Job { pages, files, why } } else { NO_JOB };
            self.ahead = if ahead { Ahead::UntilFew } else { Ahead::None };
        }
        crowded || ahead
    }

    /// Returns the next page to write, and the reason. It counts the page as clean from
    /// then on.
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

    /// Returns the reason for which the next range of addresses is to be written, if one is. The
    /// caller writes it and reports its pages by [`DirtyPages::gone`].
    pub fn poll_cluster(&mut self) -> Option<Why> {
        match self.ahead {
            Ahead::UntilFew if self.dirty_pages > self.ahead_pages_max => Some(Why::Background),
            Ahead::One => {
                self.ahead = Ahead::None;
                Some(Why::Idle)
            }
            _ => {
                self.ahead = Ahead::None;
                None
            }
        }
    }

    /// Returns the first time at which the oldest file is due.
    fn next_due_us(&self) -> Option<u64> {
        let since_us = self.since_us[self.order.oldest(0)?.0 as usize];
        // A page that becomes dirty at the very time of a tick is written by the next tick.
        let periodic = self
            .modes
            .periodic_us
            .and_then(|every| since_us.checked_add(1)?.checked_next_multiple_of(every));
        let expire = self.modes.expire.and_then(|Expire { after_us, tick_us, .. }| {
            since_us.checked_add(after_us)?.checked_next_multiple_of(tick_us)
        });
        periodic.into_iter().chain(expire).min()
    }

    /// Checks the invariants against the cache, which reports how many pages are dirty and whether
    /// a given page is.
    ///
    /// # Panics
    ///
    /// Panics if an invariant is broken.
    pub fn check(&self, dirty_pages: u64, is_dirty: impl Fn(Page) -> bool) {
        self.dirty.check();
        self.order.check();
        let mut count = 0;
        for page in
            std::iter::successors(self.dirty.next(0), |page| self.dirty.next(page + 1)).map(Page)
        {
            assert!(is_dirty(page), "{page:?} is dirty in the cache too");
            assert!(self.order.contains(self.files.of_page(page)), "{page:?}'s file has an age");
            count += 1;
        }
        assert_eq!(
            (count, dirty_pages),
            (self.dirty_pages, count.into()),
            "dirty pages are counted, and are all"
        );
        let times: Vec<u64> =
            self.order.iter(0).map(|file| self.since_us[file.0 as usize]).collect();
        assert!(times.is_sorted(), "files are in order of age");
        assert_eq!(self.due_us, self.next_due_us(), "the deadline is the oldest file's");
    }
}
