//! CSV of any columns, which `--columns` names, and the CSV that `import -o FILE.csv` writes.
//!
//! ```text
//! ts,path,rw,off,bytes
//! 0.5,/data/a.db,r,4096,512
//! ```
//!
//! With `--columns time=ts,file=path,op=rw,offset=off,len=bytes` a line is a request. A column is
//! named as the header names it, or by its number, from 1; a file whose columns all go by number
//! has no header. The separator is the one of comma, semicolon, tab and bar that occurs most often
//! in the first line. Fields may be quoted as RFC 4180 says, and cannot contain a line break.
//!
//! `block=512` is the unit of `offset` and `len`; `offset-unit=512` and `len-unit=512` are those of
//! one of them: SPC's traces count sectors in the offset and bytes in the length.
//!
//! The text of the file's column identifies a file, and is its name. Without that column
//! the trace is one of a block device. Without `op` all requests are reads, without `offset` they
//! begin at 0, and without `len` they are of one page.

use super::{
    Confidence, FileId, FormatSpec, Knows, Side, Space,
    processes::Processes,
    quick::{self, Memo, Text},
    text_line,
};
use crate::{
    Error,
    events::{Access, AccessKind, Events, Skip},
    input::Input,
    store::csv as stored,
};
use flashsift_core::{
    event::{About, Action, Create, Event, MaybeOwned},
    page::PAGE_BYTES,
    params,
};
use foldhash::fast::FixedState;
use std::collections::HashMap;

pub(super) const SPEC: FormatSpec = FormatSpec {
    name: "csv",
    what: "CSV: as `import -o FILE.csv` writes it, or of any columns (--columns)",
    detect,
    read,
    ahead: true,
    sample: || SAMPLE.as_bytes().to_vec(),
};

const SAMPLE: &str = "at_us,action,file,offset,len,pid,tid,flag,name,name2,open,uid,gid,mode,place
0,bind,0,0,0,7,7,0,\"/data/a,b\",,0,,,,
0,write,0,4096,512,7,7,0,,,0,,,,
12,sync,0,0,-1,7,7,1,,,0,,,,
20,read,0,0,8192,7,7,0,,,0,,,,
";

fn detect(head: &[u8]) -> Confidence {
    let line = head.split(|&b| b == b'\n').next().unwrap_or_default().trim_ascii_end();
    if line == stored::HEADER.as_bytes() { Confidence::Certain } else { Confidence::No }
}

/// The kind of value in a column of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holds {
    Time,
    File,
    Op,
    Offset,
    Len,
    Pid,
    Process,
}

const HOLDS: [(&str, Holds); 7] = [
    ("time", Holds::Time),
    ("file", Holds::File),
    ("op", Holds::Op),
    ("offset", Holds::Offset),
    ("len", Holds::Len),
    ("pid", Holds::Pid),
    ("process", Holds::Process),
];
/// Keys whose value is no column.
const UNIT: &str = "unit";
const BLOCK: &str = "block";
const OFFSET_UNIT: &str = "offset-unit";
const LEN_UNIT: &str = "len-unit";

/// The value of `--columns`.
#[derive(Debug)]
struct Columns<'a> {
    named: Vec<(Holds, &'a str)>,
    /// Units of the time in a second.
    per_second: u64,
    /// Bytes of a unit of `offset` and of `len`.
    offset_bytes: u64,
    len_bytes: u64,
    /// Whether `block` alone gives the unit of `len`.
    len_by_block: bool,
}

