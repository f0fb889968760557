//! `flashsift train`: trains models, in Python.

use crate::python::External;
use std::ffi::{OsStr, OsString};

const TRAIN: External =
    External { module: "flashsift.train", what: "trains models", extra: "train" };

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
    // The end-to-end frontier runs the same flashsift.
    let program = std::env::current_exe().unwrap_or_else(|_| "flashsift".into());
    TRAIN.run(&[OsStr::new("--flashsift"), program.as_os_str()], &args.words)
}
