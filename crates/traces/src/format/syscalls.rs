//! System calls under the kernel's names of their arguments, as the tracepoints `syscalls:…` and
//! `perf trace` print them:
//!
//! ```text
//! fd: 0x00000003, buf: 0x55c4bf010680, count: 0x00002710
//! dfd: CWD, filename: "/data/a", flags: WRONLY|CREAT, mode: IRUGO|IWUSR
//! ```
//!
//! The order of the arguments is not used, because `perf trace` leaves out those that are 0. Most
//! kernels print the address of a path. A file that is opened so gets the name that a later call
//! shows for its descriptor, or none; calls on other names are counted and change nothing.

use super::processes::Processes;
use crate::{
    Error,
    events::{Events, Skip},
    process::{
        CallMachine, Dir, Done, Fd, Flags, Out, Path, STRANGE_FD, Shares, Shown, Strangers,
        SystemCall, Target,
    },
};
use flashsift_events::event::Action;
use std::collections::HashMap;

const UNREADABLE: Skip = Skip::Damage("system call whose arguments cannot be read");
const FAILED: Done = Err(Skip::Benign("failed call"));
const NO_RESULT: Done = Err(Skip::Benign("call without a result"));
const CUT: Skip = Skip::Benign("call that the trace does not finish");
pub(super) const STRAY: Skip = Skip::Benign("end of a call whose beginning is not in the trace");
const POINTER: Skip = Skip::Benign("call on a path of which the trace has the address only");
const IN_MEMORY: Skip = Skip::Damage("copy at offsets of which the trace has the addresses only");
const ADVICE: Done = Err(Skip::Benign("sync of a range that starts no write"));
const NOT_OPENED: Skip =
    Skip::Benign("call on a descriptor that the trace does not open: perhaps of a pipe or socket");
const BEFORE: &str = "descriptor opened before the trace: its offset is taken as 0";
const CLONE3: &str = "clone3, of which the trace does not show the kind: taken as a fork";

/// The calls that are used.
const NAMES: &[&str] = &[
    "accept",
    "accept4",
    "chdir",
    "clone",
    "clone3",
    "close",
    "close_range",
    "copy_file_range",
    "creat",
    "dup",
    "dup2",
    "dup3",
    "epoll_create",
    "epoll_create1",
    "eventfd",
    "eventfd2",
    "execve",
    "execveat",
    "exit",
    "exit_group",
    "fallocate",
    "fchdir",
    "fcntl",
    "fdatasync",
    "fork",
    "fsync",
    "ftruncate",
    "inotify_init",
    "inotify_init1",
    "io_uring_setup",
    "link",
    "linkat",
    "lseek",
    "memfd_create",
    "mkdir",
    "mkdirat",
    "mmap",
    "mremap",
    "msync",
    "munmap",
    "open",
    "openat",
    "openat2",
    "perf_event_open",
    "pidfd_open",
    "pread64",
    "preadv",
    "preadv2",
    "pwrite64",
    "pwritev",
    "pwritev2",
    "read",
    "readv",
    "rename",
    "renameat",
    "renameat2",
    "rmdir",
    "sendfile",
    "sendfile64",
    "signalfd",
    "signalfd4",
    "socket",
    "splice",
    "symlink",
    "symlinkat",
    "sync",
    "sync_file_range",
    "syncfs",
    "timerfd_create",
    "truncate",
    "umask",
    "unlink",
    "unlinkat",
    "userfaultfd",
    "vfork",
    "write",
    "writev",
];

/// Returns the call of this name, if it is used.
pub(super) fn named(name: &[u8]) -> Option<&'static str> {
    NAMES.binary_search_by(|known| known.as_bytes().cmp(name)).ok().map(|at| NAMES[at])
}

/// Whether the call reads a file.
pub(super) fn reads(name: &str) -> bool {
    matches!(name, "read" | "readv" | "pread64" | "preadv" | "preadv2")
}

