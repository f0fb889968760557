//! `flashsift prove` on file systems in memory, as root: a planted effect, the noise, and what a
//! killed process leaves.

use flashsift_testbed::skip;
use serde_json::Value;
use std::{
    fmt::Write as _,
    fs,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

const FLASHSIFT: &str = env!("CARGO_BIN_EXE_flashsift");
const NOBODY: u32 = 65534;
/// The longest wait for other proofs.
const LONGEST: Duration = Duration::from_secs(300);

/// Writes a trace of synced writes: `count` of them, one each `step_ms`.
fn trace(folder: &Path, count: u32, step_ms: u32) -> PathBuf {
    let path = folder.join("synced.strace");
    let mut text = String::new();
    for n in 0..count {
        let at = n * step_ms;
        let mut line = |plus_us: u32, call: &str| {
            let us = u64::from(at) * 1000 + u64::from(plus_us);
            let (s, us) = (1_795_169_000 + us / 1_000_000, us % 1_000_000);
            writeln!(text, "100 {s}.{us:06} {call}").unwrap();
        };
        let file = format!("/data/f{}", n % 7);
        // Models take a file that may have been there for one that was.
        let new = if n < 7 { "|O_EXCL" } else { "" };
        let flags = format!("O_RDWR|O_CREAT{new}, 0600");
        line(0, &format!("openat(AT_FDCWD, \"{file}\", {flags}) = 3<{file}>"));
        line(1, &format!("pwrite64(3<{file}>, \"\"..., 65536, {}) = 65536", n / 7 * 65536));
        line(2, &format!("fsync(3<{file}>) = 0"));
        line(3, &format!("close(3<{file}>) = 0"));
    }
    fs::write(&path, text).unwrap();
    path
}

fn prove(trace: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(FLASHSIFT);
    command.arg("prove").arg(trace).args(arguments);
    command
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a proof. Another one may hold a setting of the machine for a moment. `None`, with a line on
/// standard output, if it does for long.
fn ended(command: impl Fn() -> Command) -> Option<Output> {
    let begun = Instant::now();
    while begun.elapsed() < LONGEST {
        let output = command().output().unwrap();
        if !printed(&output).contains("another twin runs") {
            return Some(output);
        }
        thread::sleep(Duration::from_millis(100));
    }
    skip("another proof runs")
}

/// Whether twins are possible here; prints a line if not.
fn possible() -> bool {
    rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists()
        || skip("it needs root and loop devices")
}

/// `data=journal` writes all data twice. An equal arm shows no such difference.
// Promises: Prove 3.
#[test]
fn a_planted_effect_is_seen_and_equal_arms_do_not_differ() {
    if !possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path(), 150, 200);
    let settings = "ext4,ext4:data=journal:nodelalloc";
    let options = ["--setting", settings, "--speed", "10", "--window", "200ms", "--json"];
    let Some(output) = ended(|| prove(&trace, &options)) else { return };
    assert!(output.status.success(), "{}", printed(&output));
    let arms: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let number = |arm: usize, key: &str| arms[arm][key].as_f64().unwrap();
    assert_eq!((&arms[0]["setting"], &arms[1]["again"]), (&"ext4".into(), &true.into()));
    assert!(arms.iter().all(|arm| arm["refused"] == 0), "{arms:?}");
    // 150 writes of 64 KiB, each with a commit and its flushes.
    assert!(
        number(0, "written_bytes") > 150.0 * 65536.0 && number(0, "flushes") > 140.0,
        "{arms:?}"
    );
    assert!((number(1, "ratio") - 1.0).abs() < 0.05, "{arms:?}");
    let (ratio, half) = (number(2, "ratio"), number(2, "half_width"));
    assert!(ratio > 1.5 && ratio - half > 1.0 && ratio < 2.5, "{arms:?}");
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < LONGEST, "{what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Loop devices of a process, below /sys/block.
fn loops(pid: u32) -> Vec<PathBuf> {
    let name = format!("flashsift-twin-{pid} ");
    let backing = |device: &Path| fs::read_to_string(device.join("loop/backing_file"));
    let devices = fs::read_dir("/sys/block").unwrap().map(|entry| entry.unwrap().path());
    devices.filter(|device| backing(device).is_ok_and(|file| file.contains(&name))).collect()
}

/// The share of dirty pages that the kernel keeps for a device, in percent.
fn share(device: &Path) -> String {
    fs::read_to_string(device.join("bdi/min_ratio")).unwrap()
}

// Promises: Prove 2.
#[test]
fn a_killed_proof_leaves_no_device_and_no_setting() {
    const SETTING: &str = "/proc/sys/fs/xfs/xfssyncd_centisecs";
    if !possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path(), 1000, 100);
    let read = || fs::read_to_string(SETTING).ok();
    let before = read();
    // Without XFS, only the devices are looked at.
    let setting = if before.is_some() { "ext4:xfssyncd=37s" } else { "ext4" };
    let begun = Instant::now();
    let mut child = loop {
        let mut child = prove(&trace, &["--setting", setting, "--quiet"]).spawn().unwrap();
        let mut ended = false;
        wait_until("two devices", || {
            ended = child.try_wait().unwrap().is_some();
            ended || loops(child.id()).len() == 2
        });
        if !ended {
            break child;
        }
        // Another proof runs, perhaps that of the other test.
        if begun.elapsed() > LONGEST {
            return skip("another proof runs");
        }
        thread::sleep(Duration::from_millis(100));
    };
    assert!(before.is_none() || read().as_deref() == Some("3700\n"), "{before:?}");
    let devices = loops(child.id());
    wait_until("a share of dirty pages", || devices.iter().all(|device| share(device) != "0\n"));
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("a device is left", || loops(child.id()).is_empty());
    wait_until("a share is left", || devices.iter().all(|device| share(device) == "0\n"));
    wait_until("the setting is left", || read() == before);
}

#[test]
fn a_proof_that_is_not_possible_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path(), 3, 1);
    let refused = |user: Option<u32>, setting: &[&str], code, words: &str| {
        let command = || {
            let mut command = prove(&trace, &[&["--setting"], setting].concat());
            if let Some(user) = user {
                command.uid(user).gid(user).current_dir("/");
            }
            command
        };
        let Some(output) = ended(command) else { return };
        let says = printed(&output);
        assert_eq!(output.status.code(), Some(code), "{says}");
        assert!(says.contains(words), "{says}");
    };
    refused(None, &["ntfs"], 2, "ext4, xfs, btrfs");
    refused(None, &["ext4:expire=soon"], 2, "is not a time");
    if !possible() {
        return;
    }
    refused(None, &["ext4:no_such_word"], 1, "no_such_word");
    refused(None, &["ext4", "--size", "16K"], 1, "mkfs.ext4");
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    refused(Some(NOBODY), &["ext4"], 1, "needs root");
}

