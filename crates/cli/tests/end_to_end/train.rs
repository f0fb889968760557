//! `train`: a model that the sifters take, and what is said where Python is missing.

use super::{cells, flashsift, number, repository, run};
use flashsift_testbed::skip;
use std::{ffi::OsString, process::Output};

/// Returns Python with the package, as `make test` names it. Otherwise the test is skipped.
fn python() -> Option<OsString> {
    std::env::var_os("FLASHSIFT_PYTHON")
        .or_else(|| skip("FLASHSIFT_PYTHON names no Python with the package flashsift"))
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Both sifters that take models run one that `train` has made of the same trace. It replaces what
/// only the rest of the trace tells.
#[test]
fn a_trained_model_is_used_by_the_sifters() {
    let Some(python) = python() else { return };
    let directory = tempfile::tempdir().unwrap();
    let model = directory.path().join("model.txt").to_str().unwrap().to_owned();
    let trace = repository("testdata/browser.parquet");
    let mut command = flashsift();
    command.env("FLASHSIFT_PYTHON", python).env("PYTHONPATH", repository("python"));
    let args = ["train", &trace, "--only-cache", "--model", "gbdt", "-q", "-o", &model];
    let output = command.args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let table = String::from_utf8(output.stdout).unwrap();
    for row in ["gbdt ", "majority class "] {
        assert!(table.lines().any(|line| line.starts_with(row)), "{table}");
    }
    let sifters = [
        "cachesifter".to_owned(),
        format!("cachesifter:model={model},threshold=0.5"),
        format!("lrb:model={model},threshold=0.5"),
    ];
    let found = cells(&["compare", &trace, "--sift", &sifters.join(","), "--memory", "32MiB"]);
    assert_eq!(found.len(), 4);
    assert_eq!(found[1]["offline"], true);
    for cell in &found[2..] {
        assert_eq!(cell["offline"], false);
        assert!(number(cell, "dropped_files") > 0, "{cell}");
        assert!(number(cell, "flash_bytes") < number(&found[0], "flash_bytes"), "{cell}");
    }
    assert_ne!(found[1]["dropped_bytes"], found[2]["dropped_bytes"]);
    // A model with one changed byte is refused.
    let mut damaged = std::fs::read(&model).unwrap();
    let last = damaged.len() - 1;
    damaged[last] ^= 1;
    std::fs::write(&model, damaged).unwrap();
    let output = flashsift().args(["compare", &trace, "--sift", &sifters[2]]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("the model is damaged"), "{}", said(&output));
}

/// A model that learns from a trace held apart would make its results worthless.
// Promises: Traces 26.
#[test]
fn a_model_does_not_learn_from_a_trace_held_apart() {
    let Some(python) = python() else { return };
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (held, model) = (path("held.parquet"), path("model.txt"));
    run(&["import", &repository("testdata/browser.parquet"), "-o", &held, "--split", "test"]);
    let train = |more: &[&str]| {
        let mut command = flashsift();
        command.env("FLASHSIFT_PYTHON", &python).env("PYTHONPATH", repository("python"));
        command.args(["train", &held, "--model", "gbdt", "-q", "-o", &model]).args(more);
        command.output().unwrap()
    };
    let output = train(&[]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    let says = "held.parquet is held apart for tests, and to train on it would make its results";
    assert!(said(&output).contains(says), "{}", said(&output));
    assert!(!std::path::Path::new(&model).exists());
    let output = train(&["--force"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert!(std::path::Path::new(&model).exists());
}

#[test]
fn train_says_how_to_get_what_is_missing() {
    let nothing = tempfile::tempdir().unwrap();
    let trace = repository("testdata/browser.parquet");
    let args = ["train", &trace, "-o", "model.safetensors"];
    let run = |python: Option<&str>| {
        let mut command = flashsift();
        command.args(args).env("PATH", nothing.path()).current_dir(nothing.path());
        command.envs(python.map(|python| ("FLASHSIFT_PYTHON", python)));
        command.output().unwrap()
    };
    for (python, says) in [
        (None, "`python3` is not installed"),
        (Some("/nowhere/python"), "`/nowhere/python` is not installed"),
        (Some("/bin/false"), "`/bin/false` has no package flashsift"),
    ] {
        let output = run(python);
        assert_eq!(output.status.code(), Some(1), "{python:?}: {}", said(&output));
        let said = said(&output);
        assert!(said.contains(says) && said.contains("pip install './python[train]'"), "{said}");
    }
    assert_eq!(std::fs::read_dir(nothing.path()).unwrap().count(), 0, "nothing was written");
}