/// Whether the arguments hold a path, and not its address.
pub(super) fn shows_a_path(args: &[u8], hex: bool) -> bool {
    let args = Args::parse(args, hex);
    ["filename", "pathname", "oldname", "path"].iter().any(|name| args.path(name).is_ok())
}

/// A call's thread, its process as far as the trace tells, and the name of that.
#[derive(Clone, Copy)]
pub(super) struct By<'a> {
    pub(super) at_us: u64,
    pub(super) tid: u32,
    pub(super) pid: u32,
    pub(super) name: Option<&'a [u8]>,
}

/// The end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Returned {
    Done(u64),
    Failed,
    Unknown,
}

impl Returned {
    /// The kernel returns an error as a small negative number.
    pub(super) fn new(result: u64) -> Self {
        const ERRNO_MAX: u64 = 4095;
        if result > u64::MAX - ERRNO_MAX { Self::Failed } else { Self::Done(result) }
    }
}

/// A call that has not ended.
struct Entered {
    line: u64,
    name: &'static str,
    args: Box<[u8]>,
    hex: bool,
}

/// Turns calls into events.
pub(super) struct Calls {
    machine: CallMachine,
    out: Out,
    entered: HashMap<u32, Entered>,
    processes: Processes,
    /// Number of reads and writes.
    pub(super) accesses: u64,
}

impl Default for Calls {
    fn default() -> Self {
        Self {
            machine: CallMachine::new(Strangers::Processes),
            out: Out::default(),
            entered: HashMap::new(),
            processes: Processes::default(),
            accesses: 0,
        }
    }
}

impl Calls {
    /// A call begins. `hex`: numbers without `0x` are hexadecimal, too.
    pub(super) fn enter(
        &mut self,
        by: &By<'_>,
        name: &'static str,
        args: &[u8],
        hex: bool,
        events: &mut Events<'_>,
    ) -> Result<(), Error> {
        let line = events.line();
        let parsed = Args::parse(args, hex);
        let done = match name {
            "clone" | "clone3" | "fork" | "vfork" => {
                self.call(by, SystemCall::ForkBegins { shares: shares(name, &parsed) })
            }
            // The number is free at once.
            "close" => {
                parsed.fd("fd").and_then(|fd| self.call(by, SystemCall::Close { fd: fd.number }))
            }
            "exit" if by.tid == by.pid => self.call(by, SystemCall::Exit),
            "exit_group" => self.call(by, SystemCall::ExitGroup),
            _ => Ok(()),
        };
        let entered = Entered { line, name, args: args.into(), hex };
        if let Some(before) = self.entered.insert(by.tid, entered) {
            events.skipped(CUT, before.line);
        }
        self.hand_on(by, done, events)
    }

    /// The thread's call ends. `name`: the call that the trace names.
    pub(super) fn leave(
        &mut self,
        by: &By<'_>,
        name: &str,
        returned: Returned,
        events: &mut Events<'_>,
    ) -> Result<(), Error> {
        let Some(entered) = self.entered.remove(&by.tid).filter(|entered| entered.name == name)
        else {
            events.skipped(STRAY, events.line());
            return Ok(());
        };
        let args = Args::parse(&entered.args, entered.hex);
        let is_birth = matches!(name, "clone" | "clone3" | "fork" | "vfork");
        let done = match returned {
            Returned::Done(result) => self.complete(by, entered.name, &args, result),
            _ if is_birth => {
                let ends = SystemCall::ForkEnds { child: None, shares: Shares::default() };
                self.call(by, ends).and(FAILED)
            }
            Returned::Failed => FAILED,
            Returned::Unknown if matches!(name, "exit" | "exit_group") => Ok(()),
            Returned::Unknown => NO_RESULT,
        };
        self.hand_on(by, done, events)
    }

    /// Counts the calls that have not ended.
    pub(super) fn finish(self, events: &mut Events<'_>) {
        let open = |entered: &&Entered| !matches!(entered.name, "exit" | "exit_group");
        // The order of a hash map differs from run to run.
        let mut lines: Vec<_> = self.entered.values().filter(open).map(|e| e.line).collect();
        lines.sort_unstable();
        lines.into_iter().for_each(|line| events.skipped(CUT, line));
    }

