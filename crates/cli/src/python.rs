//! Commands that are written in Python, started as git starts external commands.

use anyhow::{Context, bail};
use std::{
    ffi::{OsStr, OsString},
    io::{self, Write},
    os::unix::process::CommandExt,
    path::Path,
    process::{Command, Stdio},
};
use tracing::info;

/// Variable that names the program for the Python package.
const PROGRAM: &str = "FLASHSIFT";

/// A command of the Python package.
pub(crate) struct External {
    /// The module that it runs.
    pub(crate) module: &'static str,
    /// The purpose of the package, as a message gives it.
    pub(crate) what: &'static str,
    /// The help that the package prints, for a machine without it.
    pub(crate) help: &'static str,
    /// The extra of the package that the command needs.
    pub(crate) extra: &'static str,
}

impl External {
    /// Replaces this process by Python. Returns only if that fails, or if the package is missing
    /// and `words` ask for help.
    pub(crate) fn run(&self, own: &[&OsStr], words: &[OsString]) -> anyhow::Result<()> {
        let install = format!("python3 -m pip install './python[{}]'", self.extra);
        let python = python();
        let shown = python.to_string_lossy().into_owned();
        let has_package = Command::new(&python)
            .args(["-c", &format!("import {}", self.module)])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        let what = self.what;
        let missing = match has_package {
            Ok(status) if status.success() => None,
            Ok(_) => Some(format!(
                "`{shown}` has no package flashsift, which {what}; in flashsift's sources: \
                 {install}"
            )),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(format!(
                "`{shown}` is not installed; this command needs Python 3.10, then {install}"
            )),
            Err(error) => return Err(error).with_context(|| format!("cannot start `{shown}`")),
        };
        if let Some(missing) = missing {
            if !words.iter().any(|word| word == "--help" || word == "-h") {
                bail!("{missing}");
            }
            write!(io::stdout(), "{}", self.help)?;
            info!("{missing}");
            return Ok(());
        }
        let mut command = Command::new(&python);
        if let (None, Ok(program)) = (std::env::var_os(PROGRAM), std::env::current_exe()) {
            // Python runs the same flashsift.
            command.env(PROGRAM, program);
        }
        let error = command.args(["-m", self.module]).args(own).args(words).exec();
        Err(error).with_context(|| format!("cannot start `{shown}`"))
    }
}

/// Returns the program of Python: `$FLASHSIFT_PYTHON`, the one beside this program in a virtual
/// environment, or the one in `PATH`.
fn python() -> OsString {
    if let Some(named) = std::env::var_os("FLASHSIFT_PYTHON") {
        return named;
    }
    let beside = std::env::current_exe().ok().and_then(|program| {
        let directory = program.parent()?;
        let in_environment = |directory: &Path| directory.join("../pyvenv.cfg").exists();
        in_environment(directory).then(|| directory.join("python3"))
    });
    beside.filter(|python| python.exists()).map_or_else(|| "python3".into(), Into::into)
}
