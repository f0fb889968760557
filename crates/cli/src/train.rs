//! `flashsift train`: Python's half of flashsift, started as git starts external commands.

use anyhow::{Context, bail};
use std::{
    ffi::OsString,
    io,
    os::unix::process::CommandExt,
    process::{Command, Stdio},
};

/// Command that installs the package, as every message here gives it.
const INSTALL: &str = "python3 -m pip install './python[train]'";

/// Train a model that decides which cache files deserve flash; needs Python
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Traces and options; `flashsift train --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    words: Vec<OsString>,
}

/// Replaces this process by Python. Returns only if that fails.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let python = std::env::var_os("FLASHSIFT_PYTHON").unwrap_or_else(|| "python3".into());
    let shown = python.to_string_lossy().into_owned();
    let has_package = Command::new(&python)
        .args(["-c", "import flashsift.train"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match has_package {
        Ok(status) if status.success() => {}
        Ok(_) => bail!(
            "`{shown}` has no package flashsift, which trains models; in flashsift's sources: \
             {INSTALL}"
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("`{shown}` is not installed; training needs Python 3.10, and then {INSTALL}")
        }
        Err(error) => return Err(error).with_context(|| format!("cannot start `{shown}`")),
    }
    let mut command = Command::new(&python);
    command.args(["-m", "flashsift.train"]);
    if let Ok(program) = std::env::current_exe() {
        // The end-to-end frontier runs the same flashsift.
        command.arg("--flashsift").arg(program);
    }
    let error = command.args(&args.words).exec();
    Err(error).with_context(|| format!("cannot start `{shown}`"))
}
