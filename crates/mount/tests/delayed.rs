//! Files whose syncs are delayed, on a directory of this machine.

use flashsift_events::dice::Dice;
use flashsift_mount::{Access, Caller, Changes, Clock, Config, Errno, Fs, ROOT, Store};
use flashsift_testbed::is_root;
use rustix::fs::{OFlags, RenameFlags};
use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

const S: u64 = 1_000_000;

/// A mount over a folder, with a clock that tests set.
struct Bed {
    fs: Fs,
    now_us: Arc<AtomicU64>,
    folder: tempfile::TempDir,
}

fn caller() -> Caller {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Caller { uid, gid, tid: 0, umask: 0 }
}

fn config(now_us: &Arc<AtomicU64>) -> Config {
    Config {
        delayed: vec![("*.db*".to_owned(), 60 * S)],
        settled: vec!["*.settled.db".to_owned()],
        clock: Clock::Manual(now_us.clone()),
        ..Config::default()
    }
}

impl Bed {
    /// `prepare` fills BACKING.
    fn new(prepare: impl FnOnce(&Path)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("backing")).unwrap();
        prepare(&folder.path().join("backing"));
        let now_us = Arc::new(AtomicU64::new(0));
        let fs = Self::start(folder.path(), &now_us);
        Self { fs, now_us, folder }
    }

    fn start(folder: &Path, now_us: &Arc<AtomicU64>) -> Fs {
        let _ = fs::remove_dir_all(folder.join("store"));
        fs::create_dir(folder.join("store")).unwrap();
        let backing = File::open(folder.join("backing")).unwrap();
        let store = Store::in_dir(&folder.join("store")).unwrap();
        Fs::new(backing.into(), store, config(now_us)).unwrap()
    }

    /// Ends it without notice, and starts it again.
    fn crash(self) -> Self {
        let Self { fs, now_us, folder } = self;
        drop(fs);
        let fs = Self::start(folder.path(), &now_us);
        Self { fs, now_us, folder }
    }

    fn below(&self, name: &str) -> PathBuf {
        self.folder.path().join("backing").join(name)
    }

    /// Time passes, and what is due by then is done.
    fn passes(&self, time_us: u64) {
        let now = self.now_us.fetch_add(time_us, Ordering::SeqCst) + time_us;
        let _ = self.fs.settle_due(now);
    }

    /// Creates a file with this content and syncs it.
    fn save(&self, name: &str, bytes: &[u8]) -> Result<(), Errno> {
        let (_, open, _) = self.fs.create(&caller(), ROOT, OsStr::new(name), 0o640, 0)?;
        self.fs.write(Access::default(), open, 0, bytes)?;
        let done = self.fs.fsync(0, open, false);
        self.fs.release(0, open);
        self.fs.check();
        done
    }

    /// Writes to a file that is there, and syncs it.
    fn change(&self, name: &str, at: u64, bytes: &[u8]) {
        let ino = self.fs.lookup(ROOT, OsStr::new(name)).unwrap().ino;
        let (open, _) = self.fs.open(0, ino).unwrap();
        assert_eq!(self.fs.write(Access::default(), open, at, bytes), Ok(bytes.len()));
        self.fs.fsync(0, open, true).unwrap();
        self.fs.release(0, open);
        self.fs.check();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        let attr = self.fs.lookup(ROOT, OsStr::new(name)).unwrap();
        let (open, _) = self.fs.open(0, attr.ino).unwrap();
        let mut bytes = vec![1; attr.size as usize + 1];
        let read = self.fs.read(Access::default(), open, 0, &mut bytes).unwrap();
        bytes.truncate(read);
        self.fs.release(0, open);
        bytes
    }
}

/// A sync does not touch BACKING; the end of its epoch does, and leaves an ordinary file.
#[test]
fn a_synced_file_reaches_backing_with_its_epoch() {
    let bed = Bed::new(|_| {});
    bed.save("a.db", b"content").unwrap();
    assert!(!bed.below("a.db").exists());
    bed.passes(59 * S);
    assert!(!bed.below("a.db").exists());
    bed.passes(S);
    assert_eq!(fs::read(bed.below("a.db")).unwrap(), b"content");
    assert_eq!(bed.read("a.db"), b"content");
    bed.fs.settle_all().unwrap();
    bed.fs.tidy().unwrap();
    assert!(!bed.below(".flashsift/epochs").exists());
}

/// A file that BACKING had is changed page by page, in RAM first. A crash before its epoch ends
/// leaves the old file, and one after that the new one.
#[test]
fn a_file_that_was_there_changes_with_its_epoch() {
    let old = vec![1; 10_000];
    let bed = Bed::new(|backing| fs::write(backing.join("a.db"), vec![1; 10_000]).unwrap());
    bed.change("a.db", 5000, b"new");
    let mut new = old.clone();
    new[5000..5003].copy_from_slice(b"new");
    assert_eq!(bed.read("a.db"), new);
    assert_eq!(fs::read(bed.below("a.db")).unwrap(), old);
    let bed = bed.crash();
    assert_eq!(bed.read("a.db"), old);
    bed.change("a.db", 5000, b"new");
    bed.change("a.db", 10_000, &[2; 9000]);
    new.extend([2; 9000]);
    bed.passes(60 * S);
    bed.change("a.db", 0, b"later");
    let bed = bed.crash();
    assert_eq!(bed.read("a.db"), new);
}

