//! A mount that outlives the command that made it: flashsift starts itself again and waits for the
//! report of the second process.
//!
//! A process that has threads, or ever had, cannot be forked safely; a fresh one has none.

use std::{
    error::Error,
    ffi::OsString,
    fmt,
    io::Read,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

/// What tells the second that it is one.
pub(super) const FLAG: &str = "--in-background";

/// The second has failed and has said why.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) code: u8,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it ended with exit code {}", self.code)
    }
}

impl Error for Failed {}

/// What is as large is the kernel's again as soon as it is not needed, bytes. It is glibc's own number, which it raises by itself unless it is said.
const MMAP_BYTES: &str = "131072";

/// Starts the second with the words of our own command line, of which the first is `mount`. What it says when it is mounted.
pub(super) fn start(words: &[OsString]) -> anyhow::Result<String> {
    let (verb, others) = words.split_first().expect("the command line named the command");
    let folder = std::env::current_dir()?;
    // We may have been called from the very directory that is to be mounted over, and do not use it.
    std::env::set_current_dir("/")?;
    let mut second = Command::new(std::env::current_exe()?)
        .arg0("flashsift")
        .arg(verb)
        .arg(FLAG)
        .args(others)
        .current_dir(folder)
        // The service manager waits for who was started by it.
        .env_remove("NOTIFY_SOCKET")
        .env_remove("WATCHDOG_USEC")
        // glibc keeps what a table has outgrown once it has seen one of that size, which is a hundred bytes a file. Others do not know this name.
        .env("MALLOC_MMAP_THRESHOLD_", MMAP_BYTES)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut says = String::new();
    if let Some(mut stdout) = second.stdout.take() {
        stdout.read_to_string(&mut says)?;
    }
    if !says.is_empty() {
        return Ok(says);
    }
    let code = second.wait()?.code().and_then(|code| u8::try_from(code).ok());
    Err(Failed { code: code.unwrap_or(1) }.into())
}
