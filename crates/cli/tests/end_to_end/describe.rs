//! The exact output of `describe` for a small trace, and properties of its output for every other
//! trace.

use super::{cells, number, repository, run, shared};
use flashsift_testbed::ended;
use serde_json::Value;
use std::{fs, path::PathBuf};
use tempfile::tempdir;

fn sample() -> String {
    repository("crates/cli/tests/end_to_end/describe.strace")
}

fn described(trace: &str) -> Value {
    let mut objects = cells(&["describe", trace]);
    assert_eq!(objects.len(), 1, "one object a trace");
    objects.remove(0)
}

fn text(args: &[&str]) -> String {
    String::from_utf8(run(&[&["describe"], args].concat()).stdout).unwrap()
}

/// An app with an SQLite database, a cache, settings that it replaces by renaming, and a logger.
#[test]
fn the_sample_is_described() {
    insta::with_settings!({ snapshot_path => repository("testdata/golden"), prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("describe", text(&[&sample()]));
        let json = described(&sample());
        insta::assert_snapshot!("describe-json", serde_json::to_string_pretty(&json).unwrap());
    });
}

/// Our recordings and foreign ones: the counts agree with `compare` and with each other, and the
/// text output is consistent.
// Promises: Describe 1, Describe 2.
#[test]
fn every_kind_of_trace_is_described() {
    let recorded = [repository("testdata"), repository("testdata/f2fs")].map(fs::read_dir);
    let mut traces: Vec<String> = recorded
        .into_iter()
        .flat_map(Result::unwrap)
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            path.is_file() && path.extension().is_some_and(|extension| extension == "parquet")
        })
        .map(|path| path.to_str().unwrap().to_owned())
        .collect();
    assert!(!traces.is_empty());
    for file in [
        "facebook.mobigen.xz",
        "weboffice.sectors.txt.xz",
        "pixel6a_telegram.csv.gz",
        "pixel6a_cod.csv.gz",
        "pixel6a_slideshow.csv.gz",
        "cloudphysics.oracleGeneral.bin.zst",
    ] {
        traces.extend(shared(file));
    }
    for trace in traces {
        check(&trace);
    }
}

