//! File data that reaches flash, by program, file, directory and reason.
//!
//! Requests of applications are not what wears flash: pages that are overwritten or deleted soon
//! enough are never written, and an fsync writes a page each time. So the events go through the
//! model of Linux's write-back ([`Flusher`]) with the kernel's own times, and each page that it
//! writes is charged to the program that made the page dirty and to its file. The journal and the
//! metadata of the file system are not counted.
//!
//! `program_windows` holds the bytes of the first programs in each of at most [`WINDOWS`] windows
//! of equal length: a 64th of a second, doubled as often as necessary.

use super::{
    Audience, Characterisation, CharacterisationSpec, Figure, Found, Ledger, Need, Piece, Seen,
    Setup, Table, Value,
    bins::Bins,
    programs::{UNKNOWN_PROGRAM, program_name},
    ranking::{self, Key, Ranking},
    top_directories::directory,
};
use crate::{
    event::Event,
    page::PAGE_BYTES,
    writeback::flusher::{FlushReason, Flusher, Reached},
};
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
/// Number of a file that the ledger does not know.
const UNKNOWN: u32 = u32::MAX;

/// Reasons in the order of the table, with their names for programs and people.
const REASONS: [(FlushReason, &str, &str); 6] = [
    (FlushReason::Synced, "synced_bytes", "by fsync"),
    (FlushReason::SyncedAll, "synced_all_bytes", "by sync of everything"),
    (FlushReason::Expired, "expired_bytes", "by age (30 s)"),
    (FlushReason::Background, "background_bytes", "by too many dirty pages"),
    (FlushReason::Direct, "direct_bytes", "past the page cache (O_DIRECT)"),
    (FlushReason::Early, "early_bytes", "by the bounds of this model"),
];

fn number(why: FlushReason) -> usize {
    REASONS.iter().position(|(reason, ..)| *reason == why).expect("each reason is listed")
}

/// Pages by reason, in the order of [`REASONS`].
type Pages = [u64; REASONS.len()];

struct ReachedFlash {
    flusher: Flusher,
    /// By program and file.
    charges: HashMap<(u32, u32), Pages, FixedState>,
    windows: Bins,
    /// By window and program.
    cells: HashMap<(u32, u32), u64, FixedState>,
}

impl ReachedFlash {
    fn new(setup: &Setup<'_>) -> Self {
        Self {
            flusher: Flusher::new(setup.flusher).with_log(),
            charges: HashMap::default(),
            windows: Bins::new(WINDOWS, WINDOW_US),
            cells: HashMap::default(),
        }
    }

    fn charge(&mut self, ledger: &Ledger) {
        let Self { flusher, charges, windows, cells, .. } = self;
        for Reached { at_us, file, dirtier, pages, why } in flusher.drain_log() {
            let file = ledger.files.find(file).unwrap_or(UNKNOWN);
            charges.entry((dirtier, file)).or_default()[number(why)] += pages;
            let window = loop {
                match windows.of(at_us) {
                    Some(window) => break window as u32,
                    None => {
                        windows.join();
                        for ((window, program), pages) in std::mem::take(cells) {
                            *cells.entry((window / 2, program)).or_default() += pages;
                        }
                    }
                }
            };
            *cells.entry((window, dirtier)).or_default() += pages;
        }
    }

    /// The pages of the programs that are written most, by window.
    fn over_time(&self, ledger: &Ledger, first: &[(Result<&str, u32>, Value)]) -> [Table; 2] {
        let mut windows: BTreeMap<(u64, usize), u64> = BTreeMap::new();
        for ((window, program), pages) in &self.cells {
            let key = ledger.programs.all()[*program as usize].key();
            let rank = first.iter().position(|(known, _)| *known == key).unwrap_or(first.len());
            *windows.entry((u64::from(*window), rank)).or_default() += pages;
        }
        let mut bins = Table::new("bins", &[("window_us", "")]).only_for(Audience::Programs);
        bins.push([Value::TimeUs(self.windows.width())]);
        let columns = [("at_us", ""), ("program", ""), ("reached_bytes", "")];
        let mut table = Table::new("program_windows", &columns).only_for(Audience::Programs);
        for ((window, rank), pages) in windows {
            let name = first.get(rank).map_or(Value::Name("(others)".into()), |(_, n)| n.clone());
            let at_us = Value::TimeUs(window * self.windows.width());
            table.push([at_us, name, Value::Bytes(pages * PAGE_BYTES)]);
        }
        [bins, table]
    }
}

