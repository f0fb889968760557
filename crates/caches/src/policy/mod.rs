//! Replacement policies: one file each, and one list of all of them.
//!
//! A policy orders frames and selects the ones to evict. It knows pages only through the access and
//! the read-only [`Frames`]. It hashes nothing and counts no hits. Ghosts (evicted pages that it
//! remembers) are arrays indexed by dense page numbers.

use crate::{
    cache::{Frames, Victims},
    objects,
    trace::Run,
};
use flashsift_events::{
    address::Address,
    page::{Access, Frame, Page},
    params::{self, Listed, Param, Params},
};
use std::any::TypeId;

#[cfg(any(test, feature = "naive"))]
pub mod naive;

mod adaptive;
mod arc;
mod belady;
mod belady_cost;
mod cacheus;
mod car;
mod cflru;
mod clock;
mod clock2qplus;
mod clockpro;
mod clockproplus;
pub mod erased;
mod experts;
pub mod external;
mod fab;
mod fifo;
mod for_exact;
mod for_plus;
mod gdsf;
mod hyperbolic;
mod lecar;
mod lfu;
mod lhd;
mod linux2q;
mod lirs;
mod lru;
mod lruk;
mod lruwsr;
mod mglru;
mod s3fifo;
mod score;
mod sieve;
mod slru;
mod spatialclock;
mod twoq;
mod wtinylfu;

#[cfg(test)]
mod conformance;

/// Makes the list of all policies, and what finds the loop that was compiled for one of them.
macro_rules! policies {
    ($($module:ident: $($Policy:ident $(<$flag:literal>)?),+;)+) => {
        /// Every policy.
        pub const ALL: &[PolicySpec] = &[$($module::SPEC),+];

        impl PolicySpec {
            /// Runs a loop that is compiled for each policy. `params`: those of the policy;
            /// `in_rank_order`: whether places on the device are in the order of ranks.
            pub fn compiled<C: Compiled>(
                &self,
                params: &Params,
                in_rank_order: bool,
                compiled: C,
            ) -> C::Output {
                let wanted = (self.policy)(params, in_rank_order);
                $($(if wanted == id::<$module::$Policy $(<$flag>)?>() {
                    return compiled.run::<$module::$Policy $(<$flag>)?>();
                })+)+
                assert_eq!(wanted, id::<external::External>(), "a policy is in the list");
                compiled.run::<external::External>()
            }
        }
    };
}

// The module of each policy, and its type; of a policy with two forms, both.
policies! {
    fifo: Fifo;
    lru: Lru;
    lfu: Lfu;
    slru: Slru;
    lruk: LruK;
    clock: Clock;
    linux2q: Linux2q;
    cflru: Cflru;
    lruwsr: LruWsr;
    fab: Fab;
    for_exact: For;
    for_plus: ForPlus;
    spatialclock: ByPlace, ByRank;
    twoq: TwoQ<false>;
    arc: Arc;
    car: Car;
    clockpro: ClockPro<false>;
    clockproplus: ClockProPlus;
    lirs: Lirs;
    s3fifo: S3Fifo<false>;
    clock2qplus: Clock2QPlus;
    sieve: Sieve;
    wtinylfu: WTinyLfu;
    gdsf: Gdsf<false>;
    hyperbolic: Hyperbolic<false>;
    lhd: Lhd<false>;
    score: Score;
    lecar: LeCaR;
    cacheus: Cacheus;
    mglru: Mglru;
    belady: Belady;
    belady_cost: BeladyCost;
}

/// A loop that is compiled for each policy.
pub trait Compiled {
    /// Its result.
    type Output;

    /// Runs the loop under a policy.
    fn run<P: Build + 'static>(self) -> Self::Output;
}

/// The type of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PolicyId(TypeId);

/// Returns the type's identity.
const fn id<P: Build + 'static>() -> PolicyId {
    PolicyId(TypeId::of::<P>())
}

/// Returns the type of a policy that has one form.
fn only<P: Build + 'static>(_: &Params, _in_rank_order: bool) -> PolicyId {
    id::<P>()
}

/// Selects the pages that leave a full cache.
pub trait Policy {
    /// Whether the policy uses the future: [`Access::next_use`] must be filled in.
    const OFFLINE: bool;
    /// Whether the policy orders frames by [`Frames::address`]; if so, [`Policy::moved`] is called.
    const WANTS_ADDRESSES: bool = false;

    /// Reports that a page which was not resident now is in this frame.
    fn insert(&mut self, frame: Frame, access: &Access);

    /// Reports an access to a resident page.
    fn hit(&mut self, frame: Frame, access: &Access);

    /// Selects victims when all frames are in use and a page comes in, or, without `incoming`,
    /// while the cache is drained. Pushes at least one frame and removes each pushed frame from the
    /// policy's own order.
    fn evict(&mut self, incoming: Option<&Access>, frames: &Frames, victims: &mut Victims);

