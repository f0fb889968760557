//! NVLRU: one LRU queue in non-volatile memory, with copy-on-write. An fsync ends in the memory.
//!
//! Kang and Eom, "FSLRU: A Page Cache Algorithm for Mobile Devices with Hybrid Memory
//! Architecture", IEEE TCE 62(2), 2016, section IV.A, which describes it in one sentence. How it is
//! read here:
//!
//! - The first write to a durable page copies the whole page to a free frame and changes the copy.
//!   The durable version keeps its frame until an fsync publishes the copy, or until the page
//!   leaves. Other writes change their page in place.
//! - The paper is silent on a version that an fsync has superseded. Its frame is freed at once
//!   (`old=freed`). Or copies are new pages of the queue, and versions keep their places in it:
//!   superseded ones leave there, unwritten (`old=ages`) or written like other dirty pages
//!   (`old=written`). With these two, NVLRU writes more than FSLRU, as the paper shows.
//! - If no frame is free, the least recently used other page leaves first.
//! - A frame whose durable version is freed is used again first.
//! - Partial write misses, FLUSHes, requests past the cache and removals are as in
//!   [`super::Fslru`].

use super::{OldVersions, Settings, facts::Facts};
use crate::{
    nvm::{Counting, Memory, PageCopy},
    system::{self, SystemKind, SystemSpec},
};
use flashsift_caches::{
    back::{Back, Why},
    cache::{Cache, Details, past_the_cache},
    lines::{Lines, Traffic},
    trace::Owner,
};
use flashsift_events::{
    page::{Access, Frame, Op, Page},
    params::Param,
    structure::Lists,
};
use prefetch_index::prefetch_index;
use std::ops::Range;

pub(crate) const SPEC: SystemSpec = SystemSpec {
    name: "nvlru",
    paper: "Kang & Eom, IEEE TCE 2016 (NVLRU)",
    what: "a cache in non-volatile memory alone, where fsyncs end",
    params: PARAMS,
    kind: SystemKind::Memory {
        frames_min: Nvlru::<Counting>::FRAMES_MIN,
        run: |cell, trace, sink| {
            let (pages, frames) = (trace.pages(), cell.frames);
            let memory = Counting::new(frames);
            let cache = Nvlru::new(pages, frames, Settings::new(PARAMS, cell), memory);
            system::run_memory(cell, trace, cache, sink)
        },
    },
};

const PARAMS: &[Param] = &[Settings::BATCH, Settings::OLD];

const NONE: u32 = u32::MAX;
/// Bit of an entry: storage lacks this version. Frame numbers are below 2^28.
const DIRTY: u32 = 1 << 31;
/// Bit of an entry: a power cut does not lose this version.
const DURABLE: u32 = 1 << 30;
const NUMBER: u32 = DURABLE - 1;

/// A frame with a version of a page.
#[derive(Clone, Copy)]
struct Held {
    page: u32,
    /// The frame with the version before this one, with [`DIRTY`] if storage lacks that. If the
    /// newest version is not durable, the one before it is.
    older: u32,
    /// The frame with the version after this one.
    newer: u32,
}

const FREE: Held = Held { page: NONE, older: NONE, newer: NONE };

/// The cache. A page is in one frame, or in two: its newest version, and the durable one. If old
/// versions stay, it is in any number, each in the queue; an older version is always nearer to the
/// oldest end. Otherwise the durable version below a newer one is in a frame that counts as free of
/// a page, and in no queue.
pub struct Nvlru<M> {
    settings: Settings,
    memory: M,
    facts: Facts,
    /// By page: the frame of its newest version, with bits.
    table: Vec<u32>,
    /// By frame.
    frames: Vec<Held>,
    free: Vec<Frame>,
    queue: Lists<Frame, 1>,
}

fn is_dirty(entry: u32) -> bool {
    entry != NONE && entry & (DIRTY | DURABLE) == DIRTY
}

impl<M: Memory> Nvlru<M> {
    /// The smallest cache: a page and its copy.
    pub const FRAMES_MIN: u32 = 2;

