//! Belady's MIN: the page with the farthest next use is evicted. No policy has more hits, so it is
//! the upper bound.
//!
//! Belady, "A study of replacement algorithms for a virtual-storage computer", IBM Systems Journal
//! 1966. An incoming page is always admitted, because a page cache must hold a page that is being
//! read. A page that is truncated or deleted before its next use counts as never used again. MIN
//! bounds hits, not writes: it does not look at dirty bits. Among pages that are never used again,
//! the lowest is evicted first, which changes no hit.
//!
//! Uses are positions in a heap, farthest first. An access leaves the page's old entry in the heap.
//! That entry lies in the present or the past, so it reaches the top only when no live entry is
//! left. Live entries are therefore always found before stale ones, except those of removed pages,
//! which `next_of` identifies.

use super::{Build, Kind, Policy, PolicySpec, Setup};
use crate::{
    cache::{Frames, Victims},
    objects,
};
use flashsift_events::page::{Access, Frame, Page};
use std::{cmp::Reverse, collections::BinaryHeap};

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "belady",
    paper: "Belady, \"A study of replacement algorithms for a virtual-storage computer\", IBM Systems \
        Journal 5(2), 1966",
    what: "the page used farthest in the future leaves: the upper bound for hits",
    goal: "hits: no policy has more",
    time: "O(log frames)",
    memory: "44 bytes a frame, 4 bytes an access of the trace",
    memory_bytes: |size| 64 * size.frames,
    when: "to see how many hits are left to gain; it needs the future and bounds hits, not writes",
    params: &[],
    kind: Kind::Bound,
    slow: false,
    by_place: <Belady as Policy>::WANTS_ADDRESSES,
    policy: super::only::<Belady>,
    objects: Some(objects::runs::<Belady>()),
    #[cfg(any(test, feature = "naive"))]
    naive: |_| Box::new(model::Belady(Vec::new())),
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<Belady>,
};

pub(super) struct Belady {
    /// Farthest next use first, then the lowest page.
    heap: BinaryHeap<(u32, Reverse<Page>)>,
    /// Next use and page of each frame that is in use.
    next_of: Vec<Option<(u32, Page)>>,
    used: usize,
}

impl Build for Belady {
    fn build(setup: &Setup<'_>) -> Self {
        Self { heap: BinaryHeap::new(), next_of: vec![None; setup.slots() as usize], used: 0 }
    }
}

impl Belady {
    #[inline]
    fn push(&mut self, frame: Frame, access: &Access) {
        self.next_of[frame.0 as usize] = Some((access.next_use, access.page));
        self.heap.push((access.next_use, Reverse(access.page)));
        if self.heap.len() > 4 * self.next_of.len() + 64 {
            self.heap =
                self.next_of.iter().flatten().map(|(next, page)| (*next, Reverse(*page))).collect();
        }
    }
}

impl Policy for Belady {
    const OFFLINE: bool = true;

    fn insert(&mut self, frame: Frame, access: &Access) {
        self.used += 1;
        self.push(frame, access);
    }

    fn hit(&mut self, frame: Frame, access: &Access) {
        self.push(frame, access);
    }

    fn evict(&mut self, _: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        loop {
            let (next_use, Reverse(page)) =
                self.heap.pop().expect("evict is never called on an empty cache");
            if let Some(frame) = frames.frame(page)
                && self.next_of[frame.0 as usize] == Some((next_use, page))
            {
                self.next_of[frame.0 as usize] = None;
                self.used -= 1;
                return victims.push(frame);
            }
        }
    }

    fn remove(&mut self, frame: Frame, _: &Frames) {
        self.next_of[frame.0 as usize] = None;
        self.used -= 1;
    }

    fn check(&self, frames: &Frames) {
        assert_eq!(self.next_of.iter().flatten().count(), self.used);
        assert!(
            self.heap.len() <= 4 * self.next_of.len() + 64,
            "stale entries are removed in time"
        );
        for (frame, next) in self.next_of.iter().enumerate() {
            if let Some((_, page)) = next {
                assert_eq!(frames.frame(*page), Some(Frame(frame as u32)));
            }
        }
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use crate::policy::naive::Naive;
    use flashsift_events::page::{Access, Page};
    use std::collections::BTreeSet;

    pub(super) struct Belady(pub(super) Vec<(Page, u32)>);

    impl Naive for Belady {
        fn insert(&mut self, access: &Access) {
            self.0.push((access.page, access.next_use));
        }
        fn hit(&mut self, access: &Access) {
            self.remove(access.page);
            self.insert(access);
        }
        fn evict(&mut self, _: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            let farthest = self.0.iter().map(|(_, next)| *next).max().unwrap();
            let page = self
                .0
                .iter()
                .filter(|(_, next)| *next == farthest)
                .map(|(page, _)| *page)
                .min()
                .unwrap();
            self.remove(page);
            vec![page]
        }
        fn remove(&mut self, page: Page) {
            self.0.retain(|(p, _)| *p != page);
        }
    }
}
