//! All integration tests of this crate, in one program: each further one would be linked again.

#[expect(dead_code, reason = "the tests of pages use the rest")]
mod allocated;
mod keep_memory;
mod live_events;
