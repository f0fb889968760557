//! CLOCK-Pro: LIRS on one clock. Hot pages stay; an access during the test period of a cold page
//! makes the page hot.
//!
//! Jiang, Chen & Zhang, "CLOCK-Pro: An Effective Improvement of the CLOCK Replacement", USENIX ATC
//! '05; the names are the paper's. One ring holds hot pages, resident cold pages, and non-resident
//! cold pages in their test period. A new page enters at the list head, directly behind HAND_hot,
//! cold and in its test period. A hit sets a bit.
//!
//! - HAND_cold stands at a resident cold page. If the bit is clear, the page is evicted, and stays
//!   in the ring as non-resident if it is in its test period. If the bit is set, it is cleared and
//!   the page moves to the head; if the page was in its test period, it becomes hot.
//! - HAND_hot runs while there are more than m − m_c hot pages. It clears a set bit; a page with a
//!   clear bit becomes cold and out of test. Cold pages that it passes end their test period, and
//!   non-resident ones leave the ring. It stops at a hot page.
//! - HAND_test runs while there are more than m non-resident pages, and ends the test periods of
//!   cold pages.
//! - The target m_c for resident cold pages rises by one for an access in a test period, falls by
//!   one for a test period that ends without one, and stays between 1 and m.
//!
//! Points that the paper leaves open, and our choices:
//!
//! - Start: while fewer than m − m_c pages are resident, pages come in hot, and m_c begins at 1 %
//!   of m. LIRS and Caffeine's simulator start in the same way. The same holds after removals that
//!   leave fewer than m − m_c pages resident.
//! - A cold page out of its test period whose bit is set starts a new test period, because it moves
//!   to the position of a page just accessed.
//! - Test periods that hands end count as ended without an access, regardless of the bit.
//! - A page moves to the head before HAND_hot runs because of it.
//! - If the page at a hand moves or is removed, the hand moves to the next page of its kind. If
//!   there is none, the hand starts at HAND_hot. (Test periods begin only at the head and end from
//!   HAND_hot on, so HAND_test meets the same ones wherever it starts; its stored position saves
//!   the walk.)
//! - A page that is removed, resident or not, leaves the ring and does not change m_c.
//! - In a drain, when all resident pages are hot, HAND_hot makes one cold.
//!
//! The first author's program (clock-pro.c of 2005) was run beside this policy, with its cold pages
//! between 1 % and 99 %. On Zipf's law and on a mix with sequential runs, the two differ by at most
//! 0.3 points of the miss ratio, and on loops over more than twice the memory not at all;
//! `tests/authors.rs` has the counts. On `cloudphysics` the program does better by up to 1.1
//! points. Its HAND_cold evicts a page that is out of its test period even if its bit is set, where
//! the paper gives it another test period.
//!
//! Miss ratios of `cloudphysics` at 10 % to 90 % of its 48,974 objects in steps of ten, with
//! PyClockPro as the sources of libCacheSim report it:
//!
//! - our LIRS: 0.7648, 0.6438, 0.5735, 0.5190, 0.4793, 0.4643, 0.4461, 0.4447, 0.4302;
//! - the author's program: 0.7546, 0.6590, 0.5946, 0.5246, 0.4800, 0.4644, 0.4458, 0.4444, 0.4302;
//! - this policy: 0.7576, 0.6663, 0.5927, 0.5335, 0.4906, 0.4723, 0.4470, 0.4446, 0.4302;
//! - PyClockPro: 0.7420, 0.7076, 0.6214, 0.5848, 0.5654, 0.5653, 0.5646, 0.5049, 0.4302;
//! - this policy with only PyClockPro's start: 0.7423, 0.7068, 0.6266, 0.6192, 0.5657, 0.5651,
//!   0.5647, 0.5045, 0.4302.
//!
//! PyClockPro starts with m_c = m and all pages cold. For the first hot page HAND_hot then goes
//! round the whole ring and ends all test periods, so m_c falls from m to 1 before the policy has
//! learnt anything. PyClockPro also differs in other points: its HAND_hot does not end the test
//! period of a resident page, and its cold pages turn hot in place, in a test period or not,
//! without a change of m_c.

