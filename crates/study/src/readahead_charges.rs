//! Prefetches by file and by process: one run in which each is charged to the read that caused it.

use super::{Observer, Plan, Policies, Request, Sent, Study, StudyError};
use flashsift_caches::{
    policy,
    trace::{Tables, Trace},
};
use flashsift_events::{
    event::FileId,
    io::{Io, IoOp},
};
use flashsift_pages::{
    readahead::{self, CellReadAhead, ReadAheadCharge, ReadAheadCharges, ReadAheadModel},
    system::Outcome,
    writeback::Modes,
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::cell::RefCell;

/// The system whose prefetches are charged to files and processes.
pub struct ChargedConditions {
    /// The read-ahead.
    pub readahead: readahead::Selection,
    /// The policy of the page cache; no offline one.
    pub policy: policy::Selection,
    /// Its size in frames.
    pub frames: u32,
    /// Memory that the trace and the run may take.
    pub memory_limit_bytes: u64,
}

/// A run with its prefetches by file and by process.
#[derive(Clone, Debug)]
pub struct ChargedRun {
    /// Hits, prefetches and requests of the whole run.
    pub outcome: Outcome,
    /// The same prefetches by file and process.
    pub charges: ReadAheadCharges,
}

impl ChargedConditions {
    /// Returns the side tables that the trace must have.
    pub fn tables(readahead: &readahead::Selection) -> Tables {
        let reads_ahead_pages = ReadAheadModel::new(readahead).reach_pages().max(1);
        Tables { reads_ahead_pages, owners: true, names: true, ..Tables::default() }
    }

    /// Simulates the system over a trace that has [`Self::tables`].
    ///
    /// # Errors
    /// The system does not suit the trace, or does not fit into memory.
    pub fn run(&self, trace: &Trace) -> Result<ChargedRun, StudyError> {
        let mut policies = Policies::default();
        policies.add(self.policy.clone());
        let request = Request {
            policies,
            frames: vec![self.frames],
            readaheads: vec![self.readahead.clone()],
            writeback: Modes::default_for(trace).modes,
            observer_bytes: Some(0),
            memory_limit_bytes: self.memory_limit_bytes,
            ..Request::default()
        };
        let study = Study::new(trace, request)?;
        let plan = study.plan()?;
        Ok(run_charged(&plan, 0, trace, |_| ()))
    }
}

/// Runs a cell with charges. `observe` gets its requests.
pub(super) fn run_charged(
    plan: &Plan<'_>,
    cell: usize,
    trace: &Trace,
    mut observe: impl FnMut(&[Io]),
) -> ChargedRun {
    let into = RefCell::default();
    let mut requests: HashMap<(FileId, u32), u64, FixedState> = HashMap::default();
    let mut take = |sent: Sent<'_>| {
        let Sent::Requests(sent) = sent else { return };
        for io in sent.iter().filter(|io| io.op == IoOp::Read) {
            let place = io.cause.page.and_then(|page| trace.place_of(page));
            if let Some((file, _)) = place {
                *requests.entry((file, io.cause.process)).or_default() += 1;
            }
        }
        observe(sent);
    };
    let observer: Observer<'_> = &mut take;
    let charged = |readahead| CellReadAhead { charges: Some(&into), ..readahead };
    let result = plan.run_with(cell, &|| 0, Some(observer), charged);
    let mut charges = into.take();
    for row in &mut charges.rows {
        row.read_requests = requests.remove(&(row.file, row.process)).unwrap_or(0);
    }
    // Reads past the cache.
    let mut others: Vec<_> = requests.into_iter().collect();
    others.sort_unstable();
    charges.rows.extend(others.into_iter().map(|((file, process), read_requests)| {
        ReadAheadCharge { read_requests, ..ReadAheadCharge::new(file, process) }
    }));
    ChargedRun { outcome: result.outcome, charges }
}
