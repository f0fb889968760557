//! Cacheus: LeCaR with a scan-resistant LRU, a churn-resistant LFU, and an adaptive learning rate.
//!
//! Rodriguez et al., "Learning Cache Replacement with CACHEUS", FAST '21, the variant C3 of the
//! experts SR-LRU and CR-LFU. SR-LRU divides the cache into S, for pages accessed again, and Q (R
//! and SR in the paper), where new pages enter and from which it evicts. A hit moves a page to S; S
//! moves its least recent page, now demoted, to Q if it is over its share. A hit of a demoted page
//! enlarges S, the return of a new page that SR-LRU evicted enlarges Q. CR-LFU is LFU, but among
//! equals the most recently used page is evicted. The experts are weighted as in LeCaR, but without
//! a discount. Once for as many accesses as the cache has pages, the learning rate moves on in its
//! direction if hits became more, and turns if they became fewer; it starts again after ten periods
//! without hits.
//!
//! The paper leaves many details open. Ours are those of the authors' code (sylab/cacheus,
//! `code/algs/cacheus.py`); most important:
//!
//! - Q begins with a hundredth of the cache. Until S has its share, new pages enter S, and only
//!   pages that come in once Q has its share, too, are new.
//! - After a miss S is kept one page below its share.
//! - A history holds half as many pages as the cache, rounded down. If both experts choose the same
//!   page, it enters neither. A page that returns from a history has the count with which it was
//!   evicted, and enters S. No weight is above 0.99.
//! - The learning rate is at first √(2·ln 2/N) for N pages, and within 0.001 and 1 later. Hit rates
//!   and changes are rounded to three digits.
//!
//! Our own choices: random numbers come from our own generator (`seed`), one for every eviction. If
//! Q is empty, SR-LRU takes the least recent page of S. A removed page enters no history, and a
//! history forgets a page that is removed. A drain chooses in the same way.
//!
//! With our random numbers in place of theirs, the authors' code has the same hits on
//! `cloudphysics` and `weboffice`, to the last one. libCacheSim's Cacheus computes the hit rate in
//! integers, so that it is always 0, begins with half the cache for each part of SR-LRU, and has a
//! history for SR-LRU of its own.

use super::{
    Build, Kind, Policy, PolicySpec, Setup,
    experts::{LFU, LRU, Random, SEED, Weights},
};
use crate::cache::{Frames, Victims};
use flashsift_events::{
    page::{Access, Frame, Page},
    params::Param,
    structure::{CountOrder, Ghosts, Lists},
};
use prefetch_index::prefetch_index;

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "cacheus",
    paper: "Rodriguez et al., \"Learning Cache Replacement with CACHEUS\", FAST '21",
    what: "lecar with a scan-resistant LRU, a churn-resistant LFU and no fixed rates",
    goal: "hits: the expert that regrets fewer evictions chooses more often",
    time: "O(1); a hit moves two list nodes, or three",
    memory: "50 bytes a frame, 20 bytes a page of the trace, 4 bytes a remembered page",
    memory_bytes: |size| 50 * size.frames + 28 * size.pages,
    when: "like lecar, also where scans or rounds over many pages run beside the hot set",
    params: PARAMS,
    kind: Kind::Online,
    slow: false,
    by_place: <Cacheus as Policy>::WANTS_ADDRESSES,
    policy: super::only::<Cacheus>,
    objects: None,
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| Box::new(model::Cacheus::new(setup.frames as usize, random(setup))),
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<Cacheus>,
};

const PARAMS: &[Param] = &[SEED];

fn random(setup: &Setup<'_>) -> Random {
    Random::new(setup.params.number(PARAMS, "seed"))
}

/// Share of Q at the beginning.
const Q_SHARE: f64 = 0.01;
const RATE_MIN: f64 = 0.001;
/// Periods after which the learning rate starts again.
const PATIENCE: u32 = 10;

