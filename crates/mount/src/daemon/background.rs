//! The background process: it reports to the process that started it, and leaves the terminal.

use super::Options;
use crate::attach::place::Lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    fs::File,
    io::{self, Write},
};

/// Whether the process that started this one still waits for its report.
pub(super) fn is_awaited() -> io::Result<bool> {
    let stdout = io::stdout();
    let mut report = [PollFd::new(&stdout, PollFlags::empty())];
    poll(&mut report, Some(&Timespec::default()))?;
    Ok(!report[0].revents().contains(PollFlags::ERR))
}

/// Leaves the terminal's session.
pub(super) fn leave_terminal() -> io::Result<()> {
    rustix::process::setsid()?;
    Ok(())
}

/// Makes messages go to the journal from now on; an error where there is none.
pub type ToJournal = fn() -> io::Result<()>;

/// Performs this before the next message.
pub type BeforeMessage = fn(Box<dyn FnOnce() + Send>);

/// Where the messages of a background process go.
pub(super) enum Messages {
    /// To a file in BACKING.
    InBacking,
    /// To the journal, or to standard error.
    Elsewhere,
}

/// Reports that the mount is ready, and closes what this process was started with. From now on its
/// messages go to the journal; where there is none, to a file beside the lock, which the first one
/// makes.
pub(super) fn report_ready(report: &str, lock: &Lock, options: &Options) -> io::Result<Messages> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(report.as_bytes())?;
    stdout.flush()?;
    rustix::stdio::dup2_stderr(nowhere()?)?;
    let messages = match (options.to_journal)() {
        Ok(()) => Messages::Elsewhere,
        Err(_) => {
            let log = lock.log_later();
            (options.before_message)(Box::new(|| {
                let _ = log().map(rustix::stdio::dup2_stderr);
            }));
            Messages::InBacking
        }
    };
    rustix::stdio::dup2_stdout(nowhere()?)?;
    Ok(messages)
}

/// Closes the file in BACKING. No message makes it again.
pub(super) fn close_log(before_message: BeforeMessage) -> io::Result<()> {
    before_message(Box::new(|| ()));
    Ok(rustix::stdio::dup2_stderr(nowhere()?)?)
}

fn nowhere() -> io::Result<File> {
    File::options().write(true).open("/dev/null")
}
