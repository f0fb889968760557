//! What flashsift reads from the machine it runs on.
#![forbid(unsafe_code)]

pub mod mounts;
pub mod users;
pub mod wear;
