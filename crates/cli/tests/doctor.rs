//! `flashsift doctor` on a staged machine: programs of known rates on an ext4 of their own.

use flashsift_testbed::{
    Disk, FileSystem, is_root, or_skip, output, skip, started, unmount_lazily,
};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, kill_process, pidfd_open, waitid},
};
use serde_json::Value;
use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
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

/// Writes the second argument and a zero byte into the file, adds to it, and syncs it 61 times.
/// Then it says so, and waits. With `WAIT` in its environment it first does both.
const SYNCER: &str = "
import os, sys
if 'WAIT' in os.environ:
    print('waits', flush=True)
    sys.stdin.readline()
file = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT, 0o644)
os.write(file, sys.argv[2].encode() + b'\\0')
os.fsync(file)
for n in range(60):
    os.pwrite(file, b'x' * 512, 512 * (n + 1))
    os.fsync(file)
print('done', flush=True)
sys.stdin.read()
";
/// The same without the C library's file.
const STATIC_SYNCER: &str = "
#include <fcntl.h>
#include <unistd.h>
int main(int count, char **words) {
    int file = open(words[1], O_WRONLY | O_CREAT, 0644);
    for (int n = 0; n < 60; n++) {
        pwrite(file, \"text\", 4, 512 * n);
        fsync(file);
    }
    write(1, \"done\\n\", 5);
    char end;
    return read(0, &end, 1);
}
";
/// A program that is on one file system, works there and has a file open there. It writes to
/// another one at each line of its standard input.
const BYSTANDER: &str = "
import os, sys
os.chdir(sys.argv[1])
held = open('held')
print('ready', flush=True)
file = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT, 0o644)
for line in sys.stdin:
    for n in range(60):
        os.pwrite(file, b'x' * 512, 512 * n)
        os.fsync(file)
    print('done', flush=True)
";

/// A program that goes on until it is dropped, however it waits.
struct Running {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Running {
    /// Starts a program and waits for its first line.
    fn new(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut running = Self { child, stdout };
        running.line();
        running
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.stdout.read_line(&mut line).unwrap() > 0, "it ended");
        line
    }

    /// Tells the program to go on, and waits for its next line.
    fn tell(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
        self.line();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An ext4 on a loop device with programs to run on it.
struct Stage {
    disk: Disk,
    mountpoint: PathBuf,
}

impl Stage {
    /// `None`, with the reason printed, where it cannot be watched.
    fn of_test(folder: &str) -> Option<Self> {
        if !is_root("watching a machine") {
            return None;
        }
        if !Path::new("/sys/kernel/tracing/events/ext4").exists() {
            return skip("tracefs does not show ext4's tracepoints");
        }
        or_skip(Self::new(folder))
    }

    fn new(folder: &str) -> Result<Self, String> {
        let mut disk = Disk::below(Path::new(folder), &FileSystem::new("ext4", 512 << 20))?;
        disk.mount("ext4", "noinit_itable")?;
        let python = output(Command::new("realpath").arg("/usr/bin/python3"))?;
        for name in ["logger", "app", "bulk", "browser", "mariadbd", "keeper"] {
            // The kernel names a process by the file that it runs.
            std::os::unix::fs::symlink(python.trim(), disk.path(name)).unwrap();
        }
        let mountpoint = disk.point();
        for directory in ["var/log", "home/app", "data", "home/.cache/web"] {
            fs::create_dir_all(mountpoint.join(directory)).unwrap();
        }
        Ok(Self { disk, mountpoint })
    }

    fn run(&self, name: &str, script: &str, path: &str, numbers: &[u64]) {
        let mut command = Command::new(self.disk.path(name));
        command.args(["-c", script]).arg(self.mountpoint.join(path));
        command.args(numbers.iter().map(u64::to_string));
        output(&mut command).unwrap();
    }

    /// Starts a program that writes such a file and syncs it.
    fn syncs(&self, name: &str, path: &str, head: &str) -> Running {
        let mut command = Command::new(self.disk.path(name));
        let file = self.mountpoint.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        Running::new(command.args(["-c", SYNCER]).arg(file).arg(head))
    }

    /// Bytes that its device has written, after all that waits was written.
    fn written_bytes(&self) -> u64 {
        output(Command::new("sync").arg("-f").arg(&self.mountpoint)).unwrap();
        self.disk.device().stat()[6] * 512
    }

    fn run_all(&self) {
        self.run("logger", LOGGER, "var/log/chatty.log", &[LINES]);
        self.run("app", APP, "home/app/data.db", &[TRANSACTIONS]);
        self.run("bulk", BULK, "data/large", &[BULK_PAGES]);
        self.run("browser", CACHE, "home/.cache/web", &[CACHED_FILES, CACHED_PAGES]);
    }
}

fn instances(pid: u32) -> usize {
    let all = fs::read_dir("/sys/kernel/tracing/instances").into_iter().flatten().flatten();
    let ours = format!("flashsift-{pid}-");
    all.filter(|entry| entry.file_name().to_string_lossy().starts_with(&ours)).count()
}

/// Where the report is kept beside the page.
fn kept(report: &Path) -> PathBuf {
    report.with_extension("json")
}

/// Runs the doctor while `work` is done. Returns what it says.
fn examined(mountpoint: &Path, report: &Path, work: impl FnOnce()) -> Value {
    examined_beside(mountpoint, report, work).0
}

/// The same; what `work` returns lives until the doctor has ended.
fn examined_beside<T>(mountpoint: &Path, report: &Path, work: impl FnOnce() -> T) -> (Value, T) {
    let mut doctor = Command::new(FLASHSIFT);
    doctor.args(["doctor", "--for", "1h", "--json", "--top", "100", "--report"]).arg(report);
    doctor.arg("--last-report").arg(kept(report)).arg("--metrics");
    doctor.arg(report.with_extension("prom")).args(["--device", "emmc-5.1", "--years", "7"]);
    doctor.arg(mountpoint).stdout(Stdio::piped());
    let (mut child, mut stderr) = started(&mut doctor, "watching for");
    let mut stdout = child.stdout.take().unwrap();
    let beside = work();
    output(Command::new("kill").args(["-INT", &child.id().to_string()])).unwrap();
    let (mut printed, mut said) = (String::new(), String::new());
    stdout.read_to_string(&mut printed).unwrap();
    stderr.read_to_string(&mut said).unwrap();
    assert!(child.wait().unwrap().success(), "{said}");
    assert_eq!(instances(child.id()), 0, "a tracing instance is left");
    assert!(!said.contains("LOST"), "{said}");
    (serde_json::from_str(&printed).unwrap(), beside)
}

/// Titles of the remedies.
fn titles(said: &Value) -> Vec<&str> {
    let remedies = said["remedies"].as_array().unwrap().iter();
    remedies.map(|remedy| remedy["title"].as_str().unwrap()).collect()
}

fn near(found: &Value, expected: u64, what: &str) {
    let found = found.as_u64().unwrap();
    let error = found as f64 / expected as f64 - 1.0;
    assert!(error.abs() <= 0.05, "{what}: {found} instead of {expected}, {:+.1} %", 100.0 * error);
}

// Promises: Doctor 1, Doctor 2.
#[test]
fn writers_are_named_with_their_rates_and_remedies() {
    // Files in /tmp would be temporary ones.
    let Some(stage) = Stage::of_test("/var") else { return };
    let report = stage.disk.path("doctor.html");
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
    assert_eq!(mode, "delete\n", "the doctor changes nothing");
}

/// `eatmydata mariadbd` was proposed at the price of 30 s of data, and `eatmydata` for programs on
/// which it has no effect.
// Promises: Doctor 7.
#[test]
fn no_database_and_no_static_program_is_run_without_syncs() {
    let Some(stage) = Stage::of_test("/var") else { return };
    let source = stage.disk.path("static.c");
    let program = stage.disk.path("static");
    fs::write(&source, STATIC_SYNCER).unwrap();
    let mut cc = Command::new("cc");
    if or_skip(output(cc.arg("-static").arg(&source).arg("-o").arg(&program))).is_none() {
        return;
    }
    let report = stage.disk.path("doctor.html");
    let (said, programs) = examined_beside(&stage.mountpoint, &report, || {
        let mut compiled = Command::new(&program);
        [
            stage.syncs("logger", "spool/queue", "text"),
            stage.syncs("mariadbd", "mysql/ib_logfile0", "text"),
            // Neither its name nor that of its file is one of a database.
            stage.syncs("keeper", "keeper/state", "SQLite format 3"),
            Running::new(compiled.arg(stage.mountpoint.join("spool/static"))),
        ]
    });
    drop(programs);
    let found = titles(&said);
    let unsynced = |name: &str| found.contains(&&*format!("Run {name} without its syncs"));
    assert!(unsynced("logger"), "{found:?}");
    for name in ["mariadbd", "keeper", "static"] {
        let wrote = said["writers"].as_array().unwrap().iter();
        assert!(wrote.into_iter().any(|writer| writer["program"] == name), "{name} was not seen");
        assert!(!unsynced(name), "{name}: {found:?}");
    }
}

/// After memory was mounted over /var/log, nginx did not start: its directory was gone. The
/// commands keep the directories with their owners and modes, and undoing brings the files back.
// Promises: Doctor 8.
#[test]
fn memory_over_logs_and_caches_keeps_their_directories() {
    let Some(stage) = Stage::of_test("/var") else { return };
    let report = stage.disk.path("doctor.html");
    let (log, cache) = (stage.mountpoint.join("var/log"), stage.mountpoint.join("home/.cache/web"));
    let (service, shared) = (log.join("nginx"), log.join("nginx/a dir"));
    fs::create_dir_all(&shared).unwrap();
    fs::create_dir_all(cache.join("js")).unwrap();
    for (folder, mode) in [(&shared, 0o2770), (&service, 0o750), (&log, 0o1775)] {
        std::os::unix::fs::chown(folder, Some(33), Some(4)).unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
    }
    std::os::unix::fs::symlink("nginx", log.join("link")).unwrap();
    let said = examined(&stage.mountpoint, &report, || {
        stage.run("logger", LOGGER, "var/log/chatty.log", &[LINES]);
        stage.run("browser", CACHE, "home/.cache/web", &[CACHED_FILES, CACHED_PAGES]);
    });
    let lines = |directory: &Path, which: &str| {
        let title = |remedy: &&Value| {
            let title = remedy["title"].as_str().unwrap();
            title.contains(&format!("in {} in memory", directory.display()))
                || title == format!("Keep {} in memory", directory.display())
        };
        let remedies = said["remedies"].as_array().unwrap();
        let remedy = remedies.iter().find(title).unwrap_or_else(|| panic!("{:?}", titles(&said)));
        let lines = remedy[which].as_array().unwrap().iter();
        lines.map(|line| line.as_str().unwrap()).collect::<Vec<_>>().join("\n")
    };
    for directory in [&log, &cache] {
        // `sudo` may not be installed, and the mount is seen by this shell alone.
        let list = "find . -printf '%p %y %m %U:%G %l\\n' | sort";
        let script = format!(
            "sudo() {{ \"$@\"; }}
            set -e
            {}
            [ \"$(stat -f -c %T {at})\" = tmpfs ]
            (cd {at}; {list})
            {}
            echo undone
            (cd {at}; {list})",
            lines(directory, "commands"),
            lines(directory, "undo"),
            at = directory.display(),
        );
        let mut shell = Command::new("unshare");
        shell.args(["--mount", "--propagation", "private", "sh", "-c", &script]).current_dir("/");
        let printed = output(&mut shell).unwrap();
        let (during, after) = printed.split_once("undone\n").unwrap();
        let kept: String =
            after.split_inclusive('\n').filter(|line| !line.contains(" f ")).collect();
        assert_eq!(during, kept, "{}", directory.display());
        assert!(after.contains(" f "), "{after}");
    }
    let meta = shared.metadata().unwrap();
    assert_eq!((meta.mode() & 0o7777, meta.uid(), meta.gid()), (0o2770, 33, 4));

    // The next start mounts the directory by fstab, and systemd makes what is below.
    if Command::new("systemd-tmpfiles").arg("--version").output().is_err() {
        return skip("systemd-tmpfiles is not installed");
    }
    let etc = stage.disk.path("etc");
    fs::create_dir_all(etc.join("tmpfiles.d")).unwrap();
    fs::write(etc.join("fstab"), "UUID=5 / ext4 errors=remount-ro 0 1\n").unwrap();
    let script = format!(
        "sudo() {{ \"$@\"; }}
        set -e
        mount --bind {etc} /etc
        list() {{ (cd {at}; find . -printf '%p %y %m %U:%G %l\\n' | sort); }}
        list
        echo kept
        {{
        {}
        }} > /dev/null
        mount --fstab /etc/fstab {at}
        [ \"$(stat -f -c %T {at})\" = tmpfs ]
        systemd-tmpfiles --create /etc/tmpfiles.d/*
        list
        echo undone
        {}
        list
        cat /etc/fstab; ls /etc/tmpfiles.d",
        lines(&log, "lasting"),
        lines(&log, "undo"),
        etc = etc.display(),
        at = log.display(),
    );
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "--propagation", "private", "sh", "-c", &script]).current_dir("/");
    let printed = output(&mut shell).unwrap();
    let (before, rest) = printed.split_once("kept\n").unwrap();
    let (during, after) = rest.split_once("undone\n").unwrap();
    let kept: String = before.split_inclusive('\n').filter(|line| !line.contains(" f ")).collect();
    assert_eq!(during, kept);
    assert_eq!(after, format!("{before}UUID=5 / ext4 errors=remount-ro 0 1\n"));
}

/// The list named `python3` for each script, started before the watch or during it.
// Promises: Record 22.
#[test]
fn scripts_have_names_of_their_own() {
    let Some(stage) = Stage::of_test("/var") else { return };
    let script = |name: &str| {
        let path = stage.disk.path(name);
        fs::write(&path, SYNCER).unwrap();
        let mut command = Command::new("/usr/bin/python3");
        command.arg("-u").arg(path).arg(stage.mountpoint.join(name)).arg("text");
        command
    };
    let before = Running::new(&mut {
        let mut waiting = script("before.py");
        waiting.env("WAIT", "1");
        waiting
    });
    let report = stage.disk.path("doctor.html");
    let (said, programs) = examined_beside(&stage.mountpoint, &report, || {
        let mut before = before;
        before.tell();
        [before, Running::new(&mut script("during.py"))]
    });
    drop(programs);
    let writers = said["writers"].as_array().unwrap().iter();
    let names: Vec<&str> = writers.map(|writer| writer["program"].as_str().unwrap()).collect();
    assert!(names.contains(&"before.py") && names.contains(&"during.py"), "{names:?}");
    assert!(!names.iter().any(|name| name.starts_with("python")), "{names:?}");
}

/// The log and its undo as printed: the application works with both, and writes less.
// Promises: Doctor 5.
#[test]
fn a_write_ahead_log_is_given_and_taken_by_the_printed_commands() {
    let Some(stage) = Stage::of_test("/var") else { return };
    if Command::new("sqlite3").arg("--version").output().is_err() {
        return skip("sqlite3 is not installed");
    }
    let report = stage.disk.path("doctor.html");
    let run = || stage.run("app", APP, "home/app/data.db", &[TRANSACTIONS]);
    let said = examined(&stage.mountpoint, &report, run);
    let remedies = said["remedies"].as_array().unwrap();
    let remedy = remedies.iter().find(|remedy| remedy["id"] == "write-ahead-log").unwrap();
    let shell = |which: &str| {
        for command in remedy[which].as_array().unwrap() {
            output(Command::new("sh").args(["-ec", command.as_str().unwrap()])).unwrap();
        }
    };
    let written = || {
        let before = stage.written_bytes();
        run();
        stage.written_bytes() - before
    };
    let database = stage.mountpoint.join("home/app/data.db");
    let header = || fs::read(&database).unwrap()[..20].to_vec();
    let (without, as_it_was) = (written(), header());
    shell("commands");
    assert_ne!(header(), as_it_was);
    let with = written();
    shell("undo");
    assert_eq!(header(), as_it_was);
    let again = written();
    assert!(with < without && with < again, "{with} with it, {without} before, {again} after");
    let count = output(Command::new("sqlite3").arg(&database).arg("select count(*) from t"));
    assert_eq!(count.unwrap().trim(), (4 * TRANSACTIONS).to_string());
}

/// "Keep /tmp in memory" was proposed for the files of another file system, mounted in /tmp. It
/// would have hidden them.
// Promises: Doctor 8.
#[test]
fn a_file_system_mounted_in_a_directory_is_not_its_part() {
    let Some(stage) = Stage::of_test("/tmp") else { return };
    let report = stage.disk.path("doctor.html");
    let said = examined(&stage.mountpoint, &report, || {
        stage.run("bulk", BULK, "data/large", &[BULK_PAGES]);
        stage.run("browser", CACHE, "home/.cache/web", &[CACHED_FILES, CACHED_PAGES]);
    });
    let found = titles(&said);
    assert!(!found.contains(&"Keep /tmp in memory"), "{found:?}");
    let cache = stage.mountpoint.join("home/.cache/web");
    assert!(found.contains(&&*format!("Keep {} in memory", cache.display())), "{found:?}");
}

/// A mount of flashsift whose daemon is stopped, with a program on it.
struct Stopped {
    daemon: Child,
    point: PathBuf,
    bystander: Option<Running>,
}

impl Stopped {
    fn new(folder: &Path, written: &Path) -> Result<Self, String> {
        let (backing, point) = (folder.join("backing"), folder.join("point"));
        [&backing, &point].into_iter().for_each(|place| fs::create_dir(place).unwrap());
        let python = output(Command::new("realpath").arg("/usr/bin/python3"))?;
        output(Command::new("cp").arg(python.trim()).arg(&backing))?;
        let python = fs::read_dir(&backing).unwrap().next().unwrap().unwrap().file_name();
        fs::write(backing.join("held"), "").unwrap();
        let mut mount = Command::new(FLASHSIFT);
        mount.arg("mount").args([&backing, &point]).arg("--foreground").stdin(Stdio::null());
        let (daemon, _) = started(&mut mount, "mounted ");
        let mut stopped = Self { daemon, point, bystander: None };
        let mut program = Command::new(stopped.point.join(python));
        program.args(["-c", BYSTANDER]).arg(&stopped.point).arg(written);
        let mut bystander = Running::new(&mut program);
        // The pages of its program that it needs are in memory afterwards.
        bystander.tell();
        stopped.bystander = Some(bystander);
        let daemon = Pid::from_child(&stopped.daemon);
        kill_process(daemon, Signal::STOP).unwrap();
        // Each of its threads has stopped.
        waitid(WaitId::Pid(daemon), WaitIdOptions::STOPPED).unwrap();
        Ok(stopped)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let daemon = Pid::from_child(&self.daemon);
        let _ = kill_process(daemon, Signal::CONT);
        self.bystander = None;
        let _ = kill_process(daemon, Signal::TERM);
        let _ = self.daemon.wait();
        unmount_lazily(&self.point);
    }
}

/// Waits for the end of a process; `false`, and it is killed, if it takes far too long.
fn ends(child: &mut Child) -> bool {
    let pidfd = pidfd_open(Pid::from_child(child), PidfdFlags::empty()).unwrap();
    let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
    let ended = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&limit)).unwrap() > 0;
    if !ended {
        let _ = child.kill();
    }
    ended
}

/// Beside a FUSE mount whose daemon was stopped, the doctor hung, deaf to SIGTERM: it looked at all
/// files that processes had open.
// Promises: Doctor 9.
#[test]
fn a_file_system_that_does_not_answer_is_not_asked() {
    let Some(stage) = Stage::of_test("/var") else { return };
    if !Path::new("/dev/fuse").exists() {
        return skip("/dev/fuse is not there");
    }
    let written = stage.mountpoint.join("spool");
    let stopped = Stopped::new(&stage.disk.path(""), &written);
    let Some(mut stopped) = or_skip(stopped) else { return };
    // All file systems, and one of them.
    for path in [None, Some(&stage.mountpoint)] {
        let mut doctor = Command::new(FLASHSIFT);
        // On a busy machine many programs write more.
        doctor.args(["doctor", "--for", "1h", "--json", "--top", "100000", "--last-report"]);
        doctor.arg(stage.disk.path("report.json")).args(path).stdout(Stdio::piped());
        doctor.stderr(Stdio::piped());
        let mut child = doctor.spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let stdout = child.stdout.take().unwrap();
        let (bystander, pid) = (stopped.bystander.as_mut().unwrap(), Pid::from_child(&child));
        let work = std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut line = String::new();
                while !line.contains("watching for") {
                    line.clear();
                    if stderr.read_line(&mut line).unwrap() == 0 {
                        return None;
                    }
                }
                bystander.tell();
                kill_process(pid, Signal::TERM).unwrap();
                let (mut printed, mut said) = (String::new(), String::new());
                BufReader::new(stdout).read_to_string(&mut printed).unwrap();
                stderr.read_to_string(&mut said).unwrap();
                Some((printed, said))
            });
            assert!(ends(&mut child), "it hangs");
            reader.join().unwrap()
        });
        let (printed, said) = work.expect("it watches");
        assert!(child.wait().unwrap().success(), "{said}");
        let said: Value = serde_json::from_str(&printed).unwrap();
        let spool = written.to_str().unwrap();
        let writers = said["writers"].as_array().unwrap().iter();
        let files = writers.flat_map(|writer| writer["files"].as_array().unwrap());
        assert!(files.into_iter().any(|file| file["name"] == spool), "{}", said["writers"]);
        // Elsewhere on this machine, other tests sync.
        let found = titles(&said);
        let syncs = found.iter().any(|title| title.contains("without its syncs"));
        assert!(path.is_none() || !syncs, "{found:?}");
    }
    // A path on it ends with an error.
    let mut doctor = Command::new(FLASHSIFT);
    doctor.args(["doctor", "--for", "1h"]).arg(stopped.point.join("held")).stderr(Stdio::piped());
    let mut child = doctor.spawn().unwrap();
    assert!(ends(&mut child), "it hangs");
    let said = child.wait_with_output().unwrap();
    assert_eq!(said.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&said.stderr).contains("ext4"), "{said:?}");
}

/// A remedy of the last report is shown, performed and undone.
// Promises: Doctor 11, Doctor 12, Doctor 14.
#[test]
fn a_remedy_is_applied_by_its_number_and_undone() {
    let Some(stage) = Stage::of_test("/var") else { return };
    let report = stage.disk.path("doctor.html");
    let said = examined(&stage.mountpoint, &report, || stage.run_all());
    let kept = kept(&report);
    let journal = stage.disk.path("state/journal.jsonl");
    let database = stage.mountpoint.join("home/app/data.db");
    let mode =
        || output(Command::new("sqlite3").arg(&database).arg("pragma journal_mode")).unwrap();
    let run = |words: &[&str]| {
        let mut doctor = Command::new(FLASHSIFT);
        doctor.arg("doctor").args(words).arg("--last-report").arg(&kept);
        let done = doctor.arg("--journal").arg(&journal).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (done.status.code(), text(done.stdout), text(done.stderr))
    };
    let remedies = said["remedies"].as_array().unwrap();
    let log = remedies.iter().find(|remedy| remedy["id"] == "write-ahead-log").unwrap();
    let (number, name) = (log["number"].to_string(), log["name"].as_str().unwrap());
    assert_eq!(name, format!("write-ahead-log:{}", database.display()));

    let (status, printed, said_too) = run(&["--apply", &number]);
    assert_eq!(status, Some(0), "{said_too}");
    assert!(printed.contains("from delete to wal") && printed.contains("Dry run"), "{printed}");
    assert_eq!((mode(), journal.exists()), ("delete\n".to_owned(), false));
    // Another remedy than the one that is to be proved has to be applied first.
    let (status, _, why) = run(&["--prove", name]);
    assert!(status == Some(1) && why.contains("--apply"), "{why}");
    let (status, printed, why) = run(&["--apply", name, "--yes"]);
    assert_eq!((status, mode()), (Some(0), "wal\n".to_owned()), "{why}");
    assert!(printed.contains("--undo write-ahead-log:"), "{printed}");
    let (_, printed, _) = run(&["--status"]);
    assert!(printed.contains("in force"), "{printed}");
    let (_, printed, _) = run(&["--apply", &number, "--yes"]);
    assert!(printed.contains("Nothing is to be changed"), "{printed}");
    let (status, printed, why) = run(&["--undo", &number]);
    assert_eq!((status, mode()), (Some(0), "delete\n".to_owned()), "{printed}{why}");
    let (status, _, why) = run(&["--undo", name]);
    assert!(status == Some(1) && why.contains("has not applied"), "{why}");
    // A directory can be mounted by a person alone.
    let mount = remedies.iter().find(|remedy| remedy["id"] == "delayed-syncs").unwrap();
    let (status, _, why) = run(&["--apply", mount["name"].as_str().unwrap(), "--yes"]);
    assert!(status == Some(1) && why.contains("flashsift unmount"), "{why}");
    let (status, _, why) = run(&["--apply", "999"]);
    assert!(status == Some(1) && why.contains("no remedy 999"), "{why}");

    // The budget, for Prometheus and for Home Assistant.
    let metrics = fs::read_to_string(report.with_extension("prom")).unwrap();
    for name in ["disk_bytes_per_day", "budget_bytes_per_day", "end_timestamp_seconds"] {
        assert!(metrics.contains(&format!("\nflashsift_doctor_{name}{{disk=\"loop")), "{metrics}");
    }
    assert!(metrics.contains("flashsift_doctor_writer_bytes_per_day{writer=\"logger\"}"));
    let sensors = home_assistant();
    assert!(sensors.len() >= 3, "{sensors:?}");
    for pointer in &sensors {
        let value = said.pointer(pointer);
        assert!(value.is_some_and(|value| value.is_number() || value.is_string()), "{pointer}");
    }
}

/// The values that the sensors of docs/doctor.md show, as JSON pointers.
fn home_assistant() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md");
    let page = fs::read_to_string(page).unwrap();
    let begin = page.find("    command_line:\n").expect("the page has sensors");
    let yaml: String = page[begin..]
        .lines()
        .take_while(|line| line.starts_with("    "))
        .map(|line| format!("{}\n", &line[4..]))
        .collect();
    let script = "
import json, sys
try:
    import yaml
except ImportError:
    sys.exit(print(json.dumps(None)))
sensors = [one['sensor'] for one in yaml.safe_load(sys.argv[1])['command_line']]
assert all(one['name'] and one['command'] and one['unique_id'] for one in sensors)
print(json.dumps([one['value_template'] for one in sensors]))
";
    let printed = output(Command::new("/usr/bin/python3").args(["-c", script, &yaml])).unwrap();
    let templates: Option<Vec<String>> = serde_json::from_str(&printed).unwrap();
    let templates = templates.unwrap_or_else(|| {
        let lines = yaml.lines().filter_map(|line| line.split_once("value_template:"));
        lines.map(|(_, template)| template.trim().trim_matches('\'').to_owned()).collect()
    });
    let pointer = |template: &String| {
        let path = template.trim_start_matches("{{ value_json.").split([' ', '|']).next().unwrap();
        format!("/{}", path.replace(['.', '['], "/").replace(']', ""))
    };
    templates.iter().map(pointer).collect()
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
