//! Writes of a file system beside file data: its journal, and its metadata in place.
//!
//! A machine without I/O. It sees the operations of the trace that change metadata, the pages that
//! get and lose places, and time; it answers with requests to the device. SEMANTICS.md,
//! "Metadata", says what is modelled. A file system is one file and one line in [`ALL`].

use crate::writeback::Modes;
use flashsift_caches::trace::{DirectoryId, Entry, KnownInodes, OperationKind, Trace};
use flashsift_events::{
    address::Lba,
    event::{FileId, FileSystemKind, Space},
    params::{self, Listed, Param, Params},
};

mod btrfs;
mod ext4;
mod f2fs;
mod xfs;

/// A request of a file system for its own blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockRequest {
    /// Blocks are written.
    Write {
        /// First address, in units of 4 KiB.
        lba: Lba,
        /// Length in pages.
        pages: u64,
        /// They are the journal's, or a checkpoint's.
        journal: bool,
        /// An application waits.
        awaited: bool,
    },
    /// Everything written before becomes durable.
    Flush {
        /// An application waits.
        awaited: bool,
    },
}

/// A block that a commit made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The block's place.
    pub lba: Lba,
    /// The file that changed it first; `None` for directories and the file system itself.
    pub file: Option<FileId>,
}

/// Decides what a file system writes beside file data.
///
/// Requests of each call are to be taken with [`Metadata::poll`] before the next call.
pub trait Metadata {
    /// Takes an operation of the trace.
    fn operation(&mut self, at_us: u64, operation: &OperationKind);
    /// A page of a file got this place, or another one than before, and is written there.
    fn placed(&mut self, at_us: u64, file: FileId, page: u64, lba: Lba);
    /// Consecutive pages of a file got consecutive places.
    fn placed_run(&mut self, at_us: u64, file: FileId, page: u64, lba: Lba, pages: u64) {
        for n in 0..pages {
            self.placed(at_us, file, page + n, lba + n);
        }
    }
    /// A page of a file lost its place.
    fn freed(&mut self, at_us: u64, file: FileId, page: u64, lba: Lba);
    /// A directory of a stream of operations is met for the first time, with its entry. Machines
    /// that are built for a trace know them all.
    fn met_directory(&mut self, directory: DirectoryId, entry: Option<Entry>);
    /// The inodes of these files are known, if they were there before. Machines that are built for
    /// a trace find them in its operations.
    fn know_inodes(&mut self, _inodes: &KnownInodes) {}
    /// Returns when [`Metadata::tick`] must be called next.
    fn next_deadline(&self) -> Option<u64>;
    /// Handles the deadline.
    fn tick(&mut self, at_us: u64);
    /// The file system is unmounted.
    fn unmount(&mut self, at_us: u64);
    /// Returns the next request.
    fn poll(&mut self) -> Option<BlockRequest>;
    /// Returns the address on the device of a place that the layout gave: metadata lies between.
    fn address(&self, lba: Lba) -> Lba;
    /// Returns how many commits were made, writes of an fsync's blocks included.
    fn commits(&self) -> u64;
    /// Returns the blocks of the last commit, in the order of their places.
    fn last_commit(&self) -> &[Logged];
    /// Returns an estimate of the memory held, in bytes.
    fn held_bytes(&self) -> usize;
    /// Re-derives every invariant.
    ///
    /// # Panics
    /// If one of them is broken.
    fn check(&self);
}

/// A file system in the list.
pub struct MetadataSpec {
    /// Name in `--metadata`.
    pub name: &'static str,
    /// Name of the layout that places the pages.
    pub layout: &'static str,
    /// The file system, whose rule about file data belongs to it.
    pub file_system: FileSystemKind,
    /// One-line description.
    pub what: &'static str,
    /// Parameters that `name:key=value` accepts.
    pub params: &'static [Param],
    /// Builds the machine for a trace with the table of operations.
    pub build: fn(&Trace, &Params, &Modes) -> Box<dyn Metadata>,
    /// Builds the machine for operations that come one by one. It learns directories by
    /// [`Metadata::met_directory`].
    pub streaming: fn(&Params, &Modes) -> Box<dyn Metadata>,
}

/// Every file system.
pub const ALL: &[MetadataSpec] = &[ext4::SPEC, f2fs::SPEC, xfs::SPEC, btrfs::SPEC];

/// A file system selected from the list, with its parameters.
pub type Selection = params::Selection<MetadataSpec>;

impl Listed for MetadataSpec {
    const KIND: &'static str = "file system for --metadata";
    const ALL: &'static [Self] = ALL;

    fn declared(&self) -> (&'static str, &'static [Param]) {
        (self.name, self.params)
    }
}

/// Reason for which the metadata of a trace cannot be modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoMetadata {
    /// Not a trace of files.
    #[error("only traces of files have metadata: this one has blocks or objects")]
    NoFiles,
    /// Journals go by time.
    #[error(
        "journals are committed by time and the trace has none: give --rate N, requests a second"
    )]
    NoTimes,
    /// The places of the pages are another file system's.
    #[error("it belongs to --layout {0}")]
    Layout(&'static str),
}

impl MetadataSpec {
    /// Checks that the trace and the layout of its pages suit.
    ///
    /// # Errors
    /// See [`NoMetadata`].
    pub fn suits(&self, trace: &Trace, layout: &str) -> Result<(), NoMetadata> {
        let about = trace.about();
        match () {
            () if about.space != Space::Files => Err(NoMetadata::NoFiles),
            () if !about.knows.times => Err(NoMetadata::NoTimes),
            () if layout != self.layout => Err(NoMetadata::Layout(self.layout)),
            () => Ok(()),
        }
    }
}
