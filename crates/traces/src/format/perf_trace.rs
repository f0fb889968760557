//! The text of `perf trace`: system calls with their times, as strace prints them in another form.
//!
//! ```text
//!    0.040 ( 0.015 ms): app/4711 write(fd: 3</data/a>, buf: 0x55698ca89000, count: 4096) = 4096
//! ```
//!
//! Milliseconds since the first line (with `-T` since boot), duration, program and thread (missing
//! if there is one thread only), call, arguments ([`super::syscalls`]), result. A call during which
//! another one ends has two lines. The first ends in `...`; the second has `... [continued]:`
//! before the call and repeats the time at which it began.
//!
//! perf looks up the file of a descriptor in `/proc` while it prints the line. Between the calls,
//! it can print page faults, which are skipped, and tracepoints under the kernel's names of their
//! fields. Those are used as ftrace's are ([`super::kernel`]).

use super::{
    Confidence, FormatSpec, detected_by_lines,
    kernel::{ALL, Feed, Fields, Known, SystemCall, Value},
    syscalls::{self, Args},
};
use crate::{
    Error,
    events::{Events, Skip},
    input::Input,
};
use std::{cell::Cell, collections::HashMap};

pub(super) const SPEC: FormatSpec = FormatSpec {
    name: "perf-trace",
    what: "`perf trace`: system calls with milliseconds, names of arguments, and results",
    detect,
    read,
    ahead: true,
    sample: || SAMPLE.into(),
};

const SAMPLE: &str = r#"     0.000 ( 0.021 ms): app main/4711 openat(dfd: CWD, filename: "/data/a, b", flags: RDWR|CREAT, mode: IRUGO) = 3
     0.040 ( 0.015 ms): app main/4711 write(fd: 3</data/a, b>, buf: 0x55698ca89000, count: 4096) = 4096
     0.060 ( 0.002 ms): app main/4711 lseek(fd: 3</data/a, b>, offset: -96, whence: END) = 4000
     0.080 ( 0.009 ms): app main/4711 read(fd: 3</data/a, b>, buf: 0x55698ca89000, count: 4096) = 96
     0.120 (         ): app main/4711 fsync(fd: 3</data/a, b>)                           ...
     0.140 ( 0.006 ms): :4712/4712 openat(dfd: CWD, filename: 0x95212c50, flags: WRONLY|APPEND) = 5
         ? (         ): sh/4713  ... [continued]: clone())                               = 
     0.160 ( 0.006 ms): sh/4712 pwrite64(fd: 5</data/c>, buf: 0x7f419517c710, count: 100, pos: 3000) = 100
     0.170 (         ): sh/4712 sched:sched_switch(prev_comm: "sh", prev_pid: 4712)
                                       __libc_pwrite64 (/usr/lib/x86_64-linux-gnu/libc.so.6)
     0.180 ( 0.000 ms): sh/4712 minfault [_start+0x0] => /usr/lib/ld.so@0x1ab70 (d.)
     0.120 ( 2.363 ms): app main/4711  ... [continued]: fsync())                         = 0
LOST 2 events!
     3.100 ( 0.015 ms): sh/4712 read(fd: 7<pipe:[1687961]>, buf: 0x7f33e28c5703, count: 8192) = 10
     3.200 ( 0.015 ms): app main/4711 unlink(pathname: "/data/a, b")                     = 0
     3.300 ( 0.015 ms): app main/4711 openat(filename: "/x", flags: RDONLY)  = -1 ENOENT (No such file or directory)
     3.400 ( 0.015 ms): app main/4711 close(fd: 3</data/a, b (deleted)>)                 = 0
     3.500 (         ): sh/4712 exit_group()                                             = ?

 Summary of events:

 app main (4711), 16 events, 1.0%

   syscall            calls  errors  total       min       avg       max       stddev
                                     (msec)    (msec)    (msec)    (msec)        (%)
   --------------- --------  ------ -------- --------- --------- ---------     ------
   write                  1      0     0.015     0.015     0.015     0.015      0.00%
"#;

const SHAPE: Skip = Skip::Damage("line that `perf trace` does not print");
const OTHER: Skip = Skip::Benign("system call that moves no file data");
const FAULT: Skip = Skip::Benign("page fault, or event that perf prints in an older form");
const TOO_LONG: Skip = Skip::Damage("line longer than 1 MiB");
const CHAIN: Skip = Skip::Benign("line of a call chain");
const SUMMARY: Skip = Skip::Benign("summary of `perf trace`");
const LOST: Skip = Skip::Note("event lost by perf: its buffer was full");

