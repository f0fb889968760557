//! The formats: one file each, and the one list of them.

use crate::{Error, events::Events, input::Input};
use flashsift_core::event::{FileId, Knows, Side, Space};

mod sectors;

/// How sure a format is that some bytes are its own, from their beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// Not this format.
    No,
    /// Could be: nothing contradicts it, little proves it (binary records without a magic number).
    Maybe,
    /// The shape of the first lines is this format's.
    Likely,
    /// A magic number or a header line.
    Certain,
}

/// A trace format: what it is, how to know it, how to read it.
pub struct Spec {
    /// As `--format` takes it.
    pub name: &'static str,
    /// One line for people.
    pub what: &'static str,
    /// Is it this one? Given up to [`HEAD_BYTES`] decompressed bytes from the beginning.
    pub detect: fn(head: &[u8]) -> Confidence,
    /// Reads all of it: says what it is about, then pushes events and counts what it skips.
    pub read: fn(input: &mut Input<'_>, events: &mut Events<'_>) -> Result<(), Error>,
}

/// How much of a trace detection sees.
pub const HEAD_BYTES: usize = 64 << 10;

/// Every format that can be read.
pub const ALL: &[Spec] = &[sectors::SPEC];

/// The names of [`ALL`], for messages.
pub fn names() -> String {
    ALL.iter().map(|spec| spec.name).collect::<Vec<_>>().join(", ")
}

/// The complete lines in a head, for line formats' detection. The last, possibly cut, line is left out unless it is
/// the only one.
fn head_lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = head.iter().rposition(|&b| b == b'\n').map_or(head.len(), |n| n + 1);
    head[..end]
        .split(|&b| b == b'\n')
        .map(|line| line.strip_suffix(b"\r").unwrap_or(line))
        .filter(|line| !line.is_empty())
}
