//! `oracle`: what a sifter could save that knew the rest of the history, at no byte fetched again.
//!
//! A file that is not used any more is dropped first. If none is left, the file whose last use is
//! farthest away goes to flash: it would take RAM for the longest time. For files of equal size
//! whose every byte saves the same, that keeps the most bytes from flash that any choice can
//! (Carlisle and Lloyd, "On the k-coloring of intervals", 1995, §3): a file is an interval from its
//! creation to its last use, and RAM is the number of intervals that may overlap.

use super::{
    Spec,
    explanation::{Explanation, Intent, seconds},
    on_pressure::{Judge, OnPressure, Use, Verdict},
    shelf::{Held, Shelf, Shelved, Slot},
    uses::LastUses,
};
use flashsift_events::event::{FileId, Micros};
use std::{collections::BTreeSet, ops::Bound::Excluded};

pub(super) const SPEC: Spec = Spec {
    name: "oracle",
    paper: "Carlisle and Lloyd, Discrete Applied Mathematics 59 (1995)",
    what: "knows the rest of the trace, and drops no file that is used again",
    params: &[],
    offline: |_| true,
    build: |setup, _| {
        let last = setup.last_uses.cloned().unwrap_or_default();
        Ok(Box::new(OnPressure::new(setup, Oracle { last, by_end: BTreeSet::new() })))
    },
};

struct Oracle {
    last: LastUses,
    /// Files by their last use. Those that have left RAM are skipped.
    by_end: BTreeSet<(Micros, FileId)>,
}

impl Oracle {
    /// Returns the first idle file of these, and forgets those that are not in RAM.
    fn first(
        &mut self,
        now: Micros,
        shelf: &Shelf<()>,
        mut next: impl FnMut(
            &BTreeSet<(Micros, FileId)>,
            Option<(Micros, FileId)>,
        ) -> Option<(Micros, FileId)>,
    ) -> Option<Slot> {
        let mut at = None;
        while let Some(found) = next(&self.by_end, at) {
            match shelf.find(found.1) {
                Some(slot) if shelf.is_idle(slot, now) => return Some(slot),
                Some(slot) if shelf[slot].list() != Shelved::Leaving => at = Some(found),
                _ => drop(self.by_end.remove(&found)),
            }
        }
        None
    }
}

impl Judge for Oracle {
    type State = ();

    fn created(&mut self, _: Micros, _: Slot, file: &mut Held<()>) {
        self.by_end.insert((self.last.get(file.id), file.id));
    }

    fn used(&mut self, _: Micros, _: &mut Held<()>, _: Use) -> bool {
        true
    }

    fn judge(&mut self, now: Micros, shelf: &Shelf<()>) -> Option<(Slot, Verdict)> {
        let past = (now, FileId(0));
        let ended = self.first(now, shelf, |ends, after| match after {
            Some(after) => ends.range((Excluded(after), Excluded(past))).next().copied(),
            None => ends.range(..past).next().copied(),
        });
        if let Some(slot) = ended {
            return Some((slot, Verdict::Drop));
        }
        let longest = self.first(now, shelf, |ends, before| match before {
            Some(before) => ends.range(..before).next_back().copied(),
            None => ends.last().copied(),
        });
        Some((longest?, Verdict::Write))
    }

    fn explain(&self, now: Micros, shelf: &Shelf<()>, slot: Slot) -> Explanation {
        let file = &shelf[slot];
        let last_us = self.last.get(file.id);
        let (intent, rule) = match last_us < now {
            true => (Intent::Drop, "It is used no more."),
            false => (
                Intent::Write,
                "It is used again, and written when its last use is the farthest away.",
            ),
        };
        let used_again = f64::from(u8::from(last_us >= now));
        let ahead_s = seconds(last_us.saturating_sub(now)) - seconds(now.saturating_sub(last_us));
        Explanation::of_held(now, file, intent, rule)
            .below("time until the last use, s", ahead_s, 0.0)
            .chance(used_again, used_again * file.bytes() as f64)
    }
}
