//! A trace before the cache as a script: the tree of files that is there at the beginning, and the
//! operations on it. Sans I/O.
//!
//! A trace names neither the making of directories nor, in older recordings, the sizes of files
//! that were there before. Both are inferred: a directory is made when the first file is created in
//! it, and a file was as large as the trace first reads it, or begins to write it.

use flashsift_events::{
    event::{About, Action, Event, FileId, Renamed, Side, Space},
    page::PAGE_BYTES,
};
use flashsift_traces::{Error, events::Sink};
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    mem,
};

/// One operation on the tree. Paths are absolute names of the trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileOp {
    /// A file is created; an empty path is a file without a name.
    Create(FileId, Box<str>),
    /// A descriptor is opened.
    Open(FileId),
    /// A descriptor is closed.
    Close(FileId),
    /// A read.
    Read(FileId, Span),
    /// A write; the flag: it waits for storage.
    Write(FileId, Span, bool),
    /// A store through a mapping.
    Store(FileId, Span),
    /// An access past the page cache; the flag: it writes.
    Direct(FileId, Span, bool),
    /// A new size.
    Truncate(FileId, u64),
    /// A hole.
    Punch(FileId, Span),
    /// `fsync`; the flag: `fdatasync`.
    Sync(FileId, bool),
    /// `sync_file_range`.
    SyncRange(FileId, Span),
    /// `sync`.
    SyncAll,
    /// `fsync` of a directory.
    SyncDirectory(Box<str>),
    /// A further name.
    Link(FileId, Box<str>),
    /// A new name in place of an old one.
    Rename(FileId, Box<str>, Box<str>),
    /// A directory is renamed.
    RenameDirectory(Box<str>, Box<str>),
    /// A name is removed.
    Unlink(FileId, Box<str>),
    /// The next operation is a rename to this name, which removes it from the file.
    Replaced(FileId, Box<str>),
    /// The last name and descriptor are gone.
    Gone(FileId),
}

/// A range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl Span {
    fn end(self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}

/// An operation at its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Microseconds since the beginning of the trace.
    pub at_us: u64,
    /// The operation.
    pub op: FileOp,
}

/// A file that is there before the first step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InitialFile {
    /// The file.
    pub file: FileId,
    /// Its names; none if the trace names none.
    pub names: Vec<Box<str>>,
    /// Its size in bytes.
    pub size: u64,
    /// Pieces of [`CHUNK_BYTES`] that the trace changes, by number: only these need content.
    pub changed: BTreeSet<u64>,
}

/// A part of a file that is there before either has content or only blocks.
pub const CHUNK_BYTES: u64 = 1 << 20;

/// A whole trace.
#[derive(Debug, Default)]
pub struct Script {
    /// The operations, by time.
    pub steps: Vec<Step>,
    /// The files that are there before.
    pub initial: Vec<InitialFile>,
    /// Directories that are there before, beside those of files.
    pub directories: BTreeSet<Box<str>>,
    /// Bytes written, rounded to pages.
    pub written_bytes: u64,
    /// The largest sum of file sizes at one time, bytes.
    pub peak_bytes: u64,
    /// The trace says which syncs there were.
    pub has_syncs: bool,
}

impl Script {
    /// Returns the most bytes that are dirty at one time where the kernel writes pages at this age.
    pub fn most_dirty_bytes(&self, age_us: u64) -> u64 {
        let bytes = |step: &Step| match step.op {
            FileOp::Write(_, span, _) | FileOp::Store(_, span) => span.len,
            _ => 0,
        };
        let (mut first, mut now, mut most) = (0, 0u64, 0);
        for step in &self.steps {
            now = now.saturating_add(bytes(step));
            while self.steps[first].at_us.saturating_add(age_us) < step.at_us {
                now -= bytes(&self.steps[first]);
                first += 1;
            }
            most = most.max(now);
        }
        most
    }

    /// Bytes of content that the files which are there before need.
    pub fn initial_content_bytes(&self) -> u64 {
        let chunks = |file: &InitialFile| file.changed.len() as u64 * CHUNK_BYTES;
        self.initial.iter().map(|file| chunks(file).min(file.size)).sum()
    }

