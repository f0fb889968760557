//! Slow, obviously correct models, and the comparison of a model with the real cache step by step.
//!
//! A model keeps pages in vectors and follows its policy's definition line by line, in time linear
//! in the cache. It shares no code with the fast policy. Tests and fuzzers compare the two victim
//! by victim.

use super::{Policy, PolicySpec, Setup};
use crate::{
    back::{Back, DeviceCounts, Source, Why, Written},
    cache::{Cache, Details, PageCache},
    trace::Owner,
};
use flashsift_events::{
    address::Address,
    page::{Access, NEVER, Op, Page},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    ops::Range,
};

/// A policy over pages that follows its definition.
pub trait Naive {
    /// Reports that a page which was not resident now is.
    fn insert(&mut self, access: &Access);
    /// Reports an access to a resident page.
    fn hit(&mut self, access: &Access);
    /// Returns the victims in order; `dirty` holds the pages that are dirty now.
    fn evict(&mut self, incoming: Option<&Access>, dirty: &BTreeSet<Page>) -> Vec<Page>;
    /// Whether an object of this size can enter.
    fn takes(&self, _: &Access) -> bool {
        true
    }
    /// Reports that a resident page is removed.
    fn remove(&mut self, page: Page);
    /// Reports that a non-resident page is removed.
    fn forget(&mut self, _: Page) {}
    /// Reports that a dirty page was written back and stays in the cache.
    fn cleaned(&mut self, _: Page) {}
    /// Reports the address of a page: directly after its insertion, and whenever it changes.
    fn moved(&mut self, _: Page, _: Address) {}
}

/// The weight of each page: one, or the bytes of an object as it entered.
pub(super) struct NaiveWeights(Option<BTreeMap<Page, u64>>);

impl NaiveWeights {
    pub(super) fn new(setup: &Setup<'_>) -> Self {
        Self(setup.bytes.map(|_| BTreeMap::new()))
    }

    pub(super) fn are_sizes(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn set(&mut self, access: &Access) {
        if let Some(bytes) = &mut self.0 {
            bytes.insert(access.page, access.bytes.into());
        }
    }

    pub(super) fn of(&self, page: Page) -> u64 {
        self.0.as_ref().map_or(1, |bytes| bytes[&page])
    }
}

/// A layout for tests: the rule by which pages get places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// Each page lies at its rank.
    Fixed,
    /// Every second group of `GROUP` pages is new: its pages get neighbouring places, in groups
    /// of descending order, when the first of them is written back.
    Late,
    /// Each write-back moves its page to the next place of a log.
    Log,
}

impl Placing {
    /// Every rule.
    pub const ALL: [Self; 3] = [Self::Fixed, Self::Late, Self::Log];
}

/// Pages of [`Placing::Late`] that are placed together.
const GROUP: u32 = 5;

/// The places of pages under a [`Placing`].
struct Places {
    placing: Placing,
    place: Vec<Option<u64>>,
    /// Pages placed so far, or the end of the log.
    next: u64,
    /// The place given last to one of the two groups of a file.
    goals: BTreeMap<u32, u64>,
    moved: Vec<Range<u32>>,
}

impl Places {
    fn new(placing: Placing, pages: u32) -> Self {
        let is_old = |page: u32| placing != Placing::Late || (page / GROUP).is_multiple_of(2);
        let place = (0..pages).map(|page| is_old(page).then_some(u64::from(page))).collect();
        let (goals, moved) = (BTreeMap::new(), Vec::new());
        Self { placing, place, next: u64::from(pages), goals, moved }
    }

    fn write(&mut self, page: u32) {
        let moved = match self.placing {
            Placing::Late if self.place[page as usize].is_none() => {
                let first = page / GROUP * GROUP;
                first..(first + GROUP).min(self.place.len() as u32)
            }
            Placing::Log => page..page + 1,
            _ => return,
        };
        for page in moved.clone() {
            self.place[page as usize] = Some(self.next);
            self.goals.insert(page / (2 * GROUP), self.next);
            self.next += 1;
        }
        self.moved.push(moved);
    }

