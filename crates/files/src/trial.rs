//! A randomised trial on a live directory: the flash that the data of programs costs with sifting,
//! beside the same mount that only keeps files in RAM, and beside new files on flash at once.
//!
//! The design is a blocked randomised crossover on one subject (Jones and Kenward, "Design and
//! Analysis of Cross-Over Trials", 3rd ed. 2014; Senn, "Cross-over Trials in Clinical Research",
//! 2nd ed. 2002, ch. 7). Each block holds every arm once, in random order, so a load that drifts
//! from week to week meets all arms alike. [`estimate`] compares arms within blocks.
//!
//! **Sessions** last [`TrialPlan::session_us`] of use, not of time: an unused computer shows
//! nothing. Use is the time between two observations in which programs wrote, at most
//! [`USE_US_MAX`] each. The arm changes only at an observation, so no counter is split. A session
//! is idle if programs wrote less than [`TrialPlan::idle_bytes`] in it; it is not counted, and its
//! arm runs again.
//!
//! **Washout.** The first [`TrialPlan::washout_us`] of use in a session are not counted: the kernel
//! and the mount still write files of the arm before, and RAM fills as the new arm fills it.
//!
//! **Cost of a session**: bytes written, plus the growth of the bytes that wait in RAM. An arm
//! therefore saves nothing by writing late, and a file that the sifter holds at the end counts as
//! written, although the sifter may still drop it. Programs' own bytes are those requested without
//! those fetched again; otherwise a sifter would look better the more it makes programs write.
//! Bytes that a session of another arm fetches again are the work of the sifter too: their cost
//! moves to the sifter's session of the same block.
//!
//! **One judgement.** The trial claims an effect only at its planned end. A trial that may stop
//! whenever its interval leaves zero finds an effect too often (Armitage, McPherson and Rowe,
//! "Repeated Significance Tests on Accumulating Data", 1969). For the same reason it cannot be
//! extended: a longer one is a new one.
//!
//! **Limits.** A file dropped in one session and used after the trial is not seen. The three arms
//! share one device, its free space and its garbage collection; device bytes are therefore shown
//! beside the result and not compared. The result is about one user, one machine, these weeks. The
//! user is not blind: an arm that feels slow may be used differently.

pub mod estimate;
mod result;

pub use result::{ArmTotals, Comparison, RESOLVED, TrialFinding, TrialResult};

use flashsift_events::event::Micros;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use serde::{Deserialize, Serialize};

/// Number of the stored form. Another number is refused.
pub const SCHEMA: u32 = 1;

/// Most use that one pair of observations adds, microseconds: a suspended computer is not used.
pub const USE_US_MAX: Micros = 5 * 60_000_000;

/// Most time that one pair of observations adds to the length of the trial, microseconds. A machine
/// that is off for a week, or a clock that jumps by years, does not use the trial up.
pub const GAP_US_MAX: Micros = 24 * HOUR_US;

const HOUR_US: Micros = 3_600_000_000;

/// How the mount treats new files during a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Arm {
    /// Files wait in RAM, and the sifter drops some.
    Sift,
    /// Files wait in RAM; none is dropped.
    Keep,
    /// New files are created on flash at once.
    Plain,
}

/// The design of a trial, fixed before it begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialPlan {
    /// Length, microseconds of time; gaps count as [`GAP_US_MAX`] at most.
    pub length_us: Micros,
    /// Use in a session with its washout, microseconds.
    pub session_us: Micros,
    /// Use at the start of a session that is not counted, microseconds.
    pub washout_us: Micros,
    /// Fewest bytes that programs write in a counted session; below, it is idle.
    pub idle_bytes: u64,
    /// Seed of the order of arms.
    pub seed: u64,
    /// The arms, each once: `sift` and at least one other.
    pub arms: Vec<Arm>,
}

