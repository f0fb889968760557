//! Translates system calls for the [`CallMachine`].

use super::{
    line::{Args, Descriptor, Lead, Outcome, descriptor, number},
    names::removed,
};
use crate::{
    events::Skip,
    process::{
        CallMachine, Done, Fd, Flags, NOT_STORAGE, Out, Pin, Seen, Shares, Shown, SystemCall,
        Target,
    },
};

pub(super) const UNREADABLE: Skip = Skip::Damage("call whose arguments cannot be read");
const OTHER: Done = Err(Skip::Benign("system call that moves no file data"));
const FAILED: Done = Err(Skip::Benign("failed call"));
const NO_RESULT: Done = Err(Skip::Benign("call that did not return"));
pub(super) const STAT: Done = Err(Skip::Benign("stat, access"));
const ADVICE: Done = Err(Skip::Benign("advice to the kernel (fadvise, readahead, madvise)"));
const RING: Done = Err(Skip::Benign("io_uring or libaio (their accesses are invisible to strace)"));

/// State of a call between its entry and its exit.
#[derive(Debug, Default)]
pub(super) struct Entered {
    pub(super) pin: Option<Pin>,
    pub(super) seen: Option<Seen>,
    /// It took effect on entry.
    done: bool,
    renaming: bool,
    pub(super) birth: bool,
}

/// One call of a thread, with its time.
pub(super) struct Caller<'a> {
    pub(super) machine: &'a mut CallMachine,
    pub(super) out: &'a mut Out,
    pub(super) at_us: u64,
    pub(super) tid: u32,
    /// State from [`Caller::enter`], for a call that is split over two lines.
    pub(super) entered: Entered,
}

pub(super) fn fd<'a>(number: i32, shown: Option<&'a Lead<'_>>, pin: Option<Pin>) -> Fd<'a> {
    let shown = shown.map(|lead| match lead {
        Lead::Path(path, deleted) => Shown::Path(path, *deleted),
        Lead::Other => Shown::Other,
    });
    Fd { number, shown, pin }
}

impl<'a> Descriptor<'a> {
    pub(super) fn fd(&self) -> Result<Fd<'_>, Skip> {
        Ok(fd(self.number.ok_or(UNREADABLE)?, self.shown.as_ref(), None))
    }
}

pub(super) fn own(arg: &[u8]) -> Result<Descriptor<'_>, Skip> {
    descriptor(arg).ok_or(UNREADABLE)
}

pub(super) fn int(arg: &[u8]) -> Result<u64, Skip> {
    number(arg).ok_or(UNREADABLE)
}

fn fd_number(arg: &[u8]) -> Result<i32, Skip> {
    own(arg)?.number.ok_or(UNREADABLE)
}

pub(super) fn has(text: &[u8], word: &str) -> bool {
    memchr::memmem::find(text, word.as_bytes()).is_some()
}

/// Parses `-1`, where a system call takes it for "from the current offset", and `NULL`.
fn place(arg: &[u8]) -> Result<Option<u64>, Skip> {
    match arg {
        b"-1" | b"NULL" => Ok(None),
        _ => int(arg.strip_prefix(b"[").unwrap_or(arg)).map(Some),
    }
}

pub(super) fn shares(name: &[u8], text: &[u8]) -> Shares {
    Shares {
        files: has(text, "CLONE_FILES"),
        fs: has(text, "CLONE_FS"),
        vm: name == b"vfork" || has(text, "CLONE_VM"),
        thread: has(text, "CLONE_THREAD"),
    }
}

pub(super) fn is_birth(name: &[u8]) -> bool {
    matches!(name, b"clone" | b"clone2" | b"clone3" | b"fork" | b"vfork")
}

fn is_rename(name: &[u8]) -> bool {
    matches!(name, b"rename" | b"renameat" | b"renameat2")
}

