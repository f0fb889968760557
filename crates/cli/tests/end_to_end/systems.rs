//! `compare --system`: systems with and without non-volatile memory on real traces.

use super::{cells, flashsift, number, repository, run};
use flashsift_testbed::ended;
use serde_json::Value;

fn compare(trace: &str, more: &[&str]) -> Vec<Value> {
    let trace = repository(&format!("testdata/{trace}.parquet"));
    let args = ["compare", &trace, "--memory", "4MiB", "--writeback", "hf"];
    cells(&[&args[..], more].concat())
}

fn cell_of<'a>(cells: &'a [Value], system: &str) -> &'a Value {
    cells.iter().find(|cell| cell["system"] == system).unwrap_or_else(|| panic!("no {system}"))
}

/// A deleted page was spared as one of the two used last, though no cache holds it. The count then
/// differed from this one, which is that of an independent replica.
#[test]
fn hybrid_flush_spares_no_deleted_page() {
    let trace = repository("testdata/browser.parquet");
    let args = ["compare", &trace, "--frames", "4062", "--writeback", "hf"];
    let cells = cells(&[&args[..], &["--system", "hybrid-flush:pages=1024"]].concat());
    assert_eq!(number(&cells[0], "device_writes"), 43_822);
}

/// Without removals nothing is dropped, a name has its blocks for good, so there are fewer pages to
/// read, and the accesses are the same. Flush-NVM writes more, because it keeps deleted pages.
// Promises: Counting 6.
#[test]
fn removals_can_be_ignored() {
    let [with, without] = ["follow", "ignore"]
        .map(|how| compare("browser", &["--system", "flush-nvm:pages=256", "--removals", how]));
    let (with, without) = (&with[0], &without[0]);
    for field in ["read_accesses", "write_accesses"] {
        assert_eq!(with[field], without[field], "{field}");
    }
    assert_eq!((with.get("removals"), &without["removals"]), (None, &Value::from("ignore")));
    assert!(number(with, "dropped_dirty") > 0);
    assert_eq!(number(without, "dropped_dirty"), 0);
    assert!(number(without, "device_writes") > number(with, "device_writes"));
}

/// Every system has every figure, and the figures have the relations that their systems promise.
// Promises: Systems 1.
#[test]
fn all_systems_stand_side_by_side() {
    let fields = [
        "hits",
        "device_reads",
        "device_writes",
        "sync_writes",
        "dirty_left",
        "nvm_reads",
        "nvm_writes",
        "nvm_left",
        "dram_accesses",
        "storage_read_s",
        "storage_write_s",
        "elapsed_s",
        "stall_s",
    ];
    for trace in ["messenger", "browser"] {
        let cells = compare(trace, &["--system", "all", "--device", "ufs-3.1"]);
        let systems: Vec<&str> =
            cells.iter().map(|cell| cell["system"].as_str().unwrap()).collect();
        assert_eq!(systems, ["storage", "flush-nvm", "hybrid-flush", "nvlru", "fslru"]);
        for cell in &cells {
            for field in fields {
                assert!(cell[field].is_number(), "{trace}: no {field} in {cell}");
            }
            let memory = &cell["memory"]["pcm-2016"];
            let energies =
                ["energy_j", "energy_mj_page_j", "energy_by_time_j", "energy_quotient_w"];
            for field in ["dram_s", "nvm_read_s", "nvm_write_s"].into_iter().chain(energies) {
                assert!(memory[field].is_number(), "{trace}: no {field} in {cell}");
            }
        }
        let plain = cell_of(&cells, "storage");
        assert_eq!((number(plain, "nvm_reads"), number(plain, "nvm_writes")), (0, 0));
        // Behind the same page cache: as many hits, and each miss is served by one medium.
        for system in ["flush-nvm", "hybrid-flush"] {
            let cell = cell_of(&cells, system);
            assert_eq!(cell["hits"], plain["hits"], "{trace}: {system}");
            let read = number(cell, "device_reads") + number(cell, "nvm_reads");
            assert_eq!(read, number(plain, "device_reads"), "{trace}: {system}");
            assert_eq!(cell["dram_accesses"], plain["dram_accesses"], "{trace}: {system}");
            let due = |cell| number(cell, "device_writes") + number(cell, "nvm_left");
            assert!(due(cell) < due(plain), "{trace}: {system}");
        }
        // Flush-NVM takes everything; hybrid flush sends pages written once past the buffer.
        assert_eq!(number(cell_of(&cells, "flush-nvm"), "sync_writes"), 0, "{trace}");
        assert!(number(cell_of(&cells, "hybrid-flush"), "sync_writes") > 0, "{trace}");
        // A sync ends in non-volatile memory.
        for system in ["nvlru", "fslru"] {
            assert_eq!(number(cell_of(&cells, system), "sync_writes"), 0, "{trace}: {system}");
        }
        assert_eq!(number(cell_of(&cells, "nvlru"), "dram_accesses"), 0, "{trace}");
    }
}

