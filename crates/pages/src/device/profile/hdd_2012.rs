//! The hard disk of SpatialClock's Table 2: 3.5 inches, 7200 revolutions a minute.
//!
//! Kim, Ryu, Ramachandran, "What is a Good Buffer Cache Replacement Scheme for Mobile Flash
//! Storage?", SIGMETRICS '12. Its 32,768 sorted requests lie eight pages apart on average in 1 GiB.
//! So the times without a seek include the rotation over that distance, and a request for
//! neighbouring pages would be faster. Nothing beside the four cells of the table is known.

use super::{Model, Profile, ProfileSpec, StorageKind, sources};
use crate::device::disk::HardDiskParams;

pub(super) const SPEC: ProfileSpec = ProfileSpec { name: "hdd-2012", params: &[], profile };

/// Time of a page of 4 KiB, from a throughput in KB/s of 1024 bytes.
const fn page_us(kb_per_s: f64) -> f64 {
    4.0e6 / kb_per_s
}

fn profile() -> Profile {
    let (read_us, write_us) = (page_us(6_498.4), page_us(4_836.6));
    Profile {
        what: "the 7200 rpm hard disk of SpatialClock's Table 2: seeks cost 3 to 7 ms".to_owned(),
        kind: StorageKind::Other,
        cycles: None,
        best_case: Vec::new(),
        model: Model::Disk(HardDiskParams {
            read_us,
            write_us,
            read_seek_us: page_us(537.6) - read_us,
            write_seek_us: page_us(1_004.0) - write_us,
            near_bytes: 1 << 20,
        }),
        sources: sources([
            ("read_us", "fit of SpatialClock's Table 2 (sorted reads 6498.4 KB/s)"),
            ("write_us", "fit of SpatialClock's Table 2 (sorted writes 4836.6 KB/s)"),
            ("read_seek_us", "fit of SpatialClock's Table 2 (random reads 537.6 KB/s)"),
            ("write_seek_us", "fit of SpatialClock's Table 2 (random writes 1004.0 KB/s)"),
            ("near_bytes", "assumed"),
        ]),
    }
}
