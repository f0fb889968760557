//! What is said while files are held. `eprintln!` would end us where nobody can hear it: a reader that is gone, a log on a full disk.

use std::{
    fmt,
    io::{self, Write},
};

/// To standard error, in one piece, if that can be.
pub fn say(words: fmt::Arguments<'_>) {
    let _ = io::stderr().write_all(format!("flashsift: {words}\n").as_bytes());
}

/// As `eprintln!`, for as long as files are held.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => {
        $crate::words::say(format_args!($($words)*))
    };
}
