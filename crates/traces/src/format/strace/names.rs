//! Calls on names, and calls that create and end processes.

use super::{
    calls::{
        Caller, STAT, UNREADABLE, fd, int, is_birth, is_unprinted_birth, open_flags, own, shares,
    },
    line::{Args, Descriptor, Lead, flag, number, string},
};
use crate::{
    events::Skip,
    process::{Dir, Done, Flags, NOT_STORAGE, Path, SystemCall, Target},
};
use std::borrow::Cow;

const UNPRINTED: Skip = Skip::Benign("call with a path that strace did not print (-e raw)");

/// Parses a mode or mask in strace's form: `0644`, or `0x1a4` with `-e raw`.
fn octal(text: &[u8]) -> Option<u32> {
    if text.starts_with(b"0x") {
        return u32::try_from(number(text)?).ok();
    }
    let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    u32::from_str_radix(std::str::from_utf8(&text[..end]).ok()?, 8).ok()
}

/// A path and the directory argument before it.
pub(super) struct At<'a> {
    dir: Option<Descriptor<'a>>,
    path: Cow<'a, [u8]>,
}

impl At<'_> {
    pub(super) fn path(&self) -> Path<'_> {
        let dir = match &self.dir {
            None => Dir::Cwd(None),
            Some(Descriptor { number: None, shown }) => Dir::Cwd(match shown {
                Some(Lead::Path(path, false)) => Some(path),
                _ => None,
            }),
            Some(Descriptor { number: Some(number), shown }) => {
                Dir::Fd(fd(*number, shown.as_ref(), None))
            }
        };
        Path { dir, path: &self.path }
    }

    /// An empty path (`AT_EMPTY_PATH`) denotes the directory argument itself.
    fn target(&self) -> Target<'_> {
        match self.path() {
            Path { dir: Dir::Fd(fd), path: b"" } => Target::Fd(fd),
            path => Target::Path(path),
        }
    }
}

