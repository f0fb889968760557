//! Our own store: Parquet, zstd inside, one row an event, so that polars, DuckDB and the like read
//! it too.
//!
//! | column | type | |
//! | --- | --- | --- |
//! | `at_us` | INT64 | microseconds since the first event |
//! | `action` | STRING | which kind of event: a name such as `read` (docs/formats.md lists them) |
//! | `file` | INT64 | the `FileId`; 0 where the event is about no file |
//! | `offset` | INT64 | first byte; `truncate`, `size`: the size; `memory-pressure`: ppm;
//!   `memory-lines`: lines read; `meaning`: hash of the site; else 0 |
//! | `len` | INT64 | bytes; -1 for a `sync` to the end of the file; `memory-lines`: lines written;
//!   `meaning`: hash of the URL; else 0 |
//! | `pid`, `tid` | INT32 | 0 unknown |
//! | `flag` | BOOLEAN | `write`, `create`: `O_SYNC`; `open`: new; `direct`: write; `sync`: data;
//!   `memory-lines`: non-volatile; `meaning`: of a third party |
//! | `name` | STRING, null | of a file (the old one), a process, an application or a group |
//! | `name2` | STRING, null | the name renamed to |
//! | `open` | INT32 | the `OpenId`; 0 unknown |
//! | `uid`, `gid` | INT32, null | `create`: the owner, where it is known |
//! | `mode` | INT32, null | `create`: the permission bits, where they are known |
//! | `place` | INT64, null | `place`: first byte on the device |
//!
//! Schema 3 has neither `place` nor events of that kind. Schemas 1 and 2 have no columns after
//! `name2`, and a number in `action`: an index into the metadata's `actions`. They lack the facts
//! of those columns, and the kinds from `create` on.
//!
//! Unsigned numbers are stored with their bits unchanged. The key-value metadata holds one JSON
//! object under `flashsift`: the schema version, the description of the trace and the facts that it
//! contains, the wall-clock time and CLOCK_BOOTTIME of its time 0, its origin (the name of the
//! imported trace and the lines that its reader skipped, which would be lost otherwise), and what
//! commands noted about it ([`Annotations`]).
//!
//! A file that another program has written again is read by the names of its columns, whatever
//! their order, annotations, encodings and nulls. If the metadata was lost, the rows show what the
//! trace holds.
//!
//! Rows are grouped so that writing and reading a trace of any length need a few tens of megabytes.

mod actions;
mod columns;
pub mod csv;

use self::columns::{Flags, Kinds, Numbers, Places, Texts, short};

use crate::{
    Error,
    annotations::Annotations,
    events::{Access, AccessKind, Events, Origin, Reason, Sink, Skipped},
    replace::Replace,
};
use flashsift_events::event::{
    About, Action, Create, Event, FileId, FileOwner, FileSystemKind, Knows, MaybeOwned, OpenId,
    Renamed, Side, Space,
};
use parquet::{
    basic::{Compression, ZstdLevel},
    column::page::PageReader,
    data_type::{BoolType, ByteArray, ByteArrayType, DataType, Int32Type, Int64Type},
    errors::ParquetError,
    file::{
        metadata::{KeyValue, ParquetMetaDataReader, RowGroupMetaData},
        properties::{EnabledStatistics, WriterProperties, WriterVersion},
        reader::ChunkReader,
        serialized_reader::SerializedPageReader,
        writer::SerializedFileWriter,
    },
    schema::{parser::parse_message_type, types::ColumnPath},
};
use serde::{Deserialize, Serialize};
use std::{
    cell::Cell,
    io::Write,
    num::NonZeroU32,
    panic::{self, AssertUnwindSafe},
    path::Path,
    sync::{Arc, Once},
};

/// The version that this module writes, and the newest that it reads.
pub const SCHEMA: u32 = 4;

const KEY: &str = "flashsift";
const MESSAGE: &str = "message event {
    required int64 at_us; required binary action (UTF8); required int64 file (UINT_64);
        required int64 offset;
    required int64 len; required int32 pid (UINT_32); required int32 tid (UINT_32);
        required boolean flag;
    optional binary name (UTF8); optional binary name2 (UTF8);
    required int32 open (UINT_32); optional int32 uid (UINT_32); optional int32 gid (UINT_32);
    optional int32 mode (UINT_32); optional int64 place (UINT_64);
}";
const GROUP_ROWS_MAX: usize = 1 << 18;
const GROUP_NAME_BYTES_MAX: usize = 32 << 20;
const READ_ROWS: usize = 4096;

