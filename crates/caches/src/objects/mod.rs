//! Caches of objects with sizes, as web caches and key-value stores are: the capacity is a number
//! of bytes, a policy evicts until an object fits, and an admission may turn it away.
//!
//! Policies are those of [`crate::policy`]; what they order are objects in place of pages. A
//! request for an object is a hit or a miss as a whole. Points that differ between simulators, and
//! our choices, which are libCacheSim's:
//!
//! - An object keeps the size that it had when it entered the cache. Bytes that hit or miss are
//!   those of each request.
//! - An object larger than the cache is never taken. Nor is one that its policy refuses
//!   ([`Policy::takes`]).
//! - Where the trace says for how long an object lives
//!   ([`Action::TimeToLive`](flashsift_events::event::Action::TimeToLive)), that time begins when
//!   it enters. A request for an expired object is a miss, and takes it out. Until then it counts.
//! - Reads and writes are the same request. Nothing is written back.

use crate::{
    cache::{Frames, Victims},
    policy::{self, Build, Policy, Setup, erased::Erased},
    trace::{Future, StepKind, Trace},
};
use flashsift_events::page::{Access, Frame, Op, Page};

pub mod admission;

/// The loops of a policy that orders objects with sizes.
#[derive(Clone, Copy)]
pub struct Runs {
    run: fn(&ObjectCell<'_>, &Trace, Option<&Future>) -> ObjectOutcome,
    #[cfg(test)]
    stepped: fn(&Setup<'_>) -> Box<tests::Stepped>,
}

/// Returns the loops of a policy.
pub(crate) const fn runs<P: Build + 'static>() -> Runs {
    Runs {
        run: run::<P>,
        #[cfg(test)]
        stepped: tests::stepped::<P>,
    }
}

/// One cell of a comparison of caches of objects.
pub struct ObjectCell<'a> {
    /// The policy; it orders objects ([`policy::PolicySpec::takes_objects`]).
    pub policy: &'a policy::Selection,
    /// Capacity, bytes.
    pub bytes: u64,
    /// The rule by which objects enter; `None`: each one that fits.
    pub admission: Option<&'a admission::Selection>,
}

/// The result of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectOutcome {
    /// Requests.
    pub requests: u64,
    /// Requests that hit.
    pub hits: u64,
    /// Bytes requested.
    pub bytes: u64,
    /// Bytes of requests that hit.
    pub hit_bytes: u64,
    /// Requests for objects that cannot enter: larger than the cache, or
    /// refused by the policy.
    pub too_large: u64,
    /// Requests that missed and that the admission turned away.
    pub turned_away: u64,
    /// Bytes of objects that entered: the writes of a cache that lies on flash.
    pub entered_bytes: u64,
    /// Objects that left for others.
    pub evictions: u64,
    /// Requests that found their object expired; they missed.
    pub expired: u64,
}

impl ObjectOutcome {
    /// Returns misses / requests; 0 without requests.
    pub fn miss_ratio(&self) -> f64 {
        missing(self.hits, self.requests)
    }

    /// Returns bytes that missed / bytes requested; 0 without bytes.
    pub fn byte_miss_ratio(&self) -> f64 {
        missing(self.hit_bytes, self.bytes)
    }
}

fn missing(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { (whole - part) as f64 / whole as f64 }
}

impl ObjectCell<'_> {
    /// Runs the trace through the cache. Offline policies ([`policy::Kind::is_offline`]) need
    /// `future`.
    ///
    /// # Panics
    /// The trace has no table of sizes, or the policy does not order objects.
    pub fn run(&self, trace: &Trace, future: Option<&Future>) -> ObjectOutcome {
        let runs = self.policy.spec.objects.expect("the policy orders objects");
        (runs.run)(self, trace, future)
    }
}

/// Returns the bytes of all different objects, each as large as at its first request: the working
/// set, of which sizes in percent are shares.
pub fn working_set_bytes(trace: &Trace) -> u64 {
    let mut seen = vec![false; trace.pages() as usize];
    requests(trace)
        .filter(|(_, page, _)| !std::mem::replace(&mut seen[page.0 as usize], true))
        .map(|(n, _, _)| u64::from(trace.request_bytes(n)))
        .sum()
}

