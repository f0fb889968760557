//! Non-volatile memory beside DRAM: what it is asked, and what that costs.

mod counting;
#[cfg(any(test, feature = "naive"))]
pub mod durable;
mod lines;
#[cfg(any(test, feature = "naive"))]
pub mod medium;
mod memory;
#[cfg(any(test, feature = "naive"))]
pub mod power_cuts;
pub mod profile;
#[cfg(any(test, feature = "naive"))]
pub mod store;

pub use counting::Counting;
pub use lines::{LineCounts, Lines};
pub use memory::{Memory, PageCopy};

use crate::trace::{Bytes, StepKind, Trace};
use flashsift_events::page::Page;
use std::ops::Add;

/// Bytes of a line, the unit in which memory is accessed.
pub const LINE_BYTES: u64 = 64;

/// Lines of a page.
pub const PAGE_LINES: u64 = flashsift_events::page::PAGE_BYTES / LINE_BYTES;

/// Accesses to DRAM and non-volatile memory: those of applications, and copies between the two.
/// Transfers from and to the device are not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Lines of DRAM read.
    pub dram_read_lines: u64,
    /// Lines of DRAM written.
    pub dram_written_lines: u64,
    /// Lines of non-volatile memory read.
    pub nvm_read_lines: u64,
    /// Lines of non-volatile memory written, each as often as it was made durable.
    pub nvm_written_lines: u64,
    /// Reads of a page or a part of it in non-volatile memory.
    pub nvm_reads: u64,
    /// Writes of a page or a part of it in non-volatile memory.
    pub nvm_writes: u64,
    /// Lines that pages occupy in non-volatile memory.
    pub nvm_lines: u64,
    /// Writes of the line that was written most often.
    pub nvm_hottest_line_writes: u64,
    /// Pages that only non-volatile memory holds in their newest durable version, at the end.
    pub nvm_left: u64,
}

impl Traffic {
    /// Returns the accesses of applications to the DRAM of a page cache, which serves each of them,
    /// hit or miss. Without the trace's table of bytes, each one touches a whole page.
    pub(crate) fn of_page_cache(trace: &Trace) -> Self {
        let mut traffic = Self::default();
        for n in 0..trace.steps().len() {
            let LineCounts { read, written } = of_step(trace, n);
            traffic.dram_read_lines += read;
            traffic.dram_written_lines += written;
        }
        traffic
    }
}

impl Add for Traffic {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            dram_read_lines: self.dram_read_lines + other.dram_read_lines,
            dram_written_lines: self.dram_written_lines + other.dram_written_lines,
            nvm_read_lines: self.nvm_read_lines + other.nvm_read_lines,
            nvm_written_lines: self.nvm_written_lines + other.nvm_written_lines,
            nvm_reads: self.nvm_reads + other.nvm_reads,
            nvm_writes: self.nvm_writes + other.nvm_writes,
            nvm_lines: self.nvm_lines + other.nvm_lines,
            nvm_hottest_line_writes: self
                .nvm_hottest_line_writes
                .max(other.nvm_hottest_line_writes),
            nvm_left: self.nvm_left + other.nvm_left,
        }
    }
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
