//! SpatialClock over pages in order of rank: a bitmap, in which the sweep skips 64 pages with set
//! reference bits at a time. For `order=file`, and where addresses are in order of rank anyway.

use crate::{
    cache::{Frames, Victims},
    policy::{Build, Policy, Setup, clock},
};
use flashsift_events::{
    page::{Access, Frame, Page},
    structure::BitTree,
};
use prefetch_index::prefetch_index;

pub(in crate::policy) struct ByRank {
    resident: BitTree,
    /// One bit per page, set only if the page is resident.
    referenced: Vec<u64>,
    /// Next page to examine, always resident; `None` starts at the first.
    hand: Option<u32>,
    insert_ref: bool,
}

impl Build for ByRank {
    fn build(setup: &Setup<'_>) -> Self {
        Self {
            resident: BitTree::new(setup.pages),
            referenced: vec![0; setup.pages.div_ceil(64) as usize],
            hand: None,
            insert_ref: clock::insert_ref(setup),
        }
    }
}

impl Policy for ByRank {
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
                frames.expect_victims([None, self.hand.and_then(|hand| frames.frame(Page(hand)))]);
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