use super::{Build, Kind, Policy, PolicySpec, Setup};
use crate::cache::{Frames, Victims};
use flashsift_events::{
    page::{Access, Frame, Id, Page},
    structure::Lists,
};
use prefetch_index::prefetch_index;

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "clockpro",
    paper: "Jiang, Chen & Zhang, \"CLOCK-Pro: An Effective Improvement of the CLOCK Replacement\", USENIX \
        ATC '05",
    what: "LIRS on one clock with three hands",
    goal: "hits, by the distance between uses like lirs, with next to no work at a hit",
    time: "a hit sets a bit; a miss moves hands, each a lap at most, O(1) on average on the traces measured",
    memory: "34 bytes a frame, 4 bytes a page of the trace",
    memory_bytes: |size| 34 * size.frames + 4 * size.pages,
    when: "like lirs, where a hit must not move anything",
    params: &[],
    kind: Kind::Online,
    slow: false,
    by_place: <ClockPro<false> as Policy>::WANTS_ADDRESSES,
    policy: super::only::<ClockPro<false>>,
    objects: None,
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| Box::new(model::ClockPro::new(setup.frames as usize, false)),
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<ClockPro<false>>,
};

/// A place in the ring: of a frame, or, from the number of frames on, of a non-resident page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Node(u32);

impl Id for Node {
    #[inline(always)]
    fn index(self) -> u32 {
        self.0
    }
    #[inline(always)]
    fn from_index(index: u32) -> Self {
        Node(index)
    }
}

/// Returns the least m_c of CLOCK-Pro+, with which both policies begin.
fn least_cold(m: u32) -> u32 {
    (m / 100).max(1)
}

/// Returns the greatest m_c of CLOCK-Pro+.
fn most_cold(m: u32) -> u32 {
    (m / 2).max(1)
}

/// The absence of a node.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Hot,
    /// Cold and out of its test period.
    Cold,
    /// Cold and in its test period.
    Test,
}

/// CLOCK-Pro, or CLOCK-Pro+ if `PLUS` is set.
pub(super) struct ClockPro<const PLUS: bool> {
    /// m, the memory size in pages.
    m: u32,
    /// m_c, the target for resident cold pages.
    cold_target: u32,
    slots: u32,
    resident: u32,
    /// The ring, starting at HAND_hot.
    ring: Lists<Node, 1>,
    /// The resident cold pages in the order of the ring, so that HAND_cold need not walk.
    cold: Lists<Frame, 1>,
    hand_cold: Option<Frame>,
    hand_test: Option<Node>,
    state: Vec<State>,
    referenced: Vec<bool>,
    hot: u32,
    /// For each page its node while it is non-resident, or [`NONE`].
    left: Vec<u32>,
    /// The page of each node from `slots` on.
    left_page: Vec<Page>,
    free: Vec<Node>,
    /// With `PLUS`, whether HAND_hot made a page cold, and its bit has not been seen since.
    demoted: Vec<bool>,
    demoted_len: u32,
}

impl<const PLUS: bool> Build for ClockPro<PLUS> {
    fn build(setup: &Setup<'_>) -> Self {
        let slots = setup.slots();
        // One more than may stay, because a page leaves before HAND_test runs.
        let left = setup.frames.saturating_add(1).min(setup.pages);
        Self {
            m: setup.frames,
            cold_target: least_cold(setup.frames),
            slots,
            resident: 0,
            ring: Lists::new(slots + left),
            cold: Lists::new(slots),
            hand_cold: None,
            hand_test: None,
            state: vec![State::Cold; slots as usize],
            referenced: vec![false; slots as usize],
            hot: 0,
            left: vec![NONE; setup.pages as usize],
            left_page: vec![Page(0); left as usize],
            free: (slots..slots + left).rev().map(Node).collect(),
            demoted: vec![false; if PLUS { slots as usize } else { 0 }],
            demoted_len: 0,
        }
    }
}

impl<const PLUS: bool> ClockPro<PLUS> {
    #[inline(always)]
    fn resident(&self, node: Node) -> Option<Frame> {
        (node.0 < self.slots).then_some(Frame(node.0))
    }

    #[inline(always)]
    fn is_hot(&self, node: Node) -> bool {
        self.resident(node).is_some_and(|frame| self.state[frame.0 as usize] == State::Hot)
    }

    fn non_resident(&self) -> u32 {
        (self.left_page.len() - self.free.len()) as u32
    }

    /// Removes a frame from the resident cold pages; the hand moves on.
    #[inline(always)]
    fn leave_cold(&mut self, frame: Frame) {
        if self.hand_cold == Some(frame) {
            let next = self.cold.newer(frame).or(self.cold.oldest(0));
            self.hand_cold = next.filter(|next| *next != frame);
        }
        self.cold.remove(frame);
    }

