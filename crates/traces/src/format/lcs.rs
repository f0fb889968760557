//! lcs, libCacheSim's own binary trace of an object cache: a header that says how its records lie,
//! then records, little-endian and packed.
//!
//! ```text
//! header of 8192 bytes   u64 magic · u64 version 1 to 8 · statistics · u64 magic
//! header of 1024 bytes   u64 magic · u64 version 1 or 2 · statistics · u64 magic
//!                        u64 magic · a format as of Python's struct · the number of the field of
//!                        each value · statistics · u64 magic
//! version 1              u32 time in seconds · u64 object · u32 size · i64 next access
//! version 2              … u32 size · u8 operation · u24 tenant · i64 next access
//! version 3              … i64 size · u8 operation · u24 tenant · u32 time to live · i64 next
//! versions 4 to 8        as version 3, then 1, 2, 4, 8 or 16 features of four bytes
//! ```
//!
//! The three headers are those of three years of libCacheSim. Times, objects, sizes and operations
//! are read. Statistics, tenants and the next access are not: the simulator computes the future
//! itself. As in oracleGeneral, a request of size 0 is left out and counted.

use super::{Confidence, FileId, FormatSpec, Knows, Side, Space};
use crate::{
    Error,
    events::{Access, AccessKind, Events},
    input::Input,
};
use flashsift_events::event::{About, Action, Event};

pub(super) const SPEC: FormatSpec = FormatSpec {
    name: "lcs",
    what: "libCacheSim's lcs, versions 1 to 8, and its older form with a format string",
    detect: |head| if head.starts_with(&MAGIC) { Confidence::Certain } else { Confidence::No },
    read,
    ahead: false,
    sample: || sample(2, LONG_BYTES),
};

const MAGIC: [u8; 8] = 0x1234_5678_9abc_def0_u64.to_le_bytes();
const LONG_BYTES: usize = 8192;
const SHORT_BYTES: usize = 1024;
/// Records that are read at once.
const RECORDS: u64 = 1024;

/// An integer in a record: its first byte, and its bytes.
#[derive(Clone, Copy, Debug)]
struct Field {
    at: usize,
    bytes: usize,
}

