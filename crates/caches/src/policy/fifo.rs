//! FIFO: the page that arrived first is evicted first; a hit changes nothing.

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
    name: "fifo",
    paper: "textbook",
    what: "first in, first out",
    goal: "nothing but its own cost",
    time: "O(1); a hit does nothing",
    memory: "8 bytes a frame",
    memory_bytes: |size| 8 * size.frames,
    when: "as the floor that any other order has to beat",
    params: &[],
    kind: Kind::Online,
    slow: false,
    by_place: <Fifo as Policy>::WANTS_ADDRESSES,
    policy: super::only::<Fifo>,
    objects: Some(objects::runs::<Fifo>()),
    #[cfg(any(test, feature = "naive"))]
    naive: |_| Box::new(model::Fifo(Vec::new())),
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<Fifo>,
};

pub(super) struct Fifo {
    queue: Lists<Frame, 1>,
}

impl Build for Fifo {
    fn build(setup: &Setup<'_>) -> Self {
        Self { queue: Lists::new(setup.slots()) }
    }
}

impl Policy for Fifo {
    const OFFLINE: bool = false;

    #[inline(always)]
    fn insert(&mut self, frame: Frame, _: &Access) {
        self.queue.push_newest(0, frame);
    }

    #[inline(always)]
    fn hit(&mut self, _: Frame, _: &Access) {}

    #[inline(always)]
    fn evict(&mut self, _: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        let frame = self.queue.oldest(0).expect("evict is never called on an empty cache");
        self.queue.remove(frame);
        frames.expect_victims(self.queue.oldest_two(0));
        victims.push(frame);
    }

    fn remove(&mut self, frame: Frame, _: &Frames) {
        self.queue.remove(frame);
    }

    fn check(&self, _: &Frames) {
        self.queue.check();
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use crate::policy::naive::Naive;
    use flashsift_events::page::{Access, Page};
    use std::collections::BTreeSet;

    /// Oldest first.
    pub(super) struct Fifo(pub(super) Vec<Page>);

    impl Naive for Fifo {
        fn insert(&mut self, access: &Access) {
            self.0.push(access.page);
        }
        fn hit(&mut self, _: &Access) {}
        fn evict(&mut self, _: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            vec![self.0.remove(0)]
        }
        fn remove(&mut self, page: Page) {
            self.0.retain(|p| *p != page);
        }
    }
}
