//! Parses the text that tracepoints print back into the kernel's fields.
//!
//! Most tracepoints print a field as `name=value`, `name value` or `name = value`. The parser
//! handles these forms for every tracepoint, so a new tracepoint in the list needs no code here.
//! [`shown`] is the one table of exceptions: fields that the kernel prints under another name or in
//! another unit. Where perf and trace-cmd lack a function of the kernel, they print the kernel's
//! own fields, behind [`RAW`].

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
    /// Text of this number among those that a colon and a space end.
    Part(usize),
    /// Text that ends at the first of these bytes.
    Word(&'static [u8]),
}

impl How {
    fn is_text(self) -> bool {
        matches!(self, Self::Until(_) | Self::Part(_) | Self::Word(_))
    }
}

/// The mark before fields that a tool could not print as the kernel does.
const RAW: &[u8] = b"[FAILED TO PARSE] ";

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
        ("iomap", _, "flags" | "type") => (field, How::Bracketed),
        ("ext4", "ext4_es_remove_extent", "lblk") => ("es", How::First),
        ("ext4", "ext4_es_remove_extent", "len") => ("es", How::Second),
        ("ext4", "ext4_fallocate_enter", "mode") => ("mode", How::Words(FALLOCATE)),
        ("ext4", _, "mode") => ("mode", How::Octal),
        ("f2fs", "f2fs_fallocate", "mode") => ("mode", How::Hex),
        ("f2fs", "f2fs_file_write_iter", "ret") => ("written(err)", How::Number),
        ("f2fs", _, "size") => ("i_size", How::Number),
        ("f2fs", _, "nlink") => ("i_nlink", How::Number),
        ("ufs", _, "str") => ("", How::Part(0)),
        ("ufs", _, "dev_name") => ("", How::Part(1)),
        ("ufs", _, "transfer_len") => ("size", How::Number),
        ("ufs", _, "lba") => ("LBA", How::Number),
        ("mmc", _, "name") | ("nvme", _, "ctrl_id") => ("", How::Part(0)),
        ("mmc", _, "blksz") => ("block_size", How::Number),
        ("nvme", _, "disk") => ("disk", How::Word(b",")),
        ("nvme", _, "opcode") => ("cmd", How::Word(b" )")),
        ("nvme", _, "length") => ("len", How::Number),
        ("nvme", _, "control") => ("ctrl", How::Number),
        ("scsi", _, "cmnd") => ("raw", How::Word(b")")),
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
pub(super) struct Layout {
    known: &'static Known,
    shape: Shape,
}

enum Shape {
    Fields {
        free: Vec<Free>,
        fields: Vec<Field>,
    },
    /// `254,0 RA 16384 () 12566848 + 32 be,0,4 [comm]`: device, flags, first sector, sectors.
    Request,
    /// `254,0  Q  RA 12566848 + 32 [comm]`: the same, with an action before the flags.
    Action,
}

/// An arbitrary text: fields are searched for before and after it.
struct Free {
    key: Finder<'static>,
    until: &'static str,
}

struct Field {
    key: Finder<'static>,
    how: How,
    needed: bool,
}

/// Largest number of texts that a tracepoint prints.
const FREE_MAX: usize = 2;

