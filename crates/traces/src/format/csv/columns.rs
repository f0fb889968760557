//! The value of `--columns`.

use crate::Error;
use flashsift_events::params;

/// The kind of value in a column of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    Time,
    /// The text that tells files, devices or objects apart.
    Name,
    /// Its second part, where two columns are one text.
    Second,
    Op,
    Offset,
    Len,
    Pid,
    Process,
    /// Seconds for which an object lives.
    Ttl,
}

/// The keys of columns, but for those of [`Subject`].
const COLUMNS: [(&str, Holds); 7] = [
    ("time", Holds::Time),
    ("op", Holds::Op),
    ("offset", Holds::Offset),
    ("len", Holds::Len),
    ("pid", Holds::Pid),
    ("process", Holds::Process),
    ("ttl", Holds::Ttl),
];

/// The kind of thing that a name is the name of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    File,
    /// A block device, recorded below the page cache.
    Device,
    /// An object of a cache, which is read and written whole.
    Object,
}

const SUBJECTS: [(&str, Subject); 3] =
    [("file", Subject::File), ("device", Subject::Device), ("object", Subject::Object)];

/// The separator that stands for any number of blanks and tabs.
pub(super) const BLANKS: u8 = b' ';

const SEPARATORS: [(&str, u8); 6] = [
    ("comma", b','),
    ("semicolon", b';'),
    ("tab", b'\t'),
    ("bar", b'|'),
    ("colon", b':'),
    ("space", BLANKS),
];

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Read,
    Write,
    Sync,
    Truncate,
    Punch,
    Create,
    Open,
    Close,
    Delete,
    /// The line is left out.
    Skip,
}

/// Each operation: the key under which `--columns` gives its words, and the words that tools print
/// for it.
const OPS: [(Op, &str, &[&str]); 10] = [
    (Op::Read, "read", &["r", "read", "rd", "pread", "pread64", "get", "load", "ra", "rs"]),
    (Op::Write, "write", &["w", "write", "wr", "pwrite", "pwrite64", "put", "set", "store", "ws"]),
    (Op::Sync, "sync", &["f", "sync", "fsync", "fdatasync", "flush"]),
    (Op::Truncate, "truncate", &["truncate", "ftruncate"]),
    (Op::Punch, "discard", &["d", "discard", "trim", "punch"]),
    (Op::Create, "create", &["create", "creat"]),
    (Op::Open, "open", &["open", "openat"]),
    (Op::Close, "close", &["close"]),
    (Op::Delete, "delete", &["delete", "unlink", "remove", "rm"]),
    (Op::Skip, "skip", &[]),
];

impl Op {
    /// Returns the operation for which tools print this word.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is = |word: &&str| word.eq_ignore_ascii_case(text);
        OPS.iter().find(|(.., words)| words.iter().any(is)).map(|(op, ..)| *op)
    }
}

const UNIT: &str = "unit";
const BLOCK: &str = "block";
const OFFSET_UNIT: &str = "offset-unit";
const LEN_UNIT: &str = "len-unit";
const SEPARATOR: &str = "separator";
const HEADER: &str = "header";
const COMMENT: &str = "comment";

/// All that a table needs to be read.
#[derive(Debug)]
pub(super) struct Columns {
    named: Vec<(Holds, Box<str>)>,
    /// The kind of thing that a column, or a word, is the name of.
    pub(super) subject: Option<Subject>,
    /// Units of the time in a second.
    pub(super) per_second: u64,
    /// Bytes of a unit of `offset` and of `len`.
    pub(super) offset_bytes: u64,
    pub(super) len_bytes: u64,
    /// Whether `block` alone gives the unit of `len`.
    pub(super) len_by_block: bool,
    pub(super) separator: Option<u8>,
    /// Whether the first line names the columns.
    header: Option<bool>,
    /// Lines that begin so are comments.
    pub(super) comment: Option<u8>,
    /// Words of the column of operations, in lower case.
    words: Vec<(Box<str>, Op)>,
    /// The operation of all other words.
    others: Option<Op>,
}

