//! Outputs: the table, JSON, after-cache traces, imports, synthetic traces.

use super::{cells, flashsift, number, repository, run};
use flashsift_events::{
    event::{About, Action, Event, FileId, Knows, Side, Space},
    page::PAGE_BYTES,
};
use flashsift_testbed::ended;
use flashsift_traces::{
    events::{Kept, Sink, Skipped},
    open,
    store::Writer,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    process::Stdio,
};
use tempfile::tempdir;

const BROWSER: &str = "testdata/browser.parquet";

/// `import` preserves everything that `compare` counts.
// Promises: Traces 12.
#[test]
fn import_changes_no_count() {
    let dir = tempdir().unwrap();
    let stored = dir.path().join("browser.parquet").to_str().unwrap().to_owned();
    run(&["import", &repository(BROWSER), "-o", &stored]);
    let counts = |trace: &str| {
        let mut cells = cells(&[
            "compare",
            trace,
            "--policy",
            "lru,spatialclock",
            "--memory",
            "1M,8M",
            "--drain",
        ]);
        for cell in &mut cells {
            let cell = cell.as_object_mut().unwrap();
            cell.remove("cpu_ns_per_access");
            cell.remove("trace");
        }
        cells
    };
    assert_eq!(counts(&stored), counts(&repository(BROWSER)));
}

/// Each page that reaches the device has a program and a reason, and nothing else changes.
// Promises: Compare 9.
#[test]
fn writes_are_charged_to_programs_and_reasons() {
    let browser = repository(BROWSER);
    for metadata in ["off", "ext4"] {
        let compare = |extra: &[&str]| {
            let policies = ["--policy", "lru,spatialclock", "--memory", "4M", "--drain"];
            let modes = ["--writeback", "linux", "--metadata", metadata];
            cells(&[&["compare", &browser], &policies[..], &modes, extra].concat())
        };
        for (mut cell, mut charged) in compare(&[]).into_iter().zip(compare(&["--attribution"])) {
            let fields = ["device_writes", "journal_writes", "metadata_writes"];
            let writes: u64 = fields.iter().filter_map(|field| cell[field].as_u64()).sum();
            for by in ["by_program", "by_reason"] {
                let list = charged[by].as_array().unwrap();
                let sum: u64 = list.iter().map(|entry| number(entry, "writes")).sum();
                assert_eq!(sum, writes, "{charged}");
                charged.as_object_mut().unwrap().remove(by);
            }
            for cell in [&mut cell, &mut charged] {
                cell.as_object_mut().unwrap().remove("cpu_ns_per_access");
            }
            assert_eq!(cell, charged);
        }
    }
    ended(flashsift().args(["compare", &browser, "--attribution"]), 2);
}

/// Each cell's after-cache trace, read back, holds exactly the requests that the cell reports, in
/// both formats.
// Promises: Traces 15.
#[test]
fn after_cache_traces_hold_the_counted_requests() {
    let dir = tempdir().unwrap();
    for format in ["parquet", "fio-iolog-3"] {
        let out = dir.path().join(format);
        let out = out.to_str().unwrap();
        let args = ["--policy", "lru,spatialclock", "--memory", "1M,2M", "--drain"];
        let files = ["--after-cache", out, "--after-cache-format", format];
        let cells_made =
            cells(&[&["compare", &repository(BROWSER)], &args[..], &files[..]].concat());
        let mut names: Vec<_> =
            fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.sort();
        assert_eq!(names.len(), 4, "{names:?}");
        let mut found = BTreeMap::new();
        for name in &names {
            let after =
                cells(&["compare", name.to_str().unwrap(), "--policy", "fifo", "--frames", "1"]);
            let file = name.file_name().unwrap().to_str().unwrap().to_owned();
            found.insert(
                file,
                (number(&after[0], "read_accesses"), number(&after[0], "write_accesses")),
            );
        }
        for cell in cells_made {
            let (policy, frames) = (cell["policy"].as_str().unwrap(), cell["frames"].to_string());
            let (_, counts) = found
                .iter()
                .find(|(name, _)| name.contains(&format!(".{policy}.{frames}.")))
                .expect("a file a cell");
            assert_eq!(
                *counts,
                (number(&cell, "device_reads"), number(&cell, "device_writes")),
                "{format}: {cell}"
            );
        }
    }
}

