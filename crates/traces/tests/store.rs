//! Stored traces are read back unchanged, and damage is reported.

use flashsift_events::event::{
    About, Action, Create, Event, FileId, FileOwner, FileSystemKind, Knows, MaybeOwned, OpenId,
    Renamed, Side, Space,
};
use flashsift_traces::{
    Error,
    annotations::{Annotations, Restored, Served, Split},
    events::{Kept, Sink, Skip, Skipped},
    open::{self, Limits},
    store::{Encoder, Writer},
};
use proptest::prelude::*;
use std::{collections::HashSet, fs, num::NonZeroU32};

fn about() -> impl Strategy<Value = About> {
    let side = prop_oneof![Just(Side::Before), Just(Side::After)];
    let space = prop_oneof![Just(Space::Files), Just(Space::Blocks), Just(Space::Objects)];
    let knows =
        (any::<[bool; 11]>(), prop::option::of(prop::sample::select(&FileSystemKind::ALL[..])))
            .prop_map(
                |(
                    [
                        times,
                        syncs,
                        writes,
                        removals,
                        opens,
                        creations,
                        sizes,
                        names,
                        pressure,
                        foreground,
                        places,
                    ],
                    file_system,
                )| {
                    Knows {
                        times,
                        syncs,
                        writes,
                        removals,
                        opens,
                        creations,
                        sizes,
                        names,
                        pressure,
                        foreground,
                        places,
                        file_system,
                    }
                },
            );
    let about =
        |(side, space, knows, epoch_us, boot_us)| About { side, space, knows, epoch_us, boot_us };
    (side, space, knows, any::<Option<u64>>(), any::<Option<u64>>()).prop_map(about)
}

fn name() -> impl Strategy<Value = MaybeOwned<'static, str>> {
    prop_oneof![".*", "/data/[a-c]/[0-9]{1,3}"].prop_map(MaybeOwned::from)
}

/// A range that a system can have carried out.
fn range() -> impl Strategy<Value = (u64, u64)> {
    let offset = prop_oneof![0..1u64 << 20, 0..i64::MAX as u64];
    offset.prop_flat_map(|offset| {
        (Just(offset), prop_oneof![0..=4096u64, 0..=i64::MAX as u64 - offset])
    })
}

fn action() -> impl Strategy<Value = Action<'static>> {
    let file = || prop_oneof![0..20u64, any::<u64>()].prop_map(FileId);
    let open =
        || prop_oneof![Just(0), 0..9u32, any::<u32>()].prop_map(|n| NonZeroU32::new(n).map(OpenId));
    let names = || (name(), name()).prop_map(|(from, to)| MaybeOwned::owned(Renamed { from, to }));
    // At most the length that readers accept.
    let access = (file(), open(), range(), 0..3u8, any::<bool>());
    let access =
        access.prop_map(|(file, open, (offset, len), kind, flag)| match (len.min(1 << 30), kind) {
            (len, 0) => Action::Write { open, file, offset, len, sync: flag },
            (len, 1) => Action::Direct { open, file, offset, len, write: flag },
            (len, _) => Action::Read { open, file, offset, len },
        });
    let owner = any::<Option<(u32, u32)>>()
        .prop_map(|owner| owner.map(|(uid, gid)| FileOwner { uid, gid }));
    let create = (file(), name(), owner, any::<Option<u32>>(), any::<bool>());
    let create = create.prop_map(|(file, name, owner, mode, sync)| {
        Action::Create(MaybeOwned::owned(Create { file, name, owner, mode, sync }))
    });
    let range_of = |make: fn(FileId, u64, u64) -> Action<'static>| {
        (file(), range()).prop_map(move |(file, (offset, len))| make(file, offset, len))
    };
    let size = 0..=i64::MAX as u64;
    prop_oneof![
        6 => access,
        1 => range_of(|file, offset, len| {
            let data_only = offset % 2 == 0;
            Action::Sync { file, offset, len, data_only }
        }),
        1 => (file(), size.clone()).prop_map(|(file, offset)| Action::Sync { file, offset, len: u64::MAX, data_only: false }),
        1 => Just(Action::SyncAll),
        1 => (file(), size.clone()).prop_map(|(file, size)| Action::Truncate { file, size }),
        1 => range_of(|file, offset, len| Action::Punch { file, offset, len }),
        2 => create,
        1 => (file(), size.clone()).prop_map(|(file, size)| Action::Size { file, size }),
        1 => (file(), open(), any::<bool>())
            .prop_map(|(file, open, created)| Action::Open { open, file, created }),
        1 => (file(), open()).prop_map(|(file, open)| Action::Close { open, file }),
        1 => (file(), name()).prop_map(|(file, name)| Action::Bind { file, name }),
        1 => (file(), name()).prop_map(|(file, name)| Action::Link { file, name }),
        1 => (file(), names()).prop_map(|(file, names)| Action::Rename { file, names }),
        1 => names().prop_map(|names| Action::RenameDirectory { names }),
        1 => (file(), name()).prop_map(|(file, name)| Action::Unbind { file, name }),
        1 => file().prop_map(|file| Action::Gone { file }),
        1 => name().prop_map(|name| Action::Process { name }),
        1 => any::<u32>().prop_map(|stalled_ppm| Action::MemoryPressure { stalled_ppm }),
        1 => any::<u32>().prop_map(|ttl| Action::TimeToLive { ttl_us: ttl.into() }),
        1 => name().prop_map(|app| Action::Foreground { app }),
        1 => name().prop_map(|path| Action::ControlGroup { path }),
        1 => (file(), name(), any::<(u64, u64, bool)>()).prop_map(
            |(file, what, (site, url, third_party))| {
                Action::Meaning { file, what, site, url, third_party }
            }
        ),
        2 => (file(), range(), range()).prop_map(|(file, (offset, len), (at, most))| {
            Action::Place { file, offset, len: len.min(most), at }
        }),
        1 => (prop::option::of((file(), size.clone())), any::<bool>())
            .prop_map(|(origin, awaited)| Action::Cause { origin, awaited }),
    ]
}