/// A page that every epoch changes is written to the log each time, and to its place once. Until
/// then it is read from RAM, and a crash finds it in the log.
// Promises: Mount 76.
#[test]
fn pages_go_to_their_place_once() {
    const EPOCHS: u8 = 10;
    let bed = Bed::new(|backing| fs::write(backing.join("a.db"), vec![1; 8192]).unwrap());
    let inode = || fs::metadata(bed.below("a.db")).unwrap();
    let before = inode();
    for epoch in 2..2 + EPOCHS {
        bed.change("a.db", 4096, &[epoch; 4096]);
        bed.passes(60 * S);
        bed.fs.check();
        assert_eq!(bed.read("a.db")[4096..], [epoch; 4096]);
    }
    assert_eq!(fs::read(bed.below("a.db")).unwrap(), vec![1; 8192]);
    let last = 1 + EPOCHS;
    assert_eq!(bed.fs.status().settled_bytes, u64::from(EPOCHS) * 4096);
    bed.fs.settle_all().unwrap();
    assert_eq!(bed.fs.status().settled_bytes, u64::from(EPOCHS + 1) * 4096);
    assert_eq!(fs::read(bed.below("a.db")).unwrap()[4096..], [last; 4096]);
    assert_eq!(inode().ino(), before.ino());
    bed.change("a.db", 0, b"later");
    bed.passes(60 * S);
    let modified = bed.fs.lookup(ROOT, OsStr::new("a.db")).unwrap().mtime;
    bed.fs.settle_all().unwrap();
    assert_eq!(inode().mtime(), modified.s, "a checkpoint is no write of the application");
    bed.change("a.db", 5000, b"last");
    bed.passes(60 * S);
    let bed = bed.crash();
    let content = fs::read(bed.below("a.db")).unwrap();
    assert_eq!((&content[..5], &content[5000..5004]), (&b"later"[..], &b"last"[..]));
}

/// The pages that an epoch brought to flash leave RAM. Each file that a program had open got a new
/// `ctime` by that, at the end of each epoch, which `tar` and `git` take for a change.
// Promises: Mount 27.
#[test]
fn the_end_of_an_epoch_changes_no_time_of_a_file() {
    let bed = Bed::new(|backing| fs::write(backing.join("old.db"), [1; 40_960]).unwrap());
    bed.save("new.db", &[2; 40_960]).unwrap();
    let opened = ["old.db", "new.db"].map(|name| {
        let ino = bed.fs.lookup(ROOT, OsStr::new(name)).unwrap().ino;
        (ino, bed.fs.open(0, ino).unwrap().0)
    });
    for (_, open) in opened {
        bed.fs.write(Access::default(), open, 5000, b"changed").unwrap();
        bed.fs.fsync(0, open, false).unwrap();
    }
    let times = || opened.map(|(ino, _)| bed.fs.attr(ino).map(|it| (it.mtime, it.ctime)).unwrap());
    let before = times();
    for _ in 0..3 {
        bed.passes(60 * S);
        assert_eq!(times(), before);
    }
    bed.fs.settle_all().unwrap();
    assert_eq!(times(), before);
    assert!(bed.fs.status().delayed.unwrap().epochs > 0);
    bed.fs.check();
}

/// `rm -rf` of a tree with files of a group ended an epoch for each directory, which wrote many
/// times as much as ext4. The directories are gone for programs at once, and in BACKING after the
/// epoch that removes their files. A crash before it finds the tree as it was. Their names can be
/// used again.
// Promises: Mount 72.
#[test]
fn a_tree_is_removed_with_its_epoch() {
    let files = ["a/1.db", "a/b/2.db", "a/c/3.db", "a/c/d/4.db"];
    let make = |backing: &Path| {
        for dir in ["a/b", "a/c/d"] {
            fs::create_dir_all(backing.join(dir)).unwrap();
        }
        files.iter().for_each(|name| fs::write(backing.join(name), name).unwrap());
    };
    let find = |bed: &Bed, path: &str| {
        path.split('/')
            .try_fold(ROOT, |dir, name| bed.fs.lookup(dir, OsStr::new(name)).map(|attr| attr.ino))
    };
    let remove = |bed: &Bed| {
        let inside = |path: &str| {
            let (dir, name) = path.rsplit_once('/').unwrap_or((".", path));
            let dir = if dir == "." { ROOT } else { find(bed, dir).unwrap() };
            (dir, name.to_owned())
        };
        let rmdir = |path: &str| {
            let (dir, name) = inside(path);
            bed.fs.rmdir(dir, OsStr::new(&name))
        };
        for (file, dir) in files.iter().zip(["", "a/b", "", "a/c/d"]) {
            if !dir.is_empty() {
                assert_eq!(rmdir(dir), Err(Errno::NOTEMPTY));
            }
            let (parent, name) = inside(file);
            bed.fs.unlink(0, parent, OsStr::new(&name)).unwrap();
            if !dir.is_empty() {
                rmdir(dir).unwrap();
                assert_eq!(find(bed, dir), Err(Errno::NOENT));
            }
            bed.fs.check();
        }
        assert_eq!(rmdir("a"), Err(Errno::NOTEMPTY));
        let known = ["a", "a/b", "a/c", "a/c/d"].map(|dir| find(bed, dir));
        rmdir("a/c").unwrap();
        rmdir("a").unwrap();
        // As the kernel does with a directory that is gone and that no process has open: the one
        // above was forgotten here before it was removed in BACKING.
        known.into_iter().flatten().for_each(|dir| bed.fs.forget(dir, u64::MAX));
        assert_eq!(find(bed, "a"), Err(Errno::NOENT));
        bed.fs.check();
        assert_eq!(bed.fs.status().delayed.unwrap().epochs, 0);
    };
    let bed = Bed::new(make);
    remove(&bed);
    assert!(bed.below("a/c/d/4.db").exists());
    let bed = bed.crash();
    files.iter().for_each(|name| assert!(find(&bed, name).is_ok(), "{name}"));
    remove(&bed);
    bed.fs.settle_all().unwrap();
    bed.fs.check();
    assert!(!bed.below("a").exists());
    bed.fs.mkdir(&caller(), ROOT, OsStr::new("a"), 0o755).unwrap();
    assert!(!bed.crash().below("a/b").exists());

    // A sync of the directory above makes it durable.
    let bed = Bed::new(make);
    remove(&bed);
    bed.fs.fsync_dir(0, ROOT).unwrap();
    assert!(!bed.below("a").exists());

    // Directories and files get the name.
    let bed = Bed::new(make);
    remove(&bed);
    let dir = bed.fs.mkdir(&caller(), ROOT, OsStr::new("a"), 0o755).unwrap().ino;
    assert_eq!(bed.fs.lookup(dir, OsStr::new("b")).map(|attr| attr.ino), Err(Errno::NOENT));
    bed.fs.rmdir(ROOT, OsStr::new("a")).unwrap();
    let bed = Bed::new(make);
    remove(&bed);
    bed.save("a", b"a file").unwrap();
    bed.fs.settle_all().unwrap();
    assert_eq!(fs::read(bed.below("a")).unwrap(), b"a file");
    let bed = Bed::new(make);
    remove(&bed);
    bed.save("other", b"a file").unwrap();
    let names = [(ROOT, OsStr::new("other")), (ROOT, OsStr::new("a"))];
    bed.fs.rename(0, names[0], names[1], RenameFlags::empty()).unwrap();
    bed.fs.check();
    bed.fs.settle_all().unwrap();
    assert_eq!(fs::read(bed.below("a")).unwrap(), b"a file");
}

