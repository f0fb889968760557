//! Read-ahead in a system: it plans before each read, and fetches after it.
//!
//! The pages that a request asks for are accessed as without read-ahead, in requests that end where
//! the windows end. Other pages of the windows enter the cache after the access, without counting
//! as accesses; the policy orders and evicts them like others. When an application accesses such a
//! page for the first time, the policy sees it leave and come in, as if it were read now: an access
//! has the same effect on the order whether its page was prefetched or not.

use super::{
    AccessAdvice, Counts, Descriptor, FilePages, Mapping, ReadAheadModel, ReadRequest, Sequence,
    Window,
};
use flashsift_caches::{
    back::Back,
    cache::{Cache, Frames, PageCache},
    policy::Policy,
    trace::{Owner, Run, Step, Trace},
};
use flashsift_events::page::{Access, Page};
use std::ops::Range;

mod charged;

pub(crate) use charged::ChargedAhead;

/// The part of a system that reads ahead, in front of a cache of type `C`.
pub(crate) trait ReadAhead<C> {
    /// Whether it can read anything; otherwise no method is called.
    const ON: bool;
    /// Decides on the windows of the read that is step `n`.
    fn plan(&mut self, trace: &Trace, n: usize, cache: &C);
    /// Whether a window begins with this page of the request, so that a request of the device
    /// begins.
    fn begins(&mut self, page: u32) -> bool;
    /// An access follows. Returns the facts that [`Self::accessed`] needs.
    /// `covers`: it writes the whole page.
    fn before_access<B: Back>(
        &mut self,
        access: &Access,
        covers: bool,
        cache: &mut C,
        back: &mut B,
    ) -> Before;
    /// The access was done.
    fn accessed<B: Back>(&mut self, before: Before, hit: bool, read: bool, cache: &C, back: &B);
    /// Reads the planned pages that the request did not ask for.
    fn fetch<B: Back>(&mut self, owner: Owner, cache: &mut C, back: &mut B);
    /// The run ends.
    fn finish(&mut self, _: &C) {}
    /// Returns the prefetches until now.
    fn counts(&self) -> Counts;
    /// Returns the number of the last read that read ahead, without waiting, a page that was first
    /// accessed since the last call. Always `None` unless arrivals are followed.
    fn take_needs(&mut self) -> Option<u32>;
}

/// The state of cache and device before an access.
#[derive(Clone, Copy, Default)]
pub(crate) struct Before {
    pages: u64,
    writes: u64,
}

/// Reads nothing ahead.
pub(crate) struct NoReadAhead;

impl<C> ReadAhead<C> for NoReadAhead {
    const ON: bool = false;
    fn plan(&mut self, _: &Trace, _: usize, _: &C) {}
    fn begins(&mut self, _: u32) -> bool {
        false
    }
    fn before_access<B: Back>(&mut self, _: &Access, _: bool, _: &mut C, _: &mut B) -> Before {
        Before::default()
    }
    fn accessed<B: Back>(&mut self, _: Before, _: bool, _: bool, _: &C, _: &B) {}
    fn fetch<B: Back>(&mut self, _: Owner, _: &mut C, _: &mut B) {}
    fn counts(&self) -> Counts {
        Counts::default()
    }
    fn take_needs(&mut self) -> Option<u32> {
        None
    }
}

/// Of a page's flags: the order of the folio that it lies in.
const ORDER: u8 = 0x0f;
/// That folio carries a marker.
const MARKED: u8 = 0x10;
/// The page came because it was prefetched.
const PREFETCHED: u8 = 0x20;
/// The present plan reads the page.
const PLANNED: u8 = 0x40;
/// The page was prefetched, and not accessed since.
const FRESH: u8 = 0x80;

/// Reads ahead by a model.
pub(crate) struct Ahead {
    model: ReadAheadModel,
    states: States,
    /// By page. Those of a page that the cache does not hold mean nothing.
    flags: Vec<u8>,
    /// Pages to read, in order.
    planned: Vec<Planned>,
    /// The pages that the present request asks for.
    asked: Range<u32>,
    /// First pages of windows among them, last one first.
    begins: Vec<u32>,
    counts: Counts,
    /// Number of the present read, if it decides on windows.
    read: u32,
    /// By page, the read that last read it ahead without waiting, or [`AWAITED`]; empty unless
    /// arrivals are followed.
    came_with: Vec<u32>,
    /// The last read that read ahead a page that the present one is first to access.
    needs: Option<u32>,
}