    /// Returns an empty cache for a trace of `pages` pages. All frames are non-volatile memory.
    ///
    /// # Panics
    ///
    /// `frames` is below [`Self::FRAMES_MIN`].
    pub fn new(pages: u32, frames: u32, settings: Settings, memory: M) -> Self {
        assert!(frames >= Self::FRAMES_MIN, "a cache with copy-on-write has 2 frames");
        Self {
            settings,
            memory,
            facts: Facts::new(pages),
            table: vec![NONE; pages as usize],
            frames: vec![FREE; frames as usize],
            free: (0..frames).rev().map(Frame).collect(),
            queue: Lists::new(frames),
        }
    }

    /// Takes the durable pages that recovery found in `memory` into an empty cache, the least
    /// recently used first. Each has a frame of its own.
    ///
    /// # Panics
    ///
    /// Two pages have the same frame.
    pub fn restore(&mut self, held: impl IntoIterator<Item = (Frame, Page)>) {
        for (frame, page) in held {
            self.frames[frame.0 as usize] = Held { page: page.0, ..FREE };
            *self.entry(page) = frame.0 | DURABLE | DIRTY;
            self.queue.push_newest(0, frame);
        }
        let free = |frame: &Frame| self.frames[frame.0 as usize].page == NONE;
        self.free = (0..self.frames.len() as u32).rev().map(Frame).filter(free).collect();
    }

    /// Returns the memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    #[inline(always)]
    fn entry(&mut self, page: Page) -> &mut u32 {
        &mut self.table[page.0 as usize]
    }

    #[inline(always)]
    fn old_versions_stay(&self) -> bool {
        self.settings.old_versions != OldVersions::Freed
    }

    /// Writes to a version that is not durable.
    #[inline(always)]
    fn write<B: Back>(&mut self, page: Page, details: Details, back: &mut B) {
        let entry = *self.entry(page);
        self.memory.write(PageCopy::Nvm(Frame(entry & NUMBER)), details.bytes);
        *self.entry(page) |= DIRTY;
        self.facts.set_dirty(page);
        if B::WANTS_DIRTIED && entry & DIRTY == 0 {
            back.dirtied(page);
        }
    }

    #[inline(never)]
    fn miss<B: Back>(&mut self, page: Page, op: Op, details: Details, back: &mut B) {
        let frame = self.take_frame(None, back);
        self.facts.entered(page, back);
        self.facts.accessed::<B>(page, op, details.owner);
        self.frames[frame.0 as usize] = Held { page: page.0, ..FREE };
        *self.entry(page) = frame.0;
        self.queue.push_newest(0, frame);
        if op == Op::Read || (details.partial && self.settings.write_miss_reads) {
            back.read(page, details.owner);
            self.memory.fetched(PageCopy::Nvm(frame));
        } else {
            self.memory.blank(PageCopy::Nvm(frame));
        }
        match op {
            Op::Read => self.memory.read(PageCopy::Nvm(frame), details.bytes),
            Op::Write => self.write(page, details, back),
        }
    }

    /// A write finds its page durable, and gets a copy to change.
    #[inline(never)]
    fn copy_for_write<B: Back>(&mut self, page: Page, back: &mut B) {
        let durable = Frame(*self.entry(page) & NUMBER);
        let frame = self.take_frame(Some(durable), back);
        self.memory.copy(PageCopy::Nvm(durable), PageCopy::Nvm(frame));
        let dirty = *self.entry(page) & DIRTY;
        self.frames[frame.0 as usize] =
            Held { page: page.0, older: durable.0 | dirty, newer: NONE };
        if self.old_versions_stay() {
            self.frames[durable.0 as usize].newer = frame.0;
            self.queue.push_newest(0, frame);
        } else {
            self.frames[durable.0 as usize] = FREE;
            self.queue.replace(durable, frame);
        }
        *self.entry(page) = frame.0 | dirty;
    }

    /// Takes a free frame; `keep` is the most recently used one and does not leave.
    #[inline(always)]
    fn take_frame<B: Back>(&mut self, keep: Option<Frame>, back: &mut B) -> Frame {
        if let Some(frame) = self.free.pop() {
            return frame;
        }
        self.evict(keep, back);
        self.free.pop().expect("an eviction frees a frame")
    }

