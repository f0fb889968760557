//! Golden counts by policy and size on our own recordings: a change of any of them has to be
//! intended.

use super::{cells, repository};

/// Every count of every policy at every default size, drained, and the derived values; the CPU time
/// is excluded.
fn golden(trace: &str, more: &[&str]) -> String {
    let path = repository(&format!("testdata/{trace}"));
    let mut lines = String::new();
    for mut cell in cells(&[&["compare", &path, "--drain", "--verdict"], more].concat()) {
        cell.as_object_mut().unwrap().remove("cpu_ns_per_access");
        if let Some(verdict) = cell.get_mut("verdict") {
            verdict.as_object_mut().unwrap().remove("least_cpu");
        }
        lines.push_str(&cell.to_string());
        lines.push('\n');
    }
    lines
}

fn assert_golden(name: &str, lines: String) {
    insta::with_settings!({ snapshot_path => repository("testdata/golden"), prepend_module_to_snapshot => false }, {
        insta::assert_snapshot!(name, lines);
    });
}

// Promises: Counting 5, Counting 9, Counting 11, Policies 3.
#[test]
fn browser() {
    assert_golden("browser", golden("browser.parquet", &["--writeback", "evict"]));
}

// Promises: Counting 5, Counting 11.
#[test]
fn messenger() {
    assert_golden("messenger", golden("messenger.parquet", &["--writeback", "evict"]));
}

/// Write-back as in the Hybrid Flush paper, and as in Linux.
// Promises: Counting 11.
#[test]
fn counts_with_write_back() {
    let sizes = ["--memory", "1M,16M", "--writeback"];
    for (name, trace) in [("browser", "browser.parquet"), ("messenger", "messenger.parquet")] {
        for writeback in ["hf", "linux"] {
            assert_golden(
                &format!("{name}-{writeback}"),
                golden(trace, &[&sizes[..], &[writeback]].concat()),
            );
        }
    }
}
