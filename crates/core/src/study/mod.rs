//! A study compares policies at several cache sizes over one trace.
//!
//! A [`Request`] says what to compare. [`Study::new`] checks it against the trace, and
//! [`Study::plan`] lists the cells, one for each policy and size, in [`Wave`]s that respect the
//! memory limit. [`Plan::run`] simulates one cell: a pure function that any thread may call. Every
//! modelled device takes the requests of that one simulation. [`Plan::results`] puts the results
//! into rows, from which tables, verdict and notes follow.
//!
//! ```
//! use flashsift_core::{
//!     study::{Policies, Request, Study},
//!     synth::{Pattern, Recipe},
//!     trace::{TraceBuilder, Unit},
//! };
//!
//! let recipe = Recipe {
//!     requests: 2000,
//!     pages: 200,
//!     pattern: Pattern::Zipf { alpha: 0.9 },
//!     write_share: 0.3,
//!     rate: 1000.0,
//!     seed: 1,
//!     objects: false,
//! };
//! let mut builder = TraceBuilder::new(recipe.about(), Unit::Page, 1 << 20);
//! builder.extend(&recipe.events()?.collect::<Vec<_>>())?;
//! let trace = builder.finish()?;
//!
//! let policies = Policies::parse(["lru", "sieve", "belady"])?;
//! let request = Request { policies, frames: vec![16, 64], ..Request::default() };
//! let study = Study::new(&trace, request)?;
//! let plan = study.plan()?;
//! // One cell after the other; a caller with threads runs each wave's cells in parallel. The
//! // clock gives the CPU time of the calling thread; this example measures none.
//! let cells = (0..plan.cells().len()).map(|cell| plan.run(cell, &|| 0, None));
//! let results = plan.results(cells);
//! for row in results.rows() {
//!     println!("{} at {} frames: {} hits", row.policy, row.frames, row.outcome.hits());
//! }
//! let verdict = results.verdict().expect("lru and sieve are online policies");
//! assert_eq!(verdict.sizes[0].verdict.bound.unwrap().0, "belady");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::{
    event::Space,
    layout,
    trace::{Trace, TraceError, Unit},
    writeback::Unsuited,
};

mod device;
mod note;
mod pareto;
mod plan;
mod request;
mod results;
mod run;
mod sizes;
mod verdict;

#[cfg(test)]
mod tests;

pub use device::{DeviceResult, Lifetime, PreparedDevice};
pub use note::{Note, OmissionReason};
pub use plan::{Plan, PlannedCell, Wave};
pub use request::{Policies, Request};
pub use results::{ResultRow, Results, SizeResults};
pub use run::CellResult;
pub use sizes::default_frames;
pub use verdict::{
    Best, Contender, DeviceVerdict, LeastCpu, REFERENCE, SizeVerdict, StudyVerdict, Verdict, Writes,
};

/// A request that its trace can answer.
pub struct Study<'a> {
    trace: &'a Trace,
    request: Request,
    layout: layout::Selection,
    /// Ascending, each once.
    frames: Vec<u32>,
}

/// Why a study cannot be done.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum StudyError {
    /// No policy was asked for.
    #[error("a study takes at least one policy")]
    NoPolicies,
    /// A cache size out of its bounds.
    #[error("a cache has 1 to {max} frames, not {0}", max = crate::system::FRAMES_MAX)]
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
        crate::show::counted((*.pages).into(), "page"),
        crate::show::bytes(*.cell_bytes),
        crate::show::bytes(*.free_bytes)
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
        crate::show::bytes(*.needed_bytes),
        crate::show::bytes(*.limit_bytes)
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

impl<'a> Study<'a> {
    /// Checks a request against its trace, and fills in the layout and sizes that it leaves open.
    ///
    /// # Errors
    /// The request makes no sense for this trace: [`StudyError::NoPolicies`],
    /// [`StudyError::Frames`], [`StudyError::Layout`], [`StudyError::WriteBack`] or
    /// [`StudyError::ObjectsOnDevices`].
    pub fn new(trace: &'a Trace, request: Request) -> Result<Self, StudyError> {
        let layout = suitable_layout(request.layout.clone(), trace.about().space)?;
        request.writeback.suit(trace).map_err(|unsuited| {
            let modes = request.writeback.to_string();
            StudyError::WriteBack { modes, unsuited }
        })?;
        if request.policies.is_empty() {
            return Err(StudyError::NoPolicies);
        }
        if request.unit == Unit::Request && !request.devices.is_empty() {
            return Err(StudyError::ObjectsOnDevices);
        }
        let frames = sizes::chosen(&request.frames, trace.pages())?;
        Ok(Self { trace, request, layout, frames })
    }

    /// The trace.
    pub fn trace(&self) -> &'a Trace {
        self.trace
    }

    /// The request, as it was given.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// The cache sizes in frames, ascending.
    pub fn frames(&self) -> &[u32] {
        &self.frames
    }

    /// What to know of the request before it is planned.
    pub fn notes(&self) -> Vec<Note> {
        let caveats = self.request.writeback.caveats(self.trace).into_iter().map(Note::WriteBack);
        caveats.chain(self.request.policies.left_out_as_slow()).collect()
    }

    /// Lists the cells in the order of sizes and policies, and how many may run at once.
    ///
    /// # Errors
    /// [`StudyError::Future`] if an offline policy was asked for by name and does not fit;
    /// [`StudyError::Memory`] if a cell does not fit even alone.
    pub fn plan(&self) -> Result<Plan<'_>, StudyError> {
        Plan::new(self)
    }

    /// Whether each request of a cell is handed on, to devices or to an observer.
    fn hands_requests_on(&self) -> bool {
        self.request.observer_bytes.is_some() || !self.request.devices.is_empty()
    }
}

fn suitable_layout(asked: Option<layout::Selection>, space: Space) -> Result<layout::Selection, StudyError> {
    let layout = asked.unwrap_or_else(|| layout::Selection::default_for(space));
    if (layout.spec.suits)(space) {
        return Ok(layout);
    }
    let suitable = layout::ALL.iter().filter(|spec| (spec.suits)(space));
    let takes = suitable.map(|spec| spec.name).collect::<Vec<_>>().join(" or ");
    Err(StudyError::Layout { layout: layout.spec.name, space, takes })
}
