//! FOR: the page whose next read or write would cost least to miss is evicted, estimated from the
//! distances between its past operations.
//!
//! Lv et al., "Operation-aware buffer management in flash-based systems", SIGMOD '11; SpatialClock
//! (see `spatialclock`) §2 and §5.1.2 (α = 0.5, 100 µs per read, 800 µs per write). An operation is
//! a (page, type). For a page and each type o of operation that it has had, IOD is the number of
//! distinct operations between its last two o-operations, including the later one, and R is the
//! number since the last one. The weight of the page is Σ cost_o / (α·IOD + (1−α)·R), with IOD := R
//! for a type that it has had once. The page with the least weight is evicted. Points that the
//! papers leave open, and our choices:
//!
//! - Distinct operations are counted over all pages, resident or not. The history of a page also
//!   survives its eviction: when the page comes back, earlier operations count. `history=resident`
//!   forgets them at the eviction.
//! - The history of a removed page is forgotten, resident or not. Its operations still count for
//!   other pages, because they were performed.
//! - A page just accessed has R = 0, and weight ∞ if it has had that type once. Among equal weights
//!   the least recently accessed page is evicted.
//! - A write-back is not an operation. A drain evicts by the same rule, while no operations are
//!   performed.
//!
//! Each operation has a mark at the position of its last time, and R is the number of marks after
//! that position: a bitmap with a Fenwick tree over its words, O(log n) for n different operations.
//! Weights fall at different rates, so no order of pages lasts. An eviction therefore sums up the
//! tree and examines every frame: O(frames + n / 16). That is 0.4 ms at 100,000 frames and n =
//! 1,000,000; `for-plus` is O(1).

use super::{Build, Kind, Policy, PolicySpec, Setup};
use crate::cache::{Frames, Victims};
use flashsift_events::{
    page::{Access, Frame, Op, Page},
    params::{self, Param},
};

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "for",
    paper: "Lv, Cui, He & Chen, \"Operation-aware buffer management in flash-based systems\", SIGMOD '11",
    what: "the page with the least read and write cost for its reuse distances leaves; exact and \
        slow",
    goal: "the cost of reads and writes: distances between operations, weighted by their costs",
    time: "O(log n) a hit for n different operations so far, O(frames + n/16) an eviction: slow in large \
        caches",
    memory: "17 bytes a page of the trace, 16 bytes a frame",
    memory_bytes: |size| 16 * size.frames + 18 * size.pages,
    when: "to repeat published figures and to check for-plus, which is fast",
    params: &[ALPHA, READ, WRITE, HISTORY],
    kind: Kind::Online,
    slow: true,
    by_place: <For as Policy>::WANTS_ADDRESSES,
    policy: super::only::<For>,
    objects: None,
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| {
        Box::new(model::For::new(Weights::new(setup), keeps_history(setup), setup.pages))
    },
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<For>,
};

pub(super) const ALPHA: Param = Param {
    name: "alpha",
    what: "weight of IOD, the distance between the last two operations; 1 - alpha is that of R",
    kind: params::ParamKind::Number { default: 0.5, min: 0.0, max: 1.0 },
};
pub(super) const READ: Param = Param {
    name: "read",
    what: "cost of a page read",
    kind: params::ParamKind::Number { default: 100.0, min: 1.0, max: 1e6 },
};
pub(super) const WRITE: Param = Param {
    name: "write",
    what: "cost of a page written",
    kind: params::ParamKind::Number { default: 800.0, min: 1.0, max: 1e6 },
};
const HISTORY: Param = Param {
    name: "history",
    what: "whether an evicted page's operations are remembered",
    kind: params::ParamKind::Word(&["all", "resident"]),
};

fn keeps_history(setup: &Setup<'_>) -> bool {
    setup.params.word(&[HISTORY], "history") == "all"
}

/// α and the costs of a read and of a write.
#[derive(Clone, Copy)]
pub(super) struct Weights {
    pub(super) alpha: f64,
    pub(super) cost: [f64; 2],
}

