//! Belady with costs: clean pages are evicted first, if their next use is far enough away. An
//! offline heuristic, not a bound.
//!
//! A heuristic stands in for a bound because choosing evictions so that reads and writes together
//! cost least is NP-complete (Beckmann et al., "Writeback-Aware Caching", APOCS 2020). Each page
//! has a price, the cost of its absence: `read`, plus `write` if the page is dirty. The policy
//! evicts the page with the greatest (next use − now) / price; among equals the clean one, then the
//! lowest page. A page that is never used again is infinitely far; a clean one is evicted before a
//! dirty one. Every next use is priced as a read, because the policy knows the time of a future
//! access but not its type.
//!
//! A truncated or deleted page counts as never used again, although its absence would save a write.
//! A page that is written back turns clean. In a drain no page is used again, so clean pages are
//! evicted first, then dirty ones, in ascending order.
//!
//! Among pages of the same price only the farthest can be the victim, so there are two heaps. An
//! entry that an access, a removal or a write-back has made stale stays in its heap and is
//! recognised at the top.

use super::{Build, Kind, Policy, PolicySpec, Setup};
use crate::cache::{Frames, Victims};
use flashsift_events::{
    page::{Access, Frame, NEVER, Op, Page},
    params::{self, Param},
};
use std::{cmp::Reverse, collections::BinaryHeap};

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "belady-cost",
    paper: "a heuristic after Belady 1966",
    what: "the page with the farthest next use for its cost leaves; a heuristic, not a bound",
    goal: "the cost of reads and writes, knowing the future",
    time: "O(log frames)",
    memory: "76 bytes a frame, 4 bytes an access of the trace",
    memory_bytes: |size| 76 * size.frames,
    when: "to see how many writes could be saved with the future known; another policy may save \
        more",
    params: PARAMS,
    kind: Kind::Heuristic,
    slow: false,
    by_place: <BeladyCost as Policy>::WANTS_ADDRESSES,
    policy: super::only::<BeladyCost>,
    objects: None,
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| {
        let [read, write] = costs(setup);
        Box::new(model::BeladyCost { pages: Vec::new(), now: 0, read, write })
    },
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<BeladyCost>,
};

const PARAMS: &[Param] = &[
    Param {
        name: "read",
        what: "cost of a page read",
        kind: params::ParamKind::Number { default: 100.0, min: 0.0, max: 1e6 },
    },
    Param {
        name: "write",
        what: "cost of a page written",
        kind: params::ParamKind::Number { default: 800.0, min: 0.0, max: 1e6 },
    },
];

fn costs(setup: &Setup<'_>) -> [f64; 2] {
    ["read", "write"].map(|name| setup.params.number(PARAMS, name))
}

/// State of a frame that is in use.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Known {
    next_use: u32,
    page: Page,
    dirty: bool,
}

pub(super) struct BeladyCost {
    /// Clean and dirty pages: farthest next use first, then the lowest page.
    heaps: [BinaryHeap<(u32, Reverse<Page>)>; 2],
    known: Vec<Option<Known>>,
    /// Number of accesses so far, which is the position of the next one.
    now: u32,
    read: f64,
    write: f64,
}

impl Build for BeladyCost {
    fn build(setup: &Setup<'_>) -> Self {
        let [read, write] = costs(setup);
        Self {
            heaps: Default::default(),
            known: vec![None; setup.slots() as usize],
            now: 0,
            read,
            write,
        }
    }
}

impl BeladyCost {
    #[inline]
    fn know(&mut self, frame: Frame, known: Known) {
        self.known[frame.0 as usize] = Some(known);
        let heap = &mut self.heaps[usize::from(known.dirty)];
        heap.push((known.next_use, Reverse(known.page)));
        if heap.len() > 4 * self.known.len() + 64 {
            let alive = self.known.iter().flatten().filter(|other| other.dirty == known.dirty);
            *heap = alive.map(|known| (known.next_use, Reverse(known.page))).collect();
        }
    }

