//! Lines of memory that were accessed.

use super::Traffic;
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

impl Add for LineCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { read: self.read + other.read, written: self.written + other.written }
    }
}

impl Sub for LineCounts {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { read: self.read - other.read, written: self.written - other.written }
    }
}

impl Add for Lines {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { dram: self.dram + other.dram, nvm: self.nvm + other.nvm }
    }
}

impl Sub for Lines {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self { dram: self.dram - other.dram, nvm: self.nvm - other.nvm }
    }
}
