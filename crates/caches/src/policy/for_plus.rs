//! FOR+: the weights of FOR, computed for two pages only.
//!
//! Lv et al., "Operation-aware buffer management in flash-based systems", SIGMOD '11, whose
//! abstract promises "an efficient implementation FOR+ with the time complexity of O(1) for each
//! operation". The form here is ours (two cost-weighted lists). It keeps the idea of the paper but
//! does not evict the same pages:
//!
//! - There are two LRU lists: one of pages that were only read since they came in, one of pages
//!   that were also written. Any access makes a page the most recent of its list; the first write
//!   moves it to the other list.
//! - Only the least recent pages of the two lists are compared, by [`super::for_exact`]'s weight Σ
//!   cost_o / (α·IOD_o + (1−α)·R_o). Here distances count all operations instead of the distinct
//!   ones, from the time at which the page came in. The page with the smaller weight is evicted;
//!   among equals, the one accessed less recently.
//!
//! Within a list the pages have costs of the same kind, so recency is a fair order. Between the
//! lists, the weights determine how much longer a written page stays. A write-back that keeps the
//! page is not an operation and moves nothing. A removal changes no other page. A drain evicts by
//! the same rule, and empties one list after the other has become empty.

use super::{
    Build, Kind, Policy, PolicySpec, Setup,
    for_exact::{ALPHA, READ, WRITE, Weights, index},
};
use crate::cache::{Frames, Victims};
use flashsift_events::{
    page::{Access, Frame},
    structure::Lists,
};
use prefetch_index::prefetch_index;

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "for-plus",
    paper: "after Lv, Cui, He & Chen, \"Operation-aware buffer management in flash-based systems\", \
        SIGMOD '11",
    what: "FOR in constant time: of the least recent read-only and written pages, the cheaper one \
        leaves",
    goal: "the cost of reads and writes, like `for`, but by looking at two pages only",
    time: "O(1); a hit moves a list node",
    memory: "40 bytes a frame",
    memory_bytes: |size| 40 * size.frames,
    when: "where the costs of a read and a write are known (`read`, `write`)",
    params: &[ALPHA, READ, WRITE],
    kind: Kind::Online,
    slow: false,
    by_place: <ForPlus as Policy>::WANTS_ADDRESSES,
    policy: super::only::<ForPlus>,
    objects: None,
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| Box::new(model::ForPlus::new(Weights::new(setup))),
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<ForPlus>,
};

/// Operations of one type on a page.
#[derive(Clone, Copy, Default)]
struct History {
    /// Number of the last operation; 0 if there was none.
    last: u64,
    /// Distance from the operation before to the last one; 0 if there was only one.
    iod: u64,
}

/// Lists: pages only read, and pages written.
const WRITTEN: usize = 1;

pub(super) struct ForPlus {
    lists: Lists<Frame, 2>,
    histories: Vec<[History; 2]>,
    /// Number of operations so far.
    now: u64,
    weights: Weights,
}

impl Build for ForPlus {
    fn build(setup: &Setup<'_>) -> Self {
        Self {
            lists: Lists::new(setup.slots()),
            histories: vec![Default::default(); setup.slots() as usize],
            now: 0,
            weights: Weights::new(setup),
        }
    }
}

impl ForPlus {
    #[inline(always)]
    fn list_of(history: &[History; 2]) -> usize {
        usize::from(history[WRITTEN].last != 0)
    }

    /// Returns the frame's weight, then the number of its last operation.
    #[inline(always)]
    fn weight(&self, frame: Frame) -> (f64, u64) {
        let history = &self.histories[frame.0 as usize];
        let mut weight = 0.0;
        for (op, History { last, iod }) in history.iter().enumerate() {
            if *last != 0 {
                let iod = (*iod != 0).then_some(*iod as f64);
                weight += self.weights.term(op, iod, (self.now - last) as f64);
            }
        }
        (weight, history[0].last.max(history[1].last))
    }
}

impl Policy for ForPlus {
    const OFFLINE: bool = false;

    #[inline(always)]
    fn insert(&mut self, frame: Frame, access: &Access) {
        self.now += 1;
        let op = index(access.op);
        let mut history = [History::default(); 2];
        history[op].last = self.now;
        self.histories[frame.0 as usize] = history;
        self.lists.push_newest(op, frame);
    }

    #[inline(always)]
    fn hit(&mut self, frame: Frame, access: &Access) {
        self.now += 1;
        let history = &mut self.histories[frame.0 as usize];
        let History { last, iod } = &mut history[index(access.op)];
        if *last != 0 {
            *iod = self.now - *last;
        }
        *last = self.now;
        self.lists.move_newest(Self::list_of(history), frame);
    }

    #[inline(always)]
    fn evict(&mut self, _: Option<&Access>, _: &Frames, victims: &mut Victims) {
        let frame = match [0, WRITTEN].map(|list| self.lists.oldest(list)) {
            [Some(read), Some(written)] => {
                if self.weight(read) < self.weight(written) {
                    read
                } else {
                    written
                }
            }
            [read, written] => read.or(written).expect("evict is never called on an empty cache"),
        };
        self.lists.remove(frame);
        victims.push(frame);
    }

