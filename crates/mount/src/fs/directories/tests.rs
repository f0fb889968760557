//! New directories that wait in RAM with their files.

use super::*;
use crate::fs::types::{Changes, Clock, Time};
use crate::{Access, Config, Store};
use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

const S: u64 = 1_000_000;
const WINDOW_US: u64 = 3200 * S;

struct Bed {
    fs: Fs,
    now_us: Arc<AtomicU64>,
    folder: tempfile::TempDir,
}

fn caller() -> Caller {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Caller { uid, gid, tid: 0, umask: 0o022 }
}

impl Bed {
    /// Pretends that the file system of this folder is an ext4.
    fn new() -> Bed {
        Bed::with(|folder| {
            std::fs::create_dir(folder.join("store")).unwrap();
            Some(Store::in_dir(&folder.join("store")).unwrap())
        })
        .unwrap()
    }

    fn with(store: impl FnOnce(&Path) -> Option<Store>) -> Option<Bed> {
        let folder = tempfile::tempdir().unwrap();
        let store = store(folder.path())?;
        std::fs::create_dir(folder.path().join("backing")).unwrap();
        let backing = File::open(folder.path().join("backing")).unwrap();
        let now_us = Arc::new(AtomicU64::new(0));
        let clock = Clock::Manual(now_us.clone());
        let config = Config { lose_at_most_us: WINDOW_US, clock, ..Config::default() };
        let fs = Fs::as_on_ext4(backing.into(), store, config).unwrap();
        Some(Bed { fs, now_us, folder })
    }

    fn mkdir(&self, parent: Ino, name: &str) -> Ino {
        let made = self.fs.mkdir(&caller(), parent, OsStr::new(name), 0o777).unwrap();
        assert_eq!(made.mode, 0o040_755);
        made.ino
    }

    fn create(&self, dir: Ino, name: &str) -> (Ino, OpenId) {
        let (attr, open, _) = self.fs.create(&caller(), dir, OsStr::new(name), 0o644, 0).unwrap();
        self.fs.write(Access::default(), open, 0, b"content").unwrap();
        (attr.ino, open)
    }

    fn file(&self, dir: Ino, name: &str) -> Ino {
        let (ino, open) = self.create(dir, name);
        self.fs.release(0, open);
        ino
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join("backing").join(path)
    }

    fn is_made(&self, path: &str) -> bool {
        self.fs.check();
        self.path(path).is_dir()
    }

    fn names(&self, dir: Ino) -> Vec<(String, Ino, FileType)> {
        let listed = self.fs.list(dir).unwrap().1.into_iter();
        let mut names: Vec<_> =
            listed.map(|it| (it.name.into_string().unwrap(), it.ino, it.kind)).collect();
        names.sort_by(|one, other| one.0.cmp(&other.0));
        names
    }
}

/// A list that says the same as a mode: of the owner, the group and others.
fn access_list(rights: [u8; 3]) -> Vec<u8> {
    let entries = [1, 4, 32].into_iter().zip(rights);
    let entries = entries.flat_map(|(tag, right)| [tag, 0, right, 0, 255, 255, 255, 255]);
    [2, 0, 0, 0].into_iter().chain(entries).collect()
}

fn set(changes: impl FnOnce(&mut Changes)) -> Changes {
    let mut all = Changes::default();
    changes(&mut all);
    all
}

