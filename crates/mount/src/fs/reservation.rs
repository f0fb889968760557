//! Reservation of flash space for everything in RAM.
//!
//! A write that fits in RAM and not on flash would be lost later, so space is reserved before the
//! write is accepted. Reservations are made in portions, since each query of the free space costs a
//! system call.

use super::caller::User;
use super::store::Store;
use parking_lot::Mutex;
use rustix::fs::StatVfs;
use rustix::io::{Errno, Result};
use rustix::process::geteuid;
use std::os::fd::BorrowedFd;

/// Largest portion that one query of the free space reserves, bytes.
const PORTION_BYTES: u64 = 16 << 20;
/// Largest portion in files.
const PORTION_FILES: u64 = 4096;

/// A file takes whole blocks, in RAM as on flash.
const BLOCK_BYTES: u64 = 4096;
/// Space that F2FS needs besides the bytes: for each file a block, its inode, and a part of a block
/// for its name; for every group of blocks, one block with their addresses; and blocks for
/// directories that grow.
const F2FS_FILE_BYTES: u64 = BLOCK_BYTES + BLOCK_BYTES / 4;
const F2FS_BYTES_OF_ONE: u64 = 512;
const F2FS_DIRECTORIES_BYTES: u64 = 1 << 20;

/// Bytes that may be written to RAM before the free space of flash is queried again.
#[derive(Debug)]
pub(crate) struct Reservation {
    bytes: Mutex<u64>,
    files: Mutex<u64>,
    f2fs: bool,
}

impl Reservation {
    /// Creates an empty reservation on the file system of this directory.
    pub(crate) fn new(backing: BorrowedFd<'_>) -> Result<Self> {
        const F2FS: u32 = 0xf2f5_2010;
        let f2fs = rustix::fs::fstatfs(backing)?.f_type as u32 == F2FS;
        Ok(Self { bytes: Mutex::default(), files: Mutex::default(), f2fs })
    }

    /// Space on flash that files in RAM will need, bytes.
    pub(crate) fn needed(&self, files: u64, bytes: u64) -> u64 {
        if self.f2fs && files > 0 {
            bytes + bytes / F2FS_BYTES_OF_ONE + files * F2FS_FILE_BYTES + F2FS_DIRECTORIES_BYTES
        } else {
            bytes
        }
    }

    /// Reserves this many bytes for files in RAM, which this user adds.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if flash has no space for them that the user may use.
    pub(crate) fn take(
        &self,
        user: User,
        bytes: u64,
        backing: BorrowedFd<'_>,
        store: &Store,
    ) -> Result<()> {
        let bytes = bytes.next_multiple_of(BLOCK_BYTES);
        let mut left = self.bytes.lock();
        if *left < bytes {
            let flash = rustix::fs::fstatvfs(backing)?;
            let needed = self.needed(store.files(), store.usage()?.0);
            let free = (flash.f_bavail * flash.f_frsize).saturating_sub(needed);
            if free < bytes {
                *left = 0;
                let for_root = (free_for_root(&flash) * flash.f_frsize).saturating_sub(needed);
                return match user.may_use_reserved() && geteuid().is_root() && for_root >= bytes {
                    true => Ok(()),
                    false => Err(Errno::NOSPC),
                };
            }
            // Others write to flash too: half of it can be promised.
            *left = bytes.max(PORTION_BYTES.min(free / 2));
        }
        *left -= bytes;
        Ok(())
    }

    /// One more file will be in RAM, beside so many; or flash has no inode for it.
    pub(crate) fn take_file(
        &self,
        user: User,
        in_ram: u64,
        backing: BorrowedFd<'_>,
        store: &Store,
    ) -> Result<()> {
        if self.f2fs {
            self.take(user, F2FS_FILE_BYTES, backing, store)?;
        }
        let mut left = self.files.lock();
        if *left == 0 {
            *left = PORTION_FILES.min(spare_files(in_ram, backing)? / 2).max(1);
        }
        *left -= 1;
        Ok(())
    }
}

/// Blocks that root may still use. ext4 keeps some for its own metadata, of which no count is
/// shown: 2 % of all, but no more than 4096.
fn free_for_root(flash: &StatVfs) -> u64 {
    let kept = (flash.f_blocks / 50).min(4096).min(flash.f_bfree - flash.f_bavail);
    flash.f_bfree - kept
}

/// Inodes that are free for files created on flash directly, without those that files in RAM will
/// need.
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
