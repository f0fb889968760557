//! The effects of a cache on its memory.

use flashsift_caches::{
    lines::{Lines, Traffic},
    trace::Bytes,
};
use flashsift_events::page::{Frame, Page};

/// A copy of a page: in DRAM or in non-volatile memory, each with its own frame numbers from 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageCopy {
    /// In DRAM; a power cut loses it.
    Dram(Frame),
    /// In non-volatile memory.
    Nvm(Frame),
}

/// Memory that a cache commands: [`Counting`](super::Counting) counts the accesses to it, and
/// another implementation may hold content.
///
/// A copy in non-volatile memory is durable, and found after a power cut, from
/// [`Memory::publish`] until [`Memory::erase`] returns. Both return when their effect is durable.
pub trait Memory {
    /// An application reads these bytes of a copy.
    fn read(&mut self, at: PageCopy, bytes: Bytes);
    /// An application writes these bytes of a copy that is not durable.
    fn write(&mut self, at: PageCopy, bytes: Bytes);
    /// The page that the back read last arrives.
    fn fetched(&mut self, to: PageCopy) {
        let _ = to;
    }
    /// A page arrives that was not read, because a write covers it or its other bytes are unknown.
    fn blank(&mut self, to: PageCopy) {
        let _ = to;
    }
    /// Copies a page. The new copy is not durable.
    fn copy(&mut self, from: PageCopy, to: PageCopy);
    /// Makes the copy in a frame durable. It replaces an older durable copy of the same page, which
    /// is erased afterwards.
    fn publish(&mut self, frame: Frame, page: Page);
    /// Copies these bytes from DRAM into a durable copy, so that a power cut leaves all of them or
    /// none. `log` is a frame without a page.
    fn update_bytes(&mut self, from: Frame, to: Frame, bytes: Bytes, log: Frame);
    /// Ends the durability of a copy. Its frame can then be used again.
    fn erase(&mut self, frame: Frame);
    /// The copy is about to be written to the back.
    fn send(&mut self, from: PageCopy) {
        let _ = from;
    }
    /// Prefetches what a write to a frame of non-volatile memory touches. Changes no state.
    #[inline(always)]
    fn prefetch(&self, frame: Frame) {
        let _ = frame;
    }
    /// Returns the lines accessed until now, from memory that counts them.
    fn lines(&self) -> Lines {
        Lines::NONE
    }
    /// Returns the accesses until now, from memory that counts them.
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
}