/// `stat` counted the blocks of a changed file that RAM has, and not those that BACKING alone has:
/// none after a `chmod`. GNU tar archived such a file as a hole.
// Promises: Mount 27.
#[test]
fn a_changed_file_has_the_blocks_of_what_only_backing_has() {
    const PAGES: u64 = 300;
    let bed = Bed::new(|backing| {
        fs::write(backing.join("a.db"), vec![1; PAGES as usize * 4096]).unwrap();
        let sparse = File::create(backing.join("b.db")).unwrap();
        sparse.set_len(PAGES * 4096).unwrap();
        sparse.write_all_at(&[1; 4096], 0).unwrap();
        for file in ["a.db", "b.db"] {
            File::open(backing.join(file)).unwrap().sync_all().unwrap();
        }
    });
    let attr = |name: &str| bed.fs.lookup(ROOT, OsStr::new(name)).unwrap();
    let blocks = || (attr("a.db").blocks, attr("b.db").blocks);
    let before = blocks();
    for name in ["a.db", "b.db"] {
        let changes = Changes { mode: Some(0o600), ..Changes::default() };
        bed.fs.set_attr(0, attr(name).ino, &changes).unwrap();
    }
    assert_eq!(blocks(), before);
    bed.change("a.db", 4096, b"new");
    assert_eq!(blocks(), before);
    bed.change("b.db", 100 * 4096, b"new");
    assert_eq!(blocks(), (before.0, before.1 + 8));
    bed.change("a.db", PAGES * 4096, b"more");
    assert_eq!(blocks(), (before.0 + 8, before.1 + 8));
    bed.passes(60 * S);
    bed.fs.settle_all().unwrap();
    assert_eq!(blocks(), (before.0 + 8, before.1 + 8));
}

/// Pages of a download into reserved blocks, and of a mapped file with holes, were written to the
/// log and then to their place: 1.7 times what ext4 writes. They are written to their place alone,
/// and those of an epoch that does not count are zeros again after a crash.
// Promises: Mount 72, Mount 76.
#[test]
fn holes_are_filled_in_their_place() {
    const PAGES: usize = 300;
    let bed = Bed::new(|backing| {
        let file = File::create(backing.join("a.db")).unwrap();
        file.set_len(PAGES as u64 * 4096).unwrap();
        file.write_all_at(&[1; 4096], 0).unwrap();
    });
    let mut whole = vec![0; PAGES * 4096];
    whole[..4096].fill(1);
    for round in 2..8_usize {
        for page in [0, 20, 40].map(|page| page + round * 7) {
            bed.change("a.db", page as u64 * 4096, &[round as u8; 4096]);
            whole[page * 4096..(page + 1) * 4096].fill(round as u8);
        }
        bed.passes(60 * S);
        assert!(fs::read(bed.below("a.db")).unwrap() == whole, "round {round}");
    }
    let log_bytes = bed.fs.status().delayed.unwrap().log_bytes;
    assert_eq!(log_bytes, 7 * 4096, "the file's zeros, and the heads of six entries");
    let modified = |bed: &Bed| {
        let file = fs::metadata(bed.below("a.db")).unwrap();
        (file.mtime(), file.mtime_nsec())
    };
    let last = modified(&bed);
    let bed = bed.crash();
    assert!(fs::read(bed.below("a.db")).unwrap() == whole);
    assert_eq!(modified(&bed), last);
    bed.change("a.db", 250 * 4096, &[9; 4096]);
    bed.passes(60 * S);
    // The head of the last entry does not reach flash.
    let Bed { fs: mount, now_us, folder } = bed;
    drop(mount);
    let log = folder.path().join("backing/.flashsift/epochs");
    let bytes = fs::read(&log).unwrap();
    assert!(bytes[4096..].starts_with(b"fsepoch"));
    fs::write(&log, &bytes[..4096]).unwrap();
    let fs = Bed::start(folder.path(), &now_us);
    let bed = Bed { fs, now_us, folder };
    assert!(fs::read(bed.below("a.db")).unwrap() == whole);
    assert_eq!(modified(&bed), last);
}

