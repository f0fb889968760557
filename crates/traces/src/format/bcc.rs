//! Output of bcc's tools: `biosnoop`, a line for each request of a disk, and a line for each slow
//! call: `ext4slower`, `btrfsslower`, `f2fsslower`, `nfsslower`, `xfsslower`, `zfsslower`,
//! `fsslower` and `fileslower`.
//!
//! ```text
//! TIME(s)     COMM           PID    DISK    T SECTOR     BYTES   LAT(ms)
//! 0.000004    supervise      1950   vda1    W 13092560   4096       0.74
//!
//! TIME     COMM           PID    T BYTES   OFF_KB   LAT(ms) FILENAME
//! 06:35:01 cron           16464  R 1249    0          16.05 common-auth
//! ```
//!
//! The forms follow the sources of bcc 0.35, in Python and in C. A program's name may contain
//! spaces. Times are those at which requests and calls ended, of which biosnoop prints the order.
//! The sector is a unit of 512 bytes.
//!
//! The file tools print the last part of a path, so files of the same name are one file, and an
//! offset in KiB, or in bytes with `-j`. They leave out calls that were faster than a threshold,
//! 10 ms by default. `fileslower` prints no offset: an access then begins where the thread's last
//! one in this file ended. Each of these facts is noted.

use super::{
    Confidence, FileId, FormatSpec, Knows, Side, Space,
    block::{Devices, Rwbs, SECTOR_BYTES},
    day::{self, Days},
    detected_by_lines, head_lines,
    processes::Processes,
    text_lines,
};
use crate::{
    Error,
    events::{Access, AccessKind, Events, Skip},
    input::Input,
};
use flashsift_events::event::{About, Action, Event};
use std::collections::HashMap;

pub(super) const BIOSNOOP: FormatSpec = FormatSpec {
    name: "biosnoop",
    what: "output of bcc's biosnoop",
    detect: |head| detect(head, is_request_header, |line| request(line).is_some()),
    read: read_requests,
    ahead: true,
    sample: || REQUESTS.into(),
};

pub(super) const SLOWER: FormatSpec = FormatSpec {
    name: "fsslower",
    what: "output of bcc's ext4slower, xfsslower, btrfsslower, f2fsslower, fsslower or fileslower",
    detect: |head| detect(head, is_call_header, |line| call(line).is_some()),
    read: read_calls,
    ahead: true,
    sample: || CALLS.into(),
};

const REQUESTS: &str = "\
TIME(s)     COMM           PID    DISK    T SECTOR     BYTES  QUE(ms) LAT(ms)
0.000000    jbd2/vda1-8    411    vda1    W 13092560   4096      0.01    0.74
0.001469    Web Content    1956   vda1    R 13092440   16384     0.02    1.24
";

const CALLS: &str = "\
Tracing ext4 operations slower than 1 ms
TIME     COMM           PID    T BYTES   OFF_KB   LAT(ms) FILENAME
06:35:01 cron           16464  R 1249    0          16.05 common-auth
06:35:01 Web Content    1956   W 4096    12          1.20 cookies db
06:35:02 Web Content    1956   S 0       0          20.31 cookies db
";

const HEADER: Skip = Skip::Benign("header of a tool of bcc");
const SLOW: Skip = Skip::Note("calls faster than a threshold are not in the trace");
const NOT_A_REQUEST: Skip = Skip::Damage("line that is no request of biosnoop");
const NOT_A_CALL: Skip = Skip::Damage("line that is no call of ext4slower and the like");
const KIBIBYTES: Skip =
    Skip::Note("offset rounded down to KiB (ext4slower and the like, without -j)");
const NO_OFFSET: Skip = Skip::Note(
    "offset that fileslower does not print: behind the thread's access before in this file",
);
const OTHER: Skip = Skip::Benign("open, or another call without data");
const FAILED: Skip = Skip::Benign("failed call");

fn is_request_header(line: &str) -> bool {
    line.starts_with("TIME") && line.contains(" DISK ") && line.contains(" SECTOR ")
}

