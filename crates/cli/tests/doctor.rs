//! `flashsift doctor` on a staged machine: programs of known rates on an ext4 of their own.

use crate::places::{make_image, mount_image, output, skip};
use crate::started::started;
use serde_json::Value;
use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

const FLASHSIFT: &str = env!("CARGO_BIN_EXE_flashsift");
const PAGE: u64 = 4096;
const LINES: u64 = 120;
const TRANSACTIONS: u64 = 60;
const BULK_PAGES: u64 = 2_000;
const CACHED_FILES: u64 = 40;
const CACHED_PAGES: u64 = 20;

/// Appends lines of 100 bytes, each of them synced.
const LOGGER: &str = "
import os, sys
log = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
for n in range(int(sys.argv[2])):
    os.write(log, b'x' * 99 + b'\\n')
    os.fsync(log)
";
/// Transactions of one row in a table without an index.
const APP: &str = "
import sqlite3, sys
db = sqlite3.connect(sys.argv[1])
db.execute('create table if not exists t (a)')
for n in range(int(sys.argv[2])):
    db.execute('insert into t values (?)', ('y' * 200,))
    db.commit()
";
/// A large file, written once.
const BULK: &str = "
import sys
with open(sys.argv[1], 'wb') as file:
    for n in range(int(sys.argv[2])):
        file.write(b'z' * 4096)
";
/// Files of a cache, half of which are deleted at once.
const CACHE: &str = "
import os, sys
for n in range(int(sys.argv[2])):
    for name in (f'{n}', f'{n}.deleted'):
        with open(os.path.join(sys.argv[1], name), 'wb') as file:
            file.write(b'c' * 4096 * int(sys.argv[3]))
    os.unlink(os.path.join(sys.argv[1], f'{n}.deleted'))
";

/// An ext4 on a loop device with programs to run on it.
struct Stage {
    folder: tempfile::TempDir,
    mountpoint: PathBuf,
}

impl Stage {
    fn new() -> Result<Self, String> {
        // Files in /tmp would be temporary ones.
        let folder = tempfile::tempdir_in("/var").map_err(|error| error.to_string())?;
        let image = folder.path().join("image");
        make_image(&image, 512 << 20, &["mkfs.ext4", "-q", "-F"])?;
        let mountpoint = folder.path().join("m");
        fs::create_dir(&mountpoint).unwrap();
        mount_image(&image, "ext4", "loop,noinit_itable", &mountpoint)?;
        let python = output(Command::new("realpath").arg("/usr/bin/python3"))?;
        let python = String::from_utf8(python).unwrap();
        for name in ["logger", "app", "bulk", "browser"] {
            // The kernel names a process by the file that it runs.
            std::os::unix::fs::symlink(python.trim(), folder.path().join(name)).unwrap();
        }
        for directory in ["var/log", "home/app", "data", "home/.cache/web"] {
            fs::create_dir_all(mountpoint.join(directory)).unwrap();
        }
        Ok(Self { folder, mountpoint })
    }

    fn run(&self, name: &str, script: &str, path: &str, numbers: &[u64]) {
        let mut command = Command::new(self.folder.path().join(name));
        command.args(["-c", script]).arg(self.mountpoint.join(path));
        command.args(numbers.iter().map(u64::to_string));
        output(&mut command).unwrap();
    }

    fn run_all(&self) {
        self.run("logger", LOGGER, "var/log/chatty.log", &[LINES]);
        self.run("app", APP, "home/app/data.db", &[TRANSACTIONS]);
        self.run("bulk", BULK, "data/large", &[BULK_PAGES]);
        self.run("browser", CACHE, "home/.cache/web", &[CACHED_FILES, CACHED_PAGES]);
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.mountpoint).stderr(Stdio::null()).status();
    }
}

fn instances(pid: u32) -> usize {
    let all = fs::read_dir("/sys/kernel/tracing/instances").into_iter().flatten().flatten();
    let ours = format!("flashsift-{pid}-");
    all.filter(|entry| entry.file_name().to_string_lossy().starts_with(&ours)).count()
}

