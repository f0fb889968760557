//! Fits a profile of the simulator to the measurement, and reports how far the two differ.

use super::{Figure, Found, MAP_STRIDE, PageMapped, Pattern, ROUNDS};
use flashsift_events::{
    io::{Cause, Io, IoOp},
    page::PAGE_BYTES,
};
use flashsift_pages::device::{
    AnyDevice, Device, Fill, Model, Profile, ProfileError, latency, open_unit, page_mapped,
    profile::StorageKind,
};
use std::collections::BTreeMap;

/// A profile, and a list of the values that the measurement does not show.
#[derive(Clone, Debug)]
pub struct Fitted {
    /// The simulator's profile of the device.
    pub profile: Profile,
    /// The times in the profile that were measured, with their spread.
    pub figures: Vec<NamedFigure>,
    /// Values that the measurement does not show, one sentence each.
    pub unknown: Vec<String>,
    /// Each measured pattern with its time on the model, nanoseconds.
    pub patterns: Vec<(Pattern, u64)>,
}

/// A measured time of the profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NamedFigure {
    /// Its name in the profile.
    pub name: &'static str,
    /// Its value in the profile and its spread.
    pub figure: Figure,
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

/// A model while it is fitted.
struct Fit {
    sources: BTreeMap<String, String>,
    figures: Vec<NamedFigure>,
    unknown: Vec<String>,
    measured: String,
}

impl Fit {
    /// A measured time, with its spread as its source.
    fn time(&mut self, name: &'static str, figure: Figure) -> f64 {
        self.figures.push(NamedFigure { name, figure });
        let spread = format!(
            "{}: {:.1} to {:.1} µs in {ROUNDS} rounds",
            self.measured, figure.low_us, figure.high_us
        );
        self.sources.insert(name.to_owned(), spread);
        figure.us
    }

    fn source<T>(&mut self, name: &str, source: &str, value: T) -> T {
        self.sources.insert(name.to_owned(), source.to_owned());
        value
    }

    fn found<T>(&mut self, name: &str, value: T) -> T {
        let measured = self.measured.clone();
        self.source(name, &measured, value)
    }

    fn assumed<T>(&mut self, name: &str, why: &str, value: T) -> T {
        self.unknown.push(format!("{name}: {why}."));
        self.source(name, &format!("assumed: {why}"), value)
    }
}

/// Fits a model to the measurement: open units if there is a cliff; page-mapped if the places or
/// the sizes of requests matter; else a constant latency for each page. `measured` says on which
/// device and when.
///
/// # Errors
///
/// The fitted values do not make a valid profile.
pub fn fit(found: &Found, capacity_bytes: u64, measured: &str) -> Result<Fitted, ProfileError> {
    let mut fit = Fit {
        sources: BTreeMap::new(),
        figures: Vec::new(),
        unknown: Vec::new(),
        measured: measured.to_owned(),
    };
    let (what, model) = match (&found.units, &found.page_mapped) {
        (Ok(units), _) => {
            let unit_bytes = units.unit_pages * PAGE_BYTES;
            if units.first_page > 0 {
                fit.unknown.push(format!(
                    "Units begin {} KiB after the beginning of the target; in the model they begin \
                     at 0.",
                    units.first_page * 4
                ));
            }
            if units.erase_error_us > units.erase_us {
                fit.unknown.push(format!(
                    "erase_us is small against other costs of closing a unit: its error may be \
                     {:.0} µs.",
                    units.erase_error_us
                ));
            }
            let far = match found.far_read {
                Some(far) => fit.time("far_read_us", far.less(found.read)),
                None => {
                    let why = "reads far from their predecessor differ by no more than the rounds";
                    fit.assumed("far_read_us", why, 0.0)
                }
            };
            let bytes = capacity_bytes / unit_bytes * unit_bytes;
            let model = Model::OpenUnit(open_unit::OpenUnitParams {
                capacity_bytes: fit.source("capacity_bytes", "the target's size", bytes),
                unit_bytes: fit.found("unit_bytes", unit_bytes),
                open_units: fit.found("open_units", units.open_units),
                read_us: fit.time("read_us", found.read),
                far_read_us: far,
                program_us: fit.time("program_us", found.write),
                copy_us: fit.found("copy_us", units.copy_us),
                erase_us: fit.found("erase_us", units.erase_us),
                fill: fit.source("fill", FILLED, Fill::InOrder),
            });
            (format!("open units: {} KiB, {} open", unit_bytes >> 10, units.open_units), model)
        }
        (Err(why), parallel) => {
            fit.unknown.push(format!("Size and number of open units: {why}."));
            match parallel {
                Some(parallel) if is_page_mapped(parallel) => {
                    page_mapped(&mut fit, parallel, capacity_bytes)
                }
                _ => {
                    let model = latency::LatencyParams {
                        read_us: fit.time("read_us", found.read),
                        write_us: fit.time("write_us", found.write),
                    };
                    let what = "constant latency for each page, no units visible".to_owned();
                    (what, Model::Latency(model))
                }
            }
        }
    };
    fit.unknown.push("Program/erase cycles: no measurement shows them.".to_owned());
    let Fit { sources, figures, unknown, .. } = fit;
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
    Ok(Fitted { profile, figures, unknown, patterns })
}

