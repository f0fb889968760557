//! Recommends a change of policy, write-back, commit interval or memory for one trace, or none.
//!
//! A [`Recommender`] has a baseline and [`candidates`], each of which changes one thing. Every
//! setting is one cell over the whole trace, so caches stay warm. Its requests to the device are
//! counted by time slice: [`SLICES`] slices of equal length. The cost of a slice is the bytes
//! written in it, or, with a device, the time that the device takes for its requests
//! ([`Objective`]). Pages that are dirty at the end are written in the last slice, so no setting
//! wins by leaving them. [`judge`] then compares each candidate's slices with the baseline's.
//!
//! Each candidate is judged alone: their savings do not add up.

use super::{
    device::PreparedDevice,
    error::StudyError,
    knee,
    plan::Study,
    request::{Policies, Request},
    run::Sent,
};
use crate::{
    back::{Io, IoOp},
    device::Clocks,
    metadata,
    page::PAGE_BYTES,
    policy, system,
    trace::Trace,
    writeback::Modes,
};
use candidates::Candidate;
pub use candidates::NvmSize;

pub mod candidates;
pub mod judge;

pub use candidates::CandidateSpec;
pub use judge::Judgement;

/// Number of time slices.
pub const SLICES: usize = 20;

/// Length of a slice below which neighbouring slices depend on each other: twice the time after
/// which Linux writes a dirty page.
const SLICE_US_MIN: u64 = 60_000_000;

/// The parts of a system that a change can replace.
#[derive(Clone)]
pub struct Setting {
    /// The replacement policy.
    pub policy: policy::Selection,
    /// The modes of write-back.
    pub writeback: Modes,
    /// The file system whose own writes count.
    pub metadata: Option<metadata::Selection>,
    /// The system.
    pub system: system::Selection,
    /// Cache size in frames.
    pub frames: u32,
}

/// The conditions that all settings share, and the baseline.
#[derive(Clone)]
pub struct Conditions {
    /// The policy of the baseline.
    pub policy: policy::Selection,
    /// Cache size in frames.
    pub frames: u32,
    /// Memory of the machine in pages, of which Linux's flusher takes its ratio; `None`: its
    /// default.
    pub ram_pages: Option<u64>,
    /// The file system of the baseline, whose journal and metadata count; `None`: only data counts.
    pub metadata: Option<metadata::Selection>,
    /// Sizes of non-volatile memory to try beside the cache, in pages.
    pub nvm_pages: Vec<u32>,
    /// The device whose time is the cost; `None`: bytes written are the cost.
    pub device: Option<PreparedDevice>,
    /// Memory that the trace and the running cells may take.
    pub memory_limit_bytes: u64,
    /// Cells that the caller can run at once, at least 1.
    pub workers: usize,
}

/// The cost that a change is to lower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// Bytes written to the device.
    Bytes,
    /// Time that the device takes, in seconds, each request sent when its predecessor completes.
    Elapsed,
}

/// A baseline and its candidates, ready to run.
pub struct Recommender<'a> {
    trace: &'a Trace,
    conditions: Conditions,
    baseline: Setting,
    candidates: Vec<Tried>,
    left_out: Vec<(String, String)>,
    at_once: usize,
}

struct Tried {
    name: String,
    price: String,
    setting: Setting,
    nvm: Option<NvmSize>,
}

/// The reason for which nothing can be recommended for a trace.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum RecommendError {
    /// The trace has no times, or no duration.
    #[error("the trace has no times to cut it into slices: give --rate N, requests a second")]
    NoTimes,
    /// The trace writes nothing, so no bytes can be saved.
    #[error("the trace writes nothing: --device compares times instead of bytes")]
    NothingWritten,
    /// The settings cannot be simulated.
    #[error(transparent)]
    Study(#[from] StudyError),
}

/// The result of a recommendation.
#[derive(Clone, Debug)]
pub struct Advice {
    /// The cost that is to be lowered.
    pub objective: Objective,
    /// Length of a slice, microseconds.
    pub slice_us: u64,
    /// Cost of the baseline: bytes or seconds.
    pub baseline: f64,
    /// Every candidate, the largest saving first. Of those that save the same in tenths of a
    /// percent, the cheaper comes first: the order of [`candidates`].
    pub judged: Vec<Judged>,
    /// The knee of each system with non-volatile memory of which at least three sizes were tried.
    pub knees: Vec<AdvisedKnee>,
}