/// Each read is needed by a process that accessed that place of that file, and what was written is
/// read from where it was written, until the place is discarded.
// Promises: Traces 16.
#[test]
fn after_cache_traces_keep_processes_and_files() {
    let dir = tempdir().unwrap();
    let args = ["--policy", "lru", "--memory", "1M", "--merge", "off", "--after-cache"];
    run(&[&["compare", &repository(BROWSER)], &args[..], &[dir.path().to_str().unwrap()]].concat());
    let read = |path: &Path| {
        let mut kept = Kept::default();
        open::read(path, None, &mut kept, &open::Limits::default()).unwrap();
        kept.events
    };
    let mut accessed = BTreeSet::new();
    for event in read(Path::new(&repository(BROWSER))) {
        if let Action::Read { file, offset, len, .. } | Action::Write { file, offset, len, .. } =
            event.action
        {
            let pages = offset / PAGE_BYTES..(offset + len).div_ceil(PAGE_BYTES);
            accessed.extend(pages.map(|page| (event.pid, file, page)));
        }
    }
    let (mut written, mut reads) = (BTreeMap::new(), 0);
    for pair in read(&dir.path().join("browser.lru.256.parquet")).windows(2) {
        if let Action::Punch { offset, len, .. } = pair[0].action {
            written.retain(|_, at| !(offset..offset + len).contains(at));
        }
        let Action::Cause { origin, awaited } = pair[0].action else { continue };
        let (Action::Read { offset: at, .. } | Action::Write { offset: at, .. }) = pair[1].action
        else {
            assert_eq!((origin, awaited), (None, true), "{:?}", pair[1]);
            continue;
        };
        let (file, offset) = origin.unwrap();
        if matches!(pair[1].action, Action::Write { .. }) {
            written.insert((file, offset), at);
            continue;
        }
        reads += 1;
        assert!(awaited && accessed.contains(&(pair[0].pid, file, offset / PAGE_BYTES)));
        assert_eq!(*written.get(&(file, offset)).unwrap_or(&at), at, "{:?}", pair[1]);
    }
    assert!(reads > 1000, "{reads} reads");
}

/// A trace without times gives an after-cache trace without times; for an iolog v3, which needs
/// them, the error names the flag.
// Promises: Traces 17.
#[test]
fn times_are_not_invented() {
    let dir = tempdir().unwrap();
    let trace = dir.path().join("trace");
    fs::write(&trace, "r 8\nw 16\n".repeat(10)).unwrap();
    let (trace, out) = (trace.to_str().unwrap(), dir.path().join("out"));
    let out = out.to_str().unwrap();
    let args = ["compare", trace, "--policy", "lru", "--frames", "1", "--after-cache", out];
    run(&args);
    let iolog = [&args[..], &["--after-cache-format", "fio-iolog-3"]].concat();
    let (_, says) = ended(super::flashsift().args(&iolog), 1);
    assert!(says.contains("--rate"), "{says}");
    run(&[&iolog[..], &["--rate", "1000"]].concat());
}

