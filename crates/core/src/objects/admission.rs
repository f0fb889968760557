//! Admissions: rules by which a cache of objects turns some away, so that a miss writes nothing.
//! Flash caches live by them: an object that is requested once is not worth a write.
//!
//! Berger, Sitaraman & Harchol-Balter, "AdaptSize", NSDI '17, compares such rules; the first three
//! are those of libCacheSim.

use crate::{
    page::Access,
    params::{self, Listed, Param, ParamKind, Params},
    structure::random,
};
use foldhash::fast::FixedState;
use hashbrown::HashSet;

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

impl Listed for AdmissionSpec {
    const KIND: &'static str = "admission";
    const ALL: &'static [Self] = ALL;

    fn declared(&self) -> (&'static str, &'static [Param]) {
        (self.name, self.params)
    }
}

/// Decides whether a missing object enters.
trait Admits {
    fn admits(&mut self, access: &Access) -> bool;
}

/// An admission of one cell.
pub(super) struct Admission(Box<dyn Admits>);

impl Admission {
    pub(super) fn new(chosen: &Selection, capacity: u64) -> Self {
        Self((chosen.spec.build)(&chosen.params, capacity))
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
