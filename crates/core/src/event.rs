//! What happened: the one vocabulary of trace readers, recorders, the simulator and the live mount.
//!
//! An [`Event`] is in bytes, as an application asked for it. Pages are the business of
//! [`crate::trace`]. Names are borrowed ([`MaybeOwned`]): an event of the live mount allocates
//! nothing, and a reader that collects events into a batch makes them `Event<'static>`.

use std::{fmt, num::NonZeroU32, ops::Deref};

/// A point in time or a duration, in microseconds.
pub type Micros = u64;

/// Which file (or block device, or cached object) an event is about.
///
/// One `FileId` stands for one *identity* (device, inode, epoch): the epoch rises when the last
/// link and the last descriptor are gone, because file systems reuse inode numbers at once. A
/// `FileId` is unique within a trace and never reused. Readers of file traces number files from 0
/// in order of first appearance; a block trace has one pseudo-file a device; in an object trace it
/// is the object's own identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u64);

/// Which open of a file a read or write belongs to: one open file description.
///
/// Unique among the opens that exist at the same time; a number may return after its
/// [`Action::Close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpenId(pub NonZeroU32);

/// One thing that an application (or, in an after-cache trace, the page cache) asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Microseconds since the trace's first event, by a clock that runs on through suspend
    /// (CLOCK_BOOTTIME). 0 throughout where the format has no times (see [`Knows::times`]).
    pub at_us: Micros,
    /// The process (thread group), 0 where the format does not say.
    pub pid: u32,
    /// The thread, 0 where the format does not say.
    pub tid: u32,
    /// What was asked.
    pub action: Action<'a>,
}

/// The kinds of event. Offsets, lengths and sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// `len` bytes that really were read (a short read counts what it got).
    Read {
        /// File read from.
        file: FileId,
        /// The open that was read through, where the trace knows it ([`Knows::opens`]).
        open: Option<OpenId>,
        /// First byte.
        offset: u64,
        /// Bytes; 0 touches no page.
        len: u64,
    },
    /// `len` bytes that really were written.
    Write {
        /// File written to.
        file: FileId,
        /// The open that was written through, where the trace knows it ([`Knows::opens`]).
        open: Option<OpenId>,
        /// First byte.
        offset: u64,
        /// Bytes; 0 touches no page.
        len: u64,
        /// The write itself waits for storage (`O_SYNC`, `O_DSYNC`, `RWF_SYNC`, `RWF_DSYNC`).
        sync: bool,
    },
    /// `len` bytes that went past the page cache (`O_DIRECT`). They touch no cached page, and
    /// caches do not count them.
    Direct {
        /// File read from or written to.
        file: FileId,
        /// The open that was used, where the trace knows it ([`Knows::opens`]).
        open: Option<OpenId>,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Written, not read.
        write: bool,
    },
    /// `fsync`, `fdatasync`, `msync(MS_SYNC)` or, with a narrower range, `sync_file_range`.
    Sync {
        /// File made durable.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Bytes; `u64::MAX` reaches the end of the file.
        len: u64,
    },
    /// `sync` or `syncfs`: every dirty page.
    SyncAll,
    /// The file now ends at `size`: cached pages wholly past it are gone, dirty ones unwritten.
    Truncate {
        /// File cut or extended.
        file: FileId,
        /// New size, bytes.
        size: u64,
    },
    /// A hole was punched (blocks of a device were discarded): pages wholly inside it are gone.
    Punch {
        /// File punched.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// A file came into being. [`Action::Open`] follows where it was made by an open.
    Create(MaybeOwned<'a, Create<'a>>),
    /// The file had this size when the trace first met it. It cuts nothing.
    Size {
        /// File that was there before.
        file: FileId,
        /// Its size, bytes.
        size: u64,
    },
    /// A descriptor was opened.
    Open {
        /// File opened.
        file: FileId,
        /// The open's identity, where the trace knows it ([`Knows::opens`]).
        open: Option<OpenId>,
        /// The open is known to have made the file (it did not exist before).
        created: bool,
    },
    /// A descriptor (the last that shares its open) was closed.
    Close {
        /// File closed.
        file: FileId,
        /// The open that ended, where the trace knows it ([`Knows::opens`]).
        open: Option<OpenId>,
    },
    /// The trace meets a name of a file that existed before.
    Bind {
        /// File named.
        file: FileId,
        /// Absolute path where it is known. Bytes that are not UTF-8 stand as `\xNN`.
        name: MaybeOwned<'a, str>,
    },
    /// The file got a further name (`link`).
    Link {
        /// File named.
        file: FileId,
        /// The new name, as in [`Action::Bind`].
        name: MaybeOwned<'a, str>,
    },
    /// A name moved. A file that was replaced gets an [`Action::Unbind`] of its own, before this.
    Rename {
        /// File renamed.
        file: FileId,
        /// Old and new absolute path.
        names: MaybeOwned<'a, Renamed<'a>>,
    },
    /// A directory moved: every name below its old path is now below its new one.
    RenameDirectory {
        /// Old and new absolute path of the directory.
        names: MaybeOwned<'a, Renamed<'a>>,
    },
    /// A name is gone (`unlink`, or a rename over it). The file lives on while a link or a
    /// descriptor does.
    Unbind {
        /// File that lost the name.
        file: FileId,
        /// The name it lost.
        name: MaybeOwned<'a, str>,
    },
    /// The last link and the last descriptor are gone: the identity's epoch ends, its pages and its
    /// place on the device are freed. Nothing follows for this `FileId`.
    Gone {
        /// File that ended.
        file: FileId,
    },
    /// The event's `pid` now runs this program.
    Process {
        /// Program or thread name as the format gives it.
        name: MaybeOwned<'a, str>,
    },
    /// How much the machine waits for memory, from now on.
    MemoryPressure {
        /// Share of time in which some task was stalled for lack of memory, parts per million
        /// (Linux: `some avg10` of `/proc/pressure/memory`).
        stalled_ppm: u32,
    },
    /// The application that the user looks at, from now on.
    Foreground {
        /// Its name, as [`Action::Process`] gives names; empty where none is in front.
        app: MaybeOwned<'a, str>,
    },
}

