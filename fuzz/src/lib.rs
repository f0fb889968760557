//! The bodies of the fuzz targets: a reader must survive any bytes, and what has to hold is what the hostile tests check; a
//! cache must do what its policy's model does.
//!
//! No corpus is kept: each target begins with its format's sample.

#[path = "../../crates/traces/tests/checked/mod.rs"]
mod checked;

use flashsift_core::policy::{
    self, Setup,
    naive::{self, Act},
};
use flashsift_traces::{
    format::{self, ALL},
    open::Limits,
};
use std::{io::Write, sync::Once};

pub use libfuzzer_sys;

/// A target from what to do with the bytes and what to begin with.
#[macro_export]
macro_rules! target {
    ($run:expr, $samples:expr) => {
        $crate::libfuzzer_sys::fuzz_target!(init: $crate::quiet_parquet(), |data: &[u8]| $run(data));
        $crate::libfuzzer_sys::fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
            $crate::mutate($samples, data, size, max_size, seed)
        });
    };
}

/// The target of one reader.
#[macro_export]
macro_rules! reader {
    ($name:literal) => {
        $crate::target!(|data| $crate::fuzz_reader($name, data), || $crate::sample($name));
    };
}

/// Reads `data` as that format.
pub fn fuzz_reader(name: &str, data: &[u8]) {
    let _ = format::detected(data);
    let _ = checked::read(Some(format::named(name).expect("a format")), data, &Limits::default());
}

/// Unpacks, detects and reads `data`.
pub fn open(data: &[u8]) {
    let limits = Limits { ratio_from_bytes: 1 << 20, window_bytes_max: 16 << 20, ..Limits::default() };
    let _ = checked::read(None, data, &limits);
}

/// Steps every policy's cache and model through the history that `data` spells: two bytes of sizes, one of which policy,
/// then two an act. What parts panics.
pub fn cache(data: &[u8]) {
    let &[which, pages, frames, ref acts @ ..] = data else { return };
    let spec = &policy::ALL[which as usize % policy::ALL.len()];
    let pages = 1 + u32::from(pages);
    let frames = 1 + u32::from(frames) % (pages + 2);
    let acts: Vec<Act> = acts
        .as_chunks()
        .0
        .iter()
        .map(|&[kind, page]| {
            let page = u32::from(page) % pages;
            match kind % 16 {
                0 => Act::Drop(page, 1 + u32::from(kind / 16)),
                1 | 2 => Act::Clean(page),
                3..10 => Act::Read(page),
                _ => Act::Write(page),
            }
        })
        .collect();
    let params = Default::default();
    let setup = Setup { frames, pages, runs: &[], params: &params };
    if let Err(parted) = naive::compare(spec, &setup, &acts) {
        panic!("{}, {frames} frames, {pages} pages: parted from its model at {parted}", spec.name);
    }
}

/// That format's sample.
pub fn sample(name: &str) -> Vec<Vec<u8>> {
    vec![(format::named(name).expect("a format").sample)()]
}

/// Every sample, plain and packed.
pub fn packed_samples() -> Vec<Vec<u8>> {
    let packed = |plain: Vec<u8>| {
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 0);
        gzip.write_all(&plain).and_then(|()| xz.write_all(&plain)).expect("memory takes anything");
        let zstd = zstd::encode_all(&plain[..], 0).expect("memory takes anything");
        [gzip.finish().expect("memory"), xz.finish().expect("memory"), zstd, plain]
    };
    ALL.iter().flat_map(|spec| packed((spec.sample)())).collect()
}

/// Damages the input, or, now and then and where there is none yet, begins anew with a sample.
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

/// libfuzzer aborts on any panic. Those of the parquet crate are caught and expected (see the store): they are let pass.
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
