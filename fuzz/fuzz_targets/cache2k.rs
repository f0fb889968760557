#![no_main]
flashsift_fuzz::reader!("cache2k");
