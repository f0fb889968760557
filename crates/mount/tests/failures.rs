//! Failures half way through an operation, and operations at the same moment.

use flashsift_mount::{Access, Caller, Config, Errno, Fs, Ino, ROOT, Step, Store, WriteBackError};
use flashsift_testbed::skip;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

struct Bed {
    fs: Fs,
    folder: tempfile::TempDir,
}

fn caller() -> Caller {
    Caller {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        tid: 0,
        umask: 0,
    }
}

fn bed() -> Bed {
    let folder = tempfile::tempdir().unwrap();
    for name in ["backing", "store"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    let backing = std::fs::File::open(folder.path().join("backing")).unwrap();
    let store = Store::in_dir(&folder.path().join("store")).unwrap();
    Bed { fs: Fs::new(backing.into(), store, Config::default()).unwrap(), folder }
}

impl Bed {
    fn backing(&self) -> std::path::PathBuf {
        self.folder.path().join("backing")
    }

    fn file(&self, dir: Ino, name: &str, bytes: &[u8]) -> Ino {
        let (attr, open, _) = self.fs.create(&caller(), dir, OsStr::new(name), 0o644, 0).unwrap();
        self.fs.write(Access::default(), open, 0, bytes).unwrap();
        self.fs.release(0, open);
        attr.ino
    }

    /// A directory of BACKING.
    fn dir(&self, name: &str) -> Ino {
        let ino = self.fs.mkdir(&caller(), ROOT, OsStr::new(name), 0o755).unwrap().ino;
        self.fs.fsync_dir(0, ino).unwrap();
        ino
    }
}

/// Sets a flag with which nothing can be created or renamed in the directory, or (`a`) nothing
/// removed, even by root. Returns whether the file system supports it.
fn forbid(dir: &Path, flag: &str) -> bool {
    let done = Command::new("chattr").arg(flag).arg(dir).output();
    done.is_ok_and(|output| output.status.success())
        || skip(format_args!("chattr {flag} needs root and a file system that knows it"))
}

/// A file has names in three directories, and the last directory takes none. The names that BACKING
/// has by then stay hidden, and the partial copy is removed.
#[test]
fn a_name_of_a_partial_write_back_does_not_reappear() {
    let bed = bed();
    let [one, two] = ["one", "two"].map(|name| bed.dir(name));
    let ino = bed.file(ROOT, "a", b"content");
    bed.fs.link(0, ino, one, OsStr::new("b")).unwrap();
    bed.fs.link(0, ino, two, OsStr::new("c")).unwrap();
    if !forbid(&bed.backing().join("two"), "+i") {
        return;
    }
    let failed = [(); 2].map(|()| bed.fs.settle_all().map_err(|failed| failed.errno()));
    // The first copy there makes the directory.
    let left = std::fs::read_dir(bed.backing().join(".flashsift/tmp")).map_or(0, Iterator::count);
    assert!(forbid(&bed.backing().join("two"), "-i"));
    assert_eq!(failed, [Err(Errno::PERM); 2]);
    bed.fs.check();
    assert_eq!(left, 0, "half-made copies");
    for (dir, name) in [(ROOT, "a"), (one, "b")] {
        bed.fs.unlink(0, dir, OsStr::new(name)).unwrap();
        assert_eq!(
            bed.fs.lookup(dir, OsStr::new(name)).map(|attr| attr.ino),
            Err(Errno::NOENT),
            "{name}"
        );
    }
    bed.fs.settle_all().unwrap();
    assert_eq!(std::fs::read(bed.backing().join("two/c")).unwrap(), b"content");
    assert!(!bed.backing().join("a").exists() && !bed.backing().join("one/b").exists());
    bed.fs.check();
}

/// Two files in two directories that take none, and one that can be written back: each failure is
/// reported with path, step and error, until the file is on flash. Only the last was.
// Promises: Mount 19.
#[test]
fn every_failure_is_reported_with_its_path_and_step() {
    let bed = bed();
    for name in ["one", "two"] {
        let dir = bed.dir(name);
        bed.file(dir, "stuck", b"content");
    }
    bed.file(ROOT, "free", b"content");
    if !["one", "two"].into_iter().all(|dir| forbid(&bed.backing().join(dir), "+i")) {
        return;
    }
    let failed = bed.fs.settle_all().unwrap_err();
    let status = bed.fs.status();
    for dir in ["one", "two"] {
        assert!(forbid(&bed.backing().join(dir), "-i"));
    }
    let expected = |path: &str| WriteBackError {
        path: path.to_owned(),
        step: Step::Rename,
        errno: Errno::PERM,
    };
    let failed: Vec<_> = failed.all().cloned().collect();
    assert_eq!(failed, ["/one/stuck", "/two/stuck"].map(expected));
    assert_eq!((status.failing_files, status.files_in_ram), (2, 2));
    let shown: Vec<_> =
        status.failures.iter().map(|failure| (&*failure.path, &*failure.step)).collect();
    assert_eq!(shown, [("/one/stuck", "renaming the copy"), ("/two/stuck", "renaming the copy")]);
    assert!(status.failing.contains("/one/stuck: renaming the copy: Operation not permitted"));
    bed.fs
        .unlink(0, bed.fs.lookup(ROOT, OsStr::new("one")).unwrap().ino, OsStr::new("stuck"))
        .unwrap();
    bed.fs.forget_nameless();
    assert_eq!(bed.fs.status().failing_files, 1, "a file that is gone fails no longer");
    bed.fs.settle_all().unwrap();
    assert_eq!((bed.fs.status().failing_files, bed.fs.status().failing), (0, String::new()));
}

/// A file of 20 MB in a directory that had become immutable was copied to flash again at each
/// attempt: 117 MB in 40 s. Its copy is kept, and each attempt tries the missing name alone, until
/// the file changes or is gone.
// Promises: Mount 19.
#[test]
fn a_copy_that_cannot_get_its_name_is_kept() {
    use std::os::unix::fs::MetadataExt;
    let bed = bed();
    let dir = bed.dir("dir");
    let ino = bed.file(dir, "stuck", b"content");
    let linked = bed.file(ROOT, "linked", b"content");
    bed.fs.link(0, linked, dir, OsStr::new("further")).unwrap();
    if !forbid(&bed.backing().join("dir"), "+i") {
        return;
    }
    let copies = || -> Vec<u64> {
        let all = std::fs::read_dir(bed.backing().join(".flashsift/tmp")).into_iter().flatten();
        let named = bed.backing().join("linked").metadata().map(|about| about.ino());
        all.map(|copy| copy.unwrap().metadata().unwrap().ino()).chain(named).collect()
    };
    let attempt = || {
        assert_eq!(bed.fs.settle_all().unwrap_err().all().count(), 2);
        bed.fs.check();
        copies()
    };
    let first = attempt();
    let again = attempt();
    let (open, _) = bed.fs.open(0, ino).unwrap();
    bed.fs.write(Access::default(), open, 0, b"changed").unwrap();
    bed.fs.release(0, open);
    let changed = attempt();
    assert!(forbid(&bed.backing().join("dir"), "-i"));
    bed.fs.unlink(0, dir, OsStr::new("stuck")).unwrap();
    bed.fs.forget_nameless();
    let gone = copies();
    assert_eq!((first.len(), &first), (2, &again));
    assert_eq!(changed[1], first[1], "the file with two names did not change");
    assert_eq!(gone, [first[1]], "the copy of a file that is gone");
    bed.fs.settle_all().unwrap();
    let at = |path: &str| bed.backing().join(path).metadata().unwrap().ino();
    assert_eq!([at("linked"), at("dir/further")], [first[1]; 2]);
    assert!(!bed.backing().join("dir/stuck").exists());
    bed.fs.tidy().unwrap();
}

/// Files are written back to a directory whose times we may not set, such as a shared directory of
/// another user.
#[test]
fn files_are_written_back_to_a_directory_of_another_user() {
    let bed = bed();
    let dir = bed.dir("shared");
    bed.file(dir, "a", b"content");
    if !forbid(&bed.backing().join("shared"), "+a") {
        return;
    }
    let settled = bed.fs.settle_all();
    assert!(forbid(&bed.backing().join("shared"), "-a"));
    assert!(settled.is_ok(), "{settled:?}");
    bed.fs.check();
    assert_eq!(bed.fs.status().files_in_ram, 0);
}

/// While files are created, writing back those that were there before comes to an end.
#[test]
fn writing_back_everything_ends_while_files_are_created() {
    let bed = bed();
    bed.file(ROOT, "first", b"content");
    let (done, born) = (AtomicBool::new(false), std::sync::atomic::AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            // So many files that a write-back of the earlier ones would visibly not end if it
            // waited for them.
            while !done.load(Relaxed) && born.fetch_add(1, Relaxed) < 20_000 {
                bed.file(ROOT, &born.load(Relaxed).to_string(), b"content");
            }
        });
        bed.fs.settle_all().unwrap();
        done.store(true, Relaxed);
    });
    assert!(born.load(Relaxed) < 20_000, "it waited for files that were born later");
}

