//! The binary as a user runs it: real traces in; exit codes, messages and figures out.

mod bad_input;
mod commands;
mod describe;
mod devices;
mod expected;
mod golden;
mod hostile_names;
mod objects;
mod outputs;
mod policies;
mod readahead;
mod recommend;
mod sample;
mod sift;
mod sift_advice;
mod sweep;
mod systems;
mod train;
mod verdict;
mod writeback;

use flashsift_testbed::skip;
use serde_json::Value;
use std::{
    path::PathBuf,
    process::{Command, Output, Stdio},
};

/// Returns a page without the marks that keep each option of a sentence on one line.
fn unmarked(page: &str) -> String {
    page.replace("<span class=\"option\">", "").replace("</span>", "")
}

/// Panics if text for people has anything that drives a terminal or reorders characters.
fn assert_inert(what: &str, text: &[u8]) {
    let text = std::str::from_utf8(text).unwrap_or_else(|_| panic!("{what}: not UTF-8"));
    let drives = |c: &char| {
        c.is_control() && !matches!(c, '\n' | '\t')
            || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let found: Vec<char> = text.chars().filter(drives).collect();
    assert!(found.is_empty(), "{what} prints {found:?}: {}", text.escape_debug());
}

/// The binary, with an environment that does not affect its output.
fn flashsift() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashsift"));
    command.env_clear().stdin(Stdio::null());
    command
}

/// Runs the binary; panics with its messages unless it succeeds.
fn run(args: &[&str]) -> Output {
    let output = flashsift().args(args).output().unwrap();
    let says = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "flashsift {args:?} exits with {:?}: {says}",
        output.status.code()
    );
    output
}

/// Runs it with `--json`, and returns one object for each cell.
fn cells(args: &[&str]) -> Vec<Value> {
    let output = run(&[args, &["--json"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn number(cell: &Value, field: &str) -> u64 {
    cell[field].as_u64().unwrap_or_else(|| panic!("no {field} in {cell}"))
}

fn repository(path: &str) -> String {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path).to_str().unwrap().to_owned()
}

/// Returns a foreign trace, beside the checkout. Where it is absent, the test is skipped and names
/// it.
fn shared(file: &str) -> Option<String> {
    let path = repository(&format!("../shared/data/{file}"));
    if PathBuf::from(&path).exists() {
        return Some(path);
    }
    skip(format_args!("../shared/data/{file} is not there"))
}
