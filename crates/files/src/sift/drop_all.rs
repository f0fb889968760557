//! `drop-all`: no droppable file reaches flash unless an application asks for it.

use super::{
    Spec,
    explanation::{Explanation, Intent},
    on_pressure::{Judge, OnPressure, Use, Verdict},
    shelf::{Held, Shelf, Slot},
};
use flashsift_events::{
    event::Micros,
    params::{Param, ParamKind, Params},
};

pub(super) const SPEC: Spec = Spec {
    name: "drop-all",
    paper: "baseline",
    what: "drops droppable files when RAM is full, the oldest first",
    params: &[ORDER],
    offline: |_| false,
    build: |setup, params| {
        Ok(Box::new(OnPressure::new(setup, DropAll { order: Order::new(params, &[ORDER]) })))
    },
};

/// The parameter of the order in which files are judged.
pub(super) const ORDER: Param = Param {
    name: "order",
    what: "order in which files are judged: by their last use, or by their creation",
    kind: ParamKind::Word(&["lru", "fifo"]),
};

/// The order in which files are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Lru,
    Fifo,
}

impl Order {
    pub(super) fn new(params: &Params, declared: &[Param]) -> Self {
        if params.word(declared, "order") == "fifo" { Self::Fifo } else { Self::Lru }
    }
}

struct DropAll {
    order: Order,
}

impl Judge for DropAll {
    type State = ();

    fn used(&mut self, _: Micros, _: &mut Held<()>, _: Use) -> bool {
        self.order == Order::Lru
    }

    fn judge(&mut self, now: Micros, shelf: &Shelf<()>) -> Option<(Slot, Verdict)> {
        Some((shelf.idle(now).next()?, Verdict::Drop))
    }

    fn explain(&self, now: Micros, shelf: &Shelf<()>, slot: Slot) -> Explanation {
        let rule = match self.order {
            Order::Lru => "Every file is dropped, the one used least recently first.",
            Order::Fifo => "Every file is dropped, the one created first first.",
        };
        Explanation::of_held(now, &shelf[slot], Intent::Drop, rule)
    }
}
