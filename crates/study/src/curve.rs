//! Hits, reads and writes of an LRU cache at every size, in one pass over the trace.
//!
//! Mattson, Gecsei, Slutz & Traiger, "Evaluation techniques for storage hierarchies", IBM Systems
//! Journal 9(2), 1970: the pages of a larger LRU cache include those of a smaller one. So one stack
//! shows all sizes: an access hits in each cache that is at least as large as its page's depth.
//! Three additions of ours make it the counts of the page cache here, to the page:
//!
//! - **Writes.** A page is dirty in the caches from some size on. A write makes it dirty in all; a
//!   read from depth `d` shows that the smaller ones have evicted and written it meanwhile.
//! - **Removals.** A removed page leaves a hole at its depth: a free frame in each cache that
//!   reaches it. The next page that comes from below the highest hole fills it, and leaves its own
//!   place as a hole.
//! - **Direct requests** write dirty pages first; a direct write removes them.
//!
//! Only evictions write here ([`Modes::on_eviction_only`](flashsift_pages::writeback::Modes)). Hits
//! are those of any mode, as a page that is written back keeps its place.

use flashsift_caches::trace::{StepKind, Trace};
use std::collections::BinaryHeap;

/// The result at one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LruPoint {
    /// Size of the cache in frames.
    pub frames: u32,
    /// Page accesses that hit.
    pub hits: u64,
    /// Pages read from storage.
    pub reads: u64,
    /// Pages written to storage.
    pub writes: u64,
    /// Dirty pages in the cache at the end.
    pub dirty_left: u64,
}

/// Returns the points of an LRU cache at these sizes, ascending.
///
/// Time: O(log pages) an access. Memory: 12 bytes a page.
pub fn lru(trace: &Trace, frames: &[u32]) -> Vec<LruPoint> {
    debug_assert!(frames.is_sorted(), "sizes ascend");
    let mut sizes = Sizes::new(frames);
    let mut stack = Stack::new(trace.pages());
    for step in trace.steps() {
        match step.kind() {
            StepKind::Read => step.range().for_each(|page| sizes.read(stack.touch(page, false))),
            StepKind::Write | StepKind::WriteSync => {
                step.range().for_each(|page| sizes.write(stack.touch(page, true)));
            }
            StepKind::Drop => step.range().for_each(|page| sizes.removed(stack.remove(page))),
            StepKind::DirectRead => step.range().for_each(|page| {
                sizes.direct_read += 1;
                sizes.cleaned(stack.clean(page));
            }),
            StepKind::DirectWrite => step.range().for_each(|page| {
                sizes.direct_write += 1;
                sizes.cleaned(stack.clean(page));
                stack.remove(page);
            }),
            // Written and used, and not accessed.
            StepKind::Folio => step.range().for_each(|page| sizes.evicted(stack.touch(page, true))),
            StepKind::Sync | StepKind::SyncAll => {}
        }
    }
    (0..trace.pages()).for_each(|page| sizes.left(stack.remove(page)));
    sizes.points()
}

/// The facts that the stack has of a page before a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Before {
    /// Its depth, from 1 on; `None` if no cache holds it.
    depth: Option<u32>,
    /// The least size of a cache in which the page was dirty when it was last accessed; `None` if
    /// it is clean.
    dirty_from: Option<u32>,
}

/// Counts by size. Each figure is summed up at the end: what holds from a size on is added there.
struct Sizes {
    frames: Vec<u32>,
    hits: Vec<u64>,
    read_hits: Vec<u64>,
    /// Differences from the size before.
    writes: Vec<i64>,
    left: Vec<i64>,
    read_accesses: u64,
    direct_read: u64,
    direct_write: u64,
}

impl Sizes {
    fn new(frames: &[u32]) -> Self {
        let zeros = || vec![0; frames.len() + 1];
        Self {
            frames: frames.to_vec(),
            hits: vec![0; frames.len() + 1],
            read_hits: vec![0; frames.len() + 1],
            writes: zeros(),
            left: zeros(),
            read_accesses: 0,
            direct_read: 0,
            direct_write: 0,
        }
    }

    /// Returns the index of the first size that is at least this large.
    #[inline(always)]
    fn from(&self, frames: u32) -> usize {
        self.frames.partition_point(|size| *size < frames)
    }

