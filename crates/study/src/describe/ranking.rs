//! Lists of the greatest sums by name.

use super::{
    Value,
    ledger::{File, Ledger},
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::{cmp::Reverse, hash::Hash};

/// Sums above 0 by a key for the name. There can be as many keys as files, so names are made only
/// for the listed ones.
pub(super) struct Ranking<K, const N: usize> {
    sums: HashMap<K, (u64, [u64; N]), FixedState>,
}

/// Sums of one name.
pub(super) struct Ranked<K, const N: usize> {
    pub(super) key: K,
    pub(super) name: Value,
    /// Number of items with this name.
    pub(super) count: u64,
    pub(super) sums: [u64; N],
}

impl<K: Copy + Eq + Hash, const N: usize> Ranking<K, N> {
    pub(super) fn new(numbers: impl Iterator<Item = (K, [u64; N])>) -> Self {
        let mut ranking: HashMap<K, (u64, [u64; N]), FixedState> = HashMap::default();
        for (key, numbers) in
            numbers.filter(|(_, numbers)| numbers.iter().any(|number| *number > 0))
        {
            let (count, sums) = ranking.entry(key).or_insert((0, [0; N]));
            *count += 1;
            sums.iter_mut()
                .zip(numbers)
                .for_each(|(sum, number)| *sum = sum.saturating_add(number));
        }
        Self { sums: ranking }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// Returns the sum over all names.
    pub(super) fn all(&self, by: usize) -> u64 {
        self.sums.values().fold(0, |all, (_, sums)| all.saturating_add(sums[by]))
    }

    /// Returns the greatest by one of the sums, all above 0; ties are ordered by name.
    pub(super) fn top(
        &self,
        by: usize,
        top: usize,
        name: impl Fn(K) -> Box<str>,
    ) -> Vec<Ranked<K, N>> {
        let mut list: Vec<_> = self.sums.iter().filter(|(_, (_, sums))| sums[by] > 0).collect();
        let sum = |(_, (_, sums)): &(&K, &(u64, [u64; N]))| Reverse(sums[by]);
        if list.len() > top && top > 0 {
            // Names decide only among those that tie with the last one listed.
            let (_, last, _) = list.select_nth_unstable_by_key(top - 1, sum);
            let least = sum(last);
            list.retain(|entry| sum(entry) <= least);
        }
        list.sort_by_cached_key(|entry| (sum(entry), name(*entry.0)));
        list.truncate(top);
        let ranked = |(key, (count, sums)): (&K, &(u64, [u64; N]))| Ranked {
            key: *key,
            name: Value::Name(name(*key)),
            count: *count,
            sums: *sums,
        };
        list.into_iter().map(ranked).collect()
    }
}

/// Last name of a file, or the number of a file without a name, which is an item of its own.
pub(super) type Key = Result<u32, u32>;

/// Returns the key of the file with that number.
pub(super) fn key(n: usize, file: &File) -> Key {
    file.name.ok_or(n as u32)
}

/// Sums over files by their last name. A file that is created again and again, or replaced by
/// renaming, is one item.
pub(super) fn files<const N: usize>(
    ledger: &Ledger,
    numbers: impl Fn(usize, &File) -> [u64; N],
) -> Ranking<Key, N> {
    let files = ledger.files.all().iter().enumerate();
    Ranking::new(files.map(|(n, file)| (key(n, file), numbers(n, file))))
}

/// Returns the names of the keys of [`files`].
pub(super) fn file_name(ledger: &Ledger) -> impl Fn(Key) -> Box<str> {
    |key| match key {
        Ok(name) => ledger.files.names().text(name).into(),
        Err(file) => format!("(no name, file {})", ledger.files.get(file).id.0).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Compares with a sorted list of all, with many ties.
        // Promises: Describe 17.
        #[test]
        fn the_greatest_in_order(numbers in prop::collection::vec((0..30u32, [0..4u64, 0..4u64]), 0..80), top in 1..12usize) {
            // Names that are not in the order of their numbers.
            let name = |key: u32| Box::<str>::from(format!("{}", (key * 7) % 30));
            let ranking = Ranking::new(numbers.iter().copied());
            let mut model: BTreeMap<u32, (u64, [u64; 2])> = BTreeMap::new();
            for (key, [a, b]) in numbers.into_iter().filter(|(_, numbers)| *numbers != [0, 0]) {
                let (count, sums) = model.entry(key).or_default();
                *count += 1;
                *sums = [sums[0] + a, sums[1] + b];
            }
            for by in [0, 1] {
                let mut list: Vec<_> = model.iter().filter(|(_, (_, sums))| sums[by] > 0).collect();
                list.sort_by_key(|(key, (_, sums))| (Reverse(sums[by]), name(**key)));
                let wanted: Vec<_> = list.into_iter().take(top).map(|(key, (n, sums))| (name(*key), *n, *sums)).collect();
                let found = ranking.top(by, top, name).into_iter().map(|ranked| match ranked.name {
                    Value::Name(name) => (name, ranked.count, ranked.sums),
                    other => panic!("{other:?}"),
                });
                prop_assert_eq!(found.collect::<Vec<_>>(), wanted);
                prop_assert_eq!(ranking.all(by), model.values().map(|(_, sums)| sums[by]).sum::<u64>());
            }
        }
    }
}