    /// Whether the cache may take this absent object. Only a cache of objects with sizes asks,
    /// before it evicts; a page always enters.
    fn takes(&self, _: &Access) -> bool {
        true
    }

    /// Reports that a resident page is truncated or deleted. Its frame still shows it.
    fn remove(&mut self, frame: Frame, frames: &Frames);

    /// Reports that a non-resident page is truncated or deleted. The policy forgets its history.
    fn forget(&mut self, _: Page) {}

    /// Reports that a dirty page was written back and stays in the cache.
    fn cleaned(&mut self, _: Frame) {}

    /// Reports that the page in this frame got an address, which [`Frames::address`] returns.
    /// `from` is its address before; a page that was inserted just now had none.
    fn moved(&mut self, _frame: Frame, _from: Option<Address>, _: &Frames) {}

    /// Announces an access to this page, hit or miss. Changes no state.
    #[inline(always)]
    fn expect_access(&self, _: Page) {}

    /// Announces a probable hit of this frame, so that the policy can prefetch the memory it
    /// touches. Changes no state.
    #[inline(always)]
    fn expect_hit(&self, _: Frame) {}

    /// Announces a hit of this frame once more, when the data that [`Policy::expect_hit`]
    /// prefetched has arrived. The number may be no frame's. Changes no state.
    #[inline(always)]
    fn expect_move(&self, _: Frame) {}

    /// Announces a probable miss of this page. Changes no state.
    #[inline(always)]
    fn expect_miss(&self, _: Page) {}

    /// Re-derives the policy's invariants. Tests call it after every step.
    ///
    /// # Panics
    ///
    /// Panics if an invariant is broken.
    fn check(&self, frames: &Frames);
}

/// The properties of a cache and a trace for which a policy is built.
#[derive(Clone, Copy)]
pub struct Setup<'a> {
    /// Requested capacity in frames, from which shares and ghosts are computed.
    pub frames: u32,
    /// Number of different pages in the trace.
    pub pages: u32,
    /// The file and position of each page, by rank; empty for units without a place.
    pub runs: &'a [Run],
    /// Parameters of the policy.
    pub params: &'a Params,
    /// Capacity of a cache of objects with sizes, bytes; `None`: of pages, of which `frames` fit.
    pub bytes: Option<u64>,
}

impl Setup<'_> {
    /// Returns the capacity in what [`Weights`](flashsift_events::structure::Weights) count:
    /// frames, or bytes.
    pub(crate) fn capacity(&self) -> u64 {
        self.bytes.unwrap_or(u64::from(self.frames))
    }

    /// Returns the number of frames that can ever be in use: no array by frame needs to be larger.
    pub fn slots(&self) -> u32 {
        self.frames.min(self.pages)
    }
}

/// A policy that can be built.
pub trait Build: Policy + Sized {
    /// Builds an empty policy for this many frames and pages.
    fn build(setup: &Setup<'_>) -> Self;
}

/// The use that a policy makes of the future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Uses no future accesses: it could run in a kernel.
    Online,
    /// Uses all future accesses, and no policy has more hits: an upper bound.
    Bound,
    /// Uses all future accesses for a goal without a known bound: it can neither run in a kernel
    /// nor bound other policies.
    Heuristic,
}

impl Kind {
    /// Whether [`Access::next_use`] must be filled in.
    pub fn is_offline(self) -> bool {
        self != Self::Online
    }
}

