//! XFS, by `fs/xfs` of Linux 6.18.
//!
//! - `xfs_setattr_size`: the inode on the device has a size of its own, which follows the data that
//!   was written. A truncation logs the new size at once. If that lies behind the size on the
//!   device, and data behind it waits, the dirty pages between both are written first.
//! - `xfs_file_release`: a file that was cut, and neither written nor synced since, is written when
//!   it is closed, if one of its dirty pages has no place yet.
//!
//! The kernel also zeroes the rest of the last page, and thereby makes it dirty. Here it does not
//! become dirty: in recordings of Chromium it nearly always is.

use super::{Rule, RuleSpec, Sizes, Urgent};
use flashsift_caches::trace::OperationKind;
use flashsift_events::{
    event::{FileId, FileSystemKind},
    page::PAGE_BYTES,
};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

pub(super) const SPEC: RuleSpec = RuleSpec {
    file_system: FileSystemKind::Xfs,
    what: "pages that are not on the device yet, when their file gets a size by truncate; all of a \
           file that was cut and is closed",
    build: || Box::new(Xfs::default()),
};

#[derive(Default)]
struct Xfs {
    sizes: Sizes,
    /// The size that the inode on the device has, in bytes; of files without an entry, 0.
    disk_sizes: HashMap<FileId, u64, FixedState>,
    /// Files that were cut since they were closed, synced or written.
    cut: HashSet<FileId, FixedState>,
    /// The file that the present operation cuts.
    cutting: Option<FileId>,
}

impl Rule for Xfs {
    fn operation(&mut self, operation: &OperationKind) -> Option<Urgent> {
        let before = self.sizes.take(operation);
        match *operation {
            OperationKind::Truncate(file, size) => {
                let on_disk = self.disk_sizes.insert(file, size).unwrap_or(0);
                // The kernel returns at once for a file that is and stays empty.
                let is_cut = before.is_none_or(|before| size <= before && before > 0);
                self.cutting = is_cut.then_some(file);
                let waits = size > on_disk && before.is_some_and(|before| before != on_disk);
                let pages = on_disk / PAGE_BYTES..size.div_ceil(PAGE_BYTES);
                waits.then_some(Urgent { file, pages, if_unplaced: false })
            }
            OperationKind::Size(file, size) => {
                self.disk_sizes.insert(file, size);
                None
            }
            OperationKind::Sync { file, .. } => {
                self.cut.remove(&file);
                None
            }
            OperationKind::Close(file) => self.cut.remove(&file).then(|| Urgent::unplaced(file)),
            OperationKind::Gone(file) => {
                self.disk_sizes.remove(&file);
                self.cut.remove(&file);
                None
            }
            _ => None,
        }
    }

    fn done(&mut self, _: &OperationKind) {
        self.cut.extend(self.cutting.take());
    }

    fn written(&mut self, file: FileId, page: u64) {
        self.cut.remove(&file);
        let end = (page + 1).saturating_mul(PAGE_BYTES);
        let end = self.sizes.0.get(&file).map_or(end, |size| end.min(*size));
        let on_disk = self.disk_sizes.entry(file).or_default();
        *on_disk = end.max(*on_disk);
    }

    fn held_bytes(&self) -> usize {
        let Self { sizes, disk_sizes, cut, .. } = self;
        sizes.0.allocation_size() + disk_sizes.allocation_size() + cut.allocation_size()
    }
}
