//! oracleGeneral, libCacheSim's binary trace of an object cache: packed little-endian records of 24
//! bytes.
//!
//! ```text
//! u32 time in seconds · u64 object · u32 size in bytes · i64 number of the object's next record
//! ```
//!
//! Each record is a read of the whole object: the format has neither writes nor offsets. Records
//! are numbered from 1, and by some writers from 0; -1 or `i64::MAX` means "never again", -2 "not
//! computed". Only detection
//! uses that field: the simulator computes the future itself. A record of size 0 is left out and
//! counted: libCacheSim leaves it out too by default, which keeps miss ratios comparable.
//!
//! There is no magic number. The claims about the future can be checked, though, and random bytes
//! fail the check. Where every record says that its object never comes again, nothing is claimed.

use super::{Confidence, FileId, FormatSpec, Knows, Side, Space};
use crate::{
    Error,
    events::{Access, AccessKind, Events},
    input::Input,
};
use flashsift_events::event::About;
use std::collections::HashMap;

pub(super) const SPEC: FormatSpec = FormatSpec {
    name: "oracle-general",
    what: "libCacheSim's oracleGeneral: 24-byte records (time, object, size, next access)",
    detect,
    read,
    ahead: false,
    sample,
};

const RECORD_BYTES: usize = 24;

struct Record {
    time_s: u32,
    object: u64,
    size: u32,
    next: i64,
}

impl Record {
    #[inline]
    fn new(bytes: &[u8; RECORD_BYTES]) -> Self {
        // Bytes 16..24 hold the number of the object's next access: `next`.
        let [t0, t1, t2, t3, o0, o1, o2, o3, o4, o5, o6, o7, s0, s1, s2, s3, next @ ..] = *bytes;
        Self {
            time_s: u32::from_le_bytes([t0, t1, t2, t3]),
            object: u64::from_le_bytes([o0, o1, o2, o3, o4, o5, o6, o7]),
            size: u32::from_le_bytes([s0, s1, s2, s3]),
            next: i64::from_le_bytes(next),
        }
    }
}

/// The records must be consistent, numbered from 1 or from 0.
fn detect(head: &[u8]) -> Confidence {
    match detect_numbered(head, 1) {
        // Without proof, the usual numbers are as good.
        Confidence::No if detect_numbered(head, 0) == Confidence::Likely => Confidence::Likely,
        from_one => from_one,
    }
}

/// The records must be consistent, the first of them having the number `first`: times hardly
/// decrease, sizes are plausible, `next` is a later record, an object marked as never used again
/// does not recur, and a `next` within the head refers to the same object.
fn detect_numbered(head: &[u8], first: i64) -> Confidence {
    const HOUR_S: u32 = 3600;
    const NEXT_MAX: i64 = 1 << 48;
    let records: Vec<Record> = head.as_chunks().0.iter().map(Record::new).collect();
    // Such a writer did not look ahead.
    let always_never = records.iter().all(|record| record.next == -1);
    let mut never_again = HashMap::new();
    let (mut kept_promises, mut empty) = (0, 0);
    let mut before_s = 0;
    for (n, record) in (first..).zip(&records) {
        let never = matches!(record.next, -1 | i64::MAX);
        let ahead = record.next > n && record.next < NEXT_MAX;
        let back = record.time_s.saturating_add(HOUR_S) < before_s;
        if back || record.size > i32::MAX as u32 || !(never || ahead || record.next == -2) {
            return Confidence::No;
        }
        if never_again.insert(record.object, never) == Some(true) && !always_never {
            return Confidence::No;
        }
        if ahead && let Some(next) = records.get((record.next - first) as usize) {
            if next.object != record.object {
                return Confidence::No;
            }
            kept_promises += 1;
        }
        before_s = record.time_s;
        empty += usize::from(record.size == 0);
    }
    match records.len() {
        0 => Confidence::No,
        n if empty * 2 > n => Confidence::No,
        _ if kept_promises > 0 => Confidence::Likely,
        _ => Confidence::Maybe,
    }
}

fn read(input: &mut Input<'_>, events: &mut Events<'_>) -> Result<(), Error> {
    events.about(About {
        epoch_us: None,
        boot_us: None,
        side: Side::Before,
        space: Space::Objects,
        knows: Knows {
            times: true,
            syncs: false,
            writes: false,
            removals: false,
            ..Knows::NOTHING
        },
    })?;
    let mut number = 0;
    let mut first_s = None;
    input.records(|records| {
        for record in records {
            let Record { time_s, object, size, .. } = Record::new(record);
            number += 1;
            if size == 0 {
                events.skip("request of size 0", number);
                continue;
            }
            let at_us =
                u64::from(time_s.saturating_sub(*first_s.get_or_insert(time_s))) * 1_000_000;
            let (file, len) = (FileId(object), size.into());
            let (pid, tid, open, offset, kind) = (0, 0, None, 0, AccessKind::Read);
            events.access(Access { at_us, pid, tid, file, open, offset, len, kind })?;
        }
        Ok(())
    })
}

