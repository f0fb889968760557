//! One line of a text trace: thread, time, tracepoint, and the tracepoint's text.

/// One tracepoint hit.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line<'a> {
    /// Name of the thread; empty if the kernel no longer had it (`<...>`).
    pub(super) comm: &'a [u8],
    pub(super) tid: u32,
    /// Process of the thread, where the line has it.
    pub(super) tgid: Option<u32>,
    pub(super) time: Time,
    /// Name of the tracepoint, action of the `blk` tracer, or `sys_` and a call; empty for a line
    /// of the function tracer.
    pub(super) name: &'a [u8],
    /// Text of the tracepoint.
    pub(super) text: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Time {
    /// A time in nanoseconds.
    Clock(u64),
    /// A clock that counts other units: it gives an order and no time.
    Count,
}

/// Parses a line of ftrace or of `perf script`:
///
/// ```text
///   comm-pid  (tgid) [cpu] flags seconds.micros: name: text
///   comm  pid/tid [cpu] seconds.micros: system:name: text
/// ```
///
/// The process, the flags, and the decimal point of the time are optional, and `trace-cmd` puts the
/// name of a buffer first. A thread's name may hold any text, also text that looks like the rest of
/// the line; so the first bracket followed by a well-formed rest counts.
pub(super) fn line(bytes: &[u8]) -> Option<Line<'_>> {
    let ftrace = memchr::memchr_iter(b'[', bytes).find_map(|bracket| {
        let (cpu, rest) = split(&bytes[bracket + 1..], b']')?;
        number(cpu)?;
        let (comm, tid, tgid) = task(&bytes[..bracket])?;
        let (time, rest) = time(rest)?;
        let (name, text) = named(rest)
            .or_else(|| blk_action(rest))
            .or_else(|| system_call(rest))
            .or_else(|| is_function(rest).then_some((&[], rest)))?;
        Some(Line { comm, tid, tgid, time, name, text: text.trim_ascii() })
    });
    ftrace.or_else(|| perf_line(bytes))
}

fn named(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let (name, text) = split(rest, b':')?;
    is_plain(name).then_some((name, text))
}

fn is_plain(name: &[u8]) -> bool {
    !name.is_empty() && name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
}

/// `8,0    Q  WS 223488 + 8 [fio]`, of the `blk` tracer: returns the action and all of the text.
fn blk_action(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut words = rest.split(|&b| b == b' ').filter(|word| !word.is_empty());
    let (major, minor) = split(words.next()?, b',')?;
    number(major).and(number(minor))?;
    let action = words.next()?;
    (action.len() <= 2 && action.iter().all(u8::is_ascii_alphabetic)).then_some((action, rest))
}

/// `sys_write(fd: 3, buf: 0x562395f92680, count: 0x2710)` or `sys_write -> 0x2710`: returns the
/// name and the text from the bracket or the arrow on.
fn system_call(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    let name = rest.iter().position(|b| !(b.is_ascii_alphanumeric() || *b == b'_'))?;
    let (name, text) = rest.split_at(name);
    let is_call = text.starts_with(b"(") || text.starts_with(b" -> ");
    (name.starts_with(b"sys_") && is_call).then_some((name, text))
}

/// Parses a line of `perf script`. The processor is missing without `-F cpu`. A name may hold
/// anything, so the first time that an event follows counts.
fn perf_line(bytes: &[u8]) -> Option<Line<'_>> {
    memchr::memmem::find_iter(bytes, b": ").find_map(|colon| {
        let (before, time) = last_word(&bytes[..colon])?;
        let (seconds, fraction) = split(time, b'.')?;
        let time = Time::Clock(nanos(seconds, fraction)?);
        let before = match before.strip_suffix(b"]") {
            Some(inner) => {
                let (before, cpu) = inner.split_at(memchr::memrchr(b'[', inner)?);
                number(&cpu[1..])?;
                before.trim_ascii_end()
            }
            None => before,
        };
        let (comm, ids) = last_word(before)?;
        let (tgid, tid) = match split(ids, b'/') {
            Some((pid, tid)) => (Some(id(pid)?), tid),
            None => (None, ids),
        };
        let (name, text) = perf_event(bytes[colon + 2..].trim_ascii_start())?;
        // perf names a thread that it does not know by its number.
        let comm = if comm.starts_with(b":") { b"" } else { comm };
        Some(Line { comm, tid: id(tid)?, tgid, time, name, text: text.trim_ascii() })
    })
}

