//! A second parser for lines as nearly all are written. It reads the line where it lies in the
//! window: one pass of vector instructions finds the ends of all fields of a block of bytes, and
//! the fields of known lengths are then parsed independently of each other.
//!
//! Every line that it does not take goes to the whole parser. The tests of each format show that
//! both give the same for each line that it does take.

use super::text_line;
use crate::{
    Error,
    events::{Events, Skip},
    input::Input,
};
use wide::u8x16;

/// A reader of lines with two parsers.
pub(super) trait Lines {
    /// Ends a field within a line.
    const SEPARATOR: u8;

    /// A parsed line, or the reason that it gives no event.
    type Line<'a>;

    /// Parses a line with its end, if it is as nearly all are. `None` says nothing about it.
    fn quick<'a>(&self, text: &mut Text<'a>) -> Option<Self::Line<'a>>;

    /// Parses any line.
    fn whole<'a>(&self, line: &'a str) -> Self::Line<'a>;

    /// Emits the events of a line, or returns the reason that it gives none.
    fn line(
        &mut self,
        line: Self::Line<'_>,
        events: &mut Events<'_>,
    ) -> Result<Result<(), Skip>, Error>;
}

/// Passes every non-empty text line to `reader`.
pub(super) fn lines<L: Lines>(
    input: &mut Input<'_>,
    events: &mut Events<'_>,
    reader: &mut L,
) -> Result<(), Error> {
    loop {
        while_taken(input, L::SEPARATOR, |number, text| {
            let Some(line) = reader.quick(text) else { return Ok(false) };
            events.at(number);
            if let Err(skip) = reader.line(line, events)? {
                events.skipped(skip, number);
            }
            Ok(true)
        })?;
        let Some(line) = input.line()? else { return Ok(()) };
        text_line(line, events, |text, events| {
            let line = reader.whole(text);
            reader.line(line, events)
        })?;
    }
}

