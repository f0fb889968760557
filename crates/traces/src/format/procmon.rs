//! CSV that Process Monitor of Windows saves: file operations of all processes.
//!
//! ```text
//! "Time of Day","Process Name","PID","Operation","Path","Result","Detail"
//! "10:17:54.1 AM","a.exe","4120","WriteFile","C:\Temp\a","SUCCESS","Offset: 0, Length: 4,096"
//! ```
//!
//! The columns are found by their names in the header, in any order; `Operation`, `Path` and
//! `Detail` have to be there. Times are times of day, of 12 or 24 hours, or `Relative Time`.
//! Numbers may be grouped by commas, points or spaces.
//!
//! A read or write counts if it succeeded, with the length that it asked for: Process Monitor does
//! not print how many bytes a read at the end of a file returned. Paging I/O is left out: it moves
//! data between the cache of Windows and storage. That also holds for accesses through mappings. A
//! write at offset -1 appends. Names that differ only by case are one; `\` is shown as `/`.

use super::{
    Confidence, FileId, FormatSpec, Knows, Side, Space,
    day::{self, Days},
    head_lines,
    processes::Processes,
    text_lines,
};
use crate::{
    Error,
    events::{Access, AccessKind, Events, Skip},
    input::Input,
};
use flashsift_events::event::{About, Action, Create, Event, MaybeOwned, Renamed};
use std::collections::BTreeMap;

pub(super) const SPEC: FormatSpec = FormatSpec {
    name: "procmon",
    what: "CSV of Process Monitor (Windows)",
    detect,
    read,
    ahead: true,
    sample: || SAMPLE.into(),
};

const SAMPLE: &str = r#""Time of Day","Process Name","PID","Operation","Path","Result","Detail"
"10:17:54.1234567 AM","app.exe","4120","CreateFile","C:\Temp\a.log","SUCCESS","Desired Access: Generic Write, Disposition: OverwriteIf, OpenResult: Created"
"10:17:54.1244567 AM","app.exe","4120","WriteFile","C:\Temp\a.log","SUCCESS","Offset: 0, Length: 4,096, Priority: Normal"
"10:17:54.1254567 AM","app.exe","4120","ReadFile","C:\Temp\a.log","SUCCESS","Offset: 1,024, Length: 512"
"10:17:54.1264567 AM","app.exe","4120","FlushBuffersFile","C:\Temp\a.log","SUCCESS",""
"10:17:54.1274567 AM","app.exe","4120","SetEndOfFileInformationFile","C:\Temp\a.log","SUCCESS","EndOfFile: 100"
"10:17:54.1284567 AM","app.exe","4120","SetRenameInformationFile","C:\Temp\a.log","SUCCESS","ReplaceIfExists: True, FileName: C:\Temp\b.log"
"10:17:55.1284567 AM","svchost.exe","900","RegOpenKey","HKLM\System","SUCCESS",""
"#;

const HEADER: Skip = Skip::Benign("header");
const NOT_A_ROW: Skip = Skip::Damage("line that is no row of Process Monitor");
const NO_TIME: Skip = Skip::Damage("row without a time");
const UNREADABLE: Skip = Skip::Damage("row whose Detail cannot be read");
const OTHER: Skip = Skip::Benign("operation that moves no file data");
const FAILED: Skip = Skip::Benign("failed operation");
const PAGING: Skip = Skip::Benign("paging I/O, between the cache of Windows and storage");
const APPEND: Skip = Skip::Note("write at the end of a file: placed after the farthest byte known");

fn detect(head: &[u8]) -> Confidence {
    let header = head_lines(head).next().and_then(|line| std::str::from_utf8(line).ok());
    let names = header.map(columns).unwrap_or_default();
    let has = |name| names.contains(&name);
    match has("Process Name") && has("Operation") && (has("Detail") || has("Path")) {
        true => Confidence::Certain,
        false => Confidence::No,
    }
}

/// Splits a row. Every field has quotes; names of files hold none.
fn columns(line: &str) -> Vec<&str> {
    let inner = line.trim().strip_prefix('"').and_then(|line| line.strip_suffix('"'));
    inner.map(|inner| inner.split("\",\"").collect()).unwrap_or_default()
}

