//! Events: the vocabulary that trace readers, recorders, the simulator and the live mount share.
//!
//! An [`Event`] counts in bytes, as the application asked; a trace turns bytes into pages.
//! Names are borrowed ([`MaybeOwned`]): an event of the live mount allocates nothing, and a reader
//! that collects events into a batch makes them `Event<'static>`.

use std::{fmt, num::NonZeroU32, ops::Deref};

/// A point in time or a duration, in microseconds.
pub type Micros = u64;

/// The identity of the file, block device or cached object that an event is about.
///
/// One `FileId` stands for one *identity* (device, inode, epoch): the epoch rises when the last
/// link and the last descriptor are gone, because file systems reuse inode numbers at once. A
/// `FileId` is unique within a trace and never reused. Readers of file traces number files from 0
/// in order of first appearance. A block trace has one pseudo-file per device. In an object trace
/// the `FileId` is the object's own identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u64);

/// The open file description that a read or write went through.
///
/// Unique among the opens that exist at the same time; a number may return after its
/// [`Action::Close`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpenId(pub NonZeroU32);

/// One request of an application or, in an after-cache trace, of the page cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Microseconds since the trace's first event, by a clock that runs on through suspend
    /// (CLOCK_BOOTTIME). 0 throughout where the format has no times (see [`Knows::times`]).
    pub at_us: Micros,
    /// The process (thread group), 0 where the format does not say.
    pub pid: u32,
    /// The thread, 0 where the format does not say.
    pub tid: u32,
    /// The request.
    pub action: Action<'a>,
}

