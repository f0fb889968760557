//! A second parser for lines as nearly all are written. It reads the line where it lies in the
//! window, so the line is neither searched for its end nor checked for UTF-8 first.
//!
//! Every line that it does not take goes to the whole parser. The tests of each format show that
//! both give the same for each line that it does take.

use super::text_line;
use crate::{
    Error,
    events::{Events, Skip},
    input::Input,
};

/// The longest field that is taken.
const FIELD_BYTES_MAX: usize = 4096;

/// A reader of lines with two parsers.
pub(super) trait Lines {
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
        if let Some((number, line)) = line(input, |text| reader.quick(text)) {
            events.at(number);
            if let Err(skip) = reader.line(line, events)? {
                events.skipped(skip, number);
            }
            continue;
        }
        let Some(line) = input.line()? else { return Ok(()) };
        text_line(line, events, |text, events| {
            let line = reader.whole(text);
            reader.line(line, events)
        })?;
    }
}

/// Takes the next line and returns its number and what `parse` makes of it, if that is something.
#[inline(always)]
pub(super) fn line<'a, T>(
    input: &'a mut Input<'_>,
    parse: impl FnOnce(&mut Text<'a>) -> Option<T>,
) -> Option<(u64, T)> {
    input.taken(|rest| {
        let mut text = Text { rest };
        let line = parse(&mut text)?;
        Some((line, rest.len() - text.rest.len()))
    })
}

/// The rest of the window. Each method takes what it names, or returns `None`.
pub(super) struct Text<'a> {
    rest: &'a [u8],
}

impl<'a> Text<'a> {
    /// Takes this byte.
    #[inline(always)]
    pub(super) fn byte(&mut self, byte: u8) -> Option<()> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        (first == byte).then_some(())
    }

    /// Takes the next byte.
    #[inline(always)]
    pub(super) fn any(&mut self) -> Option<u8> {
        let (&first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(first)
    }

    /// Takes these bytes if they come next, and returns them as they stand here.
    #[inline(always)]
    pub(super) fn same(&mut self, with: &[u8]) -> Option<&'a [u8]> {
        let (same, rest) =
            self.rest.split_at_checked(with.len()).filter(|(same, _)| *same == with)?;
        self.rest = rest;
        Some(same)
    }

    /// Takes these bytes if they come next, and returns whether they do.
    #[inline(always)]
    pub(super) fn starts(&mut self, with: &[u8]) -> bool {
        match self.rest.strip_prefix(with) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    /// Takes the end of the line.
    #[inline(always)]
    pub(super) fn end(&mut self) -> Option<()> {
        match self.any()? {
            b'\n' => Some(()),
            b'\r' => self.byte(b'\n'),
            _ => None,
        }
    }

    /// Takes digits: at least one, and at most 19, which fit.
    #[inline(always)]
    pub(super) fn number(&mut self) -> Option<u64> {
        self.digits().map(|(number, _)| number)
    }

    /// Takes digits, as [`Self::number`] does. Returns their number, and how many they are.
    #[inline(always)]
    fn digits(&mut self) -> Option<(u64, usize)> {
        const POWERS: [u64; 9] =
            [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
        let (mut number, mut digits) = (0u64, 0);
        loop {
            let next = u64::from_le_bytes(*self.rest.first_chunk()?) ^ repeated(b'0');
            // The highest bit of each byte that is no digit. A carry reaches later bytes only.
            let other = (next.wrapping_add(repeated(0x80 - 10)) | next) & repeated(0x80);
            let many = (other.trailing_zeros() / 8) as usize;
            if many > 0 {
                number =
                    number.wrapping_mul(POWERS[many]).wrapping_add(eight(next << (64 - 8 * many)));
                digits += many;
                self.rest = &self.rest[many..];
            }
            if many < 8 {
                break;
            }
        }
        (1..=19).contains(&digits).then_some((number, digits))
    }

    /// Takes a decimal number: its digits without the point, and the number of those behind it.
    #[inline(always)]
    pub(super) fn decimal(&mut self) -> Option<(u64, u32)> {
        let (whole, before) = self.digits()?;
        if self.rest.first() != Some(&b'.') {
            return Some((whole, 0));
        }
        self.rest = &self.rest[1..];
        let (part, behind) = self.digits()?;
        if before + behind > 19 {
            return None;
        }
        let behind = behind as u32;
        Some((whole.checked_mul(10u64.checked_pow(behind)?)?.checked_add(part)?, behind))
    }

    /// Takes ASCII up to `separator`, and the separator.
    #[inline(always)]
    pub(super) fn until(&mut self, separator: u8) -> Option<&'a [u8]> {
        let field = self.field(separator)?;
        self.byte(separator)?;
        Some(field)
    }

    /// Takes ASCII up to `separator` or a control character, as the end of a line is.
    #[inline(always)]
    pub(super) fn field(&mut self, separator: u8) -> Option<&'a [u8]> {
        let mut at = 0;
        loop {
            let next = u64::from_le_bytes(*self.rest.get(at..)?.first_chunk()?);
            let control = next.wrapping_sub(repeated(b' ')) & !next;
            let same = next ^ repeated(separator);
            let found =
                (control | next | (same.wrapping_sub(repeated(1)) & !same)) & repeated(0x80);
            if found != 0 {
                // A borrow reaches later bytes only: the first is right.
                at += (found.trailing_zeros() / 8) as usize;
                break;
            }
            at += 8;
            if at > FIELD_BYTES_MAX {
                return None;
            }
        }
        let (field, rest) = self.rest.split_at(at);
        self.rest = rest;
        Some(field)
    }
}

