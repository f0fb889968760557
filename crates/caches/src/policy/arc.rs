//! ARC: two lists that balance recency and frequency, and the ghosts of pages evicted from each, by
//! which the balance adapts.
//!
//! Megiddo & Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST '03, Figure 4. The
//! names are the paper's: T1 and B1 hold pages seen once recently, T2 and B2 pages seen at least
//! twice, and `p` is the target for |T1|. Points that the paper leaves open, and our choices:
//!
//! - The paper does not say whether the target `p` and its steps |B2|/|B1| and |B1|/|B2| (1 or
//!   more) are whole numbers. Here they are real, as Figure 4 writes the quotient and as in
//!   libCacheSim. `steps=whole` rounds the quotient down. The choice matters: with `steps=whole`,
//!   the miss ratio of `cloudphysics` at 10,000 frames is 0.709 instead of 0.697. It is also the
//!   only difference to the simulator whose counts of `weboffice` the tests compare: at most 0.1 %,
//!   and none at any size with `steps=whole`.
//! - The paper's cache is always full. After a removal the cache has a free frame: then nothing is
//!   replaced, but the directory is still trimmed to |T1|+|B1| ≤ c and |T1|+|T2|+|B1|+|B2| ≤ 2c.
//! - A removed page leaves no ghost, and a ghost that is removed is forgotten.
//! - A drain replaces as for a page that is not a ghost.
//!
//! Objects with sizes ([`ArcOfObjects`]): all lists, c and p are in bytes. The target moves by the
//! quotient times the size of the incoming object, which for pages of size 1 is the paper's step.
//! An eviction trims the directory by one ghost where the object does not fit, as
//! libCacheSim does. libCacheSim moves the target by the quotient alone, in bytes: `steps=bytes`
//! does so, too, and is `real` for pages.

use super::{
    Build, Kind, Policy, PolicySpec, Setup,
    adaptive::{Adaptive, ONCE, TWICE},
};
use crate::{
    cache::{Frames, Victims},
    objects,
};
use flashsift_events::{
    page::{Access, Frame, Page},
    params::{self, Param},
    structure::{Ghosts, Lists, Weights},
};

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "arc",
    paper: "Megiddo & Modha, \"ARC: A Self-Tuning, Low Overhead Replacement Cache\", FAST '03",
    what: "recency and frequency, balanced by hits on evicted pages",
    goal: "hits: adapts the balance of recency and frequency to the load",
    time: "O(1); a hit moves a list node",
    memory: "9 bytes a frame, 4 bytes a page of the trace, 4 bytes a remembered page",
    memory_bytes: |size| 9 * size.frames + 12 * size.pages,
    when: "where the load changes between recency and frequency",
    params: PARAMS,
    kind: Kind::Online,
    slow: false,
    by_place: <Arc as Policy>::WANTS_ADDRESSES,
    policy: super::only::<Arc>,
    objects: Some(objects::runs::<ArcOfObjects>()),
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| match setup.bytes {
        None => Box::new(model::Arc::new(setup.frames as usize, steps_are_whole(setup))),
        Some(c) => Box::new(model::ArcOfObjects::new(c, steps(setup))),
    },
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<Arc>,
};

const PARAMS: &[Param] = &[Param {
    name: "steps",
    what: "the target moves by |B2|/|B1|, by that rounded down, or by that in bytes",
    kind: params::ParamKind::Word(&["real", "whole", "bytes"]),
}];

