//! Arguments and results of the file system's operations.

use flashsift_events::show;
use flashsift_files::flusher::FlusherSettings;
use flashsift_files::sift::live::{LiveCounts, LiveMode, SiftedBy};
use rustix::fs::{FileType, Mode, OFlags, RawMode, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The number of a file or directory: ours, the same for as long as the mount lives.
pub type Ino = u64;

/// The directory that is mounted.
pub const ROOT: Ino = 1;

/// Time after which a pattern that nothing has matched is named, µs.
pub(crate) const USED_AFTER_US: u64 = 60_000_000;

pub(crate) type Name = Arc<OsStr>;

/// Directories and what a file is called there. Nearly all have a single name.
pub(crate) type Names = SmallVec<[(Ino, Name); 1]>;

pub(crate) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// The result with the error's number.
pub(crate) fn io<T>(done: std::io::Result<T>) -> rustix::io::Result<T> {
    done.map_err(|error| errno(&error))
}

/// Configuration of the file system.
#[derive(Clone, Debug)]
pub struct Config {
    /// Data that no application synced is on flash at most this long after it was written, µs.
    pub lose_at_most_us: u64,
    /// Patterns of names whose files are write-through; `*` matches any text.
    pub settled: Vec<String>,
    /// Patterns of files whose syncs are delayed, each with the longest time, µs
    /// ([`Groups`](flashsift_files::delayed::groups::Groups)).
    pub delayed: Vec<(String, u64)>,
    /// Whether reads of files on flash leave `atime` unchanged. This works for our own user's files
    /// only.
    pub noatime: bool,
    /// Whether appends and overwrites of files on flash may wait in RAM, and new directories:
    /// nothing else changes BACKING.
    pub writes_wait: bool,
    /// Whether events tell the [`Meaning`](flashsift_events::event::Action::Meaning) of cache files
    /// that are closed in RAM.
    pub tells_meaning: bool,
    /// The clock of events and decisions.
    pub clock: Clock,
    /// How the kernel writes dirty pages, for the estimate in [`Writes`].
    pub flusher: FlusherSettings,
}

/// A clock that does not go back.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    /// CLOCK_BOOTTIME, which runs on through suspend.
    #[default]
    Boottime,
    /// Set by tests, µs, to replay histories.
    Manual(Arc<AtomicU64>),
}

impl Default for Config {
    fn default() -> Config {
        Config {
            lose_at_most_us: 1_800_000_000,
            settled: Vec::new(),
            delayed: Vec::new(),
            noatime: false,
            writes_wait: true,
            tells_meaning: false,
            clock: Clock::Boottime,
            flusher: FlusherSettings::default(),
        }
    }
}

/// The process behind a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User of the thread, as file systems see it.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The thread that asks, as the kernel numbers it; 0 if it lives where this process sees none.
    pub tid: u32,
    /// Permissions that new files do not get.
    pub umask: u32,
}

/// Seconds and nanoseconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time {
    /// Whole seconds since 1970.
    pub s: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub ns: u32,
}

/// Attributes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Inode number in the mount.
    pub ino: Ino,
    /// Size, bytes.
    pub size: u64,
    /// Size on storage, in blocks of 512 bytes.
    pub blocks: u64,
    /// Time of the last read.
    pub atime: Time,
    /// Time of the last write.
    pub mtime: Time,
    /// Time of the last change of content or attributes.
    pub ctime: Time,
    /// Type and permissions.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Of a device, its number, as the kernel packs it in 32 bits.
    pub rdev: u32,
    /// Preferred size of a read, bytes.
    pub blksize: u32,
}

impl Attr {
    /// The same on a file system whose times are multiples of `granularity_ns`, ns.
    pub(crate) fn with_times_of(self, granularity_ns: u32) -> Attr {
        let cut = |time: Time| Time { ns: time.ns - time.ns % granularity_ns.max(1), ..time };
        Attr { atime: cut(self.atime), mtime: cut(self.mtime), ctime: cut(self.ctime), ..self }
    }