/// The kinds of event, one for each [`Action`], and their names in the `action` column.
macro_rules! kinds {
    ($($kind:ident $name:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Kind { $($kind,)* }

        impl Kind {
            const ALL: &[Self] = &[$(Self::$kind,)*];

            fn name(self) -> &'static str {
                match self { $(Self::$kind => $name,)* }
            }

            fn named(name: &[u8]) -> Option<Self> {
                $(if name == $name.as_bytes() { return Some(Self::$kind); })*
                None
            }
        }
    };
}

// In the order of the numbers of schemas 1 and 2, which end with `gone` and `direct`. New kinds are
// added at the end.
kinds! {
    Read "read",
    Write "write",
    Sync "sync",
    SyncAll "sync-all",
    Truncate "truncate",
    Punch "punch",
    Open "open",
    Close "close",
    Bind "bind",
    Rename "rename",
    Unbind "unbind",
    Gone "gone",
    Process "process",
    Direct "direct",
    Create "create",
    Size "size",
    Link "link",
    RenameDirectory "rename-directory",
    MemoryPressure "memory-pressure",
    Foreground "foreground",
    Place "place",
    Cause "cause",
    ControlGroup "control-group",
    MemoryLines "memory-lines",
    SyncDirectory "sync-directory",
    Folio "folio",
    TimeToLive "time-to-live",
    Filled "filled",
    Meaning "meaning",
}

/// Number of kinds in schema 2.
const KINDS_2: usize = 14;

#[derive(Serialize, Deserialize)]
struct Meta {
    schema: u32,
    side: String,
    space: String,
    times: bool,
    syncs: bool,
    writes: bool,
    removals: bool,
    // Absent before schema 3: opens are then unknown.
    #[serde(default)]
    opens: bool,
    #[serde(default)]
    creations: bool,
    #[serde(default)]
    sizes: bool,
    #[serde(default)]
    names: bool,
    #[serde(default)]
    pressure: bool,
    #[serde(default)]
    foreground: bool,
    // Absent before schema 4.
    #[serde(default)]
    places: bool,
    /// Absent in stores older than rules of file systems.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file_system: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    epoch_us: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    boot_us: Option<u64>,
    #[serde(flatten)]
    annotations: Annotations,
    /// Names of the numbers in the `action` column, before schema 3.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
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
    /// Absent in stores older than notes.
    #[serde(default)]
    note: bool,
}

/// The only part that is read of a schema that may be newer.
#[derive(Deserialize)]
struct MetaVersion {
    schema: u32,
}

impl Meta {
    fn new(about: About, trace: &str, annotations: Annotations, skipped: &Skipped) -> Self {
        let Knows {
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
        } = about.knows;
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
            opens,
            creations,
            sizes,
            names,
            pressure,
            foreground,
            places,
            file_system: file_system.map(|file_system| file_system.name().to_owned()),
            epoch_us: about.epoch_us,
            boot_us: about.boot_us,
            annotations,
            actions: Vec::new(),
            trace: trace.to_owned(),
            skipped: skipped.iter().map(skip).collect(),
        }
    }

    fn parse(json: &str) -> Result<Self, String> {
        let MetaVersion { schema } = serde_json::from_str(json).map_err(|e| e.to_string())?;
        if schema > SCHEMA {
            return Err(format!(
                "it was written by a newer flashsift (schema {schema}, this one reads {SCHEMA}): \
                update"
            ));
        }
        let meta: Self = serde_json::from_str(json).map_err(|e| e.to_string())?;
        let known = || Kind::ALL.iter().map(|kind| kind.name());
        if meta.actions.len() > KINDS_2
            || !known().zip(&meta.actions).all(|(ours, theirs)| ours == theirs)
        {
            return Err("its actions are not those of its schema".into());
        }
        Ok(meta)
    }

    fn about(&self) -> Result<About, String> {
        let &Self { times, syncs, writes, removals, opens, creations, .. } = self;
        let &Self { sizes, names, pressure, foreground, places, .. } = self;
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
            epoch_us: self.epoch_us,
            boot_us: self.boot_us,
            side,
            space,
            knows: Knows {
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
                // One of a newer version has no rule here.
                file_system: self.file_system.as_deref().and_then(FileSystemKind::named),
            },
        })
    }

    fn origin(self) -> Origin {
        let mut skipped = Skipped::default();
        for MetaSkip { reason, count, first, damage, note } in self.skipped {
            skipped.restore(reason, Reason { count, first, damage, note });
        }
        Origin { trace: self.trace, skipped, annotations: self.annotations }
    }
}

/// Writes a trace to a file, which appears only when it is finished.
pub struct Writer {
    encoder: Encoder<Replace>,
    path: String,
}

impl Writer {
    /// Begins a file that will become `path`. `trace` is the name of the imported trace, kept for
    /// readers.
    ///
    /// # Errors
    ///
    /// The file cannot be created.
    pub fn create(path: &Path, trace: &str) -> Result<Self, Error> {
        let name = path.display().to_string();
        let file =
            Replace::new(path).map_err(|e| Error::At { path: name.clone(), what: e.into() })?;
        Ok(Self { encoder: Encoder::new(file, trace)?, path: name })
    }

