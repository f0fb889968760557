//! 2Q: a queue for pages seen once, and an LRU list for pages that came back after leaving the
//! queue.
//!
//! Johnson & Shasha, "2Q: A Low Overhead High Performance Buffer Management Replacement Algorithm",
//! VLDB '94, the full version; the names are the paper's. A1in is the queue, A1out remembers the
//! pages that left it, and Am is the LRU list. Kin is ⌊0.25·capacity⌋ and Kout ⌊0.5·capacity⌋, as
//! the paper recommends. Points that the paper leaves open, and our choices:
//!
//! - X is looked up in A1out before `reclaimfor(X)`, which may remove it from there. X still goes
//!   to Am.
//! - The procedure adds X to Am and does not say whether its name leaves A1out. Here it does,
//!   because A1out is for pages that are not in memory. With `a1out=keeps` the name stays until its
//!   turn comes. It then takes the entry of another page, and if X is evicted from Am meanwhile, it
//!   returns to Am at once. This is the only difference to the independent simulator whose counts
//!   the tests compare: at most 0.2 % on `weboffice`, and none at any size with `a1out=keeps`.
//! - If Am is empty, the tail of A1in is evicted even if |A1in| ≤ Kin.
//! - A removed page is not remembered, and a page that is removed while A1out remembers it is
//!   forgotten. Write-back changes nothing.
//! - A drain runs `reclaimfor` without an X.
//! - Objects with sizes: Kin and Kout are shares in bytes, and A1out forgets until it is within its
//!   own.

use super::{Build, Kind, Policy, PolicySpec, Setup};
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
    name: "2q",
    paper: "Johnson & Shasha, \"2Q: A Low Overhead High Performance Buffer Management Replacement \
        Algorithm\", VLDB '94",
    what: "a queue for pages seen once, an LRU list for those that came back",
    goal: "hits: a page has to come back before it counts",
    time: "O(1); a hit in the main list moves a list node",
    memory: "9 bytes a frame, 4 bytes a page of the trace, 4 bytes a remembered page",
    memory_bytes: |size| 9 * size.frames + 12 * size.pages,
    when: "where scans run beside a stable hot set; two sizes have to be chosen",
    params: PARAMS,
    kind: Kind::Online,
    slow: false,
    by_place: <TwoQ<false> as Policy>::WANTS_ADDRESSES,
    policy: super::only::<TwoQ<false>>,
    objects: Some(objects::runs::<TwoQ<true>>()),
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| {
        let ([kin, kout], keeps_names) = (sizes(setup), keeps_names(setup));
        Box::new(model::TwoQ::new(kin, kout, keeps_names, setup))
    },
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<TwoQ<false>>,
};

const PARAMS: &[Param] = &[
    Param {
        name: "kin",
        what: "A1in's share: above it A1in gives way",
        kind: params::ParamKind::Number { default: 0.25, min: 0.0, max: 1.0 },
    },
    Param {
        name: "kout",
        what: "how many pages A1out remembers, as a share",
        kind: params::ParamKind::Number { default: 0.5, min: 0.0, max: 4.0 },
    },
    Param {
        name: "a1out",
        what: "what A1out does with the name of a page that comes back",
        kind: params::ParamKind::Word(&["drops", "keeps"]),
    },
];

fn keeps_names(setup: &Setup<'_>) -> bool {
    setup.params.word(PARAMS, "a1out") == "keeps"
}

/// Returns Kin and Kout.
fn sizes(setup: &Setup<'_>) -> [u64; 2] {
    let capacity = setup.capacity() as f64;
    ["kin", "kout"].map(|name| (setup.params.number(PARAMS, name) * capacity) as u64)
}

const A1IN: usize = 0;
const AM: usize = 1;

pub(super) struct TwoQ<const SIZED: bool> {
    resident: Lists<Frame, 2>,
    weights: Weights<SIZED>,
    in_am: Vec<bool>,
    a1in_held: u64,
    a1out: Ghosts<1>,
    a1out_held: u64,
    kin: u64,
    kout: u64,
    keeps_names: bool,
    /// Whether the incoming page was in A1out.
    came_back: bool,
}

impl<const SIZED: bool> Build for TwoQ<SIZED> {
    fn build(setup: &Setup<'_>) -> Self {
        let [kin, kout] = sizes(setup);
        Self {
            resident: Lists::new(setup.slots()),
            weights: Weights::new(setup.pages),
            in_am: vec![false; setup.slots() as usize],
            a1in_held: 0,
            a1out: Ghosts::new(setup.pages),
            a1out_held: 0,
            kin,
            kout,
            keeps_names: keeps_names(setup),
            came_back: false,
        }
    }
}

