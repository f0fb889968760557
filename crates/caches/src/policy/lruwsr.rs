//! LRU-WSR: LRU that gives a dirty page a second chance unless its cold flag is set.
//!
//! Jung et al., "LRU-WSR: Integration of LRU and Writes Sequence Reordering for Flash Memory", IEEE
//! Transactions on Consumer Electronics 2008; SpatialClock (see `spatialclock`) §2. The flag is
//! clear at insertion, and an access clears it. A dirty LRU page whose flag is clear gets the flag
//! and moves to the MRU end. A clean LRU page, or a dirty one with the flag, is evicted. Points
//! that the paper leaves open, and our choices:
//!
//! - A read hit clears the flag, too, because it shows that the page is not cold. `clear=write` is
//!   the other reading: only a write clears it.
//! - A write-back that keeps the page changes neither its position nor its flag; the page is then
//!   evicted as a clean one.
//! - A removal changes no other page.
//! - A drain evicts page by page: dirty pages whose flag is clear go around once.

use super::{Build, Kind, Policy, PolicySpec, Setup};
use crate::cache::{Frames, Victims};
use flashsift_events::{
    page::{Access, Frame, Op},
    params::{Param, ParamKind},
    structure::Lists,
};

pub(super) const SPEC: PolicySpec = PolicySpec {
    name: "lruwsr",
    paper: "Jung, Shim, Park, Kang & Cha, \"LRU-WSR: integration of LRU and writes sequence reordering \
        for flash memory\", IEEE Transactions on Consumer Electronics 54(3), 2008",
    what: "LRU; a dirty page gets a second chance unless it is cold",
    goal: "fewer writes: a dirty page leaves only when it is cold",
    time: "amortised O(1): a page is passed over at most once an access",
    memory: "9 bytes a frame",
    memory_bytes: |size| 9 * size.frames,
    when: "like cflru, without a window to choose",
    params: PARAMS,
    kind: Kind::Online,
    slow: false,
    by_place: <LruWsr as Policy>::WANTS_ADDRESSES,
    policy: super::only::<LruWsr>,
    objects: None,
    #[cfg(any(test, feature = "naive"))]
    naive: |setup| Box::new(model::LruWsr::new(only_writes_clear(setup))),
    #[cfg(any(test, feature = "naive"))]
    cache: super::naive::real::<LruWsr>,
};

const PARAMS: &[Param] = &[Param {
    name: "clear",
    what: "the access that clears the cold flag: any, or only a write",
    kind: ParamKind::Word(&["access", "write"]),
}];

fn only_writes_clear(setup: &Setup<'_>) -> bool {
    setup.params.word(PARAMS, "clear") == "write"
}

pub(super) struct LruWsr {
    stack: Lists<Frame, 1>,
    cold: Vec<bool>,
    only_writes_clear: bool,
}

impl Build for LruWsr {
    fn build(setup: &Setup<'_>) -> Self {
        Self {
            stack: Lists::new(setup.slots()),
            cold: vec![false; setup.slots() as usize],
            only_writes_clear: only_writes_clear(setup),
        }
    }
}

impl Policy for LruWsr {
    const OFFLINE: bool = false;

    #[inline(always)]
    fn insert(&mut self, frame: Frame, _: &Access) {
        self.cold[frame.0 as usize] = false;
        self.stack.push_newest(0, frame);
    }

    #[inline(always)]
    fn hit(&mut self, frame: Frame, access: &Access) {
        self.cold[frame.0 as usize] &= self.only_writes_clear && access.op == Op::Read;
        self.stack.move_newest(0, frame);
    }

    #[inline(always)]
    fn evict(&mut self, _: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        // At most two laps: the first marks every dirty page that it passes.
        loop {
            let frame = self.stack.oldest(0).expect("evict is never called on an empty cache");
            if !frames.dirty(frame) || std::mem::replace(&mut self.cold[frame.0 as usize], true) {
                self.stack.remove(frame);
                frames.expect_victims(self.stack.oldest_two(0));
                return victims.push(frame);
            }
            self.stack.move_newest(0, frame);
        }
    }

    fn remove(&mut self, frame: Frame, _: &Frames) {
        self.stack.remove(frame);
    }

    #[inline(always)]
    fn expect_hit(&self, frame: Frame) {
        self.stack.prefetch(frame);
    }

    fn check(&self, _: &Frames) {
        self.stack.check();
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use crate::policy::naive::Naive;
    use flashsift_events::page::{Access, Op, Page};
    use std::collections::BTreeSet;

    pub(super) struct LruWsr {
        /// Pages and their cold flags, least recent first.
        stack: Vec<(Page, bool)>,
        only_writes_clear: bool,
    }

    impl LruWsr {
        pub(super) fn new(only_writes_clear: bool) -> Self {
            Self { stack: Vec::new(), only_writes_clear }
        }
    }

    impl Naive for LruWsr {
        fn insert(&mut self, access: &Access) {
            self.stack.push((access.page, false));
        }
        fn hit(&mut self, access: &Access) {
            let at = self.stack.iter().position(|(page, _)| *page == access.page).unwrap();
            let (page, cold) = self.stack.remove(at);
            let clears = access.op == Op::Write || !self.only_writes_clear;
            self.stack.push((page, cold && !clears));
        }
        fn evict(&mut self, _: Option<&Access>, dirty: &BTreeSet<Page>) -> Vec<Page> {
            loop {
                let (page, cold) = self.stack.remove(0);
                if dirty.contains(&page) && !cold {
                    self.stack.push((page, true));
                } else {
                    return vec![page];
                }
            }
        }
        fn remove(&mut self, page: Page) {
            self.stack.retain(|(p, _)| *p != page);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::policy::{
        conformance::{assert_coincide, pushed_out, reads_only},
        naive::Act::{Clean, Read, Write},
    };
    use flashsift_events::page::Page;

    /// Without dirty pages there is no second chance.
    #[test]
    fn is_lru_of_clean_pages() {
        assert_coincide("lruwsr", "lru", reads_only);
    }

    #[test]
    fn dirty_pages_go_around_once() {
        // Pages 1 and 2 get the flag and move on, and the clean page 3 is evicted. Then the clean
        // page 4 is evicted, then 1 and 2.
        let passed = [Write(1), Write(2), Read(3), Read(4), Read(5)];
        let around = |more: &[_]| pushed_out("lruwsr", 3, &[&passed[..], more].concat());
        assert_eq!(around(&[]), [3, 1].map(Page));
        // An access makes page 1 more recent than page 2 and clears its flag; with `clear=write` a
        // read leaves the flag.
        for (text, access, wanted) in [
            ("lruwsr", Read(1), [3, 2, 4, 5]),
            ("lruwsr:clear=write", Read(1), [3, 2, 4, 1]),
            ("lruwsr:clear=write", Write(1), [3, 2, 4, 5]),
        ] {
            let acts = [Write(1), Write(2), Read(3), Read(4), access, Read(5), Read(6), Read(7)];
            assert_eq!(pushed_out(text, 3, &acts), wanted.map(Page), "{text} {access:?}");
        }
        // After its write-back the page is clean and is evicted at its turn.
        assert_eq!(
            pushed_out("lruwsr", 3, &[Write(1), Write(2), Read(3), Clean(1), Read(4)]),
            [1].map(Page)
        );
    }
}
