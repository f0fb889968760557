//! That everything in RAM has a place on flash.
//!
//! A write that RAM takes and flash has no room for would be lost later. So space is asked for before it is promised: in
//! portions, since asking costs a system call.

use crate::store::Store;
use parking_lot::Mutex;
use rustix::io::{Errno, Result};
use std::os::fd::BorrowedFd;

/// Taken at once, at most, bytes.
const PORTION_BYTES: u64 = 16 << 20;

/// What may be written to RAM before flash is asked again, bytes.
#[derive(Debug, Default)]
pub(crate) struct Room(Mutex<u64>);

impl Room {
    /// So many bytes more will be in RAM, at most; or there is no room for them on flash.
    pub(crate) fn take(&self, bytes: u64, backing: BorrowedFd<'_>, store: &Store) -> Result<()> {
        let mut left = self.0.lock();
        if *left < bytes {
            let flash = rustix::fs::fstatvfs(backing)?;
            let free = (flash.f_bavail * flash.f_frsize).saturating_sub(store.usage()?.0);
            if free < bytes {
                *left = 0;
                return Err(Errno::NOSPC);
            }
            // Others write to flash too: half of it can be promised.
            *left = bytes.max(PORTION_BYTES.min(free / 2));
        }
        *left -= bytes;
        Ok(())
    }
}
