//! The size of read-ahead that costs a trace the least time on a device.
//!
//! Every power of two from 4 KiB to 4 MiB, and no read-ahead, is simulated. Small windows need more
//! requests; large ones read pages that no access uses, and evict others for them. The smallest
//! size that takes at most 1 % more time than the best is proposed, as a larger one reads more for
//! nothing, if it saves time for certain over the present one. Otherwise that is kept.
//!
//! A page fault also maps the cached pages around it. Programs use these without a fault, so no
//! trace has these uses. With a smaller maximum than that of the recording, fewer pages would be
//! cached and mapped, and there would be faults that the trace lacks: the time is a lower bound. Of
//! a trace with faults, no maximum below that of the recording is therefore proposed.

use super::{Policies, PreparedDevice, Request, Study, StudyError, run::Sent};
use flashsift_caches::{
    policy,
    trace::{StepKind, Trace},
};
use flashsift_events::{io::Io, show};
use flashsift_files::judge::{Judgement, SLICES, SLICES_MIN};
use flashsift_pages::{
    device::Clocks,
    readahead::{self, ReadAheadModel, native_maximum},
    system::Outcome,
    writeback::Modes,
};

/// The conditions of a search.
pub struct CurveConditions {
    /// The policy of the cache.
    pub policy: policy::Selection,
    /// Its size in frames.
    pub frames: u32,
    /// The device whose time counts.
    pub device: PreparedDevice,
    /// Generation of the kernel and folios, as parameters of `linux` without its maximum; empty:
    /// the defaults.
    pub params: String,
    /// The maximum that is set now, KiB, at most [`PRESENT_KIB_MAX`].
    pub present_kib: u32,
    /// The maximum that was set while the trace was recorded, KiB.
    pub recorded_kib: u32,
    /// Memory that the trace and its cells may take.
    pub memory_limit_bytes: u64,
    /// Cells that run at once.
    pub workers: usize,
}

/// Maxima that are tried, KiB; 0: no read-ahead.
pub const SIZES_KIB: [u32; 12] = [0, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096];

/// The greatest maximum that is tried besides the present one, KiB.
pub const KIB_MAX: u32 = 4096;

/// The greatest present maximum, KiB.
pub const PRESENT_KIB_MAX: u32 = 16_384;

/// Share of the least time by which a size may be slower and still count as equal.
pub const FLAT_SHARE: f64 = 0.01;

/// Share of the reads from which on page faults count.
pub const FAULTS_SHARE: f64 = 0.01;

/// Fewest windows of the present maximum from which a size is proposed.
pub const WINDOWS_MIN: u64 = 1000;

/// A search over one trace. Each size is a cell, which the caller may run in any thread.
pub struct CurveSearch<'a> {
    trace: &'a Trace,
    conditions: CurveConditions,
    sizes_kib: Vec<u32>,
    at_once: usize,
}

/// One size.
#[derive(Clone, Debug)]
pub struct CurvePoint {
    /// The maximum in KiB; 0: no read-ahead.
    pub kib: u32,
    /// Hits, prefetches and requests.
    pub outcome: Outcome,
    /// Time on the device, each request sent when the one before it completes.
    pub elapsed_s: f64,
    /// How long applications wait, with requests at their recorded times; `None` without times.
    pub stall_s: Option<f64>,
    /// [`Self::elapsed_s`] by slice of the trace, each with as many reads.
    pub by_slice_s: Vec<f64>,
}

/// The time by size, and what follows from it.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Sizes ascending.
    pub points: Vec<CurvePoint>,
    /// Index of the first size whose time is no lower bound: 0 for a trace without page faults.
    pub judged_from: usize,
    /// Index of the size that takes the least time, from [`Self::judged_from`] on.
    pub best: usize,
    /// Index of the size that is set now.
    pub present: usize,
    /// Index of the size to set: the smallest that takes at most [`FLAT_SHARE`] more than the best,
    /// if it saves time for certain ([`Judgement::recommends`]), else the present one.
    pub proposed: usize,
    /// Indices of the sizes around the best that take at most [`FLAT_SHARE`] more.
    pub flat: std::ops::RangeInclusive<usize>,
    /// The time that the smallest size of [`Self::flat`] saves over the present one.
    pub saving: Judgement,
    /// The tuning paper's native maximum for this trace, KiB.
    pub native_kib: u64,
    /// Pages that 99 % of the reads do not exceed, from which it follows.
    pub request_pages: u64,
    /// The reason for which the trace is too short to propose a size.
    pub lack: Option<CurveLack>,
}