impl TrialPlan {
    /// Returns the default design of this length.
    ///
    /// - A session lasts 1 h of use. Judged are blocks of three sessions: 3 h of use a day give six
    ///   blocks in six days, the fewest that can show anything ([`estimate::BLOCKS_MIN`]). Longer
    ///   sessions give too few blocks; shorter ones consist mostly of washout.
    /// - The washout is 15 min. The kernel has then written the data of the session before (after
    ///   30 s). The mount may hold some for longer; its write then costs the new session nothing,
    ///   because as much leaves RAM.
    /// - A session is idle below 1 MiB. Names, attributes and the journal of a file system cost
    ///   about as much in an hour, and they are not counted here.
    pub fn new(length_us: Micros, seed: u64) -> Self {
        Self {
            length_us,
            session_us: HOUR_US,
            washout_us: HOUR_US / 4,
            idle_bytes: 1 << 20,
            seed,
            arms: vec![Arm::Sift, Arm::Keep, Arm::Plain],
        }
    }

    /// Returns the order of arms in a block. It depends on the seed and the block alone, so a
    /// restarted mount goes on with the same order.
    fn order(&self, block: usize) -> Vec<Arm> {
        let mut random = Pcg64::seed_from_u64(self.seed);
        // Every block has a stretch of the generator's sequence to itself.
        random.advance((block as u128) << 64);
        let mut order = self.arms.clone();
        for at in (1..order.len()).rev() {
            order.swap(at, random.random_range(0..=at));
        }
        order
    }

    fn check(&self) -> Result<(), TrialError> {
        let once = |arm: &Arm| self.arms.iter().filter(|other| *other == arm).count() == 1;
        if self.arms.len() < 2 || !self.arms.contains(&Arm::Sift) || !self.arms.iter().all(once) {
            return Err(TrialError::Arms);
        }
        if self.washout_us >= self.session_us {
            return Err(TrialError::Washout);
        }
        if self.length_us < self.session_us.saturating_mul(self.arms.len() as u64) {
            return Err(TrialError::Length);
        }
        Ok(())
    }
}

/// A trial that cannot run, or a stored one that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The arms of the plan.
    #[error("a trial needs the arm `sift` and `keep`, `plain` or both, each once")]
    Arms,
    /// The washout is no part of a session.
    #[error("the washout must be shorter than a session")]
    Washout,
    /// Not one block fits.
    #[error("the trial is shorter than one session of each arm")]
    Length,
    /// Written by another version.
    #[error("the stored trial has schema {0}; this version reads {SCHEMA}")]
    Schema(u64),
    /// The stored text is no trial.
    #[error("the stored trial is damaged")]
    Damaged(#[source] serde_json::Error),
    /// Sessions that the plan does not give.
    #[error("the sessions of the stored trial are not in the order of its plan")]
    Order,
}

/// Counters of the mount at one moment. All but `held_bytes` are cumulative since the mount began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Differs between two mounts: the counters began at zero again. A counter that falls shows the
    /// same, but not if it has already passed its old value.
    pub mount_id: u64,
    /// File data written to flash on behalf of the directory, bytes.
    pub written_bytes: u64,
    /// File data that waits in RAM now, bytes.
    pub held_bytes: u64,
    /// Bytes written to the whole device, by all programs; `None` if unknown.
    pub device_bytes: Option<u64>,
    /// Bytes that programs wrote to files of the directory, counted alike in all arms.
    pub requested_bytes: u64,
    /// Of these, bytes of dropped files that programs wrote again.
    pub fetched_again_bytes: u64,
    /// Opens of files.
    pub opens: u64,
    /// Time of these opens, microseconds.
    pub open_us: u64,
}

/// Sums over a stretch of time in one arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialCounts {
    /// Use, microseconds.
    pub use_us: Micros,
    /// File data written to flash, bytes.
    pub written_bytes: u64,
    /// Growth of the data that waits in RAM, bytes.
    pub held_growth_bytes: i64,
    /// Bytes written to the whole device; `None` if unknown at some time.
    pub device_bytes: Option<u64>,
    /// Bytes that programs wrote.
    pub requested_bytes: u64,
    /// Of these, bytes of dropped files.
    pub fetched_again_bytes: u64,
    /// Opens of files.
    pub opens: u64,
    /// Time of these opens, microseconds.
    pub open_us: u64,
}

impl Default for TrialCounts {
    fn default() -> Self {
        Self {
            use_us: 0,
            written_bytes: 0,
            held_growth_bytes: 0,
            device_bytes: Some(0),
            requested_bytes: 0,
            fetched_again_bytes: 0,
            opens: 0,
            open_us: 0,
        }
    }
}