/// Sizes of the non-volatile memory of a system that are worth knowing.
#[derive(Clone, Debug)]
pub struct AdvisedKnee {
    /// Name of the system.
    pub system: String,
    /// The size that saves most, in pages, and its comparison with the baseline.
    pub most: (u32, Judgement),
    /// The least size that brings [`super::KNEE_SHARE`] of that saving, and its comparison.
    pub knee: (u32, Judgement),
}

/// A candidate and its judgement.
#[derive(Clone, Debug)]
pub struct Judged {
    /// Its name.
    pub name: String,
    /// Its non-volatile memory, if that is the change.
    pub nvm: Option<NvmSize>,
    /// Its disadvantage, in words that follow "Price:".
    pub price: String,
    /// Options of `compare` that differ from the baseline's.
    pub options: String,
    /// The comparison with the baseline.
    pub judgement: Judgement,
}

impl<'a> Recommender<'a> {
    /// Checks the baseline against the trace, and lists the candidates that suit it.
    ///
    /// # Errors
    /// The trace cannot be cut into slices of time or writes nothing, the baseline cannot be
    /// simulated, or a cell does not fit into memory.
    pub fn new(trace: &'a Trace, conditions: Conditions) -> Result<Self, RecommendError> {
        let totals = trace.totals();
        if !trace.about().knows.times || totals.duration_us == 0 {
            return Err(RecommendError::NoTimes);
        }
        if totals.write_accesses + totals.direct_writes == 0 && conditions.device.is_none() {
            return Err(RecommendError::NothingWritten);
        }
        let default = Modes::default_for(trace);
        let mut writeback = default.modes;
        if let (Some(expire), Some(ram_pages)) = (&mut writeback.expire, conditions.ram_pages) {
            expire.ram_pages = ram_pages;
        }
        let baseline = Setting {
            policy: conditions.policy.clone(),
            writeback,
            metadata: conditions.metadata.clone(),
            system: system::PLAIN.clone(),
            frames: conditions.frames,
        };
        let linux = match writeback.on_eviction_only() {
            true => Err(default.reason.to_string()),
            false => Ok(()),
        };
        let mut recommender = Self {
            trace,
            conditions,
            baseline: baseline.clone(),
            candidates: Vec::new(),
            left_out: Vec::new(),
            at_once: 1,
        };
        let mut cell_bytes = recommender.cell_bytes(&baseline)?;
        let holds_all = recommender.conditions.frames >= trace.pages();
        let mut candidates: Vec<Candidate> = candidates::all(&baseline, linux, holds_all).collect();
        let has_bytes = trace.tables().bytes;
        let nvm_pages = &recommender.conditions.nvm_pages;
        candidates.extend(candidates::with_nvm(&baseline, nvm_pages, has_bytes));
        for Candidate { name, price, setting, nvm } in candidates {
            let checked = setting.and_then(|setting| match recommender.cell_bytes(&setting) {
                Ok(bytes) => Ok((setting, bytes)),
                Err(error) => Err(error.to_string()),
            });
            match checked {
                Ok((setting, bytes)) => {
                    cell_bytes = cell_bytes.max(bytes);
                    recommender.candidates.push(Tried { name, price, setting, nvm });
                }
                Err(reason) => recommender.left_out.push((name, reason)),
            }
        }
        let limit_bytes = recommender.conditions.memory_limit_bytes;
        let free_bytes = limit_bytes.saturating_sub(trace.held_bytes() as u64);
        let fitting = usize::try_from(free_bytes / cell_bytes.max(1)).unwrap_or(usize::MAX);
        recommender.at_once = fitting.clamp(1, recommender.conditions.workers.max(1));
        Ok(recommender)
    }

    /// Returns the memory that a setting's cell takes.
    fn cell_bytes(&self, setting: &Setting) -> Result<u64, StudyError> {
        let study = self.study(setting)?;
        let plan = study.plan()?;
        Ok(plan.cells().iter().map(|cell| cell.memory_bytes).max().unwrap_or(0))
    }

