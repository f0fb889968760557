//! A second parser for lines as nearly all are written. It reads the line where it lies in the
//! window, and each method takes what a format expects next: a number, eight digits at a time; a
//! name, whose end vectors find; or a text that was there before, which is compared whole.
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
    fn in_short<'a>(&self, line: Self::Line<'a>) -> Self::Line<'a> {
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

const ZEROS: u64 = repeated(b'0');

/// The powers of ten that a number of up to eight digits is short of.
const POWERS: [u64; 8] = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000];
const EIGHT_DIGITS: u64 = 100_000_000;

impl<'a> Text<'a> {
    /// Returns eight bytes, the first lowest.
    #[inline(always)]
    fn eight(&self, at: usize) -> Option<u64> {
        if at > LINE_BYTES - 8 {
            return None;
        }
        Some(u64::from_le_bytes(*self.line[at..].first_chunk()?))
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

    /// Takes a number of at most 19 digits.
    #[inline(always)]
    pub(super) fn number(&mut self) -> Option<u64> {
        let first = self.eight(self.at)? ^ ZEROS;
        let others = others(first);
        if others == 0 {
            return self.longer_number(first);
        }
        // The lowest bit that is set is the last of a byte.
        let bits = others.trailing_zeros();
        self.at += (bits / 8) as usize;
        (bits > 7).then(|| number_of(first << ((71 - bits) % 64)))
    }

    /// Takes a number that begins with these eight digits.
    #[inline(always)]
    fn longer_number(&mut self, first: u64) -> Option<u64> {
        let next = self.eight(self.at + 8)? ^ ZEROS;
        let others = others(next);
        if others == 0 {
            let (number, digits) = longest_number(first, next, self.eight(self.at + 16)?)?;
            self.at += digits;
            return Some(number);
        }
        let bits = others.trailing_zeros();
        let digits = (bits / 8) as usize;
        self.at += 8 + digits;
        Some(number_of(first) * POWERS[digits % 8] + number_of((next << 8) << (63 - bits)))
    }

    /// Takes a number that is a little more than the one before.
    #[inline(always)]
    pub(super) fn number_near(&mut self, near: &Near) -> Option<u64> {
        let Near { head, head_end, digits, base } = *near;
        if self.eight(self.at)? == head && self.eight(self.at + digits - 8)? == head_end {
            let low = self.eight(self.at + digits)? ^ ZEROS;
            self.at += digits + 8;
            return are_digits(low).then(|| base + number_of(low));
        }
        self.number()
    }

    /// Takes a text that is known.
    #[inline(always)]
    pub(super) fn known(&mut self, known: &Known) -> Option<()> {
        if !known.is_at(self.line, self.at) {
            return None;
        }
        self.at += known.bytes;
        Some(())
    }

    /// Takes a decimal number. Returns its digits without the point, and the number of those behind
    /// it.
    #[inline(always)]
    pub(super) fn decimal(&mut self) -> Option<(u64, u32)> {
        let begin = self.at;
        let whole = self.number()?;
        if *self.line.get(self.at)? != b'.' {
            return Some((whole, 0));
        }
        self.at += 1;
        let point = self.at;
        let part = self.number()?;
        let behind = self.at - point;
        if self.at - begin > 20 {
            return None;
        }
        let behind = behind as u32;
        Some((whole.checked_mul(10u64.checked_pow(behind)?)?.checked_add(part)?, behind))
    }

    /// Takes all numbers that follow.
    #[inline(always)]
    pub(super) fn numbers(&mut self) -> Option<Numbers<'_, 'a>> {
        let (block, marks) = (self.at, others_of(self.line, self.at)?);
        Some(Numbers { text: self, block, marks })
    }
}

/// The rest of a line of numbers. Their ends are found together, so that no number waits for the
/// one before.
pub(super) struct Numbers<'t, 'a> {
    text: &'t mut Text<'a>,
    /// Where the bytes begin to which `marks` belong.
    block: usize,
    /// A bit for each byte that is no digit, the first lowest, without those taken.
    marks: u32,
}

/// Bytes whose marks are found at once.
const BLOCK_BYTES: usize = 32;

impl Numbers<'_, '_> {
    /// Returns where the number ends that comes next.
    #[inline(always)]
    fn mark(&mut self) -> Option<usize> {
        while self.marks == 0 {
            self.block += BLOCK_BYTES;
            self.marks = others_of(self.text.line, self.block)?;
        }
        let end = self.block + self.marks.trailing_zeros() as usize;
        self.marks &= self.marks - 1;
        Some(end)
    }