impl Action<'_> {
    /// The file that this is about, where it is about one.
    pub fn file(&self) -> Option<FileId> {
        match self {
            Action::Read { file, .. }
            | Action::Write { file, .. }
            | Action::Direct { file, .. }
            | Action::Sync { file, .. }
            | Action::Truncate { file, .. }
            | Action::Punch { file, .. }
            | Action::Size { file, .. }
            | Action::Open { file, .. }
            | Action::Close { file, .. }
            | Action::Bind { file, .. }
            | Action::Link { file, .. }
            | Action::Rename { file, .. }
            | Action::Unbind { file, .. }
            | Action::Gone { file } => Some(*file),
            Action::Create(create) => Some(create.file),
            Action::SyncAll
            | Action::RenameDirectory { .. }
            | Action::Process { .. }
            | Action::MemoryPressure { .. }
            | Action::Foreground { .. } => None,
        }
    }

    /// The same with names of its own.
    pub fn into_owned(self) -> Action<'static> {
        match self {
            Action::Read { file, open, offset, len } => Action::Read { file, open, offset, len },
            Action::Write { file, open, offset, len, sync } => {
                Action::Write { file, open, offset, len, sync }
            }
            Action::Direct { file, open, offset, len, write } => {
                Action::Direct { file, open, offset, len, write }
            }
            Action::Sync { file, offset, len } => Action::Sync { file, offset, len },
            Action::SyncAll => Action::SyncAll,
            Action::Truncate { file, size } => Action::Truncate { file, size },
            Action::Punch { file, offset, len } => Action::Punch { file, offset, len },
            Action::Create(create) => Action::Create(MaybeOwned::owned(create.to_static())),
            Action::Size { file, size } => Action::Size { file, size },
            Action::Open { file, open, created } => Action::Open { file, open, created },
            Action::Close { file, open } => Action::Close { file, open },
            Action::Bind { file, name } => Action::Bind { file, name: name.into_owned() },
            Action::Link { file, name } => Action::Link { file, name: name.into_owned() },
            Action::Rename { file, names } => {
                Action::Rename { file, names: MaybeOwned::owned(names.to_static()) }
            }
            Action::RenameDirectory { names } => {
                Action::RenameDirectory { names: MaybeOwned::owned(names.to_static()) }
            }
            Action::Unbind { file, name } => Action::Unbind { file, name: name.into_owned() },
            Action::Gone { file } => Action::Gone { file },
            Action::Process { name } => Action::Process { name: name.into_owned() },
            Action::MemoryPressure { stalled_ppm } => Action::MemoryPressure { stalled_ppm },
            Action::Foreground { app } => Action::Foreground { app: app.into_owned() },
        }
    }
}

impl Event<'_> {
    /// The same with names of its own, for a batch that outlives its source.
    pub fn into_owned(self) -> Event<'static> {
        let Event { at_us, pid, tid, action } = self;
        Event { at_us, pid, tid, action: action.into_owned() }
    }
}

/// How a file came into being.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create<'a> {
    /// The new file.
    pub file: FileId,
    /// Its first name, absolute where that is known; empty for a file without a name (`O_TMPFILE`).
    pub name: MaybeOwned<'a, str>,
    /// User and group, where the trace knows them.
    pub owner: Option<Owner>,
    /// Permission bits, where the trace knows them.
    pub mode: Option<u32>,
    /// It was opened so that every write waits for storage (`O_SYNC`, `O_DSYNC`).
    pub sync: bool,
}

impl Create<'_> {
    /// The same with a name of its own.
    pub fn to_static(&self) -> Create<'static> {
        let Create { file, ref name, owner, mode, sync } = *self;
        Create { file, name: MaybeOwned::owned_str(name), owner, mode, sync }
    }
}

/// User and group of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// The two names of an [`Action::Rename`] or [`Action::RenameDirectory`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed<'a> {
    /// Absolute path before.
    pub from: MaybeOwned<'a, str>,
    /// Absolute path after.
    pub to: MaybeOwned<'a, str>,
}