/// Calls `take` with the number and the text of each line of the window, as long as it takes them.
#[inline(always)]
pub(super) fn while_taken(
    input: &mut Input<'_>,
    separator: u8,
    mut take: impl FnMut(u64, &mut Text<'_>) -> Result<bool, Error>,
) -> Result<(), Error> {
    let (window, first) = input.window();
    let Some(mut text) = Text::new(window, separator) else { return Ok(()) };
    let (mut bytes, mut lines) = (0, 0);
    let taken = loop {
        match take(first + lines, &mut text) {
            // Taken apart, as a result that is dropped whole costs a call.
            Ok(true) => (bytes, lines) = (text.at, lines + 1),
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    input.used(bytes, lines);
    taken
}

/// The window from a line on. Each method takes what it names, or returns `None`.
pub(super) struct Text<'a> {
    window: &'a [u8],
    separator: u8,
    /// Where the next field begins.
    at: usize,
    /// Where the block begins to which `marks` belong.
    block: usize,
    /// A bit for each byte that no field holds, the first lowest, without those taken: the
    /// separator, control characters, and all that is not ASCII.
    marks: u64,
}

/// Bytes whose marks are found at once.
const BLOCK_BYTES: usize = 64;

/// Where a field lies in the window.
#[derive(Clone, Copy)]
pub(super) struct Field {
    begin: usize,
    end: usize,
}

impl<'a> Text<'a> {
    #[inline(always)]
    fn new(window: &'a [u8], separator: u8) -> Option<Self> {
        Some(Self { window, separator, at: 0, block: 0, marks: marks(window, 0, separator)? })
    }

    /// Takes the next byte that no field holds.
    #[inline(always)]
    fn mark(&mut self) -> Option<(usize, u8)> {
        while self.marks == 0 {
            self.block += BLOCK_BYTES;
            self.marks = marks(self.window, self.block, self.separator)?;
        }
        let at = self.block + self.marks.trailing_zeros() as usize;
        self.marks &= self.marks - 1;
        Some((at, *self.window.get(at)?))
    }

    /// Takes a field and the separator behind it.
    #[inline(always)]
    pub(super) fn field(&mut self) -> Option<Field> {
        let (end, mark) = self.mark()?;
        let begin = std::mem::replace(&mut self.at, end + 1);
        (mark == self.separator).then_some(Field { begin, end })
    }

    /// Takes the last field of the line, and the end of the line.
    #[inline(always)]
    pub(super) fn last(&mut self) -> Option<Field> {
        self.next().and_then(|(field, last)| last.then_some(field))
    }

    /// Takes a field and what is behind it. Returns whether that is the end of the line.
    #[inline(always)]
    pub(super) fn next(&mut self) -> Option<(Field, bool)> {
        let (end, mark) = self.mark()?;
        let begin = std::mem::replace(&mut self.at, end + 1);
        let last = match mark {
            mark if mark == self.separator => false,
            b'\n' => true,
            b'\r' => {
                let (end, mark) = self.mark()?;
                let follows = end == self.at && mark == b'\n';
                self.at = end + 1;
                follows.then_some(true)?
            }
            _ => return None,
        };
        Some((Field { begin, end }, last))
    }

    /// Returns a field's text, which is ASCII without control characters.
    #[inline(always)]
    pub(super) fn bytes(&self, field: Field) -> Option<&'a [u8]> {
        self.window.get(field.begin..field.end)
    }

    /// Returns two fields and the separator between them.
    #[inline(always)]
    pub(super) fn both(&self, one: Field, next: Field) -> Option<&'a [u8]> {
        self.window.get(one.begin..next.end)
    }

    /// Returns eight bytes of the window, the first lowest, each without the bits of `without`.
    #[inline(always)]
    fn eight_from(&self, at: usize, without: u8) -> Option<u64> {
        let eight = self.window.get(at..)?.first_chunk()?;
        Some(u64::from_le_bytes(*eight) ^ repeated(without))
    }

    /// Returns the number that a field holds: at least one digit, and at most 19, which fit.
    #[inline(always)]
    pub(super) fn number(&self, Field { begin, end }: Field) -> Option<u64> {
        const BASE: u64 = 100_000_000;
        let first = |many: usize| Some(self.eight_from(begin, b'0')? << (64 - 8 * many));
        let digits = end.checked_sub(begin)?;
        match digits {
            1..=8 => {
                let only = first(digits)?;
                are_digits(only).then(|| number_of(only))
            }
            9..=16 => {
                let (high, low) = (first(digits - 8)?, self.eight_from(end - 8, b'0')?);
                (are_digits(high) & are_digits(low))
                    .then(|| number_of(high) * BASE + number_of(low))
            }
            17..=19 => {
                let (high, low) = (first(digits - 16)?, self.eight_from(end - 8, b'0')?);
                let middle = self.eight_from(end - 16, b'0')?;
                (are_digits(high) & are_digits(middle) & are_digits(low))
                    .then(|| (number_of(high) * BASE + number_of(middle)) * BASE + number_of(low))
            }
            _ => None,
        }
    }

    /// Returns where a field has its first point.
    #[inline(always)]
    fn point(&self, Field { begin, end }: Field) -> Option<usize> {
        let mut at = begin;
        while at < end {
            let other = self.eight_from(at, b'.')?;
            // A borrow reaches later bytes only: the first is right.
            let found = other.wrapping_sub(repeated(1)) & !other & repeated(0x80);
            if found != 0 {
                return Some(at + (found.trailing_zeros() / 8) as usize).filter(|at| *at < end);
            }
            at += 8;
        }
        None
    }

    /// Returns the decimal number that a field holds: its digits without the point, and the number
    /// of those behind it.
    #[inline(always)]
    pub(super) fn decimal(&self, field: Field) -> Option<(u64, u32)> {
        let Field { begin, end } = field;
        let Some(point) = self.point(field) else { return Some((self.number(field)?, 0)) };
        let whole = self.number(Field { begin, end: point })?;
        let part = self.number(Field { begin: point + 1, end })?;
        let behind = end - point - 1;
        if point - begin + behind > 19 {
            return None;
        }
        let behind = behind as u32;
        Some((whole.checked_mul(10u64.checked_pow(behind)?)?.checked_add(part)?, behind))
    }

    /// Returns the decimal number that a field holds, in millionths, unless it is so near to a half
    /// of one that a float of it might be rounded to the other side.
    #[inline(always)]
    pub(super) fn millionths(&self, field: Field) -> Option<u64> {
        let Field { begin, end } = field;
        let point = self.point(field)?;
        let whole = self.number(Field { begin, end: point })?;
        let first = self.eight_from(point + 1, b'0')?;
        let (first, last) = match end - point - 1 {
            digits @ 1..=8 => (first & (u64::MAX >> (64 - 8 * digits)), 0),
            9..=16 => (first, self.eight_from(end - 8, b'0')?),
            _ => return None,
        };
        if !are_digits(first) || !are_digits(last) {
            return None;
        }
        let part = number_of(first);
        let up = match part % 100 {
            49..=51 => return None,
            hundredths => u64::from(hundredths > 50),
        };
        whole.checked_mul(1_000_000)?.checked_add(part / 100 + up)
    }

    /// Splits a field at the last `byte`, which is no digit, and behind which is a number of at
    /// most seven digits.
    #[inline(always)]
    pub(super) fn numbered(&self, field: Field, byte: u8) -> Option<(Field, u64)> {
        let Field { begin, end } = field;
        let ends = match end.checked_sub(8) {
            Some(at) => self.eight_from(at, b'0')?,
            // The window begins with the field.
            None if end == 0 => return None,
            None => (self.eight_from(0, 0)? << (64 - 8 * end)) ^ repeated(b'0'),
        };
        let digits = (others(ends).leading_zeros() / 8) as usize;
        if !(1..8).contains(&digits) {
            return None;
        }
        let at = (end - digits).checked_sub(1)?;
        let number = number_of(ends & (u64::MAX << (64 - 8 * digits)));
        (at >= begin && *self.window.get(at)? == byte).then_some((Field { begin, end: at }, number))
    }
}