    pub(crate) fn new(ino: Ino, stat: &Stat) -> Attr {
        let (major, minor) = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        Attr {
            ino,
            size: stat.st_size as u64,
            blocks: stat.st_blocks as u64,
            atime: Time { s: stat.st_atime, ns: stat.st_atime_nsec as u32 },
            mtime: Time { s: stat.st_mtime, ns: stat.st_mtime_nsec as u32 },
            ctime: Time { s: stat.st_ctime, ns: stat.st_ctime_nsec as u32 },
            mode: stat.st_mode,
            nlink: stat.st_nlink as u32,
            uid: stat.st_uid,
            gid: stat.st_gid,
            rdev: minor & 0xff | major << 8 | (minor & !0xff) << 12,
            blksize: stat.st_blksize as u32,
        }
    }

    /// File, directory, link …
    pub fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode as RawMode)
    }

    /// Its permissions, with setuid, setgid and sticky.
    pub fn permissions(&self) -> Mode {
        Mode::from_raw_mode(self.mode as RawMode)
    }
}

/// Changes that `chmod`, `chown`, `truncate` and `utimensat` request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Changes {
    /// New permissions.
    pub mode: Option<u32>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New size, bytes.
    pub size: Option<u64>,
    /// New time of the last read; `None` in it is now.
    pub atime: Option<Option<Time>>,
    /// New time of the last write; `None` in it is now.
    pub mtime: Option<Option<Time>>,
    /// Remove setuid and setgid, since a process without the right to keep them changes the
    /// content.
    pub strip: bool,
}

/// The thread of a read or write, and the flags of its open file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Access {
    /// The thread that asks.
    pub tid: u32,
    /// The flags of `open`: `O_DIRECT`, `O_SYNC`, `O_DSYNC`.
    pub flags: i32,
    /// User of the thread. Only root may use the space that a file system keeps for root.
    pub uid: u32,
    /// Group of the thread.
    pub gid: u32,
    /// The kernel writes pages that were changed through a mapping earlier; the thread is not the
    /// one that changed them.
    pub cached: bool,
}

impl Access {
    pub(crate) fn is_direct(self) -> bool {
        OFlags::from_bits_retain(self.flags as u32).contains(OFlags::DIRECT)
    }
}

/// The kind of an open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// It lives in RAM, or changes of it may wait there: every access is to be seen.
    InRam,
    /// It lives on flash.
    Settled {
        /// Nothing else had it open, and the kernel may be given the file.
        first: bool,
    },
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Inode number of the entry.
    pub ino: Ino,
    /// Type of the entry's file.
    pub kind: FileType,
    /// The name.
    pub name: std::ffi::OsString,
}

/// A file that could not be written back when it was last tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// From the mounted directory on.
    pub path: String,
    /// The step that failed, in words.
    pub step: String,
    /// The number of the error.
    pub errno: i32,
    /// The error, in words.
    pub error: String,
}

/// The state of a mount.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Version of this schema.
    pub schema: u32,
    /// Files that live in RAM.
    pub files_in_ram: u64,
    /// New directories that live in RAM.
    #[serde(default)]
    pub directories_in_ram: u64,
    /// RAM that they take, bytes: the files' content, and a fixed number for each of both.
    pub ram_bytes: u64,
    /// Limit of `ram_bytes`.
    pub budget_bytes: u64,
    /// A lower limit, while memory is short; `None`: it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_bytes: Option<u64>,
    /// The program in the foreground; empty: it is not known, or there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub foreground: String,
    /// Number of files that were created in RAM.
    pub born: u64,
    /// Number of files that were created write-through.
    pub born_settled: u64,
    /// Number of them that were written back.
    pub settled: u64,
    /// Bytes that write-back copied.
    pub settled_bytes: u64,
    /// Files on flash that were appended to or overwritten, and have changes that wait in RAM.
    #[serde(default)]
    pub waiting_files: u64,
    /// Their changed pages, bytes. A crash now would lose them, and the files in RAM.
    #[serde(default)]
    pub waiting_bytes: u64,
    /// Number of files that were created and deleted in RAM: they never reached flash.
    pub never_written: u64,
    /// Number of copies that were repeated because the file had changed meanwhile.
    pub restarts: u64,
    /// The first of `failures`, in one line; empty where nothing fails.
    pub failing: String,
    /// Files that could not be written back when it was last tried, new directories that could not
    /// be made, and directories whose names could not be made durable.
    #[serde(default)]
    pub failing_files: u64,
    /// The directories among them.
    #[serde(default)]
    pub failing_directories: u64,
    /// The first hundred of these failures.
    #[serde(default)]
    pub failures: Vec<Failure>,
    /// BACKING is read-only at the moment: files in RAM cannot be written back, and changes fail.
    #[serde(default)]
    pub read_only: bool,
    /// Files are handed to the kernel, which reads and writes without us.
    pub passthrough: bool,
    /// Requests that failed inside us (each is in the log).
    pub faults: u64,
    /// Files whose syncs are delayed; `None`: there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed: Option<DelayedStatus>,
    /// The sifter; `None` where none was chosen.
    #[serde(default)]
    pub sift: Option<SiftStatus>,
    /// Data written since the mount began; `None` of a daemon that does not count it.
    #[serde(default)]
    pub writes: Option<Writes>,
}

