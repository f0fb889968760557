//! A mount that outlives the command that created it: flashsift starts itself again and waits for
//! the report of the second process.
//!
//! A process that has, or ever had, threads cannot be forked safely; a new process has none.

use std::{
    error::Error,
    ffi::OsString,
    fmt,
    io::Read,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

/// The argument by which the second process knows its role.
pub(super) const FLAG: &str = "--in-background";

/// The second process has failed and has reported the reason.
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

/// Allocations from this size on return to the kernel as soon as they are freed, bytes. It is
/// glibc's own default; setting it keeps glibc from raising it.
const MMAP_BYTES: &str = "131072";

/// Starts the second process with our own arguments. Returns its message when it is mounted.
pub(super) fn start(words: &[OsString]) -> anyhow::Result<String> {
    // Options of every command, such as -q, may stand before `mount` and `sift trial`. None of them
    // takes a value.
    let is_option = |word: &OsString| word.as_encoded_bytes().starts_with(b"-");
    let verb = words.iter().position(|word| !is_option(word) && word != "sift");
    let (before, after) = words.split_at(verb.expect("the command line named the command") + 1);
    let folder = std::env::current_dir()?;
    // Our working directory may be the one that is to be mounted over, and must not be in use.
    std::env::set_current_dir("/")?;
    let mut second = Command::new(std::env::current_exe()?)
        .arg0("flashsift")
        .args(before)
        .arg(FLAG)
        .args(after)
        .current_dir(folder)
        // The service manager waits for a message from the process that it started itself.
        .env_remove("NOTIFY_SOCKET")
        .env_remove("WATCHDOG_USEC")
        // After one free of a large table, glibc keeps tables of that size, which is a hundred
        // bytes a file. Other libraries ignore this variable.
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