impl<const SIZED: bool> TwoQ<SIZED> {
    #[inline(always)]
    fn remember(&mut self, page: Page, weight: u64) {
        self.a1out.push(0, page);
        self.a1out_held += weight;
        while self.a1out_held > self.kout {
            let oldest = self.a1out.pop(0).expect("what weighs is in the queue");
            self.a1out_held -= self.weights.of(|| oldest);
        }
    }

    #[inline(always)]
    fn forget_name(&mut self, page: Page) {
        if self.a1out.queue_of(page).is_some() {
            self.a1out_held -= self.weights.of(|| page);
            self.a1out.remove(page);
        }
    }
}

impl<const SIZED: bool> Policy for TwoQ<SIZED> {
    const OFFLINE: bool = false;

    #[inline(always)]
    fn insert(&mut self, frame: Frame, access: &Access) {
        let to_am =
            std::mem::take(&mut self.came_back) || self.a1out.queue_of(access.page).is_some();
        if to_am && !self.keeps_names {
            self.forget_name(access.page);
        } else if SIZED && self.a1out.queue_of(access.page).is_some() {
            // A name that stays counts with the object's new size.
            self.a1out_held -= self.weights.of(|| access.page);
            self.a1out_held += Weights::<SIZED>::incoming(access);
        }
        self.weights.set(access);
        self.in_am[frame.0 as usize] = to_am;
        self.a1in_held += if to_am { 0 } else { Weights::<SIZED>::incoming(access) };
        self.resident.push_newest(usize::from(to_am), frame);
    }

    #[inline(always)]
    fn hit(&mut self, frame: Frame, _: &Access) {
        if self.in_am[frame.0 as usize] {
            self.resident.move_newest(AM, frame);
        }
    }

    #[inline(always)]
    fn evict(&mut self, incoming: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        // An object may need several evictions, which may push its name out of A1out.
        self.came_back |= incoming.is_some_and(|access| self.a1out.queue_of(access.page).is_some());
        let tail = if self.a1in_held > self.kin { None } else { self.resident.oldest(AM) };
        let frame = tail.unwrap_or_else(|| {
            let frame =
                self.resident.oldest(A1IN).expect("evict is never called on an empty cache");
            let page = frames.page(frame);
            let weight = self.weights.of(|| page);
            self.a1in_held -= weight;
            self.remember(page, weight);
            frame
        });
        self.resident.remove(frame);
        // The next victim comes from the same list most often.
        frames.expect_victims(self.resident.oldest_two(usize::from(tail.is_some())));
        victims.push(frame);
    }

    fn remove(&mut self, frame: Frame, frames: &Frames) {
        self.resident.remove(frame);
        let page = frames.page(frame);
        self.a1in_held -= if self.in_am[frame.0 as usize] { 0 } else { self.weights.of(|| page) };
        self.forget_name(page);
    }

    fn forget(&mut self, page: Page) {
        self.forget_name(page);
    }

    #[inline(always)]
    fn expect_hit(&self, frame: Frame) {
        self.resident.prefetch(frame);
    }

    #[inline(always)]
    fn expect_miss(&self, page: Page) {
        self.a1out.prefetch(page);
    }

