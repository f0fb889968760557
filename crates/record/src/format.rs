//! Parses the kernel's description of a tracepoint: the position of each field in a record.

use flashsift_traces::tracepoint::Values;
use std::borrow::Cow;

/// One tracepoint of this kernel.
#[derive(Debug)]
pub struct Format {
    /// Number at the beginning of its records.
    pub id: u16,
    fields: Vec<(String, Slot)>,
}

/// Position of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    offset: u16,
    size: u16,
    signed: bool,
    /// The field holds offset and length of its text.
    elsewhere: bool,
}

impl Format {
    /// Parses a `format` file; `None` if it has no number.
    pub fn parse(text: &str) -> Option<Self> {
        let id = text.lines().find_map(|line| line.strip_prefix("ID:"))?.trim().parse().ok()?;
        let fields = text.lines().filter_map(|line| field(line.trim())).collect();
        Some(Self { id, fields })
    }

    /// Returns the positions of these fields; `None` if this kernel's record lacks one.
    pub fn slots(&self, names: &[&str]) -> Option<Vec<Slot>> {
        let slot = |name: &&str| self.fields.iter().find(|(n, _)| n == name).map(|(_, slot)| *slot);
        names.iter().map(slot).collect()
    }

    /// Returns the positions of a system call's arguments, in order.
    pub fn arguments(&self) -> Vec<Slot> {
        let own = |name: &str| {
            !name.starts_with("common_")
                && name != "__syscall_nr"
                && !name.starts_with("__data_loc")
        };
        self.fields.iter().filter(|(name, _)| own(name)).map(|(_, slot)| *slot).collect()
    }
}

/// `field:unsigned long i_ino; offset:8; size:8; signed:0;`, with tabs.
fn field(line: &str) -> Option<(String, Slot)> {
    let mut parts = line.strip_prefix("field:")?.split(';').map(str::trim);
    let declared = parts.next()?;
    let mut number = |key| parts.next()?.strip_prefix(key)?.parse::<u16>().ok();
    let (offset, size, signed) = (number("offset:")?, number("size:")?, number("signed:")? != 0);
    let name = declared.split_whitespace().last()?;
    let name = name.split('[').next().unwrap_or(name).to_owned();
    let elsewhere = declared.starts_with("__data_loc");
    Some((name, Slot { offset, size, signed, elsewhere }))
}

/// One record, as it lies in the buffer.
pub struct TraceRecord<'a> {
    /// All bytes of the record.
    pub bytes: &'a [u8],
    /// Positions of its fields.
    pub slots: &'a [Slot],
}

impl Values for TraceRecord<'_> {
    #[inline]
    fn number(&self, field: usize) -> u64 {
        let Slot { offset, size, signed, .. } = self.slots[field];
        let offset = usize::from(offset);
        let read = |n: usize| -> u64 {
            let mut bytes = [0; 8];
            if let Some(from) = self.bytes.get(offset..offset + n) {
                bytes[..n].copy_from_slice(from);
            }
            u64::from_ne_bytes(bytes)
        };
        match (size, signed) {
            (8, _) => read(8),
            (4, false) => read(4),
            (4, true) => i64::from(read(4) as u32 as i32).cast_unsigned(),
            (2, false) => read(2),
            (2, true) => i64::from(read(2) as u16 as i16).cast_unsigned(),
            _ => read(1),
        }
    }

    fn text(&self, field: usize) -> Cow<'_, str> {
        let Slot { offset, size, elsewhere, .. } = self.slots[field];
        let (offset, size) = if elsewhere {
            let place = self.number(field) as u32;
            (usize::from(place as u16), (place >> 16) as usize)
        } else {
            (usize::from(offset), usize::from(size))
        };
        let end = offset.saturating_add(size).min(self.bytes.len());
        let bytes = self.bytes.get(offset..end).unwrap_or_default();
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "name: mm_filemap_get_pages
ID: 645
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:unsigned long i_ino;\toffset:8;\tsize:8;\tsigned:0;
\tfield:dev_t s_dev;\toffset:16;\tsize:4;\tsigned:0;
\tfield:char comm[4];\toffset:20;\tsize:4;\tsigned:0;
\tfield:__data_loc char[] filename;\toffset:24;\tsize:4;\tsigned:0;
\tfield:int ret;\toffset:28;\tsize:4;\tsigned:1;

print fmt: \"dev=%d:%d\", REC->s_dev
";

    #[test]
    fn fields_are_found_where_the_kernel_says() {
        let format = Format::parse(TEXT).unwrap();
        assert_eq!(format.id, 645);
        let slots = format.slots(&["s_dev", "i_ino", "comm", "filename", "ret"]).unwrap();
        let mut bytes = vec![0; 32];
        bytes[8..16].copy_from_slice(&77_u64.to_ne_bytes());
        bytes[16..20].copy_from_slice(&0x70_0001_u32.to_ne_bytes());
        bytes[20..24].copy_from_slice(b"sh\0x");
        bytes[24..28].copy_from_slice(&(5_u32 << 16 | 32).to_ne_bytes());
        bytes[28..32].copy_from_slice(&(-2_i32).to_ne_bytes());
        bytes.extend(b"/a/b\0");
        let record = TraceRecord { bytes: &bytes, slots: &slots };
        assert_eq!((record.number(0), record.number(1)), (0x70_0001, 77));
        assert_eq!((&*record.text(2), &*record.text(3)), ("sh", "/a/b"));
        assert_eq!(record.number(4).cast_signed(), -2);
    }

    #[test]
    fn a_kernel_that_lacks_a_field_lacks_the_tracepoint() {
        assert_eq!(Format::parse(TEXT).unwrap().slots(&["s_dev", "last_index"]), None);
    }

    #[test]
    fn a_record_shorter_than_it_claims_reads_as_zero() {
        let slots = Format::parse(TEXT).unwrap().slots(&["i_ino", "filename"]).unwrap();
        let record = TraceRecord { bytes: &[0; 10], slots: &slots };
        assert_eq!((record.number(0), &*record.text(1)), (0, ""));
    }
}
