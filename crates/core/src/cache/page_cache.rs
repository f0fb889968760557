//! The page cache: owns page ↔ frame and the dirty bits; a policy owns the order.
//!
//! Two invariants: a page is in at most one frame, and the table and the frames agree; the policy holds exactly the
//! frames in use.

use super::Cache;
use crate::{
    back::{Back, Why},
    page::{Access, Frame, Op, Page},
    policy::Policy,
};
use prefetch_index::prefetch_index;
use std::ops::Range;

const NONE: u32 = u32::MAX;
/// In a table entry: the frame is dirty. Frames are numbered below 2^28 ([`crate::system::FRAMES_MAX`]).
const DIRTY: u32 = 1 << 31;

/// What a policy may look at: each frame's page and dirty bit, each page's frame.
pub struct Frames {
    /// By page: its frame and whether that is dirty, in one word, since an access wants both.
    table: Vec<u32>,
    /// By frame.
    page: Vec<u32>,
}

impl Frames {
    fn new(pages: u32, slots: u32) -> Self {
        Self { table: vec![NONE; pages as usize], page: vec![NONE; slots as usize] }
    }

    /// The page in a frame in use.
    #[inline(always)]
    pub fn page(&self, frame: Frame) -> Page {
        Page(self.page[frame.0 as usize])
    }

    /// A frame in use was written since it last reached storage.
    #[inline(always)]
    pub fn dirty(&self, frame: Frame) -> bool {
        self.table[self.page[frame.0 as usize] as usize] & DIRTY != 0
    }

    /// This frame will probably be evicted next: fetches what that reads first. Changes nothing.
    #[inline(always)]
    pub fn expect_victim(&self, frame: Option<Frame>) {
        if let Some(frame) = frame {
            prefetch_index(&self.page, frame.0 as usize);
        }
    }

    /// Where a page is, if it is resident.
    #[inline(always)]
    pub fn frame(&self, page: Page) -> Option<Frame> {
        let entry = self.table[page.0 as usize];
        (entry != NONE).then_some(Frame(entry & !DIRTY))
    }
}

/// The frames that a policy gives up, in the order in which they leave.
#[derive(Default)]
pub struct Victims(Vec<Frame>);

impl Victims {
    /// This frame leaves next. The policy has already taken it out of its own order.
    #[inline(always)]
    pub fn push(&mut self, frame: Frame) {
        self.0.push(frame);
    }
}

/// A page cache of some frames under a policy.
pub struct PageCache<P> {
    frames: Frames,
    free: Vec<Frame>,
    victims: Victims,
    /// A write miss that covers only a part of its page reads the page first (`--write-miss read`).
    write_miss_reads: bool,
    policy: P,
}

impl<P: Policy> PageCache<P> {
    /// An empty cache for a trace of `pages` pages. No more frames are made than there are pages; `policy` was built
    /// for the same numbers.
    pub fn new(policy: P, pages: u32, frames: u32, write_miss_reads: bool) -> Self {
        let slots = frames.min(pages);
        Self {
            frames: Frames::new(pages, slots),
            // Popped from the end: frame 0 goes first.
            free: (0..slots).rev().map(Frame).collect(),
            victims: Victims::default(),
            write_miss_reads,
            policy,
        }
    }

    #[inline(never)]
    fn miss<B: Back>(&mut self, access: &Access, partial: bool, back: &mut B) {
        let frame = match self.free.pop() {
            Some(frame) => frame,
            None => {
                self.evict(Some(access), Why::Evict, back);
                self.free.pop().expect("a policy evicts at least one frame")
            }
        };
        self.frames.page[frame.0 as usize] = access.page.0;
        self.frames.table[access.page.0 as usize] = frame.0;
        if access.op == Op::Read || (partial && self.write_miss_reads) {
            back.read(access.page);
        }
        self.policy.insert(frame, access);
        if access.op == Op::Write {
            self.frames.table[access.page.0 as usize] |= DIRTY;
        }
    }

