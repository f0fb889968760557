//! The reasons for which a study cannot be done.

use flashsift_caches::{cache::FRAMES_MAX, trace::TraceError};
use flashsift_events::{event::Space, show};
use flashsift_pages::{metadata, writeback::Unsuited};

/// The reason for which a study cannot be done.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum StudyError {
    /// The request names no policy.
    #[error("a study takes at least one policy")]
    NoPolicies,
    /// A cache size is out of bounds.
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
        /// The kind of objects in the trace.
        space: Space,
        /// The layouts that it takes, joined by "or".
        takes: String,
    },
    /// The layout takes places from the trace, and the trace has none that it can take.
    #[error("--layout {layout}: {lack}")]
    Places {
        /// The layout asked for.
        layout: &'static str,
        /// The lack.
        lack: PlacesLack,
    },
    /// The trace lacks facts that the write-back modes need.
    #[error("--writeback {modes}: {unsuited}")]
    WriteBack {
        /// The modes, as they are given.
        modes: String,
        /// The facts that the trace lacks.
        unsuited: Unsuited,
    },
    /// The file system's own writes cannot be modelled.
    #[error("--metadata {0}: {1}")]
    Metadata(&'static str, metadata::NoMetadata),
    /// The request asks for something that is not modelled beside non-volatile memory.
    #[error("--system {system} cannot be combined with {with}: that is not modelled")]
    System {
        /// Name of the system.
        system: &'static str,
        /// The other part of the request.
        with: &'static str,
    },
    /// The request asks for something that is not modelled together with read-ahead.
    #[error("--readahead cannot be combined with {0}: that is not modelled")]
    ReadAhead(String),
    /// An offline policy knows accesses, and no prefetches.
    #[error(
        "--readahead cannot be combined with --policy {0}, which knows the next accesses but not \
         what is read ahead: leave it out"
    )]
    ReadAheadOffline(&'static str),
    /// The cache is too small for the system.
    #[error("--system {system} needs a cache of at least {frames_min} pages; {frames} was asked")]
    SystemFrames {
        /// Name of the system.
        system: &'static str,
        /// The size that was asked for, in frames.
        frames: u32,
        /// The smallest size, in frames.
        frames_min: u32,
    },
    /// It orders pages by their place, which a sample of the pages does not keep.
    #[error(
        "--sample cannot be combined with {0}, which orders pages by their place: a sample holds \
         no neighbours"
    )]
    Sampled(String),
    /// Objects have no place on a device, so no device can be modelled.
    #[error("objects have no place on a device: leave the devices out")]
    ObjectsOnDevices,
    /// The request names an offline policy, and its table of future accesses does not fit into
    /// memory.
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
        /// Memory left of the limit beside the trace.
        free_bytes: u64,
    },
}

/// The reason for which a layout cannot take places from a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlacesLack {
    /// The recording tells no place of any page of the trace.
    #[error(
        "this trace holds no places on the device; flashsift record notes them on ext4 and F2FS"
    )]
    None,
    /// The times of places are not known.
    #[error("this trace has no times, so it is not known when a place was valid")]
    NoTimes,
    /// The file system places blocks that are smaller than a page.
    #[error(
        "this trace was recorded on a file system with blocks smaller than 4 KiB, of which several \
         lie in one page"
    )]
    SmallBlocks,
    /// The trace was built without its table of places
    /// ([`flashsift_caches::trace::Tables::places`]).
    #[error("the trace was read without its places")]
    NotRead,
}

/// The reason for which the future of a trace, which offline policies need, cannot be held.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FutureProblem {
    /// The future does not fit into memory.
    #[error(
        "knowing the future of this trace takes {} of memory, the limit is {}: see --trace-memory",
        show::bytes(*.needed_bytes),
        show::bytes(*.limit_bytes)
    )]
    Memory {
        /// Memory for the trace, its future and one cell.
        needed_bytes: u64,
        /// The limit of the request.
        limit_bytes: u64,
    },
    /// Pages are read ahead of accesses, which the future does not tell.
    #[error("with read-ahead they are no bound")]
    ReadAhead,
    /// The trace has too many accesses to number them.
    #[error("{0}")]
    Trace(TraceError),
}
