//! ext4's `auto_da_alloc` (the kernel's `Documentation/admin-guide/ext4.rst`).
//!
//! `ext4_alloc_da_blocks` of Linux 6.18 writes all dirty pages of a file, if one of them has no
//! block yet: at a rename over another file, and at the close of a file that was cut to nothing.

use super::{Rule, RuleSpec, Urgent};
use flashsift_caches::trace::OperationKind;
use flashsift_events::event::{FileId, FileSystemKind};
use foldhash::fast::FixedState;
use hashbrown::HashSet;

pub(super) const SPEC: RuleSpec = RuleSpec {
    file_system: FileSystemKind::Ext4,
    what: "new pages of a file that replaces another, or was cut to nothing and is closed",
    build: || Box::new(Ext4::default()),
};

#[derive(Default)]
struct Ext4 {
    /// Files that were cut to nothing since they were closed.
    emptied: HashSet<FileId, FixedState>,
}

impl Rule for Ext4 {
    fn operation(&mut self, operation: &OperationKind) -> Option<Urgent> {
        match *operation {
            OperationKind::Truncate(file, 0) => {
                self.emptied.insert(file);
                None
            }
            OperationKind::Rename { file, replaces: true, .. } => Some(Urgent::unplaced(file)),
            OperationKind::Close(file) => {
                self.emptied.remove(&file).then(|| Urgent::unplaced(file))
            }
            OperationKind::Gone(file) => {
                self.emptied.remove(&file);
                None
            }
            _ => None,
        }
    }

    fn held_bytes(&self) -> usize {
        self.emptied.allocation_size()
    }
}
