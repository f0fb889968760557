//! `flashsift tune readahead` on a loop device: changes of the value, and counts of pages.

use flashsift_testbed::{Disk, FileSystem, Mapped, Mounted, ended, or_skip, output, skip, started};
use serde_json::Value;
use std::{
    fs,
    io::Read,
    ops::Deref,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

const FLASHSIFT: &str = env!("CARGO_BIN_EXE_flashsift");
const PAGE: u64 = 4096;
const BYTES: u64 = 256 << 20;

/// A disk, and a journal beside it.
struct Tuned(Disk);

impl Tuned {
    /// `None`, with the reason printed, where that is not possible.
    fn new(kind: &str) -> Option<Self> {
        or_skip(Disk::new(&FileSystem::new(kind, BYTES))).map(Self)
    }

    fn mounted(kind: &str) -> Option<Self> {
        or_skip(Disk::mounted(&FileSystem::new(kind, BYTES), "defaults")).map(Self)
    }

    fn journal(&self) -> PathBuf {
        self.path("state/journal.jsonl")
    }

    fn name(&self) -> &str {
        self.device().name()
    }

    fn kib(&self) -> u64 {
        kib_of(self.name())
    }

    fn set_kib(&self, kib: u64) {
        fs::write(queue(self.name()), kib.to_string()).unwrap();
    }

    fn tune(&self, args: &[&str]) -> Command {
        let mut command = Command::new(FLASHSIFT);
        command.args(["tune", "readahead"]).args(args).arg("--journal").arg(self.journal());
        command
    }

    fn succeeds(&self, args: &[&str]) -> String {
        let (out, says) = ended(&mut self.tune(args), 0);
        out + &says
    }

    fn fails(&self, args: &[&str]) -> String {
        ended(&mut self.tune(args), 1).1
    }
}

impl Deref for Tuned {
    type Target = Disk;

    fn deref(&self) -> &Disk {
        &self.0
    }
}

fn queue(name: &str) -> PathBuf {
    Path::new("/sys/block").join(name).join("queue/read_ahead_kb")
}

fn kib_of(name: &str) -> u64 {
    fs::read_to_string(queue(name)).unwrap().trim().parse().unwrap()
}

// Promises: Tune 1.
#[test]
fn a_dry_run_changes_nothing() {
    let Some(disk) = Tuned::mounted("ext4") else { return };
    let before_kib = disk.kib();
    let point = disk.point();
    for device in [disk.name(), disk.device().node(), point.to_str().unwrap()] {
        let text = disk.succeeds(&["--set", "66000", "--on", device]);
        assert!(text.contains("Dry run, nothing was written. --apply would write 64 to"), "{text}");
        assert!(text.contains("64.5 KiB becomes 64 KiB"), "{text}");
        assert!(text.contains("ATTR{queue/read_ahead_kb}=\"64\""), "{text}");
        let line = format!("write /sys/block/{}/queue/read_ahead_kb 64", disk.name());
        assert!(text.contains(&line) && text.contains("Files that are open keep"), "{text}");
        assert!(text.contains(&format!("is on {}", disk.name())), "{text}");
    }
    assert_eq!(disk.kib(), before_kib);
    assert!(!disk.journal().exists());
    let json = disk.succeeds(&["--set", "64k", "--on", disk.name(), "--json"]);
    let record: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&record["dry_run"], &record["new_kib"]), (&true.into(), &64.into()));
    assert_eq!(record["present_kib"], before_kib);
}

