//! A mount costs nothing at the device before the first change, and little for it.

use super::{End, Ext4, FLASHSIFT, KIB, LATE, Mounted, create, directory, ours, run};
use flashsift_testbed::{loop_of, stat};
use std::{fs, path::Path};

/// Bytes written to the loop device of this file system so far.
pub(super) fn device_bytes(ext4: &Ext4) -> u64 {
    rustix::fs::syncfs(directory(&ext4.backing())).unwrap();
    stat(&loop_of(&ext4.image()).unwrap())[6] * 512
}

/// Mount, nothing, unmount and sync wrote 160 to 200 KiB: `.flashsift`, its lock, a directory in
/// it and a file for trying out what BACKING can were made and removed each time.
// Promises: Mount 83.
#[test]
fn a_mount_that_is_idle_writes_nothing() {
    let Some(ext4) = Ext4::made(&["-E", "lazy_itable_init=0,lazy_journal_init=0"], "") else {
        return;
    };
    create(&ext4.backing().join("before"), b"before");
    let mut before = device_bytes(&ext4);
    let mut since = |ext4: &Ext4| {
        let now = device_bytes(ext4);
        now - std::mem::replace(&mut before, now)
    };
    let plain = since(&ext4);
    run(FLASHSIFT, &[Path::new("mount"), &ext4.backing(), &ext4.mountpoint()]);
    fs::read_dir(ext4.mountpoint()).unwrap().count();
    let while_mounted = since(&ext4);
    run(FLASHSIFT, &[Path::new("unmount"), &ext4.mountpoint()]);
    let in_background = while_mounted + since(&ext4);
    let mut mounted = Mounted::over(ext4, &LATE);
    assert_eq!(fs::read(mounted.at("before")).unwrap(), b"before");
    mounted.status();
    let while_mounted = since(&mounted.ext4);
    assert!(mounted.end(End::Unmount).success());
    let in_foreground = while_mounted + since(&mounted.ext4);
    println!("plain ext4 {plain} bytes, in background {in_background}, foreground {in_foreground}");
    for written in [in_background, in_foreground] {
        assert!(written <= plain + 20 * KIB as u64, "{written} bytes, plain ext4 {plain}");
    }
}

/// Saves two files as editors do, twice: the older one gets another name until the new one is
/// synced.
fn save(top: &Path) {
    for round in 0..2 {
        for folder in ["", "folder"] {
            let [file, older] = ["file", "older"].map(|name| top.join(folder).join(name));
            if round == 0 {
                fs::create_dir_all(file.parent().unwrap()).unwrap();
            } else {
                fs::rename(&file, &older).unwrap();
            }
            create(&file, b"content").sync_all().unwrap();
            let _ = fs::remove_file(older);
        }
    }
}

/// The first change made `.flashsift`, with a lock file, two directories and a record in it. Their
/// inodes pushed those of applications into a second block of ext4's table, and each commit had
/// both: an editor wrote 1.085 times as much as on ext4.
// Promises: Mount 83.
#[test]
fn changes_make_no_files_of_our_own_on_ext4() {
    let options = ["-E", "lazy_itable_init=0,lazy_journal_init=0"];
    let Some(ext4) = Ext4::made(&options, "") else { return };
    let backing = ext4.backing();
    let before = device_bytes(&ext4);
    save(&backing);
    let plain = device_bytes(&ext4) - before;
    for name in ["file", "folder/file"] {
        fs::remove_file(backing.join(name)).unwrap();
    }
    fs::remove_dir(backing.join("folder")).unwrap();
    let before = device_bytes(&ext4);
    let mut mounted = Mounted::over(ext4, &LATE);
    save(&mounted.ext4.mountpoint());
    let left = ours(&backing);
    assert!(!left.contains(&backing.join(".flashsift")), "{left:?}");
    assert!(left.len() <= 1, "one directory needs a record: {left:?}");
    assert!(mounted.end(End::Unmount).success());
    assert!(ours(&backing).is_empty());
    assert_eq!(rustix::fs::listxattr(&backing, &mut [0; 1000]), Ok(0));
    let written = device_bytes(&mounted.ext4) - before;
    println!("{written} bytes, plain ext4 {plain}");
    assert!(written <= plain + 64 * KIB as u64, "{written} bytes, plain ext4 {plain}");
}
