//! The trace formats: one file each, and the one list of them.

use crate::{
    Error,
    events::{Events, Skip},
    input::{Input, Line},
};
use flashsift_events::event::{FileId, Knows, Side, Space};
use std::borrow::Cow;

mod bcc;
mod blkparse;
mod block;
mod cache2k;
mod cachesifter;
pub mod csv;
mod day;
pub(crate) mod fio;
mod fs_usage;
mod ftrace;
mod held;
mod kernel;
mod lcs;
mod mobigen;
mod msr;
pub mod oracle_general;
mod parquet;
mod perf_trace;
pub(crate) mod perfetto;
mod pixel;
mod processes;
mod procmon;
mod quick;
mod sectors;
mod strace;
mod syscalls;
mod vscsi;

pub(crate) use strace::merged::Merged;

/// Confidence of a format that some bytes, from their start, are its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Confidence {
    /// Not this format.
    No,
    /// Possible: the bytes are consistent, with little proof (binary records without a magic
    /// number).
    Maybe,
    /// The first lines have this format's shape.
    Likely,
    /// A magic number or a header line.
    Certain,
}

/// A trace format: its name, its detection, and its reader.
pub struct FormatSpec {
    /// Value of `--format`.
    pub name: &'static str,
    /// Description in one line.
    pub what: &'static str,
    /// Detects the format, from up to [`HEAD_BYTES`] decompressed bytes at the start.
    pub detect: fn(head: &[u8]) -> Confidence,
    /// Reads the whole trace: declares its type, then pushes events and counts what it skips.
    pub read: fn(input: &mut Input<'_>, events: &mut Events<'_>) -> Result<(), Error>,
    /// Whether an event costs more to read than to pass on to another thread.
    pub ahead: bool,
    /// A small trace in this format that [`FormatSpec::detect`] recognises and that holds a read or
    /// a write. The documentation shows it, and the tests and fuzzers mutate it.
    pub sample: fn() -> Vec<u8>,
}

/// Number of bytes that detection sees.
pub const HEAD_BYTES: usize = 64 << 10;

/// Every supported format.
pub const ALL: &[FormatSpec] = &[
    bcc::BIOSNOOP,
    bcc::SLOWER,
    blkparse::SPEC,
    cache2k::SPEC,
    cachesifter::SPEC,
    csv::SPEC,
    fio::V2,
    fio::V3,
    fs_usage::SPEC,
    ftrace::SPEC,
    ftrace::BLOCK,
    lcs::SPEC,
    mobigen::SPEC,
    msr::SPEC,
    oracle_general::SPEC,
    parquet::SPEC,
    perf_trace::SPEC,
    perfetto::SPEC,
    perfetto::BLOCK,
    pixel::SPEC,
    procmon::SPEC,
    sectors::SPEC,
    strace::SPEC,
    vscsi::SPEC,
];

/// Iterates over the values of `--format`: the names of [`ALL`] and of [`csv::PRESETS`].
pub(crate) fn all_names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|spec| spec.name).chain(csv::PRESETS.iter().map(|preset| preset.name))
}

/// Returns the values of `--format`, for messages.
pub fn names() -> String {
    all_names().collect::<Vec<_>>().join(", ")
}

/// Returns a value of `--format` as it is written.
///
/// # Errors
///
/// No format and no table has that name.
pub fn known_name(name: &str) -> Result<&'static str, Error> {
    let found = all_names().find(|known| known.eq_ignore_ascii_case(name));
    found.ok_or_else(|| Error::NoSuchFormat(name.to_owned()))
}

/// Returns the format of that name.
///
/// # Errors
///
/// No format has that name.
pub fn named(name: &str) -> Result<&'static FormatSpec, Error> {
    let found = ALL.iter().find(|spec| spec.name.eq_ignore_ascii_case(name));
    found.ok_or_else(|| Error::NoSuchFormat(name.to_owned()))
}

