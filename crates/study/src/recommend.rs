//! Recommends a change of policy, write-back, commit interval or memory for one trace, or none.
//!
//! A [`Recommender`] has a baseline and [`candidates`], each of which changes one thing. Every
//! setting is one cell over the whole trace, so caches stay warm. Its requests to the device are
//! counted by time slice: [`SLICES`] slices of equal length. The cost of a slice is the bytes that
//! are written because of its changes, or, with a device, the time that the device takes for them
//! ([`Objective`], `meter`). Pages that are dirty at the end are written, too, so no setting wins
//! by leaving them. [`Judgement`] then compares each candidate's slices with the baseline's.
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
use candidates::Candidate;
pub use candidates::NvmSize;
use flashsift_caches::{
    policy,
    trace::{StepKind, Trace},
};
use flashsift_files::judge::{Judgement, SLICES};
use flashsift_pages::{metadata, system, writeback::Modes};
use meter::{ChangeTimes, Meter};

pub mod candidates;
pub(crate) mod meter;
mod times;

pub use candidates::CandidateSpec;
pub use times::{AS_GOOD, WritebackTimes, time_in_words};

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
    /// Times of the baseline's write-back; `None`: the kernel's defaults, and the file system's.
    pub present: Option<WritebackTimes>,
    /// Times to try; if there are any, nothing else is tried.
    pub times: Vec<WritebackTimes>,
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
    changes: ChangeTimes,
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
    times: Option<WritebackTimes>,
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
    /// The baseline cannot have the present times.
    #[error("the present times of write-back cannot be simulated: {0}")]
    Times(String),
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
    /// Its times of write-back, if these are the change.
    pub times: Option<WritebackTimes>,
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
        let mut baseline = Setting {
            policy: conditions.policy.clone(),
            writeback,
            metadata: conditions.metadata.clone(),
            system: system::PLAIN.clone(),
            frames: conditions.frames,
        };
        let unsuited = |error: String| RecommendError::Times(error);
        if let Some(present) = conditions.present.filter(|_| !writeback.on_eviction_only()) {
            baseline = present.in_place_of(&baseline).map_err(unsuited)?;
        }
        let linux = match writeback.on_eviction_only() {
            true => Err(default.reason.to_string()),
            false => Ok(()),
        };
        let changes = ChangeTimes::new(trace, SLICES, totals.duration_us);
        let mut recommender = Self {
            trace,
            changes,
            conditions,
            baseline: baseline.clone(),
            candidates: Vec::new(),
            left_out: Vec::new(),
            at_once: 1,
        };
        let mut cell_bytes = recommender.cell_bytes(&baseline)?;
        let holds_all = recommender.conditions.frames >= trace.pages();
        let Conditions { nvm_pages, times, .. } = &recommender.conditions;
        let only_times = !times.is_empty();
        let own = WritebackTimes::of(&baseline).unwrap_or(WritebackTimes::LINUX);
        let all_times = if only_times { times.clone() } else { own.candidates(None, true) };
        let mut candidates = candidates::with_times(&baseline, &linux, &all_times);
        if !only_times {
            candidates.extend(candidates::all(&baseline, linux, syncs(trace), holds_all));
            let has_bytes = trace.tables().bytes;
            candidates.extend(candidates::with_nvm(&baseline, nvm_pages, has_bytes));
        }
        for Candidate { name, price, setting, nvm, times } in candidates {
            let checked = setting.and_then(|setting| match recommender.cell_bytes(&setting) {
                Ok(bytes) => Ok((setting, bytes)),
                Err(error) => Err(error.to_string()),
            });
            match checked {
                Ok((setting, bytes)) => {
                    cell_bytes = cell_bytes.max(bytes);
                    recommender.candidates.push(Tried { name, price, setting, nvm, times });
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
        let request = Request::default();
        let device_bytes = conditions.device.as_ref();
        let device_bytes = device_bytes.map_or(0, |device| device.held_bytes(self.trace.pages()));
        Study::new(
            self.trace,
            Request {
                policies,
                systems: vec![setting.system.clone()],
                frames: vec![setting.frames],
                writeback: setting.writeback,
                metadata: setting.metadata.clone(),
                drain: true,
                // The meter looks at each page, and holds a device of its own.
                observer_bytes: Some(device_bytes + Meter::held_bytes(self.trace)),
                request_pages_max: match conditions.device {
                    Some(_) => request.request_pages_max,
                    None => 1,
                },
                memory_limit_bytes: conditions.memory_limit_bytes,
                ..request
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
        let times = WritebackTimes::of(setting).map_or(0, WritebackTimes::loss_us);
        let mut meter = Meter::new(self.trace, &self.changes, times, clocks);
        let study = self.study(setting)?;
        study.plan()?.run(
            0,
            &|| 0,
            Some(&mut |sent| {
                if let Sent::Requests(requests) = sent {
                    requests.iter().for_each(|io| meter.take(io));
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
            times: tried.times,
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
            return format!("--system {} --frames {}", setting.system.label(), setting.frames);
        } else if !setting.system.spec.is_plain() {
            return format!("--system {}", setting.system.label());
        } else if setting.policy.label() != self.baseline.policy.label() {
            return format!("--policy {}", setting.policy.label());
        }
        let mut options = Vec::new();
        if setting.writeback != self.baseline.writeback {
            options.push(format!("--writeback {}", setting.writeback.name()));
        }
        if metadata(setting) != metadata(&self.baseline) {
            options.push(format!("--metadata {}", metadata(setting)));
        }
        options.join(" ")
    }
}

/// Whether programs sync in a trace.
fn syncs(trace: &Trace) -> bool {
    let syncs = [StepKind::Sync, StepKind::SyncAll, StepKind::WriteSync];
    trace.steps().iter().any(|step| syncs.contains(&step.kind()))
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
    /// Returns whether the slices are so short that neighbouring ones depend on each other.
    pub fn has_short_slices(&self) -> bool {
        self.slice_us < SLICE_US_MIN
    }

    /// Returns the recommended candidates, the largest saving first.
    pub fn recommended(&self) -> impl Iterator<Item = &Judged> {
        self.judged.iter().filter(|judged| judged.judgement.recommends())
    }

    /// Returns the number of the recommended times to propose ([`WritebackTimes::proposed`]).
    pub fn proposed_times(&self) -> Option<usize> {
        let all = self.judged.iter().enumerate().filter(|(_, one)| one.judgement.recommends());
        WritebackTimes::proposed(all.filter_map(|(n, one)| Some((n, one.times?, &one.judgement))))
    }

    /// Returns the candidate that comes closest to a recommendation: the one that saves most in the
    /// half in which it saves less; the larger saving wins ties.
    pub fn nearest(&self) -> Option<&Judged> {
        let least = |judged: &&Judged| judged.judgement.lesser_half();
        // The last of equal ones is taken, and the largest saving comes first.
        self.judged.iter().rev().max_by(|one, other| least(one).total_cmp(&least(other)))
    }
}

#[cfg(test)]
mod tests;
