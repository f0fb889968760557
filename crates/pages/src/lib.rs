//! Systems of pages: what is below and around a page cache, and the loop that replays a trace
//! through all of it.
//!
//! A [`system::Cell`] runs a trace through a cache and a [`back`], which sends its requests to the
//! device.
#![forbid(unsafe_code)]

pub mod back;
pub mod cache;
pub mod device;
pub mod layout;
pub mod metadata;
pub mod nvm;
pub mod readahead;
pub mod system;
pub mod writeback;
