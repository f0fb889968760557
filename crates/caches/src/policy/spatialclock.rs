//! SpatialClock: Clock over pages in the order of their addresses, so that dirty victims are
//! neighbours on the device.
//!
//! Kim, Ryu & Ramachandran, "What is a good buffer cache replacement scheme for mobile flash
//! storage?", SIGMETRICS '12, §4 and Figure 2. Frames are ordered by the logical sector of their
//! page (§4.1), which the layout gives. The paper keeps them in an AVL tree; here they are in a
//! [`PlaceOrder`], or in a bitmap over ranks where these are in the same order. As in Figure 2, the
//! pointer is a *node*: the successor of the last victim at the time of its eviction. A page that
//! comes in between the two is reached a lap later. After the last node the pointer is null, and
//! the next sweep begins at the node that is then the first.
//!
//! The paper's file system allocates a page when it enters the cache (`--layout ext4:alloc=early`).
//! If the layout allocates late, a page can enter without an address. It is then ordered behind the
//! page placed last of its file, or of its directory, and among those behind the same place by file
//! and page. Points that the paper leaves open, and our choices:
//!
//! - If the pointer's node is removed or gets another address, the pointer moves to its successor.
//!   A page that gets another address keeps its reference bit.
//! - A page comes in with a clear bit; `insert_ref=1` sets it.
//! - `order=file` orders frames by file and page instead, wherever the layout places them.

use super::{Build, Kind, Policy, PolicySpec, Setup, clock};
use crate::cache::{Frames, Victims};
pub(super) use by_rank::ByRank;
use flashsift_events::{
    address::Address,
    page::{Access, Frame, Page},
    params::{Param, ParamKind, Params},
    structure::PlaceOrder,
};
use prefetch_index::prefetch_index;

mod by_rank;

/// A node of [`PlaceOrder`], in an array that grows by doubling, with its share of inner nodes.
const LEAF_BYTES: u64 = 560;

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "spatialclock",
    paper: "Kim, Ryu & Ramachandran, \"What is a good buffer cache replacement scheme for mobile flash \
        storage?\", SIGMETRICS '12",
    what: "second chance in order of address, so that victims are neighbours",
    goal: "sequential writes, with about the hits of clock",
    time: "a hit sets a bit; a miss O(log addresses) to base 64, and O(log frames) for a page without an \
        address; the hand takes one lap at most, amortised O(1)",
    memory: "5 to 280 bytes a frame, the fewer the closer addresses lie; 60 for a page without an address; \
        for a trace with addresses, or order=file, 2 bits a page of the trace",
    memory_bytes: |size| 70 * size.frames + LEAF_BYTES * size.frames.min(size.leaves()),
    when: "on SD cards and simple eMMC, where non-sequential writes are slow, under a file system \
        that updates in place",
    params: PARAMS,
    kind: Kind::Online,
    slow: false,
    objects: None,
    by_place: true,
    policy: |params, in_rank_order| match is_by_file(params) || in_rank_order {
        true => super::id::<ByRank>(),
        false => super::id::<ByPlace>(),
    },
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| {
        Box::new(model::SpatialClock::new(clock::insert_ref(setup), is_by_file(setup.params)))
    },
    #[cfg(any(test, feature = "naive"))]
    cache: |setup, placing| {
        let by_file = is_by_file(setup.params);
        let real =
            if by_file { super::naive::real::<ByRank> } else { super::naive::real::<ByPlace> };
        real(setup, placing)
    },
};

const PARAMS: &[Param] = &[clock::INSERT_REF, ORDER];

/// The order of pages.
pub(super) const ORDER: Param = Param {
    name: "order",
    what: "what orders pages: their address on the device, or their file and page",
    kind: ParamKind::Word(&["address", "file"]),
};

/// Whether pages are ordered by file and page.
pub(super) fn is_by_file(params: &Params) -> bool {
    params.word(&[ORDER], "order") == "file"
}

/// SpatialClock over pages in order of address.
pub(super) struct ByPlace {
    order: PlaceOrder,
    /// One bit per frame.
    referenced: Vec<u64>,
    /// Next frame to examine, always in the order; `None` starts at the first.
    hand: Option<Frame>,
    insert_ref: bool,
}