/// The numbers of the table are those of the JSON; the best is marked, and the bound is set apart.
// Promises: Command line 3, Command line 4.
#[test]
fn the_table_shows_the_counts() {
    let trace = repository(BROWSER);
    let args = ["compare", &trace, "--memory", "1M"];
    let json = cells(&args);
    let shown = String::from_utf8(run(&args).stdout).unwrap();
    assert!(!shown.contains('\x1b'), "no colour where no terminal is");
    let (table, _) = shown.split_once("In short:").unwrap();
    let row =
        |policy: &str| table.lines().find(|line| line.trim_start().starts_with(policy)).unwrap();
    let grouped = |n: u64| {
        let digits = n.to_string();
        let groups: Vec<&str> =
            digits.as_bytes().rchunks(3).rev().map(|g| std::str::from_utf8(g).unwrap()).collect();
        groups.join("\u{202f}")
    };
    for cell in &json {
        let row = row(cell["policy"].as_str().unwrap());
        assert!(row.contains(&grouped(number(cell, "device_writes"))), "{row}: {cell}");
    }
    let online = |cell: &&Value| !cell["policy"].as_str().unwrap().starts_with("belady");
    let best = json.iter().filter(online).map(|cell| number(cell, "hits")).max().unwrap();
    for cell in json.iter().filter(online) {
        let hit_ratio = number(cell, "hits") as f64 / number(cell, "accesses") as f64 * 100.0;
        let marked = row(cell["policy"].as_str().unwrap()).contains(&format!("{hit_ratio:.2}*"));
        assert_eq!(marked, number(cell, "hits") == best, "{table}");
    }
    let (rule, bound) = (table.find("bound for hits").unwrap(), table.find("belady").unwrap());
    assert!(rule < bound && table.rfind("spatialclock").unwrap() < rule);
}

/// Parameters are parsed, shown, and have an effect.
// Promises: Counting 3.
#[test]
fn parameters_reach_the_policy() {
    let trace = repository(BROWSER);
    let found =
        cells(&["compare", &trace, "--policy", "clock,clock:insert_ref=1,lru", "--memory", "256K"]);
    let labels: Vec<_> = found.iter().map(|cell| cell["policy"].as_str().unwrap()).collect();
    assert_eq!(labels, ["clock", "clock:insert_ref=1", "lru"]);
    assert_ne!(found[0]["hits"], found[1]["hits"]);
    let read =
        cells(&["compare", &trace, "--policy", "lru", "--memory", "256K", "--write-miss", "read"]);
    assert!(number(&read[0], "device_reads") > number(&found[2], "device_reads"));
    let f2fs =
        cells(&["compare", &trace, "--policy", "lru", "--memory", "256K", "--layout", "f2fs"]);
    assert_eq!(f2fs[0]["device_writes"], found[2]["device_writes"]);
    assert!(number(&f2fs[0], "nonsequential_writes") < number(&found[2], "nonsequential_writes"));
}

/// The same seed gives the same bytes; both formats hold the same requests; `compare` opens both.
#[test]
fn synthetic_traces_repeat_with_their_seed() {
    let dir = tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let zipf = ["synth", "zipf", "--requests", "20k", "--pages", "1k", "--seed", "3"];
    for (name, format) in [("a", "oracle-general"), ("b", "oracle-general"), ("c", "parquet")] {
        run(&[&zipf[..], &["--as", format, "-o", &path(name)]].concat());
    }
    assert_eq!(fs::read(path("a")).unwrap(), fs::read(path("b")).unwrap());
    let hits = |name: &str| {
        let found = cells(&["compare", &path(name), "--policy", "lru,belady", "--frames", "100"]);
        found.iter().map(|cell| number(cell, "hits")).collect::<Vec<_>>()
    };
    assert_eq!(hits("a"), hits("c"), "an object of one page is a page");
    run(&["synth", "mixed", "--requests", "5k", "--pages", "500", "-o", &path("d")]);
    let found = cells(&["compare", &path("d"), "--policy", "lru", "--frames", "50"]);
    assert_eq!(number(&found[0], "accesses"), 5000);
    assert!((1200..1800).contains(&number(&found[0], "write_accesses")));
}

/// The command ends quietly when its output is closed. With `--json` and `--csv` it failed, as the
/// errors of serde_json and csv hide that of the pipe.
// Promises: Command line 2.
#[test]
fn a_closed_pipe_is_no_error() {
    let browser = repository(BROWSER);
    for args in [
        &["compare", &*browser, "--memory", "1M"][..],
        &["describe", &*browser, "--json", "-q"],
        &["describe", &*browser, "--csv", "-q"],
        &["help", "compare"],
    ] {
        let mut child = super::flashsift()
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let says = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && !says.contains("roken pipe"), "{args:?}: {says}");
    }
}

