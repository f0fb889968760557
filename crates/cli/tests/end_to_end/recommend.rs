//! `recommend` on a recording, and on traces that it refuses.

use super::{cells, flashsift, number, repository, run};
use flashsift_events::duration;
use flashsift_files::flusher::FlusherSettings;
use flashsift_study::doctor::{
    Doctor, Ends, EntryKind, Facts, FileSystem, Inspect, ProgramFacts, Remedy,
};
use flashsift_testbed::ended;
use flashsift_traces::{
    events::Kept,
    open::{self, Limits},
};
use serde_json::Value;
use std::{collections::BTreeMap, fs, path::Path};
use tempfile::tempdir;

/// A machine of which nothing is known but the recording.
struct Unknown;

impl Inspect for Unknown {
    fn ends(&self, _: &str) -> Option<Ends> {
        None
    }

    fn entries(&self, _: &str, _: &mut dyn FnMut(&str, EntryKind)) -> bool {
        false
    }

    fn program(&self, _: &str) -> Option<ProgramFacts> {
        None
    }
}

/// The proposal of `doctor` for the kernel of a machine with an ext4 and 2 GiB, which did what was
/// recorded.
fn by_doctor(trace: &str) -> Option<Remedy> {
    let mut kept = Kept::default();
    open::read(Path::new(trace), None, &mut kept, &Limits::default()).unwrap();
    let flusher = FlusherSettings { background_pages: (2 << 18) / 10, ..Default::default() };
    let file_system = FileSystem {
        mount: "/".to_owned(),
        kind: "ext4".to_owned(),
        source: "/dev/mmcblk0p2".to_owned(),
        options: Vec::new(),
    };
    let facts = Facts { flusher, file_systems: vec![file_system], ..Facts::default() };
    let duration_us = kept.events.last().unwrap().at_us;
    let mut doctor = Doctor::new(kept.about.unwrap(), flusher, 4 << 30);
    doctor.extend(&kept.events).unwrap();
    let found = doctor.finish(&facts, &Unknown, duration_us, 5).unwrap();
    found.remedies.into_iter().find(|remedy| remedy.id == "kernel-write-back")
}