fn is_call_header(line: &str) -> bool {
    line.starts_with("TIME") && line.contains(" LAT(ms) FILENAME") || csv_unit(line).is_some()
}

fn detect(
    head: &[u8],
    is_header: impl Fn(&str) -> bool,
    is_line: impl Fn(&str) -> bool,
) -> Confidence {
    let text = |line| std::str::from_utf8(line).ok();
    if head_lines(head).take(10).filter_map(text).any(is_header) {
        return Confidence::Certain;
    }
    detected_by_lines(head, |line| Some(line.is_some_and(&is_line)))
}

/// Splits off the next word.
fn word(text: &str) -> Option<(&str, &str)> {
    let text = text.trim_start();
    let end = text.find(char::is_whitespace).unwrap_or(text.len());
    (end > 0).then(|| text.split_at(end))
}

/// Parses seconds to microseconds: `0.001469`.
fn seconds(text: &str) -> Option<u64> {
    let (whole, _) = text.split_once('.')?;
    let (us, rest) = day::fraction(&text.as_bytes()[whole.len()..]);
    let whole: u64 = whole.parse().ok().filter(|_| rest.is_empty())?;
    whole.checked_mul(1_000_000)?.checked_add(us)
}

/// A time at the start of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Time {
    SinceFirst(u64),
    OfDay(u64),
}

fn time(word: &str) -> Option<Time> {
    let of_day = day::time(word.as_bytes()).filter(|(_, rest)| rest.is_empty());
    of_day.map(|(us, _)| Time::OfDay(us)).or_else(|| seconds(word).map(Time::SinceFirst))
}

/// The clock of a trace.
#[derive(Default)]
struct Clock {
    days: Days,
    first_us: Option<u64>,
}

impl Clock {
    /// Returns microseconds since the first line.
    fn us(&mut self, time: Time) -> u64 {
        match time {
            Time::OfDay(us) => self.days.since_first(us),
            Time::SinceFirst(us) => us.saturating_sub(*self.first_us.get_or_insert(us)),
        }
    }
}

/// A request of a disk. `None` as the sector: it has no place, as a flush.
#[derive(Debug)]
struct Request<'a> {
    time: Time,
    comm: &'a str,
    pid: u32,
    disk: &'a str,
    rwbs: Rwbs,
    sector: Option<u64>,
    bytes: u64,
}

/// Parses a line from its end, because the name of a program may contain spaces.
fn request(line: &str) -> Option<Request<'_>> {
    let (first, rest) = word(line)?;
    let mut rest = rest.trim();
    let mut last = || {
        let (before, last) = rest.rsplit_once(char::is_whitespace)?;
        rest = before.trim_end();
        Some(last)
    };
    // Times with a decimal point, and the pattern of `-P`.
    let mut bytes = last()?;
    let is_time = |word: &str| word.contains('.') && word.parse::<f64>().is_ok();
    if !is_time(bytes) {
        return None;
    }
    while is_time(bytes) || matches!(bytes, "S" | "R" | "?") {
        bytes = last()?;
    }
    let (sector, flags, disk, pid) = (last()?, last()?, last()?, last()?);
    Some(Request {
        time: time(first)?,
        comm: rest,
        pid: pid.parse().ok()?,
        disk,
        rwbs: Rwbs::parse(flags)?,
        sector: if sector == "-1" { None } else { Some(sector.parse().ok()?) },
        bytes: bytes.parse().ok()?,
    })
}

fn read_requests(input: &mut Input<'_>, events: &mut Events<'_>) -> Result<(), Error> {
    events.about(About {
        epoch_us: None,
        boot_us: None,
        side: Side::After,
        space: Space::Blocks,
        knows: Knows { times: true, syncs: false, writes: true, removals: false, ..Knows::NOTHING },
    })?;
    let (mut clock, mut disks) = (Clock::default(), Devices::default());
    let mut processes = Processes::default();
    text_lines(input, events, |line, events| {
        if is_request_header(line) || line.starts_with("Tracing ") {
            return Ok(Err(HEADER));
        }
        let Some(request) = request(line) else { return Ok(Err(NOT_A_REQUEST)) };
        let Request { time, comm, pid, disk, rwbs, sector, bytes } = request;
        let span = sector.filter(|_| bytes > 0).map(|sector| (sector, bytes / SECTOR_BYTES));
        if let Err(skip) = rwbs.gives_event(span.is_some()) {
            return Ok(Err(skip));
        }
        let at_us = clock.us(time);
        processes.runs(pid, comm.as_bytes(), at_us, events)?;
        let file = disks.file(disk.as_bytes(), || format!("/dev/{disk}").into(), at_us, events)?;
        rwbs.push((at_us, pid, 0), file, span, events).map(Ok)
    })
}

