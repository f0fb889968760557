//! `flashsift replay` on loop devices, as root: the requests that the kernel counts and traces, and
//! the devices that are refused because they are in use.

use super::{Ask, MIB, SECTOR, asks, assert_holds, folder, log, model, refused, replayed, text};
use flashsift_testbed::{FileSystem, Loop, Mapped, Mounted, or_skip, skip};
use std::{
    fmt::Write as _,
    fs,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::Command,
};
use tempfile::TempDir;

const BYTES: u64 = 16 * MIB;
const EXT4: FileSystem = FileSystem::new("ext4", BYTES);
/// Opens a block device exclusively.
const O_EXCL: i32 = 0o200;

/// A loop device on a file of its own.
struct Device {
    device: Loop,
    path: PathBuf,
    backing: PathBuf,
    folder: TempDir,
}

impl Device {
    /// `None`, with a line on standard output, if there are no loop devices.
    fn new(options: &[&str]) -> Option<Self> {
        let folder = folder();
        let backing = folder.path().join("backing");
        fs::File::create(&backing).unwrap().set_len(BYTES).unwrap();
        let device = or_skip(Loop::new(&backing, options))?;
        Some(Self { path: device.node().into(), device, backing, folder })
    }
}

fn run(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).output().is_ok_and(|output| output.status.success())
}

// Promises: Replay 6.
#[test]
fn a_device_holds_what_the_log_says_and_the_kernel_counts_the_same() {
    let Some(device) = Device::new(&[]) else { return };
    let asks = asks(7, 2000, BYTES, 512);
    let (log, model) = (log(device.folder.path(), &asks), model(&asks, u64::MAX));
    for way in [&["--queue-depth", "1"][..], &["--queue-depth", "32"], &["--engine", "sync"]] {
        let before = device.device.stat();
        let target = ["--target", text(&device.path), "--yes-destroy-data"];
        let record = replayed(&log, &[&target[..], way].concat());
        let now = device.device.stat();
        let sectors =
            |kind: fn(&Ask) -> Option<u64>| asks.iter().filter_map(kind).sum::<u64>() / SECTOR;
        let read = sectors(|ask| if let Ask::Read(_, len) = ask { Some(*len) } else { None });
        let written = sectors(|ask| if let Ask::Write(_, len) = ask { Some(*len) } else { None });
        let discarded = sectors(|ask| if let Ask::Trim(_, len) = ask { Some(*len) } else { None });
        let syncs = asks.iter().filter(|ask| **ask == Ask::Sync).count() as u64;
        let moved: Vec<_> = now.iter().zip(before).map(|(now, before)| now - before).collect();
        assert_eq!(
            (moved[2], moved[6], moved[13], moved[15]),
            (read, written, discarded, syncs),
            "{way:?}"
        );
        assert_eq!(record["operations"]["sync"]["requests"], syncs);
        assert_eq!(record["kind"], "device");
        assert_holds(&device.path, BYTES, &model, false);
    }
}

