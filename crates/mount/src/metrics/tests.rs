//! The text of the metrics, and the dashboard that shows them.

use super::*;
use crate::fs::types::{Device, RehearsalStatus, Writes};
use flashsift_files::sift::live::{FileBytes, LiveCounts};
use std::collections::{BTreeMap, BTreeSet};

/// A status in which every figure is known and differs from the others.
pub(super) fn full() -> Status {
    let mut next = 0;
    let mut of = || {
        next += 1;
        next
    };
    let (files_in_ram, ram_bytes, budget_bytes) = (of(), of(), of());
    let (born, born_settled, never_written) = (of(), of(), of());
    let (settled, settled_bytes, restarts, failing_files, faults) = (of(), of(), of(), of(), of());
    let writes = Writes {
        mounted_s: of(),
        requested_bytes: of(),
        unseen_opens: of(),
        ext4_bytes: of(),
        ext4_waiting_bytes: of(),
        flash_bytes: of(),
        flash_waiting_bytes: Some(of()),
        saved_bytes: Some(-20),
        syncs: of(),
        sync_ext4_bytes: of(),
        sync_flash_bytes: of(),
        sync_flushes: of(),
        flushes: of(),
        device: Some(Device { name: "sda1".to_owned(), written_bytes: u64::MAX }),
        ..Writes::default()
    };
    let mut pair = || FileBytes { files: of(), bytes: of() };
    let counts = LiveCounts {
        held: pair(),
        dropped: pair(),
        created_again: pair(),
        written: pair(),
        died: pair(),
        refused: pair(),
    };
    let rehearsal = RehearsalStatus {
        since_s: of(),
        stock_bytes: of(),
        kept_bytes: -5,
        kept_share: Some([0.61, 0.5, 1e-9]),
        fetched_again_bytes: of(),
        dropped: of(),
    };
    let sift = SiftStatus {
        sifter: "controller:again=0.02".to_owned(),
        mode: LiveMode::Sift,
        rehearsal: Some(rehearsal),
        again_share: 0.041,
        again_at_most: 0.1,
        budget_bytes: of(),
        counts,
        ..SiftStatus::default()
    };
    let (directories_in_ram, failing_directories) = (of(), of());
    Status {
        files_in_ram,
        directories_in_ram,
        ram_bytes,
        budget_bytes,
        born,
        born_settled,
        never_written,
        settled,
        settled_bytes,
        restarts,
        failing_files,
        failing_directories,
        read_only: true,
        faults,
        sift: Some(sift),
        writes: Some(writes),
        ..Status::default()
    }
}

fn text_of(status: &Status) -> String {
    text(&[(Path::new("/a"), status)])
}

#[test]
fn the_text_is_the_golden_one() {
    let golden = include_str!("golden.txt").replace("VERSION", env!("CARGO_PKG_VERSION"));
    assert_eq!(text_of(&full()), golden);
}

#[test]
fn labels_are_escaped_and_mounts_share_the_head() {
    let (one, other) = (Status::default(), Status { faults: 7, ..Status::default() });
    let text = text(&[(Path::new("/a \"b\"\\c\nd"), &one), (Path::new("/é"), &other)]);
    let faults: Vec<&str> = text.lines().filter(|line| line.contains("_faults_")).collect();
    assert_eq!(
        faults,
        [
            "# HELP flashsift_faults_total Requests that failed inside flashsift.",
            "# TYPE flashsift_faults_total counter",
            r#"flashsift_faults_total{mountpoint="/a \"b\"\\c\nd"} 0"#,
            r#"flashsift_faults_total{mountpoint="/é"} 7"#,
        ]
    );
}

