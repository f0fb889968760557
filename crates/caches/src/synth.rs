//! Seeded synthetic traces: a recipe gives the same requests on every machine.
//!
//! The generator is PCG-64 (XSL-RR 128/64). Zipf's law is sampled by rejection-inversion (Hörmann &
//! Derflinger 1996). Both come from crates that promise stable values.

use flashsift_events::{
    event::{About, Action, Event, FileId, Knows, Side, Space},
    page::PAGE_BYTES,
};
use rand::{Rng, RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use rand_pcg::Pcg64;

/// Choice of the next page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pattern {
    /// The page of popularity rank k has a probability ∝ 1/k^alpha; the seed determines the rank of
    /// each page.
    Zipf {
        /// Skew; 0 is uniform.
        alpha: f64,
    },
    /// 0, 1, 2, … and from 0 again after the last page.
    Sequential,
    /// Laps over a part of the pages. After every ten laps the part moves on by a tenth of its
    /// size.
    Loop {
        /// Pages in a lap, at most all.
        lap_pages: u64,
    },
    /// Similar to an application: nine of ten requests follow Zipf(0.9), the tenth begins a
    /// sequential run of 1 to 64 pages.
    Mixed,
}

/// Description of a synthetic trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recipe {
    /// Number of requests, each of one page.
    pub requests: u64,
    /// Largest number of different pages (or objects), at least 1.
    pub pages: u64,
    /// Choice of the pages.
    pub pattern: Pattern,
    /// Probability that a request is a write, 0 to 1.
    pub write_share: f64,
    /// Requests per second.
    pub rate: f64,
    /// Seed of all random choices.
    pub seed: u64,
    /// Objects, of one page of 4096 bytes each, instead of a block device.
    pub objects: bool,
}

/// A recipe with impossible values.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RecipeError(&'static str);

impl Recipe {
    /// Returns the description of the trace.
    pub fn about(&self) -> About {
        About {
            epoch_us: None,
            boot_us: None,
            side: Side::Before,
            space: if self.objects { Space::Objects } else { Space::Blocks },
            knows: Knows {
                times: true,
                syncs: false,
                writes: !self.objects,
                removals: false,
                ..Knows::NOTHING
            },
        }
    }

    /// Returns the events in order.
    ///
    /// # Errors
    ///
    /// A value of the recipe is out of its bounds.
    pub fn events(self) -> Result<impl Iterator<Item = Event<'static>>, RecipeError> {
        for (bad, says) in [
            (self.pages == 0, "a trace touches at least one page"),
            (self.pages > u64::from(u32::MAX) - 1, "a trace touches at most 2^32 - 2 pages"),
            (!(0.0..=1.0).contains(&self.write_share), "the share of writes is between 0 and 1"),
            (
                !(self.rate > 0.0 && self.rate.is_finite()),
                "the rate is a positive number of requests a second",
            ),
            (
                self.objects && self.write_share > 0.0,
                "an object trace does not distinguish reads from writes: leave out the share of \
                 writes",
            ),
            (
                matches!(self.pattern, Pattern::Zipf { alpha } if !(0.0..=10.0).contains(&alpha)),
                "alpha is between 0 and 10",
            ),
            (matches!(self.pattern, Pattern::Loop { lap_pages: 0 }), "a lap has at least one page"),
        ] {
            if bad {
                return Err(RecipeError(says));
            }
        }
        let mut chooser = Chooser::new(self);
        let mut rng = Pcg64::seed_from_u64(self.seed ^ 0x5eed);
        Ok((0..self.requests).map(move |n| {
            let page = chooser.next(n);
            let write = self.write_share > 0.0 && rng.random_bool(self.write_share);
            let (file, offset) = if self.objects { (page, 0) } else { (0, page * PAGE_BYTES) };
            let (file, len) = (FileId(file), PAGE_BYTES);
            let action = match write {
                true => Action::Write { open: None, file, offset, len, sync: false },
                false => Action::Read { open: None, file, offset, len },
            };
            Event { at_us: (n as f64 * 1e6 / self.rate) as u64, pid: 0, tid: 0, action }
        }))
    }
}

struct Chooser {
    recipe: Recipe,
    rng: Pcg64,
    zipf: Zipf<f64>,
    /// Maps popularity ranks to pages: a bijection that spreads popular pages over the device.
    shuffle: Shuffle,
    /// Current sequential run: next page, and number of pages left.
    stretch: (u64, u64),
}

impl Chooser {
    fn new(recipe: Recipe) -> Self {
        let alpha = match recipe.pattern {
            Pattern::Zipf { alpha } => alpha,
            _ => 0.9,
        };
        let mut rng = Pcg64::seed_from_u64(recipe.seed);
        Self {
            recipe,
            zipf: Zipf::new(recipe.pages as f64, alpha).expect("pages and alpha were checked"),
            shuffle: Shuffle::new(recipe.pages, &mut rng),
            rng,
            stretch: (0, 0),
        }
    }

