//! Files are written back while they are in use: no store, byte or name gets lost, and readers of
//! BACKING see whole files only.

use super::{KIB, LATE, MIB, Mounted, Random, bytes, create};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags};
use std::{
    fs::{self, File},
    io::{Read, Seek, SeekFrom, Write},
    os::unix::fs::{FileExt, MetadataExt},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

/// A shared mapping of a file.
pub(super) struct Mapping {
    at: *mut u8,
    len: usize,
}

#[allow(unsafe_code, reason = "a shared mapping is what the test is about")]
impl Mapping {
    pub(super) fn new(file: &File, len: usize) -> Self {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, at an address of the kernel's choice.
        let at = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, access, MapFlags::SHARED, file, 0).unwrap()
        };
        Self { at: at.cast(), len }
    }

    pub(super) fn store(&self, at: usize, byte: u8) {
        assert!(at < self.len);
        // SAFETY: within the mapping; volatile, for others see it.
        unsafe { self.at.add(at).write_volatile(byte) }
    }

    pub(super) fn load(&self, at: usize) -> u8 {
        assert!(at < self.len);
        // SAFETY: within the mapping.
        unsafe { self.at.add(at).read_volatile() }
    }

    pub(super) fn sync(&self) {
        // SAFETY: the mapping's own range.
        unsafe { rustix::mm::msync(self.at.cast(), self.len, MsyncFlags::SYNC).unwrap() }
    }
}

#[allow(unsafe_code, reason = "unmaps what `Mapping::new` mapped")]
impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: no reference into the mapping is left.
        unsafe { rustix::mm::munmap(self.at.cast(), self.len).unwrap() }
    }
}

/// An application stores through a mapping, without a pause, while its file is written back again
/// and again.
// Promises: Mount 26.
#[test]
fn stores_through_a_mapping_survive_the_write_back() {
    let Some(mut mounted) = Mounted::new(&LATE) else { return };
    const LEN: usize = MIB;
    for round in 0..8 {
        let name = format!("mapped {round}");
        let file = create(&mounted.at(&name), &vec![0; LEN]);
        let map = Mapping::new(&file, LEN);
        let closed = round % 2 == 1;
        // The mapping alone keeps it in use.
        let file = (!closed).then_some(file);
        let mut expected = vec![0; LEN];
        let mut random = Random(round + 1);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                // Several rounds, so that stores fall before, into and after the first write-back.
                for _ in 0..5 {
                    mounted.settle();
                }
                done.store(true, Ordering::Release);
            });
            let mut stores = 0;
            while !done.load(Ordering::Acquire) || stores < 20_000 {
                let (at, byte) = (random.below(LEN), random.below(256) as u8);
                map.store(at, byte);
                expected[at] = byte;
                stores += 1;
            }
        });
        assert!((0..LEN).all(|at| map.load(at) == expected[at]), "the mapping itself lost a store");
        if round % 3 == 0 {
            map.sync();
            assert!(
                fs::read(mounted.below(&name)).unwrap() == expected,
                "msync: BACKING has all stores"
            );
        }
        drop((map, file));
        assert!(fs::read(mounted.at(&name)).unwrap() == expected, "the mount lost a store");
    }
    let seen = super::tree(&mounted.ext4.mountpoint());
    assert_eq!(mounted.ended(), seen);
}

/// Descriptor, mapping and another reader see one file, before and after its write-back.
// Promises: Mount 26.
#[test]
fn mapping_and_descriptor_see_each_other() {
    let Some(mounted) = Mounted::new(&LATE) else { return };
    let file = create(&mounted.at("file"), &vec![b'.'; 64 * KIB]);
    let map = Mapping::new(&file, 64 * KIB);
    let other = File::open(mounted.at("file")).unwrap();
    for (round, settles) in [false, true, false].into_iter().enumerate() {
        if settles {
            mounted.settle();
        }
        let round = round as u8;
        file.write_all_at(&[round; 10], 5000).unwrap();
        assert_eq!(map.load(5003), round, "the mapping sees what was written");
        map.store(9000, round);
        let mut byte = [9];
        map.sync();
        other.read_exact_at(&mut byte, 9000).unwrap();
        assert_eq!(byte, [round], "a reader sees what was stored and synced");
    }
}

