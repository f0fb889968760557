//! S3-FIFO: a small queue that most pages only pass through, a main queue for pages accessed again
//! there, and a ghost queue.
//!
//! Yang et al., "FIFO Queues are All You Need for Cache Eviction", SOSP '23, Algorithm 1. A new
//! page enters the small queue (S); a page in the ghost queue (G) enters the main queue (M). S
//! evicts its oldest page when it holds its share, else M does. A page that leaves S with two hits
//! or more moves to M with its counter at 0; any other page leaves a ghost. A page of M with a hit
//! goes round again with min(hits, 3) − 1. Points that the paper leaves open, and our choices:
//!
//! - S has a tenth of the cache, at least one page. G has 9/10 of the cache, in entries, rounded
//!   down.
//! - A page is looked up in G, and its ghost removed, before a victim is evicted for it. Its own
//!   ghost then takes no entry of G from others.
//! - S moves pages to M before any eviction when it is over its share. Algorithm 1 is read
//!   literally: S evicts once it has its share, so an empty cache fills through S alone.
//!   libCacheSim of October 2024 gives the same miss ratios of `cloudphysics` to four digits:
//!   0.8509, 0.8256 and 0.6693 at 100, 1,000 and 10,000 objects. With `fill=main` new pages enter M
//!   while S has its share, until the first eviction: the authors' rule since December 2024
//!   (libCacheSim, `S3FIFO.c`; the older one is `S3FIFOv0.c` there). Then the ratios are 0.8547,
//!   0.8255 and 0.6636, as those of libCacheSim 0.3.5. A removal is no eviction.
//! - Pages moved from S to M may take M over its share. M evicts only once S is below its own
//!   share.
//! - A removed page leaves no ghost, and a ghost that is removed is forgotten. A drain takes pages
//!   from S and M by the same rule.
//! - Objects with sizes: all shares are in bytes, also G's, which forgets until it is within its
//!   own. Pages of one size fill the cache whole, so that S has its share or M is over its own;
//!   objects may fit neither exactly. Then, as in libCacheSim, M evicts when it is over its share
//!   or S is empty, else S does. An object larger than S's share does not enter.

use super::{Build, Kind, Policy, PolicySpec, Setup};
use crate::{
    cache::{Frames, Victims},
    objects,
};
use flashsift_events::{
    page::{Access, Frame, Page},
    params::{self, Param},
    structure::{Ghosts, Lists, Weights},
};

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "s3fifo",
    paper: "Yang, Zhang, Qiu, Yue & Rashmi, \"FIFO Queues are All You Need for Cache Eviction\", SOSP '23",
    what: "a small queue filters the pages that enter the main queue",
    goal: "hits: pages used once leave soon",
    time: "amortised O(1): a hit counts, an eviction walks four laps of the main queue at most",
    memory: "10 bytes a frame, 4 bytes a page of the trace, 4 bytes a remembered page",
    memory_bytes: |size| 10 * size.frames + 12 * size.pages,
    when: "where many pages are used once and few are popular, as in web caches",
    params: PARAMS,
    kind: Kind::Online,
    slow: false,
    by_place: <S3Fifo<false> as Policy>::WANTS_ADDRESSES,
    policy: super::only::<S3Fifo<false>>,
    objects: Some(objects::runs::<S3Fifo<true>>()),
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| Box::new(model::S3Fifo::new(setup)),
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<S3Fifo<false>>,
};

const PARAMS: &[Param] = &[Param {
    name: "fill",
    what: "the queue of new pages until the first eviction, once the small one has its share",
    kind: params::ParamKind::Word(&["small", "main"]),
}];

fn fills_main(setup: &Setup<'_>) -> bool {
    setup.params.word(PARAMS, "fill") == "main"
}

const SMALL: usize = 0;
const MAIN: usize = 1;

/// Greatest value of a counter.
const HITS_MAX: u8 = 3;
/// Hits in S after which a page moves to M.
const HITS_TO_MAIN: u8 = 2;

pub(super) struct S3Fifo<const SIZED: bool> {
    queues: Lists<Frame, 2>,
    weights: Weights<SIZED>,
    /// Weight of each queue.
    held: [u64; 2],
    in_main: Vec<bool>,
    hits: Vec<u8>,
    ghosts: Ghosts<1>,
    ghosts_held: u64,
    small_share: u64,
    main_share: u64,
    ghosts_max: u64,
    /// Whether new pages enter M while S has its share: until the first eviction, if at all.
    fills_main: bool,
    /// Whether the incoming page was a ghost.
    was_ghost: bool,
}

impl<const SIZED: bool> Build for S3Fifo<SIZED> {
    fn build(setup: &Setup<'_>) -> Self {
        let slots = setup.slots();
        let [small_share, ghosts_max] = shares(setup);
        Self {
            queues: Lists::new(slots),
            weights: Weights::new(setup.pages),
            held: [0; 2],
            in_main: vec![false; slots as usize],
            hits: vec![0; slots as usize],
            ghosts: Ghosts::new(setup.pages),
            ghosts_held: 0,
            small_share,
            main_share: setup.capacity() - small_share.min(setup.capacity()),
            ghosts_max,
            fills_main: fills_main(setup),
            was_ghost: false,
        }
    }
}