    /// Returns the farthest clean or dirty page, after dropping stale entries.
    #[inline]
    fn farthest(&mut self, dirty: bool, frames: &Frames) -> Option<(u32, Frame)> {
        loop {
            let (next_use, Reverse(page)) = *self.heaps[usize::from(dirty)].peek()?;
            if let Some(frame) = frames.frame(page)
                && self.known[frame.0 as usize] == Some(Known { next_use, page, dirty })
            {
                return Some((next_use, frame));
            }
            self.heaps[usize::from(dirty)].pop();
        }
    }

    /// Whether evicting the clean page is the better choice.
    #[inline]
    fn prefers_clean(&self, clean_next: u32, dirty_next: u32) -> bool {
        let far = |next: u32| f64::from(next.saturating_sub(self.now));
        clean_next == NEVER
            || (dirty_next != NEVER
                && far(clean_next) * (self.read + self.write) >= far(dirty_next) * self.read)
    }
}

impl Policy for BeladyCost {
    const OFFLINE: bool = true;

    fn insert(&mut self, frame: Frame, access: &Access) {
        self.hit(frame, access);
    }

    fn hit(&mut self, frame: Frame, access: &Access) {
        self.now += 1;
        let dirty = access.was_dirty || access.op == Op::Write;
        self.know(frame, Known { next_use: access.next_use, page: access.page, dirty });
    }

    fn evict(&mut self, _: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        let (clean, dirty) = (self.farthest(false, frames), self.farthest(true, frames));
        let (frame, is_dirty) = match (clean, dirty) {
            (Some((_, frame)), None) => (frame, false),
            (None, Some((_, frame))) => (frame, true),
            (Some((clean_next, frame)), Some((dirty_next, _)))
                if self.prefers_clean(clean_next, dirty_next) =>
            {
                (frame, false)
            }
            (Some(_), Some((_, frame))) => (frame, true),
            (None, None) => panic!("evict is never called on an empty cache"),
        };
        self.heaps[usize::from(is_dirty)].pop();
        self.known[frame.0 as usize] = None;
        victims.push(frame);
    }

    fn remove(&mut self, frame: Frame, _: &Frames) {
        self.known[frame.0 as usize] = None;
    }

    fn cleaned(&mut self, frame: Frame) {
        let known = self.known[frame.0 as usize].expect("a page that is cleaned is resident");
        self.know(frame, Known { dirty: false, ..known });
    }

