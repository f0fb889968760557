//! A write buffer in non-volatile memory, between a page cache and the device.
//!
//! Pages that are written back go to the buffer or, if its [`Order`] does not admit them, to the
//! device. A page in the buffer is read from there until it leaves. The buffer belongs to no page:
//! the cache may hold the page, too, and a deleted page leaves both.
//!
//! A page leaves the buffer when it is written to the device. A power cut could lose it with the
//! device's volatile cache though an application had synced it, so a FLUSH follows before the slot
//! is used again. The paper does not mention it; `flush=no` leaves it out.

use super::{Sink, Storage, nvm_order::Order};
use crate::nvm::PAGE_LINES;
use flashsift_caches::{
    back::{Attribution, Back, DeviceCounts, Source, Why, Written},
    lines::{LineCounts, Lines, Traffic},
    trace::{Operation, Owner},
};
use flashsift_events::{
    address::Address,
    page::{Frame, Page},
    structure::Lists,
};
use std::ops::Range;

const NONE: u32 = u32::MAX;

/// Storage behind a write buffer.
pub struct NvmBuffer<S> {
    storage: Storage<S>,
    order: Box<dyn Order>,
    /// By page: its slot.
    table: Vec<u32>,
    /// By slot: its page.
    page: Vec<u32>,
    /// By slot: the write count with which its page was last flushed.
    writes: Vec<u32>,
    /// By slot: how often it was written.
    wear: Vec<u32>,
    free: Vec<Frame>,
    /// The pages that the cache served and that exist, from the least recently used on. Under LRU
    /// the cache holds the last of them.
    used: Lists<Page, 1>,
    /// Whether the device is flushed before a slot is used again.
    flushes_victims: bool,
    /// Whether something was written to the device since its last flush.
    unflushed: bool,
    reads: u64,
    written: u64,
}

impl<S: Sink> NvmBuffer<S> {
    /// Puts an empty buffer of `slots` pages, at least 1, in front of storage, for a trace of
    /// `pages` pages.
    pub fn new(
        storage: Storage<S>,
        order: Box<dyn Order>,
        pages: u32,
        slots: u32,
        flushes_victims: bool,
    ) -> Self {
        Self {
            storage,
            order,
            table: vec![NONE; pages as usize],
            page: vec![NONE; slots as usize],
            writes: vec![0; slots as usize],
            wear: vec![0; slots as usize],
            free: (0..slots).rev().map(Frame).collect(),
            used: Lists::new(pages),
            flushes_victims,
            unflushed: false,
            reads: 0,
            written: 0,
        }
    }

    fn slot(&self, page: Page) -> Option<Frame> {
        let slot = self.table[page.0 as usize];
        (slot != NONE).then_some(Frame(slot))
    }

    /// Empties a slot.
    fn release(&mut self, slot: Frame) {
        self.order.remove(slot);
        self.table[self.page[slot.0 as usize] as usize] = NONE;
        self.page[slot.0 as usize] = NONE;
        self.free.push(slot);
    }

    fn store(&mut self, written: Written) {
        self.unflushed = true;
        self.storage.write(written);
    }

    /// Writes the page that leaves next to the device. `for_why`: the reason for which a slot is
    /// needed.
    fn evict(&mut self, for_why: Why) {
        let last = self.used.newest(0);
        let recent = [last, last.and_then(|page| self.used.older(page))];
        let recent = recent.map(|page| self.slot(page?));
        let victim = self.order.victim(recent);
        let why = match for_why {
            Why::Drain => Why::Drain,
            why if why.is_sync() || why == Why::Evict => Why::Evict,
            // The kernel writes back and no process waits.
            _ => Why::Background,
        };
        let page = Page(self.page[victim.0 as usize]);
        let writes = self.writes[victim.0 as usize];
        self.store(Written { page, why, writes, owner: Owner::UNKNOWN });
        if self.flushes_victims && why != Why::Drain {
            self.flush_storage();
        }
        self.release(victim);
    }

    fn flush_storage(&mut self) {
        self.unflushed = false;
        self.storage.flush();
    }

    fn held(&self) -> impl Iterator<Item = Page> + '_ {
        self.page.iter().filter(|page| **page != NONE).map(|page| Page(*page))
    }
}

impl<S: Sink> Back for NvmBuffer<S> {
    const WANTS_TIME: bool = <Storage<S> as Back>::WANTS_TIME;
    const WANTS_DIRTIED: bool = <Storage<S> as Back>::WANTS_DIRTIED;
    const WANTS_COUNTS: bool = true;
    const WANTS_ACCESSES: bool = true;

    #[inline(always)]
    fn now(&mut self, at_us: u64) {
        self.storage.now(at_us);
    }

