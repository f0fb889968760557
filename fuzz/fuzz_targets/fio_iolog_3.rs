#![no_main]
flashsift_fuzz::reader!("fio-iolog-3");