fn events() -> impl Strategy<Value = Vec<Event<'static>>> {
    let step = prop_oneof![Just(0), 0..1_000_000u64, 0..1u64 << 50];
    prop::collection::vec((step, any::<(u32, u32)>(), action()), 0..200).prop_map(|parts| {
        let mut at_us = 0;
        let event = |(step, (pid, tid), action)| {
            at_us += step;
            Event { at_us, pid, tid, action }
        };
        parts.into_iter().map(event).collect()
    })
}

const ABOUT: About = About {
    epoch_us: None,
    boot_us: None,
    side: Side::Before,
    space: Space::Objects,
    knows: Knows::NOTHING,
};

fn stored(events: &[Event<'static>], skipped: &Skipped) -> Vec<u8> {
    stored_as(ABOUT, events, skipped)
}

fn stored_as(about: About, events: &[Event<'static>], skipped: &Skipped) -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new(), "somewhere/trace.csv").unwrap();
    encoder.about(about).unwrap();
    encoder.events(events).unwrap();
    encoder.finish(skipped).unwrap()
}

fn loaded(bytes: &[u8]) -> Result<(Vec<Event<'static>>, open::Outcome), Error> {
    let mut kept = Kept::default();
    let outcome = open::read_stream(bytes, None, None, &mut kept, &Limits::default())?;
    Ok((kept.events, outcome))
}

/// A read at the end of the offset range, beyond which no request can reach.
fn read_once() -> Event<'static> {
    Event {
        at_us: u64::MAX,
        pid: 0,
        tid: 0,
        action: Action::Read { open: None, file: FileId(u64::MAX), offset: 0, len: 1 },
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    // Promises: Traces 12.
    #[test]
    fn any_events_are_read_back(about in about(), mut events in events()) {
        events.push(read_once());
        let mut skipped = Skipped::default();
        skipped.add(Skip::Benign("comment"), 3);
        skipped.add(Skip::Damage("nonsense"), 5);
        let (again, outcome) = loaded(&stored_as(about, &events, &skipped)).unwrap();
        prop_assert_eq!(again, events);
        prop_assert_eq!(outcome.about, about);
        let origin = outcome.origin.unwrap();
        prop_assert_eq!(origin.trace, "somewhere/trace.csv");
        prop_assert_eq!(origin.skipped, skipped);
        prop_assert_eq!((outcome.skipped.total(), outcome.late), (0, 0));
    }
}

fn many(count: u64) -> Vec<Event<'static>> {
    let access = |n| Action::Write {
        open: None,
        file: FileId(n % 100),
        offset: n * 4096,
        len: 4096,
        sync: n % 9 == 0,
    };
    (0..count)
        .map(|n| Event { at_us: n * 17, pid: 5, tid: n as u32 % 3, action: access(n) })
        .collect()
}

#[test]
fn several_row_groups_are_read_back() {
    let events = many(600_000);
    let bytes = stored(&events, &Skipped::default());
    assert!(loaded(&bytes).unwrap().0 == events);
    assert!(bytes.len() < 2 << 20, "{} bytes for 600000 events", bytes.len());
}

// Promises: Traces 18.
#[test]
fn a_file_appears_when_it_is_finished() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.parquet");
    let files = || fs::read_dir(folder.path()).unwrap().count();
    let mut writer = Writer::create(&path, "x").unwrap();
    writer.about(ABOUT).unwrap();
    writer.events(&many(300_000)).unwrap();
    drop(writer);
    assert_eq!(files(), 0, "given up");

    let mut writer = Writer::create(&path, "x").unwrap();
    writer.about(ABOUT).unwrap();
    writer.events(&many(10)).unwrap();
    let bytes = writer.finish(&Skipped::default()).unwrap();
    assert_eq!((files(), fs::metadata(&path).unwrap().len()), (1, bytes));

    let limits = Limits::default();
    let mut kept = Kept::default();
    let outcome = open::read(&path, None, &mut kept, &limits).unwrap();
    assert!(kept.events == many(10));
    assert_eq!((outcome.format, outcome.bytes), ("parquet", bytes));
    assert_eq!(limits.progress.total_bytes(), bytes);
    assert!(limits.progress.done_bytes() > 0);

    let error = Writer::create(&folder.path().join("no/t"), "x").err().unwrap().to_string();
    assert!(error.contains("no/t"), "{error}");
}

