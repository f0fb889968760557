//! FSLRU: a small LRU queue in DRAM before a large one in non-volatile memory. An fsync ends in
//! the memory.
//!
//! Kang and Eom, "FSLRU: A Page Cache Algorithm for Mobile Devices with Hybrid Memory
//! Architecture", IEEE TCE 62(2), 2016, sections III.B to III.D. Where the paper is silent:
//!
//! - A hit in the queue of non-volatile memory makes its page the most recently used one there, a
//!   write that copies the page up too. So does an update by an fsync or an eviction. A clean
//!   victim of DRAM, which is discarded (Fig. 3e), leaves the order as it is.
//! - The page enters DRAM before the victim leaves: one frame of DRAM more than the share serves
//!   as the place of the page in flight.
//! - One frame of non-volatile memory is reserved: it gets the new version of a page-atomic update,
//!   or the undo copy of a byte-atomic one. The free page of Fig. 4 is this one.
//! - The size of an update is that of the one extent that contains all bytes written since the
//!   page was last durable.
//! - A write miss that covers a part of its page reads the page only with
//!   [`Settings::write_miss_reads`]. Otherwise the bytes that were never written count as unknown,
//!   as with a mask of valid bytes, and a later read of them reads nothing.
//! - An fsync sends a FLUSH to the device if a page of its range was written to storage while it
//!   was not durable, and no FLUSH came since. The paper's fsync would return before such a page
//!   is durable.
//! - A request past the cache (`O_DIRECT`) first makes its pages durable and writes them to
//!   storage.
//! - Pages that are truncated or deleted leave at once. A file system must make their removal
//!   durable before it reports it here, as ext4 frees blocks only after the commit: with the frame,
//!   the last durable version is gone.

use super::facts::Facts;
use crate::{
    nvm::{Counting, Memory, PageCopy},
    system::{self, Cell, SystemKind, SystemSpec},
};
use flashsift_caches::{
    back::{Back, Why},
    cache::{Cache, Details, past_the_cache},
    lines::{Lines, Traffic},
    trace::{Bytes, Owner},
};
use flashsift_events::{
    page::{Access, Frame, Op, PAGE_BYTES, Page},
    params::{Param, ParamKind},
    structure::Lists,
};
use prefetch_index::prefetch_index;
use std::ops::Range;

pub(crate) const SPEC: SystemSpec = SystemSpec {
    name: "fslru",
    paper: "Kang & Eom, IEEE TCE 2016",
    what: "a small cache in DRAM before a large one in non-volatile memory, where fsyncs end",
    params: PARAMS,
    kind: SystemKind::Memory {
        frames_min: Fslru::<Counting>::FRAMES_MIN,
        run: |cell, trace, sink| {
            let settings = Settings::new(PARAMS, cell);
            let nvm = cell.frames - Fslru::<Counting>::dram_frames(cell.frames, settings);
            let cache = Fslru::new(trace.pages(), cell.frames, settings, Counting::new(nvm));
            system::run_memory(cell, trace, cache, sink)
        },
    },
};

const PARAMS: &[Param] = &[
    Param {
        name: "dram",
        what: "DRAM's share of the cache, percent",
        kind: ParamKind::Number { default: 10.0, min: 0.0, max: 100.0 },
    },
    Settings::ATOMIC,
    Settings::BATCH,
];

const NONE: u32 = u32::MAX;
/// Bit of an entry. In DRAM: written since the page was last durable. In non-volatile memory:
/// storage lacks this version. Frame numbers are below 2^28
/// ([`flashsift_caches::cache::FRAMES_MAX`]).
const DIRTY: u32 = 1 << 31;
/// Bit of an entry in non-volatile memory: a power cut does not lose the copy.
const DURABLE: u32 = 1 << 30;
const NUMBER: u32 = DURABLE - 1;

/// An extent of changed bytes that is empty.
const UNCHANGED: Bytes = Bytes { from: PAGE_BYTES as u16, to: 0 };

