//! One tracepoint hit, independent of the format that it was read from.

/// A device number as the kernel keeps it: major << 20 | minor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dev(pub u32);

impl Dev {
    /// Combines the major and minor numbers.
    pub fn new(major: u32, minor: u32) -> Self {
        Self(major << 20 | minor & 0xf_ffff)
    }

    /// Parses `7:0`, the form in which the kernel names a disk's backing device.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once(':')?;
        Some(Self::new(major.parse().ok()?, minor.parse().ok()?))
    }
}

impl std::fmt::Display for Dev {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.0 >> 20, self.0 & 0xf_ffff)
    }
}

/// An inode as tracepoints identify it. The machine resolves it to a file at a given time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inode {
    /// The file system's device.
    pub dev: Dev,
    /// Inode number.
    pub ino: u64,
}

/// One tracepoint hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Time in nanoseconds, by one clock for all processors.
    pub at_ns: u64,
    /// The thread that hit it.
    pub tid: u32,
    /// The content of the hit.
    pub what: What,
}

/// The content of a tracepoint. Offsets, lengths and sizes are in bytes; pages are 4096 bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A buffered read found or fetched some of these pages: the rest of its request, rounded to
    /// pages.
    Pages {
        /// File.
        inode: Inode,
        /// First page.
        first: u64,
        /// Last page of the request, perhaps past the end of the file.
        last: u64,
    },
    /// The kernel reads ahead for the request under way.
    ReadAhead {
        /// File.
        inode: Inode,
        /// First and last page of the rest of the request, if its first page was missing.
        missing: Option<(u64, u64)>,
    },
    /// Pages of a file entered the page cache.
    Added {
        /// File.
        inode: Inode,
        /// First page.
        first: u64,
        /// Number of pages.
        pages: u64,
    },
    /// Pages of a file left the page cache.
    Removed {
        /// File.
        inode: Inode,
        /// First page.
        first: u64,
        /// Number of pages.
        pages: u64,
    },
    /// A page fault was served from this page of a file.
    Fault {
        /// File.
        inode: Inode,
        /// Page that was served.
        page: u64,
    },
    /// A page fault was served by mapping all cached pages of this range.
    FaultAround {
        /// File.
        inode: Inode,
        /// First page.
        first: u64,
        /// Last page.
        last: u64,
    },
    /// A page fault at an address of a process.
    UserFault {
        /// Address.
        address: u64,
        /// The access is a store.
        write: bool,
    },
    /// A piece of a buffered write begins, with this much of the call left (or as much as a folio
    /// holds).
    WriteBegin {
        /// File.
        inode: Inode,
        /// First byte.
        offset: u64,
        /// Bytes left.
        len: u64,
    },
    /// A piece of a buffered write ended.
    WriteEnd {
        /// File.
        inode: Inode,
        /// First byte.
        offset: u64,
        /// Bytes that were copied.
        copied: u64,
    },
    /// A buffered write of this many bytes begins, and is reported by nothing else (XFS).
    Written {
        /// File.
        inode: Inode,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// The kernel lets go of an inode that no process has open. If no name leads to it, the file
    /// ends.
    Inactive {
        /// File.
        inode: Inode,
    },
    /// A read or write call begins, which the file system reports in detail (F2FS).
    CallBegin {
        /// File; the device may be missing (0).
        inode: Inode,
        /// Its path from the root of the file system.
        path: Box<str>,
        /// File size in bytes.
        size: u64,
        /// First byte; for a write with `O_APPEND` the end of the file.
        offset: u64,
        /// The call is a write.
        write: bool,
    },
    /// The call bypasses the page cache.
    CallDirect {
        /// File.
        inode: Inode,
    },
    /// The call ended with a number of bytes moved, or an error.
    CallEnd {
        /// File; the device may be missing (0).
        inode: Inode,
        /// First byte.
        offset: u64,
        /// Bytes moved; negative is an error.
        moved: i64,
        /// The call was a write.
        write: bool,
    },
    /// One step of an access that bypasses the page cache.
    DirectStep {
        /// File.
        inode: Inode,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// The step is a write.
        write: bool,
    },
    /// The blocks of the last step in this thread that hold nothing so far, or some of them.
    Blank {
        /// File.
        inode: Inode,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// An access that bypasses the page cache ended.
    DirectEnd {
        /// File.
        inode: Inode,
        /// First byte after the access.
        end: u64,
        /// Bytes moved; negative is an error.
        moved: i64,
    },
    /// The pages of a folio became dirty.
    Dirtied {
        /// File.
        inode: Inode,
        /// The folio's first page.
        page: u64,
    },
    /// The file is synced: `fsync`, `fdatasync`, `msync`, or a write with `O_SYNC`.
    Sync {
        /// File or directory.
        inode: Inode,
        /// Times alone need not become durable (`fdatasync`).
        data_only: bool,
    },
    /// The whole file system is synced.
    SyncFs {
        /// Its device.
        dev: Dev,
        /// The call waits for the writes to finish.
        wait: bool,
    },
    /// An inode was allocated.
    Allocated {
        /// The new inode.
        inode: Inode,
        /// Inode number of the parent directory, where the tracepoint gives it.
        dir: Option<u64>,
        /// File type and permissions, where the tracepoint gives them.
        mode: Option<u16>,
    },
    /// The inode leaves memory; with a link count of 0, its file is deleted.
    Evicted {
        /// The inode.
        inode: Inode,
        /// Link count.
        links: u32,
    },
    /// The file system writes the file's new pages (ext4's `auto_da_alloc`): the file was cut to
    /// nothing and is closed, or it replaces another one. On btrfs also for a sync or a cut.
    Hurried {
        /// The inode.
        inode: Inode,
    },
    /// A name is about to be removed.
    Unlink {
        /// File.
        inode: Inode,
        /// Inode number of its directory, where the tracepoint gives it.
        dir: Option<u64>,
    },
    /// The file is truncated, to the size that [`What::Cut`] gives.
    TruncateBegin {
        /// File.
        inode: Inode,
        /// The new size in bytes, where the tracepoint gives it.
        size: Option<u64>,
    },
    /// XFS changes the file's attributes. A truncation follows if its size is one of them.
    SetAttr {
        /// File.
        inode: Inode,
    },
    /// XFS makes the file longer: for a truncation if [`What::SetAttr`] came before, else for a
    /// write behind its end.
    Grows {
        /// File.
        inode: Inode,
        /// The new size in bytes, or the beginning of the write.
        size: u64,
    },
    /// The thread asks for a size of a file, or the call is over.
    Asks {
        /// Bytes.
        size: Option<u64>,
    },
    /// btrfs cuts the file to a size in this page: that of [`What::Asks`], or nothing if the file
    /// is opened to be empty.
    CutInPage {
        /// File.
        inode: Inode,
        /// First byte of the page.
        start: u64,
    },
    /// Extents of the file from this block on are freed.
    Cut {
        /// File.
        inode: Inode,
        /// First block, in units of the file system's block size.
        block: u64,
        /// Number of blocks.
        blocks: u64,
    },
    /// The truncation ended.
    TruncateEnd {
        /// File.
        inode: Inode,
    },
    /// The file's size is about to change.
    Resize {
        /// File.
        inode: Inode,
    },
    /// `fallocate` begins.
    Allocate {
        /// File.
        inode: Inode,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// `FALLOC_FL_…`
        mode: u32,
        /// The call is already complete: no end follows.
        done: bool,
    },
    /// `fallocate` ended.
    AllocateEnd {
        /// File.
        inode: Inode,
        /// The call succeeded.
        done: bool,
    },
    /// A hole is punched.
    Punch {
        /// File.
        inode: Inode,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// The thread created another thread.
    NewTask {
        /// The new thread.
        tid: u32,
        /// `CLONE_…`
        flags: u64,
        /// Name of the new thread.
        name: Box<str>,
    },
    /// The process releases its memory in order to run another program.
    ExecBegin,
    /// The process runs another program, which is already mapped.
    Exec {
        /// The program's file.
        program: Box<str>,
        /// The thread that called `execve`, which becomes the main thread of the process.
        old_tid: u32,
    },
    /// The thread ends.
    Exit,
    /// A system call begins.
    Enter(super::EnteredCall),
    /// The thread's system call ended with this result.
    Leave {
        /// Result as the kernel returns it: a negative value is an error.
        result: i64,
    },
    /// The share of time in which tasks are stalled for lack of memory.
    MemoryPressure {
        /// Parts per million.
        stalled_ppm: u32,
    },
    /// The file system chose a place for blocks of a file. All numbers are in units of the file
    /// system's block size.
    Placed {
        /// File.
        inode: Inode,
        /// First block in the file.
        block: u64,
        /// Number of blocks.
        blocks: u64,
        /// First block on the device.
        at: u64,
    },
    /// The process created a mapping.
    Map {
        /// Process.
        pid: u32,
        /// The mapped range and its file.
        mapping: super::Mapping,
    },
}