/// Three commands judged three lists of times, each by a rule of its own. For `feed`, `tune
/// writeback` proposed an expiry of 590 s, which saves 44 %, and the best times of `recommend` 5 %.
// Promises: Recommend 8.
#[test]
fn one_recording_gets_one_answer_of_all_commands() {
    for (name, proposes) in [("browser", true), ("messenger", false), ("feed", true)] {
        let trace = repository(&format!("testdata/{name}.parquet"));
        let share = |change: &Value, key: &str| change[key].as_f64().unwrap();
        let advice = &cells(&["recommend", &trace]).remove(0)["recommend"];
        let mut recommended = BTreeMap::new();
        for change in advice["changes"].as_array().unwrap() {
            let name = change["change"].as_str().unwrap();
            let mut times = (30_000_000, 5_000_000);
            let is_times = name.split(',').all(|word| match word.split_once('=') {
                Some(("expire", time)) => duration::parse_us(time).map(|us| times.0 = us).is_ok(),
                Some(("commit", time)) => duration::parse_us(time).map(|us| times.1 = us).is_ok(),
                _ => false,
            });
            if is_times && change["recommended"] == true {
                recommended.insert(times, share(change, "saving_share"));
            }
        }
        // The longest times that `recommend` tries lose this: ten minutes, a tick and a commit.
        let args = ["tune", "writeback", &*trace, "--lose-at-most", "610s"];
        let tuned = &cells(&args).remove(0)["writeback"];
        let tried = tuned["tried"].as_array().unwrap();
        let recommended_too: BTreeMap<_, _> = tried
            .iter()
            .filter(|tried| tried["recommended"] == true)
            .map(|tried| {
                let times = (number(tried, "expire_us"), number(tried, "commit_us"));
                (times, share(tried, "saving_share"))
            })
            .collect();
        assert_eq!(recommended_too, recommended, "{name}");
        assert_eq!(!recommended.is_empty(), proposes, "{name}");
        let best = tried.iter().find(|tried| tried["proposed"] == true);
        let remedy = by_doctor(&trace).filter(|remedy| remedy.unconfirmed.is_none());
        assert_eq!((best.is_some(), remedy.is_some()), (proposes, proposes), "{name}");
        let (Some(best), Some(remedy)) = (best, remedy) else { continue };
        let values: Vec<_> =
            tuned["proposed"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
        let values = values.join(",");
        assert!(remedy.commands[0].contains(&values), "{values} {:?}", remedy.commands);
        let saving = remedy.saving.unwrap();
        // The doctor knows that inodes of old files lie apart.
        for (key, by_doctor) in [
            ("saving_share", saving.share),
            ("first_half_share", saving.first_half_share),
            ("second_half_share", saving.second_half_share),
        ] {
            let by_trace = share(best, key);
            assert!((by_trace - by_doctor).abs() < 0.01, "{name} {key}: {by_trace} {by_doctor}");
        }
        let proposed = advice["proposed_times"].as_str().unwrap();
        let is_proposed = |change: &&Value| change["change"] == proposed;
        let of_name = advice["changes"].as_array().unwrap().iter().find(is_proposed).unwrap();
        assert_eq!(share(of_name, "saving_share"), share(best, "saving_share"), "{name}");
    }
}

/// The advice on a recording: each recommended change saves in both halves and wins nine of ten
/// slices, the others do not, and the baseline's bytes are those of `compare`.
// Promises: Recommend 1.
#[test]
fn a_recording_gets_advice() {
    let trace = repository("testdata/messenger.parquet");
    let found = cells(&["recommend", &trace]).remove(0);
    assert_eq!((number(&found, "schema"), &found["trace"]), (1, &Value::from("messenger.parquet")));
    let advice = &found["recommend"];
    let changes = advice["changes"].as_array().unwrap();
    let float = |change: &Value, key: &str| change[key].as_f64().unwrap();
    for change in changes {
        let (won, slices) = (number(change, "slices_won"), number(change, "slices"));
        let halves = ["first_half_share", "second_half_share"].map(|key| float(change, key));
        let (low, high) = (halves[0].min(halves[1]), halves[0].max(halves[1]));
        let saving = float(change, "saving_share");
        assert!(low <= saving && saving <= high && won <= slices && slices <= 20, "{change}");
        let expected = slices >= 10 && low >= 0.01 && 10 * won >= 9 * slices;
        assert_eq!(change["recommended"], expected, "{change}");
        let listed = advice["recommended"].as_array().unwrap().contains(&change["change"]);
        assert_eq!(listed, expected, "{change}");
        assert!(!change["price"].as_str().unwrap().is_empty());
    }
    // The cache holds everything, so no policy can matter.
    let not_tried = advice["not_tried"].as_array().unwrap();
    assert!(not_tried.iter().any(|change| change["change"] == "sieve"), "{not_tried:?}");

    let args = ["compare", &*trace, "--policy", "mglru", "--memory", "1GiB", "--drain"];
    let cell = cells(&[&args[..], &["--metadata", "ext4"]].concat()).remove(0);
    let pages = ["device_writes", "journal_writes", "metadata_writes"];
    let pages: u64 = pages.iter().map(|pages| number(&cell, pages)).sum();
    assert_eq!(float(&advice["baseline"], "cost"), (pages * 4096) as f64);
    assert_eq!(advice["baseline"]["writeback"], cell["writeback"]);

    let shown = String::from_utf8(run(&["recommend", &trace]).stdout).unwrap();
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    let any = !advice["recommended"].as_array().unwrap().is_empty();
    assert_eq!(shown.contains("No change is worth it."), !any, "{shown}");
    assert!(shown.contains("Price: "), "{shown}");
    assert_eq!(shown, String::from_utf8(run(&["recommend", &trace]).stdout).unwrap());
}

/// With a device its time is the cost, and in a small cache policies are tried.
#[test]
fn a_device_and_a_small_cache_change_the_question() {
    let trace = repository("testdata/messenger.parquet");
    let args = ["recommend", &*trace, "--memory", "1MiB", "--policy", "lru", "--threads", "1"];
    let on = ["--device", "latency-100-800", "--metadata", "off"];
    let found = cells(&[&args[..], &on].concat()).remove(0);
    let advice = &found["recommend"];
    assert_eq!((&advice["unit"], &advice["device"]), (&"seconds".into(), &on[1].into()));
    let names: Vec<&Value> =
        advice["changes"].as_array().unwrap().iter().map(|change| &change["change"]).collect();
    assert!(names.contains(&&"sieve".into()) && !names.contains(&&"lru".into()), "{names:?}");
    assert!(!names.contains(&&"commit=30s".into()));
}

/// Systems with memory are tried in each size, and the summary says how much is enough. The bytes
/// that it saves are those of `compare`.
// Promises: Recommend 6.
#[test]
fn memory_is_tried_in_each_size() {
    let trace = repository("testdata/messenger.parquet");
    let args = ["recommend", &*trace, "--memory", "4MiB", "--policy", "lru"];
    let args = [&args[..], &["--nvm=256KiB,1MiB,4MiB"]].concat();
    let found = cells(&args).remove(0);
    let advice = &found["recommend"];
    assert_eq!(advice["baseline"]["metadata"], "off");
    let changes = advice["changes"].as_array().unwrap();
    let of = |name: &str| changes.iter().find(|change| change["change"] == name).unwrap();
    let plain = ["compare", &*trace, "--policy", "lru", "--memory", "4MiB", "--drain"];
    let systems = ["--system", "storage,flush-nvm:pages=256", "--writeback", "linux"];
    let compared = cells(&[&plain[..], &systems].concat());
    let saved = number(&compared[0], "device_writes") - number(&compared[1], "device_writes");
    assert_eq!(of("flush-nvm 1 MiB")["saving"].as_f64().unwrap(), (saved * 4096) as f64);
    for system in ["flush-nvm", "hybrid-flush", "fslru"] {
        for size in ["256 KiB", "1 MiB", "4 MiB"] {
            let change = of(&format!("{system} {size}"));
            assert!(change["price"].as_str().unwrap().contains("non-volatile memory"));
        }
    }
    let knees = advice["knees"].as_array().unwrap();
    assert!(!knees.is_empty(), "{advice}");
    let shown = String::from_utf8(run(&args).stdout).unwrap();
    assert_eq!(shown.matches("the knee is").count(), knees.len(), "{shown}");
    assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
}

/// Settings chosen by a trace that is held apart would make its results worthless. For a while only
/// the documents said that such a trace is refused: no command looked.
// Promises: Traces 26.
#[test]
fn settings_are_not_chosen_on_a_trace_held_apart() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("held.parquet").to_str().unwrap().to_owned();
    run(&["import", &repository("testdata/feed.parquet"), "-o", &path, "--split", "test"]);
    for args in [&["recommend", &*path, "--memory", "4MiB"][..], &["tune", "readahead", &*path]] {
        let (out, printed) = ended(flashsift().args(args), 1);
        let says = "held.parquet is held apart for tests, and to tune on it would make its results";
        assert!(printed.contains(says) && printed.contains("--force"), "{printed}");
        assert!(out.is_empty(), "{args:?}");
        assert!(!run(&[args, &["--force"]].concat()).stdout.is_empty(), "{args:?}");
    }
}

// Promises: Recommend 7.
#[test]
fn traces_without_advice_are_refused() {
    let dir = tempdir().unwrap();
    let path = dir.path().join("trace");
    fs::write(&path, "w 8\nw 16\nr 8\n").unwrap();
    let trace = path.to_str().unwrap();
    let refused = |args: &[&str], code: i32, says: &str| {
        let (_, printed) = ended(flashsift().args(["recommend", trace]).args(args), code);
        assert!(printed.contains(says), "{printed}");
    };
    refused(&[], 1, "no times to cut it into slices: give --rate N");
    refused(&["--policy", "belady"], 2, "no kernel knows the future");
    refused(&["--device", "all"], 2, "for one device");
    refused(&["--rate", "1", "--metadata", "ext4"], 2, "only traces of files have metadata");
    fs::write(&path, "r 8\nr 16\nr 8\n").unwrap();
    refused(&["--rate", "1"], 1, "writes nothing");
}