// Promises: Tune 4.
#[test]
fn a_change_is_applied_listed_and_undone() {
    let Some(disk) = Tuned::mounted("ext4") else { return };
    disk.set_kib(128);
    let text = disk.succeeds(&["--set", "64k", "--on", disk.name(), "--apply"]);
    assert!(text.contains("Set from 128 KiB to 64 KiB: change 1 in"), "{text}");
    assert_eq!(disk.kib(), 64);
    let again = disk.succeeds(&["--set", "64k", "--on", disk.name(), "--apply"]);
    assert!(again.contains("Nothing was written"), "{again}");
    disk.succeeds(&["--set", "0", "--on", disk.name(), "--apply"]);
    assert_eq!(disk.kib(), 0);
    let status = disk.succeeds(&["--status"]);
    let lines: Vec<&str> = status.lines().collect();
    assert_eq!(lines.len(), 2, "{status}");
    assert!(lines[0].contains("replaced by a later change"), "{status}");
    assert!(lines[1].contains("from 64 KiB to 0 (no read-ahead): in force"), "{status}");
    let json = disk.succeeds(&["--status", "--json"]);
    let records: Vec<Value> = json.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!((&records[1]["state"], &records[1]["id"]), (&"in-force".into(), &2.into()));
    let undone = disk.succeeds(&["--undo", disk.point().to_str().unwrap()]);
    assert!(undone.contains("restored from 0 (no read-ahead) to 128 KiB"), "{undone}");
    assert_eq!(disk.kib(), 128);
    assert!(disk.succeeds(&["--status"]).contains("has changed nothing"));
    assert!(disk.fails(&["--undo", disk.name()]).contains("has changed nothing of"));
    assert!(disk.succeeds(&["--undo", "all"]).contains("nothing to undo"));
}

// Promises: Tune 4.
#[test]
fn a_value_of_another_program_is_kept_without_force() {
    let Some(disk) = Tuned::mounted("ext4") else { return };
    disk.set_kib(128);
    disk.succeeds(&["--set", "64k", "--on", disk.name(), "--apply"]);
    disk.set_kib(512);
    let status = disk.succeeds(&["--status"]);
    assert!(status.contains("another program has changed it; now 512 KiB"), "{status}");
    let refused = disk.fails(&["--undo", disk.name()]);
    assert!(refused.contains("it is 512 KiB now, not 64 KiB"), "{refused}");
    assert_eq!(disk.kib(), 512);
    disk.succeeds(&["--undo", disk.name(), "--force"]);
    assert_eq!(disk.kib(), 128);
}

/// The journal's mark is missing: a crash came before or after the write.
// Promises: Tune 3.
#[test]
fn a_crash_between_journal_and_write_is_reported_until_it_is_cleared() {
    let Some(disk) = Tuned::mounted("ext4") else { return };
    for (present_kib, words) in [(128, "was not written"), (64, "was written")] {
        disk.set_kib(128);
        disk.succeeds(&["--set", "64k", "--on", disk.name(), "--apply"]);
        let journal = fs::read_to_string(disk.journal()).unwrap();
        let mut lines: Vec<&str> = journal.lines().collect();
        assert!(lines.pop().unwrap().contains("\"done\""), "{journal}");
        fs::write(disk.journal(), lines.join("\n") + "\n").unwrap();
        disk.set_kib(present_kib);
        // Any command of `tune` says so, here a dry run.
        for _ in 0..2 {
            let text = disk.succeeds(&["--set", "32k", "--on", disk.name()]);
            assert!(text.contains("has no end in the journal") && text.contains(words), "{text}");
        }
        assert!(disk.succeeds(&["--status"]).contains(words));
        disk.succeeds(&["--undo", disk.name()]);
        assert_eq!(disk.kib(), 128);
        let text = disk.succeeds(&["--set", "32k", "--on", disk.name()]);
        assert!(!text.contains("no end in the journal"), "{text}");
    }
}

