//! The table of recorded places: where the recorded file system kept each page, over time.

use super::{Run, builder::ranks_of};
use flashsift_events::{
    address::Lba,
    event::{FileId, Micros},
    page::{PAGE_BYTES, Page},
    structure::Extents,
};

/// A page without a place.
const NOWHERE: Lba = Lba::MAX;

/// The places that a recording gave to the pages of its trace, over time.
pub struct RecordedPlaces {
    /// By page: the number of its first record, and finally the number of records.
    firsts: Vec<u32>,
    /// By page, each page's in the order of the recording.
    records: Vec<Record>,
    given: Extents,
    /// Time of the last event that is no place.
    duration_us: Micros,
    pages_without: u32,
    unaligned: u64,
}

/// From a time on, a page has this place, or is removed.
#[derive(Clone, Copy)]
struct Record {
    at_us: Micros,
    place: Lba,
}

impl Record {
    fn place(&self) -> Option<Lba> {
        (self.place != NOWHERE).then_some(self.place)
    }
}

impl RecordedPlaces {
    /// Returns the place of a page that is written or read at this time: the newest one that was
    /// recorded until then; if there is none, the next one. A place belongs to the page only
    /// between two removals.
    pub fn at(&self, page: Page, now_us: Micros) -> Option<Lba> {
        let records = self.get(page);
        let next = records.partition_point(|record| record.at_us <= now_us);
        let newest = next.checked_sub(1).and_then(|newest| records[newest].place());
        newest.or_else(|| records.get(next)?.place())
    }

    /// Returns the place that the end of the recording tells, if no event gives the page one before
    /// or removes it: the page had it from the beginning if its file existed then.
    pub fn only_at_the_end(&self, page: Page) -> Option<Lba> {
        let first = self.get(page).first().filter(|first| first.at_us >= self.duration_us)?;
        first.place()
    }

    /// Returns whether the recording gave this place to any page, also to one that the trace does
    /// not touch.
    pub fn is_given(&self, place: Lba) -> bool {
        self.given.missing(place..place + 1) == 0
    }

    /// Returns the place after the last one.
    pub fn end(&self) -> Lba {
        self.given.end()
    }

    /// Returns the number of pages that the trace touches and that never had a place.
    pub fn pages_without(&self) -> u32 {
        self.pages_without
    }

    /// Returns the number of places that were left out because they are no multiples of 4 KiB.
    pub fn unaligned(&self) -> u64 {
        self.unaligned
    }

    fn get(&self, page: Page) -> &[Record] {
        let [first, end] = [page.0, page.0 + 1].map(|page| self.firsts[page as usize] as usize);
        &self.records[first..end]
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.firsts.capacity() * size_of::<u32>()
            + self.records.capacity() * size_of::<Record>()
            + self.given.iter().count() * size_of::<std::ops::Range<u64>>()
    }
}

/// Collects what a [`RecordedPlaces`] is made of, in the order of the events.
#[derive(Default)]
pub(super) struct PlacesBuilder {
    ranges: Vec<PlacedRange>,
    unaligned: u64,
}

/// Pages of a file that are placed, or removed if `place` is [`NOWHERE`].
struct PlacedRange {
    at_us: Micros,
    file: FileId,
    first: u64,
    end: u64,
    place: Lba,
}

impl PlacesBuilder {
    /// Takes an [`flashsift_events::event::Action::Place`].
    pub(super) fn placed(&mut self, at_us: Micros, file: FileId, offset: u64, len: u64, at: u64) {
        let end = offset.saturating_add(len);
        if ![offset, end, at].iter().all(|bytes| bytes.is_multiple_of(PAGE_BYTES)) {
            self.unaligned += 1;
            return;
        }
        let (first, end, place) = (offset / PAGE_BYTES, end / PAGE_BYTES, at / PAGE_BYTES);
        self.ranges.push(PlacedRange { at_us, file, first, end, place });
    }

    /// Takes the removal of pages.
    pub(super) fn removed(&mut self, at_us: Micros, file: FileId, first: u64, end: u64) {
        self.ranges.push(PlacedRange { at_us, file, first, end, place: NOWHERE });
    }

    pub(super) fn held_bytes(&self) -> usize {
        self.ranges.capacity() * size_of::<PlacedRange>()
    }

    /// Gives each page its records; `None` if they need more memory than the limit.
    pub(super) fn finish(
        self,
        runs: &[Run],
        pages: u32,
        duration_us: Micros,
        limit_bytes: u64,
    ) -> Option<RecordedPlaces> {
        let mut placed = vec![false; pages as usize];
        let mut given = Vec::new();
        for range in self.ranges.iter().filter(|range| range.place != NOWHERE) {
            given.push(range.place..range.place.saturating_add(range.end - range.first));
            for page in ranks_of(runs, pages, (range.file, range.first, range.end)) {
                placed[page as usize] = true;
            }
        }
        let of = |range: &PlacedRange| {
            let ranks = ranks_of(runs, pages, (range.file, range.first, range.end));
            ranks.filter(|page| placed[*page as usize])
        };
        // Counted first, so that each page's records lie side by side.
        let mut firsts = vec![0_u32; pages as usize + 1];
        let mut total = 0_u64;
        for page in self.ranges.iter().flat_map(of) {
            firsts[page as usize + 1] += 1;
            total += 1;
        }
        if total > u64::from(u32::MAX) || total * size_of::<Record>() as u64 > limit_bytes {
            return None;
        }
        for page in 0..pages as usize {
            firsts[page + 1] += firsts[page];
        }
        let mut ends = firsts.clone();
        let mut records = vec![Record { at_us: 0, place: NOWHERE }; total as usize];
        for range in &self.ranges {
            let mut run = 0;
            for page in of(range) {
                let slot = &mut ends[page as usize];
                let place = match range.place {
                    NOWHERE => NOWHERE,
                    place => place + (number_of(runs, &mut run, page) - range.first),
                };
                // The end of a recording repeats places. Each removal counts: it bounds what is
                // recorded before and after it.
                let repeats = place != NOWHERE
                    && *slot > firsts[page as usize]
                    && records[*slot as usize - 1].place == place;
                if !repeats {
                    records[*slot as usize] = Record { at_us: range.at_us, place };
                    *slot += 1;
                }
            }
        }
        let mut kept = Vec::new();
        for page in 0..pages as usize {
            let from = std::mem::replace(&mut firsts[page], kept.len() as u32);
            kept.extend_from_slice(&records[from as usize..ends[page] as usize]);
        }
        firsts[pages as usize] = kept.len() as u32;
        kept.shrink_to_fit();
        given.sort_unstable_by_key(|range: &std::ops::Range<Lba>| range.start);
        let pages_without = placed.iter().filter(|placed| !**placed).count() as u32;
        let mut extents = Extents::default();
        given.into_iter().for_each(|range| extents.insert(range));
        let unaligned = self.unaligned;
        let records = kept;
        let given = extents;
        Some(RecordedPlaces { firsts, records, given, duration_us, pages_without, unaligned })
    }
}

/// Returns the number of a page in its file. `run` is where the search begins, and where it ended.
fn number_of(runs: &[Run], run: &mut usize, page: u32) -> u64 {
    let here = |run: &Run| (run.first..run.first + run.pages).contains(&page);
    if !here(&runs[*run]) {
        *run = runs.partition_point(|run| run.first <= page) - 1;
    }
    runs[*run].page + u64::from(page - runs[*run].first)
}
