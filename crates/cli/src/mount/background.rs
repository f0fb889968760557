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

/// Environment variable that marks the second process.
pub(super) const FLAG: &str = "--in-background";

/// The second process has failed and has logged the reason.
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

/// Allocation size in bytes from which freed memory returns to the kernel at once. It is glibc's
/// default, which glibc raises dynamically unless it is set.
const MMAP_BYTES: &str = "131072";

/// Starts the second process with our own arguments, of which the first is `mount`. Returns its
/// report once it is mounted.
pub(super) fn start(words: &[OsString]) -> anyhow::Result<String> {
    let (verb, others) = words.split_first().expect("the command line named the command");
    let folder = std::env::current_dir()?;
    // The current directory may be the one to be mounted over, and is not used.
    std::env::set_current_dir("/")?;
    let mut second = Command::new(std::env::current_exe()?)
        .arg0("flashsift")
        .arg(verb)
        .arg(FLAG)
        .args(others)
        .current_dir(folder)
        // The service manager waits for the process that it started.
        .env_remove("NOTIFY_SOCKET")
        .env_remove("WATCHDOG_USEC")
        // A freed table of that size makes glibc raise its threshold and keep the memory, a hundred
        // bytes a file. Other C libraries ignore this name.
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
