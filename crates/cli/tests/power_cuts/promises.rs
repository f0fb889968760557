//! The states that a disk may have after a power cut, by the operations acknowledged before it.
//!
//! - An acknowledged fsync, fdatasync, `O_SYNC` write or `flashsift flush` lasts, with the names
//!   that the file had (Mount 2, Mount 9). An acknowledged fsync of a directory makes its names
//!   last (Mount 3).
//! - A file that was never written in BACKING is there as it was at one moment, or not at all
//!   (Mount 4). The bytes of a file that was written in BACKING and not synced since are each from
//!   one of its moments, or zero.
//! - A name stands for a file that it stood for at one moment since it was last made durable
//!   (Mount 5). A durable file is under one of its names.
//! - Nothing is there that no application made.

use crate::power_cuts::history::{Op, Step};
use std::{collections::BTreeMap, fs, os::unix::fs::MetadataExt, path::Path};

/// The attribute that holds a file's number.
pub(crate) const ATTRIBUTE: &str = "user.number";

/// Content of a directory: the nodes below it by path, without `.flashsift`.
pub(crate) type Tree = BTreeMap<String, Node>;

#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Node {
    Directory,
    Other,
    File { bytes: Vec<u8>, mode: u32, number: Option<Vec<u8>> },
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Self::Directory => write!(f, "a directory"),
            Self::Other => write!(f, "neither file nor directory"),
            Self::File { bytes, mode, number } => {
                let number = String::from_utf8_lossy(number.as_deref().unwrap_or(b"none"));
                write!(f, "file {number}, {}, mode {mode:o}", show(bytes))
            }
        }
    }
}

fn show(bytes: &[u8]) -> String {
    let zeros = bytes.iter().filter(|byte| **byte == 0).count();
    format!("{} bytes {:?}… ({zeros} zeros)", bytes.len(), &bytes[..bytes.len().min(4)])
}

/// The tree below a directory; entries of the top with a name in `except` are left out.
pub(crate) fn tree(top: &Path, except: &[&str]) -> std::io::Result<Tree> {
    let mut tree = Tree::new();
    let mut folders = vec![top.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.strip_prefix(top).unwrap().to_string_lossy().into_owned();
            if except.contains(&name.as_str()) {
                continue;
            }
            let about = fs::symlink_metadata(&path)?;
            let node = if about.is_dir() {
                folders.push(path);
                Node::Directory
            } else if about.is_file() {
                let mut value = [0; 32];
                let number = rustix::fs::getxattr(&path, ATTRIBUTE, &mut value).ok();
                let number = number.map(|len| value[..len].to_vec());
                Node::File { bytes: fs::read(&path)?, mode: about.mode() & 0o7777, number }
            } else {
                Node::Other
            };
            tree.insert(name, node);
        }
    }
    Ok(tree)
}

/// The object that a name stood for at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Entry {
    Nothing,
    Directory,
    File(u64),
}

struct Moment {
    bytes: Vec<u8>,
    mode: u32,
    /// The bytes changed, and may have changed in BACKING.
    in_place: bool,
}

#[derive(Default)]
struct File {
    moments: Vec<Moment>,
    /// The moments since the bytes and the mode were last made durable begin here.
    bytes_last: usize,
    mode_last: usize,
    /// It was made durable once.
    durable: bool,
}

impl File {
    fn fits(&self, bytes: &[u8], mode: u32) -> bool {
        let moments = &self.moments[self.bytes_last..];
        if !self.moments[self.mode_last..].iter().any(|moment| moment.mode == mode) {
            return false;
        }
        if moments.iter().any(|moment| moment.bytes == bytes) {
            return true;
        }
        // Written in BACKING: any mixture.
        moments[1..].iter().any(|moment| moment.in_place)
            && moments.iter().any(|moment| moment.bytes.len() >= bytes.len())
            && bytes.iter().enumerate().all(|(at, byte)| {
                *byte == 0 || moments.iter().any(|moment| moment.bytes.get(at) == Some(byte))
            })
    }
}

