//! The first of a line's two parsers, for lines as nearly all are written. It reads the line where
//! it lies in the window, and each method takes what a format expects next: a number, eight digits
//! at a time; a name, whose end vectors find; or a text that was there before, which is compared
//! whole.
//!
//! Every line that it does not take goes to the whole parser. The tests of each format show that
//! both give the same for each line that it does take.

use super::text_line;
use crate::{
    Error,
    events::{Events, Skip},
    input::{Input, SLACK_BYTES},
};
use wide::u8x16;

mod known;
mod numbers;
#[cfg(test)]
pub(super) mod testing;

pub(super) use known::{KnownText, Memo, equal};
pub(super) use numbers::Near;

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

    /// Returns a line that says the same in the words of [`Lines::quick`].
    #[cfg(test)]
    fn abbreviated<'a>(&self, line: Self::Line<'a>) -> Self::Line<'a> {
        line
    }
}

/// Passes every non-empty text line to `reader`.
pub(super) fn lines<L: Lines>(
    input: &mut Input<'_>,
    events: &mut Events<'_>,
    reader: &mut L,
) -> Result<(), Error> {
    loop {
        while_taken(input, |number, text| {
            let Some(line) = reader.quick(text) else { return Ok(false) };
            events.at(number);
            if let Err(skip) = reader.line(line, events)? {
                events.skipped(skip, number);
            }
            Ok(true)
        })?;
        if !whole_line(input, events, reader)? {
            return Ok(());
        }
    }
}

/// Passes the next line to `reader`, whatever it is. Returns whether there was one.
#[inline(never)]
fn whole_line<L: Lines>(
    input: &mut Input<'_>,
    events: &mut Events<'_>,
    reader: &mut L,
) -> Result<bool, Error> {
    let Some(line) = input.line()? else { return Ok(false) };
    text_line(line, events, |text, events| {
        let line = reader.whole(text);
        reader.line(line, events)
    })?;
    Ok(true)
}