/// A call on a file.
#[derive(Debug)]
struct Call<'a> {
    time: Time,
    comm: &'a str,
    pid: u32,
    op: u8,
    /// Negative if it failed; `None` if it is the whole file.
    bytes: Option<i64>,
    offset: Offset,
    name: &'a str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Offset {
    Bytes(u64),
    Kibibytes(u64),
    Unknown,
}

fn op(word: &str) -> Option<u8> {
    <[u8; 1]>::try_from(word.as_bytes()).ok().map(|[op]| op).filter(u8::is_ascii_uppercase)
}

fn size(word: &str) -> Option<Option<i64>> {
    if word == "LL_MAX" { Some(None) } else { word.parse().ok().map(Some) }
}

/// Parses a line from the first word on that can be the process: names of programs and files may
/// contain spaces.
fn call(line: &str) -> Option<Call<'_>> {
    let (first, rest) = word(line)?;
    let (time, comm) = (time(first)?, rest.trim_start());
    let (_, mut rest) = word(comm)?;
    loop {
        let name_end = comm.len() - rest.len();
        let (next, after) = word(rest)?;
        let parsed = || {
            let pid = next.parse().ok()?;
            let (op_word, rest) = word(after)?;
            let (bytes, rest) = word(rest)?;
            let (mut third, mut rest) = word(rest)?;
            let mut offset = Offset::Unknown;
            if !third.contains('.') {
                offset = Offset::Kibibytes(third.parse().ok()?);
                (third, rest) = word(rest)?;
            }
            let name = rest.strip_prefix(' ').filter(|name| !name.is_empty())?;
            third.parse::<f64>().ok().filter(|_| third.contains('.'))?;
            let (op, bytes, comm) = (op(op_word)?, size(bytes)?, &comm[..name_end]);
            Some(Call { time, comm, pid, op, bytes, offset, name })
        };
        match parsed() {
            Some(call) => return Some(call),
            None => rest = after,
        }
    }
}

/// Returns the time units in a microsecond of a header of `-j`.
fn csv_unit(line: &str) -> Option<u64> {
    match line {
        "ENDTIME_us,TASK,PID,TYPE,BYTES,OFFSET_b,LATENCY_us,FILE" => Some(1),
        "ENDTIME_ns,TASK,PID,TYPE,BYTES,OFFSET_b,LATENCY_us,FILE" => Some(1000),
        _ => None,
    }
}

/// Parses a line that `-j` prints.
fn csv_call(line: &str, units: u64) -> Option<Call<'_>> {
    let mut fields = line.splitn(8, ',');
    let mut next = || fields.next();
    let time = Time::SinceFirst(next()?.parse::<u64>().ok()? / units);
    let (comm, pid, op) = (next()?, next()?.parse().ok()?, op(next()?)?);
    let (bytes, offset) = (size(next()?)?, Offset::Bytes(next()?.parse().ok()?));
    next()?;
    Some(Call { time, comm, pid, op, bytes, offset, name: next()? })
}

#[derive(Default)]
struct Calls {
    clock: Clock,
    processes: Processes,
    files: Devices,
    /// Ends of the last accesses, by thread and file, where the trace has no offsets.
    ends: HashMap<(u32, FileId), u64>,
}

