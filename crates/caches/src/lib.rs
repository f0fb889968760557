//! The page cache and its replacement policies, over dense traces; and caches of objects.
//!
//! A [`trace::TraceBuilder`] turns events into a dense trace. A [`cache`] asks a [`policy`] for
//! victims, and sends what must reach storage to a [`back`].
#![forbid(unsafe_code)]

pub mod back;
pub mod cache;
pub mod lines;
pub mod objects;
pub mod policy;
pub mod synth;
pub mod trace;
