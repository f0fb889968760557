//! Places and times of writes on the device, for the page: counted while a cell runs. The places
//! are kept for two policies at each size, the times of all.

use flashsift_caches::policy::Kind;
use flashsift_events::io::{Io, IoOp};
use flashsift_report::Grid;
use flashsift_study::{CellResult, Plan, PlannedCell, REFERENCE};
use std::{collections::BTreeMap, sync::Mutex};

/// The writes of the reference policy at each size, and those of the other policy with the fewest
/// non-sequential writes.
pub(super) struct Places {
    reference: Option<String>,
    by_size: Mutex<BTreeMap<u32, Pair>>,
    /// Length of a slice of time; 0 if the trace has no times.
    slice_us: u64,
    /// Pages written in each slice, by policy and size.
    in_slices: Mutex<BTreeMap<(String, u32), [u64; SLICES]>>,
}

/// Number of slices of time, as `recommend` has.
const SLICES: usize = 20;

#[derive(Default)]
struct Pair {
    reference: Option<Grid>,
    /// Number of non-sequential writes, cell, policy, grid.
    other: Option<(u64, usize, String, Grid)>,
}

/// The writes of one cell in their order, by place.
pub(super) struct Writes {
    grid: Grid,
    turn: u64,
    slice_us: u64,
    in_slices: [u64; SLICES],
}

/// Size of the grid: columns and rows.
const CELLS: (u32, u32) = (240, 128);

impl Places {
    /// Memory in bytes that the grid of one cell takes.
    pub(super) const GRID_BYTES: u64 = Grid::held_bytes(CELLS);

    /// `duration_us`: that of the trace; 0 if it has no times.
    pub(super) fn new(plan: &Plan<'_>, duration_us: u64) -> Self {
        let online = plan.cells().iter().filter(|cell| cell.policy.spec.kind == Kind::Online);
        let labels: Vec<String> = online.map(PlannedCell::label).collect();
        let reference = labels.iter().find(|label| *label == REFERENCE).or(labels.first());
        let slice_us = duration_us.div_ceil(SLICES as u64);
        let (by_size, in_slices) = Default::default();
        Self { reference: reference.cloned(), by_size, slice_us, in_slices }
    }

    /// Returns `None` for offline policies: the page shows none of them.
    pub(super) fn grid_for(&self, cell: &PlannedCell<'_>) -> Option<Writes> {
        let online = cell.policy.spec.kind == Kind::Online;
        let (slice_us, in_slices) = (self.slice_us, [0; SLICES]);
        online.then(|| Writes { grid: Grid::new(CELLS), turn: 0, slice_us, in_slices })
    }

    /// Keeps the writes of a finished cell, if the page may show them.
    pub(super) fn keep(&self, cell: &PlannedCell<'_>, result: &CellResult, writes: Writes) {
        let policy = cell.label();
        if self.slice_us > 0 {
            let mut all = self.in_slices.lock().expect("no thread panics while it holds this");
            all.insert((policy.clone(), cell.frames), writes.in_slices);
        }
        let mut by_size = self.by_size.lock().expect("no thread panics while it holds this");
        let pair = by_size.entry(cell.frames).or_default();
        if self.reference.as_ref() == Some(&policy) {
            pair.reference = Some(writes.grid);
            return;
        }
        let rank = (result.outcome.device.nonsequential_writes, result.cell);
        if pair.other.as_ref().is_none_or(|(jumps, cell, ..)| rank < (*jumps, *cell)) {
            pair.other = Some((rank.0, rank.1, policy, writes.grid));
        }
    }

    /// Returns by how much the pages that a policy writes may differ from their sum, up or down:
    /// half of a 95 % interval, if the slices of the trace are a sample of more of the same. `None`
    /// for offline policies, and without times.
    pub(super) fn uncertainty(&self, policy: &str, frames: u32) -> Option<f64> {
        let all = self.in_slices.lock().expect("no thread panics while it holds this");
        all.get(&(policy.to_owned(), frames)).map(uncertainty)
    }

    /// Returns the two policies at a size, the reference first, with their writes; `None` unless
    /// two online policies have run.
    pub(super) fn at_size(&self, frames: u32) -> Option<[(String, Grid); 2]> {
        let by_size = self.by_size.lock().expect("no thread panics while it holds this");
        let pair = by_size.get(&frames)?;
        let (_, _, other, grid) = pair.other.as_ref()?;
        let reference = (self.reference.clone()?, pair.reference.clone()?);
        Some([reference, (other.clone(), grid.clone())])
    }
}

impl Writes {
    /// Counts further requests.
    pub(super) fn take(&mut self, requests: &[Io]) {
        for io in requests.iter().filter(|io| io.op == IoOp::Write) {
            if let Some(slice) = io.at_us.checked_div(self.slice_us) {
                self.in_slices[(slice as usize).min(SLICES - 1)] += u64::from(io.pages);
            }
            for page in 0..u64::from(io.pages) {
                self.grid.add(self.turn, io.lba + page);
                self.turn += 1;
            }
        }
    }
}

/// Half of the 95 % interval of the sum of these values.
fn uncertainty(values: &[u64; SLICES]) -> f64 {
    const NORMAL_95: f64 = 1.96;
    let n = values.len() as f64;
    let mean = values.iter().sum::<u64>() as f64 / n;
    let squares = values.iter().map(|value| (*value as f64 - mean).powi(2)).sum::<f64>();
    NORMAL_95 * (n * squares / (n - 1.0)).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uncertainty_grows_with_the_differences_of_the_slices() {
        assert_eq!(uncertainty(&[7; SLICES]), 0.0);
        let mut one = [0; SLICES];
        one[3] = 100;
        // The variance of a value is 100² / 20, and the sum has 20 of them.
        assert!((uncertainty(&one) - 196.0).abs() < 1e-9, "{}", uncertainty(&one));
        let alternating: [u64; SLICES] = std::array::from_fn(|n| (n as u64 % 2) * 10);
        let expected = 1.96 * (20.0 * 20.0 * 25.0 / 19.0_f64).sqrt();
        assert!((uncertainty(&alternating) - expected).abs() < 1e-9);
    }
}
