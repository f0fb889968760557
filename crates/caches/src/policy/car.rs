//! CAR: ARC with clocks for its lists, so that a hit sets a bit and moves nothing.
//!
//! Bansal & Modha, "CAR: Clock with Adaptive Replacement", FAST '04. The names are those of its
//! pseudo-code: T1 holds pages seen once recently, T2 pages seen at least twice, B1 and B2 are the
//! ghosts of each, and `p` is the target for |T1|. A replacement examines the head of T1 if |T1| ≥
//! max(1, p), else the head of T2. A page with a clear bit is evicted and leaves a ghost; a set bit
//! is cleared and its page moves to the tail of T2. Points that the paper leaves open, and our
//! choices:
//!
//! - The target `p` and its steps |B2|/|B1| and |B1|/|B2| (at least 1) are real numbers, as in our
//!   ARC.
//! - The paper's cache is always full. After a removal the cache has a free frame: then nothing is
//!   replaced, but the directory is still trimmed to |T1|+|B1| ≤ c and |T1|+|T2|+|B1|+|B2| ≤ 2c
//!   before a page enters that is not a ghost.
//! - A removed page leaves no ghost, and a ghost that is removed is forgotten.
//! - A drain replaces as above, and from T1 when T2 is empty.
//!
//! libCacheSim has no CAR. Miss ratios of `cloudphysics` at 100, 1,000 and 10,000 objects are
//! 0.8560, 0.8247 and 0.6942; those of ARC are 0.8547, 0.8257 and 0.6974.

use super::{
    Build, Kind, Policy, PolicySpec, Setup,
    adaptive::{Adaptive, ONCE, TWICE},
};
use crate::cache::{Frames, Victims};
use flashsift_events::page::{Access, Frame, Page};

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "car",
    paper: "Bansal & Modha, \"CAR: Clock with Adaptive Replacement\", FAST '04",
    what: "ARC with clocks: a hit moves nothing",
    goal: "hits, like arc, with next to no work at a hit",
    time: "amortised O(1): a hit sets a bit, an eviction walks two laps of its clocks at most",
    memory: "10 bytes a frame, 4 bytes a page of the trace, 4 bytes a remembered page",
    memory_bytes: |size| 10 * size.frames + 12 * size.pages,
    when: "like arc, where a hit must not move anything",
    params: &[],
    kind: Kind::Online,
    slow: false,
    by_place: <Car as Policy>::WANTS_ADDRESSES,
    policy: super::only::<Car>,
    objects: None,
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| Box::new(model::Car::new(setup.frames as usize)),
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<Car>,
};

pub(super) struct Car {
    /// The directory. T1 and T2 are clocks: their lists begin at the hand.
    directory: Adaptive,
    referenced: Vec<bool>,
}

impl Build for Car {
    fn build(setup: &Setup<'_>) -> Self {
        Self { directory: Adaptive::new(setup), referenced: vec![false; setup.slots() as usize] }
    }
}

impl Policy for Car {
    const OFFLINE: bool = false;

    #[inline(always)]
    fn insert(&mut self, frame: Frame, access: &Access) {
        self.directory.adapt(access.page, |quotient| quotient);
        self.directory.insert(frame, access.page);
        self.referenced[frame.0 as usize] = false;
    }

    #[inline(always)]
    fn hit(&mut self, frame: Frame, _: &Access) {
        self.referenced[frame.0 as usize] = true;
    }

    #[inline(always)]
    fn evict(&mut self, _: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        let directory = &mut self.directory;
        // Each set bit of T1 is met once, as its page moves to T2; T2 is walked at most twice.
        loop {
            let from_t1 = f64::from(directory.len(ONCE)) >= directory.target().max(1.0);
            let clock = if from_t1 || directory.len(TWICE) == 0 { ONCE } else { TWICE };
            let frame = directory.oldest(clock).expect("evict is never called on an empty cache");
            if !std::mem::take(&mut self.referenced[frame.0 as usize]) {
                victims.push(directory.replace_oldest(clock, frames));
                return directory.expect_replacement(clock, frames);
            }
            directory.promote(frame);
        }
    }

    fn remove(&mut self, frame: Frame, _: &Frames) {
        self.directory.remove(frame);
    }

    fn forget(&mut self, page: Page) {
        self.directory.forget(page);
    }

    #[inline(always)]
    fn expect_miss(&self, page: Page) {
        self.directory.expect_miss(page);
    }

    fn check(&self, frames: &Frames) {
        self.directory.check(frames);
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use crate::policy::naive::Naive;
    use flashsift_events::page::{Access, Page};
    use std::collections::BTreeSet;

    /// The pseudo-code of the paper over vectors, heads first. The clocks hold pages and their
    /// bits.
    pub(super) struct Car {
        c: usize,
        p: f64,
        t1: Vec<(Page, bool)>,
        t2: Vec<(Page, bool)>,
        b1: Vec<Page>,
        b2: Vec<Page>,
    }

    impl Car {
        pub(super) fn new(c: usize) -> Self {
            Self { c, p: 0.0, t1: vec![], t2: vec![], b1: vec![], b2: vec![] }
        }
    }

    impl Naive for Car {
        fn insert(&mut self, access: &Access) {
            let page = access.page;
            let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
            if self.b1.contains(&page) {
                self.p = (self.p + f64::max(1.0, b2 / b1)).min(self.c as f64);
                self.b1.retain(|p| *p != page);
                self.t2.push((page, false));
            } else if self.b2.contains(&page) {
                self.p = (self.p - f64::max(1.0, b1 / b2)).max(0.0);
                self.b2.retain(|p| *p != page);
                self.t2.push((page, false));
            } else {
                if self.t1.len() + self.b1.len() == self.c {
                    self.b1.remove(0);
                } else if self.t1.len() + self.t2.len() + self.b1.len() + self.b2.len()
                    == 2 * self.c
                {
                    self.b2.remove(0);
                }
                self.t1.push((page, false));
            }
        }
        fn hit(&mut self, access: &Access) {
            let all = self.t1.iter_mut().chain(&mut self.t2);
            all.filter(|(page, _)| *page == access.page).for_each(|(_, bit)| *bit = true);
        }
        fn evict(&mut self, _: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            loop {
                if !self.t1.is_empty()
                    && (self.t1.len() as f64 >= self.p.max(1.0) || self.t2.is_empty())
                {
                    let (page, bit) = self.t1.remove(0);
                    if !bit {
                        self.b1.push(page);
                        return vec![page];
                    }
                    self.t2.push((page, false));
                } else {
                    let (page, bit) = self.t2.remove(0);
                    if !bit {
                        self.b2.push(page);
                        return vec![page];
                    }
                    self.t2.push((page, false));
                }
            }
        }
        fn remove(&mut self, page: Page) {
            self.t1.retain(|(p, _)| *p != page);
            self.t2.retain(|(p, _)| *p != page);
        }
        fn forget(&mut self, page: Page) {
            self.b1.retain(|p| *p != page);
            self.b2.retain(|p| *p != page);
        }
    }
}