/// A tree that a program unpacks was made in BACKING at once and its files later, so that ext4
/// wrote the blocks of its directories twice. No one sees where it is: numbers, times, modes and
/// counts are the same before and after.
// Promises: Mount 1, Mount 28, Mount 86.
#[test]
fn a_new_tree_waits_as_a_whole_and_looks_the_same_in_backing() {
    let bed = Bed::new();
    std::fs::create_dir(bed.path("old")).unwrap();
    let a = bed.mkdir(ROOT, "a");
    let [b, c] = ["b", "c"].map(|name| bed.mkdir(a, name));
    let file = bed.file(b, "file");
    let at = Time { s: 1_000_000, ns: 7 };
    let dated = set(|it| (it.mtime, it.atime) = (Some(Some(at)), Some(Some(at))));
    bed.fs.set_attr(0, c, &dated).unwrap();
    bed.fs.set_attr(0, b, &set(|it| it.mode = Some(0o1700))).unwrap();
    assert!(!bed.is_made("a"));
    let see = || {
        let inos = [ROOT, a, b, c, file];
        let attrs = inos.map(|ino| {
            let attr = bed.fs.attr(ino).unwrap();
            // A directory's `ctime` tells when BACKING got what is in it.
            let ctime = if ino == file { attr.ctime } else { Time::default() };
            // This test itself lists it in BACKING.
            let atime = if ino == ROOT { Time::default() } else { attr.atime };
            Attr { ctime, atime, ..attr }
        });
        (attrs, [ROOT, a, b, c].map(|dir| bed.names(dir)))
    };
    let before = see();
    let nlinks: Vec<u32> = before.0.iter().map(|attr| attr.nlink).collect();
    assert_eq!(nlinks, [4, 4, 2, 2, 1]);
    assert_eq!(before.1[0][0], ("a".to_owned(), a, FileType::Directory));
    bed.fs.settle_all().unwrap();
    assert_eq!(see(), before);
    assert_eq!(std::fs::read(bed.path("a/b/file")).unwrap(), b"content");
    let (b, c) = (std::fs::metadata(bed.path("a/b")), std::fs::metadata(bed.path("a/c")));
    assert_eq!(b.unwrap().permissions().mode(), 0o041_700);
    let c = c.unwrap();
    assert_eq!((c.mtime(), c.mtime_nsec()), (at.s, 7));
    let time = |path: &str| std::fs::metadata(bed.path(path)).unwrap().mtime_nsec();
    assert_eq!(time("a"), i64::from(before.0[1].mtime.ns));
    bed.fs.check();
    for dir in [a, ROOT] {
        bed.fs.forget(dir, 1);
    }
    assert_eq!(bed.fs.lookup(ROOT, OsStr::new("a")).unwrap().ino, a, "it keeps its number");
}

/// Directories for which RAM had no more space were made at once, and the names of their files came
/// with a later commit, which had their blocks again: a tree of 3,000 directories cost 1.26 times
/// what ext4 writes. Now the oldest are made together with their files before there are too many.
// Promises: Mount 86.
#[test]
fn of_many_directories_the_oldest_are_made_with_their_files() {
    let Some(bed) = Bed::with(|_| Store::detached_tmpfs(1 << 20).ok()) else { return };
    let most = bed.fs.mover.directories_in_ram();
    let fills = |from: u64, to: u64| {
        for n in from..to {
            bed.file(bed.mkdir(ROOT, &n.to_string()), "file");
        }
    };
    let are_made = || -> Vec<u64> {
        let made: Vec<u64> = (0..most).filter(|n| bed.is_made(&n.to_string())).collect();
        let has_file = |n: u64| bed.path(&format!("{n}/file")).exists();
        assert!((1..most).all(|n| has_file(n) == made.contains(&n)), "a file comes with its own");
        made
    };
    let many = most * 3 / 4;
    fills(0, many);
    assert!(bed.fs.mover.next_name_us() > Some(0), "these are not many");
    fills(many, many + 1);
    assert_eq!(bed.fs.mover.next_name_us(), Some(0));
    // One cannot be made. It keeps no other from it, and is tried again after a while.
    std::fs::write(bed.path("0"), b"in the way").unwrap();
    bed.fs.settle_due(0).1.unwrap_err();
    let oldest = many + 1 - most / 2;
    assert_eq!(are_made(), (1..oldest).collect::<Vec<_>>());
    let again_us = bed.fs.mover.next_name_us().unwrap();
    assert!(again_us > 0);
    std::fs::remove_file(bed.path("0")).unwrap();
    bed.now_us.store(again_us, SeqCst);
    bed.fs.settle_due(again_us).1.unwrap();
    assert_eq!(are_made(), (0..oldest).collect::<Vec<_>>());
    assert!(bed.fs.mover.next_name_us() > Some(again_us), "half of them wait");
    bed.fs.settle_all().unwrap();
    bed.fs.check();
}

