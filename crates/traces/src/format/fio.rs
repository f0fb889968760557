//! fio's iolog, versions 2 and 3: the I/O that fio performed or is to replay (`fio --write_iolog`,
//! `--read_iolog`; fio(1), "Trace file format").
//!
//! ```text
//! fio version 3 iolog
//! 17 /data/a add
//! 121 /data/a open
//! 125 /data/a read 0 4096
//! 70135 /data/a close
//! ```
//!
//! Version 3 puts a time before each line. The manual does not give its unit; fio 3.33 writes and
//! replays microseconds (a log whose last time is 2000000 runs for two seconds). Version 2 has
//! `NAME wait µs 0` lines instead, each relative to the previous one: if there is one near the
//! start, times are their sums, else the trace has no times.
//!
//! File names may contain spaces, so a line is parsed from its end. A name beginning with `/dev/`
//! is a block device. If all names in the first 4096 lines are block devices, this is an
//! after-cache trace of blocks, else a before-cache trace of files; the type has to be known before
//! the first event, so later names do not change it. `sync` and `datasync` make the whole file
//! durable, `trim` discards its blocks. fio never deletes or truncates in a log.

use super::{
    Confidence, FileId, FormatSpec, Knows, Side, Space,
    quick::{self, KnownText, Lines, Memo, Text},
};
use crate::{
    Error,
    events::{Access, AccessKind, Events, Skip},
    input::Input,
};
use flashsift_events::event::{About, Action, Event, MaybeOwned};
use foldhash::fast::FixedState;
use std::collections::HashMap;

pub(super) const V2: FormatSpec = FormatSpec {
    name: "fio-iolog-2",
    what: "fio's iolog, version 2: `NAME action [offset length]`",
    detect: |head| detect(head, HEADER_2),
    read: |input, events| read(input, events, Version::Two),
    ahead: true,
    sample: || SAMPLE_2.into(),
};

pub(super) const V3: FormatSpec = FormatSpec {
    name: "fio-iolog-3",
    what: "fio's iolog, version 3: `µs NAME action [offset length]`",
    detect: |head| detect(head, HEADER_3),
    read: |input, events| read(input, events, Version::Three),
    ahead: true,
    sample: || SAMPLE_3.into(),
};

const HEADER_2: &str = "fio version 2 iolog";
pub(crate) const HEADER_3: &str = "fio version 3 iolog";
const HEAD_LINES: u64 = 4096;
/// Linux's `PATH_MAX`.
const NAME_BYTES_MAX: usize = 4096;

const SAMPLE_2: &str = "fio version 2 iolog
/data/a add
/data/a open
/data/a write 0 8192
/data/a wait 1500 0
/data/a datasync 0 0
/data/a read 4096 4096
/data/a trim 0 4096
/data/a close
";
const SAMPLE_3: &str = "fio version 3 iolog
17 /dev/sda add
121 /dev/sda open
125 /dev/sda read 0 4096
460 /dev/sda write 20480 4096
462 /dev/sda sync 0 0
70135 /dev/sda close
";

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Version {
    Two,
    #[default]
    Three,
}

fn detect(head: &[u8], header: &str) -> Confidence {
    let line = head.split(|&b| b == b'\n').next().unwrap_or_default().trim_ascii_end();
    if line == header.as_bytes() { Confidence::Certain } else { Confidence::No }
}

fn read(input: &mut Input<'_>, events: &mut Events<'_>, version: Version) -> Result<(), Error> {
    let mut reader = Reader { version, ..Reader::default() };
    quick::lines(input, events, &mut reader)?;
    reader.settle(events)
}

const SHAPE: Skip = Skip::Damage("line that is not `[time] name action [offset length]`");

impl Lines for Reader {
    /// `Err` of a header has no reason: it is neither an action nor damage.
    type Line<'a> = Result<Line<'a>, Option<Skip>>;