// Promises: Traces 13.
#[test]
fn a_newer_schema_is_refused_by_name() {
    let bytes = stored(&many(3), &Skipped::default());
    let text = br#"{"schema":4,"#;
    let at = bytes.windows(text.len()).position(|w| w == text).expect("metadata is plain text");
    let mut newer = bytes.clone();
    newer[at + 10] = b'5';
    let error = loaded(&newer).unwrap_err().to_string();
    assert!(error.contains("newer flashsift (schema 5, this one reads 4): update"), "{error}");

    // Without our metadata, only the rows are known.
    let mut foreign = bytes;
    foreign[at - 12..at].iter_mut().for_each(|byte| *byte = byte.to_ascii_uppercase());
    let (events, outcome) = loaded(&foreign).unwrap();
    assert_eq!(events, many(3));
    assert!(outcome.skipped.to_string().contains("description was lost"), "{}", outcome.skipped);
}

/// The samples of schemas 1 and 2, written by the versions that had these schemas.
// Promises: Traces 13.
#[test]
fn older_schemas_open_without_the_facts_of_newer_ones() {
    let name = || MaybeOwned::from("/data/a");
    let (file, open) = (FileId(0), None);
    let events = |direct: bool| {
        let actions = [
            Action::Process { name: "app".into() },
            Action::Bind { file, name: name() },
            Action::Open { open, file, created: true },
            Action::Write { open, file, offset: 0, len: 8192, sync: false },
            Action::Write { open, file, offset: 4096, len: 100, sync: true },
            Action::Sync { file, offset: 0, len: u64::MAX, data_only: false },
            Action::Read { open, file, offset: 0, len: 4096 },
            Action::Truncate { file, size: 4096 },
            Action::Punch { file, offset: 0, len: 4096 },
            Action::Direct { open, file, offset: 4096, len: 512, write: true },
            Action::SyncAll,
            Action::Close { open, file },
            Action::Rename { file, names: Renamed::owned("/data/a", "/data/b") },
            Action::Unbind { file, name: "/data/b".into() },
            Action::Gone { file },
        ];
        let event = |(n, action): (u64, _)| Event { at_us: 1000 * n, pid: 7, tid: 8, action };
        let kept = |event: &Event| direct || !matches!(event.action, Action::Direct { .. });
        (0..).zip(actions).map(event).filter(kept).collect::<Vec<_>>()
    };
    let knows = Knows { times: true, syncs: true, writes: true, removals: true, ..Knows::NOTHING };
    let about =
        About { epoch_us: None, boot_us: None, side: Side::Before, space: Space::Files, knows };
    for (bytes, direct) in [
        (&include_bytes!("store/schema1.parquet")[..], false),
        (include_bytes!("store/schema2.parquet"), true),
    ] {
        let (found, outcome) = loaded(bytes).unwrap();
        assert_eq!(found, events(direct));
        assert_eq!(outcome.about, about);
        assert_eq!(outcome.origin.unwrap().trace, "sample");
        // Stored again, the trace is the same.
        let again = stored_as(outcome.about, &found, &Skipped::default());
        let (again, outcome) = loaded(&again).unwrap();
        assert_eq!((again, outcome.about), (found, about));
    }
}

