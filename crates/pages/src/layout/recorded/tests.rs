//! The layout beside a slow model that searches the whole recording for each page, and its rules
//! one by one.

use crate::{
    layout::{Layout, Selection},
    system::Cell,
    writeback::Modes,
};
use flashsift_caches::{
    policy,
    trace::{Tables, Trace, TraceBuilder, Unit},
};
use flashsift_events::{
    address::Lba,
    event::{About, Action, Event, FileId, Knows, Side, Space},
    page::Page,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const FILES: u64 = 4;
const PAGES: u64 = 12;

#[derive(Clone, Copy, Debug)]
enum Happens {
    Write { file: u64, page: u64, pages: u64 },
    Place { file: u64, page: u64, pages: u64, at: Lba },
    Truncate { file: u64, page: u64 },
}

impl Happens {
    fn action(self) -> Action<'static> {
        match self {
            Self::Write { file, page, pages } => {
                let (offset, len) = (page * 4096, pages * 4096);
                Action::Write { open: None, file: FileId(file), offset, len, sync: false }
            }
            Self::Place { file, page, pages, at } => {
                let (offset, len, at) = (page * 4096, pages * 4096, at * 4096);
                Action::Place { file: FileId(file), offset, len, at }
            }
            Self::Truncate { file, page } => {
                Action::Truncate { file: FileId(file), size: page * 4096 }
            }
        }
    }
}

fn happens() -> impl Strategy<Value = Happens> {
    let range = || (0..FILES, 0..PAGES, 1..4_u64);
    prop_oneof![
        range().prop_map(|(file, page, pages)| Happens::Write { file, page, pages }),
        (range(), 0..30_u64).prop_map(|((file, page, pages), at)| Happens::Place {
            file,
            page,
            pages,
            at
        }),
        (0..FILES, 0..PAGES).prop_map(|(file, page)| Happens::Truncate { file, page }),
    ]
}

/// A trace of these events, event n at n µs. Files with an even number exist before it.
fn trace(events: &[Happens]) -> Trace {
    let knows = Knows { times: true, writes: true, removals: true, places: true, ..Knows::NOTHING };
    let about =
        About { epoch_us: None, boot_us: None, side: Side::Before, space: Space::Files, knows };
    let mut builder = TraceBuilder::new(about, Unit::Page, u64::MAX)
        .with_tables(Tables { places: true, ..Tables::default() });
    let created = (0..FILES).filter(|file| file % 2 == 1);
    let opens = created.map(|file| Action::Open { open: None, file: FileId(file), created: true });
    let opens = opens.map(|action| Event { at_us: 0, pid: 0, tid: 0, action });
    let events = events.iter().enumerate().map(|(n, event)| {
        let (at_us, action) = (n as u64, event.action());
        Event { at_us, pid: 0, tid: 0, action }
    });
    builder.extend(&opens.chain(events).collect::<Vec<_>>()).unwrap();
    builder.finish().unwrap()
}

fn layout(trace: &Trace) -> Box<dyn Layout> {
    let chosen = Selection::parse("recorded").unwrap();
    (chosen.spec.build)(trace, &chosen.params)
}

/// Everything by searching lists.
struct Model<'a> {
    events: &'a [Happens],
    place: BTreeMap<(u64, u64), Lba>,
    end: Lba,
    recorded_end: Lba,
    free: BTreeSet<Lba>,
}

impl<'a> Model<'a> {
    fn new(events: &'a [Happens], pages: impl Iterator<Item = (u64, u64)>) -> Self {
        let mut model =
            Self { events, place: BTreeMap::new(), end: 0, recorded_end: 0, free: BTreeSet::new() };
        model.recorded_end = model.given().max().map_or(0, |last| last + 1);
        model.end = model.recorded_end;
        let last = events.iter().rposition(|event| !matches!(event, Happens::Place { .. }));
        for (file, page) in pages.filter(|(file, _)| file % 2 == 0) {
            if let Some((n, Some(place))) = model.history(file, page).first().copied()
                && n >= last.unwrap_or(0)
                && !model.is_taken(place)
            {
                model.place.insert((file, page), place);
            }
        }
        model
    }

    /// Places that the recording gives to any page.
    fn given(&self) -> impl Iterator<Item = Lba> {
        self.events.iter().flat_map(|event| match *event {
            Happens::Place { pages, at, .. } => at..at + pages,
            _ => 0..0,
        })
    }