/// The model of each file system writes as many bytes as the kernel does, within 8 %, for files
/// that are written and synced one after another. XFS has its log in 4 KiB, btrfs two nodes and a
/// superblock, ext4 three pages of journal and more.
// Promises: Metadata 4, Metadata 7, Metadata 8.
#[test]
fn models_of_file_systems_write_what_the_kernel_writes() {
    if !possible() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path(), 120, 20);
    let settings = "ext4,xfs:sectors=4k,btrfs";
    let proof = || prove(&trace, &["--json", "--window", "1s", "--setting", settings]);
    let Some(output) = ended(proof) else { return };
    assert!(output.status.success(), "{}", printed(&output));
    let arms = String::from_utf8(output.stdout).unwrap();
    let arms: Vec<Value> = arms.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (setting, model) in [("ext4", "ext4"), ("xfs:sectors=4k", "xfs"), ("btrfs", "btrfs")] {
        let arm = arms.iter().find(|arm| arm["setting"] == setting).unwrap();
        let measured = arm["written_bytes"].as_f64().unwrap();
        let output = Command::new(FLASHSIFT)
            .arg("compare")
            .arg(&trace)
            .args(["--policy", "lru", "--memory", "1GiB", "--drain", "--json", "--metadata", model])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", printed(&output));
        let cell: Value = serde_json::from_slice(&output.stdout).unwrap();
        let fields = ["device_writes", "journal_writes", "metadata_writes"];
        let pages: f64 = fields.iter().map(|field| cell[*field].as_f64().unwrap()).sum();
        let ratio = pages * 4096.0 / measured;
        println!("{setting}: {measured} bytes are counted, {ratio:.3} of them are modelled");
        assert!((ratio - 1.0).abs() < 0.08, "{setting}: {ratio}");
    }
}
