//! LIRS: pages that are used again soon stay, however recently others were used; the rest pass
//! through a queue of 1 % of the cache.
//!
//! Jiang & Zhang, "LIRS: An Efficient Low Inter-reference Recency Set Replacement Policy to Improve
//! Buffer Cache Performance", SIGMETRICS '02; the names are the paper's. Stack S orders pages by
//! their last access: all LIR pages, and the HIR pages accessed since the least recent LIR page
//! was, resident or not. Queue Q holds the resident HIR pages. An HIR page accessed while in S
//! becomes LIR, and the LIR page at the bottom of S goes to the end of Q. S is then pruned until an
//! LIR page is at its bottom. The page at the front of Q is evicted; if it is in S, it stays there
//! as non-resident. Points that the paper leaves open, and our choices:
//!
//! - The number of resident HIR pages is max(2, ⌊1 %⌋), 1 % as in the paper, or the whole cache if
//!   that is smaller. If it leaves no frame for LIR pages, S is always empty and Q is an LRU list.
//! - S has at most twice as many non-resident pages as the cache has frames, our choice. Above this
//!   limit, the page evicted first is forgotten once the incoming page has taken its place.
//! - Pages become LIR at once while there are fewer LIR pages than allowed: at the start, as in the
//!   paper, and again after LIR pages were removed. A resident HIR page becomes LIR only by an
//!   access while in S.
//! - A removed page leaves S and Q; a non-resident page that is removed leaves S.
//! - A drain evicts from the front of Q, then from the bottom of S.
//!
//! libCacheSim's LIRS keeps at least 1 resident HIR page and bounds all of S by twice the cache.
//! Miss ratios of `cloudphysics` at 100, 1,000 and 10,000 objects, and of 20 M requests with Zipf's
//! law over 1 M pages at 100,000 frames:
//!
//! - this policy: 0.8490, 0.8280, 0.6408; 0.1903;
//! - libCacheSim: 0.8595, 0.8282, 0.6533; 0.1874;
//! - this policy with the two bounds of libCacheSim: 0.8595, 0.8282, 0.6529; 0.1874.

use super::{Build, Kind, Policy, PolicySpec, Setup};
use crate::cache::{Frames, Victims};
use flashsift_events::{
    page::{Access, Frame, Page},
    structure::{Ghosts, Lists},
};

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "lirs",
    paper: "Jiang & Zhang, \"LIRS: An Efficient Low Inter-reference Recency Set Replacement Policy to \
        Improve Buffer Cache Performance\", SIGMETRICS '02",
    what: "pages that come back soon stay, the rest pass through a short queue",
    goal: "hits, by the distance between uses",
    time: "amortised O(1): a hit moves a list node, and what is pruned was pushed once",
    memory: "12 bytes a page of the trace, 4 bytes a frame, 4 bytes a page in its queues",
    memory_bytes: |size| 4 * size.frames + 16 * size.pages,
    when: "where loops and scans are longer than the cache",
    params: &[],
    kind: Kind::Online,
    slow: false,
    by_place: <Lirs as Policy>::WANTS_ADDRESSES,
    policy: super::only::<Lirs>,
    objects: None,
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| {
        Box::new(model::Lirs::new(setup.frames as usize, hir_max(setup.frames) as usize))
    },
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<Lirs>,
};

fn hir_max(frames: u32) -> u32 {
    (frames / 100).max(2).min(frames)
}

/// List of the non-resident HIR pages, all in S.
const LEFT: usize = 0;
/// List of the resident HIR pages: Q.
const Q: usize = 1;

pub(super) struct Lirs {
    /// S, with its bottom as the oldest.
    stack: Lists<Page, 1>,
    /// The HIR pages. A page that is in S and in neither of these queues is LIR.
    hir: Ghosts<2>,
    lir: u32,
    lir_max: u32,
    left_max: u32,
    /// The page of each frame, to prefetch a page's place where only its frame is known.
    page_of: Vec<Page>,
}

