//! Properties of every characterisation, and of all together.

use super::{testing::*, *};
use flashsift_caches::trace::{TraceBuilder, Unit};
use flashsift_events::event::{Action, FileId, Knows, MaybeOwned, Side};
use proptest::prelude::*;

fn abouts() -> Vec<About> {
    let mut all = Vec::new();
    for space in [Space::Files, Space::Blocks, Space::Objects] {
        for bits in 0..16 {
            let [times, syncs, writes, removals] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
            let knows = Knows { times, syncs, writes, removals, ..Knows::NOTHING };
            all.push(About { epoch_us: None, boot_us: None, side: Side::Before, space, knows });
        }
    }
    all
}

fn described(about: About, events: &[Event<'static>]) -> Description {
    let mut describer = Describer::new(about, u64::MAX);
    describer.extend(events).unwrap();
    describer.finish(3)
}

fn action() -> impl Strategy<Value = Action<'static>> {
    let offset = prop_oneof![0..20_000u64, 250_000..280_000u64, (1u64 << 50)..(1 << 50) + 10_000];
    let len = prop_oneof![Just(0), 1..10_000u64, 200_000..800_000u64];
    let name = prop::sample::select(vec!["/a/cache/x", "/a/x.db", "/a/x.db-journal", "/a/y", "y"]);
    (0..25u8, 0..4u64, offset, len, name).prop_map(|(kind, file, offset, len, name)| match kind {
        0 | 1 => read(file, offset, len),
        2 | 3 => write(file, offset, len),
        4 => write_sync(file, offset, len),
        5 => Action::Sync { file: FileId(file), offset, len, data_only: false },
        6 => sync(file),
        7 => Action::SyncAll,
        8 => truncate(file, offset),
        9 => Action::Punch { file: FileId(file), offset, len },
        10 => create(file),
        11 => bind(file, name),
        12 => rename(file, "/z", name),
        13 => {
            Action::Direct { open: None, file: FileId(file), offset, len, write: offset % 2 == 0 }
        }
        14 => create_named(file, name),
        15 => link(file, name),
        16 => rename_directory("/a", if offset % 2 == 0 { "/a/b" } else { "/z" }),
        17 => Action::Size { file: FileId(file), size: offset },
        18 => Action::MemoryPressure { stalled_ppm: len as u32 },
        19 => Action::Foreground { app: MaybeOwned::owned_str(name) },
        20 => Action::Place { file: FileId(file), offset, len, at: len },
        21 => Action::Cause { origin: Some((FileId(file), offset)), awaited: true },
        22 => Action::ControlGroup { path: MaybeOwned::owned_str(name) },
        23 => Action::MemoryLines { nvm: offset % 2 == 0, read: offset, written: len },
        24 => {
            let what = MaybeOwned::owned_str(name);
            Action::Meaning { file: FileId(file), what, site: offset, url: len, third_party: true }
        }
        _ => process(name),
    })
}

fn extreme() -> impl Strategy<Value = u64> {
    // Long requests only now and then: one may touch two million pages.
    prop_oneof![
        12 => prop::sample::select(vec![0, 1, 4095, 4096, 4097]),
        1 => prop::sample::select(vec![1 << 40, 1 << 62, i64::MAX as u64 - 1, i64::MAX as u64, u64::MAX]),
    ]
}

fn events() -> impl Strategy<Value = Vec<Event<'static>>> {
    let step = (action(), 0..3u32, prop_oneof![Just(0), 0..40_000_000u64]);
    prop::collection::vec(step, 1..80).prop_map(|steps| {
        let mut at_us = 0;
        let mut events: Vec<Event<'static>> = Vec::new();
        for (action, pid, pause_us) in steps {
            at_us += pause_us;
            events.push(Event { at_us, pid, tid: pid, action });
        }
        // Files end once, at the end.
        events.extend([1, 2].map(|file| Event {
            at_us: at_us + 1,
            pid: 0,
            tid: 0,
            action: gone(file),
        }));
        events
    })
}

/// Suffix of the key of a value with a unit.
fn unit(value: &Value) -> Option<&'static str> {
    match value {
        Value::Bytes(_) => Some("_bytes"),
        Value::TimeUs(_) => Some("_us"),
        Value::Share(_) => Some("_share"),
        _ => None,
    }
}