fn rounded(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

/// The learning rate.
struct Rate {
    /// Accesses of a period.
    period: u64,
    first: f64,
    now: f64,
    /// At the end of the last period, and of the one before.
    last: f64,
    before: f64,
    hits: u64,
    hit_rate: f64,
    /// Periods in which neither hits nor the rate changed for the better.
    idle: u32,
    worse: u32,
}

impl Rate {
    fn new(frames: u32) -> Self {
        let now = (2.0 * std::f64::consts::LN_2 / f64::from(frames)).sqrt();
        Self {
            period: u64::from(frames),
            first: now.clamp(RATE_MIN, 1.0),
            now,
            last: now,
            before: 0.0,
            hits: 0,
            hit_rate: 0.0,
            idle: 0,
            worse: 0,
        }
    }

    /// Ends a period.
    #[cold]
    fn adapt(&mut self, random: &mut Random) {
        let hit_rate = rounded(self.hits as f64 / self.period as f64);
        let gain = rounded(hit_rate - self.hit_rate);
        let change = rounded(self.last) - rounded(self.before);
        let step = (self.now * change).abs();
        if gain * change > 0.0 {
            self.now = (self.now + step).min(1.0);
            (self.idle, self.worse) = (0, 0);
        } else if gain * change < 0.0 {
            self.now = (self.now - step).max(RATE_MIN);
            (self.idle, self.worse) = (0, 0);
        } else if gain <= 0.0 {
            self.idle += u32::from(gain < 0.0 || hit_rate <= 0.0);
            self.worse += u32::from(gain < 0.0);
            if self.idle >= PATIENCE {
                (self.now, self.idle) = (self.first, 0);
            } else if gain < 0.0 && self.worse >= PATIENCE {
                (self.now, self.worse) = (self.first, 0);
            } else if gain < 0.0 {
                self.turn(random);
            }
        }
        (self.before, self.last) = (self.last, self.now);
        (self.hit_rate, self.hits) = (hit_rate, 0);
    }

    /// Moves in a random direction, or away from an extreme.
    fn turn(&mut self, random: &mut Random) {
        self.now = if self.now >= 1.0 {
            0.9
        } else if self.now <= RATE_MIN {
            0.005
        } else if random.unit() < 0.5 {
            (self.now * 1.25).min(1.0)
        } else {
            (self.now * 0.75).max(RATE_MIN)
        };
    }
}

const S: usize = 0;
const Q: usize = 1;

/// Facts about a page, resident or in a history, beside its position.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Accesses; valid for pages in a history.
    count: u64,
    /// It entered Q when the cache was full, and has not returned since.
    is_new: bool,
}

/// The incoming page, once its history has been looked up.
#[derive(Clone, Copy)]
enum Incoming {
    Returns,
    IsNew,
}

pub(super) struct Cacheus {
    /// S and Q, the least recent page first.
    lists: Lists<Frame, 2>,
    len: [u32; 2],
    in_q: Vec<bool>,
    counts: CountOrder<Frame>,
    /// Whether S moved the page to Q. Then it is in Q.
    demoted: Vec<bool>,
    demoted_len: u64,
    histories: Ghosts<2>,
    /// Number of new pages in the history of LRU.
    new_len: u64,
    /// By page.
    known: Vec<Known>,
    frames: u32,
    s_max: u32,
    weights: Weights,
    rate: Rate,
    random: Random,
    now: u64,
    incoming: Option<Incoming>,
    /// Whether a page was evicted for the incoming one.
    was_full: bool,
}

/// Returns the greatest length of S at the beginning.
fn first_s_max(frames: u32) -> u32 {
    frames - ((Q_SHARE * f64::from(frames) + 0.5) as u32).max(1)
}

/// Returns by how much a share changes.
fn step(own: u64, other: u64) -> u32 {
    (own as f64 / other.max(1) as f64 + 0.5).clamp(1.0, f64::from(u32::MAX)) as u32
}

impl Build for Cacheus {
    fn build(setup: &Setup<'_>) -> Self {
        let slots = setup.slots();
        Self {
            lists: Lists::new(slots),
            len: [0; 2],
            in_q: vec![false; slots as usize],
            counts: CountOrder::new(slots),
            demoted: vec![false; slots as usize],
            demoted_len: 0,
            histories: Ghosts::new(setup.pages),
            new_len: 0,
            known: vec![Known::default(); setup.pages as usize],
            frames: setup.frames,
            s_max: first_s_max(setup.frames),
            weights: Weights::new(),
            rate: Rate::new(setup.frames),
            random: random(setup),
            now: 0,
            incoming: None,
            was_full: false,
        }
    }
}