impl Weights {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        let number = |param: Param| {
            let name = param.name;
            setup.params.number(&[param], name)
        };
        Self { alpha: number(ALPHA), cost: [number(READ), number(WRITE)] }
    }

    /// Returns the term of a type in the weight; `iod` is `None` if the page has had the type once.
    #[inline(always)]
    pub(super) fn term(&self, op: usize, iod: Option<f64>, r: f64) -> f64 {
        self.cost[op] / (self.alpha * iod.unwrap_or(r) + (1.0 - self.alpha) * r)
    }
}

/// Returns the index of an operation's type.
#[inline(always)]
pub(super) fn index(op: Op) -> usize {
    usize::from(op == Op::Write)
}

/// Operations of a page, by type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct History {
    /// Position of the mark, or [`NO_MARK`].
    last: [u32; 2],
    /// [`UNSEEN`], also if the mark is from a page that was removed; [`ONCE`]; or the distance.
    iod: [u32; 2],
}

const NO_MARK: u32 = u32::MAX;
const UNSEEN: u32 = u32::MAX;
const ONCE: u32 = 0;
const NOTHING: History = History { last: [NO_MARK; 2], iod: [UNSEEN; 2] };

pub(super) struct For {
    /// Histories of resident pages, by frame; a free frame has none.
    here: Vec<History>,
    /// Histories of the other pages, by page.
    gone: Vec<History>,
    marks: Marks,
    /// Number of marks before each word of positions, as of the last eviction.
    before: Vec<u32>,
    weights: Weights,
    keeps_history: bool,
}

impl Build for For {
    fn build(setup: &Setup<'_>) -> Self {
        Self {
            here: vec![NOTHING; setup.slots() as usize],
            gone: vec![NOTHING; setup.pages as usize],
            marks: Marks::new(setup.pages),
            before: Vec::new(),
            weights: Weights::new(setup),
            keeps_history: keeps_history(setup),
        }
    }
}

impl For {
    /// Returns the frame's weight and the position of its last operation, if the frame is in use.
    /// `r` returns the distance since a position.
    #[inline(always)]
    fn weight(&self, history: &History, r: impl Fn(u32) -> u32) -> Option<(f64, u32)> {
        let mut found = None;
        for op in 0..2 {
            let (last, iod) = (history.last[op], history.iod[op]);
            if iod != UNSEEN {
                let (weight, latest) = found.unwrap_or((0.0, 0));
                let iod = (iod != ONCE).then_some(f64::from(iod));
                found = Some((
                    weight + self.weights.term(op, iod, f64::from(r(last))),
                    last.max(latest),
                ));
            }
        }
        found
    }

    fn leave(&mut self, frame: Frame, page: Page, keeps_history: bool) {
        let mut history = std::mem::replace(&mut self.here[frame.0 as usize], NOTHING);
        if !keeps_history {
            history.iod = [UNSEEN; 2];
        }
        self.gone[page.0 as usize] = history;
    }
}

impl Policy for For {
    const OFFLINE: bool = false;

    fn insert(&mut self, frame: Frame, access: &Access) {
        let gone = &mut self.gone[access.page.0 as usize];
        self.here[frame.0 as usize] = std::mem::replace(gone, NOTHING);
        self.hit(frame, access);
    }

    fn hit(&mut self, frame: Frame, access: &Access) {
        if self.marks.is_full() {
            let new_place = self.marks.squeeze();
            for history in self.here.iter_mut().chain(&mut self.gone) {
                history.last = history
                    .last
                    .map(|last| if last == NO_MARK { NO_MARK } else { new_place(last) });
            }
        }
        let history = &mut self.here[frame.0 as usize];
        let op = index(access.op);
        let last = history.last[op];
        let since = if last == NO_MARK { 0 } else { self.marks.take(last) };
        history.iod[op] = if history.iod[op] == UNSEEN { ONCE } else { since + 1 };
        history.last[op] = self.marks.push();
    }

