//! Clock2Q+: S3-FIFO with one bit a page, and a correlation window in the small queue in which
//! accesses set no bit.
//!
//! Zhai et al., "Clock2Q+: A Simple and Efficient Replacement Algorithm for Metadata Cache in
//! VMware vSAN", VLDB '26, arXiv 2511.21958. A new page enters the small queue, a page that the
//! ghost queue remembers the main queue. Accesses that closely follow the first one are correlated
//! with it: a page that is hit in the newest part of the small queue, the correlation window, gets
//! no bit. A page that leaves the small queue with its bit set moves to the main queue, without the
//! bit; any other page is evicted and leaves a ghost. The main queue is a clock. Points that we
//! took from the implementation that the first author contributed to libCacheSim (1a1a11a/
//! libCacheSim, pull request 314, `Clock2QPlus.c`):
//!
//! - The small queue has 0.1 of the cache, rounded down, here at least one page. The window is 0.5
//!   of the small queue, rounded up. Of 0.9 as many evicted pages as the cache holds, rounded down,
//!   ghosts are kept.
//! - A page is in the window until as many pages have entered the small queue after it as the
//!   window is large. Pages that leave the queue do not shift it.
//! - Until the first eviction new pages enter the main queue while the small one has its share.
//! - The small queue evicts when it has its share, else the main queue.
//!
//! Hits on `cloudphysics` and `weboffice` are those of libCacheSim 0.3.5, to the last one. Removal,
//! ghosts and drains are as in `s3fifo`. A removal counts as no eviction.

use super::{Build, Kind, Policy, PolicySpec, Setup};
use crate::cache::{Frames, Victims};
use flashsift_events::{
    page::{Access, Frame, Page},
    params::{self, Param},
    structure::{Ghosts, Lists},
};

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "clock2qplus",
    paper: "Zhai et al., \"Clock2Q+: A Simple and Efficient Replacement Algorithm for Metadata Cache \
        in VMware vSAN\", VLDB '26",
    what: "s3fifo, but accesses soon after the first one do not count",
    goal: "hits: pages used only in one burst leave soon",
    time: "amortised O(1): a hit sets a bit, an eviction walks two laps of the main queue at most",
    memory: "18 bytes a frame, 4 bytes a page of the trace, 4 bytes a remembered page",
    memory_bytes: |size| 18 * size.frames + 12 * size.pages,
    when: "where accesses come in bursts, as those to metadata that describes neighbouring data",
    params: PARAMS,
    kind: Kind::Online,
    slow: false,
    by_place: <Clock2QPlus as Policy>::WANTS_ADDRESSES,
    policy: super::only::<Clock2QPlus>,
    objects: None,
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| Box::new(model::Clock2QPlus::new(sizes(setup))),
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<Clock2QPlus>,
};

const PARAMS: &[Param] = &[
    Param {
        name: "small",
        what: "share of the cache that is the small queue",
        kind: params::ParamKind::Number { default: 0.1, min: 0.0, max: 1.0 },
    },
    Param {
        name: "window",
        what: "share of the small queue that is the correlation window",
        kind: params::ParamKind::Number { default: 0.5, min: 0.0, max: 1.0 },
    },
    Param {
        name: "ghosts",
        what: "how many evicted pages are remembered, as a share",
        kind: params::ParamKind::Number { default: 0.9, min: 0.0, max: 4.0 },
    },
];

struct Sizes {
    small: u32,
    ghosts: u32,
    /// In pages that have entered the small queue.
    window: u64,
}

fn sizes(setup: &Setup<'_>) -> Sizes {
    let [small, window, ghosts] =
        ["small", "window", "ghosts"].map(|name| setup.params.number(PARAMS, name));
    let frames = f64::from(setup.frames);
    let small = ((frames * small) as u32).max(1);
    let ghosts = (frames * ghosts) as u32;
    Sizes { small, ghosts, window: (f64::from(small) * window).ceil() as u64 }
}

const SMALL: usize = 0;
const MAIN: usize = 1;

pub(super) struct Clock2QPlus {
    queues: Lists<Frame, 2>,
    len: [u32; 2],
    in_main: Vec<bool>,
    referenced: Vec<bool>,
    /// Number of pages that had entered the small queue when this one did.
    entered: Vec<u64>,
    /// Number of pages that have entered the small queue until now.
    entries: u64,
    ghosts: Ghosts<1>,
    sizes: Sizes,
    has_evicted: bool,
    /// Whether the incoming page was a ghost.
    was_ghost: bool,
}

