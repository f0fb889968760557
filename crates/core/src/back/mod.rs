//! The end of a system: where pages come from and go to.

use crate::page::Page;
use std::ops::Range;

mod storage;

pub use storage::{DeviceCounts, Io, IoOp, Sink, Storage};

/// Why a page is written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It was dirty and had to leave the cache.
    Evict,
    /// It was time for all that is dirty.
    Periodic,
    /// Its file had been dirty for long.
    Expire,
    /// Too much was dirty, and its file was the oldest.
    Background,
    /// Somebody asked for it, and waits.
    Sync,
    /// It was dirty at the end of the trace.
    Drain,
}

/// Takes what a cache lets go of.
pub trait Back {
    /// A page is fetched.
    fn read(&mut self, page: Page);
    /// A dirty page is written back.
    fn write(&mut self, page: Page, why: Why);
    /// A cached page was truncated or deleted; `dirty`: unwritten.
    fn dropped(&mut self, dirty: bool);
    /// These pages no longer exist, cached or not.
    fn free(&mut self, pages: Range<u32>);
}
