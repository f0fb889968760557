//! Reads the state of the machine that flashsift runs on: mounts, users of directories, wear of
//! storage, the kernel's write-back.
#![forbid(unsafe_code)]

pub mod flusher;
pub mod mounts;
pub mod users;
pub mod wear;
