//! The output of `strace -f -ttt [-y|-yy] [-o FILE]`, also with other or no times, of one process
//! or many.
//!
//! The format follows strace(1), versions 4 to 6. A call takes effect, and its event gets its time,
//! at the line with its result: the line that resumes it if another thread's line came between.
//! Three effects occur on entry instead: a `close` (its number is free at once), the creation of a
//! child (its lines may precede its parent's result), and the resolution of a descriptor to its
//! file (another thread may close it meanwhile).
//!
//! [`crate::process`] resolves all ambiguity in a trace; `-y` leaves the least. A trace of system
//! calls does not contain page accesses through mappings or io_uring: the mappings and submissions
//! are counted. A request of libaio counts when it is submitted.
//!
//! `-e raw` and `-X raw` print numbers for words, and `-e raw` prints no paths: each open is then
//! of a file of its own. `-ff` writes a file for each thread, whose lines [`merged`] puts in order.

mod calls;
mod line;
pub(super) mod merged;
mod names;
#[cfg(test)]
mod tests;

use super::{Confidence, FormatSpec, Knows, Side, Space, day::Days, head_lines};
use crate::{
    Error,
    events::{Events, Skip},
    input::Input,
    process::{CallMachine, Out, STRANGE_FD, Strangers, SystemCall},
};
use calls::{Caller, Entered, UNREADABLE, is_access, is_birth};
use flashsift_events::event::About;
use line::{Args, Outcome, Time, call, head, number, outcome};
use std::collections::{BTreeSet, HashMap, HashSet};

pub(super) const SPEC: FormatSpec = FormatSpec {
    name: "strace",
    what: "strace -f -ttt -y (also without -f, -y or times)",
    detect,
    read,
    ahead: true,
    sample: || SAMPLE.into(),
};

const SAMPLE: &str = r#"11014 1795169623.673253 execve("/usr/bin/app", ["app"], 0x7ffee7ce6908 /* 6 vars */) = 0
11014 1795169623.673765 openat(AT_FDCWD</home/me>, "notes, old", O_RDWR|O_CREAT|O_CLOEXEC, 0600) = 3</home/me/notes, old>
11014 1795169623.673800 umask(022)       = 022
11014 1795169623.673810 openat(AT_FDCWD</home/me>, "dir/new", O_WRONLY|O_CREAT|O_EXCL, 0666) = 4</home/me/dir/new>
11014 1795169623.673820 close(4</home/me/dir/new>) = 0
11014 1795169623.673830 link("dir/new", "dir/other") = 0
11014 1795169623.673840 rename("dir", "elsewhere") = 0
11014 1795169623.673970 read(3</home/me/notes, old>, "a \"quoted\" (word)"..., 4096) = 832
11014 1795169623.674100 clone3({flags=CLONE_VM|CLONE_FS|CLONE_FILES|CLONE_THREAD, exit_signal=0} => {parent_tid=[11015]}, 88) = 11015
11014 1795169623.674110 write(3</home/me/notes, old>, "new"..., 4096 <unfinished ...>
11015 1795169623.674200 fdatasync(3</home/me/notes, old>) = 0
11014 1795169623.674300 <... write resumed>) = 4096
11014 1795169623.674400 mmap(NULL, 4928, PROT_READ, MAP_SHARED, 3</home/me/notes, old>, 0) = 0x7f596cfae000
11015 1795169623.674500 unlink("/home/me/notes, old") = 0
11015 1795169623.674600 close(9) = -1 EBADF (Bad file descriptor)
11014 1795169623.674700 --- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=11018} ---
11014 1795169623.674800 exit_group(0) = ?
11015 1795169623.674900 +++ exited with 0 +++
11014 1795169623.675000 +++ exited with 0 +++
"#;

const NOT_A_LINE: Skip = Skip::Damage("line that strace does not print");
const STRAY_HALF: Skip = Skip::Damage("second half of a call whose first is not in the trace");
const CUT: Skip = Skip::Benign("call that the trace does not finish");
const SIGNAL: Skip = Skip::Benign("signal, or end of a thread");
const REMARK: Skip = Skip::Benign("remark of strace");
/// An access that is lost, in a trace of a process that ran before or whose threads were not seen
/// to begin.
const LOST: Skip = Skip::Damage(
    "access to a descriptor opened before the trace or by another thread: record with strace -y, \
     which names its file",
);

/// Largest text in bytes of a line that a message of strace or another thread interrupted.
const CALL_BYTES_MAX: usize = 1 << 20;

