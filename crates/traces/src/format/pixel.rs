//! Pixel CSV: block requests of Android phones, `proces,device,rw_flag,sector,size,timestamp` (so
//! spelt).
//!
//! ```text
//! kworker/u17:0-21515,8388608,R,4709256,32,653409.114285
//! ```
//!
//! Process and pid are joined by the last `-`; `<...>` is ftrace's placeholder for a name that it
//! no longer has. The writer of the CSV truncated names at a space ("AsyncTask #2-123"), and with
//! them their pid: such a line has pid 0. `device` is the kernel's number, major·2^20 + minor;
//! sector and size count 512 bytes; times are seconds since boot, with rounding errors of floating
//! point.
//!
//! **Duplicate requests.** A seventh of the lines (15 %, 8 % and 32 % in the three traces that we
//! studied) repeat a line shortly before: device, flag, sector and size are equal, and the process
//! differs. In all but 0.4 % of them the process is the unbound worker `kworker/u17:*`, 0.7 to 5 ms
//! later, and the device had been idle for over 3 ms before the first line. So the request probably
//! found the device asleep and was issued again by the process that woke it. (The device number is
//! the same in both lines, so one request seen at two layers is unlikely.) Several requests that
//! found it asleep come again in order, A B A B, so a comparison with the previous line alone is
//! not enough. Hence a line repeats an earlier one if it is equal in those four fields and comes
//! from another pid, at most 10 ms and 16 lines later. Each earlier line matches once, because an
//! application that rewrites its block gives A A' A A' and wrote twice. Without the time limit,
//! rewrites 20 to 100 ms apart are lost; with limits of 5 and 20 ms, and of 8 and 16 lines, the
//! counts differ by less than 0.2 %. The first of the two lines is kept: it has the requester's
//! name and time.
//!
//! **Discards.** The flag is only ever R or W, and a discard carries R: all requests of
//! `f2fs_discard-*` are discards. No W is longer than 1024 sectors, while such R come from that
//! thread or from the worker on its behalf. Both punch a hole and are counted. Short discards by
//! the worker are indistinguishable from reads.
//!
//! Other flags ([`Rwbs`]: `RA`, `WS`, `WFS`, `D`, …) do not occur in the traces known to us and are
//! parsed as the kernel writes them.

use super::{
    Confidence, FileId, FormatSpec, Knows, Side, Space,
    block::{Devices, Op, Rwbs, device_name},
    processes::Processes,
    quick::{self, KnownText, Lines, Memo, Text},
};
use crate::{
    Error,
    events::{Events, Skip},
    input::Input,
};
use flashsift_events::event::About;

pub(super) const SPEC: FormatSpec = FormatSpec {
    name: "pixel",
    what: "Pixel CSV: block requests `proces,device,rw_flag,sector,size,timestamp`",
    detect,
    read,
    ahead: true,
    sample: || SAMPLE.as_bytes().to_vec(),
};

const HEADER: &str = "proces,device,rw_flag,sector,size,timestamp";
const REPEAT_US_MAX: u64 = 10_000;
const REPEAT_LINES_MAX: u64 = 16;
const SECTORS_MAX: u64 = 1024;
const DISCARD: Skip = Skip::Note("read that must be a discard");

const SAMPLE: &str = "proces,device,rw_flag,sector,size,timestamp
UnityPreload-27933,8388608,R,106471712,8,164353.716979
NetworkStats-1871,8388608,W,20080696,8,164353.716991
kworker/u17:0-13642,8388608,R,106471712,8,164353.71791299997
kworker/u17:0-13642,8388608,W,20080696,8,164353.717992
AsyncTask,8388608,R,106471720,32,164353.71854699997
f2fs_discard-25-636,8388608,R,107000000,4096,164354.5
";

