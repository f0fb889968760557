//! Admissions: rules by which a cache of objects turns some away, so that a miss writes nothing.
//! Flash caches live by them: an object that is requested once is not worth a write.
//!
//! The first three are those of libCacheSim; the last two those of Berger, Sitaraman &
//! Harchol-Balter, "AdaptSize: Orchestrating the Hot Object Memory Cache in a Content Delivery
//! Network", NSDI '17.

use flashsift_events::{
    page::Access,
    params::{self, Listed, Param, ParamKind, Params},
    structure::random,
};
use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};

/// The description of an admission.
pub struct AdmissionSpec {
    /// Name in `admit=`.
    pub name: &'static str,
    /// One-line description.
    pub what: &'static str,
    /// Parameters that it takes.
    pub params: &'static [Param],
    build: fn(&Params, u64) -> Box<dyn Admits>,
}

/// An admission with its parameters.
pub type Selection = params::Selection<AdmissionSpec>;

/// Every admission.
pub const ALL: &[AdmissionSpec] = &[
    AdmissionSpec {
        name: "bloom",
        what: "an object enters at its second miss",
        params: &[],
        build: |_, _| Box::new(Seen::default()),
    },
    AdmissionSpec {
        name: "prob",
        what: "an object enters with a probability",
        params: PROBABILITY,
        build: |params, _| {
            let share = params.number(PROBABILITY, "p");
            Box::new(Probably { below: (share * 2_f64.powi(53)) as u64, state: 0 })
        },
    },
    AdmissionSpec {
        name: "size",
        what: "an object enters if it is smaller than a limit",
        params: LIMIT,
        build: |params, _| Box::new(Smaller { limit: params.number(LIMIT, "below") as u64 }),
    },
    AdmissionSpec {
        name: "size-prob",
        what: "an object enters the more probably, the smaller it is: e^(-size/c) (AdaptSize's rule)",
        params: SCALE,
        build: |params, capacity| {
            let c = params.number(SCALE, "c");
            // A thousandth of the cache, where the user names no scale.
            let scale = if c > 0.0 { c } else { (capacity as f64 / 1000.0).max(1.0) };
            Box::new(SizeProbably { scale, state: 0 })
        },
    },
    AdmissionSpec {
        name: "adaptsize",
        what: "the same rule, with c from a model of the requests so far",
        params: WINDOW,
        build: |params, capacity| {
            let window = params.number(WINDOW, "window") as u64;
            Box::new(AdaptSize::new(capacity, window))
        },
    },
];

const PROBABILITY: &[Param] = &[Param {
    name: "p",
    what: "the probability",
    kind: ParamKind::Number { default: 0.5, min: 0.0, max: 1.0 },
}];
const LIMIT: &[Param] = &[Param {
    name: "below",
    what: "the limit, bytes",
    kind: ParamKind::Number { default: 1048576.0, min: 0.0, max: 1e18 },
}];
const SCALE: &[Param] = &[Param {
    name: "c",
    what: "the scale, bytes; 0: a thousandth of the cache",
    kind: ParamKind::Number { default: 0.0, min: 0.0, max: 1e18 },
}];

const WINDOW: &[Param] = &[Param {
    name: "window",
    what: "requests between two choices of c",
    kind: ParamKind::Number { default: 50000.0, min: 100.0, max: 1e9 },
}];

impl Listed for AdmissionSpec {
    const KIND: &'static str = "admission";
    const ALL: &'static [Self] = ALL;

    fn declared(&self) -> (&'static str, &'static [Param]) {
        (self.name, self.params)
    }
}

/// Decides whether a missing object enters.
trait Admits {
    /// Notes a request, hit or miss, before [`Admits::admits`].
    fn requested(&mut self, _: &Access) {}
    fn admits(&mut self, access: &Access) -> bool;
}

/// An admission of one cell.
pub(super) struct Admission(Box<dyn Admits>);

impl Admission {
    pub(super) fn new(chosen: &Selection, capacity: u64) -> Self {
        Self((chosen.spec.build)(&chosen.params, capacity))
    }

    pub(super) fn requested(&mut self, access: &Access) {
        self.0.requested(access);
    }

    pub(super) fn admits(&mut self, access: &Access) -> bool {
        self.0.admits(access)
    }
}

/// The objects missed so far. A real cache has a Bloom filter in its place; libCacheSim's `bloom`
/// has a set, too.
#[derive(Default)]
struct Seen(HashSet<u32, FixedState>);

impl Admits for Seen {
    fn admits(&mut self, access: &Access) -> bool {
        !self.0.insert(access.page.0)
    }
}

struct Probably {
    /// Of 2^53.
    below: u64,
    state: u64,
}

impl Admits for Probably {
    fn admits(&mut self, _: &Access) -> bool {
        random(&mut self.state) >> 11 < self.below
    }
}

struct Smaller {
    limit: u64,
}

impl Admits for Smaller {
    fn admits(&mut self, access: &Access) -> bool {
        u64::from(access.bytes) < self.limit
    }
}

struct SizeProbably {
    scale: f64,
    state: u64,
}