    /// Frees the pages; groups that are only partly in the range keep their places.
    fn free(&mut self, pages: Range<u32>) {
        for page in pages.clone() {
            let first = page / GROUP * GROUP;
            let last = (first + GROUP).min(self.place.len() as u32);
            let frees = match self.placing {
                Placing::Fixed => false,
                Placing::Late => pages.start <= first && last <= pages.end,
                Placing::Log => true,
            };
            if frees {
                self.place[page as usize] = None;
            }
        }
    }

    fn address(&self, page: Page) -> Address {
        match self.place[page.0 as usize] {
            Some(place) => Address::at(place),
            None => {
                let goal = self.goals.get(&(page.0 / (2 * GROUP)));
                goal.map_or(Address::LAST, |goal| Address::behind(*goal))
            }
        }
    }
}

/// One step of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Reads a page.
    Read(u32),
    /// Writes a page.
    Write(u32),
    /// Truncates or deletes this many pages from the first on.
    Drop(u32, u32),
    /// Writes a page back if it is dirty; the page stays in the cache.
    Clean(u32),
}

/// Effect of one step on the cache.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// Whether an access hit.
    pub hit: bool,
    /// Pages fetched.
    pub fetched: Vec<Page>,
    /// Pages written back, in order.
    pub written: Vec<Page>,
    /// Number of dirty pages dropped.
    pub dropped_dirty: u64,
    /// All pages that are resident afterwards.
    pub resident: Vec<Page>,
}

/// A cache that takes one step at a time.
pub trait Stepped {
    /// Performs an access, a removal or a write-back; `next_use` is that of the access.
    fn step(&mut self, act: Act, next_use: u32) -> Effect;
    /// Writes everything dirty, in the policy's order, and empties the cache.
    fn drain(&mut self) -> Effect;
    /// Checks the invariants.
    ///
    /// # Panics
    ///
    /// Panics if an invariant is broken.
    fn check(&self);
}

fn access(page: u32, op: Op, was_dirty: bool, next_use: u32) -> Access {
    Access { was_dirty, next_use, ..Access::new(Page(page), op) }
}

/// Records the effect of a step and places pages.
struct Recorder<'a> {
    effect: &'a mut Effect,
    places: &'a mut Places,
}

impl Back for Recorder<'_> {
    fn read(&mut self, page: Page, _: Owner) -> Source {
        self.effect.fetched.push(page);
        Source::Storage
    }
    fn write(&mut self, written: Written) {
        self.effect.written.push(written.page);
        self.places.write(written.page.0);
    }
    fn dropped(&mut self, dirty: bool) {
        self.effect.dropped_dirty += u64::from(dirty);
    }
    fn free(&mut self, pages: Range<u32>) {
        self.places.free(pages);
    }
    fn address(&mut self, page: Page) -> Address {
        self.places.address(page)
    }
    fn poll_moved(&mut self) -> Option<Range<u32>> {
        self.places.moved.pop()
    }
    fn counts(&self) -> DeviceCounts {
        DeviceCounts {
            reads: self.effect.fetched.len() as u64,
            writes: self.effect.written.len() as u64,
            dropped_dirty: self.effect.dropped_dirty,
            ..DeviceCounts::default()
        }
    }
}

struct Real<P> {
    cache: PageCache<P>,
    places: Places,
    pages: u32,
}

impl<P: Policy> Real<P> {
    fn with_resident(&self, mut effect: Effect) -> Effect {
        effect.resident =
            (0..self.pages).map(Page).filter(|page| self.cache.holds(*page)).collect();
        effect
    }
}

impl<P: Policy> Stepped for Real<P> {
    fn step(&mut self, act: Act, next_use: u32) -> Effect {
        let (mut effect, mut cleaning) = (Effect::default(), Effect::default());
        let mut back = Recorder { effect: &mut effect, places: &mut self.places };
        match act {
            Act::Read(page) => {
                let access = access(page, Op::Read, false, next_use);
                effect.hit = self.cache.access(access, Details::WHOLE, &mut back);
            }
            Act::Write(page) => {
                let access = access(page, Op::Write, false, next_use);
                effect.hit = self.cache.access(access, Details::WHOLE, &mut back);
            }
            Act::Drop(first, pages) => {
                self.cache.drop_pages(first..(first + pages).min(self.pages), &mut back)
            }
            // The effect lists the pages that are written because they are evicted; this one stays.
            Act::Clean(page) => {
                back.effect = &mut cleaning;
                self.cache.sync(page..page + 1, Why::Sync, &mut back);
            }
        }
        self.with_resident(effect)
    }

