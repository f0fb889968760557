//! What is stored comes back, and damage is said.

use flashsift_core::event::{About, Action, Event, FileId, Knows, MaybeOwned, Renamed, Side, Space};
use flashsift_traces::{
    Error,
    events::{Kept, Sink, Skip, Skipped},
    open::{self, Limits},
    store::{Encoder, Writer},
};
use proptest::prelude::*;
use std::fs;

const ABOUT: About = About {
    epoch_us: None,
    side: Side::Before,
    space: Space::Objects,
    knows: Knows { times: true, syncs: false, writes: true, removals: false, ..Knows::NOTHING },
};

fn name() -> impl Strategy<Value = MaybeOwned<'static, str>> {
    prop_oneof![".*", "/data/[a-c]/[0-9]{1,3}"].prop_map(MaybeOwned::from)
}

/// A range that a system can have carried out.
fn range() -> impl Strategy<Value = (u64, u64)> {
    let offset = prop_oneof![0..1u64 << 20, 0..i64::MAX as u64];
    offset.prop_flat_map(|offset| (Just(offset), prop_oneof![0..=4096u64, 0..=i64::MAX as u64 - offset]))
}

fn action() -> impl Strategy<Value = Action<'static>> {
    let file = || prop_oneof![0..20u64, any::<u64>()].prop_map(FileId);
    let access = (file(), range(), any::<(bool, bool)>()).prop_map(|(file, (offset, len), (write, sync))| {
        if write {
            Action::Write { open: None, file, offset, len, sync }
        } else {
            Action::Read { open: None, file, offset, len }
        }
    });
    let range_of = |make: fn(FileId, u64, u64) -> Action<'static>| {
        (file(), range()).prop_map(move |(file, (offset, len))| make(file, offset, len))
    };
    let size = 0..=i64::MAX as u64;
    prop_oneof![
        6 => access,
        1 => range_of(|file, offset, len| Action::Sync { file, offset, len }),
        1 => (file(), size.clone()).prop_map(|(file, offset)| Action::Sync { file, offset, len: u64::MAX }),
        1 => Just(Action::SyncAll),
        1 => (file(), size).prop_map(|(file, size)| Action::Truncate { file, size }),
        1 => range_of(|file, offset, len| Action::Punch { file, offset, len }),
        1 => (file(), any::<bool>()).prop_map(|(file, created)| Action::Open { open: None, file, created }),
        1 => file().prop_map(|file| Action::Close { open: None, file }),
        1 => (file(), name()).prop_map(|(file, name)| Action::Bind { file, name }),
        1 => (file(), name(), name())
            .prop_map(|(file, from, to)| Action::Rename { file, names: Box::new(Renamed { from, to }).into() }),
        1 => (file(), name()).prop_map(|(file, name)| Action::Unbind { file, name }),
        1 => file().prop_map(|file| Action::Gone { file }),
        1 => name().prop_map(|name| Action::Process { name }),
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

fn stored(events: &[Event<'static>], skipped: &Skipped) -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new(), "somewhere/trace.csv").unwrap();
    encoder.about(ABOUT).unwrap();
    encoder.events(events).unwrap();
    encoder.finish(skipped).unwrap()
}

fn loaded(bytes: &[u8]) -> Result<(Vec<Event<'static>>, open::Outcome), Error> {
    let mut kept = Kept::default();
    let outcome = open::read_stream(bytes, None, None, &mut kept, &Limits::default())?;
    Ok((kept.events, outcome))
}

/// At the end of time, beyond which nothing can be asked.
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

    #[test]
    fn any_events_come_back(mut events in events()) {
        events.push(read_once());
        let mut skipped = Skipped::default();
        skipped.add(Skip::Benign("comment"), 3);
        skipped.add(Skip::Damage("nonsense"), 5);
        let (again, outcome) = loaded(&stored(&events, &skipped)).unwrap();
        prop_assert_eq!(again, events);
        prop_assert_eq!(outcome.about, ABOUT);
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
    (0..count).map(|n| Event { at_us: n * 17, pid: 5, tid: n as u32 % 3, action: access(n) }).collect()
}

#[test]
fn several_row_groups() {
    let events = many(600_000);
    let bytes = stored(&events, &Skipped::default());
    assert!(loaded(&bytes).unwrap().0 == events);
    assert!(bytes.len() < 2 << 20, "{} bytes for 600000 events", bytes.len());
}

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

#[test]
fn a_newer_schema_says_so() {
    let bytes = stored(&many(3), &Skipped::default());
    let text = br#"{"schema":2,"#;
    let at = bytes.windows(text.len()).position(|w| w == text).expect("metadata is plain text");
    let mut newer = bytes.clone();
    newer[at + 10] = b'3';
    let error = loaded(&newer).unwrap_err().to_string();
    assert!(error.contains("newer flashsift (schema 3, this one reads 2): update"), "{error}");

    let mut foreign = bytes;
    foreign[at - 12..at].iter_mut().for_each(|byte| *byte = byte.to_ascii_uppercase());
    assert!(loaded(&foreign).unwrap_err().to_string().contains("not one of ours"));
}
