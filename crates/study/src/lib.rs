//! Questions to traces and machines: studies of systems, recommendations, descriptions
//! ([`describe`]), and the examination of a machine ([`doctor`]).
//!
//! A study compares policies at several cache sizes over one trace.
//!
//! A [`Request`] says what to compare. [`Study::new`] checks it against the trace, and
//! [`Study::plan`] lists the cells, one for each policy and size, in [`Wave`]s that respect the
//! memory limit. [`Plan::run`] simulates one cell: a pure function that any thread may call. Every
//! modelled device takes the requests of that one simulation. [`Plan::results`] puts the results
//! into rows, from which tables, verdict and notes follow.
//!
//! ```
//! use flashsift_caches::{
//!     synth::{Pattern, Recipe},
//!     trace::{TraceBuilder, Unit},
//! };
//! use flashsift_study::{Policies, Request, Study};
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
#![forbid(unsafe_code)]

pub mod curve;
pub mod describe;
mod device;
pub mod doctor;
mod error;
pub mod figures;
mod knee;
mod note;
mod pareto;
mod plan;
pub mod readahead_advice;
mod readahead_charges;
pub mod readahead_curve;
pub mod recommend;
pub mod record;
mod request;
mod results;
mod run;
pub mod sampled;
pub mod sift_trace;
mod sizes;
mod verdict;

#[cfg(test)]
mod tests;

pub use device::{CaseLatency, DeviceResult, PreparedDevice};
pub use error::{FutureProblem, PlacesLack, StudyError};
pub use knee::{KNEE_SHARE, Knee};
pub use note::{Note, OmissionReason};
pub use plan::{Plan, PlannedCell, Study, Wave};
pub use readahead_charges::{ChargedConditions, ChargedRun};
pub use request::{Policies, Request};
pub use results::{Charged, REFERENCE, ResultRow, Results, SizeResults};
pub use run::{CellResult, Observer, Sent};
pub use sizes::default_frames;
pub use verdict::{
    Best, Contender, DeviceVerdict, LeastCpu, SizeVerdict, StudyVerdict, Verdict, Writes,
};
