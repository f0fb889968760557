//! Random histories of the file system without a kernel above it, compared with a tree in memory
//! that behaves as the documentation says: after each step everything is compared. The tree that
//! the history's events describe is compared too. The requests are those that the kernel would pass
//! on: it has looked up the names, and checked types and permissions.

mod replayed;

use flashsift_events::event::{Event, FileId, OpenId};
use flashsift_mount::{Access, Caller, Changes, Config, Errno, Fs, Ino, ROOT, Store};
use proptest::prelude::*;
use replayed::Replayed;
use rustix::fs::{OFlags, RenameFlags};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

const DIRS: usize = 3;
const NAMES: [&str; 3] = ["a", "b", "c"];

/// A directory (by its number in [`Model::dirs`], as far as there is one) and a name in it.
type DirAndName = (usize, usize);

#[derive(Clone, Debug)]
enum Step {
    Create(DirAndName, bool),
    Mknod(DirAndName),
    Mkdir(DirAndName),
    Symlink(DirAndName),
    Link(DirAndName, DirAndName),
    Unlink(DirAndName),
    Rmdir(DirAndName),
    Rename(DirAndName, DirAndName, u8),
    /// To read and write, to append, or to write.
    Open(DirAndName, u8),
    /// The handle, of those that are open.
    Release(usize),
    Write(usize, u64, u8, u16),
    Read(usize),
    Truncate(DirAndName, u16),
    Chmod(DirAndName, u16),
    SetXattr(DirAndName, u8, u16),
    RemoveXattr(DirAndName, u8),
    Punch(usize, u16, u16),
    Fsync(usize),
    FsyncDir(usize),
    ChmodDir(usize, u16),
    SetXattrDir(usize, u8),
    Settle,
    /// The kernel forgets what it does not use.
    Forget,
    /// The daemon is killed and started again.
    Crash,
}

fn place() -> impl Strategy<Value = DirAndName> {
    (0..DIRS, 0..NAMES.len())
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (place(), any::<bool>()).prop_map(|(at, excl)| Step::Create(at, excl)),
        1 => place().prop_map(Step::Mknod),
        3 => place().prop_map(Step::Mkdir),
        1 => place().prop_map(Step::Symlink),
        6 => (place(), place()).prop_map(|(from, to)| Step::Link(from, to)),
        3 => place().prop_map(Step::Unlink),
        2 => place().prop_map(Step::Rmdir),
        9 => (place(), place(), 0u8..8).prop_map(|(from, to, flags)| Step::Rename(from, to, flags)),
        4 => (place(), 0u8..3).prop_map(|(at, how)| Step::Open(at, how)),
        3 => any::<usize>().prop_map(Step::Release),
        6 => (any::<usize>(), 0u64..10_000, any::<u8>(), 1u16..9000)
            .prop_map(|(handle, at, byte, len)| Step::Write(handle, at, byte, len)),
        3 => any::<usize>().prop_map(Step::Read),
        2 => (place(), 0u16..20_000).prop_map(|(at, size)| Step::Truncate(at, size)),
        1 => (place(), 0u16..0o10000).prop_map(|(at, mode)| Step::Chmod(at, mode)),
        1 => (place(), 0u8..3, 0u16..900).prop_map(|(at, name, len)| Step::SetXattr(at, name, len)),
        1 => (place(), 0u8..3).prop_map(|(at, name)| Step::RemoveXattr(at, name)),
        1 => (any::<usize>(), 0u16..9000, 1u16..9000).prop_map(|(handle, at, len)| Step::Punch(handle, at, len)),
        2 => any::<usize>().prop_map(Step::Fsync),
        1 => (0..DIRS).prop_map(Step::FsyncDir),
        1 => (0..DIRS, 0u16..0o2000).prop_map(|(dir, mode)| Step::ChmodDir(dir, mode)),
        1 => (0..DIRS, any::<u8>()).prop_map(|(dir, value)| Step::SetXattrDir(dir, value)),
        3 => Just(Step::Settle),
        1 => Just(Step::Forget),
        1 => Just(Step::Crash),
    ]
}

#[derive(Clone, Default)]
struct File {
    data: Vec<u8>,
    mode: u32,
    xattrs: BTreeMap<String, Vec<u8>>,
    links: u32,
    /// It must be in BACKING as it is here, or as in one of `versions`.
    settled: bool,
    /// The contents since changes of it on flash wait in RAM; empty: none wait.
    versions: Vec<Vec<u8>>,
    /// As it is called on the other side.
    ino: Ino,
    /// Bytes that were read.
    read: u64,
    /// How often it was synced, at least: a sync of a directory counts for its files in RAM.
    syncs: u64,
    /// Its identity in the events.
    id: Option<FileId>,
}

