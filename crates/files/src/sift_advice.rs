//! The sifter to use for a trace, or none: the savings and costs of each by slice of time.
//!
//! The slices are the sessions of the trace, where it has enough of them: a session ends with a
//! pause of [`PAUSE_US`] in which no file is touched. Otherwise they are [`SLICES`] of equal time.
//! Each sifter runs once over the whole trace, so its RAM stays filled. A slice is charged for the
//! bytes that reach flash in it and for those that begin to wait, the last one for the write-out at
//! the end.
//!
//! A sifter is recommended if it knows no future, the rule of all advice confirms its saving
//! ([`Judgement::confirmed`]), and in each half the bytes fetched again stay within a limit. Of
//! several, the one that keeps the most is recommended. An earlier version asked for bootstrap
//! intervals over the slices: of recommendations made in that way on first halves of recordings,
//! only 15 of 35 savings lay in the interval on the second.

use crate::{
    judge::{Judgement, SLICES, SLICES_MIN},
    sifting::{SiftOutcome, SiftSlice, equal_parts},
};
use flashsift_events::event::{Event, Micros};

/// Shortest pause between two sessions, microseconds.
pub const PAUSE_US: Micros = 600_000_000;

/// Length of a slice below which neighbouring slices depend on each other: twice the time after
/// which Linux writes a dirty page.
const SLICE_US_MIN: Micros = 60_000_000;

/// The slices of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SiftSlices {
    /// Beginnings of the second and later slices, ascending.
    pub begins_us: Vec<Micros>,
    /// They are sessions; else parts of equal time.
    pub are_sessions: bool,
    end_us: Micros,
}

impl SiftSlices {
    /// Returns the sessions of a whole trace; if it has fewer than [`SLICES_MIN`], slices of equal
    /// time.
    pub fn new(events: &[Event<'_>]) -> Self {
        let end_us = events.last().map_or(0, |event| event.at_us);
        let touches = events.iter().filter(|event| event.action.file().is_some());
        let mut times_us = touches.map(|event| event.at_us);
        let mut last_us = times_us.next().unwrap_or(0);
        let mut begins_us = Vec::new();
        for at_us in times_us {
            if at_us.saturating_sub(last_us) >= PAUSE_US {
                begins_us.push(at_us);
            }
            last_us = at_us;
        }
        let are_sessions = begins_us.len() + 1 >= SLICES_MIN;
        if !are_sessions {
            begins_us = equal_parts(end_us, SLICES);
        }
        Self { begins_us, are_sessions, end_us }
    }

    /// Returns how many slices there are.
    pub fn count(&self) -> usize {
        self.begins_us.len() + 1
    }

    /// Returns the mean length of a slice, microseconds.
    pub fn mean_us(&self) -> Micros {
        self.end_us / self.count() as Micros
    }

    /// Returns whether neighbouring slices depend on each other, so that they confirm little.
    pub fn are_short(&self) -> bool {
        !self.are_sessions && self.mean_us() < SLICE_US_MIN
    }
}

/// A share in the whole trace, and in each half of its slices.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HalvedShare {
    /// The share in the whole trace.
    pub whole: f64,
    /// The share in the first half of the slices, and in the second. Infinite if something is
    /// fetched again in a half in which nothing reaches flash.
    pub halves: [f64; 2],
}

impl HalvedShare {
    /// Returns the shares of the parts of both halves in their wholes.
    fn new(parts: [f64; 2], wholes: [f64; 2]) -> Self {
        let share = |part: f64, whole: f64| if part == 0.0 { 0.0 } else { part / whole.max(0.0) };
        let whole = share(parts[0] + parts[1], wholes[0] + wholes[1]);
        Self { whole, halves: [0, 1].map(|half| share(parts[half], wholes[half])) }
    }

    /// Returns the share in the half that has less.
    pub fn lesser(&self) -> f64 {
        self.halves[0].min(self.halves[1])
    }

    /// Returns the share in the half that has more.
    pub fn greater(&self) -> f64 {
        self.halves[0].max(self.halves[1])
    }
}

