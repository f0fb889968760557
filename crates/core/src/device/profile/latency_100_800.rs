//! SpatialClock's cost model as a device: 100 µs a page read, 800 µs a page written (§5.1.2, after FOR).

use super::{Kind, Model, Profile, Spec, sources};
use crate::device::latency::Params;

pub(super) const SPEC: Spec = Spec { name: "latency-100-800", params: &[], profile };

fn profile() -> Profile {
    Profile {
        what: "constant: 100 µs a page read, 800 µs a page written".to_owned(),
        kind: Kind::Other,
        cycles: None,
        model: Model::Latency(Params { read_us: 100.0, write_us: 800.0 }),
        sources: sources([("read_us", "SpatialClock, §5.1.2"), ("write_us", "SpatialClock, §5.1.2")]),
    }
}