    /// A read or write of a file without a space in its name.
    #[inline(always)]
    fn quick<'a>(&self, text: &mut Text<'a>) -> Option<Self::Line<'a>> {
        let time = match self.version {
            Version::Two => 0,
            Version::Three => {
                let time = text.number()?;
                text.byte(b' ')?;
                time
            }
        };
        let name = match &self.last {
            Some((before, file)) if text.known(before).is_some() => Name::Known(*file),
            _ => {
                let name = text.field(b' ')?;
                text.byte(b' ')?;
                match self.memo.get(name) {
                    Some(file) => Name::Known(file),
                    None if name.bytes().is_empty() => return None,
                    None => Name::Text(name.bytes()),
                }
            }
        };
        let write = text.either(b"write ", b"read ")?;
        let offset = text.number()?;
        text.byte(b' ')?;
        let len = text.number()?;
        text.end()?;
        let action = if write { Do::Write } else { Do::Read };
        Some(Ok(Line { time, name, action, offset, len }))
    }

    fn whole<'a>(&self, text: &'a str) -> Self::Line<'a> {
        match text {
            HEADER_2 | HEADER_3 => Err(None),
            _ => Line::new(text, self.version).map_err(Some),
        }
    }

    #[inline(always)]
    fn line(
        &mut self,
        line: Self::Line<'_>,
        events: &mut Events<'_>,
    ) -> Result<Result<(), Skip>, Error> {
        match line {
            Ok(line) => self.act(&line, events).map(Ok),
            Err(skip) => Ok(skip.map_or(Ok(()), Err)),
        }
    }

    #[cfg(test)]
    fn abbreviated<'a>(&self, mut line: Self::Line<'a>) -> Self::Line<'a> {
        if let Ok(Line { name, .. }) = &mut line
            && let Name::Text(text) = *name
            && let Some(file) = self.files.get(text)
        {
            *name = Name::Known(*file);
        }
        line
    }
}

/// The action of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Do {
    Add,
    Open,
    Close,
    Read,
    Write,
    Sync,
    DataSync,
    SyncRange,
    Trim,
    Wait,
}

impl Do {
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "add" => Self::Add,
            "open" => Self::Open,
            "close" => Self::Close,
            "read" => Self::Read,
            "write" => Self::Write,
            "sync" => Self::Sync,
            "datasync" => Self::DataSync,
            "sync_file_range" => Self::SyncRange,
            "trim" => Self::Trim,
            "wait" => Self::Wait,
            _ => return None,
        })
    }
}

/// The file of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name<'a> {
    /// One that was named before.
    Known(FileId),
    Text(&'a [u8]),
}

#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    time: u64,
    name: Name<'a>,
    action: Do,
    offset: u64,
    len: u64,
}

impl<'a> Line<'a> {
    fn new(text: &'a str, version: Version) -> Result<Self, Skip> {
        let number = |word: &str| word.parse::<u64>().map_err(|_| SHAPE);
        let (time, rest) = match version {
            Version::Two => (0, text),
            Version::Three => {
                let (time, rest) = text.split_once(' ').ok_or(SHAPE)?;
                (number(time)?, rest)
            }
        };
        let (before, last) = rest.trim_ascii_end().rsplit_once(' ').ok_or(SHAPE)?;
        // The short form is fio's form for files; the rest is tolerated for a plain `NAME sync`.
        let (name, action, offset, len) = match Do::parse(last) {
            Some(action) => (before, Some(action), 0, 0),
            None => {
                let (before, offset) = before.rsplit_once(' ').ok_or(SHAPE)?;
                let (name, action) = before.rsplit_once(' ').ok_or(SHAPE)?;
                (name, Do::parse(action), number(offset)?, number(last)?)
            }
        };
        match action {
            Some(Do::Wait) if version == Version::Three => {
                Err(Skip::Damage("`wait` in a log of version 3"))
            }
            _ if name.len() > NAME_BYTES_MAX => {
                Err(Skip::Damage("file name longer than 4096 bytes"))
            }
            Some(action) if !name.is_empty() => {
                Ok(Self { time, name: Name::Text(name.as_bytes()), action, offset, len })
            }
            _ => Err(SHAPE),
        }
    }
}