impl Build for ByPlace {
    fn build(setup: &Setup<'_>) -> Self {
        Self {
            order: PlaceOrder::default(),
            referenced: vec![0; setup.slots().div_ceil(64) as usize],
            hand: None,
            insert_ref: clock::insert_ref(setup),
        }
    }
}

/// Returns the position in the order of the page in a frame.
#[inline(always)]
fn position(frame: Frame, frames: &Frames) -> (Address, Page) {
    (frames.address(frame), frames.page(frame))
}

impl ByPlace {
    fn take_out(&mut self, frame: Frame, (address, page): (Address, Page)) {
        if self.hand == Some(frame) {
            self.hand = self.order.after(address, page);
        }
        self.order.remove(address, page);
    }
}

impl Policy for ByPlace {
    const OFFLINE: bool = false;
    const WANTS_ADDRESSES: bool = true;

    #[inline(always)]
    fn insert(&mut self, frame: Frame, _: &Access) {
        let (word, bit) = (&mut self.referenced[frame.0 as usize / 64], 1 << (frame.0 % 64));
        *word = if self.insert_ref { *word | bit } else { *word & !bit };
    }

    #[inline(always)]
    fn hit(&mut self, frame: Frame, _: &Access) {
        self.referenced[frame.0 as usize / 64] |= 1 << (frame.0 % 64);
    }

    #[inline]
    fn moved(&mut self, frame: Frame, from: Option<Address>, frames: &Frames) {
        if let Some(from) = from {
            self.take_out(frame, (from, frames.page(frame)));
        }
        let (address, page) = position(frame, frames);
        self.order.insert(address, page, frame);
    }

    #[inline]
    fn evict(&mut self, _: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        let Self { order, referenced, .. } = self;
        let mut is_victim = |frame: Frame| {
            let (word, bit) = (&mut referenced[frame.0 as usize / 64], 1 << (frame.0 % 64));
            let is_referenced = *word & bit != 0;
            *word &= !bit;
            !is_referenced
        };
        let position = |frame| position(frame, frames);
        let ahead = match self.hand {
            Some(hand) => {
                let (address, page) = position(hand);
                order.take(address, page, &mut is_victim, position)
            }
            None => None,
        };
        // At most two laps more: the first clears every bit that it passes.
        let mut lap = || order.take(Address::at(0), Page(0), &mut is_victim, position);
        let taken = ahead.or_else(&mut lap).or_else(&mut lap);
        let (victim, behind) = taken.expect("evict is never called on an empty cache");
        self.hand = behind;
        // Only the page number is prefetched: reading it at once made the loop slower.
        frames.expect_victims([None, self.hand]);
        victims.push(victim);
    }

    fn remove(&mut self, frame: Frame, frames: &Frames) {
        self.take_out(frame, position(frame, frames));
    }

    #[inline(always)]
    fn expect_hit(&self, frame: Frame) {
        prefetch_index(&self.referenced, frame.0 as usize / 64);
    }