/// In place of the number of a read: the page came while its read waited.
const AWAITED: u32 = u32::MAX;

/// Pages that a fault maps around it (`fault_around_bytes`).
const AROUND_PAGES: u32 = 16;

/// By number of a descriptor.
enum States {
    Off,
    Linux(Vec<Descriptor>),
    Paper(Vec<Sequence>),
}

/// Consecutive pages of one window.
struct Planned {
    pages: Range<u32>,
    /// They are the first of their window.
    begins: bool,
    /// The request waits for the window, because it asks for a page of it.
    awaited: bool,
}

impl Ahead {
    /// Returns the read-ahead of a trace that has the table of reads, if the model reads ahead.
    pub(crate) fn new(model: ReadAheadModel, trace: &Trace) -> Self {
        let descriptors = trace.descriptors() as usize;
        Self {
            model,
            states: match model {
                ReadAheadModel::Off => States::Off,
                ReadAheadModel::Linux(_) => States::Linux(vec![Descriptor::default(); descriptors]),
                ReadAheadModel::Paper(_) => States::Paper(vec![Sequence::default(); descriptors]),
            },
            flags: vec![0; trace.pages() as usize],
            planned: Vec::new(),
            asked: 0..0,
            begins: Vec::new(),
            counts: Counts::default(),
            read: 0,
            came_with: Vec::new(),
            needs: None,
        }
    }

    /// Follows which read each page came with, for [`ReadAhead::take_needs`].
    pub(crate) fn with_arrivals(mut self) -> Self {
        self.came_with = vec![AWAITED; self.flags.len()];
        self
    }

    /// Gives advice on the descriptors, by number; the others have none.
    pub(crate) fn advised(mut self, advice: &[AccessAdvice]) -> Self {
        if let States::Linux(states) = &mut self.states {
            states.iter_mut().zip(advice).for_each(|(state, advice)| state.advise(*advice));
        }
        self
    }

    /// Returns the memory that it takes.
    pub(crate) fn bytes(trace: &Trace, arrivals: bool) -> u64 {
        let descriptor = size_of::<Descriptor>().max(size_of::<Sequence>()) as u64;
        let page = 1 + if arrivals { size_of::<u32>() as u64 } else { 0 };
        u64::from(trace.pages()) * page + u64::from(trace.descriptors()) * descriptor
    }

    fn prefetch<P: Policy, B: Back>(
        &mut self,
        page: u32,
        awaited: bool,
        owner: Owner,
        cache: &mut PageCache<P>,
        back: &mut B,
    ) {
        debug_assert!(!cache.holds(Page(page)), "only absent pages are planned");
        self.flags[page as usize] |= FRESH;
        self.counts.read += 1;
        if let Some(came_with) = self.came_with.get_mut(page as usize) {
            *came_with = if awaited { AWAITED } else { self.read };
        }
        let before = cache.pages();
        cache.prefetch(Page(page), awaited, owner, back);
        self.counts.evicted += before + 1 - cache.pages();
    }