    fn call(&mut self, by: &By<'_>, call: SystemCall<'_>) -> Done {
        self.machine.call(by.at_us, by.pid, call, &mut self.out)
    }

    fn hand_on(&mut self, by: &By<'_>, done: Done, events: &mut Events<'_>) -> Result<(), Error> {
        let done = if done == Err(STRANGE_FD) { Err(NOT_OPENED) } else { done };
        let acts = self.out.events.iter().any(|event| event.pid == by.pid);
        if let Some(name) = by.name.filter(|name| acts && !name.is_empty()) {
            self.processes.runs(by.pid, name, by.at_us, events)?;
        }
        // Threads of one process were taken for one.
        for event in &mut self.out.events {
            let is_access = matches!(event.action, Action::Read { .. } | Action::Write { .. });
            self.accesses += u64::from(is_access);
            if event.tid == by.pid {
                event.tid = by.tid;
            }
        }
        self.out.hand_on(done, events, events.line())
    }

    /// Returns the descriptor in an argument. If the trace did not open it, it is a file if a name
    /// is shown or only a file can be meant.
    fn own<'a>(
        &mut self,
        by: &By<'_>,
        args: &Args<'a>,
        name: &str,
        is_file: bool,
    ) -> Result<Fd<'a>, Skip> {
        let fd = args.fd(name)?;
        let is_file = is_file || matches!(fd.shown, Some(Shown::Path(..)));
        if is_file && !self.machine.is_open(by.pid, fd.number) {
            let flags = Flags::default();
            self.call(by, SystemCall::OpenUnnamed { flags, fd: fd.number })?;
            self.out.note(BEFORE);
        }
        Ok(fd)
    }

    fn complete(&mut self, by: &By<'_>, name: &'static str, args: &Args<'_>, result: u64) -> Done {
        let small = |result: u64| i32::try_from(result).map_err(|_| UNREADABLE);
        let call = match name {
            "open" | "openat" | "openat2" | "creat" => {
                let flags = match name {
                    "creat" => Flags::WRITABLE | Flags::CREATE | Flags::TRUNCATE,
                    _ => args.open_flags("flags"),
                };
                let fd = small(result)?;
                match args.at("dfd", "filename") {
                    Ok(path) => {
                        let mode = args.get("mode").and_then(|mode| number(mode, args.hex));
                        let mode = mode.map(|mode| mode as u32 & 0o7777);
                        SystemCall::Open { path, flags, mode, fd: fd.into() }
                    }
                    Err(_) => SystemCall::OpenUnnamed { flags, fd },
                }
            }
            "read" | "readv" => {
                let fd = self.own(by, args, "fd", false)?;
                SystemCall::Read { fd, at: None, len: result }
            }
            "write" | "writev" => {
                let fd = self.own(by, args, "fd", false)?;
                SystemCall::Write { fd, at: None, len: result, flags: Flags::default() }
            }
            "pread64" | "preadv" | "preadv2" => {
                let fd = self.own(by, args, "fd", true)?;
                SystemCall::Read { fd, at: args.place(name)?, len: result }
            }
            "pwrite64" | "pwritev" | "pwritev2" => {
                let fd = self.own(by, args, "fd", true)?;
                let sync = args.has("flags", 6, &["SYNC", "DSYNC"]);
                let append = args.has("flags", 16, &["APPEND"]);
                let flag = |set: bool, flag: Flags| if set { flag } else { Flags::default() };
                let flags = flag(sync, Flags::SYNC) | flag(append, Flags::APPEND);
                SystemCall::Write { fd, at: args.place(name)?, len: result, flags }
            }
            "copy_file_range" | "splice" | "sendfile" | "sendfile64" => {
                let names = match name {
                    "copy_file_range" | "splice" => ["fd_in", "off_in", "fd_out", "off_out"],
                    _ => ["in_fd", "offset", "out_fd", ""],
                };
                let [from, from_at, to, to_at] = names;
                let (from, to) = (self.own(by, args, from, false)?, self.own(by, args, to, false)?);
                if args.number(from_at)? != 0 || args.number(to_at)? != 0 {
                    return Err(IN_MEMORY);
                }
                SystemCall::Copy { from, from_at: None, to, to_at: None, len: result }
            }
            "lseek" => {
                let fd = self.own(by, args, "fd", true)?;
                let end = args.has("whence", 2, &["END"]);
                let past = args.number("offset")?.cast_signed();
                let size = result.checked_add_signed(past.wrapping_neg()).filter(|_| end);
                SystemCall::Seek { fd, to: result, size }
            }
            "fsync" | "fdatasync" => {
                let fd = self.own(by, args, "fd", true)?;
                let data_only = name == "fdatasync";
                SystemCall::Sync { fd, offset: 0, len: u64::MAX, data_only }
            }
            "sync" | "syncfs" => SystemCall::SyncAll,
            "sync_file_range" => {
                if !args.has("flags", 2, &["WRITE"]) {
                    return ADVICE;
                }
                let fd = self.own(by, args, "fd", true)?;
                let (offset, len) = (args.number("offset")?, args.number("nbytes")?);
                let len = if len == 0 { u64::MAX } else { len };
                SystemCall::Sync { fd, offset, len, data_only: true }
            }
            "truncate" => {
                let target = Target::Path(args.at("", "path")?);
                SystemCall::Truncate { target, size: args.number("length")? }
            }
            "ftruncate" => {
                let target = Target::Fd(self.own(by, args, "fd", true)?);
                SystemCall::Truncate { target, size: args.number("length")? }
            }
            "fallocate" => {
                let fd = self.own(by, args, "fd", true)?;
                let (offset, len) = (args.number("offset")?, args.number("len")?);
                if args.has("mode", 8 | 32, &["COLLAPSE_RANGE", "INSERT_RANGE"]) {
                    return Err(Skip::Damage("fallocate that shifts a file's bytes"));
                }
                if args.has("mode", 2 | 16, &["PUNCH_HOLE", "ZERO_RANGE"]) {
                    self.call(by, SystemCall::Punch { fd, offset, len })?;
                }
                if args.has("mode", 1, &["KEEP_SIZE"]) {
                    return Ok(());
                }
                SystemCall::Allocate { fd, end: offset.saturating_add(len) }
            }
            "close" | "exit" | "exit_group" => return Ok(()),
            "close_range" => SystemCall::CloseRange {
                first: args.fd("fd")?.number,
                last: i32::try_from(args.number("max_fd")?).unwrap_or(i32::MAX),
                cloexec: args.has("flags", 4, &["CLOEXEC"]),
                unshare: args.has("flags", 2, &["UNSHARE"]),
            },
            "dup" | "dup2" | "dup3" => {
                let from = if name == "dup" { "fildes" } else { "oldfd" };
                let cloexec = args.open_flags("flags").has(Flags::CLOEXEC);
                let from = self.own(by, args, from, false)?;
                SystemCall::Dup { from, to: small(result)?, cloexec }
            }
            "fcntl" => {
                let cloexec = args.has("cmd", 0, &["DUPFD_CLOEXEC"])
                    || args.get("cmd").and_then(|cmd| number(cmd, args.hex)) == Some(1030);
                if cloexec || args.is("cmd", 0, "DUPFD") {
                    let from = self.own(by, args, "fd", false)?;
                    SystemCall::Dup { from, to: small(result)?, cloexec }
                } else if args.is("cmd", 2, "SETFD") {
                    let cloexec = args.has("arg", 1, &["CLOEXEC"]);
                    SystemCall::SetCloexec { fd: args.fd("fd")?.number, cloexec }
                } else if args.is("cmd", 4, "SETFL") {
                    let fd = self.own(by, args, "fd", false)?;
                    SystemCall::SetFlags { fd, flags: args.open_flags("arg") }
                } else {
                    return Ok(());
                }
            }
            "rename" => SystemCall::Rename {
                from: args.at("", "oldname")?,
                to: args.at("", "newname")?,
                exchange: false,
            },
            "renameat" | "renameat2" => SystemCall::Rename {
                from: args.at("olddfd", "oldname")?,
                to: args.at("newdfd", "newname")?,
                exchange: args.has("flags", 2, &["EXCHANGE"]),
            },
            "link" | "linkat" => {
                let from = Target::Path(args.at("olddfd", "oldname")?);
                SystemCall::Link { from, to: args.at("newdfd", "newname")? }
            }
            "symlink" | "symlinkat" => SystemCall::Symlink {
                target: args.path("oldname")?,
                path: args.at("newdfd", "newname")?,
            },
            "unlink" | "unlinkat" | "rmdir" => {
                SystemCall::Unlink { path: args.at("dfd", "pathname")?, seen: None }
            }
            "mkdir" | "mkdirat" => SystemCall::Mkdir { path: args.at("dfd", "pathname")? },
            "chdir" => SystemCall::Chdir { target: Target::Path(args.at("", "filename")?) },
            "fchdir" => SystemCall::Chdir { target: Target::Fd(self.own(by, args, "fd", true)?) },
            "umask" => match args.get("mask").and_then(|mask| number(mask, args.hex)) {
                Some(mask) => SystemCall::Umask { mask: mask as u32 },
                None => return Err(UNREADABLE),
            },
            "mmap" => {
                let (start, len) = (result, args.number("len")?);
                let offset = args.number("off")?;
                let fd = match args.has("flags", 0x20, &["ANONYMOUS"]) {
                    true => None,
                    false => Some(self.own(by, args, "fd", true)?),
                };
                SystemCall::Map { fd, start, len, offset }
            }
            "munmap" => SystemCall::Unmap { start: args.number("addr")?, len: args.number("len")? },
            "mremap" => SystemCall::Remap {
                from: args.number("addr")?,
                from_len: args.number("old_len")?,
                to: result,
                to_len: args.number("new_len")?,
            },
            "msync" if args.has("flags", 4, &["SYNC"]) => {
                SystemCall::Msync { start: args.number("start")?, len: args.number("len")? }
            }
            "msync" => return ADVICE,
            "clone" | "clone3" | "fork" | "vfork" => {
                if name == "clone3" {
                    self.out.note(CLONE3);
                }
                // In the child, the call returns 0.
                let child = u32::try_from(result).ok().filter(|&child| child > 0);
                SystemCall::ForkEnds { child, shares: shares(name, args) }
            }
            // The name comes with the lines that follow.
            "execve" | "execveat" => SystemCall::Exec { name: "" },
            // The others make a descriptor of no storage.
            _ => SystemCall::Made { fd: small(result)?.into(), cloexec: false },
        };
        self.call(by, call)
    }
}