/// Processes that apply values at the same time leave a whole journal, and an undo that leads back
/// to the beginning.
// Promises: Tune 3.
#[test]
fn changes_at_the_same_time_are_made_one_by_one() {
    let Some(disk) = Tuned::mounted("ext4") else { return };
    disk.set_kib(128);
    let mut children: Vec<Child> = (1..=8)
        .map(|n| {
            let (value, journal) = (format!("{}k", 4 * n), disk.journal());
            Command::new(FLASHSIFT)
                .args(["tune", "readahead", "--set", &value, "--on", disk.name(), "--apply"])
                .arg("--journal")
                .arg(journal)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(disk.succeeds(&["--status"]).lines().count(), 8);
    disk.succeeds(&["--undo", "all"]);
    assert_eq!(disk.kib(), 128);
}

// Promises: Tune 5.
#[test]
fn bad_devices_and_values_are_named() {
    let Some(disk) = Tuned::new("ext4") else { return };
    let set = |device: &str| disk.fails(&["--set", "64k", "--on", device, "--apply"]);
    assert!(set("nosuchdevice").contains("there is no device or mount point nosuchdevice"));
    assert!(set("/dev/null").contains("neither a block device nor a directory"));
    assert!(set("/proc").contains("no read-ahead of its own"));
    assert!(disk.fails(&["--live", disk.name()]).contains("nothing to watch"));
    let text = disk.succeeds(&["--set", "64k", "--on", disk.name()]);
    assert!(text.contains(&format!("No file system on {} is mounted", disk.name())), "{text}");
    for (args, words) in [
        (&["--set", "64"][..], "less than one page"),
        (&["--set", "64k"], "--on"),
        (&["--set", "2GiB", "--on", "x"], "at most 1 GiB"),
        (&["--status", "--undo", "all"], "cannot be used with"),
        (&["--apply"], "required"),
        (&[], "required"),
    ] {
        let (_, says) = ended(&mut disk.tune(args), 2);
        assert!(says.contains(words), "{args:?}: {says}");
    }
    // A user without rights may look.
    let mut other = Command::new("setpriv");
    other.args(["--reuid=65534", "--clear-groups", FLASHSIFT, "tune", "readahead"]);
    other.args(["--set", "64k", "--on", disk.name(), "--apply", "--journal"]);
    let output = other.arg(disk.journal()).output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && stderr.contains("needs root"), "{stderr}");
    assert!(!disk.journal().exists());
}

/// A container often has a read-only sysfs.
// Promises: Tune 5.
#[test]
fn a_read_only_sysfs_is_named() {
    let Some(disk) = Tuned::mounted("ext4") else { return };
    let before_kib = disk.kib();
    let script = "mount -o remount,ro,bind /sys && exec \"$@\"";
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "sh", "-c", script, "sh", FLASHSIFT, "tune", "readahead", "--set"]);
    shell.args(["64k", "--on", disk.name(), "--apply", "--journal"]).arg(disk.journal());
    let output = shell.output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && stderr.contains("mounted read-only"), "{stderr}");
    assert_eq!((disk.kib(), disk.journal().exists()), (before_kib, false));
}

// Promises: Tune 2.
#[test]
fn a_mapped_device_is_changed_and_not_the_disk_below() {
    let Some(disk) = Tuned::new("ext4") else { return };
    let Some(mapped) = or_skip(Mapped::new(disk.device().node(), BYTES)) else { return };
    let path = mapped.node();
    let _mounted = Mounted::new(&[], &path, &disk.point()).unwrap();
    let dm = fs::canonicalize(&path).unwrap();
    let dm = dm.file_name().unwrap().to_str().unwrap().to_owned();
    let (below_kib, before_kib) = (disk.kib(), kib_of(&dm));
    // The disk leads to the device that is mapped to it.
    for device in [disk.name(), path.to_str().unwrap()] {
        let text = disk.succeeds(&["--set", "64k", "--on", device, "--apply"]);
        assert!(text.contains("is on the mapped device"), "{text}");
        assert_eq!((kib_of(&dm), disk.kib()), (64, below_kib));
        disk.succeeds(&["--undo", device]);
        assert_eq!(kib_of(&dm), before_kib);
    }
}

