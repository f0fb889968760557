//! Advice of applications on single files (`posix_fadvise`), where it saves more time than one
//! maximum for the whole device.
//!
//! A candidate is the reads of one file by one program, or of many small files of one directory and
//! ending. The files that waste most are tried with `RANDOM`, and those of which most pages that
//! were read ahead are used with `SEQUENTIAL`, each alone at the present maximum. Those that save
//! time for certain are then added one by one, the greatest saving first, as long as each saves
//! time for certain on top of those before it.
//!
//! Certain is the rule of `recommend` ([`Judgement::recommends`]). Slices have as many reads of the
//! candidate each, because a file may be read in a part of the trace only.

use super::{
    StudyError,
    readahead_charges::run_charged,
    readahead_curve::{Curve, CurveLack, CurveSearch, SliceMeter, read_times_us, slice_begins_us},
    run::Sent,
};
use flashsift_caches::trace::{StepKind, Trace};
use flashsift_events::io::Io;
use flashsift_files::judge::Judgement;
use flashsift_pages::{
    readahead::{AccessAdvice, CellReadAhead, ReadAheadCharges, file_name, process_name},
    system::Outcome,
};
use std::{cmp::Reverse, collections::BTreeMap};

/// Candidates that are tried with [`AccessAdvice::Random`].
pub const RANDOM_TRIALS: usize = 8;

/// Candidates that are tried with [`AccessAdvice::Sequential`].
pub const SEQUENTIAL_TRIALS: usize = 4;

/// Fewest pages that a candidate wastes (`RANDOM`) or uses (`SEQUENTIAL`): 1 MiB.
pub const EVIDENCE_PAGES: u64 = 256;

/// Files of one directory and ending, read by one program, are one candidate if they are at least
/// this many, of which each brings less than [`EVIDENCE_PAGES`] into the cache.
pub const GROUP_FILES_MIN: usize = 8;

/// The reads that one piece of advice is for.
#[derive(Clone, Debug)]
pub struct AdviceTarget {
    /// Path of the file, or `DIRECTORY/*.ENDING`.
    pub files: Box<str>,
    /// Number of files.
    pub files_count: usize,
    /// Name of the program that opens them.
    pub program: Box<str>,
    /// Descriptors, ascending.
    descriptors: Vec<u32>,
    /// Pages read ahead and not used, and those used.
    wasted: u64,
    used: u64,
    /// Times at which its second and later slices begin.
    begins_us: Vec<u64>,
}

/// The reason for which no advice is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdviceLack {
    /// Advice belongs to an open file.
    #[error(
        "it belongs to an open file, and the trace does not tell which one was read (record with \
         --exact)"
    )]
    NoOpens,
    /// Without read-ahead there is nothing to advise.
    #[error("the present maximum is 0: nothing is read ahead")]
    Off,
    /// As for a size.
    #[error("{0}")]
    Curve(CurveLack),
}

/// A search for advice at the present maximum of a [`CurveSearch`].
pub struct AdviceSearch<'a> {
    search: &'a CurveSearch<'a>,
    targets: Vec<AdviceTarget>,
    trials: Vec<AdviceTrial>,
    /// Beginnings of all slices of all targets, and of those of the whole trace.
    cuts_us: Vec<u64>,
    charges: ReadAheadCharges,
    base: AdviceRun,
}

/// One piece of advice, tried alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdviceTrial {
    /// Index of the target.
    target: usize,
    advice: AccessAdvice,
}

/// The result of a run with some advice.
#[derive(Clone, Debug)]
pub struct AdviceRun {
    outcome: Outcome,
    /// Time on the device between the cuts.
    between_s: Vec<f64>,
}

/// Advice for one target.
#[derive(Clone, Debug)]
pub struct FileAdvice {
    /// The files and the program.
    pub target: AdviceTarget,
    /// The advice.
    pub advice: AccessAdvice,
    /// Time that it saves on top of the advice listed before it.
    pub saving: Judgement,
    /// Pages that are read in vain less; negative: more.
    pub wasted_less_pages: i64,
}

