//! The sifter to use for a trace, or none: the savings and costs of each by slice of time, with
//! bootstrap intervals.
//!
//! The slices are the sessions of the trace, where it has enough of them: a session ends with a
//! pause of [`PAUSE_US`] in which no file is touched. Otherwise they are [`SLICES`] of equal time.
//! Each sifter runs once over the whole trace, so its RAM stays filled. The write-out at the
//! end happens once, however many sessions there are: it counts in full in every resample.
//!
//! A sifter is recommended if it knows no future, the interval of its saving is above zero, and
//! that of the bytes fetched again stays within a limit. Of several, the one that keeps the most is
//! recommended.

use crate::{
    judge::{SLICES, SLICES_MIN, bootstrap},
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

    /// Returns whether neighbouring slices depend on each other, so that intervals are too narrow.
    pub fn are_short(&self) -> bool {
        !self.are_sessions && self.mean_us() < SLICE_US_MIN
    }
}

/// A share with its 95 % interval.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ShareInterval {
    /// The share in the whole trace.
    pub share: f64,
    /// Percentile 2.5 of the bootstrap.
    pub low: f64,
    /// Percentile 97.5; infinite if something is fetched again where nothing reaches flash.
    pub high: f64,
}

/// Parts and wholes by slice, and those at the end of the trace.
struct Parts {
    by_slice: Vec<(f64, f64)>,
    at_end: (f64, f64),
}

impl ShareInterval {
    /// Returns the share of the parts in the wholes.
    fn new(Parts { by_slice, at_end }: Parts) -> Self {
        let add = |(part, whole): (f64, f64), of: &(f64, f64)| (part + of.0, whole + of.1);
        let share = |(part, whole): (f64, f64)| if part == 0.0 { 0.0 } else { part / whole };
        let (low, high) = bootstrap(by_slice.len(), |drawn| {
            share(drawn.iter().map(|slice| &by_slice[*slice]).fold(at_end, add))
        });
        Self { share: share(by_slice.iter().fold(at_end, add)), low, high }
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
    pub kept: ShareInterval,
    /// Bytes that are fetched again, as a share of the same data.
    pub fetched_again: ShareInterval,
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
        let works: Vec<_> = works.collect();
        let shares = |part: fn(&SiftSlice, &SiftSlice) -> f64| {
            let pair =
                |stock: &SiftSlice, with: &SiftSlice| (part(stock, with), stock.droppable as f64);
            let by_slice = works.iter().map(|(stock, with)| pair(stock, with)).collect();
            ShareInterval::new(Parts { by_slice, at_end: pair(&stock.at_end, &outcome.at_end) })
        };
        Self {
            name,
            is_offline,
            kept: shares(|stock, with| stock.droppable as f64 - with.droppable as f64),
            fetched_again: shares(|_, with| with.fetched_again as f64),
            slices: works.len(),
            outcome,
        }
    }

    /// Whether it saves bytes at flash for certain, and at most this share is fetched again.
    fn is_worth_it(&self, fetched_again_max: f64) -> bool {
        !self.is_offline
            && self.slices >= SLICES_MIN
            && self.kept.low > 0.0
            && self.fetched_again.high <= fetched_again_max
    }
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
    judged.rev().max_by(|one, other| one.kept.share.total_cmp(&other.kept.share))
}

#[cfg(test)]
mod tests;