fn detect(head: &[u8]) -> Confidence {
    let line = head.split(|&b| b == b'\n').next().unwrap_or_default().trim_ascii_end();
    if line == HEADER.as_bytes() { Confidence::Certain } else { Confidence::No }
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

impl Lines for Reader {
    /// `Err` of a header has no reason: it is neither a request nor damage.
    type Line<'a> = Result<Request<'a>, Option<Skip>>;

    /// A line without a comma in the name of its process, of a device of late.
    #[inline(always)]
    fn quick<'a>(&self, text: &mut Text<'a>) -> Option<Self::Line<'a>> {
        let process = text.field(b',')?;
        let process = match self.memo.get(process) {
            Some(known) => Process::Known(known),
            None => Process::named(std::str::from_utf8(process.bytes()).ok()?).ok()?,
        };
        let (between, file) = self.last.as_ref()?;
        let device = match text.known(between) {
            Some(()) => Device::Known(*file),
            None => {
                text.byte(b',')?;
                let device = text.field(b',')?;
                text.byte(b',')?;
                Device::Named(device.bytes())
            }
        };
        let flags = Some(match text.either(b"W,", b"R,") {
            Some(true) => WRITE,
            Some(false) => READ,
            None => {
                let flags = text.field(b',')?;
                text.byte(b',')?;
                Rwbs::parse(std::str::from_utf8(flags.bytes()).ok()?)?
            }
        });
        let mut numbers = text.numbers()?;
        let (sector, sectors) = (numbers.number(b',')?, numbers.number(b',')?);
        let time_us = numbers.last_millionths().filter(|time_us| *time_us <= SURE_US_MAX)?;
        Some(Ok(Request { process, device, flags, sector, sectors, time_us }))
    }

    fn whole<'a>(&self, line: &'a str) -> Self::Line<'a> {
        match line {
            HEADER => Err(None),
            _ => Request::new(line).map_err(Some),
        }
    }

    #[inline(always)]
    fn line(
        &mut self,
        line: Self::Line<'_>,
        events: &mut Events<'_>,
    ) -> Result<Result<(), Skip>, Error> {
        match line {
            Ok(request) => self.request(&request, events),
            Err(skip) => Ok(skip.map_or(Ok(()), Err)),
        }
    }

    #[cfg(test)]
    fn abbreviated<'a>(&self, mut line: Self::Line<'a>) -> Self::Line<'a> {
        if let Ok(Request { process, device, .. }) = &mut line {
            if let Process::Named { text, name, pid } = *process
                && (pid == 0 || self.processes.is(pid, name) || name == PLACEHOLDER)
                && text != b""
            {
                *process = Process::Known(Running { pid, discards: name.starts_with(DISCARDS) });
            }
            if let (Device::Named(name), Some((_, file))) = (*device, &self.last)
                && Some(name) == self.devices.last()
            {
                *device = Device::Known(*file);
            }
        }
        line
    }
}

/// Below, a float of microseconds is exact to 2^-9.
const SURE_US_MAX: u64 = 1 << 43;

const READ: Rwbs = Rwbs { op: Op::Read, flush: false, sync: false };
const WRITE: Rwbs = Rwbs { op: Op::Write, flush: false, sync: false };

/// ftrace's placeholder for a name that it no longer has.
const PLACEHOLDER: &[u8] = b"<...>";
/// The names of processes whose reads are discards begin so.
const DISCARDS: &[u8] = b"f2fs_discard";

/// A process that has this name in all events so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Running {
    pid: u32,
    discards: bool,
}

/// The process of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Process<'a> {
    Known(Running),
    Named {
        /// Name and pid.
        text: &'a [u8],
        name: &'a [u8],
        /// 0 if the line has none.
        pid: u32,
    },
}

impl<'a> Process<'a> {
    fn named(text: &'a str) -> Result<Self, Skip> {
        let (name, pid) = match text.rsplit_once('-') {
            Some((name, pid)) if pid.bytes().all(|b| b.is_ascii_digit()) && !pid.is_empty() => {
                (name, pid.parse().map_err(|_| SHAPE)?)
            }
            _ => (text, 0),
        };
        Ok(Self::Named { text: text.as_bytes(), name: name.as_bytes(), pid })
    }
}

/// The device of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Device<'a> {
    /// The one that was last named.
    Known(FileId),
    Named(&'a [u8]),
}

const SHAPE: Skip = Skip::Damage("line that is not `proces,device,rw_flag,sector,size,timestamp`");

/// One line.
#[derive(Debug, PartialEq, Eq)]
struct Request<'a> {
    process: Process<'a>,
    device: Device<'a>,
    /// `None` if no kernel writes them.
    flags: Option<Rwbs>,
    sector: u64,
    sectors: u64,
    time_us: u64,
}

