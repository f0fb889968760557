//! CFLRU: an LRU list whose least recent positions are a clean-first window.
//!
//! Park et al., "CFLRU: a replacement algorithm for flash memory", CASES '06; SpatialClock (see
//! `spatialclock`) §2 and §5.1.2 (a window of 25 %). Among the last ⌈window·capacity⌋ positions of
//! the LRU list, the least recent clean page is evicted, or, if all of them are dirty, the LRU
//! page. The window counts resident pages from the LRU end, so that it also covers a cache that
//! removals or a drain have made smaller than the window. A page that is written back turns clean
//! and keeps its position.
//!
//! The list is a log: an access appends the frame and leaves a dead entry behind. The log is
//! compacted when it is twice as long as the cache. Positions in the log are in order of recency,
//! so clean pages are a set of positions. The victim is the first clean position, if it lies before
//! the end of the window. That end only moves forward, over each position once. All operations are
//! O(1) amortised, in whatever order pages turn clean.

use super::{Build, Kind, Policy, PolicySpec, Setup};
use crate::cache::{Frames, Victims};
use flashsift_events::{
    page::{Access, Frame, Op},
    params::{self, Param},
    structure::BitTree,
};
use prefetch_index::prefetch_index;

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "cflru",
    paper: "Park, Jung, Kang, Kim & Lee, \"CFLRU: a replacement algorithm for flash memory\", CASES '06",
    what: "LRU, but clean pages leave first in its last quarter",
    goal: "fewer writes: among the least recent pages clean ones leave first",
    time: "amortised O(1); the next clean page is found in a bitmap with summaries",
    memory: "12 bytes a frame",
    memory_bytes: |size| 13 * size.frames,
    when: "where a write costs much more than a read; a larger `window` saves more writes and \
        loses more hits",
    params: PARAMS,
    kind: Kind::Online,
    slow: false,
    by_place: <Cflru as Policy>::WANTS_ADDRESSES,
    policy: super::only::<Cflru>,
    objects: None,
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| Box::new(model::Cflru { lru: Vec::new(), window: window(setup) as usize }),
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<Cflru>,
};

const PARAMS: &[Param] = &[Param {
    name: "window",
    what: "the clean-first window's share",
    kind: params::ParamKind::Number { default: 0.25, min: 0.0, max: 1.0 },
}];

fn window(setup: &Setup<'_>) -> u32 {
    (setup.params.number(PARAMS, "window") * f64::from(setup.frames)).ceil() as u32
}

const NOWHERE: u32 = u32::MAX;

pub(super) struct Cflru {
    /// Frames in the order of their accesses; an entry is alive if `place` points back at it.
    log: Vec<Frame>,
    log_max: usize,
    place: Vec<u32>,
    /// Positions of clean frames in the log.
    clean: BitTree,
    used: u32,
    /// All entries before this position are dead.
    oldest: u32,
    /// Live entries before this position are the window.
    window_end: u32,
    window_len: u32,
    window: u32,
}

impl Build for Cflru {
    fn build(setup: &Setup<'_>) -> Self {
        let log_max = 2 * setup.slots() as usize + 64;
        Self {
            log: Vec::with_capacity(log_max),
            log_max,
            place: vec![NOWHERE; setup.slots() as usize],
            clean: BitTree::new(log_max as u32),
            used: 0,
            oldest: 0,
            window_end: 0,
            window_len: 0,
            window: window(setup),
        }
    }
}

impl Cflru {
    #[inline(always)]
    fn is_alive(&self, place: u32) -> bool {
        self.place[self.log[place as usize].0 as usize] == place
    }

    #[inline(always)]
    fn enter(&mut self, frame: Frame, clean: bool) {
        if self.log.len() == self.log_max {
            self.squeeze();
        }
        let place = self.log.len() as u32;
        self.log.push(frame);
        self.place[frame.0 as usize] = place;
        if clean {
            self.clean.insert(place);
        }
        self.used += 1;
        self.fill_window();
    }

    /// Removes a frame. The window stays short until [`Self::fill_window`].
    #[inline(always)]
    fn leave(&mut self, frame: Frame) {
        let place = std::mem::replace(&mut self.place[frame.0 as usize], NOWHERE);
        self.clean.remove(place);
        self.window_len -= u32::from(place < self.window_end);
        self.used -= 1;
    }

    #[inline(always)]
    fn fill_window(&mut self) {
        while self.window_len < self.window.min(self.used) {
            self.window_len += u32::from(self.is_alive(self.window_end));
            self.window_end += 1;
        }
    }

    #[cold]
    fn squeeze(&mut self) {
        let mut alive = 0;
        for place in self.oldest..self.log.len() as u32 {
            if self.is_alive(place) {
                let frame = self.log[place as usize];
                self.log[alive as usize] = frame;
                self.place[frame.0 as usize] = alive;
                if self.clean.contains(place) {
                    self.clean.remove(place);
                    self.clean.insert(alive);
                }
                alive += 1;
            }
        }
        self.log.truncate(alive as usize);
        self.oldest = 0;
        self.window_end = self.window_len;
    }
}

