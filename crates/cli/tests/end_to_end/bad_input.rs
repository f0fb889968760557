//! Bad input of any kind gives a helpful error and exit status 1 or 2, never a panic or silence.

use super::{flashsift, repository};
use flashsift_testbed::skip;
use std::{fs, io::Write, path::Path, process::Stdio};
use tempfile::tempdir;

/// Returns the exit status and the messages.
fn fails(args: &[&str]) -> (i32, String) {
    let output = flashsift().args(args).output().unwrap();
    let says = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!says.contains("panicked"), "{args:?}: {says}");
    assert_eq!(output.stdout, b"", "{args:?}: nothing on standard output");
    (output.status.code().unwrap_or_else(|| panic!("{args:?} was killed: {says}")), says)
}

fn says(args: &[&str], code: i32, words: &[&str]) {
    let (found, text) = fails(args);
    assert_eq!(found, code, "{args:?}: {text}");
    for word in words {
        assert!(text.contains(word), "{args:?}: {text:?} lacks {word:?}");
    }
}

fn write(dir: &Path, name: &str, content: &[u8]) -> String {
    let path = dir.join(name);
    fs::write(&path, content).unwrap();
    path.to_str().unwrap().to_owned()
}

// Promises: Traces 9, Command line 1.
#[test]
fn files_that_are_no_traces_are_refused() {
    let dir = tempdir().unwrap();
    let dir = dir.path();
    let long_line = b"r ".repeat(1 << 22);
    for (name, content, words) in [
        ("empty", &b""[..], &["empty"][..]),
        ("zeros", &[0; 100_000][..], &["no trace format recognises", "--format"]),
        (
            "random",
            &(0..=255u8).rev().collect::<Vec<_>>().repeat(50)[..],
            &["no trace format recognises"],
        ),
        (
            "prose",
            &b"It was a dark and stormy night; the rain fell in torrents.\n".repeat(9)[..],
            &["no trace format"],
        ),
        ("not-utf8", &b"r \xff\xfe\nw \x80\n".repeat(9)[..], &["no trace format recognises"]),
        ("newlines", &b"\n\n\n\n"[..], &["no trace format recognises"]),
        ("unmapped", &b"r -1\nw -1\n"[..], &["holds no read or write", "unmapped sector"]),
        ("png", &b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..], &["no trace format recognises"]),
        ("long-line", &long_line[..], &["no trace format recognises"]),
    ] {
        let path = write(dir, name, content);
        says(&["compare", &path], 1, words);
        says(&["compare", &path], 1, &[name]);
        let out = dir.join("out.parquet");
        says(&["import", &path, "-o", out.to_str().unwrap()], 1, words);
        assert!(!out.exists(), "{name}: a failed import leaves no file");
    }
    says(&["compare", dir.to_str().unwrap()], 1, &["directory"]);
    says(&["compare", "/no/such/trace"], 1, &["/no/such/trace", "no such file"]);
}

/// Read as the wrong format, most lines are invalid: the result is an error with the reasons, not
/// an empty table.
// Promises: Traces 8, Traces 9.
#[test]
fn a_trace_in_another_format_than_named_is_refused() {
    let dir = tempdir().unwrap();
    let path = write(dir.path(), "trace", &b"r 8\nw 16\n".repeat(100));
    for format in [
        "biosnoop",
        "blkparse",
        "cachesifter",
        "fs-usage",
        "fsslower",
        "mobigen",
        "msr",
        "strace",
        "pixel",
        "fio-iolog-2",
        "fio-iolog-3",
        "oracle-general",
        "parquet",
    ] {
        let (code, text) = fails(&["compare", &path, "--format", format]);
        assert_eq!(code, 1, "{format}: {text}");
        // A MobiGen trace of only other lines was once reported to hold no read or write. The log
        // of a kernel holds lines of all kinds.
        let damage = !matches!(format, "cachesifter" | "oracle-general" | "parquet");
        assert!(!damage || text.contains("make no sense"), "{format}: {text}");
        assert!(text.contains("trace: "), "{format}: {text}");
    }
    says(&["compare", &path, "--format", "nonsense"], 2, &["nonsense", "sectors"]);
}

/// One line that is too long among good ones is left out and counted.
// Promises: Traces 8.
#[test]
fn one_absurd_line_is_counted() {
    let dir = tempdir().unwrap();
    let text = [b"r 8\n".repeat(1000), b"r ".repeat(1 << 21), b"\nw 16\n".to_vec()].concat();
    let path = write(dir.path(), "trace", &text);
    let output = super::run(&["compare", &path, "--policy", "lru", "--frames", "1", "--json"]);
    let says = String::from_utf8(output.stderr).unwrap();
    assert!(says.contains("skipped 1:") && says.contains("1001"), "{says}");
    let cell: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&cell["read_accesses"], &cell["write_accesses"]), (&1000.into(), &1.into()));
}

/// A truncated archive reports where it ended; a decompression bomb is stopped.
// Promises: Traces 10.
#[test]
fn damaged_archives_and_bombs_are_refused() {
    let dir = tempdir().unwrap();
    let lines: String =
        (0..20_000_u64).map(|n| format!("r {}\n", n * 7_919_777 % 1_000_003 * 8)).collect();
    let plain = write(dir.path(), "plain", lines.as_bytes());
    let Ok(packed) = std::process::Command::new("xz").args(["-c", &plain]).output() else {
        return skip("xz is not installed");
    };
    let good = packed.stdout;
    let path = write(dir.path(), "good.xz", &good);
    assert!(super::run(&["compare", &path, "--policy", "lru", "--frames", "1"]).status.success());
    let path = write(dir.path(), "cut.xz", &good[..good.len() / 2]);
    says(&["compare", &path], 1, &["cut.xz", "byte"]);
    let path =
        write(dir.path(), "broken.xz", &[&good[..5000], &[0x55; 100], &good[5100..]].concat());
    says(&["compare", &path], 1, &["broken.xz"]);
}