/// Places of the columns.
struct Columns {
    time: Option<usize>,
    process: Option<usize>,
    pid: Option<usize>,
    tid: Option<usize>,
    result: Option<usize>,
    operation: usize,
    path: usize,
    detail: usize,
}

impl Columns {
    fn new(names: &[&str]) -> Result<Self, Error> {
        let at = |name: &str| names.iter().position(|column| *column == name);
        let needed = |name: &str| {
            at(name).ok_or_else(|| {
                Error::Lacks(format!(
                    "it has no column \"{name}\": select it under Options, Select Columns, in \
                     Process Monitor, and save again"
                ))
            })
        };
        let times = ["Relative Time", "Time of Day", "Date & Time"];
        Ok(Self {
            time: times.into_iter().find_map(at),
            process: at("Process Name"),
            pid: at("PID"),
            tid: at("TID"),
            result: at("Result"),
            operation: needed("Operation")?,
            path: needed("Path")?,
            detail: needed("Detail")?,
        })
    }
}

/// Parses the time of `10:17:54.1234567 AM` or `1/2/2026 10:17:54 AM`, in microseconds of the day.
fn time(text: &str) -> Option<u64> {
    let mut words = text.split(char::is_whitespace).filter(|word| !word.is_empty());
    let (us, _) = words.find_map(|word| day::time(word.as_bytes()))?;
    let hour_us = day::DAY_US / 24;
    let half = words.next().and_then(|half| half.bytes().next()).map(|b| b.to_ascii_uppercase());
    Some(match half {
        Some(b'A') if us / hour_us == 12 => us - 12 * hour_us,
        Some(b'P') if us / hour_us < 12 => us + 12 * hour_us,
        _ => us,
    })
}

/// Returns the value of a key in `Offset: 4,096, Length: 512`.
fn value<'a>(detail: &'a str, key: &str) -> Option<&'a str> {
    let at = detail.match_indices(key).map(|(at, _)| at).find(|&at| {
        (at == 0 || detail[..at].ends_with(", ")) && detail[at + key.len()..].starts_with(": ")
    })?;
    Some(&detail[at + key.len() + 2..])
}

/// Parses a number with any groups: `4,096`, `4.096`, `4 096`. It ends before `, Key`.
fn number(text: &str) -> Option<u64> {
    let end = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    let mut number = None;
    for digit in text[..end].chars().filter_map(|c| c.to_digit(10)) {
        number = Some(number.unwrap_or(0u64).checked_mul(10)?.checked_add(digit.into())?);
    }
    number
}

/// A file under its name.
struct File {
    id: FileId,
    /// End of the farthest byte known.
    reach: u64,
}

#[derive(Default)]
struct Reader {
    days: Days,
    processes: Processes,
    /// By name, in lower case.
    files: BTreeMap<String, File>,
    next: u64,
    now_us: u64,
}

/// A row.
struct Row<'a> {
    at_us: u64,
    pid: u32,
    tid: u32,
    operation: &'a str,
    path: &'a str,
    detail: &'a str,
}

fn read(input: &mut Input<'_>, events: &mut Events<'_>) -> Result<(), Error> {
    let (mut columns_of, mut reader) = (None, Reader::default());
    text_lines(input, events, |line, events| {
        let fields = columns(line);
        let Some(columns) = &columns_of else {
            let found = Columns::new(&fields)?;
            let times = found.time.is_some();
            columns_of = Some(found);
            events.about(About {
                epoch_us: None,
                boot_us: None,
                side: Side::Before,
                space: Space::Files,
                knows: Knows { times, syncs: true, writes: true, removals: true, ..Knows::NOTHING },
            })?;
            return Ok(Err(HEADER));
        };
        reader.row(columns, &fields, events)
    })
}

