//! MobiGen: system calls of an Android application, made from `strace` output for Mobibench to
//! replay.
//!
//! Jeong et al., "AndroStep: Android Storage Performance Analysis Tool", ME '13. A line is `thread
//! µs op …`, where `…` is `path flags fd` for open, `fd [offset] result` for transfers, `fd result`
//! or `"path" result` otherwise. The reader resolves the format's ambiguities as follows:
//!
//! - Lines are grouped by thread, on one clock, and all threads share one descriptor table (as in
//!   Mobibench's replay). So the reader loads the whole file and sorts its lines by time; lines of
//!   equal time keep their order.
//! - Most names are mangled. A quoted absolute path is complete; any other name denotes a new file
//!   at each open, which outlives its descriptor and cannot be unlinked. A name that begins with
//!   `dev/` is a device.
//! - `/data/data O_WRONLY|O_CREAT|O_TRUNC|O_LARGEFILE` without quotes is no call: MobiGen inserts
//!   it before the first use of a descriptor whose open it missed, in the order of the file and not
//!   of time. If the descriptor is open, the line is ignored; otherwise it is an open from before
//!   the trace, and offsets count from 0, as in replay.
//! - A pread or pwrite always addresses a file (a socket or pipe refuses it). On a descriptor that
//!   was never opened it creates a file; a read or write there may be a socket's, and is counted.
//! - Seeks are not in the format: a read or write after one begins where the last access ended.

use super::{Confidence, FormatSpec, Knows, Side, Space, head_lines};
use crate::{
    Error,
    events::{Events, Skip},
    input::Input,
    process::{
        CallMachine, Dir, Done, Fd, Flags, Out, Path, STRANGE_FD, STRANGE_FILE, Shown, Strangers,
        SystemCall,
    },
};
use flashsift_events::event::About;

pub(super) const SPEC: FormatSpec = FormatSpec {
    name: "mobigen",
    what: "MobiGen: `thread µs op fd [offset] size` lines",
    detect,
    read,
    ahead: true,
    sample: || SAMPLE.into(),
};

const SAMPLE: &str = "\
1 0 open /data/data O_WRONLY|O_CREAT|O_TRUNC|O_LARGEFILE 36
1 0 write 36 4
1 1684 write 36 4
2 183728 stat64 \"/data/data/org.example/app.db-journal\" -1
2 1107910 open data/data O_RDWR|O_CREAT|O_LARGEFILE 97
2 1107999 pwrite 97 4096 512
2 1108000 fsync 97 0
2 1108100 close 97 0
3 900000 open \"/data/data/org.example/app.db\" O_RDWR|O_CREAT|O_LARGEFILE 44
3 900100 read 44 100
3 1108200 unlink \"/data/data/org.example/app.db\" 0
";

/// Largest text in bytes: the whole text is held in memory.
const BYTES_MAX: usize = 2 << 30;

const MANGLED: &str = "open with a truncated name (a file of its own)";
const MADE_UP: &str = "open made up for a descriptor from before the trace (a file of its own)";
const MADE_UP_TWICE: &str = "open made up for a descriptor that is open";
const IMPLIED: &str = "pread or pwrite of a descriptor that was never opened (a file of its own)";
const NEVER_OPENED: &str =
    "read, write or sync of a descriptor that was never opened (a socket or pipe, most likely)";
const CLOSE_ONLY: &str = "close of a descriptor that was never opened";
const UNBINDABLE: &str = "unlink of a file that was opened under truncated names or not at all";
const NO_DATA: &str = "stat, access";
const FAILED: &str = "failed call";
const NOT_A_LINE: &str = "line that is not `thread µs op …`";
const UNKNOWN_OP: &str = "operation that MobiGen does not have";

enum Op<'a> {
    Open { path: &'a [u8], flags: &'a [u8], fd: i32 },
    Close { fd: i32 },
    Transfer { write: bool, fd: i32, at: Option<u64>, len: u64 },
    Sync { fd: i32 },
    Unlink { path: &'a [u8] },
}

/// Splits a line into thread, time and rest.
fn split(line: &[u8]) -> Option<(u32, u64, &[u8])> {
    let mut words = line.splitn(3, |&b| b == b' ');
    Some((number(words.next()?)?, number(words.next()?)?, words.next()?))
}

fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    let digits = text.first().is_some_and(|b| b.is_ascii_digit() || *b == b'-');
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