    /// Sets what is noted about the trace.
    pub fn annotate(&mut self, annotations: Annotations) {
        self.encoder.annotate(annotations);
    }

    /// Returns the size of the file so far, if each row not yet written takes `row_bytes`.
    pub fn bytes_so_far(&self, row_bytes: u64) -> u64 {
        self.encoder.writer.bytes_written() as u64
            + self.encoder.rows.at_us.len() as u64 * row_bytes
    }

    /// Writes the remaining rows and the `skipped` counts, and gives the file its name. Returns its
    /// size in bytes.
    ///
    /// # Errors
    ///
    /// The file cannot be written or put in its place.
    pub fn finish(self, skipped: &Skipped) -> Result<u64, Error> {
        let path = self.path;
        let file = self.encoder.finish(skipped);
        let file = file.map_err(|e| Error::At { path: path.clone(), what: e.into() })?;
        file.commit().map_err(|e| Error::At { path, what: e.into() })
    }

    fn named(&self, error: Error) -> Error {
        Error::At { path: self.path.clone(), what: error.into() }
    }
}

impl Sink for Writer {
    fn about(&mut self, about: About) -> Result<(), Error> {
        self.encoder.about(about).map_err(|e| self.named(e))
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
    annotations: Annotations,
    rows: Rows,
}

impl<W: Write + Send> Encoder<W> {
    /// Returns an encoder that writes to `stream`.
    ///
    /// # Errors
    ///
    /// The stream fails.
    pub fn new(stream: W, trace: &str) -> Result<Self, Error> {
        let schema = parse_message_type(MESSAGE).expect("the schema is a constant");
        let writer = SerializedFileWriter::new(stream, Arc::new(schema), Arc::new(properties()))
            .map_err(written)?;
        Ok(Self {
            writer,
            trace: trace.to_owned(),
            about: None,
            annotations: Annotations::default(),
            rows: Rows::default(),
        })
    }

    /// Sets what is noted about the trace.
    pub fn annotate(&mut self, annotations: Annotations) {
        self.annotations = annotations;
    }

    /// Writes the remaining rows and returns the stream.
    ///
    /// # Errors
    ///
    /// The stream fails, or the description of the trace was never given.
    pub fn finish(mut self, skipped: &Skipped) -> Result<W, Error> {
        let Some(about) = self.about else {
            return Err(Error::Sink("nothing is known about the trace to be stored".into()));
        };
        self.rows.flush(&mut self.writer)?;
        let meta = Meta::new(about, &self.trace, self.annotations, skipped);
        let meta = serde_json::to_string(&meta).expect("plain data");
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
    // Pages of version 1, and numbers without deltas: fastparquet misreads deltas of more than 28
    // bits, and in pages of version 2 all of 64 bits, without an error. Packed, most traces are
    // smaller so.
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_1_0)
        .set_created_by(concat!("flashsift ", env!("CARGO_PKG_VERSION")).into())
        .set_compression(Compression::ZSTD(zstd))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_max_row_group_row_count(None)
        .set_dictionary_enabled(true);
    for name in ["at_us", "offset"] {
        properties = properties.set_column_dictionary_enabled(column(name), false);
    }
    properties.build()
}

/// A row group that is being filled, by column.
#[derive(Default)]
struct Rows {
    at_us: Vec<i64>,
    kind: Vec<Kind>,
    file: Vec<i64>,
    offset: Vec<i64>,
    len: Vec<i64>,
    pid: Vec<i32>,
    tid: Vec<i32>,
    flag: Vec<bool>,
    names: [Sparse<ByteArray>; 2],
    name_bytes: usize,
    open: Vec<i32>,
    /// User, group, mode.
    owner: [Sparse<i32>; 3],
    place: Sparse<i64>,
}

/// A column with nulls.
struct Sparse<T> {
    levels: Vec<i16>,
    values: Vec<T>,
}

impl<T> Default for Sparse<T> {
    fn default() -> Self {
        Self { levels: Vec::new(), values: Vec::new() }
    }
}

impl<T> Sparse<T> {
    fn push(&mut self, value: Option<T>) {
        self.levels.push(i16::from(value.is_some()));
        self.values.extend(value);
    }
}

/// An event in the form of a row: the columns of the store, but for time, process and thread.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    kind: Kind,
    /// The `FileId`; 0 where the event is about no file.
    pub file: u64,
    /// First byte, or as the module's table says.
    pub offset: u64,
    /// Bytes, or as the module's table says.
    pub len: u64,
    /// `O_SYNC`, or as the module's table says.
    pub flag: bool,
    /// The name, and the name renamed to.
    pub names: [Option<&'a str>; 2],
    /// The `OpenId`; 0 unknown.
    pub open: u32,
    /// The owner of a new file, where it is known.
    pub owner: Option<FileOwner>,
    /// Its permission bits, where they are known.
    pub mode: Option<u32>,
    /// First byte on the device.
    pub place: Option<u64>,
}

impl<'a> Row<'a> {
    /// Returns the names in the `action` column, by [`Self::action_number`].
    pub fn actions() -> impl Iterator<Item = &'static str> {
        Kind::ALL.iter().map(|kind| kind.name())
    }

