//! A real device under test, driven by the player.

use super::Device;
use crate::{
    Error, Op, Request,
    play::{self, Ended, Watch},
    schedule::Timing,
    target::Target,
};
use std::{
    sync::mpsc::sync_channel,
    thread,
    time::{Duration, Instant},
};

/// The first pages of a target, accessed one request at a time.
pub struct RealDevice<'a> {
    target: &'a mut dyn Target,
    pages: u64,
    /// Idle time of [`Device::rest`].
    rest: Duration,
    /// Returns whether to stop.
    stop: &'a mut dyn FnMut() -> bool,
}

impl<'a> RealDevice<'a> {
    /// Creates a device of `pages` pages; `target` must take requests of 512 KiB.
    pub fn new(
        target: &'a mut dyn Target,
        pages: u64,
        rest: Duration,
        stop: &'a mut dyn FnMut() -> bool,
    ) -> Self {
        Self { target, pages, rest, stop }
    }
}

/// Interval at which an idle measurement looks whether to stop.
const LOOK: Duration = Duration::from_millis(100);

struct CallTimes<'a> {
    times: Vec<u64>,
    stop: &'a mut dyn FnMut() -> bool,
}

impl Watch for CallTimes<'_> {
    fn stop(&mut self, _: u64) -> bool {
        (self.stop)()
    }
    fn done(&mut self, _: &Request, took_ns: u64) {
        self.times.push(took_ns);
    }
}

const PAGE_BYTES: u64 = flashsift_events::page::PAGE_BYTES;

impl Device for RealDevice<'_> {
    fn pages(&self) -> u64 {
        self.pages
    }

    fn perform(&mut self, write: bool, pages: &[u64], each: u32) -> Result<Vec<u64>, Error> {
        let op = if write { Op::Write } else { Op::Read };
        let requests = pages.iter().enumerate().map(|(n, page)| {
            let end = page + u64::from(each);
            assert!(end <= self.pages, "the pages lie in the part that may be used");
            Request {
                number: n as u64 + 1,
                at_us: 0,
                op,
                offset: page * PAGE_BYTES,
                len: u64::from(each) * PAGE_BYTES,
            }
        });
        let (to, from) = sync_channel(1);
        to.send(requests.collect()).expect("the channel has capacity for one batch");
        drop(to);
        let mut times = CallTimes { times: Vec::with_capacity(pages.len()), stop: &mut *self.stop };
        match play::play(&from, &mut *self.target, Timing::Asap, &mut times).ended {
            Ended::Whole => Ok(times.times),
            Ended::Stopped => Err(Error::Stopped),
            Ended::Failed(error) => Err(error),
        }
    }

    fn rest(&mut self) -> Result<(), Error> {
        let begun = Instant::now();
        while begun.elapsed() < self.rest {
            if (self.stop)() {
                return Err(Error::Stopped);
            }
            // The device has to be idle, so nothing else is to be waited for.
            thread::sleep(LOOK.min(self.rest.saturating_sub(begun.elapsed())));
        }
        Ok(())
    }
}
