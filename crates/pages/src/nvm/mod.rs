//! Non-volatile memory beside DRAM: what it is asked, and what that costs.

mod counting;
#[cfg(any(test, feature = "naive"))]
pub mod durable;
#[cfg(any(test, feature = "naive"))]
pub mod medium;
mod memory;
#[cfg(any(test, feature = "naive"))]
pub mod power_cuts;
pub mod profile;
#[cfg(any(test, feature = "naive"))]
pub mod store;

pub use counting::Counting;
pub use memory::{Memory, PageCopy};

use flashsift_caches::{
    lines::{LineCounts, Traffic},
    trace::{Bytes, StepKind, Trace},
};
use flashsift_events::page::Page;

/// Bytes of a line, the unit in which memory is accessed.
pub const LINE_BYTES: u64 = 64;

/// Lines of a page.
pub const PAGE_LINES: u64 = flashsift_events::page::PAGE_BYTES / LINE_BYTES;

/// Returns the accesses of applications to the DRAM of a page cache, which serves each of them, hit
/// or miss. Without the trace's table of bytes, each one touches a whole page.
pub fn of_page_cache(trace: &Trace) -> Traffic {
    let mut traffic = Traffic::default();
    for n in 0..trace.steps().len() {
        let LineCounts { read, written } = of_step(trace, n);
        traffic.dram_read_lines += read;
        traffic.dram_written_lines += written;
    }
    traffic
}

/// Returns the lines that applications access in step `n` of a trace.
pub(crate) fn of_step(trace: &Trace, n: usize) -> LineCounts {
    let step = trace.steps()[n];
    let mut counts = LineCounts::default();
    let sum = match step.kind() {
        StepKind::Read => &mut counts.read,
        StepKind::Write | StepKind::WriteSync => &mut counts.written,
        _ => return counts,
    };
    let has_bytes = trace.tables().bytes;
    for page in step.range() {
        let bytes = if has_bytes { trace.bytes(n, Page(page)) } else { Bytes::PAGE };
        *sum += lines(bytes.from.into(), bytes.count().into());
    }
    counts
}

/// Returns the number of lines that `len` bytes from `offset` on touch.
pub fn lines(offset: u64, len: u64) -> u64 {
    if len == 0 { 0 } else { (offset + len - 1) / LINE_BYTES - offset / LINE_BYTES + 1 }
}
