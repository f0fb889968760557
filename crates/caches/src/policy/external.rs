//! A policy that is written in another language. It orders pages, not frames, and is no entry of
//! [`super::ALL`]: [`with`] passes its maker to the cells that run inside.

use super::{Build, Kind, Policy, PolicySpec, Selection, Setup};
use crate::cache::{Frames, Victims};
use flashsift_events::{
    page::{Access, Frame, Op, Page},
    params::Params,
};
use std::{cell::RefCell, rc::Rc};

/// A policy over pages. Its methods have the meaning of those of [`Policy`].
pub trait ExternalPolicy {
    /// Reports that a page which was not resident now is.
    fn insert(&mut self, page: Page, op: Op);
    /// Reports an access to a resident page.
    fn hit(&mut self, page: Page, op: Op);
    /// Selects at least one resident page to leave, and removes each from its own order.
    fn evict(&mut self, incoming: Option<Page>, victims: &mut Vec<Page>);
    /// Reports that a resident page is truncated or deleted.
    fn remove(&mut self, page: Page);
    /// Reports that a non-resident page is truncated or deleted.
    fn forget(&mut self, page: Page);
    /// Reports that a dirty page was written back and stays in the cache.
    fn cleaned(&mut self, page: Page);
    /// Reports a victim that is not resident, or that there is none. Does not return.
    fn wrong_victim(&self, victim: Option<Page>) -> !;
    /// Re-derives the policy's invariants. Tests call it after every step.
    fn check(&self) {}
}

/// Makes a policy for a cache of this many frames and a trace of this many pages.
pub type MakePolicy = Rc<dyn Fn(u32, u32) -> Box<dyn ExternalPolicy>>;

thread_local! {
    static MAKER: RefCell<Option<MakePolicy>> = const { RefCell::new(None) };
}

/// Calls `run` on this thread. Cells of [`select`] that run inside are made by `make`.
pub fn with<R>(make: MakePolicy, run: impl FnOnce() -> R) -> R {
    /// Takes the maker away also after a panic.
    struct Reset(Option<MakePolicy>);
    impl Drop for Reset {
        fn drop(&mut self) {
            MAKER.set(self.0.take());
        }
    }
    let _reset = Reset(MAKER.replace(Some(make)));
    run()
}

/// Returns a policy of this name, as an entry of the list would be selected, to be run inside of
/// [`with`].
/// The memory of its description is never freed.
pub fn select(name: &str) -> Selection {
    let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
    let spec = PolicySpec {
        name,
        paper: "none",
        what: "a policy from outside",
        goal: "its own",
        time: "its own",
        memory: "4 bytes a frame, and its own",
        memory_bytes: |size| 4 * size.frames,
        when: "for prototypes",
        params: &[],
        kind: Kind::Online,
        slow: true,
        by_place: <External as Policy>::WANTS_ADDRESSES,
        policy: super::only::<External>,
        objects: None,
        #[cfg(any(test, feature = "naive"))]
        naive: |setup| Box::new(model::Model::new(made(setup))),
        #[cfg(any(test, feature = "naive"))]
        cache: super::naive::real::<External>,
    };
    Selection { spec: Box::leak(Box::new(spec)), params: Params::NONE }
}

fn made(setup: &Setup<'_>) -> Box<dyn ExternalPolicy> {
    let make = MAKER.with_borrow(Clone::clone).expect("the cell runs inside of `with`");
    make(setup.slots(), setup.pages)
}

/// Translates between frames and pages.
pub(super) struct External {
    policy: Box<dyn ExternalPolicy>,
    /// By frame.
    page: Vec<Page>,
    /// Victims of the present eviction.
    victims: Vec<Page>,
}

impl Build for External {
    fn build(setup: &Setup<'_>) -> Self {
        let page = vec![Page(u32::MAX); setup.slots() as usize];
        Self { policy: made(setup), page, victims: Vec::new() }
    }
}

impl Policy for External {
    const OFFLINE: bool = false;

