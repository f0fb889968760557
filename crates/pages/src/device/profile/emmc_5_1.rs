//! eMMC 5.1 by Samsung's figures: 250 and 125 MB/s in order, 11 000 and 13 000 requests a second at
//! random.
//!
//! The figures are from the table in the press release of 2020-03-17 on eUFS 3.1, which goes back
//! to eMMC 4.5. MB are read as 10⁶ bytes. Random figures are for deep queues, so reads keep all
//! dies busy: a read takes a die `dies / 11 000` seconds.

use super::{
    AGED, MAP_CACHE, MAP_CACHE_BYTES, MAP_READ, Model, PAGE_MAPPED_PARAMS, Profile, ProfileSpec,
    StorageKind, named, sources,
};
use crate::device::{Fill, page_mapped::PageMappedParams};

pub(super) const SPEC: ProfileSpec =
    ProfileSpec { name: "emmc-5.1", params: PAGE_MAPPED_PARAMS, profile };

fn profile() -> Profile {
    let dies = 2;
    Profile {
        what: "page-mapped: eMMC 5.1 of 64 GB, by Samsung's figures".to_owned(),
        kind: StorageKind::Emmc,
        cycles: Some(3000.0),
        best_case: named(["read_us", "write_us", "transfer_us", "program_us"]),
        model: Model::PageMapped(PageMappedParams {
            capacity_bytes: 64_000_000_000,
            over_provisioning: 0.07,
            dies,
            block_pages: 1024,
            nand_pages: 8,
            buffer_pages: 8,
            read_us: f64::from(dies) / 0.011,
            write_us: 1.0 / 0.013 - 4096.0 / 250.0,
            transfer_us: 4096.0 / 250.0,
            program_us: f64::from(dies) * 4096.0 / 125.0,
            slc_program_us: 0.0,
            slc_bytes: 0,
            erase_us: 3500.0,
            idle_us: 0.0,
            map_cache_bytes: MAP_CACHE_BYTES,
            map_read_us: MAP_READ * (f64::from(dies) / 0.011 + 4096.0 / 250.0),
            fill: Fill::Random,
        }),
        sources: sources([
            ("cycles", "assumed"),
            ("capacity_bytes", "assumed"),
            ("over_provisioning", "assumed: sold as 10⁹ bytes, made as 2³⁰"),
            ("dies", "assumed"),
            ("block_pages", "assumed"),
            ("nand_pages", "assumed: two planes of 16 KiB"),
            ("buffer_pages", "assumed: a NAND page"),
            ("read_us", "fit of 11 000 random reads/s: Samsung, 2020-03-17"),
            ("write_us", "fit of 13 000 random writes/s: Samsung, 2020-03-17"),
            ("transfer_us", "fit of reads at 250 MB/s: Samsung, 2020-03-17"),
            ("program_us", "fit of writes at 125 MB/s: Samsung, 2020-03-17"),
            ("slc_program_us", "assumed: no SLC cache"),
            ("slc_bytes", "assumed: no SLC cache"),
            ("erase_us", "assumed"),
            ("idle_us", "assumed: no SLC cache"),
            ("map_cache_bytes", MAP_CACHE),
            ("map_read_us", "assumed: the share of a read that UFS needs"),
            ("fill", AGED),
        ]),
    }
}
