//! The facts, beside pages, that a file system's metadata depends on: names, sizes, times, syncs.
//!
//! A side table of a trace ([`Tables::operations`](super::Tables::operations)). Directories get
//! numbers. Traces have no event for a new directory, so a directory that the trace first meets
//! when it creates a file in it, or moves one there, counts as made at that moment. It counts as
//! older if a file below it was there before.

use flashsift_events::{
    event::{Action, Event, FileId},
    page::PAGE_BYTES,
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::{collections::BTreeMap, hash::BuildHasher};

/// The number of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DirectoryId(pub u32);

/// The root of the file system: the deepest directory that contains every name of the trace.
pub const ROOT: DirectoryId = DirectoryId(0);

/// An entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    /// The directory.
    pub directory: DirectoryId,
    /// Hash of the name.
    pub hash: u32,
    /// Length of the name in bytes.
    pub bytes: u8,
}

/// A directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Its own entry; `None` for the root.
    pub entry: Option<Entry>,
    /// The trace made it.
    pub made: bool,
}

/// The inode of a file, as its file system has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownInode {
    /// Its number, from 1. Those of different file systems differ by at least 2³².
    pub number: u64,
    /// Extents of its data.
    pub extents: usize,
}

/// The inodes of files.
pub type KnownInodes = BTreeMap<FileId, KnownInode>;

/// One operation, at its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Microseconds from the beginning of the trace.
    pub at_us: u64,
    /// The number of steps that come before it.
    pub after_steps: u32,
    /// The change.
    pub kind: OperationKind,
}

/// The kinds of operations. Offsets and sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationKind {
    /// A directory is made.
    MakeDirectory(DirectoryId),
    /// A directory gets another entry: it is renamed.
    MoveDirectory {
        /// The directory.
        directory: DirectoryId,
        /// Its entry before.
        from: Entry,
        /// Its entry after.
        to: Entry,
    },
    /// A file is there before the trace. Its entry, where the trace says.
    Exists(FileId, Option<Entry>),
    /// A file is created; without an entry for a file without a name.
    Create(FileId, Option<Entry>),
    /// A file gets a further name.
    Link(FileId, Entry),
    /// A file loses a name.
    Unlink(FileId, Entry),
    /// A name of a file changes.
    Rename {
        /// The file.
        file: FileId,
        /// Before.
        from: Entry,
        /// After.
        to: Entry,
        /// Another file had that name until now.
        replaces: bool,
    },
    /// A descriptor is closed.
    Close(FileId),
    /// The last name and the last descriptor of a file are gone.
    Gone(FileId),
    /// A read.
    Read(FileId),
    /// A write that ends here.
    Write(FileId, u64),
    /// The file ends here now.
    Truncate(FileId, u64),
    /// A hole is punched.
    Punch(FileId),
    /// A direct write begins this page, which held nothing.
    Fill(FileId, u64),
    /// The size of a file at the beginning.
    Size(FileId, u64),
    /// A sync of a file.
    Sync {
        /// The file.
        file: FileId,
        /// Times alone need not become durable.
        data_only: bool,
    },
    /// A sync of a directory.
    SyncDirectory(DirectoryId),
    /// A sync of everything.
    SyncAll,
}

/// Every operation of a trace and its directories.
#[derive(Debug, Default)]
pub struct Operations {
    list: Vec<Operation>,
    directories: Vec<Directory>,
    inodes: KnownInodes,
}

impl Operations {
    /// Returns the inodes that are known.
    pub fn inodes(&self) -> &KnownInodes {
        &self.inodes
    }

    pub(super) fn know_inodes(&mut self, inodes: KnownInodes) {
        self.inodes = inodes;
    }

    /// Returns the operations in the order of the trace.
    pub fn list(&self) -> &[Operation] {
        &self.list
    }

    /// Returns the directories by number.
    pub fn directories(&self) -> &[Directory] {
        &self.directories
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.list.capacity() * size_of::<Operation>()
            // Nodes of a tree are at least half full.
            + 2 * self.inodes.len() * size_of::<(FileId, KnownInode)>()
            + self.directories.capacity() * size_of::<Directory>()
    }

    /// Steps were left out or added: `after(n)` is the new number of the first `n` ones.
    pub(super) fn renumber(&mut self, after: impl Fn(u32) -> u32) {
        for operation in &mut self.list {
            operation.after_steps = after(operation.after_steps);
        }
        self.list.shrink_to_fit();
    }
}

/// Collects the operations of a trace.
///
/// [`Collector::streaming`] is for users that take the operations of each event at once
/// ([`Collector::drain`]). The root of the file system is then not known, so the directories above
/// the first name count as older than the trace.
#[derive(Default)]
pub struct Collector {
    found: Operations,
    /// The operation before, which may have been drained.
    last: Option<OperationKind>,
    /// The next name is the first one of a stream.
    is_first_name: bool,
    numbers: HashMap<Box<str>, DirectoryId, FixedState>,
    name_bytes: usize,
}

