//! Modelled devices of a study: what a cell comes to on each of them.

use crate::{
    device::{
        Clocks, DeviceTimes, LabelledProfile, Prepared, Profile, ProfileError, profile::StorageKind,
        wear::Endurance,
    },
    page::PAGE_BYTES,
    system::Outcome,
    trace::Trace,
};
use serde::Serialize;
use std::sync::Arc;

/// A device that any number of cells can begin with. A clone shares what preparing it made.
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

    /// The label that it was given.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Its constants.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// The device under both clocks, as it is before its first request.
    pub(super) fn clocks(&self, times: bool) -> Clocks {
        Clocks::new(&self.prepared, times)
    }
}

/// What a cell comes to on a device.
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceResult {
    /// [`PreparedDevice::label`].
    pub device: Arc<str>,
    /// From the first request to the last one done, each sent when the one before it is done.
    pub elapsed_s: f64,
    /// How long applications wait, with requests at their recorded times; `None` without times.
    pub stall_s: Option<f64>,
    /// Pages programmed for each page written; `None` if nothing is written.
    pub write_amplification: Option<f64>,
    /// Pages programmed for the pages written and those still dirty; `None` if there are none.
    pub flash_pages: Option<f64>,
    /// How much longer the flash lives than under the reference policy at the same size, as a
    /// share; `None` if nothing wears.
    pub lifetime_gain: Option<f64>,
    /// `None` if the trace or the profile does not tell.
    pub lifetime: Option<Lifetime>,
}

/// CacheSifter's equation 3, with the values that it was computed from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Lifetime {
    /// How long the flash lives if every day is as the trace, without pause.
    pub years: f64,
    /// The values.
    #[serde(flatten)]
    pub endurance: Endurance,
}

impl DeviceResult {
    /// Without a lifetime gain, which takes the reference's result, too.
    pub(super) fn new(
        device: &PreparedDevice,
        trace: &Trace,
        outcome: &Outcome,
        times: &DeviceTimes,
    ) -> Self {
        let write_amplification = times.wear.write_amplification();
        Self {
            device: device.label.clone(),
            elapsed_s: times.elapsed_ns as f64 / 1e9,
            stall_s: times.stall_ns.map(|ns| ns as f64 / 1e9),
            write_amplification,
            flash_pages: write_amplification.map(|wear| wear * outcome.writes_due() as f64),
            lifetime_gain: None,
            lifetime: lifetime(device.profile(), trace, outcome, times),
        }
    }
}

/// Not of memory cards: no source says how many cycles they stand.
fn lifetime(profile: &Profile, trace: &Trace, outcome: &Outcome, times: &DeviceTimes) -> Option<Lifetime> {
    let days = trace.totals().duration_us as f64 / 86_400e6;
    let written_bytes = outcome.writes_due() as f64 * PAGE_BYTES as f64;
    let has_times = trace.about().knows.times;
    if profile.kind == StorageKind::Sd || !has_times || days == 0.0 || written_bytes == 0.0 {
        return None;
    }
    let endurance = Endurance {
        cycles: profile.cycles?,
        over_provisioning: profile.model.over_provisioning(),
        drive_writes_per_day: written_bytes / days / profile.model.capacity_bytes()? as f64,
        write_amplification: times.wear.write_amplification()?,
        compression: 1.0,
    };
    Some(Lifetime { years: endurance.lifetime_years(), endurance })
}
