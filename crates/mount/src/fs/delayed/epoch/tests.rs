//! Epochs of which each step is taken by the test.

use super::*;
use crate::Fs;
use crate::{Access, Caller, Config, ROOT, Store};
use flashsift_events::dice::Dice;
use rustix::fs::FallocateFlags;
use std::fs;
use std::path::Path as FsPath;

/// `prepare` fills BACKING.
fn mount(folder: &tempfile::TempDir, prepare: impl FnOnce(&FsPath)) -> Fs {
    for name in ["backing", "store"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    prepare(&folder.path().join("backing"));
    start(folder)
}

fn start(folder: &tempfile::TempDir) -> Fs {
    let backing = File::open(folder.path().join("backing")).unwrap();
    let store = Store::in_dir(&folder.path().join("store")).unwrap();
    let delayed = vec![("*.db".to_owned(), 60_000_000)];
    Fs::new(backing.into(), store, Config { delayed, ..Config::default() }).unwrap()
}

/// An epoch that failed had filled holes of a file and added pages to it. Its next epoch could
/// leave the file out, so that a crash left both there. If the file was cut and grew again, its
/// new part had the old pages.
// Promises: Mount 75.
#[test]
fn an_epoch_that_failed_leaves_nothing_in_place() {
    const PAGE: usize = PAGE_BYTES as usize;
    let folder = tempfile::tempdir().unwrap();
    let mount = mount(&folder, |backing| {
        File::create(backing.join("a.db")).unwrap().set_len(20 * PAGE_BYTES).unwrap();
    });
    let attr = mount.lookup(ROOT, OsStr::new("a.db")).unwrap();
    let (open, _) = mount.open(0, attr.ino).unwrap();
    let write = |page: u64, bytes: &[u8]| {
        mount.write(Access::default(), open, page * PAGE_BYTES, bytes).unwrap();
    };
    write(1, &[1; PAGE]);
    write(20, &[2; 8 * PAGE]);
    let mut closer = mount.delayed.closer.lock();
    mount.delayed.prepare_epoch(&mut closer).unwrap();
    closer.log.set_failed(true);
    let mut staged = StagedFiles::new();
    let captured = mount.delayed.capture_epoch(&mut closer, true, &mut staged).unwrap().unwrap();
    let below = || fs::read(folder.path().join("backing/a.db")).unwrap();
    assert_eq!((below().len(), below()[PAGE]), (28 * PAGE, 1));
    mount.delayed.take_back(captured, true);
    drop(closer);
    for pages in [22, 28] {
        let size = Some(pages * PAGE_BYTES);
        let resize = crate::Changes { size, ..crate::Changes::default() };
        mount.set_attr(0, attr.ino, &resize).unwrap();
    }
    mount.delayed.end_epoch(Ending::Synced).unwrap();
    let mut expected = vec![0; 28 * PAGE];
    expected[PAGE..2 * PAGE].fill(1);
    expected[20 * PAGE..22 * PAGE].fill(2);
    assert!(below() == expected);
    mount.release(0, open);
    mount.check();
}

/// While an epoch of 12,000 new files was captured, every application waited for their copies:
/// more than a second. They are copied before, and the capture copies those again that changed
/// since.
// Promises: Mount 72.
#[test]
fn a_capture_copies_only_files_that_changed_since_they_were_staged() {
    let folder = tempfile::tempdir().unwrap();
    let mount = mount(&folder, |_| {});
    let us = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let caller = Caller { uid: us.0, gid: us.1, tid: 0, umask: 0 };
    let open = ["same.db", "written.db", "mode.db", "gone.db"].map(|name| {
        let made = mount.create(&caller, ROOT, OsStr::new(name), 0o640, 0).unwrap();
        mount.write(Access::default(), made.1, 0, b"first").unwrap();
        made
    });
    let mut closer = mount.delayed.closer.lock();
    mount.delayed.prepare_epoch(&mut closer).unwrap();
    let mut staged = mount.delayed.stage_new_files(&closer, true);
    assert_eq!(staged.len(), 4);
    let [same, ..] = open.each_ref().map(|(attr, ..)| staged[&attr.ino].hidden);
    mount.write(Access::default(), open[1].1, 0, b"newer").unwrap();
    let mode = crate::Changes { mode: Some(0o600), ..crate::Changes::default() };
    mount.set_attr(0, open[2].0.ino, &mode).unwrap();
    mount.unlink(0, ROOT, OsStr::new("gone.db")).unwrap();
    let captured = mount.delayed.capture_epoch(&mut closer, true, &mut staged).unwrap().unwrap();
    assert_eq!(staged.len(), 3, "copies that were not used");
    assert!(captured.plan.record.places.iter().any(|place| place.hidden == same));
    mount.delayed.commit_epoch(&mut closer, &captured, &mut false).unwrap();
    closer.log = captured.plan.log.clone();
    mount.delayed.apply_epoch(&mut closer, captured).unwrap();
    drop(closer);
    let below = |name: &str| fs::read(folder.path().join("backing").join(name)).ok();
    assert_eq!(below("same.db").as_deref(), Some(&b"first"[..]));
    assert_eq!(below("written.db").as_deref(), Some(&b"newer"[..]));
    let stat = fs::metadata(folder.path().join("backing/mode.db")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mode(&stat) & 0o7777, 0o600);
    assert_eq!(below("gone.db"), None);
    mount.check();
}

/// The end of an attempt to write an epoch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Attempt {
    Fails,
    /// It is durable, and nothing of it is in place.
    IsCommitted,
    IsApplied,
}

