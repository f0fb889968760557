//! Fits a profile of the simulator to the measurement, and reports how far the two differ.

use super::{Found, Pattern};
use flashsift_core::{
    back::{Io, IoOp},
    device::{
        AnyDevice, Device, Fill, Model, Profile, ProfileError, latency, open_unit,
        profile::StorageKind,
    },
    page::PAGE_BYTES,
};
use std::collections::BTreeMap;

/// A profile, and a list of the values that the measurement does not show.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The simulator's profile of the device.
    pub profile: Profile,
    /// Values that the measurement does not show, one sentence each.
    pub unknown: Vec<String>,
    /// Each measured pattern with its time on the model, nanoseconds.
    pub patterns: Vec<(Pattern, u64)>,
}

impl Fitted {
    /// Returns the largest relative error of the model over the patterns; 0 if there is none.
    pub fn worst_error(&self) -> f64 {
        self.patterns
            .iter()
            .map(|(pattern, model_ns)| error(pattern, *model_ns).abs())
            .fold(0.0, f64::max)
    }
}

/// Returns the relative error of the model for one pattern; positive if the model is slower.
pub fn error(pattern: &Pattern, model_ns: u64) -> f64 {
    model_ns as f64 / pattern.took_ns.max(1) as f64 - 1.0
}

/// Fits a model to the measurement: open units if there is a cliff, else a constant latency for
/// each page. `measured` says on which device and when.
///
/// # Errors
///
/// The fitted values do not make a valid profile.
pub fn fit(found: &Found, capacity_bytes: u64, measured: &str) -> Result<Fitted, ProfileError> {
    let mut unknown = Vec::new();
    let mut sources = BTreeMap::new();
    let mut source = |names: &[&str], text: &str| {
        sources.extend(names.iter().map(|name| ((*name).to_owned(), text.to_owned())));
    };
    let (what, model) = match &found.units {
        Ok(units) => {
            let unit_bytes = units.unit_pages * PAGE_BYTES;
            source(&["unit_bytes", "open_units", "copy_us", "erase_us", "program_us"], measured);
            source(&["read_us", "far_read_us"], measured);
            source(&["capacity_bytes"], "the target's size");
            source(&["fill"], "the target was filled before the measurement");
            if units.first_page > 0 {
                unknown.push(format!(
                    "Units begin {} KiB after the beginning of the target; in the model they begin \
                     at 0.",
                    units.first_page * 4
                ));
            }
            if units.erase_error_us > units.erase_us {
                unknown.push(format!(
                    "erase_us is small against other costs of closing a unit: its error may be \
                     {:.0} µs.",
                    units.erase_error_us
                ));
            }
            let model = Model::OpenUnit(open_unit::OpenUnitParams {
                capacity_bytes: capacity_bytes / unit_bytes * unit_bytes,
                unit_bytes,
                open_units: units.open_units,
                read_us: found.read_us,
                far_read_us: (found.far_read_us - found.read_us).max(0.0),
                program_us: found.write_us,
                copy_us: units.copy_us,
                erase_us: units.erase_us,
                fill: Fill::InOrder,
            });
            (format!("open units: {} KiB, {} open", unit_bytes >> 10, units.open_units), model)
        }
        Err(why) => {
            source(
                &["read_us", "write_us"],
                &format!("mean of sorted and random requests, {measured}"),
            );
            unknown.push(format!("Size and number of open units: {why}."));
            let model = latency::LatencyParams {
                read_us: mean_us(found, false),
                write_us: mean_us(found, true),
            };
            ("constant latency for each page, no units visible".to_owned(), Model::Latency(model))
        }
    };
    unknown.push("Program/erase cycles: no measurement shows them.".to_owned());
    let what = format!("{what}; {measured}");
    let profile = Profile {
        what,
        kind: StorageKind::Other,
        cycles: None,
        best_case: Vec::new(),
        model,
        sources,
    };
    let patterns = replayed(&profile, &found.patterns)?;
    Ok(Fitted { profile, unknown, patterns })
}

/// Mean time for a page over all patterns, µs.
fn mean_us(found: &Found, write: bool) -> f64 {
    let patterns = || found.patterns.iter().filter(|pattern| pattern.write == write);
    let took_ns: u64 = patterns().map(|pattern| pattern.took_ns).sum();
    took_ns as f64 / 1e3 / patterns().map(|pattern| pattern.pages.len()).sum::<usize>() as f64
}

/// Performs the same requests on the model.
fn replayed(profile: &Profile, patterns: &[Pattern]) -> Result<Vec<(Pattern, u64)>, ProfileError> {
    let mut machine = AnyDevice::new(profile)?;
    let mut now_ns = 0;
    Ok(patterns
        .iter()
        .map(|pattern| {
            let begun_ns = now_ns;
            let op = if pattern.write { IoOp::Write } else { IoOp::Read };
            for page in &pattern.pages {
                let io = Io { at_us: 0, op, lba: *page, pages: 1, sync: false, awaited: false };
                now_ns = machine.serve(&io, now_ns);
            }
            (pattern.clone(), now_ns - begun_ns)
        })
        .collect())
}
