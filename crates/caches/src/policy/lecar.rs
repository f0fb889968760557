//! LeCaR: each victim is chosen by LRU or by LFU, at random, with weights that learn from pages
//! that were evicted too early.
//!
//! Vietri et al., "Driving Cache Replacement with ML-based LeCaR", HotStorage '18. Each of the two
//! experts has a history of the pages that it evicted. When a page in a history is accessed, its
//! expert's weight is multiplied by e^(−λ·d^t): λ is the learning rate, 0.45, t the number of
//! accesses since the eviction, and d the discount rate, 0.005^(1/N) for a cache of N pages. Then
//! the weights are divided by their sum. Points that the paper leaves open, and our choices, which
//! are those of the authors' code (sylab/cacheus, `code/algs/lecar.py`) if it makes one:
//!
//! - A history holds half as many pages as the cache, rounded down. If both experts choose the same
//!   page, it enters neither.
//! - No weight is above 0.99.
//! - A page that returns from a history has its old count, and one more. In libCacheSim it starts
//!   again at 1.
//! - Among pages with equal counts LFU chooses the least recently used; the authors' code, the
//!   smallest page number.
//! - One random number is drawn for every eviction, by our own generator (`seed`).
//! - A removed page enters no history, and a history forgets a page that is removed. A drain
//!   chooses in the same way, at the time of the last access.
//!
//! With our random numbers and our tie-break in place of theirs, the authors' code has the same
//! hits on `cloudphysics` and `weboffice`, to the last one.

use super::{
    Build, Kind, Policy, PolicySpec, Setup,
    experts::{LFU, LRU, Random, SEED, Weights},
};
use crate::cache::{Frames, Victims};
use flashsift_events::{
    page::{Access, Frame, Page},
    params::{Param, ParamKind},
    structure::{CountOrder, Ghosts, Lists},
};
use prefetch_index::prefetch_index;

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "lecar",
    paper: "Vietri et al., \"Driving Cache Replacement with ML-based LeCaR\", HotStorage '18",
    what: "LRU or LFU chooses the victim, at random, with weights that learn",
    goal: "hits: the expert that regrets fewer evictions chooses more often",
    time: "O(1); a hit moves two list nodes",
    memory: "48 bytes a frame, 20 bytes a page of the trace, 4 bytes a remembered page",
    memory_bytes: |size| 48 * size.frames + 28 * size.pages,
    when: "where the load changes between recency and frequency, in caches much smaller than it",
    params: PARAMS,
    kind: Kind::Online,
    slow: false,
    by_place: <LeCaR as Policy>::WANTS_ADDRESSES,
    policy: super::only::<LeCaR>,
    objects: None,
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| Box::new(model::LeCaR::new(setup.frames as usize, rate(setup), random(setup))),
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<LeCaR>,
};

const PARAMS: &[Param] = &[
    Param {
        name: "rate",
        what: "the learning rate",
        kind: ParamKind::Number { default: 0.45, min: 0.0, max: 1.0 },
    },
    SEED,
];

fn rate(setup: &Setup<'_>) -> f64 {
    setup.params.number(PARAMS, "rate")
}

fn random(setup: &Setup<'_>) -> Random {
    Random::new(setup.params.number(PARAMS, "seed"))
}

/// The share of a regret that remains after N accesses.
const LEFT_AFTER_N: f64 = 0.005;

/// Facts remembered of an evicted page.
#[derive(Clone, Copy, Default)]
struct Evicted {
    count: u64,
    /// In accesses.
    at: u64,
}

pub(super) struct LeCaR {
    recency: Lists<Frame, 1>,
    counts: CountOrder<Frame>,
    histories: Ghosts<2>,
    /// By page; valid for those in a history.
    evicted: Vec<Evicted>,
    history_max: u32,
    weights: Weights,
    random: Random,
    rate: f64,
    /// Logarithm of the discount rate.
    ln_discount: f64,
    /// Number of accesses until now.
    now: u64,
    /// Count of the incoming page, once its history has been looked up.
    incoming: Option<u64>,
}