/// A file that cannot be written back is no reason to refuse a write for which other files have
/// left enough space in RAM.
// Promises: Mount 29.
#[test]
fn ram_full_is_no_error_while_one_file_cannot_be_written_back() {
    let folder = tempfile::tempdir().unwrap();
    let backing = std::fs::File::open(folder.path()).unwrap();
    let Ok(store) = Store::detached_tmpfs(1 << 20) else {
        return skip("a tmpfs needs root");
    };
    let bed = Bed { fs: Fs::new(backing.into(), store, Config::default()).unwrap(), folder };
    let dir = bed.dir("stuck");
    bed.file(dir, "a", b"content");
    if !forbid(&bed.folder.path().join("stuck"), "+i") {
        return;
    }
    let written: Vec<_> = (0..64)
        .map(|n| {
            let (_, open, _) =
                bed.fs.create(&caller(), ROOT, OsStr::new(&format!("{n}")), 0o644, 0)?;
            let written = bed.fs.write(Access::default(), open, 0, &[7; 64 << 10]);
            bed.fs.release(0, open);
            written
        })
        .collect();
    assert!(forbid(&bed.folder.path().join("stuck"), "-i"));
    assert!(written.iter().all(|written| *written == Ok(64 << 10)), "{written:?}");
    bed.fs.settle_all().unwrap();
    bed.fs.check();
}

