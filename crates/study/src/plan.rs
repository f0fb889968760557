//! A request checked against its trace, and the plan of its cells: their memory, and how many may
//! run at once.

use super::{
    error::{FutureProblem, PlacesLack, StudyError},
    note::{Note, OmissionReason},
    request::Request,
    results::REFERENCE,
    sizes,
};
use flashsift_caches::{
    back::Attribution,
    lines::Traffic,
    policy,
    trace::{Future, RecordedPlaces, Trace, Unit},
};
use flashsift_events::event::{Knows, Space};
use flashsift_pages::{
    layout, nvm,
    readahead::{self, ReadAheadModel},
    system::{self, SystemSpec},
    writeback,
};
use std::ops::Range;

/// A request, checked against its trace.
pub struct Study<'a> {
    pub(super) trace: &'a Trace,
    pub(super) request: Request,
    pub(super) layout: layout::Selection,
    /// Ascending, each once.
    frames: Vec<u32>,
    /// At least one.
    systems: Vec<system::Selection>,
    /// Stands for the order of systems that take no policy.
    lru: policy::Selection,
}

/// The cells of a study: sizes ascending, at each size every policy in the order of the request.
pub struct Plan<'a> {
    pub(super) study: &'a Study<'a>,
    pub(super) future: Option<Future>,
    left_out: Option<Note>,
    cells: Vec<PlannedCell<'a>>,
    waves: Vec<Wave>,
    /// Accesses to the DRAM of a page cache, if memory is compared.
    pub(super) dram: Traffic,
}

/// One system under one policy at one size.
pub struct PlannedCell<'a> {
    /// The system.
    pub system: &'a system::Selection,
    /// The policy.
    pub policy: &'a policy::Selection,
    /// The read-ahead, if read-aheads are compared.
    pub readahead: Option<&'a readahead::Selection>,
    /// The cache size in frames.
    pub frames: u32,
    /// Estimate of the memory that the cell takes while it runs, beside the trace.
    pub memory_bytes: u64,
}

impl PlannedCell<'_> {
    /// Returns the name of its row: the policy, with the read-ahead, or with a system that is not
    /// plain storage.
    pub fn label(&self) -> String {
        let (system, policy) = (self.system.label(), self.policy.label());
        if let Some(readahead) = self.readahead {
            return format!("{policy} readahead={}", readahead.label());
        }
        match (self.system.spec.is_plain(), self.system.spec.takes_policies()) {
            (true, _) => policy,
            (_, true) => format!("{policy} {system}"),
            _ => system,
        }
    }
}

/// A cell without its size.
#[derive(Clone, Copy)]
struct Combination<'a> {
    system: &'a system::Selection,
    policy: &'a policy::Selection,
    readahead: Option<&'a readahead::Selection>,
}

impl Combination<'_> {
    /// Returns an estimate of the memory that the cell takes beside the trace.
    fn bytes(&self, study: &Study<'_>, frames: u32) -> u64 {
        let ahead = match self.readahead {
            Some(_) => readahead::memory_bytes(study.trace, !study.request.devices.is_empty()),
            None => 0,
        };
        cell_bytes(study, frames, self.system, self.policy) + ahead
    }
}

/// Consecutive cells, and how many of them the memory limit allows at once. A wave begins when
/// every cell of the wave before it has run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wave {
    /// Indices into [`Plan::cells`].
    pub cells: Range<usize>,
    /// Cells that may run at once, at least 1 and at most [`super::Request::workers`].
    pub at_once: usize,
}

