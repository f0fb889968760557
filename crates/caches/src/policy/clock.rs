//! Clock (second chance): a ring in order of arrival and a reference bit per frame.
//!
//! Corbató, "A paging experiment with the Multics system", 1968; SpatialClock (see `spatialclock`)
//! §4.1 for the form used here. The hand passes frames whose bit is set, clears it, and evicts the
//! first frame whose bit is clear. A new page is placed directly behind the hand, so the hand
//! reaches it last. The queue below is that ring cut open at the hand: passing a frame moves it to
//! the end. The paper does not say whether the bit of a new page is set (in a kernel the first
//! access sets it). Our choice is a clear bit; `insert_ref=1` sets it.

use super::{Build, Kind, Policy, PolicySpec, Setup};
use crate::{
    cache::{Frames, Victims},
    objects,
};
use flashsift_events::{
    page::{Access, Frame},
    params::{self, Param},
    structure::Lists,
};

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "clock",
    paper: "Corbató, \"A paging experiment with the Multics system\", 1968",
    what: "second chance in order of arrival",
    goal: "hits, by recency, with next to no work at a hit",
    time: "amortised O(1): a hit sets a bit, an eviction walks one lap of the clock at most",
    memory: "9 bytes a frame",
    memory_bytes: |size| 9 * size.frames,
    when: "where a hit must not move anything: the practical substitute for lru",
    params: PARAMS,
    kind: Kind::Online,
    slow: false,
    by_place: <Clock as Policy>::WANTS_ADDRESSES,
    policy: super::only::<Clock>,
    objects: Some(objects::runs::<Clock>()),
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| Box::new(model::Clock::new(insert_ref(setup))),
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<Clock>,
};

const PARAMS: &[Param] = &[INSERT_REF];

pub(super) const INSERT_REF: Param = Param {
    name: "insert_ref",
    what: "the reference bit of a page that comes in",
    kind: params::ParamKind::Number { default: 0.0, min: 0.0, max: 1.0 },
};

pub(super) fn insert_ref(setup: &Setup<'_>) -> bool {
    setup.params.number(PARAMS, "insert_ref") != 0.0
}

pub(super) struct Clock {
    /// The ring, starting at the hand.
    ring: Lists<Frame, 1>,
    referenced: Vec<bool>,
    insert_ref: bool,
}

impl Build for Clock {
    fn build(setup: &Setup<'_>) -> Self {
        let slots = setup.slots();
        Self {
            ring: Lists::new(slots),
            referenced: vec![false; slots as usize],
            insert_ref: insert_ref(setup),
        }
    }
}

impl Policy for Clock {
    const OFFLINE: bool = false;

    #[inline(always)]
    fn insert(&mut self, frame: Frame, _: &Access) {
        self.referenced[frame.0 as usize] = self.insert_ref;
        self.ring.push_newest(0, frame);
    }

    #[inline(always)]
    fn hit(&mut self, frame: Frame, _: &Access) {
        self.referenced[frame.0 as usize] = true;
    }

    #[inline(always)]
    fn evict(&mut self, _: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        // At most two laps: the first clears every bit that it passes.
        loop {
            let frame = self.ring.oldest(0).expect("evict is never called on an empty cache");
            if std::mem::take(&mut self.referenced[frame.0 as usize]) {
                self.ring.move_newest(0, frame);
            } else {
                self.ring.remove(frame);
                frames.expect_victims(self.ring.oldest_two(0));
                return victims.push(frame);
            }
        }
    }

    fn remove(&mut self, frame: Frame, _: &Frames) {
        self.ring.remove(frame);
    }

    fn check(&self, _: &Frames) {
        self.ring.check();
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use crate::policy::naive::Naive;
    use flashsift_events::page::{Access, Page};
    use std::collections::BTreeSet;

    /// A ring in order of arrival and a hand that moves over it; pages never move.
    pub(super) struct Clock {
        ring: Vec<(Page, bool)>,
        hand: usize,
        insert_ref: bool,
    }

    impl Clock {
        pub(super) fn new(insert_ref: bool) -> Self {
            Self { ring: Vec::new(), hand: 0, insert_ref }
        }
    }

    impl Naive for Clock {
        fn insert(&mut self, access: &Access) {
            self.ring.insert(self.hand, (access.page, self.insert_ref));
            self.hand += 1;
        }
        fn hit(&mut self, access: &Access) {
            self.ring.iter_mut().find(|(page, _)| *page == access.page).unwrap().1 = true;
        }
        fn evict(&mut self, _: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            loop {
                self.hand %= self.ring.len();
                if !self.ring[self.hand].1 {
                    return vec![self.ring.remove(self.hand).0];
                }
                self.ring[self.hand].1 = false;
                self.hand += 1;
            }
        }
        fn remove(&mut self, page: Page) {
            let at = self.ring.iter().position(|(p, _)| *p == page).unwrap();
            self.ring.remove(at);
            self.hand -= usize::from(at < self.hand);
        }
    }
}
