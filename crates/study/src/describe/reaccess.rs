//! Recency and frequency of accessed pages: Lim & Bahn (IEEE Access 2021), Fig. 6.
//!
//! Pages are ranked in two ways: by last use, and by number of uses so far. At each re-access the
//! page's ranks before the access are counted; rank 1 is the page used last or most. So "by
//! recency" up to rank n is the hit count of an LRU cache of n pages without deletions. Pages used
//! equally often share their ranks: each such rank gets an equal part of the re-access, which the
//! paper leaves open.
//!
//! The sentence compares both at the largest power of two that is at most a tenth of the pages.
//!
//! The paper finds frequency the better predictor on Android, except for the first two ranks.

use super::{
    Audience, Characterisation, CharacterisationSpec, Figure, Found, Ledger, Seen, Table, Value,
};
use flashsift_events::{event::Event, page::PAGE_BYTES, structure::Recency};
use foldhash::fast::FixedState;
use hashbrown::HashMap;

pub(super) const SPEC: CharacterisationSpec = CharacterisationSpec {
    name: "reaccess",
    title: "Accessed again: pages by last use and by number of uses",
    paper: "Lim & Bahn, hybrid flush: Fig. 6",
    paper_saw: "But for ranks 1 and 2, the most frequently used blocks are accessed again more often than the most \
                recently used ones: frequency is the better estimator.",
    opens: false,
    needs: &[],
    build: |_| {
        Box::new(Reaccess {
            order: Recency::default(),
            frequencies: Frequencies::default(),
            first: 0,
            by_recency: [0; BUCKETS],
            by_frequency: [0.0; BUCKETS],
        })
    },
};

/// Buckets of ranks: 1, 2, 3–4, 5–8, …
const BUCKETS: usize = 33;

struct Reaccess {
    order: Recency,
    frequencies: Frequencies,
    first: u64,
    by_recency: [u64; BUCKETS],
    by_frequency: [f64; BUCKETS],
}

fn bucket(rank: u32) -> usize {
    u64::from(rank).next_power_of_two().trailing_zeros() as usize
}

impl Characterisation for Reaccess {
    fn event(&mut self, _: &Event, seen: &Seen<'_>) {
        let pages = seen.ledger.pages.all();
        for page in seen.pages {
            // The count already includes this access.
            let uses = pages[*page as usize].accesses() - 1;
            let alike = self.frequencies.add_use(uses);
            match (self.order.touch(*page), alike) {
                (Some(rank), Some((before, last))) => {
                    self.by_recency[bucket(rank + 1)] += 1;
                    share_out(&mut self.by_frequency, before, last);
                }
                _ => self.first += 1,
            }
        }
    }

    fn prefetch(&self, pages: &[u32]) {
        pages.iter().for_each(|page| self.order.prefetch(*page));
    }

    fn held_bytes(&self) -> usize {
        self.order.held_bytes()
    }

    fn finish(&mut self, ledger: &Ledger, _: usize) -> Result<Found, &'static str> {
        let again: u64 = self.by_recency.iter().sum();
        let all = self.first + again;
        let columns = [("most_rank", ""), ("by_recency", ""), ("by_frequency", "")];
        let mut buckets = Table::new("ranks", &columns).only_for(Audience::Programs);
        let columns = [
            ("most", "among the"),
            ("most_bytes", ""),
            ("recent_share", "last used"),
            ("frequent_share", "most used"),
        ];
        let mut shown = Table::new("cumulative", &columns).only_for(Audience::People);
        let pages = ledger.pages.all().len() as u64;
        let (mut recent, mut frequent) = (0, 0.0);
        let mut compared = (0, 0, 0.0);
        for n in 0..BUCKETS {
            let most = 1u64 << n;
            recent += self.by_recency[n];
            frequent += self.by_frequency[n];
            if most == 1 || most * 10 <= pages {
                compared = (most, recent, frequent);
            }
            buckets.push([
                Value::Count(most),
                Value::Count(self.by_recency[n]),
                Value::Number(self.by_frequency[n]),
            ]);
            let last = most >= pages;
            if again > 0 && (n % 3 == 0 || last) {
                let frequent = Value::Share((frequent / again as f64).min(1.0));
                shown.push([
                    Value::Count(most.min(pages)),
                    Value::Bytes(most.min(pages) * PAGE_BYTES),
                    Value::share(recent, again),
                    frequent,
                ]);
            }
            if last {
                break;
            }
        }
        let figures = vec![
            Figure::new("first_accesses", "first accesses to a page", Value::Count(self.first))
                .share(self.first, all),
            Figure::new("reaccesses", "accesses to a page touched before", Value::Count(again))
                .share(again, all),
        ];
        let found = Found::default().figures(figures);
        if again == 0 {
            return Ok(found);
        }
        let (most, recent, frequent) = compared;
        let sentence = [
            Value::share(recent, again).into(),
            "of the accesses to pages touched before go to the".into(),
            Value::Count(most).into(),
            "used last,".into(),
            Value::Share((frequent / again as f64).min(1.0)).into(),
            "to the".into(),
            Value::Count(most).into(),
            "used most.".into(),
        ];
        Ok(found.sentence(sentence).table(shown).table(buckets))
    }
}

