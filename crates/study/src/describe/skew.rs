//! Distribution of accesses over pages: Lim & Bahn (IEEE Access 2021), Fig. 4.
//!
//! The population of each row is the pages with at least one access of its kind: reads are compared
//! with the pages that are read, not with all. The top 20 % of n pages are the ⌈n/5⌉ accessed most
//! often. A page is an offset in a file: truncated and written again, it is the same page. (The
//! paper finds 80 % of the accesses in the top 20 %; on servers, in 50–60 %.)

use super::{
    Audience, Characterisation, CharacterisationSpec, Found, Ledger, Table, Value, ledger::Page,
};
use std::collections::BTreeMap;

pub(super) const SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "skew",
    title: "How uneven: share of accesses that fall on the most popular pages",
    paper: "Lim & Bahn, hybrid flush: Fig. 4",
    paper_saw: "The top 20 % of the blocks account for about 80 % of the accesses in most Android applications \
                (Farmstory: 40 %); on servers it takes the top 50 to 60 %.",
    opens: false,
    needs: &[],
    build: |_| Box::new(Skew),
};

struct Skew;

/// Number of a page's accesses of one kind.
type Count = fn(&Page) -> u64;

/// Points of the curve in tenths of a percent of the pages, rounded up to whole pages; denser where
/// it bends.
const POINTS: [u64; 33] = [
    0, 1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120, 150, 180, 200, 250, 300, 350,
    400, 450, 500, 550, 600, 700, 800, 850, 900, 1000,
];

/// Number of pages for each number of accesses, in descending order.
pub(super) struct Popularity {
    steps: Vec<(u64, u64)>,
    pages: u64,
    accesses: u64,
}

impl Popularity {
    pub(super) fn new(counts: impl Iterator<Item = u64>) -> Self {
        let mut steps = BTreeMap::new();
        let (mut pages, mut accesses) = (0, 0);
        for count in counts.filter(|count| *count > 0) {
            *steps.entry(count).or_insert(0) += 1;
            pages += 1;
            accesses += count;
        }
        Self { steps: steps.into_iter().rev().collect(), pages, accesses }
    }

    /// Accesses to the most popular `pages` pages.
    fn on_top(&self, mut pages: u64) -> u64 {
        let mut sum = 0;
        for (count, alike) in &self.steps {
            let taken = pages.min(*alike);
            sum += taken * count;
            pages -= taken;
        }
        sum
    }

    pub(super) fn share_on(&self, percent: u64) -> Value {
        Value::share(self.on_top((self.pages * percent).div_ceil(100)), self.accesses)
    }

    /// Numbers of most popular pages, and the accesses to them.
    fn curve(&self) -> Vec<(u64, u64)> {
        let mut pages = POINTS.map(|mille| (self.pages * mille).div_ceil(1000)).to_vec();
        pages.dedup();
        pages.retain(|_| self.pages > 0);
        pages.into_iter().map(|pages| (pages, self.on_top(pages))).collect()
    }

    /// Smallest number of pages with 80 % of the accesses.
    fn pages_for_80_percent(&self) -> u64 {
        let mut wanted = (self.accesses * 4).div_ceil(5);
        let mut pages = 0;
        for (count, alike) in &self.steps {
            let taken = wanted.div_ceil(*count).min(*alike);
            pages += taken;
            wanted = wanted.saturating_sub(taken * count);
        }
        pages
    }
}