/// The parameters of [`Fslru`] and of [`super::Nvlru`], which uses the last three.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Settings {
    /// DRAM's share of the frames, 0 to 1.
    pub dram_share: f64,
    /// The largest update, in bytes, that is byte-atomic; larger ones are page-atomic.
    pub byte_atomic_bytes: u16,
    /// A write miss that covers a part of its page reads the page first.
    pub write_miss_reads: bool,
    /// Pages that leave non-volatile memory together, at least 1. The paper evicts one. More save
    /// FLUSHes, because one FLUSH is enough for all, and cost hits: pages leave earlier than they
    /// have to.
    pub evict_batch: u32,
    /// The fate of a version that an fsync has superseded, in [`super::Nvlru`].
    pub old_versions: OldVersions,
}

/// The fate of a durable version of a page when an fsync has made a newer one durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OldVersions {
    /// Its frame is free at once.
    #[default]
    Freed,
    /// It stays in its place in the queue, and leaves unwritten when it is the oldest.
    Age,
    /// It stays in its place in the queue, and is written when it is the oldest.
    Written,
}

impl Settings {
    pub(super) const ATOMIC: Param = Param {
        name: "atomic",
        what: "the largest update that is byte-atomic, bytes",
        kind: ParamKind::Number { default: 2048.0, min: 0.0, max: 4096.0 },
    };
    pub(super) const BATCH: Param = Param {
        name: "batch",
        what: "pages that leave non-volatile memory together, before one FLUSH",
        kind: ParamKind::Number { default: 1.0, min: 1.0, max: 4096.0 },
    };
    pub(super) const OLD: Param = Param {
        name: "old",
        what: "whether a superseded durable version is freed, ages in the queue, or is then written",
        kind: ParamKind::Word(&["freed", "ages", "written"]),
    };

    /// Returns the settings of a cell whose system declares these parameters.
    pub(super) fn new(declared: &[Param], cell: &Cell<'_>) -> Self {
        let number = |name| cell.system.params.number(declared, name);
        let has = |name| declared.iter().any(|param| param.name == name);
        Self {
            dram_share: if has("dram") { number("dram") / 100.0 } else { 0.0 },
            byte_atomic_bytes: if has("atomic") { number("atomic") as u16 } else { 0 },
            write_miss_reads: cell.write_miss_reads,
            evict_batch: number("batch") as u32,
            old_versions: match has("old").then(|| cell.system.params.word(declared, "old")) {
                Some("ages") => OldVersions::Age,
                Some("written") => OldVersions::Written,
                _ => OldVersions::Freed,
            },
        }
    }
}

impl Default for Settings {
    /// The paper's values.
    fn default() -> Self {
        Self {
            dram_share: 0.1,
            byte_atomic_bytes: 2048,
            write_miss_reads: false,
            evict_batch: 1,
            old_versions: OldVersions::Freed,
        }
    }
}

/// The frames of a page, `NONE` where it has none, with bits.
#[derive(Clone, Copy)]
struct Copies {
    dram: u32,
    nvm: u32,
}

impl Copies {
    const ABSENT: Self = Self { dram: NONE, nvm: NONE };

    #[inline(always)]
    fn dram(self) -> Option<Frame> {
        (self.dram != NONE).then_some(Frame(self.dram & NUMBER))
    }

    #[inline(always)]
    fn nvm(self) -> Option<Frame> {
        (self.nvm != NONE).then_some(Frame(self.nvm & NUMBER))
    }

    #[inline(always)]
    fn dirty_in_dram(self) -> bool {
        self.dram != NONE && self.dram & DIRTY != 0
    }

    #[inline(always)]
    fn nvm_has(self, bit: u32) -> bool {
        self.nvm != NONE && self.nvm & bit != 0
    }

    /// Storage lacks the newest version.
    #[inline(always)]
    fn unwritten(self) -> bool {
        self.dirty_in_dram() || self.nvm_has(DIRTY)
    }

    /// The newest version is not durable, and storage lacks it.
    fn is_dirty(self) -> bool {
        self.dirty_in_dram() || (self.nvm_has(DIRTY) && !self.nvm_has(DURABLE))
    }
}

/// The lists of [`Fslru::queues`].
const DRAM: usize = 0;
const NVM: usize = 1;

/// A frame of DRAM.
#[derive(Clone, Copy)]
struct Slot {
    page: u32,
    /// The bytes changed since the page was last durable.
    changed: Bytes,
}

