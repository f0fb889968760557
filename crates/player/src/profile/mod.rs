//! Measures the internal structure of a card from outside, with flashbench's method (Bergmann,
//! "Optimizing Linux with cheap flash drives", LWN 2011): by the latency of writes that go to
//! several places in turn.
//!
//! Simple flash devices map their space in units and keep a few units open. A write to a closed
//! unit closes another one, and closing copies the pages that it lacks. With as many streams of
//! writes as units can be open (K), each write costs one program. With one stream more, each write
//! costs a closing: a cliff. When K is known, two places lie in the same unit if together with K −
//! 1 others they still fit. Bisection finds where units begin, and so their size U. Closing units
//! with different numbers of missing pages separates the cost of a copy from that of an erase.
//!
//! Newer devices have no units; [`PageMapped`] says what is measured of them.
//!
//! The method needs only the time of each request. A [`Device`], real or modelled, provides it.
//! Each time is measured in several rounds. Values that the times do not show are listed as unknown
//! and not guessed.

use crate::Error;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

mod fit;
mod page_mapped;
mod real;
mod units;

pub use fit::{Fitted, NamedFigure, error, fit};
pub use page_mapped::{Dies, MAP_STRIDE, Map, PageMapped, SUSTAINED_BYTES_MIN, Slc};
pub use real::RealDevice;
pub use units::{Streams, Units};

/// A device under test.
pub trait Device {
    /// Returns the number of pages that may be used.
    fn pages(&self) -> u64;
    /// Performs requests of `each` pages that begin at these pages, one after the other. Returns
    /// the latency of each, nanoseconds.
    ///
    /// # Errors
    ///
    /// A request failed, or the measurement was stopped.
    fn perform(&mut self, write: bool, pages: &[u64], each: u32) -> Result<Vec<u64>, Error>;
    /// Leaves the device idle, so that it does its work in the background.
    ///
    /// # Errors
    ///
    /// The measurement was stopped.
    fn rest(&mut self) -> Result<(), Error>;
}

/// A time that was measured in several rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// Median of the rounds, µs.
    pub us: f64,
    /// The lowest round, µs.
    pub low_us: f64,
    /// The highest round, µs.
    pub high_us: f64,
}

impl Figure {
    fn new(rounds: &mut [f64]) -> Self {
        rounds.sort_unstable_by(f64::total_cmp);
        let at = |n: usize| rounds.get(n).copied().unwrap_or(f64::NAN);
        Self {
            us: at(rounds.len() / 2),
            low_us: at(0),
            high_us: at(rounds.len().saturating_sub(1)),
        }
    }

    /// The time less another one, 0 at least.
    fn less(self, other: Self) -> Self {
        Self {
            us: (self.us - other.us).max(0.0),
            low_us: (self.low_us - other.high_us).max(0.0),
            high_us: (self.high_us - other.low_us).max(0.0),
        }
    }
}

/// Number of times that each time is measured.
pub const ROUNDS: usize = 5;

fn rounds(mut once: impl FnMut() -> Result<f64, Error>) -> Result<Figure, Error> {
    let mut times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        times.push(once()?);
    }
    Ok(Figure::new(&mut times))
}

/// Result of a measurement.
#[derive(Clone, Debug)]
pub struct Found {
    /// A write that closes no unit; without units, a write of a random page.
    pub write: Figure,
    /// A read that follows its predecessor; without units, a read of a random page.
    pub read: Figure,
    /// A read far from its predecessor; `None` if it does not differ by more than the rounds do,
    /// and without units.
    pub far_read: Option<Figure>,
    /// Latency of writes to several places in turn.
    pub streams: Streams,
    /// Size and number of the units, or the reason why they are not known.
    pub units: Result<Units, String>,
    /// Measured if there are no units.
    pub page_mapped: Option<PageMapped>,
    /// Patterns that a model has to reproduce.
    pub patterns: Vec<Pattern>,
}

/// Requests of one kind over a part of the device, and their time.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// Writes; reads if `false`.
    pub write: bool,
    /// In ascending order; in random order if `false`.
    pub sorted: bool,
    /// All pages lie within the first `span_pages` pages of the device.
    pub span_pages: u64,
    /// The accessed pages.
    pub pages: Vec<u64>,
    /// Time of all requests together, nanoseconds.
    pub took_ns: u64,
}