fn detect(head: &[u8]) -> Confidence {
    let (mut good, mut calls, mut all, mut was_cut) = (0, 0, 0, false);
    for line in head_lines(head).take(400) {
        let line::Head { tid, time, body, .. } = line::head(line);
        let continues = was_cut && tid.is_none() && time.is_none();
        let whole = || {
            let (name, rest) = call(body)?;
            let known = name.first().is_some_and(|b| b.is_ascii_lowercase() || *b == b'_');
            let args = Args::parse(unfinished(rest).unwrap_or(rest))?;
            (known && (rest.ends_with(b">") || outcome(args.result?).is_some())).then_some(())
        };
        let half = || {
            body.strip_prefix(b"<... ")
                .filter(|rest| memchr::memmem::find(rest, b" resumed>").is_some())
        };
        let is_call = whole().is_some() || half().is_some();
        calls += usize::from(is_call);
        was_cut = interrupted(body).is_some() || continues && is_remark(body);
        good += usize::from(is_call || is_mark(body) || is_remark(body) || was_cut || continues);
        all += 1;
    }
    if calls > 0 && good * 5 >= all * 4 { Confidence::Likely } else { Confidence::No }
}

/// A signal, or the end of a thread.
fn is_mark(body: &[u8]) -> bool {
    [&b"--- "[..], b"+++ "]
        .iter()
        .any(|mark| body.starts_with(mark) && body.ends_with(mark.trim_ascii_end()))
}

fn is_remark(body: &[u8]) -> bool {
    [&b"strace: "[..], b"Process ", b"[ Process "].iter().any(|start| body.starts_with(start))
        // -k prints the stack after each call.
        || body.starts_with(b"> ") && body.ends_with(b"]")
}

/// Returns the start of a call and the remark of strace that interrupts it: `clone(Process 7
/// attached`, `clone(strace: Process 7 attached`.
fn interrupted(body: &[u8]) -> Option<(&[u8], &[u8])> {
    if !body.ends_with(b"attached") && !body.ends_with(b"attached (waiting for parent)") {
        return None;
    }
    let at = memchr::memmem::rfind(body, b"Process ").filter(|&at| at > 0)?;
    let (start, remark) = body.split_at(at);
    let start = start.strip_suffix(b"strace: ").unwrap_or(start);
    call(start).map(|_| (start, remark))
}

/// Returns a call without the mark that it goes on elsewhere. With `-ff`, a call of `execve` in a
/// thread goes on in the file of the leader.
fn unfinished(text: &[u8]) -> Option<&[u8]> {
    let text = text.strip_suffix(b"<unfinished ...>").or_else(|| {
        let text = text.strip_suffix(b" ...>")?;
        let at = memchr::memmem::rfind(text, b"<pid changed to ")?;
        text[at + b"<pid changed to ".len()..].iter().all(u8::is_ascii_digit).then(|| &text[..at])
    })?;
    Some(text.strip_suffix(b" ").unwrap_or(text))
}

/// A call whose first half was read: the text from its name on.
#[derive(Default)]
struct Half {
    line: u64,
    text: Vec<u8>,
    entered: Entered,
}

/// The form of the times in the trace, in microseconds.
#[derive(Clone, Copy)]
enum Clock {
    /// Time of the first line.
    Absolute(u64),
    /// Time since the previous line (`-r`): the sum counts.
    Relative(u64),
    OfDay(Days),
}

/// Times from here on count from 1970, lower ones from the line before: lines are never so far
/// apart, and clocks showed more when strace first appeared.
const ABSOLUTE_US: u64 = 10_000_000 * 1_000_000;

struct Reader<'e, 's> {
    events: &'e mut Events<'s>,
    described: bool,
    machine: CallMachine,
    out: Out,
    halves: HashMap<u32, Half>,
    clock: Option<Clock>,
    now_us: u64,
    /// The start of a line that a message of strace interrupted, and its thread.
    cut: Option<(u32, Vec<u8>)>,
    crowd: Crowd,
}

/// Assigns threads to lines without a number: strace prints none while it follows one thread. The
/// first such thread is 0 throughout, because its number is not known from the start.
#[derive(Default)]
struct Crowd {
    /// Every line has a number.
    numbered: bool,
    unnamed: bool,
    /// The number that turned out to be the first thread's.
    first: Option<u32>,
    /// Numbers of threads that strace attached to, or that a clone returned.
    attached: HashSet<u32>,
    alive: BTreeSet<u32>,
}

impl Crowd {
    /// Returns the thread of a line. `bearing`: thread 0 is in a clone that has not returned.
    fn thread_of(&mut self, shown: Option<u32>, body: &[u8], bearing: bool) -> u32 {
        let Some(tid) = shown else {
            if !self.unnamed {
                self.unnamed = true;
                self.alive.insert(0);
            }
            return self.alive.first().copied().unwrap_or(0);
        };
        if !self.unnamed {
            return tid;
        }
        let stranger = !self.attached.contains(&tid) && !self.alive.contains(&tid);
        if self.first.is_none() && stranger && (!bearing || body.starts_with(b"<... ")) {
            self.first = Some(tid);
        }
        if self.first == Some(tid) {
            return 0;
        }
        self.alive.insert(tid);
        tid
    }
}

