//! Text in another form than the readers take: UTF-16, as Windows writes it, the zlib stream of
//! `atrace -z`, and ftrace's text as a string of a JSON trace.

use super::{BUFFER_BYTES, Guarded, Limits};
use crate::Error;
use std::io::{self, BufRead, BufReader, Cursor, Read};

/// A form, by which the text is found in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrapping {
    /// `big`: the high byte comes first.
    Utf16 {
        big: bool,
    },
    /// A zlib stream from this byte on.
    Zlib {
        from: usize,
    },
    Json,
}

const KEY: &[u8] = b"systemTraceEvents";

impl Wrapping {
    /// Recognises the form by the first bytes.
    pub(super) fn new(head: &[u8]) -> Option<Self> {
        match head {
            [0xff, 0xfe, ..] => return Some(Self::Utf16 { big: false }),
            [0xfe, 0xff, ..] => return Some(Self::Utf16 { big: true }),
            _ => {}
        }
        for big in [false, true] {
            if is_utf_16(head, big) {
                return Some(Self::Utf16 { big });
            }
        }
        let has = |key: &[u8]| memchr::memmem::find(head, key).is_some();
        if head.trim_ascii_start().starts_with(b"{") && (has(b"\"traceEvents\"") || has(KEY)) {
            return Some(Self::Json);
        }
        zlib_after_trace(head).map(|from| Self::Zlib { from })
    }

    /// Returns the text in these bytes.
    pub(super) fn open<'a>(
        self,
        head: Vec<u8>,
        bytes: Box<dyn BufRead + Send + 'a>,
        limits: &Limits,
    ) -> Box<dyn BufRead + Send + 'a> {
        let mut head = Cursor::new(head);
        if let Self::Zlib { from } = self {
            head.set_position(from as u64);
        }
        let bytes = head.chain(bytes);
        let text: Box<dyn Read + Send + 'a> = match self {
            Self::Utf16 { big } => Box::new(Decoded::new(bytes, Utf16 { big, first: None })),
            Self::Json => Box::new(Decoded::new(bytes, Json::default())),
            Self::Zlib { .. } => Box::new(Guarded {
                unpacked: Box::new(flate2::bufread::ZlibDecoder::new(bytes)),
                given: 0,
                limits: limits.clone(),
            }),
        };
        Box::new(BufReader::with_capacity(BUFFER_BYTES, text))
    }

    /// The error if there was no text.
    pub(super) fn empty(self) -> Error {
        match self {
            Self::Json => Error::Lacks(
                "it is a JSON trace without ftrace's text (systemTraceEvents): its other events \
                 tell of no access to a file"
                    .to_owned(),
            ),
            _ => Error::Empty,
        }
    }
}

/// Whether the bytes are ASCII text in UTF-16, which has no byte-order mark.
fn is_utf_16(head: &[u8], big: bool) -> bool {
    const UNITS_MIN: usize = 4;
    const UNITS_MAX: usize = 64;
    let (units, _) = head.as_chunks::<2>();
    let units = &units[..units.len().min(UNITS_MAX)];
    units.len() >= UNITS_MIN
        && units.iter().all(|&[a, b]| {
            let (high, low) = if big { (a, b) } else { (b, a) };
            high == 0 && matches!(low, b'\t' | b'\n' | b'\r' | b' '..=b'~')
        })
}

/// Returns where a zlib stream begins behind the line `TRACE:`.
fn zlib_after_trace(head: &[u8]) -> Option<usize> {
    const LINES_BYTES_MAX: usize = 4096;
    let lines = &head[..head.len().min(LINES_BYTES_MAX)];
    let mark = memchr::memmem::find(lines, b"TRACE:")?;
    let begins_line = mark == 0 || lines[mark - 1] == b'\n';
    let rest = &lines[mark + b"TRACE:".len()..];
    let end = rest.iter().position(|&b| b == b'\n').filter(|&end| end <= 1)?;
    let &[method, check, ..] = &rest[end + 1..] else { return None };
    let is_zlib = method == 0x78 && (u16::from(method) << 8 | u16::from(check)).is_multiple_of(31);
    (begins_line && is_zlib).then(|| mark + b"TRACE:".len() + end + 1)
}