fn detect(head: &[u8]) -> Confidence {
    let summary = Cell::new(false);
    detected_by_lines(head, |line| match line {
        Some(line) if Line::parse(line).is_some() => Some(true),
        Some(line) => {
            summary.set(summary.get() || is_summary(line));
            let is_remark = summary.get() || lost(line).is_some() || is_chain(line);
            if is_remark { None } else { Some(false) }
        }
        None => Some(false),
    })
}

fn read(input: &mut Input<'_>, events: &mut Events<'_>) -> Result<(), Error> {
    let mut reader = Reader {
        known: ALL.iter().map(|known| (known.name, known)).collect(),
        feed: Feed::new(events, None),
        now_ns: 0,
        summary: false,
        damaged: 0,
    };
    while let Some(line) = input.line()? {
        let skip = match std::str::from_utf8(line.bytes) {
            _ if line.too_long => Err(TOO_LONG),
            Ok(text) => reader.line(text, line.number)?,
            Err(_) => Err(SHAPE),
        };
        if let Err(skip) = skip {
            reader.damaged += u64::from(matches!(skip, Skip::Damage(_)));
            reader.feed.events.skipped(skip, line.number);
        }
    }
    let sound = reader.damaged * 2 <= input.lines();
    reader.feed.finish(sound)
}

struct Line<'a> {
    /// Start of the call, which perf may not have seen (`?`), and time until its end.
    at_ns: Option<u64>,
    took_ns: Option<u64>,
    /// The text behind them.
    rest: &'a str,
}

impl<'a> Line<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (time, rest) = text.trim_ascii_start().split_once(" (")?;
        let (took, rest) = rest.split_once("): ")?;
        let at_ns = if time == "?" { None } else { Some(nanos(time)?) };
        let took_ns = match took.trim_ascii() {
            "" => None,
            took => Some(nanos(took.strip_suffix(" ms")?)?),
        };
        Some(Self { at_ns, took_ns, rest })
    }
}

/// Parses milliseconds with three decimals.
fn nanos(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.')?;
    let part: u64 = (part.len() == 3).then(|| part.parse().ok())??;
    let us = whole.trim_ascii_start().parse::<u64>().ok()?.checked_mul(1000)?.checked_add(part)?;
    us.checked_mul(1000)
}

/// A thread. If the trace has one thread only, perf does not name it.
#[derive(Clone, Copy, Default)]
struct Task<'a> {
    comm: &'a str,
    tid: u32,
}

impl<'a> Task<'a> {
    /// Parses `app/4711`.
    fn parse(text: &'a str) -> Option<Self> {
        let text = text.trim_ascii_end();
        if text.is_empty() {
            return Some(Self::default());
        }
        let (comm, tid) = text.rsplit_once('/')?;
        // perf does not know the program yet.
        let comm = if comm.starts_with(':') { "" } else { comm };
        Some(Self { comm, tid: tid.parse().ok()? })
    }
}

/// The text behind the times, of a call.
struct Call<'a> {
    task: Task<'a>,
    name: &'a str,
    /// The call began on an earlier line.
    continued: bool,
    args: &'a str,
    /// `None`: the call goes on.
    result: Option<&'a str>,
}

impl<'a> Call<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        const CONTINUED: &str = " ... [continued]: ";
        text.match_indices('(').find_map(|(bracket, _)| {
            let (before, args) = (&text[..bracket], &text[bracket + 1..]);
            let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
            let start = before.bytes().rposition(|b| !is_name(b)).map_or(0, |at| at + 1);
            let (before, name) = before.split_at(start);
            let (task, continued) = match before.strip_suffix(CONTINUED) {
                Some(task) => (task, true),
                None => (before, false),
            };
            let task = Task::parse(task).filter(|_| !name.is_empty())?;
            let args = args.trim_ascii_end();
            let (args, result) = match args.strip_suffix("...") {
                Some(args) => (args, None),
                None => {
                    let split = args.rsplit_once(" = ").or_else(|| args.split_once(" ="));
                    split.map(|(args, result)| (args, Some(result)))?
                }
            };
            let args = args.trim_ascii_end().strip_suffix(')')?;
            Some(Self { task, name, continued, args, result })
        })
    }
}