// Promises: Tune 2.
#[test]
fn btrfs_is_changed_and_not_its_disk() {
    let Some(disk) = Tuned::mounted("btrfs") else { return };
    let below_kib = disk.kib();
    let json = disk.succeeds(&["--set", "64k", "--on", disk.name(), "--apply", "--json"]);
    let record: Value = serde_json::from_str(&json).unwrap();
    assert!(record["bdi"].as_str().unwrap().starts_with("btrfs-"), "{json}");
    let path = record["path"].as_str().unwrap();
    let kib = || fs::read_to_string(path).unwrap();
    assert_eq!((kib().trim(), disk.kib()), ("64", below_kib));
    disk.succeeds(&["--undo", disk.point().to_str().unwrap()]);
    assert_eq!(kib().trim(), record["applied"]["old_kib"].to_string());
}

/// A command is started under four sizes in turn. The size from before is there afterwards, also if
/// the command fails.
// Promises: Tune 13.
#[test]
fn a_clock_restores_the_size_that_it_found() {
    let Some(disk) = Tuned::mounted("ext4") else { return };
    disk.set_kib(128);
    // Other programs of the machine keep their cached pages.
    let own = disk.path("drop_caches");
    fs::write(&own, "").unwrap();
    let drop_caches = Path::new("/proc/sys/vm/drop_caches");
    let _others_keep_theirs = Mounted::new(&["--bind"], &own, drop_caches).unwrap();
    let clock = |script: &str| {
        let mut command = Command::new(FLASHSIFT);
        command.args(["tune", "readahead", "--clock", "--rounds", "10", "--json", "--on"]);
        command.arg(disk.point()).arg("--journal").arg(disk.journal());
        command.args(["--", "sh", "-c", script]).output().unwrap()
    };
    let seen = disk.path("seen");
    let script = format!("cat {} >> {}", queue(disk.name()).display(), seen.display());
    let found = clock(&script);
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stderr));
    let json = String::from_utf8(found.stdout).unwrap();
    let record: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    let sizes = record["sizes"].as_array().unwrap();
    assert_eq!(sizes.len(), 4, "{json}");
    assert!(sizes.iter().all(|size| size["seconds"].as_array().unwrap().len() == 10), "{json}");
    assert_eq!((&sizes[0]["kib"], &sizes[0]["saving_s"]), (&128.into(), &0.0.into()));
    let seen = fs::read_to_string(seen).unwrap();
    let starts: Vec<&str> = seen.lines().collect();
    assert_eq!(starts.len(), 40);
    assert_eq!((&starts[..4], starts[4]), (&["128", "64", "256", "512"][..], "64"));
    assert_eq!(fs::read_to_string(&own).unwrap(), "3\n");
    assert_eq!(disk.kib(), 128);
    let failed = clock("exit 3");
    let stderr = String::from_utf8(failed.stderr).unwrap();
    assert!(!failed.status.success() && stderr.contains("sh failed"), "{stderr}");
    assert_eq!(disk.kib(), 128);
    assert!(disk.succeeds(&["--status"]).contains("has changed nothing"));
}

/// Reads a file page by page: from its beginning, or at far places, two neighbours at each. The
/// kernel takes the second one for the begin of a sequence and reads further pages in vain.
const READER: &str = "
import os, sys
sys.stdin.readline()
path, kind, pages = sys.argv[1], sys.argv[2], int(sys.argv[3])
file = os.open(path, os.O_RDONLY)
if kind == 'sequential':
    for n in range(pages):
        os.pread(file, 4096, n * 4096)
else:
    for n in range(pages):
        os.pread(file, 4096, n * 64 * 4096)
        os.pread(file, 4096, (n * 64 + 1) * 4096)
";
const SEQUENTIAL_PAGES: u64 = 4096;
const RANDOM_PLACES: u64 = 200;

fn instances(child: &Child) -> usize {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let tracefs = mounts.lines().find(|line| line.contains(" tracefs ")).unwrap();
    let folder = Path::new(tracefs.split(' ').nth(1).unwrap()).join("instances");
    let ours = format!("flashsift-{}-", child.id());
    let names = fs::read_dir(folder).unwrap().flatten().map(|entry| entry.file_name());
    names.filter(|name| name.to_string_lossy().starts_with(&ours)).count()
}

