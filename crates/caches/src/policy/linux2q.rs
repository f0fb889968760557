//! Linux2Q: an inactive and an active list, as in the kernels of the 2.6 series.
//!
//! SpatialClock (see `spatialclock`) §2 and §5.1.2 (active to inactive 3:1) after Bovet & Cesati,
//! "Understanding the Linux Kernel", 3rd edition (2.6.11), ch. 17. The first access puts a page at
//! the inactive head, referenced; the second moves it to the active head, unreferenced. An active
//! list over its share gives its tail to the inactive head, unconditionally. An inactive tail that
//! is dirty and referenced moves to the head once, and its bit is cleared; any other tail is
//! evicted. Remaining points follow `mark_page_accessed` and `refill_inactive_zone`:
//!
//! - Only a promoting hit moves a page. Another hit sets the bit of an active page, or of an
//!   inactive page without one (demoted, or passed over at the tail). A demoted page keeps its bit.
//! - The share is ⌊0.75·capacity⌋ pages. Each promotion enforces it, so that the list never exceeds
//!   it.
//! - `promote=3`: a page comes in unreferenced and needs one more access to be promoted.
//! - A removed page leaves its list; nothing is rebalanced. A page that was written back is treated
//!   as any clean page at the tail.
//! - A drain empties the inactive list as above; once it is empty, the active tail moves over, one
//!   page at a time.

use super::{Build, Kind, Policy, PolicySpec, Setup};
use crate::cache::{Frames, Victims};
use flashsift_events::{
    page::{Access, Frame},
    params::{self, Param},
    structure::Lists,
};

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "linux2q",
    paper: "Bovet & Cesati, \"Understanding the Linux Kernel\", 3rd edition, 2005; Kim, Ryu & \
        Ramachandran, SIGMETRICS '12, §5.1.2",
    what: "an inactive and an active list, as Linux 2.6 had them",
    goal: "hits: pages used once do not push out pages used twice",
    time: "amortised O(1): a page is passed over once an access",
    memory: "9 bytes a frame",
    memory_bytes: |size| 9 * size.frames,
    when: "to compare with Linux before MGLRU, as it was in the 2.6 series",
    params: PARAMS,
    kind: Kind::Online,
    slow: false,
    by_place: <Linux2q as Policy>::WANTS_ADDRESSES,
    policy: super::only::<Linux2q>,
    objects: None,
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| {
        Box::new(model::Linux2q::new(active_max(setup) as usize, arrives_referenced(setup)))
    },
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<Linux2q>,
};

const PARAMS: &[Param] = &[
    Param {
        name: "promote",
        what: "which access makes a page active",
        kind: params::ParamKind::Word(&["2", "3"]),
    },
    Param {
        name: "active",
        what: "the active list's share",
        kind: params::ParamKind::Number { default: 0.75, min: 0.0, max: 1.0 },
    },
];

fn active_max(setup: &Setup<'_>) -> u32 {
    (setup.params.number(PARAMS, "active") * f64::from(setup.frames)) as u32
}

fn arrives_referenced(setup: &Setup<'_>) -> bool {
    setup.params.word(PARAMS, "promote") == "2"
}

/// Names of the lists; the head is the newest end.
const INACTIVE: usize = 0;
const ACTIVE: usize = 1;

/// Bits of a frame's state.
const REFERENCED: u8 = 1;
const IS_ACTIVE: u8 = 2;

pub(super) struct Linux2q {
    lists: Lists<Frame, 2>,
    state: Vec<u8>,
    active_len: u32,
    active_max: u32,
    arrives: u8,
}

impl Build for Linux2q {
    fn build(setup: &Setup<'_>) -> Self {
        Self {
            lists: Lists::new(setup.slots()),
            state: vec![0; setup.slots() as usize],
            active_len: 0,
            active_max: active_max(setup),
            arrives: if arrives_referenced(setup) { REFERENCED } else { 0 },
        }
    }
}

