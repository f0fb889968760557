//! The file system of BACKING: what it promises about order, and flushing without a commit.
//!
//! A file system with a journal (or a log, or checkpoints) makes changes of names durable in order,
//! and none before the blocks that the inode had by then. A copy whose data is flushed before it
//! gets its name is therefore found whole or not at all after a power cut, although nothing was
//! committed by then.

use flashsift_host::mounts::Mount;
use rustix::fs::{AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::{Errno, Result};
use rustix::thread::CpuSet;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub(crate) const EXT4: u32 = 0xef53;
const XFS: u32 = 0x5846_5342;
pub(crate) const BTRFS: u32 = 0x9123_683e;
pub(crate) const F2FS: u32 = 0xf2f5_2010;

/// A name is taken for durable this long after it was made, where the interval of commits is not
/// known. XFS and btrfs commit every 30 s, F2FS every 60 s.
const COMMITTED: Duration = Duration::from_secs(300);
/// The same in intervals, where the interval is known.
const INTERVALS: u32 = 2;

/// Files up to this size are small for ext4's allocator (`mb_stream_req`), blocks.
const EXT4_SMALL: u64 = 16;

/// The kind of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// ext4 with a journal.
    Ext4 {
        /// The journal may have fast commits, which do not know files that were created without a
        /// name.
        fast_commit: bool,
    },
    Xfs,
    Btrfs,
    F2fs,
    /// Nothing is known about the order in which changes become durable.
    Other,
}

/// The file system of BACKING.
#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) kind: Kind,
    /// Whether files can be created without a name; found out by trying.
    unnamed: AtomicBool,
    committed: Duration,
    /// Whether new directories get the group of the one that they are in.
    passes_group: bool,
    /// It is mounted with `dirsync`, which no remount changes: names are durable at once.
    pub(crate) has_synchronous_names: bool,
    /// The options of an ext4, as the kernel shows them at the moment.
    options: Option<File>,
}

impl Volume {
    pub(crate) fn new(dir: BorrowedFd<'_>) -> Result<Volume> {
        let (mut kind, mut committed, mut options) = (Kind::Other, COMMITTED, None);
        let mut passes_group = false;
        match rustix::fs::fstatfs(dir)?.f_type as u32 {
            EXT4 => {
                let device = rustix::fs::fstat(dir)?.st_dev;
                if let Some(ext4) = Ext4::new(device) {
                    kind = Kind::Ext4 { fast_commit: ext4.fast_commit };
                    committed = ext4.interval.map_or(COMMITTED, |every| every * INTERVALS);
                    passes_group = ext4.passes_group;
                    options = Some(ext4.options);
                }
            }
            XFS => kind = Kind::Xfs,
            BTRFS => kind = Kind::Btrfs,
            F2FS => kind = Kind::F2fs,
            _ => (),
        }
        let unnamed = !matches!(kind, Kind::Ext4 { fast_commit: true } | Kind::Other);
        let unnamed = AtomicBool::new(unnamed);
        let has_synchronous_names = has_synchronous_names(dir)?;
        Ok(Volume { kind, unnamed, committed, passes_group, has_synchronous_names, options })
    }

    /// Whether [`Volume::has_failed`] tells of every error that made the file system read-only and
    /// that `statfs` does not show.
    pub(crate) fn shows_errors(&self) -> bool {
        self.options.is_some()
    }

    /// Whether an error of its own made an ext4 read-only.
    pub(crate) fn has_failed(&self) -> bool {
        let Some(options) = &self.options else { return false };
        let mut shown = [0; 4096];
        let len = options.read_at(&mut shown, 0).unwrap_or(0);
        shown[..len].split(|byte| *byte == b'\n').any(|option| option == b"emergency_ro")
    }

    /// Whether a flushed file that then gets its name is found whole or not at all after a crash.
    pub(crate) fn is_ordered(&self) -> bool {
        self.kind != Kind::Other
    }

