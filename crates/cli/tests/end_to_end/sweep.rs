//! `sweep`: the dataset of a small sweep, and the message where Python is missing. The tests of the
//! Python package inject faults.

use super::{flashsift, repository};
use flashsift_testbed::{ended, skip};
use std::path::{Path, PathBuf};

/// Files of results below the folder of a sweep.
fn results(directory: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = Vec::new();
    for trace in std::fs::read_dir(directory.join("cells")).into_iter().flatten() {
        let files = std::fs::read_dir(trace.unwrap().path()).unwrap();
        found.extend(files.map(|file| file.unwrap().path()));
    }
    found.sort();
    found
}

// Promises: Sampling and sweeps 5.
#[test]
fn a_sweep_writes_its_dataset_once() {
    let Some(python) = std::env::var_os("FLASHSIFT_PYTHON") else {
        return skip("FLASHSIFT_PYTHON names no Python");
    };
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().join("out");
    let sweep = || {
        let mut command = flashsift();
        command.env("FLASHSIFT_PYTHON", &python).env("PYTHONPATH", repository("python"));
        command.env("HOME", directory.path()).env("PATH", std::env::var_os("PATH").unwrap());
        command.args(["sweep", &repository("testdata/feed.parquet")]);
        command.args([repository("testdata/game.parquet")]);
        command.args(["--policy", "lru,arc", "--memory", "1MiB", "--workers", "1", "-q", "-o"]);
        ended(command.arg(&out), 0).0
    };
    let summary = sweep();
    assert!(summary.starts_with("2 traces, 2 results\n"), "{summary}");
    assert!(summary.contains("Which policy hits most often?"), "{summary}");
    let first = results(&out);
    assert_eq!(first.len(), 2);
    assert!(out.join("report.html").exists() && out.join("report.json").exists());
    let written = |files: &[PathBuf]| -> Vec<_> {
        files.iter().map(|file| file.metadata().unwrap().modified().unwrap()).collect()
    };
    let before = written(&first);
    assert_eq!(sweep(), summary);
    assert_eq!((results(&out), written(&first)), (first.clone(), before));
}

#[test]
fn sweep_says_how_to_get_what_is_missing() {
    let mut command = flashsift();
    command.args(["sweep", "trace.parquet"]).env("FLASHSIFT_PYTHON", "/bin/false");
    let (_, says) = ended(&mut command, 1);
    assert!(says.contains("pip install './python[sweep]'"), "{says}");
}

/// `flashsift sweep --help` once failed without the package. Later it named no option.
#[test]
fn help_needs_no_package() {
    for (command, named) in [("sweep", "--scheduler"), ("train", "--labels")] {
        for option in ["--help", "-h"] {
            let mut started = flashsift();
            started.args([command, option]).env("FLASHSIFT_PYTHON", "/bin/false");
            let (help, says) = ended(&mut started, 0);
            assert!(help.contains(named) && help.contains("usage: flashsift"), "{help}");
            let install = format!("./python[{command}]");
            assert!(says.contains(&install), "{command}");
        }
    }
}