/// Turns bytes into text, one at a time.
trait Decode {
    /// Takes a byte. Returns whether text can follow.
    fn byte(&mut self, byte: u8, text: &mut Text) -> bool;
}

/// Decoded text.
#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    /// The first half of a character in UTF-16.
    high: Option<u16>,
}

impl Text {
    fn unit(&mut self, unit: u16) {
        if self.high.is_none() && (0xd800..0xdc00).contains(&unit) {
            self.high = Some(unit);
            return;
        }
        for char in char::decode_utf16(self.high.take().into_iter().chain([unit])) {
            let char = char.unwrap_or(char::REPLACEMENT_CHARACTER);
            self.bytes.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
}

struct Decoded<R, D> {
    bytes: R,
    decode: D,
    text: Text,
    /// Number of bytes of the text that were given.
    given: usize,
    ended: bool,
}

impl<R, D> Decoded<R, D> {
    fn new(bytes: R, decode: D) -> Self {
        Self { bytes, decode, text: Text::default(), given: 0, ended: false }
    }
}

impl<R: BufRead, D: Decode> Read for Decoded<R, D> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        while self.given == self.text.bytes.len() {
            self.text.bytes.clear();
            self.given = 0;
            let chunk = if self.ended { &[] } else { self.bytes.fill_buf()? };
            if chunk.is_empty() {
                return Ok(0);
            }
            let used = chunk.len();
            self.ended = !chunk.iter().all(|&byte| self.decode.byte(byte, &mut self.text));
            self.bytes.consume(used);
        }
        let bytes = (&self.text.bytes[self.given..]).read(into)?;
        self.given += bytes;
        Ok(bytes)
    }
}

struct Utf16 {
    big: bool,
    /// The first byte of two.
    first: Option<u8>,
}

impl Decode for Utf16 {
    fn byte(&mut self, byte: u8, text: &mut Text) -> bool {
        match self.first.take() {
            None => self.first = Some(byte),
            Some(first) if self.big => text.unit(u16::from_be_bytes([first, byte])),
            Some(first) => text.unit(u16::from_le_bytes([first, byte])),
        }
        true
    }
}

/// The place in a JSON text, on the way to the string behind [`KEY`] and through it.
#[derive(Clone, Copy, Default)]
enum Json {
    /// Between strings.
    #[default]
    Between,
    /// In a string that is [`KEY`] so far, for this many bytes; `None` if it is another.
    String(Option<usize>),
    /// Behind a backslash of such a string.
    Skipped,
    /// Behind [`KEY`]; `true` behind the colon, too.
    Key(bool),
    /// In the string that is searched for.
    Text,
    /// Behind a backslash of it.
    Escape,
    /// In a number behind `\u`: its value, and how many digits are to come.
    Unit(u16, u8),
}

