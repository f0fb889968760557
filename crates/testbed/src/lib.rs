//! Test beds: file systems on loop devices, mounts that are taken down, programs that are run.
//!
//! Tests and benchmarks use it; the program never does. Each object takes down what it made: a
//! [`Mounted`] the mounts on its directory, a [`Loop`] its device. `checks/suite` runs each test in
//! a mount namespace of its own, so even a test that is killed leaves nothing there. Elsewhere,
//! SIGINT, SIGTERM and SIGHUP unmount what is mounted before they end the program.

#![allow(clippy::missing_errors_doc, reason = "errors are the words of the program that failed")]

mod disk;
mod mounted;

pub use disk::{Disk, FileSystem, Loop, Mapped, loop_of, stat};
pub use mounted::{Mounted, is_mounted, mount, unmount, unmount_lazily};

use std::{
    env,
    fmt::Display,
    io::{BufRead, BufReader},
    process::{Child, ChildStderr, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// After that a wait has failed.
const PATIENCE: Duration = Duration::from_secs(300);

/// Prints the reason for which the test that runs is skipped, or a part of it. Returns what the
/// test, its bed or a question for the bed returns then: nothing, `None`, `false`.
pub fn skip<T: Default>(why: impl Display) -> T {
    println!("SKIPPED {}: {why}", test_name());
    T::default()
}

/// The name of the test that runs on this thread.
pub fn test_name() -> String {
    // The harness names threads by their tests.
    thread::current().name().unwrap_or("a test").to_owned()
}

/// A bed, or `None` with the reason printed.
pub fn or_skip<T>(made: Result<T, String>) -> Option<T> {
    made.map_or_else(skip, Some)
}

/// A write is durable, but for its times. rustix has `O_SYNC` under this name.
pub const O_DSYNC: rustix::fs::OFlags = rustix::fs::OFlags::from_bits_retain(0o10000);

/// Whether root runs this; otherwise the test is skipped, since `what` needs root.
pub fn is_root(what: &str) -> bool {
    rustix::process::geteuid().is_root() || skip(format_args!("{what} needs root"))
}

/// Whether a program is installed.
pub fn has(program: &str) -> bool {
    let paths = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&paths)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|path| path.join(program).exists())
}

/// Standard output of a program.
pub fn output(command: &mut Command) -> Result<String, String> {
    let program = command.get_program().display().to_string();
    let output = command.output().map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Standard output and standard error of a program that ends with this code.
///
/// # Panics
///
/// If it ends otherwise.
pub fn ended(command: &mut Command, code: i32) -> (String, String) {
    let output = command.output().unwrap();
    let [out, says] =
        [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert_eq!(output.status.code(), Some(code), "{command:?}: {}: {says}", output.status);
    (out, says)
}

/// Starts a program and waits until a line of its standard error contains `word`.
///
/// # Panics
///
/// If it ends before.
pub fn started(command: &mut Command, word: &str) -> (Child, BufReader<ChildStderr>) {
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    let (mut printed, mut last_line) = (String::new(), 0);
    while !printed[last_line..].contains(word) {
        last_line = printed.len();
        let bytes = stderr.read_line(&mut printed).unwrap();
        assert!(bytes > 0, "it ended before it said {word:?}: {printed}");
    }
    (child, stderr)
}

/// Waits for a state of the kernel that it notifies of by nothing.
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<(), String> {
    let begun = Instant::now();
    while !is_so() {
        if begun.elapsed() > PATIENCE {
            return Err(format!("it is waited in vain until {what}"));
        }
        thread::yield_now();
    }
    Ok(())
}