impl Caller<'_> {
    pub(super) fn call(&mut self, call: SystemCall<'_>) -> Done {
        self.machine.call(self.at_us, self.tid, call, self.out)
    }

    /// Enters a call whose exit comes on a later line, and keeps the state that has to be taken on
    /// entry. `text` is all after the `(`.
    pub(super) fn enter(&mut self, name: &[u8], text: &[u8]) -> Entered {
        let mut entered = Entered::default();
        match name {
            _ if is_birth(name) => {
                entered.birth = true;
                let _ = self.call(SystemCall::ForkBegins { shares: shares(name, text) });
            }
            _ if is_rename(name) => {
                self.machine.renaming(true);
                entered.renaming = true;
            }
            b"close" => {
                // The kernel frees the number on entry: another thread may get it before this call
                // returns.
                entered.done = self.number_closed(text).is_ok();
            }
            b"unlink" | b"unlinkat" => {
                if let Some(at) = Args::parse(text).and_then(|args| removed(name, &args).ok()) {
                    entered.seen = self.machine.seen(self.at_us, self.tid, at.path(), self.out);
                }
            }
            b"read" | b"pread64" | b"readv" | b"preadv" | b"preadv2" | b"write" | b"pwrite64"
            | b"writev" | b"pwritev" | b"pwritev2" | b"fsync" | b"fdatasync" | b"lseek"
            | b"ftruncate" | b"fallocate" | b"sync_file_range" | b"dup" => {
                if let Some(at) = descriptor(text)
                    && let Ok(fd) = at.fd()
                {
                    entered.pin = self.machine.pin(self.at_us, self.tid, fd, self.out);
                }
            }
            _ => {}
        }
        entered
    }

    fn number_closed(&mut self, text: &[u8]) -> Done {
        let fd = fd_number(text.trim_ascii())?;
        self.call(SystemCall::Close { fd })
    }

    /// Ends the call, whatever its effect: names in the trace are reliable again.
    pub(super) fn settle(&mut self) {
        if std::mem::take(&mut self.entered.renaming) {
            self.machine.renaming(false);
        }
    }

    /// Releases the descriptor that the call held.
    pub(super) fn leave(&mut self) {
        self.settle();
        if let Some(pin) = self.entered.pin.take() {
            self.machine.unpin(pin, self.out);
        }
    }

    /// Handles a whole call. `text`: all of its arguments, for details that are searched for and
    /// not parsed.
    pub(super) fn complete(
        &mut self,
        name: &[u8],
        args: &Args<'_>,
        outcome: Outcome<'_>,
        text: &[u8],
    ) -> Done {
        let (result, shown) = match outcome {
            Outcome::Done(result, shown) => (result, shown),
            Outcome::Open if name == b"exit_group" => return self.call(SystemCall::ExitGroup),
            Outcome::Open if name == b"exit" => return self.call(SystemCall::Exit),
            Outcome::Failed | Outcome::Open if is_birth(name) => {
                return self
                    .call(SystemCall::ForkEnds { child: None, shares: Shares::default() })
                    .and(FAILED);
            }
            Outcome::Failed => return FAILED,
            Outcome::Open => return NO_RESULT,
        };
        if let Some(done) = self.transfer(name, args, result) {
            return done;
        }
        if let Some(done) = self.descriptors(name, args, result, shown, text) {
            return done;
        }
        if let Some(done) = self.names(name, args, shown, text) {
            return done;
        }
        if let Some(done) = self.memory(name, args, result) {
            return done;
        }
        self.rest(name, args, result, shown, text)
    }

    /// Returns the descriptor in argument `n`; the first is held since the entry of the call.
    fn with_fd(
        &mut self,
        args: &Args<'_>,
        n: usize,
        make: impl FnOnce(Fd<'_>) -> Result<SystemCall<'_>, Skip>,
    ) -> Done {
        let own = own(args.get(n))?;
        let pin = self.entered.pin.filter(|_| n == 0);
        let fd = Fd { pin, ..own.fd()? };
        self.machine.call(self.at_us, self.tid, make(fd)?, self.out)
    }

    fn transfer(&mut self, name: &[u8], args: &Args<'_>, len: u64) -> Option<Done> {
        let read = |args: &Args<'_>, at: Option<usize>| at.map_or(Ok(None), |n| place(args.get(n)));
        let (write, at, flags) = match name {
            b"read" | b"readv" => (false, None, None),
            b"pread64" | b"pread" | b"preadv" => (false, Some(3), None),
            b"preadv2" => (false, Some(3), Some(4)),
            b"write" | b"writev" => (true, None, None),
            b"pwrite64" | b"pwrite" | b"pwritev" => (true, Some(3), None),
            b"pwritev2" => (true, Some(3), Some(4)),
            _ => return None,
        };
        let mut adds = Flags::default();
        if let Some(n) = flags.filter(|_| write) {
            let words = args.get(n);
            if has(words, "RWF_SYNC") || has(words, "RWF_DSYNC") {
                adds = adds | Flags::SYNC;
            }
            if has(words, "RWF_APPEND") {
                adds = adds | Flags::APPEND;
            }
        }
        Some(self.with_fd(args, 0, |fd| {
            let at = read(args, at)?;
            Ok(match write {
                true => SystemCall::Write { fd, at, len, flags: adds },
                false => SystemCall::Read { fd, at, len },
            })
        }))
    }

    fn descriptors(
        &mut self,
        name: &[u8],
        args: &Args<'_>,
        result: u64,
        shown: &[u8],
        text: &[u8],
    ) -> Option<Done> {
        Some(match name {
            b"close" if self.entered.done => Ok(()),
            b"close" => self.number_closed(args.get(0)),
            b"dup" | b"dup2" | b"dup3" => {
                let cloexec = has(args.get(2), "O_CLOEXEC");
                self.with_fd(args, 0, |from| {
                    Ok(SystemCall::Dup { from, to: small(result)?, cloexec })
                })
            }
            b"fcntl" | b"fcntl64" => return Some(self.fcntl(args, result, shown)),
            b"close_range" => (|| {
                // The end is mostly ~0U.
                let ends = [int(args.get(0))?, int(args.get(1))?]
                    .map(|fd| i32::try_from(fd).unwrap_or(i32::MAX));
                let (cloexec, unshare) = (has(args.get(2), "CLOEXEC"), has(args.get(2), "UNSHARE"));
                self.call(SystemCall::CloseRange {
                    first: ends[0],
                    last: ends[1],
                    cloexec,
                    unshare,
                })
            })(),
            b"lseek" => self.with_fd(args, 0, |fd| {
                let end = args.get(2) == b"SEEK_END";
                let size =
                    number(args.get(1)).filter(|_| end).and_then(|past| result.checked_sub(past));
                Ok(SystemCall::Seek { fd, to: result, size })
            }),
            b"_llseek" => self.with_fd(args, 0, |fd| {
                let to = place(args.get(2))?.ok_or(UNREADABLE)?;
                let end = args.get(3) == b"SEEK_END";
                Ok(SystemCall::Seek {
                    fd,
                    to,
                    size: number(args.get(1)).filter(|_| end).and_then(|n| to.checked_sub(n)),
                })
            }),
            b"fsync" | b"fdatasync" => self.with_fd(args, 0, |fd| {
                Ok(SystemCall::Sync {
                    fd,
                    offset: 0,
                    len: u64::MAX,
                    data_only: name == b"fdatasync",
                })
            }),
            b"sync" | b"syncfs" => self.call(SystemCall::SyncAll),
            b"sync_file_range" | b"sync_file_range2" => {
                let flags = if name == b"sync_file_range" { 3 } else { 1 };
                let (at, n) = if flags == 3 { (1, 2) } else { (2, 3) };
                if !has(args.get(flags), "RANGE_WRITE") {
                    return Some(ADVICE);
                }
                self.with_fd(args, 0, |fd| {
                    let (offset, len) = (int(args.get(at))?, int(args.get(n))?);
                    let len = if len == 0 { u64::MAX } else { len };
                    Ok(SystemCall::Sync { fd, offset, len, data_only: true })
                })
            }
            b"ftruncate" | b"ftruncate64" => self.with_fd(args, 0, |fd| {
                Ok(SystemCall::Truncate { target: Target::Fd(fd), size: int(args.get(1))? })
            }),
            b"fallocate" => self.fallocate(args),
            b"copy_file_range" | b"splice" => self.copy(args, [0, 1, 2, 3], result),
            b"sendfile" | b"sendfile64" => self.copy(args, [1, 2, 0, 9], result),
            b"fchdir" => {
                self.with_fd(args, 0, |fd| Ok(SystemCall::Chdir { target: Target::Fd(fd) }))
            }
            b"fstat" | b"fstat64" => self.stat(args.get(1), |caller, size| {
                caller.with_fd(args, 0, |fd| Ok(SystemCall::Size { target: Target::Fd(fd), size }))
            }),
            b"ioctl" if matches!(args.get(1), b"FIOCLEX" | b"FIONCLEX") => fd_number(args.get(0))
                .and_then(|fd| {
                    self.call(SystemCall::SetCloexec { fd, cloexec: args.get(1) == b"FIOCLEX" })
                }),
            b"pipe" | b"pipe2" => self.made(args.get(0), has(text, "CLOEXEC")),
            b"socketpair" => self.made(args.get(3), has(text, "CLOEXEC")),
            b"recvmsg" | b"recvmmsg" => self.received(text),
            b"recvfrom" | b"sendto" | b"sendmsg" | b"sendmmsg" | b"recv" | b"send" | b"tee"
            | b"vmsplice" => Err(NOT_STORAGE),
            _ => return None,
        })
    }

    fn fcntl(&mut self, args: &Args<'_>, result: u64, shown: &[u8]) -> Done {
        let command = args.get(1);
        let flags = |text: &[u8]| {
            let from = memchr::memmem::find(text, b"O_").unwrap_or(text.len());
            let end = text[from..]
                .iter()
                .position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'_' | b'|')));
            Flags::parse(&text[from..end.map_or(text.len(), |end| from + end)])
        };
        match command {
            b"F_DUPFD" | b"F_DUPFD_CLOEXEC" => self.with_fd(args, 0, |from| {
                Ok(SystemCall::Dup {
                    from,
                    to: small(result)?,
                    cloexec: command == b"F_DUPFD_CLOEXEC",
                })
            }),
            b"F_SETFD" | b"F_GETFD" => {
                let text = if command == b"F_SETFD" { args.get(2) } else { shown };
                self.call(SystemCall::SetCloexec {
                    fd: fd_number(args.get(0))?,
                    cloexec: has(text, "FD_CLOEXEC"),
                })
            }
            b"F_SETFL" => self
                .with_fd(args, 0, |fd| Ok(SystemCall::SetFlags { fd, flags: flags(args.get(2)) })),
            b"F_GETFL" => {
                self.with_fd(args, 0, |fd| Ok(SystemCall::SetFlags { fd, flags: flags(shown) }))
            }
            _ => OTHER,
        }
    }

    fn fallocate(&mut self, args: &Args<'_>) -> Done {
        let (mode, offset, len) = (args.get(1), int(args.get(2))?, int(args.get(3))?);
        if has(mode, "COLLAPSE_RANGE") || has(mode, "INSERT_RANGE") {
            return Err(Skip::Damage("fallocate that shifts a file's bytes"));
        }
        if has(mode, "PUNCH_HOLE") || has(mode, "ZERO_RANGE") {
            self.with_fd(args, 0, |fd| Ok(SystemCall::Punch { fd, offset, len }))?;
        }
        match has(mode, "KEEP_SIZE") {
            true => Ok(()),
            false => self.with_fd(args, 0, |fd| {
                Ok(SystemCall::Allocate { fd, end: offset.saturating_add(len) })
            }),
        }
    }

    /// `order`: positions of the arguments source, source offset, destination, destination offset.
    fn copy(&mut self, args: &Args<'_>, order: [usize; 4], len: u64) -> Done {
        let [from, from_at, to, to_at] = order.map(|n| args.get(n));
        let (from, to) = (own(from)?, own(to)?);
        let at = |arg: &[u8]| if arg.is_empty() { Ok(None) } else { place(arg) };
        let (from_at, to_at) = (at(from_at)?, at(to_at)?);
        let call = SystemCall::Copy { from: from.fd()?, from_at, to: to.fd()?, to_at, len };
        self.machine.call(self.at_us, self.tid, call, self.out)
    }

    /// New descriptors that refer to no storage, or to the shown targets: `[3<pipe:[7]>,
    /// 4<pipe:[7]>]`.
    fn made(&mut self, list: &[u8], cloexec: bool) -> Done {
        if list == b"[...]" {
            // `-s 0` omits the numbers.
            return OTHER;
        }
        let list = list.strip_prefix(b"[").ok_or(UNREADABLE)?;
        let list = list.strip_suffix(b"]").unwrap_or(list);
        let args = Args::parse(list).ok_or(UNREADABLE)?;
        for n in 0..2 {
            let made = own(args.get(n))?;
            self.machine.call(
                self.at_us,
                self.tid,
                SystemCall::Made { fd: made.fd()?, cloexec },
                self.out,
            )?;
        }
        OTHER
    }

    /// Descriptors that came through a socket. Without a shown target, they are unknown.
    fn received(&mut self, text: &[u8]) -> Done {
        let mut rest = text;
        while let Some(at) = memchr::memmem::find(rest, b"SCM_RIGHTS, cmsg_data=[") {
            rest = &rest[at + b"SCM_RIGHTS, cmsg_data=[".len()..];
            let Some(args) = Args::parse_list(rest) else { break };
            for n in 0..args.len() {
                let Some(fd) = descriptor(args.get(n)) else { break };
                let (Some(number), cloexec) = (fd.number, has(text, "MSG_CMSG_CLOEXEC")) else {
                    break;
                };
                let _ = match fd.shown {
                    Some(_) => self.machine.call(
                        self.at_us,
                        self.tid,
                        SystemCall::Made { fd: fd.fd()?, cloexec },
                        self.out,
                    ),
                    None => self.call(SystemCall::Close { fd: number }),
                };
            }
        }
        Err(NOT_STORAGE)
    }

    pub(super) fn stat(
        &mut self,
        buffer: &[u8],
        then: impl FnOnce(&mut Self, u64) -> Done,
    ) -> Done {
        if has(buffer, "mode=S_IFREG")
            && let Some(at) = memchr::memmem::find(buffer, b"_size=")
            && let Some(size) = number(&buffer[at + b"_size=".len()..])
        {
            // A failed parse loses nothing: a stat only adds information.
            let _ = then(self, size);
        }
        STAT
    }

    fn memory(&mut self, name: &[u8], args: &Args<'_>, result: u64) -> Option<Done> {
        Some(match name {
            b"mmap" | b"mmap2" => (|| {
                let (len, offset) = (int(args.get(1))?, number(args.get(5)).unwrap_or(0));
                let own = match args.get(4) {
                    b"-1" | b"0xffffffff" => None,
                    arg => Some(own(arg)?),
                };
                let fd = own.as_ref().map(Descriptor::fd).transpose()?;
                self.machine.call(
                    self.at_us,
                    self.tid,
                    SystemCall::Map { fd, start: result, len, offset },
                    self.out,
                )
            })()
            .and(OTHER),
            b"munmap" => (|| {
                self.call(SystemCall::Unmap { start: int(args.get(0))?, len: int(args.get(1))? })
            })()
            .and(OTHER),
            b"mremap" => (|| {
                let (from, from_len, to_len) =
                    (int(args.get(0))?, int(args.get(1))?, int(args.get(2))?);
                self.call(SystemCall::Remap { from, from_len, to: result, to_len })
            })()
            .and(OTHER),
            b"msync" if has(args.get(2), "MS_SYNC") => (|| {
                self.call(SystemCall::Msync { start: int(args.get(0))?, len: int(args.get(1))? })
            })(),
            b"msync" | b"madvise" | b"fadvise64" | b"fadvise64_64" | b"readahead" => ADVICE,
            _ => return None,
        })
    }

    fn rest(
        &mut self,
        name: &[u8],
        args: &Args<'_>,
        result: u64,
        shown: &[u8],
        text: &[u8],
    ) -> Done {
        match name {
            b"unshare" => {
                let words = args.get(0);
                self.call(SystemCall::Unshare {
                    files: has(words, "CLONE_FILES"),
                    fs: has(words, "CLONE_FS"),
                })
                .and(OTHER)
            }
            b"io_uring_enter" | b"io_submit" | b"io_getevents" | b"io_pgetevents" => RING,
            _ if makes_a_descriptor(name) || shown_descriptor(shown) => {
                let made = own(shown)?;
                let fd = Fd { number: small(result)?, ..made.fd()? };
                let cloexec = has(text, "CLOEXEC");
                self.machine
                    .call(self.at_us, self.tid, SystemCall::Made { fd, cloexec }, self.out)
                    .and(OTHER)
            }
            _ => OTHER,
        }
    }
}