    #[inline(always)]
    fn running(&mut self, process: u32) {
        self.storage.running(process);
    }

    #[inline]
    fn read(&mut self, page: Page, owner: Owner) -> Source {
        if self.slot(page).is_some() {
            self.reads += 1;
            return Source::Nvm;
        }
        self.storage.read(page, owner)
    }

    fn write(&mut self, written: Written) {
        let Written { page, why, writes, .. } = written;
        let held = self.slot(page);
        if why == Why::Direct {
            self.used.remove(page);
            if let Some(slot) = held {
                self.release(slot);
            }
            return self.store(written);
        }
        if !self.order.admits(writes) {
            assert!(held.is_none(), "a page in the buffer gives its count to the cache");
            return self.store(written);
        }
        let slot = match held {
            Some(slot) => slot,
            None => {
                if self.free.is_empty() {
                    self.evict(why);
                }
                let slot = self.free.pop().expect("a page has left");
                self.table[page.0 as usize] = slot.0;
                self.page[slot.0 as usize] = page.0;
                slot
            }
        };
        self.writes[slot.0 as usize] = writes;
        self.wear[slot.0 as usize] += 1;
        self.written += 1;
        self.order.flushed(slot, writes);
    }

    #[inline(always)]
    fn submit(&mut self) {
        self.storage.submit();
    }

    /// The pages in the buffer are durable already.
    fn flush(&mut self) {
        if self.unflushed {
            self.flush_storage();
        }
    }

    #[inline(always)]
    fn dropped(&mut self, dirty: bool) {
        self.storage.dropped(dirty);
    }

    fn free(&mut self, pages: Range<u32>) {
        for page in pages.clone().map(Page) {
            self.used.remove(page);
            if let Some(slot) = self.slot(page) {
                self.release(slot);
            }
        }
        self.storage.free(pages);
    }

    #[inline(always)]
    fn accessed(&mut self, page: Page) {
        self.used.move_newest(0, page);
    }

    #[inline(always)]
    fn dirtied(&mut self, page: Page) {
        self.storage.dirtied(page);
    }

    #[inline]
    fn inherited_writes(&self, page: Page) -> u32 {
        self.slot(page).map_or(0, |slot| self.writes[slot.0 as usize])
    }

    fn address(&mut self, page: Page) -> Address {
        self.storage.address(page)
    }

    fn poll_moved(&mut self) -> Option<Range<u32>> {
        self.storage.poll_moved()
    }

    fn operation(&mut self, operation: &Operation) {
        self.storage.operation(operation);
    }

    fn lacks_place(&self, pages: Range<u32>) -> bool {
        self.storage.lacks_place(pages)
    }

    fn unmount(&mut self) {
        while self.free.len() < self.page.len() {
            self.evict(Why::Drain);
        }
        self.storage.submit();
        self.storage.unmount();
    }

    fn take_attribution(&mut self) -> Option<Attribution> {
        self.storage.take_attribution()
    }

    fn counts(&self) -> DeviceCounts {
        self.storage.counts()
    }

    fn lines(&self) -> Lines {
        let nvm = LineCounts { read: self.reads * PAGE_LINES, written: self.written * PAGE_LINES };
        Lines { nvm, ..Lines::NONE }
    }

    fn traffic(&self, is_dirty: &dyn Fn(Page) -> bool) -> Traffic {
        let hottest = self.wear.iter().copied().max().unwrap_or(0);
        Traffic {
            nvm_reads: self.reads,
            nvm_writes: self.written,
            nvm_read_lines: self.reads * PAGE_LINES,
            nvm_written_lines: self.written * PAGE_LINES,
            nvm_lines: self.page.len() as u64 * PAGE_LINES,
            nvm_hottest_line_writes: hottest.into(),
            nvm_left: self.held().filter(|page| !is_dirty(*page)).count() as u64,
            ..Traffic::default()
        }
    }

    fn check(&self, _: u64, _: impl Fn(Page) -> bool) {
        let mut free = vec![false; self.page.len()];
        for slot in &self.free {
            assert!(!std::mem::replace(&mut free[slot.0 as usize], true), "a slot is free once");
            assert_eq!(self.page[slot.0 as usize], NONE, "a free slot holds no page");
        }
        for (slot, page) in self.page.iter().enumerate().filter(|(slot, _)| !free[*slot]) {
            assert_eq!(self.table[*page as usize], slot as u32, "table and slots agree");
            assert!(self.order.admits(self.writes[slot]), "a cold page is not in the buffer");
        }
        let in_table = self.table.iter().filter(|slot| **slot != NONE).count();
        assert_eq!(in_table + self.free.len(), self.page.len(), "each slot is free or used");
        self.order.check(self.page.len() - self.free.len());
    }
}

#[cfg(test)]
mod tests;
