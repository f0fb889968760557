//! Which pages a write buffer admits, and the order in which they leave it.

use flashsift_events::page::Frame;

/// The order of the pages in a write buffer. It knows them by their slots.
pub trait Order {
    /// Whether a page that is written back with this write count goes to the buffer.
    fn admits(&self, writes: u32) -> bool;
    /// The page in this slot, new there or not, was flushed with this write count.
    fn flushed(&mut self, slot: Frame, writes: u32);
    /// The slot is empty now.
    fn remove(&mut self, slot: Frame);
    /// Returns the slot whose page leaves next; one is in use. `recent` are those of the two pages
    /// that the cache served last.
    fn victim(&self, recent: [Option<Frame>; 2]) -> Frame;
    /// Re-derives every invariant for a buffer in which so many slots are in use.
    ///
    /// # Panics
    /// If one of them is broken.
    fn check(&self, used: usize);
}