/// `ext4:ext4_da_write_end: dev 8,1 …`, or another event with its period before it:
/// `250000 cpu-clock:ppp:  ffffffff`. Returns the name without its group.
fn perf_event(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    if rest.starts_with(b"PERF_RECORD_") {
        return Some(rest.split_at(memchr::memchr(b' ', rest).unwrap_or(rest.len())));
    }
    let period = rest.iter().position(|b| !b.is_ascii_digit())?;
    let rest = rest[period..].trim_ascii_start();
    let end = rest.iter().position(|b| b.is_ascii_whitespace()).unwrap_or(rest.len());
    let event = rest[..end].strip_suffix(b":")?;
    let (group, name) = split(event, b':').unwrap_or((&[], event));
    (!group.is_empty() || period > 0).then_some((name, &rest[end..]))
}

fn id(digits: &[u8]) -> Option<u32> {
    u32::try_from(number(digits)?).ok()
}

/// Splits off the last word, which spaces separate from a text before it.
fn last_word(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii();
    let space = memchr::memrchr(b' ', text)?;
    Some((text[..space].trim_ascii_end(), &text[space + 1..]))
}

/// Whether the line belongs to the call chain of an event: of perf, `ffffffff8158c51e
/// generic_perform_write+0x9e ([kernel.kallsyms])` after white space, of ftrace ` => vfs_write`.
pub(super) fn is_chain(line: &[u8]) -> bool {
    let text = line.trim_ascii();
    let address = text.split(|&b| b == b' ').next().unwrap_or_default();
    let is_frame = address.iter().all(u8::is_ascii_hexdigit) || text.ends_with(b"(inlined)");
    line.starts_with(b" => ")
        || is_frame && (line.starts_with(b"\t") || line.starts_with(b"        "))
}

/// Number of lost events in perf's `PERF_RECORD_LOST lost 35`, from behind its first word.
pub(super) fn perf_lost(text: &[u8]) -> Option<u64> {
    number(text.trim_ascii().strip_prefix(b"lost ")?)
}

/// `vfs_read <-ksys_read`, of the function tracer.
fn is_function(rest: &[u8]) -> bool {
    memchr::memmem::find(rest, b" <-").is_some()
}

/// Parses `comm-pid`, `comm-pid (tgid)` or `comm-pid (-----)`, after an optional `buffer:` and two
/// spaces.
fn task(before: &[u8]) -> Option<(&[u8], u32, Option<u32>)> {
    let mut task = before.trim_ascii_end();
    let mut tgid = None;
    if let Some(inner) = task.strip_suffix(b")") {
        let open = memchr::memrchr(b'(', inner)?;
        let inner = inner[open + 1..].trim_ascii();
        tgid = number(inner).and_then(|n| u32::try_from(n).ok());
        if tgid.is_none() && !inner.iter().all(|&b| b == b'-') {
            return None;
        }
        task = task[..open].trim_ascii_end();
    }
    let dash = memchr::memrchr(b'-', task)?;
    let tid = number(&task[dash + 1..]).and_then(|n| u32::try_from(n).ok())?;
    let mut comm = &task[..dash];
    if comm.first().is_some_and(|b| *b != b' ')
        && let Some(colon) = memchr::memmem::find(comm, b":  ")
    {
        comm = &comm[colon + 1..];
    }
    let comm = comm.trim_ascii_start();
    Some((if comm == b"<...>" { b"" } else { comm }, tid, tgid))
}

/// Parses the time, after up to three columns of flags.
fn time(mut rest: &[u8]) -> Option<(Time, &[u8])> {
    for _ in 0..4 {
        rest = rest.trim_ascii_start();
        let end = memchr::memchr2(b' ', b':', rest)?;
        let (word, after) = rest.split_at(end);
        if after[0] == b':' {
            let time = match split(word, b'.') {
                Some((seconds, fraction)) => Time::Clock(nanos(seconds, fraction)?),
                None => number(word).map(|_| Time::Count)?,
            };
            return Some((time, after[1..].trim_ascii_start()));
        }
        rest = after;
    }
    None
}

fn nanos(seconds: &[u8], fraction: &[u8]) -> Option<u64> {
    let digits = u32::try_from(fraction.len()).ok().filter(|n| (1..=9).contains(n))?;
    let fraction = number(fraction)? * 10_u64.pow(9 - digits);
    number(seconds)?.checked_mul(1_000_000_000)?.checked_add(fraction)
}

fn split(bytes: &[u8], at: u8) -> Option<(&[u8], &[u8])> {
    let n = memchr::memchr(at, bytes)?;
    Some((&bytes[..n], &bytes[n + 1..]))
}

