//! Facts that the shell reads from the machine, beside the events.

use crate::writeback::flusher::FlusherSettings;
use serde::Serialize;

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
}

/// A swap area.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Swap {
    /// Device or file.
    pub path: String,
    /// Bytes in use.
    pub used_bytes: u64,
}