impl Field {
    fn value(self, record: &[u8]) -> u64 {
        let bytes = record.get(self.at..self.at + self.bytes).unwrap_or_default();
        bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

/// The places of values in a record.
#[derive(Debug)]
struct Layout {
    record_bytes: usize,
    time: Option<Field>,
    object: Field,
    size: Option<Field>,
    op: Option<Field>,
}

impl Layout {
    fn of_version(version: u64) -> Option<Self> {
        let features =
            *[0, 0, 0, 1, 2, 4, 8, 16].get(usize::try_from(version.checked_sub(1)?).ok()?)?;
        let (size, op, record_bytes) = match version {
            1 => (4, None, 24),
            2 => (4, Some(16), 28),
            _ => (8, Some(20), 36 + 4 * features),
        };
        Some(Self {
            record_bytes,
            time: Some(Field { at: 0, bytes: 4 }),
            object: Field { at: 4, bytes: 8 },
            size: Some(Field { at: 12, bytes: size }),
            op: op.map(|at| Field { at, bytes: 1 }),
        })
    }

    /// The layout of a header with a format string, of little-endian integers.
    fn of_format(header: &[u8; SHORT_BYTES]) -> Option<Self> {
        const FORMAT: std::ops::Range<usize> = 9..248;
        let mut fields = Vec::new();
        let mut at = 0;
        for letter in header[FORMAT].iter().take_while(|letter| **letter != 0) {
            let bytes = match letter {
                b'b' | b'B' | b'c' => 1,
                b'h' | b'H' => 2,
                b'i' | b'I' | b'l' | b'L' => 4,
                b'q' | b'Q' => 8,
                _ => return None,
            };
            fields.push(Field { at, bytes });
            at += bytes;
        }
        // 0 stands for no field.
        let field = |at: usize| fields.get(usize::from(header[at]).checked_sub(1)?).copied();
        let (object, size, time, op) = (field(248)?, field(249), field(250), field(253));
        Some(Self { record_bytes: at, time, object, size, op })
    }
}

/// Reads the header.
fn layout(input: &mut Input<'_>) -> Result<Layout, Error> {
    let wrong = |what: &str| Error::Malformed { what: format!("lcs: {what}"), offset: 0 };
    let mut header = Vec::new();
    input.bytes(SHORT_BYTES as u64, &mut header)?;
    let Some(short) = header.first_chunk::<SHORT_BYTES>() else {
        return Err(wrong("the header is cut off"));
    };
    let word = |bytes: &[u8], at: usize| Field { at, bytes: 8 }.value(bytes);
    let magic = u64::from_le_bytes(MAGIC);
    if word(short, 0) != magic {
        return Err(wrong("the file does not begin with its magic number"));
    }
    if word(short, SHORT_BYTES - 8) == magic {
        let layout = match short[8] {
            b'<' => Layout::of_format(short),
            _ => Layout::of_version(word(short, 8)).filter(|_| word(short, 8) <= 2),
        };
        return layout.ok_or_else(|| wrong("the header describes no records"));
    }
    let version = word(short, 8);
    let mut rest = Vec::new();
    input.bytes((LONG_BYTES - SHORT_BYTES) as u64, &mut rest)?;
    if rest.len() < LONG_BYTES - SHORT_BYTES || word(&rest, rest.len() - 8) != magic {
        return Err(wrong("the header does not end with its magic number"));
    }
    Layout::of_version(version)
        .ok_or_else(|| wrong(&format!("version {version} is not one of 1 to 8")))
}

fn read(input: &mut Input<'_>, events: &mut Events<'_>) -> Result<(), Error> {
    let layout = layout(input)?;
    let (times, writes) = (layout.time.is_some(), layout.op.is_some());
    events.about(About {
        epoch_us: None,
        boot_us: None,
        side: Side::Before,
        space: Space::Objects,
        knows: Knows { times, writes, ..Knows::NOTHING },
    })?;
    let (mut number, mut first_s, mut records) = (0, None, Vec::new());
    loop {
        input.bytes(layout.record_bytes as u64 * RECORDS, &mut records)?;
        let whole = records.chunks_exact(layout.record_bytes);
        let cut = whole.remainder().len();
        for record in whole {
            number += 1;
            let time_s = layout.time.map_or(0, |time| time.value(record));
            let at_us = time_s.saturating_sub(*first_s.get_or_insert(time_s));
            let at_us = at_us.saturating_mul(1_000_000);
            request(&layout, record, (number, at_us), events)?;
        }
        if cut > 0 {
            let what = format!(
                "the trace ends inside a record ({cut} of {} bytes): it is cut off; copy it again",
                layout.record_bytes
            );
            return Err(Error::Malformed { what, offset: input.offset() - cut as u64 });
        }
        if records.is_empty() {
            return Ok(());
        }
    }
}

fn request(
    layout: &Layout,
    record: &[u8],
    (number, at_us): (u64, u64),
    events: &mut Events<'_>,
) -> Result<(), Error> {
    events.at(number);
    let file = FileId(layout.object.value(record));
    let len = layout.size.map_or(1, |size| size.value(record));
    let write = match layout.op.map_or(0, |op| op.value(record)) {
        // Unknown, get, gets and read.
        0..=2 | 12 => false,
        // Set, add, compare and swap, replace, append, prepend, incr, decr, write, update.
        3..=8 | 10 | 11 | 13 | 14 => true,
        9 => return events.push(Event { at_us, pid: 0, tid: 0, action: Action::Gone { file } }),
        _ => {
            events.damage("operation that libCacheSim does not have", number);
            return Ok(());
        }
    };
    if len == 0 {
        events.skip("request of size 0", number);
        return Ok(());
    }
    let (pid, tid, open, offset, kind) = (0, 0, None, 0, AccessKind::new(write));
    events.access(Access { at_us, pid, tid, file, open, offset, len, kind })
}

/// The same four requests in each version.
fn sample(version: u64, header_bytes: usize) -> Vec<u8> {
    let mut bytes = vec![0; header_bytes];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..16].copy_from_slice(&version.to_le_bytes());
    bytes[header_bytes - 8..].copy_from_slice(&MAGIC);
    let layout = Layout::of_version(version).expect("a version");
    // Time, object, size, operation.
    let requests: [(u32, u64, u64, u8); 4] =
        [(100, 7, 512, 1), (100, 8, 4096, 3), (103, 7, 512, 12), (104, 8, 1, 9)];
    for (time_s, object, size, op) in requests {
        let begin = bytes.len();
        bytes.resize(begin + layout.record_bytes, 0);
        let record = &mut bytes[begin..];
        record[..4].copy_from_slice(&time_s.to_le_bytes());
        record[4..12].copy_from_slice(&object.to_le_bytes());
        let size_bytes = layout.size.map_or(0, |size| size.bytes);
        record[12..12 + size_bytes].copy_from_slice(&size.to_le_bytes()[..size_bytes]);
        if let Some(Field { at, .. }) = layout.op {
            record[at] = op;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing;

    fn read_lines(bytes: &[u8]) -> Vec<String> {
        let (events, summary) = testing::read(&SPEC, bytes).unwrap();
        assert_eq!(testing::skipped(&summary), "");
        let line = |event: &Event<'_>| {
            let what = match &event.action {
                Action::Read { file, len, .. } => format!("r {} {len}", file.0),
                Action::Write { file, len, .. } => format!("w {} {len}", file.0),
                Action::Gone { file } => format!("gone {}", file.0),
                other => panic!("{other:?}"),
            };
            format!("{} {what}", event.at_us)
        };
        events.iter().map(line).collect()
    }

    #[test]
    fn all_versions_and_headers_are_read() {
        let all = ["0 r 7 512", "0 w 8 4096", "3000000 r 7 512", "4000000 gone 8"];
        for version in 2..=8 {
            assert_eq!(read_lines(&sample(version, LONG_BYTES)), all, "version {version}");
        }
        assert_eq!(read_lines(&sample(2, SHORT_BYTES)), all);
        // Version 1 has no operations.
        let reads = ["0 r 7 512", "0 r 8 4096", "3000000 r 7 512", "4000000 r 8 1"];
        for header_bytes in [SHORT_BYTES, LONG_BYTES] {
            assert_eq!(read_lines(&sample(1, header_bytes)), reads);
        }
        // The oldest header: time, object, size and next access.
        let mut old = sample(1, SHORT_BYTES);
        old[8..16].copy_from_slice(b"<IQIQ\0\0\0");
        (old[248], old[249], old[250], old[252]) = (2, 3, 1, 4);
        assert_eq!(read_lines(&old), reads);
    }

    #[test]
    fn a_header_that_describes_nothing_is_an_error() {
        let error = |bytes: &[u8]| testing::read(&SPEC, bytes).unwrap_err().to_string();
        let sound = sample(3, LONG_BYTES);
        assert!(error(&sound[..500]).contains("cut off"));
        assert!(error(&sound[..5000]).contains("end with its magic number"));
        assert!(error(&sound[..LONG_BYTES + 40]).contains("(4 of 36 bytes)"));
        let mut newer = sound;
        newer[8] = 9;
        assert!(error(&newer).contains("version 9 is not one of 1 to 8"));
        let mut old = sample(1, SHORT_BYTES);
        old[8..11].copy_from_slice(b"<s\0");
        assert!(error(&old).contains("describes no records"));
    }
}