impl<'a> Request<'a> {
    fn new(line: &'a str) -> Result<Self, Skip> {
        // The line is split from the right: a process name may contain commas.
        let mut fields = line.rsplitn(6, ',');
        let mut field = || fields.next().ok_or(SHAPE);
        let (time, sectors, sector) = (field()?, field()?, field()?);
        let (flag, device, process) = (field()?, field()?, field()?);
        let number = |text: &str| text.parse::<u64>().map_err(|_| SHAPE);
        let time_us = (time.parse::<f64>().map_err(|_| SHAPE)? * 1e6).round();
        if !(0.0..1e18).contains(&time_us) {
            return Err(SHAPE);
        }
        let (sector, sectors) = (number(sector)?, number(sectors)?);
        Ok(Self {
            process: Process::named(process)?,
            device: Device::Named(device.as_bytes()),
            flags: Rwbs::parse(flag),
            sector,
            sectors,
            time_us: time_us as u64,
        })
    }
}

/// A request that may be repeated.
#[derive(Clone, Copy)]
struct Pending {
    line: u64,
    file: FileId,
    op: Op,
    sector: u64,
    sectors: u64,
    pid: u32,
    time_us: u64,
}

const WINDOW: usize = REPEAT_LINES_MAX as usize;

/// The requests of the last lines that have not been repeated, each at the number of its line.
#[derive(Default)]
struct Window {
    /// The low halves, beside the requests, so that all are compared at once.
    sectors: [u32; WINDOW],
    requests: [Option<Pending>; WINDOW],
}

impl Window {
    /// Whether this repeats a recent request, which then no longer matches; otherwise the request
    /// is kept for comparison.
    #[inline(always)]
    fn repeats(&mut self, new: Pending) -> bool {
        let sector = new.sector as u32;
        if self.sectors.iter().fold(false, |found, &other| found | (other == sector))
            && self.take(new)
        {
            return true;
        }
        let slot = new.line as usize % WINDOW;
        self.sectors[slot] = sector;
        self.requests[slot] = Some(new);
        false
    }

    /// Takes the oldest request that `new` repeats.
    #[cold]
    #[inline(never)]
    fn take(&mut self, new: Pending) -> bool {
        let first = new.line.saturating_sub(REPEAT_LINES_MAX);
        let same = |line: &u64| {
            self.requests[*line as usize % WINDOW].is_some_and(|old| {
                old.line == *line
                    && (old.file, old.op, old.sector, old.sectors)
                        == (new.file, new.op, new.sector, new.sectors)
                    && old.pid != new.pid
                    && new.time_us.abs_diff(old.time_us) <= REPEAT_US_MAX
            })
        };
        let found = (first..new.line).find(same);
        if let Some(line) = found {
            self.requests[line as usize % WINDOW] = None;
        }
        found.is_some()
    }
}

#[derive(Default)]
struct Reader {
    first_us: Option<u64>,
    devices: Devices,
    /// The device that was last named, between its commas.
    last: Option<(KnownText, FileId)>,
    processes: Processes,
    /// Processes of which no event need be emitted.
    memo: Memo<Running>,
    window: Window,
}

impl Reader {
    #[inline(always)]
    fn request(
        &mut self,
        request: &Request<'_>,
        events: &mut Events<'_>,
    ) -> Result<Result<(), Skip>, Error> {
        let &Request { process, device, flags, sector, sectors, time_us } = request;
        let Some(flags) = flags else {
            return Ok(Err(Skip::Damage("unknown rw_flag")));
        };
        let at_us = time_us.saturating_sub(*self.first_us.get_or_insert(time_us));
        let file = match device {
            Device::Known(file) => file,
            Device::Named(device) => self.file(device, at_us, events)?,
        };
        let Running { pid, discards } = match process {
            Process::Known(running) => running,
            Process::Named { name, pid, .. } => {
                Running { pid, discards: name.starts_with(DISCARDS) }
            }
        };
        let line = events.line();
        let pending = Pending { line, file, op: flags.op, sector, sectors, pid, time_us };
        if self.window.repeats(pending) {
            return Ok(Err(Skip::Benign("request issued again by another process")));
        }
        let disguised = flags.op == Op::Read && (discards || sectors > SECTORS_MAX);
        let flags = if disguised { Rwbs { op: Op::Discard, ..flags } } else { flags };
        if let Err(skip) = flags.gives_event(true) {
            return Ok(Err(skip));
        }
        if let Process::Named { text, name, .. } = process {
            self.runs(Running { pid, discards }, (text, name), at_us, events)?;
        }
        flags.push((at_us, pid, pid), file, Some((sector, sectors)), events)?;
        Ok(if disguised { Err(DISCARD) } else { Ok(()) })
    }

