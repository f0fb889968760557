//! Share of SQLite in the traffic: Lim & Bahn (IEEE Access 2021), Fig. 3.
//!
//! SQLite is recognised by names. A database `X` has the companions `X-journal`, `X-wal` and
//! `X-shm`, and files with such names are SQLite's. `X` is a database if any of the three names
//! occurs anywhere in the trace, or if it ends in `.db`, `.db3`, `.sqlite`, `.sqlite3` or
//! `.sqlitedb`; so Chromium's `Cookies` is found, which has no extension. `etilqs_…` are temporary
//! files of SQLite. A file is classified by its last name; files without a name are counted
//! separately.

use super::{
    Audience, Characterisation, CharacterisationSpec, Figure, Found, Ledger, Need, Table, Value,
    ledger::{File, NO_NAMES, Names, Traffic, UNNAMED},
};

pub(super) const SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "sqlite",
    title: "SQLite's share",
    paper: "Lim & Bahn, hybrid flush: Fig. 3",
    paper_saw: "The top 100 blocks in the popularity ranking are mostly involved in SQLite, except for Farmstory, \
                which does not use it.",
    opens: false,
    needs: &[Need::Files],
    build: |_| Box::new(Sqlite),
};

struct Sqlite;

#[derive(Clone, Copy, PartialEq, Eq)]
enum FileKind {
    Other,
    Database,
    Journal,
    Wal,
    Shm,
    Temporary,
}

const SQLITES: [(FileKind, &str, &str); 5] = [
    (FileKind::Database, "database", "databases"),
    (FileKind::Journal, "journal", "-journal"),
    (FileKind::Wal, "wal", "-wal"),
    (FileKind::Shm, "shm", "-shm"),
    (FileKind::Temporary, "temporary", "temporary"),
];
const COMPANIONS: [(FileKind, &str); 3] =
    [(FileKind::Journal, "-journal"), (FileKind::Wal, "-wal"), (FileKind::Shm, "-shm")];
const ENDINGS: [&str; 5] = ["db", "db3", "sqlite", "sqlite3", "sqlitedb"];

/// FileKind of each name of the trace.
fn kinds(names: &Names) -> Vec<FileKind> {
    let mut kinds: Vec<FileKind> = names.all().map(by_itself).collect();
    for name in names.all() {
        let base = COMPANIONS.iter().find_map(|(_, ending)| name.strip_suffix(ending));
        if let Some(base) = base.and_then(|base| names.find(base))
            && kinds[base as usize] == FileKind::Other
        {
            kinds[base as usize] = FileKind::Database;
        }
    }
    kinds
}

fn by_itself(name: &str) -> FileKind {
    let last = name.rsplit_once('/').map_or(name, |(_, last)| last);
    if let Some((kind, _)) =
        COMPANIONS.iter().find(|(_, ending)| last.len() > ending.len() && last.ends_with(ending))
    {
        return *kind;
    }
    let ending = last.rsplit_once('.').map(|(_, ending)| ending);
    if ending.is_some_and(|ending| ENDINGS.iter().any(|known| known.eq_ignore_ascii_case(ending))) {
        FileKind::Database
    } else if last.starts_with("etilqs_") {
        FileKind::Temporary
    } else {
        FileKind::Other
    }
}

/// Returns for each file whether it is SQLite's.
pub(super) fn of_sqlite(ledger: &Ledger) -> Vec<bool> {
    let by_name = kinds(ledger.files.names());
    let is = |file: &File| file.name.is_some_and(|name| by_name[name as usize] != FileKind::Other);
    ledger.files.all().iter().map(is).collect()
}

/// Number of popular pages that are examined.
const POPULAR: usize = 100;

impl Characterisation for Sqlite {
    fn finish(&mut self, ledger: &Ledger, _: usize) -> Result<Found, &'static str> {
        if !ledger.files.any_named() {
            return Err(NO_NAMES);
        }
        let by_name = kinds(ledger.files.names());
        let kind = |file: &File| file.name.map_or(FileKind::Other, |name| by_name[name as usize]);
        #[derive(Clone, Copy, Default)]
        struct Sum {
            files: u64,
            syncs: u64,
            reads: Traffic,
            writes: Traffic,
        }
        let sum = |wanted: &dyn Fn(&File) -> bool| {
            let mut sum = Sum::default();
            for file in ledger.files.all().iter().filter(|file| wanted(file)) {
                sum.files += u64::from(file.active_us.is_some());
                sum.syncs += file.syncs;
                sum.reads.merge(file.reads);
                sum.writes.merge(file.writes);
            }
            sum
        };
        let all = sum(&|_| true);
        let columns = [
            ("kind", ""),
            ("files", "files"),
            ("page_accesses", "page accesses"),
            ("page_accesses_share", ""),
            ("written_bytes", "written"),
            ("written_bytes_share", ""),
            ("syncs", "syncs"),
            ("syncs_share", ""),
        ];
        let mut table = Table::new("kinds", &columns);
        let mut row = |id, says, sum: Sum| {
            let (accesses, of) = (sum.reads.pages + sum.writes.pages, all.reads.pages + all.writes.pages);
            table.push([
                Value::label(id, says),
                Value::Count(sum.files),
                Value::Count(accesses),
                Value::share(accesses, of),
                Value::Bytes(sum.writes.bytes),
                Value::share(sum.writes.bytes, all.writes.bytes),
                Value::Count(sum.syncs),
                Value::share(sum.syncs, all.syncs),
            ]);
        };
        for (wanted, id, says) in SQLITES {
            let sum = sum(&|file| kind(file) == wanted);
            if sum.files > 0 {
                row(id, says, sum);
            }
        }
        row("sqlite", "SQLite, all", sum(&|file| kind(file) != FileKind::Other));
        let unnamed = sum(&|file| file.name.is_none());
        if unnamed.files > 0 {
            row(UNNAMED.0, UNNAMED.1, unnamed);
        }