/// Puts the keys of `over` in the place of those of `under`.
pub(in super::super) fn overlaid(under: &str, over: &str) -> String {
    let key = |pair: &str| {
        let key = pair.split('=').next().unwrap_or_default().trim().to_ascii_lowercase();
        let names_the_subject = SUBJECTS.iter().any(|(name, _)| *name == key);
        if names_the_subject { SUBJECTS[0].0.to_owned() } else { key }
    };
    let replaced = |pair: &&str| !over.split(',').any(|other| key(other) == key(pair));
    let kept: Vec<_> = under.split(',').filter(replaced).chain([over]).collect();
    kept.join(",")
}

impl Columns {
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        let mut columns = Self {
            named: Vec::new(),
            subject: None,
            per_second: 1,
            offset_bytes: 1,
            len_bytes: 1,
            len_by_block: false,
            separator: None,
            header: None,
            comment: None,
            words: Vec::new(),
            others: None,
        };
        let (mut block, mut offset_unit, mut len_unit) = (None, None, None);
        let mut given: Vec<String> = Vec::new();
        for pair in text.split(',').filter(|pair| !pair.trim().is_empty()) {
            let (key, value) = pair
                .split_once('=')
                .map_or((pair.trim(), ""), |(key, value)| (key.trim(), value.trim()));
            let key = key.to_ascii_lowercase();
            if given.contains(&key) {
                return Err(wrong(format!("--columns gives `{key}=` more than once")));
            }
            given.push(key.clone());
            let bytes = || value.parse().ok().filter(|bytes: &u64| *bytes > 0);
            let taken = match &*key {
                _ if value.is_empty() => None,
                UNIT => match value {
                    "s" => Some(1),
                    "ms" => Some(1000),
                    "us" => Some(1_000_000),
                    "ns" => Some(1_000_000_000),
                    _ => None,
                }
                .map(|per_second| columns.per_second = per_second),
                BLOCK => bytes().map(|bytes| block = Some(bytes)),
                OFFSET_UNIT => bytes().map(|bytes| offset_unit = Some(bytes)),
                LEN_UNIT => bytes().map(|bytes| len_unit = Some(bytes)),
                SEPARATOR => separator(value).map(|byte| columns.separator = Some(byte)),
                COMMENT => only_byte(value).map(|byte| columns.comment = Some(byte)),
                HEADER => match value {
                    "yes" => Some(true),
                    "no" => Some(false),
                    _ => None,
                }
                .map(|header| columns.header = Some(header)),
                key => columns.column(key, value)?,
            };
            if taken.is_none() {
                return Err(not_taken(&key, pair));
            }
        }
        if columns.named.is_empty() {
            return Err(wrong(
                "--columns names no column: give, for example, time=ts,file=path,op=rw".to_owned(),
            ));
        }
        let has_words = !columns.words.is_empty() || columns.others.is_some();
        if has_words && !columns.named.iter().any(|(holds, _)| *holds == Holds::Op) {
            return Err(wrong(
                "--columns gives words for operations, but no column of operations: add op="
                    .to_owned(),
            ));
        }
        columns.offset_bytes = offset_unit.or(block).unwrap_or(1);
        columns.len_bytes = len_unit.or(block).unwrap_or(1);
        columns.len_by_block = len_unit.is_none() && block.is_some_and(|bytes| bytes > 1);
        Ok(columns)
    }

    /// Takes a column, or the words of an operation; `None` if the key is neither.
    fn column(&mut self, key: &str, value: &str) -> Result<Option<()>, Error> {
        if let Some((_, holds)) = COLUMNS.iter().find(|(name, _)| *name == key) {
            self.named.push((*holds, value.into()));
        } else if let Some((_, subject)) = SUBJECTS.iter().find(|(name, _)| *name == key) {
            if self.subject.replace(*subject).is_some() {
                return Err(wrong(
                    "--columns takes one of file=, device= and object=, not two".to_owned(),
                ));
            }
            self.named.push((Holds::Name, value.into()));
        } else if let Some((op, ..)) = OPS.iter().find(|(_, name, _)| *name == key) {
            for word in value.split('/') {
                self.word(word.trim(), *op)?;
            }
        } else {
            return Ok(None);
        }
        Ok(Some(()))
    }

    /// Takes a word of an operation; `*` is every word that has no other.
    fn word(&mut self, word: &str, op: Op) -> Result<(), Error> {
        let twice = || wrong(format!("--columns gives the word `{word}` to two operations"));
        match word {
            "" => Err(wrong("--columns: words of an operation are written as read=1/2".to_owned())),
            "*" if self.others.replace(op).is_some() => Err(twice()),
            "*" => Ok(()),
            _ if self.words.iter().any(|(known, _)| known.eq_ignore_ascii_case(word)) => {
                Err(twice())
            }
            _ => {
                self.words.push((word.into(), op));
                Ok(())
            }
        }
    }

    /// Returns the operation that a word means.
    pub(super) fn op(&self, text: &str) -> Option<Op> {
        let given = self.words.iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
        given.map(|(_, op)| *op).or_else(|| Op::parse(text)).or(self.others)
    }

    /// Whether words mean what they usually do.
    pub(super) fn has_usual_words(&self) -> bool {
        self.words.is_empty()
    }

    /// Whether the file begins with a header: a column goes by name. A word for the only device is
    /// no name of a column where there is no header.
    pub(super) fn has_header(&self) -> bool {
        self.header.unwrap_or_else(|| self.goes_by_name())
    }

    fn goes_by_name(&self) -> bool {
        self.named.iter().any(|(holds, column)| {
            let is_word = *holds == Holds::Name && self.subject == Some(Subject::Device);
            !is_word && parts(column).iter().flatten().any(|part| part.parse::<usize>().is_err())
        })
    }

    /// Whether the file may begin with a header that these columns do not use.
    pub(super) fn may_have_header(&self) -> bool {
        self.header.is_none()
    }

    /// Returns the place of each column in a line of this header or, without one, of this line.
    pub(super) fn places(&self, header: &[&str]) -> Result<Places, Error> {
        let mut places = Places::default();
        let has_header = self.has_header();
        let named = |column: &str| {
            let by_name = || header.iter().position(|name| name.trim() == column);
            let by_case =
                || header.iter().position(|name| name.trim().eq_ignore_ascii_case(column));
            let by_number = || column.parse::<usize>().ok()?.checked_sub(1);
            // Of a header that is not used, a number is no name.
            let is_name = has_header && (self.goes_by_name() || column.parse::<usize>().is_err());
            by_name().or_else(by_case).filter(|_| is_name).or_else(by_number)
        };
        for (holds, column) in &self.named {
            if let Some(place) = named(column) {
                *places.get_mut(*holds) = Some(place);
                continue;
            }
            let near = params::nearest(column, header.iter().copied()).filter(|_| has_header);
            match (*holds, self.subject, parts(column).map(|part| named(part?))) {
                (Holds::Name, _, [Some(first), Some(second)]) => {
                    (places.name, places.second) = (Some(first), Some(second));
                }
                (Holds::Name, Some(Subject::Device), _) if near.is_none() => {
                    places.only_device = Some(column.clone());
                }
                _ => {
                    let there_is = match has_header {
                        true => format!("the header has no column `{column}`"),
                        false => format!("there is no column `{column}` without a header"),
                    };
                    return Err(Error::Lacks(format!(
                        "{there_is}{}; it has: {}",
                        params::did_you_mean(near),
                        header.join(", ")
                    )));
                }
            }
        }
        Ok(places)
    }
}

