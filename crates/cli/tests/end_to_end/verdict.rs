//! The verdict of a comparison, checked against its own cells.

use super::{cells, number, repository, run};
use serde_json::Value;

/// Returns the cells, and the verdict after them.
fn judged(args: &[&str]) -> (Vec<Value>, Value) {
    let mut lines = cells(&[args, &["--verdict"]].concat());
    let mut last = lines.pop().unwrap();
    assert_eq!(last["schema"], 1);
    assert!(lines.iter().all(|cell| cell.get("verdict").is_none() && cell.get("policy").is_some()));
    (lines, last["verdict"].take())
}

fn writes_due(cell: &Value) -> u64 {
    number(cell, "device_writes") + number(cell, "dirty_left")
}

/// The best policy by the cells of a size, without offline policies.
fn best<'a>(cells: &[&'a Value], count: impl Fn(&Value) -> i64) -> Vec<&'a str> {
    let online =
        || cells.iter().filter(|cell| !cell["policy"].as_str().unwrap().starts_with("belady"));
    let best = online().map(|cell| count(cell)).max().unwrap();
    online()
        .filter(|cell| count(cell) == best)
        .map(|cell| cell["policy"].as_str().unwrap())
        .collect()
}

// Promises: Compare 1, Compare 8.
#[test]
fn the_verdict_is_that_of_the_cells() {
    for trace in ["browser", "messenger"] {
        let trace = repository(&format!("testdata/{trace}.parquet"));
        for drain in [false, true] {
            let args = ["compare", &trace, "--drain"];
            let (cells, verdict) = judged(if drain { &args } else { &args[..2] });
            let sizes = verdict["sizes"].as_array().unwrap();
            assert_eq!(sizes.len(), 5);
            for size in sizes {
                let cells: Vec<&Value> =
                    cells.iter().filter(|cell| cell["frames"] == size["frames"]).collect();
                let policies = |what: &str| size[what]["policies"].clone();
                assert_eq!(
                    policies("most_hits"),
                    Value::from(best(&cells, |cell| number(cell, "hits") as i64))
                );
                assert_eq!(
                    policies("fewest_writes"),
                    Value::from(best(&cells, |cell| -(writes_due(cell) as i64)))
                );
                let fewest_nonsequential =
                    best(&cells, |cell| -(number(cell, "nonsequential_writes") as i64));
                if drain || size.get("fewest_nonsequential_writes").is_some() {
                    assert_eq!(
                        policies("fewest_nonsequential_writes"),
                        Value::from(fewest_nonsequential)
                    );
                }
                let bound = cells.iter().find(|cell| cell["policy"] == "belady").unwrap();
                assert_eq!(size["bound"]["hits"], bound["hits"]);
            }
            let most = cells.iter().map(|cell| number(cell, "hits")).max().unwrap();
            assert!(most <= number(&verdict, "accesses") - number(&verdict, "cold_accesses"));
        }
    }
}

/// No policy wins by leaving pages dirty: the order by writes does not depend on a drain.
// Promises: Compare 2.
#[test]
fn a_drain_changes_no_policys_writes() {
    let trace = repository("testdata/browser.parquet");
    let fewest = |args: &[&str]| -> Vec<Value> {
        let (_, verdict) = judged(args);
        verdict["sizes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|size| size["fewest_writes"].clone())
            .collect()
    };
    assert_eq!(fewest(&["compare", &trace]), fewest(&["compare", &trace, "--drain"]));
}

/// Tables of more than two policies end with a verdict, others on request; JSON only on request:
/// without, every line is a cell.
// Promises: Compare 8.
#[test]
fn three_online_policies_or_a_flag_print_a_verdict() {
    let trace = repository("testdata/browser.parquet");
    let shows = |args: &[&str]| {
        let args = [&["compare", &trace, "--memory", "1M"], args].concat();
        String::from_utf8(run(&args).stdout).unwrap().contains("In short:")
    };
    assert!(!shows(&["--policy", "lru,clock,belady"]));
    assert!(shows(&["--policy", "lru,clock,belady", "--verdict"]));
    assert!(shows(&["--policy", "lru,clock,fifo"]));
    assert!(shows(&["--policy", "all"]));
    assert!(!shows(&["--policy", "belady", "--verdict"]), "only online policies have a verdict");
    assert!(cells(&["compare", &trace]).iter().all(|cell| cell.get("policy").is_some()));
}