    fn evict<B: Back>(&mut self, keep: Option<Frame>, back: &mut B) {
        let mut durable = false;
        // `keep` is the newest of the queue, so all others come before it.
        let other = |frame: Option<Frame>| frame.filter(|frame| Some(*frame) != keep);
        let (mut next, mut count) = (other(self.queue.oldest(0)), 0);
        while let Some(frame) = next.filter(|_| count < self.settings.evict_batch.max(1)) {
            let Held { page, older, newer } = self.frames[frame.0 as usize];
            if newer == NONE {
                durable |= older != NONE || self.table[page as usize] & DURABLE != 0;
                self.write_out(Page(page), Why::Evict, back);
            } else {
                durable |= self.write_old(frame, back);
            }
            (next, count) = (other(self.queue.newer(frame)), count + 1);
        }
        if durable {
            // A durable copy may go only when storage has the page for good.
            self.facts.flush(back);
        }
        for _ in 0..count {
            let frame = self.queue.oldest(0).expect("the victims are still in the queue");
            match self.frames[frame.0 as usize] {
                Held { page, newer: NONE, .. } => self.remove(Page(page)),
                _ => self.remove_old(frame),
            }
        }
        // The links of the fourth victim, and the page and the memory of the third, lie anywhere in
        // their arrays. The next evictions read them.
        let newer = |frame| self.queue.newer(frame);
        if let Some(third) = self.queue.oldest(0).and_then(newer).and_then(newer) {
            prefetch_index(&self.table, self.frames[third.0 as usize].page as usize);
            self.memory.prefetch(third);
            if let Some(next) = self.queue.newer(third) {
                prefetch_index(&self.frames, next.0 as usize);
                self.queue.prefetch(next);
            }
        }
    }

    /// Writes a page to storage if storage lacks its newest version. The page stays.
    fn write_out<B: Back>(&mut self, page: Page, why: Why, back: &mut B) {
        let entry = *self.entry(page);
        if entry & DIRTY == 0 {
            return;
        }
        *self.entry(page) &= !DIRTY;
        self.memory.send(PageCopy::Nvm(Frame(entry & NUMBER)));
        if entry & DURABLE == 0 {
            self.facts.sent(page);
        }
        self.facts.set_clean(page);
        back.write(self.facts.written::<B>(page, why));
        if self.old_versions_stay() {
            // Storage has a newer version than the old ones.
            let mut at = entry & NUMBER;
            while at != NONE {
                let older = &mut self.frames[at as usize].older;
                *older = if *older == NONE { NONE } else { *older & !DIRTY };
                at = *older;
            }
        }
    }

    /// Writes an old version that leaves the queue, if it is to be written. Returns whether it is
    /// the durable version of its page.
    #[inline(never)]
    fn write_old<B: Back>(&mut self, frame: Frame, back: &mut B) -> bool {
        let Held { page, newer, .. } = self.frames[frame.0 as usize];
        let (page, entry) = (Page(page), self.table[page as usize]);
        let is_durable = entry & DURABLE == 0 && entry & NUMBER == newer;
        let written = is_durable || self.settings.old_versions == OldVersions::Written;
        let link = &mut self.frames[newer as usize].older;
        if written && *link & DIRTY != 0 {
            *link &= !DIRTY;
            self.memory.send(PageCopy::Nvm(frame));
            back.write_older(self.facts.written::<B>(page, Why::Evict));
            if B::WANTS_DIRTIED && entry & DIRTY != 0 {
                back.dirtied(page);
            }
        }
        is_durable
    }

    /// Frees the frame of the oldest of several versions of a page.
    fn remove_old(&mut self, frame: Frame) {
        let Held { newer, .. } = std::mem::replace(&mut self.frames[frame.0 as usize], FREE);
        self.frames[newer as usize].older = NONE;
        self.memory.erase(frame);
        self.queue.remove(frame);
        self.free.push(frame);
    }