/// The cache. A page has at most one copy in each queue; if it has two, that in non-volatile memory
/// is durable, and that in DRAM is at least as new.
pub struct Fslru<M> {
    settings: Settings,
    memory: M,
    facts: Facts,
    /// By page.
    table: Vec<Copies>,
    /// By frame of DRAM, one more than DRAM's share.
    slots: Vec<Slot>,
    free_slots: Vec<Frame>,
    /// By frame of non-volatile memory: its page, or `NONE`.
    frames: Vec<u32>,
    free_frames: Vec<Frame>,
    /// The frames of DRAM, and behind their numbers those of non-volatile memory. One array serves
    /// both queues, so that a hit needs no branch to find its queue: half of such branches would be
    /// mispredicted.
    queues: Lists<Frame, 2>,
    reserved: Frame,
}

impl<M: Memory> Fslru<M> {
    /// The smallest cache: one frame of DRAM, one of non-volatile memory, and the reserved one.
    pub const FRAMES_MIN: u32 = 3;

    /// Returns how many of the frames are DRAM; the others are non-volatile memory. DRAM has at
    /// least one frame and leaves at least two.
    pub fn dram_frames(frames: u32, settings: Settings) -> u32 {
        let share = (f64::from(frames) * settings.dram_share).round() as u32;
        share.clamp(1, frames.saturating_sub(2).max(1))
    }

    /// Returns an empty cache for a trace of `pages` pages. `memory` has the frames that DRAM does
    /// not have.
    ///
    /// # Panics
    ///
    /// `frames` is below [`Self::FRAMES_MIN`].
    pub fn new(pages: u32, frames: u32, settings: Settings, memory: M) -> Self {
        assert!(frames >= Self::FRAMES_MIN, "a cache in DRAM and non-volatile memory has 3 frames");
        let dram = Self::dram_frames(frames, settings);
        let nvm = frames - dram;
        Self {
            settings,
            memory,
            facts: Facts::new(pages),
            table: vec![Copies::ABSENT; pages as usize],
            slots: vec![Slot { page: NONE, changed: UNCHANGED }; dram as usize + 1],
            free_slots: (0..=dram).rev().map(Frame).collect(),
            frames: vec![NONE; nvm as usize],
            free_frames: (0..nvm - 1).rev().map(Frame).collect(),
            queues: Lists::new(dram + 1 + nvm),
            reserved: Frame(nvm - 1),
        }
    }

    /// Takes the durable pages that recovery found in `memory` into an empty cache, the least
    /// recently used first. Each has a frame of its own, and at least one frame is left.
    ///
    /// # Panics
    ///
    /// Two pages have the same frame, or no frame is left.
    pub fn restore(&mut self, held: impl IntoIterator<Item = (Frame, Page)>) {
        for (frame, page) in held {
            self.insert(frame, page, DURABLE | DIRTY);
        }
        let free = |frame: &Frame| self.frames[frame.0 as usize] == NONE;
        self.free_frames = (0..self.frames.len() as u32).rev().map(Frame).filter(free).collect();
        self.reserved = self.free_frames.pop().expect("a frame is left");
    }

    /// Returns the memory.
    pub fn memory(&self) -> &M {
        &self.memory
    }

    #[inline(always)]
    fn copies(&mut self, page: Page) -> &mut Copies {
        &mut self.table[page.0 as usize]
    }

    /// Returns the item of a frame of non-volatile memory in `queues`. That of a frame of DRAM is
    /// the frame itself.
    #[inline(always)]
    fn item(&self, frame: Frame) -> Frame {
        Frame(self.slots.len() as u32 + frame.0)
    }

    /// Returns the frame of non-volatile memory of an item in `queues`.
    #[inline(always)]
    fn frame(&self, item: Frame) -> Frame {
        Frame(item.0 - self.slots.len() as u32)
    }

    /// Returns the queue and the item of the copy that serves a page, that in DRAM if there is one.
    /// Meaningless for an absent page.
    #[inline(always)]
    fn serving(&self, copies: Copies) -> (usize, Frame) {
        let in_nvm = copies.dram == NONE;
        let (first, frame) =
            if in_nvm { (self.slots.len() as u32, copies.nvm) } else { (0, copies.dram) };
        (usize::from(in_nvm), Frame(first + (frame & NUMBER)))
    }