    fn insert(&mut self, frame: Frame, access: &Access) {
        self.page[frame.0 as usize] = access.page;
        self.policy.insert(access.page, access.op);
    }

    fn hit(&mut self, _: Frame, access: &Access) {
        self.policy.hit(access.page, access.op);
    }

    fn evict(&mut self, incoming: Option<&Access>, frames: &Frames, victims: &mut Victims) {
        self.policy.evict(incoming.map(|access| access.page), &mut self.victims);
        if self.victims.is_empty() {
            self.policy.wrong_victim(None);
        }
        for (n, page) in self.victims.iter().enumerate() {
            let known = (page.0 as usize) < frames.pages() && !self.victims[..n].contains(page);
            match frames.frame(*page).filter(|_| known) {
                Some(frame) => victims.push(frame),
                None => self.policy.wrong_victim(Some(*page)),
            }
        }
        self.victims.clear();
    }

    fn remove(&mut self, frame: Frame, frames: &Frames) {
        self.policy.remove(frames.page(frame));
    }

    fn forget(&mut self, page: Page) {
        self.policy.forget(page);
    }

    fn cleaned(&mut self, frame: Frame) {
        self.policy.cleaned(self.page[frame.0 as usize]);
    }

    fn check(&self, _: &Frames) {
        self.policy.check();
    }
}

#[cfg(any(test, feature = "naive"))]
mod model {
    use super::ExternalPolicy;
    use crate::policy::naive::Naive;
    use flashsift_events::page::{Access, Page};
    use std::collections::BTreeSet;

    /// The policy in a minimal cache, without frames. It asserts that victims are resident.
    pub(super) struct Model {
        policy: Box<dyn ExternalPolicy>,
        resident: BTreeSet<Page>,
    }

    impl Model {
        pub(super) fn new(policy: Box<dyn ExternalPolicy>) -> Self {
            Self { policy, resident: BTreeSet::new() }
        }
    }

    impl Naive for Model {
        fn insert(&mut self, access: &Access) {
            self.resident.insert(access.page);
            self.policy.insert(access.page, access.op);
        }
        fn hit(&mut self, access: &Access) {
            self.policy.hit(access.page, access.op);
        }
        fn evict(&mut self, incoming: Option<&Access>, _: &BTreeSet<Page>) -> Vec<Page> {
            let mut victims = Vec::new();
            self.policy.evict(incoming.map(|access| access.page), &mut victims);
            if victims.is_empty() {
                self.policy.wrong_victim(None);
            }
            for page in &victims {
                if !self.resident.remove(page) {
                    self.policy.wrong_victim(Some(*page));
                }
            }
            victims
        }
        fn remove(&mut self, page: Page) {
            self.resident.remove(&page);
            self.policy.remove(page);
        }
        fn forget(&mut self, page: Page) {
            self.policy.forget(page);
        }
        fn cleaned(&mut self, page: Page) {
            self.policy.cleaned(page);
        }
    }
}

