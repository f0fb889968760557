//! Files whose syncs are delayed, through the kernel.

use super::{Ext4, KIB, MIB, Mounted, PATIENCE, bytes, create, idle::device_bytes};
use rustix::fs::FallocateFlags;
use serde_json::Value;
use std::{
    fs::{self, File},
    io::{ErrorKind, Write},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    thread,
    time::Instant,
};

const HOUR: [&str; 2] = ["--delay-sync", "*.db=1h"];

fn delayed(mounted: &Mounted) -> Value {
    mounted.status()["delayed"].clone()
}

/// A lack of RAM ends the epoch early, before its hour is over: the files of a group may be larger
/// than RAM, and nothing of them is lost.
// Promises: Mount 74.
#[test]
fn a_lack_of_ram_ends_the_epoch() {
    let options = [&HOUR[..], &["--budget", "2MiB"]].concat();
    let Some(mut mounted) = Mounted::new(&options) else { return };
    let mut whole = vec![0; 8 * MIB];
    let mut file = create(&mounted.at("a.db"), b"");
    file.write_all(&whole).unwrap();
    for round in 0..40_u64 {
        let part = bytes(round, 64 * KIB);
        // Here and there, and again.
        let at = (round * 7919 * 4096) as usize % (whole.len() - part.len());
        file.write_all_at(&part, at as u64).unwrap();
        file.sync_all().unwrap();
        whole[at..at + part.len()].copy_from_slice(&part);
    }
    assert!(fs::read(mounted.at("a.db")).unwrap() == whole);
    assert!(delayed(&mounted)["epochs"].as_u64() > Some(0), "{}", delayed(&mounted));
    drop(file);
    let expected = super::tree(&mounted.ext4.mountpoint());
    assert_eq!(mounted.ended(), expected);
}

/// `flashsift-sleep` runs `settle` before the machine sleeps: everything is on flash, in its place.
// Promises: Mount 74.
#[test]
fn settle_ends_the_epoch() {
    let Some(mounted) = Mounted::new(&HOUR) else { return };
    fs::write(mounted.below("old.db"), vec![1; 100 * KIB]).unwrap();
    let old = File::options().write(true).open(mounted.at("old.db")).unwrap();
    old.write_all_at(b"changed", 50_000).unwrap();
    old.sync_all().unwrap();
    create(&mounted.at("new.db"), b"new").sync_all().unwrap();
    assert!(!mounted.below("new.db").exists());
    assert_eq!(delayed(&mounted)["files"], 2);
    mounted.settle();
    assert_eq!(delayed(&mounted)["files"], 0);
    assert_eq!(fs::read(mounted.below("new.db")).unwrap(), b"new");
    assert_eq!(fs::read(mounted.below("old.db")).unwrap()[50_000..50_007], *b"changed");
}

/// Another program fills flash up, and the epoch cannot be written: `status` says so, and from then
/// on a sync fails, as it would without the mount. Nothing is lost, and when flash has space again,
/// syncs succeed.
// Promises: Mount 75.
#[test]
fn syncs_fail_while_flash_is_full() {
    let Some(mut mounted) = Mounted::new(&HOUR) else { return };
    let content = bytes(1, 2 * MIB);
    let file = create(&mounted.at("a.db"), &content);
    file.sync_all().unwrap();
    let filler = mounted.below("filler");
    let mut full = File::create(&filler).unwrap();
    while full.write_all(&[7; 64 * KIB]).is_ok() {}
    full.sync_all().unwrap();
    assert!(mounted.try_settle().is_err());
    let status = delayed(&mounted);
    assert!(status["failing"] != "" && status["files"] == 1, "{status}");
    // The words of the daemon arrive when its pipe is read.
    let begun = Instant::now();
    while !mounted.messages().contains("cannot be written") {
        assert!(begun.elapsed() < PATIENCE, "{}", mounted.messages());
        thread::yield_now();
    }
    assert_eq!(file.sync_all().unwrap_err().kind(), ErrorKind::StorageFull);
    assert!(fs::read(mounted.at("a.db")).unwrap() == content);
    fs::remove_file(filler).unwrap();
    drop(full);
    file.sync_all().unwrap();
    assert_eq!(delayed(&mounted)["failing"], "");
    drop(file);
    mounted.ended();
    assert!(fs::read(mounted.below("a.db")).unwrap() == content);
}

/// A card with few inodes left took as many files of a group as it had inodes. Their epoch had none
/// for its log: no sync succeeded any more, and the mount could not end.
// Promises: Mount 30, Mount 75.
#[test]
fn an_epoch_has_inodes_for_itself() {
    let Some(ext4) = Ext4::made(&["-N", "64"], "") else { return };
    let mut mounted = Mounted::over(ext4, &HOUR);
    let create = |number: usize| {
        let file = File::create(mounted.at(&format!("{number}.db")))?;
        file.sync_all().map(drop)
    };
    let made = (0..1000).find(|number| create(*number).is_err()).unwrap();
    assert!(made > 20, "{made} files");
    mounted.settle();
    assert_eq!(mounted.ended().len(), made);
}

