//! A guess, by the first lines, of the columns that a table has. It is shown in the refusal of a
//! file, never taken without a word: a wrong unit would give wrong results.

use super::{
    columns::{BLANKS, Columns, Op},
    presets::{PRESETS, Preset},
};
use std::{collections::BTreeSet, fmt::Write as _};

/// A table that a text may be.
#[derive(Debug)]
pub(in super::super) struct Guess {
    preset: Option<&'static Preset>,
    columns: String,
}

impl Guess {
    /// Returns the options that read the table.
    pub(in super::super) fn options(&self) -> String {
        match self.preset {
            Some(preset) => format!("--format {}", preset.name),
            None => format!("--columns {}", self.columns),
        }
    }

    /// Returns the guess as a sentence.
    pub(in super::super) fn in_words(&self) -> String {
        match self.preset {
            Some(Preset { name, what, .. }) => format!(
                "it looks like {name} ({what}): use --format {name}, which is --columns {}",
                self.columns
            ),
            None => {
                format!("it looks like a table: use --columns {}, if that is right", self.columns)
            }
        }
    }
}

/// Lines that are looked at.
const LINES: usize = 200;
/// The preferred separator comes first.
const SEPARATORS: [u8; 6] = *b",\t;| :";

/// Returns the table that begins so, if there is one.
pub(in super::super) fn guess(head: &[u8]) -> Option<Guess> {
    let table = Table::new(head)?;
    let preset = PRESETS.iter().find(|preset| {
        let sample = Table::new(preset.sample.as_bytes());
        sample.is_some_and(|sample| table.looks_like(&sample, preset))
    });
    let columns = match preset {
        Some(preset) => preset.columns.to_owned(),
        None => table.columns()?,
    };
    // The options have to be some that are understood.
    Columns::parse(&columns).ok()?;
    Some(Guess { preset, columns })
}

/// The first lines of a text, in columns.
struct Table<'a> {
    separator: u8,
    header: Option<Vec<&'a str>>,
    rows: Vec<Vec<&'a str>>,
}

/// The kind of values in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Whole,
    Decimal,
    Op,
    Text,
}

impl<'a> Table<'a> {
    fn new(head: &'a [u8]) -> Option<Self> {
        let text = |line| std::str::from_utf8(line).ok();
        let lines: Vec<&str> =
            super::super::head_lines(head).take(LINES).map(text).collect::<Option<_>>()?;
        if lines.iter().any(|line| line.contains(|c: char| c.is_control() && c != '\t')) {
            return None;
        }
        let rows = || lines.iter().filter(|line| !line.starts_with(['#', '*']));
        // Nearly all rows have as many columns as the second, or as the first if it is alone.
        let columns = |separator: u8| {
            let counts: Vec<_> = rows().map(|line| split(line, separator).count()).collect();
            let count = *counts.get(1).or(counts.first())?;
            let same = counts.iter().filter(|c| **c == count).count();
            (same * 10 >= counts.len() * 9).then_some(count)
        };
        let wide = |separator: &u8| columns(*separator).is_some_and(|count| count > 1);
        let separator = SEPARATORS.into_iter().find(wide).unwrap_or(b'\t');
        let count = columns(separator)?;
        let mut rows: Vec<Vec<_>> = rows()
            .map(|line| split(line, separator).collect::<Vec<_>>())
            .filter(|row| row.len() == count)
            .collect();
        let has_numbers = |row: &Vec<&str>| row.iter().any(|field| field.parse::<f64>().is_ok());
        let names_columns = count > 1 && !has_numbers(rows.first()?);
        let header =
            (names_columns && rows.get(1).is_some_and(has_numbers)).then(|| rows.remove(0));
        Some(Self { separator, header, rows })
    }

