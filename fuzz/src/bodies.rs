//! The bodies of the fuzz targets. A reader must survive any bytes and pass the checks of the
//! hostile tests. A cache must agree with the model of its policy. A description must agree with
//! itself and with the dense trace.
//!
//! The integration tests of the crate `traces` include this file and run it for a moment.

use crate::checked;
use flashsift_caches::{
    policy::{
        self, Setup,
        naive::{self, Act, Placing},
    },
    trace::{TraceBuilder, Unit},
};
use flashsift_events::event::{
    About, Action, Create, Event, FileId, Knows, MaybeOwned, OpenId, Renamed, Side, Space,
};
use flashsift_study::describe::{Describer, Description, Found, Part, ROWS_MAX, Value};
use flashsift_traces::{
    format::{self, ALL, csv::PRESETS},
    open::Limits,
};
use std::{io::Write, num::NonZeroU32};

/// Reads `data` in the format `name`.
pub fn fuzz_reader(name: &str, data: &[u8]) {
    let _ = format::detected(data);
    let spec = format::named(name).expect("a format");
    let _ = checked::read(Some(spec), data, &Limits::default());
    checked::same_by_byte(spec, "", data);
}

const COLUMNS: [&str; 6] = [
    "time=1,file=2,op=3,offset=4,len=5,pid=6,unit=us",
    "time=ts,file=path,op=rw,offset=off,len=bytes",
    "time=2,offset=5,process=4,block=512,unit=ns",
    "time=time,process=who,pid=pid,op=op,file=file,unit=ms",
    "file=1,op=2",
    "offset=1",
];

/// Reads a table of the columns that the first byte chooses, of these or of a known table.
pub fn csv_columns(data: &[u8]) {
    let &[columns, ref data @ ..] = data else { return };
    let known = PRESETS.iter().map(|preset| preset.columns);
    let all: Vec<_> = COLUMNS.into_iter().chain(known).collect();
    let columns = all[usize::from(columns) % all.len()];
    checked::same_by_byte(format::named("csv").expect("a format"), columns, data);
}

/// Returns a table of each choice of columns.
pub fn csv_samples() -> Vec<Vec<u8>> {
    let tables: [&[u8]; 6] = [
        b"\x000,/data/a,w,0,4096,7\n12,\"/data/b,c\",fsync,0,,7\n20,/data/a,r,4096,512,8\n",
        b"\x01ts,path,rw,off,bytes\n0.5,/data/a.db,r,4096,512\n0.75,/b,w,0,1\n",
        b"\x02x;0;;app;8;9\ny;1700000000000000123;1;a b;16\n",
        b"\x03time|who|pid|op|file\n1|sh|7|create|a\n2.5|sh|7|delete|a\n3|sh|8|write|a\n",
        b"\x04a\tcreate\na\tw\na\tunlink\na\tr\nb\ttruncate\n",
        b"\x050\n4096\n81985529216486895\n",
    ];
    let known = (COLUMNS.len() as u8..)
        .zip(PRESETS)
        .map(|(n, preset)| [&[n], preset.sample.as_bytes()].concat());
    tables.map(<[u8]>::to_vec).into_iter().chain(known).collect()
}

/// Unpacks `data`, detects its format and reads it.
pub fn open(data: &[u8]) {
    let limits =
        Limits { ratio_from_bytes: 1 << 20, window_bytes_max: 16 << 20, ..Limits::default() };
    let _ = checked::read(None, data, &limits);
}

/// Steps the cache of a policy and its model through the history in `data`: two bytes of sizes, one
/// for the policy, then two bytes for each step.
///
/// # Panics
///
/// The cache and the model differ.
pub fn cache(data: &[u8]) {
    let &[which, pages, frames, ref acts @ ..] = data else { return };
    let spec = &policy::ALL[which as usize % policy::ALL.len()];
    let placing = Placing::ALL[which as usize / policy::ALL.len() % Placing::ALL.len()];
    let pages = 1 + u32::from(pages);
    let frames = 1 + u32::from(frames) % (pages + 2);
    let acts: Vec<Act> = acts
        .as_chunks()
        .0
        .iter()
        .map(|&[kind, page]| {
            let page = u32::from(page) % pages;
            match kind % 16 {
                0 => Act::Drop(page, 1 + u32::from(kind / 16)),
                1 | 2 => Act::Clean(page),
                3..10 => Act::Read(page),
                _ => Act::Write(page),
            }
        })
        .collect();
    let params = Default::default();
    let setup = Setup { frames, pages, runs: &[], params: &params, bytes: None };
    if let Err(parted) = naive::compare(spec, &setup, placing, &acts) {
        panic!(
            "{}, {frames} frames, {pages} pages, {placing:?}: differs from its model at step \
             {parted}",
            spec.name
        );
    }
}

