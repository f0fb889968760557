//! The main area of an F2FS volume: segments, and the three logs of data.
//!
//! A log that fills its segment continues in a free one (`new_curseg`). The warm and the cold log
//! take the next one behind, and at the end of the area the first one. The hot log takes the first
//! one, and on a small volume all logs do (`alloc_mode=reuse`).
//!
//! While no more segments are free than twice the reserved ones and four for metadata
//! (`f2fs_need_SSR`), a log continues in the holes of a segment of its own kind that has the fewest
//! pages, if there is one, else of another kind (`get_ssr_segment`, `f2fs_get_victim`; "slack space
//! recycling", threaded logging). Of several such segments it takes the first. F2FS begins its
//! search behind the last segment that it looked at, and looks at no more than 4,096.
//!
//! The place of a page that was freed or moved is used again only after a checkpoint, and so is a
//! segment without pages. Besides those of the owner there is a checkpoint when a log needs a
//! segment and more than 5 % of the segments wait for one (`excess_prefree_segs`), or any while no
//! more than the reserved ones and those for metadata are free (`has_not_enough_free_secs`).
//!
//! Sections consist of one segment, which is mkfs.f2fs's default.

use flashsift_events::structure::BitTree;
use std::collections::BTreeSet;

pub(super) const SEGMENT_PAGES: u32 = 512;

/// The logs of data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Log {
    Hot,
    Warm,
    Cold,
}

const LOGS: usize = 3;
/// By log: the order in which it looks for segments with holes.
const KINDS: [[usize; LOGS]; LOGS] = [[0, 1, 2], [1, 2, 0], [2, 1, 0]];
/// Segments that the logs of nodes begin with.
const NODE_SEGMENTS: u32 = 3;
/// Segments that F2FS keeps free for dirty metadata: one for nodes, twice one for directories, and
/// one for inodes, if there is any (`get_blocktype_secs`). During a write-back there is.
const METADATA_SEGMENTS: u32 = 4;
/// Segments more than the pages need: then a log always finds a slot, whatever the segments of the
/// other two hold.
const EXTRA_SEGMENTS: u32 = 6;
/// Reciprocal of the share of segments that may wait for a checkpoint.
const WAITING: u32 = 20;

/// The rules that depend on the size of a volume.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    pub segments: u32,
    /// Holes are used while no more segments are free.
    pub few_segments: u32,
    /// A checkpoint is made while no more segments are free, if it frees one.
    pub scarce_segments: u32,
    /// Whether all logs take the first free segment.
    pub reuses: bool,
    /// By log: the segment in which it begins, if that is given.
    pub begin: [Option<u32>; LOGS],
    /// Segments at the beginning that no log of data uses.
    pub node_segments: u32,
}

impl Volume {
    /// A whole volume, as mkfs.f2fs 1.15 makes it; more segments than wanted if these are too few
    /// for the pages.
    pub(super) fn new(segments: u32, pages: u32) -> Self {
        let least = pages.div_ceil(SEGMENT_PAGES) + NODE_SEGMENTS + EXTRA_SEGMENTS;
        let segments = segments.max(least).max(16);
        let reserved_segments = reserved_segments(segments);
        Self {
            segments,
            few_segments: 2 * reserved_segments + METADATA_SEGMENTS,
            scarce_segments: reserved_segments + METADATA_SEGMENTS,
            reuses: segments <= super::SMALL_VOLUME_SEGMENTS,
            begin: [NODE_SEGMENTS, segments / 2 - 1, (segments / 4 - 1).max(NODE_SEGMENTS + 1)]
                .map(Some),
            node_segments: NODE_SEGMENTS,
        }
    }

    /// The segments of a large volume that hold so many pages.
    pub(super) fn part_of_a_large_one(pages: u32) -> Self {
        let segments = pages.div_ceil(SEGMENT_PAGES).saturating_add(EXTRA_SEGMENTS);
        let segments = segments.min(u32::MAX / SEGMENT_PAGES);
        Self {
            segments,
            few_segments: segments / 20,
            scarce_segments: segments / 40,
            reuses: false,
            begin: [None; LOGS],
            node_segments: 0,
        }
    }
}