/// Operations that only BACKING can perform make the directory first, and those that it is in.
// Promises: Mount 86.
#[test]
fn all_but_a_few_operations_make_the_directory_first() {
    type Step = fn(&Bed, Ino, Ino);
    let families: [(&str, Step); 14] = [
        ("rename it over one of BACKING", |bed, above, _| {
            bed.fs.fsync_dir(0, bed.mkdir(above, "old")).unwrap();
            assert!(bed.is_made("above/old") && !bed.is_made("above/new"));
            for [from, to] in [["new", "old"], ["old", "new"]] {
                let names = ((above, OsStr::new(from)), (above, OsStr::new(to)));
                bed.fs.rename(0, names.0, names.1, RenameFlags::empty()).unwrap();
            }
        }),
        ("rename it into one that passes its group on", |bed, above, _| {
            bed.mkdir(above, "old");
            std::fs::create_dir(bed.path("setgid")).unwrap();
            let mode = Permissions::from_mode(0o2755);
            std::fs::set_permissions(bed.path("setgid"), mode).unwrap();
            let setgid = bed.fs.lookup(ROOT, OsStr::new("setgid")).unwrap().ino;
            let (there, back) = ((setgid, OsStr::new("it")), (above, OsStr::new("new")));
            bed.fs.rename(0, back, there, RenameFlags::empty()).unwrap();
            assert_eq!(std::fs::metadata(bed.path("setgid/it")).unwrap().mode(), 0o040_755);
            bed.fs.rename(0, there, back, RenameFlags::empty()).unwrap();
        }),
        ("rename a file of BACKING into it", |bed, _, new| {
            std::fs::write(bed.path("old"), b"old").unwrap();
            let (from, to) = ((ROOT, OsStr::new("old")), (new, OsStr::new("old")));
            bed.fs.rename(0, from, to, RenameFlags::empty()).unwrap();
            assert!(bed.path("above/new/old").exists());
        }),
        ("exchange it", |bed, above, _| {
            bed.mkdir(above, "other");
            let names = ((above, OsStr::new("new")), (above, OsStr::new("other")));
            bed.fs.rename(0, names.0, names.1, RenameFlags::EXCHANGE).unwrap();
        }),
        ("link to a file of BACKING", |bed, _, new| {
            let (file, open) = bed.create(ROOT, "file");
            bed.fs.fsync(0, open, false).unwrap();
            bed.fs.link(0, file, new, OsStr::new("link")).unwrap();
        }),
        ("symlink", |bed, _, new| {
            bed.fs.symlink(&caller(), new, OsStr::new("link"), OsStr::new("to")).unwrap();
        }),
        ("mknod", |bed, _, new| {
            bed.fs.mknod(&caller(), new, OsStr::new("fifo"), 0o010_644, 0).unwrap();
        }),
        ("create with O_SYNC", |bed, _, new| {
            let sync = OFlags::SYNC.bits() as i32;
            bed.fs.create(&caller(), new, OsStr::new("file"), 0o644, sync).unwrap();
        }),
        ("attribute", |bed, _, new| {
            bed.fs.set_xattr(&caller(), new, OsStr::new("user.a"), b"value", 0).unwrap();
            assert_eq!(bed.fs.get_xattr(new, OsStr::new("user.a")).unwrap(), b"value");
        }),
        ("default list of the one above", |bed, above, new| {
            let list = access_list([7, 5, 5]);
            let name = OsStr::new("system.posix_acl_default");
            bed.fs.set_xattr(&caller(), above, name, &list, 0).unwrap();
            assert_eq!(bed.fs.get_xattr(new, name), Err(Errno::NODATA), "it is older");
        }),
        ("setgid", |bed, _, new| {
            bed.fs.set_attr(0, new, &set(|it| it.mode = Some(0o2755))).unwrap();
            let file = bed.fs.attr(bed.file(new, "file")).unwrap();
            assert_eq!(file.gid, bed.fs.attr(new).unwrap().gid);
        }),
        ("fsync of it", |bed, _, new| bed.fs.fsync_dir(0, new).unwrap()),
        ("fsync of the one above", |bed, above, _| bed.fs.fsync_dir(0, above).unwrap()),
        ("fsync of a file in it", |bed, _, new| {
            let (_, open) = bed.create(new, "file");
            bed.fs.fsync(0, open, false).unwrap();
            assert_eq!(std::fs::read(bed.path("above/new/file")).unwrap(), b"content");
        }),
    ];
    for (what, step) in families {
        let bed = Bed::new();
        let above = bed.mkdir(ROOT, "above");
        let new = bed.mkdir(above, "new");
        assert!(!bed.is_made("above"), "before: {what}");
        step(&bed, above, new);
        assert!(bed.is_made("above/new"), "{what}");
        assert!(bed.fs.lookup(above, OsStr::new("new")).is_ok(), "{what}");
        bed.fs.settle_all().unwrap();
        bed.fs.check();
    }
}

