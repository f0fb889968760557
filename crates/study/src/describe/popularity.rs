//! Accesses to pages by popularity: Lim & Bahn (IEEE Access 2021), Fig. 3, which separates SQLite's
//! pages from others.
//!
//! Pages with the same number of accesses share a row of `ranking`: that number and the number of
//! pages. Numbers of accesses whose first ranks fall into one bin ([`logarithmic`]) share a row,
//! too. Sums are exact. The module `sqlite` decides which pages are SQLite's.

use super::{
    Audience, Characterisation, CharacterisationSpec, Found, Ledger, Table, Value,
    bins::logarithmic, ledger::Page, sqlite,
};
use std::{cmp::Reverse, collections::BTreeMap};

pub(super) const SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "popularity",
    title: "Popularity: accesses to the most accessed pages",
    paper: "Lim & Bahn, hybrid flush: Fig. 3",
    paper_saw: "The top 100 blocks in the popularity ranking are mostly involved in SQLite, except for Farmstory, which does not \
                use it.",
    opens: false,
    needs: &[],
    build: |_| Box::new(Popularity),
};

struct Popularity;

/// Number of popular pages in the sentence, as in the paper.
const TOP: u64 = 100;

/// Pages, and pages of SQLite, for each number of accesses, in descending order.
type Steps = BTreeMap<Reverse<u64>, [u64; 2]>;

/// Accesses to the [`TOP`] most popular pages.
fn on_top(steps: &Steps) -> u64 {
    let mut left = TOP;
    let taken = |(&Reverse(accesses), &[pages, _]): (_, &[u64; 2])| {
        let taken = pages.min(left);
        left -= taken;
        taken * accesses
    };
    steps.iter().map(taken).sum()
}

/// Number of pages, and of accesses to them.
#[derive(Clone, Copy, Default)]
struct Sum {
    pages: u64,
    accesses: u64,
}

impl Sum {
    fn add(&mut self, pages: u64, accesses: u64) {
        self.pages += pages;
        self.accesses += accesses;
    }
}

/// A row: the first rank in it, all pages, SQLite's.
struct Row {
    first_rank: u64,
    all: Sum,
    sqlite: Sum,
}

fn rows(steps: &Steps) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut first_rank = 1;
    for (&Reverse(accesses), &[pages, of_sqlite]) in steps {
        if rows.last().is_none_or(|last| logarithmic(last.first_rank) != logarithmic(first_rank)) {
            rows.push(Row { first_rank, all: Sum::default(), sqlite: Sum::default() });
        }
        let row = rows.last_mut().expect("there is one now");
        row.all.add(pages, pages * accesses);
        row.sqlite.add(of_sqlite, of_sqlite * accesses);
        first_rank += pages;
    }
    rows
}

impl Characterisation for Popularity {
    fn finish(&mut self, ledger: &Ledger, _: usize) -> Result<Found, &'static str> {
        let pages = ledger.pages.all();
        let named = ledger.any_named();
        let of_sqlite = sqlite::of_sqlite(ledger);
        let mut steps = Steps::new();
        let mut last = None;
        for page in pages {
            // Consecutive pages are mostly of one file.
            let is_sqlite = match last {
                Some((file, known)) if file == page.file => known,
                _ => {
                    let known =
                        ledger.files.find(page.file).is_some_and(|file| of_sqlite[file as usize]);
                    last = Some((page.file, known));
                    known
                }
            };
            let [all, sqlite] = steps.entry(Reverse(page.accesses())).or_default();
            *all += 1;
            *sqlite += u64::from(is_sqlite);
        }
        let Some((&Reverse(most), _)) = steps.first_key_value() else { return Err("no requests") };
        let accesses: u64 = pages.iter().map(Page::accesses).sum();
        let sentence = [
            "The most popular page is accessed".into(),
            Value::Count(most).into(),
            "times, a page on the mean".into(),
            Value::mean(accesses, pages.len() as u64).into(),
            "times; the".into(),
            Value::Count(TOP.min(pages.len() as u64)).into(),
            "most popular take".into(),
            Value::share(on_top(&steps), accesses).into(),
            "of the page accesses.".into(),
        ];
        let mut columns = vec![("first_rank", ""), ("pages", ""), ("page_accesses", "")];
        if named {
            columns.extend([("sqlite_pages", ""), ("sqlite_page_accesses", "")]);
        }
        let mut table = Table::new("ranking", &columns).only_for(Audience::Programs);
        for Row { first_rank, all, sqlite } in rows(&steps) {
            let row = [first_rank, all.pages, all.accesses, sqlite.pages, sqlite.accesses];
            table.push(row[..columns.len()].iter().copied().map(Value::Count).collect::<Vec<_>>());
        }
        Ok(Found::default().sentence(sentence).table(table))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use proptest::prelude::*;

    // Promises: Describe 10.
    #[test]
    fn pages_of_sqlite_are_counted_separately() {
        let mut events = vec![at(0, bind(1, "/a.db")), at(0, bind(2, "/b"))];
        // Three accesses: a page of the database and one of another file. Two: a page of another
        // file. One: a page of the database.
        for (file, page, times) in [(1, 0, 3), (2, 0, 3), (2, 1, 2), (1, 1, 1)] {
            events.extend((0..times).map(|_| at(0, read(file, page * 4096, 1))));
        }
        let found = describe("popularity", &events);
        assert_eq!(column(&found, "ranking", "first_rank"), counts([1, 3, 4]));
        assert_eq!(column(&found, "ranking", "pages"), counts([2, 1, 1]));
        assert_eq!(column(&found, "ranking", "page_accesses"), counts([6, 2, 1]));
        assert_eq!(column(&found, "ranking", "sqlite_pages"), counts([1, 0, 1]));
        assert_eq!(column(&found, "ranking", "sqlite_page_accesses"), counts([3, 0, 1]));
    }

    proptest! {
        /// Compares with a sorted list of pages.
        // Promises: Describe 10.
        #[test]
        fn agrees_with_a_sorted_list(times in prop::collection::vec((0..2u64, prop_oneof![1..4u64, 1..600u64]), 1..300)) {
            let mut steps = Steps::new();
            for (sqlite, accesses) in &times {
                let [all, of_sqlite] = steps.entry(Reverse(*accesses)).or_default();
                *all += 1;
                *of_sqlite += sqlite;
            }
            let mut list = times.clone();
            list.sort_by_key(|(_, accesses)| Reverse(*accesses));
            let sum = |list: &[(u64, u64)]| list.iter().map(|(_, accesses)| accesses).sum::<u64>();
            prop_assert_eq!(on_top(&steps), sum(&list[..list.len().min(100)]));
            let mut next = 0;
            for row in rows(&steps) {
                prop_assert_eq!(row.first_rank, next as u64 + 1);
                let here = &list[next..next + row.all.pages as usize];
                next += here.len();
                let of_sqlite: Vec<_> = here.iter().filter(|(sqlite, _)| *sqlite == 1).copied().collect();
                prop_assert_eq!(row.all.accesses, sum(here));
                prop_assert_eq!((row.sqlite.pages, row.sqlite.accesses), (of_sqlite.len() as u64, sum(&of_sqlite)));
                if row.first_rank + row.all.pages <= 128 {
                    prop_assert_eq!(here[0].1, here[here.len() - 1].1, "one number of accesses");
                }
            }
            prop_assert_eq!(next, list.len());
        }
    }
}
