//! Changes that the file system of BACKING allows at the moment.
//!
//! It may turn read-only, by a remount or after an error of its own. From then on files in RAM
//! cannot be written back, so the mount must accept no more of them. ext4 does not show in `statfs`
//! that an error made it read-only (since Linux 6.12), but it refuses to open a file for writing.
//! Opening one changes nothing on flash and waits for nothing, also while the file system is
//! frozen. The lock file is opened: each further file of ours could make inodes of applications
//! cross a block of ext4's table, which would cost a block in each commit.

use super::beneath::LOCK;
use rustix::fs::{Mode, OFlags, StatVfsMountFlags};
use rustix::io::{Errno, Result};
use rustix::time::{ClockId, clock_gettime};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits of the answer, beside the time of the question.
const READ_ONLY: u64 = 1;
const SYNCHRONOUS: u64 = 2;

/// Asks the file system, at most once a tick of the kernel's clock (1 to 10 ms).
#[derive(Debug)]
pub(crate) struct FlashState {
    /// Time of the last question, ns, with the answer in its lowest bits.
    answered: AtomicU64,
}

impl FlashState {
    /// Creates the lock file if no daemon has done so.
    ///
    /// # Errors
    ///
    /// The file system does not create it.
    pub(crate) fn new(hidden: &OwnedFd) -> Result<FlashState> {
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(hidden, LOCK, flags, Mode::RUSR | Mode::WUSR)?;
        Ok(FlashState { answered: AtomicU64::new(0) })
    }

    /// Whether the file system is read-only.
    pub(crate) fn is_read_only(&self, hidden: &OwnedFd) -> bool {
        self.ask(hidden) & READ_ONLY != 0
    }

    /// Whether it is mounted with `sync`: every write is durable when it returns.
    pub(crate) fn is_synchronous(&self, hidden: &OwnedFd) -> bool {
        self.ask(hidden) & SYNCHRONOUS != 0
    }

    fn ask(&self, hidden: &OwnedFd) -> u64 {
        let now = clock_gettime(ClockId::MonotonicCoarse);
        let now = (now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64) & !3 | 4;
        let answered = self.answered.load(Ordering::Relaxed);
        if answered & !3 == now {
            return answered;
        }
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut answer = now;
        if let Err(Errno::ROFS) = rustix::fs::openat(hidden, LOCK, flags, Mode::empty()) {
            answer |= READ_ONLY;
        }
        let synchronous =
            |flash: rustix::fs::StatVfs| flash.f_flag.contains(StatVfsMountFlags::SYNCHRONOUS);
        if rustix::fs::fstatvfs(hidden.as_fd()).is_ok_and(synchronous) {
            answer |= SYNCHRONOUS;
        }
        self.answered.store(answer, Ordering::Relaxed);
        answer
    }
}
