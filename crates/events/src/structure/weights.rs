//! The sizes of cached objects.

use crate::page::{Access, Page};

/// The share of a cache's capacity that each page takes: one, or with `SIZED` the bytes of an
/// object. A policy that counts in these orders pages and objects by one rule. Without `SIZED` the
/// type holds nothing.
pub struct Weights<const SIZED: bool>(Vec<u32>);

impl<const SIZED: bool> Weights<SIZED> {
    /// Returns weights of this many pages, or objects.
    pub fn new(pages: u32) -> Self {
        Self(vec![0; if SIZED { pages as usize } else { 0 }])
    }

    /// Keeps the size that an object has as it enters the cache.
    #[inline(always)]
    pub fn set(&mut self, access: &Access) {
        if SIZED {
            self.0[access.page.0 as usize] = access.bytes;
        }
    }

    /// Returns the weight of a page that [`Self::set`] was called for. `page` is not called where
    /// all weigh the same.
    #[inline(always)]
    pub fn of(&self, page: impl FnOnce() -> Page) -> u64 {
        if SIZED { u64::from(self.0[page().0 as usize]) } else { 1 }
    }

    /// Returns the weight of a page that comes in.
    #[inline(always)]
    pub fn incoming(access: &Access) -> u64 {
        if SIZED { u64::from(access.bytes) } else { 1 }
    }
}
