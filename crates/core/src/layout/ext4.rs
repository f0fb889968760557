//! ext4-like: extents, updated in place.
//!
//! The model keeps the properties of ext4 that decide whether writes are sequential. A file is
//! stored in extents as long as its content is contiguous, an update overwrites the page in place,
//! and blocks are allocated late, when dirty pages are written back. With `alloc=early` they are
//! allocated when a page first becomes dirty in the cache, as ext3 does, on which SpatialClock was
//! evaluated (Kim, Ryu & Ramachandran, SIGMETRICS '12, §5), and ext4 mounted with `nodelalloc`.
//!
//! - Every run of pages that the trace touches is one extent.
//! - Files that exist before the trace are placed in order of first appearance. A hole or untouched
//!   range inside a file keeps its blocks, up to one block group (128 MiB).
//! - A file created during the trace gets an extent when its first page is written back, or becomes
//!   dirty: the smallest free extent that fits (ext4's buddy allocator also prefers the tightest),
//!   else one behind all others.
//! - Truncation and deletion free an extent only if they cover all of it.
//! - Block groups, the journal and metadata are not modelled.

use super::{Layout, LayoutSpec, Lba, Runs};
use crate::{
    event::Space,
    page::Page,
    params::{Param, ParamKind},
    trace::{Run, Trace},
};
use std::{collections::BTreeMap, collections::BTreeSet, ops::Range};

pub(super) const SPEC: LayoutSpec = LayoutSpec {
    name: "ext4",
    what: "ext4-like: extents in place, freed by unlink, allocated at write-back unless alloc=early",
    params: PARAMS,
    suits: |space| space == Space::Files,
    build: |trace, params| Box::new(Ext4::new(trace, params.word(PARAMS, "alloc") == "early")),
};

const PARAMS: &[Param] = &[Param {
    name: "alloc",
    what: "when a new file gets its place: at write-back, or as soon as a page of it is dirty",
    kind: ParamKind::Word(&["late", "early"]),
}];

/// Pages in a block group of 128 MiB.
const GROUP_PAGES: u64 = 32_768;

struct Ext4 {
    runs: Runs,
    /// First LBA of each run; `None` before it is allocated.
    base: Vec<Option<Lba>>,
    free: FreeSpace,
    early: bool,
    /// See [`Layout::freed`].
    freed: Vec<Range<Lba>>,
    /// See [`Layout::moved`].
    moved: Range<u32>,
}

impl Ext4 {
    fn new(trace: &Trace, early: bool) -> Self {
        let runs = Runs::of(trace);
        let mut base = vec![None; runs.runs.len()];
        let mut end = 0;
        let mut previous: Option<(crate::event::FileId, u64)> = None;
        for (n, run) in runs.runs.iter().enumerate() {
            if trace.created().binary_search(&run.file).is_ok() {
                continue;
            }
            if let Some((file, file_end)) = previous
                && file == run.file
            {
                end += (run.page - file_end).min(GROUP_PAGES);
            }
            base[n] = Some(end);
            end += u64::from(run.pages);
            previous = Some((run.file, run.page + u64::from(run.pages)));
        }
        let free = FreeSpace { end, ..FreeSpace::default() };
        Self { runs, base, free, early, freed: Vec::new(), moved: 0..0 }
    }
}

impl Layout for Ext4 {
    fn write(&mut self, page: Page) -> Lba {
        self.freed.clear();
        let (run, offset) =
            self.runs.find(page).expect("a file trace knows the place of its pages");
        let base = match self.base[run] {
            Some(base) => {
                self.moved = 0..0;
                base
            }
            None => {
                let Run { first, pages, .. } = self.runs.runs[run];
                self.moved = first..first + pages;
                *self.base[run].insert(self.free.take(u64::from(pages)))
            }
        };
        base + u64::from(offset)
    }

    fn read(&mut self, page: Page) -> Lba {
        self.write(page)
    }

    fn place(&self, page: Page) -> Option<Lba> {
        let (run, offset) =
            self.runs.find(page).expect("a file trace knows the place of its pages");
        Some(self.base[run]? + u64::from(offset))
    }

    fn is_early(&self) -> bool {
        self.early
    }

    fn dirtied(&mut self, page: Page) {
        self.write(page);
    }

    fn moved(&self) -> Range<u32> {
        self.moved.clone()
    }

    fn freed(&self) -> &[Range<Lba>] {
        &self.freed
    }

    fn free(&mut self, pages: Range<u32>) {
        self.freed.clear();
        let mut at = pages.start;
        while at < pages.end {
            let (n, offset) =
                self.runs.find(Page(at)).expect("a file trace knows the place of its pages");
            let run = self.runs.runs[n];
            let part = (run.pages - offset).min(pages.end - at);
            if part == run.pages
                && let Some(base) = self.base[n].take()
            {
                self.free.put(base, u64::from(run.pages));
                self.freed.push(base..base + u64::from(run.pages));
            }
            at += part;
        }
    }

    fn check(&self) {
        let mut taken: Vec<(Lba, u64)> =
            self.free.by_start.iter().map(|(start, len)| (*start, *len)).collect();
        let placed = self.base.iter().zip(self.runs.runs.iter());
        taken.extend(placed.filter_map(|(base, run)| Some(((*base)?, u64::from(run.pages)))));
        taken.sort_unstable();
        for pair in taken.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "extents {pair:?} overlap");
        }
        assert!(
            taken.last().is_none_or(|last| last.0 + last.1 <= self.free.end),
            "an extent lies past the end"
        );
    }
}

/// Free extents below `end`; adjacent ones are merged.
#[derive(Default)]
struct FreeSpace {
    by_start: BTreeMap<Lba, u64>,
    by_len: BTreeSet<(u64, Lba)>,
    end: Lba,
}

impl FreeSpace {
    fn take(&mut self, pages: u64) -> Lba {
        let Some(&(len, start)) = self.by_len.range((pages, 0)..).next() else {
            let start = self.end;
            self.end += pages;
            return start;
        };
        self.remove(start, len);
        if len > pages {
            self.insert(start + pages, len - pages);
        }
        start
    }

    fn put(&mut self, mut start: Lba, mut len: u64) {
        if let Some((&before, &before_len)) = self.by_start.range(..start).next_back()
            && before + before_len == start
        {
            self.remove(before, before_len);
            (start, len) = (before, before_len + len);
        }
        if let Some(&after_len) = self.by_start.get(&(start + len)) {
            self.remove(start + len, after_len);
            len += after_len;
        }
        self.insert(start, len);
    }

    fn insert(&mut self, start: Lba, len: u64) {
        self.by_start.insert(start, len);
        self.by_len.insert((len, start));
    }

    fn remove(&mut self, start: Lba, len: u64) {
        self.by_start.remove(&start);
        self.by_len.remove(&(len, start));
    }
}
