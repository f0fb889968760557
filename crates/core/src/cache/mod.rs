//! The middle of a system: what is held in memory. A page cache with a policy; later also the NVM caches, which
//! replace the policy.

use crate::{
    back::Back,
    page::{Access, Page},
};
use std::ops::Range;

mod page_cache;

pub use page_cache::{Frames, PageCache, Victims};

/// Takes page accesses, sends what must reach storage to a [`Back`].
pub trait Cache {
    /// Whether [`Access::next_use`] has to be filled in.
    const OFFLINE: bool;
    /// One access. `partial`: it is a write that covers only a part of the page. Returns whether it hit.
    fn access<B: Back>(&mut self, access: Access, partial: bool, back: &mut B) -> bool;
    /// This page will be accessed some steps from now: have at hand where it is. Changes nothing.
    fn far_ahead(&self, _: Page) {}
    /// This page will be accessed soon: have at hand what its access touches. Changes nothing.
    fn near_ahead(&self, _: Page) {}
    /// These pages are truncated or deleted: gone, dirty ones unwritten.
    fn drop_pages<B: Back>(&mut self, pages: Range<u32>, back: &mut B);
    /// A dirty page was written back and stays: it is clean from now on. One that is clean or not held stays so.
    fn clean(&mut self, page: Page);
    /// The end of a trace, when everything dirty is to be written, in the cache's own order.
    fn drain<B: Back>(&mut self, back: &mut B);
    /// Whether the page is held.
    fn holds(&self, page: Page) -> bool;
    /// Whether the page is held and dirty.
    fn is_dirty(&self, page: Page) -> bool;
    /// Dirty pages held.
    fn dirty_pages(&self) -> u64;
    /// Pages held.
    fn pages(&self) -> u64;
    /// Re-derives every invariant; panics where one is broken.
    fn check(&self);
}