impl Cacheus {
    #[inline(always)]
    fn begin_access(&mut self) {
        self.now += 1;
        if self.now.is_multiple_of(self.rate.period) {
            self.rate.adapt(&mut self.random);
        }
    }

    #[inline(always)]
    fn push(&mut self, list: usize, frame: Frame) {
        self.lists.push_newest(list, frame);
        self.in_q[frame.0 as usize] = list == Q;
        self.len[list] += 1;
    }

    /// Removes a frame from S or Q; it is no longer demoted.
    #[inline(always)]
    fn take(&mut self, frame: Frame) {
        self.lists.remove(frame);
        self.len[usize::from(self.in_q[frame.0 as usize])] -= 1;
        self.demoted_len -= u64::from(std::mem::take(&mut self.demoted[frame.0 as usize]));
    }

    /// Moves the least recent page of S to Q.
    #[inline(always)]
    fn demote(&mut self) -> bool {
        let Some(frame) = self.lists.oldest(S) else { return false };
        self.take(frame);
        self.push(Q, frame);
        self.demoted[frame.0 as usize] = true;
        self.demoted_len += 1;
        true
    }

    /// Removes a page from its history. Returns the expert that evicted it.
    #[inline(always)]
    fn take_from_history(&mut self, page: Page) -> Option<usize> {
        let expert = self.histories.queue_of(page)?;
        self.histories.remove(page);
        self.new_len -= u64::from(expert == LRU && self.known[page.0 as usize].is_new);
        Some(expert)
    }

    /// Learns from the history of the incoming page.
    #[inline(always)]
    fn look_up(&mut self, page: Page) -> Incoming {
        self.begin_access();
        let Some(expert) = self.take_from_history(page) else { return Incoming::IsNew };
        if expert == LRU && self.known[page.0 as usize].is_new {
            let q_max = self.frames - self.s_max;
            let larger = q_max.saturating_add(step(self.demoted_len, self.new_len));
            self.s_max = self.frames - larger.min(self.frames - 1);
        }
        self.known[page.0 as usize].is_new = false;
        self.weights.punish(expert, self.rate.now);
        Incoming::Returns
    }
}

impl Policy for Cacheus {
    const OFFLINE: bool = false;

    #[inline(always)]
    fn insert(&mut self, frame: Frame, access: &Access) {
        let incoming = self.incoming.take().unwrap_or_else(|| self.look_up(access.page));
        let was_full = std::mem::take(&mut self.was_full);
        let [s, q] = self.len;
        let known = &mut self.known[access.page.0 as usize];
        let q_max = self.frames - self.s_max;
        self.demoted[frame.0 as usize] = false;
        let (list, limits) = match incoming {
            Incoming::Returns => (S, true),
            Incoming::IsNew => {
                let (fills_s, fills_q) = (s < self.s_max && q == 0, q < q_max);
                *known = Known { count: 1, is_new: was_full || !(fills_s || fills_q) };
                (if !was_full && fills_s { S } else { Q }, known.is_new)
            }
        };
        let count = known.count;
        self.push(list, frame);
        self.counts.insert(frame, count);
        while limits && self.len[S] >= self.s_max && self.demote() {}
    }

    #[inline(always)]
    fn hit(&mut self, frame: Frame, _: &Access) {
        self.begin_access();
        self.rate.hits += 1;
        self.counts.raise(frame);
        if !self.in_q[frame.0 as usize] {
            return self.lists.move_newest(S, frame);
        }
        if self.demoted[frame.0 as usize] {
            let larger = self.s_max.saturating_add(step(self.new_len, self.demoted_len));
            self.s_max = larger.min(self.frames - 1);
        }
        self.take(frame);
        if self.len[S] >= self.s_max {
            self.demote();
        }
        self.push(S, frame);
    }