impl std::fmt::Debug for File {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "file {} of {} bytes, {} links, settled: {}",
            self.ino,
            self.data.len(),
            self.links,
            self.settled
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thing {
    File(usize),
    Dir(usize),
    Symlink(usize),
}

/// The tree, and what BACKING may still have under names that have been taken over.
#[derive(Debug)]
struct Model {
    names: BTreeMap<DirAndName, Thing>,
    files: Vec<File>,
    /// Its number on the other side, and where it is.
    dirs: Vec<Option<(Ino, Option<DirAndName>)>>,
    /// Directories that must be in BACKING.
    made: BTreeSet<usize>,
    /// The modes of directories, and the values of an attribute.
    modes: BTreeMap<usize, u32>,
    values: BTreeMap<usize, u8>,
    links: usize,
    handles: Vec<(usize, OpenId)>,
    /// The flags of opens that do not read.
    flags: BTreeMap<OpenId, OFlags>,
    hidden: BTreeMap<DirAndName, usize>,
}

/// The content of each file by its path from the mounted directory on.
type Contents = BTreeMap<String, Vec<u8>>;

struct Both {
    fs: Fs,
    events: Arc<Mutex<Vec<Event<'static>>>>,
    replayed: Replayed,
    /// How many of the events are in `replayed`.
    applied: usize,
    model: Model,
    /// All files are of a group whose syncs are delayed. The files in BACKING after each step since
    /// an epoch is known to have ended; an epoch may have ended with any of them.
    epochs: Option<Vec<Contents>>,
    backing: PathBuf,
    _temp: tempfile::TempDir,
}

fn name(at: DirAndName) -> &'static OsStr {
    OsStr::new(NAMES[at.1])
}

/// The thread that asks; it has no process that could be found.
const TID: u32 = 0;

fn access(sync: bool) -> Access {
    let flags = if sync { OFlags::SYNC.bits() as i32 } else { 0 };
    Access { tid: TID, flags, ..Access::default() }
}

fn caller() -> Caller {
    let uid = rustix::process::getuid().as_raw();
    Caller { uid, gid: rustix::process::getgid().as_raw(), tid: TID, umask: 0o022 }
}

fn open_fs(backing: &Path, store: &Path, delayed: bool) -> Fs {
    let _ = std::fs::remove_dir_all(store);
    std::fs::create_dir(store).unwrap();
    let dir = OwnedFd::from(std::fs::File::open(backing).unwrap());
    const HOUR_US: u64 = 3_600_000_000;
    let store = Store::in_dir(store).unwrap();
    if delayed {
        let delayed = vec![("*".to_owned(), HOUR_US)];
        return Fs::new(dir, store, Config { delayed, ..Config::default() }).unwrap();
    }
    // New directories wait in RAM as well.
    Fs::as_on_ext4(dir, store, Config { lose_at_most_us: 0, ..Config::default() }).unwrap()
}

impl Both {
    fn new(delayed: bool) -> Both {
        let temp = tempfile::tempdir().unwrap();
        let (backing, store) = (temp.path().join("backing"), temp.path().join("store"));
        std::fs::create_dir(&backing).unwrap();
        let fs = open_fs(&backing, &store, delayed);
        let events: Arc<Mutex<Vec<Event<'static>>>> = Arc::default();
        let into = events.clone();
        fs.observe(move |event| into.lock().unwrap().push(event.clone().into_owned()));
        let mut dirs = vec![None; DIRS];
        dirs[0] = Some((ROOT, None));
        let model = Model {
            names: BTreeMap::new(),
            files: Vec::new(),
            dirs,
            made: BTreeSet::new(),
            modes: BTreeMap::new(),
            values: BTreeMap::new(),
            links: 0,
            handles: Vec::new(),
            flags: BTreeMap::new(),
            hidden: BTreeMap::new(),
        };
        let epochs = delayed.then(|| vec![Contents::new()]);
        let (replayed, applied) = (Replayed::default(), 0);
        Both { fs, events, replayed, applied, model, epochs, backing, _temp: temp }
    }

    /// The contents that the files have in the model.
    fn contents(&self) -> Contents {
        let file = |(at, thing): (&DirAndName, &Thing)| match thing {
            Thing::File(file) => {
                Some((self.path_in_mount(*at), self.model.files[*file].data.clone()))
            }
            _ => None,
        };
        self.model.names.iter().filter_map(file).collect()
    }