impl<'a> Columns<'a> {
    fn parse(text: &'a str) -> Result<Self, Error> {
        let mut columns = Self {
            named: Vec::new(),
            per_second: 1,
            offset_bytes: 1,
            len_bytes: 1,
            len_by_block: false,
        };
        let (mut block, mut offset_unit, mut len_unit) = (None, None, None);
        let mut given: Vec<String> = Vec::new();
        for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
            let (key, value) = pair
                .split_once('=')
                .map_or((pair.trim(), ""), |(key, value)| (key.trim(), value.trim()));
            let key = key.to_ascii_lowercase();
            if given.contains(&key) {
                return Err(Error::Options(format!("--columns gives `{key}=` more than once")));
            }
            given.push(key.clone());
            if let Some((_, holds)) = HOLDS.iter().find(|(name, _)| *name == key)
                && !value.is_empty()
            {
                columns.named.push((*holds, value));
                continue;
            }
            match (&*key, value) {
                (UNIT, "s") => columns.per_second = 1,
                (UNIT, "ms") => columns.per_second = 1000,
                (UNIT, "us") => columns.per_second = 1_000_000,
                (UNIT, "ns") => columns.per_second = 1_000_000_000,
                (BLOCK | OFFSET_UNIT | LEN_UNIT, bytes)
                    if bytes.parse().is_ok_and(|bytes: u64| bytes > 0) =>
                {
                    let unit = match &*key {
                        BLOCK => &mut block,
                        OFFSET_UNIT => &mut offset_unit,
                        _ => &mut len_unit,
                    };
                    *unit = bytes.parse().ok();
                }
                _ => {
                    let keys = [UNIT, BLOCK, OFFSET_UNIT, LEN_UNIT];
                    let names = HOLDS.iter().map(|(name, _)| *name).chain(keys);
                    let near = params::nearest(&key, names).filter(|near| *near != key);
                    return Err(Error::Options(format!(
                        "--columns does not take `{pair}`{}; it takes time=, file=, op=, offset=, \
                         len=, pid= and process= with the name or number of a column, unit=s, ms, \
                         us or ns for the time, block=BYTES for the unit of offset and len, and \
                         offset-unit=BYTES or len-unit=BYTES for one of them",
                        params::did_you_mean(near)
                    )));
                }
            }
        }
        if columns.named.is_empty() {
            return Err(Error::Options(
                "--columns names no column: give, for example, time=ts,file=path,op=rw".to_owned(),
            ));
        }
        columns.offset_bytes = offset_unit.or(block).unwrap_or(1);
        columns.len_bytes = len_unit.or(block).unwrap_or(1);
        columns.len_by_block = len_unit.is_none() && block.is_some_and(|bytes| bytes > 1);
        Ok(columns)
    }

    /// Whether the file begins with a header: a column goes by name.
    fn has_header(&self) -> bool {
        self.named.iter().any(|(_, column)| column.parse::<usize>().is_err())
    }

    /// Returns the place of each column in a line of this header.
    fn places(&self, header: &[&str]) -> Result<Places, Error> {
        let mut places = Places::default();
        let has_header = self.has_header();
        for (holds, column) in &self.named {
            let by_name = || header.iter().position(|name| name.trim() == *column);
            let by_case =
                || header.iter().position(|name| name.trim().eq_ignore_ascii_case(column));
            let by_number = || column.parse::<usize>().ok()?.checked_sub(1);
            let named = || by_name().or_else(by_case).filter(|_| has_header);
            let place = named().or_else(by_number).ok_or_else(|| {
                let near = params::nearest(column, header.iter().copied());
                Error::Lacks(format!(
                    "the header has no column `{column}`{}; it has: {}",
                    params::did_you_mean(near),
                    header.join(", ")
                ))
            })?;
            *places.of(*holds) = Some(place);
        }
        Ok(places)
    }
}

#[derive(Debug, Default)]
struct Places {
    time: Option<usize>,
    file: Option<usize>,
    op: Option<usize>,
    offset: Option<usize>,
    len: Option<usize>,
    pid: Option<usize>,
    process: Option<usize>,
}

impl Places {
    fn of(&mut self, holds: Holds) -> &mut Option<usize> {
        match holds {
            Holds::Time => &mut self.time,
            Holds::File => &mut self.file,
            Holds::Op => &mut self.op,
            Holds::Offset => &mut self.offset,
            Holds::Len => &mut self.len,
            Holds::Pid => &mut self.pid,
            Holds::Process => &mut self.process,
        }
    }
}

impl Places {
    /// Returns the content of each column, up to the last that is named; nothing if a column is
    /// named twice.
    fn in_order(&mut self) -> Vec<Option<Holds>> {
        let mut in_order = Vec::new();
        for (_, holds) in HOLDS {
            let Some(place) = *self.of(holds) else { continue };
            in_order.resize(in_order.len().max(place.saturating_add(1)), None);
            if in_order[place].replace(holds).is_some() {
                return Vec::new();
            }
        }
        in_order
    }
}

const UNKNOWN: Skip = Skip::Damage(
    "operation other than read, write, sync, truncate, create, open, close, delete and discard",
);

