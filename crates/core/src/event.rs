//! What happened: the one vocabulary between trace readers, recorders, the simulator and the live mount.
//!
//! An [`Event`] is in bytes, as an application asked for it. Nothing here is about pages: see [`crate::trace`].

/// Which file (or block device, or cached object) an event is about.
///
/// One `FileId` stands for one *identity* (device, inode, epoch): the epoch rises when the last link and the last
/// descriptor are gone, because file systems reuse inode numbers at once (spec §1). A `FileId` is unique within a
/// trace and never reused. Readers of file traces number files from 0 in order of first appearance; a block trace
/// has one pseudo-file a device; in an object trace it is the object's own identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(pub u64);

/// One thing that an application (or, in an after-cache trace, the page cache) asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in microseconds since the trace's first event; 0 throughout where the format has no times
    /// (see [`Knows::times`]).
    pub at_us: u64,
    /// The process (thread group), 0 where the format does not say.
    pub pid: u32,
    /// The thread, 0 where the format does not say.
    pub tid: u32,
    /// What was asked.
    pub action: Action,
}

/// The kinds of event. Offsets, lengths and sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// `len` bytes that really were read (a short read counts what it got).
    Read {
        /// File read from.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Bytes; 0 touches no page.
        len: u64,
    },
    /// `len` bytes that really were written.
    Write {
        /// File written to.
        file: FileId,
        /// First byte.
        offset: u64,
        /// Bytes; 0 touches no page.
        len: u64,
        /// The write itself waits for storage (`O_SYNC`, `O_DSYNC`, `RWF_SYNC`, `RWF_DSYNC`).
        sync: bool,
    },
    /// `len` bytes that went past the page cache (`O_DIRECT`). They touch no cached page, and caches do not count them.
    Direct {
        /// File read from or written to.
        file: FileId,
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
    /// A descriptor was opened.
    Open {
        /// File opened.
        file: FileId,
        /// The open is known to have made the file (it did not exist before).
        created: bool,
    },
    /// A descriptor (the last that shares its open) was closed.
    Close {
        /// File closed.
        file: FileId,
    },
    /// The file has a (further) name: first sight of it, creation, link.
    Bind {
        /// File named.
        file: FileId,
        /// Absolute path where it is known. Bytes that are not UTF-8 stand as `\xNN`.
        name: Box<str>,
    },
    /// A name moved. A file that was replaced gets an [`Action::Unbind`] of its own, before this.
    Rename {
        /// File renamed.
        file: FileId,
        /// Old and new absolute path.
        names: Box<Renamed>,
    },
    /// A name is gone (`unlink`, or a rename over it). The file lives on while a link or a descriptor does.
    Unbind {
        /// File that lost the name.
        file: FileId,
        /// The name it lost.
        name: Box<str>,
    },
    /// The last link and the last descriptor are gone: the identity's epoch ends, its pages and its place on the
    /// device are freed. Nothing follows for this `FileId`.
    Gone {
        /// File that ended.
        file: FileId,
    },
    /// The event's `pid` now runs this program.
    Process {
        /// Program or thread name as the format gives it.
        name: Box<str>,
    },
}

/// The two names of an [`Action::Rename`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// Absolute path before.
    pub from: Box<str>,
    /// Absolute path after.
    pub to: Box<str>,
}

/// On which side of the page cache a trace was taken (spec §1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What applications ask of the page cache.
    Before,
    /// What the page cache asks of storage. Running one through a cache again is possible and warned about.
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

/// What a trace can say. What needs more refuses, naming the flag that supplies it, instead of guessing.
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
}
