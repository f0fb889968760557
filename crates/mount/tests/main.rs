//! All integration tests of this crate, in one program: each further one would be linked again.

mod delayed;
mod failures;
mod model;
mod rights;
mod same_decisions;
mod syncs;
mod waiting;
mod writes;