const LEN_IN_BYTES: &str = "column of lengths that are whole blocks even without block=: if they are bytes, add len-unit=1";

/// An operation, by any of the words that tools print for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Op {
    Read,
    Write,
    Sync,
    Truncate,
    Punch,
    Create,
    Open,
    Close,
    Delete,
}

impl Op {
    fn parse(text: &str) -> Option<Self> {
        const WORDS: &[(Op, &[&str])] = &[
            (Op::Read, &["r", "read", "rd", "pread", "pread64", "get", "load", "ra", "rs"]),
            (Op::Write, &["w", "write", "wr", "pwrite", "pwrite64", "put", "set", "store", "ws"]),
            (Op::Sync, &["f", "sync", "fsync", "fdatasync", "flush"]),
            (Op::Truncate, &["truncate", "ftruncate"]),
            (Op::Punch, &["d", "discard", "trim", "punch"]),
            (Op::Create, &["create", "creat"]),
            (Op::Open, &["open", "openat"]),
            (Op::Close, &["close"]),
            (Op::Delete, &["delete", "unlink", "remove", "rm"]),
        ];
        let is = |word: &str| word.eq_ignore_ascii_case(text);
        WORDS.iter().find(|(_, words)| words.iter().any(|word| is(word))).map(|(op, _)| *op)
    }
}

fn read(input: &mut Input<'_>, events: &mut Events<'_>) -> Result<(), Error> {
    let options = input.options().to_owned();
    let mut lines = Lines::default();
    let columns = match &*options {
        "" => None,
        text => Some(Columns::parse(text)?),
    };
    let (mut reader, mut separator) = (None, None);
    loop {
        if let Some(Reader::Requests(reader)) = &mut reader {
            quick::while_taken(input, |number, text| {
                let Some(request) = reader.quick(text) else { return Ok(false) };
                events.at(number);
                reader.request(&request, events)?;
                Ok(true)
            })?;
        }
        let Some(line) = input.line()? else {
            if let Some(Reader::Requests(reader)) = &reader
                && reader.len_in_bytes == Some(true)
            {
                events.note(LEN_IN_BYTES, 1);
            }
            return Ok(());
        };
        text_line(line, events, |text, events| {
            let separator = *separator.get_or_insert_with(|| separator_of(text));
            let fields = match lines.split(text, separator) {
                Ok(fields) => fields,
                Err(skip) => return Ok(Err(skip)),
            };
            let reader = match &mut reader {
                Some(reader) => reader,
                None => {
                    let (begun, has_header) = begin(columns.as_ref(), &fields, separator, events)?;
                    let reader = reader.insert(begun);
                    if has_header {
                        return Ok(Ok(()));
                    }
                    reader
                }
            };
            match reader {
                Reader::Stored(reader) => reader.row(&fields, events),
                Reader::Requests(reader) => match reader.whole(&fields) {
                    Ok(request) => reader.request(&request, events).map(Ok),
                    Err(skip) => Ok(Err(skip)),
                },
            }
        })?;
    }
}

enum Reader<'a> {
    Stored(stored::Reader),
    Requests(Box<Requests<'a>>),
}

/// Chooses by the first line how all are read, and whether it is a header.
fn begin<'a>(
    columns: Option<&'a Columns<'a>>,
    first: &[&str],
    separator: u8,
    events: &mut Events<'_>,
) -> Result<(Reader<'a>, bool), Error> {
    let Some(columns) = columns else {
        if first.iter().copied().eq(stored::HEADER.split(',')) {
            return Ok((Reader::Stored(stored::Reader::default()), true));
        }
        return Err(Error::Lacks(format!(
            "say what the columns hold, for example --columns \
             time=ts,file=path,op=rw,offset=off,len=bytes; the first line is: {}",
            first.join(", ")
        )));
    };
    let mut places = columns.places(first)?;
    let writes = places.op.is_some();
    events.about(About {
        epoch_us: None,
        boot_us: None,
        side: Side::Before,
        space: if places.file.is_some() { Space::Files } else { Space::Blocks },
        knows: Knows {
            times: places.time.is_some(),
            syncs: writes,
            writes,
            removals: writes,
            names: places.file.is_some(),
            ..Knows::NOTHING
        },
    })?;
    let reader = Requests {
        columns,
        in_order: places.in_order(),
        places,
        separator,
        files: HashMap::default(),
        memo: Memo::default(),
        next: 0,
        first: None,
        len_in_bytes: None,
        processes: Processes::default(),
    };
    Ok((Reader::Requests(Box::new(reader)), columns.has_header()))
}

