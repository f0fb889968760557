//! Bytes to events and back: every trace format that flashsift reads, and its own store.
//!
//! A format is one file in [`mod@format`] and one line in [`format::ALL`]. Only [`open`] and
//! [`replace`] access files; everything else converts between bytes and
//! [`flashsift_events::event::Event`]s.
#![forbid(unsafe_code)]

mod ahead;
pub mod annotations;
pub mod anonymize;
pub mod error;
pub mod events;
pub mod fio_log;
pub mod format;
pub mod input;
pub mod open;
pub mod pauses;
pub mod process;
pub mod replace;
pub mod served;
pub mod store;
pub mod tracepoint;
pub mod track_events;

pub use error::Error;
