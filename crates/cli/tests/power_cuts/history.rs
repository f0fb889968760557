//! Applications that work on a directory, and a note of what was acknowledged when.

use crate::power_cuts::{Random, promises::ATTRIBUTE};
use rustix::fs::{CWD, OFlags, RenameFlags, XattrFlags};
use std::{
    collections::{BTreeMap, VecDeque},
    fs::{self, File},
    io::{self, Write},
    os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt},
    path::Path,
};

/// Files of an application, in each of its two folders.
const FILES: usize = 6;
/// Largest write of one call, bytes: the kernel does not split it.
const CHUNK: usize = 64 << 10;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Directory(String),
    Create(String),
    /// With `O_SYNC`.
    CreateSynced(String),
    /// Open with `O_TRUNC`, then write.
    Rewrite(String),
    /// Writes at this offset, which the file has.
    Overwrite(String, u64),
    Append(String),
    Cut(String, u64),
    Mode(String, u32),
    Rename(String, String),
    Exchange(String, String),
    Link(String, String),
    Unlink(String),
    Sync(String),
    DataSync(String),
    SyncDirectory(String),
    /// `flashsift flush`, or the end of the mount.
    Settle,
}

/// An operation of an application.
pub(crate) struct Op {
    pub(crate) step: Step,
    /// The bytes that it wrote.
    pub(crate) data: Vec<u8>,
    /// Nothing of it can be on the disk before this position of the device's log.
    pub(crate) begun: u64,
    /// It was acknowledged at this position.
    pub(crate) done: u64,
    /// When it was done, its file was in BACKING, where its bytes were written, or come later.
    pub(crate) in_place: bool,
    /// Number of the file that it created.
    pub(crate) file: u64,
}

impl Op {
    /// The writes that it made, each by one call.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &[u8]> {
        self.data.chunks(CHUNK)
    }
}

/// Where an application works.
#[derive(Clone, Copy)]
pub(crate) struct Workplace<'a> {
    /// The directory that the application sees.
    pub(crate) top: &'a Path,
    /// The directory on the disk.
    pub(crate) backing: &'a Path,
    /// `None` where no flashsift is between them: then the files count as if they were always in
    /// RAM (`false`) or never (`true`).
    pub(crate) in_place: Option<bool>,
}

pub(crate) struct Application<'a> {
    place: Workplace<'a>,
    position: &'a (dyn Fn() -> u64 + Sync),
    random: Random,
    folders: [String; 2],
    names: BTreeMap<String, u64>,
    planned: VecDeque<Step>,
    files: u64,
    pub(crate) ops: Vec<Op>,
}

impl<'a> Application<'a> {
    pub(crate) fn new(
        number: u64,
        seed: u64,
        place: Workplace<'a>,
        position: &'a (dyn Fn() -> u64 + Sync),
    ) -> Self {
        let folders = [format!("{number}"), format!("{number}/d")];
        let planned = folders.iter().cloned().map(Step::Directory).collect();
        Self {
            place,
            position,
            random: Random::new(seed * 64 + number),
            folders,
            names: BTreeMap::new(),
            planned,
            files: number << 32,
            ops: Vec::new(),
        }
    }

    /// Makes its folders durable.
    pub(crate) fn begin(&mut self) -> io::Result<()> {
        self.work(2)?;
        let synced = [String::new(), self.folders[0].clone()];
        synced.into_iter().try_for_each(|folder| self.take(Step::SyncDirectory(folder)))
    }

    /// Does so many steps.
    pub(crate) fn work(&mut self, steps: usize) -> io::Result<()> {
        for _ in 0..steps {
            let step = self.planned.pop_front().unwrap_or_else(|| self.step());
            self.take(step)?;
        }
        Ok(())
    }

    /// Notes that everything was written back between these positions.
    pub(crate) fn settled(&mut self, begun: u64, done: u64) {
        self.note(Step::Settle, Vec::new(), begun, done);
    }

