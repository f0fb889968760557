//! Measures what requests of several sizes and places show of a page-mapped device: dies that work
//! at the same time, the time of a program, an SLC cache, and the part of the mapping table that is
//! in memory.
//!
//! The addresses of such a device are striped over its dies by NAND pages. Writes at a stride of a
//! whole stripe go to one die, which accepts them no faster than it programs; at smaller strides
//! they go to several. Two such sequences in turn, some pages apart, go to one die only if both lie
//! in the same NAND page. Garbage collection makes few requests slow, and by far: medians do not
//! show it, and means leave these requests out.

use super::{Device, Figure, Say, median_us, rounds};
use crate::Error;
use flashsift_events::page::PAGE_BYTES;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

/// The properties of a page-mapped device that a measurement shows.
#[derive(Clone, Debug)]
pub struct PageMapped {
    /// A read of one page.
    pub read: Figure,
    /// A write of one page that waits for no die.
    pub write: Figure,
    /// Time that each further page adds to a read.
    pub transfer: Figure,
    /// Dies and NAND pages; `None` if writes at all strides take the same time.
    pub dies: Option<Dies>,
    /// Pages written in order for the speed of sustained writes.
    pub sustained_pages: u64,
    /// Mean time for a page of these, µs: past the SLC cache, if there is one.
    pub sustained_us: f64,
    /// The SLC cache; `None` if writes became no slower.
    pub slc: Option<Slc>,
    /// The mapping table; `None` if reads all over the device are no slower.
    pub map: Option<Map>,
    /// Part of the device in which places were read, in pages.
    pub map_pages: u64,
}

/// Dies of a device.
#[derive(Clone, Copy, Debug)]
pub struct Dies {
    /// Number of them.
    pub count: u32,
    /// Pages of 4 KiB in a NAND page.
    pub nand_pages: u32,
    /// Time for each page programmed: in the SLC cache, if there is one.
    pub program: Figure,
}

/// SLC cache of a device.
#[derive(Clone, Copy, Debug)]
pub struct Slc {
    /// Pages written before writes became slower.
    pub pages: u64,
    /// Time for each page programmed past the cache; `None` without [`PageMapped::dies`], and if it
    /// is no longer.
    pub program: Option<Figure>,
}

/// Mapping table of a device.
#[derive(Clone, Copy, Debug)]
pub struct Map {
    /// Number of places, [`MAP_STRIDE`] apart, whose mapping is in memory at once.
    pub places: u64,
    /// Additional time of a read elsewhere.
    pub read: Figure,
}

/// Pages that one page of a mapping table maps, with entries of 4 bytes.
pub const MAP_STRIDE: u64 = 1024;
/// Fewest places whose mapping is taken to be in memory: 256 MiB.
const PLACES_MIN: u64 = 64;
/// Smallest ratio between reads with and without a read of the mapping table.
const MAP_RATIO: f64 = 1.1;
/// Pages of a larger read: so few that most such reads lie in one NAND page, wherever that begins.
const READ: u64 = 3;
/// Pages of a request in the search for dies.
const REQUEST: u64 = 4;
const REQUESTS: u64 = 96;
/// Largest stripe that is looked for, in pages.
const STRIPE_MAX: u64 = 1024;
/// Smallest ratio between writes to one die and to all of them.
const RATIO: f64 = 1.5;
/// Pages of a request in sustained writes, and number of requests over which they are averaged.
const LARGE: u32 = 128;
const WINDOW: usize = 64;
/// The least amount of sustained writes that measures anything: one request.
pub const SUSTAINED_BYTES_MIN: u64 = LARGE as u64 * PAGE_BYTES;
/// Number of averages that give the speed at the beginning.
const FIRST: usize = 4;

pub(super) fn measure(
    device: &mut dyn Device,
    sustained_pages: u64,
    say: Say<'_>,
) -> Result<PageMapped, Error> {
    let mut random = Pcg64::seed_from_u64(2);
    // The mapping of 1 GiB is in the memory of any device.
    let near = device.pages().min(1 << 18);
    let mut places =
        || -> Vec<u64> { (0..REQUESTS).map(|_| random.random_range(0..near - READ)).collect() };
    say("reads of several sizes");
    let all: Vec<u64> = (0..near).step_by(MAP_STRIDE as usize).collect();
    device.perform(false, &all, 1)?;
    let mut transfers = Vec::new();
    let read = rounds(|| {
        let one = median_us(&device.perform(false, &places(), 1)?);
        let more = median_us(&device.perform(false, &places(), READ as u32)?);
        transfers.push((more - one) / (READ - 1) as f64);
        Ok(one)
    })?;
    let transfer = Figure::new(&mut transfers);

    say("idle time of the device");
    device.rest()?;
    say("writes at several strides");
    let write = rounds(|| Ok(median_us(&device.perform(true, &places(), 1)?)))?;
    let dies = dies(device)?;

    say("idle time of the device");
    device.rest()?;
    say("sustained writes");
    let requests = sustained_pages / u64::from(LARGE);
    let span = device.pages() / u64::from(LARGE);
    let mut windows = Vec::new();
    for first in (0..requests).step_by(WINDOW) {
        let last = (first + WINDOW as u64).min(requests);
        let places: Vec<u64> = (first..last).map(|n| n % span * u64::from(LARGE)).collect();
        let took_ns: u64 = device.perform(true, &places, LARGE)?.iter().sum();
        windows.push(took_ns as f64 / 1e3 / (places.len() as f64 * f64::from(LARGE)));
    }
    let drop = drop_after(&windows);
    let slc = match drop {
        Some(window) => {
            let pages = (window * WINDOW) as u64 * u64::from(LARGE);
            let program = match dies {
                Some(dies) => past_cache(device, dies, pages)?,
                None => None,
            };
            Some(Slc { pages, program })
        }
        None => None,
    };
    let tail = &windows[drop.unwrap_or(0)..];
    let sustained_us = tail.iter().sum::<f64>() / tail.len().max(1) as f64;

    say("reads all over the device");
    let map_pages = device.pages();
    let map = map(device)?;
    let sustained_pages = requests * u64::from(LARGE);
    Ok(PageMapped {
        read,
        write,
        transfer,
        dies,
        sustained_pages,
        sustained_us,
        slc,
        map,
        map_pages,
    })
}

