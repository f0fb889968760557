//! Reads the state of the machine that flashsift runs on: mounts, users of directories, disks, wear
//! of storage, swap, the kernel's write-back. Changes its read-ahead, with a journal to undo it.
#![forbid(unsafe_code)]

pub mod disks;
pub mod flusher;
pub mod journal;
pub mod mounts;
pub mod readahead;
pub mod swap;
pub mod users;
pub mod wear;
