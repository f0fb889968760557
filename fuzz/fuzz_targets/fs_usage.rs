#![no_main]
flashsift_fuzz::reader!("fs-usage");