impl Layout {
    pub(super) fn new(known: &'static Known) -> Self {
        assert!(known.fields.len() <= FIELDS_MAX, "{}: FIELDS_MAX is too low", known.name);
        if known.system == "block" {
            return Self { known, shape: Shape::Request };
        }
        let fields: Vec<_> =
            known.fields.iter().map(|field| (field, shown(known, field))).collect();
        let mut free: Vec<_> = fields
            .iter()
            .filter_map(|&(_, (key, how))| match how {
                How::Until(until) => Some(Free { key: Finder::new(key), until }),
                _ => None,
            })
            .collect();
        if known.fields.contains(&"pathbuf") {
            // The thread's name follows the path.
            free.push(Free { key: Finder::new("cmdline"), until: ", pid " });
        }
        assert!(free.len() <= FREE_MAX, "{}: FREE_MAX is too low", known.name);
        let field = |(field, (key, how)): (&&str, (&'static str, How))| Field {
            key: Finder::new(key),
            how,
            needed: known.needs(field),
        };
        let fields = fields.into_iter().map(field).collect();
        Self { known, shape: Shape::Fields { free, fields } }
    }

    /// Returns each of [`ALL`], by the name in the text, with its layout.
    pub(super) fn all() -> impl Iterator<Item = (&'static [u8], (&'static Known, Self))> {
        // The actions of the `blk` tracer that tell what those tracepoints do.
        const ACTIONS: [(&str, &str); 4] = [
            ("Q", "block_bio_queue"),
            ("D", "block_rq_issue"),
            ("I", "block_rq_insert"),
            ("R", "block_rq_requeue"),
        ];
        let own = ALL.iter().map(|known| (known.name.as_bytes(), (known, Self::new(known))));
        let action = |(action, name): (&'static str, &str)| {
            let known = ALL.iter().find(|known| known.name == name)?;
            Some((action.as_bytes(), (known, Self { known, shape: Shape::Action })))
        };
        own.chain(ACTIONS.into_iter().filter_map(action))
    }

    /// Parses the fields; `None` if one is missing.
    pub(super) fn read<'a>(&self, text: &'a [u8]) -> Option<Fields<'a>> {
        if let Some(text) = text.strip_prefix(RAW) {
            return self.read_raw(text);
        }
        let mut values = Fields::NONE.0;
        match &self.shape {
            Shape::Request | Shape::Action => {
                let is_action = matches!(self.shape, Shape::Action);
                let (mut before, after) = match split_at(text, b" + ") {
                    // A flush alone: `8,0    Q  FN [fio]`.
                    None if is_action => (&text[..memchr::memrchr(b'[', text)?], &b"0"[..]),
                    span => span?,
                };
                let dev = dev(word(&mut before)?)?;
                if is_action {
                    word(&mut before)?;
                }
                let flags = word(&mut before)?;
                let sector = match before.rsplit(|&b| b == b' ').next()? {
                    b"" if is_action => b"0",
                    sector => sector,
                };
                let request = [
                    Value::Number(dev),
                    Value::Text(flags),
                    Value::Number(number(sector)?),
                    Value::Number(number(after)?),
                ];
                values[..request.len()].copy_from_slice(&request);
            }
            Shape::Fields { free, fields } => {
                let mut parts = [&[][..]; FREE_MAX + 1];
                let mut texts = [&[][..]; FREE_MAX];
                parts[0] = text;
                for (n, free) in free.iter().enumerate() {
                    (parts[n], texts[n], parts[n + 1]) = free.cut(parts[n])?;
                }
                for (value, field) in values.iter_mut().zip(fields) {
                    let found = match field.how {
                        // The first match is the field.
                        How::Until(_) => Some(Value::Text(texts[0])),
                        How::Part(n) => part(text, n).map(Value::Text),
                        how => parts
                            .iter()
                            .find_map(|part| field.find(part))
                            .and_then(|text| parse(how, text)),
                    };
                    match found {
                        Some(found) => *value = found,
                        None if field.needed => return None,
                        None => {}
                    }
                }
            }
        }
        Some(Fields(values))
    }

    /// Parses `dev=8388608 ino=12 …`: the kernel's fields under their own names.
    fn read_raw<'a>(&self, text: &'a [u8]) -> Option<Fields<'a>> {
        let mut values = Fields::NONE.0;
        for (value, field) in values.iter_mut().zip(self.known.fields) {
            let Some(text) = behind(&Finder::new(field), text) else {
                if self.known.needs(field) {
                    return None;
                }
                continue;
            };
            let is_text = *field == "rwbs" || shown(self.known, field).1.is_text();
            *value = match number(text) {
                Some(number) if !is_text || *field == "opcode" => Value::Number(number),
                _ => Value::Text(&text[..next_field(text)]),
            };
        }
        if self.known.system == "nvme" {
            // The words of the command, of which the kernel prints the address and the length.
            let words = behind(&Finder::new("cdw10"), text)?.strip_prefix(b"ARRAY[")?;
            let number = |from: usize, bytes: usize| {
                let bytes = words.chunks(4).skip(from).take(bytes);
                bytes.rev().try_fold(0, |n, byte| Some(n << 8 | radix(byte, 16)?))
            };
            let numbers = [number(0, 8)?, number(8, 2)?, number(10, 2)?];
            for (field, number) in ["slba", "length", "control"].into_iter().zip(numbers) {
                let at = self.known.fields.iter().position(|name| *name == field)?;
                values[at] = Value::Number(number);
            }
        }
        Some(Fields(values))
    }
}