/// Each recording on F2FS has a card. On the layout of such a card it writes as much as on ext4.
#[test]
fn recordings_on_f2fs_have_cards_and_run_on_its_layout() {
    let mut cards = 0;
    for entry in fs::read_dir(repository("testdata/f2fs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        cards += 1;
        let card: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let trace = path.with_extension("parquet");
        assert_eq!(card["trace"], trace.file_name().unwrap().to_str().unwrap());
        assert_eq!(card["bytes"], fs::metadata(&trace).unwrap().len());
        assert!(card["file_system"].as_str().unwrap().starts_with("f2fs "), "{card}");
        let trace = trace.to_str().unwrap();
        let writes = |layout| {
            let found = cells(&["compare", trace, "--policy", "lru", "--layout", layout]);
            found.iter().map(|cell| number(cell, "device_writes")).collect::<Vec<_>>()
        };
        assert_eq!(writes("f2fs:segments=120"), writes("ext4"), "{trace}");
    }
    assert!(cards > 0);
}

fn check(trace: &str) {
    let json = described(trace);
    let cell = &cells(&["compare", trace, "--policy", "lru", "--frames", "64"])[0];
    let (reads, writes) = (number(cell, "read_accesses"), number(cell, "write_accesses"));
    let operation = |name: &str, field: &str| {
        let rows = json["mix"]["operations"].as_array().unwrap();
        rows.iter().find(|row| row["operation"] == name).map_or(0, |row| number(row, field))
    };
    let sum = |rows: &Value, field: &str| -> u64 {
        rows.as_array().unwrap().iter().map(|row| row[field].as_u64().unwrap_or(0)).sum()
    };
    if json["missing"].get("fate").is_none() {
        assert_eq!(
            (operation("reads", "page_accesses"), operation("writes", "page_accesses")),
            (reads, writes)
        );
        let fate = json["fate"].as_object().unwrap();
        let ends = [
            "rewritten",
            "rewritten_soon",
            "rewritten_later",
            "removed",
            "removed_soon",
            "removed_later",
            "left",
        ];
        let ended: u64 = ends.iter().filter_map(|end| fate.get(*end)?.as_u64()).sum();
        assert_eq!(ended, writes, "{trace}: every page write ends once");
        assert!(number(&json["fate"], "never_read_bytes") <= operation("writes", "moved_bytes"));
    }
    let again = number(&json["reaccess"], "reaccesses");
    assert_eq!(again + number(&json["reaccess"], "first_accesses"), reads + writes, "{trace}");
    let pages = number(&json["footprint"]["touched"][0], "touched");
    assert_eq!(pages, number(&json["reaccess"], "first_accesses"), "{trace}");
    assert_eq!(sum(&json["reaccess"]["ranks"], "by_recency"), again, "{trace}");
    // The data of the figures holds each access once.
    let grid = &json["over_time"]["grid"];
    assert_eq!(sum(grid, "reads") + sum(grid, "writes"), reads + writes, "{trace}");
    assert_eq!(sum(&json["over_time"]["steady"], "pages"), pages, "{trace}");
    assert_eq!(sum(&json["popularity"]["ranking"], "page_accesses"), reads + writes, "{trace}");
    for table in json
        .as_object()
        .unwrap()
        .values()
        .filter_map(Value::as_object)
        .flat_map(|section| section.values())
    {
        assert!(
            table.as_array().is_none_or(|rows| rows.len() <= 6400),
            "{trace}: a table without end"
        );
    }
    let requests = sum(&json["request_sizes"]["sizes"], "reads")
        + sum(&json["request_sizes"]["sizes"], "writes");
    assert_eq!(requests, number(&json, "requests"), "{trace}");
    let all_bytes = operation("writes", "moved_bytes");
    for (section, table, field) in
        [("cache_files", "shares", "written_bytes"), ("windows", "windows", "all_bytes")]
    {
        if json.get(section).is_some() {
            assert_eq!(sum(&json[section][table], field), all_bytes, "{trace}: {section}");
        }
    }
    // Every section is present, or the output gives the reason for its absence.
    for section in [
        "mix",
        "fate",
        "footprint",
        "sync_distance",
        "lifetimes",
        "sqlite",
        "windows",
        "top_processes",
    ] {
        assert_ne!(
            json.get(section).is_some(),
            json["missing"].get(section).is_some(),
            "{trace}: {section}"
        );
    }

    let text = text(&[trace]);
    assert!(!text.contains('\x1b'), "no styles where no terminal is");
    for line in text.lines() {
        assert!(line.chars().count() <= 80, "{trace}: {line:?} is wider than 80 columns");
    }
    for (section, reason) in json["missing"].as_object().unwrap() {
        assert!(
            text.contains(reason.as_str().unwrap()),
            "{trace}: {section} is left out for {reason}"
        );
    }
}

/// Ranks by last use are those of an LRU cache: as many re-accesses up to rank n as `compare`
/// counts hits with n frames. (The trace has no deletions, at which a cache would drop pages.)
// Promises: Describe 8.
#[test]
fn recency_is_lru() {
    let dir = tempdir().unwrap();
    let synth = dir.path().join("mixed.parquet").to_str().unwrap().to_owned();
    run(&["synth", "mixed", "--requests", "50k", "--pages", "5k", "-o", &synth]);
    let others = ["weboffice.sectors.txt.xz", "pixel6a_slideshow.csv.gz"];
    let others = others.iter().filter_map(|file| shared(file));
    for trace in others.chain([synth]) {
        let ranks = &described(&trace)["reaccess"]["ranks"];
        let frames = "1,2,4,8,16,32,64,128,256,512,1024,2048,4096";
        let mut within = 0;
        let cells = cells(&["compare", &trace, "--policy", "lru", "--frames", frames]);
        for (cell, bucket) in cells.iter().zip(ranks.as_array().unwrap()) {
            within += number(bucket, "by_recency");
            assert_eq!(number(bucket, "most_rank"), number(cell, "frames"));
            assert_eq!(within, number(cell, "hits"), "{trace}: {cell}");
        }
    }
}

/// A stored trace and its source have the same description.
// Promises: Traces 12.
#[test]
fn import_changes_nothing() {
    let dir = tempdir().unwrap();
    let stored = dir.path().join("stored").to_str().unwrap().to_owned();
    run(&["import", &sample(), "-o", &stored]);
    let without_origin = |trace: &str| {
        let mut json = described(trace);
        let object = json.as_object_mut().unwrap();
        object.remove("trace");
        object.remove("format");
        json
    };
    assert_eq!(without_origin(&stored), without_origin(&sample()));
}

/// The output reports the value of a flag as such; the user chooses the length of lists.
#[test]
fn flags_set_times_and_the_length_of_lists() {
    let dir = tempdir().unwrap();
    let trace = dir.path().join("trace");
    fs::write(&trace, "r 8\nw 16\n".repeat(10)).unwrap();
    let trace = trace.to_str().unwrap();
    assert!(described(trace)["missing"]["windows"].as_str().unwrap().contains("--rate"));
    let timed = &cells(&["describe", trace, "--rate", "1000"])[0];
    assert_eq!(number(&timed["windows"]["in_60_s"][0], "most_bytes"), 5120);
    let top = &cells(&["describe", &sample(), "--top", "2"])[0];
    assert_eq!(top["top_files"]["written"].as_array().unwrap().len(), 2);
    assert_eq!(top["top_files"]["written"][0], described(&sample())["top_files"]["written"][0]);
}

/// Every trace has an HTML page, beside the same output; names are escaped in it.
// Promises: Describe 18.
#[test]
fn every_trace_has_a_page() {
    let dir = tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("sectors"), "r 8\nw 16\n".repeat(10)).unwrap();
    run(&[
        "synth",
        "zipf",
        "--as",
        "oracle-general",
        "--requests",
        "1k",
        "--pages",
        "100",
        "-o",
        &path("objects"),
    ]);
    for trace in [sample(), path("sectors"), path("objects")] {
        let page = path("page.html");
        let with = text(&[&trace, "--report", &page]);
        assert_eq!(with, text(&[&trace]), "{trace}");
        let html = super::unmarked(&fs::read_to_string(&page).unwrap());
        let missing = described(&trace)["missing"].as_object().unwrap().clone();
        for (name, reason) in missing {
            assert!(
                html.contains(reason.as_str().unwrap()),
                "{trace}: {name} is left out for {reason}"
            );
        }
        assert!(html.contains("Lim &amp; Bahn") && html.matches("<figure").count() >= 5, "{trace}");
        fs::remove_file(page).unwrap();
    }
    let output = super::flashsift()
        .args(["describe", &sample(), "--report", &path("absent/page.html")])
        .output();
    let output = output.unwrap();
    assert!(!output.status.success() && output.stdout.is_empty());
}