    fn drain(&mut self) -> Effect {
        let mut effect = Effect::default();
        self.cache.drain(&mut Recorder { effect: &mut effect, places: &mut self.places });
        self.with_resident(effect)
    }

    fn check(&self) {
        self.cache.check();
    }
}

/// Builds the real cache under a policy, in front of storage that places pages by this rule.
pub fn real<P: super::Build + 'static>(setup: &Setup<'_>, placing: Placing) -> Box<dyn Stepped> {
    stepped(P::build(setup), setup.pages, setup.frames, placing)
}

/// The same, under a policy that is built already.
pub(super) fn stepped<P: Policy + 'static>(
    policy: P,
    pages: u32,
    frames: u32,
    placing: Placing,
) -> Box<dyn Stepped> {
    let cache = PageCache::new::<Recorder<'_>>(policy, pages, frames, false);
    Box::new(Real { cache, places: Places::new(placing, pages), pages })
}

/// A minimal cache around a model.
struct Model {
    policy: Box<dyn Naive>,
    capacity: usize,
    pages: u32,
    resident: BTreeSet<Page>,
    dirty: BTreeSet<Page>,
    places: Places,
    /// The address that the policy knows of each resident page.
    known: BTreeMap<Page, Address>,
}

impl Model {
    fn tell_moves(&mut self) {
        while let Some(pages) = self.places.moved.pop() {
            for page in pages.map(Page).filter(|page| self.resident.contains(page)) {
                let address = self.places.address(page);
                if self.known.insert(page, address) != Some(address) {
                    self.policy.moved(page, address);
                }
            }
        }
    }

    fn evict(&mut self, incoming: Option<&Access>, effect: &mut Effect) {
        let victims = self.policy.evict(incoming, &self.dirty);
        assert!(!victims.is_empty(), "the model evicts something");
        for page in victims {
            assert!(
                self.resident.remove(&page),
                "the model evicts {page:?}, which is not resident"
            );
            if self.dirty.remove(&page) {
                effect.written.push(page);
                self.places.write(page.0);
            }
        }
        self.tell_moves();
    }

    fn access(&mut self, access: Access, effect: &mut Effect) {
        effect.hit = self.resident.contains(&access.page);
        if effect.hit {
            self.policy.hit(&access);
        } else {
            if self.resident.len() == self.capacity {
                self.evict(Some(&access), effect);
            }
            self.resident.insert(access.page);
            if access.op == Op::Read {
                effect.fetched.push(access.page);
            }
            self.policy.insert(&access);
            let address = self.places.address(access.page);
            self.known.insert(access.page, address);
            self.policy.moved(access.page, address);
        }
        if access.op == Op::Write {
            self.dirty.insert(access.page);
        }
    }
}

impl Stepped for Model {
    fn step(&mut self, act: Act, next_use: u32) -> Effect {
        let mut effect = Effect::default();
        let dirty = |page| self.dirty.contains(&Page(page));
        match act {
            Act::Read(page) => {
                self.access(access(page, Op::Read, dirty(page), next_use), &mut effect)
            }
            Act::Write(page) => {
                self.access(access(page, Op::Write, dirty(page), next_use), &mut effect)
            }
            Act::Drop(first, pages) => {
                let range = first..(first + pages).min(self.pages);
                for page in range.clone().map(Page) {
                    if self.resident.remove(&page) {
                        self.policy.remove(page);
                        effect.dropped_dirty += u64::from(self.dirty.remove(&page));
                    } else {
                        self.policy.forget(page);
                    }
                }
                self.places.free(range);
            }
            Act::Clean(page) => {
                if self.dirty.remove(&Page(page)) {
                    self.policy.cleaned(Page(page));
                    self.places.write(page);
                    self.tell_moves();
                }
            }
        }
        effect.resident = self.resident.iter().copied().collect();
        effect
    }

    fn drain(&mut self) -> Effect {
        let mut effect = Effect::default();
        while !self.resident.is_empty() {
            self.evict(None, &mut effect);
        }
        effect
    }

    fn check(&self) {
        assert!(self.resident.len() <= self.capacity && self.dirty.is_subset(&self.resident));
    }
}