        // The most popular pages, ties in order of first access.
        let pages = ledger.pages.all();
        let mut popular: Vec<u32> = (0..pages.len() as u32).collect();
        let key = |n: &u32| (std::cmp::Reverse(pages[*n as usize].accesses()), *n);
        if popular.len() > POPULAR {
            popular.select_nth_unstable_by_key(POPULAR, key);
            popular.truncate(POPULAR);
        }
        popular.sort_unstable_by_key(key);
        let mut ranks = Table::new("popular_pages", &[("rank", ""), ("accesses", ""), ("kind", "")])
            .only_for(Audience::Programs);
        let mut sqlite = 0;
        for (rank, page) in (1..).zip(&popular) {
            let page = pages[*page as usize];
            let file = ledger.files.find(page.file).map(|file| ledger.files.get(file));
            let kind = file.map_or(FileKind::Other, kind);
            let id = SQLITES.iter().find(|(known, ..)| *known == kind).map_or("other", |(_, id, _)| id);
            sqlite += u64::from(kind != FileKind::Other);
            ranks.push([Value::Count(rank), Value::Count(page.accesses()), Value::label(id, id)]);
        }
        let label = "of the 100 most popular pages";
        let figure = Figure::new("popular_pages_of_sqlite", label, Value::Count(sqlite))
            .of(sqlite, popular.len() as u64);
        let of_sqlite = sum(&|file| kind(file) != FileKind::Other);
        let accesses = |sum: Sum| sum.reads.pages + sum.writes.pages;
        let sentence = [
            Value::Count(sqlite).into(),
            "of the".into(),
            Value::Count(popular.len() as u64).into(),
            "most popular pages are SQLite's; its files take".into(),
            Value::share(accesses(of_sqlite), accesses(all)).into(),
            "of the page accesses.".into(),
        ];
        Ok(Found::default().sentence(sentence).table(table).table(ranks).figures(vec![figure]))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn names_tell_what_is_sqlites() {
        for (name, kind) in [
            ("/data/app/messages.db", FileKind::Database),
            ("messages.SQLite3", FileKind::Database),
            ("/data/app/Cookies", FileKind::Other),
            ("/data/app/Cookies-journal", FileKind::Journal),
            ("/data/app/x.db-wal", FileKind::Wal),
            ("/data/app/x.db-shm", FileKind::Shm),
            ("/data/app/-journal", FileKind::Other),
            ("/var/tmp/etilqs_0a1b", FileKind::Temporary),
            ("/data/db/photo.jpg", FileKind::Other),
            ("/data/adb", FileKind::Other),
            ("", FileKind::Other),
        ] {
            assert!(by_itself(name) == kind, "{name}");
        }
    }

    #[test]
    fn a_database_without_an_ending_is_known_by_its_journal() {
        let events = [
            at(0, bind(1, "/p/Cookies")),
            at(0, bind(2, "/p/History")),
            at(0, bind(3, "/p/Cookies-journal")),
            at(0, bind(4, "/p/tmp")),
            at(0, read(1, 0, 8192)),
            at(0, write(2, 0, 10)),
            at(0, write(3, 0, 30)),
            at(0, sync(3)),
            at(0, sync(2)),
            at(0, gone(3)),
            // Renamed into a database.
            at(0, write(4, 0, 10)),
            at(0, rename(4, "/p/tmp", "/p/new.db")),
            at(0, write(5, 0, 50)), // never named
        ];
        let found = describe("sqlite", &events);
        assert_eq!(column(&found, "kinds", "files"), counts([2, 1, 3, 1]));
        assert_eq!(column(&found, "kinds", "kind")[2], Value::label("sqlite", "SQLite, all"));
        assert_eq!(column(&found, "kinds", "page_accesses"), counts([3, 1, 4, 1]));
        assert_eq!(column(&found, "kinds", "written_bytes_share"), [0.1, 0.3, 0.4, 0.5].map(Value::Share));
        assert_eq!(column(&found, "kinds", "syncs"), counts([0, 1, 1, 0]));
        assert_eq!(figure(&found, "popular_pages_of_sqlite"), Value::Count(4));
        assert_eq!(describe_as(about(), "sqlite", &events[4..6]), Err("no file names"));
    }
}
