//! All integration tests of this crate, in one program: each further one would be linked again.

mod blkparse;
mod checked;
mod fio;
mod ftrace;
mod fuzz_targets;
mod hostile;
mod open;
mod sift;
mod store;
mod strace;