    /// Removes a page from the ring; the hand moves on.
    #[inline(always)]
    fn leave_ring(&mut self, node: Node) {
        if self.hand_test == Some(node) {
            self.hand_test = self.cold_after(node);
        }
        self.ring.remove(node);
    }

    /// Returns the next cold page in the ring, resident or not.
    fn cold_after(&self, node: Node) -> Option<Node> {
        let mut at = node;
        loop {
            at = self.ring.newer(at).or(self.ring.oldest(0)).expect("the ring holds the page");
            if at == node {
                return None;
            }
            if !self.is_hot(at) {
                return Some(at);
            }
        }
    }

    /// Removes a non-resident page from the ring.
    #[inline(always)]
    fn leave_left(&mut self, node: Node) {
        self.leave_ring(node);
        self.left[self.left_page[(node.0 - self.slots) as usize].0 as usize] = NONE;
        self.free.push(node);
    }

    #[inline(always)]
    fn accessed_in_test(&mut self, frame: Frame) {
        self.state[frame.0 as usize] = State::Hot;
        self.hot += 1;
        if !PLUS {
            self.cold_target = (self.cold_target + 1).min(self.m);
        }
        self.run_hot(u32::MAX);
    }

    /// With `PLUS`, raises m_c for an access to a non-resident page, which still is in the ring.
    #[inline(always)]
    fn raise_for_left(&mut self) {
        if PLUS {
            let step = (self.demoted_len / self.non_resident()).max(1);
            self.cold_target = (self.cold_target + step).min(most_cold(self.m));
        }
    }

    /// With `PLUS`, lowers m_c if the bit of a demoted page is set.
    #[inline(always)]
    fn lower_for_demoted(&mut self, frame: Frame) {
        if PLUS && self.demoted[frame.0 as usize] && self.referenced[frame.0 as usize] {
            let step = (self.non_resident() / self.demoted_len).max(1);
            self.cold_target = self.cold_target.saturating_sub(step).max(least_cold(self.m));
            self.forget_demotion(frame);
        }
    }

    #[inline(always)]
    fn forget_demotion(&mut self, frame: Frame) {
        if PLUS {
            let was_demoted = std::mem::take(&mut self.demoted[frame.0 as usize]);
            self.demoted_len -= u32::from(was_demoted);
        }
    }

    /// Ends the test period of a cold page, if it is in one.
    #[inline(always)]
    fn end_test(&mut self, node: Node) {
        match self.resident(node) {
            None => self.leave_left(node),
            Some(frame) if self.state[frame.0 as usize] == State::Test => {
                self.state[frame.0 as usize] = State::Cold;
            }
            Some(_) => return,
        }
        if !PLUS {
            self.cold_target = (self.cold_target - 1).max(1);
        }
    }

    /// Moves HAND_hot over one page.
    #[inline(always)]
    fn step_hot(&mut self, node: Node) {
        if !self.is_hot(node) {
            self.end_test(node);
            if let Some(frame) = self.resident(node) {
                self.lower_for_demoted(frame);
                self.ring.move_newest(0, node);
                self.cold.move_newest(0, frame);
            }
            return;
        }
        self.ring.move_newest(0, node);
        if !std::mem::take(&mut self.referenced[node.0 as usize]) {
            self.state[node.0 as usize] = State::Cold;
            self.cold.push_newest(0, Frame(node.0));
            self.hot -= 1;
            if PLUS {
                self.demoted[node.0 as usize] = true;
                self.demoted_len += 1;
            }
        }
    }

    /// Runs HAND_hot until the number of hot pages is at most their target and at most `most`.
    #[inline(always)]
    fn run_hot(&mut self, most: u32) {
        if self.hot <= most.min(self.m - self.cold_target) {
            return;
        }
        while self.hot > 0
            && let Some(node) = self.ring.oldest(0)
            && (self.hot > most.min(self.m - self.cold_target) || !self.is_hot(node))
        {
            self.step_hot(node);
        }
    }

    #[inline(always)]
    fn run_test(&mut self) {
        while self.non_resident() > self.m {
            let node = self.hand_test.unwrap_or_else(|| {
                let first = self.ring.oldest(0).expect("non-resident pages are in the ring");
                if self.is_hot(first) {
                    self.cold_after(first).expect("non-resident pages are cold")
                } else {
                    first
                }
            });
            self.hand_test = self.cold_after(node);
            self.end_test(node);
        }
    }
}