impl<'a> Study<'a> {
    /// Checks a request against its trace, and fills in the layout and sizes that it leaves open.
    ///
    /// # Errors
    /// The request makes no sense for this trace: [`StudyError::NoPolicies`],
    /// [`StudyError::Frames`], [`StudyError::Layout`], [`StudyError::Places`],
    /// [`StudyError::WriteBack`] or [`StudyError::ObjectsOnDevices`].
    pub fn new(trace: &'a Trace, request: Request) -> Result<Self, StudyError> {
        let own = request.metadata.as_ref().map(|metadata| metadata.spec.layout);
        let asked = request.layout.clone().or_else(|| layout::Selection::parse(own?).ok());
        let layout = match (&request.metadata, asked) {
            (Some(metadata), asked) => {
                let name = asked.as_ref().map_or(metadata.spec.layout, |layout| layout.spec.name);
                metadata
                    .spec
                    .suits(trace, name)
                    .map_err(|unsuited| StudyError::Metadata(metadata.spec.name, unsuited))?;
                suitable_layout(asked, trace.about().space)?
            }
            (None, asked) => suitable_layout(asked, trace.about().space)?,
        };
        if layout.spec.from_recording {
            let name = layout.spec.name;
            suitable_places(trace).map_err(|lack| StudyError::Places { layout: name, lack })?;
        }
        request.writeback.suit(trace).map_err(|unsuited| {
            let modes = request.writeback.to_string();
            StudyError::WriteBack { modes, unsuited }
        })?;
        if request.policies.is_empty() {
            return Err(StudyError::NoPolicies);
        }
        suits_readahead(trace, &request)?;
        if request.unit == Unit::Request && !request.devices.is_empty() {
            return Err(StudyError::ObjectsOnDevices);
        }
        let frames = sizes::chosen(&request.frames, trace.touched_pages())?;
        let mut systems = request.systems.clone();
        if systems.is_empty() {
            systems.push(system::PLAIN.clone());
        }
        for system in systems.iter().filter(|system| !system.spec.is_plain()) {
            suits_beside_nvm(system, &request)?;
            let frames_min = system.spec.frames_min();
            if let Some(small) = frames.iter().find(|frames| **frames < frames_min) {
                let (system, frames) = (system.spec.name, *small);
                return Err(StudyError::SystemFrames { system, frames, frames_min });
            }
        }
        let lru = policy::Selection::parse(REFERENCE).expect("it is in the list");
        let study = Self { trace, request, layout, frames, systems, lru };
        assert!(!study.wants_bytes() || trace.tables().bytes, "the trace has the table of bytes");
        Ok(study)
    }

    /// Returns the trace that the request was checked against.
    pub fn trace(&self) -> &'a Trace {
        self.trace
    }

    /// Returns the request as it was given.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Returns the cache sizes in frames, ascending.
    pub fn frames(&self) -> &[u32] {
        &self.frames
    }

    /// Returns whether accesses to memory are counted.
    pub fn compares_memory(&self) -> bool {
        let has_nvm = self.systems.iter().any(|system| !system.spec.is_plain());
        has_nvm || !self.request.memory.is_empty()
    }

    /// Returns whether a system keeps pages in non-volatile memory in place of the page cache. The
    /// trace then has the table of bytes.
    fn wants_bytes(&self) -> bool {
        self.systems.iter().any(|system| !system.spec.takes_policies())
    }

    /// Returns each system with each of its policies, in the order of rows.
    fn combinations(&self) -> impl Iterator<Item = Combination<'_>> {
        self.systems.iter().flat_map(move |system| {
            let policies: Box<dyn Iterator<Item = &policy::Selection>> =
                match system.spec.takes_policies() {
                    true => Box::new(self.request.policies.iter()),
                    false => Box::new(std::iter::once(&self.lru)),
                };
            policies.flat_map(move |policy| self.with_each_readahead(system, policy))
        })
    }

    fn with_each_readahead<'b>(
        &'b self,
        system: &'b system::Selection,
        policy: &'b policy::Selection,
    ) -> impl Iterator<Item = Combination<'b>> {
        let readaheads = &self.request.readaheads;
        let none = readaheads.is_empty().then_some(None);
        let each = none.into_iter().chain(readaheads.iter().map(Some));
        each.map(move |readahead| Combination { system, policy, readahead })
    }

    /// Returns the notes on the request that are known before it is planned.
    pub fn notes(&self) -> Vec<Note> {
        let caveats = self.request.writeback.caveats(self.trace).into_iter().map(Note::WriteBack);
        let places = self.trace.places().filter(|_| self.layout.spec.from_recording);
        let without = places.map_or(0, RecordedPlaces::pages_without);
        let pages = self.trace.touched_pages();
        let without = (without > 0).then_some(Note::PagesWithoutPlaces { without, pages });
        caveats.chain(self.request.policies.left_out_as_slow()).chain(without).collect()
    }

    /// Returns the note that the figures of read-ahead are bounds, where they are.
    pub fn readahead_bounds(&self) -> Option<Note> {
        let reads_ahead = |ahead| ReadAheadModel::new(ahead).reads_ahead();
        let Knows { opens, sizes, .. } = self.trace.about().knows;
        let bounds = self.request.readaheads.iter().any(reads_ahead) && !(opens && sizes);
        bounds.then_some(Note::ReadAheadBounds { opens, sizes })
    }

    /// Lists the cells in the order of sizes and policies, and decides how many may run at once.
    ///
    /// # Errors
    /// [`StudyError::Future`] if an offline policy was asked for by name and does not fit;
    /// [`StudyError::Memory`] if a cell does not fit even alone.
    pub fn plan(&self) -> Result<Plan<'_>, StudyError> {
        Plan::new(self)
    }

    /// Returns whether each request of a cell is passed to devices or to an observer.
    fn hands_requests_on(&self) -> bool {
        let Request { observer_bytes, devices, metadata, attribution, .. } = &self.request;
        observer_bytes.is_some() || !devices.is_empty() || metadata.is_some() || *attribution
    }
}