impl Linux2q {
    #[inline(always)]
    fn demote(&mut self) {
        let frame = self.lists.oldest(ACTIVE).expect("evict is never called on an empty cache");
        self.state[frame.0 as usize] &= !IS_ACTIVE;
        self.active_len -= 1;
        self.lists.move_newest(INACTIVE, frame);
    }
}

impl Policy for Linux2q {
    const OFFLINE: bool = false;

    #[inline(always)]
    fn insert(&mut self, frame: Frame, _: &Access) {
        self.state[frame.0 as usize] = self.arrives;
        self.lists.push_newest(INACTIVE, frame);
    }

    #[inline(always)]
    fn hit(&mut self, frame: Frame, _: &Access) {
        let state = &mut self.state[frame.0 as usize];
        if *state != REFERENCED {
            *state |= REFERENCED;
            return;
        }
        *state = IS_ACTIVE;
        self.lists.move_newest(ACTIVE, frame);
        self.active_len += 1;
        if self.active_len > self.active_max {
            self.demote();
        }
    }

    #[inline(always)]
    fn evict(&mut self, _: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        // The loop ends: a page that moves to the head loses the bit that saved it.
        loop {
            let Some(frame) = self.lists.oldest(INACTIVE) else {
                self.demote();
                continue;
            };
            let state = &mut self.state[frame.0 as usize];
            if *state & REFERENCED == 0 || !frames.dirty(frame) {
                self.lists.remove(frame);
                frames.expect_victims(self.lists.oldest_two(INACTIVE));
                return victims.push(frame);
            }
            *state = 0;
            self.lists.move_newest(INACTIVE, frame);
        }
    }

    fn remove(&mut self, frame: Frame, _: &Frames) {
        self.active_len -= u32::from(self.state[frame.0 as usize] & IS_ACTIVE != 0);
        self.lists.remove(frame);
    }

    #[inline(always)]
    fn expect_hit(&self, frame: Frame) {
        self.lists.prefetch(frame);
    }