impl Renamed<'static> {
    /// Both names, owned.
    pub fn owned(from: &str, to: &str) -> MaybeOwned<'static, Self> {
        MaybeOwned::owned(Renamed { from: MaybeOwned::owned_str(from), to: MaybeOwned::owned_str(to) })
    }
}

impl Renamed<'_> {
    /// The same with names of their own.
    pub fn to_static(&self) -> Renamed<'static> {
        Renamed { from: MaybeOwned::owned_str(&self.from), to: MaybeOwned::owned_str(&self.to) }
    }
}

/// Borrowed from a live source, or owned by a batch.
///
/// It keeps large parts of rare events out of [`Event`]'s size, which every event pays.
pub enum MaybeOwned<'a, T: ?Sized> {
    /// Lives as long as its source.
    Borrowed(&'a T),
    /// Lives by itself.
    Owned(Box<T>),
}

impl<T> MaybeOwned<'static, T> {
    /// Owns this.
    pub fn owned(content: T) -> Self {
        Self::Owned(Box::new(content))
    }
}

impl MaybeOwned<'static, str> {
    /// Owns a copy of this text.
    pub fn owned_str(text: &str) -> Self {
        Self::Owned(text.into())
    }
}

impl MaybeOwned<'_, str> {
    /// The same text, owned.
    pub fn into_owned(self) -> MaybeOwned<'static, str> {
        match self {
            MaybeOwned::Borrowed(text) => MaybeOwned::Owned(text.into()),
            MaybeOwned::Owned(text) => MaybeOwned::Owned(text),
        }
    }
}

impl<T: ?Sized> Deref for MaybeOwned<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        match self {
            Self::Borrowed(content) => content,
            Self::Owned(content) => content,
        }
    }
}

impl fmt::Display for MaybeOwned<'_, str> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self)
    }
}

impl<'a> From<&'a str> for MaybeOwned<'a, str> {
    fn from(text: &'a str) -> Self {
        Self::Borrowed(text)
    }
}

impl<T: ?Sized> From<Box<T>> for MaybeOwned<'_, T> {
    fn from(content: Box<T>) -> Self {
        Self::Owned(content)
    }
}

impl From<String> for MaybeOwned<'_, str> {
    fn from(text: String) -> Self {
        Self::Owned(text.into())
    }
}

impl<T: Clone> Clone for MaybeOwned<'_, T> {
    fn clone(&self) -> Self {
        match self {
            Self::Borrowed(content) => Self::Borrowed(content),
            Self::Owned(content) => Self::Owned(content.clone()),
        }
    }
}

impl Clone for MaybeOwned<'_, str> {
    fn clone(&self) -> Self {
        match self {
            Self::Borrowed(text) => Self::Borrowed(text),
            Self::Owned(text) => Self::Owned(text.clone()),
        }
    }
}

impl<T: PartialEq + ?Sized> PartialEq for MaybeOwned<'_, T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: Eq + ?Sized> Eq for MaybeOwned<'_, T> {}

impl<T: fmt::Debug + ?Sized> fmt::Debug for MaybeOwned<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// On which side of the page cache a trace was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What applications ask of the page cache.
    Before,
    /// What the page cache asks of storage. Running one through a cache again is possible and
    /// warned about.
    After,
}

/// What the names in a trace stand for; decides the page order and the default layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Files with names of their own; where they lie on the device is for a layout to say.
    Files,
    /// Block devices: an offset is an address.
    Blocks,
    /// Cached objects with an identifier and a size, nothing more.
    Objects,
}

/// What a trace can say. What needs more refuses, naming the flag that supplies it, instead of
/// guessing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knows {
    /// `at_us` is real.
    pub times: bool,
    /// Sync calls are in the trace, so that their absence means there were none.
    pub syncs: bool,
    /// Reads and writes are told apart; otherwise everything is a read.
    pub writes: bool,
    /// Truncation and deletion are in the trace.
    pub removals: bool,
    /// Reads and writes name the open they belong to, and opens and closes are all in the trace.
    pub opens: bool,
    /// Each file that came into being has its [`Action::Create`], with owner and mode.
    pub creations: bool,
    /// Each file that existed before has its [`Action::Size`].
    pub sizes: bool,
    /// Links, and renames of directories, are in the trace, so that a file's names are known.
    pub names: bool,
    /// [`Action::MemoryPressure`] is in the trace.
    pub pressure: bool,
    /// [`Action::Foreground`] is in the trace.
    pub foreground: bool,
}

impl Knows {
    /// Nothing: the base from which a format says what it does know.
    pub const NOTHING: Knows = Knows {
        times: false,
        syncs: false,
        writes: false,
        removals: false,
        opens: false,
        creations: false,
        sizes: false,
        names: false,
        pressure: false,
        foreground: false,
    };
}

/// Where a trace comes from and what can be believed about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// Before or after the page cache.
    pub side: Side,
    /// Files, blocks or objects.
    pub space: Space,
    /// What the trace can say.
    pub knows: Knows,
    /// Wall-clock time of the trace's time 0, microseconds since 1970 (UTC), where it is known.
    pub epoch_us: Option<u64>,
}
