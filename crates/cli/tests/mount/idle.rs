//! A mount costs nothing at the device before the first change.

use super::{End, Ext4, FLASHSIFT, KIB, LATE, Mounted, create, directory, run, text};
use std::{fs, path::Path, process::Command};

/// Bytes written to the loop device of this file system so far.
fn device_bytes(ext4: &Ext4) -> u64 {
    rustix::fs::syncfs(directory(&ext4.backing())).unwrap();
    let mut losetup = Command::new("losetup");
    let device = losetup.args(["-n", "-O", "NAME", "-j"]).arg(ext4.image()).output().unwrap();
    let device = text(device.stdout);
    let name = Path::new(&device).file_name().unwrap();
    let counts = fs::read_to_string(Path::new("/sys/block").join(name).join("stat")).unwrap();
    counts.split_whitespace().nth(6).unwrap().parse::<u64>().unwrap() * 512
}

/// Mount, nothing, unmount and sync wrote 160 to 200 KiB: `.flashsift`, its lock, a directory in
/// it and a file for trying out what BACKING can were made and removed each time.
// Promises: Mount 83.
#[test]
fn a_mount_that_is_idle_writes_nothing() {
    let Some(ext4) = Ext4::made(
        "a_mount_that_is_idle_writes_nothing",
        &["-E", "lazy_itable_init=0,lazy_journal_init=0"],
        "",
    ) else {
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
