//! A mount that outlives the command that made it: flashsift starts itself again, in a session of its own, and waits for its word.
//! A process that has threads, or ever had, cannot be forked safely; a fresh one has none.

use flashsift_mount::place::Lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    error::Error,
    ffi::OsString,
    fmt,
    fs::File,
    io::{self, Read, Write},
    os::unix::{net::UnixStream, process::CommandExt},
    path::Path,
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

/// Whether the first still waits for the second's word.
pub(super) fn is_awaited() -> io::Result<bool> {
    let stdout = io::stdout();
    let mut word = [PollFd::new(&stdout, PollFlags::empty())];
    poll(&mut word, Some(&Timespec::default()))?;
    Ok(!word[0].revents().contains(PollFlags::ERR))
}

/// The second leaves the terminal.
pub(super) fn detach() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// Where the words of a second go.
pub(super) enum Words {
    /// To a file in BACKING.
    InBacking,
    /// To the journal.
    Elsewhere,
}

/// The second says that all is well, and lets go of what it was started with. From now on its words go to the journal, where there
/// is one, else to a file beside the lock.
pub(super) fn ready(says: &str, lock: &Lock) -> io::Result<Words> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(says.as_bytes())?;
    stdout.flush()?;
    let words = match journal() {
        Ok(journal) => {
            rustix::stdio::dup2_stderr(journal)?;
            Words::Elsewhere
        }
        Err(_) => {
            rustix::stdio::dup2_stderr(lock.log()?)?;
            Words::InBacking
        }
    };
    rustix::stdio::dup2_stdout(nowhere()?)?;
    Ok(words)
}

/// It says no more: nothing in BACKING may be open any longer.
pub(super) fn silent() -> io::Result<()> {
    Ok(rustix::stdio::dup2_stderr(nowhere()?)?)
}

fn nowhere() -> io::Result<File> {
    File::options().write(true).open("/dev/null")
}

/// The journal takes a stream of lines, after some about itself: who speaks, for which unit, how grave it is (a warning), whether lines say
/// that themselves, and whether to pass them on to syslog, the kernel's log and the console.
fn journal() -> io::Result<UnixStream> {
    let mut journal = UnixStream::connect(Path::new("/run/systemd/journal/stdout"))?;
    journal.write_all(b"flashsift\n\n4\n0\n0\n0\n0\n")?;
    Ok(journal)
}
