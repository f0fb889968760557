//! Durations: reading them from options, and printing them so that an option reads them again.
//!
//! The grammar is jiff's friendly one: `5s`, `500ms`, `2min`, `1.5h`, `1h 30m`, `7d`. A day has 24
//! hours, and there are no months. Durations are whole microseconds.

use jiff::{SpanRelativeTo, fmt::friendly::SpanParser};
use std::fmt;

/// A text that is not a duration of at least one microsecond.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a time: write a time as 90s, 10m, 1h or 7d; it must be above 0")]
pub struct DurationError(String);

/// Reads a duration, in microseconds.
///
/// # Errors
///
/// The text is not of the grammar, or the duration is zero, negative or more than 2⁶⁴ µs.
pub fn parse_us(text: &str) -> Result<u64, DurationError> {
    parse_zero_or_us(text).ok().filter(|us| *us > 0).ok_or_else(|| DurationError(text.to_owned()))
}

/// The same, and `0s` is a duration, too.
///
/// # Errors
///
/// The text is no duration.
pub fn parse_zero_or_us(text: &str) -> Result<u64, DurationError> {
    let span = SpanParser::new().parse_span(text).ok();
    let duration = span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
    let us = duration.and_then(|duration| u64::try_from(duration.as_micros()).ok());
    us.ok_or_else(|| DurationError(text.to_owned()))
}

/// A duration in microseconds, printed exactly: [`parse_us`] reads it back. `{:#}` puts a space
/// between the number and the unit, as in a sentence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exact(pub u64);

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As in the kernel's settings, 120 s are printed in seconds; 2500 ms are printed in
        // milliseconds.
        let (unit, us) = match self.0 {
            us if us.is_multiple_of(1_000_000) => ("s", 1_000_000),
            us if us.is_multiple_of(1000) => ("ms", 1000),
            _ => ("us", 1),
        };
        write!(f, "{}{}{unit}", self.0 / us, if f.alternate() { " " } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Promises: Command line 5.
    #[test]
    fn units_and_fractions_follow_one_grammar() {
        for (text, us) in [
            ("5s", 5_000_000),
            ("500ms", 500_000),
            ("1us", 1),
            ("2min", 120_000_000),
            ("10m", 600_000_000),
            ("0.3s", 300_000),
            ("1.5h", 5_400_000_000),
            ("1h 30m", 5_400_000_000),
            ("7d", 604_800_000_000),
            ("1d 12h", 129_600_000_000),
            ("100000h", 360_000_000_000_000),
        ] {
            assert_eq!(parse_us(text), Ok(us), "{text}");
        }
        for text in [
            "",
            "5",
            "soon",
            "0s",
            "100ns",
            "-5s",
            "5s ago",
            "1 month",
            "5 parsecs",
            "99999999999999999h",
        ] {
            assert_eq!(parse_us(text), Err(DurationError(text.to_owned())));
        }
    }

    // Promises: Command line 5.
    #[test]
    fn a_printed_duration_reads_back_as_the_same() {
        for (us, text) in
            [(1_500_000, "1500ms"), (120_000_000, "120s"), (7, "7us"), (3_600_000_000, "3600s")]
        {
            assert_eq!((Exact(us).to_string().as_str(), parse_us(text)), (text, Ok(us)));
        }
        assert_eq!(format!("{:#}", Exact(5_000_000)), "5 s");
    }
}
