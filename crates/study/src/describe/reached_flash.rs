//! Bytes that reach flash, by program, file, directory and reason.
//!
//! Requests of applications are not what wears flash: pages that are overwritten or deleted soon
//! enough are never written, an fsync writes a page each time, and the file system adds a journal
//! and metadata. So the events go through models of Linux's write-back and, if asked for, of a file
//! system ([`FlashWrites`]) with the kernel's own times. Each page that they write is charged to
//! the program that made it dirty and to its file; journal and metadata are shared among the files
//! of their commit.
//!
//! `program_windows` holds the bytes of the first programs in each of at most [`WINDOWS`] windows
//! of equal length: a 64th of a second, doubled as often as necessary.

use super::{
    Audience, Characterisation, CharacterisationSpec, Figure, Found, Ledger, Need, Piece, Seen,
    Setup, Table, Value,
    bins::Bins,
    flash_writes::{Charge, FILE_SYSTEM, FlashWrites, UNKNOWN, WriteReason},
    ranking::{self, Key, Ranking},
    top_directories::directory,
};
use flashsift_events::{
    event::Event,
    names::{UNKNOWN_PROGRAM, program_name},
    page::PAGE_BYTES,
};
use flashsift_files::flusher::FlushReason;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use std::collections::BTreeMap;

pub(super) const SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "reached_flash",
    title: "Data that reaches flash",
    paper: "",
    paper_saw: "",
    opens: true,
    needs: &[Need::Files, Need::Times, Need::Syncs, Need::Writes],
    build: |setup| Box::new(ReachedFlash::new(setup)),
};

const WINDOWS: usize = 64;
/// Length of the shortest window: doubled six times, it is a second.
const WINDOW_US: u64 = 15_625;
/// Programs with a line of their own in the figure.
const PROGRAMS: usize = 6;
/// Name of the owner of what belongs to no file.
const OF_FILE_SYSTEM: &str = "(file system)";

/// Reasons in the order of the table, with their names for programs and people.
const REASONS: [(WriteReason, &str, &str); 9] = [
    (WriteReason::Data(FlushReason::Synced), "synced_bytes", "by fsync"),
    (WriteReason::Data(FlushReason::SyncedAll), "synced_all_bytes", "by sync of everything"),
    (WriteReason::Data(FlushReason::Expired), "expired_bytes", "by age (30 s)"),
    (WriteReason::Data(FlushReason::Background), "background_bytes", "by too many dirty pages"),
    (WriteReason::Data(FlushReason::Replacing), "replacing_bytes", "as it replaces another file"),
    (WriteReason::Data(FlushReason::Direct), "direct_bytes", "past the page cache (O_DIRECT)"),
    (WriteReason::Data(FlushReason::Early), "early_bytes", "by the bounds of this model"),
    (WriteReason::Journal, "journal_bytes", "as the file system's journal"),
    (WriteReason::Metadata, "metadata_bytes", "as its metadata in place"),
];

fn number(why: WriteReason) -> usize {
    REASONS.iter().position(|(reason, ..)| *reason == why).expect("each reason is listed")
}

/// Bytes by reason, in the order of [`REASONS`].
type ByReason = [u64; REASONS.len()];

struct ReachedFlash {
    writes: FlashWrites,
    /// By program and file.
    charges: HashMap<(u32, u32), ByReason, FixedState>,
    windows: Bins,
    /// By window and program.
    cells: HashMap<(u32, u32), u64, FixedState>,
}

/// Name of the unit of processes whose control group is not known.
const WITHOUT_GROUP: &str = "(none)";

/// Returns the systemd unit that a control group belongs to, the innermost one, or the path where
/// there is none. Slices only group units.
fn unit(path: &str) -> &str {
    let is_unit = |name: &&str| {
        [".service", ".scope", ".socket", ".mount", ".swap"].iter().any(|end| name.ends_with(end))
    };
    path.rsplit('/').find(is_unit).unwrap_or(path)
}

/// The key of a program in rankings: its name, or a number.
fn program_key(ledger: &Ledger, program: u32) -> Result<&str, u32> {
    match program {
        FILE_SYSTEM => Ok(OF_FILE_SYSTEM),
        UNKNOWN => Err(0),
        program => ledger.programs.all()[program as usize].key(),
    }
}

