//! `N` doubly linked lists that share one array of nodes. An item is in at most one of them. With
//! `N` = 0 the number of lists is given at run time.
//!
//! Each list is a ring through a sentinel after the items, so that no operation has a special case
//! at an end.

use crate::page::Id;
use prefetch_index::prefetch_index;
use std::marker::PhantomData;

/// Lists with the numbers `0..N` over the items `0..items`. Every list runs from oldest to newest,
/// in the order of pushing.
#[derive(Clone)]
pub struct Lists<I, const N: usize> {
    nodes: Vec<Node>,
    items: u32,
    item: PhantomData<I>,
}

/// An item in no list points at itself.
#[derive(Clone, Copy)]
struct Node {
    older: u32,
    newer: u32,
}

impl<I: Id> Lists<I, 0> {
    /// Creates `lists` empty lists over `items` items.
    pub fn with_lists(items: u32, lists: u32) -> Self {
        Self::make(items, lists)
    }
}

impl<I: Id, const N: usize> Lists<I, N> {
    /// Creates empty lists over `items` items.
    pub fn new(items: u32) -> Self {
        Self::make(items, N as u32)
    }

    fn make(items: u32, lists: u32) -> Self {
        let nodes = (0..items + lists).map(|n| Node { older: n, newer: n }).collect();
        Self { nodes, items, item: PhantomData }
    }

    #[inline(always)]
    fn sentinel(&self, list: usize) -> u32 {
        debug_assert!(N == 0 || list < N);
        self.items + list as u32
    }

    #[inline(always)]
    fn item(&self, node: u32) -> Option<I> {
        (node < self.items).then(|| I::from_index(node))
    }

    /// Adds an item that is in no list at the newest end.
    #[inline(always)]
    pub fn push_newest(&mut self, list: usize, item: I) {
        let (node, end) = (item.index(), self.sentinel(list));
        let newest = self.nodes[end as usize].older;
        debug_assert!(!self.contains(item), "an item is in at most one list");
        self.nodes[node as usize] = Node { older: newest, newer: end };
        self.nodes[newest as usize].newer = node;
        self.nodes[end as usize].older = node;
    }

    /// Adds an item that is in no list at the oldest end.
    #[inline(always)]
    pub fn push_oldest(&mut self, list: usize, item: I) {
        let (node, end) = (item.index(), self.sentinel(list));
        let oldest = self.nodes[end as usize].newer;
        debug_assert!(!self.contains(item), "an item is in at most one list");
        self.nodes[node as usize] = Node { older: end, newer: oldest };
        self.nodes[oldest as usize].older = node;
        self.nodes[end as usize].newer = node;
    }

    /// Removes an item from its list. An item in no list stays so.
    #[inline(always)]
    pub fn remove(&mut self, item: I) {
        let node = item.index();
        let Node { older, newer } = self.nodes[node as usize];
        self.nodes[older as usize].newer = newer;
        self.nodes[newer as usize].older = older;
        self.nodes[node as usize] = Node { older: node, newer: node };
    }

    /// Replaces `item` by `by`, which is in no list, at the same position.
    #[inline(always)]
    pub fn replace(&mut self, item: I, by: I) {
        let (node, new) = (item.index(), by.index());
        debug_assert!(
            self.contains(item) && !self.contains(by),
            "`item` is in a list, and `by` is in none"
        );
        let Node { older, newer } = self.nodes[node as usize];
        self.nodes[older as usize].newer = new;
        self.nodes[newer as usize].older = new;
        self.nodes[new as usize] = Node { older, newer };
        self.nodes[node as usize] = Node { older: node, newer: node };
    }

    /// Moves an item of any list to the newest end of `list`.
    #[inline(always)]
    pub fn move_newest(&mut self, list: usize, item: I) {
        let (node, end) = (item.index(), self.sentinel(list));
        let Node { older, newer } = self.nodes[node as usize];
        if newer == end {
            return;
        }
        self.nodes[older as usize].newer = newer;
        self.nodes[newer as usize].older = older;
        let newest = self.nodes[end as usize].older;
        self.nodes[node as usize] = Node { older: newest, newer: end };
        self.nodes[newest as usize].newer = node;
        self.nodes[end as usize].older = node;
    }

    /// Returns the item pushed first.
    #[inline(always)]
    pub fn oldest(&self, list: usize) -> Option<I> {
        self.item(self.nodes[self.sentinel(list) as usize].newer)
    }

    /// Returns the item pushed last.
    #[inline(always)]
    pub fn newest(&self, list: usize) -> Option<I> {
        self.item(self.nodes[self.sentinel(list) as usize].older)
    }

