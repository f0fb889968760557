//! Our own store: Parquet, zstd inside, one row an event, so that polars, DuckDB and the like read it too.
//!
//! | column | type | |
//! | --- | --- | --- |
//! | `at_us` | INT64 | microseconds since the first event |
//! | `action` | INT32 | index into the metadata's `actions` |
//! | `file` | INT64 | the `FileId`; 0 for `sync-all` and `process` |
//! | `offset` | INT64 | first byte; for `truncate` the new size; else 0 |
//! | `len` | INT64 | bytes; -1 for a `sync` to the end of the file; else 0 |
//! | `pid`, `tid` | INT32 | 0 unknown |
//! | `flag` | BOOLEAN | `write`: the write itself is synchronous; `open`: it made the file; `direct`: a write |
//! | `name` | STRING, null | the name bound, unbound, renamed from, or of the process |
//! | `name2` | STRING, null | the name renamed to |
//!
//! Unsigned numbers stand with their bits unchanged. The key-value metadata holds one JSON object under `flashsift`:
//! schema version, what the trace is about, the names of the actions, and where it came from: the name of the imported
//! trace and what its reader skipped, which are lost otherwise.
//!
//! Rows are grouped so that writing and reading need a few tens of megabytes, however long the trace.

use crate::{
    Error,
    events::{Events, Origin, Reason, Sink, Skipped},
    replace::Replace,
};
use flashsift_core::event::{About, Action, Event, FileId, Knows, MaybeOwned, Renamed, Side, Space};
use parquet::{
    basic::{Compression, Encoding, ZstdLevel},
    column::reader::{ColumnReader, ColumnReaderImpl, get_typed_column_reader},
    data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type},
    errors::ParquetError,
    file::{
        metadata::KeyValue,
        properties::{EnabledStatistics, WriterProperties, WriterVersion},
        reader::{ChunkReader, FileReader, RowGroupReader},
        serialized_reader::SerializedFileReader,
        writer::SerializedFileWriter,
    },
    schema::{parser::parse_message_type, types::ColumnPath},
};
use serde::{Deserialize, Serialize};
use std::{
    cell::Cell,
    io::Write,
    panic::{self, AssertUnwindSafe},
    path::Path,
    sync::{Arc, Once},
};

/// The version this writes, and the newest it reads.
pub const SCHEMA: u32 = 2;

const KEY: &str = "flashsift";
const MESSAGE: &str = "message event {
    required int64 at_us; required int32 action; required int64 file (UINT_64); required int64 offset;
    required int64 len; required int32 pid (UINT_32); required int32 tid (UINT_32); required boolean flag;
    optional binary name (UTF8); optional binary name2 (UTF8);
}";
const GROUP_ROWS_MAX: usize = 1 << 18;
const GROUP_NAME_BYTES_MAX: usize = 32 << 20;
const READ_ROWS: usize = 4096;

/// In the order of the numbers in the `action` column. A schema may add some at the end: older stores have fewer.
const ACTIONS: [&str; 14] = [
    "read", "write", "sync", "sync-all", "truncate", "punch", "open", "close", "bind", "rename", "unbind",
    "gone", "process", "direct",
];

#[derive(Serialize, Deserialize)]
struct Meta {
    schema: u32,
    side: String,
    space: String,
    times: bool,
    syncs: bool,
    writes: bool,
    removals: bool,
    actions: Vec<String>,
    trace: String,
    skipped: Vec<MetaSkip>,
}

#[derive(Serialize, Deserialize)]
struct MetaSkip {
    reason: String,
    count: u64,
    first: u64,
    damage: bool,
    /// Absent in stores of before there were notes.
    #[serde(default)]
    note: bool,
}

/// Only this much is read of a schema that may be newer.
#[derive(Deserialize)]
struct MetaVersion {
    schema: u32,
}