    /// Returns the frame of the oldest version of a page in the queue, given its newest one.
    fn oldest_version(&self, newest: Frame) -> Frame {
        let older = |frame: &Frame| Some(self.frames[frame.0 as usize].older);
        let below = |frame: &Frame| older(frame).filter(|older| *older != NONE);
        let versions =
            std::iter::successors(Some(newest), |frame| Some(Frame(below(frame)? & NUMBER)));
        versions.last().expect("the newest one is among them")
    }

    /// Frees the frames of a page.
    fn remove(&mut self, page: Page) {
        let entry = std::mem::replace(self.entry(page), NONE);
        if entry == NONE {
            return;
        }
        let frame = Frame(entry & NUMBER);
        if self.old_versions_stay() {
            // The oldest first: a power cut between two must not bring an older one back.
            let mut old = self.oldest_version(frame);
            while old != frame {
                let newer = Frame(self.frames[old.0 as usize].newer);
                self.remove_old(old);
                old = newer;
            }
        }
        let Held { older, .. } = std::mem::replace(&mut self.frames[frame.0 as usize], FREE);
        if entry & DURABLE != 0 {
            self.memory.erase(frame);
        }
        self.queue.remove(frame);
        self.free.push(frame);
        self.free_below(older);
        self.facts.set_clean(page);
    }

    /// Frees the frame of a version that is in no queue.
    fn free_below(&mut self, older: u32) {
        if older != NONE {
            self.memory.erase(Frame(older & NUMBER));
            self.free.push(Frame(older & NUMBER));
        }
    }

    fn make_durable<B: Back>(&mut self, page: Page, back: &mut B) {
        let frame = Frame(*self.entry(page) & NUMBER);
        self.memory.publish(frame, page);
        *self.entry(page) |= DURABLE;
        if !self.old_versions_stay() {
            let older = std::mem::replace(&mut self.frames[frame.0 as usize].older, NONE);
            self.free_below(older);
        }
        self.facts.set_clean(page);
        back.durable(page.0..page.0 + 1);
    }
}

impl<M: Memory> Cache for Nvlru<M> {
    const OFFLINE: bool = false;
    const WANTS_BYTES: bool = true;
    const DURABLE: bool = true;

    #[inline(always)]
    fn access<B: Back>(&mut self, access: Access, details: Details, back: &mut B) -> bool {
        let Access { page, op, .. } = access;
        let entry = *self.entry(page);
        if entry == NONE {
            self.miss(page, op, details, back);
            return false;
        }
        let frame = Frame(entry & NUMBER);
        self.facts.accessed::<B>(page, op, details.owner);
        self.queue.move_newest(0, frame);
        if op == Op::Read {
            self.memory.read(PageCopy::Nvm(frame), details.bytes);
            return true;
        }
        if entry & DURABLE != 0 {
            self.copy_for_write(page, back);
        }
        self.write(page, details, back);
        true
    }

    #[inline(always)]
    fn far_ahead(&self, page: Page) {
        prefetch_index(&self.table, page.0 as usize);
    }

    #[inline(always)]
    fn near_ahead(&self, page: Page) {
        let entry = self.table[page.0 as usize];
        // Frame 0 stands for none: a branch would be mispredicted.
        let frame = Frame(if entry == NONE { 0 } else { entry & NUMBER });
        self.queue.prefetch(frame);
        self.memory.prefetch(frame);
    }

    #[inline(always)]
    fn next_ahead(&self, page: Page) {
        self.queue.prefetch_neighbours(Frame(self.table[page.0 as usize] & NUMBER));
    }

    fn drop_pages<B: Back>(&mut self, pages: Range<u32>, back: &mut B) {
        for page in pages.clone().map(Page) {
            if self.holds(page) {
                back.dropped(*self.entry(page) & DIRTY != 0);
                self.remove(page);
            }
        }
        back.free(pages);
    }

    fn direct<B: Back>(&mut self, pages: Range<u32>, op: Op, owner: Owner, back: &mut B) {
        // Pages become durable first: storage gets them without a FLUSH, and they are clean then.
        self.sync(pages.clone(), Why::Direct, back);
        let mut durable = false;
        for page in pages.clone().map(Page) {
            if self.holds(page) {
                let entry = *self.entry(page);
                let older = self.frames[(entry & NUMBER) as usize].older;
                durable |= entry & DURABLE != 0 || older != NONE;
                self.write_out(page, Why::Direct, back);
            }
        }
        back.submit();
        if op == Op::Write {
            if durable {
                self.facts.flush(back);
            }
            pages.clone().map(Page).for_each(|page| self.remove(page));
            pages.clone().map(Page).for_each(|page| self.facts.sent(page));
        }
        past_the_cache(pages, op, owner, back);
    }

