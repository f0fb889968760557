//! Model of the files that BACKING may hold after a crash: the history of operations and of
//! promised durability.

use super::{Node, Tree};
use std::collections::BTreeMap;

const PAGE: usize = 4096;

/// One moment of a file.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Moment {
    pub(super) bytes: Vec<u8>,
    pub(super) mode: u32,
}

/// The object that a name stood for at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Entry {
    Nothing,
    Directory,
    File(usize),
}

#[derive(Default)]
struct File {
    moments: Vec<Moment>,
    /// The first moment that may be found: an earlier one was promised to be over.
    lasts: Option<usize>,
    /// It stands in BACKING, and what is written goes there.
    in_place: bool,
    /// Written to in place and not yet synced: after a power cut its bytes may be any mixture.
    torn: bool,
    /// The daemon died in the middle of a write.
    half_written: bool,
}

#[derive(Default)]
struct Name {
    entries: Vec<Entry>,
    first: usize,
}

/// History of every name and file. An operation is recorded *before* it is tried: if it is cut
/// short, it may have happened or not.
pub(super) struct Model {
    /// Power is lost, too.
    power: bool,
    /// Write-back, or the death of the daemon, may happen at any moment, not only at those that the
    /// test knows of.
    anytime: bool,
    files: Vec<File>,
    names: BTreeMap<String, Name>,
}

/// Whether each page is that of one of these moments, and the last one ends there or is whole.
fn are_pages_of(bytes: &[u8], moments: &[Moment]) -> bool {
    let ends = |moment: &Moment| {
        bytes.len() == moment.bytes.len()
            || (bytes.len().is_multiple_of(PAGE) && bytes.len() < moment.bytes.len())
    };
    let mut pages = (0..bytes.len()).step_by(PAGE).map(|at| at..(at + PAGE).min(bytes.len()));
    moments.iter().any(ends)
        && pages.all(|page| {
            moments.iter().any(|it| it.bytes.get(page.clone()) == Some(&bytes[page.clone()]))
        })
}

impl Model {
    pub(super) fn new(power: bool, anytime: bool) -> Self {
        Self { power, anytime, files: Vec::new(), names: BTreeMap::new() }
    }

    pub(super) fn now(&self, name: &str) -> Entry {
        self.names.get(name).map_or(Entry::Nothing, |name| *name.entries.last().unwrap())
    }

    fn file(&self, name: &str) -> usize {
        match self.now(name) {
            Entry::File(file) => file,
            other => panic!("{name} is {other:?}"),
        }
    }

    fn set(&mut self, name: &str, entry: Entry) {
        let new = || Name { entries: vec![Entry::Nothing], first: 0 };
        self.names.entry(name.to_owned()).or_insert_with(new).entries.push(entry);
    }

    pub(super) fn directory(&mut self, name: &str) {
        self.set(name, Entry::Directory);
    }

    pub(super) fn create(&mut self, name: &str, mode: u32) {
        let moments = vec![Moment { bytes: Vec::new(), mode }];
        self.files.push(File { moments, ..File::default() });
        self.set(name, Entry::File(self.files.len() - 1));
    }

    /// A change of a file's bytes or mode.
    pub(super) fn change(&mut self, name: &str, change: impl FnOnce(&mut Moment)) {
        let number = self.file(name);
        let file = &mut self.files[number];
        let mut moment = file.moments.last().unwrap().clone();
        change(&mut moment);
        file.torn |=
            (file.in_place || self.anytime) && moment.bytes != file.moments.last().unwrap().bytes;
        file.moments.push(moment);
    }

    pub(super) fn half_written(&mut self, name: &str) {
        let file = self.file(name);
        self.files[file].half_written = true;
    }

    pub(super) fn link(&mut self, from: &str, to: &str) {
        self.set(to, self.now(from));
    }

    pub(super) fn unlink(&mut self, name: &str) {
        self.set(name, Entry::Nothing);
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) {
        let moved = self.now(from);
        self.set(to, moved);
        self.set(from, Entry::Nothing);
        let below = format!("{from}/");
        let inside: Vec<_> =
            self.names.keys().filter(|name| name.starts_with(&below)).cloned().collect();
        for name in inside {
            self.set(&format!("{to}/{}", &name[below.len()..]), self.now(&name));
            self.set(&name, Entry::Nothing);
        }
    }

