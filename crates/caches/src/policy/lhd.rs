//! Least Hit Density: of a sample, the object with the fewest expected hits for each byte and unit
//! of time that it will still take leaves.
//!
//! Beckmann, Chen & Cidon, "LHD: Improving Cache Hit Rate by Maximizing Hit Density", NSDI '18. An
//! object's class is the age at its last two hits (§4.3, 16 classes); its age is the number of
//! accesses since its last one, in steps of a power of two. Hits and evictions are counted by class
//! and age. From time to time they become densities (§3.3): of the events of a class at an age or
//! later, the hits, divided by the time that passes until each. The counts then lose a tenth.
//! Points that the paper leaves open, and our choices:
//!
//! - Densities are renewed after every 2^17 accesses; the authors' code waits for 2^20, which is
//!   longer than many traces. Until the first time they are those of the authors' code, which make
//!   the policy one like GDSF: an object's class + 1 divided by its age + 1.
//! - There are 4,096 steps of age. One step is the least power of two of accesses by which the
//!   objects of a full cache, one access each, take a hundredth of the steps. It is chosen with the
//!   densities; the counts are then moved to the new steps.
//!   Until the first renewal a step is of 1,024 accesses, as in the authors' code.
//! - Of an age beyond the last step nothing is known: such an object leaves first.
//! - The sample is of 32 frames, drawn with replacement (§4.4). The authors' code also keeps some
//!   objects at random, and looks at the last eight that came in with a low density; ours does not.
//! - Of equal densities the first drawn leaves. Pages have size 1.

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
    name: "lhd",
    paper: "Beckmann, Chen & Cidon, \"LHD: Improving Cache Hit Rate by Maximizing Hit Density\", \
        NSDI '18",
    what: "of a sample, what has the fewest expected hits for its bytes and time leaves",
    goal: "hits, from the ages at which objects were hit or evicted before",
    time: "O(sample) an eviction; a hit counts",
    memory: "36 bytes a frame, and 2 MB",
    memory_bytes: |size| 36 * size.frames + (3 * 8 * CLASSES * AGES) as u64,
    when: "for objects of very different sizes and ages, where requests count and not bytes",
    params: PARAMS,
    kind: Kind::Online,
    slow: false,
    by_place: <Lhd<false> as Policy>::WANTS_ADDRESSES,
    policy: super::only::<Lhd<false>>,
    objects: Some(objects::runs::<Lhd<true>>()),
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| Box::new(model::Lhd::new(setup)),
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<Lhd<false>>,
};

const PARAMS: &[Param] = &[
    Param {
        name: "sample",
        what: "frames drawn for an eviction",
        kind: params::ParamKind::Number { default: 32.0, min: 1.0, max: 128.0 },
    },
    Param {
        name: "renew",
        what: "accesses between two renewals of the densities",
        kind: params::ParamKind::Number { default: 131072.0, min: 16.0, max: 1e9 },
    },
];

const CLASSES: usize = 16;
/// Tests renew often, which takes time for each.
const AGES: usize = if cfg!(test) { 16 } else { 4096 };
/// The length of a step until the first renewal, as in the authors' code.
const FIRST_SHIFT: u32 = 10;
/// The share that the counts keep when densities are renewed.
const KEPT: f64 = 0.9;

/// Counts and densities, by class and age.
struct Densities {
    hits: Vec<f64>,
    evictions: Vec<f64>,
    density: Vec<f64>,
    /// A step of age is 2 to the power of it.
    shift: u32,
}

/// Returns the class of an object whose last two ages at hits have this sum.
fn class_of(ages: u32) -> usize {
    match ages {
        0 => CLASSES - 1,
        // How often the age doubles until it is beyond the last.
        ages => (AGES as u32).div_ceil(ages).next_power_of_two().ilog2().min(CLASSES as u32 - 1)
            as usize,
    }
}

impl Densities {
    fn new() -> Self {
        let density = |n| ((n / AGES) + 1) as f64 / ((n % AGES) + 1) as f64;
        Self {
            hits: vec![0.0; CLASSES * AGES],
            evictions: vec![0.0; CLASSES * AGES],
            density: (0..CLASSES * AGES).map(density).collect(),
            shift: FIRST_SHIFT,
        }
    }

    /// Returns the age of an object that was accessed at `then`, in steps.
    #[inline(always)]
    fn age(&self, now: u64, then: u64) -> usize {
        (((now - then) >> self.shift) as usize).min(AGES - 1)
    }

    #[inline(always)]
    fn of(&self, class: usize, age: usize) -> f64 {
        if age == AGES - 1 { f64::NEG_INFINITY } else { self.density[class * AGES + age] }
    }

