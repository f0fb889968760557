//! When files that live in RAM settle to flash: each a fixed time after its birth.
//!
//! Not after its last write: a file that is written to again and again would never be saved, and what a crash takes
//! would have no bound. It is the promise of a kernel's own dirty pages, which expire by the age of the oldest.

use std::collections::BTreeMap;

/// The files in RAM, oldest first.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    /// When each was born, µs. Numbers are given in order of birth.
    born_us: BTreeMap<u64, u64>,
}

impl Queue {
    /// A file came to be. Numbers rise.
    pub fn born(&mut self, file: u64, at_us: u64) {
        self.born_us.insert(file, at_us);
    }

    /// It has settled, or is no more.
    pub fn gone(&mut self, file: u64) {
        self.born_us.remove(&file);
    }

    /// Those that are `after_us` old, or older.
    pub fn due(&self, now_us: u64, after_us: u64) -> Vec<u64> {
        self.born_us
            .iter()
            .take_while(|(_, born_us)| now_us.saturating_sub(**born_us) >= after_us)
            .map(|(file, _)| *file)
            .collect()
    }

    /// When the next one is due, µs.
    pub fn next_us(&self, after_us: u64) -> Option<u64> {
        self.born_us.values().next().map(|born_us| born_us + after_us)
    }

    /// All, oldest first.
    pub fn oldest(&self) -> impl Iterator<Item = u64> {
        self.born_us.keys().copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.born_us.len()
    }

    /// None is in RAM.
    pub fn is_empty(&self) -> bool {
        self.born_us.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_are_due_and_the_gone_are_not() {
        let mut queue = Queue::default();
        for file in 0..5 {
            queue.born(file, file * 10);
        }
        queue.gone(1);
        assert_eq!(queue.due(130, 100), [0, 2, 3]);
        assert_eq!(queue.next_us(100), Some(100));
        assert_eq!(queue.oldest().collect::<Vec<_>>(), [0, 2, 3, 4]);
        queue.gone(0);
        assert_eq!((queue.next_us(100), queue.len()), (Some(120), 3));
        assert!(queue.due(119, 100).is_empty());
    }
}
