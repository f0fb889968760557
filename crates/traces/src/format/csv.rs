//! CSV of any columns, which `--columns` names, and the CSV that `import -o FILE.csv` writes.
//!
//! ```text
//! ts,path,rw,off,bytes
//! 0.5,/data/a.db,r,4096,512
//! ```
//!
//! With `--columns time=ts,file=path,op=rw,offset=off,len=bytes` a line is a request. A column is
//! named as the header names it, or by its number, from 1; if all go by number, a first line
//! without numbers is a header that is not used. Without `separator=`, it is the one of comma,
//! semicolon, tab and bar that occurs most often in the first line and gives all columns, or any
//! number of blanks. Fields may be quoted as RFC 4180 says, and cannot contain a line break.
//!
//! `block=512` is the unit of `offset` and `len`; `offset-unit=512` and `len-unit=512` are those of
//! one of them: SPC's traces count sectors in the offset and bytes in the length.
//!
//! The text of the file's column identifies a file, and is its name. `device=` names a block
//! device instead, and `object=` an object of a cache; without the three the trace is one of a
//! block device, before the cache. Without `op` all requests are reads, without `offset`
//! they begin at 0, and without `len` they are of one page. `read=0,write=1` are words in `op`.
//!
//! `ttl` is how many seconds an object lives after it enters a cache; 0 and nothing: for ever.
//!
//! Tables with a name ([`PRESETS`]) are values of `--columns`. A file that no format recognises is
//! compared with them and, failing that, with usual headers; the refusal shows the result.

mod columns;
mod guess;
mod presets;

pub(super) use columns::overlaid;
pub(super) use guess::guess;
pub use presets::{PRESETS, Preset, named};

use self::columns::{BLANKS, Columns, Holds, Op, Places, Subject};
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
use flashsift_events::{
    event::{About, Action, Create, Event, MaybeOwned},
    page::PAGE_BYTES,
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
    let line = String::from_utf8_lossy(line);
    // Some programs quote every text.
    let is_known = line.replace('"', "") == stored::HEADER || presets::with_header(&line).is_some();
    if is_known { Confidence::Certain } else { Confidence::No }
}

const UNKNOWN: Skip = Skip::Damage(
    "operation other than read, write, sync, truncate, create, open, close, delete and discard",
);

const LEN_IN_BYTES: &str = "column of lengths that are whole blocks even without block=: if they are bytes, add len-unit=1";

/// A field that names no operation: Systor '17 has such lines.
const WITHOUT_OP: Skip = Skip::Benign("line without an operation");
const LEFT_OUT: Skip = Skip::Benign("operation that --columns leaves out");
const COMMENT: Skip = Skip::Benign("comment");

fn read(input: &mut Input<'_>, events: &mut Events<'_>) -> Result<(), Error> {
    let mut columns = match input.options() {
        "" => None,
        text => Some(Columns::parse(text)?),
    };
    let mut lines = Lines::default();
    let mut reader = None;
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
            let reader = match &mut reader {
                Some(reader) => reader,
                None => match begin(&mut columns, text, &mut lines, events)? {
                    First::Comment => return Ok(Err(COMMENT)),
                    First::Header(begun) => {
                        reader = Some(begun);
                        return Ok(Ok(()));
                    }
                    First::Row(begun) => reader.insert(begun),
                },
            };
            match reader {
                Reader::Stored(reader) => match lines.split(text, b',') {
                    Ok(fields) => reader.row(&fields, events),
                    Err(skip) => Ok(Err(skip)),
                },
                Reader::Requests(reader) => match reader.line(text, &mut lines) {
                    Ok(Some(request)) => reader.request(&request, events).map(Ok),
                    Ok(None) => Ok(Ok(())),
                    Err(skip) => Ok(Err(skip)),
                },
            }
        })?;
    }
}

enum Reader {
    Stored(stored::Reader),
    Requests(Box<Requests>),
}

/// The first line, and the way to read the others.
enum First {
    Comment,
    Header(Reader),
    Row(Reader),
}

