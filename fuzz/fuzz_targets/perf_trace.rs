#![no_main]
flashsift_fuzz::reader!("perf-trace");