/// A program that changes a few bytes of many pages, and syncs as often as epochs end, had each
/// page in the log and in its place: 1.2 times what ext4 writes. The log has the bytes that
/// changed, and a crash finds the pages as they were synced last, also those that have parts in
/// several entries, and those that a checkpoint wrote to their place in between.
// Promises: Mount 72, Mount 76.
#[test]
fn the_log_has_the_bytes_that_changed() {
    const PAGES: usize = 500;
    const EPOCHS: usize = 40;
    let mut dice = Dice::new(7);
    let mut below = |n: usize| dice.below(n as u32) as usize;
    let mut content: Vec<u8> = (0..PAGES * 4096).map(|_| below(4) as u8).collect();
    let mut bed = Bed::new(|backing| fs::write(backing.join("a.db"), &content).unwrap());
    let mut log_bytes = 0;
    for epoch in 0..EPOCHS {
        for _ in 0..20 {
            let at = below(PAGES / 4) * 4 * 4096 + below(4000);
            // At times as it was, or as in place.
            let value = below(4) as u8;
            content[at..at + 60].fill(value);
            bed.change("a.db", at as u64, &[value; 60]);
        }
        bed.passes(60 * S);
        log_bytes = log_bytes.max(bed.fs.status().delayed.unwrap().log_bytes);
        bed.fs.check();
        assert!(bed.read("a.db") == content, "epoch {epoch}");
        match epoch % 8 {
            3 => bed.fs.settle_all().unwrap(),
            7 => {
                bed = bed.crash();
                assert!(fs::read(bed.below("a.db")).unwrap() == content, "epoch {epoch}");
            }
            _ => {}
        }
    }
    // Two pages an entry, and pages that the page cache did not have.
    assert!(log_bytes < 8 * 6 * 4096, "{log_bytes}");
}

/// A hole that a program punched into an older file was written as zeros, to the log and to its
/// place; `journald` punches some when it archives a file. It is a hole again, also after a crash
/// before or after the checkpoint, with what was written beside it and over it. A zeroed range
/// keeps its space.
// Promises: Mount 76.
#[test]
fn a_hole_in_an_older_file_is_no_write() {
    const PAGES: usize = 300;
    // Both keep the size.
    const PUNCH: u32 = 0x03;
    const ZERO: u32 = 0x11;
    let mut content = vec![1; PAGES * 4096];
    let mut bed = Bed::new(|backing| {
        for name in ["a.db", "b.db"] {
            fs::write(backing.join(name), &content).unwrap();
            File::open(backing.join(name)).unwrap().sync_all().unwrap();
        }
    });
    let clears = |bed: &Bed, name, (at, len): (usize, usize), mode| {
        let ino = bed.fs.lookup(ROOT, OsStr::new(name)).unwrap().ino;
        let (open, _) = bed.fs.open(0, ino).unwrap();
        bed.fs.fallocate(Access::default(), open, at as u64, len as u64, mode).unwrap();
        bed.fs.fsync(0, open, true).unwrap();
        bed.fs.release(0, open);
        bed.fs.check();
    };
    let blocks = |bed: &Bed, name| fs::metadata(bed.below(name)).unwrap().blocks();
    let before = blocks(&bed, "a.db");
    for name in ["a.db", "b.db"] {
        let (at, len) = (50 * 4096 - 100, 200 * 4096 + 200);
        clears(&bed, name, (at, len), if name == "a.db" { PUNCH } else { ZERO });
        content[at..at + len].fill(0);
        assert!(bed.read(name) == content);
        bed.passes(60 * S);
        if name == "a.db" {
            let log_bytes = bed.fs.status().delayed.unwrap().log_bytes;
            assert_eq!(log_bytes, 2 * 4096, "the record, and pieces of the pages at both ends");
        }
    }
    bed.fs.settle_all().unwrap();
    for (name, freed) in [("a.db", 200 * 8), ("b.db", 0)] {
        assert!(fs::read(bed.below(name)).unwrap() == content, "{name}");
        assert_eq!(before - blocks(&bed, name), freed, "{name}");
    }
    let mut dice = Dice::new(11);
    let mut below = |n: usize| dice.below(n as u32) as usize;
    for epoch in 0..60 {
        for _ in 0..below(6) {
            let at = below(PAGES * 4096);
            let len = below(7 * 4096).min(content.len() - at);
            if below(2) == 0 {
                let len = len.max(1);
                clears(&bed, "a.db", (at, len), PUNCH);
                content[at..at + len].fill(0);
            } else {
                bed.change("a.db", at as u64, &vec![epoch as u8; len]);
                content[at..at + len].fill(epoch as u8);
            }
        }
        bed.passes(60 * S);
        bed.fs.check();
        assert!(bed.read("a.db") == content, "epoch {epoch}");
        match below(8) {
            0 | 1 => bed.fs.settle_all().unwrap(),
            2 | 3 => {
                bed = bed.crash();
                assert!(fs::read(bed.below("a.db")).unwrap() == content, "epoch {epoch}");
            }
            _ => {}
        }
    }
}

/// The log begins anew when it is full: its pages go to their place first, also those of files that
/// were truncated or deleted since.
// Promises: Mount 76.
#[test]
fn a_full_log_begins_anew() {
    const BYTES: usize = 3 << 20;
    let names = ["a.db", "b.db", "c.db"];
    let bed = Bed::new(|backing| {
        names.iter().for_each(|name| fs::write(backing.join(name), vec![1; BYTES]).unwrap());
    });
    let mut most = 0;
    for epoch in 2..12 {
        bed.change(names[usize::from(epoch) % 2], 0, &vec![epoch; BYTES]);
        bed.change("c.db", 0, &vec![epoch; 4096]);
        if epoch == 5 {
            bed.fs.unlink(0, ROOT, OsStr::new("c.db")).unwrap();
            bed.save("c.db", &vec![9; 4096]).unwrap();
        }
        bed.passes(60 * S);
        bed.fs.check();
        most = most.max(bed.fs.status().delayed.unwrap().log_bytes);
    }
    assert!(most < 21 << 20, "{most}");
    let bed = bed.crash();
    for (name, content) in names.iter().zip([vec![10; BYTES], vec![11; BYTES], vec![11; 4096]]) {
        assert!(fs::read(bed.below(name)).unwrap() == content, "{name}");
    }
}