fn steps(setup: &Setup<'_>) -> &'static str {
    setup.params.word(PARAMS, "steps")
}

fn steps_are_whole(setup: &Setup<'_>) -> bool {
    steps(setup) == "whole"
}

pub(super) struct Arc {
    directory: Adaptive,
    steps_are_whole: bool,
    /// Whether the target and the directory are prepared for the incoming page.
    prepared: bool,
}

impl Build for Arc {
    fn build(setup: &Setup<'_>) -> Self {
        Self {
            directory: Adaptive::new(setup),
            steps_are_whole: steps_are_whole(setup),
            prepared: false,
        }
    }
}

impl Arc {
    /// Adapts to the incoming page. Returns the queue that holds its ghost.
    #[inline(always)]
    fn prepare(&mut self, page: Page) -> Option<usize> {
        self.prepared = true;
        let whole = self.steps_are_whole;
        self.directory.adapt(page, |quotient| if whole { quotient.floor() } else { quotient })
    }
}

impl Policy for Arc {
    const OFFLINE: bool = false;

    #[inline]
    fn insert(&mut self, frame: Frame, access: &Access) {
        if !self.prepared {
            self.prepare(access.page);
        }
        self.prepared = false;
        self.directory.insert(frame, access.page);
    }

    #[inline(always)]
    fn hit(&mut self, frame: Frame, _: &Access) {
        self.directory.promote(frame);
    }

    #[inline]
    fn evict(&mut self, incoming: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        let ghost = incoming.and_then(|access| self.prepare(access.page));
        let directory = &mut self.directory;
        if incoming.is_some() && ghost.is_none() && directory.len(ONCE) == directory.capacity() {
            return victims.push(directory.take_oldest(ONCE));
        }
        let (t1, p) = (f64::from(directory.len(ONCE)), directory.target());
        let from_t1 = t1 > 0.0 && (t1 > p || (ghost == Some(TWICE) && t1 == p));
        let list = if from_t1 || directory.len(TWICE) == 0 { ONCE } else { TWICE };
        victims.push(directory.replace_oldest(list, frames));
        directory.expect_replacement(list, frames);
    }

    fn remove(&mut self, frame: Frame, _: &Frames) {
        self.directory.remove(frame);
    }

    fn forget(&mut self, page: Page) {
        self.directory.forget(page);
    }

    #[inline(always)]
    fn expect_hit(&self, frame: Frame) {
        self.directory.expect_hit(frame);
    }

    #[inline(always)]
    fn expect_move(&self, frame: Frame) {
        self.directory.expect_move(frame);
    }

    #[inline(always)]
    fn expect_miss(&self, page: Page) {
        self.directory.expect_miss(page);
    }

    fn check(&self, frames: &Frames) {
        self.directory.check(frames);
    }
}

/// ARC of objects with sizes.
struct ArcOfObjects {
    resident: Lists<Frame, 2>,
    weights: Weights<true>,
    twice: Vec<bool>,
    /// B1 and B2.
    ghosts: Ghosts<2>,
    /// Bytes of T1 and T2, and of B1 and B2.
    held: [u64; 2],
    ghosts_held: [u64; 2],
    capacity: u64,
    p: f64,
    steps: &'static str,
    /// The incoming object, and the queue of its ghost, once the target has adapted to it.
    incoming: Option<(Page, Option<usize>)>,
}

impl Build for ArcOfObjects {
    fn build(setup: &Setup<'_>) -> Self {
        Self {
            resident: Lists::new(setup.slots()),
            weights: Weights::new(setup.pages),
            twice: vec![false; setup.slots() as usize],
            ghosts: Ghosts::new(setup.pages),
            held: [0; 2],
            ghosts_held: [0; 2],
            capacity: setup.capacity(),
            p: 0.0,
            steps: steps(setup),
            incoming: None,
        }
    }
}

/// Returns by how much the target moves for an object of this size.
fn step(steps: &str, other: u64, own: u64, bytes: u32) -> f64 {
    let quotient = other as f64 / own as f64;
    match steps {
        "whole" => quotient.floor().max(1.0) * f64::from(bytes),
        "bytes" => quotient.max(1.0),
        _ => quotient.max(1.0) * f64::from(bytes),
    }
}

impl ArcOfObjects {
    /// Adapts to the incoming object, once. Its ghost leaves the directory at once, so that the
    /// bytes are free for others.
    fn adapt(&mut self, access: &Access) -> Option<usize> {
        if let Some((page, ghost)) = self.incoming
            && page == access.page
        {
            return ghost;
        }
        let ghost = self.ghosts.queue_of(access.page);
        let [b1, b2] = self.ghosts_held;
        match ghost {
            Some(ONCE) => {
                let by = step(self.steps, b2, b1, access.bytes);
                self.p = (self.p + by).min(self.capacity as f64);
            }
            Some(_) => self.p = (self.p - step(self.steps, b1, b2, access.bytes)).max(0.0),
            None => {}
        }
        self.drop_ghost(access.page);
        self.incoming = Some((access.page, ghost));
        ghost
    }

    fn drop_ghost(&mut self, page: Page) {
        if let Some(queue) = self.ghosts.queue_of(page) {
            self.ghosts_held[queue] -= self.weights.of(|| page);
            self.ghosts.remove(page);
        }
    }

    fn drop_oldest_ghost(&mut self, queue: usize) {
        if let Some(page) = self.ghosts.pop(queue) {
            self.ghosts_held[queue] -= self.weights.of(|| page);
        }
    }

    fn take_oldest(&mut self, list: usize, frames: &Frames) -> Frame {
        let frame = self.resident.oldest(list).expect("evict is never called on an empty cache");
        self.remove(frame, frames);
        frame
    }

    /// The paper's REPLACE.
    fn replace(&mut self, ghost: Option<usize>, frames: &Frames) -> Frame {
        let t1 = self.held[ONCE] as f64;
        let over = t1 > self.p || (ghost == Some(TWICE) && t1 == self.p);
        // Objects of no bytes weigh nothing, and yet are there.
        let has = |list| self.resident.oldest(list).is_some();
        let list = if has(ONCE) && (over || !has(TWICE)) { ONCE } else { TWICE };
        let frame = self.take_oldest(list, frames);
        let page = frames.page(frame);
        self.ghosts.push(list, page);
        self.ghosts_held[list] += self.weights.of(|| page);
        frame
    }
}

impl Policy for ArcOfObjects {
    const OFFLINE: bool = false;

    fn insert(&mut self, frame: Frame, access: &Access) {
        let list = if self.adapt(access).is_some() { TWICE } else { ONCE };
        self.incoming = None;
        self.weights.set(access);
        self.resident.push_newest(list, frame);
        self.held[list] += u64::from(access.bytes);
        self.twice[frame.0 as usize] = list == TWICE;
    }

    fn hit(&mut self, frame: Frame, access: &Access) {
        if !std::mem::replace(&mut self.twice[frame.0 as usize], true) {
            let bytes = self.weights.of(|| access.page);
            self.held[ONCE] -= bytes;
            self.held[TWICE] += bytes;
        }
        self.resident.move_newest(TWICE, frame);
    }

    fn evict(&mut self, incoming: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        let Some(access) = incoming else { return victims.push(self.replace(None, frames)) };
        let ghost = self.adapt(access);
        if ghost.is_some() {
            return victims.push(self.replace(ghost, frames));
        }
        let ([t1, t2], [b1, b2]) = (self.held, self.ghosts_held);
        if t1 + b1 + u64::from(access.bytes) > self.capacity {
            if self.ghosts.is_empty(ONCE) && self.resident.oldest(ONCE).is_some() {
                return victims.push(self.take_oldest(ONCE, frames));
            }
            self.drop_oldest_ghost(ONCE);
        } else if t1 + t2 + b1 + b2 >= 2 * self.capacity {
            self.drop_oldest_ghost(TWICE);
        }
        victims.push(self.replace(None, frames));
    }

    fn remove(&mut self, frame: Frame, frames: &Frames) {
        self.resident.remove(frame);
        let list = usize::from(self.twice[frame.0 as usize]);
        self.held[list] -= self.weights.of(|| frames.page(frame));
    }

    fn forget(&mut self, page: Page) {
        self.drop_ghost(page);
    }

    #[inline(always)]
    fn expect_hit(&self, frame: Frame) {
        self.resident.prefetch(frame);
    }

    #[inline(always)]
    fn expect_miss(&self, page: Page) {
        self.ghosts.prefetch(page);
    }

    fn check(&self, frames: &Frames) {
        self.resident.check();
        self.ghosts.check();
        for list in [ONCE, TWICE] {
            let bytes = |frame| self.weights.of(|| frames.page(frame));
            assert_eq!(self.resident.iter(list).map(bytes).sum::<u64>(), self.held[list]);
            let ghosts = self.ghosts.iter(list).map(|page| self.weights.of(|| page));
            assert_eq!(ghosts.sum::<u64>(), self.ghosts_held[list]);
            assert!(self.ghosts.iter(list).all(|page| frames.frame(page).is_none()));
        }
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use crate::policy::naive::Naive;
    use flashsift_events::page::{Access, Page};
    use std::collections::BTreeSet;

    /// Figure 4 of the paper over vectors, oldest first.
    pub(super) struct Arc {
        c: usize,
        whole: bool,
        p: f64,
        t1: Vec<Page>,
        t2: Vec<Page>,
        b1: Vec<Page>,
        b2: Vec<Page>,
        /// The page that `request` has processed and `insert` has not.
        seen: Option<Page>,
    }

    fn take(list: &mut Vec<Page>, page: Page) -> bool {
        let before = list.len();
        list.retain(|p| *p != page);
        list.len() < before
    }

    impl Arc {
        pub(super) fn new(c: usize, whole: bool) -> Self {
            Self { c, whole, p: 0.0, t1: vec![], t2: vec![], b1: vec![], b2: vec![], seen: None }
        }

        fn delta(&self, other: usize, own: usize) -> f64 {
            let delta = if self.whole { (other / own) as f64 } else { other as f64 / own as f64 };
            delta.max(1.0)
        }

        fn replace(&mut self, in_b2: bool) -> Page {
            let t1 = self.t1.len() as f64;
            if !self.t1.is_empty() && (t1 > self.p || (in_b2 && t1 == self.p)) || self.t2.is_empty()
            {
                let page = self.t1.remove(0);
                self.b1.push(page);
                page
            } else {
                let page = self.t2.remove(0);
                self.b2.push(page);
                page
            }
        }

        /// Cases II, III and IV, except the move of the page itself.
        fn request(&mut self, page: Page, full: bool) -> Option<Page> {
            self.seen = Some(page);
            if self.b1.contains(&page) {
                self.p = (self.c as f64).min(self.p + self.delta(self.b2.len(), self.b1.len()));
                return full.then(|| self.replace(false));
            }
            if self.b2.contains(&page) {
                self.p = (self.p - self.delta(self.b1.len(), self.b2.len())).max(0.0);
                return full.then(|| self.replace(true));
            }
            if self.t1.len() + self.b1.len() == self.c {
                if self.t1.len() == self.c {
                    return Some(self.t1.remove(0));
                }
                self.b1.remove(0);
            } else if self.t1.len() + self.t2.len() + self.b1.len() + self.b2.len() == 2 * self.c {
                self.b2.remove(0);
            }
            full.then(|| self.replace(false))
        }
    }

    /// The same of objects, each with its bytes.
    pub(super) struct ArcOfObjects {
        c: u64,
        steps: &'static str,
        p: f64,
        /// T1, T2, B1 and B2.
        lists: [Vec<(Page, u32)>; 4],
        seen: Option<(Page, usize)>,
    }

    const T1: usize = 0;
    const T2: usize = 1;
    const B1: usize = 2;
    const B2: usize = 3;
    const NOWHERE: usize = 4;

    impl ArcOfObjects {
        pub(super) fn new(c: u64, steps: &'static str) -> Self {
            Self { c, steps, p: 0.0, lists: Default::default(), seen: None }
        }

        fn bytes(&self, list: usize) -> u64 {
            self.lists[list].iter().map(|(_, bytes)| u64::from(*bytes)).sum()
        }

        fn list_of(&self, page: Page) -> usize {
            let holds = |list: &Vec<(Page, u32)>| list.iter().any(|(p, _)| *p == page);
            self.lists.iter().position(holds).unwrap_or(NOWHERE)
        }

        fn take(&mut self, page: Page) -> Option<(Page, u32)> {
            let list = self.list_of(page);
            let list = self.lists.get_mut(list)?;
            let at = list.iter().position(|(p, _)| *p == page)?;
            Some(list.remove(at))
        }

        fn first_seen(&mut self, access: &Access) -> usize {
            if let Some((page, list)) = self.seen
                && page == access.page
            {
                return list;
            }
            let list = self.list_of(access.page);
            let by = |own: usize, other: usize| {
                super::step(self.steps, self.bytes(other), self.bytes(own), access.bytes)
            };
            match list {
                B1 => self.p = (self.p + by(B1, B2)).min(self.c as f64),
                B2 => self.p = (self.p - by(B2, B1)).max(0.0),
                _ => {}
            }
            self.take(access.page);
            self.seen = Some((access.page, list));
            list
        }

        fn replace(&mut self, in_b2: bool) -> Page {
            let t1 = self.bytes(T1) as f64;
            let over = t1 > self.p || (in_b2 && t1 == self.p);
            let list = if !self.lists[T1].is_empty() && over || self.lists[T2].is_empty() {
                T1
            } else {
                T2
            };
            let object = self.lists[list].remove(0);
            self.lists[list + 2].push(object);
            object.0
        }
    }

    impl Naive for ArcOfObjects {
        fn insert(&mut self, access: &Access) {
            let list = self.first_seen(access);
            self.seen = None;
            let to = if list == B1 || list == B2 { T2 } else { T1 };
            self.lists[to].push((access.page, access.bytes));
        }
        fn hit(&mut self, access: &Access) {
            let object = self.take(access.page).unwrap();
            self.lists[T2].push(object);
        }
        fn evict(&mut self, incoming: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            let Some(access) = incoming else { return vec![self.replace(false)] };
            let list = self.first_seen(access);
            if list == B1 || list == B2 {
                return vec![self.replace(list == B2)];
            }
            if self.bytes(T1) + self.bytes(B1) + u64::from(access.bytes) > self.c {
                if self.lists[B1].is_empty() && !self.lists[T1].is_empty() {
                    return vec![self.lists[T1].remove(0).0];
                }
                if !self.lists[B1].is_empty() {
                    self.lists[B1].remove(0);
                }
            } else if (0..4).map(|list| self.bytes(list)).sum::<u64>() >= 2 * self.c
                && !self.lists[B2].is_empty()
            {
                self.lists[B2].remove(0);
            }
            vec![self.replace(false)]
        }
        fn remove(&mut self, page: Page) {
            self.take(page);
        }
        fn forget(&mut self, page: Page) {
            self.take(page);
        }
    }

    impl Naive for Arc {
        fn insert(&mut self, access: &Access) {
            if self.seen != Some(access.page) {
                self.request(access.page, false);
            }
            self.seen = None;
            if take(&mut self.b1, access.page) || take(&mut self.b2, access.page) {
                self.t2.push(access.page);
            } else {
                self.t1.push(access.page);
            }
        }
        fn hit(&mut self, access: &Access) {
            self.remove(access.page);
            self.t2.push(access.page);
        }
        fn evict(&mut self, incoming: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            match incoming {
                Some(access) => vec![self.request(access.page, true).unwrap()],
                None => vec![self.replace(false)],
            }
        }
        fn remove(&mut self, page: Page) {
            take(&mut self.t1, page);
            take(&mut self.t2, page);
        }
        fn forget(&mut self, page: Page) {
            take(&mut self.b1, page);
            take(&mut self.b2, page);
        }
    }
}