    /// Takes a number of at most 16 digits and the byte behind it.
    #[inline(always)]
    pub(super) fn number(&mut self, behind: u8) -> Option<u64> {
        let (begin, end) = (self.text.at, self.mark()?);
        if *self.text.line.get(end)? != behind {
            return None;
        }
        self.text.at = end + 1;
        number_between(self.text.line, begin, end)
    }

    /// Takes the last number, of at most 16 digits, and the end of the line.
    #[inline(always)]
    pub(super) fn any_last_number(&mut self) -> Option<()> {
        let begin = self.text.at;
        self.text.at = self.mark()?;
        let digits = self.text.at - begin;
        self.text.end()?;
        (1..=16).contains(&digits).then_some(())
    }

    /// Takes a decimal number with a point and the end of the line. Returns it in millionths,
    /// unless it is so near to a half of one that a float of it might be rounded to the other side.
    #[inline(always)]
    pub(super) fn last_millionths(&mut self) -> Option<u64> {
        let whole = self.number(b'.')?;
        let begin = self.text.at;
        self.text.at = self.mark()?;
        let digits = self.text.at - begin;
        self.text.end()?;
        if !(1..=16).contains(&digits) {
            return None;
        }
        // A float of the digits behind the first eight is rounded as they are.
        let first = self.text.eight(begin)? ^ ZEROS;
        let part = number_of(first & (u64::MAX >> (64 - 8 * digits.min(8))));
        let up = match part % 100 {
            49..=51 => return None,
            hundredths => u64::from(hundredths > 50),
        };
        whole.checked_mul(1_000_000)?.checked_add(part / 100 + up)
    }
}

/// Returns a bit for each byte of a block that is no digit.
#[inline(always)]
fn others_of(line: &[u8; LINE_BYTES], at: usize) -> Option<u32> {
    let digits = |at: usize| {
        let values = sixteen(line, at)? - u8x16::splat(b'0');
        Some(values.min(u8x16::splat(9)).simd_eq(values).to_bitmask())
    };
    Some(!(digits(at)? | digits(at + 16)? << 16))
}

/// Returns the number that digits are; `None` if there are none, or more than sixteen.
#[inline(always)]
fn number_between(line: &[u8; LINE_BYTES], begin: usize, end: usize) -> Option<u64> {
    let digits = end - begin;
    let first = eight(line, begin)? ^ ZEROS;
    match digits {
        1..=8 => Some(number_of(first << (64 - 8 * digits))),
        9..=16 => {
            let last = eight(line, end - 8)? ^ ZEROS;
            Some(number_of(first << (128 - 8 * digits)) * EIGHT_DIGITS + number_of(last))
        }
        _ => None,
    }
}

/// Returns a number that begins with these sixteen digits, and how many it has. 20 may not fit.
#[cold]
#[inline(never)]
fn longest_number(first: u64, next: u64, last: u64) -> Option<(u64, usize)> {
    let last = last ^ ZEROS;
    let bits = others(last).trailing_zeros();
    let digits = (bits / 8) as usize;
    if digits > 3 {
        return None;
    }
    let high = number_of(first) * EIGHT_DIGITS + number_of(next);
    let number = high * POWERS[digits] + number_of((last << 8) << (63 - bits));
    Some((number, 16 + digits))
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

    /// Returns the last eight bytes, or as many as there are behind bytes of 0.
    #[inline(always)]
    fn tail(self) -> Option<u64> {
        let Self { line, begin, end } = self;
        let bytes = (end - begin).min(8);
        if bytes == 0 {
            return None;
        }
        let last = match end.checked_sub(8) {
            Some(at) => eight(line, at)?,
            // It begins within the first eight bytes of the line.
            None => eight(line, 0)? << (64 - 8 * end),
        };
        Some(last & (u64::MAX << (64 - 8 * bytes)))
    }
}

/// The first digits of numbers of 17 to 19 digits, of which the last eight change.
#[derive(Debug)]
pub(super) struct Near {
    head: u64,
    /// The last eight of the first digits.
    head_end: u64,
    digits: usize,
    /// The number whose last eight digits are 0.
    base: u64,
}

impl Default for Near {
    /// No number.
    fn default() -> Self {
        Self { head: 0, head_end: 0, digits: 8, base: 0 }
    }
}

impl Near {
    /// The next numbers are probably near this one.
    #[inline(always)]
    pub(super) fn follow(&mut self, number: u64) {
        if number.wrapping_sub(self.base) >= EIGHT_DIGITS {
            self.other(number);
        }
    }

