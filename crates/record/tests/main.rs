//! All integration tests of this crate, in one program: each further one would be linked again.

mod accesses;
mod common;
mod direct;
mod folios;
mod places;
mod reuse;
mod strace;
mod world;
