//! A file system whose new files live in RAM before they are written back to flash.
//!
//! Five parts, whose arrows point one way: [`daemon`] → [`attach`] and [`fuse`] → [`control`] →
//! `fs`.
//!
//! [`Fs`] is the logic, without a kernel above it: directories, links and files on flash are those
//! of BACKING, an ordinary directory; a regular file is created in the [`Store`], a tmpfs of
//! bounded size, and its name is only in the table of names, which overlays BACKING, until the file
//! is [written back](Fs::settle_due). [`fuse`] adapts it to the kernel's requests, [`control`] asks
//! a mount for its status and for a write-back, [`attach`] decides what may be mounted where,
//! mounts and unmounts, and [`daemon`] is the life of a mount.
//!
//! CacheSifter ("CacheSifter: Sifting Cache Files for Boosted Mobile Performance and Lifetime",
//! FAST '22), §4, holds cache files in such a quasi in-memory file system. Here every file is kept
//! unless the user [chooses a sifter](Fs::choose_sifter), which may drop files of known caches.
#![deny(unsafe_code)]

pub mod attach;
pub mod control;
pub mod daemon;
mod fs;
pub mod fuse;
pub mod metrics;

pub use fs::Fs;
pub use fs::decider::decisions::SiftNotice;
pub use fs::drops::DroppedName;
pub use fs::failures::{Step, WriteBackError, WriteBackFailures};
pub use fs::sifting::{SiftError, SiftWish};
pub use fs::store::Store;
pub use fs::types::{
    Access, Attr, Caller, Changes, Clock, Config, DelayedStatus, Device, Entry, Failure, Ino,
    Model, Opened, ROOT, RehearsalStatus, SiftStatus, Status, Time, Writes,
};
pub use rustix::io::Errno;
