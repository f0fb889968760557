//! The directory that ARC and CAR share: two lists of frames, the ghosts of each, and a target.
//!
//! The names are those of both papers. T1 and B1 hold pages seen once recently, T2 and B2 hold
//! pages seen at least twice. `p` is the target for |T1|, and c is the number of frames. ARC and
//! CAR differ in the order of their lists and in the frame that they replace; see their files.

use super::Setup;
use crate::cache::Frames;
use flashsift_events::{
    page::{Frame, Page},
    structure::{Ghosts, Lists},
};

/// T1 and B1.
pub(super) const ONCE: usize = 0;
/// T2 and B2.
pub(super) const TWICE: usize = 1;

pub(super) struct Adaptive {
    capacity: u32,
    /// T1 and T2.
    resident: Lists<Frame, 2>,
    len: [u32; 2],
    /// Whether the frame is in T2.
    twice: Vec<bool>,
    /// B1 and B2.
    ghosts: Ghosts<2>,
    /// Target for |T1|, between 0 and c.
    p: f64,
}

impl Adaptive {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        Self {
            capacity: setup.frames,
            resident: Lists::new(setup.slots()),
            len: [0; 2],
            twice: vec![false; setup.slots() as usize],
            ghosts: Ghosts::new(setup.pages),
            p: 0.0,
        }
    }

    /// Returns c, the number of frames.
    #[inline(always)]
    pub(super) fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Returns |T1| or |T2|.
    #[inline(always)]
    pub(super) fn len(&self, list: usize) -> u32 {
        self.len[list]
    }

    /// Returns the target for |T1|.
    #[inline(always)]
    pub(super) fn target(&self) -> f64 {
        self.p
    }

    /// Adapts the target if the page is a ghost; otherwise frees an entry of the directory for it.
    /// Returns the queue of the ghost. `step` rounds the quotient by which the target moves.
    #[inline(always)]
    pub(super) fn adapt(&mut self, page: Page, step: impl Fn(f64) -> f64) -> Option<usize> {
        let ghost = self.ghosts.queue_of(page);
        let [b1, b2] = [ONCE, TWICE].map(|queue| self.ghosts.len(queue));
        let by = |other: u32, own: u32| step(f64::from(other) / f64::from(own)).max(1.0);
        match ghost {
            Some(ONCE) => self.p = (self.p + by(b2, b1)).min(f64::from(self.capacity)),
            Some(_) => self.p = (self.p - by(b1, b2)).max(0.0),
            None => {
                let [t1, t2] = self.len;
                if t1 + b1 == self.capacity {
                    // If |T1| = c, B1 is empty, and ARC's T1 then loses its oldest page without a
                    // ghost.
                    self.ghosts.pop(ONCE);
                } else if t1 + t2 + b1 + b2 == 2 * self.capacity {
                    self.ghosts.pop(TWICE);
                }
            }
        }
        ghost
    }

    /// Appends an incoming page: to T2 if it is a ghost, which it then ceases to be, else to T1.
    #[inline(always)]
    pub(super) fn insert(&mut self, frame: Frame, page: Page) {
        let list = if self.ghosts.queue_of(page).is_some() { TWICE } else { ONCE };
        self.ghosts.remove(page);
        self.resident.push_newest(list, frame);
        self.len[list] += 1;
        self.twice[frame.0 as usize] = list == TWICE;
    }

    /// Moves a frame of either list to the newest end of T2.
    #[inline(always)]
    pub(super) fn promote(&mut self, frame: Frame) {
        let moved = u32::from(!std::mem::replace(&mut self.twice[frame.0 as usize], true));
        self.len[ONCE] -= moved;
        self.len[TWICE] += moved;
        self.resident.move_newest(TWICE, frame);
    }

    #[inline(always)]
    pub(super) fn oldest(&self, list: usize) -> Option<Frame> {
        self.resident.oldest(list)
    }

    /// Removes the oldest frame of a list without leaving a ghost.
    ///
    /// # Panics
    ///
    /// Panics if the list is empty.
    #[inline(always)]
    pub(super) fn take_oldest(&mut self, list: usize) -> Frame {
        let frame = self.oldest(list).expect("evict is never called on an empty cache");
        self.resident.remove(frame);
        self.len[list] -= 1;
        frame
    }

    /// Replaces the oldest frame of a list, whose page becomes a ghost.
    ///
    /// # Panics
    ///
    /// Panics if the list is empty.
    #[inline(always)]
    pub(super) fn replace_oldest(&mut self, list: usize, frames: &Frames) -> Frame {
        let frame = self.take_oldest(list);
        self.ghosts.push(list, frames.page(frame));
        frame
    }

    pub(super) fn remove(&mut self, frame: Frame) {
        self.resident.remove(frame);
        self.len[usize::from(self.twice[frame.0 as usize])] -= 1;
    }

    pub(super) fn forget(&mut self, page: Page) {
        self.ghosts.remove(page);
    }

    #[inline(always)]
    pub(super) fn expect_hit(&self, frame: Frame) {
        self.resident.prefetch(frame);
    }

    #[inline(always)]
    pub(super) fn expect_move(&self, frame: Frame) {
        self.resident.prefetch_neighbours(frame);
    }

    /// Prefetches what the next replacement reads, if it takes its page from the same list.
    #[inline(always)]
    pub(super) fn expect_replacement(&self, list: usize, frames: &Frames) {
        frames.expect_victims(self.resident.oldest_two(list));
    }

    #[inline(always)]
    pub(super) fn expect_miss(&self, page: Page) {
        self.ghosts.prefetch(page);
    }

    /// Checks the invariants of both papers.
    ///
    /// # Panics
    ///
    /// Panics if an invariant is broken.
    pub(super) fn check(&self, frames: &Frames) {
        self.resident.check();
        self.ghosts.check();
        for list in [ONCE, TWICE] {
            assert_eq!(self.resident.iter(list).count(), self.len[list] as usize);
            assert!(
                self.resident
                    .iter(list)
                    .all(|frame| self.twice[frame.0 as usize] == (list == TWICE))
            );
            assert!(
                self.ghosts.iter(list).all(|page| frames.frame(page).is_none()),
                "a ghost is not resident"
            );
        }
        let ([t1, t2], [b1, b2], c) =
            (self.len, [ONCE, TWICE].map(|queue| self.ghosts.len(queue)), self.capacity);
        assert!(t1 + t2 <= c && t1 + b1 <= c, "|T1|+|B1| ≤ c");
        assert!((0.0..=f64::from(c)).contains(&self.p));
        assert!(t1 + t2 + b1 + b2 <= 2 * c, "the directory is at most 2c");
    }
}
