#![no_main]
flashsift_fuzz::reader!("procmon");