    #[inline(never)]
    fn file(
        &mut self,
        device: &[u8],
        at_us: u64,
        events: &mut Events<'_>,
    ) -> Result<FileId, Error> {
        let file = self.devices.file(device, || name_of(device), at_us, events)?;
        self.last = KnownText::new(&[b",", device, b","].concat()).map(|between| (between, file));
        Ok(file)
    }

    /// A process has this text, of which `name` is the beginning.
    #[inline(never)]
    fn runs(
        &mut self,
        running: Running,
        (text, name): (&[u8], &[u8]),
        at_us: u64,
        events: &mut Events<'_>,
    ) -> Result<(), Error> {
        if name != PLACEHOLDER && self.processes.runs(running.pid, name, at_us, events)? {
            // The pid may have had another name.
            self.memo.clear();
        }
        self.memo.put(text, running);
        Ok(())
    }
}

fn name_of(device: &[u8]) -> Box<str> {
    let device = String::from_utf8_lossy(device);
    match device.parse::<u32>() {
        Ok(number) => device_name(number >> 20, number & 0xf_ffff),
        Err(_) => device.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing;
    use flashsift_events::event::{Action, Event};
    use std::collections::HashMap;

    fn accesses(text: &str) -> (Vec<String>, String) {
        let (events, summary) = testing::read(&SPEC, text.as_bytes()).unwrap();
        let line = |e: &Event| match &e.action {
            Action::Read { offset, len, .. } => format!("{} {} r {offset} {len}", e.at_us, e.pid),
            Action::Write { offset, len, sync, .. } => {
                format!("{} {} w {offset} {len} {sync}", e.at_us, e.pid)
            }
            Action::Punch { file, offset, len } => {
                format!("{} {} d {} {offset} {len}", e.at_us, e.pid, file.0)
            }
            Action::Bind { file, name } => format!("{} is {name}", file.0),
            Action::Process { name } => format!("{} runs {name}", e.pid),
            other => panic!("{other:?}"),
        };
        (events.iter().map(line).collect(), testing::skipped(&summary))
    }

    #[test]
    fn both_parsers_agree() {
        let lines: Vec<_> = SAMPLE.lines().chain(["<...>-7,8388608,RA,0,8,1"]).collect();
        quick::testing::agree(Reader::default(), &lines, 0.5);
    }

    #[test]
    fn times_are_rounded_as_floats_are() {
        let mut taken = 0;
        for n in 0..200_000u64 {
            let number = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let (whole, part) = (number >> 50, number % 10u64.pow(1 + (n % 15) as u32));
            for text in [format!("{whole}.{part}"), format!("{}", whole as f64 + part as f64 / 1e6)]
            {
                let us = quick::testing::only(&text, |text| text.numbers()?.last_millionths());
                let Some(us) = us else { continue };
                assert_eq!(us, (text.parse::<f64>().unwrap() * 1e6).round() as u64, "{text}");
                taken += 1;
            }
        }
        assert!(taken > 300_000, "{taken}");
    }

    #[test]
    fn requests_issued_again_in_order_are_one() {
        let (events, skipped) = accesses(SAMPLE);
        assert_eq!(
            events,
            [
                "0 is /dev/block/8:0",
                "27933 runs UnityPreload",
                "0 27933 r 54513516544 4096",
                "1871 runs NetworkStats",
                "12 1871 w 10281316352 4096 false",
                "1568 0 r 54513520640 16384",
                "636 runs f2fs_discard-25",
                "783021 636 d 0 54784000000 2097152",
            ]
        );
        assert_eq!(
            skipped,
            "1 × read that must be a discard (first at 7); 2 × request issued again by another \
             process (first at 4)"
        );
    }

    #[test]
    fn a_block_written_twice_is_written_twice() {
        let twice = "a-1,8,W,16,8,5.000\nu-2,8,W,16,8,5.001\nk-3,8,W,80,8,5.0015\na-1,8,W,16,8,5.002\nu-2,8,W,16,8,5.003\n";
        let (events, skipped) = accesses(twice);
        assert_eq!(events.iter().filter(|e| e.contains("w 8192")).count(), 2, "{events:?}");
        assert_eq!(skipped, "2 × request issued again by another process (first at 2)");

        let (events, _) = accesses("a-1,8,W,16,8,5.000\na-1,8,W,16,8,5.001\nb-2,8,W,16,8,5.0111\n");
        assert_eq!(
            events.iter().filter(|e| e.contains("w 8192")).count(),
            3,
            "same process; too late"
        );
    }

    /// The window once counted only lines that had not been repeated yet: in a burst of which each
    /// request is issued again, an equal request 17 to 32 lines later was taken for a repeat too.
    #[test]
    fn a_repeat_is_at_most_sixteen_lines_later() {
        for (between, writes) in [(0, 1), (14, 1), (15, 1), (16, 2), (20, 2), (31, 2), (40, 2)] {
            // Pairs of requests that repeat each other fill the lines between.
            let line = |n: usize| {
                let (pid, sector) = (100 + n % 2, 1000 + 8 * (n / 2));
                format!("x-{pid},8,R,{sector},8,5.000{n:03}\n")
            };
            let lines: String = (0..between).map(line).collect();
            let text = format!("a-1,8,W,16,8,5.000\n{lines}b-2,8,W,16,8,5.001\n");
            let (events, _) = accesses(&text);
            let seen = events.iter().filter(|event| event.contains("w 8192")).count();
            assert_eq!(seen, writes, "{between} lines between");
        }
    }

    #[test]
    fn names_and_flags_are_read_and_bad_lines_counted() {
        let (events, skipped) = accesses(
            "<...>-7,8,RA,0,8,1\nx,y-7,8,WFS,8,8,2\ny-7,9,D,8,8,3\nz,8,Q,8,8,3\nz,8,R,8,8,nan\n\
             z,8,R,-1,8,4\nR,8\n\
             z,8,R,36028797018963968,8,5\nz,8,W,8,4194304,6\nz-99999999999,8,R,8,8,5\n\
             z,8,R,8,8,1e300\n",
        );
        assert_eq!(
            events,
            [
                "0 is /dev/block/0:8",
                "0 7 r 0 4096",
                "7 runs x,y",
                "1000000 7 w 4096 4096 true",
                "1 is /dev/block/0:9",
                "7 runs y",
                "2000000 7 d 1 4096 4096",
            ]
        );
        assert_eq!(
            skipped,
            "5 × line that is not \
             `proces,device,rw_flag,sector,size,timestamp` (first at 5); 1 × offset beyond 2^63 \
             (first at 8); 1 × request longer than 1 GiB (first at 9); 1 × unknown rw_flag (first \
             at 4)"
        );
    }

    #[test]
    fn the_pixel_traces_are_read() {
        let known = [
            ("pixel6a_telegram.csv.gz", 251_879, 36_853),
            ("pixel6a_cod.csv.gz", 223_998, 18_535),
            ("pixel6a_slideshow.csv.gz", 84_197, 26_989),
        ];
        for (name, lines, repeats) in known {
            let Some(trace) = testing::shared(name) else { return };
            let (events, summary) = testing::read(&SPEC, &trace).unwrap();
            let skipped: HashMap<_, _> =
                summary.skipped.iter().map(|(reason, r)| (reason, r.count)).collect();
            assert_eq!(skipped["request issued again by another process"], repeats, "{name}");
            let holes =
                events.iter().filter(|e| matches!(e.action, Action::Punch { .. })).count() as u64;
            assert_eq!(
                holes,
                skipped.get("read that must be a discard").copied().unwrap_or(0),
                "{name}"
            );
            assert_eq!(summary.accesses + holes + summary.skipped.total(), lines, "{name}");
            assert_eq!((summary.skipped.damaged(), summary.late), (0, 0), "{name}");
            let reads = events.iter().filter(|e| matches!(e.action, Action::Read { .. })).count();
            eprintln!("{name}: {} events, {reads} reads, {skipped:?}", events.len());
        }
    }
}
