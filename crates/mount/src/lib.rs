//! A file system whose new files live in RAM before they settle to flash.
//!
//! [`Fs`] is the logic, without a kernel above it: directories, links and settled files are those of BACKING, an ordinary
//! directory; a regular file is born in the [`Store`], a tmpfs of bounded size, and its name is only in our table, which
//! overlays BACKING, until it [settles](Fs::settle_due). [`fuse`] gives it to the kernel.
//!
//! CacheSifter ("CacheSifter: Sifting Cache Files for Boosted Mobile Performance and Lifetime", FAST '22), §4, holds cache files in such a
//! quasi in-memory file system. Here the verdict on each file is *keep*.
#![deny(unsafe_code)]

mod attach;
mod backing;
mod caller;
mod content;
mod dirs;
mod files;
mod fs;
pub mod fuse;
mod names;
pub mod noatime;
mod observe;
pub mod place;
mod room;
mod settle;
mod store;
mod table;
mod types;
pub mod undo;
pub mod words;
mod xattrs;

pub use fs::Fs;
pub use rustix::io::Errno;
pub use store::Store;
pub use types::{Attr, Caller, Changes, Config, Entry, Ino, Opened, ROOT, Status, Time};