/// Returns the two columns of which `first:second` is the text, or the only one.
fn parts(column: &str) -> [Option<&str>; 2] {
    match column.split_once(':') {
        Some((first, second)) => [Some(first.trim()), Some(second.trim())],
        None => [Some(column), None],
    }
}

fn separator(value: &str) -> Option<u8> {
    let named = SEPARATORS.iter().find(|(name, _)| name.eq_ignore_ascii_case(value));
    let is_separator = |byte: &u8| !byte.is_ascii_alphanumeric() && *byte != b'"';
    named.map(|(_, byte)| *byte).or_else(|| only_byte(value).filter(is_separator))
}

fn only_byte(value: &str) -> Option<u8> {
    match value.as_bytes() {
        [byte] if byte.is_ascii_graphic() => Some(*byte),
        _ => None,
    }
}

fn wrong(what: String) -> Error {
    Error::Options(what)
}

/// The refusal of a key, or of its value.
fn not_taken(key: &str, pair: &str) -> Error {
    let others = [UNIT, BLOCK, OFFSET_UNIT, LEN_UNIT, SEPARATOR, HEADER, COMMENT];
    let names = COLUMNS.iter().map(|(name, _)| *name);
    let names = names.chain(SUBJECTS.iter().map(|(name, _)| *name));
    let names = names.chain(OPS.iter().map(|(_, name, _)| *name)).chain(others);
    let near = params::nearest(key, names).filter(|near| *near != key);
    let word = pair.trim().split_once(':').filter(|_| !pair.contains('='));
    let near = match word {
        Some((word, op)) if OPS.iter().any(|(_, name, _)| name.eq_ignore_ascii_case(op.trim())) => {
            Some(format!("{}={}", op.trim().to_ascii_lowercase(), word.trim()))
        }
        _ => near.map(str::to_owned),
    };
    wrong(format!(
        "--columns does not take `{}`{}; it takes time=, file=, device=, object=, op=, offset=, \
         len=, pid=, process= and ttl= (seconds that an object lives) with the name or number of a \
         column; unit=s, ms, us or ns of the time; block=, offset-unit= or \
         len-unit=BYTES of offset and len; read=, write=, sync=, \
         truncate=, discard=, create=, open=, close=, delete= or skip=WORD/WORD of the column of \
         operations; separator=comma, semicolon, tab, bar, colon, space or a character; header=yes \
         or no; comment=CHARACTER",
        pair.trim(),
        params::did_you_mean(near.as_deref())
    ))
}