    fn check(&self, frames: &Frames) {
        self.resident.check();
        self.a1out.check();
        let held = |page| self.weights.of(|| page);
        let a1in = self.resident.iter(A1IN).map(|frame| held(frames.page(frame)));
        assert_eq!(a1in.sum::<u64>(), self.a1in_held);
        assert_eq!(self.a1out.iter(0).map(held).sum::<u64>(), self.a1out_held);
        for list in [A1IN, AM] {
            assert!(
                self.resident.iter(list).all(|frame| self.in_am[frame.0 as usize] == (list == AM))
            );
        }
        assert!(SIZED || self.a1out_held <= self.kout);
        assert!(
            self.a1out.iter(0).all(|page| {
                frames
                    .frame(page)
                    .is_none_or(|frame| self.keeps_names && self.in_am[frame.0 as usize])
            }),
            "a page in A1out is not resident, or has come back"
        );
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use crate::policy::{
        Setup,
        naive::{Naive, NaiveWeights},
    };
    use flashsift_events::page::{Access, Page};
    use std::collections::BTreeSet;

    /// The paper's procedure over vectors, tails first.
    pub(super) struct TwoQ {
        kin: u64,
        kout: u64,
        keeps_names: bool,
        weights: NaiveWeights,
        a1in: Vec<Page>,
        a1out: Vec<Page>,
        am: Vec<Page>,
        /// The page that was found in A1out before `reclaimfor` ran for it.
        found: Option<Page>,
    }

    impl TwoQ {
        pub(super) fn new(kin: u64, kout: u64, keeps_names: bool, setup: &Setup<'_>) -> Self {
            let weights = NaiveWeights::new(setup);
            let (a1in, a1out, am) = (vec![], vec![], vec![]);
            Self { kin, kout, keeps_names, weights, a1in, a1out, am, found: None }
        }

        fn weight(&self, list: &[Page]) -> u64 {
            list.iter().map(|page| self.weights.of(*page)).sum()
        }
    }

    impl Naive for TwoQ {
        fn insert(&mut self, access: &Access) {
            let x = access.page;
            self.weights.set(access);
            if self.found.take() == Some(x) || self.a1out.contains(&x) {
                if !self.keeps_names {
                    self.forget(x);
                }
                self.am.push(x);
            } else {
                self.a1in.push(x);
            }
        }
        fn hit(&mut self, access: &Access) {
            if let Some(at) = self.am.iter().position(|page| *page == access.page) {
                let x = self.am.remove(at);
                self.am.push(x);
            }
        }
        fn evict(&mut self, incoming: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            let x = incoming.map(|access| access.page);
            self.found = x.filter(|x| self.a1out.contains(x) || self.found == Some(*x));
            if self.weight(&self.a1in) > self.kin || self.am.is_empty() {
                let y = self.a1in.remove(0);
                self.a1out.push(y);
                while self.weight(&self.a1out) > self.kout {
                    self.a1out.remove(0);
                }
                vec![y]
            } else {
                vec![self.am.remove(0)]
            }
        }
        fn remove(&mut self, page: Page) {
            self.a1in.retain(|p| *p != page);
            self.am.retain(|p| *p != page);
            self.forget(page);
        }
        fn forget(&mut self, page: Page) {
            self.a1out.retain(|p| *p != page);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::{
        conformance::{assert_coincide, pushed_out},
        naive::Act,
    };

    /// If A1out remembers no page, no page comes back.
    #[test]
    fn is_fifo_without_a1out() {
        assert_coincide("2q:kout=0", "fifo", |act| act);
        assert_coincide("2q:kout=0,kin=1", "fifo", |act| act);
    }

    /// The paper's procedure with four page slots: Kin is 1 and Kout 2.
    #[test]
    fn evicts_by_the_procedure_of_the_paper() {
        let gone = |acts: &[u32]| {
            let acts: Vec<Act> = acts.iter().map(|page| Act::Read(*page)).collect();
            pushed_out("2q", 4, &acts).iter().map(|page| page.0).collect::<Vec<_>>()
        };
        // Hits in A1in move nothing, because it is a queue.
        assert_eq!(gone(&[1, 2, 3, 4, 1, 1, 5, 6]), [1, 2]);
        // A1out is 1 2. 2 and 3 come back, and A1in evicts 3 and 4 for them; for the new page 7 it
        // evicts 5.
        assert_eq!(gone(&[1, 2, 3, 4, 5, 6, 2, 3, 7]), [1, 2, 3, 4, 5]);
        // Am is 2 3, A1in 6 7, A1out 4 5. 5 comes back, and A1in evicts 6 and is down to Kin. So Am
        // evicts 2 for the new page 8.
        assert_eq!(gone(&[1, 2, 3, 4, 5, 6, 2, 3, 7, 5, 8]), [1, 2, 3, 4, 5, 6, 2]);
        // A hit saves 2: Am evicts 3 when 6 comes back, and 5 for 8. Neither is remembered, so 3
        // enters the queue again.
        assert_eq!(
            gone(&[1, 2, 3, 4, 5, 6, 2, 3, 7, 5, 2, 6, 8, 3, 9]),
            [1, 2, 3, 4, 5, 6, 3, 5, 7, 8]
        );
    }

    /// Four page slots: Kin is 1 and Kout 4. When 1, 2 and 3 have come back, Am is 1 2 3 and A1in
    /// 5; Am evicts 1 for the new page 6. If the name of 1 is kept, 1 returns to Am, which evicts 2
    /// for 7. Otherwise 1 enters the queue, and is evicted for 8.
    #[test]
    fn a_page_whose_name_is_kept_returns_to_am() {
        let acts = [1, 2, 3, 4, 5, 1, 2, 3, 6, 1, 7, 8].map(Act::Read);
        let gone = |text| pushed_out(text, 4, &acts).iter().map(|page| page.0).collect::<Vec<_>>();
        assert_eq!(gone("2q:kout=1"), [1, 2, 3, 4, 1, 5, 6, 1]);
        assert_eq!(gone("2q:kout=1,a1out=keeps"), [1, 2, 3, 4, 1, 5, 2, 6]);
    }
}