/// On full flash, a deletion waited for the end of its epoch, which had no space for its entry. The
/// deleted files took their space for good, and the mount could not end. Where the entry had space,
/// a write failed although they were to free some.
// Promises: Mount 75.
#[test]
fn a_deletion_makes_space_on_full_flash() {
    for leaves in [0, 256 * KIB as u64] {
        let Some(mut mounted) = Mounted::new(&HOUR) else { return };
        let filler = mounted.below("filler");
        fs::write(mounted.below("big.db"), bytes(1, 4 * MIB)).unwrap();
        fs::write(mounted.below("name.db"), b"old").unwrap();
        let mut full = File::create(&filler).unwrap();
        while full.write_all(&[7; 4 * KIB]).is_ok() {}
        let len = full.metadata().unwrap().len();
        full.set_len(len - leaves).unwrap();
        full.sync_all().unwrap();
        drop(full);
        for name in ["big.db", "name.db"] {
            fs::remove_file(mounted.at(name)).unwrap();
        }
        // Files with setuid have no part in epochs.
        let name = mounted.at("name.db");
        File::options().create_new(true).write(true).mode(0o4755).open(name).unwrap();
        let content = bytes(2, 2 * MIB);
        create(&mounted.at("new.db"), &content).sync_all().unwrap();
        mounted.ended();
        assert!(fs::read(mounted.below("new.db")).unwrap() == content);
        assert!(!mounted.below("big.db").exists());
    }
}

/// Leaves so many bytes of the flash.
fn fill(mounted: &Mounted, leaves: usize) {
    let mut full = File::create(mounted.below("filler")).unwrap();
    while full.write_all(&[7; 64 * KIB]).is_ok() {}
    let len = full.metadata().unwrap().len();
    full.set_len(len - leaves as u64).unwrap();
    full.sync_all().unwrap();
}

/// A file of which most was overwritten was to be written anew, for which flash had no space: no
/// epoch reached flash any more, and the mount could not end. Its changes have space in the log.
// Promises: Mount 30, Mount 75.
#[test]
fn changes_are_logged_where_a_new_file_has_no_space() {
    let Some(ext4) = Ext4::made(&["-m", "0"], "") else { return };
    let mut mounted = Mounted::over(ext4, &HOUR);
    let mut content = bytes(1, 8 * MIB);
    fs::write(mounted.below("old.db"), &content).unwrap();
    fill(&mounted, 7 * MIB);
    let new = bytes(2, 6 * MIB);
    content[..6 * MIB].copy_from_slice(&new);
    let file = File::options().write(true).open(mounted.at("old.db")).unwrap();
    file.write_all_at(&new, 0).unwrap();
    file.sync_all().unwrap();
    drop(file);
    mounted.settle();
    assert!(fs::read(mounted.below("old.db")).unwrap() == content);
    mounted.ended();
    assert!(fs::read(mounted.below("old.db")).unwrap() == content);
}

/// The space of a hole in an older file, or of one that another replaces, was free once the epoch
/// had ended for another reason.
// Promises: Mount 75.
#[test]
fn a_hole_or_a_replacement_makes_space_on_full_flash() {
    for replaces in [false, true] {
        let Some(ext4) = Ext4::made(&["-m", "0"], "") else { return };
        let mut mounted = Mounted::over(ext4, &HOUR);
        fs::write(mounted.below("old.db"), bytes(1, 8 * MIB)).unwrap();
        fill(&mounted, MIB);
        let old = mounted.at("old.db");
        if replaces {
            create(&mounted.at("other.db"), b"small").sync_all().unwrap();
            fs::rename(mounted.at("other.db"), old).unwrap();
        } else {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let old = File::options().write(true).open(old).unwrap();
            rustix::fs::fallocate(&old, hole, 0, 8 * MIB as u64).unwrap();
        }
        let content = bytes(2, 6 * MIB);
        create(&mounted.at("new.db"), &content).sync_all().unwrap();
        mounted.ended();
        assert!(fs::read(mounted.below("new.db")).unwrap() == content);
    }
}

/// A card without an inode for the log took changes of older files, which then had no way to flash,
/// not even by a deletion. There, they are as outside of a group.
// Promises: Mount 30, Mount 78.
#[test]
fn without_an_inode_for_the_log_no_sync_is_delayed() {
    for free in 0..3 {
        let Some(ext4) = Ext4::made(&["-N", "64"], "") else { return };
        let mut mounted = Mounted::over(ext4, &HOUR);
        for name in ["changed.db", "renamed.db", "deleted.db"] {
            fs::write(mounted.below(name), bytes(1, 100 * KIB)).unwrap();
        }
        fs::create_dir(mounted.below("many")).unwrap();
        let many = |number| mounted.below(&format!("many/{number}"));
        let made = (0..).find(|number| File::create(many(*number)).is_err()).unwrap();
        (made - free..made).for_each(|number| fs::remove_file(many(number)).unwrap());
        let file = File::options().write(true).open(mounted.at("changed.db")).unwrap();
        file.write_all_at(b"new", 0).unwrap();
        file.sync_all().unwrap();
        assert_eq!(fs::read(mounted.below("changed.db")).unwrap()[..3], *b"new");
        drop(file);
        fs::rename(mounted.at("renamed.db"), mounted.at("new.db")).unwrap();
        fs::remove_file(mounted.at("deleted.db")).unwrap();
        mounted.ended();
        assert!(mounted.below("new.db").exists() && !mounted.below("deleted.db").exists());
    }
}

