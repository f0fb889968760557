//! Requests by io_uring.
#![allow(unsafe_code, reason = "io_uring: a buffer has to outlive its request")]

use super::{Outcome, Target, buffers::Buffers};
use crate::{
    Error, Op, Request,
    place::{Kind, Place},
};
use io_uring::{IoUring, opcode, squeue, types};
use rustix::{fs::FallocateFlags, io::Errno};
use std::{io, os::fd::AsRawFd, time::Duration};

/// `RWF_DSYNC` of linux/fs.h.
const DSYNC: i32 = 2;
/// The only file that is registered.
const FILE: types::Fixed = types::Fixed(0);

/// A ring of its own, used by the thread that made it.
pub struct Ring<'a> {
    place: &'a Place,
    ring: IoUring,
    depth: u32,
    buffers: Buffers,
    /// Done without the ring.
    done: Vec<(u32, Outcome)>,
    in_flight: u32,
}

impl<'a> Ring<'a> {
    /// On this file or device, for pieces of up to `piece_bytes`.
    pub fn new(place: &'a Place, depth: u32, piece_bytes: u64) -> Result<Self, Error> {
        // What newer kernels do better; older ones say that they do not know it.
        let new = IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(depth);
        let ring = match new {
            Err(why) if Errno::from_io_error(&why) == Some(Errno::INVAL) => IoUring::new(depth),
            other => other,
        };
        let ring = ring.map_err(|why| Error::NoRing { what: "io_uring is not to be had here", why })?;
        if !ring.params().is_feature_ext_arg() {
            let why = io::Error::other("Linux 5.11 or later is needed");
            return Err(Error::NoRing { what: "this kernel's io_uring cannot wait for a time", why });
        }
        let registered = ring.submitter().register_files(&[place.file.as_raw_fd()]);
        registered.map_err(|why| Error::system("registering the target with io_uring", why))?;
        let buffers = Buffers::new(depth, piece_bytes)?;
        Ok(Self { place, ring, depth, buffers, done: Vec::new(), in_flight: 0 })
    }

    fn entry(&mut self, slot: u32, request: &Request) -> squeue::Entry {
        let &Request { op, offset, len, .. } = request;
        let mut buffer = || {
            let buffer = self.buffers.prepared(slot, request);
            (buffer.as_mut_ptr(), buffer.len() as u32)
        };
        match op {
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
        }
    }

    fn take_done(&mut self, done: &mut Vec<(u32, Outcome)>) {
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

    /// `BLKDISCARD` is a call that returns when it is done.
    fn discards_alone(&self) -> bool {
        self.place.kind == Kind::Device
    }

    fn start(&mut self, slot: u32, request: &Request) -> Result<(), Error> {
        if request.op == Op::Discard && self.place.kind == Kind::Device {
            let outcome = self.place.discard(request.offset, request.len).map(|()| request.len);
            self.done.push((slot, outcome));
            return Ok(());
        }
        // What came before begins now: a device that gets its requests by the bundle has nothing to do while one is tied. The
        // last goes with the call that waits, so that a request costs no more calls than it has to at depth 1.
        if !self.ring.submission().is_empty() {
            self.ring.submit().map_err(failed)?;
        }
        let entry = self.entry(slot, request).user_data(u64::from(slot));
        // Safety: the buffer lives as long as the ring, and is nobody else's until the request is done.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("the queue has a place for every slot");
        self.in_flight += 1;
        Ok(())
    }

    fn wait(&mut self, at_most: Option<Duration>, done: &mut Vec<(u32, Outcome)>) -> Result<(), Error> {
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
            // The time is over, or a signal came, which is for the loop to see.
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
    /// The kernel writes into the buffers until everything is done.
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.in_flight > 0 && self.wait(None, &mut done).is_ok() {}
        // A ring lets go of its files some time after it is closed, and of a device that it holds alone nobody else could have
        // it until then.
        let _ = self.ring.submitter().unregister_files();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::Wanted;

    /// All that came at once was once given to the kernel at once, when it was waited for: fio was a quarter faster.
    #[test]
    fn a_request_does_not_wait_for_the_one_behind_it() {
        // Beside what is built: what holds temporary files may be memory.
        let dir = tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()).unwrap();
        let wanted = Wanted {
            end_bytes: 1 << 16,
            changes: true,
            consent: false,
            fold: false,
            size_bytes: None,
            keep: false,
        };
        let place = Place::open(&dir.path().join("file"), &wanted).unwrap();
        let mut ring = Ring::new(&place, 4, 4096).unwrap();
        for slot in 0..4 {
            let offset = u64::from(slot) * 8192;
            let request = Request { number: 1, at_us: 0, op: Op::Write, offset, len: 4096 };
            ring.start(slot, &request).unwrap();
            assert_eq!(ring.ring.submission().len(), 1, "only the last has not begun");
        }
        let mut done = Vec::new();
        while done.len() < 4 {
            ring.wait(None, &mut done).unwrap();
        }
        assert!(done.iter().all(|(_, outcome)| matches!(outcome, Ok(4096))), "{done:?}");
    }
}