impl ReachedFlash {
    fn new(setup: &Setup<'_>) -> Self {
        Self {
            writes: FlashWrites::new(setup.flusher, setup.metadata),
            charges: HashMap::default(),
            windows: Bins::new(WINDOWS, WINDOW_US),
            cells: HashMap::default(),
        }
    }

    fn charge(&mut self) {
        let Self { writes, charges, windows, cells } = self;
        for Charge { at_us, program, file, bytes, why } in writes.drain() {
            charges.entry((program, file)).or_default()[number(why)] += bytes;
            let window = loop {
                match windows.get(at_us) {
                    Some(window) => break window as u32,
                    None => {
                        windows.join();
                        for ((window, program), bytes) in std::mem::take(cells) {
                            *cells.entry((window / 2, program)).or_default() += bytes;
                        }
                    }
                }
            };
            *cells.entry((window, program)).or_default() += bytes;
        }
    }

    /// The bytes of systemd's units, and of control groups outside units, if the trace tells them.
    fn by_unit(&self, ledger: &Ledger, shared: &Shared, top: usize) -> Option<Table> {
        let groups = ledger.programs.groups();
        if groups.is_empty() {
            return None;
        }
        let unit_of = |program: u32| match program {
            FILE_SYSTEM => OF_FILE_SYSTEM,
            UNKNOWN => WITHOUT_GROUP,
            program => {
                let group = ledger.programs.all()[program as usize].group;
                group.map_or(WITHOUT_GROUP, |group| unit(&groups[group as usize]))
            }
        };
        let units = self.charges.iter().map(|((program, _), n)| (unit_of(*program), with_sum(n)));
        let columns = [&[("unit", "unit or control group")][..], &shared.columns()].concat();
        let mut table = Table::new("units", &columns);
        for unit in Ranking::new(units).top(0, top, Box::from) {
            let values = shared.values(by_reason(&unit.sums));
            table.push([&[unit.name][..], &values].concat());
        }
        Some(table)
    }

    /// The bytes of the programs that are written most, by window.
    fn over_time(&self, ledger: &Ledger, first: &[(Result<&str, u32>, Value)]) -> [Table; 2] {
        let mut windows: BTreeMap<(u64, usize), u64> = BTreeMap::new();
        for ((window, program), bytes) in &self.cells {
            let key = program_key(ledger, *program);
            let rank = first.iter().position(|(known, _)| *known == key).unwrap_or(first.len());
            *windows.entry((u64::from(*window), rank)).or_default() += bytes;
        }
        let mut bins = Table::new("bins", &[("window_us", "")]).only_for(Audience::Programs);
        bins.push([Value::TimeUs(self.windows.width())]);
        let columns = [("at_us", ""), ("program", ""), ("reached_bytes", "")];
        let mut table = Table::new("program_windows", &columns).only_for(Audience::Programs);
        for ((window, rank), bytes) in windows {
            let name = first.get(rank).map_or(Value::Name("(others)".into()), |(_, n)| n.clone());
            let at_us = Value::TimeUs(window * self.windows.width());
            table.push([at_us, name, Value::Bytes(bytes)]);
        }
        [bins, table]
    }
}

fn sum(bytes: &ByReason) -> u64 {
    bytes.iter().sum()
}

/// Bytes of the journal and of metadata.
fn of_file_system(bytes: &ByReason) -> u64 {
    bytes[number(WriteReason::Journal)] + bytes[number(WriteReason::Metadata)]
}

/// Columns and values that all rankings share, behind the name.
struct Shared {
    all: u64,
    has_metadata: bool,
}

impl Shared {
    fn columns(&self) -> Vec<(&'static str, &'static str)> {
        let file_system =
            self.has_metadata.then_some(("file_system_bytes", "of it journal, metadata"));
        let by_fsync = if self.has_metadata { "data by fsync" } else { "by fsync" };
        [("reached_bytes", "reaches flash"), ("reached_bytes_share", "")]
            .into_iter()
            .chain(file_system)
            .chain([("synced_share", by_fsync)])
            .collect()
    }

    fn values(&self, bytes: &ByReason) -> Vec<Value> {
        let (reached, file_system) = (sum(bytes), of_file_system(bytes));
        let synced = bytes[number(WriteReason::Data(FlushReason::Synced))];
        [Value::Bytes(reached), Value::share(reached, self.all)]
            .into_iter()
            .chain(self.has_metadata.then_some(Value::Bytes(file_system)))
            .chain([Value::share(synced, reached - file_system)])
            .collect()
    }
}

