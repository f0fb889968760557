use super::*;
use crate::device::{
    Model, profile,
    testing::{elapsed_s, random_order, read, write},
};
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};

/// The model by its definition: units as lists of their pages, the open ones as a queue.
struct Naive {
    params: OpenUnitParams,
    unit_pages: u64,
    pages: u64,
    held: BTreeSet<u64>,
    /// Unit, pages in its log, programs into it; most recently written last.
    open: VecDeque<(u64, BTreeSet<u64>, u64)>,
    last_read: Option<u64>,
    free_ns: u64,
    wear: Wear,
}

impl Naive {
    fn new(params: &OpenUnitParams) -> Self {
        let unit_pages = params.unit_bytes / 4096;
        let pages = params.capacity_bytes / params.unit_bytes * unit_pages;
        Self {
            params: params.clone(),
            unit_pages,
            pages,
            held: if params.fill == Fill::Empty { BTreeSet::new() } else { (0..pages).collect() },
            open: VecDeque::new(),
            last_read: None,
            free_ns: 0,
            wear: Wear::default(),
        }
    }

    fn held_in(&self, unit: u64) -> BTreeSet<u64> {
        self.held.range(unit * self.unit_pages..(unit + 1) * self.unit_pages).copied().collect()
    }

    fn close(&mut self, n: usize) -> f64 {
        let (unit, log, _) = self.open.remove(n).unwrap();
        let held = self.held_in(unit);
        let copies = held.difference(&log).count() as u64;
        self.wear.copies += copies;
        self.wear.programs += copies;
        self.wear.erases += u64::from(!held.is_empty());
        self.held.extend(log);
        copies as f64 * self.params.copy_us
            + if held.is_empty() { 0.0 } else { self.params.erase_us }
    }

    fn write(&mut self, page: u64) -> f64 {
        let unit = page / self.unit_pages;
        let mut spent = self.params.program_us;
        let is_open = |open: &VecDeque<(u64, _, u64)>| open.iter().position(|one| one.0 == unit);
        if let Some(n) = is_open(&self.open)
            && self.open[n].2 == self.unit_pages
        {
            spent += self.close(n);
        }
        if is_open(&self.open).is_none() {
            if self.open.len() == self.params.open_units as usize {
                spent += self.close(0);
            }
            self.open.push_back((unit, BTreeSet::new(), 0));
        }
        let mut one = self.open.remove(is_open(&self.open).unwrap()).unwrap();
        one.1.insert(page);
        one.2 += 1;
        self.open.push_back(one);
        self.wear.host_pages += 1;
        self.wear.programs += 1;
        spent
    }

    fn serve(&mut self, io: &Io, at_ns: u64) -> u64 {
        let mut spent = 0.0;
        for n in 0..u64::from(io.pages) {
            let page = (io.lba + n) % self.pages;
            spent += match io.op {
                IoOp::Write => self.write(page),
                IoOp::Flush | IoOp::Discard => 0.0,
                IoOp::Read => {
                    let unit = page / self.unit_pages;
                    let far = self.last_read.replace(unit) != Some(unit);
                    self.params.read_us + if far { self.params.far_read_us } else { 0.0 }
                }
            };
        }
        self.free_ns = self.free_ns.max(at_ns) + (spent * 1e3).round() as u64;
        self.free_ns
    }

    fn discard(&mut self, lba: u64, pages: u64) {
        for n in 0..pages {
            let page = (lba + n) % self.pages;
            for one in &mut self.open {
                one.1.remove(&page);
            }
            let had = self.held.remove(&page);
            self.wear.erases += u64::from(had && self.held_in(page / self.unit_pages).is_empty());
        }
    }

    fn wear(&self) -> Wear {
        let due = self
            .open
            .iter()
            .map(|(unit, log, _)| self.held_in(*unit).difference(log).count() as u64);
        Wear { copies_due: due.sum(), ..self.wear }
    }
}

fn small(unit_pages: u64, units: u64, open_units: u32, fill: Fill) -> OpenUnitParams {
    OpenUnitParams {
        capacity_bytes: units * unit_pages * 4096 + 5000,
        unit_bytes: unit_pages * 4096,
        open_units,
        read_us: 10.0,
        far_read_us: 3.0,
        program_us: 100.0,
        copy_us: 120.0,
        erase_us: 2000.0,
        fill,
    }
}

#[derive(Clone, Debug)]
enum Act {
    Serve(Io, u64),
    Discard(u64, u32),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let act =
        (0..10u8, 0..700u64, 1..70u32, 0..3_000_000u64).prop_map(|(what, lba, pages, later)| {
            match what {
                0 => Act::Discard(lba, pages),
                1..3 => Act::Serve(read(lba, pages), later),
                3..6 => Act::Serve(write(lba, pages), later),
                _ => Act::Serve(write(lba % 40, pages % 3), later),
            }
        });
    prop::collection::vec(act, 0..120)
}

