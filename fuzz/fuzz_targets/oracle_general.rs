#![no_main]
flashsift_fuzz::reader!("oracle-general");
