//! `compare --readahead` and `tune readahead` on real traces.

use super::{cells, flashsift, number, repository, run};
use flashsift_testbed::ended;
use serde_json::Value;
use std::fs;
use tempfile::tempdir;

fn compare(trace: &str, more: &[&str]) -> Vec<Value> {
    let trace = repository(&format!("testdata/{trace}.parquet"));
    let args = ["compare", &trace, "--memory", "32MiB", "--policy", "lru"];
    cells(&[&args[..], more].concat())
}

/// Each read of a cell is a hit or one of the misses, and each page that the device reads was
/// missed or prefetched.
#[test]
fn every_page_read_was_missed_or_prefetched() {
    for trace in ["browser", "days/launch-1"] {
        let readaheads = "off,linux:16k,linux:128k,linux:128k,kernel=6.1,paper:32";
        let cells = compare(trace, &["--readahead", readaheads, "--writeback", "evict"]);
        let labels: Vec<&str> =
            cells.iter().map(|cell| cell["readahead"].as_str().unwrap()).collect();
        let wanted =
            ["off", "linux:kib=16", "linux:kib=128", "linux:kib=128,kernel=6.1", "paper:pages=32"];
        assert_eq!(labels, wanted);
        for cell in &cells {
            let [cached, free, clean, dirty] =
                ["reads_cached", "reads_free", "reads_evict_clean", "reads_evict_dirty"]
                    .map(|field| number(cell, field));
            assert_eq!(cached, number(cell, "read_hits"), "{cell}");
            assert_eq!(cached + free + clean + dirty, number(cell, "read_accesses"), "{cell}");
            let direct = cell["direct_reads"].as_u64().unwrap_or(0);
            let read = free + clean + dirty + number(cell, "prefetched_read") + direct;
            assert_eq!(read, number(cell, "device_reads"), "{cell}");
            assert!(number(cell, "prefetched_used") <= number(cell, "prefetched_read"), "{cell}");
            assert!(number(cell, "prefetched_read") <= number(cell, "prefetched_asked"), "{cell}");
        }
        let [off, small, large] = [&cells[0], &cells[1], &cells[2]];
        assert_eq!((number(off, "windows"), number(off, "prefetched_read")), (0, 0));
        // Larger windows take fewer requests and waste more. Hits may fall: what is read in vain
        // evicts other pages.
        for (field, rises) in [("wasted_bytes", true), ("device_read_requests", false)] {
            let (before, after) = (number(small, field), number(large, field));
            assert_eq!(before < after, rises, "{trace}: {field}: {before} and {after}");
        }
        assert!(number(large, "hits") > number(off, "hits"), "{trace}");
    }
}

/// Without `--readahead`, and with `off` alone, hits and device pages are the same.
#[test]
fn off_changes_nothing() {
    let plain = compare("feed", &[]);
    let off = compare("feed", &["--readahead", "off"]);
    for field in ["hits", "read_hits", "device_reads", "device_writes", "sync_writes"] {
        assert_eq!(plain[0][field], off[0][field], "{field}");
    }
    assert!(plain[0]["windows"].is_null() && off[0]["windows"] == 0);
}

const CASES: [&str; 4] = ["cached", "free", "evict_clean", "evict_dirty"];

/// The reads of the cases are those of the trace, and the time of each case is part of the time on
/// the device. The table shows the figures of the JSON. Without a device there are none.
// Promises: Read-ahead 9.
#[test]
fn cases_of_reads_are_parts_of_the_time_on_a_device() {
    let readaheads = ["--readahead", "off,linux:16k,linux:128k", "--writeback", "evict"];
    let args = [&readaheads[..], &["--device", "latency-100-800"]].concat();
    let cells = compare("browser", &args);
    let of = |cell: &Value, case: &str, field: &str| cell["read_cases"][case][field].as_f64();
    let sum = |cell: &Value, field: &str| -> f64 {
        let us = |case: &&str| Some(of(cell, case, "reads")? * of(cell, case, field)?);
        CASES.iter().filter_map(us).sum()
    };
    let reads = |cell: &Value| CASES.map(|case| of(cell, case, "reads").unwrap());
    let all = reads(&cells[0]).iter().sum::<f64>();
    assert!(all > 0.0);
    for cell in &cells {
        assert_eq!(reads(cell).iter().sum::<f64>(), all, "{cell}");
        for (field, whole) in [("latency_us", "elapsed_s"), ("stall_us", "stall_s")] {
            let (part, whole) = (sum(cell, field), cell[whole].as_f64().unwrap() * 1e6);
            assert!(part > 0.0 && part <= 1.000_001 * whole, "{part} of {whole} µs: {cell}");
        }
        let [cached, free, clean, dirty] = CASES.map(|case| of(cell, case, "latency_us").unwrap());
        // Read-ahead may evict a cached page before the read that begins it comes to that page.
        assert!(cached < 0.1 && free.min(clean) >= 100.0 && dirty > 800.0, "{cell}");
    }
    assert!(reads(&cells[0])[0] < reads(&cells[2])[0], "read-ahead makes more reads cached");

    let trace = repository("testdata/browser.parquet");
    let args = [&["compare", &trace, "--memory", "32MiB", "--policy", "lru"][..], &args].concat();
    let shown = String::from_utf8(run(&args).stdout).unwrap();
    let (_, table) = shown.split_once("  cases of reads on latency-100-800\n").unwrap();
    for cell in &cells {
        let name = cell["readahead"].as_str().unwrap();
        let row = table.lines().find(|line| line.contains(name)).unwrap();
        for (case, field) in
            CASES.iter().flat_map(|case| ["latency_us", "stall_us"].map(|of| (case, of)))
        {
            let value = format!(" {:.1}", of(cell, case, field).unwrap());
            assert!(row.contains(&value), "{case}, {field} {value}: {row}");
        }
    }
    let without = compare("browser", &readaheads);
    assert!(without[0].get("read_cases").is_none() && number(&without[0], "reads_cached") > 0);
}