    pub(super) fn exchange(&mut self, one: &str, other: &str) {
        let (first, second) = (self.now(one), self.now(other));
        self.set(one, second);
        self.set(other, first);
    }

    /// fsync of a file: its bytes and the names that it has last.
    pub(super) fn synced(&mut self, name: &str) {
        let file = self.file(name);
        self.lasts(file);
        for name in
            self.names.values_mut().filter(|name| name.entries.last() == Some(&Entry::File(file)))
        {
            name.first = name.entries.len() - 1;
        }
    }

    fn lasts(&mut self, file: usize) {
        let file = &mut self.files[file];
        file.lasts = Some(file.moments.len() - 1);
        (file.in_place, file.torn) = (true, false);
    }

    /// fsync of a directory: its names last, as they are.
    pub(super) fn names_synced(&mut self, directory: &str) {
        let within =
            |name: &str| name.rsplit_once('/').map_or("", |(parent, _)| parent) == directory;
        for (_, name) in self.names.iter_mut().filter(|(name, _)| within(name)) {
            name.first = name.entries.len() - 1;
        }
    }

    /// Everything is written back: from then on the daemon's end loses nothing. A power cut may, as
    /// on any file system without a sync.
    pub(super) fn settled(&mut self) {
        if self.power {
            self.files.iter_mut().for_each(|file| file.in_place = true);
            return;
        }
        for name in self.names.values_mut() {
            name.first = name.entries.len() - 1;
        }
        (0..self.files.len()).for_each(|file| self.lasts(file));
    }

    /// Holds what was found against the promises; says what breaks them.
    pub(super) fn check(&self, found: &Tree) -> Result<(), String> {
        if let Some(name) = found.keys().find(|name| !self.names.contains_key(*name)) {
            return Err(format!("{name} was found, and no process ever created it"));
        }
        for (path, name) in &self.names {
            let may_be = &name.entries[name.first..];
            let fits = |entry: &Entry| match (entry, found.get(path)) {
                (Entry::Nothing, None) | (Entry::Directory, Some(Node::Directory)) => true,
                (Entry::File(file), Some(node)) => self.is(*file, node),
                _ => false,
            };
            if !may_be.iter().any(fits) {
                let may_be: Vec<_> = may_be.iter().map(|entry| self.tell(entry)).collect();
                return Err(format!(
                    "{path} is {:?}; it may be one of {may_be:?}",
                    found.get(path)
                ));
            }
        }
        // After a rename, the name may stand for the old or the new file; a durable file may not
        // vanish between them.
        for (number, _) in self.files.iter().enumerate().filter(|(_, file)| file.lasts.is_some()) {
            let entry = Entry::File(number);
            if !self.names.values().any(|name| name.entries.last() == Some(&entry)) {
                continue;
            }
            let mut had = self.names.iter().filter(|(_, name)| name.entries.contains(&entry));
            if !had.any(|(path, _)| found.get(path).is_some_and(|node| self.is(number, node))) {
                return Err(format!(
                    "file {number}, {}, is under none of its names",
                    self.tell(&entry)
                ));
            }
        }
        Ok(())
    }

    fn is(&self, file: usize, node: &Node) -> bool {
        let file = &self.files[file];
        let Node::File { bytes, mode } = node else { return false };
        let unknown = self.power && file.torn || self.anytime && file.half_written;
        let moments = &file.moments[file.lasts.unwrap_or(0)..];
        // The daemon may die while it writes the pages that waited (Mount 80). A kill of 550 left
        // the first three of four.
        let some_pages = self.anytime && file.torn && are_pages_of(bytes, moments);
        moments
            .iter()
            .any(|moment| moment.mode == *mode && (moment.bytes == *bytes || unknown || some_pages))
    }

    fn tell(&self, entry: &Entry) -> String {
        match entry {
            Entry::File(file) => {
                let file = &self.files[*file];
                let moments = file.moments[file.lasts.unwrap_or(0)..].iter();
                let texts: Vec<_> = moments
                    .map(|m| {
                        format!(
                            "{} bytes {:?}… {:o}",
                            m.bytes.len(),
                            &m.bytes[..m.bytes.len().min(4)],
                            m.mode
                        )
                    })
                    .collect();
                texts.join(" or ")
            }
            other => format!("{other:?}"),
        }
    }
}
