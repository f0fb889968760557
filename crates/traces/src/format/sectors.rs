//! `r|w SECTOR`: one 512-byte sector a line, as simulators of the 2000s read it; -1 is an unmapped page.
//!
//! Nothing else is known: no times, no syncs, no files; one device. `#` begins a comment.

use super::{Confidence, FileId, Knows, Side, Space, Spec, head_lines};
use crate::{Error, events::Events, input::Input};
use flashsift_core::event::{About, Action, Event};

pub(super) const SPEC: Spec =
    Spec { name: "sectors", what: "`r|w SECTOR` lines, 512-byte sectors, -1 unmapped", detect, read };

const SECTOR_BYTES: u64 = 512;

fn detect(head: &[u8]) -> Confidence {
    let mut lines = 0;
    for line in head_lines(head).filter(|line| line[0] != b'#') {
        if parse(line).is_err() {
            return Confidence::No;
        }
        lines += 1;
    }
    if lines > 0 { Confidence::Likely } else { Confidence::No }
}

fn read(input: &mut Input<'_>, events: &mut Events<'_>) -> Result<(), Error> {
    events.about(About {
        side: Side::Before,
        space: Space::Blocks,
        knows: Knows { times: false, syncs: false, writes: true, removals: false },
    })?;
    while let Some(line) = input.line()? {
        if line.bytes.is_empty() {
            continue;
        }
        match parse(line.bytes) {
            Ok((write, sector)) => {
                let (file, offset, len) = (FileId(0), sector * SECTOR_BYTES, SECTOR_BYTES);
                let action = match write {
                    true => Action::Write { file, offset, len, sync: false },
                    false => Action::Read { file, offset, len },
                };
                events.push(Event { at_us: 0, pid: 0, tid: 0, action })?;
            }
            Err(reason) => events.skip(reason, line.number),
        }
    }
    Ok(())
}

/// Whether it is a write, and the sector; or why not.
fn parse(line: &[u8]) -> Result<(bool, u64), &'static str> {
    let text = std::str::from_utf8(line).map_err(|_| "line that is not UTF-8")?;
    let mut words = text.split_ascii_whitespace();
    let write = match words.next() {
        Some("r" | "R") => false,
        Some("w" | "W") => true,
        Some(word) if word.starts_with('#') => return Err("comment"),
        _ => return Err("line that is not `r|w SECTOR`"),
    };
    match (words.next(), words.next()) {
        (Some("-1"), None) => Err("unmapped sector (-1)"),
        (Some(sector), None) => match sector.parse::<u64>() {
            Ok(sector) if sector <= u64::MAX / SECTOR_BYTES - 1 => Ok((write, sector)),
            Ok(_) => Err("sector beyond 2^55"),
            Err(_) => Err("line that is not `r|w SECTOR`"),
        },
        _ => Err("line that is not `r|w SECTOR`"),
    }
}
