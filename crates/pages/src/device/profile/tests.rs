use super::*;
use crate::device::{Device, Prepared, testing};
use std::collections::BTreeSet;

#[test]
fn every_profile_is_a_device_of_its_own_name() {
    let names: BTreeSet<&str> = ALL.iter().map(|spec| spec.name).collect();
    assert_eq!(names.len(), ALL.len());
    for selection in all() {
        let (label, profile) = (selection.label(), Profile::from(&selection));
        profile.check().unwrap_or_else(|error| panic!("{label}: {error}"));
        assert!(!profile.what.is_empty() && !profile.what.ends_with('.'), "{label}");
        if profile.check_in(usize::BITS).is_err() {
            continue;
        }
        // A write of a part of a unit, and a read of pages that no device has. Two devices of a
        // profile behave alike, and are busy for some time.
        let times = || {
            let mut device = Prepared::new(&profile).unwrap().new_device();
            let written = device.serve(&testing::write(7, 3), 0);
            let read = device.serve(&testing::read(u64::MAX - 9, 3), written);
            device.check();
            [written, read - written]
        };
        assert_eq!(times(), times(), "{label}");
        assert!(times().iter().all(|&ns| ns >= 1000), "{label}: {:?}", times());
        if label == "latency-100-800" {
            assert_eq!(times(), [3 * 800_000, 3 * 100_000]);
        }
    }
}

// Promises: Devices 1.
#[test]
fn parameters_change_the_device() {
    let chosen = ProfileSelection::parse("emmc-5.1:fill=in-order,gib=1").unwrap();
    assert_eq!(chosen.label(), "emmc-5.1:fill=in-order,gib=1");
    assert_eq!(Profile::from(&chosen).model.fill(), Some(Fill::InOrder));
    let fill = |name| Profile::from(&ProfileSelection::parse(name).unwrap()).model.fill();
    assert_eq!(fill("emmc-5.1"), Some(Fill::Random));
    assert_eq!(fill("microsd-2012"), Some(Fill::InOrder));
    assert_eq!(Profile::from(&chosen).model.capacity_bytes(), Some(1 << 30));
    assert!(ProfileSelection::parse("latency-100-800:fill=empty").is_err());
    assert!(ProfileSelection::parse("floppy").err().unwrap().to_string().contains("microsd-2012"));
}

/// Impossible constants give an error that names the constant.
#[test]
fn impossible_profiles_are_refused() {
    let profile = |name: &str| Profile::from(&ProfileSelection::parse(name).unwrap());
    let says = |profile: &Profile| profile.check().unwrap_err().to_string();
    let mut latency = profile("latency-100-800");
    for us in [-1.0, f64::NAN, f64::INFINITY] {
        latency.model = Model::Latency(latency::LatencyParams { read_us: us, write_us: 1.0 });
        assert!(says(&latency).starts_with("read_us is "));
    }
    let open_unit = |change: fn(&mut open_unit::OpenUnitParams)| {
        let mut profile = profile("microsd-2012");
        if let Model::OpenUnit(params) = &mut profile.model {
            change(params);
        }
        says(&profile)
    };
    assert!(open_unit(|params| params.open_units = 0).starts_with("open_units is 0"));
    assert!(open_unit(|params| params.unit_bytes = 5000).starts_with("unit_bytes"));
    assert!(open_unit(|params| params.unit_bytes = 0).starts_with("unit_bytes"));
    assert!(open_unit(|params| params.unit_bytes = 8_000_000_512).starts_with("unit_bytes"));
    assert!(open_unit(|params| params.capacity_bytes = u64::MAX).starts_with("capacity_bytes"));
    let page_mapped = |change: fn(&mut page_mapped::PageMappedParams)| {
        let mut profile = profile("ufs-3.1");
        if let Model::PageMapped(params) = &mut profile.model {
            change(params);
        }
        says(&profile)
    };
    assert!(page_mapped(|params| params.dies = 0).starts_with("dies is 0"));
    assert!(page_mapped(|params| params.nand_pages = 0).starts_with("nand_pages is 0"));
    assert!(page_mapped(|params| params.block_pages = 12).starts_with("block_pages"));
    assert!(page_mapped(|params| params.slc_bytes = 1 << 20).starts_with("slc_bytes"));
    assert!(
        page_mapped(|params| params.slc_bytes = params.capacity_bytes + 1).starts_with("slc_bytes")
    );
    assert!(page_mapped(|params| params.capacity_bytes = 1 << 20).starts_with("capacity_bytes"));
    assert!(
        page_mapped(|params| params.over_provisioning = f64::NAN).starts_with("over_provisioning")
    );
}

/// With 32 bits, the second device of 512 GB once ended the program: "memory allocation of
/// 67399680 bytes failed". The tables of each page are known before they are made.
// Promises: Devices 9.
#[test]
fn a_device_beyond_the_addresses_is_refused() {
    let of = |selection: &str| Profile::from(&ProfileSelection::parse(selection).unwrap());
    let large = of("ufs-3.1");
    assert_eq!(large.check_in(64), Ok(()));
    let says = large.check_in(32).unwrap_err().to_string();
    assert_eq!(
        says,
        "the tables of a device of 512 GB take 991 MiB, and this program has 32 bits, 384 MiB of \
         them for a device; model a part of it, such as :gib=64"
    );
    for fits in ["ufs-3.1:gib=64", "ufs-4.0:gib=64", "emmc-5.1", "microsd-2012", "hdd-2012"] {
        assert_eq!(of(fits).check_in(32), Ok(()), "{fits}");
    }
}