impl Build for Clock2QPlus {
    fn build(setup: &Setup<'_>) -> Self {
        let slots = setup.slots();
        Self {
            queues: Lists::new(slots),
            len: [0; 2],
            in_main: vec![false; slots as usize],
            referenced: vec![false; slots as usize],
            entered: vec![0; slots as usize],
            entries: 0,
            ghosts: Ghosts::new(setup.pages),
            sizes: sizes(setup),
            has_evicted: false,
            was_ghost: false,
        }
    }
}

impl Clock2QPlus {
    #[inline(always)]
    fn take_ghost(&mut self, page: Page) -> bool {
        let found = self.ghosts.queue_of(page).is_some();
        self.ghosts.remove(page);
        found
    }

    #[inline(always)]
    fn push(&mut self, queue: usize, frame: Frame) {
        self.referenced[frame.0 as usize] = false;
        self.in_main[frame.0 as usize] = queue == MAIN;
        self.queues.push_newest(queue, frame);
        self.len[queue] += 1;
    }

    #[inline(always)]
    fn take_oldest(&mut self, queue: usize) -> Option<Frame> {
        let frame = self.queues.oldest(queue)?;
        self.queues.remove(frame);
        self.len[queue] -= 1;
        Some(frame)
    }

    #[inline(always)]
    fn evict_small(&mut self, frames: &Frames) -> Option<Frame> {
        while let Some(frame) = self.take_oldest(SMALL) {
            if !self.referenced[frame.0 as usize] {
                self.ghosts.push(0, frames.page(frame));
                if self.ghosts.len(0) > self.sizes.ghosts {
                    self.ghosts.pop(0);
                }
                return Some(frame);
            }
            self.push(MAIN, frame);
        }
        None
    }

    #[inline(always)]
    fn evict_main(&mut self) -> Option<Frame> {
        // At most two laps: the first clears every bit that it passes.
        loop {
            let frame = self.queues.oldest(MAIN)?;
            if !std::mem::take(&mut self.referenced[frame.0 as usize]) {
                return self.take_oldest(MAIN);
            }
            self.queues.move_newest(MAIN, frame);
        }
    }
}

impl Policy for Clock2QPlus {
    const OFFLINE: bool = false;

    #[inline(always)]
    fn insert(&mut self, frame: Frame, access: &Access) {
        let was_ghost = std::mem::take(&mut self.was_ghost) || self.take_ghost(access.page);
        let fills_main = !self.has_evicted && self.len[SMALL] >= self.sizes.small;
        if was_ghost || fills_main {
            return self.push(MAIN, frame);
        }
        self.entries += 1;
        self.entered[frame.0 as usize] = self.entries;
        self.push(SMALL, frame);
    }

    #[inline(always)]
    fn hit(&mut self, frame: Frame, _: &Access) {
        let at = frame.0 as usize;
        let counts = self.in_main[at] || self.entries - self.entered[at] >= self.sizes.window;
        self.referenced[at] |= counts;
    }

    #[inline]
    fn evict(&mut self, incoming: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        self.has_evicted = true;
        self.was_ghost = incoming.is_some_and(|access| self.take_ghost(access.page));
        let from_small = self.len[SMALL] >= self.sizes.small || self.len[MAIN] == 0;
        let found = if from_small { self.evict_small(frames) } else { None };
        let found = found.or_else(|| self.evict_main());
        frames.expect_victims(self.queues.oldest_two(SMALL));
        victims.push(found.expect("evict is never called on an empty cache"));
    }

    fn remove(&mut self, frame: Frame, _: &Frames) {
        self.queues.remove(frame);
        self.len[usize::from(self.in_main[frame.0 as usize])] -= 1;
    }

    fn forget(&mut self, page: Page) {
        self.ghosts.remove(page);
    }

    #[inline(always)]
    fn expect_miss(&self, page: Page) {
        self.ghosts.prefetch(page);
    }

