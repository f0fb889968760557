#![no_main]
flashsift_fuzz::target!(flashsift_fuzz::csv_columns, flashsift_fuzz::csv_samples);
