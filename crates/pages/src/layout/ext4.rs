//! ext4-like: extents, updated in place, allocated as the kernel's `fs/ext4/mballoc.c` does.
//!
//! An update overwrites the page in place. A page without a place gets one when it is written back
//! (delayed allocation). With `alloc=early` it gets one when it becomes dirty in the cache, as on
//! ext3, on which SpatialClock was evaluated (Kim, Ryu & Ramachandran, SIGMETRICS '12, §5), and on
//! ext4 mounted with `nodelalloc`. The layout uses only what the file system could know then: the
//! pages that are dirty, the size of the file so far, and the places taken.
//!
//! - With the page that is written back, the dirty pages around it without a place get theirs, up
//!   to 2,048 in one piece (`MAX_WRITEPAGES_EXTENT_LEN`).
//! - Pages of a file of up to 16 pages come from a locality group: 512 blocks that small files
//!   share one after another (`s_mb_stream_request`, `s_mb_group_prealloc`).
//! - A larger file that has places and grows counts as open. It gets its pages behind its last
//!   ones, and more with them, depending on its size (`ext4_mb_normalize_request`): they are
//!   preallocated until the file is truncated or deleted, or grows elsewhere.
//! - A larger file without places counts as closed, so that nothing is preallocated.
//! - The goal is behind the page before it in the file, else before the page behind it, else the
//!   second block group of the directory's flexible group. Streams begin at the group that the last
//!   stream used. [`FreeSpace::take`] searches from there.
//! - Truncation and deletion free places.
//!
//! Files that exist before the trace lie in order of first appearance, one extent for every run of
//! pages that the trace touches. Pages behind a file's size at the beginning have no place then; if
//! the trace does not say the size, all have one. An untouched range inside a file keeps its
//! blocks, up to one block group (128 MiB). A full device grows. All directories are in one
//! flexible group (2 GiB). The journal and metadata are not modelled.

use super::{Layout, LayoutSpec, Runs, add_freed};
use flashsift_caches::trace::{File, Files, Trace};
use flashsift_events::{
    address::Lba,
    event::Space,
    page::Page,
    params::{Param, ParamKind, Params},
    structure::BitTree,
};
use free_space::{FreeSpace, Wanted};
use std::ops::Range;

mod free_space;

pub(super) const SPEC: LayoutSpec = LayoutSpec {
    name: "ext4",
    what: "ext4-like: extents in place, freed by unlink, allocated at write-back unless alloc=early",
    params: PARAMS,
    suits: |space| space == Space::Files,
    in_rank_order: false,
    from_recording: false,
    page_bytes: 20,
    build: |trace, params| Box::new(Ext4::new(trace, params)),
};

const PARAMS: &[Param] = &[
    Param {
        name: "alloc",
        what: "when a new page gets its place: at write-back, or as soon as it is dirty",
        kind: ParamKind::Word(&["late", "early"]),
    },
    Param {
        name: "groups",
        what: "size of the device in block groups of 128 MiB; 0: twice the pages of the trace",
        kind: ParamKind::Number { default: 0.0, min: 0.0, max: 1_000_000.0 },
    },
];

/// Pages in a block group of 128 MiB.
const GROUP_PAGES: u64 = 32_768;
/// The group in which the first file of a flexible group is placed; the one before it is for
/// directories.
const GOAL_GROUP: usize = 1;
/// Size of the largest file that uses a locality group, in pages.
const SMALL_PAGES: u64 = 16;
/// Blocks of a locality group.
const LOCALITY_PAGES: u64 = 512;
/// The most pages that one write-back places at once.
const PIECE_PAGES: u64 = 2_048;
const NOWHERE: Lba = Lba::MAX;

