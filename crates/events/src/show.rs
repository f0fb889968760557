//! Numbers printed for people, the same in every locale, and names without effect on a terminal.

use crate::{names, page::PAGE_BYTES};
use std::borrow::Cow;

/// Prints a name that others chose: of a file, a program, a mount or a device. A character that
/// moves a cursor, drives a terminal, or changes the order of others, and one without width, is
/// printed as `\xNN` for each of its bytes, as [`names::escape`] does with bytes that are not
/// UTF-8: such a name is one line, and looks like no other. Any other name stays as it is.
pub fn name(name: &str) -> Cow<'_, str> {
    inert(name, |_| None)
}

/// Prints text of several lines that has such names in it, as [`name`] does, but leaves line feeds
/// and tabs. With `styles`, sequences that only choose a style (`ESC [ 1 ; 31 m`) stay, too.
pub fn lines(text: &str, styles: bool) -> Cow<'_, str> {
    inert(text, |rest| match rest.as_bytes() {
        [b'\n' | b'\t', ..] => Some(1),
        [b'\x1b', b'[', sequence @ ..] if styles => {
            let end = sequence.iter().position(|byte| !matches!(byte, b'0'..=b'9' | b';'))?;
            (sequence[end] == b'm').then_some(end + 3)
        }
        _ => None,
    })
}

/// Escapes each character that is not [harmless](is_inert), unless `stays` returns the number of
/// bytes that begin with it and stay.
fn inert(text: &str, stays: impl Fn(&str) -> Option<usize>) -> Cow<'_, str> {
    let Some(mut at) = text.find(|c| !is_inert(c)) else { return Cow::Borrowed(text) };
    let (mut out, mut rest) = (String::with_capacity(text.len() + 16), text);
    loop {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let taken = stays(from);
        let len = taken.or_else(|| from.chars().next().map(char::len_utf8)).unwrap_or(0);
        let (first, after) = from.split_at(len);
        match taken {
            Some(_) => out.push_str(first),
            None => first.bytes().for_each(|byte| names::push_byte(byte, &mut out)),
        }
        rest = after;
        at = rest.find(|c| !is_inert(c)).unwrap_or(rest.len());
        if at == rest.len() {
            out.push_str(rest);
            return Cow::Owned(out);
        }
    }
}

/// Whether a character only shows itself: it is none of C0, DEL and C1, no separator of lines, no
/// mark of direction, and has a width.
pub fn is_inert(c: char) -> bool {
    c.is_ascii() && !c.is_ascii_control()
        || !(c.is_control()
            || matches!(
                c,
                '\u{061c}'
                    | '\u{180e}'
                    | '\u{200b}'..='\u{200f}'
                    | '\u{2028}'..='\u{202e}'
                    | '\u{2060}'..='\u{206f}'
                    | '\u{feff}'
                    | '\u{fff9}'..='\u{fffb}'
                    | '\u{e0000}'..='\u{e007f}'
            ))
}

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

    /// `explain` printed the names of files as they are: a file could set the title of root's
    /// terminal, clear it, or stand before its own extension.
    // Promises: Command line 10.
    #[test]
    fn names_do_nothing_to_a_terminal() {
        for (text, shown) in [
            ("/data/ä b/日本\u{202f}é\\x.db", "/data/ä b/日本\u{202f}é\\x.db"),
            ("a\x1b]0;x\x07\x1b[2Jb", "a\\x1B]0;x\\x07\\x1B[2Jb"),
            ("\u{9b}31m\x7f", "\\xC2\\x9B31m\\x7F"),
            ("exe\u{202e}gpj", "exe\\xE2\\x80\\xAEgpj"),
            ("two\nlines\tand\r\0", "two\\x0Alines\\x09and\\x0D\\x00"),
            ("\u{feff}a\u{200b}", "\\xEF\\xBB\\xBFa\\xE2\\x80\\x8B"),
            ("", ""),
        ] {
            assert_eq!(name(text), shown);
            assert_eq!(*names::unescape(&name(text)), *text.as_bytes(), "{shown} is reversible");
            assert_eq!(name(&name(text)), shown);
        }
        let text = "\x1b[1mA\x1b[0m\n\tb\x1b[;31m\x1b[2J\x1b[31\x1b[";
        let plain = "\\x1B[1mA\\x1B[0m\n\tb\\x1B[;31m\\x1B[2J\\x1B[31\\x1B[";
        assert_eq!(lines(text, false), plain);
        assert_eq!(lines(text, true), "\x1b[1mA\x1b[0m\n\tb\x1b[;31m\\x1B[2J\\x1B[31\\x1B[");
        assert!(matches!(lines("plain", true), Cow::Borrowed("plain")));
    }

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
