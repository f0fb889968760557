//! How many units are open, how large they are, what closing them costs.

use super::{Device, STREAMS_MAX, Say, median_us};
use crate::Error;

/// How a device of units is built.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Units {
    /// Pages of a unit: U.
    pub unit_pages: u64,
    /// A unit begins at this page, and at every [`Units::unit_pages`] from there.
    pub first_page: u64,
    /// Open at once: K.
    pub open_units: u32,
    /// Each page copied when a unit is closed, µs.
    pub copy_us: f64,
    /// Whatever else closing costs, µs.
    pub erase_us: f64,
    /// How far the closings that were measured lie from these two, as a share of the dearest.
    pub error: f64,
    /// What `erase_us` may be wrong by, by that, µs.
    pub erase_error_us: f64,
}

/// Writes in turn to several places, far from one another.
#[derive(Clone, Debug)]
pub struct Streams {
    /// How many, and what a write takes, µs.
    pub costs: Vec<(u32, f64)>,
    /// Pages between two of them.
    pub stride: u64,
    /// The most that cost no closing; `None` where more never cost more.
    pub open_units: Option<u32>,
}

impl Streams {
    /// A write of a single stream, where it closes nothing.
    fn fast_us(&self) -> f64 {
        self.cost(1).unwrap_or(f64::NAN)
    }

    /// As many streams as were tried.
    pub fn tried(&self) -> u32 {
        self.costs.iter().map(|(count, _)| *count).max().unwrap_or(0)
    }

    fn cost(&self, count: u32) -> Option<f64> {
        self.costs.iter().find(|(other, _)| *other == count).map(|(_, us)| *us)
    }

    /// Between what writes cost before and behind the cliff.
    fn threshold_us(&self) -> f64 {
        (self.fast_us() * self.cost(self.tried()).unwrap_or(f64::NAN)).sqrt()
    }
}

/// Two places are looked for units in three strides; the other streams have one each.
const SEARCHED_STRIDES: u64 = 3;
/// A stride holds a unit of 64 KiB at least.
pub(super) const PAGES_MIN: u64 = (STREAMS_MAX as u64 + SEARCHED_STRIDES) * 16;
/// And 256 MiB at most: no unit is larger.
const STRIDE_MAX: u64 = 1 << 16;
/// So much dearer are writes behind a cliff, at least.
const CLIFF: f64 = 1.5;
/// Writes that are measured at least, each time.
const SAMPLES: u64 = 12;

/// Where a stream begins.
fn place(stride: u64, stream: u64) -> u64 {
    (SEARCHED_STRIDES + stream) * stride
}

/// What a write takes that goes to each of these places in turn, again and again, µs: three quarters take longer. Where each
/// closes a unit, so does the cheapest; elsewhere some do, because a unit is full or has come to its end.
fn in_turn(device: &mut dyn Device, places: &[u64], moving: bool) -> Result<f64, Error> {
    let count = places.len() as u64;
    // After one lap nothing is open but these.
    let laps = 1 + SAMPLES.div_ceil(count).max(3);
    let pages: Vec<u64> =
        (0..laps).flat_map(|lap| places.iter().map(move |place| place + u64::from(moving) * lap)).collect();
    let mut times = device.perform(true, &pages)?.split_off(places.len());
    times.sort_unstable();
    Ok(times[times.len() / 4] as f64 / 1e3)
}

/// What a write takes behind the one before it, µs.
pub(super) fn in_order(device: &mut dyn Device, streams: &Streams) -> Result<f64, Error> {
    let first = place(streams.stride, 0);
    Ok(median_us(&device.perform(true, &(first..first + streams.stride.min(256)).collect::<Vec<_>>())?))
}

/// More and more streams, up to where they cost more; from there on by bisection.
pub(super) fn streams(device: &mut dyn Device) -> Result<Streams, Error> {
    let most = device.pages() / (u64::from(STREAMS_MAX) + SEARCHED_STRIDES);
    let stride = (1 << most.ilog2()).min(STRIDE_MAX);
    let mut found = Streams { costs: Vec::new(), stride, open_units: None };
    let mut try_count = |count: u32, found: &mut Streams| -> Result<f64, Error> {
        // The last one first: where all come to the end of their units in the same lap, each moves on to where the next one
        // has been. By then that is closed; the other way round it would be open still, and cheap.
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
            // Few are likelier than many.
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

/// The units behind a cliff; or why they cannot be told.
pub(super) fn find(
    device: &mut dyn Device,
    streams: &Streams,
    write_us: f64,
    say: Say<'_>,
) -> Result<Result<Units, String>, Error> {
    let &Streams { stride, open_units, .. } = streams;
    let Some(open_units) = open_units else {
        return Ok(Err(format!(
            "no cliff, writes to {} places in turn, {} KiB apart, cost no more than to one: there are none, more are open, or \
             they are larger (then a larger --span shows more)",
            streams.tried(),
            stride * 4
        )));
    };
    let threshold_us = streams.threshold_us();
    let mut same = |one: u64, other: u64| {
        let others = (0..u64::from(open_units) - 1).map(|n| place(stride, n));
        let places: Vec<u64> = [one, other].into_iter().chain(others).collect();
        Ok(in_turn(device, &places, false)? < threshold_us)
    };
    say("where units begin");
    if !same(0, 1)? && !same(1, 2)? {
        return Ok(Err(format!(
            "{open_units} places can be written to in turn, but only in order: how large a unit is was not to be seen"
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
    say("what closing costs");
    let first_page = first % unit_pages;
    closings(device, write_us, unit_pages, first_page, open_units).map(Ok)
}

fn too_small(stride: u64) -> String {
    format!(
        "they are larger than {} KiB, the most that can be seen in so small a part (a larger --span shows more)",
        stride * 4
    )
}

/// The first page of the two units behind the one that begins, or lies, at page 0.
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

/// Units are written to in turn, one more than can be open, a part of each: what is lacking is copied when it is closed.
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
        // The first lap closes what is open from before.
        device.perform(true, &lap)?;
        let times = device.perform(true, &lap)?;
        let visits = || times.chunks(written as usize);
        // Only the first write of a visit closes anything.
        let others: Vec<u64> = visits().flat_map(|visit| &visit[1..]).copied().collect();
        let program_us = if others.is_empty() { write_us } else { median_us(&others) };
        let whole: Vec<u64> = visits().map(|visit| visit.iter().sum()).collect();
        points.push((written as f64, median_us(&whole) - written as f64 * program_us));
    }
    // The line through them, by least squares: closing = U · copy + erase − written · copy.
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
