//! Caches of objects with sizes, curves, and policies as expressions, through the program.

use super::{repository, run};
use serde_json::Value;
use std::{fs, path::Path};

/// Runs `compare` and returns its lines.
fn lines(args: &[&str]) -> Vec<Value> {
    let output = run(&[&["compare", "-q", "--json"], args].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn hit_ratio(row: &Value) -> f64 {
    row["hits"].as_f64().unwrap() / row["accesses"].as_f64().unwrap()
}

/// Writes requests, each (object, bytes), as oracleGeneral.
fn objects(dir: &Path, requests: &[(u64, u32)]) -> String {
    let mut bytes = Vec::new();
    for (n, (object, size)) in (0_u32..).zip(requests) {
        bytes.extend(n.to_le_bytes());
        bytes.extend(object.to_le_bytes());
        bytes.extend(size.to_le_bytes());
        bytes.extend((-1_i64).to_le_bytes());
    }
    let path = dir.join("web.oracleGeneral");
    fs::write(&path, bytes).unwrap();
    path.to_str().unwrap().to_owned()
}

/// 10,000 bytes hold objects 1 and 2 (4,000 and 5,000); 3 (6,000) takes the place of both, and 4
/// (11,000) never enters. So of 1 2 3 4 1 1 3 the last two hit.
// Promises: Objects 1, Objects 2.
#[test]
fn requests_and_bytes_of_objects_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    let requests = [(1, 4000), (2, 5000), (3, 6000), (4, 11_000), (1, 4000), (1, 4000), (3, 6000)];
    let path = objects(dir.path(), &requests);
    let args = [&*path, "--object-cache", "--memory", "10000,100%"];
    let cells = lines(&[&args[..], &["--policy", "lru,lru:admit=size:6000"]].concat());
    let figures = |row: &Value| {
        ["memory_bytes", "hits", "hit_bytes", "too_large", "turned_away", "entered_bytes"]
            .map(|key| row[key].as_u64().unwrap())
    };
    let labels: Vec<_> = cells.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(labels, ["lru", "lru:admit=size:below=6000"].repeat(2));
    assert_eq!(figures(&cells[0]), [10_000, 2, 10_000, 1, 0, 19_000]);
    // Objects of 6,000 bytes and more are turned away, and 1 and 2 stay.
    assert_eq!(figures(&cells[1]), [10_000, 2, 8000, 0, 3, 9000]);
    assert_eq!(figures(&cells[2]), [26_000, 3, 14_000, 0, 0, 26_000]);
    assert_eq!((&cells[0]["objects_bytes"], &cells[0]["requests"]), (&26_000.into(), &7.into()));
    assert_eq!(cells[0]["byte_miss_ratio"], 0.75);
    let table = run(&[&["compare", "-q"], &args[..], &["--policy", "lru"]].concat());
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("71.43") && table.contains("75.00"), "{table}");
}

/// Every policy of objects runs on a recording, whose objects are what begins at one place of a
/// file, with and without an admission.
// Promises: Objects 3.
#[test]
fn any_trace_is_one_of_objects() {
    let trace = repository("testdata/browser.parquet");
    let cells = lines(&[&trace, "--object-cache", "--policy", "all,all:admit=bloom"]);
    let policies: Vec<_> = cells.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    let of_size = policies.len() / 5;
    assert!(of_size >= 24 && policies[..of_size].contains(&"gdsf:admit=bloom"), "{policies:?}");
    for cells in cells.chunks(of_size) {
        let misses = |row: &Value| row["miss_ratio"].as_f64().unwrap();
        let by_name = |name: &str| misses(cells.iter().find(|row| row["policy"] == name).unwrap());
        assert!(by_name("belady") < by_name("lru") && by_name("gdsf") < by_name("fifo"));
        for row in cells {
            assert!(row["hits"].as_u64() <= row["requests"].as_u64(), "{row}");
            assert!(row["entered_bytes"].as_u64() <= row["requested_bytes"].as_u64(), "{row}");
        }
    }
}

/// A curve has the counts of a comparison at each of its sizes, from one pass for LRU.
// Promises: Sampling and sweeps 6.
#[test]
fn a_curve_has_the_counts_of_each_size() {
    let dir = tempfile::tempdir().unwrap();
    let page = dir.path().join("curve.html");
    let trace = repository("testdata/map.parquet");
    let curve = ["--curve", "120", "--policy", "arc,lru", "--report", page.to_str().unwrap()];
    let points = lines(&[&[&*trace], &curve[..]].concat());
    let of = |policy: &str, method: &str| -> Vec<Value> {
        let of = points.iter().filter(|row| row["policy"] == policy);
        of.inspect(|row| assert_eq!(row["method"], method)).cloned().collect()
    };
    let (arc, lru) = (of("arc", "simulated"), of("lru", "exact"));
    assert!(lru.len() >= 120 && arc.len() == lru.len());
    assert_eq!(points[0]["policy"], "arc", "in the order of the policies");
    let misses: Vec<_> = lru.iter().map(|row| row["miss_ratio"].as_f64().unwrap()).collect();
    assert!(misses.is_sorted_by(|one, next| one >= next), "{misses:?}");
    let chosen = [10, 60, 100].map(|n| &lru[n]);
    let frames = chosen.map(|row| row["frames"].to_string()).join(",");
    let cells = ["--frames", &frames, "--policy", "lru", "--writeback", "evict"];
    for (point, cell) in chosen.into_iter().zip(lines(&[&[&*trace], &cells[..]].concat())) {
        for key in
            ["frames", "memory_bytes", "accesses", "device_reads", "device_writes", "dirty_left"]
        {
            assert_eq!(point[key], cell[key], "{key}");
        }
        let missed = 1.0 - hit_ratio(&cell);
        assert!((point["miss_ratio"].as_f64().unwrap() - missed).abs() < 2e-6);
    }
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("Misses by size") && page.contains("Writes by size"));
    let sampled = lines(&[&trace, "--curve", "20", "--policy", "arc", "--sample", "20%"]);
    let rows = sampled.iter().filter(|row| row["miss_ratio_error"].as_f64() > Some(0.0));
    assert!(rows.count() > 10 && sampled[0]["method"] == "sampled");
}

/// An expression is a policy beside the others.
// Promises: Policies 4.
#[test]
fn an_expression_is_a_policy() {
    let trace = repository("testdata/map.parquet");
    let policies = "lru,score:0-recency,score:hits/age";
    let cells = lines(&[&trace, "--policy", policies, "--memory", "16MiB", "--writeback", "evict"]);
    let labels: Vec<_> = cells.iter().map(|row| row["policy"].as_str().unwrap()).collect();
    assert_eq!(labels, ["lru", "score:by=0-recency", "score:by=hits/age"]);
    // Of eight frames drawn, the least recent is near LRU's choice.
    let [lru, sampled] = [0, 1].map(|n| hit_ratio(&cells[n]));
    assert!((lru - sampled).abs() < 0.03, "{lru} {sampled}");
}