impl<'a> Plan<'a> {
    pub(super) fn new(study: &'a Study<'a>) -> Result<Self, StudyError> {
        let (trace, request) = (study.trace, &study.request);
        let limit_bytes = request.memory_limit_bytes;
        let at_size = |frames: &u32| {
            let frames = *frames;
            let combinations = study.combinations();
            combinations.map(move |combination| combination.bytes(study, frames))
        };
        let cell_bytes = study.frames.iter().flat_map(at_size).max().unwrap_or(0);
        let free_bytes = limit_bytes.saturating_sub(trace.held_bytes() as u64);
        if cell_bytes > free_bytes {
            return Err(StudyError::Memory { pages: trace.pages(), cell_bytes, free_bytes });
        }
        let is_offline = |policy: &policy::Selection| policy.spec.kind.is_offline();
        let needs_future = request.policies.iter().any(is_offline);
        let reads_ahead =
            request.readaheads.iter().any(|ahead| ReadAheadModel::new(ahead).reads_ahead());
        let future = match reads_ahead {
            true if needs_future => Some(Err(FutureProblem::ReadAhead)),
            _ => needs_future.then(|| future(trace, cell_bytes, limit_bytes)),
        };
        let (future, left_out) = match future.transpose() {
            Ok(future) => (future, None),
            Err(problem) if request.policies.offline_is_optional() => {
                let reason = OmissionReason::Future(problem);
                (None, Some(Note::left_out(reason, |spec| spec.kind.is_offline())))
            }
            Err(problem) => return Err(StudyError::Future(problem)),
        };
        let is_kept = |cell: &Combination<'_>| left_out.is_none() || !is_offline(cell.policy);
        let at_size = |frames: u32| {
            study.combinations().filter(&is_kept).map(move |combination| {
                let memory_bytes = combination.bytes(study, frames);
                let Combination { system, policy, readahead } = combination;
                PlannedCell { system, policy, readahead, frames, memory_bytes }
            })
        };
        let cells: Vec<_> = study.frames.iter().flat_map(|frames| at_size(*frames)).collect();
        let free_bytes = free_bytes - if future.is_some() { future_bytes(trace) } else { 0 };
        let waves = waves(&cells, free_bytes, request.workers.max(1));
        let counts = study.compares_memory();
        let dram = if counts { nvm::of_page_cache(trace) } else { Traffic::default() };
        Ok(Self { study, future, left_out, cells, waves, dram })
    }

    /// Returns every cell, in order.
    pub fn cells(&self) -> &[PlannedCell<'a>] {
        &self.cells
    }

    /// Returns every cell once, in order, in as few waves as the memory limit allows.
    pub fn waves(&self) -> &[Wave] {
        &self.waves
    }

    /// Returns notes on the policies that are left out because they do not fit.
    pub fn notes(&self) -> Vec<Note> {
        self.left_out.iter().cloned().collect()
    }
}

fn suitable_layout(
    asked: Option<layout::Selection>,
    space: Space,
) -> Result<layout::Selection, StudyError> {
    let layout = asked.unwrap_or_else(|| layout::default_for(space));
    if (layout.spec.suits)(space) {
        return Ok(layout);
    }
    let suitable = layout::ALL.iter().filter(|spec| (spec.suits)(space));
    let takes = suitable.map(|spec| spec.name).collect::<Vec<_>>().join(" or ");
    Err(StudyError::Layout { layout: layout.spec.name, space, takes })
}