/// Whether the kernel counts pages; otherwise the test is skipped.
fn counts_pages() -> bool {
    Path::new("/sys/kernel/tracing/events/filemap/mm_filemap_get_pages").exists()
        || skip("the kernel has no mm_filemap_get_pages, or tracefs is elsewhere")
}

/// Begins to watch, and waits until it does.
fn watching(disk: &Tuned) -> (Child, std::io::BufReader<std::process::ChildStderr>) {
    let mut command = Command::new(FLASHSIFT);
    command.args(["tune", "readahead", "--live"]).arg(disk.point()).arg("--journal");
    command.arg(disk.journal()).args(["--for", "5m", "--json"]).stdout(Stdio::piped());
    started(&mut command, "watching for 5 min")
}

fn signal(child: &Child, signal: &str) {
    output(Command::new("kill").args([signal, &child.id().to_string()])).unwrap();
}

// Promises: Tune 6.
#[test]
fn live_counts_tell_a_sequential_reader_from_a_random_one() {
    let Some(disk) = Tuned::mounted("ext4") else { return };
    if !counts_pages() {
        return;
    }
    disk.set_kib(128);
    let python = fs::canonicalize("/usr/bin/python3").unwrap();
    let kinds = [
        ("sequential", SEQUENTIAL_PAGES, SEQUENTIAL_PAGES),
        ("random", RANDOM_PLACES, 64 * RANDOM_PLACES),
    ];
    for (kind, _, file_pages) in kinds {
        fs::write(disk.point().join(kind), vec![7; (file_pages * PAGE) as usize]).unwrap();
        std::os::unix::fs::symlink(&python, disk.path(kind)).unwrap();
    }
    // Dirty pages cannot be dropped from the cache.
    output(Command::new("sync").arg("-f").arg(disk.point())).unwrap();
    for (kind, ..) in kinds {
        let file = fs::File::open(disk.point().join(kind)).unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    }
    let (mut child, mut stderr) = watching(&disk);
    assert_eq!(instances(&child), 1);
    for (kind, pages, _) in kinds {
        let mut reader = Command::new(disk.path(kind))
            .args(["-c", READER])
            .arg(disk.point().join(kind))
            .args([kind, &pages.to_string()])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        drop(reader.stdin.take());
        assert!(reader.wait().unwrap().success());
    }
    // Pages that are dropped from the cache before any use.
    let file = fs::File::open(disk.point().join("random")).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    signal(&child, "-INT");
    let (mut printed, mut json) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut json).unwrap();
    stderr.read_to_string(&mut printed).unwrap();
    assert!(child.wait().unwrap().success(), "{printed}");
    assert_eq!(instances(&child), 0);
    assert!(!printed.contains("LOST"), "{printed}");
    let record: Value = serde_json::from_str(&json).unwrap();
    let file = |kind: &str| {
        let path = disk.point().join(kind).to_string_lossy().into_owned();
        let files = record["files"].as_array().unwrap();
        files.iter().find(|file| file["name"] == path.as_str()).unwrap_or_else(|| panic!("{json}"))
    };
    let pages = |of: &Value, name: &str| of[name].as_u64().unwrap();
    let sequential = file("sequential");
    let used = pages(sequential, "used_pages") + pages(sequential, "demanded_pages");
    assert_eq!(used, SEQUENTIAL_PAGES, "{json}");
    assert!(sequential["efficiency"].as_f64().unwrap() > 0.9, "{json}");
    let random = file("random");
    let asked = pages(random, "used_pages") + pages(random, "demanded_pages");
    assert_eq!(asked, 2 * RANDOM_PLACES, "{json}");
    assert!(pages(random, "dropped_pages") >= RANDOM_PLACES, "{json}");
    assert_eq!(pages(random, "unused_pages"), 0, "all were dropped: {json}");
    assert!(random["efficiency"].as_f64().unwrap() < 0.3, "{json}");
    let programs = record["programs"].as_array().unwrap();
    for (kind, ..) in kinds {
        let mine = programs.iter().find(|program| program["name"] == kind);
        let mine = mine.unwrap_or_else(|| panic!("{kind}: {json}"));
        assert_eq!(mine["ahead_pages"], file(kind)["ahead_pages"], "{json}");
    }
    assert_eq!(record["present_kib"], 128);
    // ext4's own inodes are not among them.
    assert_eq!(record["files_count"], 2, "{json}");
}

