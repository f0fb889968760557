//! Reads the state of the machine that flashsift runs on: mounts, users of directories, disks, wear
//! of storage, swap, the kernel's write-back.
#![forbid(unsafe_code)]

pub mod disks;
pub mod flusher;
pub mod mounts;
pub mod swap;
pub mod users;
pub mod wear;