/// The recording tells neither open files nor sizes of files, strace tells open files. A note says
/// so under the tables, and beside the figures. Figures need several read-aheads.
// Promises: Read-ahead 10.
#[test]
fn a_trace_without_open_files_gives_bounds() {
    let dir = tempdir().unwrap();
    let page = dir.path().join("page.html");
    let page = page.to_str().unwrap();
    let lacks_all = "The trace does not tell which open file was read, so all reads of a file \
                     count as one reader; nor the sizes of files,";
    for (trace, lacks) in [
        ("testdata/browser.parquet", lacks_all),
        (
            "crates/cli/tests/end_to_end/describe.strace",
            "The trace does not tell the sizes of files,",
        ),
    ] {
        let trace = repository(trace);
        let args = ["compare", &trace, "--frames", "256", "--readahead"];
        let note = format!("The figures of read-ahead are bounds. {lacks}");
        let shown = run(&[&args[..], &["off,linux:128k", "--report", page]].concat()).stdout;
        let shown = String::from_utf8(shown).unwrap();
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.contains(&note), "{shown}");
        let html = fs::read_to_string(page).unwrap();
        let section = html.split_once("<section id=\"read-ahead\">").unwrap().1;
        let section = section.split_once("</section>").unwrap().0;
        assert!(section.contains(&note), "{trace}");
        assert!(section.contains("<figure id=\"readahead-hits\">"), "{trace}");
        for one in ["off", "linux:128k"] {
            let shown = run(&[&args[..], &[one, "--report", page]].concat()).stdout;
            let shown = String::from_utf8(shown).unwrap();
            assert_eq!(shown.contains("The figures of read-ahead are bounds"), one != "off");
            assert!(!fs::read_to_string(page).unwrap().contains("id=\"read-ahead\""));
        }
    }
}

#[test]
fn what_is_not_modelled_with_read_ahead_is_refused() {
    let trace = repository("testdata/feed.parquet");
    for (args, says) in [
        (&["--readahead", "linux:128k", "--policy", "belady"][..], "knows the next accesses"),
        (&["--readahead", "linux:128k", "--writeback", "cluster:128KiB"], "cluster write-back"),
        (&["--readahead", "linux:128m"], "`128m` is no value"),
        (&["--readahead", "windows"], "no read-ahead is called `windows`"),
    ] {
        let (_, error) = ended(flashsift().args(["compare", &trace]).args(args), 2);
        assert!(error.contains(says), "{args:?}: {error}");
    }
}

fn tuned(trace: &str, more: &[&str]) -> Value {
    let trace = repository(&format!("testdata/{trace}.parquet"));
    let args = ["tune", "readahead", &trace, "--memory", "64MiB", "--json"];
    let (out, _) = ended(flashsift().args(args).args(more), 0);
    serde_json::from_str(&out).expect("it prints JSON")
}

/// The curve holds every size. The proposal is the smallest in its flat part if that saves time for
/// certain, else the present one.
#[test]
fn a_trace_has_a_curve_and_a_proposal() {
    let found = &tuned("game", &[])["readahead"];
    let sizes = found["sizes"].as_array().unwrap();
    let kib: Vec<u64> = sizes.iter().map(|size| number(size, "kib")).collect();
    assert_eq!(kib, [0, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096]);
    let time = |kib: u64| {
        let size = sizes.iter().find(|size| number(size, "kib") == kib);
        size.and_then(|size| size["elapsed_s"].as_f64()).unwrap()
    };
    let proposed = number(found, "proposed_kib");
    let recommended = found["recommended"].as_bool().unwrap();
    let present = number(found, "present_kib");
    let smallest = found["flat_kib"][0].as_u64().unwrap();
    assert_eq!(proposed, if recommended { smallest } else { present });
    let least = kib.iter().map(|kib| time(*kib)).fold(f64::INFINITY, f64::min);
    assert!(time(smallest) <= 1.01 * least);
    assert!(smallest <= number(found, "best_kib"));
    assert!(time(0) > least, "levels are read in order");
    // The default memory is a power of two below the footprint, so that something is read again.
    let trace = repository("testdata/browser.parquet");
    let output = run(&["tune", "readahead", &trace, "--json"]);
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found = &found["readahead"];
    assert!(number(found, "memory_bytes").is_power_of_two(), "{found}");
    assert!(number(found, "memory_bytes") < 256 << 20 && found["proposed_kib"].is_u64());
    // A present size that is not a power of two is tried, too.
    let found = &tuned("feed", &["--present", "96"])["readahead"];
    assert!(found["sizes"].as_array().unwrap().iter().any(|size| number(size, "kib") == 96));
    assert!(found["lack"].is_string() != found["proposed_kib"].is_u64());
}

