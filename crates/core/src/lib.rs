//! The science of flashsift, sans I/O: no file, socket, clock or thread is reachable from here.
//!
//! [`event::Event`]s come in, are made dense by [`trace::TraceBuilder`], and run through a system of
//! [`front`] → [`cache`] → [`back`] as one [`system::Cell`]; what reaches the device comes out as [`back::Io`].
//! A [`study::Study`] compares many cells.
#![forbid(unsafe_code)]

pub mod back;
pub mod cache;
pub mod describe;
pub mod device;
pub mod event;
pub mod front;
pub mod layout;
pub mod page;
pub mod params;
pub mod policy;
pub mod settle;
pub mod show;
pub mod structure;
pub mod study;
pub mod synth;
pub mod system;
pub mod trace;
pub mod writeback;