    /// Returns the number of the row's action among [`Self::actions`].
    pub fn action_number(&self) -> usize {
        self.kind as usize
    }

    fn of_kind(kind: Kind) -> Self {
        Self {
            kind,
            file: 0,
            offset: 0,
            len: 0,
            flag: false,
            names: [None; 2],
            open: 0,
            owner: None,
            mode: None,
            place: None,
        }
    }

    /// Returns the row of an event.
    pub fn new(action: &'a Action<'_>) -> Self {
        let number = |open: Option<OpenId>| open.map_or(0, |OpenId(open)| open.get());
        match *action {
            Action::Read { file, open, offset, len } => {
                Self { file: file.0, open: number(open), offset, len, ..Self::of_kind(Kind::Read) }
            }
            Action::Write { file, open, offset, len, sync } => Self {
                file: file.0,
                open: number(open),
                offset,
                len,
                flag: sync,
                ..Self::of_kind(Kind::Write)
            },
            Action::Direct { file, open, offset, len, write } => Self {
                file: file.0,
                open: number(open),
                offset,
                len,
                flag: write,
                ..Self::of_kind(Kind::Direct)
            },
            Action::Sync { file, offset, len, data_only } => {
                Self { file: file.0, offset, len, flag: data_only, ..Self::of_kind(Kind::Sync) }
            }
            Action::SyncAll => Self::of_kind(Kind::SyncAll),
            Action::SyncDirectory { ref path } => {
                Self { names: [Some(path), None], ..Self::of_kind(Kind::SyncDirectory) }
            }
            Action::Folio { file, offset, len } => {
                Self { file: file.0, offset, len, ..Self::of_kind(Kind::Folio) }
            }
            Action::Filled { file, offset, len } => {
                Self { file: file.0, offset, len, ..Self::of_kind(Kind::Filled) }
            }
            Action::Truncate { file, size } => {
                Self { file: file.0, offset: size, ..Self::of_kind(Kind::Truncate) }
            }
            Action::Punch { file, offset, len } => {
                Self { file: file.0, offset, len, ..Self::of_kind(Kind::Punch) }
            }
            Action::Create(ref create) => Self {
                file: create.file.0,
                names: [Some(&create.name), None],
                owner: create.owner,
                mode: create.mode,
                flag: create.sync,
                ..Self::of_kind(Kind::Create)
            },
            Action::Size { file, size } => {
                Self { file: file.0, offset: size, ..Self::of_kind(Kind::Size) }
            }
            Action::Open { file, open, created } => Self {
                file: file.0,
                open: number(open),
                flag: created,
                ..Self::of_kind(Kind::Open)
            },
            Action::Close { file, open } => {
                Self { file: file.0, open: number(open), ..Self::of_kind(Kind::Close) }
            }
            Action::Bind { file, ref name } => {
                Self { file: file.0, names: [Some(name), None], ..Self::of_kind(Kind::Bind) }
            }
            Action::Link { file, ref name } => {
                Self { file: file.0, names: [Some(name), None], ..Self::of_kind(Kind::Link) }
            }
            Action::Rename { file, ref names } => Self {
                file: file.0,
                names: [Some(&names.from), Some(&names.to)],
                ..Self::of_kind(Kind::Rename)
            },
            Action::RenameDirectory { ref names } => Self {
                names: [Some(&names.from), Some(&names.to)],
                ..Self::of_kind(Kind::RenameDirectory)
            },
            Action::Unbind { file, ref name } => {
                Self { file: file.0, names: [Some(name), None], ..Self::of_kind(Kind::Unbind) }
            }
            Action::Gone { file } => Self { file: file.0, ..Self::of_kind(Kind::Gone) },
            Action::Process { ref name } => {
                Self { names: [Some(name), None], ..Self::of_kind(Kind::Process) }
            }
            Action::MemoryLines { nvm, read, written } => {
                Self { offset: read, len: written, flag: nvm, ..Self::of_kind(Kind::MemoryLines) }
            }
            Action::MemoryPressure { stalled_ppm } => {
                Self { offset: stalled_ppm.into(), ..Self::of_kind(Kind::MemoryPressure) }
            }
            Action::TimeToLive { ttl_us } => {
                Self { offset: ttl_us, ..Self::of_kind(Kind::TimeToLive) }
            }
            Action::ControlGroup { ref path } => {
                Self { names: [Some(path), None], ..Self::of_kind(Kind::ControlGroup) }
            }
            Action::Foreground { ref app } => {
                Self { names: [Some(app), None], ..Self::of_kind(Kind::Foreground) }
            }
            Action::Meaning { file, ref what, site, url, third_party } => Self {
                file: file.0,
                offset: site,
                len: url,
                flag: third_party,
                names: [Some(what), None],
                ..Self::of_kind(Kind::Meaning)
            },
            Action::Place { file, offset, len, at } => {
                Self { file: file.0, offset, len, place: Some(at), ..Self::of_kind(Kind::Place) }
            }
            Action::Cause { origin, awaited } => Self {
                file: origin.map_or(0, |(file, _)| file.0),
                place: origin.map(|(_, offset)| offset),
                flag: awaited,
                ..Self::of_kind(Kind::Cause)
            },
        }
    }