/// Chooses by the first line how all are read.
fn begin(
    columns: &mut Option<Columns>,
    line: &str,
    lines: &mut Lines,
    events: &mut Events<'_>,
) -> Result<First, Error> {
    if columns.is_none() {
        if lines
            .split(line, b',')
            .is_ok_and(|fields| fields.into_iter().eq(stored::HEADER.split(',')))
        {
            return Ok(First::Header(Reader::Stored(stored::Reader::default())));
        }
        let preset = presets::with_header(line);
        *columns = preset.map(|preset| Columns::parse(preset.columns)).transpose()?;
    }
    let Some(these) = columns else {
        let example = "--columns time=ts,file=path,op=rw,offset=off,len=bytes".to_owned();
        let guess = guess(line.as_bytes()).map_or(example, |guess| guess.options());
        return Err(Error::Lacks(format!(
            "say what the columns hold, for example {guess}; the first line is: {line}"
        )));
    };
    // Some tables have their header behind the sign of a comment.
    let bare = line.strip_prefix('#').map_or(line, str::trim_start);
    let is_comment = line.starts_with('#');
    let header = if these.has_header() { bare } else { line };
    let separator = these.separator.unwrap_or_else(|| separator_of(header, these, lines));
    let Ok(fields) = lines.split(header, separator) else {
        return Ok(First::Comment);
    };
    let places = match these.places(&fields) {
        Err(_) if is_comment => return Ok(First::Comment),
        places => places?,
    };
    let no_number = !fields.iter().any(|field| field.trim().parse::<f64>().is_ok());
    let these = columns.take().expect("there are columns");
    let has_header = these.has_header();
    let may_have_header = these.may_have_header() && no_number;
    let mut reader = Requests::new(these, places, separator);
    let is_row = !has_header
        && (!(is_comment || may_have_header)
            || reader.line(line, lines).is_ok_and(|r| r.is_some()));
    if is_comment && !has_header && !is_row {
        *columns = Some(reader.columns);
        return Ok(First::Comment);
    }
    if !is_row {
        reader.header = Some(line.into());
    }
    reader.start(events)?;
    let reader = Reader::Requests(Box::new(reader));
    Ok(if is_row { First::Row(reader) } else { First::Header(reader) })
}

struct Requests {
    columns: Columns,
    places: Places,
    /// The contents of the columns of a line, up to the last column that is named.
    in_order: Vec<Option<Holds>>,
    separator: u8,
    /// The first line, if it is no request. It comes again where files were put together.
    header: Option<Box<str>>,
    files: HashMap<Box<[u8]>, FileId, FixedState>,
    /// Those of `files` that were asked for lately.
    memo: Memo<FileId>,
    /// A name of two columns.
    joined: Vec<u8>,
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
    fn new((digits, behind): (u64, u32)) -> Option<Self> {
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
    /// The second part of the name.
    second: Option<&'a [u8]>,
    /// The file of that name, if that is known without a search.
    file: Option<FileId>,
    process: Option<&'a [u8]>,
    ttl_s: u32,
}

impl Default for Request<'_> {
    fn default() -> Self {
        let (op, len) = (Op::Read, PAGE_BYTES);
        let (name, second, file, process) = (None, None, None, None);
        Self { time: None, op, offset: 0, len, pid: 0, name, second, file, process, ttl_s: 0 }
    }
}

impl Requests {
    fn new(columns: Columns, places: Places, separator: u8) -> Self {
        Self {
            in_order: places.in_order(),
            columns,
            places,
            separator,
            header: None,
            files: HashMap::default(),
            memo: Memo::default(),
            joined: Vec::new(),
            next: 0,
            first: None,
            len_in_bytes: None,
            processes: Processes::default(),
        }
    }

    /// Describes the trace. A device's trace is that of a block trace of any other format.
    fn start(&mut self, events: &mut Events<'_>) -> Result<(), Error> {
        let (times, writes) = (self.places.time.is_some(), self.places.op.is_some());
        let knows = Knows { times, writes, ..Knows::NOTHING };
        let of_cache = Knows { syncs: writes, removals: writes, ..knows };
        let (side, space, knows) = match self.columns.subject {
            None => (Side::Before, Space::Blocks, of_cache),
            Some(Subject::File) => (Side::Before, Space::Files, Knows { names: true, ..of_cache }),
            Some(Subject::Device) => (Side::After, Space::Blocks, knows),
            Some(Subject::Object) => (Side::Before, Space::Objects, knows),
        };
        events.about(About { epoch_us: None, boot_us: None, side, space, knows })?;
        let Some(device) = &self.places.only_device else { return Ok(()) };
        let action = Action::Bind { file: FileId(0), name: MaybeOwned::owned_str(device) };
        events.push(Event { at_us: 0, pid: 0, tid: 0, action })
    }