/// Programs that build and copy look at times, and ask the kernel for nothing else.
#[test]
fn a_store_through_a_mapping_changes_the_times() {
    let Some(mounted) = Mounted::new(&LATE) else { return };
    let modified = |name: &str| {
        let (none, times) = (rustix::fs::AtFlags::empty(), rustix::fs::StatxFlags::MTIME);
        let shown = rustix::fs::statx(rustix::fs::CWD, mounted.at(name), none, times).unwrap();
        (shown.stx_mtime.tv_sec, shown.stx_mtime.tv_nsec)
    };
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    for name in ["in RAM", "settled"] {
        let file = create(&mounted.at(name), &vec![0; 8 * KIB]);
        if name == "settled" {
            mounted.settle();
        }
        file.set_modified(old).unwrap();
        drop(file);
        let file = File::options().read(true).write(true).open(mounted.at(name)).unwrap();
        assert_eq!(modified(name), (1_000_000_000, 0));
        let map = Mapping::new(&file, 8 * KIB);
        map.store(100, 1);
        drop((map, file));
        assert!(modified(name).0 > 1_000_000_000, "{name}: the change is not seen");
    }
}

/// After random changes of files during their write-back, BACKING equals a plain model.
// Promises: Mount 26.
#[test]
fn files_are_truncated_renamed_and_unlinked_during_write_back() {
    let Some(mut mounted) = Mounted::new(&LATE) else { return };
    let done = AtomicBool::new(false);
    let apps = 3;
    let models: Vec<_> = thread::scope(|scope| {
        let settler = scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                mounted.settle();
            }
        });
        let apps: Vec<_> = (0..apps)
            .map(|app| {
                scope.spawn({
                    let mounted = &mounted;
                    move || busy(mounted, app)
                })
            })
            .collect();
        let models = apps.into_iter().map(|app| app.join().unwrap()).collect();
        done.store(true, Ordering::Release);
        settler.join().unwrap();
        models
    });
    let found = mounted.ended();
    for (name, bytes) in models.into_iter().flatten() {
        let same = |node: &super::Node| matches!(node, super::Node::File { bytes: found, .. } if *found == bytes);
        assert!(
            found.get(&name).is_some_and(same),
            "{name} has {:?}, not {} bytes",
            found.get(&name),
            bytes.len()
        );
    }
}

/// An application on files of its own, each held open or not; what they hold in the end.
fn busy(mounted: &Mounted, app: u64) -> Vec<(String, Vec<u8>)> {
    const FILES: usize = 6;
    let name = |number: usize| format!("{app}-{number}");
    let mut model: Vec<Option<(Vec<u8>, Option<File>)>> = (0..FILES).map(|_| None).collect();
    let mut random = Random(app + 99);
    for step in 0..1500 {
        let which = random.below(FILES);
        let path = mounted.at(&name(which));
        let Some((bytes, held)) = &mut model[which] else {
            let new = bytes(step, random.below(100 * KIB));
            let file = create(&path, &new);
            model[which] = Some((new, (random.below(2) == 0).then_some(file)));
            continue;
        };
        let open = || File::options().read(true).write(true).open(&path).unwrap();
        let what = random.below(8);
        let at = random.below(bytes.len() + 1);
        match what {
            0 | 1 => {
                let new = super::bytes(step, random.below(20 * KIB));
                let file = held.take().unwrap_or_else(open);
                file.write_all_at(&new, at as u64).unwrap();
                bytes.resize(bytes.len().max(at + new.len()), 0);
                bytes[at..at + new.len()].copy_from_slice(&new);
                *held = (step % 3 == 0).then_some(file);
            }
            2 => {
                open().set_len(at as u64).unwrap();
                bytes.truncate(at);
            }
            3 => {
                open().set_len((bytes.len() + 5000) as u64).unwrap();
                bytes.resize(bytes.len() + 5000, 0);
            }
            4 => {
                let other = (which + 1) % FILES;
                fs::rename(&path, mounted.at(&name(other))).unwrap();
                model[other] = model[which].take();
            }
            5 => {
                fs::remove_file(&path).unwrap();
                if let Some(file) = held {
                    let mut there = Vec::new();
                    file.seek(SeekFrom::Start(0)).unwrap();
                    file.read_to_end(&mut there).unwrap();
                    assert!(there == *bytes, "{path:?}: unlinked, it holds something else");
                }
                model[which] = None;
            }
            6 => {
                if random.below(4) == 0 {
                    open().sync_all().unwrap();
                    assert!(
                        fs::read(mounted.below(&name(which))).unwrap() == *bytes,
                        "{path:?}: fsync does not reach BACKING"
                    );
                }
            }
            _ => assert!(fs::read(&path).unwrap() == *bytes, "{path:?} at step {step} of {app}"),
        }
    }
    let kept = model.into_iter().enumerate();
    kept.filter_map(|(number, file)| Some((name(number), file?.0))).collect()
}