/// Parses `app/4711 ext4:ext4_da_write_end(dev: 8388609, ino: 12, …)`: the task, the name without
/// its group, and the fields.
fn tracepoint(text: &str) -> Option<(Task<'_>, &str, &str)> {
    let (before, fields) = text.trim_ascii_end().strip_suffix(')')?.split_once('(')?;
    let (before, name) = before.rsplit_once(':')?;
    let (task, group) = before.rsplit_once(' ').unwrap_or(("", before));
    let is_plain = |text: &str| text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    (is_plain(name) && is_plain(group)).then_some((Task::parse(task)?, name, fields))
}

/// Returns the tracepoint's fields, of which perf leaves out those that are 0.
fn fields<'a>(known: &Known, text: &'a str) -> Fields<'a> {
    let args = Args::parse(text.as_bytes(), false);
    let mut values = Fields::NONE;
    for (value, field) in values.0.iter_mut().zip(known.fields) {
        let Some(text) = args.get(field) else { continue };
        *value = match syscalls::number(text, false) {
            Some(number) => Value::Number(number),
            None => Value::Text(unquoted(text)),
        };
    }
    values
}

fn unquoted(text: &[u8]) -> &[u8] {
    text.strip_prefix(b"\"").and_then(|text| text.strip_suffix(b"\"")).unwrap_or(text)
}

/// Whether the line belongs to the call chain that perf prints behind a call.
fn is_chain(text: &str) -> bool {
    text.starts_with("                ")
}

/// Whether the summary that `-S` prints begins.
fn is_summary(text: &str) -> bool {
    text.trim_ascii().starts_with("Summary of events")
}

fn lost(text: &str) -> Option<u64> {
    text.trim_ascii().strip_prefix("LOST ")?.strip_suffix(" events!")?.parse().ok()
}

struct Reader<'e, 's> {
    known: HashMap<&'static str, &'static Known>,
    feed: Feed<'e, 's>,
    now_ns: u64,
    summary: bool,
    damaged: u64,
}

impl Reader<'_, '_> {
    fn line(&mut self, text: &str, number: u64) -> Result<Result<(), Skip>, Error> {
        if text.trim_ascii().is_empty() {
            return Ok(Ok(()));
        }
        if let Some(many) = lost(text) {
            self.feed.events.skipped_many(LOST, number, many);
            return Ok(Ok(()));
        }
        let Some(line) = Line::parse(text) else {
            self.summary |= is_summary(text);
            return Ok(Err(match () {
                () if self.summary => SUMMARY,
                () if is_chain(text) => CHAIN,
                () => SHAPE,
            }));
        };
        match line.at_ns {
            Some(at_ns) => self.now_ns = at_ns,
            None => return Ok(Err(syscalls::STRAY)),
        }
        if let Some(call) = Call::parse(line.rest) {
            return self.call(&line, &call, number);
        }
        match tracepoint(line.rest) {
            Some((task, name, text)) => self.tracepoint(task, name, text, number).map(Ok),
            None => Ok(Err(FAULT)),
        }
    }

    fn tracepoint(
        &mut self,
        task: Task<'_>,
        name: &str,
        text: &str,
        number: u64,
    ) -> Result<(), Error> {
        let Some(known) = self.known.get(name) else {
            self.feed.other(number, name.as_bytes());
            return Ok(());
        };
        self.feed.thread(number, self.now_ns, task.tid, None, task.comm.as_bytes())?;
        self.feed.hit(number, self.now_ns, task.tid, known, &fields(known, text))
    }

