//! Items in order of a count, such as that of their accesses.
//!
//! Items with equal counts share a list, in order of their last change. The lists in use form a
//! chain in order of count, so raising a count by one moves an item to the next list.

use crate::{page::Id, structure::Lists};
use prefetch_index::prefetch_index;

/// Both ends of the chain: a class that contains no item.
const END: u32 = 0;

/// A class of items with the same count. Its number is that of their list.
#[derive(Clone, Copy)]
struct Class {
    count: u64,
    /// Neighbours in the chain.
    fewer: u32,
    more: u32,
}

/// Items with counts of 1 or more.
pub struct CountOrder<I> {
    lists: Lists<I, 0>,
    classes: Vec<Class>,
    /// Classes that are not in the chain.
    free: Vec<u32>,
    class_of: Vec<u32>,
}

impl<I: Id> CountOrder<I> {
    /// Creates an empty order over `items` items.
    pub fn new(items: u32) -> Self {
        // One class per item, one for an item that moves before its own class is freed, and the
        // end.
        let classes = items + 2;
        Self {
            lists: Lists::with_lists(items, classes),
            classes: vec![Class { count: 0, fewer: END, more: END }; classes as usize],
            free: (1..classes).rev().collect(),
            class_of: vec![END; items as usize],
        }
    }

    /// Returns the class of `count`, which is the next after `fewer` or is inserted there.
    #[inline(always)]
    fn class_after(&mut self, fewer: u32, count: u64) -> u32 {
        let more = self.classes[fewer as usize].more;
        if more != END && self.classes[more as usize].count == count {
            return more;
        }
        let class = self.free.pop().expect("there are more classes than items");
        self.classes[class as usize] = Class { count, fewer, more };
        self.classes[fewer as usize].more = class;
        self.classes[more as usize].fewer = class;
        class
    }

    #[inline(always)]
    fn drop_if_empty(&mut self, class: u32) {
        if self.lists.oldest(class as usize).is_none() {
            let Class { fewer, more, .. } = self.classes[class as usize];
            self.classes[fewer as usize].more = more;
            self.classes[more as usize].fewer = fewer;
            self.free.push(class);
        }
    }

    /// Adds an item that is not in the order. Takes time in the number of different smaller counts,
    /// of which there are few: all items together have at least their sum.
    #[inline(always)]
    pub fn insert(&mut self, item: I, count: u64) {
        let mut fewer = END;
        loop {
            let more = self.classes[fewer as usize].more;
            if more == END || self.classes[more as usize].count >= count {
                break;
            }
            fewer = more;
        }
        let class = self.class_after(fewer, count);
        self.class_of[item.index() as usize] = class;
        self.lists.push_newest(class as usize, item);
    }

    /// Adds one to the count of an item.
    #[inline(always)]
    pub fn raise(&mut self, item: I) {
        let class = self.class_of[item.index() as usize];
        let Class { count, more, .. } = self.classes[class as usize];
        let alone = self.lists.oldest(class as usize) == self.lists.newest(class as usize);
        if alone && (more == END || self.classes[more as usize].count > count + 1) {
            self.classes[class as usize].count += 1;
            return;
        }
        let next = self.class_after(class, count + 1);
        self.class_of[item.index() as usize] = next;
        self.lists.move_newest(next as usize, item);
        self.drop_if_empty(class);
    }

    /// Removes an item that is in the order.
    #[inline(always)]
    pub fn remove(&mut self, item: I) {
        self.lists.remove(item);
        self.drop_if_empty(self.class_of[item.index() as usize]);
    }

    /// Returns the count of an item that is in the order.
    #[inline(always)]
    pub fn get(&self, item: I) -> u64 {
        self.classes[self.class_of[item.index() as usize] as usize].count
    }

    /// Returns the item with the least count, among equals that changed first.
    #[inline(always)]
    pub fn least_oldest(&self) -> Option<I> {
        self.lists.oldest(self.classes[END as usize].more as usize)
    }

    /// Returns the item with the least count, among equals that changed last.
    #[inline(always)]
    pub fn least_newest(&self) -> Option<I> {
        self.lists.newest(self.classes[END as usize].more as usize)
    }

    /// Prefetches what [`Self::raise`] reads of an item. Changes nothing.
    #[inline(always)]
    pub fn prefetch(&self, item: I) {
        self.lists.prefetch(item);
        prefetch_index(&self.class_of, item.index() as usize);
    }

    /// Checks the chain.
    ///
    /// # Panics
    ///
    /// The chain, the lists and the classes of items disagree.
    pub fn check(&self) {
        self.lists.check();
        let (mut class, mut in_chain) = (END, 0);
        loop {
            let Class { count, more, .. } = self.classes[class as usize];
            assert_eq!(self.classes[more as usize].fewer, class, "the links of the chain agree");
            if more == END {
                break;
            }
            assert!(self.classes[more as usize].count > count, "counts ascend along the chain");
            assert!(self.lists.oldest(more as usize).is_some(), "no class in the chain is empty");
            let mut items = self.lists.iter(more as usize);
            assert!(items.all(|item| self.class_of[item.index() as usize] == more));
            (class, in_chain) = (more, in_chain + 1);
        }
        assert_eq!(
            in_chain + self.free.len() + 1,
            self.classes.len(),
            "a class is in the chain or free"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::Frame;
    use proptest::prelude::*;

    proptest! {
        /// Compares with a vector in order of the last change.
        #[test]
        fn agrees_with_a_vector(ops in prop::collection::vec((0..4u8, 0..8u32, 1..6u64), 0..200)) {
            let (mut counts, mut model) = (CountOrder::<Frame>::new(8), Vec::<(Frame, u64)>::new());
            for (op, item, count) in ops {
                let item = Frame(item);
                let found = model.iter().position(|(i, _)| *i == item);
                match (op, found) {
                    (0, None) => { counts.insert(item, count); model.push((item, count)); }
                    (1, Some(at)) => { counts.remove(item); model.remove(at); }
                    (2.., Some(at)) => {
                        counts.raise(item);
                        let (item, count) = model.remove(at);
                        model.push((item, count + 1));
                    }
                    _ => {}
                }
                counts.check();
                let least = model.iter().map(|(_, count)| *count).min();
                let mut with_least = model.iter().filter(|(_, count)| Some(*count) == least);
                prop_assert_eq!(counts.least_oldest(), with_least.clone().next().map(|(i, _)| *i));
                prop_assert_eq!(counts.least_newest(), with_least.next_back().map(|(i, _)| *i));
                for (item, count) in &model {
                    prop_assert_eq!(counts.get(*item), *count);
                }
            }
        }
    }
}