struct Requests<'a> {
    columns: &'a Columns<'a>,
    places: Places,
    /// The contents of the columns of a line, up to the last column that is named.
    in_order: Vec<Option<Holds>>,
    separator: u8,
    files: HashMap<Box<[u8]>, FileId, FixedState>,
    /// Those of `files` that were asked for lately.
    memo: Memo<FileId>,
    next: u64,
    /// First time, in its unit.
    first: Option<Time>,
    /// Whether lengths by `block` may be bytes: each one is a multiple of it without the factor,
    /// too. `None` as long as there is no length.
    len_in_bytes: Option<bool>,
    processes: Processes,
}

/// A time in its unit, exact where it is a whole number: nanoseconds since 1970 do not fit a float.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Time {
    Whole(u64),
    Fraction(f64),
}

impl Time {
    fn parse(text: &str) -> Option<Self> {
        if let Ok(whole) = text.parse() {
            return Some(Self::Whole(whole));
        }
        text.parse().ok().filter(|time: &f64| time.is_finite() && *time >= 0.0).map(Self::Fraction)
    }

    /// Returns a number of these digits and so many behind the point, if it is exact as parsed.
    fn of((digits, behind): (u64, u32)) -> Option<Self> {
        const POWERS: [f64; 20] = [
            1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
            1e16, 1e17, 1e18, 1e19,
        ];
        match behind {
            0 => Some(Self::Whole(digits)),
            // A quotient of two exact numbers is rounded once.
            _ if digits < 1 << 53 => {
                Some(Self::Fraction(digits as f64 / *POWERS.get(behind as usize)?))
            }
            _ => None,
        }
    }

    fn since_us(self, first: Self, per_second: u64) -> u64 {
        match (self, first) {
            (Self::Whole(time), Self::Whole(first)) => {
                let time = time.saturating_sub(first);
                match per_second {
                    1 => time.saturating_mul(1_000_000),
                    1000 => time.saturating_mul(1000),
                    1_000_000 => time,
                    // Nanoseconds.
                    _ => time / 1000,
                }
            }
            (time, first) => {
                let number = |time| match time {
                    Self::Whole(time) => time as f64,
                    Self::Fraction(time) => time,
                };
                ((number(time) - number(first)) * 1e6 / per_second as f64).round().max(0.0) as u64
            }
        }
    }
}

/// One line.
#[derive(Debug, PartialEq)]
struct Request<'a> {
    time: Option<Time>,
    op: Op,
    offset: u64,
    len: u64,
    pid: u32,
    name: Option<&'a [u8]>,
    /// The file of that name, if that is known without a search.
    file: Option<FileId>,
    process: Option<&'a [u8]>,
}

impl Default for Request<'_> {
    fn default() -> Self {
        let (op, len) = (Op::Read, PAGE_BYTES);
        Self { time: None, op, offset: 0, len, pid: 0, name: None, file: None, process: None }
    }
}

