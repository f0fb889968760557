//! Seeded random numbers for tests.

use proptest::{
    prelude::Rng,
    test_runner::{RngAlgorithm, TestRng},
};

/// A seeded stream of small random numbers.
pub struct Dice(TestRng);

impl Dice {
    /// Returns the stream of this seed.
    pub fn new(seed: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        Self(TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
    }

    /// Returns a number below `n`.
    pub fn below(&mut self, n: u32) -> u32 {
        self.0.next_u32() % n
    }
}