/// Returns the step, object and operation of each request.
fn requests(trace: &Trace) -> impl Iterator<Item = (usize, Page, Op)> {
    trace.steps().iter().enumerate().filter_map(|(n, step)| {
        let op = match step.kind() {
            StepKind::Read => Op::Read,
            StepKind::Write | StepKind::WriteSync => Op::Write,
            _ => return None,
        };
        Some((n, step.first(), op))
    })
}

/// Returns an estimate of the memory that a cell takes beside its trace.
pub fn cell_bytes(trace: &Trace, policy: &policy::PolicySpec) -> u64 {
    let pages = u64::from(trace.pages());
    let size = policy::CellSize { pages, frames: pages, runs: 0 };
    12 * pages + (policy.memory_bytes)(&size)
}

/// Runs a cache of objects under a policy.
fn run<P: Build + 'static>(
    cell: &ObjectCell<'_>,
    trace: &Trace,
    future: Option<&Future>,
) -> ObjectOutcome {
    assert!(!P::OFFLINE || future.is_some(), "an offline policy is given the future");
    let pages = trace.pages();
    let setup = Setup {
        frames: pages.max(1),
        pages,
        runs: &[],
        params: &cell.policy.params,
        bytes: Some(cell.bytes),
    };
    let policy = P::build(&setup);
    // Unoptimised programs, as tests are, share a loop.
    if cfg!(debug_assertions) {
        return replay(Erased::<false>::new(policy), cell, trace, future);
    }
    replay(policy, cell, trace, future)
}

#[inline(never)]
fn replay<P: Policy>(
    policy: P,
    cell: &ObjectCell<'_>,
    trace: &Trace,
    future: Option<&Future>,
) -> ObjectOutcome {
    let mut cache = ObjectCache::new(policy, trace.pages(), cell.bytes, trace.has_ttls());
    let mut admission = cell.admission.map(|chosen| admission::Admission::new(chosen, cell.bytes));
    let mut outcome = ObjectOutcome::default();
    let steps = trace.steps();
    for (position, (n, page, op)) in requests(trace).enumerate() {
        if let Some(ahead) = steps[n..].first_chunk::<{ FAR_AHEAD + 1 }>() {
            let [far, near, next] = [FAR_AHEAD, NEAR_AHEAD, NEXT_AHEAD].map(|by| ahead[by].first());
            cache.frames.prefetch(far);
            cache.expect(near, next);
        }
        let next_use = match future {
            Some(future) if P::OFFLINE => future.next(position),
            _ => flashsift_events::page::NEVER,
        };
        let bytes = trace.request_bytes(n);
        let access = Access { next_use, bytes, ..Access::new(page, op) };
        if cache.expires() {
            let at_us = trace.at_us(n);
            outcome.expired += u64::from(cache.drop_expired(page, at_us));
            cache.next_expires_us = trace.ttl_us(n).map_or(u64::MAX, |ttl_us| at_us + ttl_us);
        }
        outcome.requests += 1;
        outcome.bytes += u64::from(bytes);
        if let Some(admission) = &mut admission {
            admission.requested(&access);
        }
        let admits = |access: &Access| admission.as_mut().is_none_or(|it| it.admits(access));
        match cache.request(&access, admits) {
            Answer::Hit => {
                outcome.hits += 1;
                outcome.hit_bytes += u64::from(bytes);
            }
            Answer::Entered => outcome.entered_bytes += u64::from(bytes),
            Answer::TurnedAway => outcome.turned_away += 1,
            Answer::TooLarge => outcome.too_large += 1,
        }
    }
    outcome.evictions = cache.evictions;
    outcome
}

const FAR_AHEAD: usize = 32;
const NEAR_AHEAD: usize = 12;
const NEXT_AHEAD: usize = 5;

/// The effect of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Hit,
    /// The object was absent, and is in the cache now.
    Entered,
    TurnedAway,
    TooLarge,
}