/// A file that changed as a whole is written once, as a new file: no page of it goes to the log.
/// The mount shows the same file as before.
// Promises: Mount 76.
#[test]
fn a_file_that_changed_as_a_whole_is_written_once() {
    const BYTES: usize = 1 << 20;
    let bed = Bed::new(|backing| {
        fs::write(backing.join("a.db"), vec![1; BYTES]).unwrap();
        fs::hard_link(backing.join("a.db"), backing.join("also.db")).unwrap();
    });
    let shown = |name: &str| bed.fs.lookup(ROOT, OsStr::new(name)).unwrap().ino;
    let before = shown("a.db");
    assert_eq!(shown("also.db"), before);
    // The last quarter stays as it was.
    let changed = BYTES / 4 * 3;
    bed.change("a.db", 0, &vec![2; changed]);
    bed.passes(60 * S);
    bed.fs.check();
    assert_eq!(bed.fs.status().settled_bytes, BYTES as u64);
    let new = [vec![2; changed], vec![1; BYTES - changed]].concat();
    for name in ["a.db", "also.db"] {
        assert!(fs::read(bed.below(name)).unwrap() == new && bed.read(name) == new, "{name}");
        assert_eq!(shown(name), before);
    }
    bed.change("also.db", BYTES as u64 - 1, b"3");
    bed.passes(60 * S);
    let bed = bed.crash();
    for name in ["a.db", "also.db"] {
        assert_eq!(fs::read(bed.below(name)).unwrap()[BYTES - 1], b'3');
    }
}

/// SQLite commits by the deletion of its journal. The deletion of a journal that is on flash may
/// not come before the epoch that contains the database.
#[test]
fn a_deletion_waits_for_its_epoch() {
    let bed = Bed::new(|backing| {
        fs::write(backing.join("a.db"), b"old").unwrap();
        fs::write(backing.join("a.db-journal"), b"undo").unwrap();
    });
    bed.change("a.db", 0, b"new");
    bed.fs.unlink(0, ROOT, OsStr::new("a.db-journal")).unwrap();
    bed.fs.check();
    bed.fs.fsync_dir(0, ROOT).unwrap();
    assert_eq!(bed.fs.lookup(ROOT, OsStr::new("a.db-journal")), Err(Errno::NOENT));
    assert!(bed.below("a.db-journal").exists());
    let names = |bed: &Bed| bed.fs.list(ROOT).unwrap().1.len();
    assert_eq!(names(&bed), 1);
    bed.passes(60 * S);
    assert!(!bed.below("a.db-journal").exists());
    assert_eq!(names(&bed), 1);
    let bed = bed.crash();
    assert_eq!(fs::read(bed.below("a.db")).unwrap(), b"new");
}

/// Flash takes nothing: syncs report that. When it takes changes again, nothing is lost.
// Promises: Mount 75.
#[test]
fn syncs_wait_for_flash_while_epochs_fail() {
    let bed = Bed::new(|backing| fs::write(backing.join("a.db"), b"old").unwrap());
    // The log cannot be made.
    fs::create_dir(bed.below(".flashsift/epochs")).unwrap();
    bed.change("a.db", 0, b"new");
    bed.passes(60 * S);
    let status = bed.fs.status().delayed.unwrap();
    assert!(!status.failing.is_empty() && status.files == 1, "{status:?}");
    assert!(bed.save("b.db", b"b").is_err());
    assert_eq!(bed.read("a.db"), b"new");
    assert_eq!(fs::read(bed.below("a.db")).unwrap(), b"old");
    assert!(bed.fs.settle_all().is_err());
    fs::remove_dir(bed.below(".flashsift/epochs")).unwrap();
    bed.save("c.db", b"c").unwrap();
    assert_eq!(bed.fs.status().delayed.unwrap().failing, "");
    bed.fs.check();
    let bed = bed.crash();
    assert_eq!(fs::read(bed.below("a.db")).unwrap(), b"new");
    assert_eq!(fs::read(bed.below("b.db")).unwrap(), b"b");
}

// Promises: Mount 77.
#[test]
fn the_status_shows_what_a_crash_would_lose() {
    let bed = Bed::new(|backing| fs::write(backing.join("a.db"), vec![1; 100_000]).unwrap());
    let shown = |bed: &Bed| bed.fs.status().delayed.unwrap();
    assert_eq!((shown(&bed).files, shown(&bed).oldest_sync_s), (0, None));
    bed.change("a.db", 5000, b"new");
    bed.save("b.db", &[2; 8192]).unwrap();
    bed.passes(7 * S);
    let lost = shown(&bed);
    assert_eq!((lost.files, lost.bytes, lost.oldest_sync_s), (2, 4096 + 8192, Some(7)));
    bed.passes(60 * S);
    assert_eq!((shown(&bed).files, shown(&bed).bytes, shown(&bed).oldest_sync_s), (0, 0, None));
    assert!(shown(&bed).epochs > 0);
    let none = flashsift_mount::Status::default();
    assert_eq!(none.delayed, None, "a mount without groups shows nothing");
}

/// Files that no pattern names, that are write-through by another option, or that other names lead
/// to, are synced at once.
// Promises: Mount 78.
#[test]
fn syncs_of_other_files_are_honoured() {
    let bed = Bed::new(|backing| {
        fs::write(backing.join("linked.db"), b"old").unwrap();
        fs::hard_link(backing.join("linked.db"), backing.join("other")).unwrap();
    });
    bed.save("a", b"content").unwrap();
    bed.save("a.settled.db", b"content").unwrap();
    for name in ["a", "a.settled.db"] {
        assert_eq!(fs::read(bed.below(name)).unwrap(), b"content", "{name}");
    }
    bed.change("linked.db", 0, b"new");
    assert_eq!(fs::read(bed.below("linked.db")).unwrap(), b"new");
    // A directory of files of a group and others: its sync is honoured for the others.
    bed.save("b.db", b"delayed").unwrap();
    let create = |name: &str| bed.fs.create(&caller(), ROOT, OsStr::new(name), 0o640, 0).unwrap();
    create("c");
    bed.fs.fsync_dir(0, ROOT).unwrap();
    assert!(bed.below("c").exists() && !bed.below("b.db").exists());
}

