//! Translates system calls for the [`CallMachine`].

use super::{
    line::{Args, Descriptor, Lead, Outcome, descriptor, flag, has, is, items, number},
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
const RING: Done = Err(Skip::Benign("io_uring (its accesses are invisible to strace)"));
const UNPRINTED: Done =
    Err(Skip::Damage("libaio requests that strace did not print (io_submit with -e raw)"));

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

/// Parses `-1`, where a system call takes it for "from the current offset", and `NULL`.
fn place(arg: &[u8]) -> Result<Option<u64>, Skip> {
    match arg {
        b"-1" | b"NULL" => Ok(None),
        _ => int(arg.strip_prefix(b"[").unwrap_or(arg)).map(Some),
    }
}

/// `clone3(0x7f…, 88)`: the flags are in memory that `-e raw` does not print.
pub(super) fn is_unprinted_birth(name: &[u8], text: &[u8]) -> bool {
    name == b"clone3" && text.starts_with(b"0x")
}

pub(super) fn shares(name: &[u8], text: &[u8]) -> Shares {
    if is_unprinted_birth(name, text) {
        return Shares { files: true, fs: true, vm: true, thread: true };
    }
    let at = memchr::memmem::find(text, b"flags=").map_or(0, |at| at + b"flags=".len());
    let flags = &text[at..];
    Shares {
        files: flag(flags, "CLONE_FILES", 0x400),
        fs: flag(flags, "CLONE_FS", 0x200),
        vm: name == b"vfork" || flag(flags, "CLONE_VM", 0x100),
        thread: flag(flags, "CLONE_THREAD", 0x1_0000),
    }
}

/// Parses the flags of an open, words or a number.
pub(super) fn open_flags(text: &[u8]) -> Flags {
    match number(text) {
        Some(flags) => Flags::of_number(flags),
        None => Flags::parse(text),
    }
}

pub(super) fn is_birth(name: &[u8]) -> bool {
    matches!(name, b"clone" | b"clone2" | b"clone3" | b"fork" | b"vfork")
}

/// Whether a call reads, writes or syncs a file by its descriptor.
pub(super) fn is_access(name: &[u8]) -> bool {
    const ACCESSES: [&[u8]; 10] = [
        b"read",
        b"pread",
        b"write",
        b"pwrite",
        b"fsync",
        b"fdatasync",
        b"sync_file",
        b"sendfile",
        b"copy_file_range",
        b"io_submit",
    ];
    ACCESSES.iter().any(|start| name.starts_with(start)) && !name.starts_with(b"readlink")
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
        // `-e raw` prints an offset as two numbers.
        let flags = flags.map(|n| if args.len() == 6 { n + 1 } else { n });
        let adds = flags.filter(|_| write).map_or(Flags::default(), |n| write_flags(args.get(n)));
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
                let cloexec = flag(args.get(2), "O_CLOEXEC", 0x8_0000);
                self.with_fd(args, 0, |from| {
                    Ok(SystemCall::Dup { from, to: small(result)?, cloexec })
                })
            }
            b"fcntl" | b"fcntl64" => return Some(self.fcntl(args, result, shown)),
            b"close_range" => (|| {
                // The end is mostly ~0U.
                let ends = [int(args.get(0))?, int(args.get(1))?]
                    .map(|fd| i32::try_from(fd).unwrap_or(i32::MAX));
                let flags = args.get(2);
                let (cloexec, unshare) = (flag(flags, "CLOEXEC", 4), flag(flags, "UNSHARE", 2));
                self.call(SystemCall::CloseRange {
                    first: ends[0],
                    last: ends[1],
                    cloexec,
                    unshare,
                })
            })(),
            b"lseek" => self.with_fd(args, 0, |fd| {
                let end = is(args.get(2), "SEEK_END", 2);
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
                if !flag(args.get(flags), "RANGE_WRITE", 2) {
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
            b"ioctl" => {
                let cloexec = is(args.get(1), "FIOCLEX", 0x5451);
                if !cloexec && !is(args.get(1), "FIONCLEX", 0x5450) {
                    return None;
                }
                fd_number(args.get(0))
                    .and_then(|fd| self.call(SystemCall::SetCloexec { fd, cloexec }))
            }
            b"io_submit" => self.submit(args, result),
            b"pipe" | b"pipe2" => self.made(args.get(0), has(text, "CLOEXEC")),
            b"socketpair" => self.made(args.get(3), has(text, "CLOEXEC")),
            b"recvmsg" | b"recvmmsg" => self.received(text),
            b"recvfrom" | b"sendto" | b"sendmsg" | b"sendmmsg" | b"recv" | b"send" | b"tee"
            | b"vmsplice" => Err(NOT_STORAGE),
            _ => return None,
        })
    }

    fn fcntl(&mut self, args: &Args<'_>, result: u64, shown: &[u8]) -> Done {
        let command = |word, value| is(args.get(1), word, value);
        let flags = |text: &[u8]| {
            let Some(from) = memchr::memmem::find(text, b"O_") else { return open_flags(text) };
            let end = text[from..]
                .iter()
                .position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'_' | b'|')));
            Flags::parse(&text[from..end.map_or(text.len(), |end| from + end)])
        };
        let cloexec = command("F_DUPFD_CLOEXEC", 1030);
        if cloexec || command("F_DUPFD", 0) {
            self.with_fd(args, 0, |from| Ok(SystemCall::Dup { from, to: small(result)?, cloexec }))
        } else if command("F_GETFD", 1) || command("F_SETFD", 2) {
            let text = if command("F_SETFD", 2) { args.get(2) } else { shown };
            let cloexec = has(text, "FD_CLOEXEC") || number(text) == Some(1);
            self.call(SystemCall::SetCloexec { fd: fd_number(args.get(0))?, cloexec })
        } else if command("F_GETFL", 3) || command("F_SETFL", 4) {
            let flags = flags(if command("F_SETFL", 4) { args.get(2) } else { shown });
            self.with_fd(args, 0, |fd| Ok(SystemCall::SetFlags { fd, flags }))
        } else {
            OTHER
        }
    }

    /// Handles `io_submit(0x7f…, 2, [{aio_lio_opcode=IOCB_CMD_PWRITE, aio_fildes=9</f>, …}, …]) =
    /// 2`: each request counts when it is submitted, with the length that it asks for.
    fn submit(&mut self, args: &Args<'_>, submitted: u64) -> Done {
        let list = args.get(2);
        if !matches!(list.first(), Some(b'[' | b'{')) {
            return UNPRINTED;
        }
        let (mut all, mut left) = (OTHER, submitted);
        for request in items(&list[1..]).take(usize::try_from(submitted).unwrap_or(usize::MAX)) {
            let done = self.request(request);
            left -= 1;
            all = match (all, done) {
                (OTHER, done) | (Ok(()), done @ Err(Skip::Damage(_))) => done,
                (all, _) => all,
            };
        }
        if left > 0 { UNPRINTED } else { all }
    }

    /// Handles one request of libaio in any form: `{aio_data=0, aio_lio_opcode=IOCB_CMD_PREAD,
    /// aio_fildes=9, aio_buf=0x7f, aio_nbytes=512, aio_offset=0}`; strace 4 printed `{data=0,
    /// pread, fildes=9, …}` or `{pread, filedes:9, …}`.
    fn request(&mut self, request: &[u8]) -> Done {
        let fields = request.strip_prefix(b"{").ok_or(UNREADABLE)?;
        let (mut code, mut fd, mut offset, mut adds) = (&b""[..], None, None, Flags::default());
        let (mut bytes, mut vector) = (None, None);
        for field in items(fields) {
            let end = field.iter().position(|b| !(b.is_ascii_alphanumeric() || *b == b'_'));
            let (key, value) = match end.map(|end| (end, field[end])) {
                Some((end, b'=' | b':')) => (&field[..end], &field[end + 1..]),
                _ => (&b""[..], field),
            };
            match key.strip_prefix(b"aio_").unwrap_or(key) {
                b"lio_opcode" => code = value,
                b"fildes" | b"filedes" => fd = Some(own(value)?),
                b"nbytes" => bytes = Some(int(value)?),
                b"offset" => offset = Some(int(value)?),
                b"rw_flags" => adds = write_flags(value),
                b"buf" | b"iovec" | b"" if value.starts_with(b"[") => {
                    vector = Some(vector_bytes(value)?);
                }
                b"" if value[0].is_ascii_digit() => offset = Some(int(value)?),
                b"" => code = value,
                _ => {}
            }
        }
        let own = fd.ok_or(UNREADABLE)?;
        let fd = own.fd()?;
        let is_code = |words: [(&str, u64); 2]| {
            let word = code.strip_prefix(b"IOCB_CMD_").unwrap_or(code).to_ascii_lowercase();
            words.iter().any(|(name, value)| is(&word, name, *value))
        };
        let (at, len) = (offset.ok_or(UNREADABLE), vector.or(bytes).ok_or(UNREADABLE));
        let call = if is_code([("pread", 0), ("preadv", 7)]) {
            SystemCall::Read { fd, at: Some(at?), len: len? }
        } else if is_code([("pwrite", 1), ("pwritev", 8)]) {
            SystemCall::Write { fd, at: Some(at?), len: len?, flags: adds }
        } else if is_code([("fsync", 2), ("fdsync", 3)]) {
            let data_only = is_code([("fdsync", 3); 2]);
            SystemCall::Sync { fd, offset: 0, len: u64::MAX, data_only }
        } else {
            return OTHER;
        };
        self.machine.call(self.at_us, self.tid, call, self.out)
    }

    fn fallocate(&mut self, args: &Args<'_>) -> Done {
        let (mode, offset, len) = (args.get(1), int(args.get(2))?, int(args.get(3))?);
        if flag(mode, "COLLAPSE_RANGE", 8) || flag(mode, "INSERT_RANGE", 0x20) {
            return Err(Skip::Damage("fallocate that shifts a file's bytes"));
        }
        if flag(mode, "PUNCH_HOLE", 2) || flag(mode, "ZERO_RANGE", 0x10) {
            self.with_fd(args, 0, |fd| Ok(SystemCall::Punch { fd, offset, len }))?;
        }
        match flag(mode, "KEEP_SIZE", 1) {
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
        // `-X raw` prints the type as a number.
        if (has(buffer, "mode=S_IFREG") || has(buffer, "mode=0100"))
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
            b"msync" if flag(args.get(2), "MS_SYNC", 4) => (|| {
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
                    files: flag(words, "CLONE_FILES", 0x400),
                    fs: flag(words, "CLONE_FS", 0x200),
                })
                .and(OTHER)
            }
            b"io_uring_enter" => RING,
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

/// Sums the lengths of `[{iov_base=…, iov_len=4096}, …]`, or of `[{"…", 4096}, …]` as strace 4
/// prints it.
fn vector_bytes(list: &[u8]) -> Result<u64, Skip> {
    let mut sum = 0u64;
    for part in items(&list[1..]) {
        let len = items(part.strip_prefix(b"{").ok_or(UNREADABLE)?).last().unwrap_or_default();
        sum = sum.saturating_add(int(len.strip_prefix(b"iov_len=").unwrap_or(len))?);
    }
    Ok(sum)
}

/// Parses the flags of one write: `RWF_DSYNC|RWF_APPEND`.
fn write_flags(flags: &[u8]) -> Flags {
    let mut adds = Flags::default();
    if flag(flags, "RWF_SYNC", 4) || flag(flags, "RWF_DSYNC", 2) {
        adds = adds | Flags::SYNC;
    }
    if flag(flags, "RWF_APPEND", 0x10) {
        adds = adds | Flags::APPEND;
    }
    adds
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
