//! The rows of the store as text: a CSV file with the same columns, for programs that read no
//! Parquet.
//!
//! The first row has the action `about`: its name is the description of the trace, as JSON. Line
//! breaks in names are written as `\x0a` and `\x0d`, so that a line is a row. The counts of
//! skipped lines and the notes on a trace have no place here.

use super::{Kind, Meta, Row};
use crate::{
    Error,
    annotations::Annotations,
    events::{Events, Sink, Skip, Skipped},
    replace::Replace,
};
use flashsift_events::event::{About, Event, FileOwner, Knows, Side, Space};
use std::{borrow::Cow, io::Write, path::Path};

/// The columns, which [docs/formats.md] describes.
pub(crate) const HEADER: &str =
    "at_us,action,file,offset,len,pid,tid,flag,name,name2,open,uid,gid,mode,place";
const ABOUT: &str = "about";
const SHAPE: Skip = Skip::Damage("row that is no event");

/// Writes a trace to a file, which appears only when it is finished.
pub struct CsvWriter {
    rows: csv::Writer<Replace>,
    trace: String,
    path: String,
}

impl CsvWriter {
    /// Begins a file that will become `path`. `trace` is the name of the imported trace.
    ///
    /// # Errors
    ///
    /// The file cannot be created.
    pub fn create(path: &Path, trace: &str) -> Result<Self, Error> {
        let name = path.display().to_string();
        let file =
            Replace::new(path).map_err(|e| Error::At { path: name.clone(), what: e.into() })?;
        let rows = csv::WriterBuilder::new().buffer_capacity(256 << 10).from_writer(file);
        Ok(Self { rows, trace: trace.to_owned(), path: name })
    }

    /// Gives the file its name. Returns its size in bytes.
    ///
    /// # Errors
    ///
    /// The file cannot be written or put in its place.
    pub fn finish(self) -> Result<u64, Error> {
        let at = |what: Box<dyn std::error::Error + Send + Sync>| Error::At {
            path: self.path.clone(),
            what,
        };
        let file = self.rows.into_inner().map_err(|e| at(e.into_error().into()))?;
        file.commit().map_err(|e| at(e.into()))
    }

    fn failed(&self, error: csv::Error) -> Error {
        Error::At { path: self.path.clone(), what: error.into() }
    }
}

impl Sink for CsvWriter {
    fn about(&mut self, about: About) -> Result<(), Error> {
        let meta = Meta::new(about, &self.trace, Annotations::default(), &Skipped::default());
        let meta = serde_json::to_string(&meta).expect("plain data");
        let mut row = ["", ABOUT, "", "", "", "", "", "", &meta, "", "", "", "", "", ""];
        row[0] = "0";
        let written = self.rows.write_record(HEADER.split(','));
        written.and_then(|()| self.rows.write_record(row)).map_err(|e| self.failed(e))
    }

    fn events(&mut self, events: &[Event<'static>]) -> Result<(), Error> {
        events.iter().try_for_each(|event| write(&mut self.rows, event)).map_err(|e| self.failed(e))
    }
}

fn write<W: Write>(rows: &mut csv::Writer<W>, event: &Event<'_>) -> csv::Result<()> {
    let row = Row::new(&event.action);
    let mut number = itoa::Buffer::new();
    let mut put = |rows: &mut csv::Writer<W>, value: u64| rows.write_field(number.format(value));
    let optional = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    put(rows, event.at_us)?;
    rows.write_field(row.kind.name())?;
    put(rows, row.file)?;
    put(rows, row.offset)?;
    match row.len {
        u64::MAX => rows.write_field("-1")?,
        len => put(rows, len)?,
    }
    put(rows, event.pid.into())?;
    put(rows, event.tid.into())?;
    rows.write_field(if row.flag { "1" } else { "0" })?;
    for name in row.names {
        rows.write_field(one_line(name.unwrap_or_default()).as_ref())?;
    }
    put(rows, row.open.into())?;
    let owner = [row.owner.map(|owner| owner.uid), row.owner.map(|owner| owner.gid), row.mode];
    for value in owner {
        rows.write_field(optional(value.map(u64::from)))?;
    }
    rows.write_field(optional(row.place))?;
    rows.write_record(None::<&[u8]>)
}

fn one_line(name: &str) -> Cow<'_, str> {
    match name.contains(['\n', '\r']) {
        true => name.replace('\n', "\\x0a").replace('\r', "\\x0d").into(),
        false => name.into(),
    }
}

/// Reads the rows of such a file, after its header.
#[derive(Default)]
pub(crate) struct Reader {
    about: bool,
}

impl Reader {
    /// Takes one row.
    ///
    /// # Errors
    ///
    /// The consumer of the events failed.
    pub(crate) fn row(
        &mut self,
        fields: &[&str],
        events: &mut Events<'_>,
    ) -> Result<Result<(), Skip>, Error> {
        if let [_, ABOUT, ..] = fields
            && !self.about
        {
            self.about = true;
            let json = fields.get(8).copied().unwrap_or_default();
            let at = |what: String| Error::Malformed { what, offset: 0 };
            let about = Meta::parse(json).and_then(|meta| meta.about()).map_err(at)?;
            return events.about(about).map(Ok);
        }
        if !self.about {
            self.about = true;
            events.about(ABOUT_UNKNOWN)?;
        }
        match event(fields) {
            Some(event) => events.push(event).map(Ok),
            None => Ok(Err(SHAPE)),
        }
    }
}

/// The description of a file whose first row was removed.
const ABOUT_UNKNOWN: About = About {
    epoch_us: None,
    boot_us: None,
    side: Side::Before,
    space: Space::Files,
    knows: Knows {
        times: true,
        syncs: true,
        writes: true,
        removals: true,
        names: true,
        ..Knows::NOTHING
    },
};

fn event(fields: &[&str]) -> Option<Event<'static>> {
    let &[at_us, kind, file, offset, len, pid, tid, flag, name, name2, open, uid, gid, mode, place] =
        fields
    else {
        return None;
    };
    fn optional<T: std::str::FromStr>(field: &str) -> Option<Option<T>> {
        if field.is_empty() { Some(None) } else { field.parse().ok().map(Some) }
    }
    let row = Row {
        kind: Kind::named(kind.as_bytes())?,
        file: file.parse().ok()?,
        offset: offset.parse().ok()?,
        len: if len == "-1" { u64::MAX } else { len.parse().ok()? },
        flag: match flag {
            "0" => false,
            "1" => true,
            // Other programs write it so.
            flag if flag.eq_ignore_ascii_case("false") => false,
            flag if flag.eq_ignore_ascii_case("true") => true,
            _ => return None,
        },
        names: [Some(name), Some(name2)],
        open: open.parse().ok()?,
        owner: match (optional(uid)?, optional(gid)?) {
            (Some(uid), Some(gid)) => Some(FileOwner { uid, gid }),
            _ => None,
        },
        mode: optional(mode)?,
        place: optional(place)?,
    };
    let (at_us, pid, tid) = (at_us.parse().ok()?, pid.parse().ok()?, tid.parse().ok()?);
    Some(Event { at_us, pid, tid, action: row.action().ok()? })
}
