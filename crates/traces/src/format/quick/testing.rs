//! Helpers for the tests of parsers.

use super::{Input, LINE_BYTES, Lines, Text};
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
        let whole = reader.abbreviated(reader.whole(line));
        assert_eq!(reader.abbreviated(parsed), whole, "{line:?}");
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