fn sum(pages: &Pages) -> u64 {
    pages.iter().sum()
}

/// Columns and values that all rankings share, behind the name.
const COLUMNS: [(&str, &str); 3] =
    [("reached_bytes", "reaches flash"), ("reached_bytes_share", ""), ("synced_share", "by fsync")];

fn values(pages: &Pages, all: u64) -> [Value; 3] {
    let reached = sum(pages);
    let synced = pages[number(FlushReason::Synced)];
    let bytes = Value::Bytes(reached * PAGE_BYTES);
    [bytes, Value::share(reached, all), Value::share(synced, reached)]
}

/// Sums for a [`Ranking`]: all pages, then those of each reason.
fn with_sum(pages: &Pages) -> [u64; 1 + REASONS.len()] {
    let mut sums = [0; 1 + REASONS.len()];
    sums[0] = sum(pages);
    sums[1..].copy_from_slice(pages);
    sums
}

fn by_reason(sums: &[u64; 1 + REASONS.len()]) -> &Pages {
    sums.last_chunk().expect("one sum is before them")
}

impl Characterisation for ReachedFlash {
    fn event(&mut self, event: &Event, seen: &Seen<'_>) {
        // Only who writes is charged.
        self.flusher.handle_of(event, seen.program.unwrap_or_default());
        self.charge(seen.ledger);
    }

    fn held_bytes(&self) -> usize {
        self.flusher.held_bytes() + self.charges.allocation_size() + self.cells.allocation_size()
    }

    fn finish(&mut self, ledger: &Ledger, top: usize) -> Result<Found, &'static str> {
        self.flusher.advance(ledger.end_us);
        self.charge(ledger);
        let mut total = Pages::default();
        for pages in self.charges.values() {
            total.iter_mut().zip(pages).for_each(|(sum, pages)| *sum += pages);
        }
        let all = sum(&total);
        if all == 0 && self.flusher.dirty_pages() == 0 {
            return Err("nothing is written");
        }
        let key = |program: u32| ledger.programs.all()[program as usize].key();
        let mut figures =
            vec![Figure::new("reached_bytes", "reaches flash", Value::Bytes(all * PAGE_BYTES))];
        for ((.., id, label), pages) in REASONS.iter().zip(total).filter(|(_, pages)| *pages > 0) {
            figures.push(Figure::new(id, label, Value::Bytes(pages * PAGE_BYTES)).of(pages, all));
        }
        let dirty = self.flusher.dirty_pages() * PAGE_BYTES;
        figures.push(Figure::new("dirty_bytes", "still dirty at the end", Value::Bytes(dirty)));

        let programs = Ranking::new(self.charges.iter().map(|((p, _), n)| (key(*p), with_sum(n))));
        let columns = [&[("program", "program")][..], &COLUMNS].concat();
        let mut by_program = Table::new("programs", &columns);
        for program in programs.top(0, top, program_name) {
            let values = values(by_reason(&program.sums), all);
            by_program.push([&[program.name][..], &values].concat());
        }
        let first: Vec<_> = programs
            .top(0, PROGRAMS, program_name)
            .into_iter()
            .map(|program| (program.key, program.name))
            .collect();

