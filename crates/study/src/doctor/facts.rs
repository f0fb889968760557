//! Facts that the shell reads from the machine, beside the events.

use crate::recommend::WritebackTimes;
use flashsift_files::flusher::FlusherSettings;
use serde::Serialize;
use std::collections::BTreeSet;

/// State and settings of the examined machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Settings of the kernel's flusher.
    pub flusher: FlusherSettings,
    /// File systems that were examined.
    pub file_systems: Vec<FileSystem>,
    /// Disks below them.
    pub disks: Vec<Disk>,
    /// Active swap areas.
    pub swaps: Vec<Swap>,
    /// Bytes swapped out during the examination.
    pub swapped_out_bytes: u64,
    /// Whether a timer trims the file systems (`fstrim.timer`); `None`: the machine does not say.
    pub trims: Option<bool>,
    /// All mounts to which their mount points lead.
    pub mounts: Vec<MountPoint>,
    /// Directories to which overlays write, such as those of containers. A mount over them
    /// is not seen through the overlay.
    pub upper_directories: Vec<String>,
}

impl Facts {
    /// Returns the present times of write-back.
    pub(super) fn times(&self) -> WritebackTimes {
        let FlusherSettings { expire_us, tick_us, .. } = self.flusher;
        let commit_us = self.commit_us().unwrap_or(WritebackTimes::LINUX.commit_us);
        WritebackTimes { expire_us, tick_us, commit_us }
    }

    /// Returns the longest commit interval that an ext4 has by its options, µs.
    pub(super) fn commit_us(&self) -> Option<u64> {
        let ext4 = self.file_systems.iter().filter(|system| system.kind == "ext4");
        let seconds = ext4.filter_map(|system| system.option("commit")?.parse::<u64>().ok());
        seconds.max().map(|seconds| seconds.saturating_mul(1_000_000))
    }

    /// Returns the mount on which a file lies; `None` for a path that is not absolute.
    pub(super) fn mount_of(&self, path: &str) -> Option<&MountPoint> {
        let above = self.mounts.iter().filter(|mount| is_within(path, &mount.point));
        above.max_by_key(|mount| mount.point.len())
    }
}

/// Whether a path is this directory or below it.
pub(super) fn is_within(path: &str, directory: &str) -> bool {
    let rest = path.strip_prefix(directory.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// A mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountPoint {
    /// Mount point, as events name files.
    pub point: String,
    /// Directory of the file system that is mounted: `/`, or another one of a bind mount.
    pub root: String,
    /// Number of the file system.
    pub dev: u64,
    /// Type of the file system.
    pub kind: String,
}

/// Looks at the machine where a remedy depends on it. It looks at nothing but files and directories
/// of the file systems that were examined.
pub trait Inspect {
    /// Returns the first and the last bytes of a file; `None` if it cannot be read, or is not a
    /// regular file.
    fn ends(&self, file: &str) -> Option<Ends>;

    /// Passes everything below a directory. Returns `false` if it was not possible to pass all.
    fn entries(&self, directory: &str, each: &mut dyn FnMut(&str, EntryKind)) -> bool;

    /// Returns what is known of a program that synced files; `None` if one of its processes could
    /// not be examined.
    fn program(&self, name: &str) -> Option<ProgramFacts>;

    /// Returns the inode of a file; `None` if it is not known.
    fn inode(&self, _file: &str) -> Option<Inode> {
        None
    }

    /// Returns the name of a container; `None` if it is not known.
    fn container(&self, _id: &str) -> Option<String> {
        None
    }
}

/// An inode of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inode {
    /// The device of the file system.
    pub dev: u64,
    /// Its number there, from 1.
    pub number: u64,
    /// Extents of the file's data.
    pub extents: usize,
}

/// The first [`Ends::HEAD_BYTES`] and the last [`Ends::TAIL_BYTES`] bytes of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// First bytes.
    pub head: Vec<u8>,
    /// Last bytes.
    pub tail: Vec<u8>,
}

impl Ends {
    /// Length of the head.
    pub const HEAD_BYTES: usize = 64;
    /// Length of the tail.
    pub const TAIL_BYTES: usize = 8;
}

/// Types of entries of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A regular file.
    File,
    /// A symbolic link.
    Link,
    /// A socket, a FIFO, a device, or of unknown type.
    Other,
}

/// A program while it ran.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgramFacts {
    /// Its system calls go through the C library that `LD_PRELOAD` replaces: it is linked
    /// dynamically, not made by Go, and has no privileges of its own.
    pub obeys_preload: bool,
    /// Files that its processes had open.
    pub open_files: BTreeSet<Box<str>>,
}

/// A mounted file system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct FileSystem {
    /// Mount point.
    pub mount: String,
    /// Type: `ext4`, `f2fs`.
    pub kind: String,
    /// Device as the mount names it.
    pub source: String,
    /// Options of the mount and of the file system.
    pub options: Vec<String>,
}

impl FileSystem {
    /// Returns the value of an option such as `commit=5`; empty for one without a value.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find_map(|option| match option.split_once('=') {
            Some((key, value)) => (key == name).then_some(value),
            None => (option == name).then_some(""),
        })
    }
}

/// A block device, with what it did during the examination by the kernel's own counters.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Disk {
    /// Name in `/sys/block`.
    pub name: String,
    /// Model, where it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Capacity.
    pub capacity_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes discarded.
    pub discarded_bytes: u64,
    /// It is a memory card.
    pub is_memory_card: bool,
    /// Wear as its registers tell it, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wear: Option<String>,
    /// The share of its life that is used, as its registers tell it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub life_used: Option<f64>,
}

/// A swap area.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Swap {
    /// Device or file.
    pub path: String,
    /// Bytes in use.
    pub used_bytes: u64,
}