    /// The places and removals (`None`) of a page, each with the number of its event.
    fn history(&self, of: u64, number: u64) -> Vec<(usize, Option<Lba>)> {
        let events = self.events.iter().enumerate().filter_map(|(n, event)| match *event {
            Happens::Place { file, page, pages, at }
                if file == of && (page..page + pages).contains(&number) =>
            {
                Some((n, Some(at + number - page)))
            }
            Happens::Truncate { file, page } if file == of && page <= number => Some((n, None)),
            _ => None,
        });
        events.collect()
    }

    fn is_taken(&self, place: Lba) -> bool {
        self.place.values().any(|taken| *taken == place)
    }

    fn write(&mut self, (file, page): (u64, u64), now: usize) -> Lba {
        let history = self.history(file, page);
        let newest = history.iter().rfind(|(n, _)| *n <= now).and_then(|(_, place)| *place);
        let next = history.iter().find(|(n, _)| *n > now).and_then(|(_, place)| *place);
        let present = self.place.get(&(file, page)).copied();
        let place = match newest.or(next) {
            Some(place) if present == Some(place) || !self.is_taken(place) => Some(place),
            Some(_) => present,
            None => present.or_else(|| {
                let of_file = || self.place.range((file, 0)..=(file, u64::MAX));
                let before = of_file().rfind(|((_, other), _)| *other < page);
                let behind = of_file().find(|((_, other), _)| *other > page);
                let beside = before.or(behind).map(|((_, other), place)| {
                    (*place as i64 + page as i64 - *other as i64) as Lba
                })?;
                let is_free = !self.is_taken(beside) && self.given().all(|given| given != beside);
                (beside < self.recorded_end && is_free).then_some(beside)
            }),
        };
        let place = place.unwrap_or_else(|| {
            self.free.pop_first().unwrap_or_else(|| {
                self.end += 1;
                self.end - 1
            })
        });
        if present != Some(place) {
            self.free.extend(present.filter(|present| *present >= self.recorded_end));
        }
        self.place.insert((file, page), place);
        place
    }

    fn truncate(&mut self, file: u64, from: u64) {
        for page in from..100 {
            let place = self.place.remove(&(file, page));
            self.free.extend(place.filter(|place| *place >= self.recorded_end));
        }
    }
}

proptest! {
    /// Over random recordings, written back at random times, every page gets the place that the
    /// model finds by its search, and no two share one.
    // Promises: Placement 9.
    #[test]
    fn agrees_with_a_search_of_the_recording(
        events in prop::collection::vec(happens(), 1..60),
        writes in prop::collection::vec((0..60_usize, 0..FILES, 0..PAGES + 3), 0..80),
    ) {
        let trace = trace(&events);
        let mut layout = layout(&trace);
        let page_at = |file, page| trace.page_of(FileId(file), page);
        let all = (0..FILES).flat_map(|file| (0..PAGES + 3).map(move |page| (file, page)));
        let touched: Vec<_> = all.filter(|(file, page)| page_at(*file, *page).is_some()).collect();
        let mut model = Model::new(&events, touched.iter().copied());
        for (n, event) in events.iter().enumerate() {
            layout.now(n as u64);
            if let Happens::Truncate { file, page } = *event {
                model.truncate(file, page);
                for number in page..PAGES + 3 {
                    if let Some(Page(page)) = page_at(file, number) {
                        layout.free(page..page + 1);
                    }
                }
            }
            for (_, file, page) in writes.iter().filter(|(at, ..)| *at == n) {
                if let Some(rank) = page_at(*file, *page) {
                    prop_assert_eq!(layout.write(rank), model.write((*file, *page), n));
                }
            }
            layout.check();
            for (file, page) in &touched {
                let place = layout.place(page_at(*file, *page).unwrap());
                prop_assert_eq!(place, model.place.get(&(*file, *page)).copied());
            }
        }
    }

    /// The loop that only counts and the loop that sends requests tell the layout the same times.
    #[test]
    fn requests_are_counted_as_they_are_sent(
        events in prop::collection::vec(happens(), 1..60),
        frames in 1..10_u32,
    ) {
        let trace = trace(&events);
        let (policy, layout) =
            (policy::Selection::parse("lru").unwrap(), Selection::parse("recorded").unwrap());
        let cell = Cell {
            system: &crate::system::PLAIN,
            policy: &policy,
            frames,
            layout: &layout,
            writeback: Modes::default(),
            drain: true,
            write_miss_reads: false,
            request_pages_max: 8,
            discards: true,
            metadata: None,
            readahead: None,
            attribution: None,
            lines: None,
            reads: None,
        };
        let mut requests = 0;
        let mut count = |_| requests += 1;
        let sent = cell.run(&trace, None, Some(&mut count));
        let counted = cell.run(&trace, None, None);
        prop_assert_eq!(sent, counted);
        prop_assert!(requests >= sent.device.write_requests);
    }
}