    #[inline(always)]
    fn evict(&mut self, incoming: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        self.incoming = incoming.map(|access| self.look_up(access.page));
        self.was_full = incoming.is_some();
        let choices = [self.lists.oldest(Q).or(self.lists.oldest(S)), self.counts.least_newest()];
        let expert = self.weights.choose(&mut self.random);
        let frame = choices[expert].expect("evict is never called on an empty cache");
        let page = frames.page(frame);
        if choices[LRU] != choices[LFU] && self.frames >= 2 {
            self.known[page.0 as usize].count = self.counts.get(frame);
            self.new_len += u64::from(expert == LRU && self.known[page.0 as usize].is_new);
            if self.histories.len(expert) == self.frames / 2
                && let Some(oldest) = self.histories.pop(expert)
            {
                self.new_len -= u64::from(expert == LRU && self.known[oldest.0 as usize].is_new);
            }
            self.histories.push(expert, page);
        }
        self.take(frame);
        self.counts.remove(frame);
        frames.expect_victims([self.lists.oldest(Q), self.counts.least_newest()]);
        victims.push(frame);
    }

    fn remove(&mut self, frame: Frame, _: &Frames) {
        self.take(frame);
        self.counts.remove(frame);
    }

    fn forget(&mut self, page: Page) {
        self.take_from_history(page);
    }

    #[inline(always)]
    fn expect_hit(&self, frame: Frame) {
        self.lists.prefetch(frame);
        self.counts.prefetch(frame);
    }

    #[inline(always)]
    fn expect_move(&self, frame: Frame) {
        self.lists.prefetch_neighbours(frame);
    }

    #[inline(always)]
    fn expect_miss(&self, page: Page) {
        self.histories.prefetch(page);
        prefetch_index(&self.known, page.0 as usize);
    }