fn shares(name: &str, args: &Args<'_>) -> Shares {
    let has = |bit: u64, word: &'static str| args.has("clone_flags", bit, &[word]);
    Shares {
        files: has(0x400, "FILES"),
        fs: has(0x200, "FS"),
        vm: name == "vfork" || has(0x100, "VM"),
        thread: has(0x1_0000, "THREAD"),
    }
}

/// Arguments by name.
pub(super) struct Args<'a> {
    list: Vec<(&'a [u8], &'a [u8])>,
    hex: bool,
}

impl<'a> Args<'a> {
    /// Largest number of arguments of a call.
    const COUNT_MAX: usize = 8;

    pub(super) fn parse(text: &'a [u8], hex: bool) -> Self {
        let mut list = Vec::new();
        let mut rest = Some(text.trim_ascii());
        while let Some((name, value)) = rest.and_then(named_value)
            && list.len() < Self::COUNT_MAX
        {
            let end = value_end(value);
            list.push((name, value[..end].trim_ascii()));
            rest = value.get(end + 2..);
        }
        Self { list, hex }
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.list.iter().find(|(own, _)| *own == name.as_bytes()).map(|(_, value)| *value)
    }

    /// Returns a number; 0 if the argument is left out.
    fn number(&self, name: &str) -> Result<u64, Skip> {
        match self.get(name) {
            Some(value) => number(value, self.hex).ok_or(UNREADABLE),
            None => Ok(0),
        }
    }

