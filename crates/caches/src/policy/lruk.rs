//! LRU-K: the page whose K-th last access is longest ago is evicted.
//!
//! O'Neil, O'Neil & Weikum, "The LRU-K Page Replacement Algorithm For Database Disk Buffering",
//! SIGMOD '93, Figure 2.1. HIST(p, i) is the time of the i-th last access to page p, in accesses.
//! The victim has the smallest HIST(p, K). Pages with fewer than K known accesses, whose backward
//! K-distance is infinite, leave first. The history of an evicted page is retained for a time.
//! Points that the paper leaves open, and our choices:
//!
//! - Among pages with an infinite distance the least recently used leaves: the paper's example of
//!   a subsidiary policy.
//! - The paper retains history for a period of time. Here `retained` says of how many evicted
//!   pages, as a share of the cache; the one evicted first is forgotten first. With `retained=0`,
//!   K = 2 gives the hits of libCacheSim 0.3.5's LRU_K on `cloudphysics` and `weboffice`, to the
//!   last one; it retains none. For K above 2, libCacheSim takes pages with an infinite distance in
//!   order of arrival.
//! - The Correlated Reference Period is 0: every access counts.
//! - A removed page is forgotten. A drain takes pages in the same order.
//!
//! A heap orders the pages with K accesses. A hit leaves its entry, whose time is then too small;
//! an eviction that meets such an entry puts it back with the page's present time. A removal leaves
//! its entry, too, for the next page in the frame. If that page has an earlier time, it gets an
//! entry of its own, and the old one is dead.

use super::{Build, Kind, Policy, PolicySpec, Setup};
use crate::cache::{Frames, Victims};
use flashsift_events::{
    page::{Access, Frame, Page},
    params::{self, Param},
    structure::{Ghosts, Lists},
};
use prefetch_index::prefetch_index;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, binary_heap::PeekMut},
};

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "lruk",
    paper: "O'Neil, O'Neil & Weikum, \"The LRU-K Page Replacement Algorithm For Database Disk \
        Buffering\", SIGMOD '93",
    what: "the page whose K-th last access is longest ago leaves",
    goal: "hits, by the recency of the K-th last access",
    time: "a hit O(1), an eviction amortised O(log n) of a heap",
    memory: "33 bytes a frame, 4 + 8 K bytes a page of the trace, 4 bytes a remembered page",
    memory_bytes: |size| 33 * size.frames + 28 * size.pages,
    when: "where pages are used at different, steady rates, as those of an index and of its table",
    params: PARAMS,
    kind: Kind::Online,
    slow: false,
    by_place: <LruK as Policy>::WANTS_ADDRESSES,
    policy: super::only::<LruK>,
    objects: None,
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| Box::new(model::LruK::new(k(setup), retained(setup) as usize)),
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<LruK>,
};

const PARAMS: &[Param] = &[
    Param {
        name: "k",
        what: "K, the number of accesses that order pages",
        kind: params::ParamKind::Number { default: 2.0, min: 1.0, max: 8.0 },
    },
    Param {
        name: "retained",
        what: "how many evicted pages' history is retained, as a share",
        kind: params::ParamKind::Number { default: 1.0, min: 0.0, max: 8.0 },
    },
];

fn k(setup: &Setup<'_>) -> usize {
    setup.params.number(PARAMS, "k") as usize
}

fn retained(setup: &Setup<'_>) -> u32 {
    (setup.params.number(PARAMS, "retained") * f64::from(setup.frames)) as u32
}

pub(super) struct LruK {
    k: usize,
    /// Number of accesses until now.
    now: u64,
    /// HIST: K times a page, the last access first; 0 if there was none.
    times: Vec<u64>,
    /// Resident pages with fewer than K times, the least recent first.
    infinite: Lists<Frame, 1>,
    /// Whether a resident page has K times.
    is_finite: Vec<bool>,
    /// For each such page an entry, with its K-th time or an earlier one, and dead entries.
    order: BinaryHeap<Reverse<(u64, u32)>>,
    /// Time of a frame's entry in `order`, 0 if it has none. Any other entry of it is dead.
    entry: Vec<u64>,
    retained: Ghosts<1>,
    retained_max: u32,
}

impl Build for LruK {
    fn build(setup: &Setup<'_>) -> Self {
        let (k, slots) = (k(setup), setup.slots());
        Self {
            k,
            now: 0,
            times: vec![0; k * setup.pages as usize],
            infinite: Lists::new(slots),
            is_finite: vec![false; slots as usize],
            order: BinaryHeap::with_capacity(slots as usize),
            entry: vec![0; slots as usize],
            retained: Ghosts::new(setup.pages),
            retained_max: retained(setup),
        }
    }
}

