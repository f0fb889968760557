//! The bodies of the fuzz targets, which are fuzzed for hours elsewhere, compile and run for a
//! moment. `FLASHSIFT_SEED=N` repeats a failure, `FLASHSIFT_ROUNDS=N` makes it longer.

#[path = "../../../fuzz/src/bodies.rs"]
#[allow(unreachable_pub, reason = "the library of the fuzz targets has it in public")]
mod bodies;

use crate::hostile::{number, random};
use flashsift_traces::format;
use rand::RngExt;

#[test]
fn targets_of_formats_survive_their_samples() {
    for spec in format::ALL {
        bodies::sample(spec.name).iter().for_each(|sample| bodies::fuzz_reader(spec.name, sample));
    }
}

/// A body panics if what it compares differs.
#[test]
fn bodies_hold_on_random_bytes_and_damaged_samples() {
    let mut random = random("bodies of the fuzz targets");
    for round in 0..number("FLASHSIFT_ROUNDS").unwrap_or(200) {
        println!("round {round}");
        let mut bytes = vec![0; random.random_range(0..600)];
        random.fill(&mut bytes[..]);
        bodies::cache(&bytes);
        bodies::describe(&bytes);
    }
    for (run, samples) in [
        (bodies::open as fn(&[u8]), bodies::packed_samples()),
        (bodies::csv_columns, bodies::csv_samples()),
    ] {
        for mut sample in samples {
            run(&sample);
            let at = random.random_range(0..sample.len());
            sample[at] ^= 1 << random.random_range(0..8);
            println!("{} bytes, damaged at {at}", sample.len());
            run(&sample);
        }
    }
}
