//! All integration tests of this crate, in one program: each further one would be linked again.

mod allocated;
mod authors;
mod cell_memory;
mod keep_memory;
mod live_events;
