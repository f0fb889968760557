//! One tracepoint, whatever it was read from.

/// A device number as the kernel keeps it: major << 20 | minor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dev(pub u32);

impl Dev {
    /// From its two halves.
    pub fn new(major: u32, minor: u32) -> Self {
        Self(major << 20 | minor & 0xf_ffff)
    }

    /// From `7:0`, as the kernel names a disk's backing device.
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

/// An inode, as tracepoints name it: which file that is at a time, the machine knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Inode {
    /// The file system's device.
    pub dev: Dev,
    /// The inode's number.
    pub ino: u64,
}

/// One tracepoint that was hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// When, in nanoseconds of one clock for all processors.
    pub at_ns: u64,
    /// The thread that hit it.
    pub tid: u32,
    /// What it says.
    pub what: What,
}

/// What tracepoints say, in the words of this machine; offsets, lengths and sizes in bytes, pages of 4096.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A buffered read found or fetched pages of these: the rest of its request, rounded to pages.
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
        /// What is left of the request, first and last page, if its first page was missing.
        missing: Option<(u64, u64)>,
    },
    /// A page fault was served from this page of a file.
    Fault {
        /// File.
        inode: Inode,
        /// Page.
        page: u64,
    },
    /// A page fault was served by mapping all of these that were cached.
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
        /// A store.
        write: bool,
    },
    /// A piece of a buffered write begins; this much of the call is left (or as much as a folio can hold).
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
        /// Bytes that really were written.
        copied: u64,
    },
    /// A read or write call begins, of which the file system tells more (F2FS).
    CallBegin {
        /// File; the device may be missing (0).
        inode: Inode,
        /// Its path from the root of the file system.
        path: Box<str>,
        /// Its size.
        size: u64,
        /// First byte; for a write with `O_APPEND` the end of the file.
        offset: u64,
        /// A write.
        write: bool,
    },
    /// The call turns out to go past the page cache.
    CallDirect {
        /// File.
        inode: Inode,
    },
    /// The call ended, with so many bytes moved or an error.
    CallEnd {
        /// File; the device may be missing (0).
        inode: Inode,
        /// First byte.
        offset: u64,
        /// Bytes moved; negative is an error.
        moved: i64,
        /// A write.
        write: bool,
    },
    /// One step of an access past the page cache goes this way.
    DirectStep {
        /// File.
        inode: Inode,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// A write.
        write: bool,
    },
    /// An access past the page cache ended.
    DirectEnd {
        /// File.
        inode: Inode,
        /// The byte behind it.
        end: u64,
        /// Bytes moved; negative is an error.
        moved: i64,
    },
    /// Pages became dirty, from this one on.
    Dirtied {
        /// File.
        inode: Inode,
        /// The folio's first page.
        page: u64,
    },
    /// The file is made durable: `fsync`, `fdatasync`, `msync`, or a write with `O_SYNC`.
    Sync {
        /// File or directory.
        inode: Inode,
    },
    /// The whole file system is made durable.
    SyncFs {
        /// Its device.
        dev: Dev,
        /// It waits.
        wait: bool,
    },
    /// A new inode.
    Allocated {
        /// It.
        inode: Inode,
        /// Inode number of the directory it is made in, where the tracepoint tells.
        dir: Option<u64>,
        /// File type and permissions, where the tracepoint tells.
        mode: Option<u16>,
    },
    /// The inode leaves memory; without links, its file is gone.
    Evicted {
        /// It.
        inode: Inode,
        /// Names left.
        links: u32,
    },
    /// A name is about to go.
    Unlink {
        /// File.
        inode: Inode,
        /// Inode number of its directory, where the tracepoint tells.
        dir: Option<u64>,
    },
    /// The file is cut, to what [`What::Cut`] says.
    TruncateBegin {
        /// File.
        inode: Inode,
        /// The new size, where the tracepoint tells it.
        size: Option<u64>,
    },
    /// Extents of the file from this block on are let go.
    Cut {
        /// File.
        inode: Inode,
        /// First block of the file system's size.
        block: u64,
        /// Blocks.
        blocks: u64,
    },
    /// The cutting is over.
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
        /// It is done already: no end will be told.
        done: bool,
    },
    /// `fallocate` ended.
    AllocateEnd {
        /// File.
        inode: Inode,
        /// It succeeded.
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
    /// The thread made another.
    NewTask {
        /// The new one.
        tid: u32,
        /// `CLONE_…`
        flags: u64,
        /// Its name.
        name: Box<str>,
    },
    /// The process lets go of its memory, to run another program.
    ExecBegin,
    /// The process runs another program, which is mapped already.
    Exec {
        /// The program's file.
        program: Box<str>,
        /// The thread that called it, which is now the process's first.
        old_tid: u32,
    },
    /// The thread ends.
    Exit,
    /// A system call begins.
    Enter(super::Call),
    /// The thread's system call ended with this result.
    Leave {
        /// As the kernel returns it: negative is an error.
        result: i64,
    },
    /// Tasks are stalled for lack of memory, so much of the time.
    MemoryPressure {
        /// Parts per million.
        stalled_ppm: u32,
    },
    /// The process mapped something.
    Map {
        /// Process.
        pid: u32,
        /// What, and where.
        mapping: super::Mapping,
    },
}
