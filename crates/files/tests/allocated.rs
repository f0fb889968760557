//! Counts what a thread allocates. The harness has threads of its own, so each test sees its own
//! memory alone.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

struct Counting;

#[derive(Clone, Copy)]
struct Counts {
    held: i64,
    peak: i64,
    allocated: u64,
}

thread_local! {
    static COUNTS: Cell<Counts> = const { Cell::new(Counts { held: 0, peak: 0, allocated: 0 }) };
}

/// Adds bytes that are allocated (or freed, if negative).
fn add(bytes: i64) {
    let Counts { held, peak, allocated } = COUNTS.get();
    let held = held + bytes;
    let allocated = allocated.wrapping_add_signed(bytes.max(0));
    COUNTS.set(Counts { held, peak: peak.max(held), allocated });
}

#[allow(unsafe_code, reason = "an allocator cannot be had without")]
// SAFETY: all is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as i64);
        // SAFETY: the caller keeps what `GlobalAlloc::alloc` asks.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        add(-(layout.size() as i64));
        // SAFETY: the caller keeps what `GlobalAlloc::dealloc` asks.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // Large arrays grow in place: the kernel moves pages without copying them.
        add(bytes as i64 - layout.size() as i64);
        // SAFETY: the caller keeps what `GlobalAlloc::realloc` asks.
        unsafe { System.realloc(at, layout, bytes) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes that this thread has allocated and not freed.
pub(crate) fn held_bytes() -> i64 {
    COUNTS.get().held
}

/// Bytes that this thread has ever allocated.
pub(crate) fn allocated_bytes() -> u64 {
    COUNTS.get().allocated
}

/// The most bytes that this thread holds at once while `run` runs, beyond those held before.
pub(crate) fn peak_bytes(run: impl FnOnce()) -> u64 {
    let before = COUNTS.get();
    COUNTS.set(Counts { peak: before.held, ..before });
    run();
    (COUNTS.get().peak - before.held) as u64
}
