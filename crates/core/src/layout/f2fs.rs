//! F2FS-like: every write-back appends to a log, which reuses holes when the device is nearly full.
//!
//! The main area consists of segments of 512 pages (2 MiB). A page written back is appended behind
//! the last one, and its old place becomes a hole. A segment whose pages are all holes is free
//! again. While more than 5 % of the segments are free, a full log continues in the next free
//! segment. Below that, it reuses the next hole instead ("slack space recycling", F2FS's threaded
//! logging, which makes writes non-sequential but copies nothing). Lee et al., "F2FS", FAST '15,
//! §2.4.
//!
//! The model has one log. It leaves out the separation of hot, warm and cold data, foreground
//! cleaning and node blocks. The pages that exist before the trace lie in rank order from the first
//! segment on.

use super::{Layout, LayoutSpec, Lba, add_freed};
use crate::{
    page::Page,
    params::{Param, ParamKind, Params},
    structure::BitTree,
    trace::Trace,
};
use std::ops::Range;

pub(super) const SPEC: LayoutSpec = LayoutSpec {
    name: "f2fs",
    what: "F2FS-like: appended at write-back, holes reused when nearly full",
    params: PARAMS,
    suits: |_| true,
    in_rank_order: false,
    from_recording: false,
    page_bytes: 16,
    build: |trace, params| Box::new(F2fs::new(trace, params)),
};

const PARAMS: &[Param] = &[Param {
    name: "spare",
    what: "free space on the device, as a share of the pages that the trace touches",
    kind: ParamKind::Number { default: 0.25, min: 0.0, max: 1000.0 },
}];

const SEGMENT_PAGES: u32 = 512;
/// Reciprocal of the share of free segments below which holes are reused.
const RESERVE: u32 = 20;
const NOWHERE: u32 = u32::MAX;

struct F2fs {
    /// LBA of each page, or [`NOWHERE`].
    place: Vec<u32>,
    /// Free slots, including those of the open segment from `head` on.
    free: BitTree,
    /// Pages in use in each segment.
    used_pages: Vec<u32>,
    free_segments: BitTree,
    free_segment_count: u32,
    /// The slots of the open segment that are not yet written.
    head: Range<u32>,
    /// Slot at which the search for a hole continues.
    cursor: u32,
    /// See [`Layout::freed`].
    freed: Vec<Range<Lba>>,
    /// See [`Layout::moved`].
    moved: Range<u32>,
}

impl F2fs {
    fn new(trace: &Trace, params: &Params) -> Self {
        let pages = trace.pages();
        let wanted = f64::from(pages) * (1.0 + params.number(PARAMS, "spare"));
        // Two extra segments, so that a page finds a free slot while its old one is still in use.
        let segments = (wanted as u32)
            .max(pages)
            .div_ceil(SEGMENT_PAGES)
            .saturating_add(2)
            .min(u32::MAX / SEGMENT_PAGES);
        let slots = segments * SEGMENT_PAGES;
        let mut layout = Self {
            place: vec![NOWHERE; pages as usize],
            free: BitTree::new(slots),
            used_pages: vec![0; segments as usize],
            free_segments: BitTree::new(segments),
            free_segment_count: segments,
            head: 0..0,
            cursor: 0,
            freed: Vec::new(),
            moved: 0..0,
        };
        (0..slots).for_each(|slot| layout.free.insert(slot));
        (0..segments).for_each(|segment| layout.free_segments.insert(segment));
        if trace.runs().is_empty() {
            (0..pages).for_each(|page| layout.append(page));
        }
        for run in
            trace.runs().iter().filter(|run| trace.created().binary_search(&run.file).is_err())
        {
            (run.first..run.first + run.pages).for_each(|page| layout.append(page));
        }
        layout
    }

    fn append(&mut self, page: u32) {
        let slot = self.slot();
        self.free.remove(slot);
        self.used_pages[(slot / SEGMENT_PAGES) as usize] += 1;
        if self.free_segments.contains(slot / SEGMENT_PAGES) {
            self.close_off(slot / SEGMENT_PAGES);
        }
        let old = std::mem::replace(&mut self.place[page as usize], slot);
        self.release(old);
        self.moved = page..page + 1;
    }

    fn slot(&mut self) -> u32 {
        if let Some(slot) = self.head.next() {
            return slot;
        }
        if self.head.end > 0 {
            // Every page of the full segment may have been rewritten while it was open.
            self.reopen_if_empty(self.head.end / SEGMENT_PAGES - 1);
        }
        if self.free_segment_count > self.used_pages.len() as u32 / RESERVE {
            let behind = self.head.end / SEGMENT_PAGES;
            let segment = self.free_segments.next(behind).or_else(|| self.free_segments.next(0));
            let segment = segment.expect("the count says that there is one");
            self.close_off(segment);
            self.head = segment * SEGMENT_PAGES..(segment + 1) * SEGMENT_PAGES;
            return self.head.next().expect("just opened");
        }
        let hole = self.free.next(self.cursor).or_else(|| self.free.next(0));
        let hole = hole.expect("there are more slots than pages");
        self.cursor = hole + 1;
        hole
    }

    fn close_off(&mut self, segment: u32) {
        self.free_segments.remove(segment);
        self.free_segment_count -= 1;
    }

    fn release(&mut self, slot: u32) {
        if slot == NOWHERE {
            return;
        }
        let segment = slot / SEGMENT_PAGES;
        add_freed(&mut self.freed, slot.into());
        self.free.insert(slot);
        self.used_pages[segment as usize] -= 1;
        let open = !self.head.is_empty() && self.head.end == (segment + 1) * SEGMENT_PAGES;
        if !open {
            self.reopen_if_empty(segment);
        }
    }

    fn reopen_if_empty(&mut self, segment: u32) {
        if self.used_pages[segment as usize] == 0 && !self.free_segments.contains(segment) {
            self.free_segments.insert(segment);
            self.free_segment_count += 1;
        }
    }
}

impl Layout for F2fs {
    fn write(&mut self, page: Page) -> Lba {
        self.freed.clear();
        self.append(page.0);
        Lba::from(self.place[page.0 as usize])
    }

    fn read(&self, page: Page) -> Lba {
        let next = if self.head.is_empty() { self.cursor } else { self.head.start };
        self.place(page).unwrap_or(next.into())
    }

    fn place(&self, page: Page) -> Option<Lba> {
        let slot = self.place[page.0 as usize];
        (slot != NOWHERE).then_some(Lba::from(slot))
    }

    fn moved(&self) -> Range<u32> {
        self.moved.clone()
    }

    fn freed(&self) -> &[Range<Lba>] {
        &self.freed
    }

    fn free(&mut self, pages: Range<u32>) {
        self.freed.clear();
        for page in pages {
            let slot = std::mem::replace(&mut self.place[page as usize], NOWHERE);
            self.release(slot);
        }
    }

    fn check(&self) {
        self.free.check();
        self.free_segments.check();
        let mut used = vec![0; self.used_pages.len()];
        let mut slots: Vec<u32> =
            self.place.iter().copied().filter(|slot| *slot != NOWHERE).collect();
        for slot in &slots {
            used[(slot / SEGMENT_PAGES) as usize] += 1;
            assert!(!self.free.contains(*slot), "slot {slot} is in use and free");
        }
        assert_eq!(used, self.used_pages);
        let pages = slots.len();
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), pages, "two pages share a slot");
    }
}