/// The description of a policy for the command line, the tests, the fuzzers and the benchmarks.
pub struct PolicySpec {
    /// Name in `--policy`.
    pub name: &'static str,
    /// Source of the definition.
    pub paper: &'static str,
    /// One-line description.
    pub what: &'static str,
    /// Quantity that the policy optimises.
    pub goal: &'static str,
    /// Time per access of this implementation.
    pub time: &'static str,
    /// Memory of this implementation, apart from the cache's own table.
    pub memory: &'static str,
    /// Estimate of the memory that a cell takes for the policy, with the addresses of frames if it
    /// wants them.
    pub memory_bytes: fn(&CellSize) -> u64,
    /// Advice on when to use the policy.
    pub when: &'static str,
    /// Parameters that `name:key=value` accepts.
    pub params: &'static [Param],
    /// Whether the policy uses the future, and for which goal.
    pub kind: Kind,
    /// Whether the cost of an eviction grows with the cache. A slow policy is not in `all` and must
    /// be selected by name.
    pub slow: bool,
    /// Whether it orders pages by their place: [`Policy::WANTS_ADDRESSES`]. A sample of the pages
    /// then says nothing about the whole trace.
    pub by_place: bool,
    /// The type that runs under these parameters; `true`: places are in the order of ranks.
    pub(crate) policy: fn(&Params, bool) -> PolicyId,
    /// Runs the policy over objects with sizes; `None`: it counts pages.
    pub(crate) objects: Option<objects::Runs>,
    #[cfg(any(test, feature = "naive"))]
    /// Builds the slow, obviously correct model of the policy.
    pub naive: fn(&Setup<'_>) -> Box<dyn naive::Naive>,
    #[cfg(any(test, feature = "naive"))]
    /// Builds a cache under this policy that takes one step at a time.
    pub cache: fn(&Setup<'_>, naive::Placing) -> Box<dyn naive::Stepped>,
}

/// The size of a cell and of its trace, from which its memory is estimated.
#[derive(Clone, Copy, Debug)]
pub struct CellSize {
    /// Different pages of the trace.
    pub pages: u64,
    /// Frames that can be in use, at most as many as pages.
    pub frames: u64,
    /// Runs of pages that lie one after another in their file.
    pub runs: u64,
}

impl CellSize {
    /// Returns an estimate of the ranges of 64 places in which pages lie: each run begins and ends
    /// in one, and files are in pieces.
    pub(crate) fn leaves(&self) -> u64 {
        2 * self.runs + self.pages / 16
    }
}

/// A policy selected from the list, with its parameters.
pub type Selection = params::Selection<PolicySpec>;

impl Listed for PolicySpec {
    const KIND: &'static str = "policy";
    const ALL: &'static [Self] = ALL;

    fn declared(&self) -> (&'static str, &'static [Param]) {
        (self.name, self.params)
    }

    /// Takes the names of libCacheSim (`s3-fifo`, `twoq`) and of Caffeine's simulator
    /// (`two-queue.S3Fifo`, `sketch.WindowTinyLfu`).
    fn synonym(wanted: &str) -> Option<&'static str> {
        const SYNONYMS: [(&str, &str); 10] = [
            ("twoq", "2q"),
            ("twoqueue", "2q"),
            ("windowtinylfu", "wtinylfu"),
            ("clairvoyant", "belady"),
            ("secondchance", "clock"),
            ("segmentedlru", "slru"),
            ("s4lru", "slru"),
            ("lru2", "lruk"),
            ("clock2q+", "clock2qplus"),
            ("clockpro+", "clockproplus"),
        ];
        let letters = |name: &str| -> String {
            name.chars()
                .filter(|c| !matches!(c, '-' | '_'))
                .map(|c| c.to_ascii_lowercase())
                .collect()
        };
        let wanted = letters(wanted.rsplit('.').next().unwrap_or_default());
        let same = ALL.iter().map(|spec| spec.name).find(|name| letters(name) == wanted);
        let other = || SYNONYMS.iter().find(|(name, _)| *name == wanted).map(|(_, name)| *name);
        same.or_else(other)
    }
}

/// Returns every policy that is fast at any size, with its defaults.
pub fn all() -> Vec<Selection> {
    ALL.iter().filter(|spec| !spec.slow).map(Selection::default_of).collect()
}

#[cfg(test)]
mod tests {
    use super::{ALL, PolicySpec, Selection};
    use std::collections::BTreeSet;

    /// A researcher pasted the names of other simulators, which were unknown here.
    #[test]
    fn names_of_other_simulators_are_taken() {
        for (theirs, ours) in [
            ("s3-fifo", "s3fifo"),
            ("S3FIFO", "s3fifo"),
            ("twoq", "2q"),
            ("clock-pro", "clockpro"),
            ("w-tinylfu", "wtinylfu"),
            ("linked.Lru", "lru"),
            ("two-queue.TwoQueue", "2q"),
            ("two-queue.S3Fifo", "s3fifo"),
            ("sketch.WindowTinyLfu", "wtinylfu"),
            ("opt.Clairvoyant", "belady"),
            ("lru-wsr", "lruwsr"),
            ("linked.SegmentedLru", "slru"),
            ("lru-k", "lruk"),
            ("Clock2Q+", "clock2qplus"),
            ("irr.ClockProPlus", "clockproplus"),
            ("CLOCK-Pro+", "clockproplus"),
        ] {
            let found = Selection::parse(theirs).map(|found| found.spec.name);
            assert_eq!(found.ok(), Some(ours), "{theirs}");
        }
        for unknown in ["", ".", "s4-fifo", "linked."] {
            assert!(Selection::parse(unknown).is_err(), "{unknown:?}");
        }
        let spec = Selection::parse("twoq:kin=0.5").ok().unwrap();
        assert_eq!(spec.label(), "2q:kin=0.5");
    }

    /// Names are unique, and each description is a phrase: not empty, on one line, without a full
    /// stop.
    #[test]
    fn every_policy_has_a_name_and_descriptions() {
        let names: BTreeSet<&str> = ALL.iter().map(|spec| spec.name).collect();
        assert_eq!(names.len(), ALL.len());
        for PolicySpec { name, paper, what, goal, time, memory, when, params, .. } in ALL {
            let params = params.iter().map(|param| param.what);
            for text in [*paper, what, goal, time, memory, when].into_iter().chain(params) {
                assert!(
                    !text.is_empty() && !text.ends_with('.') && text.trim() == text,
                    "{name}: {text:?}"
                );
                assert!(!text.contains('\n') && !text.contains("  "), "{name}: {text:?}");
            }
        }
    }
}