struct Ext4 {
    runs: Runs,
    files: Files,
    /// Place of each page, or [`NOWHERE`].
    place: Vec<Lba>,
    /// The pages that have a place.
    placed: BitTree,
    /// The dirty pages that have none.
    waiting: BitTree,
    /// By file: its size in pages, as far as it has been written.
    size: Vec<u64>,
    /// By file: its preallocated pages.
    preallocated: Vec<Option<Preallocated>>,
    /// The unused parts of the locality groups.
    locality: Vec<Range<Lba>>,
    /// The group that the last stream used.
    stream_group: usize,
    free: FreeSpace,
    early: bool,
    /// See [`Layout::freed`].
    freed: Vec<Range<Lba>>,
    /// See [`Layout::moved`].
    moved: Range<u32>,
}

/// Places that a file will use for its pages from `first` on.
#[derive(Clone)]
struct Preallocated {
    first: u64,
    places: Range<Lba>,
}

/// Pages of a file that are placed together.
#[derive(Clone, Copy)]
struct Piece {
    file: File,
    /// Their first rank and their number in the file.
    rank: u32,
    first: u64,
    pages: u64,
}

impl Ext4 {
    fn new(trace: &Trace, params: &Params) -> Self {
        let runs = Runs::from_trace(trace);
        let files = Files::new(trace.runs(), trace.pages());
        let mut place = vec![NOWHERE; trace.pages() as usize];
        let mut placed = BitTree::new(trace.pages());
        let mut size = vec![0; files.count() as usize];
        let mut end = 0;
        let mut previous: Option<(flashsift_events::event::FileId, u64)> = None;
        for run in runs.runs.iter() {
            let old = trace.old_ranks(run);
            let file_end = run.page + old.len() as u64;
            size[files.of_page(Page(run.first)).0 as usize] = match trace.pages_before(run.file) {
                u64::MAX => file_end,
                before => before,
            };
            if old.is_empty() {
                continue;
            }
            if let Some((file, file_end)) = previous
                && file == run.file
            {
                end += (run.page - file_end).min(GROUP_PAGES);
            }
            for page in old {
                place[page as usize] = end;
                placed.insert(page);
                end += 1;
            }
            previous = Some((run.file, file_end));
        }
        let groups = match params.number(PARAMS, "groups") as u64 {
            0 => (end + 2 * u64::from(trace.pages())) / GROUP_PAGES + 1 + GOAL_GROUP as u64,
            groups => groups.max(end / GROUP_PAGES + 1),
        };
        let groups = groups as usize;
        let mut free = FreeSpace::new(groups, GROUP_PAGES);
        // Holes in files stay taken, so that no other file lies in them.
        (0..end).step_by(GROUP_PAGES as usize).for_each(|start| {
            free.cut(start..end.min(start + GROUP_PAGES));
        });
        Self {
            runs,
            place,
            placed,
            waiting: BitTree::new(trace.pages()),
            size,
            preallocated: vec![None; files.count() as usize],
            files,
            locality: Vec::new(),
            stream_group: 0,
            free,
            early: params.word(PARAMS, "alloc") == "early",
            freed: Vec::new(),
            moved: 0..0,
        }
    }

    fn number(&self, page: Page) -> u64 {
        let (run, offset) =
            self.runs.find(page).expect("a file trace knows the place of its pages");
        self.runs.runs[run].page + u64::from(offset)
    }

    /// Places the page and, at write-back, the waiting pages around it.
    fn allocate(&mut self, page: Page) {
        let (run, _) = self.runs.find(page).expect("a file trace knows the place of its pages");
        let run = self.runs.runs[run];
        let (mut first, mut end) = (page.0, page.0 + 1);
        while first > run.first && self.waiting.contains(first - 1) {
            first -= 1;
        }
        while end < run.first + run.pages && self.waiting.contains(end) {
            end += 1;
        }
        self.moved = first..end;
        let file = self.files.of_page(page);
        while first < end {
            let pages = u64::from(end - first).min(PIECE_PAGES);
            let piece = Piece { file, rank: first, first: self.number(Page(first)), pages };
            let places = self.take(piece);
            for lba in places {
                self.place[first as usize] = lba;
                self.placed.insert(first);
                self.waiting.remove(first);
                first += 1;
            }
        }
    }