/// Some damage to pages makes the Parquet crate panic. The reader catches it and prints only its
/// own error.
// Promises: Traces 10.
#[test]
fn damaged_stores_are_refused() {
    let dir = tempdir().unwrap();
    let out = dir.path().join("out").to_str().unwrap().to_owned();
    let store = concat!(env!("CARGO_MANIFEST_DIR"), "/../traces/tests/store/schema1.parquet");
    let good = fs::read(store).unwrap();
    let mut caught = 0;
    for at in 4..68 {
        let mut bytes = good.clone();
        bytes[at] ^= 0xff;
        let path = write(dir.path(), "damaged", &bytes);
        let output = flashsift().args(["import", &path, "-o", &out]).output().unwrap();
        let says = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() || says.lines().count() == 1, "byte {at}: {says}");
        caught += usize::from(says.contains("its pages contradict themselves"));
    }
    assert!(caught > 0, "the crate panics no more: then the guard is not needed either");
}

// Promises: Placement 11, Command line 1.
#[test]
fn impossible_sizes_and_choices_are_refused() {
    let dir = tempdir().unwrap();
    let path = write(dir.path(), "trace", &b"r 8\nw 16\n".repeat(10));
    for (args, words) in [
        (&["--memory", "0"][..], &["page"][..]),
        (&["--memory", "4095"], &["page"]),
        (&["--memory", "2000GiB"], &["TiB"]),
        (&["--memory", "lots"], &["64MiB"]),
        (&["--memory", "-4M"], &[]),
        (&["--frames", "0"], &["at least 1"]),
        (&["--frames", "5000000000"], &["frames"]),
        (&["--frames", "1", "--memory", "4M"], &["cannot be used with"]),
        (&["--policy", "lfu2"], &["lfu2", "spatialclock"]),
        (&["--policy", "clock:insert_ref=2"], &["insert_ref"]),
        (&["--policy", "lru:x=1"], &["no parameters"]),
        (&["--layout", "ntfs"], &["ntfs", "f2fs"]),
        (&["--layout", "ext4"], &["identity"]),
        (&["--policy", "lru:admit=bloom"], &["--object-cache"]),
        (&["--object-cache", "--policy", "car"], &["counts pages", "gdsf"]),
        (&["--object-cache", "--policy", "lru:admit=never"], &["admission", "bloom, prob"]),
        (&["--object-cache", "--policy", "lru:admit=prob:2"], &["`2`", "0 to 1"]),
        (&["--object-cache", "--memory", "4M", "--writeback", "evict"], &["--writeback"]),
        (&["--object-cache", "--report", "x.html"], &["--frames"]),
        (&["--rate", "-1"], &["--rate"]),
        (&["--rate", "0"], &["--rate"]),
        (&["--writeback", "never"], &["evict"]),
        (&["--nonsense"], &["--nonsense"]),
    ] {
        says(&[&["compare", &path], args].concat(), 2, words);
    }
    let recorded = ["compare", &repository("testdata/game.parquet"), "--layout", "recorded"];
    says(&recorded, 2, &["--layout recorded: this trace holds no places", "flashsift record"]);
    says(&["compare"], 2, &["TRACE"]);
    says(&["synth", "zipf", "--pages", "0", "-o", "/dev/null"], 2, &["at least 1"]);
    says(&["synth", "zipf", "--writes", "2", "-o", "x.parquet"], 2, &["between 0 and 1"]);
    says(&["import", &path, "-o", &path], 2, &["the output is the trace"]);
    assert_eq!(fs::read(&path).unwrap(), b"r 8\nw 16\n".repeat(10), "the trace is untouched");
}

/// A trace that needs more memory than the limit stops with the flag that raises the limit.
// Promises: Traces 5.
#[test]
fn a_trace_beyond_the_memory_limit_is_refused() {
    let dir = tempdir().unwrap();
    let lines: String = (0..200_000).map(|n| format!("r {}\n", n * 8000)).collect();
    let path = write(dir.path(), "trace", lines.as_bytes());
    says(&["compare", &path, "--trace-memory", "1M"], 1, &["--trace-memory"]);
}

/// A trace with a broken line among its first ones was once not recognised at all.
// Promises: Traces 1.
#[test]
fn one_broken_line_hides_no_trace() {
    let dir = tempdir().unwrap();
    let path = write(
        dir.path(),
        "trace",
        &[b"r 8\n".repeat(50), b"garb\xff\xfe age\n".to_vec(), b"w 8\n".repeat(50)].concat(),
    );
    let output = super::run(&["compare", &path, "--policy", "lru", "--frames", "1", "--json"]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("skipped 1: "));
    // A byte-order mark does not prevent detection either.
    let path = write(dir.path(), "marked", &[&b"\xef\xbb\xbf"[..], &b"r 8\n".repeat(5)].concat());
    let output = super::run(&["compare", &path, "--policy", "lru", "--frames", "1", "--json"]);
    assert!(!String::from_utf8_lossy(&output.stderr).contains("skipped"));
}

/// Standard input is read, and its format is detected too.
#[test]
fn standard_input_is_read() {
    let mut child = flashsift()
        .args(["compare", "-", "--policy", "lru", "--frames", "4", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&b"r 8\nw 16\n".repeat(10)).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let cell: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(cell["hits"], 18);
}