/// A file without a name that was open had to move to flash before it got an attribute that RAM
/// does not support. Write-back on demand skipped files without names, and the move was tried for
/// ever: after four such requests the kernel got no answers any more.
#[test]
fn a_file_without_a_name_takes_large_attributes_too() {
    let bed = bed();
    let (attr, open, _) = bed.fs.create(&caller(), ROOT, OsStr::new("a"), 0o644, 0).unwrap();
    bed.fs.write(Access::default(), open, 0, b"bytes").unwrap();
    bed.fs.unlink(0, ROOT, OsStr::new("a")).unwrap();
    let value = vec![b'x'; 900];
    bed.fs.set_xattr(&caller(), attr.ino, OsStr::new("user.large"), &value, 0).unwrap();
    assert_eq!(bed.fs.get_xattr(attr.ino, OsStr::new("user.large")).unwrap(), value);
    let mut bytes = [0; 10];
    assert_eq!(bed.fs.read(Access::default(), open, 0, &mut bytes).unwrap(), 5);
    assert_eq!(bed.fs.attr(attr.ino).unwrap().nlink, 0);
    bed.fs.release(0, open);
    bed.fs.forget(attr.ino, 1);
    bed.fs.check();
    assert_eq!(std::fs::read_dir(bed.backing()).unwrap().count(), 1, "only what is ours");
}