    /// Returns the frames in the queue of non-volatile memory, the least recently used first.
    fn nvm_queue(&self) -> impl Iterator<Item = Frame> + '_ {
        self.queues.iter(NVM).map(|item| self.frame(item))
    }

    /// Takes a frame of DRAM for a page. One is free: [`Self::shrink`] sees to that.
    #[inline(always)]
    fn enter(&mut self, page: Page) -> Frame {
        let slot = self.free_slots.pop().expect("one frame of DRAM is free between accesses");
        self.slots[slot.0 as usize] = Slot { page: page.0, changed: UNCHANGED };
        self.copies(page).dram = slot.0;
        self.queues.push_newest(DRAM, slot);
        slot
    }

    /// Writes to a copy in DRAM.
    #[inline(always)]
    fn write_dram<B: Back>(&mut self, slot: Frame, page: Page, bytes: Bytes, back: &mut B) {
        self.memory.write(PageCopy::Dram(slot), bytes);
        let changed = &mut self.slots[slot.0 as usize].changed;
        changed.from = changed.from.min(bytes.from);
        changed.to = changed.to.max(bytes.to);
        let copies = self.copies(page);
        let unwritten = copies.unwritten();
        copies.dram |= DIRTY;
        self.facts.set_dirty(page);
        if B::WANTS_DIRTIED && !unwritten {
            back.dirtied(page);
        }
    }

    #[inline(never)]
    fn miss<B: Back>(&mut self, page: Page, op: Op, details: Details, back: &mut B) {
        self.facts.entered(page, back);
        self.facts.accessed::<B>(page, op, details.owner);
        let slot = self.enter(page);
        if op == Op::Read || (details.partial && self.settings.write_miss_reads) {
            back.read(page, details.owner);
            self.memory.fetched(PageCopy::Dram(slot));
        } else {
            self.memory.blank(PageCopy::Dram(slot));
        }
        self.shrink(back);
        match op {
            Op::Read => self.memory.read(PageCopy::Dram(slot), details.bytes),
            Op::Write => self.write_dram(slot, page, details.bytes, back),
        }
    }

    /// A write finds its page durable: the page is copied up and written in DRAM.
    #[inline(never)]
    fn copy_up<B: Back>(&mut self, frame: Frame, page: Page, bytes: Bytes, back: &mut B) {
        let slot = self.enter(page);
        self.memory.copy(PageCopy::Nvm(frame), PageCopy::Dram(slot));
        self.shrink(back);
        self.write_dram(slot, page, bytes, back);
    }

    /// Evicts the least recently used page of DRAM if only the frame in flight would be left.
    #[inline(always)]
    fn shrink<B: Back>(&mut self, back: &mut B) {
        if !self.free_slots.is_empty() {
            return;
        }
        let slot = self.queues.oldest(DRAM).expect("DRAM is full");
        let page = Page(self.slots[slot.0 as usize].page);
        let copies = *self.copies(page);
        match (copies.nvm(), copies.dirty_in_dram()) {
            (Some(frame), true) => {
                self.update(slot, page, frame);
                back.durable(page.0..page.0 + 1);
            }
            (Some(_), false) => {}
            (None, dirty) => {
                let frame = self.take_frame(back);
                self.memory.copy(PageCopy::Dram(slot), PageCopy::Nvm(frame));
                self.insert(frame, page, if dirty { DIRTY } else { 0 });
            }
        }
        self.leave_dram(slot, page);
        self.expect_victims();
    }

    /// Prefetches what the next evictions read: the links of the fourth victim, the page of the
    /// third, and the copy in non-volatile memory of the second. Each lies anywhere in its array.
    #[inline(always)]
    fn expect_victims(&self) {
        let second = |queue| self.queues.newer(self.queues.oldest(queue)?);
        if let Some(slot) = second(DRAM) {
            let copies = self.table[self.slots[slot.0 as usize].page as usize];
            if let Some(frame) = copies.nvm() {
                self.memory.prefetch(frame);
                self.queues.prefetch(self.item(frame));
            }
            if let Some(slot) = self.queues.newer(slot) {
                prefetch_index(&self.table, self.slots[slot.0 as usize].page as usize);
                self.queues.newer(slot).into_iter().for_each(|next| self.queues.prefetch(next));
            }
        }
        if self.free_frames.is_empty()
            && let Some(item) = second(NVM)
            && let Some(item) = self.queues.newer(item)
        {
            let frame = self.frame(item);
            prefetch_index(&self.table, self.frames[frame.0 as usize] as usize);
            self.memory.prefetch(frame);
            if let Some(next) = self.queues.newer(item) {
                prefetch_index(&self.frames, self.frame(next).0 as usize);
                self.queues.prefetch(next);
            }
        }
    }

    #[inline(always)]
    fn leave_dram(&mut self, slot: Frame, page: Page) {
        self.queues.remove(slot);
        self.slots[slot.0 as usize].page = NONE;
        self.copies(page).dram = NONE;
        self.free_slots.push(slot);
    }

    #[inline(always)]
    fn insert(&mut self, frame: Frame, page: Page, bits: u32) {
        self.frames[frame.0 as usize] = page.0;
        self.copies(page).nvm = frame.0 | bits;
        self.queues.push_newest(NVM, self.item(frame));
    }

    /// Updates the durable copy of a page from DRAM, atomically. The page is clean afterwards.
    fn update(&mut self, slot: Frame, page: Page, frame: Frame) {
        let changed = std::mem::replace(&mut self.slots[slot.0 as usize].changed, UNCHANGED);
        let mut now = frame;
        if changed.count() <= self.settings.byte_atomic_bytes {
            self.memory.update_bytes(slot, frame, changed, self.reserved);
        } else {
            now = std::mem::replace(&mut self.reserved, frame);
            self.memory.copy(PageCopy::Dram(slot), PageCopy::Nvm(now));
            self.memory.publish(now, page);
            self.memory.erase(frame);
            self.frames[frame.0 as usize] = NONE;
            self.frames[now.0 as usize] = page.0;
            self.queues.replace(self.item(frame), self.item(now));
        }
        self.queues.move_newest(NVM, self.item(now));
        *self.copies(page) = Copies { dram: slot.0, nvm: now.0 | DURABLE | DIRTY };
        self.facts.set_clean(page);
    }

    #[inline(always)]
    fn take_frame<B: Back>(&mut self, back: &mut B) -> Frame {
        if let Some(frame) = self.free_frames.pop() {
            return frame;
        }
        self.evict(back);
        self.free_frames.pop().expect("an eviction frees a frame")
    }

    /// Evicts the least recently used pages of non-volatile memory.
    fn evict<B: Back>(&mut self, back: &mut B) {
        let mut durable = false;
        let (mut next, mut count) = (self.queues.oldest(NVM), 0);
        while let Some(item) = next.filter(|_| count < self.settings.evict_batch.max(1)) {
            let frame = self.frame(item);
            let page = Page(self.frames[frame.0 as usize]);
            durable |= self.copies(page).nvm_has(DURABLE);
            self.write_out(frame, page, Why::Evict, back);
            (next, count) = (self.queues.newer(item), count + 1);
        }
        if durable {
            // A durable copy may go only when storage has the page for good.
            self.facts.flush(back);
        }
        for _ in 0..count {
            let item = self.queues.oldest(NVM).expect("the victims are still in the queue");
            self.leave_nvm(self.frame(item));
        }
    }

    /// Writes a copy in non-volatile memory to storage if storage lacks it. The copy stays.
    fn write_out<B: Back>(&mut self, frame: Frame, page: Page, why: Why, back: &mut B) {
        let copies = self.copies(page);
        if !copies.nvm_has(DIRTY) {
            return;
        }
        copies.nvm &= !DIRTY;
        let (older, durable) = (copies.dirty_in_dram(), copies.nvm_has(DURABLE));
        self.memory.send(PageCopy::Nvm(frame));
        let written = self.facts.written::<B>(page, why);
        if !durable {
            self.facts.sent(page);
        }
        if older {
            back.write_older(written);
            if B::WANTS_DIRTIED {
                back.dirtied(page);
            }
        } else {
            self.facts.set_clean(page);
            back.write(written);
        }
    }

    /// Frees a frame of non-volatile memory.
    fn leave_nvm(&mut self, frame: Frame) {
        let page = Page(std::mem::replace(&mut self.frames[frame.0 as usize], NONE));
        if self.copies(page).nvm_has(DURABLE) {
            self.memory.erase(frame);
        }
        self.copies(page).nvm = NONE;
        self.queues.remove(self.item(frame));
        self.free_frames.push(frame);
    }

    /// Makes a dirty page durable.
    fn make_durable<B: Back>(&mut self, page: Page, back: &mut B) {
        let copies = *self.copies(page);
        match (copies.dram(), copies.nvm()) {
            (Some(slot), Some(frame)) => self.update(slot, page, frame),
            (Some(slot), None) => {
                let frame = self.take_frame(back);
                self.memory.copy(PageCopy::Dram(slot), PageCopy::Nvm(frame));
                self.memory.publish(frame, page);
                self.insert(frame, page, DURABLE | DIRTY);
                self.slots[slot.0 as usize].changed = UNCHANGED;
                self.copies(page).dram &= !DIRTY;
                self.facts.set_clean(page);
            }
            (None, Some(frame)) => {
                self.memory.publish(frame, page);
                self.copies(page).nvm |= DURABLE;
                self.facts.set_clean(page);
            }
            (None, None) => unreachable!("a dirty page has a copy"),
        }
        back.durable(page.0..page.0 + 1);
    }

    /// Removes the copies of a page.
    fn remove(&mut self, page: Page) {
        let copies = *self.copies(page);
        if let Some(slot) = copies.dram() {
            self.leave_dram(slot, page);
        }
        if let Some(frame) = copies.nvm() {
            self.leave_nvm(frame);
        }
        self.facts.set_clean(page);
    }
}