impl Reader {
    fn row(
        &mut self,
        columns: &Columns,
        fields: &[&str],
        events: &mut Events<'_>,
    ) -> Result<Result<(), Skip>, Error> {
        let field = |at: usize| fields.get(at).copied();
        let optional = |at: Option<usize>| at.and_then(field).unwrap_or_default();
        let (Some(operation), Some(path), Some(detail)) =
            (field(columns.operation), field(columns.path), field(columns.detail))
        else {
            return Ok(Err(NOT_A_ROW));
        };
        if columns.time.is_some() {
            let Some(us) = time(optional(columns.time)) else { return Ok(Err(NO_TIME)) };
            self.now_us = self.days.since_first(us);
        }
        let number = |at| optional(at).parse().unwrap_or_default();
        let (pid, tid) = (number(columns.pid), number(columns.tid));
        let row = Row { at_us: self.now_us, pid, tid, operation, path, detail };
        let kind = match Kind::new(&row) {
            Some(_) if columns.result.is_some() && optional(columns.result) != "SUCCESS" => {
                return Ok(Err(FAILED));
            }
            Some(Ok(kind)) => kind,
            Some(Err(skip)) => return Ok(Err(skip)),
            None => return Ok(Err(OTHER)),
        };
        self.processes.runs(pid, optional(columns.process).as_bytes(), row.at_us, events)?;
        self.push(&row, kind, events).map(Ok)
    }

    fn push(
        &mut self,
        row: &Row<'_>,
        kind: Kind<'_>,
        events: &mut Events<'_>,
    ) -> Result<(), Error> {
        let &Row { at_us, pid, tid, path, .. } = row;
        let event = |action| Event { at_us, pid, tid, action };
        match kind {
            Kind::Access { write, at, len, direct, sync } => {
                let file = self.file(row, events)?;
                let offset = at.unwrap_or(file.reach);
                file.reach = file.reach.max(offset.saturating_add(len));
                let file = file.id;
                if at.is_none() {
                    events.skipped(APPEND, events.line());
                }
                let open = None;
                if direct {
                    return events.push(event(Action::Direct { open, file, offset, len, write }));
                }
                let kind = if write { AccessKind::Write { sync } } else { AccessKind::Read };
                events.access(Access { at_us, pid, tid, file, open, offset, len, kind })
            }
            Kind::Sync => {
                let file = self.file(row, events)?.id;
                let action = Action::Sync { file, offset: 0, len: u64::MAX, data_only: false };
                events.push(event(action))
            }
            Kind::Truncate(size) => {
                let file = self.file(row, events)?;
                file.reach = size;
                let file = file.id;
                events.push(event(Action::Truncate { file, size }))
            }
            Kind::Create => {
                self.remove(row, path, events)?;
                let (file, name) = self.add(path);
                let name = MaybeOwned::owned_str(&name);
                let create = Create { file, name, owner: None, mode: None, sync: false };
                events.push(event(Action::Create(MaybeOwned::owned(create))))
            }
            Kind::Delete => self.remove(row, path, events),
            Kind::Rename(to) => self.rename(row, to, events),
        }
    }

    /// Adds a file, and returns it and its name as it is shown.
    fn add(&mut self, path: &str) -> (FileId, String) {
        let id = FileId(self.next);
        self.next += 1;
        self.files.insert(path.to_lowercase(), File { id, reach: 0 });
        (id, shown(path))
    }

    /// Returns the file of a row, which exists from before the trace if it is not known.
    fn file(&mut self, row: &Row<'_>, events: &mut Events<'_>) -> Result<&mut File, Error> {
        let key = row.path.to_lowercase();
        if !self.files.contains_key(&key) {
            let (file, name) = self.add(row.path);
            let action = Action::Bind { file, name: name.into() };
            events.push(Event { at_us: row.at_us, pid: 0, tid: 0, action })?;
        }
        Ok(self.files.get_mut(&key).expect("it was just added"))
    }

    /// A file loses its name, and ends.
    fn remove(&mut self, row: &Row<'_>, path: &str, events: &mut Events<'_>) -> Result<(), Error> {
        let &Row { at_us, pid, tid, .. } = row;
        let Some(File { id: file, .. }) = self.files.remove(&path.to_lowercase()) else {
            return Ok(());
        };
        let action = Action::Unbind { file, name: shown(path).into() };
        events.push(Event { at_us, pid, tid, action })?;
        events.push(Event { at_us, pid, tid, action: Action::Gone { file } })
    }