// Promises: Mount 4.
#[test]
fn readers_of_backing_never_see_a_partial_file() {
    let Some(mounted) = Mounted::new(&LATE) else { return };
    let done = AtomicBool::new(false);
    let seen = thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = 0;
            while !done.load(Ordering::Acquire) {
                for entry in fs::read_dir(mounted.ext4.backing()).unwrap() {
                    let name = entry.unwrap().file_name().into_string().unwrap();
                    let Ok(seed) = name.parse::<u64>() else {
                        assert!(name == ".flashsift" || super::is_temporary(&name), "{name}");
                        continue;
                    };
                    let file = File::open(mounted.below(&name)).unwrap();
                    assert_eq!(
                        file.metadata().unwrap().mode() & 0o777,
                        0o640,
                        "{name} has its mode at once"
                    );
                    let mut found = Vec::new();
                    (&file).read_to_end(&mut found).unwrap();
                    let (old, new) =
                        (bytes(seed, 30_000 + seed as usize), bytes(seed + 1000, 300_000));
                    assert!(found == old || found == new, "{name} has {} bytes", found.len());
                    seen += 1;
                }
            }
            seen
        });
        for round in 0..30 {
            for seed in 0..20 {
                let (temp, path) = (mounted.at(&format!("{seed}~")), mounted.at(&seed.to_string()));
                let new = if (round + seed) % 2 == 0 {
                    bytes(seed, 30_000 + seed as usize)
                } else {
                    bytes(seed + 1000, 300_000)
                };
                let file = create(&temp, &new);
                file.set_permissions(super::mode(0o640)).unwrap();
                fs::rename(temp, path).unwrap();
            }
            mounted.settle();
        }
        done.store(true, Ordering::Release);
        reader.join().unwrap()
    });
    assert!(seen > 0, "the reader read nothing");
}

// Promises: Mount 29.
#[test]
fn ram_full_is_no_error() {
    let Some(mut mounted) = Mounted::new(&[&LATE[..], &["--budget", "1MiB"]].concat()) else {
        return;
    };
    // All at once, in turns, so that none is whole before RAM is full.
    let mut files: Vec<_> =
        (0..10).map(|name| create(&mounted.at(&name.to_string()), b"")).collect();
    let whole: Vec<_> = (0..10).map(|name| bytes(name, 2 * MIB)).collect();
    for from in (0..2 * MIB).step_by(64 * KIB) {
        for (file, whole) in files.iter_mut().zip(&whole) {
            file.write_all(&whole[from..from + 64 * KIB]).unwrap();
        }
    }
    // More than the budget in one write, and many small ones.
    create(&mounted.at("large"), &whole[..2].concat());
    for name in 0..2000 {
        create(&mounted.at(&format!("small {name}")), &bytes(name, 1000));
    }
    let map = Mapping::new(&create(&mounted.at("map"), &vec![0; 3 * MIB]), 3 * MIB);
    (0..3 * MIB).step_by(1000).for_each(|at| map.store(at, 7));
    drop((map, files));
    for (name, whole) in whole.iter().enumerate() {
        assert!(fs::read(mounted.at(&name.to_string())).unwrap() == *whole, "{name}");
    }
    assert!(fs::read(mounted.at("large")).unwrap() == whole[..2].concat());
    let expected = super::tree(&mounted.ext4.mountpoint());
    let found = mounted.ended();
    assert_eq!(found, expected);
    assert_eq!(found.len(), 10 + 1 + 2000 + 1);
}

