//! The science of flashsift, sans I/O: no file, socket, clock or thread is reachable from here.
//!
//! Bytes become [`event::Event`]s outside.
#![forbid(unsafe_code)]

pub mod event;
