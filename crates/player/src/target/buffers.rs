//! The written data: bytes that no device can compress, and in each sector a stamp of the request
//! that wrote it.
#![allow(unsafe_code, reason = "direct I/O needs buffers that are aligned and stay in place")]

use crate::{Error, Request};
use rand::{Rng, SeedableRng};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::{ptr, slice};

/// Each sector of this size has a stamp.
pub const SECTOR_BYTES: u64 = 512;

/// The content of the first 16 bytes of a written sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Number of the request that wrote the sector; 0 if it was filled before the replay.
    pub number: u64,
    /// Number of the sector in the target.
    pub sector: u64,
}

impl Stamp {
    /// Reads the stamp of a sector; `None` if it is too short.
    pub fn new(sector: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(sector.get(at..at + 8)?.try_into().ok()?));
        Some(Self { number: word(0)?, sector: word(8)? })
    }
}

/// One buffer for each slot, aligned to a page.
#[derive(Debug)]
pub(super) struct Buffers {
    memory: *mut u8,
    slot_bytes: usize,
    slots: u32,
}

impl Buffers {
    /// Maps buffers for pieces of up to `slot_bytes`.
    pub(super) fn new(slots: u32, slot_bytes: u64) -> Result<Self, Error> {
        let slot_bytes = slot_bytes.next_multiple_of(4096).max(4096) as usize;
        let bytes = slot_bytes * slots as usize;
        // Safety: the mapping is new and has no other users.
        let memory = unsafe {
            mmap_anonymous(
                ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )
        };
        let memory = memory
            .map_err(|e| Error::system(format!("{bytes} bytes of memory for buffers"), e))?
            .cast::<u8>();
        let mut buffers = Self { memory, slot_bytes, slots };
        let mut random = rand_pcg::Pcg64::seed_from_u64(0xf1a5);
        for slot in 0..slots {
            random.fill_bytes(buffers.slot(slot));
        }
        Ok(buffers)
    }

    /// Returns the whole buffer of a slot.
    pub(super) fn slot(&mut self, slot: u32) -> &mut [u8] {
        assert!(slot < self.slots, "the slot is below the queue depth");
        // Safety: the range lies inside the mapping, and slots do not overlap. The kernel uses a
        // slot only while its request is in flight, and the slot is not requested from here
        // meanwhile.
        unsafe {
            slice::from_raw_parts_mut(
                self.memory.add(slot as usize * self.slot_bytes),
                self.slot_bytes,
            )
        }
    }

    /// Returns the buffer that a request reads into or writes from. A write's sectors are stamped.
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
        // Safety: mapped by `new`. Targets complete all requests before they drop their buffers.
        let _ = unsafe { munmap(self.memory.cast(), self.slot_bytes * self.slots as usize) };
    }
}
