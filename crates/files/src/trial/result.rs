//! The result of a trial: totals by arm, the comparisons, and each as one sentence.
//!
//! Rules for a claim, in this order:
//!
//! 1. Not enough data: the trial still runs, has fewer than [`BLOCKS_MIN`] blocks, or its interval
//!    includes "no effect" and reaches beyond [`RESOLVED`] on a side.
//! 2. Less or more: the interval excludes "no effect".
//! 3. No effect found: the interval lies within [`RESOLVED`] around it.
//!
//! The days that are still needed come from the blocks so far. Let the time per block and the
//! variance stay as they were: the interval's half-width then has to fall to the size of the effect
//! that is now the estimate, or to [`RESOLVED`] if that is larger. It is half the chance of a
//! claim, not a promise.

use crate::trial::{
    Arm, Trial, TrialCounts, TrialSession,
    estimate::{BLOCKS_MIN, Interval95, PairedCost, mean, pairs_for, ratio},
};
use flashsift_events::{event::Micros, show};
use serde::Serialize;

/// Relative difference up to which an effect counts as none.
pub const RESOLVED: f64 = 0.10;

const DAY_US: Micros = 24 * 3_600_000_000;

/// More days than these are not counted out.
const DAYS_MAX: u64 = 366;

/// All counted sessions of an arm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ArmTotals {
    /// The arm.
    pub arm: Arm,
    /// Counted sessions, complete blocks or not.
    pub sessions: usize,
    /// Their sums.
    pub counts: TrialCounts,
}

impl ArmTotals {
    /// Returns the mean time of an open, microseconds.
    pub fn mean_open_us(&self) -> Option<f64> {
        mean_open_us(&self.counts)
    }
}

fn mean_open_us(counts: &TrialCounts) -> Option<f64> {
    (counts.opens > 0).then(|| counts.open_us as f64 / counts.opens as f64)
}

/// A claim about the flash that programs' data costs with sifting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum TrialFinding {
    /// Not enough data yet.
    NotEnough {
        /// Days until there is, as a forecast; at least 1.
        more_days: u64,
    },
    /// It costs less.
    Less,
    /// It costs more.
    More,
    /// The difference is zero or small.
    NoEffect,
    /// No data reached flash in any session of both arms.
    NoCost,
}

/// Sifting beside another arm.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The other arm.
    pub beside: Arm,
    /// Cost of a byte with sifting, as a ratio of that in the other arm.
    pub ratio: Option<Interval95>,
    /// Time of an open with sifting beyond that in the other arm, microseconds, each block alike.
    pub open_us: Option<Interval95>,
    /// The claim.
    pub finding: TrialFinding,
}

/// The result of a trial so far.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrialResult {
    /// Time that the trial has run, microseconds.
    pub elapsed_us: Micros,
    /// Whether it has run for its length. Only then it claims an effect.
    pub has_ended: bool,
    /// Totals by arm, in the order of the plan.
    pub totals: Vec<ArmTotals>,
    /// Complete blocks.
    pub blocks: usize,
    /// Sessions that were not counted because programs wrote hardly anything.
    pub idle_sessions: u64,
    /// Bytes fetched again in the whole trial, washouts and idle sessions included.
    pub fetched_again_bytes: u64,
    /// Sifting beside `plain` first, where the plan has it, then beside `keep`.
    pub comparisons: Vec<Comparison>,
}

impl Trial {
    /// Returns the result up to the last observation.
    pub fn result(&self) -> TrialResult {
        let totals = self.plan.arms.iter().map(|arm| {
            let mut totals = ArmTotals { arm: *arm, sessions: 0, counts: TrialCounts::default() };
            for session in self.sessions.iter().filter(|session| session.arm == *arm) {
                totals.sessions += 1;
                totals.counts.add(&session.counts);
            }
            totals
        });
        let mut all = self.uncounted;
        all.add(&self.running.counts);
        self.sessions.iter().for_each(|session| all.add(&session.counts));
        let beside = [Arm::Plain, Arm::Keep].into_iter().filter(|arm| self.plan.arms.contains(arm));
        TrialResult {
            elapsed_us: self.elapsed_us,
            has_ended: self.has_ended(),
            totals: totals.collect(),
            blocks: self.blocks().count(),
            idle_sessions: self.idle_sessions,
            fetched_again_bytes: all.fetched_again_bytes,
            comparisons: beside.map(|arm| self.compare(arm)).collect(),
        }
    }

    fn blocks(&self) -> impl Iterator<Item = &[TrialSession]> {
        self.sessions.chunks_exact(self.plan.arms.len())
    }

    fn compare(&self, beside: Arm) -> Comparison {
        let pairs: Vec<_> = self.blocks().map(|block| paired(block, beside)).collect();
        let opens = self.blocks().filter_map(|block| {
            let mean = |arm| mean_open_us(&of_arm(block, arm).counts);
            Some(mean(Arm::Sift)? - mean(beside)?)
        });
        let opens: Vec<f64> = opens.collect();
        let ratio = ratio(&pairs);
        let is_free = pairs.iter().all(|(sift, other)| sift.cost_bytes + other.cost_bytes == 0.0);
        Comparison {
            beside,
            ratio,
            open_us: mean(&opens).filter(|_| opens.len() >= BLOCKS_MIN),
            finding: self.finding(pairs.len(), ratio, is_free),
        }
    }

