//! Errors of a trace, worded so that its owner can repair it.

use flashsift_events::params;
use std::io;

/// The reason for which a trace cannot be read further. A single bad line is not an error: it is
/// skipped and counted ([`crate::events::Events::skip`]).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Reading or decompressing failed, for example because the archive is truncated.
    #[error("reading stopped at byte {offset} of the (decompressed) trace: {source}")]
    Io {
        /// Byte offset into the decompressed trace.
        offset: u64,
        /// The error of the system or the decompressor.
        source: io::Error,
    },
    /// The content contradicts the format at one place, and nothing after it can be trusted.
    #[error("{what} at byte {offset}")]
    Malformed {
        /// The fault, and its remedy.
        what: String,
        /// Byte offset into the decompressed trace.
        offset: u64,
    },
    /// The trace has no bytes.
    #[error("it is empty")]
    Empty,
    /// No reader recognises the content.
    #[error(
        "no trace format recognises this input ({why}); {}; --format NAME overrides the \
        detection, and --columns opens any table (docs/formats.md)",
        guess.clone().unwrap_or_else(|| format!("known formats: {}", crate::format::names()))
    )]
    Unknown {
        /// The parts of the content that were examined.
        why: String,
        /// The table that it may be, as a sentence.
        guess: Option<String>,
    },
    /// The file is of another tool, which can turn it into a trace.
    #[error("it is {what}, which flashsift does not open: give it the output of `{command}`")]
    Foreign {
        /// Kind of file.
        what: &'static str,
        /// Command whose output is a trace.
        command: &'static str,
    },
    /// The trace was read to its end and contains no access.
    #[error("the trace holds no read or write{}", crate::events::Skipped::in_words(skipped))]
    Nothing {
        /// The lines or records that were skipped.
        skipped: crate::events::Skipped,
    },
    /// Most of the trace was not understood: it is another format, or broken.
    #[error(
        "read as {format}, {damaged} of {total} lines or records make no sense ({skipped}): it is \
        another format or \
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
    /// The format name does not exist.
    #[error(
        "there is no trace format \"{0}\"{near}; known formats: {names}",
        near = params::did_you_mean(params::nearest(.0, crate::format::all_names())),
        names = crate::format::names()
    )]
    NoSuchFormat(String),
    /// The trace lacks a required fact.
    #[error("{0}")]
    Lacks(String),
    /// The options of the format make no sense, whatever the trace holds.
    #[error("{0}")]
    Options(String),
    /// A trace could not be opened or written, or any of the other errors, with the name of the
    /// trace.
    #[error("{path}: {what}")]
    At {
        /// The trace, as the user named it.
        path: String,
        /// The error.
        what: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A guard against input that would exhaust the machine.
    #[error("{0}")]
    TooLarge(String),
    /// The consumer of the events failed.
    #[error("{0}")]
    Sink(String),
}
