//! Modelled devices of a study, and the result of a cell on each of them.

use crate::{
    device::{
        Clocks, DeviceTimes, Fill, LabelledProfile, Prepared, Profile, ProfileError,
        profile::StorageKind,
        wear::{Endurance, NotShown},
    },
    page::PAGE_BYTES,
    system::Outcome,
    trace::Trace,
};
use serde::Serialize;
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
    /// How long applications wait, with requests at their recorded times; `None` without times.
    pub stall_s: Option<f64>,
    /// Pages programmed for each page written, or the reason why the run does not show them.
    pub write_amplification: Result<f64, NotShown>,
    /// Pages programmed for the pages written and those still dirty; `None` without a write
    /// amplification.
    pub flash_pages: Option<f64>,
    /// Gain in the flash's lifetime over the reference policy at the same size, as a share; `None`
    /// if nothing wears.
    pub lifetime_gain: Option<f64>,
    /// `None` if the trace or the profile lacks a value that the lifetime needs.
    pub lifetime: Option<Lifetime>,
}

/// CacheSifter's equation 3, with the values that it was computed from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lifetime {
    /// Years that the flash lasts if every day is like the trace, without pause.
    pub years: f64,
    /// The values that the years were computed from.
    #[serde(flatten)]
    pub endurance: Endurance,
}

impl DeviceResult {
    /// Leaves out the lifetime gain, which also needs the reference's result.
    pub(super) fn new(
        device: &PreparedDevice,
        trace: &Trace,
        outcome: &Outcome,
        times: &DeviceTimes,
    ) -> Self {
        let write_amplification = times.wear.write_amplification();
        Self {
            device: device.label.clone(),
            fill: device.profile().model.fill(),
            elapsed_s: times.elapsed_ns as f64 / 1e9,
            stall_s: times.stall_ns.map(|ns| ns as f64 / 1e9),
            write_amplification,
            flash_pages: write_amplification.ok().map(|wear| wear * outcome.pages_due() as f64),
            lifetime_gain: None,
            lifetime: lifetime(device.profile(), trace, outcome, times),
        }
    }
}

/// `None` for memory cards: no source states how many cycles they endure.
fn lifetime(
    profile: &Profile,
    trace: &Trace,
    outcome: &Outcome,
    times: &DeviceTimes,
) -> Option<Lifetime> {
    let days = trace.totals().duration_us as f64 / 86_400e6;
    let written_bytes = outcome.pages_due() as f64 * PAGE_BYTES as f64;
    let has_times = trace.about().knows.times;
    if profile.kind == StorageKind::Sd || !has_times || days == 0.0 || written_bytes == 0.0 {
        return None;
    }
    let endurance = Endurance {
        cycles: profile.cycles?,
        over_provisioning: profile.model.over_provisioning(),
        drive_writes_per_day: written_bytes / days / profile.model.capacity_bytes()? as f64,
        write_amplification: times.wear.write_amplification().ok()?,
        compression: 1.0,
    };
    Some(Lifetime { years: endurance.lifetime_years(), endurance })
}
