//! Names of files that a sifter remembers: ghosts in the sense of cache algorithms.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::{collections::VecDeque, hash::BuildHasher};

/// The names that were added last, at most a fixed number. A name is a hash of 64 bits: a file that
/// is fetched again is created anew, and keeps nothing but its name.
#[derive(Clone, Debug)]
pub(super) struct Remembered {
    most: usize,
    hasher: FixedState,
    /// The number with which each name was added last.
    added: HashMap<u64, u64, FixedState>,
    /// Names with their numbers, the oldest first. Those with an older number than in `added` are
    /// skipped.
    order: VecDeque<(u64, u64)>,
    next: u64,
}

impl Remembered {
    pub(super) fn new(most: usize) -> Self {
        let (added, order) = (HashMap::default(), VecDeque::new());
        Self { most, hasher: FixedState::with_seed(1), added, order, next: 0 }
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.added.contains_key(&self.hasher.hash_one(name))
    }

    /// Adds a name as the newest, and forgets the oldest if there are too many.
    pub(super) fn add(&mut self, name: &str) {
        let name = self.hasher.hash_one(name);
        self.next += 1;
        self.added.insert(name, self.next);
        self.order.push_back((name, self.next));
        while self.added.len() > self.most {
            let Some((name, number)) = self.order.pop_front() else { break };
            if self.added.get(&name) == Some(&number) {
                self.added.remove(&name);
            }
        }
        if self.order.len() > 2 * self.most {
            let added = &self.added;
            self.order.retain(|(name, number)| added.get(name) == Some(number));
        }
    }

    /// Returns whether the name was known.
    pub(super) fn forget(&mut self, name: &str) -> bool {
        self.added.remove(&self.hasher.hash_one(name)).is_some()
    }

    pub(super) fn check(&self) {
        assert!(self.added.len() <= self.most && self.order.len() <= 2 * self.most);
        let known = |entry: &&(u64, u64)| self.added.get(&entry.0) == Some(&entry.1);
        assert_eq!(self.order.iter().filter(known).count(), self.added.len());
    }
}
