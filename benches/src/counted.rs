//! A counting allocator: the memory that the program has allocated.
#![allow(unsafe_code, reason = "an allocator is unsafe to implement")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

#[global_allocator]
static COUNTED: Counted = Counted;

static BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counted;

impl Counted {
    fn took(pointer: *mut u8, bytes: usize) -> *mut u8 {
        if !pointer.is_null() {
            PEAK.fetch_max(BYTES.fetch_add(bytes, Relaxed) + bytes, Relaxed);
        }
        pointer
    }
}

// SAFETY: every call is passed to the system's allocator unchanged, and so is its result.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        Self::took(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        Self::took(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as above.
        let moved = Self::took(unsafe { System.realloc(pointer, layout, bytes) }, bytes);
        if !moved.is_null() {
            BYTES.fetch_sub(layout.size(), Relaxed);
        }
        moved
    }
}

/// Runs `work` and returns its result, and the peak of bytes allocated beyond those allocated
/// before. One thread at a time.
pub(crate) fn peak_bytes<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = BYTES.load(Relaxed);
    PEAK.store(before, Relaxed);
    let result = work();
    (result, PEAK.load(Relaxed) - before)
}