    /// Caches that held the page dirty and are smaller than its depth have written it.
    #[inline(always)]
    fn evicted(&mut self, Before { depth, dirty_from }: Before) {
        if let (Some(depth), Some(dirty_from)) = (depth, dirty_from)
            && depth > dirty_from
        {
            let (from, to) = (self.from(dirty_from), self.from(depth));
            self.writes[from] += 1;
            self.writes[to] -= 1;
        }
    }

    #[inline(always)]
    fn accessed(&mut self, before: Before) -> usize {
        self.evicted(before);
        let at = before.depth.map_or(self.frames.len(), |depth| self.from(depth));
        self.hits[at] += 1;
        at
    }

    #[inline(always)]
    fn read(&mut self, before: Before) {
        let at = self.accessed(before);
        self.read_hits[at] += 1;
        self.read_accesses += 1;
    }

    #[inline(always)]
    fn write(&mut self, before: Before) {
        self.accessed(before);
    }

    fn removed(&mut self, before: Before) {
        self.evicted(before);
    }

    /// Those that still held the page dirty write it now.
    fn cleaned(&mut self, before: Before) {
        if let (Some(_), Some(dirty_from)) = (before.depth, before.dirty_from) {
            let from = self.from(dirty_from);
            self.writes[from] += 1;
        }
    }

    /// At the end, caches that reach the page still hold it.
    fn left(&mut self, before: Before) {
        self.evicted(before);
        if let (Some(depth), Some(dirty_from)) = (before.depth, before.dirty_from) {
            let from = self.from(depth.max(dirty_from));
            self.left[from] += 1;
        }
    }

    fn points(self) -> Vec<LruPoint> {
        let (mut hits, mut read_hits, mut writes, mut left) = (0, 0, 0, 0);
        let mut points = Vec::new();
        for (n, frames) in self.frames.iter().enumerate() {
            hits += self.hits[n];
            read_hits += self.read_hits[n];
            writes += self.writes[n];
            left += self.left[n];
            points.push(LruPoint {
                frames: *frames,
                hits,
                reads: self.read_accesses - read_hits + self.direct_read,
                writes: writes as u64 + self.direct_write,
                dirty_left: left as u64,
            });
        }
        points
    }
}

/// The LRU stack. Each page, and each hole, has a slot of time; the newest is the top.
struct Stack {
    /// By page: its slot plus one; 0: no cache holds it.
    slot: Vec<u32>,
    /// By page: see [`Before::dirty_from`]; 0: clean.
    dirty_from: Vec<u32>,
    taken: Counted,
    /// Slots of holes. Some may be filled since.
    holes: BinaryHeap<u32>,
    /// By slot: the page in it, or [`HOLE`]. Only slots that are taken count.
    page: Vec<u32>,
    next: u32,
}

const HOLE: u32 = u32::MAX;

impl Stack {
    fn new(pages: u32) -> Self {
        // With slots for twice as many, half of them are free whenever they are numbered anew.
        let slots = (2 * u64::from(pages)).clamp(64, u64::from(u32::MAX - 1)) as u32;
        Self {
            slot: vec![0; pages as usize],
            dirty_from: vec![0; pages as usize],
            taken: Counted::new(slots),
            holes: BinaryHeap::new(),
            page: vec![HOLE; slots as usize],
            next: 0,
        }
    }

    /// Returns the depth and the dirty state of a page.
    #[inline(always)]
    fn before(&self, page: u32) -> Before {
        let slot = self.slot[page as usize];
        let dirty = self.dirty_from[page as usize];
        Before {
            depth: slot.checked_sub(1).map(|slot| self.taken.from(slot)),
            dirty_from: (dirty > 0).then_some(dirty),
        }
    }

    /// Moves a page to the top. Returns what was before.
    #[inline(always)]
    fn touch(&mut self, page: u32, write: bool) -> Before {
        let before = self.before(page);
        if self.next == self.taken.slots() {
            self.renumber();
        }
        let old = self.slot[page as usize].checked_sub(1);
        let hole = self.holes.peek().copied();
        match (hole.filter(|hole| old.is_none_or(|old| *hole > old)), old) {
            // The highest hole is filled; the old place is one now.
            (Some(hole), old) => {
                self.holes.pop();
                self.taken.clear(hole);
                if let Some(old) = old {
                    self.page[old as usize] = HOLE;
                    self.holes.push(old);
                }
            }
            (None, Some(old)) => self.taken.clear(old),
            (None, None) => {}
        }
        self.taken.set(self.next);
        self.page[self.next as usize] = page;
        self.next += 1;
        self.slot[page as usize] = self.next;
        let dirty = &mut self.dirty_from[page as usize];
        *dirty = match (write, *dirty) {
            (true, _) => 1,
            (false, 0) => 0,
            (false, from) => from.max(before.depth.unwrap_or(0)),
        };
        before
    }