fn parent(name: &str) -> &str {
    name.rsplit_once('/').map_or("", |(parent, _)| parent)
}

#[derive(Default)]
struct Name {
    entries: Vec<Entry>,
    /// It stands for one of the entries from here on.
    first: usize,
}

/// The states that the files of one application may have.
#[derive(Default)]
pub(crate) struct Promises {
    files: BTreeMap<u64, File>,
    names: BTreeMap<String, Name>,
    syncs_in_place: bool,
}

impl Promises {
    /// For a cut at this position of the log. `syncs_in_place`: the first sync of a file writes it
    /// under its name, where a cut may leave a part.
    pub(crate) fn at(position: u64, ops: &[Op], syncs_in_place: bool) -> Self {
        let mut promises = Self { syncs_in_place, ..Self::default() };
        for op in ops.iter().take_while(|op| op.begun < position) {
            promises.may_have_happened(op);
            if op.done <= position {
                promises.acknowledged(op);
            }
        }
        promises
    }

    fn entry(&self, name: &str) -> Entry {
        self.names.get(name).map_or(Entry::Nothing, |name| *name.entries.last().unwrap())
    }

    fn set(&mut self, name: &str, entry: Entry) {
        let new = || Name { entries: vec![Entry::Nothing], first: 0 };
        self.names.entry(name.to_owned()).or_insert_with(new).entries.push(entry);
    }

    fn change(&mut self, name: &str, op: &Op, change: impl FnOnce(&mut Vec<u8>)) {
        let Entry::File(number) = self.entry(name) else { unreachable!("{name} is no file") };
        let file = self.files.get_mut(&number).unwrap();
        let last = file.moments.last().unwrap();
        let mut moment =
            Moment { bytes: last.bytes.clone(), mode: last.mode, in_place: op.in_place };
        change(&mut moment.bytes);
        file.moments.push(moment);
    }

    fn append(&mut self, name: &str, op: &Op) {
        for part in op.parts() {
            self.change(name, op, |bytes| bytes.extend(part));
        }
    }

    fn may_have_happened(&mut self, op: &Op) {
        use Step::*;
        match &op.step {
            Directory(name) => self.set(name, Entry::Directory),
            Create(name) | CreateSynced(name) => {
                let moments = vec![Moment { bytes: Vec::new(), mode: 0o644, in_place: false }];
                self.files.insert(op.file, File { moments, ..File::default() });
                self.set(name, Entry::File(op.file));
                self.append(name, op);
            }
            Rewrite(name) => {
                self.change(name, op, Vec::clear);
                self.append(name, op);
            }
            Overwrite(name, offset) => self.change(name, op, |bytes| {
                let end = *offset as usize + op.data.len();
                bytes.resize(bytes.len().max(end), 0);
                bytes[*offset as usize..end].copy_from_slice(&op.data);
            }),
            Append(name) => self.append(name, op),
            Cut(name, len) => self.change(name, op, |bytes| bytes.resize(*len as usize, 0)),
            Mode(name, bits) => {
                self.change(name, op, |_| ());
                let Entry::File(number) = self.entry(name) else { unreachable!() };
                let moment = self.files.get_mut(&number).unwrap().moments.last_mut().unwrap();
                (moment.mode, moment.in_place) = (*bits, false);
            }
            Rename(from, to) => {
                self.set(to, self.entry(from));
                self.set(from, Entry::Nothing);
            }
            Exchange(one, other) => {
                let (first, second) = (self.entry(one), self.entry(other));
                self.set(one, second);
                self.set(other, first);
            }
            Link(from, to) => self.set(to, self.entry(from)),
            Unlink(name) => self.set(name, Entry::Nothing),
            Sync(name) | DataSync(name) => self.may_be_written_in_place(self.entry(name)),
            SyncDirectory(folder) => {
                let within = |name: &&String| parent(name) == folder.as_str();
                let within: Vec<_> = self.names.keys().filter(within).cloned().collect();
                within.iter().for_each(|name| self.may_be_written_in_place(self.entry(name)));
            }
            Settle => {}
        }
    }