    /// Time of the last step.
    pub fn end_us(&self) -> u64 {
        self.steps.last().map_or(0, |step| step.at_us)
    }

    /// Leaves out the steps after this time.
    pub fn cut(&mut self, end_us: u64) {
        let kept = self.steps.partition_point(|step| step.at_us <= end_us);
        self.steps.truncate(kept);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// It was named, and an open may yet say that it was created.
    Named,
    /// It was there before; its number in [`Script::initial`].
    Before(usize),
    /// It was created.
    Created,
}

struct FileState {
    kind: Kind,
    names: Vec<Box<str>>,
    size: u64,
    /// The size before is known, or does not matter any more.
    size_known: bool,
}

/// Builds a [`Script`] from events.
#[derive(Default)]
pub struct ScriptBuilder {
    script: Script,
    files: HashMap<FileId, FileState>,
    /// Names that a file got during the trace.
    created: HashSet<Box<str>>,
    /// Names of files that were there before.
    before: HashSet<Box<str>>,
    directories: BTreeSet<Box<str>>,
    renamed: Vec<(Box<str>, Box<str>)>,
    /// Bytes of the files that were there before, and by how much all files have grown since.
    before_bytes: u64,
    grown_bytes: i64,
    most_grown_bytes: i64,
    begun: bool,
}

impl ScriptBuilder {
    /// Returns the script of the events so far.
    pub fn finish(mut self) -> Script {
        let most = self.before_bytes.saturating_add_signed(self.most_grown_bytes.max(0));
        self.script.peak_bytes = most;
        for file in &mut self.script.initial {
            let chunks = file.size.div_ceil(CHUNK_BYTES);
            file.changed =
                mem::take(&mut file.changed).into_iter().filter(|n| *n < chunks).collect();
        }
        self.script.directories = self.directories;
        self.script
    }

    /// Adds an event.
    pub fn event(&mut self, event: &Event<'_>) {
        if let Some(file) = event.action.file() {
            self.meet(file, event);
        }
        let op = match event.action {
            Action::Read { file, offset, len, .. }
            | Action::Direct { file, offset, len, write: false, .. }
                if len > 0 =>
            {
                let span = Span { offset, len };
                self.reads(file, span.end());
                match event.action {
                    Action::Read { .. } => FileOp::Read(file, span),
                    _ => FileOp::Direct(file, span, false),
                }
            }
            Action::Write { file, offset, len, .. }
            | Action::Direct { file, offset, len, write: true, .. }
                if len > 0 =>
            {
                let span = Span { offset, len };
                self.writes(file, span);
                match event.action {
                    Action::Write { sync, .. } => FileOp::Write(file, span, sync),
                    _ => FileOp::Direct(file, span, true),
                }
            }
            Action::Folio { file, offset, len } => {
                let Some(Step { op, .. }) = self.script.steps.last_mut() else { return };
                if let FileOp::Write(of, span, _) = *op
                    && of == file
                {
                    let end = span.end().max(offset.saturating_add(len));
                    let offset = if len > 0 { offset.min(span.offset) } else { span.offset };
                    *op = FileOp::Store(file, Span { offset, len: end - offset });
                    self.changes(file, Span { offset, len: end - offset });
                }
                return;
            }
            Action::Sync { file, offset: 0, len: u64::MAX, data_only } => {
                FileOp::Sync(file, data_only)
            }
            // msync writes and commits as fdatasync does; sync_file_range commits nothing.
            Action::Sync { file, data_only: true, .. } => FileOp::Sync(file, true),
            Action::Sync { file, offset, len, .. } => FileOp::SyncRange(file, Span { offset, len }),
            Action::SyncAll => FileOp::SyncAll,
            Action::SyncDirectory { ref path } => {
                if !path.is_empty() {
                    self.directory_before(path);
                }
                FileOp::SyncDirectory((&**path).into())
            }
            Action::Truncate { file, size } => {
                self.changes(file, Span { offset: size, len: 1 });
                let state = self.files.get_mut(&file).expect("it was met");
                state.size_known = true;
                self.resize(file, size);
                FileOp::Truncate(file, size)
            }
            Action::Punch { file, offset, len } if len > 0 => {
                self.changes(file, Span { offset, len });
                FileOp::Punch(file, Span { offset, len })
            }
            Action::Open { file, .. } => FileOp::Open(file),
            Action::Close { file, .. } => FileOp::Close(file),
            Action::Create(ref create) => self.create(create.file, &create.name),
            Action::Link { file, ref name } => {
                self.created.insert((&**name).into());
                self.name(file).push((&**name).into());
                FileOp::Link(file, (&**name).into())
            }
            Action::Rename { file, ref names } => {
                let (from, to): (Box<str>, Box<str>) = ((&*names.from).into(), (&*names.to).into());
                // The name is removed by the rename itself.
                if let Some(Step { op, .. }) = self.script.steps.last_mut()
                    && let FileOp::Unlink(other, name) = op
                    && *name == to
                {
                    *op = FileOp::Replaced(*other, mem::take(name));
                }
                self.created.insert(to.clone());
                let known = self.name(file);
                known.retain(|name| *name != from);
                known.push(to.clone());
                FileOp::Rename(file, from, to)
            }
            Action::RenameDirectory { ref names } => {
                self.directory_before(&names.from);
                let (from, to): (Box<str>, Box<str>) = ((&*names.from).into(), (&*names.to).into());
                self.renamed.push((from.clone(), to.clone()));
                FileOp::RenameDirectory(from, to)
            }
            Action::Unbind { file, ref name } => {
                self.name(file).retain(|known| **known != **name);
                FileOp::Unlink(file, (&**name).into())
            }
            Action::Gone { file } => {
                self.resize(file, 0);
                FileOp::Gone(file)
            }
            _ => return,
        };
        self.script.steps.push(Step { at_us: event.at_us, op });
    }