impl TrialCounts {
    /// Returns the growth from one sample to the next.
    fn between(last: &Sample, now: &Sample) -> Self {
        let fell = |counter: fn(&Sample) -> u64| counter(now) < counter(last);
        let restarted = now.mount_id != last.mount_id
            || fell(|sample| sample.written_bytes)
            || fell(|sample| sample.requested_bytes)
            || fell(|sample| sample.fetched_again_bytes)
            || fell(|sample| sample.opens)
            || fell(|sample| sample.open_us);
        // Data that waited in the old mount stays counted as written, since its counter is gone.
        let base = if restarted { Sample::default() } else { *last };
        let device_bytes = match (last.device_bytes, now.device_bytes) {
            // Other programs may have written for days between two mounts.
            (Some(_), Some(_)) if now.mount_id != last.mount_id => Some(0),
            (Some(before), Some(after)) => Some(after.checked_sub(before).unwrap_or(after)),
            _ => None,
        };
        let signed = |bytes: u64| i64::try_from(bytes).unwrap_or(i64::MAX);
        Self {
            use_us: 0,
            written_bytes: now.written_bytes - base.written_bytes,
            held_growth_bytes: signed(now.held_bytes) - signed(base.held_bytes),
            device_bytes,
            requested_bytes: now.requested_bytes - base.requested_bytes,
            fetched_again_bytes: now.fetched_again_bytes - base.fetched_again_bytes,
            opens: now.opens - base.opens,
            open_us: now.open_us - base.open_us,
        }
    }

    fn add(&mut self, other: &Self) {
        let both = self.device_bytes.zip(other.device_bytes);
        *self = Self {
            use_us: self.use_us.saturating_add(other.use_us),
            written_bytes: self.written_bytes.saturating_add(other.written_bytes),
            held_growth_bytes: self.held_growth_bytes.saturating_add(other.held_growth_bytes),
            device_bytes: both.map(|(one, other)| one.saturating_add(other)),
            requested_bytes: self.requested_bytes.saturating_add(other.requested_bytes),
            fetched_again_bytes: self.fetched_again_bytes.saturating_add(other.fetched_again_bytes),
            opens: self.opens.saturating_add(other.opens),
            open_us: self.open_us.saturating_add(other.open_us),
        };
    }

    /// Returns the bytes that programs wrote by themselves: without those fetched again.
    pub fn own_bytes(&self) -> u64 {
        self.requested_bytes.saturating_sub(self.fetched_again_bytes)
    }

    /// Returns the bytes written, with those that have come to wait in RAM. It is below zero if
    /// files leave RAM, deleted or dropped, faster than others are written.
    pub fn cost_bytes(&self) -> f64 {
        self.written_bytes as f64 + self.held_growth_bytes as f64
    }
}

/// A counted session, without its washout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrialSession {
    /// Its arm.
    pub arm: Arm,
    /// Its sums.
    pub counts: TrialCounts,
}

/// The running session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Running {
    /// Use since its start, with the washout, microseconds.
    use_us: Micros,
    /// Sums after the washout.
    counts: TrialCounts,
}

/// A trial: hands out the arm of the moment and collects what the mount counts.
///
/// The caller calls [`observe`](Self::observe) at least once a minute, and once more after the last
/// write-back of an unmount, and stores [`to_json`](Self::to_json) each time. It counts writes in
/// the same way in all arms, so none may bypass the mount (passthrough).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    schema: u32,
    plan: TrialPlan,
    /// Time that the trial has run, microseconds.
    elapsed_us: Micros,
    /// Wall clock at the last observation, or at the start, microseconds since 1970.
    last_us: Micros,
    last: Option<Sample>,
    running: Running,
    /// Counted sessions in order: those of block n are `n * arms ..`.
    sessions: Vec<TrialSession>,
    idle_sessions: u64,
    /// Sums of all washouts and idle sessions.
    uncounted: TrialCounts,
}