/// Programs that unpack into a directory beside the final one, and then rename it, had all of its
/// directories made in BACKING by that, before any file.
// Promises: Mount 86.
#[test]
fn a_renamed_tree_stays_in_ram() {
    let bed = Bed::new();
    let rename = |from: (Ino, &str), to: (Ino, &str), flags| {
        bed.fs.rename(0, (from.0, OsStr::new(from.1)), (to.0, OsStr::new(to.1)), flags)
    };
    let (none, no_replace) = (RenameFlags::empty(), RenameFlags::NOREPLACE);
    std::fs::create_dir(bed.path("old")).unwrap();
    let old = bed.fs.lookup(ROOT, OsStr::new("old")).unwrap().ino;
    let [target, full, temp] = ["target", "full", "temp"].map(|name| bed.mkdir(ROOT, name));
    let inside = bed.mkdir(temp, "inside");
    let file = bed.file(inside, "file");
    bed.fs.link(0, file, temp, OsStr::new("link")).unwrap();
    bed.file(full, "other");
    // It gets another name, takes the place of an empty directory, and moves into one of BACKING.
    rename((ROOT, "temp"), (ROOT, "a longer name"), no_replace).unwrap();
    let onto = |name, flags| rename((ROOT, "a longer name"), (ROOT, name), flags);
    assert_eq!(onto("full", none), Err(Errno::NOTEMPTY));
    assert_eq!(onto("full", no_replace), Err(Errno::EXIST));
    assert_eq!(onto("target", no_replace), Err(Errno::EXIST));
    onto("target", none).unwrap();
    assert_eq!(bed.fs.lookup(ROOT, OsStr::new("target")).unwrap().ino, temp);
    assert_eq!(bed.fs.attr(target).unwrap().nlink, 0, "it is replaced");
    rename((ROOT, "target"), (old, "final"), none).unwrap();
    rename((temp, "inside"), (old, "beside"), none).unwrap();
    bed.fs.check();
    assert_eq!(bed.names(temp).iter().map(|it| it.1).collect::<Vec<_>>(), [file]);
    assert_eq!(bed.names(old).iter().map(|it| it.1).collect::<Vec<_>>(), [inside, temp]);
    assert_eq!([ROOT, old, temp].map(|dir| bed.fs.attr(dir).unwrap().nlink), [4, 4, 2]);
    let times = [ROOT, old, temp, inside].map(|dir| bed.fs.attr(dir).unwrap().mtime);
    assert_eq!(std::fs::read_dir(bed.path("old")).unwrap().count(), 0, "nothing is made");
    bed.fs.settle_all().unwrap();
    assert_eq!([ROOT, old, temp, inside].map(|dir| bed.fs.attr(dir).unwrap().mtime), times);
    for name in ["old/final/link", "old/beside/file"] {
        assert_eq!(std::fs::read(bed.path(name)).unwrap(), b"content");
        assert_eq!(std::fs::metadata(bed.path(name)).unwrap().nlink(), 2);
    }
    for name in ["temp", "target", "a longer name"] {
        assert!(!bed.is_made(name), "{name}");
    }
    assert_eq!((bed.fs.store.files(), bed.fs.reservation.metadata.bytes()), (0, 0));
}