    /// The contents of the files in BACKING.
    fn contents_below(&self) -> Contents {
        let mut all = Contents::new();
        let mut dirs = vec![self.backing.clone()];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let entry = entry.unwrap();
                let (kind, path) = (entry.file_type().unwrap(), entry.path());
                if kind.is_dir() && entry.file_name() != ".flashsift" {
                    dirs.push(path);
                } else if kind.is_file() {
                    let name = path.strip_prefix(&self.backing).unwrap().to_str().unwrap();
                    all.insert(format!("/{name}"), std::fs::read(&path).unwrap());
                }
            }
        }
        all
    }

    fn dir(&self, dir: usize) -> Option<Ino> {
        self.model.dirs[dir].map(|(ino, _)| ino)
    }

    fn file_at(&self, at: DirAndName) -> Option<usize> {
        match self.model.names.get(&at) {
            Some(Thing::File(file)) => Some(*file),
            _ => None,
        }
    }

    fn handle(&self, handle: usize) -> Option<(usize, OpenId)> {
        let handles = &self.model.handles;
        (!handles.is_empty()).then(|| handles[handle % handles.len()])
    }

    fn new_file(&mut self, at: DirAndName, ino: Ino) -> usize {
        let file = self.model.files.len();
        self.model.files.push(File { mode: 0o644, links: 1, ino, ..File::default() });
        self.model.names.insert(at, Thing::File(file));
        file
    }

    /// The name is taken over, or goes.
    fn lose(&mut self, at: DirAndName, hides: bool) {
        if let Some(Thing::File(file)) = self.model.names.remove(&at) {
            self.model.files[file].links -= 1;
            if hides && self.model.files[file].settled {
                self.model.hidden.insert(at, file);
            }
        }
        if !hides {
            self.model.hidden.remove(&at);
        }
    }

    fn is_below(&self, mut dir: usize, above: usize) -> bool {
        loop {
            if dir == above {
                return true;
            }
            match self.model.dirs[dir] {
                Some((_, Some((parent, _)))) => dir = parent,
                _ => return false,
            }
        }
    }

    /// A directory is gone.
    fn end_dir(&mut self, dir: usize) {
        let model = &mut self.model;
        model.dirs[dir] = None;
        model.made.remove(&dir);
        model.modes.remove(&dir);
        model.values.remove(&dir);
    }

    fn all_made(&mut self) {
        let model = &mut self.model;
        model.made = (0..DIRS).filter(|dir| model.dirs[*dir].is_some()).collect();
    }

    fn is_empty(&self, dir: usize) -> bool {
        !self.model.names.keys().any(|(parent, _)| *parent == dir)
    }

    fn step(&mut self, step: &Step) -> Result<(), Errno> {
        match *step {
            Step::Create(at, excl) => {
                let Some(dir) = self.dir(at.0) else { return Ok(()) };
                let flags = if excl { 0o200 } else { 0 };
                let made = self.fs.create(&caller(), dir, name(at), 0o666, flags);
                let made = made.map(|(attr, open, _)| (attr, open));
                match self.model.names.get(&at) {
                    None => {
                        let (attr, open) = made?;
                        let file = self.new_file(at, attr.ino);
                        self.model.handles.push((file, open));
                    }
                    Some(_) if excl => assert_eq!(made.unwrap_err(), Errno::EXIST),
                    // The kernel looks the name up again, checks the permissions and opens it.
                    Some(_) => assert_eq!(made.unwrap_err(), Errno::STALE),
                }
            }
            Step::Mknod(at) => {
                let Some(dir) = self.dir(at.0) else { return Ok(()) };
                let made = self.fs.mknod(&caller(), dir, name(at), 0o100_666, 0);
                match self.model.names.contains_key(&at) {
                    true => assert_eq!(made.unwrap_err(), Errno::EXIST),
                    false => {
                        let ino = made?.ino;
                        self.new_file(at, ino);
                    }
                }
            }
            Step::Mkdir(at) => {
                let free = self.model.dirs.iter().position(Option::is_none);
                let (Some(dir), Some(free)) = (self.dir(at.0), free) else { return Ok(()) };
                let made = self.fs.mkdir(&caller(), dir, name(at), 0o777);
                if self.model.names.contains_key(&at) {
                    assert_eq!(made.unwrap_err(), Errno::EXIST);
                } else {
                    self.model.dirs[free] = Some((made?.ino, Some(at)));
                    self.model.names.insert(at, Thing::Dir(free));
                    self.model.modes.insert(free, 0o755);
                }
            }
            Step::Symlink(at) => {
                let Some(dir) = self.dir(at.0) else { return Ok(()) };
                let made = self.fs.symlink(
                    &caller(),
                    dir,
                    name(at),
                    OsStr::new(&self.model.links.to_string()),
                );
                if self.model.names.contains_key(&at) {
                    assert_eq!(made.unwrap_err(), Errno::EXIST);
                } else {
                    made?;
                    self.model.names.insert(at, Thing::Symlink(self.model.links));
                    self.model.links += 1;
                }
            }
            Step::Link(from, to) => {
                let (Some(file), Some(dir)) = (self.file_at(from), self.dir(to.0)) else {
                    return Ok(());
                };
                // A link to what the kernel has not looked up it does not ask for.
                self.look_up(from)?;
                let made = self.fs.link(TID, self.model.files[file].ino, dir, name(to));
                if self.model.names.contains_key(&to) {
                    assert_eq!(made.unwrap_err(), Errno::EXIST);
                } else {
                    assert_eq!(made?.ino, self.model.files[file].ino);
                    self.model.files[file].links += 1;
                    self.model.names.insert(to, Thing::File(file));
                }
            }
            Step::Unlink(at) => match (self.dir(at.0), self.model.names.get(&at)) {
                (Some(dir), Some(Thing::File(_) | Thing::Symlink(_))) => {
                    self.fs.unlink(TID, dir, name(at))?;
                    self.lose(at, false);
                }
                (Some(dir), None) => {
                    assert_eq!(self.fs.unlink(TID, dir, name(at)), Err(Errno::NOENT))
                }
                _ => (),
            },
            Step::Rmdir(at) => {
                if let (Some(dir), Some(Thing::Dir(gone))) =
                    (self.dir(at.0), self.model.names.get(&at).copied())
                {
                    let done = self.fs.rmdir(dir, name(at));
                    if self.is_empty(gone) {
                        done?;
                        self.model.names.remove(&at);
                        self.end_dir(gone);
                        self.model.hidden.retain(|(dir, _), _| *dir != gone);
                    } else {
                        assert_eq!(done, Err(Errno::NOTEMPTY));
                    }
                }
            }
            Step::Rename(from, to, flags) => self.rename(from, to, flags)?,
            Step::Open(at, how) => {
                let Some(file) = self.file_at(at) else { return Ok(()) };
                self.look_up(at)?;
                let flags =
                    [OFlags::RDWR, OFlags::WRONLY | OFlags::APPEND, OFlags::WRONLY][how as usize];
                let ino = self.model.files[file].ino;
                let (open, _) = self.fs.open_as(TID, ino, flags.bits() as i32)?;
                self.model.handles.push((file, open));
                self.model.flags.insert(open, flags);
            }
            Step::Release(handle) => {
                if !self.model.handles.is_empty() {
                    let at = handle % self.model.handles.len();
                    let (_, open) = self.model.handles.swap_remove(at);
                    self.model.flags.remove(&open);
                    self.fs.release(TID, open);
                }
            }
            Step::Write(handle, at, byte, len) => {
                let Some((file, open)) = self.handle(handle) else { return Ok(()) };
                let flags = self.model.flags.get(&open).copied().unwrap_or(OFlags::RDWR);
                let file = &mut self.model.files[file];
                // Zeros are only where nothing was written.
                let bytes = vec![byte | 1; len as usize];
                let mut how = access(byte == 0);
                how.flags |= flags.bits() as i32;
                let at = if flags.contains(OFlags::APPEND) { file.data.len() as u64 } else { at };
                file.versions.push(file.data.clone());
                assert_eq!(self.fs.write(how, open, at, &bytes)?, bytes.len());
                let end = at as usize + bytes.len();
                if file.data.len() < end {
                    file.data.resize(end, 0);
                }
                file.data[at as usize..end].copy_from_slice(&bytes);
                if byte == 0 {
                    file.versions.clear();
                }
                file.settled |= byte == 0 && file.links > 0;
            }
            Step::Read(handle) => {
                let Some((file, open)) = self.handle(handle) else { return Ok(()) };
                let file = &mut self.model.files[file];
                let mut bytes = vec![1; file.data.len() + 10];
                let read = self.fs.read(access(false), open, 0, &mut bytes)?;
                file.read += read as u64;
                assert!(bytes[..read] == file.data, "the content of {file:?}");
            }
            Step::Truncate(at, size) => {
                let Some(file) = self.file_at(at) else { return Ok(()) };
                self.look_up(at)?;
                let file = &mut self.model.files[file];
                let size = u64::from(size);
                let attr = self.fs.set_attr(
                    TID,
                    file.ino,
                    &Changes { size: Some(size), ..Changes::default() },
                )?;
                assert_eq!(attr.size, size);
                match file.data.len() > size as usize {
                    true => file.versions.clear(),
                    false => file.versions.push(file.data.clone()),
                }
                file.data.resize(size as usize, 0);
            }
            Step::Chmod(at, mode) => {
                let Some(file) = self.file_at(at) else { return Ok(()) };
                self.look_up(at)?;
                let mode = u32::from(mode) & 0o777 | 0o600;
                self.model.files[file].mode = mode;
                let changes = Changes { mode: Some(mode), ..Changes::default() };
                self.fs.set_attr(TID, self.model.files[file].ino, &changes)?;
            }
            Step::SetXattr(at, name, len) => {
                let Some(file) = self.file_at(at) else { return Ok(()) };
                self.look_up(at)?;
                // A file whose attributes do not fit into RAM leaves its group.
                let len = if self.epochs.is_some() { len % 200 } else { len };
                let (name, value) = (format!("user.{name}"), vec![b'x'; len as usize]);
                self.fs.set_xattr(
                    &caller(),
                    self.model.files[file].ino,
                    OsStr::new(&name),
                    &value,
                    0,
                )?;
                self.model.files[file].xattrs.insert(name, value);
            }
            Step::RemoveXattr(at, name) => {
                let Some(file) = self.file_at(at) else { return Ok(()) };
                self.look_up(at)?;
                let name = format!("user.{name}");
                let removed = self.fs.remove_xattr(self.model.files[file].ino, OsStr::new(&name));
                assert_eq!(removed.is_ok(), self.model.files[file].xattrs.remove(&name).is_some());
            }
            Step::Punch(handle, at, len) => {
                let Some((file, open)) = self.handle(handle) else { return Ok(()) };
                let file = &mut self.model.files[file];
                /// Which `fallocate` calls PUNCH_HOLE and KEEP_SIZE.
                const PUNCH: u32 = 3;
                self.fs.fallocate(access(false), open, u64::from(at), u64::from(len), PUNCH)?;
                let end = file.data.len().min(at as usize + len as usize);
                file.data[end.min(at as usize)..end].fill(0);
                file.versions.clear();
            }
            Step::Fsync(handle) => {
                let Some((file, open)) = self.handle(handle) else { return Ok(()) };
                self.fs.fsync(TID, open, false)?;
                self.model.files[file].settled = true;
                self.model.files[file].versions.clear();
                self.model.files[file].syncs += 1;
                self.names_settled();
            }
            Step::FsyncDir(dir) => {
                let Some(ino) = self.dir(dir) else { return Ok(()) };
                self.fs.fsync_dir(TID, ino)?;
                self.model.made.insert(dir);
                for (_, thing) in self.model.names.iter().filter(|(at, _)| at.0 == dir) {
                    match thing {
                        Thing::File(file) => self.model.files[*file].settled = true,
                        Thing::Dir(inside) => drop(self.model.made.insert(*inside)),
                        Thing::Symlink(_) => (),
                    }
                }
                self.names_settled();
            }
            Step::ChmodDir(dir, mode) => {
                let Some(ino) = self.dir(dir).filter(|ino| *ino != ROOT) else { return Ok(()) };
                let mode = u32::from(mode) | 0o700;
                let changes = Changes { mode: Some(mode), ..Changes::default() };
                assert_eq!(self.fs.set_attr(TID, ino, &changes)?.mode & 0o7777, mode);
                self.model.modes.insert(dir, mode);
            }
            Step::SetXattrDir(dir, value) => {
                let Some(ino) = self.dir(dir).filter(|ino| *ino != ROOT) else { return Ok(()) };
                self.fs.set_xattr(&caller(), ino, OsStr::new("user.d"), &[value], 0)?;
                self.model.values.insert(dir, value);
            }
            Step::Settle if self.epochs.is_some() => {
                self.fs.settle_all().map_err(|failed| failed.errno())?;
                let contents = self.contents();
                assert!(self.contents_below() == contents, "a whole epoch is in BACKING");
                self.epochs = Some(vec![contents]);
            }
            Step::Settle => {
                // An open file with one name would stay in RAM, and BACKING would have a checkpoint
                // of it.
                let checkpointed = |file: &File| file.links == 1 && !file.settled;
                let handles = std::mem::take(&mut self.model.handles);
                for (file, open) in handles {
                    if checkpointed(&self.model.files[file]) {
                        self.model.flags.remove(&open);
                        self.fs.release(TID, open);
                    } else {
                        self.model.handles.push((file, open));
                    }
                }
                self.fs.settle_due(self.fs.now_us()).1.map_err(|failed| failed.errno())?;
                assert_eq!(self.fs.status().files_in_ram, 0);
                self.all_made();
                for file in &mut self.model.files {
                    file.settled |= file.links > 0;
                    file.versions.clear();
                }
                self.names_settled();
            }
            Step::Forget => self.forget()?,
            Step::Crash => self.crash()?,
        }
        Ok(())
    }

    /// Names of files on flash hide nothing.
    fn names_settled(&mut self) {
        let model = &mut self.model;
        model.hidden.retain(|at, _| match model.names.get(at) {
            Some(Thing::File(file)) => !model.files[*file].settled,
            _ => false,
        });
    }

    fn rename(&mut self, from: DirAndName, to: DirAndName, flags: u8) -> Result<(), Errno> {
        let (Some(dir), Some(new_dir)) = (self.dir(from.0), self.dir(to.0)) else { return Ok(()) };
        let flags = match flags {
            6 => RenameFlags::NOREPLACE,
            7 => RenameFlags::EXCHANGE,
            _ => RenameFlags::empty(),
        };
        let (Some(source), target) =
            (self.model.names.get(&from).copied(), self.model.names.get(&to).copied())
        else {
            return Ok(());
        };
        // The kernel decides these cases before it asks the file system.
        let into_itself = |thing: Thing, at: DirAndName| matches!(thing, Thing::Dir(dir) if self.is_below(at.0, dir));
        let exchange = flags == RenameFlags::EXCHANGE;
        if into_itself(source, to)
            || (exchange && target.is_none_or(|target| into_itself(target, from)))
        {
            return Ok(());
        }
        if let Some(Thing::Dir(target)) = target
            && self.is_below(from.0, target)
        {
            return Ok(());
        }
        let is_dir = |thing| matches!(thing, Thing::Dir(_));
        if let Some(target) = target
            && flags.is_empty()
            && is_dir(target) != is_dir(source)
        {
            return Ok(());
        }
        if from == to {
            return Ok(());
        }
        self.look_up(from)?;
        let done = self.fs.rename(TID, (dir, name(from)), (new_dir, name(to)), flags);
        match (target, flags) {
            (Some(_), RenameFlags::NOREPLACE) => {
                assert_eq!(done, Err(Errno::EXIST));
                return Ok(());
            }
            (Some(Thing::Dir(replaced)), flags) if flags.is_empty() && !self.is_empty(replaced) => {
                assert_eq!(done, Err(Errno::NOTEMPTY));
                return Ok(());
            }
            // Two names of one file.
            (Some(target), flags) if target == source && flags.is_empty() => return done,
            _ => done?,
        }
        if exchange {
            let target = target.unwrap();
            for thing in [source, target] {
                if let Thing::File(file) = thing {
                    self.model.files[file].settled = true;
                }
            }
            self.model.names.insert(from, target);
            self.model.names.insert(to, source);
            self.model.hidden.remove(&from);
            self.model.hidden.remove(&to);
            self.moved(target, from);
        } else {
            if self.model.hidden.contains_key(&from)
                && let Thing::File(file) = source
            {
                // It could not move alone.
                self.model.files[file].settled = true;
                self.names_settled();
            }
            let in_ram = matches!(source, Thing::File(file) if !self.model.files[file].settled);
            if let Some(Thing::Dir(replaced)) = target {
                self.end_dir(replaced);
            }
            self.lose(to, in_ram);
            self.model.names.remove(&from);
            self.model.names.insert(to, source);
        }
        self.moved(source, to);
        Ok(())
    }

    fn moved(&mut self, thing: Thing, to: DirAndName) {
        if let Thing::Dir(dir) = thing
            && let Some((_, at)) = &mut self.model.dirs[dir]
        {
            *at = Some(to);
        }
    }

    /// As the kernel does before it asks for more.
    fn look_up(&self, at: DirAndName) -> Result<(), Errno> {
        let dir = self.dir(at.0).unwrap();
        let attr = self.fs.lookup(dir, name(at))?;
        match self.model.names[&at] {
            Thing::File(file) => {
                let file = &self.model.files[file];
                assert_eq!(
                    (attr.ino, attr.nlink, attr.size),
                    (file.ino, file.links, file.data.len() as u64)
                );
                assert_eq!(attr.mode & 0o7777, file.mode);
            }
            Thing::Dir(dir) => assert_eq!(Some(attr.ino), self.dir(dir)),
            Thing::Symlink(link) => {
                assert_eq!(self.fs.readlink(attr.ino)?.to_str(), Some(&*link.to_string()))
            }
        }
        Ok(())
    }

    /// Checks that the file system and the model have the same files with the same content.
    fn compare(&mut self) -> Result<(), Errno> {
        self.fs.forget_nameless();
        self.compare_events();
        self.fs.check();
        for at in self.model.names.keys() {
            self.look_up(*at)?;
        }
        let contents = self.contents();
        if let Some(epochs) = &mut self.epochs {
            epochs.push(contents);
        }
        for (dir, known) in self.model.dirs.iter().enumerate() {
            let Some((ino, _)) = known else { continue };
            let attr = self.fs.attr(*ino)?;
            if let Some(mode) = self.model.modes.get(&dir) {
                assert_eq!(attr.mode, 0o040_000 | mode, "directory {dir}");
            }
            // Some file systems do not count.
            if std::fs::metadata(&self.backing).unwrap().nlink() > 1 {
                let inside = self.model.names.iter().filter(|(at, _)| at.0 == dir);
                let inside = inside.filter(|(_, thing)| matches!(thing, Thing::Dir(_))).count();
                assert_eq!(attr.nlink as usize, 2 + inside, "directory {dir}");
            }
            let value = self.fs.get_xattr(*ino, OsStr::new("user.d")).ok();
            let expected = self.model.values.get(&dir).map(|value| vec![*value]);
            assert_eq!(value, expected, "directory {dir}");
            let listed: BTreeSet<_> =
                self.fs.list(*ino)?.1.into_iter().map(|entry| (entry.name, entry.ino)).collect();
            let expected: BTreeSet<_> = self
                .model
                .names
                .iter()
                .filter(|((parent, _), _)| *parent == dir)
                .map(|(at, thing)| {
                    let ino = match thing {
                        Thing::File(file) => self.model.files[*file].ino,
                        Thing::Dir(dir) => self.dir(*dir).unwrap(),
                        Thing::Symlink(_) => self.fs.lookup(*ino, name(*at)).unwrap().ino,
                    };
                    (name(*at).to_owned(), ino)
                })
                .collect();
            assert_eq!(listed, expected, "directory {dir}");
        }
        for file in &self.model.files {
            if file.links == 0 {
                continue;
            }
            for (name, value) in &file.xattrs {
                assert_eq!(self.fs.get_xattr(file.ino, OsStr::new(name)).as_ref(), Ok(value));
            }
        }
        Ok(())
    }

    /// The events that were seen explain the tree.
    fn compare_events(&mut self) {
        self.fs.deliver_events();
        let events = self.events.lock().unwrap();
        for event in &events[self.applied..] {
            self.replayed.apply(event).unwrap_or_else(|why| panic!("{event:?}: {why}"));
        }
        self.applied = events.len();
        drop(events);
        self.replayed.check();
        let names: BTreeMap<String, usize> = self
            .model
            .names
            .iter()
            .filter_map(|(at, thing)| match thing {
                Thing::File(file) => Some((self.path_in_mount(*at), *file)),
                _ => None,
            })
            .collect();
        let replayed: Vec<_> = self.replayed.names.keys().collect();
        assert_eq!(replayed, names.keys().collect::<Vec<_>>(), "names of files");
        let of_names = names.iter().map(|(name, file)| (*file, self.replayed.names[name]));
        let of_opens =
            self.model.handles.iter().map(|(file, open)| (*file, self.replayed.opens[open]));
        let ids: Vec<_> = of_names.chain(of_opens).collect();
        assert_eq!(self.replayed.opens.len(), self.model.handles.len(), "opens");
        for (file, id) in ids {
            let file = &mut self.model.files[file];
            assert_eq!(*file.id.get_or_insert(id), id, "a file has one identity");
            let seen = &self.replayed.files[&id];
            let written: Vec<bool> = file.data.iter().map(|byte| *byte != 0).collect();
            assert!(
                seen.written == written,
                "size and extents of {file:?}: {} bytes",
                seen.written.len()
            );
            assert_eq!(seen.read, file.read, "bytes read from {file:?}");
            assert!(seen.syncs >= file.syncs, "syncs of {file:?}");
        }
    }

    /// From the mounted directory on.
    fn path_in_mount(&self, at: DirAndName) -> String {
        let path = self.path(at);
        format!("/{}", path.strip_prefix(&self.backing).unwrap().to_str().unwrap())
    }

    fn forget(&mut self) -> Result<(), Errno> {
        // A second lookup returns the same number as the first.
        for file in &self.model.files {
            self.fs.forget(file.ino, u64::MAX);
        }
        Ok(())
    }

    fn path(&self, at: DirAndName) -> PathBuf {
        let dir = match self.model.dirs[at.0] {
            Some((_, Some(parent))) => self.path(parent),
            _ => self.backing.clone(),
        };
        dir.join(name(at))
    }

    /// Checks that every name in BACKING stands for a file that may be there.
    fn check_backing(&self) {
        for (at, thing) in &self.model.names {
            let path = self.path(*at);
            match thing {
                Thing::Dir(dir) => {
                    assert!(path.is_dir() || !self.model.made.contains(dir), "{path:?}");
                }
                Thing::Symlink(link) => {
                    assert_eq!(std::fs::read_link(&path).unwrap(), PathBuf::from(link.to_string()));
                }
                Thing::File(file) => {
                    let file = &self.model.files[*file];
                    let there = std::fs::read(&path).ok();
                    let allowed = match self.model.hidden.get(at) {
                        _ if file.settled => {
                            file.versions.iter().chain([&file.data]).map(Some).collect()
                        }
                        // It may still be open, and written to.
                        Some(hidden) => {
                            let hidden = &self.model.files[*hidden];
                            let all = hidden.versions.iter().chain([&hidden.data, &file.data]);
                            all.map(Some).collect()
                        }
                        None => vec![None, Some(&file.data)],
                    };
                    assert!(
                        allowed.contains(&there.as_ref()),
                        "{path:?} of {file:?}: {:?}",
                        there.map(|there| there.len())
                    );
                }
            }
        }
    }

    /// Kills the file system, and checks that BACKING has all files that must survive. Hidden files
    /// may be back then and files in RAM are gone, so the rest of the history begins with an empty
    /// tree.
    fn crash(&mut self) -> Result<(), Errno> {
        let Some(epochs) = &self.epochs else {
            self.check_backing();
            *self = Both::new(false);
            return Ok(());
        };
        let store = self.backing.with_file_name("store");
        self.fs = open_fs(&self.backing, &store, true);
        let below = self.contents_below();
        assert!(epochs.contains(&below), "after a crash BACKING is as after some step: {below:?}");
        *self = Both::new(true);
        Ok(())
    }

    fn end(&mut self) -> Result<(), Errno> {
        self.fs.settle_all().map_err(|failed| failed.errno())?;
        for file in &mut self.model.files {
            file.settled = true;
            file.versions.clear();
        }
        self.model.hidden.clear();
        self.all_made();
        self.check_backing();
        self.fs.tidy()?;
        Ok(())
    }
}