fn read(input: &mut Input<'_>, events: &mut Events<'_>) -> Result<(), Error> {
    let mut reader = Reader {
        events,
        described: false,
        machine: CallMachine::new(Strangers::Processes),
        out: Out::default(),
        halves: HashMap::new(),
        clock: None,
        now_us: 0,
        cut: None,
        crowd: Crowd::default(),
    };
    while let Some(line) = input.line()? {
        if line.too_long {
            reader.events.skipped(Skip::Damage("line longer than any of strace's"), line.number);
        } else if !line.bytes.is_empty() {
            reader.line(line.bytes, line.number)?;
        }
    }
    // The first of them is named, and the order of a hash map differs from run to run.
    let mut cut: Vec<u64> = reader.halves.values().map(|half| half.line).collect();
    cut.sort_unstable();
    cut.into_iter().for_each(|line| reader.events.skipped(CUT, line));
    if reader.described { Ok(()) } else { reader.describe(Some(Time::Seconds { us: 0 })) }
}

impl Reader<'_, '_> {
    /// `first`: the time of the first line.
    fn describe(&mut self, first: Option<Time>) -> Result<(), Error> {
        self.described = true;
        let knows = Knows {
            times: first.is_some(),
            syncs: true,
            writes: true,
            removals: true,
            opens: true,
            names: true,
            ..Knows::NOTHING
        };
        let epoch_us = match first {
            Some(Time::Seconds { us }) if us >= ABSOLUTE_US => Some(us),
            _ => None,
        };
        self.events.about(About {
            epoch_us,
            boot_us: None,
            side: Side::Before,
            space: Space::Files,
            knows,
        })
    }

    fn line(&mut self, bytes: &[u8], line: u64) -> Result<(), Error> {
        let mut joined = Vec::new();
        let mut head = head(bytes);
        let bare = head.tid.is_none() && head.time.is_none();
        if bare && is_remark(head.body) {
            self.remark(head.body);
            self.events.skipped(REMARK, line);
            return Ok(());
        }
        let continued = self.cut.take().filter(|_| bare);
        let tid = match continued {
            Some((tid, start)) => {
                joined.extend_from_slice(&start);
                joined.extend_from_slice(bytes);
                head.body = &joined;
                tid
            }
            None => {
                if is_remark(head.body) {
                    self.remark(head.body);
                    self.events.skipped(REMARK, line);
                    return Ok(());
                }
                self.crowd.numbered |= head.bare;
                let line_like = is_mark(head.body)
                    || head.body.starts_with(b"<... ")
                    || call(head.body).is_some();
                if !line_like || (head.tid.is_none() && self.crowd.numbered) {
                    self.events.skipped(NOT_A_LINE, line);
                    return Ok(());
                }
                if !self.described {
                    self.describe(head.time)?;
                }
                self.now_us = head.time.map_or(self.now_us, |time| self.time(time));
                let bearing = self.halves.get(&0).is_some_and(|half| half.entered.birth);
                self.crowd.thread_of(head.tid, head.body, bearing)
            }
        };
        if let Some((start, remark)) = interrupted(head.body) {
            self.remark(remark);
            self.cut = Some((tid, start.to_vec()));
            return Ok(());
        }
        self.body(tid, head.body, line)
    }

    /// `strace: Process 7 attached`, `Process 7 attached (waiting for parent)`, `strace: Process 7
    /// attached with 5 threads`.
    fn remark(&mut self, remark: &[u8]) {
        let from = remark.iter().position(u8::is_ascii_digit).unwrap_or(remark.len());
        let Some(tid) = number(&remark[from..]).and_then(|tid| u32::try_from(tid).ok()) else {
            return;
        };
        if memchr::memmem::find(remark, b"attached with ").is_some() {
            self.machine.strangers(Strangers::Threads(tid));
        } else if memchr::memmem::find(remark, b" attached").is_some() {
            self.crowd.attached.insert(tid);
        }
    }

    /// Returns microseconds since the first line.
    fn time(&mut self, time: Time) -> u64 {
        let clock = self.clock.get_or_insert(match time {
            Time::Seconds { us } if us >= ABSOLUTE_US => Clock::Absolute(us),
            Time::Seconds { .. } => Clock::Relative(0),
            Time::OfDay { .. } => Clock::OfDay(Days::default()),
        });
        match (clock, time) {
            (Clock::Absolute(first), Time::Seconds { us }) => us.saturating_sub(*first),
            (Clock::Relative(sum), Time::Seconds { us }) => {
                *sum = sum.saturating_add(us);
                *sum
            }
            (Clock::OfDay(days), Time::OfDay { us }) => days.since_first(us),
            _ => self.now_us,
        }
    }