impl Collector {
    /// Returns a collector whose operations are taken after each event.
    pub fn streaming() -> Self {
        Self { is_first_name: true, ..Self::default() }
    }

    /// Returns the operations since the last call.
    pub fn drain(&mut self) -> impl Iterator<Item = Operation> + '_ {
        self.found.list.drain(..)
    }

    /// Returns the directories so far, by number.
    pub fn directories(&self) -> &[Directory] {
        &self.found.directories
    }

    /// Returns an estimate of the memory held, in bytes.
    pub fn held_bytes(&self) -> usize {
        self.found.held_bytes()
            + self.numbers.capacity() * (size_of::<(Box<str>, u32)>() + 1)
            + self.name_bytes
    }

    pub(super) fn finish(mut self) -> Operations {
        self.cut_to_root();
        self.found
    }

    /// Takes an event that comes when the trace has this many steps, `steps_with` with its own.
    pub fn push(&mut self, event: &Event<'_>, steps: usize, steps_with: usize) {
        use OperationKind as K;
        let mut push = |this: &mut Self, kind: K| {
            // A sync comes behind the step that writes its pages.
            let after = match kind {
                K::Sync { .. } | K::SyncDirectory(_) | K::SyncAll => steps_with,
                _ => steps,
            };
            let after_steps = u32::try_from(after).unwrap_or(u32::MAX);
            this.last = Some(kind);
            this.found.list.push(Operation { at_us: event.at_us, after_steps, kind });
        };
        match event.action {
            Action::Read { file, len, .. } if len > 0 => push(self, K::Read(file)),
            Action::Direct { file, len, write: false, .. } if len > 0 => push(self, K::Read(file)),
            Action::Write { file, offset, len, sync, .. } if len > 0 => {
                push(self, K::Write(file, offset.saturating_add(len)));
                if sync {
                    push(self, K::Sync { file, data_only: false });
                }
            }
            Action::Direct { file, offset, len, write: true, .. } if len > 0 => {
                push(self, K::Write(file, offset.saturating_add(len)));
            }
            Action::Sync { file, data_only, .. } => push(self, K::Sync { file, data_only }),
            Action::SyncAll => push(self, K::SyncAll),
            Action::SyncDirectory { ref path } => {
                let directory = self.directory(path, false, &mut push);
                push(self, K::SyncDirectory(directory));
            }
            Action::Truncate { file, size } => push(self, K::Truncate(file, size)),
            Action::Punch { file, .. } => push(self, K::Punch(file)),
            Action::Filled { file, offset, .. } => push(self, K::Fill(file, offset / PAGE_BYTES)),
            Action::Size { file, size } => push(self, K::Size(file, size)),
            Action::Close { file, .. } => push(self, K::Close(file)),
            Action::Gone { file } => push(self, K::Gone(file)),
            Action::Open { file, created: true, .. } => push(self, K::Create(file, None)),
            Action::Bind { file, ref name } => {
                let entry = self.entry(name, false, &mut push);
                push(self, K::Exists(file, entry));
            }
            Action::Create(ref create) => {
                let entry = self.entry(&create.name, true, &mut push);
                push(self, K::Create(create.file, entry));
            }
            Action::Link { file, ref name } => {
                if let Some(entry) = self.entry(name, true, &mut push) {
                    push(self, K::Link(file, entry));
                }
            }
            Action::Unbind { file, ref name } => {
                if let Some(entry) = self.entry(name, false, &mut push) {
                    push(self, K::Unlink(file, entry));
                }
            }
            Action::Rename { file, ref names } => {
                let from = self.entry(&names.from, false, &mut push);
                let to = self.entry(&names.to, true, &mut push);
                if let (Some(from), Some(to)) = (from, to) {
                    let replaces = matches!(self.last, Some(K::Unlink(_, entry)) if entry == to);
                    push(self, K::Rename { file, from, to, replaces });
                }
            }
            Action::RenameDirectory { ref names } => {
                let from = self.entry(&names.from, false, &mut push);
                let to = self.entry(&names.to, true, &mut push);
                let directory = self.directory(&names.from, false, &mut push);
                if let (Some(from), Some(to)) = (from, to) {
                    self.found.directories[directory.0 as usize].entry = Some(to);
                    self.moved(&names.from, &names.to);
                    push(self, K::MoveDirectory { directory, from, to });
                }
            }
            _ => {}
        }
    }

    fn entry(
        &mut self,
        path: &str,
        makes: bool,
        push: &mut impl FnMut(&mut Self, OperationKind),
    ) -> Option<Entry> {
        let (directory, name) = path.rsplit_once('/')?;
        let makes = makes && !std::mem::take(&mut self.is_first_name);
        let directory = self.directory(directory, makes, push);
        Some(entry(directory, name))
    }

    /// Returns the number of a directory, which is new if it is not known and `makes` is set.
    fn directory(
        &mut self,
        path: &str,
        makes: bool,
        push: &mut impl FnMut(&mut Self, OperationKind),
    ) -> DirectoryId {
        if let Some(number) = self.numbers.get(path) {
            return *number;
        }
        let own = path
            .rsplit_once('/')
            .map(|(above, name)| entry(self.directory(above, makes, push), name));
        let number = DirectoryId(self.found.directories.len() as u32);
        self.found.directories.push(Directory { entry: own, made: makes });
        self.numbers.insert(path.into(), number);
        self.name_bytes += path.len();
        if makes {
            push(self, OperationKind::MakeDirectory(number));
        }
        number
    }

    fn moved(&mut self, from: &str, to: &str) {
        let below = |path: &str| {
            let rest = path.strip_prefix(from)?;
            (rest.is_empty() || rest.starts_with('/')).then(|| format!("{to}{rest}"))
        };
        let moved: Vec<_> = self
            .numbers
            .extract_if(|path, _| below(path).is_some())
            .filter_map(|(path, number)| Some((below(&path)?.into_boxed_str(), number)))
            .collect();
        self.numbers.extend(moved);
    }

    /// Directories above all files are outside the file system: the deepest one that contains every
    /// name is its root, whose number becomes 0.
    fn cut_to_root(&mut self) {
        let above = |directories: &[Directory], DirectoryId(n): DirectoryId| {
            directories[n as usize].entry.map(|entry| entry.directory)
        };
        let directories = &self.found.directories;
        if directories.is_empty() {
            self.found.directories.push(Directory { entry: None, made: false });
            return;
        }
        let path_of = |mut at: DirectoryId| {
            let mut path = vec![at];
            while let Some(next) = above(directories, at) {
                path.push(next);
                at = next;
            }
            path.reverse();
            path
        };
        let mut shared: Option<Vec<DirectoryId>> = None;
        let mut note = |entry: Entry| {
            let path = path_of(entry.directory);
            match &mut shared {
                None => shared = Some(path),
                Some(shared) => {
                    let same = shared.iter().zip(&path).take_while(|(one, two)| one == two);
                    shared.truncate(same.count());
                }
            }
        };
        for operation in &self.found.list {
            match operation.kind {
                OperationKind::Exists(_, Some(entry))
                | OperationKind::Create(_, Some(entry))
                | OperationKind::Link(_, entry)
                | OperationKind::Unlink(_, entry) => note(entry),
                OperationKind::Rename { from, to, .. }
                | OperationKind::MoveDirectory { from, to, .. } => {
                    note(from);
                    note(to);
                }
                _ => {}
            }
        }
        let shared = shared.unwrap_or_default();
        let root = shared.last().copied().unwrap_or(ROOT);
        // The root changes places with directory 0; those above it are not of this file system.
        let swapped = |number: DirectoryId| match number {
            n if n == root => ROOT,
            n if n == ROOT => root,
            n => n,
        };
        let outside = |number: DirectoryId| shared.contains(&number);
        self.found.list.retain(|operation| match operation.kind {
            OperationKind::MakeDirectory(number) => !outside(number),
            _ => true,
        });
        let change = |entry: &mut Entry| entry.directory = swapped(entry.directory);
        for operation in &mut self.found.list {
            match &mut operation.kind {
                OperationKind::MakeDirectory(number) | OperationKind::SyncDirectory(number) => {
                    *number = swapped(*number);
                }
                OperationKind::Exists(_, Some(entry))
                | OperationKind::Create(_, Some(entry))
                | OperationKind::Link(_, entry)
                | OperationKind::Unlink(_, entry) => change(entry),
                OperationKind::Rename { from, to, .. } => {
                    change(from);
                    change(to);
                }
                OperationKind::MoveDirectory { directory, from, to } => {
                    *directory = swapped(*directory);
                    change(from);
                    change(to);
                }
                _ => {}
            }
        }
        let directories = &mut self.found.directories;
        directories.swap(root.0 as usize, ROOT.0 as usize);
        for directory in directories.iter_mut() {
            if let Some(entry) = &mut directory.entry {
                change(entry);
            }
        }
        directories[ROOT.0 as usize] = Directory { entry: None, made: false };
    }
}

fn entry(directory: DirectoryId, name: &str) -> Entry {
    // The kernel's limit of a name is 255 bytes.
    let bytes = u8::try_from(name.len()).unwrap_or(u8::MAX);
    Entry { directory, hash: (FixedState::default().hash_one(name) >> 32) as u32, bytes }
}
