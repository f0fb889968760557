//! Beds are taken down, however a test ends. As root; otherwise the tests are skipped.

use flashsift_testbed::{Disk, FileSystem, is_mounted, loop_of, or_skip, until};
use std::{
    env,
    io::{BufRead, BufReader, Read, stdin},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const EXT4: FileSystem = FileSystem::new("ext4", 16 << 20);
/// The process that has it waits to be ended.
const WAITS: &str = "FLASHSIFT_TESTBED_WAITS";

/// Asserts that nothing is left of a mounted disk.
fn assert_gone(point: &Path, device: &str) {
    assert!(!is_mounted(point), "{}", point.display());
    let file = Path::new("/sys/block").join(device).join("loop/backing_file");
    until("the loop device is detached", || !file.exists()).unwrap();
}

#[test]
fn a_disk_is_there_until_it_is_dropped_or_its_test_panics() {
    let Some(disk) = or_skip(Disk::mounted(&EXT4, "noatime")) else { return };
    let (point, device) = (disk.point(), disk.device().name().to_owned());
    assert_eq!(loop_of(&disk.path("image")).as_ref(), Some(&device));
    assert!(is_mounted(&point) && disk.device().stat()[6] > 0);
    // In use, it is gone from its place all the same.
    let held = std::fs::File::create(point.join("held")).unwrap();
    drop(disk);
    assert!(!is_mounted(&point) && !point.exists());
    drop(held);
    assert_gone(&point, &device);

    let mut place = None;
    let test = AssertUnwindSafe(|| {
        let disk = Disk::mounted(&EXT4, "noatime").unwrap();
        place = Some((disk.point(), disk.device().name().to_owned()));
        panic!("as a test fails");
    });
    assert!(catch_unwind(test).is_err());
    let (point, device) = place.unwrap();
    assert_gone(&point, &device);
}

/// Ctrl-C left mounts and loop devices of tests that `cargo test` ran.
#[test]
fn a_signal_takes_down_what_is_mounted() {
    if env::var_os(WAITS).is_some() {
        let disk = Disk::mounted(&EXT4, "noatime").unwrap();
        eprintln!("\nready {} {}", disk.point().display(), disk.device().name());
        stdin().read_to_end(&mut Vec::new()).unwrap();
        return;
    }
    if or_skip(Disk::new(&EXT4)).is_none() {
        return;
    }
    for signal in ["-INT", "-TERM"] {
        let mut test = Command::new(env::current_exe().unwrap());
        test.args(["--exact", "a_signal_takes_down_what_is_mounted", "--nocapture"]);
        test.env(WAITS, "1").stdin(Stdio::piped()).stdout(Stdio::null());
        let mut test = test.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(test.stderr.take().unwrap()).lines().map_while(Result::ok);
        let line = lines.find(|line| line.starts_with("ready ")).unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let point = PathBuf::from(words[1]);
        assert!(is_mounted(&point));
        let kill = Command::new("kill").args([signal, &test.id().to_string()]).status();
        assert!(kill.unwrap().success());
        assert_eq!(test.wait().unwrap().code(), None, "ended by the signal");
        assert_gone(&point, words[2]);
        std::fs::remove_dir_all(point.parent().unwrap()).unwrap();
    }
}
