//! `touch`: a file that was read before RAM is full is worth its place on flash; any other is not.

use super::{
    Spec,
    drop_all::{ORDER, Order},
    explanation::{Explanation, Intent, seconds},
    on_pressure::{Judge, OnPressure, Use, Verdict},
    shelf::{Held, Shelf, Slot},
};
use flashsift_events::{
    event::Micros,
    params::{Param, ParamKind},
};

pub(super) const SPEC: Spec = Spec {
    name: "touch",
    paper: "baseline",
    what: "writes a droppable file that was read again, and drops the others, when RAM is full",
    params: PARAMS,
    offline: |_| false,
    build: |setup, params| {
        Ok(Box::new(OnPressure::new(
            setup,
            Touch {
                order: Order::new(params, PARAMS),
                pause_us: params.duration_us(PARAMS, "pause"),
            },
        )))
    },
};

const PARAMS: &[Param] = &[
    ORDER,
    Param {
        name: "pause",
        what: "a read counts as a new one if the file was not used for this long",
        kind: ParamKind::Duration { default_us: 1_000_000, min_us: 0, max_us: 86_400_000_000 },
    },
];

struct Touch {
    order: Order,
    pause_us: Micros,
}

/// Whether a file was read again.
type Touched = bool;

impl Judge for Touch {
    type State = Touched;

    fn used(&mut self, now: Micros, file: &mut Held<Touched>, how: Use) -> bool {
        let rested = now.saturating_sub(file.used_us) >= self.pause_us;
        file.state |= rested && matches!(how, Use::Read { .. });
        self.order == Order::Lru
    }

    fn judge(&mut self, now: Micros, shelf: &Shelf<Touched>) -> Option<(Slot, Verdict)> {
        let slot = shelf.idle(now).next()?;
        Some((slot, if shelf[slot].state { Verdict::Write } else { Verdict::Drop }))
    }

    fn explain(&self, now: Micros, shelf: &Shelf<Touched>, slot: Slot) -> Explanation {
        let file = &shelf[slot];
        let (intent, rule) = match file.state {
            true => (Intent::Write, "It was read again."),
            false => (Intent::Drop, "It was not read again."),
        };
        Explanation::of_held(now, file, intent, rule)
            .below("new reads", f64::from(u8::from(file.state)), 1.0)
            .with("pause_s", seconds(self.pause_us))
    }
}