impl<const PLUS: bool> Policy for ClockPro<PLUS> {
    const OFFLINE: bool = false;

    #[inline]
    fn insert(&mut self, frame: Frame, access: &Access) {
        self.referenced[frame.0 as usize] = false;
        let left = self.left[access.page.0 as usize];
        if left != NONE {
            self.raise_for_left();
            self.leave_left(Node(left));
        }
        self.ring.push_newest(0, Node(frame.0));
        if left != NONE {
            self.accessed_in_test(frame);
        } else if self.resident < self.m - self.cold_target {
            self.state[frame.0 as usize] = State::Hot;
            self.hot += 1;
        } else {
            self.state[frame.0 as usize] = State::Test;
            self.cold.push_newest(0, frame);
        }
        self.resident += 1;
        self.run_test();
    }

    #[inline(always)]
    fn hit(&mut self, frame: Frame, _: &Access) {
        self.referenced[frame.0 as usize] = true;
    }

    #[inline]
    fn evict(&mut self, incoming: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        loop {
            let Some(frame) = self.hand_cold.or(self.cold.oldest(0)) else {
                self.run_hot(
                    self.hot.checked_sub(1).expect("evict is never called on an empty cache"),
                );
                continue;
            };
            self.hand_cold = Some(frame);
            self.leave_cold(frame);
            let node = Node(frame.0);
            let in_test = self.state[frame.0 as usize] == State::Test;
            self.lower_for_demoted(frame);
            self.forget_demotion(frame);
            if std::mem::take(&mut self.referenced[frame.0 as usize]) {
                self.leave_ring(node);
                self.ring.push_newest(0, node);
                if in_test {
                    self.accessed_in_test(frame);
                } else {
                    self.state[frame.0 as usize] = State::Test;
                    self.cold.push_newest(0, frame);
                }
                continue;
            }
            if in_test {
                let page = frames.page(frame);
                let left = self
                    .free
                    .pop()
                    .expect("there are nodes for all pages that may be non-resident");
                self.left[page.0 as usize] = left.0;
                self.left_page[(left.0 - self.slots) as usize] = page;
                self.ring.replace(node, left);
                if self.hand_test == Some(node) {
                    self.hand_test = Some(left);
                }
            } else {
                self.leave_ring(node);
            }
            self.resident -= 1;
            if incoming.is_none() {
                self.run_test();
            }
            return victims.push(frame);
        }
    }

    fn remove(&mut self, frame: Frame, _: &Frames) {
        self.resident -= 1;
        if self.is_hot(Node(frame.0)) {
            self.hot -= 1;
        } else {
            self.leave_cold(frame);
            self.forget_demotion(frame);
        }
        self.leave_ring(Node(frame.0));
    }

    fn forget(&mut self, page: Page) {
        if self.left[page.0 as usize] != NONE {
            self.leave_left(Node(self.left[page.0 as usize]));
        }
    }

    #[inline(always)]
    fn expect_miss(&self, page: Page) {
        prefetch_index(&self.left, page.0 as usize);
    }

    fn check(&self, frames: &Frames) {
        self.ring.check();
        self.cold.check();
        let in_ring = |state: State| {
            let resident = self.ring.iter(0).filter_map(|node| self.resident(node));
            resident.filter(move |frame| {
                (self.state[frame.0 as usize] == State::Hot) == (state == State::Hot)
            })
        };
        assert_eq!(in_ring(State::Hot).count(), self.hot as usize);
        assert_eq!(self.hot as usize + self.cold.iter(0).count(), self.resident as usize);
        assert!(
            in_ring(State::Cold).eq(self.cold.iter(0)),
            "cold pages are in the order of the ring"
        );
        assert!((1..=self.m).contains(&self.cold_target) && self.hot <= self.m - self.cold_target);
        let demoted = (0..).zip(&self.demoted).filter(|(_, demoted)| **demoted);
        assert_eq!(demoted.clone().count(), self.demoted_len as usize);
        let is_cold = |at: u32| self.state[at as usize] == State::Cold;
        assert!(demoted.clone().all(|(at, _)| is_cold(at) && self.cold.contains(Frame(at))));
        assert!(self.hand_cold.is_none_or(|frame| self.cold.contains(frame)));
        assert!(self.hand_test.is_none_or(|node| self.ring.contains(node) && !self.is_hot(node)));
        let mut non_resident = 0;
        for (page, node) in self.left.iter().enumerate().filter(|(_, node)| **node != NONE) {
            assert!(self.ring.contains(Node(*node)) && frames.frame(Page(page as u32)).is_none());
            assert_eq!(self.left_page[(node - self.slots) as usize], Page(page as u32));
            non_resident += 1;
        }
        assert_eq!(non_resident, self.non_resident());
        assert!(non_resident <= self.m);
    }
}

