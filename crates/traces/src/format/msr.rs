//! MSR-Cambridge CSV: block requests of servers,
//! `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`.
//!
//! ```text
//! 128166372003061629,hm,0,Write,8863744,4096,1317
//! ```
//!
//! Narayanan, Donnelly, Rowstron, "Write Off-Loading: Practical Power Management for Enterprise
//! Storage", FAST '08; SNIA IOTTA set 388. Its README defines the fields: the time of issue and the
//! response time are Windows filetime, 100 ns since 1601; the host and the disk are those in the
//! file's name (`hm_0.csv.gz`); the type is `Read` or `Write`, and in copies of others also `R` or
//! `W`; offset and size are bytes from the start of the logical disk. The files have no header; an
//! added header is skipped. The requests were recorded below the page cache.
//!
//! Lines are mostly in order of time; a line with an earlier time gets that of its predecessor and
//! is counted. The response time is specific to one disk array of 2007 and is not kept.

use super::{
    Confidence, FileId, FormatSpec, Knows, Side, Space,
    block::Devices,
    detected_by_lines, head_lines,
    quick::{self, KnownText, Lines, Near, Text},
};
use crate::{
    Error,
    events::{Access, AccessKind, Events, Skip},
    input::Input,
};
use flashsift_events::event::About;

pub(super) const SPEC: FormatSpec = FormatSpec {
    name: "msr",
    what: "MSR-Cambridge CSV: `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`",
    detect,
    read,
    ahead: true,
    sample: || SAMPLE.into(),
};

const HEADER: &str = "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime";
const SHAPE: Skip =
    Skip::Damage("line that is not `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`");
const TICKS_PER_US: u64 = 10;

const SAMPLE: &str = "\
128166372003061629,web,0,Read,7014609920,24576,41286
128166372016382155,web,0,Write,1317441536,8192,1963
128166372016382205,web,1,Write,32256,4096,602
128166372026382245,web,0,Read,2436997632,512,18223
";

fn is_header(line: &str) -> bool {
    line.trim_ascii().eq_ignore_ascii_case(HEADER)
}

fn detect(head: &[u8]) -> Confidence {
    if head_lines(head).any(|line| std::str::from_utf8(line).is_ok_and(is_header)) {
        return Confidence::Certain;
    }
    detected_by_lines(head, |line| Some(line.is_some_and(|line| Request::new(line).is_some())))
}

fn read(input: &mut Input<'_>, events: &mut Events<'_>) -> Result<(), Error> {
    events.about(About {
        epoch_us: None,
        boot_us: None,
        side: Side::After,
        space: Space::Blocks,
        knows: Knows { times: true, syncs: false, writes: true, removals: false, ..Knows::NOTHING },
    })?;
    quick::lines(input, events, &mut Reader::default())
}

#[derive(Default)]
struct Reader {
    devices: Devices,
    /// The disk of the line before, between its commas.
    last: Option<(KnownText, FileId)>,
    near: Near,
    first_ticks: Option<u64>,
}

impl Lines for Reader {
    /// `Err` of a header has no reason: it is neither a request nor damage.
    type Line<'a> = Result<Request<'a>, Option<Skip>>;

    /// A request of the disk of the line before.
    #[inline(always)]
    fn quick<'a>(&self, text: &mut Text<'a>) -> Option<Self::Line<'a>> {
        let (between, file) = self.last.as_ref()?;
        let ticks = text.number_near(&self.near)?;
        text.known(between)?;
        let write = match text.either(b"Write,", b"Read,") {
            Some(write) => write,
            None => text.either(b"W,", b"R,")?,
        };
        let mut numbers = text.numbers()?;
        let (offset, len) = (numbers.number(b',')?, numbers.number(b',')?);
        // The response time.
        numbers.any_last_number()?;
        Some(Ok(Request { ticks, disk: Disk::Known(*file), write, offset, len }))
    }

    fn whole<'a>(&self, line: &'a str) -> Self::Line<'a> {
        Request::new(line).ok_or_else(|| (!is_header(line)).then_some(SHAPE))
    }

    #[inline(always)]
    fn line(
        &mut self,
        line: Self::Line<'_>,
        events: &mut Events<'_>,
    ) -> Result<Result<(), Skip>, Error> {
        let Request { ticks, disk, write, offset, len } = match line {
            Ok(request) => request,
            Err(skip) => return Ok(skip.map_or(Ok(()), Err)),
        };
        self.near.follow(ticks);
        let at_us = ticks.saturating_sub(*self.first_ticks.get_or_insert(ticks)) / TICKS_PER_US;
        let file = match disk {
            Disk::Known(file) => file,
            Disk::Named(disk) => self.file(disk, at_us, events)?,
        };
        let kind = AccessKind::new(write);
        events.access(Access { at_us, pid: 0, tid: 0, file, open: None, offset, len, kind }).map(Ok)
    }

    #[cfg(test)]
    fn abbreviated<'a>(&self, mut line: Self::Line<'a>) -> Self::Line<'a> {
        if let Ok(Request { disk, .. }) = &mut line
            && let Disk::Named(name) = *disk
            && Some(name) == self.devices.last()
        {
            *disk = Disk::Known(self.last.as_ref().expect("it was named").1);
        }
        line
    }
}