/// Writes at this stride, and their times.
fn at_stride(device: &mut dyn Device, stride: u64) -> Result<Vec<u64>, Error> {
    let span = device.pages() / stride;
    let places: Vec<u64> = (0..REQUESTS).map(|n| n % span * stride).collect();
    device.perform(true, &places, REQUEST as u32)
}

/// Mean time of requests that do not wait for garbage collection, µs. With several dies in turn, a
/// request may wait for one die, and the next one not at all, so that a median shows either.
fn mean_us(times_ns: &[u64]) -> f64 {
    let mut sorted = times_ns.to_vec();
    sorted.sort_unstable();
    let limit = sorted.get(sorted.len() * 3 / 4).map_or(0, |quartile| quartile * 4);
    let usual = &sorted[..sorted.partition_point(|ns| *ns <= limit)];
    usual.iter().sum::<u64>() as f64 / 1e3 / usual.len().max(1) as f64
}

fn dies(device: &mut dyn Device) -> Result<Option<Dies>, Error> {
    let most = STRIPE_MAX.min(device.pages() / 16);
    let mut costs = Vec::new();
    let mut stride = REQUEST;
    while stride <= most {
        costs.push((stride, mean_us(&at_stride(device, stride)?)));
        stride *= 2;
    }
    let (Some((_, least)), Some((_, slow))) = (costs.first(), costs.last()) else {
        return Ok(None);
    };
    if *slow < least * RATIO {
        return Ok(None);
    }
    // Half as many dies take twice as long, so a limit between both is clear.
    let Some((stripe, _)) = costs.iter().find(|(_, us)| us * RATIO.sqrt() >= *slow) else {
        return Ok(None);
    };
    let (stripe, slow) = (*stripe, *slow);
    let mut nand_pages = REQUEST;
    while nand_pages < stripe {
        let span = device.pages() / stripe - 1;
        let places: Vec<u64> =
            (0..REQUESTS).map(|n| n / 2 % span * stripe + n % 2 * nand_pages).collect();
        let us = mean_us(&device.perform(true, &places, REQUEST as u32)?);
        if us * RATIO.sqrt() < slow {
            break;
        }
        nand_pages *= 2;
    }
    let program = rounds(|| Ok(median_us(&at_stride(device, stripe)?) / REQUEST as f64))?;
    let (count, nand_pages) = ((stripe / nand_pages) as u32, nand_pages as u32);
    Ok(Some(Dies { count, nand_pages, program }))
}

/// Time for each page programmed past the SLC cache of one die, which holds its share of `pages`.
/// While other dies collect garbage, that die may have emptied some of it, so writes to it are slow
/// only after a while. `None` if they become no slower.
fn past_cache(device: &mut dyn Device, dies: Dies, pages: u64) -> Result<Option<Figure>, Error> {
    let stripe = u64::from(dies.count * dies.nand_pages);
    let mut time = || Ok(median_us(&at_stride(device, stripe)?) / REQUEST as f64);
    for _ in 0..pages / u64::from(dies.count) / (REQUESTS * REQUEST) + 2 {
        if time()? >= dies.program.us * RATIO {
            return rounds(time).map(Some);
        }
    }
    Ok(None)
}

/// Number of windows before the one from which on writes are slower. The first one may pay for what
/// the device did before. Past an SLC cache some windows are fast again, because dies that wait for
/// the garbage collection of another one empty a part of it.
fn drop_after(windows: &[f64]) -> Option<usize> {
    let mut first = windows.get(..FIRST)?.to_vec();
    first.sort_unstable_by(f64::total_cmp);
    let slow = |us: &f64| *us >= first[FIRST / 2] * RATIO;
    let at = 1 + windows[1..].iter().position(slow)?;
    let rest = &windows[at..];
    let count = rest.iter().filter(|us| slow(us)).count();
    // Not a single delay.
    (count >= 2 && count * 20 >= rest.len()).then_some(at)
}

/// Reads of places that each need a page of the mapping table: twice the same ones in the same
/// order, so that the second time either all or none of these pages are in memory.
fn map(device: &mut dyn Device) -> Result<Option<Map>, Error> {
    let all = device.pages() / MAP_STRIDE;
    let mut again = |places: u64| -> Result<f64, Error> {
        let places: Vec<u64> = (0..places).map(|n| n * MAP_STRIDE).collect();
        device.perform(false, &places, 1)?;
        Ok(median_us(&device.perform(false, &places, 1)?))
    };
    if all < 2 {
        return Ok(None);
    }
    let near = rounds(|| again(all.min(PLACES_MIN)))?;
    let far = rounds(|| again(all))?;
    if far.low_us < near.high_us * MAP_RATIO {
        return Ok(None);
    }
    let limit = (near.us * far.us).sqrt();
    let (mut fits, mut too_many) = (all.min(PLACES_MIN), all);
    while too_many - fits > 1 {
        let places = fits + (too_many - fits) / 2;
        match again(places)? < limit {
            true => fits = places,
            false => too_many = places,
        }
    }
    let read = Figure {
        us: far.us - near.us,
        low_us: far.low_us - near.high_us,
        high_us: far.high_us - near.low_us,
    };
    Ok(Some(Map { places: fits, read }))
}
