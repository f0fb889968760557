//! UFS 2.1 by Samsung's figures for its eUFS of 512 GB: 860 and 255 MB/s in order, 42 000 and 40
//! 000 requests a second at random.
//!
//! The figures are from the table in the press release of 2020-03-17 on eUFS 3.1; the number of
//! dies (eight) is from the one on this device, 2017-12-05. `emmc-5.1` explains how the constants
//! follow.

use super::{
    AGED, MAP_CACHE, MAP_CACHE_BYTES, MAP_READ, MAP_READ_UFS, Model, PAGE_MAPPED_PARAMS, Profile,
    ProfileSpec, StorageKind, named, sources,
};
use crate::device::{Fill, page_mapped::PageMappedParams};

pub(super) const SPEC: ProfileSpec =
    ProfileSpec { name: "ufs-2.1", params: PAGE_MAPPED_PARAMS, profile };

fn profile() -> Profile {
    let dies = 8;
    Profile {
        what: "page-mapped: UFS 2.1 of 512 GB, by Samsung's figures".to_owned(),
        kind: StorageKind::Ufs,
        cycles: Some(3000.0),
        best_case: named(["read_us", "write_us", "transfer_us", "program_us"]),
        model: Model::PageMapped(PageMappedParams {
            capacity_bytes: 512_000_000_000,
            over_provisioning: 0.07,
            dies,
            block_pages: 1024,
            nand_pages: 8,
            buffer_pages: 8,
            read_us: f64::from(dies) / 0.042,
            write_us: 1.0 / 0.040 - 4096.0 / 860.0,
            transfer_us: 4096.0 / 860.0,
            program_us: f64::from(dies) * 4096.0 / 255.0,
            slc_program_us: 0.0,
            slc_bytes: 0,
            erase_us: 3500.0,
            idle_us: 0.0,
            map_cache_bytes: MAP_CACHE_BYTES,
            map_read_us: MAP_READ * (f64::from(dies) / 0.042 + 4096.0 / 860.0),
            fill: Fill::Random,
        }),
        sources: sources([
            ("cycles", "assumed"),
            ("capacity_bytes", "Samsung, 2017-12-05"),
            ("over_provisioning", "assumed: sold as 10⁹ bytes, made as 2³⁰"),
            ("dies", "Samsung, 2017-12-05: eight chips of 512 Gbit"),
            ("block_pages", "assumed"),
            ("nand_pages", "assumed: two planes of 16 KiB"),
            ("buffer_pages", "assumed: a NAND page"),
            ("read_us", "fit of 42 000 random reads/s: Samsung, 2020-03-17"),
            ("write_us", "fit of 40 000 random writes/s: Samsung, 2020-03-17"),
            ("transfer_us", "fit of reads at 860 MB/s: Samsung, 2020-03-17"),
            ("program_us", "fit of writes at 255 MB/s: Samsung, 2020-03-17"),
            ("slc_program_us", "assumed: no SLC cache"),
            ("slc_bytes", "assumed: no SLC cache"),
            ("erase_us", "assumed"),
            ("idle_us", "assumed: no SLC cache"),
            ("map_cache_bytes", MAP_CACHE),
            ("map_read_us", MAP_READ_UFS),
            ("fill", AGED),
        ]),
    }
}
