//! Free blocks in block groups, and the search of ext4's allocator for a place among them.

use flashsift_events::address::Lba;
use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

/// The free extents of a device. None crosses a block group, and no two in a group are adjacent.
pub(super) struct FreeSpace {
    group_pages: u64,
    by_start: BTreeMap<Lba, u64>,
    groups: Vec<Group>,
    /// The groups with free places.
    open: BTreeSet<usize>,
}

/// The free extents of a block group.
#[derive(Default)]
struct Group {
    /// Length and start.
    by_len: BTreeSet<(u64, Lba)>,
    free: u64,
}

/// A request to the allocator.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub pages: u64,
    /// The place to be taken if it is free.
    pub goal: Option<Lba>,
    /// The group in which the search begins.
    pub group: usize,
}

impl FreeSpace {
    /// Creates free groups of `group_pages` pages, a power of two.
    pub(super) fn new(groups: usize, group_pages: u64) -> Self {
        let (by_start, open) = (BTreeMap::new(), BTreeSet::new());
        let mut free = Self { group_pages, by_start, groups: Vec::new(), open };
        (0..groups).for_each(|_| free.grow());
        free
    }

    pub(super) fn group_of(&self, place: Lba) -> usize {
        (place / self.group_pages) as usize
    }

    fn grow(&mut self) {
        self.groups.push(Group::default());
        self.insert((self.groups.len() as u64 - 1) * self.group_pages, self.group_pages);
    }

    fn insert(&mut self, start: Lba, len: u64) {
        let group = self.group_of(start);
        self.by_start.insert(start, len);
        self.groups[group].by_len.insert((len, start));
        self.groups[group].free += len;
        self.open.insert(group);
    }

    fn remove(&mut self, start: Lba, len: u64) {
        let group = self.group_of(start);
        self.by_start.remove(&start);
        self.groups[group].by_len.remove(&(len, start));
        self.groups[group].free -= len;
        if self.groups[group].free == 0 {
            self.open.remove(&group);
        }
    }

    /// Gives places back.
    pub(super) fn put(&mut self, places: Range<Lba>) {
        let Range { mut start, end } = places;
        while start < end {
            let end_of_group = (start / self.group_pages + 1) * self.group_pages;
            self.put_in_group(start, end.min(end_of_group) - start);
            start = end.min(end_of_group);
        }
    }

    fn put_in_group(&mut self, mut start: Lba, mut len: u64) {
        let group = self.group_of(start);
        if let Some((&before, &before_len)) = self.by_start.range(..start).next_back()
            && before + before_len == start
            && self.group_of(before) == group
        {
            self.remove(before, before_len);
            (start, len) = (before, before_len + len);
        }
        if let Some(&after_len) = self.by_start.get(&(start + len))
            && self.group_of(start + len) == group
        {
            self.remove(start + len, after_len);
            len += after_len;
        }
        self.insert(start, len);
    }

    /// Takes places that are free, within a group.
    pub(super) fn cut(&mut self, places: Range<Lba>) {
        let extent = self.by_start.range(..=places.start).next_back();
        let (&start, &len) = extent.expect("the places are free");
        assert!(places.end <= start + len, "the places are free");
        self.remove(start, len);
        if start < places.start {
            self.insert(start, places.start - start);
        }
        if places.end < start + len {
            self.insert(places.end, start + len - places.end);
        }
    }

    /// Whether all of these places are free. They are in one group.
    fn is_free(&self, places: Range<Lba>) -> bool {
        let extent = self.by_start.range(..=places.start).next_back();
        extent.is_some_and(|(start, len)| places.end <= start + len)
    }