impl Build for Lirs {
    fn build(setup: &Setup<'_>) -> Self {
        Self::new(setup.frames, hir_max(setup.frames), setup.pages)
    }
}

impl Lirs {
    fn new(frames: u32, hir_max: u32, pages: u32) -> Self {
        Self {
            stack: Lists::new(pages),
            hir: Ghosts::new(pages),
            lir: 0,
            lir_max: frames - hir_max,
            left_max: 2 * frames,
            page_of: vec![Page(0); frames.min(pages) as usize],
        }
    }

    /// Removes HIR pages from the bottom of S.
    #[inline(always)]
    fn prune(&mut self) {
        while let Some(page) = self.stack.oldest(0)
            && let Some(queue) = self.hir.queue_of(page)
        {
            self.stack.remove(page);
            if queue == LEFT {
                self.hir.remove(page);
            }
        }
    }

    /// Handles an access to an HIR page in S.
    #[inline(always)]
    fn promote(&mut self, page: Page) {
        self.hir.remove(page);
        self.stack.move_newest(0, page);
        self.lir += 1;
        if self.lir > self.lir_max {
            let bottom = self.stack.oldest(0).expect("S holds the page that was accessed");
            self.stack.remove(bottom);
            self.hir.push(Q, bottom);
            self.lir -= 1;
        }
        self.prune();
    }

    fn trim(&mut self) {
        while self.hir.len(LEFT) > self.left_max
            && let Some(page) = self.hir.pop(LEFT)
        {
            self.stack.remove(page);
        }
    }
}

impl Policy for Lirs {
    const OFFLINE: bool = false;

    #[inline]
    fn insert(&mut self, frame: Frame, access: &Access) {
        let page = access.page;
        self.page_of[frame.0 as usize] = page;
        if self.hir.queue_of(page).is_some() {
            self.promote(page);
        } else {
            self.stack.push_newest(0, page);
            if self.lir < self.lir_max {
                self.lir += 1;
            } else {
                self.hir.push(Q, page);
                self.prune();
            }
        }
        self.trim();
    }

    #[inline(always)]
    fn hit(&mut self, _: Frame, access: &Access) {
        let page = access.page;
        if self.hir.queue_of(page).is_none() {
            self.stack.move_newest(0, page);
            self.prune();
        } else if self.stack.contains(page) {
            self.promote(page);
        } else {
            self.hir.remove(page);
            self.hir.push(Q, page);
            self.stack.push_newest(0, page);
            self.prune();
        }
    }

    #[inline]
    fn evict(&mut self, incoming: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        let page = match self.hir.pop(Q) {
            Some(page) => {
                if self.stack.contains(page) {
                    self.hir.push(LEFT, page);
                }
                page
            }
            None => {
                let bottom = self.stack.oldest(0).expect("evict is never called on an empty cache");
                self.stack.remove(bottom);
                self.lir -= 1;
                self.prune();
                bottom
            }
        };
        if incoming.is_none() {
            self.trim();
        }
        victims.push(frames.frame(page).expect("a page that is LIR or in Q is resident"));
    }

    fn remove(&mut self, frame: Frame, frames: &Frames) {
        let page = frames.page(frame);
        if self.hir.queue_of(page).is_none() {
            self.lir -= 1;
        }
        self.forget(page);
        self.prune();
    }

    fn forget(&mut self, page: Page) {
        self.hir.remove(page);
        self.stack.remove(page);
    }

    #[inline(always)]
    fn expect_hit(&self, frame: Frame) {
        self.expect_miss(self.page_of[frame.0 as usize]);
    }

    #[inline(always)]
    fn expect_miss(&self, page: Page) {
        self.stack.prefetch(page);
        self.hir.prefetch(page);
    }

