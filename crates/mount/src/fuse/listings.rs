//! Open directories: the entries of each when its reader last began.

use crate::fs::Fs;
use crate::fs::types::{Entry, Ino};
use fuser::FileHandle;
use parking_lot::Mutex;
use rustix::io::{Errno, Result};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(super) struct Listings {
    open: Mutex<HashMap<u64, Arc<Mutex<Listing>>>>,
    next: AtomicU64,
}

#[derive(Default)]
struct Listing {
    parent: Ino,
    entries: Vec<Entry>,
    read: bool,
}

impl Listings {
    /// Opens a directory, whose entries are read at the first request.
    pub(super) fn open(&self) -> FileHandle {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.lock().insert(handle, Arc::default());
        FileHandle(handle)
    }

    pub(super) fn close(&self, handle: FileHandle) {
        self.open.lock().remove(&handle.0);
    }

    /// Passes on the entries from `offset`, each with the next offset, until `each` has enough.
    pub(super) fn each_entry(
        &self,
        fs: &Fs,
        ino: Ino,
        handle: FileHandle,
        offset: u64,
        mut each: impl FnMut(&Entry, u64) -> bool,
    ) -> Result<()> {
        let listing = self.open.lock().get(&handle.0).cloned().ok_or(Errno::BADF)?;
        let mut listing = listing.lock();
        if offset == 0 || !listing.read {
            let (parent, entries) = fs.list(ino)?;
            *listing = Listing { parent, entries, read: true };
        }
        let directory = |ino, name: &str| Entry {
            ino,
            kind: rustix::fs::FileType::Directory,
            name: name.into(),
        };
        let dots = [directory(ino, "."), directory(listing.parent, "..")];
        let all = dots.iter().chain(&listing.entries).enumerate().skip(offset as usize);
        for (at, entry) in all {
            if each(entry, at as u64 + 1) {
                break;
            }
        }
        Ok(())
    }
}
