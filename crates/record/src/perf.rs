//! Reads mappings of processes from perf's side-band events, the only interface of the kernel that
//! reports them as they happen.

#![allow(unsafe_code, reason = "no crate maps perf's ring buffer")]

use crate::system::Clock;
use flashsift_traces::tracepoint::{Dev, Inode, Mapping, Point, What};
use rustix::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::{
    io, ptr, slice,
    sync::atomic::{AtomicU64, Ordering},
};

/// `struct perf_event_attr`, its fifth version (linux/perf_event.h).
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup: u32,
    breakpoint: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock: i32,
    sample_regs_intr: u64,
    aux_watermark: u32,
    sample_max_stack: u16,
    reserved: u16,
}

const SOFTWARE: u32 = 1;
const DUMMY: u64 = 9;
const SAMPLE_TIME: u64 = 1 << 2;
const FLAG_MMAP: u64 = 1 << 8;
const FLAG_MMAP_DATA: u64 = 1 << 17;
const FLAG_SAMPLE_ID_ALL: u64 = 1 << 18;
const FLAG_MMAP2: u64 = 1 << 23;
const FLAG_CLOCK: u64 = 1 << 25;
const RECORD_LOST: u32 = 2;
const RECORD_MMAP2: u32 = 10;

const PAGE_BYTES: usize = 4096;
/// Capacity for some thousand mappings of each processor between two reads.
const DATA_PAGES: usize = 128;

/// Ring buffer of one processor's events.
pub(crate) struct Ring {
    fd: OwnedFd,
    base: *mut u8,
    /// Scratch space for a record that wraps around.
    record: Vec<u8>,
}

impl Ring {
    /// Opens the events of all processes on this processor.
    ///
    /// # Errors
    ///
    /// perf events are not permitted.
    pub(crate) fn open(cpu: u32, clock: Clock) -> io::Result<Self> {
        let attributes = Attributes {
            kind: SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: DUMMY,
            sample_type: SAMPLE_TIME,
            flags: FLAG_MMAP | FLAG_MMAP_DATA | FLAG_SAMPLE_ID_ALL | FLAG_MMAP2 | FLAG_CLOCK,
            clock: clock.id() as i32,
            ..Attributes::default()
        };
        const CLOEXEC: u64 = 8;
        // SAFETY: the kernel reads `attributes`, which says its own size, and keeps no pointer to
        // it.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                -1,
                cpu as i32,
                -1,
                CLOEXEC,
            )
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just returned this descriptor.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            rustix::mm::mmap(
                ptr::null_mut(),
                (1 + DATA_PAGES) * PAGE_BYTES,
                rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE,
                rustix::mm::MapFlags::SHARED,
                &fd,
                0,
            )
        }?;
        Ok(Self { fd, base: base.cast(), record: Vec::new() })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn counter(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the first page of the mapping is `struct perf_event_mmap_page`. Its counters are
        // aligned, and shared with the kernel, hence atomic.
        unsafe { &*self.base.add(offset).cast::<AtomicU64>() }
    }

    /// Passes pending records to `take`, and returns the number of lost ones.
    pub(crate) fn drain(&mut self, mut take: impl FnMut(Point)) -> u64 {
        const HEAD: usize = 1024;
        const TAIL: usize = 1032;
        let data_bytes = (DATA_PAGES * PAGE_BYTES) as u64;
        let head = self.counter(HEAD).load(Ordering::Acquire);
        let mut tail = self.counter(TAIL).load(Ordering::Relaxed);
        let mut lost = 0;
        while tail < head {
            let mut bytes = std::mem::take(&mut self.record);
            self.copy(tail, 8, &mut bytes);
            let kind = u32_at(&bytes, 0);
            let size = u64::from(u32_at(&bytes, 4) >> 16);
            if size < 8 || size > data_bytes {
                break;
            }
            self.copy(tail, size, &mut bytes);
            match kind {
                RECORD_MMAP2 => take(mapped(&bytes)),
                RECORD_LOST => lost += u64_at(&bytes, 16),
                _ => {}
            }
            self.record = bytes;
            tail += size;
        }
        self.counter(TAIL).store(tail, Ordering::Release);
        lost
    }

    fn copy(&self, from: u64, bytes: u64, to: &mut Vec<u8>) {
        let size = DATA_PAGES * PAGE_BYTES;
        let from = (from % size as u64) as usize;
        let first = (bytes as usize).min(size - from);
        to.clear();
        // SAFETY: both ranges lie within the data pages of the mapping, and the kernel writes no
        // byte before our tail.
        unsafe {
            let data = self.base.add(PAGE_BYTES);
            to.extend_from_slice(slice::from_raw_parts(data.add(from), first));
            to.extend_from_slice(slice::from_raw_parts(data, bytes as usize - first));
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: it was mapped by `open`, and nothing refers to it any more.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), (1 + DATA_PAGES) * PAGE_BYTES) };
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_ne_bytes(b.try_into().expect("four bytes")))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).map_or(0, |b| u64::from_ne_bytes(b.try_into().expect("eight bytes")))
}

/// Parses a `PERF_RECORD_MMAP2`, which ends with its time.
fn mapped(bytes: &[u8]) -> Point {
    let start = u64_at(bytes, 16);
    let dev = Dev::new(u32_at(bytes, 40), u32_at(bytes, 44));
    let ino = u64_at(bytes, 48);
    let mapping = Mapping {
        start,
        end: start.saturating_add(u64_at(bytes, 24)),
        offset: u64_at(bytes, 32),
        inode: (ino != 0).then_some(Inode { dev, ino }),
        shared: u32_at(bytes, 68) & 1 != 0,
    };
    Point {
        at_ns: u64_at(bytes, bytes.len().saturating_sub(8)),
        tid: u32_at(bytes, 12),
        what: What::Map { pid: u32_at(bytes, 8), mapping },
    }
}
