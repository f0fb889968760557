//! Files that are written back with a file that an application syncs, because it will sync them
//! next.
//!
//! Package managers and archivers write many files and then sync them one by one, in the order in
//! which they wrote them. A file system that has the files needs one commit for the names of all
//! of them; a mount that has them in RAM would need one for each. So syncs in order are treated as
//! reads in order are by read-ahead: each run of syncs that hits makes the next batch larger.

use flashsift_events::event::FileId;

/// Syncs in order before the first file is written back ahead.
const HITS: u32 = 2;
/// Files of the largest batch.
pub(super) const FILES: usize = 64;
/// Pages of the largest file that is written back ahead.
pub(super) const PAGES: u64 = 16;

/// The run of syncs in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Ahead {
    /// The file that has waited longest after the last one that was written back.
    pub(super) next: Option<FileId>,
    /// Files that were written back ahead and have not been synced since.
    pub(super) unsynced: Vec<FileId>,
    hits: u32,
}

impl Ahead {
    /// Takes a sync of any file. Returns whether the file had been written back ahead.
    pub(super) fn covers(&mut self, file: FileId) -> bool {
        let found = self.unsynced.iter().position(|other| *other == file);
        found.map(|at| self.unsynced.swap_remove(at)).is_some()
    }

    /// Takes the sync of a file that had not been written back. Returns how many files to write
    /// back with it: none unless every file before it was synced, in order.
    pub(super) fn files_with(&mut self, file: FileId) -> usize {
        let in_order = self.next == Some(file) && self.unsynced.is_empty();
        self.hits = if in_order { self.hits.saturating_add(1) } else { 0 };
        self.unsynced.clear();
        match self.hits.checked_sub(HITS) {
            Some(doublings) => 1_usize.checked_shl(doublings).map_or(FILES, |n| n.min(FILES)),
            None => 0,
        }
    }
}