/// Calls `take` with the number and the text of each line of the window, as long as it takes them.
#[inline(always)]
pub(super) fn while_taken(
    input: &mut Input<'_>,
    mut take: impl FnMut(u64, &mut Text<'_>) -> Result<bool, Error>,
) -> Result<(), Error> {
    let (window, unused, first) = input.window();
    let (mut bytes, mut lines) = (0, 0);
    let taken = loop {
        let rest = window.get(bytes..).and_then(<[u8]>::first_chunk);
        let (Some(line), true) = (rest, bytes < unused) else { break Ok(()) };
        let mut text = Text { line, unused: unused - bytes, at: 0 };
        match take(first + lines, &mut text) {
            // Taken apart, as a result that is dropped whole costs a call.
            Ok(true) => (bytes, lines) = (bytes + text.at, lines + 1),
            Ok(false) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    input.used(bytes, lines);
    taken
}

/// A line, and what follows it in the window. Each method takes what it names, or returns `None`.
pub(super) struct Text<'a> {
    line: &'a [u8; LINE_BYTES],
    /// Bytes that have been read from the trace.
    unused: usize,
    /// The next byte to be taken.
    at: usize,
}

/// Bytes in which a line must end: there are as many behind all that have been read.
const LINE_BYTES: usize = SLACK_BYTES;

impl<'a> Text<'a> {
    /// Returns eight bytes, the first lowest.
    #[inline(always)]
    fn eight(&self, at: usize) -> Option<u64> {
        eight(self.line, at)
    }

    /// Takes this byte.
    #[inline(always)]
    pub(super) fn byte(&mut self, byte: u8) -> Option<()> {
        let found = *self.line.get(self.at)? == byte;
        self.at += 1;
        found.then_some(())
    }

    /// Takes one of two texts of at most eight bytes. Returns whether it is the first; `None`, with
    /// nothing taken, if it is neither.
    #[inline(always)]
    pub(super) fn either<const N: usize, const M: usize>(
        &mut self,
        one: &[u8; N],
        other: &[u8; M],
    ) -> Option<bool> {
        // Without the bytes behind the text.
        let there = self.eight(self.at)?;
        let (is_one, is_other) =
            (there << (64 - 8 * N) == last_of(one), there << (64 - 8 * M) == last_of(other));
        if !is_one && !is_other {
            return None;
        }
        self.at += if is_one { N } else { M };
        Some(is_one)
    }

    /// Takes the end of the line.
    #[inline(always)]
    pub(super) fn end(&mut self) -> Option<()> {
        self.at += match *self.line.get(self.at)? {
            b'\n' => 1,
            b'\r' if *self.line.get(self.at + 1)? == b'\n' => 2,
            _ => return None,
        };
        // Behind what has been read, the window has bytes of long ago.
        (self.at <= self.unused).then_some(())
    }

    /// Takes a separator or the end of the line. Returns whether it is the end.
    #[inline(always)]
    pub(super) fn separator_or_end(&mut self, separator: u8) -> Option<bool> {
        if *self.line.get(self.at)? == separator {
            self.at += 1;
            return Some(false);
        }
        self.end().map(|()| true)
    }

    /// Whether this byte comes next.
    #[inline(always)]
    pub(super) fn comes(&self, byte: u8) -> bool {
        self.line.get(self.at) == Some(&byte)
    }

    /// Takes all blanks and tabs that come next.
    #[inline(always)]
    pub(super) fn blanks(&mut self) {
        while self.comes(b' ') || self.comes(b'\t') {
            self.at += 1;
        }
    }

    /// Takes blanks and tabs, or the end of the line with those before it. Returns whether it is
    /// the end.
    #[inline(always)]
    pub(super) fn blanks_or_end(&mut self) -> Option<bool> {
        let begin = self.at;
        self.blanks();
        if self.at > begin && !self.comes(b'\n') && !self.comes(b'\r') {
            return Some(false);
        }
        self.end().map(|()| true)
    }

    /// Takes a field up to its end: the separator, a control character, or one that is not ASCII.
    #[inline(always)]
    pub(super) fn field(&mut self, separator: u8) -> Option<Field<'a>> {
        let (separator, controls) = (u8x16::splat(separator), u8x16::splat(b' ' - 1));
        let begin = self.at;
        let mut block = begin;
        let marks = loop {
            let part = sixteen(self.line, block)?;
            // The highest bit of each byte is taken: that of a byte itself is set if it is not
            // ASCII.
            let found = part.simd_eq(separator) | part.min(controls).simd_eq(part) | part;
            match found.to_bitmask() {
                0 => block += 16,
                marks => break marks,
            }
        };
        self.at = block + marks.trailing_zeros() as usize;
        Some(Field { line: self.line, begin, end: self.at })
    }
}

/// Returns sixteen bytes of a line.
#[inline(always)]
fn sixteen(line: &[u8; LINE_BYTES], at: usize) -> Option<u8x16> {
    if at > LINE_BYTES - 16 {
        return None;
    }
    Some(u8x16::new(*line[at..].first_chunk()?))
}

/// Returns eight bytes of a line, the first lowest.
#[inline(always)]
fn eight(line: &[u8; LINE_BYTES], at: usize) -> Option<u64> {
    if at > LINE_BYTES - 8 {
        return None;
    }
    Some(u64::from_le_bytes(*line[at..].first_chunk()?))
}

/// Returns a word that ends with this text and begins with bytes of 0.
#[inline(always)]
const fn last_of(text: &[u8]) -> u64 {
    let (mut word, mut n) = (0, 0);
    while n < text.len() {
        word = word >> 8 | (text[n] as u64) << 56;
        n += 1;
    }
    word
}

/// ASCII text without control characters.
#[derive(Clone, Copy)]
pub(super) struct Field<'a> {
    line: &'a [u8; LINE_BYTES],
    begin: usize,
    end: usize,
}

impl<'a> Field<'a> {
    #[inline(always)]
    pub(super) fn bytes(self) -> &'a [u8] {
        &self.line[self.begin..self.end]
    }
}

#[cfg(test)]
mod tests {
    use super::{KnownText, LINE_BYTES, Lines, Text, testing::only};
    use crate::{
        events::{Events, Kept},
        input::Input,
    };

