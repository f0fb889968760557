//! SpatialClock's cost model as a device: 100 µs for each page read, 800 µs for each page written
//! (§5.1.2, after FOR).

use super::{Model, Profile, ProfileSpec, StorageKind, sources};
use crate::device::latency::LatencyParams;

pub(super) const SPEC: ProfileSpec = ProfileSpec { name: "latency-100-800", params: &[], profile };

fn profile() -> Profile {
    Profile {
        what: "constant: 100 µs a page read, 800 µs a page written".to_owned(),
        kind: StorageKind::Other,
        cycles: None,
        best_case: Vec::new(),
        model: Model::Latency(LatencyParams { read_us: 100.0, write_us: 800.0 }),
        sources: sources([
            ("read_us", "SpatialClock, §5.1.2"),
            ("write_us", "SpatialClock, §5.1.2"),
        ]),
    }
}