/// Files of other tools, by their first bytes: what they are, and the command whose output is a
/// trace.
const FOREIGN: [(&[u8], &str, &str); 8] = [
    (b"\x17\x08Dtracing", "a recording of trace-cmd", "trace-cmd report -i FILE"),
    (b"PERFILE2", "a recording of perf", "perf script -i FILE"),
    // The magic number and the version, of either order of bytes.
    (b"\x07tae", BLKTRACE, "blkparse -i NAME"),
    (b"eat\x07", BLKTRACE, "blkparse -i NAME"),
    (b"BZh", "an archive of bzip2", "bzip2 -dc FILE"),
    (b"\x04\x22\x4d\x18", "an archive of lz4", "lz4 -dc FILE"),
    (b"PK\x03\x04", "an archive of zip", "unzip -p FILE"),
    (b"7z\xbc\xaf\x27\x1c", "an archive of 7-Zip", "7z x -so FILE"),
];

const BLKTRACE: &str = "one of blktrace's recordings NAME.blktrace.0, NAME.blktrace.1, …";

/// Returns the format that `name` or `name:options` selects, and the options. The name of a table
/// stands for its columns; options replace some of them.
///
/// # Errors
///
/// No format has that name, or the format takes no options.
pub fn chosen(text: &str) -> Result<(&'static FormatSpec, Cow<'_, str>), Error> {
    let (name, options) = text.split_once(':').unwrap_or((text, ""));
    if let Some(preset) = csv::named(name) {
        return Ok((&csv::SPEC, csv::overlaid(preset.columns, options).into()));
    }
    let spec = named(name)?;
    if !options.is_empty() && spec.name != csv::SPEC.name {
        return Err(Error::Options(format!("the format {} takes no options", spec.name)));
    }
    Ok((spec, options.into()))
}

/// Returns the format with the highest confidence for these first bytes.
///
/// # Errors
///
/// No format recognises the bytes, or two are equally sure.
pub fn detected(head: &[u8]) -> Result<&'static FormatSpec, Error> {
    if let Some((_, what, command)) = FOREIGN.iter().find(|(magic, ..)| head.starts_with(magic)) {
        return Err(Error::Foreign { what, command });
    }
    let sure = ALL.iter().map(|spec| (spec.detect)(head)).max().unwrap_or(Confidence::No);
    let found: Vec<_> = ALL.iter().filter(|spec| (spec.detect)(head) == sure).collect();
    match found[..] {
        [only] if sure > Confidence::No => Ok(only),
        [_, _, ..] if sure > Confidence::No => {
            let names: Vec<_> = found.iter().map(|spec| spec.name).collect();
            let why = format!("it could be any of {}", names.join(", "));
            Err(Error::Unknown { why, guess: None })
        }
        _ if is_fatrace(head) => Err(Error::Lacks(
            "it is output of fatrace, which says that a process read or wrote a file, and neither \
             where nor how many bytes: record with `flashsift record` or `strace -f -ttt -y`"
                .to_owned(),
        )),
        _ => {
            let guess = csv::guess(head).map(|guess| guess.in_words());
            Err(Error::Unknown { why: begins(head), guess })
        }
    }
}

/// Whether a text has lines as `rsyslogd(875): CW  /var/log/auth.log`, with or without a time and
/// `[uid:gid]`, or the JSON of `fatrace -j`.
fn is_fatrace(head: &[u8]) -> bool {
    let is_event = |line: &str| {
        let (process, event) = line.split_once("): ").or(line.split_once("]: "))?;
        let (types, file) = event.trim_start().split_once(' ')?;
        let is_types = types.bytes().all(|b| b"ORWC+D<>".contains(&b));
        let file = file.trim_start();
        let is_file = file.starts_with('/') || file.starts_with("device ") || file == "(deleted)";
        (process.contains('(') && is_types && is_file).then_some(())
    };
    let is_json = |line: &str| line.starts_with('{') && line.contains("\"types\":\"");
    let shape = |line: Option<&str>| {
        Some(line.is_some_and(|line| is_event(line).is_some() || is_json(line)))
    };
    detected_by_lines(head, shape) != Confidence::No
}