fn operation(text: &[u8]) -> Result<Op<'_>, &'static str> {
    let (op, rest) = text.split_at(text.iter().position(|&b| b == b' ').ok_or(NOT_A_LINE)?);
    // The line is split from its end, because a name may contain spaces.
    let mut words = rest[1..].rsplitn(3, |&b| b == b' ');
    let result = words.next().and_then(number::<i64>).ok_or(NOT_A_LINE)?;
    let (second, third) = (words.next(), words.next());
    if result < 0 && matches!(op, b"open" | b"read" | b"write" | b"pread" | b"pwrite" | b"unlink") {
        return Err(FAILED);
    }
    let fd =
        |word: Option<&[u8]>| word.and_then(number::<i32>).filter(|&fd| fd >= 0).ok_or(NOT_A_LINE);
    let len = result as u64;
    match (op, second, third) {
        (b"open", Some(flags), Some(path)) => {
            Ok(Op::Open { path, flags, fd: i32::try_from(result).map_err(|_| NOT_A_LINE)? })
        }
        (b"read" | b"write", at, None) => {
            Ok(Op::Transfer { write: op == b"write", fd: fd(at)?, at: None, len })
        }
        (b"pread" | b"pwrite", Some(at), from) => {
            let at = Some(number(at).ok_or(NOT_A_LINE)?);
            Ok(Op::Transfer { write: op == b"pwrite", fd: fd(from)?, at, len })
        }
        (b"close", at, None) => Ok(Op::Close { fd: fd(at)? }),
        (b"fsync" | b"fdatasync", at, None) if result == 0 => Ok(Op::Sync { fd: fd(at)? }),
        (b"fsync" | b"fdatasync", ..) => Err(FAILED),
        (b"unlink", Some(path), rest) => Ok(Op::Unlink {
            path: rest.map_or(path, |rest| &text[op.len() + 1..][..rest.len() + 1 + path.len()]),
        }),
        (b"access" | b"stat" | b"stat64" | b"lstat" | b"lstat64" | b"fstat" | b"fstat64", ..) => {
            Err(NO_DATA)
        }
        (b"open" | b"read" | b"write" | b"pread" | b"pwrite" | b"close" | b"unlink", ..) => {
            Err(NOT_A_LINE)
        }
        _ => Err(UNKNOWN_OP),
    }
}

fn detect(head: &[u8]) -> Confidence {
    let (mut good, mut all) = (0, 0);
    for line in head_lines(head) {
        let operation = split(line).map(|(.., rest)| operation(rest));
        good += usize::from(!matches!(operation, None | Some(Err(NOT_A_LINE | UNKNOWN_OP))));
        all += 1;
    }
    if good > 0 && good * 4 >= all * 3 { Confidence::Likely } else { Confidence::No }
}

fn read(input: &mut Input<'_>, events: &mut Events<'_>) -> Result<(), Error> {
    events.about(About {
        epoch_us: None,
        boot_us: None,
        side: Side::Before,
        space: Space::Files,
        knows: Knows {
            times: true,
            syncs: true,
            writes: true,
            removals: true,
            opens: true,
            ..Knows::NOTHING
        },
    })?;
    let (mut text, mut lines) = (Vec::new(), Vec::new());
    while let Some(line) = input.line()? {
        match split(line.bytes) {
            _ if line.bytes.is_empty() => {}
            Some((tid, at_us, rest)) if !line.too_long => {
                lines.push((at_us, line.number, tid, text.len(), rest.len()));
                text.extend_from_slice(rest);
            }
            _ => events.damage(NOT_A_LINE, line.number),
        }
        if text.len() + lines.len() * 40 > BYTES_MAX {
            return Err(Error::TooLarge(format!(
                "the trace is larger than {BYTES_MAX} bytes: cut it by time"
            )));
        }
    }
    lines.sort_by_key(|&(at_us, ..)| at_us);
    let first_us = lines.first().map_or(0, |&(at_us, ..)| at_us);
    let (mut machine, mut out) = (CallMachine::new(Strangers::Threads(0)), Out::default());
    for (at_us, number, tid, start, len) in lines {
        match operation(&text[start..start + len]) {
            Ok(op) => {
                let done = take(&mut machine, at_us - first_us, tid, &op, &mut out);
                out.hand_on(done, events, number)?;
            }
            Err(reason @ (NOT_A_LINE | UNKNOWN_OP)) => events.damage(reason, number),
            Err(reason) => events.skip(reason, number),
        }
    }
    Ok(())
}

/// Returns the path, if the name is complete.
fn whole(name: &[u8]) -> Option<&[u8]> {
    let path = name.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    path.starts_with(b"/").then_some(path)
}

