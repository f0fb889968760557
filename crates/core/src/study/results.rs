//! What a study comes to: a row for each cell, grouped by cache size.

use super::{CellResult, DeviceResult, Plan, REFERENCE, Study, device};
use crate::{policy::Kind, system::Outcome};

/// Every cell of a study that has run.
pub struct Results<'a> {
    pub(super) study: &'a Study<'a>,
    /// The policy that the others are compared with.
    pub(super) reference: String,
    sizes: Vec<SizeResults>,
}

/// Every policy at one cache size.
#[derive(Clone, Debug)]
pub struct SizeResults {
    /// The cache size in frames.
    pub frames: u32,
    /// A row for each policy, in the order of the request; never empty.
    pub rows: Vec<ResultRow>,
}

/// What one cell came to.
#[derive(Clone, Debug)]
pub struct ResultRow {
    /// The policy's name with the parameters that were given.
    pub policy: String,
    /// Whether the policy knows the future.
    pub kind: Kind,
    /// The cache size in frames.
    pub frames: u32,
    /// Hits, and what reached storage.
    pub outcome: Outcome,
    /// CPU time of the simulation.
    pub cpu_ns_per_access: f64,
    /// What it comes to on each device of the request, in its order.
    pub devices: Vec<DeviceResult>,
}

impl<'a> Plan<'a> {
    /// Puts the cells' results, in any order, into rows.
    ///
    /// # Panics
    /// Unless every cell of the plan has exactly one result.
    pub fn results(&self, results: impl IntoIterator<Item = CellResult>) -> Results<'a> {
        let mut by_cell: Vec<CellResult> = results.into_iter().collect();
        by_cell.sort_unstable_by_key(|result| result.cell);
        let each_once = by_cell.iter().map(|result| result.cell).eq(0..self.cells().len());
        assert!(each_once, "a study needs exactly one result of each cell");
        let study = self.study;
        let mut sizes: Vec<SizeResults> = Vec::new();
        for (planned, result) in self.cells().iter().zip(by_cell) {
            let devices = study.request.devices.iter().zip(&result.times);
            let devices =
                devices.map(|(device, times)| DeviceResult::new(device, study.trace, &result.outcome, times));
            let row = ResultRow {
                policy: planned.policy.label(),
                kind: planned.policy.spec.kind,
                frames: planned.frames,
                outcome: result.outcome,
                cpu_ns_per_access: result.cpu_ns_per_access,
                devices: devices.collect(),
            };
            match sizes.last_mut() {
                Some(size) if size.frames == row.frames => size.rows.push(row),
                _ => sizes.push(SizeResults { frames: row.frames, rows: vec![row] }),
            }
        }
        let policies = || self.cells().iter().map(|cell| cell.policy.label());
        let reference = policies().find(|policy| policy == REFERENCE).or_else(|| policies().next());
        let reference = reference.unwrap_or_default();
        for size in &mut sizes {
            device::compare(&mut size.rows, &study.request.devices, &reference);
        }
        Results { study, reference, sizes }
    }
}

impl<'a> Results<'a> {
    /// The study that they answer.
    pub fn study(&self) -> &'a Study<'a> {
        self.study
    }

    /// Sizes ascending.
    pub fn sizes(&self) -> &[SizeResults] {
        &self.sizes
    }

    /// Every row: sizes ascending, policies in the order of the request.
    pub fn rows(&self) -> impl Iterator<Item = &ResultRow> {
        self.sizes.iter().flat_map(|size| &size.rows)
    }

    /// For each policy, in the order of the request, its rows: sizes ascending.
    pub fn by_policy(&self) -> impl Iterator<Item = Vec<&ResultRow>> {
        let policies = self.sizes.first().map_or(0, |size| size.rows.len());
        (0..policies).map(|policy| self.sizes.iter().map(|size| &size.rows[policy]).collect())
    }
}

impl SizeResults {
    /// The row of a policy, by its name with parameters.
    pub fn row(&self, policy: &str) -> Option<&ResultRow> {
        self.rows.iter().find(|row| row.policy == policy)
    }

    /// The rows of policies that could run in a kernel.
    pub fn online(&self) -> impl Iterator<Item = &ResultRow> {
        self.rows.iter().filter(|row| row.kind == Kind::Online)
    }
}
