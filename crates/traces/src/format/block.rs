//! Shared parts of block-layer traces: sectors, the kernel's request flags, and one pseudo-file per
//! device.

use super::quick;
use crate::{
    Error,
    events::{Access, AccessKind, Events, Skip},
};
use flashsift_events::event::{Action, Event, FileId};
use std::{collections::HashMap, rc::Rc};

/// Sector size in bytes: the kernel's unit of addresses and lengths, independent of the device's
/// own.
pub(super) const SECTOR_BYTES: u64 = 512;

/// The operation of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Read,
    Write,
    /// A discard (TRIM): the contents of the blocks are lost.
    Discard,
    /// No data transfer: a flush alone, or a command.
    None,
}

/// Flags of a request, as the kernel (`blk_fill_rwbs`) and blkparse write them: `F` for a preceding
/// flush, then the operation (`R`, `W`, `D`, `DE` for a secure erase, `N`), then `F` for forced
/// unit access (FUA), `A` read-ahead, `B` barrier, `S` synchronous, `M` metadata, `U` atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rwbs {
    pub(super) op: Op,
    /// The device has to flush its own cache first.
    pub(super) flush: bool,
    /// A process waits for the request, or its data must reach the medium (FUA).
    pub(super) sync: bool,
}

impl Rwbs {
    /// Parses the flags; `None` if no kernel writes them.
    pub(super) fn parse(flags: &str) -> Option<Self> {
        let what = flags.trim_start_matches(['F', 'f']);
        let flush = what.len() < flags.len();
        let Some((&op, rest)) = what.as_bytes().split_first() else {
            return flush.then_some(Self { op: Op::None, flush, sync: false });
        };
        let op = match op.to_ascii_uppercase() {
            b'R' => Op::Read,
            b'W' => Op::Write,
            b'D' => Op::Discard,
            b'N' => Op::None,
            _ => return None,
        };
        let known = |b: &u8| b"EFABSMU".contains(&b.to_ascii_uppercase());
        let sync = rest.iter().any(|b| b"FSB".contains(&b.to_ascii_uppercase()));
        rest.iter().all(known).then_some(Self { op, flush, sync })
    }

    /// Whether a request of data, or of none, gives an event.
    pub(super) fn gives_event(self, has_data: bool) -> Result<(), Skip> {
        match self.flush || (has_data && self.op != Op::None) {
            true => Ok(()),
            false => Err(Skip::Benign("request without data")),
        }
    }

    /// Emits the flush and the access of such a request to `file`, at a time and by a process and a
    /// thread; `span` is its first sector and its number of sectors.
    #[inline(always)]
    pub(super) fn push(
        self,
        (at_us, pid, tid): (u64, u32, u32),
        file: FileId,
        span: Option<(u64, u64)>,
        events: &mut Events<'_>,
    ) -> Result<(), Error> {
        if self.flush {
            let action = Action::Sync { file, offset: 0, len: u64::MAX, data_only: false };
            events.push(Event { at_us, pid, tid, action })?;
        }
        let Some((sector, sectors)) = span else { return Ok(()) };
        let offset = sector.saturating_mul(SECTOR_BYTES);
        let len = sectors.saturating_mul(SECTOR_BYTES);
        let kind = match self.op {
            Op::Read => AccessKind::Read,
            Op::Write => AccessKind::Write { sync: self.sync },
            Op::Discard => {
                // As in a file, the contents of a discarded range are lost.
                let action = Action::Punch { file, offset, len };
                return events.push(Event { at_us, pid, tid, action });
            }
            Op::None => return Ok(()),
        };
        events.access(Access { at_us, pid, tid, file, open: None, offset, len, kind })
    }
}

/// The devices of a trace, each a pseudo-file that is numbered and named at first sight.
#[derive(Default)]
pub(super) struct Devices {
    files: HashMap<Rc<[u8]>, FileId>,
    last: Option<(Rc<[u8]>, FileId)>,
}

impl Devices {
    /// Returns the pseudo-file of the device that the trace calls `device`; `name` is its name for
    /// people.
    pub(super) fn file(
        &mut self,
        device: &[u8],
        name: impl FnOnce() -> Box<str>,
        at_us: u64,
        events: &mut Events<'_>,
    ) -> Result<FileId, Error> {
        match &self.last {
            Some((last, file)) if quick::equal(last, device) => return Ok(*file),
            _ => {}
        }
        if let Some((device, &file)) = self.files.get_key_value(device) {
            self.last = Some((Rc::clone(device), file));
            return Ok(file);
        }
        let file = FileId(self.files.len() as u64);
        let device: Rc<[u8]> = device.into();
        self.files.insert(Rc::clone(&device), file);
        self.last = Some((device, file));
        let action = Action::Bind { file, name: name().into() };
        events.push(Event { at_us, pid: 0, tid: 0, action })?;
        Ok(file)
    }

    /// Returns the device that was asked for last.
    #[cfg(test)]
    pub(super) fn last(&self) -> Option<&[u8]> {
        self.last.as_ref().map(|(device, _)| &**device)
    }

    /// Whether the device has had a request.
    pub(super) fn contains(&self, device: &[u8]) -> bool {
        self.files.contains_key(device)
    }
}

/// Returns the name that Android gives to a device with these numbers.
pub(super) fn device_name(major: u32, minor: u32) -> Box<str> {
    format!("/dev/block/{major}:{minor}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_the_kernels_meaning() {
        let flags = |text| Rwbs::parse(text).map(|Rwbs { op, flush, sync }| (op, flush, sync));
        for (text, meant) in [
            ("R", (Op::Read, false, false)),
            ("RA", (Op::Read, false, false)),
            ("RSM", (Op::Read, false, true)),
            ("W", (Op::Write, false, false)),
            ("WS", (Op::Write, false, true)),
            ("WFS", (Op::Write, false, true)),
            ("WM", (Op::Write, false, false)),
            ("FWFSM", (Op::Write, true, true)),
            ("FWS", (Op::Write, true, true)),
            ("WBS", (Op::Write, false, true)),
            ("D", (Op::Discard, false, false)),
            ("DS", (Op::Discard, false, true)),
            ("DE", (Op::Discard, false, false)),
            ("FN", (Op::None, true, false)),
            ("FF", (Op::None, true, false)),
            ("N", (Op::None, false, false)),
        ] {
            assert_eq!(flags(text), Some(meant), "{text}");
        }
        for text in ["", "Q", "W1", "WX", "8", "<-", "RW"] {
            assert_eq!(flags(text), None, "{text}");
        }
    }
}
