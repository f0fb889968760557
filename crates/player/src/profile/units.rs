//! Finds the number of open units, their size, and the cost of closing one.

use super::{Device, STREAMS_MAX, Say, median_us};
use crate::Error;

/// The units of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Units {
    /// Pages in a unit: U.
    pub unit_pages: u64,
    /// First page of a unit; the others begin at every [`Units::unit_pages`] from there.
    pub first_page: u64,
    /// Number of units open at once: K.
    pub open_units: u32,
    /// Cost of each page copied when a unit is closed, µs.
    pub copy_us: f64,
    /// All other costs of closing a unit, µs.
    pub erase_us: f64,
    /// Largest deviation of a measured closing from these two costs, as a share of the most
    /// expensive closing.
    pub error: f64,
    /// The resulting error of `erase_us`, µs.
    pub erase_error_us: f64,
}

/// Latency of writes in turn to several places, far from one another.
#[derive(Clone, Debug)]
pub struct Streams {
    /// Number of streams and latency of a write, µs.
    pub costs: Vec<(u32, f64)>,
    /// Distance of two streams in pages.
    pub stride: u64,
    /// Largest number of streams without closings; `None` if more streams never cost more.
    pub open_units: Option<u32>,
}

impl Streams {
    /// Latency of a write of a single stream, which closes nothing.
    fn fast_us(&self) -> f64 {
        self.cost(1).unwrap_or(f64::NAN)
    }

    /// Returns the largest number of streams that was tried.
    pub fn tried(&self) -> u32 {
        self.costs.iter().map(|(count, _)| *count).max().unwrap_or(0)
    }

    fn cost(&self, count: u32) -> Option<f64> {
        self.costs.iter().find(|(other, _)| *other == count).map(|(_, us)| *us)
    }

    /// A latency between those before and behind the cliff.
    fn threshold_us(&self) -> f64 {
        (self.fast_us() * self.cost(self.tried()).unwrap_or(f64::NAN)).sqrt()
    }
}

/// The search for units uses three strides for two places; each other stream has one stride.
const SEARCHED_STRIDES: u64 = 3;
/// A stride holds a unit of at least 64 KiB.
pub(super) const PAGES_MIN: u64 = (STREAMS_MAX as u64 + SEARCHED_STRIDES) * 16;
/// A stride is at most 256 MiB: no unit is larger.
const STRIDE_MAX: u64 = 1 << 16;
/// Smallest ratio of the latencies behind and before a cliff.
const CLIFF: f64 = 1.5;
/// Smallest number of writes in a measurement.
const SAMPLES: u64 = 12;

/// First page of a stream.
fn place(stride: u64, stream: u64) -> u64 {
    (SEARCHED_STRIDES + stream) * stride
}

/// First quartile of the latencies of writes that go to each of these places in turn, µs. If each
/// write closes a unit, the quartile shows it. If few do, because a unit is full or at its end, it
/// does not.
fn in_turn(device: &mut dyn Device, places: &[u64], moving: bool) -> Result<f64, Error> {
    let count = places.len() as u64;
    // After one lap only these units are open.
    let laps = 1 + SAMPLES.div_ceil(count).max(3);
    let pages: Vec<u64> = (0..laps)
        .flat_map(|lap| places.iter().map(move |place| place + u64::from(moving) * lap))
        .collect();
    let mut times = device.perform(true, &pages, 1)?.split_off(places.len());
    times.sort_unstable();
    Ok(times[times.len() / 4] as f64 / 1e3)
}

/// Median latency of writes in order, µs.
pub(super) fn in_order(device: &mut dyn Device, streams: &Streams) -> Result<f64, Error> {
    let first = place(streams.stride, 0);
    let pages: Vec<u64> = (first..first + streams.stride.min(256)).collect();
    Ok(median_us(&device.perform(true, &pages, 1)?))
}

/// Tries more and more streams until they cost more, then finds the limit by bisection.
pub(super) fn streams(device: &mut dyn Device) -> Result<Streams, Error> {
    let most = device.pages() / (u64::from(STREAMS_MAX) + SEARCHED_STRIDES);
    let stride = (1 << most.ilog2()).min(STRIDE_MAX);
    let mut found = Streams { costs: Vec::new(), stride, open_units: None };
    let mut try_count = |count: u32, found: &mut Streams| -> Result<f64, Error> {
        // The last stream goes first. Where all streams reach the end of their units in the same
        // lap, each one continues where the next one has been. In this order that unit is closed by
        // then; in the other order it would still be open, and the write cheap.
        let places: Vec<u64> = (0..u64::from(count)).rev().map(|n| place(stride, n)).collect();
        let us = in_turn(device, &places, true)?;
        found.costs.push((count, us));
        Ok(us)
    };
    let alone = try_count(1, &mut found)?;
    let all = try_count(STREAMS_MAX, &mut found)?;
    if all >= alone * CLIFF {
        let threshold = found.threshold_us();
        let (mut fits, mut too_many) = (1, STREAMS_MAX);
        while too_many - fits > 1 {
            // Few open units are more likely than many.
            let count = if fits * 2 < too_many { fits * 2 } else { (fits + too_many) / 2 };
            match try_count(count, &mut found)? < threshold {
                true => fits = count,
                false => too_many = count,
            }
        }
        found.open_units = Some(fits);
    }
    found.costs.sort_by_key(|(count, _)| *count);
    Ok(found)
}