/// The step of an epoch after which applications go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Prepared,
    Staged,
    Captured,
    Committed,
}

/// Writes an epoch, as far as that. Returns whether there was one and it is durable.
fn end_epoch_with(mount: &Fs, attempt: Attempt, mut between: impl FnMut(Step)) -> bool {
    let delayed = &mount.delayed;
    let mut closer = delayed.closer.lock();
    delayed.prepare_epoch(&mut closer).unwrap();
    between(Step::Prepared);
    closer.log.set_failed(true);
    let mut staged = delayed.stage_new_files(&closer, true);
    between(Step::Staged);
    let captured = delayed.capture_epoch(&mut closer, true, &mut staged).unwrap();
    for unused in staged.into_values() {
        delayed.backing.remove_temp(&hidden_name(unused.hidden)).unwrap();
    }
    let Some(captured) = captured else {
        closer.log.set_failed(false);
        return false;
    };
    between(Step::Captured);
    if attempt == Attempt::Fails {
        delayed.take_back(captured, true);
        return false;
    }
    delayed.commit_epoch(&mut closer, &captured, &mut false).unwrap();
    closer.log = captured.plan.log.clone();
    closer.supersedes(&captured.plan);
    between(Step::Committed);
    if attempt == Attempt::IsApplied {
        delayed.apply_epoch(&mut closer, captured).unwrap();
    }
    true
}

/// A file was renamed, and renamed back while the epoch with its other name was written. The epoch
/// removed the first name from BACKING, the next one the other: the file was gone there, and with
/// it what had been synced. Epochs failed from then on, since BACKING gives no name to a file that
/// has none.
// Promises: Mount 72.
#[test]
fn a_file_that_is_renamed_back_during_an_epoch_keeps_its_name() {
    let folder = tempfile::tempdir().unwrap();
    let mount = mount(&folder, |backing| fs::write(backing.join("a.db"), "old").unwrap());
    let rename = |from: &str, to: &str| {
        let [from, to] = [from, to].map(|name| (ROOT, OsStr::new(name)));
        mount.rename(0, from, to, rustix::fs::RenameFlags::empty()).unwrap();
    };
    rename("a.db", "b.db");
    end_epoch_with(&mount, Attempt::IsApplied, |step| {
        if step == Step::Captured {
            rename("b.db", "a.db");
        }
    });
    mount.check();
    mount.delayed.end_epoch(Ending::Asked).unwrap();
    let below = |name: &str| fs::read(folder.path().join("backing").join(name)).ok();
    assert_eq!((below("a.db").as_deref(), below("b.db")), (Some(&b"old"[..]), None));
    mount.check();
}

/// The files of a group as an application sees them.
#[derive(Default)]
struct Naive {
    names: BTreeMap<&'static str, usize>,
    contents: Vec<Vec<u8>>,
}

const NAMES: [&str; 4] = ["a.db", "b.db", "c.db", "t.db"];

impl Naive {
    /// Checks that an operation on this name is part of an epoch. Others would wait for its end.
    fn is_within(&self, mount: &Fs, name: &'static str) {
        let found = mount.delayed.delayed_at(&mut mount.table(), ROOT, OsStr::new(name)).unwrap();
        assert!(found.is_some() || !self.names.contains_key(name), "{name} left the group");
    }

