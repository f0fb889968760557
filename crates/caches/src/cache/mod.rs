//! The middle of a system: the pages held in memory.
//!
//! A [`PageCache`] orders them by a replacement policy and writes dirty ones to its back. A cache
//! of another kind replaces both: it may keep pages in non-volatile memory and make them durable
//! there ([`Cache::DURABLE`]).

use crate::{
    back::{Back, Why, Written},
    lines::{Lines, Traffic},
    trace::{Bytes, Owner},
};
use flashsift_events::page::{Access, Op, Page};
use std::ops::Range;

mod page_cache;

pub use page_cache::{Frames, PageCache, Victims};

/// The largest cache, in frames: 1 TiB of pages. Ghost lists of twice as many pages still have
/// 32-bit numbers.
pub const FRAMES_MAX: u32 = 1 << 28;

/// Facts about an access that no policy uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Details {
    /// It is a write that covers only a part of the page.
    pub partial: bool,
    /// The bytes of the page that it covers; the whole page unless [`Cache::WANTS_BYTES`].
    pub bytes: Bytes,
    /// Process and file; unknown unless [`Back::WANTS_OWNERS`].
    pub owner: Owner,
}

impl Details {
    /// An access to a whole page by an unknown process.
    pub const WHOLE: Self = Self { partial: false, bytes: Bytes::PAGE, owner: Owner::UNKNOWN };
}

/// Takes page accesses, sends what must reach storage to a [`Back`].
pub trait Cache {
    /// Whether [`Access::next_use`] has to be filled in.
    const OFFLINE: bool;
    /// Whether [`Details::bytes`] has to be filled in. The trace has the table of byte extents.
    const WANTS_BYTES: bool = false;
    /// The cache makes pages durable itself. It then gets each sync of the trace as one call of
    /// [`Cache::sync`], whatever the mode of write-back.
    const DURABLE: bool = false;
    /// The cache holds folios, as the kernel's page cache does: a store through a mapping makes all
    /// pages of its folio dirty. Memory that processes store to directly has no folios.
    const FOLIOS: bool = false;
    /// Accesses one page. Returns whether it was a hit.
    fn access<B: Back>(&mut self, access: Access, details: Details, back: &mut B) -> bool;
    /// Prefetches the page's table entry, because an access will follow some steps from now.
    /// Changes no state.
    fn far_ahead(&self, _: Page) {}
    /// Prefetches the data that an access to this page touches, because one will follow soon.
    /// Changes no state.
    fn near_ahead(&self, _: Page) {}
    /// Prefetches what the data prefetched before refers to, because an access will follow at once.
    /// Changes no state.
    fn next_ahead(&self, _: Page) {}
    /// Drops pages that are truncated or deleted, without writing dirty ones.
    fn drop_pages<B: Back>(&mut self, pages: Range<u32>, back: &mut B);
    /// Reads or writes pages past the cache (`O_DIRECT`). Dirty ones among them are written first.
    /// After a write the cache holds none of them.
    fn direct<B: Back>(&mut self, pages: Range<u32>, op: Op, owner: Owner, back: &mut B);
    /// Makes the dirty pages of the range durable. They stay in the cache and become clean: they
    /// are written to the back in ascending order or, by a cache that is [`Cache::DURABLE`], kept
    /// in non-volatile memory of its own. Clean pages and absent pages stay as they are.
    fn sync<B: Back>(&mut self, pages: Range<u32>, why: Why, back: &mut B);
    /// Writes everything that storage lacks, in the cache's own order, at the end of a trace.
    fn drain<B: Back>(&mut self, back: &mut B);
    /// Returns whether the cache holds the page.
    fn holds(&self, page: Page) -> bool;
    /// Returns whether the cache holds the page and it is dirty: written since it was last durable.
    fn is_dirty(&self, page: Page) -> bool;
    /// Returns the number of dirty pages in the cache.
    fn dirty_pages(&self) -> u64;
    /// Returns the number of pages in the cache.
    fn pages(&self) -> u64;
    /// Returns the lines of memory accessed until now, from a cache that counts them.
    fn lines(&self) -> Lines {
        Lines::NONE
    }
    /// Returns the accesses to memory until now, from a cache that counts them.
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
    /// Re-derives every invariant.
    ///
    /// # Panics
    /// If one of them is broken.
    fn check(&self);
}

/// Reads or writes pages past the cache (`O_DIRECT`), which holds no newer version of them.
pub fn past_the_cache<B: Back>(pages: Range<u32>, op: Op, owner: Owner, back: &mut B) {
    if op == Op::Read {
        for page in pages.map(Page) {
            back.read(page, owner);
        }
        return;
    }
    // The file system places the whole request at once.
    if B::WANTS_DIRTIED {
        pages.clone().map(Page).for_each(|page| back.dirtied(page));
    }
    for page in pages.map(Page) {
        back.write(Written { page, why: Why::Direct, writes: 0, owner });
    }
}