#[cfg(any(test, feature = "naive"))]
pub(super) mod model {
    use crate::policy::naive::Naive;
    use flashsift_events::page::{Access, Page};
    use std::collections::BTreeSet;

    #[derive(Clone)]
    struct Entry {
        page: Page,
        hot: bool,
        resident: bool,
        test: bool,
        bit: bool,
        demoted: bool,
    }

    fn cold(entry: &Entry) -> bool {
        !entry.hot
    }

    fn resident_cold(entry: &Entry) -> bool {
        !entry.hot && entry.resident
    }

    pub(in super::super) struct ClockPro {
        plus: bool,
        m: usize,
        m_c: usize,
        /// The ring, starting at HAND_hot: the list head is the end.
        ring: Vec<Entry>,
        hand_cold: Option<Page>,
        hand_test: Option<Page>,
    }

    impl ClockPro {
        pub(in super::super) fn new(m: usize, plus: bool) -> Self {
            Self { plus, m, m_c: 1.max(m / 100), ring: vec![], hand_cold: None, hand_test: None }
        }

        /// Numbers of demoted and of non-resident pages.
        fn utilities(&self) -> [usize; 2] {
            [self.count(|entry| entry.demoted), self.count(|entry| !entry.resident)]
        }

        /// CLOCK-Pro+ meets a resident cold page: if it was demoted and accessed, m_c falls.
        fn meet(&mut self, at: usize) {
            if self.plus && self.ring[at].demoted && self.ring[at].bit {
                let [demoted, left] = self.utilities();
                let step = 1.max(left / demoted);
                self.m_c = self.m_c.saturating_sub(step).max(1).max(self.m / 100);
                self.ring[at].demoted = false;
            }
        }

        fn at(&self, page: Page) -> Option<usize> {
            self.ring.iter().position(|entry| entry.page == page)
        }

        fn count(&self, what: fn(&Entry) -> bool) -> usize {
            self.ring.iter().filter(|entry| what(entry)).count()
        }

        /// Returns the next page of a kind after this one, wrapping around.
        fn after(&self, page: Page, kind: fn(&Entry) -> bool) -> Option<Page> {
            let at = self.at(page).unwrap();
            let (before, rest) = self.ring.split_at(at);
            rest[1..].iter().chain(before).find(|entry| kind(entry)).map(|entry| entry.page)
        }

        fn first(&self, kind: fn(&Entry) -> bool) -> Option<Page> {
            self.ring.iter().find(|entry| kind(entry)).map(|entry| entry.page)
        }

        /// Removes a page from the ring; hands at it move on.
        fn take(&mut self, page: Page) -> Entry {
            if self.hand_cold == Some(page) {
                self.hand_cold = self.after(page, resident_cold);
            }
            if self.hand_test == Some(page) {
                self.hand_test = self.after(page, cold);
            }
            self.ring.remove(self.at(page).unwrap())
        }

        fn hot_at_head(&mut self, page: Page) {
            let (test, bit, demoted) = (false, false, false);
            self.ring.push(Entry { page, hot: true, resident: true, test, bit, demoted });
            if !self.plus {
                self.m_c = self.m.min(self.m_c + 1);
            }
            self.hand_hot(usize::MAX);
        }

        fn end_test(&mut self, page: Page) {
            let at = self.at(page).unwrap();
            if self.ring[at].test {
                self.ring[at].test = false;
                if !self.plus {
                    self.m_c = 1.max(self.m_c - 1);
                }
            }
            if !self.ring[at].resident {
                self.take(page);
            }
        }

        fn hand_hot(&mut self, most: usize) {
            let hot = |entry: &Entry| entry.hot;
            let over = |this: &Self| this.count(hot) > most.min(this.m - this.m_c);
            if !over(self) {
                return;
            }
            while self.count(hot) > 0 && (over(self) || !self.ring[0].hot) {
                if self.ring[0].hot {
                    let entry = &mut self.ring[0];
                    entry.hot = entry.bit;
                    entry.demoted = self.plus && !entry.bit;
                    entry.bit = false;
                    self.ring.rotate_left(1);
                } else if self.ring[0].resident {
                    self.end_test(self.ring[0].page);
                    self.meet(0);
                    self.ring.rotate_left(1);
                } else {
                    self.end_test(self.ring[0].page);
                }
            }
        }

