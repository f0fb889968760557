//! The beginning of a system: what stands before the cache and may keep things from it. Nothing does yet.

use crate::{back::Back, cache::Cache, trace::Step};

/// Sees every step before the cache.
pub trait Front {
    /// Takes the step, if it is the front's to serve, from memory of its own; what it lets go of goes on to the cache.
    /// `false`: the cache serves it.
    fn take<C: Cache, B: Back>(&mut self, step: Step, at_us: u64, cache: &mut C, back: &mut B) -> bool;
}

/// Nothing in front.
pub struct NoFront;

impl Front for NoFront {
    #[inline(always)]
    fn take<C: Cache, B: Back>(&mut self, _: Step, _: u64, _: &mut C, _: &mut B) -> bool {
        false
    }
}