    fn name(&mut self, file: FileId) -> &mut Vec<Box<str>> {
        &mut self.files.get_mut(&file).expect("it was met").names
    }

    /// Decides whether a file was there before, at the first event that tells.
    fn meet(&mut self, file: FileId, event: &Event<'_>) {
        let created =
            matches!(event.action, Action::Create(_) | Action::Open { created: true, .. });
        match (&event.action, self.files.get(&file).map(|state| state.kind)) {
            (Action::Bind { name, .. }, None | Some(Kind::Named)) => {
                let state = self.files.entry(file).or_insert_with(|| FileState {
                    kind: Kind::Named,
                    names: Vec::new(),
                    size: 0,
                    size_known: false,
                });
                state.names.push((&**name).into());
            }
            (Action::Bind { name, .. }, Some(Kind::Before(n))) => {
                let before = self.before(name);
                if self.before.insert(before.clone()) {
                    self.script.initial[n].names.push(before);
                }
            }
            (Action::Bind { name, .. }, Some(Kind::Created)) => {
                let op = FileOp::Link(file, (&**name).into());
                self.script.steps.push(Step { at_us: event.at_us, op });
            }
            (Action::Create(_), None) => {
                let state =
                    FileState { kind: Kind::Created, names: Vec::new(), size: 0, size_known: true };
                self.files.insert(file, state);
            }
            (_, Some(Kind::Named)) if created => {
                let names = mem::take(self.name(file));
                let state = self.files.get_mut(&file).expect("it was met");
                (state.kind, state.size_known) = (Kind::Created, true);
                let mut names = names.into_iter();
                let first = names.next().unwrap_or_default();
                let create = self.create(file, &first);
                let links = names.map(|name| FileOp::Link(file, name));
                let steps = std::iter::once(create).chain(links);
                self.script.steps.extend(steps.map(|op| Step { at_us: event.at_us, op }));
            }
            (Action::Size { size, .. }, None | Some(Kind::Named)) => {
                self.was_there(file, event.at_us);
                let state = self.files.get_mut(&file).expect("it was met");
                (state.size, state.size_known) = (*size, true);
                if let Kind::Before(n) = state.kind {
                    self.script.initial[n].size = *size;
                    self.before_bytes += size;
                }
            }
            // Events that do not tell.
            (Action::Place { .. } | Action::Gone { .. }, Some(Kind::Named)) => {}
            (_, None | Some(Kind::Named)) => self.was_there(file, event.at_us),
            _ => {}
        }
    }

