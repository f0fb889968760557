//! LFU: the page with the fewest accesses is evicted; among equals, the least recently used.
//!
//! A textbook policy; the tie-break is our choice. Accesses count from the time at which a page
//! came in: evicted and removed pages are forgotten, and write-back changes nothing. A drain evicts
//! in the same order.
//!
//! Frames with equal counts share a list in order of their last access. The lists in use form a
//! chain in order of count, so a hit moves a frame to the next list, and the victim is the oldest
//! frame of the first list. If a page is alone in its list, as popular pages usually are, a hit
//! only raises the count of the list.

use super::{Build, Kind, Policy, PolicySpec, Setup};
use crate::{
    cache::{Frames, Victims},
    objects,
};
use flashsift_events::{
    page::{Access, Frame},
    structure::Lists,
};
use prefetch_index::prefetch_index;

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "lfu",
    paper: "textbook",
    what: "the least often used page leaves",
    goal: "hits, by frequency",
    time: "O(1); a hit moves a list node",
    memory: "40 bytes a frame",
    memory_bytes: |size| 40 * size.frames,
    when: "where popularity does not change: pages that were popular once stay",
    params: &[],
    kind: Kind::Online,
    slow: false,
    by_place: <Lfu as Policy>::WANTS_ADDRESSES,
    policy: super::only::<Lfu>,
    objects: Some(objects::runs::<Lfu>()),
    #[cfg(any(test, feature = "naive"))]
    naive: |_| Box::new(model::Lfu(Vec::new())),
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<Lfu>,
};

/// Both ends of the chain: a class that contains no frame.
const END: u32 = 0;

/// A class of frames with the same count. Its number is that of their list.
#[derive(Clone, Copy)]
struct Class {
    count: u64,
    /// Neighbours in the chain.
    fewer: u32,
    more: u32,
}

pub(super) struct Lfu {
    lists: Lists<Frame, 0>,
    classes: Vec<Class>,
    /// Classes that are not in the chain.
    free: Vec<u32>,
    class_of: Vec<u32>,
}

impl Build for Lfu {
    fn build(setup: &Setup<'_>) -> Self {
        // One class per frame, one for a frame that moves before its own class is freed, and the
        // end.
        let classes = setup.slots() + 2;
        Self {
            lists: Lists::with_lists(setup.slots(), classes),
            classes: vec![Class { count: 0, fewer: END, more: END }; classes as usize],
            free: (1..classes).rev().collect(),
            class_of: vec![END; setup.slots() as usize],
        }
    }
}

impl Lfu {
    /// Returns the class of `count`, which is the next after `fewer` or is inserted there.
    #[inline(always)]
    fn class_after(&mut self, fewer: u32, count: u64) -> u32 {
        let more = self.classes[fewer as usize].more;
        if more != END && self.classes[more as usize].count == count {
            return more;
        }
        let class = self.free.pop().expect("there are more classes than frames");
        self.classes[class as usize] = Class { count, fewer, more };
        self.classes[fewer as usize].more = class;
        self.classes[more as usize].fewer = class;
        class
    }

    #[inline(always)]
    fn drop_if_empty(&mut self, class: u32) {
        if self.lists.oldest(class as usize).is_none() {
            let Class { fewer, more, .. } = self.classes[class as usize];
            self.classes[fewer as usize].more = more;
            self.classes[more as usize].fewer = fewer;
            self.free.push(class);
        }
    }
}

impl Policy for Lfu {
    const OFFLINE: bool = false;

    #[inline(always)]
    fn insert(&mut self, frame: Frame, _: &Access) {
        let class = self.class_after(END, 1);
        self.class_of[frame.0 as usize] = class;
        self.lists.push_newest(class as usize, frame);
    }

    #[inline(always)]
    fn hit(&mut self, frame: Frame, _: &Access) {
        let class = self.class_of[frame.0 as usize];
        let Class { count, more, .. } = self.classes[class as usize];
        let alone = self.lists.oldest(class as usize) == self.lists.newest(class as usize);
        if alone && (more == END || self.classes[more as usize].count > count + 1) {
            self.classes[class as usize].count += 1;
            return;
        }
        let next = self.class_after(class, count + 1);
        self.class_of[frame.0 as usize] = next;
        self.lists.move_newest(next as usize, frame);
        self.drop_if_empty(class);
    }

