//! Appends to files that were there before the mount, and stores to them, through the kernel.

use super::{Ext4, KIB, LATE, Mounted, Random, write_back::Mapping};
use flashsift_testbed::{O_DSYNC, loop_of, stat};
use rustix::fs::FallocateFlags;
use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

/// A mount over a directory that has this file of 10 kB.
fn over(name: &str, options: &[&str]) -> Option<Mounted> {
    let ext4 = Ext4::new()?;
    fs::write(ext4.backing().join(name), [b'0'; 10_000]).unwrap();
    Some(Mounted::over(ext4, options))
}

fn append(path: &Path) -> File {
    File::options().append(true).open(path).unwrap()
}

fn lines(line: &str) -> Vec<u8> {
    [&[b'0'; 10_000], line.as_bytes()].concat()
}

/// Where blocks have 1 KiB, each synced line wrote its page from the beginning, up to four blocks
/// instead of one: 1.3 times what ext4 writes.
// Promises: Mount 81.
#[test]
fn a_synced_line_writes_its_own_blocks() {
    let Some(ext4) = Ext4::made(&["-b", "1024"], "") else { return };
    let device = loop_of(&ext4.image()).unwrap();
    let written = |path: &Path| {
        let before = stat(&device)[6];
        let mut log = append(path);
        for _ in 0..100 {
            log.write_all(&[b'x'; 100]).unwrap();
            log.sync_data().unwrap();
        }
        stat(&device)[6] - before
    };
    for name in ["alone", "log"] {
        File::create(ext4.backing().join(name)).unwrap().sync_all().unwrap();
    }
    let alone = written(&ext4.backing().join("alone"));
    let mut mounted = Mounted::over(ext4, &LATE);
    let with = written(&mounted.at("log"));
    assert!(with <= alone * 21 / 20, "{with} sectors instead of {alone}");
    assert_eq!(fs::read(mounted.at("log")).unwrap(), [b'x'; 10_000]);
    mounted.ended();
}

/// A logger appends, another process reads and rotates. A kill loses what was not synced, and the
/// end of the mount nothing.
// Promises: Mount 6, Mount 80, Mount 81.
#[test]
fn a_log_grows_in_ram_and_what_was_synced_survives_a_kill() {
    let Some(mut mounted) = over("log", &LATE) else { return };
    let mut log = append(&mounted.at("log"));
    let below = |mounted: &Mounted| fs::read(mounted.below("log")).unwrap();
    log.write_all(b"one ").unwrap();
    assert_eq!(fs::read(mounted.at("log")).unwrap(), lines("one "));
    assert_eq!(fs::metadata(mounted.at("log")).unwrap().len(), 10_004);
    assert_eq!((below(&mounted), mounted.status()["waiting_files"].as_u64()), (lines(""), Some(1)));
    log.sync_data().unwrap();
    assert_eq!(
        (below(&mounted), mounted.status()["waiting_files"].as_u64()),
        (lines("one "), Some(0))
    );
    // Two descriptors, as of a process and its child.
    let mut other = append(&mounted.at("log"));
    log.write_all(b"two ").unwrap();
    other.write_all(b"three ").unwrap();
    assert_eq!(fs::read(mounted.at("log")).unwrap(), lines("one two three "));
    mounted.kill();
    assert_eq!(below(&mounted), lines("one "));
    drop((log, other));
    mounted.start();
    let mut log = append(&mounted.at("log"));
    log.write_all(b"four").unwrap();
    fs::rename(mounted.at("log"), mounted.at("log.1")).unwrap();
    append(&mounted.at("log.1")).write_all(b".").unwrap();
    drop(log);
    assert_eq!(fs::read(mounted.at("log.1")).unwrap(), lines("one four."));
    let seen = super::tree(&mounted.ext4.mountpoint());
    assert_eq!(mounted.ended(), seen);
    assert_eq!(fs::read(mounted.below("log.1")).unwrap(), lines("one four."));
}

/// As journald does: stores through a mapping, and a truncation to the same size after each.
// Promises: Mount 80, Mount 81.
#[test]
fn stores_to_a_journal_wait_and_reach_flash_in_time() {
    let Some(mut mounted) = over("system.journal", &LATE) else { return };
    let open = File::options().read(true).write(true).open(mounted.at("system.journal")).unwrap();
    let map = Mapping::new(&open, 2 * 4 * KIB);
    let mut wanted = lines("");
    for at in 0..2000 {
        map.store(at * 4, b'1');
        wanted[at * 4] = b'1';
        open.set_len(10_000).unwrap();
    }
    assert!(fs::read(mounted.at("system.journal")).unwrap() == wanted);
    mounted.settle();
    assert!(fs::read(mounted.below("system.journal")).unwrap() == wanted);
    map.store(1, b'2');
    wanted[1] = b'2';
    map.sync();
    assert!(fs::read(mounted.below("system.journal")).unwrap() == wanted);
    map.store(2, b'3');
    wanted[2] = b'3';
    drop((map, open));
    assert!(fs::read(mounted.at("system.journal")).unwrap() == wanted);
    mounted.ended();
    assert!(fs::read(mounted.below("system.journal")).unwrap() == wanted);
}

/// A mapping from a passthrough outlives its descriptor, and its stores go to BACKING without us:
/// pages that wait would overwrite them.
// Promises: Mount 26, Mount 82.
#[test]
fn stores_of_a_mapping_that_the_kernel_writes_itself_are_not_lost() {
    let Some(mut mounted) = over("log", &LATE) else { return };
    let open = File::options().read(true).write(true).open(mounted.at("log")).unwrap();
    let map = Mapping::new(&open, 10_000);
    drop(open);
    let mut log = append(&mounted.at("log"));
    log.write_all(b"one").unwrap();
    map.store(9_999, b'1');
    log.write_all(b" two").unwrap();
    drop(log);
    let mut wanted = lines("one two");
    wanted[9_999] = b'1';
    assert!(fs::read(mounted.at("log")).unwrap() == wanted);
    drop(map);
    mounted.ended();
    assert!(fs::read(mounted.below("log")).unwrap() == wanted);
}