impl Meta {
    fn new(about: About, trace: &str, skipped: &Skipped) -> Self {
        let Knows { times, syncs, writes, removals, .. } = about.knows;
        let skip = |(reason, r): (&str, Reason)| {
            let Reason { count, first, damage, note } = r;
            MetaSkip { reason: reason.to_owned(), count, first, damage, note }
        };
        Self {
            schema: SCHEMA,
            side: match about.side {
                Side::Before => "before".into(),
                Side::After => "after".into(),
            },
            space: match about.space {
                Space::Files => "files".into(),
                Space::Blocks => "blocks".into(),
                Space::Objects => "objects".into(),
            },
            times,
            syncs,
            writes,
            removals,
            actions: ACTIONS.map(String::from).to_vec(),
            trace: trace.to_owned(),
            skipped: skipped.iter().map(skip).collect(),
        }
    }

    fn parse(json: &str) -> Result<Self, String> {
        let MetaVersion { schema } = serde_json::from_str(json).map_err(|e| e.to_string())?;
        if schema > SCHEMA {
            return Err(format!(
                "it was written by a newer flashsift (schema {schema}, this one reads {SCHEMA}): update"
            ));
        }
        let meta: Self = serde_json::from_str(json).map_err(|e| e.to_string())?;
        if !ACTIONS.iter().zip(&meta.actions).all(|(ours, theirs)| ours == theirs)
            || meta.actions.len() > ACTIONS.len()
        {
            return Err("its actions are not those of its schema".into());
        }
        Ok(meta)
    }

    fn about(&self) -> Result<About, String> {
        let &Self { times, syncs, writes, removals, .. } = self;
        let side = match &*self.side {
            "before" => Side::Before,
            "after" => Side::After,
            other => return Err(format!("unknown side \"{other}\"")),
        };
        let space = match &*self.space {
            "files" => Space::Files,
            "blocks" => Space::Blocks,
            "objects" => Space::Objects,
            other => return Err(format!("unknown space \"{other}\"")),
        };
        Ok(About {
            epoch_us: None,
            side,
            space,
            knows: Knows { times, syncs, writes, removals, ..Knows::NOTHING },
        })
    }

    fn origin(self) -> Origin {
        let mut skipped = Skipped::default();
        for MetaSkip { reason, count, first, damage, note } in self.skipped {
            skipped.restore(reason, Reason { count, first, damage, note });
        }
        Origin { trace: self.trace, skipped }
    }
}

/// Writes a trace to a file, which appears only when it is finished.
pub struct Writer {
    encoder: Encoder<Replace>,
    path: String,
}

impl Writer {
    /// Will become `path`. `trace` is the name of what is being imported, kept for its readers.
    pub fn create(path: &Path, trace: &str) -> Result<Self, Error> {
        let name = path.display().to_string();
        let file = Replace::new(path).map_err(|e| Error::At { path: name.clone(), what: e.into() })?;
        Ok(Self { encoder: Encoder::new(file, trace)?, path: name })
    }

    /// How many bytes the file has so far, what is still held back at `row_bytes` a row.
    pub fn bytes_so_far(&self, row_bytes: u64) -> u64 {
        self.encoder.writer.bytes_written() as u64 + self.encoder.rows.at_us.len() as u64 * row_bytes
    }

    /// Writes what is left, and what was `skipped`, and gives the file its name. How many bytes it has.
    pub fn finish(self, skipped: &Skipped) -> Result<u64, Error> {
        let file = self.encoder.finish(skipped)?;
        file.commit().map_err(|e| Error::At { path: self.path, what: e.into() })
    }

    fn named(&self, error: Error) -> Error {
        Error::At { path: self.path.clone(), what: error.into() }
    }
}

impl Sink for Writer {
    fn about(&mut self, about: About) -> Result<(), Error> {
        self.encoder.about(about)
    }
    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        self.encoder.events(events).map_err(|e| self.named(e))
    }
}

/// Writes a trace to any stream.
pub struct Encoder<W: Write + Send> {
    writer: SerializedFileWriter<W>,
    trace: String,
    about: Option<About>,
    rows: Rows,
}