    fn study(&self, setting: &Setting) -> Result<Study<'a>, StudyError> {
        let mut policies = Policies::default();
        policies.add(setting.policy.clone());
        let conditions = &self.conditions;
        Study::new(
            self.trace,
            Request {
                policies,
                systems: vec![setting.system.clone()],
                frames: vec![setting.frames],
                writeback: setting.writeback,
                metadata: setting.metadata.clone(),
                drain: true,
                // The meter holds a device of its own.
                observer_bytes: Some(
                    conditions
                        .device
                        .as_ref()
                        .map_or(0, |_| Clocks::held_bytes(self.trace.pages())),
                ),
                memory_limit_bytes: conditions.memory_limit_bytes,
                ..Request::default()
            },
        )
    }

    /// Returns the baseline.
    pub fn baseline(&self) -> &Setting {
        &self.baseline
    }

    /// Returns the conditions that all settings share.
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// Returns the candidates that are not tried, with the reason.
    pub fn left_out(&self) -> &[(String, String)] {
        &self.left_out
    }

    /// Returns the number of cells: the baseline and each candidate.
    pub fn cells(&self) -> usize {
        1 + self.candidates.len()
    }

    /// Returns how many cells the memory limit allows at once.
    pub fn at_once(&self) -> usize {
        self.at_once
    }

    /// Runs one cell, of which the first is the baseline, and returns its cost in each slice: bytes
    /// or seconds. A pure function that any thread may call.
    ///
    /// # Errors
    /// The cell cannot be simulated.
    ///
    /// # Panics
    /// If `cell` is not below [`Self::cells`].
    pub fn run(&self, cell: usize) -> Result<Vec<f64>, StudyError> {
        let setting = match cell.checked_sub(1) {
            None => &self.baseline,
            Some(candidate) => &self.candidates[candidate].setting,
        };
        let times = self.trace.about().knows.times;
        let clocks = self.conditions.device.as_ref().map(|device| device.clocks(times));
        let mut meter = Meter::new(self.trace.totals().duration_us, clocks);
        let study = self.study(setting)?;
        study.plan()?.run(
            0,
            &|| 0,
            Some(&mut |sent| {
                if let Sent::Requests(requests) = sent {
                    meter.take(requests);
                }
            }),
        );
        Ok(meter.finish())
    }

    /// Compares the costs of all cells, in their order.
    ///
    /// # Panics
    /// Unless there is one cost a cell and slice.
    pub fn advise(&self, costs: &[Vec<f64>]) -> Advice {
        assert_eq!(costs.len(), self.cells(), "each cell ran once");
        let (baseline, changed) = costs.split_first().expect("the baseline is a cell");
        let judged = self.candidates.iter().zip(changed).map(|(tried, costs)| Judged {
            name: tried.name.clone(),
            nvm: tried.nvm,
            price: tried.price.clone(),
            options: self.options(&tried.setting),
            judgement: Judgement::new(baseline, costs),
        });
        let mut judged: Vec<Judged> = judged.collect();
        largest_saving_first(&mut judged);
        let objective = match self.conditions.device {
            Some(_) => Objective::Elapsed,
            None => Objective::Bytes,
        };
        let slice_us = self.trace.totals().duration_us / SLICES as u64;
        let knees = knees(&judged);
        Advice { objective, slice_us, baseline: baseline.iter().sum(), judged, knees }
    }

    /// Returns the options that differ from the baseline's.
    fn options(&self, setting: &Setting) -> String {
        let metadata = |setting: &Setting| {
            setting.metadata.as_ref().map_or("off".to_owned(), |metadata| metadata.label())
        };
        if setting.frames != self.baseline.frames {
            format!("--system {} --frames {}", setting.system.label(), setting.frames)
        } else if !setting.system.spec.is_plain() {
            format!("--system {}", setting.system.label())
        } else if setting.policy.label() != self.baseline.policy.label() {
            format!("--policy {}", setting.policy.label())
        } else if setting.writeback != self.baseline.writeback {
            format!("--writeback {}", setting.writeback.name())
        } else {
            format!("--metadata {}", metadata(setting))
        }
    }
}