    /// Returns the offset of a call; `None` if it is that of the descriptor.
    fn place(&self, name: &str) -> Result<Option<u64>, Skip> {
        let at = if name.ends_with("64") { "pos" } else { "pos_l" };
        Ok(Some(self.number(at)?).filter(|&at| at != u64::MAX))
    }

    /// Whether an argument has one of these bits, or one of their names.
    fn has(&self, name: &str, bits: u64, words: &[&str]) -> bool {
        let value = self.get(name).unwrap_or_default();
        value.split(|&b| b == b'|').any(|word| match number(word, self.hex) {
            Some(number) => number & bits != 0,
            None => words.iter().any(|known| is_word(word, known)),
        })
    }

    /// Whether an argument is this number, or has its name.
    fn is(&self, name: &str, value: u64, word: &str) -> bool {
        let text = self.get(name).unwrap_or(b"0");
        match number(text, self.hex) {
            Some(number) => number == value,
            None => is_word(text, word),
        }
    }

    fn open_flags(&self, name: &str) -> Flags {
        let value = self.get(name).unwrap_or_default();
        value.split(|&b| b == b'|').fold(Flags::default(), |flags, word| {
            let word = word.trim_ascii();
            flags
                | match number(word, self.hex) {
                    Some(number) => Flags::of_number(number),
                    None if word.starts_with(b"O_") => Flags::parse(word),
                    None => Flags::parse(&[b"O_", word].concat()),
                }
        })
    }

