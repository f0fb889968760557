//! `flashsift train`: trains models, in Python.

use crate::python::External;
use std::ffi::{OsStr, OsString};

const TRAIN: External = External {
    module: "flashsift.train",
    what: "trains models",
    help: include_str!("python/train.txt"),
    extra: "train",
};

/// Train a model that decides which files deserve flash (needs Python)
///
/// Every file that a trace creates is an example. The model is measured on files that it has not
/// seen, and the sifters `cachesifter` and `lrb` take it. The command is a part of flashsift's
/// Python package, which needs Python 3.10. In flashsift's sources, `python3 -m pip install
/// './python[train]'` installs it. The variable FLASHSIFT_PYTHON names another interpreter.
#[derive(clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  flashsift train *.parquet -o model.safetensors
  flashsift compare trace.parquet --sift lrb:model=model.safetensors"
)]
pub(crate) struct Args {
    /// Traces and options; with the package, `flashsift train --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    words: Vec<OsString>,
}

/// Replaces this process by Python. Returns only if that fails, or after the help.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    // The end-to-end frontier runs the same flashsift.
    let program = std::env::current_exe().unwrap_or_else(|_| "flashsift".into());
    let own = [OsStr::new("--flashsift"), program.as_os_str()];
    TRAIN.run(&own, &args.words)
}