#[derive(Debug, Default)]
pub(super) struct Places {
    pub(super) time: Option<usize>,
    pub(super) name: Option<usize>,
    pub(super) second: Option<usize>,
    pub(super) op: Option<usize>,
    pub(super) offset: Option<usize>,
    pub(super) len: Option<usize>,
    pub(super) pid: Option<usize>,
    pub(super) ttl: Option<usize>,
    pub(super) process: Option<usize>,
    /// The device of all requests, where no column names it.
    pub(super) only_device: Option<Box<str>>,
}

impl Places {
    fn get_mut(&mut self, holds: Holds) -> &mut Option<usize> {
        match holds {
            Holds::Time => &mut self.time,
            Holds::Name => &mut self.name,
            Holds::Second => &mut self.second,
            Holds::Op => &mut self.op,
            Holds::Offset => &mut self.offset,
            Holds::Len => &mut self.len,
            Holds::Pid => &mut self.pid,
            Holds::Ttl => &mut self.ttl,
            Holds::Process => &mut self.process,
        }
    }

    fn all(&self) -> [(Holds, Option<usize>); 9] {
        [
            (Holds::Time, self.time),
            (Holds::Name, self.name),
            (Holds::Second, self.second),
            (Holds::Op, self.op),
            (Holds::Offset, self.offset),
            (Holds::Len, self.len),
            (Holds::Pid, self.pid),
            (Holds::Ttl, self.ttl),
            (Holds::Process, self.process),
        ]
    }

    /// Returns the number of columns up to the last that is needed.
    pub(super) fn needed(&self) -> usize {
        let last = self.all().iter().filter_map(|(_, place)| *place).max();
        last.map_or(0, |place| place.saturating_add(1))
    }

    /// Returns the content of each column, up to the last that is needed; nothing if a column is
    /// needed twice, or lies too far for any line.
    pub(super) fn in_order(&self) -> Vec<Option<Holds>> {
        const MOST: usize = 1 << 16;
        if self.needed() > MOST {
            return Vec::new();
        }
        let mut in_order = vec![None; self.needed()];
        for (holds, place) in self.all() {
            let Some(place) = place else { continue };
            if in_order[place].replace(holds).is_some() {
                return Vec::new();
            }
        }
        in_order
    }
}
