//! Replacement policies: one file each, and the one list of them.
//!
//! A policy orders frames and says which leave. It does not know pages from one another except through the access and
//! the read-only [`Frames`]; it hashes nothing and counts no hits. Ghosts (pages that left) are arrays by dense page.

use crate::{
    cache::{Frames, Victims},
    layout::Address,
    page::{Access, Frame, Page},
    params::{self, Listed, Param, Params},
    system,
    trace::Run,
};

#[cfg(any(test, feature = "naive"))]
pub mod naive;

mod adaptive;
mod arc;
mod belady;
mod belady_cost;
mod car;
mod cflru;
mod clock;
mod clockpro;
mod fab;
mod fifo;
mod for_exact;
mod for_plus;
mod lfu;
mod linux2q;
mod lirs;
mod lru;
mod lruwsr;
mod mglru;
mod s3fifo;
mod sieve;
mod spatialclock;
mod twoq;
mod wtinylfu;

#[cfg(test)]
pub(crate) mod conformance;

/// Every policy.
pub const ALL: &[Spec] = &[
    fifo::SPEC,
    lru::SPEC,
    lfu::SPEC,
    clock::SPEC,
    linux2q::SPEC,
    cflru::SPEC,
    lruwsr::SPEC,
    fab::SPEC,
    for_exact::SPEC,
    for_plus::SPEC,
    spatialclock::SPEC,
    twoq::SPEC,
    arc::SPEC,
    car::SPEC,
    clockpro::SPEC,
    lirs::SPEC,
    s3fifo::SPEC,
    sieve::SPEC,
    wtinylfu::SPEC,
    mglru::SPEC,
    belady::SPEC,
    belady_cost::SPEC,
];

/// Who leaves when the cache is full.
pub trait Policy {
    /// Whether [`Access::next_use`] has to be filled in: the policy sees the future.
    const OFFLINE: bool;
    /// The policy orders frames by [`Frames::address`], and [`Policy::moved`] is called.
    const WANTS_ADDRESSES: bool = false;

    /// A page that was not resident now is, in this frame.
    fn insert(&mut self, frame: Frame, access: &Access);

    /// A resident page is accessed.
    fn hit(&mut self, frame: Frame, access: &Access);

    /// All frames are in use and a page comes in; or, with no `incoming`, the cache is drained. Pushes at least one
    /// frame, each taken out of the policy's own order.
    fn evict(&mut self, incoming: Option<&Access>, frames: &Frames, victims: &mut Victims);

    /// A resident page is truncated or deleted. Its frame still shows it.
    fn remove(&mut self, frame: Frame, frames: &Frames);

    /// A page that is not resident is truncated or deleted: what is remembered of it no longer holds.
    fn forget(&mut self, _: Page) {}

    /// A dirty page was written back and stays.
    fn cleaned(&mut self, _: Frame) {}

    /// The page in this frame got an address, which [`Frames::address`] shows. `from` is the address
    /// that it had before; a page that was inserted just now had none.
    fn moved(&mut self, _frame: Frame, _from: Option<Address>, _: &Frames) {}

    /// This page will be accessed soon, hit or miss. Changes nothing.
    #[inline(always)]
    fn expect_access(&self, _: Page) {}

    /// This frame will probably be hit soon: a chance to fetch what that touches. Changes nothing.
    #[inline(always)]
    fn expect_hit(&self, _: Frame) {}

    /// This page will probably miss soon. Changes nothing.
    #[inline(always)]
    fn expect_miss(&self, _: Page) {}

    /// Re-derives the policy's invariants; panics where one is broken. Tests call it after every step.
    fn check(&self, frames: &Frames);
}

/// What a policy is built for.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// Capacity asked for, in frames: what shares and ghosts are computed from.
    pub frames: u32,
    /// Different pages in the trace.
    pub pages: u32,
    /// Which pages belong to which place of which file, by rank; empty for units without a place.
    pub runs: &'a [Run],
    /// Parameters given.
    pub params: &'a Params,
}

impl Setup<'_> {
    /// Frames that can ever be in use: no array by frame needs to be larger.
    pub fn slots(&self) -> u32 {
        self.frames.min(self.pages)
    }
}

/// A policy that can be made.
pub trait Build: Policy + Sized {
    /// For this many frames and pages, empty.
    fn build(setup: &Setup<'_>) -> Self;
}

/// How much of the future a policy uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// None: it could run in a kernel.
    Online,
    /// All of it, and no policy hits more often: it shows what is left to gain.
    Bound,
    /// All of it, towards something that nobody can bound: neither to be run nor a limit to what can.
    Heuristic,
}

impl Kind {
    /// Whether [`Access::next_use`] has to be filled in.
    pub fn is_offline(self) -> bool {
        self != Self::Online
    }
}

/// A policy as the command line, the tests, the fuzzers and the benchmarks know it.
pub struct Spec {
    /// As `--policy` takes it.
    pub name: &'static str,
    /// Where it is defined.
    pub paper: &'static str,
    /// What it does, in a line.
    pub what: &'static str,
    /// What it optimises.
    pub goal: &'static str,
    /// How the time an access takes grows, here.
    pub time: &'static str,
    /// What it holds beside the cache's own table, here.
    pub memory: &'static str,
    /// When to use it.
    pub when: &'static str,
    /// What `name:key=value` takes.
    pub params: &'static [Param],
    /// Whether it sees the future, and what for.
    pub kind: Kind,
    /// The cost of an eviction grows with the cache: not one of [`Selection::all`], to be asked for by name.
    pub slow: bool,
    pub(crate) run: system::RunCell,
    #[cfg(any(test, feature = "naive"))]
    /// The slow and obviously right model of it.
    pub naive: fn(&Setup<'_>) -> Box<dyn naive::Naive>,
    #[cfg(any(test, feature = "naive"))]
    /// A cache under this policy, for stepping through.
    pub cache: fn(&Setup<'_>) -> Box<dyn naive::Stepped>,
}

/// A policy with its parameters.
pub type Selection = params::Selection<Spec>;

impl Listed for Spec {
    const KIND: &'static str = "policy";
    const ALL: &'static [Self] = ALL;

    fn declared(&self) -> (&'static str, &'static [Param]) {
        (self.name, self.params)
    }
}

impl Selection {
    /// Every policy that is fast at any size, with its defaults.
    pub fn all() -> Vec<Self> {
        ALL.iter().filter(|spec| !spec.slow).map(Self::default_of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{ALL, Spec};
    use std::collections::BTreeSet;

    /// Names are unique, and what is said of a policy is a phrase: not empty, on one line, without an end.
    #[test]
    fn every_policy_says_what_it_is() {
        let names: BTreeSet<&str> = ALL.iter().map(|spec| spec.name).collect();
        assert_eq!(names.len(), ALL.len());
        for Spec { name, paper, what, goal, time, memory, when, params, .. } in ALL {
            let params = params.iter().map(|param| param.what);
            for said in [*paper, what, goal, time, memory, when].into_iter().chain(params) {
                assert!(!said.is_empty() && !said.ends_with('.') && said.trim() == said, "{name}: {said:?}");
                assert!(!said.contains('\n') && !said.contains("  "), "{name}: {said:?}");
            }
        }
    }
}