    fn evict(&mut self, _: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        self.marks.sums(&mut self.before);
        let mut best = None;
        for (frame, history) in self.here.iter().enumerate() {
            // The mark's own word is counted in full, so R is too great by at most 63, and the
            // weight is too small.
            let r = |last: u32| self.marks.len - self.before[last as usize / 64];
            let Some((at_least, _)) = self.weight(history, r) else { continue };
            if best.is_none_or(|((weight, _), _)| at_least <= weight) {
                let exact = self.weight(history, |last| self.marks.after(last)).expect("as before");
                if best.is_none_or(|(least, _)| exact < least) {
                    best = Some((exact, frame));
                }
            }
        }
        let (_, frame) = best.expect("evict is never called on an empty cache");
        let frame = Frame(frame as u32);
        self.leave(frame, frames.page(frame), self.keeps_history);
        victims.push(frame);
    }

    fn remove(&mut self, frame: Frame, frames: &Frames) {
        self.leave(frame, frames.page(frame), false);
    }

    fn forget(&mut self, page: Page) {
        self.gone[page.0 as usize].iod = [UNSEEN; 2];
    }

    fn check(&self, frames: &Frames) {
        self.marks.check();
        let marks = self.here.iter().chain(&self.gone).flat_map(|history| history.last);
        let mut marks: Vec<u32> = marks.filter(|last| *last != NO_MARK).collect();
        marks.sort_unstable();
        assert!(marks.iter().copied().eq(self.marks.iter()), "every mark belongs to one operation");
        for history in self.here.iter().chain(&self.gone) {
            for op in 0..2 {
                assert!(history.iod[op] == UNSEEN || history.last[op] != NO_MARK);
            }
        }
        for (page, gone) in self.gone.iter().enumerate() {
            match frames.frame(Page(page as u32)) {
                Some(frame) => {
                    assert_eq!(
                        *gone, NOTHING,
                        "the history of a resident page is stored with its frame"
                    );
                    assert_ne!(
                        self.here[frame.0 as usize].iod, [UNSEEN; 2],
                        "a resident page has been accessed"
                    );
                }
                None => assert!(self.keeps_history || gone.iod == [UNSEEN; 2]),
            }
        }
        let in_use = self.here.iter().filter(|history| history.iod != [UNSEEN; 2]).count();
        assert_eq!(
            in_use,
            (0..self.gone.len()).filter(|page| frames.frame(Page(*page as u32)).is_some()).count()
        );
    }
}

/// Marks at positions; new marks come last.
struct Marks {
    bits: Vec<u64>,
    /// A Fenwick tree over the words: entry n counts the marks of the n & −n words before word n.
    counts: Vec<u32>,
    len: u32,
    /// The next position.
    end: u32,
}

impl Marks {
    /// Marks for two operations per page. At least as many further positions are used before they
    /// must be renumbered.
    fn new(pages: u32) -> Self {
        let words = (pages as usize / 16 + 1).min(u32::MAX as usize / 64);
        Self { bits: vec![0; words], counts: vec![0; words + 1], len: 0, end: 0 }
    }

    fn is_full(&self) -> bool {
        self.end as usize == 64 * self.bits.len()
    }

    /// Returns the number of marks after a position.
    #[inline(always)]
    fn after(&self, place: u32) -> u32 {
        let word = place as usize / 64;
        let up_to = self.bits[word] & (!0 >> (63 - place % 64));
        let (mut before, mut n) = (up_to.count_ones(), word);
        while n > 0 {
            before += self.counts[n];
            n &= n - 1;
        }
        self.len - before
    }

    /// Computes the number of marks before each word.
    fn sums(&self, before: &mut Vec<u32>) {
        before.clear();
        before.push(0);
        for n in 1..(self.end as usize).div_ceil(64) {
            before.push(before[n & (n - 1)] + self.counts[n]);
        }
    }

    fn count(&mut self, place: u32, change: i32) {
        self.len = self.len.wrapping_add_signed(change);
        let mut n = place as usize / 64 + 1;
        while n < self.counts.len() {
            self.counts[n] = self.counts[n].wrapping_add_signed(change);
            n += n & n.wrapping_neg();
        }
    }

    /// Removes a mark and returns the number of marks after it.
    fn take(&mut self, place: u32) -> u32 {
        self.bits[place as usize / 64] &= !(1 << (place % 64));
        self.count(place, -1);
        self.after(place)
    }