/// A full BACKING fails the write itself, as on ext4, never a later write-back; also when RAM could
/// hold more.
// Promises: Mount 30.
#[test]
fn a_full_backing_fails_the_write() {
    for budget in ["4MiB", "1GiB"] {
        let Some(mut mounted) = Mounted::new(&[&LATE[..], &["--budget", budget]].concat()) else {
            return;
        };
        let mut file = create(&mounted.at("file"), b"");
        let part = bytes(1, 64 * KIB);
        let mut parts = 0;
        let error = loop {
            match file.write_all(&part) {
                Ok(()) => parts += 1,
                Err(error) => break error,
            }
            assert!(parts < 200 * MIB / part.len(), "{budget}: it took more than BACKING can hold");
        };
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{budget}");
        // All bytes whose write succeeded are there.
        file.set_len((parts * part.len()) as u64).unwrap();
        drop(file);
        let same = |read: Vec<u8>| {
            read.chunks(part.len()).all(|chunk| chunk == part) && read.len() == parts * part.len()
        };
        assert!(same(fs::read(mounted.at("file")).unwrap()), "{budget}");
        mounted.settle();
        assert!(same(fs::read(mounted.below("file")).unwrap()), "{budget}");
        fs::remove_file(mounted.at("file")).unwrap();
        create(&mounted.at("again"), &part).sync_all().unwrap();
        let found = mounted.ended();
        assert_eq!(found.keys().map(String::as_str).collect::<Vec<_>>(), ["again"], "{budget}");
    }
}

/// A file of 300 MiB that is all hole is mapped, and each page gets a byte. RAM has 4 MiB and flash
/// 128 MiB, so the kernel cannot write most of these pages. It tells one sync about that and
/// forgets it: the next sync succeeded although the file had lost them.
// Promises: Mount 30.
#[test]
fn every_sync_fails_after_stores_were_lost() {
    let options = [&LATE[..], &["--budget", "4MiB"]].concat();
    let Some(mounted) = Mounted::new(&options) else { return };
    const LEN: usize = 300 * MIB;
    let file = create(&mounted.at("file"), b"");
    file.set_len(LEN as u64).unwrap();
    let map = Mapping::new(&file, LEN);
    (0..LEN).step_by(4096).for_each(|at| map.store(at, 7));
    let full = std::io::ErrorKind::StorageFull;
    for sync in 0..3 {
        assert_eq!(file.sync_all().unwrap_err().kind(), full, "sync {sync}");
    }
    let other = File::options().write(true).open(mounted.at("file")).unwrap();
    assert_eq!(other.sync_all().unwrap_err().kind(), full, "of another descriptor");
    drop(map);
    file.set_len(0).unwrap();
    file.sync_all().unwrap();
}

/// An attribute that RAM supports and ext4 does not is refused at once, or kept; a file that waits
/// can always be written back.
#[test]
fn an_attribute_that_backing_does_not_support_is_refused_at_once() {
    let Some(mut mounted) = Mounted::new(&LATE) else { return };
    let file = create(&mounted.at("attribute"), b"x");
    let value = vec![7; 60_000];
    let set = rustix::fs::fsetxattr(&file, "user.large", &value, rustix::fs::XattrFlags::empty());
    // Of 2^45 bytes; ext4 has 2^44, F2FS not quite 2^42.
    let far = if super::on_f2fs() { 1 << 41 } else { 1 << 43 };
    let long = create(&mounted.at("long"), b"x");
    let cut = long.set_len(1 << 45);
    let holes = create(&mounted.at("holes"), b"begin");
    holes.write_all_at(b"end", far).unwrap();
    mounted.settle();
    let mut found = vec![0; 64 * KIB];
    let there = rustix::fs::getxattr(mounted.below("attribute"), "user.large", &mut found);
    assert_eq!(set.is_ok(), there.is_ok(), "{set:?} {there:?}");
    assert_eq!(
        fs::metadata(mounted.below("long")).unwrap().len(),
        if cut.is_ok() { 1 << 45 } else { 1 },
        "{cut:?}"
    );
    drop((file, long, holes));
    assert_eq!(mounted.end(super::End::Unmount).code(), Some(0));
    let mut end = [0; 3];
    File::open(mounted.below("holes")).unwrap().read_exact_at(&mut end, far).unwrap();
    assert_eq!(&end, b"end");
}

