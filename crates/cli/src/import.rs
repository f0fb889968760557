//! `flashsift import`: converts a trace of any format to one file of our own.

use crate::{
    load::{self, Input},
    logging::SUMMARY,
    size,
    usage::Usage,
};
use flashsift_traces::store;
use std::path::PathBuf;
use tracing::info;

/// Convert a trace of any format into flashsift's Parquet format
#[derive(clap::Args)]
#[command(after_help = "Examples:
  flashsift import app.strace.xz -o app.parquet
  flashsift import - --format strace -o app.parquet < app.strace")]
pub(crate) struct Args {
    #[command(flatten)]
    input: Input,

    /// Path of the trace to write
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let same = |path: &PathBuf| path.canonicalize().ok();
    if same(&args.output).is_some_and(|output| Some(output) == same(&args.input.trace)) {
        return Err(Usage("the output is the trace itself: give another -o".to_owned()).into());
    }
    let name = args.input.name();
    if args.output.as_os_str() == "-" {
        return Err(
            Usage("a store cannot go to standard output: give -o a file name".to_owned()).into()
        );
    }
    let mut writer = store::Writer::create(&args.output, &name)?;
    let outcome = args.input.read(&mut writer)?;
    // A copy of a stored trace keeps the omissions that its first reader noted.
    let mut skipped = outcome.skipped.clone();
    if let Some(origin) = &outcome.origin {
        skipped.merge(&origin.skipped);
    }
    let bytes = writer.finish(&skipped)?;
    info!(
        target: SUMMARY,
        "{}: {} from {name} ({}), {}, {:.1} bytes an event",
        args.output.display(),
        size::counted(outcome.events, "event"),
        outcome.format,
        size::bytes(bytes),
        bytes as f64 / outcome.events as f64
    );
    load::log_skipped(&skipped);
    Ok(())
}
