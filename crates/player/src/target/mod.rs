//! What performs requests: a device by io_uring or by plain system calls, or nothing at all.

use crate::{Error, Request};
use std::time::Duration;

mod buffers;
mod calls;
mod ring;

pub use buffers::{SECTOR_BYTES, Stamp};
pub use calls::Calls;
pub use ring::Ring;

/// What came of a request: bytes moved, or what the system said.
pub type Outcome = std::io::Result<u64>;

/// Performs requests. A slot is used again only when what was started in it is done.
pub trait Target {
    /// How many slots there are.
    fn depth(&self) -> u32;
    /// Discards wait for nothing and let nothing wait: they have to be alone.
    fn discards_alone(&self) -> bool;
    /// Begins a request.
    fn start(&mut self, slot: u32, request: &Request) -> Result<(), Error>;
    /// Waits until something is done, or for about so long, or until a signal comes. Adds what is done.
    fn wait(&mut self, at_most: Option<Duration>, done: &mut Vec<(u32, Outcome)>) -> Result<(), Error>;
}

/// Does nothing, at once: what flashsift itself costs.
#[derive(Debug)]
pub struct Null {
    depth: u32,
    started: Vec<(u32, u64)>,
}

impl Null {
    /// Of so many slots.
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

    fn wait(&mut self, at_most: Option<Duration>, done: &mut Vec<(u32, Outcome)>) -> Result<(), Error> {
        if let (true, Some(time)) = (self.started.is_empty(), at_most) {
            std::thread::sleep(time);
        }
        done.extend(self.started.drain(..).map(|(slot, bytes)| (slot, Ok(bytes))));
        Ok(())
    }
}