    #[inline(always)]
    fn evict<B: Back>(&mut self, incoming: Option<&Access>, why: Why, back: &mut B) {
        self.policy.evict(incoming, &self.frames, &mut self.victims);
        let Self { frames, free, victims, .. } = self;
        for frame in victims.0.drain(..) {
            let page = std::mem::replace(&mut frames.page[frame.0 as usize], NONE);
            assert!(page != NONE, "a policy evicts a frame that is in use");
            if std::mem::replace(&mut frames.table[page as usize], NONE) & DIRTY != 0 {
                back.write(Page(page), why);
            }
            free.push(frame);
        }
    }
}

impl<P: Policy> Cache for PageCache<P> {
    const OFFLINE: bool = P::OFFLINE;

    #[inline(always)]
    fn access<B: Back>(&mut self, mut access: Access, partial: bool, back: &mut B) -> bool {
        let entry = self.frames.table[access.page.0 as usize];
        if entry == NONE {
            self.miss(&access, partial, back);
            return false;
        }
        access.was_dirty = entry & DIRTY != 0;
        self.policy.hit(Frame(entry & !DIRTY), &access);
        if access.op == Op::Write {
            self.frames.table[access.page.0 as usize] = entry | DIRTY;
        }
        true
    }

    // A table of millions of pages lies beyond the near caches, and whether an access hits is a branch that nobody can
    // predict: without fetching ahead each one waits.
    #[inline(always)]
    fn far_ahead(&self, page: Page) {
        prefetch_index(&self.frames.table, page.0 as usize);
    }

    #[inline(always)]
    fn near_ahead(&self, page: Page) {
        self.policy.expect_access(page);
        match self.frames.frame(page) {
            Some(frame) => self.policy.expect_hit(frame),
            None => self.policy.expect_miss(page),
        }
    }

    fn drop_pages<B: Back>(&mut self, pages: Range<u32>, back: &mut B) {
        for page in pages.clone() {
            match self.frames.frame(Page(page)) {
                Some(frame) => {
                    self.policy.remove(frame, &self.frames);
                    self.frames.page[frame.0 as usize] = NONE;
                    back.dropped(std::mem::replace(&mut self.frames.table[page as usize], NONE) & DIRTY != 0);
                    self.free.push(frame);
                }
                None => self.policy.forget(Page(page)),
            }
        }
        back.free(pages);
    }

    fn clean(&mut self, page: Page) {
        if self.is_dirty(page) {
            let entry = &mut self.frames.table[page.0 as usize];
            *entry &= !DIRTY;
            self.policy.cleaned(Frame(*entry));
        }
    }

    fn drain<B: Back>(&mut self, back: &mut B) {
        while self.pages() > 0 {
            self.evict(None, Why::Drain, back);
        }
    }

    fn holds(&self, page: Page) -> bool {
        self.frames.frame(page).is_some()
    }

    fn is_dirty(&self, page: Page) -> bool {
        let entry = self.frames.table[page.0 as usize];
        entry != NONE && entry & DIRTY != 0
    }

    fn dirty_pages(&self) -> u64 {
        self.frames.table.iter().filter(|entry| **entry != NONE && **entry & DIRTY != 0).count() as u64
    }

    fn pages(&self) -> u64 {
        (self.frames.page.len() - self.free.len()) as u64
    }

    fn check(&self) {
        let Frames { table, page } = &self.frames;
        let used = page.iter().filter(|page| **page != NONE).count();
        assert_eq!(used + self.free.len(), page.len(), "a frame is in use or free");
        assert_eq!(used, table.iter().filter(|frame| **frame != NONE).count(), "table and frames agree");
        for (frame, page) in page.iter().enumerate() {
            if *page != NONE {
                assert_eq!(table[*page as usize] & !DIRTY, frame as u32, "table and frames agree");
            }
        }
        self.policy.check(&self.frames);
    }
}
