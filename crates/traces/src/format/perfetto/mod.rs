//! Perfetto's traces: a sequence of packets (protocol buffers), whose `ftrace_events` hold the
//! kernel's tracepoints.
//!
//! The reader uses bundles of ftrace events (those that Perfetto knows, generic ones under the
//! kernel's names, described ones), process trees for names, statistics for losses, and packets
//! that hold compressed ones (deflate, zstd). All other packets are skipped and counted. The choice
//! of tracepoints is that of ftrace's text ([`super::kernel`]): `perfetto` reads the tracepoints of
//! files, or those of the block layer if there are none of files, and `perfetto-block` always reads
//! the block layer.
//!
//! **Order.** A bundle holds the events of one processor. Perfetto writes the bundles of the
//! processors in turn, each time it empties the kernel's buffers, so their times overlap. The
//! reader sorts the used events within a window of [`kernel::WINDOW`](super::kernel). A later event
//! gets the time of its predecessor and is counted, as in every format.
//!
//! **Losses** are noted: events that the kernel's buffers lost (statistics at the end less those at
//! the start), bundles after a gap, packets that Perfetto's own buffer overwrote, and a truncated
//! last packet.

mod sample;
mod table;
mod wire;

use super::{
    Confidence, FormatSpec, Space,
    kernel::{Feed, Known},
};
use crate::{
    Error,
    events::{Events, Skip},
    input::Input,
};
pub(crate) use sample::write;
use std::io::Read;
use table::{Generic, Layouts};
use wire::{NoMessage, varint};
pub(crate) use wire::{Wire, fields};

pub(super) const SPEC: FormatSpec = FormatSpec {
    name: "perfetto",
    what: "Perfetto's binary trace, with ftrace events",
    detect: |head| detect(head, false),
    read: |input, events| read(input, events, None),
    ahead: true,
    sample: sample::files,
};

pub(super) const BLOCK: FormatSpec = FormatSpec {
    name: "perfetto-block",
    what: "the block layer's requests in Perfetto's trace",
    detect: |head| detect(head, true),
    read: |input, events| read(input, events, Some(Space::Blocks)),
    ahead: true,
    sample: sample::requests,
};

/// Largest packet in bytes: Perfetto itself splits larger ones.
const PACKET_BYTES_MAX: u64 = 256 << 20;
/// Largest total size in bytes of the packets in one compressed packet.
const INFLATED_BYTES_MAX: u64 = 64 << 20;

const NOT_A_PACKET: Skip = Skip::Damage("packet that makes no sense");
const CUT: Skip = Skip::Damage("packet that is cut short at the end of the trace");
const LACKING: Skip = Skip::Damage("tracepoint that lacks a field that is needed");
const NOT_PACKED: Skip =
    Skip::Damage("compressed packets that cannot be unpacked, or are packed twice");
const OTHER_PACKET: Skip = Skip::Benign("packet of another kind than ftrace's");
const LOST: Skip = Skip::Note("event lost by the kernel: its buffer was full");
const GAP: Skip = Skip::Note("bundle of events before which some were lost");
const DROPPED: Skip = Skip::Note("packet before which some were lost: Perfetto's buffer was full");

/// Field numbers of `TracePacket`.
mod packet {
    pub(super) const FTRACE_EVENTS: u32 = 1;
    pub(super) const PROCESS_TREE: u32 = 2;
    pub(super) const FTRACE_STATS: u32 = 34;
    pub(super) const PREVIOUS_PACKET_DROPPED: u32 = 42;
    pub(super) const COMPRESSED: u32 = 50;
    pub(super) const FIRST_ON_SEQUENCE: u32 = 87;
    pub(super) const ZSTD_COMPRESSED: u32 = 133;
    /// Highest number in use, with a margin for new fields.
    pub(super) const MAX: u32 = 2000;
}

/// First byte of a packet in the file: field 1 of `Trace`, bytes.
const PACKET: u8 = 0x0a;

