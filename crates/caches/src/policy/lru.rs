//! LRU: the page whose last access is longest ago is evicted.

use super::{Build, Kind, Policy, PolicySpec, Setup};
use crate::{
    cache::{Frames, Victims},
    objects,
};
use flashsift_events::{
    page::{Access, Frame},
    structure::Lists,
};

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "lru",
    paper: "textbook",
    what: "the least recently used page leaves",
    goal: "hits, by recency",
    time: "O(1); a hit moves a list node",
    memory: "8 bytes a frame",
    memory_bytes: |size| 8 * size.frames,
    when: "as the reference; on a loop longer than the cache it never hits",
    params: &[],
    kind: Kind::Online,
    slow: false,
    by_place: <Lru as Policy>::WANTS_ADDRESSES,
    policy: super::only::<Lru>,
    objects: Some(objects::runs::<Lru>()),
    #[cfg(any(test, feature = "naive"))]
    naive: |_| Box::new(model::Lru(Vec::new())),
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<Lru>,
};

pub(super) struct Lru {
    stack: Lists<Frame, 1>,
}

impl Build for Lru {
    fn build(setup: &Setup<'_>) -> Self {
        Self { stack: Lists::new(setup.slots()) }
    }
}

impl Policy for Lru {
    const OFFLINE: bool = false;

    #[inline(always)]
    fn insert(&mut self, frame: Frame, _: &Access) {
        self.stack.push_newest(0, frame);
    }

    #[inline(always)]
    fn hit(&mut self, frame: Frame, _: &Access) {
        self.stack.move_newest(0, frame);
    }

    #[inline(always)]
    fn evict(&mut self, _: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        let frame = self.stack.oldest(0).expect("evict is never called on an empty cache");
        self.stack.remove(frame);
        frames.expect_victims(self.stack.oldest_two(0));
        victims.push(frame);
    }

    fn remove(&mut self, frame: Frame, _: &Frames) {
        self.stack.remove(frame);
    }

    #[inline(always)]
    fn expect_hit(&self, frame: Frame) {
        self.stack.prefetch(frame);
    }

    #[inline(always)]
    fn expect_move(&self, frame: Frame) {
        self.stack.prefetch_neighbours(frame);
    }

    fn check(&self, _: &Frames) {
        self.stack.check();
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use crate::policy::naive::Naive;
    use flashsift_events::page::{Access, Page};
    use std::collections::BTreeSet;

    /// Least recent first.
    pub(super) struct Lru(pub(super) Vec<Page>);

    impl Naive for Lru {
        fn insert(&mut self, access: &Access) {
            self.0.push(access.page);
        }
        fn hit(&mut self, access: &Access) {
            self.remove(access.page);
            self.0.push(access.page);
        }
        fn evict(&mut self, _: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            vec![self.0.remove(0)]
        }
        fn remove(&mut self, page: Page) {
            self.0.retain(|p| *p != page);
        }
    }
}
