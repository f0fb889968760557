//! Records by strace and its trace format, where tracefs is not permitted.

use crate::{Error, Recorded, recorder::Lost};
use flashsift_traces::{
    events::{Events, Sink},
    format,
    input::Input,
};
use std::{
    fs::File,
    io::{self, BufReader},
    process::{Command, Stdio},
};

const CALLS: &str = "trace=%file,%desc,%process,msync,munmap,mremap,sync,syncfs,umask";

/// Whether strace is installed.
pub fn has_strace() -> bool {
    let mut version = Command::new("strace");
    version.arg("-V").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    version.status().is_ok_and(|status| status.success())
}

/// Runs a program under strace and records its system calls. The output of strace is kept in the
/// system's temporary directory meanwhile.
///
/// # Errors
///
/// strace is not installed, or its output cannot be read.
pub fn strace(command: &Command, sink: &mut dyn Sink) -> Result<Recorded, Error> {
    let at = |path: &str, what| Error::At { path: path.to_owned(), what };
    let folder = tempfile::tempdir().map_err(|e| at("a temporary directory", e))?;
    let lines = folder.path().join("strace");
    let mut strace = Command::new("strace");
    strace.args(["-f", "-ttt", "-y", "-s", "0", "-e", CALLS, "-o"]).arg(&lines);
    strace.arg("--").arg(command.get_program()).args(command.get_args());
    let status = strace.status().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::Nothing(
            "strace is not installed either: run as root, or install strace (Debian: apt install \
             strace)"
                .to_owned(),
        ),
        _ => at("strace", error),
    })?;
    let mut file = BufReader::new(File::open(&lines).map_err(|e| at("the output of strace", e))?);
    let mut events = Events::new(sink);
    let spec = format::named("strace")?;
    (spec.read)(&mut Input::new(&mut file), &mut events)?;
    Ok(Recorded { summary: events.finish()?, lost: Lost::default(), status: Some(status) })
}