/// The advice that saves time for certain at the present maximum.
#[derive(Clone, Debug)]
pub struct AdviceFound {
    /// The greatest saving first.
    pub advice: Vec<FileAdvice>,
    /// Time that all of it saves over the present maximum alone, by slices of all reads.
    pub saving: Judgement,
    /// Time that all of it, at the present maximum, saves over the proposed maximum alone.
    pub over_proposed: Judgement,
    /// Number of targets that were tried.
    pub tried: usize,
}

impl AdviceFound {
    /// Whether there is advice that saves more than one maximum for the device, in both halves.
    pub fn pays(&self) -> bool {
        !self.advice.is_empty() && self.over_proposed.lesser_half() > 0.0
    }
}

impl<'a> AdviceSearch<'a> {
    /// Runs the present maximum with charges, and chooses the targets to try. The trace has the
    /// tables of reads, owners and names.
    ///
    /// # Errors
    /// A cell over this trace is not possible.
    pub fn new(search: &'a CurveSearch<'a>) -> Result<Self, StudyError> {
        let trace = search.trace();
        // Slices of the targets are known only after the charges.
        let charges = charged(search)?;
        let targets = targets(trace, &charges);
        let trials = trials(&targets);
        let mut tried: Vec<AdviceTarget> = Vec::new();
        let mut number = BTreeMap::new();
        let trials: Vec<AdviceTrial> = trials
            .into_iter()
            .map(|AdviceTrial { target, advice }| {
                let fresh = tried.len();
                let at = *number.entry(target).or_insert(fresh);
                if at == fresh {
                    tried.push(targets[target].clone());
                }
                AdviceTrial { target: at, advice }
            })
            .collect();
        set_slices(trace, &mut tried);
        let mut cuts_us = slice_begins_us(&read_times_us(trace));
        tried.iter().for_each(|target| cuts_us.extend(&target.begins_us));
        cuts_us.sort_unstable();
        cuts_us.dedup();
        let none = AdviceRun { outcome: Outcome::default(), between_s: Vec::new() };
        let mut found = Self { search, targets: tried, trials, cuts_us, charges, base: none };
        if !found.trials.is_empty() {
            found.base = found.run(&[])?;
        }
        Ok(found)
    }

    /// Returns the reason for which advice on this trace cannot be judged.
    pub fn lack(search: &CurveSearch<'_>, curve: &Curve) -> Option<AdviceLack> {
        match curve.lack {
            _ if !search.trace().about().knows.opens => Some(AdviceLack::NoOpens),
            _ if search.conditions().present_kib == 0 => Some(AdviceLack::Off),
            lack => lack.map(AdviceLack::Curve),
        }
    }

    /// Returns the advice to try, each alone.
    pub fn trials(&self) -> &[AdviceTrial] {
        &self.trials
    }

    /// Returns the prefetches by file and process at the present maximum.
    pub fn charges(&self) -> &ReadAheadCharges {
        &self.charges
    }