/// Parses a decimal number that is the whole text.
pub(super) fn number(digits: &[u8]) -> Option<u64> {
    let add = |n: u64, &b: &u8| {
        let digit = b.wrapping_sub(b'0');
        if digit < 10 { n.checked_mul(10)?.checked_add(u64::from(digit)) } else { None }
    };
    if digits.is_empty() { None } else { digits.iter().try_fold(0, add) }
}

/// Number of lost events in a line that reports a loss: `CPU:1 [LOST 35 EVENTS]`, from trace-cmd
/// `CPU:1 [35 EVENTS DROPPED]`; 1 if the line has no number.
pub(super) fn lost(bytes: &[u8]) -> Option<u64> {
    let (cpu, rest) = split(bytes.strip_prefix(b"CPU:")?, b' ')?;
    number(cpu)?;
    let inner = rest.strip_prefix(b"[")?.strip_suffix(b"]")?;
    let count = match inner {
        b"LOST EVENTS" | b"EVENTS DROPPED" => return Some(1),
        _ => (inner.strip_prefix(b"LOST ").and_then(|inner| inner.strip_suffix(b" EVENTS")))
            .or_else(|| inner.strip_suffix(b" EVENTS DROPPED"))?,
    };
    number(count)
}

/// Number of events that a ring buffer overwrote before it was read, from its header:
/// `# entries-in-buffer/entries-written: 54236/64215   #P:2`.
pub(super) fn overwritten(bytes: &[u8]) -> Option<u64> {
    let rest = bytes.strip_prefix(b"# entries-in-buffer/entries-written: ")?;
    let (kept, rest) = split(rest, b'/')?;
    let end = rest.iter().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len());
    number(&rest[..end])?.checked_sub(number(kept)?).filter(|&n| n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> Option<(String, u32, Option<u32>, Time, String, String)> {
        let own = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        line(text.as_bytes())
            .map(|l| (own(l.comm), l.tid, l.tgid, l.time, own(l.name), own(l.text)))
    }

    #[test]
    fn lines_of_every_shape_are_parsed() {
        const AT: Time = Time::Clock(102_566_988_000);
        for (text, comm, tid, tgid, time) in [
            (
                "         python3-490     (    490) [000] .....   102.566988: f2fs_x: ino 6",
                "python3",
                490,
                Some(490),
                AT,
            ),
            (
                "           <...>-490     (-----) [000] d..1.   102.566988: f2fs_x: ino 6",
                "",
                490,
                None,
                AT,
            ),
            ("           <...>-490   [001] d..1   102.566988: f2fs_x: ino 6", "", 490, None, AT),
            ("          <idle>-0     [001]   102.566988: f2fs_x: ino 6", "<idle>", 0, None, AT),
            (
                " Binder:1234_5-490   ( 1234) [003] ....   102.566988: f2fs_x: ino 6",
                "Binder:1234_5",
                490,
                Some(1234),
                AT,
            ),
            (
                "     kworker/u17:0-490 [000] dN.. 102.566988: f2fs_x: ino 6",
                "kworker/u17:0",
                490,
                None,
                AT,
            ),
            (
                "  a - [1] b-c (d)-490 [000] dN.. 102.566988: f2fs_x: ino 6",
                "a - [1] b-c (d)",
                490,
                None,
                AT,
            ),
            (
                " ld [2] 1.5: no: -490 [000] 102.566988: f2fs_x: ino 6",
                "ld [2] 1.5: no: ",
                490,
                None,
                AT,
            ),
            (
                "inst:  lto 002m1c6hk9s-490  [001] 102.566988: f2fs_x:             ino 6",
                "lto 002m1c6hk9s",
                490,
                None,
                AT,
            ),
            (
                "inst:               as-490  [001] 102.566988000: f2fs_x:             ino 6",
                "as",
                490,
                None,
                AT,
            ),
            (
                "kworker/1:1H-490 [001] d... 0 102.566988: f2fs_x: ino 6",
                "kworker/1:1H",
                490,
                None,
                AT,
            ),
            ("<...>-490 [001] 102.566988: f2fs_x: ino 6", "", 490, None, AT),
            ("sh-490 [001] ..... 8123456: f2fs_x: ino 6", "sh", 490, None, Time::Count),
            (
                "     Web Content   490 [001]   102.566988: f2fs:f2fs_x: ino 6",
                "Web Content",
                490,
                None,
                AT,
            ),
            (
                "  kworker/u8:2-ev   490 [001]   102.566988:    f2fs:f2fs_x: ino 6",
                "kworker/u8:2-ev",
                490,
                None,
                AT,
            ),
            ("sh   488/490    [001] 102.566988000: f2fs:f2fs_x: ino 6", "sh", 490, Some(488), AT),
            ("sh   490   102.566988: f2fs:f2fs_x: ino 6", "sh", 490, None, AT),
            (
                "a: 1.5: b:c: d   490 [001]   102.566988: f2fs:f2fs_x: ino 6",
                "a: 1.5: b:c: d",
                490,
                None,
                AT,
            ),
            (":490   490 [001]   102.566988: f2fs:f2fs_x: ino 6", "", 490, None, AT),
        ] {
            let expected =
                (comm.to_owned(), tid, tgid, time, "f2fs_x".to_owned(), "ino 6".to_owned());
            assert_eq!(parts(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn other_text_is_not_a_line() {
        for text in [
            "",
            "# tracer: nop",
            "sh-490 [001] 102.566988: vfs_read",
            "sh-490 001 102.566988: a: b",
            "sh 490 [001] 102.566988: a: b",
            "sh-490 [0x1] 102.566988: a: b",
            "sh-490 [001] 102.5669880001: a: b",
            "sh-490 [001] 102.: a: b",
            "sh-490 [001] 99999999999999999999.1: a: b",
            "sh-4294967296 [001] 102.566988: a: b",
            "sh-490 (x) [001] 102.566988: a: b",
            "sh-490 [001] a b c d 102.566988: a: b",
            "rustc-9065    0d.... 13669.224396: page_fault_user:      address=0x7f85ab27bf90",
        ] {
            assert_eq!(parts(text), None, "{text}");
        }
    }

    /// Lines of the `blk` tracer, of system calls, and of other events of perf have names.
    #[test]
    fn other_events_have_names() {
        for (text, name, rest) in [
            ("sh-4 [1] ...1. 1.5:   8,0    Q  WS 8 + 8 [a:b]", "Q", "8,0    Q  WS 8 + 8 [a:b]"),
            ("sh-4 [1] ...1. 1.5:   8,0   UT   N [sh] 1", "UT", "8,0   UT   N [sh] 1"),
            ("sh-4 [1] 1.5: sys_read(fd: 3, count: 0x20)", "sys_read", "(fd: 3, count: 0x20)"),
            ("sh-4 [1] 1.5: sys_read -> 0x20", "sys_read", "-> 0x20"),
            ("sh 4 [1] 1.5:  250000 cpu-clock:ppp: ffff a (b)", "ppp", "ffff a (b)"),
            ("sh 4 [1] 1.5:       1 cycles: ffff a (b)", "cycles", "ffff a (b)"),
            ("swapper 0 [1] 1.5: PERF_RECORD_LOST lost 35", "PERF_RECORD_LOST", "lost 35"),
        ] {
            let (_, _, _, _, found, text) = parts(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!((&*found, &*text), (name, rest));
        }
        for text in ["sh-4 [1] 1.5: 8,0 Queue WS", "sh 4 [1] 1.5: a b", "sh-4 [1] 1.5: a -> b"] {
            assert_eq!(parts(text), None, "{text}");
        }
        for chain in [
            "\tffffffff817c2061 ext4_x+0x291 ([kernel.kallsyms])",
            " => vfs_write",
            "            f838f [unknown] (/a b/c)",
            "\t            main (inlined)",
        ] {
            assert!(is_chain(chain.as_bytes()), "{chain}");
        }
        assert!(!is_chain(b"            sh-4 [1] 1.5 ext4_x"));
        assert_eq!(perf_lost(b"lost 35"), Some(35));
    }

    #[test]
    fn lost_events_are_counted() {
        for (text, many) in [
            ("CPU:1 [LOST 35 EVENTS]", Some(35)),
            ("CPU:12 [LOST EVENTS]", Some(1)),
            ("CPU:7 [204600 EVENTS DROPPED]", Some(204_600)),
            ("CPU:7 [EVENTS DROPPED]", Some(1)),
            ("CPU:7 [SOME EVENTS DROPPED]", None),
            ("CPU:x [LOST EVENTS]", None),
        ] {
            assert_eq!(lost(text.as_bytes()), many, "{text}");
        }
        let header = |text: &str| overwritten(text.as_bytes());
        assert_eq!(header("# entries-in-buffer/entries-written: 54236/64215   #P:2"), Some(9979));
        assert_eq!(header("# entries-in-buffer/entries-written: 205/205   #P:2"), None);
        assert_eq!(header("# entries-in-buffer/entries-written: 205/5"), None);
    }
}
