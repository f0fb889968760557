//! Numbers in lines, eight digits at a time.

use super::{LINE_BYTES, Text, eight, sixteen};
use std::ops::Range;
use wide::u8x16;

const ZEROS: u64 = repeated(b'0');

/// The powers of ten that a number of up to eight digits is short of.
const POWERS: [u64; 8] = [1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000];
const EIGHT_DIGITS: u64 = 100_000_000;
const DIGITS_16_TO_19: Range<u64> = 10u64.pow(15)..10u64.pow(19);

impl<'a> Text<'a> {
    /// Takes a number of at most 19 digits.
    #[inline(always)]
    pub(in super::super) fn number(&mut self) -> Option<u64> {
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
    pub(in super::super) fn number_near(&mut self, near: &Near) -> Option<u64> {
        let Near { head, head_end, digits, base } = *near;
        if self.eight(self.at)? == head && self.eight(self.at + digits - 8)? == head_end {
            let low = self.eight(self.at + digits)? ^ ZEROS;
            self.at += digits + 8;
            return are_digits(low).then(|| base + number_of(low));
        }
        self.number()
    }

    /// Takes a decimal number. Returns its digits without the point, and the number of those behind
    /// it.
    #[inline(always)]
    pub(in super::super) fn decimal(&mut self) -> Option<(u64, u32)> {
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
    pub(in super::super) fn numbers(&mut self) -> Option<Numbers<'_, 'a>> {
        let (block, marks) = (self.at, others_of(self.line, self.at)?);
        Some(Numbers { text: self, block, marks })
    }
}

/// The rest of a line of numbers. Their ends are found together, so that no number waits for the
/// one before.
pub(in super::super) struct Numbers<'t, 'a> {
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
    pub(in super::super) fn number(&mut self, behind: u8) -> Option<u64> {
        let (begin, end) = (self.text.at, self.mark()?);
        if *self.text.line.get(end)? != behind {
            return None;
        }
        self.text.at = end + 1;
        number_between(self.text.line, begin, end)
    }

    /// Takes the last number, of at most 16 digits, and the end of the line.
    #[inline(always)]
    pub(in super::super) fn any_last_number(&mut self) -> Option<()> {
        let begin = self.text.at;
        self.text.at = self.mark()?;
        let digits = self.text.at - begin;
        self.text.end()?;
        (1..=16).contains(&digits).then_some(())
    }

    /// Takes a decimal number with a point and the end of the line. Returns it in millionths,
    /// unless it is so near to a half of one that a float of it might be rounded to the other side.
    #[inline(always)]
    pub(in super::super) fn last_millionths(&mut self) -> Option<u64> {
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

/// The first digits of numbers of 16 to 19 digits, of which the last eight change.
#[derive(Debug)]
pub(in super::super) struct Near {
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
    pub(in super::super) fn follow(&mut self, number: u64) {
        if number.wrapping_sub(self.base) >= EIGHT_DIGITS {
            self.other(number);
        }
    }

    #[cold]
    fn other(&mut self, number: u64) {
        *self = Self::default();
        // Shorter numbers come here each time, and need no text.
        if !DIGITS_16_TO_19.contains(&number) {
            return;
        }
        let head = number / EIGHT_DIGITS;
        let text = head.to_string();
        if let (Some(first), Some(last)) =
            (text.as_bytes().first_chunk(), text.as_bytes().last_chunk())
        {
            *self = Self {
                head: u64::from_le_bytes(*first),
                head_end: u64::from_le_bytes(*last),
                digits: text.len(),
                base: head * EIGHT_DIGITS,
            };
        }
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
mod tests {
    use super::{super::testing::only, Near};
    use rand::{RngExt as _, SeedableRng};
    use rand_pcg::Pcg64;

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
}
