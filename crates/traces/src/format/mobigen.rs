//! MobiGen: system calls of an Android application, made from `strace` output for Mobibench to replay.
//!
//! Jeong et al., "AndroStep: Android Storage Performance Analysis Tool", ME '13. A line is `thread µs op …`, where `…` is
//! `path flags fd` for open, `fd [offset] result` for transfers, `fd result` or `"path" result` otherwise. What the
//! format leaves unsaid, and how it is read here:
//!
//! - The lines stand thread by thread, on one clock, and all threads share one descriptor table (Mobibench's replay has
//!   one). So the whole file is read first, and its lines are put in order of time; those of one time stay in order.
//! - Most names are mangled. A quoted absolute path is whole; any other stands for a file of its own, from that open on,
//!   which outlives its descriptor and cannot be the object of an unlink. One that begins with `dev/` is a device.
//! - `/data/data O_WRONLY|O_CREAT|O_TRUNC|O_LARGEFILE` without quotes is no call: MobiGen puts it before the first use of
//!   a descriptor whose opening it had not noted, in the file's order, not in time's. Where the descriptor is open, the
//!   line says nothing; elsewhere it is an opening from before the trace, and offsets are counted from 0, as in replay.
//! - A pread or pwrite can only be of a file (a socket or pipe refuses it). On a descriptor that was never opened it makes
//!   one; a read or write there may be a socket's, and is counted.
//! - Seeks are not in the format: a read or write after one stands where the last one ended.

use super::{Confidence, Knows, Side, Space, Spec, head_lines};
use crate::{
    Error,
    events::{Events, Skip},
    input::Input,
    process::{Call, Dir, Done, Fd, Flags, Machine, Out, Path, STRANGE_FD, STRANGE_FILE, Shown, Strangers},
};
use flashsift_core::event::About;

pub(super) const SPEC: Spec = Spec {
    name: "mobigen",
    what: "MobiGen: `thread µs op fd [offset] size` lines",
    detect,
    read,
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

/// The whole text has to be held.
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

/// Thread, time and the rest of a line.
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
    // From the end, because a name may hold spaces.
    let mut words = rest[1..].rsplitn(3, |&b| b == b' ');
    let result = words.next().and_then(number::<i64>).ok_or(NOT_A_LINE)?;
    let (second, third) = (words.next(), words.next());
    if result < 0 && matches!(op, b"open" | b"read" | b"write" | b"pread" | b"pwrite" | b"unlink") {
        return Err(FAILED);
    }
    let fd = |word: Option<&[u8]>| word.and_then(number::<i32>).filter(|&fd| fd >= 0).ok_or(NOT_A_LINE);
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
        (b"access" | b"stat" | b"stat64" | b"lstat" | b"lstat64" | b"fstat" | b"fstat64", ..) => Err(NO_DATA),
        (b"open" | b"read" | b"write" | b"pread" | b"pwrite" | b"close" | b"unlink", ..) => Err(NOT_A_LINE),
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
        side: Side::Before,
        space: Space::Files,
        knows: Knows { times: true, syncs: true, writes: true, removals: true },
    })?;
    let (mut text, mut lines) = (Vec::new(), Vec::new());
    while let Some(line) = input.line()? {
        match split(line.bytes) {
            _ if line.bytes.is_empty() => {}
            Some((tid, at_us, rest)) if !line.too_long => {
                lines.push((at_us, line.number, tid, text.len(), rest.len()));
                text.extend_from_slice(rest);
            }
            _ => events.skip(NOT_A_LINE, line.number),
        }
        if text.len() > BYTES_MAX {
            return Err(Error::TooLarge(format!(
                "the trace is larger than {BYTES_MAX} bytes: cut it by time"
            )));
        }
    }
    lines.sort_by_key(|&(at_us, ..)| at_us);
    let first_us = lines.first().map_or(0, |&(at_us, ..)| at_us);
    let (mut machine, mut out) = (Machine::new(Strangers::Threads(0)), Out::default());
    for (at_us, number, tid, start, len) in lines {
        match operation(&text[start..start + len]) {
            Ok(op) => {
                let done = take(&mut machine, at_us - first_us, tid, &op, &mut out);
                out.hand_on(done, events, number)?;
            }
            Err(reason) => events.skip(reason, number),
        }
    }
    Ok(())
}

/// The path, if the name is whole.
fn whole(name: &[u8]) -> Option<&[u8]> {
    let path = name.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    path.starts_with(b"/").then_some(path)
}

fn take(machine: &mut Machine, at_us: u64, tid: u32, op: &Op<'_>, out: &mut Out) -> Done {
    let path = |path| Path { dir: Dir::Cwd(None), path };
    match *op {
        Op::Open { path: name, flags, fd } => {
            let parsed = Flags::parse(flags);
            if let Some(whole) = whole(name) {
                return machine.call(
                    at_us,
                    tid,
                    Call::Open { path: path(whole), flags: parsed, fd: fd.into() },
                    out,
                );
            }
            if [&b"dev/"[..], b"proc/", b"sys/"].iter().any(|prefix| name.starts_with(prefix)) {
                let fd = Fd { shown: Some(Shown::Other), ..fd.into() };
                return machine.call(at_us, tid, Call::Made { fd, cloexec: false }, out);
            }
            if name == b"/data/data" && flags == b"O_WRONLY|O_CREAT|O_TRUNC|O_LARGEFILE" {
                if machine.is_open(tid, fd) {
                    return Err(Skip::Benign(MADE_UP_TWICE));
                }
                out.note(MADE_UP);
                return machine.call(at_us, tid, Call::OpenNameless { flags: Flags::default(), fd }, out);
            }
            out.note(MANGLED);
            machine.call(at_us, tid, Call::OpenNameless { flags: parsed, fd }, out)
        }
        Op::Close { fd } => {
            machine.call(at_us, tid, Call::Close { fd }, out).map_err(|_| Skip::Benign(CLOSE_ONLY))
        }
        Op::Transfer { write, fd, at, len } => {
            if at.is_some() && !machine.is_open(tid, fd) {
                out.note(IMPLIED);
                machine.call(at_us, tid, Call::OpenNameless { flags: Flags::default(), fd }, out)?;
            }
            let (fd, flags) = (fd.into(), Flags::default());
            let call = if write { Call::Write { fd, at, len, flags } } else { Call::Read { fd, at, len } };
            machine.call(at_us, tid, call, out).map_err(in_own_words)
        }
        Op::Sync { fd } => {
            let call = Call::Sync { fd: fd.into(), offset: 0, len: u64::MAX };
            machine.call(at_us, tid, call, out).map_err(in_own_words)
        }
        Op::Unlink { path: name } => match whole(name) {
            Some(whole) => machine.call(at_us, tid, Call::Unlink { path: path(whole), seen: None }, out),
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
