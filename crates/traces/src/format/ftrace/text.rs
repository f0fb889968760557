//! Parses the text that tracepoints print back into the kernel's fields.
//!
//! Most tracepoints print a field as `name=value`, `name value` or `name = value`. The parser
//! handles these forms for every tracepoint, so a new tracepoint in the list needs no code here.
//! [`shown`] is the one table of exceptions: fields that the kernel prints under another name or in
//! another unit.

use super::super::kernel::{ALL, FIELDS_MAX, Fields, Known, Value};
use memchr::memmem::{self, Finder};

/// The printed form of a field.
#[derive(Clone, Copy)]
enum How {
    /// Decimal, or hexadecimal behind `0x`.
    Number,
    /// Hexadecimal with nothing before it.
    Hex,
    Octal,
    /// A device as `7:0`, `7,0` or `(7,0)`: major and minor number.
    Dev,
    /// A page, printed as its first byte.
    Page,
    /// A page, printed as its last byte, after the first byte and a dash: `0-131071`.
    LastPage,
    /// The first number of a pair: `[20/4294967275)`.
    First,
    /// The second number of such a pair.
    Second,
    /// Flag names followed by the number in parentheses: `WRITE|DIRECT (0x11)`.
    Bracketed,
    /// Flag names alone, none for 0.
    Words(&'static [(&'static str, u64)]),
    /// Text that ends at the last occurrence of this string.
    Until(&'static str),
}

const FALLOCATE: &[(&str, u64)] = &[
    ("KEEP_SIZE", 0x01),
    ("PUNCH_HOLE", 0x02),
    ("NO_HIDE_STALE", 0x04),
    ("COLLAPSE_RANGE", 0x08),
    ("ZERO_RANGE", 0x10),
    ("INSERT_RANGE", 0x20),
    ("UNSHARE_RANGE", 0x40),
    ("WRITE_ZEROES", 0x80),
];

/// Returns the name and form in which a tracepoint prints a field.
fn shown(known: &Known, field: &'static str) -> (&'static str, How) {
    match (known.system, known.name, field) {
        ("filemap", _, "index") => ("ofs", How::Page),
        ("filemap", _, "last_index") => ("ofs", How::LastPage),
        ("writeback", _, "name") => ("bdi", How::Until(": ")),
        ("iomap", "iomap_dio_complete", "pos") => ("offset", How::Number),
        ("iomap", _, "flags") => ("flags", How::Bracketed),
        ("ext4", "ext4_es_remove_extent", "lblk") => ("es", How::First),
        ("ext4", "ext4_es_remove_extent", "len") => ("es", How::Second),
        ("ext4", "ext4_fallocate_enter", "mode") => ("mode", How::Words(FALLOCATE)),
        ("ext4", _, "mode") => ("mode", How::Octal),
        ("f2fs", "f2fs_fallocate", "mode") => ("mode", How::Hex),
        ("f2fs", "f2fs_file_write_iter", "ret") => ("written(err)", How::Number),
        ("f2fs", _, "size") => ("i_size", How::Number),
        ("f2fs", _, "nlink") => ("i_nlink", How::Number),
        ("task", _, "comm") => ("comm", How::Until(" clone_flags=")),
        ("task", _, "clone_flags") => ("clone_flags", How::Hex),
        ("sched", _, "filename") => ("filename", How::Until(" pid=")),
        (_, _, "pathbuf") => ("entry_name", How::Until(", offset ")),
        (_, _, "i_ino") => ("ino", How::Hex),
        (_, _, "dev" | "s_dev") => ("dev", How::Dev),
        _ => (field, How::Number),
    }
}

/// The layout of one tracepoint's text.
pub(super) enum Layout {
    Fields {
        free: Vec<Free>,
        fields: Vec<Field>,
    },
    /// `254,0 RA 16384 () 12566848 + 32 be,0,4 [comm]`: device, flags, first sector, sectors.
    Request,
}

/// An arbitrary text: fields are searched for before and after it.
pub(super) struct Free {
    key: Finder<'static>,
    until: &'static str,
}

pub(super) struct Field {
    key: Finder<'static>,
    how: How,
}

/// Largest number of texts that a tracepoint prints.
const FREE_MAX: usize = 2;

impl Layout {
    pub(super) fn new(known: &Known) -> Self {
        assert!(known.fields.len() <= FIELDS_MAX, "{}: FIELDS_MAX is too low", known.name);
        if known.is_request() {
            return Self::Request;
        }
        let fields: Vec<_> = known.fields.iter().map(|field| shown(known, field)).collect();
        let mut free: Vec<_> = fields
            .iter()
            .filter_map(|&(key, how)| match how {
                How::Until(until) => Some(Free { key: Finder::new(key), until }),
                _ => None,
            })
            .collect();
        if known.fields.contains(&"pathbuf") {
            // The thread's name follows the path.
            free.push(Free { key: Finder::new("cmdline"), until: ", pid " });
        }
        assert!(free.len() <= FREE_MAX, "{}: FREE_MAX is too low", known.name);
        let field = |(key, how)| Field { key: Finder::new(key), how };
        Self::Fields { free, fields: fields.into_iter().map(field).collect() }
    }

    /// Returns the layouts of [`ALL`].
    pub(super) fn all() -> Vec<Self> {
        ALL.iter().map(Self::new).collect()
    }