fn take(machine: &mut CallMachine, at_us: u64, tid: u32, op: &Op<'_>, out: &mut Out) -> Done {
    let path = |path| Path { dir: Dir::Cwd(None), path };
    match *op {
        Op::Open { path: name, flags, fd } => {
            let parsed = Flags::parse(flags);
            if let Some(whole) = whole(name) {
                return machine.call(
                    at_us,
                    tid,
                    SystemCall::Open {
                        path: path(whole),
                        flags: parsed,
                        mode: None,
                        fd: fd.into(),
                    },
                    out,
                );
            }
            if [&b"dev/"[..], b"proc/", b"sys/"].iter().any(|prefix| name.starts_with(prefix)) {
                let fd = Fd { shown: Some(Shown::Other), ..fd.into() };
                return machine.call(at_us, tid, SystemCall::Made { fd, cloexec: false }, out);
            }
            if name == b"/data/data" && flags == b"O_WRONLY|O_CREAT|O_TRUNC|O_LARGEFILE" {
                if machine.is_open(tid, fd) {
                    return Err(Skip::Benign(MADE_UP_TWICE));
                }
                out.note(MADE_UP);
                return machine.call(
                    at_us,
                    tid,
                    SystemCall::OpenNameless { flags: Flags::default(), fd },
                    out,
                );
            }
            out.note(MANGLED);
            machine.call(at_us, tid, SystemCall::OpenNameless { flags: parsed, fd }, out)
        }
        Op::Close { fd } => machine
            .call(at_us, tid, SystemCall::Close { fd }, out)
            .map_err(|_| Skip::Benign(CLOSE_ONLY)),
        Op::Transfer { write, fd, at, len } => {
            if at.is_some() && !machine.is_open(tid, fd) {
                out.note(IMPLIED);
                machine.call(
                    at_us,
                    tid,
                    SystemCall::OpenNameless { flags: Flags::default(), fd },
                    out,
                )?;
            }
            let (fd, flags) = (fd.into(), Flags::default());
            let call = if write {
                SystemCall::Write { fd, at, len, flags }
            } else {
                SystemCall::Read { fd, at, len }
            };
            machine.call(at_us, tid, call, out).map_err(in_own_words)
        }
        Op::Sync { fd } => {
            let call =
                SystemCall::Sync { fd: fd.into(), offset: 0, len: u64::MAX, data_only: false };
            machine.call(at_us, tid, call, out).map_err(in_own_words)
        }
        Op::Unlink { path: name } => match whole(name) {
            Some(whole) => {
                machine.call(at_us, tid, SystemCall::Unlink { path: path(whole), seen: None }, out)
            }
            None => Err(STRANGE_FILE),
        }
        .map_err(in_own_words),
    }
}