/// The files of a group have one user, as one epoch takes them back together.
// Promises: Mount 78.
#[test]
fn syncs_of_a_second_user_are_honoured() {
    if !is_root("a change of owners") {
        return;
    }
    let bed = Bed::new(|backing| {
        fs::write(backing.join("other.db"), b"old").unwrap();
        std::os::unix::fs::chown(backing.join("other.db"), Some(1234), Some(1234)).unwrap();
    });
    bed.save("a.db", b"content").unwrap();
    bed.change("other.db", 0, b"new");
    assert_eq!(fs::read(bed.below("other.db")).unwrap(), b"new");
    let second = Caller { uid: 1234, gid: 1234, ..caller() };
    let (_, open, _) = bed.fs.create(&second, ROOT, OsStr::new("b.db"), 0o640, 0).unwrap();
    bed.fs.write(Access::default(), open, 0, b"theirs").unwrap();
    bed.fs.fsync(0, open, false).unwrap();
    bed.fs.release(0, open);
    assert_eq!(fs::read(bed.below("b.db")).unwrap(), b"theirs");
    assert!(!bed.below("a.db").exists());
}

/// Someone else writes to a file of a group in BACKING. The next epoch notices it, and from then on
/// its syncs are honoured at once.
// Promises: Mount 78.
#[test]
fn changes_past_the_mount_end_the_delay() {
    let bed = Bed::new(|backing| {
        for name in ["a.db", "b.db"] {
            fs::write(backing.join(name), vec![1; 10_000]).unwrap();
        }
    });
    let outside = |bed: &Bed| bed.fs.status().delayed.unwrap().changed_outside;
    for epoch in 0..3 {
        for name in ["a.db", "b.db"] {
            bed.change(name, 5000 * epoch, b"new");
            bed.change(name, 10_000 + epoch, b"longer");
        }
        bed.passes(60 * S);
        assert_eq!(outside(&bed), 0, "its own changes are not others'");
    }
    bed.fs.settle_all().unwrap();
    bed.change("a.db", 0, b"1");
    File::options().write(true).open(bed.below("a.db")).unwrap().write_at(b"other", 9000).unwrap();
    bed.passes(60 * S);
    assert_eq!(outside(&bed), 1);
    bed.change("a.db", 0, b"2");
    assert_eq!(fs::read(bed.below("a.db")).unwrap()[0], b'2');
    bed.change("a.db", 1, b"3");
    assert_eq!(fs::read(bed.below("a.db")).unwrap()[1], b'3');
    bed.change("b.db", 0, b"4");
    assert_ne!(fs::read(bed.below("b.db")).unwrap()[0], b'4', "others' syncs are still delayed");
    // The epoch of the other file lets this one go from RAM. It is written to past the log then,
    // which a recovery did not know: it took the page back to what the log had.
    bed.passes(60 * S);
    bed.change("a.db", 2, b"5");
    assert_eq!(fs::read(bed.below("a.db")).unwrap()[2], b'5');
    let bed = bed.crash();
    let left = |name: &str| fs::read(bed.below(name)).unwrap();
    assert_eq!((&left("a.db")[..3], left("b.db")[0]), (&b"235"[..], b'4'));
}

/// A rename within a group waits for its epoch, one that leaves the group does not.
#[test]
fn renames_wait_for_their_epoch_within_a_group() {
    let bed = Bed::new(|backing| {
        fs::write(backing.join("a.db"), b"a").unwrap();
        fs::write(backing.join("b.db"), b"b").unwrap();
    });
    let none = rustix::fs::RenameFlags::empty();
    let rename = |from: &str, to: &str| {
        bed.fs.rename(0, (ROOT, OsStr::new(from)), (ROOT, OsStr::new(to)), none).unwrap();
        bed.fs.check();
    };
    rename("a.db", "b.db");
    assert_eq!(bed.read("b.db"), b"a");
    assert_eq!(fs::read(bed.below("b.db")).unwrap(), b"b");
    assert!(bed.below("a.db").exists());
    rename("b.db", "outside");
    assert_eq!(fs::read(bed.below("outside")).unwrap(), b"a");
    assert!(!bed.below("a.db").exists() && !bed.below("b.db").exists());
    bed.save("new", b"unsynced").unwrap();
    rename("new", "c.db");
    rename("outside", "c.db");
    assert_eq!(bed.read("c.db"), b"a");
}

/// `O_SYNC` needs no flash either.
#[test]
fn synchronous_writes_are_delayed() {
    let bed = Bed::new(|_| {});
    let flags = OFlags::SYNC.bits() as i32;
    let made = bed.fs.create(&caller(), ROOT, OsStr::new("a.db"), 0o640, flags);
    let (_, open, _) = made.unwrap();
    bed.fs.write(Access { flags, ..Access::default() }, open, 0, b"content").unwrap();
    assert!(!bed.below("a.db").exists());
    bed.passes(60 * S);
    assert_eq!(fs::read(bed.below("a.db")).unwrap(), b"content");
    // It is open, and goes on in RAM.
    bed.fs.write(Access { flags, ..Access::default() }, open, 3, b"TENT!").unwrap();
    assert_eq!(bed.read("a.db"), b"conTENT!");
    assert_eq!(fs::read(bed.below("a.db")).unwrap(), b"content");
    bed.passes(60 * S);
    let bed = bed.crash();
    assert_eq!(fs::read(bed.below("a.db")).unwrap(), b"conTENT!");
}