    fn note(&mut self, step: Step, data: Vec<u8>, begun: u64, done: u64) {
        let in_place = self.in_place(&step);
        let file = self.files;
        self.ops.push(Op { step, data, begun, done, in_place, file });
    }

    fn name(&mut self) -> String {
        let folder = &self.folders[self.random.below(2)];
        format!("{folder}/{}", self.random.below(FILES))
    }

    /// Chooses a step that is possible now.
    fn step(&mut self) -> Step {
        use Step::*;
        let (name, other) = (self.name(), self.name());
        let Some(file) = self.names.get(&name).copied() else {
            return if self.random.below(10) == 0 { CreateSynced(name) } else { Create(name) };
        };
        let others = self.names.get(&other).copied();
        match self.random.below(24) {
            0 => Rewrite(name),
            1 => Overwrite(name, self.random.below(5000) as u64),
            2 | 3 => Append(name),
            4 => Cut(name, self.random.below(9000) as u64),
            5 => Mode(name, [0o600, 0o640, 0o644][self.random.below(3)]),
            // Two names of one file: a rename does nothing.
            6 | 7 if others != Some(file) => Rename(name, other),
            8 if others.is_some_and(|others| others != file) => Exchange(name, other),
            9 | 10 if others.is_none() => Link(name, other),
            11 => Unlink(name),
            12 => SyncDirectory(self.folders[self.random.below(2)].clone()),
            13 => DataSync(name),
            14 if self.place.in_place.is_none() && self.random.below(8) == 0 => Settle,
            15 | 16 => Sync(name),
            // An editor saves, with care or without.
            _ => {
                let new = format!("{}/new", self.folders[0]);
                if self.random.below(3) == 0 {
                    self.planned.push_back(Sync(new.clone()));
                }
                self.planned.push_back(Rename(new.clone(), name));
                if self.random.below(6) == 0 {
                    let folder = self.folders[self.random.below(2)].clone();
                    self.planned.push_back(SyncDirectory(folder));
                }
                Create(new)
            }
        }
    }

    fn take(&mut self, step: Step) -> io::Result<()> {
        let at = |name: &str| self.place.top.join(name);
        let begun = (self.position)();
        let mut data = Vec::new();
        use Step::*;
        match &step {
            Directory(name) => fs::create_dir(at(name))?,
            Create(name) | CreateSynced(name) => {
                let sync = matches!(step, CreateSynced(_));
                let flags = if sync { OFlags::SYNC } else { OFlags::empty() };
                let mut options = File::options();
                options.write(true).create_new(true).mode(0o644).custom_flags(flags.bits() as i32);
                let mut file = options.open(at(name))?;
                self.files += 1;
                self.names.insert(name.clone(), self.files);
                let number = self.files.to_string();
                rustix::fs::fsetxattr(&file, ATTRIBUTE, number.as_bytes(), XattrFlags::CREATE)?;
                // Without a write, O_SYNC promises nothing.
                let len = [usize::from(sync), 10, 4096, 20_000, 150_000][self.random.below(5)];
                let len = len + self.random.below(len + 1);
                data = self.random.bytes(len);
                data.chunks(CHUNK).try_for_each(|part| file.write_all(part))?;
            }
            Rewrite(name) => {
                let len = self.random.below(20_000);
                data = self.random.bytes(len);
                let mut file = File::options().write(true).truncate(true).open(at(name))?;
                data.chunks(CHUNK).try_for_each(|part| file.write_all(part))?;
            }
            Overwrite(name, offset) => {
                let len = self.random.below(9000);
                data = self.random.bytes(len);
                File::options().write(true).open(at(name))?.write_all_at(&data, *offset)?;
            }
            Append(name) => {
                let len = self.random.below(9000);
                data = self.random.bytes(len);
                File::options().append(true).open(at(name))?.write_all(&data)?;
            }
            Cut(name, len) => File::options().write(true).open(at(name))?.set_len(*len)?,
            Mode(name, bits) => {
                fs::set_permissions(at(name), fs::Permissions::from_mode(*bits))?;
            }
            Rename(from, to) => {
                fs::rename(at(from), at(to))?;
                let file = self.names.remove(from).expect("it has this name");
                self.names.insert(to.clone(), file);
            }
            Exchange(one, other) => {
                rustix::fs::renameat_with(CWD, at(one), CWD, at(other), RenameFlags::EXCHANGE)?;
                let (first, second) = (self.names[one], self.names[other]);
                self.names.insert(one.clone(), second);
                self.names.insert(other.clone(), first);
            }
            Link(from, to) => {
                fs::hard_link(at(from), at(to))?;
                self.names.insert(to.clone(), self.names[from]);
            }
            Unlink(name) => {
                fs::remove_file(at(name))?;
                self.names.remove(name);
            }
            Sync(name) | SyncDirectory(name) => File::open(at(name))?.sync_all()?,
            DataSync(name) => File::open(at(name))?.sync_data()?,
            Settle => {
                let ask = "user.flashsift.settle";
                rustix::fs::getxattr(self.place.top, ask, &mut [0; 1])?;
            }
        }
        let done = (self.position)();
        self.note(step, data, begun, done);
        Ok(())
    }