    #[inline(never)]
    fn decide(&mut self, trace: &Trace, n: usize, step: Step, frames: &Frames) {
        self.read = n as u32;
        let read = trace.read(n);
        let run = trace.runs()[read.run as usize];
        let page_of = |rank: u32| run.page + u64::from(rank - run.first);
        let request = ReadRequest {
            first: page_of(step.range().start),
            end: page_of(step.range().end),
            file_pages: page_of(read.end),
            prev_page: page_of(step.range().end) - u64::from(step.ends_inside_page()),
        };
        let mut planner = Planner {
            frames,
            flags: &mut self.flags,
            run,
            request,
            pages_max: self.model.pages_max(),
            counts_as_asked: matches!(self.model, ReadAheadModel::Paper(_)),
            planned: &mut self.planned,
            begins: true,
            awaited: true,
            counts: &mut self.counts,
        };
        self.asked = step.range();
        let descriptor = read.descriptor as usize;
        match (&self.model, &mut self.states) {
            (ReadAheadModel::Linux(linux), States::Linux(states)) if read.is_fault => {
                let state = &mut states[descriptor];
                for page in request.first..request.end {
                    if page == request.first || !planner.has(page) {
                        let request = ReadRequest { first: page, ..request };
                        if linux.fault(state, &Mapping::PLAIN, request, &mut planner) {
                            linux.mapped_around(state, AROUND_PAGES);
                        }
                    }
                }
                linux.mapped_around(state, (request.end - request.first - 1) as u32);
            }
            (ReadAheadModel::Linux(linux), States::Linux(states)) => {
                linux.read(&mut states[descriptor], request, &mut planner);
            }
            (ReadAheadModel::Paper(paper), States::Paper(states)) => {
                paper.read(&mut states[descriptor], request, &mut planner);
            }
            _ => unreachable!("the states are those of the model"),
        }
        let begins = self.planned.iter().filter(|planned| planned.begins);
        let inside = begins.filter(|planned| step.range().contains(&planned.pages.start));
        self.begins.extend(inside.map(|planned| planned.pages.start));
        self.begins.reverse();
    }
}

impl<P: Policy> ReadAhead<PageCache<P>> for Ahead {
    const ON: bool = true;

    #[inline(always)]
    fn plan(&mut self, trace: &Trace, n: usize, cache: &PageCache<P>) {
        let step = trace.steps()[n];
        if let States::Off = self.states {
            return;
        }
        if let States::Linux(states) = &mut self.states {
            let is_plain =
                |page| cache.holds(Page(page)) && self.flags[page as usize] & MARKED == 0;
            if step.range().all(is_plain) {
                let read = trace.read(n);
                let run = trace.runs()[read.run as usize];
                let end = run.page + u64::from(step.range().end - run.first);
                let state = &mut states[read.descriptor as usize];
                if !read.is_fault {
                    state.read_until(end - u64::from(step.ends_inside_page()));
                    return;
                }
            }
        }
        self.decide(trace, n, step, cache.frames());
    }

    #[inline(always)]
    fn begins(&mut self, page: u32) -> bool {
        self.begins.pop_if(|begin| *begin == page).is_some()
    }

    #[inline(always)]
    fn before_access<B: Back>(
        &mut self,
        access: &Access,
        covers: bool,
        cache: &mut PageCache<P>,
        back: &mut B,
    ) -> Before {
        let flags = &mut self.flags[access.page.0 as usize];
        if !cache.holds(access.page) {
            // Flags of the page's last stay mean nothing; those of the present plan do.
            if *flags & PLANNED == 0 {
                *flags = 0;
            }
            *flags &= !FRESH;
            return Before { pages: cache.pages(), writes: back.counts().writes };
        }
        if *flags & FRESH != 0 {
            *flags &= !FRESH;
            self.counts.used += u64::from(!covers);
            let came_with = self.came_with.get(access.page.0 as usize).copied();
            self.needs = self.needs.max(came_with.filter(|read| *read != AWAITED));
            cache.come_again(access, back);
        }
        Before::default()
    }

    #[inline(always)]
    fn accessed<B: Back>(
        &mut self,
        before: Before,
        hit: bool,
        read: bool,
        cache: &PageCache<P>,
        back: &B,
    ) {
        if hit {
            self.counts.reads_cached += u64::from(read);
            return;
        }
        let evicted = before.pages + 1 - cache.pages();
        self.counts.evicted += evicted;
        let case = match (evicted, back.counts().writes - before.writes) {
            (0, _) => &mut self.counts.reads_free,
            (_, 0) => &mut self.counts.reads_evict_clean,
            _ => &mut self.counts.reads_evict_dirty,
        };
        *case += u64::from(read);
    }