/// A word of this byte.
const fn repeated(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// The number of which this word has the eight digits, without their '0', the first lowest.
#[inline(always)]
fn eight(digits: u64) -> u64 {
    const EVERY_FOURTH: u64 = 0x0000_00ff_0000_00ff;
    let pairs = digits.wrapping_mul(10).wrapping_add(digits >> 8);
    let high = (pairs & EVERY_FOURTH).wrapping_mul(100 + (1_000_000 << 32));
    let low = ((pairs >> 16) & EVERY_FOURTH).wrapping_mul(1 + (10_000 << 32));
    high.wrapping_add(low) >> 32
}

#[cfg(test)]
pub(super) mod testing {
    use super::{Input, Lines, Text};
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
        parse: impl FnOnce(&mut Text<'a>) -> Option<T>,
    ) -> Option<T> {
        const NEXT: &str = "0,0,0,0,0,0,0,0\n";
        *text = format!("{line}{end}{NEXT}");
        let mut text = Text { rest: text.as_bytes() };
        let parsed = parse(&mut text)?;
        assert_eq!(text.rest, NEXT.as_bytes(), "{line:?}: not taken whole");
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
            let Some(parsed) = quick(&mut text, (line, end), |text| reader.quick(text)) else {
                return false;
            };
            assert_eq!(parsed, reader.whole(line), "{line:?}");
            true
        };
        let taken = lines.iter().filter(|line| takes(line, "\n")).count();
        assert!(taken as f64 >= share * lines.len() as f64, "{taken} of {} lines", lines.len());
        damaged(lines, |line, n| {
            takes(line, if n % 5 == 0 { "\r\n" } else { "\n" });
        });
    }

    #[test]
    fn numbers_of_all_lengths() {
        for number in [0, 7, 42, 12_345_678, 123_456_789, 1 << 40, 9_999_999_999_999_999_999] {
            for zeros in 0..3 {
                let line = format!("{}{number}", "0".repeat(zeros));
                let mut text = String::new();
                let parsed = quick(&mut text, (&line, "\n"), |text| {
                    let number = text.number()?;
                    text.end()?;
                    Some(number)
                });
                assert!(parsed == Some(number) || line.len() > 19, "{line}: {parsed:?}");
            }
        }
        for other in ["", "18446744073709551615", "-1", "+1", "x", " 1"] {
            let mut text = String::new();
            assert_eq!(quick(&mut text, (other, "\n"), |text| text.number()), None, "{other}");
        }
    }
}