    fn remove(&mut self, frame: Frame, _: &Frames) {
        self.lists.remove(frame);
    }

    #[inline(always)]
    fn expect_hit(&self, frame: Frame) {
        self.lists.prefetch(frame);
        prefetch_index(&self.histories, frame.0 as usize);
    }

    fn check(&self, _: &Frames) {
        self.lists.check();
        for list in [0, WRITTEN] {
            let last = |frame: &Frame| self.histories[frame.0 as usize].map(|history| history.last);
            let frames: Vec<[u64; 2]> = self.lists.iter(list).map(|frame| last(&frame)).collect();
            assert!(frames.iter().all(|[_, written]| (*written != 0) == (list == WRITTEN)));
            assert!(
                frames.is_sorted_by_key(|last| last.iter().max().copied()),
                "a list is in order of access"
            );
        }
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use super::Weights;
    use crate::policy::naive::Naive;
    use flashsift_events::page::{Access, Op, Page};
    use std::collections::BTreeSet;

    pub(super) struct ForPlus {
        weights: Weights,
        now: usize,
        /// Pages and their numbered operations since they came in, the least recently accessed
        /// first.
        pages: Vec<(Page, Vec<(Op, usize)>)>,
    }

    impl ForPlus {
        pub(super) fn new(weights: Weights) -> Self {
            Self { weights, now: 0, pages: Vec::new() }
        }

        fn weight(&self, operations: &[(Op, usize)]) -> f64 {
            let mut weight = 0.0;
            for (op, cost) in [Op::Read, Op::Write].into_iter().zip(self.weights.cost) {
                let mut latest =
                    operations.iter().rev().filter(|(o, _)| *o == op).map(|(_, at)| *at);
                if let Some(last) = latest.next() {
                    let r = self.now - last;
                    let iod = latest.next().map_or(r, |before| last - before);
                    weight += cost
                        / (self.weights.alpha * iod as f64 + (1.0 - self.weights.alpha) * r as f64);
                }
            }
            weight
        }
    }

    impl Naive for ForPlus {
        fn insert(&mut self, access: &Access) {
            self.now += 1;
            let at = self.pages.iter().position(|(page, _)| *page == access.page);
            let mut operations = at.map_or_else(Vec::new, |at| self.pages.remove(at).1);
            operations.push((access.op, self.now));
            self.pages.push((access.page, operations));
        }
        fn hit(&mut self, access: &Access) {
            self.insert(access);
        }
        fn evict(&mut self, _: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            let written = |at: &usize| self.pages[*at].1.iter().any(|(op, _)| *op == Op::Write);
            let read_tail = (0..self.pages.len()).find(|at| !written(at));
            let write_tail = (0..self.pages.len()).find(written);
            let mut tails: Vec<usize> = read_tail.into_iter().chain(write_tail).collect();
            tails.sort_unstable();
            // Sorted by recency, so that the first of equal weights is the less recent.
            let weights: Vec<f64> =
                tails.iter().map(|at| self.weight(&self.pages[*at].1)).collect();
            let victim =
                if weights.len() == 2 && weights[1] < weights[0] { tails[1] } else { tails[0] };
            vec![self.pages.remove(victim).0]
        }
        fn remove(&mut self, page: Page) {
            self.pages.retain(|(p, _)| *p != page);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::{
        conformance::{assert_coincide, pushed_out, reads_only, writes_only},
        naive::Act::{self, Read, Write},
    };
    use flashsift_events::page::Page;

    /// The policy is LRU with one list, and with two lists whose weights depend on recency only.
    #[test]
    fn is_lru_if_costs_are_equal() {
        assert_coincide("for-plus", "lru", reads_only);
        assert_coincide("for-plus", "lru", writes_only);
        let one_type_a_page = |act| match act {
            Read(page) | Write(page) if page % 2 == 0 => Read(page),
            Read(page) | Write(page) => Write(page),
            act => act,
        };
        assert_coincide("for-plus:alpha=0,read=7,write=7", "lru", one_type_a_page);
    }

    /// A page written once outlives pages read once until its distance is eight times theirs.
    #[test]
    fn a_written_page_may_stay_eight_times_as_long() {
        // Three frames: page 0 is written, the others are read once each. When a page comes in, the
        // less recent of the two read pages has R = 1 and weight 100, and page 0 has weight 800 /
        // R. The weights are equal at R = 8, where page 0 is the less recent.
        let acts: Vec<Act> = std::iter::once(Write(0)).chain((1..20).map(Read)).collect();
        let gone = pushed_out("for-plus", 3, &acts);
        assert_eq!(gone[..6], [1, 2, 3, 4, 5, 6].map(Page));
        assert_eq!(gone.iter().position(|page| *page == Page(0)), Some(6));
    }
}
