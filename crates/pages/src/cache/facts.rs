//! Notes of a cache with non-volatile memory about its pages, for its back.

use flashsift_caches::{
    back::{Back, Why, Written},
    trace::Owner,
};
use flashsift_events::{
    page::{Op, Page},
    structure::BitTree,
};
use std::ops::Range;

/// Facts by page: which are dirty, and which storage has without a FLUSH after it; for a back that
/// wants them, write counts and last writers.
pub(super) struct Facts {
    pages: u32,
    /// Pages written since they were last durable.
    dirty: BitTree,
    dirty_pages: u64,
    /// Pages whose last write to storage no FLUSH has followed.
    unflushed: BitTree,
    /// The same pages.
    unflushed_list: Vec<Page>,
    /// Empty until a back wants them.
    writes: Vec<u32>,
    owners: Vec<Owner>,
}

impl Facts {
    pub(super) fn new(pages: u32) -> Self {
        Self {
            pages,
            dirty: BitTree::new(pages),
            dirty_pages: 0,
            unflushed: BitTree::new(pages),
            unflushed_list: Vec::new(),
            writes: Vec::new(),
            owners: Vec::new(),
        }
    }

    /// A page that was not in the cache enters.
    #[inline(always)]
    pub(super) fn entered<B: Back>(&mut self, page: Page, back: &B) {
        if B::WANTS_COUNTS {
            self.writes.resize(self.pages as usize, 0);
            self.writes[page.0 as usize] = back.inherited_writes(page);
        }
    }

    /// An application accessed a page that is in the cache.
    #[inline(always)]
    pub(super) fn accessed<B: Back>(&mut self, page: Page, op: Op, owner: Owner) {
        if op == Op::Read {
            return;
        }
        if B::WANTS_COUNTS {
            let writes = &mut self.writes[page.0 as usize];
            *writes = writes.saturating_add(1);
        }
        if B::WANTS_OWNERS {
            self.owners.resize(self.pages as usize, Owner::UNKNOWN);
            self.owners[page.0 as usize] = owner;
        }
    }

    pub(super) fn written<B: Back>(&self, page: Page, why: Why) -> Written {
        let at = page.0 as usize;
        Written {
            page,
            why,
            writes: if B::WANTS_COUNTS { self.writes[at] } else { 0 },
            owner: if B::WANTS_OWNERS { self.owners[at] } else { Owner::UNKNOWN },
        }
    }

    #[inline(always)]
    pub(super) fn is_dirty(&self, page: Page) -> bool {
        self.dirty.contains(page.0)
    }

    pub(super) fn dirty_pages(&self) -> u64 {
        self.dirty_pages
    }

    #[inline(always)]
    pub(super) fn set_dirty(&mut self, page: Page) {
        if !self.dirty.contains(page.0) {
            self.dirty.insert(page.0);
            self.dirty_pages += 1;
        }
    }

    #[inline(always)]
    pub(super) fn set_clean(&mut self, page: Page) {
        if self.dirty.contains(page.0) {
            self.dirty.remove(page.0);
            self.dirty_pages -= 1;
        }
    }

    /// Returns the first dirty page of the range.
    #[inline(always)]
    pub(super) fn next_dirty(&self, pages: &Range<u32>) -> Option<Page> {
        // Ranges of one page are the most frequent ones; a search would look behind them.
        if pages.len() <= 1 {
            return pages.clone().map(Page).find(|page| self.is_dirty(*page));
        }
        self.dirty.next(pages.start).filter(|page| *page < pages.end).map(Page)
    }

    /// Storage gets a version of the page. Only a FLUSH makes it durable.
    pub(super) fn sent(&mut self, page: Page) {
        if !self.unflushed.contains(page.0) {
            self.unflushed.insert(page.0);
            self.unflushed_list.push(page);
        }
    }

    /// Returns whether storage has one of these pages without a FLUSH after it.
    #[inline(always)]
    pub(super) fn is_unflushed(&self, pages: &Range<u32>) -> bool {
        self.unflushed.next(pages.start).is_some_and(|page| page < pages.end)
    }

    /// Everything that storage has becomes durable.
    pub(super) fn flush<B: Back>(&mut self, back: &mut B) {
        back.flush();
        for page in self.unflushed_list.drain(..) {
            self.unflushed.remove(page.0);
        }
    }

    /// Checks the set of dirty pages against those of the cache.
    pub(super) fn check(&self, is_dirty: impl Fn(Page) -> bool) {
        self.dirty.check();
        self.unflushed.check();
        let dirty: Vec<u32> = (0..self.pages).filter(|page| self.dirty.contains(*page)).collect();
        let held: Vec<u32> = (0..self.pages).filter(|page| is_dirty(Page(*page))).collect();
        assert_eq!(dirty, held, "the set of dirty pages and the copies agree");
        assert_eq!(self.dirty_pages, dirty.len() as u64, "the number of dirty pages");
        let mut unflushed = self.unflushed_list.clone();
        unflushed.sort();
        let set = (0..self.pages).filter(|page| self.unflushed.contains(*page)).map(Page);
        assert!(set.eq(unflushed), "the pages that no FLUSH has followed");
    }
}
