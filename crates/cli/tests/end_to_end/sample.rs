//! `compare --sample`: estimates beside full runs, and what cannot be sampled.

use super::{cells, flashsift, number, repository};
use serde_json::Value;

fn said(args: &[&str]) -> (Option<i32>, String) {
    let output = flashsift().args(args).output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn real(cell: &Value, field: &str) -> f64 {
    cell[field].as_f64().unwrap_or_else(|| panic!("no {field} in {cell}"))
}

/// Hits, reads and writes of four policies at two sizes are near those of the full run: the
/// largest distance is a few intervals, and most are within one. The samples are the same in each
/// run, so that this fails only if they change.
// Promises: Sampling and sweeps 1.
#[test]
fn estimates_are_near_the_full_run() {
    let (mut within, mut all) = (0, 0);
    for trace in ["map", "messenger"] {
        let trace = repository(&format!("testdata/{trace}.parquet"));
        let args = ["compare", &trace, "--policy", "lru,arc,clock,2q", "--memory", "8MiB,32MiB"];
        let full = cells(&args);
        let sampled = cells(&[&args[..], &["--sample", "20%"]].concat());
        assert_eq!(sampled.len(), full.len());
        for (full, sampled) in full.iter().zip(&sampled) {
            for key in ["policy", "frames", "accesses", "read_accesses", "write_accesses"] {
                assert_eq!(full[key], sampled[key]);
            }
            let ratio = number(full, "hits") as f64 / number(full, "accesses") as f64;
            for (figure, truth) in [
                ("hit_ratio", ratio),
                ("device_reads", real(full, "device_reads")),
                ("device_writes", real(full, "device_writes")),
            ] {
                let (found, error) =
                    (real(sampled, figure), real(sampled, &format!("{figure}_error")));
                let away = (found - truth).abs();
                assert!(away <= 0.15 * truth, "{figure}: {found} for {truth} in {sampled}");
                within += usize::from(away <= error);
                all += 1;
            }
        }
    }
    assert!(within * 3 >= all * 2, "{within} of {all} are within their interval");
}

// Promises: Sampling and sweeps 2.
#[test]
fn what_depends_on_places_is_refused() {
    let trace = repository("testdata/feed.parquet");
    for policy in ["spatialclock", "fab"] {
        let args = ["compare", &trace, "--sample", "10%", "--memory", "4MiB"];
        let (status, says) = said(&[&args[..], &["--policy", policy]].concat());
        assert_eq!(status, Some(2), "{says}");
        assert!(says.contains(policy) && says.contains("by their place"), "{says}");
        let all = cells(&args);
        assert!(all.len() > 15 && all.iter().all(|cell| cell["policy"] != policy));
    }
    for (option, value) in [
        ("--device", "ufs-3.1"),
        ("--readahead", "off"),
        ("--layout", "f2fs"),
        ("--metadata", "ext4"),
        ("--writeback", "cluster:128KiB"),
    ] {
        let (status, says) = said(&["compare", &trace, "--sample", "10%", option, value]);
        assert_eq!(status, Some(2), "{option}: {says}");
        assert!(says.contains("--sample"), "{says}");
    }
    for wrong in ["0%", "26%", "1", "-1%", "x%"] {
        let (status, says) = said(&["compare", &trace, &format!("--sample={wrong}")]);
        assert_eq!(status, Some(2), "{wrong}: {says}");
    }
}

// Promises: Sampling and sweeps 3.
#[test]
fn a_trace_beyond_the_memory_is_refused_or_sampled() {
    let directory = tempfile::tempdir().unwrap();
    let trace = directory.path().join("zipf.parquet").to_str().unwrap().to_owned();
    let (status, says) = said(&["synth", "zipf", "--requests", "1M", "-q", "-o", &trace]);
    assert_eq!(status, Some(0), "{says}");
    let args =
        ["compare", &trace, "--policy", "lru", "--memory", "16MiB", "--trace-memory", "4MiB"];
    let (status, says) = said(&args);
    assert_eq!(status, Some(1), "{says}");
    assert!(says.contains("--sample") && says.contains("--trace-memory"), "{says}");
    let sampled = cells(&[&args[..], &["--sample", "2%"]].concat());
    assert_eq!(number(&sampled[0], "accesses"), 1_000_000);
}
