//! Asks the file system where the data of a file lies (FIEMAP).

#![allow(unsafe_code, reason = "rustix has no FIEMAP")]

use rustix::fd::{AsRawFd, BorrowedFd};
use std::io;

/// Data of a file that lies in one piece. All numbers in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// First byte in the file.
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// First byte on the file system's device.
    pub(crate) at: u64,
}

/// `FS_IOC_FIEMAP`: `_IOWR('f', 11, struct fiemap)`.
const FIEMAP: u32 = 0xc020_660b;
const LAST: u32 = 0x1;
/// The place is unknown, not chosen yet, of compressed or encrypted data, or within metadata.
const NO_PLACE: u32 = 0x2 | 0x4 | 0x8 | 0x100 | 0x200;
const COUNT: usize = 128;

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct RawExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

/// `struct fiemap` with its extents.
#[repr(C)]
struct Request {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
    extents: [RawExtent; COUNT],
}

/// Returns the places of a file's data, in the order of their offsets. Data that has no place yet,
/// because the kernel has not written it back, is left out, and is not written back for this.
///
/// # Errors
///
/// The file system does not tell.
pub(crate) fn extents(file: BorrowedFd<'_>) -> io::Result<Vec<Extent>> {
    let mut extents = Vec::new();
    let mut start = 0;
    loop {
        let mut request = Request {
            start,
            length: u64::MAX - start,
            flags: 0,
            mapped_extents: 0,
            extent_count: COUNT as u32,
            reserved: 0,
            extents: [RawExtent::default(); COUNT],
        };
        // SAFETY: the kernel writes at most `extent_count` extents, for which there is space.
        let done =
            unsafe { libc::ioctl(file.as_raw_fd(), FIEMAP as libc::Ioctl, &raw mut request) };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
        let mapped = request.extents.get(..request.mapped_extents as usize).unwrap_or_default();
        for extent in mapped.iter().filter(|extent| extent.flags & NO_PLACE == 0) {
            let &RawExtent { logical, length, physical, .. } = extent;
            extents.push(Extent { offset: logical, len: length, at: physical });
        }
        match mapped.last() {
            Some(last) if last.flags & LAST == 0 => {
                start = last.logical.saturating_add(last.length);
            }
            _ => return Ok(extents),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Write, os::fd::AsFd};

    /// Holes and data follow each other, in more pieces than one request returns.
    #[test]
    fn data_is_found_and_holes_are_not() {
        const PIECES: u64 = COUNT as u64 + 30;
        let mut file = tempfile::tempfile().unwrap();
        for piece in 0..PIECES {
            use std::io::Seek;
            file.seek(std::io::SeekFrom::Start(piece * 131_072)).unwrap();
            file.write_all(&[1; 65_536]).unwrap();
        }
        file.sync_all().unwrap();
        let found = match extents(file.as_fd()) {
            Ok(found) => found,
            Err(error) => {
                println!("SKIPPED fiemap::data_is_found_and_holes_are_not: FIEMAP: {error}");
                return;
            }
        };
        let mut next = 0;
        for Extent { offset, len, .. } in &found {
            assert!(*offset >= next, "extents ascend");
            assert_eq!(offset / 131_072, (offset + len - 1) / 131_072, "no hole is inside");
            next = offset + len;
        }
        assert_eq!(found.iter().map(|extent| extent.len).sum::<u64>(), PIECES * 65_536);
    }
}
