//! Requests by io_uring.
#![allow(unsafe_code, reason = "io_uring: a buffer has to outlive its request")]

use super::{NO_MEMORY, RequestResult, Target, buffers::Buffers};
use crate::{
    Error, Op, Request,
    open_target::{OpenTarget, TargetKind},
};
use io_uring::{IoUring, opcode, squeue, types};
use rustix::{fs::FallocateFlags, io::Errno};
use std::{io, os::fd::AsRawFd, time::Duration};

/// `RWF_DSYNC` of linux/fs.h.
const DSYNC: i32 = 2;
/// Index of the only registered file.
const FILE: types::Fixed = types::Fixed(0);

/// An io_uring instance of its own, used only by the thread that created it.
pub struct Ring<'a> {
    place: &'a OpenTarget,
    ring: IoUring,
    depth: u32,
    buffers: Buffers,
    /// Requests completed without the ring.
    done: Vec<(u32, RequestResult)>,
    in_flight: u32,
}

impl<'a> Ring<'a> {
    /// Creates a target with `depth` slots for pieces of up to `piece_bytes`.
    ///
    /// # Errors
    ///
    /// [`Error::NoRing`] if io_uring is missing, forbidden or older than Linux 5.11.
    pub fn new(place: &'a OpenTarget, depth: u32, piece_bytes: u64) -> Result<Self, Error> {
        // These options improve throughput on newer kernels; older kernels reject them.
        let new = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(depth);
        let ring = match new {
            Err(why) if Errno::from_io_error(&why) == Some(Errno::INVAL) => IoUring::new(depth),
            other => other,
        };
        let ring = ring.map_err(|why| Error::NoRing { what: "io_uring is not available", why })?;
        if !ring.params().is_feature_ext_arg() {
            let why = io::Error::other("Linux 5.11 or later is needed");
            return Err(Error::NoRing { what: "io_uring of this kernel has no timed wait", why });
        }
        let registered = ring.submitter().register_files(&[place.file.as_raw_fd()]);
        registered.map_err(|why| Error::system("registering the target with io_uring", why))?;
        let buffers = Buffers::new(depth, piece_bytes)?;
        Ok(Self { place, ring, depth, buffers, done: Vec::new(), in_flight: 0 })
    }

    fn entry(&mut self, slot: u32, request: &Request) -> Option<squeue::Entry> {
        let &Request { op, offset, len, .. } = request;
        let mut buffer = || {
            let buffer = self.buffers.prepared(slot, request);
            (buffer.as_mut_ptr(), buffer.len() as u32)
        };
        Some(match op {
            Op::Read => {
                let (buffer, len) = buffer();
                opcode::Read::new(FILE, buffer, len).offset(offset).build()
            }
            Op::Write | Op::WriteSync => {
                let (buffer, len) = buffer();
                let flags = if op == Op::WriteSync { DSYNC } else { 0 };
                opcode::Write::new(FILE, buffer, len).offset(offset).rw_flags(flags).build()
            }
            Op::Sync => opcode::Fsync::new(FILE).flags(types::FsyncFlags::DATASYNC).build(),
            Op::Discard => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                opcode::Fallocate::new(FILE, len).offset(offset).mode(mode.bits() as i32).build()
            }
            Op::DramRead | Op::DramWrite | Op::NvmRead | Op::NvmWrite => return None,
        })
    }

    fn take_done(&mut self, done: &mut Vec<(u32, RequestResult)>) {
        for entry in self.ring.completion() {
            let outcome = match entry.result() {
                error @ ..0 => Err(io::Error::from_raw_os_error(-error)),
                bytes => Ok(bytes as u64),
            };
            self.in_flight -= 1;
            done.push((entry.user_data() as u32, outcome));
        }
        done.append(&mut self.done);
    }
}

impl Target for Ring<'_> {
    fn depth(&self) -> u32 {
        self.depth
    }

    /// `BLKDISCARD` is a blocking system call.
    fn discards_alone(&self) -> bool {
        self.place.kind == TargetKind::Device
    }

    fn start(&mut self, slot: u32, request: &Request) -> Result<(), Error> {
        if request.op == Op::Discard && self.place.kind == TargetKind::Device {
            let outcome = self.place.discard(request.offset, request.len).map(|()| request.len);
            self.done.push((slot, outcome));
            return Ok(());
        }
        // Earlier requests start now: while a batch is prepared, the device would be idle. The last
        // request is submitted by the call that waits, so at depth 1 each request costs one system
        // call.
        if !self.ring.submission().is_empty() {
            self.ring.submit().map_err(failed)?;
        }
        let Some(entry) = self.entry(slot, request) else {
            self.done.push((slot, Err(NO_MEMORY.into())));
            return Ok(());
        };
        let entry = entry.user_data(u64::from(slot));
        // Safety: the buffer lives as long as the ring, and only this request uses it until it
        // completes.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the queue has an entry for every slot");
        self.in_flight += 1;
        Ok(())
    }

    fn wait(
        &mut self,
        at_most: Option<Duration>,
        done: &mut Vec<(u32, RequestResult)>,
    ) -> Result<(), Error> {
        let want = usize::from(self.done.is_empty());
        let submitted = match at_most {
            None => self.ring.submit_and_wait(want),
            Some(time) => {
                let time = types::Timespec::from(time);
                let args = types::SubmitArgs::new().timespec(&time);
                self.ring.submitter().submit_with_args(want, &args)
            }
        };
        match submitted {
            Ok(_) => {}
            // The time is over, or a signal arrived, which the loop checks.
            Err(why) if matches!(Errno::from_io_error(&why), Some(Errno::TIME | Errno::INTR)) => {}
            Err(why) => return Err(failed(why)),
        }
        self.take_done(done);
        Ok(())
    }
}

fn failed(why: io::Error) -> Error {
    Error::system("io_uring", why)
}

impl Drop for Ring<'_> {
    /// Waits for all requests first, because the kernel writes into the buffers until then.
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_flight > 0 && self.wait(None, &mut done).is_ok() {}
        // The kernel releases the files of a ring some time after the ring is closed. An
        // exclusively opened device would stay busy until then.
        let _ = self.ring.submitter().unregister_files();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::open_target::Requirements;

    /// All requests that arrived together were once submitted together, when they were waited for:
    /// fio was a quarter faster.
    #[test]
    fn a_request_does_not_wait_for_the_one_behind_it() {
        // Next to the binary, because a folder for temporary files may be in memory.
        let dir = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
        let wanted = Requirements {
            end_bytes: 1 << 16,
            changes: true,
            consent: false,
            fold: false,
            size_bytes: None,
            keep: false,
        };
        let place = OpenTarget::open(&dir.path().join("file"), &wanted).unwrap();
        let mut ring = Ring::new(&place, 4, 4096).unwrap();
        for slot in 0..4 {
            let offset = u64::from(slot) * 8192;
            let request = Request { number: 1, at_us: 0, op: Op::Write, offset, len: 4096 };
            ring.start(slot, &request).unwrap();
            assert_eq!(ring.ring.submission().len(), 1, "only the last is not submitted");
        }
        let mut done = Vec::new();
        while done.len() < 4 {
            ring.wait(None, &mut done).unwrap();
        }
        assert!(done.iter().all(|(_, outcome)| matches!(outcome, Ok(4096))), "{done:?}");
    }
}