impl<M: Memory> Cache for Fslru<M> {
    const OFFLINE: bool = false;
    const WANTS_BYTES: bool = true;
    const DURABLE: bool = true;

    #[inline(always)]
    fn access<B: Back>(&mut self, access: Access, details: Details, back: &mut B) -> bool {
        let Access { page, op, .. } = access;
        let bytes = details.bytes;
        let copies = *self.copies(page);
        if copies.dram == NONE && copies.nvm == NONE {
            self.miss(page, op, details, back);
            return false;
        }
        self.facts.accessed::<B>(page, op, details.owner);
        let (queue, item) = self.serving(copies);
        self.queues.move_newest(queue, item);
        let place =
            if queue == DRAM { PageCopy::Dram(item) } else { PageCopy::Nvm(self.frame(item)) };
        match (op, place) {
            (Op::Read, place) => self.memory.read(place, bytes),
            (Op::Write, PageCopy::Dram(slot)) => self.write_dram(slot, page, bytes, back),
            (Op::Write, PageCopy::Nvm(frame)) if copies.nvm_has(DURABLE) => {
                self.copy_up(frame, page, bytes, back);
            }
            (Op::Write, PageCopy::Nvm(frame)) => {
                self.memory.write(PageCopy::Nvm(frame), bytes);
                self.copies(page).nvm |= DIRTY;
                self.facts.set_dirty(page);
                if B::WANTS_DIRTIED && !copies.nvm_has(DIRTY) {
                    back.dirtied(page);
                }
            }
        }
        true
    }