fn read_calls(input: &mut Input<'_>, events: &mut Events<'_>) -> Result<(), Error> {
    events.about(About {
        epoch_us: None,
        boot_us: None,
        side: Side::Before,
        space: Space::Files,
        knows: Knows { times: true, syncs: true, writes: true, ..Knows::NOTHING },
    })?;
    let (mut calls, mut units) = (Calls::default(), None);
    text_lines(input, events, |line, events| {
        if is_call_header(line) || line.starts_with("Tracing ") {
            units = csv_unit(line);
            if line.contains(" slower than ") && !line.contains(" slower than 0 ms") {
                events.skipped(SLOW, events.line());
            }
            return Ok(Err(HEADER));
        }
        let parsed = match units {
            Some(units) => csv_call(line, units),
            None => call(line),
        };
        match parsed {
            Some(call) => calls.push(&call, events),
            None => Ok(Err(NOT_A_CALL)),
        }
    })
}

impl Calls {
    fn push(
        &mut self,
        call: &Call<'_>,
        events: &mut Events<'_>,
    ) -> Result<Result<(), Skip>, Error> {
        let Call { time, comm, pid, op, bytes, offset, name } = *call;
        let sync = matches!(op, b'S' | b'F');
        let len = match bytes {
            _ if !matches!(op, b'R' | b'W') && !sync => return Ok(Err(OTHER)),
            Some(bytes) if bytes < 0 => return Ok(Err(FAILED)),
            bytes => bytes.unwrap_or_default() as u64,
        };
        let at_us = self.clock.us(time);
        self.processes.runs(pid, comm.as_bytes(), at_us, events)?;
        let file = self.files.file(name.as_bytes(), || name.into(), at_us, events)?;
        if sync {
            let action = Action::Sync { file, offset: 0, len: u64::MAX, data_only: false };
            return events.push(Event { at_us, pid, tid: pid, action }).map(Ok);
        }
        let line = events.line();
        let offset = match offset {
            Offset::Bytes(offset) => offset,
            Offset::Kibibytes(offset) => {
                if offset > 0 {
                    events.skipped(KIBIBYTES, line);
                }
                offset.saturating_mul(1024)
            }
            Offset::Unknown => {
                events.skipped(NO_OFFSET, line);
                let end = self.ends.entry((pid, file)).or_default();
                std::mem::replace(end, end.saturating_add(len))
            }
        };
        let kind = AccessKind::new(op == b'W');
        let open = None;
        events.access(Access { at_us, pid, tid: pid, file, open, offset, len, kind }).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing;

    type Seen = (u64, u32, Action<'static>);

    fn seen(spec: &FormatSpec, text: &str) -> (Vec<Seen>, String) {
        let (events, summary) = testing::read(spec, text.as_bytes()).expect("no error but of I/O");
        let is_access = |action: &Action<'_>| {
            matches!(action, Action::Read { .. } | Action::Write { .. } | Action::Sync { .. })
        };
        let all = events.into_iter().map(|event| (event.at_us, event.pid, event.action));
        (all.filter(|(.., action)| is_access(action)).collect(), testing::skipped(&summary))
    }

    fn read(file: u64, offset: u64, len: u64) -> Action<'static> {
        Action::Read { open: None, file: FileId(file), offset, len }
    }