    /// Parses a line of ASCII without quotes, blanks around its fields, and missing values.
    #[inline(always)]
    fn quick<'a>(&self, text: &mut Text<'a>) -> Option<Request<'a>> {
        let mut request = Request::default();
        let &Columns { offset_bytes, len_bytes, comment, .. } = &self.columns;
        let separator = self.separator;
        if comment.is_some_and(|comment| text.comes(comment)) {
            return None;
        }
        if separator == BLANKS {
            text.blanks();
        }
        let separated = |text: &mut Text<'a>| match separator {
            BLANKS => text.blanks_or_end(),
            separator => text.separator_or_end(separator),
        };
        let mut columns = self.in_order.iter();
        let mut ended = true;
        for holds in &mut columns {
            match holds {
                Some(Holds::Time) => request.time = Some(Time::new(text.decimal()?)?),
                Some(Holds::Offset) => request.offset = text.number()?.checked_mul(offset_bytes)?,
                Some(Holds::Len) => request.len = text.number()?.checked_mul(len_bytes)?,
                Some(Holds::Pid) => request.pid = u32::try_from(text.number()?).ok()?,
                Some(Holds::Ttl) => request.ttl_s = u32::try_from(text.number()?).ok()?,
                Some(Holds::Op) => request.op = self.quick_op(text.field(separator)?.bytes())?,
                Some(Holds::Name) => {
                    let field = text.field(separator)?;
                    request.name = Some(plain(field.bytes())?);
                    if self.places.second.is_none() {
                        request.file = self.memo.get(field);
                    }
                }
                Some(Holds::Second) => {
                    request.second = Some(plain(text.field(separator)?.bytes())?);
                }
                Some(Holds::Process) => {
                    request.process = Some(plain(text.field(separator)?.bytes())?);
                }
                None => not_quoted(text, separator)?,
            }
            ended = separated(text)?;
            if ended {
                break;
            }
        }
        if columns.len() > 0 || self.in_order.is_empty() {
            return None;
        }
        while !ended {
            not_quoted(text, separator)?;
            ended = separated(text)?;
        }
        Some(request)
    }

    #[inline(always)]
    fn quick_op(&self, word: &[u8]) -> Option<Op> {
        if self.columns.has_usual_words() {
            match word {
                b"r" | b"R" | b"read" | b"Read" => return Some(Op::Read),
                b"w" | b"W" | b"write" | b"Write" => return Some(Op::Write),
                _ => {}
            }
        }
        self.columns.op(plain_text(word)?).filter(|op| *op != Op::Skip)
    }

    /// Parses any line. `None`: it is blank, or the header once more.
    fn line<'a>(&self, line: &'a str, lines: &'a mut Lines) -> Result<Option<Request<'a>>, Skip> {
        if self.columns.comment.is_some_and(|comment| line.as_bytes().first() == Some(&comment)) {
            return Err(COMMENT);
        }
        if line.trim().is_empty() || self.header.as_deref() == Some(line) {
            return Ok(None);
        }
        self.whole(&lines.split(line, self.separator)?).map(Some)
    }

    fn whole<'a>(&self, fields: &[&'a str]) -> Result<Request<'a>, Skip> {
        const SHORT: Skip = Skip::Damage("line with too few columns");
        let at = |place: Option<usize>| match place {
            Some(place) => fields.get(place).map(|field| Some(field.trim())).ok_or(SHORT),
            None => Ok(None),
        };
        let &Places { time, name, second, op, offset, len, pid, process, ttl, .. } = &self.places;
        let time = at(time)?
            .map(|text| Time::parse(text).ok_or(Skip::Damage("time that is not a positive number")))
            .transpose()?;
        let op = match at(op)? {
            None => Op::Read,
            Some("") => return Err(WITHOUT_OP),
            Some(text) => match self.columns.op(text).ok_or(UNKNOWN)? {
                Op::Skip => return Err(LEFT_OUT),
                op => op,
            },
        };
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
        let ttl_s = match at(ttl)? {
            Some("") | None => 0,
            Some(text) => text.parse().map_err(|_| Skip::Damage("ttl that is not a number"))?,
        };
        let (name, second, process) = (at(name)?, at(second)?, at(process)?);
        if name == Some("") {
            return Err(Skip::Damage("line without a file"));
        }
        let [name, second, process] = [name, second, process].map(|text| text.map(str::as_bytes));
        Ok(Request { time, op, offset, len, pid, name, second, file: None, process, ttl_s })
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
        match (request.name, request.second) {
            (Some(name), Some(second)) => self.request_of_two(name, second, request, events),
            (name, _) => self.request_of(name, request, events),
        }
    }

    /// Emits a request whose name is in two columns.
    #[inline(never)]
    fn request_of_two(
        &mut self,
        name: &[u8],
        second: &[u8],
        request: &Request<'_>,
        events: &mut Events<'_>,
    ) -> Result<(), Error> {
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        joined.extend_from_slice(name);
        joined.push(b':');
        joined.extend_from_slice(second);
        let result = self.request_of(Some(&joined), request, events);
        self.joined = joined;
        result
    }

    #[inline(always)]
    fn request_of(
        &mut self,
        name: Option<&[u8]>,
        request: &Request<'_>,
        events: &mut Events<'_>,
    ) -> Result<(), Error> {
        let &Request { time, op, offset, len, pid, file, process, ttl_s, .. } = request;
        let &Columns { per_second, len_bytes, len_by_block, subject, .. } = &self.columns;
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
        // Objects are many, and their numbers tell nothing.
        let has_name = subject != Some(Subject::Object);
        let known = file.or_else(|| self.known(name?));
        let file = match (name, known) {
            (None, _) => FileId(0),
            (Some(_), Some(file)) if op != Op::Create => file,
            (Some(name), old) => {
                if let Some(file) = old {
                    if has_name {
                        push(Action::Unbind { file, name: text(name) })?;
                    }
                    push(Action::Gone { file })?;
                }
                let file = FileId(self.next);
                self.next += 1;
                self.files.insert(name.into(), file);
                self.memo.put(name, file);
                match op {
                    Op::Create => push(Action::Create(MaybeOwned::owned(Create {
                        file,
                        name: text(name),
                        owner: None,
                        mode: None,
                        sync: false,
                    })))?,
                    _ if has_name => push(Action::Bind { file, name: text(name) })?,
                    _ => {}
                }
                file
            }
        };
        match op {
            Op::Read | Op::Write => {
                if ttl_s > 0 {
                    push(Action::TimeToLive { ttl_us: u64::from(ttl_s) * 1_000_000 })?;
                }
                let kind = AccessKind::new(op == Op::Write);
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
                    if has_name {
                        push(Action::Unbind { file, name: text(name) })?;
                    }
                    push(Action::Gone { file })?;
                }
            }
            // Such a line is left out.
            Op::Skip => {}
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

/// A field that is a word for an operation.
fn plain_text(field: &[u8]) -> Option<&str> {
    std::str::from_utf8(plain(field)?).ok()
}

/// Returns the separator by the first line: the most frequent of those that give all columns.
fn separator_of(line: &str, columns: &Columns, lines: &mut Lines) -> u8 {
    let many = |separator: &u8| line.bytes().filter(|byte| byte == separator).count();
    let mut gives_all = |separator: u8| {
        let fields = lines.split(line, separator).unwrap_or_default();
        columns.places(&fields).is_ok_and(|places| places.needed() <= fields.len())
    };
    // Of equally many, the last of these.
    let mut separators = *b"|\t;,";
    separators.sort_by_key(many);
    let found = separators.iter().rev().find(|byte| many(byte) > 0 && gives_all(**byte));
    match found {
        Some(byte) => *byte,
        None if line.contains([' ', '\t']) && gives_all(BLANKS) => BLANKS,
        None => separators[separators.len() - 1],
    }
}

/// Splits lines at their separator.
#[derive(Default)]
struct Lines {
    reader: Option<(u8, csv_core::Reader)>,
    /// The unquoted text of all fields, and their ends in it.
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Lines {
    fn split<'a>(&'a mut self, line: &'a str, separator: u8) -> Result<Vec<&'a str>, Skip> {
        const NO_CSV: Skip = Skip::Damage("line that is not CSV");
        if separator == BLANKS {
            return Ok(line.split([' ', '\t']).filter(|field| !field.is_empty()).collect());
        }
        if self.reader.as_ref().is_none_or(|(byte, _)| *byte != separator) {
            let reader = csv_core::ReaderBuilder::new().delimiter(separator).build();
            self.reader = Some((separator, reader));
        }
        let Some((_, reader)) = &mut self.reader else { return Err(NO_CSV) };
        reader.reset();
        self.text.resize(line.len().max(1), 0);
        self.ends.resize(line.len() + 2, 0);
        let (_, _, text, ends) =
            reader.read_record(line.as_bytes(), &mut self.text, &mut self.ends);
        // A line that is not finished by its end has an open quote.
        let (done, _, more, last) =
            reader.read_record(b"", &mut self.text[text..], &mut self.ends[ends..]);
        if done != csv_core::ReadRecordResult::Record {
            return Err(NO_CSV);
        }
        let (text, ends) = (&self.text[..text + more], &self.ends[..ends + last]);
        let mut begin = 0;
        let mut fields = Vec::with_capacity(ends.len());
        for &end in ends {
            let field = text.get(begin..end).and_then(|field| std::str::from_utf8(field).ok());
            fields.push(field.ok_or(NO_CSV)?);
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
                Action::TimeToLive { ttl_us } => format!("lives {} s", ttl_us / 1_000_000),
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
            (
                "time=1,pid=2,process=3,offset=4,len=5,op=6,device=7:8,block=512,unit=ns",
                BLANKS,
                ["1000 311 logd 8 8 W 179 2 00ff", " 7\t4  jbd2/a 0 16 r 8 0 ", "9 0 x 1 2 R 8 16"],
            ),
            (
                "op=1,offset=2,read=0/28,write=1/2A,skip=*,comment=/",
                b',',
                ["0,4096", "2a,512,x", "28,0"],
            ),
        ] {
            let columns = Columns::parse(columns).unwrap();
            let places = columns.places(&[]).unwrap();
            let reader = Requests::new(columns, places, separator);
            let (mut lines, mut text, mut taken) = (Lines::default(), Vec::new(), 0);
            quick::testing::damaged(&samples, |line, n| {
                let end = if n % 5 == 0 { "\r\n" } else { "\n" };
                let quick =
                    quick::testing::quick(&mut text, (line, end), |text| reader.quick(text));
                if let Some(mut request) = quick {
                    request.file = None;
                    assert_eq!(reader.line(line, &mut lines), Ok(Some(request)), "{line:?}");
                    taken += 1;
                }
            });
            assert!(taken > 10_000, "{taken}");
        }
    }

    /// Every row of these two files is the same request. As a table it had two files, the kernel's
    /// write-back and a layout of files, and gave other results than MSR's form did.
    // Promises: Traces 28.
    #[test]
    fn a_device_is_what_it_is_in_a_block_trace() {
        let alibaba = b"7,W,0,8192,1577808144000000\n9,R,4096,4096,1577808144001000\n\
                        7,W,0,4096,1577808174900000\n";
        let (events, summary) =
            accesses("device=1,op=2,offset=3,len=4,time=5,unit=us", alibaba).unwrap();
        let expected = [
            "0 0 0 is 7",
            "0 0 w 0 0 8192",
            "1000 0 1 is 9",
            "1000 0 r 1 4096 4096",
            "30900000 0 w 0 0 4096",
        ];
        assert_eq!(events, expected);
        let msr = b"132222617440000000,h,7,W,0,8192,1\n132222617440010000,h,9,R,4096,4096,1\n\
                    132222617749000000,h,7,W,0,4096,1\n";
        let spec = crate::format::named("msr").unwrap();
        let (_, same) = crate::format::testing::read(spec, msr).unwrap();
        assert_eq!(summary.about, same.about);
        // A word is the only device, unless the header has a column of that name.
        let (events, _) = accesses("device=sda,offset=1", b"0\n").unwrap();
        assert_eq!(events, ["0 0 0 is sda", "0 0 r 0 0 4096"]);
        let (events, _) = accesses("device=sda,offset=off", b"off,x\n0,1\n").unwrap();
        assert_eq!(events, ["0 0 0 is sda", "0 0 r 0 0 4096"]);
        let (events, _) = accesses("device=disk,offset=off", b"off,disk\n0,sdb\n").unwrap();
        assert_eq!(events, ["0 0 0 is sdb", "0 0 r 0 0 4096"]);
        let error = accesses("device=dsk,offset=off", b"off,disk\n0,1\n").unwrap_err().to_string();
        assert!(error.contains("no column `dsk` (did you mean `disk`?)"), "{error}");
        // Two columns are one device.
        let text = b"0,8,1\n0,8,16\n0,81,6\n0,8,1\n";
        let (events, _) = accesses("offset=1,device=2:3", text).unwrap();
        assert_eq!(
            events,
            [
                "0 0 0 is 8:1",
                "0 0 r 0 0 4096",
                "0 0 1 is 8:16",
                "0 0 r 1 0 4096",
                "0 0 2 is 81:6",
                "0 0 r 2 0 4096",
                "0 0 r 0 0 4096",
            ]
        );
    }

    /// Blanks were no separator, so output of many tools had one column.
    #[test]
    fn any_number_of_blanks_separates() {
        let biosnoop = b"TIME(s)     COMM           PID    DISK    T SECTOR     BYTES   LAT(ms)\n\
            0.000000    logd           311    mmcblk0 W 5000008    4096       0.50\n\
            0.020000    jbd2/mmcblk0p2 77     mmcblk0 W 7000000    8192       1.25\n";
        let columns = "time=TIME(s),process=COMM,pid=PID,device=DISK,op=T,offset=SECTOR,len=BYTES,\
                       offset-unit=512";
        let (events, summary) = accesses(columns, biosnoop).unwrap();
        let expected = [
            "0 311 runs logd",
            "0 0 0 is mmcblk0",
            "0 311 w 0 2560004096 4096",
            "20000 77 runs jbd2/mmcblk0p2",
            "20000 77 w 0 3584000000 8192",
        ];
        let without_pid_of_names: Vec<_> =
            events.iter().map(|line| line.replace("0 311 0 is", "0 0 0 is")).collect();
        assert_eq!(without_pid_of_names, expected);
        assert_eq!(summary.skipped.to_string(), "");
        // Of a comma in a name, the columns that are named decide.
        let (events, _) = accesses("time=1,offset=3,len=4", b"1 a,b 4096 512\n2 c 0 1\n").unwrap();
        assert_eq!(events, ["0 0 r 0 4096 512", "1000000 0 r 0 0 1"]);
        // Any other character has to be named.
        for (separator, text) in [("colon", "1:2\n"), ("!", "1!2\n"), ("Space", " 1\t2 \n")] {
            let columns = format!("offset=1,len=2,separator={separator}");
            let (events, _) = accesses(&columns, text.as_bytes()).unwrap();
            assert_eq!(events, ["0 0 r 0 1 2"], "{separator}");
        }
    }

    /// A trace with 0 and 1, or with SCSI's commands, was refused as damaged.
    #[test]
    fn operations_have_any_words() {
        let tencent = b"1600000000,5000008,128,0,31\n1600000000,7000000,8,1,32\n";
        let columns = "time=1,offset=2,len=3,op=4,device=5,block=512,read=0,write=1";
        let (events, _) = accesses(columns, tencent).unwrap();
        assert_eq!(
            events,
            ["0 0 0 is 31", "0 0 r 0 2560004096 65536", "0 0 1 is 32", "0 0 w 1 3584000000 4096"]
        );
        let scsi = b"28,0\n2A,1\n8a,2\n35,0\n12,0\nwrite,9\n,3\nff,1\n";
        let columns = "op=1,offset=2,read=28/88,write=2a/8a,sync=35,skip=12";
        let (events, summary) = accesses(columns, scsi).unwrap();
        assert_eq!(
            events,
            ["0 0 r 0 0 4096", "0 0 w 0 1 4096", "0 0 w 0 2 4096", "0 0 sync 0", "0 0 w 0 9 4096"]
        );
        let skipped = "1 × line without an operation (first at 7); 1 × operation other than \
                       read, write, sync, truncate, create, open, close, delete and discard \
                       (first at 8); 1 × operation that --columns leaves out (first at 5)";
        assert_eq!(summary.skipped.to_string(), skipped);
    }

    #[test]
    fn a_header_is_known_or_given() {
        // Columns by number, and a header that no option mentions.
        for (columns, text) in [
            ("offset=1,len=2", "lba,bytes\n8,16\n"),
            ("offset=1,len=2,header=yes", "0,1\n8,16\n"),
            ("offset=1,len=2", "# lba bytes\n#\n8,16\n"),
            ("offset=lba,len=bytes", "# lba,bytes\n8,16\n"),
            ("offset=lba,len=bytes", "# made by hand\nlba,bytes\n8,16\nlba,bytes\n"),
        ] {
            let (events, summary) = accesses(columns, text.as_bytes()).unwrap();
            assert_eq!(events, ["0 0 r 0 8 16"], "{text}");
            assert_eq!(summary.skipped.damaged(), 0, "{text}: {}", summary.skipped);
        }
        let (_, summary) = accesses("offset=1,header=no", b"lba\n8\n").unwrap();
        assert_eq!(summary.skipped.damaged(), 1);
        // The name of a file may begin as a comment does.
        let (events, _) = accesses("file=1,op=2", b"#a,r\n").unwrap();
        assert_eq!(events, ["0 0 0 is #a", "0 0 r 0 0 4096"]);
    }

    #[test]
    fn objects_may_expire() {
        let columns = "time=1,object=2,len=3,ttl=4";
        let text = b"1,a,10,60\n2,b,7,0\n3,a,10,\n4,c,5, 9\n5,d,1,never\n";
        let (events, summary) = accesses(columns, text).unwrap();
        let expected = [
            "0 0 lives 60 s",
            "0 0 r 0 0 10",
            "1000000 0 r 1 0 7",
            "2000000 0 r 0 0 10",
            "3000000 0 lives 9 s",
            "3000000 0 r 2 0 5",
        ];
        assert_eq!(events, expected);
        assert_eq!(summary.skipped.damaged(), 1);
    }

    #[test]
    fn objects_have_no_names() {
        let (events, summary) =
            accesses("time=1,object=2,len=3,op=4", b"1,a,10,get\n2,b,7,set\n3,a,10,get\n").unwrap();
        assert_eq!(events, ["0 0 r 0 0 10", "1000000 0 w 1 0 7", "2000000 0 r 0 0 10"]);
        assert_eq!(summary.about.unwrap().space, Space::Objects);
    }

    /// Each table that has a name is read as its description says, by name and by its guess.
    // Promises: Traces 28.
    #[test]
    fn known_tables_are_read() {
        for preset in PRESETS {
            let name = preset.name;
            let (events, summary) = accesses(preset.columns, preset.sample.as_bytes()).unwrap();
            assert_eq!(summary.skipped.damaged(), 0, "{name}: {}", summary.skipped);
            assert!(summary.accesses > 0, "{name}");
            assert!(crate::format::named(name).is_err(), "{name} is a format, too");
            if preset.header().is_some() {
                assert_eq!(detect(preset.sample.as_bytes()), Confidence::Certain, "{name}");
                let (found, _) = accesses("", preset.sample.as_bytes()).unwrap();
                assert_eq!(found, events, "{name}");
            } else {
                let error = crate::format::detected(preset.sample.as_bytes()).err().unwrap();
                let error = error.to_string();
                let shown = format!("use --format {name}, which is --columns {}", preset.columns);
                assert!(error.contains(&shown), "{name}: {error}");
            }
        }
        let of = |name: &str| {
            let preset = named(name).unwrap();
            accesses(preset.columns, preset.sample.as_bytes()).unwrap().0
        };
        assert_eq!(
            of("FIU")[..4],
            [
                "0 4892 runs syslogd",
                "0 4892 0 is 6:0",
                "0 4892 w 0 462983966720 4096",
                "67 2395 runs kjournald"
            ]
        );
        assert_eq!(
            of("arc")[..3],
            ["0 0 0 is disk", "0 0 r 0 56711680 32768", "0 0 r 0 56744448 4096"]
        );
        assert_eq!(of("lirs").len(), 5);
        assert_eq!(
            of("baleen"),
            [
                "0 0 0 is 5:8",
                "0 0 r 0 2490368 131072",
                "500000 0 w 0 0 1048576",
                "500000 0 1 is 5:9",
                "500000 0 r 1 0 1048576"
            ]
        );
        // Options replace columns of the list.
        let over = overlaid("device=1,op=2,unit=us", "file=3,unit=ms");
        assert_eq!(over, "op=2,file=3,unit=ms");
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
            ("time=ts,file=path,device=path", "takes one of file=, device= and object=, not two"),
            ("op=path,read=1/2,write=2", "gives the word `2` to two operations"),
            ("op=path,read=1//2", "words of an operation are written as read=1/2"),
            ("time=ts,read=1", "no column of operations: add op="),
            ("op=path,0:read", "does not take `0:read` (did you mean `read=0`?)"),
            ("time=ts,separator=,", "does not take `separator=`"),
            ("time=ts,header=maybe", "header=yes or no"),
            ("time=ts,header=no", "there is no column `ts` without a header"),
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
