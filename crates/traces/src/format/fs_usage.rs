//! Output of `fs_usage` of macOS: system calls of all processes.
//!
//! ```text
//! 10:17:54.123456  open     F=5        (RWC___________)  /Users/me/notes  0.000031   TextEdit.5012
//! 10:17:54.123501  write    F=5    B=0x200                                0.000012   TextEdit.5012
//! ```
//!
//! The columns follow Apple's `fs_usage.c`. `-w` gives times in microseconds, threads and whole
//! paths; the narrow form has seconds, and its paths are cut on the left. A line stands where
//! its call ended. `B=` is the number of bytes that were moved.
//!
//! The tool prints no process numbers: processes of one name are one process. It names a file where
//! it is opened, so accesses to descriptors that are older than the trace are left out. Of a rename
//! it prints one name. Requests of the disk (`RdData`, `PgIn`) are in blocks of a size that it does
//! not print; they are counted, as are mappings.

use super::{
    Confidence, FormatSpec, Knows, Side, Space,
    day::{self, Days},
    detected_by_lines,
    processes::Processes,
    text_lines,
};
use crate::{
    Error,
    events::{Events, Skip},
    input::Input,
    process::{
        CallMachine, Dir, Done, Fd, Flags, MAPPED, Out, Path, STRANGE_FD, Strangers, SystemCall,
        Target,
    },
};
use flashsift_events::event::About;
use std::collections::HashMap;

pub(super) const SPEC: FormatSpec = FormatSpec {
    name: "fs-usage",
    what: "output of macOS's fs_usage, best with -w",
    detect,
    read,
    ahead: true,
    sample: || SAMPLE.into(),
};

const SAMPLE: &str = "\
10:17:54.123456  open     F=5        (RWC___________)  /Users/me/some notes  0.000031   Edit.5012
10:17:54.123501  write    F=5    B=0x200                                     0.000012   Edit.5012
10:17:54.123611  pread    F=5    B=0x80       O=0x00000100                   0.000007   Edit.5012
10:17:54.123650    WrData[AT1]  D=0x0127a8f0  B=0x1000 /dev/disk1s1  /a b    0.000210 W Edit.5012
10:17:54.123700  fcntl    F=5   <FULLFSYNC>                                  0.004301 W Edit.5012
10:17:54.123800  stat64        [  2]           /Users/me/other               0.000006   Finder.77
10:17:54.123900  close    F=5                                                0.000005   Edit.5012
";

const NOT_A_LINE: Skip = Skip::Damage("line that fs_usage does not print");
const FAILED: Skip = Skip::Benign("failed call");
const OTHER: Skip = Skip::Benign("call that moves no file data");
const DISK: Skip =
    Skip::Benign("request of the disk (fs_usage does not print the size of its blocks)");
const RENAME: Skip = Skip::Benign("rename, of which fs_usage prints one name");
const BEFORE: Skip = Skip::Benign("access to a descriptor opened before the trace");
const UNREADABLE: Skip = Skip::Damage("call whose arguments cannot be read");

/// A line of the output.
#[derive(Debug, PartialEq, Eq)]
struct Line<'a> {
    of_day_us: u64,
    call: &'a str,
    fields: Fields<'a>,
    command: &'a str,
}

/// The columns of a call that hold something.
#[derive(Debug, Default, PartialEq, Eq)]
struct Fields<'a> {
    failed: bool,
    /// `F=`: the descriptor, and that of the copy.
    fds: [Option<i32>; 2],
    bytes: Option<u64>,
    offset: Option<u64>,
    /// `(RWC___)`
    flags: &'a str,
    /// `<FULLFSYNC>`
    note: &'a str,
    /// A directory's descriptor before a path: `[3]/`.
    dir: Option<i32>,
    path: &'a str,
}

