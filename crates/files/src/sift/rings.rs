//! Doubly linked lists over items of which there can be more and more. An item is in at most one of
//! them.

/// Lists with the numbers `0..lists` over the items `0..`; each runs from oldest to newest.
#[derive(Clone, Debug)]
pub(super) struct Rings {
    /// The heads of the lists come first. An item in no list points at itself.
    nodes: Vec<Node>,
    lists: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    older: u32,
    newer: u32,
}

/// Places that stay free while there are few items.
const IDLE: usize = 64;

impl Rings {
    pub(super) fn new(lists: usize) -> Self {
        let lists = lists as u32;
        Self { nodes: (0..lists).map(alone).collect(), lists }
    }

    /// Adds the next item.
    pub(super) fn grow(&mut self) {
        if self.nodes.len() == self.nodes.capacity() {
            // An eighth, instead of as much again: the memory is that of all files.
            self.nodes.reserve_exact(self.nodes.len() / 8 + IDLE);
        }
        self.nodes.push(alone(self.nodes.len() as u32));
    }

    fn item(&self, node: u32) -> Option<u32> {
        node.checked_sub(self.lists)
    }

    /// Adds an item that is in no list at the newest end.
    pub(super) fn push_newest(&mut self, list: usize, item: u32) {
        self.link(item + self.lists, list as u32);
    }

    /// Adds an item that is in no list to that of another one, as the next older.
    pub(super) fn push_older(&mut self, than: u32, item: u32) {
        self.link(item + self.lists, than + self.lists);
    }

    fn link(&mut self, node: u32, newer: u32) {
        let older = self.nodes[newer as usize].older;
        self.nodes[node as usize] = Node { older, newer };
        self.nodes[older as usize].newer = node;
        self.nodes[newer as usize].older = node;
    }

    /// Removes an item from its list. An item in no list stays so.
    pub(super) fn remove(&mut self, item: u32) {
        let node = item + self.lists;
        let Node { older, newer } = self.nodes[node as usize];
        self.nodes[older as usize].newer = newer;
        self.nodes[newer as usize].older = older;
        self.nodes[node as usize] = alone(node);
    }

    pub(super) fn oldest(&self, list: usize) -> Option<u32> {
        self.item(self.nodes[list].newer)
    }

    pub(super) fn newest(&self, list: usize) -> Option<u32> {
        self.item(self.nodes[list].older)
    }

    pub(super) fn newer(&self, item: u32) -> Option<u32> {
        self.item(self.nodes[(item + self.lists) as usize].newer)
    }

    pub(super) fn older(&self, item: u32) -> Option<u32> {
        self.item(self.nodes[(item + self.lists) as usize].older)
    }

    /// Returns the memory that they have allocated, bytes.
    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        self.nodes.capacity() * size_of::<Node>()
    }

    /// Returns the items of a list, the newest first.
    pub(super) fn newest_first(&self, list: usize) -> impl Iterator<Item = u32> + '_ {
        std::iter::successors(self.newest(list), |item| self.older(*item))
    }
}

fn alone(node: u32) -> Node {
    Node { older: node, newer: node }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_events::dice::Dice;

    #[test]
    fn rings_are_lists() {
        for seed in 0..50 {
            let mut dice = Dice::new(seed);
            let (mut rings, mut naive) = (Rings::new(3), [const { Vec::new() }; 3]);
            let mut items = 0;
            for _ in 0..300 {
                if items == 0 || dice.below(10) == 0 {
                    rings.grow();
                    items += 1;
                }
                let (list, item) = (dice.below(3) as usize, dice.below(items));
                rings.remove(item);
                naive.iter_mut().for_each(|list| list.retain(|other| *other != item));
                let than = naive[list].first().copied();
                match (dice.below(4), than) {
                    (0, _) => {}
                    (1, Some(than)) => {
                        rings.push_older(than, item);
                        naive[list].insert(0, item);
                    }
                    _ => {
                        rings.push_newest(list, item);
                        naive[list].push(item);
                    }
                }
                for (list, naive) in naive.iter().enumerate() {
                    assert_eq!(rings.oldest(list), naive.first().copied(), "seed {seed}");
                    let oldest_first =
                        std::iter::successors(rings.oldest(list), |item| rings.newer(*item));
                    assert!(oldest_first.eq(naive.iter().copied()), "seed {seed}");
                    let mut newest_first: Vec<u32> = rings.newest_first(list).collect();
                    newest_first.reverse();
                    assert_eq!(newest_first, *naive, "seed {seed}");
                }
            }
        }
    }
}