impl Status {
    /// The new directories in RAM, in words: `2 directories`; `None`: there is none.
    pub fn counted_directories(&self) -> Option<String> {
        directories(self.directories_in_ram)
    }

    /// How much is in RAM, in words: `2 files and 1 directory`. A file on flash with changes that
    /// wait counts.
    pub fn counted_in_ram(&self) -> String {
        files_and_directories(self.files_in_ram + self.waiting_files, self.directories_in_ram)
    }

    /// How much lives in RAM alone, in words.
    pub fn counted_new(&self) -> String {
        files_and_directories(self.files_in_ram, self.directories_in_ram)
    }

    /// How much could not be written back, in words.
    pub fn counted_failing(&self) -> String {
        let files = self.failing_files.saturating_sub(self.failing_directories);
        files_and_directories(files, self.failing_directories)
    }
}

fn directories(count: u64) -> Option<String> {
    match count {
        0 => None,
        1 => Some("1 directory".to_owned()),
        more => Some(format!("{} directories", show::count(more))),
    }
}

/// `2 files and 1 directory`, without directories if there are none.
fn files_and_directories(files: u64, of_directories: u64) -> String {
    let directories = directories(of_directories);
    let files = (files > 0 || directories.is_none()).then(|| show::counted(files, "file"));
    files.into_iter().chain(directories).collect::<Vec<_>>().join(" and ")
}

/// The loss by a crash, of the files whose syncs are delayed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelayedStatus {
    /// Files of which flash has an older version, or none.
    pub files: u64,
    /// Their changed pages, bytes.
    pub bytes: u64,
    /// Age of the first sync that waits, s; `None`: none waits.
    pub oldest_sync_s: Option<u64>,
    /// Epochs that reached flash since the mount began.
    pub epochs: u64,
    /// Size of their log, bytes.
    pub log_bytes: u64,
    /// Files of the groups that someone changed past the mount. Their syncs are not delayed.
    #[serde(default)]
    pub changed_outside: u64,
    /// Why the last epoch could not be written: syncs wait for flash meanwhile. Empty: it could.
    pub failing: String,
    /// Patterns that have delayed no sync since the mount began, after a minute.
    #[serde(default)]
    pub unused: Vec<String>,
}

/// The state of a mount's sifter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SiftStatus {
    /// The sifter and its parameters.
    pub sifter: String,
    /// The fate of new files.
    pub mode: LiveMode,
    /// The sifter runs beside the mount, and drops nothing.
    pub rehearsal: Option<RehearsalStatus>,
    /// Bytes fetched again, as a share of those of droppable files that plain ext4 would have
    /// written.
    #[serde(default)]
    pub again_share: f64,
    /// The most of it. Above it no file is dropped.
    #[serde(default)]
    pub again_at_most: f64,
    /// Most RAM that the sifter's files take, bytes.
    pub budget_bytes: u64,
    /// The user's patterns that no file has matched since the sifter was chosen, after a minute.
    #[serde(default)]
    pub unused: Vec<String>,
    /// Its files since the mount began.
    pub counts: LiveCounts,
    /// The directories with most bytes of dropped files, from the mounted directory on.
    #[serde(default)]
    pub directories: Vec<SiftedBy>,
    /// The programs with most bytes of dropped files.
    #[serde(default)]
    pub programs: Vec<SiftedBy>,
}

