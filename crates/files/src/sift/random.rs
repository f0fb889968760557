//! `random`: chance decides which droppable files reach flash. A rule that does not beat it has
//! learned nothing.

use super::{
    Spec,
    explanation::{Explanation, Intent},
    on_pressure::{Judge, OnPressure, Use, Verdict},
    shelf::{Held, Shelf, Slot},
};
use flashsift_events::{
    event::Micros,
    params::{Param, ParamKind},
};
use foldhash::fast::FixedState;
use std::hash::BuildHasher;

pub(super) const SPEC: Spec = Spec {
    name: "random",
    paper: "baseline",
    what: "drops a droppable file with a fixed probability when RAM is full, else writes it",
    params: PARAMS,
    offline: |_| false,
    build: |setup, params| {
        let number = |name| params.number(PARAMS, name);
        let (share, seed) = (number("p"), number("seed") as u64);
        Ok(Box::new(OnPressure::new(setup, Random { share, hasher: FixedState::with_seed(seed) })))
    },
};

const PARAMS: &[Param] = &[
    Param {
        name: "p",
        what: "probability of a drop",
        kind: ParamKind::Number { default: 0.5, min: 0.0, max: 1.0 },
    },
    Param {
        name: "seed",
        what: "seed of the choice",
        kind: ParamKind::Number { default: 1.0, min: 0.0, max: 4e9 },
    },
];

struct Random {
    share: f64,
    hasher: FixedState,
}

impl Random {
    /// Returns the number that is drawn for a file, from 0 to 1.
    fn drawn(&self, file: &Held<()>) -> f64 {
        let bits = self.hasher.hash_one((file.id, file.born_us)) >> 11;
        bits as f64 / (1u64 << 53) as f64
    }
}

impl Judge for Random {
    type State = ();

    fn used(&mut self, _: Micros, _: &mut Held<()>, _: Use) -> bool {
        true
    }

    fn judge(&mut self, now: Micros, shelf: &Shelf<()>) -> Option<(Slot, Verdict)> {
        let slot = shelf.idle(now).next()?;
        let drops = self.drawn(&shelf[slot]) < self.share;
        Some((slot, if drops { Verdict::Drop } else { Verdict::Write }))
    }

    fn explain(&self, now: Micros, shelf: &Shelf<()>, slot: Slot) -> Explanation {
        let drawn = self.drawn(&shelf[slot]);
        let (intent, rule) = match drawn < self.share {
            true => (Intent::Drop, "Chance decides to drop it."),
            false => (Intent::Write, "Chance decides to write it."),
        };
        Explanation::of_held(now, &shelf[slot], intent, rule).below(
            "number drawn",
            drawn,
            self.share,
        )
    }
}
