//! Share of SQLite in the traffic: Lim & Bahn (IEEE Access 2021), Fig. 3.
//!
//! A file is SQLite's where its name says so ([`names::sqlite`]), or where the trace names a file
//! that SQLite keeps beside it: so Chromium's `Cookies` is found, which has no extension. The last
//! name of a file counts; files that were never named stand apart.

use super::{
    Audience, Characterisation, CharacterisationSpec, Figure, Found, Ledger, Need, Table, Value,
    ledger::{File, NO_NAMES, RequestSums, UNNAMED},
};
use flashsift_events::{
    ledger::LedgerNames,
    names::{self, Sqlite},
};

pub(super) const SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "sqlite",
    title: "SQLite's share",
    paper: "Lim & Bahn, hybrid flush: Fig. 3",
    paper_saw: "The top 100 blocks in the popularity ranking are mostly involved in SQLite, except for Farmstory, \
                which does not use it.",
    opens: false,
    needs: &[Need::Files],
    build: |_| Box::new(SqliteShare),
};

struct SqliteShare;

const KINDS: [(Sqlite, &str, &str); 5] = [
    (Sqlite::Database, "database", "databases"),
    (Sqlite::Journal, "journal", "-journal"),
    (Sqlite::Wal, "wal", "-wal"),
    (Sqlite::SharedMemory, "shm", "-shm"),
    (Sqlite::Temporary, "temporary", "temporary"),
];

/// Meaning of each name of the trace.
pub(super) fn kinds(names: &LedgerNames) -> Vec<Option<Sqlite>> {
    let mut kinds: Vec<_> = names.all().map(names::sqlite).collect();
    for name in names.all() {
        if let Some((database, _)) = names::companion(name)
            && let Some(database) = names.find(database)
        {
            kinds[database as usize].get_or_insert(Sqlite::Database);
        }
    }
    kinds
}

/// Which files are SQLite's.
pub(super) fn of_sqlite(ledger: &Ledger) -> Vec<bool> {
    let by_name = kinds(ledger.files.names());
    let is = |file: &File| file.name.is_some_and(|name| by_name[name as usize].is_some());
    ledger.files.all().iter().map(is).collect()
}

/// Number of popular pages that are examined.
const POPULAR: usize = 100;

impl Characterisation for SqliteShare {
    fn finish(&mut self, ledger: &Ledger, _: usize) -> Result<Found, &'static str> {
        if !ledger.any_named() {
            return Err(NO_NAMES);
        }
        let by_name = kinds(ledger.files.names());
        let kind = |file: &File| file.name.and_then(|name| by_name[name as usize]);
        #[derive(Clone, Copy, Default)]
        struct Sum {
            files: u64,
            syncs: u64,
            reads: RequestSums,
            writes: RequestSums,
        }
        let sum = |wanted: &dyn Fn(&File) -> bool| {
            let mut sum = Sum::default();
            for file in ledger.files.all().iter().filter(|file| wanted(file)) {
                sum.files += u64::from(file.state.active_us.is_some());
                sum.syncs += file.state.syncs;
                sum.reads.merge(file.state.reads);
                sum.writes.merge(file.state.writes);
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
        let mut row = |id, label, sum: Sum| {
            let (accesses, of) =
                (sum.reads.pages + sum.writes.pages, all.reads.pages + all.writes.pages);
            table.push([
                Value::label(id, label),
                Value::Count(sum.files),
                Value::Count(accesses),
                Value::share(accesses, of),
                Value::Bytes(sum.writes.bytes),
                Value::share(sum.writes.bytes, all.writes.bytes),
                Value::Count(sum.syncs),
                Value::share(sum.syncs, all.syncs),
            ]);
        };
        for (wanted, id, label) in KINDS {
            let sum = sum(&|file| kind(file) == Some(wanted));
            if sum.files > 0 {
                row(id, label, sum);
            }
        }
        row("sqlite", "SQLite, all", sum(&|file| kind(file).is_some()));
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
        let mut ranks =
            Table::new("popular_pages", &[("rank", ""), ("accesses", ""), ("kind", "")])
                .only_for(Audience::Programs);
        let mut sqlite = 0;
        for (rank, page) in (1..).zip(&popular) {
            let page = pages[*page as usize];
            let file = ledger.files.find(page.file).map(|file| ledger.files.get(file));
            let kind = file.and_then(kind);
            let id = KINDS
                .iter()
                .find(|(known, ..)| Some(*known) == kind)
                .map_or("other", |(_, id, _)| id);
            sqlite += u64::from(kind.is_some());
            ranks.push([Value::Count(rank), Value::Count(page.accesses()), Value::label(id, id)]);
        }
        let label = "of the 100 most popular pages";
        let figure = Figure::new("popular_pages_of_sqlite", label, Value::Count(sqlite))
            .share(sqlite, popular.len() as u64);
        let of_sqlite = sum(&|file| kind(file).is_some());
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

    // Promises: Describe 15.
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
        assert_eq!(
            column(&found, "kinds", "written_bytes_share"),
            [0.1, 0.3, 0.4, 0.5].map(Value::Share)
        );
        assert_eq!(column(&found, "kinds", "syncs"), counts([0, 1, 1, 0]));
        assert_eq!(figure(&found, "popular_pages_of_sqlite"), Value::Count(4));
        assert_eq!(describe_as(about(), "sqlite", &events[4..6]), Err("no file names"));
    }
}
