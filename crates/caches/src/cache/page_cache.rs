//! The page cache: it owns the map of pages to frames, the dirty bits and, where they are wanted,
//! each frame's address, write count and last writer. A policy owns the order.
//!
//! Two invariants: a page is in at most one frame, and the table and the frames agree; the policy
//! holds exactly the frames in use.
//!
//! Arrays that only some systems need are empty in all others: addresses unless
//! [`Policy::WANTS_ADDRESSES`], write counts unless [`Back::WANTS_COUNTS`], writers unless
//! [`Back::WANTS_OWNERS`].

use super::{Cache, Details};
use crate::{
    back::{Back, Why, Written},
    policy::Policy,
    trace::Owner,
};
use flashsift_events::{
    address::Address,
    page::{Access, Frame, Op, Page},
};
use prefetch_index::prefetch_index;
use std::ops::Range;

const NONE: u32 = u32::MAX;
/// Bit of a table entry: the frame is dirty. Frame numbers are below 2^28
/// ([`crate::cache::FRAMES_MAX`]).
const DIRTY: u32 = 1 << 31;

/// A policy's view of the cache: each frame's page, dirty bit and address, and each page's frame.
pub struct Frames {
    /// By page: its frame and dirty bit, in one word because an access reads both.
    table: Vec<u32>,
    /// By frame.
    page: Vec<u32>,
    /// By frame; empty unless the policy wants addresses.
    address: Vec<Address>,
}

impl Frames {
    pub(crate) fn new(pages: u32, slots: u32, addresses: bool) -> Self {
        Self {
            table: vec![NONE; pages as usize],
            page: vec![NONE; slots as usize],
            address: vec![Address::LAST; if addresses { slots as usize } else { 0 }],
        }
    }

    /// Returns the page in a frame in use.
    #[inline(always)]
    pub fn page(&self, frame: Frame) -> Page {
        Page(self.page[frame.0 as usize])
    }

    /// Returns whether the frame was written since its page last reached storage.
    #[inline(always)]
    pub fn dirty(&self, frame: Frame) -> bool {
        self.table[self.page[frame.0 as usize] as usize] & DIRTY != 0
    }

    /// Returns the address of the page in a frame in use. Only for policies that set
    /// [`Policy::WANTS_ADDRESSES`].
    #[inline(always)]
    pub fn address(&self, frame: Frame) -> Address {
        self.address[frame.0 as usize]
    }

    /// Prefetches the entry of a page. Changes no state.
    #[inline(always)]
    pub(crate) fn prefetch(&self, page: Page) {
        prefetch_index(&self.table, page.0 as usize);
    }

    /// Puts a page into a frame that is not in use, for a cache of its own kind.
    #[inline(always)]
    pub(crate) fn place(&mut self, frame: Frame, page: Page) {
        self.page[frame.0 as usize] = page.0;
        self.table[page.0 as usize] = frame.0;
    }

    /// Takes the page out of its frame.
    #[inline(always)]
    pub(crate) fn displace(&mut self, frame: Frame) {
        let page = std::mem::replace(&mut self.page[frame.0 as usize], NONE);
        self.table[page as usize] = NONE;
    }

    /// Returns the number of pages of the trace.
    pub(crate) fn pages(&self) -> usize {
        self.table.len()
    }

    /// Prefetches what evictions of these frames read: of the next one its page's entry in the
    /// table, and of the one after it its page, so that the next call does not wait for that.
    /// Changes no state.
    #[inline(always)]
    pub fn expect_victims(&self, [next, after]: [Option<Frame>; 2]) {
        if let Some(after) = after {
            prefetch_index(&self.page, after.0 as usize);
        }
        if let Some(next) = next {
            prefetch_index(&self.table, self.page[next.0 as usize] as usize);
        }
    }

    /// Returns the frame of a page, if it is resident.
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
    /// Takes the frame that was pushed last.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<Frame> {
        self.0.pop()
    }

    /// Adds the frame that leaves next. The policy has already removed it from its own order.
    #[inline(always)]
    pub fn push(&mut self, frame: Frame) {
        self.0.push(frame);
    }
}