/// All packets of the head must be valid to the last byte; only the last may be truncated.
fn detect(head: &[u8], block: bool) -> Confidence {
    let mut rest = head;
    let (mut packets, mut files, mut requests) = (0, false, false);
    let mut see = |known: Option<&Known>| match known {
        Some(known) if known.is_request() => requests = true,
        _ => files = true,
    };
    let layouts = Layouts::new();
    while let Some((&tag, after)) = rest.split_first() {
        rest = after;
        if tag != PACKET {
            return Confidence::No;
        }
        let Some(len) = varint(&mut rest) else { break };
        if len > PACKET_BYTES_MAX {
            return Confidence::No;
        }
        let Some((packet, after)) =
            usize::try_from(len).ok().and_then(|len| rest.split_at_checked(len))
        else {
            break;
        };
        rest = after;
        for field in fields(packet) {
            match field {
                Ok((packet::FTRACE_EVENTS, Wire::Bytes(bundle))) => {
                    let _ = names(bundle, &layouts, &mut see);
                }
                Ok((1..=packet::MAX, _)) => {}
                _ => return Confidence::No,
            }
        }
        packets += usize::from(!packet.is_empty());
    }
    if packets > 0 && block == (requests && !files) { Confidence::Likely } else { Confidence::No }
}

/// Checks which tracepoints a bundle has.
fn names(
    bundle: &[u8],
    layouts: &Layouts,
    see: &mut impl FnMut(Option<&Known>),
) -> Result<(), NoMessage> {
    for field in fields(bundle) {
        let (2, Wire::Bytes(event)) = field? else { continue };
        for field in fields(event) {
            match field? {
                (GENERIC, Wire::Bytes(_)) => see(None),
                (number, Wire::Bytes(_)) => see(layouts.get(number).map(|layout| layout.known)),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Fields of `FtraceEvent` for tracepoints that Perfetto does not know.
const GENERIC: u32 = 327;
/// Fields of `FtraceEvent` that name threads.
const TASK_RENAME: u32 = 236;

fn read(
    input: &mut Input<'_>,
    events: &mut Events<'_>,
    wanted: Option<Space>,
) -> Result<(), Error> {
    let mut reader = Reader {
        feed: Feed::out_of_order(events, wanted),
        layouts: Layouts::new(),
        packet: 0,
        damaged: 0,
        lost_before: None,
        lost: 0,
    };
    let mut bytes = Vec::new();
    loop {
        let offset = input.offset();
        match input.byte()? {
            None => break,
            Some(PACKET) => {}
            Some(_) => {
                let what =
                    "no packet of a Perfetto trace begins here: the trace is damaged, or another \
                     format"
                        .to_owned();
                return Err(Error::Malformed { what, offset });
            }
        }
        reader.packet += 1;
        let Some(len) = length(input)? else {
            reader.damage(CUT);
            break;
        };
        if len > PACKET_BYTES_MAX {
            let what = format!(
                "a packet claims {len} bytes, more than any has: the trace is damaged, or another \
                 format"
            );
            return Err(Error::Malformed { what, offset });
        }
        if input.bytes(len, &mut bytes)? < len {
            reader.damage(CUT);
            break;
        }
        reader.packet(&bytes, false)?;
    }
    reader.finish()
}

fn length(input: &mut Input<'_>) -> Result<Option<u64>, Error> {
    let mut digits = [0; 10];
    for digit in &mut digits {
        let Some(byte) = input.byte()? else { return Ok(None) };
        *digit = byte;
        if byte < 0x80 {
            break;
        }
    }
    // The limit excludes a longer number.
    Ok(Some(varint(&mut &digits[..]).unwrap_or(u64::MAX)))
}

struct Reader<'e, 's> {
    feed: Feed<'e, 's>,
    layouts: Layouts,
    /// Number of the packet, for the counts.
    packet: u64,
    damaged: u64,
    /// Losses before the trace began.
    lost_before: Option<u64>,
    lost: u64,
}

impl Reader<'_, '_> {
    /// `unpacked`: the packet comes from a compressed one.
    fn packet(&mut self, bytes: &[u8], unpacked: bool) -> Result<(), Error> {
        if let Err(skip) = self.parts(bytes, unpacked)? {
            match skip {
                Skip::Damage(_) => self.damage(skip),
                _ => self.feed.events.skipped(skip, self.packet),
            }
        }
        Ok(())
    }

    fn parts(&mut self, bytes: &[u8], unpacked: bool) -> Result<Result<(), Skip>, Error> {
        let (mut used, mut dropped, mut first) = (false, false, false);
        for field in fields(bytes) {
            let Ok((number, wire)) = field else { return Ok(Err(NOT_A_PACKET)) };
            let done = match (number, wire) {
                (packet::FTRACE_EVENTS, Wire::Bytes(bundle)) => self.bundle(bundle)?,
                (packet::PROCESS_TREE, Wire::Bytes(tree)) => self.processes(tree)?,
                (packet::FTRACE_STATS, Wire::Bytes(stats)) => {
                    self.stats(stats).map_err(|NoMessage| NOT_A_PACKET)
                }
                (packet::COMPRESSED | packet::ZSTD_COMPRESSED, Wire::Bytes(_)) if unpacked => {
                    Err(NOT_PACKED)
                }
                (packet::COMPRESSED, Wire::Bytes(packed)) => {
                    self.packed(flate2::read::ZlibDecoder::new(packed))?
                }
                (packet::ZSTD_COMPRESSED, Wire::Bytes(packed)) => match zstd(packed) {
                    Ok(packed) => self.packed(packed)?,
                    Err(_) => Err(NOT_PACKED),
                },
                (packet::PREVIOUS_PACKET_DROPPED, Wire::Number(n)) => {
                    dropped = n > 0;
                    continue;
                }
                (packet::FIRST_ON_SEQUENCE, Wire::Number(n)) => {
                    first = n > 0;
                    continue;
                }
                _ => continue,
            };
            used = true;
            if done.is_err() {
                return Ok(done);
            }
        }
        // The first packet of a writer has this mark too.
        if dropped && !first {
            self.feed.events.skipped(DROPPED, self.packet);
        }
        Ok(if used { Ok(()) } else { Err(OTHER_PACKET) })
    }

    /// Reads the packets in a compressed packet.
    fn packed(&mut self, mut packed: impl Read) -> Result<Result<(), Skip>, Error> {
        let mut inner = Vec::new();
        let all = packed.by_ref().take(INFLATED_BYTES_MAX + 1).read_to_end(&mut inner);
        if all.is_err() || inner.len() as u64 > INFLATED_BYTES_MAX {
            return Ok(Err(NOT_PACKED));
        }
        for field in fields(&inner) {
            match field {
                Ok((1, Wire::Bytes(packet))) => self.packet(packet, true)?,
                _ => return Ok(Err(NOT_PACKED)),
            }
        }
        Ok(Ok(()))
    }

    fn bundle(&mut self, bundle: &[u8]) -> Result<Result<(), Skip>, Error> {
        // The descriptions of the events may follow the events.
        for field in fields(bundle) {
            let described = match field {
                Ok((11, Wire::Bytes(descriptor))) => self.layouts.describe(descriptor),
                Ok((3, Wire::Number(lost))) => {
                    if lost > 0 {
                        self.feed.events.skipped(GAP, self.packet);
                    }
                    Ok(())
                }
                Ok(_) => Ok(()),
                Err(NoMessage) => Err(NoMessage),
            };
            if described.is_err() {
                return Ok(Err(NOT_A_PACKET));
            }
        }
        for field in fields(bundle) {
            if let Ok((2, Wire::Bytes(event))) = field
                && let Err(skip) = self.event(event)?
            {
                self.damage(skip);
            }
        }
        Ok(Ok(()))
    }

    fn event(&mut self, event: &[u8]) -> Result<Result<(), Skip>, Error> {
        let (mut at_ns, mut tid) = (0, 0);
        for field in fields(event) {
            let Ok((number, wire)) = field else { return Ok(Err(NOT_A_PACKET)) };
            let message = match (number, wire) {
                (1, Wire::Number(ns)) => {
                    at_ns = ns;
                    continue;
                }
                (2, Wire::Number(pid)) => {
                    tid = pid as u32;
                    continue;
                }
                (_, Wire::Bytes(message)) => message,
                _ => continue,
            };
            let done = self.tracepoint(at_ns, tid, number, message)?;
            if done.is_err() {
                return Ok(done);
            }
        }
        Ok(Ok(()))
    }

    fn tracepoint(
        &mut self,
        at_ns: u64,
        tid: u32,
        number: u32,
        message: &[u8],
    ) -> Result<Result<(), Skip>, Error> {
        let line = self.packet;
        let (known, values) = if let Some(layout) = self.layouts.get(number) {
            let Ok(values) = layout.read(message) else { return Ok(Err(NOT_A_PACKET)) };
            (layout.known, values)
        } else if number == GENERIC {
            match self.layouts.generic(message) {
                Ok(Generic::Known(known, values)) => (known, values),
                Ok(Generic::Lacking) => return Ok(Err(LACKING)),
                Ok(Generic::Other(name)) => {
                    self.feed.other(line, name);
                    return Ok(Ok(()));
                }
                Err(NoMessage) => return Ok(Err(NOT_A_PACKET)),
            }
        } else if number == TASK_RENAME {
            return Ok(match renamed(message) {
                Ok((pid, name)) => {
                    self.feed.thread(line, at_ns, pid, None, name)?;
                    Ok(())
                }
                Err(NoMessage) => Err(NOT_A_PACKET),
            });
        } else {
            self.feed.other(line, b"");
            return Ok(Ok(()));
        };
        self.feed.hit(line, at_ns, tid, known, &values).map(Ok)
    }

    /// Reads a `ProcessTree`: the processes alive at a scan.
    fn processes(&mut self, tree: &[u8]) -> Result<Result<(), Skip>, Error> {
        for field in fields(tree) {
            let task = match field {
                Ok((1, Wire::Bytes(process))) => process_of(process),
                Ok((2, Wire::Bytes(thread))) => thread_of(thread),
                Ok(_) => continue,
                Err(NoMessage) => Err(NoMessage),
            };
            let Ok(Task { tid, tgid, name }) = task else { return Ok(Err(NOT_A_PACKET)) };
            self.feed.found(self.packet, tid, tgid, name)?;
        }
        Ok(Ok(()))
    }

    /// Reads `FtraceStats`, taken at the start and with each flush: the losses of the kernel's
    /// buffers.
    fn stats(&mut self, stats: &[u8]) -> Result<(), NoMessage> {
        const START: u64 = 1;
        let (mut phase, mut lost) = (0, 0_u64);
        for field in fields(stats) {
            match field? {
                (1, Wire::Number(n)) => phase = n,
                (2, Wire::Bytes(cpu)) => {
                    for field in fields(cpu) {
                        // Events overwritten by newer ones, or dropped.
                        if let (3 | 8, Wire::Number(n)) = field? {
                            lost = lost.saturating_add(n);
                        }
                    }
                }
                _ => {}
            }
        }
        match phase {
            START => drop(self.lost_before.get_or_insert(lost)),
            _ => self.lost = lost.saturating_sub(self.lost_before.unwrap_or(0)),
        }
        Ok(())
    }

    fn damage(&mut self, skip: Skip) {
        self.damaged += 1;
        self.feed.events.skipped(skip, self.packet);
    }

    fn finish(self) -> Result<(), Error> {
        if self.lost > 0 {
            self.feed.events.skipped_many(LOST, self.packet, self.lost);
        }
        self.feed.finish(self.damaged * 2 <= self.packet)
    }
}

fn zstd(packed: &[u8]) -> std::io::Result<impl Read> {
    let mut decoder = ::zstd::stream::read::Decoder::with_buffer(packed)?;
    decoder.window_log_max(INFLATED_BYTES_MAX.ilog2())?;
    Ok(decoder)
}

struct Task<'a> {
    tid: u32,
    tgid: Option<u32>,
    name: &'a [u8],
}

/// Reads a `ProcessTree.Process`: its number, and the words of its command line.
fn process_of(message: &[u8]) -> Result<Task<'_>, NoMessage> {
    let mut task = Task { tid: 0, tgid: None, name: b"" };
    for field in fields(message) {
        match field? {
            (1, Wire::Number(pid)) => task.tid = pid as u32,
            (3, Wire::Bytes(word)) if task.name.is_empty() => {
                task.name = word.rsplit(|&b| b == b'/').next().unwrap_or(word);
            }
            _ => {}
        }
    }
    task.tgid = Some(task.tid);
    Ok(task)
}

/// Reads a `ProcessTree.Thread`: its number, name and process.
fn thread_of(message: &[u8]) -> Result<Task<'_>, NoMessage> {
    let mut task = Task { tid: 0, tgid: None, name: b"" };
    for field in fields(message) {
        match field? {
            (1, Wire::Number(tid)) => task.tid = tid as u32,
            (2, Wire::Bytes(name)) => task.name = name,
            (3, Wire::Number(tgid)) => task.tgid = Some(tgid as u32),
            _ => {}
        }
    }
    Ok(task)
}

/// Reads a `TaskRenameFtraceEvent`: thread and new name.
fn renamed(message: &[u8]) -> Result<(u32, &[u8]), NoMessage> {
    let (mut tid, mut name) = (0, &[][..]);
    for field in fields(message) {
        match field? {
            (1, Wire::Number(pid)) => tid = pid as u32,
            (3, Wire::Bytes(text)) => name = text,
            _ => {}
        }
    }
    Ok((tid, name))
}

#[cfg(test)]
mod tests;