    fn check(&self, _: &Frames) {
        self.lists.check();
        assert_eq!(self.lists.iter(ACTIVE).count(), self.active_len as usize);
        assert!(self.active_len <= self.active_max, "the active list does not exceed its share");
        for list in [INACTIVE, ACTIVE] {
            let is_active = |frame: Frame| self.state[frame.0 as usize] & IS_ACTIVE != 0;
            assert!(self.lists.iter(list).all(|frame| is_active(frame) == (list == ACTIVE)));
        }
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use crate::policy::naive::Naive;
    use flashsift_events::page::{Access, Page};
    use std::collections::BTreeSet;

    /// Pages and their referenced bits, the tail first.
    pub(super) struct Linux2q {
        inactive: Vec<(Page, bool)>,
        active: Vec<(Page, bool)>,
        active_max: usize,
        arrives_referenced: bool,
    }

    impl Linux2q {
        pub(super) fn new(active_max: usize, arrives_referenced: bool) -> Self {
            Self { inactive: Vec::new(), active: Vec::new(), active_max, arrives_referenced }
        }
    }

    impl Naive for Linux2q {
        fn insert(&mut self, access: &Access) {
            self.inactive.push((access.page, self.arrives_referenced));
        }
        fn hit(&mut self, access: &Access) {
            if let Some(entry) = self.active.iter_mut().find(|(page, _)| *page == access.page) {
                entry.1 = true;
                return;
            }
            let at = self.inactive.iter().position(|(page, _)| *page == access.page).unwrap();
            if !self.inactive[at].1 {
                self.inactive[at].1 = true;
                return;
            }
            self.inactive.remove(at);
            self.active.push((access.page, false));
            while self.active.len() > self.active_max {
                let tail = self.active.remove(0);
                self.inactive.push(tail);
            }
        }
        fn evict(&mut self, _: Option<&Access>, dirty: &BTreeSet<Page>) -> Vec<Page> {
            if self.inactive.is_empty() {
                return vec![self.active.remove(0).0];
            }
            loop {
                let (page, referenced) = self.inactive.remove(0);
                if !(dirty.contains(&page) && referenced) {
                    return vec![page];
                }
                self.inactive.push((page, false));
            }
        }
        fn remove(&mut self, page: Page) {
            self.inactive.retain(|(p, _)| *p != page);
            self.active.retain(|(p, _)| *p != page);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::{
        Selection, Setup,
        conformance::{history, pushed_out},
        naive::{Act, Placing},
    };
    use flashsift_events::dice::Dice;

    fn parse(acts: &str) -> Vec<Act> {
        acts.split_whitespace()
            .map(|act| match act.split_at(1) {
                ("r", page) => Act::Read(page.parse().unwrap()),
                (_, page) => Act::Write(page.parse().unwrap()),
            })
            .collect()
    }

    /// Four frames, three of them for active pages. Lists are written tail first, with a prime for
    /// a referenced page.
    #[test]
    fn pages_move_through_the_lists_as_defined() {
        let gone = |text, acts| {
            pushed_out(text, 4, &parse(acts)).iter().map(|page| page.0).collect::<Vec<_>>()
        };
        // Inactive 2' 3' 4', active 1: clean pages are evicted in order, referenced or not.
        assert_eq!(gone("linux2q", "r1 r1 r2 r3 r4 r5 r6"), [2, 3]);
        // All pages are dirty: 2, 3 and 4 move to the head and lose their bits, then 2 is evicted;
        // 5 is referenced but clean.
        assert_eq!(gone("linux2q", "w1 w1 w2 w3 w4 r5 r6 r7 r8"), [2, 3, 4, 5]);
        // A fourth active page demotes 1 to the inactive head, unreferenced, so 1 is evicted before
        // 2, 3 and 4.
        assert_eq!(gone("linux2q", "w1 w1 w2 w2 w3 w3 w4 w4 r5 r6"), [1, 5]);
        // 1 was hit while active and keeps its bit. It is dirty and passed over once, and the page
        // that just came in is evicted.
        assert_eq!(gone("linux2q", "w1 w1 w1 w2 w2 w3 w3 r6 w4 w4 r7"), [6, 1]);
        // Demoted with its bit, 1 is active again after one more access, and 2 is demoted in its
        // place.
        assert_eq!(gone("linux2q", "w1 w1 w1 w2 w2 w3 w3 w4 w4 r1 r5"), [2]);
        // With promote=3 the second access promotes no page: 1 is still the first to be evicted.
        assert_eq!(gone("linux2q:promote=3", "r1 r1 r2 r3 r4 r5"), [1]);
        assert_eq!(gone("linux2q:promote=3", "r1 r1 r1 r2 r3 r4 r5"), [2]);
    }

    /// With promote=3, a page that comes in and is read once more is in the same state as a page
    /// that comes in with promote=2.
    #[test]
    fn promote_3_with_one_more_access_is_promote_2() {
        let [two, three] =
            ["linux2q:promote=2", "linux2q:promote=3"].map(|text| Selection::parse(text).unwrap());
        for seed in 0..300 {
            let mut dice = Dice::new(seed);
            let frames = 1 + dice.below(30);
            let setup = |params| Setup { frames, pages: 60, runs: &[], params, bytes: None };
            let mut two = (two.spec.cache)(&setup(&two.params), Placing::Fixed);
            let mut three = (three.spec.cache)(&setup(&three.params), Placing::Fixed);
            for act in history(&mut dice, 60, 300) {
                let expected = two.step(act, 0);
                assert_eq!(three.step(act, 0), expected, "seed {seed}, {act:?}");
                if let (Act::Read(page) | Act::Write(page), false) = (act, expected.hit) {
                    assert!(three.step(Act::Read(page), 0).hit);
                }
            }
            assert_eq!(three.drain(), two.drain());
        }
    }

    /// Pages that are accessed once are evicted in order of arrival.
    #[test]
    fn is_a_queue_of_pages_that_never_return() {
        let acts: Vec<Act> =
            (0..300).map(|n| if n % 7 == 6 { Act::Drop(n - 3, 2) } else { Act::Read(n) }).collect();
        for frames in 1..40 {
            assert_eq!(pushed_out("linux2q", frames, &acts), pushed_out("fifo", frames, &acts));
        }
    }
}