/// Units are suffixes of keys, and each key is unique.
fn check_shape(section: &Section) {
    let Ok(found) = &section.found else { return };
    let mut keys = Vec::new();
    let check = |key: &'static str, values: &[&Value]| {
        for value in values {
            if let Some(ending) = unit(value) {
                assert!(key.ends_with(ending), "{}: {key} is {value:?}", section.spec.name);
            }
            if let Value::Share(share) = value {
                assert!((0.0..=1.0).contains(share), "{}: {key} is {share}", section.spec.name);
            }
            let counted = matches!(value, Value::Count(_) | Value::Number(_));
            assert!(
                !counted || !["_bytes", "_us", "_share"].iter().any(|end| key.ends_with(end)),
                "{key} is {value:?}"
            );
        }
    };
    for part in &found.parts {
        match part {
            Part::Figures(figures) => {
                for figure in figures {
                    check(figure.key, &[&figure.value]);
                    keys.push(figure.key);
                }
            }
            Part::Table(table) => {
                assert!(table.rows.len() <= ROWS_MAX, "{}: {} rows", table.key, table.rows.len());
                for (n, column) in table.columns.iter().enumerate() {
                    check(column.key, &table.rows.iter().map(|row| &row[n]).collect::<Vec<_>>());
                }
                keys.push(table.key);
            }
            Part::Note(_) | Part::Command(_) => {}
        }
    }
    let all = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), all, "{}: a key twice", section.spec.name);
}

#[test]
fn names_are_one_each() {
    let mut names: Vec<_> = ALL.iter().map(|spec| spec.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), ALL.len());
}

/// Traces without information, without events, and with one event.
#[test]
fn empty_and_minimal_traces_are_described() {
    for about in abouts() {
        for events in [
            vec![],
            vec![at(0, read(0, 0, 0))],
            vec![at(0, read(7, 5, 1))],
            vec![at(9, write(7, 4095, 2))],
        ] {
            // A trace without writes has none.
            if !about.knows.writes
                && matches!(events.first(), Some(Event { action: Action::Write { .. }, .. }))
            {
                continue;
            }
            let description = described(about, &events);
            description.sections.iter().for_each(check_shape);
            let names = description.sections.iter().map(|section| section.spec.name);
            assert!(names.eq(ALL.iter().map(|spec| spec.name)));
            let touch = |event: &&Event<'_>| {
                matches!(
                    event.action,
                    Action::Read { len: 1.., .. } | Action::Write { len: 1.., .. }
                )
            };
            assert_eq!(description.requests, events.iter().filter(touch).count() as u64);
            assert_eq!(description.duration_us, events.last().map_or(0, |event| event.at_us));
        }
    }
}

/// Exceeding the memory limit is an error.
// Promises: Describe 19.
#[test]
fn memory_is_bounded() {
    let mut describer = Describer::new(about(), 1 << 20);
    let events: Vec<_> = (0..40_000).map(|page| at(0, write(1, page * 8192, 1))).collect();
    let error = events.chunks(1000).find_map(|events| describer.extend(events).err());
    assert!(
        matches!(error, Some(TraceError::TooMuchMemory { limit_bytes: 0x100000, .. })),
        "{error:?}"
    );
    let mut describer = Describer::new(about(), u64::MAX);
    (0..300).for_each(|_| describer.extend(&[at(0, write(1, 0, 40 << 12))]).unwrap());
    assert!(describer.held_bytes() < 1 << 20, "many events on few pages take little");
}