/// Returns the segments that mkfs.f2fs reserves (`get_best_overprovision`): of several shares of
/// overprovisioning it takes the one that leaves most space.
fn reserved_segments(segments: u32) -> u32 {
    let reserved = |share: f64| 2.0 * (100.0 / share + 1.0) + 6.0;
    let space = |share: f64| {
        let reserved = reserved(share);
        let segments = f64::from(segments);
        segments - reserved - (segments - reserved) * share / 100.0
    };
    let shares: Vec<f64> = if segments < 256 {
        (10..=95).step_by(5).map(f64::from).collect()
    } else {
        (1..=1000).map(|n| f64::from(n) / 100.0).collect()
    };
    let best = shares.into_iter().max_by(|one, other| space(*one).total_cmp(&space(*other)));
    (reserved(best.expect("there are shares")) as u32).min(segments / 4)
}

pub(super) struct MainArea {
    volume: Volume,
    segments: Vec<Segment>,
    /// Slots that a log may use: no page is in them, nor was one at the last checkpoint.
    free: BitTree,
    free_segments: BitTree,
    free_count: u32,
    /// Segments without pages that are free after the next checkpoint.
    emptied: u32,
    /// By kind: the segments with pages and free slots that no log is in, fewest slots taken first.
    holed: [BTreeSet<(u32, u32)>; LOGS],
    /// Slots freed since the last checkpoint.
    waiting: Vec<u32>,
    logs: [Option<Head>; LOGS],
}

#[derive(Clone, Copy)]
struct Segment {
    /// Slots that hold a page.
    pages: u32,
    /// Slots that are not free.
    taken: u32,
    /// The log that used it last.
    kind: usize,
    /// Whether a log is in it.
    open: bool,
}

/// Where a log goes on.
#[derive(Clone, Copy)]
struct Head {
    /// A free slot.
    slot: u32,
    in_holes: bool,
}

fn segment_of(slot: u32) -> u32 {
    slot / SEGMENT_PAGES
}

impl MainArea {
    pub(super) fn new(volume: Volume) -> Self {
        let count = volume.segments;
        let segment = Segment { pages: 0, taken: 0, kind: Log::Warm as usize, open: false };
        let mut area = Self {
            segments: vec![segment; count as usize],
            free: BitTree::new(count * SEGMENT_PAGES),
            free_segments: BitTree::new(count),
            free_count: 0,
            emptied: 0,
            holed: [const { BTreeSet::new() }; LOGS],
            waiting: Vec::new(),
            logs: [None; LOGS],
            volume,
        };
        for segment in area.volume.node_segments..count {
            let first = segment * SEGMENT_PAGES;
            (first..first + SEGMENT_PAGES).for_each(|slot| area.free.insert(slot));
            area.free_segments.insert(segment);
            area.free_count += 1;
        }
        for log in 0..LOGS {
            if let Some(segment) = area.volume.begin[log] {
                area.open_free(log, segment);
            }
        }
        area
    }

    /// The slot that a log uses next, or would use if no segment were opened before.
    pub(super) fn next(&self, log: Log) -> u32 {
        let head = self.logs[log as usize].map(|head| head.slot);
        head.or_else(|| self.free.next(0)).unwrap_or(0)
    }

    /// Gives a page the next slot of a log, and frees its old one.
    pub(super) fn append(&mut self, log: Log, old: Option<u32>) -> u32 {
        let log = log as usize;
        if self.logs[log].is_none() {
            self.open(log);
        }
        let Head { slot, in_holes } = self.logs[log].expect("it was opened");
        let segment = segment_of(slot);
        self.free.remove(slot);
        self.segments[segment as usize].pages += 1;
        self.segments[segment as usize].taken += 1;
        if let Some(old) = old {
            self.free(old);
        }
        let end = (segment + 1) * SEGMENT_PAGES;
        let next = if in_holes { self.free.next(slot + 1) } else { Some(slot + 1) };
        match next.filter(|next| *next < end) {
            Some(slot) => self.logs[log] = Some(Head { slot, in_holes }),
            None => {
                self.open(log);
                self.close(segment);
            }
        }
        slot
    }

