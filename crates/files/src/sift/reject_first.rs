//! `reject-first`: a file is worth its place on flash when it comes for the second time.
//!
//! CacheLib's admission policy of this name (Berg et al., "The CacheLib Caching Engine", OSDI '20):
//! an object that leaves DRAM for the first time is rejected, and its key remembered; when it
//! leaves again while it is still remembered, it is admitted to flash. A key is here a name, since
//! a file that is fetched again is created anew. CacheLib remembers keys in Bloom filters that are
//! replaced in turn; here the names that came last are remembered exactly.

use super::{
    Spec,
    drop_all::{ORDER, Order},
    explanation::{Explanation, Intent},
    on_pressure::{Judge, OnPressure, Use, Verdict},
    remembered::Remembered,
    s3_fifo::GHOSTS,
    shelf::{Held, Shelf, Slot},
};
use flashsift_events::{event::Micros, params::Param};

pub(super) const SPEC: Spec = Spec {
    name: "reject-first",
    paper: "Berg et al., OSDI '20",
    what: "drops a file when RAM is full, and writes it when its name comes again",
    params: PARAMS,
    offline: |_| false,
    build: |setup, params| {
        let known = Remembered::new(params.number(PARAMS, "ghosts") as usize);
        let order = Order::new(params, PARAMS);
        Ok(Box::new(OnPressure::new(setup, RejectFirst { order, known })))
    },
};

const PARAMS: &[Param] = &[ORDER, GHOSTS];

struct RejectFirst {
    order: Order,
    known: Remembered,
}

impl Judge for RejectFirst {
    type State = ();

    fn used(&mut self, _: Micros, _: &mut Held<()>, _: Use) -> bool {
        self.order == Order::Lru
    }

    fn judge(&mut self, now: Micros, shelf: &Shelf<()>) -> Option<(Slot, Verdict)> {
        let slot = shelf.idle(now).next()?;
        let known = self.known.has(&shelf[slot].name);
        Some((slot, if known { Verdict::Write } else { Verdict::Drop }))
    }

    fn explain(&self, now: Micros, shelf: &Shelf<()>, slot: Slot) -> Explanation {
        let known = self.known.has(&shelf[slot].name);
        let (intent, rule) = match known {
            true => (Intent::Write, "Its name is among those that left RAM before."),
            false => (Intent::Drop, "Its name is not among those that left RAM before."),
        };
        Explanation::of_held(now, &shelf[slot], intent, rule).below(
            "names remembered",
            u8::from(known).into(),
            1.0,
        )
    }

    fn leaves(&mut self, _: Micros, file: &Held<()>, _: Verdict) {
        self.known.add(&file.name);
    }

    fn check(&self, _: &Shelf<()>) {
        self.known.check();
    }
}
