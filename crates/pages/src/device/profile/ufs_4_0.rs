//! UFS 4.0 by Samsung's figures: 4 200 and 2 800 MB/s in order, up to 1 TB. Writes go to an SLC
//! cache (WriteBooster) while it has space.
//!
//! Samsung's announcement of 2022-05-03 gives no random figures. The speed of writes past the cache
//! was measured on such a device in a review of FreeBSD's driver (D51893, 2025: 556 MiB/s with
//! WriteBooster off). The same review measured 1 568 MiB/s with it on: about half of Samsung's
//! figure, which is the best case. `emmc-5.1` explains how the constants follow.

use super::{
    AGED, MAP_CACHE, MAP_CACHE_BYTES, MAP_READ, MAP_READ_UFS, Model, PAGE_MAPPED_PARAMS, Profile,
    ProfileSpec, StorageKind, named, sources,
};
use crate::device::{Fill, page_mapped::PageMappedParams};

pub(super) const SPEC: ProfileSpec =
    ProfileSpec { name: "ufs-4.0", params: PAGE_MAPPED_PARAMS, profile };

fn profile() -> Profile {
    let dies = 8;
    Profile {
        what: "page-mapped, SLC cache: UFS 4.0 of 1 TB, by Samsung's figures".to_owned(),
        kind: StorageKind::Ufs,
        cycles: Some(3000.0),
        best_case: named(["transfer_us", "slc_program_us"]),
        model: Model::PageMapped(PageMappedParams {
            capacity_bytes: 1_000_000_000_000,
            over_provisioning: 0.07,
            dies,
            block_pages: 1024,
            nand_pages: 8,
            buffer_pages: 8,
            read_us: 60.0,
            write_us: 10.0,
            transfer_us: 4096.0 / 4200.0,
            program_us: f64::from(dies) * 4096.0 / (556.0 * 1.048_576),
            slc_program_us: f64::from(dies) * 4096.0 / 2800.0,
            slc_bytes: 4 << 30,
            erase_us: 3500.0,
            idle_us: 100_000.0,
            map_cache_bytes: MAP_CACHE_BYTES,
            map_read_us: MAP_READ * (60.0 + 4096.0 / 4200.0),
            fill: Fill::Random,
        }),
        sources: sources([
            ("cycles", "assumed"),
            ("capacity_bytes", "Samsung, 2022-05-03"),
            ("over_provisioning", "assumed: sold as 10⁹ bytes, made as 2³⁰"),
            ("dies", "assumed"),
            ("block_pages", "assumed"),
            ("nand_pages", "assumed: two planes of 16 KiB"),
            ("buffer_pages", "assumed: a NAND page"),
            ("read_us", "assumed"),
            ("write_us", "assumed"),
            ("transfer_us", "fit of reads at 4 200 MB/s: Samsung, 2022-05-03"),
            ("program_us", "fit of writes at 556 MiB/s past the cache: FreeBSD review D51893"),
            ("slc_program_us", "fit of writes at 2 800 MB/s: Samsung, 2022-05-03"),
            ("slc_bytes", "assumed"),
            ("erase_us", "assumed"),
            ("idle_us", "assumed"),
            ("map_cache_bytes", MAP_CACHE),
            ("map_read_us", MAP_READ_UFS),
            ("fill", AGED),
        ]),
    }
}