impl Policy for Cflru {
    const OFFLINE: bool = false;

    #[inline(always)]
    fn insert(&mut self, frame: Frame, access: &Access) {
        self.enter(frame, access.op == Op::Read);
    }

    #[inline(always)]
    fn hit(&mut self, frame: Frame, access: &Access) {
        self.leave(frame);
        self.enter(frame, access.op == Op::Read && !access.was_dirty);
    }

    #[inline(always)]
    fn evict(&mut self, _: Option<&Access>, _: &Frames, victims: &mut Victims) {
        assert!(self.used > 0, "evict is never called on an empty cache");
        while !self.is_alive(self.oldest) {
            self.oldest += 1;
        }
        let place = match self.clean.next(self.oldest) {
            Some(place) if place < self.window_end => place,
            _ => self.oldest,
        };
        let frame = self.log[place as usize];
        self.leave(frame);
        self.fill_window();
        victims.push(frame);
    }

    fn remove(&mut self, frame: Frame, _: &Frames) {
        self.leave(frame);
        self.fill_window();
    }

    fn cleaned(&mut self, frame: Frame) {
        self.clean.insert(self.place[frame.0 as usize]);
    }

    #[inline(always)]
    fn expect_hit(&self, frame: Frame) {
        prefetch_index(&self.place, frame.0 as usize);
    }

    fn check(&self, frames: &Frames) {
        self.clean.check();
        let alive: Vec<u32> =
            (0..self.log.len() as u32).filter(|place| self.is_alive(*place)).collect();
        assert_eq!(alive.len(), self.used as usize);
        assert_eq!(self.place.iter().filter(|place| **place != NOWHERE).count(), alive.len());
        assert!(
            alive.first().is_none_or(|first| *first >= self.oldest),
            "all entries before `oldest` are dead"
        );
        assert_eq!(
            self.window_len,
            self.window.min(self.used),
            "the window is as full as it can be"
        );
        assert_eq!(
            alive.partition_point(|place| *place < self.window_end),
            self.window_len as usize
        );
        let clean = alive.iter().filter(|place| !frames.dirty(self.log[**place as usize]));
        let set = std::iter::successors(self.clean.next(0), |place| self.clean.next(place + 1));
        assert!(set.eq(clean.copied()), "the set holds the positions of clean frames");
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use crate::policy::naive::Naive;
    use flashsift_events::page::{Access, Page};
    use std::collections::BTreeSet;

    pub(super) struct Cflru {
        /// Least recent first.
        pub(super) lru: Vec<Page>,
        pub(super) window: usize,
    }

    impl Naive for Cflru {
        fn insert(&mut self, access: &Access) {
            self.lru.push(access.page);
        }
        fn hit(&mut self, access: &Access) {
            self.remove(access.page);
            self.lru.push(access.page);
        }
        fn evict(&mut self, _: Option<&Access>, dirty: &BTreeSet<Page>) -> Vec<Page> {
            let clean = self.lru.iter().take(self.window).position(|page| !dirty.contains(page));
            vec![self.lru.remove(clean.unwrap_or(0))]
        }
        fn remove(&mut self, page: Page) {
            self.lru.retain(|p| *p != page);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::{
        conformance::{assert_coincide, pushed_out, reads_only, writes_only},
        naive::Act::{Read, Write},
    };
    use flashsift_events::page::Page;

    /// CFLRU is LRU if there is no window, or no dirty page, or no clean page.
    #[test]
    fn is_lru_without_a_window_or_a_choice_in_it() {
        assert_coincide("cflru:window=0", "lru", |act| act);
        assert_coincide("cflru:window=1", "lru", reads_only);
        assert_coincide("cflru:window=1", "lru", writes_only);
    }

    /// The figure of the CFLRU paper: the window is P8 (LRU) to P5, and P8 and P6 are dirty. The
    /// policy evicts P7, P5, P8, P6.
    #[test]
    fn evicts_as_in_the_figure_of_the_paper() {
        let full = [8, 7, 6, 5, 4, 3, 2, 1]
            .map(|page| if page % 2 == 0 { Write(page) } else { Read(page) });
        let next = [Write(11), Write(12), Write(13), Write(14)];
        // After P7 and P5 the window holds P4 and P3: if P3 were clean, it would be evicted before
        // P8.
        let dirty_3 = full.map(|act| if act == Read(3) { Write(3) } else { act });
        let out = |full: [_; 8]| pushed_out("cflru:window=0.5", 8, &[&full[..], &next].concat());
        assert_eq!(out(dirty_3), [7, 5, 8, 6].map(Page));
        assert_eq!(out(full), [7, 5, 3, 8].map(Page));
    }
}