impl Characterisation for Skew {
    fn finish(&mut self, ledger: &Ledger, _: usize) -> Result<Found, &'static str> {
        let columns = [
            ("accesses", ""),
            ("pages", "pages"),
            ("mean", "accesses a page"),
            ("top_1_percent_share", "top 1 %"),
            ("top_20_percent_share", "top 20 %"),
            ("pages_for_80_percent_share", "80 % fall on"),
        ];
        let mut table = Table::new("skew", &columns);
        let mut curve = Table::new(
            "curve",
            &[("accesses", ""), ("pages", ""), ("pages_share", ""), ("accesses_share", "")],
        )
        .only_for(Audience::Programs);
        let ways: [(&str, Count); 3] = [
            ("all", Page::accesses),
            ("reads", |page| page.reads.into()),
            ("writes", |page| page.writes.into()),
        ];
        let ways = if ledger.about.knows.writes { &ways[..] } else { &ways[..1] };
        let of = |count: &Count| Popularity::new(ledger.pages.all().iter().map(count));
        let populations: Vec<_> = ways.iter().map(|(way, count)| (*way, of(count))).collect();
        for (way, popularity) in &populations {
            table.push([
                Value::label(way, way),
                Value::Count(popularity.pages),
                Value::mean(popularity.accesses, popularity.pages),
                popularity.share_on(1),
                popularity.share_on(20),
                Value::share(popularity.pages_for_80_percent(), popularity.pages),
            ]);
            for (pages, accesses) in popularity.curve() {
                let at = Value::share(pages, popularity.pages);
                let on_top = Value::share(accesses, popularity.accesses);
                curve.push([Value::label(way, way), Value::Count(pages), at, on_top]);
            }
        }
        let (_, all) = &populations[0];
        let sentence = [
            all.share_on(20).into(),
            "of the page accesses fall on the 20 % of the pages with most accesses, 80 % on".into(),
            Value::share(all.pages_for_80_percent(), all.pages).into(),
            "of the pages.".into(),
        ];
        let note = "“80 % fall on”: the fewest pages that take 80 % of these accesses.";
        let found = Found::default().table(table).table(curve).note(note);
        Ok(if all.pages > 0 { found.sentence(sentence) } else { found })
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use proptest::prelude::*;

    // Promises: Describe 7.
    #[test]
    fn the_top_fifth_by_hand() {
        // Page 0: six reads and two writes; pages 1 to 5: a write each.
        let mut events = vec![at(0, write(1, 0, 6 * 4096)), at(0, write(1, 0, 1))];
        events.extend((0..6).map(|_| at(0, read(1, 0, 1))));
        let found = describe("skew", &events);
        assert_eq!(column(&found, "skew", "pages"), counts([6, 1, 6]));
        let shares = column(&found, "skew", "top_20_percent_share");
        // Two of six pages; the only one; two of six.
        assert_eq!(shares, [Value::Share(9.0 / 13.0), Value::Share(1.0), Value::Share(3.0 / 7.0)]);
        // 11 of 13 accesses: the first page and three others.
        assert_eq!(
            column(&found, "skew", "pages_for_80_percent_share")[0],
            Value::Share(4.0 / 6.0)
        );
    }

    proptest! {
        // Promises: Describe 7.
        #[test]
        fn agrees_with_a_sorted_list(counts in prop::collection::vec(0..9u64, 1..60), percent in 1..=100u64) {
            let popularity = Popularity::new(counts.iter().copied());
            let mut list: Vec<u64> = counts.into_iter().filter(|count| *count > 0).collect();
            list.sort_unstable_by(|a, b| b.cmp(a));
            let top = (list.len() as f64 * percent as f64 / 100.0).ceil() as usize;
            prop_assert_eq!(popularity.share_on(percent), Value::share(list[..top].iter().sum(), list.iter().sum()));
            let sum = |n: usize| list[..n].iter().sum::<u64>();
            let curve = popularity.curve();
            prop_assert!(curve.is_empty() == list.is_empty() && curve.len() <= POINTS.len());
            for (pages, accesses) in &curve {
                prop_assert_eq!(*accesses, list[..*pages as usize].iter().sum::<u64>());
            }
            prop_assert_eq!(curve.iter().find(|(pages, _)| *pages as usize * 5 >= list.len()).map(|(pages, _)| *pages),
                (!list.is_empty()).then(|| list.len().div_ceil(5) as u64), "the top fifth is a point");
            let fewest = (0..=list.len()).find(|n| sum(*n) * 10 >= sum(list.len()) * 8).unwrap();
            prop_assert_eq!(popularity.pages_for_80_percent(), fewest as u64);
        }
    }
}