/// Space that a program reserved in an older file was not reserved on flash: another program could
/// take it. A zeroed range, which keeps its space, was written as zeros, to the log and in place.
// Promises: Mount 30, Mount 76.
#[test]
fn an_older_file_has_the_space_that_a_program_reserves() {
    let Some(ext4) = Ext4::made(&["-E", "lazy_itable_init=0,lazy_journal_init=0"], "") else {
        return;
    };
    for name in ["grows.db", "keeps.db"] {
        fs::write(ext4.backing().join(name), b"hello").unwrap();
    }
    fs::write(ext4.backing().join("zeros.db"), bytes(1, 8 * MIB)).unwrap();
    rustix::fs::syncfs(File::open(ext4.backing()).unwrap()).unwrap();
    let mut mounted = Mounted::over(ext4, &HOUR);
    let before = device_bytes(&mounted.ext4);
    let zeroes = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
    let all = [
        ("grows.db", FallocateFlags::empty()),
        ("keeps.db", FallocateFlags::KEEP_SIZE),
        ("zeros.db", zeroes),
    ];
    let blocks = |mounted: &Mounted, name| fs::metadata(mounted.below(name)).unwrap().blocks();
    let files = all.map(|(name, flags)| {
        let file = File::options().write(true).open(mounted.at(name)).unwrap();
        rustix::fs::fallocate(&file, flags, 0, 8 * MIB as u64).unwrap();
        file.sync_all().unwrap();
        assert!(blocks(&mounted, name) >= 8 * MIB as u64 / 512, "{name}");
        file
    });
    mounted.settle();
    drop(files);
    mounted.ended();
    let written = device_bytes(&mounted.ext4) - before;
    assert!(written < MIB as u64, "{written} bytes");
    for (name, _) in all {
        assert!(blocks(&mounted, name) >= 8 * MIB as u64 / 512, "{name}");
    }
    assert!(fs::read(mounted.below("zeros.db")).unwrap() == vec![0; 8 * MIB]);
}

/// tmpfs has no `FALLOC_FL_ZERO_RANGE`, and a file of a group has no other place.
// Promises: Mount 74.
#[test]
fn ranges_of_files_of_a_group_become_zeros() {
    let Some(mut mounted) = Mounted::new(&HOUR) else { return };
    fs::write(mounted.below("old.db"), bytes(1, 64 * KIB)).unwrap();
    create(&mounted.at("new.db"), &bytes(1, 64 * KIB));
    let mut expected = bytes(1, 64 * KIB);
    expected[8 * KIB + 100..24 * KIB].fill(0);
    let (zero, keep) = (FallocateFlags::ZERO_RANGE, FallocateFlags::KEEP_SIZE);
    for name in ["old.db", "new.db"] {
        let file = File::options().write(true).open(mounted.at(name)).unwrap();
        let (at, len) = (8 * KIB as u64 + 100, 16 * KIB as u64 - 100);
        rustix::fs::fallocate(&file, zero | keep, at, len).unwrap();
        assert!(fs::read(mounted.at(name)).unwrap() == expected, "{name}");
        rustix::fs::fallocate(&file, zero, 60 * KIB as u64, 8 * KIB as u64).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 68 * KIB as u64);
    }
    expected.resize(68 * KIB, 0);
    expected[60 * KIB..].fill(0);
    mounted.ended();
    for name in ["old.db", "new.db"] {
        assert!(fs::read(mounted.below(name)).unwrap() == expected, "{name}");
    }
}

/// A download into reserved blocks went to the log, and then to its place: 1.75 times what ext4
/// writes.
// Promises: Mount 76.
#[test]
fn a_download_reaches_flash_once() {
    const PARTS: usize = 64;
    const PART: usize = 128 * KIB;
    let options = ["-E", "lazy_itable_init=0,lazy_journal_init=0"];
    let Some(ext4) = Ext4::made(&options, "") else { return };
    let before = device_bytes(&ext4);
    let mut mounted = Mounted::over(ext4, &HOUR);
    let file = create(&mounted.at("a.db"), b"");
    let len = PARTS * PART;
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, len as u64).unwrap();
    let mut whole = vec![0; len];
    for part in 0..PARTS {
        let (at, content) = (part * 7 % PARTS * PART, bytes(part as u64, PART));
        file.write_all_at(&content, at as u64).unwrap();
        file.sync_all().unwrap();
        whole[at..at + PART].copy_from_slice(&content);
        if part % 16 == 15 {
            mounted.settle();
        }
    }
    drop(file);
    mounted.ended();
    assert!(fs::read(mounted.below("a.db")).unwrap() == whole);
    let written = device_bytes(&mounted.ext4) - before;
    println!("{written} bytes for {len}");
    assert!(written <= (len + len / 4) as u64, "{written} bytes for {len}");
}