/// Returns the text up to the elapsed time of a call, and the command behind it, without the number
/// of the thread.
fn split_end(line: &str) -> Option<(&str, &str)> {
    let (mut at, mut found) = (0, None);
    for word in line.split(' ') {
        let after = at + word.len();
        let is_time = word.split_once('.').is_some_and(|(whole, part)| {
            let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
            !whole.is_empty() && part.len() == 6 && digits(whole) && digits(part)
        });
        // ` W ` stands for a call that waited.
        if is_time {
            let command = line[after..].strip_prefix(" W ").unwrap_or(&line[after..]).trim();
            found = Some((&line[..at], command)).filter(|_| !command.is_empty()).or(found);
        }
        at = after + 1;
    }
    let (before, command) = found?;
    let named = command.rsplit_once('.').filter(|(name, thread)| {
        !name.is_empty() && !thread.is_empty() && thread.bytes().all(|b| b.is_ascii_digit())
    });
    Some((before, named.map_or(command, |(name, _)| name)))
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

fn line(text: &str) -> Option<Line<'_>> {
    let (of_day_us, _) = day::time(text.as_bytes())?;
    let (_, rest) = text.split_once(' ')?;
    let (rest, command) = split_end(rest)?;
    let rest = rest.trim_start();
    // The column of a call is so wide that a long name may touch the next one.
    let end = rest.find(' ').unwrap_or(rest.len());
    let (call, rest) = rest.split_at(end);
    call.starts_with(|c: char| c.is_ascii_alphabetic()).then_some(())?;
    let mut fields = Fields::default();
    let mut rest = rest.trim();
    while !rest.is_empty() {
        let (field, after) = match rest.as_bytes()[0] {
            b'(' => split_after(rest, ')')?,
            b'<' => split_after(rest, '>')?,
            b'[' => split_after(rest, ']')?,
            _ => rest.split_once(' ').unwrap_or((rest, "")),
        };
        let inside = || field[1..field.len() - 1].trim();
        match field.split_once('=').unwrap_or((field, "")) {
            ("F", value) => {
                // An errno may follow at once: `F=5  [ 35]`, `F=512[ 35]`.
                let (value, errno) =
                    value.split_once('[').map_or((value, false), |(v, _)| (v, true));
                fields.failed |= errno;
                let place = usize::from(fields.fds[0].is_some());
                fields.fds[place] = Some(value.parse().ok()?);
            }
            ("B", value) => fields.bytes = Some(number(value)?),
            ("O", value) => fields.offset = Some(number(value)?),
            ("A" | "D" | "S", _) => {}
            _ if field.starts_with('(') => fields.flags = inside(),
            _ if field.starts_with('<') => fields.note = inside(),
            _ if field.starts_with('[') && after.starts_with('/') => {
                fields.dir = Some(inside().parse().ok()?);
                fields.path = after[1..].trim();
                break;
            }
            _ if field.starts_with('[') => fields.failed = true,
            // `F=5[ 35]` is in two words.
            _ if field.ends_with(']') && fields.failed => {}
            _ => {
                fields.path = rest;
                break;
            }
        }
        rest = after.trim_start();
    }
    Some(Line { of_day_us, call, fields, command })
}

fn split_after(text: &str, end: char) -> Option<(&str, &str)> {
    text.find(end).map(|at| text.split_at(at + 1))
}

fn detect(head: &[u8]) -> Confidence {
    detected_by_lines(head, |text| Some(text.is_some_and(|text| line(text).is_some())))
}

fn flags(letters: &str) -> Flags {
    let has = |at: usize, flag: Flags| match letters.as_bytes().get(at) {
        None | Some(b'_') => Flags::default(),
        Some(_) => flag,
    };
    has(1, Flags::WRITABLE)
        | has(2, Flags::CREATE)
        | has(3, Flags::APPEND)
        | has(4, Flags::TRUNCATE)
        | has(5, Flags::EXCLUSIVE)
        | has(11, Flags::CLOEXEC)
}

impl<'a> Fields<'a> {
    fn fd(&self) -> Result<Fd<'a>, Skip> {
        self.fds[0].map(Fd::from).ok_or(UNREADABLE)
    }

    fn path(&self) -> Result<Path<'a>, Skip> {
        let dir = match self.dir {
            Some(fd) if fd >= 0 => Dir::Fd(fd.into()),
            _ => Dir::Cwd(None),
        };
        let path = self.path.as_bytes();
        if path.is_empty() { Err(UNREADABLE) } else { Ok(Path { dir, path }) }
    }
}

