//! The systems that can be compared: the page cache over plain storage, over a write buffer in
//! non-volatile memory, or replaced by a cache of DRAM and non-volatile memory.

use super::{Cell, Outcome};
use crate::{
    back::{Order, flush_nvm, hybrid_flush, storage},
    cache::{fslru, nvlru},
};
use flashsift_caches::{cache::FRAMES_MAX, trace::Trace};
use flashsift_events::{
    io::Io,
    page::PAGE_BYTES,
    params::{self, Listed, Param, ParamKind, Params},
};

/// A system in the list.
pub struct SystemSpec {
    /// Name in `--system`.
    pub name: &'static str,
    /// The paper that describes it, or the term for a baseline.
    pub paper: &'static str,
    /// One-line description.
    pub what: &'static str,
    /// Parameters that `name:key=value` accepts.
    pub params: &'static [Param],
    pub(crate) kind: SystemKind,
}

/// Parts of which a system consists.
pub(crate) enum SystemKind {
    /// A page cache under any policy, over storage.
    Storage,
    /// A page cache under any policy, over a write buffer of some slots.
    Buffer(BuildOrder),
    /// A cache of its own, whose pages leave by recency.
    Memory {
        /// The smallest cache, in frames.
        frames_min: u32,
        /// Runs a cell. The trace has the table of bytes.
        run: RunMemory,
    },
}

/// A function that builds the order of a buffer of some slots.
pub(crate) type BuildOrder = fn(slots: u32, params: &Params) -> Box<dyn Order>;

/// A function that runs a cell of a system without a policy.
type RunMemory = fn(&Cell<'_>, &Trace, Option<&mut dyn FnMut(Io)>) -> Outcome;

/// Every system.
pub const ALL: &[SystemSpec] =
    &[storage::SPEC, flush_nvm::SPEC, hybrid_flush::SPEC, nvlru::SPEC, fslru::SPEC];

/// A system selected from the list, with its parameters.
pub type Selection = params::Selection<SystemSpec>;

/// Plain storage.
pub static PLAIN: Selection = Selection { spec: &ALL[0], params: Params::NONE };

impl Listed for SystemSpec {
    const KIND: &'static str = "system";
    const ALL: &'static [Self] = ALL;

    fn declared(&self) -> (&'static str, &'static [Param]) {
        (self.name, self.params)
    }
}

impl SystemSpec {
    /// Returns whether the page cache's policy can be chosen. Other systems have an order of their
    /// own.
    pub fn takes_policies(&self) -> bool {
        !matches!(self.kind, SystemKind::Memory { .. })
    }

    /// Returns whether it is the page cache over plain storage.
    pub fn is_plain(&self) -> bool {
        matches!(self.kind, SystemKind::Storage)
    }

    /// Returns the smallest cache that the system can have, in frames.
    pub fn frames_min(&self) -> u32 {
        match self.kind {
            SystemKind::Memory { frames_min, .. } => frames_min,
            _ => 1,
        }
    }

    /// Returns the pages of a system's write buffer, where it has one. `pages`: those of the trace.
    pub fn buffer_pages(selection: &Selection, pages: u32) -> Option<u32> {
        matches!(selection.spec.kind, SystemKind::Buffer(_)).then(|| slots(selection, pages))
    }

    /// Returns an estimate of the memory that the system takes beside a page cache over storage.
    pub fn bytes(selection: &Selection, pages: u32, frames: u32) -> u64 {
        match selection.spec.kind {
            SystemKind::Storage => 0,
            SystemKind::Buffer(_) => {
                12 * u64::from(pages) + 64 * u64::from(slots(selection, pages))
            }
            SystemKind::Memory { .. } => 8 * u64::from(pages) + 128 * u64::from(frames),
        }
    }
}

/// Parameters of every buffer.
pub(crate) const BUFFER_PARAMS: &[Param] = &[
    Param {
        name: "pages",
        what: "size of the buffer",
        kind: ParamKind::Number { default: 1024.0, min: 1.0, max: FRAMES_MAX as f64 },
    },
    Param {
        name: "mib",
        what: "its size in MiB, instead of pages",
        kind: ParamKind::Number { default: 0.0, min: 0.0, max: 1_048_576.0 },
    },
    Param {
        name: "share",
        what: "its size in percent of the pages of the trace, instead of pages",
        kind: ParamKind::Number { default: 0.0, min: 0.0, max: 100.0 },
    },
    Param {
        name: "flush",
        what: "whether the device is flushed before the place of an evicted page is used again",
        kind: ParamKind::Word(&["yes", "no"]),
    },
];

/// Returns the size of a buffer in pages, at least 1.
pub(crate) fn slots(selection: &Selection, pages: u32) -> u32 {
    let number = |name| selection.params.number(BUFFER_PARAMS, name);
    let slots = match (number("mib"), number("share")) {
        (mib, _) if mib > 0.0 => mib * (1024.0 * 1024.0) / PAGE_BYTES as f64,
        (_, share) if share > 0.0 => f64::from(pages) * share / 100.0,
        _ => number("pages"),
    };
    (slots.round() as u32).clamp(1, FRAMES_MAX)
}