proptest! {
    /// All sections agree with each other and with the dense trace, for every kind of trace.
    // Promises: Describe 2.
    #[test]
    fn sections_agree_with_each_other(events in events(), which in 0..48usize) {
        let mut about = abouts()[which];
        about.knows.writes = true;
        let description = described(about, &events);
        description.sections.iter().for_each(check_shape);

        // A description leaves out what passes the page cache.
        let cached = events.into_iter().map(|mut event| {
            if matches!(event.action, Action::Direct { .. }) {
                event.action = Action::MemoryPressure { stalled_ppm: 0 };
            }
            event
        });
        let mut builder = TraceBuilder::new(about, Unit::Page, u64::MAX);
        builder.extend(&cached.collect::<Vec<_>>()).unwrap();
        let trace = builder.finish().unwrap();
        let totals = trace.totals();
        prop_assert_eq!(description.requests, totals.requests);
        prop_assert_eq!(description.duration_us, totals.duration_us);

        let found = |name| {
            let section = description.sections.iter().find(|section| section.spec.name == name).unwrap();
            section.found.as_ref().ok()
        };
        let sum = |name, table, of| {
            let values = found(name).map(|found| column(found, table, of)).unwrap_or_default();
            values.iter().map(|value| match value { Value::Count(n) | Value::Bytes(n) => *n, _ => panic!("{value:?}") }).sum::<u64>()
        };
        let mix = column(found("mix").unwrap(), "operations", "page_accesses");
        prop_assert_eq!(&mix[..2], &counts([totals.read_accesses, totals.write_accesses])[..]);
        prop_assert_eq!(column(found("footprint").unwrap(), "touched", "touched")[0].clone(), Value::Count(trace.pages().into()));
        let fates = found("fate").map_or(0, |found| {
            let Part::Figures(figures) = &found.parts[0] else { panic!() };
            figures.iter().map(|figure| if let Value::Count(n) = figure.value { n } else { 0 }).sum()
        });
        prop_assert_eq!(fates, totals.write_accesses, "every page write ends once");
        let again = figure(found("reaccess").unwrap(), "reaccesses");
        prop_assert_eq!(again, Value::Count(totals.read_accesses + totals.write_accesses - u64::from(trace.pages())));
        if about.knows.syncs {
            let Value::Count(forced) = figure(found("sync_distance").unwrap(), "forced_pages") else { panic!() };
            prop_assert!(forced <= totals.write_accesses);
        }
        if found("cache_files").is_some() {
            let written = column(found("mix").unwrap(), "operations", "moved_bytes")[1].clone();
            prop_assert_eq!(Value::Bytes(sum("cache_files", "shares", "written_bytes")), written);
        }
    }

    /// The division of events into batches changes nothing.
    #[test]
    fn batches_change_nothing(events in events()) {
        let whole = described(about(), &events);
        let mut describer = Describer::new(about(), u64::MAX);
        events.iter().for_each(|event| describer.extend(std::slice::from_ref(event)).unwrap());
        for (a, b) in whole.sections.iter().zip(describer.finish(3).sections) {
            prop_assert_eq!(&a.found, &b.found);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    /// Every event that a reader accepts is handled.
    // Promises: Describe 18.
    #[test]
    fn extreme_events_are_described(
        steps in prop::collection::vec((0..17u8, extreme(), extreme(), extreme(), extreme()), 1..6),
        which in 0..48usize,
    ) {
        let mut at_us = 0;
        let events: Vec<_> = steps.into_iter().map(|(kind, file, offset, len, pause_us)| {
            at_us = pause_us.max(at_us);
            let (offset, len) = (offset.min(i64::MAX as u64), len.min(i64::MAX as u64 - offset.min(i64::MAX as u64)));
            let action = match kind {
                0 | 1 => read(file, offset, len),
                2 | 3 => write(file, offset, len),
                4 => write_sync(file, offset, len),
                5 => Action::Sync { file: FileId(file), offset, len: u64::MAX, data_only: false },
                6 => Action::SyncAll,
                7 => truncate(file, offset),
                8 => Action::Punch { file: FileId(file), offset, len },
                9 => create(file),
                10 => bind(file, ""),
                11 => rename(file, "", "-journal"),
                12 => gone(file),
                13 => create_named(file, ""),
                14 => link(file, "/a"),
                15 => rename_directory("", "/-wal"),
                _ => process(""),
            };
            Event { at_us, pid: file as u32, tid: 0, action }
        }).collect();
        described(abouts()[which], &events).sections.iter().for_each(check_shape);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, ..ProptestConfig::default() })]

    /// A place is no access, and does not make the trace longer.
    // Promises: Record 21.
    #[test]
    fn places_change_nothing(mut events in events()) {
        events.retain(|event| !matches!(event.action, Action::Place { .. }));
        let end_us = events.last().map_or(0, |event| event.at_us);
        let mut with: Vec<_> = events
            .iter()
            .flat_map(|event| {
                let file = event.action.file().unwrap_or(FileId(9));
                let place = Action::Place { file, offset: 0, len: 1 << 20, at: 0 };
                [event.clone(), Event { action: place, ..event.clone() }]
            })
            .collect();
        with.push(Event {
            at_us: end_us.saturating_add(1 << 40),
            pid: 0,
            tid: 0,
            action: Action::Place { file: FileId(8), offset: 0, len: 1, at: 0 },
        });
        let about = testing::about();
        let (with, without) = (described(about, &with), described(about, &events));
        prop_assert_eq!(with.duration_us, without.duration_us);
        prop_assert_eq!(with.requests, without.requests);
        for (with, without) in with.sections.iter().zip(&without.sections) {
            prop_assert_eq!(&with.found, &without.found, "{}", with.spec.name);
        }
    }
}