fn small(result: u64) -> Result<i32, Skip> {
    i32::try_from(result).map_err(|_| UNREADABLE)
}

/// Handles `= 7<anon_inode:[eventpoll]>`: the result of any such call is a descriptor.
fn shown_descriptor(shown: &[u8]) -> bool {
    let end = shown.iter().position(|b| !b.is_ascii_digit()).unwrap_or(shown.len());
    end > 0 && shown.get(end) == Some(&b'<')
}

/// Calls that return a descriptor of no storage, for traces that do not show its target.
fn makes_a_descriptor(name: &[u8]) -> bool {
    const NAMES: [&[u8]; 27] = [
        b"socket",
        b"accept",
        b"accept4",
        b"epoll_create",
        b"epoll_create1",
        b"eventfd",
        b"eventfd2",
        b"timerfd_create",
        b"signalfd",
        b"signalfd4",
        b"inotify_init",
        b"inotify_init1",
        b"fanotify_init",
        b"memfd_create",
        b"memfd_secret",
        b"pidfd_open",
        b"userfaultfd",
        b"perf_event_open",
        b"io_uring_setup",
        b"landlock_create_ruleset",
        b"mq_open",
        b"fsopen",
        b"fspick",
        b"fsmount",
        b"open_tree",
        b"pidfd_getfd",
        b"bpf",
    ];
    NAMES.contains(&name)
}