    fn check(&self, frames: &Frames) {
        self.lists.check();
        self.counts.check();
        self.histories.check();
        self.weights.check();
        let mut demoted = 0;
        for list in [S, Q] {
            assert_eq!(self.lists.iter(list).count(), self.len[list] as usize);
            for frame in self.lists.iter(list) {
                assert_eq!(self.in_q[frame.0 as usize], list == Q);
                assert!(!self.demoted[frame.0 as usize] || list == Q, "demoted pages are in Q");
                demoted += u64::from(self.demoted[frame.0 as usize]);
            }
        }
        assert_eq!(demoted, self.demoted_len);
        assert!(self.s_max < self.frames, "Q has a page at least");
        for expert in [LRU, LFU] {
            assert!(self.histories.len(expert) <= self.frames / 2);
            assert!(self.histories.iter(expert).all(|page| frames.frame(page).is_none()));
        }
        let new = self.histories.iter(LRU).filter(|page| self.known[page.0 as usize].is_new);
        assert_eq!(new.count() as u64, self.new_len);
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use super::{LFU, LRU, Random, Weights};
    use crate::policy::naive::Naive;
    use flashsift_events::page::{Access, Page};
    use std::collections::BTreeSet;

    #[derive(Clone, Copy)]
    struct Entry {
        page: Page,
        count: u64,
        /// Of the last access.
        time: u64,
        demoted: bool,
        new: bool,
    }

    /// The authors' procedure over vectors, the least recent page first.
    pub(super) struct Cacheus {
        capacity: usize,
        s_limit: usize,
        s: Vec<Entry>,
        q: Vec<Entry>,
        histories: [Vec<Entry>; 2],
        weights: Weights,
        random: Random,
        time: u64,
        hits: u64,
        hit_rate: f64,
        reset_rate: f64,
        /// The learning rate now, at the last update, and at the one before.
        rates: [f64; 3],
        zero_count: u32,
        negative_count: u32,
        /// The facts that a history had of the page for which an eviction began.
        incoming: Option<Option<Entry>>,
        full: bool,
    }

    fn round(number: f64) -> f64 {
        (number * 1000.0).round() / 1000.0
    }

    fn take(pages: &mut Vec<Entry>, page: Page) -> Option<Entry> {
        let at = pages.iter().position(|entry| entry.page == page)?;
        Some(pages.remove(at))
    }

    /// max(1, ⌊own / max(1, other) + 0.5⌋)
    fn delta(own: usize, other: usize) -> usize {
        std::cmp::max(1, (own as f64 / std::cmp::max(1, other) as f64 + 0.5).floor() as usize)
    }

    impl Cacheus {
        pub(super) fn new(capacity: usize, random: Random) -> Self {
            let q_limit = std::cmp::max(1, (0.01 * capacity as f64 + 0.5).floor() as usize);
            let rate = f64::sqrt(2.0 * std::f64::consts::LN_2 / capacity as f64);
            Self {
                capacity,
                s_limit: capacity - q_limit,
                s: vec![],
                q: vec![],
                histories: [vec![], vec![]],
                weights: Weights::new(),
                random,
                time: 0,
                hits: 0,
                hit_rate: 0.0,
                reset_rate: rate.clamp(0.001, 1.0),
                rates: [rate, rate, 0.0],
                zero_count: 0,
                negative_count: 0,
                incoming: None,
                full: false,
            }
        }

        fn demoted(&self) -> usize {
            self.q.iter().filter(|entry| entry.demoted).count()
        }

        fn new_in_history(&self) -> usize {
            self.histories[LRU].iter().filter(|entry| entry.new).count()
        }

        fn tick(&mut self) {
            self.time += 1;
            if !self.time.is_multiple_of(self.capacity as u64) {
                return;
            }
            let hit_rate = round(self.hits as f64 / self.capacity as f64);
            let difference = round(hit_rate - self.hit_rate);
            let [mut rate, current, previous] = self.rates;
            let change = round(current) - round(previous);
            let direction = change * difference;
            if direction != 0.0 {
                let step = f64::abs(rate * change);
                rate = if direction > 0.0 {
                    f64::min(rate + step, 1.0)
                } else {
                    f64::max(rate - step, 0.001)
                };
                self.zero_count = 0;
                self.negative_count = 0;
            } else {
                if difference == 0.0 && hit_rate == 0.0 {
                    self.zero_count += 1;
                }
                if difference < 0.0 {
                    self.zero_count += 1;
                    self.negative_count += 1;
                }
                if difference <= 0.0 && self.zero_count >= 10 {
                    rate = self.reset_rate;
                    self.zero_count = 0;
                } else if difference < 0.0 && self.negative_count >= 10 {
                    rate = self.reset_rate;
                    self.negative_count = 0;
                } else if difference < 0.0 {
                    rate = match rate {
                        rate if rate >= 1.0 => 0.9,
                        rate if rate <= 0.001 => 0.005,
                        rate if self.random.unit() < 0.5 => f64::min(rate * 1.25, 1.0),
                        rate => f64::max(rate * 0.75, 0.001),
                    };
                }
            }
            self.rates = [rate, rate, current];
            self.hit_rate = hit_rate;
            self.hits = 0;
        }

        fn miss(&mut self, page: Page) -> Option<Entry> {
            self.tick();
            for expert in [LRU, LFU] {
                if let Some(entry) = take(&mut self.histories[expert], page) {
                    if expert == LRU && entry.new {
                        let q_limit = self.capacity - self.s_limit;
                        let larger = q_limit + delta(self.demoted(), self.new_in_history());
                        self.s_limit = self.capacity - larger.min(self.capacity - 1);
                    }
                    self.weights.punish(expert, self.rates[0]);
                    return Some(entry);
                }
            }
            None
        }

        fn demote(&mut self) {
            if !self.s.is_empty() {
                let entry = self.s.remove(0);
                self.q.push(Entry { demoted: true, ..entry });
            }
        }

        fn limit_stack(&mut self) {
            while self.s.len() >= self.s_limit && !self.s.is_empty() {
                self.demote();
            }
        }
    }

    impl Naive for Cacheus {
        fn insert(&mut self, access: &Access) {
            let history = self.incoming.take().unwrap_or_else(|| self.miss(access.page));
            let entry =
                Entry { page: access.page, count: 1, time: self.time, demoted: false, new: false };
            if let Some(Entry { count, .. }) = history {
                self.s.push(Entry { count, ..entry });
                self.limit_stack();
            } else if !self.full && self.s.len() < self.s_limit && self.q.is_empty() {
                self.s.push(entry);
            } else if !self.full && self.q.len() < self.capacity - self.s_limit {
                self.q.push(entry);
            } else {
                self.q.push(Entry { new: true, ..entry });
                self.limit_stack();
            }
            self.full = false;
        }
        fn hit(&mut self, access: &Access) {
            self.tick();
            self.hits += 1;
            let entry = match take(&mut self.s, access.page) {
                Some(entry) => entry,
                None => {
                    let demoted = self.demoted();
                    let entry = take(&mut self.q, access.page).unwrap();
                    if entry.demoted {
                        let larger = self.s_limit + delta(self.new_in_history(), demoted);
                        self.s_limit = larger.min(self.capacity - 1);
                    }
                    if self.s.len() >= self.s_limit {
                        self.demote();
                    }
                    entry
                }
            };
            let (count, time) = (entry.count + 1, self.time);
            self.s.push(Entry { count, time, demoted: false, ..entry });
        }
        fn evict(&mut self, incoming: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            self.incoming = incoming.map(|access| self.miss(access.page));
            self.full = incoming.is_some();
            let lru = self.q.first().or(self.s.first()).unwrap().page;
            let all = self.s.iter().chain(&self.q);
            let lfu = all.min_by_key(|entry| (entry.count, std::cmp::Reverse(entry.time))).unwrap();
            let lfu = lfu.page;
            let expert = self.weights.choose(&mut self.random);
            let page = [lru, lfu][expert];
            let entry = take(&mut self.s, page).or_else(|| take(&mut self.q, page)).unwrap();
            if lru != lfu {
                self.histories[expert].push(entry);
                if self.histories[expert].len() > self.capacity / 2 {
                    self.histories[expert].remove(0);
                }
            }
            vec![page]
        }
        fn remove(&mut self, page: Page) {
            take(&mut self.s, page);
            take(&mut self.q, page);
        }
        fn forget(&mut self, page: Page) {
            self.histories.iter_mut().for_each(|pages| {
                take(pages, page);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{RATE_MIN, Random, Rate};
    use crate::policy::{conformance::pushed_out, naive::Act};

    /// A hot set of 5 pages, each of them used three times between scans of 20 pages, in a cache of
    /// 10: LRU loses the hot set in each scan, Cacheus in few.
    #[test]
    fn keeps_a_hot_set_in_scans() {
        let mut acts = Vec::new();
        for round in 0..20 {
            for _ in 0..3 {
                acts.extend((0..5).map(Act::Read));
            }
            acts.extend((0..20).map(|n| Act::Read(10 + round * 20 + n)));
        }
        let gone = pushed_out("cacheus", 10, &acts);
        let lost = gone.iter().filter(|page| page.0 < 5).count();
        assert!(lost < 25, "{lost} of 100");
    }

    /// A rate of 0.5 that has grown from 0.4: more hits raise it by 0.5 · 0.1, fewer hits lower it.
    /// If it did not change, fewer hits turn it, and the tenth time it starts again.
    #[test]
    fn the_learning_rate_follows_the_hits() {
        let mut random = Random::new(1.0);
        let grown = |hits| {
            let first = Rate::new(100);
            Rate { now: 0.5, last: 0.5, before: 0.4, hit_rate: 0.2, hits, ..first }
        };
        let mut rate = grown(30);
        rate.adapt(&mut random);
        assert!((rate.now - 0.55).abs() < 1e-9 && rate.hit_rate == 0.3 && rate.hits == 0);
        let mut rate = grown(10);
        rate.adapt(&mut random);
        assert!((rate.now - 0.45).abs() < 1e-9);
        let mut same = Rate { before: 0.5, ..grown(10) };
        same.adapt(&mut random);
        assert!([0.375, 0.625].contains(&same.now));
        let mut last = Rate { before: 0.5, idle: 9, ..grown(10) };
        last.adapt(&mut random);
        assert_eq!(last.now, last.first);
        let mut least = Rate { now: RATE_MIN, last: RATE_MIN, before: RATE_MIN, ..grown(10) };
        least.adapt(&mut random);
        assert_eq!(least.now, 0.005);
    }
}
