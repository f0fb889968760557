//! `flashsift sweep`: comparisons of many traces on many machines, in Python.

use crate::python::External;
use std::ffi::OsString;

const SWEEP: External =
    External { module: "flashsift.sweep", what: "compares many traces", extra: "sweep" };

/// Compare caches on many traces, on this machine's cores or a Dask cluster; needs Python
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Args {
    /// Traces and options; `flashsift sweep --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    words: Vec<OsString>,
}

/// Replaces this process by Python. Returns only if that fails.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    SWEEP.run(&[], &args.words)
}
