//! The results of a study: a row for each cell, grouped by cache size.

use super::{
    device::{DeviceResult, PreparedDevice},
    note::Note,
    plan::{Plan, PlannedCell, Study},
    run::CellResult,
};
use flashsift_caches::{
    back::Attribution,
    policy::Kind,
    trace::{Totals, Trace, Unit},
};
use flashsift_events::event::{Side, Space};
use flashsift_pages::{
    device::{
        Fill,
        lifetime::{AmplificationFrom, NoLifetime},
        wear::{NotShown, lifetime_gain},
    },
    nvm::profile::MemoryCost,
    readahead,
    system::{Outcome, SystemSpec},
};
use std::{cmp::Reverse, collections::BTreeMap};

/// The policy that the others are compared with, if it takes part.
pub const REFERENCE: &str = "lru";

/// The results of every cell of a study.
pub struct Results<'a> {
    pub(super) study: &'a Study<'a>,
    /// The policy that the others are compared with.
    reference: String,
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

/// The result of one cell.
#[derive(Clone, Debug)]
pub struct ResultRow {
    /// The system's name with the parameters that were given.
    pub system: String,
    /// The policy's name with the parameters that were given. Where several systems are compared,
    /// the system's name follows, or stands alone if it takes no policy.
    pub policy: String,
    /// The read-ahead's name with the parameters that were given, if read-aheads are compared.
    pub readahead: Option<String>,
    /// Whether the system is the page cache over plain storage.
    pub is_plain: bool,
    /// Pages of the write buffer in non-volatile memory, where the system has one.
    pub nvm_pages: Option<u32>,
    /// Whether the policy knows the future.
    pub kind: Kind,
    /// The cache size in frames.
    pub frames: u32,
    /// Hits, and requests that reached storage.
    pub outcome: Outcome,
    /// CPU time of the simulation.
    pub cpu_ns_per_access: f64,
    /// Its result on each device of the request, in the request's order.
    pub devices: Vec<DeviceResult>,
    /// Time and energy of each modelled memory of the request, by its name.
    pub memory: Vec<(&'static str, MemoryCost)>,
    /// Pages written by program and reason, if the request asks for them.
    pub charged: Option<Charged>,
}

/// Name of the owner of journal and metadata.
const FILE_SYSTEM: &str = "(file system)";

/// Pages written by program and by reason, each in descending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Charged {
    /// By the program that made them dirty.
    pub by_program: Vec<(String, u64)>,
    /// By [`flashsift_caches::back::WriteCause::name`].
    pub by_reason: Vec<(&'static str, u64)>,
}

impl Charged {
    fn new(trace: &Trace, attribution: &Attribution) -> Self {
        let mut by_program: BTreeMap<String, u64> = BTreeMap::new();
        let mut by_reason: BTreeMap<&str, u64> = BTreeMap::new();
        for ((process, cause), pages) in attribution.pages() {
            let program = match process {
                None => FILE_SYSTEM.to_owned(),
                Some(process) => trace.program(*process).map_or_else(
                    || {
                        if *process == 0 {
                            "(unknown)".into()
                        } else {
                            format!("(process {process})")
                        }
                    },
                    str::to_owned,
                ),
            };
            *by_program.entry(program).or_default() += pages;
            *by_reason.entry(cause.name()).or_default() += pages;
        }
        let mut by_program: Vec<_> = by_program.into_iter().collect();
        by_program.sort_by_key(|(_, pages)| Reverse(*pages));
        let mut by_reason: Vec<_> = by_reason.into_iter().collect();
        by_reason.sort_by_key(|(_, pages)| Reverse(*pages));
        Self { by_program, by_reason }
    }
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
            let devices = devices.map(|(device, times)| {
                DeviceResult::new(device, study.trace, &result.outcome, times, result.reads_by_case)
            });
            let device = &result.outcome.device;
            let memory = study.request.memory.iter().map(|memory| {
                let cost = memory.spec.cost(&result.outcome.traffic, device.reads, device.writes);
                (memory.spec.name, cost)
            });
            let row = ResultRow {
                memory: memory.collect(),
                system: planned.system.label(),
                readahead: planned.readahead.map(readahead::Selection::label),
                policy: planned.label(),
                is_plain: planned.system.spec.is_plain(),
                nvm_pages: SystemSpec::buffer_pages(planned.system, study.trace.pages()),
                kind: planned.policy.spec.kind,
                frames: planned.frames,
                outcome: result.outcome,
                cpu_ns_per_access: result.cpu_ns_per_access,
                devices: devices.collect(),
                charged: result.attribution.map(|pages| Charged::new(study.trace, &pages)),
            };
            match sizes.last_mut() {
                Some(size) if size.frames == row.frames => size.rows.push(row),
                _ => sizes.push(SizeResults { frames: row.frames, rows: vec![row] }),
            }
        }
        let policies = || self.cells().iter().map(PlannedCell::label);
        let reference = policies().find(|policy| policy == REFERENCE).or_else(|| policies().next());
        let reference = reference.unwrap_or_default();
        for size in &mut sizes {
            set_lifetime_gains(&mut size.rows, &study.request.devices, &reference);
        }
        Results { study, reference, sizes }
    }
}

impl<'a> Results<'a> {
    /// Returns the study that the results belong to.
    pub fn study(&self) -> &'a Study<'a> {
        self.study
    }

    /// Returns the results by size, sizes ascending.
    pub fn sizes(&self) -> &[SizeResults] {
        &self.sizes
    }

    /// Returns every row: sizes ascending, policies in the order of the request.
    pub fn rows(&self) -> impl Iterator<Item = &ResultRow> {
        self.sizes.iter().flat_map(|size| &size.rows)
    }