fn in_own_words(left: Skip) -> Skip {
    match left {
        STRANGE_FD => Skip::Benign(NEVER_OPENED),
        STRANGE_FILE => Skip::Benign(UNBINDABLE),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing, *};
    use flashsift_events::event::{Action, Event};
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn lines(text: &str) -> (Vec<Event<'static>>, String) {
        let (events, summary) = testing::read(&SPEC, text.as_bytes()).expect("no error but of I/O");
        (events, testing::skipped(&summary))
    }

    #[test]
    fn threads_are_put_in_order_of_time_before_descriptors_are_followed() {
        let (events, _) = lines(
            "1 50 read 7 10\n2 10 open data/data O_RDWR 7\n2 40 write 7 100\n2 60 close 7 0\n",
        );
        let found: Vec<_> =
            events.iter().map(|event| (event.at_us, event.tid, event.pid)).collect();
        assert_eq!(found, [(0, 2, 0), (30, 2, 0), (40, 1, 0), (50, 2, 0)]);
        assert!(matches!(events[2].action, Action::Read { offset: 100, len: 10, .. }));
    }

    #[test]
    fn only_whole_names_are_names() {
        let (events, skipped) = lines(
            "1 1 open \"/a b\" O_RDONLY 3\n1 2 close 3 0\n1 3 open \"/a b\" O_RDONLY 3\n\
             1 4 read 3 1\n1 5 open x O_RDONLY 4\n\
             1 6 close 4 0\n1 7 open x O_RDONLY 4\n1 8 read 4 1\n1 9 unlink \"/a b\" 0\n\
             1 10 unlink \"/never\" 0\n1 11 close 3 0\n",
        );
        let read = |event: &Event| match event.action {
            Action::Read { file, .. } => Some(file.0),
            _ => None,
        };
        assert_eq!(events.iter().filter_map(read).collect::<Vec<_>>(), [0, 2]);
        assert!(matches!(events.last().unwrap().action, Action::Gone { .. }));
        assert!(
            skipped.contains("2 × open with a truncated name") && skipped.contains("1 × unlink"),
            "{skipped}"
        );
    }

    #[test]
    fn a_made_up_open_of_an_open_descriptor_changes_nothing() {
        let made_up = "open /data/data O_WRONLY|O_CREAT|O_TRUNC|O_LARGEFILE 5";
        let (events, skipped) = lines(&format!(
            "1 1 open d O_RDWR 5\n1 2 {made_up}\n1 2 write 5 9\n1 3 close 5 0\n1 4 {made_up}\n\
             1 4 write 5 9\n"
        ));
        let writes = events
            .iter()
            .filter(|event| matches!(event.action, Action::Write { offset: 0, len: 9, .. }));
        assert_eq!(writes.count(), 2);
        assert_eq!(
            events.iter().filter(|event| matches!(event.action, Action::Open { .. })).count(),
            2
        );
        assert!(skipped.contains("1 × open made up for a descriptor that is open"), "{skipped}");
    }

    #[test]
    fn impossible_lines_are_damage() {
        let (events, skipped) = lines(
            "1 1 open d O_RDWR 5\n1 2 pwrite 5 9223372036854775807 10\n1 3 read 5 3000000000\n\
             1 4 read 5\n1 5\nx 1 read 5 1\n\
             1 6 frobnicate 5 1\n1 7 open d O_RDWR 99999999999\n1 8 pread 5 -1 1\n\
             1 18446744073709551615 read 5 1\n",
        );
        assert_eq!(events.len(), 2, "{skipped}");
        for part in ["offset beyond", "more than 2 GiB", "5 × line that is not", "1 × operation"]
        {
            assert!(skipped.contains(part), "{part}: {skipped}");
        }
    }

    /// The same count, computed in the simplest way that the module's documentation allows.
    #[test]
    fn the_facebook_trace_agrees_with_a_plain_count() {
        let Some(text) = testing::shared("facebook.mobigen.xz") else { return };
        let text = String::from_utf8(text).expect("plain text");
        let mut lines: Vec<Vec<&str>> =
            text.lines().map(|line| line.split(' ').collect()).collect();
        lines.sort_by_key(|line| line[1].parse::<u64>().unwrap());
        let mut storage: HashMap<&str, bool> = HashMap::new();
        let (mut reads, mut writes, mut syncs, mut lost) = ((0, 0), (0, 0), 0, (0, 0));
        for line in &lines {
            let result: i64 = line.last().unwrap().parse().unwrap();
            let device = |name: &str| {
                ["dev/", "\"/dev/", "\"/proc/"].iter().any(|start| name.starts_with(start))
            };
            match line[2] {
                "open" if result < 0 => {}
                "open" if line[3] == "/data/data" && storage.contains_key(line[5]) => {}
                "open" => drop(storage.insert(line[5], !device(line[3]))),
                "close" => drop(storage.remove(line[3])),
                "fsync" => syncs += i32::from(storage[line[3]]),
                op @ ("read" | "write" | "pread" | "pwrite") if result >= 0 => {
                    if op.starts_with('p') {
                        storage.entry(line[3]).or_insert(true);
                    }
                    let sum = match storage.get(line[3]) {
                        Some(true) if op.ends_with("read") => &mut reads,
                        Some(true) => &mut writes,
                        Some(false) => continue,
                        None => &mut lost,
                    };
                    *sum = (sum.0 + 1, sum.1 + result);
                }
                _ => {}
            }
        }
        assert_eq!((reads, writes), ((8258, 3_653_437), (13_989, 12_171_335)));
        assert_eq!((syncs, lost), (997, (1261, 1_552_127)));
        let (events, summary) = testing::read(&SPEC, text.as_bytes()).expect("readable");
        let mut found = ((0, 0), (0, 0), 0);
        for event in &events {
            match event.action {
                Action::Read { len, .. } => found.0 = (found.0.0 + 1, found.0.1 + len as i64),
                Action::Write { len, .. } => found.1 = (found.1.0 + 1, found.1.1 + len as i64),
                Action::Sync { .. } => found.2 += 1,
                _ => {}
            }
        }
        assert_eq!(found, (reads, writes, syncs));
        let count = |reason: &str| {
            summary.skipped.iter().find(|(r, _)| *r == reason).map_or(0, |(_, r)| r.count)
        };
        assert_eq!(count(NEVER_OPENED), lost.0);
        assert_eq!(
            (count(MADE_UP), count(MADE_UP_TWICE), count(MANGLED), count(IMPLIED)),
            (78, 21, 459, 3)
        );
        assert_eq!(
            (count(NO_DATA), count(FAILED), count(CLOSE_ONLY), count(UNBINDABLE)),
            (3249, 845, 362, 52)
        );
        assert_eq!((summary.skipped.damaged(), summary.late), (0, 0));
    }

    proptest! {
        #[test]
        fn any_bytes_and_any_damage(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
            changes in proptest::collection::vec((0..SAMPLE.len(), any::<u8>()), 0..20),
        ) {
            let mut sample = SAMPLE.as_bytes().to_vec();
            for (at, byte) in changes {
                sample[at] = byte;
            }
            for bytes in [bytes, sample] {
                detect(&bytes);
                testing::read(&SPEC, &bytes).expect("damage is no error");
            }
        }
    }
}