    /// Returns a descriptor; number 0 may be left out.
    fn fd(&self, name: &str) -> Result<Fd<'a>, Skip> {
        let value = self.get(name).unwrap_or(b"0");
        let number = number(value, self.hex).ok_or(UNREADABLE)? as u32;
        let target = memchr::memchr(b'<', value)
            .and_then(|at| value[at + 1..].strip_suffix(b">"))
            .map(shown);
        Ok(Fd { number: number.cast_signed(), shown: target, pin: None })
    }

    fn path(&self, name: &str) -> Result<&'a [u8], Skip> {
        let value = self.get(name).ok_or(POINTER)?;
        // Newer kernels print the text behind its address.
        if let Some(quote) = memchr::memchr(b'"', value) {
            return value[quote + 1..].strip_suffix(b"\"").ok_or(POINTER);
        }
        let is_address = self.hex || number(value, false).is_some();
        if is_address || value.is_empty() { Err(POINTER) } else { Ok(value) }
    }

    /// Returns a path and the directory that it starts from.
    fn at(&self, dir: &str, path: &str) -> Result<Path<'a>, Skip> {
        const CWD: i32 = -100;
        let dir = match self.get(dir) {
            None => Dir::Cwd(None),
            Some(value) if value.ends_with(b"CWD") => Dir::Cwd(None),
            Some(_) => match self.fd(dir)? {
                fd if fd.number == CWD => Dir::Cwd(None),
                fd => Dir::Fd(fd),
            },
        };
        Ok(Path { dir, path: self.path(path)? })
    }
}

/// The file behind a descriptor, from the text between `<` and `>`.
fn shown(text: &[u8]) -> Shown<'_> {
    const NOWHERE: [&[u8]; 4] = [b"/memfd:", b"/SYSV", b"/dmabuf:", b"/["];
    let (path, deleted) = match text.strip_suffix(b" (deleted)") {
        Some(path) => (path, true),
        None => (text, false),
    };
    let nowhere = NOWHERE.iter().any(|start| path.starts_with(start));
    if path.starts_with(b"/") && !nowhere { Shown::Path(path, deleted) } else { Shown::Other }
}

/// Whether `word` is a name with or without a prefix: `SYNC`, `MS_SYNC`.
fn is_word(word: &[u8], name: &str) -> bool {
    let prefix = word.strip_suffix(name.as_bytes());
    prefix.is_some_and(|prefix| prefix.is_empty() || prefix.ends_with(b"_"))
}