#[derive(Default)]
struct Reader {
    version: Version,
    first: Option<u64>,
    at_us: u64,
    files: HashMap<Box<[u8]>, FileId, FixedState>,
    /// The name that was last looked up in `files`, and the space behind it.
    last: Option<(KnownText, FileId)>,
    /// Those that were looked up lately.
    memo: Memo<FileId>,
    waits: bool,
    /// Events and their lines, held until the type of the trace is known.
    held: Vec<(u64, Event<'static>)>,
    /// Whether the trace has times, once that is known.
    times: Option<bool>,
}

impl Reader {
    #[inline(always)]
    fn act(&mut self, line: &Line<'_>, events: &mut Events<'_>) -> Result<(), Error> {
        if self.times.is_none() && events.line() > HEAD_LINES {
            self.settle(events)?;
        }
        let &Line { time, name, action, offset, len } = line;
        if self.version == Version::Three {
            self.at_us = time.saturating_sub(*self.first.get_or_insert(time));
        }
        let file = match name {
            Name::Known(file) => file,
            Name::Text(name) => self.file(name, events)?,
        };
        let (at_us, held) = (self.at_us, self.times.is_none());
        let action = match action {
            Do::Read | Do::Write if !held => {
                let kind = AccessKind::new(action == Do::Write);
                return events.access(Access {
                    at_us,
                    pid: 0,
                    tid: 0,
                    file,
                    open: None,
                    offset,
                    len,
                    kind,
                });
            }
            Do::Open => Action::Open { open: None, file, created: false },
            Do::Close => Action::Close { open: None, file },
            Do::Read => Action::Read { open: None, file, offset, len },
            Do::Write => Action::Write { open: None, file, offset, len, sync: false },
            Do::Sync | Do::DataSync => {
                let data_only = action == Do::DataSync;
                Action::Sync { file, offset: 0, len: u64::MAX, data_only }
            }
            Do::SyncRange => Action::Sync { file, offset, len, data_only: true },
            Do::Trim => Action::Punch { file, offset, len },
            Do::Wait => {
                self.waits = true;
                // A log without a wait near its start counts as one without times.
                if self.times != Some(false) {
                    self.at_us = self.at_us.saturating_add(offset);
                }
                return Ok(());
            }
            Do::Add => return Ok(()),
        };
        self.push(action, events)
    }

    #[inline(never)]
    fn file(&mut self, name: &[u8], events: &mut Events<'_>) -> Result<FileId, Error> {
        let known = self.files.get(name).copied();
        let file = known.unwrap_or(FileId(self.files.len() as u64));
        self.last = KnownText::new(&[name, b" "].concat()).map(|before| (before, file));
        self.memo.put(name, file);
        if known.is_none() {
            self.files.insert(name.into(), file);
            let name = MaybeOwned::owned_str(&String::from_utf8_lossy(name));
            self.push(Action::Bind { file, name }, events)?;
        }
        Ok(file)
    }

    fn push(&mut self, action: Action<'static>, events: &mut Events<'_>) -> Result<(), Error> {
        let event = Event { at_us: self.at_us, pid: 0, tid: 0, action };
        if self.times.is_some() {
            return events.push(event);
        }
        self.held.push((events.line(), event));
        Ok(())
    }

