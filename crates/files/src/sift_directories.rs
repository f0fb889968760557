//! The directories whose files a sifter may drop, and those whose files it may drop if a pattern
//! names them.
//!
//! A file belongs to the directory of the name that it was created with. Directories with
//! four or more siblings whose names are hexadecimal digits count as their parent:
//! `cache/00` to `cache/ff` are one cache.
//!
//! A file is read again if a read comes [`IDLE_US`] or more after the use before: by then Linux has
//! written it to flash, and a sifter may have dropped it.

use crate::{
    flusher::{Flusher, FlusherSettings},
    sift::Droppable,
};
use flashsift_events::{
    event::{Action, Event, FileId, Micros},
    page::PAGE_BYTES,
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::{cmp::Reverse, collections::BTreeMap};

/// Pause before a read, from which on the file counts as read again: the age at which Linux writes
/// dirty pages, microseconds.
pub const IDLE_US: Micros = 30_000_000;

/// Fewest directories named in hexadecimal digits that count as their parent.
const FANNED_OUT_MIN: usize = 4;

/// Files that a trace creates in one directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiftDirectory {
    /// Its path.
    pub path: Box<str>,
    /// Files created in it.
    pub files: u64,
    /// Bytes that applications wrote to these files.
    pub written_bytes: u64,
    /// File data that reaches flash without a sifter, bytes in whole pages. In a directory of
    /// droppable files, also that of files older than the trace.
    pub flash_bytes: u64,
    /// Files that were read again after [`IDLE_US`] or more.
    pub read_again_files: u64,
    /// Longest pause before a read of each file that was read again, ascending, microseconds.
    pauses_us: Vec<Micros>,
}

impl SiftDirectory {
    /// Returns the median of the longest pause before a read, over the files that are read again,
    /// in microseconds.
    pub fn pause_us_median(&self) -> Option<Micros> {
        self.pauses_us.get(self.pauses_us.len().saturating_sub(1) / 2).copied()
    }

    /// Returns the pattern that makes its files droppable.
    pub fn pattern(&self) -> String {
        pattern(&self.path)
    }

    fn merge(&mut self, other: Self) {
        self.files += other.files;
        self.written_bytes += other.written_bytes;
        self.flash_bytes += other.flash_bytes;
        self.read_again_files += other.read_again_files;
        self.pauses_us.extend(other.pauses_us);
    }
}

/// Returns the pattern of the files in a directory and in those below it.
fn pattern(directory: &str) -> String {
    format!("{}/*", directory.trim_end_matches('/'))
}

/// The directories of a trace, the most bytes at flash first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiftDirectories {
    /// Directories of files that may be dropped.
    pub droppable: Vec<SiftDirectory>,
    /// Directories of files that may be dropped if [`SiftDirectory::pattern`] names them. Files
    /// that applications sync, databases and indexes are left out: no pattern makes them droppable.
    pub candidates: Vec<SiftDirectory>,
}

/// The facts about a file.
struct Seen {
    directory: Box<str>,
    is_droppable: bool,
    is_created: bool,
    /// No pattern makes it droppable, or an application syncs it.
    is_kept: bool,
    written_bytes: u64,
    flash_bytes: u64,
    used_us: Option<Micros>,
    pause_us: Micros,
}

impl SiftDirectories {
    /// Looks at a whole trace. Files with these names are droppable.
    pub fn new(events: &[Event<'_>], droppable: &Droppable) -> Self {
        let mut files: HashMap<FileId, Seen, FixedState> = HashMap::default();
        let mut flusher = Flusher::new(FlusherSettings::default()).with_log();
        let named = |files: &mut HashMap<FileId, Seen, FixedState>, file, name: &str, created| {
            let is_droppable = droppable.has(name);
            let directory = directory(name);
            let fresh = || Seen {
                directory: directory.into(),
                is_droppable,
                is_created: created,
                is_kept: !Droppable::matching(&[pattern(directory)]).has(name),
                written_bytes: 0,
                flash_bytes: 0,
                used_us: None,
                pause_us: 0,
            };
            let seen = files.entry(file).or_insert_with(fresh);
            if is_droppable && !seen.is_droppable {
                (seen.is_droppable, seen.directory) = (true, directory.into());
            }
        };
        for event in events {
            match &event.action {
                Action::Create(create) => named(&mut files, create.file, &create.name, true),
                Action::Bind { file, name } => named(&mut files, *file, name, false),
                action => {
                    if let Some(seen) = action.file().and_then(|file| files.get_mut(&file)) {
                        seen.handle(event.at_us, action);
                    }
                }
            }
            flusher.handle(event);
            charge(&mut flusher, &mut files);
        }
        let end_us = events.last().map_or(0, |event| event.at_us);
        flusher.advance(end_us.saturating_add(2 * flusher.settings().expire_us));
        charge(&mut flusher, &mut files);
        let (mut droppable, mut candidates) = (BTreeMap::new(), BTreeMap::new());
        for seen in files.into_values() {
            let into = match (seen.is_droppable, seen.is_created && !seen.is_kept) {
                (true, _) => &mut droppable,
                (false, true) => &mut candidates,
                (false, false) => continue,
            };
            seen.count(into);
        }
        Self { droppable: ranked(droppable), candidates: ranked(candidates) }
    }
}

impl Seen {
    fn handle(&mut self, now: Micros, action: &Action<'_>) {
        match action {
            Action::Open { created: true, .. } => self.is_created = true,
            Action::Sync { .. } => self.is_kept = true,
            Action::Read { .. } | Action::Direct { write: false, .. } => {
                let idle_us = self.used_us.map_or(0, |used_us| now.saturating_sub(used_us));
                self.pause_us = self.pause_us.max(idle_us);
                self.used_us = Some(now);
            }
            Action::Write { len, .. } | Action::Direct { len, .. } => {
                self.written_bytes += len;
                self.is_kept |= matches!(action, Action::Write { sync: true, .. });
                self.used_us = Some(now);
            }
            _ => {}
        }
    }