/// Another program fills flash after the space was promised: the changes stay in RAM, a sync says
/// so, and they are written when there is space again.
// Promises: Mount 2, Mount 17, Mount 19, Mount 80.
#[test]
fn changes_wait_while_flash_is_full() {
    let Some(mut mounted) = over("log", &LATE) else { return };
    let mut log = append(&mounted.at("log"));
    let more = "line\n".repeat(20_000);
    log.write_all(more.as_bytes()).unwrap();
    let filler = mounted.below("filler");
    let mut full = File::create(&filler).unwrap();
    while full.write_all(&[7; 4 * KIB]).is_ok() {}
    full.sync_all().unwrap();
    assert!(mounted.try_settle().is_err());
    assert_eq!(log.sync_data().unwrap_err().kind(), std::io::ErrorKind::StorageFull);
    let status = mounted.status();
    assert_eq!((&status["waiting_files"], &status["failing_files"]), (&1.into(), &1.into()));
    assert_eq!(status["failures"][0]["path"], "/log");
    assert!(fs::read(mounted.at("log")).unwrap() == lines(&more));
    drop(full);
    fs::remove_file(filler).unwrap();
    log.sync_data().unwrap();
    assert!(fs::read(mounted.below("log")).unwrap() == lines(&more));
    log.write_all(b"end").unwrap();
    drop(log);
    assert!(mounted.end(super::End::Unmount).success());
    assert!(fs::read(mounted.below("log")).unwrap() == lines(&(more + "end")));
}

/// A file on the mount and one on ext4 are changed in the same ways, by several descriptors, and
/// are compared after each step. A kill leaves the file as it was after one step since its last
/// sync.
// Promises: Mount 6, Mount 26, Mount 81.
#[test]
fn a_file_whose_changes_wait_is_like_one_on_ext4() {
    for (name, seed) in [("log", 1), ("log", 2), ("a.journal", 3), ("a.journal", 4)] {
        let Some(mut mounted) = over(name, &LATE) else { return };
        println!("{name}, seed {seed}");
        let mut random = Random(seed);
        let native = mounted.ext4.path("backing/native");
        fs::write(&native, lines("")).unwrap();
        let mut both = Both::open(&mounted.at(name), &native);
        let mut versions = vec![lines("")];
        for step in 0..200 {
            let what = random.below(12);
            both.step(what, &mut random);
            if what == 11 {
                mounted.settle();
            }
            let [ours, theirs] = both.paths.each_ref().map(|path| fs::read(path).unwrap());
            let at = format!("{name}, seed {seed}, step {step}: {what}");
            assert!(ours == theirs, "{at}: {} and {} bytes", ours.len(), theirs.len());
            assert_eq!(fs::metadata(&both.paths[0]).unwrap().len(), theirs.len() as u64, "{at}");
            if [7, 11].contains(&what) {
                versions.clear();
            }
            versions.push(theirs);
            let below = fs::read(mounted.below(name)).unwrap();
            assert!(versions.contains(&below), "{at}: BACKING has {} bytes", below.len());
        }
        mounted.kill();
        let below = fs::read(mounted.below(name)).unwrap();
        assert!(versions.contains(&below), "{name}, seed {seed}: {} bytes", below.len());
    }
}

/// A file on the mount, and one on ext4; two descriptors of each append.
struct Both {
    paths: [PathBuf; 2],
    appending: [[File; 2]; 2],
}

impl Both {
    fn open(ours: &Path, theirs: &Path) -> Self {
        let paths = [ours, theirs].map(Path::to_owned);
        let appending = paths.each_ref().map(|path| [append(path), append(path)]);
        Self { paths, appending }
    }

    fn step(&mut self, what: usize, random: &mut Random) {
        let bytes = vec![b'a' + random.below(26) as u8; 1 + random.below(9000)];
        let (at, size) = (random.below(30_000) as u64, random.below(30_000) as u64);
        let (which, options) = (random.below(2), File::options().write(true).clone());
        for (path, appending) in self.paths.iter().zip(&mut self.appending) {
            let file = &mut appending[which];
            match what {
                0 | 1 => file.write_all(&bytes).unwrap(),
                2 => options.open(path).unwrap().write_all_at(&bytes, at).unwrap(),
                3 => file.set_len(size).unwrap(),
                4 | 5 => {
                    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                    let flags = if what == 4 { hole } else { FallocateFlags::empty() };
                    rustix::fs::fallocate(file, flags, at, 5000).unwrap();
                }
                6 => {
                    let open = File::options().read(true).write(true).open(path).unwrap();
                    open.set_len(open.metadata().unwrap().len().max(20_000)).unwrap();
                    let map = Mapping::new(&open, 20_000);
                    map.store(at as usize % 20_000, bytes[0]);
                    if which == 0 {
                        map.sync();
                    }
                }
                7 => file.sync_data().unwrap(),
                8 => *appending = [append(path), append(path)],
                9 => {
                    let bits = [0o600, 0o640][which];
                    fs::set_permissions(path, super::mode(bits)).unwrap();
                }
                10 => {
                    let sync = O_DSYNC.bits() as i32;
                    let open = options.clone().custom_flags(sync).open(path).unwrap();
                    open.write_all_at(&bytes, at).unwrap();
                }
                _ => {}
            }
        }
    }
}