/// Splits `name: value, …` at the colon.
fn named_value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = text.iter().position(|b| !(b.is_ascii_alphanumeric() || *b == b'_'))?;
    (end > 0).then_some(())?;
    Some((&text[..end], text[end..].strip_prefix(b": ")?))
}

/// Returns the end of the value that begins the text: at a comma before the next name.
fn value_end(text: &[u8]) -> usize {
    memchr::memmem::find_iter(text, b", ")
        .find(|at| named_value(&text[at + 2..]).is_some())
        .unwrap_or(text.len())
}

/// Parses a number at the start of a text; a negative one as the kernel does.
pub(super) fn number(text: &[u8], hex: bool) -> Option<u64> {
    let (radix, digits) = match text.strip_prefix(b"0x") {
        Some(digits) => (16, digits),
        None => (if hex { 16 } else { 10 }, text.strip_prefix(b"-").unwrap_or(text)),
    };
    let end = digits.iter().position(|b| !char::from(*b).is_digit(radix)).unwrap_or(digits.len());
    // A word such as `DENYWRITE` is no number.
    let ends = matches!(digits.get(end), None | Some(b'<' | b' ' | b'"'));
    let digits = std::str::from_utf8(&digits[..end]).ok().filter(|_| ends)?;
    let number = u64::from_str_radix(digits, radix).ok()?;
    Some(if text.starts_with(b"-") { number.wrapping_neg() } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order() {
        assert!(NAMES.is_sorted());
        assert_eq!((named(b"write"), named(b"writes")), (Some("write"), None));
    }

    #[test]
    fn arguments_are_split_at_their_names() {
        let parse = |text: &'static str, hex| Args::parse(text.as_bytes(), hex);
        let args = parse("dfd: 5</a, b: c>, filename: \"/x, y\", flags: WRONLY|0x10000", false);
        assert_eq!(args.path("filename"), Ok(&b"/x, y"[..]));
        assert_eq!(args.fd("dfd").map(|fd| fd.number), Ok(5));
        assert!(args.open_flags("flags").has(Flags::WRITABLE | Flags::DIRECTORY));
        assert!(matches!(args.at("dfd", "filename"), Ok(Path { dir: Dir::Fd(_), .. })));

        let args = parse("dfd: 0xffffff9c, filename: 0x7f \"/x\", count: 0x10, mode: 1b6", true);
        assert_eq!(args.path("filename"), Ok(&b"/x"[..]), "newer kernels show both");
        assert!(matches!(args.at("dfd", "filename"), Ok(Path { dir: Dir::Cwd(None), .. })));
        assert_eq!((args.number("count"), args.number("mode")), (Ok(16), Ok(0x1b6)));
        assert_eq!(args.number("none"), Ok(0), "perf leaves out what is 0");

        for (text, path) in [
            ("filename: /a b, flags: 3", Ok(&b"/a b"[..])),
            ("filename: 0x95212c50", Err(POINTER)),
            ("filename: \"/cut\"...", Err(POINTER)),
            ("filename: ", Err(POINTER)),
            ("", Err(POINTER)),
        ] {
            assert_eq!(parse(text, false).path("filename"), path, "{text}");
        }
        assert_eq!(parse("filename: 7ffd", true).path("filename"), Err(POINTER));
        assert_eq!(number(b"-100", false), Some(100_u64.wrapping_neg()));
        assert_eq!(number(b"DENYWRITE", false), None);
        assert!(is_word(b"MS_SYNC", "SYNC") && !is_word(b"MS_ASYNC", "SYNC"));
    }

    #[test]
    fn what_is_shown_of_a_descriptor_is_a_file_or_none() {
        for (text, expected) in [
            ("/a", Shown::Path(b"/a", false)),
            ("/a (deleted)", Shown::Path(b"/a", true)),
            ("pipe:[7]", Shown::Other),
            ("/memfd:x (deleted)", Shown::Other),
            ("anon_inode:[eventpoll]", Shown::Other),
        ] {
            assert_eq!(shown(text.as_bytes()), expected, "{text}");
        }
    }
}