/// Describes the trace in `data`: one byte for its capabilities, one for its files, then six bytes
/// for each event.
///
/// # Panics
///
/// Two results that must agree differ.
pub fn describe(data: &[u8]) {
    let &[knows, space, ref data @ ..] = data else { return };
    let [times, syncs, writes, removals] = [1, 2, 4, 8].map(|bit| knows & bit != 0);
    let knows = Knows { times, syncs, writes, removals, ..Knows::NOTHING };
    let space = [Space::Files, Space::Files, Space::Blocks, Space::Objects][usize::from(space) % 4];
    let about = About { epoch_us: None, boot_us: None, side: Side::Before, space, knows };
    let mut at_us = 0;
    let events: Vec<Event<'static>> = data
        .as_chunks()
        .0
        .iter()
        .map(|bytes| {
            // Readers never let time run backwards.
            at_us = PAUSES_US[usize::from(bytes[5]) % PAUSES_US.len()].saturating_add(at_us);
            let at_us = if times { at_us } else { 0 };
            let pid = u32::from(bytes[0] >> 5);
            Event { at_us, pid, tid: pid, action: action(bytes, writes) }
        })
        .collect();

    let mut describer = Describer::new(about, u64::MAX);
    describer.extend(&events).expect("the memory suffices");
    let whole = describer.finish(3);
    let mut describer = Describer::new(about, u64::MAX);
    events.iter().for_each(|event| {
        describer.extend(std::slice::from_ref(event)).expect("the memory suffices")
    });
    let single = describer.finish(3);
    for (a, b) in whole.sections.iter().zip(&single.sections) {
        assert_eq!(a.found, b.found, "{}: batches change the result", a.spec.name);
    }

    let mut builder = TraceBuilder::new(about, Unit::Page, u64::MAX);
    builder.extend(&events).expect("the memory suffices");
    let totals = builder.finish().expect("the memory suffices").totals();
    let accesses = totals.read_accesses + totals.write_accesses;
    assert_eq!(whole.requests, totals.requests);
    for found in whole.sections.iter().filter_map(|section| section.found.as_ref().ok()) {
        check_values(found);
    }
    for (section, table, columns) in [
        ("over_time", "grid", &["reads", "writes"][..]),
        ("over_time", "steady", &["page_accesses"]),
        ("popularity", "ranking", &["page_accesses"]),
    ] {
        if let Some(sum) = sum(&whole, section, table, columns) {
            assert_eq!(sum, accesses, "{section}.{table}");
        }
    }
    if let Some(requests) = sum(&whole, "request_sizes", "sizes", &["reads", "writes"]) {
        assert_eq!(requests, totals.requests);
    }
}

const PAUSES_US: [u64; 8] = [0, 1, 40_000, 999_999, 29_999_999, 60_000_000, 1 << 40, 1 << 61];
const OFFSETS: [u64; 8] =
    [0, 1, 4095, 4096, 1 << 31, 1 << 40, 1 << 62, i64::MAX as u64 - (1 << 24)];
const NAMES: [&str; 8] = [
    "",
    "/",
    "/app/cache/x",
    "/app/x.db",
    "/app/x.db-journal",
    "-wal",
    "/cache/\u{fffd}",
    "/app/y",
];