    #[cold]
    fn other(&mut self, number: u64) {
        let head = number / EIGHT_DIGITS;
        let text = head.to_string();
        *self = match (text.as_bytes().first_chunk(), text.as_bytes().last_chunk()) {
            (Some(first), Some(last)) if text.len() <= 11 => Self {
                head: u64::from_le_bytes(*first),
                head_end: u64::from_le_bytes(*last),
                digits: text.len(),
                base: head * EIGHT_DIGITS,
            },
            _ => Self::default(),
        };
    }
}

/// A text that may come again.
#[derive(Clone, Debug)]
pub(super) struct Known {
    parts: [[u8; 16]; KNOWN_PARTS],
    bytes: usize,
    /// A bit for each byte of the last part that is none of the text.
    behind: u16,
}

const KNOWN_PARTS: usize = 4;

impl Known {
    /// `None` if it is empty or too long.
    pub(super) fn new(text: &[u8]) -> Option<Self> {
        let mut parts = [[0; 16]; KNOWN_PARTS];
        parts.as_flattened_mut().get_mut(..text.len())?.copy_from_slice(text);
        let last = (text.len().checked_sub(1)?) % 16;
        Some(Self { parts, bytes: text.len(), behind: !1 << last })
    }

    #[inline(always)]
    fn is_at(&self, line: &[u8; LINE_BYTES], at: usize) -> bool {
        for (n, part) in self.parts.iter().enumerate() {
            let Some(there) = sixteen(line, at + 16 * n) else { return false };
            let same = there.simd_eq(u8x16::new(*part)).to_bitmask() as u16;
            if 16 * n + 16 >= self.bytes {
                return same | self.behind == u16::MAX;
            }
            if same != u16::MAX {
                return false;
            }
        }
        false
    }
}

/// Values of the texts that came last, for lines whose every second names the same few.
pub(super) struct Memo<V> {
    slots: Box<[Slot<V>; SLOTS]>,
    /// Slots of an earlier generation are empty.
    generation: u64,
}

const SLOTS: usize = 256;

#[derive(Clone)]
struct Slot<V> {
    text: Known,
    value: Option<V>,
    generation: u64,
}

impl<V: Copy> Default for Memo<V> {
    fn default() -> Self {
        let text = Known { parts: [[0; 16]; KNOWN_PARTS], bytes: 0, behind: 0 };
        let empty = Slot { text, value: None, generation: 0 };
        let Ok(slots) = vec![empty; SLOTS].try_into() else { unreachable!("as many as slots") };
        Self { slots, generation: 1 }
    }
}

impl<V: Copy> Memo<V> {
    /// Returns the value of a text that is remembered.
    #[inline(always)]
    pub(super) fn get(&self, field: Field<'_>) -> Option<V> {
        let Slot { text, value, generation } = &self.slots[slot(field.tail()?)];
        let remembered = *generation == self.generation
            && text.bytes == field.end - field.begin
            && text.is_at(field.line, field.begin);
        (*value).filter(|_| remembered)
    }