    /// Frees the slot of a page.
    pub(super) fn free(&mut self, slot: u32) {
        self.waiting.push(slot);
        let number = segment_of(slot);
        let segment = &mut self.segments[number as usize];
        segment.pages -= 1;
        if segment.pages == 0 && !segment.open {
            self.holed[segment.kind].remove(&(segment.taken, number));
            self.emptied += 1;
        }
    }

    /// Makes what was freed usable.
    pub(super) fn checkpoint(&mut self) {
        for slot in std::mem::take(&mut self.waiting) {
            self.free.insert(slot);
            let number = segment_of(slot);
            let segment = &mut self.segments[number as usize];
            let kind = segment.kind;
            let holed = &mut self.holed[kind];
            holed.remove(&(segment.taken, number));
            segment.taken -= 1;
            if segment.open {
                continue;
            }
            if segment.pages > 0 {
                holed.insert((segment.taken, number));
            } else if segment.taken == 0 {
                self.free_segments.insert(number);
                self.free_count += 1;
                self.emptied -= 1;
            }
        }
    }

    /// Closes the full segment that a log has left.
    fn close(&mut self, number: u32) {
        let segment = &mut self.segments[number as usize];
        segment.open = false;
        if segment.pages == 0 {
            self.emptied += 1;
        } else if segment.taken < SEGMENT_PAGES {
            self.holed[segment.kind].insert((segment.taken, number));
        }
    }

    /// Lets a log go on in another segment.
    fn open(&mut self, log: usize) {
        let is_scarce = self.free_count <= self.volume.scarce_segments;
        if self.emptied > self.volume.segments / WAITING || (is_scarce && self.emptied > 0) {
            self.checkpoint();
        }
        if !self.open_another(log) {
            self.checkpoint();
            assert!(self.open_another(log), "there are more slots than pages");
        }
    }

    fn open_another(&mut self, log: usize) -> bool {
        if self.free_count <= self.volume.few_segments && self.open_holed(log) {
            return true;
        }
        let from = match self.logs[log] {
            Some(head) if log != Log::Hot as usize && !self.volume.reuses => segment_of(head.slot),
            _ => 0,
        };
        let segment = self.free_segments.next(from).or_else(|| self.free_segments.next(0));
        match segment {
            Some(segment) => self.open_free(log, segment),
            None => return self.open_holed(log),
        }
        true
    }

    fn open_free(&mut self, log: usize, number: u32) {
        self.free_segments.remove(number);
        self.free_count -= 1;
        let segment = &mut self.segments[number as usize];
        (segment.kind, segment.open) = (log, true);
        self.logs[log] = Some(Head { slot: number * SEGMENT_PAGES, in_holes: false });
    }

    fn open_holed(&mut self, log: usize) -> bool {
        let fewest = KINDS[log].into_iter().find_map(|kind| self.holed[kind].pop_first());
        let Some((_, number)) = fewest else { return false };
        let segment = &mut self.segments[number as usize];
        (segment.kind, segment.open) = (log, true);
        let slot = self.free.next(number * SEGMENT_PAGES).expect("it has holes");
        self.logs[log] = Some(Head { slot, in_holes: true });
        true
    }