// Promises: Traces 5, Describe 19.
#[test]
fn bad_input_is_refused() {
    let dir = tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    fs::write(path("prose"), "It was a dark and stormy night.\n".repeat(9)).unwrap();
    fs::write(path("nothing"), "r -1\n").unwrap();
    fs::write(path("many"), (0..40_000).map(|n| format!("r {}\n", n * 800)).collect::<String>())
        .unwrap();
    for (args, code, words) in [
        (vec![path("prose")], 1, "no trace format recognises"),
        (vec![path("nothing")], 1, "holds no read or write"),
        (vec![path("absent")], 1, "no such file"),
        (vec![path("many"), "--trace-memory".into(), "1M".into()], 1, "--trace-memory"),
        (vec![sample(), "--top".into(), "0".into()], 2, "at least 1"),
        (vec![], 2, "TRACE"),
    ] {
        let (out, says) = ended(super::flashsift().arg("describe").args(&args), code);
        assert!(says.contains(words), "{args:?}: {says:?} lacks {words:?}");
        assert!(out.is_empty(), "{args:?}");
    }
    assert!(!PathBuf::from(path("absent")).exists());
}

/// A capacity adds drive writes a day, a device years; a memory card has none.
// Promises: Describe 23.
#[test]
fn a_device_adds_years() {
    let trace = repository("testdata/messenger.parquet");
    let of = |args: &[&str]| {
        cells(&[&["describe", &*trace], args].concat()).remove(0)["endurance"].clone()
    };
    let plain = of(&[]);
    assert!(number(&plain, "day_bytes") > number(&plain, "written_bytes"));
    assert!(plain.get("drive_writes_per_day").is_none() && plain.get("years").is_none());
    let sized = of(&["--capacity", "1GiB"]);
    let share = number(&sized, "day_bytes") as f64 / (1u64 << 30) as f64;
    assert!((sized["drive_writes_per_day"].as_f64().unwrap() - share).abs() < 1e-3, "{sized}");
    let half = of(&["--capacity", "64GiB", "--device", "ufs-3.1"]);
    let all = of(&["--capacity", "128GiB", "--device", "ufs-3.1"]);
    let years = |found: &Value| found["years"].as_f64().unwrap();
    assert!((years(&half) * 2.0 / years(&all) - 1.0).abs() < 1e-3, "{half} {all}");
    assert_eq!(all["write_amplification_from"], "random_writes");
    assert!(of(&["--device", "microsd-2012"]).get("years").is_none());
    let shown = text(&[&trace, "--device", "microsd-2012"]);
    assert!(shown.contains("no endurance figure: memory cards publish none"), "{shown}");
    assert!(text(&[&trace]).contains("name a device with --device PROFILE"));
}
