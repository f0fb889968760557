//! The modes of a study that names none: Linux's own, where the trace has what they need.

use super::{Expire, Modes, Syncs, Unsuited};
use flashsift_caches::trace::Trace;
use flashsift_events::event::{FileSystemKind, Space};
use std::fmt;

/// The modes of a study that names none, and the reason for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefaultModes {
    /// The modes.
    pub modes: Modes,
    /// The reason.
    pub reason: DefaultReason,
}

/// The reason for the modes of a study that names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultReason {
    /// A trace of files with times and syncs has all that Linux's write-back goes by.
    AllKnown,
    /// Not a trace of files, so there are no files to age and to sync.
    NoFiles,
    /// The trace lacks times or syncs.
    Unsuited(Unsuited),
}

impl Modes {
    /// Linux's defaults, as `linux` names them: its flusher, and syncs of files.
    pub fn linux() -> Self {
        let (expire, syncs) = (Some(Expire::default()), Syncs::TheirFile);
        Self { expire, syncs, ..Self::default() }
    }

    /// Returns the modes with the rule of this file system, if Linux's flusher is among them and
    /// they name no other.
    pub fn on(mut self, file_system: Option<FileSystemKind>) -> Self {
        if self.expire.is_some() {
            self.file_system = self.file_system.or(file_system);
        }
        self
    }

    /// Returns the modes for a trace if none were chosen: [`Modes::linux`] on its file system, if
    /// it is of files and has times and syncs, else eviction only.
    pub fn default_for(trace: &Trace) -> DefaultModes {
        let linux = Self::linux().on(trace.about().knows.file_system);
        let reason = match linux.suit(trace) {
            _ if trace.about().space != Space::Files => DefaultReason::NoFiles,
            Err(unsuited) => DefaultReason::Unsuited(unsuited),
            Ok(()) => return DefaultModes { modes: linux, reason: DefaultReason::AllKnown },
        };
        DefaultModes { modes: Self::default(), reason }
    }
}

impl fmt::Display for DefaultReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AllKnown => "the trace is of files with times and syncs",
            Self::NoFiles => "the trace is not of files",
            Self::Unsuited(Unsuited::NoTimes) => "the trace has no times",
            Self::Unsuited(Unsuited::NoSyncs) => "the trace does not record syncs",
        })
    }
}

impl fmt::Display for DefaultModes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--writeback {}: {}", self.modes.name(), self.reason)
    }
}