    fn check(&self, frames: &Frames) {
        for heap in &self.heaps {
            assert!(heap.len() <= 4 * self.known.len() + 64, "stale entries are removed in time");
        }
        let in_heaps = self.heaps.each_ref().map(|heap| heap.iter().copied().collect::<Vec<_>>());
        for (frame, known) in self.known.iter().enumerate() {
            if let Some(Known { next_use, page, dirty }) = *known {
                let frame = Frame(frame as u32);
                assert_eq!((frames.frame(page), frames.dirty(frame)), (Some(frame), dirty));
                assert!(in_heaps[usize::from(dirty)].contains(&(next_use, Reverse(page))));
            }
        }
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use crate::policy::naive::Naive;
    use flashsift_events::page::{Access, NEVER, Page};
    use std::{cmp::Reverse, collections::BTreeSet};

    pub(super) struct BeladyCost {
        pub(super) pages: Vec<(Page, u32)>,
        pub(super) now: u32,
        pub(super) read: f64,
        pub(super) write: f64,
    }

    impl Naive for BeladyCost {
        fn insert(&mut self, access: &Access) {
            self.now += 1;
            self.pages.push((access.page, access.next_use));
        }
        fn hit(&mut self, access: &Access) {
            self.remove(access.page);
            self.insert(access);
        }
        fn evict(&mut self, _: Option<&Access>, dirty: &BTreeSet<Page>) -> Vec<Page> {
            // Distances over prices are compared as products, which are exact and allow a price of
            // 0.
            let better = |(page, next): (Page, u32), (other, other_next): (Page, u32)| {
                let price = |page| self.read + if dirty.contains(&page) { self.write } else { 0.0 };
                let tie = |page| (dirty.contains(&page), page);
                match (next == NEVER, other_next == NEVER) {
                    (true, true) => tie(page) < tie(other),
                    (never, other_never) if never || other_never => never,
                    _ => {
                        let distance = f64::from(next - self.now) * price(other);
                        let other_distance = f64::from(other_next - self.now) * price(page);
                        // Among clean pages, or among dirty pages, the farther is the better victim
                        // even if reads cost nothing.
                        if dirty.contains(&page) == dirty.contains(&other) {
                            (next, Reverse(page)) > (other_next, Reverse(other))
                        } else {
                            distance > other_distance
                                || (distance == other_distance && tie(page) < tie(other))
                        }
                    }
                }
            };
            let best = self
                .pages
                .iter()
                .copied()
                .reduce(|best, page| if better(page, best) { page } else { best });
            let (page, _) = best.unwrap();
            self.remove(page);
            vec![page]
        }
        fn remove(&mut self, page: Page) {
            self.pages.retain(|(p, _)| *p != page);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::{
        ALL, PolicySpec, Selection, Setup,
        conformance::{history, reads_only, writes_only},
        naive::{self, Act, Placing},
    };
    use flashsift_events::{dice::Dice, params::Params};

    fn run(text: &str, frames: u32, pages: u32, acts: &[Act]) -> Vec<naive::Effect> {
        let chosen = Selection::parse(text).unwrap();
        let setup = Setup { frames, pages, runs: &[], params: &chosen.params, bytes: None };
        let mut cache = (chosen.spec.cache)(&setup, Placing::Fixed);
        acts.iter().zip(naive::next_uses(acts)).map(|(act, next)| cache.step(*act, next)).collect()
    }

    /// With the same price for all pages, the policy is Belady's MIN.
    #[test]
    fn is_belady_if_prices_are_equal() {
        for seed in 0..300 {
            let mut dice = Dice::new(seed);
            let pages = 2 + dice.below(50);
            let frames = 1 + dice.below(pages);
            let acts = history(&mut dice, pages, 300);
            for map in [reads_only, writes_only] {
                let acts: Vec<Act> = acts.iter().copied().map(map).collect();
                assert_eq!(
                    run("belady-cost", frames, pages, &acts),
                    run("belady", frames, pages, &acts)
                );
            }
        }
    }

    /// A dirty page that costs nine times as much stays until its next use is nine times as far
    /// away.
    #[test]
    fn a_dirty_page_stays_until_its_next_use_is_as_far_as_its_price() {
        for distance in 1..40 {
            // Position 2 reads page 2. Page 1 is clean and used at 4, which is 2 ahead. Page 0 is
            // dirty and used at 2 + distance.
            let mut acts =
                vec![Act::Write(0), Act::Read(1), Act::Read(2), Act::Read(2), Act::Read(1)];
            if distance < 3 {
                continue;
            }
            acts.extend((0..distance - 3).map(|_| Act::Read(1)));
            acts.push(Act::Read(0));
            let kept = run("belady-cost", 2, 3, &acts)[2].written.is_empty();
            assert_eq!(kept, distance <= 18, "{distance}");
        }
    }

    /// On mixed histories, in total, the heuristic costs less than any online policy: its purpose.
    // Promises: Policies 2.
    #[test]
    fn costs_less_than_online_policies() {
        let cost = |spec: &PolicySpec| -> usize {
            let histories = (0..100).map(|seed| {
                let mut dice = Dice::new(seed);
                let acts = history(&mut dice, 60, 400);
                let params = Params::default();
                let setup =
                    Setup { frames: 20, pages: 60, runs: &[], params: &params, bytes: None };
                let mut cache = (spec.cache)(&setup, Placing::Fixed);
                let mut cost = 0;
                for (act, next) in acts.iter().zip(naive::next_uses(&acts)) {
                    let effect = cache.step(*act, next);
                    cost += effect.fetched.len() * 100 + effect.written.len() * 800;
                }
                cost + cache.drain().written.len() * 800
            });
            histories.sum()
        };
        let find = |name| ALL.iter().find(|spec| spec.name == name).unwrap();
        let least = cost(find("belady-cost"));
        for spec in ALL.iter().filter(|spec| spec.name != "belady-cost") {
            assert!(least < cost(spec), "{} costs less", spec.name);
        }
    }
}