/// A sifter, and its effects beside those of no sifter.
#[derive(Clone, Debug, PartialEq)]
pub struct JudgedSifter {
    /// Its name with its parameters.
    pub name: String,
    /// It knows the rest of the trace: a bound, not a choice.
    pub is_offline: bool,
    /// Its effects.
    pub outcome: SiftOutcome,
    /// File data of droppable files that it keeps from flash, as a share of the data that reaches
    /// flash without a sifter.
    pub kept: HalvedShare,
    /// The same saving by the rule of all advice.
    pub judgement: Judgement,
    /// Bytes that are fetched again, as a share of the same data.
    pub fetched_again: HalvedShare,
    /// Slices in which droppable files reach flash or are fetched again, with it or without.
    pub slices: usize,
}

impl JudgedSifter {
    /// Compares the slices of a sifter with those of no sifter.
    ///
    /// # Panics
    /// If the numbers of slices differ.
    pub fn new(name: String, is_offline: bool, stock: &SiftOutcome, outcome: SiftOutcome) -> Self {
        assert_eq!(stock.slices.len(), outcome.slices.len(), "both were cut into the same slices");
        let pairs = stock.slices.iter().zip(&outcome.slices);
        let works = pairs.filter(|(stock, with)| {
            stock.droppable > 0 || with.droppable > 0 || with.fetched_again > 0
        });
        let slices = works.count();
        let baseline = costs(stock);
        let judgement = Judgement::new(&baseline, &costs(&outcome));
        let kept =
            HalvedShare { whole: judgement.share(judgement.saving), halves: judgement.halves };
        let again: Vec<f64> =
            outcome.slices.iter().map(|slice| slice.fetched_again as f64).collect();
        let fetched_again = HalvedShare::new(halves(&again), halves(&baseline));
        Self { name, is_offline, kept, judgement, fetched_again, slices, outcome }
    }

    /// Whether its saving is confirmed, and at most this share is fetched again in each half.
    fn is_worth_it(&self, fetched_again_max: f64) -> bool {
        !self.is_offline
            && self.slices >= SLICES_MIN
            && self.judgement.recommends()
            && self.fetched_again.greater() <= fetched_again_max
    }
}

/// The bytes of droppable files that each slice sends to flash. Bytes that begin to wait are
/// charged to their slice: RAM that fills is no saving.
fn costs(outcome: &SiftOutcome) -> Vec<f64> {
    let mut before = 0.0;
    let cost = |slice: &SiftSlice| {
        let waits = slice.waits as f64;
        slice.droppable as f64 + waits - std::mem::replace(&mut before, waits)
    };
    let mut costs: Vec<f64> = outcome.slices.iter().map(cost).collect();
    if let Some(last) = costs.last_mut() {
        *last += outcome.at_end.droppable as f64 - before;
    }
    costs
}

/// The sums of the first half of the slices, and of the second.
fn halves(by_slice: &[f64]) -> [f64; 2] {
    let (first, second) = by_slice.split_at(by_slice.len() / 2);
    [first.iter().sum(), second.iter().sum()]
}

/// Effects of all sifters on a trace, and the sifter to use.
#[derive(Clone, Debug, PartialEq)]
pub struct SiftAdvice {
    /// The slices.
    pub slices: SiftSlices,
    /// Without a sifter.
    pub stock: SiftOutcome,
    /// The sifters in the order of the request.
    pub judged: Vec<JudgedSifter>,
    /// Share that may be fetched again.
    pub fetched_again_max: f64,
}

impl SiftAdvice {
    /// Returns the sifter that keeps the most among those that are worth it.
    pub fn recommended(&self) -> Option<&JudgedSifter> {
        let worth = self.judged.iter().filter(|one| one.is_worth_it(self.fetched_again_max));
        most_kept(worth)
    }

    /// Returns the sifter without knowledge of the future that keeps the most, at whatever price.
    pub fn most_kept(&self) -> Option<&JudgedSifter> {
        most_kept(self.judged.iter().filter(|one| !one.is_offline))
    }

    /// Returns the number of slices in which droppable files reach flash or are fetched again, of
    /// the sifter that has most of them.
    pub fn slices_with_work(&self) -> usize {
        self.judged.iter().map(|one| one.slices).max().unwrap_or(0)
    }

    /// Whether there are too few slices for a recommendation.
    pub fn has_too_few_slices(&self) -> bool {
        self.slices_with_work() < SLICES_MIN
    }
}

/// The first of those that keep the most.
fn most_kept<'a>(
    judged: impl DoubleEndedIterator<Item = &'a JudgedSifter>,
) -> Option<&'a JudgedSifter> {
    judged.rev().max_by(|one, other| one.kept.whole.total_cmp(&other.kept.whole))
}

#[cfg(test)]
mod tests;
