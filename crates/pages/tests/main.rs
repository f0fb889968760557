//! All integration tests of this crate, in one program: each further one would be linked again.

#[expect(dead_code, reason = "the tests of files use the rest")]
#[path = "../../files/tests/allocated.rs"]
mod allocated;
mod authors;
mod cell_memory;