    #[inline]
    fn open(&self) -> Option<OpenId> {
        NonZeroU32::new(self.open).map(OpenId)
    }

    /// Returns the kind of access that this is, if it is one.
    #[inline]
    fn access(&self) -> Option<AccessKind> {
        match self.kind {
            Kind::Read => Some(AccessKind::Read),
            Kind::Write => Some(AccessKind::Write { sync: self.flag }),
            _ => None,
        }
    }

    #[inline]
    fn action(&self) -> Result<Action<'static>, &'static str> {
        let &Self { offset, len, flag, .. } = self;
        let (file, open) = (FileId(self.file), self.open());
        let name = |n: usize| self.names[n].map(MaybeOwned::owned_str).ok_or("a name is missing");
        let names =
            || Ok::<_, &'static str>(MaybeOwned::owned(Renamed { from: name(0)?, to: name(1)? }));
        Ok(match self.kind {
            Kind::Read => Action::Read { file, open, offset, len },
            Kind::Write => Action::Write { file, open, offset, len, sync: flag },
            Kind::Sync => Action::Sync { file, offset, len, data_only: flag },
            Kind::SyncAll => Action::SyncAll,
            Kind::SyncDirectory => Action::SyncDirectory { path: name(0)? },
            Kind::Folio => Action::Folio { file, offset, len },
            Kind::Filled => Action::Filled { file, offset, len },
            Kind::Truncate => Action::Truncate { file, size: offset },
            Kind::Punch => Action::Punch { file, offset, len },
            Kind::Open => Action::Open { file, open, created: flag },
            Kind::Close => Action::Close { file, open },
            Kind::Bind => Action::Bind { file, name: name(0)? },
            Kind::Rename => Action::Rename { file, names: names()? },
            Kind::Unbind => Action::Unbind { file, name: name(0)? },
            Kind::Gone => Action::Gone { file },
            Kind::Process => Action::Process { name: name(0)? },
            Kind::Direct => Action::Direct { file, open, offset, len, write: flag },
            Kind::Create => {
                let &Self { owner, mode, .. } = self;
                Action::Create(MaybeOwned::owned(Create {
                    file,
                    name: name(0)?,
                    owner,
                    mode,
                    sync: flag,
                }))
            }
            Kind::Size => Action::Size { file, size: offset },
            Kind::Link => Action::Link { file, name: name(0)? },
            Kind::RenameDirectory => Action::RenameDirectory { names: names()? },
            Kind::MemoryLines => Action::MemoryLines { nvm: flag, read: offset, written: len },
            Kind::MemoryPressure => {
                let stalled_ppm =
                    u32::try_from(offset).map_err(|_| "memory pressure beyond all")?;
                Action::MemoryPressure { stalled_ppm }
            }
            Kind::ControlGroup => Action::ControlGroup { path: name(0)? },
            Kind::TimeToLive => Action::TimeToLive { ttl_us: offset },
            Kind::Foreground => Action::Foreground { app: name(0)? },
            Kind::Meaning => {
                Action::Meaning { file, what: name(0)?, site: offset, url: len, third_party: flag }
            }
            Kind::Place => {
                let at = self.place.ok_or("a place is missing")?;
                Action::Place { file, offset, len, at }
            }
            Kind::Cause => {
                Action::Cause { origin: self.place.map(|offset| (file, offset)), awaited: flag }
            }
        })
    }
}