/// A cache of objects. Each has a frame while it is there.
struct ObjectCache<P> {
    frames: Frames,
    /// By frame: bytes of its object.
    bytes: Vec<u32>,
    /// By frame: when its object expires; empty if none does.
    expires_us: Vec<u64>,
    /// Of the object of the present request.
    next_expires_us: u64,
    free: Vec<Frame>,
    /// Frames below it have been in use.
    fresh: u32,
    victims: Victims,
    capacity: u64,
    held: u64,
    evictions: u64,
    policy: P,
}

impl<P: Policy> ObjectCache<P> {
    fn new(policy: P, objects: u32, capacity: u64, expires: bool) -> Self {
        Self {
            frames: Frames::new(objects, objects, false),
            bytes: vec![0; objects as usize],
            expires_us: vec![u64::MAX; if expires { objects as usize } else { 0 }],
            next_expires_us: u64::MAX,
            free: Vec::new(),
            fresh: 0,
            victims: Victims::default(),
            capacity,
            held: 0,
            evictions: 0,
            policy,
        }
    }

    #[inline(always)]
    fn expect(&self, near: Page, next: Page) {
        self.policy.expect_access(near);
        match self.frames.frame(near) {
            Some(frame) => self.policy.expect_hit(frame),
            None => self.policy.expect_miss(near),
        }
        if let Some(frame) = self.frames.frame(next) {
            self.policy.expect_move(frame);
        }
    }

    #[inline(always)]
    fn expires(&self) -> bool {
        !self.expires_us.is_empty()
    }

    /// Takes an object out if it has expired. Returns whether it has.
    fn drop_expired(&mut self, page: Page, at_us: u64) -> bool {
        let found = self.frames.frame(page);
        let expired = found.filter(|frame| self.expires_us[frame.0 as usize] < at_us);
        if let Some(frame) = expired {
            self.policy.remove(frame, &self.frames);
            self.leave(frame);
        }
        expired.is_some()
    }

    #[inline(always)]
    fn leave(&mut self, frame: Frame) {
        self.frames.displace(frame);
        self.held -= u64::from(self.bytes[frame.0 as usize]);
        self.free.push(frame);
    }

    #[inline(always)]
    fn request(&mut self, access: &Access, admits: impl FnOnce(&Access) -> bool) -> Answer {
        if let Some(frame) = self.frames.frame(access.page) {
            self.policy.hit(frame, access);
            return Answer::Hit;
        }
        if !admits(access) {
            return Answer::TurnedAway;
        }
        self.miss(access)
    }

    #[inline(never)]
    fn miss(&mut self, access: &Access) -> Answer {
        let bytes = u64::from(access.bytes);
        if bytes > self.capacity || !self.policy.takes(access) {
            return Answer::TooLarge;
        }
        while self.held + bytes > self.capacity {
            self.policy.evict(Some(access), &self.frames, &mut self.victims);
            while let Some(frame) = self.victims.pop() {
                self.leave(frame);
                self.evictions += 1;
            }
        }
        let frame = self.free.pop().unwrap_or_else(|| {
            self.fresh += 1;
            Frame(self.fresh - 1)
        });
        self.frames.place(frame, access.page);
        self.bytes[frame.0 as usize] = access.bytes;
        if self.expires() {
            self.expires_us[frame.0 as usize] = self.next_expires_us;
        }
        self.held += bytes;
        self.policy.insert(frame, access);
        Answer::Entered
    }

    #[cfg(test)]
    fn check(&self) {
        self.policy.check(&self.frames);
        let held: u64 = (0..self.fresh)
            .map(Frame)
            .filter(|frame| !self.free.contains(frame))
            .map(|frame| u64::from(self.bytes[frame.0 as usize]))
            .sum();
        assert_eq!(held, self.held, "the bytes held are those of the objects");
        assert!(self.held <= self.capacity, "the objects fit");
    }
}

impl policy::PolicySpec {
    /// Returns whether the policy orders objects with sizes; others count pages.
    pub fn takes_objects(&self) -> bool {
        self.objects.is_some()
    }
}

#[cfg(test)]
mod tests;