#[test]
fn what_is_unknown_is_left_out() {
    let mut status = full();
    let writes = status.writes.as_mut().unwrap();
    (writes.flash_waiting_bytes, writes.saved_bytes, writes.device) = (None, None, None);
    status.sift.as_mut().unwrap().rehearsal.as_mut().unwrap().kept_share = None;
    let samples = |status: &Status| -> BTreeSet<String> {
        let text = text_of(status);
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        samples.map(|line| line.split('{').next().unwrap().to_owned()).collect()
    };
    let all = samples(&full());
    let left_out: Vec<_> = all.difference(&samples(&status)).cloned().collect();
    assert_eq!(
        left_out,
        [
            "flashsift_device_written_bytes_total",
            "flashsift_flash_waiting_bytes",
            "flashsift_saved_bytes",
            "flashsift_sift_rehearsal_kept_ratio",
            "flashsift_sift_rehearsal_kept_ratio_first_half",
            "flashsift_sift_rehearsal_kept_ratio_second_half",
        ]
    );
    let bare = samples(&Status::default());
    assert!(bare.is_subset(&all) && bare.contains("flashsift_ram_bytes"), "{bare:?}");
    let estimated = |name: &String| name.contains("_sift_") || name.contains("_flash_bytes_");
    assert!(all.iter().filter(|name| estimated(name)).count() > 20, "{all:?}");
    assert!(!bare.iter().any(estimated), "{bare:?}");
}

/// `promtool check metrics` checks the same, where it is installed.
#[test]
fn names_follow_the_rules_of_prometheus() {
    let mut names = BTreeSet::new();
    for metric in METRICS {
        assert!(names.insert(metric.name), "{} is there twice", metric.name);
        assert!(metric.name.starts_with("flashsift_"));
        assert_eq!(metric.kind == "counter", metric.name.ends_with("_total"), "{}", metric.name);
        assert!(metric.help.ends_with('.') || metric.help.contains(';'), "{}", metric.help);
        assert!(!metric.help.contains(['\\', '\n']));
    }
}

/// The queries of the dashboard, by the title of their panel.
fn queries(dashboard: &serde_json::Value) -> Vec<(String, String)> {
    let panels = dashboard["panels"].as_array().unwrap();
    let queries = panels.iter().flat_map(|panel| {
        let title = panel["title"].as_str().unwrap().to_owned();
        let targets = panel["targets"].as_array().into_iter().flatten();
        targets.map(move |target| (title.clone(), target["expr"].as_str().unwrap().to_owned()))
    });
    queries.collect()
}

#[test]
fn the_dashboard_shows_metrics_that_exist() {
    let json = include_str!("../../../../dist/grafana/flashsift.json");
    let dashboard: serde_json::Value = serde_json::from_str(json).unwrap();
    let text = text_of(&full());
    let samples: BTreeSet<&str> = text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split('{').next().unwrap())
        .collect();
    let queries = queries(&dashboard);
    let mut named = BTreeSet::new();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let of_variables = variables.iter().filter_map(|variable| variable["query"].as_str());
    for (title, query) in queries
        .iter()
        .map(|(title, query)| (title.as_str(), query.as_str()))
        .chain(of_variables.map(|query| ("variable", query)))
    {
        for word in query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            if word.starts_with("flashsift_") {
                assert!(samples.contains(word), "{title}: there is no metric {word}");
                named.insert(word.to_owned());
            }
        }
        if title != "variable" {
            assert!(query.contains("mountpoint=~\"$mountpoint\""), "{title}: {query}");
        }
    }
    for wanted in [
        "flashsift_requested_bytes_total",
        "flashsift_flash_bytes_total",
        "flashsift_ext4_bytes_total",
        "flashsift_saved_bytes",
        "flashsift_sift_dropped_bytes_total",
        "flashsift_sift_created_again_bytes_total",
        "flashsift_sift_held_bytes",
        "flashsift_sift_again_share",
        "flashsift_failing_files",
    ] {
        assert!(named.contains(wanted), "no panel shows {wanted}");
    }
}

#[test]
fn panels_of_the_dashboard_do_not_overlap() {
    let json = include_str!("../../../../dist/grafana/flashsift.json");
    let dashboard: serde_json::Value = serde_json::from_str(json).unwrap();
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeMap::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        let title = panel["title"].as_str().unwrap();
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{title}: its id is not unique");
        assert!(!panel["description"].as_str().unwrap().is_empty(), "{title}");
        let [x, y, w, h] =
            ["x", "y", "w", "h"].map(|side| panel["gridPos"][side].as_u64().unwrap());
        assert!(x + w <= 24, "{title}: a dashboard has 24 columns");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            let other = taken.insert(cell, title);
            assert!(other.is_none(), "{title} lies over {other:?}");
        }
    }
}
