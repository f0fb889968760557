//! Files in RAM, over events alone: sifters, delayed syncs, and the savings and costs of both.
#![forbid(unsafe_code)]

pub mod bound;
pub mod delayed;
pub mod flusher;
pub mod judge;
pub mod rehearsal;
pub mod sift;
pub mod sift_advice;
pub mod sift_directories;
pub mod sifting;
pub mod trial;
