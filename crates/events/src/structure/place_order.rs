//! Frames in the order of the addresses of their pages. It replaces SpatialClock's AVL tree.
//!
//! Pages with a place are in a radix tree of 64 children a node: places lie in clusters, so a
//! search reads few nodes, and a sweep over neighbours stays in one. Several pages without a place
//! can wait behind the same place. They are in an ordered map beside the tree, by address and page.

use crate::{
    address::{Address, Lba},
    page::{Frame, Page},
};
use std::collections::BTreeMap;

/// An ordered set of frames, each with the address and the page that it was added with.
#[derive(Default)]
pub struct PlaceOrder {
    placed: RadixTree,
    unplaced: BTreeMap<(Address, Page), Frame>,
}

impl PlaceOrder {
    /// Adds a frame. Its address and page differ from those of every other frame in the order.
    #[inline]
    pub fn insert(&mut self, address: Address, page: Page, frame: Frame) {
        match address.lba() {
            Some(lba) => self.placed.insert(lba, frame.0),
            None => {
                self.unplaced.insert((address, page), frame);
            }
        }
    }

    /// Removes the frame with this address and page.
    #[inline]
    pub fn remove(&mut self, address: Address, page: Page) {
        match address.lba() {
            Some(lba) => self.placed.remove(lba),
            None => {
                self.unplaced.remove(&(address, page));
            }
        }
    }

    /// Returns the first frame.
    pub fn first(&self) -> Option<Frame> {
        self.find(Address::at(0), Page(0), |_| true)
    }

    /// Returns the first frame behind this address and page.
    #[inline]
    pub fn after(&self, address: Address, page: Page) -> Option<Frame> {
        match address.lba() {
            Some(_) => self.find(address.next(), Page(0), |_| true),
            None => self.find(address, Page(page.0.checked_add(1)?), |_| true),
        }
    }

    /// Returns the first frame, from this address and page on, that `wanted` accepts. `wanted` sees
    /// each frame on the way, in order.
    #[inline]
    pub fn find(
        &self,
        address: Address,
        page: Page,
        mut wanted: impl FnMut(Frame) -> bool,
    ) -> Option<Frame> {
        let mut from = address.first_place();
        if !self.unplaced.is_empty() {
            for ((behind, _), frame) in self.unplaced.range((address, page)..) {
                // Pages at places up to this one come before the page that waits behind it.
                let place = behind.last_place();
                if from <= place {
                    let before = self.placed.find(from, place, |frame| wanted(Frame(frame)));
                    if before.is_some() {
                        return before.map(Frame);
                    }
                    from = place + 1;
                }
                if wanted(*frame) {
                    return Some(*frame);
                }
            }
        }
        self.placed.find(from, Lba::MAX, |frame| wanted(Frame(frame))).map(Frame)
    }

    /// Finds as [`PlaceOrder::find`] does and removes the frame that it finds. Returns it and the
    /// frame behind it. `position` returns the address and the page of a frame.
    #[inline]
    pub fn take(
        &mut self,
        address: Address,
        page: Page,
        mut wanted: impl FnMut(Frame) -> bool,
        position: impl Fn(Frame) -> (Address, Page),
    ) -> Option<(Frame, Option<Frame>)> {
        if !self.unplaced.is_empty() {
            let found = self.find(address, page, wanted)?;
            let (address, page) = position(found);
            let behind = self.after(address, page);
            self.remove(address, page);
            return Some((found, behind));
        }
        let wanted = |frame| wanted(Frame(frame));
        let (found, behind) = self.placed.take(address.first_place(), wanted)?;
        let behind = behind.map(Frame).or_else(|| {
            let (address, page) = position(Frame(found));
            self.after(address, page)
        });
        Some((Frame(found), behind))
    }

    /// Checks the tree.
    ///
    /// # Panics
    ///
    /// A node of the tree is empty, or is not reached.
    pub fn check(&self) {
        self.placed.check();
    }
}

/// A map of integers to 32-bit numbers, ordered by key.
struct RadixTree {
    nodes: Vec<Node>,
    unused: Vec<u32>,
    root: u32,
    /// Number of levels; a leaf is at level 0. Keys below `64^levels` have a path.
    levels: u32,
}

#[derive(Clone)]
struct Node {
    /// A bit for each child.
    used: u64,
    /// Node numbers; in a leaf, the values.
    child: [u32; 64],
}

const EMPTY: Node = Node { used: 0, child: [0; 64] };
/// Levels of a tree over all keys of 64 bits.
const LEVELS_MAX: u32 = 11;

