//! Reads the state of the machine that flashsift runs on: mounts, users of directories, wear of
//! storage.
#![forbid(unsafe_code)]

pub mod mounts;
pub mod users;
pub mod wear;
