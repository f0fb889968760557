//! Numbers printed for people, the same in every locale.

use crate::page::PAGE_BYTES;

/// Prints a number of bytes: `4 MiB`, `36 KiB`, `1.5 GiB`.
pub fn bytes(bytes: u64) -> String {
    let mut value = bytes as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1024.0 {
            return if value.fract() == 0.0 {
                format!("{value} {unit}")
            } else {
                format!("{value:.1} {unit}")
            };
        }
        value /= 1024.0;
    }
    format!("{value:.1} TiB")
}

/// Prints memory of whole pages. A size that was given in decimal megabytes reads as it was given:
/// `4 MB` is 976 pages and the beginning of another.
pub fn memory(pages: u64) -> String {
    const MB: u64 = 1_000_000;
    let held_bytes = pages * PAGE_BYTES;
    let mb = held_bytes.div_ceil(MB);
    let is_decimal = mb * MB < held_bytes + PAGE_BYTES && !held_bytes.is_multiple_of(1 << 20);
    match is_decimal {
        true if mb.is_multiple_of(1000) => format!("{} GB", mb / 1000),
        true => format!("{mb} MB"),
        false => bytes(held_bytes),
    }
}

/// Prints a count with its digits in groups: `1 234 567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

/// Prints a count with its noun: `1 request`, `1 234 requests`, `2 accesses`.
pub fn counted(n: u64, what: &str) -> String {
    let ending = match n {
        1 => "",
        _ if what.ends_with('s') => "es",
        _ => "s",
    };
    format!("{} {what}{ending}", count(n))
}

/// Prints a share with two digits: `38 %`, `3.2 %`, `< 0.1 %`. A share near 0 or 1 is never printed
/// as 0 % or 100 %. A negative share is `−3.2 %`, one above 1 `123 %`.
pub fn share(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        _ if percent == 0.0 || percent == 100.0 => format!("{percent:.0} %"),
        ..=-0.1 => format!("−{}", self::share(-share)),
        100.5.. => format!("{} %", count(percent.round() as u64)),
        ..0.1 => "< 0.1 %".to_owned(),
        ..9.95 => format!("{percent:.1} %"),
        ..99.5 => format!("{percent:.0} %"),
        _ => "> 99 %".to_owned(),
    }
}

/// Prints a duration in microseconds: `320 ms`, `3.2 s`, `5 min 20 s`, `2 h 5 min`.
pub fn duration(us: u64) -> String {
    let seconds = us / 1_000_000;
    match seconds {
        0 if us > 0 => format!("{:.0} ms", (us as f64 / 1e3).ceil()),
        0..60 => format!("{:.1} s", us as f64 / 1e6),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// Prints a number with three digits, or all digits before the point if they are more: `0.0123`,
/// `12.3`, `12 345`.
pub fn number(value: f64) -> String {
    let magnitude = value.abs();
    match magnitude {
        _ if value.fract() == 0.0 && magnitude < 1e15 => signed(value, count(magnitude as u64)),
        1000.0.. if magnitude < 1e15 => signed(value, count(magnitude.round() as u64)),
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Prints a number that is not negative with two digits, or all digits before the point if they are
/// more: `0.0012`, `0.24`, `3.1`, `1 234`.
pub fn significant(value: f64) -> String {
    match value {
        9.95.. => count(value.round() as u64),
        0.995.. => format!("{value:.1}"),
        0.0995.. => format!("{value:.2}"),
        _ if value > 0.0 => format!("{value:.*}", (1.0 - value.log10().floor()) as usize),
        _ => "0".to_owned(),
    }
}

fn signed(value: f64, digits: String) -> String {
    if value < 0.0 { format!("−{digits}") } else { digits }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One size in 244 is a whole number of megabytes; all others are binary.
    #[test]
    fn memory_of_whole_megabytes_is_decimal() {
        assert_eq!([0, 1, 976, 1024].map(memory), ["0 B", "4 KiB", "4 MB", "4 MiB"]);
        let decimal = (1..=10_000).filter(|pages| memory(*pages).ends_with(" MB")).count();
        assert_eq!(decimal, 40);
    }

    #[test]
    fn numbers_are_printed_for_people() {
        assert_eq!(bytes(4 << 20), "4 MiB");
        assert_eq!(bytes(36 * 1024), "36 KiB");
        assert_eq!(bytes(3 << 29), "1.5 GiB");
        assert_eq!(count(1_234_567).replace('\u{202f}', " "), "1 234 567");
        assert_eq!(count(123), "123");
        assert_eq!(
            [0, 1, 2].map(|n| counted(n, "request")),
            ["0 requests", "1 request", "2 requests"]
        );
        assert_eq!([1, 2].map(|n| counted(n, "access")), ["1 access", "2 accesses"]);
        assert_eq!(duration(320_000_000), "5 min 20 s");
        assert_eq!([0, 1, 319_100, 3_200_000].map(duration), ["0.0 s", "1 ms", "320 ms", "3.2 s"]);
        let shares = [0.0, 0.000_01, 0.032_1, 0.099_6, 0.384, 0.994, 0.999_999, 1.0].map(share);
        assert_eq!(shares, ["0 %", "< 0.1 %", "3.2 %", "10 %", "38 %", "99 %", "> 99 %", "100 %"]);
        let outside = [-0.032_1, -0.000_1, -1.0, -1.2, 1.001, 1.23, 12.345].map(share);
        let shown = ["−3.2 %", "< 0.1 %", "−100 %", "−120 %", "> 99 %", "123 %", "1 235 %"];
        assert_eq!(outside.map(|share| share.replace('\u{202f}', " ")), shown);
        assert_eq!(
            [12.0, 0.0123, 12.34, 1.5, 234.6].map(number),
            ["12", "0.012", "12.3", "1.50", "235"]
        );
        assert_eq!(
            [0.0, 0.001_23, 0.0999, 0.24, 0.996, 3.12, 9.96, 18.4].map(significant),
            ["0", "0.0012", "0.10", "0.24", "1.0", "3.1", "10", "18"]
        );
    }
}
