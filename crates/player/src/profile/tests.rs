//! Tests on simple simulated devices: a set of pages for each open unit, sharing no code with the
//! simulator.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};

#[derive(Clone, Debug)]
struct Simple {
    pages: u64,
    unit_pages: u64,
    first_page: u64,
    open_units: usize,
    program_ns: u64,
    copy_ns: u64,
    erase_ns: u64,
    read_ns: u64,
    far_ns: u64,
    /// Least recently written first: the unit, its pages in the log, number of programs.
    open: VecDeque<(u64, BTreeSet<u64>, u64)>,
    last_read: Option<u64>,
    /// Each time is off by up to this share in either direction.
    noise: f64,
    random: Option<Pcg64>,
}

impl Simple {
    fn unit(&self, page: u64) -> u64 {
        // The first unit may begin before the tested part.
        (page + self.unit_pages - self.first_page) / self.unit_pages
    }

    fn close(&mut self, at: usize) -> u64 {
        let (_, logged, _) = self.open.remove(at).unwrap();
        (self.unit_pages - logged.len() as u64) * self.copy_ns + self.erase_ns
    }

    fn write(&mut self, page: u64) -> u64 {
        let unit = self.unit(page);
        let mut ns = self.program_ns;
        let mut entry = (unit, BTreeSet::new(), 0);
        match self.open.iter().position(|(open, ..)| *open == unit) {
            Some(at) if self.open[at].2 == self.unit_pages => ns += self.close(at),
            Some(at) => entry = self.open.remove(at).unwrap(),
            None if self.open.len() == self.open_units => ns += self.close(0),
            None => {}
        }
        entry.1.insert(page);
        entry.2 += 1;
        self.open.push_back(entry);
        ns
    }

    fn read(&mut self, page: u64) -> u64 {
        let unit = self.unit(page);
        let far = self.last_read.replace(unit) != Some(unit);
        self.read_ns + if far { self.far_ns } else { 0 }
    }
}

impl Device for Simple {
    fn pages(&self) -> u64 {
        self.pages
    }

    fn perform(&mut self, write: bool, pages: &[u64], each: u32) -> Result<Vec<u64>, Error> {
        assert!(pages.iter().all(|page| page + u64::from(each) <= self.pages));
        let mut one = |page| if write { self.write(page) } else { self.read(page) };
        let exact: Vec<u64> = pages
            .iter()
            .map(|first| (*first..first + u64::from(each)).map(&mut one).sum())
            .collect();
        let noise = self.noise;
        Ok(match &mut self.random {
            Some(random) => {
                let off = |ns: u64| (ns as f64 * (1.0 + random.random_range(-noise..noise))) as u64;
                exact.into_iter().map(off).collect()
            }
            None => exact,
        })
    }