    /// Renews the densities, and the length of a step for a cache of this many objects.
    fn renew(&mut self, objects: usize) {
        for count in self.hits.iter_mut().chain(&mut self.evictions) {
            *count *= KEPT;
        }
        let step = (objects * 100 / AGES).max(1).next_power_of_two().ilog2();
        rescale(&mut self.hits, self.shift, step);
        rescale(&mut self.evictions, self.shift, step);
        self.shift = step;
        for class in 0..CLASSES {
            let (mut hits, mut events, mut lifetime) = (0.0, 0.0, 0.0);
            for n in (class * AGES..(class + 1) * AGES).rev() {
                hits += self.hits[n];
                events += self.hits[n] + self.evictions[n];
                lifetime += events;
                self.density[n] = if events > 1e-5 { hits / lifetime } else { 0.0 };
            }
        }
    }
}

/// Moves counts by age to steps of another length. Ages beyond all steps are in the last.
fn rescale(counts: &mut [f64], from: u32, to: u32) {
    if from == to {
        return;
    }
    for class in counts.chunks_mut(AGES) {
        let mut moved = vec![0.0; AGES];
        for (age, count) in class.iter().enumerate() {
            let at = (((age as u64) << from) >> to) as usize;
            // A longer step was as many shorter ones, evenly.
            let parts = 1 << from.saturating_sub(to);
            for part in 0..parts {
                moved[(at + part).min(AGES - 1)] += count / parts as f64;
            }
        }
        class.copy_from_slice(&moved);
    }
}

pub(super) struct Lhd<const SIZED: bool> {
    resident: Resident,
    /// By frame.
    entries: Vec<Entry>,
    densities: Densities,
    sample: usize,
    renew: u64,
    now: u64,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    accessed: u64,
    /// Ages at the last hit and at the one before it, in steps.
    ages: [u32; 2],
    size: u32,
}

impl<const SIZED: bool> Build for Lhd<SIZED> {
    fn build(setup: &Setup<'_>) -> Self {
        Self {
            resident: Resident::new(setup.slots()),
            entries: vec![Entry::default(); setup.slots() as usize],
            densities: Densities::new(),
            sample: setup.params.number(PARAMS, "sample") as usize,
            renew: setup.params.number(PARAMS, "renew") as u64,
            now: 0,
        }
    }
}

impl<const SIZED: bool> Lhd<SIZED> {
    fn accessed(&mut self) {
        self.now += 1;
        if self.now.is_multiple_of(self.renew) {
            self.densities.renew(self.resident.len());
        }
    }

    fn place(&self, frame: Frame) -> (usize, usize) {
        let Entry { accessed, ages: [last, before], .. } = self.entries[frame.0 as usize];
        (class_of(last + before), self.densities.age(self.now, accessed))
    }
}

impl<const SIZED: bool> Policy for Lhd<SIZED> {
    const OFFLINE: bool = false;

    fn insert(&mut self, frame: Frame, access: &Access) {
        self.accessed();
        let size = Weights::<SIZED>::incoming(access).max(1) as u32;
        // An object without a hit is in the class of the longest ages.
        self.entries[frame.0 as usize] = Entry { accessed: self.now, ages: [0, AGES as u32], size };
        self.resident.insert(frame);
    }

    fn hit(&mut self, frame: Frame, _: &Access) {
        let (class, age) = self.place(frame);
        self.densities.hits[class * AGES + age] += 1.0;
        self.accessed();
        let entry = &mut self.entries[frame.0 as usize];
        entry.ages = [age as u32, entry.ages[0]];
        entry.accessed = self.now;
    }

    fn evict(&mut self, _: Option<&Access>, _: &Frames, victims: &mut Victims) {
        let mut least: Option<(f64, Frame)> = None;
        for _ in 0..self.sample {
            let frame = self.resident.draw().expect("evict is never called on an empty cache");
            let (class, age) = self.place(frame);
            let density =
                self.densities.of(class, age) / f64::from(self.entries[frame.0 as usize].size);
            if least.is_none_or(|(least, _)| density < least) {
                least = Some((density, frame));
            }
        }
        let (_, frame) = least.expect("a sample holds a frame");
        let (class, age) = self.place(frame);
        self.densities.evictions[class * AGES + age] += 1.0;
        self.resident.remove(frame);
        victims.push(frame);
    }

    fn remove(&mut self, frame: Frame, _: &Frames) {
        self.resident.remove(frame);
    }

