//! Rewrites the requests of SQLite's rollback journals into those of its write-ahead log.
//!
//! Source: sqlite.org, "Write-Ahead Logging" and the file format, §4: a transaction appends a frame
//! of 24 bytes and the page for each changed page to the log, and syncs the log, as with
//! `synchronous=FULL`. A log of 1,000 pages or more is copied into the database at the next commit:
//! the log is synced, each page is written once, the database is synced, and the log begins again.
//!
//! The rollback journal writes the database's first page in each transaction, the log only when it
//! changes. This is not known here, so the page counts each time. A rollback journal is durable
//! when its directory was synced, which a log needs once, when it is made.

use flashsift_events::event::{Action, Create, Event, FileId, MaybeOwned};
use std::collections::{BTreeMap, BTreeSet};

const FRAME_BYTES: u64 = 24;
const HEADER_BYTES: u64 = 32;
/// `wal_autocheckpoint`.
const PAGES_MAX: usize = 1_000;

pub(super) struct Rewriter<'a> {
    database: FileId,
    journals: &'a BTreeSet<FileId>,
    /// The log's name; empty if the database has none.
    name: Box<str>,
    log: FileId,
    is_made: bool,
    /// End of the log.
    end: u64,
    frames: usize,
    /// Pages in the log: offset and length.
    pages: BTreeMap<u64, u64>,
    /// Whether something was logged since the last commit.
    open: bool,
    /// The last thread that used a journal.
    journals_tid: Option<u32>,
}

impl<'a> Rewriter<'a> {
    pub(super) fn new(
        database: FileId,
        journals: &'a BTreeSet<FileId>,
        events: &[Event<'_>],
    ) -> Self {
        let last = events.iter().filter_map(|event| event.action.file()).max();
        let log = FileId(last.map_or(0, |last| last.0.saturating_add(1)));
        let name = events.iter().find_map(|event| match &event.action {
            Action::Bind { file, name } if *file == database => Some(format!("{}-wal", &**name)),
            Action::Create(create) if create.file == database => {
                Some(format!("{}-wal", &*create.name))
            }
            _ => None,
        });
        Self {
            database,
            journals,
            name: name.unwrap_or_default().into(),
            log,
            is_made: false,
            end: 0,
            frames: 0,
            pages: BTreeMap::new(),
            open: false,
            journals_tid: None,
        }
    }

    /// Appends what becomes of an event.
    pub(super) fn rewrite(&mut self, event: &Event<'static>, out: &mut Vec<Event<'static>>) {
        if event.action.file().is_some_and(|file| self.journals.contains(&file)) {
            self.journals_tid = Some(event.tid);
            return;
        }
        let as_event = |action| Event { action, ..event.clone() };
        match event.action {
            Action::Write { file, offset, len, .. } if file == self.database && len > 0 => {
                if !self.is_made {
                    self.is_made = true;
                    let create = Create {
                        file: self.log,
                        name: MaybeOwned::owned_str(&self.name),
                        owner: None,
                        mode: None,
                        sync: false,
                    };
                    out.push(as_event(Action::Create(MaybeOwned::owned(create))));
                }
                if self.end == 0 {
                    out.push(as_event(write(self.log, 0, HEADER_BYTES)));
                    self.end = HEADER_BYTES;
                }
                out.push(as_event(write(self.log, self.end, FRAME_BYTES + len)));
                self.end += FRAME_BYTES + len;
                self.frames += 1;
                self.pages.insert(offset, len);
                self.open = true;
            }
            Action::Sync { file, .. } if file == self.database => {
                if !std::mem::take(&mut self.open) {
                    return;
                }
                out.push(as_event(sync(self.log)));
                if self.frames >= PAGES_MAX {
                    for (offset, len) in std::mem::take(&mut self.pages) {
                        out.push(as_event(write(self.database, offset, len)));
                    }
                    out.push(as_event(sync(self.database)));
                    (self.end, self.frames) = (0, 0);
                }
            }
            Action::SyncDirectory { ref path }
                if self.journals_tid == Some(event.tid) && self.is_above(path) => {}
            _ => out.push(event.clone()),
        }
    }

    /// Whether this is the directory of the database.
    fn is_above(&self, directory: &str) -> bool {
        let above = self.name.rsplit_once('/').map(|(above, _)| above);
        above.is_some_and(|above| above == directory.trim_end_matches('/'))
    }
}

fn write(file: FileId, offset: u64, len: u64) -> Action<'static> {
    Action::Write { file, open: None, offset, len, sync: false }
}

/// SQLite calls `fdatasync`.
fn sync(file: FileId) -> Action<'static> {
    Action::Sync { file, offset: 0, len: u64::MAX, data_only: true }
}