        let file_key = |file: u32| match file {
            UNKNOWN => Err(UNKNOWN),
            file => ranking::key(file as usize, ledger.files.get(file)),
        };
        let files =
            Ranking::new(self.charges.iter().map(|((_, f), n)| (file_key(*f), with_sum(n))));
        let mut syncs: HashMap<Key, u64, FixedState> = HashMap::default();
        for (n, file) in ledger.files.all().iter().enumerate().filter(|(_, f)| f.syncs > 0) {
            *syncs.entry(ranking::key(n, file)).or_default() += file.syncs;
        }
        // The program that most of a file's pages are charged to.
        let writer = |wanted: Key| {
            let of_file = self.charges.iter().filter(|((_, file), _)| file_key(*file) == wanted);
            let by = Ranking::new(of_file.map(|((p, _), n)| (key(*p), [sum(n)])));
            by.top(0, 1, program_name).pop().map_or(Value::Absent, |program| program.name)
        };
        let name = |key: Key| match key {
            Err(UNKNOWN) => "(unknown)".into(),
            key => ranking::file_name(ledger)(key),
        };
        let columns =
            [&[("name", "file"), ("program", "program")][..], &COLUMNS, &[("syncs", "fsyncs")]]
                .concat();
        let mut by_file = Table::new("files", &columns);
        for file in files.top(0, top, name) {
            let values = values(by_reason(&file.sums), all);
            let syncs = Value::Count(syncs.get(&file.key).copied().unwrap_or_default());
            by_file.push([&[file.name, writer(file.key)][..], &values, &[syncs]].concat());
        }

        let named = self.charges.iter().filter(|((_, file), _)| *file != UNKNOWN);
        let directories = Ranking::new(named.filter_map(|((_, file), pages)| {
            let name = ledger.files.name(ledger.files.get(*file))?;
            Some((directory(name), with_sum(pages)))
        }));
        let columns = [&[("name", "directory")][..], &COLUMNS].concat();
        let mut by_directory = Table::new("directories", &columns);
        for directory in directories.top(0, top, Box::from) {
            let values = values(by_reason(&directory.sums), all);
            by_directory.push([&[directory.name][..], &values].concat());
        }

        let sentence = sentence(&by_file, &by_directory);
        let [bins, over_time] = self.over_time(ledger, &first);
        let found = Found { sentence, ..Found::default() }
            .figures(figures)
            .note(
                "File data as Linux writes it back; the journal and the metadata of the file \
                 system come on top. A page is charged to the program that made it dirty.",
            )
            .table(by_program)
            .table(by_file);
        let found = if by_directory.rows.is_empty() { found } else { found.table(by_directory) };
        Ok(found.table(bins).table(over_time))
    }
}

/// Share of the first file below which the first directory says more.
const LARGE_FILE: f64 = 0.1;

/// Returns a sentence on the first file: `41 % of what reaches flash goes to History-journal of
/// chromium, by 2,300 fsyncs.` Where no file is large, it is one on the first directory.
fn sentence(by_file: &Table, by_directory: &Table) -> Option<Vec<Piece>> {
    let [Value::Name(file), Value::Name(program), _, share, synced, syncs] =
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
        pieces.extend([syncs.clone().into(), "fsyncs.".into()]);
    }
    Some(pieces)
}

#[cfg(test)]
mod tests {
    use super::{
        super::{Describer, testing::*},
        *,
    };
    use crate::writeback::flusher::FlusherSettings;

    fn of(pid: u32, second: u64, action: crate::event::Action<'static>) -> Event<'static> {
        Event { at_us: second * 1_000_000, pid, tid: pid, action }
    }

    #[test]
    fn pages_are_charged_to_programs_files_and_reasons() {
        const PAGE: u64 = PAGE_BYTES;
        let events = [
            of(1, 0, process("app")),
            of(2, 0, process("logger")),
            of(1, 0, create_named(1, "/app/db-journal")),
            of(2, 0, create_named(2, "/var/log")),
            of(1, 1, write(1, 0, 3 * PAGE)),
            of(1, 1, sync(1)),
            of(1, 2, write(1, 0, PAGE)),
            of(1, 2, sync(1)),
            of(1, 2, gone(1)),
            // The same name again, as after each transaction.
            of(1, 3, create_named(3, "/app/db-journal")),
            of(1, 3, write(3, 0, PAGE)),
            of(1, 3, sync(3)),
            // Written once, by age.
            of(2, 4, write(2, 0, PAGE / 2)),
            of(2, 5, write(2, PAGE / 2, PAGE / 2)),
            // Deleted before its age.
            of(2, 6, write(4, 0, 9 * PAGE)),
            of(2, 7, gone(4)),
            of(2, 60, write(2, PAGE, 1)),
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

    /// The times of a machine that writes back after three seconds.
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
