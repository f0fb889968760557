#![no_main]
use flashsift_fuzz::libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| flashsift_fuzz::describe(data));