impl<W: Write + Send> Encoder<W> {
    /// Onto `stream`.
    pub fn new(stream: W, trace: &str) -> Result<Self, Error> {
        let schema = parse_message_type(MESSAGE).expect("the schema is a constant");
        let writer =
            SerializedFileWriter::new(stream, Arc::new(schema), Arc::new(properties())).map_err(written)?;
        Ok(Self { writer, trace: trace.to_owned(), about: None, rows: Rows::default() })
    }

    /// Writes what is left and gives the stream back.
    pub fn finish(mut self, skipped: &Skipped) -> Result<W, Error> {
        let Some(about) = self.about else {
            return Err(Error::Sink("nothing is known about the trace to be stored".into()));
        };
        self.rows.flush(&mut self.writer)?;
        let meta = serde_json::to_string(&Meta::new(about, &self.trace, skipped)).expect("plain data");
        self.writer.append_key_value_metadata(KeyValue::new(KEY.to_owned(), meta));
        self.writer.into_inner().map_err(written)
    }
}

impl<W: Write + Send> Sink for Encoder<W> {
    fn about(&mut self, about: About) -> Result<(), Error> {
        self.about = Some(about);
        Ok(())
    }
    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        for event in events {
            self.rows.push(event);
            if self.rows.full() {
                self.rows.flush(&mut self.writer)?;
            }
        }
        Ok(())
    }
}

fn properties() -> WriterProperties {
    let column = |name: &str| ColumnPath::from(name);
    let zstd = ZstdLevel::try_new(3).expect("a level that exists");
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_created_by(concat!("flashsift ", env!("CARGO_PKG_VERSION")).into())
        .set_compression(Compression::ZSTD(zstd))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_max_row_group_row_count(None)
        .set_dictionary_enabled(true);
    for name in ["at_us", "offset"] {
        properties = properties
            .set_column_dictionary_enabled(column(name), false)
            .set_column_encoding(column(name), Encoding::DELTA_BINARY_PACKED);
    }
    properties.build()
}

/// A row group being gathered: the columns.
#[derive(Default)]
struct Rows {
    at_us: Vec<i64>,
    action: Vec<i32>,
    file: Vec<i64>,
    offset: Vec<i64>,
    len: Vec<i64>,
    pid: Vec<i32>,
    tid: Vec<i32>,
    flag: Vec<bool>,
    names: [Names; 2],
    name_bytes: usize,
}

#[derive(Default)]
struct Names {
    levels: Vec<i16>,
    values: Vec<ByteArray>,
}

/// An event as a row has it.
#[derive(Default)]
struct Row<'a> {
    action: i32,
    file: u64,
    offset: u64,
    len: u64,
    flag: bool,
    names: [Option<&'a str>; 2],
}

impl<'a> Row<'a> {
    fn new(action: &'a Action<'_>) -> Self {
        let row = Self::default();
        match *action {
            Action::Read { file, offset, len, .. } => Self { action: 0, file: file.0, offset, len, ..row },
            Action::Write { file, offset, len, sync, .. } => {
                Self { action: 1, file: file.0, offset, len, flag: sync, ..row }
            }
            Action::Sync { file, offset, len } => Self { action: 2, file: file.0, offset, len, ..row },
            Action::SyncAll => Self { action: 3, ..row },
            Action::Truncate { file, size } => Self { action: 4, file: file.0, offset: size, ..row },
            Action::Punch { file, offset, len } => Self { action: 5, file: file.0, offset, len, ..row },
            Action::Open { file, created, .. } => Self { action: 6, file: file.0, flag: created, ..row },
            Action::Close { file, .. } => Self { action: 7, file: file.0, ..row },
            Action::Bind { file, ref name } => {
                Self { action: 8, file: file.0, names: [Some(name), None], ..row }
            }
            Action::Rename { file, ref names } => {
                Self { action: 9, file: file.0, names: [Some(&names.from), Some(&names.to)], ..row }
            }
            Action::Unbind { file, ref name } => {
                Self { action: 10, file: file.0, names: [Some(name), None], ..row }
            }
            Action::Gone { file } => Self { action: 11, file: file.0, ..row },
            Action::Process { ref name } => Self { action: 12, names: [Some(name), None], ..row },
            Action::Direct { file, offset, len, write, .. } => {
                Self { action: 13, file: file.0, offset, len, flag: write, ..row }
            }
            Action::Create(_)
            | Action::Size { .. }
            | Action::Link { .. }
            | Action::RenameDirectory { .. }
            | Action::MemoryPressure { .. }
            | Action::Foreground { .. } => unimplemented!("schema 3"),
        }
    }

