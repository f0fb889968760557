//! Recorded: pages lie where the file system of the recording kept them.
//!
//! A recording on ext4 or F2FS tells when the file system gave data of a file a place, and at its
//! end where all data lies ([`Action::Place`](flashsift_events::event::Action::Place)). The
//! simulated cache writes pages back at other times than the kernel did. At a write-back, a page
//! gets
//!
//! 1. the newest place that was recorded for it until the present time; else
//! 2. the next place that was recorded for it, which the kernel allocated later than this cache
//!    needed it; else
//! 3. its present place; else
//! 4. the place beside the nearest page of its file that has one, at the same distance as in the
//!    file, if the recording gives that place to no page; else
//! 5. the first free place behind all places of the recording.
//!
//! A place counts between two removals of the page only: a page that is truncated and written again
//! is a new one. Truncation and deletion free places at their time in the trace.
//!
//! No two pages share a place. The kernel may have reused a place that a page still holds here:
//! F2FS moves a page that it writes, but this cache has not written it yet; or a page is written
//! here before the kernel deleted the file whose place it will get. Then the page that was written
//! first keeps the place. The other one gets its place by rules 3 and 5, and the recorded one at
//! the first write-back at which that is free.
//!
//! A file from before the recording has from the beginning the places that the recording tells at
//! its end and at no other time.

use super::{Layout, LayoutSpec, Runs, add_freed};
use flashsift_caches::trace::{Files, RecordedPlaces, Trace};
use flashsift_events::{
    address::Lba, event::Space, page::Page, params::Params, structure::BitTree,
};
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::{collections::BTreeSet, ops::Range, sync::Arc};

pub(super) const SPEC: LayoutSpec = LayoutSpec {
    name: "recorded",
    what: "where the file system of the recording placed pages; needs a trace with places",
    params: &[],
    suits: |space| space == Space::Files,
    in_rank_order: false,
    from_recording: true,
    page_bytes: 72,
    build: |trace, _: &Params| Box::new(Recorded::new(trace)),
};

const NOWHERE: Lba = Lba::MAX;

struct Recorded {
    recorded: Arc<RecordedPlaces>,
    runs: Runs,
    files: Files,
    now_us: u64,
    /// Place of each page, or [`NOWHERE`].
    place: Vec<Lba>,
    /// The pages that have a place.
    placed: BitTree,
    page_at: HashMap<Lba, u32, FixedState>,
    /// The place behind all that were ever taken, at least the end of the recording's.
    end: Lba,
    /// Free places from the end of the recording's to `end`.
    free: BTreeSet<Lba>,
    /// See [`Layout::freed`].
    freed: Vec<Range<Lba>>,
    /// See [`Layout::moved`].
    moved: Range<u32>,
}

impl Recorded {
    fn new(trace: &Trace) -> Self {
        let recorded = trace.shared_places().expect("the trace has the table of places");
        let mut layout = Self {
            runs: Runs::from_trace(trace),
            files: Files::new(trace.runs(), trace.pages()),
            now_us: 0,
            place: vec![NOWHERE; trace.pages() as usize],
            placed: BitTree::new(trace.pages()),
            page_at: HashMap::default(),
            end: recorded.end(),
            free: BTreeSet::new(),
            freed: Vec::new(),
            moved: 0..0,
            recorded,
        };
        for page in trace.runs().iter().flat_map(|run| trace.old_ranks(run)) {
            let place = layout.recorded.only_at_the_end(Page(page));
            if let Some(place) = place.filter(|place| !layout.page_at.contains_key(place)) {
                layout.put(page, place);
            }
        }
        layout
    }

    /// Moves a page to a free place.
    fn put(&mut self, page: u32, place: Lba) {
        let old = std::mem::replace(&mut self.place[page as usize], place);
        self.page_at.insert(place, page);
        if old == NOWHERE {
            self.placed.insert(page);
        } else {
            self.release(old);
        }
        self.moved = page..page + 1;
    }

    /// Notes that a place is free now.
    fn release(&mut self, place: Lba) {
        self.page_at.remove(&place);
        if place >= self.recorded.end() {
            self.free.insert(place);
        }
        add_freed(&mut self.freed, place);
    }

    /// Returns the place of the page if it is written now, by rules 1 to 4.
    fn wanted(&self, page: Page) -> Option<Lba> {
        let present = self.place[page.0 as usize];
        if let Some(place) = self.recorded.at(page, self.now_us) {
            let is_taken = self.page_at.get(&place).is_some_and(|other| *other != page.0);
            return if is_taken { (present != NOWHERE).then_some(present) } else { Some(place) };
        }
        if present != NOWHERE {
            return Some(present);
        }
        let beside = self.beside_neighbour(page)?;
        let is_free = !self.recorded.is_given(beside) && !self.page_at.contains_key(&beside);
        (beside < self.recorded.end() && is_free).then_some(beside)
    }

    /// Returns the place as far from that of the nearest page of the file as the pages are apart.
    fn beside_neighbour(&self, page: Page) -> Option<Lba> {
        let of_file = self.files.pages(self.files.of_page(page));
        let placed = |rank: Option<u32>| rank.filter(|rank| of_file.contains(rank));
        let number = self.number(page);
        if let Some(before) = placed(self.placed.previous(page.0)) {
            let apart = number - self.number(Page(before));
            return self.place[before as usize].checked_add(apart);
        }
        let behind = placed(self.placed.next(page.0))?;
        self.place[behind as usize].checked_sub(self.number(Page(behind)) - number)
    }

    fn number(&self, page: Page) -> u64 {
        let (run, offset) =
            self.runs.find(page).expect("a file trace knows the place of its pages");
        self.runs.runs[run].page + u64::from(offset)
    }
}

impl Layout for Recorded {
    fn write(&mut self, page: Page) -> Lba {
        self.freed.clear();
        self.moved = 0..0;
        let place = self.wanted(page).unwrap_or_else(|| {
            self.free.pop_first().unwrap_or_else(|| {
                self.end += 1;
                self.end - 1
            })
        });
        if self.place[page.0 as usize] != place {
            self.put(page.0, place);
        }
        place
    }

    fn read(&self, page: Page) -> Lba {
        let recorded = || self.recorded.at(page, self.now_us);
        let place = self.place(page).or_else(recorded).or_else(|| self.beside_neighbour(page));
        place.unwrap_or(self.end)
    }

    fn place(&self, page: Page) -> Option<Lba> {
        let place = self.place[page.0 as usize];
        (place != NOWHERE).then_some(place)
    }

    fn wants_time(&self) -> bool {
        true
    }

    fn now(&mut self, at_us: u64) {
        self.now_us = at_us;
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
        for page in pages {
            let place = std::mem::replace(&mut self.place[page as usize], NOWHERE);
            if place != NOWHERE {
                self.placed.remove(page);
                self.release(place);
            }
        }
    }

    fn check(&self) {
        let mut placed = 0;
        for (page, place) in self.place.iter().enumerate() {
            let page = page as u32;
            assert_eq!(self.placed.contains(page), *place != NOWHERE);
            if *place != NOWHERE {
                placed += 1;
                assert_eq!(self.page_at.get(place), Some(&page), "two pages share place {place}");
                assert!(*place < self.end, "place {place} is not counted");
            }
        }
        assert_eq!(self.page_at.len(), placed, "a place belongs to no page");
        for place in &self.free {
            assert!((self.recorded.end()..self.end).contains(place), "no substitute: {place}");
            assert!(!self.page_at.contains_key(place), "place {place} is free and taken");
        }
    }
}

#[cfg(test)]
mod tests;
