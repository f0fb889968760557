//! Requests of the block layer: one pseudo-file per device, as in [`super::super::block`].

use crate::{
    Error,
    events::{Events, Skip},
    format::{
        block::{Devices, Rwbs, device_name},
        processes::Processes,
    },
    tracepoint::Dev,
};
use std::collections::HashSet;

/// A request of the block layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) dev: Dev,
    /// Flags; `None` if no kernel writes them.
    pub(super) flags: Option<Rwbs>,
    pub(super) sector: u64,
    pub(super) sectors: u64,
}

/// The requesting process.
pub(super) struct By<'a> {
    pub(super) tid: u32,
    pub(super) pid: u32,
    pub(super) name: Option<&'a str>,
}

const AGAIN: Skip = Skip::Benign("request issued again after the driver had given it back");

/// Converts requests to events.
#[derive(Default)]
pub(super) struct Requests {
    devices: Devices,
    processes: Processes,
    /// Requeued requests, which will be issued again.
    again: HashSet<(Dev, u64, u64)>,
}

impl Requests {
    pub(super) fn requeued(&mut self, request: &Request) {
        self.again.insert((request.dev, request.sector, request.sectors));
    }

    /// `issued`: the request may be a requeued one.
    pub(super) fn request(
        &mut self,
        request: &Request,
        issued: bool,
        at_us: u64,
        by: &By<'_>,
        events: &mut Events<'_>,
    ) -> Result<Result<(), Skip>, Error> {
        let &Request { dev, flags, sector, sectors } = request;
        let Some(flags) = flags else { return Ok(Err(Skip::Damage("unknown flags of a request"))) };
        if issued && !self.again.is_empty() && self.again.remove(&(dev, sector, sectors)) {
            return Ok(Err(AGAIN));
        }
        let (major, minor) = (dev.0 >> 20, dev.0 & 0xf_ffff);
        let file = self.devices.file(
            dev.to_string().as_bytes(),
            || device_name(major, minor),
            at_us,
            events,
        )?;
        let span = (sectors > 0).then_some((sector, sectors));
        if let Err(skip) = flags.gives_event(span.is_some()) {
            return Ok(Err(skip));
        }
        if let Some(name) = by.name {
            self.processes.runs(by.pid, name.as_bytes(), at_us, events)?;
        }
        flags.push((at_us, by.pid, by.tid), file, span, events).map(Ok)
    }
}