/// The prefetches by program and by file are those of the present size, however many are listed.
// Promises: Read-ahead 11.
#[test]
fn prefetches_by_program_and_by_file_add_up() {
    for top in ["1", "100000"] {
        let found = &tuned("game", &["--top", top])["readahead"];
        let sizes = found["sizes"].as_array().unwrap();
        let present = sizes.iter().find(|size| number(size, "kib") == 128).unwrap();
        for table in ["programs", "files"] {
            let rows = found["by_file"][table].as_array().unwrap();
            let sum = |field: &str| rows.iter().map(|row| number(row, field)).sum::<u64>();
            for (field, of_size) in [
                ("windows", "windows"),
                ("asked_pages", "prefetched_asked"),
                ("ahead_pages", "prefetched_read"),
                ("used_pages", "prefetched_used"),
                ("wasted_bytes", "wasted_bytes"),
                ("read_requests", "read_requests"),
            ] {
                assert_eq!(sum(field), number(present, of_size), "{table}: {field}");
            }
            let unused = sum("dropped_pages") + sum("unused_pages");
            assert_eq!(4096 * unused, number(present, "wasted_bytes"));
            // The last row is the sum of all others, and has no name.
            assert_eq!(rows.last().unwrap()["name"].is_null(), top == "1", "{rows:?}");
            assert!(rows[0]["name"].is_string());
        }
    }
}

/// `describe` took the size and the policy of a cache that it did not simulate, without a word.
/// Each needs an option that simulates one.
#[test]
fn describe_refuses_a_cache_that_it_does_not_simulate() {
    let trace = repository("testdata/feed.parquet");
    for (args, needs) in [
        (&["--memory", "10MiB"][..], "--readahead"),
        (&["--memory", "10MiB", "--policy", "lru"], "--readahead"),
        (&["--policy", "lru"], "--readahead"),
        (&["--policy", "lru", "--sift"], "--readahead"),
    ] {
        let (_, error) = ended(flashsift().args(["describe", &trace]).args(args), 2);
        assert!(error.contains("required") && error.contains(needs), "{args:?}: {error}");
    }
}

/// `describe` simulates only if it is asked to, and lists the same files.
// Promises: Read-ahead 11.
#[test]
fn describe_lists_the_files_that_waste_most() {
    let trace = repository("testdata/browser.parquet");
    let described = |more: &[&str]| -> Value {
        let (out, _) = ended(flashsift().args(["describe", &trace, "--json"]).args(more), 0);
        serde_json::from_str(&out).unwrap()
    };
    assert!(described(&[])["readahead"].is_null());
    let asked = ["--readahead", "linux:128k", "--memory", "64MiB", "--top", "3"];
    let found = &described(&asked)["readahead"];
    let tuned = &tuned("browser", &["--top", "3"])["readahead"]["by_file"];
    for table in ["programs", "files"] {
        let rows = found[table].as_array().unwrap();
        for (row, wanted) in rows.iter().zip(tuned[table].as_array().unwrap()) {
            assert_eq!(row["wasted_bytes"], wanted["wasted_bytes"], "{table}");
            assert_eq!(row["windows"], wanted["windows"], "{table}");
        }
        let sum: u64 = rows.iter().map(|row| number(row, "wasted_bytes")).sum();
        assert_eq!(sum, number(found, "wasted_bytes"), "{table}");
    }
}

/// Advice belongs to an open file, and a trace of a block device has none.
// Promises: Read-ahead 12.
#[test]
fn a_trace_without_opens_gets_no_advice() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("t.csv");
    let line = |n: u64| format!("{},host,0,Read,{},4096,10\n", n * 10_000, 40_960 * (n % 97));
    std::fs::write(&trace, (0..500).map(line).collect::<String>()).unwrap();
    let output = flashsift()
        .args(["tune", "readahead", trace.to_str().unwrap(), "--format", "msr"])
        .output()
        .unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let words = printed.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("advice cannot be judged: it belongs to an open file"), "{printed}");
}