/// If a file in RAM is deleted or renamed, its directory in BACKING gets the time of that change,
/// even if nothing is written back. It used to keep the earlier time after the unmount.
// Promises: Mount 28.
#[test]
fn directories_keep_the_time_at_which_files_left_them() {
    let Some(mut mounted) = Mounted::new(&LATE) else { return };
    let dirs = ["lost", "left", "reached", "linked", "synced"];
    for dir in dirs {
        fs::create_dir(mounted.at(dir)).unwrap();
    }
    for file in ["lost/file", "left/file", "synced/file", "other"] {
        create(&mounted.at(file), b"new");
    }
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    for dir in dirs {
        let dir = File::open(mounted.at(dir)).unwrap();
        dir.set_times(fs::FileTimes::new().set_modified(long_ago)).unwrap();
    }
    fs::remove_file(mounted.at("lost/file")).unwrap();
    fs::rename(mounted.at("left/file"), mounted.at("reached/file")).unwrap();
    fs::hard_link(mounted.at("other"), mounted.at("linked/other")).unwrap();
    fs::remove_file(mounted.at("linked/other")).unwrap();
    fs::remove_file(mounted.at("synced/file")).unwrap();
    let modified = |path| fs::metadata(path).unwrap().modified().unwrap();
    let shown = |mounted: &Mounted| dirs.map(|dir| modified(mounted.at(dir)));
    let kept = |mounted: &Mounted| dirs.map(|dir| modified(mounted.below(dir)));
    let before = shown(&mounted);
    assert!(before.iter().all(|time| *time > long_ago), "all have changed: {before:?}");
    File::open(mounted.at("synced")).unwrap().sync_all().unwrap();
    let synced = modified(mounted.below("synced"));
    assert_eq!(synced, before[4], "a directory is synced with its time");
    mounted.settle();
    assert_eq!((shown(&mounted), kept(&mounted)), (before, before), "a write-back changes no time");

    // The same at the end, with nothing left to write back.
    for dir in dirs {
        create(&mounted.at(&format!("{dir}/next")), b"new");
        fs::remove_file(mounted.at(&format!("{dir}/next"))).unwrap();
    }
    let (before, top) = (shown(&mounted), modified(mounted.at("")));
    assert_ne!(kept(&mounted), before);
    assert_eq!(mounted.end(super::End::Unmount).code(), Some(0));
    assert_eq!(kept(&mounted), before);
    assert_eq!(modified(mounted.below("")), top, "what is ours came and went there");
}

/// A written-back file keeps its owner, mode, times, attributes, holes and all its names.
// Promises: Mount 27.
#[test]
fn a_written_back_file_is_the_same_file() {
    let Some(mounted) = Mounted::new(&LATE) else { return };
    let path = mounted.at("file");
    let file = create(&path, b"begin");
    file.write_all_at(b"end", 10 * MIB as u64).unwrap();
    file.set_permissions(super::mode(0o4751)).unwrap();
    std::os::unix::fs::chown(&path, Some(1234), Some(4321)).unwrap();
    file.set_permissions(super::mode(0o2751)).unwrap();
    rustix::fs::fsetxattr(&file, "user.note", b"kept", rustix::fs::XattrFlags::empty()).unwrap();
    rustix::fs::fsetxattr(&file, "trusted.note", b"too", rustix::fs::XattrFlags::empty()).unwrap();
    fs::hard_link(&path, mounted.at("second")).unwrap();
    let time = |seconds, nanos| std::time::UNIX_EPOCH + std::time::Duration::new(seconds, nanos);
    file.set_times(
        fs::FileTimes::new()
            .set_accessed(time(1_000_000_000, 7))
            .set_modified(time(1_111_111_111, 123_456_789)),
    )
    .unwrap();
    let before = file.metadata().unwrap();
    mounted.settle();
    let shown = |about: &fs::Metadata| {
        (
            about.mode(),
            about.uid(),
            about.gid(),
            about.size(),
            about.nlink(),
            about.mtime(),
            about.mtime_nsec(),
            about.atime(),
            about.atime_nsec(),
        )
    };
    let settled = fs::metadata(mounted.below("file")).unwrap();
    assert_eq!(shown(&settled), shown(&before));
    assert!(settled.blocks() < 1000, "holes stay holes: {} blocks", settled.blocks());
    assert_eq!(settled.ino(), fs::metadata(mounted.below("second")).unwrap().ino());
    let after = fs::metadata(&path).unwrap();
    assert_eq!(
        (shown(&after), after.ino()),
        (shown(&before), before.ino()),
        "it is the same file for applications"
    );
    assert_eq!(fs::metadata(mounted.at("second")).unwrap().ino(), before.ino());
    for (name, value) in [("user.note", &b"kept"[..]), ("trusted.note", b"too")] {
        for path in [mounted.at("second"), mounted.below("second")] {
            let mut space = [0; 16];
            let len = rustix::fs::getxattr(&path, name, &mut space).unwrap();
            assert_eq!(&space[..len], value, "{name} of {path:?}");
        }
    }
}

