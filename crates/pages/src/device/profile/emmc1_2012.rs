//! eMMC-1 of SpatialClock's evaluation: 30 GB by Samsung, in a Nokia N900.
//!
//! Kim, Ryu, Ramachandran, "What is a Good Buffer Cache Replacement Scheme for Mobile Flash
//! Storage?", SIGMETRICS '12. The two write cells of its Table 2 determine the time of a page
//! copied and of a page programmed. The two read cells determine the time of a read and the
//! additional time of a far one. The size of a unit, the number of open ones and the time of an
//! erase are assumed: any number of open units from 1 to 16 matches the table as well. KB in the
//! table are read as 1 024 bytes.

use super::{Model, OPEN_UNIT_PARAMS, Profile, ProfileSpec, StorageKind, sources};
use crate::device::{Fill, open_unit::OpenUnitParams};

pub(super) const SPEC: ProfileSpec =
    ProfileSpec { name: "emmc1-2012", params: OPEN_UNIT_PARAMS, profile };

fn profile() -> Profile {
    Profile {
        what: "open units: eMMC of 30 GB by Samsung, in a Nokia N900".to_owned(),
        kind: StorageKind::Emmc,
        cycles: Some(3000.0),
        best_case: Vec::new(),
        model: Model::OpenUnit(OpenUnitParams {
            capacity_bytes: 30_000_000_000,
            unit_bytes: 1 << 20,
            open_units: 4,
            read_us: 780.6,
            far_read_us: 119.4,
            program_us: 1630.0,
            copy_us: 963.0,
            erase_us: 2000.0,
            fill: Fill::InOrder,
        }),
        sources: sources([
            ("cycles", "assumed: two bits a cell"),
            ("capacity_bytes", "SpatialClock, Table 4"),
            ("unit_bytes", "assumed"),
            ("open_units", "assumed"),
            ("read_us", "fit of SpatialClock's Table 2 (reads 5100.1 and 4444.6 KB/s)"),
            ("far_read_us", "fit of SpatialClock's Table 2 (reads 5100.1 and 4444.6 KB/s)"),
            ("program_us", "fit of SpatialClock's Table 2 (writes 470.9 and 16.1 KB/s)"),
            ("copy_us", "fit of SpatialClock's Table 2 (writes 470.9 and 16.1 KB/s)"),
            ("erase_us", "assumed"),
            ("fill", "assumed"),
        ]),
    }
}
