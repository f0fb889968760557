//! GreedyDual-Size with Frequency: the object with the least `L + frequency / size` leaves, and `L`
//! becomes that value.
//!
//! Cherkasova, "Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency Caching Policy",
//! HP Labs HPL-98-69R1, with cost 1 (the greatest hit ratio). Pages have size 1: the policy is then
//! LFU with aging. Points that the paper leaves open, and our choices:
//!
//! - Among equal priorities the least recently used leaves first.
//! - An object keeps the size that it entered with, and sizes below one byte count as one.
//! - The frequency starts at 1 when the object enters; evicted objects are forgotten.
//! - A removed page does not raise `L`. A drain evicts in the same order.

use super::{Build, Kind, Policy, PolicySpec, Setup};
use crate::{
    cache::{Frames, Victims},
    objects,
};
use flashsift_events::{
    page::{Access, Frame},
    structure::Weights,
};
use std::collections::BTreeSet;

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "gdsf",
    paper: "Cherkasova, \"Improving WWW Proxies Performance with Greedy-Dual-Size-Frequency Caching \
        Policy\", HP Labs HPL-98-69R1",
    what: "the object with the fewest hits a byte leaves, with aging",
    goal: "hits of objects: many small ones rather than few large ones",
    time: "O(log n)",
    memory: "72 bytes a frame",
    memory_bytes: |size| 72 * size.frames,
    when: "for objects of very different sizes, where requests count and not bytes",
    params: &[],
    kind: Kind::Online,
    slow: false,
    by_place: <Gdsf<false> as Policy>::WANTS_ADDRESSES,
    policy: super::only::<Gdsf<false>>,
    objects: Some(objects::runs::<Gdsf<true>>()),
    #[cfg(any(test, feature = "naive"))]
    naive: |_| Box::new(model::Gdsf::default()),
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<Gdsf<false>>,
};

/// A place in the order of eviction. The bits of positive numbers are ordered as the numbers are.
type Key = (u64, u64, Frame);

pub(super) struct Gdsf<const SIZED: bool> {
    order: BTreeSet<Key>,
    /// By frame.
    entries: Vec<Entry>,
    /// L.
    inflation: f64,
    accesses: u64,
}

#[derive(Clone, Copy, Default)]
struct Entry {
    priority_bits: u64,
    last_access: u64,
    frequency: u32,
    size: u32,
}

impl<const SIZED: bool> Build for Gdsf<SIZED> {
    fn build(setup: &Setup<'_>) -> Self {
        let entries = vec![Entry::default(); setup.slots() as usize];
        Self { order: BTreeSet::new(), entries, inflation: 0.0, accesses: 0 }
    }
}

impl<const SIZED: bool> Gdsf<SIZED> {
    fn key(&self, frame: Frame) -> Key {
        let Entry { priority_bits, last_access, .. } = self.entries[frame.0 as usize];
        (priority_bits, last_access, frame)
    }

    /// Gives an entry its place as of this access.
    fn rank(&mut self, frame: Frame) {
        self.accesses += 1;
        let entry = &mut self.entries[frame.0 as usize];
        let priority = self.inflation + f64::from(entry.frequency) / f64::from(entry.size);
        entry.priority_bits = priority.to_bits();
        entry.last_access = self.accesses;
        self.order.insert(self.key(frame));
    }
}

impl<const SIZED: bool> Policy for Gdsf<SIZED> {
    const OFFLINE: bool = false;

    fn insert(&mut self, frame: Frame, access: &Access) {
        // A page has weight 1.
        let size = Weights::<SIZED>::incoming(access).max(1) as u32;
        self.entries[frame.0 as usize] = Entry { frequency: 1, size, ..Entry::default() };
        self.rank(frame);
    }

    fn hit(&mut self, frame: Frame, _: &Access) {
        self.order.remove(&self.key(frame));
        let frequency = &mut self.entries[frame.0 as usize].frequency;
        *frequency = frequency.saturating_add(1);
        self.rank(frame);
    }

    fn evict(&mut self, _: Option<&Access>, _: &Frames, victims: &mut Victims) {
        let least = self.order.pop_first();
        let (bits, _, frame) = least.expect("evict is never called on an empty cache");
        self.inflation = f64::from_bits(bits);
        victims.push(frame);
    }

    fn remove(&mut self, frame: Frame, _: &Frames) {
        self.order.remove(&self.key(frame));
    }

    fn check(&self, frames: &Frames) {
        for key in &self.order {
            assert_eq!(*key, self.key(key.2), "an entry is where its frame says");
            assert_eq!(frames.frame(frames.page(key.2)), Some(key.2), "a frame is in use");
        }
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use crate::policy::naive::Naive;
    use flashsift_events::page::{Access, Page};
    use std::collections::BTreeSet;

    /// Objects in order of their last access.
    #[derive(Default)]
    pub(super) struct Gdsf {
        objects: Vec<Object>,
        inflation: f64,
    }

    struct Object {
        page: Page,
        hits: f64,
        size: f64,
        priority: f64,
    }

    impl Gdsf {
        fn ranked(&mut self, mut object: Object) {
            object.priority = self.inflation + object.hits / object.size;
            self.objects.push(object);
        }
    }

    impl Naive for Gdsf {
        fn insert(&mut self, access: &Access) {
            // Every page has the same size, so that only the unit of priorities differs.
            let size = f64::from(access.bytes.max(1));
            self.ranked(Object { page: access.page, hits: 1.0, size, priority: 0.0 });
        }
        fn hit(&mut self, access: &Access) {
            let at = self.objects.iter().position(|object| object.page == access.page).unwrap();
            let mut object = self.objects.remove(at);
            object.hits += 1.0;
            self.ranked(object);
        }
        fn evict(&mut self, _: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            let least = self.objects.iter().map(|object| object.priority).fold(f64::MAX, f64::min);
            let at = self.objects.iter().position(|object| object.priority == least).unwrap();
            self.inflation = least;
            vec![self.objects.remove(at).page]
        }
        fn remove(&mut self, page: Page) {
            self.objects.retain(|object| object.page != page);
        }
    }
}
