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
    /// There is nothing in it.
    #[error("it is empty")]
    Empty,
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
    /// Most of the trace was not understood: it is another format, or broken.
    #[error(
        "read as {format}, {damaged} of {total} lines or records make no sense ({skipped}): it is another format or \
         damaged; --format NAME overrides the detection (known formats: {})",
        crate::format::names()
    )]
    Unreadable {
        /// Format it was read as.
        format: &'static str,
        /// Lines or records that were not understood.
        damaged: u64,
        /// Lines or records in all.
        total: u64,
        /// The reasons.
        skipped: crate::events::Skipped,
    },
    /// A format name that does not exist.
    #[error("there is no trace format \"{0}\"; known formats: {names}", names = crate::format::names())]
    NoSuchFormat(String),
    /// The trace lacks what was asked of it.
    #[error("{0}")]
    Lacks(String),
    /// A trace could not be opened or written; or any of the other errors, with the name of the
    /// trace.
    #[error("{path}: {what}")]
    At {
        /// The trace, as the user named it.
        path: String,
        /// What went wrong.
        what: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A guard against input that would exhaust the machine.
    #[error("{0}")]
    TooLarge(String),
    /// The consumer of events gave up.
    #[error("{0}")]
    Sink(String),
}