/// The kinds of event. Offsets, lengths and sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// A read of `len` bytes. A short read counts the bytes that it returned.
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
    /// A write of `len` bytes. A short write counts the bytes that it wrote.
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
    /// A read or write of `len` bytes that bypassed the page cache (`O_DIRECT`). It goes to the
    /// device; caches write back its dirty pages first, and drop its pages after a write.
    Direct {
        /// File read from or written to.
        file: FileId,
        /// The open that was used, where the trace knows it ([`Knows::opens`]).
        open: Option<OpenId>,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// It is a write.
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
        /// The file's times alone need not become durable (`fdatasync`, `msync`). `false` where
        /// the trace does not say.
        data_only: bool,
    },
    /// `sync` or `syncfs`: every dirty page.
    SyncAll,
    /// `fsync` or `fdatasync` of a directory: its entries are made durable.
    SyncDirectory {
        /// Absolute path of the directory where it is known, else empty.
        path: MaybeOwned<'a, str>,
    },
    /// The write before it was a store through a mapping. Such a store makes the whole folio dirty
    /// that holds its page: the kernel keeps no finer record of what a mapping wrote.
    Folio {
        /// File stored to.
        file: FileId,
        /// First byte of the folio.
        offset: u64,
        /// Bytes of the folio that lie in the file; 0: the folio is not known.
        len: u64,
    },
    /// The direct write before it began a block that held nothing, or the last one of the file.
    /// Such a write makes the kernel fill the rest of the block with zeros, which reach the device.
    Filled {
        /// File written to.
        file: FileId,
        /// First byte of the zeros.
        offset: u64,
        /// Bytes of them.
        len: u64,
    },
    /// The file now ends at `size`. Cached pages entirely beyond it are dropped, dirty ones
    /// unwritten.
    Truncate {
        /// File cut or extended.
        file: FileId,
        /// New size, bytes.
        size: u64,
    },
    /// A hole was punched, or blocks of a device were discarded: pages entirely inside it are
    /// dropped.
    Punch {
        /// File punched.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// A file was created. If an open created it, [`Action::Open`] follows.
    Create(MaybeOwned<'a, Create<'a>>),
    /// The file had this size when the trace first met it. The event removes no page.
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
        /// The open is known to have created the file.
        created: bool,
    },
    /// The last descriptor of an open was closed.
    Close {
        /// File closed.
        file: FileId,
        /// The open that ended, where the trace knows it ([`Knows::opens`]).
        open: Option<OpenId>,
    },
    /// The trace meets a name of a file that existed before the trace.
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
    /// A file was renamed. If the new name replaced a file, that file's [`Action::Unbind`] comes
    /// first.
    Rename {
        /// File renamed.
        file: FileId,
        /// Old and new absolute path.
        names: MaybeOwned<'a, Renamed<'a>>,
    },
    /// A directory was renamed: every name below its old path is now below the new one.
    RenameDirectory {
        /// Old and new absolute path of the directory.
        names: MaybeOwned<'a, Renamed<'a>>,
    },
    /// A file lost a name (`unlink`, or a rename over it). The file lives on while it has a link or
    /// a descriptor.
    Unbind {
        /// File that lost the name.
        file: FileId,
        /// The name it lost.
        name: MaybeOwned<'a, str>,
    },
    /// The last link and the last descriptor are gone: the identity's epoch ends, and its pages and
    /// its place on the device are freed. No event of this `FileId` follows.
    Gone {
        /// File that ended.
        file: FileId,
    },
    /// The event's `pid` now runs this program.
    Process {
        /// Program or thread name as the format gives it.
        name: MaybeOwned<'a, str>,
    },
    /// From this event on, bytes of the file lie at this place on the device. The event is no
    /// access.
    Place {
        /// File placed.
        file: FileId,
        /// First byte in the file.
        offset: u64,
        /// Bytes.
        len: u64,
        /// First byte on the file system's device.
        at: u64,
    },
    /// The reason for the next request of an after-cache trace. The event's `pid` is the process
    /// that needs the request, 0 if it is the kernel that writes back.
    Cause {
        /// File of the trace before the cache, and first byte in it, of the request's first page.
        /// `None` for a flush, and for blocks of the file system itself.
        origin: Option<(FileId, u64)>,
        /// A process waits until the request is done.
        awaited: bool,
    },
    /// Accesses to lines of memory, 64 bytes each, before the next request of an after-cache trace.
    MemoryLines {
        /// Non-volatile memory; else DRAM.
        nvm: bool,
        /// Lines read.
        read: u64,
        /// Lines written.
        written: u64,
    },
    /// The share of time that the machine waits for memory, from this event on.
    MemoryPressure {
        /// Share of time in which some task was stalled for lack of memory, parts per million
        /// (Linux: `some avg10` of `/proc/pressure/memory`).
        stalled_ppm: u32,
    },
    /// The object of the next request expires this long after it enters a cache.
    TimeToLive {
        /// Microseconds.
        ttl_us: Micros,
    },
    /// The event's process runs in this control group, from this event on.
    ControlGroup {
        /// Its path in the hierarchy, such as `/system.slice/cron.service`.
        path: MaybeOwned<'a, str>,
    },
    /// The application in the foreground, from this event on.
    Foreground {
        /// Its name, as [`Action::Process`] gives names; empty if no application is in the
        /// foreground.
        app: MaybeOwned<'a, str>,
    },
    /// A cache file holds a copy of this, as its content at a close says: hashes and classes. Only
    /// recordings whose owner asks for it have the event (SEMANTICS, Mount 85).
    Meaning {
        /// The cache file.
        file: FileId,
        /// Kind of cache and type of the content, such as `chromium, image`.
        what: MaybeOwned<'a, str>,
        /// Hash of the site of the page that it belongs to.
        site: u64,
        /// Hash of the URL that it is a copy of.
        url: u64,
        /// The URL is of another site than the page.
        third_party: bool,
    },
}

