//! Times of day.

/// Microseconds of a day.
pub(super) const DAY_US: u64 = 24 * 3600 * 1_000_000;

/// Splits off a time of day in microseconds: `10:30:27`, `10:30:27.827565`, also with a decimal
/// comma.
pub(super) fn time(text: &[u8]) -> Option<(u64, &[u8])> {
    let (hour, rest) = two_digits(text)?;
    let (minute, rest) = two_digits(rest.strip_prefix(b":")?)?;
    let (second, rest) = two_digits(rest.strip_prefix(b":")?)?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (us, rest) = fraction(rest);
    Some(((hour * 3600 + minute * 60 + second) * 1_000_000 + us, rest))
}

/// Splits off a number of one or two digits.
fn two_digits(text: &[u8]) -> Option<(u64, &[u8])> {
    let end = text.iter().take(3).position(|b| !b.is_ascii_digit()).unwrap_or(text.len().min(3));
    let digits = text[..end].iter().map(|digit| u64::from(digit - b'0'));
    matches!(end, 1 | 2)
        .then(|| (digits.fold(0, |number, digit| number * 10 + digit), &text[end..]))
}

/// Splits off the fraction of a second in microseconds: `.123456789`; a text without one gives 0.
pub(super) fn fraction(text: &[u8]) -> (u64, &[u8]) {
    let Some((b'.' | b',', rest)) = text.split_first() else { return (0, text) };
    let end = rest.iter().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len());
    let us = (0..6)
        .fold(0, |us, n| us * 10 + rest[..end].get(n).map_or(0, |digit| u64::from(digit - b'0')));
    (us, &rest[end..])
}

/// Counts times of day from the first of them. Each midnight adds a day.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Days {
    first_us: Option<u64>,
    last_us: u64,
}

impl Days {
    /// Returns the microseconds from the first time to this one. A time that is a little earlier
    /// than the one before is of the same day.
    pub(super) fn since_first(&mut self, us: u64) -> u64 {
        let first_us = *self.first_us.get_or_insert(us);
        self.last_us = self.last_us.max(after(self.last_us, us));
        after(self.last_us, us).saturating_sub(first_us)
    }
}

/// Returns a time of day as one of the day of `last_us`, or of the next if it would be half a day
/// earlier.
pub(super) fn after(last_us: u64, us: u64) -> u64 {
    let us = us.saturating_add(last_us - last_us % DAY_US);
    if us.saturating_add(DAY_US / 2) < last_us { us.saturating_add(DAY_US) } else { us }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_are_parsed() {
        let cases: [(&str, Option<(u64, &str)>); 7] = [
            ("10:30:27 x", Some((37_827_000_000, " x"))),
            ("9:05:01.5 AM", Some((32_701_500_000, " AM"))),
            ("00:00:00,1234567", Some((123_456, ""))),
            ("24:00:00", None),
            ("10:60:00", None),
            ("110:00:00", None),
            ("10:30", None),
        ];
        for (text, expected) in cases {
            let expected = expected.map(|(us, rest)| (us, rest.as_bytes()));
            assert_eq!(time(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn times_go_past_midnight() {
        let mut days = Days::default();
        let hour_us = DAY_US / 24;
        let times = [23, 22, 1, 23, 2].map(|hour| days.since_first(hour * hour_us) / hour_us);
        assert_eq!(times, [0, 0, 2, 24, 27]);
    }
}