    fn action(&self) -> Result<Action<'static>, &'static str> {
        let &Self { action, offset, len, flag, .. } = self;
        let file = FileId(self.file);
        let name = |n: usize| self.names[n].map(MaybeOwned::owned_str).ok_or("a name is missing");
        Ok(match action {
            0 => Action::Read { open: None, file, offset, len },
            1 => Action::Write { open: None, file, offset, len, sync: flag },
            2 => Action::Sync { file, offset, len },
            3 => Action::SyncAll,
            4 => Action::Truncate { file, size: offset },
            5 => Action::Punch { file, offset, len },
            6 => Action::Open { open: None, file, created: flag },
            7 => Action::Close { open: None, file },
            8 => Action::Bind { file, name: name(0)? },
            9 => Action::Rename { file, names: Box::new(Renamed { from: name(0)?, to: name(1)? }).into() },
            10 => Action::Unbind { file, name: name(0)? },
            11 => Action::Gone { file },
            12 => Action::Process { name: name(0)? },
            13 => Action::Direct { open: None, file, offset, len, write: flag },
            _ => return Err("there is no such action"),
        })
    }
}

impl Rows {
    fn push(&mut self, event: &Event) {
        let row = Row::new(&event.action);
        self.at_us.push(event.at_us.cast_signed());
        self.action.push(row.action);
        self.file.push(row.file.cast_signed());
        self.offset.push(row.offset.cast_signed());
        self.len.push(row.len.cast_signed());
        self.pid.push(event.pid.cast_signed());
        self.tid.push(event.tid.cast_signed());
        self.flag.push(row.flag);
        for (names, name) in self.names.iter_mut().zip(row.names) {
            names.levels.push(i16::from(name.is_some()));
            self.name_bytes += name.map_or(0, str::len);
            names.values.extend(name.map(ByteArray::from));
        }
    }

    fn full(&self) -> bool {
        self.at_us.len() >= GROUP_ROWS_MAX || self.name_bytes >= GROUP_NAME_BYTES_MAX
    }

    fn flush<W: Write + Send>(&mut self, writer: &mut SerializedFileWriter<W>) -> Result<(), Error> {
        if self.at_us.is_empty() {
            return Ok(());
        }
        let mut write = |rows: &Self| -> Result<(), ParquetError> {
            fn column<T: DataType, W: Write + Send>(
                group: &mut parquet::file::writer::SerializedRowGroupWriter<'_, W>,
                values: &[T::T],
                levels: Option<&[i16]>,
            ) -> Result<(), ParquetError> {
                let mut column = group.next_column()?.expect("the schema has this column");
                column.typed::<T>().write_batch(values, levels, None)?;
                column.close()
            }
            let mut group = writer.next_row_group()?;
            column::<Int64Type, _>(&mut group, &rows.at_us, None)?;
            column::<Int32Type, _>(&mut group, &rows.action, None)?;
            column::<Int64Type, _>(&mut group, &rows.file, None)?;
            column::<Int64Type, _>(&mut group, &rows.offset, None)?;
            column::<Int64Type, _>(&mut group, &rows.len, None)?;
            column::<Int32Type, _>(&mut group, &rows.pid, None)?;
            column::<Int32Type, _>(&mut group, &rows.tid, None)?;
            column::<BoolType, _>(&mut group, &rows.flag, None)?;
            for Names { levels, values } in &rows.names {
                column::<ByteArrayType, _>(&mut group, values, Some(levels))?;
            }
            group.close()?;
            Ok(())
        };
        write(self).map_err(written)?;
        *self = Self::default();
        Ok(())
    }
}