/// Returns the weight from which S evicts, and the greatest of G.
fn shares(setup: &Setup<'_>) -> [u64; 2] {
    let capacity = u128::from(setup.capacity());
    [(setup.capacity() / 10).max(1), (capacity * 9 / 10) as u64]
}

impl<const SIZED: bool> S3Fifo<SIZED> {
    #[inline(always)]
    fn take_ghost(&mut self, page: Page) -> bool {
        let found = self.ghosts.queue_of(page).is_some();
        if found {
            self.ghosts_held -= self.weights.of(|| page);
        }
        self.ghosts.remove(page);
        found
    }

    #[inline(always)]
    fn push(&mut self, queue: usize, frame: Frame, weight: u64) {
        self.hits[frame.0 as usize] = 0;
        self.in_main[frame.0 as usize] = queue == MAIN;
        self.queues.push_newest(queue, frame);
        self.held[queue] += weight;
    }

    #[inline(always)]
    fn take_oldest(&mut self, queue: usize, frames: &Frames) -> Option<(Frame, u64)> {
        let frame = self.queues.oldest(queue)?;
        self.queues.remove(frame);
        let weight = self.weights.of(|| frames.page(frame));
        self.held[queue] -= weight;
        Some((frame, weight))
    }

    /// Remembers an evicted page, if it fits into G, where the oldest give way.
    #[inline(always)]
    fn push_ghost(&mut self, page: Page, weight: u64) {
        if weight > self.ghosts_max {
            return;
        }
        while self.ghosts_held + weight > self.ghosts_max {
            let oldest = self.ghosts.pop(0).expect("what weighs is in the queue");
            self.ghosts_held -= self.weights.of(|| oldest);
        }
        self.ghosts.push(0, page);
        self.ghosts_held += weight;
    }

    #[inline(always)]
    fn evict_small(&mut self, frames: &Frames) -> Option<Frame> {
        while let Some((frame, weight)) = self.take_oldest(SMALL, frames) {
            if self.hits[frame.0 as usize] < HITS_TO_MAIN {
                self.push_ghost(frames.page(frame), weight);
                return Some(frame);
            }
            self.push(MAIN, frame, weight);
        }
        None
    }

    #[inline(always)]
    fn evict_main(&mut self, frames: &Frames) -> Option<Frame> {
        // At most four laps: each lowers every counter that it passes by one.
        loop {
            let frame = self.queues.oldest(MAIN)?;
            let hits = &mut self.hits[frame.0 as usize];
            if *hits == 0 {
                return self.take_oldest(MAIN, frames).map(|(frame, _)| frame);
            }
            *hits -= 1;
            self.queues.move_newest(MAIN, frame);
        }
    }
}

impl<const SIZED: bool> Policy for S3Fifo<SIZED> {
    const OFFLINE: bool = false;

    #[inline(always)]
    fn insert(&mut self, frame: Frame, access: &Access) {
        let was_ghost = std::mem::take(&mut self.was_ghost) || self.take_ghost(access.page);
        self.weights.set(access);
        let weight = Weights::<SIZED>::incoming(access);
        let fills_main = self.fills_main && self.held[SMALL] >= self.small_share;
        self.push(if was_ghost || fills_main { MAIN } else { SMALL }, frame, weight);
    }

    #[inline(always)]
    fn hit(&mut self, frame: Frame, _: &Access) {
        let hits = &mut self.hits[frame.0 as usize];
        *hits = (*hits + 1).min(HITS_MAX);
    }

    #[inline]
    fn evict(&mut self, incoming: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        self.fills_main = false;
        // An object may need several evictions; the first finds its ghost.
        self.was_ghost |= incoming.is_some_and(|access| self.take_ghost(access.page));
        let from_small = match SIZED {
            true => self.held[MAIN] <= self.main_share && self.queues.oldest(SMALL).is_some(),
            false => self.held[SMALL] >= self.small_share || self.held[MAIN] == 0,
        };
        let found = if from_small { self.evict_small(frames) } else { None };
        let found = found.or_else(|| self.evict_main(frames));
        frames.expect_victims(self.queues.oldest_two(SMALL));
        victims.push(found.expect("evict is never called on an empty cache"));
    }

    fn takes(&self, access: &Access) -> bool {
        Weights::<SIZED>::incoming(access) <= self.small_share
    }

    fn remove(&mut self, frame: Frame, frames: &Frames) {
        self.queues.remove(frame);
        let queue = usize::from(self.in_main[frame.0 as usize]);
        self.held[queue] -= self.weights.of(|| frames.page(frame));
    }

    fn forget(&mut self, page: Page) {
        self.take_ghost(page);
    }

    #[inline(always)]
    fn expect_miss(&self, page: Page) {
        self.ghosts.prefetch(page);
    }