impl Admits for SizeProbably {
    fn admits(&mut self, access: &Access) -> bool {
        let uniform = (random(&mut self.state) >> 11) as f64 / 2_f64.powi(53);
        uniform < (-f64::from(access.bytes) / self.scale).exp()
    }
}

/// AdaptSize: after each window of requests, c is the one to which a model of an LRU cache gives
/// the greatest hit ratio of objects (§4, the Markov model, by Che's approximation). Points that
/// the paper leaves open, and our choices: counts of requests lose half with each window, and
/// objects that fall below one are forgotten; candidates for c are the powers of two up to the
/// largest object; until the first window ends every object enters.
struct AdaptSize {
    capacity: u64,
    window: u64,
    requests: u64,
    /// By object: requests, and bytes.
    seen: HashMap<u32, (f64, f64), FixedState>,
    rule: SizeProbably,
}

impl AdaptSize {
    fn new(capacity: u64, window: u64) -> Self {
        let rule = SizeProbably { scale: f64::INFINITY, state: 0 };
        Self { capacity, window, requests: 0, seen: HashMap::default(), rule }
    }

    fn choose(&mut self) {
        let largest = self.seen.values().map(|(_, bytes)| *bytes).fold(1.0, f64::max);
        let candidates = (0..=largest.log2().ceil() as i32 + 4).map(|power| 2_f64.powi(power));
        // In the order of objects, so that sums are the same in each run.
        let mut objects: Vec<_> = self.seen.iter().map(|(page, seen)| (*page, *seen)).collect();
        objects.sort_unstable_by_key(|(page, _)| *page);
        let objects: Vec<_> = objects.into_iter().map(|(_, seen)| seen).collect();
        let ratio = |scale: &f64| hit_ratio(&objects, *scale, self.capacity as f64);
        let best = candidates.max_by(|one, other| ratio(one).total_cmp(&ratio(other)));
        self.rule.scale = best.unwrap_or(f64::INFINITY);
        self.seen.retain(|_, (requests, _)| {
            *requests /= 2.0;
            *requests >= 1.0
        });
    }
}

/// Returns the hit ratio of objects, each (requests, bytes), that a cache of this capacity has by
/// the model if an object enters with probability e^(-bytes/scale).
fn hit_ratio(objects: &[(f64, f64)], scale: f64, capacity: f64) -> f64 {
    // The probability of an object to be in the cache, if one that enters stays for `time` after
    // its last request.
    let held = |&(requests, bytes): &(f64, f64), time: f64| {
        let enters = (-bytes / scale).exp();
        let grown = (requests * time).min(150.0).exp_m1();
        enters * grown / (1.0 + enters * grown)
    };
    let bytes = |time: f64| objects.iter().map(|object| held(object, time) * object.1).sum::<f64>();
    // Time is in windows. The bytes held grow with it.
    let (mut low, mut high) = (0.0, 1.0);
    while bytes(high) < capacity && high < 1e9 {
        high *= 2.0;
    }
    for _ in 0..30 {
        let middle = (low + high) / 2.0;
        if bytes(middle) < capacity { low = middle } else { high = middle }
    }
    let all: f64 = objects.iter().map(|(requests, _)| requests).sum();
    objects.iter().map(|object| object.0 * held(object, low)).sum::<f64>() / all.max(1.0)
}

impl Admits for AdaptSize {
    fn requested(&mut self, access: &Access) {
        let seen = self.seen.entry(access.page.0).or_insert((0.0, 0.0));
        *seen = (seen.0 + 1.0, f64::from(access.bytes));
        self.requests += 1;
        if self.requests.is_multiple_of(self.window) {
            self.choose();
        }
    }

    fn admits(&mut self, access: &Access) -> bool {
        self.rule.admits(access)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two hundred objects of 1 byte and twenty of 100, each requested ten times a window. A cache
    /// of 200 bytes that takes the small ones alone hits nearly 200/220 of the requests; with
    /// everything it can hold less than half of the bytes.
    #[test]
    fn the_model_keeps_large_objects_out() {
        let objects: Vec<_> = (0..220).map(|n| (10.0, if n < 200 { 1.0 } else { 100.0 })).collect();
        let (small, all) = (hit_ratio(&objects, 8.0, 200.0), hit_ratio(&objects, 1e9, 200.0));
        assert!(small > 0.75 && all < 0.3, "{small} {all}");
        let mut admission = AdaptSize::new(200, 2200);
        for round in 0..2200_u32 {
            let n = round % 220;
            let page = flashsift_events::page::Page(n);
            let bytes = if n < 200 { 1 } else { 100 };
            let access = Access { bytes, ..Access::new(page, flashsift_events::page::Op::Read) };
            admission.requested(&access);
        }
        assert!((1.0..64.0).contains(&admission.rule.scale), "{}", admission.rule.scale);
    }

    /// In a cache for everything, the model hits all.
    #[test]
    fn the_model_of_a_large_cache_hits_all() {
        let objects = vec![(5.0, 10.0); 50];
        assert!(hit_ratio(&objects, 1e9, 1e6) > 0.99);
        assert_eq!(hit_ratio(&[], 1.0, 10.0), 0.0);
    }
}