fn action(bytes: &[u8; 6], writes: bool) -> Action<'static> {
    let &[kind, file, offset, shift, len, _] = bytes;
    let name = MaybeOwned::from(NAMES[usize::from(len) % NAMES.len()]);
    let open = NonZeroU32::new(u32::from(len % 4)).map(OpenId);
    let file = FileId(if file == 255 { u64::MAX } else { u64::from(file % 16) });
    let offset = OFFSETS[usize::from(shift) % OFFSETS.len()] + u64::from(offset) * 2048;
    // Long requests cost much and show nothing new; tests of the core have some.
    let len = u64::from(len) << (shift >> 4);
    match kind % 23 {
        0..3 => Action::Read { file, open, offset, len },
        3..6 if !writes => Action::Read { file, open, offset, len },
        3..6 => Action::Write { file, open, offset, len, sync: kind % 23 == 5 },
        6 => Action::Direct { file, open, offset, len, write: writes && len % 2 == 0 },
        7 => Action::Sync { file, offset: 0, len: u64::MAX, data_only: false },
        8 => Action::Sync { file, offset, len, data_only: false },
        9 => Action::SyncAll,
        10 => Action::Truncate { file, size: offset },
        11 => Action::Punch { file, offset, len: if len == 0 { u64::MAX } else { len } },
        12 => Action::Open { file, open, created: len % 2 == 0 },
        13 => Action::Bind { file, name },
        14 if len % 2 == 0 => Action::Rename { file, names: Renamed::owned("/z", &name) },
        14 => Action::Gone { file },
        15 => {
            let mode = (len % 2 == 0).then_some(0o600);
            Action::Create(MaybeOwned::owned(Create {
                file,
                name,
                owner: None,
                mode,
                sync: len % 3 == 0,
            }))
        }
        16 => Action::Link { file, name },
        17 => {
            let (from, to) = (NAMES[usize::from(shift) % NAMES.len()], &*name);
            Action::RenameDirectory { names: Renamed::owned(from, to) }
        }
        18 => Action::Size { file, size: offset },
        19 => Action::MemoryPressure { stalled_ppm: len as u32 },
        20 => Action::Foreground { app: name },
        21 => Action::Place { file, offset, len, at: offset },
        22 => Action::Cause { origin: Some((file, offset)), awaited: len % 2 == 0 },
        23 => Action::ControlGroup { path: name },
        _ => Action::Process { name },
    }
}

/// Checks that tables are bounded, shares are at most 1, and numbers are finite.
fn check_values(found: &Found) {
    let check = |value: &Value| match value {
        Value::Share(share) => assert!((0.0..=1.0).contains(share), "{share}"),
        Value::Number(number) => assert!(number.is_finite() && *number >= 0.0, "{number}"),
        _ => {}
    };
    for part in &found.parts {
        match part {
            Part::Figures(figures) => figures.iter().for_each(|figure| {
                check(&figure.value);
                figure.share.iter().for_each(check);
            }),
            Part::Table(table) => {
                assert!(table.rows.len() <= ROWS_MAX, "{}: {} rows", table.key, table.rows.len());
                assert!(
                    table.rows.iter().all(|row| row.len() == table.columns.len()),
                    "{}",
                    table.key
                );
                table.rows.iter().flatten().for_each(check);
            }
            Part::Note(_) | Part::Command(_) => {}
        }
    }
}

/// The sum of some columns of a table, if the description has it.
fn sum(description: &Description, section: &str, table: &str, columns: &[&str]) -> Option<u64> {
    let found = description
        .sections
        .iter()
        .find(|found| found.spec.name == section)?
        .found
        .as_ref()
        .ok()?;
    let table = found.table_named(table)?;
    let sum = |column: &&str| table.values(column).filter_map(Value::number).sum::<f64>() as u64;
    Some(columns.iter().map(sum).sum())
}

/// Returns the sample of a format.
pub fn sample(name: &str) -> Vec<Vec<u8>> {
    vec![(format::named(name).expect("a format").sample)()]
}

/// Returns every sample, plain, packed, and in the other forms that are opened.
pub fn packed_samples() -> Vec<Vec<u8>> {
    let packed = |plain: Vec<u8>| {
        let mut zlib =
            flate2::write::ZlibEncoder::new(b"TRACE:\n".to_vec(), flate2::Compression::default());
        zlib.write_all(&plain).expect("writing to memory does not fail");
        let text = String::from_utf8_lossy(&plain);
        let wide = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        let json = format!(r#"{{"systemTraceEvents": "{}"}}"#, text.escape_default());
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 0);
        gzip.write_all(&plain)
            .and_then(|()| xz.write_all(&plain))
            .expect("writing to memory does not fail");
        let zstd = zstd::encode_all(&plain[..], 0).expect("writing to memory does not fail");
        [
            gzip.finish().expect("memory"),
            xz.finish().expect("memory"),
            zlib.finish().expect("memory"),
            wide(&format!("\u{feff}{text}")),
            json.into_bytes(),
            zstd,
            plain,
        ]
    };
    ALL.iter().flat_map(|spec| packed((spec.sample)())).collect()
}