    fn check(&self, frames: &Frames) {
        self.queues.check();
        self.ghosts.check();
        for queue in [SMALL, MAIN] {
            let weight = |frame| self.weights.of(|| frames.page(frame));
            assert_eq!(self.queues.iter(queue).map(weight).sum::<u64>(), self.held[queue]);
            assert!(
                self.queues
                    .iter(queue)
                    .all(|frame| self.in_main[frame.0 as usize] == (queue == MAIN))
            );
        }
        assert!(self.hits.iter().all(|hits| *hits <= HITS_MAX));
        let ghosts: u64 = self.ghosts.iter(0).map(|page| self.weights.of(|| page)).sum();
        assert_eq!(ghosts, self.ghosts_held);
        assert!(ghosts <= self.ghosts_max, "ghosts are at most their share");
        assert!(
            self.ghosts.iter(0).all(|page| frames.frame(page).is_none()),
            "a ghost is not resident"
        );
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use crate::policy::{
        Setup,
        naive::{Naive, NaiveWeights},
    };
    use flashsift_events::page::{Access, Page};
    use std::collections::BTreeSet;

    /// Algorithm 1 over vectors, oldest first; each page with its counter.
    pub(super) struct S3Fifo {
        capacity: u64,
        weights: NaiveWeights,
        small: Vec<(Page, u32)>,
        main: Vec<(Page, u32)>,
        ghost: Vec<Page>,
        ghost_hit: Option<Page>,
        fills_main: bool,
        evicted: bool,
    }

    impl S3Fifo {
        pub(super) fn new(setup: &Setup<'_>) -> Self {
            Self {
                capacity: setup.capacity(),
                weights: NaiveWeights::new(setup),
                small: vec![],
                main: vec![],
                ghost: vec![],
                ghost_hit: None,
                fills_main: super::fills_main(setup),
                evicted: false,
            }
        }

        fn weight(&self, queue: &[(Page, u32)]) -> u64 {
            queue.iter().map(|(page, _)| self.weights.of(*page)).sum()
        }

        fn small_share(&self) -> u64 {
            std::cmp::max(self.capacity / 10, 1)
        }

        fn small_evicts(&self) -> bool {
            if self.weights.are_sizes() {
                let main_share = self.capacity.saturating_sub(self.small_share());
                !(self.weight(&self.main) > main_share || self.small.is_empty())
            } else {
                self.weight(&self.small) >= self.small_share()
            }
        }

        fn remember(&mut self, page: Page) {
            let share = self.capacity * 9 / 10;
            if self.weights.of(page) <= share {
                self.ghost.push(page);
            }
            let weights = &self.weights;
            while self.ghost.iter().map(|page| weights.of(*page)).sum::<u64>() > share {
                self.ghost.remove(0);
            }
        }

        fn evict_s(&mut self) -> Option<Page> {
            while !self.small.is_empty() {
                let (page, hits) = self.small.remove(0);
                if hits >= 2 {
                    self.main.push((page, 0));
                } else {
                    self.remember(page);
                    return Some(page);
                }
            }
            None
        }

        fn evict_m(&mut self) -> Option<Page> {
            while !self.main.is_empty() {
                let (page, hits) = self.main.remove(0);
                if hits == 0 {
                    return Some(page);
                }
                self.main.push((page, hits.min(3) - 1));
            }
            None
        }
    }

    impl Naive for S3Fifo {
        fn insert(&mut self, access: &Access) {
            let page = access.page;
            self.weights.set(access);
            if self.ghost_hit == Some(page) || self.ghost.contains(&page) {
                self.ghost.retain(|p| *p != page);
                self.main.push((page, 0));
            } else if self.fills_main
                && !self.evicted
                && self.weight(&self.small) >= self.small_share()
            {
                self.main.push((page, 0));
            } else {
                self.small.push((page, 0));
            }
            self.ghost_hit = None;
        }
        fn hit(&mut self, access: &Access) {
            let all = self.small.iter_mut().chain(&mut self.main);
            all.filter(|(page, _)| *page == access.page).for_each(|(_, hits)| *hits += 1);
        }
        fn evict(&mut self, incoming: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            self.evicted = true;
            let incoming = incoming.map(|access| access.page);
            self.ghost_hit =
                incoming.filter(|p| self.ghost.contains(p) || self.ghost_hit == Some(*p));
            self.ghost.retain(|page| Some(*page) != self.ghost_hit);
            let victim = if self.small_evicts() {
                self.evict_s().or_else(|| self.evict_m())
            } else {
                self.evict_m().or_else(|| self.evict_s()).or_else(|| self.evict_m())
            };
            vec![victim.unwrap()]
        }
        fn takes(&self, access: &Access) -> bool {
            u64::from(access.bytes) <= self.small_share()
        }
        fn remove(&mut self, page: Page) {
            self.small.retain(|(p, _)| *p != page);
            self.main.retain(|(p, _)| *p != page);
        }
        fn forget(&mut self, page: Page) {
            self.ghost.retain(|p| *p != page);
        }
    }
}