    fn check(&self, frames: &Frames) {
        self.order.check();
        let mut last = None;
        let mut hand_is_in_use = self.hand.is_none();
        self.order.find(Address::at(0), Page(0), |frame| {
            let position = position(frame, frames);
            assert!(last < Some(position), "frames are in order of their pages' positions");
            assert_eq!(frames.frame(position.1), Some(frame), "each frame is in use");
            last = Some(position);
            hand_is_in_use |= self.hand == Some(frame);
            false
        });
        assert!(hand_is_in_use, "the hand is on a frame of the order");
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use crate::policy::naive::Naive;
    use flashsift_events::{
        address::Address,
        page::{Access, Page},
    };
    use std::collections::BTreeSet;

    /// Figure 2 of the paper over a sorted vector of positions and reference bits.
    pub(super) struct SpatialClock {
        nodes: Vec<(Position, bool)>,
        cur_pointer: Option<Position>,
        insert_ref: bool,
        by_file: bool,
    }

    /// The address, unless files order pages, and the page.
    type Position = (Option<Address>, Page);

    impl SpatialClock {
        pub(super) fn new(insert_ref: bool, by_file: bool) -> Self {
            Self { nodes: Vec::new(), cur_pointer: None, insert_ref, by_file }
        }

        fn after(&self, position: Position) -> Option<Position> {
            self.nodes.iter().map(|(node, _)| *node).find(|node| *node > position)
        }

        /// Takes the page out and returns its bit.
        fn take_out(&mut self, page: Page) -> Option<bool> {
            let at = self.nodes.iter().position(|((_, other), _)| *other == page)?;
            let (position, referenced) = self.nodes[at];
            if self.cur_pointer == Some(position) {
                self.cur_pointer = self.after(position);
            }
            self.nodes.remove(at);
            Some(referenced)
        }
    }

    impl Naive for SpatialClock {
        fn insert(&mut self, _: &Access) {}
        fn moved(&mut self, page: Page, to: Address) {
            if self.by_file && self.nodes.iter().any(|((_, other), _)| *other == page) {
                return;
            }
            let referenced = self.take_out(page).unwrap_or(self.insert_ref);
            self.nodes.push((((!self.by_file).then_some(to), page), referenced));
            self.nodes.sort_unstable();
        }
        fn hit(&mut self, access: &Access) {
            self.nodes.iter_mut().find(|((_, page), _)| *page == access.page).unwrap().1 = true;
        }
        fn evict(&mut self, _: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            loop {
                let victim = self.cur_pointer.unwrap_or(self.nodes[0].0);
                self.cur_pointer = self.after(victim);
                let at = self.nodes.iter().position(|(node, _)| *node == victim).unwrap();
                if !self.nodes[at].1 {
                    self.nodes.remove(at);
                    return vec![victim.1];
                }
                self.nodes[at].1 = false;
            }
        }
        fn remove(&mut self, page: Page) {
            self.take_out(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{
        self,
        conformance::history,
        naive::{self, Act, Placing, real},
    };
    use flashsift_events::dice::Dice;

    /// Figure 3 of the paper: sectors 40 and 72 are referenced, the pointer is at 40, and the
    /// victim is 80.
    #[test]
    fn evicts_as_in_figure_3() {
        let setup =
            Setup { frames: 5, pages: 200, runs: &[], params: &Params::default(), bytes: None };
        let cache = real::<ByPlace>(&setup, Placing::Fixed);
        assert_evicts_as_in_figure_3(cache);
        assert_evicts_as_in_figure_3(real::<ByRank>(&setup, Placing::Fixed));
    }

    fn assert_evicts_as_in_figure_3(mut cache: Box<dyn naive::Stepped>) {
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

    /// Where places are in order of rank, the bitmap does what the tree does. Where they are not,
    /// the two differ, and the bitmap goes on as before.
    #[test]
    fn order_by_rank_is_order_by_place_in_a_trace_with_addresses() {
        let mut differ = 0;
        for seed in 0..20 {
            let acts = history(&mut Dice::new(seed), 300, 2000);
            for text in ["spatialclock", "spatialclock:insert_ref=1"] {
                let params = policy::Selection::parse(text).unwrap().params;
                let setup =
                    Setup { frames: 40, pages: 300, runs: &[], params: &params, bytes: None };
                let run = |mut cache: Box<dyn naive::Stepped>| -> Vec<_> {
                    acts.iter().map(|act| cache.step(*act, 0)).collect()
                };
                let residents = |effects: &[naive::Effect]| -> Vec<_> {
                    effects.iter().map(|effect| effect.resident.clone()).collect()
                };
                let by_place = run(real::<ByPlace>(&setup, Placing::Fixed));
                assert_eq!(run(real::<ByRank>(&setup, Placing::Fixed)), by_place, "seed {seed}");
                let moving = run(real::<ByRank>(&setup, Placing::Log));
                assert_eq!(residents(&moving), residents(&by_place), "seed {seed}");
                let moving = run(real::<ByPlace>(&setup, Placing::Log));
                differ += u32::from(residents(&moving) != residents(&by_place));
            }
        }
        assert!(differ > 20, "{differ} of 40 histories differ where pages move");
    }
}
