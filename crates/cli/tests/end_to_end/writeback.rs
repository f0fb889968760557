//! `--writeback`: the effects of its modes on real traces, and their errors.

use super::{cells, flashsift, number, repository, run, unmarked};
use serde_json::Value;
use std::fs;
use tempfile::tempdir;

const TRACES: [&str; 6] = ["browser", "feed", "game", "map", "messenger", "video"];

fn cell(trace: &str, writeback: &str, more: &[&str]) -> Value {
    let args = ["compare", trace, "--policy", "lru", "--writeback", writeback];
    cells(&[&args[..], more].concat()).remove(0)
}

/// In a cache that holds everything, `sync` writes the pages that `describe` counts as forced out
/// by syncs, in a separate count.
// Promises: Write-back 4, Describe 6.
#[test]
fn syncs_write_the_pages_that_describe_counts_as_forced_out() {
    for name in TRACES {
        let trace = repository(&format!("testdata/{name}.parquet"));
        let described: Value =
            serde_json::from_slice(&run(&["describe", &trace, "--json"]).stdout).unwrap();
        let forced = described.pointer("/sync_distance/forced_pages").and_then(Value::as_u64);
        let cell = cell(&trace, "sync", &["--memory", "64GiB"]);
        assert_eq!(Some(number(&cell, "sync_writes")), forced, "{name}");
        assert_eq!(cell["sync_writes"], cell["device_writes"], "nothing else is written");
        assert_eq!(cell["writeback"], "evict,sync");
    }
}

/// Policies that ignore dirty bits keep their hits; the writes that eviction alone avoids are no
/// longer avoided: short-lived files are deleted while they are dirty.
#[test]
fn eager_modes_write_more() {
    for name in TRACES {
        let trace = repository(&format!("testdata/{name}.parquet"));
        let cell = |writeback| cell(&trace, writeback, &["--memory", "16MiB", "--drain"]);
        let (evict, linux, hf) = (cell("evict"), cell("linux"), cell("hf"));
        for other in [&linux, &hf] {
            assert_eq!(other["hits"], evict["hits"], "{name}");
            assert!(number(other, "device_writes") >= number(&evict, "device_writes"), "{name}");
            assert!(number(other, "dropped_dirty") <= number(&evict, "dropped_dirty"), "{name}");
            assert_eq!(number(other, "dirty_left"), 0);
        }
        assert!(number(&hf, "device_writes") >= number(&linux, "device_writes"), "{name}");
        assert!(
            evict.get("sync_writes").is_none() && hf["writeback"] == "evict,periodic:5s,sync-all"
        );
    }
}

/// A mode that needs absent data is refused with advice; no value is invented.
// Promises: Write-back 10.
#[test]
fn a_mode_that_needs_absent_data_is_refused() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("trace");
    fs::write(&path, "w 8\nw 16\nr 8\n".repeat(10)).unwrap();
    let path = path.to_str().unwrap();
    let refused = |args: &[&str], says: &str| {
        let output =
            flashsift().args(["compare", path, "--policy", "lru"]).args(args).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{printed}");
        assert!(printed.contains(says), "{printed}");
    };
    refused(
        &["--writeback", "periodic:5s"],
        "--writeback evict,periodic:5s: it goes by time and the trace has none: give --rate N",
    );
    refused(&["--writeback", "linux", "--rate", "1"], "does not record syncs");
    refused(
        &["--writeback", "often"],
        "no mode of write-back is called `often`; there are: evict, periodic:5s",
    );
    refused(&["--ram", "4GiB"], "--ram is for Linux's flusher: add --writeback linux or expire");
    refused(&["--writeback", "periodic:5"], "`5` is not a time: write a time as 90s");
    // One request a second: both pages are dirty again at each of five ticks.
    let found = cell(path, "periodic:5s", &["--rate", "1", "--frames", "9"]);
    assert_eq!((number(&found, "device_writes"), number(&found, "dirty_left")), (10, 2));
    assert_eq!(number(&cell(path, "evict", &["--frames", "9"]), "device_writes"), 0);
}

/// `--ram` is the memory of which Linux's flusher takes its ratio: a machine with little memory
/// writes more, whatever the size of the cache.
#[test]
fn the_ratio_is_of_the_machines_memory() {
    let trace = repository("testdata/messenger.parquet");
    let writes = |mode: &str, args: &[&str]| {
        number(&cell(&trace, mode, &[&["--memory", "64M"], args].concat()), "device_writes")
    };
    let by_default = writes("linux", &[]);
    assert_eq!(by_default, writes("linux,ram=2GiB", &[]));
    assert_eq!(by_default, writes("linux", &["--ram", "8GiB"]), "no ratio is reached");
    let little = writes("linux", &["--ram", "1MiB"]);
    assert_eq!(little, writes("linux,ram=1MiB", &[]));
    assert!(by_default < little, "{by_default} {little}");
}

