//! Segmented LRU: LRU lists one above the other; a hit moves a page one list up.
//!
//! Karedla, Love & Wherry, "Caching Strategies to Improve Disk System Performance", IEEE Computer
//! 27(3), 1994, with two segments, probationary and protected; Huang et al., "An Analysis of
//! Facebook Photo Caching", SOSP '13, with four (S4LRU). A new page enters the lowest segment. A
//! hit moves a page to the newest end of the next segment. A segment over its share moves its
//! oldest page to the newest end of the segment below. The lowest segment evicts. Points that the
//! papers leave open, and our choices:
//!
//! - Every segment has the same share, the cache divided by their number and rounded down. The
//!   lowest also has the rest, and the frames that the others do not use yet: a page is evicted
//!   only from a full cache. With `fill=free` a new page enters the lowest segment that is below
//!   its share. A page that came in early is then in a higher segment without a hit. libCacheSim
//!   does so: with `fill=free`, hits on `cloudphysics` and `weboffice` are those of its version
//!   0.3.5, to the last one.
//! - If the lowest segment is empty, the next one evicts. A drain takes pages by the same rule, and
//!   a removal moves no other page.

use super::{Build, Kind, Policy, PolicySpec, Setup};
use crate::cache::{Frames, Victims};
use flashsift_events::{
    page::{Access, Frame},
    params::{self, Param},
    structure::Lists,
};

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "slru",
    paper: "Karedla, Love & Wherry, \"Caching Strategies to Improve Disk System Performance\", IEEE \
        Computer 27(3), 1994; Huang et al., \"An Analysis of Facebook Photo Caching\", SOSP '13",
    what: "LRU lists one above the other; a hit moves a page one list up",
    goal: "hits: a page has to be hit to stay longer",
    time: "O(1); a hit moves a list node, or two",
    memory: "9 bytes a frame",
    memory_bytes: |size| 9 * size.frames,
    when: "where scans run beside a hot set; simpler than 2q, since it remembers no evicted page",
    params: PARAMS,
    kind: Kind::Online,
    slow: false,
    by_place: <Slru as Policy>::WANTS_ADDRESSES,
    policy: super::only::<Slru>,
    objects: None,
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| {
        let segments = vec![vec![]; segments(setup)];
        Box::new(model::Slru { segments, share: share(setup) as usize, free: fills_free(setup) })
    },
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<Slru>,
};

const PARAMS: &[Param] = &[
    Param {
        name: "segments",
        what: "number of segments",
        kind: params::ParamKind::Number { default: 4.0, min: 1.0, max: 16.0 },
    },
    Param {
        name: "fill",
        what: "the segment of a new page: the lowest, or the lowest below its share",
        kind: params::ParamKind::Word(&["lowest", "free"]),
    },
];

fn segments(setup: &Setup<'_>) -> usize {
    setup.params.number(PARAMS, "segments") as usize
}

/// Returns the number of pages that a segment holds before it moves one down.
fn share(setup: &Setup<'_>) -> u32 {
    setup.frames / segments(setup) as u32
}

fn fills_free(setup: &Setup<'_>) -> bool {
    setup.params.word(PARAMS, "fill") == "free"
}

pub(super) struct Slru {
    /// The lowest segment first.
    segments: Lists<Frame, 0>,
    len: Vec<u32>,
    segment_of: Vec<u8>,
    share: u32,
    fills_free: bool,
}

impl Build for Slru {
    fn build(setup: &Setup<'_>) -> Self {
        let segments = segments(setup);
        Self {
            segments: Lists::with_lists(setup.slots(), segments as u32),
            len: vec![0; segments],
            segment_of: vec![0; setup.slots() as usize],
            share: share(setup),
            fills_free: fills_free(setup),
        }
    }
}

impl Slru {
    #[inline(always)]
    fn segment_of(&self, frame: Frame) -> usize {
        usize::from(self.segment_of[frame.0 as usize])
    }

    #[inline(always)]
    fn move_to(&mut self, segment: usize, frame: Frame) {
        let from = self.segment_of(frame);
        self.len[from] -= 1;
        self.len[segment] += 1;
        self.segment_of[frame.0 as usize] = segment as u8;
        self.segments.move_newest(segment, frame);
    }
}

impl Policy for Slru {
    const OFFLINE: bool = false;

