//! Hyperbolic caching: of a sample, the object with the fewest accesses for each byte and unit of
//! time in the cache leaves.
//!
//! Blankstein, Sen & Freedman, "Hyperbolic Caching: Flexible Caching for Web Applications", ATC
//! '17. The priority is `accesses / (time in the cache · size)`, by §2.2 and §3.1 with cost 1; time
//! counts accesses of the cache. Pages have size 1. Points that the paper leaves open, and our
//! choices:
//!
//! - The sample is drawn with replacement, of 64 frames as in the paper's evaluation. The draws
//!   are the same in each run.
//! - Of equal priorities the first drawn leaves. An object that came in at this very access has an
//!   age of one access.
//! - `size=ignored` leaves the size out, as libCacheSim does.

use super::{Build, Kind, Policy, PolicySpec, Setup};
use crate::{
    cache::{Frames, Victims},
    objects,
};
use flashsift_events::{
    page::{Access, Frame},
    params::{self, Param},
    structure::{Resident, Weights},
};

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "hyperbolic",
    paper: "Blankstein, Sen & Freedman, \"Hyperbolic Caching: Flexible Caching for Web \
        Applications\", ATC '17",
    what: "of a sample, what was used least for its age leaves",
    goal: "hits, by frequency since an object came in",
    time: "O(sample) an eviction; a hit counts",
    memory: "24 bytes a frame",
    memory_bytes: |size| 24 * size.frames,
    when: "where objects are popular for a while: frequency decays with age",
    params: PARAMS,
    kind: Kind::Online,
    slow: false,
    by_place: <Hyperbolic<false> as Policy>::WANTS_ADDRESSES,
    policy: super::only::<Hyperbolic<false>>,
    objects: Some(objects::runs::<Hyperbolic<true>>()),
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| Box::new(model::Hyperbolic::new(sample(setup), divides(setup))),
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<Hyperbolic<false>>,
};

const PARAMS: &[Param] = &[
    Param {
        name: "sample",
        what: "frames drawn for an eviction",
        kind: params::ParamKind::Number { default: 64.0, min: 1.0, max: 128.0 },
    },
    Param {
        name: "size",
        what: "the priority is divided by an object's size, or not",
        kind: params::ParamKind::Word(&["divides", "ignored"]),
    },
];

fn sample(setup: &Setup<'_>) -> usize {
    setup.params.number(PARAMS, "sample") as usize
}

fn divides(setup: &Setup<'_>) -> bool {
    setup.params.word(PARAMS, "size") == "divides"
}

pub(super) struct Hyperbolic<const SIZED: bool> {
    resident: Resident,
    /// By frame.
    entries: Vec<Entry>,
    sample: usize,
    divides: bool,
    /// Accesses so far.
    now: u64,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    entered: u64,
    accesses: u32,
    size: u32,
}

impl<const SIZED: bool> Build for Hyperbolic<SIZED> {
    fn build(setup: &Setup<'_>) -> Self {
        Self {
            resident: Resident::new(setup.slots()),
            entries: vec![Entry::default(); setup.slots() as usize],
            sample: sample(setup),
            divides: divides(setup),
            now: 0,
        }
    }
}

impl<const SIZED: bool> Policy for Hyperbolic<SIZED> {
    const OFFLINE: bool = false;

    fn insert(&mut self, frame: Frame, access: &Access) {
        self.now += 1;
        let size = if self.divides { Weights::<SIZED>::incoming(access).max(1) as u32 } else { 1 };
        self.entries[frame.0 as usize] = Entry { entered: self.now, accesses: 1, size };
        self.resident.insert(frame);
    }

    #[inline(always)]
    fn hit(&mut self, frame: Frame, _: &Access) {
        self.now += 1;
        let accesses = &mut self.entries[frame.0 as usize].accesses;
        *accesses = accesses.saturating_add(1);
    }

    fn evict(&mut self, _: Option<&Access>, _: &Frames, victims: &mut Victims) {
        let mut least: Option<(f64, Frame)> = None;
        for _ in 0..self.sample {
            let frame = self.resident.draw().expect("evict is never called on an empty cache");
            let Entry { entered, accesses, size } = self.entries[frame.0 as usize];
            let age = (self.now + 1 - entered) as f64;
            let priority = f64::from(accesses) / (age * f64::from(size));
            if least.is_none_or(|(least, _)| priority < least) {
                least = Some((priority, frame));
            }
        }
        let (_, frame) = least.expect("a sample holds a frame");
        self.resident.remove(frame);
        victims.push(frame);
    }

    fn remove(&mut self, frame: Frame, _: &Frames) {
        self.resident.remove(frame);
    }

    fn check(&self, _: &Frames) {
        self.resident.check();
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use crate::policy::naive::Naive;
    use flashsift_events::{
        page::{Access, Page},
        structure::random,
    };
    use std::collections::BTreeSet;

    /// Objects in the order that draws index: a new one comes last, and the last one takes the
    /// place of one that leaves. With each its entry's time, accesses and size.
    pub(super) struct Hyperbolic {
        objects: Vec<(Page, u64, u64, u32)>,
        sample: usize,
        divides: bool,
        now: u64,
        state: u64,
    }

    impl Hyperbolic {
        pub(super) fn new(sample: usize, divides: bool) -> Self {
            Self { objects: vec![], sample, divides, now: 0, state: 0 }
        }

        fn position(&self, page: Page) -> usize {
            self.objects.iter().position(|(p, ..)| *p == page).unwrap()
        }
    }

    impl Naive for Hyperbolic {
        fn insert(&mut self, access: &Access) {
            self.now += 1;
            let size = if self.divides { access.bytes.max(1) } else { 1 };
            self.objects.push((access.page, self.now, 1, size));
        }
        fn hit(&mut self, access: &Access) {
            self.now += 1;
            let at = self.position(access.page);
            self.objects[at].2 += 1;
        }
        fn evict(&mut self, _: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            let drawn: Vec<usize> = (0..self.sample)
                .map(|_| {
                    let n = random(&mut self.state) >> 32;
                    ((n * self.objects.len() as u64) >> 32) as usize
                })
                .collect();
            let priority = |at: usize| {
                let (_, entered, accesses, size) = self.objects[at];
                accesses as f64 / ((self.now + 1 - entered) as f64 * f64::from(size))
            };
            let least = drawn.iter().map(|at| priority(*at)).fold(f64::MAX, f64::min);
            let at = drawn.into_iter().find(|at| priority(*at) == least).unwrap();
            vec![self.objects.swap_remove(at).0]
        }
        fn remove(&mut self, page: Page) {
            let at = self.position(page);
            self.objects.swap_remove(at);
        }
    }
}