/// Returns part `n` of a text whose parts end with a colon and a space.
fn part(text: &[u8], n: usize) -> Option<&[u8]> {
    let mut from = 0;
    let mut ends = memmem::find_iter(text, b": ");
    for _ in 0..n {
        from = ends.next()? + 2;
    }
    Some(&text[from..ends.next()?])
}

/// Returns the end of a field's text, before the next ` name=`.
fn next_field(text: &[u8]) -> usize {
    let is_name = |at: &usize| {
        let rest = &text[at + 1..];
        let end = rest.iter().position(|b| !(b.is_ascii_alphanumeric() || *b == b'_'));
        end.is_some_and(|end| end > 0 && rest[end] == b'=')
    };
    memchr::memchr_iter(b' ', text).find(is_name).unwrap_or(text.len())
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

/// Finds a name (`name=`, `name = `, `name: `, `name `) and returns the text after it.
fn behind<'a>(key: &Finder<'_>, text: &'a [u8]) -> Option<&'a [u8]> {
    let len = key.needle().len();
    let mut from = 0;
    while let Some(at) = key.find(&text[from..]) {
        let (start, end) = (from + at, from + at + len);
        let alone = start == 0 || text[start - 1] == b' ';
        match text.get(end) {
            Some(b'=') if alone => return Some(&text[end + 1..]),
            Some(b':') if alone => return Some(text[end + 1..].trim_ascii_start()),
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

fn parse(how: How, text: &[u8]) -> Option<Value<'_>> {
    let number = match how {
        How::Number => number(text),
        // Perfetto's tools put `0x` before it.
        How::Hex => radix(text.strip_prefix(b"0x").unwrap_or(text), 16),
        How::Octal => radix(text, 8),
        How::Dev => dev(text),
        How::Page => number(text).map(|byte| byte >> 12),
        How::LastPage => number(split_at(text, b"-")?.1).map(|byte| byte >> 12),
        How::First => number(text.strip_prefix(b"[")?),
        How::Second => number(split_at(text, b"/")?.1),
        How::Bracketed => number(split_at(text, b"(")?.1),
        How::Words(words) => {
            let text = text.split(|&b| b == b' ').next()?;
            let bit = |word: &[u8]| match words.iter().find(|(name, _)| name.as_bytes() == word) {
                Some((_, bit)) => Some(*bit),
                // Bits for which the kernel has no name.
                None => number(word),
            };
            match text.is_empty() {
                true => Some(0),
                false => {
                    text.split(|&b| b == b'|').try_fold(0, |bits, word| Some(bits | bit(word)?))
                }
            }
        }
        How::Word(ends) => {
            let text = text.strip_prefix(b"(").unwrap_or(text);
            let end = text.iter().position(|b| ends.contains(b)).unwrap_or(text.len());
            return Some(Value::Text(&text[..end]));
        }
        How::Until(_) | How::Part(_) => None,
    };
    number.map(Value::Number)
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