impl Trial {
    /// Begins a trial at a time of the wall clock, microseconds since 1970.
    ///
    /// # Errors
    ///
    /// The plan has no arms to compare, a washout as long as a session, or no time for one block.
    pub fn new(plan: TrialPlan, start_us: Micros) -> Result<Self, TrialError> {
        plan.check()?;
        Ok(Self {
            schema: SCHEMA,
            plan,
            elapsed_us: 0,
            last_us: start_us,
            last: None,
            running: Running::default(),
            sessions: Vec::new(),
            idle_sessions: 0,
            uncounted: TrialCounts::default(),
        })
    }

    /// Reads a stored trial.
    ///
    /// # Errors
    ///
    /// The text is not that of a trial, is of another version, or contradicts its own plan.
    pub fn from_json(text: &str) -> Result<Self, TrialError> {
        #[derive(Deserialize)]
        struct Head {
            schema: u64,
        }
        let head: Head = serde_json::from_str(text).map_err(TrialError::Damaged)?;
        if head.schema != u64::from(SCHEMA) {
            return Err(TrialError::Schema(head.schema));
        }
        let trial: Self = serde_json::from_str(text).map_err(TrialError::Damaged)?;
        trial.plan.check()?;
        let mut blocks = trial.sessions.chunks(trial.plan.arms.len()).enumerate();
        let arms = |(block, sessions): (usize, &[TrialSession])| {
            sessions.iter().zip(trial.plan.order(block)).all(|(session, arm)| session.arm == arm)
        };
        if !blocks.all(arms) {
            return Err(TrialError::Order);
        }
        Ok(trial)
    }

    /// Returns the text that [`from_json`](Self::from_json) reads.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("numbers, lists and names are JSON")
    }

    /// Returns the plan.
    pub fn plan(&self) -> &TrialPlan {
        &self.plan
    }

    /// Returns the counted sessions, in the order of time.
    pub fn sessions(&self) -> &[TrialSession] {
        &self.sessions
    }

    /// Returns the sums of washouts and idle sessions.
    pub fn uncounted(&self) -> &TrialCounts {
        &self.uncounted
    }

    /// Returns the arm at this time of the wall clock; `None` after the end.
    pub fn arm_at(&self, now_us: Micros) -> Option<Arm> {
        let elapsed_us = self.elapsed_us.saturating_add(self.gap_us(now_us));
        (elapsed_us < self.plan.length_us).then(|| self.arm())
    }

    fn arm(&self) -> Arm {
        let arms = self.plan.arms.len();
        self.plan.order(self.sessions.len() / arms)[self.sessions.len() % arms]
    }

    /// Returns the time since the last observation. A clock that goes backwards adds none.
    fn gap_us(&self, now_us: Micros) -> Micros {
        now_us.saturating_sub(self.last_us).min(GAP_US_MAX)
    }

    fn has_ended(&self) -> bool {
        self.elapsed_us >= self.plan.length_us
    }

    /// Counts the time since the last observation for the arm of that time, and returns the arm
    /// from now on; `None` after the end. The first observation only sets the baseline.
    pub fn observe(&mut self, now_us: Micros, sample: Sample) -> Option<Arm> {
        if self.has_ended() {
            return None;
        }
        let gap_us = self.gap_us(now_us);
        self.elapsed_us = self.elapsed_us.saturating_add(gap_us);
        self.last_us = now_us;
        if let Some(last) = self.last.replace(sample) {
            let mut counts = TrialCounts::between(&last, &sample);
            if counts.requested_bytes > 0 {
                counts.use_us = gap_us.min(USE_US_MAX);
            }
            self.count(&counts);
        }
        self.arm_at(now_us)
    }

    fn count(&mut self, counts: &TrialCounts) {
        let is_washout = self.running.use_us < self.plan.washout_us;
        let sums = if is_washout { &mut self.uncounted } else { &mut self.running.counts };
        sums.add(counts);
        self.running.use_us = self.running.use_us.saturating_add(counts.use_us);
        if self.running.use_us < self.plan.session_us {
            return;
        }
        let ended = std::mem::take(&mut self.running).counts;
        if ended.own_bytes() < self.plan.idle_bytes {
            self.uncounted.add(&ended);
            self.idle_sessions += 1;
        } else {
            let arm = self.arm();
            self.sessions.push(TrialSession { arm, counts: ended });
        }
    }
}

#[cfg(test)]
mod tests;
