//! The cells of a study, their memory, and how many of them may run at once.

use super::{FutureProblem, Note, OmissionReason, Study, StudyError};
use crate::{
    device::Clocks,
    policy, system,
    trace::{Future, Trace},
    writeback,
};
use std::ops::Range;

/// The cells of a study: sizes ascending, at each size every policy in the order of the request.
pub struct Plan<'a> {
    pub(super) study: &'a Study<'a>,
    pub(super) future: Option<Future>,
    left_out: Option<Note>,
    cells: Vec<PlannedCell<'a>>,
    waves: Vec<Wave>,
}

/// One policy at one size.
pub struct PlannedCell<'a> {
    /// The policy.
    pub policy: &'a policy::Selection,
    /// The cache size in frames.
    pub frames: u32,
    /// Estimate of the memory that the cell takes while it runs, beside the trace.
    pub memory_bytes: u64,
}

/// Consecutive cells, and how many of them the memory limit allows at once. A wave begins when
/// every cell of the wave before it has run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wave {
    /// Indices into [`Plan::cells`].
    pub cells: Range<usize>,
    /// Cells that may run at once, at least 1 and at most [`super::Request::workers`].
    pub at_once: usize,
}

impl<'a> Plan<'a> {
    pub(super) fn new(study: &'a Study<'a>) -> Result<Self, StudyError> {
        let (trace, request) = (study.trace, &study.request);
        let limit_bytes = request.memory_limit_bytes;
        let cell_bytes = study.frames.iter().map(|frames| cell_bytes(study, *frames)).max();
        let cell_bytes = cell_bytes.unwrap_or(0);
        let free_bytes = limit_bytes.saturating_sub(trace.held_bytes() as u64);
        if cell_bytes > free_bytes {
            return Err(StudyError::Memory { pages: trace.pages(), cell_bytes, free_bytes });
        }
        let is_offline = |policy: &policy::Selection| policy.spec.kind.is_offline();
        let needs_future = request.policies.iter().any(is_offline);
        let future = needs_future.then(|| future(trace, cell_bytes, limit_bytes));
        let (future, left_out) = match future.transpose() {
            Ok(future) => (future, None),
            Err(problem) if request.policies.offline_is_optional() => {
                let reason = OmissionReason::Future(problem);
                (None, Some(Note::left_out(reason, |spec| spec.kind.is_offline())))
            }
            Err(problem) => return Err(StudyError::Future(problem)),
        };
        let is_kept = |policy: &&policy::Selection| left_out.is_none() || !is_offline(policy);
        let at_size = |frames: u32| {
            let memory_bytes = self::cell_bytes(study, frames);
            let policies = request.policies.iter().filter(is_kept);
            policies.map(move |policy| PlannedCell { policy, frames, memory_bytes })
        };
        let cells: Vec<_> = study.frames.iter().flat_map(|frames| at_size(*frames)).collect();
        let free_bytes = free_bytes - if future.is_some() { future_bytes(trace) } else { 0 };
        let waves = waves(&cells, free_bytes, request.workers.max(1));
        Ok(Self { study, future, left_out, cells, waves })
    }

    /// Every cell, in order.
    pub fn cells(&self) -> &[PlannedCell<'a>] {
        &self.cells
    }

    /// Every cell once, in order, in as few waves as the memory limit allows.
    pub fn waves(&self) -> &[Wave] {
        &self.waves
    }

    /// Policies that are left out because they do not fit.
    pub fn notes(&self) -> Vec<Note> {
        self.left_out.iter().cloned().collect()
    }
}

/// Memory that the future of a trace takes: a number for each access.
fn future_bytes(trace: &Trace) -> u64 {
    let totals = trace.totals();
    size_of::<u32>() as u64 * (totals.read_accesses + totals.write_accesses)
}

/// The future of a trace, if the trace, its future and one cell fit into memory.
fn future(trace: &Trace, cell_bytes: u64, limit_bytes: u64) -> Result<Future, FutureProblem> {
    let needed_bytes = trace.held_bytes() as u64 + future_bytes(trace) + cell_bytes;
    if needed_bytes > limit_bytes {
        return Err(FutureProblem::Memory { needed_bytes, limit_bytes });
    }
    trace.future().map_err(FutureProblem::Trace)
}

/// Estimate of the memory that a cell of this size takes beside the trace.
pub(super) fn cell_bytes(study: &Study<'_>, frames: u32) -> u64 {
    let request = &study.request;
    let pages = study.trace.pages();
    // A listener gets its requests from the system that also writes back.
    let writes_back = !request.writeback.on_eviction_only() || study.hands_requests_on();
    let writeback = if writes_back { writeback::machine_bytes(study.trace) } else { 0 };
    let devices = request.devices.len() as u64 * Clocks::held_bytes(pages);
    let observer = request.observer_bytes.unwrap_or(0);
    system::cell_bytes(pages, frames) + writeback + devices + observer
}

/// Groups consecutive cells of which equally many fit. Each fits alone.
fn waves(cells: &[PlannedCell<'_>], free_bytes: u64, workers: usize) -> Vec<Wave> {
    let mut waves: Vec<Wave> = Vec::new();
    for (cell, planned) in cells.iter().enumerate() {
        let fitting = free_bytes / planned.memory_bytes.max(1);
        let at_once = usize::try_from(fitting).unwrap_or(workers).clamp(1, workers);
        match waves.last_mut() {
            Some(wave) if wave.at_once == at_once => wave.cells.end = cell + 1,
            _ => waves.push(Wave { cells: cell..cell + 1, at_once }),
        }
    }
    waves
}