/// Orders by saving in tenths of a percent of the baseline's cost, as people read it. Candidates
/// come in with the cheaper first, and equals stay so: a smaller change that does as much is
/// better.
fn largest_saving_first(judged: &mut [Judged]) {
    let tenths = |one: &Judged| {
        let judgement = &one.judgement;
        (judgement.share(judgement.saving) * 1000.0).round()
    };
    judged.sort_by(|one, other| tenths(other).total_cmp(&tenths(one)));
}

/// Returns the knee of each system with non-volatile memory.
fn knees(judged: &[Judged]) -> Vec<AdvisedKnee> {
    let mut systems: Vec<&str> = judged.iter().filter_map(|one| Some(one.nvm?.system)).collect();
    systems.sort_unstable();
    systems.dedup();
    let of_system = |system: &str| {
        let sizes = judged.iter().filter_map(|one| {
            let nvm = one.nvm.filter(|nvm| nvm.system == system)?;
            Some((nvm.pages, one.judgement))
        });
        let sizes: Vec<(u32, Judgement)> = sizes.collect();
        let savings =
            sizes.iter().map(|(pages, judgement)| (*pages, judgement.share(judgement.saving)));
        let [knee, most] = knee::knee_and_most(savings.collect())?
            .map(|(pages, _)| sizes.iter().copied().find(|(size, _)| *size == pages));
        Some(AdvisedKnee { system: system.to_owned(), most: most?, knee: knee? })
    };
    systems.into_iter().filter_map(of_system).collect()
}

impl Advice {
    /// Returns whether the slices are so short that neighbouring ones depend on each other. The
    /// intervals are then too narrow.
    pub fn has_short_slices(&self) -> bool {
        self.slice_us < SLICE_US_MIN
    }

    /// Returns the recommended candidates, the largest saving first.
    pub fn recommended(&self) -> impl Iterator<Item = &Judged> {
        self.judged.iter().filter(|judged| judged.judgement.recommends())
    }

    /// Returns the candidate that comes closest to a recommendation: the one with the highest lower
    /// bound of its saving; the larger saving wins ties.
    pub fn nearest(&self) -> Option<&Judged> {
        let bound = |judged: &&Judged| judged.judgement.interval.0;
        // The last of equal ones is taken, and the largest saving comes first.
        self.judged.iter().rev().max_by(|one, other| bound(one).total_cmp(&bound(other)))
    }
}

/// Counts the cost of requests by slice.
struct Meter {
    duration_us: u64,
    costs: Vec<f64>,
    slice: usize,
    clocks: Option<Clocks>,
    /// Time on the device until the beginning of the slice.
    before_ns: u64,
}

impl Meter {
    fn new(duration_us: u64, clocks: Option<Clocks>) -> Self {
        Self { duration_us, costs: vec![0.0; SLICES], slice: 0, clocks, before_ns: 0 }
    }

    fn take(&mut self, requests: &[Io]) {
        for io in requests {
            // Requests come in the order of time.
            let slice = self.slice_of(io.at_us).max(self.slice);
            if slice != self.slice {
                self.close();
                self.slice = slice;
            }
            match &mut self.clocks {
                Some(clocks) => clocks.io(io),
                None if io.op == IoOp::Write => {
                    self.costs[slice] += (u64::from(io.pages) * PAGE_BYTES) as f64;
                }
                None => {}
            }
        }
    }

    /// The last instant belongs to the last slice.
    fn slice_of(&self, at_us: u64) -> usize {
        let slice = u128::from(at_us) * SLICES as u128 / u128::from(self.duration_us.max(1));
        slice.min(SLICES as u128 - 1) as usize
    }

    fn close(&mut self) {
        if let Some(clocks) = &self.clocks {
            let now_ns = clocks.times().elapsed_ns;
            self.costs[self.slice] += (now_ns - self.before_ns) as f64 / 1e9;
            self.before_ns = now_ns;
        }
    }

    fn finish(mut self) -> Vec<f64> {
        self.close();
        self.costs
    }
}

#[cfg(test)]
mod tests;