    /// Returns the item pushed first, and the one after it.
    #[inline(always)]
    pub fn oldest_two(&self, list: usize) -> [Option<I>; 2] {
        self.with_newer(self.oldest(list))
    }

    /// Returns an item and the one after it.
    #[inline(always)]
    pub fn with_newer(&self, item: Option<I>) -> [Option<I>; 2] {
        [item, item.and_then(|item| self.newer(item))]
    }

    /// Returns the item pushed after this one.
    #[inline(always)]
    pub fn newer(&self, item: I) -> Option<I> {
        self.item(self.nodes[item.index() as usize].newer)
    }

    /// Returns the item pushed before this one.
    #[inline(always)]
    pub fn older(&self, item: I) -> Option<I> {
        self.item(self.nodes[item.index() as usize].older)
    }

    /// Whether the item is in one of the lists.
    #[inline(always)]
    pub fn contains(&self, item: I) -> bool {
        self.nodes[item.index() as usize].newer != item.index()
    }

    /// Prefetches an item's links into the near caches. Changes nothing.
    #[inline(always)]
    pub fn prefetch(&self, item: I) {
        prefetch_index(&self.nodes, item.index() as usize);
    }

    /// Prefetches the links of an item's neighbours, which a move changes. Changes nothing. For a
    /// number that is no item's, it prefetches other links.
    #[inline(always)]
    pub fn prefetch_neighbours(&self, item: I) {
        let at = (item.index() as usize).min(self.nodes.len() - 1);
        let Node { older, newer } = self.nodes[at];
        prefetch_index(&self.nodes, older as usize);
        prefetch_index(&self.nodes, newer as usize);
    }

    /// Iterates from oldest to newest.
    pub fn iter(&self, list: usize) -> impl Iterator<Item = I> + '_ {
        std::iter::successors(self.oldest(list), |item| self.newer(*item))
    }

    /// Checks that every list is a ring whose links agree in both directions, and that no item is
    /// in two lists.
    ///
    /// # Panics
    ///
    /// Links disagree.
    pub fn check(&self) {
        let mut seen = vec![false; self.items as usize];
        for end in self.items..self.nodes.len() as u32 {
            let mut at = end;
            loop {
                let next = self.nodes[at as usize].newer;
                assert_eq!(
                    self.nodes[next as usize].older, at,
                    "links disagree between {at} and {next}"
                );
                if next == end {
                    break;
                }
                assert!(
                    !std::mem::replace(&mut seen[next as usize], true),
                    "item {next} is in two lists"
                );
                at = next;
            }
        }
        for (item, seen) in seen.iter().enumerate() {
            assert_eq!(
                *seen,
                self.contains(I::from_index(item as u32)),
                "item {item} hangs between lists"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Frame;
    use proptest::prelude::*;

    proptest! {
        /// Compares with two plain vectors, over random pushes, moves and removals.
        #[test]
        fn agrees_with_vectors(ops in prop::collection::vec((0..5u8, 0..2usize, 0..12u32), 0..200)) {
            let mut lists = Lists::<Frame, 2>::new(12);
            let mut model: [Vec<Frame>; 2] = Default::default();
            for (op, list, item) in ops {
                let item = Frame(item);
                let held = model.iter().any(|m| m.contains(&item));
                prop_assert_eq!(lists.contains(item), held);
                match op {
                    0 if !held => { lists.push_newest(list, item); model[list].push(item); }
                    1 if held => {
                        lists.move_newest(list, item);
                        model.iter_mut().for_each(|m| m.retain(|i| *i != item));
                        model[list].push(item);
                    }
                    2 => { lists.remove(item); model.iter_mut().for_each(|m| m.retain(|i| *i != item)); }
                    4 if !held && lists.newest(list).is_some() => {
                        let oldest = model[list][0];
                        lists.replace(oldest, item);
                        model[list][0] = item;
                    }
                    3 if !held => { lists.push_oldest(list, item); model[list].insert(0, item); }
                    _ => {}
                }
                lists.check();
                for (n, model) in model.iter().enumerate() {
                    prop_assert_eq!(&lists.iter(n).collect::<Vec<_>>(), model);
                    prop_assert_eq!(lists.oldest(n), model.first().copied());
                    prop_assert_eq!(lists.newest(n), model.last().copied());
                    prop_assert_eq!(lists.oldest_two(n), [model.first().copied(), model.get(1).copied()]);
                    for pair in model.windows(2) {
                        prop_assert_eq!(lists.older(pair[1]), Some(pair[0]));
                    }
                }
            }
        }
    }
}