/// The child of a node at this level on the way to `key`.
#[inline(always)]
fn digit(key: u64, level: u32) -> usize {
    (key >> (6 * level)) as usize % 64
}

impl Default for RadixTree {
    fn default() -> Self {
        Self { nodes: vec![EMPTY], unused: Vec::new(), root: 0, levels: 1 }
    }
}

impl RadixTree {
    fn holds(&self, key: u64) -> bool {
        self.levels == LEVELS_MAX || key >> (6 * self.levels) == 0
    }

    fn node(&mut self) -> u32 {
        self.unused.pop().unwrap_or_else(|| {
            self.nodes.push(EMPTY);
            self.nodes.len() as u32 - 1
        })
    }

    #[inline]
    fn insert(&mut self, key: u64, value: u32) {
        while !self.holds(key) {
            let root = self.node();
            self.nodes[root as usize].used = u64::from(self.nodes[self.root as usize].used != 0);
            self.nodes[root as usize].child[0] = self.root;
            if self.nodes[root as usize].used == 0 {
                self.unused.push(self.root);
            }
            (self.root, self.levels) = (root, self.levels + 1);
        }
        let mut at = self.root;
        for level in (1..self.levels).rev() {
            let digit = digit(key, level);
            let node = &self.nodes[at as usize];
            at = if node.used >> digit & 1 != 0 {
                node.child[digit]
            } else {
                let child = self.node();
                let node = &mut self.nodes[at as usize];
                node.used |= 1 << digit;
                node.child[digit] = child;
                child
            };
        }
        let leaf = &mut self.nodes[at as usize];
        leaf.used |= 1 << digit(key, 0);
        leaf.child[digit(key, 0)] = value;
    }

    /// Removes a key that the tree has.
    #[inline]
    fn remove(&mut self, key: u64) {
        let mut path = [0; LEVELS_MAX as usize];
        let mut at = self.root;
        for level in (0..self.levels).rev() {
            path[level as usize] = at;
            at = self.nodes[at as usize].child[digit(key, level)];
        }
        self.remove_on(&path, key);
    }

    /// Removes a key whose nodes are these, by level.
    #[inline]
    fn remove_on(&mut self, path: &[u32; LEVELS_MAX as usize], key: u64) {
        for level in 0..self.levels {
            let at = path[level as usize];
            let node = &mut self.nodes[at as usize];
            debug_assert!(node.used >> digit(key, level) & 1 != 0, "the tree has the key");
            node.used &= !(1 << digit(key, level));
            if node.used != 0 || level + 1 == self.levels {
                return;
            }
            self.unused.push(at);
        }
    }

    /// Returns the value of the first key in `from..=to` that `wanted` accepts.
    #[inline]
    fn find(&self, from: u64, to: u64, wanted: impl FnMut(u32) -> bool) -> Option<u32> {
        let (path, key) = self.path(from, to, wanted)?;
        Some(self.nodes[path[0] as usize].child[digit(key, 0)])
    }

    /// Removes the first key from `from` on that `wanted` accepts. Returns its value and, if it is
    /// in the same leaf, that of the next key.
    #[inline]
    fn take(&mut self, from: u64, wanted: impl FnMut(u32) -> bool) -> Option<(u32, Option<u32>)> {
        let (path, key) = self.path(from, u64::MAX, wanted)?;
        let leaf = &self.nodes[path[0] as usize];
        let digit = digit(key, 0);
        let behind = leaf.used & !(!0 >> (63 - digit));
        let next = (behind != 0).then(|| leaf.child[behind.trailing_zeros() as usize]);
        let value = leaf.child[digit];
        self.remove_on(&path, key);
        Some((value, next))
    }

