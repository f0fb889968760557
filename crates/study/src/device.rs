//! Modelled devices of a study, and the result of a cell on each of them.

use flashsift_caches::trace::Trace;
use flashsift_events::page::PAGE_BYTES;
use flashsift_pages::{
    device::{
        Clocks, DeviceTimes, Fill, LabelledProfile, Prepared, Profile, ProfileError,
        lifetime::{DailyWrites, Flash, Lifetime, NoLifetime, lifetime},
        wear::NotShown,
    },
    system::Outcome,
};
use std::sync::Arc;

/// A device in the state with which every cell begins. Clones share the prepared state.
#[derive(Clone)]
pub struct PreparedDevice {
    label: Arc<str>,
    profile: Arc<Profile>,
    prepared: Arc<Prepared>,
}

impl PreparedDevice {
    /// Prepares a device: fills it as its profile says. Results name it by its label.
    ///
    /// # Errors
    /// A constant of the profile is out of its bounds.
    pub fn new(selection: LabelledProfile) -> Result<Self, ProfileError> {
        let prepared = Arc::new(Prepared::new(&selection.profile)?);
        let label = selection.label.into();
        Ok(Self { label, profile: Arc::new(selection.profile), prepared })
    }

    /// Returns the label that the device was given.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the constants of the device.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Estimates the memory under both clocks for a trace of `pages` pages, in bytes.
    pub(super) fn held_bytes(&self, pages: u32) -> u64 {
        Clocks::held_bytes(pages, self.profile.model.table_bytes())
    }

    /// Returns the device under both clocks, in the state before its first request.
    pub(super) fn clocks(&self, times: bool) -> Clocks {
        Clocks::new(&self.prepared, times)
    }
}

/// The result of a cell on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceResult {
    /// [`PreparedDevice::label`].
    pub device: Arc<str>,
    /// Content of the device before the first request; `None` where it makes no difference.
    pub fill: Option<Fill>,
    /// Time from the first request to the completion of the last. Each is sent when the one before
    /// it completes.
    pub elapsed_s: f64,
    /// The part of it that reads take.
    pub read_s: f64,
    /// How long applications wait, with requests at their recorded times; `None` without times.
    pub stall_s: Option<f64>,
    /// Reads of applications by case, in the order of
    /// [`flashsift_pages::readahead::ReadCase::ALL`], if read-aheads are compared.
    pub read_cases: Option<[CaseLatency; 4]>,
    /// Pages programmed for each page written, or the reason why the run does not show them.
    pub write_amplification: Result<f64, NotShown>,
    /// Pages programmed for the pages written and those still dirty; `None` without a write
    /// amplification.
    pub flash_pages: Option<f64>,
    /// Gain in the flash's lifetime over the reference policy at the same size, as a share; `None`
    /// if nothing wears.
    pub lifetime_gain: Option<f64>,
    /// Bytes written in a day if every day is like the trace, including those still dirty at its
    /// end; `None` without times.
    pub daily: Option<DailyWrites>,
    /// Writes of the whole device in a day; `None` without times or a capacity.
    pub drive_writes_per_day: Option<f64>,
    /// Years that the flash lasts, or the value that they lack.
    pub lifetime: Result<Lifetime, NoLifetime>,
}

/// The reads of one case, and what they wait for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CaseLatency {
    /// Reads of applications, each of any number of pages.
    pub reads: u64,
    /// Their part of [`DeviceResult::elapsed_s`], without pages read ahead that they do not wait
    /// for.
    pub elapsed_s: f64,
    /// Their part of [`DeviceResult::stall_s`].
    pub stall_s: Option<f64>,
}

impl CaseLatency {
    /// Returns the mean time on the device in microseconds, each request sent when the one before
    /// it completes; `None` without reads.
    pub fn latency_us(&self) -> Option<f64> {
        (self.reads > 0).then(|| self.elapsed_s * 1e6 / self.reads as f64)
    }

    /// Returns the mean wait in microseconds, with requests at their recorded times; `None` without
    /// reads or times.
    pub fn stall_us(&self) -> Option<f64> {
        self.stall_s.filter(|_| self.reads > 0).map(|stall_s| stall_s * 1e6 / self.reads as f64)
    }
}

impl DeviceResult {
    /// Leaves out the lifetime gain, which also needs the reference's result.
    pub(super) fn new(
        device: &PreparedDevice,
        trace: &Trace,
        outcome: &Outcome,
        times: &DeviceTimes,
        reads_by_case: Option<[u64; 4]>,
    ) -> Self {
        let write_amplification = times.wear.write_amplification();
        let daily = DailyWrites::new(outcome.pages_due() * PAGE_BYTES, observed_us(trace));
        let capacity_bytes = device.profile().model.capacity_bytes();
        Self {
            device: device.label.clone(),
            fill: device.profile().model.fill(),
            elapsed_s: times.elapsed_ns as f64 / 1e9,
            read_s: times.read_ns as f64 / 1e9,
            stall_s: times.stall_ns.map(|ns| ns as f64 / 1e9),
            read_cases: reads_by_case.map(|reads| {
                std::array::from_fn(|case| CaseLatency {
                    reads: reads[case],
                    elapsed_s: times.elapsed_by_case_ns[case] as f64 / 1e9,
                    stall_s: times.stall_by_case_ns.map(|by_case| by_case[case] as f64 / 1e9),
                })
            }),
            write_amplification,
            flash_pages: write_amplification.ok().map(|wear| wear * outcome.pages_due() as f64),
            lifetime_gain: None,
            daily,
            drive_writes_per_day: daily
                .zip(capacity_bytes)
                .map(|(daily, bytes)| daily.drive_writes_per_day(bytes)),
            lifetime: lifetime_of(device.profile(), trace, outcome, times),
        }
    }
}

fn lifetime_of(
    profile: &Profile,
    trace: &Trace,
    outcome: &Outcome,
    times: &DeviceTimes,
) -> Result<Lifetime, NoLifetime> {
    let flash = Flash::new(profile, times.wear.write_amplification())?;
    lifetime(outcome.pages_due() * PAGE_BYTES, observed_us(trace), &flash)
}

/// Returns the duration that is scaled to a day; 0 without times.
fn observed_us(trace: &Trace) -> u64 {
    if trace.about().knows.times { trace.totals().duration_us } else { 0 }
}