        fn hand_test(&mut self) {
            while self.count(|entry| !entry.resident) > self.m {
                let page = self.hand_test.or(self.first(cold)).unwrap();
                self.hand_test = self.after(page, cold);
                self.end_test(page);
            }
        }
    }

    impl Naive for ClockPro {
        fn insert(&mut self, access: &Access) {
            let page = access.page;
            if self.at(page).is_some() {
                if self.plus {
                    let [demoted, left] = self.utilities();
                    let most = 1.max(self.m / 2);
                    self.m_c = most.min(self.m_c + 1.max(demoted / left));
                }
                self.take(page);
                self.hot_at_head(page);
            } else {
                let hot = self.count(|entry| entry.resident) < self.m - self.m_c;
                let (bit, demoted) = (false, false);
                self.ring.push(Entry { page, hot, resident: true, test: !hot, bit, demoted });
            }
            self.hand_test();
        }
        fn hit(&mut self, access: &Access) {
            let at = self.at(access.page).unwrap();
            self.ring[at].bit = true;
        }
        fn evict(&mut self, incoming: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            loop {
                let Some(page) = self.hand_cold.or(self.first(resident_cold)) else {
                    self.hand_hot(self.count(|entry| entry.hot) - 1);
                    continue;
                };
                self.hand_cold = self.after(page, resident_cold);
                let at = self.at(page).unwrap();
                self.meet(at);
                self.ring[at].demoted = false;
                if self.ring[at].bit {
                    let entry = self.take(page);
                    if entry.test {
                        self.hot_at_head(page);
                    } else {
                        self.ring.push(Entry { test: true, bit: false, ..entry });
                    }
                    continue;
                }
                if self.ring[at].test {
                    self.ring[at].resident = false;
                } else {
                    self.take(page);
                }
                if incoming.is_none() {
                    self.hand_test();
                }
                return vec![page];
            }
        }
        fn remove(&mut self, page: Page) {
            self.take(page);
        }
        fn forget(&mut self, page: Page) {
            if self.at(page).is_some() {
                self.take(page);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::{conformance::pushed_out, naive::Act::Read};
    use flashsift_events::page::Page;

    /// Three frames, by hand: 0 and 1 come in hot, 2 cold. 3 evicts 2, which stays in its test
    /// period. 2 comes back, evicts 3 and becomes hot, and m_c rises to 2. So HAND_hot makes 0 and
    /// 1 cold, and on its way to the next hot page, 2 itself, it ends the test period of 3: m_c is
    /// 1 again. So 0, then 1 are evicted, and after that each incoming page, while 2 stays.
    #[test]
    fn a_page_accessed_in_its_test_period_is_hot() {
        let reads: Vec<_> = [0, 1, 2, 3, 2, 4, 5, 6, 7, 2].into_iter().map(Read).collect();
        assert_eq!(pushed_out("clockpro", 3, &reads), [2, 3, 0, 1, 4, 5].map(Page));
    }

    /// Three frames, by hand. 2 is hit in its test period, but HAND_cold finds the bit only when a
    /// frame is needed. Then 2 becomes hot, m_c rises to 2, HAND_hot makes 0 and 1 cold, and
    /// HAND_cold moves on to 0, which is evicted.
    #[test]
    fn a_hit_takes_effect_when_the_hand_reaches_the_page() {
        let reads: Vec<_> = [0, 1, 2, 2, 3, 4, 5].into_iter().map(Read).collect();
        assert_eq!(pushed_out("clockpro", 3, &reads), [0, 1, 3].map(Page));
    }

    /// In a loop over more pages than frames, LRU never hits. LIRS and CLOCK-Pro keep all but the
    /// cold frames: their purpose.
    #[test]
    fn pages_of_a_loop_stay() {
        let laps: Vec<_> = (0..10).flat_map(|_| 0..150).map(Read).collect();
        for policy in ["clockpro", "lirs"] {
            let gone = pushed_out(policy, 100, &laps).len();
            assert!(gone <= 50 + 9 * 53, "{policy}: {gone} pages evicted");
        }
        assert_eq!(pushed_out("lru", 100, &laps).len(), laps.len() - 100);
    }
}