    /// Takes places for all pages of a piece, or for the first ones.
    fn take(&mut self, piece: Piece) -> Range<Lba> {
        let file = piece.file.0 as usize;
        if let Some(places) = self.take_preallocated(piece) {
            return places;
        }
        let neighbours = self.neighbours(piece.rank, self.files.pages(piece.file));
        let goal = self.goal(piece.first, neighbours);
        let group = self.free.group_of(goal.min(self.free.end() - 1));
        let size = self.size[file].max(piece.first + piece.pages);
        if size <= SMALL_PAGES {
            return self.take_locality(piece.pages, goal, group);
        }
        if neighbours == [None; 2] && !self.early {
            return self.free.take(Wanted { pages: piece.pages, goal: None, group });
        }
        self.take_stream(piece, size, neighbours)
    }

    /// The nearest pages of the file before and behind a rank that have a place, each with its
    /// number in the file.
    fn neighbours(&self, rank: u32, of_file: Range<u32>) -> [Option<(u64, Lba)>; 2] {
        [self.placed.previous(rank), self.placed.next(rank)].map(|rank| {
            let rank = rank.filter(|rank| of_file.contains(rank))?;
            Some((self.number(Page(rank)), self.place[rank as usize]))
        })
    }

    /// The place at which the search for a place of this page begins.
    fn goal(&self, number: u64, neighbours: [Option<(u64, Lba)>; 2]) -> Lba {
        match neighbours {
            [Some((page, lba)), _] => lba + (number - page),
            [None, Some((page, lba))] => lba.saturating_sub(page - number),
            [None, None] => (GOAL_GROUP as u64 * GROUP_PAGES).min(self.free.end() - 1),
        }
    }

    fn take_preallocated(&mut self, piece: Piece) -> Option<Range<Lba>> {
        let slot = &mut self.preallocated[piece.file.0 as usize];
        let Preallocated { first, places } = slot.clone()?;
        let skipped = piece.first.checked_sub(first)?;
        let start = places.start + skipped;
        if start >= places.end {
            return None;
        }
        let end = places.end.min(start + piece.pages);
        let rest = Preallocated { first: piece.first + (end - start), places: end..places.end };
        *slot = (!rest.places.is_empty()).then_some(rest);
        self.free.put(places.start..start);
        Some(start..end)
    }

    fn take_locality(&mut self, pages: u64, goal: Lba, group: usize) -> Range<Lba> {
        let long_enough =
            self.locality.iter_mut().filter(|places| places.end - places.start >= pages);
        let nearest = long_enough.min_by_key(|places| places.start.abs_diff(goal));
        if let Some(places) = nearest {
            let start = places.start;
            places.start += pages;
            self.locality.retain(|places| !places.is_empty());
            return start..start + pages;
        }
        let places = self.free.take(Wanted { pages: LOCALITY_PAGES, goal: None, group });
        let end = places.end.min(places.start + pages);
        if end < places.end {
            self.locality.push(end..places.end);
        }
        places.start..end
    }

    /// Takes places for a growing file, and preallocates what is left of them.
    fn take_stream(
        &mut self,
        piece: Piece,
        size: u64,
        [left, right]: [Option<(u64, Lba)>; 2],
    ) -> Range<Lba> {
        let end = piece.first + piece.pages;
        let aligned = |pages: u64| (piece.first / pages * pages, pages);
        let (mut first, mut pages) = match size {
            0..=256 => (0, size.next_power_of_two()),
            257..=1024 => aligned(512),
            1025..=2048 => aligned(1024),
            _ => aligned(2048),
        };
        if let Some((page, _)) = left.filter(|(page, _)| first <= *page) {
            (first, pages) = (page + 1, (first + pages).saturating_sub(page + 1));
        }
        if let Some((page, _)) = right.filter(|(page, _)| first + pages > *page) {
            pages = page - first;
        }
        pages = pages.max(end - first);
        let behind = left.filter(|(page, _)| page + 1 == first).map(|(_, lba)| lba + 1);
        let before = right.filter(|(page, _)| *page == first + pages);
        let goal = behind.or_else(|| before.and_then(|(_, lba)| lba.checked_sub(pages)));
        let places = self.free.take(Wanted { pages, goal, group: self.stream_group });
        self.stream_group = self.free.group_of(places.start);
        // A shorter extent than wanted begins with the piece, not with its window.
        let skipped = match piece.first - first {
            skipped if skipped < places.end - places.start => skipped,
            _ => 0,
        };
        let start = places.start + skipped;
        let used = places.end.min(start + piece.pages);
        self.discard_preallocated(piece.file);
        self.free.put(places.start..start);
        if used < places.end {
            let rest = Preallocated { first: end, places: used..places.end };
            self.preallocated[piece.file.0 as usize] = Some(rest);
        }
        start..used
    }