impl LruK {
    #[inline(always)]
    fn times(&mut self, page: Page) -> &mut [u64] {
        &mut self.times[page.0 as usize * self.k..][..self.k]
    }

    #[inline(always)]
    fn kth_time(&self, page: Page) -> u64 {
        self.times[page.0 as usize * self.k + self.k - 1]
    }

    #[inline(always)]
    fn count(&mut self, page: Page) {
        self.now += 1;
        let now = self.now;
        let times = self.times(page);
        times.copy_within(..times.len() - 1, 1);
        times[0] = now;
    }

    #[inline(always)]
    fn make_finite(&mut self, frame: Frame, page: Page) {
        self.is_finite[frame.0 as usize] = true;
        let (time, entry) = (self.kth_time(page), self.entry[frame.0 as usize]);
        if entry == 0 || entry > time {
            self.entry[frame.0 as usize] = time;
            self.order.push(Reverse((time, frame.0)));
            if self.order.len() > 2 * self.entry.len() {
                self.order.retain(|Reverse((time, frame))| self.entry[*frame as usize] == *time);
            }
        }
    }

    /// Takes the page with the smallest K-th time.
    #[inline(always)]
    fn pop(&mut self, frames: &Frames) -> Option<Frame> {
        while let Some(mut top) = self.order.peek_mut() {
            let Reverse((time, frame)) = *top;
            let (is_alive, at) = (self.entry[frame as usize] == time, frame as usize);
            if is_alive && self.is_finite[at] {
                let page = frames.page(Frame(frame));
                let present = self.times[page.0 as usize * self.k + self.k - 1];
                if present > time {
                    self.entry[at] = present;
                    *top = Reverse((present, frame));
                    continue;
                }
            }
            PeekMut::pop(top);
            if is_alive {
                self.entry[at] = 0;
                if std::mem::take(&mut self.is_finite[at]) {
                    return Some(Frame(frame));
                }
            }
        }
        None
    }
}

impl Policy for LruK {
    const OFFLINE: bool = false;

    #[inline(always)]
    fn insert(&mut self, frame: Frame, access: &Access) {
        // A page with retained history has its times, any other none.
        self.retained.remove(access.page);
        self.count(access.page);
        if self.kth_time(access.page) > 0 {
            self.make_finite(frame, access.page);
        } else {
            self.is_finite[frame.0 as usize] = false;
            self.infinite.push_newest(0, frame);
        }
    }

    #[inline(always)]
    fn hit(&mut self, frame: Frame, access: &Access) {
        self.count(access.page);
        if self.is_finite[frame.0 as usize] {
            return;
        }
        if self.kth_time(access.page) > 0 {
            self.infinite.remove(frame);
            self.make_finite(frame, access.page);
        } else {
            self.infinite.move_newest(0, frame);
        }
    }

    #[inline(always)]
    fn evict(&mut self, incoming: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        // The history of the incoming page is needed, and takes no entry from others.
        if let Some(access) = incoming {
            self.retained.remove(access.page);
        }
        let frame = match self.infinite.oldest(0) {
            Some(frame) => {
                self.infinite.remove(frame);
                frames.expect_victims(self.infinite.oldest_two(0));
                frame
            }
            None => self.pop(frames).expect("evict is never called on an empty cache"),
        };
        self.retained.push(0, frames.page(frame));
        if self.retained.len(0) > self.retained_max
            && let Some(page) = self.retained.pop(0)
        {
            self.times(page).fill(0);
        }
        victims.push(frame);
    }

    fn remove(&mut self, frame: Frame, frames: &Frames) {
        if !std::mem::take(&mut self.is_finite[frame.0 as usize]) {
            self.infinite.remove(frame);
        }
        self.times(frames.page(frame)).fill(0);
    }

    fn forget(&mut self, page: Page) {
        self.retained.remove(page);
        self.times(page).fill(0);
    }

    #[inline(always)]
    fn expect_access(&self, page: Page) {
        prefetch_index(&self.times, page.0 as usize * self.k);
    }

    #[inline(always)]
    fn expect_miss(&self, page: Page) {
        self.retained.prefetch(page);
    }

