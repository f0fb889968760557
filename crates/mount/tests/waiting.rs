//! Appends to files that were there before the mount, and overwrites of them, on a directory of
//! this machine.

use flashsift_events::event::OpenId;
use flashsift_mount::{
    Access, Attr, Caller, Changes, Clock, Config, Errno, Fs, Ino, ROOT, Step, Store, WriteBackError,
};
use flashsift_testbed::{O_DSYNC, skip};
use rustix::fs::{OFlags, RenameFlags};
use std::{
    ffi::OsStr,
    fs::{self, File},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

const S: u64 = 1_000_000;
/// The window of loss, and when the write-back begins in it.
const WINDOW_US: u64 = 1600 * S;
const DUE_US: u64 = 1500 * S;

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

impl Bed {
    /// `prepare` fills BACKING.
    fn new(prepare: impl FnOnce(&Path)) -> Self {
        Self::with(prepare, |config| config)
    }

    fn with(prepare: impl FnOnce(&Path), change: impl FnOnce(Config) -> Config) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["backing", "store"] {
            fs::create_dir(folder.path().join(name)).unwrap();
        }
        prepare(&folder.path().join("backing"));
        let now_us = Arc::new(AtomicU64::new(0));
        let config = change(Config {
            lose_at_most_us: WINDOW_US,
            settled: vec!["*.settled".to_owned()],
            clock: Clock::Manual(now_us.clone()),
            ..Config::default()
        });
        let backing = File::open(folder.path().join("backing")).unwrap();
        let store = Store::in_dir(&folder.path().join("store")).unwrap();
        let fs = Fs::new(backing.into(), store, config).unwrap();
        Self { fs, now_us, folder }
    }

    /// With a file of 10 kB, `log`, that is open to append.
    fn with_log() -> (Self, Log) {
        let bed = Self::new(|backing| fs::write(backing.join("log"), [b'0'; 10_000]).unwrap());
        let log = bed.open("log", OFlags::WRONLY | OFlags::APPEND);
        (bed, log)
    }

    fn open(&self, name: &str, flags: OFlags) -> Log {
        let ino = self.fs.lookup(ROOT, OsStr::new(name)).unwrap().ino;
        let (open, _) = self.fs.open_as(0, ino, flags.bits() as i32).unwrap();
        Log { ino, open, flags }
    }

    fn write(&self, log: &Log, at: u64, bytes: &[u8]) {
        self.write_with(log, OFlags::empty(), at, bytes);
    }

    fn write_with(&self, log: &Log, more: OFlags, at: u64, bytes: &[u8]) {
        let access = Access { flags: (log.flags | more).bits() as i32, ..Access::default() };
        assert_eq!(self.fs.write(access, log.open, at, bytes).unwrap(), bytes.len());
    }

    /// As the kernel does: at the size that the file has.
    fn append(&self, log: &Log, bytes: &[u8]) {
        self.write(log, self.attr(log).size, bytes);
    }

    fn read(&self, log: &Log) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 20];
        let read = self.fs.read(Access::default(), log.open, 0, &mut bytes).unwrap();
        bytes.truncate(read);
        bytes
    }

    fn attr(&self, log: &Log) -> Attr {
        self.fs.attr(log.ino).unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("backing").join(name)
    }

    fn below(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    fn waits(&self) -> (u64, u64) {
        let status = self.fs.status();
        (status.waiting_files, status.waiting_bytes)
    }

    fn at(&self, now_us: u64) {
        self.now_us.store(now_us, Ordering::SeqCst);
        self.fs.settle_due(now_us).1.unwrap();
        self.fs.check();
    }
}

/// An open file.
struct Log {
    ino: Ino,
    open: OpenId,
    flags: OFlags,
}

fn lines(line: &str) -> Vec<u8> {
    [&[b'0'; 10_000], line.as_bytes()].concat()
}

