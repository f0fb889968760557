//! Why a study cannot be done.

use crate::{event::Space, show, system::FRAMES_MAX, trace::TraceError, writeback::Unsuited};

/// Why a study cannot be done.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum StudyError {
    /// No policy was asked for.
    #[error("a study takes at least one policy")]
    NoPolicies,
    /// A cache size out of its bounds.
    #[error("a cache has 1 to {max} frames, not {0}", max = FRAMES_MAX)]
    Frames(u32),
    /// The layout is for another kind of trace.
    #[error(
        "--layout {layout}: this trace is of {}; it takes {takes}",
        if *.space == Space::Files { "files" } else { "addresses" }
    )]
    Layout {
        /// The layout asked for.
        layout: &'static str,
        /// What the trace's files are.
        space: Space,
        /// The layouts that it takes, joined by "or".
        takes: String,
    },
    /// The trace lacks what the write-back modes go by.
    #[error("--writeback {modes}: {unsuited}")]
    WriteBack {
        /// The modes, as they are given.
        modes: String,
        /// What the trace lacks.
        unsuited: Unsuited,
    },
    /// Objects have no place on a device.
    #[error("objects have no place on a device: leave the devices out")]
    ObjectsOnDevices,
    /// An offline policy was asked for by name, and the future of the trace cannot be held.
    #[error("{0}")]
    Future(FutureProblem),
    /// Not even one cell fits into memory beside the trace.
    #[error(
        "one cell over {} takes about {} of memory beside the trace, and {} are left of the limit: \
         raise --trace-memory or shorten the trace",
        show::counted((*.pages).into(), "page"),
        show::bytes(*.cell_bytes),
        show::bytes(*.free_bytes)
    )]
    Memory {
        /// Pages of the trace.
        pages: u32,
        /// Estimate for the largest cell.
        cell_bytes: u64,
        /// Left of the limit beside the trace.
        free_bytes: u64,
    },
}

/// Why the future of a trace, which offline policies need, cannot be held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FutureProblem {
    /// It does not fit into memory.
    #[error(
        "knowing the future of this trace takes {} of memory, the limit is {}: see --trace-memory",
        show::bytes(*.needed_bytes),
        show::bytes(*.limit_bytes)
    )]
    Memory {
        /// For the trace, its future and one cell.
        needed_bytes: u64,
        /// The limit of the request.
        limit_bytes: u64,
    },
    /// The trace is too long to number its accesses.
    #[error("{0}")]
    Trace(TraceError),
}
