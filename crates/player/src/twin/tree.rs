//! Performs the operations of a script below a directory.

use super::{
    content::Content,
    script::{CHUNK_BYTES, FileOp, Script, Span},
    store,
};
use flashsift_events::{event::FileId, names};
use rustix::{
    fs::{
        AtFlags, FallocateFlags, Mode, OFlags, fallocate, fdatasync, fsync, ftruncate, linkat,
        mkdirat, openat, renameat, syncfs, unlinkat,
    },
    io::{Errno, ReadWriteFlags, Result, pread, pwrite, pwritev2},
};
use std::{
    collections::HashMap,
    ffi::OsStr,
    io::IoSlice,
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

/// Descriptors that a tree keeps open, beside those of files without a name.
const OPEN_FILES: usize = 512;

/// The folder of files that the trace does not name.
const UNNAMED: &str = ".unnamed";

struct TreeFile {
    names: Vec<PathBuf>,
    fd: Option<OwnedFd>,
    direct: Option<OwnedFd>,
    /// Opens of the trace that have not ended.
    opens: u32,
    /// Number of the last operation.
    used: u64,
}

/// A directory with the files of a script in it.
pub struct Tree {
    root: OwnedFd,
    content: Content,
    files: HashMap<FileId, TreeFile>,
    open: usize,
    clock: u64,
}

/// Returns the path below the root for a name of the trace. It never leads out of the root.
pub fn below(name: &str) -> PathBuf {
    let bytes = names::unescape(name);
    let parts = bytes.split(|byte| *byte == b'/');
    let parts = parts.filter(|part| !matches!(*part, b"" | b"." | b".."));
    parts
        .map(|part| {
            let part: Vec<u8> =
                part.iter().take(255).map(|b| if *b == 0 { b'_' } else { *b }).collect();
            PathBuf::from(OsStr::from_bytes(&part))
        })
        .collect()
}

fn path_of(file: FileId, name: &str) -> PathBuf {
    let path = below(name);
    if path.as_os_str().is_empty() {
        return Path::new(UNNAMED).join(file.0.to_string());
    }
    path
}

impl Tree {
    /// Takes a directory that has files of these names and no others.
    pub fn new(root: OwnedFd, content: Content, names: Names) -> Self {
        let file = |(file, names)| (file, TreeFile::new(names));
        let files = names.0.into_iter().map(file).collect();
        Self { root, content, files, open: 0, clock: 0 }
    }

    /// Makes the directories and files that are there before the trace.
    ///
    /// # Errors
    ///
    /// The file system refuses one of them.
    pub fn make_initial(&mut self, script: &Script) -> Result<()> {
        for directory in &script.directories {
            self.make_directories(&below(directory))?;
        }
        for initial in &script.initial {
            let first = initial.names.first().map_or("", |name| name);
            self.create(initial.file, &path_of(initial.file, first))?;
            for name in initial.names.iter().skip(1) {
                self.link(initial.file, &path_of(initial.file, name))?;
            }
            let (fd, content) = self.data(initial.file)?;
            if initial.size > 0 {
                match fallocate(fd, FallocateFlags::empty(), 0, initial.size) {
                    Err(Errno::OPNOTSUPP) => ftruncate(fd, initial.size)?,
                    other => other?,
                }
            }
            for chunk in &initial.changed {
                let offset = chunk * CHUNK_BYTES;
                let len = CHUNK_BYTES.min(initial.size - offset);
                write(fd, content, Span { offset, len }, ReadWriteFlags::empty())?;
            }
            self.close(initial.file);
        }
        syncfs(&self.root)
    }

    /// Returns the content and the files' names. The descriptors are closed, so the mount can end.
    pub fn into_parts(self) -> (Content, Names) {
        let names = self.files.into_iter().map(|(file, state)| (file, state.names));
        (self.content, Names(names.collect()))
    }

    /// Performs an operation.
    ///
    /// # Errors
    ///
    /// The file system refuses it.
    pub fn perform(&mut self, op: &FileOp) -> Result<()> {
        match op {
            FileOp::Create(file, name) if name.is_empty() => {
                let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
                let fd = openat(&self.root, ".", flags, FILE_MODE)?;
                let mut state = TreeFile::new(Vec::new());
                // It lives as long as its descriptor.
                (state.fd, state.opens) = (Some(fd), 1);
                self.open += 1;
                self.files.insert(*file, state);
            }
            FileOp::Create(file, name) => self.create(*file, &path_of(*file, name))?,
            FileOp::Open(file) => {
                self.data(*file)?;
                self.files.get_mut(file).expect("it was opened").opens += 1;
            }
            FileOp::Close(file) => {
                let Some(state) = self.files.get_mut(file) else { return Err(Errno::NOENT) };
                state.opens = state.opens.saturating_sub(1);
                if state.opens == 0 {
                    self.close(*file);
                }
            }
            FileOp::Read(file, span) => {
                let (fd, content) = self.data(*file)?;
                read(fd, content, *span)?;
            }
            FileOp::Write(file, span, sync) => {
                let flags = if *sync { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
                let (fd, content) = self.data(*file)?;
                write(fd, content, *span, flags)?;
            }
            FileOp::Store(file, span) => {
                let (fd, content) = self.data(*file)?;
                store::store(fd, span.offset, span.len, content.byte())?;
            }
            FileOp::Direct(file, span, is_write) => self.direct(*file, *span, *is_write)?,
            FileOp::Truncate(file, size) => ftruncate(self.data(*file)?.0, *size)?,
            FileOp::Punch(file, span) => {
                let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                fallocate(self.data(*file)?.0, mode, span.offset, span.len)?;
            }
            FileOp::Sync(file, data_only) => {
                let (fd, _) = self.data(*file)?;
                if *data_only { fdatasync(fd) } else { fsync(fd) }?;
            }
            FileOp::SyncRange(file, span) => {
                store::sync_range(self.data(*file)?.0, span.offset, span.len)?;
            }
            FileOp::SyncAll => syncfs(&self.root)?,
            FileOp::SyncDirectory(name) => {
                let path = below(name);
                let path = if path.as_os_str().is_empty() { Path::new(".") } else { &path };
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
                fsync(openat(&self.root, path, flags, Mode::empty())?)?;
            }
            FileOp::Link(file, name) => self.link(*file, &path_of(*file, name))?,
            FileOp::Rename(file, from, to) => {
                let (from, to) = (path_of(*file, from), path_of(*file, to));
                self.with_parents(&to, |root| renameat(root, &from, root, &to))?;
                let state = self.files.entry(*file).or_insert_with(|| TreeFile::new(Vec::new()));
                state.names.retain(|name| *name != from && *name != to);
                state.names.push(to);
            }
            FileOp::RenameDirectory(from, to) => {
                let (from, to) = (below(from), below(to));
                self.with_parents(&to, |root| renameat(root, &from, root, &to))?;
                for name in self.files.values_mut().flat_map(|state| &mut state.names) {
                    if let Ok(rest) = name.strip_prefix(&from) {
                        *name = to.join(rest);
                    }
                }
            }
            FileOp::Unlink(file, name) => {
                let path = path_of(*file, name);
                self.forget(*file, &path);
                unlinkat(&self.root, &path, AtFlags::empty())?;
            }
            FileOp::Replaced(file, name) => self.forget(*file, &path_of(*file, name)),
            FileOp::Gone(file) => {
                self.close(*file);
                // A name whose end the trace does not tell.
                for name in self.files.remove(file).into_iter().flat_map(|state| state.names) {
                    unlinkat(&self.root, &name, AtFlags::empty())?;
                }
            }
        }
        Ok(())
    }

    fn create(&mut self, file: FileId, path: &Path) -> Result<()> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let create = |root: BorrowedFd<'_>| openat(root, path, flags, FILE_MODE);
        let fd = match self.with_parents(path, create) {
            // The trace does not tell the end of a file that had the name.
            Err(Errno::EXIST) => {
                unlinkat(&self.root, path, AtFlags::empty())?;
                create(self.root.as_fd())
            }
            other => other,
        }?;
        self.close(file);
        let mut state = TreeFile::new(vec![path.to_owned()]);
        state.fd = Some(fd);
        self.files.insert(file, state);
        self.open += 1;
        self.limit(file);
        Ok(())
    }

    fn link(&mut self, file: FileId, path: &Path) -> Result<()> {
        let (fd, _) = self.data(file)?;
        let link = format!("/proc/self/fd/{}", fd.as_raw_fd());
        self.with_parents(path, |root| {
            linkat(rustix::fs::CWD, &link, root, path, AtFlags::SYMLINK_FOLLOW)
        })?;
        self.files.get_mut(&file).expect("it is open").names.push(path.to_owned());
        Ok(())
    }

    /// Removes a name. A file without names and opens ends with it.
    fn forget(&mut self, file: FileId, path: &Path) {
        let Some(state) = self.files.get_mut(&file) else { return };
        state.names.retain(|name| name != path);
        if state.names.is_empty() && state.opens == 0 {
            self.close(file);
        }
    }

    fn close(&mut self, file: FileId) {
        if let Some(state) = self.files.get_mut(&file) {
            self.open -= usize::from(state.fd.take().is_some());
            state.direct = None;
        }
    }

    /// Runs `work`, again with the directories above `path` if they are missing.
    fn with_parents<T>(
        &self,
        path: &Path,
        work: impl Fn(BorrowedFd<'_>) -> Result<T>,
    ) -> Result<T> {
        match work(self.root.as_fd()) {
            Err(Errno::NOENT) => {
                self.make_directories(path.parent().unwrap_or(Path::new("")))?;
                work(self.root.as_fd())
            }
            other => other,
        }
    }

    fn make_directories(&self, path: &Path) -> Result<()> {
        let mut all: Vec<_> = path.ancestors().filter(|p| !p.as_os_str().is_empty()).collect();
        all.reverse();
        for directory in all {
            match mkdirat(&self.root, directory, Mode::from_raw_mode(0o755)) {
                Err(Errno::EXIST) => {}
                other => other?,
            }
        }
        Ok(())
    }

    fn data(&mut self, file: FileId) -> Result<(&OwnedFd, &mut Content)> {
        self.clock += 1;
        let state = self.files.get_mut(&file).ok_or(Errno::NOENT)?;
        state.used = self.clock;
        if state.fd.is_none() {
            let path = state.names.first().ok_or(Errno::NOENT)?;
            let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            state.fd = Some(openat(&self.root, path, flags, Mode::empty())?);
            self.open += 1;
            self.limit(file);
        }
        let fd = self.files[&file].fd.as_ref().expect("it was opened");
        Ok((fd, &mut self.content))
    }

    /// Closes the file that was not used for the longest time, if there are too many.
    fn limit(&mut self, but: FileId) {
        if self.open <= OPEN_FILES {
            return;
        }
        let may_close = |(file, state): &(&FileId, &TreeFile)| {
            state.fd.is_some() && !state.names.is_empty() && **file != but
        };
        let oldest = self.files.iter().filter(may_close).min_by_key(|(_, state)| state.used);
        if let Some(file) = oldest.map(|(file, _)| *file) {
            self.close(file);
        }
    }

    fn direct(&mut self, file: FileId, span: Span, is_write: bool) -> Result<()> {
        let (fd, _) = self.data(file)?;
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        let state = self.files.get_mut(&file).expect("it is open");
        let aligned = (span.offset | span.len).is_multiple_of(512);
        if aligned && state.direct.is_none() {
            let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
            state.direct = rustix::fs::open(path, flags, Mode::empty()).ok();
        }
        if let Some(direct) = state.direct.as_ref().filter(|_| aligned) {
            let done = match is_write {
                true => write(direct, &mut self.content, span, ReadWriteFlags::empty()),
                false => read(direct, &mut self.content, span),
            };
            if done != Err(Errno::INVAL) {
                return done;
            }
        }
        let (fd, content) = self.data(file)?;
        if is_write {
            write(fd, content, span, ReadWriteFlags::DSYNC)
        } else {
            read(fd, content, span)
        }
    }
}

/// The names of a tree's files.
#[derive(Debug, Default)]
pub struct Names(HashMap<FileId, Vec<PathBuf>>);

impl TreeFile {
    fn new(names: Vec<PathBuf>) -> Self {
        Self { names, fd: None, direct: None, opens: 0, used: 0 }
    }
}

const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

fn write(fd: &OwnedFd, content: &mut Content, span: Span, flags: ReadWriteFlags) -> Result<()> {
    let Span { mut offset, mut len } = span;
    while len > 0 {
        let bytes = content.take(len);
        let done = match flags.is_empty() {
            true => pwrite(fd, bytes, offset)?,
            false => pwritev2(fd, &[IoSlice::new(bytes)], offset, flags)?,
        } as u64;
        (offset, len) = (offset + done, len - done);
    }
    Ok(())
}

fn read(fd: &OwnedFd, content: &mut Content, span: Span) -> Result<()> {
    let Span { mut offset, mut len } = span;
    while len > 0 {
        let buffer = content.scratch(len);
        match pread(fd, buffer, offset)? as u64 {
            0 => break,
            done => (offset, len) = (offset + done, len - done),
        }
    }
    Ok(())
}
