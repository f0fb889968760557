//! The formats: one file each, and the one list of them.

use crate::{
    Error,
    events::{Events, Skip},
    input::Input,
};
use flashsift_core::event::{FileId, Knows, Side, Space};

mod blkparse;
mod block;
mod cachesifter;
pub(crate) mod fio;
mod ftrace;
mod held;
mod kernel;
mod mobigen;
mod msr;
pub mod oracle_general;
mod parquet;
mod perfetto;
mod pixel;
mod processes;
mod sectors;
mod strace;

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
    /// A small trace in this format that [`Spec::detect`] recognises and that holds a read or a write: the docs show
    /// it, the tests and fuzzers break it.
    pub sample: fn() -> Vec<u8>,
}

/// How much of a trace detection sees.
pub const HEAD_BYTES: usize = 64 << 10;

/// Every format that can be read.
pub const ALL: &[Spec] = &[
    blkparse::SPEC,
    cachesifter::SPEC,
    fio::V2,
    fio::V3,
    ftrace::SPEC,
    ftrace::BLOCK,
    mobigen::SPEC,
    msr::SPEC,
    oracle_general::SPEC,
    parquet::SPEC,
    perfetto::SPEC,
    perfetto::BLOCK,
    pixel::SPEC,
    sectors::SPEC,
    strace::SPEC,
];

/// The names of [`ALL`], for messages.
pub fn names() -> String {
    ALL.iter().map(|spec| spec.name).collect::<Vec<_>>().join(", ")
}

/// The format of that name.
pub fn named(name: &str) -> Result<&'static Spec, Error> {
    ALL.iter().find(|spec| spec.name == name).ok_or_else(|| Error::NoSuchFormat(name.to_owned()))
}

/// The format that these first bytes are surest to be. Two that are equally sure are none.
pub fn detected(head: &[u8]) -> Result<&'static Spec, Error> {
    let sure = ALL.iter().map(|spec| (spec.detect)(head)).max().unwrap_or(Confidence::No);
    let found: Vec<_> = ALL.iter().filter(|spec| (spec.detect)(head) == sure).collect();
    match found[..] {
        [only] if sure > Confidence::No => Ok(only),
        [_, _, ..] if sure > Confidence::No => {
            let names: Vec<_> = found.iter().map(|spec| spec.name).collect();
            Err(Error::Unknown { why: format!("it could be any of {}", names.join(", ")) })
        }
        _ => Err(Error::Unknown { why: begins(head) }),
    }
}

/// What a person can recognise a file by.
fn begins(head: &[u8]) -> String {
    let line = head.split(|&b| b == b'\n').next().unwrap_or_default();
    let line = &line[..line.len().min(60)];
    match std::str::from_utf8(line) {
        Ok(text) if !text.chars().any(char::is_control) => format!("it begins with \"{text}\""),
        _ => format!("it begins with the bytes {}", head[..head.len().min(16)].escape_ascii()),
    }
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

/// Whether a head has a line format: more than three lines in four have its shape. `has_shape` is
/// given a line if it is UTF-8; lines for which it returns `None` count neither way.
fn detected_by_lines(head: &[u8], has_shape: impl Fn(Option<&str>) -> Option<bool>) -> Confidence {
    let (mut good, mut bad) = (0, 0);
    for line in head_lines(head) {
        match has_shape(std::str::from_utf8(line).ok()) {
            Some(true) => good += 1,
            Some(false) => bad += 1,
            None => {}
        }
    }
    if good > 3 * bad { Confidence::Likely } else { Confidence::No }
}

/// Hands over every line that is text and not empty; `read` says why one gives no event.
fn text_lines(
    input: &mut Input<'_>,
    events: &mut Events<'_>,
    mut read: impl FnMut(&str, &mut Events<'_>) -> Result<Result<(), Skip>, Error>,
) -> Result<(), Error> {
    while let Some(line) = input.line()? {
        events.at(line.number);
        let skip = match std::str::from_utf8(line.bytes) {
            _ if line.too_long => Err(Skip::Damage("line longer than 1 MiB")),
            Ok("") => continue,
            Ok(text) => read(text, events)?,
            Err(_) => Err(Skip::Damage("line that is not UTF-8")),
        };
        if let Err(skip) = skip {
            events.skipped(skip, line.number);
        }
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod testing {
    //! What the readers' tests need.

    use super::Spec;
    use crate::{
        Error,
        events::{Events, Kept, Summary},
        input::Input,
    };
    use flashsift_core::event::Event;

    /// Everything that `spec` makes of these bytes.
    pub(crate) fn read(spec: &Spec, mut bytes: &[u8]) -> Result<(Vec<Event<'static>>, Summary), Error> {
        let mut kept = Kept::default();
        let mut events = Events::new(&mut kept);
        (spec.read)(&mut Input::new(&mut bytes), &mut events)?;
        let summary = events.finish()?;
        Ok((kept.events, summary))
    }

    /// One of the traces recorded by others, decompressed; `None`, with a word, where they are absent.
    pub(crate) fn shared(name: &str) -> Option<Vec<u8>> {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data").join(name);
        if !path.exists() {
            println!("SKIPPED {name}: ../shared/data is not there");
            return None;
        }
        let mut all = Vec::new();
        let mut bytes = crate::open::plain(&path).expect("a readable trace");
        std::io::Read::read_to_end(&mut bytes, &mut all).expect("an intact archive");
        Some(all)
    }

    /// The counts, in words.
    pub(crate) fn skipped(summary: &Summary) -> String {
        summary.skipped.to_string()
    }
}