/// Builds the model of a policy, in a cache of its own.
pub fn model(spec: &PolicySpec, setup: &Setup<'_>, placing: Placing) -> Box<dyn Stepped> {
    Box::new(Model {
        policy: (spec.naive)(setup),
        capacity: setup.slots() as usize,
        pages: setup.pages,
        resident: BTreeSet::new(),
        dirty: BTreeSet::new(),
        places: Places::new(placing, setup.pages),
        known: BTreeMap::new(),
    })
}

/// Generates reads, writes, removals and write-backs with the patterns of real traces: a hot set,
/// scans, runs of neighbouring pages, and files that are deleted and created again. `below` returns
/// a random number below its argument.
pub fn history(below: &mut impl FnMut(u32) -> u32, pages: u32, steps: u32) -> Vec<Act> {
    let hot = 1 + below(pages);
    let removals = below(2) * 3;
    let cleanings = below(2) * 10;
    let mut acts = Vec::new();
    let mut scan = 0;
    while acts.len() < steps as usize {
        let page = match below(4) {
            0 => below(pages),
            1 => {
                scan = (scan + 1) % pages;
                scan
            }
            _ => below(hot),
        };
        acts.push(match below(100) {
            n if n < removals => Act::Drop(page, 1 + below(8).pow(2)),
            n if n < removals + cleanings => Act::Clean(page),
            n if n < 60 => Act::Read(page),
            _ => Act::Write(page),
        });
    }
    acts
}

/// Returns the next use of each access before its page is dropped, by looking ahead; an act that is
/// not an access has none.
pub fn next_uses(acts: &[Act]) -> Vec<u32> {
    // Positions count accesses only, as in the simulator.
    let mut positions = Vec::with_capacity(acts.len());
    let mut position = 0;
    for act in acts {
        positions.push(position);
        position += u32::from(matches!(act, Act::Read(_) | Act::Write(_)));
    }
    let next_use = |n: usize, page: u32| {
        for (later, act) in acts.iter().enumerate().skip(n + 1) {
            match *act {
                Act::Read(other) | Act::Write(other) if other == page => return positions[later],
                Act::Drop(first, pages) if (first..first + pages).contains(&page) => return NEVER,
                _ => {}
            }
        }
        NEVER
    };
    acts.iter()
        .enumerate()
        .map(|(n, act)| match *act {
            Act::Read(page) | Act::Write(page) => next_use(n, page),
            _ => NEVER,
        })
        .collect()
}

/// The first difference between the real cache and the model.
#[derive(Debug)]
pub struct Difference {
    /// Step at which they differ.
    pub step: usize,
    /// Act of the step; `None` for the drain.
    pub act: Option<Act>,
    /// Effect on the real cache.
    pub real: Effect,
    /// Effect on the model.
    pub model: Effect,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "step {} {:?}\n real {:?}\nmodel {:?}",
            self.step, self.act, self.real, self.model
        )
    }
}

/// Runs the real cache and the model through a history and a drain, checking both at every step.
///
/// # Errors
///
/// Returns the first step at which their effects differ.
pub fn compare(
    spec: &PolicySpec,
    setup: &Setup<'_>,
    placing: Placing,
    acts: &[Act],
) -> Result<(), Box<Difference>> {
    compare_caches((spec.cache)(setup, placing), model(spec, setup, placing), acts)
}

/// Runs two caches through a history and a drain, checking both at every step.
///
/// # Errors
///
/// Returns the first step at which their effects differ.
pub fn compare_caches(
    mut real: Box<dyn Stepped>,
    mut model: Box<dyn Stepped>,
    acts: &[Act],
) -> Result<(), Box<Difference>> {
    for (step, (act, next_use)) in acts.iter().zip(next_uses(acts)).enumerate() {
        let (real_effect, model_effect) = (real.step(*act, next_use), model.step(*act, next_use));
        if real_effect != model_effect {
            return Err(Box::new(Difference {
                step,
                act: Some(*act),
                real: real_effect,
                model: model_effect,
            }));
        }
        real.check();
        model.check();
    }
    let (real_effect, model_effect) = (real.drain(), model.drain());
    if real_effect != model_effect {
        return Err(Box::new(Difference {
            step: acts.len(),
            act: None,
            real: real_effect,
            model: model_effect,
        }));
    }
    real.check();
    model.check();
    Ok(())
}
