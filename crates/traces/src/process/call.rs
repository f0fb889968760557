//! The input of a [`CallMachine`](super::Machine): system calls that succeeded, with their results.

use super::Shares;
use std::ops::BitOr;

/// The flags of an open; `O_*` as bits of our own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub(super) u16);

#[allow(missing_docs)]
impl Flags {
    pub const WRITABLE: Self = Self(1);
    pub const APPEND: Self = Self(1 << 1);
    /// `O_SYNC` or `O_DSYNC`.
    pub const SYNC: Self = Self(1 << 2);
    pub const DIRECT: Self = Self(1 << 3);
    pub const CREATE: Self = Self(1 << 4);
    pub const EXCLUSIVE: Self = Self(1 << 5);
    pub const TRUNCATE: Self = Self(1 << 6);
    pub const PATH: Self = Self(1 << 7);
    pub const NOFOLLOW: Self = Self(1 << 8);
    pub const TMPFILE: Self = Self(1 << 9);
    pub const CLOEXEC: Self = Self(1 << 10);
    pub const DIRECTORY: Self = Self(1 << 11);
    pub(super) const CHANGEABLE: Self = Self(Self::APPEND.0 | Self::DIRECT.0);

    /// Returns whether all of `flags` are set.
    pub fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }
}

impl Flags {
    /// Reads text such as `O_WRONLY|O_CREAT`, and ignores unknown flags.
    pub fn parse(text: &[u8]) -> Self {
        let mut flags = Self::default();
        for word in text.split(|&b| b == b'|') {
            flags = flags
                | match word {
                    b"O_WRONLY" | b"O_RDWR" => Self::WRITABLE,
                    b"O_APPEND" => Self::APPEND,
                    b"O_SYNC" | b"O_DSYNC" | b"__O_SYNC" => Self::SYNC,
                    b"O_DIRECT" => Self::DIRECT,
                    b"O_CREAT" => Self::CREATE,
                    b"O_EXCL" => Self::EXCLUSIVE,
                    b"O_TRUNC" => Self::TRUNCATE,
                    b"O_PATH" => Self::PATH,
                    b"O_NOFOLLOW" => Self::NOFOLLOW,
                    b"O_TMPFILE" | b"__O_TMPFILE" => Self::TMPFILE,
                    b"O_CLOEXEC" => Self::CLOEXEC,
                    b"O_DIRECTORY" => Self::DIRECTORY,
                    _ => Self::default(),
                };
        }
        flags
    }

    /// Reads the number of Linux on x86, of which Arm has some bits in other places.
    pub fn of_number(number: u64) -> Self {
        const BITS: [(u64, Flags); 11] = [
            (0x40, Flags::CREATE),
            (0x80, Flags::EXCLUSIVE),
            (0x200, Flags::TRUNCATE),
            (0x400, Flags::APPEND),
            (0x1000, Flags::SYNC),
            (0x4000, Flags::DIRECT),
            (0x1_0000, Flags::DIRECTORY),
            (0x2_0000, Flags::NOFOLLOW),
            (0x8_0000, Flags::CLOEXEC),
            (0x20_0000, Flags::PATH),
            (0x40_0000, Flags::TMPFILE),
        ];
        let access = if number & 3 == 0 { Self::default() } else { Self::WRITABLE };
        let set = BITS.into_iter().filter(|(bit, _)| number & bit != 0);
        set.fold(access, |flags, (_, flag)| flags | flag)
    }
}

impl BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// A call in progress, which keeps its open file description if the descriptor is closed meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin(pub(super) u32);

/// A descriptor as a call names it.
#[derive(Clone, Copy, Debug)]
pub struct Fd<'a> {
    /// Its number.
    pub number: i32,
    /// The file that the trace shows for the descriptor, if it shows one.
    pub shown: Option<Shown<'a>>,
    /// The result of [`super::CallMachine::pin`] when the call began.
    pub pin: Option<Pin>,
}

impl From<i32> for Fd<'_> {
    fn from(number: i32) -> Self {
        Self { number, shown: None, pin: None }
    }
}

/// The file behind a descriptor, as the kernel shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown<'a> {
    /// This absolute path; `true` if the file has since been deleted.
    Path(&'a [u8], bool),
    /// A pipe, socket, device or anonymous inode.
    Other,
}

/// The directory that a relative path starts from.
#[derive(Clone, Copy, Debug)]
pub enum Dir<'a> {
    /// The working directory, which the trace may show.
    Cwd(Option<&'a [u8]>),
    /// A descriptor.
    Fd(Fd<'a>),
}

/// A path as a call names it.
#[derive(Clone, Copy, Debug)]
pub struct Path<'a> {
    /// The directory that it starts from if it is relative.
    pub dir: Dir<'a>,
    /// Any bytes.
    pub path: &'a [u8],
}