/// The tests of every policy, for one from outside.
#[cfg(any(test, feature = "naive"))]
pub mod checks {
    use super::{MakePolicy, select, with};
    use crate::policy::{
        ALL, Kind, Setup,
        naive::{self, Act, Placing},
    };
    use flashsift_events::params::Params;
    use rand::{Rng, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    /// A history on which a policy does not do as it must.
    #[derive(Debug, thiserror::Error)]
    #[error("seed {seed}, {frames} frames, {pages} pages: {what}")]
    pub struct Failed {
        /// Number of the history.
        pub seed: u64,
        /// Frames of the cache.
        pub frames: u32,
        /// Pages of the history.
        pub pages: u32,
        /// The first difference.
        pub what: String,
    }

    /// Number of histories that a policy is checked on.
    pub const HISTORIES: u64 = 300;

    /// Runs one seeded history: in the real cache beside a minimal cache under `model`, step by
    /// step with a final drain, and beside the bound for hits.
    ///
    /// # Errors
    /// The caches differ, or the policy has more hits than the bound.
    ///
    /// # Panics
    /// As the policy does.
    pub fn history(make: &MakePolicy, model: &MakePolicy, seed: u64) -> Result<(), Failed> {
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let mut below = |n: u32| dice.next_u32() % n;
        let pages = 1 + below(if seed.is_multiple_of(10) { 200 } else { 40 });
        let frames = 1 + below(pages + 2);
        let steps = 20 + below(200);
        let acts = naive::history(&mut below, pages, steps);
        let failed = |what| Failed { seed, frames, pages, what };
        let chosen = select("external");
        let setup = Setup { frames, pages, runs: &[], params: &chosen.params, bytes: None };
        let placing = Placing::ALL[seed as usize % Placing::ALL.len()];
        let real = with(make.clone(), || (chosen.spec.cache)(&setup, placing));
        let model = with(model.clone(), || naive::model(chosen.spec, &setup, placing));
        naive::compare_caches(real, model, &acts)
            .map_err(|difference| failed(format!("differs from its model at {difference}")))?;
        let bound = ALL.iter().find(|spec| spec.kind == Kind::Bound).expect("it is in the list");
        let none = Params::default();
        let bound = (bound.cache)(&Setup { params: &none, ..setup }, Placing::Fixed);
        let own = with(make.clone(), || (chosen.spec.cache)(&setup, Placing::Fixed));
        let [most, hits] = [bound, own].map(|mut cache| {
            let next_uses = naive::next_uses(&acts);
            let steps = acts.iter().zip(next_uses);
            steps.filter(|(act, next)| cache.step(**act, *next).hit).count()
        });
        let accesses = acts.iter().filter(|act| matches!(act, Act::Read(_) | Act::Write(_)));
        if hits > most {
            let accesses = accesses.count();
            return Err(failed(format!("{hits} hits of {accesses}, more than the bound {most}")));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{ExternalPolicy, MakePolicy, checks};
    use flashsift_events::page::{Op, Page};
    use std::rc::Rc;

    /// LRU, or FIFO, or a policy with a defect.
    struct Stack {
        pages: Vec<Page>,
        moves: bool,
        forgets_removals: bool,
    }

    impl ExternalPolicy for Stack {
        fn insert(&mut self, page: Page, _: Op) {
            self.pages.push(page);
        }
        fn hit(&mut self, page: Page, _: Op) {
            if self.moves {
                self.pages.retain(|other| *other != page);
                self.pages.push(page);
            }
        }
        fn evict(&mut self, _: Option<Page>, victims: &mut Vec<Page>) {
            victims.push(self.pages.remove(0));
        }
        fn remove(&mut self, page: Page) {
            if !self.forgets_removals {
                self.pages.retain(|other| *other != page);
            }
        }
        fn forget(&mut self, _: Page) {}
        fn cleaned(&mut self, _: Page) {}
        fn wrong_victim(&self, victim: Option<Page>) -> ! {
            panic!("wrong victim: {victim:?}")
        }
    }

    fn stack(moves: bool, forgets_removals: bool) -> MakePolicy {
        Rc::new(move |_, _| Box::new(Stack { pages: Vec::new(), moves, forgets_removals }))
    }

    // Promises: Sampling and sweeps 4.
    #[test]
    fn a_policy_from_outside_passes_the_checks_of_every_policy() {
        for seed in 0..checks::HISTORIES {
            checks::history(&stack(true, false), &stack(true, false), seed).unwrap();
        }
    }

    /// The checks find a model that differs, and victims that are not resident.
    // Promises: Sampling and sweeps 4.
    #[test]
    fn the_checks_find_defects() {
        let differ = |seed| checks::history(&stack(true, false), &stack(false, false), seed);
        assert!((0..checks::HISTORIES).any(|seed| differ(seed).is_err()));
        let forgetful = || {
            (0..checks::HISTORIES)
                .try_for_each(|n| checks::history(&stack(true, true), &stack(true, true), n))
        };
        let panic = std::panic::catch_unwind(forgetful).unwrap_err();
        let words = panic.downcast_ref::<String>().unwrap();
        assert!(words.starts_with("wrong victim: Some"), "{words}");
    }
}
