//! SpatialClock: Clock over pages in the order of their addresses, so that dirty victims are
//! neighbours on the device.
//!
//! Kim, Ryu & Ramachandran, "What is a good buffer cache replacement scheme for mobile flash
//! storage?", SIGMETRICS '12, §4 and Figure 2. The paper keeps frames in an AVL tree by sector and
//! sweeps it with one pointer. Here ranks are dense, so the tree is a bitmap over pages, and the
//! sweep skips 64 pages with set reference bits at a time. As in Figure 2, the pointer is a *node*:
//! the successor of the last victim at the time of its eviction. A page that comes in between the
//! two is reached a lap later. After the last node the pointer is null, and the next sweep begins
//! at the node that is then the first. Points that the paper leaves open, and our choices: if the
//! pointer's node is removed, the pointer moves to its successor; a page comes in with a clear bit.

use super::{Build, Kind, Policy, PolicySpec, Setup, clock};
use crate::{
    cache::{Frames, Victims},
    page::{Access, Frame, Page},
    structure::BitTree,
    system,
};
use prefetch_index::prefetch_index;

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "spatialclock",
    paper: "Kim, Ryu & Ramachandran, \"What is a good buffer cache replacement scheme for mobile flash \
        storage?\", SIGMETRICS '12",
    what: "second chance in order of address, so that victims are neighbours",
    goal: "sequential writes, with about the hits of clock",
    time: "a hit sets a bit; a miss O(log pages) to base 64; the hand passes 64 pages a step, one lap at \
        most, amortised O(1)",
    memory: "2 bits a page of the trace",
    when: "on SD cards and simple eMMC, where non-sequential writes are slow, under a file system \
        that updates in place",
    params: clock::PARAMS,
    kind: Kind::Online,
    slow: false,
    run: system::run::<SpatialClock>,
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| Box::new(model::SpatialClock::new(clock::insert_ref(setup))),
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<SpatialClock>,
};

struct SpatialClock {
    resident: BitTree,
    /// One bit per page, set only if the page is resident.
    referenced: Vec<u64>,
    /// Next page to examine, always resident; `None` starts at the first.
    hand: Option<u32>,
    insert_ref: bool,
}

impl Build for SpatialClock {
    fn build(setup: &Setup<'_>) -> Self {
        Self {
            resident: BitTree::new(setup.pages),
            referenced: vec![0; setup.pages.div_ceil(64) as usize],
            hand: None,
            insert_ref: clock::insert_ref(setup),
        }
    }
}

impl Policy for SpatialClock {
    const OFFLINE: bool = false;

    #[inline]
    fn insert(&mut self, _: Frame, access: &Access) {
        let page = access.page.0;
        self.resident.insert(page);
        if self.insert_ref {
            self.referenced[page as usize / 64] |= 1 << (page % 64);
        }
    }

    #[inline(always)]
    fn hit(&mut self, _: Frame, access: &Access) {
        self.referenced[access.page.0 as usize / 64] |= 1 << (access.page.0 % 64);
    }

    #[inline]
    fn evict(&mut self, _: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        let first = |set: &BitTree| set.next(0).expect("evict is never called on an empty cache");
        let start = self.hand.unwrap_or_else(|| first(&self.resident));
        let (mut word, mut from) = (start / 64, !0 << (start % 64));
        // At most two laps: the first clears every bit that it passes.
        loop {
            let ahead = self.resident.word(word) & from;
            let referenced = &mut self.referenced[word as usize];
            let unreferenced = ahead & !*referenced;
            if unreferenced != 0 {
                let bit = unreferenced.trailing_zeros();
                *referenced &= !(ahead & ((1 << bit) - 1));
                let page = word * 64 + bit;
                self.hand = self.resident.next(page + 1);
                self.resident.remove(page);
                frames.expect_victim(self.hand.and_then(|hand| frames.frame(Page(hand))));
                return victims
                    .push(frames.frame(Page(page)).expect("the set holds resident pages"));
            }
            *referenced &= !ahead;
            word = self.resident.word_after(word).unwrap_or_else(|| first(&self.resident) / 64);
            from = !0;
        }
    }