/// Names that are configured, and those of databases, are born in BACKING.
// Promises: Mount 10.
#[test]
fn write_through_names_never_wait_in_ram() {
    let Some(mounted) = Mounted::new(&[&LATE[..], &["--write-through", "*.log"]].concat()) else {
        return;
    };
    for name in ["a.log", "x.db", "x.db-wal", "x.db-journal", "x.sqlite", "x.sqlite3"] {
        let _file = create(&mounted.at(name), b"there");
        assert_eq!(fs::read(mounted.below(name)).unwrap(), b"there", "{name}");
    }
    create(&mounted.at("a.txt"), b"waits");
    assert!(!mounted.below("a.txt").exists());
}

/// A file is written back on schedule, without a request. The test waits for the file, not for a
/// time.
// Promises: Mount 1.
#[test]
fn files_are_written_back_on_schedule() {
    let Some(mounted) = Mounted::new(&["--settle-after", "0.1s"]) else { return };
    let mut held = create(&mounted.at("held open"), b"first");
    create(&mounted.at("file"), b"whole");
    for name in ["held open", "file"] {
        mounted.until_settled(name);
    }
    assert_eq!(fs::read(mounted.below("file")).unwrap(), b"whole");
    // A small file that is open stays in RAM. Its next change follows later, or on request.
    held.write_all(b" second").unwrap();
    mounted.settle();
    assert_eq!(fs::read(mounted.below("held open")).unwrap(), b"first second");
}

/// Files were created in RAM for which BACKING had no inode left: they could never be written back,
/// and the mount could never end.
// Promises: Mount 30.
#[test]
fn a_file_without_a_free_inode_on_flash_is_not_created() {
    let Some(mut mounted) = Mounted::new(&LATE[..]) else { return };
    let inodes = rustix::fs::statvfs(mounted.ext4.backing()).unwrap().f_files;
    let mut born = 0;
    let error = loop {
        match File::create(mounted.at(&format!("f{born}"))) {
            Ok(_) => born += 1,
            Err(error) => break error,
        }
        assert!(born <= inodes, "more than BACKING can hold");
    };
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    // F2FS has no fixed number of inodes: each takes a block of the free space.
    if !super::on_f2fs() {
        assert!(born > inodes - 100, "only {born} of {inodes} inodes are in use");
        let folder = fs::create_dir(mounted.at("folder"));
        assert_eq!(folder.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
        assert_eq!(rustix::fs::statvfs(mounted.ext4.mountpoint()).unwrap().f_ffree, 6);
    }
    mounted.settle();
    assert_eq!(mounted.ended().len() as u64, born);
}

/// Names of 246 bytes need blocks of directories, which the reservation did not count: 40,000 files
/// were created where 2.8 MB were free, and 31,883 of them could never be written back. The same
/// with attributes: each that does not fit into the inode takes a block.
// Promises: Mount 30.
#[test]
fn names_and_attributes_count_as_the_space_that_they_need_on_flash() {
    for attribute in [false, true] {
        let arguments = ["-N", "60000", "-m", "0"];
        let Some(ext4) = super::Ext4::made(&arguments, "") else { return };
        let space = rustix::fs::statvfs(ext4.backing()).unwrap();
        let fill = File::create(ext4.backing().join("fill")).unwrap();
        let left = 3 << 20;
        let filled = space.f_bavail * space.f_frsize - left;
        rustix::fs::fallocate(&fill, rustix::fs::FallocateFlags::empty(), 0, filled).unwrap();
        drop(fill);
        let mut mounted = Mounted::over(ext4, &LATE);
        let mut born = 0;
        let error = loop {
            let name = if attribute { format!("{born}") } else { format!("{born:0>246}") };
            let file = match File::create(mounted.at(&name)) {
                Ok(file) => file,
                Err(error) => break error,
            };
            born += 1;
            if attribute {
                let none = rustix::fs::XattrFlags::empty();
                if let Err(error) = rustix::fs::fsetxattr(&file, "user.a", &[7; 500], none) {
                    break error.into();
                }
            }
            assert!(born < 40_000, "more than BACKING can hold");
        };
        assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "attribute: {attribute}");
        assert!(born > 500, "only {born} files of {left} bytes");
        assert_eq!(mounted.try_settle(), Ok(()), "attribute: {attribute}, {born} files");
        assert_eq!(mounted.status()["files_in_ram"], 0);
        assert_eq!(mounted.ended().len(), born + 1);
    }
}