    /// Whether the fsync of a file makes every earlier change of the file system durable.
    pub(crate) fn one_sync_covers_earlier(&self) -> bool {
        matches!(self.kind, Kind::Ext4 { fast_commit: false } | Kind::Xfs)
    }

    /// Whether it is known what a new directory is like, so that it may wait in RAM: its owner, its
    /// size, and that it is durable with the next file that is.
    pub(crate) fn directories_may_wait(&self) -> bool {
        self.kind == (Kind::Ext4 { fast_commit: false }) && !self.passes_group
    }

    /// Time after which the kernel has committed a name on its own.
    pub(crate) fn committed_after(&self) -> Duration {
        self.committed
    }

    /// Creates a file without a name in this directory; `None` where that is not possible or not
    /// safe.
    ///
    /// # Errors
    ///
    /// Those of `open`, such as `ENOSPC`.
    pub(crate) fn create_unnamed(&self, dir: impl AsFd, more: OFlags) -> Result<Option<File>> {
        if !self.unnamed.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC | more;
        match rustix::fs::openat(dir, ".", flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Ok(Some(File::from(file))),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
                self.unnamed.store(false, Ordering::Relaxed);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until the data of a file is on the device, or in its cache. Commits nothing.
    pub(crate) fn flush(&self, file: &File) -> Result<()> {
        use libc::{
            SYNC_FILE_RANGE_WAIT_AFTER, SYNC_FILE_RANGE_WAIT_BEFORE, SYNC_FILE_RANGE_WRITE,
        };
        sync_range(
            file,
            SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER,
        )?;
        // btrfs adds the blocks to the file some time after their writes have ended.
        if self.kind == Kind::Btrfs { wait_for_blocks(file) } else { Ok(()) }
    }

    /// Begins to write the data of a file, for which an fsync follows, so that ext4 gives it blocks
    /// from the place of those that the file has.
    ///
    /// ext4 takes the blocks of a small file from a part of the device that the processor has which
    /// asks for them (`ext4_mb_group_or_file`). A log that grows from sync to sync, each by another
    /// of our threads, got its blocks from the parts of all processors. With five of them a file
    /// has a block of extents, which each commit then writes besides the others.
    pub(crate) fn begin_sync(&self, file: &File) {
        let Kind::Ext4 { .. } = self.kind else { return };
        let Ok(about) = rustix::fs::fstat(file) else { return };
        if about.st_size as u64 <= EXT4_SMALL * about.st_blksize as u64 {
            // The sync that follows has the error.
            let _ = on_processor_of(about.st_ino, || begin_flush(file));
        }
    }
}

/// Runs `act` on the processor that a file has, by its number, of those that may run this thread.
fn on_processor_of<T>(number: u64, act: impl FnOnce() -> T) -> T {
    let Ok(may) = rustix::thread::sched_getaffinity(None) else { return act() };
    let all = u64::from(may.count()).max(1);
    let mut theirs = (0..CpuSet::MAX_CPU).filter(|processor| may.is_set(*processor));
    let Some(processor) = theirs.nth((number % all) as usize) else { return act() };
    if rustix::thread::sched_getcpu() == processor {
        return act();
    }
    let mut one = CpuSet::new();
    one.set(processor);
    let moved = rustix::thread::sched_setaffinity(None, &one).is_ok();
    let done = act();
    if moved {
        // The processors may be others by now: then the kernel has corrected the set.
        let _ = rustix::thread::sched_setaffinity(None, &may);
    }
    done
}

/// Begins to write the data of a file to the device.
pub(crate) fn begin_flush(file: &File) -> Result<()> {
    sync_range(file, libc::SYNC_FILE_RANGE_WRITE)
}

#[allow(unsafe_code, reason = "rustix has no function for sync_file_range")]
fn sync_range(file: &File, flags: libc::c_uint) -> Result<()> {
    loop {
        // SAFETY: the call takes numbers only, and the descriptor is open meanwhile.
        if unsafe { libc::sync_file_range(file.as_raw_fd(), 0, 0, flags) } == 0 {
            return Ok(());
        }
        match super::types::errno(&std::io::Error::last_os_error()) {
            Errno::INTR => (),
            error => return Err(error),
        }
    }
}

/// The argument of `FS_IOC_FIEMAP` without space for extents, as `linux/fiemap.h` has it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Fiemap {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

/// Waits until all writes of the file that have ended are part of it.
#[allow(unsafe_code, reason = "rustix has no function for FS_IOC_FIEMAP")]
fn wait_for_blocks(file: &File) -> Result<()> {
    const FIEMAP: rustix::ioctl::Opcode = 0xc020_660b;
    const SYNC: u32 = 1;
    let mut map = Fiemap {
        start: 0,
        length: u64::MAX,
        flags: SYNC,
        mapped_extents: 0,
        extent_count: 0,
        reserved: 0,
    };
    // SAFETY: FS_IOC_FIEMAP reads and writes this structure, which has space for no extent.
    unsafe { rustix::ioctl::ioctl(file, rustix::ioctl::Updater::<FIEMAP, Fiemap>::new(&mut map)) }
}

/// Whether the file system of this directory is mounted with `dirsync`. `statfs` does not tell.
fn has_synchronous_names(dir: BorrowedFd<'_>) -> Result<bool> {
    let about = rustix::fs::statx(dir, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    let device = rustix::fs::makedev(about.stx_dev_major, about.stx_dev_minor);
    // A mount without a place is not listed, another one of the file system may be.
    let is_ours = |mount: &&Mount| mount.id == about.stx_mnt_id || mount.dev == device;
    let all = flashsift_host::mounts::all().map_err(|error| super::types::errno(&error))?;
    let mut ours = all.iter().filter(is_ours);
    Ok(ours.any(|mount| mount.options.iter().any(|option| option == "dirsync")))
}

/// The properties of an ext4 with a journal, as the kernel shows them.
struct Ext4 {
    fast_commit: bool,
    passes_group: bool,
    interval: Option<Duration>,
    options: File,
}

impl Ext4 {
    /// `None` for an ext4 without a journal of its own, and for an ext2.
    fn new(device: u64) -> Option<Ext4> {
        let numbers = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let block = std::fs::read_link(Path::new("/sys/dev/block").join(numbers)).ok()?;
        let name = block.file_name()?.to_str()?.to_owned();
        let file = File::open(Path::new("/proc/fs/ext4").join(&name).join("options")).ok()?;
        let options = std::io::read_to_string(&file).ok()?;
        let journal = format!("{name}-");
        let mut journals = std::fs::read_dir("/proc/fs/jbd2").ok()?.flatten();
        if !journals.any(|entry| entry.file_name().to_string_lossy().starts_with(&journal)) {
            return None;
        }
        let seconds = options.lines().find_map(|option| option.strip_prefix("commit="));
        let interval = seconds.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
        // Without the right to read the device, fast commits have to be assumed.
        let fast_commit = options.lines().any(|option| option == "fc_debug_force")
            || has_fast_commit(&Path::new("/dev").join(&name)).unwrap_or(true);
        let passes_group = options.lines().any(|option| option == "grpid");
        Some(Ext4 { fast_commit, passes_group, interval, options: file })
    }
}

/// Whether the superblock on this device allows fast commits.
fn has_fast_commit(device: &Path) -> Option<bool> {
    /// Offset of `s_magic` on the device, bytes, and of `s_feature_compat`.
    const MAGIC: u64 = 1024 + 0x38;
    const FEATURES: u64 = 1024 + 0x5c;
    const FAST_COMMIT: u32 = 0x400;
    let (mut magic, mut features) = ([0; 2], [0; 4]);
    let device = File::open(device).ok()?;
    device.read_exact_at(&mut magic, MAGIC).ok()?;
    device.read_exact_at(&mut features, FEATURES).ok()?;
    (u32::from(u16::from_le_bytes(magic)) == EXT4)
        .then_some(u32::from_le_bytes(features) & FAST_COMMIT != 0)
}
