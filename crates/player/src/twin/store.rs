//! Stores through a mapping, and `sync_file_range`.
#![allow(unsafe_code, reason = "mappings are unsafe, and rustix has no sync_file_range")]

use flashsift_events::page::PAGE_BYTES;
use rustix::{
    fs::fstat,
    io::{Errno, Result},
    mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap},
};
use std::{
    os::fd::{AsRawFd, OwnedFd},
    ptr,
};

/// Stores one byte into each page of a range, through a mapping that ends at once. A part behind
/// the end of the file is left out: a store there would end the process.
pub(super) fn store(fd: &OwnedFd, offset: u64, len: u64, byte: u8) -> Result<()> {
    let size = fstat(fd)?.st_size as u64;
    let first = offset / PAGE_BYTES * PAGE_BYTES;
    let end = offset.saturating_add(len).min(size);
    if end <= first {
        return Err(Errno::FAULT);
    }
    let len = usize::try_from(end - first).map_err(|_| Errno::FBIG)?;
    let both = ProtFlags::READ | ProtFlags::WRITE;
    // Safety: the kernel chooses the address. The mapping lies in the file, which only this thread
    // changes, so that every page of it exists.
    unsafe {
        let start = mmap(ptr::null_mut(), len, both, MapFlags::SHARED, fd, first)?;
        // The folio of a fault is then as small as the trace's range, not a read-ahead.
        let done = madvise(start, len, Advice::Random);
        for at in (0..len).step_by(PAGE_BYTES as usize) {
            start.cast::<u8>().add(at).write_volatile(byte);
        }
        munmap(start, len)?;
        done
    }
}

/// Writes a range of a file's data, and waits for it; nothing is committed.
pub(super) fn sync_range(fd: &OwnedFd, offset: u64, len: u64) -> Result<()> {
    let flags = libc::SYNC_FILE_RANGE_WAIT_BEFORE
        | libc::SYNC_FILE_RANGE_WRITE
        | libc::SYNC_FILE_RANGE_WAIT_AFTER;
    let signed = |n| i64::try_from(n).map_err(|_| Errno::INVAL);
    // 0 bytes reach the end of the file.
    let len = if offset.checked_add(len).is_none() { 0 } else { len };
    // Safety: the call takes numbers only, and the descriptor is open meanwhile.
    match unsafe { libc::sync_file_range(fd.as_raw_fd(), signed(offset)?, signed(len)?, flags) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

pub(super) fn last_error() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)
}