/// Looking, listing, files that come and go, and changes of owner, mode and times need no directory
/// in BACKING. Files that are removed before their time never get there.
// Promises: Mount 11, Mount 86.
#[test]
fn what_ram_can_do_makes_no_directory() {
    let bed = Bed::new();
    let new = bed.mkdir(ROOT, "new");
    let again = bed.fs.mkdir(&caller(), ROOT, OsStr::new("new"), 0o755);
    assert_eq!(again, Err(Errno::EXIST));
    bed.file(new, "new.tmp");
    let (from, to) = ((new, OsStr::new("new.tmp")), (new, OsStr::new("file")));
    bed.fs.rename(0, from, to, RenameFlags::empty()).unwrap();
    assert_eq!(bed.fs.lookup(new, OsStr::new("none")), Err(Errno::NOENT));
    assert_eq!(bed.fs.get_xattr(new, OsStr::new("user.a")), Err(Errno::NODATA));
    let gid = Some(caller().gid);
    let changes = set(|it| (it.mode, it.gid, it.mtime) = (Some(0o711), gid, Some(None)));
    assert_eq!(bed.fs.set_attr(0, new, &changes).unwrap().mode, 0o040_711);
    if rustix::process::geteuid().is_root() {
        let name = OsStr::new("system.posix_acl_access");
        bed.fs.set_xattr(&caller(), new, name, &access_list([7, 5, 1]), 0).unwrap();
        assert_eq!(bed.fs.attr(new).unwrap().mode, 0o040_751, "as `cp -a` sets a mode");
        bed.fs.remove_xattr(new, OsStr::new("system.posix_acl_default")).unwrap();
    }
    assert!(!bed.is_made("new"));
    assert_eq!(bed.fs.rmdir(ROOT, OsStr::new("new")), Err(Errno::NOTEMPTY));
    bed.fs.unlink(0, new, OsStr::new("file")).unwrap();
    bed.fs.forget_nameless();
    let inside = bed.mkdir(new, "inside");
    assert_eq!(bed.fs.rmdir(ROOT, OsStr::new("new")), Err(Errno::NOTEMPTY));
    bed.fs.rmdir(new, OsStr::new("inside")).unwrap();
    bed.fs.rmdir(ROOT, OsStr::new("new")).unwrap();
    assert_eq!(bed.fs.lookup(ROOT, OsStr::new("new")), Err(Errno::NOENT));
    assert_eq!(bed.fs.attr(inside).unwrap().nlink, 0);
    bed.fs.check();
    bed.fs.settle_all().unwrap();
    let left: Vec<_> = std::fs::read_dir(bed.path("")).unwrap().collect();
    assert_eq!(left.len(), 1, "only our own");
    assert_eq!((bed.fs.store.files(), bed.fs.reservation.metadata.bytes()), (0, 0));
}

/// A directory without files is made after the time for which files wait; one with files when the
/// first of them is.
// Promises: Mount 86.
#[test]
fn directories_are_made_in_time() {
    let bed = Bed::new();
    let at = |now_us| {
        bed.now_us.store(now_us, SeqCst);
        bed.fs.settle_due(now_us).1.unwrap();
    };
    bed.file(bed.mkdir(ROOT, "full"), "file");
    bed.mkdir(ROOT, "empty");
    let due_us = WINDOW_US - WINDOW_US / 32;
    assert!(bed.fs.mover.next_name_us().is_some_and(|next_us| next_us <= due_us));
    at(WINDOW_US - WINDOW_US / 16);
    assert_eq!((bed.is_made("full"), bed.is_made("empty")), (true, false));
    assert!(bed.path("full/file").exists());
    at(due_us);
    assert!(bed.is_made("empty"));
    assert_eq!(bed.fs.mover.next_name_us(), None);
}

/// Without its own sync and without one in it, a directory ends with the daemon, as its files do.
// Promises: Mount 2, Mount 3, Mount 6, Mount 86.
#[test]
fn a_kill_loses_only_directories_in_which_nothing_was_synced() {
    let bed = Bed::new();
    let [lost, synced, of_file] = ["lost", "synced", "of_file"].map(|name| bed.mkdir(ROOT, name));
    bed.file(lost, "file");
    bed.mkdir(synced, "inside");
    bed.fs.fsync_dir(0, synced).unwrap();
    let (_, open) = bed.create(bed.mkdir(of_file, "inside"), "file");
    bed.fs.fsync(0, open, false).unwrap();
    // No more than what is there now is left by a kill.
    let made = ["lost", "synced/inside", "of_file/inside"].map(|path| bed.is_made(path));
    assert_eq!(made, [false, true, true]);
    assert_eq!(std::fs::read(bed.path("of_file/inside/file")).unwrap(), b"content");
}

/// Where files inherit what only BACKING can give them, or BACKING decides more, a directory is
/// made at once.
// Promises: Mount 86.
#[test]
fn special_places_get_their_directories_at_once() {
    let bed = Bed::new();
    std::fs::create_dir(bed.path("setgid")).unwrap();
    std::fs::set_permissions(bed.path("setgid"), Permissions::from_mode(0o2755)).unwrap();
    let setgid = bed.fs.lookup(ROOT, OsStr::new("setgid")).unwrap().ino;
    let made = bed.fs.mkdir(&caller(), setgid, OsStr::new("new"), 0o755).unwrap();
    assert!(bed.is_made("setgid/new"));
    assert_eq!(made.mode, 0o042_755);
    let Bed { fs, now_us, folder } = Bed::new();
    let bed = Bed { fs: Fs { writes_wait: [false; 2], ..fs }, now_us, folder };
    bed.mkdir(ROOT, "new");
    assert!(bed.is_made("new"), "others use BACKING");
}