    /// Whether BACKING has the file that a step changed, and its bytes were written there or wait
    /// for it. Then BACKING has the beginning of the file; overwrites may wait anywhere. A file in
    /// RAM may have an older copy in BACKING, which the next one replaces as a whole.
    fn in_place(&self, step: &Step) -> bool {
        use Step::*;
        let (Create(name)
        | CreateSynced(name)
        | Rewrite(name)
        | Overwrite(name, _)
        | Append(name)
        | Cut(name, _)
        | Mode(name, _)) = step
        else {
            return false;
        };
        if let Some(always) = self.place.in_place {
            return always;
        }
        let file = self.names[name];
        let any_may_wait = matches!(step, Overwrite(..) | Append(_));
        self.names.iter().filter(|(_, other)| **other == file).any(|(name, _)| {
            let mut value = [0; 32];
            let below = self.place.backing.join(name);
            let begins =
                |seen: Vec<u8>| fs::read(&below).is_ok_and(|there| seen.starts_with(&there));
            rustix::fs::getxattr(&below, ATTRIBUTE, &mut value)
                .is_ok_and(|len| value[..len] == *file.to_string().as_bytes())
                && (any_may_wait || fs::read(self.place.top.join(name)).is_ok_and(begins))
        })
    }
}

/// A file without a byte had come to BACKING, and was written anew. Its bytes waited in RAM, as
/// those of an append do. The history took it for a file that stays in RAM and goes to BACKING as a
/// whole. So it called a promise broken when ext4 left zeros in place of the bytes: by chance, as
/// it depends on when the empty file leaves RAM.
// Promises: Mount 80.
#[test]
fn a_file_in_backing_of_which_bytes_wait_is_written_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let [top, backing] = ["top", "backing"].map(|name| folder.path().join(name));
    let place = Workplace { top: &top, backing: &backing, in_place: None };
    let position = || 0;
    let mut application = Application::new(0, 1, place, &position);
    let name = "file".to_owned();
    application.names.insert(name.clone(), 7);
    for (number, below, is_in_place) in [
        ("7", "", true),
        ("7", "wri", true),
        ("7", "written anew", true),
        ("7", "an older copy", false),
        ("8", "", false),
    ] {
        for (place, content) in [(&top, "written anew"), (&backing, below)] {
            let path = place.join(&name);
            fs::create_dir_all(place).unwrap();
            fs::write(&path, content).unwrap();
            let flags = XattrFlags::empty();
            rustix::fs::setxattr(&path, ATTRIBUTE, number.as_bytes(), flags).unwrap();
        }
        for step in [Step::Rewrite(name.clone()), Step::Create(name.clone())] {
            assert_eq!(application.in_place(&step), is_in_place, "{step:?}: {number} {below}");
        }
    }
}
