//! btrfs, by `fs/btrfs` of Linux 6.18.
//!
//! - `btrfs_rename` writes a file's dirty pages if it replaces a file that is not empty.
//! - `btrfs_release_file` does if the file was cut to nothing since it was closed.
//! - `btrfs_truncate` writes the page that the new size cuts.

use super::{Rule, RuleSpec, Sizes, Urgent, tail};
use flashsift_caches::trace::OperationKind;
use flashsift_events::event::{FileId, FileSystemKind};
use foldhash::fast::FixedState;
use hashbrown::HashSet;

pub(super) const SPEC: RuleSpec = RuleSpec {
    file_system: FileSystemKind::Btrfs,
    what: "pages of a file that replaces another, or was cut to nothing and is closed; the page \
           that a smaller size cuts",
    build: || Box::new(Btrfs::default()),
};

#[derive(Default)]
struct Btrfs {
    sizes: Sizes,
    /// Files that were cut to nothing since they were closed.
    emptied: HashSet<FileId, FixedState>,
    /// The file that lost a name last is empty: a rename over it follows its loss.
    lost_empty: bool,
}

impl Rule for Btrfs {
    fn operation(&mut self, operation: &OperationKind) -> Option<Urgent> {
        let before = self.sizes.take(operation);
        match *operation {
            OperationKind::Unlink(file, _) => {
                self.lost_empty = self.sizes.0.get(&file) == Some(&0);
                None
            }
            OperationKind::Rename { file, replaces: true, .. } => {
                (!self.lost_empty).then(|| Urgent::all_of(file))
            }
            OperationKind::Truncate(file, 0) => {
                self.emptied.insert(file);
                None
            }
            OperationKind::Truncate(file, size) if before.is_none_or(|before| size < before) => {
                let pages = tail(size);
                (!pages.is_empty()).then_some(Urgent { file, pages, if_unplaced: false })
            }
            OperationKind::Close(file) => self.emptied.remove(&file).then(|| Urgent::all_of(file)),
            OperationKind::Gone(file) => {
                self.emptied.remove(&file);
                None
            }
            _ => None,
        }
    }

    fn held_bytes(&self) -> usize {
        self.sizes.0.allocation_size() + self.emptied.allocation_size()
    }
}
