//! One cell, simulated once: its requests go to every device and to the caller's observer.

use super::{device::PreparedDevice, plan::Plan};
use flashsift_caches::{
    back::Attribution,
    lines::Lines,
    trace::{Future, Trace},
};
use flashsift_events::io::Io;
use flashsift_pages::{
    device::{Clocks, DeviceTimes},
    readahead::{CellReadAhead, ReadAheadModel, ReadLog, ReadMark},
    system::{Cell, Outcome},
};
use std::cell::{self, RefCell};

/// A function that gets every request of a cell to storage, in order, in batches. If memory is
/// compared ([`super::Request::memory`]), it also gets the accesses to memory between them.
pub type Observer<'a> = &'a mut dyn FnMut(Sent<'_>);

/// Something that an observer gets.
#[derive(Clone, Copy, Debug)]
pub enum Sent<'a> {
    /// Requests to storage.
    Requests(&'a [Io]),
    /// Accesses to memory since the request before, and the time of the request after them. Those
    /// of a step come after all requests of the step.
    Memory {
        /// Microseconds from the trace's beginning.
        at_us: u64,
        /// The accesses.
        lines: Lines,
    },
}

/// The result of one cell.
#[derive(Clone, Debug, PartialEq)]
pub struct CellResult {
    /// Index into [`Plan::cells`].
    pub cell: usize,
    /// Hits, and requests that reached storage.
    pub outcome: Outcome,
    /// CPU time of the simulation without devices and observer, by the caller's clock.
    pub cpu_ns_per_access: f64,
    /// Time and wear on each device of the request, in its order.
    pub times: Vec<DeviceTimes>,
    /// Reads of applications by case, in the order of
    /// [`flashsift_pages::readahead::ReadCase::ALL`], if read-aheads are compared on devices.
    pub reads_by_case: Option<[u64; 4]>,
    /// Pages written by process and reason, if the request asks for them.
    pub attribution: Option<Attribution>,
}

impl Plan<'_> {
    /// Simulates one cell. `cpu_ns` returns the CPU time of the calling thread so far. `observer`
    /// gets every request to storage, in order, in batches.
    ///
    /// # Panics
    /// If `cell` is no index into [`Plan::cells`].
    pub fn run(
        &self,
        cell: usize,
        cpu_ns: &dyn Fn() -> u64,
        observer: Option<Observer<'_>>,
    ) -> CellResult {
        self.run_with(cell, cpu_ns, observer, |readahead| readahead)
    }

    /// The same with read-ahead that `with` adds advice or charges to.
    pub(super) fn run_with<'b>(
        &'b self,
        cell: usize,
        cpu_ns: &dyn Fn() -> u64,
        observer: Option<Observer<'_>>,
        with: impl Fn(CellReadAhead<'b>) -> CellReadAhead<'b>,
    ) -> CellResult {
        let (study, planned) = (self.study, &self.cells()[cell]);
        let (trace, request) = (study.trace, &study.request);
        let attribution = RefCell::new(Attribution::default());
        let lines = cell::Cell::new(Lines::NONE);
        let log = ReadLog::default();
        let reads = planned.readahead.filter(|_| !request.devices.is_empty()).map(|_| &log);
        let wants_lines = observer.is_some() && !request.memory.is_empty();
        let system = Cell {
            system: planned.system,
            policy: planned.policy,
            frames: planned.frames,
            layout: &study.layout,
            writeback: request.writeback,
            drain: request.drain,
            write_miss_reads: request.write_miss_reads,
            request_pages_max: request.request_pages_max,
            discards: request.discards,
            metadata: request.metadata.as_ref(),
            attribution: request.attribution.then_some(&attribution),
            readahead: planned.readahead.map(|chosen| with(ReadAheadModel::new(chosen).into())),
            lines: wants_lines.then_some(&lines),
            reads,
        };
        let times = trace.about().knows.times;
        let mut feed = Feed::new(&request.devices, times, observer, &lines, reads, cpu_ns);
        let before_ns = cpu_ns();
        let outcome = match feed.has_takers() {
            true => simulate(&system, trace, self.future.as_ref(), Some(&mut |io| feed.io(io))),
            false => simulate(&system, trace, self.future.as_ref(), None),
        };
        let mut outcome = outcome;
        if planned.system.spec.takes_policies() {
            outcome.traffic = outcome.traffic + self.dram;
        }
        let (times, spent_ns) = feed.finish(trace.totals().duration_us);
        let own_ns = cpu_ns().saturating_sub(before_ns).saturating_sub(spent_ns);
        let cpu_ns_per_access = own_ns as f64 / outcome.accesses().max(1) as f64;
        let attribution = request.attribution.then(|| attribution.take());
        let reads_by_case = reads.map(ReadLog::reads);
        CellResult { cell, outcome, cpu_ns_per_access, times, reads_by_case, attribution }
    }
}