    /// Simulates the present maximum with some advice. Any thread may call it.
    ///
    /// # Errors
    /// The cell cannot be simulated.
    pub fn run(&self, advice: &[AdviceTrial]) -> Result<AdviceRun, StudyError> {
        let trace = self.search.trace();
        let mut of_descriptors = vec![AccessAdvice::Normal; trace.descriptors() as usize];
        for AdviceTrial { target, advice } in advice {
            for descriptor in &self.targets[*target].descriptors {
                of_descriptors[*descriptor as usize] = *advice;
            }
        }
        let times = trace.about().knows.times;
        let clocks = self.search.conditions().device.clocks(times);
        let mut meter = SliceMeter::new(self.cuts_us.clone(), clocks);
        let mut take = |sent: Sent<'_>| {
            if let Sent::Requests(requests) = sent {
                meter.take(requests);
            }
        };
        let study = self.search.study(self.search.present())?;
        let plan = study.plan()?;
        let advised = |readahead| CellReadAhead { advice: &of_descriptors, ..readahead };
        let result = plan.run_with(0, &|| 0, Some(&mut take), advised);
        Ok(AdviceRun { outcome: result.outcome, between_s: meter.finish() })
    }

    /// Chooses among the trials, of which `runs` holds the results in order, and runs those that
    /// save time together. `curve` is that of the same search.
    ///
    /// # Errors
    /// A cell cannot be simulated.
    pub fn choose(&self, curve: &Curve, runs: Vec<AdviceRun>) -> Result<AdviceFound, StudyError> {
        assert_eq!(runs.len(), self.trials.len(), "there is one run a trial");
        let tried = self.targets.len();
        let proposed = &curve.points[curve.proposed].by_slice_s;
        let present = &curve.points[curve.present].by_slice_s;
        // By target, the better advice.
        let mut alone: BTreeMap<usize, (f64, AdviceTrial, AdviceRun)> = BTreeMap::new();
        for (trial, run) in self.trials.iter().zip(runs) {
            let judged = self.judged(trial.target, &self.base, &run);
            let best = alone.get(&trial.target).map_or(0.0, |(saving, ..)| *saving);
            if judged.recommends() && judged.saving > best {
                alone.insert(trial.target, (judged.saving, *trial, run));
            }
        }
        let mut order: Vec<_> = alone.into_values().collect();
        order.sort_by(|(one, ..), (other, ..)| other.total_cmp(one));
        let mut before = self.base.clone();
        let (mut accepted, mut advice) = (Vec::new(), Vec::new());
        for (n, (_, trial, alone)) in order.into_iter().enumerate() {
            accepted.push(trial);
            let run = if n == 0 { alone } else { self.run(&accepted)? };
            let saving = self.judged(trial.target, &before, &run);
            if !saving.recommends() {
                accepted.pop();
                continue;
            }
            let wasted = |run: &AdviceRun| run.outcome.readahead.wasted() as i64;
            advice.push(FileAdvice {
                target: self.targets[trial.target].clone(),
                advice: trial.advice,
                saving,
                wasted_less_pages: wasted(&before) - wasted(&run),
            });
            before = run;
        }
        let all = match advice.is_empty() {
            true => present.clone(),
            false => {
                let begins_us = slice_begins_us(&read_times_us(self.search.trace()));
                self.by_slice(&begins_us, &before)
            }
        };
        let saving = Judgement::new(present, &all);
        let over_proposed = Judgement::new(proposed, &all);
        Ok(AdviceFound { advice, saving, over_proposed, tried })
    }

    /// Compares two runs by the slices of a target.
    fn judged(&self, target: usize, before: &AdviceRun, after: &AdviceRun) -> Judgement {
        let begins_us = &self.targets[target].begins_us;
        Judgement::new(&self.by_slice(begins_us, before), &self.by_slice(begins_us, after))
    }

    /// Adds up the time between cuts to slices that begin at some of them.
    fn by_slice(&self, begins_us: &[u64], run: &AdviceRun) -> Vec<f64> {
        let mut by_slice_s = vec![0.0; begins_us.len() + 1];
        let from = std::iter::once(None).chain(self.cuts_us.iter().map(Some));
        for (from_us, time_s) in from.zip(&run.between_s) {
            let slice = from_us.map_or(0, |from_us| begins_us.partition_point(|at| at <= from_us));
            by_slice_s[slice] += time_s;
        }
        by_slice_s
    }
}

fn charged(search: &CurveSearch<'_>) -> Result<ReadAheadCharges, StudyError> {
    let study = search.study(search.present())?;
    let plan = study.plan()?;
    Ok(run_charged(&plan, 0, search.trace(), |_: &[Io]| ()).charges)
}

/// Program, directory and ending of small files.
type Group = (Box<str>, Box<str>, Box<str>);

/// Directory and ending of a path.
fn directory_and_ending(path: &str) -> Option<(&str, &str)> {
    let (directory, name) = path.rsplit_once('/')?;
    let ending = name.rsplit_once('.').filter(|(stem, _)| !stem.is_empty());
    Some((directory, ending.map_or("", |(_, ending)| ending)))
}

