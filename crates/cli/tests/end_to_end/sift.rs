//! `compare --sift` on real traces.

use super::{cells, flashsift, number, repository, run};
use flashsift_testbed::ended;
use serde_json::Value;
use std::collections::BTreeMap;

fn sift(trace: &str, more: &[&str]) -> BTreeMap<String, Value> {
    let trace = repository(&format!("testdata/{trace}.parquet"));
    let cells = cells(&[&["compare", &trace][..], more].concat());
    cells.into_iter().map(|cell| (cell["sifter"].as_str().unwrap().to_owned(), cell)).collect()
}

/// Without a sifter nothing is kept. One that drops everything keeps the most and lets the most be
/// fetched again; the oracle lets nothing be fetched again. Files that may not be dropped reach
/// flash as without a sifter, but for `keep`, which holds them, too.
// Promises: Sift 3, Sift 5.
#[test]
fn sifters_keep_bytes_from_flash_at_the_price_of_bytes_fetched_again() {
    for (trace, more) in [
        ("browser", &["--memory", "32MiB"][..]),
        ("map", &["--memory", "32MiB", "--droppable", "*/tiles/*"]),
        ("days/browser-days-1", &["--memory", "64MiB", "--sift-memory", "25%"]),
    ] {
        let found = sift(trace, &[&["--sift", "all,random:p=0"], more].concat());
        let [none, all, touch, oracle, written] =
            ["none", "drop-all", "touch", "oracle", "random:p=0"].map(|sifter| &found[sifter]);
        assert_eq!(number(none, "flash_bytes"), number(none, "stock_bytes"), "{trace}");
        assert_eq!((number(none, "dropped_files"), number(none, "sifter_bytes")), (0, 0));
        let flash = |cell| number(cell, "flash_bytes");
        let again = |cell| number(cell, "fetched_again_bytes");
        assert!(flash(all) < flash(touch) && flash(touch) < flash(none), "{trace}");
        assert!(again(all) > again(touch) && again(touch) > 0, "{trace}");
        assert!(again(oracle) == 0 && number(oracle, "dropped_files") > 0, "{trace}");
        assert!(flash(oracle) < flash(touch), "{trace}");
        for (name, cell) in &found {
            assert_eq!(cell["flash_bytes_min"].is_u64(), name == "oracle", "{trace}: {name}");
            let bound = |half| number(oracle, &format!("{half}flash_bytes_min"));
            let flash = |half| number(cell, &format!("{half}flash_bytes"));
            if again(cell) == 0 {
                let (all, later) = (bound("") <= flash(""), bound("later_") <= flash("later_"));
                assert!(all && later, "{trace}: {name} is better than the bound");
            }
        }
        let most = oracle["kept_share_max"].as_f64().unwrap();
        assert!(most <= 1.0 && most >= oracle["kept_share"].as_f64().unwrap(), "{trace}: {most}");
        assert_eq!((number(written, "dropped_files"), again(written)), (0, 0), "{trace}");
        for (sifter, cell) in &found {
            assert!(number(cell, "ram_bytes_peak") <= number(cell, "sifter_bytes"), "{sifter}");
            let (stock, flash) = (number(cell, "stock_bytes") as f64, flash(cell) as f64);
            let share = cell["kept_share"].as_f64().unwrap();
            assert!((share - (stock - flash) / stock).abs() < 1e-9, "{sifter}: {share}");
            assert!(number(cell, "later_flash_bytes") <= number(cell, "flash_bytes"), "{sifter}");
            if sifter != "keep" {
                let others = |cell| number(cell, "other_flash_bytes");
                assert_eq!(others(cell), others(none), "{trace}: {sifter}");
            }
        }
    }
}

/// The sifter's part of the memory is not there for the page cache, and `none` is a plain cell.
// Promises: Sift 4.
#[test]
fn the_memory_is_one() {
    let found =
        sift("browser", &["--sift", "drop-all", "--memory", "32MiB", "--sift-memory", "8MiB"]);
    let [none, all] = ["none", "drop-all"].map(|sifter| &found[sifter]);
    assert_eq!((number(all, "memory_bytes"), number(all, "sifter_bytes")), (32 << 20, 8 << 20));
    let trace = repository("testdata/browser.parquet");
    let plain = cells(&["compare", &trace, "--policy", "lru", "--memory", "32MiB", "--drain"]);
    for field in ["accesses", "hits", "device_reads", "device_writes"] {
        assert_eq!(none[field], plain[0][field], "{field}");
    }
    let more =
        sift("browser", &["--sift", "drop-all", "--memory", "40MiB", "--sift-memory", "8MiB"]);
    for field in ["flash_bytes", "fetched_again_bytes", "dropped_files"] {
        assert_eq!(more["drop-all"][field], all[field], "the sifter has the same RAM: {field}");
    }
    assert!(number(&more["drop-all"], "device_reads") < number(all, "device_reads"));
}

