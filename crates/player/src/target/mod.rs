//! Targets perform requests: by io_uring, by blocking system calls, or not at all.

use crate::{Error, Request};
use std::time::Duration;

mod buffers;
mod calls;
mod ring;

pub use buffers::{SECTOR_BYTES, Stamp};
pub use calls::Calls;
pub use ring::Ring;

/// Result of a request: bytes moved, or the error of the system.
pub type RequestResult = std::io::Result<u64>;

/// Answer of a device to an access to memory: [`crate::memory::WithMemory`] performs them.
const NO_MEMORY: std::io::ErrorKind = std::io::ErrorKind::Unsupported;

/// Performs requests. A slot is used again only when its request has completed.
pub trait Target {
    /// Returns the number of slots.
    fn depth(&self) -> u32;
    /// Whether discards bypass the queue, so that the schedule must run them alone.
    fn discards_alone(&self) -> bool;
    /// Starts a request in a free slot.
    ///
    /// # Errors
    ///
    /// The request could not be started. A failed request is reported by [`Target::wait`] instead.
    fn start(&mut self, slot: u32, request: &Request) -> Result<(), Error>;
    /// Waits for a completion, for about `at_most`, or until a signal arrives. Adds completed
    /// requests to `done`.
    ///
    /// # Errors
    ///
    /// Waiting itself failed.
    fn wait(
        &mut self,
        at_most: Option<Duration>,
        done: &mut Vec<(u32, RequestResult)>,
    ) -> Result<(), Error>;
}

/// Completes each request at once and performs nothing: measures flashsift's own cost.
#[derive(Debug)]
pub struct Null {
    depth: u32,
    started: Vec<(u32, u64)>,
}

impl Null {
    /// Creates a target with `depth` slots.
    pub fn new(depth: u32) -> Self {
        Self { depth, started: Vec::new() }
    }
}

impl Target for Null {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn discards_alone(&self) -> bool {
        false
    }

    fn start(&mut self, slot: u32, request: &Request) -> Result<(), Error> {
        self.started.push((slot, request.len));
        Ok(())
    }

    fn wait(
        &mut self,
        at_most: Option<Duration>,
        done: &mut Vec<(u32, RequestResult)>,
    ) -> Result<(), Error> {
        if let (true, Some(time)) = (self.started.is_empty(), at_most) {
            std::thread::sleep(time);
        }
        done.extend(self.started.drain(..).map(|(slot, bytes)| (slot, Ok(bytes))));
        Ok(())
    }
}
