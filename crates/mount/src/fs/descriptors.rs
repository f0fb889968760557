//! The descriptors of this process: what applications may have open, and what syncs, moves and
//! listings need besides.
//!
//! Root's daemon may have as many as the kernel allows. Another user's has the hard limit of its
//! session: applications that held as many files as it allows left none for the sync of any.

use rustix::io::{Errno, Result};
use rustix::process::{Resource, getrlimit};
use std::os::fd::{AsFd, AsRawFd};

/// Divisor of all descriptors: the part that no open takes.
const SPARE: usize = 8;
/// The spare ones are no more than these.
const SPARE_MOST: usize = 1024;

fn all() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// The share that files of BACKING may take before their epoch ends early: applications need the
/// others.
pub(crate) fn open_share() -> usize {
    all() / 4
}

fn spare_of(all: usize) -> usize {
    (all / SPARE).min(SPARE_MOST)
}

fn for_a_move_of(all: usize, most: usize) -> usize {
    most.min(spare_of(all) / 2).max(1)
}

/// So many of these at most may be open at a time for a move.
pub(crate) fn for_a_move(most: usize) -> usize {
    for_a_move_of(all(), most)
}

/// Checks that an application may open one more file. `any` is open.
///
/// # Errors
///
/// `EMFILE` if the others are for syncs.
pub(crate) fn may_open(any: impl AsFd) -> Result<()> {
    // The kernel gives the lowest number that is free.
    let next = rustix::io::fcntl_dupfd_cloexec(any, 0)?.as_raw_fd();
    let taken = usize::try_from(next).unwrap_or(usize::MAX);
    let all = all();
    if taken < all - spare_of(all) { Ok(()) } else { Err(Errno::MFILE) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_are_kept_for_syncs() {
        let kept = |all| (spare_of(all), for_a_move_of(all, 256));
        assert_eq!(kept(256), (32, 16));
        assert_eq!(kept(4096), (512, 256));
        assert_eq!(kept(1 << 20), (1024, 256));
        assert_eq!(kept(8), (1, 1));
    }
}