/// RAM counts 1000 names of a file. A file of a group with as many was written back before its next
/// link, and taken into RAM again, for ever: the whole mount hung.
#[test]
fn a_file_of_a_group_may_have_more_links_than_ram_counts() {
    const LINKS: usize = 1200;
    let name = |link: usize| format!("{link}.db");
    let bed = Bed::new(|_| {});
    bed.save(&name(0), b"content").unwrap();
    let ino = bed.fs.lookup(ROOT, OsStr::new(&name(0))).unwrap().ino;
    for link in 1..LINKS {
        let made = bed.fs.link(0, ino, ROOT, OsStr::new(&name(link))).unwrap();
        assert_eq!((made.ino, made.nlink as usize), (ino, link + 1));
    }
    bed.fs.check();
    // Its syncs are delayed as before.
    bed.change(&name(7), 0, b"CON");
    assert_eq!(fs::read(bed.below(&name(0))).unwrap(), b"content");
    // A name more, less and another one while its changes are in RAM.
    bed.fs.link(0, ino, ROOT, OsStr::new(&name(LINKS))).unwrap();
    bed.change(&name(8), 3, b"T");
    bed.fs.unlink(0, ROOT, OsStr::new(&name(1))).unwrap();
    let none = rustix::fs::RenameFlags::empty();
    let (from, to) = (name(2), name(LINKS + 1));
    bed.fs.rename(0, (ROOT, OsStr::new(&from)), (ROOT, OsStr::new(&to)), none).unwrap();
    bed.fs.check();
    bed.passes(60 * S);
    let there = |bed: &Bed| {
        for link in [0].into_iter().chain(3..=LINKS + 1).map(name) {
            let about = fs::metadata(bed.below(&link)).unwrap();
            assert_eq!(about.nlink() as usize, LINKS, "{link}");
        }
        assert!(!bed.below(&name(1)).exists() && !bed.below(&name(2)).exists());
        assert_eq!(fs::read(bed.below(&name(LINKS))).unwrap(), b"CONTent");
    };
    there(&bed);
    let bed = bed.crash();
    there(&bed);
    bed.fs.settle_all().unwrap();
    bed.fs.tidy().unwrap();
    there(&bed);
}

/// An epoch held a descriptor of each of its files. With more files than the process may open, it
/// could not be written, was written anew at each attempt, and no sync of its files ever reached
/// flash.
// Promises: Mount 74.
#[test]
fn an_epoch_has_more_files_than_a_process_may_open() {
    const OPEN: u64 = 400;
    const FILES: usize = 1000;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(OPEN), ..limit }).unwrap();
    let (old, new) = (|file: usize| format!("old{file}.db"), |file: usize| format!("new{file}.db"));
    let bed = Bed::new(|backing| {
        (0..FILES).for_each(|file| fs::write(backing.join(old(file)), vec![1; 9000]).unwrap());
    });
    (0..FILES).for_each(|file| bed.save(&new(file), new(file).as_bytes()).unwrap());
    assert!(!bed.below(&new(0)).exists());
    bed.passes(60 * S);
    let status = bed.fs.status().delayed.unwrap();
    assert_eq!((status.failing.as_str(), status.files, status.epochs), ("", 0, 1));
    bed.fs.check();
    // Files that BACKING has, in several epochs, and again what is new.
    for file in 0..FILES {
        bed.change(&old(file), 5000, old(file).as_bytes());
        bed.change(&new(file), 3, b"NEW");
    }
    bed.passes(60 * S);
    assert_eq!(bed.fs.status().delayed.unwrap().failing, "");
    let bed = bed.crash();
    for file in 0..FILES {
        let saved = fs::read(bed.below(&new(file))).unwrap();
        assert!(saved.starts_with(b"newNEW") && saved.len() == new(file).len());
        let changed = fs::read(bed.below(&old(file))).unwrap();
        assert!(changed.len() == 9000 && changed[5000..].starts_with(old(file).as_bytes()));
    }
}

/// Older files that applications had open took the last descriptors when they were written: most
/// writes failed, no epoch could be written, and a crash lost what had been synced. A file for
/// which none is left is written as outside of a group.
// Promises: Mount 72, Mount 78.
#[test]
fn open_files_leave_descriptors_to_epochs() {
    const OPEN: u64 = 256;
    const FILES: usize = 400;
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(OPEN), ..limit }).unwrap();
    let name = |file: usize| format!("old{file}.db");
    let bed = Bed::new(|backing| {
        (0..FILES).for_each(|file| fs::write(backing.join(name(file)), vec![1; 9000]).unwrap());
    });
    let open = |file| {
        let ino = bed.fs.lookup(ROOT, OsStr::new(&name(file))).unwrap().ino;
        bed.fs.open(0, ino).map(|(open, _)| open)
    };
    let opens: Vec<_> = (0..FILES).map_while(|file| open(file).ok()).collect();
    assert!((20..FILES).contains(&opens.len()), "{} files", opens.len());
    for open in &opens {
        assert_eq!(bed.fs.write(Access::default(), *open, 0, b"new"), Ok(3));
        bed.fs.fsync(0, *open, false).unwrap();
    }
    bed.passes(60 * S);
    assert_eq!(bed.fs.status().delayed.unwrap().failing, "");
    for open in &opens {
        bed.fs.release(0, *open);
    }
    let bed = bed.crash();
    for file in 0..opens.len() {
        assert!(fs::read(bed.below(&name(file))).unwrap().starts_with(b"new"), "{file}");
    }
}

/// `--delay-sync '*.json=5m'` did nothing for a program that replaces its file by a temporary one
/// that it has synced: 100 saves were 100 flushes. The temporary name is learned at the first
/// rename. The pattern that has delayed no sync is named after a minute.
// Promises: Mount 74, Mount 77.
#[test]
fn a_file_that_is_replaced_as_a_whole_is_delayed() {
    let bed = Bed::new(|_| {});
    let unused = || bed.fs.status().delayed.unwrap().unused;
    for round in 0..5_u8 {
        let temporary = format!("config-{round}.tmp");
        bed.save(&temporary, &[round; 3000]).unwrap();
        let (from, to) = ((ROOT, OsStr::new(&temporary)), (ROOT, OsStr::new("config.db")));
        bed.fs.rename(0, from, to, rustix::fs::RenameFlags::empty()).unwrap();
        bed.fs.check();
        assert_eq!(bed.read("config.db"), vec![round; 3000]);
        assert!(!bed.below("config.db").exists(), "its epoch has not ended");
        assert_eq!(bed.below(&temporary).exists(), round == 0, "the first sync was honoured");
        bed.passes(S);
    }
    bed.passes(60 * S);
    assert_eq!(fs::read(bed.below("config.db")).unwrap(), vec![4; 3000]);
    assert!(!bed.below("config-0.tmp").exists());
    assert_eq!(unused(), [""; 0]);
}