fn written(error: ParquetError) -> Error {
    Error::Sink(format!("storing the trace failed: {error}"))
}

fn malformed(what: impl std::fmt::Display) -> Error {
    Error::Malformed { what: format!("the Parquet file is damaged or not one of ours: {what}"), offset: 0 }
}

/// The crate checks much of what a file claims, but not all: on damaged pages it is known to panic (version 60: "Bit reader
/// is not initialized" in the delta decoder, among others). Whatever was being decoded is then given up, and our error is
/// all that is said: what a panic prints on its own is kept back on this thread meanwhile.
fn guarded<T>(decode: impl FnOnce() -> Result<T, ParquetError>) -> Result<T, Error> {
    thread_local!(static DECODES: Cell<bool> = const { Cell::new(false) });
    static KEEP_BACK: Once = Once::new();
    KEEP_BACK.call_once(|| {
        let others = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if !DECODES.get() {
                others(panic);
            }
        }));
    });
    DECODES.set(true);
    let result = panic::catch_unwind(AssertUnwindSafe(decode));
    DECODES.set(false);
    match result {
        Ok(result) => result.map_err(malformed),
        Err(_) => Err(malformed("its pages contradict themselves")),
    }
}

/// Reads a stored trace.
pub(crate) fn read(file: impl ChunkReader + 'static, events: &mut Events<'_>) -> Result<(), Error> {
    let reader = guarded(|| SerializedFileReader::new(file))?;
    let metadata = reader.metadata().file_metadata();
    let meta = metadata.key_value_metadata().into_iter().flatten().find(|pair| pair.key == KEY);
    let Some(meta) = meta.and_then(|pair| pair.value.as_deref()) else {
        return Err(malformed("its metadata says nothing about flashsift; import the original trace"));
    };
    let meta = Meta::parse(meta).map_err(malformed)?;
    let ours = parse_message_type(MESSAGE).expect("the schema is a constant");
    if metadata.schema().get_fields() != ours.get_fields() {
        return Err(malformed("its columns are not ours"));
    }
    events.about(meta.about().map_err(malformed)?)?;
    events.origin(meta.origin());
    let mut row = 0;
    for group in 0..reader.num_row_groups() {
        let group = guarded(|| reader.get_row_group(group))?;
        read_group(&*group, &mut row, events)?;
    }
    Ok(())
}

fn read_group(group: &dyn RowGroupReader, row: &mut u64, events: &mut Events<'_>) -> Result<(), Error> {
    let mut left = match usize::try_from(group.metadata().num_rows()) {
        Ok(rows) if rows <= GROUP_ROWS_MAX => rows,
        _ => return Err(malformed(format_args!("a row group of {} rows", group.metadata().num_rows()))),
    };
    let get = |n| guarded(|| group.get_column_reader(n));
    let (mut at_us, mut action) = (Column::<Int64Type>::new(get(0)?), Column::<Int32Type>::new(get(1)?));
    let (mut file, mut offset) = (Column::<Int64Type>::new(get(2)?), Column::<Int64Type>::new(get(3)?));
    let (mut len, mut flag) = (Column::<Int64Type>::new(get(4)?), Column::<BoolType>::new(get(7)?));
    let (mut pid, mut tid) = (Column::<Int32Type>::new(get(5)?), Column::<Int32Type>::new(get(6)?));
    let mut names = [Column::<ByteArrayType>::new(get(8)?), Column::<ByteArrayType>::new(get(9)?)];
    while left > 0 {
        let rows = left.min(READ_ROWS);
        left -= rows;
        at_us.next(rows)?;
        action.next(rows)?;
        file.next(rows)?;
        offset.next(rows)?;
        len.next(rows)?;
        pid.next(rows)?;
        tid.next(rows)?;
        flag.next(rows)?;
        names[0].next(rows)?;
        names[1].next(rows)?;
        let mut present = [0; 2];
        for n in 0..rows {
            *row += 1;
            events.at(*row);
            let mut name = |which: usize| -> Result<Option<&str>, Error> {
                if names[which].levels[n] == 0 {
                    return Ok(None);
                }
                let value =
                    names[which].values.get(present[which]).ok_or_else(|| malformed("names are missing"))?;
                present[which] += 1;
                value.as_utf8().map(Some).map_err(malformed)
            };
            let stored = Row {
                action: action.values[n],
                file: file.values[n].cast_unsigned(),
                offset: offset.values[n].cast_unsigned(),
                len: len.values[n].cast_unsigned(),
                flag: flag.values[n],
                names: [name(0)?, name(1)?],
            };
            let action = stored.action().map_err(|what| malformed(format_args!("row {row}: {what}")))?;
            events.push(Event {
                at_us: at_us.values[n].cast_unsigned(),
                pid: pid.values[n].cast_unsigned(),
                tid: tid.values[n].cast_unsigned(),
                action,
            })?;
        }
    }
    Ok(())
}