/// Checks that the rest of a request makes sense for a system with non-volatile memory.
fn suits_beside_nvm(system: &system::Selection, request: &Request) -> Result<(), StudyError> {
    let with = match (request.writeback.cluster.is_some(), &request.metadata) {
        (true, _) => "cluster write-back",
        (_, Some(_)) => "--metadata",
        _ if request.attribution => "--attribution",
        _ if request.unit == Unit::Request => "--object-cache",
        _ => return Ok(()),
    };
    Err(StudyError::System { system: system.spec.name, with })
}

/// Checks that the rest of a request makes sense with read-ahead.
fn suits_readahead(trace: &Trace, request: &Request) -> Result<(), StudyError> {
    let reaches =
        request.readaheads.iter().map(|selection| ReadAheadModel::new(selection).reach_pages());
    let Some(reach_pages) = reaches.max() else { return Ok(()) };
    let tables = trace.tables();
    assert!(tables.reads_ahead_pages >= reach_pages, "the trace has the table of reads");
    let with = match request.systems.iter().find(|system| !system.spec.is_plain()) {
        Some(system) => format!("--system {}", system.spec.name),
        None if request.writeback.cluster.is_some() => "cluster write-back".to_owned(),
        None if request.unit == Unit::Request => "--object-cache".to_owned(),
        None => {
            let named = request.policies.named_offline().filter(|_| reach_pages > 0);
            return named.map_or(Ok(()), |policy| Err(StudyError::ReadAheadOffline(policy)));
        }
    };
    Err(StudyError::ReadAhead(with))
}

/// Checks that a layout can take the places of this trace.
fn suitable_places(trace: &Trace) -> Result<(), PlacesLack> {
    if !trace.about().knows.places {
        return Err(PlacesLack::None);
    }
    if !trace.about().knows.times {
        return Err(PlacesLack::NoTimes);
    }
    let places = trace.places().ok_or(PlacesLack::NotRead)?;
    if places.unaligned() > 0 {
        return Err(PlacesLack::SmallBlocks);
    }
    if trace.pages() > 0 && places.pages_without() == trace.pages() {
        return Err(PlacesLack::None);
    }
    Ok(())
}

/// Returns the memory that the future of a trace takes: a number for each access.
fn future_bytes(trace: &Trace) -> u64 {
    let totals = trace.totals();
    size_of::<u32>() as u64 * (totals.read_accesses + totals.write_accesses)
}

/// Returns the future of a trace, if the trace, its future and one cell fit into memory.
fn future(trace: &Trace, cell_bytes: u64, limit_bytes: u64) -> Result<Future, FutureProblem> {
    let needed_bytes = trace.held_bytes() as u64 + future_bytes(trace) + cell_bytes;
    if needed_bytes > limit_bytes {
        return Err(FutureProblem::Memory { needed_bytes, limit_bytes });
    }
    trace.future().map_err(FutureProblem::Trace)
}

/// Returns an estimate of the memory that a cell takes beside the trace.
pub(super) fn cell_bytes(
    study: &Study<'_>,
    frames: u32,
    system: &system::Selection,
    policy: &policy::Selection,
) -> u64 {
    let request = &study.request;
    let pages = study.trace.pages();
    // Requests reach devices and observers through the system with the write-back machine.
    let writes_back = !request.writeback.on_eviction_only()
        || study.hands_requests_on()
        || !system.spec.is_plain();
    let writeback = if writes_back { writeback::machine_bytes(study.trace) } else { 0 };
    let devices: u64 = request.devices.iter().map(|device| device.held_bytes(pages)).sum();
    let observer = request.observer_bytes.unwrap_or(0);
    let attribution = if request.attribution { Attribution::bytes(pages) } else { 0 };
    system::cell_bytes(study.trace, frames, policy.spec, study.layout.spec)
        + SystemSpec::bytes(system, pages, frames)
        + writeback
        + attribution
        + devices
        + observer
}

/// Groups consecutive cells of which equally many fit at once. Each cell fits alone.
fn waves(cells: &[PlannedCell<'_>], free_bytes: u64, workers: usize) -> Vec<Wave> {
    let mut waves: Vec<Wave> = Vec::new();
    for (cell, planned) in cells.iter().enumerate() {
        let fitting = free_bytes / planned.memory_bytes.max(1);
        let at_once = usize::try_from(fitting).unwrap_or(workers).clamp(1, workers);
        match waves.last_mut() {
            Some(wave) if wave.at_once == at_once => wave.cells.end = cell + 1,
            _ => waves.push(Wave { cells: cell..cell + 1, at_once }),
        }
    }
    waves
}