impl Rows {
    fn push(&mut self, event: &Event) {
        let row = Row::new(&event.action);
        self.at_us.push(event.at_us.cast_signed());
        self.kind.push(row.kind);
        self.file.push(row.file.cast_signed());
        self.offset.push(row.offset.cast_signed());
        self.len.push(row.len.cast_signed());
        self.pid.push(event.pid.cast_signed());
        self.tid.push(event.tid.cast_signed());
        self.flag.push(row.flag);
        for (names, name) in self.names.iter_mut().zip(row.names) {
            self.name_bytes += name.map_or(0, str::len);
            names.push(name.map(ByteArray::from));
        }
        self.open.push(row.open.cast_signed());
        let owner = [row.owner.map(|owner| owner.uid), row.owner.map(|owner| owner.gid), row.mode];
        for (column, value) in self.owner.iter_mut().zip(owner) {
            column.push(value.map(u32::cast_signed));
        }
        self.place.push(row.place.map(u64::cast_signed));
    }

    fn full(&self) -> bool {
        self.at_us.len() >= GROUP_ROWS_MAX || self.name_bytes >= GROUP_NAME_BYTES_MAX
    }

    fn flush<W: Write + Send>(
        &mut self,
        writer: &mut SerializedFileWriter<W>,
    ) -> Result<(), Error> {
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
            let names: Vec<_> = Kind::ALL.iter().map(|kind| ByteArray::from(kind.name())).collect();
            let actions: Vec<_> =
                rows.kind.iter().map(|kind| names[*kind as usize].clone()).collect();
            let mut group = writer.next_row_group()?;
            column::<Int64Type, _>(&mut group, &rows.at_us, None)?;
            column::<ByteArrayType, _>(&mut group, &actions, None)?;
            column::<Int64Type, _>(&mut group, &rows.file, None)?;
            column::<Int64Type, _>(&mut group, &rows.offset, None)?;
            column::<Int64Type, _>(&mut group, &rows.len, None)?;
            column::<Int32Type, _>(&mut group, &rows.pid, None)?;
            column::<Int32Type, _>(&mut group, &rows.tid, None)?;
            column::<BoolType, _>(&mut group, &rows.flag, None)?;
            for Sparse { levels, values } in &rows.names {
                column::<ByteArrayType, _>(&mut group, values, Some(levels))?;
            }
            column::<Int32Type, _>(&mut group, &rows.open, None)?;
            for Sparse { levels, values } in &rows.owner {
                column::<Int32Type, _>(&mut group, values, Some(levels))?;
            }
            let Sparse { levels, values } = &rows.place;
            column::<Int64Type, _>(&mut group, values, Some(levels))?;
            group.close()?;
            Ok(())
        };
        write(self).map_err(written)?;
        *self = Self::default();
        Ok(())
    }
}

fn written(error: ParquetError) -> Error {
    let why = match error {
        // Its text begins with "External: ".
        ParquetError::External(source) => source.to_string(),
        other => other.to_string(),
    };
    Error::Sink(format!("storing the trace failed: {why}"))
}

fn malformed(what: impl std::fmt::Display) -> Error {
    Error::Malformed {
        what: format!("the Parquet file is damaged or not one of ours: {what}"),
        offset: 0,
    }
}

/// Turns panics of the Parquet crate into errors. The crate checks much of a file's content, but
/// not all: on damaged pages it is known to panic (version 60: "Bit reader is not initialized" in
/// the delta decoder, among others). The decoding that panicked is then given up and only our error
/// is shown: the panic's own message is suppressed on this thread meanwhile.
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

/// A store that another program has written again keeps its rows, and may lose what else it says.
const WITHOUT_META: &str = "store whose description was lost when another program wrote it again: \
     it is taken as accesses of programs to files; the wall-clock time, the notes and the counts \
     of skipped lines are unknown";

/// Reads a stored trace.
pub(crate) fn read(file: impl ChunkReader + 'static, events: &mut Events<'_>) -> Result<(), Error> {
    let parsed = guarded(|| ParquetMetaDataReader::new().parse_and_finish(&file))?;
    let metadata = parsed.file_metadata();
    let meta = metadata.key_value_metadata().into_iter().flatten().find(|pair| pair.key == KEY);
    let meta = meta.and_then(|pair| pair.value.as_deref()).map(Meta::parse);
    let meta = meta.transpose().map_err(malformed)?;
    let places = Places::new(metadata.schema_descr())?;
    let file = Arc::new(file);
    let each_group = |read: &mut dyn FnMut(&Group<'_>) -> Result<(), Error>| {
        for about in parsed.row_groups() {
            let pages = |n| -> Result<Box<dyn PageReader>, ParquetError> {
                let (file, rows) = (Arc::clone(&file), usize::try_from(about.num_rows())?);
                Ok(Box::new(SerializedPageReader::new(file, about.column(n), rows, None)?))
            };
            read(&Group { about, pages: &pages })?;
        }
        Ok::<_, Error>(())
    };
    if let Some(meta) = meta {
        events.about(meta.about().map_err(malformed)?)?;
        events.origin(meta.origin());
    } else {
        let mut seen = Seen::default();
        each_group(&mut |group| seen.group(group, &places))?;
        events.about(seen.about())?;
        events.note(WITHOUT_META, 1);
    }
    let mut row = 0;
    each_group(&mut |group| read_group(group, &places, &mut row, events))
}

