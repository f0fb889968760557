//! SIEVE: a FIFO queue with one bit per page and a hand that keeps its place.
//!
//! Zhang et al., "SIEVE is Simpler than LRU", NSDI '24, Algorithm 1. The hand walks from the oldest
//! page towards the newest, clears set bits and evicts the first page whose bit is clear; pages
//! keep their places. New pages enter at the newest end. The paper does not define invalidation:
//! here, if the page at the hand is removed, the hand moves to the next newer page.

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
    name: "sieve",
    paper: "Zhang, Yang, Yue, Vigfusson & Rashmi, \"SIEVE is Simpler than LRU: an Efficient Turn-Key \
        Eviction Algorithm for Web Caches\", NSDI '24",
    what: "a FIFO queue with a hand that evicts pages not used again",
    goal: "hits: pages used once leave soon",
    time: "amortised O(1): a hit sets a bit, an eviction walks one lap of the queue at most",
    memory: "9 bytes a frame",
    memory_bytes: |size| 9 * size.frames,
    when: "like s3fifo, and simpler; scans displace useful pages",
    params: &[],
    kind: Kind::Online,
    slow: false,
    by_place: <Sieve as Policy>::WANTS_ADDRESSES,
    policy: super::only::<Sieve>,
    objects: Some(objects::runs::<Sieve>()),
    #[cfg(any(test, feature = "naive"))]
    naive: |_| Box::new(model::Sieve::default()),
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<Sieve>,
};

pub(super) struct Sieve {
    queue: Lists<Frame, 1>,
    visited: Vec<bool>,
    /// Next frame to examine, always in `queue`; `None` restarts at the oldest.
    hand: Option<Frame>,
}

impl Build for Sieve {
    fn build(setup: &Setup<'_>) -> Self {
        let slots = setup.slots();
        Self { queue: Lists::new(slots), visited: vec![false; slots as usize], hand: None }
    }
}

impl Policy for Sieve {
    const OFFLINE: bool = false;

    #[inline(always)]
    fn insert(&mut self, frame: Frame, _: &Access) {
        self.visited[frame.0 as usize] = false;
        self.queue.push_newest(0, frame);
    }

    #[inline(always)]
    fn hit(&mut self, frame: Frame, _: &Access) {
        self.visited[frame.0 as usize] = true;
    }

    #[inline(always)]
    fn evict(&mut self, _: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        // At most two laps: the first clears every bit that it passes.
        loop {
            let frame = self
                .hand
                .or(self.queue.oldest(0))
                .expect("evict is never called on an empty cache");
            self.hand = self.queue.newer(frame);
            if !std::mem::take(&mut self.visited[frame.0 as usize]) {
                self.queue.remove(frame);
                frames.expect_victims(self.queue.with_newer(self.hand));
                return victims.push(frame);
            }
        }
    }

    fn remove(&mut self, frame: Frame, _: &Frames) {
        if self.hand == Some(frame) {
            self.hand = self.queue.newer(frame);
        }
        self.queue.remove(frame);
    }

    fn check(&self, _: &Frames) {
        self.queue.check();
        assert!(self.hand.is_none_or(|hand| self.queue.contains(hand)), "the hand is in the queue");
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use crate::policy::naive::Naive;
    use flashsift_events::page::{Access, Page};
    use std::collections::BTreeSet;

    /// Pages, the oldest first. The hand is an index; an index past the end stands for the oldest
    /// page.
    #[derive(Default)]
    pub(super) struct Sieve {
        queue: Vec<(Page, bool)>,
        hand: usize,
        /// Whether the hand is past the newest page: it then restarts at the oldest, even if a page
        /// arrives first.
        at_end: bool,
    }

    impl Sieve {
        fn settle(&mut self) {
            self.at_end |= self.hand >= self.queue.len();
            if self.at_end {
                self.hand = 0;
            }
        }
    }

    impl Naive for Sieve {
        fn insert(&mut self, access: &Access) {
            self.queue.push((access.page, false));
        }
        fn hit(&mut self, access: &Access) {
            self.queue.iter_mut().find(|(page, _)| *page == access.page).unwrap().1 = true;
        }
        fn evict(&mut self, _: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            self.at_end = false;
            loop {
                if self.hand >= self.queue.len() {
                    self.hand = 0;
                }
                if !self.queue[self.hand].1 {
                    let page = self.queue.remove(self.hand).0;
                    self.settle();
                    return vec![page];
                }
                self.queue[self.hand].1 = false;
                self.hand += 1;
            }
        }
        fn remove(&mut self, page: Page) {
            let at = self.queue.iter().position(|(p, _)| *p == page).unwrap();
            self.queue.remove(at);
            if !self.at_end && at < self.hand {
                self.hand -= 1;
            }
            self.settle();
        }
    }
}