    fn count(self, into: &mut BTreeMap<Box<str>, SiftDirectory>) {
        let directory = into.entry(self.directory).or_default();
        directory.flash_bytes += self.flash_bytes;
        if self.is_created {
            directory.files += 1;
            directory.written_bytes += self.written_bytes;
            if self.pause_us >= IDLE_US {
                directory.read_again_files += 1;
                directory.pauses_us.push(self.pause_us);
            }
        }
    }
}

fn charge(flusher: &mut Flusher, files: &mut HashMap<FileId, Seen, FixedState>) {
    for reached in flusher.drain_log() {
        if let Some(seen) = files.get_mut(&reached.file) {
            seen.flash_bytes += reached.pages * PAGE_BYTES;
        }
    }
}

/// Returns the directory of a path.
fn directory(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) => "/",
        Some((directory, _)) => directory,
        None => ".",
    }
}

/// Returns the parent of a directory whose own name is of hexadecimal digits.
fn fanned_out(path: &str) -> Option<&str> {
    let (parent, name) = path.rsplit_once('/').filter(|(parent, _)| !parent.is_empty())?;
    let is_hex = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then_some(parent)
}

/// Joins directories with their parent where there are many, and orders by bytes at flash.
fn ranked(mut all: BTreeMap<Box<str>, SiftDirectory>) -> Vec<SiftDirectory> {
    let depth = |path: &str| path.bytes().filter(|byte| *byte == b'/').count();
    let deepest = all.keys().map(|path| depth(path)).max().unwrap_or(0);
    for level in (1..=deepest).rev() {
        let mut by_parent: BTreeMap<Box<str>, Vec<Box<str>>> = BTreeMap::new();
        for path in all.keys().filter(|path| depth(path) == level) {
            if let Some(parent) = fanned_out(path) {
                by_parent.entry(parent.into()).or_default().push(path.clone());
            }
        }
        for (parent, children) in by_parent {
            if children.len() >= FANNED_OUT_MIN {
                let found = children.iter().filter_map(|path| all.remove(path));
                let found: Vec<SiftDirectory> = found.collect();
                let into = all.entry(parent).or_default();
                found.into_iter().for_each(|child| into.merge(child));
            }
        }
    }
    let mut ranked: Vec<SiftDirectory> = all
        .into_iter()
        .map(|(path, mut directory)| {
            directory.pauses_us.sort_unstable();
            SiftDirectory { path, ..directory }
        })
        .collect();
    ranked.sort_by_key(|directory| Reverse(directory.flash_bytes));
    ranked
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_events::event::{Create, MaybeOwned};

    fn at(second: u64, action: Action<'static>) -> Event<'static> {
        Event { at_us: second * 1_000_000, pid: 0, tid: 0, action }
    }

    fn created(second: u64, file: u64, name: &str, bytes: u64) -> [Event<'static>; 2] {
        let name = MaybeOwned::owned_str(name);
        let create = Create { file: FileId(file), name, owner: None, mode: None, sync: false };
        [at(second, Action::Create(MaybeOwned::owned(create))), at(second, write(file, bytes))]
    }

    fn write(file: u64, len: u64) -> Action<'static> {
        Action::Write { file: FileId(file), open: None, offset: 0, len, sync: false }
    }

    fn read(second: u64, file: u64) -> Event<'static> {
        at(second, Action::Read { file: FileId(file), open: None, offset: 0, len: 1 })
    }

    fn bind(second: u64, file: u64, name: &str) -> Event<'static> {
        let name = MaybeOwned::owned_str(name);
        at(second, Action::Bind { file: FileId(file), name })
    }

    fn found(mut events: Vec<Event<'static>>, patterns: &[String]) -> SiftDirectories {
        events.sort_by_key(|event| event.at_us);
        SiftDirectories::new(&events, &Droppable::matching(patterns))
    }

    fn row(directory: &SiftDirectory) -> (&str, [u64; 4], Option<u64>) {
        let SiftDirectory { path, files, written_bytes, flash_bytes, read_again_files, .. } =
            directory;
        let counts = [*files, *written_bytes, *flash_bytes, *read_again_files];
        (path, counts, directory.pause_us_median())
    }

    const KIB: u64 = 1024;
    const SECOND: u64 = 1_000_000;

    // Promises: Sift 14.
    #[test]
    fn directories_by_hand() {
        let mut events = Vec::new();
        // Read at once, after 29 s, and after 40 s and 100 s.
        events.extend(created(0, 1, "/a/cache/x", 5 * KIB));
        events.extend([read(0, 1), read(29, 1)]);
        events.extend(created(0, 2, "/a/cache/y", 4 * KIB));
        events.extend([read(40, 2), read(140, 2), read(150, 2)]);
        // Deleted before Linux writes it; older than the trace.
        events.extend(created(10, 3, "/a/cache/z", 4 * KIB));
        events.push(at(20, Action::Gone { file: FileId(3) }));
        events.extend([bind(30, 4, "/a/cache/old"), at(30, write(4, KIB))]);
        // Not in a cache: a candidate, a synced file, a database, and a file without writes.
        events.extend(created(0, 5, "/a/images/1", 9 * KIB));
        events.extend(created(0, 6, "/a/notes/1", 4 * KIB));
        let (file, len) = (FileId(6), u64::MAX);
        events.push(at(1, Action::Sync { file, offset: 0, len, data_only: false }));
        events.extend(created(0, 7, "/a/notes/names.db", 4 * KIB));
        events.extend([bind(0, 8, "/a/old/1"), at(0, write(8, KIB))]);
        let caches = found(events.clone(), &[]);
        let droppable: Vec<_> = caches.droppable.iter().map(row).collect();
        let cache = [3, 13 * KIB, 16 * KIB, 1];
        assert_eq!(droppable, [("/a/cache", cache, Some(100 * SECOND))]);
        let candidates: Vec<_> = caches.candidates.iter().map(row).collect();
        assert_eq!(candidates, [("/a/images", [1, 9 * KIB, 12 * KIB, 0], None)]);
        assert_eq!(caches.candidates[0].pattern(), "/a/images/*");
        // The pattern that is named makes it droppable, and the cache a candidate.
        let images = found(events, &[caches.candidates[0].pattern()]);
        assert_eq!(images.droppable, caches.candidates);
        assert_eq!(&*images.candidates[0].path, "/a/cache");
    }

    /// Times without creations: an open creates the file that a name was bound to.
    // Promises: Sift 14.
    #[test]
    fn a_file_that_an_open_creates_is_created() {
        let open = |file| Action::Open { file: FileId(file), open: None, created: true };
        let events = vec![
            bind(0, 1, "/cache/x"),
            at(0, open(1)),
            at(0, write(1, 10)),
            bind(0, 2, "/pictures/x"),
            at(0, open(2)),
            at(0, write(2, 20)),
        ];
        let found = found(events, &[]);
        assert_eq!(row(&found.droppable[0]), ("/cache", [1, 10, 4 * KIB, 0], None));
        assert_eq!(row(&found.candidates[0]), ("/pictures", [1, 20, 4 * KIB, 0], None));
    }

    // Promises: Sift 14.
    #[test]
    fn directories_that_are_fanned_out_are_one() {
        let path = |tile: u64| format!("/m/tiles/{}/{}/t", 10 + tile / 5, tile);
        let mut events: Vec<_> =
            (0..25).flat_map(|tile| created(tile, tile, &path(tile), KIB)).collect();
        // Three are too few, and words stay as they are.
        for (n, name) in ["/p/1/x", "/p/2/x", "/p/3/x", "/w/one/x", "/w/two/x"].iter().enumerate() {
            events.extend(created(0, 100 + n as u64, name, KIB));
        }
        let found = found(events, &[]);
        let paths: Vec<_> = found.candidates.iter().map(|one| (&*one.path, one.files)).collect();
        let alone = [("/p/1", 1), ("/p/2", 1), ("/p/3", 1), ("/w/one", 1), ("/w/two", 1)];
        assert_eq!(paths, [&[("/m/tiles", 25)][..], &alone].concat());
    }

    // Promises: Sift 14.
    #[test]
    fn the_median_of_an_even_number_is_the_lower_one() {
        let directory =
            |pauses_us: &[u64]| SiftDirectory { pauses_us: pauses_us.into(), ..Default::default() };
        assert_eq!(directory(&[]).pause_us_median(), None);
        assert_eq!(directory(&[3]).pause_us_median(), Some(3));
        assert_eq!(directory(&[3, 5]).pause_us_median(), Some(3));
        assert_eq!(directory(&[3, 5, 9]).pause_us_median(), Some(5));
    }
}