/// Facts that the rows of a store show.
#[derive(Default)]
struct Seen {
    kinds: [bool; Kind::ALL.len()],
    times: bool,
    opens: bool,
}

impl Seen {
    fn group(&mut self, group: &Group<'_>, places: &Places) -> Result<(), Error> {
        let mut left = group.rows()?;
        let mut kinds = Kinds::new(group, places.action, left)?;
        let mut at_us = Numbers::new(group, Some(places.at_us))?;
        let mut open = Numbers::new(group, places.open)?;
        let mut batch = Vec::new();
        while left > 0 {
            let rows = left.min(READ_ROWS);
            left -= rows;
            kinds.next(rows, &mut batch)?;
            batch.iter().for_each(|kind| self.kinds[*kind as usize] = true);
            at_us.next_whole(rows)?;
            self.times |= at_us.values.iter().any(|at_us| *at_us != 0);
            open.next(rows)?;
            self.opens |= open.values.iter().any(|open| *open != 0);
        }
        Ok(())
    }

    /// The most cautious description: whether all creations and sizes are there, no row shows.
    fn about(&self) -> About {
        let has = |kind: Kind| self.kinds[kind as usize];
        let after = has(Kind::Cause) || has(Kind::MemoryLines);
        let (side, space) = match after {
            true => (Side::After, Space::Blocks),
            false => (Side::Before, Space::Files),
        };
        let knows = Knows {
            times: self.times,
            syncs: true,
            writes: true,
            removals: true,
            opens: self.opens,
            names: has(Kind::Bind) || has(Kind::Create),
            pressure: has(Kind::MemoryPressure),
            foreground: has(Kind::Foreground),
            places: has(Kind::Place),
            ..Knows::NOTHING
        };
        About { epoch_us: None, boot_us: None, side, space, knows }
    }
}

/// A row group. The Parquet crate has one too, which can read columns of every type: a hundred
/// kilobytes of code.
struct Group<'a> {
    about: &'a RowGroupMetaData,
    /// Opens a column by its number.
    pages: &'a dyn Fn(usize) -> Result<Box<dyn PageReader>, ParquetError>,
}

impl Group<'_> {
    fn rows(&self) -> Result<usize, Error> {
        let rows = self.about.num_rows();
        usize::try_from(rows).map_err(|_| malformed(format_args!("a row group of {rows} rows")))
    }

    fn pages(&self, n: usize) -> Result<Box<dyn PageReader>, Error> {
        let packed = self.about.column(n).compression();
        if let Compression::BROTLI(_) | Compression::LZO = packed {
            return Err(Error::Lacks(
                "its columns are compressed with brotli or LZO, which flashsift does not unpack: \
                 write it again with zstd, snappy, gzip or lz4"
                    .to_owned(),
            ));
        }
        guarded(|| (self.pages)(n))
    }
}

fn read_group(
    group: &Group<'_>,
    places: &Places,
    row: &mut u64,
    events: &mut Events<'_>,
) -> Result<(), Error> {
    let mut left = group.rows()?;
    let mut kinds = Kinds::new(group, places.action, left)?;
    let numbers = |n: usize| Numbers::new(group, Some(n));
    let (mut at_us, mut file) = (numbers(places.at_us)?, numbers(places.file)?);
    let (mut offset, mut len) = (numbers(places.offset)?, numbers(places.len)?);
    let numbers = |n: Option<usize>| Numbers::new(group, n);
    let (mut pid, mut tid) = (numbers(places.pid)?, numbers(places.tid)?);
    let mut flag = Flags::new(group, places.flag)?;
    let mut name = Texts::new(group, places.name)?;
    let mut name2 = Texts::new(group, places.name2)?;
    let mut open = numbers(places.open)?;
    let [mut uid, mut gid] = [numbers(places.uid)?, numbers(places.gid)?];
    let [mut mode, mut place] = [numbers(places.mode)?, numbers(places.place)?];
    let mut batch = Vec::new();
    while left > 0 {
        let rows = left.min(READ_ROWS);
        left -= rows;
        kinds.next(rows, &mut batch)?;
        for column in [&mut at_us, &mut file, &mut offset, &mut len] {
            column.next_whole(rows)?;
        }
        for column in [&mut pid, &mut tid, &mut open, &mut uid, &mut gid, &mut mode, &mut place] {
            column.next(rows)?;
        }
        flag.next(rows)?;
        name.next(rows)?;
        name2.next(rows)?;
        for (n, &kind) in batch.iter().enumerate() {
            *row += 1;
            events.at(*row);
            let stored = Row {
                kind,
                file: file.values[n].cast_unsigned(),
                offset: offset.values[n].cast_unsigned(),
                len: len.values[n].cast_unsigned(),
                flag: flag.values[n],
                names: [text(name.value(n)?)?, text(name2.value(n)?)?],
                open: short(open.values[n])?,
                owner: match (uid.value(n), gid.value(n)) {
                    (Some(uid), Some(gid)) => {
                        Some(FileOwner { uid: short(uid)?, gid: short(gid)? })
                    }
                    _ => None,
                },
                mode: mode.value(n).map(short).transpose()?,
                place: place.value(n).map(i64::cast_unsigned),
            };
            let at_us = at_us.values[n].cast_unsigned();
            let (pid, tid) = (short(pid.values[n])?, short(tid.values[n])?);
            if let Some(kind) = stored.access() {
                let Row { file, offset, len, .. } = stored;
                let (file, open) = (FileId(file), stored.open());
                events.access(Access { at_us, pid, tid, file, open, offset, len, kind })?;
                continue;
            }
            let action =
                stored.action().map_err(|what| malformed(format_args!("row {row}: {what}")))?;
            events.push(Event { at_us, pid, tid, action })?;
        }
    }
    Ok(())
}

