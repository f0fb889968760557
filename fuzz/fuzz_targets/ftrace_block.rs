#![no_main]
flashsift_fuzz::reader!("ftrace-block");