    /// Renames a file, or a directory with the files below it.
    fn rename(&mut self, row: &Row<'_>, to: &str, events: &mut Events<'_>) -> Result<(), Error> {
        let &Row { at_us, pid, tid, path, .. } = row;
        let (from_key, to_key) = (path.to_lowercase(), to.to_lowercase());
        let names = Renamed::owned(&shown(path), &shown(to));
        let action = match self.files.remove(&from_key) {
            Some(file) => {
                self.remove(row, to, events)?;
                let id = file.id;
                self.files.insert(to_key, file);
                Action::Rename { file: id, names }
            }
            None => {
                let below = format!("{from_key}\\");
                let moved: Vec<String> = self
                    .files
                    .range(below.clone()..)
                    .map(|(key, _)| key.clone())
                    .take_while(|key| key.starts_with(&below))
                    .collect();
                if moved.is_empty() {
                    return Ok(());
                }
                for key in moved {
                    if let Some(file) = self.files.remove(&key) {
                        self.files.insert(format!("{to_key}\\{}", &key[below.len()..]), file);
                    }
                }
                Action::RenameDirectory { names }
            }
        };
        events.push(Event { at_us, pid, tid, action })
    }
}

/// Returns a path with the separators that other traces have.
fn shown(path: &str) -> String {
    path.replace('\\', "/")
}

/// The effect of an operation.
enum Kind<'a> {
    /// `at`: `None` appends.
    Access {
        write: bool,
        at: Option<u64>,
        len: u64,
        direct: bool,
        sync: bool,
    },
    Sync,
    Truncate(u64),
    Create,
    Delete,
    Rename(&'a str),
}

