//! The dirty cached pages, by aligned range of addresses: `--writeback cluster`.
//!
//! A page without a place counts by its rank in (file, page) order: pages that are written together
//! get neighbouring places. Its range is none of those of addresses.
//!
//! Write-ahead asks for the range that is written first. Either this is the *fullest* one: the most
//! pages for one request, as FAB chooses its victim (Jo et al., "FAB: Flash-Aware Buffer Management
//! Policy for Portable Media Players", IEEE Transactions on Consumer Electronics 52(2), 2006); the
//! lower addresses win ties. Or it is the *oldest* one, as Linux's flusher takes the file that has
//! been dirty for the longest time: its pages are the least likely to be written to again soon. The
//! age of a range counts from its first dirty page since it held none.
//!
//! Invariant: `queue` holds each range with a dirty page once, with the number of its dirty pages.

use crate::{
    layout::Layout,
    writeback::{Cluster, First},
};
use flashsift_events::{address::Lba, page::Page};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    ops,
};

pub(super) struct Clusters {
    /// Size of a range, in pages.
    pages: u64,
    placed: BTreeMap<Lba, Page>,
    /// Those that have no place yet.
    unplaced: BTreeSet<Page>,
    /// The ranges in the order in which they are written ahead, if they are.
    queue: Option<Queue>,
}

/// An aligned range of addresses, or of ranks: its first one, divided by its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Range {
    Placed(u64),
    Unplaced(u64),
}

struct Queue {
    first: First,
    turn: u64,
    ranges: BTreeMap<Range, Dirty>,
    order: BTreeSet<(Priority, Range)>,
}

/// The dirty pages of a range.
#[derive(Clone, Copy)]
struct Dirty {
    pages: u32,
    /// The turn at which the first of them became dirty.
    since: u64,
}

/// The least is written first. One order has only zeros in one of the fields.
type Priority = (Reverse<u32>, u64);

impl Clusters {
    pub(super) fn new(Cluster { pages, first, .. }: Cluster, ahead: bool) -> Self {
        let queue = || Queue { first, turn: 0, ranges: BTreeMap::new(), order: BTreeSet::new() };
        Self {
            pages: pages.max(1).into(),
            placed: BTreeMap::new(),
            unplaced: BTreeSet::new(),
            queue: ahead.then(queue),
        }
    }

    fn range(&self, page: Page, place: Option<Lba>) -> Range {
        match place {
            Some(lba) => Range::Placed(lba / self.pages),
            None => Range::Unplaced(u64::from(page.0) / self.pages),
        }
    }

    /// Records that a clean page became dirty.
    pub(super) fn dirtied(&mut self, page: Page, place: Option<Lba>) {
        let is_new = match place {
            Some(lba) => self.placed.insert(lba, page).is_none(),
            None => self.unplaced.insert(page),
        };
        let range = self.range(page, place);
        if let Some(queue) = self.queue.as_mut().filter(|_| is_new) {
            queue.add(range);
        }
    }

    /// Records that a page is not dirty any more, if it was.
    pub(super) fn cleaned(&mut self, page: Page, place: Option<Lba>) {
        let was_dirty = match place {
            Some(lba) => self.placed.remove(&lba).is_some(),
            None => self.unplaced.remove(&page),
        };
        let range = self.range(page, place);
        if let Some(queue) = self.queue.as_mut().filter(|_| was_dirty) {
            queue.subtract(range);
        }
    }

    /// Records that the layout gave places to these pages. In its new range a page counts as
    /// becoming dirty now.
    pub(super) fn moved(&mut self, pages: ops::Range<u32>, layout: &dyn Layout) {
        for page in pages.map(Page) {
            if let Some(lba) = layout.place(page)
                && self.unplaced.contains(&page)
            {
                self.cleaned(page, None);
                self.dirtied(page, Some(lba));
            }
        }
    }

    /// Adds the dirty pages of the range of a dirty page, in order.
    pub(super) fn collect(&self, page: Page, place: Option<Lba>, into: &mut Vec<Page>) {
        self.pages_of(self.range(page, place), into);
    }

    /// Adds the dirty pages of the range that is written ahead next, in order.
    pub(super) fn next(&self, into: &mut Vec<Page>) {
        let first = self.queue.as_ref().and_then(|queue| queue.order.first());
        if let Some((_, range)) = first {
            self.pages_of(*range, into);
        }
    }

    fn pages_of(&self, range: Range, into: &mut Vec<Page>) {
        match range {
            Range::Placed(range) => {
                let first = range * self.pages;
                let last = first.saturating_add(self.pages - 1);
                into.extend(self.placed.range(first..=last).map(|(_, page)| *page));
            }
            Range::Unplaced(range) => {
                let first = range * self.pages;
                let last = u32::try_from(first + self.pages - 1).unwrap_or(u32::MAX);
                into.extend(self.unplaced.range(Page(first as u32)..=Page(last)));
            }
        }
    }

    /// Checks the queue, and the pages against the cache, which reports how many are dirty and
    /// whether a given one is.
    ///
    /// # Panics
    ///
    /// Panics if an invariant is broken.
    pub(super) fn check(&self, dirty_pages: u64, is_dirty: impl Fn(Page) -> bool) {
        let pages = self.placed.values().chain(&self.unplaced);
        assert!(pages.clone().all(|page| is_dirty(*page)), "dirty in the cache too");
        assert_eq!(pages.count() as u64, dirty_pages, "all dirty pages are known");
        let Some(queue) = &self.queue else { return };
        let mut counted: BTreeMap<Range, u32> = BTreeMap::new();
        let placed = self.placed.iter().map(|(lba, page)| (*page, Some(*lba)));
        for (page, place) in placed.chain(self.unplaced.iter().map(|page| (*page, None))) {
            *counted.entry(self.range(page, place)).or_default() += 1;
        }
        let held: BTreeMap<_, _> =
            queue.ranges.iter().map(|(range, dirty)| (*range, dirty.pages)).collect();
        assert_eq!(held, counted, "dirty pages are counted by range");
        let order: BTreeSet<_> =
            queue.ranges.iter().map(|(range, dirty)| (queue.priority(*dirty), *range)).collect();
        assert_eq!(queue.order, order, "each range is in order once");
    }
}