/// The help and the version ended with 0 though nothing was written, and the message of other
/// commands did not say what was being written. Each fails and says it.
#[test]
fn a_full_output_is_an_error_that_names_the_result() {
    let browser = repository(BROWSER);
    for (args, what) in [
        (&["--help"][..], "writing the help"),
        (&["--version"], "writing the help"),
        (&["help", "compare"], "writing the help"),
        (&["list", "policies"], "writing the result"),
        (&["list", "devices"], "writing the result"),
        (&["completions", "bash"], "writing the result"),
        (&["describe", &*browser, "-q"], "writing the result"),
        (&["describe", &*browser, "-q", "--json"], "writing the result"),
        (&["describe", &*browser, "-q", "--csv"], "writing the result"),
        (&["compare", &*browser, "-q", "--memory", "1M", "--policy", "lru"], "writing the result"),
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (_, says) = ended(super::flashsift().args(args).stdout(full), 1);
        let message = format!("{what}: No space left on device (os error 28)");
        assert!(says.contains(&message), "{args:?}: {says}");
    }
}

/// `import` onto a full disk said that storing the trace failed, and not where.
#[test]
fn an_output_that_cannot_be_written_is_named() {
    let dir = tempdir().unwrap();
    for name in ["t.parquet", "t.csv", "t.pftrace"] {
        let output = dir.path().join(name);
        // No file may become longer than 20 KiB.
        let limited = std::process::Command::new("sh")
            .args([
                "-c",
                "trap '' XFSZ; ulimit -f 40; exec \"$@\"",
                "sh",
                env!("CARGO_BIN_EXE_flashsift"),
                "import",
            ])
            .args([&*repository(BROWSER), "-q", "-o"])
            .arg(&output)
            .output()
            .unwrap();
        let says = String::from_utf8_lossy(&limited.stderr);
        assert_eq!(limited.status.code(), Some(1), "{says}");
        let named = says.contains(&format!("{}: ", output.display()));
        assert!(named && says.contains("File too large"), "{says}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "{name}");
    }
}

/// The results of cells do not depend on the number that run at once.
// Promises: Counting 11.
#[test]
fn threads_change_no_count() {
    let counts = |threads: &str| {
        let mut cells =
            cells(&["compare", &repository(BROWSER), "--memory", "1M,4M", "--threads", threads]);
        cells
            .iter_mut()
            .for_each(|cell| drop(cell.as_object_mut().unwrap().remove("cpu_ns_per_access")));
        cells
    };
    assert_eq!(counts("1"), counts("3"));
}

/// A stored trace once lacked the omissions of its reader, and a copy of it lost even that note.
// Promises: Traces 8.
#[test]
fn a_stored_trace_keeps_the_notes_of_omissions() {
    let dir = tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("trace"), "r 8\nr -1\nw 16\n".repeat(10)).unwrap();
    run(&["import", &path("trace"), "-o", &path("first")]);
    run(&["import", &path("first"), "-o", &path("second")]);
    for stored in ["first", "second"] {
        let says =
            String::from_utf8(run(&["compare", &path(stored), "--policy", "lru"]).stderr).unwrap();
        assert!(says.contains("skipped 10: unmapped sector (-1)"), "{stored}: {says}");
    }
}

/// A private trace once became readable for all users when it was rewritten.
#[test]
fn a_replaced_file_keeps_its_mode() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("trace"), "r 8\n").unwrap();
    fs::write(path("stored"), "").unwrap();
    fs::set_permissions(path("stored"), fs::Permissions::from_mode(0o600)).unwrap();
    run(&["import", &path("trace"), "-o", &path("stored")]);
    assert_eq!(fs::metadata(path("stored")).unwrap().permissions().mode() & 0o777, 0o600);
}

