//! Programs that say on standard error when they are ready.

use std::{
    io::{BufRead, BufReader},
    process::{Child, ChildStderr, Command, Stdio},
};

/// Starts a program and waits until a line of its standard error contains `word`.
pub(crate) fn started(command: &mut Command, word: &str) -> (Child, BufReader<ChildStderr>) {
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
