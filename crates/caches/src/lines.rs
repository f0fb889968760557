//! Lines of memory that were accessed.

use std::ops::{Add, Sub};

/// Numbers of accesses to lines of 64 bytes, by medium and direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    /// Lines of DRAM.
    pub dram: LineCounts,
    /// Lines of non-volatile memory; each write is durable when it returns.
    pub nvm: LineCounts,
}

/// Reads and writes of one medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// Lines read.
    pub read: u64,
    /// Lines written.
    pub written: u64,
}

impl Lines {
    /// No accesses.
    pub const NONE: Self =
        Self { dram: LineCounts { read: 0, written: 0 }, nvm: LineCounts { read: 0, written: 0 } };
}

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
    /// Returns the accesses to lines.
    #[inline]
    pub fn lines(&self) -> Lines {
        Lines {
            dram: LineCounts { read: self.dram_read_lines, written: self.dram_written_lines },
            nvm: LineCounts { read: self.nvm_read_lines, written: self.nvm_written_lines },
        }
    }
}

impl Add for Traffic {
    type Output = Self;

    #[inline]
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

impl Add for LineCounts {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self { read: self.read + other.read, written: self.written + other.written }
    }
}

impl Sub for LineCounts {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        Self { read: self.read - other.read, written: self.written - other.written }
    }
}

impl Add for Lines {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self { dram: self.dram + other.dram, nvm: self.nvm + other.nvm }
    }
}

impl Sub for Lines {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        Self { dram: self.dram - other.dram, nvm: self.nvm - other.nvm }
    }
}
