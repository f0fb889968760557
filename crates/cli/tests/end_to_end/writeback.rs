//! `--writeback`: the effects of its modes on real traces, and their errors.

use super::{cells, flashsift, number, repository, run};
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
    assert!(shown(&[]).contains("Dirty pages are written on eviction only."));
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
