//! The dense trace against its definition: the same pages, computed one by one.

use super::*;
use flashsift_events::{
    event::{Action, Create, Event, Knows, MaybeOwned, Side, Space},
    page::PAGE_BYTES,
};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn about(times: bool) -> About {
    let knows = Knows { times, syncs: true, writes: true, removals: true, ..Knows::NOTHING };
    About { epoch_us: None, boot_us: None, side: Side::Before, space: Space::Files, knows }
}

fn build(actions: &[Action]) -> Trace {
    let mut builder = TraceBuilder::new(about(true), Unit::Page, u64::MAX);
    for (n, action) in actions.iter().enumerate() {
        builder
            .extend(&[Event { at_us: n as u64, pid: 0, tid: 0, action: action.clone() }])
            .unwrap();
    }
    builder.finish().unwrap()
}

/// Builds a trace with all side tables but that of operations; event `n` belongs to process `n`.
fn build_with_tables(actions: &[Action], untouched_within_pages: u32) -> Trace {
    let tables = Tables {
        bytes: true,
        sizes: true,
        owners: true,
        names: true,
        untouched_within_pages,
        reads_ahead_pages: 0,
        places: true,
        operations: false,
    };
    let mut builder = TraceBuilder::new(about(true), Unit::Page, u64::MAX).with_tables(tables);
    for (n, action) in actions.iter().enumerate() {
        let event = Event { at_us: n as u64, pid: n as u32, tid: 0, action: action.clone() };
        builder.extend(&[event]).unwrap();
    }
    builder.finish().unwrap()
}

fn action() -> impl Strategy<Value = Action<'static>> {
    let file = (0..4u64).prop_map(FileId);
    // Around page and leaf borders, and far out.
    let offset = prop_oneof![0..20_000u64, 250_000..280_000u64, (1u64 << 50)..(1 << 50) + 10_000];
    let len = prop_oneof![Just(0), 1..10_000u64, 200_000..800_000u64];
    (0..8u8, file, offset, len).prop_map(|(kind, file, offset, len)| match kind {
        0 | 1 => Action::Read { open: None, file, offset, len },
        2 | 3 => Action::Write { open: None, file, offset, len, sync: kind == 3 },
        4 => Action::Truncate { file, size: offset },
        5 => Action::Punch { file, offset, len },
        6 => Action::Direct { open: None, file, offset, len, write: offset % 2 == 0 },
        _ => Action::Sync { file, offset, len, data_only: false },
    })
}

/// The pages an action reaches, as SEMANTICS.md, "Counting", defines them.
fn pages_of(action: &Action) -> BTreeSet<(u64, u64)> {
    let touched = |file: FileId, offset: u64, len: u64| match len {
        0 => BTreeSet::new(),
        _ => (offset / 4096..=(offset + len - 1) / 4096).map(|page| (file.0, page)).collect(),
    };
    match *action {
        Action::Read { file, offset, len, .. }
        | Action::Write { file, offset, len, .. }
        | Action::Direct { file, offset, len, .. }
        | Action::Sync { file, offset, len, .. } => touched(file, offset, len),
        // Pages wholly inside the hole.
        Action::Punch { file, offset, len } => touched(file, offset, len)
            .into_iter()
            .filter(|(_, p)| p * 4096 >= offset && (p + 1) * 4096 <= offset + len)
            .collect(),
        _ => unreachable!(),
    }
}

/// Pages near touched ones: within the distance, inside the largest size of their file, or touched.
fn near(
    touched: &BTreeSet<(u64, u64)>,
    within: u64,
    largest: &BTreeMap<u64, u64>,
) -> BTreeSet<(u64, u64)> {
    let around = |(file, page): &(u64, u64)| {
        let size = largest.get(file).copied().unwrap_or(0).div_ceil(4096);
        let behind = (page + within).min(size.max(page + 1) - 1);
        (page.saturating_sub(within)..=behind).map(|near| (*file, near)).collect::<Vec<_>>()
    };
    touched.iter().flat_map(around).chain(touched.iter().copied()).collect()
}