/// `statfs` shows no limit of a directory, and no quota. Files that BACKING refuses stay in RAM,
/// and programs went on to create others there: 21,000 files on an ext4 with blocks of 1 KiB,
/// without an error. Once BACKING has refused one, the program that creates a file gets the error.
// Promises: Mount 30.
#[test]
fn a_directory_that_takes_no_more_names_says_so() {
    let Some(ext4) = super::Ext4::made(&[], "max_dir_size_kb=4") else { return };
    let mut mounted = Mounted::over(ext4, &LATE);
    let name = |number: usize| format!("{number:0>246}");
    let create_it = |number| File::create(mounted.at(&name(number))).map(drop);
    (0..40).for_each(|number| create_it(number).unwrap());
    assert_eq!(mounted.try_settle(), Err(rustix::io::Errno::NOSPC));
    let failing = mounted.status()["failing_files"].as_u64().unwrap() as usize;
    let full = std::io::ErrorKind::StorageFull;
    assert_eq!(create_it(40).unwrap_err().kind(), full, "{failing} files have no name");
    let make = fs::create_dir(mounted.at(&name(40)));
    assert_eq!(make.unwrap_err().kind(), full);
    for number in 0..=failing {
        fs::remove_file(mounted.at(&name(number))).unwrap();
    }
    mounted.settle();
    create_it(0).unwrap();
    assert_eq!((mounted.status()["files_in_ram"].as_u64(), failing), (Some(1), 40 - 15));
    assert_eq!(mounted.ended().len(), 15);
}

/// Files in RAM without content were counted as nothing: half a million of them took 611 MB with a
/// budget of 16 MiB. Each takes an inode of tmpfs, which the kernel cannot take back.
// Promises: Mount 29.
#[test]
fn empty_files_count_against_the_budget() {
    let options = [&LATE[..], &["--budget", "2MiB"]].concat();
    let Some(ext4) = super::Ext4::made(&["-N", "60000"], "") else { return };
    let mut mounted = Mounted::over(ext4, &options);
    const FILES: u64 = 20_000;
    let inodes = || {
        let table = fs::read_to_string("/proc/slabinfo").unwrap();
        let line = table.lines().find(|line| line.starts_with("shmem_inode_cache ")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    let before = inodes();
    for name in 0..FILES {
        File::create(mounted.at(&name.to_string())).unwrap();
        if name % 1000 == 0 {
            let status = mounted.status();
            let bytes = |name: &str| status[name].as_u64().unwrap();
            assert!(bytes("ram_bytes") <= bytes("budget_bytes"), "{status}");
            assert!(bytes("files_in_ram") < 2 * MIB as u64 / 1000, "{status}");
        }
    }
    // Others may use tmpfs too.
    let grown = inodes().saturating_sub(before);
    assert!(grown < FILES / 2, "tmpfs has {grown} inodes more");
    // Content and files together are within the budget.
    for name in 0..1000 {
        create(&mounted.at(&format!("small {name}")), b"x");
    }
    let status = mounted.status();
    assert!(status["ram_bytes"].as_u64() <= status["budget_bytes"].as_u64(), "{status}");
    assert_eq!(mounted.ended().len() as u64, FILES + 1000);
}

/// A byte takes a block, in RAM as on flash, and was counted as a byte. With more small files in
/// RAM than flash had space for, the mount could never end.
// Promises: Mount 30.
#[test]
fn small_files_count_as_whole_blocks() {
    let Some(mut mounted) = Mounted::new(&[&LATE[..], &["--budget", "1GiB"]].concat()) else {
        return;
    };
    let mut born = 0;
    let error = loop {
        if let Err(error) = fs::write(mounted.at(&format!("f{born}")), "x") {
            break error;
        }
        born += 1;
        assert!(born < 200 * MIB / (4 * KIB), "more than BACKING can hold");
    };
    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull);
    mounted.settle();
    let found = mounted.ended();
    let whole = (0..born)
        .all(|name| matches!(&found[&format!("f{name}")], super::Node::File { bytes, .. } if bytes == b"x"));
    assert!(whole && found.len() <= born + 1, "{} of {born} files", found.len());
    assert!(
        born * 4 * KIB > 80 * MIB || super::on_f2fs(),
        "only {born} files of a block each in 128 MiB"
    );
}
