//! What tracepoints print, read back into the kernel's fields.
//!
//! Most print a field as `name=value`, `name value` or `name = value`, whatever the tracepoint, so that one that is new in
//! the list needs nothing here. Where the kernel prints a field under another name or in another unit, [`shown`] says so:
//! it is the one table of exceptions.

use super::super::kernel::{ALL, FIELDS_MAX, Fields, Known, Value};
use memchr::memmem::{self, Finder};

/// How a field is printed.
#[derive(Clone, Copy)]
enum How {
    /// Decimal, or hexadecimal behind `0x`.
    Number,
    /// Hexadecimal with nothing before it.
    Hex,
    Octal,
    /// `7:0`, `7,0`, `(7,0)`: major and minor number.
    Dev,
    /// A page, as its first byte.
    Page,
    /// A page, as its last byte, behind the first page's and a dash: `0-131071`.
    LastPage,
    /// The first of two: `[20/4294967275)`.
    First,
    /// The second of these two.
    Second,
    /// In words, and behind them in brackets the number: `WRITE|DIRECT (0x11)`.
    Bracketed,
    /// In words alone, none for 0.
    Words(&'static [(&'static str, u64)]),
    /// Text, which ends where this begins for the last time.
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

/// Under which name, and how, a tracepoint prints a field.
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

/// How to read one tracepoint.
pub(super) enum Layout {
    Fields {
        free: Vec<Free>,
        fields: Vec<Field>,
    },
    /// `254,0 RA 16384 () 12566848 + 32 be,0,4 [comm]`: device, flags, first sector, sectors.
    Request,
}

/// A text that may hold anything: fields are looked for before and behind it.
pub(super) struct Free {
    key: Finder<'static>,
    until: &'static str,
}

pub(super) struct Field {
    key: Finder<'static>,
    how: How,
}

/// No tracepoint prints more texts.
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
            // The thread's name stands behind the path.
            free.push(Free { key: Finder::new("cmdline"), until: ", pid " });
        }
        assert!(free.len() <= FREE_MAX, "{}: FREE_MAX is too low", known.name);
        let field = |(key, how)| Field { key: Finder::new(key), how };
        Self::Fields { free, fields: fields.into_iter().map(field).collect() }
    }

    /// The layouts of [`ALL`].
    pub(super) fn all() -> Vec<Self> {
        ALL.iter().map(Self::new).collect()
    }

    /// The fields; `None` if one is not there.
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
                        // The first is the one that is a field.
                        How::Until(_) => Value::Text(texts[0]),
                        how => Value::Number(parse(how, parts.iter().find_map(|part| field.find(part))?)?),
                    };
                }
            }
        }
        Some(Fields(values))
    }
}

impl Free {
    /// What stands before it, itself, and what stands behind it.
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

/// What stands behind a name: `name=`, `name = `, `name `.
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
            // In words, and there are none.
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
                // What the kernel has no word for.
                None => number(word),
            };
            text.split(|&b| b == b'|').try_fold(0, |bits, word| Some(bits | bit(word)?))
        }
        How::Until(_) => None,
    }
}

/// A number at the beginning of the text, decimal with or without a sign, or hexadecimal behind `0x`.
fn number(text: &[u8]) -> Option<u64> {
    if let Some(hex) = text.strip_prefix(b"0x") {
        return radix(hex, 16);
    }
    match text.strip_prefix(b"-") {
        Some(text) => 0_i64.checked_sub_unsigned(radix(text, 10)?).map(i64::cast_unsigned),
        None => radix(text, 10),
    }
}

/// The digits at the beginning of the text; at least one.
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

/// As the kernel keeps it.
fn dev(text: &[u8]) -> Option<u64> {
    let text = text.strip_prefix(b"(").unwrap_or(text);
    let separator = memchr::memchr2(b':', b',', text)?;
    let (major, minor) = (super::line::number(&text[..separator])?, radix(&text[separator + 1..], 10)?);
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