    fn finding(&self, blocks: usize, ratio: Option<Interval95>, is_free: bool) -> TrialFinding {
        let allows_claim = self.has_ended() && blocks >= BLOCKS_MIN;
        match ratio {
            Some(ratio) if allows_claim && ratio.high < 1.0 => TrialFinding::Less,
            Some(ratio) if allows_claim && ratio.low > 1.0 => TrialFinding::More,
            Some(ratio)
                if allows_claim && ratio.low >= 1.0 - RESOLVED && ratio.high <= 1.0 + RESOLVED =>
            {
                TrialFinding::NoEffect
            }
            None if allows_claim && is_free => TrialFinding::NoCost,
            _ => TrialFinding::NotEnough { more_days: self.more_days(blocks, ratio) },
        }
    }

    /// Returns the days until a claim is to be expected, or until the planned end if that is later.
    fn more_days(&self, blocks: usize, ratio: Option<Interval95>) -> u64 {
        let planned_us = self.plan.length_us.saturating_sub(self.elapsed_us);
        let blocks_max = 100_000;
        let needed = match ratio {
            _ if blocks < BLOCKS_MIN => BLOCKS_MIN,
            Some(Interval95 { estimate, low, high }) if high.is_finite() => {
                let wanted = (estimate - 1.0).abs().max(RESOLVED);
                pairs_for(wanted, (high - low) / 2.0, blocks, blocks_max).max(BLOCKS_MIN)
            }
            // The variance is unknown, or too large for any bound.
            _ => 2 * blocks,
        };
        // A block that has begun counts in part. If none has, the next trial is as idle as this.
        let done = self.sessions.len() as f64 / self.plan.arms.len() as f64;
        let us_per_block = self.elapsed_us as f64 / done;
        let needed_us = (needed as f64 - done).max(0.0) * us_per_block;
        let us = if needed_us.is_finite() { needed_us } else { self.plan.length_us as f64 };
        ((us.max(planned_us as f64) / DAY_US as f64).ceil() as u64).max(1)
    }
}

fn of_arm(block: &[TrialSession], arm: Arm) -> &TrialSession {
    let found = block.iter().find(|session| session.arm == arm);
    found.expect("a block holds every arm of its plan")
}

/// Returns the sessions of sifting and of another arm in a block. The bytes that others fetched
/// again are charged to sifting.
fn paired(block: &[TrialSession], beside: Arm) -> (PairedCost, PairedCost) {
    let cost = |session: &TrialSession| {
        let bytes = session.counts.cost_bytes();
        let charged = match session.arm {
            Arm::Sift => 0.0,
            _ => (session.counts.fetched_again_bytes as f64).min(bytes.max(0.0)),
        };
        (bytes - charged, charged)
    };
    let own = |session: &TrialSession| session.counts.own_bytes().max(1) as f64;
    let (sift, other) = (of_arm(block, Arm::Sift), of_arm(block, beside));
    let charged: f64 = block.iter().map(|session| cost(session).1).sum();
    (
        PairedCost { cost_bytes: cost(sift).0 + charged, own_bytes: own(sift) },
        PairedCost { cost_bytes: cost(other).0, own_bytes: own(other) },
    )
}

impl TrialResult {
    /// Returns the sentence of the first comparison.
    pub fn sentence(&self) -> String {
        let first = self.comparisons.first();
        self.sentence_of(first.expect("a plan has an arm beside sifting"))
    }

    /// Returns a comparison as one sentence.
    pub fn sentence_of(&self, of: &Comparison) -> String {
        let than = match of.beside {
            Arm::Keep => " than without drops",
            _ => "",
        };
        let claim = match (of.finding, of.ratio) {
            (TrialFinding::NotEnough { more_days }, _) => return not_enough(more_days),
            (TrialFinding::Less, Some(Interval95 { estimate, low, high })) => format!(
                "With sifting, programs' data cost {} less flash{than} (95 %: {})",
                show::share(1.0 - estimate),
                span(show::share(1.0 - high), &show::share(1.0 - low)),
            ),
            (TrialFinding::More, Some(Interval95 { estimate, low, high })) => format!(
                "With sifting, programs' data cost {} more flash{than} (95 %: {})",
                show::share(estimate - 1.0),
                span(show::share(low - 1.0), &show::share(high - 1.0)),
            ),
            (TrialFinding::NoEffect, Some(Interval95 { low, high, .. })) => format!(
                "No effect found: with sifting, programs' data cost between {} less and {} more \
                 flash{than} (95 %)",
                show::share(1.0 - low),
                show::share(high - 1.0),
            ),
            (_, _) => "No data of programs reached flash, with sifting or without".to_owned(),
        };
        let again = match self.fetched_again_bytes {
            0 => "nothing was fetched again".to_owned(),
            bytes => format!("{} were fetched again", show::bytes(bytes)),
        };
        let opens = of.open_us.map(|of| format!("; {}", open_time(of))).unwrap_or_default();
        format!("{claim}; {again}{opens}.")
    }
}

fn not_enough(more_days: u64) -> String {
    match more_days {
        DAYS_MAX.. => "Not enough data yet: more than a year more.".to_owned(),
        1 => "Not enough data yet: about 1 more day.".to_owned(),
        days => format!("Not enough data yet: about {days} more days."),
    }
}

/// Prints a span of shares or numbers with one unit: `31…45 %`.
fn span(low: String, high: &str) -> String {
    format!("{}…{high}", low.strip_suffix(" %").unwrap_or(&low))
}

fn open_time(Interval95 { estimate, low, high }: Interval95) -> String {
    let number = show::number;
    if low <= 0.0 && high >= 0.0 {
        let span = span(number(low), &number(high));
        return format!("opening a file took as long, within the error (95 %: {span} µs longer)");
    }
    let (low, high) = if estimate > 0.0 { (low, high) } else { (-high, -low) };
    let than = if estimate > 0.0 { "longer" } else { "less" };
    let span = span(number(low), &number(high));
    format!("opening a file took {} µs {than} (95 %: {span})", number(estimate.abs()))
}