/// Sizes in pages, in MiB and as a share are the same sizes, and a larger buffer writes less.
// Promises: Systems 4.
#[test]
fn a_buffer_has_the_size_that_was_asked_for() {
    let sizes = "flush-nvm:pages=256,flush-nvm:mib=1,flush-nvm:pages=1024,flush-nvm:share=100";
    let cells = compare("messenger", &["--system", sizes]);
    let writes: Vec<u64> = cells.iter().map(|cell| number(cell, "device_writes")).collect();
    assert_eq!(writes[0], writes[1]);
    assert!(writes[1] > writes[2] && writes[2] > writes[3], "{writes:?}");
    assert_eq!(writes[3], 0, "the buffer holds every page");
    // The FLUSH before the place of a page is used again.
    let [with, without] = ["yes", "no"].map(|flush| {
        let system = format!("flush-nvm:pages=256,flush={flush}");
        compare("messenger", &["--system", &system]).remove(0)
    });
    assert_eq!(with["device_writes"], without["device_writes"]);
    assert!(number(&with, "flushes") > number(&without, "flushes"));
}

// Promises: Systems 5.
#[test]
fn a_drain_leaves_nothing_in_memory() {
    let cells = compare("messenger", &["--system", "all", "--drain"]);
    for cell in &cells {
        let left = (number(cell, "dirty_left"), number(cell, "nvm_left"));
        assert_eq!(left, (0, 0), "{cell}");
        if cell["system"] != "storage" {
            assert!(number(cell, "drained") > 0, "{cell}");
        }
    }
}

#[test]
fn impossible_systems_are_errors() {
    let trace = repository("testdata/messenger.parquet");
    for (args, says) in [
        (&["--system", "nvram"][..], "no system is called `nvram`"),
        (&["--system", "fslru:dram=101"], "is no value for fslru's dram"),
        (&["--system", "fslru", "--frames", "2"], "needs a cache of at least 3 pages"),
        (&["--system", "fslru", "--metadata", "ext4"], "cannot be used with"),
        (&["--system", "fslru", "--writeback", "linux,cluster:128KiB"], "cluster write-back"),
        (&["--nvm", "hdd"], "no memory for --nvm is called `hdd`"),
    ] {
        let (_, error) = ended(flashsift().args(["compare", &trace]).args(args), 2);
        assert!(error.contains(says), "{args:?}: {error}");
    }
}

/// The tables name the pages left in non-volatile memory beside the writes.
#[test]
fn tables_show_memory() {
    let trace = repository("testdata/messenger.parquet");
    let args = ["compare", &trace, "--memory", "4MiB", "--system", "all", "--nvm", "optane"];
    let output = run(&args);
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("in NVM") && printed.contains("memory optane"), "{printed}");
    assert!(!printed.contains("energy"), "the source gives none: {printed}");
}

/// Three sizes of a buffer and the cache without it show how much of it is enough.
// Promises: Systems 7.
#[test]
fn the_verdict_names_the_knee_of_a_buffer() {
    let sizes = "storage,flush-nvm:pages=16,flush-nvm:pages=256,flush-nvm:pages=1024";
    let lines = compare("messenger", &["--system", sizes, "--verdict"]);
    let (verdict, cells) = lines.split_last().unwrap();
    let knee = &verdict["verdict"]["sizes"][0]["knees"][0];
    let due = |cell: &Value| {
        number(cell, "device_writes") + number(cell, "dirty_left") + number(cell, "nvm_left")
    };
    let saving = |cell: &Value| 1.0 - due(cell) as f64 / due(&cells[0]) as f64;
    let most = cells[1..].iter().map(saving).fold(0.0, f64::max);
    let wanted = cells[1..].iter().find(|cell| saving(cell) >= 0.9 * most).unwrap();
    assert_eq!(knee["knee_pages"], wanted["nvm_pages"], "{verdict}");
    assert!((knee["most_saving"].as_f64().unwrap() - most).abs() < 1e-9, "{verdict}");
    let trace = repository("testdata/messenger.parquet");
    let args = ["compare", &trace, "--memory", "4MiB", "--writeback", "hf", "--system", sizes];
    let printed = String::from_utf8(run(&args).stdout).unwrap();
    let words: Vec<&str> = printed.split_whitespace().collect();
    assert!(words.join(" ").contains("the knee is at"), "{printed}");
}