    fn write(file: u64, offset: u64, len: u64, sync: bool) -> Action<'static> {
        Action::Write { open: None, file: FileId(file), offset, len, sync }
    }

    fn sync(file: u64) -> Action<'static> {
        Action::Sync { file: FileId(file), offset: 0, len: u64::MAX, data_only: false }
    }

    /// biosnoop was once not recognised, and `--columns` took no spaces for separators.
    #[test]
    fn each_line_of_biosnoop_is_a_request() {
        let text = "\
TIME(s)     COMM           PID    DISK    T SECTOR     BYTES   LAT(ms)
1.000000    logd           311    vda     W 8          4096       0.50
1.020000    jbd2/vda1-8    77     vdb     R 16         8192       1.25
1.030000    Web Content    78     vda     WS   24      512    S    0.01    1.25
10:00:00.5  x
1.040000    kworker/0:1H   79     vda     FWS  -1      0       0.000    1.250
1.050000    fstrim         80     vda     N    0       0          1.25
";
        let (found, skipped) = seen(&BIOSNOOP, text);
        assert_eq!(
            found,
            [
                (0, 311, write(0, 4096, 4096, false)),
                (20_000, 77, read(1, 8192, 8192)),
                (30_000, 78, write(0, 12288, 512, true)),
                (40_000, 79, sync(0)),
            ]
        );
        assert_eq!(
            skipped,
            "1 × header of a tool of bcc (first at 1); 1 × line that is no request of biosnoop \
             (first at 5); 1 × request without data (first at 7)"
        );
    }

    /// The offset of ext4slower is in KiB, of which the trace does not hold the rest.
    #[test]
    fn each_line_of_the_file_tools_is_a_call() {
        let text = "\
Tracing ext4 operations slower than 10 ms
TIME     COMM           PID    T BYTES   OFF_KB   LAT(ms) FILENAME
23:59:59 cron           16464  R 700     0          16.05 common-auth
00:00:01 Web Content 2  1956   W 4096    12         10.20 the 5 R 6 7 1.5 file
00:00:01 Web Content 2  1956   F LL_MAX  0          20.31 the 5 R 6 7 1.5 file
00:00:01 Web Content 2  1956   O 0       0          20.31 common-auth
00:00:01 Web Content 2  1956   R -5      0          20.31 common-auth
";
        let (found, skipped) = seen(&SLOWER, text);
        assert_eq!(
            found,
            [
                (0, 16464, read(0, 0, 700)),
                (2_000_000, 1956, write(1, 12288, 4096, false)),
                (2_000_000, 1956, sync(1)),
            ]
        );
        assert_eq!(
            skipped,
            "1 × calls faster than a threshold are not in the trace (first at 1); 1 × failed call \
             (first at 7); 2 × header of a tool of bcc (first at 1); 1 × offset rounded down to \
             KiB (ext4slower and the like, without -j) (first at 4); 1 × open, or another call \
             without data (first at 6)"
        );
        let csv = "\
ENDTIME_ns,TASK,PID,TYPE,BYTES,OFFSET_b,LATENCY_us,FILE
5000,Web Content,7,W,100,1000,3,a,b
9000,Web Content,7,F,LL_MAX,0,3,a,b
";
        let (found, _) = seen(&SLOWER, csv);
        assert_eq!(found, [(0, 7, write(0, 1000, 100, false)), (4, 7, sync(0))]);
        assert_eq!((SLOWER.detect)(csv.as_bytes()), Confidence::Certain);
    }

    #[test]
    fn an_access_of_fileslower_begins_where_the_last_one_ended() {
        let text = "\
Tracing sync read/writes slower than 0 ms
TIME(s)  COMM           TID    D BYTES   LAT(ms) FILENAME
0.100    randread.pl    4762   R 8192      12.70 data1
0.200    randread.pl    4762   R 100       11.26 data1
0.300    cat            4763   W 50        11.26 data1
";
        let (found, skipped) = seen(&SLOWER, text);
        assert_eq!(
            found,
            [
                (0, 4762, read(0, 0, 8192)),
                (100_000, 4762, read(0, 8192, 100)),
                (200_000, 4763, write(0, 0, 50, false)),
            ]
        );
        assert_eq!(
            skipped,
            "2 × header of a tool of bcc (first at 1); 3 × offset that fileslower does not print: \
             behind the thread's access before in this file (first at 3)"
        );
    }

    #[test]
    fn lines_without_a_header_are_recognised() {
        for (spec, text) in [(&BIOSNOOP, REQUESTS), (&SLOWER, CALLS)] {
            let body = text.split_inclusive('\n').skip(2).collect::<String>();
            assert_eq!((spec.detect)(body.as_bytes()), Confidence::Likely, "{body}");
        }
        for text in ["", "1.0 a\n", "06:35:01 cron 1 R 1 0 16 x\n", "read(3, \"\", 1.0) = 1\n"] {
            for spec in [&BIOSNOOP, &SLOWER] {
                assert_eq!((spec.detect)(text.as_bytes()), Confidence::No, "{text}");
            }
        }
    }
}