proptest! {
    /// With the table of reads, pages near touched ones have ranks between those, steps cover the
    /// same pages as without, and each read knows the end of its file at that time.
    // Promises: Read-ahead 6.
    #[test]
    fn reads_know_their_run_and_the_end_of_their_file(actions in prop::collection::vec(action(), 0..30)) {
        const WITHIN: u32 = 100;
        let tables = Tables { reads_ahead_pages: WITHIN, ..Tables::default() };
        let mut builder = TraceBuilder::new(about(true), Unit::Page, u64::MAX).with_tables(tables);
        let (mut touched, mut largest) = (BTreeSet::new(), BTreeMap::new());
        for action in &actions {
            builder.extend(&[Event { at_us: 0, pid: 0, tid: 0, action: action.clone() }]).unwrap();
            let (file, size) = match *action {
                Action::Read { file, offset, len, .. }
                | Action::Write { file, offset, len, .. }
                | Action::Direct { file, offset, len, .. } if len > 0 => {
                    touched.extend(pages_of(action));
                    (file, offset + len)
                }
                Action::Truncate { file, size } => (file, size),
                _ => continue,
            };
            let known = largest.entry(file.0).or_insert(0);
            *known = size.max(*known);
        }
        let trace = builder.finish().unwrap();
        let plain = build(&actions);
        let all: Vec<_> = near(&touched, u64::from(WITHIN), &largest).into_iter().collect();
        prop_assert_eq!(trace.pages() as usize, all.len());
        prop_assert_eq!(trace.touched_pages() as usize, touched.len());
        let of_runs: Vec<_> = trace.runs().iter().flat_map(|run| (0..u64::from(run.pages)).map(|n| (run.file.0, run.page + n))).collect();
        prop_assert_eq!(&of_runs, &all);
        // Reads and writes cover the same pages.
        let accesses = |trace: &Trace| -> Vec<_> {
            let is_access = |step: &&Step| !matches!(step.kind(), StepKind::Sync | StepKind::SyncAll | StepKind::Drop);
            let place = |page: u32| trace.place_of(Page(page)).unwrap();
            trace.steps().iter().filter(is_access).map(|step| (step.kind(), step.range().map(place).collect::<Vec<_>>())).collect()
        };
        prop_assert_eq!(accesses(&trace), accesses(&plain));
        // The size of a file is known from its first truncation on.
        let mut known: BTreeMap<u64, u64> = BTreeMap::new();
        let mut reads = (0..trace.steps().len()).filter(|n| trace.steps()[*n].kind() == StepKind::Read);
        for action in &actions {
            match *action {
                Action::Truncate { file, size } => { known.insert(file.0, size); }
                Action::Write { file, offset, len, .. } | Action::Direct { file, offset, len, write: true, .. } => {
                    if let Some(size) = known.get_mut(&file.0) { *size = (*size).max(offset + len); }
                }
                Action::Read { file, offset, len, .. } if len > 0 => {
                    let n = reads.next().unwrap();
                    let (read, step) = (trace.read(n), trace.steps()[n]);
                    let run = trace.runs()[read.run as usize];
                    prop_assert_eq!(run.file, file);
                    prop_assert!(step.range().start >= run.first && step.range().end <= run.first + run.pages);
                    let size = known.get(&file.0).copied().filter(|size| *size < 1 << 44);
                    let size = size.unwrap_or(largest[&file.0]);
                    let end = size.div_ceil(4096).max((offset + len).div_ceil(4096));
                    let end = end.min(run.page + u64::from(run.pages));
                    prop_assert_eq!(run.page + u64::from(read.end - run.first), end);
                    prop_assert!(!read.is_fault, "the trace knows no opens");
                }
                _ => {}
            }
        }
        prop_assert_eq!(reads.next(), None);
    }
}