/// The requests and the accesses to memory that FSLRU makes, on a device. Each request and each
/// line of the cell is performed, and the formula's time is that of `compare`. Without `--nvm`, the
/// device gets the same requests.
// Promises: Traces 27, Replay 15.
#[test]
fn a_systems_output_is_replayed_with_its_accesses_to_memory() {
    let Some(device) = Device::new(&[]) else { return };
    if !cfg!(target_arch = "x86_64") {
        return skip("no x86-64 processor");
    }
    let trace = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let trace = trace.join("../../testdata/days/calendar-wal.parquet");
    let into = device.folder.path().join("out");
    let output = Command::new(super::FLASHSIFT)
        .args(["compare", text(&trace), "--system", "storage,fslru", "--frames", "32", "--json"])
        .args(["--writeback", "sync", "--nvm", "pcm-board", "--after-cache", text(&into)])
        .args(["--discard", "off"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let cells = String::from_utf8(output.stdout).unwrap();
    let target = ["--target", text(&device.path), "--yes-destroy-data", "--fold"];
    for cell in cells.lines() {
        let cell: serde_json::Value = serde_json::from_str(cell).unwrap();
        let name = if cell["system"] == "storage" { "lru" } else { "fslru" };
        let log = into.join(format!("calendar-wal.{name}.32.parquet"));
        let before = device.device.stat();
        let record = replayed(&log, &[&target[..], &["--nvm", "pcm-board"]].concat());
        let moved: Vec<u64> =
            device.device.stat().iter().zip(before).map(|(now, before)| now - before).collect();
        let number = |key: &str| cell[key].as_u64().unwrap();
        let pages = [number("device_reads"), number("device_writes")].map(|pages| pages * 8);
        assert_eq!([moved[2], moved[6]], pages, "{name}: sectors");
        let memory = &record["memory"];
        let ops = ["dram-read", "dram-write", "nvm-read", "nvm-write"];
        let lines = ops.map(|op| memory["lines"][op].as_u64().unwrap());
        assert_eq!(lines[2] + lines[3] == 0, name == "lru", "{name}");
        for op in ops.into_iter().zip(lines).filter(|(_, lines)| *lines > 0) {
            assert_eq!(record["operations"][op.0]["bytes"], op.1 * 64, "{name}: {}", op.0);
        }
        let formula = &cell["memory"]["pcm-board"];
        let formula_s: f64 = ["dram_s", "nvm_read_s", "nvm_write_s"]
            .map(|key| formula[key].as_f64().unwrap())
            .iter()
            .sum();
        let seconds = |key: &str| memory[key].as_f64().unwrap();
        assert!((seconds("formula_s") / formula_s - 1.0).abs() < 1e-6, "{name}: {memory}");
        assert!(seconds("elapsed_s") > 0.0, "{name}: {memory}");
        let without = replayed(&log, &target);
        assert_eq!(without["requests"], record["requests"], "{name}");
        assert!(without["memory"].is_null() && without["operations"]["nvm-write"].is_null());
    }
    let log = into.join("calendar-wal.fslru.32.parquet");
    refused(&log, &["--null", "--nvm", "floppy"], &["floppy"]);
    refused(&log, &["--null", "--nvm", "optane", "--queue-depth", "2"], &["one at a time"]);
}

/// A device is free as soon as its replay has ended. The kernel closes the files registered with a
/// ring some time after the ring, so a replay right after another one sometimes failed because the
/// device was still in use.
// Promises: Replay 3.
#[test]
fn a_device_is_free_when_its_replay_is_over() {
    let Some(device) = Device::new(&[]) else { return };
    let log = log(device.folder.path(), &asks(3, 40, BYTES, 512));
    for round in 0..40 {
        replayed(
            &log,
            &["--target", text(&device.path), "--yes-destroy-data", "--queue-depth", "16"],
        );
        let alone = fs::OpenOptions::new().write(true).custom_flags(O_EXCL).open(&device.path);
        assert!(alone.is_ok(), "round {round}: {alone:?}");
    }
}

/// The kernel's trace of each request, in order.
// Promises: Replay 6, Replay 9.
#[test]
fn the_kernel_issues_each_request_as_the_log_has_it() {
    let Some(device) = Device::new(&[]) else { return };
    let instance = PathBuf::from(format!(
        "/sys/kernel/tracing/instances/flashsift-test-{}",
        std::process::id()
    ));
    if let Err(error) = fs::create_dir(&instance) {
        return skip(format_args!("{}: {error}", instance.display()));
    }
    let numbers = fs::read_to_string(format!("/sys/block/{}/dev", device.device.name()))
        .unwrap()
        .trim()
        .to_owned();
    let (major, minor) = numbers.split_once(':').unwrap();
    let dev = (major.parse::<u64>().unwrap() << 20) | minor.parse::<u64>().unwrap();
    fs::write(instance.join("events/block/block_rq_issue/filter"), format!("dev == {dev}"))
        .unwrap();
    fs::write(instance.join("events/block/block_rq_issue/enable"), "1").unwrap();
    // Each of these fits into one request of the device.
    let asks: Vec<_> = asks(8, 800, BYTES, 512)
        .into_iter()
        .filter(|ask| !matches!(ask, Ask::Write(_, len) if *len > MIB))
        .collect();
    let (mut text_log, mut wanted) = (String::new(), Vec::new());
    for (n, ask) in asks.iter().enumerate() {
        let at = format!("0.{:09}", n * 1000);
        let (flags, span) = match *ask {
            Ask::Read(offset, len) => ("R", Some((offset / SECTOR, len / SECTOR))),
            // Every third write is synchronous.
            Ask::Write(offset, len) => {
                (if n % 3 == 0 { "WS" } else { "W" }, Some((offset / SECTOR, len / SECTOR)))
            }
            Ask::Trim(offset, len) => ("D", Some((offset / SECTOR, len / SECTOR))),
            Ask::Sync => ("FN", None),
        };
        let place = span.map_or(String::new(), |(first, count)| format!("{first} + {count} "));
        writeln!(text_log, "  7,0 0 {} {at} 1 Q {flags} {place}[test]", n + 1).unwrap();
        // A loop device cannot write through its cache: the kernel flushes after such a write.
        wanted.extend(span.map(|(first, count)| (flags.chars().next().unwrap(), first, count)));
        if matches!(flags, "FN" | "WS") {
            wanted.push(('F', 0, 0));
        }
    }
    let path = device.folder.path().join("blkparse");
    fs::write(&path, text_log).unwrap();
    let record = replayed(&path, &["--target", text(&device.path), "--yes-destroy-data"]);
    let trace = fs::read_to_string(instance.join("trace")).unwrap();
    fs::remove_dir(&instance).unwrap();
    let issued: Vec<_> = trace.lines().filter_map(issued).collect();
    assert_eq!(issued.len(), wanted.len(), "{trace}");
    for (n, (issued, wanted)) in issued.iter().zip(&wanted).enumerate() {
        assert_eq!(issued, wanted, "request {n}");
    }
    let synchronous = record["operations"]["sync-write"]["requests"].as_u64().unwrap();
    assert!(synchronous > 50, "{record}");
}

/// `… block_rq_issue: 7,0 WS 4096 () 8 + 8 be,0,4 [flashsift]`; a flush has no place.
fn issued(line: &str) -> Option<(char, u64, u64)> {
    let (_, what) = line.split_once("block_rq_issue: ")?;
    let mut words = what.split(' ').skip(1);
    let flags = words.next()?;
    let mut place = what.split_once("() ")?.1.split(' ');
    let (first, _, count) = (place.next()?, place.next()?, place.next()?);
    let count: u64 = count.parse().ok()?;
    match flags.starts_with('F') && count == 0 {
        true => Some(('F', 0, 0)),
        false => Some((flags.trim_start_matches('F').chars().next()?, first.parse().ok()?, count)),
    }
}

// Promises: Replay 1, Replay 2, Replay 3, Profile 1.
#[test]
fn a_device_needs_consent_and_must_be_unused() {
    let Some(device) = Device::new(&[]) else { return };
    let log = log(device.folder.path(), &[Ask::Write(0, 4096)]);
    let reads = device.folder.path().join("reads");
    fs::write(&reads, "fio version 3 iolog\n0 /dev/a read 0 4096\n").unwrap();
    let target = ["--target", text(&device.path)];
    for log in [&log, &reads] {
        refused(log, &target, &["block device", "--yes-destroy-data"]);
    }
    let agreed = [&target[..], &["--yes-destroy-data"]].concat();
    let too_far = device.folder.path().join("too-far");
    fs::write(&too_far, format!("fio version 3 iolog\n0 /dev/a write {BYTES} 4096\n")).unwrap();
    refused(&too_far, &agreed, &["16777216 bytes", "reaches to 16781312", "--fold"]);
    // The backing file is refused, too.
    refused(
        &log,
        &["--target", text(&device.backing), "--yes-destroy-data"],
        &["is in use", text(&device.path)],
    );

    let point = device.folder.path().join("a point");
    fs::create_dir(&point).unwrap();
    EXT4.make(&device.path).unwrap();
    let content = fs::read(&device.backing).unwrap();
    let mounted = Mounted::new(&["-o", "ro"], &device.path, &point).unwrap();
    refused(&log, &agreed, &["is mounted on", text(&point)]);
    // The same through a symbolic link.
    let link = device.folder.path().join("link");
    std::os::unix::fs::symlink(&device.path, &link).unwrap();
    refused(
        &log,
        &["--target", text(&link), "--yes-destroy-data"],
        &["is mounted on", text(&point)],
    );
    mounted.unmount().unwrap();
    assert_eq!(fs::read(&device.backing).unwrap(), content, "nothing was written");

    assert!(run("mkswap", &[text(&device.path)]), "mkswap");
    match run("swapon", &[text(&device.path)]) {
        true => {
            refused(&log, &agreed, &[&format!("{} is swap", device.path.display())]);
            assert!(run("swapoff", &[text(&device.path)]), "swapoff");
        }
        false => skip("swap: swap is not available"),
    }

    match Mapped::new(device.device.node(), BYTES) {
        Ok(_mapped) => refused(&log, &agreed, &["is in use: /dev/dm-", "is stacked on it"]),
        Err(_) => skip("mapped devices: no device mapper here"),
    }
    replayed(&log, &agreed);
}

/// A disk is refused because of one of its partitions, and a partition because of its disk.
// Promises: Replay 2.
#[test]
fn a_device_with_a_mounted_partition_is_refused() {
    let Some(device) = Device::new(&["--partscan"]) else { return };
    let part = |n: u32| PathBuf::from(format!("{}p{n}", device.path.display()));
    // Partitions are added by hand: not every kernel reads partition tables.
    for (n, first, count) in [("1", "2048", "14336"), ("2", "16384", "16384")] {
        if !run("addpart", &[text(&device.path), n, first, count]) {
            return skip("addpart adds no partition");
        }
    }
    let log = log(device.folder.path(), &[Ask::Write(0, 4096)]);
    let refuses = |path: &Path, words: &[&str]| {
        refused(&log, &["--target", text(path), "--yes-destroy-data"], words);
    };
    EXT4.make(&part(1)).unwrap();
    let point = device.folder.path().join("point");
    fs::create_dir(&point).unwrap();
    let mounted = Mounted::new(&[], part(1), &point).unwrap();
    refuses(&device.path, &["is mounted on", text(&point)]);
    refuses(&part(1), &["is mounted on", text(&point)]);
    // Its neighbour is free.
    replayed(&log, &["--target", text(&part(2)), "--yes-destroy-data"]);
    mounted.unmount().unwrap();
    replayed(&log, &["--target", text(&part(1)), "--yes-destroy-data"]);
}

// Promises: Replay 4.
#[test]
fn blocks_of_a_page_take_no_sectors() {
    let Some(device) = Device::new(&["--sector-size", "4096"]) else { return };
    let log = log(device.folder.path(), &[Ask::Write(0, 4096), Ask::Write(4096, 512)]);
    let agreed = ["--target", text(&device.path), "--yes-destroy-data"];
    let words = ["blocks of 4096 bytes", "request 2", "write of 512 bytes at 4096"];
    refused(&log, &agreed, &words);
    // A file on the device is refused in the same way.
    let point = device.folder.path().join("point");
    fs::create_dir(&point).unwrap();
    EXT4.make(&device.path).unwrap();
    let mounted = Mounted::new(&[], &device.path, &point).unwrap();
    let file = point.join("file");
    refused(&log, &["--target", text(&file)], &words);
    let left = file.exists();
    mounted.unmount().unwrap();
    assert!(!left, "a file that was refused is gone");
}