/// Returns the reads of each file by each program, and of many small files together.
fn targets(trace: &Trace, charges: &ReadAheadCharges) -> Vec<AdviceTarget> {
    let mut by_name: BTreeMap<(Box<str>, Box<str>), AdviceTarget> = BTreeMap::new();
    let mut pages: BTreeMap<(Box<str>, Box<str>), u64> = BTreeMap::new();
    let mut keys = BTreeMap::new();
    for row in &charges.rows {
        let key = (process_name(trace, row.process), file_name(trace, row.file));
        let target = by_name.entry(key.clone()).or_insert_with(|| AdviceTarget {
            files: key.1.clone(),
            files_count: 1,
            program: key.0.clone(),
            descriptors: Vec::new(),
            wasted: 0,
            used: 0,
            begins_us: Vec::new(),
        });
        target.wasted += row.counts.wasted();
        target.used += row.counts.used;
        *pages.entry(key.clone()).or_default() += row.counts.read + row.counts.demanded();
        keys.insert((row.file, row.process), key);
    }
    for (descriptor, first) in first_reads(trace).into_iter().enumerate() {
        let Some(n) = first else { continue };
        let file = trace.runs()[trace.read(n).run as usize].file;
        if let Some(key) = keys.get(&(file, trace.owner(n).process))
            && let Some(target) = by_name.get_mut(key)
        {
            target.descriptors.push(descriptor as u32);
        }
    }
    by_name.retain(|_, target| !target.descriptors.is_empty());
    let mut small: BTreeMap<Group, Vec<AdviceTarget>> = BTreeMap::new();
    let mut all = Vec::new();
    for (key, target) in by_name {
        match directory_and_ending(&target.files).filter(|_| pages[&key] < EVIDENCE_PAGES) {
            Some((directory, ending)) => {
                let group = (target.program.clone(), directory.into(), ending.into());
                small.entry(group).or_default().push(target);
            }
            None => all.push(target),
        }
    }
    for ((program, directory, ending), members) in small {
        if members.len() < GROUP_FILES_MIN {
            all.extend(members);
            continue;
        }
        let files = match &*ending {
            "" => format!("{directory}/*"),
            ending => format!("{directory}/*.{ending}"),
        };
        let mut descriptors: Vec<u32> =
            members.iter().flat_map(|member| member.descriptors.iter().copied()).collect();
        descriptors.sort_unstable();
        all.push(AdviceTarget {
            files: files.into(),
            files_count: members.len(),
            program,
            descriptors,
            wasted: members.iter().map(|member| member.wasted).sum(),
            used: members.iter().map(|member| member.used).sum(),
            begins_us: Vec::new(),
        });
    }
    all
}

/// By descriptor of an open file, the step of its first read. Those of mappings have none:
/// `posix_fadvise` is not for them.
fn first_reads(trace: &Trace) -> Vec<Option<usize>> {
    let mut first = vec![None; trace.descriptors() as usize];
    for (n, step) in trace.steps().iter().enumerate() {
        if step.kind() == StepKind::Read && step.pages() > 0 {
            let read = trace.read(n);
            if !read.is_fault {
                first[read.descriptor as usize].get_or_insert(n);
            }
        }
    }
    first
}

fn trials(targets: &[AdviceTarget]) -> Vec<AdviceTrial> {
    let greatest = |advice: AccessAdvice, count: usize, of: fn(&AdviceTarget) -> u64| {
        let enough = |n: &usize| of(&targets[*n]) >= EVIDENCE_PAGES;
        let mut order: Vec<usize> = (0..targets.len()).filter(enough).collect();
        order.sort_by_key(|n| Reverse(of(&targets[*n])));
        order.into_iter().take(count).map(move |target| AdviceTrial { target, advice })
    };
    let random = greatest(AccessAdvice::Random, RANDOM_TRIALS, |target| target.wasted);
    let sequential = greatest(AccessAdvice::Sequential, SEQUENTIAL_TRIALS, |target| target.used);
    random.chain(sequential).collect()
}

/// Sets the slices of each target, each with as many of its reads.
fn set_slices(trace: &Trace, targets: &mut [AdviceTarget]) {
    let mut target_of = vec![None; trace.descriptors() as usize];
    for (n, target) in targets.iter().enumerate() {
        target.descriptors.iter().for_each(|one| target_of[*one as usize] = Some(n));
    }
    let mut reads_us = vec![Vec::new(); targets.len()];
    for (n, step) in trace.steps().iter().enumerate() {
        if step.kind() == StepKind::Read
            && step.pages() > 0
            && let Some(target) = target_of[trace.read(n).descriptor as usize]
        {
            reads_us[target].push(trace.at_us(n));
        }
    }
    for (target, reads_us) in targets.iter_mut().zip(reads_us) {
        target.begins_us = slice_begins_us(&reads_us);
    }
}

#[cfg(test)]
mod tests;