    fn column(&self, n: usize) -> impl Iterator<Item = &'a str> {
        self.rows.iter().map(move |row| row[n])
    }

    fn kind(&self, n: usize) -> Kind {
        let some = || self.column(n).filter(|field| !field.is_empty());
        let all = |is: fn(&str) -> bool| some().next().is_some() && some().all(is);
        match () {
            () if all(|field| field.parse::<u64>().is_ok()) => Kind::Whole,
            () if all(|field| field.parse::<f64>().is_ok()) => Kind::Decimal,
            () if all(|field| Op::parse(field).is_some()) => Kind::Op,
            () => Kind::Text,
        }
    }

    fn width(&self) -> usize {
        self.rows.first().map_or(0, Vec::len)
    }

    /// Whether it has the columns of this sample, and nearly all lines are requests of it. Times
    /// since 1970 have the sample's number of digits.
    fn looks_like(&self, sample: &Table<'_>, preset: &Preset) -> bool {
        let Some((requests, time)) = self.requests(preset.columns) else { return false };
        let same_kind = |n: usize| match (self.kind(n), sample.kind(n)) {
            (Kind::Whole, Kind::Decimal) => true,
            (Kind::Text | Kind::Op, Kind::Text) => self.width() > 1 || self.has_objects(n),
            (mine, theirs) => mine == theirs,
        };
        let same_time = |n: usize| match sample.digits(n) {
            theirs @ (10 | 13 | 16 | 19) => theirs == self.digits(n),
            _ => true,
        };
        self.separator == sample.separator
            && self.width() == sample.width()
            && (0..self.width()).all(same_kind)
            && time.is_none_or(same_time)
            && requests * 10 >= self.rows.len() * 9
    }

    /// Whether a column holds words, some of them more than once. A line of prose is no word.
    fn has_objects(&self, n: usize) -> bool {
        let words: BTreeSet<_> = self.column(n).collect();
        words.len() < self.rows.len() && !words.iter().any(|word| word.contains(' '))
    }

    /// Returns the largest number of digits, without those behind a point.
    fn digits(&self, n: usize) -> usize {
        let digits = |field: &str| field.split('.').next().unwrap_or_default().len();
        self.column(n).map(digits).max().unwrap_or_default()
    }

    /// Returns how many rows are requests with these columns, and the place of their time.
    fn requests(&self, columns: &str) -> Option<(usize, Option<usize>)> {
        let columns = Columns::parse(columns).ok()?;
        let names = self.header.as_ref().or(self.rows.first())?;
        let places = columns.places(names).ok()?;
        let time = places.time.filter(|n| *n < self.width());
        let reader = super::Requests::new(columns, places, self.separator);
        let is_request = |row: &&Vec<&str>| match reader.whole(row) {
            Ok(_) => true,
            Err(skip) => matches!(skip, crate::events::Skip::Benign(_)),
        };
        Some((self.rows.iter().filter(is_request).count(), time))
    }

    /// Guesses the columns by their names or, without a header, by their values.
    fn columns(&self) -> Option<String> {
        let mut found = match &self.header {
            Some(header) => self.by_name(header),
            None => self.by_value()?,
        };
        let has = |found: &Found, key: &str| found.keys.iter().any(|(known, ..)| *known == key);
        if !has(&found, "offset") && !has(&found, "file") && !has(&found, "object") {
            return None;
        }
        if !has(&found, "file") && !has(&found, "object") && !has(&found, "device") {
            found.rest.push("device=disk".to_owned());
        }
        let mut text = String::new();
        for (key, n) in &found.keys {
            let name = self.header.as_ref().map_or(String::new(), |header| header[*n].to_owned());
            let by_name = !name.is_empty() && !name.contains([',', '=']);
            let name = if by_name { name } else { (n + 1).to_string() };
            let _ = write!(text, "{key}={},", name.trim());
        }
        let all_by_number = found.keys.iter().all(|(_, n)| {
            self.header.as_ref().is_none_or(|header| header[*n].contains([',', '=']))
        });
        if self.header.is_some() && all_by_number {
            found.rest.push("header=yes".to_owned());
        }
        if self.separator == BLANKS {
            found.rest.push("separator=space".to_owned());
        } else if self.separator == b':' {
            found.rest.push("separator=colon".to_owned());
        }
        text.push_str(&found.rest.join(","));
        Some(text.trim_end_matches(',').to_owned())
    }

    fn by_name(&self, header: &[&str]) -> Found {
        let mut found = Found::default();
        for (key, names) in NAMES {
            let is_it = |n: &usize| {
                let name = header[*n].to_ascii_lowercase();
                let (name, _) = with_unit(&name);
                let fits = match *key {
                    "time" => self.kind(*n) <= Kind::Decimal,
                    "offset" | "len" | "pid" => self.kind(*n) == Kind::Whole,
                    _ => true,
                };
                fits && names.contains(&name) && found.keys.iter().all(|(_, taken)| taken != n)
            };
            let Some(n) = (0..header.len()).find(is_it) else { continue };
            let subject = ["file", "object", "device"].contains(key);
            let has_subject =
                found.keys.iter().any(|(known, _)| ["file", "object", "device"].contains(known));
            if subject && has_subject {
                continue;
            }
            found.keys.push((*key, n));
            let lower = header[n].to_ascii_lowercase();
            let (name, unit) = with_unit(&lower);
            match *key {
                "time" => {
                    let unit = ["s", "ms", "us", "ns"].into_iter().find(|known| *known == unit);
                    self.unit_of_time(n, unit, &mut found);
                }
                "offset" | "len" => {
                    let sectors = ["sector", "sectors", "lba", "lbn", "blocks"].contains(&name);
                    let bytes = match unit {
                        "kb" => 1024,
                        _ if sectors || unit == "sectors" => 512,
                        _ => continue,
                    };
                    found.rest.push(format!("{key}-unit={bytes}"));
                }
                "op" => self.words_of_op(n, &mut found),
                _ => {}
            }
        }
        found
    }

    /// Guesses columns of a block trace: an operation, and at least two numbers.
    fn by_value(&self) -> Option<Found> {
        let mut found = Found::default();
        let columns = || 0..self.width();
        let op = columns().find(|n| self.kind(*n) == Kind::Op)?;
        let number = |n: usize, row: usize| self.rows[row][n].parse::<f64>().unwrap_or_default();
        let max = |n: usize| (0..self.rows.len()).map(|row| number(n, row)).fold(0.0, f64::max);
        let grows = |n: &usize| {
            let rises = |row: usize| number(*n, row) >= number(*n, row - 1);
            let changes = |row: usize| number(*n, row) > number(*n, row - 1);
            self.kind(*n) <= Kind::Decimal
                && (1..self.rows.len()).all(rises)
                && (1..self.rows.len()).any(changes)
        };
        // A time has a fraction, or more digits than the others.
        let time = columns().filter(grows).max_by(|a, b| {
            let rank = |n: usize| (self.kind(n) == Kind::Decimal, max(n));
            rank(*a).partial_cmp(&rank(*b)).unwrap_or(std::cmp::Ordering::Equal)
        });
        let left: Vec<_> =
            columns().filter(|n| Some(*n) != time && self.kind(*n) == Kind::Whole).collect();
        let offset = *left.iter().max_by(|a, b| max(**a).total_cmp(&max(**b)))?;
        let is_len = |n: &&usize| **n != offset && max(**n) <= f64::from(1 << 30);
        let behind = left.iter().find(|n| **n > offset && is_len(n));
        let len = *behind.or_else(|| left.iter().find(is_len))?;
        if let Some(time) = time {
            found.keys.push(("time", time));
            self.unit_of_time(time, None, &mut found);
        }
        found.keys.extend([("op", op), ("offset", offset), ("len", len)]);
        let in_bytes =
            self.column(len).all(|len| len.parse().is_ok_and(|n: u64| n.is_multiple_of(512)));
        if !in_bytes && max(len) < 65536.0 {
            found.rest.push("block=512".to_owned());
        }
        Some(found)
    }

    /// Adds the unit of times, by its name or by the number of digits since 1970.
    fn unit_of_time(&self, n: usize, unit: Option<&str>, found: &mut Found) {
        let unit = unit.unwrap_or(match self.digits(n) {
            18.. => "ns",
            15.. => "us",
            12.. => "ms",
            _ => "s",
        });
        if unit != "s" {
            found.rest.push(format!("unit={unit}"));
        }
    }

    /// Adds the usual meaning of numbers for operations.
    fn words_of_op(&self, n: usize, found: &mut Found) {
        const MEANINGS: [(&[&str], &str); 2] =
            [(&["0", "1"], "read=0,write=1"), (&["28", "2a"], "read=28,write=2a")];
        let words: BTreeSet<_> = self.column(n).map(str::to_ascii_lowercase).collect();
        let means = |known: &[&str]| words.iter().all(|word| known.contains(&&**word));
        if let Some((_, meaning)) = MEANINGS.iter().find(|(known, _)| means(known)) {
            found.rest.push((*meaning).to_owned());
        }
    }
}

