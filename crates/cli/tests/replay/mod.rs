//! `flashsift replay` on real files and devices: the data that arrives, the targets that are
//! refused, and the ways in which a replay ends.

mod devices;

use flashsift_testbed::started;
use serde_json::Value;
use std::{
    collections::HashMap,
    fmt::Write as _,
    fs,
    io::{BufReader, Read},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, Output, Stdio},
};
use tempfile::TempDir;

const FLASHSIFT: &str = env!("CARGO_BIN_EXE_flashsift");
const SECTOR: u64 = 512;
const MIB: u64 = 1 << 20;

/// A request of a log. The log is written from these, and so is the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ask {
    Read(u64, u64),
    Write(u64, u64),
    Trim(u64, u64),
    Sync,
}

/// Pseudo-random numbers: the same seed gives the same numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Requests of all kinds below `end`, in blocks of `block` bytes.
fn asks(seed: u64, count: u64, end: u64, block: u64) -> Vec<Ask> {
    let mut random = Random(seed);
    let mut asks: Vec<_> = (0..count)
        .map(|_| {
            let offset = random.below(end / block) * block;
            let len = ((1 + random.below(16)) * block).min(end - offset);
            match random.below(20) {
                0..7 => Ask::Read(offset, len),
                7..17 => Ask::Write(offset, len),
                17..19 => Ask::Trim(offset, len),
                _ => Ask::Sync,
            }
        })
        .collect();
    // A write that is split into pieces, and one that reaches the end.
    asks[count as usize / 2] = Ask::Write(block, 2 * MIB + block);
    asks.push(Ask::Write(end - block, block));
    asks
}

/// Writes a fio iolog of a block device, with a request every 10 µs.
fn log(folder: &Path, asks: &[Ask]) -> PathBuf {
    let mut text = String::from("fio version 3 iolog\n0 /dev/x add\n0 /dev/x open\n");
    for (n, ask) in asks.iter().enumerate() {
        let at = n * 10;
        match ask {
            Ask::Read(offset, len) => writeln!(text, "{at} /dev/x read {offset} {len}"),
            Ask::Write(offset, len) => writeln!(text, "{at} /dev/x write {offset} {len}"),
            Ask::Trim(offset, len) => writeln!(text, "{at} /dev/x trim {offset} {len}"),
            Ask::Sync => writeln!(text, "{at} /dev/x datasync 0 0"),
        }
        .unwrap();
    }
    let path = folder.join("log");
    fs::write(&path, text).unwrap();
    path
}

/// Last writer of each sector, by request number; `None` if it was discarded. Addresses modulo
/// `bytes`.
fn model(asks: &[Ask], bytes: u64) -> HashMap<u64, Option<u64>> {
    let mut sectors = HashMap::new();
    for (n, ask) in asks.iter().enumerate() {
        let (offset, len, writer) = match *ask {
            Ask::Write(offset, len) => (offset, len, Some(n as u64 + 1)),
            Ask::Trim(offset, len) => (offset, len, None),
            _ => continue,
        };
        for at in (offset..offset + len).step_by(SECTOR as usize) {
            sectors.insert(at % bytes / SECTOR, writer);
        }
    }
    sectors
}

/// Checks that every sector of `path` has the stamp that the model predicts. Sectors without a
/// writer have the stamp of the fill, if the target was filled.
fn assert_holds(path: &Path, bytes: u64, model: &HashMap<u64, Option<u64>>, filled: bool) {
    let file = fs::File::open(path).unwrap();
    let mut sector = [0; SECTOR as usize];
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
    for at in 0..bytes / SECTOR {
        let wanted = match model.get(&at) {
            Some(Some(number)) => (*number, at),
            // A device may return anything for discarded sectors; a hole in a file, and so a loop
            // device, returns zeros.
            Some(None) => (0, 0),
            None if filled => (0, at),
            None => continue,
        };
        file.read_exact_at(&mut sector, at * SECTOR).unwrap();
        assert_eq!((word(&sector[..8]), word(&sector[8..16])), wanted, "sector {at}");
        let zeros = sector.iter().all(|byte| *byte == 0);
        assert_eq!(
            zeros,
            model.get(&at) == Some(&None),
            "sector {at}: only what was discarded is empty"
        );
    }
}

fn replay(log: &Path, args: &[&str]) -> Output {
    Command::new(FLASHSIFT).arg("replay").arg(log).args(args).output().unwrap()
}

