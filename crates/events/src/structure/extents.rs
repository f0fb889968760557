//! Parts of a file: a set of integers as sorted ranges.

use crate::page::PAGE_BYTES;
use std::ops::Range;

/// Disjoint ranges in ascending order, none empty and no two adjacent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Extents {
    ranges: Vec<Range<u64>>,
    /// Sum of the lengths.
    covered: u64,
}

impl Extents {
    /// How many integers are in the set.
    pub fn covered(&self) -> u64 {
        self.covered
    }

    /// Nothing is in the set.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Its ranges, ascending.
    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().cloned()
    }

    /// One past the last integer in the set; 0 of an empty set.
    pub fn end(&self) -> u64 {
        self.ranges.last().map_or(0, |range| range.end)
    }

    /// How many integers of this range are not in the set.
    pub fn missing(&self, range: Range<u64>) -> u64 {
        let first = self.ranges.partition_point(|known| known.end <= range.start);
        let known = self.ranges[first..].iter().take_while(|known| known.start < range.end);
        let there: u64 =
            known.map(|known| known.end.min(range.end) - known.start.max(range.start)).sum();
        range.end.saturating_sub(range.start) - there
    }

    /// The parts of this range that are in the set, ascending.
    pub fn parts(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let first = self.ranges.partition_point(|known| known.end <= range.start);
        let known = self.ranges[first..].iter().take_while(move |known| known.start < range.end);
        known.map(move |known| known.start.max(range.start)..known.end.min(range.end))
    }

    /// The parts of this range that are not in the set, ascending.
    pub fn gaps(&self, range: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut from = range.start;
        let end = std::iter::once(range.end..range.end);
        let ends = self.parts(range).chain(end);
        ends.filter_map(move |part| {
            let gap = from..part.start;
            from = part.end;
            (!gap.is_empty()).then_some(gap)
        })
    }

    /// Adds a range.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        // Those that it overlaps or touches.
        let first = self.ranges.partition_point(|known| known.end < range.start);
        let last = self.ranges.partition_point(|known| known.start <= range.end);
        let mut whole = range;
        if let [from, .., to] | [from @ to] = &self.ranges[first..last] {
            whole = whole.start.min(from.start)..whole.end.max(to.end);
        }
        self.covered += whole.end - whole.start;
        self.covered -=
            self.ranges[first..last].iter().map(|known| known.end - known.start).sum::<u64>();
        self.ranges.splice(first..last, [whole]);
    }

    /// Takes a range out.
    pub fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.ranges.partition_point(|known| known.end <= range.start);
        let last = self.ranges.partition_point(|known| known.start < range.end);
        let ([from, .., to] | [from @ to]) = &self.ranges[first..last] else { return };
        let (left, right) = (from.start..range.start, range.end..to.end);
        self.covered -=
            self.ranges[first..last].iter().map(|known| known.end - known.start).sum::<u64>();
        let rest = [left, right].into_iter().filter(|rest| !rest.is_empty());
        self.covered += rest.clone().map(|rest| rest.end - rest.start).sum::<u64>();
        self.ranges.splice(first..last, rest);
    }

    /// Re-derives every invariant.
    ///
    /// # Panics
    ///
    /// An invariant is broken.
    pub fn check(&self) {
        assert!(self.ranges.iter().all(|range| !range.is_empty()), "{self:?}: a range is empty");
        let apart = self.ranges.windows(2).all(|pair| pair[0].end < pair[1].start);
        assert!(apart, "{self:?}: ranges ascend and are not adjacent");
        let covered = self.ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        assert_eq!(self.covered, covered, "{self:?}");
    }
}

/// The pages of which this range holds at least one byte.
pub fn pages_touched(offset: u64, len: u64) -> Range<u64> {
    let first = offset / PAGE_BYTES;
    if len == 0 { first..first } else { first..offset.saturating_add(len).div_ceil(PAGE_BYTES) }
}

/// The pages that lie in this range as a whole.
pub fn pages_inside(offset: u64, len: u64) -> Range<u64> {
    let first = offset.div_ceil(PAGE_BYTES);
    first..(offset.saturating_add(len) / PAGE_BYTES).max(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn as_a_set_of_integers(steps in prop::collection::vec((0..3, 0..60_u64, 0..20_u64), 0..60)) {
            let (mut extents, mut set) = (Extents::default(), BTreeSet::new());
            for (what, from, len) in steps {
                let range = from..from + len;
                prop_assert_eq!(
                    extents.missing(range.clone()),
                    range.clone().filter(|n| !set.contains(n)).count() as u64
                );
                let (mut inside, mut outside) = (range.clone().collect::<BTreeSet<_>>(), BTreeSet::new());
                outside.extend(inside.extract_if(.., |n| !set.contains(n)));
                prop_assert!(extents.parts(range.clone()).flatten().eq(inside));
                prop_assert!(extents.gaps(range.clone()).flatten().eq(outside));
                match what {
                    0 | 1 => {
                        extents.insert(range.clone());
                        set.extend(range);
                    }
                    _ => {
                        extents.remove(range.clone());
                        set.retain(|n| !range.contains(n));
                    }
                }
                extents.check();
                prop_assert!(extents.iter().flatten().eq(set.iter().copied()), "{:?} {:?}", extents, set);
                prop_assert_eq!(extents.end(), set.last().map_or(0, |last| last + 1));
            }
        }
    }

    #[test]
    fn pages_by_hand() {
        assert_eq!(
            (pages_touched(0, 1), pages_touched(4095, 2), pages_touched(8192, 4096)),
            (0..1, 0..2, 2..3)
        );
        assert!(pages_touched(5000, 0).is_empty());
        assert_eq!(
            (pages_inside(0, 4096), pages_inside(1, 8191), pages_inside(0, u64::MAX).end),
            (0..1, 1..2, (1 << 52) - 1)
        );
        assert!(pages_inside(1, 4095).is_empty());
    }
}
