//! The least that any system which honours the same syncs writes to storage.
//!
//! A sync must make the current version of each page durable that changed since the last sync. At
//! the end, the last version of each remaining page must be on storage. A version that is
//! overwritten, truncated or deleted before a sync asks for it never has to be written. [`Bound`]
//! counts these versions from the events of applications, in pages of 4096 bytes, the unit in which
//! a file system writes content.
//!
//! Metadata is not counted: neither the file system's own (inodes, directories, journal) nor
//! flashsift's. A file that has no name when it is synced counts only if it has a name at the end,
//! because a crash deletes a file without a name. Of a file that the trace meets without its names,
//! one name is assumed. Both choices can only make the bound lower.

use flashsift_events::{
    event::{Action, Event, FileId},
    ledger::Links,
    page::PAGE_BYTES,
    structure::{
        Extents,
        extents::{pages_inside, pages_touched},
    },
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::ops::Range;

/// Counts, event by event, the pages that every system has to write.
#[derive(Clone, Debug, Default)]
pub struct Bound {
    files: HashMap<FileId, File, FixedState>,
    forced_pages: u64,
    forcing_syncs: u64,
}

#[derive(Clone, Debug)]
struct File {
    /// Pages whose current version no sync has asked for.
    changed: Extents,
    links: Links,
}

impl Default for File {
    fn default() -> Self {
        Self { changed: Extents::default(), links: Links::new(true) }
    }
}

impl File {
    /// Takes the changed pages of a range, which a sync makes durable. Returns their number.
    fn sync(&mut self, pages: Range<u64>) -> u64 {
        if !self.links.is_named() {
            return 0;
        }
        let before = self.changed.covered();
        self.changed.remove(pages);
        before - self.changed.covered()
    }
}

impl Bound {
    /// Takes the next event.
    pub fn event(&mut self, event: &Event<'_>) {
        match &event.action {
            Action::Create(create) => {
                let links = Links::new(!create.name.is_empty());
                self.files.insert(create.file, File { changed: Extents::default(), links });
            }
            Action::Link { file, .. } | Action::Unbind { file, .. } => {
                self.files.entry(*file).or_default().links.take(&event.action);
            }
            Action::Gone { file } => {
                self.files.remove(file);
            }
            Action::Write { file, offset, len, sync, .. } => {
                let file = self.files.entry(*file).or_default();
                let pages = pages_touched(*offset, *len);
                file.changed.insert(pages.clone());
                if *sync {
                    let forced = file.sync(pages);
                    self.forced(forced);
                }
            }
            Action::Direct { file, offset, len, write: true, .. } => {
                let file = self.files.entry(*file).or_default();
                file.changed.insert(pages_touched(*offset, *len));
            }
            Action::Truncate { file, size } => {
                if let Some(file) = self.files.get_mut(file) {
                    file.changed.remove(size.div_ceil(PAGE_BYTES)..u64::MAX);
                }
            }
            Action::Punch { file, offset, len } => {
                if let Some(file) = self.files.get_mut(file) {
                    file.changed.remove(pages_inside(*offset, *len));
                }
            }
            Action::Sync { file, offset, len, .. } => {
                let pages = pages_touched(*offset, *len);
                let forced = self.files.get_mut(file).map_or(0, |file| file.sync(pages));
                self.forced(forced);
            }
            Action::SyncAll => {
                let forced = self.files.values_mut().map(|file| file.sync(0..u64::MAX)).sum();
                self.forced(forced);
            }
            _ => {}
        }
    }

    fn forced(&mut self, pages: u64) {
        self.forced_pages += pages;
        self.forcing_syncs += u64::from(pages > 0);
    }

    /// Returns the bytes of the versions that syncs and synchronous writes asked for.
    pub fn forced_bytes(&self) -> u64 {
        self.forced_pages.saturating_mul(PAGE_BYTES)
    }

    /// Returns the bytes that are left at the end: changed since the last sync, in files that have
    /// a name.
    pub fn left_bytes(&self) -> u64 {
        let named = self.files.values().filter(|file| file.links.is_named());
        let pages = named.map(|file| file.changed.covered()).fold(0, u64::saturating_add);
        pages.saturating_mul(PAGE_BYTES)
    }

    /// Returns the bound: no system that honours the syncs writes fewer bytes of content.
    pub fn bytes(&self) -> u64 {
        self.forced_bytes().saturating_add(self.left_bytes())
    }

    /// Returns the number of syncs and synchronous writes that found changed pages.
    pub fn forcing_syncs(&self) -> u64 {
        self.forcing_syncs
    }

    /// Re-derives every invariant.
    ///
    /// # Panics
    /// If one of them is broken.
    pub fn check(&self) {
        self.files.values().for_each(|file| file.changed.check());
        assert!(self.forcing_syncs <= self.forced_pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_events::event::{Create, MaybeOwned, Renamed};
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    const FILE: FileId = FileId(7);

    fn create(file: FileId, name: &str) -> Action<'static> {
        let name = MaybeOwned::owned_str(name);
        let create = Create { file, name, owner: None, mode: None, sync: false };
        Action::Create(MaybeOwned::owned(create))
    }

    fn write(file: FileId, offset: u64, len: u64) -> Action<'static> {
        Action::Write { file, open: None, offset, len, sync: false }
    }

    fn sync(file: FileId) -> Action<'static> {
        Action::Sync { file, offset: 0, len: u64::MAX, data_only: false }
    }

    fn unbind(file: FileId, name: &str) -> Action<'static> {
        Action::Unbind { file, name: MaybeOwned::owned_str(name) }
    }

    /// Returns forced bytes, bytes left, and forcing syncs.
    fn bound(actions: impl IntoIterator<Item = Action<'static>>) -> (u64, u64, u64) {
        let mut bound = Bound::default();
        for action in actions {
            bound.event(&Event { at_us: 0, pid: 1, tid: 1, action });
            bound.check();
        }
        assert_eq!(bound.bytes(), bound.forced_bytes() + bound.left_bytes());
        (bound.forced_bytes(), bound.left_bytes(), bound.forcing_syncs())
    }

    #[test]
    fn a_file_that_is_deleted_before_a_sync_is_not_written() {
        let actions = [
            create(FILE, "/a"),
            write(FILE, 0, 20_000),
            unbind(FILE, "/a"),
            Action::Gone { file: FILE },
        ];
        assert_eq!(bound(actions), (0, 0, 0));
    }

    #[test]
    fn a_page_is_written_once_for_each_sync_that_asks_for_a_new_version() {
        let line = |n: u64| write(FILE, n * 100, 100);
        let synced = [create(FILE, "/log"), line(0), sync(FILE), line(1), line(2), sync(FILE)];
        // The third sync finds nothing to write.
        assert_eq!(bound(synced.clone().into_iter().chain([sync(FILE)])), (8192, 0, 2));
        let unsynced = [create(FILE, "/log"), line(0), line(1), line(2)];
        assert_eq!(bound(unsynced), (0, 4096, 0));
    }

    #[test]
    fn each_synced_version_behind_a_rename_counts() {
        let version = |n: u64| {
            let (file, names) = (FileId(n), Renamed::owned("/new", "/state"));
            let replaced = FileId(n.wrapping_sub(1));
            [
                create(file, "/new"),
                write(file, 0, 4000),
                sync(file),
                unbind(replaced, "/state"),
                Action::Gone { file: replaced },
                Action::Rename { file, names },
            ]
        };
        assert_eq!(bound((1..=300).flat_map(version)), (300 * 4096, 0, 300));
    }

    #[test]
    fn a_file_without_a_name_counts_only_if_it_gets_one() {
        let nameless = [create(FILE, ""), write(FILE, 0, 1), sync(FILE)];
        assert_eq!(bound(nameless.clone()), (0, 0, 0));
        let linked = Action::Link { file: FILE, name: MaybeOwned::owned_str("/a") };
        assert_eq!(bound(nameless.into_iter().chain([linked])), (0, 4096, 0));
    }

    #[test]
    fn a_synchronous_write_is_forced_and_a_range_is_synced_alone() {
        let synchronous = Action::Write { file: FILE, open: None, offset: 0, len: 1, sync: true };
        assert_eq!(bound([synchronous]), (4096, 0, 1));
        let range = Action::Sync { file: FILE, offset: 4096, len: 1, data_only: false };
        assert_eq!(bound([write(FILE, 0, 12_288), range]), (4096, 8192, 1));
    }

    /// The definition: each page is a version of its own, and nothing is a range.
    #[derive(Default)]
    struct Naive {
        changed: BTreeSet<(u64, u64)>,
        names: BTreeMap<u64, u32>,
        forced: u64,
        syncs: u64,
    }

    impl Naive {
        fn named(&self, file: u64) -> bool {
            *self.names.get(&file).unwrap_or(&1) > 0
        }

        fn sync(&mut self, asked: impl Fn(u64, u64) -> bool) {
            let all: Vec<_> = self.changed.iter().copied().collect();
            let mut found = 0;
            for (file, page) in all {
                if self.named(file) && asked(file, page) {
                    self.changed.remove(&(file, page));
                    found += 1;
                }
            }
            self.forced += found;
            self.syncs += u64::from(found > 0);
        }

        fn apply(&mut self, (what, file, offset, len): (u32, u64, u64, u64)) -> Action<'static> {
            let (id, open) = (FileId(file), None);
            let bytes = offset..offset + len;
            let touches = |page: u64| bytes.clone().any(|byte| byte / PAGE_BYTES == page);
            let first_bytes = |page: u64| page * PAGE_BYTES..(page + 1) * PAGE_BYTES;
            match what {
                0..=4 => {
                    self.changed
                        .extend((0..40).filter(|page| touches(*page)).map(|page| (file, page)));
                    if what == 4 {
                        self.sync(|of, page| of == file && touches(page));
                    }
                    match what {
                        3 => Action::Direct { file: id, open, offset, len, write: true },
                        _ => Action::Write { file: id, open, offset, len, sync: what == 4 },
                    }
                }
                5 => {
                    self.sync(|of, page| of == file && touches(page));
                    Action::Sync { file: id, offset, len, data_only: false }
                }
                6 => {
                    self.sync(|_, _| true);
                    Action::SyncAll
                }
                7 => {
                    self.changed.retain(|(of, page)| *of != file || page * PAGE_BYTES < offset);
                    Action::Truncate { file: id, size: offset }
                }
                8 => {
                    self.changed.retain(|(of, page)| {
                        *of != file || !first_bytes(*page).all(|byte| bytes.contains(&byte))
                    });
                    Action::Punch { file: id, offset, len }
                }
                9 => {
                    *self.names.entry(file).or_insert(1) += 1;
                    Action::Link { file: id, name: MaybeOwned::owned_str("/l") }
                }
                10 | 11 => {
                    let names = self.names.entry(file).or_insert(1);
                    *names = names.saturating_sub(1);
                    unbind(id, "/l")
                }
                12 => {
                    self.changed.retain(|(of, _)| *of != file);
                    self.names.insert(file, u32::from(len % 2 == 0));
                    create(id, if len % 2 == 0 { "/c" } else { "" })
                }
                13 => {
                    self.changed.retain(|(of, _)| *of != file);
                    self.names.remove(&file);
                    Action::Gone { file: id }
                }
                _ => Action::Read { file: id, open, offset, len },
            }
        }
    }

    proptest! {
        #[test]
        fn as_the_naive_model(
            steps in prop::collection::vec((0..15_u32, 0..3_u64, 0..40_000_u64, 0..20_000_u64), 0..60)
        ) {
            let (mut naive, mut bound) = (Naive::default(), Bound::default());
            for step in steps {
                let action = naive.apply(step);
                bound.event(&Event { at_us: 0, pid: 1, tid: 1, action });
                bound.check();
                let left = naive.changed.iter().filter(|(file, _)| naive.named(*file)).count();
                prop_assert_eq!(bound.forced_bytes(), naive.forced * PAGE_BYTES);
                prop_assert_eq!(bound.left_bytes(), left as u64 * PAGE_BYTES);
                prop_assert_eq!(bound.forcing_syncs(), naive.syncs);
            }
        }
    }
}
