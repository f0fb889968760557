//! Events of applications, and the names, pages, units and structures that all other crates count
//! with.
#![forbid(unsafe_code)]

pub mod address;
#[cfg(any(test, feature = "testing"))]
pub mod dice;
pub mod duration;
pub mod event;
pub mod io;
pub mod ledger;
pub mod names;
pub mod page;
pub mod params;
pub mod show;
pub mod structure;