    #[inline(always)]
    fn evict(&mut self, _: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        let class = self.classes[END as usize].more;
        let frame =
            self.lists.oldest(class as usize).expect("evict is never called on an empty cache");
        self.lists.remove(frame);
        frames.expect_victims(self.lists.oldest_two(class as usize));
        self.drop_if_empty(class);
        victims.push(frame);
    }

    fn remove(&mut self, frame: Frame, _: &Frames) {
        self.lists.remove(frame);
        self.drop_if_empty(self.class_of[frame.0 as usize]);
    }

    #[inline(always)]
    fn expect_hit(&self, frame: Frame) {
        self.lists.prefetch(frame);
        prefetch_index(&self.class_of, frame.0 as usize);
    }

    fn check(&self, _: &Frames) {
        self.lists.check();
        let (mut class, mut in_chain) = (END, 0);
        loop {
            let Class { count, more, .. } = self.classes[class as usize];
            assert_eq!(self.classes[more as usize].fewer, class, "the links of the chain agree");
            if more == END {
                break;
            }
            assert!(self.classes[more as usize].count > count, "counts ascend along the chain");
            assert!(self.lists.oldest(more as usize).is_some(), "no class in the chain is empty");
            assert!(
                self.lists.iter(more as usize).all(|frame| self.class_of[frame.0 as usize] == more)
            );
            (class, in_chain) = (more, in_chain + 1);
        }
        assert_eq!(
            in_chain + self.free.len() + 1,
            self.classes.len(),
            "a class is in the chain or free"
        );
        assert!(self.free.iter().all(|class| self.lists.oldest(*class as usize).is_none()));
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use crate::policy::naive::Naive;
    use flashsift_events::page::{Access, Page};
    use std::collections::BTreeSet;

    /// Pages and their counts, least recent first.
    pub(super) struct Lfu(pub(super) Vec<(Page, u32)>);

    impl Naive for Lfu {
        fn insert(&mut self, access: &Access) {
            self.0.push((access.page, 1));
        }
        fn hit(&mut self, access: &Access) {
            let at = self.0.iter().position(|(page, _)| *page == access.page).unwrap();
            let (page, count) = self.0.remove(at);
            self.0.push((page, count + 1));
        }
        fn evict(&mut self, _: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            let least = self.0.iter().map(|(_, count)| *count).min().unwrap();
            let at = self.0.iter().position(|(_, count)| *count == least).unwrap();
            vec![self.0.remove(at).0]
        }
        fn remove(&mut self, page: Page) {
            self.0.retain(|(p, _)| *p != page);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::{conformance::pushed_out, naive::Act};
    use flashsift_events::page::Page;

    /// Rounds over a set that fits leave all counts equal; then the order of eviction is that of
    /// LRU.
    #[test]
    fn is_lru_among_equals() {
        for frames in 1..30 {
            for rounds in 1..4 {
                // Odd rounds run backwards, so that the order of arrival differs from that of the
                // last access.
                let mut acts = Vec::new();
                for round in 0..rounds {
                    let up = 0..frames;
                    acts.extend(
                        up.map(|n| Act::Read(if round % 2 == 0 { n } else { frames - 1 - n })),
                    );
                }
                let recent: Vec<Page> = acts[acts.len() - frames as usize..]
                    .iter()
                    .map(|act| if let Act::Read(page) = act { Page(*page) } else { unreachable!() })
                    .collect();
                // Each new page is accessed as often before the next one arrives: otherwise it
                // would be the next victim.
                for page in 0..frames {
                    acts.extend((0..rounds).map(|_| Act::Read(500 + page)));
                }
                assert_eq!(pushed_out("lfu", frames, &acts), recent);
                assert_eq!(pushed_out("lru", frames, &acts), recent);
            }
        }
    }

    /// One additional access outweighs any recency.
    #[test]
    fn a_page_used_once_is_evicted_before_one_used_twice() {
        let acts = [0, 0, 1, 2, 3, 4, 5].map(Act::Read);
        assert_eq!(pushed_out("lfu", 2, &acts), [1, 2, 3, 4].map(Page));
    }
}