/// The reason for which a trace is too short to propose a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CurveLack {
    /// It reads too little ahead.
    #[error(
        "the trace is too short to propose a size: the present one reads {}, and a proposal needs \
         {WINDOWS_MIN}",
        show::counted(*.windows, "window")
    )]
    Windows {
        /// Windows of the present size.
        windows: u64,
    },
    /// Its times do not cut it into enough slices.
    #[error(
        "the reads of the trace fall into {slices} of {SLICES} slices with different times, and a \
         proposal needs {SLICES_MIN}"
    )]
    Slices {
        /// Slices with requests.
        slices: usize,
    },
}

impl<'a> CurveSearch<'a> {
    /// Checks that the conditions suit the trace, which has the table of reads for
    /// [`Self::reach_pages`].
    ///
    /// # Errors
    /// A cell over this trace is not possible.
    pub fn new(trace: &'a Trace, conditions: CurveConditions) -> Result<Self, StudyError> {
        let mut sizes_kib = SIZES_KIB.to_vec();
        sizes_kib.push(conditions.present_kib);
        sizes_kib.sort_unstable();
        sizes_kib.dedup();
        let free_bytes = conditions.memory_limit_bytes.saturating_sub(trace.held_bytes() as u64);
        let workers = conditions.workers.max(1);
        let mut search = Self { trace, conditions, sizes_kib, at_once: 1 };
        let study = search.study(search.sizes_kib.len() - 1)?;
        let cell_bytes = study.plan()?.cells()[0].memory_bytes.max(1);
        let fitting = usize::try_from(free_bytes / cell_bytes).unwrap_or(usize::MAX);
        search.at_once = fitting.clamp(1, workers);
        Ok(search)
    }

    /// Returns how far the table of reads must reach, with these [`CurveConditions::params`] and
    /// this present maximum.
    ///
    /// # Panics
    /// If `linux` does not take the parameters, or the maximum is above [`PRESENT_KIB_MAX`].
    pub fn reach_pages(params: &str, present_kib: u32) -> u32 {
        // Advice to read in order doubles the present one.
        let kib = KIB_MAX.max(present_kib.saturating_mul(2)).min(PRESENT_KIB_MAX);
        let reach_pages = ReadAheadModel::new(&readahead_of(kib, params)).reach_pages();
        if present_kib > PRESENT_KIB_MAX / 2 { 2 * reach_pages } else { reach_pages }
    }

    /// Returns the number of cells.
    pub fn cells(&self) -> usize {
        self.sizes_kib.len()
    }

    /// Returns how many cells the memory limit allows at once.
    pub fn at_once(&self) -> usize {
        self.at_once
    }

    /// Returns the trace.
    pub fn trace(&self) -> &'a Trace {
        self.trace
    }

    /// Returns the conditions.
    pub fn conditions(&self) -> &CurveConditions {
        &self.conditions
    }

    pub(super) fn study(&self, cell: usize) -> Result<Study<'a>, StudyError> {
        let CurveConditions { policy, frames, params, device, .. } = &self.conditions;
        let mut policies = Policies::default();
        policies.add(policy.clone());
        let request = Request {
            policies,
            frames: vec![*frames],
            readaheads: vec![readahead_of(self.sizes_kib[cell], params)],
            writeback: Modes::default_for(self.trace).modes,
            devices: vec![device.clone()],
            observer_bytes: Some(0),
            memory_limit_bytes: self.conditions.memory_limit_bytes,
            workers: self.conditions.workers,
            ..Request::default()
        };
        Study::new(self.trace, request)
    }

    /// Returns the cell of the present maximum.
    pub(super) fn present(&self) -> usize {
        let present_kib = self.conditions.present_kib;
        self.sizes_kib.iter().position(|kib| *kib == present_kib).expect("it is tried")
    }

    /// Simulates one size.
    ///
    /// # Errors
    /// The cell cannot be simulated.
    ///
    /// # Panics
    /// If `cell` is not below [`Self::cells`].
    pub fn run(&self, cell: usize) -> Result<CurvePoint, StudyError> {
        let study = self.study(cell)?;
        let plan = study.plan()?;
        let times = self.trace.about().knows.times;
        let clocks = self.conditions.device.clocks(times);
        let mut meter = SliceMeter::new(slice_begins_us(&read_times_us(self.trace)), clocks);
        let mut take = |sent: Sent<'_>| {
            if let Sent::Requests(requests) = sent {
                meter.take(requests);
            }
        };
        let result = plan.run(0, &|| 0, Some(&mut take));
        let on = &result.times[0];
        Ok(CurvePoint {
            kib: self.sizes_kib[cell],
            outcome: result.outcome,
            elapsed_s: on.elapsed_ns as f64 / 1e9,
            stall_s: on.stall_ns.map(|ns| ns as f64 / 1e9),
            by_slice_s: meter.finish(),
        })
    }

    /// Puts all sizes, in the order of cells, into a curve.
    ///
    /// # Panics
    /// Unless there is one point a cell.
    pub fn curve(&self, points: Vec<CurvePoint>) -> Curve {
        assert!(points.iter().map(|point| point.kib).eq(self.sizes_kib.iter().copied()));
        let present_kib = self.conditions.present_kib;
        let request_pages = common_request_pages(self.trace);
        let bounded_kib = if has_faults(self.trace) { self.conditions.recorded_kib } else { 0 };
        Curve::new(points, present_kib, request_pages, bounded_kib)
    }
}