/// An after-cache trace once overwrote the trace that it came from, and that of another trace with
/// a similar name.
// Promises: Traces 15.
#[test]
fn an_after_cache_trace_replaces_nothing() {
    let dir = tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    let trace = dir.path().join("my.web.trace");
    fs::write(&trace, "r 8\nw 16\n".repeat(10)).unwrap();
    let cell = ["--policy", "lru", "--frames", "1", "--after-cache", out];
    run(&[&["compare", trace.to_str().unwrap()], &cell[..]].concat());
    let after = dir.path().join("my.web.trace.lru.1.parquet");
    let content = fs::read(&after).unwrap();
    // The same cell would replace the file again.
    let output =
        super::flashsift().args(["compare", trace.to_str().unwrap()]).args(cell).output().unwrap();
    let says = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{says}");
    assert!(says.contains("exists and is not replaced"), "{says}");
    assert_eq!(fs::read(&after).unwrap(), content);
}

/// Requests past the cache, of a descriptor that was opened with O_DIRECT, are in the counts of the
/// device and in the after-cache trace. A direct write drops what the cache holds.
// Promises: Counting 12.
#[test]
fn direct_requests_reach_the_device() {
    let dir = tempdir().unwrap();
    let (path, out) = (dir.path().join("trace.strace"), dir.path().join("out"));
    let calls = [
        "openat(AT_FDCWD, \"/a\", O_RDWR|O_DIRECT) = 3",
        "openat(AT_FDCWD, \"/a\", O_RDWR) = 4",
        "pread64(4, \"\"..., 8192, 0) = 8192",
        "pread64(4, \"\"..., 8192, 0) = 8192",
        "pwrite64(3, \"\"..., 12288, 0) = 12288",
        "pread64(4, \"\"..., 8192, 0) = 8192",
        "pread64(3, \"\"..., 4096, 0) = 4096",
    ];
    fs::write(&path, calls.map(|call| format!("{call}\n")).concat()).unwrap();
    let (path, out) = (path.to_str().unwrap(), out.to_str().unwrap());
    let args = ["--policy", "lru", "--frames", "8", "--after-cache", out];
    let cell = &cells(&[&["compare", path], &args[..]].concat())[0];
    let counts = |fields: &[&str]| fields.iter().map(|name| number(cell, name)).collect::<Vec<_>>();
    assert_eq!(counts(&["read_accesses", "write_accesses", "hits"]), [6, 0, 2]);
    assert_eq!(counts(&["device_reads", "device_writes"]), [2 + 2 + 1, 3]);
    assert_eq!(counts(&["direct_reads", "direct_writes"]), [1, 3]);
    let after = format!("{out}/trace.lru.8.parquet");
    let after = &cells(&["compare", &after, "--policy", "fifo", "--frames", "1"])[0];
    assert_eq!((number(after, "read_accesses"), number(after, "write_accesses")), (5, 3));
}

/// One offline policy that exceeded the memory limit once ended a comparison of all policies.
// Promises: Traces 7.
#[test]
fn a_policy_that_exceeds_the_memory_limit_is_left_out() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("trace.strace");
    // 300 reads of 8 MiB: few pages to hold at 8 bytes a step, and 614,400 accesses whose future
    // is needed.
    let read = "pread64(3, \"\"..., 8388608, 0) = 8388608\n";
    fs::write(&path, format!("openat(AT_FDCWD, \"/a\", O_RDONLY) = 3\n{}", read.repeat(300)))
        .unwrap();
    let path = path.to_str().unwrap();
    let args =
        ["compare", path, "--frames", "16", "--trace-memory", "2M", "--threads", "1", "--json"];
    let output = run(&[&args[..], &["--policy", "all"]].concat());
    let says = String::from_utf8(output.stderr).unwrap();
    assert!(says.contains("`all` does not include `belady`"), "{says}");
    let (_, says) = ended(super::flashsift().args(args).args(["--policy", "belady"]), 1);
    assert!(says.contains("--trace-memory"));
}