/// Runs the doctor while `work` is done. Returns what it says.
fn examined(mountpoint: &Path, report: &Path, work: impl FnOnce()) -> Value {
    let mut doctor = Command::new(FLASHSIFT);
    doctor.args(["doctor", "--for", "1h", "--json", "--top", "100", "--report"]).arg(report);
    doctor.arg(mountpoint).stdout(Stdio::piped());
    let (mut child, mut stderr) = started(&mut doctor, "watching for");
    let mut stdout = child.stdout.take().unwrap();
    work();
    output(Command::new("kill").args(["-INT", &child.id().to_string()])).unwrap();
    let (mut printed, mut said) = (String::new(), String::new());
    stdout.read_to_string(&mut printed).unwrap();
    stderr.read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
    assert_eq!(instances(child.id()), 0, "a tracing instance is left");
    assert!(!said.contains("LOST"), "{said}");
    serde_json::from_str(&printed).unwrap()
}

fn near(found: &Value, expected: u64, what: &str) {
    let found = found.as_u64().unwrap();
    let error = found as f64 / expected as f64 - 1.0;
    assert!(error.abs() <= 0.05, "{what}: {found} instead of {expected}, {:+.1} %", 100.0 * error);
}

#[test]
fn writers_are_named_with_their_rates_and_remedies() {
    const NAME: &str = "writers_are_named_with_their_rates_and_remedies";
    if !rustix::process::geteuid().is_root() {
        return skip(NAME, "watching a machine needs root").unwrap_or_default();
    }
    if !Path::new("/sys/kernel/tracing/events/ext4").exists() {
        return skip(NAME, "tracefs does not show ext4's tracepoints").unwrap_or_default();
    }
    let stage = match Stage::new() {
        Ok(stage) => stage,
        Err(why) => return skip(NAME, &why).unwrap_or_default(),
    };
    let report = stage.folder.path().join("doctor.html");
    let said = examined(&stage.mountpoint, &report, || stage.run_all());

    let programs: Vec<&str> = said["writers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|writer| writer["program"].as_str().unwrap())
        .filter(|name| ["logger", "app", "bulk", "browser"].contains(name))
        .collect();
    assert_eq!(programs, ["bulk", "app", "browser", "logger"], "{}", said["writers"]);
    let writer = |name: &str| {
        let all = said["writers"].as_array().unwrap();
        all.iter().find(|writer| writer["program"] == name).unwrap().clone()
    };
    near(&writer("bulk")["reached_bytes"], BULK_PAGES * PAGE, "bulk");
    near(&writer("browser")["reached_bytes"], CACHED_FILES * CACHED_PAGES * PAGE, "browser");
    let crossing = (0..LINES).filter(|n| n * 100 / PAGE != (n * 100 + 99) / PAGE).count() as u64;
    near(&writer("logger")["reached_bytes"], (LINES + crossing) * PAGE, "logger");
    assert_eq!(writer("logger")["syncs"], LINES);
    near(&writer("logger")["files"][0]["reached_bytes"], (LINES + crossing) * PAGE, "its log");
    near(&writer("bulk")["files"][0]["reached_bytes"], BULK_PAGES * PAGE, "the large file");
    let files = writer("browser")["files"].clone();
    near(&files[0]["reached_bytes"], CACHED_PAGES * PAGE, "a cached file");
    let files = writer("logger")["files"].clone();
    assert_eq!(files[0]["name"], stage.mountpoint.join("var/log/chatty.log").to_str().unwrap());

    let remedies = said["remedies"].as_array().unwrap();
    let ids: Vec<&str> = remedies.iter().map(|remedy| remedy["id"].as_str().unwrap()).collect();
    for id in ["write-ahead-log", "caches-in-ram", "logs-in-ram"] {
        assert!(ids.contains(&id), "{id} is not among {ids:?}");
    }
    for name in ["browser", "app", "logger"] {
        assert_ne!(writer(name)["remedies"], serde_json::json!([]), "{name} has no remedy");
    }
    let page = fs::read_to_string(report).unwrap();
    for text in ["chatty.log", "journal_mode=WAL", "flash-by-program"] {
        assert!(page.contains(text), "the page does not have {text}");
    }
    let database = stage.mountpoint.join("home/app/data.db");
    let mode = output(Command::new("sqlite3").arg(&database).arg("pragma journal_mode")).unwrap();
    assert_eq!(mode, b"delete\n", "the doctor changes nothing");
}

#[test]
fn impossible_watches_are_refused() {
    let run = |words: &[&str]| {
        let output = Command::new(FLASHSIFT).arg("doctor").args(words).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (status, said) = run(&["--for", "0"]);
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("--for"), "{said}");
    let (status, said) = run(&["/no/such/path"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("/no/such/path"), "{said}");
    let (status, said) = run(&["/proc"]);
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("ext4"), "{said}");
}