    fn call(
        &mut self,
        line: &Line<'_>,
        call: &Call<'_>,
        number: u64,
    ) -> Result<Result<(), Skip>, Error> {
        let Some(name) = syscalls::named(call.name.as_bytes()) else { return Ok(Err(OTHER)) };
        if call.continued {
            self.now_ns = self.now_ns.saturating_add(line.took_ns.unwrap_or(0));
        }
        let Task { comm, tid } = call.task;
        self.feed.thread(number, self.now_ns, tid, None, comm.as_bytes())?;
        let entry = (!call.continued).then_some((call.args, false));
        for (text, ends) in entry.into_iter().chain(call.result.map(|result| (result, true))) {
            let text = text.as_bytes().into();
            let call = SystemCall { name, ends, hex: false, text };
            self.feed.system_call(number, self.now_ns, tid, call)?;
        }
        Ok(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{events::Summary, format::testing};
    use flashsift_events::event::{Action, Event};

    fn read_lines(text: &str) -> (Vec<String>, Summary) {
        let (events, summary) = testing::read(&SPEC, text.as_bytes()).unwrap();
        let line = |Event { at_us, pid, tid, action }: &Event| {
            let what = match action {
                Action::Read { file, offset, len, .. } => format!("{} r {offset} {len}", file.0),
                Action::Write { file, offset, len, .. } => format!("{} w {offset} {len}", file.0),
                Action::Sync { file, .. } => format!("{} sync", file.0),
                Action::Truncate { file, size } => format!("{} cut {size}", file.0),
                Action::Bind { file, name } => format!("{} is {name}", file.0),
                Action::Unbind { file, name } => format!("{} is not {name}", file.0),
                Action::Open { file, .. } => format!("{} opened", file.0),
                Action::Close { file, .. } => format!("{} closed", file.0),
                Action::Gone { file } => format!("{} gone", file.0),
                Action::Process { name } => format!("runs {name}"),
                other => panic!("{other:?}"),
            };
            format!("{at_us} {pid}/{tid} {what}")
        };
        (events.iter().map(line).collect(), summary)
    }

    #[test]
    fn the_sample_is_read() {
        let (events, summary) = read_lines(SAMPLE);
        assert_eq!(
            events,
            [
                "0 4711/4711 runs app main",
                "0 4711/4711 0 is /data/a, b",
                "0 4711/4711 0 opened",
                "40 4711/4711 0 w 0 4096",
                "80 4711/4711 0 r 4000 96",
                "160 4712/4712 runs sh",
                "160 4712/4712 1 is /data/c",
                "160 4712/4712 1 opened",
                "160 4712/4712 1 w 0 100",
                "2483 4711/4711 0 sync",
                "3200 4711/4711 0 is not /data/a, b",
                "3400 4711/4711 0 closed",
                "3400 4711/4711 0 gone",
                "3500 4712/4712 1 closed",
            ]
        );
        assert_eq!(
            testing::skipped(&summary),
            "1 × append to a file of unknown size: placed after the farthest byte known (first at \
             8); 1 × end of a call whose beginning is not in the trace (first at 7); 2 × event \
             lost by perf: its buffer was full (first at 13); 1 × failed call (first at 16); 1 × \
             line of a call chain (first at 10); 1 × other tracepoint (first at 9); 1 × page \
             fault, or event that perf prints in an older form (first at 11); 1 × pipe, socket or \
             device (first at 14); 6 × summary of `perf trace` (first at 20); 1 × thread whose \
             beginning is not in the trace: taken for a process of own (first at 6)"
        );
        let knows = summary.about.expect("it says what it is").knows;
        assert!(knows.names && knows.removals && knows.opens && knows.times);
    }

    /// Without BPF, perf prints addresses for paths. The descriptors show the names.
    #[test]
    fn a_file_gets_the_name_that_its_descriptor_shows() {
        let (events, summary) = read_lines(
            "   486.240 ( 0.076 ms): python3/1905 openat(dfd: CWD, filename: 0x94d9d650, flags: \
             RDWR|CLOEXEC|CREAT, mode: IRUGO|IWUSR) = 4\n   \
             486.346 ( 0.060 ms): python3/1905 write(fd: 4</var/a file.log>, buf: 0x1, count: \
             10000) = 10000\n   \
             494.371 ( 0.164 ms): python3/1905 ftruncate(fd: 4</var/a file.log>, length: 5000) = \
             0\n   \
             501.876 ( 0.021 ms): python3/1905 close(fd: 4</var/a file.log>)     = 0\n   \
             501.952 ( 0.145 ms): python3/1905 rename(oldname: 0x94d9d650, newname: 0x94d9c810) = \
             0\n   \
             502.138 ( 0.700 ms): python3/1905 clone(clone_flags: CHILD_CLEARTID|CHILD_SETTID|0x11\
             , child_tidptr: 0x7f4195a45e50) = 1966 (python3)\n   \
             503.079 (         ): python3/1905 wait4(upid: -1, stat_addr: 0x7fff2f)    ...\n   \
             504.204 ( 0.054 ms): python3/1966 openat(dfd: CWD, filename: 0x94fd5f50, flags: \
             RDONLY|TRUNC) = 4\n   \
             504.289 ( 0.032 ms): python3/1966 read(fd: 4</var/a file.log>, buf: 0x1, count: 200) \
             = 200\n   \
             504.339 (         ): python3/1966 exit_group()      = ?\n",
        );
        assert_eq!(
            events,
            [
                "106 1905/1905 runs python3",
                "106 1905/1905 0 is /var/a file.log",
                "106 1905/1905 0 opened",
                "106 1905/1905 0 w 0 10000",
                "8131 1905/1905 0 cut 5000",
                "15636 1905/1905 0 closed",
                "18049 1966/1966 runs python3",
                "18049 1966/1966 0 opened",
                "18049 1966/1966 0 r 0 200",
                "18099 1966/1966 0 closed",
            ]
        );
        let knows = summary.about.expect("it says what it is").knows;
        assert!(!knows.names && !knows.removals && knows.opens);
    }

    /// The name of a file stood without quotes in older versions, and with one thread the line has
    /// no program. A descriptor from before the trace has an unknown offset.
    #[test]
    fn older_lines_and_older_descriptors_are_read() {
        let (events, summary) = read_lines(
            "  0.000 ( 0.021 ms): openat(dfd: CWD, filename: /data/a.log, flags: WRONLY|CREAT, \
             mode: IRUGO|IWUSR) = 3\n  \
             0.040 ( 0.015 ms): write(fd: 3</data/a.log>, buf: 0x55698ca89000, count: 4096) = \
             4096\n  \
             1.000 ( 0.015 ms): fcntl(fd: 3</data/a.log>, cmd: GETFL) = WRONLY|LARGEFILE\n  \
             3.000 ( 0.015 ms): read(fd: 5</data/b.db>, buf: 0x7f33e28c5703, count: 8192) = 8192\n\
             nonsense\n",
        );
        assert_eq!(
            events,
            [
                "0 0/0 0 is /data/a.log",
                "0 0/0 0 opened",
                "40 0/0 0 w 0 4096",
                "3000 0/0 1 is /data/b.db",
                "3000 0/0 1 opened",
                "3000 0/0 1 r 0 8192",
            ]
        );
        assert_eq!(
            testing::skipped(&summary),
            "1 × call without a result (first at 3); 1 × descriptor opened before the trace: its \
             offset is taken as 0 (first at 4); 1 × line that `perf trace` does not print (first \
             at 5)"
        );
    }

    /// `perf trace --syscalls -e ext4:ext4_da_write_begin,…` of perf 6.1.
    #[test]
    fn tracepoints_are_those_of_ftrace() {
        let (events, summary) = read_lines(
            "   613.300 (         ): python3/2264 ext4:ext4_da_write_begin(dev: 7340032, ino: 12, \
             len: 10000)\n   \
             613.307 (         ): python3/2264 ext4:ext4_da_write_end(dev: 7340032, ino: 12, len: \
             8192, copied: 8192)\n   \
             613.311 (         ): python3/2264 ext4:ext4_da_write_begin(dev: 7340032, ino: 12, \
             pos: 8192, len: 1808)\n   \
             613.322 (         ): python3/2264 ext4:ext4_da_write_end(dev: 7340032, ino: 12, pos: \
             8192, len: 1808, copied: 1808)\n   \
             613.340 ( 0.030 ms): python3/2264 write(fd: 4</a>, buf: 0x1, count: 10000) = 10000\n",
        );
        assert_eq!(events, ["22 2264/2264 runs python3", "22 2264/2264 0 w 0 10000"]);
        assert!(testing::skipped(&summary).contains("2 × system call beside tracepoints"));
        let (events, _) = read_lines(
            "  0.000 (         ): dd/7 block:block_rq_issue(dev: 8388608, sector: 2048, nr_sector: \
             16, bytes: 8192, rwbs: \"WS\", comm: \"dd\", cmd: \"\")\n",
        );
        assert_eq!(
            events,
            ["0 0/0 0 is /dev/block/8:0", "0 7/7 runs dd", "0 7/7 0 w 1048576 8192"]
        );
    }

    #[test]
    fn summaries_alone_are_no_trace() {
        let (_, summary) = SAMPLE.split_once(" Summary").expect("there is one");
        assert_eq!(detect(summary.as_bytes()), Confidence::No);
        assert_eq!(detect(SAMPLE.as_bytes()), Confidence::Likely);
    }
}