    fn create(&mut self, file: FileId, name: &str) -> FileOp {
        if !self.begun
            && let Some((directory, _)) = name.rsplit_once('/')
        {
            // The trace begins in a directory that is there.
            self.directory_before(directory);
        }
        self.begun = true;
        self.created.insert(name.into());
        if !name.is_empty() {
            self.name(file).push(name.into());
        }
        FileOp::Create(file, name.into())
    }

    /// The file was there before the trace, or appeared unseen.
    fn was_there(&mut self, file: FileId, at_us: u64) {
        self.begun = true;
        let names = self.files.remove(&file).map(|state| state.names).unwrap_or_default();
        let before: Vec<_> = names.iter().map(|name| self.before(name)).collect();
        let appeared =
            before.iter().any(|name| self.before.contains(name) || self.created.contains(name));
        let kind = if appeared {
            // Another file had the name, so this one was made since.
            let (first, links) = names.split_first().expect("a name was taken");
            let create = FileOp::Create(file, first.clone());
            let links = links.iter().map(|name| FileOp::Link(file, name.clone()));
            let steps = std::iter::once(create).chain(links);
            self.script.steps.extend(steps.map(|op| Step { at_us, op }));
            Kind::Created
        } else {
            self.before.extend(before.iter().cloned());
            let changed = BTreeSet::new();
            self.script.initial.push(InitialFile { file, names: before, size: 0, changed });
            Kind::Before(self.script.initial.len() - 1)
        };
        self.files.insert(file, FileState { kind, names, size: 0, size_known: false });
    }

    /// Returns the name at the beginning of the trace of a file that has this name now.
    fn before(&self, name: &str) -> Box<str> {
        self.renamed.iter().rev().fold(name.into(), |name, (from, to)| {
            let back = Renamed { from: (&**to).into(), to: (&**from).into() };
            back.moved(&name).map_or(name, Into::into)
        })
    }

    fn directory_before(&mut self, path: &str) {
        let path = self.before(path);
        self.directories.insert(path);
    }

    fn reads(&mut self, file: FileId, end: u64) {
        let state = self.files.get_mut(&file).expect("it was met");
        if !state.size_known && end > state.size {
            self.was_larger(file, end);
        }
    }

    fn was_larger(&mut self, file: FileId, size: u64) {
        let state = self.files.get_mut(&file).expect("it was met");
        if let Kind::Before(n) = state.kind {
            self.before_bytes += size - state.size;
            self.script.initial[n].size = size;
            state.size = size;
        }
    }

    fn writes(&mut self, file: FileId, span: Span) {
        let state = self.files.get_mut(&file).expect("it was met");
        if !state.size_known && span.offset > state.size {
            self.was_larger(file, span.offset);
        }
        self.changes(file, span);
        let pages = span.end().div_ceil(PAGE_BYTES) - span.offset / PAGE_BYTES;
        self.script.written_bytes = self.script.written_bytes.saturating_add(pages * PAGE_BYTES);
        let size = self.files[&file].size.max(span.end());
        self.resize(file, size);
    }

    /// Notes that content which may have been there before is changed.
    fn changes(&mut self, file: FileId, span: Span) {
        if let Kind::Before(n) = self.files[&file].kind {
            let initial = &mut self.script.initial[n];
            let end = span.end().min(initial.size);
            if span.offset < end {
                initial.changed.extend(span.offset / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES));
            }
        }
    }

    fn resize(&mut self, file: FileId, size: u64) {
        let state = self.files.get_mut(&file).expect("it was met");
        self.grown_bytes += size as i64 - state.size as i64;
        self.most_grown_bytes = self.most_grown_bytes.max(self.grown_bytes);
        state.size = size;
    }
}

impl Sink for ScriptBuilder {
    fn about(&mut self, about: About) -> Result<(), Error> {
        let why = if about.space != Space::Files || about.side != Side::Before {
            "accesses to files, before the cache (`flashsift record` makes it)"
        } else if !about.knows.times {
            "times"
        } else if !about.knows.writes {
            "writes distinguished from reads"
        } else {
            self.script.has_syncs = about.knows.syncs;
            return Ok(());
        };
        Err(Error::Sink(format!("a twin needs a trace with {why}")))
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        events.iter().for_each(|event| self.event(event));
        Ok(())
    }
}
