//! One request after the other by blocking system calls, for systems without io_uring.

use super::{NO_MEMORY, RequestResult, Target, buffers::Buffers};
use crate::{Error, Op, Request, open_target::OpenTarget};
use rustix::io::{ReadWriteFlags, pread, pwritev2};
use std::{io::IoSlice, time::Duration};

/// A target whose requests complete inside [`Target::start`].
#[derive(Debug)]
pub struct Calls<'a> {
    place: &'a OpenTarget,
    buffers: Buffers,
    done: Option<RequestResult>,
}

impl<'a> Calls<'a> {
    /// Creates a target for pieces of up to `piece_bytes`.
    ///
    /// # Errors
    ///
    /// The memory for the buffer cannot be mapped.
    pub fn new(place: &'a OpenTarget, piece_bytes: u64) -> Result<Self, Error> {
        Ok(Self { place, buffers: Buffers::new(1, piece_bytes)?, done: None })
    }
}

impl Target for Calls<'_> {
    fn depth(&self) -> u32 {
        1
    }

    fn discards_alone(&self) -> bool {
        true
    }

    fn start(&mut self, slot: u32, request: &Request) -> Result<(), Error> {
        let &Request { op, offset, len, .. } = request;
        let file = &self.place.file;
        let outcome = match op {
            Op::Read => pread(file, self.buffers.prepared(slot, request), offset),
            Op::Write | Op::WriteSync => {
                let flags = if op == Op::WriteSync {
                    ReadWriteFlags::DSYNC
                } else {
                    ReadWriteFlags::empty()
                };
                pwritev2(file, &[IoSlice::new(self.buffers.prepared(slot, request))], offset, flags)
            }
            Op::Sync => rustix::fs::fdatasync(file).map(|()| 0),
            Op::DramRead | Op::DramWrite | Op::NvmRead | Op::NvmWrite => {
                self.done = Some(Err(NO_MEMORY.into()));
                return Ok(());
            }
            Op::Discard => {
                self.done = Some(self.place.discard(offset, len).map(|()| len));
                return Ok(());
            }
        };
        self.done = Some(outcome.map(|bytes| bytes as u64).map_err(Into::into));
        Ok(())
    }

    fn wait(
        &mut self,
        at_most: Option<Duration>,
        done: &mut Vec<(u32, RequestResult)>,
    ) -> Result<(), Error> {
        match (self.done.take(), at_most) {
            (Some(outcome), _) => done.push((0, outcome)),
            (None, Some(time)) => std::thread::sleep(time),
            (None, None) => {}
        }
        Ok(())
    }
}