const FILLED: &str = "the target was filled before the measurement";
/// Smallest part of a read that does not grow with its size, for a page-mapped device.
const FIXED_SHARE: f64 = 0.2;

/// Whether the place or the size of a request matters.
fn is_page_mapped(found: &PageMapped) -> bool {
    found.dies.is_some()
        || found.slc.is_some()
        || found.read.us - found.transfer.us > found.read.us * FIXED_SHARE
}

/// Fits a page-mapped device.
fn page_mapped(fit: &mut Fit, found: &PageMapped, capacity_bytes: u64) -> (String, Model) {
    let (transfer, transfer_us) = if found.transfer.low_us > 0.0 {
        (found.transfer, fit.time("transfer_us", found.transfer))
    } else {
        let why = "a larger read takes no longer than the rounds differ";
        let none = Figure { us: 0.0, low_us: 0.0, high_us: 0.0 };
        (none, fit.assumed("transfer_us", why, 0.0))
    };
    let read_us = fit.time("read_us", found.read.less(transfer));
    let write_us = fit.time("write_us", found.write.less(transfer));
    let (dies, nand_pages) = match found.dies {
        Some(dies) => (fit.found("dies", dies.count), fit.found("nand_pages", dies.nand_pages)),
        None => {
            let why = "writes to all places take the same time, so dies are not visible";
            (fit.assumed("dies", why, 1), fit.assumed("nand_pages", why, 8))
        }
    };
    let direct = match (found.dies, found.slc) {
        (_, Some(slc)) => slc.program,
        (Some(dies), None) => Some(dies.program),
        (None, None) => None,
    };
    let program_us = match direct {
        Some(program) => fit.time("program_us", program),
        None if found.sustained_pages > 0 => {
            let source = format!("sustained writes in order, a page; {}", fit.measured);
            fit.source("program_us", &source, found.sustained_us)
        }
        None => {
            let why = "a link hides it, and no sustained writes were measured";
            fit.assumed("program_us", why, transfer_us)
        }
    };
    // Two NAND pages of each die.
    let smallest = u64::from(dies) * u64::from(nand_pages) * 2;
    let (slc_program_us, slc_bytes) = match found.slc.filter(|slc| slc.pages >= smallest) {
        Some(slc) => {
            let program_us = match found.dies {
                Some(dies) => fit.time("slc_program_us", dies.program),
                None => {
                    let why = "shorter than the transfer of a page, which hides it";
                    fit.assumed("slc_program_us", why, transfer_us)
                }
            };
            (program_us, fit.found("slc_bytes", (slc.pages * PAGE_BYTES).min(capacity_bytes)))
        }
        None => {
            let why = format!(
                "writes became no slower within {} MiB; a larger SLC cache needs a larger \
                 --sustained",
                found.sustained_pages >> 8
            );
            (fit.source("slc_program_us", "assumed: no SLC cache", 0.0), {
                fit.assumed("slc_bytes", &why, 0)
            })
        }
    };
    let (map_cache_bytes, map_read_us) = match found.map {
        Some(map) => (
            fit.found("map_cache_bytes", map.places * PAGE_BYTES),
            fit.time("map_read_us", map.read),
        ),
        None => {
            let why = format!(
                "reads {} MiB apart from one another, over {} MiB, are not slower; a larger --span \
                 may show more",
                MAP_STRIDE >> 8,
                found.map_pages >> 8
            );
            (fit.assumed("map_cache_bytes", &why, 0), {
                fit.source("map_read_us", "assumed: the whole mapping table is in memory", 0.0)
            })
        }
    };
    // Two blocks a die at least have to fit, also into the SLC cache.
    let least = if slc_bytes > 0 { slc_bytes.min(capacity_bytes) } else { capacity_bytes };
    let die_pages = least / PAGE_BYTES / u64::from(dies) / 2;
    let block_pages =
        u32::try_from(die_pages).unwrap_or(u32::MAX).clamp(nand_pages, 1024.max(nand_pages))
            / nand_pages
            * nand_pages;
    let hidden = "no time shows it";
    let model = Model::PageMapped(page_mapped::PageMappedParams {
        capacity_bytes: fit.source("capacity_bytes", "the target's size", capacity_bytes),
        over_provisioning: fit.assumed("over_provisioning", hidden, 0.07),
        dies,
        block_pages: fit.assumed("block_pages", hidden, block_pages),
        nand_pages,
        buffer_pages: fit.assumed("buffer_pages", "no time shows it, so a NAND page", nand_pages),
        read_us,
        write_us,
        transfer_us,
        program_us,
        slc_program_us,
        slc_bytes,
        erase_us: fit.assumed("erase_us", "garbage collection hides it", 3500.0),
        idle_us: fit.assumed("idle_us", hidden, 100_000.0),
        map_cache_bytes,
        map_read_us,
        fill: fit.source("fill", FILLED, Fill::InOrder),
    });
    (format!("page-mapped: dies: {dies}, NAND pages of {} KiB", nand_pages * 4), model)
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
                let io = Io {
                    at_us: 0,
                    op,
                    lba: *page,
                    pages: 1,
                    sync: false,
                    awaited: false,
                    cause: Cause::default(),
                };
                now_ns = machine.serve(&io, now_ns);
            }
            (pattern.clone(), now_ns - begun_ns)
        })
        .collect())
}