impl Queue {
    fn priority(&self, dirty: Dirty) -> Priority {
        match self.first {
            First::Fullest => (Reverse(dirty.pages), 0),
            First::Oldest => (Reverse(0), dirty.since),
        }
    }

    fn add(&mut self, range: Range) {
        self.turn += 1;
        let now = Dirty { pages: 0, since: self.turn };
        let before = self.ranges.get(&range).copied().unwrap_or(now);
        self.replace(range, before, Dirty { pages: before.pages + 1, ..before });
    }

    fn subtract(&mut self, range: Range) {
        let before = self.ranges[&range];
        self.replace(range, before, Dirty { pages: before.pages - 1, ..before });
    }

    fn replace(&mut self, range: Range, before: Dirty, after: Dirty) {
        self.order.remove(&(self.priority(before), range));
        if after.pages == 0 {
            self.ranges.remove(&range);
        } else {
            self.ranges.insert(range, after);
            self.order.insert((self.priority(after), range));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_events::dice::Dice;

    /// A layout in which some pages have places and others get one.
    struct Places(Vec<Option<Lba>>);

    impl Layout for Places {
        fn write(&mut self, _: Page) -> Lba {
            unreachable!("nothing is written")
        }
        fn read(&self, _: Page) -> Lba {
            unreachable!("nothing is read")
        }
        fn place(&self, page: Page) -> Option<Lba> {
            self.0[page.0 as usize]
        }
        fn moved(&self) -> ops::Range<u32> {
            0..0
        }
        fn free(&mut self, _: ops::Range<u32>) {}
    }

    /// The definition, over lists: each dirty page and its range, in the order in which it entered
    /// the range.
    struct Model {
        pages: u64,
        dirty: Vec<(Page, Range)>,
        /// In the order in which they became dirty.
        ranges: Vec<Range>,
    }

    impl Model {
        fn dirtied(&mut self, page: Page, place: Option<Lba>) {
            let number = place.unwrap_or(page.0.into()) / self.pages;
            let range = if place.is_some() { Range::Placed } else { Range::Unplaced }(number);
            self.dirty.push((page, range));
            if !self.ranges.contains(&range) {
                self.ranges.push(range);
            }
        }

        fn cleaned(&mut self, page: Page) {
            self.dirty.retain(|(other, _)| *other != page);
            self.ranges.retain(|range| self.dirty.iter().any(|(_, other)| other == range));
        }

        fn count(&self, range: Range) -> usize {
            self.dirty.iter().filter(|(_, other)| *other == range).count()
        }

        fn next(&self, first: First, places: &Places) -> Vec<Page> {
            let mut ranges = self.ranges.clone();
            if first == First::Fullest {
                ranges.sort();
                ranges.sort_by_key(|range| Reverse(self.count(*range)));
            }
            let of_first = self.dirty.iter().filter(|(_, range)| Some(range) == ranges.first());
            let mut pages: Vec<Page> = of_first.map(|(page, _)| *page).collect();
            pages.sort_by_key(|page| (places.place(*page), page.0));
            pages
        }
    }

    /// The next range and its pages are those of the model, after each of random changes.
    // Promises: Write-back 15.
    #[test]
    fn the_next_range_agrees_with_a_model_of_lists() {
        for seed in 0..300 {
            let mut dice = Dice::new(seed);
            let first = [First::Fullest, First::Oldest][dice.below(2) as usize];
            let pages = 1 + dice.below(5);
            let count = 40;
            // Places in another order than ranks; a third of the pages have none at first.
            let mut places = Places(
                (0..u64::from(count))
                    .map(|page| (dice.below(3) > 0).then_some(page * 7 % u64::from(count)))
                    .collect(),
            );
            let cluster = Cluster { pages, first, ..Cluster::new(pages) };
            let mut clusters = Clusters::new(cluster, true);
            let mut model = Model { pages: pages.into(), dirty: Vec::new(), ranges: Vec::new() };
            for step in 0..200 {
                let page = Page(dice.below(count));
                let is_dirty = model.dirty.iter().any(|(other, _)| *other == page);
                let place = places.place(page);
                match dice.below(5) {
                    0..=2 if !is_dirty => {
                        clusters.dirtied(page, place);
                        model.dirtied(page, place);
                    }
                    4 if place.is_none() => {
                        places.0[page.0 as usize] = Some(u64::from(page.0) * 7 % u64::from(count));
                        clusters.moved(page.0..page.0 + 1, &places);
                        if is_dirty {
                            model.cleaned(page);
                            model.dirtied(page, places.place(page));
                        }
                    }
                    _ => {
                        clusters.cleaned(page, place);
                        model.cleaned(page);
                    }
                }
                let is_dirty = |page| model.dirty.iter().any(|(other, _)| *other == page);
                clusters.check(model.dirty.len() as u64, is_dirty);
                let mut next = Vec::new();
                clusters.next(&mut next);
                assert_eq!(next, model.next(first, &places), "{first:?}, seed {seed}, step {step}");
            }
        }
    }
}