    /// Sets a mark at the end and returns its position.
    fn push(&mut self) -> u32 {
        let place = self.end;
        self.bits[place as usize / 64] |= 1 << (place % 64);
        self.count(place, 1);
        self.end += 1;
        place
    }

    /// Compacts the marks. Returns a function from old positions to new ones.
    #[cold]
    fn squeeze(&mut self) -> impl Fn(u32) -> u32 + use<> {
        let words = self.bits.len();
        let old = std::mem::replace(
            self,
            Self { bits: vec![0; words], counts: vec![0; words + 1], len: 0, end: 0 },
        );
        for _ in 0..old.len {
            self.push();
        }
        move |place| old.len - 1 - old.after(place)
    }

    fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.end).filter(|place| self.bits[*place as usize / 64] >> (place % 64) & 1 != 0)
    }

    fn check(&self) {
        assert_eq!(self.iter().count(), self.len as usize);
        for (n, place) in self.iter().enumerate() {
            assert_eq!(self.after(place), self.len - 1 - n as u32);
        }
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use super::Weights;
    use crate::policy::naive::Naive;
    use flashsift_events::page::{Access, Op, Page};
    use std::collections::{BTreeMap, BTreeSet};

    pub(super) struct For {
        weights: Weights,
        keeps_history: bool,
        pages: u32,
        /// Every operation performed, in order.
        log: Vec<(Page, Op)>,
        /// The IOD of each operation that a page is known to have had; `None` if it had it once.
        iod: BTreeMap<(Page, usize), Option<usize>>,
        /// Resident pages, the least recently accessed first.
        resident: Vec<Page>,
    }

    impl For {
        pub(super) fn new(weights: Weights, keeps_history: bool, pages: u32) -> Self {
            Self {
                weights,
                keeps_history,
                pages,
                log: vec![],
                iod: BTreeMap::new(),
                resident: vec![],
            }
        }

        /// Returns, for each operation, how many distinct ones were performed after its last time,
        /// and how many there are in all. The log is read backwards, and an operation counts when
        /// it is met for the first time.
        fn distances(log: &[(Page, Op)], pages: u32) -> (Vec<[Option<usize>; 2]>, usize) {
            let (mut since, mut distinct) = (vec![[None; 2]; pages as usize], 0);
            for (page, op) in log.iter().rev() {
                let since = &mut since[page.0 as usize][usize::from(*op == Op::Write)];
                if since.is_none() {
                    *since = Some(distinct);
                    distinct += 1;
                }
            }
            (since, distinct)
        }
    }

    impl Naive for For {
        fn insert(&mut self, access: &Access) {
            self.resident.retain(|page| *page != access.page);
            self.resident.push(access.page);
            let before =
                self.log.iter().rposition(|operation| *operation == (access.page, access.op));
            self.log.push((access.page, access.op));
            let operation = (access.page, usize::from(access.op == Op::Write));
            let known = self.iod.contains_key(&operation);
            let iod =
                known.then(|| Self::distances(&self.log[before.unwrap() + 1..], self.pages).1);
            self.iod.insert(operation, iod);
        }
        fn hit(&mut self, access: &Access) {
            self.insert(access);
        }
        fn evict(&mut self, _: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            let (since, _) = Self::distances(&self.log, self.pages);
            let weight = |page: Page| {
                let mut weight = 0.0;
                for (op, cost) in self.weights.cost.into_iter().enumerate() {
                    if let Some(iod) = self.iod.get(&(page, op)) {
                        let (alpha, r) = (self.weights.alpha, since[page.0 as usize][op].unwrap());
                        let iod = iod.unwrap_or(r);
                        weight += cost / (alpha * iod as f64 + (1.0 - alpha) * r as f64);
                    }
                }
                weight
            };
            let least =
                self.resident.iter().map(|page| weight(*page)).fold(f64::INFINITY, f64::min);
            let victim = *self.resident.iter().find(|page| weight(**page) == least).unwrap();
            self.resident.retain(|page| *page != victim);
            if !self.keeps_history {
                self.forget(victim);
            }
            vec![victim]
        }
        fn remove(&mut self, page: Page) {
            self.resident.retain(|p| *p != page);
            self.forget(page);
        }
        fn forget(&mut self, page: Page) {
            self.iod.retain(|(p, _), _| *p != page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{
        conformance::{assert_coincide, pushed_out, reads_only, writes_only},
        naive::Act,
    };
    use flashsift_events::dice::Dice;

    /// If only the distance since the last operation counts and all operations cost the same, the
    /// weight falls with that distance.
    #[test]
    fn is_lru_by_recency_alone() {
        assert_coincide("for:alpha=0", "lru", reads_only);
        assert_coincide("for:alpha=0", "lru", writes_only);
        let one_type_a_page = |act| match act {
            Act::Read(page) | Act::Write(page) if page % 2 == 0 => Act::Read(page),
            Act::Read(page) | Act::Write(page) => Act::Write(page),
            act => act,
        };
        assert_coincide("for:alpha=0,read=7,write=7", "lru", one_type_a_page);
        // Only the ratio of the costs matters.
        assert_coincide("for", "for:read=200,write=1600", |act| act);
    }

    /// Three frames, α = 0.5, with the weights written out.
    #[test]
    fn evicts_by_the_weights_of_the_definition() {
        let gone = |text: &str, acts: &str| {
            let acts: Vec<Act> = acts
                .split_whitespace()
                .map(|act| match act.split_at(1) {
                    ("r", page) => Act::Read(page.parse().unwrap()),
                    (_, page) => Act::Write(page.parse().unwrap()),
                })
                .collect();
            pushed_out(text, 3, &acts).iter().map(|page| page.0).collect::<Vec<_>>()
        };
        // 1: 100/2. 2: read once, 100/1. 3: ∞. 1 has the least weight.
        assert_eq!(gone("for", "r1 r2 r3 r4"), [1]);
        // 1: written, 800/2 = 400. 2: 100/1.
        assert_eq!(gone("for", "w1 r2 r3 r4"), [2]);
        // 1: IOD 1, R 2, 100/1.5 = 66.7. 2: IOD = R = 1, 100. 3: ∞. A second read directly after
        // the first raises the weight of 1.
        assert_eq!(gone("for", "r1 r1 r2 r3 r4"), [1]);
        // 1: IOD 1, R 5, 100/3 = 33.3. 2: r2 w3 r3 w2 r2: IOD 4 (w3 r3 w2 r2), R 0, and w2: 800/1.
        // 3: R 2 and 3.
        assert_eq!(gone("for", "r1 r1 r2 w3 r3 w2 r2 r4"), [1]);
        // 2 comes back with a history: IOD 4 (r3 r4 r5 r2), R 1: 100/2.5 = 40, less than 100/2 = 50
        // for 5 and ∞ for 6. Without a history its weight is 100/1.
        assert_eq!(gone("for", "r1 r2 r3 r4 r5 r2 r6 r7"), [1, 2, 3, 4, 2]);
        assert_eq!(gone("for:history=resident", "r1 r2 r3 r4 r5 r2 r6 r7"), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn marks_count_the_marks_after_them() {
        for seed in 0..100 {
            let mut dice = Dice::new(seed);
            let mut marks = Marks::new(100);
            let mut model: Vec<u32> = Vec::new();
            for _ in 0..1500 {
                if marks.is_full() {
                    let new_place = marks.squeeze();
                    model = model.into_iter().map(new_place).collect();
                }
                if model.len() > 1 + dice.below(199) as usize {
                    let at = dice.below(model.len() as u32) as usize;
                    assert_eq!(marks.take(model.remove(at)) as usize, model.len() - at);
                }
                model.push(marks.push());
            }
            assert!(marks.iter().eq(model.iter().copied()));
            marks.check();
            let mut before = Vec::new();
            marks.sums(&mut before);
            for (word, before) in before.into_iter().enumerate() {
                assert_eq!(
                    before as usize,
                    model.iter().filter(|place| **place < 64 * word as u32).count()
                );
            }
        }
    }
}