    fn body(&mut self, tid: u32, body: &[u8], line: u64) -> Result<(), Error> {
        if is_mark(body) {
            self.events.skipped(SIGNAL, line);
            return if body.starts_with(b"+++") { self.end(tid, body, line) } else { Ok(()) };
        }
        if let Some(rest) = body.strip_prefix(b"<... ") {
            return self.resumed(tid, rest, line);
        }
        let Some((name, rest)) = call(body) else {
            self.events.skipped(NOT_A_LINE, line);
            return Ok(());
        };
        self.drop_half(tid, line)?;
        match unfinished(rest) {
            Some(first) => {
                let entered = self.caller(tid, Entered::default()).enter(name, first);
                let text = body[..name.len() + 1 + first.len()].to_vec();
                self.halves.insert(tid, Half { line, text, entered });
                self.out.hand_on(Ok(()), self.events, line)
            }
            None => self.complete(tid, name, rest, Entered::default(), line),
        }
    }

    fn caller(&mut self, tid: u32, entered: Entered) -> Caller<'_> {
        Caller { machine: &mut self.machine, out: &mut self.out, at_us: self.now_us, tid, entered }
    }

    /// A thread continues with another call before its call has returned.
    fn drop_half(&mut self, tid: u32, line: u64) -> Result<(), Error> {
        if let Some(half) = self.halves.remove(&tid) {
            self.caller(tid, half.entered).leave();
            self.out.hand_on(Err(CUT), self.events, line)?;
        }
        Ok(())
    }

    /// `+++ exited with 0 +++`, `+++ killed by SIGKILL +++`, `+++ superseded by execve in pid 7
    /// +++`.
    fn end(&mut self, tid: u32, body: &[u8], line: u64) -> Result<(), Error> {
        self.drop_half(tid, line)?;
        let superseded = body.strip_prefix(b"+++ superseded by execve in pid ").and_then(number);
        let call = match superseded.and_then(|by| u32::try_from(by).ok()) {
            Some(by) => {
                if let Some(half) = self.halves.remove(&by) {
                    self.halves.insert(tid, half);
                }
                self.crowd.alive.remove(&by);
                SystemCall::Superseded { by }
            }
            None => {
                self.crowd.alive.remove(&tid);
                SystemCall::Exit
            }
        };
        let done = self.machine.call(self.now_us, tid, call, &mut self.out);
        self.out.hand_on(done, self.events, line)
    }

    /// Handles `<... read resumed>"…", 10) = 3`, from which `<... ` is removed.
    fn resumed(&mut self, tid: u32, rest: &[u8], line: u64) -> Result<(), Error> {
        let parts =
            memchr::memmem::find(rest, b" resumed>").map(|at| (&rest[..at], &rest[at + 9..]));
        let half = self.halves.remove(&tid);
        let (Some((name, rest)), Some(half)) = (parts, half) else {
            self.events.skipped(STRAY_HALF, line);
            return Ok(());
        };
        let Half { mut text, entered, .. } = half;
        let same = call(&text).is_some_and(|(began, _)| began == name);
        if !same || text.len() + rest.len() > CALL_BYTES_MAX {
            self.caller(tid, entered).leave();
            return self.out.hand_on(Err(STRAY_HALF), self.events, line);
        }
        text.extend_from_slice(rest);
        match unfinished(&text).map(<[u8]>::len) {
            // The call was interrupted again.
            Some(len) => {
                text.truncate(len);
                self.halves.insert(tid, Half { line, text, entered });
                Ok(())
            }
            None => self.complete(tid, name, &text[name.len() + 1..], entered, line),
        }
    }

    fn complete(
        &mut self,
        tid: u32,
        name: &[u8],
        text: &[u8],
        entered: Entered,
        line: u64,
    ) -> Result<(), Error> {
        let args = Args::parse(text);
        let outcome = args.as_ref().and_then(|args| outcome(args.result?));
        if let Some(Outcome::Done(child, _)) = outcome
            && self.crowd.unnamed
            && is_birth(name)
        {
            self.crowd.attached.extend(u32::try_from(child));
        }
        let mut caller = self.caller(tid, entered);
        let done = match (&args, outcome) {
            (Some(args), Some(outcome)) => {
                // The call has ended, whatever its effect: the names that it shows are reliable
                // again.
                caller.settle();
                caller.complete(name, args, outcome, text)
            }
            _ if text.ends_with(b"<detached ...>") => Err(CUT),
            _ => Err(UNREADABLE),
        };
        caller.leave();
        let done = match done {
            Err(STRANGE_FD) if is_access(name) => Err(LOST),
            done => done,
        };
        self.out.hand_on(done, self.events, line)
    }
}
