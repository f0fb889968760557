//! `flashsift sweep`: comparisons of many traces on many machines, in Python.

use crate::python::External;
use std::ffi::OsString;

const SWEEP: External = External {
    module: "flashsift.sweep",
    what: "compares many traces",
    help: include_str!("python/sweep.txt"),
    extra: "sweep",
};

/// Compare caches on many traces, cores and machines (needs Python)
///
/// Runs `flashsift compare` on each trace for every combination of policy, size, system, write-back
/// and device, and writes the results as a Parquet dataset with a report. A sweep that was
/// interrupted goes on where it was. The command is a part of flashsift's Python package, which
/// needs Python 3.10. In flashsift's sources, `python3 -m pip install './python[sweep]'` installs
/// it. The variable FLASHSIFT_PYTHON names another interpreter.
#[derive(clap::Args)]
#[command(
    disable_help_flag = true,
    after_help = "Examples:
  flashsift sweep *.parquet --policy all --device all
  flashsift sweep *.parquet --policy lru,arc --memory 4MiB,64MiB -o out"
)]
pub(crate) struct Args {
    /// Traces and options; with the package, `flashsift sweep --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    words: Vec<OsString>,
}

/// Replaces this process by Python. Returns only if that fails, or after the help.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    SWEEP.run(&[], &args.words)
}