    /// Returns the first key in `from..=to` whose value `wanted` accepts, and its nodes by level.
    #[inline]
    fn path(
        &self,
        from: u64,
        to: u64,
        mut wanted: impl FnMut(u32) -> bool,
    ) -> Option<([u32; LEVELS_MAX as usize], u64)> {
        if !self.holds(from) || from > to {
            return None;
        }
        let mut path = [0; LEVELS_MAX as usize];
        path[self.levels as usize - 1] = self.root;
        let (mut level, mut key) = (self.levels - 1, from);
        loop {
            let node = &self.nodes[path[level as usize] as usize];
            let ahead = node.used & !0 << digit(key, level);
            if level == 0 {
                let mut ahead = ahead;
                while ahead != 0 {
                    let digit = ahead.trailing_zeros();
                    let key = key & !63 | u64::from(digit);
                    if key > to {
                        return None;
                    }
                    if wanted(node.child[digit as usize]) {
                        return Some((path, key));
                    }
                    ahead &= ahead - 1;
                }
            } else if ahead != 0 {
                let next = ahead.trailing_zeros();
                if next as usize != digit(key, level) {
                    // The path goes on in a later child, from its first key on.
                    let above = (key >> (6 * level)) & !63 | u64::from(next);
                    key = above << (6 * level);
                    if key > to {
                        return None;
                    }
                }
                level -= 1;
                path[level as usize] = node.child[next as usize];
                continue;
            }
            // This node has no more: go on in the nearest node above that has a later child.
            loop {
                level += 1;
                if level == self.levels {
                    return None;
                }
                if digit(key, level) < 63 {
                    key = ((key >> (6 * level)) + 1) << (6 * level);
                    break;
                }
            }
        }
    }

    fn check(&self) {
        let mut reached = 0;
        let mut stack = vec![(self.root, self.levels - 1)];
        while let Some((at, level)) = stack.pop() {
            reached += 1;
            let node = &self.nodes[at as usize];
            assert!(node.used != 0 || at == self.root, "an empty node is released");
            if level > 0 {
                let children = (0..64).filter(|digit| node.used >> digit & 1 != 0);
                stack.extend(children.map(|digit| (node.child[digit as usize], level - 1)));
            }
        }
        assert_eq!(reached + self.unused.len(), self.nodes.len(), "each node is reached or unused");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Addresses that lie close together, far apart, and behind one place.
    fn address() -> impl Strategy<Value = Address> {
        let place = prop_oneof![0..200u64, 0..40_000u64, any::<u64>().prop_map(|far| far >> 1)];
        prop_oneof![
            4 => place.clone().prop_map(|lba| Address::at(lba & (u64::MAX >> 1))),
            2 => (0..200u64).prop_map(Address::behind),
            1 => Just(Address::LAST),
        ]
    }

    proptest! {
        /// Against an ordered map: the successor of any address, and a search that rejects some
        /// frames, meet the same frames in the same order.
        #[test]
        fn agrees_with_an_ordered_map(
            ops in prop::collection::vec((0..3u8, address(), 0..4u32), 1..120),
        ) {
            let mut order = PlaceOrder::default();
            let mut model: BTreeMap<(Address, Page), Frame> = BTreeMap::new();
            for (n, (op, address, page)) in ops.into_iter().enumerate() {
                // Only one page is at a place.
                let page = Page(if address.lba().is_some() { 0 } else { page });
                let key = (address, page);
                if op < 2 && !model.contains_key(&key) {
                    model.insert(key, Frame(n as u32));
                    order.insert(address, page, Frame(n as u32));
                } else if model.remove(&key).is_some() {
                    order.remove(address, page);
                }
                order.check();
                prop_assert_eq!(order.first(), model.values().next().copied());
                let after = model.range((std::ops::Bound::Excluded(key), std::ops::Bound::Unbounded));
                prop_assert_eq!(order.after(address, page), after.map(|(_, frame)| *frame).next());
                let (mut seen, mut wanted) = (Vec::new(), Vec::new());
                let is_third = |seen: &mut Vec<Frame>, frame| {
                    seen.push(frame);
                    seen.len() == 3
                };
                let found = order.find(address, page, |frame| is_third(&mut seen, frame));
                let mut ahead = model.range(key..).map(|(_, frame)| *frame);
                let third = ahead.find(|frame| is_third(&mut wanted, *frame));
                prop_assert_eq!(found, third);
                prop_assert_eq!(seen, wanted);
                if n % 3 == 0 {
                    // The second frame from here on is taken.
                    let second = model.range(key..).nth(1).map(|(key, frame)| (*key, *frame));
                    let behind = model.range(key..).nth(2).map(|(_, frame)| *frame);
                    let mut seen = 0;
                    let is_second = |_| {
                        seen += 1;
                        seen == 2
                    };
                    let position = |frame| {
                        let found = model.iter().find(|(_, other)| **other == frame);
                        *found.expect("it is in the order").0
                    };
                    let taken = order.take(address, page, is_second, position);
                    prop_assert_eq!(taken, second.map(|(_, frame)| (frame, behind)));
                    if let Some((key, _)) = second {
                        model.remove(&key);
                    }
                    order.check();
                }
            }
        }
    }
}