proptest! {
    /// Ranks follow (file, page) order. Each step covers exactly the pages of its action, at the
    /// action's time.
    // Promises: Counting 1, Counting 6, Placement 1.
    #[test]
    fn steps_cover_the_pages_of_their_actions(actions in prop::collection::vec(action(), 0..40)) {
        let trace = build(&actions);
        let mut all = BTreeSet::new();
        for action in &actions {
            if matches!(action, Action::Read { .. } | Action::Write { .. } | Action::Direct { .. }) {
                all.extend(pages_of(action));
            }
        }
        let rank: BTreeMap<(u64, u64), u32> = all.iter().enumerate().map(|(n, page)| (*page, n as u32)).collect();
        prop_assert_eq!(trace.pages() as usize, all.len());
        let of_runs: Vec<_> = trace.runs().iter().flat_map(|run| (0..u64::from(run.pages)).map(|n| (run.file.0, run.page + n))).collect();
        prop_assert_eq!(of_runs, all.iter().copied().collect::<Vec<_>>());
        let maximal = trace.runs().windows(2).all(|w| w[0].file != w[1].file || w[0].page + u64::from(w[0].pages) < w[1].page);
        prop_assert!(maximal, "runs are joined where they touch");

        let mut reached: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        for (n, step) in trace.steps().iter().enumerate() {
            reached.entry(trace.at_us(n)).or_default().extend(step.range());
        }
        let mut live: BTreeSet<u32> = rank.values().copied().collect();
        for (n, action) in actions.iter().enumerate() {
            let mut wanted: BTreeSet<u32> = match *action {
                Action::Truncate { file, size } => {
                    rank.iter().filter(|((f, p), _)| *f == file.0 && p * 4096 >= size).map(|(_, r)| *r).collect()
                }
                _ => pages_of(action).iter().filter_map(|page| rank.get(page).copied()).collect(),
            };
            match action {
                // A truncation of pages that no longer exist is not a step.
                Action::Truncate { .. } | Action::Punch { .. } => {
                    if wanted.is_disjoint(&live) {
                        wanted.clear();
                    }
                    live.retain(|page| !wanted.contains(page));
                }
                Action::Read { .. } | Action::Write { .. } | Action::Direct { .. } => live.extend(&wanted),
                _ => {}
            }
            prop_assert_eq!(reached.remove(&(n as u64)).unwrap_or_default(), wanted, "{:?}", action);
        }
    }

    /// Side tables change no step, time, rank or total. Each step has the bytes that its action
    /// covers in each page, and its process and file.
    #[test]
    fn step_tables_leave_the_steps_unchanged(actions in prop::collection::vec(action(), 0..40)) {
        let (plain, trace) = (build(&actions), build_with_tables(&actions, 3));
        prop_assert_eq!(plain.steps(), trace.steps());
        prop_assert_eq!((plain.runs(), plain.totals()), (trace.runs(), trace.totals()));
        prop_assert_eq!((plain.tables(), plain.untouched()), (Tables::default(), &[][..]));
        for (n, step) in trace.steps().iter().enumerate() {
            let event = trace.at_us(n);
            prop_assert_eq!(event, plain.at_us(n));
            let (file, covered) = match actions[event as usize] {
                Action::Read { file, offset, len, .. }
                | Action::Write { file, offset, len, .. }
                | Action::Direct { file, offset, len, .. } => {
                    (file, offset..offset + len)
                }
                Action::Sync { file, .. } | Action::Truncate { file, .. } | Action::Punch { file, .. } => {
                    (file, 0..u64::MAX)
                }
                _ => unreachable!(),
            };
            prop_assert_eq!(trace.owner(n), Owner { process: event as u32, file: Some(file) });
            for page in step.range().map(Page) {
                let (of, number) = trace.place_of(page).unwrap();
                let start = number * PAGE_BYTES;
                let from = covered.start.max(start) - start;
                let to = covered.end.min(start + PAGE_BYTES) - start;
                let Bytes { from: first, to: end } = trace.bytes(n, page);
                prop_assert_eq!((of, u64::from(first), u64::from(end)), (file, from, to));
                let partial = step.kind() == StepKind::Write && (from, to) != (0, PAGE_BYTES);
                prop_assert!(!partial || step.is_partial(page.0));
            }
        }
    }

    /// Events are taken some at a time, and the leaves of those are looked up together. A trace is
    /// the same however they come, with and without side tables.
    #[test]
    fn batches_change_nothing(actions in prop::collection::vec(action(), 0..100)) {
        let events: Vec<_> = actions.iter().enumerate().map(|(n, action)| {
            Event { at_us: n as u64, pid: n as u32, tid: 0, action: action.clone() }
        }).collect();
        let tables = Tables { bytes: true, owners: true, places: true, ..Tables::default() };
        for (tables, one_by_one) in
            [(Tables::default(), build(&actions)), (tables, build_with_tables(&actions, 0))]
        {
            let mut builder =
                TraceBuilder::new(about(true), Unit::Page, u64::MAX).with_tables(tables);
            builder.extend(&events).unwrap();
            let trace = builder.finish().unwrap();
            prop_assert_eq!(trace.steps(), one_by_one.steps());
            prop_assert_eq!((trace.runs(), trace.totals()), (one_by_one.runs(), one_by_one.totals()));
            for n in 0..trace.steps().len() {
                prop_assert_eq!(trace.at_us(n), one_by_one.at_us(n));
                prop_assert!(!tables.owners || trace.owner(n) == one_by_one.owner(n));
            }
        }
    }

    /// The untouched pages are those inside their file's size and near a touched page of it: each
    /// once, in (file, page) order, with ranks after those of the touched pages.
    #[test]
    fn untouched_pages_are_near_touched_ones(
        actions in prop::collection::vec(action(), 0..30),
        within in prop_oneof![Just(1u32), Just(2), Just(8), Just(32), Just(200)],
    ) {
        let trace = build_with_tables(&actions, within);
        let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
        let mut touched: BTreeSet<(u64, u64)> = BTreeSet::new();
        for action in &actions {
            let (file, size) = match *action {
                Action::Read { file, offset, len, .. }
                | Action::Write { file, offset, len, .. }
                | Action::Direct { file, offset, len, .. } if len > 0 => {
                    touched.extend(pages_of(action));
                    (file, offset + len)
                }
                Action::Truncate { file, size } => (file, size),
                _ => continue,
            };
            let largest = sizes.entry(file.0).or_default();
            *largest = size.max(*largest);
        }
        let within = u64::from(within);
        let wanted: BTreeSet<(u64, u64)> = touched
            .iter()
            .flat_map(|(file, page)| (page.saturating_sub(within)..=page + within).map(|page| (*file, page)))
            .filter(|(file, page)| page * PAGE_BYTES < sizes[file] && !touched.contains(&(*file, *page)))
            .collect();
        let pages = |run: &Run| {
            let (file, page) = (run.file.0, run.page);
            (0..u64::from(run.pages)).map(move |n| (file, page + n))
        };
        let found: Vec<_> = trace.untouched().iter().flat_map(pages).collect();
        prop_assert_eq!(&found, &wanted.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(found.len(), trace.untouched_pages() as usize);
        for (n, (file, number)) in touched.into_iter().chain(found).enumerate() {
            let page = Page(n as u32);
            prop_assert_eq!(trace.page_of(FileId(file), number), Some(page));
            prop_assert_eq!(trace.place_of(page), Some((FileId(file), number)));
        }
        let beyond = sizes.values().max().copied().unwrap_or(0) / PAGE_BYTES + 1;
        prop_assert_eq!(trace.page_of(FileId(0), beyond), None);
    }

    /// The future of each access is the next access of its page, unless the page is dropped before,
    /// or written past the cache.
    // Promises: Counting 12.
    #[test]
    fn future_looks_ahead(actions in prop::collection::vec(action(), 0..25)) {
        let trace = build(&actions);
        let future = trace.future().unwrap();
        let mut events: Vec<(bool, u32)> = Vec::new();
        for step in trace.steps() {
            match step.kind() {
                StepKind::Sync | StepKind::DirectRead => {}
                kind => {
                    let is_access = !matches!(kind, StepKind::Drop | StepKind::DirectWrite);
                    events.extend(step.range().map(|page| (is_access, page)));
                }
            }
        }
        let accesses = (0..events.len()).filter(|n| events[*n].0);
        for (position, n) in accesses.enumerate() {
            let next = (n + 1..events.len()).find(|later| events[*later].1 == events[n].1);
            let wanted = match next {
                Some(next) if events[next].0 => events[..next].iter().filter(|(access, _)| *access).count() as u32,
                _ => NEVER,
            };
            prop_assert_eq!(future.next(position), wanted);
        }
    }
}

/// An object trace keeps the object of each step, although all objects are pages of one file in it.
/// A sync of everything has a process and no file. A trace without requested tables holds none.
#[test]
fn objects_and_syncs_of_everything_have_owners() {
    let tables = Tables { owners: true, ..Tables::default() };
    let mut builder = TraceBuilder::new(about(false), Unit::Request, u64::MAX).with_tables(tables);
    let read = Action::Read { open: None, file: FileId(77), offset: 0, len: 10 };
    for (pid, action) in [(5, read), (6, Action::SyncAll)] {
        builder.extend(&[Event { at_us: 0, pid, tid: 0, action }]).unwrap();
    }
    let trace = builder.finish().unwrap();
    assert_eq!(trace.owner(0), Owner { process: 5, file: Some(FileId(77)) });
    assert_eq!(trace.owner(1), Owner { process: 6, file: None });
    let read = [Action::Read { open: None, file: FileId(0), offset: 0, len: 5 * PAGE_BYTES }];
    let (plain, with) = (build(&read), build_with_tables(&read, 1));
    // A step's bytes, size and owner; a number for each page and for their end.
    assert_eq!(with.held_bytes() - plain.held_bytes(), 4 + 4 + 12 + 6 * 4);
}

/// Times are returned exactly, even beyond 32 bits.
#[test]
fn times_are_exact() {
    let times = [0, 5, u64::from(u32::MAX), 1 << 32, (1 << 32) + 7, 1 << 50, u64::MAX];
    let mut builder = TraceBuilder::new(about(true), Unit::Page, u64::MAX);
    for at_us in times {
        let action = Action::Read { open: None, file: FileId(0), offset: 0, len: 1 };
        builder.extend(&[Event { at_us, pid: 0, tid: 0, action }]).unwrap();
    }
    let trace = builder.finish().unwrap();
    assert_eq!((0..times.len()).map(|n| trace.at_us(n)).collect::<Vec<_>>(), times);
}

/// A write of a part of a page is marked as partial; a write of the whole page is not.
// Promises: Counting 3.
#[test]
fn partial_pages_are_marked() {
    let write =
        |offset, len| Action::Write { open: None, file: FileId(0), offset, len, sync: false };
    for (offset, len, partial) in [
        (0, 4096, vec![]),
        (0, 100, vec![0]),
        (100, 4096, vec![0, 1]),
        (100, 3 * 4096 - 100, vec![0]),
        (0, 2 * 4096 + 1, vec![2]),
    ] {
        let trace = build(&[write(offset, len)]);
        let step = trace.steps()[0];
        assert_eq!(
            step.range().filter(|page| step.is_partial(*page)).collect::<Vec<_>>(),
            partial,
            "{offset}+{len}"
        );
    }
}

/// A request of zero bytes touches no page and is counted. Limits of memory and of counts are
/// reported as errors.
// Promises: Counting 1.
#[test]
fn limits_are_reported() {
    let read = |len| Action::Read { open: None, file: FileId(0), offset: 0, len };
    let trace = build(&[read(0), read(1)]);
    assert_eq!((trace.totals().empty_requests, trace.totals().requests, trace.pages()), (1, 1, 1));

    let mut builder = TraceBuilder::new(about(false), Unit::Page, 1000);
    let event = Event { at_us: 0, pid: 0, tid: 0, action: read(4096) };
    let error = (0..1000).find_map(|_| builder.extend(std::slice::from_ref(&event)).err()).unwrap();
    assert!(matches!(error, TraceError::TooMuchMemory { limit_bytes: 1000, .. }), "{error}");
}

/// A sync of a file over more pages than a step can count becomes several steps that cover all of
/// them.
#[test]
fn long_ranges_are_split() {
    let mut builder = TraceBuilder::new(about(true), Unit::Page, u64::MAX);
    let mut push = |action| builder.extend(&[Event { at_us: 0, pid: 0, tid: 0, action }]).unwrap();
    for part in 0..5 {
        push(Action::Read { open: None, file: FileId(0), offset: part << 31, len: 1 << 31 });
    }
    push(Action::Sync { file: FileId(0), offset: 0, len: u64::MAX, data_only: false });
    let trace = builder.finish().unwrap();
    let syncs: Vec<_> = trace.steps()[5..].iter().map(|step| step.range()).collect();
    assert!(syncs.len() > 1);
    assert_eq!(syncs.iter().map(|range| range.len()).sum::<usize>(), trace.pages() as usize);
    assert_eq!((syncs[0].start, syncs.last().unwrap().end), (0, trace.pages()));
}

/// A file created in the trace has no page before its first access, so that truncating it is not a
/// step. Its creation, and the open that created it, mark it as created; a size, a name, or an open
/// that found the file do not.
// Promises: Traces 22.
#[test]
fn a_creation_and_its_open_create_a_file_once() {
    let file = FileId(0);
    let owner = None;
    let create = Create { file, name: "/a".into(), owner, mode: Some(0o600), sync: false };
    let create = || Action::Create(MaybeOwned::owned(create.clone()));
    let open = |created| Action::Open { file, open: None, created };
    let size = Action::Size { file, size: 1 << 20 };
    let bind = Action::Bind { file, name: "/a".into() };
    let drops = |first: &[Action]| {
        let cut = Action::Truncate { file, size: 0 };
        let read = Action::Read { file, open: None, offset: 0, len: 8192 };
        let trace = build(&[first, &[cut, read]].concat());
        (trace.totals().drops, trace.steps().len())
    };
    for made in [&[create()][..], &[open(true)], &[create(), open(true)], &[create(), open(false)]]
    {
        assert_eq!(drops(made), (0, 1), "{made:?}");
    }
    for older in [&[][..], &[open(false)], &[size], &[bind]] {
        assert_eq!(drops(older), (1, 2), "{older:?}");
    }
}

/// Every sync of a process becomes a step, even if it reaches no page of the trace; `sync` has a
/// step kind of its own.
#[test]
fn every_sync_is_a_step() {
    let sync =
        |file, offset, len| Action::Sync { file: FileId(file), offset, len, data_only: false };
    let write =
        Action::Write { open: None, file: FileId(1), offset: 0, len: 3 * 4096, sync: false };
    let mut syncs = [sync(1, 4096, 4097), sync(1, 0, 0), sync(7, 0, u64::MAX), Action::SyncAll];
    if let Action::Sync { data_only, .. } = &mut syncs[0] {
        *data_only = true;
    }
    let trace = build(&[&[write][..], &syncs].concat());
    let steps: Vec<_> = trace.steps()[1..].iter().map(|step| (step.kind(), step.range())).collect();
    let sync = StepKind::Sync;
    assert_eq!(steps, [(sync, 1..3), (sync, 0..0), (sync, 0..0), (StepKind::SyncAll, 0..0)]);
    assert_eq!((trace.totals().syncs, trace.syncing_steps()), (4, 4));
    let data_only: Vec<_> = trace.steps()[1..].iter().map(|step| step.is_data_only()).collect();
    assert_eq!(data_only, [true, false, false, false]);
    assert!(build(&syncs).steps().is_empty(), "nothing can be dirty");
}

proptest! {
    /// A place is no access, and does not make the trace longer.
    // Promises: Record 21.
    #[test]
    fn places_change_nothing(actions in prop::collection::vec((action(), 0..3u8), 1..60)) {
        let without: Vec<_> = actions.iter().map(|(action, _)| action.clone()).collect();
        let event = |at_us, action| Event { at_us, pid: 0, tid: 0, action };
        let place =
            |n: usize| Action::Place { file: FileId(n as u64 % 5), offset: 0, len: 1 << 20, at: 0 };
        let tables = Tables { places: true, ..Tables::default() };
        let mut builder =
            TraceBuilder::new(about(true), Unit::Page, u64::MAX).with_tables(tables);
        for (n, (action, places)) in actions.iter().enumerate() {
            builder.extend(&[event(n as u64, action.clone())]).unwrap();
            for _ in 0..*places {
                builder.extend(&[event(n as u64, place(n))]).unwrap();
            }
        }
        builder.extend(&[event(1 << 40, place(0))]).unwrap();
        let (with, without) = (builder.finish(), build_all(&without));
        let (Ok(with), Ok(without)) = (with, without) else { return Ok(()) };
        prop_assert_eq!(with.totals(), without.totals());
        prop_assert_eq!(with.runs(), without.runs());
        prop_assert_eq!(&with.pages_before, &without.pages_before);
        prop_assert!(with.steps() == without.steps());
    }
}

/// As [`build`], with the builder's error.
fn build_all(actions: &[Action<'static>]) -> Result<Trace, TraceError> {
    let mut builder = TraceBuilder::new(about(true), Unit::Page, u64::MAX);
    for (n, action) in actions.iter().enumerate() {
        builder.extend(&[Event { at_us: n as u64, pid: 0, tid: 0, action: action.clone() }])?;
    }
    builder.finish()
}

/// Each operation knows how many steps come before it; syncs come behind the step of what they
/// write. The root is the deepest directory above every name, and a directory is made when a file
/// is first created in it.
// Promises: Metadata 3.
#[test]
fn operations_lie_between_steps() {
    use crate::trace::OperationKind as K;
    use flashsift_events::event::Renamed;
    let file = FileId(1);
    let create = |file, name: &'static str| {
        let (file, name) = (FileId(file), name.into());
        let create = Create { file, name, owner: None, mode: None, sync: false };
        Action::Create(MaybeOwned::owned(create))
    };
    let write = |sync| Action::Write { open: None, file, offset: 0, len: 4096, sync };
    let actions = [
        create(1, "/m/a/x"),
        write(false),
        // Removes no page, so that it becomes no step.
        Action::Truncate { file: FileId(2), size: 0 },
        write(true),
        create(2, "/m/y"),
        Action::Sync { file, offset: 0, len: u64::MAX, data_only: true },
        Action::RenameDirectory { names: Renamed::owned("/m/a", "/m/b") },
        Action::Unbind { file: FileId(2), name: "/m/y".into() },
        Action::Rename { file, names: Renamed::owned("/m/b/x", "/m/y") },
        Action::SyncAll,
    ];
    let tables = Tables { operations: true, ..Tables::default() };
    let mut builder = TraceBuilder::new(about(true), Unit::Page, u64::MAX).with_tables(tables);
    for action in &actions {
        builder.extend(&[Event { at_us: 0, pid: 0, tid: 0, action: action.clone() }]).unwrap();
    }
    let trace = builder.finish().unwrap();
    assert_eq!(trace.steps(), build(&actions).steps(), "the table changes no step");
    assert!(build(&actions).operations().list().is_empty());
    let found: Vec<_> = trace
        .operations()
        .list()
        .iter()
        .map(|operation| {
            let what = match operation.kind {
                K::MakeDirectory(number) => format!("mkdir {}", number.0),
                K::Create(file, entry) => {
                    format!("create {} in {}", file.0, entry.unwrap().directory.0)
                }
                K::Write(file, end) => format!("write {} to {end}", file.0),
                K::Truncate(file, size) => format!("truncate {} to {size}", file.0),
                K::Sync { file, data_only } => format!("sync {} {data_only}", file.0),
                K::MoveDirectory { directory, from, to } => {
                    assert_ne!(from.hash, to.hash);
                    format!("move {}", directory.0)
                }
                K::Unlink(file, _) => format!("unlink {}", file.0),
                K::Rename { file, from, to, replaces } => {
                    format!("rename {} {} {} {replaces}", file.0, from.directory.0, to.directory.0)
                }
                K::SyncAll => "sync".to_owned(),
                other => format!("{other:?}"),
            };
            (operation.after_steps, what)
        })
        .collect();
    let a = trace.operations().list()[0].kind;
    let K::MakeDirectory(DirectoryId(a)) = a else { panic!("{a:?}") };
    assert_ne!(DirectoryId(a), ROOT);
    let wanted = [
        (0, format!("mkdir {a}")),
        (0, format!("create 1 in {a}")),
        (0, "write 1 to 4096".to_owned()),
        (1, "truncate 2 to 0".to_owned()),
        (1, "write 1 to 4096".to_owned()),
        (2, "sync 1 false".to_owned()),
        (2, "create 2 in 0".to_owned()),
        (3, "sync 1 true".to_owned()),
        (3, format!("move {a}")),
        (3, "unlink 2".to_owned()),
        (3, format!("rename 1 {a} 0 true")),
        (4, "sync".to_owned()),
    ];
    assert_eq!(found, wanted);
    let root = trace.operations().directories()[0];
    assert_eq!((root.entry, root.made), (None, false));
}