impl Build for LeCaR {
    fn build(setup: &Setup<'_>) -> Self {
        let slots = setup.slots();
        Self {
            recency: Lists::new(slots),
            counts: CountOrder::new(slots),
            histories: Ghosts::new(setup.pages),
            evicted: vec![Evicted::default(); setup.pages as usize],
            history_max: setup.frames / 2,
            weights: Weights::new(),
            random: random(setup),
            rate: rate(setup),
            ln_discount: LEFT_AFTER_N.ln() / f64::from(setup.frames),
            now: 0,
            incoming: None,
        }
    }
}

impl LeCaR {
    /// Learns from the history of the incoming page, and returns the page's count.
    #[inline(always)]
    fn look_up(&mut self, page: Page) -> u64 {
        self.now += 1;
        let Some(expert) = self.histories.queue_of(page) else { return 1 };
        self.histories.remove(page);
        let Evicted { count, at } = self.evicted[page.0 as usize];
        let discount = ((self.now - at) as f64 * self.ln_discount).exp();
        self.weights.punish(expert, self.rate * discount);
        count + 1
    }
}

impl Policy for LeCaR {
    const OFFLINE: bool = false;

    #[inline(always)]
    fn insert(&mut self, frame: Frame, access: &Access) {
        let count = self.incoming.take().unwrap_or_else(|| self.look_up(access.page));
        self.recency.push_newest(0, frame);
        self.counts.insert(frame, count);
    }

    #[inline(always)]
    fn hit(&mut self, frame: Frame, _: &Access) {
        self.now += 1;
        self.recency.move_newest(0, frame);
        self.counts.raise(frame);
    }

    #[inline(always)]
    fn evict(&mut self, incoming: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        self.incoming = incoming.map(|access| self.look_up(access.page));
        let choices = [self.recency.oldest(0), self.counts.least_oldest()];
        let expert = self.weights.choose(&mut self.random);
        let frame = choices[expert].expect("evict is never called on an empty cache");
        if choices[LRU] != choices[LFU] && self.history_max > 0 {
            let page = frames.page(frame);
            self.evicted[page.0 as usize] = Evicted { count: self.counts.get(frame), at: self.now };
            if self.histories.len(expert) == self.history_max {
                self.histories.pop(expert);
            }
            self.histories.push(expert, page);
        }
        self.recency.remove(frame);
        self.counts.remove(frame);
        frames.expect_victims([self.recency.oldest(0), self.counts.least_oldest()]);
        victims.push(frame);
    }

    fn remove(&mut self, frame: Frame, _: &Frames) {
        self.recency.remove(frame);
        self.counts.remove(frame);
    }

    fn forget(&mut self, page: Page) {
        self.histories.remove(page);
    }

    #[inline(always)]
    fn expect_hit(&self, frame: Frame) {
        self.recency.prefetch(frame);
        self.counts.prefetch(frame);
    }

    #[inline(always)]
    fn expect_move(&self, frame: Frame) {
        self.recency.prefetch_neighbours(frame);
    }

    #[inline(always)]
    fn expect_miss(&self, page: Page) {
        self.histories.prefetch(page);
        prefetch_index(&self.evicted, page.0 as usize);
    }

