//! Non-volatile memory beside DRAM: what it is asked, and what that costs.

mod counting;
#[cfg(any(test, feature = "naive"))]
pub mod durable;
#[cfg(any(test, feature = "naive"))]
pub mod medium;
mod memory;
#[cfg(any(test, feature = "naive"))]
pub mod power_cuts;
#[cfg(any(test, feature = "naive"))]
pub mod store;

pub use counting::Counting;
pub use memory::{Memory, Place};

/// Bytes of a line, the unit in which memory is accessed.
pub const LINE_BYTES: u64 = 64;

/// Lines of a page.
pub const PAGE_LINES: u64 = crate::page::PAGE_BYTES / LINE_BYTES;

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

/// Returns the number of lines that `len` bytes from `offset` on touch.
pub fn lines(offset: u64, len: u64) -> u64 {
    if len == 0 { 0 } else { (offset + len - 1) / LINE_BYTES - offset / LINE_BYTES + 1 }
}