/// Without any one of its events a history is not explained: what follows contradicts the rest, or
/// the tree is another one.
// Promises: Mount 49.
#[test]
fn a_lost_event_is_noticed() {
    let steps = [
        Step::Mkdir((0, 0)),
        Step::Create((1, 0), true),
        Step::Write(0, 0, 7, 5000),
        Step::Read(0),
        Step::Link((1, 0), (0, 1)),
        Step::Truncate((0, 1), 3000),
        Step::Punch(0, 100, 50),
        Step::Settle,
        Step::Rename((0, 0), (0, 2), 0),
        Step::Mknod((0, 0)),
        Step::Fsync(0),
        Step::Release(0),
        Step::Rename((0, 0), (0, 1), 0),
        Step::Open((0, 1), 0),
        Step::Write(0, 10, 7, 10),
        Step::Rename((0, 1), (0, 2), 7),
        Step::Unlink((0, 2)),
        Step::Release(0),
    ];
    let mut both = Both::new(false);
    // How many events there are after each step: then everything is compared.
    let mut ends = Vec::new();
    for step in &steps {
        both.step(step)
            .and_then(|()| both.compare())
            .unwrap_or_else(|why| panic!("{step:?}: {why}"));
        ends.push(both.applied);
    }
    let events = both.events.lock().unwrap().clone();
    let replay = |without: Option<usize>| -> Result<Vec<Replayed>, String> {
        let (mut replayed, mut compared, mut at) = (Replayed::default(), Vec::new(), 0);
        for end in &ends {
            for event in (at..*end).filter(|at| Some(*at) != without) {
                replayed.apply(&events[event])?;
            }
            at = *end;
            compared.push(replayed.without_time());
        }
        Ok(compared)
    };
    let whole = replay(None).unwrap();
    assert!(events.len() > steps.len(), "{events:?}");
    for (at, event) in events.iter().enumerate() {
        let lost = replay(Some(at));
        assert!(lost.is_err() || lost.as_ref() != Ok(&whole), "without {event:?}");
    }
}