    fn check(&self, _: &Frames) {
        self.resident.check();
        assert!(self.densities.density.iter().all(|density| density.is_finite()));
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use super::{AGES, Densities, PARAMS, Setup, class_of};
    use crate::policy::naive::{Naive, NaiveWeights};
    use flashsift_events::{
        page::{Access, Page},
        structure::random,
    };
    use std::collections::BTreeSet;

    /// Objects in the order that draws index: a new one comes last, and the last one takes the
    /// place of one that leaves. With each the times of its last accesses, in steps of then.
    pub(super) struct Lhd {
        objects: Vec<(Page, u64, Vec<u32>)>,
        weights: NaiveWeights,
        densities: Densities,
        sample: usize,
        renew: u64,
        now: u64,
        state: u64,
    }

    impl Lhd {
        pub(super) fn new(setup: &Setup<'_>) -> Self {
            Self {
                objects: vec![],
                weights: NaiveWeights::new(setup),
                densities: Densities::new(),
                sample: setup.params.number(PARAMS, "sample") as usize,
                renew: setup.params.number(PARAMS, "renew") as u64,
                now: 0,
                state: 0,
            }
        }

        fn tick(&mut self) {
            self.now += 1;
            if self.now.is_multiple_of(self.renew) {
                self.densities.renew(self.objects.len());
            }
        }

        /// The index of the counts of an object.
        fn place(&self, at: usize) -> (usize, usize) {
            let (_, accessed, ages) = &self.objects[at];
            let class = class_of(ages.iter().rev().take(2).sum());
            (class, self.densities.age(self.now, *accessed))
        }

        fn position(&self, page: Page) -> usize {
            self.objects.iter().position(|(p, ..)| *p == page).unwrap()
        }
    }

    impl Naive for Lhd {
        fn insert(&mut self, access: &Access) {
            self.tick();
            self.weights.set(access);
            self.objects.push((access.page, self.now, vec![AGES as u32, 0]));
        }
        fn hit(&mut self, access: &Access) {
            let at = self.position(access.page);
            let (class, age) = self.place(at);
            self.densities.hits[class * AGES + age] += 1.0;
            self.tick();
            self.objects[at].1 = self.now;
            self.objects[at].2.push(age as u32);
        }
        fn evict(&mut self, _: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            let drawn: Vec<usize> = (0..self.sample)
                .map(|_| {
                    let n = random(&mut self.state) >> 32;
                    ((n * self.objects.len() as u64) >> 32) as usize
                })
                .collect();
            let density = |at: usize| {
                let (class, age) = self.place(at);
                let size = self.weights.of(self.objects[at].0).max(1);
                self.densities.of(class, age) / size as f64
            };
            let least = drawn.iter().map(|at| density(*at)).fold(f64::INFINITY, f64::min);
            let at = drawn.iter().copied().find(|at| density(*at) == least).unwrap();
            let (class, age) = self.place(at);
            self.densities.evictions[class * AGES + age] += 1.0;
            vec![self.objects.swap_remove(at).0]
        }
        fn remove(&mut self, page: Page) {
            let at = self.position(page);
            self.objects.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects of class 3 are always hit at age 2, those of class 4 evicted at age 5. After the
    /// renewal an object of class 3 expects a hit within two steps, and nothing after that.
    #[test]
    fn densities_are_hits_by_the_time_that_is_left() {
        let mut densities = Densities { shift: 0, ..Densities::new() };
        densities.hits[3 * AGES + 2] = 10.0;
        densities.evictions[4 * AGES + 5] = 10.0;
        // Of an empty cache, so that a step stays one access.
        densities.renew(0);
        // The last three ages that an object passes: 0, 1 and 2.
        assert_eq!([0, 1, 2, 3].map(|age| densities.of(3, age)), [1.0 / 3.0, 0.5, 1.0, 0.0]);
        assert_eq!(densities.of(4, 0), 0.0);
        assert_eq!(densities.of(3, AGES - 1), f64::NEG_INFINITY);
    }

    /// Twice the step halves each age; half of it spreads a count over both.
    #[test]
    fn counts_move_to_longer_and_shorter_steps() {
        let mut counts = vec![0.0; AGES];
        (counts[4], counts[5], counts[AGES - 1]) = (1.0, 2.0, 8.0);
        rescale(&mut counts, 0, 1);
        assert_eq!((counts[2], counts[AGES / 2 - 1]), (3.0, 8.0));
        rescale(&mut counts, 1, 0);
        assert_eq!((counts[4], counts[5]), (1.5, 1.5));
        assert_eq!(counts.iter().sum::<f64>(), 11.0);
    }

    #[test]
    fn classes_are_by_the_logarithm_of_the_ages_at_hits() {
        assert_eq!([0, 1, 2, 4, 16, 100].map(class_of), [15, 4, 3, 2, 0, 0]);
    }
}