    fn check(&self, frames: &Frames) {
        self.recency.check();
        self.counts.check();
        self.histories.check();
        self.weights.check();
        for expert in [LRU, LFU] {
            assert!(self.histories.len(expert) <= self.history_max);
            for page in self.histories.iter(expert) {
                assert!(frames.frame(page).is_none(), "a page in a history is not resident");
                assert!(self.evicted[page.0 as usize].at <= self.now);
            }
        }
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use super::{LEFT_AFTER_N, LFU, LRU, Random, Weights};
    use crate::policy::naive::Naive;
    use flashsift_events::page::{Access, Page};
    use std::collections::BTreeSet;

    #[derive(Clone, Copy)]
    struct Entry {
        page: Page,
        count: u64,
        evicted_at: u64,
    }

    /// The paper's algorithm over vectors.
    pub(super) struct LeCaR {
        capacity: usize,
        rate: f64,
        random: Random,
        weights: Weights,
        now: u64,
        /// The least recently used page is first.
        cache: Vec<Entry>,
        /// The page evicted first is first.
        histories: [Vec<Entry>; 2],
        /// Count of the page for which an eviction began.
        incoming: Option<u64>,
    }

    impl LeCaR {
        pub(super) fn new(capacity: usize, rate: f64, random: Random) -> Self {
            let (cache, histories) = (vec![], [vec![], vec![]]);
            let weights = Weights::new();
            Self { capacity, rate, random, weights, now: 0, cache, histories, incoming: None }
        }

        fn miss(&mut self, page: Page) -> u64 {
            self.now += 1;
            for expert in [LRU, LFU] {
                let found = self.histories[expert].iter().position(|entry| entry.page == page);
                if let Some(at) = found {
                    let entry = self.histories[expert].remove(at);
                    let ln_discount = LEFT_AFTER_N.ln() / self.capacity as f64;
                    let discount = ((self.now - entry.evicted_at) as f64 * ln_discount).exp();
                    self.weights.punish(expert, self.rate * discount);
                    return entry.count + 1;
                }
            }
            1
        }
    }

    impl Naive for LeCaR {
        fn insert(&mut self, access: &Access) {
            let count = self.incoming.take().unwrap_or_else(|| self.miss(access.page));
            self.cache.push(Entry { page: access.page, count, evicted_at: 0 });
        }
        fn hit(&mut self, access: &Access) {
            self.now += 1;
            let at = self.cache.iter().position(|entry| entry.page == access.page).unwrap();
            let entry = self.cache.remove(at);
            self.cache.push(Entry { count: entry.count + 1, ..entry });
        }
        fn evict(&mut self, incoming: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            self.incoming = incoming.map(|access| self.miss(access.page));
            let least = self.cache.iter().map(|entry| entry.count).min().unwrap();
            let lfu = self.cache.iter().position(|entry| entry.count == least).unwrap();
            let expert = self.weights.choose(&mut self.random);
            let entry = self.cache.remove(if expert == LRU { 0 } else { lfu });
            if lfu != 0 {
                self.histories[expert].push(Entry { evicted_at: self.now, ..entry });
                if self.histories[expert].len() > self.capacity / 2 {
                    self.histories[expert].remove(0);
                }
            }
            vec![entry.page]
        }
        fn remove(&mut self, page: Page) {
            self.cache.retain(|entry| entry.page != page);
        }
        fn forget(&mut self, page: Page) {
            self.histories.iter_mut().for_each(|pages| pages.retain(|entry| entry.page != page));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::{conformance::pushed_out, naive::Act};

    /// A hot set of 5 pages, each of them used three times between scans of 8 pages, in a cache of
    /// 10. LRU loses the hot set in each scan; the last pages that it evicted are hot. With
    /// learning LFU soon chooses most victims, and the hot pages stay.
    #[test]
    fn learns_to_keep_a_hot_set() {
        let mut acts = Vec::new();
        for round in 0..20 {
            for _ in 0..3 {
                acts.extend((0..5).map(Act::Read));
            }
            acts.extend((0..8).map(|n| Act::Read(10 + round * 8 + n)));
        }
        let lost = |text: &str| {
            let gone = pushed_out(text, 10, &acts);
            gone.iter().filter(|page| page.0 < 5).count()
        };
        let [learning, fixed, lru] = ["lecar", "lecar:rate=0", "lru"].map(lost);
        assert!(2 * learning < fixed && fixed < lru, "{learning} and {fixed} of {lru}");
    }
}
