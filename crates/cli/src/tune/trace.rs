//! `flashsift tune readahead TRACE`: the effect of each size on a recorded trace.

use super::{
    ReadaheadArgs, apply, backing,
    curve::{self, Asked},
    present_kib, usage,
};
use crate::load::Input;
use flashsift_host::readahead::Machine;
use std::{ffi::OsStr, path::Path};

pub(super) fn from_trace(args: &ReadaheadArgs, machine: &Machine) -> anyhow::Result<()> {
    let Some(trace) = &args.trace else { return Err(usage("name a trace")) };
    study(args, machine, trace, args.on.as_deref())
}

/// Prints the curve of a trace. If a device is named, its present value is the one to compare with,
/// and the proposal is set there, or shown.
pub(super) fn study(
    args: &ReadaheadArgs,
    machine: &Machine,
    trace: &Path,
    device: Option<&OsStr>,
) -> anyhow::Result<()> {
    let input = Input {
        trace: trace.to_owned(),
        format: args.curve.format.clone(),
        columns: args.curve.columns.clone(),
        rate: args.curve.rate,
    };
    let asked = Asked {
        present_kib: None,
        top: usize::try_from(args.top).unwrap_or(usize::MAX),
        force: args.force,
        form: args.form(),
    };
    let Some(device) = device else {
        curve::run(&input, &args.curve, asked)?;
        return Ok(());
    };
    if args.csv {
        return Err(usage("--csv prints one table: leave the device out, or give --json"));
    }
    let present_kib = Some(present_kib(&backing(machine, device)?.path)?);
    match curve::run(&input, &args.curve, Asked { present_kib, ..asked })? {
        Some(proposed_kib) => {
            let bytes = u64::from(proposed_kib) * 1024;
            apply::set(machine, device, bytes, args.apply, args.form())
        }
        None if args.apply => anyhow::bail!("nothing was set: there is no proposal"),
        None => Ok(()),
    }
}