/// A directory got the inode number of a file that another had replaced, and its name went into the
/// events as one of that file.
#[test]
fn a_directory_is_not_taken_for_the_file_whose_number_it_got() {
    let mut both = Both::new(true);
    for step in [
        Step::Create((0, 1), false),
        Step::Mkdir((0, 0)),
        Step::Release(0),
        Step::Create((0, 2), false),
        Step::Settle,
        Step::Rename((0, 2), (0, 1), 0),
        Step::Forget,
        Step::Create((1, 0), false),
        Step::Mkdir((0, 2)),
    ] {
        both.step(&step).and_then(|()| both.compare()).unwrap();
    }
    both.end().unwrap();
}

proptest! {
    // Promises: Mount 49.
    #[test]
    fn a_mount_behaves_like_a_tree_in_memory(steps in prop::collection::vec(step(), 1..150)) {
        let mut both = Both::new(false);
        for (at, step) in steps.iter().enumerate() {
            both.step(step).and_then(|()| both.compare()).unwrap_or_else(|error| panic!("step {at}, {step:?}: {error}"));
        }
        both.end().unwrap();
    }

    /// The same for files whose syncs are delayed. A crash takes all of them back to one moment.
    // Promises: Mount 72, Mount 74.
    #[test]
    fn a_group_behaves_like_a_tree_in_memory(steps in prop::collection::vec(step(), 1..150)) {
        let mut both = Both::new(true);
        for (at, step) in steps.iter().enumerate() {
            both.step(step).and_then(|()| both.compare()).unwrap_or_else(|error| panic!("step {at}, {step:?}: {error}"));
        }
        both.end().unwrap();
    }
}
