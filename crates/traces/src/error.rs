//! What can be wrong with a trace, said so that its owner can mend it.

use std::io;

/// A trace that cannot be read on. Single bad lines are no error: they are skipped and counted
/// ([`crate::events::Events::skip`]).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Reading or decompressing failed (a truncated archive is one of these).
    #[error("reading stopped at byte {offset} of the (decompressed) trace: {source}")]
    Io {
        /// Byte offset into the decompressed trace.
        offset: u64,
        /// What the system or the decompressor said.
        source: io::Error,
    },
    /// The content contradicts the format at one place, and nothing after it can be trusted.
    #[error("{what} at byte {offset}")]
    Malformed {
        /// What was wrong and what to do.
        what: String,
        /// Byte offset into the decompressed trace.
        offset: u64,
    },
    /// No reader recognises the content.
    #[error(
        "no trace format recognises this input ({why}); known formats: {}; --format NAME overrides the detection",
        crate::format::names()
    )]
    Unknown {
        /// What was looked at.
        why: String,
    },
    /// The trace was read to its end and holds no access.
    #[error("the trace holds no read or write{}", crate::events::Skipped::in_words(skipped))]
    Nothing {
        /// What was skipped instead.
        skipped: crate::events::Skipped,
    },
    /// A guard against input that would exhaust the machine.
    #[error("{0}")]
    TooLarge(String),
    /// The consumer of events gave up.
    #[error("{0}")]
    Sink(String),
}