/// A longer `dirty_expire_centisecs` keeps what is deleted until then, in as much RAM as a sifter
/// would have. The page cache keeps all of the memory.
// Promises: Sift 11.
#[test]
fn the_kernel_may_wait_longer() {
    let sifters = "none:expire=30s,none:expire=600s,oracle,tmpfs";
    let found = sift("browser", &["--sift", sifters, "--memory", "32MiB"]);
    let [none, same, longer] =
        ["none", "none:expire=30s", "none:expire=600s"].map(|sifter| &found[sifter]);
    let flash = |cell| number(cell, "flash_bytes");
    assert_eq!(
        (flash(same), number(same, "device_writes")),
        (flash(none), number(none, "device_writes"))
    );
    assert!(flash(longer) < flash(none) && number(longer, "fetched_again_bytes") == 0);
    assert!(number(longer, "device_writes") < number(none, "device_writes"));
    assert_eq!(number(longer, "sifter_bytes"), 0);
    let table = run(&["compare", &repository("testdata/browser.parquet"), "--sift", sifters]);
    let table = String::from_utf8(table.stdout).unwrap();
    let row = table.lines().find(|line| line.trim_start().starts_with("upper bound (offline) "));
    let most = found["oracle"]["kept_share_max"].as_f64().unwrap();
    assert!(row.unwrap().contains(&format!(" {:.1} ", 100.0 * most)), "{table}");
}

/// With a device and a file system, each row has its time and the pages of journal and metadata.
#[test]
fn sifters_save_time_and_metadata() {
    let trace = repository("testdata/map.parquet");
    let args = ["compare", &trace, "--sift", "drop-all", "--droppable", "*/tiles/*"];
    let more = ["--device", "emmc-5.1", "--metadata", "ext4"];
    let cells = cells(&[&args[..], &more].concat());
    let [none, all] = [&cells[0], &cells[1]];
    let seconds = |cell: &Value| cell["elapsed_s"].as_f64().unwrap();
    assert!(seconds(all) < seconds(none), "{} and {}", seconds(all), seconds(none));
    let metadata = |cell| number(cell, "journal_writes") + number(cell, "metadata_writes");
    assert!(0 < metadata(all) && metadata(all) < metadata(none));
    let table = String::from_utf8(run(&[&args[..], &more].concat()).stdout).unwrap();
    assert!(table.contains("memory of 32 MiB, 16 MiB of it for the sifter"), "{table}");
    assert!(table.lines().any(|line| line.trim_start().starts_with("drop-all ")), "{table}");
}

/// With `--explain`, each decision on a file that matches is explained, and the cells stay the
/// same. Each drop is one line, and those that a use follows are the files fetched again.
// Promises: Sift 17.
#[test]
fn decisions_are_explained() {
    let trace = repository("testdata/browser.parquet");
    let sifters = "controller,touch,cachesifter,oracle,keep";
    let args = ["compare", &trace, "--sift", sifters, "--memory", "16MiB"];
    let plain = cells(&args);
    let lines = cells(&[&args[..], &["--explain", "*"]].concat());
    let (explained, with): (Vec<Value>, Vec<Value>) =
        lines.into_iter().partition(|line| line["decision"].is_object());
    assert_eq!(with, plain);
    for cell in &plain {
        let sifter = cell["sifter"].as_str().unwrap();
        let drops = || {
            let lines = explained.iter().filter(|line| line["sifter"] == sifter);
            lines.map(|line| &line["decision"]).filter(|decision| decision["intent"] == "drop")
        };
        assert_eq!(drops().count() as u64, number(cell, "dropped_files"), "{sifter}");
        let again = drops().filter(|decision| decision["followed"] == "use").count() as u64;
        assert_eq!(again, number(cell, "fetched_again_files"), "{sifter}");
    }
    let words = |pattern: &str| {
        let output = run(&[&args[..], &["--explain", pattern]].concat());
        String::from_utf8(output.stdout).unwrap()
    };
    let text = words("*");
    for part in [
        "controller, memory of 16 MiB: ",
        "dropped; never used again",
        "dropped; fetched again after ",
        "written; used again after ",
        "more; --json has all of them",
        "chance of a later use ",
        "new reads 0 < 1",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert!(words("/nowhere/*").contains("No sifter decides on a file like /nowhere/*."));
}

/// A trace without droppable files ended with 2, though the command line is right for other traces.
/// Its content is at fault, so the status is 1.
#[test]
fn what_cannot_be_sifted_is_refused() {
    let feed = repository("testdata/feed.parquet");
    let output = flashsift().args(["compare", &feed, "--sift", "all"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(error.contains("creates no file that may be dropped"), "{error}");
    for (args, says) in [
        (&["--sift", "drop"][..], "no sifter is called `drop`"),
        (&["--sift", "touch:pause=x"], "`x` is no value"),
        (&["--sift", "all", "--sift-memory", "100%"], "less than 100%"),
        (&["--sift", "all", "--system", "fslru"], "cannot be used with"),
        (&["--droppable", "*"], "--sift"),
        (&["--explain", "*"], "--sift"),
        (&["--sift", "all", "--policy", "all"], "--policy takes one value"),
        (&["--sift", "all", "--policy", "lru,arc"], "--policy takes one value"),
        (
            &["--sift", "all", "--writeback", "hf", "--writeback", "evict"],
            "--writeback takes one value",
        ),
    ] {
        let (_, error) = ended(flashsift().args(["compare", &feed]).args(args), 2);
        assert!(error.contains(says), "{args:?}: {error}");
    }
}