impl Pattern {
    /// Returns the throughput in the unit of SpatialClock's Table 2.
    pub fn kb_per_s(&self) -> f64 {
        kb_per_s(self.pages.len(), self.took_ns)
    }
}

/// Returns the throughput of `pages` pages in `took_ns`, in units of 1000 bytes a second.
pub fn kb_per_s(pages: usize, took_ns: u64) -> f64 {
    pages as f64 * 4.096e9 / took_ns.max(1) as f64
}

/// Receives the name of the step that begins.
pub type Say<'a> = &'a mut dyn FnMut(&str);

/// Largest number of streams that is tried: no card keeps so many units open.
pub const STREAMS_MAX: u32 = 64;
/// Requests of a pattern in random order: each may cost a closing.
const RANDOM: usize = 96;
const SORTED: usize = 512;

/// Measures a device. All of it may be overwritten, and it must have been filled before.
/// `sustained_pages`: number of pages to write in order, in search of an SLC cache; less than
/// [`SUSTAINED_BYTES_MIN`]: none.
///
/// # Errors
///
/// The device is too small, a request failed, or the measurement was stopped.
pub fn measure(
    device: &mut dyn Device,
    sustained_pages: u64,
    say: Say<'_>,
) -> Result<Found, Error> {
    if device.pages() < units::PAGES_MIN {
        return Err(Error::Refused(format!(
            "{} MiB are too few for a measurement: {} MiB are required",
            device.pages() >> 8,
            units::PAGES_MIN >> 8
        )));
    }
    say("writes in turn to several places");
    let streams = units::streams(device)?;
    let in_order = rounds(|| units::in_order(device, &streams))?;
    let units = units::find(device, &streams, in_order.us, say)?;
    let (write, read, far_read, page_mapped) = match &units {
        Ok(units) => {
            say("reads");
            let (read, far) = reads(device, units)?;
            (in_order, read, (far.low_us > read.high_us).then_some(far), None)
        }
        Err(_) => {
            let found = page_mapped::measure(device, sustained_pages, say)?;
            (found.write, found.read, None, Some(found))
        }
    };
    let patterns = patterns(device, say)?;
    Ok(Found { write, read, far_read, streams, units, page_mapped, patterns })
}

/// Reads within a unit, and reads of two units in turn.
fn reads(device: &mut dyn Device, units: &Units) -> Result<(Figure, Figure), Error> {
    let (first, near) = (units.first_page, units.unit_pages.min(64));
    let far_off = device.pages() / 2;
    let far: Vec<u64> = (0..256).map(|n| first + n % 2 * far_off + n / 2 % near).collect();
    let near: Vec<u64> = (0..256).map(|n| first + n % near).collect();
    let mut median = |pages: &[u64]| Ok(median_us(&device.perform(false, pages, 1)?[1..]));
    Ok((rounds(|| median(&near))?, rounds(|| median(&far))?))
}

/// Sorted and random requests over several spans.
fn patterns(device: &mut dyn Device, say: Say<'_>) -> Result<Vec<Pattern>, Error> {
    let mut random = Pcg64::seed_from_u64(1);
    let mut found = Vec::new();
    let mut span_pages = device.pages();
    while span_pages >= 256 && found.len() < 16 {
        for (write, sorted) in [(true, true), (true, false), (false, true), (false, false)] {
            let (kind, order) =
                (if write { "writes" } else { "reads" }, if sorted { "sorted" } else { "random" });
            say(&format!("{order} {kind} in {} MiB", span_pages >> 8));
            let count = if sorted || !write { SORTED } else { RANDOM };
            let mut pages: Vec<u64> =
                (0..count).map(|_| random.random_range(0..span_pages)).collect();
            if sorted {
                pages.sort_unstable();
            }
            let took_ns = device.perform(write, &pages, 1)?.iter().sum();
            found.push(Pattern { write, sorted, span_pages, pages, took_ns });
        }
        span_pages /= 16;
    }
    Ok(found)
}

fn median_us(times_ns: &[u64]) -> f64 {
    let mut sorted = times_ns.to_vec();
    sorted.sort_unstable();
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => f64::NAN,
        len if len % 2 == 1 => sorted[middle] as f64 / 1e3,
        _ => (sorted[middle - 1] + sorted[middle]) as f64 / 2e3,
    }
}

#[cfg(test)]
mod tests;