impl Requests<'_> {
    /// Parses a line of ASCII without quotes, blanks around its fields, and missing values.
    #[inline(always)]
    fn quick<'a>(&self, text: &mut Text<'a>) -> Option<Request<'a>> {
        let mut request = Request::default();
        let Columns { offset_bytes, len_bytes, .. } = *self.columns;
        let separator = self.separator;
        let mut columns = self.in_order.iter();
        let mut ended = true;
        for holds in &mut columns {
            match holds {
                Some(Holds::Time) => request.time = Some(Time::of(text.decimal()?)?),
                Some(Holds::Offset) => request.offset = text.number()?.checked_mul(offset_bytes)?,
                Some(Holds::Len) => request.len = text.number()?.checked_mul(len_bytes)?,
                Some(Holds::Pid) => request.pid = u32::try_from(text.number()?).ok()?,
                Some(Holds::Op) => {
                    request.op = match text.field(separator)?.bytes() {
                        b"r" | b"R" | b"read" | b"Read" => Op::Read,
                        b"w" | b"W" | b"write" | b"Write" => Op::Write,
                        other => Op::parse(std::str::from_utf8(other).ok()?)?,
                    }
                }
                Some(Holds::File) => {
                    let field = text.field(separator)?;
                    request.name = Some(plain(field.bytes())?);
                    request.file = self.memo.get(field);
                }
                Some(Holds::Process) => {
                    request.process = Some(plain(text.field(separator)?.bytes())?);
                }
                None => not_quoted(text, separator)?,
            }
            ended = text.separator_or_end(separator)?;
            if ended {
                break;
            }
        }
        if columns.len() > 0 || self.in_order.is_empty() {
            return None;
        }
        while !ended {
            not_quoted(text, separator)?;
            ended = text.separator_or_end(separator)?;
        }
        Some(request)
    }

    fn whole<'a>(&self, fields: &[&'a str]) -> Result<Request<'a>, Skip> {
        const SHORT: Skip = Skip::Damage("line with too few columns");
        let at = |place: Option<usize>| match place {
            Some(place) => fields.get(place).map(|field| Some(field.trim())).ok_or(SHORT),
            None => Ok(None),
        };
        let Places { time, file, op, offset, len, pid, process } = self.places;
        let time = at(time)?
            .map(|text| Time::parse(text).ok_or(Skip::Damage("time that is not a positive number")))
            .transpose()?;
        let op = at(op)?.map_or(Ok(Op::Read), |text| Op::parse(text).ok_or(UNKNOWN))?;
        let bytes = |place: Option<usize>, unit: u64, default: u64| match at(place)? {
            Some("") | None => Ok(default),
            Some(text) => {
                let units: Option<u64> = text.parse().ok();
                let bytes = units.and_then(|n| n.checked_mul(unit));
                bytes.ok_or(Skip::Damage("offset or length that is not a number"))
            }
        };
        let offset = bytes(offset, self.columns.offset_bytes, 0)?;
        let len = bytes(len, self.columns.len_bytes, PAGE_BYTES)?;
        let pid = match at(pid)? {
            Some("") | None => 0,
            Some(text) => text.parse().map_err(|_| Skip::Damage("process that is not a number"))?,
        };
        let (name, process) = (at(file)?, at(process)?);
        if name == Some("") {
            return Err(Skip::Damage("line without a file"));
        }
        let [name, process] = [name, process].map(|text| text.map(str::as_bytes));
        Ok(Request { time, op, offset, len, pid, name, file: None, process })
    }

    /// Searches for the file of this name.
    #[inline(never)]
    fn known(&mut self, name: &[u8]) -> Option<FileId> {
        let file = *self.files.get(name)?;
        self.memo.put(name, file);
        Some(file)
    }

    #[inline(always)]
    fn request(&mut self, request: &Request<'_>, events: &mut Events<'_>) -> Result<(), Error> {
        let &Request { time, op, offset, len, pid, name, file, process } = request;
        let Columns { per_second, len_bytes, len_by_block, .. } = *self.columns;
        if len_by_block && self.len_in_bytes != Some(false) && self.places.len.is_some() && len > 0
        {
            self.len_in_bytes = Some((len / len_bytes).is_multiple_of(len_bytes));
        }
        let at_us =
            time.map_or(0, |time| time.since_us(*self.first.get_or_insert(time), per_second));
        if let Some(process) = process {
            self.processes.runs(pid, process, at_us, events)?;
        }
        let text = |name| MaybeOwned::owned_str(&String::from_utf8_lossy(name));
        let mut push = |action| events.push(Event { at_us, pid, tid: pid, action });
        let known = file.or_else(|| self.known(name?));
        let file = match (name, known) {
            (None, _) => FileId(0),
            (Some(_), Some(file)) if op != Op::Create => file,
            (Some(name), old) => {
                if let Some(file) = old {
                    push(Action::Unbind { file, name: text(name) })?;
                    push(Action::Gone { file })?;
                }
                let file = FileId(self.next);
                self.next += 1;
                self.files.insert(name.into(), file);
                self.memo.put(name, file);
                let name = text(name);
                push(match op {
                    Op::Create => Action::Create(MaybeOwned::owned(Create {
                        file,
                        name,
                        owner: None,
                        mode: None,
                        sync: false,
                    })),
                    _ => Action::Bind { file, name },
                })?;
                file
            }
        };
        match op {
            Op::Read | Op::Write => {
                let kind = AccessKind::of(op == Op::Write);
                events.access(Access {
                    at_us,
                    pid,
                    tid: pid,
                    file,
                    open: None,
                    offset,
                    len,
                    kind,
                })?;
            }
            Op::Sync => push(Action::Sync { file, offset: 0, len: u64::MAX, data_only: false })?,
            Op::Truncate => push(Action::Truncate { file, size: offset })?,
            Op::Punch => push(Action::Punch { file, offset, len })?,
            Op::Create => {}
            Op::Open => push(Action::Open { file, open: None, created: false })?,
            Op::Close => push(Action::Close { file, open: None })?,
            Op::Delete => {
                if let Some(name) = name {
                    self.files.remove(name);
                    self.memo.forget(name);
                    push(Action::Unbind { file, name: text(name) })?;
                    push(Action::Gone { file })?;
                }
            }
        }
        Ok(())
    }
}