/// Returns the marks of a block of the window; `None` behind its end.
#[inline(always)]
fn marks(window: &[u8], at: usize, separator: u8) -> Option<u64> {
    let rest = window.get(at..).filter(|rest| !rest.is_empty())?;
    if let Some(block) = rest.first_chunk() {
        return Some(marks_of(block, separator));
    }
    let mut block = [0; BLOCK_BYTES];
    block[..rest.len()].copy_from_slice(rest);
    Some(marks_of(&block, separator))
}

#[inline(always)]
fn marks_of(block: &[u8; BLOCK_BYTES], separator: u8) -> u64 {
    let (separator, controls) = (u8x16::splat(separator), u8x16::splat(b' ' - 1));
    let (parts, _) = block.as_chunks();
    let mut marks = 0;
    for (n, part) in parts.iter().enumerate() {
        let part = u8x16::new(*part);
        // The highest bit of each byte is taken: that of a byte itself is set if it is not ASCII.
        let found = part.simd_eq(separator) | part.min(controls).simd_eq(part) | part;
        marks |= u64::from(found.to_bitmask() as u16) << (16 * n);
    }
    marks
}

/// Whether two short texts are equal, without a call.
#[inline(always)]
pub(super) fn equal(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    match one.len() {
        // Bytes that both chunks hold are compared twice.
        8..=16 => {
            one.first_chunk::<8>() == other.first_chunk()
                && one.last_chunk::<8>() == other.last_chunk()
        }
        4..8 => {
            one.first_chunk::<4>() == other.first_chunk()
                && one.last_chunk::<4>() == other.last_chunk()
        }
        len @ 1..4 => {
            let at = |n: usize| one[n] == other[n];
            at(0) & at(len / 2) & at(len - 1)
        }
        _ => one == other,
    }
}