    #[inline(always)]
    fn fetch<B: Back>(&mut self, owner: Owner, cache: &mut PageCache<P>, back: &mut B) {
        if self.planned.is_empty() {
            return;
        }
        self.begins.clear();
        let asked = self.asked.clone();
        let mut planned = std::mem::take(&mut self.planned);
        for Planned { pages, begins, awaited } in planned.drain(..) {
            pages.clone().for_each(|page| self.flags[page as usize] &= !PLANNED);
            if begins && !asked.contains(&pages.start) {
                back.submit();
            }
            // Backwards, so that the device gets one request that ends with the page asked for.
            let before = pages.start..pages.end.min(asked.start);
            before.rev().for_each(|page| self.prefetch(page, awaited, owner, cache, back));
            let behind = pages.start.max(asked.end)..pages.end;
            behind.for_each(|page| self.prefetch(page, awaited, owner, cache, back));
        }
        self.planned = planned;
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn take_needs(&mut self) -> Option<u32> {
        self.needs.take()
    }
}

/// The pages of one file during one decision.
struct Planner<'a> {
    frames: &'a Frames,
    flags: &'a mut [u8],
    run: Run,
    request: ReadRequest,
    pages_max: u64,
    /// Windows count beyond the end of the file, too.
    counts_as_asked: bool,
    planned: &'a mut Vec<Planned>,
    /// No page of the present window was added yet.
    begins: bool,
    /// The request asks for a page of the present window.
    awaited: bool,
    counts: &'a mut Counts,
}

impl Planner<'_> {
    /// The rank of a page, unless it is so far from all touched pages that it has none.
    fn rank(&self, page: u64) -> Option<u32> {
        let behind = page.checked_sub(self.run.page)?;
        (behind < u64::from(self.run.pages)).then(|| self.run.first + behind as u32)
    }
}

impl FilePages for Planner<'_> {
    fn has(&self, page: u64) -> bool {
        self.rank(page).is_some_and(|rank| {
            self.flags[rank as usize] & PLANNED != 0 || self.frames.frame(Page(rank)).is_some()
        })
    }

    fn order(&self, page: u64) -> u32 {
        self.rank(page).map_or(0, |rank| u32::from(self.flags[rank as usize] & ORDER))
    }

    fn is_marked(&self, page: u64) -> bool {
        let marked = |rank: u32| self.flags[rank as usize] & MARKED != 0;
        self.rank(page).is_some_and(marked) && self.has(page)
    }

    fn unmark(&mut self, page: u64) {
        let order = self.order(page);
        let folio = page >> order << order;
        for page in folio..folio + (1 << order) {
            if let Some(rank) = self.rank(page) {
                self.flags[rank as usize] &= !MARKED;
            }
        }
    }

    fn add(&mut self, first: u64, order: u32, marked: bool) {
        let flags = PLANNED | order as u8 | if marked { MARKED } else { 0 };
        for page in first..first + (1 << order) {
            let Some(rank) = self.rank(page) else { continue };
            self.flags[rank as usize] = flags;
            match self.planned.last_mut() {
                Some(last) if !self.begins && last.pages.end == rank => last.pages.end += 1,
                _ => {
                    let (begins, awaited) = (self.begins, self.awaited);
                    self.planned.push(Planned { pages: rank..rank + 1, begins, awaited });
                    self.begins = false;
                }
            }
        }
    }

    fn window(&mut self, window: Window) {
        let ReadRequest { first, end, file_pages, .. } = self.request;
        let cut_at = if self.counts_as_asked { u64::MAX } else { file_pages };
        let window_end = (window.start + window.pages).min(cut_at);
        let asked_for = end.min(window_end).saturating_sub(first.max(window.start));
        let pages = window_end.saturating_sub(window.start);
        self.counts.windows += 1;
        self.counts.windows_at_max += u64::from(window.pages >= self.pages_max);
        self.counts.window_pages += pages;
        self.counts.asked += pages - asked_for;
        (self.begins, self.awaited) = (true, asked_for > 0);
    }

    fn is_prefetched(&self, page: u64) -> bool {
        let prefetched = |rank: u32| self.flags[rank as usize] & PREFETCHED != 0;
        self.rank(page).is_some_and(prefetched) && self.has(page)
    }

    fn add_ahead(&mut self, page: u64) {
        self.add(page, 0, false);
        if let Some(rank) = self.rank(page) {
            self.flags[rank as usize] |= PREFETCHED;
        }
    }

    fn sequence_hit(&mut self) {
        self.counts.sequence_hits += 1;
    }
}