/// Flash lost a byte of the log of three epochs: the start goes on only where the later epochs have
/// all that was lost, keeps the log, and changes nothing otherwise. It applied the part before the
/// byte, and deleted the log without a word.
// Promises: Mount 76.
#[test]
fn a_damaged_log_mixes_no_epochs() {
    let one = |bed: &Bed, round: u8, pages: u64| {
        for name in ["a.db", "b.db"] {
            bed.change(name, 0, &vec![round; (pages * 4096) as usize]);
            bed.change(name, 8 * 4096, &[round; 4096]);
        }
        bed.passes(60 * S);
    };
    for (pages, is_whole) in [([4, 2, 2], true), ([4, 4, 2], false)] {
        let bed = Bed::new(|backing| {
            for name in ["a.db", "b.db"] {
                fs::write(backing.join(name), vec![0; 200 * 4096]).unwrap();
            }
        });
        (1..).zip(pages).for_each(|(round, pages)| one(&bed, round, pages));
        let Bed { fs: mount, now_us, folder } = bed;
        drop(mount);
        let hidden = folder.path().join("backing/.flashsift");
        let mut log = fs::read(hidden.join("epochs")).unwrap();
        let entries: Vec<usize> =
            (0..log.len()).step_by(4096).filter(|at| log[*at..].starts_with(b"fsepoch")).collect();
        assert_eq!(entries.len(), 3, "{entries:?}");
        log[entries[1] + 4096 + 50] ^= 1;
        fs::write(hidden.join("epochs"), &log).unwrap();
        let content = |name: &str| fs::read(folder.path().join("backing").join(name)).unwrap();
        let before = content("a.db");
        if !is_whole {
            let _ = fs::remove_dir_all(folder.path().join("store"));
            fs::create_dir(folder.path().join("store")).unwrap();
            let backing = File::open(folder.path().join("backing")).unwrap();
            let store = Store::in_dir(&folder.path().join("store")).unwrap();
            let refused = Fs::new(backing.into(), store, config(&now_us)).map(drop);
            assert_eq!(refused, Err(Errno::BADMSG));
            assert_eq!((content("a.db"), fs::read(hidden.join("epochs")).unwrap()), (before, log));
            continue;
        }
        let fs = Bed::start(folder.path(), &now_us);
        let bed = Bed { fs, now_us, folder };
        for name in ["a.db", "b.db"] {
            let bytes = bed.read(name);
            assert_eq!([0, 4096, 2 * 4096, 8 * 4096].map(|at| bytes[at]), [3, 3, 1, 3], "{name}");
        }
        assert_eq!(fs::read(hidden.join("epochs.damaged-1")).unwrap(), log);
        bed.fs.settle_all().unwrap();
        bed.fs.tidy().unwrap();
    }
}

/// The end of an epoch frees the RAM of a file that is open. That changed the file's time, which
/// then went to BACKING with the next change of a mode: `make` and rsync saw a new file.
// Promises: Mount 72.
#[test]
fn the_end_of_an_epoch_changes_no_time() {
    let bed = Bed::new(|backing| fs::write(backing.join("old.db"), [1; 100_000]).unwrap());
    let ino = bed.fs.lookup(ROOT, OsStr::new("old.db")).unwrap().ino;
    let (open, _) = bed.fs.open(0, ino).unwrap();
    bed.fs.write(Access::default(), open, 5000, &[2; 50_000]).unwrap();
    bed.fs.fsync(0, open, false).unwrap();
    let written = bed.fs.attr(ino).unwrap().mtime;
    bed.fs.settle_all().unwrap();
    assert_eq!(fs::read(bed.below("old.db")).unwrap()[5000], 2);
    assert_eq!(bed.fs.attr(ino).unwrap().mtime, written);
    bed.fs.release(0, open);
}

/// A file from outside got a free name in a group at once, and what had been synced before in the
/// group came later: a crash left the new name beside the old files.
// Promises: Mount 78.
#[test]
fn a_rename_to_a_free_name_of_a_group_ends_the_epoch() {
    let bed = Bed::new(|backing| fs::write(backing.join("g"), "from outside").unwrap());
    bed.save("a.db", b"synced before").unwrap();
    let [from, to] = ["g", "b.db"].map(|name| (ROOT, OsStr::new(name)));
    bed.fs.rename(0, from, to, RenameFlags::empty()).unwrap();
    let bed = bed.crash();
    assert_eq!(bed.read("b.db"), b"from outside");
    assert_eq!(bed.read("a.db"), b"synced before");
}

/// A directory that had files of a group counted in its parent until the epoch had removed it from
/// BACKING, and for the kernel until the next change there.
// Promises: Mount 78.
#[test]
fn a_removed_directory_does_not_count_in_its_parent() {
    let bed = Bed::new(|backing| {
        fs::create_dir_all(backing.join("above/removed")).unwrap();
        fs::write(backing.join("above/removed/a.db"), "file").unwrap();
    });
    let above = bed.fs.lookup(ROOT, OsStr::new("above")).unwrap();
    assert_eq!(above.nlink, 3);
    let removed = bed.fs.lookup(above.ino, OsStr::new("removed")).unwrap().ino;
    bed.fs.unlink(0, removed, OsStr::new("a.db")).unwrap();
    bed.fs.rmdir(above.ino, OsStr::new("removed")).unwrap();
    assert!(bed.below("above/removed").exists(), "the epoch has not ended");
    let links = || bed.fs.lookup(ROOT, OsStr::new("above")).unwrap().nlink;
    assert_eq!(links(), 2);
    bed.fs.settle_all().unwrap();
    assert!(!bed.below("above/removed").exists());
    assert_eq!(links(), 2);
}