/// Effects that a sifter would have had since its rehearsal began. Bytes are file data of
/// droppable files.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RehearsalStatus {
    /// Time since it began, s.
    pub since_s: u64,
    /// Bytes that reach flash without the sifter; data that waits counts.
    pub stock_bytes: u64,
    /// Bytes that would not have reached flash; negative: the sifter writes more.
    pub kept_bytes: i64,
    /// The share of `stock_bytes` that is kept: in all, in the first half of the slices of time,
    /// and in the second. `None`: there is not enough data yet.
    pub kept_share: Option<[f64; 3]>,
    /// Bytes that would have been fetched again.
    pub fetched_again_bytes: u64,
    /// Files that would have been dropped.
    pub dropped: u64,
}

/// Time after which figures per day are given, s: before, a burst would be taken for a day.
const PER_DAY_AFTER_S: u64 = 3600;
const DAY_S: u64 = 86_400;

/// File data that was written since the mount began, in bytes.
///
/// Figures of ext4 and flash count whole pages of 4 KiB of file data on both sides. Names,
/// attributes and the journal are in neither; `device` contains them. Writes that the kernel
/// performs without us (passthrough) are in neither.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writes {
    /// Time since the mount began, s.
    pub mounted_s: u64,
    /// Bytes of the write requests of applications.
    pub requested_bytes: u64,
    /// Opens for writing whose writes the kernel performs without us: how many bytes they write is
    /// unknown. They are the same on plain ext4.
    pub unseen_opens: u64,
    /// Estimate: bytes that plain ext4 would have written until now.
    pub ext4_bytes: u64,
    /// Estimate: bytes that would be dirty in its page cache now.
    pub ext4_waiting_bytes: u64,
    /// The part of `ext4_bytes` that the estimate wrote early because its memory is bounded.
    pub ext4_early_bytes: u64,
    /// Bytes that reached flash through us.
    pub flash_bytes: u64,
    /// The part of `flash_bytes` that is estimated: writes to files that are on flash, which
    /// BACKING's page cache delays. The rest was flushed by us and is exact.
    pub flash_estimated_bytes: u64,
    /// Bytes in RAM, and dirty in BACKING's page cache; `None`: unknown.
    pub flash_waiting_bytes: Option<u64>,
    /// Bytes saved beyond ext4 if what waits were written now: `ext4_bytes` and
    /// `ext4_waiting_bytes`, less `flash_bytes` and `flash_waiting_bytes`. Negative: we write more.
    pub saved_bytes: Option<i64>,
    /// The same for a day; `None` in the first hour.
    pub saved_bytes_per_day: Option<i64>,
    /// Syncs by applications: of files, of directories, and writes with `O_SYNC`.
    pub syncs: u64,
    /// Estimate: the part of `ext4_bytes` that these syncs forced.
    pub sync_ext4_bytes: u64,
    /// The part of `flash_bytes` that they forced.
    pub sync_flash_bytes: u64,
    /// Number of fsync, fdatasync and syncfs that we issued for them.
    pub sync_flushes: u64,
    /// Number of all fsync, fdatasync and syncfs that we issued.
    pub flushes: u64,
    /// The block device of BACKING's file system; `None` where it is not known.
    pub device: Option<Device>,
    /// The settings of the estimate.
    pub model: Model,
}

impl Writes {
    /// A number of bytes for a day; `None` in the first hour.
    pub fn per_day(&self, bytes: i64) -> Option<i64> {
        let per_day = || i128::from(bytes) * i128::from(DAY_S) / i128::from(self.mounted_s);
        (self.mounted_s >= PER_DAY_AFTER_S).then(|| i64::try_from(per_day()).unwrap_or(i64::MAX))
    }
}

/// Data that all programs wrote to a block device since the mount began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its name in /sys/class/block.
    pub name: String,
    /// Bytes written, with names, attributes and the journal.
    pub written_bytes: u64,
}

/// The settings of the kernel's flusher when the mount began, by which ext4's writes are estimated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// Age at which a file is written, ms.
    pub expire_ms: u64,
    /// Interval at which files are looked at, ms.
    pub tick_ms: u64,
    /// Dirty bytes above which the oldest files are written; `None`: no limit.
    pub background_bytes: Option<u64>,
}