impl Curve {
    /// The times of sizes below `bounded_kib` are lower bounds.
    fn new(
        points: Vec<CurvePoint>,
        present_kib: u32,
        request_pages: u64,
        bounded_kib: u32,
    ) -> Self {
        let time = |n: &usize| points[*n].elapsed_s;
        let present = points.iter().position(|point| point.kib == present_kib);
        let present = present.expect("it was tried");
        let judged = points.iter().position(|point| point.kib >= bounded_kib);
        let judged_from = judged.unwrap_or(points.len() - 1);
        let best =
            (judged_from..points.len()).min_by(|one, other| time(one).total_cmp(&time(other)));
        let best = best.expect("sizes were tried");
        let limit_s = points[best].elapsed_s * (1.0 + FLAT_SHARE);
        let is_flat = |n: &usize| points[*n].elapsed_s <= limit_s;
        let first = (judged_from..=best).rev().take_while(is_flat).last().unwrap_or(best);
        let last = (best..points.len()).take_while(is_flat).last().unwrap_or(best);
        let saving = Judgement::new(&points[present].by_slice_s, &points[first].by_slice_s);
        let windows = points[present].outcome.readahead.windows;
        let with_reads = points[present].by_slice_s.iter().filter(|seconds| **seconds > 0.0);
        let lack = match with_reads.count() {
            _ if windows < WINDOWS_MIN && present_kib > 0 => Some(CurveLack::Windows { windows }),
            slices if slices < SLICES_MIN => Some(CurveLack::Slices { slices }),
            _ => None,
        };
        Self {
            judged_from,
            best,
            present,
            proposed: if saving.recommends() { first } else { present },
            flat: first..=last,
            saving,
            native_kib: 4 * native_maximum(request_pages),
            request_pages,
            lack,
            points,
        }
    }
}

fn readahead_of(kib: u32, params: &str) -> readahead::Selection {
    let text = match kib {
        0 => "off".to_owned(),
        kib => format!("linux:kib={kib},{params}"),
    };
    readahead::parse(&text).expect("the parameters were checked")
}

/// Returns the times of all reads of a trace, microseconds, ascending.
pub(super) fn read_times_us(trace: &Trace) -> Vec<u64> {
    let is_read = |n: &usize| trace.steps()[*n].kind() == StepKind::Read;
    (0..trace.steps().len()).filter(is_read).map(|n| trace.at_us(n)).collect()
}

/// Returns the times at which the second and later slices begin, if each has as many of the reads.
pub(super) fn slice_begins_us(reads_us: &[u64]) -> Vec<u64> {
    let begin = |slice: usize| reads_us.get(reads_us.len() * slice / SLICES);
    (1..SLICES).filter_map(begin).copied().collect()
}

/// Measures the time on a device by slice of a trace.
pub(super) struct SliceMeter {
    clocks: Clocks,
    /// Times at which the second and later slices begin, microseconds, ascending.
    begins_us: Vec<u64>,
    by_slice_s: Vec<f64>,
    /// Time on the device until the beginning of the slice.
    before_ns: u64,
    slice: usize,
}

impl SliceMeter {
    pub(super) fn new(begins_us: Vec<u64>, clocks: Clocks) -> Self {
        let by_slice_s = vec![0.0; begins_us.len() + 1];
        Self { clocks, begins_us, by_slice_s, before_ns: 0, slice: 0 }
    }

    pub(super) fn take(&mut self, requests: &[Io]) {
        for io in requests {
            // Requests come in the order of time.
            while self.begins_us.get(self.slice).is_some_and(|begin_us| io.at_us >= *begin_us) {
                self.close();
                self.slice += 1;
            }
            self.clocks.io(io);
        }
    }