    #[inline(always)]
    fn insert(&mut self, frame: Frame, _: &Access) {
        let below_share = || self.len.iter().position(|len| *len < self.share);
        let segment = if self.fills_free { below_share().unwrap_or(0) } else { 0 };
        self.segments.push_newest(segment, frame);
        self.segment_of[frame.0 as usize] = segment as u8;
        self.len[segment] += 1;
    }

    #[inline(always)]
    fn hit(&mut self, frame: Frame, _: &Access) {
        let segment = self.segment_of(frame);
        if segment + 1 == self.len.len() {
            return self.segments.move_newest(segment, frame);
        }
        self.move_to(segment + 1, frame);
        // The page that moves down takes the place of the one that moved up.
        if self.len[segment + 1] > self.share {
            let oldest = self.segments.oldest(segment + 1).expect("it holds the page that was hit");
            self.move_to(segment, oldest);
        }
    }

    #[inline(always)]
    fn evict(&mut self, _: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        let lowest = self.len.iter().position(|len| *len > 0);
        let lowest = lowest.expect("evict is never called on an empty cache");
        let frame = self.segments.oldest(lowest).expect("its length is above 0");
        self.len[lowest] -= 1;
        self.segments.remove(frame);
        frames.expect_victims(self.segments.oldest_two(lowest));
        victims.push(frame);
    }

    fn remove(&mut self, frame: Frame, _: &Frames) {
        let segment = self.segment_of(frame);
        self.len[segment] -= 1;
        self.segments.remove(frame);
    }

    #[inline(always)]
    fn expect_hit(&self, frame: Frame) {
        self.segments.prefetch(frame);
    }

    #[inline(always)]
    fn expect_move(&self, frame: Frame) {
        self.segments.prefetch_neighbours(frame);
    }

    fn check(&self, _: &Frames) {
        self.segments.check();
        for (segment, len) in self.len.iter().enumerate() {
            assert_eq!(self.segments.iter(segment).count(), *len as usize);
            assert!(self.segments.iter(segment).all(|frame| self.segment_of(frame) == segment));
        }
        assert!(self.len[1..].iter().all(|len| *len <= self.share), "no segment is over its share");
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use crate::policy::naive::Naive;
    use flashsift_events::page::{Access, Page};
    use std::collections::BTreeSet;

    /// Segments, the lowest first, and their pages, the oldest first.
    pub(super) struct Slru {
        pub(super) segments: Vec<Vec<Page>>,
        pub(super) share: usize,
        pub(super) free: bool,
    }

    impl Naive for Slru {
        fn insert(&mut self, access: &Access) {
            let mut segment = 0;
            if self.free {
                let free = self.segments.iter().position(|pages| pages.len() < self.share);
                segment = free.unwrap_or(0);
            }
            self.segments[segment].push(access.page);
        }
        fn hit(&mut self, access: &Access) {
            let found = self.segments.iter().position(|pages| pages.contains(&access.page));
            let segment = found.unwrap();
            self.remove(access.page);
            let above = (segment + 1).min(self.segments.len() - 1);
            self.segments[above].push(access.page);
            for from in (1..self.segments.len()).rev() {
                if self.segments[from].len() > self.share {
                    let page = self.segments[from].remove(0);
                    self.segments[from - 1].push(page);
                }
            }
        }
        fn evict(&mut self, _: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            let lowest = self.segments.iter_mut().find(|pages| !pages.is_empty()).unwrap();
            vec![lowest.remove(0)]
        }
        fn remove(&mut self, page: Page) {
            self.segments.iter_mut().for_each(|pages| pages.retain(|p| *p != page));
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
    fn is_lru_with_one_segment() {
        assert_coincide("slru:segments=1", "lru", |act| act);
        assert_coincide("slru:segments=1,fill=free", "lru", |act| act);
    }

    /// Four frames, two segments of two pages. 1, 2 and 3 are hit in turn: 3 moves 1 down, behind
    /// 4. So 4 is evicted first, then 1, which is oldest below; 2 and 3 are protected.
    #[test]
    fn a_page_moves_down_behind_those_that_came_before() {
        let acts = [1, 2, 3, 4, 1, 2, 3, 5, 6, 7, 8].map(Act::Read);
        let gone: Vec<u32> =
            pushed_out("slru:segments=2", 4, &acts).iter().map(|page| page.0).collect();
        assert_eq!(gone, [4, 1, 5, 6]);
    }
}
