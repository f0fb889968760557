//! Appends to files that were there before the mount, and stores to them, through the kernel.

use super::{Ext4, KIB, LATE, Mounted, write_back::Mapping};
use std::{
    fs::{self, File},
    io::Write,
    path::Path,
};

/// A mount over a directory that has this file of 10 kB.
fn over(test: &str, name: &str, options: &[&str]) -> Option<Mounted> {
    let ext4 = Ext4::new(test)?;
    fs::write(ext4.backing().join(name), [b'0'; 10_000]).unwrap();
    Some(Mounted::over(ext4, options))
}

fn append(path: &Path) -> File {
    File::options().append(true).open(path).unwrap()
}

fn lines(line: &str) -> Vec<u8> {
    [&[b'0'; 10_000], line.as_bytes()].concat()
}

/// A logger appends, another process reads and rotates. A kill loses what was not synced, and the
/// end of the mount nothing.
// Promises: Mount 6, Mount 80, Mount 81.
#[test]
fn a_log_grows_in_ram_and_what_was_synced_survives_a_kill() {
    let test = "a_log_grows_in_ram_and_what_was_synced_survives_a_kill";
    let Some(mut mounted) = over(test, "log", &LATE) else { return };
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
    let test = "stores_to_a_journal_wait_and_reach_flash_in_time";
    let Some(mut mounted) = over(test, "system.journal", &LATE) else { return };
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
    let test = "stores_of_a_mapping_that_the_kernel_writes_itself_are_not_lost";
    let Some(mut mounted) = over(test, "log", &LATE) else { return };
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