/// Pauses, requests and the part of the traces: noted by `import`, kept by copies, shown by
/// `describe`, refused where they make no sense.
// Promises: Traces 24, Traces 25, Traces 26.
#[test]
fn notes_are_kept_and_shown() {
    let dir = tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for (name, boot_us) in [("raw", Some(1_000_000)), ("clockless", None)] {
        let knows = Knows { times: true, writes: true, ..Knows::NOTHING };
        let about =
            About { epoch_us: None, boot_us, side: Side::Before, space: Space::Files, knows };
        let read = |at_us| {
            let action = Action::Read { open: None, file: FileId(0), offset: 0, len: 1 };
            Event { at_us, pid: 0, tid: 0, action }
        };
        let mut writer = Writer::create(path(name).as_ref(), "x").unwrap();
        writer.about(about).unwrap();
        writer.events(&[0, 10, 20, 30].map(read)).unwrap();
        writer.finish(&Skipped::default()).unwrap();
    }
    fs::write(path("pauses"), "at_us,cut_us\n5,1\n1000015,500\n1000030,7\n1000031,1\n").unwrap();
    let request = |at_us: u64, bytes: u64| {
        format!(
            r#"{{"boottime_us":{at_us},"method":"GET","url":"/a","status":200,"bytes":{bytes}}}"#
        )
    };
    let log = [request(1_000_000, 1000), request(1_000_030, 200), request(1_000_031, 1)];
    fs::write(path("requests"), log.join("\n")).unwrap();
    let import = |from: &str, to: &str, options: &[&str]| {
        let (from, to) = (path(from), path(to));
        let args = [&["import", &from, "-o", &to], options].concat();
        flashsift().args(args).output().unwrap()
    };
    let (pauses, requests) = (path("pauses"), path("requests"));
    let both = ["--pauses", &pauses, "--requests", &requests, "--split", "test"];
    assert!(import("raw", "day", &both).status.success());
    assert!(import("day", "copy", &[]).status.success());
    for stored in ["day", "copy"] {
        let shown = cells(&["describe", &path(stored)]).remove(0);
        assert_eq!(number(&shown, "duration_us"), 30 + 507, "{stored}");
        assert_eq!(shown["split"], "test");
        assert_eq!(
            shown["restored"],
            serde_json::json!({ "pauses": 2, "restored_us": 507, "outside": 2 })
        );
        assert_eq!(
            shown["served"],
            serde_json::json!({
                "requests": 2, "bytes": 1200, "again_requests": 1, "again_bytes": 200, "outside": 1
            })
        );
        let text = String::from_utf8(run(&["describe", &path(stored)]).stdout).unwrap();
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in [
            "It is held apart for tests.",
            "2 pauses that the recording cut short are put back (2 more ended outside the trace).",
            "The web server answered 2 requests with 1.2 KiB; 1 of them sent a URL in full again, \
             200 B.",
        ] {
            assert!(text.contains(words), "{words:?} is not in {text}");
        }
    }
    // An after-cache trace of it is held apart, too.
    let after = path("after");
    run(&["compare", &path("day"), "--policy", "lru", "--frames", "1", "--after-cache", &after]);
    let after = format!("{after}/day.lru.1.parquet");
    assert_eq!(cells(&["describe", &after]).remove(0)["split"], "test");

    for (from, options, words) in [
        ("clockless", &both[..2], "does not hold CLOCK_BOOTTIME"),
        ("clockless", &both[2..4], "does not hold CLOCK_BOOTTIME"),
        ("day", &both[..2], "has restored pauses"),
        ("day", &both[2..4], "has restored pauses"),
        ("raw", &["--pauses", &requests], "line 1: the header is not"),
        ("raw", &["--requests", &pauses], "line 1: expected value"),
        ("raw", &["--split", "exam"], "not one of train, tune and test"),
    ] {
        let output = import(from, "refused", options);
        let says = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && says.contains(words), "{options:?}: {says}");
        assert!(!dir.path().join("refused").exists(), "{options:?}");
    }
}