    /// Takes a page out of every cache. Returns what was before.
    fn remove(&mut self, page: u32) -> Before {
        let before = self.before(page);
        if let Some(slot) = self.slot[page as usize].checked_sub(1) {
            self.page[slot as usize] = HOLE;
            self.holes.push(slot);
            self.slot[page as usize] = 0;
        }
        self.dirty_from[page as usize] = 0;
        before
    }

    /// Makes a page clean in every cache. Returns what was before.
    fn clean(&mut self, page: u32) -> Before {
        let before = self.before(page);
        self.dirty_from[page as usize] = 0;
        before
    }

    /// Numbers the slots in use anew, in their order.
    #[cold]
    fn renumber(&mut self) {
        let holes = std::mem::take(&mut self.holes).into_vec();
        let mut kept = 0;
        let mut new_holes = Vec::with_capacity(holes.len());
        for slot in 0..self.next {
            if !self.taken.contains(slot) {
                continue;
            }
            let page = self.page[slot as usize];
            self.page[kept as usize] = page;
            match page {
                HOLE => new_holes.push(kept),
                page => self.slot[page as usize] = kept + 1,
            }
            kept += 1;
        }
        self.taken.fill(kept);
        self.holes = new_holes.into();
        self.next = kept;
    }
}

/// A set of slots that counts those from one on: bits, and a Fenwick tree over words of them.
struct Counted {
    slots: u32,
    words: Vec<u64>,
    /// Fenwick tree: counts of words, one-based.
    tree: Vec<u32>,
    all: u32,
}

impl Counted {
    fn new(slots: u32) -> Self {
        let words = slots.div_ceil(64) as usize;
        Self { slots, words: vec![0; words], tree: vec![0; words + 1], all: 0 }
    }

    fn slots(&self) -> u32 {
        self.slots
    }

    fn contains(&self, slot: u32) -> bool {
        self.words[slot as usize / 64] >> (slot % 64) & 1 == 1
    }

    #[inline(always)]
    fn set(&mut self, slot: u32) {
        self.words[slot as usize / 64] |= 1 << (slot % 64);
        self.all += 1;
        let mut n = slot as usize / 64 + 1;
        while n < self.tree.len() {
            self.tree[n] += 1;
            n += n & n.wrapping_neg();
        }
    }

    #[inline(always)]
    fn clear(&mut self, slot: u32) {
        self.words[slot as usize / 64] &= !(1 << (slot % 64));
        self.all -= 1;
        let mut n = slot as usize / 64 + 1;
        while n < self.tree.len() {
            self.tree[n] -= 1;
            n += n & n.wrapping_neg();
        }
    }

    /// Returns how many slots from this one on are in the set.
    #[inline(always)]
    fn from(&self, slot: u32) -> u32 {
        let word = slot as usize / 64;
        let mut below = (self.words[word] & ((1 << (slot % 64)) - 1)).count_ones();
        let mut n = word;
        while n > 0 {
            below += self.tree[n];
            n &= n - 1;
        }
        self.all - below
    }

    /// Makes it the set of the first slots.
    fn fill(&mut self, count: u32) {
        let full = (count / 64) as usize;
        self.words[..full].fill(!0);
        self.words[full..].fill(0);
        if let Some(word) = self.words.get_mut(full) {
            *word = (1 << (count % 64)) - 1;
        }
        self.all = count;
        self.tree.fill(0);
        for n in 1..self.tree.len() {
            self.tree[n] += self.words[n - 1].count_ones();
            let above = n + (n & n.wrapping_neg());
            if above < self.tree.len() {
                self.tree[above] += self.tree[n];
            }
        }
    }
}