impl Action<'_> {
    /// Returns the file of the action, if it concerns one.
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
            | Action::Place { file, .. }
            | Action::Folio { file, .. }
            | Action::Filled { file, .. }
            | Action::Meaning { file, .. }
            | Action::Gone { file } => Some(*file),
            Action::Create(create) => Some(create.file),
            Action::SyncAll
            | Action::SyncDirectory { .. }
            | Action::RenameDirectory { .. }
            | Action::Process { .. }
            | Action::Cause { .. }
            | Action::MemoryLines { .. }
            | Action::MemoryPressure { .. }
            | Action::TimeToLive { .. }
            | Action::ControlGroup { .. }
            | Action::Foreground { .. } => None,
        }
    }

    /// Returns the file that gets a name, and that name: its first one, a further one, or one in
    /// place of another.
    pub fn new_name(&self) -> Option<(FileId, &str)> {
        match self {
            Action::Create(create) if !create.name.is_empty() => Some((create.file, &create.name)),
            Action::Bind { file, name } | Action::Link { file, name } => Some((*file, name)),
            Action::Rename { file, names } => Some((*file, &names.to)),
            _ => None,
        }
    }

    /// Returns the same action with owned names.
    pub fn into_owned(self) -> Action<'static> {
        match self {
            Action::Read { file, open, offset, len } => Action::Read { file, open, offset, len },
            Action::Write { file, open, offset, len, sync } => {
                Action::Write { file, open, offset, len, sync }
            }
            Action::Direct { file, open, offset, len, write } => {
                Action::Direct { file, open, offset, len, write }
            }
            Action::Sync { file, offset, len, data_only } => {
                Action::Sync { file, offset, len, data_only }
            }
            Action::SyncAll => Action::SyncAll,
            Action::SyncDirectory { path } => Action::SyncDirectory { path: path.into_owned() },
            Action::Folio { file, offset, len } => Action::Folio { file, offset, len },
            Action::Filled { file, offset, len } => Action::Filled { file, offset, len },
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
            Action::Place { file, offset, len, at } => Action::Place { file, offset, len, at },
            Action::Process { name } => Action::Process { name: name.into_owned() },
            Action::Cause { origin, awaited } => Action::Cause { origin, awaited },
            Action::MemoryLines { nvm, read, written } => {
                Action::MemoryLines { nvm, read, written }
            }
            Action::MemoryPressure { stalled_ppm } => Action::MemoryPressure { stalled_ppm },
            Action::TimeToLive { ttl_us } => Action::TimeToLive { ttl_us },
            Action::ControlGroup { path } => Action::ControlGroup { path: path.into_owned() },
            Action::Foreground { app } => Action::Foreground { app: app.into_owned() },
            Action::Meaning { file, what, site, url, third_party } => {
                Action::Meaning { file, what: what.into_owned(), site, url, third_party }
            }
        }
    }
}

impl Event<'_> {
    /// Returns the same event with owned names, for a batch that outlives its source.
    pub fn into_owned(self) -> Event<'static> {
        let Event { at_us, pid, tid, action } = self;
        Event { at_us, pid, tid, action: action.into_owned() }
    }
}

/// The creation of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Create<'a> {
    /// The new file.
    pub file: FileId,
    /// Its first name, absolute where that is known; empty for a file without a name (`O_TMPFILE`).
    pub name: MaybeOwned<'a, str>,
    /// User and group, where the trace knows them.
    pub owner: Option<FileOwner>,
    /// Permission bits, where the trace knows them.
    pub mode: Option<u32>,
    /// The open that created it made every write wait for storage (`O_SYNC`, `O_DSYNC`).
    pub sync: bool,
}

impl Create<'_> {
    /// Returns the same creation with an owned name.
    pub fn to_static(&self) -> Create<'static> {
        let Create { file, ref name, owner, mode, sync } = *self;
        Create { file, name: MaybeOwned::owned_str(name), owner, mode, sync }
    }
}

/// User and group of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileOwner {
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
    /// Returns both names, owned.
    pub fn owned(from: &str, to: &str) -> MaybeOwned<'static, Self> {
        MaybeOwned::owned(Renamed {
            from: MaybeOwned::owned_str(from),
            to: MaybeOwned::owned_str(to),
        })
    }
}

impl Renamed<'_> {
    /// Returns the path that a file below the renamed directory has now; `None` if it is elsewhere.
    pub fn moved(&self, path: &str) -> Option<String> {
        let rest = path.strip_prefix(&*self.from)?;
        rest.starts_with('/').then(|| format!("{}{rest}", &*self.to))
    }

    /// Returns the same pair with owned names.
    pub fn to_static(&self) -> Renamed<'static> {
        Renamed { from: MaybeOwned::owned_str(&self.from), to: MaybeOwned::owned_str(&self.to) }
    }
}