    fn check(&self, frames: &Frames) {
        self.infinite.check();
        self.retained.check();
        assert!(self.retained.len(0) <= self.retained_max);
        for frame in self.infinite.iter(0) {
            assert!(!self.is_finite[frame.0 as usize]);
            assert_eq!(self.kth_time(frames.page(frame)), 0);
        }
        let alive = |entry: &(u64, u32)| self.entry[entry.1 as usize] == entry.0;
        let mut entries: Vec<_> = self.order.iter().map(|entry| entry.0).filter(alive).collect();
        let has_entry = (0..).zip(&self.entry).filter(|(_, time)| **time > 0);
        entries.sort_by_key(|(_, frame)| *frame);
        assert!(has_entry.map(|(frame, time)| (*time, frame)).eq(entries), "one entry a frame");
        for at in (0..self.entry.len()).filter(|at| self.is_finite[*at]) {
            let time = self.kth_time(frames.page(Frame(at as u32)));
            assert!(self.entry[at] > 0 && self.entry[at] <= time);
        }
        for (page, times) in self.times.chunks(self.k).enumerate() {
            let page = Page(page as u32);
            let known = frames.frame(page).is_some() || self.retained.queue_of(page).is_some();
            assert_eq!(known, times[0] > 0, "a page has times if it is resident or retained");
        }
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use crate::policy::naive::Naive;
    use flashsift_events::page::{Access, Page};
    use std::collections::BTreeSet;

    /// Pages with the times of their accesses, the last first.
    pub(super) struct LruK {
        k: usize,
        retained_max: usize,
        now: u64,
        resident: Vec<(Page, Vec<u64>)>,
        /// The page evicted first is first.
        retained: Vec<(Page, Vec<u64>)>,
        /// The incoming page's history, taken before an eviction for it.
        history: Option<Vec<u64>>,
    }

    impl LruK {
        pub(super) fn new(k: usize, retained_max: usize) -> Self {
            let (resident, retained) = (vec![], vec![]);
            Self { k, retained_max, now: 0, resident, retained, history: None }
        }

        fn take_history(&mut self, page: Page) -> Option<Vec<u64>> {
            let at = self.retained.iter().position(|(p, _)| *p == page)?;
            Some(self.retained.remove(at).1)
        }
    }

    impl Naive for LruK {
        fn insert(&mut self, access: &Access) {
            self.now += 1;
            let history = self.history.take().or_else(|| self.take_history(access.page));
            let mut times = history.unwrap_or_default();
            times.insert(0, self.now);
            self.resident.push((access.page, times));
        }
        fn hit(&mut self, access: &Access) {
            self.now += 1;
            let found = self.resident.iter_mut().find(|(page, _)| *page == access.page);
            found.unwrap().1.insert(0, self.now);
        }
        fn evict(&mut self, incoming: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            self.history = incoming.and_then(|access| self.take_history(access.page));
            // Pages without a K-th time come first, in order of their last access.
            let rank = |times: &[u64]| (times.get(self.k - 1).copied().unwrap_or(0), times[0]);
            let least = self.resident.iter().map(|(_, times)| rank(times)).min().unwrap();
            let at = self.resident.iter().position(|(_, times)| rank(times) == least).unwrap();
            let (page, times) = self.resident.remove(at);
            self.retained.push((page, times));
            if self.retained.len() > self.retained_max {
                self.retained.remove(0);
            }
            vec![page]
        }
        fn remove(&mut self, page: Page) {
            self.resident.retain(|(p, _)| *p != page);
        }
        fn forget(&mut self, page: Page) {
            self.retained.retain(|(p, _)| *p != page);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::{
        conformance::{assert_coincide, pushed_out},
        naive::Act,
    };

    #[test]
    fn is_lru_with_k_1() {
        assert_coincide("lruk:k=1", "lru", |act| act);
    }

    /// Accesses at times 1 to 8: HIST(1, 2) is 1 and HIST(2, 2) is 3. 3 and 4 have been accessed
    /// once and leave first, 3 before 4, although 1 was accessed before both. When 3 comes back, it
    /// has two accesses if its history was retained: then 5, which has one, leaves for 6. Without
    /// its history 3 has one access as well, and leaves last of the two.
    #[test]
    fn pages_with_fewer_accesses_leave_first() {
        let acts = [1, 1, 2, 2, 3, 4, 5, 3, 6, 7].map(Act::Read);
        let gone = |text| pushed_out(text, 4, &acts).iter().map(|page| page.0).collect::<Vec<_>>();
        assert_eq!(gone("lruk"), [3, 4, 5, 6]);
        assert_eq!(gone("lruk:retained=0"), [3, 4, 5, 3]);
    }
}
