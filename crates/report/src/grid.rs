//! Counts points of the plane in cells, for a stream of unknown extent.

use crate::chart::Patch;

/// A grid with a limited number of cells. If a value lies beyond, cells are joined in pairs.
#[derive(Clone, Debug)]
pub struct Grid {
    cells: (u32, u32),
    /// Width and height of a cell, as powers of two.
    step: (u32, u32),
    /// Columns from left to right, each from below to above.
    counts: Vec<u64>,
}

impl Grid {
    /// Creates an empty grid; `cells` limits columns and rows.
    pub fn new(cells: (u32, u32)) -> Self {
        let cells = (cells.0.max(1), cells.1.max(1));
        Self { cells, step: (0, 0), counts: vec![0; cells.0 as usize * cells.1 as usize] }
    }

    /// Bytes that a grid holds in memory.
    pub const fn held_bytes(cells: (u32, u32)) -> u64 {
        cells.0 as u64 * cells.1 as u64 * size_of::<u64>() as u64
    }

    /// Counts one point.
    pub fn add(&mut self, x: u64, y: u64) {
        while x >> self.step.0 >= u64::from(self.cells.0) {
            self.step.0 += 1;
            self.join(|(x, y)| (x / 2, y));
        }
        while y >> self.step.1 >= u64::from(self.cells.1) {
            self.step.1 += 1;
            self.join(|(x, y)| (x, y / 2));
        }
        let at = (x >> self.step.0) * u64::from(self.cells.1) + (y >> self.step.1);
        self.counts[at as usize] += 1;
    }

    fn join(&mut self, into: fn((u32, u32)) -> (u32, u32)) {
        let mut joined = vec![0; self.counts.len()];
        for (x, y, count) in self.iter() {
            let (x, y) = into((x, y));
            joined[x as usize * self.cells.1 as usize + y as usize] += count;
        }
        self.counts = joined;
    }

    /// Cells that are not empty, with their counts.
    fn iter(&self) -> impl Iterator<Item = (u32, u32, u64)> {
        let rows = self.cells.1;
        let cells = (0..self.cells.0).flat_map(move |x| (0..rows).map(move |y| (x, y)));
        let counted = cells.zip(&self.counts).filter(|(_, count)| **count > 0);
        counted.map(|((x, y), count)| (x, y, *count))
    }

    /// Returns the cells that are not empty.
    pub fn patches(&self) -> Vec<Patch> {
        let span = |at: u32, step: u32| {
            ((u64::from(at) << step) as f64, ((u64::from(at) + 1) << step) as f64)
        };
        let patch = |(x, y, count)| Patch {
            x: span(x, self.step.0),
            y: span(y, self.step.1),
            amount: count as f64,
        };
        self.iter().map(patch).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// In any order, the counts equal those of a single pass over the final cells.
    #[test]
    fn joining_loses_nothing() {
        for seed in 0..200_u64 {
            let mut state = seed * 7919 + 1;
            let mut next = |below: u64| {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) % below
            };
            let points: Vec<(u64, u64)> =
                (0..300).map(|n| (next(1 + n), next(1 << (n % 40)))).collect();
            let mut grid = Grid::new((16, 10));
            points.iter().for_each(|(x, y)| grid.add(*x, *y));
            let mut naive: BTreeMap<(u64, u64), u64> = BTreeMap::new();
            for (x, y) in &points {
                *naive.entry((x >> grid.step.0, y >> grid.step.1)).or_default() += 1;
            }
            assert!(naive.keys().all(|(x, y)| *x < 16 && *y < 10), "seed {seed}");
            let most = points.iter().map(|point| point.0).max().unwrap();
            assert!(
                grid.step.0 == 0 || most >> (grid.step.0 - 1) >= 16,
                "no coarser than necessary, seed {seed}"
            );
            let counts: BTreeMap<(u64, u64), u64> =
                grid.iter().map(|(x, y, n)| ((u64::from(x), u64::from(y)), n)).collect();
            assert_eq!(counts, naive, "seed {seed}");
        }
    }
}