/// Appends to a file that was there before the mount went to BACKING at once: of the writes of a
/// logger, the mount spared none.
// Promises: Mount 80.
#[test]
fn appends_to_a_file_on_flash_wait_for_their_time() {
    let (bed, log) = Bed::with_log();
    let other = bed.open("log", OFlags::RDONLY);
    bed.now_us.store(7 * S, Ordering::SeqCst);
    bed.append(&log, b"one ");
    bed.now_us.store(500 * S, Ordering::SeqCst);
    bed.append(&log, b"two");
    let seen = bed.attr(&log);
    assert_eq!((seen.size, bed.read(&other)), (10_007, lines("one two")));
    assert_eq!((bed.below("log"), bed.waits()), (lines(""), (1, 4096)));
    bed.at(DUE_US + 7 * S - 1);
    assert_eq!(bed.below("log"), lines(""));
    assert!(bed.fs.settle_due(0).1.is_ok());
    bed.at(DUE_US + 7 * S);
    assert_eq!((bed.below("log"), bed.waits()), (lines("one two"), (0, 0)));
    assert_eq!(bed.read(&other), lines("one two"));
    let later = bed.attr(&log);
    assert_eq!((later.mtime, later.ctime, later.size), (seen.mtime, seen.ctime, seen.size));
    bed.append(&log, b" three");
    bed.fs.release(0, log.open);
    bed.fs.release(0, other.open);
    bed.fs.forget(log.ino, u64::MAX);
    let log = bed.open("log", OFlags::RDONLY);
    assert_eq!(bed.read(&log), lines("one two three"), "it waits also while the file is closed");
    bed.fs.release(0, log.open);
    bed.at(3 * DUE_US);
    assert_eq!(bed.below("log"), lines("one two three"));
    let log = bed.open("log", OFlags::RDONLY);
    assert_eq!(bed.read(&log), lines("one two three"));
    bed.fs.check();
}

/// All that waits is written together, so that the kernel commits it once.
// Promises: Mount 80.
#[test]
fn all_that_waits_is_written_together() {
    let bed = Bed::new(|backing| {
        for name in ["a", "b", "c"] {
            fs::write(backing.join(name), b"").unwrap();
        }
    });
    let logs = ["a", "b", "c"].map(|name| bed.open(name, OFlags::WRONLY | OFlags::APPEND));
    for (at, log) in logs.iter().enumerate() {
        bed.now_us.store(at as u64 * 100 * S, Ordering::SeqCst);
        bed.append(log, b"line");
    }
    assert_eq!(bed.waits().0, 3);
    bed.at(DUE_US);
    assert_eq!(bed.waits().0, 0);
    for name in ["a", "b", "c"] {
        assert_eq!(bed.below(name), b"line");
    }
}

// Promises: Mount 2, Mount 80.
#[test]
fn a_sync_writes_what_waits_of_its_file_alone() {
    let (bed, log) = Bed::with_log();
    fs::write(bed.path("other"), b"").unwrap();
    let other = bed.open("other", OFlags::WRONLY | OFlags::APPEND);
    bed.append(&other, b"waits");
    bed.append(&log, b"synced");
    bed.fs.fsync(0, log.open, true).unwrap();
    assert_eq!((bed.below("log"), bed.below("other")), (lines("synced"), b"".to_vec()));
    bed.append(&log, b", more");
    bed.write_with(&log, O_DSYNC, 10_012, b", durable");
    assert_eq!(bed.below("log"), lines("synced, more, durable"));
    bed.append(&log, b".");
    assert_eq!(bed.below("log"), lines("synced, more, durable"));
    bed.fs.settle_all().unwrap();
    assert_eq!(bed.below("log"), lines("synced, more, durable."));
    assert_eq!((bed.below("other"), bed.waits()), (b"waits".to_vec(), (0, 0)));
    bed.fs.check();
}