fn sample() -> Vec<u8> {
    let records = [
        (100, 7, 512, 3),
        (100, 8, 4096, -1),
        (101, 7, 512, 5),
        (102, 9, 0, -1),
        (102, 7, 512, -1),
    ];
    records
        .into_iter()
        .flat_map(|(time_s, object, size, next)| encode(time_s, object, size, next))
        .collect()
}

/// One record. `next`: 1-based number of the next record of the object, -1 for never.
pub fn encode(time_s: u32, object: u64, size: u32, next: i64) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..4].copy_from_slice(&time_s.to_le_bytes());
    record[4..12].copy_from_slice(&object.to_le_bytes());
    record[12..16].copy_from_slice(&size.to_le_bytes());
    record[16..].copy_from_slice(&next.to_le_bytes());
    record
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing;
    use flashsift_events::event::Action;

    #[test]
    fn each_record_reads_an_object() {
        let (events, summary) = testing::read(&SPEC, &sample()).unwrap();
        let seen: Vec<_> = events
            .iter()
            .map(|e| match e.action {
                Action::Read { file, offset: 0, len, .. } => (e.at_us, file.0, len),
                _ => panic!("{e:?}"),
            })
            .collect();
        assert_eq!(seen, [(0, 7, 512), (0, 8, 4096), (1_000_000, 7, 512), (2_000_000, 7, 512)]);
        assert_eq!(testing::skipped(&summary), "1 × request of size 0 (first at 4)");
    }

    #[test]
    fn only_consistent_records_are_recognised() {
        let sample = sample();
        assert_eq!(detect(&sample), Confidence::Likely);
        assert_eq!(detect(&sample[..70]), Confidence::Maybe);
        for bytes in
            [vec![], vec![0; 24], vec![0; 4800], vec![0xff; 4800], b"r 101530792\n".repeat(400)]
        {
            assert_eq!(detect(&bytes), Confidence::No);
        }
        let mut broken = sample.clone();
        broken[4] = 77; // the first record's object is now not the one its "next" points to
        assert_eq!(detect(&broken), Confidence::No);
        let never_and_again = [&sample[24..48], &sample[24..48], &encode(101, 8, 1, 4)].concat();
        assert_eq!(detect(&never_and_again), Confidence::No, "never again, yet there it is");
    }

    /// A writer that does not look ahead puts -1 into every record. Such a file was refused as soon
    /// as an object came again.
    #[test]
    fn records_that_claim_nothing_are_recognised() {
        let records = [(100, 7, 512), (100, 8, 4096), (101, 7, 512), (102, 8, 4096)];
        let bytes: Vec<u8> = records
            .iter()
            .flat_map(|(time_s, object, size)| encode(*time_s, *object, *size, -1))
            .collect();
        assert_eq!(detect(&bytes), Confidence::Maybe);
        let spec = crate::format::detected(&bytes).unwrap();
        let (events, summary) = testing::read(spec, &bytes).unwrap();
        assert_eq!((spec.name, events.len(), summary.skipped.total()), ("oracle-general", 4, 0));
    }

    /// Such files were once refused as being of no known format.
    #[test]
    fn records_that_are_numbered_from_zero_are_recognised() {
        let records = [(5, 7, 1), (6, 7, 3), (7, 8, -1), (8, 7, -1)];
        let encoded = |shift: i64| -> Vec<u8> {
            let next = |next: i64| if next < 0 { next } else { next + shift };
            let each = records.map(|(time_s, object, at)| encode(time_s, object, 512, next(at)));
            each.into_iter().flatten().collect()
        };
        assert_eq!([0, 1].map(|shift| detect(&encoded(shift))), [Confidence::Likely; 2]);
        assert_eq!(detect(&encoded(-1)), Confidence::No);
    }

    #[test]
    fn random_bytes_are_not_recognised() {
        let seed = 0x9e37_79b9_7f4a_7c15u64;
        let mut state = seed;
        for round in 0..2000 {
            let bytes: Vec<u8> = std::iter::repeat_with(|| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                (state >> 56) as u8
            })
            .take(24 + round % 1000)
            .collect();
            assert_eq!(detect(&bytes), Confidence::No, "seed {seed:#x}, round {round}");
        }
    }

    /// The advice was once printed twice: "or cut it to a or cut it to a multiple".
    // Promises: Traces 10.
    #[test]
    fn a_truncated_record_is_an_error() {
        let error = testing::read(&SPEC, &sample()[..50]).unwrap_err().to_string();
        assert!(error.contains("(2 of 24 bytes)") && error.contains("byte 48"), "{error}");
        assert!(error.contains("copy it again, or cut it to a multiple of 24 bytes"), "{error}");
    }

    #[test]
    fn cloudphysics() {
        let Some(trace) = testing::shared("cloudphysics.oracleGeneral.bin.zst") else { return };
        assert_eq!(detect(&trace[..crate::format::HEAD_BYTES]), Confidence::Likely);
        let (events, summary) = testing::read(&SPEC, &trace).unwrap();
        assert_eq!((events.len(), summary.skipped.total(), summary.late), (113_872, 0, 0));
    }
}
