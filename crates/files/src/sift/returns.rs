//! The price of a sifter so far: the bytes that left RAM, and those that came back after a drop.

use super::remembered::Remembered;

/// The bytes that left RAM, those that came back, and the names of the last files that did.
#[derive(Clone, Debug)]
pub(super) struct Returns {
    names: Remembered,
    left_bytes: u64,
    fetched_bytes: u64,
}

impl Returns {
    /// Returns an empty record that remembers this many names.
    pub(super) fn new(names: usize) -> Self {
        Self { names: Remembered::new(names), left_bytes: 0, fetched_bytes: 0 }
    }

    /// A file of this size left RAM.
    pub(super) fn left(&mut self, bytes: u64) {
        self.left_bytes += bytes;
    }

    /// A file that had left RAM stays there after all.
    pub(super) fn stays(&mut self, bytes: u64) {
        self.left_bytes -= bytes.min(self.left_bytes);
    }

    /// A dropped file of this size came back under this name.
    pub(super) fn came_back(&mut self, name: &str, bytes: u64) {
        self.fetched_bytes += bytes;
        self.names.add(name);
    }

    /// Returns whether a dropped file came back under this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.has(name)
    }

    pub(super) fn left_bytes(&self) -> u64 {
        self.left_bytes
    }

    pub(super) fn fetched_bytes(&self) -> u64 {
        self.fetched_bytes
    }

    /// Returns the bytes that would have left RAM without a sifter: those that were fetched again
    /// left it a second time.
    pub(super) fn own_bytes(&self) -> u64 {
        self.left_bytes.saturating_sub(self.fetched_bytes)
    }

    pub(super) fn check(&self) {
        self.names.check();
    }
}