    fn remove(&mut self, frame: Frame, frames: &Frames) {
        let page = frames.page(frame).0;
        if self.hand == Some(page) {
            self.hand = self.resident.next(page + 1);
        }
        self.resident.remove(page);
        self.referenced[page as usize / 64] &= !(1 << (page % 64));
    }

    #[inline(always)]
    fn expect_access(&self, page: Page) {
        self.resident.prefetch(page.0);
        prefetch_index(&self.referenced, page.0 as usize / 64);
    }

    fn check(&self, frames: &Frames) {
        self.resident.check();
        assert!(
            self.hand.is_none_or(|hand| self.resident.contains(hand)),
            "the hand is on a resident page"
        );
        for (word, referenced) in self.referenced.iter().enumerate() {
            assert_eq!(
                referenced & !self.resident.word(word as u32),
                0,
                "only resident pages are referenced"
            );
        }
        let mut page = self.resident.next(0);
        while let Some(at) = page {
            assert!(frames.frame(Page(at)).is_some(), "the set holds resident pages");
            page = self.resident.next(at + 1);
        }
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use crate::{
        page::{Access, Page},
        policy::naive::Naive,
    };
    use std::collections::BTreeSet;

    /// Figure 2 of the paper over a sorted vector.
    pub(super) struct SpatialClock {
        nodes: Vec<(Page, bool)>,
        cur_pointer: Option<Page>,
        insert_ref: bool,
    }

    impl SpatialClock {
        pub(super) fn new(insert_ref: bool) -> Self {
            Self { nodes: Vec::new(), cur_pointer: None, insert_ref }
        }

        fn after(&self, page: Page) -> Option<Page> {
            self.nodes.iter().map(|(p, _)| *p).find(|p| *p > page)
        }
    }

    impl Naive for SpatialClock {
        fn insert(&mut self, access: &Access) {
            self.nodes.push((access.page, self.insert_ref));
            self.nodes.sort_unstable();
        }
        fn hit(&mut self, access: &Access) {
            self.nodes.iter_mut().find(|(page, _)| *page == access.page).unwrap().1 = true;
        }
        fn evict(&mut self, _: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            loop {
                let victim = self.cur_pointer.unwrap_or(self.nodes[0].0);
                self.cur_pointer = self.after(victim);
                let at = self.nodes.iter().position(|(page, _)| *page == victim).unwrap();
                if !self.nodes[at].1 {
                    self.nodes.remove(at);
                    return vec![victim];
                }
                self.nodes[at].1 = false;
            }
        }
        fn remove(&mut self, page: Page) {
            if self.cur_pointer == Some(page) {
                self.cur_pointer = self.after(page);
            }
            self.nodes.retain(|(p, _)| *p != page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        params::Params,
        policy::naive::{Act, real},
    };

    /// Figure 3 of the paper: sectors 40 and 72 are referenced, the pointer is at 40, and the
    /// victim is 80.
    #[test]
    fn evicts_as_in_figure_3() {
        let setup = Setup { frames: 5, pages: 200, runs: &[], params: &Params::default() };
        let mut cache = real::<SpatialClock>(&setup);
        // To move the pointer to 40, fill the cache; 20, in front of it, is the first victim.
        for page in [20, 40, 72, 80, 95, 120] {
            cache.step(Act::Write(page), 0);
        }
        for page in [40, 72] {
            cache.step(Act::Read(page), 0);
        }
        let effect = cache.step(Act::Write(130), 0);
        assert_eq!(effect.written, [Page(80)]);
        // The bits of 40 and 72 were cleared on the way: with the pointer at 95, both are evicted
        // after 95, 120 and 130.
        let victims: Vec<Page> =
            (140..145).flat_map(|page| cache.step(Act::Read(page), 0).written).collect();
        assert_eq!(victims, [95, 120, 130].map(Page));
    }
}