/// Facts about each frame's page that go with it to a back that wants them.
struct Belongings {
    writes: Vec<u32>,
    /// Owner of the last write.
    owner: Vec<Owner>,
    /// Of the present access. It stands here because every argument of [`PageCache::miss`] costs.
    present: Owner,
}

impl Belongings {
    fn new<B: Back>(slots: u32) -> Self {
        let slots = slots as usize;
        Self {
            writes: vec![0; if B::WANTS_COUNTS { slots } else { 0 }],
            owner: vec![Owner::UNKNOWN; if B::WANTS_OWNERS { slots } else { 0 }],
            present: Owner::UNKNOWN,
        }
    }

    #[inline(always)]
    fn entered<B: Back>(&mut self, frame: Frame, page: Page, back: &B) {
        if B::WANTS_COUNTS {
            self.writes[frame.0 as usize] = back.inherited_writes(page);
        }
    }

    #[inline(always)]
    fn written<B: Back>(&mut self, frame: Frame) {
        if B::WANTS_COUNTS {
            let writes = &mut self.writes[frame.0 as usize];
            *writes = writes.saturating_add(1);
        }
        if B::WANTS_OWNERS {
            self.owner[frame.0 as usize] = self.present;
        }
    }

    #[inline(always)]
    fn written_page<B: Back>(&self, frame: Frame, page: Page, why: Why) -> Written {
        Written {
            page,
            why,
            writes: if B::WANTS_COUNTS { self.writes[frame.0 as usize] } else { 0 },
            owner: if B::WANTS_OWNERS { self.owner[frame.0 as usize] } else { Owner::UNKNOWN },
        }
    }
}

/// A page cache of a fixed number of frames under a policy.
pub struct PageCache<P> {
    frames: Frames,
    belongings: Belongings,
    free: Vec<Frame>,
    victims: Victims,
    cluster: Vec<Page>,
    /// A write miss that covers only a part of its page first reads the page (`--write-miss read`).
    write_miss_reads: bool,
    policy: P,
}

impl<P: Policy> PageCache<P> {
    /// Returns an empty cache in front of a `B`, for a trace of `pages` pages. It has at most as
    /// many frames as there are pages; `policy` was built for the same numbers.
    pub fn new<B: Back>(policy: P, pages: u32, frames: u32, write_miss_reads: bool) -> Self {
        let slots = frames.min(pages);
        Self {
            frames: Frames::new(pages, slots, P::WANTS_ADDRESSES),
            belongings: Belongings::new::<B>(slots),
            // `pop` takes from the end, so frame 0 is used first.
            free: (0..slots).rev().map(Frame).collect(),
            victims: Victims::default(),
            cluster: Vec::new(),
            write_miss_reads,
            policy,
        }
    }

    /// Returns the view that the policy has.
    pub fn frames(&self) -> &Frames {
        &self.frames
    }

    /// Gives the page a frame, which its policy does not order yet.
    #[inline(always)]
    fn take_frame<B: Back>(&mut self, access: &Access, back: &mut B) -> Frame {
        let frame = match self.free.pop() {
            Some(frame) => frame,
            None => {
                self.evict(Some(access), Why::Evict, back);
                self.free.pop().expect("a policy evicts at least one frame")
            }
        };
        self.frames.page[frame.0 as usize] = access.page.0;
        self.frames.table[access.page.0 as usize] = frame.0;
        frame
    }

    /// Reads an absent page that no access asked for. `awaited`: an application waits for the
    /// request that it is part of.
    pub fn prefetch<B: Back>(&mut self, page: Page, awaited: bool, owner: Owner, back: &mut B) {
        let access = Access::new(page, Op::Read);
        let frame = self.take_frame(&access, back);
        match awaited {
            true => back.read(page, owner),
            false => back.read_ahead(page, owner),
        };
        self.belongings.entered(frame, page, back);
        self.order(frame, &access, back);
        self.deliver_moves(back);
    }

