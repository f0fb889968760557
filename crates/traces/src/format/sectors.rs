//! `r|w SECTOR`: one 512-byte sector a line, the input of simulators of the 2000s; -1 is an
//! unmapped page.
//!
//! The format has no times, no syncs and no files, and one device. Traces of this kind were taken
//! above the page cache and their files mapped to sectors afterwards. So a sector can be -1: the
//! file had no block on the device yet, or never got one. Such a line identifies no page and is
//! left out. `#` begins a comment.

use super::{
    Confidence, FileId, FormatSpec, Knows, Side, Space,
    block::SECTOR_BYTES,
    detected_by_lines,
    quick::{self, Lines, Text},
};
use crate::{
    Error,
    events::{Access, AccessKind, Events, Skip},
    input::Input,
};
use flashsift_events::event::About;

pub(super) const SPEC: FormatSpec = FormatSpec {
    name: "sectors",
    what: "`r|w SECTOR` lines, 512-byte sectors, -1 unmapped",
    detect,
    read,
    ahead: false,
    sample: || b"# a comment\nr 101530792\nw 101530793\nr -1\nw 8\nr 8\n".to_vec(),
};

const UNMAPPED: Skip = Skip::Benign("unmapped sector (-1)");

fn detect(head: &[u8]) -> Confidence {
    detected_by_lines(head, |line| match line.map(parse) {
        Some(Err(Skip::Benign("comment"))) => None,
        Some(Ok(_) | Err(Skip::Benign(_))) => Some(true),
        _ => Some(false),
    })
}

fn read(input: &mut Input<'_>, events: &mut Events<'_>) -> Result<(), Error> {
    events.about(About {
        epoch_us: None,
        boot_us: None,
        side: Side::Before,
        space: Space::Blocks,
        knows: Knows {
            times: false,
            syncs: false,
            writes: true,
            removals: false,
            ..Knows::NOTHING
        },
    })?;
    quick::lines(input, events, &mut Reader)
}

struct Reader;

impl Lines for Reader {
    /// Whether it is a write, and its sector.
    type Line<'a> = Result<(bool, u64), Skip>;

    /// One letter and one space, as nearly all lines have.
    #[inline(always)]
    fn quick<'a>(&self, text: &mut Text<'a>) -> Option<Self::Line<'a>> {
        let write = text.either(b"w ", b"r ")?;
        let line = match text.number() {
            Some(sector) => Ok((write, sector)),
            None => {
                text.byte(b'-')?;
                text.byte(b'1')?;
                Err(UNMAPPED)
            }
        };
        text.end()?;
        Some(line)
    }

    fn whole<'a>(&self, line: &'a str) -> Self::Line<'a> {
        parse(line)
    }

    #[inline(always)]
    fn line(
        &mut self,
        line: Self::Line<'_>,
        events: &mut Events<'_>,
    ) -> Result<Result<(), Skip>, Error> {
        let (write, sector) = match line {
            Ok(access) => access,
            Err(skip) => return Ok(Err(skip)),
        };
        let (file, offset, len) = (FileId(0), sector.saturating_mul(SECTOR_BYTES), SECTOR_BYTES);
        let kind = AccessKind::new(write);
        events
            .access(Access { at_us: 0, pid: 0, tid: 0, file, open: None, offset, len, kind })
            .map(Ok)
    }
}

/// Parses whether the line is a write, and its sector; or returns the reason that it has none.
fn parse(line: &str) -> Result<(bool, u64), Skip> {
    const SHAPE: Skip = Skip::Damage("line that is not `r|w SECTOR`");
    let mut words = line.split_ascii_whitespace();
    let write = match words.next() {
        Some("r" | "R") => false,
        Some("w" | "W") => true,
        Some(word) if word.starts_with('#') => return Err(Skip::Benign("comment")),
        _ => return Err(SHAPE),
    };
    match (words.next(), words.next()) {
        (Some("-1"), None) => Err(UNMAPPED),
        (Some(sector), None) => Ok((write, sector.parse().map_err(|_| SHAPE)?)),
        _ => Err(SHAPE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing;
    use flashsift_events::event::Action;

    #[test]
    fn both_parsers_agree() {
        let lines = ["r 101530792", "w 8", "r -1", "# 1", "R 1", "w 9999999999999999999"];
        quick::testing::agree(Reader, &lines, 0.6);
    }

    #[test]
    fn every_line_is_an_access_or_counted() {
        let text = b"# c\n\nr 1\nw 2\r\nR -1\nx 3\nr\nr 1 2\nr 36028797018963968\nw 99999999999999999999\n\xff 1\nr -2\n";
        let (events, summary) = testing::read(&SPEC, text).unwrap();
        let actions: Vec<_> = events.into_iter().map(|event| event.action).collect();
        let (file, len) = (FileId(0), 512);
        assert_eq!(
            actions,
            [
                Action::Read { open: None, file, offset: 512, len },
                Action::Write { open: None, file, offset: 1024, len, sync: false }
            ]
        );
        assert_eq!(
            testing::skipped(&summary),
            "1 × comment (first at 1); 1 × line that is not UTF-8 (first at 11); 5 × line that is \
             not `r|w SECTOR` (first at 6); 1 × offset beyond 2^63 (first at 9); 1 × unmapped \
             sector (-1) (first at 5)"
        );
    }

    #[test]
    fn comments_and_unmapped_lines_do_not_hide_the_format() {
        assert_eq!(detect(b"# only a comment\n"), Confidence::No);
        assert_eq!(detect(b"r -1\n# comment\nw -1\nr 5"), Confidence::Likely);
        assert_eq!(detect(b"r 1\nread me\n"), Confidence::No);
        assert_eq!(detect(b"\0\0\0"), Confidence::No);
    }

    #[test]
    fn weboffice() {
        let Some(trace) = testing::shared("weboffice.sectors.txt.xz") else { return };
        assert_eq!(detect(&trace[..crate::format::HEAD_BYTES]), Confidence::Likely);
        let (events, summary) = testing::read(&SPEC, &trace).unwrap();
        let reads = events.iter().filter(|e| matches!(e.action, Action::Read { .. })).count();
        assert_eq!((reads, events.len() - reads), (52310, 14124));
        assert_eq!(
            testing::skipped(&summary),
            "11 × comment (first at 90942); 24507 × unmapped sector (-1) (first at 17611)"
        );
    }
}