/// Returns the system call of a line.
fn system_call<'a>(call: &str, fields: &Fields<'a>) -> Result<SystemCall<'a>, Skip> {
    let is_disk = call.contains('[') || call.starts_with("Rd") || call.starts_with("Wr");
    if is_disk || call.starts_with("PgIn") || call.starts_with("PgOut") {
        return Err(DISK);
    }
    if fields.failed {
        return Err(FAILED);
    }
    let call = call.strip_prefix("guarded_").unwrap_or(call);
    let call = call.strip_suffix("_np").unwrap_or(call);
    let call = call.strip_suffix("_nocancel").unwrap_or(call);
    let at = || fields.offset.ok_or(UNREADABLE).map(Some);
    let len = || fields.bytes.ok_or(UNREADABLE);
    let sync = |data_only| {
        let (fd, offset, len) = (fields.fd()?, 0, u64::MAX);
        Ok(SystemCall::Sync { fd, offset, len, data_only })
    };
    Ok(match call {
        "open" | "openat" | "open_extended" | "open_dprotected" => SystemCall::Open {
            path: fields.path()?,
            flags: flags(fields.flags),
            mode: None,
            fd: fields.fd()?,
        },
        "close" => SystemCall::Close { fd: fields.fds[0].ok_or(UNREADABLE)? },
        "dup" | "dup2" => {
            let to = fields.fds[1].ok_or(UNREADABLE)?;
            SystemCall::Dup { from: fields.fd()?, to, cloexec: false }
        }
        "read" | "readv" => SystemCall::Read { fd: fields.fd()?, at: None, len: len()? },
        "pread" | "preadv" => SystemCall::Read { fd: fields.fd()?, at: at()?, len: len()? },
        "write" | "writev" => {
            let flags = Flags::default();
            SystemCall::Write { fd: fields.fd()?, at: None, len: len()?, flags }
        }
        "pwrite" | "pwritev" => {
            let flags = Flags::default();
            SystemCall::Write { fd: fields.fd()?, at: at()?, len: len()?, flags }
        }
        "lseek" => SystemCall::Seek { fd: fields.fd()?, to: at()?.unwrap_or_default(), size: None },
        "fsync" => sync(false)?,
        "fdatasync" => sync(true)?,
        "fcntl" if matches!(fields.note, "FULLFSYNC" | "BARRIERFSYNC") => sync(false)?,
        "sync" => SystemCall::SyncAll,
        "ftruncate" => {
            let size = at()?.unwrap_or_default();
            SystemCall::Truncate { target: Target::Fd(fields.fd()?), size }
        }
        "truncate" => {
            let size = at()?.unwrap_or_default();
            SystemCall::Truncate { target: Target::Path(fields.path()?), size }
        }
        "unlink" | "unlinkat" | "delete" | "rmdir" => {
            SystemCall::Unlink { path: fields.path()?, seen: None }
        }
        "mkdir" | "mkdirat" => SystemCall::Mkdir { path: fields.path()? },
        "rename" | "renameat" | "renamex" | "renameatx" => return Err(RENAME),
        "mmap" => return Err(MAPPED),
        "socket" | "accept" => {
            let fd = fields.fds[usize::from(call == "accept")].ok_or(OTHER)?;
            SystemCall::Made { fd: fd.into(), cloexec: false }
        }
        _ => return Err(OTHER),
    })
}