/// The sample of schema 3, written by the version that had it. It lacks places and CLOCK_BOOTTIME.
// Promises: Traces 13.
#[test]
fn schema_3_opens_without_places() {
    let (found, outcome) = loaded(include_bytes!("store/schema3.parquet")).unwrap();
    let sample = (flashsift_traces::format::named("parquet").unwrap().sample)();
    let (mut events, now) = loaded(&sample).unwrap();
    let is_new = |action: &Action<'_>| {
        matches!(action, Action::Place { .. } | Action::Cause { .. } | Action::MemoryLines { .. })
            || matches!(action, Action::SyncDirectory { .. } | Action::Folio { .. })
            || matches!(action, Action::TimeToLive { .. } | Action::Filled { .. })
            || matches!(action, Action::Meaning { .. })
            || matches!(action, Action::Write { open: None, .. })
    };
    events.retain(|event| !is_new(&event.action));
    // The sample has one event a millisecond.
    (0..).zip(&mut events).for_each(|(n, event)| event.at_us = 1000 * n);
    assert_eq!(found, events);
    let knows = Knows { places: false, ..now.about.knows };
    assert_eq!(outcome.about, About { boot_us: None, knows, ..now.about });
    assert_eq!(outcome.origin.unwrap().annotations, Annotations::default());
}

/// The sample of schema 4, written again by the newest versions of each program in November 2026:
/// one call of `read` and one of `write`, with the defaults. pandas makes floats of numbers where
/// one is missing. All were refused: their columns were not ours, or the metadata was gone.
// Promises: Traces 30.
#[test]
fn stores_written_again_by_others_open() {
    let (events, outcome) = loaded(include_bytes!("store/schema4.parquet")).unwrap();
    for (name, bytes, has_about) in [
        ("pyarrow", &include_bytes!("store/pyarrow.parquet")[..], true),
        ("pyarrow with a dictionary", include_bytes!("store/pyarrow-dictionary.parquet"), true),
        ("pandas", include_bytes!("store/pandas.parquet"), false),
        ("fastparquet", include_bytes!("store/fastparquet.parquet"), false),
        ("polars", include_bytes!("store/polars.parquet"), false),
        ("duckdb", include_bytes!("store/duckdb.parquet"), false),
    ] {
        let (found, again) = loaded(bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(found, events, "{name}");
        if has_about {
            assert_eq!(again.about, outcome.about, "{name}");
            continue;
        }
        let Knows { opens, pressure, foreground, places, names, .. } = again.about.knows;
        assert!(opens && pressure && foreground && places && names, "{name}");
        assert!(!again.about.knows.creations && !again.about.knows.sizes, "{name}");
        let note = again.skipped.to_string();
        assert!(note.contains("description was lost") && again.origin.is_none(), "{name}: {note}");
    }
}

// Promises: Traces 30.
#[test]
fn a_store_without_a_column_is_refused_by_name() {
    let error = |bytes: &[u8]| loaded(bytes).unwrap_err().to_string();
    let other = error(include_bytes!("store/other.parquet"));
    assert!(other.contains("its columns are not ours: none is `at_us`"), "{other}");
    let text = error(include_bytes!("store/texts.parquet"));
    assert!(text.contains("`at_us` has values of type BYTE_ARRAY"), "{text}");
}

#[test]
fn annotations_are_read_back() {
    let annotations = Annotations {
        split: Some(Split::Test),
        restored: Some(Restored { pauses: 1, restored_us: 2, outside: 3 }),
        served: Some(Served { requests: 5, bytes: 6, ..Served::default() }),
    };
    let mut encoder = Encoder::new(Vec::new(), "x").unwrap();
    encoder.about(ABOUT).unwrap();
    encoder.events(&many(3)).unwrap();
    encoder.annotate(annotations.clone());
    let (_, outcome) = loaded(&encoder.finish(&Skipped::default()).unwrap()).unwrap();
    assert_eq!(outcome.origin.unwrap().annotations, annotations);
}

#[test]
fn the_sample_holds_each_kind_of_event() {
    let (events, outcome) =
        loaded(&(flashsift_traces::format::named("parquet").unwrap().sample)()).unwrap();
    let kinds: HashSet<_> =
        events.iter().map(|event| std::mem::discriminant(&event.action)).collect();
    assert_eq!(kinds.len(), 28);
    assert!(outcome.about.epoch_us.is_some() && outcome.about.boot_us.is_some());
}

/// Empty columns take no space: a trace with only the facts of schema 2 is no larger than it was.
#[test]
fn empty_columns_take_no_space() {
    let bytes = stored(&many(200_000), &Skipped::default());
    let open = NonZeroU32::new(7).map(OpenId);
    let with_opens: Vec<_> = many(200_000)
        .into_iter()
        .map(|mut event| {
            if let Action::Write { open: of, .. } = &mut event.action {
                *of = open;
            }
            event
        })
        .collect();
    let with_opens = stored(&with_opens, &Skipped::default());
    assert!(with_opens.len() < bytes.len() + 100, "{} and {} bytes", with_opens.len(), bytes.len());
}
