//! What is written: bytes that no device can compress, and in each sector who wrote it.
#![allow(unsafe_code, reason = "direct I/O needs buffers that are aligned and stay in place")]

use crate::{Error, Request};
use rand::{Rng, SeedableRng};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::{ptr, slice};

/// Of these each has a stamp.
pub const SECTOR_BYTES: u64 = 512;

/// What the first 16 bytes of a written sector say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// The number of the request that wrote it; 0 is what a file was filled with.
    pub number: u64,
    /// Which sector of the target it was written to.
    pub sector: u64,
}

impl Stamp {
    /// What a sector says.
    pub fn of(sector: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(sector.get(at..at + 8)?.try_into().ok()?));
        Some(Self { number: word(0)?, sector: word(8)? })
    }
}

/// A buffer a slot, aligned to a page.
#[derive(Debug)]
pub(super) struct Buffers {
    memory: *mut u8,
    slot_bytes: usize,
    slots: u32,
}

impl Buffers {
    /// For pieces of up to `slot_bytes`.
    pub(super) fn new(slots: u32, slot_bytes: u64) -> Result<Self, Error> {
        let slot_bytes = slot_bytes.next_multiple_of(4096).max(4096) as usize;
        let bytes = slot_bytes * slots as usize;
        // Safety: fresh memory of nobody else's.
        let memory = unsafe {
            mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
        };
        let memory = memory.map_err(|e| Error::system(format!("{bytes} bytes for buffers"), e))?.cast::<u8>();
        let mut buffers = Self { memory, slot_bytes, slots };
        let mut random = rand_pcg::Pcg64::seed_from_u64(0xf1a5);
        for slot in 0..slots {
            random.fill_bytes(buffers.slot(slot));
        }
        Ok(buffers)
    }

    /// All of a slot's.
    pub(super) fn slot(&mut self, slot: u32) -> &mut [u8] {
        assert!(slot < self.slots, "a slot is one of the queue's");
        // Safety: inside the mapping; slots do not overlap; the kernel uses one only while its request is in flight,
        // and meanwhile nobody asks for it.
        unsafe {
            slice::from_raw_parts_mut(self.memory.add(slot as usize * self.slot_bytes), self.slot_bytes)
        }
    }

    /// What a request reads into or writes; a write's sectors say so.
    pub(super) fn prepared(&mut self, slot: u32, request: &Request) -> &mut [u8] {
        let buffer = &mut self.slot(slot)[..request.len as usize];
        if request.op.changes() {
            let first = request.offset / SECTOR_BYTES;
            for (n, sector) in buffer.chunks_mut(SECTOR_BYTES as usize).enumerate() {
                if let Some(stamp) = sector.get_mut(..16) {
                    stamp[..8].copy_from_slice(&request.number.to_le_bytes());
                    stamp[8..].copy_from_slice(&(first + n as u64).to_le_bytes());
                }
            }
        }
        buffer
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        // Safety: mapped by `new`, and no request is in flight any more: targets end those first.
        let _ = unsafe { munmap(self.memory.cast(), self.slot_bytes * self.slots as usize) };
    }
}