/// Operations other than writes are performed in BACKING, after what waits.
// Promises: Mount 80.
#[test]
fn truncations_and_direct_writes_come_after_what_waits() {
    let (bed, log) = Bed::with_log();
    bed.append(&log, b"cut");
    let size = |size| Changes { size: Some(size), ..Changes::default() };
    bed.fs.set_attr(0, log.ino, &size(10_001)).unwrap();
    assert_eq!((bed.below("log"), bed.waits().0), (lines("c"), 0));
    bed.append(&log, b"lear");
    bed.fs.set_attr(0, log.ino, &size(10_005)).unwrap();
    assert_eq!(bed.waits().0, 1, "a truncation to the size that the file has writes nothing");
    bed.fs.set_attr(0, log.ino, &size(10_006)).unwrap();
    assert_eq!((bed.below("log"), bed.attr(&log).size), (lines("c"), 10_006));
    bed.write_with(&log, OFlags::DIRECT, 0, b"1");
    let mut wanted = lines("clear\0");
    wanted[0] = b'1';
    assert_eq!((bed.below("log"), bed.read(&log)), (wanted.clone(), wanted.clone()));
    bed.append(&log, b"x");
    bed.fs.fallocate(Access::default(), log.open, 0, 20_000, 0).unwrap();
    wanted.push(b'x');
    wanted.resize(20_000, 0);
    assert_eq!((bed.below("log"), bed.read(&log)), (wanted.clone(), wanted));
    let times = |s| flashsift_mount::Time { s, ns: 0 };
    bed.append(&log, b"y");
    let past = Changes { mtime: Some(Some(times(1_000_000))), ..Changes::default() };
    bed.fs.set_attr(0, log.ino, &past).unwrap();
    assert_eq!((bed.attr(&log).mtime, bed.waits().0), (times(1_000_000), 0));
    assert_eq!(fs::metadata(bed.path("log")).unwrap().mtime(), 1_000_000);
    bed.fs.check();
}

/// A file that is written anew after a truncation must not be lost for half an hour: its content
/// from before is gone. Appends after it are those of a log that was copied and truncated.
// Promises: Mount 80.
#[test]
fn what_replaces_a_truncated_content_does_not_wait() {
    let bed = Bed::new(|backing| fs::write(backing.join("state"), b"before").unwrap());
    let state = bed.open("state", OFlags::WRONLY);
    bed.write(&state, 0, b"B");
    assert_eq!((bed.below("state"), bed.read(&state)), (b"before".to_vec(), b"Before".to_vec()));
    let empty = Changes { size: Some(0), ..Changes::default() };
    bed.fs.set_attr(0, state.ino, &empty).unwrap();
    bed.write(&state, 0, b"after");
    assert_eq!(bed.below("state"), b"after");
    let log = bed.open("state", OFlags::WRONLY | OFlags::APPEND);
    bed.append(&log, b", and more");
    assert_eq!((bed.below("state"), bed.waits().0), (b"after".to_vec(), 1));
    bed.fs.check();
}

/// Otherwise a crash could leave the name to a part of the new content.
// Promises: Mount 5, Mount 80.
#[test]
fn a_rename_over_a_file_comes_after_what_waits() {
    let (bed, log) = Bed::with_log();
    fs::write(bed.path("other"), b"other").unwrap();
    let rename = |from: &str, to: &str| {
        let (from, to) = ((ROOT, OsStr::new(from)), (ROOT, OsStr::new(to)));
        bed.fs.rename(0, from, to, RenameFlags::empty()).unwrap();
    };
    bed.append(&log, b"line");
    rename("log", "log.1");
    assert_eq!((bed.below("log.1"), bed.waits().0), (lines(""), 1), "a log that is rotated");
    rename("log.1", "other");
    assert_eq!((bed.below("other"), bed.read(&log)), (lines("line"), lines("line")));
    bed.append(&log, b"s");
    bed.fs.settle_all().unwrap();
    assert_eq!(bed.below("other"), lines("lines"));
    bed.fs.check();
}

// Promises: Mount 80.
#[test]
fn changes_of_a_deleted_file_are_not_written() {
    let (bed, log) = Bed::with_log();
    bed.append(&log, b"line");
    let kept = File::open(bed.path("log")).unwrap();
    bed.fs.unlink(0, ROOT, OsStr::new("log")).unwrap();
    bed.append(&log, b"s");
    assert_eq!((bed.read(&log), bed.attr(&log).size), (lines("lines"), 10_005));
    bed.fs.check();
    bed.fs.release(0, log.open);
    bed.fs.settle_all().unwrap();
    assert_eq!((kept.metadata().unwrap().len(), bed.waits().0), (10_000, 0));
    // A file that is closed when it is deleted.
    fs::write(bed.path("log"), b"").unwrap();
    let log = bed.open("log", OFlags::WRONLY | OFlags::APPEND);
    bed.append(&log, b"line");
    bed.fs.release(0, log.open);
    let kept = File::open(bed.path("log")).unwrap();
    bed.fs.unlink(0, ROOT, OsStr::new("log")).unwrap();
    bed.fs.settle_all().unwrap();
    assert_eq!((kept.metadata().unwrap().len(), bed.waits().0), (0, 0));
    bed.fs.check();
}