    fn may_be_written_in_place(&mut self, entry: Entry) {
        let Entry::File(number) = entry else { return };
        let file = self.files.get_mut(&number).unwrap();
        if self.syncs_in_place && !file.durable {
            file.moments.last_mut().unwrap().in_place = true;
        }
    }

    fn acknowledged(&mut self, op: &Op) {
        use Step::*;
        match &op.step {
            Sync(name) | CreateSynced(name) => {
                let Entry::File(number) = self.entry(name) else { unreachable!() };
                self.file_lasts(number);
                for name in self.names.values_mut() {
                    if name.entries.last() == Some(&Entry::File(number)) {
                        name.first = name.entries.len() - 1;
                    }
                }
            }
            DataSync(name) => {
                let Entry::File(number) = self.entry(name) else { unreachable!() };
                let file = self.files.get_mut(&number).unwrap();
                (file.bytes_last, file.durable) = (file.moments.len() - 1, true);
            }
            SyncDirectory(folder) => {
                let within = |name: &str| parent(name) == folder.as_str();
                for (_, name) in self.names.iter_mut().filter(|(name, _)| within(name)) {
                    name.first = name.entries.len() - 1;
                }
            }
            Settle => {
                for name in self.names.values_mut() {
                    name.first = name.entries.len() - 1;
                }
                let files: Vec<u64> = self.files.keys().copied().collect();
                files.into_iter().for_each(|file| self.file_lasts(file));
            }
            _ => {}
        }
    }

    fn file_lasts(&mut self, number: u64) {
        let file = self.files.get_mut(&number).unwrap();
        file.bytes_last = file.moments.len() - 1;
        file.mode_last = file.bytes_last;
        file.durable = true;
    }

    /// Compares what was found with the promises. The error says which one is broken.
    pub(crate) fn check(&self, found: &Tree) -> Result<(), String> {
        if let Some(name) = found.keys().find(|name| !self.names.contains_key(*name)) {
            return Err(format!("{name} was found, and no application made it"));
        }
        for (path, name) in &self.names {
            let may_be = &name.entries[name.first..];
            if !may_be.iter().any(|entry| self.is(*entry, found.get(path))) {
                let may_be: Vec<_> = may_be.iter().map(|entry| self.show(*entry)).collect();
                let found = found.get(path);
                return Err(format!("{path} is {found:?}; it may be one of {may_be:#?}"));
            }
        }
        // After a rename the name may stand for the old or the new file. A durable file may not
        // vanish between its names.
        for (number, _) in self.files.iter().filter(|(_, file)| file.durable) {
            let entry = Entry::File(*number);
            if !self.names.values().any(|name| name.entries.last() == Some(&entry)) {
                continue;
            }
            let mut had = self.names.iter().filter(|(_, name)| name.entries.contains(&entry));
            if !had.any(|(path, _)| self.is(entry, found.get(path))) {
                return Err(format!("{} is durable and under none of its names", self.show(entry)));
            }
        }
        Ok(())
    }

    fn is(&self, entry: Entry, found: Option<&Node>) -> bool {
        match (entry, found) {
            (Entry::Nothing, None) | (Entry::Directory, Some(Node::Directory)) => true,
            (Entry::File(number), Some(Node::File { bytes, mode, number: written })) => {
                let number_fits =
                    written.as_ref().is_none_or(|text| *text == number.to_string().as_bytes());
                number_fits && self.files[&number].fits(bytes, *mode)
            }
            _ => false,
        }
    }

    fn show(&self, entry: Entry) -> String {
        let Entry::File(number) = entry else { return format!("{entry:?}") };
        let file = &self.files[&number];
        let moments = file.moments[file.bytes_last..].iter().map(|moment| {
            let place = if moment.in_place { ", in place" } else { "" };
            format!("{}, mode {:o}{place}", show(&moment.bytes), moment.mode)
        });
        format!("file {number}: {}", moments.collect::<Vec<_>>().join(" or "))
    }
}
