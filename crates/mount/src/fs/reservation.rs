//! Reservation of flash space for everything in RAM.
//!
//! A write that fits in RAM and not on flash would be lost later, so space is reserved before the
//! write is accepted. Reservations are made in portions, since each query of the free space costs a
//! system call. Names and extended attributes need space too: blocks of directories and of
//! attributes. Their numbers are upper bounds, because a directory fills its blocks only in part.

use super::backing::Backing;
use super::store::Store;
use super::volume::Kind;
use parking_lot::Mutex;
use rustix::fs::StatVfs;
use rustix::io::{Errno, Result};
use rustix::process::geteuid;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Largest portion that one query of the free space reserves, bytes.
const PORTION_BYTES: u64 = 16 << 20;
/// Largest portion in files.
const PORTION_FILES: u64 = 4096;

/// A file takes whole blocks, in RAM as on flash.
pub(super) const BLOCK_BYTES: u64 = 4096;
/// Blocks by which a directory of ext4 grows when its first block is full: the block is split in
/// two, and the first becomes an index.
const DIRECTORY_BYTES: u64 = 2 * BLOCK_BYTES;
/// Space that has to be left of root's for a file to be worth creating, bytes.
const ROOT_BYTES: u64 = 1 << 20;
/// Space of one more extent of a sparse file: an entry of ext4's tree takes 12 bytes, and blocks of
/// entries are split in two halves when they are full.
pub(crate) const EXTENT_BYTES: u64 = 26;
/// Space for the attributes of a file that do not fit into its inode.
pub(super) const ATTRIBUTES_BYTES: u64 = BLOCK_BYTES;
/// Space that F2FS needs besides the bytes: for each file a block, its inode; for every group of
/// blocks, one block with their addresses; and blocks for directories that grow.
const F2FS_FILE_BYTES: u64 = BLOCK_BYTES;
const F2FS_BYTES_OF_ONE: u64 = 512;
const F2FS_DIRECTORIES_BYTES: u64 = 1 << 20;

/// Space that the log of delayed syncs needs besides the bytes: a part of them for their places and
/// checksums, and blocks that an entry leaves unused.
const LOG_BYTES_OF_ONE: u64 = 128;
const LOG_BYTES: u64 = 64 << 10;

/// Space that the names and attributes of the files in RAM will need on flash, at most.
#[derive(Debug, Default)]
pub(crate) struct Metadata {
    bytes: AtomicU64,
    f2fs: bool,
}

impl Metadata {
    /// Space for a name of this length, bytes; `first` if no other file in RAM has a name in the
    /// directory.
    ///
    /// An entry of ext4 takes 8 bytes and the name, in multiples of 4. A full block of entries is
    /// split in two halves, so that entries may take twice their size; and a 64th is for the index.
    /// An entry of F2FS takes a slot of 19 bytes for every 8 bytes of the name; its buckets fill
    /// less evenly.
    pub(crate) fn of_name(&self, len: usize, first: bool) -> u64 {
        let len = len as u64;
        let entry = (8 + len).next_multiple_of(4);
        match self.f2fs {
            true => (BLOCK_BYTES / 4).max(40 * len.div_ceil(8)),
            false => 2 * entry + entry / 32 + if first { DIRECTORY_BYTES } else { 0 },
        }
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn subtract(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

/// Bytes that may be written to RAM before the free space of flash is queried again.
#[derive(Debug)]
pub(crate) struct Reservation {
    backing: Arc<Backing>,
    store: Arc<Store>,
    bytes: Mutex<u64>,
    files: Mutex<u64>,
    pub(crate) metadata: Arc<Metadata>,
    f2fs: bool,
    logs: bool,
}

impl Reservation {
    /// Creates an empty reservation. `logs`: syncs are delayed.
    pub(crate) fn new(backing: Arc<Backing>, store: Arc<Store>, logs: bool) -> Reservation {
        let f2fs = backing.volume.kind == Kind::F2fs;
        let metadata = Arc::new(Metadata { bytes: AtomicU64::new(0), f2fs });
        let (bytes, files) = (Mutex::default(), Mutex::default());
        Reservation { backing, store, bytes, files, metadata, f2fs, logs }
    }

    /// Space on flash that files in RAM will need, bytes.
    pub(crate) fn needed(&self, files: u64, bytes: u64) -> u64 {
        let mut bytes = bytes + self.metadata.bytes().next_multiple_of(BLOCK_BYTES);
        if self.logs && bytes > 0 {
            bytes += bytes / LOG_BYTES_OF_ONE + LOG_BYTES;
        }
        if self.f2fs && files > 0 {
            bytes + bytes / F2FS_BYTES_OF_ONE + files * F2FS_FILE_BYTES + F2FS_DIRECTORIES_BYTES
        } else {
            bytes
        }
    }

    /// Space on flash that no file in RAM will need, of these of its blocks, bytes.
    fn free(&self, blocks: impl FnOnce(&StatVfs) -> u64) -> Result<u64> {
        let flash = rustix::fs::fstatvfs(&self.backing.root)?;
        let needed = self.needed(self.store.files(), self.store.content()?.0);
        Ok((blocks(&flash) * flash.f_frsize).saturating_sub(needed))
    }

    /// Reserves this many bytes for files in RAM. The space that flash keeps for root does not
    /// count.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if flash has no space for them.
    pub(crate) fn take(&self, bytes: u64) -> Result<()> {
        self.take_exactly(bytes.next_multiple_of(BLOCK_BYTES))
    }

    /// The same for names and attributes, which do not take whole blocks.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if flash has no space for them.
    pub(crate) fn take_exactly(&self, bytes: u64) -> Result<()> {
        let mut left = self.bytes.lock();
        if *left < bytes {
            let free = self.free(|flash| flash.f_bavail)?;
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

    /// Reserves what one more file in RAM needs, beside so many: an inode, and this space for its
    /// name.
    ///
    /// # Errors
    ///
    /// `ENOSPC` if flash has no inode or no space for it.
    pub(crate) fn take_file(&self, in_ram: u64, name_bytes: u64) -> Result<()> {
        let inode_bytes = if self.f2fs { F2FS_FILE_BYTES } else { 0 };
        self.take_exactly(inode_bytes + name_bytes)?;
        let mut left = self.files.lock();
        if *left == 0 {
            *left = PORTION_FILES.min(self.backing.spare_files(in_ram)? / 2).max(1);
        }
        *left -= 1;
        Ok(())
    }

    /// Whether root may still write a file to flash directly, although there is no space for more
    /// files in RAM.
    pub(crate) fn has_space_for_root(&self) -> bool {
        geteuid().is_root() && self.free(free_for_root).is_ok_and(|bytes| bytes >= ROOT_BYTES)
    }
}

/// Blocks that root may still use. ext4 keeps some for its own metadata, of which no count is
/// shown: 2 % of all, but no more than 4096.
fn free_for_root(flash: &StatVfs) -> u64 {
    let kept = (flash.f_blocks / 50).min(4096).min(flash.f_bfree - flash.f_bavail);
    flash.f_bfree - kept
}
