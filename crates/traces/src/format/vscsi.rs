//! VMware's vscsiStats, as CloudPhysics recorded it and libCacheSim reads it: packed little-endian
//! records of the SCSI commands of a virtual disk, of one of two versions.
//!
//! ```text
//! version 1   u32 serial · u32 bytes · u32 segments · u16 command · u16 version · u64 block ·
//!             u64 time in µs
//! version 2   u16 command · u16 version · u32 serial · u32 bytes · u32 segments · u64 block ·
//!             u64 time in µs · u64 response time
//! ```
//!
//! Waldspurger et al., "Efficient MRC Construction with SHARDS", FAST '15, has such traces. A block
//! is a sector of 512 bytes. The high byte of the version is 1 or 2. The commands are those of
//! SCSI: `READ` and `WRITE` of 6, 10, 12 and 16 bytes, and `SYNCHRONIZE CACHE`; others move no
//! data that this trace describes. The response time is one of the host's storage and is not kept.
//!
//! There is no magic number: a record is recognised by its version, a command that SCSI has, and a
//! time that does not go back by much.

use super::{Confidence, FileId, FormatSpec, Knows, Side, Space, block::SECTOR_BYTES};
use crate::{
    Error,
    events::{Access, AccessKind, Events, REQUEST_BYTES_MAX},
    input::Input,
};
use flashsift_events::event::{About, Action, Event};

pub(super) const SPEC: FormatSpec = FormatSpec {
    name: "vscsi",
    what: "VMware's SCSI commands, versions 1 and 2, as of CloudPhysics and libCacheSim",
    detect,
    read,
    ahead: false,
    sample: || sample(1),
};

const V1_BYTES: usize = 32;
const V2_BYTES: usize = 40;

struct Record {
    version: u8,
    command: u16,
    bytes: u32,
    block: u64,
    at_us: u64,
}

impl Record {
    fn v1(record: &[u8; V1_BYTES]) -> Self {
        let [_, _, _, _, l0, l1, l2, l3, _, _, _, _, c0, c1, _, version, rest @ ..] = *record;
        let [b0, b1, b2, b3, b4, b5, b6, b7, time @ ..] = rest;
        Self {
            version,
            command: u16::from_le_bytes([c0, c1]),
            bytes: u32::from_le_bytes([l0, l1, l2, l3]),
            block: u64::from_le_bytes([b0, b1, b2, b3, b4, b5, b6, b7]),
            at_us: u64::from_le_bytes(time),
        }
    }

    fn v2(record: &[u8; V2_BYTES]) -> Self {
        let [c0, c1, _, version, _, _, _, _, l0, l1, l2, l3, _, _, _, _, rest @ ..] = *record;
        let [b0, b1, b2, b3, b4, b5, b6, b7, t0, t1, t2, t3, t4, t5, t6, t7, ..] = rest;
        Self {
            version,
            command: u16::from_le_bytes([c0, c1]),
            bytes: u32::from_le_bytes([l0, l1, l2, l3]),
            block: u64::from_le_bytes([b0, b1, b2, b3, b4, b5, b6, b7]),
            at_us: u64::from_le_bytes([t0, t1, t2, t3, t4, t5, t6, t7]),
        }
    }
}

/// Returns the version whose records these bytes are, and how many.
fn version(head: &[u8]) -> Option<(u8, usize)> {
    let first = |records: Vec<Record>, version| {
        let of_version = |record: &Record| {
            record.version == version
                && record.command < 0x100
                && u64::from(record.bytes) <= REQUEST_BYTES_MAX
        };
        let hour_us = 3_600_000_000;
        let forward = |pair: &[Record]| pair[1].at_us.saturating_add(hour_us) >= pair[0].at_us;
        let known = records.iter().any(|record| command(record.command).is_some());
        let all = records.iter().all(of_version) && records.windows(2).all(forward) && known;
        all.then_some((version, records.len()))
    };
    first(head.as_chunks().0.iter().map(Record::v2).collect(), 2)
        .or_else(|| first(head.as_chunks().0.iter().map(Record::v1).collect(), 1))
}

fn detect(head: &[u8]) -> Confidence {
    match version(head) {
        Some((_, 2..)) => Confidence::Likely,
        Some(_) => Confidence::Maybe,
        None => Confidence::No,
    }
}

enum Command {
    Read,
    Write,
    Flush,
}

/// Returns the command that SCSI has this number for, if it is one that concerns data.
fn command(number: u16) -> Option<Command> {
    match number {
        0x08 | 0x28 | 0xa8 | 0x88 => Some(Command::Read),
        // With those that verify what they wrote.
        0x0a | 0x2a | 0xaa | 0x8a | 0x2e | 0xae | 0x8e => Some(Command::Write),
        0x35 | 0x91 => Some(Command::Flush),
        _ => None,
    }
}