/// Simulates a cell. Every simulation of a study happens here.
fn simulate(
    system: &Cell<'_>,
    trace: &Trace,
    future: Option<&Future>,
    sink: Option<&mut dyn FnMut(Io)>,
) -> Outcome {
    #[cfg(test)]
    super::tests::SIMULATIONS.with(|n| n.set(n.get() + 1));
    system.run(trace, future, sink)
}

/// Passes requests on in batches. The tables of each device then stay in the near caches for a
/// while, and the CPU time of devices and observer is measured apart from the policy's.
struct Feed<'a, 'o> {
    clocks: Vec<Clocks>,
    observer: Option<Observer<'o>>,
    /// Lines of memory accessed until now, and those that the observer knows of.
    lines: &'a cell::Cell<Lines>,
    known: Lines,
    reads: Option<&'a ReadLog>,
    batch: Vec<Io>,
    /// Beginnings and ends of reads, each with the number of requests of the batch before it.
    marks: Vec<(usize, ReadMark)>,
    cpu_ns: &'a dyn Fn() -> u64,
    spent_ns: u64,
}

/// Number of requests in a batch.
const BATCH: usize = 4096;

impl<'a, 'o> Feed<'a, 'o> {
    fn new(
        devices: &[PreparedDevice],
        times: bool,
        observer: Option<Observer<'o>>,
        lines: &'a cell::Cell<Lines>,
        reads: Option<&'a ReadLog>,
        cpu_ns: &'a dyn Fn() -> u64,
    ) -> Self {
        let clocks = devices.iter().map(|device| device.clocks(times)).collect();
        Self {
            clocks,
            observer,
            lines,
            known: Lines::NONE,
            reads,
            batch: Vec::new(),
            marks: Vec::new(),
            cpu_ns,
            spent_ns: 0,
        }
    }

    /// Returns whether requests are wanted; a simulation without a sink is faster.
    fn has_takers(&self) -> bool {
        self.observer.is_some() || !self.clocks.is_empty()
    }

    fn io(&mut self, io: Io) {
        if self.lines.get() != self.known {
            self.tell_lines(io.at_us);
        }
        self.take_marks();
        self.batch.push(io);
        if self.batch.len() == BATCH {
            self.hand_on();
        }
    }

    fn take_marks(&mut self) {
        if let Some(reads) = self.reads {
            reads.take(|mark| self.marks.push((self.batch.len(), mark)));
        }
    }

    #[cold]
    fn tell_lines(&mut self, at_us: u64) {
        self.hand_on();
        let lines = self.lines.get() - self.known;
        self.known = self.lines.get();
        let before_ns = (self.cpu_ns)();
        if let Some(observer) = &mut self.observer {
            observer(Sent::Memory { at_us, lines });
        }
        self.spent_ns += (self.cpu_ns)().saturating_sub(before_ns);
    }

    fn hand_on(&mut self) {
        if self.batch.is_empty() && self.marks.is_empty() {
            return;
        }
        let before_ns = (self.cpu_ns)();
        for clocks in &mut self.clocks {
            let mut marks = self.marks.iter().peekable();
            for (n, io) in self.batch.iter().enumerate() {
                while let Some((_, mark)) = marks.next_if(|(before, _)| *before == n) {
                    clocks.mark(mark);
                }
                clocks.io(io);
            }
            marks.for_each(|(_, mark)| clocks.mark(mark));
        }
        self.marks.clear();
        if let Some(observer) = &mut self.observer {
            observer(Sent::Requests(&self.batch));
        }
        self.batch.clear();
        self.spent_ns += (self.cpu_ns)().saturating_sub(before_ns);
    }

    /// Returns time and wear by device, and the CPU time spent outside the simulation.
    fn finish(mut self, end_us: u64) -> (Vec<DeviceTimes>, u64) {
        self.take_marks();
        self.hand_on();
        if self.lines.get() != self.known {
            self.tell_lines(end_us);
        }
        (self.clocks.iter().map(Clocks::times).collect(), self.spent_ns)
    }
}
