//! The trace that a sifter leaves for the page cache.

use flashsift_caches::trace::{Tables, Trace, TraceBuilder, TraceError, Unit};
use flashsift_files::{
    sift::{Selection, SetupError},
    sifting::{SiftOutcome, Sifting},
};

/// The reason for which there is no such trace.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum SiftTraceError {
    /// The sifter cannot be built.
    #[error("--sift: {0}")]
    Setup(#[from] SetupError),
    /// The trace cannot be held.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

/// Lets a sifter with this much RAM, in bytes, decide on the files of a trace ([`Sifting::sift`]).
/// Returns the trace of the page cache below it, too.
///
/// # Errors
/// That trace does not fit into this much memory, or the sifter names a model that does not suit.
pub fn sift_trace(
    sifting: &Sifting<'_>,
    sifter: &Selection,
    ram_bytes: u64,
    tables: Tables,
    limit_bytes: u64,
) -> Result<(SiftOutcome, Trace), SiftTraceError> {
    let mut builder =
        TraceBuilder::new(sifting.about(), Unit::Page, limit_bytes).with_tables(tables);
    let mut failed = Ok(());
    let outcome = sifting.sift(sifter, ram_bytes, |event| {
        if failed.is_ok() {
            failed = builder.extend(std::slice::from_ref(event));
        }
    })?;
    failed?;
    Ok((outcome, builder.finish()?))
}