/// A file that the mount created and wrote back is appended to like one that was there before.
// Promises: Mount 80.
#[test]
fn appends_to_a_file_that_was_written_back_wait() {
    let bed = Bed::new(|_| ());
    let made = bed.fs.create(&caller(), ROOT, OsStr::new("log"), 0o644, 0).unwrap();
    let log = Log { ino: made.0.ino, open: made.1, flags: OFlags::WRONLY | OFlags::APPEND };
    bed.append(&log, b"one ");
    bed.fs.fsync(0, log.open, false).unwrap();
    bed.append(&log, b"two");
    assert_eq!((bed.below("log"), bed.read(&log)), (b"one ".to_vec(), b"one two".to_vec()));
    bed.fs.fsync(0, log.open, true).unwrap();
    assert_eq!(bed.below("log"), b"one two");
    bed.fs.check();
}

/// Files that never live in RAM, those that are open for reading, too, and all of a mount whose
/// BACKING others may change.
// Promises: Mount 10, Mount 80.
#[test]
fn other_writes_go_to_backing_at_once() {
    let prepare = |backing: &Path| {
        for name in ["a", "a.db", "a.settled", "a.journal"] {
            fs::write(backing.join(name), b"").unwrap();
        }
    };
    let append = OFlags::WRONLY | OFlags::APPEND;
    let all = [
        ("a", OFlags::RDWR, false),
        ("a", append, true),
        ("a", OFlags::WRONLY, true),
        ("a.journal", OFlags::RDWR, true),
        ("a.db", append, false),
        ("a.settled", append, false),
        ("a", append | O_DSYNC, false),
    ];
    for (name, flags, waits) in all {
        for alone in [true, false] {
            let bed = Bed::with(prepare, |config| Config { writes_wait: alone, ..config });
            let log = bed.open(name, flags);
            bed.append(&log, b"line");
            let below = if waits && alone { &b""[..] } else { b"line" };
            assert_eq!(bed.below(name), below, "{name}, {flags:?}, alone: {alone}");
        }
    }
}