    fn discard_preallocated(&mut self, file: File) {
        if let Some(Preallocated { places, .. }) = self.preallocated[file.0 as usize].take() {
            self.free.put(places);
        }
    }
}

impl Layout for Ext4 {
    fn write(&mut self, page: Page) -> Lba {
        self.freed.clear();
        self.moved = 0..0;
        if self.place[page.0 as usize] == NOWHERE {
            self.allocate(page);
        }
        self.place[page.0 as usize]
    }

    fn read(&self, page: Page) -> Lba {
        self.place(page).unwrap_or_else(|| {
            let of_file = self.files.pages(self.files.of_page(page));
            self.goal(self.number(page), self.neighbours(page.0, of_file))
        })
    }

    fn place(&self, page: Page) -> Option<Lba> {
        let place = self.place[page.0 as usize];
        (place != NOWHERE).then_some(place)
    }

    fn wants_dirtied(&self) -> bool {
        true
    }

    fn dirtied(&mut self, page: Page) {
        self.freed.clear();
        self.moved = 0..0;
        if self.place[page.0 as usize] != NOWHERE {
            return;
        }
        let end = self.number(page) + 1;
        let size = &mut self.size[self.files.of_page(page).0 as usize];
        *size = end.max(*size);
        if self.early {
            self.allocate(page);
        } else {
            self.waiting.insert(page.0);
        }
    }

    fn moved(&self) -> Range<u32> {
        self.moved.clone()
    }

    fn freed(&self) -> &[Range<Lba>] {
        &self.freed
    }

    fn free(&mut self, pages: Range<u32>) {
        self.freed.clear();
        self.moved = 0..0;
        for page in pages.clone() {
            self.waiting.remove(page);
            let place = std::mem::replace(&mut self.place[page as usize], NOWHERE);
            if place != NOWHERE {
                self.placed.remove(page);
                add_freed(&mut self.freed, place);
            }
        }
        for places in &self.freed {
            self.free.put(places.clone());
        }
        let mut at = pages.start;
        while at < pages.end {
            let file = self.files.of_page(Page(at));
            self.discard_preallocated(file);
            let of_file = self.files.pages(file);
            if of_file.end <= pages.end {
                let number = if at == of_file.start { 0 } else { self.number(Page(at)) };
                let size = &mut self.size[file.0 as usize];
                *size = number.min(*size);
            }
            at = of_file.end;
        }
    }

    fn check(&self) {
        let mut taken: Vec<Range<Lba>> = self.free.extents().collect();
        let placed = self.place.iter().filter(|place| **place != NOWHERE);
        taken.extend(placed.map(|place| *place..*place + 1));
        taken.extend(self.locality.iter().cloned());
        let preallocated = self.preallocated.iter().flatten();
        taken.extend(preallocated.map(|preallocated| preallocated.places.clone()));
        taken.sort_unstable_by_key(|places| places.start);
        for pair in taken.windows(2) {
            assert!(pair[0].end <= pair[1].start, "{pair:?} overlap");
        }
        let last = taken.last().map_or(0, |places| places.end);
        assert!(last <= self.free.end(), "a place lies past the end");
        for (page, place) in self.place.iter().enumerate() {
            let page = page as u32;
            assert_eq!(self.placed.contains(page), *place != NOWHERE);
            assert!(*place == NOWHERE || !self.waiting.contains(page), "a placed page waits");
        }
    }
}