/// The table shows when pages are written and the number of syncs that wrote; an after-cache trace
/// has the flushes of these syncs.
#[test]
fn syncs_appear_in_every_output() {
    let trace = repository("testdata/messenger.parquet");
    let args = ["compare", &trace, "--policy", "lru", "--memory", "1M"];
    let shown = |more: &[&str]| String::from_utf8(run(&[&args[..], more].concat()).stdout).unwrap();
    let evict = shown(&["--writeback", "evict"]);
    assert!(evict.contains("Dirty pages are written on eviction only."), "{evict}");
    let linux = shown(&["--writeback", "linux"]);
    let words: String = linux.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("by a sync of their file") && words.contains("synced"), "{linux}");

    let dir = tempdir().unwrap();
    let out = dir.path().to_str().unwrap();
    let before = cell(&trace, "linux", &["--memory", "1M", "--after-cache", out]);
    let after = dir.path().join("messenger.lru.256.parquet");
    let after = cell(after.to_str().unwrap(), "sync", &["--frames", "1"]);
    assert_eq!(number(&after, "write_accesses"), number(&before, "device_writes"));
    assert_eq!(number(&after, "flushes"), number(&before, "flushes"));
}

/// A recording of files with times and syncs is compared under Linux's write-back; a trace that
/// lacks one of these under eviction only. A note names the choice and the reason.
// Promises: Write-back 16.
#[test]
fn the_default_is_linux_and_is_named() {
    let default = |trace: &str| {
        let output = run(&["compare", trace, "--policy", "lru", "--frames", "100", "--json"]);
        let cell: Value = serde_json::from_slice(&output.stdout).unwrap();
        (cell, String::from_utf8(output.stderr).unwrap())
    };
    let trace = repository("testdata/messenger.parquet");
    let (mut found, says) = default(&trace);
    let mut named = cell(&trace, "linux", &["--frames", "100"]);
    for cell in [&mut found, &mut named] {
        cell.as_object_mut().unwrap().remove("cpu_ns_per_access");
    }
    assert_eq!(found, named);
    let note = "note: --writeback linux: the trace is of files with times and syncs";
    assert!(says.contains(note), "{says}");

    let dir = tempdir().unwrap();
    let path = dir.path().join("trace");
    fs::write(&path, "w 8\nw 16\nr 8\n").unwrap();
    let (found, says) = default(path.to_str().unwrap());
    assert_eq!(found["writeback"], "evict");
    assert!(says.contains("note: --writeback evict: the trace is not of files"), "{says}");
    let output = run(&["compare", &trace, "--writeback", "evict", "--policy", "lru"]);
    assert!(!String::from_utf8(output.stderr).unwrap().contains("note: --writeback"));
}

/// Each choice of modes has the cells, the verdict and the after-cache traces that it has alone.
// Promises: Write-back 17, Compare 8.
#[test]
fn several_modes_give_the_figures_of_each_alone() {
    let trace = repository("testdata/messenger.parquet");
    let dir = tempdir().unwrap();
    let page = dir.path().join("page.html");
    let of = |modes: &[&str], out: &str| {
        let mut args = vec!["compare", &*trace, "--policy", "lru,fifo", "--memory", "1M,2M"];
        modes.iter().for_each(|modes| args.extend(["--writeback", modes]));
        let mut lines = cells(&[&args[..], &["--verdict", "--after-cache", out]].concat());
        lines.iter_mut().filter_map(Value::as_object_mut).for_each(|line| {
            line.remove("cpu_ns_per_access");
            if let Some(verdict) = line.get_mut("verdict").and_then(Value::as_object_mut) {
                verdict.remove("least_cpu");
            }
        });
        let (verdicts, cells): (Vec<_>, Vec<_>) =
            lines.into_iter().partition(|line| line.get("verdict").is_some());
        (cells, verdicts)
    };
    let out = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (linux, evict) = (of(&["linux"], &out("one")), of(&["evict"], &out("other")));
    let (cells, verdicts) = of(&["linux", "evict", "sync,expire"], &out("both"));
    assert_eq!(cells, [linux.0, evict.0].concat(), "equal modes count once");
    assert_eq!(verdicts, [linux.1, evict.1].concat());
    for (alone, mode) in [("one", "linux"), ("other", "evict")] {
        let bytes = |path: String| fs::read(dir.path().join(path)).unwrap().len();
        let both = bytes(format!("both/messenger.lru.{mode}.256.parquet"));
        assert_eq!(both, bytes(format!("{alone}/messenger.lru.256.parquet")));
    }
    let args = ["compare", &*trace, "--policy", "lru,fifo,clock", "--memory", "1M"];
    let modes = ["--writeback", "linux", "--writeback", "evict", "--report"];
    let report = [page.to_str().unwrap()];
    let shown = run(&[&args[..], &modes, &report].concat()).stdout;
    let shown = String::from_utf8(shown).unwrap();
    for mode in ["linux", "evict"] {
        assert!(shown.contains(&format!("(256 pages), --writeback {mode}")), "{shown}");
        assert!(shown.contains(&format!("In short, --writeback {mode}:")), "{shown}");
    }
    let page = unmarked(&fs::read_to_string(page).unwrap());
    assert!(page.contains("With --writeback linux:") && page.contains("With --writeback evict:"));
}
