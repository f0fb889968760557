//! UFS 3.1 by Samsung's figures for its eUFS of 512 GB: 2 100 and 1 200 MB/s in order, 100 000 and
//! 70 000 requests a second at random. Writes go to an SLC cache (WriteBooster) while it has space.
//!
//! The figures are from the press release of 2020-03-17, which does not give the speed of writes
//! past the cache. The assumed 410 MB/s is its figure for eUFS 3.0 (same capacity, same figure for
//! reads, a standard without WriteBooster), which has eight dies (Samsung, 2019-02-27). `emmc-5.1`
//! explains how the constants follow.

use super::{
    AGED, MAP_CACHE, MAP_CACHE_BYTES, MAP_READ, MAP_READ_UFS, Model, PAGE_MAPPED_PARAMS, Profile,
    ProfileSpec, StorageKind, named, sources,
};
use crate::device::{Fill, page_mapped::PageMappedParams};

pub(super) const SPEC: ProfileSpec =
    ProfileSpec { name: "ufs-3.1", params: PAGE_MAPPED_PARAMS, profile };

fn profile() -> Profile {
    let dies = 8;
    Profile {
        what: "page-mapped, SLC cache: UFS 3.1 of 512 GB, by Samsung's figures".to_owned(),
        kind: StorageKind::Ufs,
        cycles: Some(3000.0),
        best_case: named(["read_us", "write_us", "transfer_us", "slc_program_us"]),
        model: Model::PageMapped(PageMappedParams {
            capacity_bytes: 512_000_000_000,
            over_provisioning: 0.07,
            dies,
            block_pages: 1024,
            nand_pages: 8,
            buffer_pages: 8,
            read_us: f64::from(dies) / 0.1,
            write_us: 1.0 / 0.070 - 4096.0 / 2100.0,
            transfer_us: 4096.0 / 2100.0,
            program_us: f64::from(dies) * 4096.0 / 410.0,
            slc_program_us: f64::from(dies) * 4096.0 / 1200.0,
            slc_bytes: 4 << 30,
            erase_us: 3500.0,
            idle_us: 100_000.0,
            map_cache_bytes: MAP_CACHE_BYTES,
            map_read_us: MAP_READ * (f64::from(dies) / 0.1 + 4096.0 / 2100.0),
            fill: Fill::Random,
        }),
        sources: sources([
            ("cycles", "assumed"),
            ("capacity_bytes", "Samsung, 2020-03-17"),
            ("over_provisioning", "assumed: sold as 10⁹ bytes, made as 2³⁰"),
            ("dies", "assumed: as eUFS 3.0 of 512 GB, Samsung, 2019-02-27"),
            ("block_pages", "assumed"),
            ("nand_pages", "assumed: two planes of 16 KiB"),
            ("buffer_pages", "assumed: a NAND page"),
            ("read_us", "fit of 100 000 random reads/s: Samsung, 2020-03-17"),
            ("write_us", "fit of 70 000 random writes/s: Samsung, 2020-03-17"),
            ("transfer_us", "fit of reads at 2 100 MB/s: Samsung, 2020-03-17"),
            ("program_us", "assumed: writes at 410 MB/s as of eUFS 3.0, Samsung, 2020-03-17"),
            ("slc_program_us", "fit of writes at 1 200 MB/s: Samsung, 2020-03-17"),
            ("slc_bytes", "assumed"),
            ("erase_us", "assumed"),
            ("idle_us", "assumed"),
            ("map_cache_bytes", MAP_CACHE),
            ("map_read_us", MAP_READ_UFS),
            ("fill", AGED),
        ]),
    }
}
