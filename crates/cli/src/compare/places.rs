//! Places of writes on the device, for the page: counted while a cell runs, kept for two policies
//! at each size.

use flashsift_core::{
    back::{Io, IoOp},
    policy::Kind,
    study::{CellResult, Plan, PlannedCell, REFERENCE},
};
use flashsift_report::Grid;
use std::{collections::BTreeMap, sync::Mutex};

/// The writes of the reference policy at each size, and those of the other policy with the fewest
/// non-sequential writes.
pub(super) struct Places {
    reference: Option<String>,
    by_size: Mutex<BTreeMap<u32, Pair>>,
}

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
}

/// Size of the grid: columns and rows.
const CELLS: (u32, u32) = (240, 128);

impl Places {
    /// Memory in bytes that the grid of one cell takes.
    pub(super) const GRID_BYTES: u64 = Grid::held_bytes(CELLS);

    pub(super) fn new(plan: &Plan<'_>) -> Self {
        let online = plan.cells().iter().filter(|cell| cell.policy.spec.kind == Kind::Online);
        let labels: Vec<String> = online.map(PlannedCell::label).collect();
        let reference = labels.iter().find(|label| *label == REFERENCE).or(labels.first());
        Self { reference: reference.cloned(), by_size: Mutex::default() }
    }

    /// Returns `None` for offline policies: the page shows none of them.
    pub(super) fn grid_for(&self, cell: &PlannedCell<'_>) -> Option<Writes> {
        let online = cell.policy.spec.kind == Kind::Online;
        online.then(|| Writes { grid: Grid::new(CELLS), turn: 0 })
    }

    /// Keeps the writes of a finished cell, if the page may show them.
    pub(super) fn keep(&self, cell: &PlannedCell<'_>, result: &CellResult, writes: Writes) {
        let mut by_size = self.by_size.lock().expect("no thread panics while it holds this");
        let pair = by_size.entry(cell.frames).or_default();
        let policy = cell.label();
        if self.reference.as_ref() == Some(&policy) {
            pair.reference = Some(writes.grid);
            return;
        }
        let rank = (result.outcome.device.nonsequential_writes, result.cell);
        if pair.other.as_ref().is_none_or(|(jumps, cell, ..)| rank < (*jumps, *cell)) {
            pair.other = Some((rank.0, rank.1, policy, writes.grid));
        }
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
            for page in 0..u64::from(io.pages) {
                self.grid.add(self.turn, io.lba + page);
                self.turn += 1;
            }
        }
    }
}
