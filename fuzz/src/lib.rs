//! The fuzz targets: the loop of libFuzzer around the functions of `bodies`.
//!
//! No corpus is kept: each target begins with the sample of its format.

mod bodies;
#[path = "../../crates/traces/tests/checked/mod.rs"]
mod checked;

pub use bodies::*;
use std::sync::Once;

pub use libfuzzer_sys;

/// Defines a target from its function and its seed inputs.
#[macro_export]
macro_rules! target {
    ($run:expr, $samples:expr) => {
        $crate::libfuzzer_sys::fuzz_target!(init: $crate::quiet_parquet(), |data: &[u8]| $run(data));
        $crate::libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
            $crate::mutate($samples, data, size, max_size, seed)
        });
    };
}

/// Defines the target of one reader.
#[macro_export]
macro_rules! reader {
    ($name:literal) => {
        $crate::target!(|data| $crate::fuzz_reader($name, data), || $crate::sample($name));
    };
}

/// Damages the input. Sometimes, or if it is empty, it starts with a sample instead.
pub fn mutate(
    samples: impl FnOnce() -> Vec<Vec<u8>>,
    data: &mut [u8],
    size: usize,
    max_size: usize,
    seed: u32,
) -> usize {
    if size > 1 && !seed.is_multiple_of(4096) {
        return libfuzzer_sys::fuzzer_mutate(data, size, max_size);
    }
    let samples = samples();
    let sample = &samples[seed as usize / 4096 % samples.len()];
    let len = sample.len().min(max_size);
    data[..len].copy_from_slice(&sample[..len]);
    len
}

/// Lets panics of the parquet crate pass, which the store catches and expects. Otherwise libfuzzer
/// aborts on any panic.
pub fn quiet_parquet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let abort = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if info.location().is_none_or(|at| !at.file().contains("/parquet-")) {
                abort(info);
            }
        }));
    });
}
