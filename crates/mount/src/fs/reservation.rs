//! That everything in RAM has a place on flash.
//!
//! A write that RAM takes and flash has no room for would be lost later. So space is asked for before it is promised: in
//! portions, since asking costs a system call.

use super::store::Store;
use parking_lot::Mutex;
use rustix::io::{Errno, Result};
use std::os::fd::BorrowedFd;

/// Taken at once, at most, bytes.
const PORTION_BYTES: u64 = 16 << 20;
/// And files.
const PORTION_FILES: u64 = 4096;

/// A file takes whole blocks, in RAM as on flash.
const BLOCK_BYTES: u64 = 4096;
/// What F2FS takes of the room for bytes: for each file a block, its inode, and a part of one for its name; for so many blocks, one that says
/// where they are; and what directories need that grow.
const F2FS_FILE_BYTES: u64 = BLOCK_BYTES + BLOCK_BYTES / 4;
const F2FS_BYTES_OF_ONE: u64 = 512;
const F2FS_DIRECTORIES_BYTES: u64 = 1 << 20;

/// What may be written to RAM before flash is asked again.
#[derive(Debug)]
pub(crate) struct Reservation {
    bytes: Mutex<u64>,
    files: Mutex<u64>,
    f2fs: bool,
}

impl Reservation {
    /// On the file system of this directory.
    pub(crate) fn new(backing: BorrowedFd<'_>) -> Result<Self> {
        const F2FS: u32 = 0xf2f5_2010;
        let f2fs = rustix::fs::fstatfs(backing)?.f_type as u32 == F2FS;
        Ok(Self { bytes: Mutex::default(), files: Mutex::default(), f2fs })
    }

    /// What files in RAM will take of the room for bytes.
    pub(crate) fn needed(&self, files: u64, bytes: u64) -> u64 {
        if self.f2fs && files > 0 {
            bytes + bytes / F2FS_BYTES_OF_ONE + files * F2FS_FILE_BYTES + F2FS_DIRECTORIES_BYTES
        } else {
            bytes
        }
    }

    /// So many bytes more will be in RAM, at most; or there is no room for them on flash.
    pub(crate) fn take(&self, bytes: u64, backing: BorrowedFd<'_>, store: &Store) -> Result<()> {
        let bytes = bytes.next_multiple_of(BLOCK_BYTES);
        let mut left = self.bytes.lock();
        if *left < bytes {
            let flash = rustix::fs::fstatvfs(backing)?;
            let needed = self.needed(store.files(), store.usage()?.0);
            let free = (flash.f_bavail * flash.f_frsize).saturating_sub(needed);
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

    /// One more file will be in RAM, beside so many; or flash has no inode for it.
    pub(crate) fn take_file(&self, in_ram: u64, backing: BorrowedFd<'_>, store: &Store) -> Result<()> {
        if self.f2fs {
            self.take(F2FS_FILE_BYTES, backing, store)?;
        }
        let mut left = self.files.lock();
        if *left == 0 {
            *left = PORTION_FILES.min(spare_files(in_ram, backing)? / 2).max(1);
        }
        *left -= 1;
        Ok(())
    }
}

/// Inodes that flash has left for what is made there at once: none of those that files in RAM will need.
pub(crate) fn spare_files(in_ram: u64, backing: BorrowedFd<'_>) -> Result<u64> {
    let flash = rustix::fs::fstatvfs(backing)?;
    let spare = match flash.f_files {
        // Some file systems make inodes as they need them.
        0 => u64::MAX,
        // One is needed where files are copied to.
        _ => flash.f_ffree.saturating_sub(in_ram + 1),
    };
    if spare == 0 { Err(Errno::NOSPC) } else { Ok(spare) }
}