    fn sync<B: Back>(&mut self, mut pages: Range<u32>, why: Why, back: &mut B) {
        let all = pages.clone();
        while let Some(page) = self.facts.next_dirty(&pages) {
            pages.start = page.0 + 1;
            self.make_durable(page, back);
        }
        if why.is_sync() && self.facts.is_unflushed(&all) {
            self.facts.flush(back);
        }
    }

    fn drain<B: Back>(&mut self, back: &mut B) {
        let mut durable = false;
        let held: Vec<Frame> = self.queue.iter(0).collect();
        for frame in &held {
            let Held { page, older, newer } = self.frames[frame.0 as usize];
            if newer == NONE {
                durable |= older != NONE || self.table[page as usize] & DURABLE != 0;
                self.write_out(Page(page), Why::Drain, back);
            }
        }
        if durable {
            self.facts.flush(back);
        }
        for frame in held {
            let Held { page, .. } = self.frames[frame.0 as usize];
            if page != NONE {
                self.remove(Page(page));
            }
        }
    }

    fn holds(&self, page: Page) -> bool {
        self.table[page.0 as usize] != NONE
    }

    fn is_dirty(&self, page: Page) -> bool {
        self.facts.is_dirty(page)
    }

    fn dirty_pages(&self) -> u64 {
        self.facts.dirty_pages()
    }

    fn pages(&self) -> u64 {
        let newest = |held: &&Held| held.page != NONE && held.newer == NONE;
        self.frames.iter().filter(newest).count() as u64
    }

    fn lines(&self) -> Lines {
        self.memory.lines()
    }

    fn traffic(&self) -> Traffic {
        let left = |held: &&Held| {
            held.page != NONE && held.newer == NONE && {
                let entry = self.table[held.page as usize];
                match (entry & DURABLE, held.older) {
                    (0, older) => older != NONE && older & DIRTY != 0,
                    _ => entry & DIRTY != 0,
                }
            }
        };
        let nvm_left = self.frames.iter().filter(left).count() as u64;
        Traffic { nvm_left, ..self.memory.traffic() }
    }

    fn check(&self) {
        self.queue.check();
        let queued: Vec<Frame> = self.queue.iter(0).collect();
        let held = |frame: &Frame| self.frames[frame.0 as usize];
        let below = |frame: &Frame| Some(held(frame).older).filter(|older| *older != NONE);
        let shadows: Vec<Frame> = match self.old_versions_stay() {
            true => Vec::new(),
            false => queued.iter().filter_map(below).map(|older| Frame(older & NUMBER)).collect(),
        };
        super::assert_partition(self.frames.len(), &[&queued, &shadows, &self.free]);
        for frame in self.free.iter().chain(&shadows) {
            assert_eq!(held(frame).page, NONE, "only versions in the queue count as pages");
        }
        let mut newest = 0;
        for (at, frame) in queued.iter().enumerate() {
            let Held { page, older, newer } = held(frame);
            let entry = self.table[page as usize];
            if newer == NONE {
                newest += 1;
                assert_eq!(entry & NUMBER, frame.0, "table and frames agree");
            } else {
                assert!(queued[at..].contains(&Frame(newer)), "a newer version leaves later");
                let (this, next) = (frame.0, held(&Frame(newer)));
                assert_eq!((next.page, next.older & NUMBER), (page, this), "links agree");
            }
            let stays = self.old_versions_stay();
            assert!(stays || older == NONE || is_dirty(entry), "a page with two versions is dirty");
        }
        let in_table = self.table.iter().filter(|entry| **entry != NONE).count();
        assert_eq!(in_table, newest, "the newest version of a page is in one frame of the queue");
        self.facts.check(|page| is_dirty(self.table[page.0 as usize]));
    }
}

#[cfg(test)]
mod tests;