/// Sums for a [`Ranking`]: all bytes, then those of each reason.
fn with_sum(bytes: &ByReason) -> [u64; 1 + REASONS.len()] {
    let mut sums = [0; 1 + REASONS.len()];
    sums[0] = sum(bytes);
    sums[1..].copy_from_slice(bytes);
    sums
}

fn by_reason(sums: &[u64; 1 + REASONS.len()]) -> &ByReason {
    sums.last_chunk().expect("one sum is before them")
}

impl Characterisation for ReachedFlash {
    fn event(&mut self, event: &Event, seen: &Seen<'_>) {
        self.writes.event(event, seen.program, seen.ledger);
        self.charge();
    }

    fn held_bytes(&self) -> usize {
        self.writes.held_bytes() + self.charges.allocation_size() + self.cells.allocation_size()
    }

    fn finish(&mut self, ledger: &Ledger, top: usize) -> Result<Found, &'static str> {
        self.writes.advance(ledger.end_us, ledger);
        self.charge();
        let mut total = ByReason::default();
        for bytes in self.charges.values() {
            total.iter_mut().zip(bytes).for_each(|(sum, bytes)| *sum += bytes);
        }
        let all = sum(&total);
        if all == 0 && self.writes.dirty_pages() == 0 {
            return Err("nothing is written");
        }
        let key = |program: u32| program_key(ledger, program);
        let mut figures = vec![Figure::new("reached_bytes", "reaches flash", Value::Bytes(all))];
        for ((.., id, label), bytes) in REASONS.iter().zip(total).filter(|(_, bytes)| *bytes > 0) {
            figures.push(Figure::new(id, label, Value::Bytes(bytes)).share(bytes, all));
        }
        let dirty = self.writes.dirty_pages() * PAGE_BYTES;
        figures.push(Figure::new("dirty_bytes", "still dirty at the end", Value::Bytes(dirty)));

        let programs = Ranking::new(self.charges.iter().map(|((p, _), n)| (key(*p), with_sum(n))));
        let shared = Shared { all, has_metadata: self.writes.has_metadata() };
        let columns = [&[("program", "program")][..], &shared.columns()].concat();
        let mut by_program = Table::new("programs", &columns);
        for program in programs.top(0, top, program_name) {
            let values = shared.values(by_reason(&program.sums));
            by_program.push([&[program.name][..], &values].concat());
        }
        let first: Vec<_> = programs
            .top(0, PROGRAMS, program_name)
            .into_iter()
            .map(|program| (program.key, program.name))
            .collect();

        let file_key = |file: u32| match file {
            UNKNOWN | FILE_SYSTEM => Err(file),
            file => ranking::key(file as usize, ledger.files.get(file)),
        };
        let files =
            Ranking::new(self.charges.iter().map(|((_, f), n)| (file_key(*f), with_sum(n))));
        let mut syncs: HashMap<Key, u64, FixedState> = HashMap::default();
        for (n, file) in ledger.files.all().iter().enumerate().filter(|(_, f)| f.state.syncs > 0) {
            *syncs.entry(ranking::key(n, file)).or_default() += file.state.syncs;
        }
        // The program that most of a file's pages are charged to.
        let writer = |wanted: Key| {
            let of_file = self.charges.iter().filter(|((_, file), _)| file_key(*file) == wanted);
            let by = Ranking::new(of_file.map(|((p, _), n)| (key(*p), [sum(n)])));
            by.top(0, 1, program_name).pop().map_or(Value::Absent, |program| program.name)
        };
        let name = |key: Key| match key {
            Err(UNKNOWN) => "(unknown)".into(),
            Err(FILE_SYSTEM) => OF_FILE_SYSTEM.into(),
            key => ranking::file_name(ledger)(key),
        };
        let columns = [
            &[("name", "file"), ("program", "program")][..],
            &shared.columns(),
            &[("syncs", "fsyncs")],
        ]
        .concat();
        let mut by_file = Table::new("files", &columns);
        for file in files.top(0, top, name) {
            let values = shared.values(by_reason(&file.sums));
            let syncs = Value::Count(syncs.get(&file.key).copied().unwrap_or_default());
            by_file.push([&[file.name, writer(file.key)][..], &values, &[syncs]].concat());
        }