    /// Declares the type of the trace, from the lines so far.
    fn settle(&mut self, events: &mut Events<'_>) -> Result<(), Error> {
        if self.times.is_some() {
            return Ok(());
        }
        let blocks =
            !self.files.is_empty() && self.files.keys().all(|name| name.starts_with(b"/dev/"));
        let (side, space) =
            if blocks { (Side::After, Space::Blocks) } else { (Side::Before, Space::Files) };
        let times = self.version == Version::Three || self.waits;
        self.times = Some(times);
        let knows = Knows { times, syncs: true, writes: true, removals: false, ..Knows::NOTHING };
        events.about(About { epoch_us: None, boot_us: None, side, space, knows })?;
        for (number, event) in self.held.drain(..) {
            events.at(number);
            events.push(event)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing;

    fn lines(spec: &FormatSpec, text: &str) -> (About, Vec<String>, String) {
        let (events, summary) = testing::read(spec, text.as_bytes()).unwrap();
        let line = |e: &Event| {
            let what = match &e.action {
                Action::Read { file, offset, len, .. } => format!("{} r {offset} {len}", file.0),
                Action::Write { file, offset, len, sync: false, .. } => {
                    format!("{} w {offset} {len}", file.0)
                }
                Action::Bind { file, name } => format!("{} is {name}", file.0),
                Action::Open { file, created: false, .. } => format!("{} opened", file.0),
                Action::Close { file, .. } => format!("{} closed", file.0),
                Action::Sync { file, offset, len: u64::MAX, .. } => {
                    format!("{} sync {offset}", file.0)
                }
                Action::Sync { file, offset, len, .. } => format!("{} sync {offset} {len}", file.0),
                Action::Punch { file, offset, len } => format!("{} trim {offset} {len}", file.0),
                other => panic!("{other:?}"),
            };
            format!("{} {what}", e.at_us)
        };
        (summary.about.unwrap(), events.iter().map(line).collect(), testing::skipped(&summary))
    }

    #[test]
    fn both_parsers_agree() {
        for (version, sample) in [(Version::Two, SAMPLE_2), (Version::Three, SAMPLE_3)] {
            let lines: Vec<_> = sample.lines().collect();
            quick::testing::agree(Reader { version, ..Reader::default() }, &lines, 0.2);
        }
    }

    #[test]
    fn version_2_has_waits_instead_of_times() {
        let (about, events, skipped) = lines(&V2, SAMPLE_2);
        assert_eq!(
            (about.side, about.space, about.knows.times),
            (Side::Before, Space::Files, true)
        );
        assert_eq!(
            events,
            [
                "0 0 is /data/a",
                "0 0 opened",
                "0 0 w 0 8192",
                "1500 0 sync 0",
                "1500 0 r 4096 4096",
                "1500 0 trim 0 4096",
                "1500 0 closed",
            ]
        );
        assert_eq!(skipped, "");
        let without = SAMPLE_2.replace("/data/a wait 1500 0\n", "");
        assert!(!lines(&V2, &without).0.knows.times);
        let late = without
            + &"/data/a read 0 1\n".repeat(HEAD_LINES as usize)
            + "/a wait 5 0\n/a read 0 1\n";
        let (about, events, _) = lines(&V2, &late);
        assert_eq!((about.knows.times, &**events.last().unwrap()), (false, "0 1 r 0 1"));
    }

    #[test]
    fn version_3_of_a_device() {
        let (about, events, skipped) = lines(&V3, SAMPLE_3);
        assert_eq!(
            (about.side, about.space, about.knows.times),
            (Side::After, Space::Blocks, true)
        );
        assert_eq!(events[2..5], ["108 0 r 0 4096", "443 0 w 20480 4096", "445 0 sync 0"]);
        assert_eq!(skipped, "");
        let mixed = SAMPLE_3.to_owned() + "70136 /data/b add\n";
        assert_eq!(lines(&V3, &mixed).0.space, Space::Files);
    }

    #[test]
    fn names_with_spaces_and_nonsense() {
        let (_, events, skipped) = lines(
            &V3,
            "fio version 3 iolog\n5 /a b read 0 1\n6 /a b sync\n7 /a b sync_file_range 4096 8192\n\
             8 /a wait 5 0\n\
             9 /a fly 0 1\n10 /a read 0\n/a read 0 1\n11 /a read -1 1\n12  read 1 1\n\
             13 /a read 9223372036854775807 1\n14 /a b write 18446744073709551616 1\n",
        );
        assert_eq!(
            events,
            ["0 0 is /a b", "0 0 r 0 1", "1 0 sync 0", "2 0 sync 4096 8192", "8 1 is /a"]
        );
        assert_eq!(
            skipped,
            "1 × `wait` in a log of version 3 (first at 5); 6 × line that is not `[time] name \
             action [offset length]` (first at 6); 1 × offset beyond 2^63 (first at 11)"
        );
    }
}