/// Pages 0 to 3 of file 1 are written at 0 µs, placed at 10 and 20 µs, and page 3 never.
fn grown() -> Vec<Happens> {
    let mut events = vec![Happens::Write { file: 1, page: 0, pages: 1 }; 30];
    events[0] = Happens::Write { file: 1, page: 0, pages: 4 };
    events[10] = Happens::Place { file: 1, page: 0, pages: 2, at: 100 };
    events[20] = Happens::Place { file: 1, page: 0, pages: 3, at: 200 };
    events
}

/// A page moves with the recording, and takes the next place before the kernel allocated one.
// Promises: Placement 9.
#[test]
fn a_page_lies_at_the_newest_place_or_at_the_next() {
    let trace = trace(&grown());
    let mut layout = layout(&trace);
    let mut written = |now, page| {
        layout.now(now);
        let place = layout.write(Page(page));
        layout.check();
        place
    };
    assert_eq!(written(0, 0), 100, "the next one");
    assert_eq!(written(10, 0), 100, "the newest one");
    assert_eq!(written(19, 1), 101);
    assert_eq!(written(19, 2), 202, "the next one");
    assert_eq!(written(20, 0), 200, "the file system moved it");
    assert_eq!(written(20, 3), 203, "behind all, which is beside its file, too");
    assert_eq!(written(25, 1), 201);
}

/// A place that the kernel has reused stays with the page that was written there until that page
/// is written again; the other page waits behind all.
// Promises: Placement 10.
#[test]
fn a_reused_place_stays_with_the_page_that_holds_it() {
    let mut events = vec![Happens::Write { file: 3, page: 0, pages: 1 }; 30];
    events[0] = Happens::Write { file: 1, page: 0, pages: 1 };
    events[1] = Happens::Place { file: 1, page: 0, pages: 1, at: 5 };
    events[10] = Happens::Place { file: 1, page: 0, pages: 1, at: 6 };
    events[20] = Happens::Place { file: 3, page: 0, pages: 1, at: 5 };
    let trace = trace(&events);
    let mut layout = layout(&trace);
    let [old, new] = [Page(0), Page(1)];
    layout.now(2);
    assert_eq!(layout.write(old), 5);
    layout.now(21);
    assert_eq!(layout.write(new), 7, "behind all: its place is not free yet");
    assert_eq!(layout.read(old), 5, "it was not written since");
    assert_eq!(layout.write(old), 6);
    assert_eq!(layout.freed(), std::slice::from_ref(&(5..6)));
    assert_eq!(layout.write(new), 5, "its place is free now");
    layout.check();
}

/// Places recorded before a page was removed, or after its next removal, are not used.
// Promises: Placement 9.
#[test]
fn places_belong_to_a_page_between_its_removals() {
    let mut events = vec![Happens::Write { file: 1, page: 0, pages: 1 }; 30];
    events[5] = Happens::Place { file: 1, page: 0, pages: 1, at: 50 };
    events[10] = Happens::Truncate { file: 1, page: 0 };
    events[20] = Happens::Truncate { file: 1, page: 0 };
    events[25] = Happens::Place { file: 1, page: 0, pages: 1, at: 60 };
    let trace = trace(&events);
    assert_eq!(trace.places().unwrap().pages_without(), 0);
    let mut layout = layout(&trace);
    for (now, wanted) in [(1, 50), (7, 50), (12, 61), (22, 60)] {
        layout.now(now);
        assert_eq!(layout.write(Page(0)), wanted, "at {now} µs");
        layout.free(0..1);
    }
}

/// Places in parts of a page cannot be distinguished in units of pages; they are counted.
// Promises: Placement 11.
#[test]
fn places_of_small_blocks_are_counted_and_left_out() {
    let knows = Knows { times: true, writes: true, places: true, ..Knows::NOTHING };
    let about =
        About { epoch_us: None, boot_us: None, side: Side::Before, space: Space::Files, knows };
    let mut builder = TraceBuilder::new(about, Unit::Page, u64::MAX)
        .with_tables(Tables { places: true, ..Tables::default() });
    let (open, file) = (None, FileId(0));
    let write = Action::Write { open, file, offset: 0, len: 1024, sync: false };
    let place = Action::Place { file, offset: 0, len: 1024, at: 1024 };
    for action in [write, place] {
        builder.extend(&[Event { at_us: 0, pid: 0, tid: 0, action }]).unwrap();
    }
    let trace = builder.finish().unwrap();
    let places = trace.places().unwrap();
    assert_eq!((places.unaligned(), places.pages_without()), (1, 1));
}