        let named = self.charges.iter().filter(|((_, file), _)| *file < FILE_SYSTEM);
        let directories = Ranking::new(named.filter_map(|((_, file), pages)| {
            let name = ledger.files.name(ledger.files.get(*file))?;
            Some((directory(name), with_sum(pages)))
        }));
        let columns = [&[("name", "directory")][..], &shared.columns()].concat();
        let mut by_directory = Table::new("directories", &columns);
        for directory in directories.top(0, top, Box::from) {
            let values = shared.values(by_reason(&directory.sums));
            by_directory.push([&[directory.name][..], &values].concat());
        }

        let units = self.by_unit(ledger, &shared, top);
        let sentence = sentence(&by_file, &by_directory);
        let note = match shared.has_metadata {
            true => {
                "File data as Linux writes it back, and the journal and metadata of a modelled \
                 file system. A page is charged to the program that made it dirty, and pages of \
                 journal and metadata to the files of their commit."
            }
            false => {
                "File data as Linux writes it back; the journal and the metadata of the file \
                 system come on top (--metadata ext4). A page is charged to the program that made \
                 it dirty."
            }
        };
        let [bins, over_time] = self.over_time(ledger, &first);
        let found =
            Found { sentence, ..Found::default() }.figures(figures).note(note).table(by_program);
        let found = units.into_iter().fold(found, Found::table).table(by_file);
        let found = if by_directory.rows.is_empty() { found } else { found.table(by_directory) };
        Ok(found.table(bins).table(over_time))
    }
}

/// Share of the first file below which the first directory says more.
const LARGE_FILE: f64 = 0.1;