    fn next(&mut self, n: u64) -> u64 {
        let pages = self.recipe.pages;
        match self.recipe.pattern {
            Pattern::Sequential => n % pages,
            Pattern::Loop { lap_pages } => {
                let lap = lap_pages.min(pages);
                let moved = (n / (lap * 10)) * lap.div_ceil(10);
                (moved + n % lap) % pages
            }
            Pattern::Zipf { .. } => self.popular(),
            Pattern::Mixed => {
                if self.stretch.1 == 0 && self.rng.random_ratio(1, 10) {
                    self.stretch = (self.popular(), self.rng.random_range(1..=64));
                }
                match &mut self.stretch {
                    (_, 0) => self.popular(),
                    (page, left) => {
                        let at = *page;
                        (*page, *left) = ((at + 1) % pages, *left - 1);
                        at
                    }
                }
            }
        }
    }

    fn popular(&mut self) -> u64 {
        let rank = self.zipf.sample(&mut self.rng) as u64 - 1;
        self.shuffle.page(rank.min(self.recipe.pages - 1))
    }
}

/// A bijection on `0..n` that needs no table: multiply by a number coprime to n and shift.
struct Shuffle {
    n: u64,
    factor: u64,
    shift: u64,
}

impl Shuffle {
    fn new(n: u64, rng: &mut impl Rng) -> Self {
        let gcd = |mut a: u64, mut b: u64| {
            while b > 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        let mut factor = rng.random_range(0..n) | 1;
        while gcd(factor, n) != 1 {
            factor += 1;
        }
        Self { n, factor, shift: rng.random_range(0..n) }
    }

    fn page(&self, rank: u64) -> u64 {
        ((u128::from(rank) * u128::from(self.factor) + u128::from(self.shift)) % u128::from(self.n))
            as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const RECIPE: Recipe = Recipe {
        requests: 20_000,
        pages: 1000,
        pattern: Pattern::Zipf { alpha: 1.0 },
        write_share: 0.3,
        rate: 1000.0,
        seed: 7,
        objects: false,
    };

    fn pages(recipe: Recipe) -> Vec<u64> {
        recipe
            .events()
            .unwrap()
            .map(|event| match event.action {
                Action::Read { offset, .. } | Action::Write { offset, .. } => offset / PAGE_BYTES,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    /// The most popular page of Zipf(1) over n gets 1/H(n) of the requests, the tenth a tenth of
    /// that.
    #[test]
    fn zipf_has_its_shape() {
        let mut counts = BTreeMap::<u64, u64>::new();
        pages(RECIPE).into_iter().for_each(|page| *counts.entry(page).or_default() += 1);
        let mut counts: Vec<u64> = counts.into_values().collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let harmonic: f64 = (1..=1000).map(|k| 1.0 / f64::from(k)).sum();
        let expected = 20_000.0 / harmonic;
        for (rank, share) in [(0, 1.0), (9, 0.1), (99, 0.01)] {
            let (found, wanted) = (counts[rank] as f64, expected * share);
            assert!(
                (found - wanted).abs() < 5.0 * wanted.sqrt() + 5.0,
                "rank {rank}: {found}, {wanted} expected"
            );
        }
    }

    #[test]
    fn same_seed_same_trace_other_seed_another() {
        assert_eq!(pages(RECIPE), pages(RECIPE));
        assert_ne!(pages(RECIPE), pages(Recipe { seed: 8, ..RECIPE }));
        let writes = |recipe: Recipe| {
            recipe.events().unwrap().filter(|e| matches!(e.action, Action::Write { .. })).count()
                as f64
        };
        assert!((writes(RECIPE) / 20_000.0 - 0.3).abs() < 0.02);
        assert_eq!(writes(Recipe { write_share: 0.0, ..RECIPE }), 0.0);
    }

    #[test]
    fn sequential_and_loop_go_where_they_should() {
        let short = Recipe { requests: 25, pages: 10, ..RECIPE };
        let sequential = pages(Recipe { pattern: Pattern::Sequential, ..short });
        assert_eq!(sequential, (0..25).map(|n| n % 10).collect::<Vec<_>>());
        let looping =
            pages(Recipe { requests: 45, pattern: Pattern::Loop { lap_pages: 4 }, ..short });
        assert_eq!(looping[..8], [0, 1, 2, 3, 0, 1, 2, 3]);
        assert_eq!(looping[40..], [1, 2, 3, 4, 1], "after ten laps the loop moves on");
    }

    #[test]
    fn impossible_recipes_are_refused() {
        for recipe in [
            Recipe { pages: 0, ..RECIPE },
            Recipe { write_share: 1.5, ..RECIPE },
            Recipe { rate: 0.0, ..RECIPE },
            Recipe { pattern: Pattern::Zipf { alpha: f64::NAN }, ..RECIPE },
            Recipe { pattern: Pattern::Loop { lap_pages: 0 }, ..RECIPE },
            Recipe { objects: true, ..RECIPE },
        ] {
            assert!(recipe.events().is_err(), "{recipe:?}");
        }
    }

    /// Every page is reachable: the shuffle is a bijection.
    #[test]
    fn shuffle_is_a_bijection() {
        for n in [1, 2, 10, 97, 4096] {
            let shuffle = Shuffle::new(n, &mut Pcg64::seed_from_u64(n));
            let mut found: Vec<u64> = (0..n).map(|rank| shuffle.page(rank)).collect();
            found.sort_unstable();
            assert_eq!(found, (0..n).collect::<Vec<_>>());
        }
    }
}
