//! Asks the kernel in which folios the page cache holds a file.
//!
//! A mapping of the file shows the frame of each cached page (`/proc/self/pagemap`), and
//! `/proc/kpageflags` the frames that are one folio.

#![allow(unsafe_code, reason = "rustix has no mincore, and its mappings are unsafe, too")]

use rustix::fd::{AsRawFd, BorrowedFd};
use std::{fs::File, io, ops::Range, os::unix::fs::FileExt, ptr};

const PAGE_BYTES: u64 = 4096;
/// Bits of `/proc/self/pagemap`.
const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;
/// Bits of `/proc/kpageflags`.
const HEAD: u64 = 1 << 15;
const TAIL: u64 = 1 << 16;

/// The kernel's flags of each frame of memory, and this process's frames.
pub(crate) struct PageFlags {
    pagemap: File,
    flags: File,
}

/// A part of a file, mapped to be read.
struct Mapped {
    at: *mut libc::c_void,
    bytes: usize,
}

impl Mapped {
    fn new(file: BorrowedFd<'_>, pages: &Range<u64>) -> io::Result<Self> {
        let bytes = ((pages.end - pages.start) * PAGE_BYTES) as usize;
        let offset = (pages.start * PAGE_BYTES).cast_signed();
        let (read, shared) = (libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: the kernel chooses the address, so no other mapping is replaced.
        let at =
            unsafe { libc::mmap64(ptr::null_mut(), bytes, read, shared, file.as_raw_fd(), offset) };
        if at == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(Self { at, bytes })
        }
    }

    /// Maps those of the pages that are cached: nothing is read from the device.
    fn populate(&self) -> io::Result<()> {
        // Without read-ahead, and without a note that the pages were used.
        // SAFETY: the range is this mapping.
        unsafe { libc::madvise(self.at, self.bytes, libc::MADV_RANDOM) };
        let mut cached = vec![0_u8; self.bytes / PAGE_BYTES as usize];
        // SAFETY: the range is this mapping, and there is a byte for each of its pages.
        if unsafe { libc::mincore(self.at, self.bytes, cached.as_mut_ptr()) } < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut from = 0;
        for part in cached.chunk_by(|one, next| one & 1 == next & 1) {
            if part[0] & 1 == 1 {
                let offset = from * PAGE_BYTES as usize;
                let bytes = part.len() * PAGE_BYTES as usize;
                // A page that left the cache or the file meanwhile is not there: no error of ours.
                // SAFETY: the range is inside this mapping.
                unsafe { libc::madvise(self.at.byte_add(offset), bytes, libc::MADV_POPULATE_READ) };
            }
            from += part.len();
        }
        Ok(())
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: no reference into the mapping exists.
        unsafe { libc::munmap(self.at, self.bytes) };
    }
}

impl PageFlags {
    /// # Errors
    ///
    /// This process may not read them.
    pub(crate) fn open() -> io::Result<Self> {
        let flags = File::open("/proc/kpageflags")?;
        Ok(Self { pagemap: File::open("/proc/self/pagemap")?, flags })
    }

    /// Returns the folios of more than one page that the page cache holds among these pages of a
    /// file, each as its first page and their number. None of them extends beyond these pages.
    ///
    /// # Errors
    ///
    /// The file cannot be mapped, or the kernel does not tell.
    pub(crate) fn folios(
        &self,
        file: BorrowedFd<'_>,
        first: u64,
        pages: u64,
    ) -> io::Result<Vec<(u64, u64)>> {
        let size = rustix::fs::fstat(file)?.st_size.cast_unsigned();
        let pages = first..size.div_ceil(PAGE_BYTES).min(first + pages);
        if pages.is_empty() {
            return Ok(Vec::new());
        }
        let mapped = Mapped::new(file, &pages)?;
        mapped.populate()?;
        let entries = words(&self.pagemap, mapped.at as u64 / PAGE_BYTES, pages.end - pages.start)?;
        let frames: Vec<Option<u64>> =
            entries.iter().map(|entry| (entry & PRESENT != 0).then_some(entry & FRAME)).collect();
        if frames.contains(&Some(0)) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let (mut folios, mut n) = (Vec::new(), 0);
        while n < frames.len() {
            let Some(frame) = frames[n] else {
                n += 1;
                continue;
            };
            // Neighbours in the file that are neighbours in memory may be one folio.
            let next = |more: &usize| frames[n + more] == Some(frame + *more as u64);
            let run = 1 + (1..frames.len() - n).take_while(next).count();
            let flags = words(&self.flags, frame, run as u64)?;
            for (at, len) in heads(&flags) {
                folios.push((pages.start + (n + at) as u64, len as u64));
            }
            n += run;
        }
        Ok(folios)
    }
}

/// Returns where the folios of more than one page begin, and their lengths.
fn heads(flags: &[u64]) -> Vec<(usize, usize)> {
    let is_head = |n: &usize| flags[*n] & HEAD != 0;
    let len = |n: usize| 1 + flags[n + 1..].iter().take_while(|flags| *flags & TAIL != 0).count();
    let heads = (0..flags.len()).filter(is_head).map(|n| (n, len(n)));
    heads.filter(|(_, len)| *len > 1).collect()
}

fn words(file: &File, first: u64, count: u64) -> io::Result<Vec<u64>> {
    let mut bytes = vec![0; count as usize * size_of::<u64>()];
    file.read_exact_at(&mut bytes, first * size_of::<u64>() as u64)?;
    let (words, _) = bytes.as_chunks();
    Ok(words.iter().map(|word| u64::from_ne_bytes(*word)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folios_are_heads_with_their_tails() {
        let flags = [0, HEAD, TAIL, TAIL, HEAD, TAIL, 8, HEAD, TAIL | 4];
        assert_eq!(heads(&flags), [(1, 3), (4, 2), (7, 2)]);
        assert_eq!(heads(&[TAIL, TAIL, HEAD]), []);
    }
}
