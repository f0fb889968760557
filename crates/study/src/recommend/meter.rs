//! Costs of a system by slice of time, charged to the time of the changes that cause them.
//!
//! A page that is written later belongs to the slice in which it became dirty. If it counted where
//! it is written, a setting that only waits longer would lose the slices into which it moves
//! writes, and win those that it takes them from. A block of the file system that no sync caused is
//! shared among the changes within the time that a change may wait, the window: those that it can
//! hold.

use flashsift_caches::trace::{OperationKind, StepKind, Trace};
use flashsift_events::{
    io::{Io, IoOp},
    page::PAGE_BYTES,
};
use flashsift_pages::device::Clocks;

/// Counts changes in this many parts of a slice.
const BINS: usize = 64;
/// The slice of a page that is clean.
const CLEAN: u8 = u8::MAX;

/// Number of changes by time. Blocks of the file system are shared among them.
pub(crate) struct ChangeTimes {
    slices: usize,
    end_us: u64,
    /// Sums from the beginning on: one more than there are bins.
    sums: Vec<u64>,
}

impl ChangeTimes {
    /// Counts the writes, removals and changed names of a trace until `end_us`, for this many
    /// slices, less than 255.
    pub(crate) fn new(trace: &Trace, slices: usize, end_us: u64) -> Self {
        assert!(slices < usize::from(CLEAN), "a slice is a byte");
        let mut this = Self { slices, end_us, sums: vec![0; slices * BINS + 1] };
        for (n, step) in trace.steps().iter().enumerate() {
            if is_change(step.kind()) {
                this.count(trace.at_us(n));
            }
        }
        for operation in trace.operations().list() {
            use OperationKind as K;
            let is_own = matches!(
                operation.kind,
                K::Create(..) | K::Link(..) | K::Unlink(..) | K::Rename { .. }
            );
            if is_own {
                this.count(operation.at_us);
            }
        }
        for n in 1..this.sums.len() {
            this.sums[n] += this.sums[n - 1];
        }
        this
    }

    fn count(&mut self, at_us: u64) {
        let bin = self.part(at_us, self.slices * BINS);
        self.sums[bin + 1] += 1;
    }

    /// The part of the time, of this many. The last instant belongs to the last part.
    fn part(&self, at_us: u64, parts: usize) -> usize {
        let part = u128::from(at_us) * parts as u128 / u128::from(self.end_us.max(1));
        part.min(parts as u128 - 1) as usize
    }

    pub(crate) fn slice(&self, at_us: u64) -> usize {
        self.part(at_us, self.slices)
    }

    /// Shares bytes among the slices of the changes in this time, in whole bytes. The sum is exact.
    fn share(&self, bytes: u64, from_us: u64, to_us: u64, mut each: impl FnMut(usize, u64)) {
        let bins = self.slices * BINS;
        let (first, end) = (self.part(from_us, bins), self.part(to_us, bins) + 1);
        let all = self.sums[end] - self.sums[first];
        if all == 0 {
            return each(self.slice(to_us), bytes);
        }
        let mut given = 0;
        for slice in first / BINS..=(end - 1) / BINS {
            let until = ((slice + 1) * BINS).min(end);
            let changes = self.sums[until] - self.sums[first];
            let due = (u128::from(bytes) * u128::from(changes) / u128::from(all)) as u64;
            each(slice, due - given);
            given = due;
        }
    }
}

fn is_change(kind: StepKind) -> bool {
    matches!(kind, StepKind::Write | StepKind::WriteSync | StepKind::Folio | StepKind::Drop)
}

/// Counts the cost of requests by slice: bytes written or, with a device, its seconds.
pub(crate) struct Meter<'a> {
    trace: &'a Trace,
    changes: &'a ChangeTimes,
    /// Time for which a change may wait.
    window_us: u64,
    /// Steps that were taken.
    steps: usize,
    /// By page: the slice in which it became dirty.
    since: Vec<u8>,
    costs: Vec<f64>,
    clocks: Option<Clocks>,
    /// The slice of the last request, and the time on the device until it began.
    slice: usize,
    before_ns: u64,
}

impl<'a> Meter<'a> {
    /// Memory of a meter without its device.
    pub(crate) fn held_bytes(trace: &Trace) -> u64 {
        u64::from(trace.pages())
    }

    pub(crate) fn new(
        trace: &'a Trace,
        changes: &'a ChangeTimes,
        window_us: u64,
        clocks: Option<Clocks>,
    ) -> Self {
        Self {
            trace,
            changes,
            window_us,
            steps: 0,
            since: vec![CLEAN; trace.pages() as usize],
            costs: vec![0.0; changes.slices],
            clocks,
            slice: 0,
            before_ns: 0,
        }
    }

    /// Takes a request; they come in the order of time. Its pages count as one if a device is
    /// metered, else it has one page.
    pub(crate) fn take(&mut self, io: &Io) {
        self.advance(io.at_us);
        let bytes = u64::from(io.pages) * PAGE_BYTES;
        let page = io.cause.page.filter(|_| io.op == IoOp::Write);
        let since = page.map(|page| std::mem::replace(&mut self.since[page.0 as usize], CLEAN));
        let dirtied = since.filter(|since| *since != CLEAN).map(usize::from);
        let slice = dirtied.unwrap_or_else(|| self.changes.slice(io.at_us));
        if let Some(clocks) = &mut self.clocks {
            if slice != self.slice {
                let now_ns = clocks.times().elapsed_ns;
                self.costs[self.slice] += (now_ns - self.before_ns) as f64 / 1e9;
                (self.before_ns, self.slice) = (now_ns, slice);
            }
            clocks.io(io);
        } else if io.op == IoOp::Write {
            let costs = &mut self.costs;
            match page {
                // Blocks of the file system, which no process waits for.
                None if !io.sync => {
                    let from_us = io.at_us.saturating_sub(self.window_us);
                    let add = |slice: usize, bytes: u64| costs[slice] += bytes as f64;
                    self.changes.share(bytes, from_us, io.at_us, add);
                }
                _ => costs[slice] += bytes as f64,
            }
        }
    }

    /// Notes which pages became dirty or were removed until this time.
    fn advance(&mut self, now_us: u64) {
        let steps = self.trace.steps();
        while let Some(step) = steps.get(self.steps).filter(|_| self.at_us() <= now_us) {
            if is_change(step.kind()) {
                let slice = self.changes.slice(self.at_us()) as u8;
                let range = step.range();
                for since in &mut self.since[range.start as usize..range.end as usize] {
                    match step.kind() {
                        StepKind::Drop => *since = CLEAN,
                        _ if *since == CLEAN => *since = slice,
                        _ => {}
                    }
                }
            }
            self.steps += 1;
        }
    }

    fn at_us(&self) -> u64 {
        self.trace.at_us(self.steps)
    }

    pub(crate) fn finish(mut self) -> Vec<f64> {
        if let Some(clocks) = &self.clocks {
            let now_ns = clocks.times().elapsed_ns;
            self.costs[self.slice] += (now_ns - self.before_ns) as f64 / 1e9;
        }
        self.costs
    }
}