    /// Takes as many pages as wanted, or, if no free extent is that long, the longest one.
    ///
    /// The kernel's order (`ext4_mb_regular_allocator`): the goal; for a power of two the smallest
    /// free buddy of a group; the first extent that is long enough in a group whose extents are on
    /// average; the same in any group. Each search begins at the wanted group.
    pub(super) fn take(&mut self, wanted: Wanted) -> Range<Lba> {
        let pages = wanted.pages.min(self.group_pages);
        if let Some(goal) = wanted.goal
            && self.is_free(goal..goal + pages)
        {
            self.cut(goal..goal + pages);
            return goal..goal + pages;
        }
        let start = self.search(pages, wanted.group);
        if let Some(start) = start {
            self.cut(start..start + pages);
            return start..start + pages;
        }
        let longest = self.groups_from(wanted.group).filter_map(|group| {
            let by_len = &self.groups[group].by_len;
            let (len, _) = by_len.last()?;
            let (len, start) = by_len.range((*len, 0)..).next()?;
            Some((*len, std::cmp::Reverse(*start)))
        });
        let Some((len, std::cmp::Reverse(start))) = longest.max() else {
            self.grow();
            return self.take(Wanted { goal: None, ..wanted });
        };
        self.cut(start..start + len);
        start..start + len
    }

