//! The parts that LeCaR and Cacheus share: the weights of two experts, LRU and LFU, and the choice
//! between them.

use flashsift_events::{
    params::{Param, ParamKind},
    structure,
};

/// The number of an expert, and of its history of evicted pages.
pub(super) const LRU: usize = 0;
pub(super) const LFU: usize = 1;

/// The greatest weight of an expert; the other has the rest.
const WEIGHT_MAX: f64 = 0.99;

pub(super) const SEED: Param = Param {
    name: "seed",
    what: "seed of the choice between the experts",
    kind: ParamKind::Number { default: 1.0, min: 0.0, max: 4e9 },
};

/// Weights of the experts; their sum is 1.
pub(super) struct Weights([f64; 2]);

impl Weights {
    pub(super) fn new() -> Self {
        Self([0.5; 2])
    }

    /// Punishes the expert that evicted a page which is accessed again. `regret` is the learning
    /// rate times what the paper calls the reward, without its sign.
    #[inline]
    pub(super) fn punish(&mut self, expert: usize, regret: f64) {
        self.0[expert] *= (-regret).exp();
        let sum = self.0[LRU] + self.0[LFU];
        self.0 = self.0.map(|weight| weight / sum);
        if let Some(best) = self.0.iter().position(|weight| *weight >= WEIGHT_MAX) {
            self.0 = [1.0 - WEIGHT_MAX; 2];
            self.0[best] = WEIGHT_MAX;
        }
    }

    #[inline(always)]
    pub(super) fn choose(&self, random: &mut Random) -> usize {
        if random.unit() < self.0[LRU] { LRU } else { LFU }
    }

    pub(super) fn check(&self) {
        assert!((self.0[LRU] + self.0[LFU] - 1.0).abs() < 1e-9);
        assert!(self.0.iter().all(|weight| *weight < WEIGHT_MAX + 1e-9));
    }
}

/// A seeded generator, the same in each run.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: f64) -> Self {
        Self(seed as u64)
    }

    /// Returns the next number, from 0 up to but not including 1.
    #[inline(always)]
    pub(super) fn unit(&mut self) -> f64 {
        let word = structure::random(&mut self.0);
        (word >> 11) as f64 / (1u64 << 53) as f64
    }
}