/// Describes, for people, the features by which a file is recognised.
fn begins(head: &[u8]) -> String {
    let line = head.split(|&b| b == b'\n').next().unwrap_or_default();
    let line = &line[..line.len().min(60)];
    match std::str::from_utf8(line) {
        Ok(text) if !text.chars().any(char::is_control) => format!("it begins with \"{text}\""),
        _ => format!("it begins with the bytes {}", head[..head.len().min(16)].escape_ascii()),
    }
}

/// Iterates over the complete lines in a head, for the detection of line formats. The last line,
/// possibly truncated, is left out unless it is the only one.
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

/// Passes every non-empty text line to `read`, which returns the reason if a line gives no event.
fn text_lines(
    input: &mut Input<'_>,
    events: &mut Events<'_>,
    mut read: impl FnMut(&str, &mut Events<'_>) -> Result<Result<(), Skip>, Error>,
) -> Result<(), Error> {
    while let Some(line) = input.line()? {
        text_line(line, events, &mut read)?;
    }
    Ok(())
}

/// Passes a line to `read` as [`text_lines`] does.
fn text_line(
    line: Line<'_>,
    events: &mut Events<'_>,
    read: impl FnOnce(&str, &mut Events<'_>) -> Result<Result<(), Skip>, Error>,
) -> Result<(), Error> {
    events.at(line.number);
    let skip = match std::str::from_utf8(line.bytes) {
        _ if line.too_long => Err(Skip::Damage("line longer than 1 MiB")),
        Ok("") => return Ok(()),
        Ok(text) => read(text, events)?,
        Err(_) => Err(Skip::Damage("line that is not UTF-8")),
    };
    if let Err(skip) = skip {
        events.skipped(skip, line.number);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// fatrace has no offsets and lengths: a guess would be a made-up trace.
    #[test]
    fn a_file_of_fatrace_is_refused_with_the_reason() {
        for text in [
            "rsyslogd(875): W   /var/log/auth.log\ncompiz(1971): O   device 8:2 inode 658203\n",
            "10:17:54.123456 Web Content(7): RCO /a b\n10:17:55.1 cat(9): R   (deleted)\n",
            "1700000000.5 cat(7) [0:0]: CW  /a\n",
            "{\"comm\":\"cat\",\"pid\":7,\"types\":\"CW\",\"path\":\"/a\"}\n",
        ] {
            let error = detected(text.as_bytes()).map(|spec| spec.name).expect_err("no trace");
            assert!(error.to_string().contains("output of fatrace"), "{text}: {error}");
        }
        for text in ["main(7): x /a\n", "{\"a\":1}\n", "cat: R /a\n", "\n"] {
            let error = detected(text.as_bytes()).map(|spec| spec.name).expect_err("no trace");
            assert!(!error.to_string().contains("fatrace"), "{text}: {error}");
        }
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Helpers for the readers' tests.

    use super::FormatSpec;
    use crate::{
        Error,
        events::{Events, Kept, Summary},
        input::Input,
    };
    use flashsift_events::event::Event;

    /// Returns all output of `spec` for these bytes.
    pub(crate) fn read(
        spec: &FormatSpec,
        mut bytes: &[u8],
    ) -> Result<(Vec<Event<'static>>, Summary), Error> {
        let mut kept = Kept::default();
        let mut events = Events::new(&mut kept);
        (spec.read)(&mut Input::new(&mut bytes), &mut events)?;
        let summary = events.finish()?;
        Ok((kept.events, summary))
    }

    /// Returns a recorded trace from elsewhere, decompressed; `None`, with a message, if it is
    /// absent.
    pub(crate) fn shared(name: &str) -> Option<Vec<u8>> {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../../../shared/data")
            .join(name);
        if !path.exists() {
            println!("SKIPPED {name}: ../shared/data is not there");
            return None;
        }
        let mut all = Vec::new();
        let mut bytes = crate::open::plain(&path).expect("a readable trace");
        std::io::Read::read_to_end(&mut bytes, &mut all).expect("an intact archive");
        Some(all)
    }

    /// Renders the counts as text.
    pub(crate) fn skipped(summary: &Summary) -> String {
        summary.skipped.to_string()
    }
}