impl<'a> Kind<'a> {
    /// Returns the effect of a row; `None` if it has none on data or names.
    fn new(row: &Row<'a>) -> Option<Result<Self, Skip>> {
        let detail = row.detail;
        let number_of = |key| value(detail, key).and_then(number).ok_or(UNREADABLE);
        let access = |write| {
            if detail.contains("Paging I/O") {
                return Err(PAGING);
            }
            let at = value(detail, "Offset").ok_or(UNREADABLE)?;
            let at = if at.starts_with('-') { None } else { Some(number(at).ok_or(UNREADABLE)?) };
            let direct = detail.contains("Non-cached");
            let sync = write && detail.contains("Write Through");
            Ok(Kind::Access { write, at, len: number_of("Length")?, direct, sync })
        };
        let result = value(detail, "OpenResult").unwrap_or_default();
        Some(match row.operation {
            "ReadFile" => access(false),
            "WriteFile" => access(true),
            "FlushBuffersFile" => Ok(Kind::Sync),
            "SetEndOfFileInformationFile" => number_of("EndOfFile").map(Kind::Truncate),
            "CreateFile"
                if value(detail, "Options").is_some_and(|o| o.starts_with("Directory")) =>
            {
                return None;
            }
            "CreateFile" if result.starts_with("Created") => Ok(Kind::Create),
            "CreateFile" if ["Overwritten", "Superseded"].iter().any(|r| result.starts_with(r)) => {
                Ok(Kind::Truncate(0))
            }
            "SetDispositionInformationFile" if detail.contains("Delete: True") => Ok(Kind::Delete),
            "SetDispositionInformationEx" if detail.contains("FILE_DISPOSITION_DELETE") => {
                Ok(Kind::Delete)
            }
            "SetRenameInformationFile" | "SetRenameInformationEx" => {
                value(detail, "FileName").ok_or(UNREADABLE).map(Kind::Rename)
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::testing;

    fn lines(text: &str) -> (Vec<String>, String) {
        let (events, summary) = testing::read(&SPEC, text.as_bytes()).expect("no error");
        let lines = events.iter().filter_map(|event| {
            let at = event.at_us;
            Some(match &event.action {
                Action::Read { file, offset, len, .. } => {
                    format!("{at} read {} {offset} {len}", file.0)
                }
                Action::Write { file, offset, len, sync, .. } => {
                    format!(
                        "{at} write{} {} {offset} {len}",
                        if *sync { "sync" } else { "" },
                        file.0
                    )
                }
                Action::Direct { file, offset, len, write, .. } => {
                    format!("{at} direct {write} {} {offset} {len}", file.0)
                }
                Action::Sync { file, .. } => format!("{at} sync {}", file.0),
                Action::Create(create) => format!("{at} create {} {}", create.file.0, create.name),
                Action::Bind { file, name } => format!("{at} bind {} {name}", file.0),
                Action::Truncate { file, size } => format!("{at} truncate {} {size}", file.0),
                Action::Rename { file, names } => {
                    format!("{at} rename {} {} {}", file.0, names.from, names.to)
                }
                Action::RenameDirectory { names } => {
                    format!("{at} rename directory {} {}", names.from, names.to)
                }
                Action::Gone { file } => format!("{at} gone {}", file.0),
                _ => return None,
            })
        });
        (lines.collect(), testing::skipped(&summary))
    }

    /// `--columns` once found "time that is not a positive number" in every row.
    #[test]
    fn the_operations_on_files_are_read() {
        let (found, skipped) = lines(SAMPLE);
        assert_eq!(
            found,
            [
                "0 create 0 C:/Temp/a.log",
                "1000 write 0 0 4096",
                "2000 read 0 1024 512",
                "3000 sync 0",
                "4000 truncate 0 100",
                "5000 rename 0 C:/Temp/a.log C:/Temp/b.log",
            ]
        );
        let other = "1 × header (first at 1); 1 × operation that moves no file data (first at 8)";
        assert_eq!(skipped, other);
    }

    #[test]
    fn columns_times_and_numbers_may_have_any_form() {
        let text = r#""Date & Time","PID","TID","Operation","Result","Path","Detail"
"31/12/2026 11:59:59 PM","7","8","WriteFile","SUCCESS","D:\Dir\a","Offset: 4.096, Length: 512, I/O Flags: Write Through"
"01/01/2027 12:00:00 AM","7","8","WriteFile","SUCCESS","D:\DIR\A","Offset: -1, Length: 10"
"01/01/2027 12:00:00 AM","7","8","ReadFile","END OF FILE","D:\dir\a","Offset: 9 999, Length: 10"
"01/01/2027 12:00:01 AM","7","8","ReadFile","SUCCESS","D:\dir\a","Offset: 1 024, Length: 2 048, I/O Flags: Non-cached, Priority: Normal"
"01/01/2027 12:00:01 AM","7","8","WriteFile","SUCCESS","D:\dir\a","Offset: 0, Length: 4,096, I/O Flags: Non-cached, Paging I/O"
"01/01/2027 12:00:01 AM","7","8","SetRenameInformationFile","SUCCESS","D:\dir","ReplaceIfExists: False, FileName: D:\new"
"01/01/2027 12:00:01 AM","7","8","CreateFile","SUCCESS","D:\new\a","Disposition: OverwriteIf, OpenResult: Overwritten"
"01/01/2027 12:00:01 AM","7","8","SetDispositionInformationEx","SUCCESS","D:\new\a","Flags: FILE_DISPOSITION_DELETE"
"01/01/2027 12:00:02 AM","7","8","ReadFile","SUCCESS","D:\new\a","Length: 9"
"noon","7","8","ReadFile","SUCCESS","D:\new\a","Offset: 0, Length: 9"
"01/01/2027 12:00:02 AM","7"
"#;
        let (found, skipped) = lines(text);
        assert_eq!(
            found,
            [
                "0 bind 0 D:/Dir/a",
                "0 writesync 0 4096 512",
                "1000000 write 0 4608 10",
                "2000000 direct false 0 1024 2048",
                "2000000 rename directory D:/dir D:/new",
                "2000000 truncate 0 0",
                "2000000 gone 0",
            ]
        );
        assert_eq!(
            skipped,
            "1 × failed operation (first at 4); 1 × header (first at 1); 1 × line that is no row \
             of Process Monitor (first at 12); 1 × paging I/O, between the cache of Windows and \
             storage (first at 6); 1 × row whose Detail cannot be read (first at 10); 1 × row \
             without a time (first at 11); 1 × write at the end of a file: placed after the \
             farthest byte known (first at 3)"
        );
    }

    #[test]
    fn a_file_without_details_is_refused_by_name() {
        let text = b"\"Time of Day\",\"Process Name\",\"PID\",\"Operation\",\"Path\",\"Result\"\n";
        assert_eq!(detect(text), Confidence::Certain);
        let error = testing::read(&SPEC, text).expect_err("no offsets").to_string();
        assert!(error.starts_with("it has no column \"Detail\""), "{error}");
    }
}