    fn rest(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

fn device() -> impl Strategy<Value = Simple> {
    let unit_pages = prop_oneof![
        prop::sample::select(vec![4u64, 16, 64, 256, 384, 512, 768, 1024]),
        4u64..1025,
    ];
    let times = (100_000u64..2_000_000, 300_000u64..1_500_000, 1_000_000u64..5_000_000);
    let reads = (80_000u64..900_000, 0u64..300_000);
    (unit_pages, any::<u64>(), 1usize..33, times, reads).prop_map(
        |(unit_pages, first, open_units, (program_ns, copy_ns, erase_ns), (read_ns, far_ns))| {
            Simple {
                pages: 67 * 1024 + 5,
                unit_pages,
                first_page: first % unit_pages,
                open_units,
                program_ns,
                copy_ns,
                erase_ns,
                read_ns,
                far_ns,
                open: VecDeque::new(),
                last_read: None,
                noise: 0.0,
                random: None,
            }
        },
    )
}

fn measured(device: &Simple) -> Found {
    measure(&mut device.clone(), 0, &mut |_| ()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    // Promises: Profile 2, Profile 6.
    #[test]
    fn units_and_costs_are_recovered(device in device()) {
        let found = measured(&device);
        let units = found.units.clone().unwrap();
        prop_assert_eq!(
            (units.unit_pages, units.first_page, units.open_units as usize),
            (device.unit_pages, device.first_page, device.open_units)
        );
        let near = |found: f64, ns: u64, within: f64| (found - ns as f64 / 1e3).abs() <= within;
        prop_assert!(near(found.write.us, device.program_ns, 0.01), "{found:?}");
        prop_assert!(near(units.copy_us, device.copy_ns, 0.01), "{found:?}");
        prop_assert!(near(units.erase_us, device.erase_ns, 1.0) && units.error < 1e-6, "{found:?}");
        prop_assert!(near(found.read.us, device.read_ns, 0.01), "{found:?}");
        // A read that is not slower is not reported.
        let far_us = found.far_read.unwrap_or(found.read).us;
        prop_assert!(near(far_us, device.read_ns + device.far_ns, 0.01), "{found:?}");
        prop_assert_eq!(found.far_read.is_some(), device.far_ns > 0);
    }

    /// Noise of 20 % hides neither unit size nor number.
    // Promises: Profile 2.
    #[test]
    fn noise_hides_no_unit(device in device(), seed in any::<u64>()) {
        let noisy = Simple { noise: 0.2, random: Some(Pcg64::seed_from_u64(seed)), ..device };
        let units = measured(&noisy).units.unwrap();
        prop_assert_eq!(
            (units.unit_pages, units.open_units as usize),
            (noisy.unit_pages, noisy.open_units)
        );
        // The time of a few copies is smaller than the noise.
        let copy_us = noisy.copy_ns as f64 / 1e3;
        let off = (units.copy_us - copy_us).abs();
        prop_assert!(noisy.unit_pages < 64 || off < copy_us * 0.6, "{units:?}");
    }
}

fn card() -> Simple {
    Simple {
        pages: 67 * 1024,
        unit_pages: 512,
        first_page: 0,
        open_units: 4,
        program_ns: 600_000,
        copy_ns: 900_000,
        erase_ns: 2_000_000,
        read_ns: 800_000,
        far_ns: 3000,
        open: VecDeque::new(),
        last_read: None,
        noise: 0.0,
        random: None,
    }
}

/// Units were about as large as the distance between streams. All streams reached the end of their
/// units in the same lap, and each went on where the next one had been. With one stream too many,
/// all units but one were then open, and enough writes were cheap to report "5 places can be
/// written to in turn" for a device with 4 open units.
#[test]
fn streams_that_move_on_where_others_were_do_not_hide_the_cliff() {
    for (open_units, first_page) in
        [1, 3, 4, 5, 31, 63].into_iter().flat_map(|k| (0..9).map(move |page| (k, page)))
    {
        let units =
            measured(&Simple { unit_pages: 1024, first_page, open_units, ..card() }).units.unwrap();
        assert_eq!((units.unit_pages, units.first_page), (1024, first_page));
        assert_eq!(units.open_units as usize, open_units, "from page {first_page}");
    }
}

// Promises: Profile 3.
#[test]
fn unknown_values_are_listed() {
    let device = card();
    // More open units than streams; then a device that neither copies nor erases.
    let many = measured(&Simple { open_units: 200, ..device.clone() });
    assert!(many.units.unwrap_err().contains("no cliff") && many.streams.open_units.is_none());
    let cheap = measured(&Simple { copy_ns: 0, erase_ns: 0, ..device.clone() });
    assert!(cheap.units.unwrap_err().contains("no cliff"));
    // Units that are larger than the tested part.
    for unit_pages in [1100, 1500, 5000] {
        let large = measured(&Simple { unit_pages, ..device.clone() });
        assert!(large.units.unwrap_err().contains("--span"), "{unit_pages}");
    }
    let error = measure(&mut Simple { pages: 500, ..device }, 0, &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("too few"), "{error}");
}

/// A device of the simulator under the same test as a real one.
struct Simulated {
    machine: flashsift_pages::device::AnyDevice,
    pages: u64,
    now_ns: u64,
}

impl Device for Simulated {
    fn pages(&self) -> u64 {
        self.pages
    }

    fn perform(&mut self, write: bool, pages: &[u64], each: u32) -> Result<Vec<u64>, Error> {
        use flashsift_events::io::{Cause, Io, IoOp};
        use flashsift_pages::device::Device as _;
        let op = if write { IoOp::Write } else { IoOp::Read };
        let mut serve = |page: &u64| {
            let end_ns = self.machine.serve(
                &Io {
                    at_us: 0,
                    op,
                    lba: *page,
                    pages: each,
                    sync: false,
                    awaited: false,
                    cause: Cause::default(),
                },
                self.now_ns,
            );
            end_ns - std::mem::replace(&mut self.now_ns, end_ns)
        };
        Ok(pages.iter().map(&mut serve).collect())
    }

    /// An hour.
    fn rest(&mut self) -> Result<(), Error> {
        self.now_ns += 3_600_000_000_000;
        Ok(())
    }
}

/// The parameters of a simulated device are recovered, and the fitted model behaves like the
/// device.
// Promises: Profile 2, Profile 5.
#[test]
fn simulated_devices_are_recovered() {
    use flashsift_pages::device::{AnyDevice, Fill, Model, Profile, latency, open_unit};
    for (unit_kib, open_units, copy_us, program_us) in [
        (2048, 4, 945.0, 640.0),
        (1024, 4, 963.0, 1630.0),
        (64, 4, 800.0, 1440.0),
        (4096, 1, 700.0, 500.0),
        (512, 17, 700.0, 500.0),
        (1536, 32, 700.0, 500.0),
        (3072, 2, 300.0, 2000.0),
        (16, 63, 500.0, 300.0),
    ] {
        let params = open_unit::OpenUnitParams {
            capacity_bytes: 510 << 20,
            unit_bytes: unit_kib << 10,
            open_units,
            read_us: 800.0,
            far_read_us: 3.0,
            program_us,
            copy_us,
            erase_us: 2000.0,
            fill: Fill::InOrder,
        };
        let profile = Profile::new(Model::OpenUnit(params.clone()));
        let machine = AnyDevice::new(&profile).unwrap();
        let mut simulated = Simulated { machine, pages: (500 << 20) / PAGE_BYTES, now_ns: 0 };
        let found = measure(&mut simulated, 0, &mut |_| ()).unwrap();
        let fitted = fit(&found, params.capacity_bytes, "measured here").unwrap();
        let Model::OpenUnit(model) = &fitted.profile.model else {
            panic!("{unit_kib} KiB: {found:?}")
        };
        assert_eq!((model.unit_bytes, model.open_units), (params.unit_bytes, params.open_units));
        let near = |measured: f64, is: f64| (measured - is).abs() <= is * 0.01;
        assert!(near(model.program_us, program_us) && near(model.copy_us, copy_us), "{model:?}");
        assert!(near(model.erase_us, 2000.0) && near(model.read_us, 800.0), "{model:?}");
        assert!((model.far_read_us - 3.0).abs() < 0.01, "{model:?}");
        // The units that are open before the patterns differ.
        assert!(fitted.worst_error() < 0.1, "{unit_kib} KiB: {}", fitted.worst_error());
        assert!(fitted.unknown.iter().all(|text| text.contains("cycles")), "{:?}", fitted.unknown);
    }
    let flat =
        Profile::new(Model::Latency(latency::LatencyParams { read_us: 90.0, write_us: 700.0 }));
    let machine = AnyDevice::new(&flat).unwrap();
    let found =
        measure(&mut Simulated { machine, pages: 1 << 17, now_ns: 0 }, 0, &mut |_| ()).unwrap();
    let fitted = fit(&found, 1 << 29, "measured here").unwrap();
    assert_eq!(fitted.profile.model, flat.model);
    assert!(fitted.unknown[0].contains("no cliff") && fitted.worst_error() == 0.0, "{fitted:?}");
}

/// Every profile of the simulator is recovered, as far as requests one at a time show it, and the
/// rest is named. Most writes of aged devices wait for garbage collection; the medians
/// do not.
// Promises: Profile 4.
#[test]
fn every_modelled_device_is_recovered() {
    use flashsift_pages::device::{
        AnyDevice, Model, Profile, ProfileSelection, open_unit, profile::ALL,
    };
    let (mut recovered, mut disks) = (0, 0);
    for spec in ALL {
        let profile = Profile::from(&ProfileSelection::parse(spec.name).unwrap());
        // `flashsift profile` measures flash; a hard disk has seeks in place of erase units.
        if matches!(profile.model, Model::Disk(_)) {
            disks += 1;
            continue;
        }
        let machine = AnyDevice::new(&profile).unwrap();
        let pages = (8 << 30) / PAGE_BYTES;
        let mut device = Simulated { machine, pages, now_ns: 0 };
        let filling: Vec<u64> = (0..pages).step_by(256).collect();
        device.perform(true, &filling, 256).unwrap();
        let found = measure(&mut device, (6 << 30) / PAGE_BYTES, &mut |_| ()).unwrap();
        let bytes = profile.model.capacity_bytes().unwrap_or(1 << 40);
        let fitted = fit(&found, bytes, "measured here").unwrap();
        let (name, within) = (spec.name, 0.01);
        let (params, model) = match (&profile.model, &fitted.profile.model) {
            (Model::PageMapped(params), Model::PageMapped(model)) => (params, model),
            (Model::OpenUnit(params), Model::OpenUnit(model)) => {
                let units =
                    |params: &open_unit::OpenUnitParams| (params.unit_bytes, params.open_units);
                assert_eq!(units(model), units(params), "{name}");
                for (constant, measured, is) in [
                    ("read_us", model.read_us, params.read_us),
                    ("far_read_us", model.far_read_us, params.far_read_us),
                    ("program_us", model.program_us, params.program_us),
                    ("copy_us", model.copy_us, params.copy_us),
                    ("erase_us", model.erase_us, params.erase_us),
                ] {
                    let off = (measured - is).abs();
                    assert!(off <= is * within, "{name}: {constant} is {is}, measured {measured}");
                }
                recovered += 1;
                continue;
            }
            (Model::Latency(_), model) => {
                assert_eq!(*model, profile.model);
                recovered += 1;
                continue;
            }
            (_, model) => panic!("{name}: {model:?}"),
        };
        recovered += 1;
        assert_eq!((model.dies, model.nand_pages), (params.dies, params.nand_pages), "{name}");
        for (constant, measured, is, within) in [
            ("read_us", model.read_us, params.read_us, 0.01),
            ("write_us", model.write_us, params.write_us, 0.01),
            ("transfer_us", model.transfer_us, params.transfer_us, 0.01),
            ("program_us", model.program_us, params.program_us, 0.01),
            ("slc_program_us", model.slc_program_us, params.slc_program_us, 0.01),
            ("slc_bytes", model.slc_bytes as f64, params.slc_bytes as f64, 0.02),
            ("map_read_us", model.map_read_us, params.map_read_us, 0.01),
            ("map_cache_bytes", model.map_cache_bytes as f64, params.map_cache_bytes as f64, 0.01),
        ] {
            let off = (measured - is).abs();
            assert!(off <= is * within, "{name}: {constant} is {is}, measured {measured}");
        }
        for hidden in ["over_provisioning", "block_pages", "buffer_pages", "erase_us", "idle_us"] {
            let named = fitted.unknown.iter().any(|text| text.starts_with(hidden));
            assert!(named && fitted.profile.sources[hidden].starts_with("assumed"), "{hidden}");
        }
        let slc = fitted.unknown.iter().any(|text| text.starts_with("slc_bytes"));
        assert_eq!(slc, params.slc_bytes == 0, "{name}: {:?}", fitted.unknown);
    }
    assert_eq!((recovered + disks, disks), (ALL.len(), 1));
}

const PAGE_BYTES: u64 = flashsift_events::page::PAGE_BYTES;