fn read(input: &mut Input<'_>, events: &mut Events<'_>) -> Result<(), Error> {
    events.about(About {
        epoch_us: None,
        boot_us: None,
        side: Side::After,
        space: Space::Blocks,
        knows: Knows { times: true, writes: true, ..Knows::NOTHING },
    })?;
    let mut reader = Reader::default();
    // As libCacheSim decides.
    let (first, _) = input.peek(2 * V2_BYTES)?.as_chunks::<V2_BYTES>();
    let is_v2 = !first.is_empty() && first.iter().all(|record| Record::v2(record).version == 2);
    match is_v2 {
        true => input.records(|records| {
            records.iter().try_for_each(|bytes| reader.record(&Record::v2(bytes), 2, events))
        }),
        false => input.records(|records| {
            records.iter().try_for_each(|bytes| reader.record(&Record::v1(bytes), 1, events))
        }),
    }
}

#[derive(Default)]
struct Reader {
    number: u64,
    first_us: Option<u64>,
}

impl Reader {
    fn record(
        &mut self,
        record: &Record,
        version: u8,
        events: &mut Events<'_>,
    ) -> Result<(), Error> {
        self.number += 1;
        events.at(self.number);
        if record.version != version {
            events.damage("record of another version", self.number);
            return Ok(());
        }
        let Some(command) = command(record.command) else {
            events.skip("SCSI command other than read, write and flush", self.number);
            return Ok(());
        };
        let at_us = record.at_us.saturating_sub(*self.first_us.get_or_insert(record.at_us));
        let kind = match command {
            Command::Read => AccessKind::Read,
            Command::Write => AccessKind::new(true),
            Command::Flush => {
                let (file, offset, len) = (FileId(0), 0, u64::MAX);
                let action = Action::Sync { file, offset, len, data_only: false };
                return events.push(Event { at_us, pid: 0, tid: 0, action });
            }
        };
        let offset = record.block.saturating_mul(SECTOR_BYTES);
        let (pid, tid, file, open, len) = (0, 0, FileId(0), None, record.bytes.into());
        events.access(Access { at_us, pid, tid, file, open, offset, len, kind })
    }
}

fn sample(version: u8) -> Vec<u8> {
    // Command, bytes, block, time.
    let requests: [(u8, u32, u64, u64); 5] = [
        (0x2a, 4096, 8, 5_633_898_368_802),
        (0x28, 512, 42_932_745, 5_633_898_611_441),
        (0x12, 36, 0, 5_633_898_700_000),
        (0x8a, 65_536, 1 << 33, 5_633_899_745_540),
        (0x35, 0, 0, 5_633_899_800_000),
    ];
    let mut bytes = Vec::new();
    for (serial, (command, len, block, at_us)) in (0x8000_0000u32..).zip(requests) {
        let parts = [[command, 0, 0, version].to_vec(), serial.to_le_bytes().to_vec()];
        let (lens, segments) = (len.to_le_bytes(), 1u32.to_le_bytes());
        let [command, serial] = &parts;
        match version {
            1 => bytes.extend([&serial[..], &lens, &segments, command].concat()),
            _ => bytes.extend([&command[..], serial, &lens, &segments].concat()),
        }
        bytes.extend([block.to_le_bytes(), at_us.to_le_bytes()].concat());
        if version == 2 {
            bytes.extend(1234u64.to_le_bytes());
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing;

    #[test]
    fn both_versions_give_the_same_requests() {
        for version in [1, 2] {
            let sample = sample(version);
            assert_eq!(detect(&sample), Confidence::Likely);
            let (events, summary) = testing::read(&SPEC, &sample).unwrap();
            let file = FileId(0);
            let write = |offset, len| Action::Write { open: None, file, offset, len, sync: false };
            let read = |offset, len| Action::Read { open: None, file, offset, len };
            let flush = Action::Sync { file, offset: 0, len: u64::MAX, data_only: false };
            let event = |at_us, action| Event { at_us, pid: 0, tid: 0, action };
            assert_eq!(
                events,
                [
                    event(0, write(4096, 4096)),
                    event(242_639, read(42_932_745 * 512, 512)),
                    event(1_376_738, write(512 << 33, 65_536)),
                    event(1_431_198, flush),
                ]
            );
            let skipped = "1 × SCSI command other than read, write and flush (first at 3)";
            assert_eq!(testing::skipped(&summary), skipped);
            let about = summary.about.unwrap();
            assert_eq!((about.side, about.space), (Side::After, Space::Blocks));
        }
    }

    #[test]
    fn other_bytes_are_no_such_records() {
        for bytes in [vec![], vec![0; 4000], vec![0xff; 4000], vec![1; 4000], vec![2; 4000]] {
            assert_eq!(detect(&bytes), Confidence::No);
        }
        // A record of the other version amid those of one is damage.
        let mut mixed = sample(1);
        mixed[V1_BYTES + 15] = 2;
        assert_eq!(detect(&mixed), Confidence::No);
        let (events, summary) = testing::read(&SPEC, &mixed).unwrap();
        assert_eq!((events.len(), summary.skipped.damaged()), (3, 1));
    }
}