    /// Performs an operation here and there.
    fn step(&mut self, mount: &Fs, random: &mut Dice) {
        let [name, other] = [0; 2].map(|_| NAMES[random.below(NAMES.len() as u32) as usize]);
        let at = |name: &'static str| (ROOT, OsStr::new(name));
        let ino = || mount.lookup(ROOT, OsStr::new(name)).unwrap().ino;
        let us = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let caller = Caller { uid: us.0, gid: us.1, tid: 0, umask: 0 };
        [name, other].iter().for_each(|name| self.is_within(mount, name));
        let known = self.names.get(name).copied();
        let open = match known {
            None => {
                let (_, open, _) = mount.create(&caller, ROOT, at(name).1, 0o640, 0).unwrap();
                self.names.insert(name, self.contents.len());
                self.contents.push(Vec::new());
                open
            }
            Some(file) => match random.below(9) {
                0..=2 => {
                    let flags = rustix::fs::RenameFlags::empty();
                    mount.rename(0, at(name), at(other), flags).unwrap();
                    // Of two names of one file, both stay.
                    if self.names.get(other) != Some(&file) {
                        self.names.remove(name);
                        self.names.insert(other, file);
                    }
                    return;
                }
                3 => {
                    mount.unlink(0, ROOT, at(name).1).unwrap();
                    self.names.remove(name);
                    return;
                }
                4 if !self.names.contains_key(other) => {
                    mount.link(0, ino(), ROOT, at(other).1).unwrap();
                    self.names.insert(other, file);
                    return;
                }
                5 => {
                    let size = u64::from(random.below(20_000));
                    let changes = crate::Changes { size: Some(size), ..crate::Changes::default() };
                    mount.set_attr(0, ino(), &changes).unwrap();
                    self.contents[file].resize(size as usize, 0);
                    return;
                }
                _ => mount.open(0, ino()).unwrap().0,
            },
        };
        let content = &mut self.contents[self.names[name]];
        let (offset, byte) =
            (random.below(content.len() as u32 + 1) as usize, random.below(256) as u8);
        let bytes = vec![byte; 1 + random.below(9000) as usize];
        if random.below(4) == 0 {
            let modes = [FallocateFlags::PUNCH_HOLE, FallocateFlags::ZERO_RANGE];
            let mode = modes[random.below(2) as usize];
            let mode = (mode | FallocateFlags::KEEP_SIZE).bits();
            let (from, len) = (offset as u64, bytes.len() as u64);
            mount.fallocate(Access::default(), open, from, len, mode).unwrap();
            let end = content.len().min(offset + bytes.len());
            content[offset..end].fill(0);
            mount.release(0, open);
            return;
        }
        mount.write(Access::default(), open, offset as u64, &bytes).unwrap();
        content.resize(content.len().max(offset + bytes.len()), 0);
        content[offset..offset + bytes.len()].copy_from_slice(&bytes);
        mount.release(0, open);
    }

    /// The files that BACKING is to have.
    fn state(&self) -> BTreeMap<&'static str, Vec<u8>> {
        self.names.iter().map(|(name, file)| (*name, self.contents[*file].clone())).collect()
    }

    /// Compares both.
    fn check(&self, mount: &Fs, when: &str) {
        mount.check();
        for name in NAMES {
            let attr = mount.lookup(ROOT, OsStr::new(name)).ok();
            let links = |file| self.names.values().filter(|other| *other == file).count() as u32;
            let expected = self.names.get(name);
            assert_eq!(attr.map(|attr| attr.nlink), expected.map(links), "{when}: {name}");
            let (Some(attr), Some(file)) = (attr, expected) else { continue };
            let (open, _) = mount.open(0, attr.ino).unwrap();
            let mut bytes = vec![1; attr.size as usize + 1];
            let read = mount.read(Access::default(), open, 0, &mut bytes).unwrap();
            mount.release(0, open);
            assert!(bytes[..read] == self.contents[*file], "{when}: {name}, {read} bytes");
        }
    }
}

/// The files that BACKING has.
fn below(folder: &tempfile::TempDir) -> BTreeMap<&'static str, Vec<u8>> {
    let at = |name: &str| fs::read(folder.path().join("backing").join(name)).ok();
    NAMES.iter().filter_map(|name| Some((*name, at(name)?))).collect()
}

/// Applications create, write, cut, punch, rename, link and unlink files of a group between the
/// steps of its epochs. The mount shows what they did, and after an epoch that nothing follows,
/// BACKING has it. A crash leaves what the last durable epoch had when it was captured. After an
/// epoch that failed, the mount cut a file in BACKING to its size there, and took this for a change
/// past the mount: the file left the group.
// Promises: Mount 72, Mount 75.
#[test]
fn applications_go_on_between_the_steps_of_epochs() {
    for seed in 0..60 {
        let mut random = Dice::new(seed);
        let folder = tempfile::tempdir().unwrap();
        let mut naive = Naive::default();
        let mount = mount(&folder, |backing| {
            for (number, name) in NAMES[..3].iter().enumerate() {
                let bytes = vec![number as u8; 10_000 * number];
                fs::write(backing.join(name), &bytes).unwrap();
                naive.names.insert(name, number);
                naive.contents.push(bytes);
            }
        });
        let mut durable = naive.state();
        let rounds = 20;
        for round in 0..=rounds {
            let when = format!("seed {seed}, round {round}");
            naive.step(&mount, &mut random);
            let attempt = match random.below(5) {
                0 => Attempt::Fails,
                1 | 2 if round == rounds => Attempt::IsCommitted,
                _ => Attempt::IsApplied,
            };
            let mut captured = BTreeMap::new();
            let counts = end_epoch_with(&mount, attempt, |step| {
                if step == Step::Captured {
                    captured = naive.state();
                }
                for _ in 0..random.below(4) {
                    naive.step(&mount, &mut random);
                }
            });
            if counts {
                durable = captured;
            }
            if round == rounds {
                break;
            }
            naive.check(&mount, &when);
            if random.below(3) == 0 {
                mount.delayed.end_epoch(Ending::Asked).unwrap();
                durable = naive.state();
                assert!(below(&folder) == durable, "{when}: BACKING");
                naive.check(&mount, &when);
            }
        }
        drop(mount);
        fs::remove_dir_all(folder.path().join("store")).unwrap();
        fs::create_dir(folder.path().join("store")).unwrap();
        drop(start(&folder));
        assert!(below(&folder) == durable, "seed {seed}: after the crash");
    }
}