    /// Checks the invariants; `used` are the slots that hold a page, ascending.
    ///
    /// # Panics
    ///
    /// Panics if one is broken.
    pub(super) fn check(&self, used: &[u32]) {
        self.free.check();
        self.free_segments.check();
        let count_in = |slots: &[u32], segment: u32| {
            let before = |end: u32| slots.partition_point(|slot| segment_of(*slot) < end);
            (before(segment + 1) - before(segment)) as u32
        };
        let mut waiting = self.waiting.clone();
        waiting.sort_unstable();
        for slot in used.iter().chain(&waiting) {
            assert!(!self.free.contains(*slot), "slot {slot} is free and taken");
        }
        let (mut free_count, mut emptied, mut holed) = (0, 0, 0);
        for number in self.volume.node_segments..self.volume.segments {
            let segment = self.segments[number as usize];
            assert_eq!(segment.pages, count_in(used, number), "segment {number}");
            assert_eq!(segment.taken, segment.pages + count_in(&waiting, number));
            let opened_by = (0..LOGS)
                .filter(|log| self.logs[*log].is_some_and(|head| segment_of(head.slot) == number));
            assert_eq!(opened_by.count(), usize::from(segment.open), "segment {number}");
            let closed = !segment.open;
            let is_free = closed && segment.taken == 0;
            assert_eq!(self.free_segments.contains(number), is_free, "segment {number}");
            free_count += u32::from(is_free);
            emptied += u32::from(closed && segment.pages == 0 && segment.taken > 0);
            let has_holes = closed && segment.pages > 0 && segment.taken < SEGMENT_PAGES;
            let key = (segment.taken, number);
            assert_eq!(self.holed[segment.kind].contains(&key), has_holes, "segment {number}");
            holed += usize::from(has_holes);
        }
        assert_eq!((self.free_count, self.emptied), (free_count, emptied));
        assert_eq!(self.holed.iter().map(BTreeSet::len).sum::<usize>(), holed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The same rules over plain vectors: every question is answered by a scan.
    struct Model {
        volume: Volume,
        /// By slot.
        used: Vec<bool>,
        waiting: Vec<bool>,
        kind: Vec<usize>,
        /// By log: its segment, the slot that it uses next, and whether it uses holes. F2FS chooses
        /// that slot when it uses the one before (`__refresh_next_blkoff`): a checkpoint between
        /// the two may free an earlier hole, which the log then passes over.
        logs: [Option<(u32, u32, bool)>; LOGS],
    }

    impl Model {
        fn new(volume: Volume) -> Self {
            let slots = (volume.segments * SEGMENT_PAGES) as usize;
            let logs = volume
                .begin
                .map(|begin| begin.map(|segment| (segment, segment * SEGMENT_PAGES, false)));
            let mut kind = vec![Log::Warm as usize; volume.segments as usize];
            for (log, segment) in volume.begin.iter().enumerate() {
                if let Some(segment) = segment {
                    kind[*segment as usize] = log;
                }
            }
            Self { used: vec![false; slots], waiting: vec![false; slots], kind, logs, volume }
        }

        fn slots(segment: u32) -> std::ops::Range<usize> {
            (segment * SEGMENT_PAGES) as usize..((segment + 1) * SEGMENT_PAGES) as usize
        }

        fn is_taken(&self, slot: usize) -> bool {
            self.used[slot] || self.waiting[slot]
        }

        fn taken(&self, segment: u32) -> usize {
            Self::slots(segment).filter(|slot| self.is_taken(*slot)).count()
        }

        fn pages(&self, segment: u32) -> usize {
            Self::slots(segment).filter(|slot| self.used[*slot]).count()
        }

        /// The segments that no log is in.
        fn closed(&self) -> Vec<u32> {
            let is_open =
                |segment: &u32| self.logs.iter().flatten().any(|(open, _, _)| open == segment);
            (self.volume.node_segments..self.volume.segments)
                .filter(|segment| !is_open(segment))
                .collect()
        }

        fn append(&mut self, log: Log, old: Option<u32>) -> u32 {
            let log = log as usize;
            if self.logs[log].is_none() {
                self.open(log);
            }
            let (segment, slot, in_holes) = self.logs[log].expect("it was opened");
            self.used[slot as usize] = true;
            old.into_iter().for_each(|old| self.free(old));
            match self.from(segment, slot + 1, in_holes) {
                Some(next) => self.logs[log] = Some((segment, next, in_holes)),
                None => self.open(log),
            }
            slot
        }

        /// The first slot of a segment from `slot` on that a log may use.
        fn from(&self, segment: u32, slot: u32, in_holes: bool) -> Option<u32> {
            (slot..(segment + 1) * SEGMENT_PAGES)
                .find(|slot| !in_holes || !self.is_taken(*slot as usize))
        }

        fn free(&mut self, slot: u32) {
            self.used[slot as usize] = false;
            self.waiting[slot as usize] = true;
        }

        fn checkpoint(&mut self) {
            self.waiting.fill(false);
        }

        fn open(&mut self, log: usize) {
            let closed = self.closed();
            let free = closed.iter().filter(|segment| self.taken(**segment) == 0).count();
            let emptied = closed
                .iter()
                .filter(|segment| self.pages(**segment) == 0 && self.taken(**segment) > 0)
                .count();
            let is_scarce = free <= self.volume.scarce_segments as usize;
            if emptied > (self.volume.segments / WAITING) as usize || (is_scarce && emptied > 0) {
                self.checkpoint();
            }
            if !self.open_another(log) {
                self.checkpoint();
                assert!(self.open_another(log));
            }
        }

        fn open_another(&mut self, log: usize) -> bool {
            let closed = self.closed();
            let free: Vec<u32> =
                closed.iter().copied().filter(|segment| self.taken(*segment) == 0).collect();
            let holed = KINDS[log].iter().find_map(|kind| {
                let with_holes = closed.iter().copied().filter(|segment| {
                    self.kind[*segment as usize] == *kind
                        && self.pages(*segment) > 0
                        && self.taken(*segment) < SEGMENT_PAGES as usize
                });
                with_holes.min_by_key(|segment| self.taken(*segment))
            });
            let few = free.len() <= self.volume.few_segments as usize;
            let from = match self.logs[log] {
                Some((segment, _, _)) if log != 0 && !self.volume.reuses => segment,
                _ => 0,
            };
            let behind = free.iter().find(|segment| **segment >= from).or(free.first());
            let (segment, in_holes) = match (holed, behind) {
                (Some(segment), behind) if few || behind.is_none() => (segment, true),
                (_, Some(segment)) => (*segment, false),
                _ => return false,
            };
            self.kind[segment as usize] = log;
            let first = self.from(segment, segment * SEGMENT_PAGES, in_holes);
            self.logs[log] = Some((segment, first.expect("it has holes"), in_holes));
            true
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Every slot is the one that the model chooses, on whole volumes and on parts, while pages
        /// are written again and freed until nearly all slots are used.
        // Promises: Placement 5.
        #[test]
        fn agrees_with_scans(
            whole in any::<bool>(),
            reuses in any::<bool>(),
            few in 0..12u32,
            steps in prop::collection::vec(
                (0..10u8, 0..3u8, any::<prop::sample::Index>(), 1..400u32), 1..60),
        ) {
            const PAGES: u32 = 4_000;
            let mut volume = match whole {
                true => Volume::new(1, PAGES),
                false => Volume::part_of_a_large_one(PAGES),
            };
            (volume.reuses, volume.few_segments) = (reuses, few);
            let (mut area, mut model) = (MainArea::new(volume.clone()), Model::new(volume));
            let mut place = vec![None; PAGES as usize];
            for (step, (what, log, page, count)) in steps.into_iter().enumerate() {
                let first = page.index(PAGES as usize);
                // Steps of 7 hit pages far from each other, as random writes do.
                let pages = (0..count as usize).map(|n| (first + 7 * n) % PAGES as usize);
                let log = [Log::Hot, Log::Warm, Log::Cold][usize::from(log)];
                match what {
                    0 => {
                        area.checkpoint();
                        model.checkpoint();
                    }
                    1 => {
                        for slot in pages.filter_map(|page| place[page].take()) {
                            area.free(slot);
                            model.free(slot);
                        }
                    }
                    _ => {
                        for page in pages {
                            let slot = area.append(log, place[page]);
                            prop_assert_eq!(slot, model.append(log, place[page]), "step {}", step);
                            place[page] = Some(slot);
                        }
                    }
                }
                let mut used: Vec<u32> = place.iter().copied().flatten().collect();
                used.sort_unstable();
                area.check(&used);
            }
        }
    }

    /// The figures that mkfs.f2fs 1.15 prints for cards of 256 MiB to 64 GiB.
    // Promises: Placement 5.
    #[test]
    fn reserves_as_mkfs_does() {
        let made = [
            (120, 21),
            (248, 28),
            (502, 39),
            (2_029, 71),
            (8_642, 139),
            (16_275, 188),
            (32_581, 264),
        ];
        assert_eq!(made.map(|(segments, _)| reserved_segments(segments)), made.map(|(_, n)| n));
    }
}
