//! `flashsift tune readahead TRACE`: the effect of each size on a recorded trace.

use super::{ReadaheadArgs, usage};

pub(super) fn from_trace(args: &ReadaheadArgs) -> anyhow::Result<()> {
    let Some(trace) = &args.trace else { return Err(usage("name a trace")) };
    anyhow::bail!(
        "{}: this version does not study traces yet; compare sizes with `flashsift compare {} \
         --readahead linux:64k --readahead linux:128k`",
        trace.display(),
        trace.display()
    )
}