    /// Returns the rows of each policy, in the order of the request: sizes ascending.
    pub fn by_policy(&self) -> impl Iterator<Item = Vec<&ResultRow>> {
        let policies = self.sizes.first().map_or(0, |size| size.rows.len());
        (0..policies).map(|policy| self.sizes.iter().map(|size| &size.rows[policy]).collect())
    }

    /// Returns the notes on the rows. The first note is [`Note::Units`].
    pub fn notes(&self) -> Vec<Note> {
        let (trace, request) = (self.study.trace, &self.study.request);
        let mut notes = vec![Note::Units];
        let of_objects = trace.about().space == Space::Objects && request.unit == Unit::Page;
        notes.extend(of_objects.then_some(Note::PagesOfObjects));
        if trace.totals().write_accesses > 0 {
            notes.extend([Note::Costs, Note::Layout(self.study.layout.spec.what)]);
            let dropped = self.rows().any(|row| row.outcome.device.dropped_dirty > 0);
            notes.extend(dropped.then_some(Note::DroppedDirty));
            let metadata = request.metadata.as_ref().map(|metadata| metadata.label());
            notes.push(Note::WhenWritten { modes: request.writeback, metadata });
        }
        let Totals { direct_requests, direct_reads, direct_writes, .. } = trace.totals();
        if direct_requests > 0 {
            notes.push(Note::Direct { reads: direct_reads, writes: direct_writes });
        }
        if trace.about().side == Side::After {
            notes.push(Note::AfterCache);
        }
        notes.extend(self.study.compares_memory().then_some(Note::Memory));
        notes.extend(self.study.readahead_bounds());
        if !request.devices.is_empty() {
            notes.push(Note::Devices);
            notes.push(if trace.about().knows.times { Note::Stall } else { Note::StallUnknown });
            let times = trace.about().knows.times;
            let cases = !request.readaheads.is_empty();
            notes.extend(cases.then_some(Note::ReadCases { times }));
        }
        if request.devices.iter().any(|device| device.profile().cycles.is_some()) {
            notes.push(Note::LifetimeGain { reference: self.reference.clone() });
        }
        notes.extend(self.years());
        notes.extend(self.fills());
        let best = request.devices.iter().filter(|device| !device.profile().best_case.is_empty());
        let devices: Vec<String> = best.map(|device| device.label().to_owned()).collect();
        notes.extend((!devices.is_empty()).then_some(Note::BestCase { devices }));
        let short = |on: &DeviceResult| {
            matches!(on.write_amplification, Err(NotShown::TooFewCollected { .. }))
        };
        let any = self.rows().any(|row| row.devices.iter().any(short));
        notes.extend(any.then_some(Note::AmplificationNotShown));
        notes
    }

    /// Returns notes on the years that devices last.
    fn years(&self) -> Vec<Note> {
        let devices = || self.study.request.devices.iter().enumerate();
        let named = |holds: &dyn Fn(&DeviceResult) -> bool| -> Vec<String> {
            let holds = |n: usize| self.rows().any(|row| holds(&row.devices[n]));
            let named = devices().filter(|(n, _)| holds(*n));
            named.map(|(_, device)| device.label().to_owned()).collect()
        };
        let mut notes = Vec::new();
        let writes = |on: &DeviceResult| on.daily.is_some_and(|daily| daily.bytes_per_day > 0.0);
        if self.rows().flat_map(|row| &row.devices).any(writes) {
            let observed_us = self.study.trace.totals().duration_us;
            let random_writes = named(&|on| {
                let from = on.lifetime.map(|life| life.write_amplification_from);
                from == Ok(AmplificationFrom::RandomWrites)
            });
            notes.push(Note::Years { observed_us, random_writes });
        }
        let without = named(&|on| on.lifetime.is_err_and(NoLifetime::is_no_endurance));
        notes.extend((!without.is_empty()).then_some(Note::NoEndurance { devices: without }));
        notes
    }

    /// Returns notes on the state of devices before the first request; devices in the same state
    /// share a note.
    fn fills(&self) -> Vec<Note> {
        let mut by_fill: Vec<(Fill, Vec<String>)> = Vec::new();
        for device in &self.study.request.devices {
            let Some(fill) = device.profile().model.fill() else { continue };
            let label = device.label().to_owned();
            match by_fill.iter_mut().find(|(other, _)| *other == fill) {
                Some((_, labels)) => labels.push(label),
                None => by_fill.push((fill, vec![label])),
            }
        }
        by_fill.into_iter().map(|(fill, devices)| Note::Filled { devices, fill }).collect()
    }
}

impl SizeResults {
    /// Returns the row of a policy, by its name with parameters.
    pub fn row(&self, policy: &str) -> Option<&ResultRow> {
        self.rows.iter().find(|row| row.policy == policy)
    }

    /// Returns the rows of policies that could run in a kernel.
    pub fn online(&self) -> impl Iterator<Item = &ResultRow> {
        self.rows.iter().filter(|row| row.kind == Kind::Online)
    }
}

/// Sets the lifetime gains of one size's rows over the reference row among them.
fn set_lifetime_gains(rows: &mut [ResultRow], devices: &[PreparedDevice], reference: &str) {
    let Some(reference) = rows.iter().find(|row| row.policy == reference) else { return };
    let before: Vec<Option<f64>> =
        reference.devices.iter().map(|result| result.flash_pages).collect();
    for row in rows {
        for ((result, before), device) in row.devices.iter_mut().zip(&before).zip(devices) {
            let pages = before.zip(result.flash_pages);
            let gain = pages.and_then(|(before, after)| lifetime_gain(before, after));
            // A device of constant times is not flash.
            result.lifetime_gain = gain.filter(|_| device.profile().cycles.is_some());
        }
    }
}