/// Borrowed from a live source, or owned by a batch.
///
/// A `MaybeOwned` keeps large parts of rare events out of [`Event`], whose size every event pays.
pub enum MaybeOwned<'a, T: ?Sized> {
    /// Borrowed from a source that lives longer.
    Borrowed(&'a T),
    /// Owned by the event.
    Owned(Box<T>),
}

impl<T> MaybeOwned<'static, T> {
    /// Returns `content`, owned.
    pub fn owned(content: T) -> Self {
        Self::Owned(Box::new(content))
    }
}

impl MaybeOwned<'static, str> {
    /// Returns a copy of this text, owned.
    pub fn owned_str(text: &str) -> Self {
        Self::Owned(text.into())
    }
}

impl MaybeOwned<'_, str> {
    /// Returns the same text, owned.
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
    /// Above the cache: the requests of applications.
    Before,
    /// Below the cache: the requests of the page cache to storage. To simulate a cache over such a
    /// trace is possible and gives a warning.
    After,
}

/// The kind of objects that a trace names; it decides the page order and the default layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Files; a layout decides where they lie on the device.
    Files,
    /// Block devices: an offset is an address.
    Blocks,
    /// Cached objects, each with an identifier and a size.
    Objects,
}

/// The facts that a trace contains. An analysis that needs a missing fact refuses the trace and
/// names the flag that supplies it; it does not guess.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knows {
    /// `at_us` holds recorded times.
    pub times: bool,
    /// Sync calls are recorded, so a trace without any means that none happened.
    pub syncs: bool,
    /// Reads and writes are distinguished; otherwise every access counts as a read.
    pub writes: bool,
    /// Truncations and deletions are recorded.
    pub removals: bool,
    /// Reads and writes name the open they belong to, and every open and close is recorded.
    pub opens: bool,
    /// Each file created during the trace has its [`Action::Create`], with owner and mode.
    pub creations: bool,
    /// Each file that existed before the trace has its [`Action::Size`].
    pub sizes: bool,
    /// Links and renames of directories are recorded, so a file's names are known.
    pub names: bool,
    /// [`Action::MemoryPressure`] is recorded.
    pub pressure: bool,
    /// [`Action::Foreground`] is recorded.
    pub foreground: bool,
    /// [`Action::Place`] is recorded: when the file system places data, and at the end for each
    /// file.
    pub places: bool,
    /// The file system of all recorded files.
    pub file_system: Option<FileSystemKind>,
}

/// A file system of Linux whose rules about file data are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystemKind {
    /// ext4.
    Ext4,
    /// F2FS.
    F2fs,
    /// XFS.
    Xfs,
    /// btrfs.
    Btrfs,
}

impl FileSystemKind {
    /// Every file system.
    pub const ALL: [Self; 4] = [Self::Ext4, Self::F2fs, Self::Xfs, Self::Btrfs];

    /// Returns its name, as `mount` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::F2fs => "f2fs",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// Returns the file system of this name, if it is one of these.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|file_system| file_system.name() == name)
    }
}

impl Knows {
    /// No facts: the base to which a format adds those that it has.
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
        places: false,
        file_system: None,
    };

    /// Facts that the events of a mount contain.
    pub const OF_MOUNT: Knows = Knows {
        times: true,
        syncs: true,
        writes: true,
        removals: true,
        opens: true,
        creations: true,
        sizes: true,
        names: true,
        ..Knows::NOTHING
    };
}

/// The origin of a trace, and the facts that it contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// Before or after the page cache.
    pub side: Side,
    /// Files, blocks or objects.
    pub space: Space,
    /// The facts that the trace contains.
    pub knows: Knows,
    /// Wall-clock time of the trace's time 0, in microseconds since 1970 (UTC), if known.
    pub epoch_us: Option<u64>,
    /// CLOCK_BOOTTIME at the trace's time 0, in microseconds, if known. With it, other logs of the
    /// same machine can be put on the trace's times.
    pub boot_us: Option<u64>,
}