impl Reader {
    #[cold]
    fn file(&mut self, disk: &[u8], at_us: u64, events: &mut Events<'_>) -> Result<FileId, Error> {
        // This is the naming scheme of the set's files.
        let name = || String::from_utf8_lossy(disk).replacen(',', "_", 1).into();
        let file = self.devices.file(disk, name, at_us, events)?;
        self.last = KnownText::new(&[b",", disk, b","].concat()).map(|between| (between, file));
        Ok(file)
    }
}

/// The disk of a request.
#[derive(Debug, PartialEq, Eq)]
enum Disk<'a> {
    /// That of the line before.
    Known(FileId),
    /// Host and disk, including the comma between them.
    Named(&'a [u8]),
}

#[derive(Debug, PartialEq, Eq)]
struct Request<'a> {
    ticks: u64,
    disk: Disk<'a>,
    write: bool,
    offset: u64,
    len: u64,
}

impl<'a> Request<'a> {
    fn new(line: &'a str) -> Option<Self> {
        let (ticks, rest) = line.split_once(',')?;
        let (host, after_host) = rest.split_once(',')?;
        let (number, after_disk) = after_host.split_once(',')?;
        let mut fields = after_disk.split(',');
        let (op, offset, len) = (fields.next()?, fields.next()?, fields.next()?);
        let _response_ticks: u64 = fields.next()?.trim_ascii_end().parse().ok()?;
        let is = |word: &str, letter: &str| {
            op.eq_ignore_ascii_case(word) || op.eq_ignore_ascii_case(letter)
        };
        let write = is("write", "w");
        let _disk_number: u32 = number.parse().ok()?;
        let whole = fields.next().is_none() && !host.is_empty() && (write || is("read", "r"));
        whole.then_some(Self {
            ticks: ticks.parse().ok()?,
            disk: Disk::Named(&rest.as_bytes()[..host.len() + 1 + number.len()]),
            write,
            offset: offset.parse().ok()?,
            len: len.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing;
    use flashsift_events::event::{Action, Event};

    fn read_lines(text: &str) -> (Vec<String>, String) {
        let (events, summary) = testing::read(&SPEC, text.as_bytes()).unwrap();
        let line = |e: &Event| match &e.action {
            Action::Read { file, offset, len, .. } => {
                format!("{} {} r {offset} {len}", e.at_us, file.0)
            }
            Action::Write { file, offset, len, .. } => {
                format!("{} {} w {offset} {len}", e.at_us, file.0)
            }
            Action::Bind { file, name } => format!("{} is {name}", file.0),
            other => panic!("{other:?}"),
        };
        (events.iter().map(line).collect(), testing::skipped(&summary))
    }

    #[test]
    fn both_parsers_agree() {
        let lines: Vec<_> = SAMPLE.lines().chain([HEADER]).collect();
        quick::testing::agree(Reader::default(), &lines, 0.5);
    }

    #[test]
    fn each_disk_is_a_file_and_times_are_in_microseconds() {
        let expected = [
            "0 is web_0",
            "0 0 r 7014609920 24576",
            "1332052 0 w 1317441536 8192",
            "1 is web_1",
            "1332057 1 w 32256 4096",
            "2332061 0 r 2436997632 512",
        ];
        let (events, skipped) = read_lines(SAMPLE);
        assert_eq!((&events[..], &*skipped), (&expected.map(String::from)[..], ""));
        assert_eq!(detect(SAMPLE.as_bytes()), Confidence::Likely);

        let with_header = format!("{HEADER}\r\n{}", SAMPLE.replace('\n', "\r\n"));
        assert_eq!(detect(with_header.as_bytes()), Confidence::Certain);
        assert_eq!(read_lines(&with_header), (events, skipped));
    }

    /// Copies of the set shorten the types to one letter. Such lines were damage.
    #[test]
    fn letters_are_types_too() {
        let text = SAMPLE.replace("Write", "W").replace("Read", "R");
        assert_eq!(read_lines(&text), read_lines(SAMPLE));
        assert_eq!(detect(text.as_bytes()), Confidence::Likely);
        let lines: Vec<_> = text.lines().collect();
        quick::testing::agree(Reader::default(), &lines, 0.5);
    }

    #[test]
    fn invalid_lines_are_counted() {
        let (events, skipped) = read_lines(
            "5,h,0,Read,0,1,1\n5,h,0,Trim,0,1,1\n5,h,x,Read,0,1,1\n5,,0,Read,0,1,1\n\
             -5,h,0,Read,0,1,1\n5,h,0,Read,0,1\n\
             5,h,0,Read,0,1,1,1\n5,h,0,Read,-1,1,1\n5,h,0,Read,9223372036854775807,1,1\n\
             5,h,0,Write,0,2147483648,1\n\
             25,H,0,write,4096,1,1\n4,h,0,Read,7,1,1\n",
        );
        assert_eq!(events, ["0 is h_0", "0 0 r 0 1", "1 is H_0", "2 1 w 4096 1", "2 0 r 7 1"]);
        assert_eq!(
            skipped,
            "7 × line that is not \
             `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime` (first at 2); 1 \
             × offset beyond 2^63 (first at 9); 1 × request longer than 1 GiB (first at 10)"
        );
        assert_eq!(detect(b"5,h,0,Read,0,1\n"), Confidence::No);
    }
}
