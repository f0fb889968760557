//! Reads the state of the machine that flashsift runs on: mounts, users of directories, disks, wear
//! of storage, swap, memory that is short, the application in the foreground, the kernel's
//! write-back. Changes its read-ahead and its write-back, with journals to undo that. Keeps files
//! from other users.
#![forbid(unsafe_code)]

pub mod change;
pub mod disks;
pub mod executable;
pub mod flusher;
pub mod foreground;
pub mod inside;
pub mod journal;
pub mod memory;
pub mod mounts;
pub mod own_files;
pub mod readahead;
pub mod settings;
pub mod swap;
pub mod users;
pub mod wear;