/// A change of mode came to BACKING before bytes that waited: a crash left a mode to a content that
/// the file never had with it.
// Promises: Mount 81.
#[test]
fn changes_of_attributes_come_after_what_waits() {
    let change = |changes: Changes| {
        move |bed: &Bed, log: &Log| bed.fs.set_attr(0, log.ino, &changes).map(drop)
    };
    let (uid, gid) = (caller().uid, caller().gid);
    let set = |bed: &Bed, log: &Log| {
        bed.fs.set_xattr(&caller(), log.ino, OsStr::new("user.a"), b"value", 0)
    };
    let remove = |bed: &Bed, log: &Log| bed.fs.remove_xattr(log.ino, OsStr::new("user.a"));
    type Act<'a> = &'a dyn Fn(&Bed, &Log) -> Result<(), Errno>;
    let acts: [(&str, Act<'_>); 7] = [
        ("mode", &change(Changes { mode: Some(0o600), ..Changes::default() })),
        ("owner", &change(Changes { uid: Some(uid), ..Changes::default() })),
        ("group", &change(Changes { gid: Some(gid), ..Changes::default() })),
        ("atime", &change(Changes { atime: Some(None), ..Changes::default() })),
        ("mtime", &change(Changes { mtime: Some(None), ..Changes::default() })),
        ("attribute", &set),
        ("no attribute", &remove),
    ];
    let (bed, log) = Bed::with_log();
    let mut wanted = lines("");
    for (what, act) in acts {
        bed.append(&log, b"line");
        assert_eq!((bed.below("log"), bed.waits().0), (wanted.clone(), 1), "{what}");
        wanted.extend(b"line");
        act(&bed, &log).unwrap();
        assert_eq!((bed.below("log"), bed.waits().0), (wanted.clone(), 0), "{what}");
    }
    // The kernel asks so after each write of a plain user: there is nothing to clear.
    bed.append(&log, b"line");
    let strip = Changes { strip: true, ..Changes::default() };
    bed.fs.set_attr(0, log.ino, &strip).unwrap();
    assert_eq!((bed.below("log"), bed.waits().0), (wanted, 1));
    // A file that is closed has nothing in RAM then.
    bed.fs.release(0, log.open);
    bed.fs.set_attr(0, log.ino, &Changes { mode: Some(0o644), ..Changes::default() }).unwrap();
    assert_eq!(bed.fs.status().ram_bytes, 0);
    bed.fs.check();
}

/// BACKING clears these bits at a write of another user, so the write has to come there.
// Promises: Mount 35, Mount 82.
#[test]
fn a_file_that_gets_setuid_while_changes_wait_is_written_to_at_once() {
    let (bed, log) = Bed::with_log();
    bed.append(&log, b"one");
    bed.fs.set_attr(0, log.ino, &Changes { mode: Some(0o4755), ..Changes::default() }).unwrap();
    bed.append(&log, b"two");
    assert_eq!((bed.below("log"), bed.waits().0), (lines("onetwo"), 0));
    bed.fs.release(0, log.open);
    let log = bed.open("log", OFlags::WRONLY | OFlags::APPEND);
    bed.append(&log, b"three");
    assert_eq!((bed.below("log"), bed.waits().0), (lines("onetwothree"), 0));
    bed.fs.check();
}

/// Each name could otherwise stand for a content that its file had neither before nor after.
// Promises: Mount 5, Mount 81.
#[test]
fn an_exchange_of_names_comes_after_what_waits_of_both() {
    let (bed, log) = Bed::with_log();
    fs::write(bed.path("other"), b"").unwrap();
    let other = bed.open("other", OFlags::WRONLY | OFlags::APPEND);
    bed.append(&log, b"line");
    bed.append(&other, b"text");
    let [from, to] = ["log", "other"].map(|name| (ROOT, OsStr::new(name)));
    bed.fs.rename(0, from, to, RenameFlags::EXCHANGE).unwrap();
    assert_eq!((bed.below("log"), bed.below("other")), (b"text".to_vec(), lines("line")));
    assert_eq!(bed.waits().0, 0);
    bed.fs.check();
}

/// Otherwise RAM would be short although the changes of files on flash could leave it.
// Promises: Mount 69.
#[test]
fn a_smaller_budget_writes_what_waits() {
    let (bed, log) = Bed::with_log();
    bed.append(&log, b"one");
    bed.fs.set_budget(0).unwrap();
    assert_eq!((bed.below("log"), bed.waits().0), (lines("one"), 0));
    bed.append(&log, b"two");
    assert_eq!((bed.below("log"), bed.waits().0), (lines("onetwo"), 0), "memory is short");
    bed.fs.set_budget(u64::MAX).unwrap();
    bed.append(&log, b"three");
    assert_eq!((bed.below("log"), bed.waits().0), (lines("onetwo"), 1));
    bed.fs.check();
}

/// Makes a file immutable, or takes that back. Returns whether the file system knows it.
fn chattr(path: &Path, flag: &str) -> bool {
    let done = Command::new("chattr").arg(flag).arg(path).output();
    done.is_ok_and(|output| output.status.success())
        || skip(format_args!("chattr {flag} needs root and a file system that knows it"))
}

/// A failed write-out was tried again after half an hour, or with each write.
// Promises: Mount 17, Mount 19, Mount 80.
#[test]
fn what_could_not_be_written_waits_and_is_tried_again() {
    let (bed, log) = Bed::with_log();
    bed.append(&log, b"one");
    if !chattr(&bed.path("log"), "+i") {
        return;
    }
    let due = |at: u64| {
        bed.now_us.store(at, Ordering::SeqCst);
        bed.fs.settle_due(at).1.map_err(|failed| failed.all().cloned().collect::<Vec<_>>())
    };
    let failed = due(DUE_US);
    bed.append(&log, b", two");
    let early = due(DUE_US + S - 1);
    let again = due(DUE_US + S);
    let synced = bed.fs.fsync(0, log.open, true);
    let (waits, status) = (bed.waits(), bed.fs.status());
    assert!(chattr(&bed.path("log"), "-i"));
    let expected = WriteBackError { path: "/log".to_owned(), step: Step::Copy, errno: Errno::PERM };
    assert_eq!((failed, early, again), (Err(vec![expected.clone()]), Ok(()), Err(vec![expected])));
    assert_eq!((synced, waits), (Err(Errno::PERM), (1, 4096)));
    assert_eq!((status.failing_files, status.failures[0].path.as_str()), (1, "/log"));
    assert_eq!((bed.below("log"), bed.read(&log)), (lines(""), lines("one, two")));
    // The second pause is twice as long.
    assert_eq!((due(DUE_US + 3 * S - 1), bed.waits().0), (Ok(()), 1));
    assert_eq!((due(DUE_US + 3 * S), bed.waits().0), (Ok(()), 0));
    assert_eq!((bed.below("log"), bed.fs.status().failing_files), (lines("one, two"), 0));
    bed.fs.check();
}

/// While pages were written to BACKING, a close took them for written: the next process to open the
/// file read the file without them, and what could not be written was lost. And who asked for the
/// times at the end of a write-out saw those that BACKING had before it.
// Promises: Mount 26, Mount 80.
#[test]
fn a_file_is_read_as_written_while_its_pages_are_written_to_flash() {
    for seed in 0..4 {
        println!("seed {seed}");
        let mut word = (seed + 1_u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut below = |end: usize| {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            (word >> 16) as usize % end
        };
        let bed = Bed::new(|backing| fs::write(backing.join("log"), [b'0'; 10_000]).unwrap());
        let (mut wanted, over) = (lines(""), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::SeqCst) {
                    bed.now_us.fetch_add(DUE_US, Ordering::SeqCst);
                    bed.fs.settle_due(bed.now_us.load(Ordering::SeqCst)).1.unwrap();
                }
            });
            for step in 0..300 {
                let bytes = vec![b'a' + below(26) as u8; 1 + below(9000)];
                let append = below(2) == 0;
                let flags = if append { OFlags::APPEND } else { OFlags::empty() };
                let log = bed.open("log", OFlags::WRONLY | flags);
                let at = if append { wanted.len() } else { below(wanted.len() + 1) };
                bed.write(&log, at as u64, &bytes);
                wanted.resize(wanted.len().max(at + bytes.len()), 0);
                wanted[at..at + bytes.len()].copy_from_slice(&bytes);
                if below(20) == 0 {
                    let size = below(20_000);
                    let changes = Changes { size: Some(size as u64), ..Changes::default() };
                    bed.fs.set_attr(0, log.ino, &changes).unwrap();
                    wanted.resize(size, 0);
                }
                bed.fs.release(0, log.open);
                let seen = bed.attr(&log);
                let log = bed.open("log", OFlags::RDONLY);
                let read = bed.read(&log);
                assert!(read == wanted, "seed {seed}, step {step}: {} bytes", read.len());
                let shown = |attr: Attr| (attr.size, attr.mtime, attr.ctime);
                assert_eq!(seen.size, read.len() as u64);
                for _ in 0..20 {
                    let later = bed.attr(&log);
                    assert_eq!(shown(seen), shown(later), "seed {seed}, step {step}");
                }
                bed.fs.release(0, log.open);
            }
            over.store(true, Ordering::SeqCst);
        });
        let seen = bed.attr(&bed.open("log", OFlags::RDONLY));
        bed.fs.settle_all().unwrap();
        assert!(bed.below("log") == wanted, "seed {seed}");
        let there = fs::metadata(bed.path("log")).unwrap();
        assert_eq!((there.mtime(), there.mtime_nsec()), (seen.mtime.s, i64::from(seen.mtime.ns)));
        bed.fs.check();
    }
}

/// The size was zero for a moment after each change that did not wait. A process that asked for it
/// then appended at the beginning of the file.
// Promises: Mount 81.
#[test]
fn a_file_has_its_size_while_it_is_changed_in_backing() {
    let (bed, log) = Bed::with_log();
    bed.append(&log, b"line");
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                assert_eq!(bed.attr(&log).size, 10_004);
            }
        });
        for _ in 0..1000 {
            bed.write_with(&log, OFlags::DIRECT, 100, b"direct");
        }
        over.store(true, Ordering::SeqCst);
    });
}