/// Ranks of pages by number of uses: `(uses, (pages used more often, the same plus pages used
/// equally often))`. There are only about √(2·accesses) different numbers of uses.
#[derive(Default)]
struct Frequencies {
    ranks: HashMap<u64, (u32, u32), FixedState>,
    pages: u32,
}

impl Frequencies {
    /// Counts one more use of a page that was used `uses` times. Returns the number of pages used
    /// more often before, and of those used at least as often (including itself); `None` at its
    /// first use.
    #[inline]
    fn add_use(&mut self, uses: u64) -> Option<(u32, u32)> {
        let alike = if uses == 0 {
            self.pages += 1;
            None
        } else {
            let ranks = self.ranks.get_mut(&uses).expect("a page has been used so often");
            let alike = *ranks;
            ranks.0 += 1;
            if ranks.0 == ranks.1 {
                self.ranks.remove(&uses);
            }
            Some(alike)
        };
        // It becomes the last of the pages with one more use.
        let before = alike.map_or(self.pages - 1, |(before, _)| before);
        self.ranks.entry(uses + 1).or_insert((before, before)).1 += 1;
        alike
    }
}

/// Distributes one re-access in equal parts to the ranks `before + 1 ..= last`.
#[inline]
fn share_out(buckets: &mut [f64; BUCKETS], before: u32, last: u32) {
    let part = 1.0 / f64::from(last - before);
    let mut before = u64::from(before);
    while before < u64::from(last) {
        let n = bucket(before as u32 + 1);
        let here = (1u64 << n).min(last.into());
        buckets[n] += (here - before) as f64 * part;
        before = here;
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use proptest::prelude::*;

    // Promises: Describe 8.
    #[test]
    fn ranks_by_hand() {
        // Page:              a  b  b  a  c  b
        // rank by recency:   -  -  1  2  -  3
        // rank by frequency: -  -  1½ 2  -  1½   (a and b tie: half in bucket 1, half in bucket 2)
        let events = [0, 1, 1, 0, 2, 1].map(|page| at(0, read(1, page * 4096, 1)));
        let found = describe("reaccess", &events);
        assert_eq!(figure(&found, "first_accesses"), Value::Count(3));
        assert_eq!(column(&found, "ranks", "most_rank"), counts([1, 2, 4]));
        assert_eq!(column(&found, "ranks", "by_recency"), counts([1, 1, 1]));
        assert_eq!(column(&found, "ranks", "by_frequency"), [1.0, 2.0, 0.0].map(Value::Number));
    }

    proptest! {
        /// Compares with lists that are sorted again at every access.
        // Promises: Describe 8.
        #[test]
        fn agrees_with_sorted_lists(pages in prop::collection::vec(0..40u64, 1..300)) {
            let events: Vec<_> = pages.iter().map(|page| at(0, write(1, page * 4096, 1))).collect();
            let found = describe("reaccess", &events);
            let (mut recent, mut frequent) = ([0; BUCKETS], [0.0; BUCKETS]);
            for (n, page) in pages.iter().enumerate() {
                let before = &pages[..n];
                let uses = |page| before.iter().filter(|other| **other == page).count();
                if uses(*page) == 0 {
                    continue;
                }
                let mut list: Vec<u64> = Vec::new();
                before.iter().rev().for_each(|page| if !list.contains(page) { list.push(*page) });
                recent[bucket(list.iter().position(|other| other == page).unwrap() as u32 + 1)] += 1;
                list.sort_by_key(|page| std::cmp::Reverse(uses(*page)));
                let ranks: Vec<u32> =
                    (1..).zip(&list).filter(|(_, other)| uses(**other) == uses(*page)).map(|(rank, _)| rank).collect();
                ranks.iter().for_each(|rank| frequent[bucket(*rank)] += 1.0 / ranks.len() as f64);
            }
            if recent.iter().any(|n| *n > 0) {
                for (n, value) in column(&found, "ranks", "by_recency").into_iter().enumerate() {
                    prop_assert_eq!(value, Value::Count(recent[n]));
                }
                for (n, value) in column(&found, "ranks", "by_frequency").into_iter().enumerate() {
                    let Value::Number(value) = value else { panic!("{value:?}") };
                    prop_assert!((value - frequent[n]).abs() < 1e-6, "{} not {}", value, frequent[n]);
                }
            }
        }
    }
}
