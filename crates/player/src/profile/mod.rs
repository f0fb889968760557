//! What a card is like inside, asked from outside, as flashbench does (Bergmann, "Optimizing Linux with cheap flash drives",
//! LWN 2011): by how long writes take that go to several places in turn.
//!
//! Simple flash maps its space in units and keeps a few open; a write to one that is not open closes another, and closing
//! copies. So with as many streams as units can be open (K) each write costs a program, and with one stream more each costs
//! a closing: a cliff. With K known, two places lie in the same unit if together with K − 1 others they still fit; bisection
//! finds where units begin, and so their size U. Closing units that lack more or fewer pages tells the cost of a copy and of
//! an erase apart.
//!
//! All of it needs nothing but the time of each request: whatever gives that, a real device or a modelled one, is a
//! [`Device`]. What the times do not tell is said and not guessed. Each write and read is of one page.

use crate::Error;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

mod fit;
mod real;
mod units;

pub use fit::{Fitted, error, fit};
pub use real::Real;
pub use units::{Streams, Units};

/// A device under test.
pub trait Device {
    /// How many pages may be used.
    fn pages(&self) -> u64;
    /// Does these one after the other. How long each took, nanoseconds.
    fn perform(&mut self, write: bool, pages: &[u64]) -> Result<Vec<u64>, Error>;
}

/// What was found.
#[derive(Clone, Debug)]
pub struct Found {
    /// A write where nothing has to be closed, µs.
    pub write_us: f64,
    /// A read next to the one before it, µs.
    pub read_us: f64,
    /// A read far from the one before it, µs.
    pub far_read_us: f64,
    /// Writes in turn to so many places.
    pub streams: Streams,
    /// How it is built; or why that cannot be told.
    pub units: Result<Units, String>,
    /// What any model has to explain.
    pub patterns: Vec<Pattern>,
}

/// Requests of one kind over a part of the device, and how long they took.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// Written, not read.
    pub write: bool,
    /// In order of their places, not as they were drawn.
    pub sorted: bool,
    /// All lie in so many pages from the beginning.
    pub span_pages: u64,
    /// Where they went.
    pub pages: Vec<u64>,
    /// All of them together, nanoseconds.
    pub took_ns: u64,
}

impl Pattern {
    /// As SpatialClock's Table 2 has it.
    pub fn kb_per_s(&self) -> f64 {
        kb_per_s(self.pages.len(), self.took_ns)
    }
}

/// Of so many pages in so long, in the table's units of 1000 bytes.
pub fn kb_per_s(pages: usize, took_ns: u64) -> f64 {
    pages as f64 * 4.096e9 / took_ns.max(1) as f64
}

/// Is told what comes next.
pub type Say<'a> = &'a mut dyn FnMut(&str);

/// Streams at most: more units than that no card keeps open.
pub const STREAMS_MAX: u32 = 64;
/// Requests of a pattern that are as they were drawn: each may cost a closing.
const SCATTERED: usize = 96;
const SORTED: usize = 512;

/// Measures a device, all of which may be overwritten and holds something.
pub fn measure(device: &mut dyn Device, say: Say<'_>) -> Result<Found, Error> {
    if device.pages() < units::PAGES_MIN {
        return Err(Error::Refused(format!(
            "{} MiB are too few to tell anything: {} are needed",
            device.pages() >> 8,
            units::PAGES_MIN >> 8
        )));
    }
    say("writes in turn to several places");
    let streams = units::streams(device)?;
    let write_us = units::in_order(device, &streams)?;
    let units = units::find(device, &streams, write_us, say)?;
    say("reads");
    let (first, near) = units.as_ref().map_or((0, 64), |units| (units.first_page, units.unit_pages.min(64)));
    let far_off = device.pages() / 2;
    let far: Vec<u64> = (0..256).map(|n| first + n % 2 * far_off + n / 2 % near).collect();
    let near: Vec<u64> = (0..256).map(|n| first + n % near).collect();
    let read_us = median_us(&device.perform(false, &near)?[1..]);
    let far_read_us = median_us(&device.perform(false, &far)?[1..]);
    let patterns = patterns(device, say)?;
    Ok(Found { write_us, read_us, far_read_us, streams, units, patterns })
}

/// Sorted and scattered, over several spans.
fn patterns(device: &mut dyn Device, say: Say<'_>) -> Result<Vec<Pattern>, Error> {
    let mut random = Pcg64::seed_from_u64(1);
    let mut found = Vec::new();
    let mut span_pages = device.pages();
    while span_pages >= 256 && found.len() < 16 {
        for (write, sorted) in [(true, true), (true, false), (false, true), (false, false)] {
            let (kind, order) =
                (if write { "writes" } else { "reads" }, if sorted { "sorted" } else { "scattered" });
            say(&format!("{order} {kind} in {} MiB", span_pages >> 8));
            let count = if sorted || !write { SORTED } else { SCATTERED };
            let mut pages: Vec<u64> = (0..count).map(|_| random.random_range(0..span_pages)).collect();
            if sorted {
                pages.sort_unstable();
            }
            let took_ns = device.perform(write, &pages)?.iter().sum();
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