/// A file by name or by descriptor. A path's last link is followed.
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// By name.
    Path(Path<'a>),
    /// By descriptor.
    Fd(Fd<'a>),
}

/// A system call that succeeded, with its result. Offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum SystemCall<'a> {
    /// `mode`: the mode that the call requests if it creates the file; the umask is applied to it.
    Open {
        path: Path<'a>,
        flags: Flags,
        mode: Option<u32>,
        fd: Fd<'a>,
    },
    /// The open of a file that its name does not identify: a file of its own, which lives on after
    /// it is closed.
    OpenNameless {
        flags: Flags,
        fd: i32,
    },
    /// A descriptor that leads to no storage, or (with `shown`) was received from another process.
    Made {
        fd: Fd<'a>,
        cloexec: bool,
    },
    Dup {
        from: Fd<'a>,
        to: i32,
        cloexec: bool,
    },
    Close {
        fd: i32,
    },
    /// `close_range`, both ends included; `cloexec`: marked instead of closed.
    CloseRange {
        first: i32,
        last: i32,
        cloexec: bool,
        unshare: bool,
    },
    SetCloexec {
        fd: i32,
        cloexec: bool,
    },
    /// `F_SETFL`, `F_GETFL`.
    SetFlags {
        fd: Fd<'a>,
        flags: Flags,
    },
    /// `at`: the call's own offset; without it the description's offset is used and moved.
    Read {
        fd: Fd<'a>,
        at: Option<u64>,
        len: u64,
    },
    /// `flags`: flags that this call adds to those of the descriptor (`RWF_APPEND`, `RWF_DSYNC`).
    Write {
        fd: Fd<'a>,
        at: Option<u64>,
        len: u64,
        flags: Flags,
    },
    /// `sendfile`, `copy_file_range`, `splice`.
    Copy {
        from: Fd<'a>,
        from_at: Option<u64>,
        to: Fd<'a>,
        to_at: Option<u64>,
        len: u64,
    },
    /// `size`: the size of the file, if the seek reveals it.
    Seek {
        fd: Fd<'a>,
        to: u64,
        size: Option<u64>,
    },
    Sync {
        fd: Fd<'a>,
        offset: u64,
        len: u64,
        /// `fdatasync` and the like.
        data_only: bool,
    },
    SyncAll,
    Truncate {
        target: Target<'a>,
        size: u64,
    },
    /// A `fallocate` that may extend the file.
    Allocate {
        fd: Fd<'a>,
        end: u64,
    },
    Punch {
        fd: Fd<'a>,
        offset: u64,
        len: u64,
    },
    /// A stat's `st_size`.
    Size {
        target: Target<'a>,
        size: u64,
    },
    Rename {
        from: Path<'a>,
        to: Path<'a>,
        exchange: bool,
    },
    Link {
        from: Target<'a>,
        to: Path<'a>,
    },
    Symlink {
        target: &'a [u8],
        path: Path<'a>,
    },
    /// `unlink`, `rmdir`. `seen`: the result of [`super::CallMachine::seen`] when the call began,
    /// if another call could come between.
    Unlink {
        path: Path<'a>,
        seen: Option<Seen>,
    },
    Mkdir {
        path: Path<'a>,
    },
    /// `mknod` of a regular file.
    MakeFile {
        path: Path<'a>,
        mode: Option<u32>,
    },
    /// `umask`: the permission bits that new files lack from now on.
    Umask {
        mask: u32,
    },
    Chdir {
        target: Target<'a>,
    },
    Chroot {
        path: Path<'a>,
    },
    /// `getcwd`'s result.
    Cwd {
        path: &'a [u8],
    },
    /// A mapping of a file or, without `fd`, of no file.
    Map {
        fd: Option<Fd<'a>>,
        start: u64,
        len: u64,
        offset: u64,
    },
    Unmap {
        start: u64,
        len: u64,
    },
    /// `mremap`.
    Remap {
        from: u64,
        from_len: u64,
        to: u64,
        to_len: u64,
    },
    /// `msync(MS_SYNC)`.
    Msync {
        start: u64,
        len: u64,
    },
    /// A clone was entered: calls of its child may come before it returns.
    ForkBegins {
        shares: Shares,
    },
    /// A clone returned, or failed.
    ForkEnds {
        child: Option<u32>,
        shares: Shares,
    },
    Unshare {
        files: bool,
        fs: bool,
    },
    Exec {
        name: &'a str,
    },
    /// The caller continues under the number of its process's leader, whose thread has ended.
    Superseded {
        by: u32,
    },
    Exit,
    ExitGroup,
}

/// The file that a name stood for when a call began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(pub(super) Option<u32>);

/// The treatment of a thread that no clone created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strangers {
    /// The thread is a process of its own, with the same number.
    Processes,
    /// The thread belongs to the first process. If such a thread is the first of all, this is the
    /// process's number.
    Threads(u32),
}
