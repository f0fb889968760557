//! Our own store ([`crate::store`]). Parquet begins at its end, so it is read from the file itself where there is one,
//! else (a pipe, an archive) from memory.

use super::{Confidence, Spec};
use crate::{Error, events::Events, input::Input, store};

pub(super) const SPEC: Spec = Spec {
    name: "parquet",
    what: "flashsift's own store, as `import` and `record` write it",
    detect: |head| if head.starts_with(b"PAR1") { Confidence::Certain } else { Confidence::No },
    read,
    sample: store::sample,
};

const MEMORY_BYTES_MAX: u64 = 4 << 30;

fn read(input: &mut Input<'_>, events: &mut Events<'_>) -> Result<(), Error> {
    match input.take_file() {
        Some(file) => store::read(file, events),
        None => store::read(bytes::Bytes::from(input.rest(MEMORY_BYTES_MAX)?), events),
    }
}