/// Keys of columns with their places, and other options.
#[derive(Default)]
struct Found {
    keys: Vec<(&'static str, usize)>,
    rest: Vec<String>,
}

/// The names that columns have in headers, the best first.
const NAMES: &[(&str, &[&str])] = &[
    ("time", &["time", "timestamp", "ts", "at", "op_time", "start", "issue_time"]),
    ("file", &["file", "path", "filename", "file_name", "inode", "ino", "name"]),
    ("device", &["device", "disk", "dev", "lun", "volume", "volume_id", "device_id", "disknumber"]),
    ("object", &["object", "key", "obj_id", "object_id", "obj", "block_id"]),
    ("op", &["op", "rw", "type", "iotype", "io_type", "operation", "opcode", "cmd", "t", "rwbs"]),
    (
        "offset",
        &["offset", "off", "pos", "position", "sector", "lba", "lbn", "address", "io_offset"],
    ),
    ("len", &["len", "length", "size", "bytes", "nbytes", "count", "sectors", "blocks", "io_size"]),
    ("pid", &["pid", "tgid"]),
    ("process", &["process", "comm", "program", "command", "task", "process name"]),
];

/// Returns a name of a column without its unit, and the unit: `time(ms)`, `off_kb`.
fn with_unit(name: &str) -> (&str, &str) {
    let name = name.trim();
    if let Some((name, unit)) = name.split_once('(') {
        return (name.trim(), unit.trim_end_matches(')'));
    }
    match name.rsplit_once('_') {
        Some((bare, unit @ ("s" | "ms" | "us" | "ns" | "kb" | "bytes" | "sectors"))) => {
            (bare, unit)
        }
        _ => (name, ""),
    }
}

/// Splits a line as the reader does, but for quoted fields.
fn split(line: &str, separator: u8) -> impl Iterator<Item = &str> {
    let line = if separator == BLANKS { line.trim() } else { line };
    let is_blank = |c: char| c == ' ' || c == '\t';
    let is = move |c: char| if separator == BLANKS { is_blank(c) } else { c == separator as char };
    line.split(is)
        .map(|field| field.trim().trim_matches('"'))
        .filter(move |field| separator != BLANKS || !field.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guessed(text: &str) -> String {
        guess(text.as_bytes()).map_or("nothing".to_owned(), |guess| guess.options())
    }

    /// A refusal said nothing about the columns that the table probably has.
    #[test]
    fn each_known_table_is_recognised_by_its_first_lines() {
        for preset in PRESETS {
            let name = preset.name;
            assert_eq!(guessed(preset.sample), format!("--format {name}"), "{name}");
        }
    }

    #[test]
    fn other_tables_are_guessed_by_names_and_values() {
        for (text, options) in [
            (
                "ts_ms,path,rw,off,bytes\n5,/a,r,0,12\n",
                "--columns time=ts_ms,file=path,op=rw,offset=off,len=bytes,unit=ms",
            ),
            (
                "TIME(s)   COMM  PID  DISK  T SECTOR  BYTES LAT(ms)\n\
                 0.0 logd  3    sda   W 500008  4096   0.50\n",
                "--columns time=TIME(s),device=DISK,op=T,offset=SECTOR,len=BYTES,pid=PID,\
                 process=COMM,offset-unit=512,separator=space",
            ),
            (
                "17 W 4096 512\n18 R 1048576 1024\n19 W 0 512\n",
                "--columns time=1,op=2,offset=3,len=4,device=disk,separator=space",
            ),
            (
                "time;op;lba;len\n1600000000123;1;8;4096\n1600000000124;0;8;4096\n",
                "--columns time=time,op=op,offset=lba,len=len,unit=ms,read=0,write=1,\
                 offset-unit=512,device=disk",
            ),
            ("a,b,c\n1,2,3\n", "nothing"),
            ("hello world\nthis is text\n", "nothing"),
            ("alpha\nbeta\ngamma\n", "nothing"),
            ("", "nothing"),
        ] {
            assert_eq!(guessed(text), options, "{text}");
        }
    }
}