/// A word of this byte.
const fn repeated(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// The highest bit of each byte of a word, without their '0', that is no digit. Behind a byte that
/// is not ASCII, a carry may also set the bit of a digit.
#[inline(always)]
fn others(word: u64) -> u64 {
    (word.wrapping_add(repeated(0x80 - 10)) | word) & repeated(0x80)
}

/// Whether all bytes of a word, without their '0', are digits.
#[inline(always)]
fn are_digits(word: u64) -> bool {
    others(word) == 0
}

/// The number of which this word has the eight digits, without their '0', the first lowest.
#[inline(always)]
fn number_of(digits: u64) -> u64 {
    const EVERY_FOURTH: u64 = 0x0000_00ff_0000_00ff;
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let high = (pairs & EVERY_FOURTH).wrapping_mul(100 + (1_000_000 << 32));
    let low = ((pairs >> 16) & EVERY_FOURTH).wrapping_mul(1 + (10_000 << 32));
    high.wrapping_add(low) >> 32
}

#[cfg(test)]
pub(super) mod testing {
    use super::{Field, Input, Lines, Text, equal};
    use crate::events::{Events, Kept};
    use rand::{RngExt as _, SeedableRng};
    use rand_pcg::Pcg64;
    use std::fmt::Debug;

    /// Calls `check` with `lines`, without their ends, and with a hundred thousand damaged ones.
    pub(in super::super) fn damaged(lines: &[&str], mut check: impl FnMut(&str, u64)) {
        const LETTERS: &[u8] = b"09-+., \t\"wrRW:/ae\r\xc3";
        let mut random = Pcg64::seed_from_u64(1);
        for n in 0..100_000 {
            let mut line = lines[n as usize % lines.len()].as_bytes().to_vec();
            for _ in 0..random.random_range(0..4) {
                let at = random.random_range(0..=line.len());
                let letter = LETTERS[random.random_range(0..LETTERS.len())];
                match random.random_range(0..4) {
                    0 => line.insert(at, letter),
                    1 if at < line.len() => line[at] = letter,
                    2 if at < line.len() => drop(line.remove(at)),
                    _ => {
                        let from = random.random_range(0..=at);
                        let part = line[from..at].to_vec();
                        line.splice(at..at, part);
                    }
                }
            }
            // At the end it would be a part of the end.
            if let Ok(line) = std::str::from_utf8(&line) {
                check(line.trim_end_matches('\r'), n);
            }
        }
    }

    /// Returns what the first parser makes of a line that ends with `end`; it has taken all of it.
    pub(in super::super) fn quick<'a, T>(
        text: &'a mut String,
        (line, end): (&str, &str),
        separator: u8,
        parse: impl FnOnce(&mut Text<'a>) -> Option<T>,
    ) -> Option<T> {
        const NEXT: &str = "0,0,0,0,0,0,0,0\n";
        *text = format!("{line}{end}{NEXT}");
        let mut text = Text::new(text.as_bytes(), separator)?;
        let parsed = parse(&mut text)?;
        assert_eq!(text.at, line.len() + end.len(), "{line:?}: not taken whole");
        Some(parsed)
    }

    /// Checks that both parsers of a reader agree on lines like these, and that the first takes at
    /// least `share` of these themselves. The reader has read all of them before.
    pub(in super::super) fn agree<L: Lines>(mut reader: L, lines: &[&str], share: f64)
    where
        for<'a> L::Line<'a>: Debug + PartialEq,
    {
        let mut kept = Kept::default();
        let mut events = Events::new(&mut kept);
        let mut bytes = lines.join("\n").into_bytes();
        bytes.push(b'\n');
        let mut bytes = &bytes[..];
        super::lines(&mut Input::new(&mut bytes), &mut events, &mut reader).unwrap();

        let mut text = String::new();
        let mut takes = |line: &str, end: &str| {
            let parsed = quick(&mut text, (line, end), L::SEPARATOR, |text| reader.quick(text));
            let Some(parsed) = parsed else { return false };
            assert_eq!(parsed, reader.whole(line), "{line:?}");
            true
        };
        let taken = lines.iter().filter(|line| takes(line, "\n")).count();
        assert!(taken as f64 >= share * lines.len() as f64, "{taken} of {} lines", lines.len());
        damaged(lines, |line, n| {
            takes(line, if n % 5 == 0 { "\r\n" } else { "\n" });
        });
    }

    /// Parses a line of one field.
    pub(in super::super) fn only<T>(
        line: &str,
        parse: impl Fn(&Text<'_>, Field) -> Option<T>,
    ) -> Option<T> {
        quick(&mut String::new(), (line, "\n"), b',', |text| {
            let field = text.last()?;
            parse(text, field)
        })
    }

    #[test]
    fn numbers_of_all_lengths() {
        for number in [0, 7, 42, 12_345_678, 123_456_789, 1 << 40, 9_999_999_999_999_999_999] {
            for zeros in 0..12 {
                let line = format!("{}{number}", "0".repeat(zeros));
                let parsed = only(&line, |text, field| text.number(field));
                assert_eq!(parsed, (line.len() <= 19).then_some(number), "{line}");
            }
        }
        for other in ["", "18446744073709551615", "-1", "+1", "x", " 1", "1234567890x", "x1234567"]
        {
            assert_eq!(only(other, |text, field| text.number(field)), None, "{other}");
        }
    }

    #[test]
    fn decimals() {
        for (line, parsed) in [
            ("0.5", Some((5, 1))),
            ("164353.71699999997", Some((16_435_371_699_999_997, 11))),
            ("123456789.25", Some((12_345_678_925, 2))),
            ("12345678", Some((12_345_678, 0))),
            (".5", None),
            ("5.", None),
            ("1.2.3", None),
            ("12345678901.234567890", None),
        ] {
            assert_eq!(only(line, |text, field| text.decimal(field)), parsed, "{line}");
        }
    }

    #[test]
    fn millionths() {
        for (line, parsed) in [
            ("0.5", Some(500_000)),
            ("164353.701", Some(164_353_701_000)),
            ("164353.71699999997", Some(164_353_717_000)),
            ("164353.7170000200", Some(164_353_717_000)),
            ("1.23456789", Some(1_234_568)),
            ("1.2345672", Some(1_234_567)),
            ("1.2345675", None),
            ("1.23456750000001", None),
            ("1.23456749999999", None),
            ("1.00000000000000001", None),
            ("1.0000000x", None),
            ("1.00000000x", None),
            ("1.000000000x", None),
            ("1", None),
            ("1.", None),
            (".1", None),
        ] {
            assert_eq!(only(line, |text, field| text.millionths(field)), parsed, "{line}");
        }
    }

    #[test]
    fn a_number_behind_a_byte() {
        let numbered = |before: &str, line: &str| {
            let window = format!("{before}{line},----------\n");
            let mut text = Text::new(window.as_bytes(), b',')?;
            for _ in 0..before.len().min(1) {
                text.last()?;
            }
            let field = text.field()?;
            let (name, number) = text.numbered(field, b'-')?;
            Some((String::from_utf8_lossy(text.bytes(name)?).into_owned(), number))
        };
        for (line, name, number) in
            [("app-101", "app", 101), ("a-b-7", "a-b", 7), ("-1234567", "", 1_234_567)]
        {
            for before in ["", "\n", "before\n"] {
                let parsed = numbered(before, line);
                assert_eq!(parsed, Some((name.to_owned(), number)), "{before}{line}");
            }
        }
        for other in ["app", "app-", "101", "app-12345678", "app-1x", "", "9"] {
            assert_eq!(numbered("before\n", other), None, "{other}");
            assert_eq!(numbered("", other), None, "{other}");
        }
    }

    /// Marks are found in all places of a block, and behind it.
    #[test]
    fn fields_of_all_lengths() {
        for before in 0..200 {
            for len in [0, 1, 7, 8, 9, 63, 64, 65, 127, 128] {
                let line = format!("{},{}\r\n", "a".repeat(before), "b".repeat(len));
                let mut text = Text::new(line.as_bytes(), b',').unwrap();
                let (one, other) = (text.field().unwrap(), text.last().unwrap());
                assert_eq!(text.bytes(one).unwrap().len(), before);
                assert_eq!(text.bytes(other).unwrap(), "b".repeat(len).as_bytes());
                assert_eq!(text.at, line.len());
                assert!(text.field().is_none() && text.next().is_none());
            }
        }
    }

    #[test]
    fn equal_texts() {
        for len in 0..20 {
            let text = vec![b'a'; len];
            assert!(equal(&text, &text.clone()));
            assert!(!equal(&text, &vec![b'a'; len + 1]));
            for at in 0..len {
                let mut other = text.clone();
                other[at] = b'b';
                assert!(!equal(&text, &other), "{len}, {at}");
            }
        }
    }
}
