//! The science of flashsift, sans I/O: no file, socket, clock or thread is reachable from here.
//!
//! A [`trace::TraceBuilder`] turns [`event::Event`]s into a dense trace. A [`system::Cell`] runs it
//! through a [`cache`] and a [`back`], which sends its requests to the device as [`back::Io`]. A
//! [`study::Study`] compares many cells.
#![forbid(unsafe_code)]

pub mod back;
pub mod bound;
pub mod cache;
pub mod delayed;
pub mod describe;
pub mod device;
pub mod doctor;
pub mod layout;
pub mod metadata;
pub mod nvm;
pub mod objects;
pub mod policy;
pub mod readahead;
pub mod sift;
pub mod study;
pub mod synth;
pub mod system;
pub mod trace;
pub mod writeback;