    #[inline(always)]
    fn far_ahead(&self, page: Page) {
        prefetch_index(&self.table, page.0 as usize);
    }

    #[inline(always)]
    fn near_ahead(&self, page: Page) {
        let copies = self.table[page.0 as usize];
        let (_, item) = self.serving(copies);
        self.queues.prefetch(item);
        prefetch_index(&self.slots, item.0 as usize);
    }

    #[inline(always)]
    fn next_ahead(&self, page: Page) {
        let (_, item) = self.serving(self.table[page.0 as usize]);
        self.queues.prefetch_neighbours(item);
    }

    fn drop_pages<B: Back>(&mut self, pages: Range<u32>, back: &mut B) {
        for page in pages.clone().map(Page) {
            if self.holds(page) {
                back.dropped(self.copies(page).unwritten());
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
            let copies = *self.copies(page);
            durable |= copies.nvm_has(DURABLE);
            if let Some(frame) = copies.nvm() {
                self.write_out(frame, page, Why::Direct, back);
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
        let mut queued: Vec<(PageCopy, Page)> = Vec::new();
        for frame in self.nvm_queue() {
            let page = self.frames[frame.0 as usize];
            let copies = self.table[page as usize];
            durable |= copies.nvm_has(DURABLE);
            if copies.nvm_has(DIRTY) && !copies.dirty_in_dram() {
                queued.push((PageCopy::Nvm(frame), Page(page)));
            }
        }
        for slot in self.queues.iter(DRAM) {
            let page = self.slots[slot.0 as usize].page;
            if self.table[page as usize].dirty_in_dram() {
                queued.push((PageCopy::Dram(slot), Page(page)));
            }
        }
        for (place, page) in queued {
            self.memory.send(place);
            back.write(self.facts.written::<B>(page, Why::Drain));
        }
        if durable {
            self.facts.flush(back);
        }
        while let Some(item) = self.queues.oldest(NVM) {
            self.remove(Page(self.frames[self.frame(item).0 as usize]));
        }
        while let Some(slot) = self.queues.oldest(DRAM) {
            self.remove(Page(self.slots[slot.0 as usize].page));
        }
    }

    fn holds(&self, page: Page) -> bool {
        let copies = self.table[page.0 as usize];
        copies.dram != NONE || copies.nvm != NONE
    }

    fn is_dirty(&self, page: Page) -> bool {
        self.facts.is_dirty(page)
    }

    fn dirty_pages(&self) -> u64 {
        self.facts.dirty_pages()
    }

    fn pages(&self) -> u64 {
        let in_dram = self.queues.iter(DRAM);
        let only_dram = in_dram
            .filter(|slot| self.table[self.slots[slot.0 as usize].page as usize].nvm == NONE)
            .count();
        let in_nvm = self.frames.len() - 1 - self.free_frames.len();
        (only_dram + in_nvm) as u64
    }

    fn lines(&self) -> Lines {
        self.memory.lines()
    }

    fn traffic(&self) -> Traffic {
        let left = |page: &&u32| {
            **page != NONE && self.table[**page as usize].nvm & (DURABLE | DIRTY) == DURABLE | DIRTY
        };
        let nvm_left = self.frames.iter().filter(left).count() as u64;
        Traffic { nvm_left, ..self.memory.traffic() }
    }

    fn check(&self) {
        self.queues.check();
        let in_dram: Vec<Frame> = self.queues.iter(DRAM).collect();
        let in_nvm: Vec<Frame> = self.nvm_queue().collect();
        super::assert_partition(self.slots.len(), &[&in_dram, &self.free_slots]);
        super::assert_partition(
            self.frames.len(),
            &[&in_nvm, &self.free_frames, std::slice::from_ref(&self.reserved)],
        );
        assert!(!self.free_slots.is_empty(), "the frame in flight is free");
        for frame in self.free_frames.iter().chain([&self.reserved]) {
            assert_eq!(self.frames[frame.0 as usize], NONE, "a free frame has no page");
        }
        for frame in &in_nvm {
            let page = self.frames[frame.0 as usize];
            assert_eq!(self.table[page as usize].nvm(), Some(*frame), "table and frames agree");
        }
        for slot in &in_dram {
            let Slot { page, changed } = self.slots[slot.0 as usize];
            let copies = self.table[page as usize];
            assert_eq!(copies.dram(), Some(*slot), "table and frames of DRAM agree");
            assert_eq!(copies.dirty_in_dram(), changed != UNCHANGED, "a dirty page has changes");
        }
        let in_table = |held: fn(&Copies) -> bool| self.table.iter().filter(|c| held(c)).count();
        assert_eq!(in_table(|copies| copies.dram != NONE), in_dram.len(), "a page is in one frame");
        assert_eq!(in_table(|copies| copies.nvm != NONE), in_nvm.len(), "a page is in one frame");
        for copies in &self.table {
            let both = copies.dram != NONE && copies.nvm != NONE;
            assert!(!both || copies.nvm_has(DURABLE), "the copy below one in DRAM is durable");
        }
        self.facts.check(|page| self.table[page.0 as usize].is_dirty());
    }
}

#[cfg(test)]
mod tests;
