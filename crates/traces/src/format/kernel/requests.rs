//! Requests of the block layer or of a host controller: one pseudo-file per device, as in
//! [`super::super::block`].

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

/// The device of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Device {
    Number(Dev),
    /// A host controller, or one of its devices, by its name.
    Host(Box<str>),
}

/// A request of the block layer, or of a host controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) device: Device,
    /// Flags; `None` if no kernel writes them.
    pub(super) flags: Option<Rwbs>,
    pub(super) sector: u64,
    pub(super) sectors: u64,
    /// Address or length counted the device's own blocks, whose size is assumed.
    pub(super) own_blocks: bool,
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
    again: HashSet<(Device, u64, u64)>,
}

impl Requests {
    pub(super) fn requeued(&mut self, request: &Request) {
        self.again.insert((request.device.clone(), request.sector, request.sectors));
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
        let &Request { ref device, flags, sector, sectors, .. } = request;
        let Some(flags) = flags else { return Ok(Err(Skip::Damage("unknown flags of a request"))) };
        if issued && !self.again.is_empty() && self.again.remove(&(device.clone(), sector, sectors))
        {
            return Ok(Err(AGAIN));
        }
        let file = match device {
            Device::Number(dev) => {
                let (major, minor) = (dev.0 >> 20, dev.0 & 0xf_ffff);
                let name = || device_name(major, minor);
                self.devices.file(dev.to_string().as_bytes(), name, at_us, events)?
            }
            Device::Host(name) => {
                self.devices.file(name.as_bytes(), || name.clone(), at_us, events)?
            }
        };
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