    /// Lets the policy see a prefetched page as one that comes in with this access.
    pub fn come_again<B: Back>(&mut self, access: &Access, back: &mut B) {
        if let Some(frame) = self.frames.frame(access.page) {
            self.policy.remove(frame, &self.frames);
            self.order(frame, access, back);
        }
    }

    /// Passes a page that has a frame to the policy.
    #[inline(always)]
    fn order<B: Back>(&mut self, frame: Frame, access: &Access, back: &mut B) {
        self.policy.insert(frame, access);
        if P::WANTS_ADDRESSES {
            self.frames.address[frame.0 as usize] = back.address(access.page);
            self.policy.moved(frame, None, &self.frames);
        }
    }

    #[inline(never)]
    fn miss<B: Back>(&mut self, access: &Access, partial: bool, back: &mut B) {
        let frame = self.take_frame(access, back);
        if access.op == Op::Read || (partial && self.write_miss_reads) {
            back.read(access.page, self.belongings.present);
        }
        self.belongings.entered(frame, access.page, back);
        if B::WANTS_DIRTIED && access.op == Op::Write {
            back.dirtied(access.page);
        }
        self.order(frame, access, back);
        self.deliver_moves(back);
        if access.op == Op::Write {
            self.belongings.written::<B>(frame);
            self.frames.table[access.page.0 as usize] |= DIRTY;
        }
    }

    #[inline(always)]
    fn evict<B: Back>(&mut self, incoming: Option<&Access>, why: Why, back: &mut B) {
        self.policy.evict(incoming, &self.frames, &mut self.victims);
        if back.clusters() && why == Why::Evict {
            self.write_clusters(back);
        }
        let Self { frames, belongings, free, victims, .. } = self;
        for frame in victims.0.drain(..) {
            let page = std::mem::replace(&mut frames.page[frame.0 as usize], NONE);
            assert!(page != NONE, "a policy evicts a frame that is in use");
            if std::mem::replace(&mut frames.table[page as usize], NONE) & DIRTY != 0 {
                back.write(belongings.written_page::<B>(frame, Page(page), why));
            }
            free.push(frame);
        }
        // Moves are delivered after the victims left: the policy no longer orders a pending victim.
        self.deliver_moves(back);
    }

    /// Writes the dirty victims, each with the dirty pages of its cluster. They all become clean;
    /// the victims leave afterwards.
    #[inline(never)]
    fn write_clusters<B: Back>(&mut self, back: &mut B) {
        let mut cluster = std::mem::take(&mut self.cluster);
        for n in 0..self.victims.0.len() {
            let victim = self.frames.page(self.victims.0[n]);
            if !self.is_dirty(victim) {
                continue;
            }
            back.cluster(victim, &mut cluster);
            for page in cluster.drain(..) {
                let entry = &mut self.frames.table[page.0 as usize];
                assert!(*entry != NONE && *entry & DIRTY != 0, "a cluster is of dirty pages");
                *entry &= !DIRTY;
                let frame = Frame(*entry);
                // The policy has no victim in its order any more.
                if !self.victims.0.contains(&frame) {
                    self.policy.cleaned(frame);
                }
                back.write(self.belongings.written_page::<B>(frame, page, Why::Evict));
            }
        }
        self.cluster = cluster;
    }

    /// Takes pages out of the cache and out of its policy. `left` gets the dirty bit of each page
    /// that the cache held.
    fn remove(&mut self, pages: Range<u32>, mut left: impl FnMut(bool)) {
        for page in pages {
            match self.frames.frame(Page(page)) {
                Some(frame) => {
                    self.policy.remove(frame, &self.frames);
                    self.frames.page[frame.0 as usize] = NONE;
                    let entry = std::mem::replace(&mut self.frames.table[page as usize], NONE);
                    left(entry & DIRTY != 0);
                    self.free.push(frame);
                }
                None => self.policy.forget(Page(page)),
            }
        }
    }