    /// Fields of all lengths are found, and known again.
    #[test]
    fn fields_of_all_lengths() {
        for before in (0..200).chain(900..LINE_BYTES) {
            for len in [0, 1, 7, 8, 9, 15, 16, 17, 63, 64, 65, 128] {
                let (one, other) = ("a".repeat(before), "b".repeat(len));
                let line = format!("{one},{other}");
                let fits = line.len() + 16 <= LINE_BYTES;
                let taken = only(&line, |text| {
                    let found = text.field(b',')?;
                    text.byte(b',')?;
                    let next = text.field(b',')?;
                    assert_eq!((found.bytes(), next.bytes()), (one.as_bytes(), other.as_bytes()));
                    Some(())
                });
                assert!(taken.is_some() || !fits, "{before}, {len}");
                let Some(known) = KnownText::new(one.as_bytes()) else {
                    assert!(before == 0 || before > 64, "{before}");
                    continue;
                };
                let taken = only(&line, |text| {
                    text.known(&known)?;
                    text.byte(b',')?;
                    text.field(b',').map(|field| field.bytes().len())
                });
                assert_eq!(taken, Some(len), "{before}, {len}");
                for at in 0..before {
                    let mut wrong = one.clone().into_bytes();
                    wrong[at] = b'c';
                    let wrong = KnownText::new(&wrong).unwrap();
                    assert!(only(&line, |text| text.known(&wrong)).is_none(), "{before}, {at}");
                }
            }
        }
        for mark in ["\t", "\u{7f}", "é", "\r"] {
            let line = format!("ab{mark}c,d");
            let found = only(&line, |text| {
                let found = text.field(b',')?;
                text.byte(b',')?;
                text.field(b',')?;
                Some(found.bytes().len())
            });
            // DEL is no mark: it is ASCII and behind the blank.
            assert_eq!(found, (mark == "\u{7f}").then_some(4), "{mark:?}");
        }
    }

    #[test]
    fn one_of_two_texts() {
        let either = |line: &str| {
            only(line, |text| {
                let found = text.either(b"Write,", b"R,");
                if found.is_none() {
                    text.field(b' ')?;
                }
                Some(found)
            })
        };
        for (line, found) in [
            ("Write,", Some(true)),
            ("R,", Some(false)),
            ("Wrote,", None),
            ("R;", None),
            ("", None),
        ] {
            assert_eq!(either(line), Some(found), "{line}");
        }
    }

    /// Lines that each read cuts elsewhere. The window keeps what an earlier read left behind the
    /// bytes that it has.
    #[test]
    fn lines_are_whole_wherever_reads_end() {
        struct Numbers(Vec<u64>, u64);
        impl Lines for Numbers {
            type Line<'a> = Option<u64>;
            fn quick<'a>(&self, text: &mut Text<'a>) -> Option<Option<u64>> {
                let number = text.number()?;
                text.end()?;
                Some(Some(number))
            }
            fn whole(&self, line: &str) -> Option<u64> {
                line.parse().ok()
            }
            fn line(
                &mut self,
                line: Option<u64>,
                events: &mut Events<'_>,
            ) -> Result<Result<(), crate::events::Skip>, crate::Error> {
                self.0.push(line.expect("a number"));
                self.1 += events.line();
                Ok(Ok(()))
            }
        }
        let numbers: Vec<u64> = (0..3000).map(|n| 10u64.pow(n % 14) + u64::from(n)).collect();
        let text: String = numbers.iter().map(|number| format!("{number}\n")).collect();
        for bytes in (1..100).chain([1000, 4000, 1 << 20]) {
            let mut kept = Kept::default();
            let mut reader = Numbers(Vec::new(), 0);
            let mut read = std::io::BufReader::with_capacity(bytes, Short(text.as_bytes(), bytes));
            super::lines(&mut Input::new(&mut read), &mut Events::new(&mut kept), &mut reader)
                .unwrap();
            assert_eq!(reader.0, numbers, "{bytes} at once");
            assert_eq!(reader.1, (1..=3000).sum::<u64>(), "{bytes} at once");
        }
    }

    /// Returns at most so many bytes at once.
    struct Short<'a>(&'a [u8], usize);

    impl std::io::Read for Short<'_> {
        fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
            let most = self.1.min(into.len());
            self.0.read(&mut into[..most])
        }
    }
}
