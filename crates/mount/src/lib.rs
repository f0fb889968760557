//! A file system whose new files live in RAM before they settle to flash.
#![forbid(unsafe_code)]

pub mod place;
pub mod undo;