    /// Parses the fields; `None` if one is missing.
    pub(super) fn read<'a>(&self, text: &'a [u8]) -> Option<Fields<'a>> {
        let mut values = [Value::Number(0); FIELDS_MAX];
        match self {
            Self::Request => {
                let (mut before, after) = split_at(text, b" + ")?;
                let dev = dev(word(&mut before)?)?;
                let flags = word(&mut before)?;
                let sector = before.rsplit(|&b| b == b' ').next()?;
                let request = [
                    Value::Number(dev),
                    Value::Text(flags),
                    Value::Number(number(sector)?),
                    Value::Number(number(after)?),
                ];
                values[..request.len()].copy_from_slice(&request);
            }
            Self::Fields { free, fields } => {
                let mut parts = [&[][..]; FREE_MAX + 1];
                let mut texts = [&[][..]; FREE_MAX];
                parts[0] = text;
                for (n, free) in free.iter().enumerate() {
                    (parts[n], texts[n], parts[n + 1]) = free.cut(parts[n])?;
                }
                for (value, field) in values.iter_mut().zip(fields) {
                    *value = match field.how {
                        // The first match is the field.
                        How::Until(_) => Value::Text(texts[0]),
                        how => Value::Number(parse(
                            how,
                            parts.iter().find_map(|part| field.find(part))?,
                        )?),
                    };
                }
            }
        }
        Some(Fields(values))
    }
}

impl Free {
    /// Splits the text at it: the part before it, itself, and the part after it.
    fn cut<'a>(&self, text: &'a [u8]) -> Option<(&'a [u8], &'a [u8], &'a [u8])> {
        let value = behind(&self.key, text)?;
        let start = text.len() - value.len();
        let end = memmem::rfind(value, self.until.as_bytes())?;
        Some((&text[..start], &value[..end], &value[end..]))
    }
}

impl Field {
    fn find<'a>(&self, text: &'a [u8]) -> Option<&'a [u8]> {
        behind(&self.key, text)
    }
}

/// Finds a name (`name=`, `name = `, `name `) and returns the text after it.
fn behind<'a>(key: &Finder<'_>, text: &'a [u8]) -> Option<&'a [u8]> {
    let len = key.needle().len();
    let mut from = 0;
    while let Some(at) = key.find(&text[from..]) {
        let (start, end) = (from + at, from + at + len);
        let alone = start == 0 || text[start - 1] == b' ';
        match text.get(end) {
            Some(b'=') if alone => return Some(&text[end + 1..]),
            Some(b' ') if alone => {
                let value = text[end..].trim_ascii_start();
                return Some(value.strip_prefix(b"= ").unwrap_or(value));
            }
            // Flag names, of which there are none.
            None if alone => return Some(&[]),
            _ => from = end,
        }
    }
    None
}

fn parse(how: How, text: &[u8]) -> Option<u64> {
    match how {
        How::Number => number(text),
        How::Hex => radix(text, 16),
        How::Octal => radix(text, 8),
        How::Dev => dev(text),
        How::Page => number(text).map(|byte| byte >> 12),
        How::LastPage => number(split_at(text, b"-")?.1).map(|byte| byte >> 12),
        How::First => number(text.strip_prefix(b"[")?),
        How::Second => number(split_at(text, b"/")?.1),
        How::Bracketed => number(split_at(text, b"(")?.1),
        How::Words(words) => {
            let text = text.split(|&b| b == b' ').next()?;
            if text.is_empty() {
                return Some(0);
            }
            let bit = |word: &[u8]| match words.iter().find(|(name, _)| name.as_bytes() == word) {
                Some((_, bit)) => Some(*bit),
                // Bits for which the kernel has no name.
                None => number(word),
            };
            text.split(|&b| b == b'|').try_fold(0, |bits, word| Some(bits | bit(word)?))
        }
        How::Until(_) => None,
    }
}

/// Parses a number at the start of the text: decimal with an optional sign, or hexadecimal after
/// `0x`.
fn number(text: &[u8]) -> Option<u64> {
    if let Some(hex) = text.strip_prefix(b"0x") {
        return radix(hex, 16);
    }
    match text.strip_prefix(b"-") {
        Some(text) => 0_i64.checked_sub_unsigned(radix(text, 10)?).map(i64::cast_unsigned),
        None => radix(text, 10),
    }
}

/// Splits off the digits at the start of the text, at least one.
fn radix(text: &[u8], radix: u32) -> Option<u64> {
    let mut n: u64 = 0;
    let mut digits = 0;
    for &byte in text {
        let Some(digit) = char::from(byte).to_digit(radix) else { break };
        n = n.checked_mul(radix.into())?.checked_add(digit.into())?;
        digits += 1;
    }
    (digits > 0).then_some(n)
}

/// Combines the numbers as the kernel does.
fn dev(text: &[u8]) -> Option<u64> {
    let text = text.strip_prefix(b"(").unwrap_or(text);
    let separator = memchr::memchr2(b':', b',', text)?;
    let (major, minor) =
        (super::line::number(&text[..separator])?, radix(&text[separator + 1..], 10)?);
    (major < 1 << 12 && minor < 1 << 20).then_some(major << 20 | minor)
}

fn split_at<'a>(text: &'a [u8], separator: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = memmem::find(text, separator)?;
    Some((&text[..at], &text[at + separator.len()..]))
}

fn word<'a>(text: &mut &'a [u8]) -> Option<&'a [u8]> {
    let end = memchr::memchr(b' ', text)?;
    let (word, rest) = text.split_at(end);
    *text = rest.trim_ascii_start();
    Some(word)
}