    /// Passes new addresses of the cached pages that may have moved to the policy.
    #[inline(always)]
    fn deliver_moves<B: Back>(&mut self, back: &mut B) {
        if !P::WANTS_ADDRESSES {
            return;
        }
        while let Some(pages) = back.poll_moved() {
            for page in pages.map(Page) {
                if let Some(frame) = self.frames.frame(page) {
                    let to = back.address(page);
                    let from = std::mem::replace(&mut self.frames.address[frame.0 as usize], to);
                    if from != to {
                        self.policy.moved(frame, Some(from), &self.frames);
                    }
                }
            }
        }
    }
}

impl<P: Policy> Cache for PageCache<P> {
    const OFFLINE: bool = P::OFFLINE;
    const FOLIOS: bool = true;

    #[inline(always)]
    fn access<B: Back>(&mut self, mut access: Access, details: Details, back: &mut B) -> bool {
        if B::WANTS_OWNERS {
            self.belongings.present = details.owner;
        }
        let entry = self.frames.table[access.page.0 as usize];
        if entry == NONE {
            // A copy: only a miss needs the access in memory.
            let missed = access;
            self.miss(&missed, details.partial, back);
            return false;
        }
        access.was_dirty = entry & DIRTY != 0;
        let frame = Frame(entry & !DIRTY);
        self.policy.hit(frame, &access);
        if access.op == Op::Write {
            self.belongings.written::<B>(frame);
            self.frames.table[access.page.0 as usize] = entry | DIRTY;
            if B::WANTS_DIRTIED && !access.was_dirty {
                back.dirtied(access.page);
                self.deliver_moves(back);
            }
        }
        true
    }

    // The table of a trace with millions of pages does not fit into the near caches, and the branch
    // on a hit is hard to predict. Without prefetching, each access waits for memory.
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

    #[inline(always)]
    fn next_ahead(&self, page: Page) {
        // An absent page gives the number of no frame: a branch would often be mispredicted.
        self.policy.expect_move(Frame(self.frames.table[page.0 as usize] & !DIRTY));
    }

    fn drop_pages<B: Back>(&mut self, pages: Range<u32>, back: &mut B) {
        self.remove(pages.clone(), |was_dirty| back.dropped(was_dirty));
        back.free(pages);
    }

    fn direct<B: Back>(&mut self, pages: Range<u32>, op: Op, owner: Owner, back: &mut B) {
        self.sync(pages.clone(), Why::Direct, back);
        back.submit();
        if op == Op::Write {
            self.remove(pages.clone(), |was_dirty| assert!(!was_dirty, "they were written"));
        }
        super::past_the_cache(pages, op, owner, back);
        self.deliver_moves(back);
    }

    fn sync<B: Back>(&mut self, pages: Range<u32>, why: Why, back: &mut B) {
        for page in pages.map(Page) {
            if self.is_dirty(page) {
                let entry = &mut self.frames.table[page.0 as usize];
                *entry &= !DIRTY;
                let frame = Frame(*entry);
                self.policy.cleaned(frame);
                back.write(self.belongings.written_page::<B>(frame, page, why));
                self.deliver_moves(back);
            }
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
        self.frames.table.iter().filter(|entry| **entry != NONE && **entry & DIRTY != 0).count()
            as u64
    }

    fn pages(&self) -> u64 {
        (self.frames.page.len() - self.free.len()) as u64
    }

    fn check(&self) {
        let Frames { table, page, .. } = &self.frames;
        let used = page.iter().filter(|page| **page != NONE).count();
        assert_eq!(used + self.free.len(), page.len(), "a frame is in use or free");
        assert_eq!(
            used,
            table.iter().filter(|frame| **frame != NONE).count(),
            "table and frames agree"
        );
        for (frame, page) in page.iter().enumerate() {
            if *page != NONE {
                assert_eq!(table[*page as usize] & !DIRTY, frame as u32, "table and frames agree");
            }
        }
        self.policy.check(&self.frames);
    }
}