/// Returns a sentence on the first file: `41 % of what reaches flash goes to History-journal of
/// chromium, by 2,300 fsyncs.` Where no file is large, it is one on the first directory.
fn sentence(by_file: &Table, by_directory: &Table) -> Option<Vec<Piece>> {
    let [Value::Name(file), Value::Name(program), _, share, .., synced, syncs] =
        by_file.rows.first()?.as_slice()
    else {
        return None;
    };
    let small = !matches!(share, Value::Share(LARGE_FILE..));
    if small
        && let Some([Value::Name(name), _, share, ..]) = by_directory.rows.first().map(|r| &**r)
    {
        let pieces = [share.clone().into(), "of what reaches flash goes to files in".into()];
        return Some([&pieces[..], &[format!("{name}.").into()]].concat());
    }
    let file = file.rsplit('/').next().unwrap_or(file);
    let by_syncs = matches!((synced, syncs), (Value::Share(0.5..), Value::Count(1..)));
    let of = if **program == *UNKNOWN_PROGRAM { String::new() } else { format!(" of {program}") };
    let end = if by_syncs { ", by" } else { "." };
    let mut pieces: Vec<Piece> = vec![
        share.clone().into(),
        "of what reaches flash goes to".into(),
        format!("{file}{of}{end}").into(),
    ];
    if by_syncs {
        let noun = if *syncs == Value::Count(1) { "fsync." } else { "fsyncs." };
        pieces.extend([syncs.clone().into(), noun.into()]);
    }
    Some(pieces)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Describer, testing::*},
        *,
    };
    use flashsift_files::flusher::FlusherSettings;

    fn event(
        pid: u32,
        second: u64,
        action: flashsift_events::event::Action<'static>,
    ) -> Event<'static> {
        Event { at_us: second * 1_000_000, pid, tid: pid, action }
    }

    // Promises: Describe 20.
    #[test]
    fn pages_are_charged_to_programs_files_and_reasons() {
        const PAGE: u64 = PAGE_BYTES;
        let events = [
            event(1, 0, process("app")),
            event(2, 0, process("logger")),
            event(1, 0, create_named(1, "/app/db-journal")),
            event(2, 0, create_named(2, "/var/log")),
            event(1, 1, write(1, 0, 3 * PAGE)),
            event(1, 1, sync(1)),
            event(1, 2, write(1, 0, PAGE)),
            event(1, 2, sync(1)),
            event(1, 2, gone(1)),
            // The same name again, as after each transaction.
            event(1, 3, create_named(3, "/app/db-journal")),
            event(1, 3, write(3, 0, PAGE)),
            event(1, 3, sync(3)),
            // Written once, by age.
            event(2, 4, write(2, 0, PAGE / 2)),
            event(2, 5, write(2, PAGE / 2, PAGE / 2)),
            // Deleted before its age.
            event(2, 6, write(4, 0, 9 * PAGE)),
            event(2, 7, gone(4)),
            event(2, 60, write(2, PAGE, 1)),
        ];
        let found = describe("reached_flash", &events);
        assert_eq!(figure(&found, "reached_bytes"), bytes(6 * PAGE));
        assert_eq!(figure(&found, "synced_bytes"), bytes(5 * PAGE));
        assert_eq!(figure(&found, "expired_bytes"), bytes(PAGE));
        assert_eq!(figure(&found, "dirty_bytes"), bytes(PAGE));
        assert_eq!(column(&found, "programs", "program"), [name("app"), name("logger")]);
        assert_eq!(column(&found, "programs", "reached_bytes"), [5 * PAGE, PAGE].map(bytes));
        assert_eq!(column(&found, "files", "name"), [name("/app/db-journal"), name("/var/log")]);
        assert_eq!(column(&found, "files", "program"), [name("app"), name("logger")]);
        assert_eq!(column(&found, "files", "syncs"), counts([3, 0]));
        assert_eq!(column(&found, "directories", "name"), [name("/app"), name("/var")]);
        let sums = column(&found, "program_windows", "reached_bytes");
        let sum: f64 = sums.iter().filter_map(Value::number).sum();
        assert_eq!(sum, (6 * PAGE) as f64);
        let sentence: Vec<_> = found.sentence.unwrap();
        assert_eq!(sentence[2], "db-journal of app, by".to_owned().into());
        assert_eq!(sentence[3], Value::Count(3).into());
    }

    /// A file that one fsync forced out was written "by 1 fsyncs".
    #[test]
    fn one_fsync_is_in_the_singular() {
        let events = [
            event(1, 0, process("app")),
            event(1, 0, create_named(1, "/app/db")),
            event(1, 1, write(1, 0, PAGE_BYTES)),
            event(1, 1, sync(1)),
            event(1, 60, read(1, 0, 1)),
        ];
        let sentence = describe("reached_flash", &events).sentence.unwrap();
        assert_eq!(sentence[3], Value::Count(1).into());
        assert_eq!(sentence[4], "fsync.".into());
    }

    #[test]
    fn where_no_file_is_large_the_sentence_names_a_directory() {
        let mut events: Vec<_> = (0..20).map(|n| at(0, bind(n, &format!("/cache/{n}")))).collect();
        events.extend((0..20).map(|n| at(0, write(n, 0, 1))));
        events.extend([at(0, bind(20, "/other/file")), at(0, write(20, 0, PAGE_BYTES))]);
        events.push(at(60, read(0, 0, 1)));
        let found = describe("reached_flash", &events);
        let sentence = found.sentence.clone().unwrap();
        assert_eq!(sentence[2], "/cache.".to_owned().into());
    }

    fn with_metadata(events: &[Event<'static>]) -> Found {
        let metadata = flashsift_pages::metadata::Selection::parse("ext4").unwrap();
        let mut describer = Describer::new(about(), u64::MAX).with_metadata(Some(metadata));
        describer.extend(events).unwrap();
        let sections = describer.finish(10).sections;
        sections.into_iter().find(|section| section.spec.name == SPEC.name).unwrap().found.unwrap()
    }

    fn number_of(value: &Value) -> u64 {
        value.number().unwrap() as u64
    }

    /// A program appends to its log and syncs it; another one writes once.
    // Promises: Describe 24.
    #[test]
    fn journal_and_metadata_are_charged_to_the_files_of_their_commit() {
        const PAGE: u64 = PAGE_BYTES;
        let mut events = vec![
            event(1, 0, process("logger")),
            event(2, 0, process("app")),
            event(1, 0, create_named(1, "/var/log")),
            event(2, 0, create_named(2, "/var/other")),
        ];
        for n in 0..10 {
            events.extend([event(1, 1 + n, write(1, n * PAGE, PAGE)), event(1, 1 + n, sync(1))]);
        }
        events.extend([event(2, 20, write(2, 0, PAGE)), event(1, 100, read(1, 0, 1))]);
        let found = with_metadata(&events);
        // Ten commits of at least an inode, a bitmap of blocks and a group descriptor, each with a
        // descriptor block and a commit block.
        let journal = number_of(&figure(&found, "journal_bytes"));
        assert!((10 * 5 * PAGE..10 * 9 * PAGE).contains(&journal), "{journal}");
        let in_place = number_of(&figure(&found, "metadata_bytes"));
        assert!((3 * PAGE..20 * PAGE).contains(&in_place), "{in_place}");
        let reached = number_of(&figure(&found, "reached_bytes"));
        assert_eq!(reached, 11 * PAGE + journal + in_place);
        let of_files: u64 =
            column(&found, "files", "file_system_bytes").iter().map(number_of).sum();
        assert_eq!(of_files, journal + in_place, "each page has a file");
        assert_eq!(column(&found, "programs", "program"), [name("logger"), name("app")]);
        let of_programs = column(&found, "programs", "file_system_bytes");
        let [logger, app] = [&of_programs[0], &of_programs[1]].map(number_of);
        assert_eq!(logger + app, journal + in_place);
        assert!(logger > 5 * app, "{logger} {app}");
        // Of the data, not of the journal.
        assert_eq!(column(&found, "files", "synced_share")[0].number(), Some(1.0));
        let windows = column(&found, "program_windows", "reached_bytes");
        assert_eq!(windows.iter().map(number_of).sum::<u64>(), reached);
        assert_eq!(found.sentence.unwrap()[2], "log of logger, by".to_owned().into());
    }

    /// A file that replaces another one by its name is written at once, as ext4 does.
    // Promises: Describe 24.
    #[test]
    fn a_file_that_replaces_another_one_is_written_at_once() {
        let events = [
            at(0, create_named(1, "/settings")),
            at(1, create_named(2, "/settings.new")),
            at(1, write(2, 0, 1)),
            at(1, unbind(1, "/settings")),
            at(1, rename(2, "/settings.new", "/settings")),
            at(1, gone(1)),
            at(2, gone(2)),
        ];
        let found = with_metadata(&events);
        assert_eq!(figure(&found, "replacing_bytes"), bytes(PAGE_BYTES));
    }

    // Promises: Describe 26.
    #[test]
    fn units_are_listed_where_the_trace_tells_control_groups() {
        let group = |pid, path: &str| {
            let path = flashsift_events::event::MaybeOwned::owned_str(path);
            event(pid, 0, flashsift_events::event::Action::ControlGroup { path })
        };
        let writes = (1..=4).map(|pid| event(pid, 1, write(u64::from(pid), 0, PAGE_BYTES)));
        let mut events: Vec<_> = writes.collect();
        events.push(event(1, 50, read(1, 0, 1)));
        assert!(describe("reached_flash", &events).table_named("units").is_none());
        events.extend([
            group(1, "/system.slice/cron.service"),
            group(2, "/user.slice/user-1000.slice/user@1000.service/app.slice/app-x.scope"),
            group(3, "/machine/guest"),
        ]);
        // It has changed its program since, and is in the same group.
        events.extend([
            event(1, 51, process("other")),
            event(1, 51, write(9, 0, PAGE_BYTES)),
            event(1, 99, read(9, 0, 1)),
        ]);
        let found = describe("reached_flash", &events);
        let units = ["cron.service", "(none)", "/machine/guest", "app-x.scope"].map(name);
        assert_eq!(column(&found, "units", "unit"), units);
        let sizes = [2, 1, 1, 1].map(|pages| bytes(pages * PAGE_BYTES));
        assert_eq!(column(&found, "units", "reached_bytes"), sizes);
    }

    /// The times of a machine that writes back after three seconds.
    // Promises: Describe 20.
    #[test]
    fn the_settings_of_a_machine_count() {
        let events = [at(0, write(1, 0, 1)), at(4, write(1, 0, 1)), at(8, write(1, 0, 1))];
        let mut found = Vec::new();
        for expire_us in [30_000_000, 3_000_000] {
            let settings =
                FlusherSettings { expire_us, tick_us: 1_000_000, ..FlusherSettings::default() };
            let mut describer = Describer::new(about(), u64::MAX).with_flusher(settings);
            describer.extend(&events).unwrap();
            let sections = describer.finish(1).sections;
            let section = sections.into_iter().find(|section| section.spec.name == SPEC.name);
            found.push(figure(&section.unwrap().found.unwrap(), "reached_bytes"));
        }
        assert_eq!(found, [bytes(0), bytes(2 * PAGE_BYTES)]);
    }
}