/// Returns sizes for a curve of at least this many points, ascending, or of every size where there
/// are fewer: each larger by about the same factor, from one frame to all pages.
pub fn curve_frames(pages: u32, points: usize) -> Vec<u32> {
    let pages = pages.max(1);
    if pages as usize <= points {
        return (1..=pages).collect();
    }
    let mut steps = points.max(2) - 1;
    loop {
        let size = |n| f64::from(pages).powf(n as f64 / steps as f64).round() as u32;
        let mut frames: Vec<u32> = (0..=steps).map(size).collect();
        frames.dedup();
        // Small sizes coincide when they are rounded.
        match points.checked_sub(frames.len()) {
            None | Some(0) => return frames,
            Some(missing) => steps += missing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_caches::{
        policy::Selection,
        trace::{TraceBuilder, Unit},
    };
    use flashsift_events::{
        dice::Dice,
        event::{About, Action, Event, FileId, Knows, Side, Space},
    };
    use flashsift_pages::{
        layout,
        system::{Cell, PLAIN},
        writeback::Modes,
    };

    /// Builds a random trace of reads, writes, truncations, deletions and direct requests.
    fn random_trace(seed: u64) -> Trace {
        let mut dice = Dice::new(seed);
        let knows =
            Knows { times: false, syncs: true, writes: true, removals: true, ..Knows::NOTHING };
        let (side, space) = (Side::Before, Space::Files);
        let about = About { side, space, epoch_us: None, boot_us: None, knows };
        let mut builder = TraceBuilder::new(about, Unit::Page, u64::MAX);
        let files = 1 + dice.below(4);
        for _ in 0..300 {
            let file = FileId(dice.below(files).into());
            let (offset, len) =
                (u64::from(dice.below(20)) << 12, u64::from(1 + dice.below(4)) << 12);
            let (open, sync, size) = (None, false, offset);
            let action = match dice.below(14) {
                0..6 => Action::Read { file, open, offset, len },
                6..8 => Action::Folio { file, offset, len },
                8..11 => Action::Write { file, open, offset, len, sync },
                11 => Action::Truncate { file, size },
                12 => Action::Direct { file, open, offset, len, write: dice.below(2) == 0 },
                _ => Action::Gone { file },
            };
            builder.extend(&[Event { at_us: 0, pid: 0, tid: 0, action }]).unwrap();
        }
        builder.finish().unwrap()
    }

    /// One pass gives the counts of the page cache at each size, with removals and direct requests.
    // Promises: Sampling and sweeps 6.
    #[test]
    fn one_pass_gives_the_counts_of_each_size() {
        let policy = Selection::parse("lru").unwrap();
        let layout = layout::Selection::parse("identity").unwrap();
        for seed in 0..60 {
            let trace = random_trace(seed);
            let sizes: Vec<u32> = (1..=trace.pages() + 1).collect();
            for point in lru(&trace, &sizes) {
                let cell = Cell {
                    system: &PLAIN,
                    policy: &policy,
                    frames: point.frames,
                    layout: &layout,
                    writeback: Modes::default(),
                    drain: false,
                    write_miss_reads: false,
                    request_pages_max: 1,
                    discards: false,
                    metadata: None,
                    readahead: None,
                    attribution: None,
                    lines: None,
                    reads: None,
                };
                let outcome = cell.run(&trace, None, None);
                let expected = LruPoint {
                    frames: point.frames,
                    hits: outcome.hits(),
                    reads: outcome.device.reads,
                    writes: outcome.device.writes,
                    dirty_left: outcome.dirty_left,
                };
                assert_eq!(point, expected, "seed {seed}");
            }
        }
    }

    #[test]
    fn counts_agree_with_a_set() {
        let mut dice = Dice::new(3);
        let (mut counted, mut model) = (Counted::new(200), vec![false; 200]);
        for _ in 0..2000 {
            let slot = dice.below(200);
            match std::mem::replace(&mut model[slot as usize], true) {
                false => counted.set(slot),
                true => {
                    counted.clear(slot);
                    model[slot as usize] = false;
                }
            }
            let from = dice.below(200);
            let expected = model[from as usize..].iter().filter(|taken| **taken).count();
            assert_eq!(counted.from(from), expected as u32);
            assert_eq!(counted.contains(from), model[from as usize]);
            if dice.below(100) == 0 {
                let count = dice.below(200);
                counted.fill(count);
                model.iter_mut().enumerate().for_each(|(n, taken)| *taken = n < count as usize);
            }
        }
    }

    #[test]
    fn sizes_of_a_curve_grow_by_one_factor() {
        assert_eq!(curve_frames(1 << 8, 9), [1, 2, 4, 8, 16, 32, 64, 128, 256]);
        let frames = curve_frames(1_000_000, 100);
        assert!((100..=110).contains(&frames.len()) && frames.is_sorted(), "{frames:?}");
        assert_eq!((frames[0], frames.last()), (1, Some(&1_000_000)));
        assert_eq!(curve_frames(120, 100).len(), 100);
        assert_eq!((curve_frames(1, 100), curve_frames(0, 100)), (vec![1], vec![1]));
    }
}