    fn check(&self, frames: &Frames) {
        self.stack.check();
        self.hir.check();
        let is_lir = |page: &Page| self.hir.queue_of(*page).is_none();
        assert!(
            self.stack.oldest(0).is_none_or(|bottom| is_lir(&bottom)),
            "S has an LIR page at its bottom"
        );
        assert_eq!(self.stack.iter(0).filter(is_lir).count(), self.lir as usize);
        assert!(self.stack.iter(0).filter(is_lir).all(|page| frames.frame(page).is_some()));
        assert!(
            self.hir.iter(Q).all(|page| frames.frame(page).is_some()),
            "the pages of Q are resident"
        );
        assert!(
            self.hir
                .iter(LEFT)
                .all(|page| frames.frame(page).is_none() && self.stack.contains(page))
        );
        assert!(self.lir <= self.lir_max && self.hir.len(LEFT) <= self.left_max);
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use crate::policy::naive::Naive;
    use flashsift_events::page::{Access, Page};
    use std::collections::BTreeSet;

    #[derive(Clone, Copy, PartialEq)]
    enum Status {
        Lir,
        Hir,
        NonResident,
    }
    use Status::{Hir, Lir, NonResident};

    pub(super) struct Lirs {
        capacity: usize,
        hir_max: usize,
        /// S, the bottom first.
        s: Vec<(Page, Status)>,
        /// Q, the front first.
        q: Vec<Page>,
        /// Non-resident pages in the order in which they were evicted.
        left: Vec<Page>,
    }

    impl Lirs {
        pub(super) fn new(capacity: usize, hir_max: usize) -> Self {
            Self { capacity, hir_max, s: vec![], q: vec![], left: vec![] }
        }

        fn lirs(&self) -> usize {
            self.s.iter().filter(|(_, status)| *status == Lir).count()
        }

        fn status(&self, page: Page) -> Option<Status> {
            self.s.iter().find(|(p, _)| *p == page).map(|(_, status)| *status)
        }

        fn put_on_top(&mut self, page: Page, status: Status) {
            self.s.retain(|(p, _)| *p != page);
            self.s.push((page, status));
        }

        fn prune(&mut self) {
            while !self.s.is_empty() && self.s[0].1 != Lir {
                let (page, _) = self.s.remove(0);
                self.left.retain(|p| *p != page);
            }
        }

        fn becomes_lir(&mut self, page: Page) {
            self.put_on_top(page, Lir);
            if self.lirs() > self.capacity - self.hir_max {
                let (bottom, _) = self.s.remove(0);
                self.q.push(bottom);
            }
            self.prune();
        }

        fn limit_non_resident(&mut self) {
            while self.left.len() > 2 * self.capacity {
                let page = self.left.remove(0);
                self.s.retain(|(p, _)| *p != page);
            }
        }
    }

    impl Naive for Lirs {
        fn insert(&mut self, access: &Access) {
            let page = access.page;
            if self.status(page) == Some(NonResident) {
                self.left.retain(|p| *p != page);
                self.becomes_lir(page);
            } else if self.lirs() < self.capacity - self.hir_max {
                self.put_on_top(page, Lir);
            } else {
                self.put_on_top(page, Hir);
                self.q.push(page);
                self.prune();
            }
            self.limit_non_resident();
        }
        fn hit(&mut self, access: &Access) {
            let page = access.page;
            match self.status(page) {
                Some(Lir) => self.put_on_top(page, Lir),
                Some(_) => {
                    self.q.retain(|p| *p != page);
                    self.becomes_lir(page);
                }
                None => {
                    self.q.retain(|p| *p != page);
                    self.q.push(page);
                    self.put_on_top(page, Hir);
                }
            }
            self.prune();
        }
        fn evict(&mut self, incoming: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            let page = if self.q.is_empty() { self.s.remove(0).0 } else { self.q.remove(0) };
            if let Some(entry) = self.s.iter_mut().find(|(p, _)| *p == page) {
                entry.1 = NonResident;
                self.left.push(page);
            }
            self.prune();
            if incoming.is_none() {
                self.limit_non_resident();
            }
            vec![page]
        }
        fn remove(&mut self, page: Page) {
            self.s.retain(|(p, _)| *p != page);
            self.q.retain(|p| *p != page);
            self.prune();
        }
        fn forget(&mut self, page: Page) {
            self.s.retain(|(p, _)| *p != page);
            self.left.retain(|p| *p != page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::naive::{Act, Placing, stepped};

    const A: u32 = 0;
    const B: u32 = 1;
    const C: u32 = 2;
    const D: u32 = 3;
    const E: u32 = 4;
    const F: u32 = 5;
    const G: u32 = 6;

    /// Returns the pages that accesses evict from a cache of `frames` frames, `hir_max` of them for
    /// HIR pages.
    fn pushed_out(frames: u32, hir_max: u32, accesses: &[u32]) -> Vec<u32> {
        let pages = 12;
        let policy = Lirs::new(frames, hir_max, pages);
        let mut cache = stepped(policy, pages, frames, Placing::Fixed);
        let (mut gone, mut before) = (vec![], vec![]);
        for page in accesses {
            let resident = cache.step(Act::Read(*page), 0).resident;
            cache.check();
            let after: Vec<u32> = resident.iter().map(|page| page.0).collect();
            gone.extend(before.iter().filter(|page| !after.contains(page)));
            before = after;
        }
        gone
    }

    /// The example of the paper: at virtual time 10, A and B are LIR, E is the resident HIR page,
    /// and S holds, from its bottom, B, D (non-resident), A, E. The next evictions show the effect
    /// of each access.
    #[test]
    fn evicts_as_in_the_example_of_the_paper() {
        let then = |accesses: &[u32]| {
            let gone = pushed_out(3, 1, &[&[B, A, D, A, E], accesses].concat());
            assert_eq!(gone[0], D);
            gone[1..].to_vec()
        };
        // D comes back while in S: E is evicted, D becomes LIR, and B, the least recent LIR page,
        // goes to Q.
        assert_eq!(then(&[D, F, G]), [E, B, F]);
        // C is in no list: E is evicted, and C is the resident HIR page.
        assert_eq!(then(&[C, F]), [E, C]);
        // B is hit: D is pruned from S, so D is treated as a new page, as C would be.
        assert_eq!(then(&[B, D, F]), [E, D]);
        // E is hit while in S: E becomes LIR, and B goes to Q.
        assert_eq!(then(&[E, F, G]), [B, F]);
    }
    /// An example from the authors' talk that Clojure's core.cache tests: three LIR and two HIR
    /// frames. S is, from its bottom, 8 4 9 6 1 2 3 5, of which 9, 6 and 2 are non-resident; Q is 3
    /// 5.
    #[test]
    fn evicts_as_in_the_example_of_the_authors_talk() {
        let state = [8, 4, 1, 9, 6, 1, 2, 3, 5];
        let then =
            |accesses: &[u32]| pushed_out(5, 2, &[&state[..], accesses].concat())[3..].to_vec();
        assert_eq!(pushed_out(5, 2, &state), [9, 6, 2]);
        // 8 and 4 are hit: 9 and 6 are pruned. 3 is hit while in S: 1, now at the bottom, goes to Q
        // behind 5. 5 is hit and no longer in S: it stays in Q, behind 1. 7 is new: 1 is evicted. 9
        // is new: 5 is evicted and stays in S. 5 comes back: 7 is evicted, 5 becomes LIR, and 8, at
        // the bottom, goes to Q behind 9.
        let all = [8, 4, 3, 5, 7, 9, 5];
        assert_eq!(then(&all), [1, 5, 7]);
        assert_eq!(then(&[&all[..], &[0, 2]].concat()), [1, 5, 7, 9, 8]);
        // Without its hit, 5 is evicted before 1. Without the hit on 8, the bottom is 8 instead of
        // 1, and 8 follows 5.
        assert_eq!(then(&[8, 4, 3, 7, 9]), [5, 1]);
        assert_eq!(then(&[4, 3, 7, 9]), [5, 8]);
    }
}