proptest! {
    /// Times and wear match the naive model after every step, and the internal state is
    /// consistent. Units of 1, 5, 64 and 100 pages are less than a word of bits, exactly one, and
    /// more.
    // Promises: Devices 5, Devices 10.
    #[test]
    fn agrees_with_its_model(
        acts in acts(),
        unit_pages in prop::sample::select(vec![1u64, 5, 64, 100]),
        open_units in 1..5u32,
        fill in prop::sample::select(vec![Fill::Empty, Fill::InOrder, Fill::Random]),
    ) {
        let params = small(unit_pages, 6, open_units, fill);
        let (mut fast, mut naive) = (OpenUnit::new(&params), Naive::new(&params));
        let mut now = 0;
        for act in &acts {
            match act {
                Act::Serve(io, later) => {
                    now += later;
                    prop_assert_eq!(fast.serve(io, now), naive.serve(io, now));
                }
                Act::Discard(lba, pages) => {
                    fast.discard(*lba, *pages);
                    naive.discard(*lba, u64::from(*pages).min(naive.pages));
                }
            }
            fast.check();
            prop_assert_eq!(fast.wear(), naive.wear());
        }
    }
}

fn profiled(name: &str) -> OpenUnitParams {
    match profile::Profile::from(&profile::ProfileSelection::parse(name).unwrap()).model {
        Model::OpenUnit(params) => params,
        other => panic!("{name} has open units, not {other:?}"),
    }
}

const REQUESTS: usize = 32_768;

/// Throughput in KB/s of 32 768 requests of 4 KiB in the first `span` bytes: sorted and random
/// reads, sorted and random writes.
fn table_2(params: &OpenUnitParams, span: u64, seed: u64) -> [f64; 4] {
    let order = random_order(REQUESTS, span / 4096, seed);
    let mut sorted = order.clone();
    sorted.sort_unstable();
    let speed = |addresses: &[u64], io: fn(u64, u32) -> Io| {
        let mut device = OpenUnit::new(params);
        REQUESTS as f64 * 4.0 / elapsed_s(&mut device, addresses.iter().map(|lba| io(*lba, 1)))
    };
    [speed(&sorted, read), speed(&order, read), speed(&sorted, write), speed(&order, write)]
}

/// SpatialClock's Table 2, all twelve flash cells.
const TABLE_2: [(&str, [f64; 4]); 3] = [
    ("microsd-2012", [4852.7, 4836.6, 545.2, 8.3]),
    ("emmc1-2012", [5100.1, 4444.6, 470.9, 16.1]),
    ("emmc2-2012", [3124.5, 2551.5, 566.4, 259.1]),
];

/// The profiles match within 5 %. As they are fitted to this table, this shows only that the model
/// is able to.
// Promises: Devices 11.
#[test]
fn spatialclocks_table_2() {
    for (name, published) in TABLE_2 {
        for seed in 1..4 {
            let ours = table_2(&profiled(name), 1 << 30, seed);
            for (ours, published) in ours.iter().zip(published) {
                let off = (ours / published - 1.0).abs();
                assert!(off < 0.05, "{name}, seed {seed}: {ours:.1} KB/s instead of {published}");
            }
        }
    }
}

