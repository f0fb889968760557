//! File data that a file system writes at once, before it is old and without a sync.
//!
//! A crash between a new name or size and the data behind it would leave an empty file. Each file
//! system has its own rule against that: one file and one line in [`ALL`]. A rule sees the
//! operations of a trace and the pages that are written, and answers with pages to write.

use flashsift_caches::trace::OperationKind;
use flashsift_events::{
    event::{FileId, FileSystemKind},
    page::PAGE_BYTES,
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::ops::Range;

mod btrfs;
mod ext4;
mod f2fs;
#[cfg(test)]
mod tests;
mod xfs;

/// Pages of a file that its file system begins to write now, as far as they are dirty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Urgent {
    /// The file.
    pub file: FileId,
    /// Numbers of its pages.
    pub pages: Range<u64>,
    /// They are written only if one of the dirty ones has no place on the device yet.
    pub if_unplaced: bool,
}

impl Urgent {
    fn all_of(file: FileId) -> Self {
        Self { file, pages: 0..u64::MAX, if_unplaced: false }
    }

    fn unplaced(file: FileId) -> Self {
        Self { if_unplaced: true, ..Self::all_of(file) }
    }
}

/// The rule of a file system.
pub trait Rule {
    /// Takes an operation. Returns the pages that the file system begins to write now.
    fn operation(&mut self, operation: &OperationKind) -> Option<Urgent>;
    /// The operation is done, and what it made urgent is written.
    fn done(&mut self, _: &OperationKind) {}
    /// A page of a file was written.
    fn written(&mut self, _: FileId, _: u64) {}
    /// Returns an estimate of the memory held, in bytes.
    fn held_bytes(&self) -> usize;
}

/// A file system with its rule.
pub struct RuleSpec {
    /// The file system.
    pub file_system: FileSystemKind,
    /// The rule in words.
    pub what: &'static str,
    /// Begins without files.
    pub build: fn() -> Box<dyn Rule>,
}

/// Every rule.
pub const ALL: &[RuleSpec] = &[ext4::SPEC, f2fs::SPEC, xfs::SPEC, btrfs::SPEC];

/// Returns the rule of a file system.
pub fn of(file_system: FileSystemKind) -> Box<dyn Rule> {
    let spec = ALL.iter().find(|spec| spec.file_system == file_system);
    (spec.expect("every file system is in the list").build)()
}

/// The sizes of files in bytes, where the trace tells them.
#[derive(Default)]
struct Sizes(HashMap<FileId, u64, FixedState>);

impl Sizes {
    /// Takes an operation. Returns the size that its file had before.
    fn take(&mut self, operation: &OperationKind) -> Option<u64> {
        match *operation {
            OperationKind::Create(file, _) => self.0.insert(file, 0),
            OperationKind::Size(file, size) | OperationKind::Truncate(file, size) => {
                self.0.insert(file, size)
            }
            OperationKind::Write(file, end) => {
                let size = self.0.get_mut(&file)?;
                let before = *size;
                *size = before.max(end);
                Some(before)
            }
            OperationKind::Gone(file) => self.0.remove(&file),
            _ => None,
        }
    }
}

/// The page that a size cuts, if it ends inside one.
fn tail(size: u64) -> Range<u64> {
    size / PAGE_BYTES..size.div_ceil(PAGE_BYTES)
}