// Promises: Tune 8.
#[test]
fn a_file_system_that_cannot_be_recorded_gets_no_proposal() {
    let Some(disk) = Tuned::mounted("btrfs") else { return };
    let point = disk.point();
    let says = disk.fails(&["--live", point.to_str().unwrap(), "--for", "5m", "--propose"]);
    assert!(says.contains("btrfs cannot be recorded"), "{says}");
}

/// Whether a process has a tracing instance.
fn has_instance(pid: u32) -> bool {
    let prefix = format!("flashsift-{pid}-");
    let names = fs::read_dir("/sys/kernel/tracing/instances").unwrap().flatten();
    names.into_iter().any(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
}

// Promises: Tune 7.
#[test]
fn the_recorder_of_a_killed_watch_ends() {
    let Some(disk) = Tuned::mounted("ext4") else { return };
    if !counts_pages() {
        return;
    }
    let temporary = disk.path("tmp");
    fs::create_dir(&temporary).unwrap();
    let mut command = Command::new(FLASHSIFT);
    command.args(["tune", "readahead", "--live"]).arg(disk.point()).arg("--journal");
    command.arg(disk.journal()).args(["--for", "5m", "--propose"]).env("TMPDIR", &temporary);
    let (mut killed, mut stderr) = started(command.stdout(Stdio::null()), "watching for 5 min");
    let children = format!("/proc/{0}/task/{0}/children", killed.id());
    let recorder: u32 = fs::read_to_string(children).unwrap().trim().parse().unwrap();
    signal(&killed, "-KILL");
    killed.wait().unwrap();
    // The recorder has the other end.
    stderr.read_to_string(&mut String::new()).unwrap();
    assert!(!has_instance(recorder));
    assert_eq!(fs::read_dir(&temporary).unwrap().count(), 0);
    let (mut child, _stderr) = watching(&disk);
    signal(&child, "-INT");
    assert!(child.wait().unwrap().success());
    assert_eq!(instances(&killed), 0);
}

// Promises: Tune 7.
#[test]
fn a_killed_watch_is_cleaned_up_by_the_next_one() {
    let Some(disk) = Tuned::mounted("ext4") else { return };
    if !counts_pages() {
        return;
    }
    for end in ["-TERM", "-HUP"] {
        let (mut child, _stderr) = watching(&disk);
        signal(&child, end);
        assert!(child.wait().unwrap().success());
        assert_eq!(instances(&child), 0);
    }
    let (mut killed, _stderr) = watching(&disk);
    signal(&killed, "-KILL");
    // Before its end is taken note of, no other process removes it.
    assert_eq!(instances(&killed), 1, "a killed process cannot clean up");
    killed.wait().unwrap();
    let (mut child, _stderr) = watching(&disk);
    assert_eq!(instances(&killed), 0);
    signal(&child, "-INT");
    assert!(child.wait().unwrap().success());
    assert_eq!(instances(&child), 0);
}

/// Reads two files of a directory, page by page: `records` at far places in no order, three pages
/// at each, and `log` from its beginning. Three neighbours look like the begin of a sequence to the
/// kernel, so it reads on. With an argument more, the program says that it will not.
const DATABASE: &str = "
import os, random, sys
folder, places, log_pages = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
records = os.open(folder + '/records', os.O_RDONLY)
log = os.open(folder + '/log', os.O_RDONLY)
if len(sys.argv) > 4:
    os.posix_fadvise(records, 0, 0, os.POSIX_FADV_RANDOM)
order = list(range(places))
random.Random(1).shuffle(order)
for n, place in enumerate(order):
    for page in range(3):
        os.pread(records, 4096, (64 * place + page) * 4096)
    for page in range(n * log_pages // places, (n + 1) * log_pages // places):
        os.pread(log, 4096, page * 4096)
";
const PLACES: u64 = 600;
const LOG_PAGES: u64 = 8000;

/// Bytes that were read from a block device since it exists.
fn bytes_read(disk: &Tuned) -> u64 {
    512 * disk.device().stat()[2]
}

/// A recorded program reads one file here and there and one in order. The advice names the first
/// one, and a program that follows it reads less from the device, by what was predicted.
// Promises: Read-ahead 13.
#[test]
fn a_program_that_follows_the_advice_reads_less() {
    let Some(disk) = Tuned::mounted("ext4") else { return };
    if !counts_pages() {
        return;
    }
    disk.set_kib(128);
    let program = disk.path("database");
    let python = fs::canonicalize("/usr/bin/python3").unwrap();
    std::os::unix::fs::symlink(python, &program).unwrap();
    let (places, log_pages) = (PLACES.to_string(), LOG_PAGES.to_string());
    for (name, pages) in [("records", 64 * PLACES), ("log", LOG_PAGES)] {
        fs::write(disk.point().join(name), vec![7; (pages * PAGE) as usize]).unwrap();
    }
    output(Command::new("sync").arg("-f").arg(disk.point())).unwrap();
    let run = |command: &mut Command, advice: &[&str]| {
        for name in ["records", "log"] {
            let file = fs::File::open(disk.point().join(name)).unwrap();
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        }
        let before = bytes_read(&disk);
        command.arg(&program).args(["-c", DATABASE]).arg(disk.point());
        output(command.args([&*places, &*log_pages]).args(advice)).unwrap();
        bytes_read(&disk) - before
    };
    let trace = disk.path("t.parquet");
    let mut record = Command::new(FLASHSIFT);
    record
        .args(["record", "--exact", "-q", "-o"])
        .arg(&trace)
        .arg("--path")
        .arg(disk.point())
        .arg("--");
    let without = run(&mut record, &[]);
    let with = run(&mut Command::new("env"), &["advised"]);

    let printed = disk.succeeds(&[trace.to_str().unwrap(), "--json"]);
    let json = printed.lines().next().unwrap();
    let record: Value = serde_json::from_str(json).unwrap();
    let by_file = &record["readahead"]["by_file"];
    let path = |name: &str| disk.point().join(name).to_string_lossy().into_owned();
    let wasted = |name: &str| {
        let files = by_file["files"].as_array().unwrap();
        let file = files.iter().find(|file| file["name"] == path(name).as_str()).unwrap();
        file["wasted_bytes"].as_u64().unwrap()
    };
    assert!(wasted("records") > 5 * PLACES * PAGE && wasted("log") < 64 * PAGE, "{json}");
    let advice = &by_file["advice"];
    assert_eq!(advice["pays"], true, "{json}");
    let advised = advice["files"].as_array().unwrap();
    let random: Vec<&Value> = advised.iter().filter(|one| one["advice"] == "RANDOM").collect();
    let [random] = random[..] else { panic!("{json}") };
    assert_eq!(random["files"], path("records").as_str(), "{json}");
    assert_eq!(random["program"], "database", "{json}");
    // The pages that the program asks for, and little more.
    assert!(with < (3 * PLACES + LOG_PAGES) * PAGE * 11 / 10, "{with} of {without}");
    let predicted = random["wasted_less_bytes"].as_u64().unwrap();
    let saved = without - with;
    assert!(saved.abs_diff(predicted) < predicted / 10, "{saved}, and {predicted} were predicted");
    println!(
        "{without} bytes read without the advice, {with} with it; predicted: {predicted} less"
    );
}