impl Decode for Json {
    fn byte(&mut self, byte: u8, text: &mut Text) -> bool {
        *self = match (*self, byte) {
            (Self::Between, b'"') => Self::String(Some(0)),
            (Self::Between, _) => Self::Between,
            (Self::String(Some(n)), b'"') if n == KEY.len() => Self::Key(false),
            (Self::String(_), b'"') => Self::Between,
            (Self::String(_), b'\\') => Self::Skipped,
            (Self::String(n), byte) => {
                Self::String(n.filter(|&n| KEY.get(n) == Some(&byte)).map(|n| n + 1))
            }
            (Self::Skipped, _) => Self::String(None),
            (Self::Key(colon), byte) if byte.is_ascii_whitespace() => Self::Key(colon),
            (Self::Key(false), b':') => Self::Key(true),
            (Self::Key(true), b'"') => Self::Text,
            (Self::Key(false), b'"') => Self::String(Some(0)),
            (Self::Key(_), _) => Self::Between,
            (Self::Text, b'"') => return false,
            (Self::Text, b'\\') => Self::Escape,
            (Self::Text, byte) => {
                text.bytes.push(byte);
                Self::Text
            }
            (Self::Escape, b'u') => Self::Unit(0, 4),
            (Self::Escape, byte) => {
                text.bytes.push(match byte {
                    b'n' => b'\n',
                    b't' => b'\t',
                    b'r' => b'\r',
                    other => other,
                });
                Self::Text
            }
            (Self::Unit(n, digits), byte) => {
                let digit = char::from(byte).to_digit(16).unwrap_or(0) as u16;
                let n = n << 4 | digit;
                if digits > 1 {
                    Self::Unit(n, digits - 1)
                } else {
                    text.unit(n);
                    Self::Text
                }
            }
        };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text, given in pieces of one size.
    fn text(bytes: &[u8], piece: usize) -> Option<String> {
        let limits = Limits::default();
        let pieces = BufReader::with_capacity(piece, Cursor::new(bytes.to_vec()));
        let mut text = String::new();
        let mut opened = Wrapping::new(bytes)?.open(Vec::new(), Box::new(pieces), &limits);
        opened.read_to_string(&mut text).expect("UTF-8");
        Some(text)
    }

    fn utf_16(text: &str, big: bool) -> Vec<u8> {
        let bytes = |unit: u16| if big { unit.to_be_bytes() } else { unit.to_le_bytes() };
        text.encode_utf16().flat_map(bytes).collect()
    }

    #[test]
    fn utf_16_of_both_orders_is_text() {
        for big in [false, true] {
            for (bytes, expected) in [
                (utf_16("\u{feff}w 8 ü 😀\r\n", big), "\u{feff}w 8 ü 😀\r\n"),
                (utf_16("w 8\n", big), "w 8\n"),
            ] {
                for piece in 1..4 {
                    assert_eq!(text(&bytes, piece).as_deref(), Some(expected), "{big} {piece}");
                }
            }
        }
        let mut cut = utf_16("\u{feff}w 8 😀", false);
        cut.pop();
        assert_eq!(text(&cut, 3).as_deref(), Some("\u{feff}w 8 "), "half a character is left out");
        for other in [&b"w 8\nr 9\n"[..], b"\0\0\0\0\0\0\0\0", b"a\0b\0", b"a\0b\0c\0d\0\0\x01"] {
            assert_eq!(Wrapping::new(other), None, "{other:?}");
        }
    }

    #[test]
    fn the_string_of_a_json_trace_is_found() {
        let json = r#" {"x": "systemTraceEvents", "a\"systemTraceEvents": {"b": [1, "\\"]},
            "traceEvents": [], "systemTraceEvents" : "\u0023 \"a\"\tb\\\/\ud83d\ude00\n c",
            "more": "systemTraceEvents"}"#;
        for piece in 1..5 {
            assert_eq!(text(json.as_bytes(), piece).as_deref(), Some("# \"a\"\tb\\/😀\n c"));
        }
        for none in [r#"{"traceEvents": []}"#, r#"{"systemTraceEvents": {"type": "fuchsia"}}"#] {
            assert_eq!(text(none.as_bytes(), 7).as_deref(), Some(""));
        }
        assert_eq!(Wrapping::new(br#"{"a": 1}"#), None);
    }

    #[test]
    fn a_zlib_stream_is_searched_for_behind_its_line_only() {
        for (head, from) in [
            (&b"TRACE:\n\x78\x9c..."[..], Some(7)),
            (b"capturing trace... done\r\nTRACE:\r\n\x78\xda...", Some(33)),
            (b"TRACE:\n# tracer: nop\n", None),
            (b"a TRACE:\n\x78\x9c", None),
            (b"TRACE:\n\x78", None),
            (b"TRACE: \n\n\x78\x9c", None),
        ] {
            let found = Wrapping::new(head);
            assert_eq!(found, from.map(|from| Wrapping::Zlib { from }), "{}", head.escape_ascii());
        }
    }
}
