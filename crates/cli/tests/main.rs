//! All integration tests of this crate, in one program: each further one would be linked again.

mod doctor;
mod documents;
mod emulated;
mod end_to_end;
mod guest;
mod layouts;
mod logging;
mod metadata;
mod mount;
mod mount_commands;
mod places;
mod power_cuts;
mod prove;
mod record;
mod replay;
mod tune;
mod tune_writeback;