struct Column<T: DataType> {
    reader: ColumnReaderImpl<T>,
    values: Vec<T::T>,
    levels: Vec<i16>,
}

impl<T: DataType> Column<T> {
    fn new(reader: ColumnReader) -> Self {
        Self { reader: get_typed_column_reader(reader), values: Vec::new(), levels: Vec::new() }
    }

    fn next(&mut self, rows: usize) -> Result<(), Error> {
        self.values.clear();
        self.levels.clear();
        let (mut have, mut values) = (0, 0);
        while have < rows {
            let (records, some, _) = guarded(|| {
                self.reader.read_records(rows - have, Some(&mut self.levels), None, &mut self.values)
            })?;
            if records == 0 {
                return Err(malformed("a column ends early"));
            }
            have += records;
            values += some;
        }
        let whole = if self.levels.is_empty() { values == rows } else { self.levels.len() == rows };
        if whole && values == self.values.len() {
            Ok(())
        } else {
            Err(malformed("columns of unequal length"))
        }
    }
}

/// A store that holds each kind of event, for the tests, the fuzzers and the docs.
pub(crate) fn sample() -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new(), "sample").expect("memory takes anything");
    let knows = Knows { times: true, syncs: true, writes: true, removals: true, ..Knows::NOTHING };
    let file = FileId(0);
    let name = || MaybeOwned::from("/data/a");
    let names = || Box::new(Renamed { from: name(), to: "/data/b".into() }).into();
    let actions = [
        Action::Process { name: "app".into() },
        Action::Bind { file, name: name() },
        Action::Open { open: None, file, created: true },
        Action::Write { open: None, file, offset: 0, len: 8192, sync: false },
        Action::Write { open: None, file, offset: 4096, len: 100, sync: true },
        Action::Sync { file, offset: 0, len: u64::MAX },
        Action::Read { open: None, file, offset: 0, len: 4096 },
        Action::Truncate { file, size: 4096 },
        Action::Punch { file, offset: 0, len: 4096 },
        Action::Direct { open: None, file, offset: 4096, len: 512, write: true },
        Action::SyncAll,
        Action::Close { open: None, file },
        Action::Rename { file, names: names() },
        Action::Unbind { file, name: "/data/b".into() },
        Action::Gone { file },
    ];
    let event = |(n, action): (u64, Action<'static>)| Event { at_us: 1000 * n, pid: 7, tid: 8, action };
    let events: Vec<_> = (0..).zip(actions).map(event).collect();
    encoder
        .about(About { epoch_us: None, side: Side::Before, space: Space::Files, knows })
        .expect("memory takes anything");
    encoder.events(&events).expect("memory takes anything");
    encoder.finish(&Skipped::default()).expect("memory takes anything")
}
