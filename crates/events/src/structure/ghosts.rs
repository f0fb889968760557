//! `N` first-in-first-out queues of pages that left a cache, with lookup by page.
//!
//! A page is in at most one queue. Each queue is a ring of pages, and each page has a stamp with
//! its position in the ring. A page removed from the middle leaves its entry behind. The entry is
//! dead, as the page's stamp no longer names that position. Dead entries are removed when they are
//! half of the ring. A push writes one stamp and the end of the ring; with four bytes a page this
//! keeps ghosts cheap at millions of pages.

use crate::page::Page;
use prefetch_index::prefetch_index;
use std::collections::VecDeque;

/// How many entries ahead of a pop the stamps are prefetched. Many entries may be dead, and are
/// passed at once.
const POPS_AHEAD: usize = 4;

/// Queues with the numbers `0..N`. All queues together hold at most 2^31 / N pages.
pub struct Ghosts<const N: usize> {
    /// 0, or 1 + position * N + queue, modulo 2^32.
    stamps: Vec<u32>,
    queues: [Queue; N],
}

#[derive(Default)]
struct Queue {
    ring: VecDeque<u32>,
    /// Position of the ring's first entry.
    first: u32,
    /// Number of live entries.
    len: u32,
}

impl<const N: usize> Ghosts<N> {
    /// Creates empty queues over `pages` pages.
    pub fn new(pages: u32) -> Self {
        Self { stamps: vec![0; pages as usize], queues: std::array::from_fn(|_| Queue::default()) }
    }

    /// Number of positions; they wrap around so that every stamp fits.
    const PLACES: u32 = (u32::MAX - 1) / N as u32;

    #[inline(always)]
    fn stamp(queue: usize, place: u32) -> u32 {
        1 + place * N as u32 + queue as u32
    }

    #[inline(always)]
    fn place(first: u32, offset: usize) -> u32 {
        ((u64::from(first) + offset as u64) % u64::from(Self::PLACES)) as u32
    }

    /// Returns the queue that holds the page.
    #[inline(always)]
    pub fn queue_of(&self, page: Page) -> Option<usize> {
        match self.stamps[page.0 as usize] {
            0 => None,
            stamp => Some((stamp - 1) as usize % N),
        }
    }

    /// Returns the number of pages in a queue.
    #[inline(always)]
    pub fn len(&self, queue: usize) -> u32 {
        self.queues[queue].len
    }

    /// Whether a queue holds no page.
    pub fn is_empty(&self, queue: usize) -> bool {
        self.len(queue) == 0
    }

    /// Appends a page that is in no queue.
    #[inline(always)]
    pub fn push(&mut self, queue: usize, page: Page) {
        debug_assert!(self.queue_of(page).is_none(), "a page is in at most one queue");
        let at = &mut self.queues[queue];
        self.stamps[page.0 as usize] = Self::stamp(queue, Self::place(at.first, at.ring.len()));
        at.ring.push_back(page.0);
        at.len += 1;
    }

    /// Removes and returns the page pushed first.
    #[inline(always)]
    pub fn pop(&mut self, queue: usize) -> Option<Page> {
        let at = &mut self.queues[queue];
        while let Some(page) = at.ring.pop_front() {
            let place = at.first;
            at.first = Self::place(at.first, 1);
            if let Some(later) = at.ring.get(POPS_AHEAD) {
                prefetch_index(&self.stamps, *later as usize);
            }
            if self.stamps[page as usize] == Self::stamp(queue, place) {
                self.stamps[page as usize] = 0;
                at.len -= 1;
                return Some(Page(page));
            }
        }
        None
    }

    /// Removes a page from its queue, if it is in one.
    #[inline(always)]
    pub fn remove(&mut self, page: Page) {
        if let Some(queue) = self.queue_of(page) {
            self.stamps[page.0 as usize] = 0;
            self.queues[queue].len -= 1;
            if self.queues[queue].ring.len() > 2 * self.queues[queue].len as usize + 64 {
                self.squeeze(queue);
            }
        }
    }

    #[cold]
    fn squeeze(&mut self, queue: usize) {
        let at = &mut self.queues[queue];
        let (first, stamps) = (at.first, &mut self.stamps);
        let mut alive = 0;
        for offset in 0..at.ring.len() {
            let page = at.ring[offset];
            if stamps[page as usize] == Self::stamp(queue, Self::place(first, offset)) {
                stamps[page as usize] = Self::stamp(queue, Self::place(first, alive));
                at.ring[alive] = page;
                alive += 1;
            }
        }
        at.ring.truncate(alive);
    }

    /// Prefetches the stamp of a page into the near caches. Changes nothing.
    #[inline(always)]
    pub fn prefetch(&self, page: Page) {
        prefetch_index(&self.stamps, page.0 as usize);
    }

    /// Iterates from the page pushed first to the last.
    pub fn iter(&self, queue: usize) -> impl Iterator<Item = Page> + '_ {
        let at = &self.queues[queue];
        at.ring.iter().enumerate().filter_map(move |(offset, page)| {
            let alive =
                self.stamps[*page as usize] == Self::stamp(queue, Self::place(at.first, offset));
            alive.then_some(Page(*page))
        })
    }

    /// Checks stamps and rings against each other.
    ///
    /// # Panics
    ///
    /// They disagree.
    pub fn check(&self) {
        for (queue, at) in self.queues.iter().enumerate() {
            assert_eq!(
                self.iter(queue).count(),
                at.len as usize,
                "queue {queue} holds what it counts"
            );
        }
        let stamped = self.stamps.iter().filter(|stamp| **stamp != 0).count();
        assert_eq!(
            stamped,
            self.queues.iter().map(|at| at.len as usize).sum::<usize>(),
            "every stamp is in a queue"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Compares with plain vectors, with positions about to wrap around.
        #[test]
        fn agrees_with_vectors(
            ops in prop::collection::vec((0..4u8, 0..2usize, 0..100u32), 0..600),
            before_wrap in 0..50u32,
        ) {
            let mut ghosts = Ghosts::<2>::new(100);
            ghosts.queues[0].first = Ghosts::<2>::PLACES - 1 - before_wrap;
            let mut model: [Vec<Page>; 2] = Default::default();
            for (op, queue, page) in ops {
                let page = Page(page);
                match op {
                    0 | 1 if ghosts.queue_of(page).is_none() => { ghosts.push(queue, page); model[queue].push(page); }
                    2 => {
                        let oldest = (!model[queue].is_empty()).then(|| model[queue].remove(0));
                        prop_assert_eq!(ghosts.pop(queue), oldest);
                    }
                    _ => { ghosts.remove(page); model.iter_mut().for_each(|m| m.retain(|p| *p != page)); }
                }
                ghosts.check();
                for (queue, model) in model.iter().enumerate() {
                    prop_assert_eq!(&ghosts.iter(queue).collect::<Vec<_>>(), model);
                    prop_assert_eq!(ghosts.len(queue) as usize, model.len());
                }
            }
        }
    }
}