#[inline]
fn text(value: Option<&ByteArray>) -> Result<Option<&str>, Error> {
    match value {
        Some(value) => value.as_utf8().map(Some).map_err(malformed),
        None => Ok(None),
    }
}

/// A store that holds each kind of event, for the tests, the fuzzers and the docs.
pub(crate) fn sample() -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new(), "sample").expect("memory takes anything");
    let knows = Knows { pressure: true, foreground: true, places: true, ..Knows::OF_MOUNT };
    let (file, older) = (FileId(0), FileId(1));
    let open = NonZeroU32::new(1).map(OpenId);
    let owner = Some(FileOwner { uid: 10_001, gid: 10_001 });
    let create = Create { file, name: "/data/a".into(), owner, mode: Some(0o600), sync: false };
    let actions = [
        Action::Process { name: "app".into() },
        Action::Foreground { app: "app".into() },
        Action::Create(MaybeOwned::owned(create)),
        Action::Open { open, file, created: true },
        Action::Write { open, file, offset: 0, len: 8192, sync: false },
        Action::Write { open, file, offset: 4096, len: 100, sync: true },
        Action::Sync { file, offset: 0, len: u64::MAX, data_only: false },
        Action::Read { open, file, offset: 0, len: 4096 },
        Action::Truncate { file, size: 4096 },
        Action::Punch { file, offset: 0, len: 4096 },
        Action::Direct { open, file, offset: 4096, len: 512, write: true },
        Action::MemoryPressure { stalled_ppm: 25_000 },
        Action::TimeToLive { ttl_us: 60_000_000 },
        Action::SyncAll,
        Action::SyncDirectory { path: "/data".into() },
        Action::Write { open: None, file, offset: 4096, len: 4096, sync: false },
        Action::Folio { file, offset: 0, len: 16_384 },
        Action::Filled { file, offset: 4608, len: 3584 },
        Action::Meaning { file, what: "pip, package".into(), site: 1, url: 2, third_party: true },
        Action::Close { open, file },
        Action::Rename { file, names: Renamed::owned("/data/a", "/data/b") },
        Action::Link { file, name: "/data/d/c".into() },
        Action::RenameDirectory { names: Renamed::owned("/data/d", "/data/e") },
        Action::Bind { file: older, name: "/data/old".into() },
        Action::Size { file: older, size: 4097 },
        Action::Read { open: None, file: older, offset: 0, len: 4097 },
        Action::Place { file: older, offset: 0, len: 8192, at: 1 << 20 },
        Action::Cause { origin: Some((older, 4096)), awaited: true },
        Action::MemoryLines { nvm: true, read: 64, written: 130 },
        Action::Unbind { file, name: "/data/b".into() },
        Action::Unbind { file, name: "/data/e/c".into() },
        Action::Gone { file },
    ];
    let event =
        |(n, action): (u64, Action<'static>)| Event { at_us: 1000 * n, pid: 7, tid: 8, action };
    let events: Vec<_> = (0..).zip(actions).map(event).collect();
    let (epoch_us, boot_us) = (Some(1_795_000_000_000_000), Some(3_600_000_000));
    encoder
        .about(About { epoch_us, boot_us, side: Side::Before, space: Space::Files, knows })
        .expect("memory takes anything");
    encoder.events(&events).expect("memory takes anything");
    encoder.finish(&Skipped::default()).expect("memory takes anything")
}
