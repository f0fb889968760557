#![no_main]
flashsift_fuzz::target!(flashsift_fuzz::open, flashsift_fuzz::packed_samples);
