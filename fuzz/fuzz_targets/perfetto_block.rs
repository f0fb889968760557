#![no_main]
flashsift_fuzz::reader!("perfetto-block");