impl Caller<'_> {
    pub(super) fn names(
        &mut self,
        name: &[u8],
        args: &Args<'_>,
        shown: &[u8],
        text: &[u8],
    ) -> Option<Done> {
        Some(match name {
            b"open" | b"openat" | b"openat2" | b"creat" => self.open(name, args, shown),
            b"stat" | b"stat64" | b"lstat" | b"lstat64" => {
                self.stat(args.get(1), |caller, size| {
                    let at = at(args, None, 0)?;
                    caller.call(SystemCall::Size { target: at.target(), size })
                })
            }
            b"newfstatat" | b"fstatat64" => self.stat(args.get(2), |caller, size| {
                let at = at(args, Some(0), 1)?;
                caller.call(SystemCall::Size { target: at.target(), size })
            }),
            b"statx" => self.stat(args.get(4), |caller, size| {
                let at = at(args, Some(0), 1)?;
                caller.call(SystemCall::Size { target: at.target(), size })
            }),
            b"access" | b"faccessat" | b"faccessat2" | b"readlink" | b"readlinkat" => STAT,
            b"truncate" | b"truncate64" => (|| {
                let at = at(args, None, 0)?;
                self.call(SystemCall::Truncate { target: at.target(), size: int(args.get(1))? })
            })(),
            b"rename" => self.rename(args, [None, None], [0, 1], false),
            b"renameat" => self.rename(args, [Some(0), Some(2)], [1, 3], false),
            b"renameat2" => self.rename(
                args,
                [Some(0), Some(2)],
                [1, 3],
                flag(args.get(4), "RENAME_EXCHANGE", 2),
            ),
            b"link" => self.link(args, [None, None], [0, 1]),
            b"linkat" => self.link(args, [Some(0), Some(2)], [1, 3]),
            b"symlink" => self.symlink(args, None, 1),
            b"symlinkat" => self.symlink(args, Some(1), 2),
            b"unlink" | b"unlinkat" | b"rmdir" => (|| {
                let at = removed(name, args)?;
                let seen = self.entered.seen;
                self.call(SystemCall::Unlink { path: at.path(), seen })
            })(),
            b"mkdir" | b"mkdirat" => (|| {
                let at = if name == b"mkdir" { at(args, None, 0)? } else { at(args, Some(0), 1)? };
                self.call(SystemCall::Mkdir { path: at.path() })
            })(),
            b"mknod" | b"mknodat" => (|| {
                let at = if name == b"mknod" { at(args, None, 0)? } else { at(args, Some(0), 1)? };
                let words = args.get(if name == b"mknod" { 1 } else { 2 });
                // `S_IFREG|0600`, or `0100600` with `-X raw`; other types are no storage.
                let mode =
                    octal(words.strip_prefix(b"S_IFREG|").unwrap_or(words)).ok_or(NOT_STORAGE)?;
                if !matches!(mode >> 12, 0 | 8) {
                    return Err(NOT_STORAGE);
                }
                self.call(SystemCall::MakeFile { path: at.path(), mode: Some(mode & 0o7777) })
            })(),
            b"umask" => match octal(args.get(0)) {
                Some(mask) => self.call(SystemCall::Umask { mask }),
                None => Err(UNREADABLE),
            },
            b"chdir" => at(args, None, 0)
                .and_then(|at| self.call(SystemCall::Chdir { target: at.target() })),
            b"chroot" => {
                at(args, None, 0).and_then(|at| self.call(SystemCall::Chroot { path: at.path() }))
            }
            b"getcwd" => match string(args.get(0)) {
                Some(path) => self.call(SystemCall::Cwd { path: &path }),
                None => Err(UNREADABLE),
            },
            b"execve" | b"execveat" => {
                let path = args.get(usize::from(name == b"execveat"));
                let path = string(path).unwrap_or_default();
                // A program that runs itself again, as Chromium does, keeps its name.
                let base = match path.starts_with(b"/proc/") && path.ends_with(b"/exe") {
                    true => &[][..],
                    false => path.rsplit(|&b| b == b'/').next().unwrap_or_default(),
                };
                self.call(SystemCall::Exec { name: &String::from_utf8_lossy(base) })
            }
            _ if is_birth(name) => return Some(self.birth(name, shown, text)),
            _ => return None,
        })
    }

    fn birth(&mut self, name: &[u8], shown: &[u8], text: &[u8]) -> Done {
        // `5 /* 4711 in strace's PID NS */`: the lines of the child carry the second number.
        if is_unprinted_birth(name, text) {
            self.out.note("clone3 whose flags strace did not print (-e raw): taken for a thread");
        }
        let outer = memchr::memmem::find(shown, b"/* ").and_then(|at| number(&shown[at + 3..]));
        let child = outer.or(number(shown)).and_then(|tid| u32::try_from(tid).ok());
        self.call(SystemCall::ForkEnds { child, shares: shares(name, text) })
    }

    fn open(&mut self, name: &[u8], args: &Args<'_>, shown: &[u8]) -> Done {
        let (dir, path) = if name.starts_with(b"openat") { (Some(0), 1) } else { (None, 0) };
        let words = args.get(path + 1);
        let flags = match name {
            b"creat" => Flags::WRITABLE | Flags::CREATE | Flags::TRUNCATE,
            // {flags=O_RDWR|O_CREAT, mode=0600, resolve=0}
            b"openat2" => {
                let words = words.strip_prefix(b"{flags=").ok_or(UNREADABLE)?;
                open_flags(words.split(|&b| b == b',' || b == b'}').next().unwrap_or_default())
            }
            _ => open_flags(words),
        };
        let mode = match name {
            b"openat2" => {
                memchr::memmem::find(words, b"mode=").and_then(|at| octal(&words[at + 5..]))
            }
            b"creat" => octal(words),
            _ => octal(args.get(path + 2)),
        };
        let made = own(shown)?;
        if args.get(path).starts_with(b"0x") {
            self.out.note("open with a path that strace did not print (-e raw): a file of its own");
            let fd = made.number.ok_or(UNREADABLE)?;
            return self.call(SystemCall::OpenNameless { flags, fd });
        }
        let at = at(args, dir, path)?;
        let call = SystemCall::Open { path: at.path(), flags, mode, fd: made.fd()? };
        self.machine.call(self.at_us, self.tid, call, self.out)
    }

    fn rename(
        &mut self,
        args: &Args<'_>,
        dirs: [Option<usize>; 2],
        paths: [usize; 2],
        exchange: bool,
    ) -> Done {
        let (from, to) = (at(args, dirs[0], paths[0])?, at(args, dirs[1], paths[1])?);
        self.call(SystemCall::Rename { from: from.path(), to: to.path(), exchange })
    }

    fn link(&mut self, args: &Args<'_>, dirs: [Option<usize>; 2], paths: [usize; 2]) -> Done {
        let (from, to) = (at(args, dirs[0], paths[0])?, at(args, dirs[1], paths[1])?);
        self.call(SystemCall::Link { from: from.target(), to: to.path() })
    }

    fn symlink(&mut self, args: &Args<'_>, dir: Option<usize>, path: usize) -> Done {
        let at = at(args, dir, path)?;
        let target = string(args.get(0)).ok_or(UNREADABLE)?;
        self.call(SystemCall::Symlink { target: &target, path: at.path() })
    }
}

fn at<'a>(args: &Args<'a>, dir: Option<usize>, path: usize) -> Result<At<'a>, Skip> {
    let dir = dir.map(|n| own(args.get(n))).transpose()?;
    let path = args.get(path);
    let unread = if path.starts_with(b"0x") { UNPRINTED } else { UNREADABLE };
    Ok(At { dir, path: string(path).ok_or(unread)? })
}

pub(super) fn removed<'a>(name: &[u8], args: &Args<'a>) -> Result<At<'a>, Skip> {
    if name == b"unlinkat" { at(args, Some(0), 1) } else { at(args, None, 0) }
}