    /// Remembers the value of a text, unless that is too long.
    pub(super) fn put(&mut self, text: &[u8], value: V) {
        if let Some(known) = Known::new(text) {
            self.slots[slot(tail(text))] =
                Slot { text: known, value: Some(value), generation: self.generation };
        }
    }

    /// Forgets a text.
    pub(super) fn forget(&mut self, text: &[u8]) {
        self.slots[slot(tail(text))].generation = 0;
    }

    /// Forgets all texts, in no time.
    pub(super) fn clear(&mut self) {
        self.generation += 1;
    }
}

/// Returns the slot of texts with this tail.
#[inline(always)]
fn slot(tail: u64) -> usize {
    // 2^64 divided by the golden ratio.
    (tail.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

/// Returns the tail of a field of this text.
fn tail(text: &[u8]) -> u64 {
    let mut tail = [0; 8];
    for (to, from) in tail.iter_mut().rev().zip(text.iter().rev()) {
        *to = *from;
    }
    u64::from_le_bytes(tail)
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
    let pairs = (digits.wrapping_mul(1 + (10 << 8)) >> 8) & 0x00ff_00ff_00ff_00ff;
    let fours = (pairs.wrapping_mul(1 + (100 << 16)) >> 16) & 0x0000_ffff_0000_ffff;
    fours.wrapping_mul(1 + (10_000 << 32)) >> 32
}

#[cfg(test)]
pub(super) mod testing {
    use super::{Input, Known, LINE_BYTES, Lines, Memo, Near, Text, equal};
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
        text: &'a mut Vec<u8>,
        (line, end): (&str, &str),
        parse: impl FnOnce(&mut Text<'a>) -> Option<T>,
    ) -> Option<T> {
        const NEXT: &[u8] = b"0,0,0,0,0,0,0,0\n";
        *text = [line.as_bytes(), end.as_bytes(), NEXT, &[0xff; LINE_BYTES]].concat();
        let unused = text.len() - LINE_BYTES;
        let mut text = Text { line: text.first_chunk()?, unused, at: 0 };
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

        let mut text = Vec::new();
        let mut takes = |line: &str, end: &str| {
            let parsed = quick(&mut text, (line, end), |text| reader.quick(text));
            let Some(parsed) = parsed else { return false };
            let whole = reader.in_short(reader.whole(line));
            assert_eq!(reader.in_short(parsed), whole, "{line:?}");
            true
        };
        let taken = lines.iter().filter(|line| takes(line, "\n")).count();
        assert!(taken as f64 >= share * lines.len() as f64, "{taken} of {} lines", lines.len());
        let mut taken = 0;
        damaged(lines, |line, n| {
            taken += u64::from(takes(line, if n % 5 == 0 { "\r\n" } else { "\n" }));
        });
        println!("{taken} of 100000 damaged lines");
    }

    /// Parses a line of one field.
    pub(in super::super) fn only<T>(
        line: &str,
        parse: impl FnOnce(&mut Text<'_>) -> Option<T>,
    ) -> Option<T> {
        quick(&mut Vec::new(), (line, "\n"), |text| {
            let parsed = parse(text)?;
            if text.at == 0 || text.line[text.at - 1] != b'\n' {
                text.end()?;
            }
            Some(parsed)
        })
    }

    #[test]
    fn numbers_of_all_lengths() {
        for number in [0, 7, 42, 12_345_678, 123_456_789, 1 << 40, 9_999_999_999_999_999_999] {
            for zeros in 0..12 {
                let line = format!("{}{number}", "0".repeat(zeros));
                let parsed = only(&line, |text| text.number());
                assert_eq!(parsed, (line.len() <= 19).then_some(number), "{line}");
            }
        }
        for other in ["", "18446744073709551615", "-1", "+1", "x", " 1", "1234567890x", "x1234567"]
        {
            assert_eq!(only(other, |text| text.number()), None, "{other}");
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
            assert_eq!(only(line, |text| text.decimal()), parsed, "{line}");
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
            assert_eq!(only(line, |text| text.numbers()?.last_millionths()), parsed, "{line}");
        }
    }

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
                let Some(known) = Known::new(one.as_bytes()) else {
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
                    let wrong = Known::new(&wrong).unwrap();
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

    /// Numbers of all lengths, in all places of a block.
    #[test]
    fn numbers_that_follow_each_other() {
        const LONGEST: &str = "98765432109876545";
        let take = |line: &str| {
            only(line, |text| {
                let mut numbers = text.numbers()?;
                let found = [numbers.number(b',')?, numbers.number(b',')?];
                numbers.any_last_number()?;
                Some(found.map(Some))
            })
        };
        for lens in (0..18usize.pow(3)).map(|n| [n % 18, n / 18 % 18, n / 18 / 18]) {
            let texts = lens.map(|len| &LONGEST[..len]);
            let fit = lens.iter().all(|len| (1..=16).contains(len));
            let [one, other, _] = texts.map(|text| text.parse().ok());
            let line = texts.join(",");
            assert_eq!(take(&line), fit.then_some([one, other]), "{line}");
        }
        for wrong in ["1,2", "1;2,3", "1,2,3,4", "1,-2,3", ",1,2", "1,2,", "1,2,3 ", "1,2,3\t"] {
            assert_eq!(take(wrong), None, "{wrong:?}");
        }
    }

    /// A number near another is what it is without that one.
    #[test]
    fn numbers_near_another() {
        let mut random = Pcg64::seed_from_u64(2);
        let (mut near, mut taken) = (Near::default(), 0);
        for n in 0..200_000u64 {
            let low = random.random_range(0..1_500_000_000u64);
            let number = match n / 1000 % 8 {
                0 => low,
                1 => u64::MAX - low,
                digits => 10u64.pow(12 + digits as u32) + low,
            };
            let mut line = number.to_string();
            if n % 7 == 0 {
                line.insert(
                    random.random_range(0..=line.len()),
                    ['0', '9', 'x', ' '][n as usize % 4],
                );
            }
            let plain = only(&line, |text| text.number());
            let found = only(&line, |text| text.number_near(&near));
            // A number that is longer, and begins as these do, is left to others.
            assert!(found.is_none() || found == plain, "{line} {near:?}");
            taken += u64::from(near.digits > 8 && found.is_some());
            if let Some(number) = plain {
                near.follow(number);
            }
        }
        assert!(taken > 30_000, "{taken}");
    }

    /// A map beside the memo, with texts that share a slot.
    #[test]
    fn a_memo_forgets_and_never_errs() {
        let mut random = Pcg64::seed_from_u64(3);
        let (mut memo, mut all) = (Memo::default(), std::collections::HashMap::new());
        let (mut remembered, mut absent) = (0, 0);
        for n in 0..300_000u32 {
            let name = random.random_range(0..400);
            let text = match name % 3 {
                0 => format!("{name}"),
                1 => format!("/data/{name}/base.db"),
                _ => format!("{}{name}", "x".repeat(name % 80)),
            };
            let found = only(&text, |text| Some(memo.get(text.field(b',')?))).unwrap();
            match found {
                Some(_) => {
                    assert_eq!(found.as_ref(), all.get(&text), "{text}");
                    remembered += 1;
                }
                None => absent += 1,
            }
            match random.random_range(0..1000) {
                0 => {
                    memo.clear();
                    all.clear();
                }
                1..10 => {
                    memo.forget(text.as_bytes());
                    all.remove(&text);
                }
                _ => {
                    memo.put(text.as_bytes(), n);
                    all.insert(text, n);
                }
            }
        }
        println!("{remembered} remembered, {absent} not");
        assert!(remembered > 50_000 && absent > 10_000, "{remembered}, {absent}");
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