    fn close(&mut self) {
        let now_ns = self.clocks.times().elapsed_ns;
        self.by_slice_s[self.slice] = (now_ns - self.before_ns) as f64 / 1e9;
        self.before_ns = now_ns;
    }

    pub(super) fn finish(mut self) -> Vec<f64> {
        self.close();
        self.by_slice_s
    }
}

/// Returns whether a relevant share of the reads are page faults.
fn has_faults(trace: &Trace) -> bool {
    let (mut faults, mut reads) = (0_u64, 0_u64);
    for (n, step) in trace.steps().iter().enumerate() {
        if step.kind() == StepKind::Read {
            reads += 1;
            faults += u64::from(trace.read(n).is_fault);
        }
    }
    reads > 0 && faults as f64 >= FAULTS_SHARE * reads as f64
}

/// Returns the pages that 99 % of the reads do not exceed; 1 without reads.
fn common_request_pages(trace: &Trace) -> u64 {
    let reads = trace.steps().iter().filter(|step| step.kind() == StepKind::Read);
    let mut sizes: Vec<u32> = reads.map(|step| step.pages()).filter(|pages| *pages > 0).collect();
    if sizes.is_empty() {
        return 1;
    }
    let at = (sizes.len() - 1) * 99 / 100;
    u64::from(*sizes.select_nth_unstable(at).1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flashsift_pages::readahead::Counts;

    fn curve(times_s: &[(u32, f64)], present_kib: u32, windows: u64) -> Curve {
        curve_of(times_s, present_kib, windows, 0)
    }

    fn curve_of(times_s: &[(u32, f64)], present_kib: u32, windows: u64, bounded_kib: u32) -> Curve {
        let point = |(kib, elapsed_s): &(u32, f64)| CurvePoint {
            kib: *kib,
            outcome: Outcome {
                readahead: Counts { windows, ..Counts::default() },
                ..Outcome::default()
            },
            elapsed_s: *elapsed_s,
            stall_s: None,
            by_slice_s: vec![elapsed_s / 20.0; 20],
        };
        Curve::new(times_s.iter().map(point).collect(), present_kib, 32, bounded_kib)
    }

    /// The smallest size of the flat region is proposed, not the best: 64 KiB takes 0.5 % more.
    // Promises: Read-ahead 8.
    #[test]
    fn the_smallest_of_equal_sizes_is_proposed() {
        let times = [(0, 9.0), (32, 3.0), (64, 2.01), (128, 2.0), (256, 2.015), (512, 2.5)];
        let found = curve(&times, 512, 5000);
        assert_eq!((found.best, found.proposed, found.flat.clone()), (3, 2, 2..=4));
        assert_eq!((found.present, found.lack), (5, None));
        assert!((found.saving.saving - 0.49).abs() < 1e-9 && found.saving.recommends());
        assert_eq!(found.native_kib, 64);
    }

    /// A device that is busy with writes takes the same time with every size: no reason to change.
    // Promises: Read-ahead 8.
    #[test]
    fn a_size_that_saves_nothing_is_not_proposed() {
        let found = curve(&[(0, 2.0), (64, 2.0), (128, 2.0)], 128, 5000);
        assert_eq!((found.proposed, found.flat.clone(), found.lack), (2, 0..=2, None));
    }

    /// With less read-ahead there would be faults that the trace does not have.
    // Promises: Read-ahead 8.
    #[test]
    fn a_size_below_that_of_a_recording_with_faults_is_not_proposed() {
        let times = [(0, 1.0), (64, 1.5), (128, 2.0), (256, 1.2), (512, 1.3)];
        let found = curve_of(&times, 128, 5000, 128);
        assert_eq!((found.best, found.proposed, found.flat.clone()), (3, 3, 3..=3));
        let found = curve_of(&times[..3], 128, 5000, 128);
        assert_eq!((found.best, found.proposed, found.flat.clone()), (2, 2, 2..=2));
        assert_eq!(curve_of(&times, 128, 5000, 16).proposed, 3);
        assert_eq!(curve(&times, 128, 5000).proposed, 0);
        assert_eq!(curve_of(&times, 128, 5000, 8192).best, 4);
    }

    // Promises: Read-ahead 8.
    #[test]
    fn a_short_trace_proposes_nothing() {
        let found = curve(&[(0, 9.0), (128, 2.0)], 128, 999);
        assert_eq!(found.lack, Some(CurveLack::Windows { windows: 999 }));
        assert!(found.lack.unwrap().to_string().contains("999 windows"));
    }
}