/// Takes a field of any text that is no quoted one.
#[inline(always)]
fn not_quoted(text: &mut Text<'_>, separator: u8) -> Option<()> {
    (text.field(separator)?.bytes().first() != Some(&b'"')).then_some(())
}

/// A field that means what it says.
fn plain(field: &[u8]) -> Option<&[u8]> {
    let (first, last) = (*field.first()?, *field.last()?);
    (first != b'"' && first > b' ' && last > b' ').then_some(field)
}

/// Returns the separator by the first line.
fn separator_of(line: &str) -> u8 {
    let many = |separator: &u8| line.bytes().filter(|byte| byte == separator).count();
    // Of equally many, the first of these.
    *b"|\t;,".iter().max_by_key(|byte| many(byte)).unwrap_or(&b',')
}

/// Splits lines at their separator.
#[derive(Default)]
struct Lines {
    reader: Option<csv_core::Reader>,
    /// The unquoted text of all fields, and their ends in it.
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Lines {
    fn split(&mut self, line: &str, separator: u8) -> Result<Vec<&str>, Skip> {
        let new = || csv_core::ReaderBuilder::new().delimiter(separator).build();
        let reader = self.reader.get_or_insert_with(new);
        reader.reset();
        self.text.resize(line.len().max(1), 0);
        self.ends.resize(line.len() + 2, 0);
        let (_, _, text, ends) =
            reader.read_record(line.as_bytes(), &mut self.text, &mut self.ends);
        // A line that is not finished by its end has an open quote.
        let (done, _, more, last) =
            reader.read_record(b"", &mut self.text[text..], &mut self.ends[ends..]);
        if done != csv_core::ReadRecordResult::Record {
            return Err(Skip::Damage("line that is not CSV"));
        }
        let (text, ends) = (&self.text[..text + more], &self.ends[..ends + last]);
        let mut begin = 0;
        let mut fields = Vec::with_capacity(ends.len());
        for &end in ends {
            let field = text.get(begin..end).and_then(|field| std::str::from_utf8(field).ok());
            fields.push(field.ok_or(Skip::Damage("line that is not CSV"))?);
            begin = end;
        }
        Ok(fields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::{Kept, Summary};

    fn accesses(columns: &str, mut text: &[u8]) -> Result<(Vec<String>, Summary), Error> {
        let mut kept = Kept::default();
        let mut events = Events::new(&mut kept);
        let mut input = Input::new(&mut text).with_options(columns);
        read(&mut input, &mut events)?;
        let summary = events.finish()?;
        let line = |event: &Event<'_>| {
            let what = match &event.action {
                Action::Read { file, offset, len, .. } => format!("r {} {offset} {len}", file.0),
                Action::Write { file, offset, len, .. } => format!("w {} {offset} {len}", file.0),
                Action::Sync { file, .. } => format!("sync {}", file.0),
                Action::Bind { file, name } => format!("{} is {name}", file.0),
                Action::Create(create) => format!("{} new {}", create.file.0, create.name),
                Action::Unbind { file, name } => format!("{} was {name}", file.0),
                Action::Gone { file } => format!("{} gone", file.0),
                Action::Truncate { file, size } => format!("t {} {size}", file.0),
                Action::Punch { file, offset, len } => format!("d {} {offset} {len}", file.0),
                Action::Process { name } => format!("runs {name}"),
                other => panic!("{other:?}"),
            };
            format!("{} {} {what}", event.at_us, event.pid)
        };
        Ok((kept.events.iter().map(line).collect(), summary))
    }

    #[test]
    fn both_parsers_agree() {
        for (columns, separator, samples) in [
            (
                "time=1,file=2,op=3,offset=4,len=5,pid=6,unit=us",
                b',',
                [
                    "17,/data/a,w,4096,512,7",
                    "18,/data/b c,fsync,0,,8",
                    "19,\"/data/c,d\",Read,8,1,9",
                ],
            ),
            (
                "time=2,offset=5,process=4,block=512",
                b';',
                ["x;0.5;;app;8;9", "\"y;z\";12.000001;1;a b;16", ";17592186044416.125;;\"q\";0;"],
            ),
            (
                "file=1,offset=2,len=3,op=4,time=5,block=4096,offset-unit=512,len-unit=1",
                b',',
                [
                    "0,303567,3584,w,0.026214",
                    "1,1,36028797018963968,R,7",
                    "2,36028797018963968,8,r,7",
                ],
            ),
        ] {
            let parsed = Columns::parse(columns).unwrap();
            let mut kept = Kept::default();
            let mut events = Events::new(&mut kept);
            let (reader, _) = begin(Some(&parsed), &[], separator, &mut events).unwrap();
            let Reader::Requests(reader) = reader else { panic!("it has columns") };
            let (mut lines, mut text, mut taken) = (Lines::default(), Vec::new(), 0);
            quick::testing::damaged(&samples, |line, n| {
                let end = if n % 5 == 0 { "\r\n" } else { "\n" };
                let quick =
                    quick::testing::quick(&mut text, (line, end), |text| reader.quick(text));
                if let Some(mut request) = quick {
                    request.file = None;
                    let fields = lines.split(line, separator);
                    assert_eq!(fields.and_then(|f| reader.whole(&f)), Ok(request), "{line:?}");
                    taken += 1;
                }
            });
            assert!(taken > 10_000, "{taken}");
        }
    }

    // Promises: Traces 28.
    #[test]
    fn columns_are_found_by_name_in_any_order() {
        let text = "bytes,rw,Path,ts,who,off\n512,W,\"/a,\"\"b\"\"\",10.5,7,4096\n1,read,/c,11,8,0\n\
                    0,fsync,/c,11.000001,8,0\n9,r,\"/a,\"\"b\"\"\",12,7,1\n";
        let columns = "time=ts,file=path,op=rw,offset=off,len=bytes,pid=who";
        let (events, summary) = accesses(columns, text.as_bytes()).unwrap();
        assert_eq!(
            events,
            [
                "0 7 0 is /a,\"b\"",
                "0 7 w 0 4096 512",
                "500000 8 1 is /c",
                "500000 8 r 1 0 1",
                "500001 8 sync 1",
                "1500000 7 r 0 1 9",
            ]
        );
        assert_eq!(summary.skipped.to_string(), "");
        let about = summary.about.unwrap();
        assert!(about.knows.times && about.knows.syncs && about.space == Space::Files);
    }

    #[test]
    fn columns_by_number_need_no_header() {
        let text = b"100;8;R\n200;16;W\n1500;8;D\n";
        let columns = "time=1,offset=2,op=3,unit=ms,block=512";
        let (events, summary) = accesses(columns, text).unwrap();
        assert_eq!(
            events,
            ["0 0 r 0 4096 4096", "100000 0 w 0 8192 4096", "1400000 0 d 0 4096 4096"]
        );
        assert_eq!(summary.about.unwrap().space, Space::Blocks);
        // Nanoseconds since 1970 keep their microseconds.
        let text = b"1700000000000000123,1\n1700000000000001123,2\n";
        let (events, _) = accesses("time=1,offset=2,unit=ns", text).unwrap();
        assert_eq!(events, ["0 0 r 0 1 4096", "1 0 r 0 2 4096"]);
    }

    /// `block=` was the unit of offsets and lengths alike, so a trace of SPC, whose offsets are in
    /// sectors and whose lengths are in bytes, became one of requests 512 times as long, and no
    /// message said so.
    // Promises: Traces 28.
    #[test]
    fn offset_and_length_have_units_of_their_own() {
        let spc = b"0,40,3584,W,0.5\n0,8388608,8192,r,0.75\n1,9,512,W,1.5\n";
        let columns = "file=1,offset=2,len=3,op=4,time=5";
        let right = [
            "0 0 0 is 0",
            "0 0 w 0 20480 3584",
            "250000 0 r 0 4294967296 8192",
            "1000000 0 1 is 1",
            "1000000 0 w 1 4608 512",
        ];
        for units in ["offset-unit=512", "block=512,len-unit=1", "offset-unit=512,len-unit=1"] {
            let (events, summary) = accesses(&format!("{columns},{units}"), spc).unwrap();
            assert_eq!(events, right, "{units}");
            assert_eq!(summary.skipped.len(), 0, "{units}: {}", summary.skipped);
        }
        // Lengths in pages at offsets in bytes.
        let (events, _) = accesses("offset=1,len=2,len-unit=4096", b"512,2\n").unwrap();
        assert_eq!(events, ["0 0 r 0 512 8192"]);
        // The wrong unit is noted; lengths that are blocks are not.
        let noted = |text: &[u8]| {
            let (_, summary) = accesses("offset=1,len=2,block=512", text).unwrap();
            summary.skipped.to_string()
        };
        assert_eq!(noted(b"8,8192\n16,1024\n"), format!("1 × {LEN_IN_BYTES} (first at 1)"));
        assert_eq!(noted(b"8,512\n16,8\n0,512\n"), "");
    }

    /// A length that no request has is damage, whatever its unit.
    #[test]
    fn a_length_beyond_any_request_is_damage() {
        let text = b"0,2097152\n0,2097153\n0,9007199254740992\n0,8\n";
        let (events, summary) = accesses("offset=1,len=2,block=512", text).unwrap();
        assert_eq!(events, ["0 0 r 0 0 1073741824", "0 0 r 0 0 4096"]);
        assert_eq!(summary.skipped.damaged(), 2, "{}", summary.skipped);
        let text = b"a,2147479552\na,2147479553\n";
        let (events, summary) = accesses("file=1,len=2", text).unwrap();
        assert_eq!(events, ["0 0 0 is a", "0 0 r 0 0 2147479552"]);
        assert_eq!(summary.skipped.to_string(), "1 × access longer than 2 GiB (first at 2)");
    }

    #[test]
    fn a_deleted_name_begins_anew() {
        let text = b"f,op\na,create\na,write\na,unlink\na,write\na,create\na,truncate\n";
        let (events, _) = accesses("file=f,op=op", text).unwrap();
        let expected = [
            "0 0 0 new a",
            "0 0 w 0 0 4096",
            "0 0 0 was a",
            "0 0 0 gone",
            "0 0 1 is a",
            "0 0 w 1 0 4096",
            "0 0 1 was a",
            "0 0 1 gone",
            "0 0 2 new a",
            "0 0 t 2 0",
        ];
        assert_eq!(events, expected);
    }

    // Promises: Traces 28.
    #[test]
    fn bad_lines_are_counted() {
        let text = "f,op,off\na,r,0\na,r\na,hop,0\na,r,-5\n,r,0\n\"a,r,0\na,w,8\n";
        let (events, summary) = accesses("file=f,op=op,offset=off", text.as_bytes()).unwrap();
        assert_eq!(events, ["0 0 0 is a", "0 0 r 0 0 4096", "0 0 w 0 8 4096"]);
        assert_eq!(summary.skipped.damaged(), 5, "{}", summary.skipped);
    }

    /// Of two columns for one key the last was taken without a word. A key that is given twice is
    /// an error.
    #[test]
    fn a_wrong_option_says_what_there_is() {
        let error = |columns: &str| accesses(columns, b"ts,path\n1,a\n").unwrap_err().to_string();
        for (columns, says) in [
            ("time=tz", "no column `tz` (did you mean `ts`?); it has: ts, path"),
            ("tme=ts", "does not take `tme=ts` (did you mean `time`?)"),
            ("unit=h", "does not take `unit=h`"),
            ("unit=ms", "names no column"),
            ("time=ts,Time=ts,file=path", "gives `time=` more than once"),
            ("offset-unt=512", "(did you mean `offset-unit`?)"),
            ("len=ts,len-unit=0", "does not take `len-unit=0`"),
            ("time=ts,unit=s,unit=ms", "gives `unit=` more than once"),
            ("", "say what the columns hold, for example --columns"),
        ] {
            assert!(error(columns).contains(says), "{columns}: {}", error(columns));
        }
    }
}
