//! Which pages a write buffer admits, and the order in which they leave it.

use crate::page::{Frame, Page};

/// The order of the pages in a write buffer. It knows them by their slots.
pub trait Order {
    /// A page is written back with this write count. Returns whether it goes to the buffer; one that
    /// is there already may also be refused, and leaves it.
    fn admits(&mut self, page: Page, writes: u32) -> bool;
    /// The page in this slot, new there or not, was flushed with this write count.
    fn flushed(&mut self, slot: Frame, writes: u32);
    /// The slot is empty now.
    fn remove(&mut self, slot: Frame);
    /// A page was truncated or deleted, in the buffer or not.
    fn removed(&mut self, _: Page) {}
    /// Returns the slot whose page leaves now; one is in use. `recent` are those of the two pages
    /// that the cache served last.
    fn victim(&mut self, recent: [Option<Frame>; 2]) -> Frame;
    /// Re-derives every invariant for a buffer in which so many slots are in use.
    ///
    /// # Panics
    /// If one of them is broken.
    fn check(&self, used: usize);
}
