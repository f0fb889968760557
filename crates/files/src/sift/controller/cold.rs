//! How cold a cache is. Nearly every file that leaves the RAM of a new cache is read again soon,
//! and nothing has been seen yet from which that could be learned: it is known beforehand.
//!
//! A cache becomes warm as files leave RAM, and at once if it is an old one: each file that it had
//! before, and that is used now, stands for [`OLD_FILE_BYTES`].

use crate::sift::Droppable;
use flashsift_events::event::{Action, Event, FileId};
use foldhash::fast::FixedState;
use hashbrown::HashSet;

/// Bytes out of RAM for which a file counts that the cache had before.
const OLD_FILE_BYTES: u64 = 1 << 20;
/// Most files from before whose first use is awaited.
const OLD_MAX: usize = 1 << 16;

/// The bytes that make a cache warm, and the files that it had before.
#[derive(Clone, Debug)]
pub(super) struct Cold {
    /// Bytes out of RAM with which the cache is warm.
    warm_bytes: u64,
    droppable: Droppable,
    /// Files with a droppable name that were there before and have not been used yet.
    old: HashSet<FileId, FixedState>,
    used_old_files: u64,
}

impl Cold {
    pub(super) fn new(warm_bytes: u64, droppable: Droppable) -> Self {
        Self { warm_bytes, droppable, old: HashSet::default(), used_old_files: 0 }
    }

    /// Returns the least chance that a file which leaves RAM is used again, when so many bytes have
    /// left it. Of a warm cache it is 0.
    pub(super) fn chance(&self, left_bytes: u64) -> f64 {
        let seen_bytes = left_bytes.saturating_add(self.used_old_files * OLD_FILE_BYTES);
        match seen_bytes < self.warm_bytes {
            true => 1.0 - seen_bytes as f64 / self.warm_bytes as f64,
            false => 0.0,
        }
    }

    /// An event of a file that has not been in RAM, when so many bytes have left it.
    pub(super) fn observe(&mut self, event: &Event<'_>, left_bytes: u64) {
        if self.chance(left_bytes) == 0.0 {
            // It is warm for good.
            self.old = HashSet::default();
            self.warm_bytes = 0;
            return;
        }
        match &event.action {
            Action::Bind { file, name } if self.old.len() < OLD_MAX && self.droppable.has(name) => {
                self.old.insert(*file);
            }
            Action::Open { file, .. }
            | Action::Read { file, .. }
            | Action::Write { file, .. }
            | Action::Direct { file, .. } => {
                self.used_old_files += u64::from(self.old.remove(file));
            }
            Action::Gone { file } => {
                self.old.remove(file);
            }
            _ => {}
        }
    }
}