/// Other spans than those of the fit, from first principles. `m` units of `n` pages in the span,
/// `k` open; `r` requests to different pages.
///
/// Random: the unit of a write is open with probability k/m (each unit is equally likely to be
/// among the last k). A unit is open for m/(m−k) writes on average, so closing it copies n less
/// that many pages. Sorted: a unit gets all its requests at once, r/m of them. It gets none with
/// probability (1−1/m)^r, and all but the last k are closed. Reads: in a sorted run the first read
/// in each unit is far; in a random run all but 1 in m.
// Promises: Devices 12.
#[test]
fn random_writes_in_other_spans_follow_first_principles() {
    for (name, _) in TABLE_2 {
        let params = profiled(name);
        let mut before: Option<[f64; 4]> = None;
        for span in [256u64 << 20, 512 << 20, 1 << 30, 2 << 30, 4 << 30] {
            let (k, r) = (f64::from(params.open_units), REQUESTS as f64);
            let (m, n) = ((span / params.unit_bytes) as f64, (params.unit_bytes / 4096) as f64);
            let touched = m * (1.0 - (1.0 - 1.0 / m).powf(r));
            let closes = [touched - k, r * (1.0 - k / m)];
            let copies = [closes[0] * n - r * closes[0] / touched, closes[1] * (n - m / (m - k))];
            let written = |n: usize| {
                r * params.program_us + closes[n] * params.erase_us + copies[n] * params.copy_us
            };
            let us = [
                r * params.read_us + touched * params.far_read_us,
                r * params.read_us + r * (1.0 - 1.0 / m) * params.far_read_us,
                written(0),
                written(1),
            ];
            let ours = table_2(&params, span, 9);
            for (ours, us) in ours.iter().zip(us) {
                let expected = r * 4.0 / (us / 1e6);
                let off = (ours / expected - 1.0).abs();
                assert!(off < 0.02, "{name}, {span} bytes: {ours:.1} KB/s, expected {expected:.1}");
            }
            // The wider the requests are spread, the fewer share a unit. No pattern gets faster,
            // and sorted writes lose most. (The tolerance of half a percent: random writes hardly
            // change, and chance makes some requests share a unit.)
            if let Some(before) = before {
                assert!(
                    ours.iter().zip(before).all(|(ours, before)| *ours < before * 1.005),
                    "{name}, {span}"
                );
                assert!(
                    ours[2] < before[2] && before[2] / ours[2] >= before[3] / ours[3],
                    "{name}, {span}"
                );
            }
            assert!(ours[2] > ours[3], "{name}, {span}: order pays");
            before = Some(ours);
        }
    }
}

/// Streams that write their own units in order, in turn: wear and time.
fn interleaved(params: &OpenUnitParams, streams: u64, pages_a_turn: u32) -> (Wear, f64) {
    let unit_pages = params.unit_bytes / 4096;
    let mut device = OpenUnit::new(params);
    let turns = (0..unit_pages / u64::from(pages_a_turn)).flat_map(|turn| {
        (0..streams).map(move |stream| {
            write(stream * 3 * unit_pages + turn * u64::from(pages_a_turn), pages_a_turn)
        })
    });
    let seconds = elapsed_s(&mut device, turns);
    (device.wear(), seconds)
}

/// The cliff: with as many streams as open units, each log is filled and nothing is copied. With
/// one stream more, each turn finds its unit closed, and each turn copies a unit.
// Promises: Devices 12.
#[test]
fn one_stream_more_than_open_units_copies_units() {
    for (name, _) in TABLE_2 {
        for open_units in [1, 4, 7] {
            let params = OpenUnitParams { open_units, ..profiled(name) };
            let n = (params.unit_bytes / 4096) as f64;
            let (fits, fast_s) = interleaved(&params, open_units.into(), 1);
            assert_eq!((fits.copies, fits.copies_due), (0, 0), "{name}, {open_units} streams");
            assert_eq!(fits.write_amplification(), Ok(1.0));
            for turn in [1, 4] {
                let (wear, _) = interleaved(&params, u64::from(open_units) + 1, turn);
                assert_eq!(
                    wear.write_amplification(),
                    Ok(n / f64::from(turn)),
                    "{name}, {turn} pages a turn"
                );
            }
            let (_, slow_s) = interleaved(&params, u64::from(open_units) + 1, 1);
            let streams = f64::from(open_units) + 1.0;
            let cliff = slow_s / (streams * n) / (fast_s / ((streams - 1.0) * n));
            // Units that are open at the end are not closed.
            let closed = 1.0 - (streams - 1.0) / (streams * n);
            let expected =
                1.0 + closed * ((n - 1.0) * params.copy_us + params.erase_us) / params.program_us;
            assert!(
                (cliff / expected - 1.0).abs() < 1e-6,
                "{name}: a cliff of {cliff}, expected {expected}"
            );
        }
    }
}

/// A new device copies nothing until a page is written again.
// Promises: Devices 9.
#[test]
fn an_empty_device_copies_nothing() {
    let params = OpenUnitParams { fill: Fill::Empty, ..profiled("emmc2-2012") };
    let mut device = OpenUnit::new(&params);
    let order = random_order(4000, 1 << 18, 1);
    elapsed_s(&mut device, order.iter().map(|lba| write(*lba, 1)));
    let few = device.wear().copies;
    let mut filled = OpenUnit::new(&profiled("emmc2-2012"));
    elapsed_s(&mut filled, order.iter().map(|lba| write(*lba, 1)));
    assert!(few < 4000 && filled.wear().copies > 14 * 3900, "{few} and {}", filled.wear().copies);
    // After a discard it behaves like a new one.
    filled.discard(0, 1 << 20);
    assert_eq!(filled.wear().copies_due, 0);
    filled.check();
}