fn read(input: &mut Input<'_>, events: &mut Events<'_>) -> Result<(), Error> {
    events.about(About {
        epoch_us: None,
        boot_us: None,
        side: Side::Before,
        space: Space::Files,
        knows: Knows { times: true, syncs: true, writes: true, removals: true, ..Knows::NOTHING },
    })?;
    let mut machine = CallMachine::new(Strangers::Processes);
    let (mut out, mut days, mut processes) =
        (Out::default(), Days::default(), Processes::default());
    let mut commands: HashMap<Box<str>, u32> = HashMap::new();
    text_lines(input, events, |text, events| {
        let Some(Line { of_day_us, call, fields, command }) = line(text) else {
            return Ok(Err(NOT_A_LINE));
        };
        let at_us = days.since_first(of_day_us);
        let call = match system_call(call, &fields) {
            Ok(call) => call,
            Err(skip) => return Ok(Err(skip)),
        };
        let pid = match commands.get(command) {
            Some(pid) => *pid,
            None => {
                let pid = commands.len() as u32 + 1;
                commands.insert(command.into(), pid);
                // Its first call is noted as that of a thread from before the trace: all are.
                let _ = machine.call(at_us, pid, SystemCall::Umask { mask: 0 }, &mut out);
                out.notes.clear();
                pid
            }
        };
        processes.runs(pid, command.as_bytes(), at_us, events)?;
        let done: Done = match machine.call(at_us, pid, call, &mut out) {
            Err(STRANGE_FD) => Err(BEFORE),
            done => done,
        };
        let line = events.line();
        out.hand_on(done, events, line).map(Ok)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing;
    use flashsift_events::event::Action;

    fn actions(text: &str) -> (Vec<String>, String) {
        let (events, summary) = testing::read(&SPEC, text.as_bytes()).expect("no error but of I/O");
        let lines = events.iter().filter_map(|event| {
            let (at, pid) = (event.at_us, event.pid);
            Some(match &event.action {
                Action::Read { file, offset, len, .. } => {
                    format!("{at} {pid} read {} {offset} {len}", file.0)
                }
                Action::Write { file, offset, len, .. } => {
                    format!("{at} {pid} write {} {offset} {len}", file.0)
                }
                Action::Sync { file, .. } => format!("{at} {pid} sync {}", file.0),
                Action::Create(create) => format!("{at} {pid} create {}", create.name),
                Action::Bind { name, .. } => format!("{at} {pid} bind {name}"),
                Action::Truncate { size, .. } => format!("{at} {pid} truncate {size}"),
                _ => return None,
            })
        });
        (lines.collect(), testing::skipped(&summary))
    }

    #[test]
    fn the_columns_of_a_line_are_found() {
        let found = line(
            "10:17:54.123456  open              F=5        (RWC___________)  [3]/some notes 1.5  \
               0.000031 W Google Chrome He.5012",
        )
        .expect("a line");
        assert_eq!((found.of_day_us, found.call), (37_074_123_456, "open"));
        assert_eq!((found.command, found.fields.flags), ("Google Chrome He", "RWC___________"));
        assert_eq!((found.fields.dir, found.fields.path), (Some(3), "some notes 1.5"));
        let narrow = line("10:17:54  read   F=12    B=0x10     0.000031   mds_stores  ");
        let fields = Fields { fds: [Some(12), None], bytes: Some(16), ..Fields::default() };
        let (of_day_us, call, command) = (37_074_000_000, "read", "mds_stores");
        assert_eq!(narrow, Some(Line { of_day_us, call, fields, command }));
        for failed in ["F=5  [ 35]", "F=512[ 35]", "[  2]  /a"] {
            let text = format!("10:17:54.1  read   {failed}     0.000031   mds.7");
            assert!(line(&text).expect("a line").fields.failed, "{failed}");
        }
        for text in ["", "10:17:54", "10:17:54 read(3) = 0", "read F=5 B=0x1 0.000031   mds.7"] {
            assert_eq!(line(text), None, "{text}");
        }
    }

    #[test]
    fn calls_are_followed_by_descriptor() {
        let (found, skipped) = actions(SAMPLE);
        assert_eq!(
            found,
            [
                "0 1 bind /Users/me/some notes",
                "45 1 write 0 0 512",
                "155 1 read 0 256 128",
                "244 1 sync 0",
            ]
        );
        assert_eq!(
            skipped,
            "1 × failed call (first at 6); 1 × request of the disk (fs_usage does not print the \
             size of its blocks) (first at 4)"
        );
        let (found, skipped) = actions(
            "\
23:59:59.900000  open       F=3   (R_____)  /a          0.000031   cat.1
00:00:00.100000  lseek      F=3    O=0x00000010 <SEEK_SET>   0.000031   cat.1
00:00:00.100000  dup        F=3    F=9                  0.000031   cat.2
00:00:00.100000  read_nocancel  F=9    B=0x8            0.000031   cat.1
00:00:00.200000  read       F=3    B=0x8                0.000031   tail.3
00:00:00.200000  truncate            O=0x00000004   /a  0.000031   tail.3
00:00:00.200000  rename                 /a              0.000031   tail.3
some line
",
        );
        assert_eq!(found, ["0 1 bind /a", "200000 1 read 0 16 8", "300000 2 truncate 4"]);
        assert_eq!(
            skipped,
            "1 × access to a descriptor opened before the trace (first at 5); 1 × line that \
             fs_usage does not print (first at 8); 1 × rename, of which fs_usage prints one name \
             (first at 7)"
        );
    }
}