    /// The groups with free places, from `first` on and around.
    fn groups_from(&self, first: usize) -> impl Iterator<Item = usize> + '_ {
        self.open.range(first..).chain(self.open.range(..first)).copied()
    }

    fn search(&self, pages: u64, group: usize) -> Option<Lba> {
        let mut groups = self.groups_from(group);
        if pages.is_power_of_two()
            && pages > 1
            && let Some(buddy) = groups.find_map(|group| self.buddy(group, pages))
        {
            return Some(buddy);
        }
        let is_roomy = |group: &usize| {
            let Group { by_len, free } = &self.groups[*group];
            *free >= by_len.len() as u64 * pages
        };
        let first_fit = |group| self.first_fit(group, pages);
        let roomy = self.groups_from(group).filter(is_roomy).find_map(first_fit);
        roomy.or_else(|| self.groups_from(group).find_map(first_fit))
    }

    fn first_fit(&self, group: usize, pages: u64) -> Option<Lba> {
        self.groups[group].by_len.last().filter(|(len, _)| *len >= pages)?;
        let first = group as u64 * self.group_pages;
        let mut extents = self.by_start.range(first..first + self.group_pages);
        extents.find(|(_, len)| **len >= pages).map(|(start, _)| *start)
    }

    /// The first of the smallest free buddies of at least so many pages. A free extent consists of
    /// buddies: blocks whose length is a power of two and divides their place.
    fn buddy(&self, group: usize, pages: u64) -> Option<Lba> {
        let long_enough = self.groups[group].by_len.range((pages, 0)..);
        let buddies = long_enough.flat_map(|(len, start)| {
            let end = start + len;
            let mut at = *start;
            std::iter::from_fn(move || {
                let left = (end - at).checked_ilog2()?;
                let aligned = if at == 0 { left } else { at.trailing_zeros().min(left) };
                let buddy = (1 << aligned, at);
                at += 1 << aligned;
                Some(buddy)
            })
        });
        buddies.filter(|(len, _)| *len >= pages).min().map(|(_, start)| start)
    }

    /// The free extents in ascending order.
    pub(super) fn extents(&self) -> impl Iterator<Item = Range<Lba>> + '_ {
        self.by_start.iter().map(|(start, len)| *start..start + len)
    }

    pub(super) fn end(&self) -> Lba {
        self.groups.len() as u64 * self.group_pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GROUP: usize = 64;

    /// A bit for each place, searched from front to back.
    struct Model(Vec<bool>);

    impl Model {
        fn is_free(&self, places: Range<usize>) -> bool {
            self.0.get(places).is_some_and(|places| places.iter().all(|free| *free))
        }

        /// Free extents of a group.
        fn extents(&self, group: usize) -> Vec<Range<usize>> {
            let mut extents: Vec<Range<usize>> = Vec::new();
            for place in group * GROUP..(group + 1) * GROUP {
                match extents.last_mut() {
                    _ if !self.0[place] => {}
                    Some(last) if last.end == place => last.end += 1,
                    _ => extents.push(place..place + 1),
                }
            }
            extents
        }

        /// A buddy is free, and the buddy twice as long around it is not.
        fn buddy(&self, group: usize, pages: usize) -> Option<usize> {
            (0..).map(|order| 1 << order).take_while(|len| *len <= GROUP).find_map(|len| {
                let mut starts = (group * GROUP..(group + 1) * GROUP).step_by(len);
                let twice = |start: usize| start / (2 * len) * 2 * len;
                let is_whole = |start: usize| {
                    self.is_free(start..start + len)
                        && (len == GROUP || !self.is_free(twice(start)..twice(start) + 2 * len))
                };
                starts.find(|start| len >= pages && is_whole(*start))
            })
        }

        fn find(&mut self, wanted: Wanted) -> Range<usize> {
            let pages = (wanted.pages as usize).min(GROUP);
            if let Some(goal) = wanted.goal.map(|goal| goal as usize)
                && goal % GROUP + pages <= GROUP
                && self.is_free(goal..goal + pages)
            {
                return goal..goal + pages;
            }
            let groups = self.0.len() / GROUP;
            let order: Vec<_> = (0..groups).map(|n| (wanted.group + n) % groups).collect();
            if pages.is_power_of_two() && pages > 1 {
                let found = order.iter().find_map(|group| self.buddy(*group, pages));
                if let Some(start) = found {
                    return start..start + pages;
                }
            }
            for on_average in [true, false] {
                for group in &order {
                    let extents = self.extents(*group);
                    let free: usize = extents.iter().map(|extent| extent.len()).sum();
                    let first = extents.iter().find(|extent| extent.len() >= pages);
                    if let (true, Some(first)) =
                        (!on_average || free >= extents.len() * pages, first)
                    {
                        return first.start..first.start + pages;
                    }
                }
            }
            let all = (0..groups).flat_map(|group| self.extents(group));
            let longest = all.max_by_key(|extent| (extent.len(), std::cmp::Reverse(extent.start)));
            longest.unwrap_or_else(|| {
                self.0.extend([true; GROUP]);
                self.find(Wanted { goal: None, ..wanted })
            })
        }
    }

    proptest! {
        /// Over takes and puts, the same places are chosen as by a search of every place.
        // Promises: Placement 6.
        #[test]
        fn agrees_with_a_bitmap(
            ops in prop::collection::vec(
                (any::<bool>(), 1..100u64, prop::option::of(0..256u64), any::<prop::sample::Index>()),
                1..80,
            ),
            groups in 1..4usize,
        ) {
            let mut free = FreeSpace::new(groups, GROUP as u64);
            let mut model = Model(vec![true; groups * GROUP]);
            let mut taken: Vec<Range<Lba>> = Vec::new();
            for (puts, pages, goal, index) in ops {
                if puts && !taken.is_empty() {
                    let mut places = taken.swap_remove(index.index(taken.len()));
                    // A part may stay taken.
                    if pages % 3 == 0 && places.end - places.start > 1 {
                        taken.push(places.start..places.start + 1);
                        places.start += 1;
                    }
                    model.0[places.start as usize..places.end as usize].fill(true);
                    free.put(places);
                } else {
                    let wanted = Wanted { pages, goal, group: index.index(groups) };
                    let places = free.take(wanted);
                    let found = model.find(wanted);
                    let expected = found.start as u64..found.end as u64;
                    prop_assert_eq!(&places, &expected, "{:?}", wanted);
                    model.0[found].fill(false);
                    taken.push(places);
                }
                let extents: Vec<_> = (0..model.0.len() / GROUP)
                    .flat_map(|group| model.extents(group))
                    .map(|extent| extent.start as u64..extent.end as u64)
                    .collect();
                prop_assert_eq!(free.extents().collect::<Vec<_>>(), extents);
                prop_assert_eq!(free.end() as usize, model.0.len());
            }
        }
    }
}