    fn check(&self, frames: &Frames) {
        self.queues.check();
        self.ghosts.check();
        for queue in [SMALL, MAIN] {
            assert_eq!(self.queues.iter(queue).count(), self.len[queue] as usize);
            let mut queued = self.queues.iter(queue);
            assert!(queued.all(|frame| self.in_main[frame.0 as usize] == (queue == MAIN)));
        }
        let entered: Vec<u64> =
            self.queues.iter(SMALL).map(|frame| self.entered[frame.0 as usize]).collect();
        assert!(entered.is_sorted() && entered.iter().all(|n| *n <= self.entries));
        assert!(self.ghosts.len(0) <= self.sizes.ghosts, "ghosts are at most their share");
        assert!(
            self.ghosts.iter(0).all(|page| frames.frame(page).is_none()),
            "a ghost is not resident"
        );
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use super::Sizes;
    use crate::policy::naive::Naive;
    use flashsift_events::page::{Access, Page};
    use std::collections::BTreeSet;

    /// A page of a queue.
    struct Queued {
        page: Page,
        bit: bool,
        /// Pages that entered the small queue after this one.
        later: u64,
    }

    /// Queues, the oldest page first.
    pub(super) struct Clock2QPlus {
        sizes: Sizes,
        small: Vec<Queued>,
        main: Vec<Queued>,
        ghost: Vec<Page>,
        evicted: bool,
        /// The incoming page, if it was a ghost when an eviction began for it.
        ghost_hit: Option<Page>,
    }

    impl Clock2QPlus {
        pub(super) fn new(sizes: Sizes) -> Self {
            let (small, main, ghost) = (vec![], vec![], vec![]);
            Self { sizes, small, main, ghost, evicted: false, ghost_hit: None }
        }

        fn evict_small(&mut self) -> Option<Page> {
            while !self.small.is_empty() {
                let queued = self.small.remove(0);
                if !queued.bit {
                    self.ghost.push(queued.page);
                    if self.ghost.len() > self.sizes.ghosts as usize {
                        self.ghost.remove(0);
                    }
                    return Some(queued.page);
                }
                self.main.push(Queued { bit: false, ..queued });
            }
            None
        }

        fn evict_main(&mut self) -> Option<Page> {
            while !self.main.is_empty() {
                let queued = self.main.remove(0);
                if !queued.bit {
                    return Some(queued.page);
                }
                self.main.push(Queued { bit: false, ..queued });
            }
            None
        }
    }

    impl Naive for Clock2QPlus {
        fn insert(&mut self, access: &Access) {
            let page = access.page;
            let queued = Queued { page, bit: false, later: 0 };
            let is_ghost = self.ghost_hit.take() == Some(page) || self.ghost.contains(&page);
            self.ghost.retain(|p| *p != page);
            if is_ghost || (!self.evicted && self.small.len() >= self.sizes.small as usize) {
                self.main.push(queued);
            } else {
                self.small.iter_mut().for_each(|other| other.later += 1);
                self.small.push(queued);
            }
        }
        fn hit(&mut self, access: &Access) {
            for queued in self.small.iter_mut().filter(|queued| queued.page == access.page) {
                queued.bit |= queued.later >= self.sizes.window;
            }
            for queued in self.main.iter_mut().filter(|queued| queued.page == access.page) {
                queued.bit = true;
            }
        }
        fn evict(&mut self, incoming: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            self.evicted = true;
            self.ghost_hit =
                incoming.map(|access| access.page).filter(|page| self.ghost.contains(page));
            self.ghost.retain(|page| Some(*page) != self.ghost_hit);
            let victim = if self.small.len() >= self.sizes.small as usize {
                self.evict_small().or_else(|| self.evict_main())
            } else {
                self.evict_main().or_else(|| self.evict_small()).or_else(|| self.evict_main())
            };
            vec![victim.unwrap()]
        }
        fn remove(&mut self, page: Page) {
            self.small.retain(|queued| queued.page != page);
            self.main.retain(|queued| queued.page != page);
        }
        fn forget(&mut self, page: Page) {
            self.ghost.retain(|p| *p != page);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::{conformance::pushed_out, naive::Act};

    /// Ten frames; the small queue has four pages, and the window two. 2 is hit while one page has
    /// entered after it, 3 when two have. Once the small queue is full, 5 to 10 fill the main
    /// queue. Then 1 and 2 leave, 3 moves to the main queue, and 4 leaves in its place.
    #[test]
    fn a_hit_in_the_window_does_not_count() {
        let mut acts: Vec<u32> = vec![1, 2, 3, 2];
        acts.extend([4, 5, 6, 7, 8, 9, 10, 11, 12]);
        let gone = |acts: &[u32], text: &str| {
            let acts: Vec<Act> = acts.iter().map(|page| Act::Read(*page)).collect();
            pushed_out(text, 10, &acts).iter().map(|page| page.0).collect::<Vec<_>>()
        };
        assert_eq!(gone(&acts, "clock2qplus:small=0.4"), [1, 2]);
        assert_eq!(gone(&acts, "clock2qplus:small=0.4,window=0.25"), [1, 3]);
    }
}
