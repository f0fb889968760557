//! Golden counts a policy and size on our own recordings: a change of any of them has to be meant.

use super::{cells, repository};

/// Every count of every policy at every default size, drained, and what they come to; not the CPU time.
fn golden(trace: &str) -> String {
    let path = repository(&format!("testdata/{trace}"));
    let mut lines = String::new();
    for mut cell in cells(&["compare", &path, "--drain", "--verdict"]) {
        cell.as_object_mut().unwrap().remove("cpu_ns_per_access");
        if let Some(verdict) = cell.get_mut("verdict") {
            verdict.as_object_mut().unwrap().remove("least_cpu");
        }
        lines.push_str(&cell.to_string());
        lines.push('\n');
    }
    lines
}

#[test]
fn browser() {
    insta::with_settings!({ snapshot_path => repository("testdata/golden"), prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("browser", golden("browser.parquet"));
    });
}

#[test]
fn messenger() {
    insta::with_settings!({ snapshot_path => repository("testdata/golden"), prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!("messenger", golden("messenger.parquet"));
    });
}