/// Measures the units behind a cliff, or returns the reason why they are not known.
pub(super) fn find(
    device: &mut dyn Device,
    streams: &Streams,
    write_us: f64,
    say: Say<'_>,
) -> Result<Result<Units, String>, Error> {
    let &Streams { stride, open_units, .. } = streams;
    let Some(open_units) = open_units else {
        return Ok(Err(format!(
            "no cliff: writes to {} places in turn, {} KiB apart, cost no more than to one. There \
             are no units, more are open, or they are larger (then use a larger --span)",
            streams.tried(),
            stride * 4
        )));
    };
    let threshold_us = streams.threshold_us();
    if !costs_anywhere(device, stride, threshold_us)? {
        return Ok(Err(format!(
            "writes to {} places in turn, {} KiB apart, are slow only at equal distances, as on \
             one of several dies. There are no units, more are open, or they are larger (then use \
             a larger --span)",
            streams.tried(),
            stride * 4
        )));
    }
    let mut same = |one: u64, other: u64| {
        let others = (0..u64::from(open_units) - 1).map(|n| place(stride, n));
        let places: Vec<u64> = [one, other].into_iter().chain(others).collect();
        Ok(in_turn(device, &places, false)? < threshold_us)
    };
    say("boundaries of units");
    if !same(0, 1)? && !same(1, 2)? {
        return Ok(Err(format!(
            "{open_units} places can be written to in turn, but only in order: the size of a unit \
             is not visible"
        )));
    }
    let end = SEARCHED_STRIDES * stride;
    let (Some(first), Some(second)) = boundaries(end, &mut same)? else {
        return Ok(Err(too_small(stride)));
    };
    let unit_pages = second - first;
    if unit_pages > stride {
        return Ok(Err(too_small(stride)));
    }
    say("cost of closing a unit");
    let first_page = first % unit_pages;
    closings(device, write_us, unit_pages, first_page, open_units).map(Ok)
}

/// Whether writes to many places in turn cost more than to one if the distances differ, too. Dies
/// that work at the same time make only places at certain distances slow.
fn costs_anywhere(device: &mut dyn Device, stride: u64, threshold_us: f64) -> Result<bool, Error> {
    // Within a short part of a stride. If the boundaries of units lie there, two places may share a
    // unit; then they do not in the other part.
    let part = (stride / 4).clamp(1, 128);
    for from in [stride / 4, stride * 3 / 4 - part.min(stride / 4)] {
        let stream = |n: u64| place(stride, n) + from + n * 40 % part;
        let places: Vec<u64> = (0..u64::from(STREAMS_MAX)).rev().map(stream).collect();
        if in_turn(device, &places, true)? >= threshold_us {
            return Ok(true);
        }
    }
    Ok(false)
}

fn too_small(stride: u64) -> String {
    format!("they are larger than {} KiB, the most that this --span shows", stride * 4)
}

/// First pages of the two units after the one that contains page 0.
fn boundaries(
    end: u64,
    same: &mut dyn FnMut(u64, u64) -> Result<bool, Error>,
) -> Result<(Option<u64>, Option<u64>), Error> {
    let mut behind = |from: u64| -> Result<Option<u64>, Error> {
        let (mut inside, mut distance) = (from, 1);
        let mut outside = loop {
            let page = from + distance;
            if page >= end {
                return Ok(None);
            }
            if !same(from, page)? {
                break page;
            }
            inside = page;
            distance *= 2;
        };
        while outside - inside > 1 {
            let middle = inside + (outside - inside) / 2;
            match same(from, middle)? {
                true => inside = middle,
                false => outside = middle,
            }
        }
        Ok(Some(outside))
    };
    let first = behind(0)?;
    let second = first.map(&mut behind).transpose()?.flatten();
    Ok((first, second))
}

/// Writes a part of each unit in turn, with one unit more than can be open. The missing pages are
/// copied when a unit is closed.
fn closings(
    device: &mut dyn Device,
    write_us: f64,
    unit_pages: u64,
    first_page: u64,
    open_units: u32,
) -> Result<Units, Error> {
    let mut points = Vec::new();
    let mut parts: Vec<u64> = (0..=4).map(|quarter| (unit_pages * quarter / 4).max(1)).collect();
    parts.dedup();
    for written in parts {
        let visit = |n: u64| (0..written).map(move |page| first_page + n * unit_pages + page);
        let lap: Vec<u64> = (0..=u64::from(open_units)).flat_map(visit).collect();
        // The first lap closes the units that are open from before.
        device.perform(true, &lap, 1)?;
        let times = device.perform(true, &lap, 1)?;
        let visits = || times.chunks(written as usize);
        // Only the first write to a unit in each lap closes another one.
        let others: Vec<u64> = visits().flat_map(|visit| &visit[1..]).copied().collect();
        let program_us = if others.is_empty() { write_us } else { median_us(&others) };
        let whole: Vec<u64> = visits().map(|visit| visit.iter().sum()).collect();
        points.push((written as f64, median_us(&whole) - written as f64 * program_us));
    }
    // Line by least squares: closing = U · copy + erase − written · copy.
    let count = points.len() as f64;
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (mean_x, mean_y) = (mean(|p| p.0), mean(|p| p.1));
    let squares: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let slope = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum::<f64>() / squares;
    let at = |x: f64| mean_y + slope * (x - mean_x);
    let worst = points.iter().map(|(x, y)| (y - at(*x)).abs()).fold(0.0, f64::max);
    let dearest = points.iter().map(|(_, y)| y.abs()).fold(f64::MIN_POSITIVE, f64::max);
    Ok(Units {
        unit_pages,
        first_page,
        open_units,
        copy_us: (-slope).max(0.0),
        erase_us: at(unit_pages as f64).max(0.0),
        error: worst / dearest,
        erase_error_us: worst,
    })
}