fn printed(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Runs a replay and returns its JSON; panics with its messages if it fails.
fn replayed(log: &Path, args: &[&str]) -> Value {
    let output = replay(log, &[args, &["--json"]].concat());
    assert!(output.status.success(), "{args:?}: {}", printed(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Checks that the replay is refused with these words.
fn refused(log: &Path, args: &[&str], words: &[&str]) {
    let output = replay(log, args);
    let printed = printed(&output);
    assert!(matches!(output.status.code(), Some(1 | 2)), "{args:?}: {printed}");
    assert!(output.stdout.is_empty(), "{args:?}");
    for word in words {
        assert!(printed.contains(word), "{args:?}: no {word} in: {printed}");
    }
}

/// A folder on a file system that supports direct I/O.
fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

// Promises: Replay 6, Replay 9, Replay 10.
#[test]
fn a_file_holds_what_the_log_says_at_any_depth() {
    let folder = folder();
    let end = 8 * MIB;
    let asks = asks(1, 3000, end, 512);
    let (log, model) = (log(folder.path(), &asks), model(&asks, u64::MAX));
    let ways: [&[&str]; 4] = [
        &[],
        &["--queue-depth", "32"],
        &["--queue-depth", "8", "--timing", "recorded"],
        &["--engine", "sync"],
    ];
    for (n, way) in ways.iter().enumerate() {
        let file = folder.path().join(format!("file{n}"));
        let record = replayed(&log, &[&["--target", text(&file), "--keep"], *way].concat());
        assert_eq!(fs::metadata(&file).unwrap().len(), end, "{way:?}");
        assert_holds(&file, end, &model, true);
        let count = |kind: fn(&Ask) -> bool| asks.iter().filter(|ask| kind(ask)).count() as u64;
        let operations = &record["operations"];
        assert_eq!(operations["read"]["requests"], count(|ask| matches!(ask, Ask::Read(..))));
        // One write is done in three pieces.
        assert_eq!(operations["write"]["requests"], count(|ask| matches!(ask, Ask::Write(..))) + 2);
        assert_eq!(operations["discard"]["requests"], count(|ask| matches!(ask, Ask::Trim(..))));
        assert_eq!(operations["sync"]["requests"], count(|ask| matches!(ask, Ask::Sync)));
        let bytes: u64 =
            asks.iter().map(|ask| if let Ask::Write(_, len) = ask { *len } else { 0 }).sum();
        assert_eq!(operations["write"]["bytes"], bytes);
        assert_eq!(record["whole"], true);
        assert_eq!(record.get("late").is_some(), way.contains(&"recorded"));
    }
}

// Promises: Replay 8.
#[test]
fn addresses_fold_into_a_smaller_target() {
    let folder = folder();
    let asks = asks(2, 1000, 8 * MIB, 4096);
    let log = log(folder.path(), &asks);
    let file = folder.path().join("file");
    // Not a divisor of what the log reaches to.
    let bytes = 3 * MIB - 4096;
    let size = bytes.to_string();
    refused(&log, &["--target", text(&file), "--fold"], &["--size"]);
    refused(&log, &["--target", text(&file), "--size", &size], &["--fold", "larger"]);
    replayed(
        &log,
        &["--target", text(&file), "--size", &size, "--fold", "--keep", "--queue-depth", "16"],
    );
    assert_holds(&file, bytes, &model(&asks, bytes), true);
}

// Promises: Replay 1, Replay 5.
#[test]
fn a_file_that_was_made_is_gone_and_one_that_existed_stays() {
    let folder = folder();
    let log = log(folder.path(), &asks(3, 100, 4 * MIB, 4096));
    let file = folder.path().join("file");
    replayed(&log, &["--target", text(&file)]);
    assert!(!file.exists());
    fs::write(&file, vec![7; 4 << 20]).unwrap();
    refused(&log, &["--target", text(&file)], &["exists", "--yes-destroy-data"]);
    assert_eq!(fs::read(&file).unwrap(), vec![7; 4 << 20]);
    replayed(&log, &["--target", text(&file), "--yes-destroy-data"]);
    assert!(file.exists());
    refused(
        &log,
        &["--target", text(&file), "--yes-destroy-data", "--size", "8M"],
        &["--size", "exists"],
    );
    let content = fs::read(&log).unwrap();
    refused(&log, &["--target", text(&log), "--yes-destroy-data"], &["trace itself"]);
    assert_eq!(fs::read(&log).unwrap(), content);
    // A log that only reads needs no consent and changes nothing.
    let reads = self::log(folder.path(), &[Ask::Read(0, 4096), Ask::Sync, Ask::Read(8192, 512)]);
    fs::write(&file, vec![7; 1 << 20]).unwrap();
    replayed(&reads, &["--target", text(&file)]);
    assert_eq!(fs::read(&file).unwrap(), vec![7; 1 << 20]);
    refused(&reads, &["--target", text(&file), "--fill", "yes"], &["--yes-destroy-data"]);
}

// Promises: Replay 4.
#[test]
fn an_impossible_replay_is_refused_before_anything_is_written() {
    let folder = folder();
    let log = log(folder.path(), &asks(4, 100, 4 * MIB, 4096));
    let file = folder.path().join("file");
    let target = ["--target", text(&file)];
    let at = |name: &str, content: &str| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    let files = at("files", "fio version 3 iolog\n0 /data/a write 0 4096\n");
    refused(&files, &target, &["compare TRACE --after-cache"]);
    let two = at(
        "two",
        "fio version 3 iolog\n0 /dev/a write 0 4096\n0 /dev/b write 0 4096\n1 /dev/b read 0 4096\n",
    );
    refused(
        &two,
        &target,
        &["2 devices", "/dev/a (1 requests)", "/dev/b (2 requests)", "--source"],
    );
    refused(&two, &[&target[..], &["--source", "/dev/c"]].concat(), &["no device /dev/c"]);
    let odd = at("odd", "fio version 3 iolog\n0 /dev/a write 0 4096\n1 /dev/a write 4096 700\n");
    refused(&odd, &target, &["request 2", "write of 700 bytes at 4096"]);
    let timeless = at("timeless", "fio version 2 iolog\n/dev/a write 0 4096\n");
    refused(&timeless, &[&target[..], &["--timing", "recorded"]].concat(), &["--rate"]);
    assert!(!file.exists());
    refused(&log, &["--target", text(folder.path())], &["neither a file nor a block device"]);
    refused(&log, &["--target", "/dev/null"], &["neither a file nor a block device"]);
    refused(
        &log,
        &[&target[..], &["--engine", "sync", "--queue-depth", "2"]].concat(),
        &["--queue-depth"],
    );
    refused(Path::new("-"), &target, &["twice"]);
    let record = replayed(&two, &[&target[..], &["--source", "/dev/b"]].concat());
    assert_eq!(record["requests"], 2);
    let record =
        replayed(&timeless, &[&target[..], &["--timing", "recorded", "--rate", "100"]].concat());
    assert_eq!(record["requests"], 1);
}

/// Starts a replay whose last request is due in an hour, and waits until it runs.
fn begun(log: &Path, target: &Path) -> (Child, BufReader<ChildStderr>) {
    let mut replay = Command::new(FLASHSIFT);
    replay.arg("replay").arg(log).args(["--timing", "recorded", "--json", "--target"]).arg(target);
    started(replay.stdout(Stdio::piped()), "replaying")
}

fn signal(child: &Child, signal: &str) {
    assert!(
        Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success()
    );
}

// Promises: Replay 5, Replay 13, Command line 1.
#[test]
fn a_signal_ends_it_with_a_report_and_nothing_is_left() {
    let folder = folder();
    let log = folder.path().join("log");
    fs::write(
        &log,
        "fio version 3 iolog\n0 /dev/a write 0 4096\n3600000000 /dev/a write 4096 4096\n",
    )
    .unwrap();
    for (end, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let file = folder.path().join("file");
        let (mut child, mut stderr) = begun(&log, &file);
        signal(&child, end);
        let (mut out, mut printed) = (String::new(), String::new());
        child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
        stderr.read_to_string(&mut printed).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(code), "{printed}");
        let record: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(record["whole"], false);
        assert!(record["requests"].as_u64().unwrap() <= 1);
        assert!(printed.contains("ended early, by SIG"), "{printed}");
        assert!(!file.exists());
    }
    let file = folder.path().join("file");
    let (mut child, _stderr) = begun(&log, &file);
    signal(&child, "-KILL");
    child.wait().unwrap();
    assert!(!file.exists(), "a file without a name ends with its process");
}

#[test]
fn nowhere_costs_next_to_nothing() {
    let folder = folder();
    let asks = asks(5, 20_000, 64 * MIB, 4096);
    let log = log(folder.path(), &asks);
    for depth in ["1", "32"] {
        let record = replayed(&log, &["--null", "--queue-depth", depth]);
        // One of them is done in three pieces.
        assert_eq!(record["requests"], asks.len() as u64 + 2);
        assert_eq!(record["kind"], "null");
    }
    refused(&log, &["--null", "--target", "x"], &["cannot be used with"]);
}

// Promises: Replay 12.
#[test]
fn the_table_shows_the_percentiles() {
    let folder = folder();
    let log = log(folder.path(), &asks(6, 500, 4 * MIB, 4096));
    let output =
        replay(&log, &["--target", text(&folder.path().join("file")), "--timing", "recorded"]);
    assert!(output.status.success(), "{}", printed(&output));
    let shown = String::from_utf8(output.stdout).unwrap();
    for word in [
        "99.9 %",
        "read ",
        "write ",
        "sync ",
        "discard ",
        "late ",
        "one at a time",
        "filled before",
    ] {
        assert!(shown.contains(word), "no {word} in: {shown}");
    }
    // The first line names files, however long these names are.
    let narrow = shown.lines().skip(1).all(|line| line.chars().count() <= 100);
    assert!(!shown.contains('\x1b') && narrow, "{shown}");
}

/// The report shows the same requests on modelled devices.
// Promises: Replay 16.
#[test]
fn modelled_devices_stand_beside_it() {
    let folder = folder();
    let mut asks = asks(9, 300, 4 * MIB, 4096);
    asks.retain(|ask| !matches!(ask, Ask::Write(_, len) if *len > MIB));
    let log = log(folder.path(), &asks);
    let record = replayed(&log, &["--null", "--device", "latency-100-800,microsd-2012"]);
    let [latency, card] = &record["modelled"].as_array().unwrap()[..] else { panic!("{record}") };
    assert_eq!(
        (&latency["device"], &card["device"]),
        (&"latency-100-800".into(), &"microsd-2012".into())
    );
    let pages = |kind: fn(&Ask) -> u64| asks.iter().map(kind).sum::<u64>() / 4096;
    let read = pages(|ask| if let Ask::Read(_, len) = ask { *len } else { 0 });
    let written = pages(|ask| if let Ask::Write(_, len) = ask { *len } else { 0 });
    let elapsed_s = latency["elapsed_s"].as_f64().unwrap();
    assert!((elapsed_s - (read * 100 + written * 800) as f64 / 1e6).abs() < 1e-9, "{latency}");
    assert_eq!(
        latency["operations"]["write"]["requests"],
        record["operations"]["write"]["requests"]
    );
    let shown = replay(&log, &["--null", "--device", "microsd-2012"]);
    assert!(
        String::from_utf8(shown.stdout).unwrap().contains("The same on microsd-2012, modelled")
    );
    refused(&log, &["--null", "--device", "floppy"], &["floppy"]);
}

/// Sustained writes of less than one request would measure nothing. The target stays as it is.
// Promises: Profile 7.
#[test]
fn too_few_sustained_writes_are_refused() {
    let folder = folder();
    let (file, card) = (folder.path().join("file"), folder.path().join("card.toml"));
    for size in ["4096", "524287"] {
        let output = Command::new(FLASHSIFT)
            .args(["profile", "--target", text(&file), "-o", text(&card), "--sustained", size])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(printed(&output).contains("at least 512 KiB"), "{}", printed(&output));
        assert!(!file.exists() && !card.exists());
    }
}

/// The profile of a file is a device that can be simulated, and no other file is left.
// Promises: Profile 1, Profile 5, Profile 6.
#[test]
fn a_profile_is_what_compare_takes() {
    let folder = folder();
    let (file, card) = (folder.path().join("file"), folder.path().join("card.toml"));
    let profile = |args: &[&str]| {
        let mut command = Command::new(FLASHSIFT);
        command
            .args(["profile", "--target", text(&file), "--span", "32MiB", "--sustained", "32MiB"])
            .args(["--rest", "1ms", "-o", text(&card)])
            .args(args);
        command.output().unwrap()
    };
    let output = profile(&["--json"]);
    assert!(output.status.success(), "{}", printed(&output));
    let record: Value = serde_json::from_slice(&output.stdout).unwrap();
    // Each measured time is the one in the profile, with the spread around it.
    let (_, model) = record["profile"]["model"].as_object().unwrap().iter().next().unwrap();
    let figures = record["figures"].as_object().unwrap();
    assert!(!figures.is_empty(), "{record}");
    for (name, figure) in figures {
        assert_eq!(figure["us"], model[name], "{name}: {record}");
        let us = |key: &str| figure[key].as_f64().unwrap();
        assert!(us("low_us") <= us("us") && us("us") <= us("high_us"), "{name}: {figure}");
    }
    assert!(!file.exists());
    let saved = fs::read_to_string(&card).unwrap();
    assert!(
        saved.starts_with("# ") && saved.contains("measured by flashsift profile on 32 MiB"),
        "{saved}"
    );
    let log = log(folder.path(), &[Ask::Write(0, 4096), Ask::Read(0, 8192)]);
    let record = replayed(&log, &["--null", "--device", text(&card)]);
    assert_eq!(record["modelled"][0]["device"], "card");
    let trace = folder.path().join("trace");
    fs::write(&trace, "r 8\nw 16\n".repeat(10)).unwrap();
    let output = Command::new(FLASHSIFT)
        .args([
            "compare",
            text(&trace),
            "--policy",
            "lru",
            "--frames",
            "1",
            "--json",
            "--device",
            text(&card),
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    let cell: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(cell["elapsed_s"].as_f64().unwrap() > 0.0, "{cell}");
    fs::write(&file, "mine").unwrap();
    let output = profile(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(printed(&output).contains("--yes-destroy-data"), "{}", printed(&output));
}