/// A directory that BACKING refuses stays in RAM with its files, is counted and named by the
/// status, and is made when BACKING takes it. The daemon of a mount that could not end because of
/// directories alone said that it had "0 files" in RAM.
// Promises: Mount 19, Mount 86.
#[test]
fn a_directory_that_cannot_be_made_is_tried_again() {
    let bed = Bed::new();
    bed.file(bed.mkdir(ROOT, "full"), "file");
    bed.mkdir(ROOT, "empty");
    // As if another program had taken the names.
    for name in ["full", "empty"] {
        std::fs::write(bed.path(name), b"").unwrap();
    }
    assert!(bed.fs.settle_all().is_err());
    bed.fs.check();
    let status = bed.fs.status();
    assert_eq!((status.files_in_ram, status.directories_in_ram), (1, 2));
    assert_eq!(status.counted_in_ram(), "1 file and 2 directories");
    assert_eq!((status.failing_files, status.failing_directories), (3, 2));
    let failures = status.failures;
    let failing: Vec<_> = failures.iter().map(|it| (&*it.path, &*it.step)).collect();
    assert!(failing.contains(&("/empty", "making the directory")), "{failing:?}");
    assert!(failing.iter().any(|(path, _)| *path == "/full/file"), "{failing:?}");
    for name in ["full", "empty"] {
        assert!(bed.fs.lookup(ROOT, OsStr::new(name)).is_ok());
        std::fs::remove_file(bed.path(name)).unwrap();
    }
    bed.fs.settle_all().unwrap();
    assert!(bed.is_made("empty") && bed.path("full/file").exists());
    let status = bed.fs.status();
    assert_eq!((status.failures, status.directories_in_ram), (Vec::new(), 0));
    assert_eq!((status.failing_files, status.failing_directories), (0, 0));
}

/// Directories need inodes, blocks and names on flash as files do: `statfs` counts them, and no
/// more of them wait than there is space for.
// Promises: Mount 31, Mount 86.
#[test]
fn directories_in_ram_count_as_written() {
    let bed = Bed::new();
    let space = bed.fs.table().space_for_directory(OsStr::new("a"));
    let reserved = || bed.fs.reservation.metadata.bytes();
    let a = bed.mkdir(ROOT, "a");
    assert_eq!((reserved(), bed.fs.table().inodes_in_ram()), (space, 1));
    bed.mkdir(a, "b");
    assert_eq!((reserved(), bed.fs.table().inodes_in_ram()), (2 * space, 2));
    assert_eq!(bed.fs.store.usage().unwrap().0 % 4096, 2 * FILE_COST_BYTES % 4096);
    bed.fs.settle_all().unwrap();
    assert_eq!((reserved(), bed.fs.store.files()), (0, 0));
    let small = |_: &Path| Store::detached_tmpfs(1 << 20).ok();
    let Some(bed) = Bed::with(small) else {
        eprintln!("skipped: a small store takes root");
        return;
    };
    let most = bed.fs.mover.directories_in_ram();
    for number in 0..=most {
        bed.mkdir(ROOT, &number.to_string());
    }
    assert_eq!(bed.fs.table().new_directories().len() as u64, most);
    assert!(bed.is_made(&most.to_string()), "one more is made at once");
    // Files that need the space get it.
    bed.fs.mover.make_room(1 << 20).unwrap();
    assert_eq!(bed.fs.table().new_directories().len(), 0);
}

/// A directory belongs to the user who created it, and not to the one who makes it in BACKING.
// Promises: Mount 33.
#[test]
fn a_directory_belongs_to_its_creator() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: files of others take root");
        return;
    }
    let bed = Bed::new();
    let other = Caller { uid: 1234, gid: 2345, tid: 0, umask: 0o077 };
    let made = bed.fs.mkdir(&other, ROOT, OsStr::new("new"), 0o1777).unwrap();
    assert_eq!((made.uid, made.gid, made.mode), (1234, 2345, 0o041_700));
    let inside = bed.mkdir(made.ino, "inside");
    bed.fs.set_attr(0, inside, &set(|it| (it.uid, it.gid) = (Some(77), Some(78)))).unwrap();
    bed.fs.settle_all().unwrap();
    let owner = |path: &str| {
        let it = std::fs::metadata(bed.path(path)).unwrap();
        (it.uid(), it.gid(), it.mode())
    };
    assert_eq!(owner("new"), (1234, 2345, 0o041_700));
    assert_eq!(owner("new/inside"), (77, 78, 0o040_755));
}
